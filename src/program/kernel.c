/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kernels: one named function of a program, ready on every device for which the program was built.
 *
 * A kernel never changes: arguments are passed with each launch (launch.c), so any number of
 * threads may launch it.  It holds the built programs it came from, so the program may be destroyed
 * first. */
#include "base/inline/bits.h"
#include "base/inline/plural.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "program/program.h"

#include <stdio.h>
#include <string.h>

#define KINDS (sizeof((usm_kernel *)0)->kinds / sizeof(usm_arg_kind))
/* Bytes of names in an error message. */
#define NAMES_MAX 400

static usm__meta_type kernel_type =
    USM__META_TYPE(struct usm_kernel, sizeof(usm__magic_word), "kernels");

usm_status usm__kernel_check(usm_kernel *k)
{
    usm_status s = usm__handle_check(k, USM__MAGIC_KERNEL);

    if (s == USM_OK)
        s = usm__context_check(k->ctx);
    if (s == USM_OK && usm__context_is_inert(k->ctx))
        s = usm__fail(USM_E_FORKED, "the kernel was made before fork(); make one in the child");
    return s;
}

/* --- no such name --------------------------------------------------------- */

/* Writes "a;b;c" as "a, b, c", cut between names. */
static void list_names(const char *names, char *out, size_t size)
{
    size_t used = 0;

    while (*names) {
        size_t n    = strcspn(names, ";");
        int    len  = snprintf(out + used, size - used, "%s%.*s", used ? ", " : "", (int)n, names);
        size_t next = used + (size_t)len;

        if (len < 0 || next + sizeof ", ..." > size) {
            snprintf(out + used, size - used, ", ...");
            return;
        }
        used = next;
        names += n + (names[n] == ';');
    }
}

static usm_status no_kernel(usm_context *ctx, size_t index, const usm__built *b, const char *name)
{
    char  list[NAMES_MAX] = "none, or they are unknown";
    char *names           = NULL;

    if (usm__be_program_kernels(ctx->be, b->native, &names) == USM_OK && names && *names)
        list_names(names, list, sizeof list);
    usm__heap_free(names);
    return usm__fail(USM_E_NO_KERNEL, "there is no kernel \"%.127s\" for %s; the program has: %s",
                     name, ctx->devices[index].dev->term, list);
}

/* --- argument counts and kinds ------------------------------------------- */

static const char *kind_name(usm_arg_kind kind)
{
    return kind == USM_ARG_POINTER ? "pointer" : kind == USM_ARG_VALUE ? "value" : "local memory";
}

/* A later device may know a kind that the first one does not, or report a different one. */
static usm_status merge_kinds(usm_kernel *k, const usm_arg_kind *kinds, const usm_device *dev)
{
    for (size_t i = 0; i < usm_min_size(k->nargs, KINDS); i++) {
        if (k->kinds[i] == USM_ARG_NONE)
            k->kinds[i] = kinds[i];
        if (kinds[i] != USM_ARG_NONE && kinds[i] != k->kinds[i])
            return usm__fail(USM_E_INVALID,
                             "argument %zu of kernel \"%s\" is a %s on %s, but a %s on the devices "
                             "before it: the images differ",
                             i, k->name, kind_name(kinds[i]), dev->term, kind_name(k->kinds[i]));
    }
    return USM_OK;
}

/* `is_first`: the first device that has the kernel. */
static usm_status learn(usm_kernel *k, size_t index, bool is_first)
{
    const usm_device *dev          = k->ctx->devices[index].dev;
    usm_arg_kind      kinds[KINDS] = {USM_ARG_NONE};
    size_t            nargs        = 0;
    usm_status        s = usm__be_kernel_info(k->ctx->be, k->native[index], &nargs, kinds, KINDS);

    if (s != USM_OK)
        return s;
    if (is_first) {
        k->nargs = nargs;
        memcpy(k->kinds, kinds, sizeof kinds);
        return USM_OK;
    }
    if (nargs != k->nargs)
        return usm__fail(USM_E_INVALID,
                         "kernel \"%s\" has %zu %s on %s, but %zu on the devices before it: "
                         "the images differ",
                         k->name, nargs, usm__plural(nargs, "argument", "arguments"), dev->term,
                         k->nargs);
    return merge_kinds(k, kinds, dev);
}

/* --- creation and release -------------------------------------------------- */

static usm_kernel *new_kernel(usm_program *program, const char *name)
{
    usm_context *ctx = program->ctx;
    usm_kernel  *k   = usm__meta_alloc(&kernel_type);

    if (!k)
        return NULL;
    k->built  = usm__heap_alloc(ctx->ndevices * sizeof(usm__built *));
    k->native = usm__heap_alloc(ctx->ndevices * sizeof *k->native);
    if (!k->built || !k->native) {
        usm__heap_free(k->native);
        usm__heap_free(k->built);
        usm__meta_free(&kernel_type, k);
        return NULL;
    }
    usm_store_relaxed(&k->refs, 1u);
    snprintf(k->name, sizeof k->name, "%s", name);
    k->ctx = ctx;
    usm__context_ref(ctx);
    return k;
}

/* Launches in flight continue: the backends keep what they need. */
void usm__kernel_release(usm_kernel *k)
{
    usm_context *ctx = k->ctx;

    if (!usm_ref_drop(&k->refs))
        return;
    for (size_t i = 0; i < ctx->ndevices; i++) {
        if (k->native[i] && !usm__context_is_inert(ctx))
            usm__be_kernel_destroy(ctx->be, k->native[i]);
        usm__built_release(k->built[i]);
    }
    usm__heap_free(k->native);
    usm__heap_free(k->built);
    usm__meta_free(&kernel_type, k);
    usm__context_unref(ctx);
}

usm_kernel *usm__kernel_retain(usm_kernel *k)
{
    usm_ref_take(&k->refs);
    return k;
}

static usm_status make_on_devices(usm_kernel *k, usm_program *program)
{
    bool       is_first = true;
    usm_status s        = USM_OK;

    for (size_t i = 0; s == USM_OK && i < k->ctx->ndevices; i++) {
        usm__built *b = program->built[i];

        if (!b)
            continue;
        (void)usm_ref_take(&b->refs);
        k->built[i] = b;
        s           = usm__be_kernel_create(k->ctx->be, b->native, k->name, &k->native[i]);
        if (s == USM_E_NO_KERNEL)
            return no_kernel(k->ctx, i, b, k->name);
        if (s == USM_OK)
            s = learn(k, i, is_first);
        is_first = false;
    }
    return s;
}

usm_status usm_kernel_create(usm_program *program, const char *name, usm_kernel **kernel)
{
    usm_kernel *k;
    usm_status  s = usm__program_check(program);

    if (s != USM_OK)
        return s;
    if (!name || !*name || !kernel)
        return usm__fail(USM_E_INVALID, "usm_kernel_create: %s",
                         kernel ? "the name is empty or NULL" : "kernel is NULL");
    if (strlen(name) >= sizeof k->name)
        return usm__fail(USM_E_NO_KERNEL, "there is no kernel \"%.40s...\": names end at 127 bytes",
                         name);
    k = new_kernel(program, name);
    if (!k)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for kernel \"%s\"", name);
    s = make_on_devices(k, program);
    if (s != USM_OK) {
        usm__quietly(usm__kernel_release(k));
        return s;
    }
    usm_store_release(&k->magic, (uint32_t)USM__MAGIC_KERNEL);
    *kernel = k;
    return USM_OK;
}

void usm_kernel_destroy(usm_kernel *kernel)
{
    if (!kernel)
        return;
    if (usm__handle_check(kernel, USM__MAGIC_KERNEL) != USM_OK ||
        !usm__handle_kill(kernel, USM__MAGIC_KERNEL)) {
        usm__warn("usm_kernel_destroy: %p is not a living kernel", (void *)kernel);
        return;
    }
    usm__kernel_release(kernel);
}
