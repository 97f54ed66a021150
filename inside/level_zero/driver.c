/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A driver for Level Zero's loader that stands before the real one (USM_INSIDE_LEVEL_ZERO names its
 * library): it exports the functions by which a loader asks for tables, lets the real driver fill
 * them, and puts functions of its own where memory is allocated and freed.
 *
 * Addresses, IPC handles and properties stay the driver's, which answers for the area: base and
 * offset are right together. */
#include "driver.h"

#include "areas.h"
#include "pools.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

/* [1.13] of loaders that hand out handles with the driver's own tables inside. */
#define TYPE_DDI_HANDLES 0x00020027u
typedef struct ddi_handles {
    uint32_t stype;
    void    *next;
    uint32_t flags;
} ddi_handles;

inside_real inside_real_driver;

static void          *library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_driver(void)
{
    const char *name = getenv("USM_INSIDE_LEVEL_ZERO"); /* NOLINT(concurrency-mt-unsafe): once */

    library = dlopen(name && *name ? name : "libze_intel_gpu.so.1", RTLD_LAZY | RTLD_LOCAL);
}

/* A table that the real driver does not have stays as the loader left it, as it would without us. */
static ze_result_t real_table(const char *name, ze_api_version_t version, void *table)
{
    ze_result_t (*fill)(ze_api_version_t of, void *out);

    (void)pthread_once(&once, open_driver);
    if (!library)
        return ZE_RESULT_ERROR_UNINITIALIZED;
    *(void **)&fill = dlsym(library, name);
    return fill ? fill(version, table) : ZE_RESULT_SUCCESS;
}

#define PASS_ON(name)                                                                              \
    EXPORT ze_result_t pass_on_##name(ze_api_version_t version, void *table) __asm__(#name);       \
    ze_result_t        pass_on_##name(ze_api_version_t version, void *table)                       \
    {                                                                                              \
        return real_table(#name, version, table);                                                  \
    }
#include "tables.inc"

/* ---- memory ---------------------------------------------------------------------------------- */

static bool is_plain_device(const ze_device_mem_alloc_desc_t *desc)
{
    return desc && !desc->pNext && !desc->flags && desc->ordinal == 0;
}

static bool is_plain_host(const ze_host_mem_alloc_desc_t *desc)
{
    return desc && !desc->pNext && !desc->flags;
}

/* false: the driver is to be asked. */
static bool is_served(const inside_request *r, void **p, ze_result_t *result)
{
    bool is_refused = false;

    *result = ZE_RESULT_SUCCESS;
    if (!p)
        return false;
    if (inside_alloc(r, p, &is_refused))
        return true;
    *result = r->kind == USM_HOST ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY
                                  : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    return is_refused;
}

static ze_result_t ZE_APICALL alloc_device(ze_context_handle_t               ctx,
                                           const ze_device_mem_alloc_desc_t *desc, size_t size,
                                           size_t align, ze_device_handle_t dev, void **p)
{
    const inside_request request = {ctx, dev, USM_DEVICE, size, align};
    ze_result_t          result;

    if (is_plain_device(desc) && is_served(&request, p, &result))
        return result;
    return inside_real_driver.mem.pfnAllocDevice(ctx, desc, size, align, dev, p);
}

static ze_result_t ZE_APICALL alloc_host(ze_context_handle_t             ctx,
                                         const ze_host_mem_alloc_desc_t *desc, size_t size,
                                         size_t align, void **p)
{
    const inside_request request = {ctx, NULL, USM_HOST, size, align};
    ze_result_t          result;

    if (is_plain_host(desc) && is_served(&request, p, &result))
        return result;
    return inside_real_driver.mem.pfnAllocHost(ctx, desc, size, align, p);
}

static ze_result_t ZE_APICALL alloc_shared(ze_context_handle_t               ctx,
                                           const ze_device_mem_alloc_desc_t *of_device,
                                           const ze_host_mem_alloc_desc_t *of_host, size_t size,
                                           size_t align, ze_device_handle_t dev, void **p)
{
    const inside_request request = {ctx, dev, USM_SHARED, size, align};
    ze_result_t          result;

    if (is_plain_device(of_device) && is_plain_host(of_host) && is_served(&request, p, &result))
        return result;
    return inside_real_driver.mem.pfnAllocShared(ctx, of_device, of_host, size, align, dev, p);
}

static ze_result_t ZE_APICALL mem_free(ze_context_handle_t ctx, void *p)
{
    bool is_block;

    if (!inside_owns(p, &is_block))
        return inside_real_driver.mem.pfnFree(ctx, p);
    if (!is_block)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    inside_free(p);
    return ZE_RESULT_SUCCESS;
}

/* A driver frees behind the commands that use the block, which are not known here.  So the block
 * stays until its context ends, and the program is served by the driver from now on. */
static ze_result_t ZE_APICALL mem_free_ext(ze_context_handle_t              ctx,
                                           const ze_memory_free_ext_desc_t *desc, void *p)
{
    bool is_block;

    if (!inside_owns(p, &is_block))
        return inside_real_driver.mem.pfnFreeExt(ctx, desc, p);
    if (!desc || !is_block)
        return desc ? ZE_RESULT_ERROR_INVALID_ARGUMENT : ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->freePolicy == 0)
        inside_free(p);
    else
        inside_stand_aside();
    return ZE_RESULT_SUCCESS;
}

/* Drivers want the start of what they allocated. */
static ze_result_t ZE_APICALL get_ipc_handle(ze_context_handle_t ctx, const void *p,
                                             ze_ipc_mem_handle_t *handle)
{
    const void *area = inside_area_start(p);

    return inside_real_driver.mem.pfnGetIpcHandle(ctx, area ? area : p, handle);
}

/* ---- contexts -------------------------------------------------------------------------------- */

static ze_result_t ZE_APICALL destroy_context(ze_context_handle_t ctx)
{
    inside_pools_end(ctx);
    return inside_real_driver.context.pfnDestroy(ctx);
}

static ze_result_t ZE_APICALL make_resident(ze_context_handle_t ctx, ze_device_handle_t dev,
                                            void *p, size_t size)
{
    ze_result_t result;

    if (inside_area_make_resident(ctx, dev, p, &result))
        return result;
    return inside_real_driver.context.pfnMakeMemoryResident(ctx, dev, p, size);
}

static ze_result_t ZE_APICALL evict(ze_context_handle_t ctx, ze_device_handle_t dev, void *p,
                                    size_t size)
{
    ze_result_t result;

    if (inside_area_evict(ctx, dev, p, &result))
        return result;
    return inside_real_driver.context.pfnEvictMemory(ctx, dev, p, size);
}

/* ---- the driver ------------------------------------------------------------------------------ */

/* Handles with tables inside would lead past this file. */
static ze_result_t ZE_APICALL driver_properties(ze_driver_handle_t      driver,
                                                ze_driver_properties_t *properties)
{
    ze_result_t  result = inside_real_driver.driver.pfnGetProperties(driver, properties);
    ddi_handles *next   = properties ? properties->pNext : NULL;

    for (; next; next = next->next)
        if (next->stype == TYPE_DDI_HANDLES)
            next->flags = 0;
    return result;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Tables grow at their end from version to version: nothing is written that the loader's version
 * does not promise, or the driver does not have.  Loaders ask more than once. */
#define REPLACE(major, minor, member, field, ours)                                                 \
    do {                                                                                           \
        if ((uint32_t)version >= (uint32_t)ZE_MAKE_VERSION(major, minor) && table->field &&        \
            table->field != (ours)) {                                                              \
            inside_real_driver.member.field = table->field;                                        \
            table->field                    = (ours);                                              \
        }                                                                                          \
    } while (0)

EXPORT ze_result_t ZE_APICALL zeGetMemProcAddrTable(ze_api_version_t   version,
                                                    ze_mem_dditable_t *table)
{
    ze_result_t result = real_table("zeGetMemProcAddrTable", version, table);

    if (result || !table)
        return result;
    REPLACE(1, 0, mem, pfnAllocShared, alloc_shared);
    REPLACE(1, 0, mem, pfnAllocDevice, alloc_device);
    REPLACE(1, 0, mem, pfnAllocHost, alloc_host);
    REPLACE(1, 0, mem, pfnFree, mem_free);
    REPLACE(1, 0, mem, pfnGetIpcHandle, get_ipc_handle);
    REPLACE(1, 3, mem, pfnFreeExt, mem_free_ext);
    return result;
}

EXPORT ze_result_t ZE_APICALL zeGetContextProcAddrTable(ze_api_version_t       version,
                                                        ze_context_dditable_t *table)
{
    ze_result_t result = real_table("zeGetContextProcAddrTable", version, table);

    if (result || !table)
        return result;
    REPLACE(1, 0, context, pfnDestroy, destroy_context);
    REPLACE(1, 0, context, pfnMakeMemoryResident, make_resident);
    REPLACE(1, 0, context, pfnEvictMemory, evict);
    return result;
}

EXPORT ze_result_t ZE_APICALL zeGetDriverProcAddrTable(ze_api_version_t      version,
                                                       ze_driver_dditable_t *table)
{
    ze_result_t result = real_table("zeGetDriverProcAddrTable", version, table);

    if (result || !table)
        return result;
    REPLACE(1, 0, driver, pfnGetProperties, driver_properties);
    return result;
}

EXPORT ze_result_t ZE_APICALL zeGetDeviceProcAddrTable(ze_api_version_t      version,
                                                       ze_device_dditable_t *table)
{
    ze_result_t result = real_table("zeGetDeviceProcAddrTable", version, table);

    if (!result && table)
        inside_real_driver.device.pfnGetProperties = table->pfnGetProperties;
    return result;
}
