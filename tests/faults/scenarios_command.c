/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scenarios of the fault sweep: copies, fills, events, tasks, and their order. */
#include "sweep.h"

#define N 3000

/* A block of the first context with the pattern in it. */
static usm_status filled(state *s, int slot)
{
    TRY_PTR(s->p[slot], usm_malloc(N + 100, s->q, sweep_kind()));
    TRY(usm_memcpy(s->q, s->p[slot], s->host, N, 0, NULL, &s->ev[slot]));
    return usm_event_wait(s->ev[slot]);
}

/* Reads a block back and compares. */
static usm_status same(state *s, const void *p, const void *want, size_t n)
{
    TRY(usm_memcpy(s->q, s->back, p, n, 0, NULL, &s->ev[7]));
    TRY(usm_event_wait(s->ev[7]));
    MUST(!memcmp(s->back, want, n));
    return USM_OK;
}

static usm_status copy(state *s)
{
    TRY(filled(s, 0));
    return same(s, s->p[0], s->host, N);
}

static usm_status copy_overlapping(state *s)
{
    char *p;

    TRY(filled(s, 0));
    p = s->p[0];
    TRY(usm_memcpy(s->q, p + 10, p, N - 10, 0, NULL, &s->ev[1]));
    TRY(usm_event_wait(s->ev[1]));
    TRY(usm_memcpy(s->q, p, p + 10, N - 10, 0, NULL, &s->ev[2]));
    TRY(usm_event_wait(s->ev[2]));
    return same(s, p, s->host, N - 10);
}

static usm_status copy_between_contexts(state *s)
{
    TRY(filled(s, 0));
    TRY_PTR(s->p[1], usm_malloc(N, s->other_q, sweep_kind()));
    TRY(usm_memcpy(s->q, s->p[1], s->p[0], N, 0, NULL, &s->ev[1])); /* to */
    TRY(usm_event_wait(s->ev[1]));
    TRY_PTR(s->p[2], usm_malloc(N, s->q, sweep_kind()));
    TRY(usm_memcpy(s->q, s->p[2], s->p[1], N, 0, NULL, &s->ev[2])); /* and from */
    TRY(usm_event_wait(s->ev[2]));
    return same(s, s->p[2], s->host, N);
}

/* The parts of a command that never runs are given back, too. */
static usm_status copy_behind_a_failure(state *s)
{
    usm_event *failed = NULL;

    TRY_PTR(s->p[0], usm_malloc(N, s->q, sweep_kind()));
    TRY_PTR(s->p[1], usm_malloc(N, s->other_q, sweep_kind()));
    TRY(usm_event_create(s->ctx, &failed));
    s->gate = failed;
    for (int i = 1; i < 4; i++) {
        void *dst = i == 1 ? s->p[1] : s->p[0];
        TRY(i == 3 ? usm_fill(s->q, s->p[1], "abc", 3, 100, 1, &failed, &s->ev[i])
                   : usm_memcpy(s->q, dst, s->p[0], i == 1 ? N : N / 2, 1, &failed, &s->ev[i]));
    }
    TRY(usm_event_signal(failed, USM_E_SYSTEM));
    for (int i = 1; i < 4; i++) {
        usm_status status = usm_event_wait(s->ev[i]);
        if (status != USM_E_DEPENDENCY && i != 2) /* onto itself: nothing to do */
            TRY(status ? status : USM_E_INTERNAL);
    }
    return USM_OK;
}

static usm_status copy_rows(state *s)
{
    char want[40 * 20];

    TRY(filled(s, 0));
    TRY_PTR(s->p[1], usm_malloc(60 * 20, s->q, sweep_kind()));
    TRY(usm_memcpy_2d(s->q, s->p[1], 40, s->p[0], 50, 40, 20, 0, NULL, &s->ev[1]));
    TRY(usm_event_wait(s->ev[1]));
    for (size_t y = 0; y < 20; y++)
        memcpy(want + y * 40, s->host + y * 50, 40);
    return same(s, s->p[1], want, sizeof want);
}

static usm_status copy_blocking(state *s)
{
    s->used_default = true;
    TRY_PTR(s->p[0], usm_alloc(N, sweep_kind()));
    TRY(usm_copy(s->p[0], s->host, N));
    TRY(usm_copy(s->back, s->p[0], N));
    MUST(!memcmp(s->back, s->host, N));
    TRY(usm_set(s->p[0], 0, N));
    return usm_copy_2d(s->p[0], 50, s->host, 60, 40, 20);
}

static usm_status fill_odd(state *s)
{
    char want[700];

    TRY_PTR(s->p[0], usm_malloc(1000, s->q, sweep_kind()));
    TRY(usm_fill(s->q, s->p[0], "seven b", 7, 100, 0, NULL, &s->ev[0]));
    TRY(usm_event_wait(s->ev[0]));
    for (size_t i = 0; i < sizeof want; i++)
        want[i] = "seven b"[i % 7];
    return same(s, s->p[0], want, sizeof want);
}

static usm_status fill_even(state *s)
{
    char want[1000];

    TRY_PTR(s->p[0], usm_malloc(1000, s->q, sweep_kind()));
    TRY(usm_fill(s->q, s->p[0], "pair", 4, 200, 0, NULL, &s->ev[0]));
    TRY(usm_memset(s->q, (char *)s->p[0] + 800, 'x', 200, 0, NULL, &s->ev[1]));
    TRY(usm_event_wait_all(2, s->ev));
    memset(want, 'x', sizeof want);
    for (size_t i = 0; i < 800; i++)
        want[i] = "pair"[i % 4];
    return same(s, s->p[0], want, sizeof want);
}

static usm_status hints(state *s)
{
    TRY_PTR(s->p[0], usm_malloc(5000, s->q, sweep_kind()));
    TRY(usm_prefetch(s->q, s->p[0], 5000, 0, NULL, &s->ev[0]));
    TRY(usm_mem_advise(s->q, s->p[0], 5000, USM_ADVICE_READ_MOSTLY, 0, NULL, &s->ev[1]));
    return usm_event_wait_all(2, s->ev);
}

/* --- events
 * ---------------------------------------------------------------------------------------- */

static usm_status user_event(state *s)
{
    TRY(usm_event_create(s->ctx, &s->gate));
    TRY(usm_queue_barrier(s->q, 1, &s->gate, &s->ev[0]));
    MUST(usm_event_query(s->ev[0]) != USM_OK);
    TRY(usm_event_signal(s->gate, USM_OK));
    return usm_event_wait(s->ev[0]);
}

static usm_status event_of_another_context(state *s)
{
    TRY(usm_event_create(s->other, &s->gate));
    TRY(usm_queue_barrier(s->other_q, 1, &s->gate, &s->ev[0]));
    TRY(usm_queue_barrier(s->q, 1, &s->ev[0], &s->ev[1]));
    TRY(usm_event_signal(s->gate, USM_OK));
    return usm_event_wait(s->ev[1]);
}

static usm_status many_dependencies(state *s)
{
    usm_event *deps[20];

    TRY(usm_event_create(s->other, &s->gate));
    for (int i = 0; i < 20; i++)
        deps[i] = s->gate;
    TRY(usm_queue_barrier(s->q, 20, deps, &s->ev[0]));
    TRY(usm_event_signal(s->gate, USM_OK));
    return usm_event_wait(s->ev[0]);
}

static void count_call(usm_event *ev, usm_status status, void *user)
{
    (void)ev;
    (void)status;
    atomic_fetch_add(&((state *)user)->calls, 1);
}

static usm_status callback(state *s)
{
    struct timespec wait     = {0, 1000000};
    int             accepted = 0;
    usm_status      status;

    TRY(usm_event_create(s->ctx, &s->gate));
    TRY(usm_queue_barrier(s->q, 1, &s->gate, &s->ev[0]));
    status = usm_event_on_complete(s->ev[0], count_call, s);
    accepted += !status;
    if (!status)
        status = usm_event_on_complete(s->gate, count_call, s);
    accepted += accepted == 1 && !status;
    (void)!usm_event_signal(s->gate, USM_OK);
    /* What was accepted is called, whatever fails meanwhile; s must live until then. */
    for (int ms = 0; atomic_load(&s->calls) < accepted; ms++) {
        MUST(ms < 10000);
        nanosleep(&wait, NULL);
    }
    TRY(status);
    return usm_event_wait(s->ev[0]);
}

static usm_status profiling(state *s)
{
    usm_queue_desc desc  = USM_QUEUE_DESC_INIT;
    usm_profiling  times = USM_PROFILING_INIT;

    desc.flags = sweep_has(USM_ASPECT_QUEUE_PROFILING) ? USM_QUEUE_PROFILING : 0;
    TRY(usm_queue_create(s->ctx, NULL, &desc, &s->made_q));
    TRY(usm_queue_barrier(s->made_q, 0, NULL, &s->ev[0]));
    TRY(usm_event_wait(s->ev[0]));
    return desc.flags ? usm_event_profiling(s->ev[0], &times) : USM_OK;
}

/* --- host tasks
 * ------------------------------------------------------------------------------------ */

static usm_status count_task(void *user)
{
    atomic_fetch_add(&((state *)user)->calls, 1);
    return USM_OK;
}

static usm_status host_task(state *s)
{
    usm_status status = usm_host_task(s->q, count_task, s, 0, NULL, &s->ev[0]);

    if (status) {
        MUST(!s->ev[0]);
        return status;
    }
    TRY(usm_event_wait(s->ev[0]));
    MUST(atomic_load(&s->calls) == 1);
    return USM_OK;
}

static usm_status task_between_copies(state *s)
{
    TRY(filled(s, 0));
    TRY(usm_event_create(s->ctx, &s->gate));
    TRY(usm_host_task(s->q, count_task, s, 1, &s->gate, NULL));
    TRY(usm_memcpy(s->q, s->back, s->p[0], N, 0, NULL, &s->ev[1]));
    TRY(usm_event_signal(s->gate, USM_OK));
    TRY(usm_event_wait(s->ev[1]));
    if (!atomic_load(&s->calls)) { /* what came before the task failed, and had no event */
        usm_status status = usm_queue_wait(s->q);
        MUST(status);
        return status;
    }
    MUST(atomic_load(&s->calls) == 1);
    MUST(!memcmp(s->back, s->host, N));
    return USM_OK;
}

static usm_status task_out_of_order(state *s)
{
    usm_queue_desc desc = USM_QUEUE_DESC_INIT;

    desc.flags = sweep_has(USM_ASPECT_OUT_OF_ORDER_QUEUE) ? USM_QUEUE_OUT_OF_ORDER : 0;
    TRY(usm_queue_create(s->ctx, NULL, &desc, &s->made_q));
    TRY(usm_host_task(s->made_q, count_task, s, 0, NULL, &s->ev[0]));
    TRY(usm_host_task(s->made_q, count_task, s, 1, &s->ev[0], &s->ev[1]));
    TRY(usm_event_wait(s->ev[1]));
    MUST(atomic_load(&s->calls) == 2);
    return usm_queue_wait(s->made_q);
}

/* --- waiting and the end of queues
 * ------------------------------------------------------------------ */

static usm_status queue_waits(state *s)
{
    usm_status status;

    TRY(filled(s, 0));
    status = usm_queue_query(s->q);
    TRY(status == USM_E_NOT_READY ? USM_OK : status);
    TRY(usm_queue_wait(s->q));
    return usm_context_wait(s->ctx);
}

static usm_status queue_destroyed_while_busy(state *s)
{
    TRY(usm_queue_create(s->ctx, NULL, NULL, &s->made_q));
    TRY(usm_event_create(s->ctx, &s->gate));
    TRY(usm_queue_barrier(s->made_q, 1, &s->gate, NULL));
    TRY(usm_event_signal(s->gate,
                         USM_OK)); /* or a destroy that has no thread would wait for ever */
    usm_queue_destroy(s->made_q);
    s->made_q = NULL;
    return USM_OK;
}

static void on_error(usm_context *ctx, usm_status status, const char *message, void *user)
{
    (void)ctx;
    (void)status;
    (void)message;
    atomic_fetch_add((atomic_int *)user, 1);
}

static usm_status error_callback(state *s)
{
    static atomic_int notified; /* it may be told when the scenario is over */
    usm_context_desc  desc = USM_CONTEXT_DESC_INIT;

    desc.on_error = on_error;
    desc.user     = &notified;
    TRY(usm_context_create(&desc, &s->made_ctx));
    TRY(usm_queue_create(s->made_ctx, NULL, NULL, &s->made_q));
    TRY(usm_queue_barrier(s->made_q, 0, NULL, NULL));
    return usm_queue_wait(s->made_q);
}

/* --- in the order of queues ------------------------------------------------------------------- */

/* The state frees what is in a slot: a block that its queue frees leaves it. */
static usm_status free_in(state *s, usm_queue *q, int slot)
{
    TRY(usm_async_free(q, s->p[slot]));
    s->p[slot] = NULL;
    return USM_OK;
}

static usm_status async_pairs(state *s)
{
    for (int i = 0; i < 3; i++) {
        TRY_PTR(s->p[0], usm_async_malloc(s->q, sweep_kind(), N));
        TRY(usm_memset(s->q, s->p[0], i, N, 0, NULL, NULL));
        TRY(free_in(s, s->q, 0));
    }
    return usm_queue_wait(s->q);
}

/* A block goes from one queue to another by a wait, and its queue ends with it. */
static usm_status async_between_queues(state *s)
{
    TRY(usm_pool_create(s->ctx, NULL, sweep_kind(), NULL, &s->pool));
    TRY(usm_queue_create(s->ctx, NULL, NULL, &s->made_q));
    TRY_PTR(s->p[0], usm_async_malloc_from_pool(s->q, (size_t)1 << 20, s->pool));
    TRY(usm_memset(s->q, s->p[0], 1, N, 0, NULL, NULL));
    TRY(free_in(s, s->q, 0));
    TRY_PTR(s->p[0], usm_async_malloc_from_pool(s->made_q, (size_t)1 << 20, s->pool));
    TRY(usm_memset(s->made_q, s->p[0], 2, N, 0, NULL, NULL));
    TRY(free_in(s, s->made_q, 0));
    return usm_queue_wait(s->made_q);
}

static usm_status async_with_dependencies(state *s)
{
    usm_queue_desc desc = USM_QUEUE_DESC_INIT;

    desc.flags = sweep_has(USM_ASPECT_OUT_OF_ORDER_QUEUE) ? USM_QUEUE_OUT_OF_ORDER : 0;
    TRY(usm_queue_create(s->ctx, NULL, &desc, &s->made_q));
    TRY_PTR(s->p[0], usm_async_malloc_after(s->made_q, sweep_kind(), N, 0, NULL, &s->ev[0]));
    TRY(usm_memset(s->made_q, s->p[0], 1, N, 1, &s->ev[0], &s->ev[1]));
    TRY(usm_async_free_after(s->made_q, s->p[0], 1, &s->ev[1], &s->ev[2]));
    s->p[0] = NULL;
    return usm_event_wait(s->ev[2]);
}

const scenario command_scenarios[] = {
    {"copy", copy, NEEDS_DATA},
    {"copy_overlapping", copy_overlapping, NEEDS_DATA},
    {"copy_between_contexts", copy_between_contexts, NEEDS_DATA},
    {"copy_behind_a_failure", copy_behind_a_failure, NEEDS_DATA},
    {"copy_rows", copy_rows, NEEDS_DATA},
    {"copy_blocking", copy_blocking, NEEDS_DATA},
    {"fill_odd", fill_odd, NEEDS_DATA},
    {"fill_even", fill_even, NEEDS_DATA},
    {"hints", hints, 0},
    {"user_event", user_event, 0},
    {"event_of_another_context", event_of_another_context, 0},
    {"many_dependencies", many_dependencies, 0},
    {"callback", callback, 0},
    {"profiling", profiling, MAY_LACK},
    {"host_task", host_task, 0},
    {"task_between_copies", task_between_copies, NEEDS_DATA},
    {"task_out_of_order", task_out_of_order, 0},
    {"queue_waits", queue_waits, NEEDS_DATA},
    {"queue_destroyed_while_busy", queue_destroyed_while_busy, 0},
    {"error_callback", error_callback, 0},
    {"async_pairs", async_pairs, 0},
    {"async_between_queues", async_between_queues, 0},
    {"async_with_dependencies", async_with_dependencies, 0},
    {NULL, NULL, 0},
};
