/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Nodes of the kind "pipeline": maps, each over what the one before it gives, batch by batch, so that
 * what is between them is never in memory as a whole.  A stage is an object with the fields of a
 * template (template.c), and in the graph the node is a call, as a template is. */
#include "app.h"

#include "offload/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const keys[] = {"name", "kind", "stages", "batch", "work", "output", NULL};

bool is_pipeline(const char *kind)
{
    return strcmp(kind, "pipeline") == 0;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static bool read_stage(app *a, app_node *n, size_t k, value at)
{
    app_node     *stage = &n->tpl->stages[k];
    app_template *t     = need(calloc(1, sizeof *t));
    const char   *kind  = "map";

    stage->at   = at;
    stage->tpl  = t;
    t->is_stage = true;
    (void)snprintf(t->stage_name, sizeof t->stage_name, "%s.%zu", n->desc.name, k);
    stage->desc.name = t->stage_name;
    if (!json_is_object(at.json))
        return mistake(a, at.at, "node '%s': a stage must be an object", n->desc.name);
    if (!get_text(a, at, "kind", &kind))
        return false;
    if (!template_kind(kind, &t->desc.kind) ||
        (t->desc.kind != USM_TEMPLATE_MAP && t->desc.kind != USM_TEMPLATE_MASTER_WORKER))
        return mistake(a, member(at, "kind").at,
                       "node '%s': stage %zu is of kind '%s'; the stages of a pipeline are maps or "
                       "master_workers",
                       n->desc.name, k, kind);
    return read_template(a, stage);
}

bool read_pipeline(app *a, app_node *n)
{
    app_template *t      = n->tpl;
    value         stages = member(n->at, "stages");
    size_t        count  = json_array_size(stages.json);
    const char   *end    = NULL;
    bool          is_ok  = check_keys(a, n->at, "a pipeline", keys);

    is_ok &= get_number(a, n->at, "batch", 1, INT64_MAX, &t->batch);
    if (count == 0)
        return mistake(a, stages.json ? stages.at : n->at.at,
                       "node '%s' has no 'stages': an array of maps, each over what the one before "
                       "gives",
                       n->desc.name);
    t->app     = a;
    t->stages  = need(calloc(count, sizeof *t->stages));
    t->nstages = count;
    for (size_t k = 0; k < count; k++)
        is_ok &= read_stage(a, n, k, next_element(stages, k, &end));
    n->output = member(n->at, "output");
    return is_ok && (!n->output.json || check_output(a, n->output));
}

/* ---- the graph ------------------------------------------------------------------------------- */

static const usm_template *stage_of(const app_template *t, size_t k)
{
    return t->stages[k].tpl->built;
}

/* What usm_pipeline_run() would refuse, with the line of the stage. */
static bool check_stage(app *a, const app_node *n, size_t k)
{
    const app_template *t      = n->tpl;
    size_t              before = k > 0 ? stage_of(t, k - 1)->out_size : 0;

    if (stage_of(t, k)->in_size == 0)
        return mistake(a, t->stages[k].at.at, "node '%s': stage %zu has no 'in'", n->desc.name, k);
    if (k > 0 && stage_of(t, k)->in_size != before)
        return mistake(a, t->stages[k].at.at,
                       "node '%s': stage %zu reads elements of %zu bytes, and the stage before it "
                       "gives some of %zu",
                       n->desc.name, k, stage_of(t, k)->in_size, before);
    return true;
}

typedef struct ends {
    const app_template  *t;
    const unsigned char *in;
    unsigned char       *out;
} ends;

static bool fill(void *elements, uint64_t first, uint64_t count, void *user)
{
    const ends  *e    = user;
    const app   *a    = e->t->app;
    const size_t size = stage_of(e->t, 0)->in_size;

    memcpy(elements, e->in + first * size, count * size);
    return !a->is_called_off || !*a->is_called_off;
}

static bool take(void *elements, uint64_t first, uint64_t count, void *user)
{
    const ends  *e    = user;
    const size_t size = stage_of(e->t, e->t->nstages - 1)->out_size;

    memcpy(e->out + first * size, elements, count * size);
    return true;
}

static usm_status run_pipeline(const void *in, size_t in_size, void *out, size_t out_size,
                               void *user)
{
    const app_template *t      = user;
    ends                e      = {t, in, out};
    usm_template      **stages = need(calloc(t->nstages, sizeof *stages));
    const void        **params = need(calloc(t->nstages, sizeof *params));
    usm_pipeline_desc   d      = USM_PIPELINE_DESC_INIT;
    usm_status          st;

    (void)in_size;
    (void)out_size;
    for (size_t k = 0; k < t->nstages; k++) {
        stages[k] = t->stages[k].tpl->built;
        params[k] = t->stages[k].tpl->param;
    }
    d.nstages = t->nstages, d.stages = stages, d.params = params;
    d.count = t->run.count, d.batch = t->batch;
    d.source = fill, d.sink = take, d.user = &e;
    st = usm_pipeline_run(&d);
    free(stages);
    free(params);
    return st;
}

bool build_pipeline(app *a, app_node *n)
{
    app_template *t     = n->tpl;
    bool          is_ok = true;

    for (size_t k = 0; k < t->nstages; k++)
        is_ok &= build_template(a, &t->stages[k]);
    for (size_t k = 0; k < t->nstages && is_ok; k++)
        is_ok = check_stage(a, n, k);
    n->desc.call      = run_pipeline;
    n->desc.call_user = t;
    return is_ok;
}

bool find_pipeline_size(app *a, app_node *n, uint64_t bytes)
{
    app_template *t    = n->tpl;
    const size_t  size = stage_of(t, 0)->in_size;

    if (bytes == 0 || bytes % size)
        return mistake(a, n->at.at,
                       "node '%s' reads %llu bytes: they are not a whole number of elements of %zu "
                       "bytes",
                       n->desc.name, (unsigned long long)bytes, size);
    t->run.count     = bytes / size;
    n->desc.out_size = t->run.count * stage_of(t, t->nstages - 1)->out_size;
    return true;
}
