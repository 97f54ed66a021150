/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The preloaded library of inside/umf over UMF itself: UMF is loaded, then the library, whose
 * functions this program takes as an adapter of Unified Runtime would.  The memory is a piece of this
 * program that UMF's fixed provider hands out. */
#include "churn.h"
#include "plain.h"
#include "umf_abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MIB   ((size_t)1 << 20)
#define BYTES (64 * MIB)

typedef struct umf_memory_pool_t *pool_handle;

/* UMF's own functions. */
static struct {
    void *lib;
    umf_result_t (*fixed_params)(void *p, size_t size, void **params);
    umf_result_t (*fixed_params_end)(void *params);
    const void *(*fixed_ops)(void);
    umf_result_t (*provider_create)(const void *ops, const void *params,
                                    umf_memory_provider_handle_t *provider);
    umf_result_t (*provider_destroy)(umf_memory_provider_handle_t provider);
    umf_result_t (*create)(const umf_memory_pool_ops_t *ops, umf_memory_provider_handle_t provider,
                           const void *params, uint32_t flags, pool_handle *pool);
    umf_result_t (*destroy)(pool_handle pool);
    void *(*malloc)(pool_handle pool, size_t size);
    void *(*aligned)(pool_handle pool, size_t size, size_t align);
    void *(*calloc)(pool_handle pool, size_t n, size_t size);
    umf_result_t (*usable)(pool_handle pool, const void *p, size_t *size);
    umf_result_t (*free)(pool_handle pool, void *p);
    umf_result_t (*last_error)(pool_handle pool);
    umf_result_t (*by_ptr)(const void *p, pool_handle *pool);
    umf_result_t (*name)(pool_handle pool, const char **name);
    umf_result_t (*trim)(pool_handle pool, size_t keep);
    umf_result_t (*ctl_get)(const char *path, void *arg, size_t size, ...);
} umf;

/* The library's. */
static struct {
    const umf_memory_pool_ops_t *(*ops)(void);
    umf_result_t (*params)(void **params);
    umf_result_t (*params_end)(void *params);
    umf_result_t (*set_name)(void *params, const char *name);
    umf_result_t (*set_most)(void *params, size_t size);
    umf_result_t (*set_slab)(void *params, size_t size);
} ours;

static void *symbol(void *lib, const char *name)
{
    void *found = dlsym(lib, name);

    if (!found)
        (void)printf("# %s is missing\n", name);
    CHECK(found != NULL);
    return found;
}

static void *load_umf(void)
{
    const char *cache = getenv("USM_CI_CACHE"), *home = getenv("HOME");
    char        path[4096];
    void       *lib;

    if (cache)
        (void)snprintf(path, sizeof path, "%s/intel/lib/libumf.so.1", cache);
    else
        (void)snprintf(path, sizeof path, "%s/.cache/usm-ci/intel/lib/libumf.so.1",
                       home ? home : "");
    lib = dlopen(path, RTLD_NOW);
    return lib ? lib : dlopen("libumf.so.1", RTLD_NOW);
}

static void find_all(void)
{
    void *us;

    umf.lib = load_umf();
    if (!umf.lib)
        SKIP("there is no UMF here (PyPI: umf, or intel-sycl-rt)");
    us = dlopen(TEST_INSIDE_UMF, RTLD_NOW);
    if (!us)
        (void)printf("# %s\n", dlerror());
    CHECK(us != NULL);
#define UMF(member, name)  *(void **)&umf.member = symbol(umf.lib, name)
#define OURS(member, name) *(void **)&ours.member = symbol(us, name)
    UMF(fixed_params, "umfFixedMemoryProviderParamsCreate");
    UMF(fixed_params_end, "umfFixedMemoryProviderParamsDestroy");
    UMF(fixed_ops, "umfFixedMemoryProviderOps");
    UMF(provider_create, "umfMemoryProviderCreate");
    UMF(provider_destroy, "umfMemoryProviderDestroy");
    UMF(create, "umfPoolCreate");
    UMF(destroy, "umfPoolDestroy");
    UMF(malloc, "umfPoolMalloc");
    UMF(aligned, "umfPoolAlignedMalloc");
    UMF(calloc, "umfPoolCalloc");
    UMF(usable, "umfPoolMallocUsableSize");
    UMF(free, "umfPoolFree");
    UMF(last_error, "umfPoolGetLastAllocationError");
    UMF(by_ptr, "umfPoolByPtr");
    UMF(name, "umfPoolGetName");
    UMF(trim, "umfPoolTrimMemory");
    UMF(ctl_get, "umfCtlGet");
    OURS(ops, "umfDisjointPoolOps");
    OURS(params, "umfDisjointPoolParamsCreate");
    OURS(params_end, "umfDisjointPoolParamsDestroy");
    OURS(set_name, "umfDisjointPoolParamsSetName");
    OURS(set_most, "umfDisjointPoolParamsSetMaxPoolableSize");
    OURS(set_slab, "umfDisjointPoolParamsSetSlabMinSize");
#undef UMF
#undef OURS
}

/* ---- one pool -------------------------------------------------------------------------------- */

static char                        *memory;
static umf_memory_provider_handle_t provider;
static pool_handle                  pool;

/* most: 0 for none. */
static void open_pool(const char *name, size_t most)
{
    void *fixed = NULL, *params = NULL;

    if (!umf.lib)
        find_all();
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK_INT(umf.fixed_params(memory, BYTES, &fixed), UMF_RESULT_SUCCESS);
    CHECK_INT(umf.provider_create(umf.fixed_ops(), fixed, &provider), UMF_RESULT_SUCCESS);
    CHECK_INT(umf.fixed_params_end(fixed), UMF_RESULT_SUCCESS);
    CHECK_INT(ours.params(&params), UMF_RESULT_SUCCESS);
    CHECK_INT(ours.set_name(params, name), UMF_RESULT_SUCCESS);
    CHECK_INT(ours.set_slab(params, 65536), UMF_RESULT_SUCCESS); /* passed on */
    CHECK_INT(ours.set_most(params, most), UMF_RESULT_SUCCESS);
    CHECK_INT(umf.create(ours.ops(), provider, params, 0, &pool), UMF_RESULT_SUCCESS);
    CHECK_INT(ours.params_end(params), UMF_RESULT_SUCCESS);
}

static void close_pool(void)
{
    CHECK_INT(umf.destroy(pool), UMF_RESULT_SUCCESS);
    CHECK_INT(umf.provider_destroy(provider), UMF_RESULT_SUCCESS);
    CHECK_INT(munmap(memory, BYTES), 0);
}

static bool is_inside(const void *p)
{
    return (const char *)p >= memory && (const char *)p < memory + BYTES;
}

static size_t stat_of(const char *what)
{
    char   path[128];
    size_t value = SIZE_MAX;

    (void)snprintf(path, sizeof path, "umf.pool.by_handle.{}.stats.%s", what);
    CHECK_INT(umf.ctl_get(path, &value, sizeof value, pool), UMF_RESULT_SUCCESS);
    return value;
}

/* ---- cases ------------------------------------------------------------------------------------ */

static void blocks_come_from_the_provider(void)
{
    const char *name = NULL;
    pool_handle whose;
    size_t      size = 0;
    char       *p[500];

    open_pool("Device", 4 * MIB);
    CHECK_INT(umf.name(pool, &name), UMF_RESULT_SUCCESS);
    CHECK(strcmp(name, "Device") == 0);
    for (size_t i = 0; i < 500; i++) {
        p[i] = umf.malloc(pool, 1 + i * 20);
        CHECK(p[i] != NULL && is_inside(p[i]));
        memset(p[i], (int)i, 1 + i * 20);
    }
    for (size_t i = 0; i < 500; i++)
        CHECK(p[i][0] == (char)i && p[i][i * 20] == (char)i);
    CHECK_INT(umf.usable(pool, p[100], &size), UMF_RESULT_SUCCESS);
    CHECK(size >= 2001 && size <= 2304);
    CHECK_INT(umf.by_ptr(p[100] + 7, &whose), UMF_RESULT_SUCCESS);
    CHECK(whose == pool);
    for (size_t i = 0; i < 500; i++)
        CHECK_INT(umf.free(pool, p[i]), UMF_RESULT_SUCCESS);
    close_pool();
}

static void alignments_hold(void)
{
    open_pool("Device", 0);
    for (size_t align = 1; align <= 2 * MIB; align *= 2) {
        char *p = umf.aligned(pool, 100, align);

        CHECK(p != NULL && (uintptr_t)p % align == 0 && is_inside(p));
        CHECK_INT(umf.free(pool, p), UMF_RESULT_SUCCESS);
    }
    CHECK(umf.aligned(pool, 100, 24) == NULL);
    CHECK_INT(umf.last_error(pool), UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    CHECK(umf.calloc(pool, 10, 10) == NULL);
    CHECK_INT(umf.last_error(pool), UMF_RESULT_ERROR_NOT_SUPPORTED);
    close_pool();
}

static void statistics_and_trim_are_answered(void)
{
    void  *p, *large;
    size_t value;

    open_pool("Host", 2 * MIB);
    CHECK_INT(stat_of("used_memory"), 0);
    p = umf.malloc(pool, 1 * MIB);
    CHECK(stat_of("used_memory") >= 1 * MIB);
    CHECK(stat_of("reserved_memory") >= 1 * MIB);
    large = umf.malloc(pool, 3 * MIB); /* beyond what is kept */
    value = stat_of("reserved_memory");
    CHECK_INT(umf.free(pool, large), UMF_RESULT_SUCCESS);
    CHECK(stat_of("reserved_memory") + 3 * MIB <= value);
    CHECK_INT(umf.free(pool, p), UMF_RESULT_SUCCESS);
    CHECK(stat_of("reserved_memory") > 0);
    CHECK_INT(umf.trim(pool, 0), UMF_RESULT_SUCCESS);
    CHECK_INT(stat_of("reserved_memory"), 0);
    CHECK(umf.ctl_get("umf.pool.by_handle.{}.stats.alloc_nr", &value, sizeof value, pool) !=
          UMF_RESULT_SUCCESS);
    close_pool();
}

static void a_full_provider_is_an_error_and_no_end(void)
{
    void *p[64];
    int   n = 0;

    open_pool("Device", 4 * MIB);
    while (n < 64 && (p[n] = umf.malloc(pool, 2 * MIB)) != NULL)
        n++;
    CHECK(n >= 24 && n < 64);
    CHECK(umf.last_error(pool) != UMF_RESULT_SUCCESS);
    CHECK(umf.malloc(pool, SIZE_MAX / 2) == NULL);
    CHECK_INT(umf.free(pool, p[--n]), UMF_RESULT_SUCCESS);
    p[n] = umf.malloc(pool, 2 * MIB);
    CHECK(p[n] != NULL);
    for (int i = 0; i <= n; i++)
        CHECK_INT(umf.free(pool, p[i]), UMF_RESULT_SUCCESS);
    close_pool();
}

static void *get_block(size_t size)
{
    return umf.malloc(pool, size);
}

static void give_block(void *p)
{
    CHECK_INT(umf.free(pool, p), UMF_RESULT_SUCCESS);
}

static void *churn(void *arg)
{
    churn_blocks((uintptr_t)arg, 20000, get_block, give_block);
    return NULL;
}

static void threads_share_a_pool(void)
{
    pthread_t threads[4];

    open_pool("Device", 4 * MIB);
    for (uintptr_t i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK_INT(stat_of("used_memory"), 0);
    close_pool();
}

/* A program's setting that no pool of libusm can follow. */
static void umfs_own_pool_serves_where_ours_cannot(void)
{
    void *p;

    CHECK_INT(setenv("USM_MEMORY_LIMIT", "nonsense", 1), 0); /* no context then */
    open_pool("Device", 4 * MIB);
    p = umf.malloc(pool, 1000);
    CHECK(p != NULL && is_inside(p));
    CHECK(stat_of("used_memory") > 0);
    CHECK_INT(umf.free(pool, p), UMF_RESULT_SUCCESS);
    close_pool();
}

static void umfs_own_pool_serves_in_a_process_of_its_own(void)
{
    if (!load_umf())
        SKIP("there is no UMF here (PyPI: umf, or intel-sycl-rt)");
    char  errors[] = "/tmp/usm-test-XXXXXX", text[512] = "";
    int   fd = mkstemp(errors);
    FILE *file;

    CHECK(fd >= 0 && close(fd) == 0);
    CHECK_INT(plain_child(umfs_own_pool_serves_where_ours_cannot, errors), 0);
    file = fopen(errors, "r");
    CHECK(file != NULL);
    CHECK(fread(text, 1, sizeof text - 1, file) > 0);
    (void)fclose(file);
    (void)unlink(errors);
    CHECK_IN("usm: UMF's own pool 'Device' is used: ", text);
}

static const plain_case cases[] = {
    CASE(umfs_own_pool_serves_in_a_process_of_its_own), /* before libusm is loaded here */
    CASE(blocks_come_from_the_provider),
    CASE(alignments_hold),
    CASE(statistics_and_trim_are_answered),
    CASE(a_full_provider_is_an_error_and_no_end),
    CASE(threads_share_a_pool),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
