/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A library that is taken for an MPI by its name, or by what it says of itself. */
#include <string.h>

#ifdef FAKE_MPI_VERSION
int MPI_Get_library_version(char *text, int *size);
int MPI_Get_library_version(char *text, int *size)
{
    (void)strcpy(text, FAKE_MPI_VERSION);
    *size = (int)strlen(text);
    return 0;
}
#else
int fake_mpi_is_there(void);
int fake_mpi_is_there(void)
{
    return 1;
}
#endif
