/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "pointers": what is answered about a pointer, whatever pointer it is. */
#include "common.h"

/* A pointer that is no live USM: every query says so. */
static void check_unknown(const void *p, usm_context *ctx, const char *what)
{
    usm_device  *dev  = NULL;
    usm_context *of   = NULL;
    void        *base = NULL;
    size_t       size = 77;

    CHECK(usm_get_pointer_type(p, ctx) == USM_UNKNOWN, "%s has a kind", what);
    CHECK_IS(usm_get_pointer_device(p, ctx, &dev), USM_E_INVALID_POINTER);
    CHECK_IS(usm_get_address_range(p, ctx, &base, &size), USM_E_INVALID_POINTER);
    CHECK(story_names(""), "%s: no message", what);
    if (!ctx)
        CHECK_IS(usm_get_pointer_context(p, &of), USM_E_INVALID_POINTER);
    CHECK(!dev && !base && !of && size == 77, "%s: an output was touched", what);
}

Test(pointers, the_kind_of_base_interior_and_last_byte_is_the_blocks)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            char *p = mem(&r, k, 100000);
            for (size_t at = 0; at < 100000; at += 11111) {
                CHECK(usm_get_pointer_type(p + at, r.ctx) == k, "%s: at %zu", r.name, at);
                CHECK(usm_get_pointer_type(p + at, NULL) == k, "%s: at %zu, any context", r.name,
                      at);
            }
            CHECK(usm_get_pointer_type(p + 99999, r.ctx) == k, "%s: the last byte", r.name);
            usm_free(p);
        }
    }
}

Test(pointers, one_past_the_end_is_not_in_the_block)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            char  *p    = mem(&r, k, 4096);
            void  *base = NULL;
            size_t size = 0;
            CHECK_OK(usm_get_address_range(p, r.ctx, &base, &size));
            char *end = p + size;
            base      = NULL;
            if (!usm_get_address_range(end, r.ctx, &base,
                                       &size)) /* then it is another block's start */
                CHECK(base == end, "%s: one past the end is inside %p", r.name, base);
            CHECK(base != p, "%s: one past the end is in the block", r.name);
            usm_free(p);
        }
    }
}

Test(pointers, the_byte_before_a_block_is_not_in_it)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            char  *p    = mem(&r, k, 4096);
            void  *base = NULL;
            size_t size = 0;
            if (!usm_get_address_range(p - 1, r.ctx, &base, &size))
                CHECK(base != p, "%s: the byte before is in the block", r.name);
            usm_free(p);
        }
    }
}

Test(pointers, a_freed_block_is_unknown)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            char *p = mem(&r, k, 5000), *freed = opaque(p);
            usm_free(p);
            check_unknown(freed, r.ctx, "a freed block");
            check_unknown(freed, NULL, "a freed block");
            check_unknown(freed + 100, NULL, "the inside of a freed block");
        }
    }
}

Test(pointers, stack_heap_static_and_null_are_unknown)
{
    static int fixed;
    int        local = 0;
    void      *heap  = malloc(100);

    EACH_DEVICE (r) {
        check_unknown(&local, r.ctx, "the stack");
        check_unknown(&fixed, r.ctx, "static memory");
        check_unknown(heap, r.ctx, "the heap");
        check_unknown(NULL, r.ctx, "NULL");
        check_unknown((const void *)(uintptr_t)16, r.ctx, "the zero page");
        check_unknown((const void *)UINTPTR_MAX, r.ctx, "the last address");
        check_unknown((const void *)((uintptr_t)1 << 47), r.ctx, "a kernel's address");
        check_unknown(&local, NULL, "the stack, any context");
        check_unknown(NULL, NULL, "NULL, any context");
    }
    free(heap);
}

Test(pointers, the_address_range_of_an_interior_pointer_is_the_whole_block)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            char  *p    = mem(&r, k, 12345);
            void  *base = NULL;
            size_t size = 0;
            CHECK_OK(usm_get_address_range(p + 12344, r.ctx, &base, &size));
            CHECK(base == p && size >= 12345, "%s: %p and %zu", r.name, base, size);
            usm_free(p);
        }
    }
}

Test(pointers, the_device_of_device_and_shared_memory_is_the_one_it_was_made_for)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            usm_device *dev = NULL;
            char       *p   = mem(&r, k, 100);
            CHECK_OK(usm_get_pointer_device(p + 50, r.ctx, &dev));
            CHECK(dev == r.dev, "%s: another device", r.name);
            usm_free(p);
        }
    }
}

/* Devices that share a context: those of the runtime, else the parts of its first. */
static usm_context *context_of_several(usm_device **list, size_t *count)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_device_info  info = USM_DEVICE_INFO_INIT;
    usm_context     *ctx  = NULL;
    char             term[64];

    CHECK_OK(usm_get_devices(list, 32, count));
    CHECK_OK(usm_device_get_info(list[0], &info));
    snprintf(term, sizeof term, "%s.*", info.selector);
    if (*count < 2 && usm_select_devices(term, list, 32, count))
        return NULL;
    desc.ndevices = *count < 32 ? *count : 32;
    desc.devices  = list;
    return usm_context_create(&desc, &ctx) ? NULL : ctx;
}

Test(pointers, in_a_context_of_several_devices_memory_knows_its_own)
{
    usm_device  *list[32], *dev = NULL;
    size_t       count = 0;
    usm_context *ctx   = context_of_several(list, &count);

    if (!ctx) {
        not_offered("no two devices of one platform, and no parts");
        return;
    }
    tried();
    for (size_t i = 0; i < count && i < 32; i++) {
        bool  has_host = usm_device_has(list[i], USM_ASPECT_USM_HOST_ALLOCATIONS);
        void *p        = usm_malloc_ctx(100, list[i], ctx, USM_DEVICE),
             *h        = has_host ? usm_malloc_ctx(100, list[i], ctx, USM_HOST) : NULL;
        CHECK(p && (h || !has_host), "%s", usm_last_error());
        CHECK_OK(usm_get_pointer_device(p, ctx, &dev));
        CHECK(dev == list[i], "device memory of %zu", i);
        if (!h) {
            usm_free(p);
            continue;
        }
        CHECK_OK(usm_get_pointer_device(h, ctx, &dev));
        CHECK(dev == list[0], "host memory belongs to the first device of its context");
        usm_free(p);
        usm_free(h);
    }
    usm_context_destroy(ctx);
}

Test(pointers, memory_of_one_context_is_unknown_in_another)
{
    EACH_DEVICE (r) {
        usm_context     *other = NULL, *of = NULL;
        usm_context_desc desc = USM_CONTEXT_DESC_INIT;
        desc.ndevices         = 1;
        desc.devices          = &r.dev;
        CHECK_OK(usm_context_create(&desc, &other));
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            char *p = mem(&r, k, 100);
            check_unknown(p, other, "memory of another context");
            CHECK(usm_get_pointer_type(p, NULL) == k, "%s: context NULL means any", r.name);
            CHECK_OK(usm_get_pointer_context(p + 99, &of));
            CHECK(of == r.ctx, "%s: of another context", r.name);
            usm_free(p);
        }
        usm_context_destroy(other);
    }
}

Test(pointers, every_block_of_many_is_found)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            enum { N = 400 };
            char *p[N];
            for (size_t i = 0; i < N; i++)
                p[i] = mem(&r, k, i * 37 + 1);
            for (size_t i = 0; i < N; i += 2)
                usm_free(p[i]);
            for (size_t i = 1; i < N; i += 2) {
                void  *base = NULL;
                size_t size = 0;
                CHECK_OK(usm_get_address_range(p[i] + i * 37, r.ctx, &base, &size));
                CHECK(base == p[i], "%s: block %zu", r.name, i);
            }
            for (size_t i = 1; i < N; i += 2)
                CHECK_OK(usm_free_ctx(p[i], r.ctx));
        }
    }
}

Test(pointers, addresses_are_unique_in_the_process)
{
    enum { N = 8 };
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;

    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            usm_context *ctx[N];
            char        *p[N];
            desc.ndevices = 1;
            desc.devices  = &r.dev;
            for (int i = 0; i < N; i++) {
                CHECK_OK(usm_context_create(&desc, &ctx[i]));
                p[i] = usm_malloc_ctx(70000, r.dev, ctx[i], k);
                CHECK(p[i], "%s: context %d: %s", r.name, i, usm_last_error());
                for (int j = 0; j < i; j++)
                    CHECK(p[i] + 70000 <= p[j] || p[j] + 70000 <= p[i],
                          "%s: two contexts have one address", r.name);
            }
            for (int i = 0; i < N; i++)
                usm_context_destroy(ctx[i]);
        }
    }
}
