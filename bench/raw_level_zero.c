/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Level Zero's side of raw.h: an immediate command list of its own on libusm's context and device,
 * copies ordered by barriers (in-order lists are younger than the oldest headers), and one event to
 * wait for.  The loader that libusm has loaded serves this too. */
#include "raw.h"

#ifdef USM_BENCH_LEVEL_ZERO
#include <level_zero/ze_api.h>

#include <dlfcn.h>
#include <stdlib.h>

#define FUNCTIONS(X)                                                                               \
    X(zeMemAllocDevice)                                                                            \
    X(zeMemFree)                                                                                   \
    X(zeMemGetAllocProperties)                                                                     \
    X(zeCommandListCreateImmediate)                                                                \
    X(zeCommandListDestroy)                                                                        \
    X(zeCommandListAppendMemoryCopy)                                                               \
    X(zeCommandListAppendMemoryFill)                                                               \
    X(zeCommandListAppendBarrier)                                                                  \
    X(zeEventPoolCreate)                                                                           \
    X(zeEventPoolDestroy)                                                                          \
    X(zeEventCreate)                                                                               \
    X(zeEventDestroy)                                                                              \
    X(zeEventHostSynchronize)                                                                      \
    X(zeEventHostReset)

typedef struct raw_level_zero {
    raw_driver driver; /* first */
    void      *lib;
#define MEMBER(name) __typeof__(&name) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
    ze_context_handle_t      context;
    ze_device_handle_t       device;
    ze_command_list_handle_t list;
    ze_event_pool_handle_t   pool;
    ze_event_handle_t        done;
} raw_level_zero;

static bool load(raw_level_zero *raw)
{
    raw->lib = dlopen("libze_loader.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!raw->lib)
        return false;
#define LOAD(name)                                                                                 \
    *(void **)&raw->name = dlsym(raw->lib, #name);                                                 \
    if (!raw->name)                                                                                \
        return false;
    FUNCTIONS(LOAD)
#undef LOAD
    return true;
}

static void *alloc_block(raw_driver *driver, size_t size)
{
    raw_level_zero            *raw  = (raw_level_zero *)driver;
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void                      *p    = NULL;

    if (raw->zeMemAllocDevice(raw->context, &desc, size, 64, raw->device, &p))
        return NULL;
    return p;
}

static void free_block(raw_driver *driver, void *p)
{
    raw_level_zero *raw = (raw_level_zero *)driver;

    (void)raw->zeMemFree(raw->context, p);
}

static int query(raw_driver *driver, const void *p)
{
    raw_level_zero                   *raw   = (raw_level_zero *)driver;
    ze_memory_allocation_properties_t found = {.stype =
                                                   ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};

    (void)raw->zeMemGetAllocProperties(raw->context, p, &found, NULL);
    return (int)found.type;
}

static bool copy(raw_driver *driver, void *dst, const void *src, size_t n)
{
    raw_level_zero *raw = (raw_level_zero *)driver;

    return !raw->zeCommandListAppendMemoryCopy(raw->list, dst, src, n, NULL, 0, NULL) &&
           !raw->zeCommandListAppendBarrier(raw->list, NULL, 0, NULL);
}

static bool fill(raw_driver *driver, void *dst, unsigned char value, size_t n)
{
    raw_level_zero *raw = (raw_level_zero *)driver;

    return !raw->zeCommandListAppendMemoryFill(raw->list, dst, &value, 1, n, NULL, 0, NULL) &&
           !raw->zeCommandListAppendBarrier(raw->list, NULL, 0, NULL);
}

static bool finish(raw_driver *driver)
{
    raw_level_zero *raw = (raw_level_zero *)driver;

    return !raw->zeCommandListAppendBarrier(raw->list, raw->done, 0, NULL) &&
           !raw->zeEventHostSynchronize(raw->done, UINT64_MAX) && !raw->zeEventHostReset(raw->done);
}

static void close_driver(raw_driver *driver)
{
    raw_level_zero *raw = (raw_level_zero *)driver;

    if (raw->list)
        (void)raw->zeCommandListDestroy(raw->list);
    if (raw->done)
        (void)raw->zeEventDestroy(raw->done);
    if (raw->pool)
        (void)raw->zeEventPoolDestroy(raw->pool);
    if (raw->lib)
        dlclose(raw->lib);
    free(raw);
}

static bool make_objects(raw_level_zero *raw)
{
    ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .mode  = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    ze_event_pool_desc_t    pool  = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                     .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
                                     .count = 1};
    ze_event_desc_t         event = {.stype  = ZE_STRUCTURE_TYPE_EVENT_DESC,
                                     .signal = ZE_EVENT_SCOPE_FLAG_HOST};

    return !raw->zeCommandListCreateImmediate(raw->context, raw->device, &queue, &raw->list) &&
           !raw->zeEventPoolCreate(raw->context, &pool, 1, &raw->device, &raw->pool) &&
           !raw->zeEventCreate(raw->pool, &event, &raw->done);
}

raw_driver *raw_level_zero_open(usm_queue *q)
{
    raw_level_zero *raw     = calloc(1, sizeof *raw);
    void           *context = NULL, *device = NULL;

    if (!raw)
        return NULL;
    if (usm_context_get_native(usm_queue_get_context(q), "level_zero", &context) != USM_OK ||
        usm_device_get_native(usm_queue_get_device(q), "level_zero", &device) != USM_OK ||
        !load(raw))
        goto err_close;
    raw->context = context;
    raw->device  = device;
    if (!make_objects(raw))
        goto err_close;
    raw->driver = (raw_driver){"zeMemAllocDevice",
                               "zeMemGetAllocProperties",
                               alloc_block,
                               free_block,
                               query,
                               copy,
                               fill,
                               finish,
                               close_driver};
    return &raw->driver;
err_close:
    close_driver(&raw->driver);
    return NULL;
}

#else

raw_driver *raw_level_zero_open(usm_queue *q)
{
    (void)q;
    return NULL;
}

#endif
