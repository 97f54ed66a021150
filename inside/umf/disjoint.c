/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a process gets that is started with this library preloaded: UMF's disjoint pool is libusm's.
 *
 * Intel's adapters between SYCL and Level Zero make a disjoint pool for each kind of memory of each
 * device and context.  They take its functions from whoever has the names first, which is this
 * library.  The functions for a pool's parameters pass everything on to UMF's own, and remember the
 * pool's name, which says what kind of memory it is.  Where a pool of libusm cannot be made, UMF's own
 * is made with its own parameters: a program that ran still runs. */
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <usm/status.h>

/* Of a block that is kept when it is freed, where UR says none: for shared memory, whose
 * allocations cost the most. */
#define MOST_SIZE ((size_t)4 << 20)

#define EXPORT __attribute__((visibility("default")))

typedef struct disjoint_params {
    void  *own; /* UMF's own parameters */
    char   name[64];
    size_t most_size; /* of a block that is kept when it is freed; 0: UR keeps none */
} disjoint_params;

/* One of two. */
typedef struct disjoint_pool {
    umf_pool                    *pool;
    const umf_memory_pool_ops_t *own_ops; /* NULL: `pool` is used */
    void                        *own;
} disjoint_pool;

/* Calls a function of libumf's disjoint pool whose first parameter is `self`. */
#define OWN(name, type, ...)                                                                       \
    __extension__({                                                                                \
        umf_result_t(*fn) type;                                                                    \
        *(void **)&fn = umf_function(name);                                                        \
        fn ? fn(__VA_ARGS__) : UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;                            \
    })

EXPORT umf_result_t umfDisjointPoolParamsCreate(disjoint_params **out);
EXPORT umf_result_t umfDisjointPoolParamsDestroy(disjoint_params *params);
EXPORT umf_result_t umfDisjointPoolParamsSetMaxPoolableSize(disjoint_params *params, size_t size);
EXPORT umf_result_t umfDisjointPoolParamsSetName(disjoint_params *params, const char *name);
EXPORT const umf_memory_pool_ops_t *umfDisjointPoolOps(void);

/* ---- parameters ------------------------------------------------------------------------------ */

EXPORT umf_result_t umfDisjointPoolParamsCreate(disjoint_params **out)
{
    disjoint_params *params;
    umf_result_t     result;

    if (!out)
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    params = calloc(1, sizeof *params);
    if (!params)
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    result = OWN("umfDisjointPoolParamsCreate", (void **), &params->own);
    if (result == UMF_RESULT_SUCCESS)
        *out = params;
    else
        free(params);
    return result;
}

EXPORT umf_result_t umfDisjointPoolParamsDestroy(disjoint_params *params)
{
    umf_result_t result = UMF_RESULT_SUCCESS;

    if (params)
        result = OWN("umfDisjointPoolParamsDestroy", (void *), params->own);
    free(params);
    return result;
}

EXPORT umf_result_t umfDisjointPoolParamsSetMaxPoolableSize(disjoint_params *params, size_t size)
{
    if (!params)
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    params->most_size = size;
    return OWN("umfDisjointPoolParamsSetMaxPoolableSize", (void *, size_t), params->own, size);
}

EXPORT umf_result_t umfDisjointPoolParamsSetName(disjoint_params *params, const char *name)
{
    if (!params || !name)
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    (void)snprintf(params->name, sizeof params->name, "%s", name);
    return OWN("umfDisjointPoolParamsSetName", (void *, const char *), params->own, name);
}

/* The parameters that are nothing to a pool of libusm: USM_POOL and UR's variables set that up. */
#define PASS_ON(function, type)                                                                    \
    EXPORT umf_result_t function(disjoint_params *params, type value);                             \
    EXPORT umf_result_t function(disjoint_params *params, type value)                              \
    {                                                                                              \
        return params ? OWN(#function, (void *, type), params->own, value)                         \
                      : UMF_RESULT_ERROR_INVALID_ARGUMENT;                                         \
    }
PASS_ON(umfDisjointPoolParamsSetSlabMinSize, size_t)
PASS_ON(umfDisjointPoolParamsSetCapacity, size_t)
PASS_ON(umfDisjointPoolParamsSetMinBucketSize, size_t)
PASS_ON(umfDisjointPoolParamsSetTrace, int)
PASS_ON(umfDisjointPoolParamsSetSharedLimits, void *)

/* ---- the table ------------------------------------------------------------------------------- */

static usm_kind kind_of(const char *name)
{
    if (strncmp(name, "Host", 4) == 0 || strncmp(name, "host", 4) == 0)
        return USM_HOST;
    return strncmp(name, "Shared", 6) == 0 || strncmp(name, "shared", 6) == 0 ? USM_SHARED
                                                                              : USM_DEVICE;
}

static umf_result_t make_own(umf_memory_provider_handle_t provider, const disjoint_params *params,
                             disjoint_pool *d)
{
    const umf_memory_pool_ops_t *(*ops)(void);

    *(void **)&ops = umf_function("umfDisjointPoolOps");
    if (!ops)
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    d->own_ops = ops();
    return d->own_ops->initialize(provider, params ? params->own : NULL, &d->own);
}

static umf_result_t initialize(umf_memory_provider_handle_t provider, const void *given, void **out)
{
    const disjoint_params *params = given;
    const char            *name   = params && *params->name ? params->name : "disjoint";
    size_t                 most   = params ? params->most_size : 0;
    umf_pool_make_desc     make   = {kind_of(name), NULL, name, most ? most : MOST_SIZE};
    disjoint_pool         *d      = calloc(1, sizeof *d);
    umf_result_t           result;

    if (!d)
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    result = umf_pool_make(provider, &make, &d->pool);
    if (result != UMF_RESULT_SUCCESS) {
        (void)fprintf(stderr, "usm: UMF's own pool '%s' is used: %s\n", name, usm_last_error());
        result = make_own(provider, params, d);
    }
    if (result == UMF_RESULT_SUCCESS)
        *out = d;
    else
        free(d);
    return result;
}

static umf_result_t finalize(void *self)
{
    disjoint_pool *d = self;
    umf_result_t   result;

    result = d->pool ? umf_pool_finalize(d->pool) : d->own_ops->finalize(d->own);
    free(d);
    return result;
}

static void *disjoint_malloc(void *self, size_t size)
{
    const disjoint_pool *d = self;

    return d->pool ? umf_pool_malloc(d->pool, size) : d->own_ops->malloc(d->own, size);
}

static void *disjoint_calloc(void *self, size_t n, size_t size)
{
    const disjoint_pool *d = self;

    return d->pool ? umf_pool_calloc(d->pool, n, size) : d->own_ops->calloc(d->own, n, size);
}

static void *disjoint_realloc(void *self, void *p, size_t size)
{
    const disjoint_pool *d = self;

    return d->pool ? umf_pool_realloc(d->pool, p, size) : d->own_ops->realloc(d->own, p, size);
}

static void *disjoint_aligned_malloc(void *self, size_t size, size_t align)
{
    const disjoint_pool *d = self;

    return d->pool ? umf_pool_aligned_malloc(d->pool, size, align)
                   : d->own_ops->aligned_malloc(d->own, size, align);
}

static umf_result_t disjoint_usable_size(void *self, const void *p, size_t *size)
{
    const disjoint_pool *d = self;

    return d->pool ? umf_pool_usable_size(d->pool, p, size)
                   : d->own_ops->malloc_usable_size(d->own, p, size);
}

static umf_result_t disjoint_free(void *self, void *p)
{
    const disjoint_pool *d = self;

    return d->pool ? umf_pool_free(d->pool, p) : d->own_ops->free(d->own, p);
}

static umf_result_t disjoint_last_error(void *self)
{
    const disjoint_pool *d = self;

    return d->pool ? umf_pool_last_error(d->pool) : d->own_ops->get_last_allocation_error(d->own);
}

static umf_result_t disjoint_name(void *self, const char **name)
{
    const disjoint_pool *d = self;

    if (!d) {
        *name = "disjoint";
        return UMF_RESULT_SUCCESS;
    }
    return d->pool ? umf_pool_name(d->pool, name) : d->own_ops->get_name(d->own, name);
}

static umf_result_t disjoint_ctl(void *self, umf_ctl_query_source_t source, const char *name,
                                 void *arg, size_t size, umf_ctl_query_type_t type, va_list args)
{
    const disjoint_pool *d = self;

    if (!d)
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    return d->pool ? umf_pool_ctl(d->pool, source, name, arg, size, type, args)
                   : d->own_ops->ext_ctl(d->own, source, name, arg, size, type, args);
}

static umf_result_t disjoint_trim(void *self, size_t keep)
{
    const disjoint_pool *d = self;

    if (d->pool)
        return umf_pool_trim(d->pool, keep);
    if (d->own_ops->version < UMF_POOL_OPS_1_1 || !d->own_ops->ext_trim_memory)
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    return d->own_ops->ext_trim_memory(d->own, keep);
}

EXPORT const umf_memory_pool_ops_t *umfDisjointPoolOps(void)
{
    static const umf_memory_pool_ops_t ops = {
        .version                   = UMF_POOL_OPS_1_1,
        .initialize                = initialize,
        .finalize                  = finalize,
        .malloc                    = disjoint_malloc,
        .calloc                    = disjoint_calloc,
        .realloc                   = disjoint_realloc,
        .aligned_malloc            = disjoint_aligned_malloc,
        .malloc_usable_size        = disjoint_usable_size,
        .free                      = disjoint_free,
        .get_last_allocation_error = disjoint_last_error,
        .get_name                  = disjoint_name,
        .ext_ctl                   = disjoint_ctl,
        .ext_trim_memory           = disjoint_trim,
    };

    return &ops;
}
