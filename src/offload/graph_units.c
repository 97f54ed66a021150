/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Units that take part in a run of a graph: see graph_units.h.
 *
 *     given --> gathering --> runs on the unit --> its blocks come home --> done
 *                  |   ^                            (if home needs them)
 *        blocks are asked for, from
 *        units that have them
 *
 * A task that was given to a member gathers first: what home has is sent to its unit, and what home
 * lacks is asked for.  Pipes keep the order, so a task may follow what was sent at once.  Blocks are
 * moved once to each place: graph_where.h says which places have them. */
#include "offload/graph_units_state.h"

#include "base/inline/plural.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

/* Tasks that a unit may have at a time: a unit says itself how many devices it has. */
enum { DEVICES_MAX = 256 };

static uint32_t place_of(const usm__graph_run *r, uint32_t member)
{
    return member < r->nlocal ? 0 : member - r->nlocal + 1;
}

static usm_status out_of_memory(void)
{
    return usm__fail(USM_E_NO_MEMORY, "no host memory for the units of a graph");
}

/* ---- begin and end --------------------------------------------------------------------------- */

usm_status usm__units_open(usm__graph_run *r, const usm__unit_crew *crew)
{
    if (crew->n > USM__UNITS_MAX)
        return usm__fail(USM_E_INVALID, "%u %s; a run of a graph takes at most %d", crew->n,
                         usm__plural(crew->n, "unit", "units"), USM__UNITS_MAX);
    r->units = usm__heap_alloc(sizeof *r->units);
    if (!r->units)
        return out_of_memory();
    r->units->crew    = *crew;
    r->units->pending = crew->n;
    for (uint32_t i = 0; i < r->nlocal && crew->no_local; i++)
        r->members[i].is_well = false;
    crew->ops->attach(crew->user, r->mail);
    return USM_OK;
}

void usm__units_close(usm__graph_run *r)
{
    usm__graph_units *u = r->units;

    u->crew.ops->attach(u->crew.user, NULL);
    usm__heap_free(u->gathering);
    usm__heap_free(u);
    r->units = NULL;
}

bool usm__units_expect(const usm__graph_run *r)
{
    return r->units->pending > 0;
}

bool usm__units_busy(const usm__graph_run *r)
{
    return r->units->busy > 0;
}

/* ---- where blocks lie ------------------------------------------------------------------------ */

static bool is_live(const usm__graph_units *u, uint32_t unit)
{
    return u->unit[unit].has_come && !u->unit[unit].is_lost;
}

/* What is done at home: inputs, and what a folder had; at a server, nothing before it is sent. */
static usm_status make_tables(const usm__graph_run *r, uint32_t node)
{
    usm__graph_node *n = &r->g->nodes[node];

    usm__heap_free(n->where);
    usm__heap_free(n->from);
    n->where = usm__heap_alloc(n->nblocks * sizeof *n->where);
    n->from  = usm__heap_alloc(n->nblocks);
    if (!n->where || !n->from)
        return out_of_memory();
    for (uint32_t i = 0; i < n->nblocks && n->blocks && !r->server; i++)
        if (n->tasks[n->ntasks == 1 ? 0 : i].state == USM__TASK_DONE)
            n->where[i] = USM__PLACE_HOME;
    return USM_OK;
}

usm_status usm__units_unrolled(usm__graph_run *r, uint32_t node)
{
    usm_graph        *g  = r->g;
    usm__graph_units *u  = r->units;
    usm_status        st = make_tables(r, node);

    if (g->nodes[node].desc.kind != USM_NODE_PARTITION)
        return st;
    for (uint32_t i = 0; i < g->nnodes && st == USM_OK; i++)
        if (i != node && g->nodes[i].partitioner == node)
            st = make_tables(r, i);
    for (uint32_t i = 0; i < u->crew.n && st == USM_OK; i++)
        if (is_live(u, i))
            u->crew.ops->unroll(u->crew.user, i, node, g->nodes[node].nblocks);
    return st;
}

static void mark(usm_graph *g, const usm__graph_range *range, uint64_t places)
{
    for (uint32_t i = 0; i < range->count; i++)
        g->nodes[range->node].where[range->first + i] |= places;
}

void usm__units_made_here(usm__graph_run *r, const usm__graph_task *task)
{
    usm__graph_range range = usm__units_range(r->g, task);

    mark(r->g, &range, USM__PLACE_HOME);
}

void usm__units_release(usm__graph_run *r, uint32_t node)
{
    usm__graph_units *u      = r->units;
    usm__graph_node  *n      = &r->g->nodes[node];
    uint64_t          places = 0;

    for (uint32_t i = 0; i < n->nblocks && n->where; i++) {
        places |= n->where[i];
        n->where[i] = n->memory ? 0 : n->where[i] & USM__PLACE_HOME; /* the caller's stay */
    }
    for (uint32_t i = 0; i < u->crew.n; i++)
        if (places & usm__place_bit(i + 1) && is_live(u, i))
            u->crew.ops->drop(u->crew.user, i, node);
}

void usm__units_reset(usm__graph_run *r, const usm__graph_range *range, bool is_home)
{
    uint64_t *where = r->g->nodes[range->node].where + range->first;

    for (uint32_t i = 0; i < range->count; i++)
        where[i] = is_home ? USM__PLACE_HOME : 0;
}

/* ---- who may take a task, and what it costs --------------------------------------------------- */

bool usm__units_can(const usm__graph_run *r, uint32_t member, const usm__graph_task *task)
{
    const usm__unit *unit = &r->units->unit[member - r->nlocal];

    return unit->has_come && !unit->is_lost && unit->can[task->node];
}

uint32_t usm__units_devices(const usm__graph_run *r)
{
    const usm__graph_units *u = r->units;
    uint32_t                n = 0;

    for (uint32_t i = 0; i < u->crew.n; i++)
        n += is_live(u, i) ? u->unit[i].devices : 0;
    return n;
}

bool usm__units_have(const usm__graph_run *r, uint32_t node)
{
    const usm__graph_units *u = r->units;

    for (uint32_t i = 0; i < u->crew.n; i++)
        if (is_live(u, i) && u->unit[i].can[node])
            return true;
    return false;
}

double usm__units_bring(const usm__graph_run *r, uint32_t member, const usm__graph_task *task)
{
    const usm__graph_units *u     = r->units;
    uint32_t                to    = place_of(r, member);
    usm__route              route = {{0}};

    for (uint32_t i = 0; i < r->g->nodes[task->node].ninputs; i++) {
        usm__graph_range       range = usm__units_input(r->g, task, i);
        const usm__graph_node *n     = &r->g->nodes[range.node];

        for (uint32_t b = range.first; b < range.first + range.count; b++)
            usm__route_add(&route, u->links, u->crew.n, n->where[b], usm__units_block(n), to);
    }
    return usm__route_seconds(&route, u->links, u->crew.n);
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* How many blocks from `first` on, before `end`, home has and the place lacks. */
static uint32_t run_to_send(const usm__graph_node *n, uint32_t first, uint32_t end, uint32_t to)
{
    uint32_t b = first;

    while (b < end && n->where[b] & USM__PLACE_HOME && !(n->where[b] & usm__place_bit(to)))
        b++;
    return b - first;
}

/* The same for blocks that home lacks, that a unit has, and that nobody was asked for. */
static uint32_t run_to_fetch(const usm__graph_node *n, uint32_t first, uint32_t end, uint32_t from)
{
    uint32_t b = first;

    while (b < end && !(n->where[b] & USM__PLACE_HOME) && !n->from[b] &&
           n->where[b] & usm__place_bit(from))
        b++;
    return b - first;
}

static void send(usm__graph_run *r, const usm__graph_range *range, uint32_t to)
{
    const usm__graph_node *n   = &r->g->nodes[range->node];
    size_t                 one = usm__units_block(n);

    r->units->crew.ops->send(r->units->crew.user, to - 1, range,
                             r->sim ? NULL : n->blocks + range->first * one, range->count * one);
    mark(r->g, range, usm__place_bit(to));
}

static void fetch(usm__graph_run *r, const usm__graph_range *range, uint32_t from)
{
    usm__graph_node *n = &r->g->nodes[range->node];

    r->units->crew.ops->fetch(r->units->crew.user, from - 1, range,
                              range->count * usm__units_block(n));
    memset(n->from + range->first, (int)from, range->count);
}

/* Brings one input to a place, as far as that is possible now.  Returns whether it is there. */
static bool gather_input(usm__graph_run *r, const usm__graph_range *input, uint32_t to)
{
    const usm__graph_units *u     = r->units;
    const usm__graph_node  *n     = &r->g->nodes[input->node];
    uint32_t                end   = input->first + input->count;
    bool                    whole = true;

    for (uint32_t b = input->first; b < end;) {
        usm__graph_range range = {input->node, b, 0};
        uint32_t         from;

        if (n->where[b] & usm__place_bit(to)) {
            b++;
            continue;
        }
        range.count = run_to_send(n, b, end, to);
        if (range.count) {
            send(r, &range, to);
            b += range.count;
            continue;
        }
        whole       = false;
        from        = usm__place_nearest(u->links, u->crew.n, n->where[b]);
        range.count = from ? run_to_fetch(n, b, end, from) : 0;
        if (range.count)
            fetch(r, &range, from);
        b += range.count ? range.count : 1;
    }
    return whole;
}

static bool gather(usm__graph_run *r, const usm__graph_task *task, uint32_t to)
{
    bool whole = true;

    for (uint32_t i = 0; i < r->g->nodes[task->node].ninputs; i++) {
        usm__graph_range input = usm__units_input(r->g, task, i);

        whole &= gather_input(r, &input, to);
    }
    return whole;
}

bool usm__units_bring_home(usm__graph_run *r, const usm__graph_task *task)
{
    return gather(r, task, 0);
}

static bool comes_back(const usm__graph_run *r, const usm__graph_task *task)
{
    return r->server || r->keep || r->g->nodes[task->node].nreaders == 0;
}

/* Everything is where the task was given to. */
static usm_status start(usm__graph_run *r, usm__graph_task *task)
{
    usm__graph_units *u     = r->units;
    uint32_t          place = place_of(r, task->member);
    usm__graph_range  range = usm__units_range(r->g, task);

    if (place == 0)
        return usm__graph_run_launch(r, task);
    u->busy++;
    u->crew.ops->run(u->crew.user, place - 1, task->part, &range,
                     range.count * r->g->nodes[task->node].desc.out_size, comes_back(r, task));
    return USM_OK;
}

usm_status usm__units_begin(usm__graph_run *r, usm__graph_task *task)
{
    usm__graph_units *u = r->units;

    if (gather(r, task, place_of(r, task->member)))
        return start(r, task);
    if (!usm__heap_room(&u->gathering, u->ngathering, &u->gathering_cap, sizeof(usm__graph_task *)))
        return out_of_memory();
    u->gathering[u->ngathering++] = task;
    u->busy++;
    return USM_OK;
}

void usm__units_ungather(usm__graph_units *u, uint32_t at)
{
    u->ngathering--;
    u->busy--;
    memmove(&u->gathering[at], &u->gathering[at + 1], (u->ngathering - at) * sizeof *u->gathering);
}

usm_status usm__units_advance(usm__graph_run *r)
{
    usm__graph_units *u  = r->units;
    usm_status        st = USM_OK;

    for (uint32_t at = 0; at < u->ngathering && st == USM_OK;) {
        usm__graph_task *task = u->gathering[at];

        if (!gather(r, task, place_of(r, task->member))) {
            at++;
            continue;
        }
        usm__units_ungather(u, at);
        st = start(r, task);
    }
    return st;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void on_came(usm__graph_run *r, const usm__unit_event *ev)
{
    usm__graph_units  *u    = r->units;
    usm__graph_member *m    = &r->members[r->nlocal + ev->unit];
    usm__unit         *unit = &u->unit[ev->unit];

    u->pending--;
    unit->has_come = true;
    unit->can      = ev->can;
    unit->devices  = ev->devices < 1 ? 1 : ev->devices < DEVICES_MAX ? ev->devices : DEVICES_MAX;
    m->is_well     = true;
    m->room        = unit->devices * (r->desc.no_prefetch ? 1 : 2);
    for (uint32_t i = 0; i < r->g->nnodes; i++)
        if (r->g->nodes[i].desc.kind == USM_NODE_PARTITION && r->g->nodes[i].ntasks)
            u->crew.ops->unroll(u->crew.user, ev->unit, i, r->g->nodes[i].nblocks);
}

static bool is_gathering(const usm__graph_units *u, const usm__graph_task *task)
{
    for (uint32_t i = 0; i < u->ngathering; i++)
        if (u->gathering[i] == task)
            return true;
    return false;
}

/* The task that an event of a unit is about, if the unit has it; NULL: the unit is given up. */
static usm__graph_task *task_of(usm__graph_run *r, const usm__unit_event *ev)
{
    usm__graph_units *u    = r->units;
    usm__graph_task  *task = NULL;

    if (ev->range.node < r->g->nnodes && ev->range.first < r->g->nodes[ev->range.node].ntasks)
        task = &r->g->nodes[ev->range.node].tasks[ev->range.first];
    if (task && task->state == USM__TASK_FLIES && task->member == r->nlocal + ev->unit &&
        !is_gathering(u, task))
        return task;
    u->crew.ops->give_up(u->crew.user, ev->unit, "it answers what it was not asked");
    return NULL;
}

static bool is_home(const usm_graph *g, const usm__graph_range *range)
{
    for (uint32_t i = 0; i < range->count; i++)
        if (!(g->nodes[range->node].where[range->first + i] & USM__PLACE_HOME))
            return false;
    return true;
}

static usm_status on_done(usm__graph_run *r, const usm__unit_event *ev)
{
    usm__graph_units  *u    = r->units;
    usm__graph_task   *task = task_of(r, ev);
    usm__graph_member *m    = &r->members[r->nlocal + ev->unit];
    usm__graph_range   range;
    double             work;

    if (!task)
        return USM_OK;
    range = usm__units_range(r->g, task);
    work  = r->g->nodes[task->node].desc.work;
    if (comes_back(r, task) && !is_home(r->g, &range)) {
        u->crew.ops->give_up(u->crew.user, ev->unit, "it keeps blocks that it was to send");
        return USM_OK;
    }
    u->busy--;
    usm__graph_run_uncharge(r, task);
    mark(r->g, &range, usm__place_bit(ev->unit + 1));
    if (ev->speed > 0 && ev->speed < 1e300)
        m->speed = ev->speed;
    m->ended++;
    r->done[r->nlocal + ev->unit] += work;
    r->stats.chunks++;
    if (r->server) {
        usm__graph_run_served(r, task, ev->busy_ns);
        return USM_OK;
    }
    if (r->keep)
        usm__graph_keep_save(r->keep, r->g, task);
    return usm__graph_run_complete(r, task);
}

static usm_status on_failed(usm__graph_run *r, const usm__unit_event *ev)
{
    usm__graph_task *task = task_of(r, ev);

    if (!task)
        return USM_OK;
    r->units->busy--;
    usm__graph_run_uncharge(r, task);
    (void)usm__fail(ev->status, "%s", ev->message);
    return usm__graph_run_fails(r, task, ev->status);
}

/* Whether bytes of a block are what its task has made, or makes on this unit now. */
static bool is_wanted(const usm__graph_run *r, const usm__unit_event *ev, uint32_t block)
{
    const usm__graph_node *n    = &r->g->nodes[ev->range.node];
    const usm__graph_task *task = &n->tasks[n->ntasks == 1 ? 0 : block];

    if ((!n->blocks && !r->sim) ||
        n->where[block] & USM__PLACE_HOME) /* a launch may be reading it */
        return false;
    return task->state == USM__TASK_DONE ||
           (task->state == USM__TASK_FLIES && task->member == r->nlocal + ev->unit);
}

/* The other side of the table has compared the range with what was asked for. */
static usm_status on_blocks(usm__graph_run *r, const usm__unit_event *ev)
{
    usm__graph_node *n   = &r->g->nodes[ev->range.node];
    size_t           one = usm__units_block(n);

    for (uint32_t i = 0; i < ev->range.count; i++) {
        uint32_t b = ev->range.first + i;

        n->from[b] = 0;
        if (!is_wanted(r, ev, b))
            continue;
        if (!r->sim)
            memcpy(n->blocks + b * one, ev->data + i * one, one);
        n->where[b] |= USM__PLACE_HOME;
    }
    return usm__units_advance(r);
}

static usm_status handle(usm__graph_run *r, const usm__unit_event *ev)
{
    r->units->links[ev->unit] = ev->link;
    switch (ev->kind) {
    case USM__UNIT_CAME:
        on_came(r, ev);
        break;
    case USM__UNIT_DONE:
        return on_done(r, ev);
    case USM__UNIT_FAILED:
        return on_failed(r, ev);
    case USM__UNIT_BLOCKS:
        return on_blocks(r, ev);
    case USM__UNIT_LOST:
        return usm__units_lose(r, ev->unit);
    }
    return USM_OK;
}

usm_status usm__units_handle(usm__graph_run *r)
{
    usm__graph_units *u  = r->units;
    usm__unit_event   ev = {.kind = USM__UNIT_CAME};
    usm_status        st = USM_OK;

    while (st == USM_OK && u->crew.ops->next(u->crew.user, &ev)) {
        st = handle(r, &ev);
        usm__heap_free(ev.data);
    }
    return st;
}
