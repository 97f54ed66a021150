/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Programs: the choice of an image for each device of a context, and the messages if none fits.
 *
 * The given images are flattened (bundles are opened) and checked.  Then each device tries the
 * images that it can use, best type first: the driver's own binary, SPIR-V, OpenCL C, native
 * functions; within a type in the caller's order.  If an image fails, a line is logged and the next
 * one is tried; if none is left, the caller gets the last failure.
 *
 * Not here: building (build.c), the caches (cache.c), kernels (kernel.c). */
#include "program/program.h"
#include "base/inline/bits.h"
#include "base/inline/plural.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

#define IMAGES_MAX 256 /* a limit against wrong values, far beyond any use */
#define NATIVE_MAX 4096

static usm__meta_type program_type =
    USM__META_TYPE(struct usm_program, sizeof(usm__magic_word), "programs");

/* Best type first. */
#define ASPECT(name) (UINT64_C(1) << USM_ASPECT_##name)
static const struct {
    usm_image_type type;
    uint64_t       aspects; /* a device with one of these aspects tries the type */
} preference[] = {
    {USM_IMAGE_BINARY, ASPECT(IMAGE_SPIRV) | ASPECT(IMAGE_OPENCL_C)}, /* such a device has a
                                                                         compiler */
    {USM_IMAGE_SPIRV, ASPECT(IMAGE_SPIRV)},
    {USM_IMAGE_OPENCL_C, ASPECT(IMAGE_OPENCL_C)},
    {USM_IMAGE_NATIVE, ASPECT(IMAGE_NATIVE)},
};
#define PREFERENCES (sizeof preference / sizeof preference[0])

/* The state of one usm_program_create(). */
typedef struct creation {
    usm_context            *ctx;
    const usm_program_desc *desc;
    usm_image              *images; /* flattened: no bundles */
    size_t                  nimages;
    char                   *log; /* where the next build log is written; NULL: nowhere */
    size_t                  log_left;
} creation;

/* --- the images ----------------------------------------------------------- */

static usm_status check_native_kernel(const usm_native_kernel *table, size_t k)
{
    const usm_native_kernel *n = &table[k];

    if (!n->name || !*n->name || strlen(n->name) >= sizeof((usm_kernel *)0)->name)
        return usm__fail(USM_E_INVALID, "native kernel %zu has no name, or one over 127 bytes", k);
    if (!n->fn)
        return usm__fail(USM_E_INVALID, "native kernel \"%s\" has no function", n->name);
    for (size_t i = 0; i < k; i++)
        if (strcmp(table[i].name, n->name) == 0)
            return usm__fail(USM_E_INVALID, "native kernel \"%s\" is in the table twice", n->name);
    for (size_t i = 0; n->kinds && i < n->nargs; i++)
        if (n->kinds[i] < USM_ARG_POINTER || n->kinds[i] > USM_ARG_LOCAL)
            return usm__fail(USM_E_INVALID, "native kernel \"%s\": argument %zu has the kind %d",
                             n->name, i, (int)n->kinds[i]);
    return USM_OK;
}

static usm_status check_native(const usm_image *image, size_t i)
{
    size_t n = image->size / sizeof(usm_native_kernel);

    if (image->size % sizeof(usm_native_kernel) != 0 || n > NATIVE_MAX ||
        !usm_is_aligned(image->data, _Alignof(usm_native_kernel)))
        return usm__fail(
            USM_E_INVALID,
            "image %zu (native) is not an array of usm_native_kernel: its size is %zu, "
            "give the sizeof the array",
            i, image->size);
    for (size_t k = 0; k < n; k++) {
        usm_status s = check_native_kernel(image->data, k);

        if (s != USM_OK)
            return s;
    }
    return USM_OK;
}

static usm_status check_spirv(const usm_image *image, size_t i)
{
    static const unsigned char little[4] = {0x03, 0x02, 0x23, 0x07};
    static const unsigned char big[4]    = {0x07, 0x23, 0x02, 0x03};

    if (image->size < 20 || image->size % 4 != 0 ||
        (memcmp(image->data, little, 4) != 0 && memcmp(image->data, big, 4) != 0))
        return usm__fail(USM_E_INVALID,
                         "image %zu (spirv) is no SPIR-V module: no magic number in front, or its "
                         "%zu bytes are not whole words",
                         i, image->size);
    return USM_OK;
}

/* sizeof a string literal counts the final 0, which a compiler must not get. */
static usm_status check_text(usm_image *image, size_t i)
{
    const char *text = image->data;

    while (image->size && text[image->size - 1] == '\0')
        image->size--;
    if (image->size == 0)
        return usm__fail(USM_E_INVALID, "image %zu (opencl_c) is empty", i);
    return USM_OK;
}

static usm_status check_image(usm_image *image, size_t i)
{
    switch (image->type) {
    case USM_IMAGE_OPENCL_C:
        return check_text(image, i);
    case USM_IMAGE_SPIRV:
        return check_spirv(image, i);
    case USM_IMAGE_NATIVE:
        return check_native(image, i);
    case USM_IMAGE_BUNDLE:
    case USM_IMAGE_BINARY:
        break;
    }
    return USM_OK;
}

/* Appends image i of the descriptor, or the images of a bundle. */
static usm_status flatten(creation *c, size_t i)
{
    const usm_image *image = &c->desc->images[i];
    usm_image       *to    = c->images + c->nimages;
    size_t           n     = 1;
    usm_status       s     = USM_OK;

    if (!usm__image_type_name(image->type))
        return usm__fail(USM_E_INVALID, "image %zu has the type %d, which is none", i,
                         (int)image->type);
    if (!image->data || !image->size)
        return usm__fail(USM_E_INVALID, "image %zu (%s) has no data", i,
                         usm__image_type_name(image->type));
    if (image->type == USM_IMAGE_BUNDLE)
        s = usm__bundle_parse(image->data, image->size, to, USM__BUNDLE_IMAGES, &n);
    else
        *to = *image;
    for (size_t k = 0; s == USM_OK && k < n; k++)
        s = check_image(&to[k], i);
    if (s == USM_OK)
        c->nimages += n;
    return s;
}

static usm_status flatten_all(creation *c)
{
    size_t     n = c->desc->nimages;
    usm_status s = USM_OK;

    c->images = usm__heap_alloc(n * USM__BUNDLE_IMAGES * sizeof *c->images);
    if (!c->images)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a program's images");
    for (size_t i = 0; s == USM_OK && i < n; i++)
        s = flatten(c, i);
    return s;
}

/* --- choosing ------------------------------------------------------------- */

/* A build log is kept whether the build succeeds or not; logs of several builds follow each
 * other. */
static void move_past_log(creation *c)
{
    size_t used = c->log ? strlen(c->log) : 0;

    if (!used)
        return;
    c->log += used;
    c->log_left -= used;
    if (c->log[-1] != '\n' && c->log_left > 1) {
        *c->log++ = '\n';
        *c->log   = 0;
        c->log_left--;
    }
}

/* Why a device rejects the images tried so far. */
typedef struct refusal {
    size_t       count;
    usm_status   status; /* USM_OK: nothing was tried, or no type fitted */
    usm__message message;
} refusal;

/* Failures that are due to the image, so that another image may succeed.  A binary that was made
 * for another device can fail in many ways. */
static bool is_about_image(usm_image_type type, usm_status s)
{
    if (type == USM_IMAGE_BINARY)
        return s != USM_E_NO_MEMORY && s != USM_E_DEVICE_LOST;
    return s == USM_E_BUILD || s == USM_E_NO_IMAGE || s == USM_E_NOT_SUPPORTED;
}

/* Only a compilation error is the caller's mistake; otherwise the image just does not fit. */
static void note_refusal(refusal *r, usm_image_type type, usm_status s)
{
    bool is_final = !is_about_image(type, s);

    if (is_final || (s == USM_E_BUILD && type != USM_IMAGE_BINARY)) {
        r->status = s;
        usm__message_save(&r->message);
    }
}

/* Tries the images of one type; true: the search is over. */
static bool try_type(creation *c, size_t index, usm_image_type type, usm__built **built, refusal *r)
{
    const char *options = c->desc->options ? c->desc->options : "";

    for (size_t i = 0; i < c->nimages; i++) {
        usm_status s;

        if (c->images[i].type != type)
            continue;
        s = usm__program_cache_get(c->ctx, index, &c->images[i], options, c->log, c->log_left,
                                   built);
        move_past_log(c);
        if (s == USM_OK)
            return true;
        note_refusal(r, type, s);
        if (!is_about_image(type, s))
            return true;
        r->count++;
        usm__info("%s does not take the %s image: %s", c->ctx->devices[index].dev->term,
                  usm__image_type_name(type), usm_last_error());
    }
    return false;
}

/* *built stays NULL if no image fits the device. */
static usm_status choose(creation *c, size_t index, usm__built **built)
{
    const usm_device *dev  = c->ctx->devices[index].dev;
    bool              over = false;
    usm__message      before;
    refusal           r;

    usm__message_save(&before);
    r.status = USM_OK;
    r.count  = 0;
    for (size_t i = 0; !over && i < PREFERENCES; i++)
        if (dev->desc.aspects & preference[i].aspects)
            over = try_type(c, index, preference[i].type, built, &r);
    if (*built && r.count)
        usm__info("%s takes the %s image instead", dev->term, usm__image_type_name((*built)->type));
    if (*built || r.status == USM_OK) {
        usm__message_restore(&before); /* failed attempts before a success do not matter */
        return USM_OK;
    }
    usm__message_restore(&r.message);
    return r.status;
}

/* --- when nothing fits ---------------------------------------------------- */

typedef struct text {
    char   at[400];
    size_t used;
} text;

/* Appends "<before><word>" if it fits. */
static void add_word(text *t, const char *before, const char *word)
{
    int n = snprintf(t->at + t->used, sizeof t->at - t->used, "%s%s", before, word);

    if (n > 0 && (size_t)n < sizeof t->at - t->used)
        t->used += (size_t)n;
    t->at[t->used] = 0;
}

static void add_device(text *t, const usm_device *dev)
{
    const char *before = " takes ";

    add_word(t, t->used ? "; " : "", dev->term);
    for (size_t i = 0; i < PREFERENCES; i++) {
        if (preference[i].type == USM_IMAGE_BINARY || !(dev->desc.aspects & preference[i].aspects))
            continue;
        add_word(t, before, usm__image_type_name(preference[i].type));
        before = ", ";
    }
    if (before[0] != ',')
        add_word(t, " runs no kernels", "");
}

/* True if there is only OpenCL C, for devices without a compiler for it: Level Zero's. */
static bool lacks_spirv(const creation *c)
{
    bool has_text = false, has_taker = false;

    for (size_t i = 0; i < c->nimages; i++) {
        if (c->images[i].type == USM_IMAGE_SPIRV)
            return false;
        has_text = has_text || c->images[i].type == USM_IMAGE_OPENCL_C;
    }
    for (size_t i = 0; i < c->ctx->ndevices; i++)
        has_taker = has_taker || (c->ctx->devices[i].dev->desc.aspects & ASPECT(IMAGE_SPIRV));
    return has_text && has_taker;
}

static usm_status no_image(const creation *c)
{
    text   devices = {"", 0}, images = {"", 0};
    size_t n = usm_min_size(c->ctx->ndevices, 4);

    for (size_t i = 0; i < n; i++)
        add_device(&devices, c->ctx->devices[i].dev);
    for (size_t p = 0; p < PREFERENCES; p++) {
        for (size_t i = 0; i < c->nimages; i++) {
            if (c->images[i].type != preference[p].type)
                continue;
            add_word(&images, images.used ? ", " : "", usm__image_type_name(preference[p].type));
            break;
        }
    }
    return usm__fail(USM_E_NO_IMAGE, "no image fits: %s; the program has %s%s", devices.at,
                     images.at, lacks_spirv(c) ? " (usm_add_kernels() adds spirv)" : "");
}

/* --- programs ------------------------------------------------------------- */

usm_status usm__program_check(usm_program *p)
{
    usm_status s = usm__handle_check(p, USM__MAGIC_PROGRAM);

    if (s == USM_OK)
        s = usm__context_check(p->ctx);
    if (s == USM_OK && usm__context_is_inert(p->ctx))
        s = usm__fail(USM_E_FORKED, "the program was made before fork(); make one in the child");
    return s;
}

static usm_program *new_program(usm_context *ctx)
{
    usm_program *p = usm__meta_alloc(&program_type);

    if (!p)
        return NULL;
    p->built = usm__heap_alloc(ctx->ndevices * sizeof(usm__built *));
    if (!p->built) {
        usm__meta_free(&program_type, p);
        return NULL;
    }
    p->ctx = ctx;
    usm__context_ref(ctx);
    return p;
}

/* pre: the magic word is not that of a live program. */
static void free_program(usm_program *p)
{
    usm_context *ctx = p->ctx;

    for (size_t i = 0; i < ctx->ndevices; i++)
        usm__built_release(p->built[i]);
    usm__heap_free(p->built);
    usm__meta_free(&program_type, p);
    usm__context_unref(ctx);
}

static usm_status check_desc(usm_context *ctx, const usm_program_desc *desc)
{
    usm_status st;

    if (usm__context_is_inert(ctx))
        return usm__fail(USM_E_FORKED, "the context was made before fork(); make one in the child");
    /* Larger ones come from later headers, whose new fields are 0 or otherwise ignored. */
    st = usm__struct_check("usm_program_create", "desc", desc, sizeof *desc,
                           "USM_PROGRAM_DESC_INIT");
    if (st != USM_OK)
        return st;
    if (!desc->nimages || !desc->images || desc->nimages > IMAGES_MAX)
        return usm__fail(USM_E_INVALID, "usm_program_create: %zu %s at %p; give 1 to %d",
                         desc->nimages, usm__plural(desc->nimages, "image", "images"),
                         (const void *)desc->images, IMAGES_MAX);
    if (!desc->log && desc->log_size)
        return usm__fail(USM_E_INVALID, "usm_program_create: log_size is %zu, log is NULL",
                         desc->log_size);
    return USM_OK;
}

/* Chooses for every device of the context; at least one must get a program. */
static usm_status choose_all(creation *c, usm_program *p)
{
    bool any = false;

    for (size_t i = 0; i < c->ctx->ndevices; i++) {
        usm_status s = choose(c, i, &p->built[i]);

        if (s != USM_OK)
            return s;
        any = any || p->built[i];
        if (p->built[i])
            usm__debug("%s runs the %s image", c->ctx->devices[i].dev->term,
                       usm__image_type_name(p->built[i]->type));
    }
    return any ? USM_OK : no_image(c);
}

static usm_status create(creation *c, usm_program **program)
{
    usm_program *p = NULL;
    usm_status   s = flatten_all(c);

    if (s != USM_OK)
        goto out;
    p = new_program(c->ctx);
    if (!p) {
        s = usm__fail(USM_E_NO_MEMORY, "no host memory for a program");
        goto out;
    }
    s = choose_all(c, p);
    if (s != USM_OK) {
        usm__quietly(free_program(p));
        goto out;
    }
    *program = p;
    usm_store_release(&p->magic, (uint32_t)USM__MAGIC_PROGRAM);
out:
    usm__heap_free(c->images);
    return s;
}

usm_status usm_program_create(usm_context *ctx, const usm_program_desc *desc, usm_program **program)
{
    creation   c = {.desc = desc};
    usm_status s = usm__context_resolve(&ctx);

    if (s == USM_OK)
        s = check_desc(ctx, desc);
    if (s != USM_OK)
        return s;
    c.ctx = ctx;
    if (!program)
        return usm__fail(USM_E_INVALID, "usm_program_create: program is NULL");
    if (desc->log && desc->log_size) {
        c.log      = desc->log;
        c.log_left = desc->log_size;
        *c.log     = 0;
    }
    return create(&c, program);
}

void usm_program_destroy(usm_program *program)
{
    if (!program)
        return;
    if (usm__handle_check(program, USM__MAGIC_PROGRAM) != USM_OK ||
        !usm__handle_kill(program, USM__MAGIC_PROGRAM)) {
        usm__warn("usm_program_destroy: %p is not a living program", (void *)program);
        return;
    }
    free_program(program);
}

usm_status usm_program_get_image(usm_program *program, usm_device *dev, usm_image_type *type)
{
    size_t     index = 0;
    usm_status s     = usm__program_check(program);

    if (s == USM_OK && !type)
        s = usm__fail(USM_E_INVALID, "usm_program_get_image: type is NULL");
    if (s == USM_OK)
        s = usm__context_device_index(program->ctx, dev, &index);
    if (s != USM_OK)
        return s;
    if (!program->built[index])
        return usm__fail(USM_E_NO_IMAGE, "no image of the program fits %s",
                         program->ctx->devices[index].dev->term);
    *type = program->built[index]->type;
    return USM_OK;
}
