/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Frees that are in flight when something ends: a queue, a process, nobody's attention.  All come
 * back, and nobody has to wait for a queue.  Without hooks, so that the quick paths are taken;
 * queues are held by user events, and every wait here has an end. */
#include "plain.h"

#include <usm/usm.h>

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

enum { MANY = 1000, LAWFUL_SIZE = 3000 };

static struct {
    usm_context *ctx;
    usm_queue   *q;
    usm_pool    *pool;
} t;

static void must(usm_status st)
{
    if (st != USM_OK)
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    CHECK_INT(st, USM_OK);
}

static void open_all(void)
{
    must(usm_context_create(NULL, &t.ctx));
    must(usm_queue_create(t.ctx, NULL, NULL, &t.q));
    must(usm_pool_create(t.ctx, NULL, USM_DEVICE, NULL, &t.pool));
}

static void close_all(void)
{
    usm_queue_destroy(t.q);
    usm_pool_destroy(t.pool);
    usm_context_destroy(t.ctx);
}

static uint64_t attribute(usm_pool_attribute which)
{
    uint64_t value = UINT64_MAX;

    must(usm_pool_get_attribute(t.pool, which, &value));
    return value;
}

/* Within ten seconds, and without a call that waits for a queue. */
static bool becomes_zero(usm_pool_attribute which)
{
    for (int i = 0; i < 5000 && attribute(which) != 0; i++)
        (void)nanosleep(&(struct timespec){0, 2000000}, NULL);
    return attribute(which) == 0;
}

static usm_event *hold(usm_queue *q)
{
    usm_event *gate = NULL;

    must(usm_event_create(t.ctx, &gate));
    must(usm_queue_barrier(q, 1, &gate, NULL));
    return gate;
}

static void let_go(usm_event *gate)
{
    must(usm_event_signal(gate, USM_OK));
    usm_event_release(gate);
}

static void *begin(usm_queue *q, size_t size)
{
    void *p = usm_async_malloc_from_pool(q, size, t.pool);

    CHECK(p != NULL);
    must(usm_memset(q, p, 1, size, 0, NULL, NULL));
    return p;
}

/* n blocks at once, then all are freed. */
static void free_many(usm_queue *q, int n)
{
    static void *p[MANY];

    for (int i = 0; i < n; i++)
        p[i] = begin(q, (size_t)LAWFUL_SIZE + (size_t)i % 7 * 1000);
    for (int i = 0; i < n; i++)
        must(usm_async_free(q, p[i]));
}

static void a_queue_that_ends_gives_a_thousand_frees_back(void)
{
    usm_event *gate;

    open_all();
    gate = hold(t.q);
    free_many(t.q, MANY);
    CHECK(attribute(USM_POOL_QUEUED_CURRENT) >= (uint64_t)MANY * LAWFUL_SIZE);
    CHECK_INT(attribute(USM_POOL_USED_CURRENT), 0);
    usm_queue_destroy(t.q);
    t.q = NULL;
    CHECK(attribute(USM_POOL_QUEUED_CURRENT) > 0); /* its commands have not ended */
    let_go(gate);
    CHECK(becomes_zero(USM_POOL_QUEUED_CURRENT));
    for (int i = 0; i < 5000 && attribute(USM_POOL_RESERVED_CURRENT) != 0; i++) {
        must(usm_pool_trim_to(t.pool, 0)); /* some may be on their way from the queue to the pool */
        (void)nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    CHECK_INT(attribute(USM_POOL_RESERVED_CURRENT), 0);
    CHECK_INT(attribute(USM_POOL_HOST_WAITS), 0);
    close_all();
}

static void nothing_stays_in_queues_that_are_idle(void)
{
    usm_queue_desc loose = {sizeof loose, USM_QUEUE_OUT_OF_ORDER};
    usm_queue     *more[3];

    open_all();
    for (int i = 0; i < 3; i++)
        if (i == 0 || usm_queue_create(t.ctx, NULL, i == 2 ? &loose : NULL, &more[i]) != USM_OK)
            must(usm_queue_create(t.ctx, NULL, NULL, &more[i]));
    for (int i = 0; i < 3; i++)
        for (int n = 0; n < 10; n++)
            free_many(more[i], 10);
    CHECK(becomes_zero(USM_POOL_QUEUED_CURRENT));
    CHECK_INT(attribute(USM_POOL_HOST_WAITS), 0);
    for (int i = 0; i < 3; i++)
        usm_queue_destroy(more[i]);
    close_all();
}

static void a_queue_that_is_held_for_long_drains_when_it_goes_on(void)
{
    usm_event *gate;

    open_all();
    gate = hold(t.q);
    free_many(t.q, 100);
    (void)nanosleep(&(struct timespec){0, 200000000}, NULL); /* it is seen to lie still */
    CHECK(attribute(USM_POOL_QUEUED_CURRENT) > 0);
    let_go(gate);
    CHECK(becomes_zero(USM_POOL_QUEUED_CURRENT));
    close_all();
}

static void a_pool_that_ends_waits_for_its_frees(void)
{
    open_all();
    free_many(t.q, 200);
    usm_pool_destroy(t.pool);
    t.pool = NULL;
    must(usm_queue_wait(t.q));
    close_all();
}

/* ---- processes ------------------------------------------------------------------------------- */

static void in_the_child(void)
{
    void *p = usm_async_malloc(t.q, USM_DEVICE, 100);

    CHECK(p == NULL);
    CHECK_INT(usm_last_status(), USM_E_FORKED);
    CHECK_INT(usm_async_free(t.q, &p), USM_E_FORKED);
    usm_queue_destroy(t.q);
    usm_pool_destroy(t.pool);
    usm_context_destroy(t.ctx);
    if (PLAIN_SANITIZED) /* ThreadSanitizer starts no thread in a child */
        return;
    if (strcmp(getenv("USM_TEST_RUNTIME") ? getenv("USM_TEST_RUNTIME") : "host", "host") != 0)
        return; /* drivers do not survive fork() */
    open_all();
    free_many(t.q, 50);
    CHECK(becomes_zero(USM_POOL_QUEUED_CURRENT));
    close_all();
}

static void a_fork_with_frees_in_flight_leaves_both_sides_whole(void)
{
    usm_event *gate;

    open_all();
    gate = hold(t.q);
    free_many(t.q, 100);
    CHECK_INT(plain_child(in_the_child, NULL), 0);
    free_many(t.q, 100);
    let_go(gate);
    CHECK(becomes_zero(USM_POOL_QUEUED_CURRENT));
    free_many(t.q, 100);
    must(usm_queue_wait(t.q));
    close_all();
}

static usm_status sleep_a_little(void *user)
{
    (void)user;
    (void)nanosleep(&(struct timespec){0, 50000000}, NULL);
    return USM_OK;
}

/* What the program --exit does: it returns from main() with frees in flight. */
static int exit_now(void)
{
    (void)alarm(30);
    plain.runner = pthread_self();
    if (setjmp(plain.end_of_case) != 0)
        return 1;
    open_all();
    must(usm_host_task(t.q, sleep_a_little, NULL, 0, NULL, NULL));
    free_many(t.q, 300);
    return 0;
}

/* This program again; its exit status. */
static int run_self(const char *option)
{
    int   status = -1;
    pid_t pid    = fork();

    if (pid == 0) {
        (void)execl("/proc/self/exe", "async_ends", option, (char *)NULL);
        _exit(127);
    }
    CHECK(pid > 0);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

static void a_program_may_end_with_frees_in_flight(void)
{
    for (int i = 0; i < 5; i++)
        CHECK_INT(run_self("--exit"), 0);
}

static _Atomic(bool) was_notified;

static usm_status be_told(void *user)
{
    (void)user;
    atomic_store(&was_notified, true);
    return USM_OK;
}

static void *signal_late(void *ev)
{
    (void)sleep_a_little(NULL);
    must(usm_event_signal(ev, USM_OK));
    return NULL;
}

/* Runs after libusm's own handlers, which were registered later. */
static void leave_told_or_not(void)
{
    _exit(atomic_load(&was_notified) ? 0 : 1);
}

/* What the program --told does: it returns from main() while something is still to be told. */
static int end_before_told(void)
{
    usm_event *gate;
    pthread_t  thread;

    (void)alarm(30);
    plain.runner = pthread_self();
    if (atexit(leave_told_or_not) != 0 || setjmp(plain.end_of_case) != 0)
        return 1;
    open_all();
    must(usm_event_create(t.ctx, &gate));
    must(usm_host_task(t.q, be_told, NULL, 1, &gate, NULL));
    CHECK_INT(pthread_create(&thread, NULL, signal_late, gate), 0);
    CHECK_INT(pthread_detach(thread), 0);
    return 0;
}

/* A driver's thread that is on its way to us when the process ends met a driver already torn down.
 */
static void the_end_of_a_program_waits_for_what_is_still_told(void)
{
    CHECK_INT(run_self("--told"), 0);
}

static const plain_case cases[] = {
    CASE(a_queue_that_ends_gives_a_thousand_frees_back),
    CASE(nothing_stays_in_queues_that_are_idle),
    CASE(a_queue_that_is_held_for_long_drains_when_it_goes_on),
    CASE(a_pool_that_ends_waits_for_its_frees),
    CASE(a_program_may_end_with_frees_in_flight),
    CASE(the_end_of_a_program_waits_for_what_is_still_told),
    CASE(a_fork_with_frees_in_flight_leaves_both_sides_whole),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--exit") == 0)
        return exit_now();
    if (argc > 1 && strcmp(argv[1], "--told") == 0)
        return end_before_told();
    (void)alarm(100);
    return plain_main(argc, argv, cases);
}
