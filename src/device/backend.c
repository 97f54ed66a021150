/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Accepting a backend's table of functions.  ABI and names are checked.  An optional group is
 * present with all its functions or absent.  Absent slots get typed stubs, so that no caller tests
 * for NULL.  Called by device/registry.c. */
#include "device/backend.h"

#include "base/status.h"

#include <string.h>

static usm_status absent(void)
{
    return usm__fail(USM_E_NOT_SUPPORTED, "the backend does not offer this; see usm-info");
}

/* A stub for each function. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define CALL(cap, group, fn, size, params, args)                                                   \
    static usm_status no_##fn params                                                               \
    {                                                                                              \
        return absent();                                                                           \
    }
#define VOID(cap, group, fn)                                                                       \
    static void no_##fn(void *h)                                                                   \
    {                                                                                              \
    }
#include "device/backend_ops.inc"
#pragma GCC diagnostic pop

typedef void any_fn(void);

/* A slot of the table: required if `cap` is 0 or among the backend's, a stub otherwise. */
static const struct slot {
    uint32_t    cap;
    const char *group, *name;
    size_t      offset; /* in usm_backend_ops; all pointers to functions have one size and layout */
    any_fn     *stub;
} slots[] = {
#define CALL(cap, group, fn, size, params, args)                                                   \
    {(cap), (group), #fn, offsetof(usm_backend_ops, fn), (any_fn *)no_##fn},
#define VOID(cap, group, fn)                                                                       \
    {(cap), (group), #fn, offsetof(usm_backend_ops, fn), (any_fn *)no_##fn},
#include "device/backend_ops.inc"
};

_Static_assert(sizeof slots / sizeof *slots * sizeof(any_fn *) ==
                   sizeof(usm_backend_ops) - offsetof(usm_backend_ops, devices),
               "backend_ops.inc lists every function of usm_backend_ops");

static usm_status fill_slot(usm_backend_ops *ops, const struct slot *s)
{
    char   *at = (char *)ops + s->offset;
    any_fn *fn;

    memcpy(&fn, at, sizeof fn);
    if (s->cap && !(ops->caps & s->cap))
        memcpy(at, &s->stub, sizeof s->stub);
    else if (!fn && s->cap)
        return usm__fail(USM_E_INVALID, "backend %s promises the group %s but lacks %s", ops->name,
                         s->group, s->name);
    else if (!fn)
        return usm__fail(USM_E_INVALID, "backend %s lacks %s, which all need", ops->name, s->name);
    return USM_OK;
}

usm_status usm__backend_init(usm__backend *be, const usm_backend_ops *given)
{
    usm_backend_ops ops;
    usm_status      st;

    if (given->abi != USM_MODULE_ABI || given->struct_size != sizeof ops)
        return usm__fail(USM_E_ABI,
                         "the backend was built for module ABI %u with a table of %u bytes, this "
                         "libusm has ABI %u and %zu; build both from one release",
                         given->abi, given->struct_size, USM_MODULE_ABI, sizeof ops);
    ops = *given;
    if (!ops.name || !*ops.name || strlen(ops.name) > 31)
        return usm__fail(USM_E_INVALID, "a backend has no name of 1 to 31 characters");
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        st = fill_slot(&ops, &slots[i]);
        if (st != USM_OK)
            return st;
    }
    be->ops  = ops;
    be->name = ops.name;
    return USM_OK;
}
