/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Over which of Intel's drivers device memory grows in pieces that are mapped side by side: kernels
 * that cross from one to the next went wrong before the driver's build 29735.  Over ze_soft with
 * other version numbers, which counts the calls; through the public interface. */
#include "plain.h"

#include "ze_soft/ze_soft.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <usm/usm.h>

static atomic_int reserved;

static int count_reserves(const char *function)
{
    if (strcmp(function, "zeVirtualMemReserve") == 0)
        atomic_fetch_add(&reserved, 1);
    return 0;
}

static void count_calls(void)
{
    const char         *path   = getenv("ZE_ENABLE_ALT_DRIVERS");
    void               *driver = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL, *f;
    ze_soft_fail_if_fn *fail_if;

    CHECK(driver != NULL);
    CHECK((f = dlsym(driver, "ze_soft_fail_if")) != NULL);
    memcpy(&fail_if, &f, sizeof(f));
    fail_if(count_reserves, 0);
}

/* What the process under way is about. */
static const char *number, *setting;
static bool        is_expected;

static void allocate(usm_queue *queue)
{
    usm_pool_desc slab = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;
    void         *p;

    slab.name = "slab";
    CHECK_INT(usm_pool_create(usm_queue_get_context(queue), NULL, USM_DEVICE, &slab, &pool),
              USM_OK);
    CHECK((p = usm_pool_malloc(pool, 8 << 20)) != NULL);
    CHECK_INT(usm_memset(queue, p, 1, 8 << 20, 0, NULL, NULL), USM_OK);
    CHECK_INT(usm_queue_wait(queue), USM_OK);
    usm_free(p);
    usm_pool_destroy(pool);
}

static void run_with_a_driver(void)
{
    usm_queue_desc desc  = USM_QUEUE_DESC_INIT;
    usm_queue     *queue = NULL;

    CHECK_INT(setenv("ZE_SOFT_DRIVER", number, 1), 0);
    CHECK_INT(setenv("USM_LEVEL_ZERO_VMEM", setting, 1), 0);
    CHECK_INT(usm_queue_create(NULL, NULL, &desc, &queue), USM_OK);
    count_calls();
    allocate(queue);
    usm_queue_destroy(queue);
    CHECK_INT(atomic_load(&reserved) != 0, is_expected);
}

/* Whether addresses are reserved for device memory; in a process of its own, as the driver's
 * version is read once. */
static void expect(const char *version, const char *text, bool reserves)
{
    number      = version;
    setting     = text;
    is_expected = reserves;
    CHECK_INT(plain_child(run_with_a_driver, NULL), 0);
}

static const char last_wrong[]  = "0x010372c1"; /* 24.17.29377 */
static const char first_right[] = "0x01037427"; /* 24.22.29735 */

static void drivers_before_24_22_map_no_pieces(void)
{
    expect(last_wrong, "auto", false);
}

static void drivers_since_24_22_map_pieces(void)
{
    expect(first_right, "auto", true);
}

static void the_setting_forces_pieces(void)
{
    expect(last_wrong, "on", true);
}

static void the_setting_forbids_pieces(void)
{
    expect(first_right, "off", false);
}

static const plain_case cases[] = {
    CASE(drivers_before_24_22_map_no_pieces),
    CASE(drivers_since_24_22_map_pieces),
    CASE(the_setting_forces_pieces),
    CASE(the_setting_forbids_pieces),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
