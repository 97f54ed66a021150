/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The metadata arena.  The core allocates its handles from it; modules never use it.
 *
 *   chunk (64 KiB, never unmapped): [slot][slot][slot]...fresh...[end]
 *   free queue:  head (oldest) -> ... -> tail (newest)
 *
 * A slot is taken from the head only while more than USM__META_QUARANTINE are in the queue;
 * otherwise a fresh one is cut.  So a freed slot is not reused before that many others were freed.
 * The link lies behind the `keep` bytes, which are therefore never overwritten here, not even for a
 * moment: readers of stale handles may read them at any time.  If memory is exhausted, the result
 * is NULL; the quarantine is not shortened. */
#include "base/meta.h"

#include "base/assert.h"
#include "base/fork.h"
#include "base/inline/atomic.h"
#include "base/inline/bits.h"
#include "base/os.h"

#include <string.h>

#define CHUNK_SIZE ((size_t)64 << 10)
#define SLOT_ALIGN ((size_t)64)

/* Guards the list of types.  It has the rank of the types' own locks and is taken before them, so
 * only by functions that skip the rank check. */
static struct {
    usm__mutex      lock;
    usm__meta_type *first; /* guarded by lock */
} types = {.lock = USM__MUTEX_INIT(USM__RANK_META, "metadata types")};

static size_t link_offset(const usm__meta_type *type)
{
    return (type->keep + sizeof(void *) - 1) & ~(sizeof(void *) - 1);
}

size_t usm__meta_slot_size(const usm__meta_type *type)
{
    size_t least = usm_max_size(type->size, link_offset(type) + sizeof(void *));

    return (least + SLOT_ALIGN - 1) & ~(SLOT_ALIGN - 1);
}

static void **link_of(const usm__meta_type *type, void *slot)
{
    return (void **)(void *)((char *)slot + link_offset(type));
}

/* Enters the type in the list, so that the fork handler finds it before any thread can hold its
 * lock. */
static void list_type(usm__meta_type *type)
{
    usm__mutex_lock(&types.lock);
    if (!usm_load_relaxed(&type->listed)) {
        type->next  = types.first;
        types.first = type;
        usm_store_release(&type->listed, true); /* pairs with usm__meta_alloc */
    }
    usm__mutex_unlock(&types.lock);
}

/* pre: the type's lock is held, as for the next two functions. */
static void *pop_free(usm__meta_type *type)
{
    void *slot = type->free_head;

    if (type->free_count <= USM__META_QUARANTINE)
        return NULL;
    type->free_head = *link_of(type, slot);
    type->free_count--;
    return slot;
}

static void push_free(usm__meta_type *type, void *slot)
{
    *link_of(type, slot) = NULL;
    if (type->free_head == NULL)
        type->free_head = slot;
    else
        *link_of(type, type->free_tail) = slot;
    type->free_tail = slot;
    type->free_count++;
}

static void *cut_fresh(usm__meta_type *type)
{
    size_t slot = usm__meta_slot_size(type);
    size_t size = usm_max_size(CHUNK_SIZE, slot);
    char  *p;

    if ((size_t)(type->chunk_end - type->chunk) < slot) {
        p = usm__os_map_for_life(size);
        if (p == NULL)
            return NULL;
        type->chunk     = p;
        type->chunk_end = p + size;
    }
    p = type->chunk;
    type->chunk += slot;
    return p;
}

void *usm__meta_alloc(usm__meta_type *type)
{
    void *slot;

    if (!usm_load_acquire(&type->listed))
        list_type(type);
    usm__mutex_lock(&type->lock);
    slot = pop_free(type);
    if (slot != NULL)
        memset((char *)slot + type->keep, 0, usm__meta_slot_size(type) - type->keep);
    else
        slot = cut_fresh(type); /* a fresh slot is zero */
    type->live += slot != NULL;
    usm__mutex_unlock(&type->lock);
    return slot;
}

void usm__meta_free(usm__meta_type *type, void *p)
{
    if (p == NULL)
        return;
    usm__mutex_lock(&type->lock);
    usm_assert(type->live > 0);
    push_free(type, p);
    type->live--;
    usm__mutex_unlock(&type->lock);
}

void usm__meta_fork(usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE)
        usm__mutex_fork(&types.lock, phase);
    for (usm__meta_type *type = types.first; type != NULL; type = type->next)
        usm__mutex_fork(&type->lock, phase);
    if (phase != USM_FORK_PREPARE)
        usm__mutex_fork(&types.lock, phase);
}
