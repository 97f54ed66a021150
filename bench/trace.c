/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A trace of allocations being written: identities of freed blocks are given out again, so that the
 * table of a replay stays small, and the totals are kept.  Called by synthetic.c. */
#include "workload.h"

#include <stdlib.h>

/* Sizes of the live blocks, and the identities that are free; parallel to the trace being
 * written, which is one at a time. */
static struct {
    uint64_t *size, *unused;
    size_t    capacity, nunused;
    uint64_t  live;
    bool      failed;
} writer;

static bool append(bench_trace *t, uint64_t id, uint64_t size)
{
    if (t->nevents == t->capacity) {
        size_t       more   = t->capacity ? 2 * t->capacity : 4096;
        bench_event *events = realloc(t->events, more * sizeof *events);

        if (!events)
            return false;
        t->events   = events;
        t->capacity = more;
    }
    t->events[t->nevents++] = (bench_event){id, size};
    return true;
}

static bool room_for_identity(const bench_trace *t)
{
    size_t    more = writer.capacity ? 2 * writer.capacity : 1024;
    uint64_t *grown;

    if (t->nids < writer.capacity)
        return true;
    if (!(grown = realloc(writer.size, more * sizeof *grown)))
        return false;
    writer.size = grown;
    if (!(grown = realloc(writer.unused, more * sizeof *grown)))
        return false;
    writer.unused   = grown;
    writer.capacity = more;
    return true;
}

uint64_t bench_trace_add(bench_trace *t, uint64_t size)
{
    uint64_t id;

    if (writer.failed || !room_for_identity(t)) {
        writer.failed = true;
        return 0;
    }
    id = writer.nunused > 0 ? writer.unused[--writer.nunused] : t->nids++;
    if (size == 0)
        size = 1; /* 0 means free */
    if (!append(t, id, size))
        writer.failed = true;
    writer.size[id] = size;
    writer.live += size;
    t->allocs++;
    if (writer.live > t->live_peak)
        t->live_peak = writer.live;
    return id;
}

void bench_trace_drop(bench_trace *t, uint64_t id)
{
    if (writer.failed || !append(t, id, 0)) {
        writer.failed = true;
        return;
    }
    writer.live -= writer.size[id];
    writer.size[id]                 = 0;
    writer.unused[writer.nunused++] = id;
}

bool bench_trace_finish(bench_trace *t)
{
    bool ok;

    for (uint64_t id = 0; id < t->nids && !writer.failed; id++)
        if (writer.size[id])
            bench_trace_drop(t, id);
    ok = !writer.failed;
    free(writer.size);
    free(writer.unused);
    writer.size = writer.unused = NULL;
    writer.capacity = writer.nunused = 0;
    writer.live                      = 0;
    writer.failed                    = false;
    return ok;
}

void bench_trace_clear(bench_trace *t)
{
    free(t->events);
    *t = (bench_trace){0};
}
