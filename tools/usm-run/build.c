/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes kernels and a graph of libusm from the parsed file. */
#include "app.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- images ---------------------------------------------------------------------------------- */

static const struct {
    const char    *key;
    usm_image_type type;
} forms[] = {{"file", USM_IMAGE_OPENCL_C},
             {"spirv", USM_IMAGE_SPIRV},
             {"bundle", USM_IMAGE_BUNDLE},
             {"library", USM_IMAGE_NATIVE}};

const char *app_form(const app_kernel *k, size_t i)
{
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        if (forms[f].type == k->images[i].type)
            return forms[f].key;
    return "";
}

/* On a unit: the bytes that came, as a copy. */
static char *find_remote(app *a, const app_kernel *k, const char *form, value at, size_t *size)
{
    char *key = need(malloc(strlen(k->name) + strlen(form) + 2)), *data = NULL;

    (void)sprintf(key, "%s/%s", k->name, form);
    for (uint64_t i = 0; i < a->remote->nimages && !data; i++) {
        const unit_image *image = &a->remote->images[i];

        if (strcmp(image->key, key) != 0)
            continue;
        data = need(calloc(1, image->size + 1));
        memcpy(data, image->data, image->size);
        *size = image->size;
    }
    free(key);
    if (!data)
        (void)mistake(a, at.at, "kernel '%s': nobody has sent its %s", k->name, form);
    return data;
}

static bool load_kernel(app *a, app_kernel *k, usm__hash *hash)
{
    bool is_ok = true;

    usm__hash_add(hash, k->options ? k->options : "", strlen(k->options ? k->options : "") + 1);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        value      v     = member(k->at, forms[i].key);
        app_image *image = &k->images[k->nimages];

        if (!v.json)
            continue;
        if (!json_is_string(v.json)) {
            is_ok = mistake(a, v.at, "'%s' must be the name of a file", forms[i].key);
            continue;
        }
        image->type = forms[i].type;
        image->data = a->remote ? find_remote(a, k, forms[i].key, v, &image->size)
                                : read_file(a, v, json_string_value(v.json), &image->size);
        is_ok &= image->data != NULL;
        if (!image->data)
            continue;
        usm__hash_add(hash, image->data, image->size);
        k->nimages++;
    }
    return is_ok;
}

bool app_load_kernels(app *a)
{
    usm__hash hash  = USM__HASH_INIT;
    bool      is_ok = true;

    for (size_t i = 0; i < a->nkernels; i++)
        is_ok &= load_kernel(a, &a->kernels[i], &hash);
    for (size_t i = 0; i < a->nnodes; i++)
        if (a->nodes[i].tpl && !a->remote)
            is_ok &= hash_template(a, &a->nodes[i], &hash);
    (void)snprintf(a->key, sizeof a->key, "%016llx%016llx", (unsigned long long)hash.hi,
                   (unsigned long long)hash.lo);
    return is_ok;
}

/* On a unit: a file without a name, which lives as long as it is loaded. */
static void *load_bytes(const app_image *image)
{
    void *library = NULL;
    char  path[64];
    int   fd = memfd_create("usm-run kernel", MFD_CLOEXEC);

    if (fd < 0)
        return NULL;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, image->data, image->size) == (ssize_t)image->size)
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    (void)close(fd);
    return library;
}

void *open_library(const app *a, const char *name)
{
    char *path  = path_of(a, name);
    char *slash = need(malloc(strlen(path) + 3));
    void *library;

    (void)sprintf(slash, "%s%s", strchr(path, '/') ? "" : "./", path);
    library = dlopen(slash, RTLD_NOW | RTLD_LOCAL);
    free(slash);
    free(path);
    return library;
}

/* Makes an image of a library's function; the library stays loaded. */
static bool find_native(app *a, const app_kernel *k, const app_image *image, const char *function,
                        size_t nargs, usm_native_kernel *native)
{
    value v       = member(k->at, "library");
    void *library = a->remote ? load_bytes(image) : open_library(a, json_string_value(v.json));
    union {
        void         *object;
        usm_native_fn fn;
    } symbol = {NULL};

    if (library)
        symbol.object = dlsym(library, function);
    if (!symbol.object) {
        const char *why = dlerror();

        return mistake(a, v.at, "kernel '%s': %s", k->name, why ? why : "it cannot be loaded");
    }
    *native = (usm_native_kernel){.name = function, .fn = symbol.fn, .nargs = nargs};
    return true;
}

/* ---- functions ------------------------------------------------------------------------------- */

static const char *function_of(app *a, const app_node *n, const app_kernel *k)
{
    const char *name = k->function;

    (void)get_text(a, n->at, "function", &name);
    if (name)
        return name;
    switch (n->desc.kind) {
    case USM_NODE_PARTITION:
        return "partitionData";
    case USM_NODE_MERGE:
        return "mergeData";
    case USM_NODE_INPUT:
    case USM_NODE_PROCESS:
    case USM_NODE_EXPANDABLE:
    case USM_NODE_CALL:
        break;
    }
    return "processData";
}

static bool build(app *a, const app_node *n, const app_kernel *k, app_function *f)
{
    static usm_native_kernel natives[256]; /* tables live as long as their programs */
    static size_t            nnatives;
    char                     log[4096] = "";
    usm_image                images[IMAGES_MAX];
    usm_program_desc         d = USM_PROGRAM_DESC_INIT;
    size_t nargs = n->desc.kind == USM_NODE_PARTITION || n->desc.kind == USM_NODE_MERGE ? 5 : 4;

    for (size_t i = 0; i < k->nimages; i++) {
        images[i] = (usm_image){k->images[i].type, k->images[i].data, k->images[i].size};
        if (k->images[i].type != USM_IMAGE_NATIVE)
            continue;
        if (nnatives == sizeof natives / sizeof *natives)
            return mistake(a, k->at.at, "there are more than %zu functions of libraries", nnatives);
        if (!find_native(a, k, &k->images[i], f->name, nargs, &natives[nnatives]))
            return false;
        images[i].data = &natives[nnatives++];
        images[i].size = sizeof natives[0];
    }
    d.images   = images;
    d.nimages  = k->nimages;
    d.options  = k->options;
    d.log      = log;
    d.log_size = sizeof log;
    if (usm_team_kernel_create(a->team, &d, f->name, &f->built) == USM_OK)
        return true;
    (void)mistake(a, k->at.at, "kernel '%s': %s", k->name, usm_last_error());
    if (*log && usm_last_status() == USM_E_BUILD)
        fprintf(stderr, "%s%s", log, log[strlen(log) - 1] == '\n' ? "" : "\n");
    return false;
}

/* Makes one function for each pair of kernel and function name. */
static bool find_function(app *a, app_node *n)
{
    const app_kernel *k = a->kernels;
    const char       *name;
    app_function     *f = a->functions;

    while (strcmp(k->name, n->kernel) != 0)
        k++;
    name = function_of(a, n, k);
    while (f < a->functions + a->nfunctions && (f->kernel != k || strcmp(f->name, name) != 0))
        f++;
    if (f == a->functions + a->nfunctions) {
        *f = (app_function){.kernel = k, .name = need(strdup(name))};
        a->nfunctions++;
        if (!build(a, n, k, f))
            return false;
    }
    n->desc.kernel = f->built;
    return f->built != NULL;
}

/* ---- the graph ------------------------------------------------------------------------------- */

bool app_failed(app *a)
{
    char        reason[1024];
    const char *name, *end;
    app_node   *n = NULL;

    (void)snprintf(reason, sizeof reason, "%s", usm_last_error());
    name = strstr(reason, "node '");
    end  = name ? strchr(name + 6, '\'') : NULL;
    if (end) {
        char *copy = need(strndup(name + 6, (size_t)(end - name - 6)));

        n = app_find(a, copy);
        free(copy);
    }
    if (n)
        return mistake(a, n->at.at, "%s", reason);
    fprintf(stderr, "%s: %s\n", usm_last_status() == USM_E_INVALID ? a->path : "usm-run", reason);
    return false;
}

static bool connect(app *a)
{
    const char *end = NULL;

    for (size_t i = 0; i < json_array_size(a->edges.json); i++) {
        value     edge = next_element(a->edges, i, &end);
        app_node *from = app_last(a, json_string_value(element(edge, 0).json));
        app_node *to   = app_find(a, json_string_value(element(edge, 1).json));

        if (usm_graph_connect(a->graph, from->number, to->number) != USM_OK)
            (void)mistake(a, edge.at, "%s", usm_last_error());
    }
    for (size_t i = 1; i < a->nnodes; i++)
        if (a->nodes[i].follows &&
            usm_graph_connect(a->graph, a->nodes[i - 1].number, a->nodes[i].number) != USM_OK)
            (void)mistake(a, a->nodes[i].at.at, "%s", usm_last_error());
    return a->mistakes == 0;
}

bool app_build(app *a)
{
    bool is_ok = true;

    if (usm_graph_create(a->team, &a->graph) != USM_OK)
        return app_failed(a);
    if (!build_templates(a))
        return false;
    a->functions = need(calloc(a->nnodes + 1, sizeof *a->functions));
    for (size_t i = 0; i < a->nnodes && is_ok; i++) {
        app_node *n = &a->nodes[i];

        is_ok = !n->kernel || find_function(a, n);
        if (is_ok && usm_graph_add(a->graph, &n->desc, &n->number) != USM_OK)
            is_ok = mistake(a, n->at.at, "%s", usm_last_error());
    }
    return is_ok && connect(a);
}
