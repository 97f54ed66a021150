/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Thread caches of the pool `slab`, by the public functions: threads that end, that free what
 * others allocated, that lose their caches while they run; slots that go from pool to pool; memory
 * that is short; wrong frees; fork; figures.
 *
 * Not here: random operations against a model (test_pool_model.c), the heap (test_slab_heap.c).
 * Nothing is timed.  Registered once more with USM_HOST_GUARD_DEVICE=1, where memory does not
 * outlive a fork, and with USM_VALIDATION=1, where every thread is observed. */
#include "base/fault.h"
#include "base/inline/classes.h"
#include "core/magazine.h"
#include "core/registry.h"
#include "pools/slab/slab.h"

#include <dlfcn.h>
#include <link.h>
#include <plain.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>
#include <usm/usm.h>

#define KIB       ((size_t)1 << 10)
#define MIB       ((size_t)1 << 20)
#define CACHE     (2 * MIB) /* most that the magazines of a thread hold */
#define OK(call)  CHECK_INT((call), USM_OK)
#define COUNT(a)  (sizeof(a) / sizeof *(a))
#define FEWER(n)  (PLAIN_SANITIZED ? (n) / 10 : (n))
#define FOR(i, n) for (size_t i = 0; i < (n); i++)

static usm_context *ctx;

/* --- pools, figures, threads ------------------------------------------------------------------ */

static usm_pool *make_kind(usm_context *in, usm_kind kind, size_t maximum_size)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;

    desc.name         = "slab";
    desc.maximum_size = maximum_size;
    OK(usm_pool_create(in, NULL, kind, &desc, &pool));
    return pool;
}

static usm_pool *make(size_t maximum_size)
{
    return make_kind(ctx, USM_HOST, maximum_size);
}

static usm_pool_stats figures(usm_pool *pool)
{
    usm_pool_stats s = USM_POOL_STATS_INIT;

    OK(usm_pool_get_stats(pool, &s));
    CHECK(s.live_peak >= s.live);
    return s;
}

static void *get(usm_pool *pool, size_t size)
{
    void *p = usm_pool_malloc(pool, size);

    CHECK(p != NULL);
    return p;
}

/* Every thread is observed here: no caches in force, blocks are recorded. */
static bool is_validating(void)
{
    const char *text = getenv("USM_VALIDATION");

    return text && strcmp(text, "1") == 0;
}

static unsigned below(unsigned *seed, unsigned n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

typedef struct crew {
    pthread_t threads[16];
    size_t    n;
} crew;

static void hire(crew *c, size_t n, void *(*fn)(void *), void *arg)
{
    c->n = n;
    FOR(i, n) CHECK_INT(pthread_create(&c->threads[i], NULL, fn, arg), 0);
}

static void dismiss(crew *c)
{
    FOR(i, c->n) CHECK_INT(pthread_join(c->threads[i], NULL), 0);
}

static void on_another_thread(void *(*fn)(void *), void *arg)
{
    crew c;

    hire(&c, 1, fn, arg);
    dismiss(&c);
}

/* Wrong frees: compilers know what usm_free() is for. */
static void (*volatile free_wrongly)(void *)                = usm_free;
static void (*volatile free_wrongly_to)(usm_pool *, void *) = usm_pool_free;

static void *free_block(void *p)
{
    free_wrongly(p);
    return NULL;
}

/* Leaves magazines of many classes behind. */
static void fill_cache(usm_pool *pool)
{
    void *p[64];

    for (size_t size = 64; size <= 64 * KIB; size *= 2) {
        size_t n = 0;

        while (n < COUNT(p) && (p[n] = usm_pool_malloc(pool, size)) != NULL)
            n++;
        FOR(i, n) usm_pool_free(pool, p[i]);
    }
}

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
    CHECK_INT(s.thread_cached, 0);
    CHECK_INT(s.blocks, COUNT(v.left));
    CHECK(s.reserved <= early + 2 * MIB);
    FOR(i, COUNT(v.left)) usm_free(v.left[i]);
    CHECK_INT(figures(v.pool).live, 0);
    usm_pool_destroy(v.pool);
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

static pthread_barrier_t idle_turn;

static void *fill_and_wait(void *pool)
{
    fill_cache(pool);
    pthread_barrier_wait(&idle_turn);
    pthread_barrier_wait(&idle_turn);
    usm_free(usm_pool_malloc(pool, 100)); /* its cache was taken away */
    return NULL;
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
    CHECK(figures(pool).thread_cached <= 4 * (LIMIT / 64));
    CHECK(room_of(pool) >= room - 8); /* what lay between the slabs was too small by then */
    CHECK_INT(figures(pool).thread_cached, 0);
    CHECK_INT(room_of(pool), room);
    CHECK_INT(figures(pool).reserved, 0);
    pthread_barrier_wait(&idle_turn);
    dismiss(&c);
    pthread_barrier_destroy(&idle_turn);
    usm_pool_destroy(pool);
}

static void *fill_and_go_on(void *pool)
{
    fill_cache(pool);
    pthread_barrier_wait(&idle_turn);
    return use_at_full_speed(pool);
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
    /* They need a slab of each of four classes, in a piece of 2 MiB or beside it. */
    FOR(i, FEWER(100)) CHECK(room_of(pool) >= room - 10);
    busy_no_more = true;
    dismiss(&c);
    CHECK_INT(room_of(pool), room);
    CHECK_INT(figures(pool).live, 0);
    pthread_barrier_destroy(&idle_turn);
    usm_pool_destroy(pool);
}

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

/* A block that two free at the same moment may be free twice; nothing breaks that is libusm's. */
static void racing_double_frees_break_nothing(void)
{
    static const size_t sizes[] = {64, 5000, 32 * KIB, 40000, 600000};
    usm_pool           *pool    = make_kind(ctx, USM_DEVICE, 0);
    crew                c;
    unsigned            seed = 7;

    OK(usm_config_set("log", "off"));
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

/* --- fork ------------------------------------------------------------------------------------- */

static struct {
    usm_pool *pool, *other;
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

static void a_process_can_fork_in_the_middle_of_all(void)
{
    crew c, d;

    OK(usm_config_set("log", "off"));
    forked.pool  = make(0);
    forked.other = make(0);
    busy_no_more = false;
    hire(&c, 3, use_at_full_speed, forked.pool);
    hire(&d, 1, trim_at_full_speed, forked.pool);
    FOR(i, FEWER(100))
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
    CHECK_INT(s.threads, 4);
    CHECK(s.thread_cached > 0 && s.thread_cached <= 4 * CACHE);
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
    CHECK(s.live_peak_error <= (maximum_size ? maximum_size / 64 : CACHE));
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
    if (align <= 64 && usm_class_of(size) < USM_BINS && !is_validating())
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

/* --- what is called from within --------------------------------------------------------------- */

/* The pool `slab` over a driver in which somebody allocates, as whom it tells of an error may do.
 */
static struct {
    usm_pool_ops        ops;
    const usm_pool_ops *slab;
    usm_area_source     areas;
    usm_pool           *pool;
    atomic_int          calls;
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

static usm_status nested_take(void *source, size_t size, size_t align, usm_area **area)
{
    usm_status status = nested.areas.take(source, size, align, area);

    come_back();
    return status;
}

static usm_status nested_map(void *source, usm_area *area, size_t offset, size_t size)
{
    come_back();
    return nested.areas.map(source, area, offset, size);
}

static void nested_unmap(void *source, usm_area *area, size_t offset, size_t size)
{
    come_back();
    nested.areas.unmap(source, area, offset, size);
}

static usm_status nested_create(const usm_pool_params *params, void **pool)
{
    usm_pool_params p = *params;

    nested.areas  = params->areas;
    p.areas.take  = nested_take;
    p.areas.map   = nested_map;
    p.areas.unmap = nested_unmap;
    return nested.slab->create(&p, pool);
}

static const usm_pool_ops *nested_entry(const usm_host_api *api)
{
    nested.slab       = usm_slab_pool_entry(api);
    nested.ops        = *nested.slab;
    nested.ops.name   = "nested";
    nested.ops.create = nested_create;
    return &nested.ops;
}

static void what_is_called_from_within_may_allocate(void)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;
    crew          c, d;

    desc.name = "nested";
    OK(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool));
    nested.pool  = pool;
    busy_no_more = false;
    hire(&c, 2, use_at_full_speed, pool);
    hire(&d, 1, trim_at_full_speed, pool);
    FOR(i, FEWER(300)) fill_cache(pool);
    busy_no_more = true;
    dismiss(&c);
    dismiss(&d);
    nested.pool = NULL;
    CHECK(nested.calls > 0);
    OK(usm_pool_trim_to(pool, 0));
    CHECK_INT(figures(pool).live, 0);
    CHECK_INT(figures(pool).reserved, 0);
    usm_pool_destroy(pool);
}

/* --- libusm.so and its thread-local storage --------------------------------------------------- */

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
    CHECK(PLAIN_SANITIZED || (tls > 0 && tls <= 64)); /* dlopen() has little of static storage */
    CHECK_INT(dlclose(library), 0);
    return NULL; /* the thread's end runs code of the library */
}

static void the_library_can_be_loaded_late(void)
{
    static char path[512];
    const char *build = getenv("USM_TEST_BINARY_DIR");

    (void)snprintf(path, sizeof path, "%.400s/lib/libusm.so", build ? build : ".");
    if (access(path, R_OK) != 0)
        SKIP("there is no libusm.so in this build");
    FOR(i, 3) on_another_thread(load_use_and_unload, path);
}

static const plain_case cases[] = {
    CASE(threads_that_end_leave_their_blocks_to_others),
    CASE(a_thread_may_free_what_it_never_allocated),
    CASE(a_slot_serves_only_the_pool_that_has_it),
    CASE(pools_come_and_go_beside_a_busy_one),
    CASE(there_can_be_more_pools_than_slots),
    CASE(idle_caches_are_taken_back_when_memory_is_short),
    CASE(busy_caches_are_taken_back_when_memory_is_short),
    CASE(every_step_of_growth_may_fail),
    CASE(wrong_frees_are_refused),
    CASE(racing_double_frees_break_nothing),
    CASE(frees_that_come_late_are_harmless),
    CASE(a_process_can_fork_in_the_middle_of_all),
    CASE(figures_are_exact_once_nobody_is_at_work),
    CASE(the_peak_is_as_exact_as_it_says),
    CASE(blocks_are_aligned_and_sized),
    CASE(pools_may_zero_and_align),
    CASE(batches_are_blocks_like_others),
    CASE(a_trim_takes_all_that_is_not_in_use),
    CASE(what_is_called_from_within_may_allocate),
    CASE(the_library_can_be_loaded_late),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    int result;

    (void)alarm(300); /* one that hangs is a failure too */
    usm__registry_add_pool("nested", nested_entry);
    if (usm_context_create(NULL, &ctx) != USM_OK) {
        printf("# no context: %s\n", usm_last_error());
        return 1;
    }
    result = plain_main(argc, argv, cases);
    usm_context_destroy(ctx);
    return result;
}
