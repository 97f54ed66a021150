/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Coherence of a buffer's bytes: where they are valid, in host memory (its space) or in runs of
 * device memory ("extents"), by ranges; and the copies that bring them where they are needed, as
 * few as possible.
 *
 * Devices that access host memory in place (system allocations, the host backend) have no extents:
 * for them everything is in host memory.  On other devices an accessor's range gets one contiguous
 * run of the device's memory: the run that covers it, or a new one.  Runs of a buffer on one device
 * may overlap (tiles with halos).  A byte may be valid in any number of them and in host memory;
 * wherever it is valid it is the newest.  When the device is full, extents that no command uses are
 * evicted: first those that are cheap to copy back and were used longest ago.  Bytes that are valid
 * nowhere else are copied to host memory.
 *
 * There is one usm__locations for a buffer.  Its functions are called with the buffer's lock held,
 * one at a time; changes by calls for other buffers (which evict its extents) are guarded inside.
 *
 * Locks (locations.c): one lock of rank USM__RANK_LOCATIONS guards all extents, validity and LRU
 * lists.  It is never held over a driver's call, a pin or a wait, so a thread that holds a buffer's
 * lock may take it.  A thread that evicts another buffer's extent does not need that buffer's lock:
 * the extent is marked is_leaving, and calls for overlapping ranges of its buffer wait until it is
 * gone.  The evicting thread waits for its copy and for room in host memory, never for a buffer's
 * lock. */
#ifndef USM_BUFFER_LOCATIONS_H
#define USM_BUFFER_LOCATIONS_H

#include "command/queue.h"
#include "spill/engine.h"

typedef struct usm__locations usm__locations;
typedef struct usm__extent    usm__extent;

/* base: offset of the buffer in `space` (small buffers share one).  host_valid false: the content
 * is indeterminate, and nothing need be copied until it is written. */
usm_status usm__locations_create(usm__space *space, size_t base, size_t size, bool host_valid,
                                 usm__locations **out);
/* pre: no command uses it.  Frees device memory and copies nothing.  Waits for copies of commands
 * that were withdrawn after usm__locations_to_device(). */
void usm__locations_destroy(usm__locations *p);

/* Whether the queue's device accesses host memory in place: the pointer is then space + offset. */
bool usm__locations_in_place(const usm_queue *q);
/* For tests: no device does, so that the host backend gets device memory of its own. */
void usm__locations_force_copies(bool force);

/* For a command on q: *extent (counted) covers [offset, offset + size), *ptr is the device's
 * address of `offset`.  Bytes that the mode needs and the device lacks are copied by commands in
 * q's context that wait for `deps` (the commands before it that touch the range, where one of the
 * two writes).  The events of these copies, and of copies still under way there, are added to
 * `after`: the command must wait for them, besides `deps`.  Host blocks that the copies read are
 * pinned until then.  The new validity is recorded at once: for everything that is ordered behind
 * the command it will have run.  Ranges of one command that overlap, one of them written, must be
 * passed as one.
 *
 *     USM_E_BUDGET, USM_E_NO_MEMORY  the range, with what this command holds, does not fit; or an
 *                                    extent that would have to be evicted cannot be
 *     USM_E_BUSY   extents in use by other commands are in the way: see
 * usm__locations_await_memory()
 *     USM_E_AGAIN  it would have to wait for storage, memory or the extents of others, and may_wait
 *                  is false; or accesses hold the host memory; the error message names them
 *
 * After any failure the content of the range is unchanged. */
typedef struct usm__locations_events {
    size_t      n, cap;
    usm_event **list;
    usm_event  *first[8];
} usm__locations_events;
#define USM__EVENT_LIST_INIT                                                                       \
    {                                                                                              \
        .list = NULL                                                                               \
    }
usm_status usm__locations_events_add(usm__locations_events *l,
                                     usm_event             *ev); /* consumes the reference   */
void       usm__locations_events_fini(
          usm__locations_events *l); /* releases the references; empty again    */

typedef struct usm__locations_want {
    usm_queue        *q;
    size_t            offset, size;
    usm_access_mode   mode;
    bool              may_wait;
    size_t            ndeps;
    usm_event *const *deps;
    /* Extents that the same command has got already: their uses are its own. */
    size_t              nheld;
    usm__extent *const *held;
} usm__locations_want;
usm_status usm__locations_to_device(usm__locations *p, const usm__locations_want *want,
                                    usm__extent **extent, void **ptr, usm__locations_events *after);
/* The command that used it has ended, or was withdrawn.  Any thread; needs no buffer's lock. */
void usm__extent_unuse(usm__extent *e);

/* Bytes that extents may take on the queue's device; UINT64_MAX: no limit but its memory. */
uint64_t usm__extents_most(const usm_queue *q);
/* After USM_E_BUSY: waits until other commands use fewer extents of the queue's device than at
 * `turn`, which usm__locations_turn() returned before the attempt.  The caller holds no buffer's
 * lock and no extent (a command releases what it has: two commands that hold a half each would wait
 * forever). */
uint64_t usm__locations_turn(const usm_queue *q);
void     usm__locations_await_memory(const usm_queue *q, uint64_t turn);

/* Whether the newest bytes of the range are in host memory for `mode`, so that nothing need be
 * done.  Reading: they are valid there, or nowhere.  Writing: they are valid there and nowhere
 * else, and no copy still reads them. */
bool usm__locations_is_on_host(const usm__locations *p, size_t offset, size_t size,
                               usm_access_mode mode);
/* Copies the bytes that the mode needs to host memory, whose blocks the caller has pinned for
 * writing; waits.  pre: the commands before it have ended.  Records the new validity.
 * USM_E_DEVICE_LOST, ... */
usm_status usm__locations_to_host(usm__locations *p, size_t offset, size_t size,
                                  usm_access_mode mode);
/* The content is no longer needed: valid nowhere. */
void usm__locations_discard(usm__locations *p, size_t offset, size_t size);

/* Device memory is needed for something else: evicts unused extents of the device, the context's
 * own first, and makes their pools return idle memory to the driver; returns the bytes of the
 * evicted extents. ctx NULL: no context comes first.  No buffer's lock is needed. */
size_t usm__locations_give_back(usm_context *ctx, usm_device *dev, size_t bytes);
/* Lists the devices that have or had extents; returns how many. */
size_t usm__locations_devices(usm_device **list, size_t cap);
/* Bytes of extents on all devices of the process, for statistics and leak tests. */
uint64_t usm__locations_device_bytes(void);
void     usm__locations_fork(usm_fork_phase phase);

#endif
