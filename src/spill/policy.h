/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which frame gives way: the order of eviction, as a data structure without I/O, locks or clocks,
 * so that the engine, the simulator (usm-replay --spill) and tests use the same code.
 *
 * A frame is an index below `frames`; what lies in it is a key (block number, unique over all
 * spaces; neighbours of one space have neighbouring keys).  One thread at a time: the engine holds
 * its lock. */
#ifndef USM_SPILL_POLICY_H
#define USM_SPILL_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USM__NO_FRAME UINT32_MAX

typedef struct usm__policy usm__policy;

/* How a block came in, and what its owner said of it. */
typedef enum usm__policy_hint {
    USM__HINT_DEMAND     = 0, /* an access waited for it, or begins to use it now            */
    USM__HINT_PREFETCH   = 1, /* a guess: nobody has used it yet                             */
    USM__HINT_ANNOUNCED  = 2, /* will be used, and once in its list                          */
    USM__HINT_SEQUENTIAL = 3, /* used once, in passing (USM_BUFFER_SEQUENTIAL)               */
    USM__HINT_PREFETCH_SEQUENTIAL = 4 /* a guess; once used, in passing                       */
} usm__policy_hint;

/* What the owner of the frames sees of one. */
typedef enum usm__policy_look {
    USM__LOOK_PINNED = 0, /* in use, being read or written: cannot go now                     */
    USM__LOOK_USED   = 1, /* used since the last look (the look has cleared that)             */
    USM__LOOK_IDLE   = 2, /* not used since                                                   */
    USM__LOOK_DIRTY  = 3  /* not used since, but must be stored first                         */
} usm__policy_look;
typedef usm__policy_look usm__policy_look_fn(void *arg, uint32_t frame);

/* Bytes of memory a policy for so many frames takes, and the policy made in it (zeroed memory). */
size_t usm__policy_size(uint32_t frames);
void   usm__policy_init(usm__policy *p, uint32_t frames);

/* frame holds key now; it held none.  A guess that is inserted by an access that already waits for
 * it is DEMAND. */
void usm__policy_insert(usm__policy *p, uint32_t frame, uint64_t key, usm__policy_hint hint);
/* frame holds none any more: evicted (its key is remembered as a ghost) or its content is dead. */
void usm__policy_remove(usm__policy *p, uint32_t frame, bool is_evicted);
/* A guess was used for the first time: from now on it counts as demanded. */
void usm__policy_used(usm__policy *p, uint32_t frame);
/* First to leave (USM_BUFFER_WONT_NEED). */
void usm__policy_demote(usm__policy *p, uint32_t frame);
/* The next frame to give up; it stays in the policy until removed.  An IDLE one if a short look
 * around finds one, else a DIRTY one when dirty ones are allowed.  USM__NO_FRAME: all are in use,
 * or, when they are not allowed, those that should go are dirty: store one, rather than to let a
 * clean one go that is worth more.  Looks at each frame a bounded number of times. */
uint32_t usm__policy_victim(usm__policy *p, bool dirty_too, usm__policy_look_fn *look, void *arg);
/* Up to n frames that victim() would give soon and that are DIRTY: to be stored ahead.  Clears
 * nothing.  `look` here must not clear either. */
size_t usm__policy_clean_ahead(usm__policy *p, uint32_t *frames, size_t n,
                               usm__policy_look_fn *look, void *arg);
/* Whether a cyclic pass longer than memory was recognised for the stream around key. */
bool usm__policy_is_cyclic(const usm__policy *p);
/* How many more guesses (PREFETCH) may be inserted now without pushing out what was asked for: to
 * be asked before each batch, as frames that are being filled cannot be given up again. */
uint32_t usm__policy_guess_room(const usm__policy *p);
bool     usm__policy_is_valid(const usm__policy *p);

#endif
