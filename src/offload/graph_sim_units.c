/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Units of a machine that is only described: the table of graph_units.h on the simulated clock.  Who
 * gets a task, and which blocks travel, is decided by graph_units.c as in a run.
 *
 *     home  --down-->  unit     blocks that a task reads, and the task behind them
 *           <---up---           blocks that home asked for, or that a task made for it
 *
 * Each direction of a link carries one block after the other; a message takes half of the link's latency
 * more.  Links are known from the start, as if they had been measured. */
#include "offload/graph_sim_state.h"

#include "base/os.h"

typedef struct event {
    struct event   *next; /* by their times */
    double          at;
    usm__unit_event ev;
    uint32_t        device; /* DONE: which device of the machine it was, and what it did */
    double          work, busy;
} event;

typedef struct line {
    double down_end, up_end; /* when what was given to it will have gone */
} line;

struct usm__sim_units {
    usm__graph_sim    *sim;
    event             *first;
    usm__graph_member *members; /* by device of the machine: what its unit knows of it */
    unsigned char     *can;     /* by unit, then by node */
    line               lines[USM__UNITS_MAX];
};

/* ---- events ---------------------------------------------------------------------------------- */

static void post(usm__sim_units *u, const event *what)
{
    event *e = usm__heap_alloc(sizeof *e), **at = &u->first;

    if (!e) {
        u->sim->status = usm__fail(USM_E_NO_MEMORY, "no host memory to simulate units");
        return;
    }
    *e = *what;
    while (*at && (*at)->at <= e->at)
        at = &(*at)->next;
    e->next    = *at;
    *at        = e;
    e->ev.link = u->sim->desc->units[e->ev.unit].link;
    e->ev.data = NULL; /* there are no bytes */
}

bool usm__sim_unit_is_next(usm__graph_sim *sim)
{
    const event *e = sim->units ? sim->units->first : NULL;

    if (!e || (sim->flights && (double)sim->flights->end_ns / 1e9 < e->at))
        return false;
    sim->now = usm__sim_later(sim->now, e->at);
    return true;
}

/* The unit measures its device, and tells the speed of all. */
static double speed_of(usm__sim_units *u, const event *e)
{
    const usm__sim_unit *unit = &u->sim->desc->units[e->ev.unit];
    usm__graph_member   *m    = &u->members[e->device];
    double               one = e->busy > 0 ? e->work / e->busy : 0, sum = 0;

    m->flying -= e->work;
    m->speed = m->speed > 0 ? (m->speed + one) / 2 : one;
    for (uint32_t i = 0; i < unit->ndevices; i++)
        sum += u->members[unit->first + i].speed;
    return sum;
}

static bool next(void *user, usm__unit_event *ev)
{
    usm__sim_units *u = user;
    event          *e = u->first;

    if (!e || e->at > u->sim->now)
        return false;
    u->first = e->next;
    if (e->ev.kind == USM__UNIT_DONE)
        e->ev.speed = speed_of(u, e);
    *ev = e->ev;
    usm__heap_free(e);
    return true;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void attach(void *user, usm__graph_mail *mail)
{
    (void)user;
    (void)mail; /* nobody sleeps */
}

static void unroll(void *user, uint32_t unit, uint32_t node, uint32_t parts)
{
    (void)user;
    (void)unit;
    (void)node;
    (void)parts;
}

static void drop(void *user, uint32_t unit, uint32_t node)
{
    (void)user;
    (void)unit;
    (void)node;
}

static void give_up(void *user, uint32_t unit, const char *why)
{
    usm__sim_units *u = user;

    u->sim->status = usm__fail(USM_E_INVALID, "the simulation of unit '%s': %s",
                               u->sim->desc->units[unit].name, why);
}

/* The time after which so many bytes have gone over a direction of the link, from `from` on. */
static void carry(usm__sim_units *u, uint32_t unit, double *end, double from, size_t size)
{
    *end = usm__sim_later(from, *end) + (double)size / u->sim->desc->units[unit].link.bytes_per_s;
    u->sim->bytes_over_links += size;
}

static void send(void *user, uint32_t unit, const usm__graph_range *range, const void *data,
                 size_t size)
{
    usm__sim_units *u = user;

    (void)range;
    (void)data;
    carry(u, unit, &u->lines[unit].down_end, u->sim->now, size);
}

/* Blocks that the unit has at `from`. */
static void come_home(usm__sim_units *u, uint32_t unit, const usm__graph_range *range, double from,
                      size_t size)
{
    line *l = &u->lines[unit];

    carry(u, unit, &l->up_end, from, size);
    post(u, &(event){.at = l->up_end + u->sim->desc->units[unit].link.latency / 2,
                     .ev = {.kind = USM__UNIT_BLOCKS, .unit = unit, .range = *range}});
}

static void fetch(void *user, uint32_t unit, const usm__graph_range *range, size_t size)
{
    usm__sim_units *u = user;

    come_home(u, unit, range, u->sim->now + u->sim->desc->units[unit].link.latency / 2, size);
}

/* The device of the unit that takes a task, by the policy that units have. */
static uint32_t choose(usm__sim_units *u, uint32_t unit, const usm__graph_task *task)
{
    const usm__sim_unit   *it     = &u->sim->desc->units[unit];
    const usm__graph_node *n      = &u->sim->run->g->nodes[task->node];
    usm_policy             policy = {.name = "adaptive"};
    uint32_t               found;

    for (uint32_t i = 0; i < it->ndevices; i++) {
        usm__sim_launch launch = {.node = &n->desc, .number = task->node, .device = it->first + i};
        usm__graph_member *m   = &u->members[it->first + i];

        m->may = u->sim->desc->seconds(u->sim->desc->user, &launch) >= 0;
    }
    found = usm__graph_choose(USM__GRAPH_ADAPTIVE, &policy, &u->members[it->first], it->ndevices,
                              n->desc.work, 1);
    return it->first + (found == USM__NOBODY ? 0 : found);
}

static void run(void *user, uint32_t unit, uint32_t part, const usm__graph_range *range,
                size_t size, bool comes_back)
{
    usm__sim_units        *u       = user;
    usm__graph_sim        *sim     = u->sim;
    const usm__graph_node *n       = &sim->run->g->nodes[range->node];
    const usm__graph_task *task    = &n->tasks[part];
    double                 latency = sim->desc->units[unit].link.latency / 2;
    double            from = usm__sim_later(sim->now, u->lines[unit].down_end) + latency, begin, at;
    event             done = {.device = choose(u, unit, task), .work = n->desc.work};
    usm__sim_place   *p    = &sim->places[done.device];
    usm__sim_task_end end;

    if (usm__sim_task(sim->run, task, done.device, from, &end) != USM_OK) {
        sim->status = usm_last_status();
        return;
    }
    begin     = usm__sim_later(from, p->last_end);
    done.busy = end.at - begin;
    p->busy += done.busy;
    p->last_end = end.at;
    p->launches++;
    sim->run->stats.bytes_in += end.bytes_in;
    sim->run->stats.bytes_out += end.bytes_out;
    u->members[done.device].flying += done.work;
    at = end.at;
    if (comes_back) {
        come_home(u, unit, range, end.at, size);
        at = u->lines[unit].up_end;
    }
    done.at = at + latency;
    done.ev =
        (usm__unit_event){.kind = USM__UNIT_DONE, .unit = unit, .range = {range->node, part, 1}};
    post(u, &done);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static void find_can(usm__sim_units *u, const usm_graph *g, uint32_t unit)
{
    const usm__sim_unit *it = &u->sim->desc->units[unit];

    for (uint32_t i = 0; i < g->nnodes; i++)
        for (uint32_t d = 0; d < it->ndevices; d++) {
            usm__sim_launch launch = {
                .node = &g->nodes[i].desc, .number = i, .device = it->first + d};

            if (g->nodes[i].desc.kernel && u->sim->desc->seconds(u->sim->desc->user, &launch) >= 0)
                u->can[(size_t)unit * g->nnodes + i] = 1;
        }
}

usm_status usm__sim_units_open(usm__graph_sim *sim, const usm_graph *g, usm__unit_crew *crew)
{
    static const usm__unit_ops ops = {attach, next, unroll, send, fetch, run, drop, give_up};
    const usm__sim_desc       *d   = sim->desc;
    usm__sim_units            *u   = usm__heap_alloc(sizeof *u);

    if (!u)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to simulate units");
    sim->units = u;
    u->sim     = sim;
    u->members = usm__heap_alloc(d->ndevices * sizeof *u->members);
    u->can     = usm__heap_alloc((size_t)d->nunits * g->nnodes + 1);
    if (!u->members || !u->can)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to simulate units");
    for (uint32_t i = 0; i < d->ndevices; i++)
        u->members[i] = (usm__graph_member){.is_well = true, .room = 1, .weight = 1};
    for (uint32_t i = 0; i < d->nunits; i++) {
        find_can(u, g, i);
        post(u, &(event){.ev = {.kind    = USM__UNIT_CAME,
                                .unit    = i,
                                .devices = d->units[i].ndevices,
                                .can     = u->can + (size_t)i * g->nnodes}});
    }
    *crew = (usm__unit_crew){.ops = &ops, .user = u, .n = d->nunits};
    return sim->status;
}

void usm__sim_units_close(usm__graph_sim *sim)
{
    usm__sim_units *u = sim->units;

    if (!u)
        return;
    while (u->first) {
        event *e = u->first;

        u->first = e->next;
        usm__heap_free(e);
    }
    usm__heap_free(u->members);
    usm__heap_free(u->can);
    usm__heap_free(u);
    sim->units = NULL;
}
