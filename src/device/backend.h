/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The core's view of a backend: its table, with stubs in the absent slots, and one typed wrapper
 * for each function, through which hooks see every call. */
#ifndef USM_DEVICE_BACKEND_H
#define USM_DEVICE_BACKEND_H

#include "observe/hooks.h"
#include "observe/order_check.h"

#include <usm/backend.h>

typedef struct usm__backend {
    usm_backend_ops ops; /* absent slots return USM_E_NOT_SUPPORTED */
    const char     *name;
} usm__backend;

/* Checks ABI, name and groups, copies the table and fills in the stubs.
 *   USM_E_ABI, USM_E_INVALID (a group is incomplete; the message names it) */
usm_status usm__backend_init(usm__backend *be, const usm_backend_ops *ops);

static inline bool usm__backend_can(const usm__backend *be, usm_backend_cap cap)
{
    return (be->ops.caps & (uint32_t)cap) != 0;
}

/* A wrapper: usm__be_<fn>(be, ...); `size` is the number that a trace prints. */
#define USM__BACKEND_CALL(fn, size, params, args)                                                  \
    static inline usm_status usm__be_##fn params                                                   \
    {                                                                                              \
        uint64_t   t = 0;                                                                          \
        usm_status s = USM_OK;                                                                     \
                                                                                                   \
        if (!usm__hooked())                                                                        \
            return be->ops.fn args;                                                                \
        s = usm__hook_enter_slow(be->name, #fn, &t);                                               \
        if (s == USM_OK)                                                                           \
            s = be->ops.fn args;                                                                   \
        usm__hook_leave_slow(be->name, #fn, t, (size), s);                                         \
        return s;                                                                                  \
    }
/* The same; it also reports the result s to the checker of stream order (observe/order_check.h). */
#define USM__BACKEND_TOLD(fn, params, args, told)                                                  \
    static inline usm_status usm__be_##fn params                                                   \
    {                                                                                              \
        uint64_t   t = 0;                                                                          \
        usm_status s = USM_OK;                                                                     \
                                                                                                   \
        if (!usm__hooked())                                                                        \
            return be->ops.fn args;                                                                \
        s = usm__hook_enter_slow(be->name, #fn, &t);                                               \
        if (s == USM_OK) {                                                                         \
            s = be->ops.fn args;                                                                   \
            if (usm__order_on())                                                                   \
                (told);                                                                            \
        }                                                                                          \
        usm__hook_leave_slow(be->name, #fn, t, 0, s);                                              \
        return s;                                                                                  \
    }
/* The same for commands: the memory they access is reported to the checker of stream order. */
#define USM__BACKEND_COMMAND(fn, size, params, args, ...)                                          \
    static inline usm_status usm__be_##fn params                                                   \
    {                                                                                              \
        uint64_t   t = 0;                                                                          \
        usm_status s = USM_OK;                                                                     \
                                                                                                   \
        if (!usm__hooked())                                                                        \
            return be->ops.fn args;                                                                \
        s = usm__hook_enter_slow(be->name, #fn, &t);                                               \
        if (s == USM_OK)                                                                           \
            s = be->ops.fn args;                                                                   \
        usm__hook_leave_slow(be->name, #fn, t, (size), s);                                         \
        if (s == USM_OK && usm__order_on())                                                        \
            usm__order_submitted(&(usm__order_command){                                            \
                .q = q, .what = #fn, .ndeps = ndeps, .deps = deps, .ev = ev, __VA_ARGS__});        \
        return s;                                                                                  \
    }
/* The same for waits.  An injected fault lets them fail only after they have waited: if a wait
 * returned at once, the caller could not free memory that commands still use. */
#define USM__BACKEND_WAIT(fn, before, after)                                                       \
    static inline usm_status usm__be_##fn(const usm__backend *be, void *h)                         \
    {                                                                                              \
        uint64_t   t    = 0;                                                                       \
        usm_status hook = USM_OK, s;                                                               \
                                                                                                   \
        if (!usm__hooked())                                                                        \
            return be->ops.fn(h);                                                                  \
        hook = usm__hook_enter_slow(be->name, #fn, &t);                                            \
        before;                                                                                    \
        s = be->ops.fn(h);                                                                         \
        after;                                                                                     \
        if (hook != USM_OK)                                                                        \
            s = hook;                                                                              \
        usm__hook_leave_slow(be->name, #fn, t, 0, s);                                              \
        return s;                                                                                  \
    }
/* The same for functions that cannot fail. */
#define USM__BACKEND_VOID(fn, before)                                                              \
    static inline void usm__be_##fn(const usm__backend *be, void *h)                               \
    {                                                                                              \
        uint64_t t = 0;                                                                            \
                                                                                                   \
        if (usm__hooked()) {                                                                       \
            (void)usm__hook_enter_slow(be->name, #fn "!", &t);                                     \
            before;                                                                                \
        }                                                                                          \
        be->ops.fn(h);                                                                             \
        if (usm__hooked())                                                                         \
            usm__hook_leave_slow(be->name, #fn, t, 0, USM_OK);                                     \
    }

#define USM__BE_CMD  size_t ndeps, void *const *deps, void **ev
#define USM__BE_ARGS ndeps, deps, ev

USM__BACKEND_CALL(devices, 0,
                  (const usm__backend *be, usm_backend_device *list, size_t cap, size_t *count),
                  (list, cap, count))
USM__BACKEND_CALL(context_create, n,
                  (const usm__backend *be, size_t n, void *const *devices, void **ctx),
                  (n, devices, ctx))
USM__BACKEND_VOID(context_destroy, (void)0)
USM__BACKEND_CALL(mem_alloc, size,
                  (const usm__backend *be, void *ctx, void *dev, usm_kind kind, size_t size,
                   size_t align, void **p),
                  (ctx, dev, kind, size, align, p))
USM__BACKEND_CALL(mem_free, size,
                  (const usm__backend *be, void *ctx, usm_kind kind, void *p, size_t size),
                  (ctx, kind, p, size))
USM__BACKEND_CALL(sub_devices, 0,
                  (const usm__backend *be, void *dev, usm_backend_device *list, size_t cap,
                   size_t *count),
                  (dev, list, cap, count))
USM__BACKEND_CALL(device_memory, 0,
                  (const usm__backend *be, void *dev, uint64_t *total, uint64_t *free),
                  (dev, total, free))
USM__BACKEND_CALL(can_access_peer, 0, (const usm__backend *be, void *dev, void *peer, bool *can),
                  (dev, peer, can))
USM__BACKEND_TOLD(queue_create,
                  (const usm__backend *be, void *ctx, void *dev, uint32_t flags, void **q),
                  (ctx, dev, flags, q), s == USM_OK ? usm__order_queue_made(*q, flags) : (void)0)
USM__BACKEND_VOID(queue_destroy, usm__order_on() ? usm__order_queue_gone(h) : (void)0)
USM__BACKEND_WAIT(queue_wait, void *seen = usm__order_on() ? usm__order_queue_snapshot(h) : NULL,
                  usm__order_queue_waited(seen, s))
USM__BACKEND_COMMAND(copy, n,
                     (const usm__backend *be, void *q, void *dst, const void *src, size_t n,
                      USM__BE_CMD),
                     (q, dst, src, n, USM__BE_ARGS), .p = {dst, src}, .n = {n, n})
USM__BACKEND_COMMAND(copy_2d, width *height,
                     (const usm__backend *be, void *q, void *dst, size_t dst_pitch, const void *src,
                      size_t src_pitch, size_t width, size_t height, USM__BE_CMD),
                     (q, dst, dst_pitch, src, src_pitch, width, height, USM__BE_ARGS),
                     .p = {dst, src},
                     .n = {dst_pitch * (height - 1) + width, src_pitch *(height - 1) + width})
USM__BACKEND_COMMAND(fill, n,
                     (const usm__backend *be, void *q, void *dst, const void *pattern,
                      size_t pattern_size, size_t n, USM__BE_CMD),
                     (q, dst, pattern, pattern_size, n, USM__BE_ARGS), .p = {dst, NULL},
                     .n = {n, 0})
USM__BACKEND_COMMAND(prefetch, n,
                     (const usm__backend *be, void *q, const void *p, size_t n, USM__BE_CMD),
                     (q, p, n, USM__BE_ARGS), .p = {p, NULL}, .n = {n, 0})
USM__BACKEND_COMMAND(advise, n,
                     (const usm__backend *be, void *q, const void *p, size_t n, usm_advice advice,
                      USM__BE_CMD),
                     (q, p, n, advice, USM__BE_ARGS), .launch = NULL)
USM__BACKEND_COMMAND(marker, 0, (const usm__backend *be, void *q, USM__BE_CMD), (q, USM__BE_ARGS),
                     .launch = NULL)
USM__BACKEND_COMMAND(barrier, 0, (const usm__backend *be, void *q, USM__BE_CMD), (q, USM__BE_ARGS),
                     .launch = NULL)
USM__BACKEND_TOLD(event_create_user, (const usm__backend *be, void *ctx, void **ev), (ctx, ev),
                  s == USM_OK ? usm__order_event_made(*ev) : (void)0)
USM__BACKEND_TOLD(event_query, (const usm__backend *be, void *ev), (ev),
                  usm__order_event_seen(ev, s))
USM__BACKEND_WAIT(event_wait, (void)0, usm__order_on() ? usm__order_event_seen(h, s) : (void)0)
USM__BACKEND_CALL(event_profiling, 0, (const usm__backend *be, void *ev, usm_profiling *times),
                  (ev, times))
USM__BACKEND_VOID(event_release, usm__order_on() ? usm__order_event_gone(h) : (void)0)
USM__BACKEND_CALL(event_notify, 0,
                  (const usm__backend *be, void *ev, usm_backend_notify_fn fn, void *arg),
                  (ev, fn, arg))
USM__BACKEND_CALL(program_build, image->size,
                  (const usm__backend *be, void *ctx, void *dev, const usm_image *image,
                   const char *options, char **log, void **program),
                  (ctx, dev, image, options, log, program))
USM__BACKEND_VOID(program_destroy, (void)0)
USM__BACKEND_CALL(program_binary, 0,
                  (const usm__backend *be, void *program, void **data, size_t *size),
                  (program, data, size))
USM__BACKEND_CALL(program_kernels, 0, (const usm__backend *be, void *program, char **names),
                  (program, names))
USM__BACKEND_CALL(kernel_create, 0,
                  (const usm__backend *be, void *program, const char *name, void **kernel),
                  (program, name, kernel))
USM__BACKEND_VOID(kernel_destroy, (void)0)
USM__BACKEND_CALL(kernel_info, 0,
                  (const usm__backend *be, void *kernel, size_t *nargs, usm_arg_kind *kinds,
                   size_t cap),
                  (kernel, nargs, kinds, cap))
USM__BACKEND_COMMAND(launch, launch->global[0] * launch->global[1] * launch->global[2],
                     (const usm__backend *be, void *q, void *kernel, const usm_launch *launch,
                      USM__BE_CMD),
                     (q, kernel, launch, USM__BE_ARGS), .launch = launch)
USM__BACKEND_CALL(task, 0,
                  (const usm__backend *be, void *q, const usm_backend_task *task, USM__BE_CMD),
                  (q, task, USM__BE_ARGS))
USM__BACKEND_CALL(kernel_groups, 0,
                  (const usm__backend *be, void *kernel, usm_backend_groups *groups),
                  (kernel, groups))
USM__BACKEND_CALL(ipc_alloc, size,
                  (const usm__backend *be, void *ctx, void *dev, usm_kind kind, bool writable,
                   size_t size, size_t align, void **p),
                  (ctx, dev, kind, writable, size, align, p))
USM__BACKEND_CALL(ipc_get, 0, (const usm__backend *be, void *ctx, void *p, usm_backend_ipc *handle),
                  (ctx, p, handle))
USM__BACKEND_CALL(ipc_put, 0, (const usm__backend *be, void *ctx, usm_backend_ipc *handle),
                  (ctx, handle))
USM__BACKEND_CALL(ipc_open, 0,
                  (const usm__backend *be, void *ctx, void *dev, const usm_backend_ipc *handle,
                   void **p),
                  (ctx, dev, handle, p))
USM__BACKEND_CALL(ipc_close, 0, (const usm__backend *be, void *ctx, void *p), (ctx, p))
USM__BACKEND_CALL(vmem_granularity, size,
                  (const usm__backend *be, void *ctx, void *dev, usm_kind kind, size_t size,
                   size_t *granularity),
                  (ctx, dev, kind, size, granularity))
USM__BACKEND_CALL(vmem_reserve, size,
                  (const usm__backend *be, void *ctx, usm_kind kind, size_t size, void **p),
                  (ctx, kind, size, p))
USM__BACKEND_CALL(vmem_release, size, (const usm__backend *be, void *ctx, void *p, size_t size),
                  (ctx, p, size))
USM__BACKEND_CALL(phys_create, size,
                  (const usm__backend *be, void *ctx, void *dev, usm_kind kind, size_t size,
                   void **phys),
                  (ctx, dev, kind, size, phys))
USM__BACKEND_CALL(phys_destroy, 0, (const usm__backend *be, void *ctx, void *phys), (ctx, phys))
USM__BACKEND_CALL(vmem_map, size,
                  (const usm__backend *be, void *ctx, void *p, size_t size, void *phys,
                   size_t offset),
                  (ctx, p, size, phys, offset))
USM__BACKEND_CALL(vmem_unmap, size, (const usm__backend *be, void *ctx, void *p, size_t size),
                  (ctx, p, size))
USM__BACKEND_CALL(context_from_native, 0,
                  (const usm__backend *be, void *native, size_t n, void *const *devices,
                   usm_ownership own, void **ctx, usm_backend_device *list, size_t cap,
                   size_t *count),
                  (native, n, devices, own, ctx, list, cap, count))
USM__BACKEND_CALL(context_native, 0, (const usm__backend *be, void *ctx, void **native),
                  (ctx, native))
USM__BACKEND_CALL(device_native, 0, (const usm__backend *be, void *dev, void **native),
                  (dev, native))
USM__BACKEND_TOLD(queue_from_native,
                  (const usm__backend *be, void *ctx, void *native, usm_ownership own, void **q,
                   void **dev, uint32_t *flags),
                  (ctx, native, own, q, dev, flags),
                  s == USM_OK ? usm__order_queue_made(*q, *flags) : (void)0)
USM__BACKEND_CALL(queue_native, 0, (const usm__backend *be, void *q, void **native), (q, native))
USM__BACKEND_CALL(event_from_native, 0,
                  (const usm__backend *be, void *ctx, void *native, usm_ownership own, void **ev),
                  (ctx, native, own, ev))
USM__BACKEND_CALL(event_native, 0, (const usm__backend *be, void *ev, void **native), (ev, native))

/* A signal must always reach the backend, because its dependents would hang otherwise: the call is
 * traced, but never made to fail. */
static inline usm_status usm__be_event_signal(const usm__backend *be, void *ev, usm_status status)
{
    usm_status s;

    if (usm__hooked() && usm__order_on())
        usm__order_event_signalled(ev);
    s = be->ops.event_signal(ev, status);
    if (usm__hooked())
        usm__hook_leave_slow(be->name, "event_signal", 0, 0, s);
    return s;
}

#endif
