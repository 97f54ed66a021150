/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the execution of the software Level Zero driver promises, seen through the real loader:
 * lists, queues, events, fences, copies.  What needs knobs or a second process: test_exec_knobs.c.
 * Not here: kernels, and memory beyond what copies need. */
#include "test_exec.h"

#include <stdatomic.h>

/* --- immediate lists -------------------------------------------------------------------------- */

static void immediate_copies_move_data(void)
{
    ze_command_list_handle_t list = immediate(0, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    ze_event_pool_handle_t   pool = make_pool(3, 0);
    ze_event_handle_t        ev[3];
    unsigned char           *from = on_host(BIG), *to = on_host(BIG);
    void                    *dev     = on_device(0, BIG);
    const uint32_t           pattern = 0x04030201;

    for (uint32_t i = 0; i < 3; i++)
        ev[i] = make_event(pool, i);
    numbered(from, BIG);
    OK(zeCommandListAppendMemoryCopy(list, dev, from, BIG, ev[0], 0, NULL));
    OK(zeCommandListAppendMemoryFill(list, (char *)dev + 64, &pattern, 4, 66, ev[1], 1, &ev[0]));
    OK(zeCommandListAppendBarrier(list, NULL, 0, NULL));
    OK(zeCommandListAppendMemoryCopy(list, to, dev, BIG, ev[2], 1, &ev[1]));
    OK(zeEventHostSynchronize(ev[2], FOREVER));
    for (uint32_t i = 0; i < 66; i++)
        from[64 + i] = (unsigned char)(i % 4 + 1);
    CHECK(memcmp(from, to, BIG) == 0);
    for (uint32_t i = 0; i < 3; i++) {
        OK(zeEventQueryStatus(ev[i]));
        OK(zeEventDestroy(ev[i]));
    }
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(ctx, dev));
    OK(zeMemFree(ctx, from));
    OK(zeMemFree(ctx, to));
}

/* If it did block, nobody would signal. */
static void an_append_does_not_block(void)
{
    ze_command_list_handle_t list = immediate(0, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    ze_event_pool_handle_t   pool = make_pool(2, 0);
    ze_event_handle_t        go = make_event(pool, 0), done = make_event(pool, 1);
    unsigned char           *p = on_host(8);

    OK(zeCommandListAppendWaitOnEvents(list, 1, &go));
    OK(zeCommandListAppendMemoryFill(list, p, "x", 1, 8, done, 0, NULL));
    CHECK_INT(zeEventHostSynchronize(done, 0), ZE_RESULT_NOT_READY);
    CHECK_INT(zeEventHostSynchronize(done, 20000000), ZE_RESULT_NOT_READY);
    CHECK(is_filled(p, 8, 0));
    OK(zeEventHostSignal(go));
    OK(zeEventHostSynchronize(done, FOREVER - 1));
    CHECK(is_filled(p, 8, 'x'));
    OK(zeEventHostReset(done));
    CHECK_INT(zeEventQueryStatus(done), ZE_RESULT_NOT_READY);
    OK(zeEventDestroy(go));
    OK(zeEventDestroy(done));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(ctx, p));
}

static void a_synchronous_list_waits(void)
{
    ze_command_list_handle_t list = immediate(1, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    unsigned char           *p    = on_host(BIG);

    OK(zeCommandListAppendMemoryFill(list, p, "y", 1, BIG, NULL, 0, NULL));
    CHECK(is_filled(p, BIG, 'y'));
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(ctx, p));
}

static void bad_appends_are_refused(void)
{
    ze_command_list_handle_t list = immediate(0, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    ze_event_pool_handle_t   pool = make_pool(1, 0);
    ze_event_handle_t        ev   = make_event(pool, 0), twice;
    ze_event_desc_t          desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};
    unsigned char           *p    = on_host(64);

    CHECK_INT(zeCommandListAppendMemoryFill(list, p, "abc", 3, 9, NULL, 0, NULL),
              ZE_RESULT_ERROR_INVALID_SIZE);
    CHECK_INT(zeCommandListAppendMemoryCopy(list, NULL, p, 8, NULL, 0, NULL),
              ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    CHECK_INT(zeEventCreate(pool, &desc, &twice), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    desc.index = 1;
    CHECK_INT(zeEventCreate(pool, &desc, &twice), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    OK(zeEventDestroy(ev));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(ctx, p));
}

/* Only where handles are the driver's own: a loader that intercepts calls looks into dead ones, and
 * makes an array of its own of one that is not there. */
static void dead_handles_are_recognised(void)
{
    ze_command_list_handle_t list = immediate(0, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    ze_event_pool_handle_t   pool = make_pool(1, 0);
    ze_event_handle_t        ev   = make_event(pool, 0);

    OK(zeEventDestroy(ev));
    OK(zeEventPoolDestroy(pool));
    if (!getenv("ZE_ENABLE_LOADER_INTERCEPT") && !getenv("ZE_ENABLE_VALIDATION_LAYER")) {
        CHECK_INT(zeEventDestroy(ev), ZE_RESULT_ERROR_INVALID_ARGUMENT);
        CHECK_INT(zeEventPoolDestroy(pool), ZE_RESULT_ERROR_INVALID_ARGUMENT);
        CHECK_INT(zeCommandListAppendSignalEvent(list, ev), ZE_RESULT_ERROR_INVALID_ARGUMENT);
        CHECK_INT(zeCommandListAppendBarrier(list, NULL, 1, NULL), ZE_RESULT_ERROR_INVALID_SIZE);
    }
    OK(zeCommandListDestroy(list));
}

/* What a destroyed list was given is done all the same. */
static void a_list_is_destroyed_with_work(void)
{
    ze_command_list_handle_t list = immediate(0, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    ze_event_pool_handle_t   pool = make_pool(2, 0);
    ze_event_handle_t        go = make_event(pool, 0), done = make_event(pool, 1);

    OK(zeCommandListAppendBarrier(list, done, 1, &go));
    OK(zeCommandListDestroy(list));
    CHECK_INT(zeEventQueryStatus(done), ZE_RESULT_NOT_READY);
    OK(zeEventHostSignal(go));
    OK(zeEventHostSynchronize(done, FOREVER));
    OK(zeEventDestroy(go));
    OK(zeEventDestroy(done));
    OK(zeEventPoolDestroy(pool));
}

/* --- regular lists ---------------------------------------------------------------------------- */

static void regular_lists_are_executed_many_times(void)
{
    ze_command_queue_handle_t queue    = make_queue(0);
    ze_command_list_handle_t  lists[2] = {regular(0), regular(0)};
    ze_fence_desc_t           desc     = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC};
    ze_fence_handle_t         fence;
    unsigned char            *p = on_host(64), *q = on_host(64);

    OK(zeFenceCreate(queue, &desc, &fence));
    OK(zeCommandListAppendMemoryCopy(lists[0], q, p, 64, NULL, 0, NULL));
    CHECK_INT(zeCommandQueueExecuteCommandLists(queue, 1, lists, NULL),
              ZE_RESULT_ERROR_INVALID_ARGUMENT);
    OK(zeCommandListClose(lists[0]));
    CHECK_INT(zeCommandListAppendMemoryCopy(lists[0], q, p, 64, NULL, 0, NULL),
              ZE_RESULT_ERROR_INVALID_ARGUMENT);
    OK(zeCommandListAppendMemoryCopy(lists[1], q + 8, q, 8, NULL, 0, NULL));
    OK(zeCommandListClose(lists[1]));
    CHECK_INT(zeFenceHostSynchronize(fence, 1000), ZE_RESULT_NOT_READY);
    for (int i = 1; i <= 20; i++) {
        memset(p, i, 8);
        OK(zeCommandQueueExecuteCommandLists(queue, 2, lists, fence));
        OK(zeFenceHostSynchronize(fence, FOREVER));
        OK(zeFenceQueryStatus(fence));
        CHECK(is_filled(q, 16, (unsigned char)i));
        OK(zeFenceReset(fence));
        CHECK_INT(zeFenceQueryStatus(fence), ZE_RESULT_NOT_READY);
    }
    OK(zeCommandListReset(lists[0]));
    OK(zeCommandListAppendMemoryFill(lists[0], q, "z", 1, 64, NULL, 0, NULL));
    OK(zeCommandListClose(lists[0]));
    OK(zeCommandQueueExecuteCommandLists(queue, 1, lists, NULL));
    OK(zeCommandListDestroy(lists[0])); /* in flight, perhaps */
    OK(zeCommandQueueSynchronize(queue, FOREVER));
    CHECK(is_filled(q, 64, 'z'));
    OK(zeFenceDestroy(fence));
    OK(zeCommandListDestroy(lists[1]));
    OK(zeCommandQueueDestroy(queue));
    OK(zeMemFree(ctx, p));
    OK(zeMemFree(ctx, q));
}

static void a_queue_waits_for_events(void)
{
    ze_command_queue_handle_t queue = make_queue(0);
    ze_command_list_handle_t list = regular(0), other = immediate(1, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    ze_event_pool_handle_t   pool = make_pool(2, 0);
    ze_event_handle_t        go = make_event(pool, 0), done = make_event(pool, 1);

    OK(zeCommandListAppendBarrier(list, done, 1, &go));
    OK(zeCommandListAppendEventReset(list, go));
    OK(zeCommandListClose(list));
    for (int i = 0; i < 3; i++) {
        OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
        CHECK_INT(zeCommandQueueSynchronize(queue, 0), ZE_RESULT_NOT_READY);
        CHECK_INT(zeCommandQueueSynchronize(queue, 1000000), ZE_RESULT_NOT_READY);
        OK(zeCommandListAppendSignalEvent(other, go)); /* by the other device */
        OK(zeEventHostSynchronize(done, FOREVER));
        OK(zeCommandQueueSynchronize(queue, FOREVER));
        CHECK_INT(zeEventQueryStatus(go), ZE_RESULT_NOT_READY);
        OK(zeEventHostReset(done));
    }
    OK(zeEventDestroy(go));
    OK(zeEventDestroy(done));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(other));
    OK(zeCommandListDestroy(list));
    OK(zeCommandQueueDestroy(queue));
}

/* Signalled in the other order than they are waited for. */
static void a_command_waits_for_all_its_events(void)
{
    enum { N = 8 };
    ze_command_list_handle_t list = immediate(0, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    ze_event_pool_handle_t   pool = make_pool(N + 1, 0);
    ze_event_handle_t        ev[N], done = make_event(pool, N);

    for (uint32_t i = 0; i < N; i++)
        ev[i] = make_event(pool, i);
    OK(zeCommandListAppendBarrier(list, done, N, ev));
    for (uint32_t i = N; i-- > 0;) {
        CHECK_INT(zeEventHostSynchronize(done, 100000), ZE_RESULT_NOT_READY);
        OK(zeEventHostSignal(ev[i]));
    }
    OK(zeEventHostSynchronize(done, FOREVER));
    for (uint32_t i = 0; i < N; i++)
        OK(zeEventDestroy(ev[i]));
    OK(zeEventDestroy(done));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
}

/* The batch, its list, queue and events are gone before it can begin. */
static void a_queue_is_destroyed_with_work(void)
{
    ze_command_queue_handle_t queue = make_queue(0);
    ze_command_list_handle_t  list  = regular(0);
    ze_event_pool_handle_t    pool  = make_pool(2, 0);
    ze_event_handle_t         go = make_event(pool, 0), done = make_event(pool, 1);
    unsigned char            *p = on_host(8);

    OK(zeCommandListAppendMemoryFill(list, p, "d", 1, 8, done, 1, &go));
    OK(zeCommandListClose(list));
    OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    OK(zeCommandListDestroy(list));
    OK(zeCommandQueueDestroy(queue));
    OK(zeEventHostSignal(go));
    OK(zeEventDestroy(go));
    OK(zeEventHostSynchronize(done, FOREVER));
    CHECK(is_filled(p, 8, 'd'));
    OK(zeEventDestroy(done));
    OK(zeEventPoolDestroy(pool));
    OK(zeMemFree(ctx, p));
}

static void lists_go_to_their_own_kind_of_queue(void)
{
    ze_command_queue_handle_t queue = make_queue(0);
    ze_command_list_handle_t  list  = immediate(0, ZE_COMMAND_QUEUE_MODE_DEFAULT), none;
    ze_command_list_desc_t    desc  = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                       .commandQueueGroupOrdinal = 1000};

    CHECK_INT(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL),
              ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
    CHECK_INT(zeCommandListCreate(ctx, devices[0], &desc, &none), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    OK(zeCommandListDestroy(list));
    OK(zeCommandQueueDestroy(queue));
}

/* --- regions
 * ---------------------------------------------------------------------------------------- */

static void regions_are_copied(void)
{
    enum { W = 16, H = 8, D = 4 };
    ze_command_list_handle_t list = immediate(0, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    unsigned char           *from = on_host(W * H * D), *to = on_host(W * H * D);
    ze_copy_region_t         src = {2, 1, 1, 5, 3, 2}, dst = {4, 2, 0, 5, 3, 2};

    numbered(from, W * H * D);
    OK(zeCommandListAppendMemoryCopyRegion(list, to, &dst, W, W * H, from, &src, W, W * H, NULL, 0,
                                           NULL));
    for (size_t z = 0; z < D; z++)
        for (size_t y = 0; y < H; y++)
            for (size_t x = 0; x < W; x++) {
                const bool in   = x >= 4 && x < 9 && y >= 2 && y < 5 && z < 2;
                const int  want = in ? from[((z + 1) * H + y - 1) * W + x - 2] : 0;

                CHECK_INT(to[(z * H + y) * W + x], want);
            }
    /* Two dimensions: the slice pitch is not looked at; one: nor is the pitch. */
    src = (ze_copy_region_t){0, 0, 0, 4, 2, 0};
    dst = (ze_copy_region_t){0, 6, 0, 4, 2, 0};
    OK(zeCommandListAppendMemoryCopyRegion(list, to, &dst, W, 0, from, &src, W, 0, NULL, 0, NULL));
    CHECK(memcmp(to + 6 * W, from, 4) == 0 && memcmp(to + 7 * W, from + W, 4) == 0);
    CHECK_INT(
        zeCommandListAppendMemoryCopyRegion(list, to, &dst, W, 0, to, &dst, W, 0, NULL, 0, NULL),
        ZE_RESULT_ERROR_OVERLAPPING_REGIONS);
    src = (ze_copy_region_t){1, 0, 0, 4, 0, 0};
    dst = (ze_copy_region_t){0, 0, 0, 4, 0, 0};
    OK(zeCommandListAppendMemoryCopyRegion(list, to, &dst, 0, 0, from, &src, 0, 0, NULL, 0, NULL));
    CHECK(memcmp(to, from + 1, 4) == 0);
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(ctx, from));
    OK(zeMemFree(ctx, to));
}

/* --- timestamps
 * ---------------------------------------------------------------------------------------- */

static void timestamps_are_those_of_the_device(void)
{
    ze_command_list_handle_t     list = immediate(0, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    ze_event_pool_handle_t       pool = make_pool(3, TIMESTAMPS);
    ze_event_handle_t            ev[3];
    ze_kernel_timestamp_result_t t, *stored;
    uint64_t                     host, before, after, *global;
    unsigned char               *p = on_host(BIG);

    for (uint32_t i = 0; i < 3; i++)
        ev[i] = make_event(pool, i);
    stored = (void *)on_host(2 * sizeof(*stored));
    global = (void *)on_host(sizeof(*global));
    OK(zeDeviceGetGlobalTimestamps(devices[0], &host, &before));
    CHECK_INT(zeEventQueryKernelTimestamp(ev[0], &t), ZE_RESULT_NOT_READY);
    OK(zeCommandListAppendMemoryFill(list, p, "q", 1, BIG, ev[0], 0, NULL));
    OK(zeCommandListAppendWriteGlobalTimestamp(list, global, ev[1], 1, &ev[0]));
    OK(zeCommandListAppendQueryKernelTimestamps(list, 2, ev, stored, NULL, ev[2], 1, &ev[1]));
    OK(zeEventHostSynchronize(ev[2], FOREVER));
    OK(zeDeviceGetGlobalTimestamps(devices[0], &host, &after));
    OK(zeEventQueryKernelTimestamp(ev[0], &t));
    CHECK(before <= t.global.kernelStart && t.global.kernelStart <= t.global.kernelEnd);
    CHECK(t.global.kernelEnd <= *global && *global <= after);
    CHECK(memcmp(&stored[0], &t, sizeof(t)) == 0);
    CHECK(stored[1].global.kernelStart >= t.global.kernelEnd);
    for (uint32_t i = 0; i < 3; i++)
        OK(zeEventDestroy(ev[i]));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(ctx, p));
    OK(zeMemFree(ctx, stored));
    OK(zeMemFree(ctx, global));
}

/* --- threads
 * -----------------------------------------------------------------------------------------------
 */

enum { NTHREADS = 4, NROUNDS = 200 };

typedef struct ring {
    ze_event_handle_t        ev[NTHREADS], done[NTHREADS];
    ze_command_list_handle_t lists[NTHREADS];
    uint32_t                *counter; /* one value, handed round by copies */
    uint32_t                *steps;
    uint32_t                 index;
} ring;

/* Each waits for its event on the device, counts one up by a copy, and signals the next one's. */
static void *go_round(void *arg)
{
    ring                    *r = arg;
    const uint32_t           i = r->index, next = (i + 1) % NTHREADS;
    ze_command_list_handle_t list = r->lists[i];

    for (uint32_t n = 0; n < NROUNDS; n++) {
        const uint32_t step = n * NTHREADS + i;

        OK(zeCommandListAppendWaitOnEvents(list, 1, &r->ev[i]));
        OK(zeCommandListAppendEventReset(list, r->ev[i]));
        OK(zeCommandListAppendMemoryCopy(list, &r->steps[step], r->counter, 4, NULL, 0, NULL));
        OK(zeCommandListAppendBarrier(list, NULL, 0, NULL));
        OK(zeCommandListAppendMemoryFill(list, r->counter, &(uint32_t){step + 1}, 4, 4, NULL, 0,
                                         NULL));
        OK(zeCommandListAppendBarrier(list, r->ev[next], 0, NULL));
    }
    OK(zeCommandListAppendSignalEvent(list, r->done[i]));
    return NULL;
}

static void four_threads_hand_a_value_round(void)
{
    ze_event_pool_handle_t pool = make_pool(2 * NTHREADS, 0);
    pthread_t              threads[NTHREADS];
    ring                   rings[NTHREADS], *r = &rings[0];

    for (uint32_t i = 0; i < NTHREADS; i++) {
        r->ev[i]    = make_event(pool, i);
        r->done[i]  = make_event(pool, NTHREADS + i);
        r->lists[i] = immediate(i % NROOTS, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    }
    r->counter = (void *)on_host(4);
    r->steps   = (void *)on_host(NTHREADS * NROUNDS * 4);
    for (uint32_t i = 0; i < NTHREADS; i++) {
        rings[i]       = *r;
        rings[i].index = i;
        CHECK(pthread_create(&threads[i], NULL, go_round, &rings[i]) == 0);
    }
    OK(zeEventHostSignal(r->ev[0]));
    for (uint32_t i = 0; i < NTHREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (uint32_t i = 0; i < NTHREADS; i++)
        OK(zeEventHostSynchronize(r->done[i], FOREVER));
    CHECK_INT(*r->counter, NTHREADS * NROUNDS);
    for (uint32_t i = 0; i < NTHREADS * NROUNDS; i++)
        CHECK_INT(r->steps[i], i);
    for (uint32_t i = 0; i < NTHREADS; i++) {
        OK(zeCommandListDestroy(r->lists[i]));
        OK(zeEventDestroy(r->ev[i]));
        OK(zeEventDestroy(r->done[i]));
    }
    OK(zeEventPoolDestroy(pool));
    OK(zeMemFree(ctx, r->counter));
    OK(zeMemFree(ctx, r->steps));
}

static void *synchronize(void *ev)
{
    OK(zeEventHostSynchronize(ev, FOREVER));
    return NULL;
}

static void a_signal_wakes_all_who_wait(void)
{
    ze_event_pool_handle_t pool = make_pool(1, 0);
    ze_event_handle_t      ev   = make_event(pool, 0);
    pthread_t              threads[NTHREADS];

    for (uint32_t i = 0; i < NTHREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, synchronize, ev) == 0);
    (void)usleep(50000); /* they sleep by then; if not, the test is only easier to pass */
    OK(zeEventHostSignal(ev));
    for (uint32_t i = 0; i < NTHREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    OK(zeEventDestroy(ev));
    OK(zeEventPoolDestroy(pool));
}

/* --- counter-based events
 * ------------------------------------------------------------------------------------- */

/* ze_event_pool_counter_based_exp_desc_t of API 1.8 */
typedef struct counter_desc {
    uint32_t    stype;
    const void *pNext;
    uint32_t    flags;
} counter_desc;

static bool has_extension(const char *name)
{
    ze_driver_extension_properties_t all[64] = {{{0}, 0}};
    uint32_t                         n       = 1;
    ze_driver_handle_t               driver;
    bool                             found = false;

    OK(zeDriverGet(&n, &driver));
    n = 0;
    OK(zeDriverGetExtensionProperties(driver, &n, NULL));
    CHECK(n <= sizeof(all) / sizeof(all[0]));
    OK(zeDriverGetExtensionProperties(driver, &n, all));
    for (uint32_t i = 0; i < n; i++)
        found = found || strcmp(all[i].name, name) == 0;
    return found;
}

static void what_is_there_is_listed(void)
{
    CHECK(has_extension("ZE_experimental_event_pool_counter_based"));
    CHECK(has_extension(ZE_EVENT_QUERY_TIMESTAMPS_EXP_NAME));
    CHECK(has_extension(ZE_KERNEL_SCHEDULING_HINTS_EXP_NAME));
#ifdef ZE_EVENT_QUERY_KERNEL_TIMESTAMPS_EXT_NAME
    CHECK(has_extension(ZE_EVENT_QUERY_KERNEL_TIMESTAMPS_EXT_NAME));
#endif
}

static ze_event_pool_handle_t make_counters(void)
{
    const counter_desc     counters = {.stype = 0x00020014, .flags = 3};
    ze_event_pool_desc_t   desc     = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                       .pNext = &counters,
                                       .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
                                       .count = 1};
    ze_event_pool_handle_t pool;

    OK(zeEventPoolCreate(ctx, &desc, 0, NULL, &pool));
    return pool;
}

static void counters_need_no_reset(void)
{
    ze_command_queue_desc_t  in_order = queue_desc(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    ze_command_list_handle_t list, other = immediate(1, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    ze_event_pool_handle_t   pool = make_counters(), plain_pool = make_pool(2, 0);
    ze_event_handle_t        ev, go = make_event(plain_pool, 0), seen = make_event(plain_pool, 1);

    in_order.flags = QUEUE_IN_ORDER;
    OK(zeCommandListCreateImmediate(ctx, devices[0], &in_order, &list));
    ev = make_event(pool, 0);
    for (int i = 0; i < 3; i++) {
        OK(zeCommandListAppendBarrier(list, ev, 0, NULL));
        OK(zeEventHostSynchronize(ev, FOREVER));
    }
    /* What waits for the earlier command does not wait for the later one. */
    OK(zeCommandListAppendBarrier(other, seen, 1, &ev));
    OK(zeCommandListAppendBarrier(list, ev, 1, &go));
    CHECK_INT(zeEventQueryStatus(ev), ZE_RESULT_NOT_READY);
    OK(zeEventHostSynchronize(seen, FOREVER));
    OK(zeEventHostSignal(go));
    OK(zeEventHostSynchronize(ev, FOREVER));
    CHECK_INT(zeEventHostReset(ev), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    OK(zeEventDestroy(ev));
    OK(zeEventDestroy(go));
    OK(zeEventDestroy(seen));
    OK(zeEventPoolDestroy(pool));
    OK(zeEventPoolDestroy(plain_pool));
    OK(zeCommandListDestroy(list));
    OK(zeCommandListDestroy(other));
}

/* An execution signals anew; a wait appended after it waits for that one. */
static void counters_count_executions(void)
{
    ze_command_list_desc_t    desc  = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                       .flags = LIST_IN_ORDER};
    ze_command_queue_handle_t queue = make_queue(0);
    ze_command_list_handle_t  batch, list = immediate(1, ZE_COMMAND_QUEUE_MODE_DEFAULT);
    ze_event_pool_handle_t    counters = make_counters(), pool = make_pool(2, 0);
    ze_event_handle_t         ev = make_event(counters, 0);
    ze_event_handle_t         go = make_event(pool, 0), seen = make_event(pool, 1);

    OK(zeCommandListCreate(ctx, devices[0], &desc, &batch));
    OK(zeCommandListAppendBarrier(batch, ev, 1, &go));
    OK(zeCommandListClose(batch));
    for (int i = 0; i < 3; i++) {
        OK(zeCommandQueueExecuteCommandLists(queue, 1, &batch, NULL));
        OK(zeCommandListAppendBarrier(list, seen, 1, &ev));
        CHECK_INT(zeEventHostSynchronize(seen, 1000000), ZE_RESULT_NOT_READY);
        CHECK_INT(zeEventQueryStatus(ev), ZE_RESULT_NOT_READY);
        OK(zeEventHostSignal(go));
        OK(zeEventHostSynchronize(seen, FOREVER));
        OK(zeEventHostSynchronize(ev, FOREVER));
        OK(zeEventHostReset(go));
        OK(zeEventHostReset(seen));
    }
    OK(zeEventDestroy(ev));
    OK(zeEventDestroy(go));
    OK(zeEventDestroy(seen));
    OK(zeEventPoolDestroy(counters));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
    OK(zeCommandListDestroy(batch));
    OK(zeCommandQueueDestroy(queue));
}

/* Two executions at once: the counter stands for the second. */
static void counters_stand_for_the_last_execution(void)
{
    ze_command_list_desc_t    desc  = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                       .flags = LIST_IN_ORDER};
    ze_command_queue_handle_t queue = make_queue(0);
    ze_command_list_handle_t  batch;
    ze_event_pool_handle_t    counters = make_counters(), pool = make_pool(2, 0);
    ze_event_handle_t         ev = make_event(counters, 0);
    ze_event_handle_t         go = make_event(pool, 0), once = make_event(pool, 1);

    OK(zeCommandListCreate(ctx, devices[0], &desc, &batch));
    OK(zeCommandListAppendBarrier(batch, NULL, 1, &go));
    OK(zeCommandListAppendEventReset(batch, go));
    OK(zeCommandListAppendBarrier(batch, ev, 0, NULL));
    OK(zeCommandListAppendSignalEvent(batch, once));
    OK(zeCommandListClose(batch));
    OK(zeCommandQueueExecuteCommandLists(queue, 1, &batch, NULL));
    OK(zeCommandQueueExecuteCommandLists(queue, 1, &batch, NULL));
    OK(zeEventHostSignal(go));
    OK(zeEventHostSynchronize(once, FOREVER));
    CHECK_INT(zeEventQueryStatus(ev), ZE_RESULT_NOT_READY);
    OK(zeEventHostSignal(go));
    OK(zeEventHostSynchronize(ev, FOREVER));
    OK(zeCommandQueueSynchronize(queue, FOREVER));
    OK(zeEventDestroy(ev));
    OK(zeEventDestroy(go));
    OK(zeEventDestroy(once));
    OK(zeEventPoolDestroy(counters));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(batch));
    OK(zeCommandQueueDestroy(queue));
}

/* --- newer functions
 * -------------------------------------------------------------------------------------------- */

#if HAS_API_1_12
static void newer_functions_answer(void)
{
    ze_command_list_handle_t list = immediate(0, ZE_COMMAND_QUEUE_MODE_DEFAULT), batch = regular(0);
    ze_event_pool_handle_t   pool = make_pool(2, TIMESTAMPS), found;
    ze_event_handle_t        go = make_event(pool, 0), done = make_event(pool, 1);
    ze_device_handle_t       dev;
    ze_event_scope_flags_t   scope;
    ze_bool_t                is_immediate;
    uint32_t                 n = 0;
    ze_kernel_timestamp_result_t t;
    unsigned char               *p = on_host(8);

    OK(zeCommandListAppendMemoryFill(batch, p, "c", 1, 8, NULL, 0, NULL));
    OK(zeCommandListClose(batch));
    OK(zeCommandListImmediateAppendCommandListsExp(list, 1, &batch, done, 1, &go));
    CHECK_INT(zeCommandListHostSynchronize(list, 1000), ZE_RESULT_NOT_READY);
    CHECK_INT(zeCommandListHostSynchronize(batch, 0), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    OK(zeEventHostSignal(go));
    OK(zeCommandListHostSynchronize(list, FOREVER));
    CHECK(is_filled(p, 8, 'c'));
    OK(zeEventQueryStatus(done));
    OK(zeEventQueryTimestampsExp(done, devices[0], &n, NULL));
    CHECK_INT(n, 1);
    OK(zeEventQueryTimestampsExp(done, devices[0], &n, &t));
    CHECK(t.global.kernelStart <= t.global.kernelEnd && t.global.kernelStart > 0);
    OK(zeCommandListGetDeviceHandle(list, &dev));
    CHECK(dev == devices[0]);
    OK(zeCommandListIsImmediate(batch, &is_immediate));
    CHECK(!is_immediate);
    OK(zeEventGetEventPool(done, &found));
    CHECK(found == pool);
    OK(zeEventGetSignalScope(done, &scope));
    CHECK_INT(scope, ZE_EVENT_SCOPE_FLAG_HOST);
    OK(zeEventDestroy(go));
    OK(zeEventDestroy(done));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
    OK(zeCommandListDestroy(batch));
    OK(zeMemFree(ctx, p));
}
#endif

typedef struct blocking_free {
    void       *p;
    _Atomic int is_back;
} blocking_free;

static void *free_blocking(void *arg)
{
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                      .freePolicy =
                                          ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE};
    blocking_free            *f    = arg;

    OK(zeMemFreeExt(ctx, &desc, f->p));
    atomic_store(&f->is_back, 1);
    return NULL;
}

static void a_blocking_free_waits_for_who_uses_the_block(void)
{
    const struct timespec    pause = {0, 20000000};
    ze_command_list_handle_t list  = immediate(0, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    ze_event_pool_handle_t   pool  = make_pool(1, 0);
    ze_event_handle_t        go    = make_event(pool, 0);
    blocking_free            used = {on_device(0, 100), 0}, unused = {on_device(0, 100), 0};
    void                    *to = on_device(0, 100);
    pthread_t                thread;

    OK(zeCommandListAppendMemoryCopy(list, to, used.p, 100, NULL, 1, &go));
    (void)free_blocking(&unused);
    CHECK(atomic_load(&unused.is_back));
    CHECK_INT(pthread_create(&thread, NULL, free_blocking, &used), 0);
    (void)nanosleep(&pause, NULL);
    CHECK(!atomic_load(&used.is_back));
    OK(zeEventHostSignal(go));
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK(atomic_load(&used.is_back));
    OK(zeEventDestroy(go));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(ctx, to));
}

static const plain_case cases[] = {CASE(immediate_copies_move_data),
                                   CASE(an_append_does_not_block),
                                   CASE(a_synchronous_list_waits),
                                   CASE(bad_appends_are_refused),
                                   CASE(dead_handles_are_recognised),
                                   CASE(a_list_is_destroyed_with_work),
                                   CASE(regular_lists_are_executed_many_times),
                                   CASE(a_queue_waits_for_events),
                                   CASE(a_command_waits_for_all_its_events),
                                   CASE(a_queue_is_destroyed_with_work),
                                   CASE(lists_go_to_their_own_kind_of_queue),
                                   CASE(regions_are_copied),
                                   CASE(timestamps_are_those_of_the_device),
                                   CASE(four_threads_hand_a_value_round),
                                   CASE(a_signal_wakes_all_who_wait),
                                   CASE(what_is_there_is_listed),
                                   CASE(counters_need_no_reset),
                                   CASE(counters_count_executions),
                                   CASE(counters_stand_for_the_last_execution),
                                   CASE(a_blocking_free_waits_for_who_uses_the_block),
#if HAS_API_1_12
                                   CASE(newer_functions_answer),
#endif
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    int status;

    (void)alarm(100); /* a wait that is never woken is a failure, too */
    start();
    status = plain_main(argc, argv, cases);
    stop();
    return status;
}
