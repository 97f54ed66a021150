/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The OpenCL backend: programs of text, SPIR-V and binaries, kernels and launches, parts of
 * devices, and all of it on a heap that runs out.  The SPIR-V module made of backend_kernels.cl is
 * the file USM_TEST_SPV (a definition, or a variable of the environment). */
#include "opencl_fixture.h"

#include "module_kernels.h"

#include <stdatomic.h>

#ifndef USM_TEST_SPV
#define USM_TEST_SPV ""
#endif

/* --- programs and kernels --------------------------------------------------------------------- */

static const char source[] =
    "kernel void add(global int *a, int n) { a[get_global_id(0)] += n; }\n"
    "kernel void ids(global int *a, constant int *c, local int *l, int4 v) {\n"
    "    l[get_local_id(0)] = c ? c[0] : v.y;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    size_t w = get_global_size(0);\n"
    "    a[(get_global_id(1) - get_global_offset(1)) * w + get_global_id(0) - "
    "get_global_offset(0)] =\n"
    "        get_global_id(0) * 1000 + get_global_id(1) + l[0] * SCALE; }\n"
    "typedef struct { global int *p; int n; } box;\n"
    "kernel void unbox(global box *b) { b->p[get_global_id(0)] = b->n; }\n";

static void *build_text(void)
{
    return build_with(USM_IMAGE_OPENCL_C, source, sizeof(source) - 1, "-DSCALE=100000");
}

static void text_is_built_and_runs(void)
{
    void *program;
    char *names = NULL;

    needs_text();
    open_with(0);
    program = build_text();
    CHECK_INT(ops->program_kernels(program, &names), USM_OK);
    CHECK_IN("add", names);
    CHECK_IN("ids", names);
    CHECK_IN(";", names);
    module_heap_free(names);
    check_add(program);
    ops->program_destroy(program);
    close_all();
}

static void a_kernel_outlives_its_program(void)
{
    int       *a, n = 2;
    void      *program, *k, *ev = NULL;
    usm_launch l;

    needs_text();
    open_with(0);
    program = build_text();
    k       = kernel_of(program, "add");
    ops->program_destroy(program);
    a = allocate_in(ctx, USM_SHARED, 64);
    memset(a, 0, 64);
    usm_arg args[] = {USM_ARG_PTR(a), USM_ARG_VAL(n)};

    l = launch_of(16, 0, args, 2);
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_OK);
    ops->kernel_destroy(k);
    finish(ev);
    CHECK_INT(a[15], 2);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 64), USM_OK);
    close_all();
}

static void a_launch_has_dimensions_offsets_and_local_memory(void)
{
    struct {
        int v[4];
    } v = {{1, 2, 3, 4}};
    int       *a, *c;
    void      *program, *k, *ev = NULL;
    usm_launch l;

    needs_text();
    open_with(0);
    program        = build_text();
    k              = kernel_of(program, "ids");
    a              = allocate_in(ctx, USM_SHARED, 12 * 6 * sizeof(int));
    c              = allocate_in(ctx, USM_HOST, sizeof(int));
    c[0]           = 9;
    usm_arg args[] = {USM_ARG_PTR(a), USM_ARG_PTR(c), USM_ARG_SCRATCH(4 * 3 * sizeof(int)),
                      USM_ARG_VAL(v)};

    for (int with_null = 0; with_null < 2; with_null++) {
        l             = launch_of(12, 0, args, 4);
        args[1].value = with_null ? NULL : c;
        l.dims        = 2;
        l.global[1]   = 6;
        l.offset[0]   = 7;
        l.offset[1]   = 5;
        l.local[0]    = 4;
        l.local[1]    = 3;
        CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_OK);
        finish(ev);
        for (int y = 0; y < 6; y++)
            for (int x = 0; x < 12; x++)
                CHECK_INT(a[y * 12 + x], (x + 7) * 1000 + y + 5 + (with_null ? 2 : 9) * 100000);
    }
    ops->kernel_destroy(k);
    ops->program_destroy(program);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 12), USM_OK);
    CHECK_INT(ops->mem_free(ctx, USM_HOST, c, 4), USM_OK);
    close_all();
}

static void kinds_of_arguments_are_known(void)
{
    static const usm_arg_kind expected[] = {USM_ARG_POINTER, USM_ARG_POINTER, USM_ARG_LOCAL,
                                            USM_ARG_VALUE};
    usm_arg_kind              kinds[4]   = {USM_ARG_NONE};
    size_t                    n          = 0;
    void                     *program, *k;

    if (!has(USM_ASPECT_IMAGE_OPENCL_C))
        SKIP("the device has no compiler for OpenCL C");
    open_with(0);
    program = build_text();
    k       = kernel_of(program, "ids");
    CHECK_INT(ops->kernel_info(k, &n, kinds, 3), USM_OK);
    CHECK_INT(n, 4);
    CHECK_INT(kinds[3], USM_ARG_NONE); /* beyond cap */
    CHECK_INT(ops->kernel_info(k, &n, kinds, 4), USM_OK);
    CHECK_INT(memcmp(kinds, expected, sizeof(kinds)), 0);
    ops->kernel_destroy(k);
    ops->program_destroy(program);
    close_all();
}

static void work_groups_of_a_kernel_are_known(void)
{
    static const char  eights[] = "__attribute__((reqd_work_group_size(8, 1, 1)))\n"
                                  "kernel void eights(global int *a) { a[get_global_id(0)] = 1; }\n";
    usm_backend_groups any, eight;
    void              *programs[2], *k[2];

    needs_text();
    open_with(0);
    programs[0] = build_text();
    programs[1] = build_with(USM_IMAGE_OPENCL_C, eights, sizeof(eights) - 1, NULL);
    k[0]        = kernel_of(programs[0], "add");
    k[1]        = kernel_of(programs[1], "eights");
    CHECK_INT(ops->kernel_groups(k[0], &any), USM_OK);
    CHECK_INT(ops->kernel_groups(k[1], &eight), USM_OK);
    CHECK(any.max_size >= 8 && any.multiple >= 1 && any.required[0] == 0);
    CHECK(eight.required[0] == 8 && eight.required[1] == 1 && eight.required[2] == 1);
    for (int i = 0; i < 2; i++) {
        ops->kernel_destroy(k[i]);
        ops->program_destroy(programs[i]);
    }
    close_all();
}

static void wrong_launches_are_named(void)
{
    int64_t    big = 1;
    int       *a, n = 1;
    void      *program, *k, *ev = NULL;
    usm_launch l;

    needs_text();
    open_with(0);
    program        = build_text();
    k              = kernel_of(program, "add");
    a              = allocate_in(ctx, USM_SHARED, 64);
    usm_arg good[] = {USM_ARG_PTR(a), USM_ARG_VAL(n), USM_ARG_VAL(n)};
    usm_arg size[] = {USM_ARG_PTR(a), USM_ARG_VAL(big)};
    usm_arg kind[] = {USM_ARG_PTR(a), USM_ARG_PTR(a)};

    l = launch_of(16, 0, good, 3); /* one too many */
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_E_ARGUMENTS);
    CHECK_IN("argument 2 of kernel \"add\"", usm_last_error());
    l = launch_of(16, 0, size, 2);
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_E_ARGUMENTS);
    CHECK_IN("argument 1", usm_last_error());
    l = launch_of(16, 0, kind, 2);
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_E_ARGUMENTS);
    l          = launch_of(1 << 20, 0, good, 2);
    l.local[0] = 1 << 20; /* more than any device has */
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_E_INVALID);
    CHECK(ev == NULL);
    CHECK_INT(ops->kernel_create(program, "nope", &k), USM_E_NO_KERNEL);
    CHECK_IN("nope", usm_last_error());
    ops->kernel_destroy(k);
    ops->program_destroy(program);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 64), USM_OK);
    close_all();
}

static void a_program_that_does_not_compile_says_why(void)
{
    static const char bad[]   = "kernel void f(global int *a) { a[0] = undeclared_name; }";
    usm_image         image   = {USM_IMAGE_OPENCL_C, bad, sizeof(bad) - 1};
    char             *log     = NULL;
    void             *program = NULL;

    if (!has(USM_ASPECT_IMAGE_OPENCL_C))
        SKIP("the device has no compiler for OpenCL C");
    open_with(0);
    CHECK_INT(ops->program_build(ctx, dev->handle, &image, NULL, &log, &program), USM_E_BUILD);
    CHECK(program == NULL);
    CHECK_IN("undeclared_name", log);
    CHECK_IN("undeclared_name", usm_last_error());
    module_heap_free(log);
    log   = NULL;
    image = (usm_image){USM_IMAGE_NATIVE, bad, 8};
    CHECK_INT(ops->program_build(ctx, dev->handle, &image, NULL, &log, &program), USM_E_NO_IMAGE);
    image = (usm_image){USM_IMAGE_BINARY, bad, sizeof(bad)};
    CHECK_INT(ops->program_build(ctx, dev->handle, &image, NULL, &log, &program), USM_E_BUILD);
    CHECK(program == NULL);
    module_heap_free(log);
    close_all();
}

static void a_binary_comes_back_as_the_same_program(void)
{
    void        *program, *again, *data = NULL, *k;
    usm_image    damaged;
    usm_arg_kind kinds[2];
    size_t       size = 0, n = 0;

    needs_text();
    open_with(0);
    program = build_text();
    CHECK_INT(ops->program_binary(program, &data, &size), USM_OK);
    CHECK(size > 0);
    again = build_with(USM_IMAGE_BINARY, data, size, NULL);
    k     = kernel_of(again, "add");
    CHECK_INT(ops->kernel_info(k, &n, kinds, 2), USM_OK);
    CHECK_INT(n, 2);
    CHECK(kinds[0] == USM_ARG_POINTER && kinds[1] == USM_ARG_VALUE);
    ops->kernel_destroy(k);
    check_add(again);
    ops->program_destroy(again);
    memset((char *)data + 8, 0xff, 8); /* the size of what stands before the driver's own */
    damaged = (usm_image){USM_IMAGE_BINARY, data, size};
    CHECK_INT(ops->program_build(ctx, dev->handle, &damaged, NULL, NULL, &again), USM_E_BUILD);
    CHECK_IN("damaged", usm_last_error());
    module_heap_free(data);
    ops->program_destroy(program);
    close_all();
}

/* The module in `data`; skips where none was made. */
static size_t read_spir_v(char *data, size_t size)
{
    size_t n = read_file(USM_TEST_SPV[0] ? USM_TEST_SPV : getenv("USM_TEST_SPV"), data, size);

    if (!n)
        SKIP("no SPIR-V module was made (clang and llvm-spirv)");
    return n;
}

static void kinds_are_read_from_spir_v(void)
{
    static char data[1 << 16], odd[1 << 16];
    size_t      n     = read_spir_v(data + 1, sizeof(data) - 1); /* not aligned */
    char       *kinds = NULL;
    unsigned    seed  = 1;

    module_start();
    CHECK_INT(kinds_of_spirv(&module_api, data + 1, n, &kinds), USM_OK);
    CHECK_IN("add=PV;", kinds);
    CHECK_IN("sum=PPL;", kinds);
    module_heap_free(kinds);
    for (size_t cut = 0; cut < n; cut += 3) { /* whatever comes, it reads within its data */
        char *exact = malloc(cut + 1);

        CHECK(exact != NULL);
        memcpy(exact, data + 1, cut);
        kinds = NULL;
        CHECK_INT(kinds_of_spirv(&module_api, exact, cut, &kinds), USM_OK);
        module_heap_free(kinds);
        free(exact);
    }
    for (int round = 0; round < 20000; round++) {
        memcpy(odd, data + 1, n);
        for (int i = 0; i < 4; i++) {
            seed                           = seed * 1103515245 + 12345;
            odd[4 + (seed >> 8) % (n - 4)] = (char)(seed >> 24);
        }
        kinds = NULL;
        CHECK_INT(kinds_of_spirv(&module_api, odd, n, &kinds), USM_OK);
        module_heap_free(kinds);
    }
    module_clean();
}

static void spir_v_is_built_and_runs(void)
{
    static char  data[1 << 16];
    usm_image    image = {USM_IMAGE_SPIRV, data, 0};
    usm_arg_kind kinds[3];
    void        *program = NULL, *k, *ev = NULL;
    char        *log = NULL;
    int         *in, *out;
    size_t       n = 0;

    image.size = read_spir_v(data, sizeof(data));
    if (!has(USM_ASPECT_IMAGE_SPIRV)) {
        open_with(0);
        CHECK_INT(ops->program_build(ctx, dev->handle, &image, NULL, &log, &program),
                  USM_E_NO_IMAGE);
        close_all();
        return;
    }
    open_with(0);
    program = build_with(USM_IMAGE_SPIRV, data, image.size, "-DIGNORED=1");
    k       = kernel_of(program, "sum");
    CHECK_INT(ops->kernel_info(k, &n, kinds, 3), USM_OK);
    CHECK_INT(n, 3);
    CHECK(kinds[0] == USM_ARG_POINTER && kinds[1] == USM_ARG_POINTER && kinds[2] == USM_ARG_LOCAL);
    if (is_capture || !has(USM_ASPECT_USM_HOST_ALLOCATIONS)) {
        ops->kernel_destroy(k);
        ops->program_destroy(program);
        close_all();
        return;
    }
    check_add(program);
    in  = allocate_in(ctx, USM_SHARED, 64 * sizeof(int));
    out = allocate_in(ctx, USM_SHARED, 4 * sizeof(int));
    for (int i = 0; i < 64; i++)
        in[i] = i;
    usm_arg    args[] = {USM_ARG_PTR(in), USM_ARG_PTR(out), USM_ARG_SCRATCH(16 * sizeof(int))};
    usm_launch l      = launch_of(64, 0, args, 3);

    l.local[0] = 16;
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_OK);
    finish(ev);
    for (int g = 0; g < 4; g++)
        CHECK_INT(out[g], 16 * (16 * g) + 120);
    data[0] ^= 1; /* no magic number, no module */
    CHECK_INT(ops->program_build(ctx, dev->handle, &image, NULL, &log, &program), USM_E_BUILD);
    module_heap_free(log);
    ops->kernel_destroy(k);
    ops->program_destroy(program);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, in, 1), USM_OK);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, out, 1), USM_OK);
    close_all();
}

static void pointers_inside_memory_are_reached(void)
{
    struct {
        int *p;
        int  n;
    } * box;
    int       *a;
    void      *program, *k, *ev = NULL;
    usm_launch l;

    needs_text();
    open_with(0);
    program            = build_text();
    k                  = kernel_of(program, "unbox");
    a                  = allocate_in(ctx, USM_SHARED, 64);
    box                = allocate_in(ctx, USM_HOST, sizeof(*box));
    usm_arg     args[] = {USM_ARG_PTR(box)};
    const void *list[] = {a + 1};

    for (int way = 0; way < 4; way++) { /* the list, all of a kind, both, none again */
        box->p           = a;
        box->n           = way + 5;
        l                = launch_of(16, 0, args, 1);
        l.indirect_kinds = way & 1 ? USM_INDIRECT_SHARED | USM_INDIRECT_HOST : 0;
        l.indirect       = list;
        l.nindirect      = way == 0 || way == 3 ? 1 : 0;
        CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_OK);
        finish(ev);
        CHECK_INT(a[15], way + 5);
    }
    ops->kernel_destroy(k);
    ops->program_destroy(program);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 1), USM_OK);
    CHECK_INT(ops->mem_free(ctx, USM_HOST, box, 1), USM_OK);
    close_all();
}

static void held_launches_keep_their_own_arguments(void)
{
    void *program, *k;

    needs_text();
    open_with(0);
    program = build_text();
    k       = kernel_of(program, "add");
    ops->program_destroy(program);
    check_held(k);
    close_all();
}

static void threads_share_a_kernel(void)
{
    void *program;

    needs_text();
    open_with(USM_QUEUE_OUT_OF_ORDER);
    program = build_text();
    check_threads(program);
    ops->program_destroy(program);
    close_all();
}

/* --- coarse SVM
 * ---------------------------------------------------------------------------------------- */

/* As on devices that have SVM of coarse grain and nothing else, NVIDIA's: host memory is malloc'ed.
 */
static void coarse_svm_is_device_memory(void)
{
    ocl_device *d = dev->handle, saved = *d;
    int         in[N], out[N], n = 5;
    void       *p = NULL, *program, *k, *ev = NULL;

    needs_text();
    if (!(d->svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER))
        SKIP("the device has no SVM");
    d->way = OCL_WAY_SVM;
    d->svm = CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
    open_with(0);
    CHECK_INT(ops->mem_alloc(ctx, NULL, USM_HOST, 64, 64, &p), USM_E_NOT_SUPPORTED);
    CHECK_INT(ops->mem_alloc(ctx, d, USM_SHARED, 64, 64, &p), USM_E_NOT_SUPPORTED);
    CHECK_IN("no shared memory in common", usm_last_error());
    CHECK_INT(ops->mem_alloc(ctx, d, USM_DEVICE, (size_t)dev->max_alloc_size + 1, 64, &p),
              USM_E_SIZE);
    p = allocate_in(ctx, USM_DEVICE, sizeof(in));
    for (int i = 0; i < N; i++)
        in[i] = i;
    program            = build_text();
    k                  = kernel_of(program, "add");
    usm_arg     args[] = {USM_ARG_PTR(p), USM_ARG_VAL(n)};
    usm_launch  l      = launch_of(N, 0, args, 2);
    const void *list[] = {(char *)p + 64};

    l.indirect  = list;
    l.nindirect = 1;
    CHECK_INT(ops->copy(q, p, in, sizeof(in), 0, NULL, NULL), USM_OK);
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, NULL), USM_OK);
    CHECK_INT(ops->fill(q, p, &n, sizeof(n), 8 * sizeof(n), 0, NULL, NULL), USM_OK);
    CHECK_INT(ops->prefetch(q, p, sizeof(in), 0, NULL, NULL), USM_OK);
    CHECK_INT(ops->copy(q, out, p, sizeof(in), 0, NULL, &ev), USM_OK);
    finish(ev);
    for (int i = 0; i < N; i++)
        CHECK_INT(out[i], i < 8 ? 5 : i + 5);
    ops->kernel_destroy(k);
    ops->program_destroy(program);
    CHECK_INT(ops->mem_free(ctx, USM_DEVICE, p, sizeof(in)), USM_OK);
    *d = saved;
    close_all();
}

/* --- parts ------------------------------------------------------------------------------------ */

static void parts_are_devices_of_their_own(void)
{
    usm_backend_device parts[64], again[64], *whole = dev;
    size_t             n = 0, m = 0;
    char              *p;
    void              *program, *binary = NULL;
    size_t             size = 0;

    CHECK_INT(ops->sub_devices(dev->handle, parts, 64, &n), USM_OK);
    CHECK_INT(n, dev->sub_devices);
    if (n == 0)
        SKIP("the device cannot be cut");
    CHECK_INT(ops->sub_devices(dev->handle, again, 64, &m), USM_OK);
    CHECK(n == m && memcmp(parts, again, n * sizeof(parts[0])) == 0);
    CHECK(parts[0].handle != parts[1].handle && parts[0].handle != dev->handle);
    CHECK(parts[0].platform == dev->platform && !parts[0].has_uuid && !parts[0].has_pci);
    CHECK(parts[0].compute_units < dev->compute_units);
    needs_text();
    module_start();
    ctx = context_of(n < DEVICES ? n : DEVICES, parts);
    for (size_t i = 0; i < 2; i++) {
        dev = &parts[i];
        CHECK_INT(ops->queue_create(ctx, dev->handle, 0, &q), USM_OK);
        p = allocate_in(ctx, USM_SHARED, N);
        finish(copy_after(p, "part", 5, 0, NULL));
        CHECK_STR(p, "part");
        program = build_text();
        check_add(program);
        CHECK_INT(ops->program_binary(program, &binary, &size), USM_OK);
        ops->program_destroy(program);
        program = build_with(USM_IMAGE_BINARY, binary, size, NULL);
        check_add(program);
        ops->program_destroy(program);
        module_heap_free(binary);
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
        ops->queue_destroy(q);
    }
    ops->context_destroy(ctx);
    dev = whole;
    module_clean();
}

/* --- out of memory ---------------------------------------------------------------------------- */

static atomic_bool noticed; /* nobody waits for a notice, or it has come */

static void on_notice(void *arg, usm_status status)
{
    (void)arg, (void)status;
    atomic_store(&noticed, true);
}

/* Contexts, queues, held and direct commands, notices, a program, a kernel, native handles. */
static usm_status scenario(void)
{
    usm_image image = {USM_IMAGE_OPENCL_C, source, sizeof(source) - 1};
    int       n     = 1;
    void *c = NULL, *sq = NULL, *p = NULL, *gate = NULL, *ev[4] = {NULL}, *prog = NULL, *k = NULL,
         *bin = NULL, *two = NULL, *nc = NULL;
    usm_backend_device list[1];
    char              *log = NULL, *names = NULL;
    size_t             count = 0;
    usm_arg_kind       kinds[2];
    usm_arg            args[2] = {USM_ARG_PTR(NULL), USM_ARG_VAL(n)};
    usm_launch         l       = launch_of(4, 0, args, 2);
    usm_status         s;

    atomic_store(&noticed, true);
#define TRY(call)                                                                                  \
    if ((s = (call)) != USM_OK)                                                                    \
    goto out
    TRY(ops->context_create(1, &dev->handle, &c));
    TRY(ops->queue_create(c, dev->handle, 0, &sq));
    TRY(ops->mem_alloc(c, dev->handle, USM_SHARED, N, 64, &p));
    args[0].value = p;
    TRY(ops->event_create_user(c, &gate));
    TRY(ops->copy(sq, p, "a", 2, 1, &gate, &ev[0]));
    TRY(ops->fill(sq, p, "a", 1, 16, 0, NULL, &ev[1]));
    atomic_store(&noticed, false);
    s = ops->event_notify(ev[1], on_notice, NULL);
    if (s != USM_OK) {
        atomic_store(&noticed, true);
        goto out;
    }
    TRY(ops->event_signal(gate, USM_OK));
    TRY(ops->program_build(c, dev->handle, &image, "-DSCALE=1", &log, &prog));
    TRY(ops->program_kernels(prog, &names));
    TRY(ops->program_binary(prog, &bin, &count));
    TRY(ops->kernel_create(prog, "add", &k));
    TRY(ops->kernel_info(k, &count, kinds, 2));
    TRY(ops->launch(sq, k, &l, 2, ev, &ev[2]));
    TRY(ops->copy_2d(sq, p, 32, (char *)p + 512, 48, 16, 5, 0, NULL, &ev[3]));
    TRY(ops->event_wait(ev[3]));
    TRY(ops->queue_wait(sq));
    TRY(ops->context_native(c, &nc));
    TRY(ops->context_from_native(nc, 0, NULL, USM_KEEP, &two, list, 1, &count));
out:
#undef TRY
    for (int i = 0; i < 4; i++)
        if (ev[i])
            ops->event_release(ev[i]);
    if (gate)
        ops->event_release(gate); /* unsignalled, it lets go what waits */
    if (two)
        ops->context_destroy(two);
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
    while (!atomic_load(&noticed)) /* the context lives until then: usm/backend.h */
        (void)usleep(100);
    if (c)
        ops->context_destroy(c);
    return s;
}

static void an_exhausted_heap_is_an_ordinary_answer(void)
{
    needs_text();
    exhaust_heap(scenario, 60, 20);
}

/* ---------------------------------------------------------------------------------------------- */

static const plain_case cases[] = {
    CASE(text_is_built_and_runs),
    CASE(a_kernel_outlives_its_program),
    CASE(a_launch_has_dimensions_offsets_and_local_memory),
    CASE(kinds_of_arguments_are_known),
    CASE(work_groups_of_a_kernel_are_known),
    CASE(wrong_launches_are_named),
    CASE(a_program_that_does_not_compile_says_why),
    CASE(a_binary_comes_back_as_the_same_program),
    CASE(kinds_are_read_from_spir_v),
    CASE(spir_v_is_built_and_runs),
    CASE(pointers_inside_memory_are_reached),
    CASE(held_launches_keep_their_own_arguments),
    CASE(threads_share_a_kernel),
    CASE(coarse_svm_is_device_memory),
    CASE(parts_are_devices_of_their_own),
    CASE(an_exhausted_heap_is_an_ordinary_answer),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return opencl_main(argc, argv, cases);
}
