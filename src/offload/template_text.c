/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The OpenCL C of a template.  usm/template_cl.h has the kernels as macros; a body becomes a function
 * in front of them, and #line directives name it in the compiler's messages:
 *
 *     <usm/template_cl.h>
 *     <head>
 *     USM_BODY_MAP(usm_square, float, float, usm_nothing) {
 *     #line 1 "square: the body"
 *     return x * x;
 *     }
 *     USM_KERNEL_MAP(usm_square, float, float, usm_nothing)
 */
#include "offload/template.h"

#include "base/os.h"
#include "base/out.h"

#include <string.h>

/* Embedded by CMake. */
extern const char   usm__template_cl[];
extern const size_t usm__template_cl_size;

static const char *type(const char *name)
{
    return name ? name : "usm_nothing";
}

/* The macros of usm/template.h put bodies into parentheses where a kind has two. */
static void put_body(usm__out *o, const usm_template_desc *d, size_t n, const char *what)
{
    const char *text   = d->bodies[n];
    size_t      length = strlen(text);

    if (length >= 2 && text[0] == '(' && text[length - 1] == ')') {
        text++;
        length -= 2;
    }
    usm__out_put(o, " {\n#line 1 \"%s: %s\"\n", d->name, what);
    usm__out_bytes(o, text, length);
    usm__out_put(o, "\n}\n#line 1 \"%s: the kernel\"\n", d->name);
}

static void put_map(usm__out *o, const usm_template_desc *d, bool reduces)
{
    const char *in = type(d->in_type), *p = type(d->param_type);

    usm__out_put(o, "USM_BODY_MAP(usm_%s, %s, %s, %s)", d->name, in, d->out_type, p);
    put_body(o, d, 0, reduces ? "the map" : "the body");
    if (reduces) {
        usm__out_put(o, "USM_BODY_JOIN(usm_%s, %s, %s)", d->name, d->out_type, p);
        put_body(o, d, 1, "the reduction");
    }
    usm__out_put(o, "USM_KERNEL_MAP%s(usm_%s, %s, %s, %s)\n", reduces ? "_REDUCE" : "", d->name, in,
                 d->out_type, p);
}

static void put_stencil(usm__out *o, const usm_template_desc *d)
{
    const char *p = type(d->param_type);

    usm__out_put(o, "USM_BODY_STENCIL(usm_%s, %s, %s, %s)", d->name, d->in_type, d->out_type, p);
    put_body(o, d, 0, "the body");
    usm__out_put(o, "USM_KERNEL_STENCIL(usm_%s, %s, %s, %s, %zu)\n", d->name, d->in_type,
                 d->out_type, p, d->radius);
}

static void put_iterate(usm__out *o, const usm_template_desc *d)
{
    const char *p = type(d->param_type);

    usm__out_put(o, "USM_BODY_STENCIL(usm_%s, %s, %s, %s)", d->name, d->in_type, d->in_type, p);
    put_body(o, d, 0, "the body");
    usm__out_put(o, "USM_BODY_SETTLED(usm_%s, %s, %s)", d->name, d->in_type, p);
    put_body(o, d, 1, "the test for its end");
    usm__out_put(o, "USM_KERNEL_ITERATE(usm_%s, %s, %s, %zu)\n", d->name, d->in_type, p, d->radius);
}

static void put_kind(usm__out *o, const usm_template_desc *d)
{
    const char *p = type(d->param_type);

    switch (d->kind) {
    case USM_TEMPLATE_MAP:
    case USM_TEMPLATE_MASTER_WORKER:
    case USM_TEMPLATE_MAP_REDUCE:
        put_map(o, d, d->kind == USM_TEMPLATE_MAP_REDUCE);
        break;
    case USM_TEMPLATE_SCAN:
        usm__out_put(o, "USM_BODY_JOIN(usm_%s, %s, %s)", d->name, d->in_type, p);
        put_body(o, d, 0, "the body");
        usm__out_put(o, "USM_KERNEL_SCAN(usm_%s, %s, %s)\n", d->name, d->in_type, p);
        break;
    case USM_TEMPLATE_SEARCH:
        usm__out_put(o, "USM_BODY_SEARCH(usm_%s, %s, %s)", d->name, type(d->in_type), p);
        put_body(o, d, 0, "the body");
        usm__out_put(o, "USM_KERNEL_SEARCH(usm_%s, %s, %s)\n", d->name, type(d->in_type), p);
        break;
    case USM_TEMPLATE_STENCIL:
        put_stencil(o, d);
        break;
    case USM_TEMPLATE_ITERATE:
        put_iterate(o, d);
        break;
    }
}

static void put_all(usm__out *o, const usm_template_desc *d)
{
    usm__out_bytes(o, usm__template_cl, usm__template_cl_size);
    if (d->head)
        usm__out_put(o, "#line 1 \"%s: the head\"\n%s\n#line 1 \"%s\"\n", d->name, d->head,
                     d->name);
    put_kind(o, d);
}

char *usm__template_text(const usm_template_desc *desc, size_t *size)
{
    usm__out o = {.text = NULL};

    put_all(&o, desc); /* counts */
    *size  = o.used;
    o.text = usm__heap_alloc(o.used + 1);
    o.cap  = *size + 1;
    o.used = 0;
    if (o.text)
        put_all(&o, desc);
    return o.text;
}
