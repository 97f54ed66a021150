/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the memory side of the software Level Zero driver promises, seen through the real loader:
 * devices, allocations and their errors, the guard, knobs.  Not here: memory that other processes
 * or other addresses see (test_sharing.c). Run by ctest with ZE_ENABLE_ALT_DRIVERS naming the
 * driver, with and without the validation layer.
 *
 * What needs knobs or a second process runs this program again, with the name of a child as
 * argument. Not here: what commands do (test_exec.c), beyond one copy to look into device memory.
 */
#include "test_memory.h"

#include <sched.h>

/* --- devices ------------------------------------------------------------------------------ */

static ze_device_properties_t properties(ze_device_handle_t dev)
{
    ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};

    OK(zeDeviceGetProperties(dev, &p));
    return p;
}

static void there_are_two_devices_and_two_parts(void)
{
    ze_device_handle_t     parts[NPARTS];
    ze_device_properties_t all[NROOTS + NPARTS];
    uint32_t               n = 0;

    OK(zeDeviceGet(driver, &n, NULL));
    CHECK_INT(n, NROOTS);
    n = 0;
    OK(zeDeviceGetSubDevices(devices[1], &n, NULL));
    CHECK_INT(n, 0);
    n = 100;
    OK(zeDeviceGetSubDevices(devices[0], &n, parts));
    CHECK_INT(n, NPARTS);
    for (int i = 0; i < NROOTS; i++)
        all[i] = properties(devices[i]);
    for (int i = 0; i < NPARTS; i++)
        all[NROOTS + i] = properties(parts[i]);
    CHECK_STR(all[0].name, "ze_soft 0");
    CHECK_STR(all[1].name, "ze_soft 1");
    CHECK_INT(all[0].flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE, 0);
    CHECK_INT(all[3].flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE, ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE);
    CHECK_INT(all[3].subdeviceId, 1);
    for (int i = 0; i < NROOTS + NPARTS; i++)
        for (int k = 0; k < i; k++)
            CHECK(memcmp(&all[i].uuid, &all[k].uuid, sizeof(all[i].uuid)) != 0);
}

static void devices_say_what_they_are(void)
{
    ze_device_memory_properties_t m    = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES};
    ze_pci_ext_properties_t       a    = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
    ze_pci_ext_properties_t       b    = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
    ze_device_properties_t        hz   = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2};
    ze_device_properties_t        ns   = properties(devices[0]);
    uint32_t                      n    = 1;
    ze_bool_t                     peer = 0;
    uint64_t                      host, device;

    OK(zeDeviceGetMemoryProperties(devices[0], &n, &m));
    CHECK(n == 1 && m.totalSize > ns.maxMemAllocSize);
    OK(zeDeviceGetProperties(devices[0], &hz));
    CHECK_INT(ns.timerResolution, 1);
    CHECK_INT(hz.timerResolution, 1000000000);
    OK(zeDevicePciGetPropertiesExt(devices[0], &a));
    OK(zeDevicePciGetPropertiesExt(devices[1], &b));
    CHECK(a.address.bus != b.address.bus);
    OK(zeDeviceCanAccessPeer(devices[0], devices[1], &peer));
    CHECK(peer);
    OK(zeDeviceGetStatus(devices[0]));
    OK(zeDeviceGetGlobalTimestamps(devices[0], &host, &device));
    CHECK(host != 0 && device != 0);
}

static void images_and_samplers_are_refused(void)
{
    ze_image_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_IMAGE_DESC, .type = ZE_IMAGE_TYPE_2D, .width = 8, .height = 8};
    ze_sampler_desc_t   how     = {.stype = ZE_STRUCTURE_TYPE_SAMPLER_DESC};
    ze_image_handle_t   image   = NULL;
    ze_sampler_handle_t sampler = NULL;

    FAILS(UNSUPPORTED_FEATURE, zeImageCreate(ctx, devices[0], &desc, &image));
    FAILS(UNSUPPORTED_FEATURE, zeSamplerCreate(ctx, devices[0], &how, &sampler));
}

static void child_devices(void)
{
    const char        *wanted = getenv("TEST_DEVICES"); /* one letter each: root or part, shown */
    ze_device_handle_t shown[4];
    uint32_t           n       = 4;
    char               seen[8] = "";

    OK(zeDeviceGet(driver, &n, shown));
    for (uint32_t i = 0; i < n; i++) {
        ze_device_properties_t p     = properties(shown[i]);
        uint32_t               parts = 0;

        OK(zeDeviceGetSubDevices(shown[i], &parts, NULL));
        seen[2 * i]     = p.name[8];
        seen[2 * i + 1] = parts != 0                                      ? 'p'
                          : (p.flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE) ? 's'
                                                                          : '-';
    }
    CHECK_STR(seen, wanted);
}

static void expect_devices(const char *variable, const char *value, const char *wanted)
{
    CHECK(setenv("TEST_DEVICES", wanted, 1) == 0);
    CHECK_INT(spawn("devices", variable, value), 0);
}

static void hierarchy_and_mask_are_honoured(void)
{
    expect_devices("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE", "0p1-");
    expect_devices("ZE_FLAT_DEVICE_HIERARCHY", "FLAT", "0-0-1-");
    expect_devices("ZE_FLAT_DEVICE_HIERARCHY", "COMBINED", "0s0s1-");
    expect_devices("ZE_AFFINITY_MASK", "1", "1-");
    expect_devices("ZE_AFFINITY_MASK", "0", "0p");
    expect_devices("ZE_AFFINITY_MASK", "1,0", "1-0p");
    expect_devices("ZE_AFFINITY_MASK", "0.1,1", "0-1-");
}

/* --- allocation ------------------------------------------------------------------------------ */

static void alignment_is_honoured(void)
{
    for (size_t align = 1; align <= MIB(8); align *= 2)
        for (size_t size = 1; size <= 100000; size *= 10)
            for (int k = 0; k < 3; k++) {
                void *p = NULL;

                OK(kinds[k](size, align, &p));
                CHECK_INT((uintptr_t)p % align, 0);
                if (types[k] != ZE_MEMORY_TYPE_DEVICE)
                    memset(p, 1, size);
                OK(zeMemFree(ctx, p));
            }
}

static void bad_allocations_are_refused(void)
{
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t   host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void                      *p    = &p;
    size_t                     max  = (size_t)properties(devices[0]).maxMemAllocSize;

    for (int k = 0; k < 3; k++) {
        FAILS(UNSUPPORTED_SIZE, kinds[k](0, 0, &p));
        FAILS(UNSUPPORTED_SIZE, kinds[k](max + 1, 0, &p));
        FAILS(UNSUPPORTED_ALIGNMENT, kinds[k](8, 3, &p));
        FAILS(UNSUPPORTED_ALIGNMENT, kinds[k](8, 65535, &p));
        FAILS(INVALID_NULL_POINTER, kinds[k](8, 0, NULL));
    }
    if (loader_is_transparent()) {
        FAILS(INVALID_NULL_HANDLE, zeMemAllocDevice(NULL, &desc, 8, 0, devices[0], &p));
        FAILS(INVALID_NULL_HANDLE, zeMemAllocDevice(ctx, &desc, 8, 0, NULL, &p));
    }
    FAILS(INVALID_NULL_POINTER, zeMemAllocDevice(ctx, NULL, 8, 0, devices[0], &p));
    FAILS(INVALID_NULL_POINTER, zeMemAllocShared(ctx, &desc, NULL, 8, 0, devices[0], &p));
    desc.flags = 0x8;
    FAILS(INVALID_ENUMERATION, zeMemAllocDevice(ctx, &desc, 8, 0, devices[0], &p));
    host.flags = 0x10;
    FAILS(INVALID_ENUMERATION, zeMemAllocHost(ctx, &host, 8, 0, &p));
    CHECK(p == (void *)&p);
}

static void many_small_blocks_do_not_touch(void)
{
    enum { N = 3000 };
    static void  *blocks[N];
    static size_t sizes[N];

    for (int i = 0; i < N; i++) {
        sizes[i] = 1 + (size_t)(i * 37) % 5000;
        OK(alloc_shared(sizes[i], 0, &blocks[i]));
        memset(blocks[i], i & 0xff, sizes[i]);
    }
    for (int i = 0; i < N; i += 2)
        OK(zeMemFree(ctx, blocks[i]));
    for (int i = 0; i < N; i += 2) {
        OK(alloc_shared(sizes[i], 0, &blocks[i]));
        memset(blocks[i], i & 0xff, sizes[i]);
    }
    for (int i = 0; i < N; i++) {
        const unsigned char *b = blocks[i];

        for (size_t k = 0; k < sizes[i]; k++)
            CHECK(b[k] == (i & 0xff));
        OK(zeMemFree(ctx, blocks[i]));
    }
}

static uint64_t free_memory(void)
{
    zes_device_handle_t dev = (zes_device_handle_t)devices[0];
    zes_mem_handle_t    modules[4];
    uint32_t            n     = 4;
    uint64_t            total = 0;

    OK(zesDeviceEnumMemoryModules(dev, &n, modules));
    for (uint32_t i = 0; i < n; i++) {
        zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};

        OK(zesMemoryGetState(modules[i], &state));
        total += state.free;
    }
    return total;
}

/* Allocates, asks about, exports and frees, with sizes of its own. */
static void *allocate_much(void *seed)
{
    enum { LIVE = 16 };
    unsigned rand    = *(unsigned *)seed;
    void    *p[LIVE] = {NULL};

    for (int i = 0; i < 2000; i++) {
        const int           at = i % LIVE, k = i % 3;
        ze_ipc_mem_handle_t h;

        if (p[at] != NULL)
            OK(zeMemFree(ctx, p[at]));
        rand = rand * 1103515245u + 12345u;
        OK(kinds[k](1 + (rand >> 8) % KIB(100), 0, &p[at]));
        CHECK_INT(about(p[at], NULL).type, types[k]);
        if (i % 7 == 0 && types[k] != ZE_MEMORY_TYPE_SHARED)
            OK(zeMemGetIpcHandle(ctx, p[at], &h));
    }
    for (int i = 0; i < LIVE; i++)
        OK(zeMemFree(ctx, p[i]));
    return NULL;
}

static void threads_allocate_at_a_time(void)
{
    const uint64_t before = soft.live(), room = free_memory();
    unsigned       seeds[4] = {1, 2, 3, 4};
    pthread_t      threads[4];

    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, allocate_much, &seeds[i]) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_INT(soft.live(), before);
    CHECK_INT(free_memory(), room);
}

static void memory_runs_out_and_comes_back(void)
{
    enum { MAX = 64 };
    uint64_t before = free_memory();
    void    *blocks[MAX];
    int      n = 0;

    while (n < MAX && alloc_device(MIB(100), 0, &blocks[n]) == ZE_RESULT_SUCCESS)
        n++;
    CHECK(n > 1 && n < MAX);
    CHECK_INT(free_memory(), before - (uint64_t)n * MIB(100));
    FAILS(OUT_OF_DEVICE_MEMORY, alloc_device(MIB(100), 0, &blocks[n]));
    FAILS(OUT_OF_DEVICE_MEMORY, alloc_shared(MIB(100), 0, &blocks[n]));
    OK(alloc_host(MIB(100), 0, &blocks[n])); /* is not the device's */
    OK(zeMemFree(ctx, blocks[n]));
    while (n > 0)
        OK(zeMemFree(ctx, blocks[--n]));
    CHECK_INT(free_memory(), before);
}

static void relaxed_limits_allow_more(void)
{
    ze_relaxed_allocation_limits_exp_desc_t relaxed = {
        .stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
        .flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE};
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
                                       .pNext = &relaxed};
    size_t                     size = (size_t)properties(devices[0]).maxMemAllocSize + 1;
    void                      *p    = NULL;

    FAILS(UNSUPPORTED_SIZE, alloc_device(size, 0, &p));
    OK(zeMemAllocDevice(ctx, &desc, size, 0, devices[0], &p));
    OK(zeMemFree(ctx, p));
}

/* --- pointers --------------------------------------------------------------------------------- */

static void pointers_are_known(void)
{
    for (int k = 0; k < 3; k++) {
        ze_device_handle_t dev  = NULL;
        char              *p    = NULL;
        void              *base = NULL;
        size_t             size = 0;

        OK(kinds[k](1000, 0, (void **)&p));
        CHECK_INT(about(p, &dev).type, types[k]);
        CHECK(dev == (types[k] == ZE_MEMORY_TYPE_HOST ? NULL : devices[0]));
        CHECK_INT(about(p + 999, NULL).type, types[k]);
        CHECK_INT(about(p + 999, NULL).id, about(p, NULL).id);
        CHECK_INT(about(p + 1000, NULL).type, ZE_MEMORY_TYPE_UNKNOWN);
        OK(zeMemGetAddressRange(ctx, p + 500, &base, &size));
        CHECK(base == p && size == 1000);
        OK(zeMemGetAddressRange(ctx, p, NULL, NULL));
        OK(zeMemFree(ctx, p));
        CHECK_INT(about(p, NULL).type, ZE_MEMORY_TYPE_UNKNOWN);
    }
}

static void foreign_pointers_are_not(void)
{
    int                x    = 0;
    ze_device_handle_t dev  = devices[0];
    void              *base = NULL;
    size_t             size;

    CHECK_INT(about(&x, &dev).type, ZE_MEMORY_TYPE_UNKNOWN);
    CHECK(dev == NULL);
    CHECK(zeMemGetAddressRange(ctx, &x, &base, &size) != ZE_RESULT_SUCCESS);
    CHECK(base == NULL);
    FAILS(INVALID_ARGUMENT, zeMemFree(ctx, &x));
    FAILS(INVALID_NULL_POINTER, zeMemFree(ctx, NULL));
    FAILS(INVALID_ARGUMENT, zeContextMakeMemoryResident(ctx, devices[0], &x, 4));
}

static void wrong_frees_are_refused(void)
{
    char *p = device_memory(1000);

    FAILS(INVALID_ARGUMENT, zeMemFree(ctx, p + 8));
    OK(zeMemFree(ctx, p));
    FAILS(INVALID_ARGUMENT, zeMemFree(ctx, p));
}

/* A fill of p that waits for the event. */
static ze_command_list_handle_t fill_after(ze_event_handle_t event, void *p, size_t size)
{
    ze_command_queue_desc_t  desc  = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                      .mode  = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    ze_command_list_handle_t list  = NULL;
    unsigned char            value = 1;

    OK(zeCommandListCreateImmediate(ctx, devices[0], &desc, &list));
    OK(zeCommandListAppendMemoryFill(list, p, &value, 1, size, NULL, 1, &event));
    return list;
}

static void *signal_event(void *event)
{
    OK(zeEventHostSignal(event));
    return NULL;
}

static void frees_wait_for_commands(void)
{
    ze_event_pool_desc_t      many     = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                          .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
                                          .count = 1};
    ze_event_desc_t           desc     = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};
    ze_memory_free_ext_desc_t blocking = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                          .freePolicy =
                                              ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE};
    ze_memory_free_ext_desc_t deferred = blocking;
    uint64_t                  before   = soft.live();
    ze_event_pool_handle_t    pool     = NULL;
    ze_event_handle_t         event    = NULL;
    ze_command_list_handle_t  list;
    pthread_t                 other;
    void                     *p;

    OK(zeEventPoolCreate(ctx, &many, 0, NULL, &pool));
    OK(zeEventCreate(pool, &desc, &event));

    p    = device_memory(MIB(1));
    list = fill_after(event, p, MIB(1));
    CHECK(pthread_create(&other, NULL, signal_event, event) == 0);
    OK(zeMemFreeExt(ctx, &blocking, p)); /* else the fill dies */
    CHECK(pthread_join(other, NULL) == 0);
    OK(zeCommandListDestroy(list));

    OK(zeEventHostReset(event));
    p                   = device_memory(MIB(1));
    list                = fill_after(event, p, MIB(1));
    deferred.freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
    OK(zeMemFreeExt(ctx, &deferred, p));
    FAILS(INVALID_ARGUMENT, zeMemFree(ctx, p));
    FAILS(INVALID_ARGUMENT, zeMemFreeExt(ctx, &deferred, p));
    OK(zeEventHostSignal(event));
    OK(zeCommandListDestroy(list));
    OK(zeEventDestroy(event));
    OK(zeEventPoolDestroy(pool));
    while (soft.live() != before) /* or the test's time is up */
        (void)sched_yield();
    CHECK_INT(about(p, NULL).type, ZE_MEMORY_TYPE_UNKNOWN);
}

static void memory_is_made_resident(void)
{
    void *p = device_memory(1000);

    OK(zeContextMakeMemoryResident(ctx, devices[0], p, 1000));
    FAILS(INVALID_ARGUMENT, zeContextMakeMemoryResident(ctx, devices[0], p, 1001));
    if (loader_is_transparent())
        FAILS(INVALID_NULL_HANDLE, zeContextMakeMemoryResident(ctx, NULL, p, 1000));
    FAILS(INVALID_NULL_POINTER, zeContextMakeMemoryResident(ctx, devices[0], NULL, 1000));
    OK(zeContextEvictMemory(ctx, devices[0], p, 1000));
    OK(zeMemFree(ctx, p));
}

/* --- the guard
 * ---------------------------------------------------------------------------------------- */

static void child_touch(void)
{
    size_t         size = (size_t)strtoul(getenv("TEST_SIZE"), NULL, 10);
    volatile char *p    = device_memory(size);

    (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would report */
    p[size - 1] = 1;
    CHECK(p[size - 1] == 1);
    OK(zeMemFree(ctx, (void *)(uintptr_t)p));
}

static void device_memory_is_closed_to_the_host(void)
{
    CHECK_INT(spawn("touch", "TEST_SIZE", "100"), 128 + SIGSEGV);
    CHECK_INT(spawn("touch", "TEST_SIZE", "1000000"), 128 + SIGSEGV);
    CHECK(setenv("ZE_SOFT_GUARD", "0", 1) == 0);
    CHECK_INT(spawn("touch", "TEST_SIZE", "100"), 0);
    CHECK_INT(spawn("touch", "TEST_SIZE", "1000000"), 0);
    CHECK(unsetenv("ZE_SOFT_GUARD") == 0);
}

#if HAS_API_1_12

static void newer_functions_answer(void)
{
    ze_init_driver_type_desc_t        gpu = {.stype = ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC,
                                             .flags = ZE_INIT_DRIVER_TYPE_FLAG_GPU};
    ze_memory_atomic_attr_exp_flags_t got = 0;
    ze_device_handle_t                parts[NPARTS], root = NULL;
    uint32_t                          n = 0;
    void                             *p = NULL;

    OK(zeInitDrivers(&n, NULL, &gpu));
    CHECK_INT(n, 1);
    n = NPARTS;
    OK(zeDeviceGetSubDevices(devices[0], &n, parts));
    OK(zeDeviceGetRootDevice(parts[1], &root));
    CHECK(root == devices[0]);
    OK(zeDeviceGetRootDevice(devices[0], &root));
    CHECK(root == NULL);
    OK(alloc_shared(1000, 0, &p));
    OK(zeMemSetAtomicAccessAttributeExp(ctx, devices[0], p, 1000,
                                        ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_DEVICE_ATOMICS));
    OK(zeMemGetAtomicAccessAttributeExp(ctx, devices[0], p, 1000, &got));
    CHECK_INT(got, ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_DEVICE_ATOMICS);
    OK(zeMemFree(ctx, p));
}

#endif

/* --- knobs
 * ----------------------------------------------------------------------------------------------------
 */

static void planned_calls_fail(void)
{
    void    *p = NULL;
    uint64_t before;

    soft.fail_at(2, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, 0);
    OK(alloc_device(8, 0, &p));
    CHECK_INT(soft.has_failed(), 0);
    FAILS(OUT_OF_HOST_MEMORY, zeMemGetAddressRange(ctx, p, NULL, NULL));
    CHECK_INT(soft.has_failed(), 1);
    OK(zeMemGetAddressRange(ctx, p, NULL, NULL));
    soft.fail_at(1, ZE_RESULT_ERROR_UNKNOWN, 1);
    FAILS(UNKNOWN, zeMemGetAddressRange(ctx, p, NULL, NULL));
    FAILS(UNKNOWN, zeMemGetAddressRange(ctx, p, NULL, NULL));
    OK(zeMemFree(ctx, p)); /* frees never fail */
    soft.fail_at(0, 0, 0);
    before = soft.calls();
    OK(zeDeviceGetStatus(devices[0]));
    CHECK_INT(soft.calls(), before + 1);
    soft.reset();
    CHECK_INT(soft.calls(), 0);
}

static void what_lives_is_counted(void)
{
    uint64_t before = soft.live();
    void    *p      = device_memory(8);
    char    *at     = reserved(page_size(1));

    CHECK_INT(soft.live(), before + 2);
    OK(zeMemFree(ctx, p));
    OK(zeVirtualMemFree(ctx, at, page_size(1)));
    CHECK_INT(soft.live(), before);
}

static void child_misaligned(void)
{
    for (size_t size = 8; size < MIB(4); size *= 64) {
        void *p = device_memory(size);

        CHECK_INT((uintptr_t)p % 4096, 24);
        fill(p, 1, size);
        CHECK(is_filled(p, 1, size));
        OK(zeMemFree(ctx, p));
    }
}

static void child_overlapping(void)
{
    void *a = device_memory(MIB(1)), *b = device_memory(MIB(1)), *c = device_memory(MIB(1));

    CHECK(a == b && c != a);
    OK(zeMemFree(ctx, a));
    CHECK_INT(about(b, NULL).type, ZE_MEMORY_TYPE_DEVICE);
    OK(zeMemFree(ctx, b));
    FAILS(INVALID_ARGUMENT, zeMemFree(ctx, b));
    OK(zeMemFree(ctx, c));
}

static void child_small(void)
{
    ze_device_memory_properties_t m = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES};
    uint32_t                      n = 1;

    OK(zeDeviceGetMemoryProperties(devices[0], &n, &m));
    CHECK_INT(m.totalSize, MIB(3));
}

/* Before any other call. */
static int lost_first(void)
{
    void            *lib  = dlopen(getenv("ZE_ENABLE_ALT_DRIVERS"), RTLD_NOW);
    ze_soft_lose_fn *lose = NULL;

    CHECK(lib != NULL);
    *(void **)&lose = dlsym(lib, "ze_soft_lose");
    CHECK(lose != NULL);
    lose(0);
    return zeInit(0) != ZE_RESULT_SUCCESS;
}

/* What Intel's driver lets pass. */
static void child_lenient(void)
{
    ze_device_mem_alloc_desc_t desc = {.stype   = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
                                       .ordinal = 1};
    ze_host_mem_alloc_desc_t   host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void                      *p    = NULL;

    if (!getenv("ZE_ENABLE_VALIDATION_LAYER")) { /* which refuses it */
        OK(zeMemAllocDevice(ctx, &desc, 1000, 1000, devices[0], &p));
        CHECK_INT((uintptr_t)p % 1024, 0);
        OK(zeMemFree(ctx, p));
    }
    OK(zeMemAllocShared(ctx, &desc, &host, 1000, 0, devices[0], &p));
    OK(zeMemFree(ctx, p));
    FAILS(UNSUPPORTED_ALIGNMENT, zeMemAllocHost(ctx, &host, 1000, SIZE_MAX, &p));
}

/* Memory that no driver allocated. */
static void child_system(void)
{
    ze_device_memory_access_properties_t access = {
        .stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES};
    static char mine[4096];

    OK(zeDeviceGetMemoryAccessProperties(devices[0], &access));
    CHECK((access.sharedSystemAllocCapabilities & ZE_MEMORY_ACCESS_CAP_FLAG_RW) != 0);
    OK(zeContextMakeMemoryResident(ctx, devices[0], mine, sizeof(mine)));
    OK(zeContextEvictMemory(ctx, devices[0], mine, sizeof(mine)));
}

static void knobs_are_read(void)
{
    CHECK_INT(spawn("lenient", "ZE_SOFT_LENIENT", "1"), 0);
    CHECK_INT(spawn("system", "ZE_SOFT_SYSTEM", "1"), 0);
    CHECK_INT(spawn("misaligned", "ZE_SOFT_MISALIGN", "24"), 0);
    CHECK_INT(spawn("overlapping", "ZE_SOFT_OVERLAP", "1"), 0);
    CHECK_INT(spawn("small", "ZE_SOFT_MEMORY", "3M"), 0);
    CHECK_INT(spawn("no_init", "ZE_SOFT_FAIL_INIT", "0x70010001"), 0);
    CHECK_INT(spawn("lost_first", "ZE_SOFT_TRACE", "0"), 0);
}

static void child_lost(void)
{
    void *p = device_memory(1000), *q = NULL, *at = reserved(page_size(1));

    soft.lose(0);
    FAILS(DEVICE_LOST, zeDeviceGetStatus(devices[0]));
    OK(zeDeviceGetStatus(devices[1]));
    FAILS(DEVICE_LOST, zeContextGetStatus(ctx));
    FAILS(DEVICE_LOST, alloc_device(8, 0, &q));
    FAILS(DEVICE_LOST, alloc_shared(8, 0, &q));
    FAILS(DEVICE_LOST, zeContextMakeMemoryResident(ctx, devices[0], p, 1000));
    OK(zeMemFree(ctx, p));
    OK(zeVirtualMemFree(ctx, at, page_size(1)));
    OK(zeContextDestroy(ctx));
    CHECK_INT(soft.live(), 0);
}

static void a_lost_device_says_so(void)
{
    CHECK_INT(spawn("lost", "TEST_SIZE", "0"), 0);
}

static int forked[2]; /* a pipe */

/* Allocates when its parent does, and writes when the parent has written. */
static void child_forked(void)
{
    char *p = NULL, go;

    OK(alloc_shared(100, 0, (void **)&p));
    CHECK(read(forked[0], &go, 1) == 1);
    memset(p, 1, 100);
}

/* Small blocks of the child do not land in those of the parent. */
static void a_fork_has_blocks_of_its_own(void)
{
    unsigned char *first = NULL, *block = NULL;
    pid_t          pid;

    OK(alloc_shared(100, 0, (void **)&first)); /* there is a chunk to inherit */
    CHECK(pipe(forked) == 0);
    (void)fflush(stdout);
    pid = fork();
    if (pid == 0) {
        plain.in_child = true;
        child_forked();
        _exit(0);
    }
    CHECK(pid > 0);
    OK(alloc_shared(100, 0, (void **)&block));
    memset(block, 8, 100);
    CHECK(write(forked[1], "", 1) == 1);
    CHECK(waitpid(pid, NULL, 0) == pid);
    CHECK(block[0] == 8 && block[99] == 8);
    (void)close(forked[0]);
    (void)close(forked[1]);
    OK(zeMemFree(ctx, block));
    OK(zeMemFree(ctx, first));
}

static const plain_case children[] = {
    {"devices", child_devices},         {"touch", child_touch}, {"misaligned", child_misaligned},
    {"overlapping", child_overlapping}, {"small", child_small}, {"lenient", child_lenient},
    {"system", child_system},           {"lost", child_lost},   {NULL, NULL}};

static const plain_case cases[] = {CASE(there_are_two_devices_and_two_parts),
                                   CASE(devices_say_what_they_are),
                                   CASE(images_and_samplers_are_refused),
                                   CASE(hierarchy_and_mask_are_honoured),
                                   CASE(alignment_is_honoured),
                                   CASE(bad_allocations_are_refused),
                                   CASE(many_small_blocks_do_not_touch),
                                   CASE(threads_allocate_at_a_time),
                                   CASE(memory_runs_out_and_comes_back),
                                   CASE(relaxed_limits_allow_more),
                                   CASE(pointers_are_known),
                                   CASE(foreign_pointers_are_not),
                                   CASE(wrong_frees_are_refused),
                                   CASE(frees_wait_for_commands),
                                   CASE(memory_is_made_resident),
                                   CASE(device_memory_is_closed_to_the_host),
#if HAS_API_1_12
                                   CASE(newer_functions_answer),
#endif
                                   CASE(planned_calls_fail),
                                   CASE(what_lives_is_counted),
                                   CASE(knobs_are_read),
                                   CASE(a_lost_device_says_so),
                                   CASE(a_fork_has_blocks_of_its_own),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "no_init") == 0) /* start() would end it */
        return zeInit(0) == ZE_RESULT_SUCCESS;
    if (argc == 2 && strcmp(argv[1], "lost_first") == 0)
        return lost_first();
    return run_cases(argc, argv, children, cases);
}
