/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What test_module.c stands on: a device, the modules' bytes, logs, launches.
 *
 * The modules are files, made of test_module_native.c, test_module.cl, test_module_user.cl,
 * test_module_other.cl and test_module_atomics.cl: TEST_NATIVE, TEST_SPV, TEST_USER_SPV,
 * TEST_OTHER_SPV, TEST_ATOMICS_SPV, definitions or variables of the environment. */
#ifndef ZE_SOFT_TEST_MODULE_H
#define ZE_SOFT_TEST_MODULE_H

#include "plain.h"

#include <level_zero/ze_api.h>

#include <stdint.h>

#ifndef TEST_NATIVE
#define TEST_NATIVE ""
#endif
#ifndef TEST_SPV
#define TEST_SPV ""
#endif
#ifndef TEST_USER_SPV
#define TEST_USER_SPV ""
#endif
#ifndef TEST_OTHER_SPV
#define TEST_OTHER_SPV ""
#endif
#ifndef TEST_ATOMICS_SPV
#define TEST_ATOMICS_SPV ""
#endif

#define LIBRARY  "-ze-opt-level=2 -library-compilation"
#define OK(call) CHECK_INT((call), ZE_RESULT_SUCCESS)
#define ITEMS    256
#define NATIVE   ZE_MODULE_FORMAT_NATIVE
#define SPIRV    ZE_MODULE_FORMAT_IL_SPIRV

static ze_device_handle_t       dev;
static ze_context_handle_t      ctx;
static ze_command_list_handle_t list;
static char                     text[65536]; /* of the last log */

/* --- fixtures ------------------------------------------------------------------------------ */

/* Of one of a few rooms, used in turn. */
typedef struct bytes {
    uint8_t *data;
    size_t   size;
} bytes;

#define ROOM ((size_t)1 << 20)

static uint8_t *next_room(void)
{
    static uint8_t  rooms[4][ROOM];
    static unsigned n;

    return rooms[n++ % 4];
}

static const char *path_of(const char *name, const char *fallback)
{
    const char *path = getenv(name);

    return path ? path : fallback;
}

static bytes read_bytes(const char *path)
{
    bytes b    = {next_room(), 0};
    FILE *file = fopen(path, "re");

    CHECK(file != NULL);
    b.size = fread(b.data, 1, ROOM, file);
    (void)fclose(file);
    return b;
}

#define NATIVE_BYTES read_bytes(path_of("TEST_NATIVE", TEST_NATIVE))

static bytes spirv_bytes(const char *path)
{
    if (path[0] == '\0')
        SKIP("no SPIR-V: clang and llvm-spirv were not there when this was built");
    return read_bytes(path);
}

#define SPIRV_BYTES   spirv_bytes(path_of("TEST_SPV", TEST_SPV))
#define USER_BYTES    spirv_bytes(path_of("TEST_USER_SPV", TEST_USER_SPV))
#define OTHER_BYTES   spirv_bytes(path_of("TEST_OTHER_SPV", TEST_OTHER_SPV))
#define ATOMICS_BYTES spirv_bytes(path_of("TEST_ATOMICS_SPV", TEST_ATOMICS_SPV))

static void start(void)
{
    uint32_t                n = 1;
    ze_driver_handle_t      driver;
    ze_context_desc_t       desc  = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .mode  = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};

    OK(zeInit(0));
    OK(zeDriverGet(&n, &driver));
    n = 1;
    OK(zeDeviceGet(driver, &n, &dev));
    OK(zeContextCreate(driver, &desc, &ctx));
    OK(zeCommandListCreateImmediate(ctx, dev, &queue, &list));
}

static void stop(void)
{
    OK(zeCommandListDestroy(list));
    OK(zeContextDestroy(ctx));
}

/* Keeps the log in `text`, "" when there is none. */
static void keep_log(ze_module_build_log_handle_t log)
{
    size_t size = sizeof(text);

    text[0] = '\0';
    if (!log)
        return;
    OK(zeModuleBuildLogGetString(log, &size, text));
    OK(zeModuleBuildLogDestroy(log));
}

static ze_result_t create_desc(const ze_module_desc_t *desc, ze_module_handle_t *module)
{
    ze_module_build_log_handle_t log    = NULL;
    ze_result_t                  result = zeModuleCreate(ctx, dev, desc, module, &log);

    keep_log(log);
    return result;
}

static ze_result_t create(ze_module_format_t format, bytes b, const char *flags,
                          ze_module_handle_t *module)
{
    ze_module_desc_t desc = {.stype        = ZE_STRUCTURE_TYPE_MODULE_DESC,
                             .format       = format,
                             .inputSize    = b.size,
                             .pInputModule = b.data,
                             .pBuildFlags  = flags};

    return create_desc(&desc, module);
}

static ze_module_handle_t make(ze_module_format_t format, bytes b)
{
    ze_module_handle_t module = NULL;
    ze_result_t        result = create(format, b, LIBRARY, &module);

    if (result)
        printf("# %s\n", text);
    OK(result);
    return module;
}

static ze_kernel_handle_t kernel_of(ze_module_handle_t module, const char *name)
{
    ze_kernel_desc_t   desc   = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = name};
    ze_kernel_handle_t kernel = NULL;

    OK(zeKernelCreate(module, &desc, &kernel));
    return kernel;
}

static void *shared(size_t size)
{
    ze_device_mem_alloc_desc_t on_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t   on_host   = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void                      *p         = NULL;

    OK(zeMemAllocShared(ctx, &on_device, &on_host, size, 64, dev, &p));
    memset(p, 0, size);
    return p;
}

static int *numbers(void)
{
    int *a = shared(ITEMS * sizeof(*a));

    for (int i = 0; i < ITEMS; i++)
        a[i] = i;
    return a;
}

static void set(ze_kernel_handle_t kernel, uint32_t index, size_t size, const void *value)
{
    OK(zeKernelSetArgumentValue(kernel, index, size, value));
}

#define SET(kernel, index, lvalue) set((kernel), (index), sizeof(lvalue), &(lvalue))

static void launch(ze_kernel_handle_t kernel, uint32_t ngroups)
{
    ze_group_count_t groups = {ngroups, 1, 1};

    OK(zeCommandListAppendLaunchKernel(list, kernel, &groups, NULL, 0, NULL));
}

#endif
