/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A pipeline of maps: usm_pipeline_run().
 *
 * Rounds.  In round r stage k computes batch r - k, the source fills batch r + 1 and the sink takes
 * batch r - nstages.  Each boundary, in front of a stage or behind the last, has two batches: one is
 * written while the other is read.
 *
 *     source  | 0 1 |  stage 0  | 0 1 |  stage 1  | 0 1 |  sink
 *
 * Over ranks every rank makes the launches of all rounds, and one has the batches, the source and
 * the sink.  When these end the run there, the launches of the next round fail on all ranks. */
#include "offload/template.h"

#include "base/os.h"

#include <inttypes.h>

typedef struct stage {
    usm__template_run     run;
    usm_template_run_desc desc;
    usm_parallel_run     *launch; /* of this round; NULL: none */
} stage;

typedef struct pipeline {
    const usm_pipeline_desc *desc;
    uint64_t                 batch, nbatches;
    stage                   *stages;
    unsigned char           *memory; /* all boundaries */
    size_t                  *at;     /* by boundary: where its two batches begin */
    const usm_team          *team;
    bool                     is_home;
    bool                     has_failed; /* a launch, which all ranks know */
} pipeline;

/* ---- checks ---------------------------------------------------------------------------------- */

static usm_status check_stage(const usm_pipeline_desc *d, size_t k)
{
    const usm_template *t  = d->stages[k];
    usm_status          st = usm__template_is(t);

    if (st != USM_OK)
        return st;
    if (t->kind != USM_TEMPLATE_MAP && t->kind != USM_TEMPLATE_MASTER_WORKER)
        return usm__fail(USM_E_INVALID,
                         "stage %zu of a pipeline, '%s', is of the kind %s; stages are maps or "
                         "master_workers",
                         k, t->name, usm__template_kind_of(t->kind)->name);
    if (t->team != d->stages[0]->team)
        return usm__fail(USM_E_INVALID, "stage %zu of a pipeline, '%s', belongs to another team", k,
                         t->name);
    if (t->in_size == 0)
        return usm__fail(USM_E_INVALID, "stage %zu of a pipeline, '%s', has no in_type", k,
                         t->name);
    if (k > 0 && t->in_size != d->stages[k - 1]->out_size)
        return usm__fail(USM_E_INVALID,
                         "stage %zu of a pipeline, '%s', reads elements of %zu bytes, and the "
                         "stage before it writes some of %zu",
                         k, t->name, t->in_size, d->stages[k - 1]->out_size);
    if (t->param_size && (!d->params || !d->params[k]))
        return usm__fail(USM_E_INVALID,
                         "stage %zu of a pipeline, '%s', has a parameter; set params[%zu]", k,
                         t->name, k);
    return USM_OK;
}

/* Finds the team, without which other ranks cannot be told of a mistake. */
static usm_status check_team(pipeline *p)
{
    const usm_pipeline_desc *d = p->desc;
    usm_status               st =
        usm__struct_check("usm_pipeline_run", "desc", d, sizeof *d, "USM_PIPELINE_DESC_INIT");

    if (st != USM_OK)
        return st;
    if (d->nstages == 0 || !d->stages)
        return usm__fail(USM_E_INVALID, "a pipeline needs at least one stage");
    st = usm__template_is(d->stages[0]);
    if (st != USM_OK)
        return st;
    p->team    = d->stages[0]->team;
    p->is_home = usm__template_is_home(p->team, d->home);
    return USM_OK;
}

static usm_status check(const pipeline *p)
{
    const usm_pipeline_desc *d  = p->desc;
    usm_status               st = USM_OK;

    if (d->count == 0)
        return usm__fail(USM_E_INVALID, "a pipeline needs at least one element");
    if (p->is_home && (!d->source || !d->sink))
        return usm__fail(USM_E_INVALID, "a pipeline needs a source and a sink; %s is NULL",
                         d->source ? "sink" : "source");
    for (size_t k = 0; k < d->nstages && st == USM_OK; k++)
        st = check_stage(d, k);
    return st;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t element_of(const usm_pipeline_desc *d, size_t boundary)
{
    return boundary < d->nstages ? d->stages[boundary]->in_size
                                 : d->stages[d->nstages - 1]->out_size;
}

/* NULL: another rank has it. */
static void *batch_at(const pipeline *p, size_t boundary, uint64_t batch)
{
    if (!p->is_home)
        return NULL;
    return p->memory + p->at[boundary] +
           (batch % 2) * (size_t)p->batch * element_of(p->desc, boundary);
}

static uint64_t size_of(const pipeline *p, uint64_t batch)
{
    uint64_t left = p->desc->count - batch * p->batch;

    return left < p->batch ? left : p->batch;
}

static usm_status make(pipeline *p)
{
    const usm_pipeline_desc *d    = p->desc;
    size_t                   size = 0;

    p->batch    = d->batch ? d->batch : d->count / 16 ? d->count / 16 : 1;
    p->batch    = p->batch < d->count ? p->batch : d->count;
    p->nbatches = d->count / p->batch + (d->count % p->batch != 0);
    p->stages   = usm__heap_alloc(d->nstages * sizeof *p->stages);
    p->at       = usm__heap_alloc((d->nstages + 1) * sizeof *p->at);
    for (size_t i = 0; p->at && i <= d->nstages; i++) {
        size_t two;

        p->at[i] = size;
        if (__builtin_mul_overflow(2 * element_of(d, i), p->batch, &two) ||
            __builtin_add_overflow(size, (two + 127) & ~(size_t)127, &size))
            return usm__fail(USM_E_SIZE, "batches of %" PRIu64 " elements are too large", p->batch);
    }
    p->memory = p->is_home ? usm__heap_alloc(size) : NULL;
    if (!p->stages || !p->at || (p->is_home && !p->memory))
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the batches of a pipeline");
    for (size_t k = 0; k < d->nstages; k++) {
        stage *s = &p->stages[k];

        s->desc      = (usm_template_run_desc)USM_TEMPLATE_RUN_DESC_INIT;
        s->desc.home = d->home;
        s->run.t     = d->stages[k];
        s->run.desc  = &s->desc;
        s->run.param = d->params ? d->params[k] : NULL;
    }
    return USM_OK;
}

static void discard(pipeline *p)
{
    usm__heap_free(p->memory);
    usm__heap_free(p->at);
    usm__heap_free(p->stages);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static usm_status call(usm_pipeline_fn fn, const char *what, pipeline *p, size_t boundary,
                       uint64_t batch)
{
    if (!p->is_home ||
        fn(batch_at(p, boundary, batch), batch * p->batch, size_of(p, batch), p->desc->user))
        return USM_OK;
    return usm__fail(USM_E_CANCELLED, "the %s of a pipeline ended it at batch %" PRIu64, what,
                     batch);
}

static bool has_batch(const pipeline *p, size_t k, uint64_t round)
{
    return k <= round && round - k < p->nbatches;
}

/* The other ranks' launches of this round, from stage k on, fail as this rank has. */
static usm_status refuse(const pipeline *p, usm_status st, uint64_t round, size_t k)
{
    uint64_t launches = 0;

    for (; k < p->desc->nstages; k++)
        launches += has_batch(p, k, round);
    return usm__template_refuse(p->team, st, launches);
}

/* Starts the stages that have a batch in this round. */
static usm_status start(pipeline *p, uint64_t round)
{
    usm_status st = USM_OK;

    for (size_t k = 0; k < p->desc->nstages && st == USM_OK; k++) {
        stage   *s     = &p->stages[k];
        uint64_t batch = round - k;

        if (!has_batch(p, k, round))
            continue;
        s->run.in  = (usm__template_data){batch_at(p, k, batch), NULL, 0};
        s->run.out = (usm__template_data){batch_at(p, k + 1, batch), NULL, 0};
        st = usm__template_start_map(&s->run, batch * p->batch, size_of(p, batch), &s->launch);
        if (st == USM_OK)
            continue;
        p->has_failed = true;
        st            = refuse(p, st, round, k + 1);
    }
    return st;
}

/* The source fills a batch for the next round, the sink takes one of the round before. */
static usm_status call_both(pipeline *p, uint64_t round)
{
    const usm_pipeline_desc *d  = p->desc;
    usm_status               st = USM_OK;

    if (round + 1 < p->nbatches)
        st = call(d->source, "source", p, 0, round + 1);
    if (st == USM_OK && round >= d->nstages)
        st = call(d->sink, "sink", p, d->nstages, round - d->nstages);
    return st;
}

/* Waits for all launches of the round; the first failure counts. */
static usm_status finish(pipeline *p, usm_status st)
{
    for (size_t k = 0; k < p->desc->nstages; k++) {
        stage            *s      = &p->stages[k];
        usm_parallel_run *launch = s->launch;
        usm_status        own    = USM_OK;

        s->launch = NULL;
        if (launch && st == USM_OK)
            own = usm__template_finish(&s->run, launch);
        else if (launch)
            usm__quietly(own = usm__template_finish(&s->run, launch));
        p->has_failed = p->has_failed || own != USM_OK;
        st            = st == USM_OK ? own : st;
    }
    return st;
}

static usm_status run(pipeline *p)
{
    usm_status st = call(p->desc->source, "source", p, 0, 0);
    uint64_t   r  = 0;

    for (; r < p->nbatches + p->desc->nstages && st == USM_OK; r++) {
        st = start(p, r);
        if (st == USM_OK)
            st = call_both(p, r);
        st = finish(p, st);
    }
    return st == USM_OK || p->has_failed ? st : refuse(p, st, r, 0);
}

usm_status usm_pipeline_run(const usm_pipeline_desc *desc)
{
    pipeline   p  = {.desc = desc};
    usm_status st = check_team(&p);

    if (st != USM_OK)
        return st;
    st = check(&p);
    if (st == USM_OK)
        st = make(&p);
    st = st == USM_OK ? run(&p) : usm__template_refuse(p.team, st, 1);
    usm__quietly(discard(&p));
    return st;
}
