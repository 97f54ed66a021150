/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The events of launches over teams (usm/parallel.h) in USM_TRACE: each launch, each chunk on its
 * device, and the parts of the chunk: copies in, kernel, copies out.  Part of the event rings
 * (trace.h); like them, it costs one branch while nothing is recorded.  src/offload records the
 * events; src/profile reads them. */
#ifndef USM_BASE_TRACE_WORK_H
#define USM_BASE_TRACE_WORK_H

#include "base/trace_spill.h"

typedef enum usm__trace_work_kind {
    /* From the start of a launch to its end.  n: indices of the range; no member. */
    USM__WORK_LAUNCH = 0,
    /* A chunk, from its submission until its end was observed.  first, n: indices. */
    USM__WORK_CHUNK  = 1,
    USM__WORK_FAILED = 2,
    /* Parts of chunks, by the device's clock.  If it has none, only the kernel, from the end of the
     * previous chunk.  Copies that a thread of the library makes: by the host's clock.  n: bytes;
     * for the kernel indices. */
    USM__WORK_IN     = 3,
    USM__WORK_KERNEL = 4,
    USM__WORK_OUT    = 5,
    /* Commands of another runtime's queue (usm/trace.h), which is the member; as parts of chunks. */
    USM__WORK_QUEUE_KERNEL = 6,
    USM__WORK_QUEUE_COPY   = 7,
    USM__WORK_QUEUE_FILL   = 8,
    USM__WORK_QUEUE_MAP    = 9,
    /* What a launch or a node of a graph has used, on a member.  n: microjoules.  Without member and
     * kernel: what was drawn while the processors of the team did nothing.  STATED: not measured,
     * but from USM_WATTS. */
    USM__WORK_ENERGY        = 10,
    USM__WORK_ENERGY_STATED = 11,
    USM__WORK_KINDS         = 12
} usm__trace_work_kind;

typedef struct usm__trace_work_event {
    usm__trace_work_kind kind;
    uint32_t             member; /* of usm__trace_member(); 0: none, or unknown */
    uint32_t             kernel; /* of usm__trace_kernel(); 0: unknown          */
    uint64_t             first;  /* of a chunk                                  */
    uint64_t             n;
    uint64_t             ns;          /* duration                          */
    uint64_t             ago_ns;      /* of a part: the time since its end */
    bool                 is_in_order; /* of a queue's command: it overlaps no other one */
} usm__trace_work_event;

/* Return a name's number in the file, > 0; 0: tracing is off, or there are too many.  A member has
 * the same number in all teams. */
uint32_t usm__trace_member(const char *name);
uint32_t usm__trace_kernel(const char *name);

void usm__trace_work_put(const usm__trace_work_event *e);

static inline void usm__trace_work(const usm__trace_work_event *e)
{
    if (usm__trace_is_on())
        usm__trace_work_put(e);
}

#endif
