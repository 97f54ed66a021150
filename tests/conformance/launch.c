/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "launch": ND-ranges, typed arguments, and what is refused about them.
 * Builds are in program.c. */
#include "common.h"

#include <pthread.h>

/* A rig with a program; for the loop below. */
typedef struct bench {
    usm_program *program;
    usm_kernel  *kernel;
    usm_launch   launch;
} bench;

static bench bench_new(const rig *r, const char *kernel, size_t nargs, const usm_arg *args)
{
    bench b = {.launch = USM_LAUNCH_INIT};

    b.program       = program_new(r);
    b.kernel        = kernel_new(b.program, kernel);
    b.launch.kernel = b.kernel;
    b.launch.nargs  = nargs;
    b.launch.args   = args;
    return b;
}

static void bench_end(bench *b)
{
    usm_kernel_destroy(b->kernel);
    usm_program_destroy(b->program);
}

static void run(const rig *r, const usm_launch *launch)
{
    CHECK_OK(usm_queue_submit(r->q, launch, 0, NULL, NULL));
    CHECK_OK(usm_queue_wait(r->q));
}

Test(launch, one_dimension_runs_every_item_once)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, NEED_KERNELS | need_kind(k)))
                continue;
            enum { N = 100003 };
            float   a = 2.0f, *x = mem(&r, k, N * sizeof *x), *y = mem(&r, k, N * sizeof *y);
            float  *host   = malloc(N * sizeof *host);
            usm_arg args[] = {USM_ARG_PTR(y), USM_ARG_PTR(x), USM_ARG_VAL(a)};
            bench   b      = bench_new(&r, "axpy", 3, args);
            CHECK(host, "no memory for the test itself");
            for (int i = 0; i < N; i++)
                host[i] = (float)(i % 1000);
            put(&r, x, host, N * sizeof *host);
            put(&r, y, host, N * sizeof *host);
            b.launch.global[0] = N;
            run(&r, &b.launch);
            get(&r, host, y, N * sizeof *host);
            for (int i = 0; i < N; i++)
                CHECK(host[i] == (float)(i % 1000 * 3), "%s: %s: item %d: %f", r.name, kind_name(k),
                      i, (double)host[i]);
            bench_end(&b);
            free(host);
            usm_free(x);
            usm_free(y);
        }
    }
}

Test(launch, the_offset_is_part_of_every_id)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        int     add = 0, back[100], *out = mem(&r, USM_DEVICE, sizeof back);
        usm_arg args[] = {USM_ARG_PTR(out), USM_ARG_VAL(add)};
        bench   b      = bench_new(&r, "ids", 2, args);
        CHECK_OK(usm_memset(r.q, out, 0xff, sizeof back, 0, NULL, NULL));
        b.launch.offset[0] = 40;
        b.launch.global[0] = 50;
        run(&r, &b.launch);
        get(&r, back, out, sizeof back);
        for (int i = 0; i < 100; i++)
            CHECK(back[i] == (i >= 40 && i < 90 ? i : -1), "%s: %d: %d", r.name, i, back[i]);
        bench_end(&b);
        usm_free(out);
    }
}

Test(launch, two_and_three_dimensions_give_their_ids)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        int     nx = 7, ny = 5, nz = 3, back[7 * 5 * 3], *out = mem(&r, USM_DEVICE, sizeof back);
        usm_arg args[] = {USM_ARG_PTR(out), USM_ARG_VAL(nx), USM_ARG_VAL(ny)};
        bench   b      = bench_new(&r, "ids3", 3, args);
        for (uint32_t dims = 2; dims <= 3; dims++) {
            CHECK_OK(usm_memset(r.q, out, 0xff, sizeof back, 0, NULL, NULL));
            b.launch.dims      = dims;
            b.launch.global[0] = (size_t)nx;
            b.launch.global[1] = (size_t)ny;
            b.launch.global[2] = dims == 3 ? (size_t)nz : 1;
            run(&r, &b.launch);
            get(&r, back, out, sizeof back);
            for (int i = 0; i < nx * ny * nz; i++) {
                int x = i % nx, y = i / nx % ny, z = i / nx / ny,
                    want = z && dims == 2 ? -1 : x + 100 * y + 10000 * z;
                CHECK(back[i] == want, "%s: %d %d %d: %d", r.name, x, y, z, back[i]);
            }
        }
        bench_end(&b);
        usm_free(out);
    }
}

Test(launch, local_memory_and_barriers_work_for_each_group)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        enum { N = 1024, LOCAL = 16 };
        int in[N], back[N / LOCAL], *src = mem(&r, USM_DEVICE, sizeof in),
                                    *out = mem(&r, USM_DEVICE, sizeof back);
        usm_arg args[] = {USM_ARG_PTR(out), USM_ARG_PTR(src), USM_ARG_SCRATCH(LOCAL * sizeof(int))};
        bench   b      = bench_new(&r, "sum_groups", 3, args);
        for (int i = 0; i < N; i++)
            in[i] = i;
        put(&r, src, in, sizeof in);
        b.launch.global[0] = N;
        b.launch.local[0]  = LOCAL;
        run(&r, &b.launch);
        get(&r, back, out, sizeof back);
        for (int g = 0; g < N / LOCAL; g++)
            CHECK(back[g] == g * LOCAL * LOCAL + LOCAL * (LOCAL - 1) / 2, "%s: group %d: %d",
                  r.name, g, back[g]);
        bench_end(&b);
        usm_free(src);
        usm_free(out);
    }
}

Test(launch, values_of_every_size_arrive)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        signed char c = -5;
        short       s = -3000;
        int         i = -2000000000, back[5] = {0}, *out = mem(&r, USM_DEVICE, sizeof back);
        int64_t     l      = INT64_C(-77) * (INT64_C(1) << 32);
        float       f      = -12.75f;
        usm_arg     args[] = {USM_ARG_PTR(out), USM_ARG_REF(c), USM_ARG_REF(s),
                              USM_ARG_REF(i),   USM_ARG_REF(l), USM_ARG_REF(f)};
        bench       b      = bench_new(&r, "values", 6, args);
        CHECK_OK(usm_queue_submit(r.q, &b.launch, 0, NULL, NULL));
        c = 0; /* they were copied at the launch */
        s = 0;
        i = 0;
        l = 0;
        f = 0;
        CHECK_OK(usm_queue_wait(r.q));
        get(&r, back, out, sizeof back);
        CHECK(back[0] == -5 && back[1] == -3000 && back[2] == -2000000000 && back[3] == -77 &&
                  back[4] == -12,
              "%s: %d %d %d %d %d", r.name, back[0], back[1], back[2], back[3], back[4]);
        bench_end(&b);
        usm_free(out);
    }
}

Test(launch, interior_pointers_are_arguments)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (!can(&r, NEED_KERNELS | need_kind(k)))
                continue;
            int     add = 5, back[10], *out = mem(&r, k, 100 * sizeof(int));
            usm_arg args[]     = {USM_ARG_PTR(out + 60), USM_ARG_VAL(add)};
            bench   b          = bench_new(&r, "ids", 2, args);
            b.launch.global[0] = 10;
            run(&r, &b.launch);
            get(&r, back, out + 60, sizeof back);
            for (int i = 0; i < 10; i++)
                CHECK(back[i] == i + 5, "%s: %s: %d", r.name, kind_name(k), back[i]);
            bench_end(&b);
            usm_free(out);
        }
    }
}

Test(launch, null_is_a_pointer_argument)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        int     back = 5, *out = mem(&r, USM_DEVICE, sizeof back);
        usm_arg args[] = {USM_ARG_PTR(out), USM_ARG_PTR(NULL)};
        bench   b      = bench_new(&r, "is_null", 2, args);
        run(&r, &b.launch);
        get(&r, &back, out, sizeof back);
        CHECK(back == 1, "%s: NULL arrived as another pointer", r.name);
        args[1].value = out;
        run(&r, &b.launch);
        get(&r, &back, out, sizeof back);
        CHECK(back == 0, "%s: a pointer arrived as NULL", r.name);
        args[1].value = NULL;
        run(&r, &b.launch);
        get(&r, &back, out, sizeof back);
        CHECK(back == 1, "%s: NULL arrived as the pointer of the launch before", r.name);
        bench_end(&b);
        usm_free(out);
    }
}

/* `follow` over blocks that are only reached through a table. */
static void check_indirect(const rig *r, usm_kind k, bool by_kind)
{
    enum { N = 20 };
    int         back[N], *out = mem(r, USM_DEVICE, sizeof back), *block[N];
    uint64_t   *table = mem(r, USM_DEVICE, N * sizeof *table), addresses[N];
    const void *list[N];
    usm_arg     args[] = {USM_ARG_PTR(out), USM_ARG_PTR(table)};
    bench       b      = bench_new(r, "follow", 2, args);

    for (int i = 0; i < N; i++) {
        int value = 1000 + i;
        block[i]  = mem(r, k, 4096);
        put(r, block[i] + 3, &value, sizeof value);
        addresses[i] = (uint64_t)(uintptr_t)(block[i] + 3);
        list[i]      = block[i] + 3;
    }
    put(r, table, addresses, sizeof addresses);
    b.launch.global[0] = N;
    if (by_kind) {
        b.launch.indirect_kinds = 1u << (k - 1);
    } else {
        b.launch.nindirect = N;
        b.launch.indirect  = list;
    }
    run(r, &b.launch);
    get(r, back, out, sizeof back);
    for (int i = 0; i < N; i++) {
        CHECK(back[i] == 1000 + i, "%s: %s: %d", r->name, kind_name(k), back[i]);
        usm_free(block[i]);
    }
    bench_end(&b);
    usm_free(out);
    usm_free(table);
}

Test(launch, indirect_pointers_are_declared_one_by_one)
{
    EACH_DEVICE (r) {
        EACH_KIND (k)
            if (can(&r, NEED_KERNELS | NEED_DEVICE | need_kind(k)))
                check_indirect(&r, k, false);
    }
}

Test(launch, indirect_pointers_are_declared_by_kind)
{
    EACH_DEVICE (r) {
        EACH_KIND (k)
            if (can(&r, NEED_KERNELS | NEED_DEVICE | need_kind(k)))
                check_indirect(&r, k, true);
    }
}

typedef struct launcher {
    const rig  *r;
    usm_kernel *kernel;
    int        *out, id;
    usm_status  status;
} launcher;

static void *launch_many(void *arg)
{
    launcher *l = arg;

    for (int i = 0; i < 30 && !l->status; i++) {
        int        add    = l->id * 1000 + i;
        usm_arg    args[] = {USM_ARG_PTR(l->out), USM_ARG_VAL(add)};
        usm_launch launch = USM_LAUNCH_INIT;
        launch.kernel     = l->kernel;
        launch.global[0]  = 32;
        launch.nargs      = 2;
        launch.args       = args;
        l->status         = usm_queue_submit(l->r->q, &launch, 0, NULL, NULL);
    }
    return NULL;
}

Test(launch, one_kernel_is_launched_from_many_threads)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        enum { N = 4 };
        bench     b = bench_new(&r, "ids", 0, NULL);
        launcher  l[N];
        pthread_t id[N];
        int       back[32];
        for (int i = 0; i < N; i++) {
            l[i] = (launcher){&r, b.kernel, mem(&r, USM_DEVICE, sizeof back), i, USM_OK};
            CHECK(!pthread_create(&id[i], NULL, launch_many, &l[i]), "no thread");
        }
        for (int i = 0; i < N; i++)
            pthread_join(id[i], NULL);
        CHECK_OK(usm_queue_wait(r.q));
        for (int i = 0; i < N; i++) {
            CHECK(!l[i].status, "%s: %s", r.name, usm_status_name(l[i].status));
            get(&r, back, l[i].out, sizeof back);
            for (int j = 0; j < 32; j++)
                CHECK(back[j] == j + i * 1000 + 29, "%s: thread %d: %d", r.name, i, back[j]);
            usm_free(l[i].out);
        }
        bench_end(&b);
    }
}

Test(launch, a_kernel_is_launched_again_and_again)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        int     back = 0, *counter = mem(&r, USM_DEVICE, sizeof back);
        usm_arg arg = USM_ARG_PTR(counter);
        bench   b   = bench_new(&r, "count", 1, &arg);
        put(&r, counter, &back, sizeof back);
        b.launch.global[0] = 64;
        for (int i = 0; i < 50; i++)
            CHECK_OK(usm_queue_submit(r.q, &b.launch, 0, NULL, NULL));
        get(&r, &back, counter, sizeof back);
        CHECK(back == 3200, "%s: %d items ran", r.name, back);
        bench_end(&b);
        usm_free(counter);
    }
}

Test(launch, a_launch_waits_for_its_dependencies_and_gives_an_event)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        int        back[4] = {0}, add = 9, *out = mem(&r, USM_DEVICE, sizeof back);
        usm_arg    args[] = {USM_ARG_PTR(out), USM_ARG_VAL(add)};
        bench      b      = bench_new(&r, "ids", 2, args);
        usm_event *gate = gate_new(&r), *ev = NULL;
        b.launch.global[0] = 4;
        CHECK_OK(usm_queue_submit(r.q, &b.launch, 1, &gate, &ev));
        CHECK_IS(usm_event_query(ev), USM_E_NOT_READY);
        gate_open(gate);
        CHECK_OK(usm_event_wait(ev));
        get(&r, back, out, sizeof back);
        CHECK(back[3] == 12, "%s: %d", r.name, back[3]);
        usm_event_release(gate);
        usm_event_release(ev);
        bench_end(&b);
        usm_free(out);
    }
}

Test(launch, no_items_are_no_error)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        int        back = 1, zero = 0, *counter = mem(&r, USM_DEVICE, sizeof back);
        usm_arg    arg = USM_ARG_PTR(counter);
        bench      b   = bench_new(&r, "count", 1, &arg);
        usm_event *ev  = NULL;
        put(&r, counter, &zero, sizeof zero);
        b.launch.global[0] = 0;
        CHECK_OK(usm_queue_submit(r.q, &b.launch, 0, NULL, &ev));
        CHECK_OK(usm_event_wait(ev));
        usm_event_release(ev);
        get(&r, &back, counter, sizeof back);
        CHECK(back == 0, "%s: %d items of none ran", r.name, back);
        bench_end(&b);
        usm_free(counter);
    }
}

Test(launch, a_wrong_count_of_arguments_is_named)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(KERNELS) | NEED_DEVICE))
            continue;
        int     add = 0, *out = mem(&r, USM_DEVICE, 400);
        usm_arg args[] = {USM_ARG_PTR(out), USM_ARG_VAL(add), USM_ARG_VAL(add)};
        bench   b      = bench_new(&r, "ids", 1, args);
        CHECK_REFUSED(usm_queue_submit(r.q, &b.launch, 0, NULL, NULL), USM_E_ARGUMENTS, "ids");
        CHECK(story_names("2"), "the right count is not named: %s", usm_last_error());
        b.launch.nargs = 3;
        CHECK_REFUSED(usm_queue_submit(r.q, &b.launch, 0, NULL, NULL), USM_E_ARGUMENTS, "ids");
        b.launch.nargs = 0;
        b.launch.args  = NULL;
        CHECK_REFUSED(usm_queue_submit(r.q, &b.launch, 0, NULL, NULL), USM_E_ARGUMENTS, "ids");
        bench_end(&b);
        usm_free(out);
    }
}

Test(launch, a_wrong_kind_or_size_of_argument_is_named)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(KERNELS) | NEED_DEVICE))
            continue;
        int     add = 0, *out = mem(&r, USM_DEVICE, 400);
        int64_t wide           = 0;
        usm_arg no_ptr[]       = {USM_ARG_VAL(add), USM_ARG_VAL(add)},
                no_val[]       = {USM_ARG_PTR(out), USM_ARG_PTR(out)},
                local[]        = {USM_ARG_PTR(out), USM_ARG_SCRATCH(4)},
                none[]         = {USM_ARG_PTR(out), {USM_ARG_NONE, 0, NULL}},
                too_wide[]     = {USM_ARG_PTR(out), USM_ARG_VAL(wide)};
        const usm_arg *wrong[] = {no_ptr, no_val, local, none, too_wide};
        bench          b       = bench_new(&r, "ids", 2, NULL);
        usm_image_type took    = USM_IMAGE_BINARY;
        CHECK_OK(usm_program_get_image(b.program, r.dev, &took));
        /* Native functions do not tell the sizes of their values, nor does Intel's GPU driver. */
        size_t cases = took == USM_IMAGE_NATIVE || !has(&r, NEED_DATA) ? 4 : 5;
        for (size_t i = 0; i < cases; i++) {
            b.launch.args = wrong[i];
            usm_status s  = usm_queue_submit(r.q, &b.launch, 0, NULL, NULL);
            CHECK(s == USM_E_ARGUMENTS, "%s: case %zu: %s", r.name, i, usm_status_name(s));
            CHECK(story_names("argument"), "%s: case %zu: %s", r.name, i, usm_last_error());
        }
        CHECK_OK(usm_queue_wait(r.q));
        bench_end(&b);
        usm_free(out);
    }
}

Test(launch, a_foreign_or_freed_pointer_argument_is_refused_or_usable)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        int     add = 3, *host = calloc(10, sizeof(int));
        usm_arg args[]     = {USM_ARG_PTR(host), USM_ARG_VAL(add)};
        bench   b          = bench_new(&r, "ids", 2, args);
        b.launch.global[0] = 10;
        CHECK(host, "no memory for the test itself");
        if (has(&r, NEED(USM_SYSTEM_ALLOCATIONS))) {
            run(&r, &b.launch);
            CHECK(host[9] == 12, "%s: %d in malloc'ed memory", r.name, host[9]);
        } else {
            CHECK_REFUSED(usm_queue_submit(r.q, &b.launch, 0, NULL, NULL), USM_E_INVALID_POINTER,
                          "argument 0");
        }
        bench_end(&b);
        free(host);
    }
}

Test(launch, a_pointer_of_another_context_is_refused)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(KERNELS) | NEED_DEVICE))
            continue;
        rig     other = rig_first();
        int     add = 3, *theirs = mem(&other, USM_DEVICE, 400);
        usm_arg args[] = {USM_ARG_PTR(theirs), USM_ARG_VAL(add)};
        bench   b      = bench_new(&r, "ids", 2, args);
        CHECK_REFUSED(usm_queue_submit(r.q, &b.launch, 0, NULL, NULL), USM_E_WRONG_CONTEXT,
                      "argument 0");
        bench_end(&b);
        rig_end(&other);
    }
}

Test(launch, a_kernel_of_another_context_is_refused)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(KERNELS) | NEED_DEVICE))
            continue;
        rig     other = rig_first();
        int     add = 3, *out = mem(&other, USM_DEVICE, 400);
        usm_arg args[] = {USM_ARG_PTR(out), USM_ARG_VAL(add)};
        bench   b      = bench_new(&r, "ids", 2, args);
        CHECK_REFUSED(usm_queue_submit(other.q, &b.launch, 0, NULL, NULL), USM_E_WRONG_CONTEXT,
                      "kernel");
        bench_end(&b);
        rig_end(&other);
    }
}

Test(launch, dimensions_and_local_sizes_that_cannot_be_are_refused)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(KERNELS) | NEED_DEVICE))
            continue;
        usm_device_info info = USM_DEVICE_INFO_INIT;
        int             add = 3, *out = mem(&r, USM_DEVICE, 400);
        usm_arg         args[] = {USM_ARG_PTR(out), USM_ARG_VAL(add)};
        bench           b      = bench_new(&r, "ids", 2, args);
        usm_launch      l      = b.launch;
        CHECK_OK(usm_device_get_info(r.dev, &info));
        l.dims = 0;
        CHECK_REFUSED(usm_queue_submit(r.q, &l, 0, NULL, NULL), USM_E_INVALID, "dims");
        l.dims = 4;
        CHECK_REFUSED(usm_queue_submit(r.q, &l, 0, NULL, NULL), USM_E_INVALID, "dims");
        l           = b.launch;
        l.global[0] = 100;
        l.local[0]  = 7;
        CHECK_REFUSED(usm_queue_submit(r.q, &l, 0, NULL, NULL), USM_E_INVALID, "local");
        l.global[0] = info.max_work_group_size * 2;
        l.local[0]  = info.max_work_group_size * 2;
        CHECK_REFUSED(usm_queue_submit(r.q, &l, 0, NULL, NULL), USM_E_INVALID, "group");
        l             = b.launch;
        l.struct_size = 8;
        CHECK_REFUSED(usm_queue_submit(r.q, &l, 0, NULL, NULL), USM_E_ABI, "struct_size");
        l        = b.launch;
        l.kernel = NULL;
        CHECK_IS(usm_queue_submit(r.q, &l, 0, NULL, NULL), USM_E_INVALID_HANDLE);
        CHECK_IS(usm_queue_submit(r.q, NULL, 0, NULL, NULL), USM_E_INVALID);
        bench_end(&b);
        usm_free(out);
    }
}

Test(launch, the_largest_work_group_works)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        usm_device_info info = USM_DEVICE_INFO_INIT;
        int             back = 0, zero = 0, *counter = mem(&r, USM_DEVICE, sizeof back);
        usm_arg         arg = USM_ARG_PTR(counter);
        bench           b   = bench_new(&r, "count", 1, &arg);
        CHECK_OK(usm_device_get_info(r.dev, &info));
        put(&r, counter, &zero, sizeof zero);
        b.launch.global[0] = info.max_work_group_size * 3;
        b.launch.local[0]  = info.max_work_group_size;
        run(&r, &b.launch);
        get(&r, &back, counter, sizeof back);
        CHECK(back == (int)info.max_work_group_size * 3, "%s: %d", r.name, back);
        bench_end(&b);
        usm_free(counter);
    }
}

Test(launch, kernels_and_copies_keep_their_order_in_a_queue)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        enum { N = 1000 };
        float a = 1.0f, one = 1.0f, back[N], *x = mem(&r, USM_DEVICE, sizeof back),
              *y           = mem(&r, USM_DEVICE, sizeof back);
        usm_arg args[]     = {USM_ARG_PTR(y), USM_ARG_PTR(x), USM_ARG_VAL(a)};
        bench   b          = bench_new(&r, "axpy", 3, args);
        b.launch.global[0] = N;
        CHECK_OK(usm_fill(r.q, x, &one, sizeof one, N, 0, NULL, NULL));
        CHECK_OK(usm_memset(r.q, y, 0, sizeof back, 0, NULL, NULL));
        for (int i = 0; i < 5; i++) { /* y += x; x = y: Fibonacci's doubling */
            CHECK_OK(usm_queue_submit(r.q, &b.launch, 0, NULL, NULL));
            CHECK_OK(usm_memcpy(r.q, x, y, sizeof back, 0, NULL, NULL));
        }
        CHECK_OK(usm_memcpy(r.q, back, y, sizeof back, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(r.q));
        for (int i = 0; i < N; i++)
            CHECK(back[i] == 16.0f, "%s: %f", r.name, (double)back[i]);
        bench_end(&b);
        usm_free(x);
        usm_free(y);
    }
}

Test(launch, the_same_numbers_come_from_any_split_by_offset)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_KERNELS | NEED_DEVICE))
            continue;
        enum { N = 6000 };
        float a = 0.3f, *x = mem(&r, USM_DEVICE, N * 4), *y = mem(&r, USM_DEVICE, N * 4), whole[N],
              split[N], in[N];
        usm_arg args[] = {USM_ARG_PTR(y), USM_ARG_PTR(x), USM_ARG_VAL(a)};
        bench   b      = bench_new(&r, "axpy", 3, args);
        for (int i = 0; i < N; i++)
            in[i] = 1.0f / (float)(i + 3);
        put(&r, x, in, sizeof in);
        put(&r, y, in, sizeof in);
        b.launch.global[0] = N;
        run(&r, &b.launch);
        get(&r, whole, y, sizeof whole);
        put(&r, y, in, sizeof in);
        for (size_t at = 0; at < N; at += 777) {
            b.launch.offset[0] = at;
            b.launch.global[0] = N - at < 777 ? N - at : 777;
            CHECK_OK(usm_queue_submit(r.q, &b.launch, 0, NULL, NULL));
        }
        get(&r, split, y, sizeof split);
        CHECK(!memcmp(whole, split, sizeof whole), "%s: other numbers when split", r.name);
        bench_end(&b);
        usm_free(x);
        usm_free(y);
    }
}

Test(launch, host_and_shared_results_are_read_without_a_copy)
{
    EACH_DEVICE (r) {
        EACH_KIND (k) {
            if (k == USM_DEVICE || !can(&r, NEED_KERNELS | need_kind(k)))
                continue;
            int     add = 100, *out = mem(&r, k, 50 * sizeof(int));
            usm_arg args[]     = {USM_ARG_PTR(out), USM_ARG_VAL(add)};
            bench   b          = bench_new(&r, "ids", 2, args);
            b.launch.global[0] = 50;
            run(&r, &b.launch);
            for (int i = 0; i < 50; i++)
                CHECK(out[i] == i + 100, "%s: %s: %d", r.name, kind_name(k), out[i]);
            bench_end(&b);
            usm_free(out);
        }
    }
}
