/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a pool costs besides its blocks (src/heap): the addresses that it reserves, and the host
 * memory that describes its blocks once they are freed and the pool is trimmed. */
#include "plain.h"

#include <malloc.h>
#include <pthread.h>
#include <usm/usm.h>

#define KIB     ((size_t)1 << 10)
#define MIB     ((size_t)1 << 20)
#define POOLS   50
#define THREADS 3

static usm_pool *pools[POOLS];

static size_t pages_of_process(size_t *resident)
{
    size_t total = 0;
    FILE  *f     = fopen("/proc/self/statm", "r");

    CHECK(f && fscanf(f, "%zu %zu", &total, resident) == 2);
    (void)fclose(f);
    return total;
}

static void create_all(void)
{
    for (size_t i = 0; i < POOLS; i++)
        CHECK_INT(usm_pool_create(NULL, NULL, USM_DEVICE, NULL, &pools[i]), USM_OK);
}

static void destroy_all(void)
{
    for (size_t i = 0; i < POOLS; i++)
        usm_pool_destroy(pools[i]);
}

/* Blocks of every class, a magazine of each and more, and some larger ones. */
static void use(usm_pool *pool)
{
    void  *p[8192];
    size_t n = 0;

    for (size_t size = 64; size <= 4 * MIB; size += size < KIB ? 64 : size / 8)
        for (size_t i = 0; i < (size <= KIB ? 130 : 4); i++) {
            p[n] = usm_pool_malloc(pool, size);
            CHECK(p[n++]);
        }
    while (n > 0)
        usm_pool_free(pool, p[--n]);
}

/* KiB a pool that the process has more than it had. */
typedef struct footprint {
    long addresses, memory;
} footprint;

static footprint now(void)
{
    size_t resident = 0, total = pages_of_process(&resident);

    return (footprint){(long)(total * 4), (long)(resident * 4)};
}

static footprint growth_since(footprint before)
{
    footprint f = now();

    return (footprint){(f.addresses - before.addresses) / POOLS,
                       (f.memory - before.memory) / POOLS};
}

static void addresses_are_reserved_by_need(void)
{
    footprint before;

    create_all();
    before = now();
    for (size_t i = 0; i < POOLS; i++)
        CHECK(usm_pool_malloc(pools[i], MIB));
    CHECK(growth_since(before).addresses < 512 << 10);
    destroy_all();
}

static void a_trim_gives_back_what_describes_blocks(void)
{
    footprint before, growth;

    create_all();
    before = now();
    for (size_t i = 0; i < POOLS; i++) {
        use(pools[i]);
        CHECK_INT(usm_pool_trim_to(pools[i], 0), USM_OK);
    }
    growth = growth_since(before);
    printf("# a pool that was used and trimmed: %ld KiB of addresses, %ld of memory\n",
           growth.addresses, growth.memory);
    CHECK(growth.addresses < 16 << 10);
    CHECK(growth.memory < 32);
    use(pools[0]);
    destroy_all();
}

static void *use_all(void *arg)
{
    pthread_barrier_t *step = arg;

    for (size_t i = 0; i < POOLS; i++)
        use(pools[i]);
    for (int i = 0; i < 3; i++) /* used, trimmed, measured */
        (void)pthread_barrier_wait(step);
    return NULL;
}

/* Bytes in use of the heap that malloc() has. */
static long heap(void)
{
    struct mallinfo2 m = mallinfo2();

    return (long)(m.uordblks + m.hblkhd);
}

/* Each thread has magazines of each pool, and is neither at work nor about to be.  *used, *trimmed:
 * bytes of malloc() a pool, more than at the start. */
static void have_idle_threads(long *used, long *trimmed)
{
    pthread_t         threads[THREADS];
    pthread_barrier_t step;
    long              before;

    create_all();
    before = heap();
    CHECK_INT(pthread_barrier_init(&step, NULL, THREADS + 1), 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, use_all, &step), 0);
    (void)pthread_barrier_wait(&step);
    *used = (heap() - before) / POOLS;
    for (size_t i = 0; i < POOLS; i++)
        CHECK_INT(usm_pool_trim_to(pools[i], 0), USM_OK);
    (void)pthread_barrier_wait(&step);
    *trimmed = (heap() - before) / POOLS;
    (void)pthread_barrier_wait(&step);
    for (size_t i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK_INT(pthread_barrier_destroy(&step), 0);
    destroy_all();
}

/* What describes slabs is the process's, for the next slab of any pool: the first round makes it.
 */
static void a_trim_gives_magazines_of_idle_threads_back(void)
{
    long used, trimmed;

    have_idle_threads(&used, &trimmed);
    have_idle_threads(&used, &trimmed);
    printf("# bytes of malloc() that a pool has: %ld used, %ld trimmed\n", used, trimmed);
    CHECK(used > 64L << 10);
    CHECK(trimmed < used / 8);
}

static const plain_case cases[] = {
    CASE(addresses_are_reserved_by_need),
    CASE(a_trim_gives_back_what_describes_blocks),
    CASE(a_trim_gives_magazines_of_idle_threads_back),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
