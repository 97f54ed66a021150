/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pools inside: the module's pool, its areas and the accounts. */
#ifndef USM_CORE_POOL_H
#define USM_CORE_POOL_H

#include "core/area.h"

struct usm__async_pool;

/* Of blocks that nobody asked more for. */
#define USM__POOL_ALIGN ((size_t)64)

/* What queues may have that others have freed. */
typedef enum usm__reuse {
    USM__REUSE_FOLLOW_EVENTS = 1u << 0,
    USM__REUSE_OPPORTUNISTIC = 1u << 1,
    USM__REUSE_INSERT_WAITS  = 1u << 2,
    USM__REUSE_ALL           = 7u
} usm__reuse;

struct usm_pool {
    usm__magic_word magic;
    /* The slot that allocations without more ado use; 0: none (zero_init, min_align, the end). Kept
     * by stale handles, like magic: a hit looks at nothing else. */
    _Atomic(uint8_t)    alloc_slot;
    const usm_pool_ops *ops;
    void               *impl;
    usm_context        *ctx;   /* holds no count: the context outlives its pools          */
    size_t              index; /* of the device                                        */
    usm_kind            kind;
    size_t              maximum_size, min_align;
    const char         *options; /* while it is created                                */
    usm_list            link;    /* in ctx->pools                                        */
    bool                is_default, zero_init, read_only;
    bool                is_imported; /* of another process: core/export.c                  */
    uint32_t            export_mode; /* usm_pool_export                                */
    uint8_t             slot;        /* of its thread caches; 0: it has none                   */
    /* guarded by the lock of core/magazine.c */
    usm_list          caches;
    unsigned          flushing;
    bool              is_retired;
    usm__mutex        lock;     /* guards areas                                         */
    usm_list          areas;    /* usm__area.link                                       */
    uint32_t          trace_id; /* in the trace; 0: none                             */
    _Atomic(uint64_t) reserved, reserved_peak, driver_allocs, driver_frees;
    _Atomic(uint64_t) threshold; /* usm_pool_desc's                                      */
    _Atomic(uint32_t) reuse;     /* usm__reuse                                           */
    _Atomic(uint64_t)
        counts_from[4]; /* USM_POOL_QUEUED_REUSES .. HOST_WAITS when they were set to 0 */
    /* src/async's: what queues have freed; NULL until first needed, gone with the pool */
    _Atomic(struct usm__async_pool *) async;
    _Atomic(uint64_t) reported_ns; /* when core/pool_report.c spoke last; 0: never       */
    _Atomic(unsigned) guests;      /* who asks it for free memory: core/pool_give.c       */
};

/* The pool itself, without observers.  USM_OK and *p, or why not (a story is written). */
usm_status usm__pool_alloc_plain(usm_pool *pool, size_t align, size_t size, void **p);
usm_status usm__pool_free_plain(usm__area *area, void *p);
usm_status usm__pool_block_plain(usm__area *area, const void *p, usm_block *block);

usm_status usm__pool_check(usm_pool *pool);
/* Whether the host may read and write its blocks. */
bool usm__pool_host_may_touch(const usm_pool *pool);
/* Bytes of memory that there are for pools of its kind; 0: not known. */
uint64_t usm__pool_memory(const usm_pool *pool);
/* The default pool of (device index, kind); made at first use. NULL and a story. */
usm_pool *usm__pool_of(usm_context *ctx, size_t index, usm_kind kind);
void     *usm__pool_alloc(usm_pool *pool, size_t align, size_t size);
/* As usm__pool_alloc(), but when the memory is full nobody is asked to give some back and nothing
 * is reported: for the parts above, which then make room themselves. */
usm_status usm__pool_try(usm_pool *pool, size_t size, void **p);
/* As usm__pool_alloc(), not zeroed whatever the pool promises: who calls sees to it. */
void *usm__pool_alloc_raw(usm_pool *pool, size_t size);
/* As _raw, of memory that the pool has: the driver is not asked, and NULL is no failure (but a
 * story may be left). */
void *usm__pool_alloc_held(usm_pool *pool, size_t size);
/* ---- free memory for others: core/pool_give.c ---- */
/* Memory of a device, the host's, or both where they are one. */
typedef struct usm__memory_of_pools {
    const usm_device  *dev; /* NULL: no device's                                         */
    bool               is_host;
    const usm_context *ctx; /* only its pools; NULL: all contexts'                       */
} usm__memory_of_pools;
/* Pools of that memory other than `but` give about `size` bytes that lie free back to the driver,
 * or less; returns how many.  may_flush: other threads' caches too, where there is too little
 * elsewhere.  No lock of a context or above is held. */
size_t usm__pools_give_back(const usm__memory_of_pools *memory, const usm_pool *but, size_t size,
                            bool may_flush);
/* The pool, which is in no list any more, ends: until nobody asks it for memory. */
void usm__pool_await_guests(usm_pool *pool);
void usm__pools_give_fork(usm_fork_phase phase);
/* What was freed in the order of queues. */
typedef struct usm__pool_queued {
    uint64_t bytes; /* freed, and not yet everybody's                                   */
    uint64_t reuses, events, waits, host_waits;
} usm__pool_queued;
/* Hook points of src/async, filled by src/usm.c; no lock is held. */
/* What queues have freed and got to goes back to the pool; with `wait` all. How many bytes. */
extern size_t (*usm__pool_collect)(usm_pool *pool, bool wait);
/* The pool ends: nothing of it stays in lists. */
extern void (*usm__pool_ending)(usm_pool *pool);
extern void (*usm__pool_queued_figures)(usm_pool *pool, usm__pool_queued *figures);
void usm__pool_set_threshold(usm_pool *pool, uint64_t bytes);
/* Of the context's pools what is over their thresholds goes back to the driver:
 * core/pool_attribute.c. */
void usm__pools_release_excess(usm_context *ctx);
/* p's block in its area; USM_E_INVALID_POINTER when it is free. */
usm_status usm__pool_block(usm__area *area, const void *p, usm_block *block);
usm_status usm__pool_free(usm__area *area, void *p);
/* Of a block whose end was put off (core/export.h). */
usm_status usm__pool_free_now(usm__area *area, void *p);
/* Gives all back, whatever is out: when its context ends. */
void     usm__pool_finish(usm_pool *pool);
uint64_t usm__pool_live(usm_pool *pool);
/* As usm_pool_get_stats(), without its checks. */
void usm__pool_stats(usm_pool *pool, usm_pool_stats *stats);
/* Most classes that are looked at. */
#define USM__POOL_CLASSES (USM_BINS + 8)
/* The classes of a pool that has them (else none), as the program sees them: how many of cap. */
size_t usm__pool_classes(usm_pool *pool, usm_pool_class *list, size_t cap);
/* "host", "device", "shared". */
const char *usm__kind_name(usm_kind kind);
void        usm__pool_fork(usm_pool *pool, usm_fork_phase phase);

/* Frees seen lately: tells a double free from a foreign pointer. */
void usm__freed_note(const void *p);
void usm__freed_forget(const void *p);
bool usm__freed_lately(const void *p);
/* The same for areas that are given back: gone_lately() is also true of blocks
 * that nobody freed and that went with their pool or context. */
void usm__gone_note(const void *base);
bool usm__gone_lately(const void *p);

#endif
