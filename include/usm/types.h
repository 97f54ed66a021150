/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * Types that several headers share: opaque handles, and kinds of memory.
 *
 * A `_create` function makes an object, and the matching `_destroy` function
 * destroys it (`_release` for reference-counted objects).  The library
 * recognises most handles of destroyed objects (USM_E_INVALID_HANDLE), until
 * the memory of the handle is reused for another object of the same type.
 * Sizes are bytes unless a name says otherwise. */
#ifndef USM_TYPES_H
#define USM_TYPES_H

#include <usm/export.h>
#include <usm/status.h>

USM_BEGIN_DECLS

/** Immutable.  Owned by the library, valid until the process ends. */
typedef struct usm_device usm_device;
/** Thread-safe.  Memory, queues, events and programs belong to one context. */
typedef struct usm_context usm_context;
/** Thread-safe. */
typedef struct usm_queue usm_queue;
/** Thread-safe, reference-counted. */
typedef struct usm_event usm_event;
/** Thread-safe. */
typedef struct usm_pool usm_pool;
/** Immutable once created. */
typedef struct usm_program usm_program;
/** Immutable once created: each launch carries its own arguments. */
typedef struct usm_kernel usm_kernel;

/** Where memory is located and who may access it.  The values are Level Zero's. */
typedef enum usm_kind {
    USM_UNKNOWN = 0, /**< not memory of libusm                                */
    USM_HOST    = 1, /**< stays in host memory; host and devices access it    */
    USM_DEVICE  = 2, /**< in the device's memory; the host must not access it */
    USM_SHARED  = 3  /**< migrates; host and devices access it in turns       */
} usm_kind;

/** The largest alignment that any allocation function accepts: 2 MiB. */
#define USM_MAX_ALIGNMENT ((size_t)2 << 20)

USM_END_DECLS
#endif
