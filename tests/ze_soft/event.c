/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events: a host's view of a cell of a pool.  Called by the loader through the tables, and by
 * engine.c for the events of commands.
 *
 * The cells themselves, and how to wait for one: cell.c.  Pools: pool.c. */
#include "exec.h"

#define SCOPES_KNOWN 0x7u

/* --- for commands ------------------------------------------------------------------ */

bool exec_event_point(exec_event *ev, exec_point *p)
{
    bool ok = true;

    if (ev->pool->is_counter) {
        pthread_mutex_lock(&ev->lock);
        *p = ev->point;
        ok = ev->is_bound;
        exec_store_ref(p->store);
        pthread_mutex_unlock(&ev->lock);
    } else {
        *p = ev->point;
        exec_store_ref(p->store);
    }
    if (!ok)
        exec_store_unref(p->store);
    return ok;
}

/* Another cell, unless nobody else knows the one it has. */
static bool renew(exec_event *ev)
{
    exec_store *store;

    if (ev->is_bound && atomic_load(&ev->point.store->refs) > 1) {
        store = exec_store_new(1, ev->pool->store->roots, false);
        if (!store)
            return false;
        store->is_counter = true;
        exec_store_unref(ev->point.store);
        ev->point = (exec_point){store, store->cells};
    }
    exec_cell_reset(ev->point.cell);
    ev->is_bound = true;
    return true;
}

bool exec_event_bind(exec_event *ev, exec_point *p)
{
    bool ok = true;

    if (!ev->pool->is_counter) {
        *p = ev->point;
        exec_store_ref(p->store);
        return true;
    }
    pthread_mutex_lock(&ev->lock);
    ok = renew(ev);
    if (ok) {
        *p = ev->point;
        exec_store_ref(p->store);
    }
    pthread_mutex_unlock(&ev->lock);
    return ok;
}

/* What the host asks about: the last command's. */
static exec_point host_point(exec_event *ev)
{
    exec_point p;

    pthread_mutex_lock(&ev->lock);
    p = ev->point;
    exec_store_ref(p.store);
    pthread_mutex_unlock(&ev->lock);
    return p;
}

/* --- create, destroy ------------------------------------------------------------------ */

static bool first_point(exec_event *ev)
{
    exec_store *store = ev->pool->store;

    if (ev->pool->is_counter) {
        store = exec_store_new(1, store->roots, false);
        if (!store)
            return false;
        store->is_counter = true;
        ev->point         = (exec_point){store, store->cells};
        return true;
    }
    ev->point = (exec_point){exec_store_ref(store), &store->cells[ev->index]};
    /* Of a pool of another process it is as that process left it. */
    if (!ev->pool->is_opened) {
        exec_cell_reset(ev->point.cell);
        atomic_store(&ev->point.cell->signaller, 0);
    }
    return true;
}

static ze_result_t event_new(exec_pool *pool, const ze_event_desc_t *desc, exec_event **out)
{
    exec_event *ev = exec_object_new(SOFT_EVENT, sizeof(*ev));

    if (!ev)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    ev->pool   = pool;
    ev->index  = desc->index;
    ev->signal = desc->signal;
    ev->wait   = desc->wait;
    if (!first_point(ev)) {
        exec_object_retire(ev);
        exec_object_free(ev);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    pthread_mutex_init(&ev->lock, NULL);
    atomic_fetch_add(&pool->refs, 1);
    *out = ev;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeEventCreate(ze_event_pool_handle_t h,
                                                 const ze_event_desc_t *desc,
                                                 ze_event_handle_t     *out)
{
    exec_pool  *pool;
    exec_event *ev;
    ze_result_t res;

    SOFT_CALL();
    EXEC_HANDLE(pool, h, SOFT_POOL);
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if ((desc->signal | desc->wait) & ~SCOPES_KNOWN)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    if (desc->index >= pool->count)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (atomic_fetch_add(&pool->in_use[desc->index], 1) && !soft_is_lenient())
        res = ZE_RESULT_ERROR_INVALID_ARGUMENT;
    else
        res = event_new(pool, desc, &ev);
    if (res != ZE_RESULT_SUCCESS) {
        atomic_fetch_sub(&pool->in_use[desc->index], 1);
        return res;
    }
    *out = (ze_event_handle_t)ev;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeEventDestroy(ze_event_handle_t h)
{
    exec_event *ev;

    soft_enter_free(__func__);
    EXEC_HANDLE(ev, h, SOFT_EVENT);
    exec_object_retire(ev);
    exec_store_unref(ev->point.store);
    pthread_mutex_destroy(&ev->lock);
    atomic_fetch_sub(&ev->pool->in_use[ev->index], 1);
    exec_pool_unref(ev->pool);
    exec_object_free(ev);
    return ZE_RESULT_SUCCESS;
}

/* --- state ------------------------------------------------------------------------------- */

static ze_result_t ZE_APICALL soft_zeEventHostSignal(ze_event_handle_t h)
{
    exec_event *ev;
    exec_point  p;
    uint64_t    now;

    SOFT_CALL();
    EXEC_HANDLE(ev, h, SOFT_EVENT);
    if (ev->pool->is_counter)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    /* Held, because who waits for it may destroy event and pool at once. */
    p   = host_point(ev);
    now = soft_now_ns();
    atomic_store(&p.cell->start, now);
    atomic_store(&p.cell->end, now);
    exec_cell_set(p.cell);
    exec_store_unref(p.store);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t host_wait(exec_event *ev, uint64_t timeout)
{
    exec_point  p   = host_point(ev);
    ze_result_t res = exec_wait_result(exec_point_wait(&p, NULL, exec_deadline(timeout)));

    exec_store_unref(p.store);
    return res;
}

static ze_result_t ZE_APICALL soft_zeEventHostSynchronize(ze_event_handle_t h, uint64_t timeout)
{
    exec_event *ev;

    SOFT_CALL();
    EXEC_HANDLE(ev, h, SOFT_EVENT);
    return host_wait(ev, timeout);
}

static ze_result_t ZE_APICALL soft_zeEventQueryStatus(ze_event_handle_t h)
{
    exec_event *ev;

    SOFT_CALL();
    EXEC_HANDLE(ev, h, SOFT_EVENT);
    return host_wait(ev, 0);
}

static ze_result_t ZE_APICALL soft_zeEventHostReset(ze_event_handle_t h)
{
    exec_event *ev;

    SOFT_CALL();
    EXEC_HANDLE(ev, h, SOFT_EVENT);
    if (ev->pool->is_counter)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    atomic_store(&ev->point.cell->signaller, 0);
    exec_cell_reset(ev->point.cell);
    return ZE_RESULT_SUCCESS;
}

/* --- timestamps ----------------------------------------------------------------------------- */

static ze_result_t times_of(exec_event *ev, ze_kernel_timestamp_result_t *times)
{
    const uint32_t stamped = ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP | EXEC_POOL_FLAG_MAPPED_TIMESTAMP;
    exec_point     p;
    ze_result_t    res = ZE_RESULT_NOT_READY;

    if (!(ev->pool->flags & stamped))
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    p = host_point(ev);
    if (exec_cell_is_set(p.cell)) {
        exec_cell_times(p.cell, times);
        res = ZE_RESULT_SUCCESS;
    }
    exec_store_unref(p.store);
    return res;
}

static ze_result_t ZE_APICALL soft_zeEventQueryKernelTimestamp(ze_event_handle_t             h,
                                                               ze_kernel_timestamp_result_t *out)
{
    exec_event *ev;

    SOFT_CALL();
    EXEC_HANDLE(ev, h, SOFT_EVENT);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return times_of(ev, out);
}

/* One result: a command runs on its device as a whole. */
static ze_result_t one_result(ze_event_handle_t h, ze_device_handle_t hdev, const uint32_t *count,
                              ze_kernel_timestamp_result_t *times)
{
    exec_event *ev;

    if (!hdev)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    EXEC_HANDLE(ev, h, SOFT_EVENT);
    if (!soft_device_of(hdev))
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return times_of(ev, times);
}

static ze_result_t ZE_APICALL soft_zeEventQueryTimestampsExp(ze_event_handle_t             h,
                                                             ze_device_handle_t            dev,
                                                             uint32_t                     *count,
                                                             ze_kernel_timestamp_result_t *out)
{
    ze_kernel_timestamp_result_t times;
    ze_result_t                  res;

    SOFT_CALL();
    res = one_result(h, dev, count, &times);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    if (*count && out)
        *out = times;
    *count = 1;
    return ZE_RESULT_SUCCESS;
}

SOFT_TABLE(zeGetEventExpProcAddrTable, ze_event_exp_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 2, pfnQueryTimestampsExp, soft_zeEventQueryTimestampsExp);
    return ZE_RESULT_SUCCESS;
}

#if SOFT_HAS_API_1_12
/* The host's clock is the device's. */
static ze_result_t ZE_APICALL
soft_zeEventQueryKernelTimestampsExt(ze_event_handle_t h, ze_device_handle_t dev, uint32_t *count,
                                     ze_event_query_kernel_timestamps_results_ext_properties_t *out)
{
    ze_kernel_timestamp_result_t times;
    ze_result_t                  res;

    SOFT_CALL();
    res = one_result(h, dev, count, &times);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    if (*count && out && out->pKernelTimestampsBuffer)
        *out->pKernelTimestampsBuffer = times;
    if (*count && out && out->pSynchronizedTimestampsBuffer) {
        ze_synchronized_timestamp_data_ext_t sync = {times.global.kernelStart,
                                                     times.global.kernelEnd};

        out->pSynchronizedTimestampsBuffer->global  = sync;
        out->pSynchronizedTimestampsBuffer->context = sync;
    }
    *count = 1;
    return ZE_RESULT_SUCCESS;
}

/* --- what it was made with ------------------------------------------------------------------- */

static ze_result_t ZE_APICALL soft_zeEventGetEventPool(ze_event_handle_t       h,
                                                       ze_event_pool_handle_t *out)
{
    exec_event *ev;

    SOFT_CALL();
    EXEC_HANDLE(ev, h, SOFT_EVENT);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = (ze_event_pool_handle_t)ev->pool;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeEventGetSignalScope(ze_event_handle_t       h,
                                                         ze_event_scope_flags_t *out)
{
    exec_event *ev;

    SOFT_CALL();
    EXEC_HANDLE(ev, h, SOFT_EVENT);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = ev->signal;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeEventGetWaitScope(ze_event_handle_t       h,
                                                       ze_event_scope_flags_t *out)
{
    exec_event *ev;

    SOFT_CALL();
    EXEC_HANDLE(ev, h, SOFT_EVENT);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = ev->wait;
    return ZE_RESULT_SUCCESS;
}
#endif

SOFT_TABLE(zeGetEventProcAddrTable, ze_event_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnCreate, soft_zeEventCreate);
    SOFT_FIELD(1, 0, pfnDestroy, soft_zeEventDestroy);
    SOFT_FIELD(1, 0, pfnHostSignal, soft_zeEventHostSignal);
    SOFT_FIELD(1, 0, pfnHostSynchronize, soft_zeEventHostSynchronize);
    SOFT_FIELD(1, 0, pfnQueryStatus, soft_zeEventQueryStatus);
    SOFT_FIELD(1, 0, pfnHostReset, soft_zeEventHostReset);
    SOFT_FIELD(1, 0, pfnQueryKernelTimestamp, soft_zeEventQueryKernelTimestamp);
#if SOFT_HAS_API_1_12
    SOFT_FIELD(1, 6, pfnQueryKernelTimestampsExt, soft_zeEventQueryKernelTimestampsExt);
    SOFT_FIELD(1, 9, pfnGetEventPool, soft_zeEventGetEventPool);
    SOFT_FIELD(1, 9, pfnGetSignalScope, soft_zeEventGetSignalScope);
    SOFT_FIELD(1, 9, pfnGetWaitScope, soft_zeEventGetWaitScope);
#endif
    return ZE_RESULT_SUCCESS;
}
