/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every public object starts with a magic word, by which it is recognised.  Objects are allocated
 * from type-stable slots (base/meta.h), so a stale handle can be read safely.  It is refused until
 * its slot is reused. */
#ifndef USM_DEVICE_HANDLE_H
#define USM_DEVICE_HANDLE_H

#include "base/inline/atomic.h"
#include "base/status.h"

typedef enum usm__magic {
    USM__MAGIC_DEAD          = 0x64656164,
    USM__MAGIC_DEVICE        = 0x75736d01,
    USM__MAGIC_CONTEXT       = 0x75736d02,
    USM__MAGIC_QUEUE         = 0x75736d03,
    USM__MAGIC_EVENT         = 0x75736d04,
    USM__MAGIC_POOL          = 0x75736d05,
    USM__MAGIC_PROGRAM       = 0x75736d06,
    USM__MAGIC_KERNEL        = 0x75736d07,
    USM__MAGIC_BUFFER        = 0x75736d08,
    USM__MAGIC_CHANNEL       = 0x75736d09,
    USM__MAGIC_IPC_EVENT     = 0x75736d0a,
    USM__MAGIC_SHARED_BUFFER = 0x75736d0b,
    USM__MAGIC_TEAM          = 0x75736d0c,
    USM__MAGIC_TEAM_KERNEL   = 0x75736d0d,
    USM__MAGIC_LAUNCH        = 0x75736d0e,
    USM__MAGIC_GRAPH         = 0x75736d0f,
    USM__MAGIC_TEMPLATE      = 0x75736d10
} usm__magic;

typedef _Atomic(uint32_t) usm__magic_word;

/* Writes the error message for a handle that is not a `want`. */
usm_status usm__handle_refuse(const void *h, usm__magic want);

static inline bool usm__handle_is(const void *h, usm__magic want)
{
    return h && ((uintptr_t)h & 7) == 0 &&
           usm_load_acquire((usm__magic_word *)(uintptr_t)h) == (uint32_t)want;
}

static inline usm_status usm__handle_check(const void *h, usm__magic want)
{
    if (usm__handle_is(h, want))
        return USM_OK;
    (void)usm__handle_refuse(h, want);
    return USM_E_INVALID_HANDLE;
}

/* Marks a live handle as dead, once: false if another thread was faster. */
static inline bool usm__handle_kill(void *h, usm__magic was)
{
    uint32_t expected = (uint32_t)was;

    return usm_cas_acq_rel((usm__magic_word *)h, &expected, (uint32_t)USM__MAGIC_DEAD);
}

#endif
