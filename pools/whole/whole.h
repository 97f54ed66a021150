/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The entry of the pool `whole`: whole.c. */
#ifndef USM_POOL_WHOLE_H
#define USM_POOL_WHOLE_H

#include <usm/pool_ops.h>

const usm_pool_ops *usm_whole_pool_entry(const usm_host_api *api);

#endif
