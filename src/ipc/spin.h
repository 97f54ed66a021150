/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How long to spin before sleeping.  At most a few microseconds: often the other process needs no
 * longer, and sleeping and being woken takes as long.  Where spinning was in vain recently (the
 * condition takes longer, or both processes are on one processor, which the other one then needs)
 * it is less, down to next to nothing; every 16th time it is tried in full again.  Called by
 * event_slot_wait.c and barrier.c. */
#ifndef USM_IPC_SPIN_H
#define USM_IPC_SPIN_H

#include "base/inline/atomic.h"
#include "base/os.h"

#define USM__SPIN_MOST_NS  5000u
#define USM__SPIN_LEAST_NS 150u

/* What this process has learnt from waits for the same processes: of a channel, or of a page of
 * events.  Two threads that change it at the same time may lose an update, which does no harm. */
typedef struct usm__spin {
    _Atomic(uint32_t) ns, tries;
} usm__spin;

#define USM__SPIN_INIT                                                                             \
    {                                                                                              \
        USM__SPIN_MOST_NS, 0                                                                       \
    }

/* How long to spin this time. */
static inline uint64_t usm__spin_ns(usm__spin *s)
{
    return usm_add_relaxed(&s->tries, 1u) % 16 == 0 ? USM__SPIN_MOST_NS : usm_load_relaxed(&s->ns);
}

static inline void usm__spin_result(usm__spin *s, bool has_come)
{
    const uint32_t ns = usm_load_relaxed(&s->ns);

    if (has_come && ns < USM__SPIN_MOST_NS)
        usm_store_relaxed(&s->ns, USM__SPIN_MOST_NS);
    else if (!has_come && ns > USM__SPIN_LEAST_NS)
        usm_store_relaxed(&s->ns, ns / 2);
}

#endif
