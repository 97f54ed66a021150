/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Spaces: ranges of addresses and the tables of their blocks; advice on their use; discarding their
 * content.  Called by src/buffer and segment.c. */
#include "base/assert.h"
#include "base/inline/bits.h"
#include "device/context.h"
#include "spill/internal.h"

#include <stdio.h>
#include <string.h>

/* The system does not tell when pages that it did not move can be moved. */
#define MOVE_AGAIN_MS 1000

/* Bytes: a word, a block and a successor in the access history. */
#define RECORDS_OF_BLOCK (sizeof(usm__word) + sizeof(usm__block) + sizeof(uint32_t))

/* --- creation -------------------------------------------------------------------------- */

static usm_status make_tables(usm__space *space)
{
    usm__space_more *more  = space->more;
    size_t           words = space->nblocks * sizeof *space->words;
    size_t           size  = space->is_foreign ? 0 : space->nblocks * sizeof *more->blocks;
    size_t           bits  = ((((size_t)space->nblocks - 1) >> USM__CHUNK_SHIFT) / 64 + 1) * 8;

    space->words = usm__heap_alloc(words + size + bits);
    if (!space->words)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the tables of %u blocks",
                         space->nblocks);
    more->blocks  = (usm__block *)((uintptr_t)space->words + words);
    more->touched = (_Atomic(uint64_t) *)((uintptr_t)more->blocks + size);
    for (uint32_t i = 0; space->is_foreign && i < space->nblocks; i++)
        atomic_init(&space->words[i], USM__BLOCK_RESIDENT);
    return USM_OK;
}

/* Lock held. */
static void count_records(const usm__space *space, size_t bytes)
{
    space->more->records += bytes;
    usm__spill_add_record(space->spill, bytes);
}

/* What it has before any of its blocks is looked at. */
static size_t first_records(const usm__space *space)
{
    size_t bytes = sizeof *space + sizeof *space->more;

    return bytes +
           (space->is_foreign ? space->nblocks * sizeof *space->words : usm__prefetch_size(0));
}

void usm__space_touch(const usm__space *space, uint32_t chunk)
{
    usm__space_more   *more  = space->more;
    _Atomic(uint64_t) *bits  = &more->touched[chunk / 64];
    uint32_t           first = chunk << USM__CHUNK_SHIFT;
    uint32_t           n = (uint32_t)usm_min_size(space->nblocks - first, 1u << USM__CHUNK_SHIFT);

    usm_assert(!space->is_foreign); /* it has only the words of its blocks, no records */
    for (uint32_t i = first; i < first + n; i++) {
        more->blocks[i].frame   = USM__NO_FRAME;
        more->blocks[i].content = more->home ? USM__CONTENT_HOME : USM__CONTENT_ZERO;
    }
    usm_store_relaxed(bits, usm_load_relaxed(bits) | UINT64_C(1) << chunk % 64);
    count_records(space, n * RECORDS_OF_BLOCK);
}

uint32_t usm__space_skip(const usm__space *space, uint32_t block)
{
    uint32_t chunks = ((space->nblocks - 1) >> USM__CHUNK_SHIFT) + 1;
    uint32_t chunk  = block >> USM__CHUNK_SHIFT;

    if (block >= space->nblocks || usm__space_is_touched(space, chunk))
        return block;
    while (++chunk < chunks) {
        uint64_t bits = usm_load_relaxed(&space->more->touched[chunk / 64]) >> chunk % 64;

        if (bits)
            return (chunk + (uint32_t)__builtin_ctzll(bits)) << USM__CHUNK_SHIFT;
        chunk |= 63;
    }
    return space->nblocks;
}

static usm_status make_prefetch(usm__spill *s, usm__space *space)
{
    usm__space_more *more = space->more;

    more->prefetch = usm__heap_alloc(usm__prefetch_size(space->nblocks));
    if (!more->prefetch)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a buffer");
    usm__prefetch_init(more->prefetch, space->nblocks,
                       usm__prefetch_usual(s->frames.count, s->block_size));
    return USM_OK;
}

static usm_status make_range(usm__spill *s, usm__space *space, void *foreign)
{
    const usm__view *view = space->more->view;

    if (foreign) {
        space->base = foreign;
        return USM_OK;
    }
    space->base = view ? view->base : usm__frames_reserve((size_t)space->nblocks << s->shift);
    if (!space->base)
        return usm__fail(USM_E_NO_MEMORY, "no %zu bytes of addresses for a buffer", space->size);
    return make_prefetch(s, space);
}

static void free_space(usm__space *space)
{
    usm__space_more *more = space->more;

    if (!more)
        goto out;
    if (space->base && !space->is_foreign && !more->view)
        usm__frames_release(space->base, (size_t)space->nblocks << space->shift);
    usm__heap_free(space->words);
    usm__heap_free(more->prefetch);
    if (more->home)
        usm__home_close(more->home);
    usm__heap_free(more);
out:
    usm__heap_free(space);
}

usm_status usm__space_create(usm__spill *s, const usm__space_params *params, usm__space **out)
{
    usm__space *space   = usm__heap_alloc(sizeof *space);
    size_t      nblocks = (params->size >> s->shift) + (params->size % s->block_size != 0);
    usm_status  st      = USM_OK;

    if (space)
        space->more = usm__heap_alloc(sizeof *space->more);
    if (!space || !space->more || nblocks > UINT32_MAX - 1) {
        if (params->home)
            usm__home_close(params->home);
        usm__heap_free(space ? space->more : NULL);
        usm__heap_free(space);
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a buffer of %zu bytes", params->size);
    }
    space->size        = params->size;
    space->shift       = s->shift;
    space->nblocks     = (uint32_t)nblocks;
    space->spill       = s;
    space->is_foreign  = params->foreign != NULL;
    space->more->space = space;
    space->more->home  = params->home;
    space->more->view  = params->view;
    space->more->ctx   = params->ctx;
    snprintf(space->name, sizeof space->name, "%s", params->name ? params->name : "");
    usm_list_init(&space->more->link);
    usm_list_init(&space->more->sleepers);
    st = make_range(s, space, params->foreign);
    if (st == USM_OK)
        st = make_tables(space);
    if (st != USM_OK) {
        free_space(space);
        return st;
    }
    space->more->trace = usm__trace_space(space->name, s->block_size, nblocks);
    usm__mutex_lock(&s->lock);
    space->key = s->next_key;
    s->next_key += nblocks + 1;
    s->stats.blocks += space->is_foreign ? 0 : nblocks;
    usm_list_append(&s->spaces, &space->more->link);
    count_records(space, first_records(space));
    usm__mutex_unlock(&s->lock);
    *out = space;
    return USM_OK;
}

const char *usm__space_title(const usm__space *space, char *text)
{
    const bool has_name = space->name[0] != '\0';

    (void)snprintf(text, USM__SPACE_TITLE, "%s%s%s", has_name ? "buffer \"" : "an unnamed buffer",
                   space->name, has_name ? "\"" : "");
    return text;
}

void *usm__space_frame(const usm__space *space, uint32_t block)
{
    usm__spill *s = space->spill;
    uint32_t    frame;

    usm__mutex_lock(&s->lock);
    frame = usm__block_of(space, block)->frame;
    usm__mutex_unlock(&s->lock);
    return usm__frames_at(&s->frames, frame);
}

/* --- discarding --------------------------------------------------------------------------- */

/* Takes its frame from a block.  Lock held.  *was_moved: its pages were to be moved back at the
 * call before.  USM_E_BUSY: the block is in use. */
static usm_status drop_frame(usm__space *space, uint32_t block, bool *was_moved, usm__deferred *d)
{
    usm__spill *s    = space->spill;
    usm__word  *word = &space->words[block];
    uint64_t    seen = usm_load_relaxed(word);
    uint32_t    frame;

    if (usm__state_of(seen) == USM__BLOCK_ABSENT)
        return USM_OK;
    if (seen & USM__WORD_PINS)
        return USM_E_BUSY;
    frame = usm__block_of(space, block)->frame;
    if (usm__frame_is_busy(&s->frame[frame])) {
        usm__deferred_sleep(d, &s->frame[frame].sleepers, 0);
        return USM__DEFERRED;
    }
    usm__word_change(word, -1, 0, USM__WORD_DIRTY);
    *was_moved = !*was_moved && usm__frame_leave(s, frame, false, d);
    if (!*was_moved) /* it was used, or could not be moved */
        usm__deferred_sleep(d, &s->for_room, MOVE_AGAIN_MS);
    return USM__DEFERRED;
}

/* Drops the frame and copy of a block; false: it is in use. */
static bool drop_block(usm__spill *s, usm__space *space, uint32_t block)
{
    usm__deferred d         = {.frame = NULL};
    usm__copy    *copy      = NULL;
    bool          was_moved = false;
    usm_status    st;

    usm__mutex_lock(&s->lock);
    while ((st = drop_frame(space, block, &was_moved, &d)) == USM__DEFERRED) {
        usm__mutex_unlock(&s->lock);
        usm__deferred_do(s, &d);
        usm__mutex_lock(&s->lock);
    }
    if (st == USM_OK) {
        usm__block *b = usm__block_of(space, block);

        b->content    = USM__CONTENT_ZERO;
        b->must_store = false;
        b->kept       = 0;
        copy          = usm__copy_take(b);
    }
    usm__mutex_unlock(&s->lock);
    usm__copy_forget(s, copy);
    return st == USM_OK;
}

/* Waits for the transfers of a space that readahead finds no more. */
static void await_transfers(usm__space *space)
{
    usm__spill   *s = space->spill;
    usm__deferred d = {.frame = NULL};

    usm__mutex_lock(&s->lock);
    while (space->more->busy) {
        usm__deferred_sleep(&d, &space->more->sleepers, 0);
        usm__mutex_unlock(&s->lock);
        usm__deferred_do(s, &d);
        usm__mutex_lock(&s->lock);
    }
    usm__mutex_unlock(&s->lock);
}

void usm__space_destroy(usm__space *space)
{
    usm__spill *s = space->spill;
    size_t      records;

    if (s->fork_generation != usm__fork_generation())
        return; /* the engine is the parent process's */
    usm__mutex_lock(&s->lock);
    usm__announced_forget(s, space);
    usm_list_remove(&space->more->link);
    usm__mutex_unlock(&s->lock);
    await_transfers(space);
    for (uint32_t i = 0; !space->is_foreign && (i = usm__space_skip(space, i)) < space->nblocks;
         i++)
        (void)drop_block(s, space, i);
    await_transfers(space);
    usm__mutex_lock(&s->lock);
    s->stats.blocks -= space->is_foreign ? 0 : space->nblocks;
    if (s->is_failing)
        usm__frame_forgive(s);
    records = space->more->records;
    usm__mutex_unlock(&s->lock);
    free_space(space);
    usm__spill_drop_record(s, records);
}

/* Discards the whole blocks of the range; those at its ends, which have bytes outside it, are
 * kept. */
static usm_status discard(usm__space *space, size_t offset, size_t size)
{
    usm__spill *s     = space->spill;
    size_t      below = s->block_size - 1;
    uint32_t    first = (uint32_t)((offset + below) >> s->shift);
    uint32_t    end   = (uint32_t)((offset + size) >> s->shift);
    char        title[USM__SPACE_TITLE];

    if (offset + size == space->size)
        end = space->nblocks;
    /* A space with a backing store does not read as zeros where it is untouched. */
    for (uint32_t i = first; (i = space->more->home ? i : usm__space_skip(space, i)) < end; i++)
        if (!drop_block(s, space, i))
            return usm__fail(USM_E_BUSY, "%s: the range that is to be discarded is in use",
                             usm__space_title(space, title));
    usm__mutex_lock(&s->lock);
    if (s->is_failing)
        usm__frame_forgive(s);
    usm__mutex_unlock(&s->lock);
    return USM_OK;
}

/* --- advice ----------------------------------------------------------------------------------- */

static void demote(usm__spill *s, usm__space *space, uint32_t block)
{
    usm__block *b = usm__block_of(space, block);

    if (b->frame == USM__NO_FRAME)
        return;
    usm__word_change(&space->words[block], -1, 0, USM__WORD_USED);
    usm__policy_demote(s->policy, b->frame);
}

static usm_status keep(usm__space *space, size_t offset, size_t size)
{
    usm__spill    *s   = space->spill;
    const usm__pin pin = {space, offset, size, USM_READ};
    usm_status     st  = usm__spill_pin(s, 1, &pin);

    if (st != USM_OK)
        return st;
    usm__mutex_lock(&s->lock);
    for (size_t b = offset >> s->shift; b <= (offset + size - 1) >> s->shift; b++)
        usm__block_of(space, (uint32_t)b)->kept++;
    usm__mutex_unlock(&s->lock);
    usm__space_unpin(space, offset, size, USM_READ);
    return USM_OK;
}

static void set_pattern(usm__space *space, usm__pattern pattern)
{
    const usm__spill *s = space->spill;

    space->more->pattern = pattern;
    usm__prefetch_set(space->more->prefetch, pattern,
                      usm__prefetch_usual(s->frames.count, s->block_size));
}

static usm_status advise(usm__space *space, size_t offset, size_t size, usm_buffer_advice advice)
{
    usm__spill *s     = space->spill;
    uint32_t    first = (uint32_t)(offset >> s->shift);
    uint32_t    last  = (uint32_t)((offset + size - 1) >> s->shift);

    switch (advice) {
    case USM_BUFFER_NORMAL:
    case USM_BUFFER_SEQUENTIAL:
    case USM_BUFFER_RANDOM:
        set_pattern(space, advice == USM_BUFFER_SEQUENTIAL ? USM__PATTERN_SEQUENTIAL
                           : advice == USM_BUFFER_RANDOM   ? USM__PATTERN_RANDOM
                                                           : USM__PATTERN_AUTO);
        return USM_OK;
    case USM_BUFFER_WONT_NEED:
        for (uint32_t i = first; (i = usm__space_skip(space, i)) <= last; i++)
            demote(s, space, i);
        return USM_OK;
    case USM_BUFFER_UNPIN:
        for (uint32_t i = first; (i = usm__space_skip(space, i)) <= last; i++)
            usm__block_of(space, i)->kept -= usm__block_of(space, i)->kept != 0;
        usm__spill_released(s);
        return USM_OK;
    case USM_BUFFER_WILL_NEED:
    case USM_BUFFER_DISCARD:
    case USM_BUFFER_PIN:
        break;
    }
    return usm__fail(USM_E_INVALID, "the advice %d is not a usm_buffer_advice", (int)advice);
}

usm_status usm__space_advise(usm__space *space, size_t offset, size_t size,
                             usm_buffer_advice advice)
{
    usm__spill *s = space->spill;
    usm_status  st;

    if (space->is_foreign)
        return USM_OK; /* memory of the user is not moved */
    if (advice == USM_BUFFER_PIN)
        return keep(space, offset, size);
    if (advice == USM_BUFFER_DISCARD)
        return discard(space, offset, size);
    if (advice == USM_BUFFER_WILL_NEED) {
        usm__readahead_bring(space, (uint32_t)(offset >> s->shift),
                             (uint32_t)((offset + size - 1) >> s->shift) + 1);
        return USM_OK;
    }
    usm__mutex_lock(&s->lock);
    st = advise(space, offset, size, advice);
    usm__mutex_unlock(&s->lock);
    return st;
}
