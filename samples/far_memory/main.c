/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A grid larger than memory, in the memory of other processes.
 *
 *     mpirun -n 4 far_memory [--limit 32M] [--times 8] [--steps 4] [--kill RANK] [--memd]
 *
 * Here: MPI, libusm's settings, and who does what.  compute.c is the program proper; a program
 * that has no lenders among its ranks needs nothing of lender.c. */
#include "far_memory.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum exit_status { EXIT_RIGHT = 0, EXIT_WRONG = 1, EXIT_OPTIONS = 2 };

/* ---- settings, before usm_mpi_attach(): afterwards they are fixed --------------------------- */

/* The variable of the environment wins. */
static bool set_unless_said(const char *key, const char *value)
{
    const char *said, *origin;

    if (usm_config_get(key, &said, &origin) != USM_OK)
        return failed(key);
    if (strcmp(origin, "default") != 0)
        return true;
    return usm_config_set(key, value) == USM_OK || failed(key);
}

/* Two copies of the grid, also when one lender has gone, and some room. */
static uint64_t enough(const job *j)
{
    const uint64_t grid = j->rows * ROW_BYTES, lenders = (uint64_t)j->size - 1;
    const uint64_t left = lenders > 1 ? lenders - 1 : 1;

    return 2 * grid / left + grid / 8;
}

static bool settings(const job *j)
{
    char text[64];

    /* On one node all would share its fate, and copies make no sense.  To show them, each rank
     * counts as a node. */
    snprintf(text, sizeof text, "rank%d", j->rank);
    if (j->is_one_node && !set_unless_said("spill_domain", text))
        return false;
    if (j->rank == 0) {
        snprintf(text, sizeof text, "host:%" PRIu64, j->o->limit);
        return usm_config_set("memory_limit", text) == USM_OK ? set_unless_said("spill", "mpi")
                                                              : failed("--limit");
    }
    snprintf(text, sizeof text, "%" PRIu64, j->o->lend ? j->o->lend : enough(j));
    if (j->o->lend)
        return usm_config_set("spill_lend", text) == USM_OK || failed("--lend");
    return set_unless_said("spill_lend", text);
}

/* ---- MPI ------------------------------------------------------------------------------------ */

static bool is_one_node(MPI_Comm comm)
{
    MPI_Comm node;
    int      here, all;

    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &here);
    MPI_Comm_size(comm, &all);
    MPI_Comm_free(&node);
    return here == all;
}

/* The ranks of this program: all, or all but the memory servers. */
static bool find_ranks(job *j)
{
    j->comm = MPI_COMM_WORLD;
    if (j->o->memd && usm_mpi_app_comm(&j->comm, sizeof j->comm) != USM_OK)
        return failed("the program's own ranks");
    MPI_Comm_rank(j->comm, &j->rank);
    MPI_Comm_size(j->comm, &j->size);
    MPI_Comm_set_errhandler(j->comm, MPI_ERRORS_RETURN); /* a rank may die */
    j->is_one_node = !j->o->memd && is_one_node(j->comm);
    j->rows        = j->o->limit * j->o->times / BAND_BYTES * BAND;
    if (j->o->memd || (j->size > 1 && j->o->kill < j->size))
        return true;
    if (j->rank == 0)
        fprintf(stderr,
                "far_memory: %d ranks are too few: mpirun -n 4, or --memd beside usm-memd\n",
                j->size);
    return false;
}

static volatile sig_atomic_t verdict;

static void give_up(int sig)
{
    (void)sig;
    _exit(verdict);
}

/* MPI_Finalize() may wait for the dead for ever; and MPICH 4.0 over TCP for nobody. */
static int leave(job *j, bool is_good)
{
    verdict = is_good ? EXIT_RIGHT : EXIT_WRONG;
    fflush(NULL);
    usm_mpi_detach();
    (void)signal(SIGALRM, give_up);
    (void)alarm(j->o->kill >= 0 ? 3 : 10);
    if (j->o->memd)
        MPI_Comm_free(&j->comm);
    MPI_Finalize();
    return verdict;
}

static int run(const options *o)
{
    job  j       = {.o = o, .dead = -1};
    bool is_good = false;

    if (!find_ranks(&j) || !settings(&j))
        MPI_Abort(MPI_COMM_WORLD, EXIT_OPTIONS);
    if (USM_MPI_ATTACH(j.comm) != USM_OK) {
        failed("usm_mpi_attach");
        MPI_Abort(MPI_COMM_WORLD, EXIT_WRONG);
    }
    if (j.rank == 0) {
        is_good = compute(&j);
        lenders_release(&j);
    } else {
        lender_wait(j.comm);
        is_good = true;
    }
    return leave(&j, is_good);
}

int main(int argc, char **argv)
{
    usm_job_info info = USM_JOB_INFO_INIT;
    options      o;
    int          level = 0;

    /* Which rank this is, the launcher has told: MPI need not run for it. */
    if (usm_job_get_info(&info) != USM_OK)
        info.rank = 0;
    switch (options_parse(&o, argc, argv, info.rank == 0)) {
    case OPTIONS_HELP:
        if (info.rank == 0)
            options_help();
        return EXIT_RIGHT;
    case OPTIONS_WRONG:
        return EXIT_OPTIONS;
    case OPTIONS_GO:
    default:
        break;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* Below MPI_THREAD_MULTIPLE a rank can borrow, but not lend: usm_mpi_attach() says so. */
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return EXIT_WRONG;
    return run(&o);
}
