/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Cases that every backend with queues passes: the order of commands, gates, failures that travel,
 * who is told, threads, times.  Included by one test of each backend, behind its fixture. */
#ifndef ORDER_CASES_H
#define ORDER_CASES_H

/* --- order ------------------------------------------------------------------------------------ */

static void in_order_commands_wait_behind_a_gate(void)
{
    char *p, a[8] = "first", b[8] = "second";
    void *gate, *one, *two;

    needs_commands();
    open_with(0);
    p    = allocate_in(ctx, USM_SHARED, N);
    p[0] = 0;
    gate = user_event();
    one  = copy_after(p, a, 8, 1, &gate);
    two  = copy_after(p, b, 8, 0, NULL);
    CHECK_INT(ops->event_query(one), USM_E_NOT_READY);
    CHECK_INT(ops->event_query(two), USM_E_NOT_READY);
    CHECK_INT(ops->event_query(gate), USM_E_NOT_READY);
    module_sleep_ms(20);
    CHECK_INT(p[0], 0);
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
    finish(two);
    CHECK_STR(p, "second");
    finish(one);
    finish(gate);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
    close_all();
}

static void out_of_order_commands_pass_a_gate_but_not_a_barrier(void)
{
    char *p;
    void *gate, *gated, *marker, *barrier, *behind, *all;

    needs_commands();
    if (!has(USM_ASPECT_OUT_OF_ORDER_QUEUE))
        SKIP("the device has no out-of-order queues");
    open_with(USM_QUEUE_OUT_OF_ORDER);
    p = allocate_in(ctx, USM_SHARED, N);
    memset(p, 0, N);
    gate  = user_event();
    gated = copy_after(p, "gated", 6, 1, &gate);
    finish(copy_after(p + 8, "free", 5, 0, NULL)); /* does not wait for the one before it */
    CHECK_INT(ops->marker(q, 1, &gated, &marker), USM_OK);
    finish(copy_after(p + 16, "free", 5, 0, NULL));
    CHECK_INT(ops->barrier(q, 1, &gated, &barrier), USM_OK);
    behind = copy_after(p + 24, "behind", 7, 0, NULL);
    CHECK_INT(ops->barrier(q, 0, NULL, &all), USM_OK);
    module_sleep_ms(20);
    CHECK_INT(ops->event_query(marker), USM_E_NOT_READY);
    CHECK_INT(ops->event_query(barrier), USM_E_NOT_READY);
    CHECK_INT(ops->event_query(behind), USM_E_NOT_READY);
    CHECK_INT(p[0] | p[24], 0);
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
    finish(all);
    CHECK_STR(p, "gated");
    CHECK_STR(p + 24, "behind");
    finish(gated);
    finish(marker);
    finish(barrier);
    finish(behind);
    ops->event_release(gate);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
    close_all();
}

static void commands_of_one_queue_wait_for_another(void)
{
    char *p;
    void *other = NULL, *gate, *first, *ev = NULL, *many[40];

    needs_commands();
    open_with(0);
    CHECK_INT(ops->queue_create(ctx, dev->handle, 0, &other), USM_OK);
    p     = allocate_in(ctx, USM_SHARED, N);
    gate  = user_event();
    first = copy_after(p, "chained", 8, 1, &gate);
    CHECK_INT(ops->copy(other, p + 64, p, 8, 1, &first, &ev), USM_OK);
    CHECK_INT(ops->event_query(ev), USM_E_NOT_READY);
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
    finish(ev);
    CHECK_STR(p + 64, "chained");
    for (int i = 0; i < 40; i++) /* more than fit a short wait list */
        many[i] = copy_after(p + 128 + i, "x", 1, 1, &first);
    CHECK_INT(ops->marker(other, 40, many, &ev), USM_OK);
    finish(ev);
    for (int i = 0; i < 40; i++) {
        CHECK_INT(p[128 + i], 'x');
        finish(many[i]);
    }
    ops->event_release(gate);
    ops->event_release(first);
    ops->queue_destroy(other);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
    close_all();
}

static void a_queue_destroyed_with_gated_work_finishes_it(void)
{
    needs_commands();
    for (int with_event = 0; with_event < 2; with_event++) {
        char *p;
        void *gate, *ev = NULL;

        open_with(0);
        p    = allocate_in(ctx, USM_SHARED, N);
        p[0] = 0;
        gate = user_event();
        CHECK_INT(ops->copy(q, p, "in flight", 10, 1, &gate, with_event ? &ev : NULL), USM_OK);
        CHECK_INT(ops->copy(q, p + 16, p, 10, 0, NULL, NULL), USM_OK);
        ops->queue_destroy(q);
        module_sleep_ms(10);
        CHECK_INT(p[0], 0);
        CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
        if (with_event)
            finish(ev);
        for (int i = 0; i < 5000 && p[16 + 8] != 't'; i++)
            module_sleep_ms(1);
        CHECK_STR(p + 16, "in flight");
        ops->event_release(gate);
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
        ops->context_destroy(ctx);
        module_clean();
    }
}

/* Intel's CPU runtime hangs for good when its own out-of-order queues go like this
 * (backends/opencl/stream.c). */
static void queues_come_and_go_with_work_in_flight(void)
{
    /* Few: PoCL 6 crashed once in some hundred thousand releases with work in flight. The core
     * releases a queue only when its work has ended. */
    enum { QUEUES = 40, SIZE = 256 };

    needs_commands();
    for (uint32_t flags = 0; flags < 2; flags++) {
        char *p, in[SIZE];
        int   late = 0;

        if (flags && !has(USM_ASPECT_OUT_OF_ORDER_QUEUE))
            break;
        open_with(0);
        p = allocate_in(ctx, USM_SHARED, QUEUES * SIZE);
        memset(p, 0, QUEUES * SIZE);
        memset(in, 'x', SIZE);
        for (int i = 0; i < QUEUES; i++) {
            void *fleeting = NULL;

            CHECK_INT(
                ops->queue_create(ctx, dev->handle, flags & USM_QUEUE_OUT_OF_ORDER, &fleeting),
                USM_OK);
            CHECK_INT(ops->copy(fleeting, p + i * SIZE, in, SIZE, 0, NULL, NULL), USM_OK);
            ops->queue_destroy(fleeting);
        }
        for (int i = 0; i < QUEUES; i++)
            while (memcmp(p + i * SIZE, in, SIZE) != 0 && late++ < 10000)
                module_sleep_ms(1);
        CHECK(late < 10000);
        finish(copy_after(p, "still alive", 12, 0, NULL));
        CHECK_STR(p, "still alive");
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, QUEUES * SIZE), USM_OK);
        close_all();
    }
}

/* --- failures --------------------------------------------------------------------------------- */

static void a_failed_gate_fails_what_waits_and_nothing_else(void)
{
    needs_commands();
    for (uint32_t flags = 0; flags < 2; flags++) {
        char *p;
        void *gate, *direct, *indirect, *late;

        open_with(flags & USM_QUEUE_OUT_OF_ORDER);
        p = allocate_in(ctx, USM_SHARED, N);
        memset(p, 0, N);
        gate     = user_event();
        direct   = copy_after(p, "no", 3, 1, &gate);
        indirect = copy_after(p + 8, "no", 3, 1, &direct);
        CHECK_INT(ops->event_signal(gate, USM_E_DEVICE), USM_OK);
        CHECK_INT(ops->event_query(gate), USM_E_DEVICE);
        CHECK_INT(ops->event_wait(direct), USM_E_DEPENDENCY);
        CHECK_INT(ops->event_query(direct), USM_E_DEPENDENCY);
        CHECK_INT(ops->event_wait(indirect), USM_E_DEPENDENCY);
        late = copy_after(p + 16, "no", 3, 1, &gate); /* it is known by now */
        CHECK_INT(ops->event_wait(late), USM_E_DEPENDENCY);
        finish(copy_after(p + 24, "yes", 4, 0, NULL)); /* the queue goes on */
        CHECK_INT(p[0] | p[8] | p[16], 0);
        CHECK_STR(p + 24, "yes");
        CHECK_INT(ops->queue_wait(q), USM_OK); /* all of them had events */
        CHECK_INT(ops->copy(q, p, "no", 3, 1, &late, NULL), USM_OK);
        CHECK_INT(ops->queue_wait(q), USM_E_DEPENDENCY);
        CHECK_INT(ops->queue_wait(q), USM_OK);
        CHECK_INT(p[0], 0);
        ops->event_release(gate);
        ops->event_release(direct);
        ops->event_release(indirect);
        ops->event_release(late);
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
        close_all();
    }
}

static void a_barrier_behind_a_failure_still_orders(void)
{
    char *p;
    void *gate, *barrier = NULL;

    needs_commands();
    if (!has(USM_ASPECT_OUT_OF_ORDER_QUEUE))
        SKIP("the device has no out-of-order queues");
    open_with(USM_QUEUE_OUT_OF_ORDER);
    p    = allocate_in(ctx, USM_SHARED, N);
    gate = user_event();
    CHECK_INT(ops->barrier(q, 1, &gate, &barrier), USM_OK);
    CHECK_INT(ops->event_signal(gate, USM_E_SYSTEM), USM_OK);
    CHECK_INT(ops->event_wait(barrier), USM_E_DEPENDENCY);
    finish(copy_after(p, "after", 6, 0, NULL));
    CHECK_STR(p, "after");
    ops->event_release(barrier);
    ops->event_release(gate);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
    close_all();
}

static void a_gate_nobody_can_open_fails_its_dependents(void)
{
    char *p;
    void *gate, *ev;

    needs_commands();
    open_with(0);
    p    = allocate_in(ctx, USM_SHARED, N);
    p[0] = 0;
    gate = user_event();
    ev   = copy_after(p, "no", 3, 1, &gate);
    ops->event_release(gate);
    CHECK_INT(ops->event_wait(ev), USM_E_DEPENDENCY);
    CHECK_INT(p[0], 0);
    ops->event_release(ev);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
    close_all();
}

static void an_event_is_signalled_once(void)
{
    void *gate, *ev;

    needs_commands();
    open_with(0);
    gate = user_event();
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_E_INVALID);
    CHECK_INT(ops->marker(q, 1, &gate, &ev), USM_OK);
    CHECK_INT(ops->event_signal(ev, USM_OK), USM_E_INVALID);
    finish(ev);
    finish(gate);
    close_all();
}

/* --- notices, threads, times ------------------------------------------------------------------ */

static struct {
    atomic_int calls, last;
} notified;

static void on_done(void *arg, usm_status status)
{
    CHECK(arg == &notified);
    atomic_store(&notified.last, (int)status);
    atomic_fetch_add(&notified.calls, 1);
}

static void expect_told(int calls, usm_status status)
{
    for (int i = 0; i < 10000 && atomic_load(&notified.calls) < calls; i++)
        module_sleep_ms(1);
    module_sleep_ms(2);
    CHECK_INT(atomic_load(&notified.calls), calls);
    CHECK_INT(atomic_load(&notified.last), status);
}

static void everybody_is_told_once(void)
{
    char *p;
    void *gate, *ev, *bad, *fails;

    needs_commands();
    open_with(0);
    notified.calls = 0;
    notified.last  = 1;
    p              = allocate_in(ctx, USM_SHARED, N);
    gate           = user_event();
    ev             = copy_after(p, "x", 2, 1, &gate);
    CHECK_INT(ops->event_notify(gate, on_done, &notified), USM_OK);
    CHECK_INT(ops->event_notify(ev, on_done, &notified), USM_OK);
    CHECK_INT(ops->event_notify(ev, on_done, &notified), USM_OK);
    module_sleep_ms(10);
    CHECK_INT(atomic_load(&notified.calls), 0);
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
    expect_told(3, USM_OK);
    CHECK_INT(ops->event_notify(ev, on_done, &notified), USM_OK); /* it is long done */
    expect_told(4, USM_OK);
    CHECK_INT(ops->event_notify(gate, on_done, &notified), USM_OK);
    expect_told(5, USM_OK);
    bad   = user_event();
    fails = copy_after(p, "x", 2, 1, &bad);
    CHECK_INT(ops->event_notify(fails, on_done, &notified), USM_OK);
    CHECK_INT(ops->event_signal(bad, USM_E_DEVICE), USM_OK);
    expect_told(6, USM_E_DEPENDENCY);
    CHECK_INT(ops->event_notify(bad, on_done, &notified), USM_OK);
    expect_told(7, USM_E_DEVICE);
    ops->event_release(bad);
    ops->event_release(fails);
    bad = user_event();
    CHECK_INT(ops->event_notify(bad, on_done, &notified), USM_OK);
    ops->event_release(bad);
    expect_told(8, USM_E_DEPENDENCY);
    finish(ev);
    finish(gate);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
    close_all();
}

static void *wait_in_thread(void *ev)
{
    CHECK_INT(ops->event_wait(ev), USM_OK);
    return NULL;
}

static void a_waiter_sleeps_until_the_gate_opens(void)
{
    pthread_t threads[2];
    char     *p;
    void     *gate, *ev;

    needs_commands();
    open_with(0);
    p    = allocate_in(ctx, USM_SHARED, N);
    gate = user_event();
    ev   = copy_after(p, "woken", 6, 1, &gate);
    CHECK_INT(pthread_create(&threads[0], NULL, wait_in_thread, ev), 0);
    CHECK_INT(pthread_create(&threads[1], NULL, wait_in_thread, gate), 0);
    module_sleep_ms(10);
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
    CHECK_INT(ops->queue_wait(q), USM_OK);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    CHECK_STR(p, "woken");
    finish(ev);
    finish(gate);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
    close_all();
}

/* Gates, copies and waits of several threads on one queue. */
static void *copy_in_thread(void *arg)
{
    char *mine = arg;

    for (int i = 0; i < ROUNDS; i++) {
        void *gate, *ev, *two;
        char  text[16], back[16] = "";

        (void)snprintf(text, sizeof(text), "%d", i);
        gate = user_event();
        ev   = copy_after(mine, text, 16, i % 3 ? 1 : 0, &gate);
        two  = copy_after(back, mine, 16, 1, &ev);
        CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
        finish(two);
        CHECK_STR(back, text);
        finish(ev);
        finish(gate);
    }
    return NULL;
}

static void threads_share_a_queue(void)
{
    needs_commands();
    for (uint32_t flags = 0; flags < 2; flags++) {
        pthread_t threads[THREADS];
        char     *p;

        open_with(flags & USM_QUEUE_OUT_OF_ORDER);
        p = allocate_in(ctx, USM_DEVICE, THREADS * 64);
        for (int i = 0; i < THREADS; i++)
            CHECK_INT(pthread_create(&threads[i], NULL, copy_in_thread, p + i * 64), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        CHECK_INT(ops->mem_free(ctx, USM_DEVICE, p, THREADS * 64), USM_OK);
        close_all();
    }
}

static void times_are_in_order(void)
{
    usm_profiling t = USM_PROFILING_INIT;
    char         *p;
    void         *ev, *gate, *plain_queue = NULL;

    needs_commands();
    if (!has(USM_ASPECT_QUEUE_PROFILING))
        SKIP("the device has no profiling");
    open_with(USM_QUEUE_PROFILING);
    p    = allocate_in(ctx, USM_SHARED, 1 << 20);
    gate = user_event();
    CHECK_INT(ops->event_profiling(gate, &t), USM_E_NOT_READY);
    CHECK_INT(ops->fill(q, p, "x", 1, 1 << 20, 1, &gate, &ev), USM_OK);
    CHECK_INT(ops->event_profiling(ev, &t), USM_E_NOT_READY);
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
    CHECK_INT(ops->event_wait(ev), USM_OK);
    CHECK_INT(ops->event_profiling(ev, &t), USM_OK);
    CHECK(t.struct_size == sizeof(t) && t.submit_ns > 0);
    CHECK(t.submit_ns <= t.start_ns && t.start_ns < t.end_ns);
    CHECK_INT(ops->event_profiling(gate, &t), USM_E_NOT_SUPPORTED);
    ops->event_release(gate);
    ops->event_release(ev);
    CHECK_INT(ops->queue_create(ctx, dev->handle, 0, &plain_queue), USM_OK);
    CHECK_INT(ops->marker(plain_queue, 0, NULL, &ev), USM_OK);
    CHECK_INT(ops->event_wait(ev), USM_OK);
    CHECK_INT(ops->event_profiling(ev, &t), USM_E_NOT_SUPPORTED);
    ops->event_release(ev);
    ops->queue_destroy(plain_queue);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, 1 << 20), USM_OK);
    close_all();
}

/* For a table of cases. */
#define ORDER_CASES                                                                                \
    CASE(in_order_commands_wait_behind_a_gate),                                                    \
        CASE(out_of_order_commands_pass_a_gate_but_not_a_barrier),                                 \
        CASE(commands_of_one_queue_wait_for_another),                                              \
        CASE(a_queue_destroyed_with_gated_work_finishes_it),                                       \
        CASE(queues_come_and_go_with_work_in_flight),                                              \
        CASE(a_failed_gate_fails_what_waits_and_nothing_else),                                     \
        CASE(a_barrier_behind_a_failure_still_orders),                                             \
        CASE(a_gate_nobody_can_open_fails_its_dependents), CASE(an_event_is_signalled_once),       \
        CASE(everybody_is_told_once), CASE(a_waiter_sleeps_until_the_gate_opens),                  \
        CASE(threads_share_a_queue), CASE(times_are_in_order)

#endif
