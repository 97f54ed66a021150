/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "fill": patterns of any size, on any memory, at any address. */
#include "common.h"

static const size_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 100, 128, 200};
#define NSIZES (sizeof sizes / sizeof *sizes)

/* count patterns of `size` bytes, `off` bytes into a block; the bytes around them stay. */
static void fill_one(const rig *r, usm_kind k, size_t size, size_t count, size_t off)
{
    size_t        total = off + size * count + 9;
    unsigned char pattern[256], *want = malloc(total);
    char         *p = mem(r, k, total), what[80];

    CHECK(want, "no memory for the test itself");
    pattern_fill(pattern, size, 0x51);
    memset(want, 0xcc, total);
    put(r, p, want, total);
    CHECK_OK(usm_fill(r->q, p + off, pattern, size, count, 0, NULL, NULL));
    memset(pattern, 0, sizeof pattern); /* it is needed during the call only */
    CHECK_OK(usm_queue_wait(r->q));
    pattern_fill(pattern, size, 0x51);
    for (size_t i = 0; i < count; i++)
        memcpy(want + off + i * size, pattern, size);
    snprintf(what, sizeof what, "%zu patterns of %zu at %zu in %s memory", count, size, off,
             kind_name(k));
    check_bytes(r, p, want, total, what);
    usm_free(p);
    free(want);
}

static void fill_all(size_t count, size_t off)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k) | NEED_DATA))
                continue;
            for (size_t i = 0; i < NSIZES; i++)
                fill_one(&r, k, sizes[i], count, off);
        }
    }
}

Test(fill, patterns_of_any_size_work)
{
    fill_all(33, 0);
}

Test(fill, a_single_pattern_works)
{
    fill_all(1, 0);
}

Test(fill, the_destination_need_not_be_aligned)
{
    fill_all(10, 1);
    fill_all(7, 3);
}

Test(fill, many_patterns_work)
{
    fill_all(40000, 0);
}

Test(fill, a_count_of_zero_changes_nothing)
{
    fill_all(0, 5);
}

Test(fill, a_pattern_of_no_bytes_is_refused)
{
    EACH_DEVICE (r) {
        char *p = mem(&r, USM_DEVICE, 64);
        CHECK_REFUSED(usm_fill(r.q, p, "x", 0, 4, 0, NULL, NULL), USM_E_INVALID, "pattern");
        CHECK_REFUSED(usm_fill(r.q, p, NULL, 4, 4, 0, NULL, NULL), USM_E_INVALID, "pattern");
        usm_free(p);
    }
}

Test(fill, a_product_that_overflows_is_refused)
{
    EACH_DEVICE (r) {
        char *p = mem(&r, USM_DEVICE, 64);
        CHECK_REFUSED(usm_fill(r.q, p, "abcdefgh", 8, opaque_size(SIZE_MAX / 4), 0, NULL, NULL),
                      USM_E_SIZE, "");
        usm_free(p);
    }
}

Test(fill, memset_takes_its_value_as_unsigned_char)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k) | NEED_DATA))
                continue;
            unsigned char want[777];
            char         *p = mem(&r, k, 777);
            memset(want, 0xfe, sizeof want);
            CHECK_OK(usm_memset(r.q, p, 0x7fe, 777, 0, NULL, NULL));
            check_bytes(&r, p, want, sizeof want, "memset");
            memset(want, 0xff, sizeof want);
            CHECK_OK(usm_memset(r.q, p, -1, 777, 0, NULL, NULL));
            check_bytes(&r, p, want, sizeof want, "memset -1");
            usm_free(p);
        }
    }
}

Test(fill, malloced_memory_is_filled_right_or_refused)
{
    EACH_DEVICE (r) {
        for (size_t i = 0; i < NSIZES; i++) {
            unsigned char pattern[256], *p = calloc(10, 200);
            usm_status    s;
            CHECK(p, "no memory for the test itself");
            pattern_fill(pattern, sizes[i], 3);
            s = usm_fill(r.q, p, pattern, sizes[i], 10, 0, NULL, NULL);
            if (s && s != USM_E_NO_DATA_MOVED)
                CHECK_IS(s, USM_E_INVALID_POINTER);
            CHECK_OK(usm_queue_wait(r.q));
            for (size_t n = 0; !s && n < 10; n++)
                CHECK(!memcmp(p + n * sizes[i], pattern, sizes[i]), "%s: pattern of %zu", r.name,
                      sizes[i]);
            free(p);
        }
    }
}

Test(fill, memory_of_another_context_is_filled)
{
    EACH_DEVICE (r) {
        rig other = rig_first();
        EACH_KIND (k) {
            if (!can(&r, need_kind(k) | NEED_DATA) || !has(&other, need_kind(k)))
                continue;
            unsigned char want[300];
            char         *p = mem(&other, k, 300);
            CHECK_OK(usm_fill(r.q, p, "abc", 3, 100, 0, NULL, NULL));
            CHECK_OK(usm_queue_wait(r.q));
            for (size_t i = 0; i < 300; i++)
                want[i] = (unsigned char)"abc"[i % 3];
            check_bytes(&other, p, want, 300, "of another context");
            usm_free(p);
        }
        rig_end(&other);
    }
}

Test(fill, odd_fills_keep_their_place_in_the_queue)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_DEVICE | NEED_DATA))
            continue;
        char back[36], *p = mem(&r, USM_DEVICE, 36);
        CHECK_OK(usm_fill(r.q, p, "xy", 2, 18, 0, NULL, NULL));
        CHECK_OK(usm_fill(r.q, p, "abc", 3, 6, 0, NULL, NULL));
        CHECK_OK(usm_fill(r.q, p + 6, "12345", 5, 2, 0, NULL, NULL));
        CHECK_OK(usm_memset(r.q, p + 34, 'z', 2, 0, NULL, NULL));
        CHECK_OK(usm_memcpy(r.q, back, p, 36, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(r.q));
        CHECK(!memcmp(back, "abcabc1234512345bcxyxyxyxyxyxyxyxyzz", 36), "%s: %.36s", r.name, back);
        usm_free(p);
    }
}

Test(fill, a_fill_waits_for_its_dependencies)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST | NEED_DATA))
            continue;
        char      *p    = mem(&r, USM_HOST, 12);
        usm_event *gate = gate_new(&r), *odd = NULL, *even = NULL;
        memset(p, '.', 12);
        CHECK_OK(usm_fill(r.q, p, "abc", 3, 2, 1, &gate, &odd));
        CHECK_OK(usm_fill(r.q, p + 8, "xy", 2, 2, 1, &gate, &even));
        CHECK_IS(usm_event_query(odd), USM_E_NOT_READY);
        CHECK_IS(usm_event_query(even), USM_E_NOT_READY);
        CHECK(!memcmp(p, "............", 12), "%s: filled before its turn", r.name);
        gate_open(gate);
        CHECK_OK(usm_event_wait(odd));
        CHECK_OK(usm_event_wait(even));
        CHECK(!memcmp(p, "abcabc..xyxy", 12), "%s: %.12s", r.name, p);
        usm_event_release(gate);
        usm_event_release(odd);
        usm_event_release(even);
        usm_free(p);
    }
}
