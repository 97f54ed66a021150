/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm_parallel() and the calls it consists of: start, wait, cancel, release.  ledger.c and run.c do
 * the work between start and end; over a job, ranks.c does. */
#include "offload/launch_sim.h"
#include "offload/launches.h"
#include "offload/ranks.h"
#include "offload/tune.h"
#include "offload/watts.h"

#include "base/inline/clock.h"
#include "base/os.h"
#include "command/event.h"

#include <string.h>

static usm__meta_type launch_type =
    USM__META_TYPE(struct usm_parallel_run, sizeof(usm__magic_word), "launches");

static usm_status check(usm_parallel_run *r)
{
    usm_status st = usm__handle_check(r, USM__MAGIC_LAUNCH);

    return st == USM_OK ? usm__team_check_fork(r->team) : st;
}

/* ---- start ------------------------------------------------------------------------------- */

/* Finds the power that each member draws while it computes. */
static usm_status ask_watts(const usm_team *team, double *watts)
{
    usm_status st = USM_OK;

    for (uint32_t i = 0; st == USM_OK && i < team->nmembers; i++)
        st = usm__watts_ask(team->members[i].name, &watts[i]);
    return st;
}

static usm_status make_schedule(usm_parallel_run *r)
{
    const usm__plan     *p      = r->plan;
    usm_team            *team   = r->team;
    double              *watts  = usm__heap_alloc(team->nmembers * sizeof *watts);
    usm__schedule_params params = {.total            = p->total,
                                   .multiple         = p->multiple,
                                   .min_chunk        = p->desc.min_chunk,
                                   .max_chunk        = usm__tune_max_chunk(p),
                                   .nworkers         = team->nmembers,
                                   .depth            = team->depth,
                                   .batch            = USM__TRAIN_MAX,
                                   .policy           = p->policy,
                                   .numbers          = p->desc.policy.numbers,
                                   .nnumbers         = p->desc.policy.nnumbers,
                                   .weights          = p->desc.policy.weights,
                                   .watts            = watts,
                                   .may_repeat       = p->may_repeat,
                                   .least_silence_ns = usm__plan_silence_ns(p),
                                   .never_twice      = true};
    usm_status           st     = USM_OK;

    if (!watts)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a launch");
    if (p->policy == usm__chunk_policy_find("energy"))
        st = ask_watts(team, watts);
    if (st == USM_OK && team->trial)
        st = usm__trial_begin(team->trial, p, &params);
    if (st == USM_OK)
        st = usm__chunk_policy_check(&params);
    if (st == USM_OK) {
        r->schedule = usm__schedule_create(&params);
        if (!r->schedule)
            st = usm__fail(USM_E_NO_MEMORY, "no host memory for a launch");
    }
    for (uint32_t i = 0; st == USM_OK && i < team->nmembers; i++)
        if (!usm__chunk_policy_takes(&params, i))
            (void)usm__schedule_set_aside(r->schedule, i);
    usm__heap_free(watts);
    return st;
}

/* Excludes members that take no part, besides those that the policy excludes. */
static usm_status leave_out(usm_parallel_run *r)
{
    bool is_any = true;

    for (uint32_t i = 0; i < r->team->nmembers; i++)
        if (!usm__run_has(r->run, i))
            is_any = usm__schedule_set_aside(r->schedule, i);
    if (is_any)
        return USM_OK;
    return usm__fail(USM_E_NO_DEVICE,
                     "no member of the team is left for kernel \"%s\": all that run it were set "
                     "aside, are lost, or are left out by the policy",
                     r->plan->desc.kernel->name);
}

static usm_status make_trees(usm_parallel_run *r)
{
    const usm_parallel_desc *d = &r->plan->desc;

    r->trees = usm__heap_alloc((d->nargs ? d->nargs : 1) * sizeof(usm__tree *));
    if (!r->trees)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a launch");
    for (size_t i = 0; i < d->nargs; i++)
        if (d->args[i].follow == USM_FOLLOW_PRIVATE && d->args[i].merge != USM_MERGE_NONE) {
            r->trees[i] = usm__tree_create(&d->args[i], r->plan->total);
            if (!r->trees[i])
                return usm_last_status();
            r->keeps = true;
        }
    return USM_OK;
}

/* Takes over a chunk that ended in an earlier process. */
static bool take_up(void *arg, uint64_t first, uint64_t count, const void *copies, usm_status *st)
{
    usm_parallel_run *r = arg;

    if (!usm__schedule_skip(r->schedule, first, count))
        return false;
    r->resumed++;
    for (size_t i = 0; i < r->plan->desc.nargs; i++) {
        const usm_split_arg *a = &r->plan->desc.args[i];
        size_t               at;
        uint64_t             from;

        if (!r->trees[i])
            continue;
        (void)usm__plan_copies(r->plan, count, i, &at);
        *st = usm__tree_add(r->trees[i], first, count, (const char *)copies + at);
        if (*st != USM_OK)
            return false;
        if (a->merge == USM_MERGE_FIRST &&
            usm__merge_cuts(a, &(usm__chunk){.first = first, .count = count},
                            (const char *)copies + at, &from) &&
            from < r->cut) {
            r->cut = from;
            usm__schedule_cut(r->schedule, from);
        }
    }
    return true;
}

static usm_status fill(usm_parallel_run *r)
{
    usm__run_params params = {.team      = r->team,
                              .plan      = r->plan,
                              .bytes     = &usm__bytes_local,
                              .from      = r->plan,
                              .take      = usm__ledger_take,
                              .take_more = usm__ledger_take_more,
                              .ended     = usm__ledger_ended,
                              .again     = usm__ledger_again,
                              .source    = r};
    usm_status      st;

    r->parts = usm__heap_alloc(r->team->nmembers * sizeof *r->parts);
    if (!r->parts)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a launch");
    st = usm__notifier_init(&r->notifier, r->plan, r->team->nmembers, r->start_ns);
    if (st == USM_OK)
        st = make_schedule(r);
    if (st == USM_OK)
        st = make_trees(r);
    if (st == USM_OK && r->plan->desc.resume) {
        st       = usm__resume_open(r->plan, take_up, r, &r->resume);
        r->keeps = true;
    }
    if (st == USM_OK && r->resume && usm__resume_keeps_ns(r->resume)) {
        params.keep_ns = usm__resume_keeps_ns(r->resume);
        params.keep    = usm__ledger_keep;
        params.bring   = usm__ledger_bring;
    }
    if (st == USM_OK)
        st = usm__meter_open(r->team->meter, 1, &r->metering);
    if (st == USM_OK)
        st = usm__run_create(&params, &r->run);
    return st == USM_OK ? leave_out(r) : st;
}

static void discard(usm_parallel_run *r)
{
    usm__launches_remove(r);
    usm__ranks_release(r->launch);
    usm__meter_close(r->team->meter, &r->metering);
    usm__run_destroy(r->run);
    for (size_t i = 0; r->trees && i < r->plan->desc.nargs; i++)
        usm__tree_destroy(r->trees[i]);
    usm__heap_free(r->trees);
    usm__resume_close(r->resume, false);
    usm__schedule_destroy(r->schedule);
    usm__notifier_fini(&r->notifier);
    usm__heap_free(r->parts);
    while (r->spare) {
        usm__ended *e = r->spare;

        r->spare = e->next;
        usm__heap_free(e->copies);
        usm__heap_free(e);
    }
    usm_event_release(r->event);
    usm__plan_free(r->plan);
    usm__mutex_fini(&r->lock);
    (void)pthread_cond_destroy(&r->ends);
    usm__team_leave(r->team);
    usm__meta_free(&launch_type, r);
}

/* The end of a launch of a team over ranks: usm__ranks_over_fn. */
static void launch_is_over(void *arg, usm_status status, const usm_parallel_stats *stats)
{
    usm_parallel_run *r = arg;

    if (status != USM_OK)
        usm__message_save(&r->message);
    r->stats = *stats;
    usm__ledger_end(r, status);
}

usm_status usm_parallel_start(usm_team *team, const usm_parallel_desc *desc, usm_parallel_run **out)
{
    usm_status        st   = usm__team_check(team);
    usm__plan        *plan = NULL;
    usm_parallel_run *r;

    if (st != USM_OK)
        return st;
    if (!out)
        return usm__fail(USM_E_INVALID, "usm_parallel_start: run is NULL");
    st = usm__plan_make(team, desc, &plan);
    r  = st == USM_OK ? usm__meta_alloc(&launch_type) : NULL;
    if (!r) {
        if (st == USM_OK)
            st = usm__fail(USM_E_NO_MEMORY, "no host memory for a launch");
        if (team->ranks)
            usm__ranks_refuse(team->ranks, st);
        usm__plan_free(plan);
        return st;
    }
    usm__mutex_init(&r->lock, USM__RANK_LAUNCH, "launch");
    (void)usm_cond_init_monotonic(&r->ends);
    r->team     = team;
    r->plan     = plan;
    r->last     = &r->first;
    r->cut      = UINT64_MAX;
    r->start_ns = usm__os_now_ns();
    usm_list_init(&r->link);
    usm__team_enter(team);
    st = team->ranks ? usm__ranks_start(team->ranks, plan, launch_is_over, r, &r->launch) : fill(r);
    if (st != USM_OK) {
        usm__quietly(discard(r));
        return st;
    }
    usm__launches_add(r);
    usm_store_release(&r->magic, (uint32_t)USM__MAGIC_LAUNCH);
    *out = r;
    if (r->launch)
        return USM_OK;
    usm__run_feed(r->run);
    usm__ledger_finalize(r); /* ends the launch if there was nothing to do */
    return USM_OK;
}

/* ---- until its end ------------------------------------------------------------------------- */

static usm_status wait_for(usm_parallel_run *r, bool gives_up, usm_parallel_stats *stats)
{
    usm_status st = usm__ledger_wait(r, gives_up);

    if (st != USM_OK)
        return st;
    if (stats)
        *stats = r->stats;
    if (r->status != USM_OK)
        usm__message_restore(&r->message);
    return r->status;
}

static usm_status check_stats(const usm_parallel_stats *stats)
{
    return stats ? usm__struct_check("usm_parallel", "stats", stats, sizeof *stats,
                                     "USM_PARALLEL_STATS_INIT")
                 : USM_OK;
}

usm_status usm_parallel_wait(usm_parallel_run *r, usm_parallel_stats *stats)
{
    usm_status st = check(r);

    if (st == USM_OK)
        st = check_stats(stats);
    return st == USM_OK ? wait_for(r, true, stats) : st;
}

void usm_parallel_cancel(usm_parallel_run *r)
{
    if (check(r) != USM_OK)
        return;
    if (r->launch) {
        usm__ranks_cancel(r->launch);
        return;
    }
    (void)usm__fail(USM_E_CANCELLED, "usm_parallel_cancel() cancelled the launch");
    usm__ledger_stop(r, USM_E_CANCELLED);
    usm__ledger_finalize(r);
}

usm_status usm_parallel_get_event(usm_parallel_run *r, usm_event **ev)
{
    usm_status st  = check(r);
    usm_event *own = NULL;
    bool       is_over;

    if (st != USM_OK)
        return st;
    if (!ev)
        return usm__fail(USM_E_INVALID, "usm_parallel_get_event: ev is NULL");
    st = usm_event_create(r->team->members[0].context, &own);
    if (st != USM_OK)
        return st;
    usm__mutex_lock(&r->lock);
    is_over = r->is_over;
    if (!r->event) {
        r->event = own;
        own      = NULL;
    }
    st  = usm_event_retain(r->event);
    *ev = r->event;
    usm__mutex_unlock(&r->lock);
    if (is_over && !own)
        (void)usm_event_signal(*ev, r->status);
    usm_event_release(own);
    return st;
}

void usm_parallel_release(usm_parallel_run *r)
{
    if (!r || check(r) != USM_OK || !usm__handle_kill(r, USM__MAGIC_LAUNCH))
        return;
    (void)wait_for(r, false, NULL);
    if (r->run)
        usm__run_quiesce(r->run);
    discard(r);
}

usm_status usm_parallel(usm_team *team, const usm_parallel_desc *desc, usm_parallel_stats *stats)
{
    usm_parallel_run *run;
    usm_status        st = check_stats(stats);

    if (st == USM_OK)
        st = usm_parallel_start(team, desc, &run);
    if (st != USM_OK)
        return st;
    st = wait_for(run, false, stats);
    usm_parallel_release(run);
    return st;
}
