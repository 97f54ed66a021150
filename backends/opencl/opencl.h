/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of the OpenCL backend: the driver's entry points, the objects, and the
 * functions used across files.  Not here: the interface to the core, which is usm/backend.h alone.
 * Included by backends/opencl only.
 *
 * Nothing of OpenCL is linked: functions are called as `cl.clFlush(q)` through a table that
 * loader.c fills.
 *
 * Locks: the registry's before a context's `deferral.lock`.  The driver may be called with either
 * held, the core with none. */
#ifndef USM_BACKENDS_OPENCL_H
#define USM_BACKENDS_OPENCL_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS /* clCreateCommandQueue */
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include "../common/commands.h"
#include "../common/instances.h"
#include "../common/kinds.h"
#include "../common/registry.h"
#include "base/inline/atomic.h"
#include "base/inline/list.h"
#include "base/inline/module.h"

#include <pthread.h>
#include <usm/backend.h>

/* --- the driver (loader.c, status.c) -------------------------------------- */

/* Functions of OpenCL 1.2, which are required. */
#define OCL_REQUIRED(X)                                                                            \
    X(clGetPlatformIDs)                                                                            \
    X(clGetPlatformInfo)                                                                           \
    X(clGetDeviceIDs)                                                                              \
    X(clGetDeviceInfo)                                                                             \
    X(clCreateSubDevices)                                                                          \
    X(clRetainDevice)                                                                              \
    X(clReleaseDevice)                                                                             \
    X(clCreateContext)                                                                             \
    X(clRetainContext)                                                                             \
    X(clReleaseContext)                                                                            \
    X(clGetContextInfo)                                                                            \
    X(clCreateCommandQueue)                                                                        \
    X(clRetainCommandQueue)                                                                        \
    X(clReleaseCommandQueue)                                                                       \
    X(clGetCommandQueueInfo)                                                                       \
    X(clFlush)                                                                                     \
    X(clFinish)                                                                                    \
    X(clCreateUserEvent)                                                                           \
    X(clSetUserEventStatus)                                                                        \
    X(clGetEventInfo)                                                                              \
    X(clGetEventProfilingInfo)                                                                     \
    X(clWaitForEvents)                                                                             \
    X(clSetEventCallback)                                                                          \
    X(clRetainEvent)                                                                               \
    X(clReleaseEvent)                                                                              \
    X(clEnqueueMarkerWithWaitList)                                                                 \
    X(clEnqueueBarrierWithWaitList)                                                                \
    X(clEnqueueNativeKernel)                                                                       \
    X(clEnqueueNDRangeKernel)                                                                      \
    X(clCreateProgramWithSource)                                                                   \
    X(clCreateProgramWithBinary)                                                                   \
    X(clBuildProgram)                                                                              \
    X(clGetProgramInfo)                                                                            \
    X(clGetProgramBuildInfo)                                                                       \
    X(clReleaseProgram)                                                                            \
    X(clCreateKernel)                                                                              \
    X(clReleaseKernel)                                                                             \
    X(clGetKernelInfo)                                                                             \
    X(clGetKernelArgInfo)                                                                          \
    X(clGetKernelWorkGroupInfo)                                                                    \
    X(clSetKernelArg)                                                                              \
    X(clGetExtensionFunctionAddressForPlatform)

/* NULL in an old loader; and they must not be called for a platform below 2.x. */
#define OCL_OPTIONAL(X)                                                                            \
    X(clCreateCommandQueueWithProperties)                                                          \
    X(clSVMAlloc)                                                                                  \
    X(clSVMFree)                                                                                   \
    X(clEnqueueSVMMemcpy)                                                                          \
    X(clEnqueueSVMMemFill)                                                                         \
    X(clEnqueueSVMMigrateMem)                                                                      \
    X(clSetKernelArgSVMPointer)                                                                    \
    X(clSetKernelExecInfo)                                                                         \
    X(clCreateProgramWithIL)

/* Functions of extensions: queried for each platform, NULL if it has none. */
#define OCL_EXTENSION(X)                                                                           \
    X(clHostMemAllocINTEL)                                                                         \
    X(clDeviceMemAllocINTEL)                                                                       \
    X(clSharedMemAllocINTEL)                                                                       \
    X(clMemFreeINTEL)                                                                              \
    X(clSetKernelArgMemPointerINTEL)                                                               \
    X(clEnqueueMemFillINTEL)                                                                       \
    X(clEnqueueMemcpyINTEL)                                                                        \
    X(clEnqueueMigrateMemINTEL)                                                                    \
    X(clCreateProgramWithILKHR)

typedef struct ocl_functions {
#define OCL_MEMBER(name) __typeof__(&name) name;
    OCL_REQUIRED(OCL_MEMBER)
    OCL_OPTIONAL(OCL_MEMBER)
#undef OCL_MEMBER
    void *library; /* NULL until it is loaded: under the lock of the registry of devices */
} ocl_functions;

typedef struct ocl_extensions {
#define OCL_MEMBER(name) name##_fn name;
    OCL_EXTENSION(OCL_MEMBER)
#undef OCL_MEMBER
} ocl_extensions;

extern ocl_functions       cl;
extern const usm_host_api *ocl_host;

/* Opens the loader once; false with the reason.  Registry lock held. */
bool ocl_load(char *why, size_t why_size);
void ocl_load_extensions(cl_platform_id platform, ocl_extensions *ext);

/* The only conversion of OpenCL's codes to statuses, and the name of a code. */
usm_status  native_to_status(cl_int code);
const char *ocl_error_name(cl_int code);
/* The status of a command whose execution status is `code` (< 0). */
usm_status ocl_execution_status(cl_int code);
/* Both report: "<what> failed: CL_OUT_OF_RESOURCES (-5); remedy". */
usm_status ocl_fail(cl_int code, const char *what);
#define ocl_no_memory() ocl_report(USM_E_NO_MEMORY, "the host heap is exhausted")
/* The origin of every failure.  A macro, so that analysers see that the path fails. */
#define ocl_report(status, ...) ((void)ocl_host->report((status), __VA_ARGS__), (status))

/* --- platforms and devices (device.c, describe.c, part.c) ----------------- */

/* How a device offers USM.  A context uses one way for all it allocates. */
typedef enum ocl_way { OCL_WAY_NONE, OCL_WAY_USM, OCL_WAY_SVM } ocl_way;

/* The capabilities of cl_intel_unified_shared_memory for each kind of memory. */
typedef struct ocl_usm_caps {
    cl_bitfield host, device, shared, system;
} ocl_usm_caps;

/* Platforms and devices live as long as the process. */
typedef struct ocl_platform {
    registry_driver link; /* first */
    cl_platform_id  id;
    char            name[128];
    unsigned        version; /* 100 * major + minor                              */
    ocl_extensions  ext;
} ocl_platform;

typedef struct ocl_device ocl_device;
struct ocl_device {
    registry_device link; /* first */
    /* fixed after create */
    cl_device_id       id;
    ocl_platform      *platform;
    ocl_device        *parent;
    ocl_usm_caps       usm;
    cl_bitfield        svm;
    ocl_way            way;
    bool               runs_native; /* runs host functions, in the host's own memory */
    bool               is_relaxed;  /* accepts Intel's flag for unrestricted sizes   */
    bool               has_il;
    bool               needs_streams; /* its out-of-order queues cannot be released */
    bool               has_amd_memory;
    usm_backend_device info;
};

extern registry ocl_registry;

/* Fills dev->info and the other fields with queries of the driver. */
usm_status ocl_device_describe(ocl_device *dev);
/* The partition of `dev`: the properties for clCreateSubDevices and the number of sub-devices; 0:
 * it cannot be partitioned. */
size_t ocl_device_cut(const ocl_device *dev, cl_device_partition_property props[4]);
/* A text of the driver, trimmed and shortened to fit. */
usm_status ocl_device_text(cl_device_id id, cl_device_info what, char *out, size_t cap);
usm_status ocl_platform_text(cl_platform_id id, cl_platform_info what, char *out, size_t cap);

/* The record of a native device, made (and the device retained) if it is new. */
usm_status ocl_device_find(cl_device_id id, ocl_device **dev);
/* A new record, not yet in the registry. `parent` may be NULL. */
usm_status ocl_device_new(ocl_platform *platform, cl_device_id id, ocl_device *parent,
                          ocl_device **dev);
/* The registry's list_parts. */
usm_status ocl_list_parts(registry_device *dev, registry_found *found);

/* --- contexts and memory (context.c, memory.c) ---------------------------- */

typedef struct ocl_context {
    defer_context deferral; /* first */
    /* fixed after create */
    cl_context            native;
    const ocl_platform   *platform;
    const ocl_extensions *ext;
    ocl_way               way;
    cl_bitfield           svm; /* the capabilities that all devices have */
    /* atomic */
    _Atomic(cl_event) done;    /* a completed event; made when first needed */
    _Atomic(uint64_t) serials; /* the last one given to a queue             */
    /* fixed after create */
    size_t      ndevices;
    ocl_device *devices[];
} ocl_context;

/* Makes a context over a native one and takes its reference; on failure the caller keeps it. */
usm_status ocl_context_wrap(cl_context native, size_t n, ocl_device *const *devices,
                            ocl_context **ctx);
void       ocl_context_free(defer_context *ctx); /* the deferral queue's context_free */

/* --- events (event.c) ------------------------------------------------------ */

typedef struct ocl_event {
    defer_event deferral; /* first                                                   */
    cl_event    native;   /* the driver's event, if native; stored before gate.state */
    uint64_t    queue;    /* serial number of its in-order queue; 0: none            */
    cl_event    shadow;   /* for a user event: for event_native, or a foreign event; guarded by the
                          lock */
} ocl_event;

/* The deferral queue's ops (submit.c); those of events are in event.c, of queues in queue.c. */
extern const defer_ops ocl_defer_ops;
usm_status             ocl_event_query_native(defer_event *ev);
usm_status             ocl_event_wait_native(defer_event *ev);
usm_status ocl_event_notify_native(defer_event *ev, usm_backend_notify_fn fn, void *arg);
void       ocl_event_settled(defer_event *ev);
void       ocl_event_fini(defer_event *ev);
void       ocl_queue_free(defer_queue *q);

/* Makes a pending event native; `native` belongs to it from here on. */
void ocl_event_become_native(ocl_event *ev, cl_event native, usm_list *notices);

/* --- programs and kernels (program.c, kernel.c) ---------------------------- */

typedef struct ocl_program {
    cl_program     native;
    ocl_context   *ctx;
    ocl_device    *dev;
    char          *kinds; /* kinds of arguments, if the driver does not know them; or NULL */
    _Atomic size_t refs;  /* the core's, and one for each kernel                           */
} ocl_program;

typedef struct ocl_kernel {
    ocl_program   *program;
    _Atomic size_t refs; /* the core's, and one for each busy instance */
    instances      idle;
    char           name[];
} ocl_kernel;

typedef struct ocl_instance {
    instance_link link; /* first */
    cl_kernel     native;
    ocl_kernel   *kernel;
    uint32_t      indirect_kinds; /* as set in the native kernel */
    bool          has_list;       /* of indirect pointers        */
} ocl_instance;

void ocl_program_unref(ocl_program *program);
/* The kind of an argument, as reported by the driver; USM_ARG_NONE: unknown (kinds.c). */
usm_arg_kind ocl_kind_asked(cl_kernel native, cl_uint index);
/* The kinds of all kernels, as text (../common/kinds.h) on the host heap. */
usm_status ocl_kinds_of_program(ocl_program *program, char **kinds);

void ocl_instance_give_back(ocl_instance *instance);

/* --- queues and commands (queue.c, stream.c, command.c, submit.c) ------------ */

#define OCL_MAX_LANES 8

typedef struct ocl_queue {
    defer_queue deferral; /* first */
    /* fixed after create */
    cl_command_queue native;
    ocl_device      *dev;
    uint32_t         flags;                  /* usm_queue_flags                              */
    uint32_t         nstreams;               /* 0: only `native`                             */
    cl_command_queue streams[OCL_MAX_LANES]; /* each in order; the first: native             */
    bool             must_finish;            /* wait before its last release                 */
    uint64_t         serial;                 /* unique among all queues, never reused, not 0 */
    /* atomic */
    _Atomic uint32_t next_stream;
} ocl_queue;

static inline ocl_context *ocl_context_of(const ocl_queue *q)
{
    return (ocl_context *)q->deferral.ctx;
}

/* Makes a queue over a native one and takes its reference; on failure the caller keeps it. */
usm_status ocl_queue_wrap(ocl_context *ctx, ocl_device *dev, cl_command_queue native,
                          uint32_t flags, ocl_queue **q);
/* The number of streams of an out-of-order queue of `dev`; 0: a native one can be used. */
uint32_t ocl_streams_of(const ocl_device *dev);
/* Waits for all native queues; _release releases them. */
cl_int ocl_streams_finish(const ocl_queue *q);
void   ocl_streams_release(const ocl_queue *q);

/* Passes a command to the driver and flushes; `event` may be NULL (stream.c). */
cl_int ocl_command_run(ocl_queue *q, const driver_command *cmd, cl_uint nwait, const cl_event *wait,
                       cl_event *event);
/* The same for one native queue, without a flush (command.c). */
cl_int ocl_command_run_in(const ocl_queue *q, cl_command_queue to, const driver_command *cmd,
                          cl_uint nwait, const cl_event *wait, cl_event *event);
/* Frees what the command owns. */
void ocl_command_drop(const defer_command *cmd);

/* --- the table ---------------------------------------------------------------- */

/* The functions of the backend's table, by the file that has them. */
/* clang-format off */
#define OCL_OPS(X)                                                                                 \
    /* device.c, part.c, describe.c */                                                             \
    X(devices) X(sub_devices) X(device_memory)                                                     \
    /* context.c, memory.c */                                                                      \
    X(context_create) X(context_destroy) X(mem_alloc) X(mem_free)                                  \
    /* queue.c, event.c */                                                                         \
    X(queue_create) X(queue_destroy) X(queue_wait) X(event_profiling)                              \
    /* program.c, kernel.c */                                                                      \
    X(program_build) X(program_destroy) X(program_binary) X(program_kernels) X(kernel_create)      \
    X(kernel_destroy) X(kernel_info) X(kernel_groups) X(launch)                                    \
    /* native.c */                                                                                 \
    X(context_from_native) X(context_native) X(device_native) X(queue_from_native)                 \
    X(queue_native) X(event_from_native) X(event_native)
/* clang-format on */
#define OCL_DECLARE(member) USM_DECLARE_ENTRY(usm_backend_ops, member, ocl_##member);
OCL_OPS(OCL_DECLARE)
#undef OCL_DECLARE

#endif
