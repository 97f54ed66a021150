/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Areas: ranges taken from a driver, or reserved and mapped piece by piece, and
 * the address map that finds them.
 *
 * The map is a radix tree over 48-bit addresses (1 GiB, 2 MiB, 4 KiB), read
 * without locks: writers, one at a time, bump a sequence number around each
 * change and readers retry.  Area descriptors and tables are never unmapped,
 * so a reader that loses a race reads stale words, not freed memory. */
#ifndef USM_CORE_AREA_H
#define USM_CORE_AREA_H

#include "base/inline/list.h"
#include "core/context.h"

/* Memory behind a part of a reserved area. */
typedef struct usm__area_piece {
    void  *phys;
    size_t size; /* 0: none                                                            */
} usm__area_piece;

typedef struct usm__area {
    usm_area view; /* what the pool sees; first                                        */
    /* fixed while the area is in the map */
    usm_context *ctx;
    usm_pool    *pool;
    usm_device  *dev; /* the account's; for host memory the context's first            */
    usm_kind     kind;
    void        *driver_base; /* what the driver gave: view may start later            */
    size_t       driver_size;
    size_t       padding; /* bytes counted beyond view's, to reach its alignment           */
    usm_list     link;    /* in pool->areas                                               */
    void        *shared;  /* what src/ipc keeps of it, by its lock; NULL: nothing           */
    /* of an area that was reserved; granularity 0: it was taken and is all memory */
    size_t           granularity;
    usm__area_piece *pieces;  /* [i]: what was mapped at i * granularity; whoever maps and
                                unmaps there, one at a time, may look at it           */
    _Atomic(size_t)  npieces; /* of the table's entries that are in use                 */
    /* written under the map's lock, read without */
    _Atomic(uintptr_t)          lo, hi; /* [lo, hi)                                     */
    _Atomic(struct usm__area *) next_first, next_last; /* sharing its first, last page  */
} usm__area;

/* The area that p points into, NULL when none. Lock-free; any thread. */
usm__area *usm__map_find(const void *p);
/* USM_E_ADDRESS_TAKEN (*other is who has it), USM_E_NO_MEMORY, USM_E_DEVICE for an
 * address beyond 48 bits. */
usm_status usm__map_insert(usm__area *area, const usm__area **other);
void       usm__map_remove(usm__area *area);
void       usm__map_fork(usm_fork_phase phase);

/* The members of a pool's area source (source = usm_pool); what each promises stands in
 * usm/pool_ops.h. */
usm_status usm__area_take(void *source, size_t size, size_t align, usm_area **area);
void       usm__area_give(void *source, usm_area *area);
/* The source's member of that name: 0 where the backend cannot reserve memory of the pool's kind.
 * reserve() may fail all the same (a limit on the process's addresses, a driver that only has the
 * function): then the pool takes its areas. */
size_t     usm__area_granularity(usm_pool *pool);
usm_status usm__area_reserve(void *source, size_t size, usm_area **area);
usm_status usm__area_map(void *source, usm_area *area, size_t offset, size_t size);
void       usm__area_unmap(void *source, usm_area *area, size_t offset, size_t size);

/* Reads USM_MEMORY_LIMIT into the device's account; at a device's first context. */
void     usm__account_start(usm_device *dev);
bool     usm__account_check(const char *text, char *why, size_t why_size);
uint64_t usm__account_host_reserved(void);
/* Whether the device's memory is the host's, and counts as such: a processor. */
bool usm__device_is_host_memory(const usm_device *dev);

/* An account as reports show it. */
typedef struct usm__account_view {
    uint64_t    reserved, limit; /* limit 0: none                                       */
    const char *whose;           /* "host", "opencl:0"                                  */
    bool        is_host;         /* of host memory                                      */
    bool        is_own;          /* the context's, not USM_MEMORY_LIMIT's               */
} usm__account_view;
/* Of the accounts that memory of `kind` on the context's device counts in, the one with the least
 * room. */
void usm__account_get(usm_context *ctx, size_t index, usm_kind kind, usm__account_view *view);
/* Whether host memory is what such memory lacks, when it cannot be had: it counts as the host's,
 * and no limit of the device's is nearer. */
bool usm__account_lacks_host(usm_context *ctx, size_t index, usm_kind kind);
/* Adds `size` unless that crosses `limit` (0: none); *before is what there was. */
bool usm__account_count(_Atomic(uint64_t) *count, uint64_t limit, size_t size, uint64_t *before);
/* USM_E_BUDGET when a limit would be crossed. */
usm_status usm__account_add(usm_context *ctx, size_t index, usm_kind kind, size_t size);
void       usm__account_sub(usm_context *ctx, size_t index, usm_kind kind, size_t size);

/* Bytes of memory that the process may use: the machine's, or its control group's where that is
 * less.  Read once, because allocations and commands ask for it; 0: not known. */
uint64_t usm__account_memory_total(void);
/* Host memory that buffers of the context may take, all together with what else counts as the
 * host's: the limit that is set, else 0.8 of what there is. */
uint64_t usm__account_buffer_limit(const usm_context *ctx);
/* Whether the context has a limit of its own for host memory. */
bool usm__account_is_own(const usm_context *ctx);
/* Frames of buffers; own NULL: no context with a limit of its own. */
usm_status usm__account_add_host(usm_context *own, size_t size);
void       usm__account_sub_host(usm_context *own, size_t size);

/* Hook point of the parts above, filled by src/usm.c; NULL: there are none.  Memory of `kind` on
 * `dev` cannot be had for ctx: gives back about `size` bytes of it, or less; returns how many.  No
 * lock of a pool is held; it is not called again by what it does itself. */
typedef size_t usm__out_of_memory_fn(usm_context *ctx, usm_device *dev, usm_kind kind, size_t size);
extern usm__out_of_memory_fn *usm__area_out_of_memory;

#endif
