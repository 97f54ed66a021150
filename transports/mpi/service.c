/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which thread steps the protocol, and how it waits for work.
 *
 * At MPI_THREAD_MULTIPLE a thread of the module steps for as long as the job is attached.  It waits
 * in stages, because with MPI it can only poll.  For 200 us it yields to other threads, since a
 * peer that has just asked may ask again.  Then it sleeps for a quarter of the time that it has
 * waited, 20 to 200 us, and later for a 64th of the time since there was work, up to 10 ms.  So an
 * idle lender costs next to nothing, and a peer that comes back waits little longer than it stayed
 * away.
 *
 * While bytes are being transferred it polls for 20 us only, and a thread that waits for them for
 * 100 us: the system's buffers hold more than is transferred during a sleep, and each poll takes
 * time from the copying.  It never polls again without yielding: if the peer that it waits for has
 * the same processor, each microsecond would be lost, and the scheduler, which sees only one of the
 * two awake at a time, does not separate them.
 *
 * If nothing here waits for messages that may come (set_patience()), it sleeps for the given time.
 *
 * None of that is needed where all other members are on this host and ring its bell when they send
 * (bell.h): the thread then sleeps until it is rung for, and polls only for messages that MPI has
 * taken and not given out yet, or not sent yet.  It does so by naps alone, because a ring ends them.
 * It looks without a ring, too, the more seldom the longer it had nothing to do, because a member
 * may die before it rings.  A thread that sends such a message makes the step itself if no other
 * thread does: that saves a change of threads.
 *
 * Work of this process wakes the thread.  A thread that waits for a transfer steps itself
 * meanwhile, and the module's thread does not: that saves two changes of threads.  It stays out of
 * the way between such waits too, if they follow each other closely, and checks now and then
 * whether transfers for which no thread waits make progress.
 *
 * Below MPI_THREAD_MULTIPLE there is no such thread: the thread that attached steps within calls of
 * the library.
 *
 * Locks: `step` is held during a step, in which callbacks of the protocol only leave news.  The
 * module's thread, if there is one, passes the news on in order, without a lock (mpi_notify).
 * `done` of a transfer is called after the step, too (transfer.c). */
#include "internal.h"

#include "base/inline/clock.h"

#include <limits.h>
#include <sched.h>
#include <sys/prctl.h>

#define LOOK_NS       UINT64_C(200000)
#define LOOK_LONG_NS  UINT64_C(100000) /* for a thread that waits for bytes */
#define LOOK_BRIEF_NS UINT64_C(20000)  /* while bytes are transferred, or after signs of life */
#define NAP_MIN_NS    UINT64_C(20000)
#define NAP_MAX_NS    UINT64_C(200000)
#define NAP_QUIET_NS  UINT64_C(10000000)
#define QUIET_PER_NAP 64                /* so many times a nap there was nothing to do */
#define AWAKE_NS      UINT64_C(2000000) /* after any message: more may follow */
#define WORK_NS       UINT64_C(5000000) /* after work: more may follow */
#define BESIDE_NS     UINT64_C(100000)  /* after others stepped: they may come back */
#define NAP_WATCH_NS  UINT64_C(300000)  /* beside them, so that unawaited transfers progress */
#define NAP_BESIDE_NS UINT64_C(1000000) /* while others step */
/* Between looks of a thread that all others ring for. */
#define NAP_RUNG_MIN_NS UINT64_C(1000000)
#define NAP_RUNG_MAX_NS UINT64_C(100000000)

static uint64_t self_number(void)
{
    return (uint64_t)(uintptr_t)pthread_self();
}

/* ---- stepping ------------------------------------------------------------------------- */

bool mpi_may_step(const mpi_job *job)
{
    return job->level >= MPI_THREAD_MULTIPLE || pthread_equal(job->owner, pthread_self());
}

bool mpi_is_stepper(const mpi_job *job)
{
    return usm_load_relaxed(&job->stepper) == self_number();
}

/* Whether there was more than signs of life, which alone keep no thread awake.  Within a step. */
static bool is_at_work(mpi_job *job, bool busy, bool has_moved)
{
    const uint64_t bytes = job->bytes;
    far_stats      s;

    if (!has_moved)
        return busy;
    far_get_stats(job->node, &s);
    job->bytes = s.fetched + s.stored + s.requests;
    return job->bytes != bytes;
}

/* False: another thread is stepping, or this one already. */
static bool try_step(mpi_job *job, bool *has_moved)
{
    uint64_t moves, next;
    uint32_t dead;
    bool     busy = false;

    if (mpi_is_stepper(job) || pthread_mutex_trylock(&job->step) != 0)
        return false;
    usm_store_relaxed(&job->stepper, self_number());
    moves = job->moves;
    next  = far_step(job->node, &busy);
    while (mpi_link_next_dead(job->link, &dead))
        far_peer_died(job->node, dead);
    usm_store_relaxed(&job->next, next);
    usm_store_relaxed(&job->busy, busy);
    usm_store_relaxed(&job->is_sending, mpi_link_is_sending(job->link));
    if (job->has_left)
        mpi_job_change_from(job, MPI_JOB_PARTING, MPI_JOB_PARTED);
    job->moves = mpi_link_moves(job->link);
    *has_moved = job->moves != moves;
    if (is_at_work(job, busy, *has_moved))
        usm_store_relaxed(&job->has_worked, true);
    usm_store_relaxed(&job->stepper, UINT64_C(0));
    (void)pthread_mutex_unlock(&job->step);
    if (!mpi_has_thread(job))
        mpi_notify(job);
    return true;
}

bool mpi_step(mpi_job *job)
{
    bool has_moved = false;

    return try_step(job, &has_moved) && has_moved;
}

static void nap(uint64_t ns)
{
    struct timespec t = usm_timespec_of(ns);

    (void)nanosleep(&t, NULL);
}

bool mpi_copy(mpi_job *job)
{
    if (!far_near_run(job->node))
        return false;
    (void)usm_add_relaxed(&job->copies, 1u);
    return true;
}

static uint64_t nap_after(uint64_t waited)
{
    uint64_t ns = waited / 4;

    return ns < NAP_MIN_NS ? NAP_MIN_NS : ns > NAP_MAX_NS ? NAP_MAX_NS : ns;
}

void mpi_linger(mpi_job *job, uint64_t *since, bool is_long)
{
    const uint64_t now = mpi_now();

    if (mpi_copy(job) || (mpi_may_step(job) && mpi_step(job))) {
        *since = 0;
        return;
    }
    if (*since == 0)
        *since = now;
    if (now - *since < (is_long ? LOOK_LONG_NS : LOOK_NS))
        (void)sched_yield();
    else
        nap(nap_after(now - *since));
}

/* Another thread steps, or did a moment ago. */
static bool is_beside(const mpi_job *job, uint64_t now)
{
    return usm_load_relaxed(&job->awaiters) > 0 || usm_load_relaxed(&job->beside) + BESIDE_NS > now;
}

void mpi_await_begin(mpi_job *job)
{
    atomic_fetch_add(&job->awaiters, 1u);
}

void mpi_await_end(mpi_job *job)
{
    usm_store_relaxed(&job->beside, mpi_now());
    atomic_fetch_sub(&job->awaiters, 1u);
}

bool mpi_step_until(mpi_job *job, bool (*is_over)(mpi_job *job), uint64_t until)
{
    uint64_t since = 0;

    while (!is_over(job)) {
        if (mpi_now() >= until)
            return false;
        mpi_linger(job, &since, false);
        if (!mpi_has_thread(job))
            mpi_deliver(job);
    }
    return true;
}

/* ---- news -------------------------------------------------------------------------------- */

enum {
    NEWS_BIG  = 4096, /* larger messages keep their memory */
    NEWS_MAX  = 65600,
    NEWS_IDLE = 16
};

/* Memory of large ones is reused: fresh memory would cost more than the copy into it. */
static mpi_news *take_news(mpi_job *job, size_t size)
{
    mpi_news *n;

    if (size <= NEWS_BIG || size > NEWS_MAX)
        return job->api->heap_alloc(sizeof(*n) + size);
    n = usm_recycler_take(&job->idle_news, sizeof(*n));
    if (!n)
        n = job->api->heap_alloc(sizeof(*n) + NEWS_MAX);
    if (n)
        n->is_big = true;
    return n;
}

static void free_news(mpi_job *job, mpi_news *n)
{
    if (!n->is_big || !usm_recycler_give(&job->idle_news, n))
        job->api->heap_free(n);
}

/* Within a step: the protocol must not wait for the receiver of the news. */
static void add_news(mpi_job *job, mpi_news *n)
{
    (void)pthread_mutex_lock(&job->lock);
    *job->news_end = n;
    job->news_end  = &n->next;
    (void)pthread_mutex_unlock(&job->lock);
    mpi_service_notify(job);
}

void mpi_on_message(void *arg, uint32_t from, uint32_t tag, const void *data, size_t size)
{
    mpi_job  *job = arg;
    mpi_news *n;

    if (tag == MPI_TAG_DONE && from < job->count) {
        (void)pthread_mutex_lock(&job->lock);
        job->is_done[from] = true;
        (void)pthread_mutex_unlock(&job->lock);
        return;
    }
    usm_store_relaxed(&job->has_worked, true);
    n = take_news(job, size);
    if (!n) {
        job->api->log(USM_LOG_ERROR, "no memory for a message of %zu bytes: it is lost", size);
        return;
    }
    n->is_message = true;
    n->from       = from;
    n->tag        = tag;
    n->size       = size;
    if (size)
        memcpy(n->data, data, size);
    add_news(job, n);
}

void mpi_on_member(void *arg, const far_member *m)
{
    mpi_job  *job = arg;
    mpi_news *n   = job->api->heap_alloc(sizeof(*n));

    if (!n)
        return; /* its state is also read at each use */
    n->member = *m;
    add_news(job, n);
}

/* A thread that waits steps by itself, and one that has just waited may do so again: the module's
 * thread, which soon checks that, is left asleep. */
void mpi_on_wake(void *arg)
{
    mpi_job       *job = arg;
    const uint64_t now = mpi_now();

    usm_store_relaxed(&job->has_worked, true);
    if (!is_beside(job, now) ||
        usm_load_relaxed(&job->wakes_at) >
            now + (usm_load_relaxed(&job->awaiters) ? NAP_BESIDE_NS : NAP_WATCH_NS))
        mpi_service_wake(job);
}

static void notify_one(mpi_job *job, const mpi_news *n)
{
    if (n->is_message) {
        if (job->params.message)
            job->params.message(job->params.user, n->from, n->tag, n->data, n->size);
        return;
    }
    mpi_notify_places(job, &n->member);
    if (job->params.member_changed) {
        usm_job_member member;

        mpi_fill_member(job, &n->member, &member);
        job->params.member_changed(job->params.user, &member);
    }
}

void mpi_notify(mpi_job *job)
{
    mpi_news *next;

    (void)pthread_mutex_lock(&job->lock);
    while (job->news && !job->is_notifying) {
        mpi_news *list = job->news;

        job->news         = NULL;
        job->news_end     = &job->news;
        job->is_notifying = true;
        (void)pthread_mutex_unlock(&job->lock);
        for (mpi_news *n = list; n; n = next) {
            next = n->next;
            notify_one(job, n);
            free_news(job, n);
        }
        (void)pthread_mutex_lock(&job->lock);
        job->is_notifying = false;
        (void)pthread_cond_broadcast(&job->changed);
    }
    (void)pthread_mutex_unlock(&job->lock);
}

/* ---- the thread --------------------------------------------------------------------------- */

void mpi_service_wake(mpi_job *job)
{
    if (mpi_has_thread(job))
        mpi_bell_ring(job->bell);
}

void mpi_service_notify(mpi_job *job)
{
    if (usm_load_relaxed(&job->service) != self_number())
        mpi_service_wake(job);
}

/* Whether every message for this process comes with a ring. */
static bool is_rung_for(const mpi_job *job)
{
    return mpi_bells_ringers(job->bells) + 1 >= job->count;
}

void mpi_service_set_patience(mpi_job *job, uint64_t ns)
{
    const uint64_t was = usm_swap_acq_rel(&job->patience, ns);

    if (ns < was && !is_rung_for(job))
        mpi_service_wake(job);
}

/* Whether MPI has messages for this process that it has not given out, as far as is known. */
static bool awaits_messages(const mpi_job *job)
{
    return (int32_t)(atomic_load(&job->bell->sent) - mpi_link_received(job->link)) > 0;
}

/* Whether the last step left nothing that must be looked at without a ring. */
static bool is_quiescent(const mpi_job *job)
{
    return !usm_load_relaxed(&job->is_sending) && usm_load_relaxed(&job->next) > mpi_now();
}

void mpi_service_send(mpi_job *job, uint32_t to)
{
    bool has_moved;

    if (mpi_has_thread(job) && !(is_rung_for(job) && mpi_bells_reach(job->bells, to)))
        mpi_service_wake(job); /* it also polls for an answer */
    else if (mpi_may_step(job) && (!try_step(job, &has_moved) || !is_quiescent(job)))
        mpi_service_wake(job);
}

/* When the thread last had something to do. */
typedef struct rest {
    uint64_t moved; /* a message has come or gone */
    uint64_t busy;  /* data was being transferred */
} rest;

/* How long it may sleep if nothing wakes it for what MPI has. */
static uint64_t nap_of(const rest *r, uint64_t now)
{
    const uint64_t ns    = nap_after(now - r->moved);
    const uint64_t quiet = (now - r->busy) / QUIET_PER_NAP;

    if (quiet < ns || now - r->moved < AWAKE_NS)
        return ns;
    return quiet < NAP_QUIET_NS ? quiet : NAP_QUIET_NS;
}

static mpi_bell_rest rest_for(mpi_job *job, uint64_t now, uint64_t ns, bool for_own)
{
    usm_store_relaxed(&job->wakes_at, now + ns);
    return (mpi_bell_rest){.until = now + ns, .for_own = for_own};
}

static mpi_bell_rest no_rest(void)
{
    (void)sched_yield();
    return (mpi_bell_rest){0};
}

static uint64_t nap_of_rung(const mpi_job *job, const rest *r, uint64_t now)
{
    const uint64_t most = job->has_ulfm ? NAP_QUIET_NS : NAP_RUNG_MAX_NS; /* MPI reports deaths */
    const uint64_t ns   = (now - r->moved) / 4;

    return ns < NAP_RUNG_MIN_NS ? NAP_RUNG_MIN_NS : ns > most ? most : ns;
}

/* How long to sleep after a look. */
static mpi_bell_rest rest_of(mpi_job *job, rest *r, bool has_moved)
{
    const uint64_t now        = mpi_now();
    const uint64_t next       = usm_load_relaxed(&job->next);
    const uint64_t left       = next > now ? next - now : UINT64_MAX;
    const bool     is_sending = usm_load_relaxed(&job->is_sending);
    uint64_t       ns, look;

    if (usm_swap_acq_rel(&job->has_worked, false))
        r->busy = now;
    if (has_moved)
        r->moved = now;
    if (is_beside(job, now))
        return rest_for(job, now, usm_load_relaxed(&job->shadows) ? NAP_WATCH_NS : NAP_BESIDE_NS,
                        true);
    if (is_rung_for(job) && !is_sending && !awaits_messages(job)) {
        if (next <= now)
            return no_rest();
        ns = nap_of_rung(job, r, now);
        return rest_for(job, now, left < ns ? left : ns, false);
    }
    ns = usm_load_relaxed(&job->patience);
    if (ns > 0 && !usm_load_relaxed(&job->busy) && !is_sending)
        return rest_for(job, now, left < ns ? left : ns, false);
    look = usm_load_relaxed(&job->busy) || now - r->busy > WORK_NS ? LOOK_BRIEF_NS : LOOK_NS;
    if (!is_rung_for(job) && now - r->moved < look)
        return no_rest();
    ns = nap_of(r, now);
    return rest_for(job, now, left < ns ? left : ns, false);
}

/* The service thread. */
typedef struct service {
    mpi_job *job;
    rest     rest;
} service;

static mpi_bell_rest look(void *arg, bool was_rung)
{
    service *s         = arg;
    mpi_job *job       = s->job;
    bool     has_moved = was_rung;

    if (mpi_job_state_of(job) >= MPI_JOB_STOPPING)
        return (mpi_bell_rest){0};
    (void)usm_add_relaxed(was_rung ? &job->rung : &job->timed, UINT64_C(1));
    if (!is_beside(job, mpi_now()) || mpi_now() >= usm_load_relaxed(&job->next))
        has_moved |= mpi_step(job);
    while (mpi_copy(job) && mpi_now() < usm_load_relaxed(&job->next)) {
        has_moved = true;
        mpi_deliver(job);
    }
    mpi_deliver(job);
    mpi_notify(job);
    return rest_of(job, &s->rest, has_moved);
}

static void run(void *arg)
{
    mpi_job *job  = arg;
    service  s    = {.job = job, .rest = {.moved = mpi_now(), .busy = mpi_now()}};
    uint32_t seen = 0;

    (void)prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul); /* otherwise naps of 20 us take 70 */
    usm_store_relaxed(&job->service, self_number());
    while (mpi_job_state_of(job) < MPI_JOB_STOPPING)
        mpi_bell_round(job->bell, &seen, look, &s);
    mpi_notify(job);
    mpi_job_change(job, MPI_JOB_STOPPED);
}

usm_status mpi_service_init(mpi_job *job)
{
    int error;

    error = pthread_mutex_init(&job->step, NULL);
    if (error)
        goto err_none;
    error = pthread_mutex_init(&job->lock, NULL);
    if (error)
        goto err_step;
    error = usm_cond_init_monotonic(&job->changed);
    if (error)
        goto err_lock;
    job->news_end     = &job->news;
    job->ended_end    = &job->ended;
    job->idle_news    = (usm_recycler)USM_RECYCLER_INIT(sizeof(mpi_news) + NEWS_MAX, NEWS_IDLE);
    job->idle_shadows = (usm_recycler)USM_RECYCLER_INIT(0, UINT_MAX);
    return USM_OK;

err_lock:
    (void)pthread_mutex_destroy(&job->lock);
err_step:
    (void)pthread_mutex_destroy(&job->step);
err_none:
    return job->api->report(USM_E_SYSTEM, "no lock could be made: error %d", error);
}

usm_status mpi_service_start(mpi_job *job)
{
    int error;

    if (!mpi_has_thread(job))
        return USM_OK;
    error = job->api->os->thread(run, job, "usm-mpi");
    if (error == 0)
        return USM_OK;
    return job->api->report(USM_E_SYSTEM, "no thread for messages could be started: error %d",
                            error);
}

void mpi_service_stop(mpi_job *job)
{
    mpi_job_change(job, MPI_JOB_STOPPING);
    if (!mpi_has_thread(job)) {
        mpi_job_change(job, MPI_JOB_STOPPED);
        return;
    }
    mpi_service_wake(job);
    (void)pthread_mutex_lock(&job->lock);
    while (mpi_job_state_of(job) != MPI_JOB_STOPPED)
        (void)pthread_cond_wait(&job->changed, &job->lock);
    (void)pthread_mutex_unlock(&job->lock);
}
