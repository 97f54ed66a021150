/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks of the pools, what the driver is asked for, and programs that have pools already. */
#include "areas.h"
#include "driver.h"
#include "pools.h"

#include <link.h>
#include <string.h>
#include <usm/context.h>
#include <usm/memory.h>
#include <usm/status.h>

static _Atomic(bool) stands_aside;

void inside_stand_aside(void)
{
    atomic_store(&stands_aside, true);
}

/* ---- others who pool ------------------------------------------------------------------------- */

/* libusm's own backend: pools of pools would be two owners of one address in its page map.  UMF,
 * and Unified Runtime's adapters that have it linked in: SYCL's pools, which inside/umf serves. */
static int pools_itself(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    if (!strstr(info->dlpi_name, "libusm_backend_level_zero.") &&
        !strstr(info->dlpi_name, "libumf.so") &&
        !strstr(info->dlpi_name, "libur_adapter_level_zero"))
        return 0;
    *(bool *)found = true;
    return 1;
}

static void look_for_pools(void)
{
    bool found = false;

    (void)dl_iterate_phdr(pools_itself, &found);
    if (found)
        inside_stand_aside();
}

/* ---- the driver ------------------------------------------------------------------------------ */

static void *ask_driver(const inside_key *key, size_t size, size_t align)
{
    const ze_mem_dditable_t   *mem       = &inside_real_driver.mem;
    ze_device_mem_alloc_desc_t of_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t   of_host   = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void                      *p         = NULL;
    ze_result_t                result;

    if (key->sort == USM_HOST)
        result = mem->pfnAllocHost(key->owner, &of_host, size, align, &p);
    else if (key->sort == USM_DEVICE)
        result = mem->pfnAllocDevice(key->owner, &of_device, size, align, key->dev, &p);
    else
        result = mem->pfnAllocShared(key->owner, &of_device, &of_host, size, align, key->dev, &p);
    return result ? NULL : p;
}

static usm_status give_area(const inside_key *key, void *p)
{
    return inside_real_driver.mem.pfnFree(key->owner, p) ? USM_E_DEVICE : USM_OK;
}

static usm_kind kind_of(int sort)
{
    return (usm_kind)sort;
}

/* A device with memory of its own may move shared memory by whole allocations. */
static bool may_cut(const inside_key *key)
{
    ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};

    if (key->sort != USM_SHARED)
        return true;
    return key->dev && inside_real_driver.device.pfnGetProperties &&
           !inside_real_driver.device.pfnGetProperties(key->dev, &properties) &&
           (properties.flags & (uint32_t)ZE_DEVICE_PROPERTY_FLAG_INTEGRATED) != 0;
}

static const inside_source source = {.name    = "Level Zero",
                                     .kind_of = kind_of,
                                     .may_cut = may_cut,
                                     .alloc   = ask_driver,
                                     .free    = give_area,
                                     .drop    = inside_residency_end};

/* ---- blocks ---------------------------------------------------------------------------------- */

static inside_pool *pool_for(const inside_request *r)
{
    inside_key   key  = {r->ctx, r->dev, (int)r->kind};
    inside_pool *pool = inside_pool_last(&key);

    if (pool)
        return pool;
    look_for_pools();
    if (atomic_load(&stands_aside))
        return NULL;
    pool = inside_pool_get(&source, &key);
    inside_pool_note(&key, pool);
    return pool;
}

bool inside_alloc(const inside_request *r, void **p, bool *is_refused)
{
    inside_pool *pool;
    void        *block;

    *is_refused = false;
    if (r->size == 0 || r->align > INSIDE_MOST_ALIGN || (r->align & (r->align - 1)) != 0 ||
        !r->ctx || (r->kind == USM_DEVICE && !r->dev) ||
        atomic_load_explicit(&stands_aside, memory_order_relaxed)) /* set once, and for good */
        return false;
    pool = pool_for(r);
    if (!pool)
        return false;
    block = inside_pool_alloc(pool, r->size, is_refused);
    if (block)
        *p = block;
    return block != NULL;
}

bool inside_owns(const void *p, bool *is_block)
{
    usm_context *ctx  = NULL;
    void        *base = NULL;
    size_t       size;

    *is_block = false;
    if (!inside_area_start(p))
        return false;
    *is_block = usm_get_pointer_context(p, &ctx) == USM_OK &&
                usm_get_address_range(p, ctx, &base, &size) == USM_OK && base == p;
    return true;
}

void inside_free(void *p)
{
    usm_free(p);
}
