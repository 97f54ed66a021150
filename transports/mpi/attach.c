/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Joining a job and leaving it.
 *
 *     app_comm()   optional: servers run in the same launch
 *     attach()     all processes exchange records; if one refuses, all do
 *     detach()     or, if the program did not call it, the beginning of MPI_Finalize(), by an
 *                  attribute of MPI_COMM_SELF whose delete callback MPI calls first, while
 *                  everything still works
 *
 * Before or within MPI_Finalize() a lender goes on serving while live members still need it:
 * finalising is collective, and would wait for them anyway.  It never waits for dead members: they
 * are lost by their lease.
 *
 * The callback comes too late for MPICH (4.0.2; its relatives share the code), whose MPI_Finalize()
 * begins by declaring the process single-threaded.  The module's thread, if it is within MPI then,
 * has taken the global lock and does not release it, because locks are skipped from then on; the
 * end of MPI_Finalize() destroys the lock, finds it taken, and aborts the job
 * ("pthread_mutex_destroy: Device or resource busy": one run in five with a busy lender).  Hence
 * <usm/mpi.h> has MPI_Finalize() detach first.
 *
 * The communicators are not freed when a job is left: that is collective, and a member may be
 * dead. */
#include "internal.h"

#include <assert.h>
#include <stdio.h>
#include <time.h>

#define PIECE        ((size_t)1 << 20)
#define DEPTH        4
#define JOIN_MAX_NS  (5000 * NS_PER_MS)
#define LAST_NS      (200 * NS_PER_MS)
#define SERVE_NAP_NS 20000000l

/* ALONE -> MET by app_comm(), which attach() takes back; ALONE -> MEMBER by attach();
 * MEMBER -> LEFT by detach(), or MPI_Finalize(). */
typedef enum mpi_phase { PHASE_ALONE, PHASE_MET, PHASE_MEMBER, PHASE_LEFT } mpi_phase;

/* The process. */
static struct {
    pthread_mutex_t lock;
    mpi_phase       phase;
    mpi_job        *job;     /* of a MEMBER, else NULL */
    mpi_job        *left;    /* the last one, kept: late callers find it closed */
    mpi_meeting     meeting; /* of one that has MET */
    /* of MPI, whatever the phase */
    bool has_finalizer;
    bool owns_mpi;     /* a server's: initialised here */
    bool is_finalized; /* MPI_Finalize() has begun */
} the = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. */
static void enter_phase(mpi_phase to, mpi_job *job)
{
    assert(to == PHASE_LEFT ? the.phase == PHASE_MEMBER : the.phase <= PHASE_MET);
    assert((to == PHASE_MEMBER) == (job != NULL));
    the.phase = to;
    the.job   = job;
}

mpi_job *mpi_the_job(void)
{
    mpi_job *job;

    (void)pthread_mutex_lock(&the.lock);
    job = the.job;
    (void)pthread_mutex_unlock(&the.lock);
    return job;
}

/* ---- the MPI of the program ---------------------------------------------------------------- */

static usm_status check_mpi(const usm_host_api *api, const void *comm, size_t comm_size)
{
    int is_initialized = 0, is_finalized = 0;

    (void)MPI_Initialized(&is_initialized);
    (void)MPI_Finalized(&is_finalized);
    if (is_finalized || the.is_finalized)
        return api->report(USM_E_MPI, "MPI was finalised; libusm's job ends with it");
    if (!is_initialized)
        return api->report(USM_E_MPI, "MPI is not initialised; call MPI_Init_thread() with "
                                      "MPI_THREAD_MULTIPLE first");
    if (comm && comm_size != sizeof(MPI_Comm))
        return api->report(USM_E_MPI,
                           "the program's MPI_Comm has %zu bytes, that of the MPI module in use "
                           "%zu: it is another MPI; USM_MPI chooses the module",
                           comm_size, sizeof(MPI_Comm));
    return USM_OK;
}

static usm_status check_comm(const usm_host_api *api, const void *comm, MPI_Comm *out)
{
    MPI_Comm c;
    int      is_inter = 0;

    memcpy(&c, comm, sizeof(c));
    if (c == MPI_COMM_NULL)
        return api->report(USM_E_MPI, "MPI_COMM_NULL cannot be attached");
    if (MPI_Comm_test_inter(c, &is_inter) != MPI_SUCCESS || is_inter)
        return api->report(USM_E_MPI, "an intercommunicator cannot be attached; merge it first");
    *out = c;
    return USM_OK;
}

/* ---- leaving --------------------------------------------------------------------------------- */

static bool is_far_left(mpi_job *job)
{
    return mpi_job_state_of(job) == MPI_JOB_PARTED;
}

/* No live member has yet to report that it needs nothing. */
static bool is_unneeded(mpi_job *job)
{
    bool is_needed = false;

    for (uint32_t i = 0; i < job->count && !is_needed; i++) {
        far_member m;
        bool       is_done;

        if (i == job->self || job->records[i].is_server)
            continue;
        mpi_get_member(job, i, &m);
        (void)pthread_mutex_lock(&job->lock);
        is_done = job->is_done[i];
        (void)pthread_mutex_unlock(&job->lock);
        is_needed = !is_done && (m.state == FAR_UP || m.state == FAR_SLOW);
    }
    return !is_needed;
}

static bool holds_nothing(mpi_job *job)
{
    far_stats stats;

    far_get_stats(job->node, &stats);
    return stats.borrowers == 0 || is_unneeded(job);
}

/* No member sends any more. */
static bool is_alone(mpi_job *job)
{
    for (uint32_t i = 0; i < job->count; i++) {
        far_member m;

        mpi_get_member(job, i, &m);
        if (i != job->self && mpi_member_state(m.state) != USM_PLACE_LOST)
            return false;
    }
    return true;
}

static bool is_at_rest(mpi_job *job)
{
    return !usm_load_relaxed(&job->busy) && atomic_load(&job->flying) == 0;
}

/* Others may still need what this process holds for them. */
static void finish_lending(mpi_job *job)
{
    for (uint32_t i = 0; i < job->count; i++) {
        far_member m;

        mpi_get_member(job, i, &m);
        if (i != job->self && (m.state == FAR_UP || m.state == FAR_SLOW))
            (void)far_send(job->node, i, MPI_TAG_DONE, "", 0);
    }
    mpi_service_wake(job);
    if (job->params.lend)
        (void)mpi_step_until(job, holds_nothing, UINT64_MAX);
}

/* Messages that were sent before go before the goodbye. */
static void say_goodbye(mpi_job *job)
{
    bool busy;

    (void)pthread_mutex_lock(&job->step);
    (void)far_step(job->node, &busy);
    mpi_job_change(job, MPI_JOB_PARTING);
    far_leave(job->node, &job->has_left);
    (void)pthread_mutex_unlock(&job->step);
}

static void leave(mpi_job *job, bool is_final)
{
    const uint64_t bound = 2 * job->deadline_ns;

    mpi_job_change(job, MPI_JOB_CLOSING);
    (void)mpi_step_until(job, is_at_rest, mpi_now() + bound);
    if (is_final)
        finish_lending(job);
    say_goodbye(job);
    (void)mpi_step_until(job, is_far_left, mpi_now() + bound);
    /* UCX warns about messages that have arrived and were received by nobody. */
    (void)mpi_step_until(job, is_alone, mpi_now() + (is_final ? LAST_NS : LAST_NS / 20));
    mpi_service_stop(job);
    mpi_link_hush(job->link);
    mpi_deliver(job);
    mpi_notify(job);
}

static void free_job(mpi_job *job)
{
    const usm_host_api *api = job->api;

    if (job->node)
        far_node_destroy(job->node);
    mpi_link_destroy(job->link);
    mpi_bells_destroy(job->bells);
    mpi_near_destroy(job->near);
    usm_recycler_clear(&job->idle_shadows, job->api->heap_free);
    usm_recycler_clear(&job->idle_news, job->api->heap_free);
    mpi_places_fini(job);
    api->heap_free(job->records);
    api->heap_free(job);
}

/* Takes the job, once: detach() and MPI_Finalize() may come together. */
static mpi_job *take_job(bool is_final)
{
    mpi_job *job;

    (void)pthread_mutex_lock(&the.lock);
    job = the.job;
    if (job)
        enter_phase(PHASE_LEFT, NULL);
    the.is_finalized |= is_final;
    (void)pthread_mutex_unlock(&the.lock);
    return job;
}

/* USM_OK, or the reason why one of the processes cannot take part. */
static usm_status find_refusal(const mpi_meeting *m, const mpi_record *all)
{
    for (int i = 0; i < m->size; i++) {
        if (all[i].is_present && all[i].refusal == USM_E_MPI_THREADS)
            return m->api->report(USM_E_MPI_THREADS,
                                  "rank %d has MPI's thread level below MPI_THREAD_MULTIPLE, at "
                                  "which it cannot lend memory, nor attach in another thread than "
                                  "the main one; ask MPI_Init_thread() for MPI_THREAD_MULTIPLE, or "
                                  "leave USM_SPILL_LEND unset there",
                                  i);
        if (all[i].is_present && all[i].refusal != USM_OK)
            return m->api->report((usm_status)all[i].refusal, "rank %d cannot attach", i);
    }
    return USM_OK;
}

/* Processes that have attached, and servers, wait for a record from every process. */
static void excuse_oneself(void)
{
    mpi_meeting *m    = &the.meeting;
    mpi_record  *all  = m->api->heap_alloc((size_t)m->size * sizeof(*all));
    mpi_record   mine = {.version = MPI_WIRE_VERSION};
    MPI_Comm     none;
    uint32_t    *peers = NULL, n;

    if (!all)
        return;
    if (mpi_exchange(m, &mine, all) == USM_OK && find_refusal(m, all) == USM_OK &&
        mpi_compare_keys(m, all, NULL, 0) == USM_OK &&
        mpi_gather_present(m, all, &none, &peers, &n) == USM_OK)
        m->api->heap_free(peers);
    m->api->heap_free(all);
}

/* Notifies the process that its membership is over. */
static void notify_end(mpi_job *job)
{
    far_member     m;
    usm_job_member member;

    if (!job->params.member_changed)
        return;
    mpi_get_member(job, job->self, &m);
    m.peer  = job->self;
    m.state = FAR_LOST;
    mpi_fill_member(job, &m, &member);
    job->params.member_changed(job->params.user, &member);
}

/* MPI_Finalize() begins. */
static int on_finalize(MPI_Comm comm, int keyval, void *attribute, void *extra)
{
    mpi_job *job = take_job(true);

    (void)comm;
    (void)keyval;
    (void)attribute;
    (void)extra;
    if (job) {
        leave(job, true);
        the.left = job; /* until detach(): stores may still be open, and their owner may still
                           call */
        notify_end(job);
    } else if (the.phase == PHASE_MET) {
        excuse_oneself();
    }
    return MPI_SUCCESS;
}

static usm_status install_finalizer(const usm_host_api *api)
{
    int        keyval = MPI_KEYVAL_INVALID;
    usm_status st;

    if (the.has_finalizer)
        return USM_OK;
    st = mpi_check(api, MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &keyval, NULL),
                   "MPI_Comm_create_keyval");
    if (st == USM_OK)
        st = mpi_check(api, MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &the), "MPI_Comm_set_attr");
    the.has_finalizer = st == USM_OK;
    return st;
}

static void finalize_own(void)
{
    if (the.owns_mpi)
        (void)MPI_Finalize();
    the.owns_mpi = false;
}

void mpi_detach(void *job_, bool is_final)
{
    mpi_job *job = take_job(false);
    bool     has_stores;

    if (job)
        leave(job, is_final);
    else /* MPI_Finalize() was first */
        job = the.left;
    if (!job || job != job_)
        return;
    (void)pthread_mutex_lock(&job->lock); /* afterwards store_close() no longer uses it */
    has_stores = job->stores != NULL;
    (void)pthread_mutex_unlock(&job->lock);
    the.left = has_stores ? job : NULL; /* the owner that closes them is still to come */
    if (!has_stores)
        free_job(job);
    finalize_own();
}

/* ---- app_comm() ---------------------------------------------------------------------------- */

static usm_status split_program(mpi_meeting *m, bool is_server)
{
    return mpi_check(m->api, MPI_Comm_split(m->whole, is_server ? 1 : 0, m->rank, &m->program),
                     "MPI_Comm_split");
}

usm_status mpi_app_comm(const usm_host_api *api, void *comm, size_t comm_size)
{
    MPI_Comm   copy;
    usm_status st = check_mpi(api, comm, comm_size);

    if (st != USM_OK)
        return st;
    (void)pthread_mutex_lock(&the.lock);
    if (the.phase != PHASE_ALONE) {
        st = api->report(USM_E_BUSY, "usm_mpi_app_comm() is called once, before usm_mpi_attach()");
        goto out;
    }
    st = mpi_meet(api, MPI_COMM_WORLD, MPI_MEET_SPLIT, &the.meeting);
    if (st == USM_OK)
        st = split_program(&the.meeting, false);
    if (st == USM_OK) /* the caller gets one to free, the module keeps one to compare with */
        st = mpi_check(api, MPI_Comm_dup(the.meeting.program, &copy), "MPI_Comm_dup");
    if (st == USM_OK)
        st = install_finalizer(api);
    if (st != USM_OK)
        goto out;
    enter_phase(PHASE_MET, NULL);
    memcpy(comm, &copy, sizeof(copy));
out:
    (void)pthread_mutex_unlock(&the.lock);
    return st;
}

/* ---- attach() ------------------------------------------------------------------------------ */

/* The meeting of all that take part: that of app_comm(), or a new one. */
static usm_status find_meeting(mpi_job *job, MPI_Comm comm)
{
    int        result = MPI_UNEQUAL;
    usm_status st;

    if (job->params.is_server) {
        st = mpi_meet(job->api, MPI_COMM_WORLD, MPI_MEET_SERVER, &job->meeting);
        /* A program that did not call app_comm() attaches at once. */
        if (st == USM_OK && job->meeting.is_split)
            st = split_program(&job->meeting, true);
        return st;
    }
    if (the.phase != PHASE_MET)
        return mpi_meet(job->api, comm, MPI_MEET_ATTACH, &job->meeting);
    st = mpi_check(job->api, MPI_Comm_compare(comm, the.meeting.program, &result),
                   "MPI_Comm_compare");
    if (st != USM_OK)
        return st;
    if (result == MPI_UNEQUAL)
        return job->api->report(USM_E_MPI, "after usm_mpi_app_comm() the communicator that it gave "
                                           "is attached, or one of the same processes");
    job->meeting = the.meeting;
    enter_phase(PHASE_ALONE, NULL); /* from here on no process must be excused */
    return USM_OK;
}

static usm_status refusal_of(const mpi_job *job)
{
    int is_main = 0;

    if (job->level < MPI_THREAD_MULTIPLE && (job->params.lend || job->params.is_server))
        return USM_E_MPI_THREADS;
    if (job->level < MPI_THREAD_SERIALIZED &&
        (MPI_Is_thread_main(&is_main) != MPI_SUCCESS || !is_main))
        return USM_E_MPI_THREADS;
    return USM_OK;
}

static usm_status exchange_records(mpi_job *job, int rank, mpi_record *all)
{
    mpi_record mine = {.version    = MPI_WIRE_VERSION,
                       .is_present = true,
                       .is_server  = job->params.is_server,
                       .has_key    = job->params.key != NULL,
                       .lend       = job->params.lend,
                       .rank       = (uint32_t)rank,
                       .refusal    = refusal_of(job)};
    usm_status st;

    (void)snprintf(mine.domain, sizeof(mine.domain), "%s",
                   job->params.domain ? job->params.domain : "");
    if (!mpi_random(mine.nonce, sizeof(mine.nonce)))
        mine.refusal = USM_E_SYSTEM;
    job->bells = mpi_bells_create(job->api, job->near, &mine);
    if (job->bells)
        job->bell = mpi_bells_own(job->bells);
    else
        mine.refusal = USM_E_NO_MEMORY;
    st = mpi_exchange(&job->meeting, &mine, all);
    if (st == USM_OK)
        st = find_refusal(&job->meeting, all);
    if (st == USM_OK)
        st = mpi_compare_keys(&job->meeting, all, job->params.key, job->params.key_size);
    return st;
}

/* Takes the records of the members, in their order. */
static bool take_records(mpi_job *job, const mpi_record *all, const uint32_t *peers)
{
    job->records = job->api->heap_alloc(job->count * sizeof(*job->records));
    for (uint32_t i = 0; job->records && i < job->count; i++) {
        job->records[i] = all[peers[i]];
        if (peers[i] == (uint32_t)job->meeting.rank)
            job->self = i;
    }
    return job->records != NULL;
}

/* Afterwards job->comm exists, and the members are known. */
static usm_status gather_members(mpi_job *job, int rank)
{
    const usm_host_api *api   = job->api;
    uint32_t           *peers = NULL;
    mpi_record         *all;
    usm_status          st;

    all = api->heap_alloc((size_t)job->meeting.size * sizeof(*all));
    if (!all)
        return api->report(USM_E_NO_MEMORY, "no memory for the records of %d ranks",
                           job->meeting.size);
    st = exchange_records(job, rank, all);
    if (st == USM_OK)
        st = mpi_gather_present(&job->meeting, all, &job->comm, &peers, &job->count);
    if (st == USM_OK && !take_records(job, all, peers))
        st = api->report(USM_E_NO_MEMORY, "no memory for a job of %u members", job->count);
    api->heap_free(peers);
    api->heap_free(all);
    return st;
}

static usm_status create_node(mpi_job *job)
{
    uint64_t   seed = 0;
    far_params p    = {.struct_size       = sizeof(p),
                       .api               = job->api,
                       .domain            = job->params.domain ? job->params.domain : "",
                       .lend              = job->params.lend,
                       .key               = job->params.key,
                       .key_size          = job->params.key_size,
                       .hmac              = job->params.key ? mpi_hmac : NULL,
                       .lease_ns          = job->lease_ns,
                       .deadline_ns       = job->deadline_ns,
                       .orphan_ns         = job->params.orphan_ms * NS_PER_MS,
                       .piece             = PIECE,
                       .depth             = DEPTH,
                       .member_changed    = mpi_on_member,
                       .message           = mpi_on_message,
                       .wake              = mpi_on_wake,
                       .user              = job,
                       .is_stepped_seldom = !mpi_has_thread(job)};
    usm_status st   = mpi_link_create(job->api, job->comm, job->bells, &job->link);

    if (st != USM_OK)
        return st;
    mpi_bells_meet(job->bells, job->near, job->records, job->count, job->self);
    if (!mpi_random(&seed, sizeof(seed)))
        return job->api->report(USM_E_SYSTEM, "the system gives no random numbers");
    p.link        = mpi_link_base(job->link);
    p.near_memory = mpi_near_base(job->near);
    p.seed        = seed;
    return far_node_create(&p, &job->node);
}

static bool has_everybody(mpi_job *job)
{
    for (uint32_t i = 0; i < job->count; i++) {
        far_member m;

        mpi_get_member(job, i, &m);
        if (m.state == FAR_JOINING)
            return false;
    }
    return true;
}

static usm_status start_job(mpi_job *job)
{
    const uint64_t wait = job->lease_ns < JOIN_MAX_NS ? job->lease_ns : JOIN_MAX_NS;
    usm_status     st   = mpi_service_init(job);

    if (st == USM_OK)
        st = mpi_places_init(job);
    if (st == USM_OK)
        st = create_node(job);
    if (st == USM_OK)
        st = install_finalizer(job->api);
    if (st == USM_OK)
        st = mpi_service_start(job);
    if (st != USM_OK)
        return st;
    mpi_job_change(job, MPI_JOB_UP);
    /* A member that does not come is lost, or joins later: no reason to fail. */
    (void)mpi_step_until(job, has_everybody, mpi_now() + wait);
    return USM_OK;
}

/* For processes that do not use MPI themselves. */
static usm_status init_own(const usm_host_api *api)
{
    int is_initialized = 0, level = 0;

    (void)MPI_Initialized(&is_initialized);
    if (is_initialized)
        return USM_OK;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return api->report(USM_E_MPI, "MPI_Init_thread() failed");
    the.owns_mpi = true;
    return USM_OK;
}

static mpi_job *create_job(const usm_host_api *api, const usm_job_params *params)
{
    mpi_job *job = api->heap_alloc(sizeof(*job));

    if (!job)
        return NULL;
    job->api         = api;
    job->params      = *params;
    job->comm        = MPI_COMM_NULL;
    job->owner       = pthread_self();
    job->lease_ns    = params->lease_ms * NS_PER_MS;
    job->deadline_ns = job->lease_ns;
    job->has_ulfm    = mpi_has_ulfm();
    job->near        = mpi_near_create(api);
    (void)MPI_Query_thread(&job->level);
    return job;
}

/* Everything that is collective. */
static usm_status gather(mpi_job *job, MPI_Comm comm)
{
    int        rank = 0;
    usm_status st   = find_meeting(job, comm);

    if (st != USM_OK)
        return st;
    if (!job->params.is_server && MPI_Comm_rank(comm, &rank) != MPI_SUCCESS)
        return job->api->report(USM_E_MPI, "MPI_Comm_rank() failed");
    return gather_members(job, rank);
}

static usm_status attach(const usm_host_api *api, const usm_job_params *params, mpi_job **out)
{
    MPI_Comm   comm = MPI_COMM_WORLD;
    mpi_job   *job;
    usm_status st = params->comm ? USM_OK : init_own(api);

    if (st == USM_OK)
        st = check_mpi(api, params->comm, params->comm_size);
    if (st == USM_OK && params->comm)
        st = check_comm(api, params->comm, &comm);
    if (st != USM_OK)
        return st;
    job = create_job(api, params);
    if (!job)
        return api->report(USM_E_NO_MEMORY, "no memory for a job");
    st = gather(job, comm);
    if (st == USM_OK)
        st = start_job(job);
    if (st != USM_OK) {
        free_job(job);
        return st;
    }
    job->params.domain = NULL; /* the caller's */
    job->params.key    = NULL;
    *out               = job;
    return USM_OK;
}

usm_status mpi_attach(const usm_host_api *api, const usm_job_params *params, void **job)
{
    mpi_job   *found = NULL;
    usm_status st;

    if (params->struct_size != sizeof(*params))
        return api->report(USM_E_ABI, "the transport mpi was built for another libusm");
    (void)pthread_mutex_lock(&the.lock);
    if (the.phase == PHASE_MEMBER)
        st = api->report(USM_E_BUSY, "this process is attached already");
    else if (the.phase == PHASE_LEFT)
        st = api->report(USM_E_BUSY, "this process has left its job; a job is attached once");
    else
        st = attach(api, params, &found);
    if (st == USM_OK) {
        enter_phase(PHASE_MEMBER, found);
        *job = found;
    }
    (void)pthread_mutex_unlock(&the.lock);
    if (st != USM_OK)
        finalize_own();
    return st;
}

/* ---- servers ------------------------------------------------------------------------------- */

typedef struct census {
    uint32_t alive, lost;
} census;

static census count_clients(mpi_job *job)
{
    census c = {0};

    for (uint32_t i = 0; i < job->count; i++) {
        far_member m;

        if (job->records[i].is_server)
            continue;
        mpi_get_member(job, i, &m);
        c.alive += m.state == FAR_UP || m.state == FAR_SLOW || m.state == FAR_JOINING;
        c.lost += m.state == FAR_LOST;
    }
    return c;
}

/* Whether no client is left.  *alone: since when none is alive, while some may come back; 0:
 * some are. */
static bool is_over(mpi_job *job, uint64_t *alone)
{
    const census   c   = count_clients(job);
    const uint64_t now = mpi_now();

    if (c.alive == 0 && c.lost == 0)
        return true;
    if (c.alive)
        *alone = 0;
    else if (*alone == 0)
        *alone = now;
    /* They were silent for a lease before they were lost. */
    return *alone && now - *alone + job->lease_ns >= job->params.orphan_ms * NS_PER_MS;
}

usm_status mpi_serve(void *job_, const volatile int *stop)
{
    const struct timespec nap   = {.tv_nsec = SERVE_NAP_NS};
    mpi_job              *job   = job_;
    uint64_t              alone = 0;

    while (!*stop && !is_over(job, &alone))
        (void)nanosleep(&nap, NULL);
    return USM_OK;
}
