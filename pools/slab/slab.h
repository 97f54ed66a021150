/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The entry of the pool `slab`, compiled into libusm.  What it is stands in pool.h. */
#ifndef USM_POOL_SLAB_H
#define USM_POOL_SLAB_H

#include <usm/pool_ops.h>

const usm_pool_ops *usm_slab_pool_entry(const usm_host_api *api);

/* Once, before the core's own handlers of fork(), which hold the pools' locks meanwhile: what all
 * pools share is locked after them.  USM_E_NO_MEMORY: a child of a fork() may hang. */
usm_status usm_slab_watch_forks(void);

#endif
