/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands of queues over managed memory 8 times the limit: copies, fills, hints and kernels, on
 * devices that reach it and on one that does not (pocl-coarse). */
#include <plain.h>
#include <usm/usm.h>

#include <stdlib.h>
#include <string.h>

#define KIB   ((size_t)1 << 10)
#define MIB   ((size_t)1 << 20)
#define LIMIT (4 * MIB)
#define SIZE  (8 * LIMIT)
#define WORDS (SIZE / sizeof(uint32_t))

static usm_queue *q;

static uint32_t value_of(size_t i)
{
    return (uint32_t)i * UINT32_C(2654435761);
}

static void ok(usm_status st, const char *file, int line)
{
    if (st != USM_OK) {
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
        plain_fail(file, line, "success");
    }
}

#define OK(call) ok((call), __FILE__, __LINE__)

/* The case begins; skips where the machine does not allow managed memory. */
static void *begin(size_t size)
{
    void *p;

    OK(usm_queue_create(NULL, NULL, NULL, &q));
    p = usm_malloc_managed(size, q);
    if (!p && usm_last_status() == USM_E_NOT_SUPPORTED)
        SKIP(usm_last_error());
    CHECK(p != NULL);
    return p;
}

static void end(void *p)
{
    OK(usm_queue_wait(q));
    OK(usm_free_ctx(p, NULL));
    usm_queue_destroy(q);
}

static void write_all(uint32_t *x)
{
    for (size_t i = 0; i < WORDS; i++)
        x[i] = value_of(i);
}

static void check_all(const uint32_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        CHECK(x[i] == value_of(i));
}

static void copies_outgrow_memory(void)
{
    uint32_t  *x  = begin(SIZE);
    uint32_t  *y  = usm_malloc_managed(SIZE + MIB, q);
    usm_event *ev = NULL;

    CHECK(y != NULL);
    write_all(x);
    OK(usm_memcpy(q, y, x, SIZE, 0, NULL, &ev));
    OK(usm_memcpy(q, (char *)y + MIB, y, SIZE, 1, &ev, NULL)); /* overlapping */
    usm_event_release(ev);
    OK(usm_queue_wait(q));
    check_all(y + MIB / 4, WORDS);
    OK(usm_memcpy_2d(q, x, 3 * KIB, y, 2 * KIB, 2 * KIB, 1000, 0, NULL, NULL));
    OK(usm_queue_wait(q));
    CHECK(memcmp((char *)x + 3 * KIB * 999, (char *)y + 2 * KIB * 999, 2 * KIB) == 0);
    CHECK_INT(usm_memcpy(q, y, x, SIZE, 0, NULL, NULL), USM_OK);
    OK(usm_queue_wait(q));
    usm_free(y);
    end(x);
}

static void copies_reach_the_device(void)
{
    const size_t n = MIB;
    uint32_t    *x = begin(SIZE);
    char        *d = usm_malloc_device(n, q);

    CHECK(d != NULL);
    write_all(x);
    for (size_t at = 0; at < SIZE; at += n) {
        OK(usm_memcpy(q, d, (char *)x + at, n, 0, NULL, NULL));
        OK(usm_memcpy(q, (char *)x + at, x, n, 0, NULL, NULL));
        OK(usm_memcpy(q, (char *)x + at, d, n, 0, NULL, NULL));
    }
    OK(usm_queue_wait(q));
    check_all(x, WORDS);
    OK(usm_copy(d, x, n));
    OK(usm_copy((char *)x + n, d, n));
    check_all(x + n / 4, n / 4);
    usm_free(d);
    end(x);
}

static void fills_outgrow_memory(void)
{
    static const char pattern[12] = "eleven char";
    char             *x           = begin(SIZE);
    const size_t      count       = SIZE / sizeof pattern;

    OK(usm_memset(q, x, 7, SIZE, 0, NULL, NULL));
    OK(usm_queue_wait(q));
    for (size_t i = 0; i < SIZE; i += 61)
        CHECK(x[i] == 7);
    OK(usm_fill(q, x, pattern, sizeof pattern, count, 0, NULL, NULL));
    OK(usm_queue_wait(q));
    for (size_t i = 0; i < count; i += 5)
        CHECK(memcmp(x + i * sizeof pattern, pattern, sizeof pattern) == 0);
    CHECK_INT(x[SIZE - 1], SIZE % sizeof pattern ? 7 : pattern[11]);
    OK(usm_set(x, 9, SIZE));
    CHECK(x[0] == 9 && x[SIZE - 1] == 9);
    end(x);
}

static void hints_are_heeded(void)
{
    usm_spill_stats stats = {.struct_size = sizeof stats};
    uint32_t       *x     = begin(SIZE);
    char           *other;
    uint64_t        before;

    write_all(x);
    for (int a = USM_ADVICE_DEFAULT; a <= USM_ADVICE_WILL_NEED; a++)
        OK(usm_mem_advise(q, x, MIB, (usm_advice)a, 0, NULL, NULL));
    CHECK_INT(usm_mem_advise(q, x, MIB, (usm_advice)(USM_ADVICE_WILL_NEED + 1), 0, NULL, NULL),
              USM_E_INVALID);
    CHECK_INT(usm_prefetch(q, x, SIZE + 1, 0, NULL, NULL), USM_E_SIZE);
    OK(usm_mem_advise(q, x, SIZE, USM_ADVICE_RANDOM, 0, NULL, NULL));
    other = usm_malloc_managed(LIMIT, q); /* whose frames are free then: a hint takes no others */
    CHECK(other != NULL);
    memset(other, 1, LIMIT);
    usm_free(other);
    OK(usm_spill_get_stats(NULL, &stats));
    before = stats.prefetched;
    OK(usm_prefetch(q, x + WORDS / 2, MIB, 0, NULL, NULL));
    OK(usm_queue_wait(q));
    OK(usm_spill_get_stats(NULL, &stats));
    CHECK(stats.prefetched > before);
    check_all(x, WORDS);
    end(x);
}

static void add_native(const usm_range *r, void *const *args)
{
    uint32_t *x = *(uint32_t **)args[0];

    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        x[i] += 5;
}

static usm_kernel *make_kernel(void)
{
    static const usm_arg_kind      kinds[] = {USM_ARG_POINTER};
    static const usm_native_kernel native  = {"add", add_native, 1, kinds};
    static const char text[]   = "kernel void add(global uint *x) { x[get_global_id(0)] += 5; }";
    const usm_image   images[] = {{USM_IMAGE_NATIVE, &native, sizeof native},
                                  {USM_IMAGE_OPENCL_C, text, sizeof text - 1}};
    usm_program_desc  desc     = USM_PROGRAM_DESC_INIT;
    usm_program      *program  = NULL;
    usm_kernel       *k        = NULL;

    desc.images  = images;
    desc.nimages = 2;
    OK(usm_program_create(usm_queue_get_context(q), &desc, &program));
    OK(usm_kernel_create(program, "add", &k));
    usm_program_destroy(program);
    return k;
}

static void kernels_outgrow_memory_or_are_refused(void)
{
    uint32_t  *x      = begin(SIZE);
    usm_arg    args[] = {USM_ARG_PTR(x)};
    usm_launch l      = USM_LAUNCH_INIT;

    l.kernel    = make_kernel();
    l.args      = args;
    l.nargs     = 1;
    l.global[0] = WORDS;
    if (!usm_device_has(usm_queue_get_device(q), USM_ASPECT_USM_SHARED_ALLOCATIONS)) {
        CHECK_INT(usm_queue_submit(q, &l, 0, NULL, NULL), USM_E_INVALID_POINTER);
        CHECK_IN("managed memory", usm_last_error());
    } else {
        write_all(x);
        for (int pass = 0; pass < 2; pass++)
            OK(usm_queue_submit(q, &l, 0, NULL, NULL));
        OK(usm_queue_wait(q));
        for (size_t i = 0; i < WORDS; i++)
            CHECK(x[i] == value_of(i) + 10);
    }
    usm_kernel_destroy(l.kernel);
    end(x);
}

static const plain_case cases[] = {
    CASE(copies_outgrow_memory),
    CASE(copies_reach_the_device),
    CASE(fills_outgrow_memory),
    CASE(hints_are_heeded),
    CASE(kernels_outgrow_memory_or_are_refused),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    (void)setenv("USM_SPILL_BLOCK", "64K", 1);
    (void)setenv("USM_MEMORY_LIMIT", "host:4M", 1);
    return plain_main(argc, argv, cases);
}
