/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A backend module with one device that misbehaves as FAKE_MODE says, for
 * test_usm_info.sh:
 *
 *   still   commands complete and move nothing     crash   copies kill the process
 *   hang    copies never return                    abi     built for another libusm
 *
 * Compiled by the script; sees include/usm only, as modules do. */
#include <usm/backend.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const usm_host_api *lib;
static char                thing; /* stands for every context, queue and event */

static bool mode_is(const char *mode)
{
    const char *set = getenv("FAKE_MODE");

    return set && strcmp(set, mode) == 0;
}

static usm_status devices(usm_backend_device *list, size_t cap, size_t *count)
{
    if (cap > 0) {
        memset(list, 0, sizeof *list);
        list->handle   = &thing;
        list->platform = &thing;
        list->type     = USM_DEVICE_TYPE_GPU;
        strcpy(list->name, "fake\t\"device\" \\ \xff");
        strcpy(list->platform_name, "fake platform");
        strcpy(list->vendor, "nobody");
        strcpy(list->driver_version, "1");
        list->aspects     = UINT64_C(1) << USM_ASPECT_USM_DEVICE_ALLOCATIONS;
        list->memory_size = list->max_alloc_size = 1 << 20;
        list->max_align                          = USM_MAX_ALIGNMENT;
        list->max_fill_pattern                   = SIZE_MAX;
    }
    *count = 1;
    return USM_OK;
}

static usm_status context_create(size_t n, void *const *devs, void **ctx)
{
    (void)n;
    (void)devs;
    *ctx = &thing;
    return USM_OK;
}

static void drop(void *object)
{
    (void)object;
}

static usm_status mem_alloc(void *ctx, void *dev, usm_kind kind, size_t size, size_t align,
                            void **p)
{
    (void)ctx;
    (void)dev;
    (void)kind;
    *p = aligned_alloc(align, (size + align - 1) / align * align);
    return *p ? USM_OK : lib->report(USM_E_NO_MEMORY, "no memory");
}

static usm_status mem_free(void *ctx, usm_kind kind, void *p, size_t size)
{
    (void)ctx;
    (void)kind;
    (void)size;
    free(p);
    return USM_OK;
}

static usm_status queue_create(void *ctx, void *dev, uint32_t flags, void **q)
{
    (void)ctx;
    (void)dev;
    (void)flags;
    *q = &thing;
    return USM_OK;
}

static usm_status done(void *object)
{
    (void)object;
    return USM_OK;
}

static usm_status event(void **ev)
{
    if (ev)
        *ev = &thing;
    return USM_OK;
}

static usm_status copy(void *q, void *dst, const void *src, size_t n, size_t ndeps,
                       void *const *deps, void **ev)
{
    (void)q;
    (void)dst;
    (void)src;
    (void)n;
    (void)ndeps;
    (void)deps;
    if (mode_is("crash"))
        raise(SIGSEGV);
    while (mode_is("hang"))
        pause();
    return event(ev);
}

static usm_status copy_2d(void *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                          size_t width, size_t height, size_t ndeps, void *const *deps, void **ev)
{
    (void)dst_pitch;
    (void)src_pitch;
    (void)height;
    return copy(q, dst, src, width, ndeps, deps, ev);
}

static usm_status fill(void *q, void *dst, const void *pattern, size_t pattern_size, size_t size,
                       size_t ndeps, void *const *deps, void **ev)
{
    (void)pattern_size;
    return copy(q, dst, pattern, size, ndeps, deps, ev);
}

static usm_status prefetch(void *q, const void *p, size_t n, size_t ndeps, void *const *deps,
                           void **ev)
{
    return copy(q, NULL, p, n, ndeps, deps, ev);
}

static usm_status advise(void *q, const void *p, size_t n, usm_advice advice, size_t ndeps,
                         void *const *deps, void **ev)
{
    (void)advice;
    return copy(q, NULL, p, n, ndeps, deps, ev);
}

static usm_status marker(void *q, size_t ndeps, void *const *deps, void **ev)
{
    (void)q;
    (void)ndeps;
    (void)deps;
    return event(ev);
}

static usm_status event_create_user(void *ctx, void **ev)
{
    (void)ctx;
    return event(ev);
}

static usm_status event_signal(void *ev, usm_status status)
{
    (void)ev;
    (void)status;
    return USM_OK;
}

static usm_status event_profiling(void *ev, usm_profiling *times)
{
    (void)ev;
    (void)times;
    return USM_OK;
}

static usm_backend_ops ops = {
    .abi               = USM_MODULE_ABI,
    .struct_size       = sizeof(usm_backend_ops),
    .name              = "fake",
    .caps              = USM_CAP_QUEUES,
    .devices           = devices,
    .context_create    = context_create,
    .context_destroy   = drop,
    .mem_alloc         = mem_alloc,
    .mem_free          = mem_free,
    .queue_create      = queue_create,
    .queue_destroy     = drop,
    .queue_wait        = done,
    .copy              = copy,
    .copy_2d           = copy_2d,
    .fill              = fill,
    .prefetch          = prefetch,
    .advise            = advise,
    .marker            = marker,
    .barrier           = marker,
    .event_create_user = event_create_user,
    .event_signal      = event_signal,
    .event_query       = done,
    .event_wait        = done,
    .event_profiling   = event_profiling,
    .event_release     = drop,
};

__attribute__((visibility("default"))) const usm_backend_ops *
usm_backend_entry(const usm_host_api *api);

const usm_backend_ops *usm_backend_entry(const usm_host_api *api)
{
    lib = api;
    if (mode_is("abi"))
        ops.abi = 999;
    return &ops;
}
