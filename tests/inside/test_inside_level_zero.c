/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The driver of inside/level_zero: each case is a program of its own over the real loader, which
 * knows nothing of it, before the software driver. */
#include "churn.h"
#include "plain.h"
#include "ze_soft.h"

#include <level_zero/ze_api.h>

#include <dlfcn.h>
#include <stdint.h>

#define KIB  ((size_t)1 << 10)
#define MIB  ((size_t)1 << 20)
#define LESS (PLAIN_SANITIZED ? 10 : 1)

/* Functions of the loader. */
#define FUNCTIONS(X)                                                                               \
    X(zeInit)                                                                                      \
    X(zeDriverGet)                                                                                 \
    X(zeDeviceGet)                                                                                 \
    X(zeContextCreate)                                                                             \
    X(zeContextDestroy)                                                                            \
    X(zeContextMakeMemoryResident)                                                                 \
    X(zeContextEvictMemory)                                                                        \
    X(zeMemAllocDevice)                                                                            \
    X(zeMemAllocHost)                                                                              \
    X(zeMemAllocShared)                                                                            \
    X(zeMemFree)                                                                                   \
    X(zeMemFreeExt)                                                                                \
    X(zeMemGetAllocProperties)                                                                     \
    X(zeMemGetAddressRange)                                                                        \
    X(zeMemGetIpcHandle)                                                                           \
    X(zeMemOpenIpcHandle)                                                                          \
    X(zeMemCloseIpcHandle)

static struct {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
    ze_soft_calls_fn *calls;
    ze_soft_live_fn  *live;
} ze;

static struct {
    ze_driver_handle_t  driver;
    ze_device_handle_t  dev;
    ze_context_handle_t ctx;
} on;

static const ze_context_desc_t          context_desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
static const ze_device_mem_alloc_desc_t device_desc  = {.stype =
                                                            ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
static const ze_host_mem_alloc_desc_t host_desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};

/* ---- the program's beginning and end --------------------------------------------------------- */

static void load(const char *real)
{
    uint32_t one = 1;
    void    *loader;

    CHECK(setenv("ZE_ENABLE_ALT_DRIVERS", TEST_INSIDE_LEVEL_ZERO, 1) == 0);
    CHECK(setenv("USM_INSIDE_LEVEL_ZERO", real, 1) == 0);
    loader = dlopen("libze_loader.so.1", RTLD_NOW);
    CHECK(loader != NULL);
#define FIND(name) CHECK((*(void **)&ze.name = dlsym(loader, #name)) != NULL);
    FUNCTIONS(FIND)
#undef FIND
    if (ze.zeInit(0) != ZE_RESULT_SUCCESS)
        return;
    CHECK_INT(ze.zeDriverGet(&one, &on.driver), 0);
    CHECK_INT(ze.zeDeviceGet(on.driver, &one, &on.dev), 0);
    CHECK_INT(ze.zeContextCreate(on.driver, &context_desc, &on.ctx), 0);
}

static void load_soft(void)
{
    void *soft;

    load(TEST_ZE_SOFT);
    CHECK(on.ctx != NULL);
    soft = dlopen(TEST_ZE_SOFT, RTLD_NOW | RTLD_NOLOAD);
    CHECK(soft != NULL);
    *(void **)&ze.calls = dlsym(soft, "ze_soft_calls");
    *(void **)&ze.live  = dlsym(soft, "ze_soft_live");
    CHECK(ze.calls != NULL && ze.live != NULL);
}

static void run(void (*fn)(void))
{
    CHECK_INT(plain_child(fn, NULL), 0);
}

/* ---- memory of any kind ---------------------------------------------------------------------- */

typedef enum sort { HOST, DEVICE, SHARED } sort;

static ze_result_t try(sort s, size_t size, size_t align, void **p)
{
    if (s == HOST)
        return ze.zeMemAllocHost(on.ctx, &host_desc, size, align, p);
    if (s == DEVICE)
        return ze.zeMemAllocDevice(on.ctx, &device_desc, size, align, on.dev, p);
    return ze.zeMemAllocShared(on.ctx, &device_desc, &host_desc, size, align, on.dev, p);
}

static void *get(sort s, size_t size)
{
    void *p = NULL;

    CHECK_INT(try(s, size, 0, &p), 0);
    CHECK(p != NULL && (uintptr_t)p % 128 == 0);
    return p;
}

static void give(void *p)
{
    CHECK_INT(ze.zeMemFree(on.ctx, p), 0);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void pair_up(void)
{
    uint64_t before, live;

    load_soft();
    before = ze.calls();
    live   = ze.live();
    for (int i = 0; i < 3000; i++) {
        void *p = get((sort)(i % 3), 64 + (size_t)i);

        if (i % 3 != DEVICE)
            memset(p, 1, 64 + (size_t)i);
        give(p);
    }
    CHECK(ze.calls() - before < 30);
    CHECK_INT(ze.zeContextDestroy(on.ctx), 0);
    CHECK_INT(ze.live(), live - 1); /* the areas went with the context */
}

static void blocks_are_pooled_and_go_with_their_context(void)
{
    run(pair_up);
}

static void query(void)
{
    ze_memory_allocation_properties_t about = {.stype =
                                                   ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t                dev   = NULL;
    void                             *base, *p[2];
    size_t                            size;

    load_soft();
    for (int i = 0; i < 2; i++)
        p[i] = get(DEVICE, 1000);
    CHECK_INT(ze.zeMemGetAllocProperties(on.ctx, (char *)p[1] + 10, &about, &dev), 0);
    CHECK(about.type == ZE_MEMORY_TYPE_DEVICE && dev == on.dev);
    CHECK_INT(ze.zeMemGetAddressRange(on.ctx, (char *)p[1] + 10, &base, &size), 0);
    CHECK((char *)base <= (char *)p[1] && (char *)p[1] + 1000 <= (char *)base + size);
    CHECK_INT(ze.zeMemFree(on.ctx, (char *)p[1] + 10), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    give(p[1]);
    CHECK_INT(ze.zeMemFree(on.ctx, p[1]), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    give(p[0]);
    CHECK(ze.zeMemFree(on.ctx, NULL) != 0);
}

static void queries_answer_for_the_area_and_wrong_frees_are_errors(void)
{
    run(query);
}

/* A handle names the area: whoever opens it adds the offset, as of any block of a driver's. */
static void share_area(void)
{
    ze_ipc_mem_handle_t handle;
    void               *base, *mapped, *p[2];
    size_t              size;

    load_soft();
    for (int i = 0; i < 2; i++)
        p[i] = get(HOST, 1000);
    memset(p[0], 1, 1000);
    memset(p[1], 2, 1000);
    CHECK_INT(ze.zeMemGetAddressRange(on.ctx, p[1], &base, &size), 0);
    CHECK_INT(ze.zeMemGetIpcHandle(on.ctx, p[1], &handle), 0);
    CHECK_INT(ze.zeMemOpenIpcHandle(on.ctx, on.dev, handle, 0, &mapped), 0);
    CHECK_INT(memcmp((char *)mapped + ((char *)p[1] - (char *)base), p[1], 1000), 0);
    CHECK_INT(ze.zeMemCloseIpcHandle(on.ctx, mapped), 0);
    give(p[0]);
    give(p[1]);
}

static void an_ipc_handle_is_that_of_the_area(void)
{
    run(share_area);
}

static void ask_for_more(void)
{
    const ze_device_mem_alloc_desc_t uncached = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
                                                 .flags = ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_UNCACHED};
    uint64_t                         before;
    void                            *p;

    load_soft();
    before = ze.calls();
    CHECK_INT(try(DEVICE, 100, 4096, &p), 0);
    CHECK((uintptr_t)p % 4096 == 0);
    CHECK_INT(ze.calls() - before, 1);
    give(p);
    before = ze.calls();
    CHECK_INT(ze.zeMemAllocDevice(on.ctx, &uncached, 100, 0, on.dev, &p), 0);
    CHECK_INT(ze.calls() - before, 1);
    give(p);
    CHECK(try(DEVICE, 0, 0, &p) != 0);
    CHECK(ze.zeMemAllocDevice(on.ctx, NULL, 100, 0, on.dev, &p) != 0);
    CHECK(ze.zeMemAllocDevice(on.ctx, &device_desc, 100, 0, NULL, &p) != 0);
    CHECK(ze.zeMemAllocHost(on.ctx, &host_desc, 100, 0, NULL) != 0);
}

static void what_is_out_of_the_ordinary_goes_to_the_driver(void)
{
    run(ask_for_more);
}

static void keep_resident(void)
{
    uint64_t before;
    void    *p, *q;

    load_soft();
    p      = get(DEVICE, 1000);
    q      = get(DEVICE, 1000);
    before = ze.calls();
    CHECK_INT(ze.zeContextMakeMemoryResident(on.ctx, on.dev, p, 1000), 0);
    CHECK_INT(ze.zeContextMakeMemoryResident(on.ctx, on.dev, q, 1000), 0);
    CHECK_INT(ze.calls() - before, 1);
    CHECK_INT(ze.zeContextEvictMemory(on.ctx, on.dev, p, 1000), 0);
    CHECK_INT(ze.calls() - before, 1);
    CHECK_INT(ze.zeContextEvictMemory(on.ctx, on.dev, q, 1000), 0);
    CHECK_INT(ze.calls() - before, 2);
    give(p);
    give(q);
}

static void residency_is_counted_by_area(void)
{
    run(keep_resident);
}

static void free_behind(void)
{
    ze_memory_free_ext_desc_t desc = {ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, NULL, 0};
    uint64_t                  before;
    void                     *p, *q;

    load_soft();
    p = get(DEVICE, 1000);
    CHECK_INT(ze.zeMemFreeExt(on.ctx, &desc, p), 0);
    p               = get(DEVICE, 1000);
    desc.freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
    CHECK_INT(ze.zeMemFreeExt(on.ctx, &desc, p), 0);
    before = ze.calls();
    q      = get(DEVICE, 1000); /* the driver's */
    CHECK(q != p);
    CHECK_INT(ze.calls() - before, 1);
    desc.freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE;
    CHECK_INT(ze.zeMemFreeExt(on.ctx, &desc, q), 0);
    CHECK_INT(ze.zeContextDestroy(on.ctx), 0);
}

static void a_free_behind_commands_ends_pooling(void)
{
    run(free_behind);
}

static void use_two(void)
{
    ze_context_handle_t first, second;
    void               *p, *q;

    load_soft();
    first = on.ctx;
    CHECK_INT(ze.zeContextCreate(on.driver, &context_desc, &second), 0);
    p      = get(HOST, 100);
    on.ctx = second;
    q      = get(HOST, 100);
    CHECK_INT(ze.zeContextDestroy(second), 0); /* with a live block */
    on.ctx = first;
    memset(p, 1, 100);
    CHECK(ze.zeMemFree(first, q) != 0);
    give(p);
    give(get(HOST, 100));
}

static void contexts_are_kept_apart(void)
{
    run(use_two);
}

static void run_out(void)
{
    void *large, *p;

    CHECK(setenv("USM_MEMORY_LIMIT", "device:8M", 1) == 0);
    load_soft();
    large = get(DEVICE, 6 * MIB);
    CHECK_INT(try(DEVICE, 6 * MIB, 0, &p), ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    give(large);
    give(get(DEVICE, 6 * MIB));
}

static void a_limit_is_out_of_memory(void)
{
    run(run_out);
}

static void fill_up(void)
{
    void       *p[100];
    int         n = 0;
    ze_result_t result;

    CHECK(setenv("ZE_SOFT_MEMORY", "16M", 1) == 0);
    load_soft();
    while ((result = try(DEVICE, MIB, 0, &p[n])) == ZE_RESULT_SUCCESS)
        CHECK(++n < 100);
    CHECK_INT(result, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK(n >= 8);
    while (n > 0)
        give(p[--n]);
    give(get(DEVICE, 10 * MIB)); /* the pool gives back what it holds */
}

static void a_full_device_says_so_and_goes_on(void)
{
    run(fill_up);
}

static void *get_host(size_t size)
{
    return get(HOST, size);
}

static void *churn(void *arg)
{
    churn_blocks((uintptr_t)arg, 10000 / LESS, get_host, give);
    return NULL;
}

static void work_in_threads(void)
{
    pthread_t threads[8];

    load_soft();
    for (uintptr_t i = 0; i < 8; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 8; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK(ze.calls() < 1000);
    CHECK_INT(ze.zeContextDestroy(on.ctx), 0);
}

static void threads_share_the_pools(void)
{
    run(work_in_threads);
}

static void hold_many(void)
{
    enum { MANY = 100000 / LESS };
    void **p = calloc(MANY, sizeof *p);

    load_soft();
    CHECK(p != NULL);
    for (int i = 0; i < MANY; i++)
        p[i] = get(DEVICE, 64 + (size_t)i % 512);
    CHECK(ze.calls() < 200);
    for (int i = 0; i < MANY; i++)
        give(p[(size_t)i * 7919 % MANY]);
    free(p);
    exit(0); /* with handlers of all libraries, and a context that lives */
}

static void a_hundred_thousand_blocks_live(void)
{
    run(hold_many);
}

static void have_no_driver(void)
{
    load("libnosuch_driver.so.1");
    CHECK(on.ctx == NULL);
    CHECK(ze.zeInit(0) != 0);
}

static void without_a_driver_there_is_none(void)
{
    run(have_no_driver);
}

static void have_libusm(void)
{
    uint64_t before;

    load_soft();
    CHECK(dlopen(TEST_BACKEND, RTLD_NOW) != NULL);
    before = ze.calls();
    give(get(DEVICE, 100));
    give(get(DEVICE, 100));
    CHECK_INT(ze.calls() - before, 2);
}

static void a_program_with_libusm_of_its_own_is_left_alone(void)
{
    run(have_libusm);
}

static const plain_case cases[] = {
    CASE(blocks_are_pooled_and_go_with_their_context),
    CASE(queries_answer_for_the_area_and_wrong_frees_are_errors),
    CASE(an_ipc_handle_is_that_of_the_area),
    CASE(what_is_out_of_the_ordinary_goes_to_the_driver),
    CASE(residency_is_counted_by_area),
    CASE(a_free_behind_commands_ends_pooling),
    CASE(contexts_are_kept_apart),
    CASE(a_limit_is_out_of_memory),
    CASE(a_full_device_says_so_and_goes_on),
    CASE(threads_share_the_pools),
    CASE(a_hundred_thousand_blocks_live),
    CASE(without_a_driver_there_is_none),
    CASE(a_program_with_libusm_of_its_own_is_left_alone),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
