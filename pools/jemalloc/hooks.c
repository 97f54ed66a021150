/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The extent hooks: the functions that jemalloc calls to get memory and to return it.
 *
 * Here: the hooks, and why they keep jemalloc's heap consistent.  Not here: pages and areas
 * (area.c).  Called by jemalloc, from inside its functions and with locks of the arena held.
 *
 * jemalloc merges adjacent free extents.  It must never merge two extents of different arenas: it
 * would change the other arena's lists under the wrong lock, and hooks of other libraries have met
 * that crash.  With opt.retain (the default on Linux) it does not compare arenas.  Instead it
 * relies on a flag: an extent returned by a hook is a `head`, the upper part of a split head is not
 * one, and no extent is merged with a head above it.  So extents of two arenas must never be
 * adjacent where the upper one is not a head.  That can happen if a head is unmapped, the upper
 * part stays, and the kernel gives the hole to another arena.  Here:
 *
 *   - all pages of an area belong to one arena, so everything inside an area belongs to that arena;
 *   - an extent at the first page of an area was returned by the hook as such: it is a head;
 *   - without opt.retain jemalloc compares arenas, and the merge hook refuses across two areas.
 *
 * A second feature of opt.retain is not used: a hook may return more than jemalloc needs, and the
 * rest is kept for later.  Such calls have *commit false, because no block needs the memory yet,
 * and are refused; jemalloc then requests exactly what it needs.  So every byte returns through the
 * dalloc hook, its pages are found again here, and empty areas can be returned; with retained
 * extents no byte would be returned before the end of the pool.  The pool thus behaves the same
 * with and without opt.retain, and arena.<i>.retain_grow_limit, which would only limit the growth,
 * is left alone.
 *
 * Fork.  A thread may hold a lock of jemalloc (for instance while it destroys an arena) and wait
 * for a lock of the core, which another thread's fork() has taken.  That would be a deadlock.
 * Therefore the hooks refuse while a fork is in progress, which they may always do, and the refused
 * caller tries again after it (thread.c). */
#include "internal.h"

#include <string.h>

static struct usm_je_arena *arena_of(extent_hooks_t *hooks)
{
    return usm_container_of(hooks, struct usm_je_arena, hooks);
}

/* Stores the result for the caller of jemalloc. */
static void note(usm_status status, bool forking)
{
    usm_je_call *call = usm_je_call_now();

    if (!call)
        return;
    call->status = status;
    call->forking |= forking;
}

static void *hook_alloc(extent_hooks_t *hooks, void *at, size_t size, size_t align, bool *zero,
                        bool *commit, unsigned index)
{
    usm_status status = USM_E_NO_MEMORY;
    void      *p;

    (void)index;
    if (at || !*commit || !usm_load_acquire(&arena_of(hooks)->open))
        return NULL;
    if (!usm_je_gate_enter()) {
        note(USM_E_NO_MEMORY, true);
        return NULL;
    }
    p = usm_je_arena_serve(arena_of(hooks), size, align, &status);
    usm_je_gate_leave();
    note(p ? USM_OK : status, false);
    /* jemalloc needs this for its own data, where it cannot be told to keep these elsewhere; never
     * for blocks. */
    if (p && *zero)
        memset(p, 0, size);
    return p;
}

/* True: refused, and jemalloc keeps the memory. */
static bool hook_dalloc(extent_hooks_t *hooks, void *p, size_t size, bool committed, unsigned index)
{
    struct usm_je_area *a = usm_je_area_of(p);

    (void)committed;
    (void)index;
    if (!a || a->arena != arena_of(hooks) || !usm_je_gate_enter())
        return true;
    usm_je_arena_take_back(a->arena, a, p, size);
    usm_je_gate_leave();
    return false;
}

/* Nothing to do, because pages are counted one by one. */
static bool hook_split(extent_hooks_t *hooks, void *p, size_t size, size_t low, size_t high,
                       bool committed, unsigned index)
{
    (void)hooks;
    (void)p;
    (void)size;
    (void)low;
    (void)high;
    (void)committed;
    (void)index;
    return false;
}

static bool hook_merge(extent_hooks_t *hooks, void *low, size_t low_size, void *high,
                       size_t high_size, bool committed, unsigned index)
{
    (void)hooks;
    (void)low_size;
    (void)high_size;
    (void)committed;
    (void)index;
    return usm_je_area_of(low) != usm_je_area_of(high);
}

/* jemalloc itself refuses the operations of hooks that are NULL: memory is always committed, and
 * whether pages can be purged in place depends on the driver. */
const extent_hooks_t usm_je_hooks = {
    .alloc  = hook_alloc,
    .dalloc = hook_dalloc,
    .split  = hook_split,
    .merge  = hook_merge,
};
