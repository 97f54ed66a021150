/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See dag.h.  Here: one plan beside its serial model.
 *
 * The model does each operation when it is submitted.  libusm may do it later, but in an order that
 * gives the same: over buffers it finds that order itself, and over other memory this file gives
 * each command the events it needs, and no more than are needed: what a range, an in-order queue or
 * a barrier already puts behind another command gets no event for that.
 *
 * Gates are events of the program that hold single commands back.  They open late and in any order,
 * so that a command whose dependency was forgotten runs too early, not only perhaps.
 *
 * The planted defect leaves nothing to chance: this file forgets a dependency only on a command
 * whose gate is closed, only where nothing else holds the dependent command back, and then waits
 * for the end of that command before any gate opens.  So it runs too early each time, however busy
 * the machine is. */
#include "dag.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALL = DAG_BUFFER | DAG_USM | DAG_HEAP };

typedef struct place {
    unsigned char *bytes, *known; /* the model's                                             */
    unsigned char *memory;        /* USM, heap, or what a buffer lies over                     */
    usm_buffer    *buffer, *sub;
} place;

/* A host access that is open; only one operation has any at a time. */
typedef struct opened {
    const dag_op  *op; /* NULL: none                                                        */
    uint64_t       bit;
    usm_event     *ready; /* of an asynchronous one                                          */
    usm_access     acc[DAG_USES];
    unsigned char *before[DAG_USES], *after[DAG_USES]; /* the model's bytes, then what is known */
} opened;

typedef struct task {
    const dag_op  *op;
    unsigned char *ptrs[DAG_USES]; /* NULL: of a buffer, which says when the task runs          */
} task;

typedef struct run {
    dag_world      *w;
    const dag_plan *plan;
    place           places[DAG_PLACES];
    opened          open;
    usm_event      *events[DAG_OPS];
    task            tasks[DAG_OPS];
    uint64_t        before[DAG_OPS]; /* operations that i comes after, as a mask of positions   */
    uint64_t        done;            /* the same of those that have surely ended                */
    uint64_t        forgotten;       /* by the planted defect, for the command under way        */
    uint64_t        barrier[DAG_QUEUES], last[DAG_QUEUES], all[DAG_QUEUES];
    usm_event      *gates[DAG_OPS]; /* not open yet                                          */
    unsigned        ngates;
    uint64_t        gated; /* the operations that they hold back                            */
    pthread_t       opener;
    bool            has_opener;
    uint64_t        random; /* of the opener                                                */
} run;

/* ---- what is wrong ------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void wrong(run *r, const dag_op *op,
                                                        const char *format, ...)
{
    va_list args;

    printf("# seed %llu, ", (unsigned long long)r->plan->seed);
    if (op)
        printf("operation %u: ", op->id);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    printf("\n");
    (void)fflush(stdout);
    r->w->differs();
}

static void must(run *r, const dag_op *op, usm_status st, const char *what)
{
    if (st != USM_OK)
        wrong(r, op, "%s: %s: %s", what, usm_status_name(st), usm_last_error());
}

static void *must_have(void *p)
{
    if (!p) {
        perror("dag_run");
        abort();
    }
    return p;
}

static void compare(run *r, const dag_op *op, unsigned at, size_t offset, size_t n,
                    const unsigned char *seen, const unsigned char *want,
                    const unsigned char *known)
{
    r->w->bytes += n;
    for (size_t i = 0; i < n; i++)
        if ((seen[i] ^ want[i]) & known[i]) {
            wrong(r, op, "byte %zu of place %u is 0x%02x, not 0x%02x", offset + i, at, seen[i],
                  want[i]);
            return;
        }
}

/* ---- gates ---------------------------------------------------------------------------------- */

static usm_event *gate_new(run *r, unsigned j)
{
    const dag_op *op = &r->plan->ops[j];
    usm_event    *ev = NULL;

    must(r, op, usm_event_create(r->w->contexts[op->queue % 2], &ev), "usm_event_create");
    r->gates[r->ngates++] = ev;
    r->gated |= (uint64_t)1 << j;
    return ev;
}

static void *open_all(void *run_)
{
    run *r = run_;

    for (; r->ngates > 0; r->ngates--) {
        size_t     i    = dag_pick(&r->random, r->ngates);
        usm_event *gate = r->gates[i];

        if (r->has_opener && dag_pick(&r->random, 8) == 0)
            (void)nanosleep(&(struct timespec){0, 20000}, NULL);
        must(r, NULL, usm_event_signal(gate, USM_OK), "usm_event_signal");
        usm_event_release(gate);
        r->gates[i] = r->gates[r->ngates - 1];
    }
    return NULL;
}

/* Before the thread waits for commands; perhaps while it does. */
static void gates_open(run *r, uint64_t random)
{
    r->gated      = 0;
    r->random     = random | 1;
    r->has_opener = r->ngates > 0 && dag_pick(&r->random, 4) == 0;
    if (r->has_opener && pthread_create(&r->opener, NULL, open_all, r) == 0)
        return;
    r->has_opener = false;
    (void)open_all(r);
}

static void gates_join(run *r)
{
    if (r->has_opener)
        (void)pthread_join(r->opener, NULL);
    r->has_opener = false;
}

/* ---- order ----------------------------------------------------------------------------------- */

static bool conflicts(const run *r, const dag_op *a, const dag_op *b, bool in_buffers)
{
    for (unsigned i = 0; i < a->nuses; i++)
        for (unsigned k = 0; k < b->nuses; k++)
            if ((r->plan->places[a->uses[i].place].kind == DAG_BUFFER) == in_buffers &&
                dag_uses_conflict(a, &a->uses[i], b, &b->uses[k]))
                return true;
    return false;
}

static bool has_order(const dag_op *op)
{
    return op->kind <= DAG_ACCESS;
}

static void put_after(run *r, unsigned j, unsigned i)
{
    r->before[j] |= (uint64_t)1 << i | r->before[i];
}

/* What libusm orders by itself. */
static void find_order(run *r, unsigned j)
{
    const dag_op *op = &r->plan->ops[j];

    for (unsigned i = 0; i < j; i++) {
        const dag_op *old = &r->plan->ops[i];

        if (!has_order(old) || (op->kind == DAG_ACCESS && old->kind == DAG_ACCESS))
            continue;
        /* A WAIT-free access that found no way in has no events and is in no order. */
        if (old->kind == DAG_ACCESS && !(r->done >> i & 1) && r->open.bit != (uint64_t)1 << i)
            continue;
        if (conflicts(r, old, op, true))
            put_after(r, j, i);
    }
    if (op->kind == DAG_ACCESS)
        return;
    r->before[j] |= r->barrier[op->queue];
    if (op->queue < 4)
        r->before[j] |= r->last[op->queue];
}

/* Commands of buffers alone may do without an event: nobody needs to be told. */
static bool wants_event(const run *r, const dag_op *op)
{
    for (unsigned i = 0; i < op->nuses; i++)
        if (r->plan->places[op->uses[i].place].kind != DAG_BUFFER)
            return true;
    return op->random >> 60 != 0 || op->kind == DAG_BARRIER;
}

/* The planted defect: one of the `waits`, for a command whose gate is closed, without which nothing
 * holds operation j back, and whose end can be waited for; 0: there is none.  `order`: what j comes
 * after without any of them. */
static uint64_t forgotten(const run *r, unsigned j, uint64_t order, uint64_t waits)
{
    if (!r->w->is_planted || !wants_event(r, &r->plan->ops[j]))
        return 0;
    for (unsigned i = 0; i < j; i++) {
        uint64_t one  = (uint64_t)1 << i,
                 rest = order | (waits & ~one) | (r->gated & (uint64_t)1 << j);

        for (unsigned k = 0; k < j; k++)
            if (waits >> k & 1 && k != i)
                rest |= r->before[k];
        if (waits & r->gated & one && !(rest & r->gated))
            return one;
    }
    return 0;
}

/* What the program has to order by events, and some that order nothing new. */
static size_t find_deps(run *r, unsigned j, usm_event **deps)
{
    const dag_op *op    = &r->plan->ops[j];
    uint64_t      order = r->before[j], waits = 0;
    uint64_t      rnd = op->random | 1;
    size_t        n   = 0;

    r->forgotten = 0;
    if (op->kind == DAG_BARRIER && !op->is_gated && dag_pick(&rnd, 2)) {
        r->before[j] |= r->all[op->queue];
        return 0; /* for all before it */
    }
    if (op->is_gated || op->kind == DAG_BARRIER)
        deps[n++] = gate_new(r, j);
    for (unsigned i = j; i-- > 0;) {
        const dag_op *old    = &r->plan->ops[i];
        bool          needed = conflicts(r, old, op, false) && !(r->done >> i & 1);

        if (!r->events[i])
            continue;
        if ((needed && !(r->before[j] >> i & 1)) || dag_pick(&rnd, 24) == 0) {
            put_after(r, j, i);
            waits |= (uint64_t)1 << i;
        }
    }
    r->forgotten = forgotten(r, j, order, waits);
    waits &= ~r->forgotten;
    for (unsigned i = j; i-- > 0;)
        if (waits >> i & 1)
            deps[n++] = r->events[i];
    return n;
}

static void entered(run *r, unsigned j)
{
    const dag_op *op   = &r->plan->ops[j];
    uint64_t      mask = (uint64_t)1 << j | r->before[j];

    r->all[op->queue] |= mask;
    r->last[op->queue] = mask;
    if (op->kind == DAG_BARRIER)
        r->barrier[op->queue] |= mask;
}

/* ---- the model ------------------------------------------------------------------------------ */

static void model(run *r, const dag_op *op)
{
    unsigned char *bytes[DAG_USES], *known[DAG_USES];

    for (unsigned i = 0; i < op->nuses; i++) {
        bytes[i] = r->places[op->uses[i].place].bytes + op->uses[i].offset;
        known[i] = r->places[op->uses[i].place].known + op->uses[i].offset;
    }
    dag_compute(op, bytes);
    dag_compute_known(op, known);
}

/* ---- commands
 * ------------------------------------------------------------------------------------ */

static usm_accessor accessor(const run *r, const dag_op *op, unsigned i)
{
    const dag_use   *u = &op->uses[i];
    const dag_place *p = &r->plan->places[u->place];

    if (u->by_sub && u->offset >= p->sub_begin && u->offset + op->n <= p->sub_begin + p->sub_size)
        return (usm_accessor){r->places[u->place].sub, u->offset - p->sub_begin, op->n, u->mode};
    return (usm_accessor){r->places[u->place].buffer, u->offset, op->n, u->mode};
}

/* One of few: PoCL compiles a kernel anew for each local size, also for those that it chooses. */
static size_t local_size(size_t n)
{
    return n % 32 == 0 ? 32 : n % 4 == 0 ? 4 : 1;
}

static usm_status launch(run *r, const dag_op *op, size_t n, usm_event *const *deps, usm_event **ev)
{
    usm_launch   l = USM_LAUNCH_INIT;
    usm_accessor accs[DAG_USES];
    usm_arg      args[5];
    uint32_t     items = (uint32_t)op->n, value = op->value, step = op->step;

    for (unsigned i = 0; i < op->nuses; i++) {
        const place *p = &r->places[op->uses[i].place];

        accs[i] = accessor(r, op, i);
        args[i] = p->buffer ? USM_ARG_BUFFER(accs[i]) : USM_ARG_PTR(p->memory + op->uses[i].offset);
    }
    l.nargs = op->nuses;
    if (op->kind == DAG_GATHER)
        args[l.nargs++] = USM_ARG_REF(items);
    if (op->kind == DAG_STRIPE)
        args[l.nargs++] = USM_ARG_REF(step);
    args[l.nargs++] = USM_ARG_REF(value);
    l.args          = args;
    l.kernel        = r->w->kernels[op->queue % 2][op->kind - DAG_MIX];
    l.global[0]     = op->n;
    l.local[0]      = local_size(op->n);
    return usm_queue_submit(r->w->queues[op->queue], &l, n, deps, ev);
}

static usm_status run_buffer_task(void *task_, void *const *buffers)
{
    const task    *t = task_;
    unsigned char *ptrs[DAG_USES];

    for (unsigned i = 0, k = 0; i < t->op->nuses; i++)
        ptrs[i] = t->ptrs[i] ? t->ptrs[i] : buffers[k++];
    dag_compute(t->op, ptrs);
    return USM_OK;
}

static usm_status run_task(void *task_)
{
    return run_buffer_task(task_, NULL);
}

static usm_status submit_task(run *r, unsigned j, size_t n, usm_event *const *deps, usm_event **ev)
{
    const dag_op *op = &r->plan->ops[j];
    usm_queue    *q  = r->w->queues[op->queue];
    task         *t  = &r->tasks[j];
    usm_accessor  accs[DAG_USES];
    size_t        naccs = 0;

    t->op = op;
    for (unsigned i = 0; i < op->nuses; i++) {
        const place *p = &r->places[op->uses[i].place];

        if (p->buffer)
            accs[naccs++] = accessor(r, op, i);
        else
            t->ptrs[i] = p->memory + op->uses[i].offset;
    }
    if (naccs == 0)
        return usm_host_task(q, run_task, t, n, deps, ev);
    return usm_buffer_task(q, run_buffer_task, t, naccs, accs, n, deps, ev);
}

static usm_status memory(run *r, const dag_op *op, size_t n, usm_event *const *deps, usm_event **ev)
{
    usm_queue    *q = r->w->queues[op->queue];
    usm_accessor  dst, src;
    unsigned char pattern[4], *to, *from;

    for (int i = 0; i < 4; i++)
        pattern[i] = (unsigned char)(op->value >> i * 8);
    dst  = accessor(r, op, 0);
    src  = accessor(r, op, op->nuses - 1);
    to   = r->places[op->uses[0].place].memory + op->uses[0].offset;
    from = r->places[op->uses[op->nuses - 1].place].memory + op->uses[op->nuses - 1].offset;
    if (op->kind == DAG_FILL && dst.buffer)
        return usm_buffer_fill(q, &dst, pattern, op->step, n, deps, ev);
    if (op->kind == DAG_FILL)
        return usm_fill(q, to, pattern, op->step, op->n / op->step, n, deps, ev);
    if (dst.buffer)
        return usm_buffer_copy(q, &dst, &src, n, deps, ev);
    return usm_memcpy(q, to, from, op->n, n, deps, ev);
}

static usm_status submit(run *r, unsigned j, size_t n, usm_event *const *deps, usm_event **ev)
{
    const dag_op *op = &r->plan->ops[j];

    if (op->kind == DAG_BARRIER)
        return usm_queue_barrier(r->w->queues[op->queue], n, deps, ev);
    if (op->kind >= DAG_FILL)
        return memory(r, op, n, deps, ev);
    return op->is_task ? submit_task(r, j, n, deps, ev) : launch(r, op, n, deps, ev);
}

static void tell_order(const run *r, unsigned j)
{
    uint64_t implied = 0;

    for (unsigned i = 0; i < j; i++)
        if (r->before[j] >> i & 1)
            implied |= r->before[i];
    printf("; after");
    for (unsigned i = 0; i < j; i++)
        if ((r->before[j] & ~implied) >> i & 1)
            printf(" %u", r->plan->ops[i].id);
    if (r->plan->ops[j].is_gated)
        printf("; held back by a gate");
}

static void command(run *r, unsigned j)
{
    const dag_op *op = &r->plan->ops[j];
    usm_event    *deps[DAG_OPS + 1];
    size_t        n;

    find_order(r, j);
    n = find_deps(r, j, deps);
    if (r->w->is_verbose)
        tell_order(r, j);
    must(r, op, submit(r, j, n, deps, wants_event(r, op) ? &r->events[j] : NULL), "submission");
    if (r->forgotten)
        must(r, op, usm_event_wait(r->events[j]), "the wait for what runs too early");
    entered(r, j);
    model(r, op);
    r->w->commands++;
}

/* ---- accesses
 * ---------------------------------------------------------------------------------------- */

/* What it writes: a part of the range, a whole one for NO_INIT in one of two. */
static void new_content(const dag_op *op, unsigned use, unsigned char *bytes, unsigned char *known)
{
    size_t n = op->step == 1 ? op->n : op->n / op->step;

    if (!(op->uses[use].mode & USM_WRITE))
        return;
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)((op->value >> use * 8) + i * op->step);
    if (known)
        memset(known, 0xff, n);
}

/* The model's bytes of a use now, and behind them what of them is known. */
static unsigned char *snapshot(const run *r, const dag_op *op, unsigned use)
{
    const place   *p = &r->places[op->uses[use].place];
    unsigned char *s = must_have(malloc(2 * op->n));

    memcpy(s, p->bytes + op->uses[use].offset, op->n);
    memcpy(s + op->n, p->known + op->uses[use].offset, op->n);
    return s;
}

/* The model's side of the access. */
static void access_model(run *r, const dag_op *op)
{
    for (unsigned i = 0; i < op->nuses; i++) {
        const dag_use *u = &op->uses[i];
        const place   *p = &r->places[u->place];

        if (u->mode & USM_NO_INIT)
            memset(p->known + u->offset, 0, op->n);
        r->open.before[i] = snapshot(r, op, i);
        new_content(op, i, p->bytes + u->offset, p->known + u->offset);
        r->open.after[i] = snapshot(r, op, i);
    }
}

static void compare_open(run *r, unsigned char *const *want)
{
    const dag_op *op = r->open.op;

    for (unsigned i = 0; i < op->nuses; i++)
        if (op->uses[i].mode & USM_READ)
            compare(r, op, op->uses[i].place, op->uses[i].offset, op->n, r->open.acc[i].ptr,
                    want[i], want[i] + op->n);
}

/* The bytes are there. */
static void access_touch(run *r)
{
    const dag_op *op = r->open.op;
    unsigned      j  = (unsigned)(op - r->plan->ops);

    r->done |= r->before[j];
    compare_open(r, r->open.before);
    for (unsigned i = 0; i < op->nuses; i++)
        new_content(op, i, r->open.acc[i].ptr, NULL);
}

static void access_end(run *r)
{
    const dag_op *op = r->open.op;

    if (!op)
        return;
    if (op->is_async) {
        gates_open(r, op->random);
        must(r, op, usm_event_wait(r->open.ready), "the event of an access");
        gates_join(r);
        usm_event_release(r->open.ready);
        access_touch(r);
    }
    compare_open(r, r->open.after);
    for (unsigned i = 0; i < op->nuses; i++) {
        usm_access_end(&r->open.acc[i]);
        free(r->open.before[i]);
        free(r->open.after[i]);
    }
    r->done |= r->open.bit;
    r->open = (opened){0};
}

static usm_status access_begin(run *r, const dag_op *op)
{
    usm_accessor     a = accessor(r, op, 0);
    usm_buffer_range list[DAG_USES];
    unsigned         no_wait = op->no_wait ? USM_NO_WAIT : 0;

    if (op->is_async)
        return usm_access_begin_async(a.buffer, a.offset, a.size, a.mode, &r->open.acc[0],
                                      &r->open.ready);
    for (unsigned i = 0; i < op->nuses; i++) {
        a       = accessor(r, op, i);
        list[i] = (usm_buffer_range){a.buffer, a.offset, a.size, a.mode | no_wait};
    }
    if (op->nuses == 1)
        return usm_access_begin(a.buffer, a.offset, a.size, a.mode | no_wait, &r->open.acc[0]);
    return usm_access_many(op->nuses, list, r->open.acc);
}

static void access(run *r, unsigned j)
{
    const dag_op *op = &r->plan->ops[j];
    usm_status    st;

    find_order(r, j);
    if (r->w->is_verbose)
        tell_order(r, j);
    if (!op->is_async && !op->no_wait)
        gates_open(r, op->random);
    st = access_begin(r, op);
    gates_join(r);
    if (st == USM_E_AGAIN && op->no_wait)
        return;
    must(r, op, st, "the access");
    r->open.op  = op;
    r->open.bit = (uint64_t)1 << j;
    access_model(r, op);
    if (!op->is_async)
        access_touch(r);
    if (op->open_until <= op->id)
        access_end(r);
}

/* ---- waits
 * --------------------------------------------------------------------------------------------- */

static void wait_all(run *r)
{
    for (int i = 0; i < DAG_CONTEXTS; i++)
        must(r, NULL, usm_context_wait(r->w->contexts[i]), "usm_context_wait");
    for (int q = 0; q < DAG_QUEUES; q++)
        r->done |= r->all[q];
}

/* All bytes of places of these kinds. */
static void check_all(run *r, unsigned kinds)
{
    for (unsigned i = 0; i < r->plan->nplaces; i++) {
        const place *p = &r->places[i];
        size_t       n = r->plan->places[i].size;
        usm_access   acc;

        if (!(r->plan->places[i].kind & kinds))
            continue;
        if (!p->buffer) {
            compare(r, NULL, i, 0, n, p->memory, p->bytes, p->known);
            continue;
        }
        must(r, NULL, usm_access_begin(p->buffer, 0, n, USM_READ, &acc), "an access to all");
        compare(r, NULL, i, 0, n, acc.ptr, p->bytes, p->known);
        usm_access_end(&acc);
    }
}

static void wait_some(run *r, unsigned j)
{
    const dag_op *op = &r->plan->ops[j];
    unsigned      i  = j > 0 ? (unsigned)(op->random % j) : 0;

    gates_open(r, op->random);
    if (op->step == 0 && r->events[i]) {
        must(r, op, usm_event_wait(r->events[i]), "usm_event_wait");
        r->done |= (uint64_t)1 << i | r->before[i];
    } else if (op->step == 1) {
        must(r, op, usm_queue_wait(r->w->queues[op->queue]), "usm_queue_wait");
        r->done |= r->all[op->queue];
    } else if (op->step == 2) {
        must(r, op, usm_context_wait(r->w->contexts[op->queue % 2]), "usm_context_wait");
        for (unsigned q = op->queue % 2; q < DAG_QUEUES; q += 2)
            r->done |= r->all[q];
    }
    gates_join(r);
    if (op->step == 3) {
        wait_all(r);
        check_all(r, ALL);
    }
}

/* ---- the whole
 * -------------------------------------------------------------------------------------------- */

static void make_buffer(run *r, const dag_place *d, place *p)
{
    usm_buffer_desc desc = USM_BUFFER_DESC_INIT;

    if (d->has_user_data) {
        p->memory = must_have(malloc(d->size));
        for (size_t k = 0; k < d->size; k++)
            p->memory[k] = p->bytes[k] = (unsigned char)(k * 7);
        memset(p->known, 0xff, d->size);
    }
    desc.size      = d->size;
    desc.host_data = p->memory;
    must(r, NULL, usm_buffer_create(r->w->contexts[d->ctx], &desc, &p->buffer),
         "usm_buffer_create");
    if (d->sub_size)
        must(r, NULL, usm_buffer_create_sub(p->buffer, d->sub_begin, d->sub_size, &p->sub),
             "usm_buffer_create_sub");
}

static void make_places(run *r)
{
    for (unsigned i = 0; i < r->plan->nplaces; i++) {
        const dag_place *d = &r->plan->places[i];
        place           *p = &r->places[i];

        p->bytes = must_have(calloc(1, d->size));
        p->known = must_have(calloc(1, d->size));
        if (d->kind == DAG_BUFFER) {
            make_buffer(r, d, p);
            continue;
        }
        p->memory =
            d->kind == DAG_USM ? usm_malloc_host(d->size, r->w->queues[d->ctx]) : malloc(d->size);
        memset(must_have(p->memory), 0, d->size);
        memset(p->known, 0xff, d->size);
    }
}

/* What lies over the program's memory is there once the buffer has gone. */
static void drop_places(run *r)
{
    for (unsigned i = 0; i < r->plan->nplaces; i++) {
        const dag_place *d = &r->plan->places[i];
        place           *p = &r->places[i];

        usm_buffer_destroy(p->sub);
        usm_buffer_destroy(p->buffer);
        if (d->has_user_data)
            compare(r, NULL, i, 0, d->size, p->memory, p->bytes, p->known);
        if (d->kind == DAG_USM)
            usm_free(p->memory);
        else
            free(p->memory);
        free(p->bytes);
        free(p->known);
    }
}

static void run_op(run *r, unsigned j)
{
    const dag_op *op = &r->plan->ops[j];

    if (r->open.op && (op->id > r->open.op->open_until || op->kind >= DAG_ACCESS))
        access_end(r);
    if (r->w->is_verbose)
        dag_plan_print_op(r->plan, op);
    if (op->kind < DAG_ACCESS) {
        command(r, j);
    } else if (op->kind == DAG_ACCESS) {
        access(r, j);
    } else if (op->kind == DAG_WAIT) {
        wait_some(r, j);
    } else {
        usm_accessor a = accessor(r, op, 0);

        must(r, op, usm_buffer_advise(a.buffer, a.offset, a.size, (usm_buffer_advice)op->step),
             "usm_buffer_advise");
    }
    if (r->w->is_verbose)
        printf("\n");
}

void dag_run(dag_world *world, const dag_plan *plan)
{
    run r = {.w = world, .plan = plan};

    if (world->is_verbose)
        dag_plan_print_places(plan);
    make_places(&r);
    for (unsigned j = 0; j < plan->nops; j++)
        run_op(&r, j);
    access_end(&r);
    gates_open(&r, plan->seed);
    if (plan->seed % 2 == 0) /* the accesses wait for all they need */
        check_all(&r, DAG_BUFFER);
    wait_all(&r);
    gates_join(&r);
    check_all(&r, ALL);
    for (unsigned j = 0; j < plan->nops; j++)
        usm_event_release(r.events[j]);
    drop_places(&r);
}
