/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The operations on events of the host backend: query, wait, notification, signalling a user event.
 *
 * An event is the command it belongs to (queue.c), with a reference count; a user event is a
 * command without a queue.  Called by the core, through the table in host.c. */
#include "internal.h"

#include <base/inline/recycle.h>

static usm_recycler notes = USM_RECYCLER_INIT(sizeof(usm__host_note), 1024);

static usm_status not_complete(void)
{
    return usm__host_lib->report(USM_E_NOT_READY, "the event is not complete yet: wait for it");
}

/* Reports a command's failure as that of the caller. */
static usm_status notify(usm_status status)
{
    switch ((int)status) {
    case USM_OK:
        return USM_OK;
    case USM_E_DEPENDENCY:
        return usm__host_lib->report(status, "the command did not run: one that it depends on "
                                             "failed; see the status of that command's event");
    default:
        return usm__host_lib->report(status, "the command or user event ended with this failure");
    }
}

usm_status usm__host_event_create_user(void *ctx, void **ev)
{
    usm__host_command *c = usm__host_command_create(NULL, 0, 0);

    (void)ctx;
    if (!c)
        return USM_E_NO_MEMORY;
    *ev = c;
    return USM_OK;
}

usm_status usm__host_event_signal(void *ev, usm_status status)
{
    usm__host_command *c = ev;
    bool               finished;

    if (c->queue)
        return usm__host_lib->report(USM_E_INVALID,
                                     "only user events can be signalled, this is a command's");
    usm_ref_take(&c->refs); /* a waiting thread may release it before this call ends */
    finished = usm__host_finish_user(c, status);
    usm__host_command_release(c);
    if (!finished)
        return usm__host_lib->report(USM_E_INVALID, "the user event was signalled before");
    return USM_OK;
}

usm_status usm__host_event_query(void *ev)
{
    usm_status status = usm__host_result(ev);

    return status == USM_E_NOT_READY ? not_complete() : notify(status);
}

usm_status usm__host_event_wait(void *ev)
{
    usm__host_await(ev);
    return notify(usm__host_result(ev));
}

usm_status usm__host_event_profiling(void *ev, usm_profiling *times)
{
    const usm__host_command *c = ev;

    if (!c->has_times)
        return usm__host_lib->report(
            USM_E_NOT_SUPPORTED,
            "only commands of a queue made with USM_QUEUE_PROFILING have times");
    if (usm__host_result(ev) == USM_E_NOT_READY)
        return not_complete();
    times->submit_ns = c->times.submit_ns;
    times->start_ns  = c->times.start_ns;
    times->end_ns    = c->times.end_ns;
    return USM_OK;
}

void usm__host_note_free(usm__host_note *note)
{
    if (!usm_recycler_give(&notes, note))
        usm__host_lib->heap_free(note);
}

void usm__host_notes_forget(bool in_child)
{
    if (in_child)
        usm_recycler_in_child(&notes);
    else
        usm_recycler_clear(&notes, usm__host_lib->heap_free);
}

usm_status usm__host_event_notify(void *ev, usm_backend_notify_fn fn, void *arg)
{
    usm__host_note *note = usm_recycler_take(&notes, sizeof(*note));

    if (!note)
        note = usm__host_lib->heap_alloc(sizeof(*note));
    if (!note)
        return usm__host_lib->report(USM_E_NO_MEMORY, "no host memory to note a callback");
    note->fn  = fn;
    note->arg = arg;
    if (usm__host_attach(ev, note))
        return USM_OK;
    usm__host_note_free(note);
    fn(arg, usm__host_result(ev));
    return USM_OK;
}

/* A user event that can no longer be signalled fails; otherwise its dependents would wait
 * forever. */
void usm__host_event_release(void *ev)
{
    usm__host_command_release(ev);
}
