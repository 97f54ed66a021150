/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Counts the events from outside that commands wait for (command/outside.h).
 *
 * The thread that counts such an event, and the thread that grants memory, each write first and
 * read afterwards, in one total order:
 *
 *     here:        awaited++;   is a command taking memory?  then wait until it is in its queue
 *     grant.c:     taking++;    is an event awaited?         then take no memory
 *
 * A command that takes memory is therefore in its queue before the command that waits for the
 * event, or it sees that an event is awaited. */
#include "command/outside.h"

#include "base/os.h"
#include "base/part.h"
#include "command/queue.h"

bool usm__outside_awaited(void)
{
    return atomic_load(&usm__queues.awaited) > 0;
}

/* ---- native events that libusm did not make ------------------------------------------------- */

typedef struct watch {
    usm__completion c;
    usm_event      *ev; /* holds a reference */
} watch;

static void foreign_ended(usm__completion *c)
{
    watch *w = usm_container_of(c, watch, c);

    usm_store_release(&w->ev->signalled, USM__EVENT_SIGNALLED);
    (void)atomic_fetch_sub(&usm__queues.awaited, 1);
    usm_event_release(w->ev);
    usm__heap_free(w);
}

/* False: nothing will report the end of the event. */
static bool follow(usm_event *ev)
{
    watch *w = usm__heap_alloc(sizeof *w);

    if (!w)
        return false;
    w->ev = ev;
    usm_ref_take(&ev->refs);
    if (usm__completion_arm(&w->c, ev->ctx->be, ev->native, foreign_ended) == USM_OK)
        return true;
    usm_event_release(ev);
    usm__heap_free(w);
    return false;
}

/* ---- counting -------------------------------------------------------------------------------- */

static bool concerns(const usm_event *ev)
{
    if (usm_load_acquire(&ev->signalled) == USM__EVENT_SIGNALLED)
        return false;
    return ev->is_user || usm__be_event_query(ev->ctx->be, ev->native) == USM_E_NOT_READY;
}

/* False: the event need not be counted, or nothing would report its end. */
static bool count(usm_event *ev)
{
    int was = USM__EVENT_OPEN;

    if (!concerns(ev))
        return false;
    (void)atomic_fetch_add(&usm__queues.awaited, 1);
    if (!usm_cas_acq_rel(&ev->signalled, &was, USM__EVENT_AWAITED)) {
        (void)atomic_fetch_sub(&usm__queues.awaited, 1);
        return was == USM__EVENT_AWAITED; /* another thread has counted it */
    }
    if (ev->is_user || follow(ev))
        return true;
    usm_store_release(&ev->signalled, USM__EVENT_SIGNALLED);
    (void)atomic_fetch_sub(&usm__queues.awaited, 1);
    return false;
}

/* The thread that counted the event may still be waiting for commands that took memory before, so
 * every thread whose command waits for the event does so as well. */
void usm__outside_count(usm_event *ev)
{
    if (usm_load_acquire(&ev->signalled) != USM__EVENT_AWAITED && !count(ev))
        return;
    usm__parts_outside_drain();
}

void usm__outside_ended(int was)
{
    if (was == USM__EVENT_AWAITED)
        (void)atomic_fetch_sub(&usm__queues.awaited, 1);
}

void usm__outside_fork(usm_fork_phase phase)
{
    if (phase == USM_FORK_CHILD)
        atomic_store(&usm__queues.awaited, (size_t)0);
}
