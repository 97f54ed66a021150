/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* libusm_umf: a pool of libusm for programs that ask UMF for one (usm/umf.h).  The pool itself is
 * pool.c; here are its table and its parameters.  Called by UMF, in any thread. */
#include "pool.h"

#include <usm/umf.h>

static umf_result_t initialize(umf_memory_provider_handle_t provider, const void *given,
                               void **pool)
{
    usm_umf_params params = USM_UMF_PARAMS_INIT;

    if (given) {
        if (((const usm_umf_params *)given)->struct_size < sizeof params)
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        params = *(const usm_umf_params *)given;
    }
    umf_pool_make_desc make = {params.kind, params.desc, params.name ? params.name : "usm",
                               SIZE_MAX};

    return umf_pool_make(provider, &make, (umf_pool **)pool);
}

const umf_memory_pool_ops_t *usm_umf_pool_ops(void)
{
    static const umf_memory_pool_ops_t ops = {
        .version                   = UMF_POOL_OPS_1_1,
        .initialize                = initialize,
        .finalize                  = umf_pool_finalize,
        .malloc                    = umf_pool_malloc,
        .calloc                    = umf_pool_calloc,
        .realloc                   = umf_pool_realloc,
        .aligned_malloc            = umf_pool_aligned_malloc,
        .malloc_usable_size        = umf_pool_usable_size,
        .free                      = umf_pool_free_checked,
        .get_last_allocation_error = umf_pool_last_error,
        .get_name                  = umf_pool_name,
        .ext_ctl                   = umf_pool_ctl,
        .ext_trim_memory           = umf_pool_trim,
    };

    return &ops;
}
