/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The entry of the backend `host`.  Called by src/usm.c, which lists the built-in parts. */
#ifndef USM_BACKENDS_HOST_H
#define USM_BACKENDS_HOST_H

#include <usm/backend.h>

const usm_backend_ops *usm_host_backend_entry(const usm_host_api *api);
/* Registers the handlers of fork(), once.  Called before the core registers its own: callers of the
 * backend may hold the core's locks, so these must be taken before ours.  USM_E_NO_MEMORY */
usm_status usm_host_watch_forks(void);

#endif
