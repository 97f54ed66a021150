/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The entry of the backend `host`.  Who calls it: src/usm.c, which lists what is built in. */
#ifndef USM_BACKENDS_HOST_H
#define USM_BACKENDS_HOST_H

#include <usm/backend.h>

const usm_backend_ops *usm_host_backend_entry(const usm_host_api *api);
/* Registers the handlers of fork(), once.  Before the core's, whose locks may be held
 * by who calls the backend: so they must be taken before ours.   USM_E_NO_MEMORY */
usm_status usm_host_watch_forks(void);

#endif
