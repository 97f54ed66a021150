/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* An app on other machines: what their units have to know of it; and the unit itself, which builds
 * its graph from that instead of from files.  Units: tools/units. */
#include "app.h"

#include "base/os.h"
#include "offload/graph.h"
#include "units/serve.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- at usm-run --on --------------------------------------------------------------------------- */

static void describe_image(const app_kernel *k, size_t i, unit_image *out)
{
    const char *form = app_form(k, i);

    *out     = (unit_image){.hash = USM__HASH_INIT, .size = k->images[i].size};
    out->key = need(malloc(strlen(k->name) + strlen(form) + 2));
    (void)sprintf(out->key, "%s/%s", k->name, form);
    out->data = k->images[i].data;
    usm__hash_add(&out->hash, out->data, k->images[i].size);
}

bool remote_describe(const app *a, unit_app *out)
{
    *out        = (unit_app){.text = a->text, .size = a->text_size, .nnodes = a->nnodes};
    out->inputs = need(calloc(a->nnodes + 1, sizeof *out->inputs));
    out->images = need(calloc(a->nkernels * IMAGES_MAX + 1, sizeof *out->images));
    for (size_t i = 0; i < a->nnodes; i++)
        out->inputs[i] = a->nodes[i].size;
    for (size_t i = 0; i < a->nkernels; i++)
        for (size_t j = 0; j < a->kernels[i].nimages; j++)
            describe_image(&a->kernels[i], j, &out->images[out->nimages++]);
    if (out->size <= UNIT_APP_MAX && out->nimages <= UNIT_IMAGES_MAX &&
        out->nnodes <= UNIT_NODES_MAX)
        return true;
    fprintf(stderr, "usm-run: the app is too large for units: at most %d images and %d nodes\n",
            UNIT_IMAGES_MAX, UNIT_NODES_MAX);
    remote_free(out);
    return false;
}

void remote_free(unit_app *u)
{
    for (uint64_t i = 0; i < u->nimages; i++)
        free(u->images[i].key);
    free(u->images);
    free(u->inputs);
}

/* ---- at usm-run --unit --------------------------------------------------------------------------- */

typedef struct remote {
    app         app;
    const char *device;
} remote;

static usm_graph *build(void *user, const unit_app *from, uint32_t *ndevices)
{
    remote       *r = user;
    usm_team_desc d = USM_TEAM_DESC_INIT;

    if (!app_read_remote(&r->app, from) || !app_load_kernels(&r->app))
        return NULL;
    d.selector = r->device;
    if (usm_team_create(&d, &r->app.team) != USM_OK) {
        fprintf(stderr, "usm-run: --unit: %s\n", usm_last_error());
        return NULL;
    }
    *ndevices = r->app.team->nmembers;
    return app_build(&r->app) ? r->app.graph : NULL;
}

/* What drivers and kernels print must not come between frames: only `out` is the pipe. */
int remote_serve(const char *device)
{
    remote          r = {.device = device};
    unit_serve_desc d = {.build = build, .user = &r};
    int             rc;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN); /* of a terminal: it is for the usm-run that started this */
    d.in  = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    d.out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (d.in < 0 || d.out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        fputs("usm-run: --unit: its input and output cannot be used\n", stderr);
        return 1;
    }
    (void)close(STDIN_FILENO);
    (void)open("/dev/null", O_RDONLY);
    rc = unit_serve(&d);
    app_free(&r.app);
    return rc;
}
