/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kinds of nodes that users add: FOLDER/NAME.json, where the app says "types": FOLDER.  Such a file is
 * an object:
 *
 *     {"kernels": ["cut", "work", "join"], "inputs": 1, "outputs": 1,
 *      "partition": {"kernel": "cut", "part_size": 32},
 *      "process":   {"kernel": "work", "out_size": 2048, "global": 64},
 *      "merge":     {"kernel": "join", "out_size": 32}}
 *
 * A node of that kind names a kernel of the app for each that the type needs, and becomes up to three
 * nodes, "name.partition" and so on.  Edges to it lead to the first of them, edges from it begin at
 * the last. */
#include "app.h"

#include "base/inline/plural.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROLES = 3 };
static const char *const roles[ROLES] = {"partition", "process", "merge"};

static const char *const type_keys[] = {"kernels", "inputs", "outputs", "partition",
                                        "process", "merge",  NULL};
static const char *const node_keys[] = {"name", "kind", "kernels", "output", NULL};

typedef struct user_type {
    const char *name, *node; /* the node that is of it, for messages */
    value       at;          /* the node */
    json_t     *json;
    json_t     *kernels, *given; /* as the type calls them, as the node does */
} user_type;

/* ---- the file -------------------------------------------------------------------------------- */

static bool load_type(app *a, user_type *t)
{
    char         path[512];
    json_error_t error;
    size_t       size;
    char        *text;
    value        kind = member(t->at, "kind");

    for (const char *s = t->name; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_' && *s != '-')
            return mistake(a, kind.at,
                           "node '%s' is of kind '%s', which cannot be the name of a type", t->node,
                           t->name);
    (void)snprintf(path, sizeof path, "%s/%s.json", a->types, t->name);
    text = read_file(a, kind, path, &size);
    if (!text)
        return false;
    t->json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!t->json)
        return mistake(a, kind.at, "type '%s': line %d of %s: %s", t->name, error.line, path,
                       error.text);
    if (json_array_append_new(a->made, t->json))
        (void)need(NULL);
    return true;
}

static bool check_type(app *a, user_type *t)
{
    value whole = {t->json, t->at.at};
    char  what[200];

    (void)snprintf(what, sizeof what, "type '%s'", t->name);
    if (!check_keys(a, whole, what, type_keys))
        return false;
    t->kernels = json_object_get(t->json, "kernels");
    if (!json_is_array(t->kernels) || json_array_size(t->kernels) == 0)
        return mistake(a, t->at.at,
                       "type '%s' has no 'kernels': an array of names, one for each that it needs",
                       t->name);
    if (!json_object_get(t->json, "process"))
        return mistake(a, t->at.at, "type '%s' has no 'process'", t->name);
    if (!json_object_get(t->json, "merge") != !json_object_get(t->json, "partition"))
        return mistake(a, t->at.at, "type '%s' needs both a 'partition' and a 'merge', or neither",
                       t->name);
    return true;
}

static bool check_node(app *a, user_type *t)
{
    value  given = member(t->at, "kernels");
    size_t count = json_array_size(t->kernels);

    if (!check_keys(a, t->at, "a node of a user's type", node_keys))
        return false;
    t->given = given.json;
    if (json_array_size(given.json) == count)
        return true;
    return mistake(a, given.json ? given.at : t->at.at,
                   "node '%s' has %zu %s; the type '%s' needs %zu, the first of which is its '%s'",
                   t->node, json_array_size(given.json),
                   usm__plural(json_array_size(given.json), "kernel", "kernels"), t->name, count,
                   json_string_value(json_array_get(t->kernels, 0)));
}

/* ---- its nodes ------------------------------------------------------------------------------- */

/* The kernel of the app that stands for one of the type. */
static json_t *kernel_for(const user_type *t, const char *name)
{
    for (size_t i = 0; name && i < json_array_size(t->kernels); i++) {
        const char *one = json_string_value(json_array_get(t->kernels, i));

        if (one && strcmp(one, name) == 0)
            return json_array_get(t->given, i);
    }
    return NULL;
}

static bool add_role(app *a, const user_type *t, const char *role, bool is_last)
{
    const json_t *in_type = json_object_get(t->json, role);
    const char   *name    = json_string_value(json_object_get(in_type, "kernel"));
    json_t       *kernel = kernel_for(t, name), *output = member(t->at, "output").json, *node;
    bool          unrolls = strcmp(role, "process") == 0 && json_object_get(t->json, "partition");

    if (!kernel)
        return mistake(a, t->at.at, "type '%s': the 'kernel' of its %s is none of its 'kernels'",
                       t->name, role);
    node = need(json_copy((json_t *)(uintptr_t)in_type));
    if (json_object_set_new(node, "name", json_sprintf("%s.%s", t->node, role)) ||
        json_object_set_new(node, "kind", json_string(unrolls ? "expandable" : role)) ||
        json_object_set(node, "kernel", kernel) ||
        (is_last && output && json_object_set(node, "output", output)) ||
        json_array_append_new(a->made, node))
        (void)need(NULL);
    return read_node(a, (value){node, t->at.at});
}

static bool add_roles(app *a, const user_type *t)
{
    size_t first     = a->nnodes;
    bool   has_merge = json_object_get(t->json, "merge");

    for (size_t i = 0; i < ROLES; i++) {
        if (!json_object_get(t->json, roles[i]))
            continue;
        if (!add_role(a, t, roles[i], has_merge ? i == 2 : i == 1))
            return false;
    }
    if (json_object_set_new(a->numbers, t->node, json_integer((json_int_t)first)) ||
        json_object_set_new(a->lasts, t->node, json_integer((json_int_t)a->nnodes - 1)))
        (void)need(NULL);
    for (size_t i = first + 1; i < a->nnodes; i++)
        a->nodes[i].follows = true;
    return true;
}

bool read_typed_node(app *a, value at, const char *name, const char *kind)
{
    user_type t = {.name = kind, .node = name, .at = at};

    if (!load_type(a, &t) || !check_type(a, &t) || !check_node(a, &t) || !add_roles(a, &t))
        return false;
    return json_array_append_new(a->typed, json_pack("{s:s, s:O}", "node", name, "type", t.json)) ==
               0 ||
           need(NULL);
}

/* ---- an app without them --------------------------------------------------------------------- */

static void add_edge(json_t *edges, const app_node *from, const app_node *to)
{
    if (json_array_append_new(edges, json_pack("[s, s]", from->desc.name, to->desc.name)))
        (void)need(NULL);
}

/* In the order in which build.c connects them: a node reads its inputs in that order. */
static json_t *plain_edges(const app *a)
{
    json_t *edges = need(json_array());
    app    *named = (app *)(uintptr_t)a; /* whose nodes are looked up, and stay */

    for (size_t i = 0; i < json_array_size(a->edges.json); i++) {
        const json_t *edge = json_array_get(a->edges.json, i);

        add_edge(edges, app_last(named, json_string_value(json_array_get(edge, 0))),
                 app_find(named, json_string_value(json_array_get(edge, 1))));
    }
    for (size_t i = 1; i < a->nnodes; i++)
        if (a->nodes[i].follows)
            add_edge(edges, &a->nodes[i - 1], &a->nodes[i]);
    return edges;
}

char *plain_text(const app *a)
{
    json_t *root, *nodes;
    char   *text;

    if (json_array_size(a->typed) == 0)
        return need(strdup(a->text));
    root  = need(json_copy(a->root));
    nodes = need(json_array());
    for (size_t i = 0; i < a->nnodes; i++)
        if (json_array_append(nodes, a->nodes[i].at.json))
            (void)need(NULL);
    if (json_object_set_new(root, "nodes", nodes) ||
        json_object_set_new(root, "edges", plain_edges(a)))
        (void)need(NULL);
    (void)json_object_del(root, "types");
    text = need(json_dumps(root, JSON_COMPACT));
    json_decref(root);
    return text;
}

/* ---- edges ----------------------------------------------------------------------------------- */

/* How many edges lead to a node (end 1), or from it (end 0). */
static size_t count_edges(const app *a, const char *node, size_t end)
{
    size_t n = 0;

    for (size_t i = 0; i < json_array_size(a->edges.json); i++) {
        const char *name = json_string_value(json_array_get(json_array_get(a->edges.json, i), end));

        n += name && strcmp(name, node) == 0;
    }
    return n;
}

static void check_count(app *a, const char *node, const json_t *type, const char *key, size_t count)
{
    const json_t *want = json_object_get(type, key);

    if (want && (!json_is_integer(want) || json_integer_value(want) != (json_int_t)count))
        (void)mistake(a, app_find(a, node)->at.at, "node '%s' has %zu %s; its type says %lld", node,
                      count, key, (long long)json_integer_value(want));
}

void check_typed_nodes(app *a)
{
    for (size_t i = 0; i < json_array_size(a->typed); i++) {
        const json_t   *one  = json_array_get(a->typed, i);
        const char     *node = json_string_value(json_object_get(one, "node"));
        const json_t   *type = json_object_get(one, "type");
        const app_node *last = app_last(a, node);

        check_count(a, node, type, "inputs", count_edges(a, node, 1));
        check_count(a, node, type, "outputs",
                    count_edges(a, node, 0) + (last->output.json != NULL));
    }
}
