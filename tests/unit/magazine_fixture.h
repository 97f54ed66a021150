/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* For tests of thread caches by the public functions: a context, pools `slab` in it, threads. */
#ifndef MAGAZINE_FIXTURE_H
#define MAGAZINE_FIXTURE_H

#include "base/inline/classes.h"
#include "heap/magazine.h"
#include "observe/observe.h"

#include <plain.h>
#include <stdatomic.h>
#include <stdint.h>
#include <usm/usm.h>

#define KIB       ((size_t)1 << 10)
#define MIB       ((size_t)1 << 20)
#define CACHE     (32 * MIB) /* what the caches of all threads of a small pool may hold */
#define OK(call)  CHECK_INT((call), USM_OK)
#define COUNT(a)  (sizeof(a) / sizeof *(a))
#define FEWER(n)  ((n) / (PLAIN_SANITIZED ? 10 : is_long ? 1 : 4))
#define FOR(i, n) for (size_t i = 0; i < (n); i++)

static usm_context *ctx;
static bool         is_long; /* USM_TEST_LONG is set: all repetitions */

/* --- pools, figures, threads ------------------------------------------------------------------ */

static inline usm_pool *make_kind(usm_context *in, usm_kind kind, size_t maximum_size)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;

    desc.name         = "slab";
    desc.maximum_size = maximum_size;
    OK(usm_pool_create(in, NULL, kind, &desc, &pool));
    return pool;
}

static inline usm_pool *make(size_t maximum_size)
{
    return make_kind(ctx, USM_HOST, maximum_size);
}

static inline usm_pool_stats figures(usm_pool *pool)
{
    usm_pool_stats s = USM_POOL_STATS_INIT;

    OK(usm_pool_get_stats(pool, &s));
    CHECK(s.live_peak >= s.live);
    return s;
}

static inline void *get(usm_pool *pool, size_t size)
{
    void *p = usm_pool_malloc(pool, size);

    CHECK(p != NULL);
    return p;
}

/* Every thread is observed here (USM_VALIDATION, AddressSanitizer): a block's size is what was
 * asked for. */
static inline bool all_are_observed(void)
{
    return usm__observers.flags != 0;
}

static inline unsigned below(unsigned *seed, unsigned n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

typedef struct crew {
    pthread_t threads[16];
    size_t    n;
} crew;

static inline void hire(crew *c, size_t n, void *(*fn)(void *), void *arg)
{
    c->n = n;
    FOR(i, n) CHECK_INT(pthread_create(&c->threads[i], NULL, fn, arg), 0);
}

static inline void dismiss(crew *c)
{
    FOR(i, c->n) CHECK_INT(pthread_join(c->threads[i], NULL), 0);
}

static inline void on_another_thread(void *(*fn)(void *), void *arg)
{
    crew c;

    hire(&c, 1, fn, arg);
    dismiss(&c);
}

/* Wrong frees, of which compilers warn where they see them. */
static inline void free_wrongly(void *p)
{
    void (*volatile fn)(void *) = usm_free;

    fn(p);
}

static inline void *free_block(void *p)
{
    free_wrongly(p);
    return NULL;
}

/* Leaves magazines of many classes behind. */
static inline void fill_cache(usm_pool *pool)
{
    void *p[64];

    for (size_t size = 64; size <= 64 * KIB; size *= 2) {
        size_t n = 0;

        while (n < COUNT(p) && (p[n] = usm_pool_malloc(pool, size)) != NULL)
            n++;
        FOR(i, n) usm_pool_free(pool, p[i]);
    }
}

static pthread_barrier_t idle_turn;

static inline void *fill_and_wait(void *pool)
{
    fill_cache(pool);
    pthread_barrier_wait(&idle_turn);
    pthread_barrier_wait(&idle_turn);
    usm_free(usm_pool_malloc(pool, 100)); /* its cache was taken away */
    return NULL;
}

static inline int run_cases(int argc, char **argv, const plain_case *cases)
{
    int result;

    is_long = getenv("USM_TEST_LONG") != NULL;
    (void)alarm(300); /* one that hangs is a failure too */
    /* What is reserved is compared with areas of 2 MiB, as the host has them; PoCL's are a page
     * larger. */
    (void)setenv("USM_DEVICE_SELECTOR", "host:*", 0);
    if (usm_context_create(NULL, &ctx) != USM_OK) {
        printf("# no context: %s\n", usm_last_error());
        return 1;
    }
    result = plain_main(argc, argv, cases);
    usm_context_destroy(ctx);
    return result;
}

#endif
