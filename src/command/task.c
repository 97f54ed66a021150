/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Host tasks: a function of the program that runs when all commands before it have ended.
 *
 * A backend that runs tasks itself (USM_CAP_TASKS) receives them like other commands.  Otherwise:
 *
 *     queue:   ... earlier | marker "start" (deps) | marker "hold" waits for gate | later ...
 *     executor:                      fn(user), then the event E ends, then gate
 *
 * "start" completes when the task may run: after its dependencies, and after everything that comes
 * before it in an in-order queue or behind a barrier.  Its completion posts the job.  "hold" delays
 * later commands of an in-order queue, and makes usm_queue_wait() wait.  The gate, a user event,
 * does nothing else.  E carries the status: if the caller has this event, a failure of the task is
 * not a failure of the queue. */
#include "base/os.h"
#include "command/command.h"
#include "device/init.h"
#include "device/observer.h"

typedef struct task {
    usm__completion c;
    usm_context    *ctx; /* holds a reference of it (`refs`) */
    usm__task_body  body;
    usm_event      *end;   /* E, with a reference; NULL: no event was requested, and a failure is
                              reported */
    void           *gate;  /* the native event           */
    uint64_t        queue; /* serial number of its queue */
} task;

static void task_free(task *t)
{
    usm_context *ctx = t->ctx;

    if (t->gate)
        usm__be_event_release(ctx->be, t->gate);
    usm_event_release(t->end);
    usm__heap_free(t);
    usm__context_unref(ctx);
}

static void task_end(task *t, usm_status status)
{
    if (status > 0)
        status = USM_OK;
    if (t->end)
        (void)usm__event_end(t->end, status);
    else if (status < 0)
        usm__context_error(t->ctx, status, "a host task submitted without an event failed");
    (void)usm__be_event_signal(t->ctx->be, t->gate, t->end ? USM_OK : status);
    task_free(t);
}

static usm_status run(const task *t)
{
    uint64_t   before = usm__task_queue;
    usm_status status;

    usm__task_queue = t->queue;
    status          = t->body.fn(t->body.user);
    usm__task_queue = before;
    return status;
}

static void task_start(usm__completion *c)
{
    task *t = usm_container_of(c, task, c);

    usm__be_event_release(c->be, c->native);
    if (c->status >= 0) {
        task_end(t, run(t));
        return;
    }
    if (t->body.drop)
        t->body.drop(t->body.user);
    task_end(t, USM_E_DEPENDENCY);
}

/* Queues "start" and "hold". */
static usm_status queue_markers(usm__submit *s, void *gate, void **start)
{
    usm_queue *q  = s->q;
    usm_status st = usm__marker(q, s->deps.n, s->deps.native, start);

    if (st != USM_OK)
        return st;
    st = usm__be_marker(q->be, q->native, 1, &gate, NULL);
    if (st != USM_OK)
        usm__be_event_release(q->be, *start);
    return st;
}

usm_status usm__queue_hold(usm_queue *q, void *gate, size_t ndeps, usm_event *const *deps,
                           void **start)
{
    usm__submit s;
    usm_status  st = usm__submit_begin(&s, q, ndeps, deps, NULL);

    if (st != USM_OK)
        return st;
    return usm__submit_end(&s, queue_markers(&s, gate, start));
}

static usm_status submit(task *t, usm_queue *q, size_t ndeps, usm_event *const *deps)
{
    const usm__backend *be    = q->be;
    void               *start = NULL;
    usm_status          st    = usm__executor_reserve();

    if (st == USM_OK)
        st = usm__queue_hold(q, t->gate, ndeps, deps, &start);
    if (st == USM_OK) /* cannot fail, because a thread is reserved; the queue already waits for
                         gate */
        st = usm__completion_arm(&t->c, be, start, task_start);
    return st;
}

static usm_status new_task(usm_queue *q, const usm__task_body *body, bool wants_end, task **out)
{
    usm_context *ctx = q->ctx;
    task        *t   = usm__heap_alloc(sizeof *t);
    usm_status   st;

    if (!t)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a host task");
    t->ctx   = ctx;
    t->body  = *body;
    t->queue = q->serial;
    usm__context_ref(ctx);
    st = usm__be_event_create_user(ctx->be, ctx->native, &t->gate);
    if (st == USM_OK && wants_end)
        st = usm_event_create(ctx, &t->end);
    if (st != USM_OK) {
        task_free(t);
        return st;
    }
    if (t->end) {
        t->end->is_task    = true;
        t->end->is_outside = false;
    }
    *out = t;
    return USM_OK;
}

static usm_status submit_native(usm_queue *q, const usm__task_body *body, size_t ndeps,
                                usm_event *const *deps, usm_event **ev)
{
    const usm_backend_task t = {body->fn, body->drop, body->user};
    usm__submit            s;
    usm_status             st = usm__submit_open(&s, q, ndeps, deps, ev);

    if (st != USM_OK)
        return st;
    st = usm__be_task(q->be, q->native, &t, USM__SUBMIT_ARGS(&s));
    if (s.event) { /* no other thread knows the event yet */
        s.event->is_task = true;
        s.has_no_times   = true;
    }
    return usm__submit_end(&s, st);
}

/* The checker of stream order follows markers; tasks of a backend are not reported to it. */
bool usm__queue_has_tasks(const usm_queue *q)
{
    return usm__backend_can(q->be, USM_CAP_TASKS) && !usm__observer_order_on();
}

usm_status usm__task_post(usm_queue *q, const usm__task_body *body)
{
    const usm_backend_task t = {body->fn, body->drop, body->user};
    usm__submit            s;
    usm_status             st = usm__submit_open(&s, q, 0, NULL, NULL);

    return st == USM_OK ? usm__submit_end(&s, usm__be_task(q->be, q->native, &t, 0, NULL, NULL))
                        : st;
}

usm_status usm__task_submit(usm_queue *q, const usm__task_body *body, size_t ndeps,
                            usm_event *const *deps, usm_event **ev)
{
    usm_event *end = NULL;
    task      *t   = NULL;
    usm_status st  = usm__queue_check(q);

    if (st == USM_OK && usm__queue_has_tasks(q))
        return submit_native(q, body, ndeps, deps, ev);
    if (st == USM_OK)
        st = new_task(q, body, ev != NULL, &t);
    if (st != USM_OK)
        return st;
    end = t->end;
    if (end)
        usm_ref_take(&end->refs); /* for the caller; the first one belongs to the task */
    st = submit(t, q, ndeps, deps);
    if (st == USM_OK) {
        if (ev)
            *ev = end;
        return USM_OK;
    }
    usm_event_release(end);
    task_free(t);
    return st;
}

usm_status usm_host_task(usm_queue *q, usm_task_fn fn, void *user, size_t ndeps,
                         usm_event *const *deps, usm_event **ev)
{
    const usm__task_body body = {fn, NULL, user};

    if (!fn)
        return usm__fail(USM_E_INVALID, "usm_host_task: fn is NULL");
    return usm__task_submit(q, &body, ndeps, deps, ev);
}
