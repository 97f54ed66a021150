/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * libusm in a job of MPI processes: memory of other nodes as a tier (USM_SPILL=mpi), and buffers
 * that all ranks share.
 *
 *     MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
 *     if (USM_MPI_ATTACH(MPI_COMM_WORLD) != USM_OK)
 *         ... usm_last_error() ...
 *     // buffers that outgrow memory go to other ranks (USM_SPILL_LEND) and to usm-memd
 *     MPI_Finalize();
 *
 * The program owns MPI: libusm never initialises or finalises it, works on communicators of its
 * own, and leaves by itself at the beginning of MPI_Finalize().  Libusm links no MPI: the module
 * for the program's MPI (Open MPI, MPICH and its relatives, the standard ABI) is found at run time.
 *
 * Below MPI_THREAD_MULTIPLE a process borrows only, and its transfers go on inside libusm's calls
 * of the thread that attached; these are calls of MPI then, which a program at
 * MPI_THREAD_SERIALIZED keeps apart from its others. What a launch survives, and what happens when
 * a node dies: docs/cluster.md. */
#ifndef USM_MPI_H
#define USM_MPI_H

#include <usm/types.h>

USM_BEGIN_DECLS

/** Collective over *comm, a pointer to the program's MPI_Comm of `size` bytes, which is duplicated;
 * once a process, after MPI_Init_thread().  A process of the job may lend (USM_SPILL_LEND) or only
 * borrow.
 *   USM_E_MPI          no MPI is loaded or two are, it is not initialised or was finalised, the
 *                      communicator has another MPI's size, or the module is missing
 *   USM_E_MPI_THREADS  it is to lend, and the thread level is not MPI_THREAD_MULTIPLE
 *   USM_E_KEY          members have different keys (USM_JOB_KEY)
 *   USM_E_PEER         servers that USM_MPI_JOIN names are not there, or do not answer
 *   USM_E_NOT_SUPPORTED  this MPI cannot join servers of another launch
 *   USM_E_BUSY         the process is attached already; servers that are joined are full */
USM_API USM_NODISCARD usm_status usm_mpi_attach(const void *comm, size_t size);
/** The same of any expression that is a communicator: MPI_COMM_WORLD has no address. */
#ifdef __cplusplus
#define USM_MPI_ATTACH(comm)                                                                       \
    ([](auto comm_) { return usm_mpi_attach(&comm_, sizeof(comm_)); }(comm))
#else
#define USM_MPI_ATTACH(comm) usm_mpi_attach(&(__typeof__(comm)){(comm)}, sizeof(comm))
#endif

/** Before MPI_Finalize(), which does it otherwise.  Not collective, and waits for nobody who is
 * dead.  Buffers whose content lies with others lose it: destroy them first. */
USM_API void usm_mpi_detach(void);

/** The program's own ranks, when usm-memd runs in the same mpirun: into *comm, an MPI_Comm of
 * `size` bytes that the program uses in place of MPI_COMM_WORLD and frees.  Collective over
 * MPI_COMM_WORLD, usm-memd included; before usm_mpi_attach(). */
USM_API USM_NODISCARD usm_status usm_mpi_app_comm(void *comm, size_t size);

USM_END_DECLS
#endif
