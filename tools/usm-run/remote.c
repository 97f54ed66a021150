/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* An app on other machines: what their units have to know of it; and the unit itself, which builds
 * its graph from that instead of from files.  Units: tools/units. */
#include "app.h"

#include "base/os.h"
#include "offload/graph.h"
#include "units/ranks.h"
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
    *out        = (unit_app){.text = plain_text(a), .nnodes = a->nnodes};
    out->size   = strlen(out->text);
    out->sizes  = need(calloc(a->nnodes + 1, sizeof *out->sizes));
    out->images = need(calloc(a->nkernels * IMAGES_MAX + 1, sizeof *out->images));
    for (size_t i = 0; i < a->nnodes; i++)
        out->sizes[i] = a->nodes[i].tpl ? a->nodes[i].desc.out_size : a->nodes[i].size;
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
    free(u->sizes);
    free(u->text);
}

/* ---- the app at usm-run --unit --------------------------------------------------------------------------- */

bool remote_size(app *a, const app_node *n, size_t *size)
{
    size_t at = (size_t)(n - a->nodes);

    *size = at < a->remote->nnodes ? a->remote->sizes[at] : 0;
    return *size || mistake(a, n->at.at, "nobody says how large '%s' is", n->desc.name);
}

enum { PIPE_BYTES = 1 << 20 }; /* the most that Linux gives everybody */

typedef struct remote {
    app         app;
    const char *device;
} remote;

static usm_graph *build(void *user, const unit_app *from)
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
    return app_build(&r->app) ? r->app.graph : NULL;
}

/* What drivers, MPI and kernels print must not come between frames: only *out is the pipe. */
static bool take_pipe(int *in, int *out)
{
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN); /* of a terminal: it is for the usm-run that started this */
    *in  = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    *out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (*in < 0 || *out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        fputs("usm-run: --unit: its input and output cannot be used\n", stderr);
        return false;
    }
    /* Hydra (MPICH) ends a job that does not read its input as fast as it comes */
    (void)fcntl(*in, F_SETPIPE_SZ, PIPE_BYTES);
    (void)close(STDIN_FILENO);
    (void)open("/dev/null", O_RDONLY);
    return true;
}

static int serve(unit_ranks *ranks, const char *device, int in, int out)
{
    remote          r = {.device = device};
    int             others[USM__UNITS_MAX];
    unit_serve_desc d = {.in = in, .out = out, .build = build, .user = &r, .ranks = others};
    int             rc;

    for (d.nranks = 0; d.nranks + 1 < unit_ranks_count(ranks); d.nranks++)
        others[d.nranks] = unit_ranks_take(ranks, d.nranks + 1);
    rc = unit_serve(&d);
    app_free(&r.app);
    return rc;
}

/* Another rank than the first serves that one, and has no pipe. */
static int serve_rank(unit_ranks *ranks, const char *device)
{
    remote          r = {.device = device};
    unit_serve_desc d = {.build = build, .user = &r};
    int             rc;

    d.in  = unit_ranks_take(ranks, 0);
    d.out = fcntl(d.in, F_DUPFD_CLOEXEC, 3);
    rc    = unit_serve(&d);
    app_free(&r.app);
    return rc;
}

int remote_serve(const char *device, const char *job)
{
    unit_ranks *ranks;
    int         in, out, rc;

    if (!take_pipe(&in, &out) || !unit_ranks_open(job, &ranks))
        return 1;
    if (unit_ranks_self(ranks) == 0) {
        rc = serve(ranks, device, in, out);
    } else {
        (void)close(in);
        (void)close(out);
        rc = serve_rank(ranks, device);
    }
    unit_ranks_close(ranks);
    return rc;
}
