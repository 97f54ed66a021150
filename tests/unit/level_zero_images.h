/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the tests of programs and of kernels over Level Zero share: the images they run over, and
 * short forms of launching.
 *
 * The images are the SPIR-V of level_zero_kernels.cl, and on the software driver the shared object
 * of level_zero_kernels.c, which is its native binary.  The files are USM_TEST_SPV and
 * USM_TEST_NATIVE (definitions; empty where none was made). */
#ifndef LEVEL_ZERO_IMAGES_H
#define LEVEL_ZERO_IMAGES_H

#include "level_zero_fixture.h"

#include "backends/common/kinds.h"

#define KINDS "add=PV;sum=PPL;ids=PP;unbox=P;odd=PVVVV;eights=P;spin=PV;"

enum { FILE_MAX = 1 << 18 };

/* --- the images --------------------------------------------------------------------------- */

static _Alignas(8) char spirv[FILE_MAX], native[FILE_MAX];
static size_t spirv_size, native_size;

static inline size_t read_file(const char *path, char *data)
{
    FILE  *file = path[0] ? fopen(path, "rbe") : NULL;
    size_t n;

    if (!file)
        return 0;
    n = fread(data, 1, FILE_MAX, file);
    (void)fclose(file);
    CHECK(n > 0 && n < FILE_MAX);
    return n;
}

static inline void read_files(void)
{
    const char *runtime = getenv("USM_TEST_RUNTIME");

    spirv_size = read_file(USM_TEST_SPV, spirv);
    if (runtime && strncmp(runtime, "ze-soft", 7) == 0)
        native_size = read_file(USM_TEST_NATIVE, native);
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

static inline bool has_spirv(void)
{
    return spirv_size && has(USM_ASPECT_IMAGE_SPIRV);
}

static inline void *build_spirv(void)
{
    return build_with(USM_IMAGE_SPIRV, spirv, spirv_size, NULL);
}

/* The software driver's binary, with the kinds of its arguments. */
static inline void *build_native(void)
{
    void  *data = NULL, *program;
    size_t size = 0;

    CHECK_INT(kinds_wrap(&module_api, KINDS, native, native_size, &data, &size), USM_OK);
    program = build_with(USM_IMAGE_BINARY, data, size, NULL);
    module_heap_free(data);
    return program;
}

/* A context, a queue and a program of each image there is. */
static inline void over_images(uint32_t flags, void (*fn)(void *program))
{
    if (!has_spirv() && !native_size)
        SKIP("the device takes no image that was made (SPIR-V: clang and llvm-spirv)");
    for (int i = 0; i < 2; i++) {
        void *program;

        if (!(i ? native_size != 0 : has_spirv()))
            continue;
        printf("#   %s\n", i ? "native" : "SPIR-V");
        open_with(flags);
        program = i ? build_native() : build_spirv();
        fn(program);
        ops->program_destroy(program);
        close_all();
    }
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
    usm_arg    args[] = {USM_ARG_PTR(a), USM_ARG_VAL(n)};
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

#endif
