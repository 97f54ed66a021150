/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The host's open accesses to buffers that no command has used: each has a slot in a table of the
 * thread that opened it, so that opening and ending an access writes only to memory of that thread
 * and to the word of the block.
 *
 * A buffer is "tracked" (track.h) from the moment when its first command enters.  The thread that
 * submits this command looks in the slots of all threads for the exact ranges that are open.
 *
 *     host:     slot = buffer;           pin (a full barrier);  is it tracked? then the slow way
 *     command:  the buffer is tracked;   a full barrier;        look at the slots
 *
 * At least one of the two sees the other.  A slot that was seen is adopted: its access gets an
 * entry in the buffer's order, and the end of the access, which sees that the buffer is tracked,
 * removes the entry.  An access may end on another thread than it began on: `serial` distinguishes
 * it from the next one in the slot. */
#ifndef USM_BUFFER_SLOT_H
#define USM_BUFFER_SLOT_H

#include "base/inline/atomic.h"
#include "base/thread.h"

#include <stdbool.h>
#include <stdint.h>

#include <usm/buffer.h>

#define USM__OPEN_MAX 16 /* accesses of a thread in slots; more take the slow way             */

#define USM__SLOT_ADOPTED ((uintptr_t)1)

typedef struct usm__slot {
    _Atomic(uintptr_t) buffer; /* the root, possibly with USM__SLOT_ADOPTED; 0: free           */
    _Atomic(size_t)    begin, end; /* range in its space                                      */
    _Atomic(uint32_t)  mode, serial;
} usm__slot;

/* Allocated at a thread's first access; a table of an ended thread, which may still have accesses
 * open, is the next thread's. */
typedef struct usm__open_table {
    usm__slot               slots[USM__OPEN_MAX];
    struct usm__open_table *next;    /* fixed before it is linked into the list                   */
    _Atomic(bool)           is_free; /* its thread has ended                                 */
    bool                    is_giving; /* the thread evicts extents to get frames: pressure.c   */
    usm_buffer *announced; /* of the thread's last list of hints; it may be destroyed: advise.c  */
} usm__open_table;

/* The calling thread's; NULL until it is needed. */
extern USM__THREAD_LOCAL usm__open_table *usm__open_here;

/* The same, allocated if needed; NULL: no memory. */
usm__open_table *usm__slot_table(void);

/* NULL: all are in use, or the thread has no table. */
static inline usm__slot *usm__slot_find(void)
{
    usm__open_table *table = usm__open_here;

    for (int i = 0; table && i < USM__OPEN_MAX; i++)
        if (usm_load_acquire(&table->slots[i].buffer) == 0)
            return &table->slots[i];
    return NULL;
}

/* As usm__slot_find(), but allocates the table if needed. */
usm__slot *usm__slot_get(void);

/* A full barrier must follow before the caller checks whether the buffer is tracked.  Returns the
 * serial. */
static inline uint32_t usm__slot_open(usm__slot *slot, const void *root, size_t begin, size_t end,
                                      usm_access_mode mode)
{
    uint32_t serial = (usm_load_relaxed(&slot->serial) + 1) & 0xffffff;

    usm_store_relaxed(&slot->begin, begin);
    usm_store_relaxed(&slot->end, end);
    usm_store_relaxed(&slot->mode, (uint32_t)mode);
    usm_store_relaxed(&slot->serial, serial);
    usm_store_release(&slot->buffer, (uintptr_t)root);
    return serial;
}

/* As for opening: a barrier must follow, then the check. */
static inline void usm__slot_close(usm__slot *slot)
{
    usm_store_release(&slot->buffer, (uintptr_t)0);
}

/* Follows a read-modify-write that is used as a barrier.  On x86 that is a full barrier itself. */
static inline void usm__slot_barrier(void)
{
#if !defined(__x86_64__)
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

typedef struct usm__slot_seen {
    usm__slot      *slot;
    uint32_t        serial;
    size_t          begin, end;
    usm_access_mode mode;
} usm__slot_seen;

/* Walks over the slots of all threads and adopts those of `root`: returns the next one, or false.
 * *at is 0 at first.  One caller at a time for a root. */
bool usm__slot_adopt_next(const void *root, size_t *at, usm__slot_seen *seen);
/* Whether it is in the calling thread's table: for warnings. */
bool usm__slot_is_own(const usm__slot *slot);
/* Whether the calling thread has an access to it open: for warnings. */
bool usm__slot_is_open_here(const void *root);
void usm__slot_thread_ended(void);

#endif
