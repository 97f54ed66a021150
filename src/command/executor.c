/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The threads of command/executor.h: one list of jobs, one condition variable.
 *
 * Invariant: while a job is in the list, at least one thread is awake, being woken or being
 * started.  A job that blocks occupies its thread; the next post finds no idle thread and starts
 * another.  Callbacks therefore cannot deadlock each other, up to the limit of threads, which no
 * reasonable program reaches, and as long as the system provides threads.  When it does not, the
 * existing threads run the jobs one after the other, and a job that waits for other jobs has its
 * thread reserved beforehand (usm__executor_hold).  A forked child has no such threads, and the
 * list is emptied: the parent's contexts are refused there anyway.
 *
 * The end of the process.  When a host task has ended, its thread still hands over the commands
 * that waited for it.  The program may see the end of the task and return from main() at that
 * moment, and Intel's driver would be torn down under the thread (seen in a third of such runs).
 * Therefore exit() first waits, for a second at most, until no job runs; the exit handler itself
 * calls no driver.  In addition, a driver may wake the threads that wait for an event before it
 * calls the registered callbacks: its thread may still be about to call libusm when main() returns,
 * which probably caused a "Pure virtual function called!" that was seen once.  exit() waits for
 * those callbacks as well. */
#include "command/executor.h"

#include "base/fork.h"
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
    pthread_cond_t quiescent; /* signalled when nothing runs, for the exit handler */
    usm_list       jobs;
    unsigned       threads;
    unsigned       idle;     /* threads that sleep, are being woken or are being started */
    unsigned       posted;   /* jobs in the list                                         */
    unsigned       expected; /* jobs that drivers will post                              */
    unsigned       held;     /* threads reserved for jobs that wait for other jobs       */
    /* True once a thread exists.  The last threads never end, so callers need not check again. */
    _Atomic(bool) has_threads;
} ex = {USM__MUTEX_INIT(USM__RANK_EXECUTOR, "executor"),
        PTHREAD_COND_INITIALIZER,
        PTHREAD_COND_INITIALIZER,
        {&ex.jobs, &ex.jobs},
        0,
        0,
        0,
        0,
        0,
        false};

static struct timespec from_now(uint64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(ns / 1000000000ull);
    return until;
}

static bool is_quiescent(void)
{
    return ex.expected == 0 && ex.idle == ex.threads && usm_list_is_empty(&ex.jobs);
}

static void at_exit(void)
{
    struct timespec until = from_now(EXIT_NS);
    int             rc    = 0;

    usm__mutex_lock(&ex.lock);
    while (rc == 0 && !is_quiescent())
        rc = usm__mutex_wait(&ex.lock, &ex.quiescent, &until);
    usm__mutex_unlock(&ex.lock);
}

/* If atexit() has no memory, exit() does not wait. */
static void register_once(void)
{
    (void)atexit(at_exit);
}

/* Returns false if no job came in time. */
static bool wait_for_job(void)
{
    struct timespec until = from_now(IDLE_NS);
    int             rc    = 0;

    ex.idle++;
    if (is_quiescent())
        pthread_cond_broadcast(&ex.quiescent);
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
            usm__executor_job *job = usm_container_of(it, usm__executor_job, link);

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

/* Counts a thread before it runs.  Lock held. */
static void count_thread(void)
{
    ex.threads++;
    ex.idle++;
}

/* Starts the thread that was counted; returns 0 or an errno. */
static int start_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int                   rc;

    (void)pthread_once(&once, register_once); /* registered after the driver's own handler, since
                                                 the driver is in use */
    rc = usm__os_thread(thread_main, NULL, "usm-completion");
    if (rc == 0)
        return 0;
    usm__mutex_lock(&ex.lock);
    ex.threads--;
    ex.idle--;
    usm__mutex_unlock(&ex.lock);
    return rc;
}

static usm_status reserve(unsigned held)
{
    bool starts;
    int  rc = 0;

    if (held == 0 && usm_load_relaxed(&ex.has_threads))
        return USM_OK;
    usm__mutex_lock(&ex.lock);
    ex.held += held;
    starts = ex.threads <= ex.held;
    if (starts)
        count_thread();
    usm__mutex_unlock(&ex.lock);
    if (starts)
        rc = start_thread();
    usm__mutex_lock(&ex.lock);
    if (rc == 0)
        usm_store_relaxed(&ex.has_threads, true);
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
    if (ex.held > 0) /* 0: it was reserved before a fork() */
        ex.held--;
    usm__mutex_unlock(&ex.lock);
}

/* The signal comes after the lock was given back: a thread that is woken under it would find it
 * taken, and sleep once more. */
static void post(usm__executor_job *job, bool was_expected)
{
    bool starts;

    usm__mutex_lock(&ex.lock);
    if (was_expected && ex.expected > 0) /* 0: it was expected before a fork() */
        ex.expected--;
    usm_list_append(&ex.jobs, &job->link);
    ex.posted++;
    starts = ex.posted > ex.idle && ex.threads < THREADS_MAX;
    if (starts)
        count_thread();
    usm__mutex_unlock(&ex.lock);
    pthread_cond_signal(&ex.wake);
    if (starts)
        (void)start_thread(); /* if this fails, the existing threads will run the job */
}

void usm__executor_post(usm__executor_job *job)
{
    post(job, false);
}

void usm__executor_post_expected(usm__executor_job *job)
{
    post(job, true);
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
    if (is_quiescent())
        pthread_cond_broadcast(&ex.quiescent);
    usm__mutex_unlock(&ex.lock);
}

void usm__executor_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&ex.lock, phase);
    if (phase == USM_FORK_CHILD) {
        pthread_cond_init(&ex.wake, NULL);
        pthread_cond_init(&ex.quiescent, NULL);
        usm_list_init(&ex.jobs);
        usm_store_relaxed(&ex.has_threads, false);
        ex.threads = ex.idle = ex.posted = ex.expected = ex.held = 0;
    }
}
