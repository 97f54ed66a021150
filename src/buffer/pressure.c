/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory that buffers hold, wanted by an allocation: the core's hook point usm__area_out_of_memory.
 * Device memory is what extents keep there, host memory what frames keep; on a processor they are
 * one: then what was asked for goes first, and the other after it.  And the other way round: frames
 * that are wanted, where extents of a processor hold what the limit allows. */
#include "buffer/buffer.h"
#include "buffer/places.h"
#include "buffer/slot.h"
#include "core/area.h"
#include "core/pool.h"

#define DEVICES 64

/* A device whose memory is the host's, and whether it gave any of it. */
static size_t ask_device(usm_device *dev, size_t bytes)
{
    return usm__device_is_host_memory(dev) ? usm__places_give_back(NULL, dev, bytes) : 0;
}

/* An extent that leaves may need a frame for its bytes: it is not to make others leave for that,
 * which would need frames in their turn. */
size_t usm__buffers_starved(usm_context *owner, size_t bytes)
{
    const usm__memory_of_pools host = {NULL, true, NULL};
    usm__open_table           *self = usm__slot_table();
    usm_device                *list[DEVICES];
    size_t                     n, given = 0;

    if (!self || self->is_giving)
        return 0;
    self->is_giving = true;
    given           = usm__pools_give_back(&host, NULL, bytes, true);
    n               = usm__places_devices(list, DEVICES);
    for (size_t i = 0; i < n && given < bytes; i++)
        given += ask_device(list[i], bytes - given);
    self->is_giving = false;
    (void)owner; /* what other contexts give is not counted against it, and does no harm */
    return given;
}

size_t usm__buffers_give_back(usm_context *ctx, usm_device *dev, usm_kind kind, size_t size)
{
    usm__spill *spill = usm__spill_there(ctx);
    size_t      given = 0, index = 0;
    bool        is_host = usm__context_device_index(ctx, dev, &index) == USM_OK &&
                   usm__account_lacks_host(ctx, index, kind);

    if (kind == USM_HOST && spill)
        given = usm__spill_give_back(spill, size, 0);
    if (given < size && (kind != USM_HOST || usm__device_is_host_memory(dev)))
        given += usm__places_give_back(ctx, dev, size - given);
    if (kind != USM_HOST && is_host && spill && given < size)
        given += usm__spill_give_back(spill, size - given, 0);
    return given;
}
