/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport over sockets: processes of one machine and one user that form a job without MPI.
 * This file has the table; internal.h lists the other parts.
 *
 * The transport supports the operations of a job, and keeps no blocks: opening a store is refused,
 * and the other functions for blocks exist only because every table has them. */
#include "internal.h"

#include "base/inline/module.h"

#include <stdio.h>
#include <unistd.h>

static const usm_host_api *api;

/* A macro, so that analysers see that it is a failure. */
#define fail(status, ...) ((void)api->report((status), __VA_ARGS__), (status))

/* ---- fork() -----------------------------------------------------------------------------------
 *
 * A child inherits the sockets, and with them open the other ranks would not see the end of its
 * parent: the child closes them.  A process has one job: attach.c of src/cluster ensures that. */

static struct {
    pthread_mutex_t lock;
    usm_socket_job *job; /* guarded by lock; NULL: none */
} the = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void)
{
    (void)pthread_mutex_lock(&the.lock);
    if (the.job)
        usm_socket_lock(the.job);
}

static void after_fork(void)
{
    if (the.job)
        usm_socket_unlock(the.job);
    (void)pthread_mutex_unlock(&the.lock);
}

static void close_all(usm_socket_job *j)
{
    int *fds[] = {&j->listener, &j->folder, &j->bell};

    for (uint32_t r = 0; r < j->config.size; r++)
        if (j->peers[r].fd >= 0)
            (void)close(j->peers[r].fd);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (*fds[i] >= 0)
            (void)close(*fds[i]);
        *fds[i] = -1;
    }
    for (uint32_t r = 0; r < j->config.size; r++)
        j->peers[r].fd = -1;
}

static void in_child(void)
{
    if (the.job)
        close_all(the.job); /* everything else is the parent's */
    after_fork();
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, in_child);
}

static void set_job(usm_socket_job *j)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, watch_forks);
    (void)pthread_mutex_lock(&the.lock);
    the.job = j;
    (void)pthread_mutex_unlock(&the.lock);
}

/* ---- attach, detach ------------------------------------------------------------------------- */

static void destroy(usm_socket_job *j)
{
    set_job(NULL);
    for (uint32_t r = 0; r < j->config.size; r++)
        usm_socket_drop(j, &j->peers[r]);
    close_all(j);
    (void)pthread_cond_destroy(&j->ended);
    (void)pthread_mutex_destroy(&j->lock);
    api->heap_free(j->fds);
    api->heap_free(j);
}

static usm_status create(const usm_job_params *params, const usm_socket_config *config,
                         usm_socket_job **out)
{
    usm_socket_job *j = api->heap_alloc(sizeof(*j) + config->size * sizeof(j->peers[0]));

    if (!j)
        return fail(USM_E_NO_MEMORY, "no host memory for a job of %u processes", config->size);
    j->api      = api;
    j->params   = *params;
    j->config   = *config;
    j->lease_ms = params->lease_ms > 0 ? params->lease_ms : 1;
    j->beat_ms  = j->lease_ms / 4 > 0 ? j->lease_ms / 4 : 1;
    j->folder = j->listener = j->bell = -1;
    for (uint32_t r = 0; r < config->size; r++) {
        j->peers[r].fd    = -1;
        j->peers[r].state = j->peers[r].notified = USM_PLACE_UP;
        j->peers[r].end                          = &j->peers[r].first;
    }
    if (pthread_mutex_init(&j->lock, NULL) != 0 || pthread_cond_init(&j->ended, NULL) != 0) {
        api->heap_free(j);
        return fail(USM_E_SYSTEM, "no lock could be made");
    }
    *out = j;
    return USM_OK;
}

static usm_status check_params(const usm_job_params *params, usm_socket_config *config)
{
    if (params->struct_size != sizeof(*params))
        return fail(USM_E_ABI, "the transport socket was built for another libusm");
    if (!params->config)
        return fail(USM_E_INVALID, "socket: it is joined by usm_job_join()");
    if (params->is_server)
        return fail(USM_E_NOT_SUPPORTED, "socket: it has no servers: it lends no memory");
    return usm_socket_parse(api, params->config, config);
}

static usm_status attach(const usm_job_params *params, void **job)
{
    usm_socket_config config;
    usm_socket_job   *j  = NULL;
    usm_status        st = check_params(params, &config);

    if (st == USM_OK)
        st = create(params, &config, &j);
    if (st != USM_OK)
        return st;
    set_job(j);
    st = usm_socket_meet(j);
    if (st != USM_OK)
        goto err;
    j->bell = api->os->event_fd();
    st = j->bell >= 0 ? usm_socket_start(j) : fail(USM_E_SYSTEM, "socket: no eventfd can be had");
    if (st != USM_OK)
        goto err;
    if (params->lend > 0)
        api->log(USM_LOG_INFO,
                 "the transport socket lends no memory: USM_SPILL_LEND has no effect");
    *job = j;
    return USM_OK;

err:
    destroy(j);
    return st;
}

static void detach(void *job, bool is_final)
{
    usm_socket_job *j = job;

    (void)is_final; /* nothing is lent */
    usm_socket_stop(j);
    usm_socket_farewell(j);
    destroy(j);
}

static usm_status app_comm(void *comm, size_t comm_size)
{
    (void)comm;
    (void)comm_size;
    return api->report(USM_E_NOT_SUPPORTED, "the transport socket has no communicators");
}

static usm_status serve(void *job, const volatile int *stop)
{
    (void)job;
    (void)stop;
    return api->report(USM_E_NOT_SUPPORTED, "the transport socket has no servers");
}

/* ---- members and messages ------------------------------------------------------------------- */

static usm_status members(void *job, uint32_t *self, uint32_t *count)
{
    const usm_socket_job *j = job;

    *self  = j->config.rank;
    *count = j->config.size;
    return USM_OK;
}

static usm_status check_rank(const usm_socket_job *j, uint32_t rank)
{
    if (rank < j->config.size)
        return USM_OK;
    return api->report(USM_E_INVALID, "socket: there is no rank %u in a job of %u", rank,
                       j->config.size);
}

static usm_status member(void *job, uint32_t index, usm_job_member *m)
{
    usm_socket_job *j  = job;
    usm_status      st = check_rank(j, index);

    if (st != USM_OK)
        return st;
    usm_socket_lock(j);
    *m = (usm_job_member){.index = index, .state = j->peers[index].state};
    memcpy(m->domain, j->peers[index].domain, sizeof(m->domain));
    usm_socket_unlock(j);
    return USM_OK;
}

static usm_status send_message(void *job, uint32_t to, uint32_t tag, const void *data, size_t size)
{
    usm_socket_job *j  = job;
    usm_status      st = check_rank(j, to);

    if (st != USM_OK)
        return st;
    if (size > PAYLOAD_MAX || to == j->config.rank)
        return api->report(USM_E_INVALID,
                           "socket: a message of %zu bytes from rank %u to rank %u: %zu are the "
                           "most, and to another",
                           size, j->config.rank, to, PAYLOAD_MAX);
    return usm_socket_send(j, to, tag, data, size);
}

static void describe(void *job, char *text, size_t cap)
{
    const usm_socket_job *j = job;

    (void)snprintf(text, cap,
                   "libusm's sockets, version %u, in %s\n"
                   "this launch survives the death of any process\n"
                   "processes of this machine and user; no memory is lent",
                   USM_SOCKET_VERSION, j->config.folder);
}

/* ---- no blocks ------------------------------------------------------------------------------ */

static usm_status refuse(void)
{
    return api->report(USM_E_NOT_SUPPORTED,
                       "the transport socket keeps no blocks: USM_SPILL takes file or mpi");
}

static usm_status no_open(const usm_transport_params *params, void **store)
{
    (void)params;
    (void)store;
    return refuse();
}

static void no_close(void *store)
{
    (void)store;
}

static usm_status no_capacity(void *store, usm_transport_capacity *capacity)
{
    (void)store;
    (void)capacity;
    return refuse();
}

static usm_status no_reserve(void *store, uint64_t first, uint64_t n)
{
    (void)store;
    (void)first;
    (void)n;
    return refuse();
}

static void no_forget(void *store, uint64_t first, uint64_t n)
{
    (void)store;
    (void)first;
    (void)n;
}

static void no_submit(void *store, usm_transfer *list)
{
    (void)store;
    while (list) {
        usm_transfer *t = list;

        list = t->next;
        t->done(t, refuse());
    }
}

static usm_status no_sync(void *store)
{
    (void)store;
    return refuse();
}

static void no_describe(void *store, char *text, size_t cap)
{
    (void)store;
    if (cap > 0)
        text[0] = 0;
}

static const usm_transport_ops ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(ops),
    .name        = "socket",
    .caps        = USM_TRANSPORT_CAP_JOB,

    .open     = no_open,
    .close    = no_close,
    .capacity = no_capacity,
    .reserve  = no_reserve,
    .forget   = no_forget,
    .submit   = no_submit,
    .sync     = no_sync,
    .describe = no_describe,

    .attach       = attach,
    .detach       = detach,
    .app_comm     = app_comm,
    .serve        = serve,
    .members      = members,
    .member       = member,
    .send         = send_message,
    .job_describe = describe,
};

USM_API usm_transport_entry_fn usm_transport_entry;

const usm_transport_ops *usm_transport_entry(const usm_host_api *host)
{
    if (!usm_module_fits(host, "the transport socket"))
        return NULL;
    api = host;
    return &ops;
}
