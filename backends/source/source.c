/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The source backend: contexts whose memory comes from functions of the program (usm_area_source),
 * for pools over what another runtime has allocated for itself.
 *
 * It has no devices of its own and no queues.  A context is made from the program's table by
 * usm_context_from_native(), and knows one device.  Called by the core, which loads this module when
 * it is named. */
#include <base/inline/bits.h>
#include <base/inline/module.h>
#include <stdint.h>
#include <usm/backend.h>
#include <usm/source.h>

/* Fixed at the entry.  Its address is the handle of the device, which is the same for all contexts:
 * what is a source's own is asked of the context. */
static const usm_host_api *lib;

#define ASPECT(name) (UINT64_C(1) << USM_ASPECT_##name)

static usm_status source_devices(usm_backend_device *list, size_t cap, size_t *count)
{
    (void)list;
    (void)cap;
    *count = 0;
    return USM_OK;
}

static usm_status source_context_create(size_t ndevices, void *const *devices, void **ctx)
{
    (void)ndevices;
    (void)devices;
    (void)ctx;
    return lib->report(USM_E_NOT_SUPPORTED,
                       "contexts of an area source are made by usm_context_from_native()");
}

/* A source is the program's, and stays. */
static void source_context_destroy(void *ctx)
{
    (void)ctx;
}

static usm_status source_mem_alloc(void *ctx, void *dev, usm_kind kind, size_t size, size_t align,
                                   void **p)
{
    const usm_area_source *source = ctx;
    usm_status             st     = source->alloc(source->user, kind, size, align, p);

    (void)dev;
    if (st == USM_E_NO_MEMORY)
        return lib->report(st, "the area source has no %zu bytes left", size);
    if (st != USM_OK)
        return lib->report(st, "the area source failed to allocate %zu bytes", size);
    return USM_OK;
}

static usm_status source_mem_free(void *ctx, usm_kind kind, void *p, size_t size)
{
    const usm_area_source *source = ctx;
    usm_status             st     = source->free(source->user, kind, p, size);

    if (st != USM_OK)
        return lib->report(st, "the area source does not take back the %zu bytes at %p", size, p);
    return USM_OK;
}

/* --- native objects: a context only ------------------------------------------------------------ */

static uint64_t aspects_of(const usm_area_source *source)
{
    uint64_t aspects = 0;

    if (source->kinds & USM_SOURCE_HOST)
        aspects |= ASPECT(USM_HOST_ALLOCATIONS);
    if (source->kinds & USM_SOURCE_DEVICE)
        aspects |= ASPECT(USM_DEVICE_ALLOCATIONS);
    if (source->kinds & USM_SOURCE_SHARED)
        aspects |= ASPECT(USM_SHARED_ALLOCATIONS);
    return aspects;
}

static usm_status check_source(const usm_area_source *source, size_t ndevices,
                               usm_ownership ownership)
{
    if (source->struct_size < sizeof *source)
        return lib->report(USM_E_INVALID,
                           "the area source's struct_size is %zu: start from USM_AREA_SOURCE_INIT",
                           source->struct_size);
    if (!source->alloc || !source->free)
        return lib->report(USM_E_INVALID, "the area source's %s is NULL",
                           source->alloc ? "free" : "alloc");
    if (!aspects_of(source))
        return lib->report(USM_E_INVALID, "the area source names no kind of memory");
    if (ndevices > 0 || ownership != USM_KEEP)
        return lib->report(USM_E_INVALID, "an area source has no devices, and stays its owner's");
    return USM_OK;
}

static usm_status source_context_from_native(void *native, size_t ndevices, void *const *devices,
                                             usm_ownership ownership, void **ctx,
                                             usm_backend_device *list, size_t cap, size_t *count)
{
    const usm_area_source *source = native;
    usm_status             st     = check_source(source, ndevices, ownership);

    (void)devices;
    if (st != USM_OK)
        return st;
    if (cap > 0)
        list[0] = (usm_backend_device){
            .handle              = &lib,
            .platform            = &lib,
            .type                = USM_DEVICE_TYPE_ACCELERATOR,
            .name                = "memory of another runtime",
            .platform_name       = "area source",
            .vendor              = "libusm",
            .driver_version      = "1",
            .aspects             = aspects_of(source),
            .memory_size         = source->memory_size,
            .max_alloc_size      = source->memory_size ? source->memory_size : UINT64_MAX,
            .max_work_group_size = 1,
            .max_align           = source->max_align,
        };
    *ctx   = native;
    *count = 1;
    return USM_OK;
}

static usm_status source_context_native(void *ctx, void **native)
{
    *native = ctx;
    return USM_OK;
}

static usm_status nothing_native(void)
{
    return lib->report(USM_E_NOT_SUPPORTED, "an area source has neither devices nor queues");
}

static usm_status source_device_native(void *dev, void **native)
{
    (void)dev;
    (void)native;
    return nothing_native();
}

static usm_status source_queue_from_native(void *ctx, void *native, usm_ownership ownership,
                                           void **q, void **dev, uint32_t *flags)
{
    (void)ctx;
    (void)native;
    (void)ownership;
    (void)q;
    (void)dev;
    (void)flags;
    return nothing_native();
}

static usm_status source_queue_native(void *q, void **native)
{
    (void)q;
    (void)native;
    return nothing_native();
}

static usm_status source_event_from_native(void *ctx, void *native, usm_ownership ownership,
                                           void **ev)
{
    (void)ctx;
    (void)native;
    (void)ownership;
    (void)ev;
    return nothing_native();
}

static usm_status source_event_native(void *ev, void **native)
{
    (void)ev;
    (void)native;
    return nothing_native();
}

static const usm_backend_ops source_ops = {
    .abi                 = USM_MODULE_ABI,
    .struct_size         = sizeof(usm_backend_ops),
    .name                = "source",
    .caps                = USM_CAP_NATIVE,
    .devices             = source_devices,
    .context_create      = source_context_create,
    .context_destroy     = source_context_destroy,
    .mem_alloc           = source_mem_alloc,
    .mem_free            = source_mem_free,
    .context_from_native = source_context_from_native,
    .context_native      = source_context_native,
    .device_native       = source_device_native,
    .queue_from_native   = source_queue_from_native,
    .queue_native        = source_queue_native,
    .event_from_native   = source_event_from_native,
    .event_native        = source_event_native,
};

USM_API usm_backend_entry_fn usm_backend_entry;

const usm_backend_ops *usm_backend_entry(const usm_host_api *api)
{
    if (!usm_module_fits(api, "the source backend"))
        return NULL;
    lib = api;
    return &source_ops;
}
