/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory that buffers hold, wanted by an allocation: the core's hook point usm__area_out_of_memory.
 * Device memory is what extents keep there, host memory what frames keep; on a processor they are
 * one: then what was asked for goes first, and the other after it. */
#include "buffer/buffer.h"
#include "buffer/places.h"
#include "core/area.h"

size_t usm__buffers_give_back(usm_context *ctx, usm_device *dev, usm_kind kind, size_t size)
{
    usm__spill *spill = usm__spill_there(ctx);
    size_t      given = 0, index = 0;
    bool        is_host = usm__context_device_index(ctx, dev, &index) == USM_OK &&
                   usm__account_lacks_host(ctx, index, kind);

    if (kind == USM_HOST && spill)
        given = usm__spill_give_back(spill, size);
    if (given < size && (kind != USM_HOST || usm__device_is_host_memory(dev)))
        given += usm__places_give_back(ctx, dev, size - given);
    if (kind != USM_HOST && is_host && spill && given < size)
        given += usm__spill_give_back(spill, size - given);
    return given;
}
