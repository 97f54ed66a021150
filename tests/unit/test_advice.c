/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Whom usm_mem_advise reaches: the driver takes advice for whole allocations, as Intel's does, and
 * a pool's area is one.  Over ze_soft, which says what it was advised of; through the public
 * interface. */
#include "plain.h"

#include "ze_soft/ze_soft.h"

#include <dlfcn.h>
#include <usm/usm.h>

enum { SIZE = 4096 };

static usm_queue             *queue; /* in order */
static ze_soft_is_advised_fn *is_advised;

static void start(void)
{
    usm_queue_desc desc   = USM_QUEUE_DESC_INIT;
    const char    *path   = getenv("ZE_ENABLE_ALT_DRIVERS");
    void          *driver = NULL, *f;

    desc.flags = USM_QUEUE_IN_ORDER;
    CHECK_INT(usm_queue_create(NULL, NULL, &desc, &queue), USM_OK);
    if (path)
        driver = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    CHECK(driver != NULL);
    CHECK((f = dlsym(driver, "ze_soft_is_advised")) != NULL);
    memcpy(&is_advised, &f, sizeof(f));
}

static void advise(const char *p)
{
    CHECK_INT(usm_mem_advise(queue, p, SIZE / 2, USM_ADVICE_PREFER_HOST, 0, NULL, NULL), USM_OK);
    CHECK_INT(usm_queue_wait(queue), USM_OK);
}

static void advice_for_a_block_of_an_area_reaches_no_neighbour(void)
{
    char *a, *b;

    start();
    for (int kind = USM_DEVICE; kind <= USM_SHARED; kind++) {
        usm_pool *pool = usm_pool_default(NULL, NULL, (usm_kind)kind);

        CHECK((a = usm_pool_malloc(pool, SIZE)) != NULL);
        CHECK((b = usm_pool_malloc(pool, SIZE)) != NULL);
        advise(a);
        CHECK(!is_advised(b));
        usm_free(a);
        usm_free(b);
    }
    usm_queue_destroy(queue);
}

static void advice_for_an_area_of_one_block_reaches_the_driver(void)
{
    static const char *const names[] = {"direct", "whole"};
    usm_pool_desc            desc    = USM_POOL_DESC_INIT;
    usm_pool                *pool;
    char                    *a, *b;

    start();
    for (int i = 0; i < 2; i++) {
        desc.name = names[i];
        CHECK_INT(usm_pool_create(usm_queue_get_context(queue), NULL, USM_SHARED, &desc, &pool),
                  USM_OK);
        CHECK((a = usm_pool_malloc(pool, SIZE)) != NULL);
        CHECK((b = usm_pool_malloc(pool, SIZE)) != NULL);
        advise(a);
        CHECK(is_advised(a));
        CHECK(!is_advised(b));
        usm_free(a);
        usm_free(b);
        usm_pool_destroy(pool);
    }
    usm_queue_destroy(queue);
}

static const plain_case cases[] = {
    CASE(advice_for_a_block_of_an_area_reaches_no_neighbour),
    CASE(advice_for_an_area_of_one_block_reaches_the_driver),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
