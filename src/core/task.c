/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Host tasks: a function that runs when its turn in a queue comes.
 *
 *     queue:   ... earlier | marker "start" (deps) | marker "held" waits for E | later ...
 *     executor:                      fn(user), then E is signalled
 *
 * "start" completes when the task may run, its completion posts the job, the
 * user event E ends the task.  "held" keeps later commands of an in-order queue
 * back and makes usm_queue_wait() wait.  In an out-of-order queue without
 * dependencies there is nothing to wait for: the job is posted at once. */
#include "base/log.h"
#include "base/os.h"
#include "core/command.h"
#include "core/init.h"

typedef struct task {
    usm__completion c;
    usm_task_fn     fn;
    void           *user;
    usm_event      *end;       /* counted: E                                              */
    bool            unwatched; /* nobody has the event: a failure is reported             */
} task;

static void task_end(task *t, usm_status status)
{
    if (status < 0 && t->unwatched)
        usm__context_error(t->end->ctx, status, "a host task submitted without an event failed");
    (void)usm_event_signal(t->end, status < 0 ? status : USM_OK);
    usm_event_release(t->end);
    usm__heap_free(t);
}

static void task_run(usm__job *job)
{
    task *t = usm_container_of(usm_container_of(job, usm__completion, job), task, c);

    task_end(t, t->fn(t->user));
}

static void task_start(usm__completion *c)
{
    task *t = usm_container_of(c, task, c);

    usm__be_event_release(c->be, c->native);
    task_end(t, c->status < 0 ? USM_E_DEPENDENCY : t->fn(t->user));
}

/* Queues "start" and "held"; *start is NULL when the task may run at once. */
static usm_status queue_markers(usm__submit *s, usm_event *end, void **start)
{
    usm_queue *q  = s->q;
    usm_status st = USM_OK;

    *start = NULL;
    if (s->deps.n > 0 || usm__queue_in_order(q))
        st = usm__be_marker(q->be, q->native, s->deps.n, s->deps.native, start);
    if (st == USM_OK) {
        st = usm__be_marker(q->be, q->native, 1, &end->native, NULL);
        if (st != USM_OK && *start)
            usm__be_event_release(q->be, *start);
    }
    return st;
}

static usm_status submit(task *t, usm_queue *q, size_t ndeps, usm_event *const *deps)
{
    usm__submit s;
    void       *start = NULL;
    usm_status  st    = usm__executor_reserve();

    if (st == USM_OK)
        st = usm__submit_begin(&s, q, ndeps, deps, NULL);
    if (st != USM_OK)
        return st;
    st = queue_markers(&s, t->end, &start);
    st = usm__submit_end(&s, st);
    if (st != USM_OK)
        return st;
    if (start) {
        if (usm__completion_arm(&t->c, q->be, start, task_start) == USM_OK)
            return USM_OK;
        /* The queue is held already: the task must end, so it waits on a thread. */
        t->c.be     = q->be;
        t->c.native = start;
        t->c.status = usm__be_event_wait(q->be, start);
        task_start(&t->c);
        return USM_OK;
    }
    t->c.job.run = task_run;
    usm__executor_post(&t->c.job);
    return USM_OK;
}

usm_status usm__task_submit(usm_queue *q, usm_task_fn fn, void *user, size_t ndeps,
                            usm_event *const *deps, usm_event **ev)
{
    usm_event *end = NULL;
    task      *t;
    usm_status st = usm__queue_check(q);

    if (st != USM_OK)
        return st;
    t = usm__heap_alloc(sizeof *t);
    if (!t)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a host task");
    st = usm_event_create(q->ctx, &end);
    if (st != USM_OK)
        goto err_free;
    t->fn        = fn;
    t->user      = user;
    t->end       = end;
    t->unwatched = ev == NULL;
    usm_list_init(&t->c.job.link);
    usm_ref_take(&end->refs); /* the task's; the first is for the caller */
    st = submit(t, q, ndeps, deps);
    if (st != USM_OK)
        goto err_event;
    end->is_user = true;
    if (ev)
        *ev = end;
    else
        usm_event_release(end);
    return USM_OK;

err_event:
    (void)usm_event_signal(end, st); /* a marker that was queued must not wait for ever */
    usm_event_release(end);
    usm_event_release(end);
err_free:
    usm__heap_free(t);
    return st;
}

usm_status usm_host_task(usm_queue *q, usm_task_fn fn, void *user, size_t ndeps,
                         usm_event *const *deps, usm_event **ev)
{
    usm_status st = usm__queue_check(q);

    if (st != USM_OK)
        return st;
    if (!fn)
        return usm__fail(USM_E_INVALID, "usm_host_task: fn is NULL");
    return usm__task_submit(q, fn, user, ndeps, deps, ev);
}
