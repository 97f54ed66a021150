/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Nodes that are templates (usm/template.h): "map", "stencil" and so on.  The file has the bodies, or
 * names a template in a library.  In the graph such a node is a call, which runs the template over the
 * whole team.
 *
 * How many elements a node has follows from the sizes of the nodes before it, so halos and sizes are
 * checked before anything runs. */
#include "app.h"

#include "base/inline/plural.h"
#include "base/status.h"
#include "offload/template.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const text_keys[] = {"name",       "kind",   "in",     "out",   "body",  "head",
                                        "param_type", "radius", "param",  "width", "steps", "grain",
                                        "count",      "work",   "output", NULL};
static const char *const library_keys[]       = {"name",  "kind",  "library", "template",
                                                 "param", "width", "steps",   "grain",
                                                 "count", "work",  "output",  NULL};
static const char *const stage_text_keys[]    = {"kind", "in",         "out",   "body",
                                                 "head", "param_type", "param", NULL};
static const char *const stage_library_keys[] = {"kind", "library", "template", "param", NULL};

bool template_kind(const char *name, usm_template_kind *kind)
{
    for (int i = USM_TEMPLATE_MAP; usm__template_kind_of((usm_template_kind)i); i++)
        if (strcmp(usm__template_kind_of((usm_template_kind)i)->name, name) == 0) {
            *kind = (usm_template_kind)i;
            return true;
        }
    return false;
}

/* ---- fields ---------------------------------------------------------------------------------- */

/* "f32", or {"type": "struct point", "bytes": 12}. */
static bool get_type(app *a, value object, const char *key, const char **name, size_t *size)
{
    static const char *const keys[] = {"type", "bytes", NULL};
    value                    v      = member(object, key);
    uint64_t                 bytes  = 0;

    if (!v.json)
        return true;
    if (json_is_string(v.json)) {
        *name = number_name(json_string_value(v.json), size);
        return *name != NULL || mistake(a, v.at,
                                        "there is no type '%s'; there are %s, and {\"type\": name "
                                        "in OpenCL C, \"bytes\": size}",
                                        json_string_value(v.json), number_names());
    }
    if (!check_keys(a, v, "a type", keys) || !get_text(a, v, "type", name) ||
        !get_number(a, v, "bytes", 1, UINT32_MAX, &bytes))
        return false;
    *size = bytes;
    return (*name && bytes) ||
           mistake(a, v.at, "a type needs its 'type', in OpenCL C, and 'bytes'");
}

static bool read_bodies(app *a, const app_node *n)
{
    usm_template_desc *d    = &n->tpl->desc;
    value              body = member(n->at, "body");
    size_t             most = sizeof d->bodies / sizeof *d->bodies;
    size_t             count =
        json_is_array(body.json) ? json_array_size(body.json) : json_is_string(body.json);
    const usm__template_kind *kind = usm__template_kind_of(d->kind);

    if (count != kind->nbodies || count > most)
        return mistake(a, body.json ? body.at : n->at.at,
                       "node '%s' has %zu %s; the kind %s has %zu, %s: %s", n->desc.name, count,
                       usm__plural(count, "body", "bodies"), kind->name, kind->nbodies,
                       kind->nbodies > 1 ? "an array of texts" : "a text", kind->bodies);
    for (size_t i = 0; i < count; i++) {
        value v = json_is_array(body.json) ? element(body, i) : body;

        d->bodies[i] = json_string_value(v.json);
        if (!d->bodies[i] || !*d->bodies[i])
            return mistake(a, v.at, "node '%s': a body must be a text in OpenCL C", n->desc.name);
    }
    d->nbodies = count;
    return true;
}

static bool read_text(app *a, app_node *n)
{
    app_template *t      = n->tpl;
    const char   *head   = NULL;
    uint64_t      radius = 0;
    size_t        size;
    bool          is_ok = check_keys(a, n->at, t->is_stage ? "a stage" : "a template",
                            t->is_stage ? stage_text_keys : text_keys) &&
                 read_bodies(a, n);

    is_ok &= get_type(a, n->at, "in", &t->desc.in_type, &t->desc.in_size);
    is_ok &= get_type(a, n->at, "out", &t->desc.out_type, &t->desc.out_size);
    is_ok &= get_number(a, n->at, "radius", 0, INT32_MAX, &radius);
    is_ok &= get_text(a, n->at, "head", &head);
    if (is_ok && head) {
        t->head = read_file(a, member(n->at, "head"), head, &size);
        is_ok   = t->head != NULL;
    }
    if (t->desc.kind == USM_TEMPLATE_SCAN || t->desc.kind == USM_TEMPLATE_ITERATE) {
        t->desc.out_type = t->desc.in_type;
        t->desc.out_size = t->desc.in_size;
    }
    t->desc.radius = radius;
    t->desc.head   = t->head;
    return is_ok;
}

/* The parameter's bytes are told as those of an input; a single number tells its type too. */
static bool read_param(app *a, app_node *n)
{
    app_template *t     = n->tpl;
    value         param = member(n->at, "param");
    const char   *name  = NULL;
    app_node      bytes = {.at = n->at};

    if (!param.json)
        return true;
    if (!read_pieces(a, &bytes, param))
        return false;
    t->param      = bytes.data;
    t->param_size = bytes.size;
    t->run.param  = bytes.data;
    if (member(n->at, "library").json)
        return true;
    if (!get_type(a, n->at, "param_type", &t->desc.param_type, &t->desc.param_size))
        return false;
    if (!t->desc.param_type && json_is_object(param.json) && get_text(a, param, "type", &name) &&
        name)
        t->desc.param_type = number_name(name, &t->desc.param_size);
    if (!t->desc.param_type)
        return mistake(a, param.at, "node '%s': 'param' needs a 'param_type'", n->desc.name);
    return true;
}

bool read_template(app *a, app_node *n)
{
    app_template *t     = n->tpl;
    uint64_t      width = 0, count = 0;
    bool          by_library = member(n->at, "library").json;
    bool          is_ok;

    t->desc.struct_size = sizeof t->desc;
    t->run              = (usm_template_run_desc)USM_TEMPLATE_RUN_DESC_INIT;
    t->app              = a;
    is_ok               = by_library ? check_keys(a, n->at, "a template of a library",
                                    t->is_stage ? stage_library_keys : library_keys)
                                     : read_text(a, n);
    is_ok               = is_ok && read_param(a, n);
    is_ok &= get_number(a, n->at, "width", 1, INT32_MAX, &width);
    is_ok &= get_number(a, n->at, "steps", 1, INT64_MAX, &t->run.steps);
    is_ok &= get_number(a, n->at, "grain", 1, UINT32_MAX, &t->run.grain);
    is_ok &= get_number(a, n->at, "count", 1, INT64_MAX, &count);
    t->run.width = width;
    t->count     = count;
    n->output    = member(n->at, "output");
    return is_ok && (!n->output.json || check_output(a, n->output));
}

/* Nobody asks a unit for this node, which has no kernel. */
static usm_status run_elsewhere(const void *in, size_t in_size, void *out, size_t out_size,
                                void *user)
{
    (void)in;
    (void)in_size;
    (void)out;
    (void)out_size;
    (void)user;
    return usm__fail(USM_E_NOT_SUPPORTED, "templates run where the app is");
}

bool read_remote_template(app *a, app_node *n)
{
    n->desc.call = run_elsewhere;
    return remote_size(a, n, &n->desc.out_size);
}

bool hash_template(app *a, const app_node *n, usm__hash *hash)
{
    value  library = member(n->at, "library");
    char  *text    = json_dumps(n->at.json, JSON_COMPACT | JSON_SORT_KEYS), *code;
    size_t size;

    usm__hash_text(hash, need(text));
    usm__hash_text(hash, n->tpl->head ? n->tpl->head : "");
    free(text);
    for (size_t k = 0; k < n->tpl->nstages; k++)
        if (!hash_template(a, &n->tpl->stages[k], hash))
            return false;
    if (!json_is_string(library.json))
        return true;
    code = read_file(a, library, json_string_value(library.json), &size);
    if (code)
        usm__hash_add(hash, code, size);
    free(code);
    return code != NULL;
}

/* ---- templates of libraries ------------------------------------------------------------------ */

static bool find_in_library(app *a, app_node *n)
{
    value                           v    = member(n->at, "library");
    const char                     *name = NULL, *library = NULL;
    char                            symbol[200];
    void                           *handle;
    const usm_template_desc *const *found;

    if (!get_text(a, n->at, "library", &library) || !get_text(a, n->at, "template", &name))
        return false;
    if (!library || !name)
        return mistake(a, v.at, "node '%s': 'library' and 'template' belong together",
                       n->desc.name);
    handle = open_library(a, library);
    (void)snprintf(symbol, sizeof symbol, "usm_template_%s", name);
    found = handle ? dlsym(handle, symbol) : NULL;
    if (!found)
        return mistake(a, v.at, "node '%s': %s", n->desc.name, dlerror());
    if ((*found)->kind != n->tpl->desc.kind)
        return mistake(a, member(n->at, "kind").at,
                       "node '%s' is of the kind %s, and the template '%s' of the library of the "
                       "kind %s",
                       n->desc.name, usm__template_kind_of(n->tpl->desc.kind)->name, name,
                       usm__template_kind_of((*found)->kind)->name);
    n->tpl->desc = **found;
    return true;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static bool find_size(app *a, app_node *n);

/* Adds up what the nodes before give. */
static bool bytes_before(app *a, app_node *n, uint64_t *bytes)
{
    const char *end = NULL;

    *bytes = 0;
    for (size_t i = 0; i < json_array_size(a->edges.json); i++) {
        value     edge = next_element(a->edges, i, &end);
        app_node *from = app_last(a, json_string_value(element(edge, 0).json));

        if (app_find(a, json_string_value(element(edge, 1).json)) != n)
            continue;
        if (from->desc.kind == USM_NODE_PARTITION || from->desc.kind == USM_NODE_EXPANDABLE)
            return mistake(a, edge.at,
                           "node '%s' reads the parts of '%s', whose number is open: put a merge "
                           "between them",
                           n->desc.name, from->desc.name);
        if (from->tpl && !find_size(a, from))
            return false;
        *bytes += from->desc.kind == USM_NODE_INPUT ? from->size : from->desc.out_size;
    }
    return true;
}

static bool count_elements(app *a, app_node *n, uint64_t bytes)
{
    app_template *t   = n->tpl;
    uint64_t      row = (uint64_t)t->built->in_size * (t->run.width ? t->run.width : 1);

    if (row == 0) {
        t->run.count = t->count;
        return t->count ||
               mistake(a, n->at.at, "node '%s' has no 'in', so it needs a 'count'", n->desc.name);
    }
    if (t->count)
        return mistake(a, member(n->at, "count").at,
                       "node '%s': 'count' is for templates without 'in'; here the nodes before it "
                       "give the elements",
                       n->desc.name);
    if (bytes == 0 || bytes % row)
        return mistake(
            a, n->at.at,
            "node '%s' reads %llu bytes: they are not a whole number of %s of %llu bytes",
            n->desc.name, (unsigned long long)bytes, t->run.width > 1 ? "rows" : "elements",
            (unsigned long long)row);
    t->run.count = bytes / row;
    return true;
}

static uint64_t output_of(const app_template *t)
{
    uint64_t width = t->run.width ? t->run.width : 1;

    switch (t->built->kind) {
    case USM_TEMPLATE_MAP_REDUCE:
    case USM_TEMPLATE_SEARCH:
        return t->built->out_size;
    case USM_TEMPLATE_MAP:
    case USM_TEMPLATE_MASTER_WORKER:
    case USM_TEMPLATE_SCAN:
    case USM_TEMPLATE_STENCIL:
    case USM_TEMPLATE_ITERATE:
        break;
    }
    return t->run.count * width * t->built->out_size;
}

/* Sets the size of the node's output once; a cycle is libusm's to find. */
static bool find_size(app *a, app_node *n)
{
    app_template *t = n->tpl;
    uint64_t      bytes;

    if (n->desc.out_size)
        return true;
    n->desc.out_size = 1;
    if (!bytes_before(a, n, &bytes))
        return false;
    if (t->is_pipeline)
        return find_pipeline_size(a, n, bytes);
    if (!count_elements(a, n, bytes))
        return false;
    t->run.in  = t->built->in_size ? (const void *)t : NULL; /* known when it runs */
    t->run.out = t;
    if (usm_template_check(t->built, &t->run) != USM_OK)
        return mistake(a, n->at.at, "node '%s': %s", n->desc.name, usm_last_error());
    n->desc.out_size = output_of(t);
    return true;
}

/* ---- the graph ------------------------------------------------------------------------------- */

static bool show_nothing(const usm_progress *p, void *user)
{
    const app *a = user;

    (void)p;
    return !a->is_called_off || !*a->is_called_off;
}

static usm_status run_template(const void *in, size_t in_size, void *out, size_t out_size,
                               void *user)
{
    app_template *t = user;

    (void)in_size;
    (void)out_size;
    t->run.in            = t->built->in_size ? in : NULL;
    t->run.out           = out;
    t->run.progress      = show_nothing;
    t->run.progress_user = t->app;
    return usm_template_run(t->built, &t->run, NULL);
}

/* The name of the kernel: what is no part of an identifier becomes '_'. */
static void name_kernel(const app_node *n, char *name, size_t size)
{
    (void)snprintf(name, size, "node_%s", n->desc.name);
    for (char *s = name; *s; s++)
        if (!isalnum((unsigned char)*s))
            *s = '_';
}

bool build_template(app *a, app_node *n)
{
    app_template *t = n->tpl;

    if (member(n->at, "library").json) {
        if (!find_in_library(a, n))
            return false;
    } else {
        name_kernel(n, t->name, sizeof t->name);
        t->desc.name = t->name;
    }
    if (usm_template_create(a->team, &t->desc, &t->built) != USM_OK) {
        value body = member(n->at, "body");

        return mistake(a, body.json && usm_last_status() == USM_E_BUILD ? body.at : n->at.at,
                       "node '%s': %s", n->desc.name, usm_last_error());
    }
    if (t->param_size != t->built->param_size)
        return mistake(a, n->at.at, "node '%s': 'param' has %zu bytes, and the parameter %zu",
                       n->desc.name, t->param_size, t->built->param_size);
    n->desc.call      = run_template;
    n->desc.call_user = t;
    return true;
}

bool build_templates(app *a)
{
    bool is_ok = true;

    if (a->remote)
        return true;
    for (size_t i = 0; i < a->nnodes; i++)
        if (a->nodes[i].tpl)
            is_ok &= a->nodes[i].tpl->is_pipeline ? build_pipeline(a, &a->nodes[i])
                                                  : build_template(a, &a->nodes[i]);
    for (size_t i = 0; i < a->nnodes && is_ok; i++)
        if (a->nodes[i].tpl)
            is_ok = find_size(a, &a->nodes[i]);
    return is_ok;
}

void free_template(app_template *t)
{
    if (!t)
        return;
    for (size_t k = 0; k < t->nstages; k++)
        free_template(t->stages[k].tpl);
    free(t->stages);
    usm_template_destroy(t->built);
    free(t->head);
    free(t->param);
    free(t);
}
