/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The records of USM_TRACE about a chunk on its device (base/trace_work.h).  lane.c and run.c call
 * these functions, after they have checked that a trace is being recorded.
 *
 * Slots that are created while a trace is recorded have queues that measure times.  A device has a
 * clock of its own: the end of the last command is taken to be the moment when the library noticed
 * it, and the others are placed before it by their distance on the device's clock. */
#include "offload/run.h"

#include "base/os.h"
#include "base/trace_work.h"

void usm__lane_mark(usm__lane *s, int kind, uint64_t n, usm_event *ev)
{
    if (s->nmarks == USM__MARKS_MAX || usm_event_retain(ev) != USM_OK)
        return;
    s->marks[s->nmarks++] = (usm__mark){ev, n, kind};
}

static bool times_of(const usm__mark *m, usm_profiling *times)
{
    *times = (usm_profiling)USM_PROFILING_INIT;
    return m->event->has_times && usm_event_profiling(m->event, times) == USM_OK &&
           times->end_ns >= times->start_ns;
}

static uint64_t last_end(const usm__lane *s)
{
    uint64_t      last = 0;
    usm_profiling times;

    for (unsigned i = 0; i < s->nmarks; i++)
        if (times_of(&s->marks[i], &times) && times.end_ns > last)
            last = times.end_ns;
    return last;
}

static void put(const usm__lane *s, int kind, uint64_t n, uint64_t ns, uint64_t ago_ns)
{
    usm__trace_work(&(usm__trace_work_event){.kind   = (usm__trace_work_kind)kind,
                                             .member = s->member->trace,
                                             .kernel = s->run->params.plan->desc.kernel->trace,
                                             .first  = s->chunk.first,
                                             .n      = n,
                                             .ns     = ns,
                                             .ago_ns = ago_ns});
}

void usm__lane_notify_copy(const usm__lane *s, int kind, uint64_t n, uint64_t ns)
{
    put(s, kind, n, ns, 0);
}

void usm__lane_notify_marks(usm__lane *s, const usm__lane *of)
{
    uint64_t      last = last_end(of);
    usm_profiling times;

    for (unsigned i = 0; i < s->nmarks; i++) {
        const usm__mark *m = &s->marks[i];

        if (times_of(m, &times) && times.end_ns <= last) {
            put(s, m->kind, m->n, times.end_ns - times.start_ns, last - times.end_ns);
            s->has_kernel_times |= m->kind == USM__WORK_KERNEL;
        }
        usm_event_release(m->event);
    }
    s->nmarks = 0;
}

void usm__lane_notify_chunk(usm__lane *s, usm_status status)
{
    uint64_t now = usm__os_now_ns();
    uint64_t end = s->end_ns > 0 && s->end_ns < now ? s->end_ns : now;

    usm__quietly(usm__lane_notify_marks(s, s)); /* the message of the chunk's failure */
    if (status == USM_OK && !s->has_kernel_times)
        put(s, USM__WORK_KERNEL, s->chunk.count, s->compute_ns, now - end);
    put(s, status == USM_OK ? USM__WORK_CHUNK : USM__WORK_FAILED, s->chunk.count,
        end > s->began_ns ? end - s->began_ns : 0, now - end);
    s->has_kernel_times = false;
}
