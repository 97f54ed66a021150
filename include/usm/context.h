/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Contexts: the owners of memory, queues and programs.
 *
 * A program that uses one device needs none: functions without a context or
 * queue use the default context.  A library creates its own, so that another
 * component's usm_shutdown() does not free its memory.
 *
 * Contexts are thread-safe. */
#ifndef USM_CONTEXT_H
#define USM_CONTEXT_H

#include <usm/types.h>

USM_BEGIN_DECLS

/* Every function that takes a context accepts NULL for the default one
 * (usm_default_context), with two exceptions: usm_context_destroy(NULL) does
 * nothing, and functions that also take a pointer to memory (usm_free_ctx,
 * usm_get_pointer_type, usm_ipc_get and others) use the context of that memory. */

/** Called on a thread of the library for a failure that no call returns: that of
 * a command that fails after it was submitted without an event.  `story` is the
 * error message, valid during the call.  The callback must not destroy the
 * context.  It may be called shortly after usm_context_wait(), and even after
 * usm_context_destroy() for commands in flight at that time: the object that
 * `user` points to must live that long. */
typedef void (*usm_error_fn)(usm_context *ctx, usm_status status, const char *story, void *user);

typedef struct usm_context_desc {
    size_t             struct_size;
    size_t             ndevices;     /**< 0: the first device of the selector */
    usm_device *const *devices;      /**< all of one platform of one backend  */
    usm_error_fn       on_error;     /**< NULL: such failures are logged, as far as they become
                                          known; tracking every command costs an event, which
                                          only a callback requests */
    void              *user;         /**< passed to on_error */
    uint64_t           host_limit;   /**< most host memory, in bytes, for the context's pools and
                                          buffers together; its buffers then have frames of their
                                          own.  0: only USM_MEMORY_LIMIT, which always applies as
                                          well */
    uint64_t           device_limit; /**< the same for device and shared memory of each of its
                                          devices; for a CPU device this counts as host memory
                                          too */
} usm_context_desc;
#define USM_CONTEXT_DESC_INIT                                                                      \
    {                                                                                              \
        sizeof(usm_context_desc), 0, NULL, NULL, NULL, 0, 0                                        \
    }

/** Creates a context.  The caller owns *ctx.  `desc` NULL: the defaults.
 *   USM_E_INVALID    devices of different platforms, or a device listed twice
 *   USM_E_NO_DEVICE, USM_E_SELECTOR as usm_get_devices() */
USM_API USM_NODISCARD usm_status usm_context_create(const usm_context_desc *desc,
                                                    usm_context           **ctx);

/** The owner of a native object that is passed to libusm. */
typedef enum usm_ownership {
    USM_KEEP     = 0, /**< stays the caller's, who must keep it alive longer than libusm's object */
    USM_TRANSFER = 1  /**< libusm releases it with the object made from it                        */
} usm_ownership;

/** A native context from another library, such as SYCL or PyOpenCL.  In contrast
 * to DPC++ the default is USM_KEEP for every backend. */
typedef struct usm_native_desc {
    size_t        struct_size;
    const char   *backend; /**< "opencl": `handle` is a cl_context; "level_zero": a
                                ze_context_handle_t */
    void         *handle;
    size_t        ndevices; /**< 0: all devices of the native context; Level Zero cannot list
                                 them, so all devices of the driver */
    void *const  *devices;  /**< native devices: cl_device_id, ze_device_handle_t */
    usm_ownership ownership;
    usm_error_fn  on_error;
    void         *user;
    uint64_t      host_limit, device_limit; /**< as in usm_context_desc */
} usm_native_desc;
#define USM_NATIVE_DESC_INIT                                                                       \
    {                                                                                              \
        sizeof(usm_native_desc), NULL, NULL, 0, NULL, USM_KEEP, NULL, NULL, 0, 0                   \
    }

/** Creates a context from a native one.  With USM_KEEP the native context is
 * borrowed and never destroyed.  Pools, queues and memory of *ctx are created
 * in it, so pointers are valid for its other users.
 *   USM_E_NO_BACKEND     there is no such backend
 *   USM_E_NOT_SUPPORTED  the backend has no native objects
 *   USM_E_INVALID        the handle is NULL, or the driver says that it is not a
 *                        context (most drivers trust it, and crash) */
USM_API USM_NODISCARD usm_status usm_context_from_native(const usm_native_desc *desc,
                                                         usm_context          **ctx);

/** Destroys a context, or does nothing if it is NULL.  Pools and memory of the
 * context are released; its queues, events and programs must not be used any
 * more.  Commands in flight keep what they need until they end. */
USM_API void usm_context_destroy(usm_context *ctx);

/** Lists the devices of the context in the order in which they were given; list,
 * cap and count are as in usm_get_devices(). */
USM_API USM_NODISCARD usm_status usm_context_get_devices(usm_context *ctx, usm_device **list,
                                                         size_t cap, size_t *count);

/** Returns the native handle (cl_context) of a context, borrowed and valid as
 * long as ctx.  `backend` must be the context's backend, which guards against a
 * wrong cast. */
USM_API USM_NODISCARD usm_status usm_context_get_native(usm_context *ctx, const char *backend,
                                                        void **handle);

/** Waits until all commands submitted to all queues of the context have ended. */
USM_API USM_NODISCARD usm_status usm_context_wait(usm_context *ctx);

/** Returns the context that usm_alloc() and its family use: on the selector's
 * first device.  The library owns it.  NULL on failure, with an error message. */
USM_API usm_context *usm_default_context(void);

USM_END_DECLS
#endif
