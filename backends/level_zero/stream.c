/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Native in-order streams.
 *
 * Order.  An immediate list with the in-order flag keeps its order itself.  A command that waits
 * for an earlier command of the same stream then needs no wait list.  A command has an event only
 * if one is needed, except that every EVENT_EVERY-th has one, so that it becomes known what has
 * ended.  Immediate lists of older drivers (API below 1.7) and borrowed ones without the flag keep no
 * order; there a barrier stands before a command, unless all before it are known to have ended.
 * Regular lists are not ordered by the barriers in them, so a stream of these is chained: each
 * command has an event, and waits for that of the previous one.
 *
 * The objects that a command uses must outlive it: its event, the events it waits for (a device
 * that has not read one yet would miss its signal if it were reset), its kernel, its regular list.
 * A stream keeps a record of these for each command, in order, and drops it when an event at or
 * behind it has ended: a few at each submission, all when a thread waits.  So the last reference to
 * an event is released only when no device uses it any more.
 *
 *     records   [list, waits] [slot, waits] [kernel] [slot] ...      oldest first
 *     tail      slot of the last command that has one; is_open: a command came after it
 *
 * The end.  A queue is destroyed without waiting.  A stream with commands in flight then becomes a
 * notice of its own watch, and is freed when its last command has ended; a reference to the context
 * keeps the objects that it needs.  On a lost device all commands count as ended.  If the last
 * command has no event, a marker with one follows.  It needs no memory where the driver could not
 * tell of the end otherwise (before API 1.6): its event and record were made with the stream.
 *
 * After a failure in the middle of a command that consists of several appends, the stream contains
 * a part of it ("torn"): the next command begins with a barrier, so that the order is kept.
 *
 * Not here: the choice of a stream (submit.c).  Called by submit.c, queue.c, queue_native.c. */
#include "queue.h"

#include "base/inline/clock.h"

#include "program.h"

#include <string.h>

#define EVENT_EVERY  16 /* an event for at least one command in so many */
#define REAP_FROM    8  /* with fewer records nothing is dropped        */
#define REAP_AT_ONCE 4
#define FEW_WAITS    4 /* waits that every record has room for */
#define IDLE_RECORDS 64
#define PAUSE_NS     10000000 /* between attempts to mark the end of a stream */
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

struct lz_stream {
    /* fixed after create */
    lz_context      *ctx;
    lz_device       *dev;
    lz_watch        *watch;
    lz_native_stream native_stream;
    bool             is_chained;   /* by events        */
    bool             has_barriers; /* between commands */
    bool             is_timed;
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
    lz_slot        *spare_slot;   /* of a marker at the end, if has_barriers */
    record         *spare_record; /* likewise                                */
    lz_timeline     time;
};

void lz_stream_lock(lz_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
}

void lz_stream_unlock(lz_stream *stream)
{
    pthread_mutex_unlock(&stream->lock);
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

usm_status lz_native_stream_create(const lz_context *ctx, lz_device *dev, lz_native_stream *out)
{
    ze_command_queue_desc_t desc = {
        .stype   = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
        .ordinal = dev->ordinal,
        .mode    = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
    };
    lz_native_stream native_stream = {.ordinal = dev->ordinal, .is_owned = true};
    ze_result_t      code;

    if (dev->nqueues)
        desc.index = usm_add_relaxed(&dev->next_queue, 1) % dev->nqueues;
    if (wants_regular()) {
        code = lz.zeCommandQueueCreate(ctx->native, dev->native, &desc, &native_stream.queue);
        if (code)
            return lz_fail(code, "zeCommandQueueCreate");
    } else {
        native_stream.is_in_order = dev->driver->has_in_order;
        if (native_stream.is_in_order)
            desc.flags = LZ_COMMAND_QUEUE_FLAG_IN_ORDER;
        if (dev->driver->has_copy_offload)
            desc.pNext = &copy_offload;
        code =
            lz.zeCommandListCreateImmediate(ctx->native, dev->native, &desc, &native_stream.list);
        if (code)
            return lz_fail(code, "zeCommandListCreateImmediate");
    }
    *out = native_stream;
    return USM_OK;
}

void lz_native_stream_destroy(const lz_native_stream *native_stream)
{
    if (native_stream->list)
        (void)lz.zeCommandListDestroy(native_stream->list);
    if (native_stream->queue)
        (void)lz.zeCommandQueueDestroy(native_stream->queue);
}

/* --- records ---------------------------------------------------------------------------- */

static void record_free(record *r)
{
    if (r->list)
        (void)lz.zeCommandListDestroy(r->list);
    lz_host->heap_free(r);
}

static usm_status record_new(const lz_stream *stream, size_t nwaits, record **out)
{
    ze_command_list_desc_t desc = {
        .stype                    = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
        .commandQueueGroupOrdinal = stream->native_stream.ordinal,
    };
    size_t      cap = nwaits < FEW_WAITS ? FEW_WAITS : nwaits;
    record     *r   = lz_host->heap_alloc(sizeof(*r) + cap * sizeof(r->waits[0]));
    ze_result_t code;

    if (!r)
        return lz_no_memory();
    usm_list_init(&r->link);
    r->cap = cap;
    if (stream->native_stream.queue) {
        code = lz.zeCommandListCreate(stream->ctx->native, stream->dev->native, &desc, &r->list);
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

static void record_idle(lz_stream *stream, record *r)
{
    if (stream->nidle >= IDLE_RECORDS) {
        record_free(r);
        return;
    }
    usm_list_append(&stream->idle, &r->link);
    stream->nidle++;
}

/* Returns an empty record with room for so many waits, not in a list. */
static usm_status record_take(lz_stream *stream, size_t nwaits, record **out)
{
    record    *r;
    usm_status status;

    USM_LIST_FOREACH (it, &stream->idle) {
        r = usm_container_of(it, record, link);
        if (r->cap < nwaits)
            continue;
        status = record_reset(r);
        if (status)
            return status;
        usm_list_remove(&r->link);
        stream->nidle--;
        *out = r;
        return USM_OK;
    }
    return record_new(stream, nwaits, out);
}

static void record_drop(lz_stream *stream, record *r)
{
    usm_list_remove(&r->link);
    stream->nrecords--;
    for (size_t i = 0; i < r->nwaits; i++)
        lz_slot_unref(r->waits[i]);
    if (r->slot && stream->is_lost)
        lz_slot_lose(r->slot);
    lz_slot_unref(r->slot);
    if (r->kernel)
        lz_kernel_destroy(r->kernel); /* releases the stream's reference */
    r->slot   = NULL;
    r->kernel = NULL;
    r->nwaits = 0;
    record_idle(stream, r);
}

/* Drops the records up to the oldest event, if that has ended. */
static bool reap_one(lz_stream *stream)
{
    record *last = NULL, *first;

    USM_LIST_FOREACH (it, &stream->records) {
        last = usm_container_of(it, record, link);
        if (last->slot)
            break;
    }
    if (!last || !last->slot)
        return false;
    if (lz_slot_query(last->slot)) /* also if it is lost: then all records stay until the end */
        return false;
    do {
        first = usm_container_of(stream->records.next, record, link);
        record_drop(stream, first);
    } while (first != last);
    return true;
}

static void reap_some(lz_stream *stream)
{
    for (int i = 0; i < REAP_AT_ONCE && stream->nrecords >= REAP_FROM; i++)
        if (!reap_one(stream))
            return;
}

/* --- times --------------------------------------------------------------------------------- */

/* A command whose time cannot be read just has no times. */
static void stamp(lz_stream *stream, lz_slot *slot)
{
    uint64_t host = 0, ticks = 0;

    if (lz.zeDeviceGetGlobalTimestamps(stream->dev->native, &host, &ticks))
        return;
    lz_timeline_go_on(&stream->time, stream->dev, ticks, usm_clock_ns(CLOCK_MONOTONIC));
    slot->submit_ticks = ticks;
    slot->submit_total = stream->time.total;
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

/* Adds the events that the stream itself makes a command wait for. */
static void add_own_waits(const lz_stream *stream, lz_waits *waits)
{
    if (stream->is_chained && stream->tail && usm_load_acquire(&stream->tail->end) != LZ_DONE)
        add_once(waits, stream->tail);
    if (stream->block && usm_load_acquire(&stream->block->end) != LZ_DONE)
        add_once(waits, stream->block);
}

static bool needs_slot(const lz_stream *stream, bool wants)
{
    return wants || stream->is_chained || stream->since_event + 1 >= EVENT_EVERY;
}

static bool needs_record(const lz_stream *stream, const driver_command *cmd, const lz_waits *waits,
                         const lz_slot *slot)
{
    return slot || waits->n || cmd->type == DRIVER_LAUNCH || stream->native_stream.queue;
}

static bool has_ended(const lz_stream *stream)
{
    return !stream->is_open && (!stream->tail || usm_load_acquire(&stream->tail->end) == LZ_DONE);
}

/* Appends the command, and before it a barrier if the stream needs one. */
static ze_result_t append(lz_stream *stream, lz_target *t, const driver_command *cmd)
{
    const bool  needs  = stream->is_torn || (stream->has_barriers && !has_ended(stream));
    lz_target   before = {.list = t->list, .dev = t->dev};
    ze_result_t code   = needs ? lz_barrier_append(&before) : ZE_RESULT_SUCCESS;

    if (code)
        return code;
    stream->is_torn = false;
    return lz_command_append(t, cmd);
}

static ze_result_t run_regular(lz_stream *stream, record *r, lz_target *t,
                               const driver_command *cmd)
{
    ze_result_t code;

    t->list     = r->list;
    r->is_dirty = true;
    code        = append(stream, t, cmd);
    if (!code)
        code = lz.zeCommandListClose(r->list);
    if (!code)
        code = lz.zeCommandQueueExecuteCommandLists(stream->native_stream.queue, 1, &r->list, NULL);
    return code;
}

static ze_result_t run_immediate(lz_stream *stream, lz_target *t, const driver_command *cmd)
{
    ze_result_t code;

    t->list = stream->native_stream.list;
    code    = append(stream, t, cmd);
    if (code && t->has_appended)
        stream->is_torn = stream->is_open = true;
    return code;
}

static usm_status run(lz_stream *stream, const driver_command *cmd, const lz_waits *waits,
                      lz_slot *slot, record *r)
{
    lz_target t = {
        .dev    = stream->dev,
        .signal = slot ? slot->native : NULL,
        .nwaits = (uint32_t)waits->n,
        .waits  = waits->n ? waits->natives : NULL,
    };
    ze_result_t code;

    code = r && r->list ? run_regular(stream, r, &t, cmd) : run_immediate(stream, &t, cmd);
    return code ? lz_fail(code, driver_command_name(cmd)) : USM_OK;
}

/* Called before the submission: afterwards the command may end at any time. */
static void slot_begin(lz_stream *stream, lz_slot *slot)
{
    slot->is_used = true;
    slot->stream  = stream;
    slot->number  = usm_load_relaxed(&stream->number) + 1;
    slot->dev     = stream->dev;
    slot->watch   = stream->watch;
    lz_watch_ref(slot->watch);
    if (stream->is_timed)
        stamp(stream, slot);
}

/* A shadow continues without a command, because the program has its handle. */
static void slot_cancel(lz_slot *slot)
{
    slot->stream    = NULL;
    slot->has_times = false;
    lz_watch_unref(slot->watch);
    slot->watch = NULL;
}

/* From now on the objects are used by the stream. */
static void keep(lz_stream *stream, record *r, const lz_waits *waits, lz_slot *slot)
{
    r->nwaits = waits->n;
    for (size_t i = 0; i < waits->n; i++)
        r->waits[i] = lz_slot_ref(waits->slots[i]);
    r->slot = slot ? lz_slot_ref(slot) : NULL;
    usm_list_append(&stream->records, &r->link);
    stream->nrecords++;
}

/* Called when the command is in the stream. */
static void enter(lz_stream *stream, const driver_command *cmd, const lz_waits *waits,
                  lz_slot *slot, record *r)
{
    usm_store_relaxed(&stream->number, usm_load_relaxed(&stream->number) + 1);
    stream->since_event = slot ? 0 : stream->since_event + 1;
    stream->is_open     = !slot;
    if (r) {
        keep(stream, r, waits, slot);
        if (cmd->type == DRIVER_LAUNCH) {
            r->kernel = ((const lz_instance *)cmd->as.launch.instance)->kernel;
            usm_ref_take(&r->kernel->refs);
        }
    }
    lz_slot_unref(stream->block);
    stream->block = NULL;
    if (slot) {
        lz_slot_unref(stream->tail);
        stream->tail = lz_slot_ref(slot);
    }
}

usm_status lz_stream_submit(lz_stream *stream, const driver_command *cmd, lz_waits *waits,
                            bool wants, lz_slot **out)
{
    lz_slot   *slot   = *out ? lz_slot_ref(*out) : NULL;
    record    *r      = NULL;
    usm_status status = USM_OK;

    reap_some(stream);
    add_own_waits(stream, waits);
    if (!slot && needs_slot(stream, wants))
        status = lz_slot_take(stream->ctx->events, stream->is_timed, &slot);
    if (!status && needs_record(stream, cmd, waits, slot))
        status = record_take(stream, waits->n, &r);
    if (status)
        goto err_slot;
    if (slot)
        slot_begin(stream, slot);
    status = run(stream, cmd, waits, slot, r);
    if (status)
        goto err_record;
    enter(stream, cmd, waits, slot, r);
    if (wants && !*out)
        *out = lz_slot_ref(slot);
    lz_slot_unref(slot);
    return USM_OK;
err_record:
    if (slot)
        slot_cancel(slot);
    if (r && stream->is_torn) /* the part that is in the stream waits for them nevertheless */
        keep(stream, r, waits, NULL);
    else if (r)
        record_idle(stream, r);
err_slot:
    lz_slot_unref(slot);
    return status;
}

usm_status lz_stream_tail(lz_stream *stream, lz_slot **out)
{
    static const driver_command marker = {.type = DRIVER_MARKER};
    lz_waits                    none;

    if (!stream->is_open) {
        *out = has_ended(stream) ? NULL : lz_slot_ref(stream->tail);
        return USM_OK;
    }
    lz_waits_few(&none);
    *out = NULL;
    return lz_stream_submit(stream, &marker, &none, true, out);
}

void lz_stream_block(lz_stream *stream, lz_slot *slot)
{
    lz_slot_unref(stream->block);
    stream->block = lz_slot_ref(slot);
}

bool lz_stream_ends_with(const lz_stream *stream, const lz_slot *slot)
{
    return slot->stream == stream &&
           slot->number == usm_load_relaxed(&((lz_stream *)(uintptr_t)stream)->number);
}

/* Makes what a marker at the end needs, unless it is there.  Locked. */
static usm_status take_spare(lz_stream *stream)
{
    usm_status status = USM_OK;

    if (!stream->has_barriers)
        return USM_OK;
    if (!stream->spare_slot)
        status = lz_slot_take(stream->ctx->events, stream->is_timed, &stream->spare_slot);
    if (!status && !stream->spare_record)
        status = record_take(stream, 0, &stream->spare_record);
    return status;
}

/* Marks the end without memory.  Locked. */
static usm_status mark_by_spare(lz_stream *stream, lz_slot **slot)
{
    static const driver_command marker = {.type = DRIVER_MARKER};
    lz_waits                    none;
    usm_status                  status;

    lz_waits_few(&none);
    if (stream->spare_record)
        record_idle(stream, stream->spare_record);
    stream->spare_record = NULL;
    status               = lz_stream_submit(stream, &marker, &none, true, &stream->spare_slot);
    if (!status) {
        *slot              = stream->spare_slot;
        stream->spare_slot = NULL;
    }
    return status;
}

static usm_status end_of(lz_stream *stream, lz_slot **slot)
{
    usm_status status;

    lz_stream_lock(stream);
    status = lz_stream_tail(stream, slot);
    if (status && status != USM_E_DEVICE_LOST && stream->spare_slot)
        status = mark_by_spare(stream, slot);
    lz_stream_unlock(stream);
    return status;
}

usm_status lz_stream_wait(lz_stream *stream)
{
    lz_slot    *slot = NULL;
    ze_result_t code = ZE_RESULT_SUCCESS;
    usm_status  status;

    status = end_of(stream, &slot);
    if (slot)
        code = lz_slot_wait(slot);
    lz_slot_unref(slot);
    lz_stream_lock(stream);
    while (reap_one(stream))
        ;
    (void)take_spare(stream); /* after its use; without memory the next wait fails */
    lz_stream_unlock(stream);
    return code ? lz_fail(code, "zeEventHostSynchronize") : status;
}

/* --- creation and the end --------------------------------------------------------------------- */

/* No command is in flight. */
static void stream_free(lz_stream *stream)
{
    usm_list *it;

    while (!usm_list_is_empty(&stream->records))
        record_drop(stream, usm_container_of(stream->records.next, record, link));
    while ((it = usm_list_pop(&stream->idle)))
        record_free(usm_container_of(it, record, link));
    if (stream->spare_record)
        record_free(stream->spare_record);
    if (stream->native_stream.is_owned)
        lz_native_stream_destroy(&stream->native_stream);
    lz_slot_unref(stream->spare_slot);
    lz_slot_unref(stream->tail);
    lz_slot_unref(stream->block);
    lz_watch_close(stream->watch);
    lz_watch_unref(stream->watch);
    pthread_mutex_destroy(&stream->lock);
    lz_host->heap_free(stream);
}

void lz_stream_discard(lz_stream *stream)
{
    stream->native_stream.is_owned = false;
    stream_free(stream);
}

usm_status lz_stream_create(lz_context *ctx, lz_device *dev, bool is_timed,
                            const lz_native_stream *native_stream, lz_stream **out)
{
    lz_stream *stream = lz_host->heap_alloc(sizeof(*stream));
    usm_status status;

    if (!stream)
        return lz_no_memory();
    status = lz_watch_create(&stream->watch);
    if (status) {
        lz_host->heap_free(stream);
        return status;
    }
    stream->ctx           = ctx;
    stream->dev           = dev;
    stream->native_stream = *native_stream;
    stream->is_chained    = native_stream->queue != NULL;
    stream->has_barriers  = native_stream->list && !native_stream->is_in_order;
    stream->is_timed      = is_timed;
    pthread_mutex_init(&stream->lock, NULL);
    usm_list_init(&stream->records);
    usm_list_init(&stream->idle);
    status = take_spare(stream);
    if (status) {
        lz_stream_discard(stream);
        return status;
    }
    *out = stream;
    return USM_OK;
}

/* Finishes the stream by the status of its last command.  If the driver cannot report when that
 * ends, the objects that it may still use are never freed. */
static void finish(lz_stream *stream, usm_status status)
{
    stream->is_lost = status == USM_E_DEVICE_LOST;
    if (!status || stream->is_lost)
        stream_free(stream);
    else
        lz_host->log(USM_LOG_WARN, "Level Zero: the driver does not report when a queue's last "
                                   "command ends; the memory it uses is not released");
}

static void on_end(void *arg, usm_status status)
{
    lz_stream     *stream = arg;
    defer_context *ctx    = &stream->ctx->deferral;

    if (!lz_enter())
        return;
    finish(stream, status);
    defer_context_unref(ctx);
    lz_leave();
}

/* Waits for all commands of the stream, if the driver can; for a limited time, because the process
 * may end meanwhile. */
static usm_status wait_for_native_stream(const lz_stream *stream)
{
    ze_result_t code = ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;

    if (stream->native_stream.queue)
        code = lz.zeCommandQueueSynchronize(stream->native_stream.queue, SLICE_NS);
    else if (lz.zeCommandListHostSynchronize)
        code = lz.zeCommandListHostSynchronize(stream->native_stream.list, SLICE_NS);
    return code == ZE_RESULT_NOT_READY ? USM_E_NOT_READY : native_to_status(code);
}

/* There was no memory for an event at the end: retries, or waits for the stream. */
static void end_later(void *arg)
{
    const struct timespec pause  = {0, PAUSE_NS};
    lz_stream            *stream = arg;
    lz_slot              *slot   = NULL;
    usm_status            status = USM_E_NO_MEMORY;

    for (int i = 0; i < MAX_ATTEMPTS && status && status != USM_E_DEVICE_LOST; i++) {
        if (i)
            (void)nanosleep(&pause, NULL);
        do {
            if (!lz_enter())
                return;
            status = end_of(stream, &slot);
            if (status && status != USM_E_DEVICE_LOST)
                status = wait_for_native_stream(stream);
            lz_leave();
        } while (status == USM_E_NOT_READY);
    }
    if (!status && slot && !lz_slot_sleep(slot, &status))
        return;
    lz_slot_unref(slot);
    on_end(stream, status);
}

/* If no thread can be started, this function waits. */
static void retire_later(lz_stream *stream, lz_slot *slot)
{
    defer_context *ctx    = &stream->ctx->deferral;
    usm_status     status = USM_OK;

    defer_context_ref(ctx);
    if (!slot) {
        if (lz_host->os->thread(end_later, stream, "usm-lz-end"))
            end_later(stream);
        return;
    }
    if (lz_watch_add(stream->watch, ctx, slot, on_end, stream) && lz_slot_sleep(slot, &status))
        on_end(stream, status);
}

void lz_stream_retire(lz_stream *stream)
{
    lz_slot    *slot   = NULL;
    usm_status  status = end_of(stream, &slot);
    ze_result_t code   = slot ? lz_slot_query(slot) : ZE_RESULT_SUCCESS;

    if (code == ZE_RESULT_ERROR_DEVICE_LOST)
        status = USM_E_DEVICE_LOST;
    if (status == USM_E_DEVICE_LOST || (!status && !code))
        finish(stream, status);
    else
        retire_later(stream, slot);
    lz_slot_unref(slot);
}
