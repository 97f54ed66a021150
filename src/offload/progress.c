/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The values that the caller's progress function gets: a fraction that never falls, and a rate that
 * is a moving average of what was done between calls.  It is called as chunks end, at most once
 * every `progress_ms`, and once at the end. */
#include "offload/parallel.h"

#include "base/os.h"

#define EVERY_MS 200u

usm_status usm__notifier_init(usm__notifier *t, const usm__plan *plan, uint32_t nmembers,
                              uint64_t now_ns)
{
    const usm_parallel_desc *d = &plan->desc;

    *t = (usm__notifier){.fn       = d->progress,
                         .user     = d->progress_user,
                         .every_ns = (d->progress_ms ? d->progress_ms : EVERY_MS) * 1000000ull,
                         .start_ns = now_ns,
                         .last_ns  = now_ns,
                         .nmembers = nmembers};
    if (!t->fn)
        return USM_OK;
    t->shares = usm__heap_alloc(nmembers * sizeof *t->shares);
    return t->shares ? USM_OK : usm__fail(USM_E_NO_MEMORY, "no host memory to report progress");
}

void usm__notifier_fini(usm__notifier *t)
{
    usm__heap_free(t->shares);
    t->shares = NULL;
}

void usm__notifier_set_shares(usm__notifier *t, const usm__ledger_part *parts)
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < t->nmembers; i++)
        all += parts[i].items;
    for (uint32_t i = 0; i < t->nmembers; i++)
        t->shares[i] = all ? (double)parts[i].items / (double)all : 0;
}

bool usm__notifier_notify(usm__notifier *t, const usm__notified *notified)
{
    usm_progress p        = {.nmembers    = t->nmembers,
                             .shares      = t->shares,
                             .chunks      = notified->chunks,
                             .rescheduled = notified->rescheduled,
                             .left        = -1};
    double       done     = (double)notified->done;
    double       recently = (double)(notified->now_ns - t->last_ns) * 1e-9;
    double reached = notified->is_end || notified->total == 0 ? 1 : done / (double)notified->total;

    if (recently > 0 && done > t->last_done) {
        double rate = (done - t->last_done) / recently;

        t->rate = t->rate > 0 ? (t->rate + rate) / 2 : rate;
    }
    t->last_ns   = notified->now_ns;
    t->last_done = done;
    if (reached > t->fraction)
        t->fraction = reached;
    p.fraction = t->fraction;
    p.rate     = t->rate;
    p.seconds  = (double)(notified->now_ns - t->start_ns) * 1e-9;
    if (notified->is_end)
        p.left = 0;
    else if (t->rate > 0)
        p.left = ((double)notified->total - done) / t->rate;
    return t->fn(&p, t->user);
}
