/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The checker of stream order: see order_check.h.
 *
 * This file has the queues and events by their native handles, the clock of each command as it is
 * queued, and the rules whose violation is reported.  Each check is made when the later of its two
 * operations is reported.
 *
 * Not here: clocks (order_clock.c), lifetimes of blocks (order_block.c), checks that wait for a
 * user event, and the log (order_expect.c). */
#include "observe/order_check.h"

#include "base/fault.h"
#include "base/fork.h"
#include "base/inline/atomic.h"
#include "base/inline/plural.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/os.h"
#include "base/settings.h"
#include "command/queue.h"
#include "observe/debug.h"
#include "observe/observe.h"
#include "observe/order_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS USM__ORDER_BUCKETS

typedef struct usm__order_node {
    struct usm__order_node *next;
    const void             *native;
} node;

typedef struct order_queue {
    node       node;
    uint64_t   serial, commands;
    bool       is_in_order;
    usm__clock after; /* later commands come after it: the last command, or barrier */
    usm__clock all;   /* out of order: the clock of all commands                    */
    uint32_t  *chain; /* in order: one chain                                        */
    uint32_t   nchains;
    size_t     cap_chains;
    usm__tick  last;  /* of the last command; ticks of allocations and frees do not count */
    usm_list   freed; /* usm__life.freed, by position                                     */
} order_queue;

typedef struct order_event {
    node       node;
    uint32_t   refs; /* a backend may return the same event for several commands */
    bool       is_user;
    usm__tick  tick;
    usm__clock clock;
} order_event;

typedef struct snapshot {
    usm__clock clock;
} snapshot;

usm__order_state usm__order = {.lock   = USM__MUTEX_INIT(USM__RANK_ORDER_CHECK, "order check"),
                               .random = 2463534242u};

/* ---- start and end ---------------------------------------------------------------- */

/* Lock held.  The recorded state is incomplete, so no check is possible any more. */
static void give_up(void)
{
    atomic_store(&usm__order.active, 0);
    (void)atomic_fetch_and(&usm__observers.flags, ~(unsigned)USM__OBSERVE_ORDER);
    usm__warn("no host memory to check the order of commands: it is not checked from here on");
}

static bool enter(void)
{
    usm__mutex_lock(&usm__order.lock);
    if (atomic_load(&usm__order.active) != 0)
        return true;
    usm__mutex_unlock(&usm__order.lock);
    return false;
}

static void leave(bool ok)
{
    if (!ok)
        give_up();
    usm__mutex_unlock(&usm__order.lock);
}

static void sum_up(void)
{
    usm__log(USM__LOG_HOOK, "order: %llu %s; %llu %s and %llu %s of blocks were looked at",
             (unsigned long long)usm__order_violations(),
             usm__plural(usm__order_violations(), "violation", "violations"),
             (unsigned long long)usm__order.commands,
             usm__plural(usm__order.commands, "command", "commands"),
             (unsigned long long)usm__order.nlives,
             usm__plural(usm__order.nlives, "life", "lives"));
}

void usm__order_start(bool is_hook)
{
    int active = (is_hook ? USM__ORDER_CHECK : 0) |
                 (usm__setting_bool("validation") ? USM__ORDER_VALIDATE : 0);

    usm__order.is_debug = usm__debug_checks() != 0;
    if (is_hook)
        (void)atexit(sum_up);
    atomic_store(&usm__order.active, active);
    if (!active)
        return;
    usm__observe_install();
    (void)atomic_fetch_or(&usm__observers.flags, (unsigned)USM__OBSERVE_ORDER);
}

void usm__order_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&usm__order.lock, phase);
    if (phase != USM_FORK_CHILD || !usm__observer_order_on())
        return;
    usm__order_host_knows_all();
    usm__lives_settle();
    usm__expect_drop_all();
}

/* ---- queues and events ------------------------------------------------------------ */

static node **bucket(node **table, const void *native)
{
    uintptr_t h = (uintptr_t)native;

    h ^= h >> 17;
    h *= (uintptr_t)0x9E3779B97F4A7C15u;
    return &table[(h >> 40) % BUCKETS];
}

static node *find(node **table, const void *native)
{
    node *n = *bucket(table, native);

    while (n && n->native != native)
        n = n->next;
    return n;
}

static void *add(node **table, const void *native, size_t size)
{
    node **at = bucket(table, native);
    node  *n;

    usm__fault_benign_begin();
    n = usm__heap_alloc(size);
    usm__fault_benign_end();
    if (!n)
        return NULL;
    n->native = native;
    n->next   = *at;
    *at       = n;
    return n;
}

static void *take(node **table, const void *native)
{
    node **at = bucket(table, native), *n;

    while (*at && (*at)->native != native)
        at = &(*at)->next;
    n = *at;
    if (n)
        *at = n->next;
    return n;
}

static order_queue *queue_at(const void *native)
{
    return (order_queue *)(void *)find(usm__order.queues, native);
}

static order_event *event_at(const void *native)
{
    return (order_event *)(void *)find(usm__order.events, native);
}

static bool add_chain(order_queue *q, uint32_t *chain)
{
    if (!usm__order_grow(&q->chain, &q->cap_chains, q->nchains, sizeof *q->chain) ||
        !usm__chain_new(false, chain))
        return false;
    q->chain[q->nchains++] = *chain;
    return true;
}

static void end_queue(order_queue *q)
{
    /* No command can wait for anything behind the last command. */
    if (q->is_in_order && usm__order_host_knows(q->last))
        usm__order_host_learns_tick(usm__chain_last(q->chain[0]));
    for (uint32_t i = 0; i < q->nchains; i++)
        usm__chain_drop(q->chain[i]);
    while (usm_list_pop(&q->freed) != NULL) {}
    usm__clock_fini(&q->after);
    usm__clock_fini(&q->all);
    usm__heap_free(q->chain);
    usm__heap_free(q);
}

void usm__order_queue_made(void *native, uint32_t flags)
{
    order_queue *q;
    uint32_t     chain;
    bool         ok;

    if (!enter())
        return;
    q = take(usm__order.queues, native);
    if (q)
        end_queue(q);
    q  = add(usm__order.queues, native, sizeof *q);
    ok = q != NULL;
    if (ok) {
        usm_list_init(&q->freed);
        q->serial      = ++usm__order.serials;
        q->is_in_order = (flags & USM_QUEUE_OUT_OF_ORDER) == 0;
        ok             = !q->is_in_order || add_chain(q, &chain);
    }
    leave(ok);
}

void usm__order_queue_named(void *native, uint64_t serial)
{
    order_queue *q;

    if (!enter())
        return;
    q = queue_at(native);
    if (q)
        q->serial = serial;
    leave(true);
}

void usm__order_queue_gone(void *native)
{
    order_queue *q;

    if (!enter())
        return;
    q = take(usm__order.queues, native);
    if (q)
        end_queue(q);
    leave(true);
}

static const usm__clock *all_of(const order_queue *q)
{
    return q->is_in_order ? &q->after : &q->all;
}

void *usm__order_queue_snapshot(void *native)
{
    order_queue *q;
    snapshot    *s  = NULL;
    bool         ok = true;

    if (!enter())
        return NULL;
    q = queue_at(native);
    if (q) {
        usm__fault_benign_begin();
        s = usm__heap_alloc(sizeof *s);
        usm__fault_benign_end();
        ok = s && usm__clock_set(&s->clock, all_of(q));
    }
    leave(ok);
    return s;
}

/* True if the commands have ended, whatever their result. */
static bool has_ended(usm_status st)
{
    return st != USM_E_NOT_READY && st != USM_E_NO_MEMORY;
}

void usm__order_queue_waited(void *snapshot_, usm_status st)
{
    snapshot *s = snapshot_;

    if (!s)
        return;
    if (has_ended(st) && enter()) {
        usm__order_host_learns(&s->clock);
        leave(true);
    }
    usm__clock_fini(&s->clock);
    usm__heap_free(s);
}

void usm__order_queue_ended(void *native)
{
    order_queue *q;

    if (!enter())
        return;
    q = queue_at(native);
    if (q)
        usm__order_host_learns(all_of(q));
    leave(true);
}

/* ---- events ----------------------------------------------------------------------- */

static bool put_event(void *native, const usm__clock *clock, usm__tick tick)
{
    order_event *e = event_at(native);

    if (!e)
        e = add(usm__order.events, native, sizeof *e);
    if (!e)
        return false;
    e->refs++;
    e->tick = tick;
    return usm__clock_join(&e->clock, clock);
}

void usm__order_event_made(void *native)
{
    order_event *e;
    uint32_t     chain;
    bool         ok;

    if (!enter())
        return;
    e  = add(usm__order.events, native, sizeof *e);
    ok = e && usm__chain_new(true, &chain);
    if (ok) {
        e->refs    = 1;
        e->is_user = true;
        e->tick    = usm__chain_next(chain);
        ok         = usm__clock_raise(&e->clock, e->tick);
    }
    leave(ok);
}

void usm__order_event_signalled(void *native)
{
    order_event *e;

    if (!enter())
        return;
    e = event_at(native);
    if (e && e->is_user && !usm__order_host_knows(e->tick)) {
        usm__order_host_learns_tick(e->tick);
        usm__expect_look();
    }
    leave(true);
}

void usm__order_event_seen(void *native, usm_status st)
{
    order_event *e;

    if (!has_ended(st) || !enter())
        return;
    e = event_at(native);
    if (e && !e->is_user)
        usm__order_host_learns(&e->clock);
    leave(true);
}

void usm__order_event_gone(void *native)
{
    order_event *e;

    if (!enter())
        return;
    e = event_at(native);
    if (e && --e->refs == 0) {
        (void)take(usm__order.events, native);
        if (e->is_user) {
            if (!usm__order_host_knows(e->tick))
                usm__expect_forget(e->tick);
            usm__order_host_learns_tick(e->tick);
            usm__chain_drop(e->tick.chain);
        }
        usm__clock_fini(&e->clock);
        usm__heap_free(e);
    }
    leave(true);
}

/* ---- commands --------------------------------------------------------------------- */

static bool is_behind_all(const order_queue *q, const usm__order_command *c)
{
    return q->is_in_order ||
           (c->ndeps == 0 && (strcmp(c->what, "marker") == 0 || strcmp(c->what, "barrier") == 0));
}

static bool join_deps(usm__clock *clock, const usm__order_command *c)
{
    for (size_t i = 0; i < c->ndeps; i++) {
        const order_event *e = event_at(c->deps[i]);

        if (!e)
            clock->is_foreign = true;
        else if (!usm__clock_join(clock, &e->clock))
            return false;
    }
    return true;
}

/* Finds a chain that a command with this clock may continue. */
static bool pick_chain(order_queue *q, const usm__clock *clock, uint32_t *chain)
{
    for (uint32_t i = 0; i < q->nchains; i++)
        if (usm__clock_has(clock, usm__chain_last(q->chain[i]))) {
            *chain = q->chain[i];
            return true;
        }
    return add_chain(q, chain);
}

/* The next command of the queue; its clock so far is `clock`. */
static bool step(order_queue *q, usm__clock *clock, usm__tick *tick)
{
    uint32_t chain;

    if (q->is_in_order)
        chain = q->chain[0];
    else if (!pick_chain(q, clock, &chain))
        return false;
    *tick = usm__chain_next(chain);
    if (!usm__clock_raise(clock, *tick))
        return false;
    return q->is_in_order ? usm__clock_set(&q->after, clock) : usm__clock_join(&q->all, clock);
}

static bool use_life(const usm__clock *clock, const usm__order_use *by, usm__life *life)
{
    usm__expected what = {.by = *by, .p = life->lo, .former = life->born};

    if (life->state != USM__LIFE_LIVE) {
        if (!usm__order.is_debug)
            usm__order_report(life->state == USM__LIFE_QUEUED
                                  ? "use of a block that was freed in a queue"
                                  : "use of a block that was freed",
                              life->lo, by, NULL);
        return true;
    }
    what.why = "use of a block before its allocation";
    if (!usm__expect(clock, &what))
        return false;
    usm__order_uses_prune(&life->before);
    what.why = "use of a block while what used it before its last free may run";
    return usm__expect_all(clock, &life->before, what) && usm__order_uses_add(&life->uses, *by);
}

static bool use_range(const usm__clock *clock, const usm__order_use *by, const void *p, size_t n)
{
    uintptr_t lo = (uintptr_t)p, hi = lo + n;

    for (usm__life *life = usm__life_from(lo); life && life->lo < hi;) {
        uintptr_t next = life->hi;

        if (!use_life(clock, by, life))
            return false;
        life = usm__life_from(next);
    }
    return true;
}

static bool use_arguments(const usm__clock *clock, const usm__order_use *by, const usm_launch *l)
{
    bool ok = true;

    for (size_t i = 0; ok && i < l->nargs; i++)
        if (l->args[i].kind == USM_ARG_POINTER && l->args[i].value)
            ok = use_range(clock, by, l->args[i].value, 1);
    for (size_t i = 0; ok && i < l->nindirect; i++)
        ok = use_range(clock, by, l->indirect[i], 1);
    return ok;
}

static bool use_all(const usm__clock *clock, const usm__order_use *by, const usm__order_command *c)
{
    for (int i = 0; i < 2; i++)
        if (c->p[i] && !use_range(clock, by, c->p[i], c->n[i]))
            return false;
    return !c->launch || use_arguments(clock, by, c->launch);
}

static bool submitted(order_queue *q, const usm__order_command *c, usm__clock *clock)
{
    usm__order_use by = {.what = c->what, .queue = q->serial, .number = ++q->commands};

    usm__order.commands++;
    if (!usm__clock_join(clock, is_behind_all(q, c) ? all_of(q) : &q->after) ||
        !usm__clock_join(clock, &q->after) || !join_deps(clock, c) || !step(q, clock, &by.tick))
        return false;
    q->last = by.tick;
    if (!q->is_in_order && strcmp(c->what, "barrier") == 0 && !usm__clock_join(&q->after, clock))
        return false;
    if (!use_all(clock, &by, c))
        return false;
    return !c->ev || !*c->ev || put_event(*c->ev, clock, by.tick);
}

void usm__order_submitted(const usm__order_command *c)
{
    usm__clock   clock = {0};
    order_queue *q;
    bool         ok = true;

    if (!enter())
        return;
    q = queue_at(c->q);
    if (q)
        ok = submitted(q, c, &clock);
    usm__clock_fini(&clock);
    leave(ok);
}

/* ---- blocks ----------------------------------------------------------------------- */

void usm__order_block_served(const void *p, size_t size)
{
    usm__life *life;

    if (!enter())
        return;
    usm__order.nlives++;
    life = usm__life_begin((uintptr_t)p, (uintptr_t)p + (size ? size : 1));
    if (life)
        usm__expect_known(&life->before, life->lo, "a pool gave a block out");
    leave(life != NULL);
}

void usm__order_block_back(const void *p)
{
    usm__life *life;

    if (!enter())
        return;
    life = usm__life_at((uintptr_t)p);
    if (life && life->state != USM__LIFE_OVER) {
        usm__expect_known(&life->uses, life->lo,
                          life->state == USM__LIFE_LIVE ? "free of a block in use"
                                                        : "a pool got a block back that is in use");
        life->state = USM__LIFE_OVER;
        usm_list_remove(&life->freed);
    }
    leave(true);
}

void usm__order_range_gone(const void *p, size_t size)
{
    bool ok;

    if (!enter())
        return;
    ok = usm__life_forget((uintptr_t)p, (uintptr_t)p + size);
    leave(ok);
}

/* ---- stream-ordered allocation ---------------------------------------- */

/* The lifetime that an allocation in a queue begins: its block comes from the pool, or from an
 * earlier free in a queue. */
static usm__life *life_for(const void *p, size_t size)
{
    usm__life *life = usm__life_at((uintptr_t)p);

    if (life && life->state == USM__LIFE_LIVE)
        return life;
    usm__order.nlives++;
    if (life && life->state == USM__LIFE_QUEUED)
        return usm__life_begin(life->lo, life->hi);
    return usm__life_begin((uintptr_t)p, (uintptr_t)p + (size ? size : 1));
}

/* A position in an in-order queue without a command. */
static bool step_alone(order_queue *q, usm__tick *tick)
{
    *tick = usm__chain_next(q->chain[0]);
    return usm__clock_raise(&q->after, *tick);
}

static bool be_born(usm__life *life, order_queue *oq, const void *native)
{
    const order_event *e = native ? event_at(native) : NULL;

    life->born = (usm__order_use){.what = "allocation", .queue = oq ? oq->serial : 0};
    if (e)
        life->born.tick = e->tick;
    else if (oq && oq->is_in_order)
        return step_alone(oq, &life->born.tick);
    else /* the host may use it now */
        usm__expect_known(&life->before, life->lo, "an out-of-order queue gave a block out");
    return true;
}

void usm__order_async_alloc(usm_queue *q, void *p, size_t size, void *native)
{
    usm__life *life;

    if (!enter())
        return;
    life = life_for(p, size);
    leave(life && be_born(life, queue_at(q->native), native));
}

/* The clock of a free: everything that it comes after. */
static bool free_clock(order_queue *q, const void *native, usm__clock *clock, usm__order_use *by)
{
    const order_event *e = native ? event_at(native) : NULL;

    *by = (usm__order_use){.what = "free", .queue = q->serial};
    if (e) {
        by->tick = e->tick;
        return usm__clock_set(clock, &e->clock);
    }
    if (q->is_in_order && !step_alone(q, &by->tick))
        return false;
    return usm__clock_set(clock, all_of(q));
}

static bool end_in_queue(order_queue *q, usm__life *life, const void *native, uint64_t position)
{
    usm__clock    clock = {0};
    usm__expected what  = {.p = life->lo, .former = life->born};
    bool          ok    = free_clock(q, native, &clock, &what.by);

    what.why = "free of a block before its allocation";
    ok       = ok && usm__expect(&clock, &what);
    what.why = "free of a block in use";
    ok       = ok && usm__expect_all(&clock, &life->uses, what);

    life->state    = USM__LIFE_QUEUED;
    life->position = position;
    if (position > 0)
        usm_list_append(&q->freed, &life->freed);
    usm__clock_fini(&clock);
    return ok;
}

void usm__order_async_free(usm_queue *q, void *p, uint64_t position, void *native)
{
    order_queue *oq;
    usm__life   *life;
    bool         ok = true;

    if (!enter())
        return;
    oq   = queue_at(q->native);
    life = usm__life_at((uintptr_t)p);
    if (oq && life && life->state == USM__LIFE_LIVE)
        ok = end_in_queue(oq, life, native, position);
    leave(ok);
}

void usm__order_claim_complete(usm_queue *q, uint64_t position)
{
    order_queue *oq;

    if (!enter())
        return;
    oq = queue_at(q->native);
    if (oq)
        USM_LIST_FOREACH_SAFE (it, next, &oq->freed) {
            usm__life *life = usm_container_of(it, usm__life, freed);

            if (life->position > position)
                break;
            usm__expect_known(&life->uses, life->lo, "a queue is said to have got past a free");
            usm_list_remove(it);
        }
    leave(true);
}

/* ---- USM_VALIDATION --------------------------------------------------------------- */

static void *native_of(uint64_t serial)
{
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (node *n = usm__order.queues[i]; n; n = n->next)
            if (((order_queue *)(void *)n)->serial == serial)
                return (void *)(uintptr_t)n->native;
    return NULL;
}

static void name_users(const usm__life *life, char *message, size_t size)
{
    char   one[96];
    size_t at;

    (void)snprintf(message, size,
                   "the block %p of %zu %s was freed while queued work uses it:", (void *)life->lo,
                   (size_t)(life->hi - life->lo),
                   usm__plural((size_t)(life->hi - life->lo), "byte", "bytes"));
    for (uint32_t i = 0; i < life->uses.n && i < 4; i++) {
        at = strlen(message);
        (void)snprintf(message + at, size - at, "%s %s", i ? "," : "",
                       usm__order_use_name(&life->uses.use[i], one, sizeof one));
    }
    at = strlen(message);
    (void)snprintf(message + at, size - at,
                   "%s; wait for it, or use usm_free_blocking() or usm_async_free(); the block is "
                   "kept until the work has ended",
                   life->uses.n > 4 ? ", ..." : "");
}

bool usm__order_in_use(const void *p, void **native, char *message, size_t size)
{
    usm__life *life;
    bool       is_used = false;

    if (!(atomic_load(&usm__order.active) & USM__ORDER_VALIDATE) || !enter())
        return false;
    life = usm__life_at((uintptr_t)p);
    if (life && life->state == USM__LIFE_LIVE) {
        usm__order_uses_prune(&life->uses);
        *native    = life->uses.n ? native_of(life->uses.use[0].queue) : NULL;
        is_used    = *native != NULL;
        message[0] = 0;
        if (is_used)
            name_users(life, message, size);
    }
    leave(true);
    return is_used;
}

bool usm__order_name(const void *p)
{
    usm__life *life;
    bool       is_first = false;

    if (!enter())
        return false;
    life = usm__life_at((uintptr_t)p);
    if (life && !life->is_named) {
        is_first = life->is_named = true;
        usm__order_count();
    }
    leave(true);
    return is_first;
}
