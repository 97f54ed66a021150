/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The inside of a buffer.  Its bytes are a range of a space (spill/engine.h): a space of its own, a
 * part of one that small buffers share, or the user's memory.  A sub-buffer is a range of its
 * root's and has nothing else.
 *
 * The records of commands (track.h) and of device memory (locations.h) are made when the first
 * command uses the buffer.  Most small buffers are never used by one: they are created, used and
 * destroyed without a lock of their own, a list, or an allocation except their slot.
 *
 * Offsets called `begin` and `end` are in the space; those in usm__locations count from the root's
 * begin. */
#ifndef USM_BUFFER_BUFFER_H
#define USM_BUFFER_BUFFER_H

#include "base/part.h"
#include "device/context.h"
#include "device/handle.h"
#include "device/init.h"
#include "spill/engine.h"

#define USM__BUFFER_TRACKED   1u /* accesses may have to wait: the hit path is closed */
#define USM__BUFFER_FRESH     2u /* never written: the content is indeterminate       */
#define USM__BUFFER_READ_ONLY 4u
#define USM__BUFFER_SHARES    8u  /* it shares its space with others */
#define USM__BUFFER_FOREIGN   16u /* it is the user's memory         */
#define USM__BUFFER_HAS_HOME  32u
#define USM__BUFFER_NO_BACK   64u /* usm_buffer_set_write_back(false)                          */

struct usm__track;
typedef struct usm__kept usm__kept;

struct usm_buffer {
    usm__magic_word magic;
    /* fixed after create */
    unsigned           fork_generation;
    struct usm_buffer *root; /* itself, or the buffer that it is a sub-buffer of              */
    usm__space        *space;
    char              *ptr;  /* its first byte, fixed for its life                             */
    size_t             base; /* offset of that byte in the space                               */
    size_t             size;
    /* used in the root only */
    _Atomic(uint32_t) flags;
    _Atomic(uint32_t) owners; /* number of handles: its own and its sub-buffers'                 */
    _Atomic(uint32_t) refs;   /* the owners count as one; commands and accesses under way        */
    usm_context      *ctx;    /* counted by users                                                */
    usm__spill       *spill;
    char             *name; /* or NULL                                                         */
    _Atomic(struct usm__track *) track;      /* NULL until needed */
    usm__kept                   *kept;       /* owned by keep.c   */
    _Atomic(void *)              final_data; /* or NULL           */
};

/* Checks that the handle is live, and was not inherited through fork(). */
usm_status usm__buffer_check(const usm_buffer *buf);
/* Checks that [offset, offset + size) is inside the buffer. */
usm_status usm__buffer_check_range(const usm_buffer *buf, size_t offset, size_t size);
usm_status usm__buffer_check_mode(const usm_buffer *buf, usm_access_mode mode);

static inline void usm__buffer_ref(usm_buffer *root)
{
    usm_ref_take(&root->refs);
}
void usm__buffer_unref(usm_buffer *root);

/* The content is about to be written. */
static inline void usm__buffer_written(usm_buffer *root)
{
    if (usm_load_relaxed(&root->flags) & USM__BUFFER_FRESH)
        (void)atomic_fetch_and_explicit(&root->flags, ~USM__BUFFER_FRESH, memory_order_relaxed);
}

/* access.c: reads [begin, begin + size) of the root into dst, waiting for commands. */
usm_status usm__buffer_read(usm_buffer *root, size_t begin, void *dst, size_t size);
/* Waits for all commands, and copies everything to host memory if `bring`. */
usm_status usm__buffer_finalize(usm_buffer *root, bool bring);

/* Hooks of the part (base/part.h): pressure.c. */
size_t usm__buffers_starved(usm_context *owner, size_t bytes);
size_t usm__buffers_give_back(usm_context *ctx, usm_device *dev, usm_kind kind, size_t size);

extern const usm_part usm__buffer_part;

#endif
