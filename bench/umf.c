/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* UMF's pools as a plugin of the workers: "disjoint" and "scalable" (TBB) over its OS provider,
 * each with its defaults.  Built when UMF's headers are found; loaded by allocators.c. */
#include "plugin.h"

#include <stdio.h>
#include <string.h>

#include <umf.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_scalable.h>
#include <umf/providers/provider_os_memory.h>

static void *pool_malloc(void *self, size_t size)
{
    return umfPoolMalloc(self, size);
}

static void pool_free(void *self, void *p)
{
    umfPoolFree(self, p);
}

static umf_result_t make_disjoint(umf_memory_provider_handle_t provider,
                                  umf_memory_pool_handle_t    *pool)
{
    umf_disjoint_pool_params_handle_t params = NULL;
    umf_result_t                      result = umfDisjointPoolParamsCreate(&params);

    if (result == UMF_RESULT_SUCCESS) {
        result = umfPoolCreate(umfDisjointPoolOps(), provider, params, 0, pool);
        umfDisjointPoolParamsDestroy(params);
    }
    return result;
}

static umf_result_t make_scalable(umf_memory_provider_handle_t provider,
                                  umf_memory_pool_handle_t    *pool)
{
    umf_scalable_pool_params_handle_t params = NULL;
    umf_result_t                      result = umfScalablePoolParamsCreate(&params);

    if (result == UMF_RESULT_SUCCESS) {
        result = umfPoolCreate(umfScalablePoolOps(), provider, params, 0, pool);
        umfScalablePoolParamsDestroy(params);
    }
    return result;
}

static umf_result_t make_provider(umf_memory_provider_handle_t *provider)
{
    umf_os_memory_provider_params_handle_t params = NULL;
    umf_result_t                           result = umfOsMemoryProviderParamsCreate(&params);

    if (result == UMF_RESULT_SUCCESS) {
        result = umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, provider);
        umfOsMemoryProviderParamsDestroy(params);
    }
    return result;
}

bool usm_bench_allocator_open(const char *what, bench_allocator *a, char *why, size_t cap)
{
    umf_memory_provider_handle_t provider = NULL;
    umf_memory_pool_handle_t     pool     = NULL;
    umf_result_t                 result   = make_provider(&provider);

    if (result == UMF_RESULT_SUCCESS)
        result = strcmp(what, "scalable") == 0 ? make_scalable(provider, &pool)
                                               : make_disjoint(provider, &pool);
    if (result != UMF_RESULT_SUCCESS) {
        snprintf(why, cap, "UMF's %s pool cannot be made (result %d)", what, (int)result);
        return false;
    }
    *a = (bench_allocator){.self = pool, .malloc = pool_malloc, .free = pool_free};
    return true;
}
