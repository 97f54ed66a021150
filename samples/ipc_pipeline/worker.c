/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A worker: opens what the owner made for it, and computes part after part.  The order between the
 * processes is kept by events in queues, so its host never waits for a device. */
#include "pipeline.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct worker {
    const options *o;
    place          place;
    shared         shared;
    usm_queue     *q;
    usm_kernel    *kernel;
    float         *in, *out; /* where the device cannot use shared memory: its own */
} worker;

/* Queues the computation of the part that lies, or will lie, in a slot. */
static usm_status compute(worker *w, size_t slot)
{
    shared      *s    = &w->shared;
    size_t       size = w->o->count * sizeof(float);
    const float *in   = w->place.is_staged ? w->in : s->in[slot];
    float       *out  = w->place.is_staged ? w->out : s->out[slot];
    usm_status   status;

    status = usm_ipc_event_wait(s->filled[slot], w->q, NULL);
    if (status == USM_OK)
        status = usm_ipc_event_wait(s->drained[slot], w->q, NULL);
    if (status == USM_OK && w->place.is_staged)
        status = usm_memcpy(w->q, w->in, s->in[slot], size, 0, NULL, NULL);
    if (status == USM_OK)
        status = kernel_launch(w->kernel, w->q, in, out, w->o);
    if (status == USM_OK && w->place.is_staged)
        status = usm_memcpy(w->q, s->out[slot], w->out, size, 0, NULL, NULL);
    if (status == USM_OK)
        status = usm_ipc_event_record(s->done[slot], w->q, 0, NULL);
    return status;
}

/* One thing after another: the owner fills, this computes, the owner drains. */
static usm_status in_turns(worker *w, usm_ipc_channel *ch)
{
    usm_status status = usm_ipc_channel_barrier(ch);

    for (int b = 0; b < w->o->batches && status == USM_OK; b++) {
        status = usm_ipc_channel_barrier(ch); /* it is filled */
        if (status == USM_OK)
            status = compute(w, 0);
        if (status == USM_OK)
            status = usm_queue_wait(w->q);
        if (status == USM_OK)
            status = usm_ipc_channel_barrier(ch); /* it is done */
        if (status == USM_OK)
            status = usm_ipc_channel_barrier(ch); /* it is drained */
    }
    return status;
}

/* In step k batch k is filled, batch k - 1 computed, batch k - 2 drained.  The barrier only makes
 * sure that each event was recorded before another process waits for it; devices may be far behind.
 */
static usm_status overlapped(worker *w, usm_ipc_channel *ch, int rank)
{
    usm_status status = usm_ipc_channel_barrier(ch);

    for (int k = 0; k < w->o->batches + 2 && status == USM_OK; k++) {
        if (w->o->kill == rank && k == w->o->batches / 2)
            (void)raise(SIGKILL);
        if (k > 0 && k <= w->o->batches)
            status = compute(w, (size_t)(k - 1) % SLOTS);
        if (status == USM_OK)
            status = usm_ipc_channel_barrier(ch);
    }
    if (status == USM_OK)
        status = usm_queue_wait(w->q);
    return status == USM_OK ? usm_ipc_channel_barrier(ch) : status;
}

static usm_status prepare(worker *w, const terms *t)
{
    size_t     size   = w->o->count * sizeof(float);
    usm_status status = place_join(&w->place, t->is_staged);

    if (status == USM_OK)
        status = shared_open(&w->shared, &w->place, w->o->count, t);
    if (status == USM_OK)
        status = usm_queue_create(NULL, NULL, NULL, &w->q);
    if (status == USM_OK)
        status = kernel_create(&w->kernel);
    if (status != USM_OK || !t->is_staged)
        return status;
    w->in  = usm_malloc_device(size, w->q);
    w->out = usm_malloc_device(size, w->q);
    return w->in && w->out ? USM_OK : USM_E_NO_MEMORY;
}

static void clean_up(worker *w)
{
    (void)usm_queue_wait(w->q);
    usm_kernel_destroy(w->kernel);
    usm_free(w->in);
    usm_free(w->out);
    shared_close(&w->shared, &w->place);
    usm_queue_destroy(w->q);
    place_destroy(&w->place);
}

int worker_run(const options *o, int rank)
{
    worker           w      = {.o = o};
    usm_ipc_channel *ch     = NULL;
    terms           *all    = calloc((size_t)o->workers + 1, sizeof *all);
    usm_status       status = all ? meet(o, rank, &ch) : USM_E_NO_MEMORY;

    /* The owner's terms are the first of each gathering; the rank-th are this worker's. */
    for (int i = 1; i <= o->workers && status == USM_OK; i++) {
        const terms none = {.is_staged = false};

        status = usm_ipc_channel_gather(ch, &none, sizeof none, all);
        if (status == USM_OK && i == rank)
            status = prepare(&w, &all[0]);
    }
    for (int r = 0; r < o->rounds && status == USM_OK; r++) {
        status = in_turns(&w, ch);
        if (status == USM_OK)
            status = overlapped(&w, ch, rank);
    }
    if (status != USM_OK)
        fprintf(stderr, "worker %d: %s\n", rank, usm_last_error());
    clean_up(&w);
    usm_ipc_channel_close(ch);
    free(all);
    return status == USM_OK ? 0 : 1;
}
