/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Contexts, and which memory is resident.
 *
 * A context holds nothing: memory, queues and modules name it only to be checked.  What was a
 * context is kept for the next one, so that a dead handle can be looked at and told from a live
 * one.  As in Intel's driver, memory of one context is known in all.
 *
 * Exports the table Context. */
#include "device.h"
#include "memory.h"
#include "tables.h"

#include <stdlib.h>

typedef struct context {
    soft_context    c; /* first: a handle is a pointer to it */
    struct context *next;
} context;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static context        *dead; /* guarded by lock */

soft_context *soft_context_of(ze_context_handle_t h)
{
    soft_context *c = (soft_context *)h;

    if (c == NULL || atomic_load(&c->handle.type) != SOFT_CONTEXT)
        return NULL;
    return c;
}

static context *context_take(void)
{
    context *c;

    pthread_mutex_lock(&lock);
    c = dead;
    if (c != NULL)
        dead = c->next;
    pthread_mutex_unlock(&lock);
    return c != NULL ? c : calloc(1, sizeof(*c));
}

static ze_result_t context_new(ze_driver_handle_t driver, const ze_context_desc_t *desc,
                               ze_context_handle_t *made)
{
    context *c;

    if (driver != (ze_driver_handle_t)&soft_driver)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (desc == NULL || made == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->flags > ZE_CONTEXT_FLAG_TBD)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    c = context_take();
    if (c == NULL)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    atomic_store(&c->c.handle.type, SOFT_CONTEXT);
    soft_live(1);
    *made = (ze_context_handle_t)&c->c;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeContextCreate(ze_driver_handle_t       driver,
                                                   const ze_context_desc_t *desc,
                                                   ze_context_handle_t     *made)
{
    SOFT_CALL();
    return context_new(driver, desc, made);
}

static ze_result_t ZE_APICALL soft_zeContextCreateEx(ze_driver_handle_t       driver,
                                                     const ze_context_desc_t *desc,
                                                     uint32_t ndevices, ze_device_handle_t *devices,
                                                     ze_context_handle_t *made)
{
    SOFT_CALL();
    if (devices == NULL && ndevices > 0)
        return ZE_RESULT_ERROR_INVALID_SIZE;
    for (uint32_t i = 0; i < ndevices; i++)
        if (soft_device_of(devices[i]) == NULL)
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return context_new(driver, desc, made);
}

static ze_result_t ZE_APICALL soft_zeContextDestroy(ze_context_handle_t h)
{
    context *c = (context *)(void *)soft_context_of(h);

    soft_enter_free(__func__);
    if (h == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (c == NULL)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    atomic_store(&c->c.handle.type, 0);
    soft_live(-1);
    pthread_mutex_lock(&lock);
    c->next = dead;
    dead    = c;
    pthread_mutex_unlock(&lock);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeContextGetStatus(ze_context_handle_t h)
{
    SOFT_CALL();
    if (soft_context_of(h) == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    for (uint32_t i = 0; i < SOFT_ROOTS; i++)
        if (soft_is_lost(&soft_devices[i]))
            return ZE_RESULT_ERROR_DEVICE_LOST;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeContextSystemBarrier(ze_context_handle_t ctx,
                                                          ze_device_handle_t  device)
{
    soft_device *dev = soft_device_of(device);

    SOFT_CALL();
    if (soft_context_of(ctx) == NULL || dev == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (soft_is_lost(dev))
        return ZE_RESULT_ERROR_DEVICE_LOST;
    atomic_thread_fence(memory_order_seq_cst);
    return ZE_RESULT_SUCCESS;
}

/* --- residency ------------------------------------------------------------------------- */

static ze_result_t set_resident(soft_device *dev, const void *p, size_t size, bool resident)
{
    ze_result_t result = ZE_RESULT_ERROR_INVALID_ARGUMENT;
    soft_block *b;

    pthread_mutex_lock(&soft_memory_lock);
    b = soft_block_find(p);
    if (b == NULL && soft_takes_system_memory())
        result = ZE_RESULT_SUCCESS;
    if (b != NULL && size <= b->a.size - ((uintptr_t)p - (uintptr_t)b->a.base)) {
        b->resident[dev->root->index] = resident;
        if (b->moving.size != 0)
            soft_moving_keep(&b->moving, resident);
        result = ZE_RESULT_SUCCESS;
    }
    pthread_mutex_unlock(&soft_memory_lock);
    return result;
}

static ze_result_t residency(ze_context_handle_t ctx, ze_device_handle_t device, const void *p)
{
    soft_device *dev = soft_device_of(device);

    if (soft_context_of(ctx) == NULL || dev == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (p == NULL)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return soft_is_lost(dev) ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeContextMakeMemoryResident(ze_context_handle_t ctx,
                                                               ze_device_handle_t device, void *p,
                                                               size_t size)
{
    ze_result_t err;

    SOFT_CALL();
    err = residency(ctx, device, p);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    return set_resident(soft_device_of(device), p, size, true);
}

static ze_result_t ZE_APICALL soft_zeContextEvictMemory(ze_context_handle_t ctx,
                                                        ze_device_handle_t device, void *p,
                                                        size_t size)
{
    ze_result_t err;

    SOFT_CALL();
    err = residency(ctx, device, p);
    if (err != ZE_RESULT_SUCCESS)
        return err;
    return set_resident(soft_device_of(device), p, size, false);
}

static ze_result_t ZE_APICALL no_image_resident(ze_context_handle_t ctx, ze_device_handle_t device,
                                                ze_image_handle_t image)
{
    (void)ctx;
    (void)device;
    (void)image;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

SOFT_TABLE(zeGetContextProcAddrTable, ze_context_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnCreate, soft_zeContextCreate);
    SOFT_FIELD(1, 0, pfnDestroy, soft_zeContextDestroy);
    SOFT_FIELD(1, 0, pfnGetStatus, soft_zeContextGetStatus);
    SOFT_FIELD(1, 0, pfnSystemBarrier, soft_zeContextSystemBarrier);
    SOFT_FIELD(1, 0, pfnMakeMemoryResident, soft_zeContextMakeMemoryResident);
    SOFT_FIELD(1, 0, pfnEvictMemory, soft_zeContextEvictMemory);
    SOFT_FIELD(1, 0, pfnMakeImageResident, no_image_resident);
    SOFT_FIELD(1, 0, pfnEvictImage, no_image_resident);
    SOFT_FIELD(1, 1, pfnCreateEx, soft_zeContextCreateEx);
    return ZE_RESULT_SUCCESS;
}
