// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// MPI_Finalize() in a file of C++ that includes <mpi.h> first; far_cases.c, of C, includes it after
// <usm/mpi.h>.
#define OMPI_SKIP_MPICXX  1 // the old interface for C++, which needs a library of its own
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <usm/mpi.h>

extern "C" int finalize_in_cpp(void);

extern "C" int finalize_in_cpp(void)
{
    return ::MPI_Finalize();
}
