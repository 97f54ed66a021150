/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * The names that several headers share: opaque objects, kinds of memory.
 *
 * Objects are made by `_create` and given back by `_destroy` (or `_release`
 * for counted ones).  A handle that was destroyed is recognised in most cases
 * (USM_E_INVALID_HANDLE), as long as its slot has not been handed out anew.
 * Sizes are bytes unless a name says otherwise. */
#ifndef USM_TYPES_H
#define USM_TYPES_H

#include <usm/export.h>
#include <usm/status.h>

USM_BEGIN_DECLS

/** Immutable; belongs to the library; valid as long as the process. */
typedef struct usm_device usm_device;
/** Thread-safe.  Memory, queues, events and programs belong to one context. */
typedef struct usm_context usm_context;
/** Thread-safe. */
typedef struct usm_queue usm_queue;
/** Thread-safe, counted. */
typedef struct usm_event usm_event;
/** Thread-safe. */
typedef struct usm_pool usm_pool;
/** Immutable once created. */
typedef struct usm_program usm_program;
/** Immutable once created: arguments travel with each launch. */
typedef struct usm_kernel usm_kernel;

/** Where memory lives and who may touch it; the values are Level Zero's. */
typedef enum usm_kind {
    USM_UNKNOWN = 0, /**< not libusm memory                                       */
    USM_HOST    = 1, /**< in host memory for life; host and devices use it        */
    USM_DEVICE  = 2, /**< in the device's memory; the host must not touch it      */
    USM_SHARED  = 3  /**< moves between host and device, which take turns         */
} usm_kind;

/** Largest alignment that can be asked of any allocation: 2 MiB. */
#define USM_MAX_ALIGNMENT ((size_t)2 << 20)

USM_END_DECLS
#endif
