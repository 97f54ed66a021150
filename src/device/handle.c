/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The slow path of handle checks: the error message for an invalid handle.  Called by
 * usm__handle_check() in device/handle.h. */
#include "device/handle.h"

static const char *object_name(usm__magic magic)
{
    static const char *const names[] = {
        "object",  "device",      "context", "queue",   "event",     "pool",
        "program", "kernel",      "buffer",  "channel", "IPC event", "shared buffer",
        "team",    "team kernel", "launch",  "graph",   "template"};
    unsigned i = (unsigned)magic & 0xff;

    return magic != USM__MAGIC_DEAD && i < sizeof names / sizeof *names ? names[i] : names[0];
}

usm_status usm__handle_refuse(const void *h, usm__magic want)
{
    const char *name = object_name(want);
    uint32_t    found;

    if (!h)
        return usm__fail(USM_E_INVALID_HANDLE, "the %s is NULL; pass one that was created", name);
    if (((uintptr_t)h & 7) != 0)
        return usm__fail(USM_E_INVALID_HANDLE, "%p is no %s of libusm", h, name);
    found = usm_load_acquire((usm__magic_word *)(uintptr_t)h);
    if (found == (uint32_t)USM__MAGIC_DEAD)
        return usm__fail(USM_E_INVALID_HANDLE, "the %s %p was destroyed; do not use it after that",
                         name, h);
    if ((found & 0xffffff00u) == ((uint32_t)USM__MAGIC_DEVICE & 0xffffff00u))
        return usm__fail(USM_E_INVALID_HANDLE, "%p is a %s where %s %s is needed", h,
                         object_name((usm__magic)found),
                         name[0] == 'e' || name[0] == 'I' ? "an" : "a", name);
    return usm__fail(USM_E_INVALID_HANDLE, "%p is no %s of libusm", h, name);
}
