/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The functions that src/usm.c registers, and those with which tools and tests attach. */
#ifndef USM_CLUSTER_ATTACH_H
#define USM_CLUSTER_ATTACH_H

#include "base/part.h"

#include <usm/mpi.h>
#include <usm/pool.h>
#include <usm/pool_ops.h>
#include <usm/transport.h>

/* For usm-memd: loads the module libusm_transport_mpi_<which>.so, "openmpi", "mpich", "mpich12" or
 * "abi", without checking which MPI is loaded.  USM_E_MPI it does not exist or does not load */
usm_status usm__cluster_load(const char *which, const usm_transport_ops **ops);
/* Reads the job's settings: lend, domain, lease_ms, orphan_ms, key; everything else is 0.  Key and
 * domain are valid until the process ends.  USM_E_KEY; USM_E_SYSTEM */
usm_status usm__cluster_params(usm_job_params *params);

/* usm_mpi_attach() with a given module ("mpi_openmpi").  comm NULL: all processes of the launch,
 * and the module may initialise MPI (usm-info --job). */
usm_status usm__job_attach(const char *module, const void *comm, size_t size);
/* usm_job_describe() of a job that was attached with a module of usm__cluster_load(); returns the
 * length. */
size_t usm__job_describe_member(const usm_transport_ops *ops, void *job, usm_text_format format,
                                char *text, size_t cap);
/* For programs that link no MPI: the modules that fit the launcher which has started the process,
 * the most likely first, ended by NULL ("openmpi").  Returns NULL if no launcher did. */
const char *const *usm__cluster_candidates(void);
/* The entry of the transport "mpi": the module that was attached.  NULL with an error message: none
 * was. */
const usm_transport_ops *usm__job_tier(const usm_host_api *api);
extern const usm_part    usm__cluster_part;

#endif
