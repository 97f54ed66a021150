/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Areas: ranges taken from a driver, or reserved and mapped piece by piece; the memory accounting.
 * The page map finds them by address (pages.h). */
#ifndef USM_HEAP_AREA_H
#define USM_HEAP_AREA_H

#include "base/inline/list.h"
#include "device/context.h"

/* Memory behind a part of a reserved area. */
typedef struct usm__area_piece {
    void  *phys;
    size_t size;       /* 0: none                                                      */
    bool   is_resting; /* the pool sleeps: it has addresses, and no memory             */
} usm__area_piece;

typedef struct usm__area {
    usm_area view; /* the part that the pool sees; first member */
    /* fixed while the area is in the map */
    usm_context *ctx;
    usm_pool    *pool;
    usm_device  *dev; /* the one it is counted for; the context's first if the memory is the
                         host's */
    usm_kind     kind;
    void        *driver_base; /* the driver's address; view may start later */
    size_t       driver_size;
    size_t       padding; /* bytes counted beyond view's, needed for its alignment          */
    usm_list     link;    /* in pool->areas                                                 */
    void        *shared;  /* data of src/ipc for this area, guarded by its lock; NULL: none */
    /* of a reserved area; granularity is 0 for a taken one, which is memory throughout */
    size_t           granularity;
    usm__area_piece *pieces;  /* [i]: the piece mapped at i * granularity; only the thread that maps
                                 and unmaps there, one at a time, may read it */
    _Atomic(size_t)  npieces; /* entries of the table in use */
    /* written under the map's lock, read without */
    _Atomic(uintptr_t)          lo, hi;                /* the range [lo, hi)                      */
    _Atomic(struct usm__area *) next_first, next_last; /* other areas in its first, its last page */
} usm__area;

/* Finds the area that p points into, or NULL.  Takes no lock; any thread. */
usm__area *usm__map_find(const void *p);
/* Fails with USM_E_ADDRESS_TAKEN (*other is the area that has the addresses), USM_E_NO_MEMORY, or
 * USM_E_DEVICE for an address beyond 48 bits. */
usm_status usm__map_insert(usm__area *area, const usm__area **other);
void       usm__map_remove(usm__area *area);
void       usm__map_fork(usm_fork_phase phase);

/* Where a pool has its memory from (source = usm_pool): take() and give() as usm/pool_ops.h
 * describes them, the others as heap/page_heap.h does. */
usm_status usm__area_take(void *source, size_t size, size_t align, usm_area **area);
void       usm__area_give(void *source, usm_area *area);
/* The source's granularity(): 0 where the backend cannot reserve memory of the pool's kind.
 * reserve() may fail all the same (the process has a limit of addresses, or the driver has the
 * function and nothing behind it); the pool then takes its areas. */
size_t     usm__area_granularity(usm_pool *pool);
usm_status usm__area_reserve(void *source, size_t size, usm_area **area);
usm_status usm__area_map(void *source, usm_area *area, size_t offset, size_t size);
void       usm__area_unmap(void *source, usm_area *area, size_t offset, size_t size);

/* Reads USM_MEMORY_LIMIT into the device's quota, when the first context of a device is made. */
void     usm__quota_start(usm_device *dev);
bool     usm__quota_check(const char *text, char *why, size_t why_size);
uint64_t usm__quota_host_reserved(void);
uint64_t usm__quota_host_limit(void); /* 0: none */
/* True if the device's memory is the host's, and counts as such: the device is a processor. */
bool usm__quota_is_host_memory(const usm_device *dev);

/* A quota, as reports show it. */
typedef struct usm__quota_view {
    uint64_t    reserved, limit; /* limit 0: none                                   */
    const char *whose;           /* "host", "opencl:0"                              */
    bool        is_host;         /* a quota of host memory                       */
    bool        is_own;          /* limited by the context, not by USM_MEMORY_LIMIT */
} usm__quota_view;
/* Set by a thread that prefers another way over more memory: it takes none from a driver, and
 * usm__area_take() and its like return USM_E_AGAIN without an error message. */
extern USM__THREAD_LOCAL bool usm__area_is_held;

/* Of the quotas in which memory of `kind` on the context's device counts, returns the one with
 * the least room. */
void usm__quota_get(usm_context *ctx, size_t index, usm_kind kind, usm__quota_view *view);
/* Called when such memory cannot be had: true if host memory is short, because this
 * memory counts as the host's and no limit of the device's is nearer. */
bool usm__quota_lacks_host(usm_context *ctx, size_t index, usm_kind kind);
/* Adds `size` unless that would exceed `limit` (0: none); *before is the value before. */
bool usm__quota_count(_Atomic(uint64_t) *count, uint64_t limit, size_t size, uint64_t *before);
/* Fails with USM_E_BUDGET if a limit would be exceeded. */
usm_status usm__quota_add(usm_context *ctx, size_t index, usm_kind kind, size_t size);
void       usm__quota_sub(usm_context *ctx, size_t index, usm_kind kind, size_t size);

/* Bytes of memory that the process may use: those of the machine, or of its control group if that
 * is less.  Read only once, because allocations and commands need it; 0: unknown. */
uint64_t usm__quota_memory_total(void);
/* Host memory that buffers of the context may take, together with everything else that counts as
 * the host's: the configured limit, otherwise 0.8 of the memory, divided by the number of ranks on
 * the node. */
uint64_t usm__quota_buffer_limit(const usm_context *ctx);
/* True if the context has a limit of its own for host memory. */
bool usm__quota_is_own(const usm_context *ctx);
/* For frames of buffers; own NULL: no context with a limit of its own. */
usm_status usm__quota_add_host(usm_context *own, size_t size);
void       usm__quota_sub_host(usm_context *own, size_t size);

#endif
