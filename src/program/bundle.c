/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The reader of bundles, the files that usm_add_kernels() makes: several images of one program.
 *
 *     USMK1 2\n                 magic with the format's version, number of images
 *     opencl_c 1234\n           type and bytes of each, in the payloads' order
 *     spirv 5678\n
 *     \n
 *     <1234 bytes><5678 bytes>  and nothing after them
 *
 * The reader is a pure function of its input, which may be any bytes: every size is compared with
 * the bytes that are left before it is used.  Not here: whether a payload has the content that its
 * type promises (program.c).
 *
 * Called by program.c and by tests/fuzz/fuzz_bundle.c. */
#include "base/inline/plural.h"
#include "base/text.h"
#include "program/program.h"

#include <string.h>

#define MAGIC      "USMK1 "
#define MAGIC_SIZE (sizeof MAGIC - 1)
/* The longest valid line: a type, a blank, 20 digits. */
#define LINE_MAX_BYTES 40

static const struct {
    const char    *name;
    usm_image_type type;
} entry_types[] = {
    {"opencl_c", USM_IMAGE_OPENCL_C},
    {"spirv", USM_IMAGE_SPIRV},
};
#define ENTRY_TYPES (sizeof entry_types / sizeof entry_types[0])

/* Cuts the first line off *rest; it must end within LINE_MAX_BYTES. */
static bool take_line(usm__span *rest, usm__span *line)
{
    size_t      look = rest->len < LINE_MAX_BYTES ? rest->len : LINE_MAX_BYTES;
    const char *end  = look ? memchr(rest->at, '\n', look) : NULL;

    if (!end)
        return false;
    line->at  = rest->at;
    line->len = (size_t)(end - rest->at);
    rest->at += line->len + 1;
    rest->len -= line->len + 1;
    return true;
}

static usm_status read_magic(usm__span *rest, size_t *n)
{
    usm__span line, number;
    uint64_t  count = 0;

    if (rest->len < MAGIC_SIZE || memcmp(rest->at, MAGIC, MAGIC_SIZE) != 0)
        return usm__fail(USM_E_INVALID, "the bundle does not start with \"" MAGIC
                                        "\": give what usm_add_kernels() made, unchanged");
    if (!take_line(rest, &line))
        return usm__fail(USM_E_INVALID, "the bundle's first line has no end");
    number.at  = line.at + MAGIC_SIZE;
    number.len = line.len - MAGIC_SIZE;
    if (!usm__span_number(number, &count) || count == 0 || count > USM__BUNDLE_IMAGES)
        return usm__fail(USM_E_INVALID, "the bundle says it has \"%.*s\" images: 1 to %d can be",
                         (int)number.len, number.at, USM__BUNDLE_IMAGES);
    *n = (size_t)count;
    return USM_OK;
}

static bool type_of(usm__span name, usm_image_type *type)
{
    for (size_t i = 0; i < ENTRY_TYPES; i++) {
        if (strlen(entry_types[i].name) == name.len &&
            memcmp(entry_types[i].name, name.at, name.len) == 0) {
            *type = entry_types[i].type;
            return true;
        }
    }
    return false;
}

/* Reads "<type> <bytes>"; the address of the payload is not known yet. */
static usm_status read_entry(usm__span *rest, size_t i, usm_image *image)
{
    usm__span   line, name, number;
    const char *blank;
    uint64_t    bytes = 0;

    if (!take_line(rest, &line))
        return usm__fail(USM_E_INVALID, "the bundle's entry %zu has no end: it is cut off", i);
    blank = line.len ? memchr(line.at, ' ', line.len) : NULL;
    if (!blank)
        return usm__fail(USM_E_INVALID, "the bundle's entry %zu is not \"<type> <bytes>\"", i);
    name.at    = line.at;
    name.len   = (size_t)(blank - line.at);
    number.at  = blank + 1;
    number.len = line.len - name.len - 1;
    if (!type_of(name, &image->type))
        return usm__fail(USM_E_INVALID,
                         "the bundle's entry %zu has type \"%.*s\": this libusm knows opencl_c "
                         "and spirv",
                         i, (int)name.len, name.at);
    if (!usm__span_number(number, &bytes) || bytes == 0 || bytes > SIZE_MAX)
        return usm__fail(USM_E_INVALID, "the bundle's entry %zu has the size \"%.*s\"", i,
                         (int)number.len, number.at);
    image->size = (size_t)bytes;
    return USM_OK;
}

/* The payloads must fill the rest exactly. */
static usm_status place_payloads(usm__span rest, usm_image *images, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (images[i].size > rest.len)
            return usm__fail(USM_E_INVALID,
                             "the bundle is cut off: image %zu has %zu bytes, %zu are left", i,
                             images[i].size, rest.len);
        images[i].data = rest.at;
        rest.at += images[i].size;
        rest.len -= images[i].size;
    }
    if (rest.len)
        return usm__fail(USM_E_INVALID, "the bundle has %zu bytes after its last image", rest.len);
    return USM_OK;
}

usm_status usm__bundle_parse(const void *data, size_t size, usm_image *images, size_t cap,
                             size_t *n)
{
    usm_image  found[USM__BUNDLE_IMAGES];
    usm__span  rest  = {data, size};
    usm__span  empty = {NULL, 0};
    size_t     count = 0;
    usm_status s;

    if (!data)
        return usm__fail(USM_E_INVALID, "the bundle has no data");
    s = read_magic(&rest, &count);
    for (size_t i = 0; s == USM_OK && i < count; i++)
        s = read_entry(&rest, i, &found[i]);
    if (s != USM_OK)
        return s;
    if (!take_line(&rest, &empty) || empty.len)
        return usm__fail(USM_E_INVALID, "the bundle has no empty line after its %zu entries",
                         count);
    s = place_payloads(rest, found, count);
    if (s != USM_OK)
        return s;
    if (count > cap)
        return usm__fail(USM_E_INVALID, "the bundle has %zu %s, there is room for %zu", count,
                         usm__plural(count, "image", "images"), cap);
    memcpy(images, found, count * sizeof *images);
    *n = count;
    return USM_OK;
}
