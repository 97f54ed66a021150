/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A program over OpenCL that knows nothing of libusm, for startup.py: it opens every platform that the
 * loader finds, works a little on each, and ends in one of several ways:
 *
 *   cl_start use      all objects are released
 *   cl_start threads  8 threads with queues of their own; nothing is released
 *   cl_start fork     a child that uses OpenCL on its own, and one that inherits what is open
 *   cl_start exec     another program takes its place while commands are in flight
 *   cl_start exit     main() returns while commands are in flight
 *   cl_start callback the callback of an event frees a block with the call that waits for commands, where
 *                     the driver has it: its thread is the one that ends them
 *
 * It exits with 0, or with 1 and a message when a result is wrong. */
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLATFORMS 4
#define THREADS   8
#define ROUNDS    20
#define LARGE     ((size_t)8 << 20)

static struct {
    cl_uint      n; /* platforms with a device */
    cl_device_id device[PLATFORMS];
    cl_context   context[PLATFORMS];
    bool         has_svm[PLATFORMS];
} on;

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "cl_start: line %d: %s\n", __LINE__, #condition);                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void open_platforms(void)
{
    cl_platform_id platform[PLATFORMS];
    cl_uint        found = 0;
    cl_int         err;

    NEED(clGetPlatformIDs(PLATFORMS, platform, &found) == CL_SUCCESS);
    for (cl_uint i = 0; i < found && i < PLATFORMS; i++) {
        cl_device_svm_capabilities svm = 0;
        cl_uint                    k   = on.n;

        if (clGetDeviceIDs(platform[i], CL_DEVICE_TYPE_ALL, 1, &on.device[k], NULL) != CL_SUCCESS)
            continue;
        on.context[k] = clCreateContext(NULL, 1, &on.device[k], NULL, NULL, &err);
        NEED(err == CL_SUCCESS);
        (void)clGetDeviceInfo(on.device[k], CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL);
        on.has_svm[k] = svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
        on.n++;
    }
    NEED(on.n > 0);
}

static void close_platforms(void)
{
    for (cl_uint k = 0; k < on.n; k++)
        NEED(clReleaseContext(on.context[k]) == CL_SUCCESS);
    on.n = 0;
}

static cl_command_queue queue_of(cl_uint k)
{
    cl_int           err;
    cl_command_queue queue =
        clCreateCommandQueueWithProperties(on.context[k], on.device[k], NULL, &err);

    NEED(err == CL_SUCCESS);
    return queue;
}

static void use_svm(cl_uint k, cl_command_queue queue, size_t size, unsigned char with)
{
    unsigned char *p = clSVMAlloc(on.context[k], CL_MEM_READ_WRITE, size, 0);

    NEED(p != NULL);
    NEED(clEnqueueSVMMemFill(queue, p, &with, 1, size, 0, NULL, NULL) == CL_SUCCESS);
    NEED(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, p, size, 0, NULL, NULL) == CL_SUCCESS);
    NEED(p[0] == with && p[size - 1] == with);
    NEED(clEnqueueSVMUnmap(queue, p, 0, NULL, NULL) == CL_SUCCESS);
    NEED(clFinish(queue) == CL_SUCCESS);
    clSVMFree(on.context[k], p);
}

static void use_buffer(cl_uint k, cl_command_queue queue, size_t size, unsigned char with)
{
    unsigned char last   = 0;
    cl_int        err    = 0;
    cl_mem        buffer = clCreateBuffer(on.context[k], CL_MEM_READ_WRITE, size, NULL, &err);

    NEED(err == CL_SUCCESS);
    NEED(clEnqueueFillBuffer(queue, buffer, &with, 1, 0, size, 0, NULL, NULL) == CL_SUCCESS);
    NEED(clEnqueueReadBuffer(queue, buffer, CL_TRUE, size - 1, 1, &last, 0, NULL, NULL) ==
         CL_SUCCESS);
    NEED(last == with);
    NEED(clReleaseMemObject(buffer) == CL_SUCCESS);
}

static void use_platforms(void)
{
    for (cl_uint k = 0; k < on.n; k++) {
        cl_command_queue queue = queue_of(k);

        for (unsigned i = 1; i <= ROUNDS; i++) {
            if (on.has_svm[k])
                use_svm(k, queue, (size_t)i * 1000, (unsigned char)i);
            use_buffer(k, queue, (size_t)i * 1000, (unsigned char)i);
        }
        NEED(clReleaseCommandQueue(queue) == CL_SUCCESS);
    }
}

static void *use_in_thread(void *unused)
{
    (void)unused;
    use_platforms();
    return NULL;
}

static void use_in_threads(void)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        NEED(pthread_create(&threads[i], NULL, use_in_thread, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        NEED(pthread_join(threads[i], NULL) == 0);
}

/* Leaves queues with commands that are not waited for. */
static void begin_work(void)
{
    const unsigned char with = 7;

    for (cl_uint k = 0; k < on.n; k++) {
        cl_command_queue queue = queue_of(k);
        cl_int           err;
        cl_mem buffer = clCreateBuffer(on.context[k], CL_MEM_READ_WRITE, LARGE, NULL, &err);

        NEED(err == CL_SUCCESS);
        for (int i = 0; i < 4; i++)
            NEED(clEnqueueFillBuffer(queue, buffer, &with, 1, 0, LARGE, 0, NULL, NULL) ==
                 CL_SUCCESS);
        if (on.has_svm[k]) {
            void *p = clSVMAlloc(on.context[k], CL_MEM_READ_WRITE, LARGE / 4, 0);

            NEED(p != NULL);
            NEED(clEnqueueSVMMemFill(queue, p, &with, 1, LARGE / 4, 0, NULL, NULL) == CL_SUCCESS);
        }
        NEED(clFlush(queue) == CL_SUCCESS);
    }
}

static void expect_success_of(pid_t child)
{
    int status = -1;

    NEED(child > 0);
    NEED(waitpid(child, &status, 0) == child);
    NEED(status == 0);
}

static void use_in_children(void)
{
    pid_t child = fork();

    if (child == 0) {
        open_platforms();
        use_platforms();
        close_platforms();
        _exit(0);
    }
    expect_success_of(child);
    open_platforms();
    use_platforms();
    child = fork();
    if (child == 0) { /* the drivers' threads are not in here */
        for (cl_uint k = 0; k < on.n; k++)
            if (on.has_svm[k])
                clSVMFree(on.context[k], clSVMAlloc(on.context[k], CL_MEM_READ_WRITE, 1000, 0));
        _exit(0);
    }
    expect_success_of(child);
    use_platforms();
    close_platforms();
}

typedef struct freeing {
    clMemBlockingFreeINTEL_fn fn;
    cl_context                context;
    void                     *p;
} freeing;

static void CL_CALLBACK free_in_callback(cl_event event, cl_int status, void *user)
{
    const freeing *f = user;

    (void)event;
    NEED(status == CL_COMPLETE);
    NEED(f->fn(f->context, f->p) == CL_SUCCESS);
}

static void free_in_callbacks(cl_uint k, cl_platform_id platform)
{
    static freeing           f[ROUNDS];
    cl_command_queue         queue = queue_of(k);
    clDeviceMemAllocINTEL_fn alloc =
        (clDeviceMemAllocINTEL_fn)(uintptr_t)clGetExtensionFunctionAddressForPlatform(
            platform, "clDeviceMemAllocINTEL");
    clMemBlockingFreeINTEL_fn fn =
        (clMemBlockingFreeINTEL_fn)(uintptr_t)clGetExtensionFunctionAddressForPlatform(
            platform, "clMemBlockingFreeINTEL");
    const unsigned char with = 7;
    cl_int              err;
    cl_mem buffer = clCreateBuffer(on.context[k], CL_MEM_READ_WRITE, LARGE, NULL, &err);

    NEED(err == CL_SUCCESS);
    for (size_t i = 0; alloc && fn && i < ROUNDS; i++) {
        cl_event event;

        f[i] = (freeing){fn, on.context[k],
                         alloc(on.context[k], on.device[k], NULL, LARGE / 8, 0, &err)};
        NEED(err == CL_SUCCESS);
        NEED(clEnqueueFillBuffer(queue, buffer, &with, 1, 0, LARGE, 0, NULL, &event) == CL_SUCCESS);
        NEED(clSetEventCallback(event, CL_COMPLETE, free_in_callback, &f[i]) == CL_SUCCESS);
        NEED(clReleaseEvent(event) == CL_SUCCESS);
        NEED(clFlush(queue) == CL_SUCCESS);
    }
    NEED(clReleaseMemObject(buffer) == CL_SUCCESS);
    NEED(clFinish(queue) == CL_SUCCESS);
    NEED(clReleaseCommandQueue(queue) == CL_SUCCESS);
}

static void use_callbacks(void)
{
    for (cl_uint k = 0; k < on.n; k++) {
        cl_platform_id platform = NULL;

        NEED(clGetDeviceInfo(on.device[k], CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL) ==
             CL_SUCCESS);
        free_in_callbacks(k, platform);
    }
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "use";

    if (strcmp(how, "fork") == 0) {
        use_in_children();
        return 0;
    }
    open_platforms();
    if (strcmp(how, "threads") == 0)
        use_in_threads();
    else if (strcmp(how, "callback") == 0)
        use_callbacks();
    else
        use_platforms();
    if (strcmp(how, "use") == 0)
        close_platforms();
    if (strcmp(how, "exec") == 0 || strcmp(how, "exit") == 0)
        begin_work();
    if (strcmp(how, "exec") == 0) {
        (void)execl("/proc/self/exe", argv[0], "use", (char *)NULL);
        NEED(!"execl");
    }
    return 0;
}
