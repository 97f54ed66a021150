/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of the null backend.  Functions whose names end in those of the interface are
 * entries of the table in null.c; usm/backend.h has their contract. */
#ifndef USM_BACKENDS_NULL_H
#define USM_BACKENDS_NULL_H

#include <base/inline/atomic.h>
#include <base/inline/bits.h>
#include <base/inline/module.h>
#include <usm/backend.h>

/* The backend; its address is the handle of whatever has no state. */
typedef struct null_state {
    /* fixed at the entry */
    const usm_host_api *api;   /* the table that libusm passed to it                    */
    uint64_t            limit; /* USM_NULL_MEMORY                                       */
    usm_backend_ops     ops;
    _Atomic(uint64_t)   taken; /* bytes taken of the limit, over all kinds and contexts */
} null_state;

extern null_state null;

/* The functions of the backend's table, by the file that has them. */
/* clang-format off */
#define NULL_OPS(X)                                                                                \
    /* memory.c */                                                                                 \
    X(mem_alloc) X(mem_free) X(device_memory) X(vmem_granularity) X(vmem_reserve)                  \
    X(vmem_release) X(phys_create) X(phys_destroy) X(vmem_map) X(vmem_unmap)                       \
    /* queue.c */                                                                                  \
    X(queue_create) X(queue_destroy) X(queue_wait) X(copy) X(copy_2d) X(fill) X(prefetch)          \
    X(advise) X(marker) X(event_create_user) X(event_signal) X(event_query) X(event_profiling)     \
    X(event_release)
/* clang-format on */
#define NULL_DECLARE(member) USM_DECLARE_ENTRY(usm_backend_ops, member, null_##member);
NULL_OPS(NULL_DECLARE)
#undef NULL_DECLARE

#endif
