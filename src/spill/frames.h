/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The arena: a fixed number of frames, a block's worth of memory each, whose pages are moved into
 * the range of addresses where a block is looked for, and back.
 *
 * Moving (mremap with MREMAP_DONTUNMAP) keeps the pages: nothing is copied, freed or zeroed, and a
 * registration of the arena with the kernel goes on reaching them.  Where the kernel or valgrind
 * refuses that, the arena is a memory file whose frames are mapped in two places.
 *
 * A frame is at home (in the arena) or away; while it is away its place in the arena must not be
 * touched.  Thread-safe for different frames. */
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
    int      fd; /* of the memory file; -1: pages are moved                                 */
} usm__frames;

/* Addresses; memory comes with the first touch of a frame. */
usm_status usm__frames_init(usm__frames *f, uint32_t count, size_t frame_size);
/* Every frame is at home. */
void usm__frames_fini(usm__frames *f);

static inline char *usm__frames_at(const usm__frames *f, uint32_t frame)
{
    return f->base + (size_t)frame * f->frame_size;
}

/* Gives memory to a frame at home that has none: a huge page for it and its neighbours where it is
 * the first of one, so that the disk's controller gets fewer, longer pieces (R and X of usm-bench
 * spill: 1.7 to 1.9 times faster).  Touched later, in the range of a block, it would get small
 * pages. */
void usm__frames_touch(const usm__frames *f, uint32_t frame);

/* A range of addresses that faults, for blocks to be put into; aligned to 2 MiB.  NULL, errno. */
char *usm__frames_reserve(size_t size);
void  usm__frames_release(char *range, size_t size);

/* The frame's pages appear at `at`, in a reserved range.  0 or errno: ENOMEM, the process has too
 * many mappings. */
int usm__frames_put(const usm__frames *f, uint32_t frame, char *at);
/* And go home; `at` faults again.  0 or errno, when they are still there. */
int usm__frames_take(const usm__frames *f, uint32_t frame, char *at);
/* The memory of a frame at home goes back to the system: it reads as zeros then. */
void usm__frames_drop(const usm__frames *f, uint32_t frame);

#endif
