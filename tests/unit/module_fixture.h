/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the tests of one backend module share: they go through its table alone, on the first device
 * that the environment gives, and skip, with the reason, where there is no module, loader or
 * device.  On a driver that runs without its GPU (capture mode) only what needs no command runs.
 *
 * The module is $USM_PLUGIN_PATH/libusm_backend_<name>.so. */
#ifndef MODULE_FIXTURE_H
#define MODULE_FIXTURE_H

#include "module_api.h"

#include <dlfcn.h>
#include <stdint.h>
#include <usm/backend.h>

enum { DEVICES = 8, N = 4096, THREADS = 4, ROUNDS = 100 };

static const usm_backend_ops *ops;
static usm_backend_device     devices[DEVICES];
static size_t                 ndevices;
static usm_backend_device    *dev;
static bool                   is_capture; /* commands complete and do nothing, or crash */
static void                  *native_library;

static inline bool has(usm_aspect aspect)
{
    return dev->aspects >> aspect & 1;
}

static inline usm_aspect aspect_of(usm_kind kind)
{
    return kind == USM_HOST     ? USM_ASPECT_USM_HOST_ALLOCATIONS
           : kind == USM_DEVICE ? USM_ASPECT_USM_DEVICE_ALLOCATIONS
                                : USM_ASPECT_USM_SHARED_ALLOCATIONS;
}

static inline void *context_of(size_t n, usm_backend_device *list)
{
    void *handles[DEVICES];
    void *ctx = NULL;

    for (size_t i = 0; i < n; i++)
        handles[i] = list[i].handle;
    CHECK_INT(ops->context_create(n, handles, &ctx), USM_OK);
    return ctx;
}

/* Memory the host may look at, with the device given: what nearly every case works on. */
static inline void *allocate_in(void *ctx, usm_kind kind, size_t size)
{
    void *p = NULL;

    CHECK_INT(ops->mem_alloc(ctx, kind == USM_HOST ? NULL : dev->handle, kind, size, 128, &p),
              USM_OK);
    CHECK(p != NULL);
    return p;
}

/* One context and queue; the case's own, closed by its end. */
static void *ctx, *q;

static inline void open_with(uint32_t flags)
{
    module_start();
    ctx = context_of(1, dev);
    CHECK_INT(ops->queue_create(ctx, dev->handle, flags, &q), USM_OK);
}

static inline void close_all(void)
{
    ops->queue_destroy(q);
    ops->context_destroy(ctx);
    module_clean();
}

static inline void needs_commands(void)
{
    if (is_capture)
        SKIP("the driver has no device behind it: commands do nothing");
    if (!has(USM_ASPECT_USM_HOST_ALLOCATIONS) || !has(USM_ASPECT_USM_SHARED_ALLOCATIONS))
        SKIP("the device has no host or shared memory");
}

static inline void *user_event(void)
{
    void *ev = NULL;

    CHECK_INT(ops->event_create_user(ctx, &ev), USM_OK);
    return ev;
}

static inline void *copy_after(void *dst, const void *src, size_t n, size_t ndeps,
                               void *const *deps)
{
    void *ev = NULL;

    CHECK_INT(ops->copy(q, dst, src, n, ndeps, deps, &ev), USM_OK);
    return ev;
}

static inline void finish(void *ev)
{
    CHECK_INT(ops->event_wait(ev), USM_OK);
    CHECK_INT(ops->event_query(ev), USM_OK);
    ops->event_release(ev);
}

static inline const char *load(const char *name)
{
    usm_backend_entry_fn *entry;
    const char           *folder = getenv("USM_PLUGIN_PATH");
    char                  path[1024];
    void                 *symbol;

    if (!folder)
        return "USM_PLUGIN_PATH names no folder of modules";
    (void)snprintf(path, sizeof(path), "%.900s/libusm_backend_%s.so", folder, name);
    native_library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!native_library)
        return dlerror();
    symbol = dlsym(native_library, "usm_backend_entry");
    if (!symbol)
        return "the module has no entry";
    memcpy(&entry, &symbol, sizeof(entry));
    ops = entry(&module_api);
    return ops ? NULL : usm_last_error();
}

/* A case of every module. */
static inline void another_abi_is_refused_with_a_story(void)
{
    usm_backend_entry_fn *entry;
    usm_host_api          other  = module_api;
    void                 *symbol = dlsym(native_library, "usm_backend_entry");

    memcpy(&entry, &symbol, sizeof(entry));
    other.abi = USM_MODULE_ABI + 1;
    CHECK(entry(&other) == NULL);
    CHECK_IN("ABI", usm_last_error());
    CHECK(entry(&module_api) == ops);
}

/* Runs the cases over the module `name`. */
static inline int module_main(const char *name, int argc, char **argv, const plain_case *cases)
{
    const char *why = load(name);
    size_t      n   = 0;

    if (!why && ops->devices(devices, DEVICES, &ndevices))
        why = usm_last_error();
    if (!why && ndevices == 0)
        why = "the backend has no device";
    if (why) {
        printf("skipped: %s\n", why);
        return 77;
    }
    ndevices   = ndevices < DEVICES ? ndevices : DEVICES;
    dev        = &devices[0];
    is_capture = getenv("SetCommandStreamReceiver") != NULL;
    printf("# %s, %s, %s\n", dev->platform_name, dev->name, dev->driver_version);
    (void)ops->sub_devices(dev->handle, NULL, 0, &n); /* kept for ever: no leak of a case's */
    return plain_main(argc, argv, cases);
}

#endif
