/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The program's memory: allocations, what a pointer is, and where the driver sees it.
 *
 * Not here: how blocks are made (heap.c), handles for other processes (ipc.c), reserved addresses
 * (vmem.c).  As in Intel's driver, memory of one context is known in all.
 *
 * Exports the tables Mem and MemExp; soft_alloc_find and soft_view are for the execution. */
#include "memory.h"
#include "ipc.h"
#include "tables.h"

#include <stdlib.h>
#include <string.h>

#define DEVICE_FLAGS 0x7u
#define HOST_FLAGS   0xfu

/* --- for the execution ------------------------------------------------------------- */

bool soft_alloc_find(const void *p, soft_alloc *out)
{
    soft_block *b;

    pthread_mutex_lock(&soft_memory_lock);
    b = soft_block_find(p);
    if (b != NULL)
        *out = b->a;
    pthread_mutex_unlock(&soft_memory_lock);
    return b != NULL;
}

/* How many bytes from p on can be seen at one stretch: mappings of one reservation that touch are
 * one, as their aliases touch, too. */
static size_t seen_from(const soft_block *b, const void *p, size_t enough)
{
    size_t      n    = b->a.size - (size_t)((uintptr_t)p - (uintptr_t)b->a.base);
    size_t      at   = soft_block_index(b->a.base);
    soft_block *next = soft_block_at(at + 1);

    while (n < enough && next != NULL && b->origin == SOFT_MAPPED && next->origin == SOFT_MAPPED &&
           !next->closed && (char *)b->a.base + b->a.size == next->a.base &&
           (char *)b->a.alias + b->a.size == next->a.alias) {
        n += next->a.size;
        b    = next;
        next = soft_block_at(++at + 1);
    }
    return n;
}

void *soft_view(const void *p, size_t n)
{
    void       *view = (void *)(uintptr_t)p;
    soft_block *b;

    pthread_mutex_lock(&soft_memory_lock);
    b = soft_block_find(p);
    if (b != NULL && (b->closed || seen_from(b, p, n) < n))
        view = NULL;
    else if (b != NULL)
        view = (char *)b->a.alias + ((uintptr_t)p - (uintptr_t)b->a.base);
    else if (soft_is_reserved(p))
        view = NULL;
    pthread_mutex_unlock(&soft_memory_lock);
    return view;
}

/* --- chains ------------------------------------------------------------------------- */

const void *soft_chain_find(const void *next, ze_structure_type_t type)
{
    for (const soft_chained *s = next; s != NULL; s = s->pNext)
        if (s->stype == type)
            return s;
    return NULL;
}

static ze_result_t check_external(uint32_t flags)
{
    if (flags > 0xffu)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    if ((flags & ~SOFT_EXTERNAL_TYPES) != 0)
        return ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
    return ZE_RESULT_SUCCESS;
}

ze_result_t soft_chain_external(const void *next, int *import_fd, bool *exported)
{
    const ze_external_memory_export_desc_t *to =
        soft_chain_find(next, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC);
    const ze_external_memory_import_fd_t *from =
        soft_chain_find(next, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD);
    ze_result_t err =
        check_external((to != NULL ? to->flags : 0) | (from != NULL ? from->flags : 0));

    if (err != ZE_RESULT_SUCCESS)
        return err;
    if (from != NULL && from->fd < 0)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    *exported  = to != NULL && to->flags != 0;
    *import_fd = from != NULL ? from->fd : -1;
    return ZE_RESULT_SUCCESS;
}

static bool is_relaxed(const void *next)
{
    const ze_relaxed_allocation_limits_exp_desc_t *relaxed =
        soft_chain_find(next, ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC);

    return relaxed != NULL &&
           (relaxed->flags & ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE) != 0;
}

/* --- allocation ------------------------------------------------------------------------ */

static ze_result_t check_size(const soft_request *r, const void *next)
{
    const soft_device *limit = r->dev != NULL ? r->dev->root : &soft_devices[0];

    if (r->size == 0)
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    if (r->size > limit->max_alloc && !is_relaxed(next))
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    if (r->size > SIZE_MAX / 4)
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    if ((r->align & (r->align - 1)) != 0 || r->align > SIZE_MAX / 4)
        return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    return ZE_RESULT_SUCCESS;
}

/* A lenient driver makes a power of two of any alignment. */
static void forgive_alignment(soft_request *r)
{
    size_t align = 1;

    if (!soft_is_lenient() || r->align > SIZE_MAX / 4)
        return;
    while (align < r->align)
        align *= 2;
    r->align = r->align != 0 ? align : 0;
}

static ze_result_t allocate(soft_request *r, const void *next, void **p)
{
    ze_result_t err;
    soft_block *b;

    forgive_alignment(r);
    err = check_size(r, next);
    if (err == ZE_RESULT_SUCCESS)
        err = soft_chain_external(next, &r->import_fd, &r->exported);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    if (r->dev != NULL && soft_is_lost(r->dev))
        return ZE_RESULT_ERROR_DEVICE_LOST;
    pthread_mutex_lock(&soft_memory_lock);
    err = soft_block_new(r, &b);
    if (err == ZE_RESULT_SUCCESS)
        *p = b->a.base;
    pthread_mutex_unlock(&soft_memory_lock);
    if (err == ZE_RESULT_SUCCESS)
        soft_live(1);
    return err;
}

static ze_result_t ZE_APICALL soft_zeMemAllocDevice(ze_context_handle_t               ctx,
                                                    const ze_device_mem_alloc_desc_t *desc,
                                                    size_t size, size_t align,
                                                    ze_device_handle_t device, void **p)
{
    soft_request r = {.ctx   = soft_context_of(ctx),
                      .dev   = soft_device_of(device),
                      .type  = ZE_MEMORY_TYPE_DEVICE,
                      .size  = size,
                      .align = align};

    SOFT_CALL();
    if (r.ctx == NULL || r.dev == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (desc == NULL || p == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->flags > DEVICE_FLAGS)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    if (desc->ordinal != 0 && !soft_is_lenient())
        return ZE_RESULT_ERROR_INVALID_ARGUMENT; /* there is one memory */
    return allocate(&r, desc->pNext, p);
}

static ze_result_t ZE_APICALL soft_zeMemAllocHost(ze_context_handle_t             ctx,
                                                  const ze_host_mem_alloc_desc_t *desc, size_t size,
                                                  size_t align, void **p)
{
    soft_request r = {
        .ctx = soft_context_of(ctx), .type = ZE_MEMORY_TYPE_HOST, .size = size, .align = align};

    SOFT_CALL();
    if (r.ctx == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (desc == NULL || p == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->flags > HOST_FLAGS)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    return allocate(&r, desc->pNext, p);
}

static ze_result_t ZE_APICALL soft_zeMemAllocShared(ze_context_handle_t               ctx,
                                                    const ze_device_mem_alloc_desc_t *desc,
                                                    const ze_host_mem_alloc_desc_t   *host_desc,
                                                    size_t size, size_t align,
                                                    ze_device_handle_t device, void **p)
{
    soft_request r = {.ctx   = soft_context_of(ctx),
                      .dev   = soft_device_of(device),
                      .type  = ZE_MEMORY_TYPE_SHARED,
                      .size  = size,
                      .align = align};

    SOFT_CALL();
    if (r.ctx == NULL || (device != NULL && r.dev == NULL))
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (desc == NULL || host_desc == NULL || p == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->flags > DEVICE_FLAGS || host_desc->flags > HOST_FLAGS)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    if (desc->ordinal != 0 && !soft_is_lenient())
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return allocate(&r, desc->pNext, p);
}

/* --- free --------------------------------------------------------------------------------- */

/* The block that p is the address of, if it may be freed. */
static soft_block *freeable(const void *p)
{
    soft_block *b = soft_block_find(p);

    return b != NULL && b->a.base == p && b->origin == SOFT_OWN && !b->deferred ? b : NULL;
}

static ze_result_t release(const void *p)
{
    soft_block *b;

    pthread_mutex_lock(&soft_memory_lock);
    b = freeable(p);
    if (b != NULL)
        soft_block_free(b);
    pthread_mutex_unlock(&soft_memory_lock);
    if (b == NULL)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    soft_live(-1);
    return ZE_RESULT_SUCCESS;
}

/* Nobody else frees it any more. */
static void *release_unused(void *block)
{
    soft_block *b = block;

    soft_exec_wait_unused(b->a.base, b->a.size);
    pthread_mutex_lock(&soft_memory_lock);
    b->deferred = false;
    soft_block_free(b);
    pthread_mutex_unlock(&soft_memory_lock);
    soft_live(-1);
    return NULL;
}

/* When nothing uses it: now, or by a thread, which nobody waits for. */
static ze_result_t release_when_unused(const void *p, bool now)
{
    soft_block *b;
    pthread_t   thread;

    pthread_mutex_lock(&soft_memory_lock);
    b = freeable(p);
    if (b != NULL)
        b->deferred = true;
    pthread_mutex_unlock(&soft_memory_lock);
    if (b == NULL)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (!now && pthread_create(&thread, NULL, release_unused, b) == 0)
        pthread_detach(thread);
    else
        release_unused(b);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t check_free(ze_context_handle_t ctx, const void *p)
{
    if (ctx == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (p == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return soft_context_of(ctx) != NULL ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

static ze_result_t ZE_APICALL soft_zeMemFree(ze_context_handle_t ctx, void *p)
{
    ze_result_t err = check_free(ctx, p);

    soft_enter_free(__func__);
    return err == ZE_RESULT_SUCCESS ? release(p) : err;
}

static ze_result_t ZE_APICALL soft_zeMemFreeExt(ze_context_handle_t              ctx,
                                                const ze_memory_free_ext_desc_t *desc, void *p)
{
    ze_result_t err = check_free(ctx, p);

    soft_enter_free(__func__);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    if (desc == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    switch (desc->freePolicy) {
    case 0:
        return release(p);
    case ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE:
        return release_when_unused(p, true);
    case ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE:
        return release_when_unused(p, false);
    default:
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    }
}

/* --- queries -------------------------------------------------------------------------------- */

/* The number of the exported descriptor, the same each time: it is the driver's and closed with the
 * block, as Intel's tests expect. */
static ze_result_t export_to(soft_block *b, ze_external_memory_export_fd_t *to)
{
    ze_result_t err = check_external(to->flags);
    int         fd;

    if (err != ZE_RESULT_SUCCESS)
        return err;
    fd = soft_block_export(b);
    if (fd < 0)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    to->fd = fd;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t describe(soft_block *b, ze_memory_allocation_properties_t *out,
                            ze_device_handle_t *device)
{
    void       *wanted = NULL;
    ze_result_t err    = ZE_RESULT_SUCCESS;

    if (out->pNext != NULL)
        wanted = (void *)(uintptr_t)soft_chain_find(out->pNext,
                                                    ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD);
    if (wanted != NULL)
        err = b != NULL ? export_to(b, wanted) : ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (err != ZE_RESULT_SUCCESS)
        return err;
    out->type     = b != NULL ? b->a.type : ZE_MEMORY_TYPE_UNKNOWN;
    out->id       = b != NULL ? b->a.id : 0;
    out->pageSize = b == NULL                            ? 0
                    : b->a.type == ZE_MEMORY_TYPE_DEVICE ? SOFT_DEVICE_PAGE
                                                         : SOFT_PAGE;
    if (device != NULL)
        *device = (ze_device_handle_t)(b != NULL ? b->a.dev : NULL);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeMemGetAllocProperties(ze_context_handle_t ctx, const void *p,
                                                           ze_memory_allocation_properties_t *out,
                                                           ze_device_handle_t *device)
{
    ze_result_t err;

    SOFT_CALL();
    if (soft_context_of(ctx) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (p == NULL || out == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    pthread_mutex_lock(&soft_memory_lock);
    err = describe(soft_block_find(p), out, device);
    pthread_mutex_unlock(&soft_memory_lock);
    return err;
}

static ze_result_t ZE_APICALL soft_zeMemGetAddressRange(ze_context_handle_t ctx, const void *p,
                                                        void **base, size_t *size)
{
    soft_alloc a;

    SOFT_CALL();
    if (soft_context_of(ctx) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (p == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!soft_alloc_find(p, &a))
        return ZE_RESULT_ERROR_UNKNOWN; /* what Intel's driver says; the specification is silent */
    if (base != NULL)
        *base = a.base;
    if (size != NULL)
        *size = a.size;
    return ZE_RESULT_SUCCESS;
}

#if SOFT_HAS_API_1_12

/* --- later than 1.4 --------------------------------------------------------------------------- */

static ze_result_t ZE_APICALL soft_zeMemGetPitchFor2dImage(ze_context_handle_t ctx,
                                                           ze_device_handle_t device, size_t width,
                                                           size_t height, unsigned element,
                                                           size_t *pitch)
{
    (void)ctx;
    (void)device;
    (void)width;
    (void)height;
    (void)element;
    (void)pitch;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

/* Bookkeeping only: all of this memory takes every atomic operation of the processor. */
static ze_result_t shared_block(ze_context_handle_t ctx, ze_device_handle_t device, const void *p,
                                size_t size, soft_block **found)
{
    soft_block *b;

    if (soft_context_of(ctx) == NULL || soft_device_of(device) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (p == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    b = soft_block_find(p);
    if (b == NULL || b->a.type != ZE_MEMORY_TYPE_SHARED || seen_from(b, p, size) < size)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    *found = b;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeMemSetAtomicAccessAttributeExp(
    ze_context_handle_t ctx, ze_device_handle_t device, const void *p, size_t size,
    ze_memory_atomic_attr_exp_flags_t attributes)
{
    soft_block *b;
    ze_result_t err;

    SOFT_CALL();
    if (attributes > 0x7fu)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    pthread_mutex_lock(&soft_memory_lock);
    err = shared_block(ctx, device, p, size, &b);
    if (err == ZE_RESULT_SUCCESS)
        b->atomics[soft_device_of(device)->root->index] = attributes;
    pthread_mutex_unlock(&soft_memory_lock);
    return err;
}

static ze_result_t ZE_APICALL soft_zeMemGetAtomicAccessAttributeExp(
    ze_context_handle_t ctx, ze_device_handle_t device, const void *p, size_t size,
    ze_memory_atomic_attr_exp_flags_t *attributes)
{
    soft_block *b;
    ze_result_t err;

    SOFT_CALL();
    if (attributes == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    pthread_mutex_lock(&soft_memory_lock);
    err = shared_block(ctx, device, p, size, &b);
    if (err == ZE_RESULT_SUCCESS)
        *attributes = b->atomics[soft_device_of(device)->root->index];
    pthread_mutex_unlock(&soft_memory_lock);
    return err;
}

SOFT_TABLE(zeGetMemExpProcAddrTable, ze_mem_exp_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 6, pfnGetIpcHandleFromFileDescriptorExp,
               soft_zeMemGetIpcHandleFromFileDescriptorExp);
    SOFT_FIELD(1, 6, pfnGetFileDescriptorFromIpcHandleExp,
               soft_zeMemGetFileDescriptorFromIpcHandleExp);
    SOFT_FIELD(1, 7, pfnSetAtomicAccessAttributeExp, soft_zeMemSetAtomicAccessAttributeExp);
    SOFT_FIELD(1, 7, pfnGetAtomicAccessAttributeExp, soft_zeMemGetAtomicAccessAttributeExp);
    return ZE_RESULT_SUCCESS;
}

#endif

SOFT_TABLE(zeGetMemProcAddrTable, ze_mem_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnAllocShared, soft_zeMemAllocShared);
    SOFT_FIELD(1, 0, pfnAllocDevice, soft_zeMemAllocDevice);
    SOFT_FIELD(1, 0, pfnAllocHost, soft_zeMemAllocHost);
    SOFT_FIELD(1, 0, pfnFree, soft_zeMemFree);
    SOFT_FIELD(1, 0, pfnGetAllocProperties, soft_zeMemGetAllocProperties);
    SOFT_FIELD(1, 0, pfnGetAddressRange, soft_zeMemGetAddressRange);
    SOFT_FIELD(1, 0, pfnGetIpcHandle, soft_zeMemGetIpcHandle);
    SOFT_FIELD(1, 0, pfnOpenIpcHandle, soft_zeMemOpenIpcHandle);
    SOFT_FIELD(1, 0, pfnCloseIpcHandle, soft_zeMemCloseIpcHandle);
    SOFT_FIELD(1, 3, pfnFreeExt, soft_zeMemFreeExt);
#if SOFT_HAS_API_1_12
    SOFT_FIELD(1, 6, pfnPutIpcHandle, soft_zeMemPutIpcHandle);
    SOFT_FIELD(1, 9, pfnGetPitchFor2dImage, soft_zeMemGetPitchFor2dImage);
#endif
    return ZE_RESULT_SUCCESS;
}
