/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Templates: what a description must satisfy, and its kernels. */
#include "offload/template.h"

#include "base/inline/plural.h"
#include "base/meta.h"
#include "base/os.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static usm__meta_type template_type =
    USM__META_TYPE(struct usm_template, sizeof(usm__magic_word), "templates");

static const usm__template_kind kinds[] = {
    [USM_TEMPLATE_MAP]           = {"map", 1, "x, i -> out", 4, false, false, false},
    [USM_TEMPLATE_MAP_REDUCE]    = {"map_reduce", 2, "x, i -> out, and a, b -> out", 5, false, true,
                                    false},
    [USM_TEMPLATE_STENCIL]       = {"stencil", 1, "USM_AT(dx, dy) -> out", 5, true, false, true},
    [USM_TEMPLATE_SCAN]          = {"scan", 1, "a, b -> out", 5, false, true, true},
    [USM_TEMPLATE_SEARCH]        = {"search", 1, "x, i -> is it?", 5, false, false, false},
    [USM_TEMPLATE_MASTER_WORKER] = {"master_worker", 1, "x, i -> out", 4, false, false, false},
    [USM_TEMPLATE_ITERATE]       = {"iterate", 2,
                                    "USM_AT(dx, dy) -> out, and before, now -> is it "
                                          "settled?",
                                    6, true, false, true},
};

const usm__template_kind *usm__template_kind_of(usm_template_kind kind)
{
    if (kind < USM_TEMPLATE_MAP || (size_t)kind >= sizeof kinds / sizeof *kinds)
        return NULL;
    return &kinds[kind];
}

usm_status usm__template_is(const usm_template *t)
{
    usm_status st = usm__handle_check(t, USM__MAGIC_TEMPLATE);

    return st == USM_OK ? usm__team_check_fork(t->team) : st;
}

/* ---- descriptions --------------------------------------------------------------------------- */

static bool is_nothing(const char *type)
{
    return !type || strcmp(type, "usm_nothing") == 0;
}

/* Names become names of functions in C. */
static usm_status check_name(const char *name)
{
    size_t length = name ? strlen(name) : 0;

    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_')
            length = 0;
    if (length == 0 || isdigit((unsigned char)name[0]) ||
        length >= sizeof((usm_template *)NULL)->name)
        return usm__fail(USM_E_INVALID,
                         "'%s' cannot be the name of a template: it must be an identifier of C, of "
                         "at most %zu characters",
                         name ? name : "", sizeof((usm_template *)NULL)->name - 1);
    return USM_OK;
}

static usm_status check_bodies(const usm_template_desc *d, const usm__template_kind *kind)
{
    if (d->nbodies && d->nbodies != kind->nbodies)
        return usm__fail(USM_E_INVALID, "template '%s' has %zu %s; the kind %s has %zu: %s",
                         d->name, d->nbodies, usm__plural(d->nbodies, "body", "bodies"), kind->name,
                         kind->nbodies, kind->bodies);
    for (size_t i = 0; i < d->nbodies; i++)
        if (!d->bodies[i] || !*d->bodies[i])
            return usm__fail(USM_E_INVALID, "template '%s': body %zu of %zu has no text", d->name,
                             i + 1, d->nbodies);
    if (d->nbodies == 0 && !d->native && d->nimages == 0)
        return usm__fail(USM_E_INVALID,
                         "template '%s' has no code: it needs the text of its %s, a native "
                         "function, or images",
                         d->name, usm__plural(kind->nbodies, "body", "bodies"));
    if (d->native && kind->reduces && !d->native_reduce)
        return usm__fail(USM_E_INVALID,
                         "template '%s' has a native function, but none that joins: set "
                         "native_reduce, or use USM_MAP_REDUCE or USM_SCAN",
                         d->name);
    return USM_OK;
}

static usm_status check_types(const usm_template_desc *d, const usm__template_kind *kind)
{
    bool has_in  = !is_nothing(d->in_type);
    bool is_same = d->kind == USM_TEMPLATE_SCAN || d->kind == USM_TEMPLATE_ITERATE;

    if (kind->needs_input && !has_in)
        return usm__fail(USM_E_INVALID, "template '%s': the kind %s needs an in_type", d->name,
                         kind->name);
    if (has_in && d->in_size == 0)
        return usm__fail(USM_E_INVALID, "template '%s': in_size is 0; it must be the bytes of %s",
                         d->name, d->in_type);
    if (!is_nothing(d->param_type) && d->param_size == 0)
        return usm__fail(USM_E_INVALID,
                         "template '%s': param_size is 0; it must be the bytes of %s", d->name,
                         d->param_type);
    if (d->kind == USM_TEMPLATE_SEARCH)
        return USM_OK;
    if (is_nothing(d->out_type) || d->out_size == 0)
        return usm__fail(USM_E_INVALID,
                         "template '%s': the kind %s needs an out_type and its out_size", d->name,
                         kind->name);
    if (is_same && (d->in_size != d->out_size || strcmp(d->in_type, d->out_type) != 0))
        return usm__fail(
            USM_E_INVALID,
            "template '%s': the kind %s has one type, but its in_type is %s and its out_type "
            "%s",
            d->name, kind->name, d->in_type, d->out_type);
    return USM_OK;
}

static usm_status check_desc(const usm_template_desc *d)
{
    const usm__template_kind *kind;
    usm_status                st = usm__struct_check("usm_template_create", "desc", d, sizeof *d,
                                                     "the macros of usm/template.h");

    if (st == USM_OK)
        st = check_name(d->name);
    if (st != USM_OK)
        return st;
    kind = usm__template_kind_of(d->kind);
    if (!kind)
        return usm__fail(USM_E_INVALID, "template '%s': there is no kind %d; use USM_TEMPLATE_*",
                         d->name, (int)d->kind);
    if (d->radius && !kind->has_rows)
        return usm__fail(USM_E_INVALID,
                         "template '%s': the kind %s reads no neighbours; set radius to 0", d->name,
                         kind->name);
    st = check_bodies(d, kind);
    return st == USM_OK ? check_types(d, kind) : st;
}

/* ---- kernels --------------------------------------------------------------------------------- */

enum { IMAGES_MAX = 16 };

static usm_status build(usm_template *t, const usm_template_desc *d, const char *text, size_t size)
{
    const usm__template_kind *kind = usm__template_kind_of(d->kind);
    usm_program_desc          p    = USM_PROGRAM_DESC_INIT;
    usm_image                 images[IMAGES_MAX + 2];
    usm_status                st;

    if (d->nimages)
        memcpy(images, d->images, d->nimages * sizeof *images);
    p.nimages = d->nimages;
    if (text)
        images[p.nimages++] = (usm_image){USM_IMAGE_OPENCL_C, text, size};
    (void)snprintf(t->kernel_name, sizeof t->kernel_name, "usm_%s_kernel", t->name);
    (void)snprintf(t->reduce_name, sizeof t->reduce_name, "usm_%s_reduce", t->name);
    t->natives[0] = (usm_native_kernel){t->kernel_name, d->native, kind->nargs, NULL};
    t->natives[1] = (usm_native_kernel){t->reduce_name, d->native_reduce, kind->nargs, NULL};
    if (d->native)
        images[p.nimages++] =
            (usm_image){USM_IMAGE_NATIVE, t->natives, (kind->reduces ? 2 : 1) * sizeof *t->natives};
    p.images  = images;
    p.options = d->options;
    st        = usm_team_kernel_create(t->team, &p, t->kernel_name, &t->kernel);
    if (st == USM_OK && kind->reduces)
        st = usm_team_kernel_create(t->team, &p, t->reduce_name, &t->reduce);
    return st;
}

static usm_status build_from_text(usm_template *t, const usm_template_desc *d)
{
    char      *text = NULL;
    size_t     size = 0;
    usm_status st;

    if (d->nimages > IMAGES_MAX)
        return usm__fail(USM_E_INVALID, "template '%s' has %zu images; at most %d", d->name,
                         d->nimages, IMAGES_MAX);
    if (d->nbodies && d->nimages == 0) {
        text = usm__template_text(d, &size);
        if (!text)
            return usm__fail(USM_E_NO_MEMORY, "no host memory for the text of template '%s'",
                             d->name);
    }
    st = build(t, d, text, size);
    usm__heap_free(text);
    return st;
}

static void discard(usm_template *t)
{
    usm_team_kernel_destroy(t->kernel);
    usm_team_kernel_destroy(t->reduce);
    usm__meta_free(&template_type, t);
}

usm_status usm_template_create(usm_team *team, const usm_template_desc *desc, usm_template **out)
{
    usm_template *t;
    usm_status    st = usm__team_check(team);

    if (st == USM_OK)
        st = check_desc(desc);
    if (st != USM_OK)
        return st;
    if (!out)
        return usm__fail(USM_E_INVALID, "usm_template_create: t is NULL");
    t = usm__meta_alloc(&template_type);
    if (!t)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a template");
    t->team = team;
    t->kind = desc->kind;
    (void)snprintf(t->name, sizeof t->name, "%s", desc->name);
    t->in_size    = is_nothing(desc->in_type) ? 0 : desc->in_size;
    t->out_size   = desc->kind == USM_TEMPLATE_SEARCH ? sizeof(int64_t) : desc->out_size;
    t->param_size = is_nothing(desc->param_type) ? 0 : desc->param_size;
    t->radius     = desc->radius;
    st            = build_from_text(t, desc);
    if (st != USM_OK) {
        usm__quietly(discard(t));
        return st;
    }
    usm_store_release(&t->magic, (uint32_t)USM__MAGIC_TEMPLATE);
    *out = t;
    return USM_OK;
}

void usm_template_destroy(usm_template *t)
{
    if (t && usm__handle_check(t, USM__MAGIC_TEMPLATE) == USM_OK &&
        usm__handle_kill(t, USM__MAGIC_TEMPLATE))
        discard(t);
}
