/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Conversion of OpenCL's codes to usm_status, and the error messages of failed calls.  Called by
 * every file of the backend. */
#include "opencl.h"

#include "../common/story.h"

/* Codes of drivers, missing in some headers. */
#define CL_CONTEXT_TERMINATED (-1121) /* cl_khr_terminate_context            */
#define CL_NV_ILLEGAL_ACCESS  (-9999) /* NVIDIA: a kernel's bad pointer      */
#ifndef CL_PLATFORM_NOT_FOUND_KHR
#define CL_PLATFORM_NOT_FOUND_KHR (-1001)
#endif

/* X(code, status): any other code is USM_E_DEVICE. */
#define CODES(X)                                                                                   \
    X(CL_DEVICE_NOT_FOUND, USM_E_NO_DEVICE)                                                        \
    X(CL_DEVICE_NOT_AVAILABLE, USM_E_DEVICE_LOST)                                                  \
    X(CL_COMPILER_NOT_AVAILABLE, USM_E_NO_IMAGE)                                                   \
    X(CL_MEM_OBJECT_ALLOCATION_FAILURE, USM_E_NO_MEMORY)                                           \
    X(CL_OUT_OF_RESOURCES, USM_E_NO_MEMORY)                                                        \
    X(CL_OUT_OF_HOST_MEMORY, USM_E_NO_MEMORY)                                                      \
    X(CL_PROFILING_INFO_NOT_AVAILABLE, USM_E_NOT_SUPPORTED)                                        \
    X(CL_MEM_COPY_OVERLAP, USM_E_INVALID)                                                          \
    X(CL_BUILD_PROGRAM_FAILURE, USM_E_BUILD)                                                       \
    X(CL_MISALIGNED_SUB_BUFFER_OFFSET, USM_E_ALIGNMENT)                                            \
    X(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, USM_E_DEPENDENCY)                              \
    X(CL_COMPILE_PROGRAM_FAILURE, USM_E_BUILD)                                                     \
    X(CL_LINKER_NOT_AVAILABLE, USM_E_NO_IMAGE)                                                     \
    X(CL_LINK_PROGRAM_FAILURE, USM_E_BUILD)                                                        \
    X(CL_DEVICE_PARTITION_FAILED, USM_E_NOT_SUPPORTED)                                             \
    X(CL_KERNEL_ARG_INFO_NOT_AVAILABLE, USM_E_NOT_SUPPORTED)                                       \
    X(CL_INVALID_VALUE, USM_E_INVALID)                                                             \
    X(CL_INVALID_DEVICE, USM_E_INVALID)                                                            \
    X(CL_INVALID_CONTEXT, USM_E_INVALID)                                                           \
    X(CL_INVALID_QUEUE_PROPERTIES, USM_E_NOT_SUPPORTED)                                            \
    X(CL_INVALID_COMMAND_QUEUE, USM_E_INVALID)                                                     \
    X(CL_INVALID_BINARY, USM_E_BUILD)                                                              \
    X(CL_INVALID_BUILD_OPTIONS, USM_E_BUILD)                                                       \
    X(CL_INVALID_PROGRAM_EXECUTABLE, USM_E_NO_IMAGE)                                               \
    X(CL_INVALID_KERNEL_NAME, USM_E_NO_KERNEL)                                                     \
    X(CL_INVALID_ARG_INDEX, USM_E_ARGUMENTS)                                                       \
    X(CL_INVALID_ARG_VALUE, USM_E_ARGUMENTS)                                                       \
    X(CL_INVALID_ARG_SIZE, USM_E_ARGUMENTS)                                                        \
    X(CL_INVALID_KERNEL_ARGS, USM_E_ARGUMENTS)                                                     \
    X(CL_INVALID_WORK_DIMENSION, USM_E_INVALID)                                                    \
    X(CL_INVALID_WORK_GROUP_SIZE, USM_E_INVALID)                                                   \
    X(CL_INVALID_WORK_ITEM_SIZE, USM_E_INVALID)                                                    \
    X(CL_INVALID_GLOBAL_OFFSET, USM_E_INVALID)                                                     \
    X(CL_INVALID_EVENT, USM_E_INVALID)                                                             \
    X(CL_INVALID_OPERATION, USM_E_NOT_SUPPORTED)                                                   \
    X(CL_INVALID_BUFFER_SIZE, USM_E_SIZE)                                                          \
    X(CL_INVALID_GLOBAL_WORK_SIZE, USM_E_INVALID)                                                  \
    X(CL_INVALID_PROPERTY, USM_E_NOT_SUPPORTED)                                                    \
    X(CL_INVALID_COMPILER_OPTIONS, USM_E_BUILD)                                                    \
    X(CL_INVALID_LINKER_OPTIONS, USM_E_BUILD)                                                      \
    X(CL_INVALID_DEVICE_PARTITION_COUNT, USM_E_NOT_SUPPORTED)                                      \
    X(CL_PLATFORM_NOT_FOUND_KHR, USM_E_NO_DEVICE)                                                  \
    X(CL_CONTEXT_TERMINATED, USM_E_DEVICE_LOST)                                                    \
    X(CL_NV_ILLEGAL_ACCESS, USM_E_DEVICE_LOST)                                                     \
    X(CL_MAP_FAILURE, USM_E_DEVICE)                                                                \
    X(CL_INVALID_PROGRAM, USM_E_DEVICE)                                                            \
    X(CL_INVALID_KERNEL, USM_E_DEVICE)                                                             \
    X(CL_INVALID_EVENT_WAIT_LIST, USM_E_DEVICE)                                                    \
    X(CL_INVALID_MEM_OBJECT, USM_E_DEVICE)

usm_status native_to_status(cl_int code)
{
    switch (code) {
    case CL_SUCCESS:
        return USM_OK;
#define CODE_CASE(name, status)                                                                    \
    case name:                                                                                     \
        return status;
        CODES(CODE_CASE)
#undef CODE_CASE
    default:
        return USM_E_DEVICE;
    }
}

const char *ocl_error_name(cl_int code)
{
    switch (code) {
#define CODE_NAME(name, status)                                                                    \
    case name:                                                                                     \
        return #name;
        CODES(CODE_NAME)
#undef CODE_NAME
    default:
        return "OpenCL error";
    }
}

usm_status ocl_execution_status(cl_int code)
{
    /* PoCL 3.1 marks the dependents of a failed command with -1. */
    return code == -1 ? USM_E_DEPENDENCY : native_to_status(code);
}

usm_status ocl_fail(cl_int code, const char *what)
{
    usm_status status = native_to_status(code);

    return ocl_report(status, "%s failed: %s (%d)%s", what, ocl_error_name(code), (int)code,
                      message_remedy(status));
}
