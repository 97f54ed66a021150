/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The entry of the pool `arena`.  Called by src/usm.c, which lists the built-in parts. */
#ifndef USM_POOLS_ARENA_H
#define USM_POOLS_ARENA_H

#include <usm/pool_ops.h>

const usm_pool_ops *usm_arena_pool_entry(const usm_host_api *api);

#endif
