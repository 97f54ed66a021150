/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The life of a job in this process, as one state.
 *
 *     MEETING --> UP --> CLOSING --> PARTING --> PARTED --> STOPPING --> STOPPED
 *                                       |                      ^
 *                                       +----------------------+  the goodbye took too long
 *
 *     state      | changed to it by                    | meaning
 *     MEETING    | (the start)                         | processes and members find each other
 *     UP         | attach(), once all of it is there   | stores, messages, transfers
 *     CLOSING    | detach(), or within MPI_Finalize()  | new ones are refused, those inside end; a
 *                |                                     | lender serves what others still need
 *     PARTING    | the same thread, in a step          | the protocol has the goodbye
 *     PARTED     | the step that finds it sent         | no living member waits for this one
 *     STOPPING   | the thread that is in CLOSING       | the module's thread ends
 *     STOPPED    | the module's thread, at its end     | nobody steps any more
 *
 * A job whose start fails is freed in MEETING: it has no thread.  The state only rises, so "has the
 * job begun to close?" is a comparison, which any thread makes without a lock.  Changes are made
 * under `lock`, in mpi_job_change() or mpi_job_change_from() alone, and broadcast on `changed`. */
#include "internal.h"

#include <assert.h>

#define TO(state) (1u << (state))

/* By state: to which it may be changed. */
static const uint8_t allowed[] = {
    [MPI_JOB_MEETING]  = TO(MPI_JOB_UP),
    [MPI_JOB_UP]       = TO(MPI_JOB_CLOSING),
    [MPI_JOB_CLOSING]  = TO(MPI_JOB_PARTING),
    [MPI_JOB_PARTING]  = TO(MPI_JOB_PARTED) | TO(MPI_JOB_STOPPING),
    [MPI_JOB_PARTED]   = TO(MPI_JOB_STOPPING),
    [MPI_JOB_STOPPING] = TO(MPI_JOB_STOPPED),
    [MPI_JOB_STOPPED]  = 0,
};

/* An empty list ends where it begins. */
static bool has_lists(const mpi_job *job)
{
    return (job->news == NULL) == (job->news_end == &job->news) &&
           (job->ended == NULL) == (job->ended_end == &job->ended) &&
           (job->ended != NULL) == usm_load_relaxed(&job->has_ended);
}

bool mpi_job_is_valid(const mpi_job *job, mpi_job_state to)
{
    const mpi_job_state from = mpi_job_state_of(job);

    return (allowed[from] & TO(to)) != 0 && has_lists(job) && job->link && job->node &&
           job->self < job->count &&
           /* the thread that ends is awake; the goodbye is sent before it is told */
           (to != MPI_JOB_STOPPED || atomic_load(&job->bell->sleep) == MPI_BELL_AWAKE) &&
           (to != MPI_JOB_PARTED || job->has_left);
}

/* The lock is held. */
static void change(mpi_job *job, mpi_job_state to)
{
    assert(mpi_job_is_valid(job, to));
    /* Sequentially consistent, for CLOSING: pairs with the entry of transfers (transfer.c). */
    atomic_store(&job->state, to);
    (void)pthread_cond_broadcast(&job->changed);
}

void mpi_job_change(mpi_job *job, mpi_job_state to)
{
    (void)pthread_mutex_lock(&job->lock);
    change(job, to);
    (void)pthread_mutex_unlock(&job->lock);
}

void mpi_job_change_from(mpi_job *job, mpi_job_state from, mpi_job_state to)
{
    (void)pthread_mutex_lock(&job->lock);
    if (mpi_job_state_of(job) == from)
        change(job, to);
    (void)pthread_mutex_unlock(&job->lock);
}
