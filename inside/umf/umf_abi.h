/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What is used of the interface of UMF 1.x (oneAPI's Unified Memory Framework), written down from its
 * documentation, because no distribution has its headers.  Names are UMF's own. */
#ifndef USM_INSIDE_UMF_ABI_H
#define USM_INSIDE_UMF_ABI_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef enum umf_result_t {
    UMF_RESULT_SUCCESS                        = 0,
    UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY       = 1,
    UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC = 2,
    UMF_RESULT_ERROR_INVALID_ARGUMENT         = 3,
    UMF_RESULT_ERROR_INVALID_ALIGNMENT        = 4,
    UMF_RESULT_ERROR_NOT_SUPPORTED            = 5,
    UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE   = 7,
    UMF_RESULT_ERROR_INVALID_CTL_PATH         = 9,
    UMF_RESULT_ERROR_UNKNOWN                  = 0x7ffffffe
} umf_result_t;

typedef enum umf_ctl_query_source { UMF_CTL_SOURCE_UNKNOWN } umf_ctl_query_source_t;
typedef enum umf_ctl_query_type { UMF_CTL_READ = 0 } umf_ctl_query_type_t;

typedef struct umf_memory_provider_t *umf_memory_provider_handle_t;

/* A pool as UMF sees it.  ext_trim_memory came with version 1.1; UMF looks at `version` before it
 * reads that member. */
typedef struct umf_memory_pool_ops_t {
    uint32_t version;
    umf_result_t (*initialize)(umf_memory_provider_handle_t provider, const void *params,
                               void **pool);
    umf_result_t (*finalize)(void *pool);
    void *(*malloc)(void *pool, size_t size);
    void *(*calloc)(void *pool, size_t n, size_t size);
    void *(*realloc)(void *pool, void *p, size_t size);
    void *(*aligned_malloc)(void *pool, size_t size, size_t align);
    umf_result_t (*malloc_usable_size)(void *pool, const void *p, size_t *size);
    umf_result_t (*free)(void *pool, void *p);
    umf_result_t (*get_last_allocation_error)(void *pool);
    umf_result_t (*get_name)(void *pool, const char **name);
    umf_result_t (*ext_ctl)(void *pool, umf_ctl_query_source_t source, const char *name, void *arg,
                            size_t size, umf_ctl_query_type_t type, va_list args);
    umf_result_t (*ext_trim_memory)(void *pool, size_t keep);
} umf_memory_pool_ops_t;

#define UMF_VERSION_1_0  (1 << 16) /* of umfGetCurrentVersion() */
#define UMF_POOL_OPS_1_1 ((uint32_t)1 << 16 | 1)

#endif
