/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Records of tracked blocks: those allocated under a tag or while USM_DEBUG, USM_VALIDATION or a
 * checker is active.  They are kept apart from the blocks, which may be in device memory.
 *
 * A hash table, keyed by the address of the pool's block, in shards with a lock each.  The table
 * owns the records in it.  A thread that takes a record out owns it, and has the right to free the
 * block: of two frees of one block at the same moment only one finds the record. */
#ifndef USM_OBSERVE_TRACKED_H
#define USM_OBSERVE_TRACKED_H

#include "heap/pool.h"
#include "observe/tag.h"

/* The pool's block, and the program's part of it:
 *
 *     base        user            user + usable     base + size
 *      |  zone     |  asked bytes  |  zone            |             with red zones
 *      user = base |  asked bytes  |  rest            |             without */
typedef struct usm__record {
    struct usm__record *next; /* in its bucket, or in a chain of records taken out */
    usm_block           block;
    char               *user;
    size_t              asked;  /* the requested size, possibly 0                    */
    size_t              usable; /* bytes that the program may use: asked, at least 1 */
    usm_pool           *pool;
    const usm_device   *dev; /* lives as long as the process                                */
    usm__tag           *tag; /* or NULL                                                     */
    unsigned            generation; /* of forks: the child's own blocks have the latest */
    usm_kind            kind;
    bool                is_exact;  /* the program sees `usable` bytes, not the block's size */
    bool                has_zones; /* red zones are written                                 */
    bool                on_host;   /* the host may access it                                */
} usm__record;

/* NULL: no memory. */
usm__record       *usm__record_new(void);
void               usm__record_free(usm__record *r);
static inline bool usm__record_on_host(const usm__record *r)
{
    return r->on_host;
}

/* Adds r.  If there is a record for that address already (of a block that ended without a free,
 * because its pool was reset), it is taken out and returned; otherwise returns NULL.  Cannot
 * fail. */
usm__record *usm__tracked_enter(usm__record *r);
/* Takes out the record of the pool's block at `base` whose program's pointer is `user`; NULL: there
 * is none. */
usm__record *usm__tracked_take(const void *base, const void *user);
/* Copies the record of the pool's block at `base`; false: there is none. */
bool usm__tracked_find(const void *base, usm__record *copy);
/* True if there are records: a free of any block must look for one. */
bool usm__tracked_any(void);

typedef bool usm__tracked_fn(const usm__record *r, void *arg);
/* Calls fn for each record, with a shard's lock held (rank WATCH). */
void usm__tracked_each(usm__tracked_fn *fn, void *arg);
/* Takes out the records for which fn returns true; they form a chain by `next`. */
usm__record *usm__tracked_sweep(usm__tracked_fn *fn, void *arg);
void         usm__tracked_fork(usm_fork_phase phase);

#endif
