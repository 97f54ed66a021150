/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The driver's events: slots of event pools, with reference counts, reset and reused.
 *
 * The host resets an event for its next use, after its last reference was released.  The commands
 * that signal it or wait for it hold references until they are known to have ended (stream.c), so
 * no device can miss a signal because of the reset.  An event of a lost device is never reused,
 * because the device may still write to it.
 *
 * There are two kinds of pools: with timestamps, for queues with profiling, and without.  Pools
 * grow to the maximum number of events in flight, and are freed with the context.
 *
 * Not here: the commands that signal an event (stream.c), the events of the core (event.c).  Called
 * by those. */
#include "queue.h"

#include <time.h>

#define POOL_EVENTS 64
#define ATTEMPTS    10
#define PAUSE_NS    1000000
#define SLICE_NS    100000000
#define MAX_BAD     100 /* slices without a result, if no thread waits for it */

typedef struct pool {
    struct pool           *next;
    ze_event_pool_handle_t native;
    uint32_t               nmade;
    lz_slot                slots[POOL_EVENTS]; /* nmade of them have an event */
} pool;

struct lz_event_pools {
    /* fixed after create */
    const lz_context *ctx;
    /* guarded by lock; the index is is_timed */
    pthread_mutex_t lock;
    lz_slot        *idle[2];
    pool           *pools[2]; /* only the first may have room */
    /* fixed after create: those of the context, so that a lost device elsewhere does not matter */
    uint32_t           ndevices;
    ze_device_handle_t devices[];
};

/* --- pools --------------------------------------------------------------------- */

usm_status lz_event_pools_create(lz_context *ctx, lz_event_pools **out)
{
    lz_event_pools *p = lz_host->heap_alloc(sizeof(*p) + ctx->ndevices * sizeof(p->devices[0]));

    if (!p)
        return lz_no_memory();
    p->ctx = ctx;
    for (; p->ndevices < ctx->ndevices; p->ndevices++)
        p->devices[p->ndevices] = ctx->devices[p->ndevices]->native;
    pthread_mutex_init(&p->lock, NULL);
    *out = p;
    return USM_OK;
}

static void pool_destroy(pool *p)
{
    while (p->nmade)
        (void)lz.zeEventDestroy(p->slots[--p->nmade].native);
    (void)lz.zeEventPoolDestroy(p->native);
    lz_host->heap_free(p);
}

void lz_event_pools_destroy(lz_event_pools *pools)
{
    if (!pools)
        return;
    for (int timed = 0; timed < 2; timed++)
        while (pools->pools[timed]) {
            pool *p = pools->pools[timed];

            pools->pools[timed] = p->next;
            pool_destroy(p);
        }
    pthread_mutex_destroy(&pools->lock);
    lz_host->heap_free(pools);
}

/* Lock held. */
static usm_status pool_add(lz_event_pools *pools, bool is_timed)
{
    ze_event_pool_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
        .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
        .count = POOL_EVENTS,
    };
    pool       *p = lz_host->heap_alloc(sizeof(*p));
    ze_result_t code;

    if (!p)
        return lz_no_memory();
    if (is_timed)
        desc.flags |= ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP;
    code = lz.zeEventPoolCreate(pools->ctx->native, &desc, pools->ndevices, pools->devices,
                                &p->native);
    if (code) {
        lz_host->heap_free(p);
        return lz_fail(code, "zeEventPoolCreate");
    }
    p->next                = pools->pools[is_timed];
    pools->pools[is_timed] = p;
    return USM_OK;
}

/* Lock held.  Makes an event that was never used. */
static usm_status slot_make(lz_event_pools *pools, bool is_timed, lz_slot **out)
{
    ze_event_desc_t desc = {
        .stype  = ZE_STRUCTURE_TYPE_EVENT_DESC,
        .signal = ZE_EVENT_SCOPE_FLAG_HOST,
        .wait   = ZE_EVENT_SCOPE_FLAG_HOST,
    };
    pool       *p      = pools->pools[is_timed];
    usm_status  status = USM_OK;
    lz_slot    *slot;
    ze_result_t code;

    if (!p || p->nmade == POOL_EVENTS)
        status = pool_add(pools, is_timed);
    if (status)
        return status;
    p          = pools->pools[is_timed];
    slot       = &p->slots[p->nmade];
    desc.index = p->nmade;
    code       = lz.zeEventCreate(p->native, &desc, &slot->native);
    if (code)
        return lz_fail(code, "zeEventCreate");
    slot->pools    = pools;
    slot->is_timed = is_timed;
    p->nmade++;
    *out = slot;
    return USM_OK;
}

/* --- slots ------------------------------------------------------------------------ */

static void put_idle(lz_slot *slot)
{
    lz_event_pools *pools = slot->pools;

    pthread_mutex_lock(&pools->lock);
    slot->next_idle             = pools->idle[slot->is_timed];
    pools->idle[slot->is_timed] = slot;
    pthread_mutex_unlock(&pools->lock);
}

static usm_status take_idle(lz_event_pools *pools, bool is_timed, lz_slot **out)
{
    usm_status status = USM_OK;

    pthread_mutex_lock(&pools->lock);
    *out = pools->idle[is_timed];
    if (*out)
        pools->idle[is_timed] = (*out)->next_idle;
    else
        status = slot_make(pools, is_timed, out);
    pthread_mutex_unlock(&pools->lock);
    return status;
}

usm_status lz_slot_take(lz_event_pools *pools, bool is_timed, lz_slot **out)
{
    lz_slot    *slot   = NULL;
    usm_status  status = take_idle(pools, is_timed, &slot);
    ze_result_t code;

    if (status)
        return status;
    code = slot->is_used ? lz.zeEventHostReset(slot->native) : ZE_RESULT_SUCCESS;
    if (code) {
        put_idle(slot);
        return lz_fail(code, "zeEventHostReset");
    }
    slot->stream    = NULL;
    slot->is_used   = false;
    slot->has_times = false;
    usm_store_relaxed(&slot->end, LZ_RUNNING);
    usm_store_relaxed(&slot->refs, 1);
    *out = slot;
    return USM_OK;
}

usm_status lz_slot_wrap(ze_event_handle_t native, bool is_owned, lz_slot **out)
{
    lz_slot   *slot = lz_host->heap_alloc(sizeof(*slot));
    usm_status status;

    if (!slot)
        return lz_no_memory();
    status = lz_watch_create(&slot->watch);
    if (status) {
        lz_host->heap_free(slot);
        return status;
    }
    slot->native   = native;
    slot->is_owned = is_owned;
    usm_store_relaxed(&slot->refs, 1);
    *out = slot;
    return USM_OK;
}

lz_slot *lz_slot_ref(lz_slot *slot)
{
    usm_ref_take(&slot->refs);
    return slot;
}

static void free_wrapped(lz_slot *slot)
{
    lz_watch_close(slot->watch);
    lz_watch_unref(slot->watch);
    if (slot->is_owned)
        (void)lz.zeEventDestroy(slot->native);
    lz_host->heap_free(slot);
}

void lz_slot_unref(lz_slot *slot)
{
    if (!slot || !usm_ref_drop(&slot->refs))
        return;
    if (!slot->pools) {
        free_wrapped(slot);
        return;
    }
    if (slot->watch)
        lz_watch_unref(slot->watch);
    slot->watch = NULL;
    if (usm_load_acquire(&slot->end) != LZ_LOST) /* otherwise it is freed with its pool */
        put_idle(slot);
}

/* --- query and wait ------------------------------------------------------------------ */

/* Every code that means a lost device is mapped to one, with which callers compare. */
static ze_result_t note_end(lz_slot *slot, ze_result_t code)
{
    if (code == ZE_RESULT_SUCCESS)
        usm_store_release(&slot->end, LZ_DONE);
    return native_to_status(code) == USM_E_DEVICE_LOST ? ZE_RESULT_ERROR_DEVICE_LOST : code;
}

void lz_slot_lose(lz_slot *slot)
{
    int running = LZ_RUNNING;

    (void)usm_cas_acq_rel(&slot->end, &running, LZ_LOST);
}

ze_result_t lz_slot_query(lz_slot *slot)
{
    int end = usm_load_acquire(&slot->end);

    if (end != LZ_RUNNING)
        return end == LZ_DONE ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_DEVICE_LOST;
    return note_end(slot, lz.zeEventQueryStatus(slot->native));
}

/* A driver that is out of memory may be temporarily unable to wait, so the wait is retried:
 * otherwise the caller would take the command as ended, or as failed. */
static ze_result_t wait_for(lz_slot *slot, uint64_t timeout_ns, int attempts)
{
    const struct timespec pause = {0, PAUSE_NS};
    int                   end   = usm_load_acquire(&slot->end);
    ze_result_t           code;

    if (end != LZ_RUNNING)
        return end == LZ_DONE ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_DEVICE_LOST;
    for (;;) {
        code = lz.zeEventHostSynchronize(slot->native, timeout_ns);
        if (!code || code == ZE_RESULT_NOT_READY || native_to_status(code) == USM_E_DEVICE_LOST ||
            --attempts <= 0)
            return note_end(slot, code);
        (void)nanosleep(&pause, NULL);
    }
}

ze_result_t lz_slot_wait(lz_slot *slot)
{
    ze_result_t code;

    do
        code = wait_for(slot, UINT64_MAX, ATTEMPTS);
    while (code == ZE_RESULT_NOT_READY); /* a driver may return early */
    return code;
}

/* Sleeps in slices.  The driver wakes the thread when the command ends; the slices let it leave the
 * driver when the process ends. */
bool lz_slot_sleep(lz_slot *slot, usm_status *status)
{
    ze_result_t code = ZE_RESULT_NOT_READY;
    int         bad  = 0;

    while (code == ZE_RESULT_NOT_READY || (code && bad++ < MAX_BAD)) {
        if (!lz_enter())
            return false;
        code = wait_for(slot, SLICE_NS, ATTEMPTS);
        lz_leave();
        if (code == ZE_RESULT_ERROR_DEVICE_LOST)
            break;
    }
    *status = code ? native_to_status(code) : USM_OK;
    return true;
}

void lz_slot_signal(lz_slot *slot)
{
    slot->is_used = true;
    (void)lz.zeEventHostSignal(slot->native);
}
