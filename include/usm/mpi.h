/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * libusm in a job of MPI processes: memory of other nodes as a tier
 * (USM_SPILL=mpi), and buffers that all ranks share.
 *
 *     MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
 *     if (USM_MPI_ATTACH(MPI_COMM_WORLD) != USM_OK)
 *         ... usm_last_error() ...
 *     // buffers that exceed memory spill to other ranks (USM_SPILL_LEND) and
 *     // to usm-memd
 *     MPI_Finalize();
 *
 * The program owns MPI: libusm never initialises or finalises it, and uses
 * communicators of its own.  MPI_Finalize() of a program that includes this
 * header, before or after <mpi.h>, first calls usm_mpi_finish(); others call it
 * themselves.  libusm does not link to MPI: at run time it loads the module for the
 * program's MPI (Open MPI, MPICH and its derivatives, the standard ABI).
 *
 * Below MPI_THREAD_MULTIPLE a process can only borrow memory, and its transfers
 * progress only within libusm calls of the thread that attached.  These calls
 * then call MPI; a program at MPI_THREAD_SERIALIZED must serialise them with
 * its other MPI calls.  docs/cluster.md describes which failures a launch
 * survives, and what happens when a node fails. */
#ifndef USM_MPI_H
#define USM_MPI_H

#include <usm/types.h>

USM_BEGIN_DECLS

/** Attaches this process.  Collective over *comm, a pointer to the program's
 * MPI_Comm of `size` bytes, which is duplicated.  Once per process, after
 * MPI_Init_thread().  A process of the job may lend memory (USM_SPILL_LEND) or
 * only borrow it.
 *   USM_E_MPI            no MPI or two MPIs are loaded; MPI is not initialised, or
 *                        was finalised; the size is that of another MPI's
 *                        communicator; the module is missing
 *   USM_E_MPI_THREADS    the process is to lend, and the thread level is not
 *                        MPI_THREAD_MULTIPLE
 *   USM_E_KEY            members have different keys (USM_JOB_KEY)
 *   USM_E_BUSY           the process is attached already */
USM_API USM_NODISCARD usm_status usm_mpi_attach(const void *comm, size_t size);
/** The same for any expression of type MPI_Comm, even one without an address,
 * such as MPI_COMM_WORLD. */
#ifdef __cplusplus
#define USM_MPI_ATTACH(comm)                                                                       \
    ([](auto comm_) { return usm_mpi_attach(&comm_, sizeof(comm_)); }(comm))
#else
#define USM_MPI_ATTACH(comm) usm_mpi_attach(&(__typeof__(comm)){(comm)}, sizeof(comm))
#endif

/** Detaches this process.  Not collective; it does not wait for members that
 * have died.  Buffers whose content is stored on other members lose it: destroy
 * them first. */
USM_API void usm_mpi_detach(void);

/** The same before MPI_Finalize(): a process that lends memory first serves the
 * other ranks until those that live have called it, too, or store nothing here.
 * Does nothing in a process that is not attached.  A program whose source does
 * not include this header (Fortran, Python's mpi4py) calls it before
 * MPI_Finalize(): MPICH may end a job whose process has a thread within MPI
 * then. */
USM_API void usm_mpi_finish(void);

/** Returns a communicator of the program's own ranks, when usm-memd runs in the
 * same mpirun: *comm, an MPI_Comm of `size` bytes, which the program uses
 * instead of MPI_COMM_WORLD and frees.  Collective over MPI_COMM_WORLD,
 * including usm-memd; before usm_mpi_attach(). */
USM_API USM_NODISCARD usm_status usm_mpi_app_comm(void *comm, size_t size);

/** MPI's, as <mpi.h> declares it. */
int MPI_Finalize(void);

/** MPI_Finalize() of a program that includes this header. */
static inline int usm_mpi_finalize_(void)
{
    usm_mpi_finish();
    return MPI_Finalize();
}

/* A call has nothing between the parentheses; the declaration of an <mpi.h>
 * that comes later has void there, and stays what it is. */
#undef MPI_Finalize
#define MPI_Finalize(...)     USM_MPI_FINALIZE_##__VA_ARGS__
#define USM_MPI_FINALIZE_     usm_mpi_finalize_()
#define USM_MPI_FINALIZE_void MPI_Finalize(void)

USM_END_DECLS
#endif
