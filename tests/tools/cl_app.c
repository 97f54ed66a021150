/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A program over OpenCL that knows nothing of libusm, for test_usm_exec_queues.sh.  On three queues
 * of one device, the second with profiling, the third out of order: three kernels, two fills, six
 * copies, two maps, and what ends them. */
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>

#include <stdio.h>

#define ITEMS 1024
#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "cl_app: line %d: %s\n", __LINE__, #condition);                  \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static int copy_rects(cl_command_queue queue, cl_mem mem, cl_int *out)
{
    const size_t at[3] = {0, 0, 0}, to[3] = {64, 0, 0}, region[3] = {16, 4, 1};

    NEED(!clEnqueueWriteBufferRect(queue, mem, CL_TRUE, at, at, region, 128, 0, 128, 0, out, 0,
                                   NULL, NULL));
    NEED(!clEnqueueCopyBufferRect(queue, mem, mem, at, to, region, 128, 0, 128, 0, 0, NULL, NULL));
    NEED(!clEnqueueReadBufferRect(queue, mem, CL_TRUE, at, at, region, 128, 0, 128, 0, out, 0, NULL,
                                  NULL));
    return 0;
}

static int use_svm(cl_context ctx, cl_command_queue queue)
{
    const cl_int one = 1;
    cl_int      *p   = clSVMAlloc(ctx, CL_MEM_READ_WRITE, 2 * ITEMS, 0);

    NEED(p && !clEnqueueSVMMemFill(queue, p, &one, sizeof one, ITEMS, 0, NULL, NULL));
    NEED(!clFinish(queue));
    NEED(!clEnqueueSVMMemcpy(queue, CL_TRUE, p + ITEMS / 4, p, ITEMS, 0, NULL, NULL));
    NEED(!clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, p, 2 * ITEMS, 0, NULL, NULL));
    NEED(p[ITEMS / 2 - 1] == 1);
    NEED(!clEnqueueSVMUnmap(queue, p, 0, NULL, NULL) && !clFinish(queue));
    clSVMFree(ctx, p);
    return 0;
}

static int work(cl_context ctx, cl_command_queue queue, cl_kernel add_one)
{
    const size_t global = ITEMS;
    const cl_int zero   = 0;
    cl_int       err, out[ITEMS], *mapped;
    cl_mem       mem  = clCreateBuffer(ctx, CL_MEM_READ_WRITE, sizeof out, NULL, &err);
    cl_event     last = NULL, event;

    NEED(!err && !clSetKernelArg(add_one, 0, sizeof mem, &mem));
    NEED(!clEnqueueFillBuffer(queue, mem, &zero, sizeof zero, 0, sizeof out, 0, NULL, &last));
    for (int i = 0; i < 3; i++) {
        NEED(!clEnqueueNDRangeKernel(queue, add_one, 1, NULL, &global, NULL, 1, &last, &event));
        NEED(!clReleaseEvent(last));
        last = event;
    }
    NEED(!clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, sizeof out, out, 1, &last, NULL));
    NEED(out[0] == 3 && out[ITEMS - 1] == 3 && !clReleaseEvent(last));
    NEED(!clEnqueueWriteBuffer(queue, mem, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL));
    mapped =
        clEnqueueMapBuffer(queue, mem, CL_TRUE, CL_MAP_READ, 0, sizeof out, 0, NULL, NULL, &err);
    NEED(!err && mapped[1] == 3);
    NEED(!clEnqueueUnmapMemObject(queue, mem, mapped, 0, NULL, NULL) && !clFinish(queue));
    NEED(!copy_rects(queue, mem, out) && !use_svm(ctx, queue));
    return clReleaseMemObject(mem);
}

int main(void)
{
    static const cl_command_queue_properties kinds[] = {0, CL_QUEUE_PROFILING_ENABLE,
                                                        CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE};

    const char    *source = "kernel void add_one(global int *p) { p[get_global_id(0)]++; }";
    cl_platform_id platform;
    cl_device_id   dev;
    cl_context     ctx;
    cl_program     program;
    cl_kernel      add_one;
    cl_int         err;

    NEED(!clGetPlatformIDs(1, &platform, NULL));
    NEED(!clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &dev, NULL));
    ctx = clCreateContext(NULL, 1, &dev, NULL, NULL, &err);
    NEED(!err);
    program = clCreateProgramWithSource(ctx, 1, &source, NULL, &err);
    NEED(program && !clBuildProgram(program, 1, &dev, NULL, NULL, NULL));
    add_one = clCreateKernel(program, "add_one", &err);
    NEED(!err);
    for (int i = 0; i < 3; i++) {
        const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, kinds[i], 0};
        cl_command_queue queue = clCreateCommandQueueWithProperties(ctx, dev, properties, &err);

        NEED(!err && !work(ctx, queue, add_one));
        NEED(!clReleaseCommandQueue(queue));
    }
    (void)clReleaseKernel(add_one);
    (void)clReleaseProgram(program);
    return clReleaseContext(ctx);
}
