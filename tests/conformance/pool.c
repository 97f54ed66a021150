/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "pool": pools made by the program and the default ones.
 * What the allocation functions over them promise is in alloc.c and free.c. */
#include "common.h"

#include <pthread.h>

static const char *const names[] = {"direct", "arena", "slab", "whole"};
/* Of device r and kind k. */
#define EACH_POOL(n)                                                                               \
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)                                      \
        if (has_pool(&r, k, names[n]))

/* No arena cuts memory that a driver moves by whole allocations. */
static bool has_pool(const rig *r, usm_kind k, const char *name)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;
    usm_status    st;

    desc.name = name;
    st        = usm_pool_create(r->ctx, r->dev, k, &desc, &pool);
    usm_pool_destroy(pool);
    return st != USM_E_NOT_SUPPORTED || strcmp(name, "arena") != 0;
}

/* A pool with thread caches counts where it hands blocks to a thread (usm_pool_stats). */
static bool counts_each_block(const char *name)
{
    return strcmp(name, "slab") != 0;
}

static usm_pool *pool_with(const rig *r, usm_kind k, const char *name, size_t maximum)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;

    desc.name         = name;
    desc.maximum_size = maximum;
    CHECK_OK(usm_pool_create(r->ctx, r->dev, k, &desc, &pool));
    return pool;
}

static usm_pool_stats stats(usm_pool *pool)
{
    usm_pool_stats s = USM_POOL_STATS_INIT;

    CHECK_OK(usm_pool_get_stats(pool, &s));
    return s;
}

static void *pool_mem(usm_pool *pool, size_t size)
{
    void *p = opaque(usm_pool_malloc(pool, size));

    CHECK(p, "%zu bytes of a pool: %s", size, usm_last_error());
    return p;
}

#define CHECK_NUMBER(got, want)                                                                    \
    CHECK((got) == (want), "%s: %s is %llu, not %llu", r.name, #got, (unsigned long long)(got),    \
          (unsigned long long)(want))

Test(pool, its_blocks_are_of_its_kind_context_and_device)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            EACH_POOL (n) {
                usm_pool   *pool = pool_with(&r, k, names[n], 0);
                char       *p    = pool_mem(pool, 1000);
                usm_device *dev  = NULL;
                CHECK(usm_get_pointer_type(p + 999, r.ctx) == k, "%s: %s", r.name, names[n]);
                CHECK_OK(usm_get_pointer_device(p, r.ctx, &dev));
                CHECK(dev == r.dev, "%s: another device", r.name);
                usm_pool_free(pool, p);
                CHECK(usm_get_pointer_type(p, NULL) == USM_UNKNOWN, "%s: %s: freed", r.name,
                      names[n]);
                usm_pool_destroy(pool);
            }
        }
    }
}

Test(pool, its_stats_are_exact)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            EACH_POOL (n) {
                usm_pool      *pool = pool_with(&r, k, names[n], 0);
                usm_pool_stats s    = stats(pool);
                void          *p[10];
                CHECK_NUMBER(s.live, 0);
                CHECK_NUMBER(s.blocks, 0);
                CHECK_NUMBER(s.allocations, 0);
                for (int i = 0; i < 10; i++)
                    p[i] = pool_mem(pool, 4096);
                s = stats(pool);
                CHECK_NUMBER(s.blocks, 10);
                CHECK(s.allocations >= 10, "%s: %llu allocations", names[n],
                      (unsigned long long)s.allocations);
                if (counts_each_block(names[n]))
                    CHECK_NUMBER(s.allocations, 10);
                CHECK_NUMBER(s.frees, 0);
                CHECK(s.live >= 40960 && s.reserved >= s.live, "%s: %llu live", r.name,
                      (unsigned long long)s.live);
                CHECK(s.driver_allocs >= 1, "%s: no call reached the driver", r.name);
                for (int i = 0; i < 10; i++)
                    usm_pool_free(pool, p[i]);
                s = stats(pool);
                CHECK_NUMBER(s.blocks, 0);
                CHECK_NUMBER(s.live, 0);
                if (counts_each_block(names[n]))
                    CHECK_NUMBER(s.frees, 10);
                CHECK(s.live_peak >= 40960 && s.reserved_peak >= s.live_peak, "%s: peaks", r.name);
                CHECK_OK(usm_pool_reset_peaks(pool));
                s = stats(pool);
                CHECK_NUMBER(s.live_peak, 0);
                CHECK_NUMBER(s.reserved_peak, s.reserved);
                usm_pool_destroy(pool);
            }
        }
    }
}

Test(pool, direct_asks_the_driver_each_time_and_gives_back_at_once)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            usm_pool      *pool = pool_with(&r, k, "direct", 0);
            usm_pool_stats s;
            for (unsigned i = 1; i <= 5; i++) {
                void *p = pool_mem(pool, 10000);
                s       = stats(pool);
                CHECK_NUMBER(s.driver_allocs, i);
                usm_pool_free(pool, p);
                s = stats(pool);
                CHECK_NUMBER(s.driver_frees, i);
                CHECK_NUMBER(s.reserved, 0);
            }
            usm_pool_destroy(pool);
        }
    }
}

Test(pool, arena_takes_areas_and_cuts_them)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)) || !has_pool(&r, k, "arena"))
                continue;
            usm_pool_desc desc = USM_POOL_DESC_INIT;
            usm_pool     *pool = NULL;
            desc.name          = "arena";
            desc.area_size     = 1 << 20;
            CHECK_OK(usm_pool_create(r.ctx, r.dev, k, &desc, &pool));
            for (int i = 0; i < 100; i++)
                pool_mem(pool, 1000);
            CHECK_NUMBER(stats(pool).driver_allocs, 1);
            pool_mem(pool, 5 << 20); /* larger than an area */
            usm_pool_stats s = stats(pool);
            CHECK_NUMBER(s.blocks, 101);
            CHECK(s.driver_allocs >= 2 && s.reserved >= 6 << 20, "%s: reserved", r.name);
            usm_pool_destroy(pool);
        }
    }
}

Test(pool, a_reset_ends_every_block_and_keeps_the_areas)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)) || !has_pool(&r, k, "arena"))
                continue;
            usm_pool      *pool = pool_with(&r, k, "arena", 0);
            void          *p    = NULL;
            usm_pool_stats before, after;
            for (int i = 0; i < 50; i++)
                p = pool_mem(pool, 5000);
            before = stats(pool);
            CHECK_OK(usm_pool_reset(pool));
            after = stats(pool);
            CHECK_NUMBER(after.blocks, 0);
            CHECK_NUMBER(after.live, 0);
            CHECK_NUMBER(after.reserved, before.reserved);
            CHECK(usm_get_pointer_type(p, r.ctx) == USM_UNKNOWN, "%s: a block is left", r.name);
            for (int i = 0; i < 50; i++)
                pool_mem(pool, 5000);
            CHECK_NUMBER(stats(pool).driver_allocs, before.driver_allocs);
            usm_pool_destroy(pool);
        }
    }
}

Test(pool, direct_has_no_reset)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST))
            continue;
        usm_pool *pool = pool_with(&r, USM_HOST, "direct", 0);
        CHECK_REFUSED(usm_pool_reset(pool), USM_E_NOT_SUPPORTED, "direct");
        usm_pool_destroy(pool);
    }
}

/* Whether usm_pool_reset_to() refuses it. */
static void check_dropped(usm_pool *pool, const usm_pool_mark *mark)
{
    CHECK_REFUSED(usm_pool_reset_to(pool, mark), USM_E_INVALID, "mark");
}

Test(pool, going_back_to_a_mark_ends_younger_blocks_only)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)) || !has_pool(&r, k, "arena"))
                continue;
            usm_pool     *pool = pool_with(&r, k, "arena", 0);
            usm_pool_mark mark;
            void         *old = pool_mem(pool, 5000), *young[60];
            uint64_t      calls;
            CHECK_OK(usm_pool_set_mark(pool, &mark));
            for (size_t i = 0; i < 60; i++)
                young[i] = pool_mem(pool, 1 + i * 3000); /* several areas */
            usm_pool_free(pool, young[7]);
            CHECK_OK(usm_pool_reset_to(pool, &mark));
            CHECK_NUMBER(stats(pool).blocks, 1);
            CHECK(usm_get_pointer_type(old, r.ctx) == k, "%s: an older block is gone", r.name);
            for (size_t i = 0; i < 60; i++)
                CHECK(usm_get_pointer_type(young[i], r.ctx) == USM_UNKNOWN, "%s: block %zu is left",
                      r.name, i);
            calls = stats(pool).driver_allocs;
            for (size_t i = 0; i < 60; i++)
                pool_mem(pool, 1 + i * 3000);
            CHECK_NUMBER(stats(pool).driver_allocs, calls);
            CHECK_OK(usm_pool_reset_to(pool, &mark)); /* it stays valid */
            usm_pool_free(pool, old);
            CHECK_NUMBER(stats(pool).blocks, 0);
            usm_pool_destroy(pool);
        }
    }
}

Test(pool, marks_nest_and_those_dropped_are_refused)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)) || !has_pool(&r, k, "arena"))
                continue;
            usm_pool     *pool = pool_with(&r, k, "arena", 0), *other;
            usm_pool_mark outer, inner, later;
            void         *p;
            CHECK_OK(usm_pool_set_mark(pool, &outer));
            p = pool_mem(pool, 100);
            CHECK_OK(usm_pool_set_mark(pool, &inner));
            pool_mem(pool, 100);
            CHECK_OK(usm_pool_set_mark(pool, &later));
            CHECK_OK(usm_pool_reset_to(pool, &inner));
            check_dropped(pool, &later);
            CHECK(usm_get_pointer_type(p, r.ctx) == k, "%s: too much went", r.name);
            other = pool_with(&r, k, "arena", 0);
            check_dropped(other, &inner); /* of another pool */
            usm_pool_destroy(other);
            CHECK_OK(usm_pool_reset_to(pool, &outer));
            check_dropped(pool, &inner);
            CHECK_NUMBER(stats(pool).blocks, 0);
            CHECK_OK(usm_pool_reset(pool));
            check_dropped(pool, &outer); /* a reset came after it */
            CHECK_REFUSED(usm_pool_set_mark(pool, NULL), USM_E_INVALID, "mark");
            CHECK_REFUSED(usm_pool_reset_to(pool, NULL), USM_E_INVALID, "mark");
            usm_pool_destroy(pool);
        }
    }
}

Test(pool, direct_has_no_marks)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST))
            continue;
        usm_pool     *pool = pool_with(&r, USM_HOST, "direct", 0);
        usm_pool_mark mark = {{0}};
        CHECK_REFUSED(usm_pool_set_mark(pool, &mark), USM_E_NOT_SUPPORTED, "direct");
        CHECK_REFUSED(usm_pool_reset_to(pool, &mark), USM_E_NOT_SUPPORTED, "arena");
        usm_pool_destroy(pool);
    }
}

Test(pool, trimming_gives_unused_memory_back_to_the_driver)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)) || !has_pool(&r, k, "arena"))
                continue;
            usm_pool *pool = pool_with(&r, k, "arena", 0);
            pool_mem(pool, 3 << 20);
            pool_mem(pool, 3 << 20);
            uint64_t held = stats(pool).reserved;
            CHECK_OK(usm_pool_trim_to(pool, 0)); /* both blocks are live */
            CHECK(stats(pool).reserved >= 6 << 20, "%s: a live block was trimmed", r.name);
            CHECK_OK(usm_pool_reset(pool));
            CHECK_OK(usm_pool_trim_to(pool, SIZE_MAX));
            CHECK(stats(pool).reserved <= held, "%s: trimming took memory", r.name);
            CHECK_OK(usm_pool_trim_to(pool, 0));
            CHECK_NUMBER(stats(pool).reserved, 0);
            void *p = pool_mem(pool, 100); /* and it goes on working */
            usm_pool_free(pool, p);
            usm_pool_destroy(pool);
        }
    }
}

Test(pool, beyond_its_maximum_it_fails_with_budget)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            EACH_POOL (n) {
                usm_pool *pool = pool_with(&r, k, names[n], 8 << 20);
                void     *p    = pool_mem(pool, 3 << 20);
                CHECK_NO_BLOCK(usm_pool_malloc(pool, 9 << 20), USM_E_BUDGET);
                CHECK(story_names("8"), "the limit is not named: %s", usm_last_error());
                CHECK(stats(pool).reserved <= 8 << 20, "%s: over its maximum", r.name);
                CHECK_NUMBER(stats(pool).blocks, 1);
                usm_pool_free(pool, p);
                p = pool_mem(pool, 1 << 20);
                usm_pool_free(pool, p);
                usm_pool_destroy(pool);
            }
        }
    }
}

/* A driver that does not align by itself is asked for more than the block. */
Test(pool, alignment_takes_no_more_than_the_maximum)
{
    const size_t mib = (size_t)1 << 20;

    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            EACH_POOL (n) {
                usm_pool *pool = pool_with(&r, k, names[n], 5 * mib);
                void     *p[8];
                int       got = 0;
                while (got < 8 && (p[got] = usm_pool_aligned_alloc(pool, 2 * mib, mib)))
                    CHECK((uintptr_t)p[got++] % (2 * mib) == 0, "%s: not aligned", names[n]);
                CHECK(got > 0 && got < 8, "%s: %d blocks", names[n], got);
                CHECK(usm_last_status() == USM_E_BUDGET, "%s: %s", names[n], usm_last_error());
                CHECK(stats(pool).reserved_peak <= 5 * mib, "%s: %s: %llu of %zu reserved", r.name,
                      names[n], (unsigned long long)stats(pool).reserved_peak, 5 * mib);
                while (got > 0)
                    usm_pool_free(pool, p[--got]);
                CHECK_OK(usm_pool_trim_to(pool, 0));
                if (strcmp(names[n], "arena") != 0) /* an arena goes back by its reset */
                    CHECK_NUMBER(stats(pool).reserved, 0);
                usm_pool_destroy(pool);
            }
        }
    }
}

Test(pool, freed_memory_counts_no_more_against_the_maximum)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            usm_pool *pool = pool_with(&r, k, "direct", 8 << 20);
            for (int i = 0; i < 20; i++)
                usm_pool_free(pool, pool_mem(pool, 5 << 20));
            usm_pool_destroy(pool);
        }
    }
}

Test(pool, sized_frees_work)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            EACH_POOL (n) {
                usm_pool *pool = pool_with(&r, k, names[n], 0);
                void     *p[20];
                for (size_t i = 0; i < 20; i++)
                    p[i] = pool_mem(pool, i * 333);
                for (size_t i = 0; i < 20; i++)
                    usm_pool_free_sized(pool, p[i], i * 333);
                CHECK_NUMBER(stats(pool).blocks, 0);
                usm_pool_free_sized(pool, NULL, 5);
                usm_pool_free(pool, NULL);
                usm_pool_destroy(pool);
            }
        }
    }
}

Test(pool, alignments_up_to_2_mib_and_its_own_least_one_are_kept)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            EACH_POOL (n) {
                usm_pool_desc desc = USM_POOL_DESC_INIT;
                usm_pool     *pool = NULL;
                desc.name          = names[n];
                desc.min_align     = 4096;
                CHECK_OK(usm_pool_create(r.ctx, r.dev, k, &desc, &pool));
                for (size_t a = 0; a <= USM_MAX_ALIGNMENT; a = a ? a * 8 : 1) {
                    char  *p    = opaque(usm_pool_aligned_alloc(pool, a, 100));
                    size_t want = a > 4096 ? a : 4096;
                    CHECK(p, "%s: %s", r.name, usm_last_error());
                    CHECK((uintptr_t)p % want == 0, "%s: alignment %zu gave %p", r.name, a,
                          (void *)p);
                    CHECK((uintptr_t)pool_mem(pool, 7) % 4096 == 0, "%s: min_align", r.name);
                }
                CHECK_NO_BLOCK(usm_pool_aligned_alloc(pool, 24, 10), USM_E_ALIGNMENT);
                usm_pool_destroy(pool);
            }
        }
    }
}

Test(pool, its_blocks_hold_their_bytes)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k) | NEED_DATA))
                continue;
            EACH_POOL (n) {
                usm_pool     *pool = pool_with(&r, k, names[n], 0);
                unsigned char want[3000];
                void         *p[20];
                for (unsigned i = 0; i < 20; i++) {
                    p[i] = pool_mem(pool, sizeof want);
                    pattern_fill(want, sizeof want, i);
                    put(&r, p[i], want, sizeof want);
                }
                for (unsigned i = 0; i < 20; i++) {
                    pattern_fill(want, sizeof want, i);
                    check_bytes(&r, p[i], want, sizeof want, names[n]);
                }
                usm_pool_destroy(pool);
            }
        }
    }
}

Test(pool, usm_free_works_on_blocks_of_any_pool)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            EACH_POOL (n) {
                usm_pool *pool = pool_with(&r, k, names[n], 0);
                void     *p    = pool_mem(pool, 100);
                CHECK_OK(usm_free_ctx(p, r.ctx));
                if (counts_each_block(names[n]))
                    CHECK_NUMBER(stats(pool).frees, 1);
                CHECK_NUMBER(stats(pool).blocks, 0);
                usm_pool_destroy(pool);
            }
        }
    }
}

/* Whether the last free was refused with one of the two. */
static bool refused(usm_status a, usm_status b)
{
    return (usm_last_status() == a || usm_last_status() == b) && story_names("");
}

Test(pool, wrong_frees_are_named_and_change_nothing)
{
    int local = 0;

    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            EACH_POOL (n) {
                usm_pool *pool  = pool_with(&r, k, names[n], 0),
                         *other = pool_with(&r, k, names[n], 0);
                char *p = pool_mem(pool, 1000), *stays = pool_mem(pool, 1000);
                usm_pool_free(pool, opaque(p + 8));
                CHECK_IS(usm_last_status(), USM_E_INTERIOR_POINTER);
                usm_pool_free(pool, opaque(&local));
                CHECK_IS(usm_last_status(), USM_E_INVALID_POINTER);
                usm_pool_free(other, p); /* a block, but not of this pool */
                CHECK_IS(usm_last_status(), USM_E_INVALID_POINTER);
                CHECK_NUMBER(stats(pool).blocks, 2);
                usm_pool_free(pool, p);
                usm_pool_free(pool, opaque(p));
                CHECK(
                    refused(USM_E_DOUBLE_FREE, n == 0 ? USM_E_INVALID_POINTER : USM_E_DOUBLE_FREE),
                    "%s: %s: a double free is %s", r.name, names[n],
                    usm_status_name(usm_last_status()));
                CHECK_NUMBER(stats(pool).blocks, 1);
                CHECK(usm_get_pointer_type(stays, NULL) == k, "%s: the other block is gone",
                      r.name);
                usm_pool_destroy(pool);
                usm_pool_destroy(other);
            }
        }
    }
}

Test(pool, blocks_still_out_at_its_end_are_given_back)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            EACH_POOL (n) {
                usm_pool *pool = pool_with(&r, k, names[n], 0);
                void     *p    = pool_mem(pool, 100000);
                usm_pool_destroy(pool);
                CHECK(usm_get_pointer_type(p, NULL) == USM_UNKNOWN, "%s: it lives on", r.name);
                CHECK_IS(usm_free_ctx(opaque(p), NULL), USM_E_INVALID_POINTER);
            }
        }
    }
}

Test(pool, the_default_pool_is_one_for_each_kind_and_device)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            usm_pool *pool = usm_pool_default(r.ctx, r.dev, k);
            CHECK(pool, "%s: %s", r.name, usm_last_error());
            CHECK(pool == usm_pool_default(r.ctx, NULL, k), "%s: two of them", r.name);
            uint64_t before = stats(pool).allocations;
            void    *p      = mem(&r, k, 100);
            CHECK(stats(pool).allocations > before, "%s: not counted", r.name);
            usm_free(p);
            CHECK_NUMBER(stats(pool).blocks, 0);
        }
    }
}

Test(pool, an_unknown_pool_is_named_with_those_there_are)
{
    EACH_DEVICE (r) {
        usm_pool_desc desc = USM_POOL_DESC_INIT;
        usm_pool     *pool = NULL;
        desc.name          = "lagoon";
        CHECK_REFUSED(usm_pool_create(r.ctx, r.dev, USM_DEVICE, &desc, &pool), USM_E_NO_BACKEND,
                      "lagoon");
        CHECK(story_names("direct") && story_names("arena"), "not listed: %s", usm_last_error());
        CHECK(!pool, "%s: the output was touched", r.name);
    }
}

Test(pool, a_kind_the_device_lacks_is_refused)
{
    EACH_DEVICE (r) {
        bool lacks = false;
        EACH_KIND (k) {
            usm_pool *pool = NULL;
            if (has(&r, need_kind(k)))
                continue;
            lacks = true;
            CHECK_REFUSED(usm_pool_create(r.ctx, r.dev, k, NULL, &pool), USM_E_NOT_SUPPORTED,
                          kind_name(k));
            CHECK(!usm_pool_default(r.ctx, r.dev, k), "%s: a default pool all the same", r.name);
        }
        if (lacks)
            tried();
        else
            not_offered("%s has every kind", r.name);
    }
}

Test(pool, wrong_descriptors_and_kinds_are_refused)
{
    EACH_DEVICE (r) {
        usm_pool_desc desc = USM_POOL_DESC_INIT;
        usm_pool     *pool = NULL;
        CHECK_REFUSED(usm_pool_create(r.ctx, r.dev, (usm_kind)9, &desc, &pool), USM_E_KIND, "9");
        desc.min_align = 24;
        CHECK_REFUSED(usm_pool_create(r.ctx, r.dev, USM_DEVICE, &desc, &pool), USM_E_ALIGNMENT,
                      "24");
        desc.min_align = 0;
        desc.area_size = SIZE_MAX;
        CHECK_REFUSED(usm_pool_create(r.ctx, r.dev, USM_DEVICE, &desc, &pool), USM_E_SIZE,
                      "area_size");
        desc.area_size   = 0;
        desc.min_align   = 0;
        desc.struct_size = 3;
        CHECK_REFUSED(usm_pool_create(r.ctx, r.dev, USM_DEVICE, &desc, &pool), USM_E_ABI,
                      "USM_POOL_DESC_INIT");
        CHECK(!pool, "%s: the output was touched", r.name);
    }
}

TestAlone(pool, the_setting_chooses_the_default_pool_by_kind)
{
    CHECK_OK(usm_config_set("pool", "host:arena;device:direct"));
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST | NEED_DEVICE))
            continue;
        usm_pool *host = usm_pool_default(r.ctx, r.dev, USM_HOST),
                 *dev  = usm_pool_default(r.ctx, r.dev, USM_DEVICE);
        CHECK(host && dev, "%s: %s", r.name, usm_last_error());
        CHECK_OK(usm_pool_reset(host));
        CHECK_IS(usm_pool_reset(dev), USM_E_NOT_SUPPORTED);
        void *p = mem(&r, USM_HOST, 100);
        CHECK_NUMBER(stats(host).blocks, 1);
        usm_free(p);
    }
}

static void *take_and_give(void *arg)
{
    for (int i = 0; i < 3000; i++)
        usm_pool_free(arg, usm_pool_malloc(arg, 600));
    return NULL;
}

Test(pool, threads_together_stay_below_the_maximum)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST))
            continue;
        usm_pool_desc desc = USM_POOL_DESC_INIT;
        usm_pool     *pool = NULL;
        pthread_t     t[4];
        desc.name         = "direct";
        desc.maximum_size = 1000;
        CHECK_OK(usm_pool_create(r.ctx, r.dev, USM_HOST, &desc, &pool));
        for (int i = 0; i < 4; i++)
            CHECK(!pthread_create(&t[i], NULL, take_and_give, pool), "no thread");
        for (int i = 0; i < 4; i++)
            pthread_join(t[i], NULL);
        CHECK_NUMBER(stats(pool).reserved_peak, 600);
        CHECK_NUMBER(stats(pool).reserved, 0);
        usm_pool_destroy(pool);
    }
}
