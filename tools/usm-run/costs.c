/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What launches cost, found by executing a few of each node.
 *
 * A launch of an expandable node does its share of a whole, so its time is fixed + each / parts; a
 * partitioner and a merger see all parts: fixed + each * parts.  Two trials with different numbers of
 * parts give both.  The copies that devices without host memory need are taken off, as they are
 * measured here, since the simulation adds those of its own machine. */
#include "simulate.h"

#include "copies.h"
#include "offload/graph.h"

#include "base/inline/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
    FEW      = 64,  /* parts of the first trial ... */
    MANY     = 512, /* ... and of the second */
    CHUNKS   = 16,  /* parts for each chunk of launches that templates make */
    LAUNCHES = 5,   /* of each expandable node */
    ROUNDS   = 5    /* of both trials; one is enough if it takes ENOUGH_NS */
};
#define ENOUGH_NS 500000000u

/* Of one device; by node, in seconds; negative: it has no image. */
typedef struct trial {
    double *few, *many, *first; /* few, many: the least of all rounds, which others disturb */
    double *now, *ignored;
    usm__tried_call *few_calls, *many_calls, *now_calls; /* by node */
    bool             makes_launches;                     /* a call does */
    uint32_t (*parts)[2];                                /* of few, many */
    uint32_t        member;
    usm__sim_device here; /* how it copies */
    unsigned        round;
} trial;

/* ---- one device ------------------------------------------------------------------------------ */

static uint32_t member_of(const app *a, const char *name)
{
    uint32_t i = 0;

    while (i < a->team->nmembers && strcmp(a->team->members[i].name, name) != 0)
        i++;
    return i;
}

/* Bytes that a launch of the node reads and writes, as it was last tried. */
static void bytes_of(const usm_graph *g, uint32_t node, uint32_t *in, uint64_t *out)
{
    const usm__graph_node *n = &g->nodes[node];
    uint32_t               nblocks;

    *in = 0;
    if (n->ntasks)
        (void)usm__graph_pieces(g, &n->tasks[0], NULL, in, &nblocks);
    *out = n->desc.out_size * (n->ntasks == 1 ? n->nblocks : 1);
}

/* Takes off the copies of a launch.  Those of the inputs of a launch that follows another were made
 * during that one. */
static void take_off_copies(const usm_graph *g, const usm__sim_device *d, double *seconds)
{
    for (uint32_t i = 0; i < g->nnodes; i++) {
        const usm__graph_node *n = &g->nodes[i];
        uint32_t               in;
        uint64_t               out;
        double                 copies = 0;

        if (!n->desc.kernel)
            continue;
        bytes_of(g, i, &in, &out);
        if (!d->uses_host_memory)
            copies += d->latency_s + (double)out / d->bytes_per_s;
        if (n->ntasks == 1 && (!d->uses_host_memory || n->ninputs > 1))
            copies += n->ninputs * d->latency_s + in / d->bytes_per_s;
        if (seconds[i] >= 0)
            seconds[i] = seconds[i] > copies ? seconds[i] - copies : 0;
    }
}

static bool measure_here(app *a, trial *t)
{
    const usm__member *m = &a->team->members[t->member];
    tool_copies        c;

    if (!tool_measure_copies(m, &c))
        return app_failed(a);
    t->here = (usm__sim_device){.uses_host_memory = m->uses_host_memory,
                                .latency_s        = c.latency_us / 1e6,
                                .bytes_per_s      = c.mib_s * (1 << 20)};
    return true;
}

static bool try_parts(app *a, trial *t, bool is_many)
{
    uint32_t            parts   = is_many ? MANY : FEW;
    double             *seconds = is_many ? t->many : t->few;
    usm__tried_call    *calls   = is_many ? t->many_calls : t->few_calls;
    usm__graph_try_desc d       = {
              .member = t->member, .parts = parts, .launches = LAUNCHES, .chunks = parts / CHUNKS};
    double *first = is_many || t->round > 0 ? t->ignored : t->first;

    if (usm__graph_try(a->graph, &d, t->now, first, t->now_calls) != USM_OK)
        return app_failed(a);
    take_off_copies(a->graph, &t->here, t->now);
    take_off_copies(a->graph, &t->here, first);
    for (uint32_t i = 0; i < a->graph->nnodes; i++) {
        t->parts[i][is_many] = usm__graph_parts_had(a->graph, i);
        if (t->round == 0 || t->now[i] < seconds[i])
            seconds[i] = t->now[i];
        t->makes_launches |= calls_keep(&calls[i], &t->now_calls[i], t->round == 0);
    }
    return true;
}

/* ---- from two trials to a cost --------------------------------------------------------------- */

static double scale(const usm_node_desc *n, uint32_t parts)
{
    switch (n->kind) {
    case USM_NODE_EXPANDABLE:
        return 1.0 / (parts ? parts : 1);
    case USM_NODE_PARTITION:
    case USM_NODE_MERGE:
        return parts;
    case USM_NODE_INPUT:
    case USM_NODE_PROCESS:
    case USM_NODE_CALL:
        break;
    }
    return 0;
}

/* few, many: in runs in which the node had so many parts. */
static cost fit(const usm_node_desc *n, const uint32_t parts[2], double few, double many,
                double first)
{
    double x = scale(n, parts[0]), y = scale(n, parts[1]);
    cost   c = {.fixed = (few + many) / 2, .has_image = few >= 0};

    if (x < y || x > y) {
        c.each  = (few - many) / (x - y);
        c.fixed = few - c.each * x;
    }
    if (c.each < 0) { /* noise: it does not depend on parts */
        c.each  = 0;
        c.fixed = (few + many) / 2;
    } else if (c.fixed < 0) {
        c.fixed = 0;
        c.each  = few / x;
    }
    c.extra = first > few ? first - few : 0;
    return c;
}

/* ---- all devices ----------------------------------------------------------------------------- */

static void set_costs(costs *c, const app *a, const machine *m, const char *like, const trial *t)
{
    const usm_graph *g = a->graph;

    for (size_t i = 0; i < m->n; i++) {
        double factor = 1 / m->devices[i].speed;

        if (strcmp(m->devices[i].like, like) != 0)
            continue;
        for (uint32_t n = 0; n < g->nnodes; n++)
            c->of[i * c->nnodes + n] = fit(&g->nodes[n].desc, t->parts[n], t->few[n] * factor,
                                           t->many[n] * factor, t->first[n] * factor);
    }
    for (uint32_t n = 0; n < g->nnodes; n++) {
        double host = t->many[n] - calls_seconds(&t->many_calls[n]);

        c->calls[n] = (cost){.fixed = host > 0 ? host : 0};
        calls_set(&c->made[n], m, like, &t->few_calls[n], &t->many_calls[n]);
    }
}

static void free_calls(usm__tried_call *calls, size_t n)
{
    for (size_t i = 0; i < n; i++)
        usm__tried_call_clear(&calls[i]);
    free(calls);
}

/* Whether one more round of trials is worth its time.  What templates take is not known after one,
 * in which drivers may have compiled kernels. */
static bool goes_on(const trial *t, uint64_t begin)
{
    if (t->round < (t->makes_launches ? 2 : 1))
        return true;
    return t->round < ROUNDS && usm_clock_ns(CLOCK_MONOTONIC) < begin + ENOUGH_NS;
}

static bool try_device(costs *c, app *a, const machine *m, const machine_device *d)
{
    size_t           n     = c->nnodes;
    double          *times = need(calloc(5 * (n + 1), sizeof *times));
    usm__tried_call *calls = need(calloc(3 * n + 1, sizeof *calls));
    trial            t     = {.few        = times,
                              .many       = times + n,
                              .first      = times + 2 * n,
                              .now        = times + 3 * n,
                              .ignored    = times + 4 * n,
                              .few_calls  = calls,
                              .many_calls = calls + n,
                              .now_calls  = calls + 2 * n,
                              .member     = member_of(a, d->like)};
    bool             is_ok = measure_here(a, &t);
    uint64_t         begin = usm_clock_ns(CLOCK_MONOTONIC);

    t.parts = need(calloc(n + 1, sizeof *t.parts));
    for (; is_ok && goes_on(&t, begin); t.round++)
        is_ok = try_parts(a, &t, false) && try_parts(a, &t, true);
    if (is_ok) {
        set_costs(c, a, m, d->like, &t);
        fprintf(stderr, "usm-run: tried the nodes on %s in %.2f s\n", d->like,
                (double)(usm_clock_ns(CLOCK_MONOTONIC) - begin) / 1e9);
    }
    free_calls(calls, 3 * n);
    free(t.parts);
    free(times);
    return is_ok;
}

static bool was_tried(const machine *m, size_t device)
{
    for (size_t i = 0; i < device; i++)
        if (strcmp(m->devices[i].like, m->devices[device].like) == 0)
            return true;
    return false;
}

static bool check_likes(const app *a, machine *m)
{
    char   names[300] = "";
    size_t used       = 0;
    bool   is_ok      = true;

    for (uint32_t i = 0; i < a->team->nmembers; i++) {
        int n = snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                         a->team->members[i].name);

        used += n > 0 && (size_t)n < sizeof names - used ? (size_t)n : 0;
    }
    for (size_t i = 0; i < m->n; i++)
        if (member_of(a, m->devices[i].like) == a->team->nmembers)
            is_ok = mistake(&m->file, m->devices[i].at.at,
                            "'%s' is like '%s', which has no part in this run: 'like' names one of "
                            "%s, or --device others",
                            m->devices[i].sim.name, m->devices[i].like, names);
    return is_ok;
}

bool costs_find(costs *c, app *a, machine *m)
{
    bool is_ok = check_likes(a, m);

    c->nnodes   = a->graph->nnodes;
    c->ndevices = (uint32_t)m->n;
    c->of       = need(calloc(m->n * ((size_t)c->nnodes + 1), sizeof *c->of));
    c->calls    = need(calloc((size_t)c->nnodes + 1, sizeof *c->calls));
    c->made     = need(calloc((size_t)c->nnodes + 1, sizeof *c->made));
    for (size_t i = 0; i < m->n && is_ok; i++)
        is_ok = was_tried(m, i) || try_device(c, a, m, &m->devices[i]);
    return is_ok;
}

void costs_free(costs *c)
{
    for (uint32_t i = 0; i < c->nnodes && c->made; i++)
        calls_free(&c->made[i]);
    free(c->of);
    free(c->calls);
    free(c->made);
}

double costs_seconds(void *user, const usm__sim_launch *l)
{
    const costs *c  = user;
    const cost  *of = l->device == c->ndevices ? &c->calls[l->number]
                                               : &c->of[(size_t)l->device * c->nnodes + l->number];

    if (l->device < c->ndevices && !of->has_image)
        return -1;
    return of->fixed + of->each * scale(l->node, l->parts) + (l->is_first ? of->extra : 0);
}
