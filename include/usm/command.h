/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Commands on memory: copies, fills, hints, barriers, host tasks.
 *
 * All of them have the same form: a queue, what to do, `ndeps` events that must
 * complete first and, if `ev` is not NULL, an event of the command, which the
 * caller releases.  They return when the command is queued.  Memory must stay
 * valid until the command is complete; a pattern and `deps` only during the
 * call.
 *
 * A pointer is to memory of any libusm context, or to ordinary host memory.
 * The two ranges of a copy may overlap (memmove).  A command of length zero
 * only waits for its dependencies.  Sizes are bytes.
 *   USM_E_INVALID_POINTER  a NULL pointer, or a fill of memory that is neither
 *                          libusm's nor accessible to the device
 *   USM_E_SIZE             the range exceeds its block
 *   USM_E_NO_DATA_MOVED    the device completes copies without moving data */
#ifndef USM_COMMAND_H
#define USM_COMMAND_H

#include <usm/types.h>

USM_BEGIN_DECLS

USM_API USM_NODISCARD usm_status usm_memcpy(usm_queue *q, void *dst, const void *src, size_t n,
                                            size_t ndeps, usm_event *const *deps, usm_event **ev);

/** Copies `height` rows of `width` bytes.  The pitches are bytes, >= width.  The
 * two regions must not overlap. */
USM_API USM_NODISCARD usm_status usm_memcpy_2d(usm_queue *q, void *dst, size_t dst_pitch,
                                               const void *src, size_t src_pitch, size_t width,
                                               size_t height, size_t ndeps, usm_event *const *deps,
                                               usm_event **ev);

/** Sets n bytes to `value`, converted to unsigned char. */
USM_API USM_NODISCARD usm_status usm_memset(usm_queue *q, void *dst, int value, size_t n,
                                            size_t ndeps, usm_event *const *deps, usm_event **ev);

/** Writes `count` patterns of `pattern_size` bytes, which may be any size, such
 * as 3 or 12. */
USM_API USM_NODISCARD usm_status usm_fill(usm_queue *q, void *dst, const void *pattern,
                                          size_t pattern_size, size_t count, size_t ndeps,
                                          usm_event *const *deps, usm_event **ev);

/** A hint: migrates shared memory to the queue's device before its use; loads
 * managed memory (usm/managed.h), as far as there is room, without waiting for
 * `deps`. */
USM_API USM_NODISCARD usm_status usm_prefetch(usm_queue *q, const void *p, size_t n, size_t ndeps,
                                              usm_event *const *deps, usm_event **ev);

typedef enum usm_advice {
    USM_ADVICE_DEFAULT               = 0, /**< removes earlier advice */
    USM_ADVICE_READ_MOSTLY           = 1,
    USM_ADVICE_PREFER_DEVICE         = 2,
    USM_ADVICE_PREFER_HOST           = 3,
    USM_ADVICE_NOT_READ_MOSTLY       = 4,
    USM_ADVICE_NO_PREFERRED_LOCATION = 5,
    /* Of managed memory; others are not changed by them. */
    USM_ADVICE_SEQUENTIAL = 6, /**< will be used in rising order   */
    USM_ADVICE_RANDOM     = 7, /**< no order: no readahead         */
    USM_ADVICE_WILL_NEED  = 8  /**< load it, as usm_prefetch() does */
} usm_advice;

/** A hint about the future use of a block.  Some drivers (Level Zero) apply
 * advice to their whole allocation.  They receive it for blocks of the pools
 * `whole` and `direct`, which are such allocations.  For a block of a pool that
 * cuts areas into blocks, libusm drops the advice, because it would also apply
 * to the block's neighbours: the command then only waits for its dependencies,
 * and USM_LOG=info reports this.  `whole` reuses a freed block together with
 * its advice, unless USM_ADVICE_DEFAULT is given before the free.
 * Managed memory heeds DEFAULT, SEQUENTIAL, RANDOM and WILL_NEED, at once. */
USM_API USM_NODISCARD usm_status usm_mem_advise(usm_queue *q, const void *p, size_t n,
                                                usm_advice advice, size_t ndeps,
                                                usm_event *const *deps, usm_event **ev);

/** Later commands of the queue wait for `deps`; with ndeps 0, for all earlier
 * commands of the queue. */
USM_API USM_NODISCARD usm_status usm_queue_barrier(usm_queue *q, size_t ndeps,
                                                   usm_event *const *deps, usm_event **ev);

/** Runs `fn(user)` on a thread of the library when the queue reaches the
 * command.  fn may call libusm and may block.  A status < 0 fails the command. */
typedef usm_status (*usm_task_fn)(void *user);
USM_API USM_NODISCARD usm_status usm_host_task(usm_queue *q, usm_task_fn fn, void *user,
                                               size_t ndeps, usm_event *const *deps,
                                               usm_event **ev);

USM_END_DECLS
#endif
