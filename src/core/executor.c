/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The threads of core/executor.h: one list of jobs, one condition variable.
 *
 * Invariant: with a job in the list, some thread is awake, being woken or being
 * started.  A job that blocks occupies its thread; the next post finds no idle
 * one and starts another, so callbacks cannot deadlock each other (up to the
 * cap, which nothing sane reaches, and as long as the system gives threads: where
 * it does not, those that are there get to it, and jobs that wait for others hold
 * theirs beforehand).  In a forked child there are no threads
 * and the list is emptied: its contexts are refused anyway.
 *
 * The end of the process.  A thread that ends a host task is still handing over what waited for it
 * when the program, which was told of the end, returns from main(): Intel's driver is torn down
 * under it then (seen in a third of such runs).  So exit() first waits, a second at most, until no
 * job runs; the handler itself calls no driver.  A driver may wake who waits for an event before it
 * calls those who asked to be told: its thread may be on its way to us when main() returns, which
 * is the likely reason of a "Pure virtual function called!" that was seen once.  Those calls are
 * waited for as well. */
#include "core/executor.h"

#include "base/inline/atomic.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/os.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define THREADS_MAX  256
#define THREADS_KEPT 2
#define IDLE_NS      2000000000ull
#define EXIT_NS      1000000000ull

static struct {
    usm__mutex     lock;
    pthread_cond_t wake;
    pthread_cond_t calm; /* for the handler of exit(): nothing runs                       */
    usm_list       jobs;
    unsigned       threads;
    unsigned       idle;     /* threads that sleep, are woken or are being started           */
    unsigned       posted;   /* jobs in the list                                           */
    unsigned       expected; /* jobs that drivers will post                                */
    unsigned       held;     /* threads for jobs that wait for other jobs                  */
} ex = {USM__MUTEX_INIT(USM__RANK_EXECUTOR, "executor"),
        PTHREAD_COND_INITIALIZER,
        PTHREAD_COND_INITIALIZER,
        {&ex.jobs, &ex.jobs},
        0,
        0,
        0,
        0,
        0};

/* There is one, and the last ones stay: nobody need ask again. */
static _Atomic(bool) has_threads;

static struct timespec from_now(uint64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(ns / 1000000000ull);
    return until;
}

static bool is_calm(void)
{
    return ex.expected == 0 && ex.idle == ex.threads && usm_list_is_empty(&ex.jobs);
}

static void at_exit(void)
{
    struct timespec until = from_now(EXIT_NS);
    int             rc    = 0;

    usm__mutex_lock(&ex.lock);
    while (rc == 0 && !is_calm())
        rc = usm__mutex_wait(&ex.lock, &ex.calm, &until);
    usm__mutex_unlock(&ex.lock);
}

/* Without memory for the handler, it is as it would be without one. */
static void register_once(void)
{
    (void)atexit(at_exit);
}

/* false: nothing came in time. */
static bool wait_for_job(void)
{
    struct timespec until = from_now(IDLE_NS);
    int             rc    = 0;

    ex.idle++;
    if (is_calm())
        pthread_cond_broadcast(&ex.calm);
    while (rc == 0 && usm_list_is_empty(&ex.jobs))
        rc = usm__mutex_wait(&ex.lock, &ex.wake, &until);
    ex.idle--;
    return !usm_list_is_empty(&ex.jobs);
}

static void thread_main(void *arg)
{
    (void)arg;
    usm__mutex_lock(&ex.lock);
    ex.idle--;
    for (;;) {
        usm_list *it = usm_list_pop(&ex.jobs);

        if (it) {
            usm__job *job = usm_container_of(it, usm__job, link);

            ex.posted--;
            usm__mutex_unlock(&ex.lock);
            job->run(job);
            usm__mutex_lock(&ex.lock);
        } else if (!wait_for_job() && ex.threads > THREADS_KEPT + ex.held) {
            break;
        }
    }
    ex.threads--;
    usm__mutex_unlock(&ex.lock);
}

/* Counts the thread before it runs; 0 or errno. */
static int start_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int                   rc;

    ex.threads++;
    ex.idle++;
    usm__mutex_unlock(&ex.lock);
    (void)pthread_once(&once, register_once); /* after the driver's own: it is in use */
    rc = usm__os_thread(thread_main, NULL, "usm-completion");
    usm__mutex_lock(&ex.lock);
    if (rc != 0) {
        ex.threads--;
        ex.idle--;
    }
    return rc;
}

static usm_status reserve(unsigned held)
{
    int rc = 0;

    if (held == 0 && usm_load_relaxed(&has_threads))
        return USM_OK;
    usm__mutex_lock(&ex.lock);
    ex.held += held;
    if (ex.threads <= ex.held)
        rc = start_thread();
    if (rc == 0)
        usm_store_relaxed(&has_threads, true);
    else
        ex.held -= held;
    usm__mutex_unlock(&ex.lock);
    if (rc != 0)
        return usm__fail(USM_E_SYSTEM, "a thread for completions cannot be started (errno %d)", rc);
    return USM_OK;
}

usm_status usm__executor_reserve(void)
{
    return reserve(0);
}

usm_status usm__executor_hold(void)
{
    return reserve(1);
}

void usm__executor_unhold(void)
{
    usm__mutex_lock(&ex.lock);
    if (ex.held > 0) /* 0: it was held before a fork() */
        ex.held--;
    usm__mutex_unlock(&ex.lock);
}

void usm__executor_post(usm__job *job)
{
    usm__mutex_lock(&ex.lock);
    usm_list_append(&ex.jobs, &job->link);
    ex.posted++;
    if (ex.posted > ex.idle && ex.threads < THREADS_MAX)
        (void)start_thread(); /* the threads there are will get to it */
    pthread_cond_signal(&ex.wake);
    usm__mutex_unlock(&ex.lock);
}

void usm__executor_expect(void)
{
    usm__mutex_lock(&ex.lock);
    ex.expected++;
    usm__mutex_unlock(&ex.lock);
}

void usm__executor_unexpect(void)
{
    usm__mutex_lock(&ex.lock);
    if (ex.expected > 0) /* 0: it was expected before a fork() */
        ex.expected--;
    if (is_calm())
        pthread_cond_broadcast(&ex.calm);
    usm__mutex_unlock(&ex.lock);
}

void usm__executor_fork(usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE) {
        usm__mutex_lock_for_fork(&ex.lock);
    } else if (phase == USM_FORK_PARENT) {
        usm__mutex_unlock_after_fork(&ex.lock);
    } else {
        usm__mutex_reset_in_child(&ex.lock);
        pthread_cond_init(&ex.wake, NULL);
        pthread_cond_init(&ex.calm, NULL);
        usm_list_init(&ex.jobs);
        usm_store_relaxed(&has_threads, false);
        ex.threads = ex.idle = ex.posted = ex.expected = ex.held = 0;
    }
}
