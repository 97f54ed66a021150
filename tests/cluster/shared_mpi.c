/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Buffers that ranks share, in a job of a real MPI: shared_mpi [--killed].  What the ranks do is in
 * shared_ranks.c; with --killed the last rank kills itself while it owns blocks, and the others end
 * without MPI_Finalize(), which would wait for it.  Rank 0 writes "ok ..." for tests/mpi/launch.sh
 * --verdict. */
#include "cluster/shared_ranks.h"

#include <usm/usm.h>

#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct job_case {
    const char *name;
    void (*run)(uint32_t rank, uint32_t count);
    int ranks; /* at least                                                                  */
} job_case;

static void run(const char *name, void (*fn)(uint32_t rank, uint32_t count), int rank, int count)
{
    if (rank == 0) {
        printf("# %s\n", name);
        (void)fflush(stdout);
    }
    fn((uint32_t)rank, (uint32_t)count);
}

int main(int argc, char **argv)
{
    static const job_case cases[] = {
        {"what one rank writes all others read", rank_reads_and_writes, 1},
        {"no_init of a part keeps the rest of the block", rank_writes_a_part, 1},
        {"a matrix is the same bit by bit", rank_passes_over_its_rows, 1},
        {"ranks add to one number", rank_adds, 1},
        {"accesses to several blocks", rank_takes_neighbours, 1},
        {"accesses to many blocks", rank_takes_all_at_once, 1},
        {"slots are kept in part only", rank_keeps_slots, 2},
        {"blocks larger than a slot", rank_moves_large_blocks, 1},
        {"threads of several ranks", rank_adds_with_threads, 1},
        {"nonsense is refused", rank_asks_for_nonsense, 1},
        {"ranks that disagree make nothing", rank_makes_another_size, 2},
    };
    MPI_Comm world = MPI_COMM_WORLD;
    int      rank, count, level = 0;
    bool     is_killed = argc > 1 && strcmp(argv[1], "--killed") == 0;

    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    (void)MPI_Comm_rank(world, &rank);
    (void)MPI_Comm_size(world, &count);
    if (USM_MPI_ATTACH(MPI_COMM_WORLD) != USM_OK) {
        printf("not ok shared buffers: rank %d: %s\n", rank, usm_last_error());
        (void)fflush(stdout);
        _exit(1);
    }
    for (size_t i = 0; !is_killed && i < sizeof cases / sizeof *cases; i++)
        if (count >= cases[i].ranks)
            run(cases[i].name, cases[i].run, rank, count);
    if (is_killed)
        run("who dies takes what it owned and nothing else", rank_dies_while_it_owns, rank, count);
    if (rank == 0) {
        printf("ok shared buffers over %d ranks%s\n", count, is_killed ? ", one killed" : "");
        (void)fflush(stdout);
    }
    if (is_killed)
        _exit(0);
    (void)MPI_Finalize();
    return 0;
}
