/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The pool `jemalloc`, in a program that has jemalloc; with USM_TEST_WITHOUT_JEMALLOC in one that
 * has not.  Random operations against a model are in test_pool_model.c. */
#include "plain.h"

#include "base/fault.h"
#include "device/registry.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <usm/usm.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static usm_context *ctx;

static usm_status try_pool(usm_kind kind, size_t maximum, usm_pool **pool)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;

    desc.name         = "jemalloc";
    desc.maximum_size = maximum;
    return usm_pool_create(ctx, NULL, kind, &desc, pool);
}

#ifdef USM_TEST_WITHOUT_JEMALLOC

static void a_program_without_jemalloc_is_told_what_to_do(void)
{
    usm_pool *pool = NULL;

    for (int i = 0; i < 2; i++) { /* and it stays so */
        CHECK_INT(try_pool(USM_HOST, 0, &pool), USM_E_NOT_SUPPORTED);
        CHECK_IN("-ljemalloc", usm_last_error());
        CHECK_IN("LD_PRELOAD=", usm_last_error());
        CHECK(pool == NULL);
    }
}

/* Anybody's module is found by its name: here the one at hand by another name. */
static void modules_are_found_by_any_name(void)
{
    const char   *lib  = getenv("USM_PLUGIN_PATH");
    const char   *path = plain_path("libusm_pool_brook.so");
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;
    char          target[512], text[512];

    CHECK(lib != NULL);
    (void)snprintf(target, sizeof(target), "%.400s/libusm_pool_jemalloc.so", lib);
    desc.name = "brook";
    CHECK_INT(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool), USM_E_NO_BACKEND);
    CHECK_IN("there is no pool \"brook\"; there are: ", usm_last_error());
    CHECK_IN("no libusm_pool_brook.so in", usm_last_error());
    CHECK(usm_config_set("pool", "host:brook") != USM_OK);
    CHECK(symlink(target, path) == 0);
    (void)snprintf(text, sizeof(text), "%s", path);
    *strrchr(text, '/') = 0;
    CHECK_INT(usm_config_set("plugin_path", text), USM_OK);
    CHECK_INT(usm_config_set("pool", "host:brook"), USM_OK);
    CHECK_INT(usm_config_set("pool", NULL), USM_OK);
    CHECK_INT(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool), USM_E_NOT_SUPPORTED);
    CHECK_IN("jemalloc from its start", usm_last_error()); /* its entry was called */
    plain_write(plain_path("libusm_pool_bog.so"), "no module");
    desc.name = "../brook";
    CHECK_INT(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool), USM_E_NO_BACKEND);
    desc.name = "bog";
    CHECK_INT(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool), USM_E_NO_BACKEND);
    CHECK_IN("does not load", usm_last_error());
    CHECK(pool == NULL);
}

static void other_pools_go_on(void)
{
    void *p = usm_alloc_host(100);

    CHECK(p != NULL);
    usm_free(p);
}

static const plain_case cases[] = {
    CASE(a_program_without_jemalloc_is_told_what_to_do),
    CASE(modules_are_found_by_any_name),
    CASE(other_pools_go_on),
    {NULL, NULL},
};

#else

/* What the compiler would warn of is what is tested. */
static void *hidden(const void *p)
{
    volatile uintptr_t v = (uintptr_t)p;

    return (void *)v;
}

static usm_pool *make_pool(usm_kind kind, size_t maximum)
{
    usm_pool *pool = NULL;

    if (try_pool(kind, maximum, &pool) != USM_OK)
        printf("# %s\n", usm_last_error());
    CHECK(pool != NULL);
    return pool;
}

static usm_pool_stats stats(usm_pool *pool)
{
    usm_pool_stats s = USM_POOL_STATS_INIT;

    CHECK_INT(usm_pool_get_stats(pool, &s), USM_OK);
    return s;
}

static void *get(usm_pool *pool, size_t size)
{
    void *p = usm_pool_malloc(pool, size);

    CHECK(p != NULL);
    return p;
}

/* --- kinds ------------------------------------------------------------------------------------ */

static void host_and_shared_blocks_hold_their_bytes(void)
{
    for (int k = USM_HOST; k <= USM_SHARED; k += 2) {
        usm_pool      *pool = make_pool((usm_kind)k, 0);
        unsigned char *p[100];

        for (size_t i = 0; i < 100; i++) {
            p[i] = get(pool, 1 + i * 997);
            memset(p[i], (int)i, usm_usable_size(p[i]));
            CHECK_INT(usm_get_pointer_type(p[i] + i, ctx), k);
        }
        for (size_t i = 0; i < 100; i++) {
            CHECK(p[i][0] == i && p[i][i * 997] == i);
            usm_free(p[i]);
        }
        CHECK_INT(stats(pool).blocks, 0);
        usm_pool_destroy(pool);
    }
}

static void device_memory_is_refused(void)
{
    usm_pool *pool = NULL;

    CHECK_INT(try_pool(USM_DEVICE, 0, &pool), USM_E_NOT_SUPPORTED);
    CHECK_IN("slab", usm_last_error());
    CHECK(pool == NULL);
}

/* The same table over areas that nobody can touch: neither their use nor jemalloc's own data do. */
static usm_status take_untouchable(void *source, size_t size, size_t align, usm_area **area)
{
    uintptr_t base = (uintptr_t)mmap(NULL, size + align, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)source;
    CHECK(base != (uintptr_t)MAP_FAILED);
    *area = malloc(sizeof(**area));
    CHECK(*area != NULL);
    **area = (usm_area){(void *)((base + align - 1) & ~(uintptr_t)(align - 1)), size, NULL};
    return USM_OK;
}

static void give_untouchable(void *source, usm_area *area)
{
    (void)source;
    CHECK(munmap(area->base, area->size) == 0);
    free(area);
}

/* As a driver does that has no memory of its own, such as PoCL. */
static usm_status take_from_malloc(void *source, size_t size, size_t align, usm_area **area)
{
    void *p = NULL;

    (void)source;
    CHECK(posix_memalign(&p, align < 64 ? 64 : align, size) == 0);
    *area = malloc(sizeof(**area));
    CHECK(*area != NULL);
    **area = (usm_area){p, size, NULL};
    return USM_OK;
}

static void give_to_malloc(void *source, usm_area *area)
{
    (void)source;
    free(area->base);
    free(area);
}

static void areas_of_the_programs_own_jemalloc_are_refused(void)
{
    const usm_pool_ops *ops    = usm__registry_pool("jemalloc");
    usm_pool_params     params = {.struct_size = sizeof(params),
                                  .api         = &usm__registry_api,
                                  .areas       = {.take = take_from_malloc, .give = give_to_malloc},
                                  .kind        = USM_HOST,
                                  .host_accessible = true,
                                  .default_align   = 64};
    void               *pool   = NULL;

    CHECK(ops != NULL);
    if (PLAIN_SANITIZED) /* whose malloc() is its own */
        return;
    CHECK_INT(ops->create(&params, &pool), USM_E_NOT_SUPPORTED);
    CHECK_IN("which is jemalloc too", usm_last_error());
    CHECK(pool == NULL);
}

static void memory_is_never_touched(void)
{
    const usm_pool_ops *ops    = usm__registry_pool("jemalloc");
    usm_pool_params     params = {.struct_size = sizeof(params),
                                  .api         = &usm__registry_api,
                                  .areas = {.take = take_untouchable, .give = give_untouchable},
                                  .kind  = USM_HOST,
                                  .host_accessible = true,
                                  .default_align   = 64};
    void               *pool   = NULL, *p[2000];

    CHECK(ops != NULL);
    CHECK_INT(ops->create(&params, &pool), USM_OK);
    for (size_t round = 0; round < 5; round++) {
        for (size_t i = 0; i < 2000; i++)
            CHECK_INT(ops->malloc(pool, 1 + i * 37 % 100000, i % 50 ? 0 : 4096, &p[i]), USM_OK);
        CHECK_INT(ops->trim_to(pool, 0), USM_OK);
    }
    ops->destroy(pool);
}

/* --- threads ---------------------------------------------------------------------------------- */

struct churn {
    usm_pool *pool;
    unsigned  seed;
    int       steps;
    int       trim_every; /* steps; 0: 1024 */
};

/* 16 bytes to 64 KiB, freed in any order; each block is marked at both ends.  Trims now and then,
 * for extents come back to the hooks only when they are purged. */
static void *churn(void *arg)
{
    struct churn *c = arg;
    struct {
        unsigned char *p;
        size_t         size;
    } slot[256] = {{NULL, 0}};

    for (int i = 0; i < c->steps; i++) {
        size_t k = (size_t)rand_r(&c->seed) % 256;

        if (i % (c->trim_every ? c->trim_every : 1024) == 15)
            CHECK_INT(usm_pool_trim_to(c->pool, 0), USM_OK);
        if (slot[k].p) {
            CHECK(slot[k].p[0] == (unsigned char)k &&
                  slot[k].p[slot[k].size - 1] == (unsigned char)k);
            usm_pool_free(c->pool, slot[k].p);
            slot[k].p = NULL;
            continue;
        }
        slot[k].size                = 16 + (size_t)rand_r(&c->seed) % (64 * KIB);
        slot[k].p                   = get(c->pool, slot[k].size);
        slot[k].p[0]                = (unsigned char)k;
        slot[k].p[slot[k].size - 1] = (unsigned char)k;
    }
    for (size_t k = 0; k < 256; k++)
        usm_pool_free(c->pool, slot[k].p);
    return NULL;
}

static void churn_by_threads(usm_pool *pool, size_t n, unsigned seed, int steps)
{
    struct churn c[8];
    pthread_t    t[8];

    for (size_t i = 0; i < n; i++) {
        c[i] = (struct churn){pool, seed + (unsigned)i, steps, 0};
        CHECK(pthread_create(&t[i], NULL, churn, &c[i]) == 0);
    }
    for (size_t i = 0; i < n; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
}

/* What other libraries' hooks crash in: extents of different arenas that were merged. */
static void churn_in_one_pool_keeps_the_heap_whole(void)
{
    usm_pool *pool  = make_pool(USM_HOST, 0);
    int       steps = PLAIN_SANITIZED ? 3000 : 60000;

    for (unsigned round = 0; round < 10; round++) {
        struct churn c = {pool, round * 10 + 1, steps, 0};

        (void)churn(&c);
        churn_by_threads(pool, 2, round * 10 + 2, steps);
        CHECK_INT(stats(pool).blocks, 0);
        if (round % 3 == 2)
            CHECK_INT(usm_pool_trim_to(pool, 0), USM_OK);
    }
    usm_pool_destroy(pool);
}

static void churn_in_pools_that_come_and_go_keeps_the_heap_whole(void)
{
    int steps = PLAIN_SANITIZED ? 2000 : 30000;

    for (unsigned round = 0; round < 10; round++) {
        usm_pool    *host = make_pool(USM_HOST, 0), *shared = make_pool(USM_SHARED, 0);
        struct churn c = {shared, round * 10 + 1, steps, 0};

        (void)churn(&c);
        churn_by_threads(host, 2, round * 10 + 2, steps);
        churn_by_threads(shared, 4, round * 10 + 4, steps / 2);
        usm_pool_destroy(host);
        usm_pool_destroy(shared);
    }
}

/* Threads that stay while pools go: what they have of a pool must go with the pool. */
static struct {
    pthread_barrier_t barrier;
    usm_pool         *pool;
} stage;

static void *use_each_pool(void *arg)
{
    for (int i = 0; i < 20; i++) {
        void *p[50];

        (void)pthread_barrier_wait(&stage.barrier); /* there is a pool */
        for (size_t k = 0; k < 50; k++)
            p[k] = memset(get(stage.pool, 100 + k * 50), 1, 100);
        for (size_t k = 0; k < 49; k++) /* one stays out */
            usm_pool_free(stage.pool, p[k]);
        (void)pthread_barrier_wait(&stage.barrier); /* it may go */
    }
    return arg;
}

static void a_pool_goes_while_threads_that_used_it_live(void)
{
    pthread_t t[3];

    CHECK(pthread_barrier_init(&stage.barrier, NULL, 4) == 0);
    for (size_t i = 0; i < 3; i++)
        CHECK(pthread_create(&t[i], NULL, use_each_pool, NULL) == 0);
    for (int i = 0; i < 20; i++) {
        stage.pool = make_pool(USM_HOST, 0);
        (void)pthread_barrier_wait(&stage.barrier);
        (void)pthread_barrier_wait(&stage.barrier);
        CHECK_INT(stats(stage.pool).blocks, 3);
        usm_pool_destroy(stage.pool);
    }
    for (size_t i = 0; i < 3; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    CHECK(pthread_barrier_destroy(&stage.barrier) == 0);
}

static void *take_and_free(void *pool)
{
    for (size_t i = 0; i < 300; i++)
        usm_pool_free(pool, get(pool, i * 17));
    return NULL;
}

/* Its cache goes with it: nothing is held when all is trimmed. */
static void a_threads_cache_ends_with_it(void)
{
    usm_pool *pool = make_pool(USM_HOST, 0);

    for (int i = 0; i < 50; i++) {
        pthread_t t;

        CHECK(pthread_create(&t, NULL, take_and_free, pool) == 0);
        CHECK(pthread_join(t, NULL) == 0);
    }
    CHECK_INT(stats(pool).allocations, 50 * 300);
    CHECK_INT(stats(pool).frees, 50 * 300);
    CHECK_INT(stats(pool).live, 0);
    CHECK_INT(usm_pool_trim_to(pool, 0), USM_OK);
    CHECK_INT(stats(pool).reserved, 0);
    usm_pool_destroy(pool);
}

/* A destructor of the program's key, which runs after jemalloc's, and so in each round. */
static struct {
    pthread_key_t key;
    usm_pool     *pool;
    _Atomic(int)  rounds;
    void         *kept[4];
} last_words;

static void allocate_at_the_end(void *first)
{
    const size_t sizes[] = {1, 100, 5000, 100 * KIB, 3 * MIB};
    int          round   = atomic_fetch_add(&last_words.rounds, 1);

    if (round < 3)
        CHECK(pthread_setspecific(last_words.key, first) == 0);
    for (size_t i = 0; i < 5; i++) {
        char *p = get(last_words.pool, sizes[i]);
        char *q = usm_pool_aligned_alloc(last_words.pool, 4096, sizes[i]);

        CHECK(q != NULL && (uintptr_t)q % 4096 == 0);
        CHECK_INT(usm_get_pointer_type(p, ctx), USM_HOST);
        p[0] = p[sizes[i] - 1] = q[sizes[i] - 1] = 'x';
        usm_pool_free(last_words.pool, p);
        usm_pool_free(last_words.pool, q);
    }
    last_words.kept[round] = get(last_words.pool, 2000);
    if (round == 0)
        usm_pool_free(last_words.pool, first); /* of before the thread's end */
}

static void *set_the_key(void *arg)
{
    CHECK(pthread_setspecific(last_words.key, get(last_words.pool, 100)) == 0);
    return arg;
}

static void a_thread_allocates_in_its_keys_destructors(void)
{
    pthread_t t;

    if (PLAIN_SANITIZED)
        return; /* TSan has left the thread by then; jemalloc copies into memory ASan has poisoned
                 */
    last_words.pool = make_pool(USM_HOST, 0);
    CHECK(pthread_key_create(&last_words.key, allocate_at_the_end) == 0);
    for (int i = 0; i < 20; i++) {
        atomic_store(&last_words.rounds, 0);
        CHECK(pthread_create(&t, NULL, set_the_key, NULL) == 0);
        CHECK(pthread_join(t, NULL) == 0);
        CHECK_INT(atomic_load(&last_words.rounds), 4);
        for (int k = 0; k < 4; k++)
            usm_pool_free(last_words.pool, last_words.kept[k]);
    }
    CHECK_INT(stats(last_words.pool).blocks, 0);
    CHECK(pthread_key_delete(last_words.key) == 0);
    usm_pool_destroy(last_words.pool);
}

static void *free_a_thousand(void *arg)
{
    void **p = arg;

    for (size_t i = 0; i < 1000; i++)
        usm_free(p[i]);
    return NULL;
}

static void any_thread_frees_any_block(void)
{
    usm_pool *pool = make_pool(USM_HOST, 0);
    void     *p[1000];
    pthread_t t;

    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 1000; i++)
            p[i] = get(pool, 64 + i % 7 * 300);
        CHECK(pthread_create(&t, NULL, free_a_thousand, p) == 0);
        CHECK(pthread_join(t, NULL) == 0);
        CHECK_INT(stats(pool).blocks, 0);
    }
    CHECK(stats(pool).reserved < 8 * MIB); /* what came back is used again */
    usm_pool_destroy(pool);
}

/* --- pointers --------------------------------------------------------------------------------- */

static void wrong_pointers_are_told_apart(void)
{
    usm_pool *pool = make_pool(USM_HOST, 0), *other = make_pool(USM_HOST, 0);
    char     *a = get(pool, 1000), *large = get(pool, 100 * MIB), *b = get(other, 100);

    CHECK_INT(usm_free_ctx(hidden(a + 8), NULL), USM_E_INTERIOR_POINTER);
    CHECK_INT(usm_free_ctx(hidden(a + 64), NULL), USM_E_INTERIOR_POINTER);
    CHECK_INT(usm_free_ctx(hidden(large + 77 * MIB + 3), NULL), USM_E_INTERIOR_POINTER);
    CHECK_INT(usm_get_pointer_type(large + 100 * MIB - 1, NULL), USM_HOST);
    CHECK(usm_usable_size(large + MIB) >= 99 * MIB);
    CHECK_INT(usm_get_pointer_type(a + 2048, NULL), USM_UNKNOWN); /* beside it, where nothing is */
    usm_pool_free(pool, b);
    CHECK_INT(usm_last_status(), USM_E_INVALID_POINTER);
    CHECK_INT(stats(pool).blocks, 2);
    CHECK_INT(stats(other).blocks, 1);
    CHECK_INT(usm_free_ctx(a, NULL), USM_OK);
    CHECK_INT(usm_free_ctx(hidden(a), NULL), USM_E_DOUBLE_FREE);
    CHECK_INT(usm_get_pointer_type(a, NULL), USM_UNKNOWN);
    CHECK_INT(stats(pool).frees, 1);
    usm_pool_destroy(other);
    usm_pool_destroy(pool);
}

static void alignments_up_to_2_mib_are_kept(void)
{
    usm_pool *pool = make_pool(USM_HOST, 0);

    for (size_t align = 1; align <= USM_MAX_ALIGNMENT; align *= 2)
        for (size_t size = 1; size <= 300 * KIB; size = size * 5 + 3) {
            char *p = usm_pool_aligned_alloc(pool, align, size);

            CHECK(p != NULL);
            CHECK_INT((uintptr_t)p % (align < 64 ? 64 : align), 0);
            p[0] = p[size - 1] = 1;
        }
    usm_pool_destroy(pool);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void a_trim_gives_back_what_is_idle_and_pooling_goes_on(void)
{
    usm_pool *pool = make_pool(USM_HOST, 0);
    void     *p[3000], *stays = get(pool, 100);
    uint64_t  calls;

    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 3000; i++)
            p[i] = get(pool, 1 + i * 7 % 20000);
        for (size_t i = 0; i < 3000; i++)
            usm_pool_free(pool, p[i]);
        CHECK_INT(usm_pool_trim_to(pool, SIZE_MAX), USM_OK);
        CHECK(stats(pool).reserved > 20 * MIB);
        CHECK_INT(usm_pool_trim_to(pool, 0), USM_OK);
        CHECK(stats(pool).reserved <= 32 * MIB); /* the area that `stays` is in */
    }
    usm_pool_free(pool, stays);
    CHECK_INT(usm_pool_trim_to(pool, 0), USM_OK);
    CHECK_INT(stats(pool).reserved, 0);
    usm_pool_free(pool, get(pool, 1000));
    calls = stats(pool).driver_allocs;
    for (int i = 0; i < 1000; i++)
        usm_pool_free(pool, get(pool, 1000));
    CHECK_INT(stats(pool).driver_allocs, calls);
    usm_pool_destroy(pool);
}

static void at_its_limit_it_uses_what_is_idle_before_it_fails(void)
{
    usm_pool *pool = make_pool(USM_HOST, 8 * MIB);
    void     *p[100], *large;
    size_t    n = 0;

    while (n < 100 && (p[n] = usm_pool_malloc(pool, 200 * KIB)))
        n++;
    CHECK_INT(usm_last_status(), USM_E_BUDGET);
    CHECK(n > 20 && n < 41);
    while (n)
        usm_pool_free(pool, p[--n]);
    large = usm_pool_malloc(pool, 7 * MIB); /* needs all of it, in one piece */
    CHECK(large != NULL);
    CHECK(usm_pool_malloc(pool, 2 * MIB) == NULL);
    usm_pool_free(pool, large);
    CHECK(usm_pool_malloc(pool, SIZE_MAX / 4) == NULL);
    usm_pool_destroy(pool);
    pool = make_pool(USM_HOST, 64 * KIB); /* less than an area */
    CHECK(usm_pool_malloc(pool, 100) != NULL);
    usm_pool_destroy(pool);
}

/* Blocks that stay in this thread's cache, one in each few pages: none of their areas is empty. */
static void *fill_a_cache_and_stay(void *arg)
{
    usm_pool *pool = arg;
    void     *p[200];

    for (size_t i = 0; i < 200; i++)
        p[i] = get(pool, 16 * KIB);
    for (size_t i = 0; i < 200; i++)
        usm_pool_free(pool, p[i]);
    (void)pthread_barrier_wait(&stage.barrier);
    (void)pthread_barrier_wait(&stage.barrier);
    p[0] = get(pool, 16 * KIB); /* its cache works on */
    memset(p[0], 1, 16 * KIB);
    usm_pool_free(pool, p[0]);
    return NULL;
}

static void caches_of_idle_threads_are_the_last_reserve(void)
{
    usm_pool *pool = make_pool(USM_HOST, 4 * MIB);
    void     *p;
    pthread_t t;

    CHECK(pthread_barrier_init(&stage.barrier, NULL, 2) == 0);
    CHECK(pthread_create(&t, NULL, fill_a_cache_and_stay, pool) == 0);
    (void)pthread_barrier_wait(&stage.barrier);
    p = usm_pool_malloc(pool, 3 * MIB); /* needs both areas gone */
    CHECK(p != NULL);
    CHECK_INT(stats(pool).blocks, 1);
    usm_pool_free(pool, p);
    CHECK_INT(usm_pool_trim_to(pool, 0), USM_OK);
    CHECK_INT(stats(pool).reserved, 0);
    (void)pthread_barrier_wait(&stage.barrier);
    CHECK(pthread_join(t, NULL) == 0);
    CHECK(pthread_barrier_destroy(&stage.barrier) == 0);
    usm_pool_destroy(pool);
}

static _Atomic(bool) is_over;

static void *trim_until_told(void *arg)
{
    while (!atomic_load(&is_over))
        CHECK_INT(usm_pool_trim_to(arg, 0), USM_OK);
    return NULL;
}

/* What takes caches away beside threads that use them breaks neither. */
static void caches_are_emptied_beside_their_use(void)
{
    usm_pool *pool = make_pool(USM_HOST, 0);
    pthread_t t;

    atomic_store(&is_over, false);
    CHECK(pthread_create(&t, NULL, trim_until_told, pool) == 0);
    churn_by_threads(pool, 2, 5, PLAIN_SANITIZED ? 2000 : 20000);
    atomic_store(&is_over, true);
    CHECK(pthread_join(t, NULL) == 0);
    CHECK_INT(stats(pool).blocks, 0);
    CHECK_INT(usm_pool_trim_to(pool, 0), USM_OK);
    CHECK_INT(stats(pool).reserved, 0);
    usm_pool_destroy(pool);
}

static void pools_may_be_many_and_follow_each_other(void)
{
    usm_pool *pools[30];

    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 30; i++) {
            pools[i] = make_pool(i % 2 ? USM_HOST : USM_SHARED, 0);
            memset(get(pools[i], 5000), 1, 5000);
        }
        for (size_t i = 0; i < 30; i++)
            usm_pool_destroy(pools[i]);
    }
}

static void figures_are_exact_for_one_thread(void)
{
    usm_pool      *pool = make_pool(USM_HOST, 0);
    void          *a = get(pool, 1000), *b = get(pool, 3 * MIB);
    size_t         sum = stats(pool).live;
    usm_pool_stats s   = stats(pool);

    CHECK(sum >= usm_usable_size(a) + usm_usable_size(b)); /* red zones, where a checker watches */
    CHECK(sum < 3 * MIB + 64 * KIB);
    CHECK_INT(s.blocks, 2);
    CHECK_INT(s.live_peak_error, 0);
    usm_pool_free(pool, b);
    s = stats(pool);
    CHECK(s.live >= usm_usable_size(a) && s.live < 2 * KIB);
    CHECK_INT(s.live_peak, sum);
    CHECK_INT(s.frees, 1);
    CHECK_INT(usm_pool_reset_peaks(pool), USM_OK);
    CHECK_INT(stats(pool).live_peak, s.live);
    CHECK(stats(pool).largest_free > 0);
    usm_pool_destroy(pool);
}

/* The n-th heap block that libusm asks for, and each after it, is refused. */
static bool life_passes(void)
{
    usm_pool *pool = NULL;
    size_t    n    = 0;

    if (try_pool(USM_HOST, 0, &pool) != USM_OK) {
        CHECK_INT(usm_last_status(), USM_E_NO_MEMORY);
        return false;
    }
    for (; n < 40; n++) {
        void *p = usm_pool_malloc(pool, n * 20000);

        if (!p)
            break;
        if (n % 3 == 0)
            usm_pool_free(pool, p);
    }
    CHECK(n == 40 || usm_last_status() == USM_E_NO_MEMORY);
    usm_pool_destroy(pool);
    return n == 40;
}

static void each_refusal_of_host_memory_is_survived(void)
{
    uint64_t n = 1;

    for (bool passed = false; !passed; n++) {
        CHECK(usm__fault_arm("heap.alloc", n, true, USM_OK));
        passed = life_passes();
        usm__fault_disarm_all();
    }
    CHECK(n > 4);
}

/* A sanitizer's own malloc() has no handlers for fork, and ThreadSanitizer gives up when one thread
 * holds more than 64 locks, as jemalloc does then. */
#if !PLAIN_SANITIZED

/* --- fork ------------------------------------------------------------------------------------- */

static void in_child(void)
{
    struct churn c = {stage.pool, 99, 1000, 0};
    usm_pool    *pool;

    (void)churn(&c);
    pool = make_pool(USM_HOST, 0);
    c    = (struct churn){pool, 98, 1000, 0};
    (void)churn(&c);
    usm_pool_destroy(pool);
    usm_pool_destroy(stage.pool); /* with the blocks and caches of threads that are not here */
}

static atomic_bool stop;

static void *churn_until_told(void *arg)
{
    struct churn c = {arg, 7, 500, 20};

    while (!atomic_load(&stop))
        (void)churn(&c);
    return NULL;
}

static void *make_pools_until_told(void *arg)
{
    while (!atomic_load(&stop)) {
        usm_pool *pool = make_pool(USM_HOST, 0);

        for (size_t i = 0; i < 20; i++)
            (void)get(pool, i * MIB / 4); /* areas that go with it */
        usm_pool_destroy(pool);
    }
    return arg;
}

/* The children must neither hang nor crash, and the parent must go on. */
static void forks_while_threads_are_at_work_do_no_harm(void)
{
    pthread_t t[3];

    stage.pool = make_pool(USM_HOST, 0);
    atomic_store(&stop, false);
    for (size_t i = 0; i < 3; i++)
        CHECK(pthread_create(&t[i], NULL, i ? churn_until_told : make_pools_until_told,
                             stage.pool) == 0);
    for (int i = 0; i < 60; i++)
        CHECK_INT(plain_child(in_child, NULL), 0);
    atomic_store(&stop, true);
    for (size_t i = 0; i < 3; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    CHECK_INT(stats(stage.pool).blocks, 0);
    usm_pool_destroy(stage.pool);
}

#endif

static const plain_case cases[] = {
    CASE(host_and_shared_blocks_hold_their_bytes),
    CASE(device_memory_is_refused),
    CASE(areas_of_the_programs_own_jemalloc_are_refused),
    CASE(memory_is_never_touched),
    CASE(churn_in_one_pool_keeps_the_heap_whole),
    CASE(churn_in_pools_that_come_and_go_keeps_the_heap_whole),
    CASE(a_pool_goes_while_threads_that_used_it_live),
    CASE(a_threads_cache_ends_with_it),
    CASE(a_thread_allocates_in_its_keys_destructors),
    CASE(any_thread_frees_any_block),
    CASE(wrong_pointers_are_told_apart),
    CASE(alignments_up_to_2_mib_are_kept),
    CASE(a_trim_gives_back_what_is_idle_and_pooling_goes_on),
    CASE(at_its_limit_it_uses_what_is_idle_before_it_fails),
    CASE(caches_of_idle_threads_are_the_last_reserve),
    CASE(caches_are_emptied_beside_their_use),
    CASE(pools_may_be_many_and_follow_each_other),
    CASE(figures_are_exact_for_one_thread),
    CASE(each_refusal_of_host_memory_is_survived),
#if !PLAIN_SANITIZED
    CASE(forks_while_threads_are_at_work_do_no_harm),
#endif
    {NULL, NULL},
};

#endif

int main(int argc, char **argv)
{
    bool has = dlsym(RTLD_DEFAULT, "mallocx") != NULL;

#ifdef USM_TEST_WITHOUT_JEMALLOC
    has = !has;
#endif
    if (!has) {
        printf("SKIPPED: the program was not linked as the test needs it\n");
        return 77;
    }
    if (usm_config_set("device_selector", "host:*") || !(ctx = usm_default_context())) {
        printf("# %s\n", usm_last_error());
        return 1;
    }
    return plain_main(argc, argv, cases);
}
