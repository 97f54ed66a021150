/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A pool of libusm as a pool of UMF.
 *
 *     UMF --table--> this file --usm_pool--> slab --usm_area_source--> this file --> UMF's provider
 *
 * The areas are the provider's own allocations, so that what a runtime knows of its memory (context,
 * residency, IPC, addresses) stays true; libusm only cuts them into blocks.  Each pool has a context
 * of its own over the source, and neither knows of the other pools of the process.
 *
 * Called by UMF, in any thread.  What fails is kept for get_last_allocation_error(): the provider's
 * own code where the provider failed, because UMF's callers then ask the provider for more. */
#include "pool.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <usm/context.h>
#include <usm/memory.h>
#include <usm/source.h>
#include <usm/status.h>

#define NAME_BYTES 64
#define AREA_ALIGN ((size_t)64 << 10) /* what drivers of Level Zero align to */

struct umf_pool {
    usm_pool                    *pool, *direct; /* direct: for blocks beyond most_size */
    size_t                       most_size;
    usm_kind                     kind;
    usm_context                 *ctx;
    umf_memory_provider_handle_t provider;
    usm_area_source              source;
    char                         name[NAME_BYTES];
};

static struct {
    umf_result_t (*alloc)(umf_memory_provider_handle_t provider, size_t size, size_t align,
                          void **p);
    umf_result_t (*free)(umf_memory_provider_handle_t provider, void *p, size_t size);
} provider_ops; /* set once, by find_provider_ops() */

static pthread_once_t provider_once = PTHREAD_ONCE_INIT;

/* Of the thread's last allocation that failed; what its provider said last, OK if nothing. */
static __thread umf_result_t last_error, provider_error;

/* ---- libumf ------------------------------------------------------------------------------- */

void *umf_function(const char *name)
{
    void *handle = dlopen("libumf.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *found;

    if (!handle)
        return dlsym(RTLD_DEFAULT, name); /* linked into the program */
    found = dlsym(handle, name);
    (void)dlclose(handle);
    return found;
}

/* Before 1.0 members of a pool's table had other types, beginning behind `initialize`, which can
 * still refuse. */
static bool is_too_old(void)
{
    int (*version)(void);

    *(void **)&version = umf_function("umfGetCurrentVersion");
    return version && version() < UMF_VERSION_1_0;
}

static void find_provider_ops(void)
{
    if (is_too_old())
        return;
    *(void **)&provider_ops.alloc = umf_function("umfMemoryProviderAlloc");
    *(void **)&provider_ops.free  = umf_function("umfMemoryProviderFree");
}

/* ---- the source: areas from the provider ------------------------------------------------------ */

static usm_status take_area(void *user, usm_kind kind, size_t size, size_t align, void **p)
{
    const umf_pool *pool = user;

    (void)kind;
    provider_error = provider_ops.alloc(pool->provider, size, align, p);
    if (provider_error == UMF_RESULT_SUCCESS)
        return USM_OK;
    /* A provider's own code hides what it means.  Where it was not about memory, that the pool
     * frees what it holds and asks again does no harm. */
    return USM_E_NO_MEMORY;
}

static usm_status give_area(void *user, usm_kind kind, void *p, size_t size)
{
    const umf_pool *pool = user;

    (void)kind;
    return provider_ops.free(pool->provider, p, size) == UMF_RESULT_SUCCESS ? USM_OK : USM_E_DEVICE;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static umf_result_t result_of(usm_status st)
{
    switch ((int)st) {
    case USM_OK:
        return UMF_RESULT_SUCCESS;
    case USM_E_NO_MEMORY:
    case USM_E_BUDGET:
    case USM_E_SIZE:
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    case USM_E_ALIGNMENT:
        return UMF_RESULT_ERROR_INVALID_ALIGNMENT;
    case USM_E_INVALID:
    case USM_E_ABI:
    case USM_E_KIND:
    case USM_E_NO_BACKEND: /* of the pool's description */
    case USM_E_INVALID_POINTER:
    case USM_E_INTERIOR_POINTER:
    case USM_E_DOUBLE_FREE:
    case USM_E_WRONG_CONTEXT:
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    case USM_E_NOT_SUPPORTED:
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    default:
        return UMF_RESULT_ERROR_UNKNOWN;
    }
}

static void *failed(void)
{
    usm_status st = usm_last_status();

    last_error     = st == USM_E_NO_MEMORY && provider_error != UMF_RESULT_SUCCESS ? provider_error
                                                                                   : result_of(st);
    provider_error = UMF_RESULT_SUCCESS; /* the next failure may have another reason */
    return NULL;
}

/* ---- making and ending ------------------------------------------------------------------------- */

static void set_up_source(umf_pool *pool)
{
    pool->source           = (usm_area_source)USM_AREA_SOURCE_INIT;
    pool->source.user      = pool;
    pool->source.max_align = AREA_ALIGN;
    pool->source.alloc     = take_area;
    pool->source.free      = give_area;
    pool->source.kinds     = pool->kind == USM_HOST     ? USM_SOURCE_HOST
                             : pool->kind == USM_DEVICE ? USM_SOURCE_DEVICE
                                                        : USM_SOURCE_SHARED;
}

static umf_result_t open_pools(umf_pool *pool, const umf_pool_make_desc *make)
{
    usm_native_desc native = USM_NATIVE_DESC_INIT;
    usm_pool_desc   direct = USM_POOL_DESC_INIT;
    usm_status      st;

    native.backend = "source";
    native.handle  = &pool->source;
    direct.name    = "direct";
    st             = usm_context_from_native(&native, &pool->ctx);
    if (st == USM_OK)
        st = usm_pool_create(pool->ctx, NULL, make->kind, make->desc, &pool->pool);
    if (st == USM_OK && make->most_size < SIZE_MAX)
        st = usm_pool_create(pool->ctx, NULL, make->kind, &direct, &pool->direct);
    return result_of(st);
}

umf_result_t umf_pool_make(umf_memory_provider_handle_t provider, const umf_pool_make_desc *desc,
                           umf_pool **out)
{
    umf_pool    *pool;
    umf_result_t result;

    (void)pthread_once(&provider_once, find_provider_ops);
    if (!provider_ops.alloc || !provider_ops.free)
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    pool = calloc(1, sizeof *pool);
    if (!pool)
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    pool->provider  = provider;
    pool->most_size = desc->most_size;
    pool->kind      = desc->kind;
    (void)snprintf(pool->name, sizeof pool->name, "%s", desc->name);
    set_up_source(pool);
    result = open_pools(pool, desc);
    if (result == UMF_RESULT_SUCCESS)
        *out = pool;
    else
        (void)umf_pool_finalize(pool);
    return result;
}

umf_result_t umf_pool_finalize(void *self)
{
    umf_pool *pool = self;

    usm_pool_destroy(pool->direct);
    usm_pool_destroy(pool->pool);
    usm_context_destroy(pool->ctx);
    free(pool);
    return UMF_RESULT_SUCCESS;
}

/* ---- blocks -------------------------------------------------------------------------------- */

static usm_pool *pool_for(const umf_pool *pool, size_t size)
{
    return __builtin_expect(size <= pool->most_size, 1) ? pool->pool : pool->direct;
}

void *umf_pool_malloc(void *self, size_t size)
{
    void *p = usm_pool_malloc(pool_for(self, size), size);

    return p ? p : failed();
}

void *umf_pool_aligned_malloc(void *self, size_t size, size_t align)
{
    void *p = usm_pool_aligned_alloc(pool_for(self, size), align, size);

    return p ? p : failed();
}

/* calloc() and realloc() touch the memory, which of a device only its runtime can. */
static bool may_touch(const umf_pool *pool)
{
    if (pool->kind == USM_DEVICE)
        last_error = UMF_RESULT_ERROR_NOT_SUPPORTED;
    return pool->kind != USM_DEVICE;
}

void *umf_pool_calloc(void *self, size_t n, size_t size)
{
    void *p;

    if (!may_touch(self))
        return NULL;
    if (size > 0 && n > SIZE_MAX / size) {
        last_error = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    p = umf_pool_malloc(self, n * size);
    return p ? memset(p, 0, n * size) : NULL;
}

/* usm_realloc() would take the new block from the context's default pool. */
static void *resize(void *self, void *p, size_t size)
{
    const umf_pool *pool = self;
    void           *base, *fresh;
    size_t          old;

    if (usm_get_address_range(p, pool->ctx, &base, &old) != USM_OK)
        return failed();
    if (base != p) {
        last_error = UMF_RESULT_ERROR_INVALID_ARGUMENT;
        return NULL;
    }
    if (size <= old && size > old / 2)
        return p;
    fresh = umf_pool_malloc(self, size);
    if (fresh) {
        memcpy(fresh, p, size < old ? size : old);
        usm_free(p);
    }
    return fresh;
}

void *umf_pool_realloc(void *self, void *p, size_t size)
{
    if (!may_touch(self))
        return NULL;
    if (!p)
        return umf_pool_malloc(self, size);
    if (size > 0)
        return resize(self, p, size);
    last_error = umf_pool_free_checked(self, p); /* as UMF's own pools do */
    return NULL;
}

umf_result_t umf_pool_usable_size(void *self, const void *p, size_t *size)
{
    const umf_pool *pool = self;
    void           *base = NULL;

    if (!size)
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    *size = 0;
    if (!p)
        return UMF_RESULT_SUCCESS;
    return result_of(usm_get_address_range(p, pool->ctx, &base, size));
}

umf_result_t umf_pool_free(void *self, void *p)
{
    (void)self;
    usm_free(p); /* which finds the pool, and names a pointer that nobody allocated */
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_pool_free_checked(void *self, void *p)
{
    const umf_pool *pool = self;

    return result_of(usm_free_ctx(p, pool->ctx));
}

umf_result_t umf_pool_last_error(void *self)
{
    (void)self;
    return last_error;
}

umf_result_t umf_pool_name(void *self, const char **name)
{
    const umf_pool *pool = self;

    if (!name)
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    *name = pool ? pool->name : "usm";
    return UMF_RESULT_SUCCESS;
}

/* ---- statistics, trim ----------------------------------------------------------------------- */

umf_result_t umf_pool_ctl(void *self, umf_ctl_query_source_t source, const char *name, void *arg,
                          size_t size, umf_ctl_query_type_t type, va_list args)
{
    const umf_pool *pool = self;
    usm_pool_stats  kept = USM_POOL_STATS_INIT, direct = USM_POOL_STATS_INIT;
    bool            live = name && strcmp(name, "stats.used_memory") == 0;

    (void)source;
    (void)args;
    if (type != UMF_CTL_READ || !(live || (name && strcmp(name, "stats.reserved_memory") == 0)))
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    if (!arg || size < sizeof(size_t))
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    if (usm_pool_get_stats(pool->pool, &kept) != USM_OK ||
        (pool->direct && usm_pool_get_stats(pool->direct, &direct) != USM_OK))
        return result_of(usm_last_status());
    *(size_t *)arg = (size_t)(live ? kept.live + direct.live : kept.reserved + direct.reserved);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_pool_trim(void *self, size_t keep)
{
    const umf_pool *pool = self;

    return result_of(usm_pool_trim_to(pool->pool, keep));
}
