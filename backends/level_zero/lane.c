/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Native in-order streams; in the code a stream with its bookkeeping is a "lane".
 *
 * Order.  An immediate list with the in-order flag keeps its order itself.  A command that waits
 * for an earlier command of the same lane then needs no wait list.  A command has an event only if
 * one is needed, except that every EVENT_EVERY-th has one, so that it becomes known what has ended.
 * Older drivers (API below 1.7), regular lists and borrowed lists without the flag keep no order.
 * There the lane is chained: each command has an event, and waits for that of the previous one.
 *
 * The objects that a command uses must outlive it: its event, the events it waits for (a device
 * that has not read one yet would miss its signal if it were reset), its kernel, its regular list.
 * A lane keeps a record of these for each command, in order, and drops it when an event at or
 * behind it has ended: a few at each submission, all when a thread waits.  So the last reference to
 * an event is released only when no device uses it any more.
 *
 *     records   [list, waits] [slot, waits] [kernel] [slot] ...      oldest first
 *     tail      slot of the last command that has one; is_open: a command came after it
 *
 * The end.  A queue is destroyed without waiting.  A lane with commands in flight then becomes a
 * notice of its own watch, and is freed when its last command has ended; a reference to the context
 * keeps the objects that it needs.  On a lost device all commands count as ended.
 *
 * After a failure in the middle of a command that consists of several appends, the stream contains
 * a part of it ("torn"): the next command begins with a barrier, so that the order is kept.
 *
 * Not here: the choice of a lane (submit.c).  Called by submit.c, queue.c, queue_native.c. */
#include "queue.h"

#include "base/inline/clock.h"

#include "program.h"

#include <string.h>

#define EVENT_EVERY  16 /* an event for at least one command in so many */
#define REAP_FROM    8  /* with fewer records nothing is dropped        */
#define REAP_AT_ONCE 4
#define FEW_WAITS    4 /* waits that every record has room for */
#define IDLE_RECORDS 64
#define PAUSE_NS     10000000 /* between attempts to mark the end of a lane */
#define MAX_ATTEMPTS 500
#define SLICE_NS     100000000

typedef struct record {
    usm_list                 link;
    lz_slot                 *slot; /* NULL: it ends with a later one */
    lz_kernel               *kernel;
    ze_command_list_handle_t list;     /* a regular list; it stays with the record   */
    bool                     is_dirty; /* the list must be reset before its next use */
    size_t                   cap, nwaits;
    lz_slot                 *waits[];
} record;

struct lz_lane {
    /* fixed after create */
    lz_context *ctx;
    lz_device  *dev;
    lz_watch   *watch;
    lz_stream   stream;
    bool        is_chained;
    bool        is_timed;
    /* atomic */
    _Atomic uint64_t number; /* of the last command; written with the lock held */
    /* guarded by lock */
    pthread_mutex_t lock;
    usm_list        records;
    usm_list        idle;
    size_t          nrecords, nidle;
    lz_slot        *tail;
    lz_slot        *block; /* the next command waits for it */
    bool            is_open;
    bool            is_torn;
    bool            is_lost; /* abandoned with its device */
    unsigned        since_event;
    lz_timeline     time;
};

void lz_lane_lock(lz_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
}

void lz_lane_unlock(lz_lane *lane)
{
    pthread_mutex_unlock(&lane->lock);
}

/* --- streams ------------------------------------------------------------------------- */

static bool wants_regular(void)
{
    const char *lists = lz_host->setting("level_zero_lists");

    return lists && strcmp(lists, "regular") == 0;
}

/* The driver gives copies of this list to copy engines if the device has them and they are faster,
 * and keeps the order: it knows which copies and engines these are. */
static const lz_copy_offload_desc copy_offload = {.stype     = LZ_STRUCTURE_TYPE_COPY_OFFLOAD,
                                                  .is_wanted = 1};

usm_status lz_stream_create(const lz_context *ctx, lz_device *dev, lz_stream *out)
{
    ze_command_queue_desc_t desc = {
        .stype   = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
        .ordinal = dev->ordinal,
        .mode    = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
    };
    lz_stream   stream = {.ordinal = dev->ordinal, .is_owned = true};
    ze_result_t code;

    if (dev->nqueues)
        desc.index = usm_add_relaxed(&dev->next_queue, 1) % dev->nqueues;
    if (wants_regular()) {
        code = lz.zeCommandQueueCreate(ctx->native, dev->native, &desc, &stream.queue);
        if (code)
            return lz_fail(code, "zeCommandQueueCreate");
    } else {
        stream.is_in_order = dev->driver->has_in_order;
        if (stream.is_in_order)
            desc.flags = LZ_COMMAND_QUEUE_FLAG_IN_ORDER;
        if (dev->driver->has_copy_offload)
            desc.pNext = &copy_offload;
        code = lz.zeCommandListCreateImmediate(ctx->native, dev->native, &desc, &stream.list);
        if (code)
            return lz_fail(code, "zeCommandListCreateImmediate");
    }
    *out = stream;
    return USM_OK;
}

void lz_stream_destroy(const lz_stream *stream)
{
    if (stream->list)
        (void)lz.zeCommandListDestroy(stream->list);
    if (stream->queue)
        (void)lz.zeCommandQueueDestroy(stream->queue);
}

/* --- records ---------------------------------------------------------------------------- */

static void record_free(record *r)
{
    if (r->list)
        (void)lz.zeCommandListDestroy(r->list);
    lz_host->heap_free(r);
}

static usm_status record_new(const lz_lane *lane, size_t nwaits, record **out)
{
    ze_command_list_desc_t desc = {
        .stype                    = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
        .commandQueueGroupOrdinal = lane->stream.ordinal,
    };
    size_t      cap = nwaits < FEW_WAITS ? FEW_WAITS : nwaits;
    record     *r   = lz_host->heap_alloc(sizeof(*r) + cap * sizeof(r->waits[0]));
    ze_result_t code;

    if (!r)
        return lz_no_memory();
    usm_list_init(&r->link);
    r->cap = cap;
    if (lane->stream.queue) {
        code = lz.zeCommandListCreate(lane->ctx->native, lane->dev->native, &desc, &r->list);
        if (code) {
            lz_host->heap_free(r);
            return lz_fail(code, "zeCommandListCreate");
        }
    }
    *out = r;
    return USM_OK;
}

static usm_status record_reset(record *r)
{
    ze_result_t code = r->is_dirty ? lz.zeCommandListReset(r->list) : ZE_RESULT_SUCCESS;

    if (code)
        return lz_fail(code, "zeCommandListReset");
    r->is_dirty = false;
    return USM_OK;
}

static void record_idle(lz_lane *lane, record *r)
{
    if (lane->nidle >= IDLE_RECORDS) {
        record_free(r);
        return;
    }
    usm_list_append(&lane->idle, &r->link);
    lane->nidle++;
}

/* Returns an empty record with room for so many waits, not in a list. */
static usm_status record_take(lz_lane *lane, size_t nwaits, record **out)
{
    record    *r;
    usm_status status;

    USM_LIST_FOREACH (it, &lane->idle) {
        r = usm_container_of(it, record, link);
        if (r->cap < nwaits)
            continue;
        status = record_reset(r);
        if (status)
            return status;
        usm_list_remove(&r->link);
        lane->nidle--;
        *out = r;
        return USM_OK;
    }
    return record_new(lane, nwaits, out);
}

static void record_drop(lz_lane *lane, record *r)
{
    usm_list_remove(&r->link);
    lane->nrecords--;
    for (size_t i = 0; i < r->nwaits; i++)
        lz_slot_unref(r->waits[i]);
    if (r->slot && lane->is_lost)
        lz_slot_lose(r->slot);
    lz_slot_unref(r->slot);
    if (r->kernel)
        lz_kernel_destroy(r->kernel); /* releases the lane's reference */
    r->slot   = NULL;
    r->kernel = NULL;
    r->nwaits = 0;
    record_idle(lane, r);
}

/* Drops the records up to the oldest event, if that has ended. */
static bool reap_one(lz_lane *lane)
{
    record *last = NULL, *first;

    USM_LIST_FOREACH (it, &lane->records) {
        last = usm_container_of(it, record, link);
        if (last->slot)
            break;
    }
    if (!last || !last->slot)
        return false;
    if (lz_slot_query(last->slot)) /* also if it is lost: then all records stay until the end */
        return false;
    do {
        first = usm_container_of(lane->records.next, record, link);
        record_drop(lane, first);
    } while (first != last);
    return true;
}

static void reap_some(lz_lane *lane)
{
    for (int i = 0; i < REAP_AT_ONCE && lane->nrecords >= REAP_FROM; i++)
        if (!reap_one(lane))
            return;
}

/* --- times --------------------------------------------------------------------------------- */

/* A command whose time cannot be read just has no times. */
static void stamp(lz_lane *lane, lz_slot *slot)
{
    uint64_t host = 0, ticks = 0;

    if (lz.zeDeviceGetGlobalTimestamps(lane->dev->native, &host, &ticks))
        return;
    lz_timeline_go_on(&lane->time, lane->dev, ticks, usm_clock_ns(CLOCK_MONOTONIC));
    slot->submit_ticks = ticks;
    slot->submit_total = lane->time.total;
    slot->has_times    = true;
}

/* --- submission ------------------------------------------------------------------------------ */

static void add_once(lz_waits *waits, lz_slot *slot)
{
    for (size_t i = 0; i < waits->n; i++)
        if (waits->slots[i] == slot)
            return;
    lz_waits_add(waits, slot);
}

/* Adds the events that the lane itself makes a command wait for. */
static void add_own_waits(const lz_lane *lane, lz_waits *waits)
{
    if (lane->is_chained && lane->tail && usm_load_acquire(&lane->tail->end) != LZ_DONE)
        add_once(waits, lane->tail);
    if (lane->block && usm_load_acquire(&lane->block->end) != LZ_DONE)
        add_once(waits, lane->block);
}

static bool needs_slot(const lz_lane *lane, bool wants)
{
    return wants || lane->is_chained || lane->since_event + 1 >= EVENT_EVERY;
}

static bool needs_record(const lz_lane *lane, const driver_command *cmd, const lz_waits *waits,
                         const lz_slot *slot)
{
    return slot || waits->n || cmd->type == DRIVER_LAUNCH || lane->stream.queue;
}

/* Appends the command, and before it a barrier if the stream needs one. */
static ze_result_t append(lz_lane *lane, lz_target *t, const driver_command *cmd)
{
    lz_target   repair = {.list = t->list, .dev = t->dev};
    ze_result_t code   = lane->is_torn ? lz_barrier_append(&repair) : ZE_RESULT_SUCCESS;

    if (code)
        return code;
    lane->is_torn = false;
    return lz_command_append(t, cmd);
}

static ze_result_t run_regular(lz_lane *lane, record *r, lz_target *t, const driver_command *cmd)
{
    ze_result_t code;

    t->list     = r->list;
    r->is_dirty = true;
    code        = append(lane, t, cmd);
    if (!code)
        code = lz.zeCommandListClose(r->list);
    if (!code)
        code = lz.zeCommandQueueExecuteCommandLists(lane->stream.queue, 1, &r->list, NULL);
    return code;
}

static ze_result_t run_immediate(lz_lane *lane, lz_target *t, const driver_command *cmd)
{
    ze_result_t code;

    t->list = lane->stream.list;
    code    = append(lane, t, cmd);
    if (code && t->has_appended)
        lane->is_torn = lane->is_open = true;
    return code;
}

static usm_status run(lz_lane *lane, const driver_command *cmd, const lz_waits *waits,
                      lz_slot *slot, record *r)
{
    lz_target t = {
        .dev    = lane->dev,
        .signal = slot ? slot->native : NULL,
        .nwaits = (uint32_t)waits->n,
        .waits  = waits->n ? waits->natives : NULL,
    };
    ze_result_t code;

    code = r && r->list ? run_regular(lane, r, &t, cmd) : run_immediate(lane, &t, cmd);
    return code ? lz_fail(code, driver_command_name(cmd)) : USM_OK;
}

/* Called before the submission: afterwards the command may end at any time. */
static void slot_begin(lz_lane *lane, lz_slot *slot)
{
    slot->is_used = true;
    slot->lane    = lane;
    slot->number  = usm_load_relaxed(&lane->number) + 1;
    slot->dev     = lane->dev;
    slot->watch   = lane->watch;
    lz_watch_ref(slot->watch);
    if (lane->is_timed)
        stamp(lane, slot);
}

/* A shadow continues without a command, because the program has its handle. */
static void slot_cancel(lz_slot *slot)
{
    slot->lane      = NULL;
    slot->has_times = false;
    lz_watch_unref(slot->watch);
    slot->watch = NULL;
}

/* From now on the objects are used by the stream. */
static void keep(lz_lane *lane, record *r, const lz_waits *waits, lz_slot *slot)
{
    r->nwaits = waits->n;
    for (size_t i = 0; i < waits->n; i++)
        r->waits[i] = lz_slot_ref(waits->slots[i]);
    r->slot = slot ? lz_slot_ref(slot) : NULL;
    usm_list_append(&lane->records, &r->link);
    lane->nrecords++;
}

/* Called when the command is in the stream. */
static void enter(lz_lane *lane, const driver_command *cmd, const lz_waits *waits, lz_slot *slot,
                  record *r)
{
    usm_store_relaxed(&lane->number, usm_load_relaxed(&lane->number) + 1);
    lane->since_event = slot ? 0 : lane->since_event + 1;
    lane->is_open     = !slot;
    if (r) {
        keep(lane, r, waits, slot);
        if (cmd->type == DRIVER_LAUNCH) {
            r->kernel = ((const lz_instance *)cmd->as.launch.instance)->kernel;
            usm_ref_take(&r->kernel->refs);
        }
    }
    lz_slot_unref(lane->block);
    lane->block = NULL;
    if (slot) {
        lz_slot_unref(lane->tail);
        lane->tail = lz_slot_ref(slot);
    }
}

usm_status lz_lane_submit(lz_lane *lane, const driver_command *cmd, lz_waits *waits, bool wants,
                          lz_slot **out)
{
    lz_slot   *slot   = *out ? lz_slot_ref(*out) : NULL;
    record    *r      = NULL;
    usm_status status = USM_OK;

    reap_some(lane);
    add_own_waits(lane, waits);
    if (!slot && needs_slot(lane, wants))
        status = lz_slot_take(lane->ctx->events, lane->is_timed, &slot);
    if (!status && needs_record(lane, cmd, waits, slot))
        status = record_take(lane, waits->n, &r);
    if (status)
        goto err_slot;
    if (slot)
        slot_begin(lane, slot);
    status = run(lane, cmd, waits, slot, r);
    if (status)
        goto err_record;
    enter(lane, cmd, waits, slot, r);
    if (wants && !*out)
        *out = lz_slot_ref(slot);
    lz_slot_unref(slot);
    return USM_OK;
err_record:
    if (slot)
        slot_cancel(slot);
    if (r && lane->is_torn) /* the part that is in the stream waits for them nevertheless */
        keep(lane, r, waits, NULL);
    else if (r)
        record_idle(lane, r);
err_slot:
    lz_slot_unref(slot);
    return status;
}

usm_status lz_lane_tail(lz_lane *lane, lz_slot **out)
{
    static const driver_command marker = {.type = DRIVER_MARKER};
    lz_waits                    none;

    if (!lane->is_open) {
        bool is_done = !lane->tail || usm_load_acquire(&lane->tail->end) == LZ_DONE;

        *out = is_done ? NULL : lz_slot_ref(lane->tail);
        return USM_OK;
    }
    lz_waits_few(&none);
    *out = NULL;
    return lz_lane_submit(lane, &marker, &none, true, out);
}

void lz_lane_block(lz_lane *lane, lz_slot *slot)
{
    lz_slot_unref(lane->block);
    lane->block = lz_slot_ref(slot);
}

bool lz_lane_ends_with(const lz_lane *lane, const lz_slot *slot)
{
    return slot->lane == lane &&
           slot->number == usm_load_relaxed(&((lz_lane *)(uintptr_t)lane)->number);
}

static usm_status end_of(lz_lane *lane, lz_slot **slot)
{
    usm_status status;

    lz_lane_lock(lane);
    status = lz_lane_tail(lane, slot);
    lz_lane_unlock(lane);
    return status;
}

usm_status lz_lane_wait(lz_lane *lane)
{
    lz_slot    *slot = NULL;
    ze_result_t code = ZE_RESULT_SUCCESS;
    usm_status  status;

    status = end_of(lane, &slot);
    if (slot)
        code = lz_slot_wait(slot);
    lz_slot_unref(slot);
    lz_lane_lock(lane);
    while (reap_one(lane))
        ;
    lz_lane_unlock(lane);
    return code ? lz_fail(code, "zeEventHostSynchronize") : status;
}

/* --- creation and the end --------------------------------------------------------------------- */

usm_status lz_lane_create(lz_context *ctx, lz_device *dev, bool is_timed, const lz_stream *stream,
                          lz_lane **out)
{
    lz_lane   *lane = lz_host->heap_alloc(sizeof(*lane));
    usm_status status;

    if (!lane)
        return lz_no_memory();
    status = lz_watch_create(&lane->watch);
    if (status) {
        lz_host->heap_free(lane);
        return status;
    }
    lane->ctx        = ctx;
    lane->dev        = dev;
    lane->stream     = *stream;
    lane->is_chained = !stream->is_in_order;
    lane->is_timed   = is_timed;
    pthread_mutex_init(&lane->lock, NULL);
    usm_list_init(&lane->records);
    usm_list_init(&lane->idle);
    *out = lane;
    return USM_OK;
}

/* No command is in flight. */
static void lane_free(lz_lane *lane)
{
    usm_list *it;

    while (!usm_list_is_empty(&lane->records))
        record_drop(lane, usm_container_of(lane->records.next, record, link));
    while ((it = usm_list_pop(&lane->idle)))
        record_free(usm_container_of(it, record, link));
    if (lane->stream.is_owned)
        lz_stream_destroy(&lane->stream);
    lz_slot_unref(lane->tail);
    lz_slot_unref(lane->block);
    lz_watch_close(lane->watch);
    lz_watch_unref(lane->watch);
    pthread_mutex_destroy(&lane->lock);
    lz_host->heap_free(lane);
}

void lz_lane_discard(lz_lane *lane)
{
    lane->stream.is_owned = false;
    lane_free(lane);
}

/* Finishes the lane by the status of its last command.  If the driver cannot report when that ends,
 * the objects that it may still use are never freed. */
static void finish(lz_lane *lane, usm_status status)
{
    lane->is_lost = status == USM_E_DEVICE_LOST;
    if (!status || lane->is_lost)
        lane_free(lane);
    else
        lz_host->log(USM_LOG_WARN, "Level Zero: the driver does not report when a queue's last "
                                   "command ends; the memory it uses is not released");
}

static void on_end(void *arg, usm_status status)
{
    lz_lane      *lane = arg;
    gate_context *ctx  = &lane->ctx->gate;

    if (!lz_enter())
        return;
    finish(lane, status);
    gate_context_unref(ctx);
    lz_leave();
}

/* Waits for all commands of the stream, if the driver can; for a limited time, because the process
 * may end meanwhile. */
static usm_status wait_for_stream(const lz_lane *lane)
{
    ze_result_t code = ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;

    if (lane->stream.queue)
        code = lz.zeCommandQueueSynchronize(lane->stream.queue, SLICE_NS);
    else if (lz.zeCommandListHostSynchronize)
        code = lz.zeCommandListHostSynchronize(lane->stream.list, SLICE_NS);
    return code == ZE_RESULT_NOT_READY ? USM_E_NOT_READY : native_to_status(code);
}

/* There was no memory for an event at the end: retries, or waits for the stream. */
static void end_later(void *arg)
{
    const struct timespec pause  = {0, PAUSE_NS};
    lz_lane              *lane   = arg;
    lz_slot              *slot   = NULL;
    usm_status            status = USM_E_NO_MEMORY;

    for (int i = 0; i < MAX_ATTEMPTS && status && status != USM_E_DEVICE_LOST; i++) {
        if (i)
            (void)nanosleep(&pause, NULL);
        do {
            if (!lz_enter())
                return;
            status = end_of(lane, &slot);
            if (status && status != USM_E_DEVICE_LOST)
                status = wait_for_stream(lane);
            lz_leave();
        } while (status == USM_E_NOT_READY);
    }
    if (!status && slot && !lz_slot_sleep(slot, &status))
        return;
    lz_slot_unref(slot);
    on_end(lane, status);
}

/* If no thread can be started, this function waits. */
static void retire_later(lz_lane *lane, lz_slot *slot)
{
    gate_context *ctx    = &lane->ctx->gate;
    usm_status    status = USM_OK;

    gate_context_ref(ctx);
    if (!slot) {
        if (lz_host->os->thread(end_later, lane, "usm-lz-end"))
            end_later(lane);
        return;
    }
    if (lz_watch_add(lane->watch, ctx, slot, on_end, lane) && lz_slot_sleep(slot, &status))
        on_end(lane, status);
}

void lz_lane_retire(lz_lane *lane)
{
    lz_slot    *slot   = NULL;
    usm_status  status = end_of(lane, &slot);
    ze_result_t code   = slot ? lz_slot_query(slot) : ZE_RESULT_SUCCESS;

    if (code == ZE_RESULT_ERROR_DEVICE_LOST)
        status = USM_E_DEVICE_LOST;
    if (status == USM_E_DEVICE_LOST || (!status && !code))
        finish(lane, status);
    else
        retire_later(lane, slot);
    lz_slot_unref(slot);
}
