/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs of graphs on a simulated clock: see graph_sim.h.
 *
 * The run gets a copy of the graph, whose team has the described devices as members.  Nobody uses
 * the contexts, queues and kernels of this team: they are not there. */
#include "offload/graph_sim.h"

#include "offload/graph_sim_state.h"

#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The devices of this process: those of units come after them. */
static uint32_t local_devices(const usm__sim_desc *desc)
{
    return desc->nunits ? desc->units[0].first : desc->ndevices;
}

/* ---- one launch ------------------------------------------------------------------------------ */

uint32_t usm__graph_parts_had(const usm_graph *g, uint32_t node)
{
    uint32_t partitioner = g->nodes[node].partitioner;

    if (g->nodes[node].desc.kind == USM_NODE_MERGE)
        for (uint32_t i = 0; i < g->nodes[node].ninputs && partitioner == USM__NOBODY; i++)
            partitioner = g->nodes[g->nodes[node].inputs[i]].partitioner;
    return partitioner == USM__NOBODY ? 0 : g->nodes[partitioner].nblocks;
}

static double launch_seconds(usm__graph_run *r, uint32_t node, uint32_t device)
{
    usm__graph_sim *sim    = r->sim;
    bool           *warm   = &sim->is_warm[(size_t)node * (sim->desc->ndevices + 1) + device];
    usm__sim_launch launch = {.node     = &r->g->nodes[node].desc,
                              .number   = node,
                              .parts    = usm__graph_parts_had(r->g, node),
                              .device   = device,
                              .is_first = !*warm};

    *warm = true;
    return usm__sim_later(sim->desc->seconds(sim->desc->user, &launch), 0);
}

static void insert(usm__graph_sim *sim, usm__graph_flight *f)
{
    usm__graph_flight **at = &sim->flights;

    while (*at && (*at)->end_ns <= f->end_ns)
        at = &(*at)->next;
    f->next = *at;
    *at     = f;
}

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * 1e9) + 1; /* 0 is no time */
}

usm_status usm__sim_task(usm__graph_run *r, const usm__graph_task *task, uint32_t device,
                         double from, usm__sim_task_end *end)
{
    const usm__graph_node *n = &r->g->nodes[task->node];
    const usm__sim_device *d = &r->sim->desc->devices[device];
    usm__sim_place        *p = &r->sim->places[device];
    uint32_t               in, nblocks;
    usm_status             st = usm__graph_pieces(r->g, task, NULL, &in, &nblocks);

    if (st != USM_OK)
        return st;
    *end = (usm__sim_task_end){.bytes_in = 0};
    if (!d->uses_host_memory || n->ninputs > 1) {
        end->bytes_in = in;
        from = usm__sim_later(from, p->copies_end) + usm__sim_copy_seconds(d, in, n->ninputs);
        p->copies_end = from;
    }
    end->at = usm__sim_later(from, p->compute_end) + launch_seconds(r, task->node, device);
    if (!d->uses_host_memory) {
        end->bytes_out = n->desc.out_size * (n->ntasks == 1 ? n->nblocks : 1);
        end->at += usm__sim_copy_seconds(d, end->bytes_out, 1);
    }
    p->compute_end = end->at;
    return USM_OK;
}

usm_status usm__sim_begin(usm__graph_run *r, usm__graph_task *task)
{
    usm__graph_sim    *sim = r->sim;
    usm__graph_flight *f   = usm__heap_alloc(sizeof *f);
    usm__sim_task_end  end;
    usm_status         st;

    if (!f)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to simulate a launch of '%s'",
                         r->g->nodes[task->node].desc.name);
    st = usm__sim_task(r, task, task->member, sim->now, &end);
    if (st != USM_OK) {
        usm__heap_free(f);
        return st;
    }
    *f = (usm__graph_flight){.task      = task,
                             .place     = &r->places[task->member],
                             .bytes_in  = end.bytes_in,
                             .bytes_out = end.bytes_out,
                             .begin_ns  = ns_of(sim->now),
                             .end_ns    = ns_of(end.at)};
    insert(sim, f);
    return USM_OK;
}

usm__graph_flight *usm__sim_take(usm__graph_run *r)
{
    usm__graph_sim    *sim = r->sim;
    usm__graph_flight *f   = sim->flights;
    usm__sim_place    *p;
    double             end;

    if (!f)
        return NULL;
    sim->flights = f->next;
    f->next      = NULL;
    end          = (double)f->end_ns / 1e9;
    sim->now     = usm__sim_later(sim->now, end);
    p            = &sim->places[f->task->member];
    p->launches++;
    p->busy += end - usm__sim_later((double)f->begin_ns / 1e9, p->last_end);
    p->last_end = end;
    return f;
}

usm_status usm__sim_call(usm__graph_run *r, uint32_t node)
{
    usm__graph_sim      *sim     = r->sim;
    const usm__sim_desc *d       = sim->desc;
    usm__sim_traffic     traffic = {0};
    usm__sim_parallel    launch;
    usm_status           st = USM_OK;

    sim->now += launch_seconds(r, node, d->ndevices);
    for (uint32_t i = 0; st == USM_OK && d->parallel && d->parallel(d->user, node, i, &launch); i++)
        st = usm__sim_parallel_run(&launch, d->devices, local_devices(d), sim->places, &sim->now,
                                   &traffic);
    r->stats.chunks += traffic.chunks;
    r->stats.bytes_in += traffic.bytes_in;
    r->stats.bytes_out += traffic.bytes_out;
    return st;
}

/* ---- the team that is not there -------------------------------------------------------------- */

/* Only whether a kernel is there is asked: this one is. */
static usm_kernel *const present = (usm_kernel *)(uintptr_t)8;

static usm_team_kernel *kernel_for(const usm__sim_desc *desc, usm_team *team, uint32_t number,
                                   const usm_node_desc *node)
{
    usm_team_kernel *k = usm__heap_alloc(sizeof *k);
    uint32_t         n = local_devices(desc);

    if (!k)
        return NULL;
    *k         = (usm_team_kernel){.team = team, .nmembers = n};
    k->kernels = usm__heap_alloc(n * sizeof(usm_kernel *));
    if (!k->kernels) {
        usm__heap_free(k);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        usm__sim_launch launch = {.node = node, .number = number, .device = i};

        k->kernels[i] = desc->seconds(desc->user, &launch) >= 0 ? present : NULL;
    }
    return k;
}

static bool make_team(const usm__sim_desc *desc, usm_team *team)
{
    uint32_t n = local_devices(desc);

    *team         = (usm_team){.nmembers = n, .depth = 1};
    team->members = usm__heap_alloc(n * sizeof *team->members);
    if (!team->members)
        return false;
    usm__mutex_init(&team->lock, USM__RANK_TEAM, "a simulated team");
    (void)pthread_cond_init(&team->quiescent, NULL);
    for (uint32_t i = 0; i < n; i++) {
        usm__member *m = &team->members[i];

        m->index            = i;
        m->uses_host_memory = desc->devices[i].uses_host_memory;
        m->watts            = desc->devices[i].watts;
        m->state            = USM_MEMBER_WELL;
        (void)snprintf(m->name, sizeof m->name, "%s", desc->devices[i].name);
    }
    return true;
}

static void free_team(usm_team *team)
{
    if (!team->members)
        return;
    (void)pthread_cond_destroy(&team->quiescent);
    usm__mutex_fini(&team->lock);
    usm__heap_free(team->members);
}

/* A copy that has its tables, tasks and kernels of its own; names, inputs' numbers and bytes are the
 * graph's. */
static bool copy_graph(const usm_graph *g, const usm__sim_desc *desc, usm_team *team,
                       usm_graph *copy)
{
    *copy       = (usm_graph){.team = team, .nnodes = g->nnodes};
    copy->nodes = usm__heap_alloc((g->nnodes + 1ul) * sizeof *copy->nodes);
    if (!copy->nodes)
        return false;
    for (uint32_t i = 0; i < g->nnodes; i++) {
        const usm__graph_node *from = &g->nodes[i];
        usm__graph_node       *to   = &copy->nodes[i];

        *to = (usm__graph_node){.desc     = from->desc,
                                .inputs   = from->inputs,
                                .ninputs  = from->ninputs,
                                .nreaders = from->nreaders};
        if (from->desc.kind == USM_NODE_PARTITION && desc->per_device)
            to->desc.per_device = desc->per_device;
        if (!from->desc.kernel)
            continue;
        to->desc.kernel = kernel_for(desc, team, i, &from->desc);
        if (!to->desc.kernel)
            return false;
    }
    return true;
}

static void free_copy(usm_graph *copy)
{
    if (!copy->nodes)
        return;
    usm__graph_clear(copy);
    for (uint32_t i = 0; i < copy->nnodes; i++) {
        usm_team_kernel *k = copy->nodes[i].desc.kernel;

        if (k)
            usm__heap_free(k->kernels);
        usm__heap_free(k);
    }
    usm__heap_free(copy->order);
    usm__heap_free(copy->readers);
    usm__heap_free(copy->first_reader);
    usm__heap_free(copy->nodes);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static usm_status check(const usm__sim_desc *desc)
{
    if (desc->ndevices == 0 || desc->ndevices > USM__SIM_DEVICES_MAX)
        return usm__fail(USM_E_INVALID, "a machine has 1 to %d devices, not %u",
                         USM__SIM_DEVICES_MAX, desc->ndevices);
    for (uint32_t i = 0; i < desc->ndevices; i++)
        if (!(desc->devices[i].bytes_per_s > 0) || !(desc->devices[i].latency_s >= 0))
            return usm__fail(USM_E_INVALID,
                             "copies to %s need a rate above 0 and a latency of 0 or more",
                             desc->devices[i].name);
    if (desc->nunits > USM__UNITS_MAX || local_devices(desc) == 0)
        return usm__fail(USM_E_INVALID, "a machine has a device here and at most %d units",
                         USM__UNITS_MAX);
    for (uint32_t i = 0; i < desc->nunits; i++)
        if (!(desc->units[i].link.bytes_per_s > 0) || !(desc->units[i].link.latency >= 0))
            return usm__fail(
                USM_E_INVALID,
                "the link to unit '%s' needs a rate above 0 and a latency of 0 or more",
                desc->units[i].name);
    return USM_OK;
}

static void report(const usm__graph_sim *sim, const usm_parallel_stats *stats,
                   usm__sim_result *result)
{
    *result = (usm__sim_result){.seconds          = sim->now,
                                .launches         = stats->chunks,
                                .bytes_in         = stats->bytes_in,
                                .bytes_out        = stats->bytes_out,
                                .bytes_over_links = sim->bytes_over_links};
    for (uint32_t i = 0; i < sim->desc->ndevices; i++) {
        const usm__sim_device *d    = &sim->desc->devices[i];
        double                 busy = sim->places[i].busy;

        result->busy_s[i]      = busy;
        result->launches_of[i] = sim->places[i].launches;
        result->joules += busy * d->watts + usm__sim_later(sim->now - busy, 0) * d->idle_watts;
    }
}

usm_status usm__graph_simulate(usm_graph *graph, const usm__sim_desc *desc, usm__sim_result *result)
{
    usm__graph_sim     sim   = {.desc = desc};
    usm_team           team  = {.nmembers = 0};
    usm_graph          copy  = {.nnodes = 0};
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    usm_status         st    = check(desc);

    if (st != USM_OK)
        return st;
    sim.places  = usm__heap_alloc(desc->ndevices * sizeof *sim.places);
    sim.is_warm = usm__heap_alloc((size_t)graph->nnodes * (desc->ndevices + 1) + 1);
    if (!sim.places || !sim.is_warm || !make_team(desc, &team) ||
        !copy_graph(graph, desc, &team, &copy))
        st = usm__fail(USM_E_NO_MEMORY, "no host memory to simulate a graph");
    if (st == USM_OK)
        st = usm__graph_run_simulated(&copy, &sim, &stats);
    if (st == USM_OK)
        report(&sim, &stats, result);
    free_copy(&copy);
    free_team(&team);
    usm__heap_free(sim.places);
    usm__heap_free(sim.is_warm);
    return st;
}

/* ---- trials ---------------------------------------------------------------------------------- */

void usm__trial_call(usm__graph_run *r, uint32_t node)
{
    usm__graph_trial *t = r->trial;

    t->parallel.into  = &t->calls[node];
    t->calls[node].n  = 0;
    r->g->team->trial = &t->parallel;
}

void usm__trial_called(usm__graph_run *r)
{
    r->g->team->trial = NULL;
}

void usm__trial_note(usm__graph_trial *t, uint32_t node, double seconds)
{
    t->seconds[(size_t)node * t->launches + t->ended[node]++] = seconds;
}

/* Once all launches of a node that are to be executed have ended, the others get the block of the
 * first. */
usm_status usm__trial_end(usm__graph_run *r, uint32_t node)
{
    usm__graph_node *n    = &r->g->nodes[node];
    size_t           size = n->desc.out_size;
    usm_status       st   = USM_OK;

    if (n->ndone != r->trial->launches)
        return USM_OK;
    for (uint32_t i = r->trial->launches; i < n->ntasks && st == USM_OK; i++) {
        memcpy(n->blocks + i * size, n->blocks, size);
        st = usm__graph_run_complete(r, &n->tasks[i]);
    }
    return st;
}

/* Every partitioner that leaves it open makes so many parts; what the graph says is kept in `kept`. */
static void set_parts(usm_graph *g, uint32_t parts, uint32_t *kept)
{
    for (uint32_t i = 0; i < g->nnodes; i++) {
        kept[i] = g->nodes[i].desc.parts;
        if (g->nodes[i].desc.kind == USM_NODE_PARTITION && kept[i] == 0)
            g->nodes[i].desc.parts = parts;
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median without the first, which may include what is done only once.  An end is noticed a little
 * late now and then: then the launch before looks too long, and the one after too short. */
static double usual(double *seconds, uint32_t n)
{
    if (n < 2)
        return seconds[0];
    qsort(seconds + 1, n - 1, sizeof *seconds, by_size);
    return seconds[1 + (n - 1) / 2];
}

static void report_trial(const usm_graph *g, const usm__graph_trial *t, double *seconds,
                         double *first)
{
    for (uint32_t i = 0; i < g->nnodes; i++) {
        const usm_team_kernel *k   = g->nodes[i].desc.kernel;
        double                *all = t->seconds + (size_t)i * t->launches;

        first[i]   = k && !k->kernels[t->member] ? -1 : all[0];
        seconds[i] = k && !k->kernels[t->member] ? -1 : usual(all, t->ended[i]);
    }
}

usm_status usm__graph_try(usm_graph *graph, const usm__graph_try_desc *d, double *seconds,
                          double *first, usm__tried_call *calls)
{
    usm__graph_trial trial = {.member   = d->member,
                              .launches = d->launches,
                              .calls    = calls,
                              .parallel = {.member = d->member, .chunks = d->chunks}};
    uint32_t        *kept  = usm__heap_alloc((graph->nnodes + 1ul) * sizeof *kept);
    usm_status       st;

    trial.ended   = usm__heap_alloc((graph->nnodes + 1ul) * sizeof *trial.ended);
    trial.seconds = usm__heap_alloc((graph->nnodes + 1ul) * d->launches * sizeof *trial.seconds);
    if (!kept || !trial.ended || !trial.seconds) {
        st = usm__fail(USM_E_NO_MEMORY, "no host memory to try a graph");
    } else {
        set_parts(graph, d->parts, kept);
        st = usm__graph_run_trial(graph, &trial);
        for (uint32_t i = 0; i < graph->nnodes; i++)
            graph->nodes[i].desc.parts = kept[i];
        report_trial(graph, &trial, seconds, first);
    }
    usm__heap_free(kept);
    usm__heap_free(trial.ended);
    usm__heap_free(trial.seconds);
    return st;
}
