/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The OpenCL runtime behind SPIR-V modules.  Included by opencl.c, clbuild.c, clrun.c,
 * translate.c, uncast.c. */
#ifndef ZE_SOFT_OPENCL_H
#define ZE_SOFT_OPENCL_H

#include "module.h"

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>

/* The functions the driver calls: of a loader or of one runtime. */
#define SOFT_CL_FUNCTIONS(X)                                                                       \
    X(GetPlatformInfo)                                                                             \
    X(GetDeviceIDs)                                                                                \
    X(GetDeviceInfo)                                                                               \
    X(CreateContext)                                                                               \
    X(CreateCommandQueueWithProperties)                                                            \
    X(ReleaseCommandQueue)                                                                         \
    X(CreateProgramWithBinary)                                                                     \
    X(BuildProgram)                                                                                \
    X(CompileProgram)                                                                              \
    X(LinkProgram)                                                                                 \
    X(GetProgramBuildInfo)                                                                         \
    X(ReleaseProgram)                                                                              \
    X(CreateKernel)                                                                                \
    X(ReleaseKernel)                                                                               \
    X(SetKernelArg)                                                                                \
    X(SetKernelArgSVMPointer)                                                                      \
    X(SetKernelExecInfo)                                                                           \
    X(GetKernelWorkGroupInfo)                                                                      \
    X(EnqueueNDRangeKernel)                                                                        \
    X(WaitForEvents)                                                                               \
    X(GetEventInfo)                                                                                \
    X(ReleaseEvent)                                                                                \
    X(GetExtensionFunctionAddressForPlatform)

typedef cl_program CL_API_CALL soft_cl_with_il(cl_context, const void *, size_t, cl_int *);
typedef cl_int CL_API_CALL     soft_cl_global_fn(cl_device_id, cl_program, const char *, size_t *,
                                                 void **);
typedef cl_int CL_API_CALL soft_cl_function_fn(cl_device_id, cl_program, const char *, cl_ulong *);

typedef struct soft_cl {
#define X(name) __typeof__(&cl##name) name; /* the names of its types differ between headers */
    SOFT_CL_FUNCTIONS(X)
#undef X
    soft_cl_with_il     *create_with_il; /* NULL: SPIR bitcode made by `tool` */
    soft_cl_global_fn   *global;         /* or NULL */
    soft_cl_function_fn *function;       /* or NULL */
    cl_platform_id       platform;
    cl_device_id         device;
    cl_context           context;
    bool                 has_system_svm;
    unsigned             llvm; /* whose bitcode it takes; 0: not known */
    char                 name[128];
} soft_cl;

/* The runtime, chosen at the first call; NULL and why in the log when there is none. */
const soft_cl *soft_cl_runtime(soft_text *log);
ze_result_t    soft_cl_result(cl_int error);

/* Around whatever compiles or runs there; false: the process ends, and nothing does any more. */
bool soft_cl_enter(void);
void soft_cl_leave(bool has_run);

/* SPIR-V to SPIR bitcode for runtimes without SPIR-V, one bitcode of all units; *data is of
 * malloc. */
ze_result_t soft_translate(const soft_cl *cl, const soft_unit *const *units, size_t nunits,
                           soft_text *log, uint8_t **data, size_t *size);
/* Whether the tool is on PATH: for the choice of the runtime. */
bool soft_can_translate(unsigned llvm);
/* Atomic operations on pointers cast to the generic address space get what was cast (uncast.c);
 * false: no memory. */
bool soft_uncast_atomics(uint32_t *words, size_t nwords);

#endif
