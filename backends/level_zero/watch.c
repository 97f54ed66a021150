/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Notification of the end of events.
 *
 * Level Zero has no callbacks, and cannot wait for any of several events; but the events of a
 * stream end in order.  So each stream has a watch: a list of notices by age, and a thread that
 * sleeps in the driver until the oldest has ended, notifies, and continues with the next.  A notice
 * that is older than the one slept on (for a late request about an early command) gets another
 * thread, so that the end of a short command is not reported only after a long one.  Threads are
 * started when they are first needed, stay idle for a while, and end.
 *
 * A thread releases what it holds before it notifies, because the callee may exit.  exit.c
 * describes what happens to the threads at the end of the process.
 *
 * The end of a stream that was destroyed with commands in flight is such a notice, too (stream.c).
 *
 * Called by event.c and stream.c. */
#include "queue.h"

#include "base/inline/clock.h"

#include <unistd.h>

#define IDLE_NS UINT64_C(1000000000)

typedef struct notice {
    usm_list              link;
    lz_slot              *slot; /* a reference                                 */
    defer_context        *ctx;  /* a reference, because the slot is part of it */
    usm_backend_notify_fn fn;
    void                 *arg;
} notice;

/* A thread that sleeps in the driver; on its own stack. */
typedef struct sleeper {
    usm_list link;
    uint64_t number;
} sleeper;

struct lz_watch {
    /* atomic */
    _Atomic size_t refs; /* the stream's, one for each of its slots in use and for each thread */
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    usm_list        notices;  /* by number                              */
    usm_list        sleepers; /* in the driver                          */
    unsigned        nfree;    /* threads that will take the next notice */
    bool            is_closed;
};

/* --- creation -------------------------------------------------------------------- */

usm_status lz_watch_create(lz_watch **out)
{
    lz_watch *w = lz_host->heap_alloc(sizeof(*w));

    if (!w)
        return lz_no_memory();
    lz_exit_prepare();
    (void)usm_cond_init_monotonic(&w->changed);
    pthread_mutex_init(&w->lock, NULL);
    usm_list_init(&w->notices);
    usm_list_init(&w->sleepers);
    usm_store_relaxed(&w->refs, 1);
    *out = w;
    return USM_OK;
}

void lz_watch_ref(lz_watch *w)
{
    usm_ref_take(&w->refs);
}

void lz_watch_unref(lz_watch *w)
{
    if (!usm_ref_drop(&w->refs))
        return;
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    lz_host->heap_free(w);
}

void lz_watch_close(lz_watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->is_closed = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* --- the thread --------------------------------------------------------------------- */

/* False: no notice arrived in time.  Lock held. */
static bool idle(lz_watch *w)
{
    struct timespec until = usm_clock_in(CLOCK_MONOTONIC, IDLE_NS);
    int             error = 0;

    while (usm_list_is_empty(&w->notices) && !w->is_closed && !error)
        error = pthread_cond_timedwait(&w->changed, &w->lock, &until);
    return !usm_list_is_empty(&w->notices);
}

/* Takes the oldest notice; NULL: there is nothing left to do.  Lock held. */
static notice *next_notice(lz_watch *w)
{
    usm_list *it = usm_list_pop(&w->notices);

    if (!it && idle(w))
        it = usm_list_pop(&w->notices);
    return it ? usm_container_of(it, notice, link) : NULL;
}

/* False if the process is ending. */
static bool notify(notice *n, usm_status status)
{
    usm_backend_notify_fn fn  = n->fn;
    void                 *arg = n->arg;
    defer_context        *ctx = n->ctx;

    if (!lz_enter())
        return false;
    lz_slot_unref(n->slot);
    defer_note_free(ctx, n);
    defer_context_unref(ctx);
    lz_leave();
    fn(arg, status);
    return true;
}

/* `me` is in the list of sleepers.  False if the process is ending. */
static bool serve(lz_watch *w, notice *n, sleeper *me)
{
    usm_status status  = USM_OK;
    bool       goes_on = lz_slot_sleep(n->slot, &status);

    pthread_mutex_lock(&w->lock);
    usm_list_remove(&me->link);
    w->nfree++;
    pthread_mutex_unlock(&w->lock);
    return goes_on && notify(n, status);
}

static void watch_thread(void *arg)
{
    lz_watch *w = arg;
    notice   *n;
    bool      goes_on = true;

    pthread_mutex_lock(&w->lock);
    while (goes_on && (n = next_notice(w))) {
        sleeper me = {.number = n->slot->number};

        w->nfree--;
        usm_list_append(&w->sleepers, &me.link);
        pthread_mutex_unlock(&w->lock);
        goes_on = serve(w, n, &me);
        pthread_mutex_lock(&w->lock);
    }
    w->nfree--;
    pthread_mutex_unlock(&w->lock);
    if (!goes_on)
        for (;;)
            (void)pause(); /* keeps its references visible to leak checkers */
    lz_watch_unref(w);
}

/* --- adding -------------------------------------------------------------------------- */

/* True if some thread will reach a notice of this number without sleeping on a younger one first.
 * Lock held. */
static bool is_served(const lz_watch *w, uint64_t number)
{
    if (w->nfree)
        return true;
    USM_LIST_FOREACH (it, &((lz_watch *)(uintptr_t)w)->sleepers)
        if (usm_container_of(it, sleeper, link)->number <= number)
            return true;
    return false;
}

/* Lock held. */
static void insert(lz_watch *w, notice *n)
{
    usm_list *before = w->notices.prev;

    while (before != &w->notices &&
           usm_container_of(before, notice, link)->slot->number > n->slot->number)
        before = before->prev;
    usm_list_append(before->next, &n->link);
}

/* Lock held. */
static usm_status start(lz_watch *w)
{
    int error;

    lz_watch_ref(w);
    error = lz_host->os->thread(watch_thread, w, "usm-lz-watch");
    if (!error) {
        w->nfree++;
        return USM_OK;
    }
    lz_watch_unref(w); /* not the last one */
    return lz_report(USM_E_SYSTEM,
                     "no thread to wait for an event (error %d): allow the process more threads",
                     error);
}

usm_status lz_watch_add(lz_watch *w, defer_context *ctx, lz_slot *slot, usm_backend_notify_fn fn,
                        void *arg)
{
    notice    *n      = defer_note_new(ctx);
    usm_status status = USM_OK;

    if (!n)
        return lz_no_memory();
    n->slot = lz_slot_ref(slot);
    n->ctx  = ctx;
    n->fn   = fn;
    n->arg  = arg;
    defer_context_ref(ctx);
    pthread_mutex_lock(&w->lock);
    if (!is_served(w, slot->number))
        status = start(w);
    if (!status) {
        insert(w, n);
        pthread_cond_signal(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    if (!status)
        return USM_OK;
    lz_slot_unref(n->slot);
    defer_note_free(ctx, n);
    defer_context_unref(ctx);
    return status;
}
