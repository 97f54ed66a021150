/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Records of watched blocks: those allocated under a tag or while USM_DEBUG, USM_VALIDATION or a
 * checker looks.  Out of band, for blocks may be a device's.
 *
 * A hash table by the address of the pool's block, in shards with a lock each.  A record belongs to
 * the table while it is in it; who takes it out owns it, and with it the right to free the block:
 * of two frees of one block at the same moment only one finds it. */
#ifndef USM_CORE_WATCH_H
#define USM_CORE_WATCH_H

#include "core/pool.h"
#include "core/tag.h"

/* The block as the pool gave it, and the program's part of it:
 *
 *     base        user            user + usable     base + size
 *      |  zone     |  asked bytes  |  zone            |             with red zones
 *      user = base |  asked bytes  |  rest            |             without               */
typedef struct usm__record {
    struct usm__record *next; /* in its bucket, or in a chain of those taken out            */
    usm_block           block;
    char               *user;
    size_t              asked;  /* as asked for, 0 included                                  */
    size_t              usable; /* what the program may use: asked, at least 1               */
    usm_pool           *pool;
    const usm_device   *dev; /* lives as long as the process                                */
    usm__tag           *tag; /* or NULL                                                     */
    unsigned            generation; /* of forks: a child's own blocks are the latest         */
    usm_kind            kind;
    bool is_exact;  /* the program sees `usable` bytes, not the block's                         */
    bool has_zones; /* red zones are painted                                                */
    bool on_host;   /* the host may touch it                                                */
} usm__record;

/* NULL when out of memory. */
usm__record       *usm__record_new(void);
void               usm__record_free(usm__record *r);
static inline bool usm__record_on_host(const usm__record *r)
{
    return r->on_host;
}

/* Enters r. What was there of that address (a block that went without a free: its pool was reset)
 * is taken out and returned, or NULL.  Cannot fail. */
usm__record *usm__watch_enter(usm__record *r);
/* The record of the pool's block at `base` whose program's pointer is `user`, taken out; NULL when
 * there is none. */
usm__record *usm__watch_take(const void *base, const void *user);
/* A copy of the record of the pool's block at `base`; false when there is none. */
bool usm__watch_find(const void *base, usm__record *copy);
/* How many there are; a free of any block must look when there is one. */
size_t usm__watch_count(void);

typedef bool usm__watch_fn(const usm__record *r, void *arg);
/* Calls fn with each, a shard's lock held (rank WATCH). */
void usm__watch_each(usm__watch_fn *fn, void *arg);
/* Takes out those fn says true of; a chain by `next`. */
usm__record *usm__watch_sweep(usm__watch_fn *fn, void *arg);
void         usm__watch_fork(int phase);

#endif
