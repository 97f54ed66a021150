/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Launches of usm_parallel() on a simulated clock: see launch_sim.h.
 *
 * Chunks in progress are a list by their ends.  The first of them ends, the scheduler is told, and
 * every device with room asks it for another, until the launch is over. */
#include "offload/launch_sim.h"

#include "base/os.h"
#include "base/status.h"

typedef struct flight {
    struct flight *next;
    uint32_t       device;
    uint64_t       id;
    double         compute, end; /* how long its kernel takes; when the chunk has ended */
} flight;

typedef struct state {
    const usm__sim_parallel *launch;
    const usm__sim_device   *devices;
    usm__sim_place          *places;
    uint32_t                 ndevices, depth;
    usm__schedule           *schedule;
    flight                  *all, *first, *spare; /* all: depth for each device */
    uint32_t                *held;                /* chunks, by device */
    bool                    *has_wholes;          /* by device */
    double                   now;
    usm__sim_traffic        *traffic;
} state;

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * 1e9) + 1; /* 0 is no time */
}

static uint64_t bytes_of(const usm__sim_copies *c, uint64_t count)
{
    return c->each * count + c->besides;
}

/* When a chunk's inputs are on the device, which is given it now. */
static double bring(state *s, uint32_t i, uint64_t count)
{
    const usm__sim_shape  *shape = s->launch->shape;
    const usm__sim_device *d     = &s->devices[i];
    usm__sim_place        *p     = &s->places[i];
    uint64_t               bytes = bytes_of(&shape->in, count);
    uint32_t               n     = shape->in.n;

    if (d->uses_host_memory)
        return s->now;
    if (!s->has_wholes[i]) {
        bytes += shape->whole.besides;
        n += shape->whole.n;
    }
    s->has_wholes[i] = true;
    s->traffic->bytes_in += bytes;
    p->copies_end = usm__sim_later(s->now, p->copies_end) + usm__sim_copy_seconds(d, bytes, n);
    return p->copies_end;
}

/* When the results of a chunk are on the host, whose kernel ends at `end`. */
static double bring_back(state *s, uint32_t i, uint64_t count, double end)
{
    const usm__sim_copies *out   = &s->launch->shape->out;
    const usm__sim_device *d     = &s->devices[i];
    usm__sim_place        *p     = &s->places[i];
    uint64_t               bytes = bytes_of(out, count);

    if (d->uses_host_memory)
        return end;
    s->traffic->bytes_out += bytes;
    p->results_end = usm__sim_later(end, p->results_end) + usm__sim_copy_seconds(d, bytes, out->n);
    return p->results_end;
}

static void insert(state *s, flight *f)
{
    flight **at = &s->first;

    while (*at && (*at)->end <= f->end)
        at = &(*at)->next;
    f->next = *at;
    *at     = f;
}

static void begin(state *s, uint32_t i, const usm__chunk *chunk)
{
    const usm__sim_pace *pace = &s->launch->paces[i];
    usm__sim_place      *p    = &s->places[i];
    flight              *f    = s->spare;
    double               start;

    s->spare       = f->next;
    f->device      = i;
    f->id          = chunk->id;
    f->compute     = pace->cost + (double)chunk->count * pace->each;
    start          = usm__sim_later(bring(s, i, chunk->count), p->compute_end);
    p->compute_end = start + f->compute;
    f->end         = bring_back(s, i, chunk->count, p->compute_end);
    p->busy += f->end - usm__sim_later(s->now, p->last_end);
    p->last_end = f->end;
    insert(s, f);
}

/* A first chunk for each device, then further ones up to `depth`, as slots of a run take them. */
static void fill(state *s)
{
    usm__chunk chunk;

    for (uint32_t depth = 1; depth <= s->depth; depth++)
        for (uint32_t i = 0; i < s->ndevices; i++)
            if (s->held[i] < depth && usm__schedule_take(s->schedule, i, ns_of(s->now), &chunk)) {
                s->held[i]++;
                begin(s, i, &chunk);
            }
}

static void end_first(state *s)
{
    flight *f = s->first;

    s->first = f->next;
    f->next  = s->spare;
    s->spare = f;
    s->now   = usm__sim_later(s->now, f->end);
    s->held[f->device]--;
    s->places[f->device].launches++;
    s->traffic->chunks++;
    (void)usm__schedule_done(s->schedule, f->device, f->id, ns_of(s->now), ns_of(f->compute));
}

/* Devices without an image take no part.  False: none is left. */
static bool leave_out(const state *s, const usm__schedule_params *params)
{
    bool is_any = true;

    for (uint32_t i = 0; i < s->ndevices; i++)
        if (!s->launch->paces[i].has_image || !usm__chunk_policy_takes(params, i))
            is_any = usm__schedule_set_aside(s->schedule, i);
    return is_any;
}

static usm_status out_of_memory(void)
{
    return usm__fail(USM_E_NO_MEMORY, "no host memory to simulate a launch");
}

static usm_status open_schedule(state *s)
{
    usm__schedule_params params = s->launch->shape->params;
    double              *watts  = usm__heap_alloc(s->ndevices * sizeof *watts);
    usm_status           st;

    if (!watts)
        return out_of_memory();
    for (uint32_t i = 0; i < s->ndevices; i++)
        watts[i] = s->devices[i].watts;
    params.nworkers = s->ndevices;
    params.numbers  = s->launch->shape->numbers;
    params.watts    = watts;
    params.batch    = 1;
    st              = usm__chunk_policy_check(&params);
    if (st == USM_OK) {
        s->schedule = usm__schedule_create(&params);
        if (!s->schedule)
            st = out_of_memory();
        else if (!leave_out(s, &params))
            st = usm__fail(USM_E_NO_IMAGE, "no device has an image of a kernel of a launch");
    }
    usm__heap_free(watts);
    return st;
}

static usm_status open(state *s)
{
    uint32_t most = s->ndevices * s->depth;

    s->all        = usm__heap_alloc(most * sizeof *s->all);
    s->held       = usm__heap_alloc(s->ndevices * sizeof *s->held);
    s->has_wholes = usm__heap_alloc(s->ndevices * sizeof *s->has_wholes);
    if (!s->all || !s->held || !s->has_wholes)
        return out_of_memory();
    for (uint32_t i = 0; i < most; i++)
        s->all[i].next = i + 1 < most ? &s->all[i + 1] : NULL;
    s->spare = s->all;
    return open_schedule(s);
}

usm_status usm__sim_parallel_run(const usm__sim_parallel *launch, const usm__sim_device *devices,
                                 uint32_t ndevices, usm__sim_place *places, double *now,
                                 usm__sim_traffic *traffic)
{
    uint32_t   depth = launch->shape->params.depth;
    state      s     = {.launch   = launch,
                        .devices  = devices,
                        .places   = places,
                        .ndevices = ndevices,
                        .depth    = depth ? depth : 1,
                        .now      = *now + launch->fixed_s,
                        .traffic  = traffic};
    usm_status st    = open(&s);

    while (st == USM_OK && !usm__schedule_is_over(s.schedule)) {
        fill(&s);
        if (s.first)
            end_first(&s);
        else
            st =
                usm__fail(USM_E_INVALID, "the policy of a launch gives its last indices to nobody");
    }
    if (st == USM_OK)
        *now = s.now;
    usm__schedule_destroy(s.schedule);
    usm__heap_free(s.all);
    usm__heap_free(s.held);
    usm__heap_free(s.has_wholes);
    return st;
}
