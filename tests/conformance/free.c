/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "free": every way to give memory back, and every wrong pointer, which is named and changes
 * nothing. */
#include "common.h"

#include <pthread.h>

/* usm_free and usm_free_ctx refuse p with `want`. */
static void check_refused(void *p, usm_context *ctx, usm_status want, const char *what)
{
    CHECK_IS(usm_free_ctx(p, ctx), want);
    CHECK(story_names(""), "%s: no message", what);
    usm_free(p); /* tells by story and log, changes nothing */
    CHECK_IS(usm_last_status(), want);
}

TestAlone(free, null_is_fine)
{
    usm_free(NULL);
    CHECK_OK(usm_free_ctx(NULL, NULL));
    CHECK_OK(usm_free_blocking(NULL, NULL));
    CHECK_IS(usm_last_status(), USM_OK);
    EACH_DEVICE (r)
        CHECK_OK(usm_free_ctx(NULL, r.ctx));
}

Test(free, a_foreign_pointer_is_refused_by_name)
{
    static int fixed;
    int        local = 0;
    void      *heap  = malloc(100);

    EACH_DEVICE (r) {
        check_refused(opaque(&local), r.ctx, USM_E_INVALID_POINTER, "stack");
        check_refused(opaque(&fixed), r.ctx, USM_E_INVALID_POINTER, "static");
        check_refused(opaque(heap), NULL, USM_E_INVALID_POINTER, "heap");
    }
    memset(heap, 1, 100);
    free(heap); /* it was not freed before */
}

Test(free, a_double_free_is_refused_by_name)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            void      *p = mem(&r, k, 1000), *other = mem(&r, k, 1000);
            usm_status s;
            CHECK_OK(usm_free_ctx(p, r.ctx));
            s = usm_free_ctx(opaque(p), r.ctx);
            CHECK(s == USM_E_DOUBLE_FREE || s == USM_E_INVALID_POINTER, "%s: %s", r.name,
                  usm_status_name(s));
            CHECK(story_names("free"), "%s: %s", r.name, usm_last_error());
            CHECK(usm_get_pointer_type(other, r.ctx) == k, "%s: the neighbour is gone", r.name);
            CHECK_OK(usm_free_ctx(other, r.ctx));
        }
    }
}

Test(free, an_interior_pointer_is_refused_and_the_block_stays)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            char *p = mem(&r, k, 1000);
            check_refused(opaque(p + 1), r.ctx, USM_E_INTERIOR_POINTER, "p + 1");
            check_refused(opaque(p + 999), NULL, USM_E_INTERIOR_POINTER, "p + 999");
            CHECK(usm_get_pointer_type(p, r.ctx) == k, "%s: the block is gone", r.name);
            CHECK_OK(usm_free_ctx(p, r.ctx));
        }
    }
}

Test(free, a_block_of_another_context_is_refused_and_stays)
{
    EACH_DEVICE (r) {
        rig other = rig_first();
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            void *p = mem(&r, k, 100);
            CHECK_REFUSED(usm_free_ctx(p, other.ctx), USM_E_WRONG_CONTEXT, "context");
            CHECK(usm_get_pointer_type(p, r.ctx) == k, "%s: the block is gone", r.name);
            CHECK_OK(usm_free_ctx(p, r.ctx));
        }
        rig_end(&other);
    }
}

static void *free_here(void *p)
{
    static usm_status status;

    status = usm_free_ctx(p, NULL);
    return &status;
}

Test(free, any_thread_frees_any_pointer)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            pthread_t id;
            void     *status, *p = mem(&r, k, 1000);
            CHECK(!pthread_create(&id, NULL, free_here, p), "no thread");
            pthread_join(id, &status);
            CHECK(*(usm_status *)status == USM_OK, "%s: refused", r.name);
            CHECK(usm_get_pointer_type(p, NULL) == USM_UNKNOWN, "%s: still there", r.name);
        }
    }
}

Test(free, freeing_blocking_waits_for_the_work_on_the_block)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST | NEED_DATA))
            continue;
        size_t         n    = 4 << 20;
        unsigned char *want = malloc(n), *src = mem(&r, USM_HOST, n), *dst = malloc(n);
        CHECK(want && dst, "no memory for the test");
        pattern_fill(want, n, 4);
        memcpy(src, want, n);
        memset(dst, 0, n);
        for (int i = 0; i < 4; i++)
            CHECK_OK(usm_memcpy(r.q, dst, src, n, 0, NULL, NULL));
        CHECK_OK(usm_free_blocking(src, r.ctx)); /* the copies are done: no wait for the queue */
        CHECK(!memcmp(dst, want, n), "%s: freed before the copy was done", r.name);
        CHECK_OK(usm_queue_wait(r.q));
        free(want);
        free(dst);
    }
}

Test(free, freeing_blocking_refuses_what_free_refuses)
{
    int local = 0;

    EACH_DEVICE (r) {
        char *p = mem(&r, USM_DEVICE, 64);
        CHECK_IS(usm_free_blocking(opaque(&local), NULL), USM_E_INVALID_POINTER);
        CHECK_IS(usm_free_blocking(opaque(p + 3), r.ctx), USM_E_INTERIOR_POINTER);
        CHECK_OK(usm_free_blocking(p, r.ctx));
    }
}

Test(free, a_freed_blocks_memory_can_be_had_again)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            for (int i = 0; i < 2000; i++) /* 2 GB in all, 1 MB at a time */
                CHECK_OK(usm_free_ctx(mem(&r, k, 1 << 20), r.ctx));
        }
    }
}

Test(free, freeing_in_any_order_works)
{
    enum { N = 300 };

    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            void *p[N];
            for (unsigned i = 0; i < N; i++)
                p[i] = mem(&r, k, (i * 7919) % 9000 + 1);
            for (unsigned i = 0; i < N; i++) { /* 97 and N have no common divisor */
                unsigned at = (i * 97 + 5) % N;
                CHECK_OK(usm_free_ctx(p[at], r.ctx));
                CHECK(usm_get_pointer_type(p[at], NULL) == USM_UNKNOWN, "%s: %u", r.name, at);
            }
        }
    }
}

Test(free, the_refusal_is_told_by_story_and_status_of_the_thread)
{
    int local = 0;

    EACH_DEVICE (r) {
        usm_free(opaque(&local));
        CHECK_IS(usm_last_status(), USM_E_INVALID_POINTER);
        CHECK(strlen(usm_last_error()) > 20, "one sentence, not '%s'", usm_last_error());
    }
}
