/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The entry of the pool `direct`.  Called by src/usm.c, which lists the built-in parts. */
#ifndef USM_POOLS_DIRECT_H
#define USM_POOLS_DIRECT_H

#include <usm/pool_ops.h>

const usm_pool_ops *usm_direct_pool_entry(const usm_host_api *api);

#endif
