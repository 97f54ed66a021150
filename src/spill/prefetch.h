/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which blocks will be needed next: guesses from the order of accesses of one space.  A data
 * structure without I/O, locks or clocks, as spill/policy.h: engine, simulator and tests share it.
 *
 * In this order: the stride by majority of the last deltas; what followed last time (successors);
 * nothing.  Each kind of guess has a window that grows while its guesses are used and shrinks to
 * zero while they are not; from zero it is tried again, rarely, at a cost that is bounded.
 * Announced lists are no guesses: the engine brings those in itself. */
#ifndef USM_SPILL_PREFETCH_H
#define USM_SPILL_PREFETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum usm__pattern {
    USM__PATTERN_AUTO       = 0,
    USM__PATTERN_SEQUENTIAL = 1,
    USM__PATTERN_RANDOM     = 2
} usm__pattern;

/* State of one space, in zeroed memory of its owner.  One thread at a time.  Several interleaved
 * streams (two threads passing over two halves, a read and a write stream) are told apart. */
typedef struct usm__prefetch usm__prefetch;

size_t usm__prefetch_size(uint32_t blocks);
/* A window that fills the disk and leaves memory to what is kept: a sixteenth of the frames, at
 * least eight blocks, at most a quarter of the frames and 32 MiB. */
uint32_t usm__prefetch_usual(uint32_t frames, uint64_t block_size);
/* blocks: of the space, as for the size. most: largest window, in blocks. */
void usm__prefetch_init(usm__prefetch *p, uint32_t blocks, uint32_t most);
void usm__prefetch_set(usm__prefetch *p, usm__pattern pattern, uint32_t most);
/* An access reached `block` that missed, or used a guess for the first time (was_guess).  Writes to
 * out the blocks to bring in now, nearest first; those already asked for lately are left out; the
 * engine skips those that are there.  cap: how many it would bring in now (not more than
 * usm__policy_guess_room()): what does not fit is asked for next time; 0 for an access that brings
 * nothing in (NO_INIT): the pass is followed, and nothing is brought in for it.  Returns how many.
 */
size_t usm__prefetch_next(usm__prefetch *p, uint32_t block, bool was_guess, uint32_t *out,
                          size_t cap);
/* A guess left memory without having been used. */
void usm__prefetch_wasted(usm__prefetch *p, uint32_t block);
/* Whether the access before was part of an ordered pass: a miss may bring in whole blocks. */
bool usm__prefetch_in_order(const usm__prefetch *p);

#endif
