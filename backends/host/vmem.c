/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Ranges of addresses, and separately the memory behind them, for every kind of memory.
 *
 * A range consists of pages without access: they cost no memory and are not accounted.  Mapping
 * grants access, and the system refuses at that point what it could never provide.  Unmapping
 * replaces the pages by fresh ones without access.  The mapping is private, so a child of fork()
 * has its own copy.  The object that phys_create() makes only records the request.
 *
 * Not here: device memory in guard mode (guard.c).  Called by the core, through the table in
 * host.c. */
#include "internal.h"

#include <errno.h>
#include <sys/mman.h>

/* A huge page: smaller pieces would split huge pages, and each piece may need an entry in the table
 * of mappings, which the system limits to 65,530. */
#define GRANULARITY ((size_t)2 << 20)

struct phys {
    bool is_guarded;
};

usm_status usm__host_vmem_granularity(void *ctx, void *dev, usm_kind kind, size_t size,
                                      size_t *granularity)
{
    (void)ctx;
    (void)dev;
    (void)kind;
    (void)size;
    *granularity = GRANULARITY;
    return USM_OK;
}

usm_status usm__host_vmem_reserve(void *ctx, usm_kind kind, size_t size, void **p)
{
    const usm__host_context *c = ctx;
    void                    *got;

    if (kind == USM_DEVICE && c->guard)
        return usm__host_guard_reserve(size, GRANULARITY, p);
    got = usm__host_map(size, GRANULARITY, PROT_NONE);
    if (!got)
        return usm__host_no_memory(size, " of addresses");
    *p = got;
    return USM_OK;
}

usm_status usm__host_vmem_release(void *ctx, void *p, size_t size)
{
    const usm__host_context *c      = ctx;
    usm_status               status = USM_E_INVALID_POINTER;

    if (c->guard)
        status = usm__host_guard_release(p);
    if (status != USM_E_INVALID_POINTER)
        return status;
    if (usm__host_lib->os->unmap(p, size) != 0)
        return usm__host_refused(USM_E_SYSTEM, "addresses cannot be given back: munmap", errno);
    return USM_OK;
}

usm_status usm__host_phys_create(void *ctx, void *dev, usm_kind kind, size_t size, void **phys)
{
    static const struct phys sorts[] = {{false}, {true}};
    const usm__host_context *c       = ctx;

    (void)dev;
    (void)size;
    *phys = (void *)(uintptr_t)&sorts[kind == USM_DEVICE && c->guard];
    return USM_OK;
}

usm_status usm__host_phys_destroy(void *ctx, void *phys)
{
    (void)ctx;
    (void)phys;
    return USM_OK;
}

usm_status usm__host_vmem_map(void *ctx, void *p, size_t size, void *phys, size_t offset)
{
    (void)ctx;
    (void)offset;
    if (((const struct phys *)phys)->is_guarded)
        return usm__host_guard_map(p, size);
    if (usm__host_lib->os->protect(p, size, PROT_READ | PROT_WRITE) == 0)
        return USM_OK;
    if (errno == ENOMEM)
        return usm__host_no_memory(size, "");
    return usm__host_refused(USM_E_SYSTEM, "memory cannot be mapped: mprotect", errno);
}

usm_status usm__host_vmem_unmap(void *ctx, void *p, size_t size)
{
    usm_status status = usm__host_guard_free(p);

    (void)ctx;
    if (status != USM_E_INVALID_POINTER)
        return status;
    if (!usm__host_lib->os->map_at(p, size, PROT_NONE))
        return usm__host_refused(USM_E_SYSTEM, "memory cannot be given back: mmap", errno);
    return USM_OK;
}
