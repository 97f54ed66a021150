/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of the null backend.  Functions whose names end in those of the interface are
 * entries of the table in null.c; usm/backend.h has their contract. */
#ifndef USM_BACKENDS_NULL_H
#define USM_BACKENDS_NULL_H

#include <base/inline/atomic.h>
#include <base/inline/bits.h>
#include <usm/backend.h>

typedef struct null_state {
    const usm_host_api *api;   /* the table that libusm passed to the entry             */
    uint64_t            limit; /* USM_NULL_MEMORY, fixed at the entry                   */
    _Atomic(uint64_t)   taken; /* bytes taken of the limit, over all kinds and contexts */
} null_state;

extern null_state null;

/* --- memory.c -------------------------------------------------------------------------------- */

usm_status null_mem_alloc(void *ctx, void *dev, usm_kind kind, size_t size, size_t align, void **p);
usm_status null_mem_free(void *ctx, usm_kind kind, void *p, size_t size);
usm_status null_device_memory(void *dev, uint64_t *total, uint64_t *free);

usm_status null_vmem_granularity(void *ctx, void *dev, usm_kind kind, size_t size,
                                 size_t *granularity);
usm_status null_vmem_reserve(void *ctx, usm_kind kind, size_t size, void **p);
usm_status null_vmem_release(void *ctx, void *p, size_t size);
usm_status null_phys_create(void *ctx, void *dev, usm_kind kind, size_t size, void **phys);
usm_status null_phys_destroy(void *ctx, void *phys);
usm_status null_vmem_map(void *ctx, void *p, size_t size, void *phys, size_t offset);
usm_status null_vmem_unmap(void *ctx, void *p, size_t size);

/* --- queue.c --------------------------------------------------------------------------------- */

usm_status null_queue_create(void *ctx, void *dev, uint32_t flags, void **q);
void       null_queue_destroy(void *q);
usm_status null_queue_wait(void *q);
usm_status null_copy(void *q, void *dst, const void *src, size_t n, size_t ndeps, void *const *deps,
                     void **ev);
usm_status null_copy_2d(void *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                        size_t width, size_t height, size_t ndeps, void *const *deps, void **ev);
usm_status null_fill(void *q, void *dst, const void *pattern, size_t pattern_size, size_t size,
                     size_t ndeps, void *const *deps, void **ev);
usm_status null_prefetch(void *q, const void *p, size_t n, size_t ndeps, void *const *deps,
                         void **ev);
usm_status null_advise(void *q, const void *p, size_t n, usm_advice advice, size_t ndeps,
                       void *const *deps, void **ev);
usm_status null_marker(void *q, size_t ndeps, void *const *deps, void **ev);
usm_status null_event_create_user(void *ctx, void **ev);
usm_status null_event_signal(void *ev, usm_status status);
usm_status null_event_query(void *ev);
usm_status null_event_profiling(void *ev, usm_profiling *times);
void       null_event_release(void *ev);

#endif
