/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory that does not exist: addresses without access, which the system provides freely, and a
 * count of the bytes taken.
 *
 * All kinds and contexts share this count, as they would share a small device.  Mapping into a
 * reserved range changes only the count.  Called by the core through the table in null.c. */
#include "null.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE        ((size_t)4096)
#define GRANULARITY ((size_t)2 << 20)

static usm_status take(size_t size)
{
    uint64_t taken = usm_load_relaxed(&null.taken);

    do {
        if (size > null.limit || taken > null.limit - size)
            return null.api->report(USM_E_NO_MEMORY,
                                    "null:0 has no %zu bytes left of its %llu (%llu are taken); "
                                    "raise USM_NULL_MEMORY",
                                    size, (unsigned long long)null.limit,
                                    (unsigned long long)taken);
    } while (!usm_cas_acq_rel(&null.taken, &taken, taken + size));
    return USM_OK;
}

static void give(size_t size)
{
    usm_sub_relaxed(&null.taken, (uint64_t)size);
}

/* size: whole pages.  The system aligns to pages; for more, a longer mapping is made, and its ends
 * are unmapped. */
static char *map_aligned(size_t size, size_t align)
{
    const usm_os_api *os    = null.api->os;
    size_t            slack = align > PAGE ? align - PAGE : 0;
    size_t            whole, head;
    char             *base, *p;

    if (__builtin_add_overflow(size, slack, &whole) || !(base = os->map(whole, PROT_NONE)))
        return NULL;
    p    = (char *)usm_align_up_ptr((uintptr_t)base, align);
    head = (size_t)(p - base);
    if (head && os->unmap(base, head) != 0)
        goto err_base;
    base = p;
    whole -= head;
    if (whole > size && os->unmap(base + size, whole - size) != 0)
        goto err_base;
    return base;

err_base: /* the system has no room to record a hole, but whole mappings can always be unmapped */
    (void)os->unmap(base, whole);
    return NULL;
}

static usm_status no_addresses(size_t size)
{
    return null.api->report(USM_E_NO_MEMORY, "the process has no %zu bytes of addresses left",
                            size);
}

static usm_status unmap(void *p, size_t size)
{
    char why[64];

    if (null.api->os->unmap(p, size) == 0)
        return USM_OK;
    return null.api->report(USM_E_SYSTEM, "addresses cannot be given back: munmap: %s",
                            strerror_r(errno, why, sizeof why));
}

usm_status null_mem_alloc(void *ctx, void *dev, usm_kind kind, size_t size, size_t align, void **p)
{
    size_t     pages;
    void      *got;
    usm_status status;

    (void)ctx;
    (void)dev;
    (void)kind;
    if (!usm_align_up(size, PAGE, &pages))
        return no_addresses(size);
    status = take(size);
    if (status != USM_OK)
        return status;
    got = map_aligned(pages, usm_max_size(align, PAGE));
    if (!got) {
        give(size);
        return no_addresses(size);
    }
    *p = got;
    return USM_OK;
}

usm_status null_mem_free(void *ctx, usm_kind kind, void *p, size_t size)
{
    size_t     pages = 0;
    usm_status status;

    (void)ctx;
    (void)kind;
    (void)usm_align_up(size, PAGE, &pages); /* cannot fail: it fitted at the allocation */
    status = unmap(p, pages);
    if (status == USM_OK)
        give(size);
    return status;
}

usm_status null_device_memory(void *dev, uint64_t *total, uint64_t *free)
{
    (void)dev;
    *total = null.limit;
    *free  = null.limit - usm_load_relaxed(&null.taken);
    return USM_OK;
}

/* --- ranges, and memory for them ------------------------------------------------------------- */

usm_status null_vmem_granularity(void *ctx, void *dev, usm_kind kind, size_t size,
                                 size_t *granularity)
{
    (void)ctx;
    (void)dev;
    (void)kind;
    (void)size;
    *granularity = GRANULARITY;
    return USM_OK;
}

usm_status null_vmem_reserve(void *ctx, usm_kind kind, size_t size, void **p)
{
    void *got = map_aligned(size, GRANULARITY);

    (void)ctx;
    (void)kind;
    if (!got)
        return no_addresses(size);
    *p = got;
    return USM_OK;
}

usm_status null_vmem_release(void *ctx, void *p, size_t size)
{
    (void)ctx;
    return unmap(p, size);
}

/* The handle of such memory is its size, which is all its state. */
usm_status null_phys_create(void *ctx, void *dev, usm_kind kind, size_t size, void **phys)
{
    usm_status status = take(size);

    (void)ctx;
    (void)dev;
    (void)kind;
    if (status == USM_OK)
        *phys = (void *)(uintptr_t)size;
    return status;
}

usm_status null_phys_destroy(void *ctx, void *phys)
{
    (void)ctx;
    give((size_t)(uintptr_t)phys);
    return USM_OK;
}

usm_status null_vmem_map(void *ctx, void *p, size_t size, void *phys, size_t offset)
{
    (void)ctx;
    (void)p;
    (void)size;
    (void)phys;
    (void)offset;
    return USM_OK;
}

usm_status null_vmem_unmap(void *ctx, void *p, size_t size)
{
    (void)ctx;
    (void)p;
    (void)size;
    return USM_OK;
}
