/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The progress of a queue, which is learnt from waits for it, from queries, and from events that
 * are recorded when blocks that it has freed are needed.  One event serves every free before it,
 * and only the newest is kept. */
#include "async/internal.h"
#include "base/os.h"
#include "device/observer.h"

void usm__async_reach(usm__async_queue *aq, uint64_t position)
{
    uint64_t old = usm_load_relaxed(&aq->reached);

    if (old < position && usm__observer_order_on())
        usm__observer_get()->claim_complete(aq->q, position);
    while (old < position && !usm_cas_acq_rel(&aq->reached, &old, position))
        ;
}

void usm__async_event_release(usm__async_event *ev)
{
    if (!ev || !usm_ref_drop(&ev->refs))
        return;
    usm__be_event_release(ev->ctx->be, ev->native);
    usm__context_unref(ev->ctx);
    usm__heap_free(ev);
}

/* The newest event, with a reference; NULL: none. */
static usm__async_event *newest(usm__async_queue *aq)
{
    usm__async_event *ev;

    usm__mutex_lock(&aq->lock);
    ev = aq->event;
    if (ev)
        (void)usm_ref_take(&ev->refs);
    usm__mutex_unlock(&aq->lock);
    return ev;
}

/* Consumes a reference to `with`, and replaces `was` by it if that is still there. */
static void replace(usm__async_queue *aq, usm__async_event *was, usm__async_event *with)
{
    usm__async_event *gone = with;

    usm__mutex_lock(&aq->lock);
    if (aq->event == was || (with && (!aq->event || aq->event->position < with->position))) {
        gone      = aq->event;
        aq->event = with;
    }
    usm__mutex_unlock(&aq->lock);
    usm__async_event_release(gone);
}

uint64_t usm__async_reached(usm__async_queue *aq)
{
    usm__async_event *ev;

    if (!usm_load_relaxed(&aq->q->is_shared))
        usm__async_reach(aq, usm_load_acquire(&aq->q->ended));
    ev = newest(aq);
    if (ev && usm__be_event_query(ev->ctx->be, ev->native) != USM_E_NOT_READY) {
        usm__async_reach(aq, ev->position);
        replace(aq, ev, NULL);
    }
    usm__async_event_release(ev);
    return usm_load_acquire(&aq->reached);
}

/* Two references: for `aq`, and for the caller. */
static usm__async_event *record(usm__async_queue *aq)
{
    usm__async_event *ev = usm__heap_alloc(sizeof *ev);

    if (!ev) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for an event");
        return NULL;
    }
    ev->native = NULL;
    if (usm__queue_mark(aq->q, &ev->native, &ev->position) != USM_OK) {
        usm__heap_free(ev);
        return NULL;
    }
    ev->ctx = aq->q->ctx;
    usm__context_ref(ev->ctx);
    usm_store_relaxed(&ev->refs, 2u);
    return ev;
}

usm__async_event *usm__async_event_behind(usm__async_queue *aq, usm__async_pool *ap,
                                          uint64_t position)
{
    usm__async_event *ev = newest(aq), *made;

    if (ev && ev->position >= position)
        return ev;
    made = record(aq);
    if (made) {
        usm_add_relaxed(&ap->events, (uint64_t)1);
        replace(aq, ev, made);
    }
    usm__async_event_release(ev);
    return made;
}

uint64_t usm__async_see(usm__async_list *l)
{
    usm__async_queue *aq      = l->queue;
    uint64_t          reached = usm__async_reached(aq), last;
    usm__async_event *ev;

    usm__async_lock(l);
    last = usm__async_last(l);
    usm__async_unlock(l);
    if (reached >= last)
        return reached;
    ev = newest(aq); /* not complete, or there is no event */
    if (!ev)
        ev = usm__async_event_behind(aq, l->pool, last);
    usm__async_event_release(ev);
    return usm__async_reached(aq);
}
