/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport of job_fixture.h: one SOCK_SEQPACKET pair for each two ranks, a thread that waits
 * for all of them, messages that found no room in queues of their own. */
#include "cluster/job_fixture.h"

#include "cluster/cluster.h"
#include "device/registry.h"

#include <usm/init.h>

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define MESSAGE_MAX (USM__JOB_MESSAGE_MAX + 8u)

job_plan job_plan_now;

typedef struct packet packet;

struct packet {
    packet *next;
    size_t  size;
    char    bytes[]; /* the tag, 4 bytes, and the message */
};

typedef struct peer {
    int             fd;  /* -1: none any more                                                 */
    bool            cut; /* the thread shall close it                                         */
    usm_place_state state;
    packet         *first, **end;
} peer;

static int sockets[JOB_RANKS_MAX][JOB_RANKS_MAX];

static struct {
    uint32_t            rank, count;
    usm_job_params      params;
    const usm_host_api *api;
    bool                has_job;
    pthread_t           thread;
    int                 wake;
    /* guarded by lock */
    pthread_mutex_t lock;
    peer            peers[JOB_RANKS_MAX];
    bool            stop, held;
    /* of the one who steps */
    pthread_mutex_t step_lock;
    char            buffer[MESSAGE_MAX];
} job = {.lock = PTHREAD_MUTEX_INITIALIZER, .step_lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- sockets -------------------------------------------------------------------------- */

void job_sockets_make(uint32_t count)
{
    int size = 4 << 20;

    job.count = count;
    for (uint32_t a = 0; a < count; a++) {
        sockets[a][a] = -1;
        for (uint32_t b = 0; b < a; b++) {
            int pair[2];

            if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
                abort();
            (void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
            (void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
            sockets[a][b] = pair[0];
            sockets[b][a] = pair[1];
        }
    }
}

static void drop_row(uint32_t a)
{
    for (uint32_t b = 0; b < job.count; b++)
        if (sockets[a][b] >= 0)
            (void)close(sockets[a][b]);
}

void job_sockets_drop(void)
{
    for (uint32_t a = 0; a < job.count; a++)
        drop_row(a);
}

void job_sockets_keep(uint32_t rank)
{
    job.rank = rank;
    for (uint32_t a = 0; a < job.count; a++)
        if (a != rank)
            drop_row(a);
    for (uint32_t b = 0; b < job.count; b++) {
        job.peers[b].fd    = sockets[rank][b];
        job.peers[b].state = USM_PLACE_UP;
        job.peers[b].end   = &job.peers[b].first;
    }
}

/* ---- a step ----------------------------------------------------------------------------- */

static void wake(void)
{
    uint64_t one = 1;

    if (write(job.wake, &one, sizeof one) != (ssize_t)sizeof one && errno != EAGAIN)
        abort();
}

static void describe_member(uint32_t index, usm_job_member *m)
{
    *m = (usm_job_member){.index = index, .state = USM_PLACE_UP, .is_server = index >= job.count};
    if (!m->is_server)
        m->state = job.peers[index].state;
    m->lends     = m->is_server ? UINT64_C(1) << 30 : index == job.rank ? job.params.lend : 0;
    m->available = m->lends;
    (void)snprintf(m->domain, sizeof m->domain, "node%u", index / 2);
}

static void notify(uint32_t rank, usm_place_state state)
{
    usm_job_member m;

    (void)pthread_mutex_lock(&job.lock);
    job.peers[rank].state = state;
    describe_member(rank, &m);
    (void)pthread_mutex_unlock(&job.lock);
    job.params.member_changed(job.params.user, &m);
}

static void lose(uint32_t rank)
{
    peer *p = &job.peers[rank];

    (void)pthread_mutex_lock(&job.lock);
    (void)close(p->fd);
    p->fd = -1;
    while (p->first) {
        packet *l = p->first;

        p->first = l->next;
        free(l);
    }
    p->end = &p->first;
    (void)pthread_mutex_unlock(&job.lock);
    notify(rank, USM_PLACE_LOST);
}

/* As many of the queue as there is room for; lock held. */
static void push(peer *p)
{
    while (p->first) {
        packet *l = p->first;

        if (send(p->fd, l->bytes, l->size, MSG_NOSIGNAL) < 0)
            return; /* no room, or its end, which poll() tells of */
        p->first = l->next;
        if (!p->first)
            p->end = &p->first;
        free(l);
    }
}

/* One message; false: there is none. */
static bool pull(uint32_t rank)
{
    ssize_t  n = recv(job.peers[rank].fd, job.buffer, sizeof job.buffer, 0);
    uint32_t tag;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n < 0 && errno == ECONNRESET) /* it has left something unread; what it said comes yet */
        return true;
    if (n < (ssize_t)sizeof tag) { /* its end */
        lose(rank);
        return false;
    }
    memcpy(&tag, job.buffer, sizeof tag);
    job.params.message(job.params.user, rank, tag, job.buffer + sizeof tag, (size_t)n - sizeof tag);
    return true;
}

/* Waits at most `ms` for something to do, and does it. */
static void step(int ms)
{
    struct pollfd fds[JOB_RANKS_MAX + 1];
    uint64_t      count;
    bool          held;

    (void)pthread_mutex_lock(&job.lock);
    held = job.held;
    for (uint32_t r = 0; r < job.count; r++) {
        peer *p = &job.peers[r];

        if (p->fd >= 0)
            push(p);
        fds[r] = (struct pollfd){.fd     = p->fd,
                                 .events = (short)((held ? 0 : POLLIN) | (p->first ? POLLOUT : 0))};
        if (held && !p->first)
            fds[r].fd = -1;
    }
    (void)pthread_mutex_unlock(&job.lock);
    fds[job.count] = (struct pollfd){.fd = job.wake, .events = POLLIN};
    if (poll(fds, job.count + 1, ms) <= 0)
        return;
    if (fds[job.count].revents && read(job.wake, &count, sizeof count) < 0 && errno != EAGAIN)
        abort();
    for (uint32_t r = 0; r < job.count; r++) {
        bool cut;

        (void)pthread_mutex_lock(&job.lock);
        cut              = job.peers[r].cut && job.peers[r].fd >= 0;
        job.peers[r].cut = false;
        (void)pthread_mutex_unlock(&job.lock);
        if (cut)
            lose(r);
        else if (!held && job.peers[r].fd >= 0 && (fds[r].revents & (POLLIN | POLLHUP | POLLERR)))
            for (int i = 0; i < 16 && pull(r);)
                i++;
    }
}

static bool is_stopped(void)
{
    bool stop;

    (void)pthread_mutex_lock(&job.lock);
    stop = job.stop;
    (void)pthread_mutex_unlock(&job.lock);
    return stop;
}

static void *serve(void *arg)
{
    while (!is_stopped())
        step(1000);
    return arg;
}

/* Without a thread: whoever calls; one at a time, and not from inside of a message. */
static void progress(void)
{
    if (!job_plan_now.by_calls || !job.has_job || pthread_mutex_trylock(&job.step_lock) != 0)
        return;
    step(0);
    (void)pthread_mutex_unlock(&job.step_lock);
}

/* ---- the group JOB ------------------------------------------------------------------------- */

static usm_status attach(const usm_job_params *params, void **out)
{
    if (job_plan_now.attach != USM_OK)
        return job.api->report(job_plan_now.attach, "the fixture was told to refuse");
    if (params->comm_size != sizeof(int) || *(const int *)params->comm != 4711)
        return job.api->report(USM_E_MPI, "this is no communicator of the fixture");
    job.params = *params;
    job.wake   = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (job.wake < 0)
        return job.api->report(USM_E_SYSTEM, "no eventfd");
    job.has_job = true;
    if (!job_plan_now.by_calls && pthread_create(&job.thread, NULL, serve, NULL) != 0)
        return job.api->report(USM_E_SYSTEM, "no thread");
    *out = &job;
    return USM_OK;
}

/* What was sent before goes out, if it is taken within a second. */
static void detach(void *which, bool is_final)
{
    bool is_left = true;

    (void)which;
    (void)is_final;
    (void)pthread_mutex_lock(&job.lock);
    job.stop = true;
    (void)pthread_mutex_unlock(&job.lock);
    wake();
    if (!job_plan_now.by_calls)
        (void)pthread_join(job.thread, NULL);
    for (int i = 0; i < 100 && is_left; i++) {
        is_left = false;
        for (uint32_t r = 0; r < job.count; r++) {
            if (job.peers[r].fd >= 0)
                push(&job.peers[r]);
            is_left |= job.peers[r].fd >= 0 && job.peers[r].first;
        }
        if (is_left)
            (void)usleep(10000);
    }
    for (uint32_t r = 0; r < job.count; r++)
        if (job.peers[r].fd >= 0)
            (void)close(job.peers[r].fd);
    job.has_job = false;
}

static usm_status app_comm(void *comm, size_t size)
{
    static const int own = 4711;

    if (size != sizeof own)
        return job.api->report(USM_E_MPI, "a communicator of another size");
    memcpy(comm, &own, size);
    return USM_OK;
}

static usm_status serve_others(void *which, const volatile int *stop)
{
    (void)which;
    (void)stop;
    return job.api->report(USM_E_NOT_SUPPORTED, "the fixture serves nobody");
}

static usm_status members(void *which, uint32_t *self, uint32_t *count)
{
    (void)which;
    progress();
    *self  = job.rank;
    *count = job.count + job_plan_now.servers;
    return USM_OK;
}

static usm_status member(void *which, uint32_t index, usm_job_member *m)
{
    (void)which;
    if (index >= job.count + job_plan_now.servers)
        return job.api->report(USM_E_INVALID, "no member %u", index);
    (void)pthread_mutex_lock(&job.lock);
    describe_member(index, m);
    (void)pthread_mutex_unlock(&job.lock);
    return USM_OK;
}

static usm_status send_message(void *which, uint32_t to, uint32_t tag, const void *data,
                               size_t size)
{
    packet *l = malloc(sizeof *l + sizeof tag + size);

    (void)which;
    if (!l)
        return job.api->report(USM_E_NO_MEMORY, "no memory");
    l->next = NULL;
    l->size = sizeof tag + size;
    memcpy(l->bytes, &tag, sizeof tag);
    if (size > 0)
        memcpy(l->bytes + sizeof tag, data, size);
    (void)pthread_mutex_lock(&job.lock);
    if (job.peers[to].fd >= 0) {
        *job.peers[to].end = l;
        job.peers[to].end  = &l->next;
        push(&job.peers[to]);
        l = NULL;
    }
    (void)pthread_mutex_unlock(&job.lock);
    free(l); /* to the lost: nobody is told */
    wake();
    progress();
    return USM_OK;
}

static void describe_job(void *which, char *text, size_t cap)
{
    (void)which;
    (void)snprintf(text, cap, "fixture 1.0, sockets\n%s",
                   job_plan_now.is_frail ? "this launch survives no death: it is a test\n"
                                           "to survive more: be lucky"
                                         : "this launch survives the death of any rank");
}

/* ---- blocks, in the process itself ----------------------------------------------------------- */

typedef struct kept {
    struct kept *next;
    uint64_t     block;
    char         data[];
} kept;

static struct {
    pthread_mutex_t lock;
    size_t          block_size;
    kept           *list;
} store = {.lock = PTHREAD_MUTEX_INITIALIZER};

static usm_status open_store(const usm_transport_params *params, void **out)
{
    store.block_size = params->block_size;
    *out             = &store;
    return USM_OK;
}

static usm_status reserve(void *which, uint64_t first, uint64_t n)
{
    (void)which;
    (void)first;
    (void)n;
    return USM_OK;
}

static void forget(void *which, uint64_t first, uint64_t n)
{
    (void)which;
    (void)pthread_mutex_lock(&store.lock);
    for (kept **at = &store.list; *at;) {
        kept *k = *at;

        if (k->block < first || k->block >= first + n) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        free(k);
    }
    (void)pthread_mutex_unlock(&store.lock);
}

static void close_store(void *which)
{
    forget(which, 0, UINT64_MAX);
}

static usm_status capacity(void *which, usm_transport_capacity *c)
{
    (void)which;
    *c = (usm_transport_capacity){
        .total = UINT64_MAX, .available = UINT64_MAX, .depth = 4, .is_volatile_memory = true};
    return USM_OK;
}

static kept *kept_of(uint64_t block)
{
    kept *k = store.list;

    while (k && k->block != block)
        k = k->next;
    if (k)
        return k;
    k = calloc(1, sizeof *k + store.block_size);
    if (!k)
        abort();
    k->block   = block;
    k->next    = store.list;
    store.list = k;
    return k;
}

static void submit(void *which, usm_transfer *list)
{
    (void)which;
    while (list) {
        usm_transfer *t = list;
        kept         *k;

        list = t->next;
        (void)pthread_mutex_lock(&store.lock);
        k = kept_of(t->block);
        if (t->op == USM_TRANSFER_STORE)
            memcpy(k->data + t->offset, t->data, t->size);
        else
            memcpy(t->data, k->data + t->offset, t->size);
        (void)pthread_mutex_unlock(&store.lock);
        t->done(t, USM_OK);
    }
}

static usm_status no_sync(void *which)
{
    (void)which;
    return USM_OK;
}

static void describe_store(void *which, char *text, size_t cap)
{
    (void)which;
    (void)snprintf(text, cap, "fixture");
}

static uint32_t places(void *which)
{
    (void)which;
    return job_plan_now.lenders ? job_plan_now.lenders : 1;
}

static usm_status place(void *which, uint32_t index, usm_transport_place *info)
{
    if (index >= places(which))
        return job.api->report(USM_E_INVALID, "no place %u", index);
    *info = (usm_transport_place){USM_PLACE_UP, "", UINT64_C(1) << 40, UINT64_C(1) << 40};
    (void)snprintf(info->domain, sizeof info->domain, "node%u", index);
    return USM_OK;
}

static const usm_transport_ops table = {
    .abi          = USM_MODULE_ABI,
    .struct_size  = sizeof(usm_transport_ops),
    .name         = "mpi_openmpi",
    .caps         = USM_TRANSPORT_CAP_PLACES | USM_TRANSPORT_CAP_JOB,
    .open         = open_store,
    .close        = close_store,
    .capacity     = capacity,
    .reserve      = reserve,
    .forget       = forget,
    .submit       = submit,
    .sync         = no_sync,
    .describe     = describe_store,
    .places       = places,
    .place        = place,
    .attach       = attach,
    .detach       = detach,
    .app_comm     = app_comm,
    .serve        = serve_others,
    .members      = members,
    .member       = member,
    .send         = send_message,
    .job_describe = describe_job,
};

static const usm_transport_ops *entry(const usm_host_api *api)
{
    job.api = api;
    return &table;
}

/* ---- for ranks
 * --------------------------------------------------------------------------------------- */

void job_start_rank(void)
{
    if (usm_init() != USM_OK || usm_config_set("mpi", "openmpi") != USM_OK)
        abort();
    usm__registry_add_transport("mpi_openmpi", entry);
}

usm_status job_attach(void)
{
    int comm = 4711;

    return USM_MPI_ATTACH(comm);
}

void job_cut(uint32_t rank)
{
    (void)pthread_mutex_lock(&job.lock);
    job.peers[rank].cut = true;
    (void)pthread_mutex_unlock(&job.lock);
    wake();
    progress();
}

void job_tell(uint32_t rank, usm_place_state state)
{
    notify(rank, state);
}

void job_hold(bool is_held)
{
    (void)pthread_mutex_lock(&job.lock);
    job.held = is_held;
    (void)pthread_mutex_unlock(&job.lock);
    wake();
}

const usm_job_params *job_params(void)
{
    return &job.params;
}
