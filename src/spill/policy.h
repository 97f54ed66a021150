/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The order of eviction, as a data structure without I/O, locks or clocks, so that the engine, the
 * simulator (usm-replay --spill) and tests use the same code.
 *
 * A frame is an index below `frames`.  Its content is named by a key (the block's number, unique
 * over all spaces; neighbours of one space have neighbouring keys).  One thread at a time: the
 * engine holds its lock. */
#ifndef USM_SPILL_POLICY_H
#define USM_SPILL_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USM__NO_FRAME UINT32_MAX

typedef struct usm__policy usm__policy;

/* Why a block was loaded, and which use its owner announced. */
typedef enum usm__policy_hint {
    USM__HINT_DEMAND     = 0, /* an access waits for it, or begins to use it now             */
    USM__HINT_PREFETCH   = 1, /* readahead: no access has used it yet                        */
    USM__HINT_ANNOUNCED  = 2, /* hinted: it will be used, once in its list                   */
    USM__HINT_SEQUENTIAL = 3, /* used once, in a sequential pass (USM_BUFFER_SEQUENTIAL)     */
    USM__HINT_PREFETCH_SEQUENTIAL = 4 /* readahead of a sequential pass                       */
} usm__policy_hint;

/* The state of a frame's block as its owner, the engine, sees it. */
typedef enum usm__policy_look {
    USM__LOOK_PINNED = 0, /* in use, being loaded or stored: it cannot be evicted now         */
    USM__LOOK_USED   = 1, /* used since the last look (this look has cleared the mark)        */
    USM__LOOK_IDLE   = 2, /* not used since; it can be evicted                                */
    USM__LOOK_DIRTY  = 3  /* not used since, but it must be stored before it can be evicted   */
} usm__policy_look;
typedef usm__policy_look usm__policy_look_fn(void *arg, uint32_t frame);

/* Bytes of memory that a policy for `frames` frames needs; creates the policy in that (zeroed)
 * memory. */
size_t usm__policy_size(uint32_t frames);
void   usm__policy_init(usm__policy *p, uint32_t frames);

/* The frame holds `key` from now on; it was empty.  A block of readahead for which an access
 * already waits when it is inserted is DEMAND. */
void usm__policy_insert(usm__policy *p, uint32_t frame, uint64_t key, usm__policy_hint hint);
/* The frame is empty from now on: its block was evicted (its key is remembered as a ghost), or its
 * content is no longer needed. */
void usm__policy_remove(usm__policy *p, uint32_t frame, bool is_evicted);
/* A block of readahead was used for the first time: from now on it counts as demanded. */
void usm__policy_used(usm__policy *p, uint32_t frame);
/* Makes it the next victim (USM_BUFFER_WONT_NEED). */
void usm__policy_demote(usm__policy *p, uint32_t frame);
/* The next victim; it stays in the policy until it is removed.  It is IDLE if a short search finds
 * such a frame, else DIRTY if dirty_too.  USM__NO_FRAME: all are in use, or, without dirty_too, the
 * frames that should be evicted are dirty: the caller then stores one of them instead of evicting a
 * clean one that is worth more.  Looks at each frame a bounded number of times. */
uint32_t usm__policy_victim(usm__policy *p, bool dirty_too, usm__policy_look_fn *look, void *arg);
/* Finds up to n DIRTY frames that victim() would soon return, so that they can be stored early.  It
 * clears no marks, and `look` must not clear any here. */
size_t usm__policy_clean_ahead(usm__policy *p, uint32_t *frames, size_t n,
                               usm__policy_look_fn *look, void *arg);
/* Whether a cyclic pass longer than memory was recognised in the stream around key. */
bool usm__policy_is_cyclic(const usm__policy *p);
/* How many more blocks of readahead (PREFETCH) may be inserted now without evicting demanded ones.
 * The engine asks before each batch, because frames that are being filled cannot be taken back. */
uint32_t usm__policy_readahead_room(const usm__policy *p);
bool     usm__policy_is_valid(const usm__policy *p);

#endif
