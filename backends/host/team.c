/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The workers of the host backend: their number, when they sleep, which thread wakes them.
 *
 * There is one team for all queues of the process, as large as the number of processors available
 * to it: those it may run on, at most as many as its control group's quota pays for
 * (USM_HOST_THREADS overrides this).  The first command starts the first worker, and fails if that
 * is impossible; the others are started when they are needed.  All end when the last context and
 * queue are destroyed.
 *
 * Waking.  A thread that leaves jobs behind (a submitter, or a worker that takes one of several)
 * wakes one sleeping worker, or starts one if none sleeps.  A worker without work polls a flag for
 * SPIN_NS before it sleeps, only one worker at a time: small commands in quick succession then cost
 * no system call.  A waiting process uses no processor time.
 *
 * Tasks may block, even for each other, and occupy their worker.  If commands are ready, no worker
 * is free, some are in tasks and none took a part for a while, the standby thread starts a worker
 * beyond the team's size; this worker ends when it finds nothing to do.  The delay grows with the
 * number of such workers, so that long tasks that only compute get few.  Kernels and copies do not
 * block.
 *
 * Rejected: binding workers to processors by default.  A task may start threads (OpenMP's, for
 * instance), which inherit the binding to one processor; USM_HOST_BIND=1 binds for programs without
 * such tasks.
 *
 * Called by queue.c; the lock is the graph's. */
#include "graph.h"

#include <base/inline/clock.h>

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#define SPIN_NS     20000u
#define STANDBY_NS  1000000u
#define EXIT_NS     1000000000u
#define WORKERS_MAX 256u

#define graph usm__host_the_graph

/* --- its size -------------------------------------------------------------------------------- */

unsigned usm__host_team_size(bool *may_spin)
{
    unsigned cpus = usm__host_lib->os->cpu_count();
    uint64_t set  = usm__host_lib->setting_size("host_threads");

    *may_spin = cpus > 1;
    if (set > 0)
        return set < WORKERS_MAX ? (unsigned)set : WORKERS_MAX;
    return cpus < 2 ? 2 : cpus; /* two also on one processor: one worker may run a long kernel */
}

/* --- workers --------------------------------------------------------------------------------- */

/* Binds to the index-th processor of the process, if the team has as many workers as processors. */
static void bind_worker(unsigned index)
{
    cpu_set_t all, one;
    unsigned  n = 0;

    if (!usm__host_lib->setting_bool("host_bind") || sched_getaffinity(0, sizeof(all), &all) != 0 ||
        (unsigned)CPU_COUNT(&all) != usm__host.workers || index >= usm__host.workers)
        return;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && n++ == index)
            CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
}

/* Waits until there may be work, at most SPIN_NS. */
static void spin(void)
{
    uint64_t until = usm_clock_ns(CLOCK_MONOTONIC) + SPIN_NS;

    while (!usm_load_relaxed(&graph.is_ready) && usm_clock_ns(CLOCK_MONOTONIC) < until)
        for (int i = 0; i < 16; i++)
            usm_cpu_relax();
}

static void sleep_for_work(void)
{
    graph.idle++;
    pthread_cond_wait(&graph.work, &graph.lock);
    graph.idle--;
}

/* The lock is held.  Records that the worker's last step is done, and chooses the next one, which
 * it does without the lock.  False: it ends, because there is no user, or one worker too many. */
static bool next_step(usm__host_step *s)
{
    bool has_spun = s->kind == USM__HOST_STEP_SPIN;

    if (has_spun)
        graph.is_spinning = false;
    usm__host_step_done(s);
    while (s->kind == USM__HOST_STEP_NONE && graph.users > 0) {
        if (!usm_list_is_empty(&graph.ready)) {
            usm__host_step_take_part(s);
        } else if (graph.workers > usm__host.workers) {
            return false;
        } else if (!has_spun && !graph.is_spinning && usm__host.may_spin) {
            s->kind           = USM__HOST_STEP_SPIN;
            graph.is_spinning = true;
        } else {
            sleep_for_work();
            has_spun = false;
        }
    }
    return s->kind != USM__HOST_STEP_NONE;
}

static void worker(void *index)
{
    usm__host_step s = {.kind = USM__HOST_STEP_NONE};

    bind_worker((unsigned)(uintptr_t)index);
    pthread_mutex_lock(&graph.lock);
    while (next_step(&s)) {
        pthread_mutex_unlock(&graph.lock);
        if (s.kind == USM__HOST_STEP_SPIN)
            spin();
        else
            usm__host_step_do(&s);
        pthread_mutex_lock(&graph.lock);
    }
    graph.workers--;
    pthread_mutex_unlock(&graph.lock);
}

/* Returns 0 or an errno value. */
static int start_worker(void)
{
    void *index = (void *)(uintptr_t)graph.workers;
    int   error = usm__host_lib->os->thread(worker, index, "usm-host");

    if (!error)
        graph.workers++;
    return error;
}

int usm__host_have_worker(void)
{
    return graph.workers > 0 ? 0 : start_worker();
}

usm_status usm__host_no_worker(int error)
{
    return usm__host_refused(error == ENOMEM ? USM_E_NO_MEMORY : USM_E_SYSTEM,
                             "no thread for the host's commands (see ulimit -u)", error);
}

/* --- the standby ----------------------------------------------------------------------------- */

/* Commands are ready, and possibly no worker will ever become free for them. */
static bool is_stuck(void)
{
    return !usm_list_is_empty(&graph.ready) && graph.idle == 0 && !graph.is_spinning &&
           graph.in_tasks > 0 && graph.workers < WORKERS_MAX;
}

static void wait_a_while(void)
{
    uint64_t extra    = graph.workers > usm__host.workers ? graph.workers - usm__host.workers : 0;
    struct timespec t = usm_clock_in(CLOCK_REALTIME, STANDBY_NS * (1 + extra));

    (void)pthread_cond_timedwait(&graph.standby, &graph.lock, &t);
}

static void standby(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&graph.lock);
    while (graph.users > 0) {
        uint64_t taken = graph.taken;

        if (!is_stuck()) {
            graph.is_standby_awake = false;
            pthread_cond_wait(&graph.standby, &graph.lock);
            continue;
        }
        wait_a_while();
        if (graph.users > 0 && is_stuck() && graph.taken == taken)
            (void)start_worker(); /* if this fails, it is tried again */
    }
    graph.has_standby = graph.is_standby_awake = false;
    pthread_mutex_unlock(&graph.lock);
}

/* If no thread can be started for it, the next command tries again. */
static void wake_standby(void)
{
    if (graph.is_standby_awake || !is_stuck())
        return;
    if (!graph.has_standby)
        graph.has_standby = usm__host_lib->os->thread(standby, NULL, "usm-standby") == 0;
    else
        pthread_cond_signal(&graph.standby);
    graph.is_standby_awake = graph.has_standby;
}

/* --- waking ---------------------------------------------------------------------------------- */

void usm__host_call_for_help(void)
{
    if (usm_list_is_empty(&graph.ready) || graph.is_spinning)
        return; /* the spinning worker takes one, and wakes others for the rest */
    if (graph.idle > 0)
        pthread_cond_signal(&graph.work);
    else if (graph.workers < usm__host.workers)
        (void)start_worker(); /* if this fails, the existing workers do the work */
    else
        wake_standby();
}

void usm__host_workers_keep(void)
{
    usm__host_graph_lock();
    graph.users++;
    usm_store_release(&graph.has_users, true);
    usm__host_graph_unlock();
}

void usm__host_workers_let_go(void)
{
    bool is_last;

    usm__host_graph_lock();
    is_last = --graph.users == 0;
    if (is_last) {
        usm_store_release(&graph.has_users, false);
        pthread_cond_broadcast(&graph.work);
        pthread_cond_broadcast(&graph.standby);
    }
    usm__host_graph_unlock();
    if (is_last)
        usm__host_forget_recycled();
}

/* Waits for the remaining functions of the program, before the objects that they use are torn down.
 * A function that waits for something that never comes is abandoned after EXIT_NS, as in
 * command/executor.c. */
static void at_exit(void)
{
    struct timespec t  = usm_clock_in(CLOCK_REALTIME, EXIT_NS);
    int             rc = 0;

    usm__host_graph_lock();
    while (rc == 0 && graph.tasks > 0)
        rc = pthread_cond_timedwait(&graph.quiescent, &graph.lock, &t);
    usm__host_graph_unlock();
}

/* If atexit() has no memory, exit() does not wait. */
static void register_once(void)
{
    (void)atexit(at_exit);
}

void usm__host_watch_exit(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, register_once);
}

/* The threads that the condition variables count do not exist in the child: they are
 * re-initialised. */
void usm__host_team_in_child(void)
{
    graph.in_child = true;
    graph.workers = graph.idle = graph.in_tasks = 0;
    graph.tasks                                 = 0;
    graph.is_spinning = graph.has_standby = graph.is_standby_awake = false;
    pthread_cond_init(&graph.work, NULL);
    pthread_cond_init(&graph.standby, NULL);
    pthread_cond_init(&graph.quiescent, NULL);
}
