/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Internals of pools: the module's pool, its areas and its memory accounting. */
#ifndef USM_HEAP_POOL_H
#define USM_HEAP_POOL_H

#include "heap/area.h"
#include "heap/pool_held.h"
#include "heap/span.h"

struct usm__async_pool;
typedef struct usm__sleeper usm__sleeper;

/* Alignment of blocks, if the caller asks for no larger one. */
#define USM__POOL_ALIGN ((size_t)64)

/* Which blocks that other queues freed a queue may reuse. */
typedef enum usm__reuse {
    USM__REUSE_FOLLOW_EVENTS = 1u << 0,
    USM__REUSE_OPPORTUNISTIC = 1u << 1,
    USM__REUSE_INSERT_WAITS  = 1u << 2,
    USM__REUSE_ALL           = 7u
} usm__reuse;

/* Whether the pool has its memory: heap/sleep.h. */
typedef enum usm__pool_rest {
    USM__POOL_AWAKE = 0,
    USM__POOL_MOVING, /* a thread puts it to sleep or wakes it */
    USM__POOL_ASLEEP
} usm__pool_rest;

struct usm_pool {
    usm__magic_word magic;
    /* The slot for allocations on the fast path; 0: none (zero_init, min_align, or destroyed).
     * Stale handles keep it, like magic: the fast path reads nothing else of the pool. */
    _Atomic(uint8_t)    alloc_slot;
    const usm_pool_ops *ops;
    void               *impl;
    usm_context        *ctx;   /* no reference: the context outlives its pools */
    size_t              index; /* of the device                                */
    usm_kind            kind;
    uint32_t            trace_id; /* the pool's id in the trace; 0: none */
    size_t              maximum_size, min_align, thread_cache;
    const char         *options; /* valid only during creation */
    const char         *tag;     /* the tag under which it was made; NULL */
    usm_list            link;    /* in ctx->pools              */
    bool                is_default, zero_init, read_only;
    bool                is_imported; /* of another process: heap/export.c    */
    uint32_t            export_mode; /* usm_pool_export                      */
    uint8_t             slot;        /* of its thread caches; 0: it has none */
    _Atomic(uint8_t)    rest;        /* a usm__pool_rest; changes under lock */
    bool                is_settled;  /* guarded by lock: heap/sleep.h        */
    /* guarded by the lock of heap/magazine.c */
    usm_list          caches;
    unsigned          flushing;
    uint16_t          left; /* of the caches: those whose threads have ended */
    bool              is_retired;
    bool              is_paused; /* no thread gets a cache: the pool sleeps */
    usm__mutex        lock;      /* guards areas, inside, rest              */
    usm_list          areas;     /* usm__area.link                          */
    unsigned          inside;    /* threads inside the gate: heap/sleep.h   */
    pthread_cond_t    moved;     /* for threads that wait at the gate       */
    _Atomic(uint64_t) asleep;    /* bytes that have addresses and no memory */
    usm__sleeper     *sleeper;   /* has their contents; belongs to the thread that moves the pool */
    usm__pool_held   *held;      /* its own, below, or in the monitor page; fixed after create */
    usm__pool_held    own_held;
    _Atomic(uint64_t) threshold; /* of usm_pool_desc */
    _Atomic(uint32_t) reuse;     /* usm__reuse       */
    _Atomic(uint64_t)
        counts_from[4]; /* values of USM_POOL_QUEUED_REUSES .. HOST_WAITS when they were reset to
                           0 */
    /* the blocks that queues have freed, for src/async; NULL until first needed; freed with the
     * pool */
    _Atomic(struct usm__async_pool *) async;
    _Atomic(uint64_t) reported_ns; /* time of the last report of heap/pool_report.c; 0: none     */
    _Atomic(unsigned) guests;      /* threads that are making it return memory: heap/pool_give.c */
};

/* ---- heap/serve.c: one attempt, without the observed path ---- */
/* USM_OK and *p, or a failure with an error message.  size > 0; the request was checked. */
usm_status usm__pool_serve(usm_pool *pool, size_t align, size_t size, void **p);
/* A block above the size classes from memory that the pool holds; NULL: go through the layers. */
void *usm__pool_take_large(usm_pool *pool, size_t size);
/* Frees p if it is such a block of the pool; false: go through the layers. */
bool       usm__pool_free_large(const usm_pool *pool, void *p);
usm_status usm__pool_free_plain(usm__area *area, void *p);
/* usm_pool_free() and usm_free() without their hit paths.  size: of usm_pool_free_sized(), or
 * NULL. */
void       usm__pool_free_slowly(usm_pool *pool, void *p, const size_t *size);
void       usm__pool_free_any_slowly(void *p);
usm_status usm__pool_block_plain(usm__area *area, const void *p, usm_block *block);

usm_status usm__pool_check(usm_pool *pool);
/* True if the host may read and write its blocks. */
bool usm__pool_host_may_touch(const usm_pool *pool);
/* Bytes of memory that exist for pools of its kind; 0: unknown. */
uint64_t usm__pool_memory(const usm_pool *pool);
/* The default pool of (device index, kind), created at its first use.  NULL with an error
 * message. */
usm_pool          *usm__pool_of(usm_context *ctx, size_t index, usm_kind kind);
static inline bool usm__is_kind(usm_kind kind)
{
    return (int)kind >= USM_HOST && (int)kind <= USM_SHARED;
}
usm_status usm__kind_check(usm_kind kind);
/* ---- heap/recover.c ---- */
typedef enum usm__zeroing {
    USM__ZERO_AS_POOL, /* if the pool has zero_init  */
    USM__ZERO_NOT      /* the caller zeroes the block */
} usm__zeroing;
/* NULL with errno and an error message: whatever libusm could free did not help. */
void *usm__pool_alloc(usm_pool *pool, size_t align, size_t size, usm__zeroing zeroing);
/* As usm__pool_alloc(), but when the memory is full, no other pool is asked to return some, and
 * nothing is reported: for the parts above, which then make room themselves. */
usm_status usm__pool_try(usm_pool *pool, size_t size, void **p);
/* Not zeroed, and from memory that the pool already holds: the driver is not called, and NULL is
 * not a failure (but an error message may be left). */
void *usm__pool_alloc_held(usm_pool *pool, size_t size);
/* Sets errno; returns NULL. */
void *usm__no_memory(void);
/* After a map of `size` bytes of the pool has failed for lack of memory: frees some elsewhere;
 * false: there is none. */
bool usm__pool_make_room(usm_pool *pool, size_t size);
/* ---- sleep: heap/sleep.c ---- */
static inline bool usm__pool_is_awake(const usm_pool *pool)
{
    return usm_load_relaxed(&pool->rest) == USM__POOL_AWAKE;
}
/* USM_E_BUSY with an error message if it is not. */
usm_status usm__pool_check_awake(const usm_pool *pool);
/* ---- returning free memory: heap/pool_give.c ---- */
/* The memory of a device, of the host, or of both if they are the same. */
typedef struct usm__pools_memory {
    const usm_device  *dev; /* NULL: no device */
    bool               is_host;
    const usm_context *ctx; /* only pools of this context; NULL: of all contexts */
} usm__pools_memory;
/* Makes the pools of that memory, except `but`, return about `size` free bytes to the driver, or
 * less; returns how many.  may_flush: if that is not enough, the caches of other threads as well.
 * No lock of a context's rank or above is held. */
size_t usm__pools_give_back(const usm__pools_memory *memory, const usm_pool *but, size_t size,
                            bool may_flush);
/* Finds pools of all contexts, which are not destroyed until they are dismissed.  `is_wanted` is
 * called with the locks of the lists held.  USM_E_NO_MEMORY: there is nothing to dismiss. */
typedef bool usm__pools_filter(usm_pool *pool, const void *arg);
typedef struct usm__pools_found {
    usm_pool **list;
    size_t     n;
} usm__pools_found;
usm_status usm__pools_find(usm__pools_filter *is_wanted, const void *arg, usm__pools_found *found);
void       usm__pools_dismiss(usm__pools_found *found);
/* The pool, which is in no list any more, is being destroyed: waits until no thread asks it to
 * return memory. */
void usm__pool_await_guests(usm_pool *pool);
void usm__pools_give_fork(usm_fork_phase phase);
/* Blocks that were freed in the order of queues. */
typedef struct usm__pool_queued {
    uint64_t bytes; /* freed, and not yet available to all */
    uint64_t reuses, events, waits, host_waits;
} usm__pool_queued;
void usm__pool_set_threshold(usm_pool *pool, uint64_t bytes);
/* Returns to the driver what pools of the context hold beyond their thresholds:
 * heap/pool_attribute.c. */
void usm__pools_release_excess(usm_context *ctx);
/* Finds the block of p in its area; USM_E_INVALID_POINTER if it is free. */
usm_status usm__pool_block(usm__area *area, const void *p, usm_block *block);
usm_status usm__pool_free(usm__area *area, void *p);
/* Frees a block whose free was deferred (heap/export.h). */
usm_status usm__pool_free_now(usm__area *area, void *p);
/* Destroys the pool with all its blocks, live or not: when its context ends. */
void     usm__pool_finish(usm_pool *pool);
uint64_t usm__pool_live(usm_pool *pool);
/* As usm_pool_get_stats(), without its checks. */
void usm__pool_stats(usm_pool *pool, usm_pool_stats *stats);
/* The most that the pool's caches may hold now; 0: it has none. */
uint64_t usm__pool_cache_limit(const usm_pool *pool);
/* Memory of a pool, for a map of it. */
typedef enum usm__pool_extent_use {
    USM__POOL_FREE = 0,
    USM__POOL_USED,   /* handed out: to the program, or to the cache of a thread */
    USM__POOL_UNKNOWN /* only the pool's module knows                            */
} usm__pool_extent_use;
typedef struct usm__pool_extent {
    uintptr_t            base;
    size_t               size;
    usm__pool_extent_use use;
} usm__pool_extent;
typedef void usm__pool_extent_visit(const usm__pool_extent *extent, void *arg);
/* Calls fn for all of it; what the pool takes or returns meanwhile may be missed.  fn takes no lock.
 * Slabs count as used throughout: usm__pool_each_slab() tells how much of each is not. */
void         usm__pool_each_extent(usm_pool *pool, usm__pool_extent_visit *fn, void *arg);
typedef void usm__pool_slab_visit(uintptr_t base, size_t size, size_t free, void *arg);
void         usm__pool_each_slab(usm_pool *pool, usm__pool_slab_visit *fn, void *arg);
/* The maximum number of classes that are examined. */
#define USM__POOL_CLASSES (USM_BINS + 8)
/* The classes of a pool (none, if it has no classes), as the program sees them.  Returns their
 * number, at most cap. */
size_t usm__pool_classes(usm_pool *pool, usm_pool_class *list, size_t cap);
/* "host", "device", "shared". */
const char *usm__kind_name(usm_kind kind);
void        usm__pool_fork(usm_pool *pool, usm_fork_phase phase);
/* ---- pools of contexts: context_pools.c ---- */
/* Calls fn for every pool of every context with the locks of the lists held: fn takes no lock of a
 * lower rank than the pools', and neither creates nor destroys a pool. */
typedef void usm__pool_visit(usm_pool *pool, void *arg);
void         usm__pools_each(usm__pool_visit *fn, void *arg);
/* The last user of the context has gone. */
void usm__pools_end(usm_context *ctx);
void usm__pools_fork(usm_fork_phase phase);
/* The slots by which usm_alloc() and related functions find the default context's pools: the
 * usm_pool.alloc_slot for each kind, 0 while there is none. */
extern _Atomic(uint8_t) usm__pools_default[4] __attribute__((visibility("hidden")));
void                    usm__pools_set_default(usm_pool *pool);
void                    usm__pools_clear_defaults(void);

/* Recent frees: they distinguish a double free from a foreign pointer. */
void usm__freed_note(const void *p);
void usm__freed_forget(const void *p);
bool usm__freed_recently(const void *p);
/* The same for areas that were returned.  gone_lately() is also true for blocks that were never
 * freed and ended with their pool or context. */
void usm__gone_note(const void *base);
bool usm__gone_recently(const void *p);

#endif
