/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Statistics of transfers: bytes, the time in which at least one was under way, how long each took
 * (tier_stats.c).  The caller holds a lock.  For tiers and backing stores. */
#ifndef USM_SPILL_FLOW_H
#define USM_SPILL_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A histogram of times with eight buckets to a doubling: p50 and p99 are exact to an eighth. */
#define USM__TIMES_BUCKETS 320

typedef struct usm__times {
    uint64_t count;
    uint32_t buckets[USM__TIMES_BUCKETS];
} usm__times;

void     usm__times_add(usm__times *h, uint64_t ns);
uint64_t usm__times_quantile(const usm__times *h, double q);

/* One direction of transfers. */
typedef struct usm__flow {
    uint64_t   bytes, transfers;
    uint64_t   busy_ns;  /* time with at least one under way, without the current stretch     */
    uint64_t   since_ns; /* when the current stretch began                                    */
    uint32_t   flying;
    usm__times times;
} usm__flow;

void     usm__flow_begin(usm__flow *f, uint64_t now);
void     usm__flow_end(usm__flow *f, uint64_t now, uint64_t start, size_t bytes, bool ok);
uint64_t usm__flow_busy(const usm__flow *f, uint64_t now);

#endif
