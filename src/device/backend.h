/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The core's view of a backend: its table, with stubs in the absent slots, and one typed wrapper
 * for each function, usm__be_<fn>(be, ...).  Nobody else calls the table, so that decorators
 * (observe/decorate.c) see every call. */
#ifndef USM_DEVICE_BACKEND_H
#define USM_DEVICE_BACKEND_H

#include "device/observer.h"

#include <stdatomic.h>
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

/* Removes the parentheses around a list of parameters or arguments. */
#define USM__BARE(...) __VA_ARGS__

/* Decorators: functions that are called in place of a backend's, and call it. */
typedef struct usm__backend_calls {
#define CALL(cap, group, fn, size, params, args)                                                   \
    usm_status (*fn)(const usm__backend *be, USM__BARE params);
#define VOID(cap, group, fn) void (*fn)(const usm__backend *be, void *h);
#include "device/backend_ops.inc"
} usm__backend_calls;

static inline const usm__backend_calls *usm__backend_decorated(void)
{
    const usm__backend_calls *calls =
        atomic_load_explicit(&usm__observers.decorators, memory_order_acquire);

    return (const usm__backend_calls *)__builtin_expect((long)calls, 0);
}

#define CALL(cap, group, fn, size, params, args)                                                   \
    static inline usm_status usm__be_##fn(const usm__backend *be, USM__BARE params)                \
    {                                                                                              \
        const usm__backend_calls *calls = usm__backend_decorated();                                \
                                                                                                   \
        return calls ? calls->fn(be, USM__BARE args) : be->ops.fn args;                            \
    }
#define VOID(cap, group, fn)                                                                       \
    static inline void usm__be_##fn(const usm__backend *be, void *h)                               \
    {                                                                                              \
        const usm__backend_calls *calls = usm__backend_decorated();                                \
                                                                                                   \
        calls ? calls->fn(be, h) : be->ops.fn(h);                                                  \
    }
#include "device/backend_ops.inc"

#endif
