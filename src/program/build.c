/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One image is built by the driver for one device; the error message quotes the build log.
 *
 * Not here: the choice of the image (program.c), and whether it was built before (cache.c).  These
 * two files call this one; kernel.c releases builds. */
#include "base/os.h"
#include "base/text.h"
#include "program/program.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Longest part of a log in an error message. */
#define ERROR_LINE_MAX 320

const char *usm__image_type_name(usm_image_type type)
{
    switch (type) {
    case USM_IMAGE_OPENCL_C:
        return "opencl_c";
    case USM_IMAGE_SPIRV:
        return "spirv";
    case USM_IMAGE_NATIVE:
        return "native";
    case USM_IMAGE_BUNDLE:
        return "bundle";
    case USM_IMAGE_BINARY:
        return "binary";
    }
    return NULL;
}

/* --- logs ----------------------------------------------------------------- */

static bool contains(usm__span line, const char *word)
{
    size_t n = strlen(word);

    for (size_t i = 0; i + n <= line.len; i++)
        if (strncasecmp(line.at + i, word, n) == 0)
            return true;
    return false;
}

/* The first line that is not blank, contains `word`, and does not contain `no`. */
static bool find_line(const char *log, const char *word, const char *no, usm__span *line)
{
    usm__span rest = usm__span_of(log);

    while (usm__span_next(&rest, '\n', line))
        if (line->len && contains(*line, word) && !contains(*line, no))
            return true;
    return false;
}

/* The line that a person would look for.  "k.cl:3:7: error: ..." is preferred over "error" alone,
 * as in "1 error generated", and that over the first line of the log.  Intel's logs start with
 * "Compilation started". */
static usm__span first_error(const char *log)
{
    static const char none[] = "\n"; /* occurs in no line */
    usm__span         line   = {"", 0};

    if (find_line(log, "error:", none, &line) || find_line(log, "error", none, &line) ||
        find_line(log, "", "started", &line) || find_line(log, "", none, &line))
        line.len = line.len < ERROR_LINE_MAX ? line.len : ERROR_LINE_MAX;
    return line;
}

/* If there is no log to quote, the driver's own error message stays. */
static void notify_build_failure(const usm_device *dev, usm_image_type type, const char *text,
                                 bool has_room)
{
    usm__span line = first_error(text ? text : "");

    if (line.len)
        usm__note(USM_E_BUILD, "the %s image does not build for %s: %.*s%s",
                  usm__image_type_name(type), dev->term, (int)line.len, line.at,
                  has_room ? "" : " (usm_program_desc.log receives the whole log)");
}

/* --- building ------------------------------------------------------------- */

/* Readers of SPIR-V need aligned words, and a bundle may have payloads at any byte. */
static usm_status align_spirv(const usm_image *image, usm_image *aligned, void **copy)
{
    *aligned = *image;
    if (image->type != USM_IMAGE_SPIRV || ((uintptr_t)image->data & 3) == 0)
        return USM_OK;
    *copy = usm__heap_alloc(image->size);
    if (!*copy)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for %zu bytes of SPIR-V", image->size);
    memcpy(*copy, image->data, image->size);
    aligned->data = *copy;
    return USM_OK;
}

static usm_status call_driver(usm_context *ctx, const usm_device *dev, const usm_image *image,
                              const char *options, char **text, void **native)
{
    usm_image  aligned;
    void      *copy = NULL;
    usm_status s    = align_spirv(image, &aligned, &copy);

    if (s == USM_OK)
        s = usm__be_program_build(ctx->be, ctx->native, dev->desc.handle, &aligned, options, text,
                                  native);
    usm__heap_free(copy);
    return s;
}

usm_status usm__built_make(usm_context *ctx, size_t index, const usm_image *image,
                           const char *options, char *log, size_t log_size, usm__built **built)
{
    const usm_device *dev      = ctx->devices[index].dev;
    bool              has_room = log && log_size;
    char             *text     = NULL;
    usm__built       *b        = usm__heap_alloc(sizeof *b);
    usm_status        s;

    if (!b)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a program");
    atomic_init(&b->refs, 1);
    b->ctx  = ctx;
    b->type = image->type;
    s       = call_driver(ctx, dev, image, options, &text, &b->native);
    if (has_room)
        snprintf(log, log_size, "%s", text ? text : "");
    if (s == USM_E_BUILD)
        notify_build_failure(dev, image->type, text, has_room);
    usm__heap_free(text);
    if (s != USM_OK)
        usm__heap_free(b);
    else
        *built = b;
    return s;
}

/* The caller's program or kernel, or the context of the cache, still holds ctx. */
void usm__built_release(usm__built *b)
{
    if (!b || !usm_ref_drop(&b->refs))
        return;
    if (!usm__context_is_inert(b->ctx))
        usm__be_program_destroy(b->ctx->be, b->native);
    usm__heap_free(b);
}
