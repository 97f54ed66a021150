/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A program that has its own cl_context, cl_command_queue and kernels, and takes its memory from
 * libusm: temporaries come out of a pool instead of the driver.
 *
 *     interop_opencl [ROUNDS]
 *
 * Read main() first, then round_trip(): there events of both sides wait for each other.  Not here:
 * kernels that libusm launches (../idw). */
#include "loader.h"

#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdbool.h>
#include <time.h>
#include <usm/usm.h>

enum { N = 16384 }; /* numbers in an array */

/* ---- the program's OpenCL ------------------------------------------------------------ */

#define FUNCTIONS(X)                                                                               \
    X(clGetPlatformIDs)                                                                            \
    X(clGetPlatformInfo)                                                                           \
    X(clGetDeviceIDs)                                                                              \
    X(clGetDeviceInfo)                                                                             \
    X(clGetExtensionFunctionAddressForPlatform)                                                    \
    X(clCreateContext)                                                                             \
    X(clGetContextInfo)                                                                            \
    X(clReleaseContext)                                                                            \
    X(clCreateCommandQueueWithProperties)                                                          \
    X(clReleaseCommandQueue)                                                                       \
    X(clCreateProgramWithSource)                                                                   \
    X(clBuildProgram)                                                                              \
    X(clReleaseProgram)                                                                            \
    X(clCreateKernel)                                                                              \
    X(clReleaseKernel)                                                                             \
    X(clSetKernelArg)                                                                              \
    X(clSetKernelArgSVMPointer)                                                                    \
    X(clEnqueueNDRangeKernel)                                                                      \
    X(clCreateBuffer)                                                                              \
    X(clReleaseMemObject)                                                                          \
    X(clEnqueueFillBuffer)                                                                         \
    X(clEnqueueReadBuffer)                                                                         \
    X(clReleaseEvent)                                                                              \
    X(clFinish)

static struct {
#define MEMBER(name) __typeof__(&name) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} cl;

typedef cl_int(CL_API_CALL *set_pointer_fn)(cl_kernel, cl_uint, const void *);

typedef struct program {
    cl_platform_id   platform;
    cl_device_id     device;
    cl_context       context;
    cl_command_queue queue;
    cl_program       code;
    cl_kernel        saxpy;
    set_pointer_fn   set_pointer; /* of the extension for USM, else of SVM */
    const char      *set_pointer_name;
} program;

static const char *const source = "kernel void saxpy(float a, global const float *x,\n"
                                  "                  global float *y)\n"
                                  "{\n"
                                  "    size_t i = get_global_id(0);\n"
                                  "    y[i] = a * x[i] + y[i];\n"
                                  "}\n";

static void load_opencl(void)
{
    void *library = loader_open("libOpenCL.so.1");

#define FIND(name) loader_find(library, #name, &cl.name);
    FUNCTIONS(FIND)
#undef FIND
}

static void cl_ok(cl_int code, const char *what)
{
    if (code == CL_SUCCESS)
        return;
    fprintf(stderr, "%s: OpenCL's error %d\n", what, (int)code);
    end(1);
}

static bool has_extension(cl_device_id device, const char *name)
{
    char text[16384] = "";

    cl.clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof text - 1, text, NULL);
    return strstr(text, name) != NULL;
}

/* Pointers need USM (Intel's extension) or shared virtual memory (OpenCL 2.0, optional). */
static bool can_use_pointers(cl_device_id device)
{
    cl_device_svm_capabilities svm = 0;

    cl.clGetDeviceInfo(device, CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL);
    return svm != 0 || has_extension(device, "cl_intel_unified_shared_memory");
}

/* The first device that can. */
static void choose_device(program *p)
{
    cl_platform_id platforms[16];
    cl_device_id   devices[16];
    cl_uint        nplatforms = 0, ndevices = 0;

    if (cl.clGetPlatformIDs(16, platforms, &nplatforms) != CL_SUCCESS)
        nplatforms = 0;
    for (cl_uint i = 0; i < nplatforms && i < 16; i++) {
        if (cl.clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 16, devices, &ndevices))
            continue;
        for (cl_uint k = 0; k < ndevices && k < 16; k++)
            if (can_use_pointers(devices[k])) {
                p->platform = platforms[i];
                p->device   = devices[k];
                return;
            }
    }
    printf("nothing to do: no OpenCL device here has USM or shared virtual memory (of %u "
           "platforms)\n",
           (unsigned)nplatforms);
    end(EXIT_SKIPPED);
}

/* A pointer becomes an argument by the extension's function where the device has USM. */
static void choose_set_pointer(program *p)
{
    void *symbol = NULL;

    p->set_pointer      = cl.clSetKernelArgSVMPointer;
    p->set_pointer_name = "clSetKernelArgSVMPointer";
    if (!has_extension(p->device, "cl_intel_unified_shared_memory"))
        return;
    symbol =
        cl.clGetExtensionFunctionAddressForPlatform(p->platform, "clSetKernelArgMemPointerINTEL");
    if (symbol) {
        memcpy(&p->set_pointer, &symbol, sizeof symbol);
        p->set_pointer_name = "clSetKernelArgMemPointerINTEL";
    }
}

static void start_opencl(program *p)
{
    char        name[256] = "", platform[256] = "";
    const char *text = source;
    cl_int      err  = 0;

    load_opencl();
    choose_device(p);
    choose_set_pointer(p);
    p->context = cl.clCreateContext(NULL, 1, &p->device, NULL, NULL, &err);
    cl_ok(err, "clCreateContext");
    p->queue = cl.clCreateCommandQueueWithProperties(p->context, p->device, NULL, &err);
    cl_ok(err, "clCreateCommandQueueWithProperties");
    p->code = cl.clCreateProgramWithSource(p->context, 1, &text, NULL, &err);
    cl_ok(err, "clCreateProgramWithSource");
    cl_ok(cl.clBuildProgram(p->code, 1, &p->device, "", NULL, NULL), "clBuildProgram");
    p->saxpy = cl.clCreateKernel(p->code, "saxpy", &err);
    cl_ok(err, "clCreateKernel");
    cl.clGetDeviceInfo(p->device, CL_DEVICE_NAME, sizeof name - 1, name, NULL);
    cl.clGetPlatformInfo(p->platform, CL_PLATFORM_NAME, sizeof platform - 1, platform, NULL);
    printf("the program's OpenCL device: %s (%s)\n", name, platform);
}

static void stop_opencl(program *p)
{
    cl.clReleaseKernel(p->saxpy);
    cl.clReleaseProgram(p->code);
    cl.clReleaseCommandQueue(p->queue);
    cl.clReleaseContext(p->context);
}

static unsigned references(const program *p)
{
    cl_uint n = 0;

    cl_ok(cl.clGetContextInfo(p->context, CL_CONTEXT_REFERENCE_COUNT, sizeof n, &n, NULL),
          "clGetContextInfo");
    return (unsigned)n;
}

/* Drivers let go of what a command used a moment after its end. */
static unsigned references_in_the_end(const program *p, unsigned before)
{
    const struct timespec ms = {0, 1000000};

    for (int i = 0; i < 2000 && references(p) != before; i++)
        nanosleep(&ms, NULL);
    return references(p);
}

/* ---- libusm inside it ------------------------------------------------------------------ */

typedef struct inside {
    usm_context *context;
    usm_queue   *over;  /* over the program's own cl_command_queue        */
    usm_queue   *other; /* one more, in no order: events alone order there */
    usm_pool    *pool;
} inside;

static void ok(usm_status status)
{
    if (status == USM_OK)
        return;
    fprintf(stderr, "%s: %s\n", usm_status_name(status), usm_last_error());
    end(status == USM_E_NO_BACKEND ? EXIT_SKIPPED : 1);
}

/* The kind of memory that a pool is made for; SVM alone gives no device memory of its own. */
static void create_pool(inside *u)
{
    const usm_kind wanted[] = {USM_DEVICE, USM_SHARED, USM_HOST};
    usm_status     status   = USM_E_NOT_SUPPORTED;

    for (int i = 0; i < 3 && status == USM_E_NOT_SUPPORTED; i++)
        status = usm_pool_create(u->context, NULL, wanted[i], NULL, &u->pool);
    ok(status);
}

static void enter(inside *u, const program *p)
{
    usm_native_desc desc  = USM_NATIVE_DESC_INIT;
    usm_queue_desc  qdesc = USM_QUEUE_DESC_INIT;
    void           *again = NULL;

    desc.backend = "opencl";
    desc.handle  = p->context; /* USM_KEEP: it stays the program's */
    ok(usm_context_from_native(&desc, &u->context));
    ok(usm_queue_from_native(u->context, p->queue, USM_KEEP, &u->over));
    qdesc.flags = USM_QUEUE_OUT_OF_ORDER;
    if (usm_queue_create(u->context, NULL, &qdesc, &u->other) != USM_OK)
        ok(usm_queue_create(u->context, NULL, NULL, &u->other));
    create_pool(u);
    ok(usm_context_get_native(u->context, "opencl", &again));
    printf("libusm works inside its cl_context: %s\n", again == p->context ? "yes" : "NO");
}

static void leave(inside *u)
{
    usm_pool_destroy(u->pool);
    usm_queue_destroy(u->other);
    usm_queue_destroy(u->over);
    usm_context_destroy(u->context);
}

/* ---- one round --------------------------------------------------------------------------- */

/* The program's kernel in its queue, after `before`; *after is its event. */
static void launch(const program *p, float a, const float *x, float *y, cl_uint nbefore,
                   const cl_event *before, cl_event *after)
{
    const size_t items = N;

    cl_ok(cl.clSetKernelArg(p->saxpy, 0, sizeof a, &a), "clSetKernelArg");
    cl_ok(p->set_pointer(p->saxpy, 1, x), p->set_pointer_name);
    cl_ok(p->set_pointer(p->saxpy, 2, y), p->set_pointer_name);
    cl_ok(cl.clEnqueueNDRangeKernel(p->queue, p->saxpy, 1, NULL, &items, NULL, nbefore, before,
                                    after),
          "clEnqueueNDRangeKernel");
}

/* y becomes a * x + y on the device:
 *
 *     libusm, out of order     copy x      copy y                copy back
 *                                   \      /  (cl_event)          /  (usm_event)
 *     the program's queue            saxpy ----------------------
 */
static void round_trip(const program *p, const inside *u, float a, const float *x, float *y)
{
    size_t     size = N * sizeof *x;
    float     *dx = usm_pool_malloc(u->pool, size), *dy = usm_pool_malloc(u->pool, size);
    usm_event *copied[2] = {NULL, NULL}, *computed = NULL, *back = NULL;
    void      *native[2] = {NULL, NULL};
    cl_event   wait[2], kernel = NULL;

    if (!dx || !dy)
        ok(usm_last_status());
    ok(usm_memcpy(u->other, dx, x, size, 0, NULL, &copied[0]));
    ok(usm_memcpy(u->other, dy, y, size, 0, NULL, &copied[1]));

    /* libusm's events in a call of OpenCL */
    for (int i = 0; i < 2; i++) {
        ok(usm_event_get_native(copied[i], "opencl", &native[i]));
        wait[i] = native[i];
    }
    launch(p, a, dx, dy, 2, wait, &kernel);

    /* OpenCL's event in a command of libusm */
    ok(usm_event_from_native(u->context, kernel, USM_TRANSFER, &computed));
    ok(usm_memcpy(u->other, y, dy, size, 1, &computed, &back));
    ok(usm_event_wait(back));

    usm_event_release(copied[0]);
    usm_event_release(copied[1]);
    usm_event_release(computed);
    usm_event_release(back);
    usm_pool_free(u->pool, dx);
    usm_pool_free(u->pool, dy);
}

/* The same queue seen from both sides: libusm's commands and the program's keep their order there
 * without events. */
static void one_queue(const program *p, const inside *u, float a, const float *x, float *y)
{
    size_t size = N * sizeof *x;
    float *dx = usm_pool_malloc(u->pool, size), *dy = usm_pool_malloc(u->pool, size);

    if (!dx || !dy)
        ok(usm_last_status());
    ok(usm_memcpy(u->over, dx, x, size, 0, NULL, NULL));
    ok(usm_memcpy(u->over, dy, y, size, 0, NULL, NULL));
    launch(p, a, dx, dy, 0, NULL, NULL);
    ok(usm_memcpy(u->over, y, dy, size, 0, NULL, NULL));
    ok(usm_queue_wait(u->over));
    usm_pool_free(u->pool, dx);
    usm_pool_free(u->pool, dy);
}

/* ---- checks -------------------------------------------------------------------------------- */

static void fill(float *x, float *y)
{
    for (size_t i = 0; i < N; i++) {
        x[i] = (float)(i % 1000);
        y[i] = 0.0f;
    }
}

/* Small whole numbers: float is exact. */
static size_t wrong(const float *x, const float *y, int rounds)
{
    size_t bad = 0;

    for (size_t i = 0; i < N; i++)
        bad += y[i] != 2.0f * x[i] * (float)rounds;
    return bad;
}

static bool context_still_works(const program *p)
{
    const cl_int seven = 7;
    cl_int       back[64], err = 0;
    bool         right  = true;
    cl_mem       buffer = cl.clCreateBuffer(p->context, CL_MEM_READ_WRITE, sizeof back, NULL, &err);

    cl_ok(err, "clCreateBuffer");
    cl_ok(cl.clEnqueueFillBuffer(p->queue, buffer, &seven, sizeof seven, 0, sizeof back, 0, NULL,
                                 NULL),
          "clEnqueueFillBuffer");
    cl_ok(cl.clEnqueueReadBuffer(p->queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL),
          "clEnqueueReadBuffer");
    for (int i = 0; i < 64; i++)
        right = right && back[i] == seven;
    cl.clReleaseMemObject(buffer);
    return right;
}

/* PoCL 6.0 keeps three references to a context whose queues were used and released, each time; 3.1
 * and Intel's runtime keep none, with the same calls. */
static bool keeps_references(const program *p)
{
    char version[128] = "";

    cl.clGetPlatformInfo(p->platform, CL_PLATFORM_VERSION, sizeof version - 1, version, NULL);
    return strstr(version, "PoCL 6") || strstr(version, "pocl 6");
}

/* libusm comes, is used, and goes; how many numbers are wrong. */
static size_t use_libusm(const program *p, int rounds, bool is_told)
{
    static float   x[N], y[N];
    inside         u = {0};
    usm_pool_stats s = USM_POOL_STATS_INIT;
    size_t         bad;

    enter(&u, p);
    fill(x, y);
    for (int i = 0; i < rounds; i++)
        (i % 2 ? one_queue : round_trip)(p, &u, 2.0f, x, y);
    bad = wrong(x, y, rounds);
    ok(usm_pool_get_stats(u.pool, &s));
    if (is_told) {
        printf("%d rounds of the program's kernel over libusm's memory (%s): %zu of %d numbers "
               "wrong\n",
               rounds, p->set_pointer_name, bad, N);
        printf("%llu blocks of 64 KiB were used; the pool asked the driver %llu times\n",
               2ULL * (unsigned long long)rounds, (unsigned long long)s.driver_allocs);
    }
    leave(&u);
    return bad;
}

int main(int argc, char **argv)
{
    program  p      = {0};
    int      rounds = argc > 1 ? atoi(argv[1]) : 100;
    unsigned before, after;
    size_t   bad;
    bool     works, kept;

    start_opencl(&p);
    bad    = use_libusm(&p, rounds, true);
    before = references_in_the_end(&p, references(&p)); /* drivers keep a queue's last events */
    bad += use_libusm(&p, rounds, false);
    works = context_still_works(&p);
    after = references_in_the_end(&p, before);
    printf(
        "libusm is gone, twice; the cl_context works on: %s; references to it: %u after the first "
        "time, %u after the second\n",
        works ? "yes" : "NO", before, after);
    kept = after > before && !keeps_references(&p);
    stop_opencl(&p);
    return bad || !works || kept;
}
