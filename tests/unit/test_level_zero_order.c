/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The Level Zero backend's queues: what every backend's pass (order_cases.h), then order in lanes
 * and between them, events that are used again, who is told, the end with work in flight, times,
 * lost devices, and all of it when memory runs out.  Handles: test_level_zero_native.c.
 *
 * The cases of lost devices come last: a device stays lost. */
#include "level_zero_lists.h"

#include "order_cases.h"

#include <sys/mman.h>

/* --- order ------------------------------------------------------------------------------------ */

/* Many more than the pools have events: each copy reads what the one before wrote. */
static void thousands_of_commands_use_few_events(void)
{
    enum { COMMANDS = 5000 };

    needs_commands();
    needs_soft();
    for (uint32_t flags = 0; flags < 2; flags++) {
        uint64_t live;
        long    *p;
        void    *last = NULL;

        open_with(flags & USM_QUEUE_OUT_OF_ORDER);
        p    = allocate_in(ctx, USM_HOST, (COMMANDS + 1) * sizeof(long));
        p[0] = 4711;
        live = soft.live();
        for (int i = 0; i < COMMANDS; i++) {
            void *ev = copy_after(&p[i + 1], &p[i], sizeof(long), last ? 1 : 0, &last);

            if (last)
                ops->event_release(last);
            last = ev;
            if (i % 50 == 0)
                CHECK_INT(ops->event_wait(ev), USM_OK);
        }
        finish(last);
        CHECK_INT(p[COMMANDS], 4711);
        CHECK(soft.live() - live < 600); /* events, their pools, regular lists */
        CHECK_INT(ops->mem_free(ctx, USM_HOST, p, (COMMANDS + 1) * sizeof(long)), USM_OK);
        close_all();
    }
}

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Each cell is copied from an earlier one, behind that one's event: any order that respects the
 * events fills all, any other leaves zeros. */
static void a_tangle_of_dependencies_is_respected(void)
{
    enum { CELLS = 2000, SIZE = 512 };

    needs_commands();
    for (unsigned seed = 1; seed < 4; seed++) {
        unsigned state = seed;
        char    *p;
        void    *evs[CELLS] = {NULL};

        open_with(USM_QUEUE_OUT_OF_ORDER);
        p = allocate_in(ctx, USM_SHARED, CELLS * SIZE);
        memset(p, 0, CELLS * SIZE);
        memset(p, 'x', SIZE);
        CHECK_INT(ops->marker(q, 0, NULL, &evs[0]), USM_OK);
        for (int i = 1; i < CELLS; i++) {
            int   from    = (int)(next_random(&state) % (unsigned)i);
            void *deps[3] = {evs[next_random(&state) % (unsigned)i], evs[0], evs[from]};

            evs[i] = copy_after(p + i * SIZE, p + from * SIZE, SIZE, 3, deps);
        }
        CHECK_INT(ops->queue_wait(q), USM_OK);
        for (int i = 0; i < CELLS; i++) {
            CHECK(memcmp(p, p + i * SIZE, SIZE) == 0);
            finish(evs[i]);
        }
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, CELLS * SIZE), USM_OK);
        close_all();
    }
}

/* Rounds of many small copies, each round over what the one before wrote, without events. */
static void barriers_order_all_lanes(void)
{
    enum { ROUND = 16, SIZE = 2048, ROUNDS_HERE = 40 };

    needs_commands();
    for (int marks = 0; marks < 2; marks++) {
        char *p;

        open_with(USM_QUEUE_OUT_OF_ORDER);
        p = allocate_in(ctx, USM_SHARED, (size_t)ROUND * SIZE * 2);
        memset(p, 0, (size_t)ROUND * SIZE * 2);
        for (int r = 0; r < ROUNDS_HERE; r++) {
            char  value = (char)(r + 1);
            void *mark  = NULL;

            for (int i = 0; i < ROUND; i++)
                CHECK_INT(ops->fill(q, p + i * SIZE, &value, 1, SIZE, 0, NULL, NULL), USM_OK);
            if (marks) { /* a marker for all, and a barrier for it */
                CHECK_INT(ops->marker(q, 0, NULL, &mark), USM_OK);
                CHECK_INT(ops->barrier(q, 1, &mark, NULL), USM_OK);
                ops->event_release(mark);
            } else {
                CHECK_INT(ops->barrier(q, 0, NULL, NULL), USM_OK);
            }
            for (int i = 0; i < ROUND; i++)
                CHECK_INT(ops->copy(q, p + (ROUND + i) * SIZE, p + (ROUND - 1 - i) * SIZE, SIZE, 0,
                                    NULL, NULL),
                          USM_OK);
            CHECK_INT(ops->barrier(q, 0, NULL, NULL), USM_OK);
        }
        CHECK_INT(ops->queue_wait(q), USM_OK);
        for (int i = 0; i < 2 * ROUND * SIZE; i++)
            CHECK_INT(p[i], ROUNDS_HERE);
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, (size_t)ROUND * SIZE * 2), USM_OK);
        close_all();
    }
}

/* --- commands --------------------------------------------------------------------------------- */

static void rectangles_fill_and_hints_do_what_they_say(void)
{
    enum { W = 7, H = 5, DST = 16, SRC = 9 };
    char  from[H * SRC], *p;
    void *ev = NULL;

    needs_commands();
    for (uint32_t flags = 0; flags < 2; flags++) {
        open_with(flags & USM_QUEUE_OUT_OF_ORDER);
        p = allocate_in(ctx, USM_SHARED, N);
        memset(p, 0, N);
        for (size_t i = 0; i < sizeof(from); i++)
            from[i] = (char)(i + 1);
        CHECK_INT(ops->copy_2d(q, p, DST, from, SRC, W, H, 0, NULL, &ev), USM_OK);
        finish(ev);
        for (int y = 0; y < H; y++)
            for (int x = 0; x < DST; x++)
                CHECK_INT(p[y * DST + x], x < W ? from[y * SRC + x] : 0);
        CHECK_INT(ops->copy_2d(q, p, W, p + 1024, W, W, H, 0, NULL, &ev), USM_OK);
        finish(ev);
        CHECK_INT(p[0] | p[W * H - 1], 0);
        CHECK_INT(ops->fill(q, p + 64, "abcd", 4, 400, 0, NULL, &ev), USM_OK);
        finish(ev);
        CHECK(memcmp(p + 64, "abcdabcd", 8) == 0 && memcmp(p + 460, "abcd", 5) == 0);
        CHECK_INT(ops->prefetch(q, p, N, 0, NULL, &ev), USM_OK);
        finish(ev);
        for (int advice = USM_ADVICE_DEFAULT; advice <= USM_ADVICE_NO_PREFERRED_LOCATION;
             advice++) {
            CHECK_INT(ops->advise(q, p, N, (usm_advice)advice, 0, NULL, &ev), USM_OK);
            finish(ev);
        }
        CHECK_INT(p[64], 'a');
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
        close_all();
    }
}

/* A pitch beyond 32 bits, which a region has no room for: rows far apart in reserved addresses. */
static void rows_far_apart_are_copied(void)
{
    const size_t pitch = ((size_t)1 << 32) + 4096, rows = 3, all = 2 * pitch + 4096;
    char        *far, near[3][8];
    void        *ev = NULL;

    needs_commands();
    needs_soft();
    open_with(0);
    far =
        mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(far != MAP_FAILED);
    for (size_t y = 0; y < rows; y++)
        (void)snprintf(far + y * pitch, 8, "row %zu", y);
    CHECK_INT(ops->copy_2d(q, near, 8, far, pitch, 8, rows, 0, NULL, &ev), USM_OK);
    finish(ev);
    for (size_t y = 0; y < rows; y++)
        CHECK_STR(near[y], far + y * pitch);
    CHECK_INT(munmap(far, all), 0);
    close_all();
}

/* --- who is told ------------------------------------------------------------------------------ */

static void *notify_in_thread(void *arg)
{
    char *mine = arg;

    for (int i = 0; i < ROUNDS; i++) {
        void *evs[4];

        for (int k = 0; k < 4; k++)
            evs[k] = copy_after(mine + 4 * i + k, "x", 1, 0, NULL);
        for (int k = 3; k >= 0; k--) /* the youngest first */
            CHECK_INT(ops->event_notify(evs[k], on_hear, &heard), USM_OK);
        for (int k = 0; k < 4; k++)
            ops->event_release(evs[k]);
    }
    return NULL;
}

static void four_threads_are_told_of_every_command(void)
{
    needs_commands();
    for (uint32_t flags = 0; flags < 2; flags++) {
        pthread_t threads[THREADS];
        char     *p;

        heard.n = heard.wrong = 0;
        open_with(flags & USM_QUEUE_OUT_OF_ORDER);
        p = allocate_in(ctx, USM_HOST, THREADS * ROUNDS * 4);
        for (int i = 0; i < THREADS; i++)
            CHECK_INT(pthread_create(&threads[i], NULL, notify_in_thread, p + i * ROUNDS * 4), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < 10000 && atomic_load(&heard.n) < THREADS * ROUNDS * 4; i++)
            module_sleep_ms(1);
        CHECK_INT(heard.n, THREADS * ROUNDS * 4);
        CHECK_INT(heard.wrong, 0);
        CHECK_INT(ops->mem_free(ctx, USM_HOST, p, THREADS * ROUNDS * 4), USM_OK);
        close_all();
    }
}

static atomic_int released;

static void on_first(void *arg, usm_status status)
{
    (void)arg;
    atomic_store(&released, status ? -1 : 1);
}

static void a_callback_of_one_queue_releases_another(void)
{
    char *p;
    void *other = NULL, *gate, *held, *first = NULL;

    needs_commands();
    open_with(0);
    released = 0;
    CHECK_INT(ops->queue_create(ctx, dev->handle, 0, &other), USM_OK);
    p    = allocate_in(ctx, USM_SHARED, N);
    gate = user_event();
    held = copy_after(p, "released", 9, 1, &gate);
    CHECK_INT(ops->event_notify(held, on_hear, &heard), USM_OK);
    CHECK_INT(ops->copy(other, p + 64, "first", 6, 0, NULL, &first), USM_OK);
    CHECK_INT(ops->event_notify(first, on_first, NULL), USM_OK);
    for (int i = 0; i < 10000 && !atomic_load(&released); i++)
        module_sleep_ms(1);
    CHECK_INT(released, 1);
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK); /* as the core's job does then */
    finish(held);
    CHECK_STR(p, "released");
    ops->event_release(gate);
    finish(first);
    ops->queue_destroy(other);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
    close_all();
}

/* --- the end ---------------------------------------------------------------------------------- */

/* Queue, context and events are given back at once: the driver's part goes when the work has ended.
 */
static void all_is_given_up_with_work_in_flight(void)
{
    enum { SIZE = 1 << 20, COPIES = 20 };
    static char from[SIZE], to[COPIES][SIZE];
    uint64_t    live;

    needs_commands();
    needs_soft();
    live = soft.live();
    for (uint32_t flags = 0; flags < 4; flags++) {
        open_with((flags & 1 ? USM_QUEUE_OUT_OF_ORDER : 0) | (flags & 2 ? USM_QUEUE_PROFILING : 0));
        heard.n = heard.wrong = 0;
        memset(from, (int)flags + 1, SIZE);
        for (int i = 0; i < COPIES; i++) {
            void *ev = NULL;

            CHECK_INT(ops->copy(q, to[i], from, SIZE, 0, NULL, i % 3 ? NULL : &ev), USM_OK);
            if (i % 6 == 0)
                CHECK_INT(ops->event_notify(ev, on_hear, &heard), USM_OK);
            if (ev)
                ops->event_release(ev);
        }
        close_all(); /* waits for the last thread */
        expect_live(live);
        CHECK_INT(heard.n, (COPIES + 5) / 6);
        CHECK_INT(heard.wrong, 0);
        for (int i = 0; i < COPIES; i++)
            CHECK(memcmp(to[i], from, SIZE) == 0);
    }
}

/* --- times ------------------------------------------------------------------------------------ */

static void times_follow_the_order_of_a_queue(void)
{
    enum { COMMANDS = 50 };
    usm_profiling t[COMMANDS];
    char         *p;
    void         *evs[COMMANDS];

    needs_commands();
    if (!has(USM_ASPECT_QUEUE_PROFILING))
        SKIP("the device has no profiling");
    open_with(USM_QUEUE_PROFILING);
    p = allocate_in(ctx, USM_SHARED, 1 << 16);
    for (int i = 0; i < COMMANDS; i++) {
        char value = (char)i;

        CHECK_INT(ops->fill(q, p, &value, 1, 1 << 16, 0, NULL, &evs[i]), USM_OK);
    }
    for (int i = 0; i < COMMANDS; i++) {
        t[i] = (usm_profiling)USM_PROFILING_INIT;
        CHECK_INT(ops->event_wait(evs[i]), USM_OK);
        CHECK_INT(ops->event_profiling(evs[i], &t[i]), USM_OK);
        CHECK(t[i].submit_ns <= t[i].start_ns && t[i].start_ns <= t[i].end_ns);
        CHECK(i == 0 || t[i - 1].submit_ns <= t[i].submit_ns);
        CHECK(i == 0 || t[i - 1].end_ns <= t[i].start_ns);
        ops->event_release(evs[i]);
    }
    CHECK_INT(ops->marker(q, 0, NULL, &evs[0]), USM_OK);
    CHECK_INT(ops->event_wait(evs[0]), USM_OK);
    CHECK_INT(ops->event_profiling(evs[0], &t[0]), USM_OK);
    CHECK(t[0].submit_ns <= t[0].start_ns && t[0].start_ns <= t[0].end_ns);
    ops->event_release(evs[0]);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, 1 << 16), USM_OK);
    close_all();
}

static lz_device timer_of(uint32_t bits, uint32_t kernel_bits, double tick_ns)
{
    lz_device d = {.tick_ns = tick_ns, .timestamp_mask = ((uint64_t)1 << kernel_bits) - 1};

    d.properties.timestampValidBits = bits;
    return d;
}

/* Timers of 36 and 32 bits, 80 ns a tick: they begin anew every 5498 s and 343 s. */
static void counters_that_begin_anew_go_on(void)
{
    const uint64_t second = 12500000, period = (uint64_t)1 << 36;
    lz_device      d     = timer_of(36, 32, 80);
    lz_timeline    time  = {false, 0, 0, 0};
    uint64_t       begin = period - second; /* one second before it begins anew */

    lz_timeline_go_on(&time, &d, begin, 1000000000);
    CHECK(time.total == begin);
    lz_timeline_go_on(&time, &d, second, 3000000000); /* two seconds later */
    CHECK(time.total == begin + 2 * second);
    /* 20000 s later: four times around, but for a little jitter */
    lz_timeline_go_on(&time, &d, (second + 20000 * second) % period, 20003000000000 - 1000);
    CHECK(time.total == begin + 20002 * second);
    lz_timeline_go_on(&time, &d, (2 * second + 20000 * second) % period, 20004000000000 + 1000);
    CHECK(time.total == begin + 20003 * second);
}

static void kernel_times_count_from_the_submission(void)
{
    const uint64_t               kernels = (uint64_t)1 << 32;
    lz_device                    d       = timer_of(36, 32, 80);
    lz_slot                      slot    = {.dev = &d};
    ze_kernel_timestamp_result_t t       = {{0, 0}, {0, 0}};
    usm_profiling                times   = USM_PROFILING_INIT;

    slot.submit_ticks    = 3 * kernels - 10; /* the kernels' counter begins anew before the start */
    slot.submit_total    = 7 * kernels - 10;
    t.global.kernelStart = 5;
    t.global.kernelEnd   = 25;
    lz_times_of(&slot, &t, &times);
    CHECK(times.submit_ns == slot.submit_total * 80);
    CHECK(times.start_ns == times.submit_ns + 15 * 80 && times.end_ns == times.start_ns + 20 * 80);
    t.global.kernelStart = kernels - 3; /* and between start and end */
    t.global.kernelEnd   = 4;
    lz_times_of(&slot, &t, &times);
    CHECK(times.start_ns == times.submit_ns + 7 * 80 && times.end_ns == times.start_ns + 7 * 80);
    t.global.kernelStart = kernels - 12; /* two readings of one timer that are not quite at once */
    lz_times_of(&slot, &t, &times);
    CHECK(times.start_ns == times.submit_ns && times.end_ns == times.start_ns + 16 * 80);
    t.global.kernelStart = t.global.kernelEnd = 0; /* a driver that gives a marker no times */
    lz_times_of(&slot, &t, &times);
    CHECK(times.start_ns == times.submit_ns && times.end_ns == times.submit_ns);
}

/* --- when memory runs out --------------------------------------------------------------------- */

/* A little of all; whatever fails, all is given back. */
static void small_life(void)
{
    static char to[64]; /* commands may end after us: a wait fails, too */
    void       *d = dev->handle, *own = NULL, *queue = NULL, *gate = NULL, *evs[6] = {NULL};

    if (ops->context_create(1, &d, &own))
        return;
    if (ops->queue_create(own, d, USM_QUEUE_OUT_OF_ORDER | USM_QUEUE_PROFILING, &queue))
        goto out_context;
    if (ops->event_create_user(own, &gate))
        goto out_queue;
    (void)ops->copy(queue, to, "abcd", 4, 1, &gate, &evs[0]);
    (void)ops->copy(queue, to + 8, "abcd", 4, 0, NULL, &evs[1]);
    if (evs[0])
        (void)ops->copy(queue, to + 16, to, 4, 1, &evs[0], NULL);
    (void)ops->marker(queue, 0, NULL, &evs[2]);
    if (evs[1])
        (void)ops->barrier(queue, 1, &evs[1], &evs[3]);
    (void)ops->prefetch(queue, to, sizeof(to), 0, NULL, &evs[4]);
    if (evs[1])
        (void)ops->event_notify(evs[1], on_hear, &heard);
    (void)ops->event_signal(gate, USM_OK);
    (void)ops->barrier(queue, 0, NULL, &evs[5]);
    for (int i = 0; i < 6; i++)
        if (evs[i]) {
            usm_profiling t = USM_PROFILING_INIT;

            (void)ops->event_wait(evs[i]);
            (void)ops->event_profiling(evs[i], &t);
            ops->event_release(evs[i]);
        }
    (void)ops->queue_wait(queue);
    ops->event_release(gate);
out_queue:
    ops->queue_destroy(queue);
out_context:
    ops->context_destroy(own);
}

static void an_exhausted_heap_leaves_nothing_behind(void)
{
    needs_commands();
    needs_soft();
    for (uint64_t n = 1, fired = 1, live = soft.live(); fired; n++) {
        module_start();
        CHECK(usm__fault_arm("heap.alloc", n, false, USM_OK));
        small_life();
        fired = usm__fault_fired();
        usm__fault_disarm_all();
        module_clean();
        expect_live(live);
    }
}

static void a_driver_out_of_memory_leaves_nothing_behind(void)
{
    needs_commands();
    needs_soft();
    for (int from = 0; from < 2; from++) {
        int has_failed = 1;

        for (uint64_t n = 1, live = soft.live(); has_failed; n++) {
            module_start();
            soft.fail_at(n, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, from && n % 2);
            small_life();
            has_failed = soft.has_failed();
            soft.fail_at(0, 0, 0);
            module_clean();
            expect_live(live);
        }
    }
}

/* --- lost devices
 * --------------------------------------------------------------------------------- */

static void *wait_for_lost(void *ev)
{
    CHECK_INT(ops->event_wait(ev), USM_E_DEVICE_LOST);
    return NULL;
}

static atomic_int lost_calls, lost_status;

static void on_lost(void *arg, usm_status status)
{
    (void)arg;
    atomic_store(&lost_status, (int)status);
    atomic_fetch_add(&lost_calls, 1);
}

/* In immediate mode device 0, in regular mode device 1. */
static void a_lost_device_ends_all_that_waits_for_it(void)
{
    pthread_t    waiter;
    native_event never;
    char        *p;
    void        *theirs = NULL, *gate, *stuck, *held, *silent = NULL;
    uint64_t     live;

    needs_commands();
    needs_soft();
    CHECK(ndevices > 1);
    dev  = &devices[is_regular()];
    live = soft.live();
    open_with(0);
    p     = allocate_in(ctx, USM_HOST, N);
    p[0]  = 0;
    never = native_event_new();
    CHECK_INT(ops->event_from_native(ctx, never.event, USM_KEEP, &theirs), USM_OK);
    stuck = copy_after(p, "no", 3, 1, &theirs); /* in the driver, for ever */
    gate  = user_event();
    held  = copy_after(p, "no", 3, 1, &gate);
    CHECK_INT(ops->copy(q, p, "no", 3, 0, NULL, NULL), USM_OK);
    CHECK_INT(ops->event_notify(stuck, on_lost, NULL), USM_OK);
    CHECK_INT(pthread_create(&waiter, NULL, wait_for_lost, stuck), 0);
    module_sleep_ms(20);
    soft.lose(is_regular());
    pthread_join(waiter, NULL);
    CHECK_INT(ops->event_query(stuck), USM_E_DEVICE_LOST);
    for (int i = 0; i < 10000 && !atomic_load(&lost_calls); i++)
        module_sleep_ms(1);
    CHECK_INT(lost_calls, 1);
    CHECK_INT(lost_status, USM_E_DEVICE_LOST);
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
    CHECK_INT(ops->event_wait(held), USM_E_DEVICE_LOST);
    CHECK_INT(ops->queue_wait(q), USM_E_DEVICE_LOST);
    CHECK_INT(ops->copy(q, p, "no", 3, 0, NULL, &silent), USM_E_DEVICE_LOST);
    CHECK_INT(ops->queue_wait(q), USM_E_DEVICE_LOST);
    CHECK(silent == NULL);
    CHECK_INT(p[0], 0);
    lost_calls = 0;
    ops->event_release(gate);
    ops->event_release(stuck);
    ops->event_release(held);
    ops->event_release(theirs);
    ops->queue_destroy(q);
    CHECK_INT(lz.zeEventDestroy(never.event), 0);
    CHECK_INT(lz.zeEventPoolDestroy(never.pool), 0);
    (void)ops->mem_free(ctx, USM_HOST, p, N);
    close_context();
    expect_live(live);
}

/* ---------------------------------------------------------------------------------------------- */

static const plain_case cases[] = {
    ORDER_CASES,
    CASE(thousands_of_commands_use_few_events),
    CASE(a_tangle_of_dependencies_is_respected),
    CASE(barriers_order_all_lanes),
    CASE(rectangles_fill_and_hints_do_what_they_say),
    CASE(rows_far_apart_are_copied),
    CASE(four_threads_are_told_of_every_command),
    CASE(a_callback_of_one_queue_releases_another),
    CASE(all_is_given_up_with_work_in_flight),
    CASE(times_follow_the_order_of_a_queue),
    CASE(counters_that_begin_anew_go_on),
    CASE(kernel_times_count_from_the_submission),
    CASE(an_exhausted_heap_leaves_nothing_behind),
    CASE(a_driver_out_of_memory_leaves_nothing_behind),
    {NULL, NULL},
};

static const plain_case last_cases[] = {
    CASE(a_lost_device_ends_all_that_waits_for_it),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return lists_main(argc, argv, cases, last_cases);
}
