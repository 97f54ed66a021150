/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a unit has to know of an app, as the bytes of APP (wire.h): the text of its file, how large
 * its inputs and the results of its templates are, and a list of the images of its kernels, which it
 * may ask for by FILE:
 *
 *     8 bytes, text     8 bytes: nodes, 8 for each: bytes of an input or a template, 0 for others
 *     8 bytes: images, for each: hash (16), size (8), length of its key (8), key: kernel/form */
#ifndef USM_TOOLS_UNITS_APP_H
#define USM_TOOLS_UNITS_APP_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct unit_image {
    char       *key;
    usm__hash   hash;
    uint64_t    size;
    const void *data; /* NULL: not there yet */
} unit_image;

typedef struct unit_app {
    char       *text;
    uint64_t    size;
    uint64_t   *sizes; /* by node */
    uint64_t    nnodes;
    unit_image *images;
    uint64_t    nimages;
} unit_app;

enum { UNIT_IMAGES_MAX = 4096, UNIT_NODES_MAX = 1 << 20 };
#define UNIT_APP_MAX  ((uint64_t)64 << 20) /* bytes of APP */
#define UNIT_FILE_MAX ((uint64_t)1 << 30)  /* bytes of an image */
#define UNIT_SIZE_MAX ((uint64_t)1 << 42)  /* bytes of an input */

/* From usm__heap_alloc(); NULL: no memory. */
unsigned char *unit_app_encode(const unit_app *a, uint64_t *size);
/* false: these bytes are no app, or there is no memory.  What is in *a is freed by unit_app_free()
 * in any case. */
bool unit_app_decode(const unsigned char *bytes, uint64_t size, unit_app *a);
/* Frees what unit_app_decode() made; `data` of images is somebody else's. */
void unit_app_free(unit_app *a);
/* Of the images with this image's content, the first one in the list. */
uint64_t unit_app_first(const unit_app *a, uint64_t image);

#endif
