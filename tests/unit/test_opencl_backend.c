/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The OpenCL backend through its table alone, on the first device that the environment gives: what
 * usm/backend.h promises, and what drivers get wrong and the backend hides.  Skips, with its reason,
 * where there is no module, loader or device; on a driver that runs without its GPU (capture mode)
 * only what needs no command runs.
 *
 * The module is $USM_PLUGIN_PATH/libusm_backend_opencl.so.  The SPIR-V module made of opencl_backend.cl
 * is the file USM_TEST_SPV (a definition, or a variable of the environment). */
#include "module_api.h"

#include "backends/opencl/opencl.h"

#include <dlfcn.h>
#include <stdint.h>

#ifndef USM_TEST_SPV
#define USM_TEST_SPV ""
#endif

enum { DEVICES = 8, N = 4096 };

/* Of our own copy of status.c; the module has one of its own. */
const usm_host_api *ocl_host;

static const usm_backend_ops *ops;
static usm_backend_device     devices[DEVICES];
static size_t                 ndevices;
static usm_backend_device    *dev;
static bool                   is_capture; /* commands complete and do nothing, or crash */
static void                  *native_library;

/* --- helpers --------------------------------------------------------------------------------- */

static bool has(usm_aspect aspect)
{
    return dev->aspects >> aspect & 1;
}

static usm_aspect aspect_of(usm_kind kind)
{
    return kind == USM_HOST     ? USM_ASPECT_USM_HOST_ALLOCATIONS
           : kind == USM_DEVICE ? USM_ASPECT_USM_DEVICE_ALLOCATIONS
                                : USM_ASPECT_USM_SHARED_ALLOCATIONS;
}

static void *context_of(size_t n, usm_backend_device *list)
{
    void *handles[DEVICES];
    void *ctx = NULL;

    for (size_t i = 0; i < n; i++)
        handles[i] = list[i].handle;
    CHECK_INT(ops->context_create(n, handles, &ctx), USM_OK);
    return ctx;
}

/* Memory the host may look at, with the device given: what nearly every case works on. */
static void *allocate_in(void *ctx, usm_kind kind, size_t size)
{
    void *p = NULL;

    CHECK_INT(ops->mem_alloc(ctx, kind == USM_HOST ? NULL : dev->handle, kind, size, 128, &p), USM_OK);
    CHECK(p != NULL);
    return p;
}

/* One context and queue; the case's own, closed by its end. */
static void *ctx, *q;

static void open_with(uint32_t flags)
{
    module_start();
    ctx = context_of(1, dev);
    CHECK_INT(ops->queue_create(ctx, dev->handle, flags, &q), USM_OK);
}

static void close_all(void)
{
    ops->queue_destroy(q);
    ops->context_destroy(ctx);
    module_clean();
}

static void needs_commands(void)
{
    if (is_capture)
        SKIP("the driver has no device behind it: commands do nothing");
    if (!has(USM_ASPECT_USM_HOST_ALLOCATIONS) || !has(USM_ASPECT_USM_SHARED_ALLOCATIONS))
        SKIP("the device has no host or shared memory");
}

static void needs_text(void)
{
    needs_commands();
    if (!has(USM_ASPECT_IMAGE_OPENCL_C))
        SKIP("the device has no compiler for OpenCL C");
}

static void *user_event(void)
{
    void *ev = NULL;

    CHECK_INT(ops->event_create_user(ctx, &ev), USM_OK);
    return ev;
}

static void *copy_after(void *dst, const void *src, size_t n, size_t ndeps, void *const *deps)
{
    void *ev = NULL;

    CHECK_INT(ops->copy(q, dst, src, n, ndeps, deps, &ev), USM_OK);
    return ev;
}

static void finish(void *ev)
{
    CHECK_INT(ops->event_wait(ev), USM_OK);
    CHECK_INT(ops->event_query(ev), USM_OK);
    ops->event_release(ev);
}

/* --- statuses, entry, devices -------------------------------------------------------------------- */

static void codes_of_the_driver_have_their_status(void)
{
    static const struct {
        cl_int     code;
        usm_status status;
    } table[] = {
        {CL_SUCCESS, USM_OK},
        {CL_MEM_OBJECT_ALLOCATION_FAILURE, USM_E_NO_MEMORY},
        {CL_OUT_OF_RESOURCES, USM_E_NO_MEMORY},
        {CL_OUT_OF_HOST_MEMORY, USM_E_NO_MEMORY},
        {CL_INVALID_BUFFER_SIZE, USM_E_SIZE},
        {CL_DEVICE_NOT_AVAILABLE, USM_E_DEVICE_LOST},
        {-1121, USM_E_DEVICE_LOST},
        {-9999, USM_E_DEVICE_LOST},
        {CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, USM_E_DEPENDENCY},
        {CL_BUILD_PROGRAM_FAILURE, USM_E_BUILD},
        {CL_INVALID_KERNEL_NAME, USM_E_NO_KERNEL},
        {CL_INVALID_ARG_INDEX, USM_E_ARGUMENTS},
        {CL_INVALID_ARG_VALUE, USM_E_ARGUMENTS},
        {CL_INVALID_ARG_SIZE, USM_E_ARGUMENTS},
        {CL_INVALID_KERNEL_ARGS, USM_E_ARGUMENTS},
        {CL_INVALID_WORK_GROUP_SIZE, USM_E_INVALID},
        {CL_INVALID_OPERATION, USM_E_NOT_SUPPORTED},
        {CL_MAP_FAILURE, USM_E_DEVICE},
        {-424242, USM_E_DEVICE},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        CHECK_INT(native_to_status(table[i].code), table[i].status);
    CHECK_STR(ocl_error_name(CL_OUT_OF_RESOURCES), "CL_OUT_OF_RESOURCES");
    CHECK_INT(ocl_execution_status(-1), USM_E_DEPENDENCY);
    CHECK_INT(ocl_fail(CL_OUT_OF_RESOURCES, "clFlush"), USM_E_NO_MEMORY);
    CHECK_IN("clFlush failed: CL_OUT_OF_RESOURCES (-5)", usm_last_error());
}

static void another_abi_is_refused_with_a_story(void)
{
    usm_backend_entry_fn *entry;
    usm_host_api          other = module_api;
    void                 *symbol = dlsym(native_library, "usm_backend_entry");

    memcpy(&entry, &symbol, sizeof(entry));
    other.abi = USM_MODULE_ABI + 1;
    CHECK(entry(&other) == NULL);
    CHECK_IN("ABI", usm_last_error());
    CHECK(entry(&module_api) == ops);
}

static void devices_are_described_and_stay_the_same(void)
{
    usm_backend_device again[DEVICES];
    size_t             n = 0;

    CHECK_INT(ops->devices(again, DEVICES, &n), USM_OK);
    CHECK_INT(n, ndevices);
    CHECK_INT(memcmp(again, devices, n * sizeof(again[0])), 0);
    CHECK_INT(ops->devices(NULL, 0, &n), USM_OK);
    CHECK_INT(n, ndevices);
    CHECK(dev->handle && dev->platform);
    CHECK(dev->name[0] > ' ' && dev->platform_name[0] > ' ' && dev->driver_version[0] > ' ');
    CHECK(dev->compute_units > 0 && dev->memory_size > 0 && dev->max_alloc_size > 0);
    CHECK(dev->max_work_group_size > 0 && dev->max_align == 128 && dev->max_fill_pattern == 128);
    CHECK(has(USM_ASPECT_CPU) + has(USM_ASPECT_GPU) + has(USM_ASPECT_ACCELERATOR) == 1);
    CHECK(has(USM_ASPECT_PARTITION) == (dev->sub_devices > 0));
}

static void memory_of_the_device_is_told(void)
{
    uint64_t total = 0, left = 0;

    CHECK_INT(ops->device_memory(dev->handle, &total, &left), USM_OK);
    CHECK(total == dev->memory_size && left > 0);
}

/* --- memory -------------------------------------------------------------------------------------- */

static void each_kind_is_given_aligned_or_refused_by_name(void)
{
    static const size_t sizes[] = {1, 4096, (1 << 20) + 3};

    open_with(0);
    for (usm_kind kind = USM_HOST; kind <= USM_SHARED; kind++)
        for (size_t align = 1; align <= 128; align *= 2)
            for (size_t i = 0; i < 3; i++) {
                void      *p = NULL;
                void      *d = kind == USM_HOST ? NULL : dev->handle;
                usm_status s = ops->mem_alloc(ctx, d, kind, sizes[i], align, &p);

                if (!has(aspect_of(kind))) {
                    CHECK_INT(s, USM_E_NOT_SUPPORTED);
                    CHECK(p == NULL);
                    continue;
                }
                CHECK_INT(s, USM_OK);
                CHECK(p != NULL && (uintptr_t)p % align == 0);
                if (kind != USM_DEVICE)
                    memset(p, 7, sizes[i]);
                CHECK_INT(ops->mem_free(ctx, kind, p, sizes[i]), USM_OK);
            }
    close_all();
}

static void too_much_memory_is_a_named_error(void)
{
    void      *p = NULL;
    usm_status s;

    open_with(0);
    for (usm_kind kind = USM_HOST; kind <= USM_SHARED; kind++) {
        void *d = kind == USM_HOST ? NULL : dev->handle;

        if (!has(aspect_of(kind)))
            continue;
        s = ops->mem_alloc(ctx, d, kind, SIZE_MAX / 2, 64, &p);
        CHECK(s == USM_E_SIZE || s == USM_E_NO_MEMORY);
        CHECK(p == NULL);
        s = ops->mem_alloc(ctx, d, kind, (size_t)dev->max_alloc_size + 4096, 64, &p);
        if (s == USM_E_SIZE)
            CHECK_IN("CL_DEVICE_MAX_MEM_ALLOC_SIZE", usm_last_error());
        else if (!s) /* Intel's GPUs know unrestricted sizes */
            CHECK_INT(ops->mem_free(ctx, kind, p, (size_t)dev->max_alloc_size + 4096), USM_OK);
        else
            CHECK_INT(s, USM_E_NO_MEMORY);
        printf("# kind %d, one page over the limit: %d\n", (int)kind, (int)s);
        p = NULL;
    }
    close_all();
}

/* --- copies and fills ------------------------------------------------------------------------------ */

static void copies_go_between_all_kinds_and_host_memory(void)
{
    unsigned char *places[4], in[N], out[N];

    needs_commands();
    open_with(0);
    for (usm_kind kind = USM_HOST; kind <= USM_SHARED; kind++)
        places[kind] = allocate_in(ctx, kind, N);
    places[0] = in;
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++) {
            if (from == to)
                continue;
            for (int i = 0; i < N; i++)
                in[i] = (unsigned char)(i * 7 + from * 4 + to);
            if (from)
                CHECK_INT(ops->copy(q, places[from], in, N, 0, NULL, NULL), USM_OK);
            if (to)
                CHECK_INT(ops->copy(q, places[to], places[from], N, 0, NULL, NULL), USM_OK);
            memset(out, 0, N);
            finish(copy_after(out, places[to ? to : from], N, 0, NULL));
            CHECK_INT(memcmp(in, out, N), 0);
        }
    for (usm_kind kind = USM_HOST; kind <= USM_SHARED; kind++)
        CHECK_INT(ops->mem_free(ctx, kind, places[kind], N), USM_OK);
    close_all();
}

static void fills_take_all_patterns_of_a_power_of_two(void)
{
    needs_commands();
    open_with(0);
    for (usm_kind kind = USM_HOST; kind <= USM_SHARED; kind++) {
        unsigned char *p = allocate_in(ctx, kind, N), out[N], pattern[128];

        for (size_t size = 1; size <= 128; size *= 2) {
            for (size_t i = 0; i < size; i++)
                pattern[i] = (unsigned char)(i + size + (size_t)kind);
            CHECK_INT(ops->fill(q, p, pattern, size, N, 0, NULL, NULL), USM_OK);
            memset(pattern, 0, size); /* it was only ours to lend for the call */
            finish(copy_after(out, p, N, 0, NULL));
            for (size_t i = 0; i < N; i++)
                CHECK(out[i] == (unsigned char)(i % size + size + (size_t)kind));
        }
        CHECK_INT(ops->mem_free(ctx, kind, p, N), USM_OK);
    }
    close_all();
}

static void check_2d(size_t dst_pitch, size_t src_pitch, size_t width, size_t height)
{
    unsigned char *dst = allocate_in(ctx, USM_SHARED, dst_pitch * height);
    unsigned char *src = allocate_in(ctx, USM_HOST, src_pitch * height);
    void          *ev  = NULL;

    memset(dst, 0xee, dst_pitch * height);
    for (size_t i = 0; i < src_pitch * height; i++)
        src[i] = (unsigned char)(i % 251);
    CHECK_INT(ops->copy_2d(q, dst, dst_pitch, src, src_pitch, width, height, 0, NULL, &ev), USM_OK);
    finish(ev);
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < dst_pitch; x++)
            CHECK_INT(dst[y * dst_pitch + x], x < width ? (y * src_pitch + x) % 251 : 0xee);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, dst, 1), USM_OK);
    CHECK_INT(ops->mem_free(ctx, USM_HOST, src, 1), USM_OK);
}

static void rectangles_leave_what_is_between_their_rows(void)
{
    needs_commands();
    for (uint32_t flags = 0; flags < 2; flags++) {
        open_with(flags & USM_QUEUE_OUT_OF_ORDER);
        for (int rows = 0; rows < 2; rows++) {
            /* rows: as on devices that run no host functions */
            ((ocl_device *)dev->handle)->runs_native = !rows && has(USM_ASPECT_CPU);
            check_2d(64, 64, 64, 10);
            check_2d(100, 77, 33, 200);
            check_2d(33, 77, 33, 129);
            check_2d(100, 100, 1, 1);
            check_2d(65, 65, 64, 64);
        }
        ((ocl_device *)dev->handle)->runs_native = has(USM_ASPECT_CPU);
        close_all();
    }
}

static void hints_complete_whatever_the_driver_says(void)
{
    char *p;
    void *ev = NULL;

    needs_commands();
    open_with(0);
    p = allocate_in(ctx, USM_SHARED, N);
    memset(p, 5, N);
    CHECK_INT(ops->prefetch(q, p + 100, 50, 0, NULL, &ev), USM_OK);
    finish(ev);
    for (int advice = USM_ADVICE_DEFAULT; advice <= USM_ADVICE_NO_PREFERRED_LOCATION; advice++) {
        CHECK_INT(ops->advise(q, p, N, (usm_advice)advice, 0, NULL, &ev), USM_OK);
        finish(ev);
    }
    CHECK_INT(p[0], 5);
    CHECK_INT(p[120], 5);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
    close_all();
}

/* --- order ------------------------------------------------------------------------------------------- */

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
        for (int i = 0; i < 5000 && p[16 + 8] != 'h'; i++)
            module_sleep_ms(1);
        CHECK_STR(p + 16, "in flight");
        ops->event_release(gate);
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
        ops->context_destroy(ctx);
        module_clean();
    }
}

/* --- failures ------------------------------------------------------------------------------------------ */

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

/* --- notices, threads, times ------------------------------------------------------------------------------ */

static struct {
    atomic_int calls, last;
} told;

static void on_done(void *arg, usm_status status)
{
    CHECK(arg == &told);
    atomic_store(&told.last, (int)status);
    atomic_fetch_add(&told.calls, 1);
}

static void expect_told(int calls, usm_status status)
{
    for (int i = 0; i < 10000 && atomic_load(&told.calls) < calls; i++)
        module_sleep_ms(1);
    module_sleep_ms(2);
    CHECK_INT(atomic_load(&told.calls), calls);
    CHECK_INT(atomic_load(&told.last), status);
}

static void everybody_is_told_once(void)
{
    char *p;
    void *gate, *ev, *bad, *fails;

    needs_commands();
    open_with(0);
    told.calls = 0;
    told.last  = 1;
    p          = allocate_in(ctx, USM_SHARED, N);
    gate       = user_event();
    ev         = copy_after(p, "x", 2, 1, &gate);
    CHECK_INT(ops->event_notify(gate, on_done, &told), USM_OK);
    CHECK_INT(ops->event_notify(ev, on_done, &told), USM_OK);
    CHECK_INT(ops->event_notify(ev, on_done, &told), USM_OK);
    module_sleep_ms(10);
    CHECK_INT(atomic_load(&told.calls), 0);
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
    expect_told(3, USM_OK);
    CHECK_INT(ops->event_notify(ev, on_done, &told), USM_OK); /* it is long done */
    expect_told(4, USM_OK);
    CHECK_INT(ops->event_notify(gate, on_done, &told), USM_OK);
    expect_told(5, USM_OK);
    bad   = user_event();
    fails = copy_after(p, "x", 2, 1, &bad);
    CHECK_INT(ops->event_notify(fails, on_done, &told), USM_OK);
    CHECK_INT(ops->event_signal(bad, USM_E_DEVICE), USM_OK);
    expect_told(6, USM_E_DEPENDENCY);
    CHECK_INT(ops->event_notify(bad, on_done, &told), USM_OK);
    expect_told(7, USM_E_DEVICE);
    ops->event_release(bad);
    ops->event_release(fails);
    bad = user_event();
    CHECK_INT(ops->event_notify(bad, on_done, &told), USM_OK);
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

enum { THREADS = 4, ROUNDS = 100 };

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
    p  = allocate_in(ctx, USM_SHARED, 1 << 20);
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

/* --- programs and kernels ------------------------------------------------------------------------------------ */

static const char source[] =
    "kernel void add(global int *a, int n) { a[get_global_id(0)] += n; }\n"
    "kernel void ids(global int *a, constant int *c, local int *l, int4 v) {\n"
    "    l[get_local_id(0)] = c ? c[0] : v.y;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    size_t w = get_global_size(0);\n"
    "    a[(get_global_id(1) - get_global_offset(1)) * w + get_global_id(0) - get_global_offset(0)] =\n"
    "        get_global_id(0) * 1000 + get_global_id(1) + l[0] * SCALE; }\n"
    "typedef struct { global int *p; int n; } box;\n"
    "kernel void unbox(global box *b) { b->p[get_global_id(0)] = b->n; }\n";

static void *build(usm_image_type type, const void *data, size_t size, const char *options)
{
    usm_image  image   = {type, data, size};
    char      *log     = NULL;
    void      *program = NULL;
    usm_status s       = ops->program_build(ctx, dev->handle, &image, options, &log, &program);

    if (s)
        printf("# %s\n# %s\n", usm_last_error(), log ? log : "no log");
    module_heap_free(log);
    CHECK_INT(s, USM_OK);
    return program;
}

static void *build_text(void)
{
    return build(USM_IMAGE_OPENCL_C, source, sizeof(source) - 1, "-DSCALE=100000");
}

static void *kernel_of(void *program, const char *name)
{
    void *k = NULL;

    CHECK_INT(ops->kernel_create(program, name, &k), USM_OK);
    return k;
}

static usm_launch launch_of(size_t n, usm_arg *args, size_t nargs)
{
    usm_launch l = USM_LAUNCH_INIT;

    l.global[0] = n;
    l.args      = args;
    l.nargs     = nargs;
    return l;
}

static void check_add(void *program)
{
    int       *a = allocate_in(ctx, USM_SHARED, N * sizeof(int)), n = 3;
    void      *k      = kernel_of(program, "add"), *ev = NULL;
    usm_arg    args[] = {USM_ARG_PTR(a), USM_ARG_VAL(n)};
    usm_launch l      = launch_of(N, args, 2);

    for (int i = 0; i < N; i++)
        a[i] = i;
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, NULL), USM_OK);
    n             = 4; /* arguments were copied */
    args[0].value = a + 10;
    l.global[0]   = 5;
    l.local[0]    = 5;
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_OK);
    finish(ev);
    for (int i = 0; i < N; i++)
        CHECK_INT(a[i], i + 3 + (i >= 10 && i < 15 ? 4 : 0));
    ops->kernel_destroy(k);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, N), USM_OK);
}

static void text_is_built_and_runs(void)
{
    void *program;
    char *names = NULL;

    needs_text();
    open_with(0);
    program = build_text();
    CHECK_INT(ops->program_kernels(program, &names), USM_OK);
    CHECK_IN("add", names);
    CHECK_IN("ids", names);
    CHECK_IN(";", names);
    module_heap_free(names);
    check_add(program);
    ops->program_destroy(program);
    close_all();
}

static void a_kernel_outlives_its_program(void)
{
    int       *a, n = 2;
    void      *program, *k, *ev = NULL;
    usm_launch l;

    needs_text();
    open_with(0);
    program = build_text();
    k       = kernel_of(program, "add");
    ops->program_destroy(program);
    a = allocate_in(ctx, USM_SHARED, 64);
    memset(a, 0, 64);
    usm_arg args[] = {USM_ARG_PTR(a), USM_ARG_VAL(n)};

    l = launch_of(16, args, 2);
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_OK);
    ops->kernel_destroy(k);
    finish(ev);
    CHECK_INT(a[15], 2);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 64), USM_OK);
    close_all();
}

static void a_launch_has_dimensions_offsets_and_local_memory(void)
{
    struct {
        int v[4];
    } v = {{1, 2, 3, 4}};
    int       *a, *c;
    void      *program, *k, *ev = NULL;
    usm_launch l;

    needs_text();
    open_with(0);
    program = build_text();
    k       = kernel_of(program, "ids");
    a       = allocate_in(ctx, USM_SHARED, 12 * 6 * sizeof(int));
    c       = allocate_in(ctx, USM_HOST, sizeof(int));
    c[0]    = 9;
    usm_arg args[] = {USM_ARG_PTR(a), USM_ARG_PTR(c), USM_ARG_SCRATCH(4 * 3 * sizeof(int)),
                      USM_ARG_VAL(v)};

    for (int with_null = 0; with_null < 2; with_null++) {
        l             = launch_of(12, args, 4);
        args[1].value = with_null ? NULL : c;
        l.dims        = 2;
        l.global[1]   = 6;
        l.offset[0]   = 7;
        l.offset[1]   = 5;
        l.local[0]    = 4;
        l.local[1]    = 3;
        CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_OK);
        finish(ev);
        for (int y = 0; y < 6; y++)
            for (int x = 0; x < 12; x++)
                CHECK_INT(a[y * 12 + x],
                          (x + 7) * 1000 + y + 5 + (with_null ? 2 : 9) * 100000);
    }
    ops->kernel_destroy(k);
    ops->program_destroy(program);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 12), USM_OK);
    CHECK_INT(ops->mem_free(ctx, USM_HOST, c, 4), USM_OK);
    close_all();
}

static void kinds_of_arguments_are_known(void)
{
    static const usm_arg_kind expected[] = {USM_ARG_POINTER, USM_ARG_POINTER, USM_ARG_LOCAL,
                                            USM_ARG_VALUE};
    usm_arg_kind              kinds[4]   = {USM_ARG_NONE};
    size_t                    n          = 0;
    void                     *program, *k;

    if (!has(USM_ASPECT_IMAGE_OPENCL_C))
        SKIP("the device has no compiler for OpenCL C");
    open_with(0);
    program = build_text();
    k       = kernel_of(program, "ids");
    CHECK_INT(ops->kernel_info(k, &n, kinds, 3), USM_OK);
    CHECK_INT(n, 4);
    CHECK_INT(kinds[3], USM_ARG_NONE); /* beyond cap */
    CHECK_INT(ops->kernel_info(k, &n, kinds, 4), USM_OK);
    CHECK_INT(memcmp(kinds, expected, sizeof(kinds)), 0);
    ops->kernel_destroy(k);
    ops->program_destroy(program);
    close_all();
}

static void wrong_launches_are_named(void)
{
    int64_t    big = 1;
    int       *a, n = 1;
    void      *program, *k, *ev = NULL;
    usm_launch l;

    needs_text();
    open_with(0);
    program = build_text();
    k       = kernel_of(program, "add");
    a       = allocate_in(ctx, USM_SHARED, 64);
    usm_arg good[] = {USM_ARG_PTR(a), USM_ARG_VAL(n), USM_ARG_VAL(n)};
    usm_arg size[] = {USM_ARG_PTR(a), USM_ARG_VAL(big)};
    usm_arg kind[] = {USM_ARG_PTR(a), USM_ARG_PTR(a)};

    l = launch_of(16, good, 3); /* one too many */
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_E_ARGUMENTS);
    CHECK_IN("argument 2 of kernel \"add\"", usm_last_error());
    l = launch_of(16, size, 2);
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_E_ARGUMENTS);
    CHECK_IN("argument 1", usm_last_error());
    l = launch_of(16, kind, 2);
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_E_ARGUMENTS);
    l = launch_of(1 << 20, good, 2);
    l.local[0] = 1 << 20; /* more than any device has */
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_E_INVALID);
    CHECK(ev == NULL);
    CHECK_INT(ops->kernel_create(program, "nope", &k), USM_E_NO_KERNEL);
    CHECK_IN("nope", usm_last_error());
    ops->kernel_destroy(k);
    ops->program_destroy(program);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 64), USM_OK);
    close_all();
}

static void a_program_that_does_not_compile_says_why(void)
{
    static const char bad[]   = "kernel void f(global int *a) { a[0] = undeclared_name; }";
    usm_image         image   = {USM_IMAGE_OPENCL_C, bad, sizeof(bad) - 1};
    char             *log     = NULL;
    void             *program = NULL;

    if (!has(USM_ASPECT_IMAGE_OPENCL_C))
        SKIP("the device has no compiler for OpenCL C");
    open_with(0);
    CHECK_INT(ops->program_build(ctx, dev->handle, &image, NULL, &log, &program), USM_E_BUILD);
    CHECK(program == NULL);
    CHECK_IN("undeclared_name", log);
    CHECK_IN("undeclared_name", usm_last_error());
    module_heap_free(log);
    log   = NULL;
    image = (usm_image){USM_IMAGE_NATIVE, bad, 8};
    CHECK_INT(ops->program_build(ctx, dev->handle, &image, NULL, &log, &program), USM_E_NO_IMAGE);
    image = (usm_image){USM_IMAGE_BINARY, bad, sizeof(bad)};
    CHECK_INT(ops->program_build(ctx, dev->handle, &image, NULL, &log, &program), USM_E_BUILD);
    CHECK(program == NULL);
    module_heap_free(log);
    close_all();
}

static void a_binary_comes_back_as_the_same_program(void)
{
    void        *program, *again, *data = NULL, *k;
    usm_arg_kind kinds[2];
    size_t       size = 0, n = 0;

    needs_text();
    open_with(0);
    program = build_text();
    CHECK_INT(ops->program_binary(program, &data, &size), USM_OK);
    CHECK(size > 0);
    again = build(USM_IMAGE_BINARY, data, size, NULL);
    k     = kernel_of(again, "add");
    CHECK_INT(ops->kernel_info(k, &n, kinds, 2), USM_OK);
    CHECK_INT(n, 2);
    printf("# kinds from a binary: %d %d\n", (int)kinds[0], (int)kinds[1]);
    ops->kernel_destroy(k);
    check_add(again);
    module_heap_free(data);
    ops->program_destroy(again);
    ops->program_destroy(program);
    close_all();
}

static void spir_v_is_built_and_runs(void)
{
    static char  data[1 << 16];
    const char  *path = USM_TEST_SPV[0] ? USM_TEST_SPV : getenv("USM_TEST_SPV");
    usm_image    image = {USM_IMAGE_SPIRV, data, 0};
    usm_arg_kind kinds[3];
    FILE        *file;
    void        *program = NULL, *k, *ev = NULL;
    char        *log = NULL;
    int         *in, *out;
    size_t       n = 0;

    if (!path || !(file = fopen(path, "rbe")))
        SKIP("no SPIR-V module was made (clang and llvm-spirv)");
    image.size = fread(data, 1, sizeof(data), file);
    (void)fclose(file);
    if (!has(USM_ASPECT_IMAGE_SPIRV)) {
        open_with(0);
        CHECK_INT(ops->program_build(ctx, dev->handle, &image, NULL, &log, &program),
                  USM_E_NO_IMAGE);
        close_all();
        return;
    }
    needs_commands();
    open_with(0);
    program = build(USM_IMAGE_SPIRV, data, image.size, "-DIGNORED=1");
    check_add(program);
    k = kernel_of(program, "sum");
    CHECK_INT(ops->kernel_info(k, &n, kinds, 3), USM_OK);
    CHECK_INT(n, 3);
    printf("# kinds from SPIR-V: %d %d %d\n", (int)kinds[0], (int)kinds[1], (int)kinds[2]);
    in  = allocate_in(ctx, USM_SHARED, 64 * sizeof(int));
    out = allocate_in(ctx, USM_SHARED, 4 * sizeof(int));
    for (int i = 0; i < 64; i++)
        in[i] = i;
    usm_arg    args[] = {USM_ARG_PTR(in), USM_ARG_PTR(out), USM_ARG_SCRATCH(16 * sizeof(int))};
    usm_launch l      = launch_of(64, args, 3);

    l.local[0] = 16;
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_OK);
    finish(ev);
    for (int g = 0; g < 4; g++)
        CHECK_INT(out[g], 16 * (16 * g) + 120);
    data[0] ^= 1; /* no magic number, no module */
    CHECK_INT(ops->program_build(ctx, dev->handle, &image, NULL, &log, &program), USM_E_BUILD);
    module_heap_free(log);
    ops->kernel_destroy(k);
    ops->program_destroy(program);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, in, 1), USM_OK);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, out, 1), USM_OK);
    close_all();
}

static void pointers_inside_memory_are_reached(void)
{
    struct {
        int *p;
        int  n;
    } *box;
    int       *a;
    void      *program, *k, *ev = NULL;
    usm_launch l;

    needs_text();
    open_with(0);
    program = build_text();
    k       = kernel_of(program, "unbox");
    a       = allocate_in(ctx, USM_SHARED, 64);
    box     = allocate_in(ctx, USM_HOST, sizeof(*box));
    usm_arg     args[] = {USM_ARG_PTR(box)};
    const void *list[] = {a + 1};

    for (int way = 0; way < 4; way++) { /* the list, all of a kind, both, none again */
        box->p           = a;
        box->n           = way + 5;
        l                = launch_of(16, args, 1);
        l.indirect_kinds = way & 1 ? USM_INDIRECT_SHARED | USM_INDIRECT_HOST : 0;
        l.indirect       = list;
        l.nindirect      = way == 0 || way == 3 ? 1 : 0;
        CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_OK);
        finish(ev);
        CHECK_INT(a[15], way + 5);
    }
    ops->kernel_destroy(k);
    ops->program_destroy(program);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 1), USM_OK);
    CHECK_INT(ops->mem_free(ctx, USM_HOST, box, 1), USM_OK);
    close_all();
}

static void held_launches_keep_their_own_arguments(void)
{
    int  *a;
    void *program, *k, *gate, *ev = NULL;

    needs_text();
    open_with(0);
    program = build_text();
    k       = kernel_of(program, "add");
    a       = allocate_in(ctx, USM_SHARED, 32 * sizeof(int));
    memset(a, 0, 32 * sizeof(int));
    gate = user_event();
    for (int i = 0; i < 32; i++) { /* more than there are idle instances */
        usm_arg    args[] = {USM_ARG_PTR(a + i), USM_ARG_VAL(i)};
        usm_launch l      = launch_of(1, args, 2);

        if (ev)
            ops->event_release(ev);
        CHECK_INT(ops->launch(q, k, &l, i == 0, &gate, &ev), USM_OK);
    }
    ops->kernel_destroy(k);
    ops->program_destroy(program);
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
    finish(ev);
    for (int i = 0; i < 32; i++)
        CHECK_INT(a[i], i);
    finish(gate);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 1), USM_OK);
    close_all();
}

static struct {
    void      *kernel;
    int       *a;
    atomic_int next;
} shared_kernel;

static void *launch_in_thread(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        int        n      = atomic_fetch_add(&shared_kernel.next, 1);
        usm_arg    args[] = {USM_ARG_PTR(shared_kernel.a + n), USM_ARG_VAL(n)};
        usm_launch l      = launch_of(1, args, 2);

        CHECK_INT(ops->launch(q, shared_kernel.kernel, &l, 0, NULL, NULL), USM_OK);
    }
    return NULL;
}

static void threads_share_a_kernel(void)
{
    pthread_t threads[THREADS];
    void     *program;

    needs_text();
    open_with(USM_QUEUE_OUT_OF_ORDER);
    program              = build_text();
    shared_kernel.kernel = kernel_of(program, "add");
    shared_kernel.a      = allocate_in(ctx, USM_SHARED, THREADS * ROUNDS * sizeof(int));
    shared_kernel.next   = 0;
    memset(shared_kernel.a, 0, THREADS * ROUNDS * sizeof(int));
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, launch_in_thread, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(ops->queue_wait(q), USM_OK);
    for (int i = 0; i < THREADS * ROUNDS; i++)
        CHECK_INT(shared_kernel.a[i], i);
    ops->kernel_destroy(shared_kernel.kernel);
    ops->program_destroy(program);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, shared_kernel.a, 1), USM_OK);
    close_all();
}

/* --- parts --------------------------------------------------------------------------------------------------- */

static void parts_are_devices_of_their_own(void)
{
    usm_backend_device parts[64], again[64], *whole = dev;
    size_t             n = 0, m = 0;
    char              *p;
    void              *program, *binary = NULL;
    size_t             size = 0;

    CHECK_INT(ops->sub_devices(dev->handle, parts, 64, &n), USM_OK);
    CHECK_INT(n, dev->sub_devices);
    if (n == 0)
        SKIP("the device cannot be cut");
    CHECK_INT(ops->sub_devices(dev->handle, again, 64, &m), USM_OK);
    CHECK(n == m && memcmp(parts, again, n * sizeof(parts[0])) == 0);
    CHECK(parts[0].handle != parts[1].handle && parts[0].handle != dev->handle);
    CHECK(parts[0].platform == dev->platform && !parts[0].has_uuid && !parts[0].has_pci);
    CHECK(parts[0].compute_units < dev->compute_units);
    needs_text();
    module_start();
    ctx = context_of(n < DEVICES ? n : DEVICES, parts);
    for (size_t i = 0; i < 2; i++) {
        dev = &parts[i];
        CHECK_INT(ops->queue_create(ctx, dev->handle, 0, &q), USM_OK);
        p = allocate_in(ctx, USM_SHARED, N);
        finish(copy_after(p, "part", 5, 0, NULL));
        CHECK_STR(p, "part");
        program = build_text();
        check_add(program);
        CHECK_INT(ops->program_binary(program, &binary, &size), USM_OK);
        ops->program_destroy(program);
        program = build(USM_IMAGE_BINARY, binary, size, NULL);
        check_add(program);
        ops->program_destroy(program);
        module_heap_free(binary);
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
        ops->queue_destroy(q);
    }
    ops->context_destroy(ctx);
    dev = whole;
    module_clean();
}

/* --- native handles ------------------------------------------------------------------------------------------------ */

static struct {
    __typeof__(&clRetainContext)     retain_context;
    __typeof__(&clReleaseContext)    release_context;
    __typeof__(&clGetContextInfo)    context_info;
    __typeof__(&clRetainCommandQueue) retain_queue;
    __typeof__(&clCreateUserEvent)   user_event;
    __typeof__(&clSetUserEventStatus) set_status;
    __typeof__(&clGetEventInfo)      event_info;
    __typeof__(&clReleaseEvent)      release_event;
} native;

static void native_load(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    void *f;

    CHECK(library != NULL);
#define NATIVE(member, name)                                                                       \
    CHECK((f = dlsym(library, #name)) != NULL), memcpy(&native.member, &f, sizeof(f))
    NATIVE(retain_context, clRetainContext);
    NATIVE(release_context, clReleaseContext);
    NATIVE(context_info, clGetContextInfo);
    NATIVE(retain_queue, clRetainCommandQueue);
    NATIVE(user_event, clCreateUserEvent);
    NATIVE(set_status, clSetUserEventStatus);
    NATIVE(event_info, clGetEventInfo);
    NATIVE(release_event, clReleaseEvent);
#undef NATIVE
}

static cl_uint context_refs(cl_context c)
{
    cl_uint n = 0;

    CHECK_INT(native.context_info(c, CL_CONTEXT_REFERENCE_COUNT, sizeof(n), &n, NULL), CL_SUCCESS);
    return n;
}

static void a_native_context_is_borrowed_or_taken(void)
{
    usm_backend_device list[2];
    void              *native_ctx = NULL, *other = NULL, *p, *wrong = &list;
    cl_device_id       id;
    size_t             n = 0;
    cl_uint            refs;

    open_with(0);
    native_load();
    CHECK_INT(ops->context_native(ctx, &native_ctx), USM_OK);
    refs = context_refs(native_ctx);
    CHECK_INT(ops->context_from_native(native_ctx, 0, NULL, USM_KEEP, &other, list, 2, &n), USM_OK);
    CHECK_INT(n, 1);
    CHECK(list[0].handle == dev->handle);
    CHECK_INT(context_refs(native_ctx), refs + 1);
    if (has(USM_ASPECT_USM_SHARED_ALLOCATIONS)) {
        p = allocate_in(other, USM_SHARED, N);
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK); /* it is one context */
    }
    ops->context_destroy(other);
    CHECK_INT(context_refs(native_ctx), refs);
    native.retain_context(native_ctx);
    CHECK_INT(native.context_info(native_ctx, CL_CONTEXT_DEVICES, sizeof(id), &id, NULL), 0);
    wrong = dev->handle; /* a pointer, but no device of the context */
    other = NULL;
    CHECK_INT(ops->context_from_native(native_ctx, 1, &wrong, USM_TRANSFER, &other, list, 2, &n),
              USM_E_INVALID);
    CHECK(other == NULL);
    CHECK_INT(context_refs(native_ctx), refs + 1); /* still the caller's */
    wrong = id;
    CHECK_INT(ops->context_from_native(native_ctx, 1, &wrong, USM_TRANSFER, &other, list, 2, &n),
              USM_OK);
    CHECK_INT(context_refs(native_ctx), refs + 1);
    ops->context_destroy(other);
    CHECK_INT(context_refs(native_ctx), refs);
    close_all();
}

static void a_native_queue_and_event_are_borrowed(void)
{
    void    *native_q = NULL, *native_ev = NULL, *mine, *other_ctx, *ev, *borrowed, *d = NULL;
    uint32_t flags = 0;
    char    *p;

    needs_commands();
    open_with(USM_QUEUE_PROFILING);
    native_load();
    CHECK_INT(ops->queue_native(q, &native_q), USM_OK);
    CHECK_INT(ops->queue_from_native(ctx, native_q, USM_KEEP, &mine, &d, &flags), USM_OK);
    CHECK(d == dev->handle);
    CHECK_INT(flags, USM_QUEUE_PROFILING);
    p = allocate_in(ctx, USM_SHARED, N);
    CHECK_INT(ops->copy(mine, p, "borrowed", 9, 0, NULL, &ev), USM_OK);
    CHECK_INT(ops->event_native(ev, &native_ev), USM_OK);
    CHECK_INT(ops->event_from_native(ctx, native_ev, USM_KEEP, &borrowed), USM_OK);
    ops->event_release(ev);
    finish(borrowed);
    CHECK_STR(p, "borrowed");
    other_ctx = context_of(1, dev);
    CHECK_INT(ops->queue_from_native(other_ctx, native_q, USM_KEEP, &mine, &d, &flags),
              USM_E_WRONG_CONTEXT);
    ops->context_destroy(other_ctx);
    ops->queue_destroy(mine);
    native.retain_queue(native_q);
    CHECK_INT(ops->queue_from_native(ctx, native_q, USM_TRANSFER, &mine, &d, &flags), USM_OK);
    ops->queue_destroy(mine);
    finish(copy_after(p, "alive", 6, 0, NULL));
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
    close_all();
}

static void user_events_have_native_shadows(void)
{
    void    *gate, *native_ev = NULL, *ctx_handle = NULL, *theirs, *ev, *after;
    cl_event foreign;
    cl_int   state = 0, err = 0;
    char    *p;

    needs_commands();
    open_with(0);
    native_load();
    p    = allocate_in(ctx, USM_SHARED, N);
    gate = user_event();
    CHECK_INT(ops->event_native(gate, &native_ev), USM_OK);
    ev = copy_after(p, "x", 2, 1, &gate);
    CHECK_INT(ops->event_native(ev, &native_ev), USM_E_NOT_READY);
    CHECK_INT(ops->event_native(gate, &native_ev), USM_OK);
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
    CHECK_INT(native.event_info(native_ev, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state,
                                NULL),
              CL_SUCCESS);
    CHECK_INT(state, CL_COMPLETE);
    finish(ev);
    ops->event_release(gate);
    /* The program's own user event gates ours. */
    CHECK_INT(ops->context_native(ctx, &ctx_handle), USM_OK);
    foreign = native.user_event(ctx_handle, &err);
    CHECK_INT(ops->event_from_native(ctx, foreign, USM_TRANSFER, &theirs), USM_OK);
    p[0]  = 0;
    after = copy_after(p, "y", 2, 1, &theirs);
    CHECK_INT(ops->event_query(after), USM_E_NOT_READY);
    CHECK_INT(native.set_status(foreign, CL_COMPLETE), CL_SUCCESS);
    finish(after);
    CHECK_STR(p, "y");
    ops->event_release(theirs);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
    close_all();
}

/* --- out of memory --------------------------------------------------------------------------------------------------- */

/* Contexts, queues, held and direct commands, notices, a program, a kernel, native handles. */
static usm_status scenario(void)
{
    usm_image  image = {USM_IMAGE_OPENCL_C, source, sizeof(source) - 1};
    int        n = 1;
    void      *c = NULL, *sq = NULL, *p = NULL, *gate = NULL, *ev[4] = {NULL}, *prog = NULL,
         *k = NULL, *bin = NULL, *two = NULL, *nc = NULL;
    usm_backend_device list[1];
    char      *log = NULL, *names = NULL;
    size_t     count = 0;
    usm_arg_kind kinds[2];
    usm_arg    args[2] = {USM_ARG_PTR(NULL), USM_ARG_VAL(n)};
    usm_launch l       = launch_of(4, args, 2);
    usm_status s;

#define TRY(call)                                                                                  \
    if ((s = (call)) != USM_OK)                                                                    \
    goto out
    TRY(ops->context_create(1, &dev->handle, &c));
    TRY(ops->queue_create(c, dev->handle, 0, &sq));
    TRY(ops->mem_alloc(c, dev->handle, USM_SHARED, N, 64, &p));
    args[0].value = p;
    TRY(ops->event_create_user(c, &gate));
    TRY(ops->copy(sq, p, "a", 2, 1, &gate, &ev[0]));
    TRY(ops->fill(sq, p, "a", 1, 16, 0, NULL, &ev[1]));
    TRY(ops->event_notify(ev[1], on_done, &told));
    TRY(ops->event_signal(gate, USM_OK));
    TRY(ops->program_build(c, dev->handle, &image, "-DSCALE=1", &log, &prog));
    TRY(ops->program_kernels(prog, &names));
    TRY(ops->program_binary(prog, &bin, &count));
    TRY(ops->kernel_create(prog, "add", &k));
    TRY(ops->kernel_info(k, &count, kinds, 2));
    TRY(ops->launch(sq, k, &l, 2, ev, &ev[2]));
    TRY(ops->copy_2d(sq, p, 32, (char *)p + 512, 48, 16, 5, 0, NULL, &ev[3]));
    TRY(ops->event_wait(ev[3]));
    TRY(ops->queue_wait(sq));
    TRY(ops->context_native(c, &nc));
    TRY(ops->context_from_native(nc, 0, NULL, USM_KEEP, &two, list, 1, &count));
out:
#undef TRY
    for (int i = 0; i < 4; i++)
        if (ev[i])
            ops->event_release(ev[i]);
    if (gate)
        ops->event_release(gate); /* unsignalled, it lets go what waits */
    if (two)
        ops->context_destroy(two);
    ops->kernel_destroy(k);
    ops->program_destroy(prog);
    module_heap_free(bin);
    module_heap_free(names);
    module_heap_free(log);
    if (sq) {
        (void)ops->queue_wait(sq);
        ops->queue_destroy(sq);
    }
    if (p)
        CHECK_INT(ops->mem_free(c, USM_SHARED, p, N), USM_OK);
    if (c)
        ops->context_destroy(c);
    return s;
}

static void an_exhausted_heap_is_an_ordinary_answer(void)
{
    uint64_t failures = 0;

    needs_text();
    for (uint64_t n = 1; n < 1000; n++) {
        usm_status s;

        module_start();
        CHECK(usm__fault_arm("heap.alloc", n, false, USM_OK));
        s = scenario();
        usm__fault_disarm_all();
        module_clean();
        if (s == USM_OK && failures > 0 && n > 60)
            break;
        if (s != USM_OK) {
            CHECK_INT(s, USM_E_NO_MEMORY);
            failures++;
        }
    }
    printf("# %llu allocations failed in turn\n", (unsigned long long)failures);
    CHECK(failures > 20);
}

/* --------------------------------------------------------------------------------------------------------------------- */

static const plain_case cases[] = {
    CASE(codes_of_the_driver_have_their_status),
    CASE(another_abi_is_refused_with_a_story),
    CASE(devices_are_described_and_stay_the_same),
    CASE(memory_of_the_device_is_told),
    CASE(each_kind_is_given_aligned_or_refused_by_name),
    CASE(too_much_memory_is_a_named_error),
    CASE(copies_go_between_all_kinds_and_host_memory),
    CASE(fills_take_all_patterns_of_a_power_of_two),
    CASE(rectangles_leave_what_is_between_their_rows),
    CASE(hints_complete_whatever_the_driver_says),
    CASE(in_order_commands_wait_behind_a_gate),
    CASE(out_of_order_commands_pass_a_gate_but_not_a_barrier),
    CASE(commands_of_one_queue_wait_for_another),
    CASE(a_queue_destroyed_with_gated_work_finishes_it),
    CASE(a_failed_gate_fails_what_waits_and_nothing_else),
    CASE(a_barrier_behind_a_failure_still_orders),
    CASE(a_gate_nobody_can_open_fails_its_dependents),
    CASE(an_event_is_signalled_once),
    CASE(everybody_is_told_once),
    CASE(a_waiter_sleeps_until_the_gate_opens),
    CASE(threads_share_a_queue),
    CASE(times_are_in_order),
    CASE(text_is_built_and_runs),
    CASE(a_kernel_outlives_its_program),
    CASE(a_launch_has_dimensions_offsets_and_local_memory),
    CASE(kinds_of_arguments_are_known),
    CASE(wrong_launches_are_named),
    CASE(a_program_that_does_not_compile_says_why),
    CASE(a_binary_comes_back_as_the_same_program),
    CASE(spir_v_is_built_and_runs),
    CASE(pointers_inside_memory_are_reached),
    CASE(held_launches_keep_their_own_arguments),
    CASE(threads_share_a_kernel),
    CASE(parts_are_devices_of_their_own),
    CASE(a_native_context_is_borrowed_or_taken),
    CASE(a_native_queue_and_event_are_borrowed),
    CASE(user_events_have_native_shadows),
    CASE(an_exhausted_heap_is_an_ordinary_answer),
    {NULL, NULL},
};

static const char *load(void)
{
    usm_backend_entry_fn *entry;
    const char           *folder = getenv("USM_PLUGIN_PATH");
    char                  path[1024];
    void                 *symbol;

    if (!folder)
        return "USM_PLUGIN_PATH names no folder of modules";
    (void)snprintf(path, sizeof(path), "%.900s/libusm_backend_opencl.so", folder);
    native_library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!native_library)
        return dlerror();
    symbol = dlsym(native_library, "usm_backend_entry");
    if (!symbol)
        return "the module has no entry";
    memcpy(&entry, &symbol, sizeof(entry));
    ops = entry(&module_api);
    return ops ? NULL : usm_last_error();
}

int main(int argc, char **argv)
{
    const char *why = load();
    size_t      n   = 0;

    if (!why && (ops->devices(devices, DEVICES, &ndevices) || ndevices == 0))
        why = "there is no OpenCL device";
    if (why) {
        printf("skipped: %s\n", why);
        return 77;
    }
    ndevices   = ndevices < DEVICES ? ndevices : DEVICES;
    dev        = &devices[0];
    is_capture = getenv("SetCommandStreamReceiver") != NULL;
    ocl_host   = &module_api;
    printf("# %s, %s, %s\n", dev->platform_name, dev->name, dev->driver_version);
    (void)ops->sub_devices(dev->handle, NULL, 0, &n); /* kept for ever: no leak of a case's */
    return plain_main(argc, argv, cases);
}
