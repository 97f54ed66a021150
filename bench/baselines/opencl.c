/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opening a device of OpenCL by hand (opencl.h). */
#include "opencl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 16 /* platforms, and devices of one */

void opencl_check(cl_int status, const char *what)
{
    char text[128];

    if (status == CL_SUCCESS)
        return;
    snprintf(text, sizeof text, "%s: OpenCL says %d", what, (int)status);
    baseline_die(text);
}

static bool is_wanted(cl_device_id device, const char *wanted)
{
    char name[256] = "";

    return !wanted ||
           (clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL) == CL_SUCCESS &&
            strstr(name, wanted));
}

static cl_device_id find_device(cl_device_type type, const char *wanted)
{
    cl_platform_id platforms[MOST];
    cl_device_id   devices[MOST];
    cl_uint        nplatforms = 0, ndevices;

    opencl_check(clGetPlatformIDs(MOST, platforms, &nplatforms), "looking for platforms");
    for (cl_uint p = 0; p < nplatforms && p < MOST; p++) {
        if (clGetDeviceIDs(platforms[p], type, MOST, devices, &ndevices) != CL_SUCCESS)
            continue;
        for (cl_uint d = 0; d < ndevices && d < MOST; d++) {
            if (is_wanted(devices[d], wanted))
                return devices[d];
        }
    }
    return NULL;
}

/* "USMK1 <entries>", "opencl_c <bytes>" and perhaps another entry, an empty line, the payloads. */
static void build(struct opencl *cl, const unsigned char *bundle)
{
    const char *header = (const char *)bundle, *text = strstr(header, "\n\n");
    size_t      size;
    cl_int      status;

    if (!text || sscanf(header, "USMK1 %*d opencl_c %zu", &size) != 1)
        baseline_die("the kernels in the program are no bundle");
    text += 2;
    cl->program = clCreateProgramWithSource(cl->context, 1, &text, &size, &status);
    opencl_check(status, "making the program");
    opencl_check(clBuildProgram(cl->program, 1, &cl->device, "", NULL, NULL), "building it");
}

void opencl_open(struct opencl *cl, const char *device, const unsigned char *bundle)
{
    cl_int status;

    cl->device = find_device(CL_DEVICE_TYPE_GPU, device);
    if (!cl->device)
        cl->device = find_device(CL_DEVICE_TYPE_ALL, device);
    if (!cl->device)
        baseline_die("there is no such OpenCL device");
    cl->context = clCreateContext(NULL, 1, &cl->device, NULL, NULL, &status);
    opencl_check(status, "making a context");
    cl->queue = clCreateCommandQueue(cl->context, cl->device, 0, &status);
    opencl_check(status, "making a queue");
    build(cl, bundle);
}

void opencl_close(struct opencl *cl)
{
    clReleaseProgram(cl->program);
    clReleaseCommandQueue(cl->queue);
    clReleaseContext(cl->context);
}

cl_kernel opencl_kernel(struct opencl *cl, const char *name)
{
    cl_int    status;
    cl_kernel kernel = clCreateKernel(cl->program, name, &status);

    opencl_check(status, "making the kernel");
    return kernel;
}

cl_mem opencl_buffer(struct opencl *cl, size_t bytes)
{
    cl_int status;
    cl_mem buffer = clCreateBuffer(cl->context, CL_MEM_READ_WRITE, bytes, NULL, &status);

    opencl_check(status, "making a buffer");
    return buffer;
}
