/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A run of a graph: usm_graph_run().
 *
 *     ready tasks --choose--> flights on members --events--> mail --> done: readers become ready
 *
 * The calling thread does all of this, and sleeps until mail arrives.  Other threads only put ended
 * flights into the mail (graph_flight.c).  So this file needs no lock.
 *
 * A member that fails with a task is quarantined, and the task becomes ready again.  A member that
 * has no memory for a task is only not given that task again.  Errors of the graph (arguments,
 * sizes) would occur on every member: they end the run.
 *
 * Members after those of the team are units, processes elsewhere (graph_units.c).  A run with a
 * server executes the tasks that another process names: nothing becomes ready by itself.  It may have
 * units of its own, the other ranks of its job.
 *
 * A simulated run executes nothing, and has no bytes: launches end on a clock of their own.  A trial
 * executes a few launches of each node (graph_sim.h). */
#include "offload/graph_run.h"

#include "base/os.h"
#include "offload/graph_sim_state.h"
#include "offload/graph_units.h"

#include <stdio.h>
#include <string.h>

/* ---- ready tasks --------------------------------------------------------------------------- */

static usm_status out_of_memory(void)
{
    return usm__fail(USM_E_NO_MEMORY, "no host memory to run a graph");
}

/* Inserts by rank; tasks of one rank stay in the order of arrival. */
usm_status usm__graph_run_push(usm__graph_run *r, usm__graph_task *task)
{
    double   rank = r->g->nodes[task->node].rank;
    uint32_t at;

    if (!usm__heap_room(&r->ready, r->nready, &r->ready_cap, sizeof(usm__graph_task *)))
        return out_of_memory();
    for (at = r->nready; at > 0 && r->g->nodes[r->ready[at - 1]->node].rank < rank; at--)
        r->ready[at] = r->ready[at - 1];
    r->ready[at] = task;
    r->nready++;
    task->state = USM__TASK_READY;
    return USM_OK;
}

bool usm__graph_run_is_satisfied(const usm_graph *g, uint32_t node, uint32_t part)
{
    const usm__graph_node *n = &g->nodes[node];

    for (uint32_t i = 0; i < n->ninputs; i++) {
        const usm__graph_node *in = &g->nodes[n->inputs[i]];

        if (usm__graph_is_complete(in))
            continue;
        if (!usm__graph_by_part(g, node, n->inputs[i]) || in->ntasks != n->ntasks ||
            in->tasks[part].state != USM__TASK_DONE)
            return false;
    }
    return true;
}

static usm_status try_task(usm__graph_run *r, uint32_t node, uint32_t part)
{
    usm__graph_node *n  = &r->g->nodes[node];
    usm_status       st = USM_OK;

    if (n->tasks[part].state != USM__TASK_WAITS || !usm__graph_run_is_satisfied(r->g, node, part))
        return USM_OK;
    if (r->trial && part >= r->trial->launches)
        return USM_OK; /* it will count as ended: end_untried() */
    if (!r->sim)
        st = usm__graph_make_room(n);
    return st == USM_OK ? usm__graph_run_push(r, &n->tasks[part]) : st;
}

usm_status usm__graph_run_try(usm__graph_run *r, uint32_t node)
{
    usm__graph_node *n  = &r->g->nodes[node];
    usm_status       st = USM_OK;

    if (n->ntasks == 0 && n->desc.kind == USM_NODE_PARTITION &&
        usm__graph_run_is_satisfied(r->g, node, 0)) {
        st = usm__graph_unroll_all(r->g, node, usm__graph_parts(r->g, node));
        if (st == USM_OK && r->units)
            st = usm__units_unrolled(r, node);
    }
    for (uint32_t i = 0; i < n->ntasks && st == USM_OK; i++)
        st = try_task(r, node, i);
    return st;
}

static void release_inputs(usm__graph_run *r, const usm__graph_node *n)
{
    usm_graph *g = r->g;

    for (uint32_t i = 0; i < n->ninputs; i++) {
        usm__graph_node *in = &g->nodes[n->inputs[i]];

        if (--in->readers_left > 0)
            continue;
        if (r->units)
            usm__units_release(r, n->inputs[i]);
        if (!in->memory)
            continue;
        usm__heap_free(in->memory);
        in->memory = NULL;
        in->blocks = NULL;
    }
}

usm_status usm__graph_run_complete(usm__graph_run *r, usm__graph_task *task)
{
    usm_graph       *g  = r->g;
    usm__graph_node *n  = &g->nodes[task->node];
    usm_status       st = USM_OK;

    task->state = USM__TASK_DONE;
    n->ndone++;
    if (usm__graph_is_complete(n))
        release_inputs(r, n);
    for (uint32_t i = g->first_reader[task->node]; i < g->first_reader[task->node + 1]; i++) {
        uint32_t reader = g->readers[i];

        if (st != USM_OK)
            break;
        if (usm__graph_is_complete(n))
            st = usm__graph_run_try(r, reader);
        else if (usm__graph_by_part(g, reader, task->node) && g->nodes[reader].ntasks)
            st = try_task(r, reader, task->part);
    }
    return st;
}

/* ---- members --------------------------------------------------------------------------------- */

static bool may_take(const usm__graph_run *r, uint32_t member, const usm__graph_task *task)
{
    const usm_team_kernel *k = r->g->nodes[task->node].desc.kernel;

    if (!r->members[member].is_well || (task->tried && task->tried[member]))
        return false;
    if (r->trial && k->kernels[r->trial->member])
        return member == r->trial->member;
    return member < r->nlocal ? k->kernels[member] != NULL : usm__units_can(r, member, task);
}

/* No member is left for the task. */
static usm_status fail_task(usm__graph_run *r, const usm__graph_task *task)
{
    const char *name = r->g->nodes[task->node].desc.name;

    if (r->failure == USM_OK)
        return usm__fail(USM_E_NO_IMAGE, "no healthy device%s has an image of node '%s'",
                         r->policy == USM__GRAPH_ENERGY ? ", and known to keep under the cap," : "",
                         name);
    return usm__fail(r->failure,
                     "node '%s' fails on every device that could do it; the last said: %s", name,
                     r->message);
}

/* Errors that would occur on every member.  What a unit says does not end a run. */
static bool is_of_graph(const usm__graph_run *r, uint32_t member, usm_status status)
{
    return member < r->nlocal &&
           (status == USM_E_ARGUMENTS || status == USM_E_INVALID || status == USM_E_SIZE);
}

usm_status usm__graph_run_fails(usm__graph_run *r, usm__graph_task *task, usm_status status)
{
    const usm__graph_node *n      = &r->g->nodes[task->node];
    uint32_t               member = task->member;
    char                   message[sizeof r->message];

    (void)snprintf(message, sizeof message, "%s", usm_last_error());
    if (is_of_graph(r, member, status))
        return usm__fail(status, "node '%s' on %s: %s", n->desc.name,
                         r->places[member].member->name, message);
    r->failure = status;
    memcpy(r->message, message, sizeof message);
    if (status == USM_E_NO_MEMORY || status == USM_E_BUDGET || member >= r->nlocal) {
        if (!task->tried)
            task->tried = usm__heap_alloc(r->nmembers * sizeof *task->tried);
        if (!task->tried)
            return out_of_memory();
        task->tried[member] = true;
        if (member < r->nlocal)
            usm__team_set_why(r->g->team, member, message);
    } else {
        (void)usm__fail(status, "node '%s': %s", n->desc.name, message);
        usm__team_set_aside(r->g->team, member, status);
        r->members[member].is_well = false;
    }
    r->stats.rescheduled++;
    task->member = USM__NOBODY;
    return usm__graph_run_push(r, task);
}

/* A failed task; whoever told this unit to execute it gives it to another. */
static usm_status on_failure(usm__graph_run *r, usm__graph_task *task, usm_status status)
{
    if (!r->server || !is_of_graph(r, task->member, status))
        return usm__graph_run_fails(r, task, status);
    task->state = USM__TASK_WAITS;
    r->server->failed(r->server->user, task, status, usm_last_error());
    return USM_OK;
}

usm_status usm__graph_run_set_aside(usm__graph_run *r, usm__graph_node *n)
{
    if (!n->memory)
        return USM_OK;
    if (!usm__heap_room(&r->old, r->nold, &r->old_cap, sizeof *r->old))
        return out_of_memory();
    r->old[r->nold++] = n->memory;
    n->memory         = NULL;
    n->blocks         = NULL;
    return USM_OK;
}

void usm__graph_run_uncharge(usm__graph_run *r, const usm__graph_task *task)
{
    usm__graph_member *m = &r->members[task->member];

    m->room++;
    m->flying -= r->g->nodes[task->node].desc.work;
    if (--m->tasks == 0)
        m->flying = 0; /* no rounding error is left */
}

usm_status usm__graph_run_launch(usm__graph_run *r, usm__graph_task *task)
{
    usm_status st = r->sim ? usm__sim_begin(r, task)
                           : usm__graph_flight_begin(r->g, task, &r->places[task->member], r->mail);

    if (st == USM_OK) {
        r->flying++;
        usm__meter_begin(r->g->team->meter, task->member);
        return USM_OK;
    }
    usm__graph_run_uncharge(r, task);
    return on_failure(r, task, st);
}

static usm_status give(usm__graph_run *r, usm__graph_task *task, uint32_t member)
{
    usm__graph_member *m    = &r->members[member];
    double             work = r->g->nodes[task->node].desc.work;

    task->state  = USM__TASK_FLIES;
    task->member = member;
    m->room--;
    m->tasks++;
    m->flying += work;
    m->given += work;
    return r->units ? usm__units_begin(r, task) : usm__graph_run_launch(r, task);
}

/* USM__NOBODY: no member now, or no member ever (*is_hopeless). */
static uint32_t choose(usm__graph_run *r, const usm__graph_task *task, bool *is_hopeless)
{
    *is_hopeless = true;
    for (uint32_t i = 0; i < r->nmembers; i++) {
        r->members[i].may = may_take(r, i, task);
        *is_hopeless &= !r->members[i].may;
        if (r->units && r->members[i].may)
            r->members[i].bring = usm__units_bring(r, i, task);
    }
    *is_hopeless &= !r->units || !usm__units_expect(r);
    return usm__graph_choose(r->policy, &r->desc.policy, r->members, r->nmembers,
                             r->g->nodes[task->node].desc.work, r->nready);
}

/* ---- tasks for members ----------------------------------------------------------------------- */

static bool has_room(const usm__graph_run *r)
{
    for (uint32_t i = 0; i < r->nmembers; i++)
        if (r->members[i].is_well && r->members[i].room)
            return true;
    return false;
}

/* Most ready tasks that feed() looks at although they wait for a busy member. */
#define MOST_REFUSED 64

static void drop_ready(usm__graph_run *r, uint32_t at)
{
    r->nready--;
    memmove(&r->ready[at], &r->ready[at + 1], (r->nready - at) * sizeof *r->ready);
}

/* A task that no member can execute ends the run; a server says so, and goes on. */
static usm_status on_hopeless(usm__graph_run *r, uint32_t at)
{
    usm__graph_task *task = r->ready[at];
    usm_status       st   = fail_task(r, task);

    if (!r->server || st == USM_OK)
        return st;
    drop_ready(r, at);
    task->state = USM__TASK_WAITS;
    r->server->failed(r->server->user, task, st, usm_last_error());
    return USM_OK;
}

/* First one for each member, then further ones, up to `depth`, whose inputs are copied
 * meanwhile. */
usm_status usm__graph_run_feed(usm__graph_run *r)
{
    usm_status st      = USM_OK;
    uint32_t   refused = 0;

    for (uint32_t at = 0; at < r->nready && refused < MOST_REFUSED && has_room(r);) {
        usm__graph_task *task = r->ready[at];
        bool             is_hopeless;
        uint32_t         member;

        if (r->g->nodes[task->node].desc.kind == USM_NODE_CALL) {
            at++;
            continue;
        }
        member = choose(r, task, &is_hopeless);
        if (member == USM__NOBODY && !is_hopeless) {
            refused++;
            at++;
            continue;
        }
        if (is_hopeless) {
            st = on_hopeless(r, at);
        } else {
            drop_ready(r, at);
            st = give(r, task, member);
        }
        if (st != USM_OK)
            return st;
    }
    return st;
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* The first launch of a kernel on a device includes its compilation: it counts only until there is
 * another. */
static uint64_t measure(usm__graph_run *r, usm__graph_flight *f)
{
    uint32_t           member = f->task->member;
    usm__graph_member *m      = &r->members[member];
    usm__graph_place  *p      = f->place;
    double             work   = r->g->nodes[f->task->node].desc.work;
    bool              *warm   = &r->is_warm[(size_t)f->task->node * r->nmembers + member];
    uint64_t           begin  = f->begin_ns > p->last_end_ns ? f->begin_ns : p->last_end_ns;
    uint64_t           busy   = f->end_ns > begin ? f->end_ns - begin : 1;
    double             speed  = work / (double)busy * 1e9;

    if (m->speed <= 0 || (r->is_cold[member] && *warm)) {
        m->speed           = speed;
        r->is_cold[member] = !*warm;
    } else if (*warm) {
        m->speed = (m->speed + speed) / 2;
    }
    *warm = true;
    if (f->end_ns > p->last_end_ns)
        p->last_end_ns = f->end_ns;
    m->ended++;
    r->done[member] += work;
    usm__team_add(r->g->team, member, 1, 0, busy, 0);
    return busy;
}

/* Work per second of all members together. */
static double speed_of_all(const usm__graph_run *r)
{
    double sum = 0;

    for (uint32_t i = 0; i < r->nmembers; i++)
        sum += r->members[i].is_well ? r->members[i].speed : 0;
    return sum;
}

void usm__graph_run_served(usm__graph_run *r, usm__graph_task *task, uint64_t busy_ns)
{
    task->state = USM__TASK_DONE;
    r->server->done(r->server->user, task, busy_ns, speed_of_all(r));
}

static usm_status on_flight(usm__graph_run *r, usm__graph_flight *f)
{
    usm__graph_task *task = f->task;
    uint64_t         busy;
    usm_status       st;

    r->flying--;
    usm__graph_run_uncharge(r, task);
    if (f->status < 0) {
        usm_status status = f->status;

        (void)usm__fail(status, "%s", f->message);
        return on_failure(r, task, status);
    }
    busy = measure(r, f);
    r->stats.chunks++;
    r->stats.bytes_in += f->bytes_in;
    r->stats.bytes_out += f->bytes_out;
    if (r->units)
        usm__units_made_here(r, task);
    if (r->server) {
        usm__graph_run_served(r, task, busy);
        return USM_OK;
    }
    if (r->keep)
        usm__graph_keep_save(r->keep, r->g, task);
    if (!r->trial)
        return usm__graph_run_complete(r, task);
    usm__trial_note(r->trial, task->node, (double)busy / 1e9);
    st = usm__graph_run_complete(r, task);
    return st == USM_OK ? usm__trial_end(r, task->node) : st;
}

/* The first failure ends the run; flights in progress are still waited for. */
usm_status usm__graph_run_take(usm__graph_run *r, uint64_t deadline_ns, usm_status st)
{
    usm__graph_flight *f;

    if (r->sim && st == USM_OK && usm__sim_unit_is_next(r->sim))
        return r->sim->status;
    f = r->sim ? usm__sim_take(r) : usm__graph_mail_take(r->mail, deadline_ns);
    while (f) {
        usm__graph_flight *next = f->next;

        usm__meter_end(r->g->team->meter, &r->metering, f->task->node, f->place->member->index,
                       f->end_ns);
        if (st == USM_OK)
            st = on_flight(r, f);
        else
            r->flying--;
        usm__graph_flight_free(f);
        f = next;
    }
    return st;
}

/* Executes what it is told to, until the server says that it is the end. */
static usm_status serve(usm__graph_run *r)
{
    usm_status st = USM_OK;

    while (st == USM_OK && r->server->handle(r->server->user, r)) {
        st = usm__graph_run_feed(r);
        if (st == USM_OK)
            st = usm__graph_run_take(r, 0, st);
        if (st == USM_OK && r->units)
            st = usm__units_handle(r);
    }
    return st;
}

/* Whether a call waits for blocks from units: without units all calls that are ready are made. */
static bool has_call(const usm__graph_run *r)
{
    for (uint32_t i = 0; i < r->nready; i++)
        if (r->g->nodes[r->ready[i]->node].desc.kind == USM_NODE_CALL)
            return true;
    return false;
}

/* Whether nothing is under way, and nothing will come. */
static bool is_at_end(const usm__graph_run *r)
{
    if (r->flying || (r->units && usm__units_busy(r)) || has_call(r))
        return false;
    return !(r->nready && r->units && usm__units_expect(r));
}

static usm_status work(usm__graph_run *r)
{
    usm_status st = USM_OK;

    for (uint32_t i = 0; i < r->g->nnodes && st == USM_OK; i++)
        st = usm__graph_run_try(r, r->g->order[i]);
    while (st == USM_OK) {
        bool made = false;

        st = usm__graph_run_feed(r);
        if (st == USM_OK)
            st = usm__graph_run_calls(r, &made);
        if (st == USM_OK && made) {
            st = usm__graph_progress_notify(r, false);
            continue; /* devices are given what calls have made ready */
        }
        if (st == USM_OK && is_at_end(r)) {
            if (r->nready)
                st = fail_task(r, r->ready[0]); /* no member works */
            break;
        }
        if (st == USM_OK)
            st = usm__graph_run_take(r, usm__graph_progress_due(r), st);
        if (st == USM_OK && r->units)
            st = usm__units_handle(r);
        if (st == USM_OK)
            st = usm__graph_progress_notify(r, false);
    }
    return st;
}

static usm_status run(usm__graph_run *r)
{
    usm_status   st = r->server ? serve(r) : work(r);
    usm__message message;

    usm__message_save(&message);
    while (r->flying)
        (void)usm__graph_run_take(r, 0, USM_E_CANCELLED);
    usm__message_restore(&message);
    return st;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static usm_status open_place(usm__graph_run *r, uint32_t i)
{
    usm__graph_place *p = &r->places[i];
    usm_status        st;

    r->members[i].is_well = usm__team_is_well(r->g->team, i);
    if (!r->members[i].is_well || r->sim)
        return USM_OK;
    st = usm_queue_create(p->member->context, p->member->device, NULL, &p->compute);
    if (st == USM_OK)
        st = usm_queue_create(p->member->context, p->member->device, NULL, &p->copies);
    return st;
}

static usm_status open_places(usm__graph_run *r, uint32_t nunits)
{
    usm_team         *team  = r->g->team;
    const usm_policy *p     = &r->desc.policy;
    uint32_t          depth = team->depth > 2 ? team->depth : 2;
    usm_status        st    = USM_OK;

    r->nlocal   = team->nmembers;
    r->nmembers = team->nmembers + nunits;
    r->places   = usm__heap_alloc(r->nlocal * sizeof *r->places);
    r->members  = usm__heap_alloc(r->nmembers * sizeof *r->members);
    r->done     = usm__heap_alloc(r->nmembers * sizeof *r->done);
    r->shares   = usm__heap_alloc(r->nmembers * sizeof *r->shares);
    r->is_cold  = usm__heap_alloc(r->nmembers * sizeof *r->is_cold);
    r->is_warm  = usm__heap_alloc((size_t)r->g->nnodes * r->nmembers * sizeof *r->is_warm);
    r->mail     = usm__graph_mail_create();
    if (!r->places || !r->members || !r->done || !r->shares || !r->is_cold || !r->is_warm ||
        !r->mail)
        return out_of_memory();
    for (uint32_t i = 0; i < r->nmembers; i++)
        r->members[i].weight = i < p->nweights ? p->weights[i] : 1;
    for (uint32_t i = 0; i < r->nlocal && st == USM_OK; i++) {
        r->places[i].member = &team->members[i];
        r->members[i].room  = r->desc.no_prefetch ? 1 : depth;
        st                  = open_place(r, i);
    }
    return st == USM_OK && r->policy == USM__GRAPH_ENERGY ? usm__graph_run_find_watts(r) : st;
}

/* Unrolls everything that is known in advance; inputs are done. */
static usm_status prepare(usm__graph_run *r)
{
    usm_graph *g  = r->g;
    usm_status st = USM_OK;

    usm__graph_clear(g);
    g->has_tasks = true;
    for (uint32_t i = 0; i < g->nnodes && st == USM_OK; i++) {
        usm__graph_node *n = &g->nodes[i];

        if (n->partitioner != USM__NOBODY)
            continue;
        st = usm__graph_unroll(g, i, 0);
        if (st != USM_OK || n->desc.kind != USM_NODE_INPUT)
            continue;
        n->ndone          = 1;
        n->tasks[0].state = USM__TASK_DONE;
    }
    if (st == USM_OK && r->desc.resume)
        st = usm__graph_keep_open(g, r->desc.resume, r->desc.resume_key, &r->keep);
    if (st == USM_OK && r->keep)
        st = usm__graph_restore(g, r->keep, &r->stats.resumed);
    for (uint32_t i = 0; i < g->nnodes; i++)
        g->nodes[i].readers_left = g->nodes[i].nreaders;
    for (uint32_t i = 0; i < g->nnodes && st == USM_OK && r->units; i++)
        if (g->nodes[i].ntasks &&
            (g->nodes[i].partitioner == USM__NOBODY || g->nodes[i].desc.kind == USM_NODE_PARTITION))
            st = usm__units_unrolled(r, i);
    for (uint32_t i = 0; i < g->nnodes; i++)
        if (usm__graph_is_complete(&g->nodes[i]))
            release_inputs(r, &g->nodes[i]);
    return st;
}

static void finish(usm__graph_run *r, uint64_t begin_ns, usm_parallel_stats *stats)
{
    uint64_t first = UINT64_MAX, last = 0;

    for (uint32_t i = 0; i < r->nlocal && r->places; i++) {
        usm__graph_place *p = &r->places[i];

        usm_queue_destroy(p->compute);
        usm_queue_destroy(p->copies);
        if (p->last_end_ns == 0)
            continue;
        first = p->last_end_ns < first ? p->last_end_ns : first;
        last  = p->last_end_ns > last ? p->last_end_ns : last;
    }
    r->stats.wall_ns = usm__os_now_ns() - begin_ns;
    if (last > first)
        r->stats.spread = (double)(last - first) / (double)r->stats.wall_ns;
    if (stats) {
        r->stats.struct_size = stats->struct_size;
        *stats               = r->stats;
    }
    if (r->mail)
        usm__graph_mail_drop(r->mail);
    for (uint32_t i = 0; i < r->nold; i++)
        usm__heap_free(r->old[i]);
    usm__heap_free(r->old);
    usm__heap_free(r->places);
    usm__heap_free(r->members);
    usm__heap_free(r->done);
    usm__heap_free(r->shares);
    usm__heap_free(r->is_cold);
    usm__heap_free(r->is_warm);
    usm__heap_free(r->ready);
}

static usm_status check_call(usm_graph *g, const usm_graph_run_desc *desc,
                             const usm_parallel_stats *stats)
{
    usm_status st = usm__handle_check(g, USM__MAGIC_GRAPH);

    if (st == USM_OK)
        st = usm__team_check_fork(g->team);
    if (st == USM_OK && desc)
        st = usm__struct_check("usm_graph_run", "desc", desc, sizeof *desc,
                               "USM_GRAPH_RUN_DESC_INIT");
    if (st == USM_OK && stats)
        st = usm__struct_check("usm_graph_run", "stats", stats, sizeof *stats,
                               "USM_PARALLEL_STATS_INIT");
    return st;
}

static usm_status run_checked(usm__graph_run *r, const usm__unit_crew *crew,
                              usm_parallel_stats *stats)
{
    usm_graph   *graph = r->g;
    usm_status   st;
    usm__message message;

    r->begin_ns = usm__os_now_ns();
    usm__team_enter(graph->team);
    st = usm__graph_policy_find(&r->desc.policy, &r->policy);
    if (st == USM_OK)
        st = open_places(r, crew ? crew->n : 0);
    if (st == USM_OK && crew)
        st = usm__units_open(r, crew);
    if (st == USM_OK && r->server)
        r->server->attach(r->server->user, r->mail);
    if (st == USM_OK)
        st = prepare(r);
    if (st == USM_OK)
        st = usm__meter_open(graph->team->meter, graph->nnodes, &r->metering);
    if (st == USM_OK)
        st = run(r);
    if (st == USM_OK)
        st = usm__graph_progress_notify(r, true);
    usm__message_save(&message);
    if (r->units)
        usm__units_close(r);
    if (r->server)
        r->server->attach(r->server->user, NULL);
    usm__graph_keep_close(r->keep, st == USM_OK);
    usm__graph_run_count_energy(r);
    finish(r, r->begin_ns, stats);
    usm__team_leave(graph->team);
    if (st != USM_OK)
        usm__message_restore(&message);
    graph->has_run = st == USM_OK;
    return st;
}

static usm_status begin(usm__graph_run *r, const usm_graph_run_desc *desc,
                        const usm__unit_crew *crew, usm_parallel_stats *stats)
{
    usm_graph *graph = r->g;
    usm_status st    = check_call(graph, desc, stats);

    if (st != USM_OK)
        return st;
    if (usm_swap_acq_rel(&graph->is_running, true))
        return usm__fail(USM_E_BUSY, "usm_graph_run: the graph is running");
    if (desc)
        r->desc = *desc;
    st = usm__graph_check(graph);
    if (st == USM_OK)
        st = run_checked(r, crew, stats);
    usm_store_release(&graph->is_running, false);
    return st;
}

usm_status usm_graph_run(usm_graph *graph, const usm_graph_run_desc *desc,
                         usm_parallel_stats *stats)
{
    return usm__graph_run_with(graph, desc, NULL, stats);
}

usm_status usm__graph_run_with(usm_graph *graph, const usm_graph_run_desc *desc,
                               const usm__unit_crew *crew, usm_parallel_stats *stats)
{
    usm__graph_run r = {.g = graph, .desc = USM_GRAPH_RUN_DESC_INIT};

    return begin(&r, desc, crew, stats);
}

usm_status usm__graph_serve(usm_graph *graph, const usm__graph_server *server,
                            const usm__unit_crew *crew)
{
    usm__graph_run r = {.g = graph, .desc = USM_GRAPH_RUN_DESC_INIT, .server = server};

    return begin(&r, NULL, crew, NULL);
}

usm_status usm__graph_run_simulated(usm_graph *graph, usm__graph_sim *sim,
                                    usm_parallel_stats *stats)
{
    usm__graph_run r = {.g = graph, .desc = USM_GRAPH_RUN_DESC_INIT, .sim = sim};
    usm__unit_crew crew;
    usm_status     st = usm__graph_check(graph);

    r.desc.policy      = sim->desc->policy;
    r.desc.no_prefetch = sim->desc->no_prefetch;
    sim->run           = &r;
    if (st == USM_OK && sim->desc->nunits)
        st = usm__sim_units_open(sim, graph, &crew);
    if (st == USM_OK)
        st = run_checked(&r, sim->desc->nunits ? &crew : NULL, stats);
    usm__sim_units_close(sim);
    return st;
}

usm_status usm__graph_run_trial(usm_graph *graph, usm__graph_trial *trial)
{
    usm__graph_run r = {.g = graph, .desc = USM_GRAPH_RUN_DESC_INIT, .trial = trial};

    return begin(&r, NULL, NULL, NULL);
}
