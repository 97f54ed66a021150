/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tags: who allocates (usm/tag.h). */
#include "plain.h"

#include <stdatomic.h>
#include <usm/usm.h>

#define OK(call) CHECK_INT((call), USM_OK)

static usm_tag_stats stats_of(const char *name)
{
    usm_tag_stats s = USM_TAG_STATS_INIT;

    OK(usm_tag_get_stats(name, &s));
    return s;
}

static void blocks_belong_to_the_innermost_tag(void)
{
    void *a, *b, *c;

    OK(usm_tag_push("outer"));
    a = usm_alloc_host(1000);
    OK(usm_tag_push("inner"));
    b = usm_alloc_shared(50);
    OK(usm_tag_pop());
    c = usm_alloc_host(1);
    OK(usm_tag_pop());
    CHECK(a && b && c);
    CHECK_INT(stats_of("outer").live, 1001);
    CHECK_INT(stats_of("outer").blocks, 2);
    CHECK_INT(stats_of("inner").live, 50);
    CHECK_STR(stats_of("inner").name, "inner");
    usm_free(a);
    usm_free(b);
    usm_free(c);
    CHECK_INT(stats_of("outer").live, 0);
    CHECK_INT(stats_of("outer").blocks, 0);
    CHECK_INT(stats_of("outer").live_peak, 1001);
    CHECK_INT(stats_of("outer").allocations, 2);
    CHECK_INT(stats_of("inner").live, 0);
}

static void without_a_tag_nothing_is_counted(void)
{
    void *p;

    OK(usm_tag_push("before"));
    OK(usm_tag_pop());
    p = usm_alloc_host(100);
    usm_free(p);
    CHECK_INT(usm_tag_get_stats("before", &(usm_tag_stats)USM_TAG_STATS_INIT), USM_E_INVALID);
    CHECK_IN("before", usm_last_error());
}

static void *allocate_there(void *size)
{
    void *p;

    OK(usm_tag_push("thread"));
    p = usm_alloc_host(*(const size_t *)size);
    CHECK(p != NULL);
    return p; /* ends with its tag pushed */
}

static void any_thread_frees(void)
{
    size_t    size = 640;
    pthread_t thread;
    void     *p[20];

    for (int i = 0; i < 20; i++) {
        CHECK(pthread_create(&thread, NULL, allocate_there, &size) == 0);
        CHECK(pthread_join(thread, &p[i]) == 0);
    }
    CHECK_INT(stats_of("thread").live, 20 * 640);
    for (int i = 0; i < 20; i++)
        usm_free(p[i]);
    CHECK_INT(stats_of("thread").live, 0);
    CHECK_INT(stats_of("thread").blocks, 0);
}

static void *allocate_untagged(void *arg)
{
    void *p = usm_alloc_host(64);

    (void)arg;
    CHECK(p != NULL);
    return p;
}

/* The second thread may get the block of the first, which ended with a tag pushed. */
static void tags_end_with_their_thread(void)
{
    uint64_t  before;
    size_t    size = 8;
    pthread_t thread;
    void     *p = NULL;

    CHECK(pthread_create(&thread, NULL, allocate_there, &size) == 0);
    CHECK(pthread_join(thread, &p) == 0);
    usm_free(p);
    before = stats_of("thread").allocations;
    CHECK(pthread_create(&thread, NULL, allocate_untagged, NULL) == 0);
    CHECK(pthread_join(thread, &p) == 0);
    usm_free(p);
    CHECK_INT(stats_of("thread").allocations, before);
}

static void wrong_use_is_refused(void)
{
    usm_tag_stats small = USM_TAG_STATS_INIT;

    CHECK_INT(usm_tag_push(NULL), USM_E_INVALID);
    CHECK_INT(usm_tag_push(""), USM_E_INVALID);
    CHECK_INT(usm_tag_pop(), USM_E_INVALID);
    for (int i = 0; i < 32; i++)
        OK(usm_tag_push("deep"));
    CHECK_INT(usm_tag_push("deeper"), USM_E_INVALID);
    CHECK_IN("32", usm_last_error());
    for (int i = 0; i < 32; i++)
        OK(usm_tag_pop());
    CHECK_INT(usm_tag_pop(), USM_E_INVALID);
    CHECK_INT(usm_tag_get_stats(NULL, &small), USM_E_INVALID);
    CHECK_INT(usm_tag_get_stats("outer", NULL), USM_E_INVALID);
    small.struct_size = 8;
    CHECK_INT(usm_tag_get_stats("outer", &small), USM_E_ABI);
}

static void names_are_cut_after_63_bytes(void)
{
    char  a[100], b[100];
    void *p;

    memset(a, 'x', 99);
    memset(b, 'x', 99);
    a[99] = b[70] = '\0';
    OK(usm_tag_push(a));
    p = usm_alloc_host(12);
    OK(usm_tag_pop());
    CHECK_INT(stats_of(b).live, 12);
    CHECK_INT(strlen(stats_of(b).name), 63);
    usm_free(p);
    CHECK_INT(stats_of(a).live, 0);
}

static void what_fails_is_not_counted(void)
{
    void *p;

    OK(usm_tag_push("careful"));
    p = usm_alloc_host(10);
    CHECK(usm_alloc_host((size_t)1 << 62) == NULL);
    CHECK(usm_aligned_alloc(3, 10, USM_HOST) == NULL);
    OK(usm_tag_pop());
    CHECK_INT(stats_of("careful").live, 10);
    CHECK_INT(usm_free_ctx((char *)p + 1, NULL), USM_E_INTERIOR_POINTER);
    CHECK_INT(stats_of("careful").live, 10);
    OK(usm_free_ctx(p, NULL));
    CHECK_INT(usm_free_ctx(p, NULL), USM_E_DOUBLE_FREE);
    CHECK_INT(stats_of("careful").live, 0);
    CHECK_INT(stats_of("careful").blocks, 0);
}

static void queries_see_tagged_blocks(void)
{
    char  *p;
    void  *base = NULL;
    size_t size = 0;

    OK(usm_tag_push("seen"));
    p = usm_alloc_shared(300);
    OK(usm_tag_pop());
    CHECK(usm_get_pointer_type(p + 299, NULL) == USM_SHARED);
    CHECK(usm_usable_size(p) >= 300);
    OK(usm_get_address_range(p + 7, NULL, &base, &size));
    CHECK(base == p && size >= 300);
    p = usm_realloc(p, 100000, USM_UNKNOWN); /* untagged now */
    CHECK(p != NULL);
    CHECK_INT(stats_of("seen").live, 0);
    usm_free(p);
}

static usm_pool *pool_named(const char *name)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;

    desc.name = name;
    return usm_pool_create(usm_default_context(), NULL, USM_HOST, &desc, &pool) == USM_OK ? pool
                                                                                          : NULL;
}

static void use_pool(usm_pool *pool)
{
    void *p[100];

    OK(usm_tag_push("pools"));
    for (int i = 0; i < 100; i++)
        CHECK((p[i] = usm_pool_malloc(pool, 100)) != NULL);
    OK(usm_tag_pop());
    CHECK_INT(stats_of("pools").live, 10000);
    for (int i = 0; i < 50; i++)
        usm_pool_free(pool, p[i]);
    CHECK_INT(stats_of("pools").live, 5000);
    usm_pool_destroy(pool); /* the rest goes with it */
    CHECK_INT(stats_of("pools").live, 0);
    CHECK_INT(stats_of("pools").blocks, 0);
}

static void every_pool_has_tags(void)
{
    static const char *const names[] = {"slab", "arena", "direct", "jemalloc"};
    int                      n       = 0;

    for (size_t i = 0; i < 4; i++) {
        usm_pool *pool = pool_named(names[i]);

        if (pool) {
            use_pool(pool);
            n++;
        }
    }
    CHECK(n >= 2);
}

static void what_a_reset_took_is_not_live(void)
{
    usm_pool *pool = pool_named("arena");

    OK(usm_tag_push("reset"));
    CHECK(usm_pool_malloc(pool, 100) && usm_pool_malloc(pool, 100));
    OK(usm_tag_pop());
    OK(usm_pool_reset(pool));
    CHECK_INT(stats_of("reset").live, 0);
    OK(usm_tag_push("reset"));
    CHECK(usm_pool_malloc(pool, 30));
    OK(usm_tag_pop());
    CHECK_INT(stats_of("reset").live, 30);
    usm_pool_destroy(pool);
    CHECK_INT(stats_of("reset").live, 0);
}

static void what_came_after_a_mark_goes_with_it(void)
{
    usm_pool     *pool = pool_named("arena");
    usm_pool_mark mark;
    void         *p;

    OK(usm_tag_push("marked"));
    p = usm_pool_malloc(pool, 100);
    OK(usm_pool_set_mark(pool, &mark));
    CHECK(p && usm_pool_malloc(pool, 7));
    OK(usm_tag_pop());
    OK(usm_pool_reset_to(pool, &mark));
    CHECK_INT(stats_of("marked").live, 100);
    usm_pool_free(pool, p);
    CHECK_INT(stats_of("marked").live, 0);
    usm_pool_destroy(pool);
}

/* --- many threads
 * ---------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS  3000
#define HELD    64

static _Atomic(void *) shelf[HELD]; /* blocks change hands here */

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void *work(void *arg)
{
    unsigned    state   = (unsigned)(size_t)arg * 7919u + 1;
    const char *names[] = {"red", "green", "blue"};

    for (int i = 0; i < ROUNDS; i++) {
        unsigned r      = next_random(&state);
        bool     tagged = r % 4 != 0;
        void    *p;

        if (tagged)
            OK(usm_tag_push(names[r % 3]));
        p = usm_alloc_host(r % 5000);
        CHECK(p != NULL);
        if (tagged)
            OK(usm_tag_pop());
        usm_free(atomic_exchange(&shelf[r % HELD], p));
    }
    return NULL;
}

static void live_bytes_come_out_even_after_blocks_changed_hands(void)
{
    pthread_t threads[THREADS];

    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (size_t i = 0; i < HELD; i++)
        usm_free(shelf[i]);
    CHECK_INT(stats_of("red").live + stats_of("green").live + stats_of("blue").live, 0);
    CHECK_INT(stats_of("red").blocks + stats_of("green").blocks + stats_of("blue").blocks, 0);
    CHECK(stats_of("red").allocations > 0);
}

static const plain_case cases[] = {
    CASE(blocks_belong_to_the_innermost_tag),
    CASE(without_a_tag_nothing_is_counted),
    CASE(any_thread_frees),
    CASE(tags_end_with_their_thread),
    CASE(wrong_use_is_refused),
    CASE(names_are_cut_after_63_bytes),
    CASE(what_fails_is_not_counted),
    CASE(queries_see_tagged_blocks),
    CASE(every_pool_has_tags),
    CASE(what_a_reset_took_is_not_live),
    CASE(what_came_after_a_mark_goes_with_it),
    CASE(live_bytes_come_out_even_after_blocks_changed_hands),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
