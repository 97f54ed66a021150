/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The clock of vclock.h, and the calls that read it. */
#include "vclock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLICE_NS  UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define LONGEST_S 120u /* real time; who has not seen a step by then never will */
#define THREADS   512
#define EXPORTED  __attribute__((visibility("default")))

int __wrap_ppoll(struct pollfd *list, nfds_t n, const struct timespec *left, const sigset_t *mask);
int __real_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __real_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_signal(pthread_cond_t *c);
int __real_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c);

/* A thread that makes timed waits. */
typedef struct waiter {
    _Atomic(uint64_t) who;  /* the process in the upper half, the thread; 0: free                */
    _Atomic(uint64_t) seen; /* the offset at its last look from inside a wait                   */
    _Atomic(bool)     waits;
} waiter;

static struct shared {
    _Atomic(uint64_t) offset; /* nanoseconds */
    waiter            waiters[THREADS];
} * shared;

static pthread_key_t         key;
static _Thread_local waiter *self;
static _Thread_local pid_t   self_pid;
/* The offset that this thread has read since its last wait, if it has: what it computes spans of
 * time from. */
static _Thread_local uint64_t known;
static _Thread_local bool     has_read;

static uint64_t real_ns(void)
{
    struct timespec t;

    (void)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t get_offset(void)
{
    return shared ? atomic_load(&shared->offset) : 0;
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
}

static uint64_t ns_of(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec;
}

/* ---- who waits ----------------------------------------------------------------------------- */

static uint64_t name_of(pid_t pid, pid_t tid)
{
    return (uint64_t)pid << 32 | (uint32_t)tid;
}

static uint64_t my_name(void)
{
    return name_of(getpid(), (pid_t)syscall(SYS_gettid));
}

static pid_t process_of(uint64_t who)
{
    return (pid_t)(who >> 32);
}

static void end_thread(void *p)
{
    waiter  *w  = p;
    uint64_t me = my_name(); /* a child has a copy of its parent's */

    (void)atomic_compare_exchange_strong(&w->who, &me, 0);
    self = NULL;
}

static bool is_gone(pid_t pid)
{
    return kill(pid, 0) != 0 && errno == ESRCH;
}

/* Those of dead processes are taken again.  What is left in one by its last thread stops nobody for
 * long: who takes it writes at once. */
static waiter *take_slot(void)
{
    for (size_t i = 0; i < THREADS; i++) {
        waiter  *w    = &shared->waiters[i];
        uint64_t none = atomic_load(&w->who);

        if ((none == 0 || is_gone(process_of(none))) &&
            atomic_compare_exchange_strong(&w->who, &none, my_name()))
            return w;
    }
    abort();
}

static void begin_wait(void)
{
    if (!shared)
        return;
    if (!self || self_pid != getpid()) {
        self     = take_slot();
        self_pid = getpid();
        (void)pthread_setspecific(key, self);
    }
    atomic_store(&self->seen, has_read ? known : get_offset());
    atomic_store(&self->waits, true);
}

/* Nothing of this thread will become due by time. */
static void begin_untimed_wait(void)
{
    if (!self || self_pid != getpid())
        return;
    atomic_store(&self->seen, UINT64_MAX);
    atomic_store(&self->waits, true);
}

static void end_wait(void)
{
    has_read = false;
    if (self && self_pid == getpid())
        atomic_store(&self->waits, false);
}

/* The time now, for a wait until `deadline`: what is not due yet has been seen to be so. */
static bool is_due(uint64_t deadline, uint64_t *left)
{
    uint64_t offset = get_offset(), now = real_ns() + offset;

    if (now >= deadline)
        return true;
    if (shared)
        atomic_store(&self->seen, offset);
    *left = deadline - now < SLICE_NS || !shared ? deadline - now : SLICE_NS;
    return false;
}

/* ---- the calls ------------------------------------------------------------------------------ */

EXPORTED int clock_gettime(clockid_t which, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, which, t);

    if (rc != 0 || which != CLOCK_MONOTONIC)
        return rc;
    has_read = true;
    known    = get_offset();
    *t       = timespec_of(ns_of(t) + known);
    return 0;
}

static int poll_until(struct pollfd *list, nfds_t n, uint64_t deadline)
{
    uint64_t left = 0;
    int      ready, error;

    begin_wait();
    do {
        bool            is_last = is_due(deadline, &left);
        struct timespec slice   = timespec_of(is_last ? 0 : left);

        ready = (int)syscall(SYS_ppoll, list, n, &slice, NULL, 0);
        error = errno;
        if (is_last)
            break;
    } while (ready == 0);
    end_wait();
    errno = error;
    return ready;
}

/* The span counts from the clock as this thread read it, for it was computed from that. */
static uint64_t deadline_in(uint64_t ns)
{
    return real_ns() + (has_read ? known : get_offset()) + ns;
}

static int poll_untimed(struct pollfd *list, nfds_t n)
{
    int ready, error;

    begin_untimed_wait();
    ready = (int)syscall(SYS_ppoll, list, n, NULL, NULL, 0);
    error = errno;
    end_wait();
    errno = error;
    return ready;
}

EXPORTED int poll(struct pollfd *list, nfds_t n, int ms)
{
    if (ms < 0)
        return poll_untimed(list, n);
    return poll_until(list, n, deadline_in((uint64_t)ms * NS_PER_MS));
}

int __wrap_ppoll(struct pollfd *list, nfds_t n, const struct timespec *left, const sigset_t *mask)
{
    if (mask)
        abort(); /* nobody in libusm has one */
    if (!left)
        return poll_untimed(list, n);
    return poll_until(list, n, deadline_in(ns_of(left)));
}

/* A signal that comes between two slices finds nobody who waits: who was in between sees that there
 * was one. */
static _Atomic(unsigned) signals;

int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
    atomic_fetch_add(&signals, 1);
    return __real_pthread_cond_signal(c);
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
    atomic_fetch_add(&signals, 1);
    return __real_pthread_cond_broadcast(c);
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    int rc;

    begin_untimed_wait();
    rc = __real_pthread_cond_wait(c, m);
    end_wait();
    return rc;
}

/* A point in time of the calendar is the machine's; one of CLOCK_MONOTONIC is some days at most
 * after the machine's start. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at)
{
    unsigned        before = atomic_load(&signals);
    uint64_t        left   = 0;
    struct timespec slice;
    int             rc;

    if (!shared || at->tv_sec > 1000000000)
        return __real_pthread_cond_timedwait(c, m, at);
    begin_wait();
    for (;;) {
        bool is_last = is_due(ns_of(at), &left);

        slice = timespec_of(real_ns() + (is_last ? 0 : left));
        rc    = __real_pthread_cond_timedwait(c, m, &slice);
        if (rc != ETIMEDOUT || is_last)
            break;
        if (atomic_load(&signals) != before) {
            rc = 0; /* as if it had been woken for nothing */
            break;
        }
    }
    end_wait();
    return rc;
}

/* ---- the test's side ------------------------------------------------------------------------- */

static void start_in_child(void)
{
    has_read = false;
}

void vclock_start(void)
{
    if (shared)
        return;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pthread_key_create(&key, end_thread) != 0 ||
        pthread_atfork(NULL, NULL, start_in_child) != 0)
        abort();
}

uint64_t vclock_now_ms(void)
{
    return (real_ns() + get_offset()) / NS_PER_MS;
}

void vclock_step(uint64_t ms)
{
    atomic_fetch_add(&shared->offset, ms * NS_PER_MS);
}

/* The state of /proc/PID/stat; 0: there is none. */
static char state_of(pid_t pid)
{
    char  path[64], text[512], state = 0;
    FILE *file;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return 0;
    if (fgets(text, sizeof text, file) && strrchr(text, ')'))
        state = strrchr(text, ')')[2];
    (void)fclose(file);
    return state;
}

static bool is_live(pid_t pid)
{
    char state = state_of(pid);

    return state != 0 && !strchr("TtZX", state);
}

static void nap(uint64_t begun, const char *what)
{
    if (real_ns() - begun > LONGEST_S * NS_PER_S) {
        (void)printf("# vclock: waited in vain until %s\n", what);
        (void)fflush(stdout);
        abort();
    }
    (void)usleep(200);
}

/* Of the library, alive, and not through with that step yet. */
static bool is_behind(waiter *w, uint64_t offset)
{
    uint64_t who = atomic_load(&w->who);
    pid_t    pid = process_of(who);

    if (who == 0 || who == name_of(pid, pid) || who == my_name())
        return false;
    if (atomic_load(&w->waits) && atomic_load(&w->seen) >= offset)
        return false;
    return is_live(pid);
}

static void wait_until_seen(uint64_t offset)
{
    uint64_t begun = real_ns();

    for (size_t i = 0; i < THREADS; i++)
        while (is_behind(&shared->waiters[i], offset))
            nap(begun, "all live threads have seen a step of time");
}

void vclock_pass(uint64_t ms, uint64_t step_ms)
{
    while (ms > 0) {
        uint64_t step = ms < step_ms ? ms : step_ms;

        vclock_step(step);
        wait_until_seen(get_offset());
        ms -= step;
    }
}

static bool main_waits(pid_t pid)
{
    for (size_t i = 0; i < THREADS; i++) {
        waiter *w = &shared->waiters[i];

        if (atomic_load(&w->who) == name_of(pid, pid) && atomic_load(&w->waits))
            return true;
    }
    return false;
}

bool vclock_wait_until_waiting(pid_t pid)
{
    uint64_t begun = real_ns();

    while (!main_waits(pid)) {
        char state = state_of(pid);

        if (state == 0 || state == 'Z')
            return false;
        nap(begun, "the main thread of a process waits for something");
    }
    return true;
}

int vclock_wait_pid(pid_t pid, uint64_t step_ms)
{
    uint64_t begun  = real_ns();
    int      status = -1;
    pid_t    ended;

    while ((ended = waitpid(pid, &status, WNOHANG)) == 0) {
        if (main_waits(pid))
            vclock_pass(step_ms, step_ms);
        nap(begun, "a process has ended");
    }
    return ended == pid ? status : -1;
}
