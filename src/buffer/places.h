/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where the valid bytes of a buffer are: in host memory (its space) or in runs of device memory
 * ("extents"), by ranges; and the copies that bring them where they are wanted, the fewest
 * possible.
 *
 * Devices that reach host memory in place (system allocations, the host backend) have no extents:
 * for them everything is in host memory.  Elsewhere an accessor's range gets one contiguous run of
 * the device's memory: the run that covers it, or a new one.  Runs of a buffer on one device may
 * overlap (tiles with halos); a byte is valid in any number of them and in host memory, and newest
 * wherever it is valid.  When the device is full, extents that no command uses leave it: what is
 * cheap to bring back and was used longest ago first, bytes that are valid nowhere else going back
 * to host memory.
 *
 * One usm__places a buffer.  Its functions are called with the buffer's lock held, one at a time;
 * what other buffers' calls change of it (extents that leave) is guarded inside.
 *
 * Locks (places.c): one lock of rank USM__RANK_PLACES over all extents, validity and LRU lists.  It
 * is never held over a driver's call, a pin or a wait, so whoever holds a buffer's lock may take
 * it, and who evicts another buffer's extent needs that buffer's lock for nothing: an extent is
 * marked as leaving, and calls for overlapping ranges of its buffer wait until it has left.  Who
 * makes it leave waits for its copy and for room in host memory, never for a buffer's lock. */
#ifndef USM_BUFFER_PLACES_H
#define USM_BUFFER_PLACES_H

#include "core/queue.h"
#include "spill/engine.h"

typedef struct usm__places usm__places;
typedef struct usm__extent usm__extent;

/* base: of the buffer in `space` (small buffers share one).  host_valid false: the content is
 * indeterminate, nothing need be brought anywhere until somebody writes. */
usm_status usm__places_create(usm__space *space, size_t base, size_t size, bool host_valid,
                              usm__places **out);
/* No command uses it; device memory is given back, nothing is copied.  Waits for copies of commands
 * that were given up after usm__places_to_device(). */
void usm__places_destroy(usm__places *p);

/* Whether the queue's device works on host memory in place: the pointer is then space + offset. */
bool usm__places_in_place(const usm_queue *q);
/* For tests: no device does, so that the host backend has device memory of its own. */
void usm__places_force_copies(bool force);

/* For a command on q: *extent (counted) covers [offset, offset + size), *ptr is the device's
 * address of `offset`.  What the mode needs and the device lacks is copied by commands in q's
 * context that wait for `deps` (those before it that touch the range, one of both writing); their
 * events, and those of copies still under way there, are added to `after`, which the command must
 * wait for, besides `deps`.  Host blocks that are read meanwhile are pinned until then.  The mode's
 * validity is entered at once (the command will have happened for everybody who orders behind it).
 * Ranges of one command that overlap, one of them written, are to be asked for as one.
 *   USM_E_BUDGET, USM_E_NO_MEMORY  the range, with what this command holds, does not fit; or what
 *                                  would have to leave cannot
 *   USM_E_BUSY   extents in use by other commands are in the way: see usm__places_await_memory()
 *   USM_E_AGAIN  it would have to wait for storage or memory, or for others' extents, and may_wait
 * is false; or host memory is held by accesses, which the story names Whatever fails, the content
 * of the range is as it was. */
typedef struct usm__event_list {
    size_t      n, cap;
    usm_event **list;
    usm_event  *first[8];
} usm__event_list;
#define USM__EVENT_LIST_INIT                                                                       \
    {                                                                                              \
        .list = NULL                                                                               \
    }
usm_status usm__event_list_add(usm__event_list *l, usm_event *ev); /* takes the reference over */
void       usm__event_list_fini(usm__event_list *l); /* gives the references back; empty again  */

typedef struct usm__device_want {
    usm_queue        *q;
    size_t            offset, size;
    usm_access_mode   mode;
    bool              may_wait;
    size_t            ndeps;
    usm_event *const *deps;
    /* What the same command got before: these extents' uses are its own. */
    size_t              nheld;
    usm__extent *const *held;
} usm__device_want;
usm_status usm__places_to_device(usm__places *p, const usm__device_want *want, usm__extent **extent,
                                 void **ptr, usm__event_list *after);
/* The command that used it has ended, or was given up.  Any thread; needs no buffer's lock. */
void usm__extent_unuse(usm__extent *e);

/* Bytes that extents may have on the queue's device; UINT64_MAX: what there is. */
uint64_t usm__extents_most(const usm_queue *q);
/* After USM_E_BUSY: waits until other commands use fewer extents of the queue's device than at
 * `turn`, which usm__places_turn() gave before the attempt.  No buffer's lock is held, and no
 * extent (a command gives up what it got: two that hold a half each would wait for ever). */
uint64_t usm__places_turn(const usm_queue *q);
void     usm__places_await_memory(const usm_queue *q, uint64_t turn);

/* Whether the range is newest in host memory for `mode`, nothing need be done: reading: valid
 * there, or nowhere; writing: valid there and nowhere else, and no copy still reads it. */
bool usm__places_is_on_host(const usm__places *p, size_t offset, size_t size, usm_access_mode mode);
/* Brings what the mode needs to host memory, whose blocks the caller has pinned for writing; waits.
 * The commands before it have ended.  Enters the mode's validity.   USM_E_DEVICE_LOST, ... */
usm_status usm__places_to_host(usm__places *p, size_t offset, size_t size, usm_access_mode mode);
/* Content is dead: valid nowhere. */
void usm__places_discard(usm__places *p, size_t offset, size_t size);

/* Device memory is wanted for something else: unused extents of the device leave it, the context's
 * own first, and their pools give what is idle back to the driver; returns how much extents gave
 * up. ctx NULL: nobody's first.  No buffer's lock is needed. */
size_t usm__places_give_back(usm_context *ctx, usm_device *dev, size_t bytes);
/* The devices that have or had extents: how many are in list. */
size_t usm__places_devices(usm_device **list, size_t cap);
/* Bytes of extents on all devices of the process, for statistics and leak gates. */
uint64_t usm__places_device_bytes(void);
void     usm__places_fork(usm_fork_phase phase);

#endif
