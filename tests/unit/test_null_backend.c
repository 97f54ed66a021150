/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The null backend: pools work over memory that is not there, it ends where USM_NULL_MEMORY says,
 * and nothing but its name finds it.  Each case is a child, for settings are read once. */
#include "plain.h"

#include "base/fault.h"
#include "heap/pool.h"

#include <usm/usm.h>

#include <signal.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static void set(const char *selector, const char *pool, const char *memory, const char *vmem)
{
    const char *const names[]  = {"USM_DEVICE_SELECTOR", "USM_POOL", "USM_NULL_MEMORY",
                                  "USM_NULL_VMEM"};
    const char *const values[] = {selector, pool, memory, vmem};

    for (int i = 0; i < 4; i++)
        if (values[i])
            CHECK(setenv(names[i], values[i], 1) == 0);
        else
            CHECK(unsetenv(names[i]) == 0);
}

/* --- in children ------------------------------------------------------------------------------ */

static usm_pool_stats stats_of(usm_pool *pool)
{
    usm_pool_stats s = USM_POOL_STATS_INIT;

    CHECK_INT(usm_pool_get_stats(pool, &s), USM_OK);
    return s;
}

/* With the pool that USM_POOL says. */
static void use_memory(void)
{
    const usm_kind  kinds[] = {USM_DEVICE, USM_SHARED, USM_HOST};
    usm_queue      *q       = usm_default_queue();
    usm_memory_info info    = USM_MEMORY_INFO_INIT;
    void           *p[300];

    CHECK(q != NULL);
    CHECK_INT(usm_device_memory(usm_queue_get_device(q), &info), USM_OK);
    CHECK_INT(info.total, 80 * GIB);
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < 300; i++) {
            p[i] = usm_malloc(i * i * 100, q, kinds[k]);
            CHECK(p[i] != NULL && (uintptr_t)p[i] % 16 == 0);
            CHECK_INT(usm_get_pointer_type(p[i], NULL), kinds[k]);
        }
        for (size_t i = 0; i < 300; i++)
            CHECK_INT(usm_free_ctx(p[(i * 7) % 300], NULL), USM_OK);
    }
    p[0] = usm_aligned_alloc_device(2 * MIB, 100, q);
    CHECK(p[0] != NULL && (uintptr_t)p[0] % (2 * MIB) == 0);
    CHECK_INT(usm_free_ctx(p[0], NULL), USM_OK);
    p[0] = usm_malloc_device(60 * GIB, q); /* whatever the machine has */
    CHECK(p[0] != NULL);
    usm_free(p[0]);
}

static void use_direct(void)
{
    set("null:0", "direct", NULL, NULL);
    use_memory();
}

static void use_arena(void)
{
    set("null:*", "arena", NULL, NULL);
    use_memory();
}

static void run_out(void)
{
    usm_memory_info info = USM_MEMORY_INFO_INIT;
    usm_queue      *q;
    void           *p, *more;

    set("null:0", "direct", "1G", NULL);
    q = usm_default_queue();
    p = usm_malloc_device(GIB - 3 * MIB, q);
    CHECK(p != NULL);
    more = usm_malloc_host(4 * MIB, q); /* all kinds are of one memory */
    CHECK(more == NULL);
    CHECK_INT(usm_last_status(), USM_E_NO_MEMORY);
    CHECK_IN("raise USM_NULL_MEMORY", usm_last_error());
    CHECK(usm_malloc_device((size_t)1 << 62, q) == NULL);
    more = usm_malloc_shared(3 * MIB, q);
    CHECK(more != NULL);
    CHECK_INT(usm_device_memory(usm_queue_get_device(q), &info), USM_OK);
    CHECK_INT(info.free, 0);
    usm_free(p);
    usm_free(more);
    CHECK_INT(usm_device_memory(usm_queue_get_device(q), &info), USM_OK);
    CHECK_INT(info.free, GIB);
}

static void have_no_addresses(void)
{
    usm_memory_info info = USM_MEMORY_INFO_INIT;
    usm_queue      *q;

    set("null:0", "direct", "1G", NULL);
    q = usm_default_queue();
    usm_free(usm_malloc_device(MIB, q)); /* what is made once is there */
    CHECK(usm__fault_arm("os.mmap", 1, true, USM_OK));
    CHECK(usm_malloc_device(MIB, q) == NULL);
    CHECK_INT(usm_last_status(), USM_E_NO_MEMORY);
    usm__fault_disarm_all();
    CHECK_INT(usm_device_memory(usm_queue_get_device(q), &info), USM_OK);
    CHECK_INT(info.free, GIB);
}

static usm_pool *pool_of(usm_context **ctx)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;

    desc.name = "direct";
    CHECK_INT(usm_context_create(NULL, ctx), USM_OK);
    CHECK_INT(usm_pool_create(*ctx, NULL, USM_DEVICE, &desc, &pool), USM_OK);
    return pool;
}

static void map_pieces(void)
{
    usm_context *ctx;
    usm_pool    *pool;
    usm_area    *area = NULL;

    set("null:0", NULL, "100M", NULL);
    pool = pool_of(&ctx);
    CHECK_INT(usm__area_granularity(pool), 2 * MIB);
    CHECK_INT(usm__area_reserve(pool, 64 * GIB, &area), USM_OK);
    CHECK_INT(usm__area_map(pool, area, GIB, 60 * MIB), USM_OK);
    CHECK_INT(usm__area_map(pool, area, 0, 60 * MIB), USM_E_NO_MEMORY);
    CHECK_INT(usm__area_map(pool, area, 0, 40 * MIB), USM_OK);
    CHECK_INT(stats_of(pool).reserved, 100 * MIB);
    usm__area_unmap(pool, area, GIB, 60 * MIB);
    CHECK_INT(usm__area_map(pool, area, 2 * GIB, 60 * MIB), USM_OK);
    usm__area_give(pool, area);
    CHECK_INT(stats_of(pool).reserved, 0);
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
}

static void map_nothing(void)
{
    usm_context *ctx;
    usm_pool    *pool;
    usm_area    *area = NULL;

    set("null:0", NULL, NULL, "0");
    pool = pool_of(&ctx);
    CHECK_INT(usm__area_granularity(pool), 0);
    CHECK_INT(usm__area_reserve(pool, GIB, &area), USM_E_NOT_SUPPORTED);
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
}

static bool is_null(const usm_device *dev)
{
    usm_device_info info = USM_DEVICE_INFO_INIT;

    CHECK_INT(usm_device_get_info(dev, &info), USM_OK);
    return strcmp(info.backend, "null") == 0;
}

static void look_for_it(void)
{
    static const char *const without[] = {"*:*", "host:*", "!opencl:*", "*:0"};
    usm_device              *list[64];
    size_t                   count = 0;

    set(NULL, NULL, NULL, NULL);
    for (int named = 0; named < 2; named++) {
        for (int i = 0; i < 4; i++) {
            CHECK_INT(usm_select_devices(without[i], list, 64, &count), USM_OK);
            for (size_t d = 0; d < count && d < 64; d++)
                CHECK(!is_null(list[d]));
        }
        CHECK_INT(usm_get_devices(list, 64, &count), USM_OK);
        for (size_t d = 0; d < count && d < 64; d++)
            CHECK(!is_null(list[d]));
        /* From here on it is known, and still nobody's choice. */
        CHECK_INT(usm_select_devices("null:*", list, 64, &count), USM_OK);
        CHECK_INT(count, 1);
        CHECK(is_null(list[0]));
    }
}

static void touch_it(void)
{
    set("null:0", "direct", NULL, NULL);
    (void)signal(SIGSEGV, SIG_DFL);
    *(volatile char *)usm_malloc_host(100, usm_default_queue()) = 1;
}

static void copy_it(void)
{
    char  text[64] = "what is here stays here";
    void *p;

    set("null:0", "direct", NULL, NULL);
    p = usm_malloc_device(sizeof text, usm_default_queue());
    CHECK(p != NULL);
    CHECK_INT(usm_copy(p, text, sizeof text), USM_E_NO_DATA_MOVED);
    usm_free(p);
}

/* The bytes were not brought to the device, from where none come back. */
static void fill_a_buffer(void)
{
    const char   pattern = 1;
    usm_context *ctx     = NULL;
    usm_queue   *q       = NULL;
    usm_buffer  *b;
    usm_accessor part = {NULL, 100, 50, USM_READ_WRITE};
    usm_access   a;

    set("null:0", NULL, NULL, NULL);
    CHECK_INT(usm_context_create(NULL, &ctx), USM_OK);
    CHECK_INT(usm_queue_create(ctx, NULL, NULL, &q), USM_OK);
    b = part.buffer = usm_buffer_new(ctx, 4096);
    CHECK(b != NULL);
    CHECK_INT(usm_access_begin(b, 0, 4096, USM_WRITE_NO_INIT, &a), USM_OK);
    memset(a.ptr, 7, 4096);
    usm_access_end(&a);
    CHECK_INT(usm_buffer_fill(q, &part, &pattern, 1, 0, NULL, NULL), USM_E_NO_DATA_MOVED);
    CHECK_INT(usm_access_begin(b, 0, 4096, USM_READ, &a), USM_OK);
    for (size_t i = 0; i < 4096; i++)
        CHECK_INT(((const char *)a.ptr)[i], 7);
    usm_access_end(&a);
    usm_buffer_destroy(b);
    usm_queue_destroy(q);
    usm_context_destroy(ctx);
}

/* Of any kind: with the pools of USM_POOL, and with one that zeroes its blocks. */
static void zero_it(void)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_context  *ctx;
    usm_pool     *pool;

    set("null:0", NULL, NULL, NULL);
    desc.zero_init = true;
    CHECK_INT(usm_context_create(NULL, &ctx), USM_OK);
    for (int k = USM_HOST; k <= USM_SHARED; k++) {
        CHECK(usm_calloc(10, 1000, (usm_kind)k) == NULL);
        CHECK_INT(usm_last_status(), USM_E_NO_DATA_MOVED);
        CHECK_INT(usm_pool_create(ctx, NULL, (usm_kind)k, &desc, &pool), USM_OK);
        CHECK(usm_pool_malloc(pool, 1000) == NULL);
        CHECK_INT(usm_last_status(), USM_E_NO_DATA_MOVED);
        CHECK_INT(stats_of(pool).blocks, 0);
        usm_pool_destroy(pool);
    }
    usm_context_destroy(ctx);
}

/* Red zones and patterns are left out where nobody could write them. */
static void debug_it(void)
{
    CHECK(setenv("USM_DEBUG", "redzone,poison", 1) == 0);
    set("null:0", NULL, NULL, NULL);
    for (int k = USM_HOST; k <= USM_SHARED; k++) {
        void *p = usm_alloc(1000, (usm_kind)k);

        CHECK(p != NULL);
        usm_free(p);
    }
}

/* --- cases ------------------------------------------------------------------------------------ */

static void the_pool_direct_works_over_it(void)
{
    CHECK_INT(plain_child(use_direct, NULL), 0);
}

static void the_pool_arena_works_over_it(void)
{
    CHECK_INT(plain_child(use_arena, NULL), 0);
}

static void memory_ends_where_the_setting_says(void)
{
    CHECK_INT(plain_child(run_out, NULL), 0);
}

static void memory_without_addresses_is_not_taken(void)
{
    CHECK_INT(plain_child(have_no_addresses, NULL), 0);
}

static void ranges_are_mapped_in_pieces_unless_switched_off(void)
{
    CHECK_INT(plain_child(map_pieces, NULL), 0);
    CHECK_INT(plain_child(map_nothing, NULL), 0);
}

static void only_its_name_finds_it(void)
{
    CHECK_INT(plain_child(look_for_it, NULL), 0);
}

static void nobody_may_touch_it(void)
{
    int status = plain_child(touch_it, NULL);

    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void that_copies_move_nothing_is_said(void)
{
    CHECK_INT(plain_child(copy_it, NULL), 0);
}

static void a_buffer_keeps_its_bytes_when_a_command_is_refused(void)
{
    CHECK_INT(plain_child(fill_a_buffer, NULL), 0);
}

static void that_blocks_cannot_be_zeroed_is_said(void)
{
    CHECK_INT(plain_child(zero_it, NULL), 0);
}

static void red_zones_are_left_out(void)
{
    CHECK_INT(plain_child(debug_it, NULL), 0);
}

static const plain_case cases[] = {
    CASE(the_pool_direct_works_over_it),
    CASE(the_pool_arena_works_over_it),
    CASE(memory_ends_where_the_setting_says),
    CASE(memory_without_addresses_is_not_taken),
    CASE(ranges_are_mapped_in_pieces_unless_switched_off),
    CASE(only_its_name_finds_it),
    CASE(nobody_may_touch_it),
    CASE(that_copies_move_nothing_is_said),
    CASE(a_buffer_keeps_its_bytes_when_a_command_is_refused),
    CASE(that_blocks_cannot_be_zeroed_is_said),
    CASE(red_zones_are_left_out),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
