/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What jemalloc asks when it wants memory or has some to give back: its extent hooks.
 *
 * Here: the answers, and why they keep its heap whole.  Not here: pages and areas (area.c).  Who
 * calls: jemalloc, from inside its functions and with locks of the arena held.
 *
 * jemalloc merges free extents that touch.  It must never merge two that are of different arenas:
 * it would take the other's lists apart under the wrong lock, and that crash is what other
 * libraries' hooks have met.  With opt.retain (Linux's default) it does not compare arenas.  It
 * relies on a flag: what a hook returned is a `head`, the rest of a head that was split is none,
 * and nothing is merged with a head above it.  So two arenas' extents must never touch where the
 * upper one is no head, which is what happens when a head is unmapped, the rest of it stays, and
 * the kernel gives the hole to another arena.  Here:
 *
 *   - all pages of an area belong to one arena, so inside an area everything is of that arena;
 *   - what lies at an area's first page was returned by the hook with that address: it is a head;
 *   - without opt.retain jemalloc compares arenas, and the merge hook refuses across two areas.
 *
 * A second promise of opt.retain is not used: that what a hook returned may be larger than asked
 * for and the rest kept for later.  Such calls are known by *commit being false, as no block needs
 * the memory yet, and refused; jemalloc then asks for exactly what it needs.  Thus every byte comes
 * back through the dalloc hook, pages are found again here, and empty areas can go: with retained
 * extents no byte would be given back before the pool's end.  So the pool is the same with and
 * without opt.retain, and arena.<i>.retain_grow_limit, which would only bound the growth, is left
 * alone.
 *
 * A fork in another thread must not find this one with a lock of jemalloc's held (it holds one
 * while it destroys an arena) and waiting for a lock of the core, which the fork has taken: while
 * one is under way the hooks refuse, which they may always do, and who was refused asks again after
 * it (thread.c). */
#include "internal.h"

#include <string.h>

static struct usm_je_arena *arena_of(extent_hooks_t *hooks)
{
    return usm_container_of(hooks, struct usm_je_arena, hooks);
}

/* Leaves a note for who called jemalloc. */
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
    /* For its own data, where it cannot be told to keep that elsewhere; never for blocks. */
    if (p && *zero)
        memset(p, 0, size);
    return p;
}

/* True: refused, jemalloc keeps it. */
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

/* There is nothing to do: pages are counted one by one. */
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

/* Those that are NULL are refused by jemalloc itself: memory is always committed, and whether pages
 * can be purged in place is the driver's matter. */
const extent_hooks_t usm_je_hooks = {
    .alloc  = hook_alloc,
    .dalloc = hook_dalloc,
    .split  = hook_split,
    .merge  = hook_merge,
};
