/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Conversion of Level Zero's codes to usm_status, and the error messages of failed calls.  Called
 * by every file of the backend. */
#include "level_zero.h"

#include "../common/story.h"

/* X(code, its number, status): any other code is USM_E_DEVICE.  Numbers, because some codes are
 * newer than the oldest headers. */
#define CODES(X)                                                                                   \
    X(ZE_RESULT_NOT_READY, 0x1, USM_E_NOT_READY)                                                   \
    X(ZE_RESULT_ERROR_DEVICE_LOST, 0x70000001, USM_E_DEVICE_LOST)                                  \
    X(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, 0x70000002, USM_E_NO_MEMORY)                             \
    X(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, 0x70000003, USM_E_NO_MEMORY)                           \
    X(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, 0x70000004, USM_E_BUILD)                               \
    X(ZE_RESULT_ERROR_MODULE_LINK_FAILURE, 0x70000005, USM_E_BUILD)                                \
    X(ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET, 0x70000006, USM_E_DEVICE_LOST)                        \
    X(ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE, 0x70000007, USM_E_DEVICE)                         \
    X(ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS, 0x70010000, USM_E_SYSTEM)                          \
    X(ZE_RESULT_ERROR_NOT_AVAILABLE, 0x70010001, USM_E_BUSY)                                       \
    X(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, 0x70020000, USM_E_NOT_SUPPORTED)                     \
    X(ZE_RESULT_WARNING_DROPPED_DATA, 0x70020001, USM_E_DEVICE)                                    \
    X(ZE_RESULT_ERROR_UNINITIALIZED, 0x78000001, USM_E_NO_BACKEND)                                 \
    X(ZE_RESULT_ERROR_UNSUPPORTED_VERSION, 0x78000002, USM_E_NOT_SUPPORTED)                        \
    X(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, 0x78000003, USM_E_NOT_SUPPORTED)                        \
    X(ZE_RESULT_ERROR_INVALID_ARGUMENT, 0x78000004, USM_E_INVALID)                                 \
    X(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, 0x78000005, USM_E_INVALID)                              \
    X(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, 0x78000006, USM_E_BUSY)                                \
    X(ZE_RESULT_ERROR_INVALID_NULL_POINTER, 0x78000007, USM_E_INVALID)                             \
    X(ZE_RESULT_ERROR_INVALID_SIZE, 0x78000008, USM_E_INVALID)                                     \
    X(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, 0x78000009, USM_E_SIZE)                                    \
    X(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, 0x7800000a, USM_E_ALIGNMENT)                          \
    X(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, 0x7800000b, USM_E_INVALID)                   \
    X(ZE_RESULT_ERROR_INVALID_ENUMERATION, 0x7800000c, USM_E_INVALID)                              \
    X(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION, 0x7800000d, USM_E_NOT_SUPPORTED)                    \
    X(ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT, 0x7800000e, USM_E_NOT_SUPPORTED)                   \
    X(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY, 0x7800000f, USM_E_BUILD)                              \
    X(ZE_RESULT_ERROR_INVALID_GLOBAL_NAME, 0x78000010, USM_E_INVALID)                              \
    X(ZE_RESULT_ERROR_INVALID_KERNEL_NAME, 0x78000011, USM_E_NO_KERNEL)                            \
    X(ZE_RESULT_ERROR_INVALID_FUNCTION_NAME, 0x78000012, USM_E_NO_KERNEL)                          \
    X(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION, 0x78000013, USM_E_INVALID)                     \
    X(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION, 0x78000014, USM_E_INVALID)                   \
    X(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX, 0x78000015, USM_E_ARGUMENTS)                  \
    X(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE, 0x78000016, USM_E_ARGUMENTS)                   \
    X(ZE_RESULT_ERROR_INVALID_KERNEL_ATTRIBUTE_VALUE, 0x78000017, USM_E_INVALID)                   \
    X(ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED, 0x78000018, USM_E_BUILD)                            \
    X(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, 0x78000019, USM_E_INVALID)                        \
    X(ZE_RESULT_ERROR_OVERLAPPING_REGIONS, 0x7800001a, USM_E_INVALID)                              \
    X(ZE_RESULT_WARNING_ACTION_REQUIRED, 0x7800001b, USM_E_DEVICE)                                 \
    X(ZE_RESULT_ERROR_INVALID_KERNEL_HANDLE, 0x7800001c, USM_E_INVALID)                            \
    X(ZE_RESULT_EXT_RTAS_BUILD_RETRY, 0x7800001d, USM_E_DEVICE)                                    \
    X(ZE_RESULT_EXT_RTAS_BUILD_DEFERRED, 0x7800001e, USM_E_DEVICE)                                 \
    X(ZE_RESULT_EXT_ERROR_OPERANDS_INCOMPATIBLE, 0x7800001f, USM_E_INVALID)                        \
    X(ZE_RESULT_ERROR_SURVIVABILITY_MODE_DETECTED, 0x78000020, USM_E_DEVICE)                       \
    X(ZE_RESULT_EXP_ERROR_DEVICE_IS_NOT_VERTEX, 0x7ff00001, USM_E_INVALID)                         \
    X(ZE_RESULT_EXP_ERROR_VERTEX_IS_NOT_DEVICE, 0x7ff00002, USM_E_INVALID)                         \
    X(ZE_RESULT_EXP_ERROR_REMOTE_DEVICE, 0x7ff00003, USM_E_NOT_SUPPORTED)                          \
    X(ZE_RESULT_EXP_ERROR_OPERANDS_INCOMPATIBLE, 0x7ff00004, USM_E_INVALID)                        \
    X(ZE_RESULT_EXP_RTAS_BUILD_RETRY, 0x7ff00005, USM_E_DEVICE)                                    \
    X(ZE_RESULT_EXP_RTAS_BUILD_DEFERRED, 0x7ff00006, USM_E_DEVICE)                                 \
    X(ZE_RESULT_ERROR_UNKNOWN, 0x7ffffffe, USM_E_DEVICE)

usm_status native_to_status(ze_result_t code)
{
    switch ((uint32_t)code) {
    case 0:
        return USM_OK;
#define CODE_CASE(name, number, status)                                                            \
    case number:                                                                                   \
        return status;
        CODES(CODE_CASE)
#undef CODE_CASE
    default:
        return USM_E_DEVICE;
    }
}

const char *lz_error_name(ze_result_t code)
{
    switch ((uint32_t)code) {
#define CODE_NAME(name, number, status)                                                            \
    case number:                                                                                   \
        return #name;
        CODES(CODE_NAME)
#undef CODE_NAME
    default:
        return "Level Zero error";
    }
}

usm_status lz_fail(ze_result_t code, const char *what)
{
    usm_status status = native_to_status(code);

    return lz_report(status, "%s failed: %s (0x%x)%s", what, lz_error_name(code), (unsigned)code,
                     message_remedy(status));
}

usm_status lz_free_status(ze_result_t code, const char *what)
{
    if (!code || native_to_status(code) == USM_E_DEVICE_LOST)
        return USM_OK;
    return lz_fail(code, what);
}
