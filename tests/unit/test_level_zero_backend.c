/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The Level Zero backend: entry, devices, contexts, the three kinds of memory, native contexts, the
 * hierarchies.  Not here: address ranges, other processes, faults (test_level_zero_memory.c),
 * queues and events, modules and kernels. */
#include "level_zero_fixture.h"

/* --- statuses, entry, devices ----------------------------------------------------------------- */

static void codes_of_the_driver_have_their_status(void)
{
    static const struct {
        ze_result_t code;
        usm_status  status;
    } table[] = {
        {ZE_RESULT_SUCCESS, USM_OK},
        {ZE_RESULT_NOT_READY, USM_E_NOT_READY},
        {ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, USM_E_NO_MEMORY},
        {ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, USM_E_NO_MEMORY},
        {ZE_RESULT_ERROR_DEVICE_LOST, USM_E_DEVICE_LOST},
        {ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET, USM_E_DEVICE_LOST},
        {ZE_RESULT_ERROR_UNSUPPORTED_SIZE, USM_E_SIZE},
        {ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, USM_E_ALIGNMENT},
        {ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, USM_E_NOT_SUPPORTED},
        {ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, USM_E_BUILD},
        {ZE_RESULT_ERROR_MODULE_LINK_FAILURE, USM_E_BUILD},
        {ZE_RESULT_ERROR_INVALID_KERNEL_NAME, USM_E_NO_KERNEL},
        {ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX, USM_E_ARGUMENTS},
        {ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE, USM_E_ARGUMENTS},
        {ZE_RESULT_ERROR_OVERLAPPING_REGIONS, USM_E_INVALID},
        {ZE_RESULT_ERROR_INVALID_NULL_HANDLE, USM_E_INVALID},
        {ZE_RESULT_ERROR_UNKNOWN, USM_E_DEVICE},
        {(ze_result_t)0x12345678, USM_E_DEVICE},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        CHECK_INT(native_to_status(table[i].code), table[i].status);
    CHECK_INT(lz_fail(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, "zeThis"), USM_E_NO_MEMORY);
    CHECK_IN("zeThis failed: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY (0x70000003); free memory",
             usm_last_error());
    CHECK_INT(lz_free_status(ZE_RESULT_ERROR_DEVICE_LOST, "zeMemFree"), USM_OK);
    CHECK_INT(lz_free_status(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeMemFree"), USM_E_INVALID);
}

/* The numbers of the table are those of the headers. */
static void every_code_of_the_headers_has_its_name(void)
{
#define NAMED(suffix) CHECK_STR(lz_error_name(ZE_RESULT_##suffix), "ZE_RESULT_" #suffix)
    NAMED(NOT_READY);
    NAMED(ERROR_DEVICE_LOST);
    NAMED(ERROR_OUT_OF_HOST_MEMORY);
    NAMED(ERROR_OUT_OF_DEVICE_MEMORY);
    NAMED(ERROR_MODULE_BUILD_FAILURE);
    NAMED(ERROR_MODULE_LINK_FAILURE);
    NAMED(ERROR_DEVICE_REQUIRES_RESET);
    NAMED(ERROR_DEVICE_IN_LOW_POWER_STATE);
    NAMED(EXP_ERROR_DEVICE_IS_NOT_VERTEX);
    NAMED(EXP_ERROR_VERTEX_IS_NOT_DEVICE);
    NAMED(EXP_ERROR_REMOTE_DEVICE);
    NAMED(ERROR_INSUFFICIENT_PERMISSIONS);
    NAMED(ERROR_NOT_AVAILABLE);
    NAMED(ERROR_DEPENDENCY_UNAVAILABLE);
    NAMED(WARNING_DROPPED_DATA);
    NAMED(ERROR_UNINITIALIZED);
    NAMED(ERROR_UNSUPPORTED_VERSION);
    NAMED(ERROR_UNSUPPORTED_FEATURE);
    NAMED(ERROR_INVALID_ARGUMENT);
    NAMED(ERROR_INVALID_NULL_HANDLE);
    NAMED(ERROR_HANDLE_OBJECT_IN_USE);
    NAMED(ERROR_INVALID_NULL_POINTER);
    NAMED(ERROR_INVALID_SIZE);
    NAMED(ERROR_UNSUPPORTED_SIZE);
    NAMED(ERROR_UNSUPPORTED_ALIGNMENT);
    NAMED(ERROR_INVALID_SYNCHRONIZATION_OBJECT);
    NAMED(ERROR_INVALID_ENUMERATION);
    NAMED(ERROR_UNSUPPORTED_ENUMERATION);
    NAMED(ERROR_UNSUPPORTED_IMAGE_FORMAT);
    NAMED(ERROR_INVALID_NATIVE_BINARY);
    NAMED(ERROR_INVALID_GLOBAL_NAME);
    NAMED(ERROR_INVALID_KERNEL_NAME);
    NAMED(ERROR_INVALID_FUNCTION_NAME);
    NAMED(ERROR_INVALID_GROUP_SIZE_DIMENSION);
    NAMED(ERROR_INVALID_GLOBAL_WIDTH_DIMENSION);
    NAMED(ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
    NAMED(ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
    NAMED(ERROR_INVALID_KERNEL_ATTRIBUTE_VALUE);
    NAMED(ERROR_INVALID_MODULE_UNLINKED);
    NAMED(ERROR_INVALID_COMMAND_LIST_TYPE);
    NAMED(ERROR_OVERLAPPING_REGIONS);
    NAMED(WARNING_ACTION_REQUIRED);
    NAMED(ERROR_UNKNOWN);
#undef NAMED
}

static void check_described(const usm_backend_device *d)
{
    CHECK(d->handle && d->platform);
    CHECK(d->name[0] > ' ' && d->vendor[0] > ' ' && d->driver_version[0] > ' ');
    CHECK_IN("Level Zero 1.", d->platform_name);
    CHECK(d->compute_units > 0 && d->memory_size > 0 && d->max_alloc_size > 0);
    CHECK(d->max_work_group_size > 0 && d->max_align == 64 << 10);
    CHECK(d->max_fill_pattern >= 1 && d->max_fill_pattern <= 128 &&
          !(d->max_fill_pattern & (d->max_fill_pattern - 1)));
    CHECK((d->aspects >> USM_ASPECT_CPU & 1) + (d->aspects >> USM_ASPECT_GPU & 1) == 1);
    CHECK((d->type == USM_DEVICE_TYPE_GPU) == (d->aspects >> USM_ASPECT_GPU & 1));
    CHECK((d->aspects >> USM_ASPECT_PARTITION & 1) == (d->sub_devices > 0));
    CHECK(d->aspects >> USM_ASPECT_USM_DEVICE_ALLOCATIONS & 1);
    CHECK(d->aspects >> USM_ASPECT_KERNELS & 1);
}

static void devices_are_described_and_stay_the_same(void)
{
    usm_backend_device again[DEVICES];
    size_t             n = 0;

    CHECK_INT(ops->devices(again, DEVICES, &n), USM_OK);
    CHECK_INT(n, ndevices);
    CHECK_INT(memcmp(again, devices, n * sizeof(again[0])), 0);
    CHECK_INT(ops->devices(NULL, 0, &n), USM_OK);
    CHECK_INT(n, ndevices);
    for (size_t i = 0; i < n; i++) {
        check_described(&again[i]);
        for (size_t j = 0; j < i; j++) { /* or the core would list one of them only */
            CHECK(!again[i].has_pci || !again[j].has_pci ||
                  memcmp(again[i].pci, again[j].pci, sizeof(again[i].pci)) != 0);
            CHECK(!again[i].has_uuid || memcmp(again[i].uuid, again[j].uuid, 16) != 0);
        }
    }
}

static void parts_are_devices_without_an_identity(void)
{
    usm_backend_device parts[DEVICES], again[DEVICES];
    size_t             n = 0, m = 0;

    if (!dev->sub_devices)
        SKIP("the device has no parts");
    CHECK_INT(ops->sub_devices(dev->handle, parts, DEVICES, &n), USM_OK);
    CHECK_INT(n, dev->sub_devices);
    CHECK_INT(ops->sub_devices(dev->handle, again, 1, &m), USM_OK);
    CHECK_INT(m, n);
    CHECK(again[0].handle == parts[0].handle);
    for (size_t i = 0; i < n; i++) {
        void *part_ctx = NULL, *p = NULL;

        check_described(&parts[i]);
        CHECK(!parts[i].has_pci && !parts[i].has_uuid);
        CHECK(parts[i].platform == dev->platform && parts[i].handle != dev->handle);
        CHECK(parts[i].memory_size <= dev->memory_size);
        part_ctx = context_of(1, &parts[i]);
        CHECK_INT(ops->mem_alloc(part_ctx, parts[i].handle, USM_DEVICE, N, 64, &p), USM_OK);
        CHECK_INT(ops->mem_free(part_ctx, USM_DEVICE, p, N), USM_OK);
        ops->context_destroy(part_ctx);
    }
}

static void memory_of_the_device_is_told(void)
{
    uint64_t total = 0, left = 0;

    for (size_t i = 0; i < ndevices; i++) {
        CHECK_INT(ops->device_memory(devices[i].handle, &total, &left), USM_OK);
        CHECK(total == devices[i].memory_size);
        CHECK(left == USM_MEMORY_UNKNOWN || left <= total);
    }
}

static uint64_t free_of(const usm_backend_device *d)
{
    uint64_t total = 0, left = 0;

    CHECK_INT(ops->device_memory(d->handle, &total, &left), USM_OK);
    return left;
}

/* The other process, where sysman is open: free memory, of a part its own. */
static void be_told_what_is_free(void)
{
    const size_t       size = (size_t)64 << 20;
    usm_backend_device parts[2];
    uint64_t           left[3];
    size_t             n = 0;
    void              *p = NULL;

    CHECK_INT(ops->sub_devices(dev->handle, parts, 2, &n), USM_OK);
    CHECK_INT(n, 2);
    ctx     = context_of(2, parts);
    left[0] = free_of(dev);
    left[1] = free_of(&parts[0]);
    left[2] = free_of(&parts[1]);
    CHECK_INT(left[0], left[1] + left[2]);
    CHECK_INT(ops->mem_alloc(ctx, parts[1].handle, USM_DEVICE, size, 64, &p), USM_OK);
    CHECK_INT(left[0] - free_of(dev), size);
    CHECK_INT(left[0] - free_of(dev),
              left[1] - free_of(&parts[0]) + (left[2] - free_of(&parts[1])));
    CHECK_INT(ops->mem_free(ctx, USM_DEVICE, p, size), USM_OK);
    CHECK_INT(left[0], free_of(dev));
    ops->context_destroy(ctx);
}

static void free_memory_follows_what_is_allocated(void)
{
    needs_soft();
    ends_well(start_self("--free", "ZES_ENABLE_SYSMAN=1", -1));
    if (dlsym(dlopen("libze_loader.so.1", RTLD_NOW | RTLD_LOCAL), "zesInit")) /* API 1.5 */
        ends_well(start_self("--free", "ZES_ENABLE_SYSMAN=0", -1));
}

static void peers_are_told(void)
{
    bool can = false;

    for (size_t i = 0; i < ndevices; i++)
        for (size_t j = 0; j < ndevices; j++)
            if (i != j)
                CHECK_INT(ops->can_access_peer(devices[i].handle, devices[j].handle, &can), USM_OK);
    if (ndevices < 2)
        SKIP("there is only one device");
}

/* --- contexts and memory ---------------------------------------------------------------------- */

/* Intel's driver honours a page always, and what is above as it likes: the core looks. */
static void check_alignment(const void *p, usm_kind kind, size_t align)
{
    CHECK(p != NULL);
    if ((uintptr_t)p % align == 0)
        return;
    printf("# kind %d is not aligned to %zu\n", (int)kind, align);
    CHECK(!soft.is_there && align > 4096);
}

static void each_kind_is_given_aligned(void)
{
    static const size_t sizes[] = {1, 4096, (1 << 20) + 3};

    module_start();
    ctx = context_of(ndevices, devices);
    for (usm_kind kind = USM_HOST; kind <= USM_SHARED; kind++)
        for (size_t align = 1; align <= dev->max_align; align *= 2)
            for (size_t i = 0; i < 3; i++) {
                void *p = NULL;
                void *d = kind == USM_HOST ? NULL : devices[i % ndevices].handle;

                CHECK_INT(ops->mem_alloc(ctx, d, kind, sizes[i], align, &p), USM_OK);
                check_alignment(p, kind, align);
                if (kind != USM_DEVICE)
                    memset(p, 7, sizes[i]);
                CHECK_INT(ops->mem_free(ctx, kind, p, sizes[i]), USM_OK);
            }
    ops->context_destroy(ctx);
    module_clean();
}

static void too_much_memory_is_a_named_error(void)
{
    const size_t over = (size_t)dev->max_alloc_size + 4096;
    void        *p    = NULL;

    module_start();
    ctx = context_of(1, dev);
    for (usm_kind kind = USM_HOST; kind <= USM_SHARED; kind++) {
        void      *d = kind == USM_HOST ? NULL : dev->handle;
        usm_status s = ops->mem_alloc(ctx, d, kind, SIZE_MAX / 2, 64, &p);

        CHECK(s == USM_E_SIZE || s == USM_E_NO_MEMORY);
        CHECK(p == NULL);
        if (s == USM_E_SIZE)
            CHECK_IN("maxMemAllocSize", usm_last_error());
        s = ops->mem_alloc(ctx, d, kind, over, 64, &p);
        if (!s) /* the limits were relaxed */
            CHECK_INT(ops->mem_free(ctx, kind, p, over), USM_OK);
        else
            CHECK(s == USM_E_SIZE || s == USM_E_NO_MEMORY);
        printf("# kind %d, one page over the limit: %d\n", (int)kind, (int)s);
        p = NULL;
    }
    ops->context_destroy(ctx);
    module_clean();
}

static void a_pointer_of_nobody_is_not_freed(void)
{
    char block[64];

    needs_soft();
    module_start();
    ctx = context_of(1, dev);
    CHECK_INT(ops->mem_free(ctx, USM_HOST, block, sizeof(block)), USM_E_INVALID);
    CHECK_IN("zeMemFree failed", usm_last_error());
    ops->context_destroy(ctx);
    module_clean();
}

/* --- native contexts -------------------------------------------------------------------------- */

static struct {
    __typeof__(&zeDriverGet)             driver_get;
    __typeof__(&zeContextCreate)         context_create;
    __typeof__(&zeContextDestroy)        context_destroy;
    __typeof__(&zeMemAllocDevice)        mem_alloc;
    __typeof__(&zeMemGetAllocProperties) properties;
} native;

static void native_load(void)
{
    void *library = dlopen("libze_loader.so.1", RTLD_NOW | RTLD_LOCAL);
    void *f;

    CHECK(library != NULL);
#define NATIVE(member, name)                                                                       \
    CHECK((f = dlsym(library, #name)) != NULL), memcpy(&native.member, &f, sizeof(f))
    NATIVE(driver_get, zeDriverGet);
    NATIVE(context_create, zeContextCreate);
    NATIVE(context_destroy, zeContextDestroy);
    NATIVE(mem_alloc, zeMemAllocDevice);
    NATIVE(properties, zeMemGetAllocProperties);
#undef NATIVE
}

static ze_context_handle_t context_of_others(void)
{
    ze_context_desc_t   desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t made = NULL;
    ze_driver_handle_t  driver;
    uint32_t            n = 1;

    CHECK_INT(native.driver_get(&n, &driver), 0);
    CHECK_INT(native.context_create(driver, &desc, &made), 0);
    return made;
}

static void memory_of_a_native_context_is_common(void)
{
    ze_device_mem_alloc_desc_t        desc  = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_memory_allocation_properties_t props = {.stype =
                                                   ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    void                             *native_ctx = NULL, *native_dev = NULL, *p = NULL;

    module_start();
    native_load();
    ctx = context_of(1, dev);
    CHECK_INT(ops->context_native(ctx, &native_ctx), USM_OK);
    CHECK_INT(ops->device_native(dev->handle, &native_dev), USM_OK);
    CHECK_INT(native.mem_alloc(native_ctx, &desc, N, 64, native_dev, &p), 0);
    CHECK_INT(native.properties(native_ctx, p, &props, NULL), 0);
    CHECK_INT(props.type, ZE_MEMORY_TYPE_DEVICE);
    CHECK_INT(ops->mem_free(ctx, USM_DEVICE, p, N), USM_OK);
    ops->context_destroy(ctx);
    module_clean();
}

static void a_native_context_is_borrowed(void)
{
    usm_backend_device  list[DEVICES];
    ze_context_handle_t theirs;
    void               *native_dev = NULL, *back = NULL, *p;
    size_t              n = 0;

    module_start();
    native_load();
    theirs = context_of_others();
    CHECK_INT(ops->device_native(dev->handle, &native_dev), USM_OK);
    for (int round = 0; round < 2; round++) { /* after the first it is theirs still */
        CHECK_INT(ops->context_from_native(theirs, 1, &native_dev, USM_KEEP, &ctx, list, 2, &n),
                  USM_OK);
        CHECK_INT(n, 1);
        CHECK(list[0].handle == dev->handle);
        CHECK_INT(ops->context_native(ctx, &back), USM_OK);
        CHECK(back == theirs);
        p = allocate_in(ctx, USM_SHARED, N);
        memset(p, 1, N);
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
        ops->context_destroy(ctx);
    }
    /* Without devices it is all of the only driver. */
    CHECK_INT(ops->context_from_native(theirs, 0, NULL, USM_KEEP, &ctx, list, DEVICES, &n), USM_OK);
    CHECK_INT(n, ndevices);
    CHECK(list[0].handle == dev->handle);
    ops->context_destroy(ctx);
    CHECK_INT(native.context_destroy(theirs), 0);
    module_clean();
}

static void a_native_context_is_taken(void)
{
    usm_backend_device  list[1];
    void               *native_dev = NULL;
    uint64_t            before;
    ze_context_handle_t theirs;
    size_t              n = 0;

    needs_soft();
    module_start();
    native_load();
    before = soft.live();
    theirs = context_of_others();
    CHECK_INT(ops->device_native(dev->handle, &native_dev), USM_OK);
    CHECK_INT(ops->context_from_native(theirs, 1, &native_dev, USM_TRANSFER, &ctx, list, 1, &n),
              USM_OK);
    ops->context_destroy(ctx);
    CHECK_INT(soft.live(), before);
    module_clean();
}

static void what_is_no_device_or_context_is_refused(void)
{
    usm_backend_device  list[1];
    uint64_t            nothing[16] = {0};
    void               *wrong = nothing, *made = NULL, *native_dev = NULL;
    ze_context_handle_t theirs;
    size_t              n = 77;

    module_start();
    native_load();
    theirs = context_of_others();
    CHECK_INT(ops->context_from_native(theirs, 1, &wrong, USM_TRANSFER, &made, list, 1, &n),
              USM_E_INVALID);
    CHECK_IN("not a ze_device_handle_t", usm_last_error());
    CHECK_INT(native.context_destroy(theirs), 0); /* it was not taken */
    CHECK_INT(ops->device_native(dev->handle, &native_dev), USM_OK);
    /* Other drivers trust the handle, and so do loaders that look into it. */
    if (soft.is_there && !getenv("ZE_ENABLE_VALIDATION_LAYER") &&
        !getenv("ZE_ENABLE_LOADER_INTERCEPT")) {
        CHECK_INT(ops->context_from_native(wrong, 1, &native_dev, USM_KEEP, &made, list, 1, &n),
                  USM_E_INVALID);
        CHECK_IN("not a ze_context_handle_t", usm_last_error());
    }
    CHECK(made == NULL);
    CHECK_INT(n, 77);
    module_clean();
}

static void a_part_handed_in_is_the_one_we_list(void)
{
    usm_backend_device  parts[DEVICES], list[1];
    void               *native_part = NULL;
    ze_context_handle_t theirs;
    size_t              n = 0;

    if (!dev->sub_devices)
        SKIP("the device has no parts");
    native_load();
    theirs = context_of_others();
    CHECK_INT(ops->sub_devices(dev->handle, parts, DEVICES, &n), USM_OK);
    CHECK_INT(ops->device_native(parts[1].handle, &native_part), USM_OK);
    CHECK_INT(ops->context_from_native(theirs, 1, &native_part, USM_TRANSFER, &ctx, list, 1, &n),
              USM_OK);
    CHECK(list[0].handle == parts[1].handle);
    ops->context_destroy(ctx);
}

/* --- hierarchies
 * ---------------------------------------------------------------------------------- */

/* The other process: in FLAT the tiles are devices of their own, which the core can tell apart. */
static void be_flat(void)
{
    CHECK_INT(ndevices, 3);
    for (size_t i = 0; i < ndevices; i++)
        CHECK_INT(devices[i].sub_devices, 0);
    devices_are_described_and_stay_the_same();
}

static void be_composite(void)
{
    CHECK_INT(dev->sub_devices, 2);
}

/* The tiles are listed, and the card can be had all the same: a context may be given it. */
static void be_combined(void)
{
    ze_result_t(ZE_APICALL * root_of)(ze_device_handle_t, ze_device_handle_t *);
    usm_backend_device  list[1];
    ze_context_handle_t theirs;
    ze_device_handle_t  card       = NULL;
    void               *native_dev = NULL, *wanted;
    void               *symbol;
    size_t              n = 0;

    native_load();
    CHECK(ndevices == 3 && dev->sub_devices == 0);
    symbol = dlsym(dlopen("libze_loader.so.1", RTLD_NOW | RTLD_LOCAL), "zeDeviceGetRootDevice");
    if (!symbol) /* API 1.7 */
        return;
    memcpy(&root_of, &symbol, sizeof(root_of));
    CHECK_INT(ops->device_native(dev->handle, &native_dev), USM_OK);
    CHECK_INT(root_of(native_dev, &card), 0);
    wanted = card;
    theirs = context_of_others();
    CHECK_INT(ops->context_from_native(theirs, 1, &wanted, USM_TRANSFER, &ctx, list, 1, &n),
              USM_OK);
    CHECK_INT(list[0].sub_devices, 2);
    ops->context_destroy(ctx);
    CHECK_INT(ops->devices(devices, DEVICES, &n), USM_OK);
    CHECK_INT(n, 3); /* it is not listed for that */
}

static void all_hierarchies_are_listed(void)
{
    needs_soft();
    ends_well(start_self("--combined", "ZE_FLAT_DEVICE_HIERARCHY=COMBINED", -1));
    ends_well(start_self("--flat", "ZE_FLAT_DEVICE_HIERARCHY=FLAT", -1));
    ends_well(start_self("--composite", "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE", -1));
}

/* ---------------------------------------------------------------------------------------------- */

static const plain_case cases[] = {
    CASE(the_software_driver_is_found_where_it_runs),
    CASE(codes_of_the_driver_have_their_status),
    CASE(every_code_of_the_headers_has_its_name),
    CASE(another_abi_is_refused_with_a_story),
    CASE(devices_are_described_and_stay_the_same),
    CASE(parts_are_devices_without_an_identity),
    CASE(memory_of_the_device_is_told),
    CASE(free_memory_follows_what_is_allocated),
    CASE(peers_are_told),
    CASE(each_kind_is_given_aligned),
    CASE(too_much_memory_is_a_named_error),
    CASE(a_pointer_of_nobody_is_not_freed),
    CASE(memory_of_a_native_context_is_common),
    CASE(a_native_context_is_borrowed),
    CASE(a_native_context_is_taken),
    CASE(what_is_no_device_or_context_is_refused),
    CASE(a_part_handed_in_is_the_one_we_list),
    CASE(all_hierarchies_are_listed),
    {NULL, NULL},
};

static const plain_case others[] = {
    {"--free", be_told_what_is_free}, {"--flat", be_flat}, {"--composite", be_composite},
    {"--combined", be_combined},      {NULL, NULL},
};

int main(int argc, char **argv)
{
    return level_zero_main(argc, argv, cases, others);
}
