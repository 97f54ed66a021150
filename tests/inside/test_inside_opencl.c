/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The layer of inside/opencl: each case is a program of its own, which knows nothing of it, and
 * runs over each loader that there is: the system's, and Khronos' that comes with Intel's runtime.
 * Before the driver stands a layer that counts.
 *
 * Over a driver without USM (PoCL 3.1) the cases of USM are skipped. */
#include "cl_count.h"
#include "plain.h"

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <dlfcn.h>
#include <stdint.h>

#define KIB     ((size_t)1 << 10)
#define MIB     ((size_t)1 << 20)
#define N       400 /* blocks of a program */
#define SKIPPED 77
#define LESS    (PLAIN_SANITIZED ? 10 : 1) /* sanitizers make drivers slow */

/* Functions of the loader. */
#define FUNCTIONS(X)                                                                               \
    X(clGetPlatformIDs)                                                                            \
    X(clGetDeviceIDs)                                                                              \
    X(clGetDeviceInfo)                                                                             \
    X(clCreateContext)                                                                             \
    X(clRetainContext)                                                                             \
    X(clReleaseContext)                                                                            \
    X(clCreateCommandQueueWithProperties)                                                          \
    X(clReleaseCommandQueue)                                                                       \
    X(clFinish)                                                                                    \
    X(clFlush)                                                                                     \
    X(clCreateUserEvent)                                                                           \
    X(clSetUserEventStatus)                                                                        \
    X(clGetEventInfo)                                                                              \
    X(clReleaseEvent)                                                                              \
    X(clCreateProgramWithSource)                                                                   \
    X(clBuildProgram)                                                                              \
    X(clReleaseProgram)                                                                            \
    X(clCreateKernel)                                                                              \
    X(clReleaseKernel)                                                                             \
    X(clSetKernelArgSVMPointer)                                                                    \
    X(clSetKernelExecInfo)                                                                         \
    X(clEnqueueNDRangeKernel)                                                                      \
    X(clSVMAlloc)                                                                                  \
    X(clSVMFree)                                                                                   \
    X(clEnqueueSVMFree)                                                                            \
    X(clEnqueueSVMMemcpy)                                                                          \
    X(clGetExtensionFunctionAddressForPlatform)

static struct {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
    clHostMemAllocINTEL_fn           host;
    clDeviceMemAllocINTEL_fn         device;
    clSharedMemAllocINTEL_fn         shared;
    clMemFreeINTEL_fn                free;
    clMemBlockingFreeINTEL_fn        blocking_free;
    clGetMemAllocInfoINTEL_fn        info;
    clEnqueueMemcpyINTEL_fn          copy;
    clSetKernelArgMemPointerINTEL_fn arg;
} cl;

static struct {
    cl_platform_id   platform;
    cl_device_id     dev;
    cl_context       ctx;
    cl_command_queue queue;
    cl_count        *count;
} on;

static void *opened; /* the loader, as dlopen() gave it */

/* Of the next program. */
static struct {
    const char *loader;
    bool        with_us, needs_usm;
    void (*run)(void);
} next;

/* ---- the program's beginning and end --------------------------------------------------------- */

/* Khronos' loader in Intel's wheel needs libraries of its folder, and does not say where they
 * are. */
static void load_neighbours(const char *loader)
{
    static const char *const names[] = {"libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so"};
    const char              *end     = strrchr(loader, '/');
    char                     path[4096];

    for (size_t i = 0; end && i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%.*s/%s", (int)(end - loader), loader, names[i]);
        (void)dlopen(path, RTLD_NOW);
    }
}

static void load(void)
{
    char layers[4096];

    (void)snprintf(layers, sizeof layers, "%s%s%s", TEST_CL_COUNT, next.with_us ? ":" : "",
                   next.with_us ? TEST_INSIDE_OPENCL : "");
    CHECK(setenv("OPENCL_LAYERS", layers, 1) == 0);
    load_neighbours(next.loader);
    opened = dlopen(next.loader, RTLD_NOW);
    if (!opened)
        (void)printf("# %s\n", dlerror());
    CHECK(opened != NULL);
#define FIND(name) CHECK((*(void **)&cl.name = dlsym(opened, #name)) != NULL);
    FUNCTIONS(FIND)
#undef FIND
}

static void open_device(void)
{
    cl_int err = 0;

    CHECK_INT(cl.clGetPlatformIDs(1, &on.platform, NULL), 0);
    CHECK_INT(cl.clGetDeviceIDs(on.platform, CL_DEVICE_TYPE_ALL, 1, &on.dev, NULL), 0);
    on.ctx = cl.clCreateContext(NULL, 1, &on.dev, NULL, NULL, &err);
    CHECK_INT(err, 0);
    on.queue = cl.clCreateCommandQueueWithProperties(on.ctx, on.dev, NULL, &err);
    CHECK_INT(err, 0);
#define FIND(member, name)                                                                         \
    *(void **)&cl.member = cl.clGetExtensionFunctionAddressForPlatform(on.platform, name)
    FIND(host, "clHostMemAllocINTEL");
    FIND(device, "clDeviceMemAllocINTEL");
    FIND(shared, "clSharedMemAllocINTEL");
    FIND(free, "clMemFreeINTEL");
    FIND(blocking_free, "clMemBlockingFreeINTEL");
    FIND(info, "clGetMemAllocInfoINTEL");
    FIND(copy, "clEnqueueMemcpyINTEL");
    FIND(arg, "clSetKernelArgMemPointerINTEL");
#undef FIND
    on.count = dlsym(dlopen(TEST_CL_COUNT, RTLD_NOW | RTLD_NOLOAD), "cl_counts");
    CHECK(on.count != NULL);
}

static void close_device(void)
{
    CHECK_INT(cl.clFinish(on.queue), 0);
    CHECK_INT(cl.clReleaseCommandQueue(on.queue), 0);
    CHECK_INT(cl.clReleaseContext(on.ctx), 0);
    CHECK_INT(on.count->usm_allocs, on.count->usm_frees);
    CHECK_INT(on.count->svm_allocs, on.count->svm_frees);
}

static void program(void)
{
    load();
    open_device();
    if (next.needs_usm && !cl.device)
        exit(SKIPPED);
    next.run();
}

static void run_one(const char *loader, bool with_us)
{
    int status;

    next.loader  = loader;
    next.with_us = with_us;
    status       = plain_child(program, NULL);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        SKIP("the driver has no unified shared memory");
    if (status != 0)
        (void)printf("# over %s, %s the layer\n", loader, with_us ? "with" : "without");
    CHECK_INT(status, 0);
}

static void run(void (*fn)(void), bool needs_usm, bool without_too)
{
    static char khronos[4096]; /* `next` refers to it */
    const char *cache = getenv("USM_CI_CACHE"), *home = getenv("HOME");

    next.run       = fn;
    next.needs_usm = needs_usm;
    (void)snprintf(khronos, sizeof khronos, "%s%s/intel/lib/libOpenCL.so.1", cache ? cache : home,
                   cache ? "" : "/.cache/usm-ci");
    if (without_too)
        run_one("libOpenCL.so.1", false);
    run_one("libOpenCL.so.1", true);
    if (access(khronos, R_OK) == 0)
        run_one(khronos, true);
}

/* ---- memory of any sort ---------------------------------------------------------------------- */

typedef enum sort { HOST, DEVICE, SHARED, SVM } sort;

static void *get(sort s, size_t size)
{
    cl_int err = 0;
    void  *p   = s == HOST     ? cl.host(on.ctx, NULL, size, 0, &err)
                 : s == DEVICE ? cl.device(on.ctx, on.dev, NULL, size, 0, &err)
                 : s == SHARED ? cl.shared(on.ctx, on.dev, NULL, size, 0, &err)
                               : cl.clSVMAlloc(on.ctx, CL_MEM_READ_WRITE, size, 0);

    CHECK_INT(err, 0);
    CHECK(p != NULL && (uintptr_t)p % 64 == 0);
    return p;
}

static void give(sort s, void *p)
{
    if (s == SVM)
        cl.clSVMFree(on.ctx, p);
    else
        CHECK_INT(cl.free(on.ctx, p), 0);
}

static void copy(sort s, void *to, const void *from, size_t n)
{
    if (s == SVM)
        CHECK_INT(cl.clEnqueueSVMMemcpy(on.queue, CL_TRUE, to, from, n, 0, NULL, NULL), 0);
    else
        CHECK_INT(cl.copy(on.queue, CL_TRUE, to, from, n, 0, NULL, NULL), 0);
}

static long allocs_of(sort s)
{
    return s == SVM ? on.count->svm_allocs : on.count->usm_allocs;
}

/* ---- a program that computes ----------------------------------------------------------------- */

static cl_kernel kernel_of(cl_program *prog)
{
    const char *source = "kernel void add(global int *a, global const int *b)\n"
                         "{ size_t i = get_global_id(0); a[i] += b[i]; }\n";
    cl_int      err    = 0;
    cl_kernel   kernel;

    *prog = cl.clCreateProgramWithSource(on.ctx, 1, &source, NULL, &err);
    CHECK_INT(err, 0);
    CHECK_INT(cl.clBuildProgram(*prog, 1, &on.dev, "", NULL, NULL), 0);
    kernel = cl.clCreateKernel(*prog, "add", &err);
    CHECK_INT(err, 0);
    return kernel;
}

static void set_arg(sort s, cl_kernel kernel, cl_uint i, const void *p)
{
    if (s == SVM)
        CHECK_INT(cl.clSetKernelArgSVMPointer(kernel, i, p), 0);
    else
        CHECK_INT(cl.arg(kernel, i, p), 0);
}

/* Adds neighbours of N blocks, of which the second argument is inside a block. */
static void add_blocks(sort s, cl_kernel kernel)
{
    const size_t n = 64;
    int          values[128], *p[N];

    for (int i = 0; i < N; i++) {
        p[i] = get(s, sizeof values + (size_t)i * 16);
        for (int k = 0; k < 128; k++)
            values[k] = i + k;
        copy(s, p[i], values, sizeof values);
    }
    for (int i = 0; i + 1 < N; i += 40) {
        set_arg(s, kernel, 0, p[i]);
        set_arg(s, kernel, 1, p[i + 1] + 64);
        CHECK_INT(cl.clEnqueueNDRangeKernel(on.queue, kernel, 1, NULL, &n, NULL, 0, NULL, NULL), 0);
        CHECK_INT(cl.clFinish(on.queue), 0);
        copy(s, values, p[i], sizeof values);
        for (int k = 0; k < 128; k++)
            CHECK_INT(values[k], k < 64 ? i + k + i + 1 + 64 + k : i + k);
    }
    CHECK_INT(cl.clSetKernelExecInfo(kernel,
                                     s == SVM ? CL_KERNEL_EXEC_INFO_SVM_PTRS
                                              : CL_KERNEL_EXEC_INFO_USM_PTRS_INTEL,
                                     sizeof p, p),
              0);
    CHECK(next.with_us ? on.count->told < 10 : on.count->told == N);
    for (int i = 0; i < N; i++)
        give(s, p[i]);
}

static void compute(sort first, sort last)
{
    for (sort s = first; s <= last; s++) {
        long       before = allocs_of(s);
        cl_program prog;
        cl_kernel  kernel = kernel_of(&prog);

        add_blocks(s, kernel);
        CHECK(next.with_us ? allocs_of(s) - before < 10 : allocs_of(s) - before == N);
        CHECK_INT(cl.clReleaseKernel(kernel), 0);
        CHECK_INT(cl.clReleaseProgram(prog), 0);
    }
    close_device();
}

static void compute_usm(void)
{
    compute(HOST, SHARED);
}

static void compute_svm(void)
{
    compute(SVM, SVM);
}

static void usm_is_pooled_and_computes_the_same(void)
{
    run(compute_usm, true, true);
}

static void svm_is_pooled_and_computes_the_same(void)
{
    run(compute_svm, false, true);
}

/* ---- queries --------------------------------------------------------------------------------- */

static size_t query(const void *p, cl_mem_info_intel what)
{
    size_t value = 0, n = 0;

    CHECK_INT(cl.info(on.ctx, p, what, sizeof value, &value, &n), 0);
    CHECK(n == sizeof value || n == sizeof(cl_uint));
    return n == sizeof value ? value : (cl_uint)value;
}

static void ask(void)
{
    int   local = 0;
    char *p = get(DEVICE, 1000), *q = get(DEVICE, 1000);

    CHECK(query(p + 999, CL_MEM_ALLOC_BASE_PTR_INTEL) == (uintptr_t)p);
    CHECK(query(q + 1, CL_MEM_ALLOC_BASE_PTR_INTEL) == (uintptr_t)q);
    CHECK(query(p + 10, CL_MEM_ALLOC_SIZE_INTEL) >= 1000);
    CHECK(query(p + 10, CL_MEM_ALLOC_SIZE_INTEL) < 4 * KIB);
    CHECK_INT(query(p + 10, CL_MEM_ALLOC_TYPE_INTEL), CL_MEM_TYPE_DEVICE_INTEL);
    CHECK(query(p + 10, CL_MEM_ALLOC_DEVICE_INTEL) == (uintptr_t)on.dev);
    CHECK_INT(query(&local, CL_MEM_ALLOC_TYPE_INTEL), CL_MEM_TYPE_UNKNOWN_INTEL);
    give(DEVICE, q);
    give(DEVICE, p);
    CHECK_INT(query(p, CL_MEM_ALLOC_TYPE_INTEL), CL_MEM_TYPE_UNKNOWN_INTEL);
    CHECK(query(p, CL_MEM_ALLOC_BASE_PTR_INTEL) == 0);
    close_device();
}

static void queries_answer_for_the_block(void)
{
    run(ask, true, true);
}

/* ---- what is the driver's -------------------------------------------------------------------- */

static void expect_driver(long before, void *p)
{
    CHECK(p != NULL);
    CHECK_INT(on.count->usm_allocs, before + 1);
    CHECK_INT(cl.free(on.ctx, p), 0);
    CHECK_INT(on.count->usm_frees, on.count->usm_allocs);
}

static void go_beyond(void)
{
    const cl_mem_properties_intel flags[] = {CL_MEM_ALLOC_FLAGS_INTEL,
                                             CL_MEM_ALLOC_WRITE_COMBINED_INTEL, 0};
    cl_int                        err     = 0;
    int                           local   = 0;

    expect_driver(0, get(DEVICE, 4 * MIB + 1));
    expect_driver(1, cl.device(on.ctx, on.dev, NULL, 100, 4096, &err));
    expect_driver(2, cl.shared(on.ctx, on.dev, flags, 100, 0, &err));
    CHECK(cl.host(on.ctx, NULL, 0, 0, &err) == NULL && err != 0);
    CHECK(cl.host(NULL, NULL, 10, 0, &err) == NULL && err == CL_INVALID_CONTEXT);
    CHECK(cl.free(NULL, &local) == CL_INVALID_CONTEXT);
    CHECK(cl.host(on.ctx, NULL, 10, 3, &err) == NULL && err != 0);
    (void)cl.free(on.ctx, &local); /* whatever the driver says */
    on.count->usm_frees = on.count->usm_allocs = 0;
    close_device();
}

static void what_is_out_of_the_ordinary_goes_to_the_driver(void)
{
    run(go_beyond, true, true);
}

static void free_wrongly(void)
{
    char *p = get(SHARED, 100), *keep = get(SHARED, 100);

    CHECK_INT(cl.free(on.ctx, p + 8), CL_INVALID_VALUE);
    CHECK_INT(cl.free(on.ctx, p), 0);
    CHECK_INT(cl.free(on.ctx, p), CL_INVALID_VALUE);
    CHECK_INT(cl.free(on.ctx, keep), 0);
    close_device();
}

static void wrong_frees_are_errors(void)
{
    run(free_wrongly, true, false);
}

/* ---- frees in the order of queues ------------------------------------------------------------ */

static _Atomic(int) called;

static void CL_CALLBACK free_them(cl_command_queue queue, cl_uint n, void **p, void *user)
{
    (void)queue;
    for (cl_uint i = 0; i < n; i++)
        cl.clSVMFree(on.ctx, p[i]);
    *(_Atomic(int) *)user += (int)n;
}

static void free_in_queue(void)
{
    long  before;
    void *p[4];

    for (int i = 0; i < 4; i++)
        p[i] = get(SVM, i < 3 ? 5000 : 5 * MIB);
    before = on.count->svm_frees;
    CHECK_INT(cl.clEnqueueSVMFree(on.queue, 2, p, NULL, NULL, 0, NULL, NULL), 0);
    CHECK_INT(cl.clEnqueueSVMFree(on.queue, 2, p + 2, free_them, &called, 0, NULL, NULL), 0);
    p[0] = p[1] = NULL;
    CHECK_INT(cl.clFinish(on.queue), 0);
    while (called < 2)
        (void)usleep(100); /* a driver may call back after the end */
    if (next.with_us)
        CHECK_INT(on.count->svm_frees, before + 1); /* the large one */
    p[0] = get(SVM, 5000);
    p[1] = get(SVM, 5 * MIB);
    CHECK_INT(cl.clEnqueueSVMFree(on.queue, 2, p, NULL, NULL, 0, NULL, NULL), 0);
    if (next.with_us)
        close_device();
}

static void svm_is_freed_in_queues(void)
{
    run(free_in_queue, false, true);
}

/* Behind work that takes a while, on a queue that is gone. */
static void wait_for_released_queue(void)
{
    cl_int           err = 0, status = CL_QUEUED;
    cl_command_queue second = cl.clCreateCommandQueueWithProperties(on.ctx, on.dev, NULL, &err);
    cl_event         done;
    char            *from = get(HOST, 32 * MIB), *p = get(SHARED, 64), *to = get(SHARED, 32 * MIB);

    for (int i = 0; i < 4; i++)
        CHECK_INT(cl.copy(second, CL_FALSE, to, from, 32 * MIB, 0, NULL, NULL), 0);
    CHECK_INT(cl.copy(second, CL_FALSE, p, from, 64, 0, NULL, &done), 0);
    CHECK_INT(cl.clReleaseCommandQueue(second), 0);
    CHECK_INT(cl.blocking_free(on.ctx, p), 0);
    CHECK_INT(
        cl.clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL),
        0);
    CHECK_INT(status, CL_COMPLETE);
    CHECK_INT(cl.clReleaseEvent(done), 0);
    give(HOST, from);
    give(SHARED, to);
    close_device();
}

static void a_blocking_free_waits_for_released_queues_too(void)
{
    run(wait_for_released_queue, true, false);
}

/* A command waits for an event that this thread is going to set. */
static void free_before_event(void)
{
    cl_int   err  = 0;
    cl_event user = cl.clCreateUserEvent(on.ctx, &err);
    int      from = 7, to = 0, *p = get(SHARED, sizeof *p), *other = get(SHARED, sizeof *p);
    int     *keep[200];

    CHECK_INT(cl.copy(on.queue, CL_FALSE, p, &from, sizeof from, 1, &user, NULL), 0);
    CHECK_INT(cl.copy(on.queue, CL_FALSE, &to, p, sizeof to, 0, NULL, NULL), 0);
    CHECK_INT(cl.clFlush(on.queue), 0);
    CHECK_INT(cl.blocking_free(on.ctx, other), 0);
    CHECK_INT(cl.blocking_free(on.ctx, p), 0);
    for (int i = 0; i < 200; i++) { /* nobody gets a block that a command is to write */
        keep[i] = get(SHARED, sizeof **keep);
        CHECK(keep[i] != p);
    }
    CHECK_INT(cl.clSetUserEventStatus(user, CL_COMPLETE), 0);
    CHECK_INT(cl.clFinish(on.queue), 0);
    CHECK_INT(to, 7);
    for (int i = 0; i < 200; i++)
        CHECK_INT(cl.blocking_free(on.ctx, keep[i]), 0);
    CHECK_INT(cl.clReleaseEvent(user), 0);
    CHECK_INT(cl.clReleaseCommandQueue(on.queue), 0);
    CHECK_INT(cl.clReleaseContext(on.ctx), 0);
    while (on.count->usm_allocs != on.count->usm_frees)
        (void)usleep(100); /* the driver calls back after the end */
}

static void a_blocking_free_waits_for_no_event_of_its_caller(void)
{
    run(free_before_event, true, false);
}

static void *release_queue(void *queue)
{
    CHECK_INT(cl.clReleaseCommandQueue(queue), 0);
    return NULL;
}

/* A queue is released whose command is to write a block, which is freed.  Nobody gets the block
 * before the command has ended, although the queue has no marker yet, or never gets one. */
static void free_after_release(cl_marker marker)
{
    cl_int           err    = 0;
    cl_event         user   = cl.clCreateUserEvent(on.ctx, &err), done;
    cl_command_queue second = cl.clCreateCommandQueueWithProperties(on.ctx, on.dev, NULL, &err);
    int              from = 7, *keep[200], *p = get(SHARED, sizeof *p);
    pthread_t        thread;

    CHECK_INT(cl.copy(second, CL_FALSE, p, &from, sizeof from, 1, &user, &done), 0);
    CHECK_INT(cl.clFlush(second), 0);
    on.count->marker = marker;
    CHECK_INT(pthread_create(&thread, NULL, release_queue, second), 0);
    while (on.count->marker == (int)marker)
        (void)usleep(100);
    if (marker == CL_MARKER_FAIL)
        CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(cl.blocking_free(on.ctx, p), 0);
    for (int i = 0; i < 200; i++) {
        keep[i] = get(SHARED, sizeof **keep);
        CHECK(keep[i] != p);
    }
    CHECK_INT(cl.clSetUserEventStatus(user, CL_COMPLETE), 0);
    on.count->marker = CL_MARKER_PASS;
    if (marker == CL_MARKER_HOLD)
        CHECK_INT(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 200; i++)
        CHECK_INT(cl.blocking_free(on.ctx, keep[i]), 0);
    CHECK_INT(cl.clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof err, &err, NULL),
              0);
    CHECK_INT(err, CL_COMPLETE);
    CHECK_INT(cl.clReleaseEvent(done), 0);
    CHECK_INT(cl.clReleaseEvent(user), 0);
}

static void release_and_free(void)
{
    free_after_release(CL_MARKER_HOLD);
    free_after_release(CL_MARKER_FAIL);
    CHECK_INT(cl.clReleaseCommandQueue(on.queue), 0);
    CHECK_INT(cl.clReleaseContext(on.ctx), 0);
    while (on.count->usm_allocs != on.count->usm_frees)
        (void)usleep(100); /* the driver calls back after the end */
}

static void a_free_sees_queues_that_are_being_released(void)
{
    run(release_and_free, true, false);
}

/* ---- lives of contexts ----------------------------------------------------------------------- */

static void release_in_any_order(void)
{
    sort s = cl.device ? DEVICE : SVM;

    for (int i = 0; i < 50 / LESS; i++) {
        cl_int     err   = 0;
        cl_context first = on.ctx, second = cl.clCreateContext(NULL, 1, &on.dev, NULL, NULL, &err);
        void      *p = get(s, 100), *q;

        CHECK_INT(err, 0);
        on.ctx = second;
        q      = get(s, 100);
        CHECK_INT(cl.clRetainContext(second), 0);
        CHECK_INT(cl.clReleaseContext(second), 0);
        give(s, q);
        if (i % 2)
            give(s, get(s, 200));
        CHECK_INT(cl.clReleaseContext(second), 0);
        on.ctx = first;
        give(s, p);
    }
    CHECK_INT(cl.clReleaseContext(on.ctx), 0); /* the queue holds it */
    CHECK_INT(on.count->usm_allocs, on.count->usm_frees);
    CHECK_INT(on.count->svm_allocs, on.count->svm_frees);
    CHECK_INT(cl.clReleaseCommandQueue(on.queue), 0);
}

static void a_context_takes_its_pools_along(void)
{
    run(release_in_any_order, false, false);
}

static void free_in(cl_context ctx, void *p)
{
    if (cl.host)
        CHECK_INT(cl.free(ctx, p), 0);
    else
        cl.clSVMFree(ctx, p);
}

/* Its area is what held the context last, in a driver that counts so. */
static void free_after_all(void)
{
    for (int i = 0; i < 3; i++) {
        cl_int err = 0;
        void  *p   = get(SVM, i == 0 ? 100 : 5 * MIB);

        CHECK_INT(cl.clReleaseCommandQueue(on.queue), 0);
        CHECK_INT(cl.clReleaseContext(on.ctx), 0);
        give(SVM, p);
        on.ctx   = cl.clCreateContext(NULL, 1, &on.dev, NULL, NULL, &err);
        on.queue = cl.clCreateCommandQueueWithProperties(on.ctx, on.dev, NULL, &err);
        CHECK_INT(err, 0);
    }
    close_device();
}

static void a_block_may_be_the_last_to_hold_its_context(void)
{
    run(free_after_all, false, true);
}

static void leak(void)
{
    sort s = cl.device ? DEVICE : SVM;

    for (int i = 0; i < 20; i++) {
        cl_int err = 0;

        for (int k = 0; k < 100; k++)
            (void)get(s, 1000);
        CHECK_INT(cl.clReleaseCommandQueue(on.queue), 0);
        CHECK_INT(cl.clReleaseContext(on.ctx), 0);
        on.ctx   = cl.clCreateContext(NULL, 1, &on.dev, NULL, NULL, &err);
        on.queue = cl.clCreateCommandQueueWithProperties(on.ctx, on.dev, NULL, &err);
    }
    exit(0); /* with handlers of all libraries */
}

static void a_program_that_leaks_ends_well(void)
{
    run(leak, false, true);
}

/* Whether the loader, the layers and the driver are unmapped then is theirs to decide. */
static void unload(void)
{
    sort s = cl.device ? DEVICE : SVM;

    for (int i = 0; i < 3; i++) {
        void *lost = get(s, 1000);

        give(s, get(s, 2000));
        if (i < 2)
            give(s, lost); /* the last one is never freed */
        CHECK_INT(cl.clReleaseCommandQueue(on.queue), 0);
        CHECK_INT(cl.clReleaseContext(on.ctx), 0);
        CHECK_INT(dlclose(opened), 0);
        if (i == 2)
            exit(0); /* with handlers of all libraries */
        load();
        open_device();
    }
}

static void the_loader_may_be_unloaded(void)
{
    if (PLAIN_SANITIZED) /* a suppression names the loader, and leaks of code that is gone, nobody */
        return;
    run(unload, false, true);
}

static void hold_many(void)
{
    enum { MANY = 100000 / LESS };
    sort   s = cl.device ? DEVICE : SVM;
    void **p = calloc(MANY, sizeof *p);

    CHECK(p != NULL);
    for (int i = 0; i < MANY; i++)
        p[i] = get(s, 64 + (size_t)i % 512);
    CHECK(allocs_of(s) < 100);
    for (int i = 0; i < MANY; i++)
        give(s, p[(size_t)i * 7919 % MANY]);
    free(p);
    close_device();
}

static void a_hundred_thousand_blocks_live(void)
{
    run(hold_many, false, false);
}

/* ---- libusm's settings ----------------------------------------------------------------------- */

static void *try(sort s, size_t size, cl_int *err)
{
    *err = CL_SUCCESS;
    return s == DEVICE ? cl.device(on.ctx, on.dev, NULL, size, 0, err)
                       : cl.clSVMAlloc(on.ctx, CL_MEM_READ_WRITE, size, 0);
}

static void run_out(void)
{
    sort   s = cl.device ? DEVICE : SVM;
    cl_int err;
    void  *large = get(s, 6 * MIB), *small[100];
    int    n     = 0;

    CHECK(try(s, 6 * MIB, &err) == NULL);
    CHECK_INT(err, s == DEVICE ? CL_OUT_OF_RESOURCES : CL_SUCCESS);
    while (n < 100 && (small[n] = try(s, 256 * KIB, &err)) != NULL)
        n++;
    CHECK(n > 0 && n <= 8);
    give(s, large);
    large = get(s, 5 * MIB);
    give(s, large);
    while (n > 0)
        give(s, small[--n]);
    close_device();
}

static void limited(void)
{
    CHECK(setenv("USM_MEMORY_LIMIT", "device:8M", 1) == 0);
    run_out();
}

static void a_limit_is_out_of_memory(void)
{
    run(limited, false, false);
}

/* No pool can be made, in a program that was started without jemalloc. */
static void misled(void)
{
    sort s = cl.device ? DEVICE : SVM;

    CHECK(setenv("USM_POOL", "jemalloc", 1) == 0);
    for (int i = 0; i < 100; i++)
        give(s, get(s, 100));
    close_device();
}

static void a_pool_that_cannot_be_made_fails_no_program(void)
{
    run(misled, false, false);
}

/* ---- libusm in the program ------------------------------------------------------------------- */

static void have_libusm(void)
{
    sort  s = cl.device ? DEVICE : SVM;
    long  before;
    void *p = get(s, 100);

    CHECK(dlopen(TEST_BACKEND, RTLD_NOW) != NULL); /* which then asks for platforms */
    CHECK_INT(cl.clGetPlatformIDs(1, &on.platform, NULL), 0);
    before = allocs_of(s);
    give(s, get(s, 100));
    CHECK_INT(allocs_of(s), before + 1);
    give(s, p); /* still a pool's */
    close_device();
}

static void a_program_with_libusm_of_its_own_is_left_alone(void)
{
    run(have_libusm, false, false);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *churn(void *arg)
{
    unsigned  seed   = (unsigned)(uintptr_t)arg;
    uint64_t *p[100] = {NULL};
    sort      s      = cl.host ? HOST : SVM;

    for (int i = 0; i < 10000 / LESS; i++) {
        unsigned k = (unsigned)rand_r(&seed) % 100;

        if (p[k]) {
            CHECK(*p[k] == ((uint64_t)(uintptr_t)arg << 32 | k));
            give(s, p[k]);
        }
        p[k]  = get(s, 8 + (unsigned)rand_r(&seed) % 20000);
        *p[k] = (uint64_t)(uintptr_t)arg << 32 | k;
    }
    for (int k = 0; k < 100; k++)
        if (p[k])
            give(s, p[k]);
    return NULL;
}

static void work_in_threads(void)
{
    pthread_t threads[8];

    for (uintptr_t i = 0; i < 8; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 8; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK(allocs_of(cl.host ? HOST : SVM) < 1000);
    close_device();
}

static void threads_share_the_pools(void)
{
    run(work_in_threads, false, false);
}

/* Contexts come and go, and the layer keeps them apart. */
static void *own_contexts(void *arg)
{
    for (int i = 0; i < 30 / LESS; i++) {
        cl_int           err   = 0;
        cl_context       ctx   = cl.clCreateContext(NULL, 1, &on.dev, NULL, NULL, &err);
        cl_command_queue queue = cl.clCreateCommandQueueWithProperties(ctx, on.dev, NULL, &err);
        char            *p[20];

        CHECK_INT(err, 0);
        for (int k = 0; k < 20; k++) {
            p[k] = cl.host ? cl.host(ctx, NULL, 1000, 0, &err)
                           : cl.clSVMAlloc(ctx, CL_MEM_READ_WRITE, 1000, 0);
            CHECK(p[k] != NULL);
            memset(p[k], (int)(uintptr_t)arg, 1000);
        }
        CHECK_INT(cl.clReleaseCommandQueue(queue), 0);
        for (int k = 0; k < 20; k++) {
            CHECK(p[k][0] == (char)(uintptr_t)arg && p[k][999] == (char)(uintptr_t)arg);
            if (cl.host)
                CHECK_INT(cl.blocking_free(ctx, p[k]), 0);
            else
                cl.clSVMFree(ctx, p[k]);
        }
        CHECK_INT(cl.clReleaseContext(ctx), 0);
    }
    return NULL;
}

static void work_in_contexts(void)
{
    pthread_t threads[6];

    for (uintptr_t i = 0; i < 6; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, own_contexts, (void *)(i + 1)), 0);
    for (int i = 0; i < 6; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    if (next.with_us)
        CHECK(allocs_of(cl.host ? HOST : SVM) <= 6L * 30 * 2);
    close_device();
}

static void threads_have_contexts_of_their_own(void)
{
    run(work_in_contexts, false, true);
}

/* ---- fork and exit under threads ------------------------------------------------------------- */

static struct {
    _Atomic(bool) ends;
    cl_context    other; /* a second context */
} forks;

static void *alloc_in(cl_context ctx)
{
    cl_int err = 0;

    return cl.host ? cl.host(ctx, NULL, 1000, 0, &err)
                   : cl.clSVMAlloc(ctx, CL_MEM_READ_WRITE, 1000, 0);
}

/* In two contexts by turns, which the layer finds under its lock each time. */
static void *alternate(void *unused)
{
    while (!forks.ends) {
        void *p = alloc_in(on.ctx), *q = alloc_in(forks.other);

        CHECK(p && q);
        free_in(on.ctx, p);
        free_in(forks.other, q);
    }
    return unused;
}

/* The child does nothing that the driver is asked for. */
static void expect_child(void *p, void *q)
{
    int   status = -1;
    pid_t child  = fork();

    CHECK(child >= 0);
    if (child == 0) {
        (void)alarm(20);
        free_in(on.ctx, p);
        free_in(forks.other, q);
        free(malloc(100000));
        _exit(0);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
}

static void fork_under_threads(void)
{
    cl_int    err = 0;
    pthread_t threads[8];
    void     *p, *q;

    forks.other = cl.clCreateContext(NULL, 1, &on.dev, NULL, NULL, &err);
    p           = alloc_in(on.ctx);
    q           = alloc_in(forks.other);
    for (int i = 0; i < 8; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, alternate, NULL), 0);
    for (int i = 0; i < 30 / LESS; i++)
        expect_child(p, q);
    forks.ends = true;
    for (int i = 0; i < 8; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    free_in(on.ctx, p);
    free_in(forks.other, q);
    CHECK_INT(cl.clReleaseContext(forks.other), 0);
    close_device();
}

static void children_find_no_lock_of_the_layer_taken(void)
{
    run(fork_under_threads, false, false);
}

static _Atomic(int) working;

/* Leaves commands in flight, and goes on with blocks that the layer has: what a driver does for
 * threads that go on calling it is its own. */
static void *work_on(void *unused)
{
    cl_int           err   = 0;
    cl_command_queue queue = cl.clCreateCommandQueueWithProperties(on.ctx, on.dev, NULL, &err);
    sort             s     = cl.device ? DEVICE : SVM;
    void            *p = get(s, MIB), *q = get(s, MIB);

    free_in(on.ctx, alloc_in(on.ctx));
    for (int i = 0; i < 4; i++)
        CHECK_INT(s == SVM ? cl.clEnqueueSVMMemcpy(queue, CL_FALSE, q, p, MIB, 0, NULL, NULL)
                           : cl.copy(queue, CL_FALSE, q, p, MIB, 0, NULL, NULL),
                  0);
    CHECK_INT(cl.clFlush(queue), 0);
    for (working++;;)
        free_in(on.ctx, alloc_in(on.ctx));
    return unused;
}

static void exit_under_threads(void)
{
    pthread_t thread;

    for (int i = 0; i < 8; i++)
        CHECK_INT(pthread_create(&thread, NULL, work_on, NULL), 0);
    while (working < 8)
        (void)usleep(100);
    exit(0); /* with handlers of all libraries */
}

static void a_program_may_end_in_the_middle_of_its_work(void)
{
    run(exit_under_threads, false, false);
}

static const plain_case cases[] = {
    CASE(usm_is_pooled_and_computes_the_same),
    CASE(svm_is_pooled_and_computes_the_same),
    CASE(queries_answer_for_the_block),
    CASE(what_is_out_of_the_ordinary_goes_to_the_driver),
    CASE(wrong_frees_are_errors),
    CASE(svm_is_freed_in_queues),
    CASE(a_blocking_free_waits_for_released_queues_too),
    CASE(a_blocking_free_waits_for_no_event_of_its_caller),
    CASE(a_free_sees_queues_that_are_being_released),
    CASE(a_context_takes_its_pools_along),
    CASE(a_block_may_be_the_last_to_hold_its_context),
    CASE(a_program_that_leaks_ends_well),
    CASE(the_loader_may_be_unloaded),
    CASE(a_hundred_thousand_blocks_live),
    CASE(a_limit_is_out_of_memory),
    CASE(a_pool_that_cannot_be_made_fails_no_program),
    CASE(a_program_with_libusm_of_its_own_is_left_alone),
    CASE(threads_share_the_pools),
    CASE(threads_have_contexts_of_their_own),
    CASE(children_find_no_lock_of_the_layer_taken),
    CASE(a_program_may_end_in_the_middle_of_its_work),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
