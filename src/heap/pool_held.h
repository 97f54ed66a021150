/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a pool has taken from its driver.  The counts lie in the pool, or in the monitor page of the
 * process (monitor/page.h), where other processes read them. */
#ifndef USM_HEAP_POOL_HELD_H
#define USM_HEAP_POOL_HELD_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct usm__pool_held {
    _Atomic(uint64_t) reserved, reserved_peak; /* bytes */
    _Atomic(uint64_t) driver_allocs, driver_frees;
} usm__pool_held;

#endif
