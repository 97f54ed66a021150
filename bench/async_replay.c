/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How much memory several queues take that allocate and free in their order, against one that does
 * the same: four replays of the steps of a training (synthetic_dl.c), some events of each by turns.
 * What is asked for at any moment is the same whatever the number of queues.
 *
 * Gated, a queue is never idle: the commands of each turn wait for a user event that is signalled
 * after its next turn, so frees are queued work, as on a device.  Called by async_worker.c. */
#include "async.h"

#include "workload.h"

#include <stdio.h>
#include <stdlib.h>

#define REPLAYS 4u
#define TURN    512u /* events of a replay between two others' */

typedef struct lane {
    usm_queue *q;
    usm_event *gate; /* what the commands of its last turn wait for; or NULL */
    void     **blocks;
    uint64_t  *sizes;
    size_t     at; /* in the trace */
} lane;

typedef struct replay {
    bench_trace  trace;
    usm_context *ctx;
    usm_pool    *pool;
    lane         lanes[REPLAYS + 1]; /* the last comes later, alone */
    unsigned     nqueues;
    bool         is_gated;
    uint64_t     asked, asked_most;
} replay;

static bool failed(const char *what)
{
    fprintf(stderr, "usm-bench: %s: %s\n", what, usm_last_error());
    return false;
}

static bool open_gate(lane *l)
{
    usm_event *gate = l->gate;
    bool       ok   = true;

    l->gate = NULL;
    if (gate)
        ok = usm_event_signal(gate, USM_OK) == USM_OK;
    usm_event_release(gate);
    return ok;
}

/* Closes a new gate behind what the queue has; then the one before may open. */
static bool close_gate(lane *l)
{
    usm_event *gate = NULL;
    bool       ok   = usm_event_create(usm_queue_get_context(l->q), &gate) == USM_OK &&
              usm_queue_barrier(l->q, 1, &gate, NULL) == USM_OK && open_gate(l);

    l->gate = gate;
    return ok;
}

static bool do_event(replay *r, lane *l, const bench_event *e)
{
    if (e->size == 0) {
        usm_status st = usm_async_free(l->q, l->blocks[e->id]);

        l->blocks[e->id] = NULL;
        r->asked -= l->sizes[e->id];
        return st == USM_OK || failed("usm_async_free");
    }
    l->blocks[e->id] = usm_async_malloc_from_pool(l->q, e->size, r->pool);
    l->sizes[e->id]  = e->size;
    r->asked += e->size;
    r->asked_most = r->asked > r->asked_most ? r->asked : r->asked_most;
    return l->blocks[e->id] || failed("usm_async_malloc_from_pool");
}

/* True while there is more. */
static bool take_turn(replay *r, lane *l, bool *ok)
{
    size_t end = l->at + TURN;

    if (end > r->trace.nevents)
        end = r->trace.nevents;
    if (r->is_gated && l->at < end)
        *ok = close_gate(l) || failed("a gate");
    for (; *ok && l->at < end; l->at++)
        *ok = do_event(r, l, &r->trace.events[l->at]);
    return *ok && l->at < r->trace.nevents;
}

static bool replay_all(replay *r)
{
    bool ok = true, more = true;

    while (ok && more) {
        more = false;
        for (unsigned i = 0; ok && i < REPLAYS; i++)
            more |= take_turn(r, &r->lanes[i], &ok);
    }
    for (unsigned i = 0; i < REPLAYS; i++)
        ok = open_gate(&r->lanes[i]) && ok;
    return ok;
}

static bool reserved(replay *r, uint64_t *now, uint64_t *most)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    if (usm_pool_get_stats(r->pool, &stats) != USM_OK)
        return failed("usm_pool_get_stats");
    *now  = stats.reserved;
    *most = stats.reserved_peak;
    return true;
}

/* The queues idle, and nobody waits for them: another has all their memory. */
static bool measure(replay *r, async_peak *peak)
{
    uint64_t now = 0, after = 0;
    lane    *last = &r->lanes[REPLAYS];
    bool     ok   = replay_all(r) && reserved(r, &now, &peak->reserved);

    while (ok && take_turn(r, last, &ok))
        ;
    ok = open_gate(last) && ok && reserved(r, &now, &after);
    if (!ok)
        return false;
    peak->growth = after - peak->reserved;
    peak->asked  = r->asked_most;
    if (usm_context_wait(r->ctx) != USM_OK || usm_pool_trim_to(r->pool, 0) != USM_OK ||
        usm_pool_get_attribute(r->pool, USM_POOL_HOST_WAITS, &peak->host_waits) != USM_OK)
        return failed("trim");
    return reserved(r, &peak->left, &after);
}

static bool make_lanes(replay *r)
{
    usm_device *dev = usm_pool_get_device(r->pool);

    for (unsigned i = 0; i <= REPLAYS; i++) {
        lane *l = &r->lanes[i];

        l->blocks = calloc(r->trace.nids, sizeof *l->blocks);
        l->sizes  = calloc(r->trace.nids, sizeof *l->sizes);
        if (!l->blocks || !l->sizes)
            return false;
        if (i < REPLAYS && i >= r->nqueues && r->nqueues > 0)
            l->q = r->lanes[i % r->nqueues].q;
        else if (usm_queue_create(r->ctx, dev, NULL, &l->q) != USM_OK)
            return failed("usm_queue_create");
    }
    return true;
}

static void end_lanes(replay *r)
{
    for (unsigned i = 0; i <= REPLAYS; i++) {
        (void)open_gate(&r->lanes[i]);
        if (i < r->nqueues || i == REPLAYS)
            usm_queue_destroy(r->lanes[i].q);
        free(r->lanes[i].blocks);
        free(r->lanes[i].sizes);
    }
}

bool async_replay(usm_context *ctx, unsigned nqueues, bool is_gated, async_peak *peak)
{
    replay        r    = {.ctx = ctx, .nqueues = nqueues, .is_gated = is_gated};
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    bool          ok;

    *peak     = (async_peak){0};
    desc.name = "slab";
    if (nqueues == 0 || nqueues > REPLAYS || !bench_make_dl_variable(&r.trace, 1))
        return false;
    ok = usm_pool_create(ctx, NULL, USM_DEVICE, &desc, &r.pool) == USM_OK || failed("a pool");
    ok = ok && make_lanes(&r) && measure(&r, peak);
    end_lanes(&r);
    (void)!usm_context_wait(ctx);
    usm_pool_destroy(r.pool);
    bench_trace_clear(&r.trace);
    return ok;
}
