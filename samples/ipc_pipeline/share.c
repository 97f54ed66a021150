/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory and events that two processes share: made and exported by the owner, opened by a worker.
 *
 * A handle is plain bytes; here they travel through a usm_ipc_channel, a pipe or MPI would do. */
#include "pipeline.h"

#include <stdio.h>

/* ---- where ---------------------------------------------------------------------------- */

/* A pool whose blocks other processes may open: said when it is made, for each area of such a pool
 * is a file in memory or an object of the driver. */
static usm_status exporting_pool(usm_context *ctx, usm_device *dev, usm_pool **pool)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;

    desc.export_mode = USM_POOL_EXPORT_RW;
    return usm_pool_create(ctx, dev, USM_DEVICE, &desc, pool);
}

/* Whether others can open blocks of the pool: the one way to know is to ask for a handle. */
static usm_status can_export(usm_pool *pool)
{
    usm_ipc_handle handle;
    void          *p      = usm_pool_malloc(pool, 64);
    usm_status     status = p ? usm_ipc_get(p, NULL, &handle) : USM_E_NOT_EXPORTABLE;

    if (p && status == USM_OK)
        status = usm_ipc_put(&handle, NULL);
    usm_free(p);
    return status;
}

static usm_status host_context(usm_context **ctx)
{
    usm_context_desc desc   = USM_CONTEXT_DESC_INIT;
    usm_device      *host   = NULL;
    size_t           n      = 0;
    usm_status       status = usm_select_devices("host:*", &host, 1, &n);

    if (status != USM_OK)
        return status;
    desc.ndevices = 1;
    desc.devices  = &host;
    return usm_context_create(&desc, ctx);
}

usm_status place_create(place *p)
{
    usm_context *ctx = usm_default_context();
    usm_status   status;

    *p = (place){.ctx = NULL};
    if (!ctx)
        return USM_E_NO_DEVICE;
    status = exporting_pool(ctx, NULL, &p->pool);
    if (status == USM_OK)
        status = can_export(p->pool);
    if (status != USM_E_NOT_EXPORTABLE)
        return status;
    printf("%s\nSo what is shared lies in the host's memory, and is copied to the device\n\n",
           usm_last_error());
    usm_pool_destroy(p->pool);
    p->pool = NULL;
    status  = place_join(p, true);
    if (status == USM_OK)
        status = exporting_pool(p->ctx, NULL, &p->pool);
    return status;
}

usm_status place_join(place *p, bool is_staged)
{
    *p = (place){.is_staged = is_staged};
    return is_staged ? host_context(&p->ctx) : USM_OK;
}

void place_destroy(place *p)
{
    usm_pool_destroy(p->pool);
    usm_context_destroy(p->ctx);
    *p = (place){.ctx = NULL};
}

/* ---- what ----------------------------------------------------------------------------- */

static void cut(shared *s, size_t count)
{
    for (size_t i = 0; i < SLOTS; i++) {
        s->in[i]  = (float *)s->memory + i * count;
        s->out[i] = (float *)s->memory + (SLOTS + i) * count;
    }
}

static usm_status make_event(usm_ipc_event **ev, usm_ipc_handle *handle)
{
    usm_status status = usm_ipc_event_create(NULL, ev);

    return status == USM_OK ? usm_ipc_event_get(*ev, handle) : status;
}

usm_status shared_create(shared *s, const place *p, size_t count, terms *t)
{
    usm_status status = USM_OK;

    *t = (terms){.is_staged = p->is_staged};
    *s = (shared){.memory = usm_pool_malloc(p->pool, (size_t)2 * SLOTS * count * sizeof(float))};
    if (!s->memory)
        return USM_E_NO_MEMORY;
    cut(s, count);
    status = usm_ipc_get(s->memory, NULL, &t->memory);
    for (size_t i = 0; i < SLOTS && status == USM_OK; i++) {
        status = make_event(&s->filled[i], &t->filled[i]);
        if (status == USM_OK)
            status = make_event(&s->done[i], &t->done[i]);
        if (status == USM_OK)
            status = make_event(&s->drained[i], &t->drained[i]);
    }
    return status;
}

usm_status shared_open(shared *s, const place *p, size_t count, const terms *t)
{
    usm_status status;

    *s     = (shared){.memory = NULL};
    status = usm_ipc_open(&t->memory, p->ctx, NULL, &s->memory);
    if (status != USM_OK)
        return status;
    cut(s, count);
    for (size_t i = 0; i < SLOTS && status == USM_OK; i++) {
        status = usm_ipc_event_open(&t->filled[i], NULL, &s->filled[i]);
        if (status == USM_OK)
            status = usm_ipc_event_open(&t->done[i], NULL, &s->done[i]);
        if (status == USM_OK)
            status = usm_ipc_event_open(&t->drained[i], NULL, &s->drained[i]);
    }
    return status;
}

static void destroy_events(shared *s)
{
    for (size_t i = 0; i < SLOTS; i++) {
        usm_ipc_event_destroy(s->filled[i]);
        usm_ipc_event_destroy(s->done[i]);
        usm_ipc_event_destroy(s->drained[i]);
    }
}

void shared_destroy(shared *s)
{
    destroy_events(s);
    usm_free(s->memory); /* a worker that still has it open keeps it until it closes */
    *s = (shared){.memory = NULL};
}

void shared_close(shared *s, const place *p)
{
    destroy_events(s);
    if (s->memory)
        (void)usm_ipc_close(s->memory, p->ctx);
    *s = (shared){.memory = NULL};
}
