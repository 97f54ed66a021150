/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What test_memory.c and test_sharing.c have in common: the driver found, allocations, one copy to
 * look into device memory, and this program run again as a child with other knobs. */
#ifndef ZE_SOFT_TEST_MEMORY_H
#define ZE_SOFT_TEST_MEMORY_H

#include "plain.h"
#include "ze_soft.h"

#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>

#include <dlfcn.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/mman.h>

#define OK(call)          CHECK_INT((call), ZE_RESULT_SUCCESS)
#define FAILS(code, call) CHECK_INT((call), ZE_RESULT_ERROR_##code)
#define NROOTS            2
#define NPARTS            2
#define KIB(n)            ((size_t)(n) << 10)
#define MIB(n)            ((size_t)(n) << 20)

#ifdef ZE_API_VERSION_CURRENT_M
#define HAS_API_1_12 1
#else
#define HAS_API_1_12 0
#endif

static ze_driver_handle_t  driver;
static ze_device_handle_t  devices[NROOTS];
static ze_context_handle_t ctx;

static struct {
    ze_soft_calls_fn      *calls;
    ze_soft_reset_fn      *reset;
    ze_soft_fail_at_fn    *fail_at;
    ze_soft_has_failed_fn *has_failed;
    ze_soft_lose_fn       *lose;
    ze_soft_live_fn       *live;
} soft;

/* --- fixtures ------------------------------------------------------------------------- */

static inline void find_soft(void)
{
    void *lib = dlopen(getenv("ZE_ENABLE_ALT_DRIVERS"), RTLD_NOW | RTLD_NOLOAD);

    CHECK(lib != NULL);
    *(void **)&soft.calls      = dlsym(lib, "ze_soft_calls");
    *(void **)&soft.reset      = dlsym(lib, "ze_soft_reset");
    *(void **)&soft.fail_at    = dlsym(lib, "ze_soft_fail_at");
    *(void **)&soft.has_failed = dlsym(lib, "ze_soft_has_failed");
    *(void **)&soft.lose       = dlsym(lib, "ze_soft_lose");
    *(void **)&soft.live       = dlsym(lib, "ze_soft_live");
    CHECK(soft.calls && soft.reset && soft.fail_at && soft.has_failed && soft.lose && soft.live);
    (void)dlclose(lib);
}

static inline void start(void)
{
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    uint32_t          n    = 1;

    OK(zeInit(0));
    OK(zeDriverGet(&n, &driver));
    CHECK_INT(n, 1);
    n = NROOTS;
    OK(zeDeviceGet(driver, &n, devices));
    OK(zeContextCreate(driver, &desc, &ctx));
    find_soft();
}

static inline ze_result_t alloc_device(size_t size, size_t align, void **p)
{
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};

    return zeMemAllocDevice(ctx, &desc, size, align, devices[0], p);
}

static inline ze_result_t alloc_host(size_t size, size_t align, void **p)
{
    ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};

    return zeMemAllocHost(ctx, &desc, size, align, p);
}

static inline ze_result_t alloc_shared(size_t size, size_t align, void **p)
{
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t   host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};

    return zeMemAllocShared(ctx, &desc, &host, size, align, devices[0], p);
}

typedef ze_result_t alloc_fn(size_t size, size_t align, void **p);

static alloc_fn *const        kinds[] = {alloc_host, alloc_device, alloc_shared};
static const ze_memory_type_t types[] = {ZE_MEMORY_TYPE_HOST, ZE_MEMORY_TYPE_DEVICE,
                                         ZE_MEMORY_TYPE_SHARED};

static inline void *device_memory(size_t size)
{
    void *p = NULL;

    OK(alloc_device(size, 0, &p));
    return p;
}

static inline ze_command_list_handle_t command_list(void)
{
    ze_command_queue_desc_t  desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .mode  = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    ze_command_list_handle_t list = NULL;

    OK(zeCommandListCreateImmediate(ctx, devices[0], &desc, &list));
    return list;
}

/* Device memory is touched by commands only. */
static inline void copy(void *to, const void *from, size_t size)
{
    ze_command_list_handle_t list = command_list();

    OK(zeCommandListAppendMemoryCopy(list, to, from, size, NULL, 0, NULL));
    OK(zeCommandListDestroy(list));
}

static inline void fill(void *to, unsigned char value, size_t size)
{
    ze_command_list_handle_t list = command_list();

    OK(zeCommandListAppendMemoryFill(list, to, &value, 1, size, NULL, 0, NULL));
    OK(zeCommandListDestroy(list));
}

static inline bool is_filled(const void *p, unsigned char value, size_t size)
{
    unsigned char *seen = malloc(size);
    size_t         i    = 0;

    CHECK(seen != NULL);
    copy(seen, p, size);
    while (i < size && seen[i] == value)
        i++;
    free(seen);
    return i == size;
}

/* With more than one driver, or when told to, the loader looks into handles itself, null ones too.
 */
static inline bool loader_is_transparent(void)
{
    return getenv("ZE_ENABLE_LOADER_INTERCEPT") == NULL;
}

/* Runs this program's child with one variable more; its exit status, or 128 + the signal. */
static inline int spawn(const char *child, const char *variable, const char *value)
{
    const char *const args[] = {"child", child, NULL};
    pid_t             pid;
    int               status;
    extern char     **environ;

    CHECK(setenv(variable, value, 1) == 0);
    CHECK(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, (char **)(uintptr_t)args, environ) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(unsetenv(variable) == 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline ze_memory_allocation_properties_t about(const void *p, ze_device_handle_t *dev)
{
    ze_memory_allocation_properties_t a = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};

    OK(zeMemGetAllocProperties(ctx, p, &a, dev));
    return a;
}

static inline size_t page_size(size_t size)
{
    size_t page = 0;

    OK(zeVirtualMemQueryPageSize(ctx, devices[0], size, &page));
    return page;
}

/* A wish for a reservation: addresses that are free now.  The layer of 1.8.12 refuses to be
 * without. */
static inline void *somewhere(size_t size)
{
    size_t page = page_size(size);
    char  *at =
        mmap(NULL, size + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        return (void *)(uintptr_t)page;
    (void)munmap(at, size + page);
    return at + (page - (uintptr_t)at % page) % page;
}

static inline char *reserved(size_t size)
{
    void *p = NULL;

    OK(zeVirtualMemReserve(ctx, somewhere(size), size, &p));
    return p;
}

/* main() of both: a child if the argument names one, else the cases. */
static inline int run_cases(int argc, char **argv, const plain_case *children,
                            const plain_case *cases)
{
    int status;

    plain.runner   = pthread_self();
    plain.in_child = true; /* a failure in start() or a child ends the process */
    start();
    for (const plain_case *c = children; argc == 2 && c->name != NULL; c++)
        if (strcmp(argv[1], c->name) == 0) {
            c->run();
            return 0;
        }
    plain.in_child = false;
    status         = plain_main(argc, argv, cases);
    OK(zeContextDestroy(ctx));
    return status;
}

#endif
