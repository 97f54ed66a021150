/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the tests of programs and kernels share, whatever the backend: building, launching, and the
 * cases that any driver's `add` of backend_kernels.cl has to pass. */
#ifndef MODULE_KERNELS_H
#define MODULE_KERNELS_H

#include "module_fixture.h"

/* What the file has, in `data`; 0: there is none. */
static inline size_t read_file(const char *path, char *data, size_t size)
{
    FILE  *file = path && path[0] ? fopen(path, "rbe") : NULL;
    size_t n;

    if (!file)
        return 0;
    n = fread(data, 1, size, file);
    (void)fclose(file);
    CHECK(n > 0 && n < size);
    return n;
}

static inline void *build_with(usm_image_type type, const void *data, size_t size,
                               const char *options)
{
    usm_image  image   = {type, data, size};
    char      *log     = NULL;
    void      *program = NULL;
    usm_status s       = ops->program_build(ctx, dev->handle, &image, options, &log, &program);

    if (s)
        printf("# %s\n# %s\n", usm_last_error(), log ? log : "no log");
    module_heap_free(log);
    CHECK_INT(s, USM_OK);
    return program;
}

static inline void *kernel_of(void *program, const char *name)
{
    void *k = NULL;

    CHECK_INT(ops->kernel_create(program, name, &k), USM_OK);
    return k;
}

/* Unused dimensions are as the core leaves them. */
static inline usm_launch launch_of(size_t n, size_t local, usm_arg *args, size_t nargs)
{
    usm_launch l = USM_LAUNCH_INIT;

    l.global[0] = n;
    for (int d = 0; local && d < 3; d++)
        l.local[d] = d ? 1 : local;
    l.args  = args;
    l.nargs = nargs;
    return l;
}

static inline void launch(void *kernel, const usm_launch *l)
{
    void      *ev = NULL;
    usm_status s  = ops->launch(q, kernel, l, 0, NULL, &ev);

    if (s)
        printf("# %s\n", usm_last_error());
    CHECK_INT(s, USM_OK);
    finish(ev);
}

static inline void check_add(void *program)
{
    int       *a = allocate_in(ctx, USM_SHARED, N * sizeof(int)), n = 3;
    void      *k = kernel_of(program, "add"), *ev = NULL;
    usm_arg    args[] = {USM_ARG_PTR(a), USM_ARG_REF(n)};
    usm_launch l      = launch_of(N, 0, args, 2);

    for (int i = 0; i < N; i++)
        a[i] = i;
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, NULL), USM_OK);
    n             = 4; /* arguments were copied */
    args[0].value = a + 10;
    l             = launch_of(5, 5, args, 2);
    CHECK_INT(ops->launch(q, k, &l, 0, NULL, &ev), USM_OK);
    finish(ev);
    for (int i = 0; i < N; i++)
        CHECK_INT(a[i], i + 3 + (i >= 10 && i < 15 ? 4 : 0));
    ops->kernel_destroy(k);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, N), USM_OK);
}

/* Launches that are held back have their own arguments, and outlive the kernel, `add`, which goes
 * here. */
static inline void check_held(void *kernel)
{
    int  *a    = allocate_in(ctx, USM_SHARED, 32 * sizeof(int));
    void *gate = user_event(), *ev = NULL;

    memset(a, 0, 32 * sizeof(int));
    for (int i = 0; i < 32; i++) { /* more than there are idle instances */
        usm_arg    args[] = {USM_ARG_PTR(a + i), USM_ARG_VAL(i)};
        usm_launch l      = launch_of(1, 0, args, 2);

        if (ev)
            ops->event_release(ev);
        CHECK_INT(ops->launch(q, kernel, &l, i == 0, &gate, &ev), USM_OK);
    }
    ops->kernel_destroy(kernel);
    CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
    finish(ev);
    for (int i = 0; i < 32; i++)
        CHECK_INT(a[i], i);
    finish(gate);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, a, 1), USM_OK);
}

static struct {
    void      *kernel;
    int       *a;
    atomic_int next;
} shared_kernel;

static inline void *launch_in_thread(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        int        n      = atomic_fetch_add(&shared_kernel.next, 1);
        usm_arg    args[] = {USM_ARG_PTR(shared_kernel.a + n), USM_ARG_VAL(n)};
        usm_launch l      = launch_of(1, 0, args, 2);

        CHECK_INT(ops->launch(q, shared_kernel.kernel, &l, 0, NULL, NULL), USM_OK);
    }
    return NULL;
}

/* Threads that launch one kernel at once have no arguments in common. */
static inline void check_threads(void *program)
{
    pthread_t threads[THREADS];

    shared_kernel.kernel = kernel_of(program, "add");
    shared_kernel.a      = allocate_in(ctx, USM_SHARED, THREADS * ROUNDS * sizeof(int));
    shared_kernel.next   = 0;
    memset(shared_kernel.a, 0, THREADS * ROUNDS * sizeof(int));
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, launch_in_thread, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(ops->queue_wait(q), USM_OK);
    for (int i = 0; i < THREADS * ROUNDS; i++)
        CHECK_INT(shared_kernel.a[i], i);
    ops->kernel_destroy(shared_kernel.kernel);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, shared_kernel.a, 1), USM_OK);
}

/* Each allocation fails in turn, until `scenario` passes with more than `calls` of them; more than
 * `least` made it fail. */
static inline void exhaust_heap(usm_status (*scenario)(void), uint64_t calls, uint64_t least)
{
    uint64_t failures = 0;

    for (uint64_t n = 1; n < 1000; n++) {
        usm_status s;

        module_start();
        CHECK(usm__fault_arm("heap.alloc", n, false, USM_OK));
        s = scenario();
        usm__fault_disarm_all();
        module_clean();
        if (s == USM_OK && failures > 0 && n > calls)
            break;
        if (s != USM_OK) {
            CHECK_INT(s, USM_E_NO_MEMORY);
            failures++;
        }
    }
    printf("# %llu allocations failed in turn\n", (unsigned long long)failures);
    CHECK(failures > least);
}

#endif
