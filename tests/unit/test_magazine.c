/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Thread caches of the pool `slab`, by the public functions: threads that end, that free what
 * others allocated, that lose their caches while they run; slots that go from pool to pool; fork;
 * what is called from within; loading libusm.so late.
 *
 * Not here: the blocks themselves, wrong frees, figures (test_magazine_blocks.c); random operations
 * against a model (test_pool_model.c).  Nothing is timed.  Registered once more with
 * USM_HOST_GUARD_DEVICE=1, where memory does not outlive a fork, and with USM_VALIDATION=1, where
 * every thread is observed. */
#include "magazine_fixture.h"

#include "device/registry.h"

#include <dlfcn.h>
#include <link.h>

/* --- threads that end ------------------------------------------------------------------------- */

typedef struct visit {
    usm_pool *pool;
    void     *left[50]; /* for the next */
    unsigned  seed;
} visit;

static void *pay_a_visit(void *arg)
{
    visit *v = arg;

    FOR(i, COUNT(v->left)) usm_free(v->left[i]);
    FOR(i, COUNT(v->left)) v->left[i] = get(v->pool, 1 + below(&v->seed, 20000));
    FOR(i, 100) usm_free(get(v->pool, 1 + below(&v->seed, 2000)));
    return NULL;
}

static void threads_that_end_leave_their_blocks_to_others(void)
{
    const uint64_t most  = 4 * MIB; /* of their one cache: 64 KiB at first of each of 49 classes */
    visit          v     = {.pool = make(0), .seed = 1};
    uint64_t       early = 0;
    usm_pool_stats s;

    FOR(i, 1000)
    {
        on_another_thread(pay_a_visit, &v);
        if (i == 50)
            early = figures(v.pool).reserved;
    }
    s = figures(v.pool);
    CHECK_INT(s.threads, 0);
    CHECK(s.thread_cached > 0 && s.thread_cached <= most);
    CHECK_INT(s.blocks, COUNT(v.left));
    CHECK(s.reserved <= early + 2 * MIB);
    OK(usm_pool_trim_to(v.pool, 0));
    CHECK_INT(figures(v.pool).thread_cached, 0);
    FOR(i, COUNT(v.left)) usm_free(v.left[i]);
    CHECK_INT(figures(v.pool).live, 0);
    usm_pool_destroy(v.pool);
}

/* Frees the upper of two neighbours last, which a slab would hand out last. */
static void *free_upper_last(void *pool)
{
    char *p[] = {get(pool, 100), get(pool, 100)};
    int   up  = p[1] > p[0];

    free_wrongly(p[!up]);
    free_wrongly(p[up]);
    return p[up];
}

static void *get_the_freed_one(void *arg)
{
    void **freed = arg;
    void  *p     = get(usm__map_find(*freed)->pool, 100);

    CHECK(p == *freed);
    usm_free(p);
    return NULL;
}

static void a_thread_gets_the_cache_of_one_that_ended(void)
{
    usm_pool *pool = make(0);
    pthread_t one;
    void     *freed;

    CHECK_INT(pthread_create(&one, NULL, free_upper_last, pool), 0);
    CHECK_INT(pthread_join(one, &freed), 0);
    on_another_thread(get_the_freed_one, &freed);
    CHECK_INT(figures(pool).threads, 0);
    usm_pool_destroy(pool);
}

static void *use_a_cache_together(void *pool)
{
    usm_free(get(pool, 100));
    pthread_barrier_wait(&idle_turn);
    return NULL;
}

static void few_caches_outlive_their_threads(void)
{
    usm_pool *pool = make(0);
    uint64_t  one;
    crew      c;

    CHECK_INT(pthread_barrier_init(&idle_turn, NULL, COUNT(c.threads)), 0);
    usm_free(get(pool, 100));
    one = figures(pool).thread_cached;
    hire(&c, COUNT(c.threads), use_a_cache_together, pool);
    dismiss(&c);
    CHECK_INT(figures(pool).threads, 1);
    CHECK_INT(figures(pool).thread_cached, one * (1 + 8));
    OK(usm_pool_trim_to(pool, 0));
    CHECK_INT(figures(pool).thread_cached, 0);
    pthread_barrier_destroy(&idle_turn);
    usm_pool_destroy(pool);
}

static void a_thread_may_free_what_it_never_allocated(void)
{
    usm_pool *pool = make(0);

    FOR(i, 300) on_another_thread(free_block, get(pool, i % 2 ? 64 * KIB : 200));
    CHECK_INT(figures(pool).live, 0);
    CHECK_INT(figures(pool).blocks, 0);
    CHECK(figures(pool).reserved <= 8 * MIB);
    usm_pool_destroy(pool);
}

/* --- slots that go from pool to pool ---------------------------------------------------------- */

static struct {
    pthread_barrier_t turn;
    usm_pool         *pool; /* of this generation */
    void             *left[3];
    atomic_int        who;
    size_t            generations;
} reuse;

static void use_generation(int me)
{
    void *p[40];

    FOR(i, COUNT(p))
    {
        p[i] = get(reuse.pool, 100);
        memset(p[i], me + 1, 100);
        CHECK(usm__map_find(p[i])->pool == reuse.pool);
    }
    FOR(i, COUNT(p))
    {
        CHECK_INT(((char *)p[i])[99], me + 1);
        if (i > 0)
            usm_free(p[i]);
    }
    reuse.left[me] = p[0];
}

static void *go_with_the_pools(void *arg)
{
    int me = reuse.who++;

    (void)arg;
    FOR(g, reuse.generations)
    {
        pthread_barrier_wait(&reuse.turn);
        use_generation(me);
        pthread_barrier_wait(&reuse.turn); /* it is destroyed now */
        pthread_barrier_wait(&reuse.turn);
        CHECK(usm_pool_malloc(reuse.pool, 100) == NULL);
        free_wrongly(reuse.left[me]);
        CHECK_INT(usm_last_status() == USM_E_INVALID_POINTER ||
                      usm_last_status() == USM_E_DOUBLE_FREE,
                  1);
        pthread_barrier_wait(&reuse.turn);
    }
    return NULL;
}

static void a_slot_serves_only_the_pool_that_has_it(void)
{
    crew c;

    OK(usm_config_set("log", "off"));
    reuse.generations = FEWER(1000);
    CHECK_INT(pthread_barrier_init(&reuse.turn, NULL, 4), 0);
    hire(&c, 3, go_with_the_pools, NULL);
    FOR(g, reuse.generations)
    {
        reuse.pool = make(0);
        CHECK(reuse.pool->slot != 0);
        pthread_barrier_wait(&reuse.turn);
        pthread_barrier_wait(&reuse.turn);
        usm_pool_destroy(reuse.pool);
        pthread_barrier_wait(&reuse.turn);
        pthread_barrier_wait(&reuse.turn);
    }
    dismiss(&c);
    pthread_barrier_destroy(&reuse.turn);
}

static atomic_bool busy_no_more;

static void *use_at_full_speed(void *pool)
{
    unsigned seed = (unsigned)(uintptr_t)&seed;

    while (!busy_no_more) {
        void *p[8];

        FOR(i, COUNT(p)) p[i] = usm_pool_malloc(pool, 64u << below(&seed, 4));
        FOR(i, COUNT(p)) usm_free(p[i]); /* NULL where memory is short */
    }
    return NULL;
}

static void pools_come_and_go_beside_a_busy_one(void)
{
    usm_pool *mine = make(0);
    crew      c;

    busy_no_more = false;
    hire(&c, 3, use_at_full_speed, mine);
    FOR(i, FEWER(500))
    {
        usm_pool *other = make(0);

        fill_cache(other);
        CHECK(usm__map_find(get(other, 100))->pool == other);
        usm_pool_destroy(other);
    }
    busy_no_more = true;
    dismiss(&c);
    CHECK_INT(figures(mine).live, 0);
    usm_pool_destroy(mine);
}

static void *free_of_many(void *arg)
{
    void **p = arg;

    FOR(i, 300) usm_free(p[i]);
    return NULL;
}

static void there_can_be_more_pools_than_slots(void)
{
    static usm_pool *pools[300];
    static void     *p[300];
    size_t           without = 0;

    FOR(i, COUNT(pools))
    {
        pools[i] = make(0);
        p[i]     = get(pools[i], 1000);
        without += pools[i]->slot == 0;
    }
    CHECK(without >= COUNT(pools) - 255);
    on_another_thread(free_of_many, p);
    FOR(i, COUNT(pools))
    {
        CHECK_INT(figures(pools[i]).live, 0);
        CHECK_INT(figures(pools[i]).live_peak >= 1000, 1);
        CHECK(usm__map_find(p[i] = get(pools[i], 1000))->pool == pools[i]);
        usm_pool_free(pools[i], p[i]);
        CHECK_INT(figures(pools[i]).threads, pools[i]->slot != 0);
        CHECK_INT(figures(pools[i]).live, 0);
    }
    FOR(i, COUNT(pools)) usm_pool_destroy(pools[i]);
    pools[0] = make(0);
    CHECK(pools[0]->slot != 0);
    usm_pool_destroy(pools[0]);
}

/* --- memory that is short: others' caches ----------------------------------------------------- */

#define LIMIT (16 * MIB)

/* How many blocks of 256 KiB go into what the limit leaves; all are given back. */
static size_t room_of(usm_pool *pool)
{
    void  *p[LIMIT / (256 * KIB) + 1];
    size_t n = 0;

    while (n < COUNT(p) && (p[n] = usm_pool_malloc(pool, 256 * KIB)) != NULL)
        n++;
    CHECK(n < COUNT(p));
    CHECK_INT(usm_last_status(), USM_E_BUDGET);
    FOR(i, n) usm_free(p[i]);
    OK(usm_pool_trim_to(pool, 0));
    return n;
}

static void idle_caches_are_taken_back_when_memory_is_short(void)
{
    usm_pool *pool = make(LIMIT);
    size_t    room = room_of(pool);
    crew      c;

    CHECK_INT(pthread_barrier_init(&idle_turn, NULL, 5), 0);
    hire(&c, 4, fill_and_wait, pool);
    pthread_barrier_wait(&idle_turn);
    CHECK_INT(figures(pool).threads, 4);
    CHECK(figures(pool).thread_cached > 0);
    CHECK(figures(pool).thread_cached + figures(pool).depot_cached <= LIMIT / 16);
    CHECK(room_of(pool) >= room - 8); /* what lay between the slabs was too small by then */
    CHECK_INT(figures(pool).thread_cached, 0);
    CHECK_INT(room_of(pool), room);
    CHECK_INT(figures(pool).reserved, 0);
    pthread_barrier_wait(&idle_turn);
    dismiss(&c);
    pthread_barrier_destroy(&idle_turn);
    usm_pool_destroy(pool);
}

/* Leaves 512 KiB in its magazines. */
static void *hoard_and_wait(void *pool)
{
    void *p[8];

    FOR(i, COUNT(p)) p[i] = get(pool, 64 * KIB);
    FOR(i, COUNT(p)) usm_free(p[i]);
    pthread_barrier_wait(&idle_turn);
    pthread_barrier_wait(&idle_turn);
    return NULL;
}

/* What all caches hold together is limited, and a thread without room takes that of one that has
 * more. */
static void a_thread_takes_room_from_another(void)
{
    usm_pool_desc  desc = USM_POOL_DESC_INIT;
    usm_pool      *pool = NULL;
    usm_pool_stats s;
    crew           c;

    desc.name         = "slab";
    desc.thread_cache = 600 * KIB;
    OK(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool));
    CHECK_INT(pthread_barrier_init(&idle_turn, NULL, 2), 0);
    hire(&c, 1, hoard_and_wait, pool);
    pthread_barrier_wait(&idle_turn);
    s = figures(pool);
    CHECK_INT(s.threads, 1);
    CHECK(s.thread_cached + s.depot_cached <= desc.thread_cache);
    for (int i = 0; i == 0 || (i < 1000 && s.threads > 1); i++) {
        fill_cache(pool);
        s = figures(pool);
    }
    CHECK_INT(s.threads, 1); /* the other one's is gone */
    CHECK(s.thread_cached + s.depot_cached <= desc.thread_cache);
    pthread_barrier_wait(&idle_turn);
    dismiss(&c);
    pthread_barrier_destroy(&idle_turn);
    usm_pool_destroy(pool);
}

static void *fill_and_go_on(void *pool)
{
    fill_cache(pool);
    pthread_barrier_wait(&idle_turn);
    pthread_barrier_wait(&idle_turn); /* what is used gets the room of what is forgotten */
    return use_at_full_speed(pool);
}

/* Blocks that lie in magazines for no reason but that some thread once used them. */
static uint64_t forgotten_blocks(usm_pool *pool)
{
    uint64_t blocks[USM_BINS] = {0};

    usm__magazine_count(pool, blocks);
    return blocks[usm_class_of(64 * KIB)];
}

static void busy_caches_are_taken_back_when_memory_is_short(void)
{
    usm_pool *pool = make(LIMIT);
    size_t    room = room_of(pool);
    crew      c;

    busy_no_more = false;
    CHECK_INT(pthread_barrier_init(&idle_turn, NULL, 5), 0);
    hire(&c, 4, fill_and_go_on, pool);
    pthread_barrier_wait(&idle_turn);
    CHECK(forgotten_blocks(pool) > 0);
    pthread_barrier_wait(&idle_turn);
    /* Who is in the slow path keeps his; under AddressSanitizer that is where threads mostly are.
     */
    for (int i = 0; i < 100 && forgotten_blocks(pool) > 0; i++)
        (void)usm__magazine_reclaim(pool);
    CHECK_INT(forgotten_blocks(pool), 0);
    /* They need a slab of each of four classes, in a piece of 2 MiB or beside it. */
    FOR(i, FEWER(100)) CHECK(room_of(pool) >= room - 10);
    busy_no_more = true;
    dismiss(&c);
    OK(usm_pool_trim_to(pool, 0));
    CHECK_INT(room_of(pool), room);
    CHECK_INT(figures(pool).live, 0);
    pthread_barrier_destroy(&idle_turn);
    usm_pool_destroy(pool);
}

/* --- fork ------------------------------------------------------------------------------------- */

static struct {
    usm_pool *pool, *other, *left; /* left: it has the cache of a thread that ended */
    void     *block;
} forked;

static void work_in_the_child(void)
{
    FOR(i, 2000)
    {
        void *p = get(forked.pool, 64 + i);

        memset(p, 1, 64 + i);
        usm_free(p);
    }
    usm_free(forked.block);
    fill_cache(forked.pool);
    OK(usm_pool_trim_to(forked.pool, 0)); /* with the caches of threads that are gone */
    usm_free(get(forked.pool, 100));
    (void)figures(forked.pool);
    usm_free(get(forked.left, 100));
    usm_pool_destroy(forked.left);
    usm_pool_destroy(forked.other);
    usm_pool_destroy(forked.pool);
    fill_cache(make(0));
}

static void be_inert_in_the_child(void)
{
    CHECK(usm_pool_malloc(forked.pool, 100) == NULL);
    CHECK_INT(usm_last_status(), USM_E_FORKED);
    usm_free(forked.block);
    CHECK_INT(usm_free_ctx(forked.block, NULL), USM_OK);
    CHECK_INT(usm_pool_trim_to(forked.pool, 0), USM_E_FORKED);
    CHECK(usm_pool_malloc(forked.left, 100) == NULL);
    usm_pool_destroy(forked.pool);
}

static void live_in_a_child(void)
{
    if (usm__backend_can(ctx->be, USM_CAP_FORK_MEMORY))
        work_in_the_child();
    else
        be_inert_in_the_child();
    if (!PLAIN_SANITIZED)
        exit(0);
}

static void *trim_at_full_speed(void *pool)
{
    while (!busy_no_more) {
        fill_cache(pool);
        OK(usm_pool_trim_to(pool, 0));
    }
    return NULL;
}

/* What a fork can meet is short, and a hundred meet it one time in three (without the membarrier in
 * heap/magazine.c): once that often, and fewer where memory or observers are the point. */
static void a_process_can_fork_in_the_middle_of_all(void)
{
    bool   is_plain = !getenv("USM_HOST_GUARD_DEVICE") && !getenv("USM_VALIDATION");
    size_t nforks   = is_plain && !PLAIN_SANITIZED ? 100 : FEWER(100);
    crew   c, d;

    if (PLAIN_SANITIZED && !PLAIN_TSAN)
        return; /* AddressSanitizer of gcc 12 lets a child inherit its allocator's lock, taken */
    OK(usm_config_set("log", "off"));
    forked.pool  = make(0);
    forked.other = make(0);
    forked.left  = make(0);
    busy_no_more = false;
    on_another_thread(free_upper_last, forked.left);
    hire(&c, 3, use_at_full_speed, forked.pool);
    hire(&d, 1, trim_at_full_speed, forked.pool);
    FOR(i, nforks)
    {
        forked.block = get(forked.pool, 500);
        CHECK_INT(plain_child(live_in_a_child, NULL), 0);
        usm_free(forked.block);
        usm_free(get(forked.other, 100));
    }
    busy_no_more = true;
    dismiss(&c);
    dismiss(&d);
    CHECK_INT(figures(forked.pool).live, 0);
    usm_pool_destroy(forked.pool);
    usm_pool_destroy(forked.other);
    usm_pool_destroy(forked.left);
}

/* --- what is called from within --------------------------------------------------------------- */

/* A driver in which somebody allocates, as whom it tells of an error may do. */
static struct {
    usm_backend_ops driver;
    usm_pool       *pool;
    atomic_int      calls;
} nested;

static void come_back(void)
{
    static __thread bool is_nested;
    void                *p, *q;

    if (is_nested || !nested.pool)
        return;
    is_nested = true;
    p         = get(nested.pool, 100);
    q         = get(nested.pool, 300 * KIB);
    usm_free(p);
    usm_free(q);
    if (nested.calls++ % 16 == 0)
        OK(usm_pool_trim_to(nested.pool, 0));
    is_nested = false;
}

static usm_status nested_create(void *native, void *dev, usm_kind kind, size_t size, void **phys)
{
    come_back();
    return nested.driver.phys_create(native, dev, kind, size, phys);
}

static usm_status nested_unmap(void *native, void *p, size_t size)
{
    come_back();
    return nested.driver.vmem_unmap(native, p, size);
}

static void what_is_called_from_within_may_allocate(void)
{
    usm_backend_ops *driver = &usm__registry_backend("host")->be.ops;
    usm_pool        *pool   = make(0);
    crew             c, d;

    nested.driver       = *driver;
    driver->phys_create = nested_create;
    driver->vmem_unmap  = nested_unmap;
    nested.pool         = pool;
    busy_no_more        = false;
    hire(&c, 2, use_at_full_speed, pool);
    hire(&d, 1, trim_at_full_speed, pool);
    FOR(i, FEWER(300)) fill_cache(pool);
    busy_no_more = true;
    dismiss(&c);
    dismiss(&d);
    nested.pool = NULL;
    *driver     = nested.driver;
    CHECK(nested.calls > 0);
    OK(usm_pool_trim_to(pool, 0));
    CHECK_INT(figures(pool).live, 0);
    CHECK_INT(figures(pool).reserved, 0);
    usm_pool_destroy(pool);
}

/* --- libusm.so and its thread-local storage --------------------------------------------------- */

#ifdef USM_TEST_LIBRARY
static int find_tls(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libusm.so"))
        return 0;
    FOR(i, info->dlpi_phnum)
    if (info->dlpi_phdr[i].p_type == PT_TLS)
        *(size_t *)found = info->dlpi_phdr[i].p_memsz;
    return 1;
}

static void *load_use_and_unload(void *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *(*alloc)(size_t);
    void (*release)(void *);
    size_t tls = 0;
    void  *p;

    CHECK(library != NULL);
    alloc   = (void *(*)(size_t))(uintptr_t)dlsym(library, "usm_alloc_host");
    release = (void (*)(void *))(uintptr_t)dlsym(library, "usm_free");
    CHECK(alloc && release);
    p = alloc(1000);
    CHECK(p != NULL);
    release(p);
    CHECK(dl_iterate_phdr(find_tls, &tls) == 1);
    CHECK(PLAIN_SANITIZED || (tls > 0 && tls <= 128)); /* dlopen() has little of static storage */
    CHECK_INT(dlclose(library), 0);
    return NULL; /* the thread's end runs code of the library */
}

static void the_library_can_be_loaded_late(void)
{
    static char path[] = USM_TEST_LIBRARY;

    FOR(i, 3) on_another_thread(load_use_and_unload, path);
}
#endif

static const plain_case cases[] = {
    CASE(threads_that_end_leave_their_blocks_to_others),
    CASE(a_thread_gets_the_cache_of_one_that_ended),
    CASE(few_caches_outlive_their_threads),
    CASE(a_thread_may_free_what_it_never_allocated),
    CASE(a_slot_serves_only_the_pool_that_has_it),
    CASE(pools_come_and_go_beside_a_busy_one),
    CASE(there_can_be_more_pools_than_slots),
    CASE(idle_caches_are_taken_back_when_memory_is_short),
    CASE(a_thread_takes_room_from_another),
    CASE(busy_caches_are_taken_back_when_memory_is_short),
    CASE(a_process_can_fork_in_the_middle_of_all),
    CASE(what_is_called_from_within_may_allocate),
#ifdef USM_TEST_LIBRARY
    CASE(the_library_can_be_loaded_late),
#endif
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_cases(argc, argv, cases);
}
