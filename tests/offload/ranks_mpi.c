/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Teams over the ranks of a job of a real MPI: ranks_mpi [--killed PERCENT].  What the ranks do is
 * in ranks_cases.c; with --killed the last rank kills itself after 10, 50 or 90 % of a launch, and
 * the others end without MPI_Finalize(), which would wait for it.  Rank 0 writes "ok ..." for
 * tests/mpi/launch.sh --verdict. */
#include "ranks_cases.h"

#include <usm/usm.h>

#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct job_case {
    const char *name;
    void (*run)(uint32_t rank, uint32_t count);
} job_case;

static void run(const char *name, void (*fn)(uint32_t rank, uint32_t count), int rank, int count)
{
    if (rank == 0) {
        printf("# %s\n", name);
        (void)fflush(stdout);
    }
    fn((uint32_t)rank, (uint32_t)count);
}

static void (*dies_after(const char *percent))(uint32_t rank, uint32_t count)
{
    if (strcmp(percent, "10") == 0)
        return last_rank_dies_early;
    return strcmp(percent, "90") == 0 ? last_rank_dies_late : last_rank_dies_halfway;
}

int main(int argc, char **argv)
{
    static const job_case cases[] = {
        {"results are those of one process", rank_fills},
        {"any rank can be home", rank_fills_for_another_home},
        {"chunks have their neighbours from home", rank_has_neighbours},
        {"sums are the same to the bit for any split", rank_sums},
        {"the first that is found is the lowest", rank_finds_the_first},
        {"what is read and written is written once", rank_updates_in_place},
        {"a hundred launches follow each other", rank_launches_often},
        {"two launches share a team", rank_launches_two_at_a_time},
        {"all ranks know what members did", rank_tells_its_figures},
        {"any rank can cancel", rank_1_cancels},
        {"ranks that disagree launch nothing", rank_1_launches_something_else},
    };
    MPI_Comm world = MPI_COMM_WORLD;
    int      rank, count, level = 0;
    bool     is_killed = argc > 1 && strcmp(argv[1], "--killed") == 0;

    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    (void)MPI_Comm_rank(world, &rank);
    (void)MPI_Comm_size(world, &count);
    if (USM_MPI_ATTACH(MPI_COMM_WORLD) != USM_OK) {
        printf("not ok teams over ranks: rank %d: %s\n", rank, usm_last_error());
        (void)fflush(stdout);
        _exit(1);
    }
    for (size_t i = 0; !is_killed && i < sizeof cases / sizeof *cases; i++)
        run(cases[i].name, cases[i].run, rank, count);
    if (is_killed)
        run("a rank that dies is replaced", dies_after(argc > 2 ? argv[2] : "50"), rank, count);
    if (rank == 0) {
        printf("ok teams over %d ranks%s\n", count, is_killed ? ", one killed" : "");
        (void)fflush(stdout);
    }
    if (is_killed) {
        (void)sleep(2); /* what rank 0 has said last may still be on its way */
        _exit(0);
    }
    (void)MPI_Finalize();
    return 0;
}
