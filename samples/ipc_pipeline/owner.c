/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The owner: has the data, makes what is shared, fills and drains it, checks the results. */
#include "pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct owner {
    const options   *o;
    usm_ipc_channel *ch;
    place            place;
    shared           shared[MAX_WORKERS];
    usm_queue       *up, *down; /* to the workers, and back */
    float           *data, *results;
} owner;

static float *part(const owner *w, float *of, int batch, int worker)
{
    return of + ((size_t)batch * (size_t)w->o->workers + (size_t)worker) * w->o->count;
}

static size_t total(const owner *w)
{
    return (size_t)w->o->batches * (size_t)w->o->workers * w->o->count;
}

/* ---- two stages of three --------------------------------------------------------------- */

/* Queues what fills a slot of each worker with its part of a batch. */
static usm_status fill(owner *w, int batch, size_t slot)
{
    usm_status status = USM_OK;

    for (int i = 0; i < w->o->workers && status == USM_OK; i++) {
        shared *s = &w->shared[i];

        status = usm_ipc_event_wait(s->done[slot], w->up, NULL); /* with what was there before */
        if (status == USM_OK)
            status = usm_memcpy(w->up, s->in[slot], part(w, w->data, batch, i),
                                w->o->count * sizeof(float), 0, NULL, NULL);
        if (status == USM_OK)
            status = usm_ipc_event_record(s->filled[slot], w->up, 0, NULL);
    }
    return status;
}

static usm_status drain(owner *w, int batch, size_t slot)
{
    usm_status status = USM_OK;

    for (int i = 0; i < w->o->workers && status == USM_OK; i++) {
        shared *s = &w->shared[i];

        status = usm_ipc_event_wait(s->done[slot], w->down, NULL);
        if (status == USM_OK)
            status = usm_memcpy(w->down, part(w, w->results, batch, i), s->out[slot],
                                w->o->count * sizeof(float), 0, NULL, NULL);
        if (status == USM_OK)
            status = usm_ipc_event_record(s->drained[slot], w->down, 0, NULL);
    }
    return status;
}

/* ---- the two ways ----------------------------------------------------------------------- */

/* One thing after another, each waited for: worker.c has the other side. */
static usm_status in_turns(owner *w)
{
    usm_status status = USM_OK;

    for (int b = 0; b < w->o->batches && status == USM_OK; b++) {
        status = fill(w, b, 0);
        if (status == USM_OK)
            status = usm_queue_wait(w->up);
        for (int i = 0; i < 2 && status == USM_OK; i++) /* filled, then done */
            status = usm_ipc_channel_barrier(w->ch);
        if (status == USM_OK)
            status = drain(w, b, 0);
        if (status == USM_OK)
            status = usm_queue_wait(w->down);
        if (status == USM_OK)
            status = usm_ipc_channel_barrier(w->ch);
    }
    return status;
}

/* In step k batch k is filled, batch k - 1 computed, batch k - 2 drained. */
static usm_status overlapped(owner *w)
{
    usm_status status = USM_OK;

    for (int k = 0; k < w->o->batches + 2 && status == USM_OK; k++) {
        if (k >= 2)
            status = drain(w, k - 2, (size_t)k % SLOTS);
        if (status == USM_OK && k < w->o->batches)
            status = fill(w, k, (size_t)k % SLOTS);
        if (status == USM_OK)
            status = usm_ipc_channel_barrier(w->ch);
    }
    if (status == USM_OK)
        status = usm_queue_wait(w->down);
    return status == USM_OK ? usm_ipc_channel_barrier(w->ch) : status;
}

/* The least time of one way so far, and whether its results are right. */
static usm_status run(owner *w, usm_status (*way)(owner *), const float *expected, uint64_t *least)
{
    usm_status status;
    uint64_t   start, ns;

    memset(w->results, 0, total(w) * sizeof *w->results);
    status = usm_ipc_channel_barrier(w->ch); /* all are ready */
    start  = now_ns();
    if (status == USM_OK)
        status = way(w);
    ns = now_ns() - start;
    if (ns < *least)
        *least = ns;
    for (size_t i = 0; i < total(w) && status == USM_OK; i++)
        if (w->results[i] != expected[i]) {
            fprintf(stderr, "result %zu is %.9g, plain C says %.9g\n", i, (double)w->results[i],
                    (double)expected[i]);
            status = USM_E_CORRUPT;
        }
    return status;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void make_data(owner *w)
{
    uint32_t random = 12345;

    for (size_t i = 0; i < total(w); i++) {
        random     = random * 1664525U + 1013904223U;
        w->data[i] = 0.05f + 0.9f * (float)(random >> 8) / 16777216.0f;
    }
}

/* Makes what each worker shares with the owner, and sends it the handles. */
static usm_status send_terms(owner *w)
{
    terms     *all    = calloc((size_t)w->o->workers + 1, sizeof *all);
    usm_status status = all ? USM_OK : USM_E_NO_MEMORY;

    for (int i = 0; i < w->o->workers && status == USM_OK; i++) {
        terms mine;

        status = shared_create(&w->shared[i], &w->place, w->o->count, &mine);
        if (status == USM_OK)
            status = usm_ipc_channel_gather(w->ch, &mine, sizeof mine, all);
    }
    free(all);
    return status;
}

static usm_status prepare(owner *w)
{
    usm_status status = meet(w->o, 0, &w->ch);

    if (status == USM_OK)
        status = place_create(&w->place);
    if (status == USM_OK)
        status = usm_queue_create(NULL, NULL, NULL, &w->up);
    if (status == USM_OK)
        status = usm_queue_create(NULL, NULL, NULL, &w->down);
    if (status == USM_OK)
        status = send_terms(w);
    return status;
}

static void tell(const owner *w, const uint64_t *ns)
{
    double mib = (double)(total(w) * sizeof(float)) / 1048576.0;

    printf("%d batches to %d workers, %.2f MiB each, %.0f MiB there and back; the best of %d\n\n",
           w->o->batches, w->o->workers, mib / w->o->batches / w->o->workers, mib, w->o->rounds);
    printf("copy, compute, copy back in turns    %8.1f ms  %8.1f MiB/s\n", (double)ns[0] / 1e6,
           mib * 1e9 / (double)ns[0]);
    printf("all three at once, two slots each    %8.1f ms  %8.1f MiB/s\n", (double)ns[1] / 1e6,
           mib * 1e9 / (double)ns[1]);
    puts("All results are those of plain C, bit by bit");
}

static void clean_up(owner *w)
{
    (void)usm_queue_wait(w->up);
    (void)usm_queue_wait(w->down);
    for (int i = 0; i < w->o->workers; i++)
        shared_destroy(&w->shared[i]);
    usm_queue_destroy(w->up);
    usm_queue_destroy(w->down);
    place_destroy(&w->place);
}

int owner_run(const options *o)
{
    owner      w        = {.o = o};
    size_t     size     = total(&w) * sizeof(float);
    float     *expected = malloc(size);
    uint64_t   ns[2]    = {UINT64_MAX, UINT64_MAX};
    usm_status status   = USM_OK;

    w.data    = malloc(size);
    w.results = malloc(size);
    if (!w.data || !w.results || !expected) {
        fputs("owner: no memory for the data\n", stderr);
        status = USM_E_NO_MEMORY;
        goto done;
    }
    make_data(&w);
    kernel_in_plain_c(w.data, expected, total(&w), o->steps);
    status = prepare(&w);
    for (int r = 0; r < o->rounds && status == USM_OK; r++) {
        status = run(&w, in_turns, expected, &ns[0]);
        if (status == USM_OK)
            status = run(&w, overlapped, expected, &ns[1]);
    }
    if (status == USM_OK)
        tell(&w, ns);
    else
        fprintf(stderr, "owner: %s\n", usm_last_error());
    usm_ipc_channel_close(w.ch); /* first, so that nobody waits for this one */
    clean_up(&w);
done:
    free(w.data);
    free(w.results);
    free(expected);
    return status == USM_OK ? 0 : 1;
}
