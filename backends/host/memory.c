/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory of the host backend: whole anonymous pages, for every kind, aligned by trimming.
 *
 * Pools make small blocks cheap, so this code is simple.  Not here: device memory in guard mode
 * (guard.c).  Called by the core, through the table in host.c. */
#include "internal.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* mmap aligns to pages only.  For more, enough is mapped to find an aligned start in it, and what
 * lies before and behind it is unmapped. */
usm_status usm__host_no_memory(size_t size, const char *of)
{
    struct rlimit addresses;

    if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
        return usm__host_lib->report(USM_E_NO_MEMORY,
                                     "the host has no %zu bytes%s left: the process may have %llu "
                                     "KiB of addresses (ulimit -v)",
                                     size, of, (unsigned long long)addresses.rlim_cur >> 10);
    return usm__host_lib->report(USM_E_NO_MEMORY, "the host has no %zu bytes%s left", size, of);
}

void *usm__host_map(size_t size, size_t align, int prot)
{
    const usm_os_api *os    = usm__host_lib->os;
    size_t            slack = align > usm__host.page ? align - usm__host.page : 0;
    size_t            whole, head, tail;
    char             *base;

    if (__builtin_add_overflow(size, slack, &whole)) {
        errno = ENOMEM;
        return NULL;
    }
    base = os->map(whole, prot);
    if (!base || !slack)
        return base;
    head = usm_align_up_ptr((uintptr_t)base, align) - (uintptr_t)base;
    tail = slack - head;
    if (head && os->unmap(base, head) != 0)
        goto err_map;
    base += head;
    whole -= head;
    if (tail && os->unmap(base + size, tail) != 0)
        goto err_map;
    return base;

err_map: /* the system has no room to record a hole, but whole mappings can always be unmapped */
    (void)os->unmap(base, whole);
    errno = ENOMEM;
    return NULL;
}

usm_status usm__host_mem_alloc(void *ctx, void *dev, usm_kind kind, size_t size, size_t align,
                               void **p)
{
    const usm__host_context *c = ctx;
    size_t                   pages;
    void                    *got;

    (void)dev;
    if (!usm_align_up(size, usm__host.page, &pages))
        return usm__host_lib->report(USM_E_NO_MEMORY, "the host has no %zu bytes", size);
    if (kind == USM_DEVICE && c->guard)
        return usm__host_guard_alloc(pages, align, p);
    got = usm__host_map(pages, align, PROT_READ | PROT_WRITE);
    if (!got)
        return usm__host_no_memory(size, "");
    *p = got;
    return USM_OK;
}

usm_status usm__host_mem_free(void *ctx, usm_kind kind, void *p, size_t size)
{
    size_t     pages  = 0;
    usm_status status = USM_E_INVALID_POINTER;

    (void)ctx;
    if (usm__host_ipc_free(p, &status))
        return status;
    if (kind == USM_DEVICE)
        status = usm__host_guard_free(p);
    if (status != USM_E_INVALID_POINTER)
        return status;
    (void)usm_align_up(size, usm__host.page, &pages); /* cannot fail: it fitted at the allocation */
    if (usm__host_lib->os->unmap(p, pages) != 0)
        return usm__host_refused(USM_E_SYSTEM, "memory cannot be given back: munmap", errno);
    return USM_OK;
}
