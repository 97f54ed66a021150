/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a pool has taken from its driver, and what of it is in use.  The counts lie in the pool, or in the
 * monitor page of the process (monitor/page.h), where other processes read them. */
#ifndef USM_HEAP_POOL_HELD_H
#define USM_HEAP_POOL_HELD_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct usm__pool_held {
    _Atomic(uint64_t) reserved, reserved_peak; /* bytes */
    _Atomic(uint64_t) driver_allocs, driver_frees;
    /* Of a pool `slab`: bytes in large blocks; bytes of others that were handed out, minus what the
     * magazines of threads may hold.  Their sum is the least that is live. */
    _Atomic(uint64_t) large_bytes;
    _Atomic(int64_t)  low_bytes;
} usm__pool_held;

#endif
