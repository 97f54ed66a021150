/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* `usm-bench async` inside.
 *
 * Its workers (`usm-bench --worker async`, `--worker async-plugin:FILE`) read commands, a line
 * each, and answer each with a line, "ok ..." or "error TEXT": run WHAT SIZE N          ok NS    of
 * one operation, on one in-order queue async                  usm_async_malloc, usm_async_free pool
 * usm_pool_malloc, usm_pool_free driver                 the driver's own allocation, a wait for the
 * queue, its free memset memcpy          until they are submitted; raw-memset, raw-memcpy: the
 * driver's call replay QUEUES GATED      ok RESERVED_PEAK ASKED_PEAK GROWTH LEFT HOST_WAITS
 *   blocked N                ok CALLS    async frees that returned while their queue could not go
 * on A plugin (sycl_commands.cpp) has async, memset, memcpy, and memset-plain and memcpy-plain,
 * which ask for no event. */
#ifndef USM_BENCH_ASYNC_H
#define USM_BENCH_ASYNC_H

#include <usm/usm.h>

#include <stdbool.h>
#include <stdint.h>

int bench_async_worker(const char *what);

typedef struct async_peak {
    uint64_t reserved;   /* at most                                                      */
    uint64_t asked;      /* of the sizes, at most: what it could do with                  */
    uint64_t growth;     /* when a queue that comes later does one replay alone            */
    uint64_t left;       /* after all queues were waited for and the pool was trimmed to 0 */
    uint64_t host_waits; /* USM_POOL_HOST_WAITS                                           */
} async_peak;

/* Four replays of a training step, interleaved, on so many queues.  is_gated: what a queue was told
 * in a turn is done only after its next turn.  false and a text on stderr. */
bool async_replay(usm_context *ctx, unsigned nqueues, bool is_gated, async_peak *peak);

#endif
