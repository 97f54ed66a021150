/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of the pool `jemalloc`; no other file includes it. */
#ifndef USM_POOLS_JEMALLOC_INTERNAL_H
#define USM_POOLS_JEMALLOC_INTERNAL_H

#include <usm/pool_ops.h>

#include <base/inline/atomic.h>
#include <base/inline/bits.h>
#include <base/inline/list.h>

#include <jemalloc/jemalloc.h>
#include <pthread.h>

/* --- jemalloc's functions (library.c) --------------------------------------------------------- */

#define USM_JE_FUNCTIONS(X)                                                                        \
    X(void *, mallocx, (size_t size, int flags))                                                   \
    X(void, sdallocx, (void *p, size_t size, int flags))                                           \
    X(void *, rallocx, (void *p, size_t size, int flags))                                          \
    X(size_t, sallocx, (const void *p, int flags))                                                 \
    X(size_t, nallocx, (size_t size, int flags))                                                   \
    X(int, mallctl, (const char *name, void *old, size_t *old_size, void *value, size_t size))

#define USM_JE_FIELD(result, name, arguments) result(*name) arguments;
struct usm_je_library {
    USM_JE_FUNCTIONS(USM_JE_FIELD)
};
#undef USM_JE_FIELD

extern struct usm_je_library usm_je; /* fixed once the entry has returned a table */

/* Finds the functions in the program; USM_E_NOT_SUPPORTED, with the remedy in the message. */
usm_status usm_je_find(const usm_host_api *api);
/* Bytes that the calling thread has got from jemalloc so far; 0: built without statistics. */
uint64_t usm_je_allocated(void);
/* Writes the control arena.<index>.<name>, or executes it (NULL, 0).  Returns 0 or an errno
 * value. */
int usm_je_control(const char *name, unsigned index, const void *value, size_t size);

/* --- live blocks (blocks.c) ------------------------------------------------------------------- */

/* Two bits for each granule of an area: a live block starts here; a block started here and was
 * freed. */
struct usm_je_blocks {
    uintptr_t          base;
    size_t             size;    /* bytes of the area                     */
    unsigned           shift;   /* of the granule                        */
    _Atomic(uint64_t) *states;  /* 32 granules in a word                 */
    _Atomic(uint64_t) *touched; /* bit k: word k of `states` was written */
};

size_t     usm_je_blocks_words(size_t size, unsigned shift); /* of both arrays together */
void       usm_je_blocks_init(struct usm_je_blocks *b, _Atomic(uint64_t) *words);
void       usm_je_blocks_add(struct usm_je_blocks *b, const void *p);
usm_status usm_je_blocks_remove(struct usm_je_blocks *b, const void *p);
/* Finds the live block that p points into. */
bool usm_je_blocks_find(const struct usm_je_blocks *b, const void *p, usm_block *block);

/* --- areas (area.c) --------------------------------------------------------------------------- */

#define USM_JE_PAGE   ((size_t)4096)
#define USM_JE_CHUNK  ((size_t)2 << 20) /* areas are aligned to it */
#define USM_JE_ARENAS 4                 /* in a pool, at most      */

struct usm_je_pool;

struct usm_je_area {
    usm_list             link; /* in the arena's `areas`; guarded by its lock */
    usm_area            *view;
    struct usm_je_arena *arena;
    struct usm_je_blocks blocks;
    /* guarded by the arena's lock; a set bit is a page that jemalloc uses */
    uint64_t *pages;
    size_t    npages, used;
};

struct usm_je_arena {
    extent_hooks_t      hooks; /* the hooks that jemalloc calls */
    struct usm_je_pool *pool;
    unsigned            index; /* jemalloc's index of the arena              */
    _Atomic(bool)       open;  /* may take areas; false when the pool ends   */
    pthread_mutex_t     lock;  /* a leaf: nothing is called while it is held */
    usm_list            areas;
    size_t              total; /* total bytes of the areas */
    /* Returned areas whose record is still kept, oldest first: a thread that frees a block a second
     * time, at the same moment, may still be reading one. */
    usm_list gone;
    size_t   ngone;
};

/* The area that contains p, of any pool; takes no lock.  NULL: none. */
struct usm_je_area *usm_je_area_of(const void *p);
void                usm_je_arena_init(struct usm_je_arena *a, struct usm_je_pool *pool);
/* Returns every area and frees the records. */
void usm_je_arena_fini(struct usm_je_arena *a);
/* Returns `size` bytes, a multiple of the page size, for jemalloc.  NULL with an error message, and
 * *status is its status. */
void *usm_je_arena_serve(struct usm_je_arena *a, size_t size, size_t align, usm_status *status);
/* Takes memory back; returns the area if it is empty and the pool holds enough. */
void usm_je_arena_take_back(struct usm_je_arena *a, struct usm_je_area *area, void *p, size_t size);
/* Returns empty areas while the pool holds more than `keep` bytes. */
void   usm_je_arena_trim(struct usm_je_arena *a, uint64_t keep);
size_t usm_je_arena_largest_free(struct usm_je_arena *a);

/* --- extent hooks (hooks.c) ------------------------------------------------------------------- */

extern const extent_hooks_t usm_je_hooks; /* to be copied into an arena's `hooks` */

/* --- threads and fork (thread.c) -------------------------------------------------------------- */

/* The data of one thread for one pool.  Counters are written by the owner only (those of `spare`
 * under the pool's lock) and read by any thread.  The owner sets `busy`; a thread that flushes the
 * tcache sets `taken`. */
struct usm_je_cache {
    usm_list          link; /* in pool->caches; guarded by pool->lock */
    void             *owner;
    int               arena_flag;  /* MALLOCX_ARENA()                          */
    int               tcache_flag; /* MALLOCX_TCACHE(); or MALLOCX_TCACHE_NONE */
    unsigned          tcache;      /* jemalloc's index of it, if has_tcache    */
    bool              has_tcache;
    _Atomic(bool)     busy, taken;
    _Atomic(uint64_t) allocations, frees;
    _Atomic(int64_t)  live;    /* bytes not yet added to the pool's count */
    _Atomic(int64_t)  highest; /* maximum of `live` since then            */
};

struct usm_je_pool {
    /* fixed after create */
    const usm_host_api *api;
    usm_area_source     areas;
    size_t              default_align, first_size;
    uint64_t            retain;
    unsigned            shift; /* of the granule               */
    unsigned            slot;  /* in the table of every thread */
    uint64_t            id;    /* unique among pools           */
    size_t              narenas;
    struct usm_je_arena arenas[USM_JE_ARENAS];

    pthread_mutex_t     lock;   /* a leaf; guards `caches`, `ncaches`, `spare`, the counts of ended
                                   threads */
    usm_list            caches; /* of threads                                                     */
    size_t              ncaches, most_caches; /* most_caches: maximum since the peaks were reset */
    struct usm_je_cache spare;                /* for threads that cannot have a cache            */
    uint64_t            ended_allocations, ended_frees; /* of threads that have ended */

    _Atomic(uint64_t) next_arena; /* round robin                                      */
    _Atomic(int64_t)  live;       /* without the bytes that caches have not added yet */
    _Atomic(int64_t)  live_peak;
    _Atomic(uint64_t) held, held_peak; /* bytes of areas                                */
    _Atomic(uint64_t) empty;           /* bytes of areas of which jemalloc uses nothing */
};

/* Encloses every call of jemalloc that may call the hooks: the result of the hooks. */
typedef struct usm_je_call {
    usm_status          status;  /* why the hooks returned no memory; USM_OK: they were not
                                    called */
    bool                forking; /* because of a fork: to be tried again after it */
    struct usm_je_call *outer;
} usm_je_call;

/* Once per process, when jemalloc was found. */
usm_status usm_je_threads_start(const usm_host_api *api);
/* Finds a slot for the pool, by which threads find it.  USM_E_NO_MEMORY: too many pools. */
usm_status usm_je_pool_enter(struct usm_je_pool *p);
/* Ends all caches of the pool, of all threads, and removes the pool. */
void usm_je_pool_leave(struct usm_je_pool *p);
/* The calling thread's cache; NULL: it cannot have one, and `spare` is used under the lock. */
struct usm_je_cache *usm_je_cache_of(struct usm_je_pool *p);
/* The calling thread's cache, if it has one. */
struct usm_je_cache *usm_je_cache_there(const struct usm_je_pool *p);
/* Enclose a call of jemalloc with the calling thread's cache `c`.  Returns the flag for jemalloc,
 * MALLOCX_TCACHE_NONE if the cache may not be used now. */
int  usm_je_cache_enter(struct usm_je_cache *c, const usm_je_call *call);
void usm_je_cache_leave(struct usm_je_cache *c, const usm_je_call *call);
/* Flushes the caches of threads that are not using theirs at this moment; false: there was none, or
 * it is not possible. */
bool usm_je_caches_flush(struct usm_je_pool *p);
/* Counts a block that was allocated (bytes > 0) or freed.  Called by the owner of the cache, or
 * under the lock for `spare`. */
void usm_je_count(struct usm_je_pool *p, struct usm_je_cache *c, int64_t bytes);
void usm_je_stats(struct usm_je_pool *p, usm_pool_stats *stats);
void usm_je_stats_reset_peaks(struct usm_je_pool *p);

void usm_je_call_begin(usm_je_call *call);
void usm_je_call_end(usm_je_call *call);
/* The calling thread's current call; NULL: jemalloc acts by itself. */
usm_je_call *usm_je_call_now(void);

/* Hooks run between these two.  False: a fork is in progress, and the hook must not wait for
 * anything. */
bool usm_je_gate_enter(void);
void usm_je_gate_leave(void);
/* Returns when no fork is in progress. */
void usm_je_gate_wait(void);

#endif
