/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The gate's issue: builds the wait list of a command, and chooses its lane.
 *
 * In order there is one lane.  Out of order there are several native in-order streams, because with
 * a native list that completes in any order it would be unknown which event is the oldest.  A
 * command goes to the lane that ends with its last dependency (a chain stays in one lane and needs
 * no events between its commands), otherwise to the lanes in turn.  A marker or barrier without
 * dependencies, which stands for the whole queue, gathers all lanes; a barrier also makes later
 * commands of each lane wait for it.  Both are done with all lanes locked, so that other threads
 * see them as one step.
 *
 * Lanes order more than was requested.  That cannot deadlock, because no command that waits for a
 * user event is in a lane (common/gate.c).  But an event of the program's own, from
 * event_from_native, is the driver's: later commands of the lane wait for it, too.
 *
 * Not here: which commands are deferred (common/gate.c), how a lane keeps its order (lane.c).
 * Called by the gate. */
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

/* True if the lane's order is sufficient, without a query of the driver.  A lost slot may belong to
 * a lane that was freed, whose address another lane has now. */
static bool is_in_lane(lz_slot *slot, const lz_lane *only)
{
    return only && slot->lane == only && usm_load_acquire(&slot->end) != LZ_LOST;
}

/* Collects the events that have not ended yet.  False: one is lost, and would never be
 * signalled. */
static bool waits_fill(lz_waits *w, const lz_lane *only, size_t ndeps, gate_event *const *deps)
{
    bool is_well = true;

    for (size_t i = 0; i < ndeps; i++) {
        lz_slot    *slot = ((lz_event *)deps[i])->slot;
        ze_result_t code;

        if (gate_event_state(deps[i]) != GATE_NATIVE || is_in_lane(slot, only))
            continue;
        code = lz_slot_query(slot);
        if (code == ZE_RESULT_ERROR_DEVICE_LOST)
            is_well = false;
        else if (code)
            lz_waits_add(w, slot);
    }
    return is_well;
}

static void waits_drop_lane(lz_waits *w, const lz_lane *lane)
{
    size_t n = w->n;

    w->n = 0;
    for (size_t i = 0; i < n; i++)
        if (w->slots[i]->lane != lane)
            lz_waits_add(w, w->slots[i]);
}

/* --- lanes ------------------------------------------------------------------------ */

static lz_lane *pick_lane(lz_queue *q, const lz_waits *w)
{
    if (q->nlanes == 1)
        return q->lanes[0];
    for (size_t i = w->n; i > 0; i--)
        for (uint32_t k = 0; k < q->nlanes; k++)
            if (lz_lane_ends_with(q->lanes[k], w->slots[i - 1]))
                return q->lanes[k];
    return q->lanes[usm_add_relaxed(&q->next_lane, 1) % q->nlanes];
}

static void lock_all(const lz_queue *q)
{
    for (uint32_t i = 0; i < q->nlanes; i++)
        lz_lane_lock(q->lanes[i]);
}

static void unlock_all(const lz_queue *q)
{
    for (uint32_t i = q->nlanes; i > 0; i--)
        lz_lane_unlock(q->lanes[i - 1]);
}

/* Adds the ends of all lanes except `lane`, with references.  All locked. */
static usm_status gather(const lz_queue *q, const lz_lane *lane, lz_waits *w)
{
    usm_status status = USM_OK;

    for (uint32_t i = 0; i < q->nlanes && !status; i++) {
        lz_slot *slot = NULL;

        if (q->lanes[i] == lane)
            continue;
        status = lz_lane_tail(q->lanes[i], &slot);
        if (slot)
            lz_waits_add(w, slot);
    }
    return status;
}

/* Runs a marker or barrier of a queue with several lanes. */
static usm_status run_mark(lz_queue *q, const driver_command *cmd, bool is_for_all, lz_waits *w,
                           lz_slot **slot)
{
    lz_lane   *lane = pick_lane(q, w);
    size_t     ngathered;
    usm_status status = USM_OK;

    lock_all(q);
    if (is_for_all)
        status = gather(q, lane, w);
    else
        waits_drop_lane(w, lane);
    ngathered = is_for_all ? w->n : 0;
    if (!status)
        status = lz_lane_submit(lane, cmd, w, true, slot);
    for (uint32_t i = 0; i < q->nlanes && !status && cmd->gate.is_barrier; i++)
        if (q->lanes[i] != lane)
            lz_lane_block(q->lanes[i], *slot);
    unlock_all(q);
    while (ngathered)
        lz_slot_unref(w->slots[--ngathered]);
    return status;
}

static usm_status run(lz_queue *q, const driver_command *cmd, lz_waits *w, bool wants,
                      lz_slot **slot)
{
    lz_lane   *lane = pick_lane(q, w);
    usm_status status;

    waits_drop_lane(w, lane);
    lz_lane_lock(lane);
    status = lz_lane_submit(lane, cmd, w, wants, slot);
    lz_lane_unlock(lane);
    return status;
}

usm_status lz_issue(gate_queue *gate, const gate_command *gcmd, size_t ndeps,
                    gate_event *const *deps, gate_event *gout, bool has_failed, usm_list *notices)
{
    lz_queue             *q    = (lz_queue *)gate;
    const driver_command *cmd  = (const driver_command *)gcmd;
    lz_event             *out  = (lz_event *)gout;
    lz_slot              *slot = NULL;
    lz_waits              w;
    bool                  is_well;
    usm_status            status = waits_init(&w, ndeps);

    if (status)
        return status;
    is_well = waits_fill(&w, q->nlanes == 1 ? q->lanes[0] : NULL, ndeps, deps);
    if (!is_well && !gcmd->is_barrier) {
        status = lz_report(USM_E_DEPENDENCY, "the device of a command that this one waits for was "
                                             "lost");
        goto out;
    }
    if (out && out->shadow)
        slot = lz_slot_ref(out->shadow);
    if (q->nlanes > 1 && gcmd->is_mark)
        status = run_mark(q, cmd, ndeps == 0, &w, &slot);
    else
        status = run(q, cmd, &w, out != NULL, &slot);
    if (!status && !is_well)
        status = USM_E_DEPENDENCY; /* the barrier was submitted nevertheless */
    if (!status && out) {
        out->slot = slot;
        slot      = NULL;
        gate_event_become_native(gout, notices);
    }
    lz_slot_unref(slot);
out:
    waits_fini(&w);
    (void)has_failed;
    return status;
}

usm_status lz_issue_plain(gate_queue *gate, const gate_command *cmd)
{
    lz_queue  *q    = (lz_queue *)gate;
    lz_slot   *none = NULL;
    lz_waits   w;
    usm_status status;

    if (q->nlanes > 1)
        return lz_issue(gate, cmd, 0, NULL, NULL, false, NULL);
    lz_waits_few(&w);
    lz_lane_lock(q->lanes[0]);
    status = lz_lane_submit(q->lanes[0], (const driver_command *)cmd, &w, false, &none);
    lz_lane_unlock(q->lanes[0]);
    return status;
}
