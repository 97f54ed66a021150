/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the queues of the host backend promise to the core (usm/backend.h): the order of commands,
 * events, what happens to those behind a failure, what may end early. */
#include "host_fixture.h"

#include "backends/host/graph.h"

typedef struct queue_waiter {
    pthread_t  thread;
    atomic_int tid, status;
} queue_waiter;

static void *wait_for_queue(void *arg)
{
    queue_waiter *w = arg;

    atomic_store(&w->tid, (int)gettid());
    atomic_store(&w->status, (int)be->queue_wait(queue));
    return NULL;
}

/* Returns once the thread sleeps. */
static void start_waiter(queue_waiter *w)
{
    atomic_store(&w->tid, 0);
    CHECK_INT(pthread_create(&w->thread, NULL, wait_for_queue, w), 0);
    while (atomic_load(&w->tid) == 0)
        (void)usleep(100);
    plain_await_sleep(atomic_load(&w->tid));
}

static void end_waiter(queue_waiter *w)
{
    CHECK_INT(pthread_join(w->thread, NULL), 0);
    CHECK_INT(atomic_load(&w->status), USM_OK);
}

/* --- order ----------------------------------------------------------------------------------- */

static void in_order_commands_run_one_after_the_other(void)
{
    begin();
    for (long i = 0; i < 2000; i++)
        release(note_after(i, NULL, 0));
    CHECK_INT(be->queue_wait(queue), USM_OK);
    for (long i = 0; i < 2000; i++)
        CHECK_INT(note_at(i), i);
    end();
}

static void in_order_commands_wait_for_one_that_waits(void)
{
    void *gate, *a, *b;

    begin();
    gate = user_event();
    a    = note_after(1, &gate, 1);
    b    = note_after(2, NULL, 0);
    stays_unready(b);
    signal_event(gate, USM_OK);
    CHECK_INT(be->event_wait(b), USM_OK);
    CHECK_INT(be->event_query(a), USM_OK);
    CHECK_INT(note_at(0), 1);
    CHECK_INT(note_at(1), 2);
    release2(a, b);
    release(gate);
    end();
}

static void out_of_order_commands_overtake(void)
{
    void *gate, *a, *b;

    begin_with(false, USM_QUEUE_OUT_OF_ORDER);
    gate = user_event();
    a    = note_after(1, &gate, 1);
    b    = note_after(2, NULL, 0);
    CHECK_INT(be->event_wait(b), USM_OK);
    CHECK_INT(be->event_query(a), USM_E_NOT_READY);
    signal_event(gate, USM_OK);
    CHECK_INT(be->event_wait(a), USM_OK);
    CHECK_INT(note_at(0), 2);
    CHECK_INT(note_at(1), 1);
    release2(a, b);
    release(gate);
    end();
}

static void out_of_order_commands_wait_for_dependencies(void)
{
    void *gate, *ev[64];

    begin_with(false, USM_QUEUE_OUT_OF_ORDER);
    gate = user_event();
    for (long i = 0; i < 64; i++)
        ev[i] = note_after(i, i ? &ev[i - 1] : &gate, 1);
    signal_event(gate, USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    for (long i = 0; i < 64; i++) {
        CHECK_INT(note_at(i), i);
        release(ev[i]);
    }
    release(gate);
    end();
}

static void a_command_waits_for_several_and_for_one_twice(void)
{
    void *deps[3], *ev, *first, *second;

    begin_with(false, USM_QUEUE_OUT_OF_ORDER);
    first   = user_event();
    second  = user_event();
    deps[0] = first;
    deps[1] = second;
    deps[2] = first;
    ev      = note_after(1, deps, 3);
    signal_event(first, USM_OK);
    stays_unready(ev);
    signal_event(second, USM_OK);
    CHECK_INT(be->event_wait(ev), USM_OK);
    release2(first, second);
    release(ev);
    end();
}

static void a_barrier_waits_for_all_before_it_and_holds_all_behind(void)
{
    void *gate, *early, *barrier, *late;

    begin_with(false, USM_QUEUE_OUT_OF_ORDER);
    gate  = user_event();
    early = note_after(1, &gate, 1);
    release(note_after(2, NULL, 0));
    CHECK_INT(be->barrier(queue, 0, NULL, &barrier), USM_OK);
    late = note_after(3, NULL, 0);
    stays_unready(late);
    CHECK_INT(be->event_query(barrier), USM_E_NOT_READY);
    signal_event(gate, USM_OK);
    CHECK_INT(be->event_wait(late), USM_OK);
    CHECK_INT(be->event_query(barrier), USM_OK);
    CHECK_INT(be->event_query(early), USM_OK);
    CHECK_INT(note_at(2), 3);
    release2(early, barrier);
    release2(gate, late);
    end();
}

static void a_barrier_with_dependencies_waits_for_them_only(void)
{
    void *other, *gate, *early, *late;

    begin_with(false, USM_QUEUE_OUT_OF_ORDER);
    other = user_event();
    gate  = user_event();
    early = note_after(1, &other, 1);
    CHECK_INT(be->barrier(queue, 1, &gate, NULL), USM_OK);
    late = note_after(2, NULL, 0);
    stays_unready(late);
    signal_event(gate, USM_OK);
    CHECK_INT(be->event_wait(late), USM_OK);
    CHECK_INT(be->event_query(early), USM_E_NOT_READY);
    signal_event(other, USM_OK);
    release2(early, late);
    release2(other, gate);
    end();
}

static void a_second_barrier_does_not_loosen_the_first(void)
{
    void *slow, *quick, *late;

    begin_with(false, USM_QUEUE_OUT_OF_ORDER);
    slow  = user_event();
    quick = user_event();
    CHECK_INT(be->barrier(queue, 1, &slow, NULL), USM_OK);
    CHECK_INT(be->barrier(queue, 1, &quick, NULL), USM_OK);
    late = note_after(1, NULL, 0);
    signal_event(quick, USM_OK);
    stays_unready(late);
    signal_event(slow, USM_OK);
    CHECK_INT(be->event_wait(late), USM_OK);
    release2(slow, quick);
    release(late);
    end();
}

static void a_marker_completes_after_all_before_it_and_holds_nobody(void)
{
    void *gate, *marker, *second, *late;

    begin_with(false, USM_QUEUE_OUT_OF_ORDER);
    gate = user_event();
    release(note_after(1, &gate, 1));
    CHECK_INT(be->marker(queue, 0, NULL, &marker), USM_OK);
    CHECK_INT(be->marker(queue, 0, NULL, &second), USM_OK);
    late = note_after(2, NULL, 0);
    CHECK_INT(be->event_wait(late), USM_OK);
    stays_unready(marker);
    signal_event(gate, USM_OK);
    CHECK_INT(be->event_wait(second), USM_OK);
    CHECK_INT(be->event_query(marker), USM_OK);
    release2(gate, marker);
    release2(second, late);
    end();
}

static void hints_are_commands_that_do_nothing(void)
{
    char  bytes[8];
    void *gate, *a, *b;

    begin();
    gate = user_event();
    CHECK_INT(be->prefetch(queue, bytes, 8, 1, &gate, &a), USM_OK);
    CHECK_INT(be->advise(queue, bytes, 8, USM_ADVICE_PREFER_DEVICE, 0, NULL, &b), USM_OK);
    stays_unready(b); /* in their turn, all the same */
    signal_event(gate, USM_OK);
    CHECK_INT(be->event_wait(b), USM_OK);
    CHECK_INT(be->event_wait(a), USM_OK);
    release2(a, b);
    release(gate);
    end();
}

static void events_order_queues_and_contexts(void)
{
    void *ctx2 = NULL, *queue2 = NULL, *gate, *a, *b = NULL;
    char  from = 1, to = 0;

    begin();
    CHECK_INT(be->context_create(0, NULL, &ctx2), USM_OK);
    CHECK_INT(be->queue_create(ctx2, NULL, 0, &queue2), USM_OK);
    gate = user_event();
    a    = note_after(1, &gate, 1);
    CHECK_INT(be->copy(queue2, &to, &from, 1, 1, &a, &b), USM_OK);
    stays_unready(b);
    signal_event(gate, USM_OK);
    CHECK_INT(be->event_wait(b), USM_OK);
    CHECK_INT(to, 1);
    release2(a, b);
    release(gate);
    be->queue_destroy(queue2);
    be->context_destroy(ctx2);
    end();
}

/* --- events ---------------------------------------------------------------------------------- */

static void only_user_events_are_signalled_and_once(void)
{
    void *user, *command;

    begin();
    user    = user_event();
    command = note_after(1, NULL, 0);
    CHECK_INT(be->event_query(user), USM_E_NOT_READY);
    CHECK_INT(be->event_signal(user, USM_OK), USM_OK);
    CHECK_INT(be->event_query(user), USM_OK);
    CHECK_INT(be->event_signal(user, USM_E_DEVICE), USM_E_INVALID);
    CHECK_INT(be->event_query(user), USM_OK);
    CHECK_INT(be->event_signal(command, USM_OK), USM_E_INVALID);
    CHECK_INT(be->event_wait(command), USM_OK);
    release2(user, command);
    end();
}

static atomic_int notified, told_status;

static void notify(void *arg, usm_status status)
{
    atomic_store(&told_status, (int)status);
    if (arg)
        release(arg); /* as the core may */
    atomic_fetch_add(&notified, 1);
}

static void callbacks_are_called_once_with_the_status(void)
{
    void *gate, *ev;

    begin();
    notified = 0;
    gate     = user_event();
    ev       = note_after(1, &gate, 1);
    CHECK_INT(be->event_notify(ev, notify, NULL), USM_OK);
    CHECK_INT(be->event_notify(ev, notify, NULL), USM_OK);
    CHECK_INT(notified, 0);
    signal_event(gate, USM_E_DEVICE);
    CHECK_INT(be->event_wait(ev), USM_E_DEPENDENCY);
    for (int i = 0; i < 5000 && notified < 2; i++)
        module_sleep_ms(1);
    CHECK_INT(notified, 2);
    CHECK_INT(told_status, USM_E_DEPENDENCY);
    CHECK_INT(be->event_notify(gate, notify, NULL), USM_OK); /* complete: at once */
    CHECK_INT(notified, 3);
    CHECK_INT(told_status, USM_E_DEVICE);
    release2(gate, ev);
    end();
}

static void a_callback_may_release_the_event(void)
{
    void *gate, *ev;

    begin();
    notified = 0;
    gate     = user_event();
    ev       = note_after(1, &gate, 1);
    CHECK_INT(be->event_notify(ev, notify, ev), USM_OK); /* the only reference */
    signal_event(gate, USM_OK);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    for (int i = 0; i < 5000 && notified < 1; i++)
        module_sleep_ms(1);
    CHECK_INT(notified, 1);
    release(gate);
    end();
}

static void times_ascend_where_they_were_asked_for(void)
{
    usm_profiling t = USM_PROFILING_INIT, none = USM_PROFILING_INIT;
    void         *gate, *a, *b;

    begin_with(false, USM_QUEUE_PROFILING);
    gate = user_event();
    a    = note_after(1, &gate, 1);
    b    = note_after(2, NULL, 0);
    CHECK_INT(be->event_profiling(a, &t), USM_E_NOT_READY);
    CHECK_INT(be->event_profiling(gate, &t), USM_E_NOT_SUPPORTED);
    module_sleep_ms(2);
    signal_event(gate, USM_OK);
    CHECK_INT(be->event_wait(b), USM_OK);
    CHECK_INT(be->event_profiling(a, &t), USM_OK);
    CHECK(t.submit_ns > 0 && t.start_ns >= t.submit_ns + 1000000 && t.end_ns >= t.start_ns);
    none.start_ns = t.end_ns;
    CHECK_INT(be->event_profiling(b, &t), USM_OK);
    CHECK(t.start_ns >= none.start_ns);
    release2(a, b);
    release(gate);
    end();
}

static void each_thread_waits_for_what_was_queued_before(void)
{
    queue_waiter first, second;
    void        *gate, *later, *a, *b;

    begin();
    gate  = user_event();
    later = user_event();
    a     = note_after(1, &gate, 1);
    start_waiter(&first);
    b = note_after(2, &later, 1);
    start_waiter(&second);
    signal_event(gate, USM_OK);
    end_waiter(&first);
    CHECK_INT(be->event_query(b), USM_E_NOT_READY);
    signal_event(later, USM_OK);
    end_waiter(&second);
    release2(a, b);
    release2(gate, later);
    end();
}

/* Whoever finds a command complete finds its times, too: looked for at the very moment. */
static void times_are_there_as_soon_as_the_end_is(void)
{
    usm_profiling t = USM_PROFILING_INIT;

    begin_with(false, USM_QUEUE_PROFILING);
    for (long i = 0; i < 2000; i++) {
        void *ev = note_after(i, NULL, 0);

        while (be->event_profiling(ev, &t) != USM_OK)
            ;
        CHECK(t.end_ns >= t.start_ns && t.end_ns > 0);
        release(ev);
    }
    end();
}

static void times_are_not_had_without_profiling(void)
{
    usm_profiling t = USM_PROFILING_INIT;
    void         *ev;

    begin();
    ev = note_after(1, NULL, 0);
    CHECK_INT(be->event_wait(ev), USM_OK);
    CHECK_INT(be->event_profiling(ev, &t), USM_E_NOT_SUPPORTED);
    CHECK_INT(t.end_ns, 0);
    release(ev);
    end();
}

/* --- failures -------------------------------------------------------------------------------- */

static void a_failure_reaches_dependents_and_theirs(void)
{
    void *gate, *a, *b, *later;

    begin_with(false, USM_QUEUE_OUT_OF_ORDER);
    gate = user_event();
    a    = note_after(1, &gate, 1);
    b    = note_after(2, &a, 1);
    signal_event(gate, USM_E_DEVICE_LOST);
    CHECK_INT(be->event_wait(b), USM_E_DEPENDENCY);
    CHECK_IN("depends", usm_last_error());
    CHECK_INT(be->event_query(a), USM_E_DEPENDENCY);
    CHECK_INT(be->event_wait(gate), USM_E_DEVICE_LOST);
    later = note_after(3, &a, 1); /* also when it has happened */
    CHECK_INT(be->event_wait(later), USM_E_DEPENDENCY);
    CHECK_INT(notes(), 0); /* none of them ran */
    release2(a, b);
    release2(gate, later);
    end();
}

static void a_long_chain_of_failures_needs_no_deep_stack(void)
{
    enum { N = 100000 };
    void *gate, *last;

    begin_with(false, USM_QUEUE_OUT_OF_ORDER);
    last = gate = user_event();
    for (int i = 0; i < N; i++) {
        void *next = NULL;

        CHECK_INT(be->marker(queue, 1, &last, &next), USM_OK);
        if (last != gate)
            release(last);
        last = next;
    }
    signal_event(gate, USM_E_DEVICE);
    CHECK_INT(be->event_wait(last), USM_E_DEPENDENCY);
    release2(gate, last);
    end();
}

static void what_only_comes_later_runs_after_a_failure(void)
{
    void *gate, *failed, *later;

    begin();
    gate   = user_event();
    failed = note_after(1, &gate, 1);
    later  = note_after(2, NULL, 0);
    signal_event(gate, USM_E_DEVICE);
    CHECK_INT(be->event_wait(later), USM_OK);
    CHECK_INT(be->event_query(failed), USM_E_DEPENDENCY);
    CHECK_INT(note_at(0), 2);
    release2(gate, failed);
    release(later);
    end();
}

static void a_queue_tells_once_of_failures_without_event(void)
{
    char  from = 1, to = 0;
    void *gate, *ev;

    begin();
    gate = user_event();
    ev   = note_after(1, &gate, 1); /* fails too, but has an event to tell */
    CHECK_INT(be->copy(queue, &to, &from, 1, 1, &gate, NULL), USM_OK);
    signal_event(gate, USM_E_DEVICE);
    CHECK_INT(be->queue_wait(queue), USM_E_DEPENDENCY);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    CHECK_INT(to, 0);
    release(ev);
    ev = note_after(1, &gate, 1);
    CHECK_INT(be->queue_wait(queue), USM_OK);
    CHECK_INT(be->event_query(ev), USM_E_DEPENDENCY);
    release2(gate, ev);
    end();
}

static void a_user_event_that_nobody_can_signal_fails_its_dependents(void)
{
    void *gate, *ev;

    begin();
    gate = user_event();
    ev   = note_after(1, &gate, 1);
    release(gate);
    CHECK_INT(be->event_wait(ev), USM_E_DEPENDENCY);
    release(ev);
    end();
}

static void without_a_thread_a_command_is_refused_whole(void)
{
    char  from = 1, to = 0;
    void *ev = &module, *gate;

    begin();
    CHECK(usm__fault_arm("os.thread", 1, true, USM_OK));
    CHECK_INT(be->copy(queue, &to, &from, 1, 0, NULL, &ev), USM_E_SYSTEM);
    CHECK_IN("thread", usm_last_error());
    CHECK(ev == &module);
    CHECK_INT(be->queue_wait(queue), USM_OK); /* nothing is queued */
    CHECK_INT(to, 0);
    usm__fault_disarm_all();
    CHECK_INT(be->copy(queue, &to, &from, 1, 0, NULL, &ev), USM_OK);
    CHECK_INT(be->event_wait(ev), USM_OK);
    CHECK_INT(to, 1);
    CHECK(usm__fault_arm("os.thread", 1, true, USM_OK)); /* one worker does all the work */
    gate = note_after(1, NULL, 0);
    CHECK_INT(be->event_wait(gate), USM_OK);
    release2(ev, gate);
    end();
}

/* --- ends ------------------------------------------------------------------------------------ */

static void a_queue_may_go_before_its_commands(void)
{
    char  from = 1, to = 0, late = 0;
    void *gate, *ev = NULL;

    begin();
    gate = user_event();
    CHECK_INT(be->copy(queue, &to, &from, 1, 1, &gate, &ev), USM_OK);
    CHECK_INT(be->copy(queue, &late, &from, 1, 0, NULL, NULL), USM_OK);
    be->kernel_destroy(noted.kernel);
    be->queue_destroy(queue);
    be->context_destroy(ctx);
    CHECK_INT(be->event_query(ev), USM_E_NOT_READY);
    signal_event(gate, USM_OK);
    CHECK_INT(be->event_wait(ev), USM_OK);
    CHECK_INT(to, 1);
    release2(gate, ev);
    module_clean(); /* the queue, and the workers with it, go after the last command */
    CHECK_INT(late, 1);
}

static usm_status count_one(void *count)
{
    atomic_fetch_add((atomic_int *)count, 1);
    return USM_OK;
}

/* What exit() waits for. */
static size_t unfinished_tasks(void)
{
    size_t n;

    usm__host_graph_lock();
    n = usm__host_the_graph.tasks;
    usm__host_graph_unlock();
    return n;
}

/* Their batch stays open and idle: exit() does not wait for it, more may follow, and the queue may
 * go. */
static void tasks_without_an_order_leave_nothing_behind(void)
{
    atomic_int       ran  = 0;
    usm_backend_task task = {count_one, NULL, &ran};

    begin_with(false, USM_QUEUE_OUT_OF_ORDER);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 100; k++)
            CHECK_INT(be->task(queue, &task, 0, NULL, NULL), USM_OK);
        for (int ms = 0; ms < 20000 && unfinished_tasks() > 0; ms++)
            module_sleep_ms(1);
        CHECK_INT(unfinished_tasks(), 0);
        CHECK_INT(atomic_load(&ran), 100 * (i + 1));
    }
    end(); /* the queue, and the workers with it */
}

static void workers_end_with_the_last_context_and_come_again(void)
{
    module_start();
    be = usm_host_backend_entry(&module_api);
    for (int i = 0; i < 100; i++) {
        CHECK_INT(be->context_create(0, NULL, &ctx), USM_OK);
        CHECK_INT(be->queue_create(ctx, NULL, 0, &queue), USM_OK);
        CHECK_INT(be->marker(queue, 0, NULL, NULL), USM_OK);
        CHECK_INT(be->queue_wait(queue), USM_OK);
        CHECK(module.threads > 0);
        be->queue_destroy(queue);
        be->context_destroy(ctx);
        if (i % 2)
            module_clean(); /* else the next context meets workers that are about to go */
    }
}

#if !PLAIN_SANITIZED /* ThreadSanitizer lets no child of a program with threads start threads */
static void in_child_queues_work(void)
{
    char  from = 1, to = 0;
    void *own = NULL;

    CHECK_INT(be->queue_create(ctx, NULL, 0, &own), USM_OK);
    CHECK_INT(be->copy(own, &to, &from, 1, 0, NULL, NULL), USM_OK);
    CHECK_INT(be->queue_wait(own), USM_OK);
    CHECK_INT(to, 1);
    be->queue_destroy(own);
}

static void a_child_has_workers_of_its_own(void)
{
    begin();
    release(note_after(1, NULL, 0));
    CHECK_INT(be->queue_wait(queue), USM_OK);
    module_sleep_ms(20); /* the parent's workers are asleep */
    CHECK_INT(plain_child(in_child_queues_work, NULL), 0);
    end();
}

static void exit_at_once(void)
{
    begin();
    for (int i = 0; i < 1000; i++)
        release(note_after(i, NULL, 0));
    exit(0); /* runs what exit runs, with workers at work */
}

static void a_process_may_end_with_work_in_flight(void)
{
    for (int i = 0; i < 20; i++)
        CHECK_INT(plain_child(exit_at_once, NULL), 0);
}
#endif

/* --- stress ---------------------------------------------------------------------------------- */

enum { CELLS = 8, STEPS = 400 };
static struct {
    void *queues[3];
    long  cells[CELLS];
} stress;

/* Copies a long to the next cell and back, in three queues, ordered by events only. */
static void *stress_thread(void *arg)
{
    long *cell = &stress.cells[*(const int *)arg], own[2] = {0, 0};
    void *last = NULL;

    for (int i = 0; i < STEPS; i++) {
        void *q = stress.queues[i % 3], *up = NULL, *down = NULL;

        own[0] = 0;
        CHECK_INT(be->copy(q, &own[1], cell, sizeof(long), last ? 1 : 0, &last, &up), USM_OK);
        if (last)
            release(last);
        CHECK_INT(be->event_wait(up), USM_OK);
        own[1]++;
        CHECK_INT(be->copy(stress.queues[(i + 1) % 3], cell, &own[1], sizeof(long), 1, &up, &down),
                  USM_OK);
        release(up);
        last = down;
        CHECK_INT(be->event_wait(last), USM_OK);
    }
    release(last);
    return NULL;
}

static void threads_share_queues(void)
{
    pthread_t threads[CELLS];
    int       ids[CELLS];

    begin_with(false, USM_QUEUE_OUT_OF_ORDER);
    usm__host.workers = 4;
    memset(&stress, 0, sizeof(stress));
    stress.queues[0] = queue;
    CHECK_INT(be->queue_create(ctx, NULL, USM_QUEUE_PROFILING, &stress.queues[1]), USM_OK);
    CHECK_INT(be->queue_create(ctx, NULL, 0, &stress.queues[2]), USM_OK);
    for (int i = 0; i < CELLS; i++) {
        ids[i] = i;
        CHECK(pthread_create(&threads[i], NULL, stress_thread, &ids[i]) == 0);
    }
    for (int i = 0; i < 50; i++) { /* what holds others up, beside them */
        CHECK_INT(be->barrier(queue, 0, NULL, NULL), USM_OK);
        CHECK_INT(be->marker(stress.queues[1], 0, NULL, NULL), USM_OK);
        CHECK_INT(be->queue_wait(stress.queues[i % 3]), USM_OK);
    }
    for (int i = 0; i < CELLS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK_INT(stress.cells[i], STEPS);
    }
    be->queue_destroy(stress.queues[1]);
    be->queue_destroy(stress.queues[2]);
    end();
}

static void *signal_and_release(void *gate)
{
    signal_event(gate, USM_OK);
    return NULL;
}

static void a_waiter_may_release_what_another_signals(void)
{
    begin();
    for (int i = 0; i < 300; i++) {
        void     *gate = user_event();
        pthread_t other;

        CHECK(pthread_create(&other, NULL, signal_and_release, gate) == 0);
        while (be->event_query(gate) == USM_E_NOT_READY)
            ;          /* asks without the lock, so nothing else orders the two */
        release(gate); /* the other may not be out of its call yet */
        CHECK(pthread_join(other, NULL) == 0);
    }
    end();
}

static const plain_case cases[] = {
    CASE(in_order_commands_run_one_after_the_other),
    CASE(in_order_commands_wait_for_one_that_waits),
    CASE(out_of_order_commands_overtake),
    CASE(out_of_order_commands_wait_for_dependencies),
    CASE(a_command_waits_for_several_and_for_one_twice),
    CASE(a_barrier_waits_for_all_before_it_and_holds_all_behind),
    CASE(a_barrier_with_dependencies_waits_for_them_only),
    CASE(a_second_barrier_does_not_loosen_the_first),
    CASE(a_marker_completes_after_all_before_it_and_holds_nobody),
    CASE(hints_are_commands_that_do_nothing),
    CASE(events_order_queues_and_contexts),
    CASE(only_user_events_are_signalled_and_once),
    CASE(callbacks_are_called_once_with_the_status),
    CASE(a_callback_may_release_the_event),
    CASE(times_ascend_where_they_were_asked_for),
    CASE(each_thread_waits_for_what_was_queued_before),
    CASE(times_are_there_as_soon_as_the_end_is),
    CASE(times_are_not_had_without_profiling),
    CASE(a_failure_reaches_dependents_and_theirs),
    CASE(a_long_chain_of_failures_needs_no_deep_stack),
    CASE(what_only_comes_later_runs_after_a_failure),
    CASE(a_queue_tells_once_of_failures_without_event),
    CASE(a_user_event_that_nobody_can_signal_fails_its_dependents),
    CASE(without_a_thread_a_command_is_refused_whole),
    CASE(a_queue_may_go_before_its_commands),
    CASE(tasks_without_an_order_leave_nothing_behind),
    CASE(workers_end_with_the_last_context_and_come_again),
#if !PLAIN_SANITIZED
    CASE(a_child_has_workers_of_its_own),
    CASE(a_process_may_end_with_work_in_flight),
#endif
    CASE(threads_share_queues),
    CASE(a_waiter_may_release_what_another_signals),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
