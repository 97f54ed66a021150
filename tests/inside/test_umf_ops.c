/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm_umf_pool_ops() in a program over UMF: pools of libusm over UMF's OS memory provider, and over a
 * provider of this program that counts its areas and fails when it is told to. */
#include "churn.h"
#include "plain.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc.h>
#include <umf/memory_pool.h>
#include <umf/providers/provider_os_memory.h>
#include <usm/status.h>
#include <usm/umf.h>

#define MIB ((size_t)1 << 20)

/* ---- a provider that counts and fails --------------------------------------------------------- */

#define FAILURE UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC

static struct {
    atomic_int areas; /* out */
    atomic_int left;  /* calls of alloc() that still succeed */
} counting;

static umf_result_t counting_initialize(const void *params, void **provider)
{
    (void)params;
    *provider = &counting;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t counting_finalize(void *provider)
{
    (void)provider;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t counting_alloc(void *provider, size_t size, size_t align, void **p)
{
    (void)provider;
    if (atomic_fetch_sub(&counting.left, 1) <= 0)
        return FAILURE;
    if (posix_memalign(p, align < 64 ? 64 : align, size) != 0)
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    atomic_fetch_add(&counting.areas, 1);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t counting_free(void *provider, void *p, size_t size)
{
    (void)provider;
    (void)size;
    atomic_fetch_sub(&counting.areas, 1);
    free(p);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t counting_error(void *provider, const char **message, int32_t *error)
{
    (void)provider;
    *message = "told to fail";
    *error   = 1;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t counting_page_size(void *provider, size_t size, size_t *page)
{
    (void)provider;
    (void)size;
    *page = 4096;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t counting_min_page_size(void *provider, const void *p, size_t *page)
{
    (void)p;
    return counting_page_size(provider, 0, page);
}

static umf_result_t counting_name(void *provider, const char **name)
{
    (void)provider;
    *name = "counting";
    return UMF_RESULT_SUCCESS;
}

/* ---- a pool ------------------------------------------------------------------------------------ */

static umf_memory_provider_handle_t provider;
static umf_memory_pool_handle_t     pool;

static void open_counting_provider(int areas)
{
    static const umf_memory_provider_ops_t ops = {
        .version                   = UMF_MAKE_VERSION(1, 0), /* none of the later members */
        .initialize                = counting_initialize,
        .finalize                  = counting_finalize,
        .alloc                     = counting_alloc,
        .free                      = counting_free,
        .get_last_native_error     = counting_error,
        .get_recommended_page_size = counting_page_size,
        .get_min_page_size         = counting_min_page_size,
        .get_name                  = counting_name,
    };

    atomic_store(&counting.left, areas);
    CHECK_INT(umfMemoryProviderCreate(&ops, NULL, &provider), UMF_RESULT_SUCCESS);
}

static void open_os_provider(umf_memory_visibility_t visibility)
{
    umf_os_memory_provider_params_handle_t params;

    CHECK_INT(umfOsMemoryProviderParamsCreate(&params), UMF_RESULT_SUCCESS);
    CHECK_INT(umfOsMemoryProviderParamsSetVisibility(params, visibility), UMF_RESULT_SUCCESS);
    CHECK_INT(umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider),
              UMF_RESULT_SUCCESS);
    CHECK_INT(umfOsMemoryProviderParamsDestroy(params), UMF_RESULT_SUCCESS);
}

static umf_result_t create_pool(usm_kind kind, const usm_pool_desc *desc)
{
    usm_umf_params params = USM_UMF_PARAMS_INIT;

    params.kind = kind;
    params.desc = desc;
    params.name = "mine";
    return umfPoolCreate(usm_umf_pool_ops(), provider, &params, 0, &pool);
}

static void open_pool(usm_kind kind, const usm_pool_desc *desc)
{
    open_os_provider(UMF_MEM_MAP_PRIVATE);
    CHECK_INT(create_pool(kind, desc), UMF_RESULT_SUCCESS);
}

static void close_pool(void)
{
    CHECK_INT(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
    CHECK_INT(umfMemoryProviderDestroy(provider), UMF_RESULT_SUCCESS);
}

static size_t stat_of(const char *what)
{
    char   path[128];
    size_t value = SIZE_MAX;

    (void)snprintf(path, sizeof path, "umf.pool.by_handle.{}.stats.%s", what);
    CHECK_INT(umfCtlGet(path, &value, sizeof value, pool), UMF_RESULT_SUCCESS);
    return value;
}

/* ---- blocks ------------------------------------------------------------------------------------ */

static void blocks_are_as_umf_promises(void)
{
    umf_memory_pool_handle_t whose;
    const char              *name;
    size_t                   size;
    char                    *p[300];

    open_pool(USM_HOST, NULL);
    CHECK_INT(umfPoolGetName(pool, &name), UMF_RESULT_SUCCESS);
    CHECK_STR(name, "mine");
    for (size_t i = 0; i < 300; i++) {
        p[i] = umfPoolMalloc(pool, 1 + i * 40);
        CHECK(p[i] != NULL);
        memset(p[i], (int)i, 1 + i * 40);
    }
    for (size_t i = 0; i < 300; i++)
        CHECK(p[i][0] == (char)i && p[i][i * 40] == (char)i);
    CHECK_INT(umfPoolMallocUsableSize(pool, p[100], &size), UMF_RESULT_SUCCESS);
    CHECK(size >= 4001 && size <= 4608);
    CHECK_INT(umfPoolMallocUsableSize(pool, NULL, &size), UMF_RESULT_SUCCESS);
    CHECK_INT(size, 0);
    CHECK_INT(umfPoolByPtr(p[100] + 7, &whose), UMF_RESULT_SUCCESS);
    CHECK(whose == pool);
    for (size_t i = 0; i < 300; i++)
        CHECK_INT(i % 2 ? umfPoolFree(pool, p[i]) : umfFree(p[i]), UMF_RESULT_SUCCESS);
    CHECK_INT(umfPoolFree(pool, NULL), UMF_RESULT_SUCCESS);
    for (size_t align = 1; align <= 2 * MIB; align *= 2) {
        p[0] = umfPoolAlignedMalloc(pool, 100, align);
        CHECK(p[0] != NULL && (uintptr_t)p[0] % align == 0);
        CHECK_INT(umfPoolFree(pool, p[0]), UMF_RESULT_SUCCESS);
    }
    CHECK(umfPoolAlignedMalloc(pool, 100, 24) == NULL);
    CHECK_INT(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    close_pool();
}

static void host_memory_is_zeroed_and_resized(void)
{
    char *p, *q;

    open_pool(USM_HOST, NULL);
    p = umfPoolMalloc(pool, 4000);
    CHECK(p != NULL);
    memset(p, 1, 4000);
    CHECK_INT(umfPoolFree(pool, p), UMF_RESULT_SUCCESS);
    p = umfPoolCalloc(pool, 40, 100);
    CHECK(p != NULL);
    for (int i = 0; i < 4000; i++)
        CHECK(p[i] == 0);
    CHECK(umfPoolCalloc(pool, SIZE_MAX / 2, 3) == NULL);
    CHECK_INT(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    memcpy(p, "kept", 5);
    q = umfPoolRealloc(pool, p, 3 * MIB);
    CHECK(q != NULL);
    CHECK_STR(q, "kept");
    CHECK(umfPoolRealloc(pool, q, 3 * MIB - 100) == q);
    p = umfPoolRealloc(pool, q, 10);
    CHECK(p != NULL && p != q);
    CHECK_STR(p, "kept");
    CHECK(umfPoolRealloc(pool, p + 1, 10) == NULL);
    CHECK_INT(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    CHECK(umfPoolRealloc(pool, p, 0) == NULL);
    CHECK_INT(stat_of("used_memory"), 0);
    p = umfPoolRealloc(pool, NULL, 10);
    CHECK(p != NULL);
    CHECK_INT(umfPoolFree(pool, p), UMF_RESULT_SUCCESS);
    close_pool();
}

static void device_memory_is_not_touched(void)
{
    char *p;

    open_pool(USM_DEVICE, NULL);
    p = umfPoolMalloc(pool, 100);
    CHECK(p != NULL);
    CHECK(umfPoolCalloc(pool, 10, 10) == NULL);
    CHECK_INT(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_NOT_SUPPORTED);
    CHECK(umfPoolRealloc(pool, p, 1000) == NULL);
    CHECK_INT(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_NOT_SUPPORTED);
    CHECK_INT(umfPoolFree(pool, p), UMF_RESULT_SUCCESS);
    close_pool();
}

static void wrong_frees_are_refused(void)
{
    umf_memory_provider_handle_t first_provider;
    umf_memory_pool_handle_t     first;
    size_t                       size;
    char                        *small, *large;

    open_pool(USM_HOST, NULL);
    first          = pool;
    first_provider = provider;
    open_pool(USM_HOST, NULL);
    small = umfPoolMalloc(first, 100);
    large = umfPoolMalloc(first, 5 * MIB);
    CHECK(small != NULL && large != NULL);
    CHECK_INT(umfPoolFree(pool, small), UMF_RESULT_ERROR_INVALID_ARGUMENT); /* of another pool */
    CHECK_INT(umfPoolFree(first, small + 8), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    CHECK_INT(umfPoolFree(first, &small), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    CHECK_INT(umfPoolFree(first, small), UMF_RESULT_SUCCESS);
    CHECK_INT(umfPoolFree(first, large), UMF_RESULT_SUCCESS);
    CHECK_INT(umfPoolFree(first, small), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    CHECK_IN("freed before", usm_last_error());
    CHECK_INT(umfPoolFree(first, large), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    CHECK_INT(umfPoolMallocUsableSize(first, small, &size), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    close_pool();
    pool     = first;
    provider = first_provider;
    CHECK_INT(stat_of("used_memory"), 0);
    close_pool();
}

static void *get_block(size_t size)
{
    return umfPoolMalloc(pool, size);
}

static void give_block(void *p)
{
    CHECK_INT(umfPoolFree(pool, p), UMF_RESULT_SUCCESS);
}

static void *churn(void *arg)
{
    churn_blocks((uintptr_t)arg, 10000, get_block, give_block);
    return NULL;
}

static void threads_share_a_pool(void)
{
    pthread_t threads[4];

    open_pool(USM_HOST, NULL);
    for (uintptr_t i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK_INT(stat_of("used_memory"), 0);
    close_pool();
}

/* ---- statistics, ends of memory ------------------------------------------------------------------ */

static void statistics_and_trim_are_answered(void)
{
    void *p;

    open_pool(USM_HOST, NULL);
    CHECK_INT(stat_of("used_memory"), 0);
    p = umfPoolMalloc(pool, 3 * MIB);
    CHECK(stat_of("used_memory") >= 3 * MIB);
    CHECK(stat_of("reserved_memory") >= 3 * MIB);
    CHECK_INT(umfPoolFree(pool, p), UMF_RESULT_SUCCESS);
    CHECK(stat_of("reserved_memory") > 0);
    CHECK_INT(umfPoolTrimMemory(pool, 0), UMF_RESULT_SUCCESS);
    CHECK_INT(stat_of("reserved_memory"), 0);
    close_pool();
}

static void a_limit_is_an_end_of_memory(void)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    void         *p[16];
    int           n = 0;

    desc.maximum_size = 8 * MIB;
    open_pool(USM_HOST, &desc);
    while (n < 16 && (p[n] = umfPoolMalloc(pool, 1 * MIB)) != NULL)
        n++;
    CHECK(n >= 6 && n <= 8);
    CHECK_INT(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    CHECK(umfPoolMalloc(pool, SIZE_MAX / 2) == NULL);
    CHECK_INT(umfPoolFree(pool, p[n - 1]), UMF_RESULT_SUCCESS);
    p[n - 1] = umfPoolMalloc(pool, 1 * MIB);
    CHECK(p[n - 1] != NULL);
    for (int i = 0; i < n; i++)
        CHECK_INT(umfPoolFree(pool, p[i]), UMF_RESULT_SUCCESS);
    close_pool();
}

static void a_provider_that_fails_in_the_middle_is_reported(void)
{
    char *p[64];
    int   n = 0;

    open_counting_provider(3);
    CHECK_INT(create_pool(USM_HOST, NULL), UMF_RESULT_SUCCESS);
    while (n < 64 && (p[n] = umfPoolMalloc(pool, 1 * MIB)) != NULL) {
        memset(p[n], n, 1 * MIB);
        n++;
    }
    CHECK(n > 0 && n < 64);
    CHECK_INT(umfPoolGetLastAllocationError(pool), FAILURE);
    CHECK(umfPoolMalloc(pool, SIZE_MAX - 5) == NULL); /* nothing that the provider was asked */
    CHECK_INT(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    for (int i = 0; i < n; i++)
        CHECK(p[i][0] == i && p[i][MIB - 1] == i);
    atomic_store(&counting.left, 100);
    p[n] = umfPoolMalloc(pool, 1 * MIB);
    CHECK(p[n] != NULL);
    for (int i = 0; i <= n; i++)
        CHECK_INT(umfPoolFree(pool, p[i]), UMF_RESULT_SUCCESS);
    close_pool();
    CHECK_INT(atomic_load(&counting.areas), 0);
}

static void the_end_of_a_pool_returns_areas_with_blocks(void)
{
    open_counting_provider(100);
    CHECK_INT(create_pool(USM_HOST, NULL), UMF_RESULT_SUCCESS);
    CHECK(umfPoolMalloc(pool, 100) != NULL);
    CHECK(umfPoolMalloc(pool, 7 * MIB) != NULL);
    CHECK(atomic_load(&counting.areas) > 0);
    close_pool();
    CHECK_INT(atomic_load(&counting.areas), 0);
}

/* ---- parameters, other processes ------------------------------------------------------------------ */

static void parameters_are_checked(void)
{
    usm_umf_params params = USM_UMF_PARAMS_INIT;
    usm_pool_desc  desc   = USM_POOL_DESC_INIT;
    const char    *name;

    open_os_provider(UMF_MEM_MAP_PRIVATE);
    CHECK_INT(create_pool(USM_UNKNOWN, NULL), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    desc.name = "nosuch";
    CHECK_INT(create_pool(USM_HOST, &desc), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    CHECK_IN("nosuch", usm_last_error());
    params.struct_size = 8;
    CHECK_INT(umfPoolCreate(usm_umf_pool_ops(), provider, &params, 0, &pool),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    CHECK_INT(umfPoolCreate(usm_umf_pool_ops(), provider, NULL, 0, &pool), UMF_RESULT_SUCCESS);
    CHECK_INT(umfPoolGetName(pool, &name), UMF_RESULT_SUCCESS);
    CHECK_STR(name, "usm");
    CHECK(umfPoolCalloc(pool, 1, 1) == NULL); /* of a device */
    close_pool();
}

static void other_processes_open_its_blocks(void)
{
    umf_ipc_handler_handle_t handler;
    umf_ipc_handle_t         handle;
    size_t                   size;
    void                    *opened = NULL;
    char                    *p;

    open_os_provider(UMF_MEM_MAP_SHARED);
    CHECK_INT(create_pool(USM_HOST, NULL), UMF_RESULT_SUCCESS);
    CHECK(umfPoolMalloc(pool, 1000) != NULL);
    p = umfPoolMalloc(pool, 1000);
    CHECK(p != NULL);
    memcpy(p, "shared", 7);
    CHECK_INT(umfGetIPCHandle(p, &handle, &size), UMF_RESULT_SUCCESS);
    CHECK_INT(umfPoolGetIPCHandler(pool, &handler), UMF_RESULT_SUCCESS);
    CHECK_INT(umfOpenIPCHandle(handler, handle, &opened), UMF_RESULT_SUCCESS);
    CHECK(opened != p);
    CHECK_STR(opened, "shared");
    CHECK_INT(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    CHECK_INT(umfPutIPCHandle(handle), UMF_RESULT_SUCCESS);
    close_pool();
}

static void leave_with_a_pool(void)
{
    open_counting_provider(100); /* the OS provider's own memory would be a leak */
    CHECK_INT(create_pool(USM_HOST, NULL), UMF_RESULT_SUCCESS);
    CHECK(umfPoolMalloc(pool, 100) != NULL);
    exit(0); /* unlike plain_child()'s end, by way of destructors */
}

static void a_process_may_end_without_destroying_its_pool(void)
{
    CHECK_INT(plain_child(leave_with_a_pool, NULL), 0);
}

static const plain_case cases[] = {
    CASE(a_process_may_end_without_destroying_its_pool), /* before this one has threads */
    CASE(blocks_are_as_umf_promises),
    CASE(host_memory_is_zeroed_and_resized),
    CASE(device_memory_is_not_touched),
    CASE(wrong_frees_are_refused),
    CASE(threads_share_a_pool),
    CASE(statistics_and_trim_are_answered),
    CASE(a_limit_is_an_end_of_memory),
    CASE(a_provider_that_fails_in_the_middle_is_reported),
    CASE(the_end_of_a_pool_returns_areas_with_blocks),
    CASE(parameters_are_checked),
    CASE(other_processes_open_its_blocks),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
