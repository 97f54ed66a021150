/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How far queues have got, for the monitor page.
 *
 * A queue learns that commands have ended when somebody waits for it or queries it.  Without that all
 * of its commands would look as if they were in flight.  So while somebody reads, a job of the executor
 * asks the drivers (usm__queue_poll_ended()): queues that have commands in flight, and no others.
 *
 * The thread that samples does not ask itself, because a call of a driver may take long: then figures
 * are old, but the page is not.  A process for which the checker of order works is not asked at all,
 * because to the checker a query looks like one of the program.
 *
 * The end of the process.  Drivers are torn down by exit() while threads run, so the exit handler of
 * monitor.c waits until no queue is asked, and ends the asking. */
#include "monitor/monitor.h"

#include "base/os.h"
#include "command/queue.h"
#include "device/observer.h"

#define MARKER_NS 2000000u /* in which a marker ends that has nothing before it */
#define EXIT_NS   1000000000u
#define NAP_NS    1000000u

typedef enum progress_state { IDLE = 0, ASKS, HAS_ENDED } progress_state;

typedef struct queue_set {
    size_t     n;
    usm_queue *list[USM__MONITOR_QUEUES]; /* with a reference each */
} queue_set;

static bool has_commands(usm_queue *q)
{
    return usm_load_relaxed(&q->submitted) != usm_load_relaxed(&q->ended) &&
           !usm_load_relaxed(&q->is_shared);
}

static void add_queues(usm_context *ctx, void *arg)
{
    queue_set *set = arg;

    if (usm__context_is_inert(ctx))
        return;
    usm__mutex_lock(&ctx->lock);
    USM_LIST_FOREACH (it, &ctx->queues) {
        usm_queue *q = usm_container_of(it, usm_queue, link);

        if (set->n < USM__MONITOR_QUEUES && has_commands(q) && usm__queue_ref(q))
            set->list[set->n++] = q;
    }
    usm__mutex_unlock(&ctx->lock);
}

/* A marker ends a moment after it was queued, even if nothing is before it: the second look finds
 * queues that have no commands any more. */
static void ask(usm__executor_job *job)
{
    usm__monitor_progress *progress = usm_container_of(job, usm__monitor_progress, job);
    queue_set              set      = {0};

    usm__contexts_each(add_queues, &set);
    for (size_t i = 0; i < set.n; i++)
        usm__queue_poll_ended(set.list[i]);
    if (set.n > 0)
        usm__os_sleep_ns(MARKER_NS);
    for (size_t i = 0; i < set.n; i++) {
        usm__queue_poll_ended(set.list[i]);
        usm__queue_unref(set.list[i]);
    }
    usm_store_release(&progress->state, (int)IDLE);
}

void usm__monitor_end_asking(usm__monitor_progress *progress)
{
    uint64_t until = usm__os_now_ns() + EXIT_NS;
    int      idle  = IDLE;

    while (!usm_cas_acq_rel(&progress->state, &idle, (int)HAS_ENDED) && usm__os_now_ns() < until) {
        usm__os_sleep_ns(NAP_NS);
        idle = IDLE;
    }
}

static void find_commands(usm_context *ctx, void *arg)
{
    bool *is_any = arg;

    if (usm__context_is_inert(ctx))
        return;
    usm__mutex_lock(&ctx->lock);
    USM_LIST_FOREACH (it, &ctx->queues)
        *is_any |= has_commands(usm_container_of(it, usm_queue, link));
    usm__mutex_unlock(&ctx->lock);
}

void usm__monitor_ask_queues(usm__monitor_progress *progress)
{
    bool is_any = false;
    int  idle   = IDLE;

    if (usm__observer_order_on())
        return;
    usm__contexts_each(find_commands, &is_any);
    if (!is_any || usm__executor_reserve() != USM_OK)
        return;
    if (!usm_cas_acq_rel(&progress->state, &idle, (int)ASKS))
        return;
    progress->job = (usm__executor_job){.run = ask};
    usm_list_init(&progress->job.link);
    usm__executor_post(&progress->job);
}

void usm__monitor_progress_in_child(usm__monitor_progress *progress)
{
    usm_store_relaxed(&progress->state, (int)IDLE);
}
