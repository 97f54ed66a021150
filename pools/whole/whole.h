/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The entries of the pools `direct` and `whole`: whole.c.  Called by src/usm.c, which lists the
 * built-in parts. */
#ifndef USM_POOL_WHOLE_H
#define USM_POOL_WHOLE_H

#include <usm/pool_ops.h>

const usm_pool_ops *usm_direct_pool_entry(const usm_host_api *api);
const usm_pool_ops *usm_whole_pool_entry(const usm_host_api *api);

#endif
