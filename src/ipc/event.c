/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events across processes (usm/ipc.h): creating, opening and destroying them, and the host's
 * functions. Records and waits of queues are in event_queue.c; event slots are in event_slot.h. */
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
    st = usm__ipc_event_slot_create(&made->slot);
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
    st = usm__ipc_event_slot_open(&name.page, name.index, name.generation, &made->slot);
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
        usm__ipc_event_slot_retire(ev->slot);
    usm__ipc_event_slot_unref(ev->slot);
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
    name.page       = ev->slot->page->name;
    name.index      = ev->slot->index;
    name.generation = ev->slot->generation;
    usm__ipc_event_handle_encode(&name, handle);
    return USM_OK;
}

/* ---- the host ------------------------------------------------------------------------------- */

usm_status usm_ipc_event_signal(usm_ipc_event *ev)
{
    usm_status st = usm__ipc_event_check(ev);

    if (st == USM_OK)
        st = usm__ipc_event_slot_claim(ev->slot);
    if (st == USM_OK)
        usm__ipc_event_slot_signal(ev->slot);
    return st;
}

/* Takes a reference, because another thread may destroy the event while this one sleeps. */
static usm_status wait_for(usm_ipc_event *ev, const usm__awaited *awaited, uint32_t timeout_ms)
{
    usm__ipc_event_slot *slot = ev->slot;
    usm_status           st;

    if (!usm__ipc_event_slot_is_pending(slot, awaited))
        return usm__ipc_event_slot_judge(slot, awaited);
    usm__ipc_event_slot_ref(slot);
    st = usm__ipc_event_slot_wait(slot, awaited, usm__os_deadline(timeout_ms));
    usm__ipc_event_slot_unref(slot);
    if (st == USM_E_NOT_READY)
        return usm__fail(USM_E_NOT_READY, "the records are not complete after %u ms", timeout_ms);
    return st;
}

usm_status usm_ipc_event_sync(usm_ipc_event *ev, uint32_t timeout_ms)
{
    usm__awaited awaited;
    usm_status   st = usm__ipc_event_check(ev);

    if (st != USM_OK)
        return st;
    usm__ipc_event_slot_awaited(ev->slot, &awaited);
    return wait_for(ev, &awaited, timeout_ms);
}

usm_status usm_ipc_event_sync_count(usm_ipc_event *ev, uint64_t complete, uint32_t timeout_ms)
{
    usm__awaited awaited;
    usm_status   st = usm__ipc_event_check(ev);

    if (st != USM_OK || complete == 0)
        return st;
    awaited.count = complete;
    awaited.n     = 0;
    return wait_for(ev, &awaited, timeout_ms);
}

usm_status usm_ipc_event_query(usm_ipc_event *ev)
{
    usm__awaited awaited;
    usm_status   st = usm__ipc_event_check(ev);

    if (st != USM_OK)
        return st;
    usm__ipc_event_slot_awaited(ev->slot, &awaited);
    st = usm__ipc_event_slot_judge(ev->slot, &awaited);
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
    usm__ipc_event_slot_count(ev->slot, &m, &c);
    if (made)
        *made = m;
    if (complete)
        *complete = c;
    return USM_OK;
}
