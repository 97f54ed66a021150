/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Commands on memory: copies, fills, hints, barriers, host tasks.
 *
 * All have one shape: queue, what to do, `ndeps` events that must complete
 * first, and, when `ev` is not NULL, an event for the command itself, which the
 * caller releases.  They return when the command is queued.  Memory must stay
 * valid until it is complete; a pattern or `deps` only for the call.
 *
 * A pointer is memory of any libusm context, or ordinary host memory.  Copies
 * may overlap (memmove); zero-length commands only carry their dependencies.
 *   USM_E_INVALID_POINTER  a NULL pointer, or a fill of memory that is neither
 *                          libusm's nor usable by the device
 *   USM_E_SIZE             a range that runs over the end of its block
 *   USM_E_NO_DATA_MOVED    the device completes copies without doing them */
#ifndef USM_COMMAND_H
#define USM_COMMAND_H

#include <usm/types.h>

USM_BEGIN_DECLS

USM_API USM_NODISCARD usm_status usm_memcpy(usm_queue *q, void *dst, const void *src, size_t n,
                                            size_t ndeps, usm_event *const *deps, usm_event **ev);

/** `height` rows of `width` bytes; pitches in bytes, >= width.  The regions
 * must not overlap. */
USM_API USM_NODISCARD usm_status usm_memcpy_2d(usm_queue *q, void *dst, size_t dst_pitch,
                                               const void *src, size_t src_pitch, size_t width,
                                               size_t height, size_t ndeps, usm_event *const *deps,
                                               usm_event **ev);

/** `value` as unsigned char. */
USM_API USM_NODISCARD usm_status usm_memset(usm_queue *q, void *dst, int value, size_t n,
                                            size_t ndeps, usm_event *const *deps, usm_event **ev);

/** `count` patterns of `pattern_size` bytes: any size, 3 and 12 too. */
USM_API USM_NODISCARD usm_status usm_fill(usm_queue *q, void *dst, const void *pattern,
                                          size_t pattern_size, size_t count, size_t ndeps,
                                          usm_event *const *deps, usm_event **ev);

/** Moves shared memory to the queue's device ahead of its use; a hint. */
USM_API USM_NODISCARD usm_status usm_prefetch(usm_queue *q, const void *p, size_t n, size_t ndeps,
                                              usm_event *const *deps, usm_event **ev);

typedef enum usm_advice {
    USM_ADVICE_DEFAULT               = 0, /**< back to the default                */
    USM_ADVICE_READ_MOSTLY           = 1,
    USM_ADVICE_PREFER_DEVICE         = 2,
    USM_ADVICE_PREFER_HOST           = 3,
    USM_ADVICE_NOT_READ_MOSTLY       = 4,
    USM_ADVICE_NO_PREFERRED_LOCATION = 5
} usm_advice;

/** A hint about how a block will be used.  A driver that takes advice for whole
 * allocations of its own (Level Zero) gets it for blocks of the pools `whole`
 * and `direct`, which are such allocations; for a block of a pool that cuts it is
 * dropped, since it would change the block's neighbours, and the command is only
 * its dependencies: USM_LOG=info tells.  `whole` hands a freed block out with
 * its advice: USM_ADVICE_DEFAULT before the free ends that. */
USM_API USM_NODISCARD usm_status usm_mem_advise(usm_queue *q, const void *p, size_t n,
                                                usm_advice advice, size_t ndeps,
                                                usm_event *const *deps, usm_event **ev);

/** Later commands of the queue wait for `deps`; without any (ndeps 0), for all
 * earlier commands of the queue. */
USM_API USM_NODISCARD usm_status usm_queue_barrier(usm_queue *q, size_t ndeps,
                                                   usm_event *const *deps, usm_event **ev);

/** Runs `fn(user)` on a thread of the library when its turn comes.  It may call
 * libusm and may block.  A status < 0 fails the command. */
typedef usm_status (*usm_task_fn)(void *user);
USM_API USM_NODISCARD usm_status usm_host_task(usm_queue *q, usm_task_fn fn, void *user,
                                               size_t ndeps, usm_event *const *deps,
                                               usm_event **ev);

USM_END_DECLS
#endif
