/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Handles of events as bytes; those of memory, which look much the same, are in handle.c:
 *
 *     0  magic "usm-ipce"     8  version     12  size of what follows
 *     16 usm__ipc_event_name      ...            zeros
 *     176 checksum of the 176 bytes before it, 128 bits
 *
 * Pure functions.  Called by event.c. */
#include "base/hash.h"
#include "ipc/event.h"

#include <string.h>

#define MAGIC   "usm-ipce"
#define VERSION 1u

typedef struct layout {
    char                magic[8];
    uint32_t            version, size;
    usm__ipc_event_name name;
    uint8_t             rest[176 - 16 - sizeof(usm__ipc_event_name)];
    uint64_t            sum[2];
} layout;

_Static_assert(sizeof(layout) == USM_IPC_HANDLE_SIZE, "a handle has no holes");

static void sum_up(const layout *l, uint64_t sum[2])
{
    usm__hash h = USM__HASH_INIT;

    usm__hash_add(&h, l, offsetof(layout, sum));
    sum[0] = h.hi;
    sum[1] = h.lo;
}

void usm__ipc_event_handle_encode(const usm__ipc_event_name *name, usm_ipc_handle *handle)
{
    layout l;

    memset(&l, 0, sizeof l);
    memcpy(l.magic, MAGIC, sizeof l.magic);
    l.version = VERSION;
    l.size    = sizeof *name;
    l.name    = *name;
    sum_up(&l, l.sum);
    memcpy(handle->bytes, &l, sizeof l);
}

usm_status usm__ipc_event_handle_decode(const usm_ipc_handle *handle, usm__ipc_event_name *name)
{
    layout   l;
    uint64_t sum[2];

    memcpy(&l, handle->bytes, sizeof l);
    if (memcmp(l.magic, MAGIC, 7) != 0)
        return usm__fail(USM_E_HANDLE, "these bytes are not a handle of libusm");
    if (l.magic[7] != MAGIC[7])
        return usm__fail(USM_E_HANDLE,
                         "this is not a handle of an event; memory is opened with usm_ipc_open()");
    if (l.version != VERSION || l.size != sizeof *name)
        return usm__fail(USM_E_HANDLE,
                         "the handle is of version %u, and this libusm knows version %u: both "
                         "processes need one version",
                         l.version, VERSION);
    sum_up(&l, sum);
    if (sum[0] != l.sum[0] || sum[1] != l.sum[1] || l.name.page.owner.pid <= 0 ||
        l.name.page.id == 0 || l.name.generation == 0 || l.name.index >= USM__CELLS)
        return usm__fail(USM_E_HANDLE,
                         "the handle was changed or cut short on its way: send all %d bytes",
                         USM_IPC_HANDLE_SIZE);
    *name = l.name;
    return USM_OK;
}
