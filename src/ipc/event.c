/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events across processes (usm/ipc.h): creating, opening and destroying them, and the host's
 * functions. Records and waits of queues are in event_queue.c; event slots are in cell.h. */
#include "ipc/event.h"

#include "base/meta.h"
#include "base/os_wait.h"
#include "device/init.h"

static usm__meta_type event_type =
    USM__META_TYPE(struct usm_ipc_event, sizeof(usm__magic_word), "IPC events");

/* ---- creating, opening, destroying ------------------------------------------------------- */

usm_status usm__ipc_event_check(usm_ipc_event *ev)
{
    usm_status st = usm__handle_check(ev, USM__MAGIC_IPC_EVENT);

    if (st == USM_OK && ev->fork_generation != usm__fork_generation())
        st = usm__fail(USM_E_FORKED,
                       "the event was made before fork(); the child opens it by its handle");
    return st;
}

static usm_status begin(const char *what, usm_context **ctx, usm_ipc_event **out,
                        usm_ipc_event **made)
{
    usm_status st;

    if (!out)
        return usm__fail(USM_E_INVALID, "%s: ev is NULL", what);
    st = usm__context_resolve(ctx);
    if (st == USM_OK && usm__context_is_inert(*ctx))
        st = usm__fail(USM_E_FORKED, "the context was made before fork(); make one in the child");
    if (st != USM_OK)
        return st;
    *made = usm__meta_alloc(&event_type);
    if (!*made)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for an event across processes");
    return USM_OK;
}

static void publish(usm_ipc_event *made, usm_context *ctx, bool is_creator, usm_ipc_event **out)
{
    usm__context_ref(ctx);
    made->ctx             = ctx;
    made->is_creator      = is_creator;
    made->fork_generation = usm__fork_generation();
    usm_store_release(&made->magic, (uint32_t)USM__MAGIC_IPC_EVENT);
    *out = made;
}

usm_status usm_ipc_event_create(usm_context *ctx, usm_ipc_event **ev)
{
    usm_ipc_event *made = NULL;
    usm_status     st   = begin("usm_ipc_event_create", &ctx, ev, &made);

    if (st != USM_OK || !made)
        return st;
    st = usm__cell_create(&made->cell);
    if (st == USM_OK)
        publish(made, ctx, true, ev);
    else
        usm__meta_free(&event_type, made);
    return st;
}

usm_status usm_ipc_event_open(const usm_ipc_handle *handle, usm_context *ctx, usm_ipc_event **ev)
{
    usm__ipc_event_name name;
    usm_ipc_event      *made = NULL;
    usm_status          st;

    if (!handle)
        return usm__fail(USM_E_INVALID, "usm_ipc_event_open: handle is NULL");
    st = usm__ipc_event_handle_decode(handle, &name);
    if (st == USM_OK)
        st = begin("usm_ipc_event_open", &ctx, ev, &made);
    if (st != USM_OK || !made)
        return st;
    st = usm__cell_open(&name.page, name.index, name.generation, &made->cell);
    if (st == USM_OK)
        publish(made, ctx, false, ev);
    else
        usm__meta_free(&event_type, made);
    return st;
}

void usm_ipc_event_destroy(usm_ipc_event *ev)
{
    if (!ev || usm__handle_check(ev, USM__MAGIC_IPC_EVENT) != USM_OK ||
        !usm__handle_kill(ev, USM__MAGIC_IPC_EVENT))
        return;
    if (ev->fork_generation != usm__fork_generation())
        return; /* it is the parent's */
    if (ev->is_creator)
        usm__cell_retire(ev->cell);
    usm__cell_unref(ev->cell);
    usm__context_unref(ev->ctx);
    usm__meta_free(&event_type, ev);
}

usm_status usm_ipc_event_get(usm_ipc_event *ev, usm_ipc_handle *handle)
{
    usm__ipc_event_name name = {.pad = 0};
    usm_status          st   = usm__ipc_event_check(ev);

    if (st != USM_OK)
        return st;
    if (!handle)
        return usm__fail(USM_E_INVALID, "usm_ipc_event_get: handle is NULL");
    name.page       = ev->cell->page->name;
    name.index      = ev->cell->index;
    name.generation = ev->cell->generation;
    usm__ipc_event_handle_encode(&name, handle);
    return USM_OK;
}

/* ---- the host ------------------------------------------------------------------------------- */

usm_status usm_ipc_event_signal(usm_ipc_event *ev)
{
    usm_status st = usm__ipc_event_check(ev);

    if (st == USM_OK)
        st = usm__cell_claim(ev->cell);
    if (st == USM_OK)
        usm__cell_signal(ev->cell);
    return st;
}

/* Takes a reference, because another thread may destroy the event while this one sleeps. */
static usm_status wait_for(usm_ipc_event *ev, const usm__turns *turns, uint32_t timeout_ms)
{
    usm__cell *cell = ev->cell;
    usm_status st;

    if (!usm__cell_is_pending(cell, turns))
        return usm__cell_judge(cell, turns);
    usm__cell_ref(cell);
    st = usm__cell_wait(cell, turns, usm__os_deadline(timeout_ms));
    usm__cell_unref(cell);
    if (st == USM_E_NOT_READY)
        return usm__fail(USM_E_NOT_READY, "the records are not complete after %u ms", timeout_ms);
    return st;
}

usm_status usm_ipc_event_sync(usm_ipc_event *ev, uint32_t timeout_ms)
{
    usm__turns turns;
    usm_status st = usm__ipc_event_check(ev);

    if (st != USM_OK)
        return st;
    usm__cell_turns(ev->cell, &turns);
    return wait_for(ev, &turns, timeout_ms);
}

usm_status usm_ipc_event_sync_count(usm_ipc_event *ev, uint64_t complete, uint32_t timeout_ms)
{
    usm__turns turns;
    usm_status st = usm__ipc_event_check(ev);

    if (st != USM_OK || complete == 0)
        return st;
    turns.count = complete;
    turns.n     = 0;
    return wait_for(ev, &turns, timeout_ms);
}

usm_status usm_ipc_event_query(usm_ipc_event *ev)
{
    usm__turns turns;
    usm_status st = usm__ipc_event_check(ev);

    if (st != USM_OK)
        return st;
    usm__cell_turns(ev->cell, &turns);
    st = usm__cell_judge(ev->cell, &turns);
    if (st == USM_E_NOT_READY)
        return usm__fail(USM_E_NOT_READY, "not all records are complete");
    return st;
}

usm_status usm_ipc_event_count(usm_ipc_event *ev, uint64_t *made, uint64_t *complete)
{
    uint64_t   m, c;
    usm_status st = usm__ipc_event_check(ev);

    if (st != USM_OK)
        return st;
    usm__cell_count(ev->cell, &m, &c);
    if (made)
        *made = m;
    if (complete)
        *complete = c;
    return USM_OK;
}
