/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Transfers of a frame's sectors: the runs of f->work, a few at a time, between the frame and the
 * place where the block's content is stored.  Allocates nothing, so a frame can always be stored.
 * Called by load.c and store.c, whose functions usm__load_ended() and usm__store_ended() run at the
 * end on the thread that ended the last part. */
#include "spill/internal.h"

#include <stdio.h>

static void io_ended(usm__io *io, usm_status status);

static void start_part(usm__spill *s, usm__frame *f, usm__io *io, const usm__sectors *run)
{
    usm__block *b        = usm__block_of(f->space, f->block);
    uint32_t    frame    = (uint32_t)(f - s->frame);
    size_t      at       = (size_t)run->first << s->sector_shift;
    bool        is_store = f->state == USM__FRAME_STORING;
    char       *base     = is_store                         ? usm__frame_data(s, f)
                           : f->state == USM__FRAME_FILLING ? usm__block_at(f->space, f->block)
                                                            : usm__frames_at(&s->frames, frame);

    io->key        = f->space->key + f->block;
    io->copy       = b->copy;
    io->data       = base + at;
    io->registered = SIZE_MAX;
    io->block      = f->block;
    io->first      = run->first;
    io->count      = run->count;
    io->done       = io_ended;
    io->user       = f;
    io->is_write   = is_store;
    io->is_awaited = f->urgency == USM__AWAITED;
    io->is_tracked = f->space->more->view != NULL;
    if (is_store)
        usm__tiers_write(s->tiers, io);
    else if (b->content == USM__CONTENT_HOME)
        usm__home_read(f->space->more->home, io);
    else
        usm__tiers_read(s->tiers, io);
}

/* Starts the next runs; false: there are none. */
static bool start_parts(usm__spill *s, usm__frame *f)
{
    usm__sectors runs[USM__FRAME_IOS];
    uint32_t     n = 0;

    while (n < USM__FRAME_IOS && usm__mask_next(&f->work, true, &f->cursor, s->sectors, &runs[n]))
        n++;
    if (n == 0)
        return false;
    /* From here on only io_ended() reads it: once the last part is submitted the transfer may have
     * ended. */
    usm_store_relaxed(&f->pending, n);
    for (uint32_t i = 0; i < n; i++)
        start_part(s, f, &f->ios[i], &runs[i]);
    return true;
}

static void go_on(usm__spill *s, usm__frame *f)
{
    usm_status status = (usm_status)usm_load_relaxed(&f->failed);
    uint32_t   frame  = (uint32_t)(f - s->frame);

    if (status == USM_OK && start_parts(s, f))
        return;
    if (f->state == USM__FRAME_STORING)
        usm__store_ended(s, frame, status);
    else
        usm__load_ended(s, frame, status);
}

/* Keeps this thread's error message for the thread whose access will report it. */
static void keep_message(usm__spill *s, uint64_t key)
{
    usm__mutex_lock(&s->lock);
    snprintf(s->message, sizeof s->message, "%s", usm_last_error());
    s->message_key = key;
    usm__mutex_unlock(&s->lock);
}

static void io_ended(usm__io *io, usm_status status)
{
    usm__frame *f = io->user;

    if (status != USM_OK) {
        usm_store_relaxed(&f->failed, (int)status);
        if (f->state != USM__FRAME_STORING)
            keep_message(f->spill, io->key);
    }
    if (usm_ref_drop(&f->pending))
        go_on(f->spill, f);
}

void usm__transfer(usm__spill *s, uint32_t frame)
{
    usm__frame *f = &s->frame[frame];

    f->cursor = 0;
    usm_store_relaxed(&f->failed, USM_OK);
    f->start_ns = usm__trace_is_on() ? usm__os_now_ns() : 0;
    go_on(s, f);
}
