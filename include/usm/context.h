/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Contexts: the owner of memory, queues and programs.
 *
 * Programs that use one device need none: the functions without a context or
 * queue work on the default context.  A library makes its own, so that nobody
 * else's usm_shutdown() reaches its memory.
 *
 * Contexts are thread-safe. */
#ifndef USM_CONTEXT_H
#define USM_CONTEXT_H

#include <usm/types.h>

USM_BEGIN_DECLS

/* A context that is NULL means the default one (usm_default_context), in every function that takes
 * one but two kinds: usm_context_destroy(NULL) does nothing, and functions that take a pointer to
 * memory beside it (usm_free_ctx, usm_get_pointer_type, usm_ipc_get ...) take the memory's own. */

/** Called, on a thread of the library, for a failure that has no caller: a
 * command that fails after it was submitted without an event.  `story` is valid
 * during the call.  It must not destroy the context.  It may come a moment after
 * usm_context_wait(), and after usm_context_destroy() for work that was in flight
 * then: what `user` points to has to live as long. */
typedef void (*usm_error_fn)(usm_context *ctx, usm_status status, const char *story, void *user);

typedef struct usm_context_desc {
    size_t             struct_size;
    size_t             ndevices;     /**< 0: the first device the selector gives       */
    usm_device *const *devices;      /**< all of one platform of one backend           */
    usm_error_fn       on_error;     /**< NULL: such failures are logged, as far as they
                                      come to light: watching each command costs an
                                      event, which a callback asks for              */
    void              *user;         /**< handed to on_error                                   */
    uint64_t           host_limit;   /**< most host memory for the context's pools and buffers
                                      together, bytes; its buffers then have frames of their
                                      own. 0: USM_MEMORY_LIMIT alone, which holds besides     */
    uint64_t           device_limit; /**< the same for device and shared memory of each of its
                                      devices; of a processor, it is host memory as well      */
} usm_context_desc;
#define USM_CONTEXT_DESC_INIT                                                                      \
    {                                                                                              \
        sizeof(usm_context_desc), 0, NULL, NULL, NULL, 0, 0                                        \
    }

/** Caller owns *ctx.  `desc` NULL: the defaults.
 *   USM_E_INVALID    devices of different platforms, or listed twice
 *   USM_E_NO_DEVICE, USM_E_SELECTOR as usm_get_devices() */
USM_API USM_NODISCARD usm_status usm_context_create(const usm_context_desc *desc,
                                                    usm_context           **ctx);

/** Who owns a native object after it was handed over. */
typedef enum usm_ownership {
    USM_KEEP     = 0, /**< stays the caller's, who keeps it alive longer than ours */
    USM_TRANSFER = 1  /**< released by libusm with the object made from it         */
} usm_ownership;

/** A context over one that somebody else made, e.g. SYCL's or PyOpenCL's.
 * Unlike in DPC++ the default is USM_KEEP for every backend. */
typedef struct usm_native_desc {
    size_t        struct_size;
    const char   *backend; /**< "opencl": `handle` is a cl_context; "level_zero": a
                            ze_context_handle_t                                */
    void         *handle;
    size_t        ndevices; /**< 0: all devices of the native context; Level Zero's
                              cannot be asked, so that all of the driver are meant */
    void *const  *devices;  /**< native devices: cl_device_id, ze_device_handle_t */
    usm_ownership ownership;
    usm_error_fn  on_error;
    void         *user;
    uint64_t      host_limit, device_limit; /**< as in usm_context_desc                 */
} usm_native_desc;
#define USM_NATIVE_DESC_INIT                                                                       \
    {                                                                                              \
        sizeof(usm_native_desc), NULL, NULL, 0, NULL, USM_KEEP, NULL, NULL, 0, 0                   \
    }

/** Borrows the native context (USM_KEEP): never destroys it. Pools, queues and
 * memory of *ctx live inside it, so pointers are valid for its other users.
 *   USM_E_NO_BACKEND  no such backend;  USM_E_NOT_SUPPORTED  it has no natives
 *   USM_E_INVALID     the handle is NULL, or the driver says that it is no context
 *                     (most drivers trust it, and crash) */
USM_API USM_NODISCARD usm_status usm_context_from_native(const usm_native_desc *desc,
                                                         usm_context          **ctx);

/** NULL is fine.  Pools and memory of the context are given back; queues,
 * events and programs made in it must not be used any more.  Work still in
 * flight keeps what it needs until it ends. */
USM_API void usm_context_destroy(usm_context *ctx);

/** The devices of the context, in the order they were given. */
USM_API USM_NODISCARD usm_status usm_context_get_devices(usm_context *ctx, usm_device **list,
                                                         size_t cap, size_t *count);

/** The native handle (cl_context) of a context; borrowed, valid as long as ctx.
 * `backend` must be the context's: a check that the caller casts right. */
USM_API USM_NODISCARD usm_status usm_context_get_native(usm_context *ctx, const char *backend,
                                                        void **handle);

/** Waits until all work submitted to all queues of the context is done. */
USM_API USM_NODISCARD usm_status usm_context_wait(usm_context *ctx);

/** The context behind usm_alloc() and friends: the selector's first device.
 * NULL and a story on failure.  Belongs to the library. */
USM_API usm_context *usm_default_context(void);

USM_END_DECLS
#endif
