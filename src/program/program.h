/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Internals of programs and kernels: the reader of bundles, the cache, built programs. */
#ifndef USM_PROGRAM_PROGRAM_H
#define USM_PROGRAM_PROGRAM_H

#include "base/hash.h"
#include "device/context.h"

/* A backend's program for one device, with a reference count; shared by programs, kernels and the
 * cache.  It holds no reference of its context: programs and kernels do, and the cache belongs to
 * the context. */
typedef struct usm__built {
    _Atomic(uint32_t) refs;
    usm_context      *ctx;
    void             *native;
    usm_image_type    type; /* of the image it was made from                          */
    usm__hash         key;  /* hash of image, options, device, driver; 0: native code */
} usm__built;

struct usm_program {
    usm__magic_word magic;
    usm_context    *ctx;   /* holds a reference of it (`refs`)                    */
    usm__built    **built; /* for each device of the context; NULL: no image fits */
};

struct usm_kernel {
    usm__magic_word   magic;
    _Atomic(uint32_t) refs;
    usm_context      *ctx; /* holds a reference of it (`refs`) */
    char              name[128];
    size_t            nargs;
    usm_arg_kind      kinds[64]; /* of the first 64; USM_ARG_NONE: unknown */
    usm__built      **built;     /* for each device, with a reference      */
    void            **native;    /* for each device; NULL: no image fits   */
};

usm_kernel *usm__kernel_retain(usm_kernel *k); /* for a launch that is stored */
void        usm__kernel_release(usm_kernel *k);

/* Submits a launch without checks and without accessors. */
usm_status usm__launch_checked(usm_queue *q, const usm_launch *l, size_t ndeps,
                               usm_event *const *deps, usm_event **ev);

/* Check the handle and the context.  Programs of a context that was inherited through fork() are
 * refused, even if its memory still works. */
usm_status usm__program_check(usm_program *p);
usm_status usm__kernel_check(usm_kernel *k);

/* The names of image types in bundles and messages: "opencl_c", "spirv", "native", "binary",
 * "bundle"; NULL: not a type. */
const char *usm__image_type_name(usm_image_type type);

/* Bundles: "USMK1 <n>\n", n lines "<type> <bytes>\n", "\n", payloads.  The images point into data.
 *   USM_E_INVALID  with the defect in the message */
#define USM__BUNDLE_IMAGES 16 /* images in a bundle at most */
usm_status usm__bundle_parse(const void *data, size_t size, usm_image *images, size_t cap,
                             size_t *n);

/* The cache in memory (per context) and on disk (USM_CACHE_DIR). */
struct usm__program_cache *usm__program_cache_create(void); /* NULL: no memory */
void                       usm__program_cache_destroy(struct usm__program_cache *cache);
/* Releases every program that only the cache holds: called when the context ends. */
void usm__program_cache_clear(struct usm__program_cache *cache);
/* Returns a usm__built, with a reference, for the image on device `index`: from memory, from disk,
 * or newly built.  `log` (may be NULL) gets the build log. */
usm_status usm__program_cache_get(usm_context *ctx, size_t index, const usm_image *image,
                                  const char *options, char *log, size_t log_size,
                                  usm__built **built);

/* The same without the cache: calls the driver.  USM_E_BUILD: the message quotes the first error of
 * the log. */
usm_status usm__built_make(usm_context *ctx, size_t index, const usm_image *image,
                           const char *options, char *log, size_t log_size, usm__built **built);
void       usm__built_release(usm__built *b); /* NULL is fine */

#endif
