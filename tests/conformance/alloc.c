/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "alloc": what the functions that allocate promise.  Frees are in free.c, pools in pool.c.
 */
#include "common.h"

#include <errno.h>
#include <pthread.h>

Test(alloc, each_kind_gives_memory_of_that_kind_and_size)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            void  *p = mem(&r, k, 1000), *base = NULL;
            size_t size = 0;
            CHECK(usm_get_pointer_type(p, r.ctx) == k, "%s: %s memory is of kind %d", r.name,
                  kind_name(k), usm_get_pointer_type(p, r.ctx));
            CHECK_OK(usm_get_address_range(p, r.ctx, &base, &size));
            CHECK(base == p && size >= 1000, "%s: block %p of %zu bytes at %p", r.name, base, size,
                  p);
            CHECK_OK(usm_free_ctx(p, r.ctx));
        }
    }
}

Test(alloc, a_kind_the_device_lacks_is_refused_by_name)
{
    EACH_DEVICE (r) {
        bool lacks = false;
        EACH_KIND (k) {
            if (has(&r, need_kind(k)))
                continue;
            lacks = true;
            CHECK_NO_BLOCK(usm_malloc(64, r.q, k), USM_E_NOT_SUPPORTED);
            CHECK(story_names(kind_name(k)), "%s: %s", r.name, usm_last_error());
            CHECK(story_names(has(&r, NEED_DEVICE) ? "device memory and copies" : "another kind"),
                  "%s: no remedy: %s", r.name, usm_last_error());
        }
        if (lacks)
            tried();
        else
            not_offered("%s has every kind", r.name);
    }
}

Test(alloc, host_and_shared_memory_can_be_written_and_read_by_the_host)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (k == USM_DEVICE || !can(&r, need_kind(k)))
                continue;
            unsigned char *p = mem(&r, k, 70000);
            pattern_fill(p, 70000, 5);
            CHECK(p[69999] == (unsigned char)((69999 * 31 + 273 * 7 + 3 + 5) & 0xff),
                  "%s: %s memory lost a byte", r.name, kind_name(k));
            usm_free(p);
        }
    }
}

Test(alloc, size_zero_gives_unique_pointers_that_can_be_freed)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            void *p[16], *other = mem(&r, k, 4096);
            for (int i = 0; i < 16; i++)
                p[i] = mem(&r, k, 0);
            for (int i = 0; i < 16; i++) {
                CHECK(p[i] != other, "%s: aliases a live block", r.name);
                CHECK(usm_get_pointer_type(p[i], r.ctx) == k, "%s: not a block", r.name);
                for (int j = 0; j < i; j++)
                    CHECK(p[i] != p[j], "%s: two blocks of size 0 at %p", r.name, p[i]);
            }
            for (int i = 0; i < 16; i++)
                CHECK_OK(usm_free_ctx(p[i], r.ctx));
            usm_free(other);
        }
    }
}

Test(alloc, live_blocks_never_overlap)
{
    static const size_t sizes[] = {1, 16, 100, 1000, 4096, 5000, 65536, 100000, 1 << 20};

    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            char *p[45];
            for (size_t i = 0; i < 45; i++)
                p[i] = mem(&r, k, sizes[i % 9]);
            for (size_t i = 0; i < 45; i++)
                for (size_t j = 0; j < i; j++)
                    CHECK(p[i] + sizes[i % 9] <= p[j] || p[j] + sizes[j % 9] <= p[i],
                          "%s: %s blocks %zu and %zu overlap", r.name, kind_name(k), i, j);
            for (size_t i = 0; i < 45; i++)
                CHECK_OK(usm_free_ctx(p[i], NULL));
        }
    }
}

Test(alloc, the_default_alignment_is_16_on_the_host_and_64_elsewhere)
{
    EACH_DEVICE (r) {
        usm_device_info info = USM_DEVICE_INFO_INIT;
        CHECK_OK(usm_device_get_info(r.dev, &info));
        size_t least = strcmp(info.backend, "host") ? 64 : 16;
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            for (size_t n = 1; n <= 4096; n = n * 3 + 1) {
                void *p = mem(&r, k, n);
                CHECK((uintptr_t)p % least == 0, "%s: %s block of %zu at %p", r.name, kind_name(k),
                      n, p);
                CHECK_OK(usm_free_ctx(p, NULL));
            }
        }
    }
}

Test(alloc, every_alignment_up_to_2_mib_is_honoured)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            for (size_t align = 1; align <= USM_MAX_ALIGNMENT; align *= 2) {
                for (size_t n = 1; n <= 300000; n = n * 100 + 7) {
                    void *p = opaque(usm_aligned_alloc_ctx(align, n, r.dev, r.ctx, k));
                    CHECK(p, "%s: %s, alignment %zu: %s", r.name, kind_name(k), align,
                          usm_last_error());
                    CHECK((uintptr_t)p % align == 0, "%s: %s, alignment %zu gave %p", r.name,
                          kind_name(k), align, p);
                    CHECK_OK(usm_free_ctx(p, NULL));
                }
            }
        }
    }
}

Test(alloc, aligned_blocks_hold_their_bytes)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k) | NEED_DATA))
                continue;
            size_t         n    = 123457;
            unsigned char *want = malloc(n), *p[4];
            CHECK(want, "no memory for the test");
            pattern_fill(want, n, 9);
            for (int i = 0; i < 4; i++) {
                p[i] = usm_aligned_alloc_ctx((size_t)4096 << (3 * i), n, r.dev, r.ctx, k);
                CHECK(p[i], "%s: %s", r.name, usm_last_error());
                put(&r, p[i], want, n);
            }
            for (int i = 0; i < 4; i++) {
                check_bytes(&r, p[i], want, n, "an aligned block");
                CHECK_OK(usm_free_ctx(p[i], NULL));
            }
            free(want);
        }
    }
}

Test(alloc, the_aligned_forms_of_each_kind_take_alignment_first)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST | NEED_DEVICE | NEED_SHARED))
            continue;
        void *p[3] = {opaque(usm_aligned_alloc_host(65536, 100, r.q)),
                      opaque(usm_aligned_alloc_device(65536, 100, r.q)),
                      opaque(usm_aligned_alloc_shared(65536, 100, r.q))};
        for (int i = 0; i < 3; i++) {
            CHECK(p[i], "%s: %s", r.name, usm_last_error());
            CHECK((uintptr_t)p[i] % 65536 == 0, "%s: %p", r.name, p[i]);
            CHECK(usm_get_pointer_type(p[i], r.ctx) == (usm_kind)(i + 1), "%s: kind of %d", r.name,
                  i);
            usm_free(p[i]);
        }
    }
}

Test(alloc, alignment_zero_is_the_default)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            void *p = opaque(usm_aligned_alloc_ctx(opaque_size(0), 100, r.dev, r.ctx, k));
            CHECK(p, "%s: %s", r.name, usm_last_error());
            CHECK((uintptr_t)p % 16 == 0, "%s: %p", r.name, p);
            usm_free(p);
        }
    }
}

Test(alloc, an_alignment_of_3_is_refused_by_name)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            CHECK_NO_BLOCK(usm_aligned_alloc_ctx(opaque_size(3), 64, r.dev, r.ctx, k),
                           USM_E_ALIGNMENT);
            CHECK(story_names("3"), "the story does not name 3: %s", usm_last_error());
        }
    }
    CHECK_NO_BLOCK(usm_aligned_alloc(opaque_size(3), 64, USM_DEVICE), USM_E_ALIGNMENT);
}

Test(alloc, an_alignment_of_2_to_the_40_is_refused_by_name)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            CHECK_NO_BLOCK(usm_aligned_alloc_ctx(opaque_size((size_t)1 << 40), 64, r.dev, r.ctx, k),
                           USM_E_ALIGNMENT);
        }
    }
}

Test(alloc, a_size_of_size_max_is_a_named_failure)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            for (size_t less = 0; less <= 4096; less = less * 8 + 1) {
                errno   = 0;
                void *p = usm_malloc(opaque_size(SIZE_MAX - less), r.q, k);
                CHECK(!p, "%s: a block of SIZE_MAX - %zu", r.name, less);
                CHECK(errno == ENOMEM, "%s: errno %d", r.name, errno);
                CHECK(usm_last_status() == USM_E_SIZE || usm_last_status() == USM_E_NO_MEMORY,
                      "%s: %s", r.name, usm_status_name(usm_last_status()));
                CHECK(story_names(""), "%s: no message", r.name);
            }
            void *p = mem(&r, k, 64); /* and the device still works */
            usm_free(p);
        }
    }
}

Test(alloc, more_than_the_device_has_is_an_ordinary_failure)
{
    EACH_DEVICE (r) {
        usm_device_info info = USM_DEVICE_INFO_INIT;
        CHECK_OK(usm_device_get_info(r.dev, &info));
        if (!can(&r, NEED_DEVICE))
            continue;
        errno = 0;
        void *p =
            usm_malloc_device(opaque_size((size_t)info.memory_size * 2 + ((size_t)1 << 40)), r.q);
        CHECK(!p, "%s: a block beyond the device's memory", r.name);
        CHECK(errno == ENOMEM, "errno %d", errno);
        CHECK(usm_last_status() == USM_E_SIZE || usm_last_status() == USM_E_NO_MEMORY, "%s: %s",
              r.name, usm_last_error());
    }
}

Test(alloc, more_than_the_machine_has_is_refused_for_the_host_by_name)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST))
            continue;
        CHECK_NO_BLOCK(usm_malloc_host(opaque_size((size_t)1 << 45), r.q), USM_E_SIZE);
        CHECK(story_names("this machine"), "%s: %s", r.name, usm_last_error());
    }
}

Test(alloc, size_and_kind_swapped_is_named)
{
    CHECK_NO_BLOCK(usm_alloc(opaque_size(USM_DEVICE), (usm_kind)4096), USM_E_KIND);
    CHECK(story_names("swapped"), "the story asks nothing about swapping: %s", usm_last_error());
    CHECK_NO_BLOCK(usm_alloc(64, USM_UNKNOWN), USM_E_KIND);
    CHECK_NO_BLOCK(usm_calloc(4, 16, (usm_kind)4), USM_E_KIND);
    CHECK_NO_BLOCK(usm_aligned_alloc(64, 2, (usm_kind)4096), USM_E_KIND);
    CHECK_NO_BLOCK(usm_realloc(NULL, 64, (usm_kind)-1), USM_E_KIND);
    EACH_DEVICE (r)
        CHECK_NO_BLOCK(usm_malloc(3, r.q, (usm_kind)4096), USM_E_KIND);
}

Test(alloc, the_default_forms_work_on_the_first_device)
{
    rig         r   = rig_first();
    usm_device *dev = NULL;

    EACH_KIND (k) {
        if (!can(&r, need_kind(k)))
            continue;
        void *p = usm_alloc(300, k), *q = k == USM_HOST     ? usm_alloc_host(300)
                                          : k == USM_DEVICE ? usm_alloc_device(300)
                                                            : usm_alloc_shared(300);
        CHECK(p && q, "%s", usm_last_error());
        CHECK(usm_get_pointer_type(p, NULL) == k && usm_get_pointer_type(q, NULL) == k, "kind");
        CHECK(usm_get_pointer_type(p, usm_default_context()) == k, "not in the default context");
        CHECK_OK(usm_get_pointer_device(p, NULL, &dev));
        CHECK(dev == r.dev, "not on the selector's first device");
        usm_free(p);
        usm_free(q);
    }
    rig_end(&r);
}

Test(alloc, calloc_gives_zeroes_in_every_kind)
{
    static const unsigned char zeroes[10007];
    rig                        r = rig_first();

    EACH_KIND (k) {
        if (!can(&r, need_kind(k) | NEED_DATA))
            continue;
        for (int round = 0; round < 4; round++) { /* the later ones may get dirty memory again */
            void *p = usm_calloc(10007, 1, k);
            CHECK(p, "%s", usm_last_error());
            check_bytes(&r, p, zeroes, sizeof zeroes, "calloc");
            CHECK_OK(usm_set(p, 0xee, sizeof zeroes));
            usm_free(p);
        }
    }
    rig_end(&r);
}

Test(alloc, calloc_refuses_a_product_that_overflows)
{
    EACH_KIND (k) {
        errno   = 0;
        void *p = usm_calloc(opaque_size(SIZE_MAX / 2), opaque_size(3), k);
        CHECK(!p, "a block of a product that overflowed");
        CHECK(errno == ENOMEM, "errno %d", errno);
        CHECK(usm_last_status() != USM_OK && story_names(""), "no message");
    }
}

Test(alloc, realloc_keeps_contents_and_kind_when_growing_and_shrinking)
{
    rig                 r = rig_first();
    unsigned char       want[5000];
    static const size_t sizes[] = {100, 5000, 70000, 5000, 40, 0, 10};

    pattern_fill(want, sizeof want, 77);
    EACH_KIND (k) {
        if (!can(&r, need_kind(k) | NEED_DATA))
            continue;
        unsigned char *p    = usm_realloc(NULL, 40, k);
        size_t         kept = 40;
        CHECK(p, "realloc of NULL: %s", usm_last_error());
        CHECK_OK(usm_copy(p, want, 40));
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            p    = usm_realloc(p, sizes[i], USM_UNKNOWN);
            kept = kept < sizes[i] ? kept : sizes[i];
            CHECK(p, "realloc to %zu: %s", sizes[i], usm_last_error());
            CHECK(usm_get_pointer_type(p, NULL) == k, "realloc lost the kind");
            CHECK(usm_usable_size(p) >= sizes[i], "realloc to %zu: %zu", sizes[i],
                  usm_usable_size(p));
            check_bytes(&r, p, want, kept, "realloc");
        }
        usm_free(p);
    }
    rig_end(&r);
}

Test(alloc, realloc_moves_a_block_to_another_kind)
{
    rig           r = rig_first();
    unsigned char want[3000];

    pattern_fill(want, sizeof want, 3);
    if (can(&r, NEED_HOST | NEED_DEVICE | NEED_SHARED | NEED_DATA)) {
        void *p = usm_alloc_host(sizeof want);
        CHECK(p, "%s", usm_last_error());
        CHECK_OK(usm_copy(p, want, sizeof want));
        p = usm_realloc(p, sizeof want, USM_DEVICE);
        CHECK(p && usm_get_pointer_type(p, NULL) == USM_DEVICE, "to device: %s", usm_last_error());
        p = usm_realloc(p, sizeof want + 1, USM_SHARED);
        CHECK(p && usm_get_pointer_type(p, NULL) == USM_SHARED, "to shared: %s", usm_last_error());
        check_bytes(&r, p, want, sizeof want, "realloc to another kind");
        usm_free(p);
    }
    rig_end(&r);
}

Test(alloc, a_realloc_that_fails_leaves_the_block_alone)
{
    rig           r = rig_first();
    unsigned char want[64];
    void         *p;

    pattern_fill(want, sizeof want, 8);
    EACH_KIND (k) {
        if (!can(&r, need_kind(k) | NEED_DATA))
            continue;
        p = usm_alloc(sizeof want, k);
        CHECK(p, "%s", usm_last_error());
        CHECK_OK(usm_copy(p, want, sizeof want));
        CHECK(!usm_realloc(p, opaque_size(SIZE_MAX / 2), USM_UNKNOWN), "realloc to half of all");
        check_bytes(&r, p, want, sizeof want, "after a realloc that failed");
        usm_free(p);
    }
    rig_end(&r);
}

Test(alloc, realloc_of_a_foreign_pointer_is_refused)
{
    char  local[16] = "";
    void *heap      = malloc(64);

    CHECK_NO_BLOCK(usm_realloc(opaque(local), 32, USM_UNKNOWN), USM_E_INVALID_POINTER);
    CHECK_NO_BLOCK(usm_realloc(opaque(heap), 32, USM_HOST), USM_E_INVALID_POINTER);
    free(heap);
}

Test(alloc, realloc_of_an_interior_pointer_is_refused)
{
    rig   r = rig_first();
    char *p = mem(&r, USM_DEVICE, 64);

    CHECK_NO_BLOCK(usm_realloc(opaque(p + 8), 128, USM_UNKNOWN), USM_E_INTERIOR_POINTER);
    CHECK_OK(usm_free_ctx(p, r.ctx));
    rig_end(&r);
}

Test(alloc, usable_size_counts_from_the_pointer_to_the_end_of_its_block)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, need_kind(k)))
                continue;
            char  *p = mem(&r, k, 1000), *freed = opaque(p);
            size_t size = usm_usable_size(p);
            CHECK(size >= 1000, "%s: %zu of 1000 usable", r.name, size);
            CHECK(usm_usable_size(p + 600) == size - 600, "%s: interior", r.name);
            usm_free(p);
            CHECK(usm_usable_size(freed) == 0, "%s: of a freed block", r.name);
        }
    }
    CHECK(usm_usable_size(NULL) == 0, "of NULL");
}

#define THREADS 4
#define BLOCKS  64

typedef struct worker {
    const rig  *r;
    usm_kind    kind;
    unsigned    id;
    char       *block[BLOCKS];
    const char *wrong; /* what went wrong; asserted by the main thread */
} worker;

static size_t block_size(unsigned i)
{
    return (size_t)(i % 16 + 1) * 40;
}

static void *allocate_and_stamp(void *arg)
{
    worker *w = arg;

    for (int round = 0; round < 20 && !w->wrong; round++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            w->block[i] = usm_malloc(block_size(i), w->r->q, w->kind);
            if (!w->block[i])
                w->wrong = "no block";
            else
                memset(w->block[i], (int)(w->id * BLOCKS + i) & 0xff, block_size(i));
        }
        for (unsigned i = 0; i < BLOCKS && !w->wrong; i++) {
            for (size_t b = 0; b < block_size(i); b++)
                if ((unsigned char)w->block[i][b] != ((w->id * BLOCKS + i) & 0xff))
                    w->wrong = "a block of two threads";
            if (round < 19 && usm_free_ctx(w->block[i], w->r->ctx))
                w->wrong = "a free was refused";
        }
    }
    return NULL;
}

Test(alloc, many_threads_get_blocks_of_their_own)
{
    EACH_DEVICE (r) {
        usm_kind  k = has(&r, NEED_SHARED) ? USM_SHARED : USM_HOST;
        worker    w[THREADS];
        pthread_t id[THREADS];

        if (!can(&r, need_kind(k)))
            continue;
        for (unsigned t = 0; t < THREADS; t++) {
            w[t] = (worker){&r, k, t, {0}, NULL};
            CHECK(!pthread_create(&id[t], NULL, allocate_and_stamp, &w[t]), "no thread");
        }
        for (unsigned t = 0; t < THREADS; t++)
            pthread_join(id[t], NULL);
        for (unsigned t = 0; t < THREADS; t++) {
            CHECK(!w[t].wrong, "%s: thread %u: %s", r.name, t, w[t].wrong);
            for (unsigned i = 0; i < BLOCKS; i++) /* the main thread frees the others' blocks */
                CHECK_OK(usm_free_ctx(w[t].block[i], r.ctx));
        }
    }
}
