/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Allocation, pointers, frees and pools on the host, through libusm as its users see it.  Commands
 * are in offline_commands.c; the same over every runtime is in tests/conformance. */
#include "plain.h"

#include <errno.h>
#include <stdint.h>
#include <usm/usm.h>

/* A value that the compiler does not see through: wrong sizes and frees are what is tested. */
static size_t hidden(size_t n)
{
    volatile size_t v = n;

    return v;
}

static void *hidden_pointer(const void *p)
{
    volatile uintptr_t v = (uintptr_t)p;

    return (void *)v;
}

static void each_kind_is_what_it_says(void)
{
    for (int k = USM_HOST; k <= USM_SHARED; k++) {
        void *p = usm_alloc(1000, (usm_kind)k);
        CHECK(p != NULL);
        CHECK_INT(usm_get_pointer_type(p, NULL), k);
        usm_free(p);
    }
}

static void host_and_shared_memory_is_read_and_written(void)
{
    char *h = usm_alloc_host(5000), *s = usm_alloc_shared(5000);

    CHECK(h && s);
    memset(h, 1, 5000);
    memcpy(s, h, 5000);
    CHECK_INT(s[4999], 1);
    usm_free(h);
    usm_free(s);
}

static void size_zero_is_a_block_of_its_own(void)
{
    char *a = hidden_pointer(usm_alloc_host(0)), *b = hidden_pointer(usm_alloc_host(0));

    CHECK(a && b && a != b);
    CHECK_INT(usm_free_ctx(a, NULL), USM_OK);
    CHECK_INT(usm_free_ctx(b, NULL), USM_OK);
}

static void alignments_are_kept(void)
{
    for (size_t align = 1; align <= USM_MAX_ALIGNMENT; align *= 8) {
        char *p = hidden_pointer(usm_aligned_alloc(align, 100, USM_DEVICE));
        CHECK(p != NULL);
        CHECK_INT((uintptr_t)p % align, 0);
        usm_free(p);
    }
}

static void alignments_that_cannot_be_are_refused(void)
{
    errno = 0;
    CHECK(!usm_aligned_alloc(hidden(3), 100, USM_HOST));
    CHECK_INT(usm_last_status(), USM_E_ALIGNMENT);
    CHECK_INT(errno, ENOMEM);
    CHECK(!usm_aligned_alloc(hidden((size_t)1 << 40), 100, USM_HOST));
    CHECK_INT(usm_last_status(), USM_E_ALIGNMENT);
}

static void size_max_is_a_named_failure(void)
{
    errno = 0;
    CHECK(!usm_alloc_host(hidden(SIZE_MAX)));
    CHECK(usm_last_status() == USM_E_SIZE || usm_last_status() == USM_E_NO_MEMORY);
    CHECK_INT(errno, ENOMEM);
    CHECK(usm_last_error()[0]);
}

static void size_and_kind_swapped_is_asked_about(void)
{
    CHECK(!usm_alloc(USM_HOST, (usm_kind)4096));
    CHECK_INT(usm_last_status(), USM_E_KIND);
    CHECK_IN("swapped", usm_last_error());
}

static void calloc_is_zeroed_and_does_not_overflow(void)
{
    unsigned char *p = usm_calloc(100, 30, USM_HOST);

    CHECK(p != NULL);
    for (int i = 0; i < 3000; i++)
        CHECK_INT(p[i], 0);
    usm_free(p);
    CHECK(!usm_calloc(hidden(SIZE_MAX / 2), hidden(3), USM_HOST));
}

static void realloc_keeps_contents_and_kind(void)
{
    char *p = usm_realloc(NULL, 100, USM_SHARED);

    CHECK(p != NULL);
    memset(p, 7, 100);
    p = usm_realloc(p, 100000, USM_UNKNOWN);
    CHECK(p && p[0] == 7 && p[99] == 7);
    CHECK_INT(usm_get_pointer_type(p, NULL), USM_SHARED);
    p = usm_realloc(p, 10, USM_UNKNOWN);
    CHECK(p && p[9] == 7);
    usm_free(p);
}

static void a_realloc_that_fails_keeps_the_block(void)
{
    char *p = usm_alloc_host(10);

    CHECK(p != NULL);
    p[9] = 5;
    CHECK(!usm_realloc(p, hidden(SIZE_MAX / 2), USM_UNKNOWN));
    CHECK_INT(p[9], 5);
    usm_free(p);
}

static void interior_pointers_are_found(void)
{
    char  *p    = usm_alloc_shared(1000);
    void  *base = NULL;
    size_t size = 0;

    CHECK_INT(usm_get_pointer_type(p + 999, NULL), USM_SHARED);
    CHECK_INT(usm_get_address_range(p + 999, NULL, &base, &size), USM_OK);
    CHECK(base == p && size >= 1000);
    CHECK(usm_usable_size(p + 400) == usm_usable_size(p) - 400);
    usm_free(p);
}

static void foreign_pointers_are_unknown(void)
{
    int         local = 0;
    usm_device *dev   = NULL;

    CHECK_INT(usm_get_pointer_type(&local, NULL), USM_UNKNOWN);
    CHECK_INT(usm_get_pointer_type(NULL, NULL), USM_UNKNOWN);
    CHECK_INT(usm_get_pointer_device(&local, NULL, &dev), USM_E_INVALID_POINTER);
    CHECK(!dev);
    CHECK_INT(usm_usable_size(&local), 0);
}

static void wrong_frees_are_named(void)
{
    int   local = 0;
    char *p     = usm_alloc_host(100);

    CHECK_INT(usm_free_ctx(hidden_pointer(&local), NULL), USM_E_INVALID_POINTER);
    CHECK_INT(usm_free_ctx(hidden_pointer(p + 1), NULL), USM_E_INTERIOR_POINTER);
    CHECK_INT(usm_free_ctx(p, NULL), USM_OK);
    usm_status s = usm_free_ctx(hidden_pointer(p), NULL);
    CHECK(s == USM_E_DOUBLE_FREE || s == USM_E_INVALID_POINTER);
    usm_free(NULL);
}

static void a_freed_block_is_unknown(void)
{
    char *p = usm_alloc_device(100), *freed = hidden_pointer(p);

    usm_free(p);
    CHECK_INT(usm_get_pointer_type(freed, NULL), USM_UNKNOWN);
}

static void an_arena_is_reset(void)
{
    usm_context   *ctx   = NULL;
    usm_pool      *pool  = NULL;
    usm_pool_desc  desc  = USM_POOL_DESC_INIT;
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    CHECK_INT(usm_context_create(NULL, &ctx), USM_OK);
    desc.name = "arena";
    CHECK_INT(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool), USM_OK);
    for (int i = 0; i < 100; i++)
        CHECK(usm_pool_malloc(pool, 100));
    CHECK_INT(usm_pool_get_stats(pool, &stats), USM_OK);
    CHECK_INT(stats.blocks, 100);
    CHECK_INT(usm_pool_reset(pool), USM_OK);
    CHECK_INT(usm_pool_get_stats(pool, &stats), USM_OK);
    CHECK_INT(stats.blocks, 0);
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
}

static void a_pool_keeps_its_maximum(void)
{
    usm_context  *ctx  = NULL;
    usm_pool     *pool = NULL;
    usm_pool_desc desc = USM_POOL_DESC_INIT;

    CHECK_INT(usm_context_create(NULL, &ctx), USM_OK);
    desc.name         = "direct";
    desc.maximum_size = 1 << 20;
    CHECK_INT(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool), USM_OK);
    CHECK(!usm_pool_malloc(pool, 2 << 20));
    CHECK_INT(usm_last_status(), USM_E_BUDGET);
    void *p = usm_pool_malloc(pool, 1000);
    CHECK(p != NULL);
    usm_pool_free_sized(pool, p, 1000);
    usm_pool_destroy(pool);
    usm_context_destroy(ctx);
}

static void a_context_gives_its_memory_back(void)
{
    usm_context *ctx = NULL;
    char        *p, *gone;

    CHECK_INT(usm_context_create(NULL, &ctx), USM_OK);
    p = usm_malloc_ctx(100, NULL, ctx, USM_SHARED);
    CHECK(p != NULL);
    gone = hidden_pointer(p);
    usm_context_destroy(ctx);
    CHECK_INT(usm_get_pointer_type(gone, NULL), USM_UNKNOWN);
}

static const plain_case cases[] = {
    CASE(each_kind_is_what_it_says),
    CASE(host_and_shared_memory_is_read_and_written),
    CASE(size_zero_is_a_block_of_its_own),
    CASE(alignments_are_kept),
    CASE(alignments_that_cannot_be_are_refused),
    CASE(size_max_is_a_named_failure),
    CASE(size_and_kind_swapped_is_asked_about),
    CASE(calloc_is_zeroed_and_does_not_overflow),
    CASE(realloc_keeps_contents_and_kind),
    CASE(a_realloc_that_fails_keeps_the_block),
    CASE(interior_pointers_are_found),
    CASE(foreign_pointers_are_unknown),
    CASE(wrong_frees_are_named),
    CASE(a_freed_block_is_unknown),
    CASE(an_arena_is_reset),
    CASE(a_pool_keeps_its_maximum),
    CASE(a_context_gives_its_memory_back),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
