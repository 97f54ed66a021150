/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The decorators, made of device/backend_ops.inc.  The outer layer traces, delays and fails; the
 * inner one calls the backend, directly or through the checker of stream order, which therefore
 * sees only calls that were made. */
#include "observe/decorate.h"

#include "base/inline/atomic.h"
#include "observe/hooks.h"

/* ---- the inner layer ---------------------------------------------------------- */

#define CALL(cap, group, fn, size, params, args)                                                   \
    static usm_status bare_##fn(const usm__backend *be, USM__BARE params)                          \
    {                                                                                              \
        return be->ops.fn args;                                                                    \
    }
#define VOID(cap, group, fn)                                                                       \
    static void bare_##fn(const usm__backend *be, void *h)                                         \
    {                                                                                              \
        be->ops.fn(h);                                                                             \
    }
#include "device/backend_ops.inc"

static const usm__backend_calls bare = {
#define CALL(cap, group, fn, size, params, args) .fn = bare_##fn,
#define VOID(cap, group, fn)                     .fn = bare_##fn,
#include "device/backend_ops.inc"
};

/* ---- the outer layer ---------------------------------------------------------- */

#define CALL(cap, group, fn, size, params, args)                                                   \
    static usm_status hooked_##fn(const usm__backend *be, USM__BARE params)                        \
    {                                                                                              \
        uint64_t   start = 0;                                                                      \
        usm_status st    = usm__hook_enter(be->name, #fn, &start);                                 \
                                                                                                   \
        if (st == USM_OK)                                                                          \
            st = usm__hooks.inner.fn(be, USM__BARE args);                                          \
        usm__hook_leave(be->name, #fn, start, (size), st);                                         \
        return st;                                                                                 \
    }
/* An injected fault lets a wait fail only after it has waited: if a wait returned at once, the
 * caller could not free memory that commands still use. */
#define WAIT(cap, group, fn)                                                                       \
    static usm_status hooked_##fn(const usm__backend *be, void *h)                                 \
    {                                                                                              \
        uint64_t   start    = 0;                                                                   \
        usm_status injected = usm__hook_enter(be->name, #fn, &start);                              \
        usm_status st       = usm__hooks.inner.fn(be, h);                                          \
                                                                                                   \
        st = injected != USM_OK ? injected : st;                                                   \
        usm__hook_leave(be->name, #fn, start, 0, st);                                              \
        return st;                                                                                 \
    }
#define VOID(cap, group, fn)                                                                       \
    static void hooked_##fn(const usm__backend *be, void *h)                                       \
    {                                                                                              \
        uint64_t start = 0;                                                                        \
                                                                                                   \
        (void)usm__hook_enter(be->name, #fn "!", &start);                                          \
        usm__hooks.inner.fn(be, h);                                                                \
        usm__hook_leave(be->name, #fn, start, 0, USM_OK);                                          \
    }
#define SURE(cap, group, fn, size, params, args)                                                   \
    static usm_status hooked_##fn(const usm__backend *be, USM__BARE params)                        \
    {                                                                                              \
        uint64_t   start = 0;                                                                      \
        usm_status st;                                                                             \
                                                                                                   \
        (void)usm__hook_enter(be->name, #fn "!", &start);                                          \
        st = usm__hooks.inner.fn(be, USM__BARE args);                                              \
        usm__hook_leave(be->name, #fn, start, (size), st);                                         \
        return st;                                                                                 \
    }
#include "device/backend_ops.inc"

static const usm__backend_calls outer = {
#define CALL(cap, group, fn, size, params, args) .fn = hooked_##fn,
#define VOID(cap, group, fn)                     .fn = hooked_##fn,
#include "device/backend_ops.inc"
};

void usm__decorate(bool with_order)
{
    usm__hooks.inner = bare;
    if (with_order)
        usm__order_decorate(&usm__hooks.inner);
    usm_store_release(&usm__observers.decorators, &outer);
}
