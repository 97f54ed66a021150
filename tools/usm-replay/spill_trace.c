/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-replay --spill: the spilling that USM_TRACE recorded, as accesses to blocks.  A trace has
 * every miss and every first use of a block read ahead, but hits only as the use marks that the
 * engine's scans found: enough to compare memory sizes that are not much larger than the recorded
 * one. */
#include "spill.h"

#include "base/trace_spill.h"
#include "profile/trace.h"

#include <stdio.h>
#include <stdlib.h>

/* Numbers the blocks of all spaces: the first of each space; the total at the end.  NULL: no
 * memory. */
static uint64_t *number_blocks(const usm__profile *t)
{
    uint64_t *first = calloc(t->nspaces + 1, sizeof *first);

    for (size_t i = 0; first && i < t->nspaces; i++)
        first[i + 1] = first[i] + t->spaces[i].blocks;
    return first;
}

static bool is_access(const usm__profile_spill_record *r)
{
    return r->space != 0 && (r->kind == USM__SPILL_MISS || r->kind == USM__SPILL_GUESS_USED ||
                             r->kind == USM__SPILL_USED);
}

static bool add(spill_workload *w, const usm__profile *t, const usm__profile_spill_record *r,
                const uint64_t *first)
{
    const usm__profile_space_info *space = &t->spaces[r->space - 1];
    uint64_t                       n     = 1;
    bool                           good  = true;

    if (r->kind == USM__SPILL_MISS && space->block_size) /* it may cover several blocks */
        n = (r->bytes + space->block_size - 1) / space->block_size;
    /* An access that waits for a block read ahead is recorded twice: the block was used, the access
     * waited. */
    if (w->n > 0 && w->accesses[w->n - 1].block == first[r->space - 1] + r->block)
        return true;
    for (uint64_t b = r->block; good && b < r->block + (n ? n : 1) && b < space->blocks; b++)
        good = spill_workload_add(w, (uint32_t)(first[r->space - 1] + b),
                                  r->mode ? r->mode : USM_READ);
    return good;
}

static bool take_in(spill_workload *w, const usm__profile *t, const uint64_t *first)
{
    bool good = true;

    for (size_t i = 0; i < t->nspaces && good; i++) {
        good = spill_workload_range(w, (uint32_t)first[i], (uint32_t)t->spaces[i].blocks);
        if (t->spaces[i].block_size > w->block_size)
            w->block_size = t->spaces[i].block_size;
    }
    for (size_t i = 0; i < t->nspills && good; i++)
        if (is_access(&t->spills[i]))
            good = add(w, t, &t->spills[i], first);
    w->blocks      = (uint32_t)first[t->nspaces];
    w->is_recorded = true;
    w->lost        = t->lost;
    w->nphases     = 1;
    w->phases[0]   = (spill_phase){.name = "trace", .end = w->n};
    return good;
}

bool spill_workload_read(spill_workload *w, const char *path, char *why, size_t why_size)
{
    usm__profile *t = NULL;
    uint64_t     *first;
    bool          good;

    if (usm__profile_open(path, &t) != USM_OK) {
        snprintf(why, why_size, "%s; it is not a name of a workload either (--spill=list)",
                 usm_last_error());
        return false;
    }
    first = number_blocks(t);
    good  = first && first[t->nspaces] < UINT32_MAX && take_in(w, t, first);
    if (!good)
        snprintf(why, why_size, "%s: no memory for its blocks", path);
    if (good && w->n == 0) {
        good = false;
        snprintf(why, why_size, "%s: nothing in it is about spilling", path);
    }
    if (good && t->damage[0])
        fprintf(stderr, "usm-replay: %s: %s; replayed is what can be read\n", path, t->damage);
    free(first);
    usm__profile_close(t);
    return good;
}
