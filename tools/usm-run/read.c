/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Parses the text of an app into kernels, nodes and edges.  Reading continues after an error, so
 * that all errors are reported at once; libusm reports what only the graph as a whole shows
 * (build.c). */
#include "app.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- nodes ----------------------------------------------------------------------------------- */

static const char *const kind_names[] = {"input", "process", "partition", "merge", "expandable"};

/* The fields of each kind. */
static const char *const input_keys[]     = {"name", "kind", "data", NULL};
static const char *const process_keys[]   = {"name",   "kind",  "kernel", "function", "out_size",
                                             "global", "local", "work",   "output",   NULL};
static const char *const partition_keys[] = {"name",  "kind",       "kernel",    "function",
                                             "parts", "per_device", "part_size", "global",
                                             "local", "work",       "output",    NULL};

static bool read_kind(app *a, app_node *n)
{
    const char *kind = NULL;

    if (!get_text(a, n->at, "kind", &kind))
        return false;
    for (unsigned i = 0; kind && i < sizeof kind_names / sizeof *kind_names; i++)
        if (strcmp(kind, kind_names[i]) == 0) {
            n->desc.kind = (usm_node_kind)(USM_NODE_INPUT + i);
            return true;
        }
    if (kind) {
        n->tpl              = need(calloc(1, sizeof *n->tpl));
        n->tpl->is_pipeline = is_pipeline(kind);
        if (n->tpl->is_pipeline || template_kind(kind, &n->tpl->desc.kind)) {
            n->desc.kind = USM_NODE_CALL;
            return true;
        }
    }
    return mistake(
        a, kind ? member(n->at, "kind").at : n->at.at,
        "node '%s'%s%s%s: a kind is input, process, partition, merge or expandable, or a "
        "template: map, map_reduce, stencil, scan, search, master_worker, iterate, pipeline",
        n->desc.name, kind ? " is of kind '" : " has no kind", kind ? kind : "", kind ? "'" : "");
}

static bool read_work(app *a, app_node *n)
{
    value v = member(n->at, "work");

    n->desc.work = 1;
    if (!v.json)
        return true;
    if (!json_is_number(v.json) || !(json_number_value(v.json) > 0))
        return mistake(a, v.at, "'work' must be a number above 0");
    n->desc.work = json_number_value(v.json);
    return true;
}

static bool read_range(app *a, app_node *n)
{
    uint32_t locals = 0;

    if (!get_sizes(a, n->at, "global", n->desc.global, &n->desc.dims) ||
        !get_sizes(a, n->at, "local", n->desc.local, &locals))
        return false;
    if (locals && locals != n->desc.dims)
        return mistake(a, member(n->at, "local").at,
                       "node '%s': 'local' has %u numbers and 'global' %u", n->desc.name, locals,
                       n->desc.dims);
    return read_work(a, n);
}

static bool read_kernel_node(app *a, app_node *n)
{
    bool        is_partition = n->desc.kind == USM_NODE_PARTITION;
    const char *size_key     = is_partition ? "part_size" : "out_size";
    uint64_t    size = 0, parts = 0, per_device = 0;
    bool is_ok = check_keys(a, n->at, is_partition ? "a partition node" : "a node with a kernel",
                            is_partition ? partition_keys : process_keys);

    is_ok &= get_text(a, n->at, "kernel", &n->kernel);
    is_ok &= get_number(a, n->at, size_key, 1, UINT32_MAX, &size);
    is_ok &= get_number(a, n->at, "parts", 1, 1u << 20, &parts);
    is_ok &= get_number(a, n->at, "per_device", 1, 1u << 16, &per_device);
    is_ok &= read_range(a, n);
    if (!member(n->at, "kernel").json)
        is_ok = mistake(a, n->at.at, "node '%s' has no 'kernel'", n->desc.name);
    if (!member(n->at, size_key).json)
        is_ok = mistake(a, n->at.at, "node '%s' has no '%s': the bytes of a block it gives",
                        n->desc.name, size_key);
    n->desc.out_size   = size;
    n->desc.parts      = (uint32_t)parts;
    n->desc.per_device = (uint32_t)per_device;
    n->output          = member(n->at, "output");
    return is_ok && (!n->output.json || check_output(a, n->output));
}

app_node *app_find(app *a, const char *name)
{
    const json_t *number = json_object_get(a->numbers, name);

    return number ? &a->nodes[json_integer_value(number)] : NULL;
}

app_node *app_last(app *a, const char *name)
{
    const json_t *number = json_object_get(a->lasts, name);

    return number ? &a->nodes[json_integer_value(number)] : app_find(a, name);
}

static bool is_known_kind(const char *kind)
{
    usm_template_kind ignored;

    for (unsigned i = 0; i < sizeof kind_names / sizeof *kind_names; i++)
        if (strcmp(kind, kind_names[i]) == 0)
            return true;
    return is_pipeline(kind) || template_kind(kind, &ignored);
}

bool read_node(app *a, value at)
{
    const char   *kind = json_string_value(json_object_get(at.json, "kind"));
    app_node      n    = {.desc = USM_NODE_DESC_INIT, .at = at};
    const char   *name = NULL;
    const json_t *taken;
    app_node     *known;

    if (!json_is_object(at.json))
        return mistake(a, at.at, "a node must be an object");
    if (!get_text(a, at, "name", &name))
        return false;
    if (!name)
        return mistake(a, at.at, "a node has no 'name'");
    taken = json_object_get(a->numbers, name);
    if (taken)
        return mistake(a, member(at, "name").at,
                       "there are two nodes with the name '%s'; the other is in line %u", name,
                       line_of(a, a->nodes[json_integer_value(taken)].at.at));
    if (a->types && kind && !is_known_kind(kind))
        return read_typed_node(a, at, name, kind);
    n.desc.name = name;
    if (json_object_set_new(a->numbers, name, json_integer((json_int_t)a->nnodes)))
        (void)need(NULL);
    a->nodes[a->nnodes] = n; /* known, so that edges to it are not further errors */
    known               = &a->nodes[a->nnodes++];
    if (!read_kind(a, known))
        return false;
    if (known->tpl && a->remote)
        return read_remote_template(a, known);
    if (known->tpl && known->tpl->is_pipeline)
        return read_pipeline(a, known) && read_work(a, known);
    if (known->tpl)
        return read_template(a, known) && read_work(a, known);
    if (known->desc.kind != USM_NODE_INPUT)
        return read_kernel_node(a, known);
    return check_keys(a, at, "an input", input_keys) && read_data(a, known);
}

static void read_nodes(app *a, value list)
{
    const char *end = NULL;

    if (!json_is_array(list.json) || json_array_size(list.json) == 0) {
        (void)mistake(a, list.json ? list.at : a->text, "'nodes' must be an array of nodes");
        return;
    }
    a->nodes   = need(calloc(3 * json_array_size(list.json), sizeof *a->nodes)); /* types.c */
    a->numbers = need(json_object());
    a->lasts   = need(json_object());
    a->made    = need(json_array());
    a->typed   = need(json_array());
    for (size_t i = 0; i < json_array_size(list.json); i++)
        (void)read_node(a, next_element(list, i, &end));
}

/* ---- kernels --------------------------------------------------------------------------------- */

static const char *const kernel_keys[] = {"file",     "spirv",   "bundle", "library",
                                          "function", "options", NULL};

static void read_kernels(app *a, value list)
{
    const char *name;
    json_t     *ignored;

    if (list.json && !json_is_object(list.json)) {
        (void)mistake(a, list.at, "'kernels' must be an object: \"name\": {\"file\": ...}");
        return;
    }
    a->kernels = need(calloc(json_object_size(list.json) + 1, sizeof *a->kernels));
    json_object_foreach(list.json, name, ignored)
    {
        app_kernel *k = &a->kernels[a->nkernels++];

        *k = (app_kernel){.name = name, .at = member(list, name)};
        if (!check_keys(a, k->at, "a kernel", kernel_keys))
            continue;
        (void)get_text(a, k->at, "function", &k->function);
        (void)get_text(a, k->at, "options", &k->options);
        if (!member(k->at, "file").json && !member(k->at, "spirv").json &&
            !member(k->at, "bundle").json && !member(k->at, "library").json)
            (void)mistake(a, k->at.at,
                          "kernel '%s' has no code: name a file (OpenCL C), spirv, bundle or "
                          "library",
                          name);
    }
}

static void find_kernels(app *a)
{
    for (size_t i = 0; i < a->nnodes; i++) {
        const char *wanted = a->nodes[i].kernel;
        size_t      k      = 0;

        while (wanted && k < a->nkernels && strcmp(a->kernels[k].name, wanted) != 0)
            k++;
        if (wanted && k == a->nkernels)
            (void)mistake(a, member(a->nodes[i].at, "kernel").at,
                          "node '%s': there is no kernel '%s' under 'kernels'",
                          a->nodes[i].desc.name, wanted);
    }
}

/* ---- edges ----------------------------------------------------------------------------------- */

static bool read_edge(app *a, value edge)
{
    bool is_ok = true;

    if (!json_is_array(edge.json) || json_array_size(edge.json) != 2 ||
        !json_is_string(element(edge, 0).json) || !json_is_string(element(edge, 1).json))
        return mistake(a, edge.at, "an edge must be [\"from\", \"to\"], the names of two nodes");
    for (size_t i = 0; i < 2; i++) {
        value       end  = element(edge, i);
        const char *name = json_string_value(end.json);
        app_node   *n    = i == 0 ? app_last(a, name) : app_find(a, name);

        if (!n)
            is_ok = mistake(a, end.at, "there is no node '%s'", name);
        else if (i == 0 && n->output.json)
            is_ok = mistake(a, edge.at,
                            "node '%s' has an output, so nobody can read it: only the last nodes "
                            "have outputs",
                            name);
    }
    return is_ok;
}

static void read_edges(app *a)
{
    const char *end = NULL;

    if (a->edges.json && !json_is_array(a->edges.json)) {
        (void)mistake(a, a->edges.at, "'edges' must be an array of [\"from\", \"to\"]");
        return;
    }
    for (size_t i = 0; i < json_array_size(a->edges.json); i++)
        (void)read_edge(a, next_element(a->edges, i, &end));
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* view: where an editor has drawn the nodes; nothing here reads it. */
static const char *const app_keys[] = {"name",  "kernels", "stores", "nodes", "edges",
                                       "types", "policy",  "view",   NULL};

static bool load(app *a)
{
    bool        is_stdin = strcmp(a->path, "-") == 0;
    const char *slash    = strrchr(a->path, '/');
    char       *text;

    a->folder = need(strdup("")); /* its own path is not relative to itself */
    a->text   = need(strdup(""));
    text = read_file(a, (value){NULL, a->text}, is_stdin ? "/dev/stdin" : a->path, &a->text_size);
    if (!text)
        return false;
    free(a->text);
    free(a->folder);
    a->text   = text;
    a->folder = need(strndup(a->path, slash ? (size_t)(slash - a->path) + 1 : 0));
    return true;
}

static bool parse(app *a)
{
    json_error_t error;

    a->root = json_loadb(a->text, a->text_size, JSON_REJECT_DUPLICATES, &error);
    if (!a->root)
        fprintf(stderr, "%s:%d: %s\n", a->path, error.line, error.text);
    return a->root != NULL;
}

static bool read_text(app *a)
{
    value root;

    if (!parse(a))
        return false;
    root = (value){a->root, a->text + strspn(a->text, " \t\r\n")};
    if (!check_keys(a, root, "an app", app_keys) && !json_is_object(a->root))
        return false;
    (void)get_text(a, root, "types", &a->types);
    (void)get_text(a, root, "policy", &a->policy);
    read_kernels(a, member(root, "kernels"));
    if (!stores_check(a, member(root, "stores")))
        return false; /* where values are is not known */
    read_nodes(a, member(root, "nodes"));
    a->edges = member(root, "edges");
    find_kernels(a);
    read_edges(a);
    if (a->mistakes == 0)
        check_typed_nodes(a);
    return a->mistakes == 0;
}

bool read_json(app *a, const char *path)
{
    a->path = path;
    return load(a) && parse(a);
}

bool app_read(app *a, const char *path)
{
    a->path = path;
    return load(a) && read_text(a);
}

bool app_read_remote(app *a, const unit_app *remote)
{
    a->path      = "the app of the other usm-run";
    a->remote    = remote;
    a->folder    = need(strdup(""));
    a->text      = need(malloc(remote->size + 1));
    a->text_size = remote->size;
    memcpy(a->text, remote->text, remote->size + 1);
    return read_text(a);
}

void app_free(app *a)
{
    usm_graph_destroy(a->graph);
    for (size_t i = 0; i < a->nfunctions; i++) {
        usm_team_kernel_destroy(a->functions[i].built);
        free(a->functions[i].name);
    }
    stores_free(a);
    for (size_t i = 0; i < a->nnodes; i++) {
        free(a->nodes[i].data);
        free_template(a->nodes[i].tpl);
    }
    usm_team_destroy(a->team);
    for (size_t i = 0; i < a->nkernels; i++)
        for (size_t j = 0; j < a->kernels[i].nimages; j++)
            free(a->kernels[i].images[j].data);
    free(a->functions);
    free(a->nodes);
    free(a->kernels);
    free(a->text);
    free(a->folder);
    if (a->within.path)
        (void)close(a->within.fd);
    free(a->within.path);
    json_decref(a->numbers);
    json_decref(a->lasts);
    json_decref(a->typed);
    json_decref(a->made);
    json_decref(a->root);
}
