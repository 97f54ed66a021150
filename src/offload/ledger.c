/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The chunk ledger of a launch of one process.  It hands out chunks to the launch's run
 * (offload/run.h), records their results, and ends the launch.
 *
 * The launch's lock guards the schedule.  Work that may take long (merging, writing the file to
 * resume from, calling the caller's progress function) is done by one thread at a time, without the
 * lock: a thread that has ended a chunk does it if no other thread is doing it
 * (usm__ledger_finalize()).  The same thread ends the launch once nothing is in progress. */
#include "offload/launch_sim.h"
#include "offload/parallel.h"

#include "base/inline/clock.h"
#include "base/inline/plural.h"
#include "base/log.h"
#include "base/os.h"
#include "base/trace_work.h"

#include <string.h>

/* ---- handing out --------------------------------------------------------------------------- */

bool usm__ledger_take(void *source, uint32_t member, usm__chunk *chunk)
{
    usm_parallel_run *r    = source;
    usm__ledger_part *part = &r->parts[member];
    uint64_t          now  = usm__os_now_ns();
    bool              is_given;

    usm__mutex_lock(&r->lock);
    is_given = !r->is_stopped && usm__schedule_take(r->schedule, member, now, chunk);
    if (is_given) {
        r->under_way++;
        if (part->under_way++ == 0)
            part->since_ns = now;
    } else {
        r->is_starving = !r->is_stopped && !usm__schedule_is_over(r->schedule);
    }
    usm__mutex_unlock(&r->lock);
    if (is_given)
        usm__meter_begin(r->team->meter, member);
    return is_given;
}

bool usm__ledger_take_more(void *source, uint32_t member, usm__chunk *chunk)
{
    usm_parallel_run *r   = source;
    uint64_t          now = usm__os_now_ns();
    bool              is_given;

    usm__mutex_lock(&r->lock);
    is_given = !r->is_stopped && usm__schedule_take_more(r->schedule, member, now, chunk);
    if (is_given) {
        r->under_way++;
        r->parts[member].under_way++;
    }
    usm__mutex_unlock(&r->lock);
    if (is_given)
        usm__meter_begin(r->team->meter, member);
    return is_given;
}

bool usm__ledger_again(void *source, uint32_t member, const usm__chunk *chunk, const void *copies)
{
    usm_parallel_run *r = source;
    bool              goes_on;

    (void)member;
    (void)copies;
    usm__mutex_lock(&r->lock);
    goes_on = !r->is_stopped && chunk->first < r->cut;
    usm__mutex_unlock(&r->lock);
    usm__ledger_finalize(r);
    return goes_on;
}

void usm__ledger_keep(void *source, const usm__chunk *chunk, const usm__piece *pieces,
                      const void *copies)
{
    usm_parallel_run *r = source;

    usm__resume_keep(r->resume, chunk, pieces, copies);
    usm__ledger_finalize(r);
}

bool usm__ledger_bring(void *source, const usm__chunk *chunk, const usm__piece *pieces,
                       void *copies)
{
    usm_parallel_run *r   = source;
    bool              any = usm__resume_bring(r->resume, chunk, pieces, copies);

    usm__mutex_lock(&r->lock);
    r->continued += any;
    usm__mutex_unlock(&r->lock);
    return any;
}

void usm__ledger_stop(usm_parallel_run *r, usm_status status)
{
    usm__mutex_lock(&r->lock);
    if (!r->is_stopped && !r->is_ending) {
        r->is_stopped = true;
        r->status     = status;
        usm__message_save(&r->message);
    }
    usm__mutex_unlock(&r->lock);
}

/* ---- ends of chunks ------------------------------------------------------------------------ */

/* Whether another device would fail in the same way. */
static bool is_of_launch(usm_status status)
{
    return status == USM_E_ARGUMENTS || status == USM_E_INVALID || status == USM_E_INVALID_HANDLE ||
           status == USM_E_INVALID_POINTER || status == USM_E_SIZE || status == USM_E_FORKED;
}

/* Whether the failure means nothing for later launches. */
static bool is_for_now(usm_status status)
{
    return status == USM_E_NO_MEMORY || status == USM_E_BUDGET;
}

bool usm__is_of_device(usm_status status)
{
    return status != USM_E_CANCELLED && !is_of_launch(status) && !is_for_now(status);
}

static void take_failure(usm_parallel_run *r, const usm__chunk_end *end)
{
    bool goes_on = false;

    if (end->status == USM_E_CANCELLED)
        return; /* the launch was stopped, and the reason is recorded already */
    if (!end->is_of_bytes && !is_of_launch(end->status)) {
        if (is_for_now(end->status))
            usm__team_set_why(r->team, end->member, usm_last_error());
        else
            usm__team_set_aside(r->team, end->member, end->status);
        usm__mutex_lock(&r->lock);
        goes_on        = usm__schedule_failed(r->schedule, end->member, end->chunk.id);
        r->is_starving = true;
        usm__mutex_unlock(&r->lock);
    }
    if (!goes_on)
        usm__ledger_stop(r, end->status);
}

/* Returns a block with the chunk's private copies; NULL: no memory. */
static usm__ended *keep(usm_parallel_run *r, const usm__chunk_end *end)
{
    usm__ended *e;

    usm__mutex_lock(&r->lock);
    e = r->spare;
    if (e)
        r->spare = e->next;
    usm__mutex_unlock(&r->lock);
    if (!e)
        e = usm__heap_alloc(sizeof *e);
    if (e && e->cap < end->copies_size) {
        usm__heap_free(e->copies);
        e->copies = usm__heap_alloc(end->copies_size);
        e->cap    = e->copies ? end->copies_size : 0;
    }
    if (!e || e->cap < end->copies_size) {
        usm__heap_free(e);
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for %zu bytes of private copies",
                        end->copies_size);
        return NULL;
    }
    e->next  = NULL;
    e->chunk = end->chunk;
    if (end->copies_size)
        memcpy(e->copies, end->copies, end->copies_size);
    return e;
}

static void cut(usm_parallel_run *r, const usm__chunk_end *end)
{
    const usm__plan *p = r->plan;
    size_t           at;
    uint64_t         from;

    if (p->found_arg == USM__NO_ARG)
        return;
    (void)usm__plan_copies(p, end->chunk.count, p->found_arg, &at);
    if (usm__merge_cuts(&p->desc.args[p->found_arg], &end->chunk, (const char *)end->copies + at,
                        &from) &&
        from < r->cut) {
        r->cut = from;
        usm__schedule_cut(r->schedule, from);
    }
}

static void take_result(usm_parallel_run *r, const usm__chunk_end *end, usm__ended *e)
{
    usm__ledger_part *part = &r->parts[end->member];

    if (usm__schedule_done(r->schedule, end->member, end->chunk.id, part->last_end_ns,
                           end->compute_ns) != USM__CHUNK_COUNTS) {
        if (e) {
            e->next  = r->spare;
            r->spare = e;
        }
        return;
    }
    part->chunks++;
    part->items += end->chunk.count;
    if (e) {
        *r->last = e;
        r->last  = &e->next;
    }
    cut(r, end);
}

void usm__ledger_ended(void *source, const usm__chunk_end *end)
{
    usm_parallel_run *r    = source;
    usm__ledger_part *part = &r->parts[end->member];
    usm__ended       *e    = NULL;
    bool              is_starving;

    usm__meter_end(r->team->meter, &r->metering, 0, end->member,
                   end->end_ns ? end->end_ns : usm__os_now_ns());
    if (end->status != USM_OK)
        take_failure(r, end);
    else if (r->keeps && !(e = keep(r, end)))
        usm__ledger_stop(r, USM_E_NO_MEMORY);
    usm__mutex_lock(&r->lock);
    part->last_end_ns = end->end_ns > part->last_end_ns ? end->end_ns : usm__os_now_ns();
    if (--part->under_way == 0)
        part->busy_ns += part->last_end_ns - part->since_ns;
    if (end->status == USM_OK && (e || !r->keeps))
        take_result(r, end, e);
    else if (end->status == USM_E_CANCELLED && end->chunk.first >= r->cut)
        take_result(r, end,
                    NULL); /* usm__ledger_again() ended it, and its indices are not wanted */
    r->under_way--;
    is_starving    = r->is_starving;
    r->is_starving = false;
    usm__mutex_unlock(&r->lock);
    if (is_starving)
        usm__run_feed(r->run);
    usm__ledger_finalize(r);
}

/* ---- the one thread's work ----------------------------------------------------------------- */

static usm_status merge(usm_parallel_run *r, const usm__ended *e)
{
    usm_status st = USM_OK;

    for (size_t i = 0; st == USM_OK && i < r->plan->desc.nargs; i++) {
        size_t at;

        if (!r->trees[i])
            continue;
        (void)usm__plan_copies(r->plan, e->chunk.count, i, &at);
        st = usm__tree_add(r->trees[i], e->chunk.first, e->chunk.count, e->copies + at);
    }
    if (r->resume)
        usm__resume_add(r->resume, &e->chunk, e->copies);
    return st;
}

static bool notify(usm_parallel_run *r, bool is_end)
{
    usm__schedule_stats stats;
    usm__notified       notified = {
              .now_ns = usm__os_now_ns(), .total = r->plan->total, .is_end = is_end};

    usm__mutex_lock(&r->lock);
    usm__schedule_get_stats(r->schedule, &stats);
    usm__notifier_set_shares(&r->notifier, r->parts);
    usm__mutex_unlock(&r->lock);
    notified.done        = stats.done;
    notified.chunks      = stats.chunks;
    notified.rescheduled = stats.rescheduled;
    return usm__notifier_notify(&r->notifier, &notified);
}

/* Writes the merged values to the caller's bytes. */
static usm_status finish_merges(usm_parallel_run *r)
{
    usm_status st = USM_OK;

    for (size_t i = 0; st == USM_OK && i < r->plan->desc.nargs; i++) {
        const usm_split_arg *a     = &r->plan->desc.args[i];
        usm__piece           piece = {0};

        if (!r->trees[i])
            continue;
        st = usm__bytes_local.open(r->plan, i, 0, a->size, USM_READ_WRITE, &piece);
        if (st != USM_OK)
            break;
        usm__tree_finish(r->trees[i], piece.ptr);
        st = usm__bytes_local.close(r->plan, i, 0, USM_READ_WRITE, &piece, USM_OK);
    }
    return st;
}

static void count(usm_parallel_run *r, uint64_t now)
{
    usm__schedule_stats stats;
    uint64_t            first = UINT64_MAX, last = 0;

    usm__schedule_get_stats(r->schedule, &stats);
    r->stats = (usm_parallel_stats){.struct_size = sizeof r->stats,
                                    .chunks      = stats.chunks,
                                    .rescheduled = stats.rescheduled,
                                    .duplicated  = stats.duplicated,
                                    .dropped     = stats.dropped,
                                    .resumed     = r->resumed,
                                    .continued   = r->continued,
                                    .wall_ns     = now - r->start_ns};
    if (r->run)
        usm__run_get_bytes(r->run, &r->stats.bytes_in, &r->stats.bytes_out);
    for (uint32_t i = 0; i < r->team->nmembers; i++) {
        const usm__ledger_part *part = &r->parts[i];

        if (part->chunks == 0)
            continue;
        first = part->last_end_ns < first ? part->last_end_ns : first;
        last  = part->last_end_ns > last ? part->last_end_ns : last;
        usm__team_add(r->team, i, part->chunks, part->items, part->busy_ns,
                      usm__schedule_speed(r->schedule, i));
    }
    if (last > first && now > r->start_ns)
        r->stats.spread = (double)(last - first) / (double)(now - r->start_ns);
    if (r->team->trial)
        usm__trial_launched(r->team->trial, r->parts, r->team->nmembers, r->stats.wall_ns);
}

/* Nothing is in progress any more: the run makes no calls, except for slots that find no chunk. */
static void end_launch(usm_parallel_run *r)
{
    usm_status status = r->status;

    usm__run_end(r->run);
    usm__meter_finish(r->team->meter, &r->metering, r->plan->desc.kernel->trace);
    if (status == USM_OK)
        status = finish_merges(r);
    if (status == USM_OK && r->notifier.fn && !notify(r, true))
        status =
            usm__fail(USM_E_CANCELLED, "the progress function cancelled the launch at its end");
    usm__resume_close(r->resume, status == USM_OK);
    r->resume = NULL;
    if (status != r->status)
        usm__message_save(&r->message);
    count(r, usm__os_now_ns());
    usm__ledger_end(r, status);
}

void usm__ledger_end(usm_parallel_run *r, usm_status status)
{
    usm_event *event;

    usm__trace_work(&(usm__trace_work_event){.kind   = USM__WORK_LAUNCH,
                                             .kernel = r->plan->desc.kernel->trace,
                                             .n      = r->plan->total,
                                             .ns     = usm__os_now_ns() - r->start_ns});
    usm__mutex_lock(&r->lock);
    r->status  = status;
    r->is_over = true;
    event      = r->event;
    if (event && usm_event_retain(event) != USM_OK)
        event = NULL;
    pthread_cond_broadcast(&r->ends);
    usm__mutex_unlock(&r->lock);
    if (event)
        (void)usm_event_signal(event, status);
    usm_event_release(event);
}

/* ---- silence ---------------------------------------------------------------------------------
 *
 * A silent member writes its chunk's results to their final memory, now or whenever it answers.  So
 * no other member may do that chunk.  The library reports the member by name, and the launch ends
 * when the member answers.  A thread that waits for the launch notices the silence: the launch has
 * no timer of its own. */

/* Returns a member that has just fallen silent, and since when it has which chunk; NULL: there is
 * none.  The lock is held. */
static const usm__member *find_silent(usm_parallel_run *r, usm__chunk *chunk, uint64_t *ns)
{
    uint64_t now = usm__os_now_ns();

    for (uint32_t i = 0; i < r->team->nmembers; i++) {
        bool was_notified = r->parts[i].is_notified;

        r->parts[i].is_notified = usm__schedule_is_silent(r->schedule, i, now, chunk, ns);
        if (r->parts[i].is_notified && !was_notified)
            return &r->team->members[i];
    }
    return NULL;
}

static void notify_silent(const usm_parallel_run *r, const usm__member *m, const usm__chunk *chunk,
                          uint64_t ns)
{
    usm__warn("team: no message from %s for %.1f s; it has %llu %s of kernel \"%s\" from "
              "%llu on, and gets no more work until they end",
              m->name, (double)ns / 1e9, (unsigned long long)chunk->count,
              usm__plural(chunk->count, "index", "indices"), r->plan->desc.kernel->name,
              (unsigned long long)chunk->first);
}

/* Returns one of the silent members if only silent ones still have chunks.  NULL: others are at
 * work, or no member is.  The lock is held. */
static const usm__member *find_last(usm_parallel_run *r, uint64_t now, uint64_t *ns)
{
    const usm__member *last = NULL;

    for (uint32_t i = 0; i < r->team->nmembers; i++) {
        usm__chunk chunk;

        if (r->parts[i].under_way == 0)
            continue;
        if (!usm__schedule_is_silent(r->schedule, i, now, &chunk, ns))
            return NULL;
        last = &r->team->members[i];
    }
    return last;
}

/* The lock is held.  USM_OK: *next is when to look again; a second from now if nothing is in
 * progress yet. */
static usm_status look(usm_parallel_run *r, bool gives_up, uint64_t *next)
{
    uint64_t           now = usm__os_now_ns(), ns = 0;
    const usm__member *last;

    (void)usm__schedule_overdue(r->schedule, now, next);
    if (*next == UINT64_MAX)
        *next = now + 1000000000u;
    last = gives_up && r->plan->desc.silence_ms ? find_last(r, now, &ns) : NULL;
    if (!last)
        return USM_OK;
    return usm__fail(USM_E_NOT_READY,
                     "no answer from %s for %.1f s, and nothing else of the launch is in progress; "
                     "its memory is in use until the device answers",
                     last->name, (double)ns / 1e9);
}

usm_status usm__ledger_wait(usm_parallel_run *r, bool gives_up)
{
    usm_status st = USM_OK;

    usm__mutex_lock(&r->lock);
    while (!r->is_over && st == USM_OK) {
        bool               may_look = r->schedule && !r->is_ending;
        uint64_t           ns, next = UINT64_MAX;
        usm__chunk         chunk;
        const usm__member *silent = may_look ? find_silent(r, &chunk, &ns) : NULL;
        struct timespec    until;

        if (silent) {
            usm__mutex_unlock(&r->lock);
            notify_silent(r, silent, &chunk, ns);
            usm__mutex_lock(&r->lock);
            continue;
        }
        if (may_look)
            st = look(r, gives_up, &next);
        if (st != USM_OK)
            continue;
        until = usm_timespec_of(next);
        (void)usm__mutex_wait(&r->lock, &r->ends, next == UINT64_MAX ? NULL : &until);
    }
    usm__mutex_unlock(&r->lock);
    return st;
}

/* ---- the one thread's work, and the end ---------------------------------------------------- */

typedef enum chore { NOTHING, MERGE, STORE, TELL } chore;

/* What is to be done next; *ended: what is to be merged.  The lock is held. */
static chore next_chore(usm_parallel_run *r, usm__ended **ended)
{
    uint64_t now = usm__os_now_ns();

    *ended = r->first;
    if (*ended) {
        r->first = (*ended)->next;
        if (!r->first)
            r->last = &r->first;
        return MERGE;
    }
    if (r->is_stopped || r->is_ending)
        return NOTHING;
    if (r->resume && usm__resume_is_due(r->resume, now))
        return STORE;
    return usm__notifier_is_due(&r->notifier, now) ? TELL : NOTHING;
}

static void do_chore(usm_parallel_run *r, chore what, usm__ended *ended)
{
    usm_status st = USM_OK;

    if (what == STORE)
        usm__resume_write(r->resume);
    else if (what == MERGE)
        st = merge(r, ended);
    else if (!notify(r, false))
        st = usm__fail(USM_E_CANCELLED, "the progress function cancelled the launch");
    if (st != USM_OK)
        usm__ledger_stop(r, st);
}

void usm__ledger_finalize(usm_parallel_run *r)
{
    bool        ends = false;
    chore       what;
    usm__ended *ended;

    usm__mutex_lock(&r->lock);
    if (!r->is_settling) {
        r->is_settling = true;
        while ((what = next_chore(r, &ended)) != NOTHING) {
            usm__mutex_unlock(&r->lock);
            do_chore(r, what, ended);
            usm__mutex_lock(&r->lock);
            if (ended) {
                ended->next = r->spare;
                r->spare    = ended;
            }
        }
        r->is_settling = false;
        ends           = !r->is_ending && r->under_way == 0 &&
               (r->is_stopped || usm__schedule_is_over(r->schedule));
        r->is_ending = r->is_ending || ends;
    }
    usm__mutex_unlock(&r->lock);
    if (ends)
        end_launch(r);
}
