/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What every OpenCL program begins with: a device, a context, a queue in order, a program built. */
#ifndef BASELINE_OPENCL_H
#define BASELINE_OPENCL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "baseline.h"

struct opencl {
    cl_device_id     device;
    cl_context       context;
    cl_command_queue queue;
    cl_program       program;
};

/* `bundle` is what usm_add_kernels() made (cmake/UsmKernels.cmake): the text is taken of it. */
void opencl_open(struct opencl *cl, const char *device, const unsigned char *bundle);
void opencl_close(struct opencl *cl);

cl_kernel opencl_kernel(struct opencl *cl, const char *name);
cl_mem    opencl_buffer(struct opencl *cl, size_t bytes);
/* Every call's; ends the process unless it is CL_SUCCESS. */
void opencl_check(cl_int status, const char *what);

#endif
