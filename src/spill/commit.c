/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commits: writing dirty blocks to the backing store.  This file selects the blocks and makes them
 * readable one by one; the backing store makes them durable (home.h).
 *
 * From the moment the backing store reads a block until the commit has ended, the block is clean
 * but must not be dropped: must_store.  If it is written meanwhile it becomes dirty again, and
 * stays so.
 *
 * Called by src/buffer, one commit of a space at a time. */
#include "spill/internal.h"

typedef struct commit {
    usm__space *space;
    uint32_t   *blocks;
    size_t      n;
} commit;

/* Whether the block's content differs from the backing store.  While it is stored on a tier it is
 * not dirty, but its `content` does not name the tier yet. */
static bool is_changed(const usm__space *space, uint32_t block)
{
    const usm__block *b = usm__block_of(space, block);

    return b->content != USM__CONTENT_HOME || b->must_store ||
           (usm_load_relaxed(&space->words[block]) & (USM__WORD_DIRTY | USM__WORD_STORING));
}

/* Lock held. */
static void find_changed(commit *c)
{
    c->n = 0;
    for (uint32_t i = 0; (i = usm__space_skip(c->space, i)) < c->space->nblocks; i++)
        if (is_changed(c->space, i))
            c->blocks[c->n++] = i;
}

static usm__pin pin_of(const commit *c, size_t index)
{
    size_t   at   = (size_t)c->blocks[index] << c->space->shift;
    size_t   size = (size_t)1 << c->space->shift;
    usm__pin pin;

    if (size > c->space->size - at)
        size = c->space->size - at;
    pin = (usm__pin){c->space, at, size, USM_READ};
    return pin;
}

static usm_status get(void *arg, size_t index, uint64_t *block, const void **data)
{
    commit     *c   = arg;
    usm__spill *s   = c->space->spill;
    usm__pin    pin = pin_of(c, index);
    usm_status  st  = usm__spill_pin(s, 1, &pin);

    if (st != USM_OK)
        return st;
    usm__mutex_lock(&s->lock);
    usm__block_of(c->space, c->blocks[index])->must_store = true;
    usm__word_change(&c->space->words[c->blocks[index]], -1, 0, USM__WORD_DIRTY);
    usm__mutex_unlock(&s->lock);
    *block = c->blocks[index];
    *data  = usm__block_at(c->space, c->blocks[index]);
    return USM_OK;
}

static void put(void *arg, size_t index)
{
    const commit  *c   = arg;
    const usm__pin pin = pin_of(c, index);

    usm__space_unpin(c->space, pin.offset, pin.size, pin.mode);
}

/* No transfer of the block is under way when its copy is dropped. */
static void end_block(usm__spill *s, usm__space *space, uint32_t block)
{
    usm__deferred d    = {.frame = NULL};
    usm__copy    *copy = NULL;
    usm__block   *b;

    usm__mutex_lock(&s->lock);
    b = usm__block_of(space, block);
    while (b->frame != USM__NO_FRAME && usm__frame_is_busy(&s->frame[b->frame])) {
        usm__deferred_sleep(&d, &s->frame[b->frame].sleepers, 0);
        usm__mutex_unlock(&s->lock);
        usm__deferred_do(s, &d);
        usm__mutex_lock(&s->lock);
    }
    if (!(usm_load_relaxed(&space->words[block]) & USM__WORD_DIRTY)) { /* not written meanwhile */
        b->content    = USM__CONTENT_HOME;
        b->must_store = false;
        copy          = usm__copy_take(b);
    }
    usm__mutex_unlock(&s->lock);
    usm__copy_forget(s, copy);
}

usm_status usm__space_commit(usm__space *space)
{
    usm__spill       *s     = space->spill;
    commit            c     = {.space = space};
    usm__dirty_blocks dirty = {.get = get, .put = put, .arg = &c};
    usm_status        st;

    c.blocks = usm__heap_alloc(space->nblocks * sizeof *c.blocks);
    if (!c.blocks)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a list of %u blocks", space->nblocks);
    usm__mutex_lock(&s->lock);
    find_changed(&c);
    usm__mutex_unlock(&s->lock);
    dirty.n = c.n;
    st      = usm__home_commit(space->more->home, &dirty);
    for (size_t i = 0; st == USM_OK && i < c.n; i++)
        end_block(s, space, c.blocks[i]);
    usm__heap_free(c.blocks);
    return st;
}
