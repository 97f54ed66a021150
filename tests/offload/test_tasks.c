/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Host tasks, plain and over buffers: order, results as of serial execution, many threads, tasks
 * that block, failures, ends of queues with tasks in them.  The worker team: its size, its sleep.
 *
 * Over drivers, where a task is an event of the driver's, there are fewer; with USM_TEST_LONG=1 as
 * many as over the host. */
#include "plain.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>
#include <usm/usm.h>

enum { MANY = PLAIN_SANITIZED ? 3000 : 20000, THREADS = 4, CELLS = 8, CELL = 64 };

static uint32_t many = MANY; /* tasks of a case                                               */

static struct {
    usm_context *ctx;
    usm_queue   *q, *free_order; /* NULL where there are none */
} t;

static void must(usm_status st)
{
    if (st != USM_OK)
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    CHECK_INT(st, USM_OK);
}

static void open_all(void)
{
    usm_queue_desc d = USM_QUEUE_DESC_INIT;

    must(usm_context_create(NULL, &t.ctx));
    must(usm_queue_create(t.ctx, NULL, NULL, &t.q));
    t.free_order = NULL;
    d.flags      = USM_QUEUE_OUT_OF_ORDER;
    if (usm_device_has(usm_queue_get_device(t.q), USM_ASPECT_OUT_OF_ORDER_QUEUE))
        must(usm_queue_create(t.ctx, NULL, &d, &t.free_order));
}

static void close_all(void)
{
    usm_queue_destroy(t.free_order);
    usm_queue_destroy(t.q);
    usm_context_destroy(t.ctx);
}

static uint32_t random_below(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

/* --- plain tasks ----------------------------------------------------------------------------- */

/* Not atomic: the queue's order is what keeps it whole. */
static uint64_t history;

static usm_status append(void *user)
{
    history = history * 31 + (uintptr_t)user;
    return USM_OK;
}

static void tasks_of_an_in_order_queue_run_one_after_the_other(void)
{
    uint64_t want = 0;

    open_all();
    history = 0;
    for (uintptr_t i = 0; i < many; i++) {
        usm_event *ev = NULL;

        must(usm_host_task(t.q, append, (void *)i, 0, NULL, i % 97 == 5 ? &ev : NULL));
        if (i % 1001 == 5)
            must(usm_queue_wait(t.q));
        usm_event_release(ev);
        want = want * 31 + i;
    }
    must(usm_queue_wait(t.q));
    CHECK(history == want);
    close_all();
}

typedef struct submitter {
    pthread_t  thread;
    usm_queue *q;
    uint64_t   sum; /* of its own tasks: they are in order among each other */
    uint64_t   last;
    bool       is_ordered;
} submitter;

typedef struct numbered {
    submitter *s;
    uint64_t   number;
} numbered;

static numbered notes[THREADS][MANY];

static usm_status note(void *user)
{
    numbered *n = user;

    n->s->is_ordered = n->s->is_ordered && n->number == n->s->last + 1;
    n->s->last       = n->number;
    return USM_OK;
}

static void *submit_many(void *arg)
{
    submitter *s  = arg;
    numbered  *of = notes[s->sum];

    for (uint64_t i = 0; i < many; i++) {
        of[i] = (numbered){s, i + 1};
        must(usm_host_task(s->q, note, &of[i], 0, NULL, NULL));
        if (i % 2000 == 99)
            must(usm_queue_wait(s->q));
    }
    return NULL;
}

static void many_threads_submit_to_one_queue(void)
{
    submitter s[THREADS];

    open_all();
    for (uint64_t i = 0; i < THREADS; i++) {
        s[i] = (submitter){.q = t.q, .sum = i, .is_ordered = true};
        CHECK_INT(pthread_create(&s[i].thread, NULL, submit_many, &s[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(s[i].thread, NULL), 0);
    must(usm_queue_wait(t.q));
    for (int i = 0; i < THREADS; i++)
        CHECK(s[i].is_ordered && s[i].last == many);
    close_all();
}

static usm_status fail_with(void *user)
{
    return (usm_status)(intptr_t)user;
}

static void a_failing_task_is_told_to_who_asks(void)
{
    usm_event *ev = NULL, *after = NULL;

    open_all();
    history = 0;
    must(usm_host_task(t.q, append, (void *)1, 0, NULL, NULL));
    must(usm_host_task(t.q, fail_with, (void *)(intptr_t)USM_E_BUDGET, 0, NULL, NULL));
    must(usm_host_task(t.q, append, (void *)2, 0, NULL, NULL));
    CHECK(usm_queue_wait(t.q) < 0);
    must(usm_queue_wait(t.q)); /* told once */
    CHECK(history == 33);      /* those behind it only in the queue ran */
    must(usm_host_task(t.q, fail_with, (void *)(intptr_t)USM_E_IO, 0, NULL, &ev));
    must(usm_host_task(t.q, append, (void *)3, 1, &ev, &after));
    CHECK_INT(usm_event_wait(ev), USM_E_IO);
    CHECK_INT(usm_event_wait(after), USM_E_DEPENDENCY);
    CHECK(history == 33);
    must(usm_queue_wait(t.q));
    usm_event_release(ev);
    usm_event_release(after);
    close_all();
}

/* No result of a command: it would never be complete. */
static void not_ready_and_successes_are_results_like_others(void)
{
    usm_event *ev = NULL;

    open_all();
    must(usm_host_task(t.q, fail_with, (void *)(intptr_t)7, 0, NULL, &ev));
    must(usm_event_wait(ev));
    usm_event_release(ev);
    must(usm_host_task(t.q, fail_with, (void *)(intptr_t)7, 0, NULL, NULL));
    must(usm_queue_wait(t.q));
    close_all();
}

/* --- tasks that block ------------------------------------------------------------------------ */

enum { BLOCKING = 12 };

static atomic_int arrived;

static usm_status meet_all(void *user)
{
    (void)user;
    atomic_fetch_add(&arrived, 1);
    for (int i = 0; i < 20000 && atomic_load(&arrived) < BLOCKING; i++)
        (void)nanosleep(&(struct timespec){0, 1000000}, NULL);
    return atomic_load(&arrived) < BLOCKING ? USM_E_AGAIN : USM_OK;
}

static void tasks_that_wait_for_each_other_all_get_a_thread(void)
{
    usm_queue *q[BLOCKING];

    open_all();
    atomic_store(&arrived, 0);
    for (int i = 0; i < BLOCKING; i++) {
        must(usm_queue_create(t.ctx, NULL, NULL, &q[i]));
        must(usm_host_task(q[i], meet_all, NULL, 0, NULL, NULL));
    }
    for (int i = 0; i < BLOCKING; i++) {
        must(usm_queue_wait(q[i]));
        usm_queue_destroy(q[i]);
    }
    close_all();
}

/* --- without an order ------------------------------------------------------------------------ */

static void so_do_those_of_one_queue_without_an_order(void)
{
    open_all();
    atomic_store(&arrived, 0);
    for (int i = 0; t.free_order && i < BLOCKING; i++)
        must(usm_host_task(t.free_order, meet_all, NULL, 0, NULL, NULL));
    if (t.free_order)
        must(usm_queue_wait(t.free_order));
    close_all();
}

static atomic_uint counted;

static usm_status count_one(void *user)
{
    (void)user;
    atomic_fetch_add(&counted, 1);
    return USM_OK;
}

static usm_status fail_unless(void *is_open)
{
    return atomic_load((atomic_bool *)is_open) ? USM_OK : USM_E_INVALID;
}

/* The first task may run at once, the second not before the gate opens; what the other queue's task
 * shows is that a worker had the time to run it. */
static void tasks_without_an_order_keep_to_barriers(void)
{
    atomic_bool is_open;

    open_all();
    for (int i = 0; t.free_order && i < 100; i++) {
        usm_event *gate = NULL;

        atomic_store(&is_open, false);
        must(usm_event_create(t.ctx, &gate));
        must(usm_host_task(t.free_order, count_one, NULL, 0, NULL, NULL));
        must(usm_queue_barrier(t.free_order, 1, &gate, NULL));
        must(usm_host_task(t.free_order, fail_unless, &is_open, 0, NULL, NULL));
        must(usm_host_task(t.q, count_one, NULL, 0, NULL, NULL));
        must(usm_queue_wait(t.q));
        atomic_store(&is_open, true);
        must(usm_event_signal(gate, USM_OK));
        must(usm_queue_wait(t.free_order));
        usm_event_release(gate);
    }
    close_all();
}

static void a_task_without_an_order_that_fails_stops_no_other(void)
{
    usm_event *gate = NULL;

    open_all();
    atomic_store(&counted, 0);
    if (t.free_order) {
        must(usm_event_create(t.ctx, &gate));
        must(usm_queue_barrier(t.free_order, 1, &gate, NULL));
        must(usm_host_task(t.free_order, fail_with, (void *)(intptr_t)USM_E_IO, 0, NULL, NULL));
        for (unsigned k = 0; k < 20; k++)
            must(usm_host_task(t.free_order, count_one, NULL, 0, NULL, NULL));
        must(usm_event_signal(gate, USM_OK));
        CHECK(usm_queue_wait(t.free_order) < 0);
        must(usm_queue_wait(t.free_order)); /* told once */
        CHECK_INT(atomic_load(&counted), 20);
        usm_event_release(gate);
    }
    close_all();
}

enum { FEEDS = 200000 };

static atomic_bool is_fed;
static atomic_int  feeds;

static usm_status end_feeding(void *user)
{
    (void)user;
    atomic_store(&is_fed, true);
    return USM_OK;
}

static usm_status feed(void *user)
{
    int n = atomic_fetch_add(&feeds, 1);

    if (n == 100)
        must(usm_host_task(t.q, end_feeding, NULL, 0, NULL, NULL));
    if (atomic_load(&is_fed))
        return USM_OK;
    return n < FEEDS ? usm_host_task(t.free_order, feed, user, 0, NULL, NULL) : USM_E_AGAIN;
}

/* Tasks that are always followed by more of them leave workers to other queues. */
static void tasks_without_an_order_starve_no_other_queue(void)
{
    open_all();
    atomic_store(&is_fed, false);
    atomic_store(&feeds, 0);
    for (int i = 0; t.free_order && i < 4 * THREADS; i++)
        must(usm_host_task(t.free_order, feed, NULL, 0, NULL, NULL));
    while (t.free_order && !atomic_load(&is_fed) && atomic_load(&feeds) < FEEDS)
        (void)sched_yield();
    if (t.free_order)
        must(usm_queue_wait(t.free_order));
    must(usm_queue_wait(t.q));
    close_all();
}

static usm_status slow_append(void *user)
{
    (void)nanosleep(&(struct timespec){0, 2000000}, NULL);
    return append(user);
}

static void queues_may_go_while_their_tasks_wait(void)
{
    uint64_t   want = 0;
    usm_event *gate = NULL, *ev = NULL;

    open_all();
    history = 0;
    must(usm_event_create(t.ctx, &gate));
    must(usm_queue_barrier(t.q, 1, &gate, NULL));
    for (uintptr_t i = 0; i < 30; i++) {
        must(usm_host_task(t.q, slow_append, (void *)i, 0, NULL, i == 29 ? &ev : NULL));
        want = want * 31 + i;
    }
    usm_queue_destroy(t.q);
    must(usm_event_signal(gate, USM_OK));
    must(usm_event_wait(ev));
    CHECK(history == want);
    usm_event_release(gate);
    usm_event_release(ev);
    t.q = NULL;
    close_all();
}

/* --- over buffers ---------------------------------------------------------------------------- */

/* cell[dst] = f(cell[dst], cell[src], value) */
typedef struct step {
    uint32_t dst, src, value;
} step;

static uint64_t mix(uint64_t a, uint64_t b, uint32_t value)
{
    return a * 6364136223846793005u + b + value;
}

static usm_status run_step(void *user, void *const *ptrs)
{
    uint64_t       *dst = ptrs[0];
    const uint64_t *src = ptrs[1];

    for (size_t i = 0; i < CELL / sizeof *dst; i++)
        dst[i] = mix(dst[i], src[i], ((const step *)user)->value);
    return USM_OK;
}

static void serial(uint64_t cells[CELLS], const step *s)
{
    cells[s->dst] = mix(cells[s->dst], cells[s->src], s->value);
}

static step steps[MANY];

static usm_buffer *filled_buffer(uint64_t cells[CELLS])
{
    usm_buffer *b = usm_buffer_new(t.ctx, (size_t)CELLS * CELL);
    usm_access  acc;

    CHECK(b != NULL);
    must(usm_access_begin(b, 0, (size_t)CELLS * CELL, USM_WRITE_NO_INIT, &acc));
    for (size_t i = 0; i < (size_t)CELLS * CELL / sizeof *cells; i++)
        ((uint64_t *)acc.ptr)[i] = i / (CELL / sizeof *cells);
    usm_access_end(&acc);
    for (uint64_t i = 0; i < CELLS; i++)
        cells[i] = i;
    return b;
}

static void check_cells(usm_buffer *b, const uint64_t cells[CELLS])
{
    usm_access acc;

    must(usm_access_begin(b, 0, (size_t)CELLS * CELL, USM_READ, &acc));
    for (size_t i = 0; i < (size_t)CELLS * CELL / sizeof *cells; i++)
        CHECK(((uint64_t *)acc.ptr)[i] == cells[i / (CELL / sizeof *cells)]);
    usm_access_end(&acc);
}

static void submit_step(usm_queue *q, usm_buffer *b, step *s, usm_event **ev)
{
    usm_accessor a[] = {{b, (size_t)s->dst * CELL, CELL, USM_READ_WRITE},
                        {b, (size_t)s->src * CELL, CELL, USM_READ}};

    must(usm_buffer_task(q, run_step, s, 2, a, 0, NULL, ev));
}

/* Random steps, as one after the other; with `others` also in the queue without an order; one of
 * `asked` has an event. */
static void random_steps(bool others, uint32_t asked)
{
    uint64_t    cells[CELLS];
    uint32_t    seed = 1;
    usm_buffer *b;

    open_all();
    b = filled_buffer(cells);
    for (uint32_t i = 0; i < many / 4; i++) {
        usm_event *ev = NULL;
        usm_queue *q  = others && t.free_order && random_below(&seed, 3) ? t.free_order : t.q;

        steps[i]     = (step){random_below(&seed, CELLS), 0, i};
        steps[i].src = (steps[i].dst + 1 + random_below(&seed, CELLS - 1)) % CELLS;
        submit_step(q, b, &steps[i], random_below(&seed, asked) ? NULL : &ev);
        usm_event_release(ev);
        serial(cells, &steps[i]);
        if (random_below(&seed, 500) == 0)
            check_cells(b, cells);
    }
    check_cells(b, cells);
    usm_buffer_destroy(b);
    must(usm_queue_wait(t.q));
    close_all();
}

static void tasks_over_buffers_give_the_results_of_serial_execution(void)
{
    random_steps(true, 8);
}

static void so_do_those_of_one_queue_alone(void)
{
    random_steps(false, 100);
}

static void tasks_over_buffers_stand_in_order_with_other_commands(void)
{
    uint64_t     cells[CELLS], nine = 9;
    step         s[] = {{0, 1, 5}, {2, 0, 6}};
    usm_buffer  *b;
    usm_accessor cell1;

    open_all();
    b     = filled_buffer(cells);
    cell1 = (usm_accessor){b, CELL, CELL, USM_WRITE_NO_INIT};
    for (int i = 0; i < 50; i++) {
        submit_step(t.q, b, &s[0], NULL);
        must(usm_buffer_fill(t.q, &cell1, &nine, sizeof nine, 0, NULL, NULL));
        submit_step(t.free_order ? t.free_order : t.q, b, &s[1], NULL);
        submit_step(t.q, b, &s[0], NULL);
        serial(cells, &s[0]);
        cells[1] = 9;
        serial(cells, &s[1]);
        serial(cells, &s[0]);
    }
    check_cells(b, cells);
    usm_buffer_destroy(b);
    close_all();
}

static usm_status fail_over(void *user, void *const *ptrs)
{
    (void)ptrs;
    return (usm_status)(intptr_t)user;
}

static void what_a_failing_task_should_have_written_is_not_there(void)
{
    uint64_t     cells[CELLS];
    usm_event   *ev = NULL;
    usm_buffer  *b;
    usm_accessor a;
    usm_access   acc;

    open_all();
    b = filled_buffer(cells);
    a = (usm_accessor){b, 0, CELL, USM_READ_WRITE};
    must(usm_buffer_task(t.q, fail_over, (void *)(intptr_t)USM_E_IO, 1, &a, 0, NULL, &ev));
    CHECK_INT(usm_event_wait(ev), USM_E_IO);
    CHECK_INT(usm_access_begin(b, 0, CELL, USM_READ, &acc), USM_E_DEPENDENCY);
    usm_event_release(ev);
    usm_buffer_destroy(b);
    close_all();
}

static atomic_bool may_fail;
static atomic_int  ran;

static usm_status fail_when_told(void *user, void *const *ptrs)
{
    struct timespec moment = {0, 100000};

    (void)ptrs;
    while (!atomic_load(&may_fail))
        nanosleep(&moment, NULL);
    return (usm_status)(intptr_t)user;
}

static usm_status count_run(void *by, void *const *ptrs)
{
    (void)ptrs;
    atomic_fetch_add(&ran, (int)(intptr_t)by);
    return USM_OK;
}

/* In one queue, where nothing but the failure stops them: the second needs what the first should
 * have written, the third nothing of it, the last what the second should have. */
static void what_comes_behind_a_failing_task_does_not_run(void)
{
    uint64_t     cells[CELLS];
    usm_event   *ev = NULL;
    usm_buffer  *b;
    usm_accessor a[4];

    open_all();
    b = filled_buffer(cells);
    for (size_t i = 0; i < 4; i++)
        a[i] = (usm_accessor){b, i * CELL, CELL, USM_READ_WRITE};
    atomic_store(&may_fail, false);
    atomic_store(&ran, 0);
    must(usm_buffer_task(t.q, fail_when_told, (void *)(intptr_t)USM_E_IO, 1, a, 0, NULL, NULL));
    must(usm_buffer_task(t.q, count_run, (void *)1, 2, a, 0, NULL, NULL));
    must(usm_buffer_task(t.q, count_run, (void *)10, 1, a + 3, 0, NULL, NULL));
    must(usm_buffer_task(t.q, count_run, (void *)100, 2, a + 1, 0, NULL, &ev));
    atomic_store(&may_fail, true);
    CHECK_INT(usm_event_wait(ev), USM_E_DEPENDENCY);
    CHECK_INT(atomic_load(&ran), 10);
    usm_event_release(ev);
    usm_buffer_destroy(b);
    close_all();
}

static void bad_tasks_over_buffers_are_refused(void)
{
    uint64_t     cells[CELLS];
    usm_buffer  *b;
    usm_accessor a;

    open_all();
    b = filled_buffer(cells);
    a = (usm_accessor){b, 0, CELL, USM_READ};
    CHECK_INT(usm_buffer_task(t.q, NULL, NULL, 1, &a, 0, NULL, NULL), USM_E_INVALID);
    CHECK_INT(usm_buffer_task(t.q, fail_over, NULL, 1, NULL, 0, NULL, NULL), USM_E_INVALID);
    a.size = (size_t)CELLS * CELL + 1;
    CHECK(usm_buffer_task(t.q, fail_over, NULL, 1, &a, 0, NULL, NULL) < 0);
    must(usm_buffer_task(t.q, fail_over, NULL, 0, NULL, 0, NULL, NULL)); /* needs no bytes */
    must(usm_queue_wait(t.q));
    usm_buffer_destroy(b);
    close_all();
}

typedef struct adder {
    pthread_t   thread;
    usm_buffer *b;
    usm_queue  *odd; /* every second step's                                                    */
    step        step;
} adder;

static void *add_many(void *arg)
{
    adder *m = arg;

    for (uint32_t i = 0; i < many / 20; i++)
        submit_step(i % 2 ? m->odd : t.q, m->b, &m->step, NULL);
    return NULL;
}

static void add_from_many_threads(bool others)
{
    uint64_t cells[CELLS];
    adder    m[THREADS];

    open_all();
    usm_buffer *b = filled_buffer(cells);
    for (uint32_t i = 0; i < THREADS; i++) {
        m[i] = (adder){
            .b = b, .odd = others && t.free_order ? t.free_order : t.q, .step = {i, CELLS - 1, i}};
        CHECK_INT(pthread_create(&m[i].thread, NULL, add_many, &m[i]), 0);
        for (uint32_t k = 0; k < many / 20; k++)
            serial(cells, &m[i].step);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(m[i].thread, NULL), 0);
    check_cells(b, cells);
    usm_buffer_destroy(b);
    close_all();
}

/* Each has a cell of its own to write, and all read the same one. */
static void many_threads_submit_tasks_over_one_buffer(void)
{
    add_from_many_threads(true);
}

static void many_threads_submit_them_to_one_queue(void)
{
    add_from_many_threads(false);
}

/* --- the team -------------------------------------------------------------------------------- */

static uint64_t cpu_us(void)
{
    struct rusage u;

    CHECK_INT(getrusage(RUSAGE_SELF, &u), 0);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000u +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* A worker that polled would take half a second. */
static void a_queue_that_waits_takes_no_processor_time(void)
{
    uint64_t before;

    open_all();
    must(usm_host_task(t.q, append, NULL, 0, NULL, NULL));
    must(usm_queue_wait(t.q));
    before = cpu_us();
    (void)nanosleep(&(struct timespec){0, 500000000}, NULL);
    CHECK(cpu_us() - before < 50000);
    close_all();
}

static void processors_tell_of_their_threads(void)
{
    usm_device_info info = USM_DEVICE_INFO_INIT;

    open_all();
    must(usm_device_get_info(usm_queue_get_device(t.q), &info));
    CHECK((info.compute_threads > 0) == (info.type == USM_DEVICE_TYPE_CPU));
    close_all();
}

static void the_setting_gives_the_number_of_threads(void)
{
    usm_device_info info    = USM_DEVICE_INFO_INIT;
    const char     *threads = getenv("USM_HOST_THREADS");

    open_all();
    must(usm_device_get_info(usm_queue_get_device(t.q), &info));
    if (strcmp(info.backend, "host") == 0 && threads)
        CHECK_INT(info.compute_threads, strtol(threads, NULL, 10));
    close_all();
}

static const plain_case cases[] = {CASE(tasks_of_an_in_order_queue_run_one_after_the_other),
                                   CASE(many_threads_submit_to_one_queue),
                                   CASE(a_failing_task_is_told_to_who_asks),
                                   CASE(not_ready_and_successes_are_results_like_others),
                                   CASE(tasks_that_wait_for_each_other_all_get_a_thread),
                                   CASE(so_do_those_of_one_queue_without_an_order),
                                   CASE(tasks_without_an_order_keep_to_barriers),
                                   CASE(a_task_without_an_order_that_fails_stops_no_other),
                                   CASE(tasks_without_an_order_starve_no_other_queue),
                                   CASE(queues_may_go_while_their_tasks_wait),
                                   CASE(tasks_over_buffers_give_the_results_of_serial_execution),
                                   CASE(so_do_those_of_one_queue_alone),
                                   CASE(tasks_over_buffers_stand_in_order_with_other_commands),
                                   CASE(what_a_failing_task_should_have_written_is_not_there),
                                   CASE(what_comes_behind_a_failing_task_does_not_run),
                                   CASE(bad_tasks_over_buffers_are_refused),
                                   CASE(many_threads_submit_tasks_over_one_buffer),
                                   CASE(many_threads_submit_them_to_one_queue),
                                   CASE(a_queue_that_waits_takes_no_processor_time),
                                   CASE(processors_tell_of_their_threads),
                                   CASE(the_setting_gives_the_number_of_threads),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    const char *runtime = getenv("USM_TEST_RUNTIME"), *is_long = getenv("USM_TEST_LONG");

    if (runtime && strcmp(runtime, "host") != 0 && !is_long)
        many = MANY / 5;
    return plain_main(argc, argv, cases);
}
