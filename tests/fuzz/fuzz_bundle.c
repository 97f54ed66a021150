/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Any bytes as a bundle: what the parser accepts lies inside its input, without gaps, and is what
 * writing it down again gives.  Called by libFuzzer; starts best from a real bundle. */
#include "program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The header that would stand before these images. */
static size_t write_header(const usm_image *images, size_t n, char *out, size_t room)
{
    int used = snprintf(out, room, "USMK1 %zu\n", n);

    for (size_t i = 0; i < n; i++)
        used += snprintf(out + used, room - (size_t)used, "%s %zu\n",
                         usm__image_type_name(images[i].type), images[i].size);
    used += snprintf(out + used, room - (size_t)used, "\n");
    return (size_t)used;
}

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const usm_image untouched                  = {USM_IMAGE_NATIVE, &untouched, 1};
    usm_image       images[USM__BUNDLE_IMAGES] = {untouched};
    char            header[1024];
    size_t          n = 99, at;

    if (usm__bundle_parse(data, size, images, USM__BUNDLE_IMAGES, &n) != USM_OK) {
        must(n == 99 && images[0].data == &untouched);
        must(usm_last_status() == USM_E_INVALID && *usm_last_error());
        return 0;
    }
    must(n >= 1 && n <= USM__BUNDLE_IMAGES);
    at = (size_t)((const uint8_t *)images[0].data - data);
    /* Numbers may be written with leading zeros: then the header is longer. */
    must(write_header(images, n, header, sizeof header) <= at);
    for (size_t i = 0; i < n; i++) {
        must(images[i].size > 0 && images[i].data == data + at && images[i].size <= size - at);
        at += images[i].size;
    }
    must(at == size);
    return 0;
}
