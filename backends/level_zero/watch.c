/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Who is told when an event ends.
 *
 * Level Zero calls nobody back and cannot wait for any of several events; but the events of a lane
 * end in order.  So each lane has a watch: a list of notices by age, and a thread that sleeps in
 * the driver until the oldest has ended, tells, and goes on to the next.  A notice that is older
 * than the one slept on (somebody asked late about an early command) gets another thread, so that
 * nobody learns of a short command only after a long one.  Threads are started when first needed,
 * idle for a while, and go.
 *
 * A thread gives back what it holds before it tells: who has been told may exit.  What happens to
 * threads at the end of the process: exit.c.
 *
 * The end of a lane that was given up with work in flight is such a notice, too (lane.c).
 *
 * Called by event.c and lane.c. */
#include "queue.h"

#include <time.h>
#include <unistd.h>

#define IDLE_SECONDS 1

typedef struct notice {
    usm_list              link;
    lz_slot              *slot; /* a reference */
    gate_context         *ctx;  /* a reference: the slot lies in it */
    usm_backend_notify_fn fn;
    void                 *arg;
} notice;

/* A thread that sleeps in the driver; lies on its stack. */
typedef struct sleeper {
    usm_list link;
    uint64_t number;
} sleeper;

struct lz_watch {
    /* atomic */
    _Atomic size_t refs; /* the lane's, one of each of its slots in use and of each thread   */
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    usm_list        notices;  /* by number                                                   */
    usm_list        sleepers; /* in the driver                                               */
    unsigned        nfree;    /* threads that will look at the notices next                  */
    bool            is_closed;
};

/* --- creation -------------------------------------------------------------------- */

usm_status lz_watch_create(lz_watch **out)
{
    lz_watch          *w = lz_host->heap_alloc(sizeof(*w));
    pthread_condattr_t attributes;

    if (!w)
        return lz_no_memory();
    lz_exit_prepare();
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attributes);
    pthread_condattr_destroy(&attributes);
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

/* Whether a notice may have come before the time was up.  Lock held. */
static bool idle(lz_watch *w)
{
    struct timespec until;
    int             error = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_SECONDS;
    while (usm_list_is_empty(&w->notices) && !w->is_closed && !error)
        error = pthread_cond_timedwait(&w->changed, &w->lock, &until);
    return !usm_list_is_empty(&w->notices);
}

/* The oldest; NULL when there is nothing to do any more.  Lock held. */
static notice *next_notice(lz_watch *w)
{
    usm_list *it = usm_list_pop(&w->notices);

    if (!it && idle(w))
        it = usm_list_pop(&w->notices);
    return it ? usm_container_of(it, notice, link) : NULL;
}

/* False when the process ends. */
static bool tell(notice *n, usm_status status)
{
    usm_backend_notify_fn fn  = n->fn;
    void                 *arg = n->arg;
    gate_context         *ctx = n->ctx;

    if (!lz_enter())
        return false;
    lz_slot_unref(n->slot);
    gate_note_free(ctx, n);
    gate_context_unref(ctx);
    lz_leave();
    fn(arg, status);
    return true;
}

/* Lock held, but not while it sleeps and tells.  False when the process ends. */
static bool serve(lz_watch *w, notice *n)
{
    sleeper    me     = {.number = n->slot->number};
    usm_status status = USM_OK;
    bool       goes_on;

    w->nfree--;
    usm_list_append(&w->sleepers, &me.link);
    pthread_mutex_unlock(&w->lock);
    goes_on = lz_slot_sleep(n->slot, &status);
    pthread_mutex_lock(&w->lock);
    usm_list_remove(&me.link);
    w->nfree++;
    pthread_mutex_unlock(&w->lock);
    goes_on = goes_on && tell(n, status);
    pthread_mutex_lock(&w->lock);
    return goes_on;
}

static void watch_thread(void *arg)
{
    lz_watch *w = arg;
    notice   *n;
    bool      goes_on = true;

    pthread_mutex_lock(&w->lock);
    while (goes_on && (n = next_notice(w)))
        goes_on = serve(w, n);
    w->nfree--;
    pthread_mutex_unlock(&w->lock);
    if (!goes_on)
        for (;;)
            (void)pause(); /* what it holds stays in sight of leak checkers */
    lz_watch_unref(w);
}

/* --- adding -------------------------------------------------------------------------- */

/* Whether some thread gets to a notice of this number without sleeping on a younger one first.
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

usm_status lz_watch_add(lz_watch *w, gate_context *ctx, lz_slot *slot, usm_backend_notify_fn fn,
                        void *arg)
{
    notice    *n      = gate_note_new(ctx);
    usm_status status = USM_OK;

    if (!n)
        return lz_no_memory();
    n->slot = lz_slot_ref(slot);
    n->ctx  = ctx;
    n->fn   = fn;
    n->arg  = arg;
    gate_context_ref(ctx);
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
    gate_note_free(ctx, n);
    gate_context_unref(ctx);
    return status;
}
