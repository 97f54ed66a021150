/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Queues: where commands wait for their device.
 *
 * In an in-order queue each command starts after the one before it; in an
 * out-of-order queue only dependencies and barriers order.  Submitting never
 * waits for the device.  Queues are thread-safe: commands of several threads
 * are queued in some order of their calls. */
#ifndef USM_QUEUE_H
#define USM_QUEUE_H

#include <usm/context.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef enum usm_queue_flags {
    USM_QUEUE_IN_ORDER     = 0,
    USM_QUEUE_OUT_OF_ORDER = 1 << 0,
    USM_QUEUE_PROFILING    = 1 << 1 /**< events have times                         */
} usm_queue_flags;

typedef struct usm_queue_desc {
    size_t   struct_size;
    uint32_t flags; /**< usm_queue_flags                                           */
} usm_queue_desc;
#define USM_QUEUE_DESC_INIT                                                                        \
    {                                                                                              \
        sizeof(usm_queue_desc), USM_QUEUE_IN_ORDER                                                 \
    }

/** Caller owns *q.  `ctx` NULL: the default context; `dev` NULL: the context's first device; `desc`
 * NULL: in order, no times. USM_E_INVALID        dev is not in ctx USM_E_NOT_SUPPORTED  the device
 * lacks out-of-order queues or profiling */
USM_API USM_NODISCARD usm_status usm_queue_create(usm_context *ctx, usm_device *dev,
                                                  const usm_queue_desc *desc, usm_queue **q);

/** A native queue of Level Zero, whose handles do not tell what they are: one of the first two. */
typedef struct usm_level_zero_queue {
    size_t   struct_size;   /**< sizeof(usm_level_zero_queue)                        */
    void    *command_list;  /**< ze_command_list_handle_t, immediate                 */
    void    *command_queue; /**< ze_command_queue_handle_t                           */
    void    *device;        /**< ze_device_handle_t it was made for                  */
    uint32_t ordinal;       /**< its queue group: regular lists are made for that    */
    bool     is_in_order;   /**< the list was made with the in-order flag            */
} usm_level_zero_queue;
#define USM_LEVEL_ZERO_QUEUE_INIT                                                                  \
    {                                                                                              \
        sizeof(usm_level_zero_queue), NULL, NULL, NULL, 0, false                                   \
    }

/** A queue over a native one of the context's native context: a cl_command_queue; for Level Zero
 * a pointer to a usm_level_zero_queue, which is read and not kept.  Commands of libusm keep their
 * order there; the program's own ones are not waited for. */
USM_API USM_NODISCARD usm_status usm_queue_from_native(usm_context *ctx, void *handle,
                                                       usm_ownership ownership, usm_queue **q);

/** NULL is fine.  Does not wait: commands in flight go on and the device's part
 * of the queue is given back after the last of them. */
USM_API void usm_queue_destroy(usm_queue *q);

/** Waits for every command submitted so far.  The status is the first failure
 * among those that were submitted without an event, if the backend knows it.
 *   USM_E_BUSY  called by a host task of this queue: it would wait for its own end */
USM_API usm_status usm_queue_wait(usm_queue *q);

/** USM_OK when nothing submitted is unfinished, USM_E_NOT_READY otherwise. */
USM_API USM_NODISCARD usm_status usm_queue_query(usm_queue *q);

USM_API usm_context *usm_queue_get_context(usm_queue *q);
USM_API usm_device  *usm_queue_get_device(usm_queue *q);
/** A cl_command_queue; for Level Zero a pointer to a usm_level_zero_queue, valid as long as q,
 * whose handle is the first one of an out-of-order queue. */
USM_API USM_NODISCARD usm_status usm_queue_get_native(usm_queue *q, const char *backend,
                                                      void **handle);

/** One a process, in order, thread-safe, the library's: on the first device of
 * the selector.  NULL and a story on failure. */
USM_API usm_queue *usm_default_queue(void);

USM_END_DECLS
#endif
