/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "copy": copies between all kinds of memory, with every shape and order.
 * What fills do is in fill.c. */
#include "common.h"

#include <unistd.h>

/* A kind for loops that also tries malloc'ed memory, USM_UNKNOWN. */
#define EACH_SIDE(k) for (usm_kind k = USM_UNKNOWN; k <= USM_SHARED; k = next_kind(k))

static uint64_t need_side(usm_kind k)
{
    return k == USM_UNKNOWN ? NEED_NOTHING : need_kind(k);
}

static unsigned char *bytes(size_t n, unsigned seed)
{
    unsigned char *p = malloc(n ? n : 1);

    CHECK(p, "no memory for the test itself");
    pattern_fill(p, n, seed);
    return p;
}

/* Copies n bytes between two blocks, off bytes into both, and looks at the whole destination. */
static void copy_one(const rig *r, usm_kind from, usm_kind to, size_t n, size_t off)
{
    size_t         size = n + 2 * off + 1;
    unsigned char *a = bytes(size, 1), *b = bytes(size, 2);
    char          *src = mem(r, from, size), *dst = mem(r, to, size), what[80];

    put(r, src, a, size);
    put(r, dst, b, size);
    CHECK_OK(usm_memcpy(r->q, dst + off, src + off, n, 0, NULL, NULL));
    CHECK_OK(usm_queue_wait(r->q));
    memcpy(b + off, a + off, n);
    snprintf(what, sizeof what, "%zu bytes from %s to %s", n, kind_name(from), kind_name(to));
    check_bytes(r, dst, b, size, what);
    mem_free(from, src);
    mem_free(to, dst);
    free(a);
    free(b);
}

static void copy_pairs(size_t n, size_t off)
{
    EACH_DEVICE (r) {
        EACH_SIDE (from) {
            EACH_SIDE (to)
                if (can(&r, need_side(from) | need_side(to) | NEED_DATA))
                    copy_one(&r, from, to, n, off);
        }
    }
}

Test(copy, one_byte_goes_between_all_pairs_of_memory)
{
    copy_pairs(1, 0);
}

Test(copy, odd_lengths_at_odd_offsets_go_between_all_pairs_of_memory)
{
    copy_pairs(1021, 3);
}

Test(copy, megabytes_go_between_all_pairs_of_memory)
{
    copy_pairs((3 << 20) + 5, 1);
}

Test(copy, zero_bytes_change_nothing_and_are_no_error)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST))
            continue;
        char       before[4] = "abc", *p = mem(&r, USM_HOST, 4);
        usm_event *ev = NULL;
        memcpy(p, before, 4);
        CHECK_OK(usm_memcpy(r.q, p, before + 1, 0, 0, NULL, &ev));
        CHECK_OK(usm_event_wait(ev));
        usm_event_release(ev);
        CHECK_OK(usm_memset(r.q, p, 7, 0, 0, NULL, NULL));
        CHECK_OK(usm_memcpy_2d(r.q, p, 2, before, 2, 0, 2, 0, NULL, NULL));
        CHECK_OK(usm_memcpy_2d(r.q, p, 2, before, 2, 2, 0, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(r.q));
        CHECK_OK(usm_copy(p, before, 0));
        CHECK_OK(usm_set(p, 9, 0));
        CHECK(!memcmp(p, before, 4), "%s: bytes changed", r.name);
        usm_free(p);
    }
}

Test(copy, zero_bytes_still_carry_their_dependencies)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST))
            continue;
        char      *p = mem(&r, USM_HOST, 8), local[8] = "";
        usm_event *gate = gate_new(&r), *ev = NULL;
        CHECK_OK(usm_memcpy(r.q, p, local, 0, 1, &gate, &ev));
        CHECK_IS(usm_event_query(ev), USM_E_NOT_READY);
        gate_open(gate);
        CHECK_OK(usm_event_wait(ev));
        usm_event_release(ev);
        usm_event_release(gate);
        usm_free(p);
    }
}

/* memmove within one block: by `shift` bytes up and down. */
static void overlap(const rig *r, usm_kind k, size_t n, size_t shift)
{
    unsigned char *want = bytes(n + shift, 6);
    char          *p    = mem(r, k, n + shift);

    put(r, p, want, n + shift);
    CHECK_OK(usm_memcpy(r->q, p + shift, p, n, 0, NULL, NULL));
    memmove(want + shift, want, n);
    check_bytes(r, p, want, n + shift, "overlapping, upwards");
    CHECK_OK(usm_memcpy(r->q, p, p + shift, n, 0, NULL, NULL));
    memmove(want, want + shift, n);
    check_bytes(r, p, want, n + shift, "overlapping, downwards");
    mem_free(k, p);
    free(want);
}

Test(copy, overlapping_copies_behave_as_memmove_in_both_directions)
{
    EACH_DEVICE (r) {
        EACH_SIDE (k) {
            if (!can(&r, need_side(k) | NEED_DATA))
                continue;
            overlap(&r, k, 1, 0);
            overlap(&r, k, 64, 1);
            overlap(&r, k, 1000, 999);
            overlap(&r, k, 4097, 16);
        }
    }
}

Test(copy, large_overlapping_copies_behave_as_memmove)
{
    EACH_DEVICE (r) {
        EACH_SIDE (k) {
            if (!can(&r, need_side(k) | NEED_DATA))
                continue;
            overlap(&r, k, (9 << 20) + 3, 5);
            overlap(&r, k, 9 << 20, (9 << 20) - 1); /* in one byte */
            overlap(&r, k, 9 << 20, 4 << 20);
        }
    }
}

Test(copy, a_copy_onto_itself_changes_nothing)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k) | NEED_DATA))
                continue;
            unsigned char *want = bytes(5000, 3);
            char          *p    = mem(&r, k, 5000);
            put(&r, p, want, 5000);
            CHECK_OK(usm_memcpy(r.q, p, p, 5000, 0, NULL, NULL));
            check_bytes(&r, p, want, 5000, "onto itself");
            usm_free(p);
            free(want);
        }
    }
}

/* 37 rows of 101 bytes between regions of pitches 128 and 160. */
static void copy_rows(const rig *r, usm_kind from, usm_kind to)
{
    enum { W = 101, H = 37, FROM = 128, TO = 160 };
    unsigned char *a = bytes(FROM * H, 1), *b = bytes(TO * H, 2);
    char          *src = mem(r, from, FROM * H), *dst = mem(r, to, TO * H), what[80];

    put(r, src, a, FROM * H);
    put(r, dst, b, TO * H);
    CHECK_OK(usm_memcpy_2d(r->q, dst, TO, src, FROM, W, H, 0, NULL, NULL));
    for (size_t y = 0; y < H; y++)
        memcpy(b + y * TO, a + y * FROM, W);
    snprintf(what, sizeof what, "rows from %s to %s", kind_name(from), kind_name(to));
    check_bytes(r, dst, b, TO * H, what);
    mem_free(from, src);
    mem_free(to, dst);
    free(a);
    free(b);
}

Test(copy, rows_with_pitches_go_between_all_pairs_of_memory)
{
    EACH_DEVICE (r) {
        EACH_SIDE (from) {
            EACH_SIDE (to)
                if (can(&r, need_side(from) | need_side(to) | NEED_DATA))
                    copy_rows(&r, from, to);
        }
    }
}

Test(copy, a_pitch_below_the_width_is_refused)
{
    EACH_DEVICE (r) {
        char *p = mem(&r, USM_DEVICE, 64), local[64] = "";
        CHECK_REFUSED(usm_memcpy_2d(r.q, p, 7, local, 8, 8, 2, 0, NULL, NULL), USM_E_INVALID,
                      "pitch");
        CHECK_REFUSED(usm_memcpy_2d(r.q, p, 8, local, 7, 8, 2, 0, NULL, NULL), USM_E_INVALID,
                      "pitch");
        usm_free(p);
    }
}

Test(copy, memory_of_another_context_is_copied_both_ways)
{
    EACH_DEVICE (r) {
        rig other = rig_first();
        EACH_KIND (from) {
            EACH_KIND (to) {
                if (!can(&r, need_kind(from) | need_kind(to) | NEED_DATA) ||
                    !has(&other, need_kind(from)))
                    continue;
                size_t         n    = (5 << 20) + 7;
                unsigned char *want = bytes(n, 8);
                char          *src = mem(&other, from, n), *dst = mem(&r, to, n);
                put(&other, src, want, n);
                CHECK_OK(usm_memcpy(r.q, dst, src, n, 0, NULL, NULL));
                check_bytes(&r, dst, want, n, "from another context");
                memset(want, 1, n);
                put(&r, dst, want, n);
                CHECK_OK(usm_memcpy(r.q, src, dst, n, 0, NULL, NULL));
                CHECK_OK(usm_queue_wait(r.q));
                check_bytes(&other, src, want, n, "to another context");
                usm_free(src);
                usm_free(dst);
                free(want);
            }
        }
        rig_end(&other);
    }
}

Test(copy, memory_of_two_other_contexts_is_copied_by_a_third)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_DEVICE | NEED_DATA))
            continue;
        rig            a = rig_first(), b = rig_first();
        unsigned char *want = bytes(100000, 4);
        char          *src = mem(&a, USM_DEVICE, 100000), *dst = mem(&b, USM_DEVICE, 100000);
        put(&a, src, want, 100000);
        CHECK_OK(usm_memcpy(r.q, dst, src, 100000, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(r.q));
        check_bytes(&b, dst, want, 100000, "by a third");
        free(want);
        rig_end(&a);
        rig_end(&b);
    }
}

Test(copy, rows_of_another_context_are_copied)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_DEVICE | NEED_DATA))
            continue;
        rig            other = rig_first();
        unsigned char *want = bytes(64 * 64, 4), *seen = bytes(32 * 64, 1);
        char          *src = mem(&other, USM_DEVICE, 64 * 64), *dst = mem(&r, USM_DEVICE, 32 * 64);
        put(&other, src, want, 64 * 64);
        CHECK_OK(usm_memcpy_2d(r.q, dst, 32, src, 64, 32, 64, 0, NULL, NULL));
        for (size_t y = 0; y < 64; y++)
            memcpy(seen + 32 * y, want + 64 * y, 32);
        check_bytes(&r, dst, seen, 32 * 64, "rows of another context");
        usm_free(dst);
        free(want);
        free(seen);
        rig_end(&other);
    }
}

Test(copy, dependencies_order_copies_of_an_out_of_order_queue)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(OUT_OF_ORDER_QUEUE) | NEED_DEVICE | NEED_DATA))
            continue;
        size_t         n    = 1 << 20;
        usm_queue     *q    = queue_with(&r, USM_QUEUE_OUT_OF_ORDER);
        unsigned char *want = bytes(n, 5), *back = bytes(n, 0);
        char          *a = mem(&r, USM_DEVICE, n), *b = mem(&r, USM_DEVICE, n);
        usm_event     *gate = gate_new(&r), *in = NULL, *across = NULL, *out = NULL;
        CHECK_OK(usm_memcpy(q, a, want, n, 1, &gate, &in));
        CHECK_OK(usm_memcpy(q, b, a, n, 1, &in, &across));
        CHECK_OK(usm_memcpy(q, back, b, n, 1, &across, &out));
        CHECK_IS(usm_event_query(out), USM_E_NOT_READY);
        gate_open(gate);
        CHECK_OK(usm_event_wait(out));
        CHECK(!memcmp(back, want, n), "%s: out of order after all", r.name);
        usm_event *all[] = {gate, in, across, out};
        for (int i = 0; i < 4; i++)
            usm_event_release(all[i]);
        usm_queue_destroy(q);
        usm_free(a);
        usm_free(b);
        free(want);
        free(back);
    }
}

Test(copy, overlapping_and_foreign_copies_keep_their_place_in_an_in_order_queue)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_DEVICE | NEED_DATA))
            continue;
        rig            other = rig_first();
        unsigned char *want = bytes(9000, 2), *back = bytes(9000, 0);
        char          *p = mem(&r, USM_DEVICE, 9000), *far = mem(&other, USM_DEVICE, 9000);
        /* Each step needs the one before; nothing waits in between. */
        CHECK_OK(usm_memcpy(r.q, p, want, 9000, 0, NULL, NULL));
        CHECK_OK(usm_memcpy(r.q, p + 10, p, 8000, 0, NULL, NULL));
        CHECK_OK(usm_memcpy(r.q, far, p, 9000, 0, NULL, NULL));
        CHECK_OK(usm_memset(r.q, p, 0, 9000, 0, NULL, NULL));
        CHECK_OK(usm_memcpy(r.q, p, far, 9000, 0, NULL, NULL));
        CHECK_OK(usm_memcpy(r.q, p, p + 3, 8000, 0, NULL, NULL));
        CHECK_OK(usm_memcpy(r.q, back, p, 9000, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(r.q));
        memmove(want + 10, want, 8000);
        memmove(want, want + 3, 8000);
        CHECK(!memcmp(back, want, 9000), "%s: the order was lost", r.name);
        usm_free(p);
        free(want);
        free(back);
        rig_end(&other);
    }
}

Test(copy, the_blocking_copy_finds_its_queue_by_the_pointers)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k) | NEED_DATA))
                continue;
            unsigned char *want = bytes(70001, 2), *back = bytes(70001, 0);
            char          *p = mem(&r, k, 70001);
            CHECK_OK(usm_copy(p, want, 70001));
            CHECK_OK(usm_copy(back, p, 70001));
            CHECK(!memcmp(back, want, 70001), "%s: %s", r.name, kind_name(k));
            usm_free(p);
            free(want);
            free(back);
        }
    }
}

Test(copy, the_blocking_copy_of_host_memory_only_is_memmove)
{
    unsigned char *p = bytes(1000, 2), *want = bytes(1000, 2);

    memmove(want + 5, want, 900);
    CHECK_OK(usm_copy(p + 5, p, 900));
    CHECK(!memcmp(p, want, 1000), "not as memmove");
    free(p);
    free(want);
}

Test(copy, the_blocking_copy_spans_contexts)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_DEVICE | NEED_DATA))
            continue;
        rig            other = rig_first();
        unsigned char *want  = bytes(3000, 2);
        char          *a = mem(&r, USM_DEVICE, 3000), *b = mem(&other, USM_DEVICE, 3000);
        CHECK_OK(usm_copy(a, want, 3000));
        CHECK_OK(usm_copy(b, a, 3000));
        check_bytes(&other, b, want, 3000, "usm_copy between contexts");
        usm_free(a);
        free(want);
        rig_end(&other);
    }
}

Test(copy, the_blocking_2d_copy_and_set_work)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k) | NEED_DATA))
                continue;
            unsigned char *want = bytes(50 * 20, 2);
            char          *p    = mem(&r, k, 60 * 20);
            CHECK_OK(usm_set(p, 0xa5, 60 * 20));
            CHECK_OK(usm_copy_2d(p, 60, want, 50, 40, 20));
            unsigned char seen[60 * 20];
            memset(seen, 0xa5, sizeof seen);
            for (size_t y = 0; y < 20; y++)
                memcpy(seen + 60 * y, want + 50 * y, 40);
            check_bytes(&r, p, seen, sizeof seen, "usm_copy_2d after usm_set");
            usm_free(p);
            free(want);
        }
    }
}

Test(copy, a_range_over_the_end_of_its_block_is_refused)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            char  *p    = mem(&r, k, 4096), *local;
            size_t size = usm_usable_size(p);
            local       = calloc(1, size + 64);
            CHECK_REFUSED(usm_memcpy(r.q, p, local, size + 1, 0, NULL, NULL), USM_E_SIZE, "");
            CHECK_REFUSED(usm_memcpy(r.q, local, p + 10, size - 9, 0, NULL, NULL), USM_E_SIZE, "");
            CHECK_REFUSED(usm_memset(r.q, p + 1, 0, size, 0, NULL, NULL), USM_E_SIZE, "");
            CHECK_REFUSED(usm_copy(p, local, size + 1), USM_E_SIZE, "");
            CHECK_REFUSED(usm_memcpy(r.q, p, local, opaque_size(SIZE_MAX), 0, NULL, NULL),
                          USM_E_SIZE, "");
            CHECK_REFUSED(usm_memcpy_2d(r.q, p, size, local, 8, 8, 2, 0, NULL, NULL), USM_E_SIZE,
                          "");
            usm_free(p);
            free(local);
        }
    }
}

Test(copy, null_pointers_are_refused)
{
    EACH_DEVICE (r) {
        char *p = mem(&r, USM_DEVICE, 64);
        CHECK_REFUSED(usm_memcpy(r.q, NULL, p, 8, 0, NULL, NULL), USM_E_INVALID_POINTER, "NULL");
        CHECK_REFUSED(usm_memcpy(r.q, p, NULL, 8, 0, NULL, NULL), USM_E_INVALID_POINTER, "NULL");
        CHECK_REFUSED(usm_memcpy_2d(r.q, NULL, 8, p, 8, 8, 1, 0, NULL, NULL), USM_E_INVALID_POINTER,
                      "NULL");
        CHECK_REFUSED(usm_memset(r.q, NULL, 0, 8, 0, NULL, NULL), USM_E_INVALID_POINTER, "NULL");
        CHECK_REFUSED(usm_copy(NULL, p, 8), USM_E_INVALID_POINTER, "NULL");
        CHECK_REFUSED(usm_copy(p, NULL, 8), USM_E_INVALID_POINTER, "NULL");
        CHECK_REFUSED(usm_set(NULL, 0, 8), USM_E_INVALID_POINTER, "NULL");
        usm_free(p);
    }
}

Test(copy, prefetch_and_every_advice_are_hints_that_complete)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            char      *p  = mem(&r, k, 100000);
            usm_event *ev = NULL;
            CHECK_OK(usm_prefetch(r.q, p + 5, 90000, 0, NULL, &ev));
            CHECK_OK(usm_event_wait(ev));
            usm_event_release(ev);
            for (int a = USM_ADVICE_DEFAULT; a <= USM_ADVICE_NO_PREFERRED_LOCATION; a++) {
                CHECK_OK(usm_mem_advise(r.q, p, 100000, (usm_advice)a, 0, NULL, &ev));
                CHECK_OK(usm_event_wait(ev));
                usm_event_release(ev);
            }
            CHECK_OK(usm_prefetch(r.q, p, 0, 0, NULL, NULL));
            CHECK_REFUSED(usm_mem_advise(r.q, p, 1, (usm_advice)99, 0, NULL, NULL), USM_E_INVALID,
                          "99");
            CHECK_OK(usm_queue_wait(r.q));
            usm_free(p);
        }
    }
}

Test(copy, after_an_advice_and_a_prefetch_the_data_is_the_same)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_SHARED | NEED_DATA))
            continue;
        unsigned char *want = bytes(100000, 2);
        char          *p    = mem(&r, USM_SHARED, 100000);
        memcpy(p, want, 100000);
        CHECK_OK(usm_mem_advise(r.q, p, 100000, USM_ADVICE_PREFER_DEVICE, 0, NULL, NULL));
        CHECK_OK(usm_prefetch(r.q, p, 100000, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(r.q));
        CHECK(!memcmp(p, want, 100000), "%s: the data changed", r.name);
        usm_free(p);
        free(want);
    }
}

Test(copy, a_device_that_moves_no_data_says_so_at_the_first_copy)
{
    EACH_DEVICE (r) {
        if (has(&r, NEED_DATA)) {
            not_offered("%s moves data", r.name);
            continue;
        }
        if (!can(&r, NEED_COMMANDS))
            continue;
        char *p = mem(&r, USM_HOST, 64), local[64] = "";
        CHECK_REFUSED(usm_copy(p, local, 64), USM_E_NO_DATA_MOVED, "");
        CHECK_REFUSED(usm_memcpy(r.q, p, local, 64, 0, NULL, NULL), USM_E_NO_DATA_MOVED, "");
        CHECK_OK(usm_free_ctx(p, r.ctx));
    }
}

/* Both are several commands below: all of them must see that the dependency failed. */
Test(copy, what_is_made_of_several_commands_does_nothing_behind_a_failed_event)
{
    EACH_DEVICE (r) {
        enum { N = 300000 };
        if (!can(&r, NEED_SHARED | NEED_DATA))
            continue;
        for (uint32_t flags = 0; flags <= USM_QUEUE_OUT_OF_ORDER; flags++) {
            if (flags && !has(&r, NEED(OUT_OF_ORDER_QUEUE)))
                continue;
            usm_queue *q    = queue_with(&r, flags);
            usm_event *gate = gate_new(&r), *ev[2];
            char      *p = mem(&r, USM_SHARED, N), *was = malloc(N);
            CHECK(was, "no memory for the test itself");
            pattern_fill(was, N, 7);
            put(&r, p, was, N);
            CHECK_OK(usm_memcpy(q, p + 10, p, N / 2, 1, &gate, &ev[0]));
            CHECK_OK(usm_fill(q, p, "abc", 3, N / 3, 1, &gate, &ev[1]));
            CHECK_OK(usm_event_signal(gate, USM_E_SYSTEM));
            CHECK_IS(usm_event_wait(ev[0]), USM_E_DEPENDENCY);
            CHECK_IS(usm_event_wait(ev[1]), USM_E_DEPENDENCY);
            (void)usm_queue_wait(q);
            check_bytes(&r, p, was, N, "after two commands that must not run");
            for (int i = 0; i < 2; i++)
                usm_event_release(ev[i]);
            usm_event_release(gate);
            usm_queue_destroy(q);
            usm_free(p);
            free(was);
        }
    }
}

/* i 0: the queue's context goes while the copy waits, 1: the other one's. */
static void copy_while_a_context_goes(const rig *r, int i)
{
    enum { SIZE = 100000 };
    usm_context_desc desc  = USM_CONTEXT_DESC_INIT;
    usm_device      *dev   = r->dev;
    usm_context     *ctx[] = {NULL, NULL};
    usm_queue       *q[2];
    usm_event       *gate = gate_new(r), *ev = NULL;
    char            *p[2], *text = malloc(SIZE), *back = malloc(SIZE);

    desc.ndevices = 1;
    desc.devices  = &dev;
    CHECK(text && back, "no memory for the test itself");
    pattern_fill(text, SIZE, 3);
    for (int k = 0; k < 2; k++) {
        CHECK_OK(usm_context_create(&desc, &ctx[k]));
        CHECK_OK(usm_queue_create(ctx[k], NULL, NULL, &q[k]));
        p[k] = usm_malloc_device(SIZE, q[k]);
        CHECK(p[k], "%s", usm_last_error());
    }
    CHECK_OK(usm_copy(p[1], text, SIZE));
    CHECK_OK(usm_memcpy(q[0], p[0], p[1], SIZE, 1, &gate, NULL));
    CHECK_OK(usm_memcpy(q[0], back, p[0], SIZE, 0, NULL, &ev));
    usm_queue_destroy(q[i]);
    usm_context_destroy(ctx[i]);
    gate_open(gate);
    CHECK_OK(usm_event_wait(ev));
    CHECK(!memcmp(text, back, SIZE), "%s: the data is not what was copied (%d)", r->name, i);
    usm_event_release(ev);
    usm_event_release(gate);
    usm_queue_destroy(q[!i]);
    usm_context_destroy(ctx[!i]);
    free(text);
    free(back);
}

Test(copy, between_contexts_it_ends_though_either_is_destroyed)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_DEVICE | NEED_DATA))
            continue;
        copy_while_a_context_goes(&r, 0);
        copy_while_a_context_goes(&r, 1);
    }
}

TestAlone(copy, an_overlapping_copy_over_the_limit_names_the_limit)
{
    CHECK_OK(usm_config_set("memory_limit", "device:1M"));
    EACH_DEVICE (r) {
        if (!can(&r, NEED_DEVICE | NEED_DATA))
            continue;
        wait_for_nothing_held(&r);
        char      *p  = mem(&r, USM_DEVICE, 700000);
        usm_event *ev = NULL;
        CHECK_OK(usm_memset(r.q, p, 1, 700000, 0, NULL, NULL));
        CHECK_IS(usm_memcpy(r.q, p + 1, p, 600000, 0, NULL, &ev), USM_E_BUDGET);
        CHECK(!ev, "%s: the output was touched", r.name);
        CHECK_OK(usm_queue_wait(r.q));
        usm_free(p);
    }
}

Test(copy, empty_hints_are_no_error_wherever_they_point)
{
    EACH_DEVICE (r) {
        CHECK_OK(usm_prefetch(r.q, NULL, 0, 0, NULL, NULL));
        CHECK_OK(usm_mem_advise(r.q, NULL, 0, USM_ADVICE_DEFAULT, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(r.q));
    }
}
