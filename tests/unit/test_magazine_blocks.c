/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks of pools with thread caches, by the public functions: memory that is short at any step,
 * wrong and late frees, figures, alignment, size, trim.  Registered as test_magazine.c is, which
 * has the threads. */
#include "magazine_fixture.h"

#include "base/fault.h"

/* --- memory that is short: every step --------------------------------------------------------- */

typedef struct life {
    const char *point;
    uint64_t    n;
    bool        onwards, failed;
} life;

static void *live_under_failure(void *arg)
{
    static const size_t sizes[] = {1, 64, 700, 5000, 33000, 300000, 3 * MIB};
    life               *l       = arg;
    usm_pool           *pool    = make(0);
    void               *p[3 * COUNT(sizes)];

    CHECK(usm__fault_arm(l->point, l->n, l->onwards, USM_OK));
    FOR(i, COUNT(p))
    {
        p[i] = usm_pool_malloc(pool, sizes[i % COUNT(sizes)]);
        if (!p[i])
            CHECK_INT(usm_last_status(), USM_E_NO_MEMORY);
        if (i % 3 == 0)
            usm_free(p[i]);
    }
    l->failed = usm__fault_fired() > 0;
    usm__fault_disarm_all();
    FOR(i, COUNT(p)) if (i % 3 != 0) usm_free(p[i]);
    CHECK_INT(figures(pool).live, 0);
    FOR(i, COUNT(sizes)) usm_free(get(pool, sizes[i]));
    OK(usm_pool_trim_to(pool, 0));
    CHECK_INT(figures(pool).reserved, 0);
    usm_pool_destroy(pool);
    return NULL;
}

static void every_step_of_growth_may_fail(void)
{
    static const char *const points[] = {"heap.alloc", "os.mmap", "os.memfd"};

    OK(usm_config_set("log", "off"));
    FOR(i, COUNT(points)) FOR(onwards, 2)
    {
        life l = {.point = points[i], .onwards = onwards, .failed = true};

        for (l.n = 1; l.failed; l.n++)
            on_another_thread(live_under_failure, &l);
        CHECK(l.n > 3 || i == 2); /* memfd: guarded memory only */
    }
}

/* --- wrong frees ------------------------------------------------------------------------------ */

static void free_wrongly_to(usm_pool *pool, void *p)
{
    void (*volatile fn)(usm_pool *, void *) = usm_pool_free;

    fn(pool, p);
}

static void wrong_frees_of(usm_pool *pool, size_t size)
{
    char    *p    = get(pool, size);
    uint64_t live = figures(pool).live;

    free_wrongly(p + 1);
    CHECK_INT(usm_last_status(), USM_E_INTERIOR_POINTER);
    free_wrongly(p + size - 1);
    CHECK_INT(usm_last_status(), USM_E_INTERIOR_POINTER);
    free_wrongly_to(pool, p + size / 2);
    CHECK_INT(usm_last_status(), USM_E_INTERIOR_POINTER);
    CHECK_INT(usm_free_ctx(p + 1, ctx), USM_E_INTERIOR_POINTER);
    CHECK_INT(figures(pool).live, live);
    free_wrongly(p);
    live = figures(pool).live;
    free_wrongly(p);
    CHECK_INT(usm_last_status(), USM_E_DOUBLE_FREE);
    free_wrongly_to(pool, p);
    CHECK_INT(usm_last_status(), USM_E_DOUBLE_FREE);
    on_another_thread(free_block, p); /* on that thread's story */
    CHECK_INT(usm_free_ctx(p, NULL), USM_E_DOUBLE_FREE);
    p = get(pool, size);
    usm_pool_free(pool, p);
    free_wrongly_to(pool, p);
    CHECK_INT(usm_last_status(), USM_E_DOUBLE_FREE);
    CHECK_INT(figures(pool).live, live);
}

static void wrong_frees_are_refused(void)
{
    static const size_t sizes[] = {64, 100, 5000, 40000, 300000, 3 * MIB};
    usm_pool           *pool = make(0), *other = make(0);
    char                mine[64];
    void               *p;

    OK(usm_config_set("log", "off"));
    FOR(i, COUNT(sizes)) wrong_frees_of(pool, sizes[i]);
    free_wrongly(mine);
    CHECK_INT(usm_last_status(), USM_E_INVALID_POINTER);
    CHECK_INT(usm_free_ctx((void *)(uintptr_t)0xffff800000001000u, NULL), USM_E_INVALID_POINTER);
    p = get(pool, 3 * MIB);
    free_wrongly_to(other, p);
    CHECK_INT(usm_last_status(), USM_E_INVALID_POINTER);
    usm_pool_free(pool, p);
    p = get(pool, 100);
    free_wrongly_to(other, p);
    CHECK_INT(usm_last_status(), USM_E_INVALID_POINTER);
    CHECK_INT(figures(pool).blocks, 1);
    usm_pool_free_sized(pool, p, 129);
    CHECK_INT(usm_last_status(), USM_E_SIZE);
    usm_pool_free_sized(pool, p, 100);
    CHECK_INT(figures(pool).blocks, 0);
    usm_pool_destroy(other);
    usm_pool_destroy(pool);
    free_wrongly(p);
}

static struct {
    pthread_barrier_t turn;
    void             *p;
    size_t            rounds;
} race;

static void *free_with_another(void *arg)
{
    (void)arg;
    FOR(i, race.rounds)
    {
        pthread_barrier_wait(&race.turn);
        free_wrongly(race.p);
        pthread_barrier_wait(&race.turn);
    }
    return NULL;
}

/* Two frees of one block are a data race of the program, which ThreadSanitizer reports. */
#if defined(__SANITIZE_THREAD__)
#define SEES_RACES true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SEES_RACES true
#endif
#endif
#ifndef SEES_RACES
#define SEES_RACES false
#endif

/* A block that two free at the same moment may be free twice; nothing breaks that is libusm's. */
static void racing_double_frees_break_nothing(void)
{
    static const size_t sizes[] = {64, 5000, 32 * KIB, 40000, 600000};
    usm_pool           *pool    = make_kind(ctx, USM_DEVICE, 0);
    crew                c;
    unsigned            seed = 7;

    OK(usm_config_set("log", "off"));
    if (SEES_RACES) {
        usm_pool_destroy(pool);
        return;
    }
    race.rounds = FEWER(5000);
    CHECK_INT(pthread_barrier_init(&race.turn, NULL, 3), 0);
    hire(&c, 2, free_with_another, NULL);
    FOR(i, race.rounds)
    {
        race.p = get(pool, sizes[below(&seed, COUNT(sizes))]);
        pthread_barrier_wait(&race.turn);
        pthread_barrier_wait(&race.turn);
        if (i % 100 == 0)
            OK(usm_pool_trim_to(pool, 0));
    }
    dismiss(&c);
    pthread_barrier_destroy(&race.turn);
    OK(usm_pool_trim_to(pool, 0));
    fill_cache(pool);
    usm_pool_destroy(pool);
}

static void frees_that_come_late_are_harmless(void)
{
    usm_context *mine = NULL;
    usm_pool    *pool;
    void        *p, *q;

    OK(usm_config_set("log", "off"));
    OK(usm_context_create(NULL, &mine));
    pool = make_kind(mine, USM_HOST, 0);
    p    = get(pool, 100);
    q    = get(pool, 100);
    free_wrongly(q);
    usm_context_destroy(mine);
    free_wrongly(p);
    on_another_thread(free_block, p);
    free_wrongly(q);
    CHECK(usm_pool_malloc(pool, 100) == NULL);

    OK(usm_init());
    p = usm_alloc_host(100);
    q = usm_alloc_host(100);
    CHECK(p && q);
    free_wrongly(q);
    usm_shutdown();
    free_wrongly(p);
    on_another_thread(free_block, p);
    CHECK(usm_alloc_host(100) == NULL);
    CHECK_INT(usm_last_status(), USM_E_SHUTDOWN);
    pool = make(0); /* has the slot now */
    free_wrongly(get(pool, 100));
    CHECK(usm_alloc_host(100) == NULL);
    OK(usm_init());
    p = usm_alloc_host(100);
    CHECK(p && usm__map_find(p)->pool != pool);
    free_wrongly(p);
    usm_pool_destroy(pool);
}

/* --- observed threads, figures ---------------------------------------------------------------- */

static struct {
    usm_pool         *pool;
    pthread_barrier_t turn;
    _Atomic(uint64_t) live, blocks;
    atomic_int        who;
} books;

static void *keep_books(void *arg)
{
    unsigned seed   = (unsigned)books.who++ * 77 + 5;
    void    *p[300] = {NULL};
    size_t   tags   = 0;
    uint64_t live = 0, blocks = 0;

    (void)arg;
    FOR(i, FEWER(200000))
    {
        void **at = &p[below(&seed, COUNT(p))];

        if (below(&seed, 50) == 0)
            OK(tags > 0 ? (tags--, usm_tag_pop()) : (tags++, usm_tag_push("books")));
        usm_free(*at);
        *at = *at ? NULL : get(books.pool, 1 + below(&seed, below(&seed, 99) ? 3000 : 900000));
    }
    FOR(i, COUNT(p)) if (p[i])
    {
        usm_block block;
        /* What the pool counts: its block, which a tag does not change. */
        OK(usm__pool_block_plain(usm__map_find(p[i]), p[i], &block));
        live += block.size;
        blocks++;
    }
    books.live += live;
    books.blocks += blocks;
    pthread_barrier_wait(&books.turn);
    pthread_barrier_wait(&books.turn);
    while (tags-- > 0)
        OK(usm_tag_pop());
    FOR(i, COUNT(p)) usm_free(p[i]);
    return NULL;
}

static void figures_are_exact_once_nobody_is_at_work(void)
{
    crew           c;
    usm_pool_stats s;

    books.pool = make(0);
    CHECK_INT(pthread_barrier_init(&books.turn, NULL, 5), 0);
    hire(&c, 4, keep_books, NULL);
    pthread_barrier_wait(&books.turn);
    s = figures(books.pool);
    CHECK_INT(s.live, books.live);
    CHECK_INT(s.blocks, books.blocks);
    CHECK(s.threads > 0 && s.threads <= 4); /* one may have lost its cache to another */
    CHECK(s.thread_cached > 0 && s.thread_cached + s.depot_cached <= CACHE);
    CHECK(s.live_peak + s.live_peak_error >= s.live);
    pthread_barrier_wait(&books.turn);
    dismiss(&c);
    s = figures(books.pool);
    CHECK_INT(s.live, 0);
    CHECK_INT(s.blocks, 0);
    CHECK(s.live_peak + s.live_peak_error >= books.live);
    pthread_barrier_destroy(&books.turn);
    usm_pool_destroy(books.pool);
}

static uint64_t attribute(usm_pool *pool, usm_pool_attribute which)
{
    uint64_t value = UINT64_MAX;

    OK(usm_pool_get_attribute(pool, which, &value));
    return value;
}

static void attributes_tell_what_caches_hold(void)
{
    usm_pool_desc  desc = USM_POOL_DESC_INIT;
    usm_pool      *pool;
    usm_pool_stats s;

    desc.name         = "slab";
    desc.thread_cache = 1 << 20;
    OK(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool));
    CHECK_INT(attribute(pool, USM_POOL_CACHED_CURRENT), 0);
    usm_free(usm_pool_malloc(pool, 100));
    s = figures(pool);
    CHECK(s.thread_cached > 0);
    CHECK_INT(attribute(pool, USM_POOL_CACHED_CURRENT), s.thread_cached + s.depot_cached);
    CHECK_INT(attribute(pool, USM_POOL_CACHED_LIMIT), 1 << 20);
    CHECK_INT(usm_pool_set_attribute(pool, USM_POOL_CACHED_CURRENT, 0), USM_E_INVALID);
    CHECK_INT(usm_pool_set_attribute(pool, USM_POOL_CACHED_LIMIT, 0), USM_E_INVALID);
    OK(usm_pool_trim_to(pool, 0));
    CHECK_INT(attribute(pool, USM_POOL_CACHED_CURRENT), 0);
    usm_pool_destroy(pool);

    desc.name = "direct";
    OK(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool));
    CHECK_INT(attribute(pool, USM_POOL_CACHED_LIMIT), 0);
    usm_pool_destroy(pool);
}

static void check_the_peak(size_t maximum_size)
{
    usm_pool      *pool      = make(maximum_size);
    void          *p[400]    = {NULL};
    size_t         size[400] = {0};
    uint64_t       live = 0, peak = 0;
    unsigned       seed = 3;
    usm_pool_stats s;

    FOR(i, 30000)
    {
        size_t k = below(&seed, COUNT(p));

        if (p[k]) {
            usm_free(p[k]);
            live -= size[k];
            p[k] = NULL;
        } else {
            p[k]    = get(pool, 1 + below(&seed, below(&seed, 20) ? 2000 : 150000));
            size[k] = usm__page_find(p[k])->size;
            live += size[k];
        }
        peak = live > peak ? live : peak;
        s    = figures(pool);
        CHECK_INT(s.live, live);
        CHECK(s.live_peak <= peak && s.live_peak + s.live_peak_error >= peak);
        if (i % 3000 == 0) {
            OK(usm_pool_reset_peaks(pool));
            peak = live;
        }
    }
    CHECK(s.live_peak_error <= (maximum_size ? maximum_size / 16 : CACHE));
    usm_pool_destroy(pool);
}

static void the_peak_is_as_exact_as_it_says(void)
{
    check_the_peak(0);
    check_the_peak(64 * MIB);
}

/* --- alignment, size -------------------------------------------------------------------------- */

static void check_block(usm_pool *pool, size_t align, size_t size)
{
    char  *p      = usm_pool_aligned_alloc(pool, align, size);
    size_t usable = usm_usable_size(p);

    CHECK(p != NULL);
    CHECK_INT((uintptr_t)p % (align ? align : 64), 0);
    CHECK(usable >= size);
    p[0] = p[usable - 1] = 1;
    if (align <= 64 && usm_class_of(size) < USM_BINS && !all_are_observed())
        CHECK_INT(usable, usm_class_size(usm_class_of(size)));
    if (size % 3 == 0)
        usm_pool_free_sized(pool, p, size);
    else
        usm_pool_free(pool, p);
}

static void blocks_are_aligned_and_sized(void)
{
    usm_pool *pool = make(0);

    FOR(k, USM_BINS)
    {
        size_t size = usm_class_size((unsigned)k);

        check_block(pool, 0, size);
        for (size_t align = 1; align <= 2 * MIB; align *= 2) {
            check_block(pool, align, size - 1);
            check_block(pool, align, size);
            check_block(pool, align, size + 1);
        }
    }
    CHECK_INT(figures(pool).live, 0);
    usm_pool_destroy(pool);
}

static void pools_may_zero_and_align(void)
{
    static const size_t aligns[] = {4096, 2 * MIB};
    static const size_t sizes[]  = {1, 100, 4097, 100000};
    usm_pool_desc       desc     = USM_POOL_DESC_INIT;
    usm_pool           *pool     = NULL;

    desc.name      = "slab";
    desc.zero_init = true;
    FOR(a, COUNT(aligns))
    {
        desc.min_align = aligns[a];
        OK(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool));
        FOR(i, 3 * COUNT(sizes))
        {
            size_t size = sizes[i % COUNT(sizes)];
            char  *p    = get(pool, size);

            CHECK_INT((uintptr_t)p % aligns[a], 0);
            FOR(k, size) CHECK_INT(p[k], 0);
            memset(p, 0x5a, size);
            usm_free(p);
        }
        CHECK_INT(figures(pool).live, 0);
        usm_pool_destroy(pool);
    }
}

static void batches_are_blocks_like_others(void)
{
    usm_pool *pool = make(0);
    void     *p[500];

    CHECK_INT(usm_pool_malloc_batch(pool, 300, COUNT(p), p), COUNT(p));
    CHECK_INT(figures(pool).blocks, COUNT(p));
    p[7] = (usm_free(p[7]), NULL);
    usm_pool_free_batch(pool, COUNT(p), p);
    CHECK_INT(figures(pool).blocks, 0);
    usm_pool_destroy(pool);
}

/* --- trim ------------------------------------------------------------------------------------- */

static void a_trim_takes_all_that_is_not_in_use(void)
{
    usm_pool *pool = make(0);
    uint64_t  calls;
    crew      c;

    CHECK_INT(pthread_barrier_init(&idle_turn, NULL, 4), 0);
    hire(&c, 3, fill_and_wait, pool);
    pthread_barrier_wait(&idle_turn);
    fill_cache(pool);
    usm_free(get(pool, 5 * MIB));
    CHECK(figures(pool).reserved > 0);
    OK(usm_pool_trim_to(pool, 0));
    CHECK_INT(figures(pool).reserved, 0);
    CHECK_INT(figures(pool).thread_cached, 0);
    usm_free(get(pool, 100));
    calls = figures(pool).driver_allocs;
    FOR(i, 10000) usm_free(get(pool, 100));
    CHECK_INT(figures(pool).driver_allocs, calls);
    pthread_barrier_wait(&idle_turn);
    dismiss(&c);
    pthread_barrier_destroy(&idle_turn);
    usm_pool_destroy(pool);
}

static void a_pool_may_have_no_caches(void)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;
    void         *p;

    desc.name         = "slab";
    desc.thread_cache = 1;
    OK(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool));
    fill_cache(pool);
    p = get(pool, 100);
    CHECK_INT(figures(pool).threads, 0);
    CHECK_INT(figures(pool).thread_cached + figures(pool).depot_cached, 0);
    CHECK_INT(figures(pool).blocks, 1);
    CHECK_INT(figures(pool).live_peak_error, 0);
    usm_free(p);
    wrong_frees_of(pool, 100);
    usm_pool_destroy(pool);
}

static const plain_case cases[] = {
    CASE(every_step_of_growth_may_fail),
    CASE(wrong_frees_are_refused),
    CASE(racing_double_frees_break_nothing),
    CASE(frees_that_come_late_are_harmless),
    CASE(figures_are_exact_once_nobody_is_at_work),
    CASE(attributes_tell_what_caches_hold),
    CASE(the_peak_is_as_exact_as_it_says),
    CASE(blocks_are_aligned_and_sized),
    CASE(pools_may_zero_and_align),
    CASE(batches_are_blocks_like_others),
    CASE(a_trim_takes_all_that_is_not_in_use),
    CASE(a_pool_may_have_no_caches),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_cases(argc, argv, cases);
}
