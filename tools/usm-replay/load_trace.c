/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Traces of libusm.  src/profile/blocks.c matches frees and allocations; this file converts births
 * and deaths of blocks to operations, in the order of the events. */
#include "profile/blocks.h"
#include "replay.h"

#include "base/inline/plural.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A birth or a death. */
typedef struct moment {
    uint32_t record, block;
    bool     dies;
} moment;

static int by_record(const void *a, const void *b)
{
    const moment *x = a, *y = b;

    if (x->record != y->record)
        return x->record < y->record ? -1 : 1;
    return (int)y->dies - (int)x->dies; /* an address is freed before it is allocated again */
}

static bool wanted(const usm__profile *t, const usm__profile_block *b, uint32_t only_pool)
{
    return only_pool == 0 || t->records[b->born].e.pool == only_pool;
}

static size_t collect(const usm__profile *t, const usm__profile_blocks *found, uint32_t only_pool,
                      moment *moments)
{
    size_t n = 0;

    for (uint32_t k = 0; k < found->nblocks; k++) {
        if (!wanted(t, &found->blocks[k], only_pool))
            continue;
        moments[n++] = (moment){found->blocks[k].born, k, false};
        if (found->blocks[k].died != USM__NEVER)
            moments[n++] = (moment){found->blocks[k].died, k, true};
    }
    qsort(moments, n, sizeof *moments, by_record);
    return n;
}

static bool add(loader *l, const usm__profile *t, const usm__profile_blocks *found,
                const moment *moments, size_t n)
{
    replay_log *log  = loader_log(l);
    uint64_t    live = 0;
    bool        good = true;

    for (size_t i = 0; i < n && good; i++) {
        const moment             *m = &moments[i];
        const usm__profile_block *b = &found->blocks[m->block];

        live = m->dies ? live - b->size : live + b->size;
        if (live > log->live_peak)
            log->live_peak = live;
        good = loader_add(l, m->dies ? REPLAY_FREE : b->size, m->block,
                          t->records[m->record].thread, m->record);
    }
    return good;
}

static bool take_in(loader *l, const usm__profile *t, uint32_t only_pool)
{
    usm__profile_blocks *found   = NULL;
    moment              *moments = NULL;
    replay_log          *log     = loader_log(l);
    bool                 good    = usm__profile_blocks_find(t, &found) == 0;

    if (good)
        moments = malloc((found->nblocks * 2 + 1) * sizeof *moments);
    good = moments && add(l, t, found, moments, collect(t, found, only_pool, moments));
    if (good) {
        log->blocks    = (uint32_t)found->nblocks;
        log->unmatched = found->unmatched;
        for (size_t i = 0; i < t->nrecords; i++)
            if (t->records[i].e.type == USM__EVENT_FAILED &&
                (only_pool == 0 || t->records[i].e.pool == only_pool))
                loader_failed(l);
    }
    free(moments);
    usm__profile_blocks_free(found);
    return good;
}

bool log_read_trace(loader *l, const char *path, uint32_t only_pool, char *why, size_t why_size)
{
    usm__profile *t   = NULL;
    replay_log   *log = loader_log(l);
    bool          good;

    if (usm__profile_open(path, &t) != USM_OK) {
        snprintf(why, why_size, "%s", usm_last_error());
        return false;
    }
    good = take_in(l, t, only_pool);
    if (!good)
        snprintf(why, why_size, "%s: no memory for a trace of this size", path);
    if (t->damage[0])
        snprintf(log->damage, sizeof log->damage, "%s", t->damage);
    else if (t->lost)
        snprintf(log->damage, sizeof log->damage, "%llu %s lost when it was written",
                 (unsigned long long)t->lost, usm__plural(t->lost, "event was", "events were"));
    usm__profile_close(t);
    return good;
}
