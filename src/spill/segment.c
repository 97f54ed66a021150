/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Room for small buffers: many share a block, so that one transfer moves all of them.
 *
 * A shared space is cut into blocks.  A block in use ("segment") serves one size class, with its
 * free slots in a bit map; buffers that are created in succession are adjacent.  A block whose last
 * slot is freed is discarded, unless it is the only block of the class with room.
 *
 * Called by src/buffer.  It has a lock of its own, taken before the engine's. */
#include "base/inline/bits.h"
#include "base/inline/classes.h"
#include "spill/internal.h"

#define SLOT_MAX     ((size_t)256 << 10)
#define SPACE_BLOCKS 1024 /* of a shared space                                              */

typedef struct shared shared;

typedef struct segment {
    usm_list  link; /* in classes[class], while it has room                                 */
    uint64_t *free; /* bit i: slot i is free                                                */
    uint32_t  slots, nfree, hint;
    uint16_t class;
    uint32_t block;
    shared  *of;
} segment;

/* One shared space. */
struct shared {
    struct shared *next;
    usm__space    *space;
    uint32_t       used; /* blocks [0, used) were handed out before                           */
    uint32_t       given_back;
    uint32_t       back[SPACE_BLOCKS]; /* blocks that were freed                              */
    segment       *segments[SPACE_BLOCKS];
};

struct usm__segments {
    usm__mutex lock;
    usm_list   classes[USM_BINS];
    shared    *first;
};

size_t usm__segment_max(const usm__spill *s)
{
    size_t most = s->block_size / 4;

    return most < SLOT_MAX ? most : SLOT_MAX;
}

/* The size of the class; sizes from a page on are whole pages, so that buffers do not share
 * sectors. */
static size_t slot_size(size_t size)
{
    if (size >= 4096)
        size = (size + 4095) & ~(size_t)4095;
    return usm_class_size(usm_class_of(size));
}

static usm__segments *segments_of(usm__spill *s)
{
    usm__segments *all;

    usm__mutex_lock(&s->lock);
    all = s->segments;
    if (!all && (all = usm__heap_alloc(sizeof *all)) != NULL) {
        usm__mutex_init(&all->lock, USM__RANK_SEGMENT, "segments");
        for (size_t i = 0; i < USM_BINS; i++)
            usm_list_init(&all->classes[i]);
        usm_store_release(&s->segments, all);
    }
    usm__mutex_unlock(&s->lock);
    return all;
}

/* --- segments ------------------------------------------------------------------------- */

static usm_status add_space(usm__spill *s, usm__segments *all)
{
    const usm__space_params params = {.size = (size_t)SPACE_BLOCKS << s->shift,
                                      .name = "(small buffers)"};
    shared                 *sh     = usm__heap_alloc(sizeof *sh);
    usm_status              st;

    if (!sh)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for small buffers");
    st = usm__space_create(s, &params, &sh->space);
    if (st != USM_OK) {
        usm__heap_free(sh);
        return st;
    }
    sh->space->more->shared = sh;
    sh->next                = all->first;
    all->first              = sh;
    return USM_OK;
}

/* Takes a block that is free, from any shared space; lock held. */
static usm_status take_block(usm__spill *s, usm__segments *all, shared **sh, uint32_t *block)
{
    for (int round = 0; round < 2; round++) {
        for (shared *it = all->first; it; it = it->next) {
            if (!it->given_back && it->used == SPACE_BLOCKS)
                continue;
            *sh    = it;
            *block = it->given_back ? it->back[--it->given_back] : it->used++;
            return USM_OK;
        }
        if (round == 0) {
            usm_status st = add_space(s, all);

            if (st != USM_OK)
                return st;
        }
    }
    return usm__fail(USM_E_INTERNAL, "a new shared space has no block");
}

static usm_status add_segment(usm__spill *s, usm__segments *all, size_t size)
{
    uint32_t   slots = (uint32_t)(s->block_size / size);
    size_t     words = (slots + 63) / 64;
    segment   *g     = usm__heap_alloc(sizeof *g + words * sizeof(uint64_t));
    shared    *sh    = NULL;
    uint32_t   block = 0;
    usm_status st    = g ? take_block(s, all, &sh, &block)
                         : usm__fail(USM_E_NO_MEMORY, "no host memory for small buffers");

    if (st != USM_OK) {
        usm__heap_free(g);
        return st;
    }
    g->free  = (uint64_t *)(void *)(g + 1);
    g->slots = g->nfree = slots;
    g->class            = (uint16_t)usm_class_of(size);
    for (uint32_t i = 0; i < slots; i++)
        g->free[i / 64] |= UINT64_C(1) << (i % 64);
    g->of               = sh;
    g->block            = block;
    sh->segments[block] = g;
    usm_list_append(&all->classes[g->class], &g->link);
    return USM_OK;
}

/* pre: the segment has a free slot. */
static uint32_t take_slot(segment *g)
{
    uint32_t w = g->hint;
    uint32_t i;

    while (g->free[w] == 0)
        w = w + 1 < (g->slots + 63) / 64 ? w + 1 : 0;
    i = w * 64 + (uint32_t)__builtin_ctzll(g->free[w]);
    g->free[w] &= g->free[w] - 1;
    g->hint = w;
    if (--g->nfree == 0)
        usm_list_remove(&g->link);
    return i;
}

usm_status usm__segment_alloc(usm__spill *s, size_t size, usm__space **space, size_t *offset)
{
    usm__segments *all =
        usm_load_acquire(&s->segments) ? usm_load_relaxed(&s->segments) : segments_of(s);
    usm_status st   = USM_OK;
    size_t     slot = slot_size(size);
    usm_list  *of;
    segment   *g;

    if (!all)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for small buffers");
    usm__mutex_lock(&all->lock);
    of = &all->classes[usm_class_of(slot)];
    if (usm_list_is_empty(of))
        st = add_segment(s, all, slot);
    if (st == USM_OK) {
        g       = usm_container_of(of->next, segment, link);
        *space  = g->of->space;
        *offset = ((size_t)g->block << s->shift) + (size_t)take_slot(g) * slot;
    }
    usm__mutex_unlock(&all->lock);
    return st;
}

/* Frees the segment's block.  Lock held. */
static void drop_segment(segment *g)
{
    shared *sh = g->of;
    size_t  at = (size_t)g->block << sh->space->shift;

    usm_list_remove(&g->link);
    sh->segments[g->block] = NULL;
    (void)usm__space_advise(sh->space, at, (size_t)1 << sh->space->shift, USM_BUFFER_DISCARD);
    sh->back[sh->given_back++] = g->block;
    usm__heap_free(g);
}

void usm__segment_free(usm__space *space, size_t offset, size_t size)
{
    usm__segments *all  = usm_load_acquire(&space->spill->segments);
    shared        *sh   = space->more->shared;
    size_t         slot = slot_size(size);
    segment       *g;
    uint32_t       i;

    usm__mutex_lock(&all->lock);
    g = sh->segments[offset >> space->shift];
    i = (uint32_t)((offset & (((size_t)1 << space->shift) - 1)) / slot);
    g->free[i / 64] |= UINT64_C(1) << (i % 64);
    if (g->nfree++ == 0)
        usm_list_append(&all->classes[g->class], &g->link);
    if (g->nfree == g->slots && all->classes[g->class].next->next != &all->classes[g->class])
        drop_segment(g);
    usm__mutex_unlock(&all->lock);
}

void usm__segments_fini(usm__spill *s)
{
    usm__segments *all = usm_load_acquire(&s->segments);

    if (!all)
        return;
    while (all->first) {
        shared *sh = all->first;

        all->first = sh->next;
        for (uint32_t i = 0; i < SPACE_BLOCKS; i++)
            usm__heap_free(sh->segments[i]);
        usm__space_destroy(sh->space);
        usm__heap_free(sh);
    }
    usm__mutex_fini(&all->lock);
    usm__heap_free(all);
    usm_store_release(&s->segments, NULL);
}

void usm__segments_fork(usm__spill *s, usm_fork_phase phase)
{
    usm__segments *all = usm_load_acquire(&s->segments);

    if (!all)
        return;
    if (phase == USM_FORK_PREPARE)
        usm__mutex_lock_for_fork(&all->lock);
    else if (phase == USM_FORK_PARENT)
        usm__mutex_unlock_after_fork(&all->lock);
    else
        usm__mutex_reset_in_child(&all->lock);
}
