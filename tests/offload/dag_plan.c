/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See dag.h.  Here: plans from seeds, and how they are written down. */
#include "dag.h"

#include <stdio.h>

uint64_t dag_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

size_t dag_pick(uint64_t *state, size_t n)
{
    return (size_t)(dag_random(state) >> 11) % n;
}

/* ---- places ------------------------------------------------------------------------------ */

/* Few and small ones, so that most operations meet. */
static void make_places(dag_plan *plan, uint64_t *rnd)
{
    unsigned nbuffers = 1 + (unsigned)dag_pick(rnd, 5);
    size_t   most     = (size_t)8 << dag_pick(rnd, 10);

    plan->nplaces = nbuffers + 4;
    for (unsigned i = 0; i < plan->nplaces; i++) {
        dag_place *p = &plan->places[i];

        p->kind = i < nbuffers ? DAG_BUFFER : i < nbuffers + 2 ? DAG_USM : DAG_HEAP;
        p->ctx  = p->kind == DAG_USM ? i % 2 : (unsigned)dag_pick(rnd, 2);
        p->size = most / 2 + 1 + dag_pick(rnd, most);
        if (p->kind != DAG_BUFFER)
            continue;
        p->has_user_data = dag_pick(rnd, 3) == 0;
        if (dag_pick(rnd, 3) == 0) {
            p->sub_begin = dag_pick(rnd, p->size);
            p->sub_size  = 1 + dag_pick(rnd, p->size - p->sub_begin);
        }
    }
}

/* ---- operations ---------------------------------------------------------------------------- */

bool dag_uses_conflict(const dag_op *a, const dag_use *u, const dag_op *b, const dag_use *v)
{
    return u->place == v->place && u->offset < v->offset + b->n && v->offset < u->offset + a->n &&
           ((u->mode | v->mode) & USM_WRITE);
}

static bool is_reachable(const dag_plan *plan, const dag_op *op, unsigned place, unsigned kinds)
{
    const dag_place *p = &plan->places[place];

    return (p->kind & kinds) != 0 &&
           (p->kind != DAG_USM || op->is_task || op->kind >= DAG_FILL || p->ctx == op->queue % 2);
}

static usm_access_mode any_mode(uint64_t *rnd, usm_access_mode least)
{
    static const usm_access_mode writes[] = {USM_WRITE, USM_WRITE, USM_WRITE_NO_INIT,
                                             USM_READ_WRITE};

    if (least == USM_WRITE)
        return writes[dag_pick(rnd, 4)];
    return least == USM_READ && dag_pick(rnd, 12) > 0 ? USM_READ : USM_READ_WRITE;
}

/* Places, then one size that fits into all, then offsets; false: they are in each other's way. */
static bool pick_uses(const dag_plan *plan, dag_op *op, uint64_t *rnd, unsigned kinds,
                      const usm_access_mode *modes)
{
    size_t least = SIZE_MAX;

    for (unsigned i = 0; i < op->nuses; i++) {
        dag_use *u = &op->uses[i];

        do
            u->place = (unsigned)dag_pick(rnd, plan->nplaces);
        while (!is_reachable(plan, op, u->place, kinds));
        u->mode   = any_mode(rnd, modes[i]);
        u->by_sub = dag_pick(rnd, 2);
        if (plan->places[u->place].size < least)
            least = plan->places[u->place].size;
    }
    op->n = dag_pick(rnd, 4) == 0 ? least : 1 + dag_pick(rnd, least);
    for (unsigned i = 0; i < op->nuses; i++)
        op->uses[i].offset = dag_pick(rnd, plan->places[op->uses[i].place].size - op->n + 1);
    /* An item may well read what it writes. */
    if (op->kind == DAG_MIX && dag_pick(rnd, 16) == 0)
        op->uses[1] = op->uses[0];
    if (op->kind == DAG_MIX && op->uses[0].place == op->uses[1].place &&
        op->uses[0].offset == op->uses[1].offset)
        return true;
    for (unsigned i = 0; i < op->nuses; i++)
        for (unsigned k = 0; k < i; k++)
            if (dag_uses_conflict(op, &op->uses[i], op, &op->uses[k]))
                return false;
    return true;
}

static bool make_kernel(const dag_plan *plan, dag_op *op, uint64_t *rnd)
{
    static const unsigned        nuses[]    = {2, 3, 1, 2};
    static const usm_access_mode modes[][3] = {{USM_READ_WRITE, USM_READ, 0},
                                               {USM_WRITE, USM_READ, USM_READ},
                                               {USM_WRITE, 0, 0},
                                               {USM_READ_WRITE, USM_READ_WRITE, 0}};
    static const unsigned        tasks[]    = {DAG_BUFFER, DAG_USM | DAG_HEAP,
                                               DAG_BUFFER | DAG_USM | DAG_HEAP};
    unsigned                     which      = (unsigned)dag_pick(rnd, 4);
    unsigned                     kinds;

    op->kind    = (dag_kind)(DAG_MIX + which);
    op->nuses   = nuses[which];
    op->step    = 1 + (uint32_t)dag_pick(rnd, 4);
    op->is_task = dag_pick(rnd, 4) == 0;
    kinds       = op->is_task             ? tasks[dag_pick(rnd, 3)]
                  : dag_pick(rnd, 4) == 0 ? DAG_USM | DAG_BUFFER
                                          : DAG_BUFFER;
    return pick_uses(plan, op, rnd, kinds, modes[which]);
}

static bool make_memory(const dag_plan *plan, dag_op *op, uint64_t *rnd)
{
    static const usm_access_mode modes[] = {USM_WRITE, USM_READ, 0};
    bool                         is_fill = dag_pick(rnd, 2);
    bool                         plain   = dag_pick(rnd, 3) == 0;
    /* A fill works on what the device can use. */
    unsigned kinds = !plain ? DAG_BUFFER : is_fill ? DAG_USM : DAG_USM | DAG_HEAP;

    op->kind  = is_fill ? DAG_FILL : DAG_COPY;
    op->nuses = is_fill ? 1 : 2;
    op->step  = 1 + (uint32_t)dag_pick(rnd, 4);
    if (!pick_uses(plan, op, rnd, kinds, modes))
        return false;
    if (is_fill)
        op->n -= op->n % op->step;
    for (unsigned i = 0; i < op->nuses; i++) /* they use all of it */
        op->uses[i].mode = i == 0 ? USM_WRITE_NO_INIT : USM_READ;
    return op->n > 0;
}

static bool make_access(const dag_plan *plan, dag_op *op, uint64_t *rnd)
{
    static const usm_access_mode all[] = {
        USM_READ, USM_READ, USM_WRITE, USM_WRITE_NO_INIT, USM_READ_WRITE, USM_READ_WRITE_NO_INIT};
    usm_access_mode modes[DAG_USES] = {USM_READ, USM_READ, USM_READ};

    op->kind       = DAG_ACCESS;
    op->nuses      = dag_pick(rnd, 3) == 0 ? 2 + (unsigned)dag_pick(rnd, 2) : 1;
    op->is_async   = op->nuses == 1 && dag_pick(rnd, 3) == 0;
    op->no_wait    = !op->is_async && dag_pick(rnd, 5) == 0;
    op->open_until = op->id + (dag_pick(rnd, 2) ? 1 + (unsigned)dag_pick(rnd, 6) : 0);
    op->step       = 1 + (uint32_t)dag_pick(rnd, 3);
    if (!pick_uses(plan, op, rnd, DAG_BUFFER, modes))
        return false;
    for (unsigned i = 0; i < op->nuses; i++)
        op->uses[i].mode = all[dag_pick(rnd, 6)];
    for (unsigned i = 0; i < op->nuses; i++)
        for (unsigned k = 0; k < i; k++)
            if (dag_uses_conflict(op, &op->uses[i], op, &op->uses[k]))
                return false;
    return true;
}

static bool make_other(const dag_plan *plan, dag_op *op, uint64_t *rnd)
{
    static const usm_access_mode modes[] = {USM_READ, 0, 0};

    op->step = (uint32_t)dag_pick(rnd, 5);
    switch (dag_pick(rnd, 4)) {
    case 0:
        op->kind = DAG_WAIT;
        return true;
    case 1:
        op->kind  = DAG_ADVISE;
        op->nuses = 1;
        return pick_uses(plan, op, rnd, DAG_BUFFER, modes);
    default:
        op->kind = DAG_BARRIER;
        return true;
    }
}

static bool make_op(const dag_plan *plan, dag_op *op, uint64_t *rnd)
{
    size_t which = dag_pick(rnd, 24);

    if (which < 13)
        return make_kernel(plan, op, rnd);
    if (which < 18)
        return make_memory(plan, op, rnd);
    return which < 21 ? make_access(plan, op, rnd) : make_other(plan, op, rnd);
}

void dag_plan_make(dag_plan *plan, uint64_t seed)
{
    uint64_t rnd = (seed + 1) * 0x9e3779b97f4a7c15u;
    unsigned gated, nqueues;

    *plan = (dag_plan){.seed = seed};
    for (int i = 0; i < 4; i++)
        (void)dag_random(&rnd);
    make_places(plan, &rnd);
    gated      = (unsigned)dag_pick(&rnd, 4); /* in three: never, to each                    */
    nqueues    = 1 + (unsigned)dag_pick(&rnd, DAG_QUEUES);
    plan->nops = 4 + (unsigned)dag_pick(&rnd, DAG_OPS - 3);
    for (unsigned i = 0; i < plan->nops; i++)
        do {
            plan->ops[i] = (dag_op){.id       = i,
                                    .queue    = DAG_QUEUES - 1 - (unsigned)dag_pick(&rnd, nqueues),
                                    .is_gated = dag_pick(&rnd, 3) < gated,
                                    .value    = (uint32_t)dag_random(&rnd),
                                    .random   = dag_random(&rnd)};
        } while (!make_op(plan, &plan->ops[i], &rnd));
}

void dag_plan_keep(dag_plan *plan, uint64_t ids)
{
    unsigned n = 0;

    for (unsigned i = 0; i < plan->nops; i++)
        if (ids >> plan->ops[i].id & 1)
            plan->ops[n++] = plan->ops[i];
    plan->nops = n;
}

/* ---- written down ---------------------------------------------------------------------------- */

static char packet(const dag_plan *plan, unsigned place)
{
    dag_place_kind kind = plan->places[place].kind;

    return kind == DAG_BUFFER ? 'b' : kind == DAG_USM ? 'u' : 'h';
}

void dag_plan_print_places(const dag_plan *plan)
{
    for (unsigned i = 0; i < plan->nplaces; i++) {
        const dag_place *p = &plan->places[i];

        printf("# %c%u: %zu bytes of %s, context %u%s", packet(plan, i), i, p->size,
               p->kind == DAG_BUFFER ? "a buffer"
               : p->kind == DAG_USM  ? "host USM"
                                     : "the heap",
               p->ctx, p->has_user_data ? ", over the program's memory" : "");
        if (p->sub_size)
            printf(", a sub-buffer at [%zu, +%zu)", p->sub_begin, p->sub_size);
        printf("\n");
    }
}

static void print_mode(usm_access_mode mode)
{
    printf("%s%s%s", mode & USM_READ ? "R" : "", mode & USM_WRITE ? "W" : "",
           mode & USM_NO_INIT ? ",no_init" : "");
}

void dag_plan_print_op(const dag_plan *plan, const dag_op *op)
{
    static const char *const names[] = {"mix",  "gather",  "stripe", "swap",   "fill",
                                        "copy", "barrier", "access", "advise", "wait"};

    printf("# %2u: ", op->id);
    if (op->kind <= DAG_BARRIER)
        printf("queue %u (context %u, %s) ", op->queue, op->queue % 2,
               op->queue < 4 ? "in order" : "out of order");
    printf("%s%s", names[op->kind], op->is_task ? " as a host task" : "");
    for (unsigned i = 0; i < op->nuses; i++) {
        const dag_use *u = &op->uses[i];

        printf(" %c%u[%zu, +%zu) ", packet(plan, u->place), u->place, u->offset, op->n);
        print_mode(u->mode);
    }
    if (op->kind == DAG_ACCESS)
        printf("%s%s, open up to %u", op->is_async ? ", async" : "", op->no_wait ? ", no wait" : "",
               op->open_until);
    if (op->kind >= DAG_ADVISE)
        printf(" %u", (unsigned)op->step);
}
