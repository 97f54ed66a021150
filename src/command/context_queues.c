/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The queues that a context has of its own, the default queue, and the data probe. */
#include "base/os.h"
#include "command/queue.h"
#include "device/init.h"

#include <string.h>

/* ---- own queues ----------------------------------------------------------------- */

usm_status usm_context_wait(usm_context *ctx)
{
    usm_status st = usm__context_resolve(&ctx), first = USM_OK;

    if (st == USM_OK && usm__context_is_inert(ctx))
        st = usm__fail(USM_E_FORKED, "the context was made before fork(); make one in the child");
    if (st != USM_OK)
        return st;
    for (usm_queue *q = usm__queue_next(ctx, NULL); q; q = usm__queue_next(ctx, q)) {
        st = usm__queue_finish(q);
        if (st != USM_OK && first == USM_OK)
            first = st;
    }
    return first;
}

usm_queue *usm__queue_own(usm_context *ctx, size_t index, usm__context_own_queue which)
{
    _Atomic(usm_queue *) *slot = &ctx->devices[index].queues[which];
    usm_queue            *q = usm_load_acquire(slot), *expected = NULL;

    if (q || usm__queue_make_own(ctx, index, &q) != USM_OK)
        return q;
    if (!usm_cas_acq_rel(slot, &expected, q)) {
        usm__queue_end_own(q); /* another thread was faster */
        q = expected;
    }
    return q;
}

usm_queue *usm__queue_borrow(usm_context *ctx, size_t index)
{
    usm_queue *q = NULL;
    usm_list  *it;

    usm__mutex_lock(&ctx->lock);
    it = usm_list_pop(&ctx->devices[index].idle);
    usm__mutex_unlock(&ctx->lock);
    if (it)
        return usm_container_of(it, usm_queue, link);
    return usm__queue_make_own(ctx, index, &q) == USM_OK ? q : NULL;
}

void usm__queue_return(usm_queue *q)
{
    usm__mutex_lock(&q->ctx->lock);
    usm_list_append(&q->ctx->devices[q->index].idle, &q->link);
    usm__mutex_unlock(&q->ctx->lock);
}

typedef struct candidate {
    usm_queue *made, *chosen;
} candidate;

static void choose_default(void *arg)
{
    candidate *c = arg;

    c->chosen = usm_load_relaxed(&usm__queues.by_default);
    if (c->chosen)
        return; /* another thread was faster */
    c->chosen = c->made;
    usm_store_release(&usm__queues.by_default, c->made);
}

/* pre: the caller is counted as one that uses the default context. */
static usm_queue *make_default(void)
{
    usm_context *ctx = usm_default_context();
    candidate    c   = {NULL, NULL};

    if (!ctx || usm__queue_make(ctx, 0, USM_QUEUE_IN_ORDER, &c.made) != USM_OK)
        return NULL;
    c.made->is_internal = true;
    (void)usm__default_run(ctx, choose_default, &c);
    if (c.chosen != c.made)
        usm__queue_retire(c.made);
    return c.chosen;
}

usm_queue *usm_default_queue(void)
{
    usm_queue *q = usm_default_context() ? usm_load_acquire(&usm__queues.by_default) : NULL;

    if (q)
        return q;
    usm__default_enter();
    q = make_default();
    usm__default_leave();
    return q;
}

void usm__queue_forget_default(void)
{
    usm_store_relaxed(&usm__queues.by_default, NULL);
}

/* ---- the probe ---------------------------------------------------------------- */

/* Outlives a wait that failed, because the copies may then still be in progress. */
typedef struct probe {
    usm_list      link; /* in ctx->probes, after a failed wait */
    usm_queue    *q;    /* a queue of the context's own        */
    usm_kind      kind;
    void         *block;
    unsigned char out[64], back[64];
} probe;

static probe *probe_new(usm_context *ctx, const usm_device *dev)
{
    probe     *p = usm__heap_alloc(sizeof *p);
    usm_status st;

    if (!p) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for a context's first copy");
        return NULL;
    }
    p->kind = usm_device_has(dev, USM_ASPECT_USM_DEVICE_ALLOCATIONS) ? USM_DEVICE : USM_SHARED;
    st      = usm__be_mem_alloc(ctx->be, ctx->native, dev->desc.handle, p->kind, sizeof p->out, 64,
                                &p->block);
    if (st != USM_OK) {
        usm__heap_free(p);
        return NULL;
    }
    for (size_t i = 0; i < sizeof p->out; i++)
        p->out[i] = (unsigned char)(i * 37 + 11);
    return p;
}

static void probe_free(usm_context *ctx, probe *p)
{
    (void)usm__be_mem_free(ctx->be, ctx->native, p->kind, p->block, sizeof p->out);
    usm__heap_free(p);
}

static void finish_probes(usm_context *ctx)
{
    usm_list *it;

    while ((it = usm_list_pop(&ctx->probes))) {
        probe *p = usm_container_of(it, probe, link);

        (void)usm__be_queue_wait(ctx->be, p->q->native); /* no caller is left that could receive an
                                                            error */
        probe_free(ctx, p);
    }
}

static usm_status copy_and_wait(usm_queue *q, void *dst, const void *src, bool *is_in_flight)
{
    usm_status st =
        usm__be_copy(q->be, q->native, dst, src, sizeof((probe *)0)->out, 0, NULL, NULL);

    if (st != USM_OK)
        return st;
    st            = usm__be_queue_wait(q->be, q->native);
    *is_in_flight = st != USM_OK;
    return st;
}

static usm_status there_and_back(usm_queue *q, probe *p, bool *is_in_flight)
{
    usm_status st = copy_and_wait(q, p->block, p->out, is_in_flight);

    if (st == USM_OK)
        st = copy_and_wait(q, p->back, p->block, is_in_flight);
    if (st == USM_OK && memcmp(p->out, p->back, sizeof p->out) != 0)
        st = USM_E_NO_DATA_MOVED;
    return st;
}

static void probe_put_aside(usm_context *ctx, usm_queue *q, probe *p)
{
    p->q = q;
    usm__mutex_lock(&ctx->lock);
    usm_list_append(&ctx->probes, &p->link);
    usm__mutex_unlock(&ctx->lock);
}

static usm_status no_data(const usm_device *dev)
{
    return usm__fail(USM_E_NO_DATA_MOVED,
                     "%s (%s) completes copies without moving data: a driver without its device? "
                     "see usm-info --doctor",
                     dev->term, dev->desc.name);
}

usm_status usm__queue_probe_device(usm_context *ctx, size_t index)
{
    usm__context_device *d            = &ctx->devices[index];
    int                  known        = usm_load_acquire(&d->moves_data);
    bool                 is_in_flight = false;
    probe               *p;
    usm_queue           *q;
    usm_status           st;

    if (known != USM__PROBE_UNKNOWN)
        return known == USM__PROBE_MOVES ? USM_OK : no_data(d->dev);
    q = usm__queue_own(ctx, index, USM__QUEUE_STAGING);
    if (!q)
        return usm_last_status();
    p = probe_new(ctx, d->dev);
    if (!p) /* a full device may still be able to copy: probe again at the next command */
        return usm_last_status() == USM_E_NO_MEMORY ? USM_OK : usm_last_status();
    st = there_and_back(q, p, &is_in_flight);
    if (is_in_flight)
        probe_put_aside(ctx, q, p);
    else
        probe_free(ctx, p);
    if (st == USM_OK || st == USM_E_NO_DATA_MOVED)
        usm_store_release(&d->moves_data, st == USM_OK ? USM__PROBE_MOVES : USM__PROBE_FAILS);
    return st == USM_E_NO_DATA_MOVED ? no_data(d->dev) : st;
}

/* ---- the end of a context -------------------------------------------------------- */

static void end_own_queues(usm_context *ctx)
{
    for (size_t i = 0; i < ctx->ndevices; i++)
        for (size_t which = 0; which < 2; which++) {
            usm_queue *q = usm_swap_acq_rel(&ctx->devices[i].queues[which], NULL);

            if (q)
                usm__queue_end_own(q);
        }
    for (size_t i = 0; i < ctx->ndevices; i++)
        for (usm_list *it = usm_list_pop(&ctx->devices[i].idle); it;
             it           = usm_list_pop(&ctx->devices[i].idle))
            usm__queue_end_own(usm_container_of(it, usm_queue, link));
}

/* The caller no longer owns the queues of a context that ends. */
void usm__queues_retire(usm_context *ctx)
{
    for (usm_queue *q = usm__queue_next(ctx, NULL); q; q = usm__queue_next(ctx, q))
        usm__queue_retire(q);
}

void usm__queues_end(usm_context *ctx)
{
    finish_probes(ctx);
    end_own_queues(ctx);
}
