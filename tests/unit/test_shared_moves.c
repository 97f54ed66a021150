/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared memory that the driver moves between host and device a whole allocation at a time, as
 * Intel's does on GPUs with memory of their own; over ze_soft with ZE_SOFT_MIGRATE=1, whose copies
 * have a price (ZE_SOFT_COPY_MBS), so that commands wait behind one.  Through the public
 * interface. */
#include "plain.h"

#include "ze_soft/ze_soft.h"

#include <dlfcn.h>
#include <usm/usm.h>

enum { SIZE = 4096, BIG = 4 << 20 };

static usm_queue *queue; /* in order */
static void      *big[2];

static ze_soft_moves_fn          *moves;
static ze_soft_resident_frees_fn *resident_frees;

static void find_driver(void)
{
    const char *path   = getenv("ZE_ENABLE_ALT_DRIVERS");
    void       *driver = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void       *f;

    CHECK(driver != NULL);
    CHECK((f = dlsym(driver, "ze_soft_moves")) != NULL);
    memcpy(&moves, &f, sizeof(f));
    CHECK((f = dlsym(driver, "ze_soft_resident_frees")) != NULL);
    memcpy(&resident_frees, &f, sizeof(f));
}

static void start(void)
{
    usm_queue_desc desc = USM_QUEUE_DESC_INIT;

    desc.flags = USM_QUEUE_IN_ORDER;
    CHECK_INT(usm_queue_create(NULL, NULL, &desc, &queue), USM_OK);
    for (int i = 0; i < 2; i++)
        CHECK((big[i] = usm_malloc_device(BIG, queue)) != NULL);
    find_driver();
}

static void end(void)
{
    for (int i = 0; i < 2; i++)
        usm_free(big[i]);
    usm_queue_destroy(queue);
}

/* The queue works for some time. */
static void keep_busy(void)
{
    CHECK_INT(usm_memcpy(queue, big[1], big[0], BIG, 0, NULL, NULL), USM_OK);
}

static bool is_filled(const unsigned char *p, size_t n, unsigned char value)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != value)
            return false;
    return true;
}

static void a_touch_of_the_host_leaves_other_blocks_with_the_device(void)
{
    unsigned char *a, *b;

    start();
    a = usm_malloc_shared(SIZE, queue);
    b = usm_malloc_shared(SIZE, queue);
    CHECK(a && b);
    memset(a, 1, SIZE);
    memset(b, 2, SIZE);
    keep_busy();
    CHECK_INT(usm_memset(queue, a, 3, SIZE, 0, NULL, NULL), USM_OK);
    b[0] = 4; /* while the fill of a waits */
    CHECK_INT(usm_queue_wait(queue), USM_OK);
    CHECK(is_filled(a, SIZE, 3));
    CHECK_INT(b[0], 4);
    CHECK(is_filled(b + 1, SIZE - 1, 2));
    usm_free(a);
    usm_free(b);
    end();
}

static void freed_blocks_are_handed_out_again_whole(void)
{
    usm_pool_stats before = USM_POOL_STATS_INIT, after = USM_POOL_STATS_INIT;
    usm_pool      *pool;
    void          *p[8];

    start();
    pool = usm_pool_default(NULL, NULL, USM_SHARED);
    CHECK(pool != NULL);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 8; i++)
            CHECK((p[i] = usm_pool_malloc(pool, 100 << i)) != NULL);
        if (round == 0)
            CHECK_INT(usm_pool_get_stats(pool, &before), USM_OK);
        for (size_t i = 0; i < 8; i++)
            usm_free(p[i]);
    }
    CHECK_INT(usm_pool_get_stats(pool, &after), USM_OK);
    CHECK_INT(after.driver_allocs, before.driver_allocs);
    CHECK_INT(after.driver_frees, 0);
    CHECK_INT(after.blocks, 0);
    CHECK(after.allocations >= 24);
    CHECK_INT(usm_pool_trim_to(pool, 0), USM_OK);
    CHECK_INT(usm_pool_get_stats(pool, &after), USM_OK);
    CHECK_INT(after.reserved, 0);
    end();
}

static void pools_that_cut_are_replaced_or_refused(void)
{
    usm_pool_desc  desc  = USM_POOL_DESC_INIT;
    usm_pool_stats stats = USM_POOL_STATS_INIT;
    usm_pool      *pool  = NULL;
    void          *p[2];

    start();
    desc.name = "arena";
    CHECK_INT(usm_pool_create(usm_queue_get_context(queue), NULL, USM_SHARED, &desc, &pool),
              USM_E_NOT_SUPPORTED);
    CHECK_IN("whole allocations", usm_last_error());
    CHECK_INT(usm_pool_create(usm_queue_get_context(queue), NULL, USM_DEVICE, &desc, &pool),
              USM_OK);
    usm_pool_destroy(pool);
    desc.name = "slab";
    CHECK_INT(usm_pool_create(usm_queue_get_context(queue), NULL, USM_SHARED, &desc, &pool),
              USM_OK);
    for (int i = 0; i < 2; i++)
        CHECK((p[i] = usm_pool_malloc(pool, 64)) != NULL);
    CHECK_INT(usm_pool_get_stats(pool, &stats), USM_OK);
    CHECK_INT(stats.driver_allocs, 2); /* an allocation a block */
    for (int i = 0; i < 2; i++)
        usm_pool_free(pool, p[i]);
    usm_pool_destroy(pool);
    end();
}

static void commands_move_no_block_that_they_do_not_use(void)
{
    unsigned char *a;
    uint64_t       before;

    start();
    CHECK((a = usm_malloc_shared(SIZE, queue)) != NULL);
    memset(a, 1, SIZE);
    before = moves();
    for (int i = 0; i < 4; i++)
        CHECK_INT(usm_memset(queue, big[0], i, 64, 0, NULL, NULL), USM_OK);
    CHECK_INT(usm_queue_wait(queue), USM_OK);
    CHECK_INT(moves(), before);
    CHECK_INT(usm_memset(queue, a, 2, SIZE, 0, NULL, NULL), USM_OK);
    CHECK_INT(usm_queue_wait(queue), USM_OK);
    CHECK_INT(moves(), before + 1);
    CHECK(is_filled(a, SIZE, 2));
    usm_free(a);
    end();
}

/* The driver would use freed memory for what is still in its list of resident allocations. */
static void nothing_is_freed_while_it_is_resident(void)
{
    void *a;

    start();
    CHECK((a = usm_malloc_shared(SIZE, queue)) != NULL);
    usm_free(a);
    usm_free(big[1]);
    big[1] = NULL;
    for (int kind = USM_DEVICE; kind <= USM_SHARED; kind++)
        CHECK_INT(usm_pool_trim_to(usm_pool_default(NULL, NULL, (usm_kind)kind), 0), USM_OK);
    CHECK_INT(usm_memset(queue, big[0], 1, 64, 0, NULL, NULL), USM_OK);
    CHECK_INT(usm_queue_wait(queue), USM_OK);
    end();
    usm_shutdown();
    CHECK_INT(resident_frees(), 0);
}

static const plain_case cases[] = {
    CASE(a_touch_of_the_host_leaves_other_blocks_with_the_device),
    CASE(freed_blocks_are_handed_out_again_whole),
    CASE(pools_that_cut_are_replaced_or_refused),
    CASE(commands_move_no_block_that_they_do_not_use),
    CASE(nothing_is_freed_while_it_is_resident),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
