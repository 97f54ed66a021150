/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The entry of the pool `slab`, which is compiled into libusm.  slab_private.h describes it. */
#ifndef USM_HEAP_SLAB_H
#define USM_HEAP_SLAB_H

#include <usm/pool_ops.h>

const usm_pool_ops *usm_slab_pool_entry(const usm_host_api *api);

/* Called once, before the core registers its own fork handlers, which hold the locks of the pools
 * meanwhile: the lock shared by all pools is taken after them.  USM_E_NO_MEMORY: a child of fork()
 * may hang. */
usm_status usm_slab_watch_forks(void);

#endif
