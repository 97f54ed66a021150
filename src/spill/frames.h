/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The arena: a fixed number of frames, each with memory for one block.  The pages of a frame are
 * moved into the range of addresses that its block belongs to, and back.
 *
 * Moving (mremap with MREMAP_DONTUNMAP) keeps the pages: nothing is copied, freed or zeroed, and a
 * registration of the arena with the kernel still reaches them.  Where the kernel or valgrind
 * refuses to move, the arena is a memory file whose frames are mapped in two places.
 *
 * The pages of a frame are either in the arena or in a block's range; in the second case the
 * frame's addresses in the arena must not be touched.  Thread-safe for different frames. */
#ifndef USM_SPILL_FRAMES_H
#define USM_SPILL_FRAMES_H

#include <usm/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct usm__frames {
    char    *base; /* aligned to 2 MiB                                                      */
    size_t   size; /* bytes                                                                 */
    size_t   frame_size;
    uint32_t count;
    int      fd; /* of the memory file; -1: pages are moved instead                         */
} usm__frames;

/* Reserves addresses; the system provides memory at the first touch of a frame. */
usm_status usm__frames_init(usm__frames *f, uint32_t count, size_t frame_size);
/* pre: the pages of every frame are in the arena. */
void usm__frames_fini(usm__frames *f);

static inline char *usm__frames_at(const usm__frames *f, uint32_t frame)
{
    return f->base + (size_t)frame * f->frame_size;
}

/* Provides memory for a frame in the arena that has none.  The first frame of a huge page gets one
 * for itself and its neighbours, so that the disk's controller receives fewer, longer pieces (R and
 * X of usm-bench spill: 1.7 to 1.9 times faster).  If it were first touched later, in the range of
 * a block, it would get small pages. */
void usm__frames_touch(const usm__frames *f, uint32_t frame);

/* Reserves a range of addresses that faults, into which blocks are moved; aligned to 2 MiB.  NULL:
 * it failed, see errno. */
char *usm__frames_reserve(size_t size);
void  usm__frames_release(char *range, size_t size);

/* Moves the frame's pages to `at`, in a reserved range.  Returns 0 or errno; ENOMEM: the process
 * has too many mappings. */
int usm__frames_put(const usm__frames *f, uint32_t frame, char *at);
/* Moves the pages back to the arena; `at` faults again.  Returns 0, or errno when the pages are
 * still at `at`. */
int usm__frames_take(const usm__frames *f, uint32_t frame, char *at);
/* Returns the memory of a frame in the arena to the system: the frame then reads as zeros. */
void usm__frames_drop(const usm__frames *f, uint32_t frame);

#endif
