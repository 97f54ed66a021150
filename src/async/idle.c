/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues that are not used for a while: without this the blocks that they freed last would stay in
 * their lists, because no event is recorded while a queue reuses its own blocks.
 *
 * A thread sleeps for TICK_NS while there are lists with blocks (and ends when there have been none
 * for a while).  A list in which nothing was put or taken since its last look gets an event behind
 * its last block, and its blocks return to the pool when that is complete.  The thread itself does
 * not call a driver: the executor, which the end of the process waits for, does the work of a
 * tick. */
#include "async/internal.h"
#include "base/fork.h"
#include "base/inline/clock.h"
#include "base/os.h"

#define TICK_NS 20000000  /* a list counts as unused after one to two of these            */
#define LAST_NS 500000000 /* the thread stays so long with no list to look at             */

usm__async_state usm__async_now = {.lock =
                                       USM__MUTEX_INIT(USM__RANK_ASYNC, "lists that are watched"),
                                   .wake  = PTHREAD_COND_INITIALIZER,
                                   .lists = {&usm__async_now.lists, &usm__async_now.lists}};

/* ---- an unused list ------------------------------------------------------------------------ */

typedef struct drain {
    usm__completion   c;
    usm__async_event *ev;
    usm__async_list  *list;
    usm_queue        *q; /* referenced */
} drain;

static void drain_run(usm__completion *c)
{
    drain            *d  = usm_container_of(c, drain, c);
    usm__async_queue *aq = d->list->queue;
    usm_queue        *q  = d->q;

    usm__async_reach(aq, d->ev->position);
    (void)usm__async_drain(d->list, d->ev->position, false);
    usm_store_release(&d->list->is_armed, false);
    usm__async_event_release(d->ev);
    usm__async_list_unref(d->list);
    usm__heap_free(d);
    usm__queue_unref(q);
}

/* If there is no memory or thread, the next tick tries again. */
static void drain_later(usm__async_list *l, uint64_t last)
{
    drain *d = usm__heap_alloc(sizeof *d);

    if (!d)
        return;
    *d = (drain){.list = l, .q = l->queue->q};
    if (!usm__async_hold_queue(l->queue))
        goto err_drain; /* the queue is ending, which drains its lists */
    d->ev = usm__async_event_behind(l->queue, l->pool, last);
    if (!d->ev)
        goto err_queue;
    usm__async_list_ref(l);
    usm_store_relaxed(&l->is_armed, true);
    if (usm__completion_arm(&d->c, d->ev->ctx->be, d->ev->native, drain_run) == USM_OK)
        return;
    usm_store_relaxed(&l->is_armed, false);
    usm__async_list_unref(l);
    usm__async_event_release(d->ev);
err_queue:
    usm__queue_unref(d->q);
err_drain:
    usm__heap_free(d);
}

/* False: the list is empty, and removed from those looked at. */
static bool look_after(usm__async_list *l)
{
    uint64_t last = 0;
    bool     is_still;

    usm__async_lock(l);
    is_still      = l->moves == l->seen_moves;
    l->seen_moves = l->moves;
    if (usm_load_relaxed(&l->blocks) == 0)
        usm_store_relaxed(&l->is_watched, false); /* a thread that fills it sees this            */
    else if (is_still)
        last = usm__async_last(l);
    usm__async_unlock(l);
    if (!usm_load_relaxed(&l->is_watched))
        return false;
    if (is_still && !usm_load_acquire(&l->is_armed))
        drain_later(l, last);
    return true;
}

/* ---- the tick -------------------------------------------------------------------------------- */

/* Lists of queues that have ended are empty: they are removed like others. */
static void tick(usm__executor_job *job)
{
    usm_list  now;
    usm_list *it;

    (void)job;
    usm_list_init(&now);
    usm__mutex_lock(&usm__async_now.lock);
    while ((it = usm_list_pop(&usm__async_now.lists)) != NULL)
        usm_list_append(&now, it);
    while ((it = usm_list_pop(&now)) != NULL) {
        usm__async_list *l = usm_container_of(it, usm__async_list, watched);
        bool             stays;

        usm__mutex_unlock(&usm__async_now.lock);
        stays = look_after(l);
        usm__mutex_lock(&usm__async_now.lock);
        if (stays) {
            usm_list_append(&usm__async_now.lists, &l->watched);
            continue;
        }
        usm__mutex_unlock(&usm__async_now.lock);
        usm__async_list_unref(l);
        usm__mutex_lock(&usm__async_now.lock);
    }
    usm__async_now.is_posted = false;
    usm__mutex_unlock(&usm__async_now.lock);
}

/* Lock held, and released meanwhile. */
static int sleep_for(uint64_t ns)
{
    struct timespec until = usm_clock_in(CLOCK_REALTIME, ns);

    return usm__mutex_wait(&usm__async_now.lock, &usm__async_now.wake, &until);
}

static void thread_main(void *arg)
{
    (void)arg;
    usm__mutex_lock(&usm__async_now.lock);
    for (;;) {
        if (usm_list_is_empty(&usm__async_now.lists) && !usm__async_now.is_posted) {
            if (sleep_for(LAST_NS) != 0 && usm_list_is_empty(&usm__async_now.lists))
                break;
            continue;
        }
        while (sleep_for(TICK_NS) == 0) /* nothing else wakes it */
            ;
        if (!usm__async_now.is_posted && usm__executor_reserve() == USM_OK) {
            usm__async_now.is_posted = true;
            usm__async_now.job.run   = tick;
            usm_list_init(&usm__async_now.job.link);
            usm__executor_post(&usm__async_now.job);
        }
    }
    usm__async_now.has_thread = false;
    usm__mutex_unlock(&usm__async_now.lock);
}

void usm__async_watch(usm__async_list *l)
{
    bool no = false;

    if (!usm_cas_acq_rel(&l->is_watched, &no, true))
        return;
    usm__async_list_ref(l);
    usm__mutex_lock(&usm__async_now.lock);
    usm_list_append(&usm__async_now.lists, &l->watched);
    if (usm__async_now.has_thread)
        pthread_cond_signal(&usm__async_now.wake);
    else /* without a thread the blocks wait for the next one, or for an allocation  */
        usm__async_now.has_thread = usm__os_thread(thread_main, NULL, "usm-idle") == 0;
    usm__mutex_unlock(&usm__async_now.lock);
}

void usm__async_idle_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&usm__async_now.lock, phase);
    if (phase == USM_FORK_CHILD) {
        pthread_cond_init(&usm__async_now.wake, NULL);
        usm_list_init(&usm__async_now.lists);
        usm__async_now.has_thread = usm__async_now.is_posted = false;
    }
}
