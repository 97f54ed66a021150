/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Phrases that the error messages of all drivers have in common.  Called by the status.c and
 * kernel.c of each backend. */
#ifndef USM_BACKENDS_COMMON_STORY_H
#define USM_BACKENDS_COMMON_STORY_H

#include <usm/backend.h>

/* The text after "<call> failed: <code>". */
static inline const char *message_remedy(usm_status status)
{
    if (status == USM_E_NO_MEMORY)
        return "; free memory or ask for less";
    if (status == USM_E_DEVICE_LOST)
        return "; the device must be reset and the program started again";
    if (status == USM_E_DEVICE)
        return "; see the driver's own log";
    return "";
}

/* "argument 2 cannot be <a pointer>" */
static inline const char *message_arg(usm_arg_kind kind)
{
    static const char *const kinds[] = {
        [USM_ARG_NONE]    = "nothing",
        [USM_ARG_POINTER] = "a pointer",
        [USM_ARG_VALUE]   = "a value",
        [USM_ARG_LOCAL]   = "local memory",
    };

    return kinds[kind];
}

#endif
