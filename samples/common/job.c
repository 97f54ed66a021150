/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Joining a job, and leaving it when a rank may be dead (job.h). */
#include "job.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <usm/usm.h>

#ifdef SAMPLE_HAS_MPI
#include <mpi.h>
#endif

static struct {
    uint32_t rank;
    bool     is_mpi, is_socket;
    bool     is_torn; /* MPI is not to be ended properly */
} job;

static bool failed(const char *program, const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", program, what, usm_last_error());
    return false;
}

static bool join_mpi(const char *program)
{
#ifdef SAMPLE_HAS_MPI
    int level = 0;

    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) {
        fprintf(stderr, "%s: MPI does not start\n", program);
        return false;
    }
    job.is_mpi = true;
    if (USM_MPI_ATTACH(MPI_COMM_WORLD) == USM_OK)
        return true;
    failed(program, "joining the job");
    MPI_Abort(MPI_COMM_WORLD, 1);
    return false;
#else
    fprintf(stderr, "%s: built without MPI\n", program);
    return false;
#endif
}

bool job_join(const char *program, const char *where)
{
    usm_job_info info = USM_JOB_INFO_INIT;

    if (!where)
        return true;
    if (*where == '\0' && !join_mpi(program))
        return false;
    if (*where != '\0') {
        job.is_socket = usm_job_join(where) == USM_OK;
        if (!job.is_socket)
            return failed(program, "joining the job");
    }
    if (usm_job_get_info(&info) != USM_OK)
        return failed(program, "asking for the rank");
    job.rank = info.rank;
    return true;
}

#ifdef SAMPLE_HAS_MPI
/* MPI_Finalize() may wait for the dead for ever; but for the end nothing is left to do. */
static void give_up(int sig)
{
    (void)sig;
    _exit(0);
}
#endif

bool job_is_home(void)
{
    return job.rank == 0;
}

void job_leave(bool is_whole)
{
    if (job.is_socket)
        usm_job_leave();
#ifdef SAMPLE_HAS_MPI
    if (!job.is_mpi)
        return;
    usm_mpi_detach();
    job.is_torn = job_is_home() && !is_whole;
    if (job.is_torn)
        return;
    (void)signal(SIGALRM, give_up);
    (void)alarm(job_is_home() ? 0 : 10);
    MPI_Finalize();
    (void)alarm(0);
#else
    (void)is_whole;
#endif
}

int job_exit(int status)
{
    fflush(NULL);
    if (job.is_torn)
        _exit(status);
    return status;
}
