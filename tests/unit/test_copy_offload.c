/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues tell the driver that their copies may go to copy engines.  Over ze_soft, which counts who
 * does; through the public interface. */
#include "plain.h"

#include "ze_soft/ze_soft.h"

#include <dlfcn.h>
#include <usm/usm.h>

enum { SIZE = 1 << 16 };

static uint64_t offloads(void)
{
    const char               *path   = getenv("ZE_ENABLE_ALT_DRIVERS");
    void                     *driver = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL, *f;
    ze_soft_copy_offloads_fn *count;

    CHECK(driver != NULL);
    CHECK((f = dlsym(driver, "ze_soft_copy_offloads")) != NULL);
    memcpy(&count, &f, sizeof(f));
    return count();
}

static void copy(unsigned flags)
{
    usm_queue_desc desc  = USM_QUEUE_DESC_INIT;
    usm_queue     *queue = NULL;
    unsigned char *from, *to;

    desc.flags = flags;
    CHECK_INT(usm_queue_create(NULL, NULL, &desc, &queue), USM_OK);
    CHECK((from = usm_malloc_device(SIZE, queue)) != NULL);
    CHECK((to = usm_malloc_host(SIZE, queue)) != NULL);
    CHECK_INT(usm_memset(queue, from, 5, SIZE, 0, NULL, NULL), USM_OK);
    CHECK_INT(usm_queue_wait(queue), USM_OK);
    CHECK_INT(usm_memcpy(queue, to, from, SIZE, 0, NULL, NULL), USM_OK);
    CHECK_INT(usm_queue_wait(queue), USM_OK);
    CHECK(to[0] == 5 && to[SIZE - 1] == 5);
    usm_free(from);
    usm_free(to);
    usm_queue_destroy(queue);
}

static void queues_let_the_driver_use_copy_engines(void)
{
    static const unsigned flags[] = {USM_QUEUE_IN_ORDER, 0};
    uint64_t              before  = 0;

    for (int i = 0; i < 2; i++) {
        copy(flags[i]);
        CHECK(offloads() > before);
        before = offloads();
    }
}

static const plain_case cases[] = {
    CASE(queues_let_the_driver_use_copy_engines),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
