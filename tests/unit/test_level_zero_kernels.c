/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The Level Zero backend: kernels and launches over each image that the device takes, right ones
 * and wrong ones, and all of it on a heap and a driver that run out of memory. */
#include "level_zero_images.h"

/* It is refused, nothing is left, and the story has `word`. */
static void refused(void *kernel, const usm_launch *l, usm_status status, const char *word)
{
    void *ev = NULL;

    CHECK_INT(ops->launch(q, kernel, l, 0, NULL, &ev), status);
    CHECK(ev == NULL);
    CHECK_IN(word, usm_last_error());
}

/* --- launches ----------------------------------------------------------------------------- */

static void check_range(void *program)
{
    enum { X = 12, Y = 6, Z = 2 };
    int       *a      = allocate_in(ctx, USM_SHARED, X * Y * Z * sizeof(int));
    int       *c      = allocate_in(ctx, USM_HOST, sizeof(int));
    void      *k      = kernel_of(program, "ids");
    usm_arg    args[] = {USM_ARG_PTR(a), USM_ARG_PTR(c)};
    usm_launch l      = launch_of(X, 0, args, 2);

    c[0]        = 1000000;
    l.dims      = 3;
    l.global[1] = Y;
    l.global[2] = Z;
    for (int round = 0; round < 8; round++) { /* offset, NULL, local size: each or not */
        int with = round & 1;

        args[1].value = round & 2 ? NULL : c;
        for (int d = 0; d < 3; d++) {
            l.offset[d] = with ? 5 + (size_t)d : 0;
            l.local[d]  = round & 4 ? (size_t[]){4, 3, 2}[d] : 0;
        }
        memset(a, 0, X * Y * Z * sizeof(int));
        launch(k, &l);
        for (int z = 0; z < Z; z++)
            for (int y = 0; y < Y; y++)
                for (int x = 0; x < X; x++)
                    CHECK_INT(a[(z * Y + y) * X + x],
                              (x + (with ? 5 : 0)) * 10000 + (y + (with ? 6 : 0)) * 100 + z +
                                  (with ? 7 : 0) + (round & 2 ? 0 : 1000000));
    }
    ops->kernel_destroy(k);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 1), USM_OK);
    CHECK_INT(ops->mem_free(ctx, USM_HOST, c, 1), USM_OK);
}

static void a_launch_has_dimensions_offsets_and_null_pointers(void)
{
    needs_commands();
    over_images(0, check_range);
}

static void check_sizes(void *program)
{
    static const size_t sizes[] = {1, 1009, 1000, 4096, 2 * 1009}; /* primes have no divisors */
    int                *a       = allocate_in(ctx, USM_SHARED, N * sizeof(int));
    void               *k = kernel_of(program, "add"), *eights = kernel_of(program, "eights");
    int                 n      = 1;
    usm_arg             args[] = {USM_ARG_PTR(a), USM_ARG_VAL(n)};
    usm_launch          l;

    memset(a, 0, N * sizeof(int));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        l = launch_of(sizes[i], 0, args, 2);
        launch(k, &l);
        launch(k, &l);
    }
    for (size_t i = 0; i < N; i++) {
        int expected = 0;

        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
            expected += i < sizes[s] ? 2 : 0;
        CHECK_INT(a[i], expected);
    }
    l = launch_of(64, 0, args, 1); /* its group size is the kernel's own */
    launch(eights, &l);
    for (int i = 0; i < 64; i++)
        CHECK_INT(a[i], i);
    ops->kernel_destroy(eights);
    ops->kernel_destroy(k);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 1), USM_OK);
}

static void a_group_size_that_divides_is_found(void)
{
    needs_commands();
    over_images(0, check_sizes);
}

static void check_local(void *program)
{
    int       *in     = allocate_in(ctx, USM_SHARED, 64 * sizeof(int));
    int       *out    = allocate_in(ctx, USM_SHARED, 8 * sizeof(int));
    void      *k      = kernel_of(program, "sum");
    usm_arg    args[] = {USM_ARG_PTR(in), USM_ARG_PTR(out), USM_ARG_SCRATCH(16 * sizeof(int))};
    usm_launch l;

    for (int i = 0; i < 64; i++)
        in[i] = i;
    l = launch_of(64, 16, args, 3);
    launch(k, &l);
    for (int g = 0; g < 4; g++)
        CHECK_INT(out[g], 16 * (16 * g) + 120);
    args[2].size = 8 * sizeof(int);
    l            = launch_of(64, 8, args, 3);
    launch(k, &l);
    for (int g = 0; g < 8; g++)
        CHECK_INT(out[g], 8 * (8 * g) + 28);
    ops->kernel_destroy(k);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, in, 1), USM_OK);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, out, 1), USM_OK);
}

static void local_memory_is_given_to_each_group(void)
{
    needs_commands();
    over_images(0, check_local);
}

static void check_odd(void *program)
{
    struct {
        unsigned char v[3];
    } three = {{1, 2, 3}};
    struct {
        unsigned char v[7];
    } seven               = {{5, 6, 7, 8, 9, 10, 11}};
    signed char    c      = 4;
    short          h      = 0x0d0c;
    unsigned char *a      = allocate_in(ctx, USM_SHARED, 16);
    void          *k      = kernel_of(program, "odd");
    usm_arg        args[] = {USM_ARG_PTR(a), USM_ARG_VAL(three), USM_ARG_VAL(c), USM_ARG_VAL(seven),
                             USM_ARG_VAL(h)};
    usm_launch     l      = launch_of(1, 1, args, 5);

    memset(a, 0, 16);
    launch(k, &l);
    for (int i = 0; i < 16; i++)
        CHECK_INT(a[i], i < 13 ? i + 1 : 0);
    ops->kernel_destroy(k);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 1), USM_OK);
}

static void values_of_odd_sizes_arrive(void)
{
    needs_commands();
    over_images(0, check_odd);
}

static void check_indirect(void *program)
{
    struct {
        int *p;
        int  n;
    } * box;
    int        *a;
    void       *k      = kernel_of(program, "unbox");
    usm_arg     args[] = {{USM_ARG_POINTER, sizeof(void *), NULL}};
    const void *list[2];
    usm_launch  l;

    a             = allocate_in(ctx, USM_SHARED, 64);
    box           = allocate_in(ctx, USM_HOST, sizeof(*box));
    list[0]       = a + 1;
    list[1]       = &l; /* not the driver's */
    args[0].value = box;
    for (int way = 0; way < 5; way++) { /* the list, all of a kind, both, none again, foreign */
        box->p           = a;
        box->n           = way + 5;
        l                = launch_of(16, 0, args, 1);
        l.indirect_kinds = way == 1 || way == 2 ? USM_INDIRECT_SHARED | USM_INDIRECT_HOST : 0;
        l.indirect       = list;
        l.nindirect      = way == 0 || way == 2 ? 1 : way == 4 ? 2 : 0;
        launch(k, &l);
        CHECK_INT(a[15], way + 5);
    }
    ops->kernel_destroy(k);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 1), USM_OK);
    CHECK_INT(ops->mem_free(ctx, USM_HOST, box, 1), USM_OK);
}

static void pointers_inside_memory_are_reached(void)
{
    needs_commands();
    over_images(0, check_indirect);
}

/* Nothing here reaches the device, so it is tried without one, too. */
static void check_wrong(void *program)
{
    int       *a = allocate_in(ctx, USM_SHARED, 64), n = 1;
    void      *k = kernel_of(program, "add"), *eights = kernel_of(program, "eights"), *none = NULL;
    usm_arg    args[] = {USM_ARG_PTR(a), USM_ARG_VAL(n), USM_ARG_VAL(n)};
    usm_launch l;

    l = launch_of(16, 0, args, 3);
    refused(k, &l, USM_E_ARGUMENTS, "argument 2 of kernel \"add\"");
    args[0].value = NULL; /* right as an argument, so that the next mistake is found */
    l             = launch_of(16, 5, args, 2);
    refused(k, &l, USM_E_INVALID, "local size 5 does not divide global[0] 16");
    args[0].value = a;
    l             = launch_of((size_t)1 << 33, (size_t)1 << 33, args, 2);
    refused(k, &l, USM_E_INVALID, "8589934592");
    l = launch_of(1 << 20, 1 << 20, args, 2); /* more than any device has */
    refused(k, &l, USM_E_INVALID, "1048576 x 1 x 1");
    l = launch_of((size_t)1 << 40, 1, args, 2);
    refused(k, &l, USM_E_INVALID, "work-groups in dimension 0");
    l           = launch_of(16, 1, args, 2);
    l.offset[0] = (size_t)1 << 40;
    refused(k, &l, USM_E_INVALID, "offset[0]");
    l = launch_of(12, 0, args, 1);
    refused(eights, &l, USM_E_INVALID, "required size 8 does not divide");
    l = launch_of(16, 4, args, 1);
    refused(eights, &l, USM_E_INVALID, "8 x 1 x 1");
    CHECK_INT(ops->kernel_create(program, "nope", &none), USM_E_NO_KERNEL);
    CHECK_IN("nope", usm_last_error());
    CHECK(none == NULL);
    ops->kernel_destroy(eights);
    ops->kernel_destroy(k);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 1), USM_OK);
}

static void wrong_launches_are_named(void)
{
    over_images(0, check_wrong);
}

/* --- many at once ------------------------------------------------------------------------- */

static void check_held_of(void *program)
{
    check_held(kernel_of(program, "add"));
}

static void held_launches_keep_their_own_arguments(void)
{
    needs_commands();
    over_images(0, check_held_of);
}

/* The kernel and its program go while launches run; what they computed arrives. */
static void launches_in_flight_outlive_their_kernel(void)
{
    enum { LAUNCHES = 24, STEPS = 2000000 };
    void *program, *k, *ev = NULL;
    int  *a, n = STEPS;

    needs_commands();
    if (!has_spirv() && !native_size)
        SKIP("the device takes no image that was made");
    open_with(0);
    a = allocate_in(ctx, USM_SHARED, LAUNCHES * sizeof(int));
    memset(a, 0, LAUNCHES * sizeof(int));
    for (int i = 0; i < LAUNCHES; i++) {
        usm_arg    args[] = {USM_ARG_PTR(a + i), USM_ARG_VAL(n)};
        usm_launch l      = launch_of(1, 0, args, 2);

        program = native_size ? build_native() : build_spirv();
        k       = kernel_of(program, "spin");
        if (ev)
            ops->event_release(ev);
        CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_OK);
        ops->kernel_destroy(k);
        ops->program_destroy(program);
    }
    finish(ev);
    for (int i = 0; i < LAUNCHES; i++)
        CHECK(a[i] != 0);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 1), USM_OK);
    close_all();
}

static void threads_share_a_kernel(void)
{
    needs_commands();
    over_images(0, check_threads);
    over_images(USM_QUEUE_OUT_OF_ORDER, check_threads);
}

/* --- a heap that runs out ----------------------------------------------------------------- */

static usm_status scenario(void)
{
    usm_image image = {has_spirv() ? USM_IMAGE_SPIRV : USM_IMAGE_BINARY,
                       has_spirv() ? spirv : native, has_spirv() ? spirv_size : native_size};
    int          n = 1;
    void        *c = NULL, *sq = NULL, *p = NULL, *ev = NULL, *prog = NULL, *k = NULL, *bin = NULL;
    char        *log = NULL, *names = NULL;
    size_t       count = 0;
    usm_arg_kind kinds[2];
    usm_arg      args[2] = {USM_ARG_PTR(NULL), USM_ARG_VAL(n)};
    usm_launch   l       = launch_of(4, 0, args, 2);
    usm_status   s;

#define TRY(call)                                                                                  \
    if ((s = (call)) != USM_OK)                                                                    \
    goto out
    TRY(ops->context_create(1, &dev->handle, &c));
    TRY(ops->queue_create(c, dev->handle, 0, &sq));
    TRY(ops->mem_alloc(c, dev->handle, USM_SHARED, N, 64, &p));
    args[0].value = p;
    TRY(ops->program_build(c, dev->handle, &image, "-cl-mad-enable", &log, &prog));
    TRY(ops->program_kernels(prog, &names));
    s = ops->program_binary(prog, &bin, &count);
    if (s != USM_E_NOT_SUPPORTED)
        TRY(s);
    TRY(ops->kernel_create(prog, "add", &k));
    TRY(ops->kernel_info(k, &count, kinds, 2));
    TRY(ops->launch(sq, k, &l, 0, NULL, &ev));
    TRY(ops->event_wait(ev));
    TRY(ops->queue_wait(sq));
out:
#undef TRY
    if (ev)
        ops->event_release(ev);
    ops->kernel_destroy(k);
    ops->program_destroy(prog);
    module_heap_free(bin);
    module_heap_free(names);
    module_heap_free(log);
    if (sq) {
        (void)ops->queue_wait(sq);
        ops->queue_destroy(sq);
    }
    if (p)
        CHECK_INT(ops->mem_free(c, USM_SHARED, p, N), USM_OK);
    if (c)
        ops->context_destroy(c);
    return s;
}

static void an_exhausted_heap_is_an_ordinary_answer(void)
{
    needs_commands();
    if (!has_spirv() && !native_size)
        SKIP("the device takes no image that was made");
    exhaust_heap(scenario, 40, 10);
}

/* Each call of the driver finds no memory in turn. */
static void sweep(uint32_t code)
{
    uint64_t failures = 0, live = soft.live();

    for (uint64_t n = 1; n < 1000; n++) {
        usm_status s;
        int        has_failed;

        module_start();
        soft.fail_at(n, code, 0);
        s          = scenario();
        has_failed = soft.has_failed();
        soft.fail_at(0, 0, 0);
        module_clean();
        CHECK_INT(soft.live(), live);
        if (!has_failed) {
            CHECK_INT(s, USM_OK);
            break;
        }
        if (s && s != USM_E_NO_MEMORY)
            printf("# call %llu, %s: %s\n", (unsigned long long)n, soft.failed_call(),
                   usm_last_error());
        if (s)
            CHECK_INT(s, USM_E_NO_MEMORY);
        failures += s != USM_OK;
    }
    printf("# %llu calls failed the scenario in turn (0x%x)\n", (unsigned long long)failures, code);
    CHECK(failures > 10);
}

static void a_driver_without_memory_is_an_ordinary_answer(void)
{
    needs_soft();
    if (!has_spirv() && !native_size)
        SKIP("the device takes no image that was made");
    sweep(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    sweep(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
}

/* ------------------------------------------------------------------------------------------ */

static const plain_case cases[] = {
    CASE(the_software_driver_is_found_where_it_runs),
    CASE(a_launch_has_dimensions_offsets_and_null_pointers),
    CASE(a_group_size_that_divides_is_found),
    CASE(local_memory_is_given_to_each_group),
    CASE(values_of_odd_sizes_arrive),
    CASE(pointers_inside_memory_are_reached),
    CASE(wrong_launches_are_named),
    CASE(held_launches_keep_their_own_arguments),
    CASE(launches_in_flight_outlive_their_kernel),
    CASE(threads_share_a_kernel),
    CASE(an_exhausted_heap_is_an_ordinary_answer),
    CASE(a_driver_without_memory_is_an_ordinary_answer),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    static const plain_case none[] = {{NULL, NULL}};

    read_files();
    return level_zero_main(argc, argv, cases, none);
}
