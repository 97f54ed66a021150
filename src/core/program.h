/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Programs and kernels inside: bundle reading, the cache, built programs. */
#ifndef USM_CORE_PROGRAM_H
#define USM_CORE_PROGRAM_H

#include "base/hash.h"
#include "core/context.h"

/* A backend program for one device, counted; shared by programs, kernels and the
 * cache.  It holds no count of its context: programs and kernels do, the cache is
 * the context's. */
typedef struct usm__built {
    _Atomic(uint32_t) refs;
    usm_context      *ctx;
    void             *native;
    usm_image_type    type; /* the image it was made from                              */
    usm__hash         key;  /* of image, options, device, driver; 0: native code        */
} usm__built;

struct usm_program {
    usm__magic_word magic;
    usm_context    *ctx;   /* counted by refs                                          */
    usm__built    **built; /* per device of the context; NULL: no image fits           */
};

struct usm_kernel {
    usm__magic_word   magic;
    _Atomic(uint32_t) refs;
    usm_context      *ctx; /* counted by refs                                          */
    char              name[128];
    size_t            nargs;
    usm_arg_kind      kinds[64]; /* of the first 64; USM_ARG_NONE = not known          */
    usm__built      **built;     /* per device, counted                                */
    void            **native;    /* per device; NULL: no image fits                    */
};

usm_kernel *usm__kernel_retain(usm_kernel *k); /* for a launch that is kept */
void        usm__kernel_release(usm_kernel *k);

/* Hook point, filled by src/usm.c: a launch that was checked, some of whose arguments are
 * accessors.
 */
typedef usm_status usm__launch_over_buffers_fn(usm_queue *q, const usm_launch *l, size_t ndeps,
                                               usm_event *const *deps, usm_event **ev);
extern usm__launch_over_buffers_fn *usm__launch_over_buffers __attribute__((visibility("hidden")));
/* The rest of a launch, without checks and without accessors. */
usm_status usm__launch_checked(usm_queue *q, const usm_launch *l, size_t ndeps,
                               usm_event *const *deps, usm_event **ev);

/* Handle, and context: programs of a context that was inherited through fork() are
 * refused, also where its memory goes on working. */
usm_status usm__program_check(usm_program *p);
usm_status usm__kernel_check(usm_kernel *k);

/* The names of image types in bundles and stories: "opencl_c", "spirv", "native",
 * "binary", "bundle"; NULL: no such type. */
const char *usm__image_type_name(usm_image_type type);

/* Bundles: "USMK1 <n>\n", n lines "<type> <bytes>\n", "\n", payloads. Images point
 * into data.   USM_E_INVALID says what is broken. */
#define USM__BUNDLE_IMAGES 16 /* most that one bundle can have */
usm_status usm__bundle_parse(const void *data, size_t size, usm_image *images, size_t cap,
                             size_t *n);

/* The cache in memory (per context) and on disk (USM_CACHE_DIR). */
struct usm__program_cache *usm__program_cache_create(void); /* NULL: no memory */
void                       usm__program_cache_destroy(struct usm__program_cache *cache);
/* Gives every program back that only the cache holds: when the context ends. */
void usm__program_cache_clear(struct usm__program_cache *cache);
/* A counted usm__built for the image on device `index`: from memory, from disk, or
 * built.  `log` (may be NULL) gets the build log. */
usm_status usm__program_cache_get(usm_context *ctx, size_t index, const usm_image *image,
                                  const char *options, char *log, size_t log_size,
                                  usm__built **built);

/* The same without a cache: asks the driver.  USM_E_BUILD: the story has the log's
 * first error. */
usm_status usm__built_make(usm_context *ctx, size_t index, const usm_image *image,
                           const char *options, char *log, size_t log_size, usm__built **built);
void       usm__built_release(usm__built *b); /* NULL is fine */

#endif
