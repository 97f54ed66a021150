/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The OpenCL backend: entry, devices, memory, copies, fills, hints, native handles. */
#include "opencl_fixture.h"

/* --- statuses, entry, devices ----------------------------------------------------------------- */

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

/* Without its layer the runtime pocl-coarse would be PoCL, and test nothing. */
static void a_coarse_device_has_device_memory_and_no_other(void)
{
    const char *runtime = getenv("USM_TEST_RUNTIME");

    if (!runtime || strcmp(runtime, "pocl-coarse") != 0)
        return;
    CHECK(has(USM_ASPECT_USM_DEVICE_ALLOCATIONS));
    CHECK(!has(USM_ASPECT_USM_HOST_ALLOCATIONS) && !has(USM_ASPECT_USM_SHARED_ALLOCATIONS));
}

static void memory_of_the_device_is_told(void)
{
    uint64_t total = 0, left = 0;

    CHECK_INT(ops->device_memory(dev->handle, &total, &left), USM_OK);
    CHECK(total == dev->memory_size && left > 0);
}

/* --- memory ----------------------------------------------------------------------------------- */

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

/* --- copies and fills ------------------------------------------------------------------------- */

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

/* --- native handles --------------------------------------------------------------------------- */

static struct {
    __typeof__(&clRetainContext)      retain_context;
    __typeof__(&clReleaseContext)     release_context;
    __typeof__(&clGetContextInfo)     context_info;
    __typeof__(&clRetainCommandQueue) retain_queue;
    __typeof__(&clCreateUserEvent)    user_event;
    __typeof__(&clSetUserEventStatus) set_status;
    __typeof__(&clGetEventInfo)       event_info;
    __typeof__(&clReleaseEvent)       release_event;
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
    CHECK(context_refs(native_ctx) > refs); /* how many is the driver's affair */
    ops->context_destroy(other);
    CHECK_INT(context_refs(native_ctx), refs);
    /* Not between counts: PoCL 6 keeps a reference for memory that was freed. */
    if (has(USM_ASPECT_USM_SHARED_ALLOCATIONS)) {
        CHECK_INT(ops->context_from_native(native_ctx, 0, NULL, USM_KEEP, &other, list, 2, &n),
                  USM_OK);
        p = allocate_in(other, USM_SHARED, N);
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK); /* it is one context */
        ops->context_destroy(other);
    }
    refs = context_refs(native_ctx);
    native.retain_context(native_ctx);
    CHECK_INT(native.context_info(native_ctx, CL_CONTEXT_DEVICES, sizeof(id), &id, NULL), 0);
    wrong = dev->handle; /* a pointer, but no device of the context */
    other = NULL;
    CHECK_INT(ops->context_from_native(native_ctx, 1, &wrong, USM_TRANSFER, &other, list, 2, &n),
              USM_E_INVALID);
    CHECK(other == NULL);
    CHECK(context_refs(native_ctx) > refs); /* still the caller's */
    wrong = id;
    CHECK_INT(ops->context_from_native(native_ctx, 1, &wrong, USM_TRANSFER, &other, list, 2, &n),
              USM_OK);
    CHECK(context_refs(native_ctx) > refs); /* how many is the driver's affair */
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

/* ---------------------------------------------------------------------------------------------- */

static const plain_case cases[] = {
    CASE(codes_of_the_driver_have_their_status),
    CASE(another_abi_is_refused_with_a_story),
    CASE(devices_are_described_and_stay_the_same),
    CASE(a_coarse_device_has_device_memory_and_no_other),
    CASE(memory_of_the_device_is_told),
    CASE(each_kind_is_given_aligned_or_refused_by_name),
    CASE(too_much_memory_is_a_named_error),
    CASE(copies_go_between_all_kinds_and_host_memory),
    CASE(fills_take_all_patterns_of_a_power_of_two),
    CASE(rectangles_leave_what_is_between_their_rows),
    CASE(hints_complete_whatever_the_driver_says),
    CASE(a_native_context_is_borrowed_or_taken),
    CASE(a_native_queue_and_event_are_borrowed),
    CASE(user_events_have_native_shadows),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return opencl_main(argc, argv, cases);
}
