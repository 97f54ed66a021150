/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the rest of src/heap needs of the pool `slab` besides the functions that every pool has: its
 * entry, and what is done to the caches of its threads.  slab_private.h describes the pool. */
#ifndef USM_HEAP_SLAB_H
#define USM_HEAP_SLAB_H

#include "heap/span.h"

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
/* cache->bins[bin] is full.  Takes `block` and makes room in the bin. */
void slab_cache_drain(void *pool, usm_cache *cache, unsigned bin, usm_slot block);
/* Returns all blocks of the cache to the pool.  Afterwards the cache may be used again, or its
 * memory may be released. */
void slab_cache_flush(void *pool, usm_cache *cache);

/* As usm_pool_ops.free; span: what the page of p leads to. */
usm_status slab_free_of(void *pool, usm_area *area, usm_span *span, void *p);

/* Fills at most `cap` entries; *count is how many classes there are.  Blocks in threads' magazines
 * count as live here: heap/magazine.c knows their number. */
void slab_get_classes(void *pool, usm_pool_class *list, size_t cap, size_t *count);

#endif
