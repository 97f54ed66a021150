/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The deferral queue's issue: builds the wait list of a command, and chooses its stream.
 *
 * In order there is one stream.  Out of order there are several native in-order streams, because
 * with a native list that completes in any order it would be unknown which event is the oldest.  A
 * command goes to the stream that ends with its last dependency (a chain stays in one stream and
 * needs no events between its commands), otherwise to the streams in turn.  A marker or barrier
 * without dependencies, which stands for the whole queue, gathers all streams; a barrier also makes
 * later commands of each stream wait for it.  Both are done with all streams locked, so that other
 * threads see them as one step.
 *
 * Streams order more than was requested.  That cannot deadlock, because no command that waits for a
 * user event is in a stream (common/defer.c).  But an event of the program's own, from
 * event_from_native, is the driver's: later commands of the stream wait for it, too.
 *
 * Not here: which commands are deferred (common/defer.c), how a stream keeps its order (stream.c).
 * Called by the deferral queue. */
#include "queue.h"

/* --- wait lists ---------------------------------------------------------------- */

static usm_status waits_init(lz_waits *w, size_t ndeps)
{
    size_t room = ndeps + LZ_OWN_WAITS;

    lz_waits_few(w);
    if (ndeps <= LZ_FEW_WAITS)
        return USM_OK;
    w->slots   = lz_host->heap_alloc(room * sizeof(*w->slots));
    w->natives = lz_host->heap_alloc(room * sizeof(ze_event_handle_t));
    if (w->slots && w->natives)
        return USM_OK;
    lz_host->heap_free(w->slots);
    lz_host->heap_free(w->natives);
    return lz_no_memory();
}

static void waits_fini(lz_waits *w)
{
    if (w->slots == w->few_slots)
        return;
    lz_host->heap_free(w->slots);
    lz_host->heap_free(w->natives);
}

/* True if the stream's order is sufficient, without a query of the driver.  A lost slot may belong
 * to a stream that was freed, whose address another stream has now. */
static bool is_in_stream(lz_slot *slot, const lz_stream *only)
{
    return only && slot->stream == only && usm_load_acquire(&slot->end) != LZ_LOST;
}

/* Collects the events that have not ended yet.  False: one is lost, and would never be
 * signalled. */
static bool waits_fill(lz_waits *w, const lz_stream *only, size_t ndeps, defer_event *const *deps)
{
    bool is_well = true;

    for (size_t i = 0; i < ndeps; i++) {
        lz_slot    *slot = ((lz_event *)deps[i])->slot;
        ze_result_t code;

        if (defer_event_state(deps[i]) != DEFER_NATIVE || is_in_stream(slot, only))
            continue;
        code = lz_slot_query(slot);
        if (code == ZE_RESULT_ERROR_DEVICE_LOST)
            is_well = false;
        else if (code)
            lz_waits_add(w, slot);
    }
    return is_well;
}

static void waits_drop_stream(lz_waits *w, const lz_stream *stream)
{
    size_t n = w->n;

    w->n = 0;
    for (size_t i = 0; i < n; i++)
        if (w->slots[i]->stream != stream)
            lz_waits_add(w, w->slots[i]);
}

/* --- streams ------------------------------------------------------------------------ */

static lz_stream *pick_stream(lz_queue *q, const lz_waits *w)
{
    if (q->nstreams == 1)
        return q->streams[0];
    for (size_t i = w->n; i > 0; i--)
        for (uint32_t k = 0; k < q->nstreams; k++)
            if (lz_stream_ends_with(q->streams[k], w->slots[i - 1]))
                return q->streams[k];
    return q->streams[usm_add_relaxed(&q->next_stream, 1) % q->nstreams];
}

static void lock_all(const lz_queue *q)
{
    for (uint32_t i = 0; i < q->nstreams; i++)
        lz_stream_lock(q->streams[i]);
}

static void unlock_all(const lz_queue *q)
{
    for (uint32_t i = q->nstreams; i > 0; i--)
        lz_stream_unlock(q->streams[i - 1]);
}

/* Adds the ends of all streams except `stream`, with references.  All locked. */
static usm_status gather(const lz_queue *q, const lz_stream *stream, lz_waits *w)
{
    usm_status status = USM_OK;

    for (uint32_t i = 0; i < q->nstreams && !status; i++) {
        lz_slot *slot = NULL;

        if (q->streams[i] == stream)
            continue;
        status = lz_stream_tail(q->streams[i], &slot);
        if (slot)
            lz_waits_add(w, slot);
    }
    return status;
}

/* Runs a marker or barrier of a queue with several streams. */
static usm_status run_mark(lz_queue *q, const driver_command *cmd, bool is_for_all, lz_waits *w,
                           lz_slot **slot)
{
    lz_stream *stream = pick_stream(q, w);
    size_t     ngathered;
    usm_status status = USM_OK;

    lock_all(q);
    if (is_for_all)
        status = gather(q, stream, w);
    else
        waits_drop_stream(w, stream);
    ngathered = is_for_all ? w->n : 0;
    if (!status)
        status = lz_stream_submit(stream, cmd, w, true, slot);
    for (uint32_t i = 0; i < q->nstreams && !status && cmd->deferral.is_barrier; i++)
        if (q->streams[i] != stream)
            lz_stream_block(q->streams[i], *slot);
    unlock_all(q);
    while (ngathered)
        lz_slot_unref(w->slots[--ngathered]);
    return status;
}

static usm_status run(lz_queue *q, const driver_command *cmd, lz_waits *w, bool wants,
                      lz_slot **slot)
{
    lz_stream *stream = pick_stream(q, w);
    usm_status status;

    waits_drop_stream(w, stream);
    lz_stream_lock(stream);
    status = lz_stream_submit(stream, cmd, w, wants, slot);
    lz_stream_unlock(stream);
    return status;
}

usm_status lz_issue(defer_queue *deferral, const defer_command *gcmd, size_t ndeps,
                    defer_event *const *deps, defer_event *gout, bool has_failed, usm_list *notices)
{
    lz_queue             *q    = (lz_queue *)deferral;
    const driver_command *cmd  = (const driver_command *)gcmd;
    lz_event             *out  = (lz_event *)gout;
    lz_slot              *slot = NULL;
    lz_waits              w;
    bool                  is_well;
    usm_status            status = waits_init(&w, ndeps);

    if (status)
        return status;
    is_well = waits_fill(&w, q->nstreams == 1 ? q->streams[0] : NULL, ndeps, deps);
    if (!is_well && !gcmd->is_barrier) {
        status = lz_report(USM_E_DEPENDENCY, "the device of a command that this one waits for was "
                                             "lost");
        goto out;
    }
    if (out && out->shadow)
        slot = lz_slot_ref(out->shadow);
    if (q->nstreams > 1 && gcmd->is_mark)
        status = run_mark(q, cmd, ndeps == 0, &w, &slot);
    else
        status = run(q, cmd, &w, out != NULL, &slot);
    if (!status && !is_well)
        status = USM_E_DEPENDENCY; /* the barrier was submitted nevertheless */
    if (!status && out) {
        out->slot = slot;
        slot      = NULL;
        defer_event_become_native(gout, notices);
    }
    lz_slot_unref(slot);
out:
    waits_fini(&w);
    (void)has_failed;
    return status;
}

usm_status lz_issue_plain(defer_queue *deferral, const defer_command *cmd)
{
    lz_queue  *q    = (lz_queue *)deferral;
    lz_slot   *none = NULL;
    lz_waits   w;
    usm_status status;

    if (q->nstreams > 1)
        return lz_issue(deferral, cmd, 0, NULL, NULL, false, NULL);
    lz_waits_few(&w);
    lz_stream_lock(q->streams[0]);
    status = lz_stream_submit(q->streams[0], (const driver_command *)cmd, &w, false, &none);
    lz_stream_unlock(q->streams[0]);
    return status;
}
