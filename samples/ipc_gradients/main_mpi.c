/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The same workers as ranks of an MPI job on one machine, each sum by turns with MPI_Allreduce.
 *
 *     mpirun -n 4 ipc_gradients_mpi [options of ipc_gradients]
 *
 * libusm does not know of MPI: handles would travel through MPI_Allgather as well as through the
 * channel, which is kept because it says who is still there. */
#include "gradients.h"

#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

static usm_status allreduce(const float *send, float *recv, size_t count)
{
    return MPI_Allreduce(send, recv, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS
               ? USM_OK
               : USM_E_SYSTEM;
}

int main(int argc, char **argv)
{
    options o;
    int     rank = 0, rc = 2;

    if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (options_parse(argc, argv, &o)) {
        o.run    = (int)getpid(); /* of rank 0 */
        o.other  = allreduce;
        o.nkills = 0; /* MPI ends the job when a rank dies */
        MPI_Comm_size(MPI_COMM_WORLD, &o.workers);
        MPI_Bcast(&o.run, 1, MPI_INT, 0, MPI_COMM_WORLD);
        rc = o.workers <= MAX_WORKERS ? worker_run(&o, rank) : 2;
    }
    if (rc != 0)
        MPI_Abort(MPI_COMM_WORLD, rc);
    MPI_Finalize();
    return rc;
}
