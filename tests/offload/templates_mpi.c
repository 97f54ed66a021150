/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every template over the ranks of a job of a real MPI; what ranks do is in templates_ranks.c.  Rank
 * 0 writes "ok ..." for tests/mpi/launch.sh --verdict. */
#include "templates_ranks.h"

#include <usm/mpi.h>
#include <usm/usm.h>

#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

typedef struct job_case {
    const char *name;
    void (*run)(uint32_t rank, uint32_t count);
} job_case;

int main(int argc, char **argv)
{
    static const job_case cases[] = {
        {"map, master_worker, stencil", rank_maps},
        {"map_reduce, scan", rank_joins},
        {"search", rank_searches},
        {"iterate", rank_iterates},
        {"pipeline", rank_pipes},
        {"mistakes", rank_refuses},
        {"a pipeline that is ended", rank_ends_a_pipeline},
    };
    int rank, count, level = 0;

    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &count);
    if (USM_MPI_ATTACH(MPI_COMM_WORLD) != USM_OK) {
        printf("not ok templates over ranks: rank %d: %s\n", rank, usm_last_error());
        (void)fflush(stdout);
        _exit(1);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (rank == 0)
            printf("# %s\n", cases[i].name);
        (void)fflush(stdout);
        cases[i].run((uint32_t)rank, (uint32_t)count);
    }
    if (rank == 0)
        printf("ok templates over %d ranks\n", count);
    (void)fflush(stdout);
    (void)MPI_Finalize();
    return 0;
}
