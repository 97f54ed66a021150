/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the rest of src/heap needs of the pool `slab` besides the functions that every pool has: its
 * entry, and what is done to the caches of its threads.  slab_private.h describes the pool. */
#ifndef USM_HEAP_SLAB_H
#define USM_HEAP_SLAB_H

#include "base/inline/atomic.h"
#include "heap/span.h"

#include <stdbool.h>
#include <usm/pool_ops.h>

const usm_pool_ops *usm_slab_pool_entry(const usm_host_api *api);
/* True if these are slab's functions: only such a pool has size classes, and thread caches if it
 * has a slot.  Of such a pool usm_pool.impl is what the functions below get. */
bool slab_is(const usm_pool_ops *ops);

/* Called once, before the core registers its own fork handlers, which hold the locks of the pools
 * meanwhile: the lock shared by all pools is taken after them.  USM_E_NO_MEMORY: a child of fork()
 * may hang. */
usm_status usm_slab_watch_forks(void);

/* ---- a thread's cache, whose owner calls, or another thread while the owner cannot use it.  No
 * lock is held. ---- */
/* cache->bins[bin] is empty.  Returns one block of that class in state FREE, and puts as many more
 * into the bin as the pool chooses.  Fails as usm_pool_ops.malloc does. */
usm_status slab_fill(void *pool, usm_cache *cache, unsigned bin, usm_slot *block);
/* As usm_pool_ops.malloc, for a block that no magazine can have: before the pool grows for it, the
 * cache gives its runs up. */
usm_status slab_malloc_beside(void *pool, usm_cache *cache, size_t size, size_t align, void **p);
/* ---- large blocks, which no magazine has, where nothing observes the calling thread.  No lock is
 * held. ---- */
/* A LIVE block from memory that the pool holds; NULL: the pool would have to grow. */
void *slab_take_held(void *pool, size_t size, size_t align);
/* True if p is the start of a live and untracked large block, which the span describes. */
bool slab_is_large(usm_span *span, const void *p);
/* Frees it; false: another thread has freed it meanwhile. */
bool slab_free_large(void *pool, usm_span *span, const void *p);

/* cache->bins[bin] is full.  Takes `block` and makes room in the bin. */
void slab_cache_drain(void *pool, usm_cache *cache, unsigned bin, usm_slot block);
/* Returns all blocks of the cache to the pool.  Afterwards the cache may be used again, or its
 * memory may be released. */
void slab_cache_flush(void *pool, usm_cache *cache);
/* Frees what the cache has of the host's heap; its blocks are lost. */
void slab_cache_drop(void *pool, usm_cache *cache);
/* True once in a while if the cache is refused room: another thread should give some up. */
bool slab_cache_is_starved(usm_cache *cache);

/* pre: the bin has a block. */
static inline usm_slot usm_bin_pop(usm_bin *bin)
{
    usm_slot *top = usm_load_relaxed(&bin->top) - 1;

    usm_store_relaxed(&bin->top, top);
    return *top;
}

/* pre: the bin has room. */
static inline void usm_bin_push(usm_bin *bin, usm_slot block)
{
    usm_slot *top = usm_load_relaxed(&bin->top);

    *top = block;
    usm_store_relaxed(&bin->top, top + 1);
}

/* As usm_pool_ops.free; span: what the page of p leads to. */
usm_status slab_free_of(void *pool, usm_area *area, usm_span *span, void *p);

/* The bytes that the caches of its threads and its depots may hold together. */
uint64_t slab_cache_limit(const void *pool);

/* Fills at most `cap` entries; *count is how many classes there are.  Blocks in threads' magazines
 * count as live here: heap/magazine.c knows their number. */
void slab_get_classes(void *pool, usm_pool_class *list, size_t cap, size_t *count);

/* ---- where the pool has memory, and which of it is handed out: to the program, or to a cache ---- */
struct usm__pool_extent;
typedef void slab_extent_visit(const struct usm__pool_extent *extent, void *arg);
/* In the order of addresses, with no lock held.  A slab counts as used throughout. */
void slab_each_extent(void *pool, slab_extent_visit *fn, void *arg);
/* The slabs, each with the number of its bytes that no block has which is handed out.  The lock of
 * a class is held: fn takes none. */
typedef void slab_free_visit(uintptr_t base, size_t size, size_t free, void *arg);
void         slab_each_slab(void *pool, slab_free_visit *fn, void *arg);

#endif
