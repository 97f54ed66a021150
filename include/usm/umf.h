/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * A pool of libusm for programs over UMF, oneAPI's Unified Memory Framework
 * (versions 1.x).  It is in a library of its own, libusm_umf (CMake: usm::umf of
 * the package's component umf; pkg-config: libusm_umf), which links no UMF: it
 * uses the one that the program has.
 *
 *     usm_umf_params params = USM_UMF_PARAMS_INIT;
 *
 *     params.kind = USM_HOST;
 *     umfPoolCreate(usm_umf_pool_ops(), provider, &params, 0, &pool);
 *     p = umfPoolMalloc(pool, size);
 *
 * The pool takes areas from the provider and cuts them into blocks.  The areas
 * are the provider's own allocations: umfPoolByPtr(), umfFree(), IPC handles and
 * the driver's queries work as with UMF's pools.
 *
 *   umfPoolCalloc, umfPoolRealloc  for USM_HOST and USM_SHARED; of USM_DEVICE
 *                                  libusm never touches the memory, and they fail
 *                                  with UMF_RESULT_ERROR_NOT_SUPPORTED
 *   umfPoolFree                    a pointer that is not the start of a live block
 *                                  of this pool is UMF_RESULT_ERROR_INVALID_ARGUMENT,
 *                                  and nothing is freed
 *   umfPoolGetLastAllocationError  where the provider failed, the provider's result;
 *                                  usm_last_error() has a sentence
 *   umfPoolTrimMemory              returns free areas to the provider
 *   umfCtlGet                      stats.used_memory, stats.reserved_memory
 *   umfPoolDestroy                 returns all areas, those with live blocks too
 *
 * Pools are thread-safe.  USM_* settings apply to them, as to all of libusm. */
#ifndef USM_UMF_H
#define USM_UMF_H

#include <usm/pool.h>

USM_BEGIN_DECLS

/** UMF's, of <umf/memory_pool_ops.h>. */
struct umf_memory_pool_ops_t;

/** The parameters of umfPoolCreate(), which copies them; NULL stands for the
 * values of USM_UMF_PARAMS_INIT. */
typedef struct usm_umf_params {
    size_t               struct_size;
    usm_kind             kind; /**< of the provider's memory.  The host must be able to read and
                                    write USM_HOST and USM_SHARED */
    const usm_pool_desc *desc; /**< NULL: the defaults, and USM_POOL                           */
    const char          *name; /**< of umfPoolGetName(), at most 63 bytes; NULL: "usm"         */
} usm_umf_params;
#define USM_UMF_PARAMS_INIT                                                                        \
    {                                                                                              \
        sizeof(usm_umf_params), USM_DEVICE, NULL, NULL                                             \
    }

/** Returns the functions of a pool, to be given to umfPoolCreate(); static.
 * umfPoolCreate() then fails with
 *   UMF_RESULT_ERROR_INVALID_ARGUMENT        struct_size, kind or desc is wrong
 *   UMF_RESULT_ERROR_NOT_SUPPORTED           no provider's memory can be as desc asks
 *   UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE  the program's UMF is older than 1.0 */
USM_API const struct umf_memory_pool_ops_t *usm_umf_pool_ops(void);

USM_END_DECLS
#endif
