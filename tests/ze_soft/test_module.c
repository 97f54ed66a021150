/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What modules and kernels of the software Level Zero driver promise, seen through the real loader:
 * native modules, SPIR-V through whatever OpenCL runtime is there, arguments, launches, linking.
 * Run by ctest with ZE_ENABLE_ALT_DRIVERS naming the driver.
 *
 * Not under ZE_ENABLE_LOADER_INTERCEPT: that loader (1.8.12, 1.20.6) hands the log of a build that
 * failed through as it is and takes it for one of its own when it is read. */
#include "test_module.h"

#include <elf.h>

/* --- both kinds of modules ------------------------------------------------------------------- */

static void check_add(ze_module_handle_t module)
{
    ze_kernel_handle_t kernel = kernel_of(module, "add");
    int               *a      = numbers();
    int                n      = 1000;

    SET(kernel, 0, a);
    SET(kernel, 1, n);
    OK(zeKernelSetGroupSize(kernel, 64, 1, 1));
    launch(kernel, ITEMS / 64);
    for (int i = 0; i < ITEMS; i++)
        CHECK_INT(a[i], i + 1000);
    OK(zeMemFree(ctx, a));
    OK(zeKernelDestroy(kernel));
}

static void check_sum(ze_module_handle_t module)
{
    ze_kernel_handle_t kernel = kernel_of(module, "sum");
    int               *in     = numbers();
    int               *out    = shared(4 * sizeof(*out));

    SET(kernel, 0, in);
    SET(kernel, 1, out);
    set(kernel, 2, 64 * sizeof(int), NULL);
    OK(zeKernelSetGroupSize(kernel, 64, 1, 1));
    launch(kernel, 4);
    for (int i = 0; i < 4; i++)
        CHECK_INT(out[i], 64 * 64 * i + 63 * 32);
    OK(zeMemFree(ctx, out));
    OK(zeMemFree(ctx, in));
    OK(zeKernelDestroy(kernel));
}

static void check_device_memory(ze_module_handle_t module)
{
    ze_device_mem_alloc_desc_t desc   = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_kernel_handle_t         kernel = kernel_of(module, "add");
    int                        a[64] = {0}, n = 5;
    void                      *d = NULL;

    OK(zeMemAllocDevice(ctx, &desc, sizeof(a), 64, dev, &d));
    OK(zeCommandListAppendMemoryCopy(list, d, a, sizeof(a), NULL, 0, NULL));
    SET(kernel, 0, d);
    SET(kernel, 1, n);
    OK(zeKernelSetGroupSize(kernel, 64, 1, 1));
    launch(kernel, 1);
    OK(zeCommandListAppendMemoryCopy(list, a, d, sizeof(a), NULL, 0, NULL));
    CHECK_INT(a[0], 5);
    CHECK_INT(a[63], 5);
    OK(zeMemFree(ctx, d));
    OK(zeKernelDestroy(kernel));
}

/* A regular list keeps what was set at its appends, and does it each time it is executed. */
static void check_capture(ze_module_handle_t module)
{
    ze_command_list_desc_t    ldesc  = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC};
    ze_command_queue_desc_t   qdesc  = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC};
    ze_group_count_t          groups = {1, 1, 1};
    ze_command_list_handle_t  regular;
    ze_command_queue_handle_t queue;
    ze_kernel_handle_t        kernel = kernel_of(module, "add");
    int                      *a = numbers(), n = 1, later = 100;

    OK(zeCommandListCreate(ctx, dev, &ldesc, &regular));
    OK(zeCommandQueueCreate(ctx, dev, &qdesc, &queue));
    SET(kernel, 0, a);
    SET(kernel, 1, n);
    OK(zeKernelSetGroupSize(kernel, 64, 1, 1));
    OK(zeCommandListAppendLaunchKernel(regular, kernel, &groups, NULL, 0, NULL));
    SET(kernel, 1, later);
    OK(zeKernelSetGroupSize(kernel, 1, 1, 1));
    OK(zeCommandListClose(regular));
    for (int i = 0; i < 3; i++)
        OK(zeCommandQueueExecuteCommandLists(queue, 1, &regular, NULL));
    OK(zeCommandQueueSynchronize(queue, UINT64_MAX));
    CHECK_INT(a[0], 3);
    CHECK_INT(a[63], 66);
    CHECK_INT(a[64], 64);
    OK(zeCommandListDestroy(regular));
    OK(zeCommandQueueDestroy(queue));
    OK(zeMemFree(ctx, a));
    OK(zeKernelDestroy(kernel));
}

static void check_indirect(ze_module_handle_t module)
{
    ze_kernel_handle_t kernel = kernel_of(module, "add");
    ze_group_count_t  *groups = shared(sizeof(*groups));
    int               *a = numbers(), n = 7;

    *groups = (ze_group_count_t){2, 1, 1};
    SET(kernel, 0, a);
    SET(kernel, 1, n);
    OK(zeKernelSetGroupSize(kernel, 16, 1, 1));
    OK(zeCommandListAppendLaunchKernelIndirect(list, kernel, groups, NULL, 0, NULL));
    CHECK_INT(a[31], 38);
    CHECK_INT(a[32], 32);
    *groups = (ze_group_count_t){0, 1, 1};
    OK(zeCommandListAppendLaunchKernelIndirect(list, kernel, groups, NULL, 0, NULL));
    CHECK_INT(a[0], 7);
    OK(zeMemFree(ctx, a));
    OK(zeMemFree(ctx, groups));
    OK(zeKernelDestroy(kernel));
}

static void check_launches(ze_module_handle_t module)
{
    check_add(module);
    check_sum(module);
    check_device_memory(module);
    check_capture(module);
    check_indirect(module);
}

static void check_group_sizes(ze_module_handle_t module)
{
    ze_kernel_properties_t p      = {.stype = ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES};
    ze_kernel_handle_t     any    = kernel_of(module, "add");
    ze_kernel_handle_t     eights = kernel_of(module, "eights");
    uint32_t               x, y, z;

    CHECK_INT(zeKernelSetGroupSize(any, 0, 1, 1), ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
    CHECK_INT(zeKernelSetGroupSize(any, 65536, 65536, 1),
              ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
    CHECK_INT(zeKernelSetGroupSize(eights, 4, 1, 1), ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
    OK(zeKernelSetGroupSize(eights, 8, 1, 1));
    OK(zeKernelSuggestGroupSize(any, 1000, 6, 7, &x, &y, &z));
    CHECK_INT(1000 % x + 6 % y + 7 % z, 0);
    CHECK(x > 1);
    CHECK_INT(zeKernelSuggestGroupSize(any, 0, 1, 1, &x, &y, &z),
              ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION);
    OK(zeKernelGetProperties(any, &p));
    CHECK_INT(p.numKernelArgs, 2);
    CHECK_INT(p.requiredGroupSizeX, 0);
    OK(zeKernelGetProperties(eights, &p));
    CHECK_INT(p.requiredGroupSizeX, 8);
    CHECK_INT(p.requiredGroupSizeZ, 1);
    OK(zeKernelDestroy(eights));
    OK(zeKernelDestroy(any));
}

static void check_refusals(ze_module_handle_t module)
{
    ze_kernel_desc_t   desc   = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = "nobody"};
    ze_group_count_t   groups = {1, 1, 1};
    ze_kernel_handle_t kernel = kernel_of(module, "add"), none = NULL;
    int64_t            wide = 0;
    size_t             size = 0;
    char               name[8];

    CHECK_INT(zeKernelCreate(module, &desc, &none), ZE_RESULT_ERROR_INVALID_KERNEL_NAME);
    CHECK(none == NULL);
    CHECK_INT(zeKernelSetArgumentValue(kernel, 2, 4, &wide),
              ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
    CHECK_INT(zeKernelSetArgumentValue(kernel, 1, 8, &wide),
              ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
    CHECK_INT(zeKernelSetArgumentValue(kernel, 0, 4, &wide),
              ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
    /* Arguments that were never set. */
    CHECK_INT(zeCommandListAppendLaunchKernel(list, kernel, &groups, NULL, 0, NULL),
              ZE_RESULT_ERROR_INVALID_ARGUMENT);
    OK(zeKernelGetName(kernel, &size, NULL));
    CHECK_INT(size, 4);
    OK(zeKernelGetName(kernel, &size, name));
    CHECK_STR(name, "add");
    OK(zeKernelDestroy(kernel));
}

static void check_names(ze_module_handle_t module, uint32_t nkernels)
{
    const char *names[16] = {NULL};
    uint32_t    n         = 0;
    bool        has_add   = false;

    OK(zeModuleGetKernelNames(module, &n, NULL));
    CHECK_INT(n, nkernels);
    OK(zeModuleGetKernelNames(module, &n, names));
    for (uint32_t i = 0; i < n; i++)
        has_add = has_add || strcmp(names[i], "add") == 0;
    CHECK(has_add);
    n = 1;
    OK(zeModuleGetKernelNames(module, &n, names));
    CHECK_INT(n, 1);
}

/* Its binary makes the same module again, and an earlier module's end changes nothing. */
static ze_module_handle_t remade(ze_module_handle_t module)
{
    bytes b = {next_room(), 0};

    OK(zeModuleGetNativeBinary(module, &b.size, NULL));
    CHECK(b.size <= ROOM);
    OK(zeModuleGetNativeBinary(module, &b.size, b.data));
    OK(zeModuleDestroy(module));
    return make(NATIVE, b);
}

/* --- native modules --------------------------------------------------------------------------- */

static void native_modules_run(void)
{
    ze_module_handle_t module;

    start();
    module = make(NATIVE, NATIVE_BYTES);
    CHECK_STR(text, "");
    check_names(module, 4);
    check_launches(module);
    check_group_sizes(module);
    check_refusals(module);
    module = remade(module);
    check_launches(module);
    OK(zeModuleDestroy(module));
    stop();
}

static void a_native_function_gets_the_range(void)
{
    static const size_t expected[15] = {10, 20, 30, 8, 6, 4, 4, 3, 2, 10, 20, 30, 18, 26, 34};
    ze_group_count_t    groups       = {2, 2, 2};
    ze_module_handle_t  module;
    ze_kernel_handle_t  kernel;
    size_t             *out;

    start();
    module = make(NATIVE, NATIVE_BYTES);
    kernel = kernel_of(module, "ranges");
    out    = shared(sizeof(expected));
    SET(kernel, 0, out);
    OK(zeKernelSetGlobalOffsetExp(kernel, 10, 20, 30));
    OK(zeKernelSetGroupSize(kernel, 4, 3, 2));
    OK(zeCommandListAppendLaunchKernel(list, kernel, &groups, NULL, 0, NULL));
    for (int i = 0; i < 15; i++)
        CHECK_INT(out[i], expected[i]);
    OK(zeMemFree(ctx, out));
    OK(zeKernelDestroy(kernel));
    OK(zeModuleDestroy(module));
    stop();
}

static void native_symbols_are_found(void)
{
    ze_module_handle_t module;
    size_t             size = 0;
    void              *p    = NULL;

    start();
    module = make(NATIVE, NATIVE_BYTES);
    OK(zeModuleGetGlobalPointer(module, "calls", &size, &p));
    CHECK_INT(size, sizeof(int));
    CHECK_INT(*(int *)p, 0);
    check_add(module);
    CHECK_INT(*(int *)p, 1);
    CHECK_INT(zeModuleGetGlobalPointer(module, "printf", &size, &p),
              ZE_RESULT_ERROR_INVALID_GLOBAL_NAME);
    OK(zeModuleGetFunctionPointer(module, "add", &p));
    CHECK(p != NULL);
    CHECK_INT(zeModuleGetFunctionPointer(module, "nobody", &p),
              ZE_RESULT_ERROR_INVALID_FUNCTION_NAME);
    OK(zeModuleDestroy(module));
    stop();
}

/* Two modules of the same bytes are two: each has its own variables. */
static void native_modules_share_nothing(void)
{
    ze_module_handle_t one, two;
    size_t             size;
    void              *p = NULL, *q = NULL;

    start();
    one = make(NATIVE, NATIVE_BYTES);
    check_add(one);
    two = make(NATIVE, NATIVE_BYTES);
    OK(zeModuleGetGlobalPointer(one, "calls", &size, &p));
    OK(zeModuleGetGlobalPointer(two, "calls", &size, &q));
    CHECK(p != q);
    CHECK_INT(*(int *)p, 1);
    CHECK_INT(*(int *)q, 0);
    OK(zeModuleDestroy(one));
    check_add(two);
    OK(zeModuleDestroy(two));
    stop();
}

/* The module and the kernel may go while a list still has the launch. */
static void launches_keep_their_code(void)
{
    ze_command_list_desc_t    ldesc  = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC};
    ze_command_queue_desc_t   qdesc  = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC};
    ze_group_count_t          groups = {1, 1, 1};
    ze_command_list_handle_t  regular;
    ze_command_queue_handle_t queue;
    ze_module_handle_t        module;
    ze_kernel_handle_t        kernel;
    int                      *a, n = 1;

    start();
    module = make(NATIVE, NATIVE_BYTES);
    kernel = kernel_of(module, "add");
    a      = numbers();
    OK(zeCommandListCreate(ctx, dev, &ldesc, &regular));
    OK(zeCommandQueueCreate(ctx, dev, &qdesc, &queue));
    SET(kernel, 0, a);
    SET(kernel, 1, n);
    OK(zeCommandListAppendLaunchKernel(regular, kernel, &groups, NULL, 0, NULL));
    OK(zeCommandListClose(regular));
    OK(zeKernelDestroy(kernel));
    OK(zeModuleDestroy(module));
    OK(zeCommandQueueExecuteCommandLists(queue, 1, &regular, NULL));
    OK(zeCommandQueueSynchronize(queue, UINT64_MAX));
    CHECK_INT(a[0], 1);
    CHECK_INT(a[1], 1);
    OK(zeCommandListDestroy(regular));
    OK(zeCommandQueueDestroy(queue));
    OK(zeMemFree(ctx, a));
    stop();
}

/* Where the last part that is loaded ends: what comes behind, as debug information, may be cut off.
 */
static size_t end_of_segments(bytes elf)
{
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    size_t     end = 0;

    CHECK(elf.size >= sizeof header);
    memcpy(&header, elf.data, sizeof header);
    for (unsigned i = 0; i < header.e_phnum; i++) {
        memcpy(&segment, elf.data + header.e_phoff + i * sizeof segment, sizeof segment);
        if (segment.p_type == PT_LOAD && segment.p_offset + segment.p_filesz > end)
            end = segment.p_offset + segment.p_filesz;
    }
    return end;
}

static void broken_native_modules_are_refused(void)
{
    ze_module_handle_t module = NULL;
    bytes              whole, b;

    start();
    whole = NATIVE_BYTES;
    for (size_t size = 1; size < end_of_segments(whole); size += 1 + size / 3) {
        b = (bytes){whole.data, size};
        CHECK_INT(create(NATIVE, b, NULL, &module), ZE_RESULT_ERROR_INVALID_NATIVE_BINARY);
        CHECK_IN("native module", text);
        CHECK(module == NULL);
    }
    whole.data[18] ^= 0x55; /* the machine */
    CHECK_INT(create(NATIVE, whole, NULL, &module), ZE_RESULT_ERROR_INVALID_NATIVE_BINARY);
    CHECK_IN("another machine", text);
    whole = read_bytes("/proc/self/exe"); /* position independent or not, it has no kernels */
    CHECK_INT(create(NATIVE, whole, NULL, &module), ZE_RESULT_ERROR_INVALID_NATIVE_BINARY);
    CHECK(text[0] != '\0');
    stop();
}

static void bad_descriptors_are_refused(void)
{
    ze_module_handle_t module = NULL;
    bytes              b      = {(uint8_t[4]){0}, 0};

    start();
    CHECK_INT(create(SPIRV, b, NULL, &module), ZE_RESULT_ERROR_INVALID_SIZE);
    b = (bytes){NULL, 4};
    CHECK_INT(create(SPIRV, b, NULL, &module), ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    b = (bytes){(uint8_t[4]){0}, 4};
    CHECK_INT(create((ze_module_format_t)7, b, NULL, &module), ZE_RESULT_ERROR_INVALID_ENUMERATION);
    CHECK_INT(create(SPIRV, b, NULL, &module), ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    CHECK_IN("SPIR-V", text);
    CHECK(module == NULL);
    stop();
}

/* --- SPIR-V ----------------------------------------------------------------------------------- */

/* On pointers cast to the generic address space, which not every runtime has functions for. */
static void check_attributes(ze_module_handle_t module)
{
    ze_kernel_handle_t kernel = kernel_of(module, "hinted");
    char              *words  = NULL;
    uint32_t           size   = 0;

    OK(zeKernelGetSourceAttributes(kernel, &size, &words));
    CHECK_STR(words, "work_group_size_hint(4,2,1)");
    CHECK_INT(size, strlen(words) + 1);
    OK(zeKernelDestroy(kernel));
}

static void spirv_modules_run(void)
{
    ze_module_handle_t module;

    start();
    module = make(SPIRV, SPIRV_BYTES);
    check_names(module, 6);
    check_attributes(module);
    check_launches(module);
    check_group_sizes(module);
    check_refusals(module);
    module = remade(module);
    check_launches(module);
    OK(zeModuleDestroy(module));
    stop();
}

/* Intel's CPU runtime has no atomic operations on generic pointers. */
static void atomic_operations_of_spirv_run(void)
{
    const char        *runtime = getenv("USM_TEST_RUNTIME");
    ze_module_handle_t module;
    ze_kernel_handle_t kernel;
    int               *a, *n;

    if (runtime && strcmp(runtime, "ze-soft-intel") == 0)
        return;
    start();
    module = make(SPIRV, ATOMICS_BYTES);
    kernel = kernel_of(module, "atomics");
    a      = numbers();
    n      = shared(2 * sizeof(*n));
    n[0]   = 1000;
    SET(kernel, 0, a);
    SET(kernel, 1, n);
    OK(zeKernelSetGroupSize(kernel, 64, 1, 1));
    launch(kernel, ITEMS / 64);
    CHECK_INT(a[0], 1000);
    CHECK_INT(a[ITEMS - 1], 1000);
    CHECK_INT(n[1], ITEMS);
    OK(zeMemFree(ctx, n));
    OK(zeMemFree(ctx, a));
    OK(zeKernelDestroy(kernel));
    OK(zeModuleDestroy(module));
    stop();
}

static void broken_spirv_is_refused(void)
{
    ze_module_handle_t module = NULL;
    bytes              whole, b;

    start();
    whole = SPIRV_BYTES;
    for (size_t size = 4; size < 64; size += 4) {
        b = (bytes){whole.data, size};
        CHECK_INT(create(SPIRV, b, NULL, &module), ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
        CHECK(text[0] != '\0');
        CHECK(module == NULL);
    }
    stop();
}

typedef struct triple {
    char  c;
    short s;
    float f;
} triple;

static void spirv_arguments_of_all_sizes_arrive(void)
{
    const char         c    = 3;
    const int64_t      l    = 1 << 20;
    const float        v[4] = {0, 0, 0, 4}, w[4] = {0, 0, 5, 0};
    const triple       t = {1, 2, 3};
    ze_module_handle_t module;
    ze_kernel_handle_t kernel;
    float             *out, **box;

    start();
    module = make(SPIRV, SPIRV_BYTES);
    kernel = kernel_of(module, "values");
    out    = shared(64);
    box    = shared(64);
    box[0] = &out[8];
    out[8] = 42;
    SET(kernel, 0, out);
    SET(kernel, 1, c);
    SET(kernel, 2, l);
    SET(kernel, 3, v);
    SET(kernel, 4, w);
    SET(kernel, 5, t);
    set(kernel, 6, sizeof(void *), NULL);
    SET(kernel, 7, box);
    CHECK_INT(zeKernelSetArgumentValue(kernel, 5, 7, &t),
              ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
    OK(zeKernelSetIndirectAccess(kernel, ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED));
    launch(kernel, 1);
    CHECK(out[0] == 3 && out[1] == 1 << 20 && out[2] == 4);
    CHECK(out[3] == 5 && out[4] == 6 && out[5] == 1 && out[6] == 42);
    OK(zeMemFree(ctx, box));
    OK(zeMemFree(ctx, out));
    OK(zeKernelDestroy(kernel));
    OK(zeModuleDestroy(module));
    stop();
}

static void check_specialized(ze_module_handle_t module, int64_t first, int64_t second)
{
    ze_kernel_handle_t kernel = kernel_of(module, "specialized");
    int64_t           *a      = shared(64);

    SET(kernel, 0, a);
    launch(kernel, 1);
    CHECK_INT(a[0], first);
    CHECK_INT(a[1], second);
    OK(zeMemFree(ctx, a));
    OK(zeKernelDestroy(kernel));
    OK(zeModuleDestroy(module));
}

static void specialization_constants_are_set(void)
{
    const int32_t         seven     = -7;
    const int64_t         eight     = (int64_t)8 << 40;
    const uint32_t        ids[]     = {8, 7};
    const void           *values[]  = {&eight, &seven};
    ze_module_constants_t constants = {2, ids, values};
    bytes                 b;
    ze_module_handle_t    module = NULL;
    ze_module_desc_t      desc;

    start();
    b    = SPIRV_BYTES;
    desc = (ze_module_desc_t){.stype        = ZE_STRUCTURE_TYPE_MODULE_DESC,
                              .format       = SPIRV,
                              .inputSize    = b.size,
                              .pInputModule = b.data,
                              .pConstants   = &constants};
    OK(create_desc(&desc, &module));
    check_specialized(remade(module), seven, eight);
    desc.pConstants = NULL;
    OK(create_desc(&desc, &module));
    check_specialized(module, 70, 80);
    stop();
}

/* --- modules with imports --------------------------------------------------------------------- */

static void check_use(ze_module_handle_t module)
{
    ze_kernel_handle_t kernel = kernel_of(module, "use");
    int               *a      = numbers();

    SET(kernel, 0, a);
    OK(zeKernelSetGroupSize(kernel, 32, 1, 1));
    launch(kernel, 2);
    CHECK_INT(a[63], 189);
    CHECK_INT(a[64], 64);
    OK(zeMemFree(ctx, a));
    OK(zeKernelDestroy(kernel));
}

static void unresolved_names_fail_the_build_of_what_is_no_library(void)
{
    ze_module_handle_t module = NULL;

    start();
    CHECK_INT(create(SPIRV, USER_BYTES, NULL, &module), ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    CHECK_IN("triple_of", text);
    CHECK_IN("-library-compilation", text);
    CHECK(module == NULL);
    stop();
}

/* PoCL 3.1 links nothing itself. */
static void needs_linker(ze_result_t result)
{
    if (result && strstr(text, "needs llvm-link"))
        SKIP("the runtime takes bitcode, and there is no llvm-link (Debian: llvm-14)");
}

static void imports_are_linked(void)
{
    ze_result_t            result;
    ze_kernel_desc_t       desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = "use"};
    ze_module_properties_t p    = {.stype = ZE_STRUCTURE_TYPE_MODULE_PROPERTIES};
    ze_module_build_log_handle_t log = NULL;
    ze_module_handle_t           modules[2];
    ze_kernel_handle_t           kernel;

    start();
    modules[0] = make(SPIRV, USER_BYTES);
    modules[1] = make(SPIRV, OTHER_BYTES);
    OK(zeModuleGetProperties(modules[0], &p));
    CHECK_INT(p.flags, ZE_MODULE_PROPERTY_FLAG_IMPORTS);
    CHECK_INT(zeKernelCreate(modules[0], &desc, &kernel), ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED);
    CHECK_INT(zeModuleDynamicLink(1, modules, &log), ZE_RESULT_ERROR_MODULE_LINK_FAILURE);
    keep_log(log);
    CHECK_IN("triple_of", text);
    log    = NULL;
    result = zeModuleDynamicLink(2, modules, &log);
    keep_log(log);
    needs_linker(result);
    OK(result);
    check_use(modules[0]);
    OK(zeModuleDestroy(modules[1]));
    check_use(modules[0]);
    OK(zeModuleDestroy(modules[0]));
    stop();
}

static void several_modules_make_one(void)
{
    ze_result_t                  result;
    bytes                        user, other;
    ze_module_program_exp_desc_t program = {.stype = ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC};
    ze_module_desc_t             desc    = {
                       .stype = ZE_STRUCTURE_TYPE_MODULE_DESC, .pNext = &program, .format = SPIRV};
    ze_module_handle_t module = NULL;

    start();
    user                  = USER_BYTES;
    other                 = OTHER_BYTES;
    program.count         = 2;
    program.inputSizes    = (size_t[2]){user.size, other.size};
    program.pInputModules = (const uint8_t *[2]){user.data, other.data};
    /* For loaders whose checks do not know the extension. */
    desc.pInputModule = user.data;
    desc.inputSize    = user.size;
    result            = create_desc(&desc, &module);
    needs_linker(result);
    OK(result);
    check_use(module);
    module = remade(module);
    check_use(module);
    OK(zeModuleDestroy(module));
    stop();
}

/* --- no runtime ------------------------------------------------------------------------------- */

static void no_runtime_is_said(void)
{
    ze_module_handle_t module = NULL;
    bytes              b;

    start();
    b = SPIRV_BYTES;
    CHECK_INT(create(SPIRV, b, NULL, &module), ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    CHECK_IN("ZE_SOFT_SPIRV", text);
    module = make(NATIVE, NATIVE_BYTES); /* which needs none */
    check_add(module);
    OK(zeModuleDestroy(module));
    stop();
}

/* A child of this program with another knob: its exit status. */
static int spawn(const char *name, const char *knob, const char *value)
{
    pid_t child;
    int   status = -1;

    (void)fflush(NULL);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        (void)setenv(knob, value, 1);
        (void)execl("/proc/self/exe", "test_module", name, (char *)NULL);
        _exit(127);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static void without_a_runtime_the_log_says_what_to_do(void)
{
    (void)SPIRV_BYTES; /* or skip */
    CHECK_INT(spawn("no_runtime", "ZE_SOFT_SPIRV", "/nowhere/libnone.so"), 0);
}

/* --- leniency --------------------------------------------------------------------------------- */

static void child_lenient(void)
{
    ze_module_handle_t module;
    ze_kernel_handle_t kernel;
    const int          n[2] = {5, -1}; /* the second lies beyond the parameter */
    const int          wide = 0x102;
    const char         c    = 1;
    int               *a;

    start();
    module = make(SPIRV, SPIRV_BYTES);
    kernel = kernel_of(module, "add");
    a      = numbers();
    SET(kernel, 0, a);
    SET(kernel, 1, n);
    OK(zeKernelSetGroupSize(kernel, 64, 1, 1));
    launch(kernel, ITEMS / 64);
    CHECK_INT(a[ITEMS - 1], ITEMS - 1 + 5);
    SET(kernel, 1, wide);
    SET(kernel, 1, c); /* its lowest byte */
    launch(kernel, ITEMS / 64);
    CHECK_INT(a[0], 5 + 0x101);
    CHECK_INT(zeKernelSetArgumentValue(kernel, 0, 4, &a),
              ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
    OK(zeMemFree(ctx, a));
    OK(zeKernelDestroy(kernel));
    OK(zeModuleDestroy(module));
    stop();
}

static void a_lenient_driver_takes_what_fits_of_a_value(void)
{
    (void)SPIRV_BYTES; /* or skip */
    CHECK_INT(spawn("lenient", "ZE_SOFT_LENIENT", "1"), 0);
}

static const plain_case cases[] = {
    CASE(native_modules_run),
    CASE(a_native_function_gets_the_range),
    CASE(native_symbols_are_found),
    CASE(native_modules_share_nothing),
    CASE(launches_keep_their_code),
    CASE(broken_native_modules_are_refused),
    CASE(bad_descriptors_are_refused),
    CASE(spirv_modules_run),
    CASE(atomic_operations_of_spirv_run),
    CASE(broken_spirv_is_refused),
    CASE(spirv_arguments_of_all_sizes_arrive),
    CASE(specialization_constants_are_set),
    CASE(unresolved_names_fail_the_build_of_what_is_no_library),
    CASE(imports_are_linked),
    CASE(several_modules_make_one),
    CASE(without_a_runtime_the_log_says_what_to_do),
    CASE(a_lenient_driver_takes_what_fits_of_a_value),
    {NULL, NULL},
};

static const plain_case children[] = {
    {"no_runtime", no_runtime_is_said},
    {"lenient", child_lenient},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    for (const plain_case *child = children; argc == 2 && child->name; child++)
        if (strcmp(argv[1], child->name) == 0)
            return plain_main(argc, argv, children);
    return plain_main(argc, argv, cases);
}
