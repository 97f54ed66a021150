/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The page map and reserved areas (heap/area.h): ranges of any size are found and forgotten;
 * addresses count for nothing, memory behind them counts like memory that was taken, and whatever
 * fails leaves things as they were.  Over the host backend. */
#include "plain.h"

#include "base/fault.h"
#include "heap/pool.h"

#include <usm/usm.h>

#include <sys/mman.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define G   (2 * MIB) /* the host backend's granularity */

/* --- the page map, with ranges that nobody has --------------------------------------------- */

#define RANGES 64
#define WINDOW ((uintptr_t)0x100000000000)

static usm__area ranges[RANGES];
static bool      in_map[RANGES];

static uint64_t random_state = 88172645463325252u;

static uint64_t any(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static usm_status insert(usm__area *a, uintptr_t base, size_t size)
{
    const usm__area *other = NULL;

    a->view.base = (void *)base;
    a->view.size = size;
    return usm__map_insert(a, &other);
}

static usm__area *find(uintptr_t p)
{
    return usm__map_find((const void *)p);
}

static usm__area *expected(uintptr_t p)
{
    for (int i = 0; i < RANGES; i++)
        if (in_map[i] && p - (uintptr_t)ranges[i].view.base < ranges[i].view.size)
            return &ranges[i];
    return NULL;
}

static bool overlaps_any(uintptr_t base, size_t size)
{
    for (int i = 0; i < RANGES; i++)
        if (in_map[i] && base < (uintptr_t)ranges[i].view.base + ranges[i].view.size &&
            (uintptr_t)ranges[i].view.base < base + size)
            return true;
    return false;
}

/* Bytes to GiB, on starts of every roundness, so that ranges meet in pages, in 2 MiB, in GiB. */
static void any_range(uintptr_t *base, size_t *size)
{
    const uintptr_t round[] = {1, 64, 4096, 2 * MIB, GIB};
    uintptr_t       to      = round[any() % 5];

    *size = (size_t)1 << any() % 33;
    *size += any() % *size;
    *base = (WINDOW + any() % (32 * GIB)) & ~(round[any() % 5] - 1);
    if (any() % 2)
        *size = (*size + to - 1) & ~(to - 1);
}

static void check_around(uintptr_t base, size_t size)
{
    const uintptr_t at[] = {base - 4097, base - 1,        base,        base + size / 2,
                            base + 4096, base + size - 1, base + size, base + size + 4096};

    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        CHECK(find(at[i]) == expected(at[i]));
}

static void ranges_of_all_sizes_are_found_and_forgotten(void)
{
    for (int n = 0; n < (PLAIN_SANITIZED ? 1000 : 5000); n++) {
        int       i = (int)(any() % RANGES);
        uintptr_t base;
        size_t    size;

        if (in_map[i]) {
            base = (uintptr_t)ranges[i].view.base;
            size = ranges[i].view.size;
            usm__map_remove(&ranges[i]);
            in_map[i] = false;
        } else {
            bool taken;

            any_range(&base, &size);
            taken = overlaps_any(base, size);
            CHECK_INT(insert(&ranges[i], base, size), taken ? USM_E_ADDRESS_TAKEN : USM_OK);
            in_map[i] = !taken;
        }
        check_around(base, size);
    }
    for (int i = 0; i < RANGES; i++)
        if (in_map[i])
            usm__map_remove(&ranges[i]);
    memset(in_map, 0, sizeof in_map);
}

/* The last one covers the end of a page and the start of the next, and each has one of the others.
 */
static void ranges_that_share_pages_are_forgotten_one_by_one(void)
{
    uintptr_t page = WINDOW + 4096;

    for (int gone = 0; gone < 2; gone++) {
        CHECK_INT(insert(&ranges[0], page, 64), USM_OK);
        CHECK_INT(insert(&ranges[1], page + 8192 - 64, 64), USM_OK);
        CHECK_INT(insert(&ranges[2], page + 128, 4096), USM_OK);
        usm__map_remove(&ranges[gone]);
        CHECK(find(page) == (gone == 0 ? NULL : &ranges[0]));
        CHECK(find(page + 8191) == (gone == 1 ? NULL : &ranges[1]));
        CHECK(find(page + 4095) == &ranges[2] && find(page + 4096) == &ranges[2]);
        usm__map_remove(&ranges[!gone]);
        usm__map_remove(&ranges[2]);
        CHECK(!find(page) && !find(page + 4096) && !find(page + 8191));
    }
}

/* A GiB that one range covers needs no table of its own; the first and the last one have one. */
static void a_long_range_needs_few_tables(void)
{
    uintptr_t base = WINDOW + 1024 * GIB + 2 * MIB;

    CHECK(usm__fault_arm("os.mmap", 0, false, USM_OK)); /* only counts */
    CHECK_INT(insert(&ranges[0], base, 1024 * GIB), USM_OK);
    CHECK(usm__fault_counted() <= 2);
    usm__fault_disarm_all();
    CHECK(find(base) == &ranges[0] && find(base + 1024 * GIB - 1) == &ranges[0]);
    CHECK(find(base + 512 * GIB + 12345) == &ranges[0]);
    CHECK(!find(base - 1) && !find(base + 1024 * GIB));
    CHECK_INT(insert(&ranges[1], base + 100 * GIB, 64), USM_E_ADDRESS_TAKEN);
    usm__map_remove(&ranges[0]);
    CHECK_INT(insert(&ranges[1], base + 100 * GIB, 64), USM_OK);
    CHECK(find(base + 100 * GIB) == &ranges[1] && !find(base + 100 * GIB + 64));
    usm__map_remove(&ranges[1]);
}

/* --- reserved areas --------------------------------------------------------------------------- */

static usm_context *ctx;
static usm_pool    *pool;

static void begin_limited(usm_kind kind, size_t maximum)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;

    usm__fault_disarm_all();
    desc.name         = "direct";
    desc.maximum_size = maximum;
    CHECK_INT(usm_context_create(NULL, &ctx), USM_OK);
    CHECK_INT(usm_pool_create(ctx, NULL, kind, &desc, &pool), USM_OK);
}

static void begin(usm_kind kind)
{
    begin_limited(kind, 0);
}

static void end(void)
{
    usm__fault_disarm_all();
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
}

static usm_area *reserve(size_t size)
{
    usm_area *area = NULL;

    CHECK_INT(usm__area_reserve(pool, size, &area), USM_OK);
    return area;
}

static usm_pool_stats stats(void)
{
    usm_pool_stats s = USM_POOL_STATS_INIT;

    CHECK_INT(usm_pool_get_stats(pool, &s), USM_OK);
    return s;
}

static uint64_t reserved(void)
{
    return stats().reserved;
}

static bool may_touch(const void *p)
{
    FILE         *maps = fopen("/proc/self/maps", "re");
    char          line[512], prot[8];
    unsigned long lo, hi;
    bool          may = false;

    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &lo, &hi, prot) == 3 && (uintptr_t)p >= lo &&
            (uintptr_t)p < hi)
            may = strncmp(prot, "rw", 2) == 0;
    (void)fclose(maps);
    return may;
}

static void reserved_addresses_count_for_nothing(void)
{
    const usm_kind kinds[] = {USM_HOST, USM_DEVICE, USM_SHARED};

    for (int i = 0; i < 3; i++) {
        usm_area *area;

        begin(kinds[i]);
        CHECK_INT(usm__area_granularity(pool), G);
        area = reserve(64 * GIB);
        CHECK((uintptr_t)area->base % (2 * MIB) == 0 && area->size == 64 * GIB);
        CHECK(!area->pool_data && !may_touch(area->base));
        CHECK_INT(reserved(), 0);
        CHECK_INT(stats().driver_allocs, 0);
        CHECK(&usm__map_find((char *)area->base + 63 * GIB)->view == area);
        CHECK_INT(usm_get_pointer_type((char *)area->base + GIB, ctx), USM_UNKNOWN);
        usm__area_give(pool, area);
        CHECK(!usm__map_find(area->base));
        end();
    }
}

static void mapped_memory_is_usable_and_counts(void)
{
    const usm_kind kinds[] = {USM_HOST, USM_DEVICE, USM_SHARED};

    for (int i = 0; i < 3; i++) {
        usm_area *area;
        char     *p;

        begin(kinds[i]);
        area = reserve(GIB);
        p    = area->base;
        CHECK_INT(usm__area_map(pool, area, 4 * G, 2 * G), USM_OK);
        CHECK_INT(usm__area_map(pool, area, 6 * G, G), USM_OK);
        CHECK_INT(reserved(), 3 * G);
        CHECK(may_touch(p + 4 * G) && may_touch(p + 7 * G - 1));
        CHECK(!may_touch(p + 4 * G - 1) && !may_touch(p + 7 * G));
        memset(p + 4 * G, 5, 3 * G);
        usm__area_unmap(pool, area, 4 * G, 2 * G);
        CHECK(!may_touch(p + 4 * G) && may_touch(p + 6 * G) && p[6 * G] == 5);
        CHECK_INT(reserved(), G);
        CHECK_INT(usm__area_map(pool, area, 5 * G, G), USM_OK);
        CHECK(p[5 * G] == 0); /* what it held was dropped */
        CHECK_INT(stats().driver_allocs, 3);
        CHECK_INT(stats().driver_frees, 1);
        CHECK_INT(stats().reserved_peak, 3 * G);
        usm__area_give(pool, area); /* with what is mapped */
        CHECK_INT(reserved(), 0);
        CHECK_INT(stats().driver_frees, 3);
        end();
    }
}

static void limits_are_of_memory_not_of_addresses(void)
{
    usm_area *area;

    begin_limited(USM_DEVICE, 3 * G);
    area = reserve(64 * G);
    CHECK_INT(usm__area_map(pool, area, 0, 2 * G), USM_OK);
    CHECK_INT(usm__area_map(pool, area, 2 * G, 2 * G), USM_E_BUDGET);
    CHECK_IN("maximum_size", usm_last_error());
    CHECK_INT(reserved(), 2 * G);
    CHECK(!may_touch((char *)area->base + 2 * G));
    CHECK_INT(usm__area_map(pool, area, 2 * G, G), USM_OK);
    usm__area_unmap(pool, area, 0, 2 * G);
    CHECK_INT(usm__area_map(pool, area, 10 * G, 2 * G), USM_OK);
    usm__area_give(pool, area);
    end();
}

static void odd_sizes_and_failures_reserve_nothing(void)
{
    const char *const names[] = {"vmem_reserve", "os.mmap"};
    usm_area         *area    = NULL;

    begin(USM_DEVICE);
    CHECK_INT(usm__area_reserve(pool, G + 4096, &area), USM_E_NOT_SUPPORTED);
    CHECK_INT(usm__area_reserve(pool, 0, &area), USM_E_NOT_SUPPORTED);
    CHECK(usm__fault_arm("vmem_granularity", 1, true, USM_OK));
    CHECK_INT(usm__area_granularity(pool), 0);
    CHECK_INT(usm__area_reserve(pool, G, &area), USM_E_NOT_SUPPORTED);
    usm__fault_disarm_all();
    for (int i = 0; i < 2; i++) {
        CHECK(usm__fault_arm(names[i], 1, true, USM_OK));
        CHECK_INT(usm__area_reserve(pool, G, &area), USM_E_NO_MEMORY);
        usm__fault_disarm_all();
    }
    CHECK(!area);
    usm__area_give(pool, reserve(G));
    end();
}

static void what_fails_to_map_leaves_all_as_it_was(void)
{
    const char *const names[] = {"phys_create", "vmem_map", "os.mprotect"};
    usm_area         *area;

    begin(USM_SHARED);
    area = reserve(GIB);
    CHECK_INT(usm__area_map(pool, area, 0, G), USM_OK);
    for (int i = 0; i < 3; i++) {
        CHECK(usm__fault_arm(names[i], 1, false, USM_OK));
        CHECK_INT(usm__area_map(pool, area, G, G), USM_E_NO_MEMORY);
        CHECK_INT(usm__fault_fired(), 1);
        usm__fault_disarm_all();
        CHECK_INT(reserved(), G);
        CHECK_INT(stats().driver_allocs, 1);
        CHECK(!may_touch((char *)area->base + G));
    }
    CHECK(usm__fault_arm("vmem_map", 1, false, USM_E_DEVICE_LOST));
    CHECK_INT(usm__area_map(pool, area, G, G), USM_E_DEVICE_LOST);
    usm__fault_disarm_all();
    CHECK_INT(usm__area_map(pool, area, G, G), USM_OK);
    usm__area_give(pool, area);
    end();
}

static void what_the_driver_does_not_unmap_is_tried_again(void)
{
    usm_area *area;

    begin(USM_HOST);
    area = reserve(GIB);
    CHECK_INT(usm__area_map(pool, area, 0, G), USM_OK);
    CHECK_INT(usm__area_map(pool, area, G, G), USM_OK);
    CHECK(usm__fault_arm("vmem_unmap", 1, true, USM_OK));
    usm__area_unmap(pool, area, 0, G);
    usm__area_unmap(pool, area, G, G);
    CHECK_INT(reserved(), 2 * G); /* it is still there */
    CHECK_INT(usm__area_map(pool, area, 0, G), USM_E_DEVICE);
    usm__fault_disarm_all();
    CHECK_INT(usm__area_map(pool, area, 0, G), USM_OK);
    CHECK_INT(reserved(), 2 * G);
    usm__area_give(pool, area);
    CHECK_INT(reserved(), 0);
    CHECK_INT(stats().driver_allocs, stats().driver_frees);
    end();
}

static void addresses_with_memory_behind_them_are_not_reused(void)
{
    usm_area *area;
    void     *base;

    begin(USM_HOST);
    area = reserve(GIB);
    base = area->base;
    CHECK_INT(usm__area_map(pool, area, 0, G), USM_OK);
    CHECK(usm__fault_arm("vmem_unmap", 1, true, USM_OK));
    usm__area_give(pool, area);
    usm__fault_disarm_all();
    CHECK_INT(reserved(), 0);
    CHECK(may_touch(base) && !usm__map_find(base)); /* the driver's; never unmapped */
    CHECK(munmap(base, GIB) == 0);
    end();
}

static const plain_case cases[] = {
    CASE(ranges_of_all_sizes_are_found_and_forgotten),
    CASE(ranges_that_share_pages_are_forgotten_one_by_one),
    CASE(a_long_range_needs_few_tables),
    CASE(reserved_addresses_count_for_nothing),
    CASE(mapped_memory_is_usable_and_counts),
    CASE(limits_are_of_memory_not_of_addresses),
    CASE(odd_sizes_and_failures_reserve_nothing),
    CASE(what_fails_to_map_leaves_all_as_it_was),
    CASE(what_the_driver_does_not_unmap_is_tried_again),
    CASE(addresses_with_memory_behind_them_are_not_reused),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    (void)setenv("USM_DEVICE_SELECTOR", "host:0", 1);
    (void)setenv("USM_LOG", "error", 1);
    return plain_main(argc, argv, cases);
}
