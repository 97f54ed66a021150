/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The images that the tests of programs and of kernels over Level Zero run over: the SPIR-V of
 * backend_kernels.cl, and on the software driver the shared object of level_zero_kernels.c, which
 * is its native binary.  The files are USM_TEST_SPV and USM_TEST_NATIVE (definitions; empty where
 * none was made). */
#ifndef LEVEL_ZERO_IMAGES_H
#define LEVEL_ZERO_IMAGES_H

#include "level_zero_fixture.h"
#include "module_kernels.h"

#include "backends/common/kinds.h"

#define KINDS "add=PV;sum=PPL;ids=PP;unbox=P;odd=PVVVV;eights=P;spin=PV;"

enum { FILE_MAX = 1 << 18 };

static _Alignas(8) char spirv[FILE_MAX], native[FILE_MAX];
static size_t spirv_size, native_size;

static inline void read_files(void)
{
    const char *runtime = getenv("USM_TEST_RUNTIME");

    spirv_size = read_file(USM_TEST_SPV, spirv, FILE_MAX);
    if (runtime && strncmp(runtime, "ze-soft", 7) == 0)
        native_size = read_file(USM_TEST_NATIVE, native, FILE_MAX);
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

#endif
