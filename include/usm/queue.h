/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Queues: commands that wait for their device.
 *
 * In an in-order queue each command starts after the previous one has ended.
 * In an out-of-order queue only dependencies and barriers order commands.
 * Submitting a command never waits for the device.  Queues are thread-safe:
 * commands of several threads are queued in one order of the calls. */
#ifndef USM_QUEUE_H
#define USM_QUEUE_H

#include <usm/context.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef enum usm_queue_flags {
    USM_QUEUE_IN_ORDER     = 0,
    USM_QUEUE_OUT_OF_ORDER = 1 << 0,
    USM_QUEUE_PROFILING    = 1 << 1 /**< events record times */
} usm_queue_flags;

typedef struct usm_queue_desc {
    size_t   struct_size;
    uint32_t flags; /**< usm_queue_flags */
} usm_queue_desc;
#define USM_QUEUE_DESC_INIT                                                                        \
    {                                                                                              \
        sizeof(usm_queue_desc), USM_QUEUE_IN_ORDER                                                 \
    }

/** Creates a queue.  The caller owns *q.  `ctx` NULL: the default context.
 * `dev` NULL: the context's first device.  `desc` NULL: in order, without
 * profiling.
 *   USM_E_INVALID        dev is not in ctx
 *   USM_E_NOT_SUPPORTED  the device lacks out-of-order queues or profiling */
USM_API USM_NODISCARD usm_status usm_queue_create(usm_context *ctx, usm_device *dev,
                                                  const usm_queue_desc *desc, usm_queue **q);

/** A native queue of Level Zero.  Level Zero's handles do not identify their
 * type, so exactly one of command_list and command_queue is set. */
typedef struct usm_level_zero_queue {
    size_t   struct_size;   /**< sizeof(usm_level_zero_queue)        */
    void    *command_list;  /**< ze_command_list_handle_t, immediate */
    void    *command_queue; /**< ze_command_queue_handle_t           */
    void    *device;        /**< ze_device_handle_t of its device    */
    uint32_t ordinal;       /**< its queue group; libusm creates its regular command lists for
                                 this group */
    bool     is_in_order;   /**< the list was created with the in-order flag */
} usm_level_zero_queue;
#define USM_LEVEL_ZERO_QUEUE_INIT                                                                  \
    {                                                                                              \
        sizeof(usm_level_zero_queue), NULL, NULL, NULL, 0, false                                   \
    }

/** Creates a queue from a native one of the context's native context: a
 * cl_command_queue, or for Level Zero a pointer to a usm_level_zero_queue,
 * which the function reads and does not keep.  libusm's commands keep their
 * order in the native queue; libusm does not wait for commands that the program
 * itself puts there. */
USM_API USM_NODISCARD usm_status usm_queue_from_native(usm_context *ctx, void *handle,
                                                       usm_ownership ownership, usm_queue **q);

/** Destroys a queue, or does nothing if it is NULL.  Does not wait: commands in
 * flight go on, and the device's resources of the queue are released after the
 * last of them. */
USM_API void usm_queue_destroy(usm_queue *q);

/** Waits for every command submitted so far.  Returns the first failure among
 * the commands that were submitted without an event, if the backend knows it.
 *   USM_E_BUSY  called by a host task of this queue, which would wait for itself */
USM_API usm_status usm_queue_wait(usm_queue *q);

/** Returns USM_OK when all submitted commands have ended, else USM_E_NOT_READY. */
USM_API USM_NODISCARD usm_status usm_queue_query(usm_queue *q);

USM_API usm_context *usm_queue_get_context(usm_queue *q);
USM_API usm_device  *usm_queue_get_device(usm_queue *q);
/** Returns the native queue: a cl_command_queue; for Level Zero a pointer to a
 * usm_level_zero_queue that is valid as long as q, with the first native handle
 * of an out-of-order queue. */
USM_API USM_NODISCARD usm_status usm_queue_get_native(usm_queue *q, const char *backend,
                                                      void **handle);

/** Returns the library's in-order queue on the first device of the selector, one
 * for the whole process.  Thread-safe.  NULL on failure, with an error message. */
USM_API usm_queue *usm_default_queue(void);

USM_END_DECLS
#endif
