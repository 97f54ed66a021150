/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Readahead: predicts the next blocks from the order of accesses to one space.  A data structure
 * without I/O, locks or clocks, as spill/policy.h: the engine, the simulator and tests share it.
 *
 * It predicts from the first of these that has an answer: the stream that the access continues, a
 * pass with a constant stride; the blocks that followed last time (successors).  Each kind of
 * prediction has a window that grows while its blocks are used and shrinks to zero while they are
 * not; from zero it is tried again, rarely, at a bounded cost.  Lists of hints are not predictions:
 * the engine loads those itself. */
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
 * streams (two threads passing over two halves, a read and a write stream) are distinguished. */
typedef struct usm__prefetch usm__prefetch;

size_t usm__prefetch_size(uint32_t blocks);
/* A window that keeps the disk busy and leaves memory to blocks worth keeping: a sixteenth of the
 * frames, at least eight blocks, at most a quarter of the frames and 32 MiB. */
uint32_t usm__prefetch_usual(uint32_t frames, uint64_t block_size);
/* blocks: number of blocks of the space, for the size of the state. most: largest window, in
 * blocks. */
void usm__prefetch_init(usm__prefetch *p, uint32_t blocks, uint32_t most);
void usm__prefetch_set(usm__prefetch *p, usm__pattern pattern, uint32_t most);
/* The engine reports an access to `block` that missed, or that was the first use of a block of
 * readahead (was_guess).  Writes to `out` the blocks to load now, nearest first, without those
 * requested recently; the engine skips those that are resident.  cap: how many the engine would
 * load now (at most usm__policy_readahead_room()): the rest is requested next time. cap is 0 for an
 * access that loads nothing (NO_INIT): it updates the history only.  Returns how many. */
size_t usm__prefetch_next(usm__prefetch *p, uint32_t block, bool was_predicted, uint32_t *out,
                          size_t cap);
/* A block of readahead was evicted without having been used. */
void usm__prefetch_wasted(usm__prefetch *p, uint32_t block);
/* Whether the previous access was part of a sequential pass: then a miss may load whole blocks. */
bool usm__prefetch_in_order(const usm__prefetch *p);

#endif
