/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The group: each worker makes one block that the others may open, and one event; a channel carries
 * the handles, and says who is still there. */
#include "gradients.h"

#include <stdio.h>
#include <stdlib.h>

/* What a worker tells the others. */
typedef struct card {
    usm_ipc_handle block, steps;
} card;

/* ---- memory that others can open ---------------------------------------------------------- */

static void *exported(group *g, size_t size, card *mine)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    void         *p    = NULL;

    desc.export_mode = USM_POOL_EXPORT_RW;
    if (usm_pool_create(g->ctx ? g->ctx : usm_default_context(), NULL, USM_DEVICE, &desc,
                        &g->pool) != USM_OK)
        return NULL;
    p = usm_pool_malloc(g->pool, size);
    if (p && usm_ipc_get(p, NULL, &mine->block) == USM_OK)
        return p;
    usm_free(p);
    usm_pool_destroy(g->pool);
    g->pool = NULL;
    return NULL;
}

/* OpenCL has no memory that another process could open.  Then the sum is made on the host, whose
 * memory can be. */
static usm_status use_the_host(group *g)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_device      *host = NULL;
    size_t           n    = 0;
    usm_status       status;

    if (g->rank == 0)
        printf("%s\nSo the sums are made in the host's memory\n\n", usm_last_error());
    status = usm_select_devices("host:*", &host, 1, &n);
    if (status != USM_OK)
        return status;
    desc.ndevices = 1;
    desc.devices  = &host;
    return usm_context_create(&desc, &g->ctx);
}

/* My block: gradients, then their sum. */
static usm_status make_mine(group *g, size_t size, card *mine)
{
    member    *me     = &g->of[g->rank];
    usm_status status = USM_OK;

    if (!usm_default_context())
        return USM_E_NO_DEVICE;
    me->gradients = exported(g, 2 * size, mine);
    if (!me->gradients) {
        status        = use_the_host(g);
        me->gradients = status == USM_OK ? exported(g, 2 * size, mine) : NULL;
    }
    if (!me->gradients)
        return USM_E_NO_MEMORY;
    me->sum = me->gradients + size / sizeof(float);
    status  = usm_ipc_event_create(g->ctx, &me->steps);
    if (status == USM_OK)
        status = usm_ipc_event_get(me->steps, &mine->steps);
    return status;
}

static usm_status open_other(group *g, int rank, size_t size, const card *c)
{
    member    *m      = &g->of[rank];
    void      *p      = NULL;
    usm_status status = usm_ipc_open(&c->block, g->ctx, NULL, &p);

    if (status != USM_OK)
        return status;
    m->gradients = p;
    m->sum       = m->gradients + size / sizeof(float);
    return usm_ipc_event_open(&c->steps, g->ctx, &m->steps);
}

/* ---- who is there --------------------------------------------------------------------------- */

static void count_living(group *g)
{
    g->n = 0;
    for (int r = 0; r < g->o->workers; r++)
        if (r == g->rank || usm_ipc_channel_is_alive(g->ch, (uint32_t)r)) {
            if (r == g->rank)
                g->me = g->n;
            g->living[g->n++] = r;
        }
}

/* Every living worker gets USM_E_PEER at the same call, so all go on with the same group. */
static usm_status look(group *g, usm_status status)
{
    if (status != USM_E_PEER)
        return status;
    count_living(g);
    if (g->me == 0)
        printf("%s: %d go on\n", usm_last_error(), g->n);
    return status;
}

usm_status group_meet(group *g)
{
    return look(g, usm_ipc_channel_barrier(g->ch));
}

usm_status group_gather(group *g, const void *mine, size_t size, void *all)
{
    return look(g, usm_ipc_channel_gather(g->ch, mine, size, all));
}

/* ---- the whole ------------------------------------------------------------------------------- */

static usm_status meet(group *g)
{
    usm_ipc_channel_desc desc = USM_IPC_CHANNEL_DESC_INIT;
    char                 name[32];

    snprintf(name, sizeof name, "ipc_gradients-%d", g->o->run);
    desc.timeout_ms = 10000; /* one that ends before it has come cannot be told from a late one */
    desc.name       = name;
    desc.rank       = (uint32_t)g->rank;
    desc.size       = (uint32_t)g->o->workers;
    return usm_ipc_channel_open(&desc, &g->ch);
}

usm_status group_open(group *g, const options *o, int rank)
{
    card       mine, *all = calloc((size_t)o->workers, sizeof *all);
    size_t     size = 0;
    usm_status status;

    *g = (group){.o = o, .rank = rank};
    for (int i = 0; i < o->nsizes; i++)
        size = o->sizes[i] > size ? o->sizes[i] : size;
    status = all ? meet(g) : USM_E_NO_MEMORY;
    if (status == USM_OK)
        status = make_mine(g, size, &mine);
    if (status == USM_OK)
        status = usm_queue_create(g->ctx, NULL, NULL, &g->q);
    if (status == USM_OK)
        status = kernel_create(g->ctx, &g->add);
    if (status == USM_OK)
        status = usm_ipc_channel_gather(g->ch, &mine, sizeof mine, all);
    for (int r = 0; r < o->workers && status == USM_OK; r++)
        if (r != rank)
            status = open_other(g, r, size, &all[r]);
    if (status == USM_OK)
        count_living(g);
    free(all);
    return status;
}

void group_close(group *g)
{
    for (int r = 0; r < g->o->workers; r++) {
        usm_ipc_event_destroy(g->of[r].steps);
        if (r == g->rank)
            usm_free(g->of[r].gradients);
        else if (g->of[r].gradients)
            (void)usm_ipc_close(g->of[r].gradients, g->ctx);
    }
    usm_ipc_channel_close(g->ch);
    usm_kernel_destroy(g->add);
    usm_queue_destroy(g->q);
    usm_pool_destroy(g->pool);
    usm_context_destroy(g->ctx);
}
