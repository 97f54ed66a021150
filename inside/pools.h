/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pools of a layer over its driver's memory: one for each context, device and sort of memory, made
 * when it is first asked for.  Their areas are the driver's own allocations in that context, so that
 * what it knows of its memory stays true.  Each layer has a copy of its own.
 *
 * Sizes are bytes.  Any thread may call.  No lock is held while libusm or the driver is called. */
#ifndef USM_INSIDE_POOLS_H
#define USM_INSIDE_POOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <usm/pool.h>
#include <usm/source.h>
#include <usm/types.h>

#define INSIDE_MOST_SIZE  ((size_t)4 << 20) /* of a block that is kept when it is freed */
#define INSIDE_MOST_ALIGN 128               /* of a block: that of OpenCL's largest type */

/* What a pool is for. */
typedef struct inside_key {
    void *owner; /* the layer's word for a context */
    void *dev;   /* NULL: no device of its own */
    int   sort;  /* of memory: the layer's own numbers */
} inside_key;

/* What a layer says of its driver. */
typedef struct inside_source {
    const char *name;
    usm_kind (*kind_of)(int sort);
    /* Does memory of this sort not move by whole allocations?  If it does, two blocks in one would
     * overwrite each other's data. */
    bool (*may_cut)(const inside_key *key);
    void *(*alloc)(const inside_key *key, size_t size, size_t align); /* NULL: it refuses */
    /* Gives back an area, or what alloc gave and no area could be made of. */
    usm_status (*free)(const inside_key *key, void *p);
    void (*drop)(void *data); /* the data of an area that ends; may be NULL */
} inside_source;

typedef struct inside_pool {
    inside_key           key;
    const inside_source *from;
    usm_area_source      source;
    usm_context         *ctx;
    usm_pool *pool, *direct; /* direct: for blocks beyond INSIDE_MOST_SIZE.  NULL: they could not be
                                made, and the driver serves */
    struct inside_pool *next; /* guarded by the lock of pools.c */
} inside_pool;

/* The pool for `key`, made if there is none.  NULL: the driver serves. */
inside_pool *inside_pool_get(const inside_source *from, const inside_key *key);
/* The pool whose context is ctx; NULL: none. */
inside_pool *inside_pool_of(const usm_context *ctx);
/* Is any pool made yet? */
bool inside_pools_exist(void);
/* A block; NULL: the driver is to be asked, unless *is_refused: a limit (USM_MEMORY_LIMIT) is
 * reached. */
void *inside_pool_alloc(const inside_pool *pool, size_t size, bool *is_refused);
/* Ends the pools of an owner. */
void inside_pools_end(const void *owner);

/* What this thread has noted for `key`, if that was its last question and no pool has ended since.
 * The key's owner may be any handle. */
inside_pool *inside_pool_last(const inside_key *key);
/* pre: inside_pool_last(key) was NULL. */
void inside_pool_note(const inside_key *key, inside_pool *pool);
/* What threads have noted holds no more. */
void inside_pools_forget(void);

/* Around fork(). */
void inside_pools_lock(void);
void inside_pools_unlock(void);

#endif
