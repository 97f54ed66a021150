/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which indices of a launch's range are wanted, free and done (schedule.c): indices that an earlier
 * launch did are skipped, and indices that nobody wants any more are cut off. */
#include "offload/schedule_private.h"

#include "base/os.h"

#include <string.h>

/* Index of the fresh range that contains `first`; nfresh: none does. */
static size_t find_fresh(const usm__schedule *s, uint64_t first)
{
    size_t low = s->at, high = s->nfresh;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (s->fresh[middle].end <= first)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->nfresh && s->fresh[low].first <= first ? low : s->nfresh;
}

bool usm__schedule_skip(usm__schedule *s, uint64_t first, uint64_t count)
{
    uint64_t end = first + count;
    size_t   i   = find_fresh(s, first);
    range    r;

    if (count == 0 || end < first || end > s->p.total || first % s->p.multiple != 0 ||
        (end % s->p.multiple != 0 && end != s->p.total))
        return false;
    if (i == s->nfresh || end > s->fresh[i].end ||
        !usm__heap_room(&s->fresh, s->nfresh, &s->fresh_cap, sizeof(*s->fresh)))
        return false;
    r = s->fresh[i];
    if (r.first < first && end < r.end) {
        memmove(&s->fresh[i + 1], &s->fresh[i], (s->nfresh++ - i) * sizeof(r));
        s->fresh[i].end       = first;
        s->fresh[i + 1].first = end;
    } else if (r.first < first) {
        s->fresh[i].end = first;
    } else if (end < r.end) {
        s->fresh[i].first = end;
    } else {
        memmove(&s->fresh[i], &s->fresh[i + 1], (--s->nfresh - i) * sizeof(r));
    }
    s->fresh_left -= count;
    s->stats.done += count;
    return true;
}

/* --- questions ------------------------------------------------------------------------------- */

void usm__schedule_cut(usm__schedule *s, uint64_t first)
{
    uint64_t limit = usm__round_up(first, s->p.multiple);

    if (limit >= s->limit)
        return;
    s->limit = limit;
    while (s->back.tail != USM__NO_RECORD && !usm__is_wanted(s, &s->records[s->back.tail]))
        usm__schedule_record_release(s, s->back.tail);
    s->fresh_left = s->back_left = s->live = 0;
    for (size_t i = s->at; i < s->nfresh && s->fresh[i].first < limit; i++)
        s->fresh_left += (s->fresh[i].end < limit ? s->fresh[i].end : limit) - s->fresh[i].first;
    for (uint32_t i = 0; i < s->nrecords; i++) {
        const record *r = &s->records[i];

        if (r->state == RECORD_UNUSED || !usm__is_wanted(s, r))
            continue;
        s->live++;
        if (r->state == RECORD_BACK)
            s->back_left += r->count;
    }
}

bool usm__schedule_is_over(const usm__schedule *s)
{
    return s->fresh_left == 0 && s->live == 0;
}

void usm__schedule_get_stats(const usm__schedule *s, usm__schedule_stats *stats)
{
    *stats = s->stats;
}

double usm__schedule_speed(const usm__schedule *s, uint32_t w)
{
    return w < s->p.nworkers ? s->members[w].speed : 0;
}

uint64_t usm__schedule_remaining(const usm__schedule *s)
{
    return s->fresh_left + s->back_left;
}

/* Writes the ranges of records that are not done to s->scratch, in order. */
static size_t sort_records(const usm__schedule *s)
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->nrecords; i++) {
        const record *r = &s->records[i];
        size_t        k = n;

        if (r->state == RECORD_UNUSED)
            continue;
        for (; k > 0 && s->scratch[k - 1].first > r->first; k--)
            s->scratch[k] = s->scratch[k - 1];
        s->scratch[k] = (range){r->first, r->first + r->count};
        n++;
    }
    return n;
}

size_t usm__schedule_done_ranges(const usm__schedule *s, uint64_t (*ranges)[2], size_t cap)
{
    size_t   nscratch = sort_records(s), i = 0, k = s->at, n = 0;
    uint64_t at = 0;

    while (at < s->limit) {
        bool is_record =
            i < nscratch && (k >= s->nfresh || s->scratch[i].first < s->fresh[k].first);
        range gap = {s->limit, s->limit};

        if (is_record)
            gap = s->scratch[i++];
        else if (k < s->nfresh)
            gap = s->fresh[k++];
        if (gap.first > s->limit)
            gap.first = s->limit;
        if (gap.first > at) {
            if (n < cap) {
                ranges[n][0] = at;
                ranges[n][1] = gap.first;
            }
            n++;
        }
        at = gap.end;
    }
    return n;
}
