/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Loading blocks into memory.
 *
 *     ABSENT -> LOADING -> RESIDENT           all sectors
 *                      \-> PARTIAL -> ...     only the sectors that were requested; more later
 *
 * A frame is filled in the arena and then moved into the space; sectors that are loaded later are
 * read to where the frame is then.  Called by pin_block.c and readahead.c. */
#include "spill/internal.h"

#include <string.h>

/* The number in a trace of the place where its block's content is stored. */
static uint32_t source_of(const usm__spill *s, const usm__frame *f)
{
    const usm__block *b = usm__block_of(f->space, f->block);

    if (b->content == USM__CONTENT_HOME)
        return usm__home_trace(f->space->more->home);
    return b->copy ? usm__tiers_trace(s->tiers, b->copy->tier) : 0;
}

void usm__frame_trace(const usm__spill *s, const usm__frame *f, usm__trace_spill_kind kind)
{
    if (f->start_ns != 0)
        usm__trace_spill(&(usm__trace_spill_event){.kind  = kind,
                                                   .space = f->space->more->trace,
                                                   .tier  = source_of(s, f),
                                                   .block = f->block,
                                                   .bytes = (uint64_t)usm__mask_count(&f->work)
                                                            << s->sector_shift,
                                                   .ns = usm__os_now_ns() - f->start_ns});
}

static void trace_fetch(const usm__spill *s, const usm__frame *f)
{
    usm__frame_trace(s, f, f->urgency == USM__AHEAD ? USM__SPILL_FETCH_AHEAD : USM__SPILL_FETCH);
}

/* The sectors that were read are in memory. */
static void enter(usm__frame *f)
{
    usm__word *word    = &f->space->words[f->block];
    bool       is_new  = f->state != USM__FRAME_FILLING;
    uint64_t   set     = is_new && f->urgency == USM__AHEAD ? USM__WORD_FRESH : 0;
    bool       is_swap = f->state == USM__FRAME_SWAPPING;

    for (size_t i = 0; i < USM__MASK_WORDS; i++)
        f->present.bits[i] |= f->work.bits[i];
    f->space->more->resident += is_new;
    usm__word_change(word, (int)usm__frame_content(f), set, 0);
    usm__frame_become(f, is_swap ? USM__FRAME_DROPPING : USM__FRAME_HELD);
}

static void fail(usm__spill *s, usm__frame *f, usm_status status)
{
    uint32_t    frame = (uint32_t)(f - s->frame);
    usm__block *b     = usm__block_of(f->space, f->block);
    usm__word  *word  = &f->space->words[f->block];

    b->status = (int16_t)status;
    if (f->state == USM__FRAME_FILLING) { /* the sectors that were there before are still there */
        usm__frame_become(f, USM__FRAME_HELD);
        return;
    }
    usm__policy_remove(s->policy, frame, false);
    b->frame = USM__NO_FRAME;
    usm__word_change(word, USM__BLOCK_ABSENT, 0, USM__WORD_FRESH | USM__WORD_USED);
    usm__frame_put_free(s, frame);
}

void usm__load_ended(usm__spill *s, uint32_t frame, usm_status status)
{
    usm__frame *f     = &s->frame[frame];
    usm__space *space = f->space;

    if (status == USM_OK && f->state != USM__FRAME_FILLING && usm__frame_place(s, frame) != 0)
        status = USM_E_NO_MEMORY;
    usm__mutex_lock(&s->lock);
    s->loads--;
    if (status == USM_OK) {
        trace_fetch(s, f);
        enter(f);
    } else {
        fail(s, f, status);
    }
    if (f->state == USM__FRAME_DROPPING) {
        /* It was the spare frame: memory has the only copy from now on.  No thread begins to store
         * the block before the copy on the tier is dropped. */
        usm__copy *copy = usm__copy_take(usm__block_of(space, f->block));

        usm__word_change(&space->words[f->block], -1, USM__WORD_DIRTY, 0);
        usm__mutex_unlock(&s->lock);
        usm__copy_forget(s, copy);
        usm__mutex_lock(&s->lock);
        usm__frame_become(f, USM__FRAME_HELD);
        usm__frame_forgive(s);
    }
    usm__space_unbusy(space);
    usm__spill_changed(s);
    usm__mutex_unlock(&s->lock);
}

/* The frame is busy with the load; `work` has its sectors. */
static void begin(usm__spill *s, const usm__load *load, usm__frame *f, usm__deferred *d)
{
    f->urgency  = (uint8_t)load->urgency;
    f->start_ns = 0;
    s->loads++;
    load->space->more->busy++;
    usm__block_of(load->space, load->block)->status = USM_OK;
    d->frame                                        = f;
}

/* Where there is no content to read, the block is zeros, or all of it will be written. */
static usm__fill fill_of(const usm__spill *s, const usm__load *load, bool was_zero)
{
    bool is_zero = usm__block_of(load->space, load->block)->content == USM__CONTENT_ZERO;

    if (!is_zero && load->needs_content)
        return USM__FILL_READ;
    return is_zero && !was_zero && (load->needs_content || load->need.count < s->sectors)
               ? USM__FILL_ZERO
               : USM__FILL_NONE;
}

/* The sectors that the load makes present. */
static usm__sectors filled_by(const usm__spill *s, const usm__load *load)
{
    bool is_zero = usm__block_of(load->space, load->block)->content == USM__CONTENT_ZERO;

    if (is_zero)
        return (usm__sectors){0, s->sectors};
    if (load->needs_content || load->need.count == s->sectors)
        return load->need;
    return (usm__sectors){0, 0};
}

void usm__load_absent(usm__spill *s, const usm__load *load, uint32_t frame, usm__deferred *d)
{
    usm__frame  *f    = &s->frame[frame];
    usm__sectors work = filled_by(s, load);

    f->space      = load->space;
    f->block      = load->block;
    f->was_wanted = false;
    f->last_end   = load->need.first + load->need.count;
    f->fill       = (uint8_t)fill_of(s, load, f->state == USM__FRAME_ZERO);
    memset(&f->present, 0, sizeof f->present);
    memset(&f->dirty, 0, sizeof f->dirty);
    memset(&f->work, 0, sizeof f->work);
    usm__mask_set(&f->work, work.first, work.count);
    usm__block_of(load->space, load->block)->frame = frame;
    usm__policy_insert(s->policy, frame, load->space->key + load->block, load->hint);
    usm__word_change(&load->space->words[load->block], USM__BLOCK_LOADING, 0,
                     USM__WORD_DIRTY | USM__WORD_USED | USM__WORD_FRESH);
    usm__frame_become(f, load->is_swap ? USM__FRAME_SWAPPING : USM__FRAME_LOADING);
    begin(s, load, f, d);
}

void usm__load_missing(usm__spill *s, const usm__load *load, usm__deferred *d)
{
    usm__frame *f = &s->frame[usm__block_of(load->space, load->block)->frame];

    usm__frame_become(f, USM__FRAME_FILLING);
    f->last_end = load->need.first + load->need.count;
    f->fill     = USM__FILL_READ;
    memset(&f->work, 0, sizeof f->work);
    usm__mask_set(&f->work, load->need.first, load->need.count);
    for (size_t i = 0; i < USM__MASK_WORDS; i++)
        f->work.bits[i] &= ~f->present.bits[i];
    begin(s, load, f, d);
}

void usm__load_make(usm__spill *s, usm__frame *f)
{
    uint32_t frame = (uint32_t)(f - s->frame);

    if (f->fill == USM__FILL_ZERO)
        memset(usm__frames_at(&s->frames, frame), 0, s->block_size);
    if (f->fill == USM__FILL_READ)
        usm__transfer(s, frame);
    else
        usm__load_ended(s, frame, USM_OK);
}
