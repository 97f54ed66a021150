/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The entry of the pool `slab`, compiled into libusm.  What it is stands in pool.h. */
#ifndef USM_POOL_SLAB_H
#define USM_POOL_SLAB_H

#include <usm/pool_ops.h>

const usm_pool_ops *usm_slab_pool_entry(const usm_host_api *api);

#endif
