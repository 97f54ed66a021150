/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The operations on a store's blocks: room, transfers, and the end of both.
 *
 * The protocol ends transfers within its step.  Their `done` may do anything, including a reserve,
 * which must itself step.  So each transfer goes to the protocol as a shadow, which only records
 * its end, and `done` is called when the step is over, with no lock held (mpi_deliver): by the
 * module's thread, or by a thread that calls progress().  A thread that steps because it waits for
 * something of its own does not call it: what a `done` waits for may be further up that thread's
 * stack.  Below MPI_THREAD_MULTIPLE it is called at the end of submit() and in progress().  The
 * submitter ends a transfer for which it waits.
 *
 * `flying` counts the threads and transfers inside: leaving waits for them, and later ones are
 * refused. */
#include "internal.h"

#define PLACE_SHIFT 48
#define BLOCK_MASK  ((UINT64_C(1) << PLACE_SHIFT) - 1)
#define PROGRESS_NS UINT64_C(200000) /* most time of progress(): others may have work too */

/* ---- entering ------------------------------------------------------------------------------ */

/* Whether this thread may work on the store now, and with which peer for that place.  It counts as
 * flying in any case. */
static usm_status enter(mpi_store *s, uint64_t block, uint32_t *peer)
{
    mpi_job       *job   = s->job;
    const uint64_t place = block >> PLACE_SHIFT;

    /* Pairs with the change to CLOSING, all sequentially consistent: either the thread that leaves
     * sees this one counted, or this one sees that the job is closing. */
    atomic_fetch_add(&job->flying, 1u);
    if (atomic_load(&job->state) >= MPI_JOB_CLOSING)
        return job->api->report(USM_E_IO, "this process has left the job (usm_mpi_detach() or "
                                          "MPI_Finalize()): what others kept for it is gone");
    if (!mpi_may_step(job))
        return job->api->report(USM_E_MPI_THREADS,
                                "below MPI_THREAD_MULTIPLE only the thread that called "
                                "usm_mpi_attach() can reach other nodes; ask MPI_Init_thread() "
                                "for MPI_THREAD_MULTIPLE");
    if (mpi_find_place(job, place, peer))
        return USM_OK;
    if (place >= usm_load_acquire(&job->nplaces))
        return job->api->report(USM_E_INVALID, "the job has no member %llu",
                                (unsigned long long)place);
    return job->api->report(USM_E_IO, "member %u of the job is lost, with what it held",
                            job->places[place].member);
}

static void leave(mpi_job *job)
{
    atomic_fetch_sub(&job->flying, 1u);
}

/* Steps until *ended, which the protocol ensures.  Called between mpi_await_begin(), which comes
 * before the request to the protocol so that the module's thread is not woken, and
 * mpi_await_end(). */
static void await(mpi_job *job, const _Atomic bool *ended)
{
    uint64_t since = 0;

    while (!usm_load_acquire(ended))
        mpi_linger(job, &since, false);
}

/* ---- room --------------------------------------------------------------------------------- */

typedef struct reservation {
    usm_status   status;
    _Atomic bool ended;
} reservation;

static void on_reserved(void *arg, usm_status status)
{
    reservation *r = arg;

    r->status = status;
    usm_store_release(&r->ended, true);
}

static usm_status reserve_at(mpi_store *s, uint32_t peer, uint64_t first, uint64_t n)
{
    const usm_host_api *api = s->job->api;
    reservation         r   = {.status = USM_E_INTERNAL};

    if (((first + n - 1) ^ first) >> PLACE_SHIFT)
        return api->report(USM_E_INVALID, "blocks of several members are reserved at once");
    mpi_await_begin(s->job);
    far_reserve_start(s->far, peer, first & BLOCK_MASK, n, on_reserved, &r);
    await(s->job, &r.ended);
    mpi_await_end(s->job);
    if (r.status == USM_OK)
        (void)usm_add_relaxed(&s->reserved, n);
    else if (r.status == USM_E_SPILL_FULL)
        return api->report(r.status, "member %u of the job has no memory left to lend", peer);
    else
        return api->report(r.status, "member %u of the job did not reserve memory", peer);
    return USM_OK;
}

usm_status mpi_store_reserve(void *store, uint64_t first, uint64_t n)
{
    mpi_store *s    = store;
    uint32_t   peer = 0;
    usm_status st;

    if (n == 0)
        return USM_OK;
    st = enter(s, first, &peer);
    if (st == USM_OK)
        st = reserve_at(s, peer, first, n);
    leave(s->job);
    return st;
}

void mpi_store_forget(void *store, uint64_t first, uint64_t n)
{
    mpi_store     *s     = store;
    mpi_job       *job   = s->job;
    const uint64_t place = first >> PLACE_SHIFT;

    if (n == 0 || place >= usm_load_acquire(&job->nplaces))
        return;
    (void)usm_sub_relaxed(&s->reserved, n);
    atomic_fetch_add(&job->flying, 1u);
    if (atomic_load(&job->state) < MPI_JOB_CLOSING &&
        !usm_load_relaxed(&job->places[place].is_lost))
        far_forget(s->far, job->places[place].member, first & BLOCK_MASK, n);
    leave(job);
}

/* ---- shadows --------------------------------------------------------------------------------- */

struct mpi_shadow {
    usm_transfer  t;  /* the protocol's; first */
    usm_transfer *of; /* the submitter's */
    mpi_job      *job;
    usm_status    status;
    mpi_shadow   *next; /* in the list of those that have ended */
};

static mpi_shadow *take_shadow(mpi_job *job)
{
    mpi_shadow *s = usm_recycler_take(&job->idle_shadows, 0);

    return s ? s : job->api->heap_alloc(sizeof(*s));
}

/* Within a step, or within far_submit(). */
static void on_ended(usm_transfer *t, usm_status status)
{
    mpi_shadow *s   = (mpi_shadow *)(void *)t;
    mpi_job    *job = s->job;

    s->status = status;
    s->next   = NULL;
    (void)usm_sub_relaxed(&job->shadows, 1u);
    (void)pthread_mutex_lock(&job->lock);
    *job->ended_end = s;
    job->ended_end  = &s->next;
    usm_store_release(&job->has_ended, true);
    (void)pthread_mutex_unlock(&job->lock);
    mpi_service_notify(job);
}

static mpi_shadow *take_ended(mpi_job *job)
{
    mpi_shadow *s;

    (void)pthread_mutex_lock(&job->lock);
    s = job->ended;
    if (s)
        job->ended = s->next;
    if (!job->ended)
        job->ended_end = &job->ended;
    usm_store_relaxed(&job->has_ended, job->ended != NULL);
    (void)pthread_mutex_unlock(&job->lock);
    return s;
}

/* One after the other, and not from within a `done`: the calls could nest as deep as there are
 * transfers. */
void mpi_deliver(mpi_job *job)
{
    static _Thread_local bool is_delivering;
    mpi_shadow               *s;

    if (is_delivering || !usm_load_acquire(&job->has_ended))
        return;
    is_delivering = true;
    while ((s = take_ended(job))) {
        usm_transfer    *of     = s->of;
        const usm_status status = s->status;

        (void)usm_recycler_give(&job->idle_shadows, s);
        of->done(of, status);
        leave(job);
    }
    is_delivering = false;
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* The submitter waits in submit(): the protocol gets a copy. */
typedef struct awaited {
    usm_transfer t; /* first */
    usm_status   status;
    _Atomic bool ended;
} awaited;

static void on_awaited(usm_transfer *t, usm_status status)
{
    awaited *a = (awaited *)(void *)t;

    a->status = status;
    usm_store_release(&a->ended, true);
}

static void run_awaited(mpi_store *s, uint32_t peer, usm_transfer *t)
{
    awaited a = {.t = *t};

    a.t.done = on_awaited;
    mpi_await_begin(s->job);
    far_submit(s->far, peer, &a.t);
    await(s->job, &a.ended);
    mpi_await_end(s->job);
    if (a.status != USM_OK)
        (void)s->job->api->report(a.status, "member %u of the job did not %s slot %llu", peer,
                                  t->op == USM_TRANSFER_FETCH ? "give" : "keep",
                                  (unsigned long long)(t->block & BLOCK_MASK));
    t->done(t, a.status);
    leave(s->job);
}

static usm_status check(mpi_store *s, const usm_transfer *t, uint32_t *peer)
{
    usm_status st = enter(s, t->block, peer);

    if (t->size == 0 || t->offset > s->block_size || t->size > s->block_size - t->offset)
        return s->job->api->report(USM_E_INVALID,
                                   "a transfer of %zu bytes at %zu of a block of %zu", t->size,
                                   t->offset, s->block_size);
    return st;
}

static usm_status start(mpi_store *s, uint32_t peer, usm_transfer *t)
{
    mpi_shadow *shadow = take_shadow(s->job);

    if (!shadow)
        return s->job->api->report(USM_E_NO_MEMORY, "no memory for a transfer");
    shadow->t      = *t;
    shadow->t.done = on_ended;
    shadow->of     = t;
    shadow->job    = s->job;
    (void)usm_add_relaxed(&s->job->shadows, 1u);
    far_submit(s->far, peer, &shadow->t);
    return USM_OK;
}

void mpi_store_submit(void *store, usm_transfer *list)
{
    mpi_store    *s       = store;
    mpi_job      *job     = s->job;
    usm_transfer *last    = NULL; /* the awaited one: the others progress meanwhile */
    uint32_t      to_last = 0;
    usm_transfer *next;

    for (usm_transfer *t = list; t; t = next) {
        uint32_t   peer = 0;
        usm_status st   = check(s, t, &peer);

        next    = t->next;
        t->next = NULL;
        if (st == USM_OK && t->is_awaited && !last) {
            last    = t;
            to_last = peer;
            continue;
        }
        if (st == USM_OK)
            st = start(s, peer, t);
        if (st != USM_OK) {
            t->done(t, st);
            leave(job);
        }
    }
    if (last)
        run_awaited(s, to_last, last);
    else if (!mpi_has_thread(job) && mpi_may_step(job))
        (void)mpi_step(job);
    if (!mpi_has_thread(job) && mpi_may_step(job))
        mpi_deliver(job);
}

/* Changes with everything that may have ended. */
static uint64_t moves_of(const mpi_job *job)
{
    return mpi_link_moves(job->link) + usm_load_relaxed(&job->copies);
}

/* For a thread that waits: it also steps. */
usm_status mpi_store_progress(void *store, uint32_t timeout_ms)
{
    mpi_store     *s     = store;
    mpi_job       *job   = s->job;
    const uint64_t moves = moves_of(job);
    const uint64_t end   = mpi_now() + (timeout_ms ? PROGRESS_NS : 0);
    uint64_t       since = 0;

    if (mpi_job_is_closing(job))
        return USM_OK; /* leave() steps */
    if (!mpi_may_step(job))
        return job->api->report(USM_E_MPI_THREADS,
                                "below MPI_THREAD_MULTIPLE only the thread that called "
                                "usm_mpi_attach() can wait for other nodes");
    mpi_await_begin(job);
    do {
        mpi_linger(job, &since, true);
    } while (moves_of(job) == moves && mpi_now() < end);
    mpi_await_end(job);
    mpi_deliver(job);
    return USM_OK;
}
