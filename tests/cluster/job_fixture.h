/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A job of processes without MPI: a transport with the groups PLACES and JOB over Unix sockets, and
 * what starts its ranks.  Attaching goes the usual way, through usm_mpi_attach().
 *
 *     static void rank_says_hello(uint32_t rank, uint32_t count) { CHECK(...); }
 *     job_run(3, rank_says_hello);                 // three processes, attached, all must end well
 *
 *     int status[3];
 *     job_run_some(3, rank_1_dies, status);        // wait statuses, for those that may die
 *
 * The parent must not have started libusm.  A rank is told of the death of another at once (its
 * socket ends).  Messages come from one thread of the transport, as with MPI.  The store keeps its
 * blocks in the process's own memory, in job_plan_now.lenders places.
 *
 * What only ranks may call: */
#ifndef JOB_FIXTURE_H
#define JOB_FIXTURE_H

#include "plain.h"

#include <usm/mpi.h>
#include <usm/transport.h>

#include <signal.h>
#include <stdint.h>

#define JOB_RANKS_MAX 16

typedef void job_rank_fn(uint32_t rank, uint32_t count);

/* Read when the ranks start; what is 0 is as it says. */
typedef struct job_plan {
    uint32_t   servers;   /* members behind the ranks that are servers, and no processes          */
    uint32_t   lenders;   /* places of the store; 0: 1                                          */
    bool       is_manual; /* the function attaches by itself (job_attach())                      */
    bool       by_calls;  /* no thread: messages go on in the module's functions only             */
    bool       is_frail;  /* it says that this launch survives no death */
    usm_status attach;  /* what the module's attach() answers; USM_OK                            */
    unsigned   seconds; /* until a rank is killed; 0: 120                                        */
} job_plan;
extern job_plan job_plan_now;

/* usm_mpi_attach() with a communicator of the fixture. */
usm_status job_attach(void);
/* The link to this rank is cut: both sides lose the other. */
void job_cut(uint32_t rank);
/* This rank is told of another's state, or (its own, LOST) that MPI_Finalize() has begun. */
void job_tell(uint32_t rank, usm_place_state state);
/* Messages are left where they are, until false. */
void job_hold(bool is_held);
/* What was asked for at attaching. */
const usm_job_params *job_params(void);

/* For job_run_some(). */
void job_sockets_make(uint32_t count);
void job_sockets_keep(uint32_t rank);
void job_sockets_drop(void);
void job_start_rank(void);

_Noreturn static inline void job_be(uint32_t rank, uint32_t count, job_rank_fn *fn)
{
    plain.in_child = true;
    (void)alarm(job_plan_now.seconds ? job_plan_now.seconds : 120);
    job_sockets_keep(rank);
    job_start_rank();
    if (!job_plan_now.is_manual && job_attach() != USM_OK)
        plain_fail(__FILE__, __LINE__, usm_last_error());
    fn(rank, count);
    usm_mpi_detach();
    (void)fflush(NULL);
    _exit(0);
}

static inline void job_run_some(uint32_t count, job_rank_fn *fn, int *status)
{
    pid_t pid[JOB_RANKS_MAX];

    CHECK(count <= JOB_RANKS_MAX);
    (void)fflush(NULL);
    job_sockets_make(count);
    for (uint32_t rank = 0; rank < count; rank++) {
        pid[rank] = fork();
        if (pid[rank] == 0)
            job_be(rank, count, fn);
        CHECK(pid[rank] > 0);
    }
    job_sockets_drop();
    for (uint32_t rank = 0; rank < count; rank++)
        CHECK(waitpid(pid[rank], &status[rank], 0) == pid[rank]);
}

static inline void job_run(uint32_t count, job_rank_fn *fn)
{
    int status[JOB_RANKS_MAX];

    job_run_some(count, fn, status);
    for (uint32_t rank = 0; rank < count; rank++)
        CHECK_INT(status[rank], 0);
}

#endif
