/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The memory of the engine's records counts against the memory limit, too: those of buffers, of
 * blocks, and of their copies on tiers with the checksums.  65,536 buffers of 8 KiB have 8 MiB of
 * them, an eighth of the limit of 64 MiB that such buffers may be used with.
 *
 *     records          bytes; each file that makes a record adds its size, and takes it off again
 *     record_frames    frames that have no memory, but stay charged: they pay for the records
 *
 * The records are made first, and paid for afterwards: by the next frame that is free, or by the
 * next that would be taken from the memory accounting (frame.c).  So making a record neither waits
 * nor fails.  Where accesses pin everything else, a frame that pays is used all the same: what the
 * limit allows to be accessed at once does not depend on the number of buffers.
 *
 * A little is free, so that few buffers may have the whole limit: a 256th of it, 64 KiB at least.
 * An eighth of the frames never pays. */
#include "base/inline/bits.h"
#include "heap/area.h"
#include "spill/internal.h"

#define FREE_SHARE  256
#define FREE_LEAST  ((size_t)64 << 10)
#define FRAME_SHARE 8

uint32_t usm__records_frames(usm__spill *s)
{
    uint64_t bytes = usm_load_relaxed(&s->records);
    uint64_t free  = usm_max_size((size_t)(s->limit / FREE_SHARE), FREE_LEAST);
    uint64_t most  = s->frames.count - (s->frames.count + FRAME_SHARE - 1) / FRAME_SHARE;
    uint64_t n     = bytes > free ? (bytes - free + s->block_size - 1) >> s->shift : 0;

    return (uint32_t)(n < most ? n : most);
}

void usm__spill_add_record(usm__spill *s, size_t bytes)
{
    usm_add_relaxed(&s->records, (uint64_t)bytes);
}

void usm__spill_drop_record(usm__spill *s, size_t bytes)
{
    uint32_t n = 0;

    usm_sub_relaxed(&s->records, (uint64_t)bytes);
    if (usm_load_relaxed(&s->record_frames) <= usm__records_frames(s))
        return;
    usm__mutex_lock(&s->lock);
    for (uint32_t need = usm__records_frames(s); s->record_frames > need; n++)
        s->record_frames--;
    usm__quota_sub_host(s->owner, (size_t)n << s->shift);
    usm__spill_changed(s);
    usm__mutex_unlock(&s->lock);
}
