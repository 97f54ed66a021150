/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport over MPI: the table, and stores, whose blocks are in the memory of other members of
 * the job.  internal.h lists the other parts; the protocol is in transports/far. */
#include "internal.h"

#include "base/inline/module.h"
#include "base/inline/plural.h"

#include <stdio.h>

#define PIECES           4 /* in flight per lender; far.h's depth */
#define SMALL            ((size_t)256 << 10)
#define SMALL_PER_PIECES 4 /* times as many pieces if blocks are small */

#ifndef USM_MPI_MODULE /* from CMake: which MPI it is built for */
#define USM_MPI_MODULE "mpi"
#endif

/* The functions of the table do not receive the host's table. */
static const usm_host_api *host;

/* ---- stores ------------------------------------------------------------------------------ */

static usm_status store_open(const usm_transport_params *params, void **store)
{
    const usm_host_api *api = params->api;
    mpi_job            *job = mpi_the_job();
    mpi_store          *s;
    usm_status          st;

    if (params->struct_size != sizeof(*params))
        return api->report(USM_E_ABI, "the transport mpi was built for another libusm");
    if (!job)
        return api->report(USM_E_MPI, "memory of other nodes is there once the program has called "
                                      "usm_mpi_attach()");
    if (params->config && *params->config)
        return api->report(USM_E_INVALID,
                           "mpi:%s: memory of other nodes has no options; what is "
                           "lent is USM_SPILL_LEND of the lender",
                           params->config);
    s = api->heap_alloc(sizeof(*s));
    if (!s)
        return api->report(USM_E_NO_MEMORY, "no memory for a transport");
    s->job           = job;
    s->block_size    = params->block_size;
    s->place_changed = params->place_changed;
    s->user          = params->user;
    st               = far_store_open(job->node, params->block_size, &s->far);
    if (st != USM_OK) {
        api->heap_free(s);
        return st;
    }
    (void)pthread_mutex_lock(&job->lock);
    s->next     = job->stores;
    job->stores = s;
    (void)pthread_mutex_unlock(&job->lock);
    *store = s;
    return USM_OK;
}

static void store_close(void *store)
{
    mpi_store          *s   = store;
    mpi_job            *job = s ? s->job : NULL;
    const usm_host_api *api = s ? job->api : NULL;

    if (!s)
        return;
    if (mpi_job_is_closing(job)) /* the lenders know that this process has left */
        far_store_drop(s->far);
    else
        far_store_close(s->far);
    /* As long as the store is listed, mpi_detach() keeps the job. */
    (void)pthread_mutex_lock(&job->lock);
    for (mpi_store **at = &job->stores; *at; at = &(*at)->next) {
        if (*at != s)
            continue;
        *at = s->next;
        break;
    }
    while (job->is_notifying) /* s->place_changed may be running */
        (void)pthread_cond_wait(&job->changed, &job->lock);
    (void)pthread_mutex_unlock(&job->lock);
    api->heap_free(s);
}

static int store_wait_fd(void *store)
{
    (void)store;
    return -1;
}

static bool store_has_thread(void *store)
{
    return mpi_has_thread(((const mpi_store *)store)->job);
}

static usm_status store_sync(void *store)
{
    (void)store; /* memory: acknowledged blocks exist for as long as their lender */
    return USM_OK;
}

/* ---- state --------------------------------------------------------------------------------- */

static usm_status store_capacity(void *store, usm_transport_capacity *capacity)
{
    mpi_store             *s = store;
    usm_transport_capacity c = {.used = usm_load_relaxed(&s->reserved) * s->block_size,
                                .is_volatile_memory = true};
    const uint32_t         n = usm_load_acquire(&s->job->nplaces);
    const uint32_t         depth =
        s->block_size <= SMALL ? (uint32_t)PIECES * SMALL_PER_PIECES : (uint32_t)PIECES;
    uint32_t member;

    for (uint32_t i = 0; i < n; i++) {
        far_member m;

        if (!mpi_find_place(s->job, i, &member))
            continue;
        mpi_get_member(s->job, member, &m);
        c.total += m.lends;
        c.available += m.available;
        c.depth += depth;
    }
    c.depth   = c.depth < PIECES ? PIECES : c.depth > 64 ? 64 : c.depth;
    *capacity = c;
    return USM_OK;
}

static void store_describe(void *store, char *text, size_t cap)
{
    mpi_store             *s = store;
    usm_transport_capacity c;

    if (cap == 0)
        return;
    (void)store_capacity(store, &c);
    (void)snprintf(text, cap, "memory of %u %s of the job, %llu MiB, %llu free",
                   usm_load_acquire(&s->job->nplaces),
                   usm__plural(usm_load_acquire(&s->job->nplaces), "member", "members"),
                   (unsigned long long)(c.total >> 20), (unsigned long long)(c.available >> 20));
}

static uint32_t store_places(void *store)
{
    return usm_load_acquire(&((mpi_store *)store)->job->nplaces);
}

static usm_status store_place(void *store, uint32_t place, usm_transport_place *info)
{
    mpi_job            *job = ((mpi_store *)store)->job;
    usm_transport_place p   = {.state = USM_PLACE_LOST};
    far_member          m;

    if (place >= usm_load_acquire(&job->nplaces))
        return host->report(USM_E_INVALID, "the job has no member %u", place);
    mpi_get_member(job, job->places[place].member, &m);
    if (!usm_load_relaxed(&job->places[place].is_lost)) {
        p.state     = mpi_place_state(&m);
        p.capacity  = m.lends;
        p.available = m.available;
    }
    (void)snprintf(p.domain, sizeof(p.domain), "%s", m.domain);
    *info = p;
    return USM_OK;
}

/* ---- the job --------------------------------------------------------------------------------- */

static usm_status attach(const usm_job_params *params, void **job)
{
    return mpi_attach(host, params, job);
}

static usm_status app_comm(void *comm, size_t comm_size)
{
    return mpi_app_comm(host, comm, comm_size);
}

static usm_status members(void *job_, uint32_t *self, uint32_t *count)
{
    mpi_job *job = job_;

    if (!mpi_has_thread(job) && mpi_may_step(job)) /* a thread that waits for messages calls this */
        (void)mpi_step(job);
    *self  = job->self;
    *count = job->count;
    return USM_OK;
}

static usm_status member(void *job_, uint32_t index, usm_job_member *info)
{
    mpi_job   *job = job_;
    far_member m;

    if (index >= job->count)
        return host->report(USM_E_INVALID, "the job has no member %u", index);
    mpi_get_member(job, index, &m);
    m.peer = index;
    mpi_fill_member(job, &m, info);
    return USM_OK;
}

static usm_status send(void *job_, uint32_t to, uint32_t tag, const void *data, size_t size)
{
    mpi_job   *job = job_;
    usm_status st;

    if (to >= job->count || tag >= MPI_TAG_DONE)
        return host->report(USM_E_INVALID, "a message to member %u of %u under tag %u", to,
                            job->count, tag);
    if (mpi_job_is_closing(job))
        return host->report(USM_E_MPI, "this process has left the job");
    if (to == job->self) {
        mpi_on_message(job, to, tag, data, size);
        mpi_service_wake(job);
        return USM_OK;
    }
    st = far_send(job->node, to, tag, data, size);
    if (st == USM_OK)
        mpi_service_send(job, to);
    return st;
}

static void set_patience(void *job_, uint64_t ns)
{
    mpi_service_set_patience(job_, ns);
}

static const usm_transport_ops ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(ops),
    .name        = USM_MPI_MODULE,
    .caps        = USM_TRANSPORT_CAP_PROGRESS | USM_TRANSPORT_CAP_PLACES | USM_TRANSPORT_CAP_JOB,

    .open         = store_open,
    .close        = store_close,
    .capacity     = store_capacity,
    .reserve      = mpi_store_reserve,
    .forget       = mpi_store_forget,
    .submit       = mpi_store_submit,
    .sync         = store_sync,
    .describe     = store_describe,
    .progress     = mpi_store_progress,
    .wait_fd      = store_wait_fd,
    .has_thread   = store_has_thread,
    .places       = store_places,
    .place        = store_place,
    .attach       = attach,
    .detach       = mpi_detach,
    .app_comm     = app_comm,
    .serve        = mpi_serve,
    .members      = members,
    .member       = member,
    .send         = send,
    .set_patience = set_patience,
    .job_describe = mpi_job_describe,
};

USM_API usm_transport_entry_fn usm_transport_entry;

const usm_transport_ops *usm_transport_entry(const usm_host_api *api)
{
    if (!usm_module_fits(api, "the transport mpi"))
        return NULL;
    host = api;
    return &ops;
}
