/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* An allocation needs memory that buffers hold: the core's hook point usm__area_out_of_memory.
 * Extents keep device memory, frames keep host memory.  On a processor both are the same memory:
 * then the kind that was asked for is freed first, and the other kind after it.  Also the reverse:
 * frames are needed, and extents of a processor hold the memory that the limit allows. */
#include "buffer/buffer.h"
#include "buffer/locations.h"
#include "buffer/slot.h"
#include "heap/area.h"
#include "heap/pool.h"

#define DEVICES 64

/* Asks a device for memory, if its memory is the host's; returns how much it freed. */
static size_t ask_device(usm_device *dev, size_t bytes)
{
    return usm__quota_is_host_memory(dev) ? usm__locations_give_back(NULL, dev, bytes) : 0;
}

/* The eviction of an extent may need a frame for its bytes.  To get it, the thread must not evict
 * other extents, which would need frames in turn. */
size_t usm__buffers_starved(usm_context *owner, size_t bytes)
{
    const usm__pools_memory host = {NULL, true, NULL};
    usm__open_table        *self = usm__slot_table();
    usm_device             *list[DEVICES];
    size_t                  n, given = 0;

    if (!self || self->is_giving)
        return 0;
    self->is_giving = true;
    given           = usm__pools_give_back(&host, NULL, bytes, true);
    n               = usm__locations_devices(list, DEVICES);
    for (size_t i = 0; i < n && given < bytes; i++)
        given += ask_device(list[i], bytes - given);
    self->is_giving = false;
    (void)owner; /* memory freed by other contexts does not help this limit, and does no harm */
    return given;
}

size_t usm__buffers_give_back(usm_context *ctx, usm_device *dev, usm_kind kind, size_t size)
{
    usm__spill *spill = usm__spill_there(ctx);
    size_t      given = 0, index = 0;
    bool        is_host = usm__context_device_index(ctx, dev, &index) == USM_OK &&
                   usm__quota_lacks_host(ctx, index, kind);

    if (kind == USM_HOST && spill)
        given = usm__spill_give_back(spill, size, 0);
    if (given < size && (kind != USM_HOST || usm__quota_is_host_memory(dev)))
        given += usm__locations_give_back(ctx, dev, size - given);
    if (kind != USM_HOST && is_host && spill && given < size)
        given += usm__spill_give_back(spill, size - given, 0);
    return given;
}
