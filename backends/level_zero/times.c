/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Times of commands on a common base: nanoseconds of the device's timer, without wrap-arounds.
 *
 * There are two counters.  The device's timer, read at each submission of a queue with profiling,
 * has timestampValidBits.  The start and end of a command have kernelTimestampValidBits of the same
 * timer, often fewer (32 bits of 52 ns are 223 s).  A stream's timeline continues the first counter
 * over its wrap-arounds; their number follows from the host's clock if nothing was submitted for a
 * long time.  The second counter is related to the submission.
 *
 * No driver call is made here.  Called by stream.c and event.c. */
#include "queue.h"

static uint64_t mask_of(uint32_t nbits)
{
    return nbits == 0 || nbits >= 64 ? UINT64_MAX : ((uint64_t)1 << nbits) - 1;
}

void lz_timeline_go_on(lz_timeline *t, const lz_device *dev, uint64_t ticks, uint64_t now_ns)
{
    uint64_t mask = mask_of(dev->properties.timestampValidBits);
    uint64_t step = (ticks - t->ticks) & mask;

    if (!t->has_begun) {
        *t = (lz_timeline){true, ticks, ticks, now_ns};
        return;
    }
    if (mask != UINT64_MAX && dev->tick_ns > 0) {
        uint64_t passed = (uint64_t)((double)(now_ns - t->host_ns) / dev->tick_ns);

        if (passed > step)
            step += (passed - step + mask / 2) / (mask + 1) * (mask + 1);
    }
    *t = (lz_timeline){true, ticks, t->total + step, now_ns};
}

/* A time just before the submission is due to the imprecision of the two readings. */
static uint64_t ticks_since(uint64_t from, uint64_t to, uint64_t mask)
{
    uint64_t passed = (to - from) & mask;

    return passed > mask - mask / 16 ? 0 : passed;
}

void lz_times_of(const lz_slot *slot, const ze_kernel_timestamp_result_t *t, usm_profiling *times)
{
    const lz_device *dev   = slot->dev;
    uint64_t         mask  = dev->timestamp_mask;
    uint64_t         start = slot->submit_total, end;

    if (t->global.kernelStart || t->global.kernelEnd) /* a driver may leave those of a marker at
                                                         0 */
        start += ticks_since(slot->submit_ticks, t->global.kernelStart, mask);
    end              = start + ((t->global.kernelEnd - t->global.kernelStart) & mask);
    times->submit_ns = (uint64_t)((double)slot->submit_total * dev->tick_ns);
    times->start_ns  = (uint64_t)((double)start * dev->tick_ns);
    times->end_ns    = (uint64_t)((double)end * dev->tick_ns);
}
