/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "task": host tasks, which run on threads of the library when their turn comes. */
#include "common.h"

#include <pthread.h>

typedef struct order {
    atomic_int next;
    int        at[64];
} order;

typedef struct step {
    order *o;
    int    id;
} step;

static usm_status note_order(void *user)
{
    step *s = user;

    s->o->at[s->id] = atomic_fetch_add(&s->o->next, 1);
    return USM_OK;
}

Test(task, tasks_of_an_in_order_queue_run_in_order)
{
    EACH_DEVICE (r) {
        enum { N = 50 };
        order o = {0};
        step  s[N];
        for (int i = 0; i < N; i++) {
            s[i] = (step){&o, i};
            CHECK_OK(usm_host_task(r.q, note_order, &s[i], 0, NULL, NULL));
        }
        CHECK_OK(usm_queue_wait(r.q));
        for (int i = 0; i < N; i++)
            CHECK(o.at[i] == i, "%s: task %d ran as number %d", r.name, i, o.at[i]);
    }
}

static usm_status wait_for_own_queue(void *user)
{
    usm_queue *q = user;

    if (usm_queue_wait(q) != USM_E_BUSY || !story_names("its own end"))
        return USM_E_INVALID;
    return usm_context_wait(usm_queue_get_context(q)) == USM_E_BUSY ? USM_OK : USM_E_INVALID;
}

Test(task, a_task_that_waits_for_its_own_queue_is_told)
{
    EACH_DEVICE (r) {
        usm_event *ev = NULL;

        CHECK_OK(usm_host_task(r.q, wait_for_own_queue, r.q, 0, NULL, &ev));
        CHECK_OK(usm_event_wait(ev));
        usm_event_release(ev);
        CHECK_OK(usm_host_task(r.q, wait_for_own_queue, r.q, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(r.q));
    }
}

typedef struct adder {
    int *p;
    int  add;
} adder;

static usm_status add_on_host(void *user)
{
    adder *a = user;

    for (int i = 0; i < 1000; i++)
        a->p[i] += a->add;
    return USM_OK;
}

Test(task, a_task_stands_between_the_commands_around_it)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST | NEED_DEVICE | NEED_DATA))
            continue;
        int *host = mem(&r, USM_HOST, 4000), *dev = mem(&r, USM_DEVICE, 4000), back[1000],
            seven = 7;
        adder a   = {host, 100};
        CHECK_OK(usm_fill(r.q, dev, &seven, 4, 1000, 0, NULL, NULL));
        CHECK_OK(usm_memcpy(r.q, host, dev, 4000, 0, NULL, NULL));
        CHECK_OK(usm_host_task(r.q, add_on_host, &a, 0, NULL, NULL));
        CHECK_OK(usm_memcpy(r.q, dev, host, 4000, 0, NULL, NULL));
        CHECK_OK(usm_memcpy(r.q, back, dev, 4000, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(r.q));
        for (int i = 0; i < 1000; i++)
            CHECK(back[i] == 107, "%s: element %d is %d", r.name, i, back[i]);
        usm_free(host);
        usm_free(dev);
    }
}

typedef struct context {
    pthread_t  thread;
    const rig *r;
    usm_event *gate;
    usm_status status;
    atomic_int began;
} context;

static usm_status note_thread(void *user)
{
    ((context *)user)->thread = pthread_self();
    return USM_OK;
}

Test(task, a_task_runs_on_a_thread_of_the_library)
{
    EACH_DEVICE (r) {
        context c = {.thread = pthread_self()};
        CHECK_OK(usm_host_task(r.q, note_thread, &c, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(r.q));
        CHECK(!pthread_equal(c.thread, pthread_self()), "%s: on the caller's", r.name);
    }
}

static usm_status wait_for_gate(void *user)
{
    context *c = user;

    atomic_store(&c->began, 1);
    return usm_event_wait(c->gate);
}

Test(task, a_task_may_block_and_others_still_run)
{
    EACH_DEVICE (r) {
        enum { N = 8 };
        usm_queue *q[N];
        usm_event *gate = gate_new(&r);
        context    c[N];
        for (int i = 0; i < N; i++) {
            q[i] = queue_with(&r, 0);
            c[i] = (context){.gate = gate};
            CHECK_OK(usm_host_task(q[i], wait_for_gate, &c[i], 0, NULL, NULL));
        }
        for (int i = 0; i < N; i++)
            wait_until(&c[i].began, 1, "a task beside those that block");
        gate_open(gate);
        for (int i = 0; i < N; i++) {
            CHECK_OK(usm_queue_wait(q[i]));
            usm_queue_destroy(q[i]);
        }
        usm_event_release(gate);
    }
}

static usm_status use_library(void *user)
{
    context   *c  = user;
    usm_queue *q  = NULL;
    usm_event *ev = NULL;
    void      *p  = usm_malloc(5000, c->r->q, USM_HOST);
    usm_status s  = p ? usm_queue_create(c->r->ctx, c->r->dev, NULL, &q) : usm_last_status();

    if (!s)
        s = usm_queue_barrier(q, 0, NULL, &ev);
    if (!s)
        s = usm_event_wait(ev);
    usm_event_release(ev);
    usm_queue_destroy(q);
    usm_free(p);
    return c->status = s;
}

Test(task, a_task_may_call_the_library_and_wait_for_other_queues)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST))
            continue;
        context c = {.r = &r, .status = USM_E_INTERNAL};
        CHECK_OK(usm_host_task(r.q, use_library, &c, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(r.q));
        CHECK(!c.status, "%s: %s in the task", r.name, usm_status_name(c.status));
    }
}

static usm_status fail_with(void *user)
{
    return *(usm_status *)user;
}

Test(task, a_failing_task_fails_its_event_and_its_dependents)
{
    EACH_DEVICE (r) {
        usm_status how = USM_E_BUDGET;
        usm_event *ev = NULL, *after = NULL;
        usm_queue *other = queue_with(&r, 0);
        CHECK_OK(usm_host_task(r.q, fail_with, &how, 0, NULL, &ev));
        CHECK_OK(usm_queue_barrier(other, 1, &ev, &after));
        CHECK_IS(usm_event_wait(ev), USM_E_BUDGET);
        CHECK_IS(usm_event_wait(after), USM_E_DEPENDENCY);
        usm_event_release(ev);
        usm_event_release(after);
        usm_queue_destroy(other);
    }
}

Test(task, a_task_waits_for_its_dependencies)
{
    EACH_DEVICE (r) {
        order      o    = {0};
        step       s    = {&o, 0};
        usm_event *gate = gate_new(&r), *ev = NULL;
        CHECK_OK(usm_host_task(r.q, note_order, &s, 1, &gate, &ev));
        sleep_ms(10);
        CHECK_IS(usm_event_query(ev), USM_E_NOT_READY);
        CHECK(atomic_load(&o.next) == 0, "%s: it ran too early", r.name);
        gate_open(gate);
        CHECK_OK(usm_event_wait(ev));
        CHECK(atomic_load(&o.next) == 1, "%s: it did not run", r.name);
        usm_event_release(gate);
        usm_event_release(ev);
    }
}

Test(task, a_task_behind_a_failed_event_does_not_run)
{
    EACH_DEVICE (r) {
        order      o    = {0};
        step       s    = {&o, 0};
        usm_event *gate = gate_new(&r), *ev = NULL;
        CHECK_OK(usm_host_task(r.q, note_order, &s, 1, &gate, &ev));
        CHECK_OK(usm_event_signal(gate, USM_E_SYSTEM));
        CHECK_IS(usm_event_wait(ev), USM_E_DEPENDENCY);
        CHECK(atomic_load(&o.next) == 0, "%s: it ran", r.name);
        usm_event_release(gate);
        usm_event_release(ev);
    }
}

Test(task, a_task_without_a_function_is_refused)
{
    EACH_DEVICE (r)
        CHECK_REFUSED(usm_host_task(r.q, NULL, NULL, 0, NULL, NULL), USM_E_INVALID, "");
}

Test(task, tasks_run_in_an_out_of_order_queue_as_their_dependencies_allow)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(OUT_OF_ORDER_QUEUE)))
            continue;
        usm_queue *q    = queue_with(&r, USM_QUEUE_OUT_OF_ORDER);
        order      o    = {0};
        step       s[3] = {{&o, 0}, {&o, 1}, {&o, 2}};
        usm_event *gate = gate_new(&r), *ev[3];
        CHECK_OK(usm_host_task(q, note_order, &s[0], 1, &gate, &ev[0]));
        CHECK_OK(usm_host_task(q, note_order, &s[1], 1, &ev[0], &ev[1]));
        CHECK_OK(usm_host_task(q, note_order, &s[2], 0, NULL, &ev[2]));
        CHECK_OK(usm_event_wait(ev[2]));
        gate_open(gate);
        CHECK_OK(usm_event_wait_all(3, ev));
        CHECK(o.at[2] == 0 && o.at[0] == 1 && o.at[1] == 2, "%s: %d %d %d", r.name, o.at[0],
              o.at[1], o.at[2]);
        for (int i = 0; i < 3; i++)
            usm_event_release(ev[i]);
        usm_event_release(gate);
        usm_queue_destroy(q);
    }
}

Test(task, a_task_of_a_destroyed_queue_still_runs)
{
    EACH_DEVICE (r) {
        usm_queue *q    = queue_with(&r, 0);
        order      o    = {0};
        step       s    = {&o, 0};
        usm_event *gate = gate_new(&r);
        CHECK_OK(usm_host_task(q, note_order, &s, 1, &gate, NULL));
        usm_queue_destroy(q);
        gate_open(gate);
        wait_until(&o.next, 1, "the task of a destroyed queue");
        usm_event_release(gate);
    }
}

Test(task, a_task_of_an_out_of_order_queue_waits_for_a_barrier)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(OUT_OF_ORDER_QUEUE)))
            continue;
        usm_queue *q    = queue_with(&r, USM_QUEUE_OUT_OF_ORDER);
        order      o    = {0};
        step       s    = {&o, 0};
        usm_event *gate = gate_new(&r);
        CHECK_OK(usm_queue_barrier(q, 1, &gate, NULL));
        CHECK_OK(usm_host_task(q, note_order, &s, 0, NULL, NULL));
        sleep_ms(50);
        CHECK(atomic_load(&o.next) == 0, "%s: it ran before the barrier was complete", r.name);
        gate_open(gate);
        CHECK_OK(usm_queue_wait(q));
        CHECK(atomic_load(&o.next) == 1, "%s: it did not run", r.name);
        usm_event_release(gate);
        usm_queue_destroy(q);
    }
}

static usm_status wait_for_it(void *user)
{
    wait_until(user, 1, "the end of the test");
    return USM_OK;
}

Test(task, the_event_of_a_task_is_not_signalled_by_hand)
{
    EACH_DEVICE (r) {
        atomic_int go = 0;
        usm_event *ev = NULL;
        CHECK_OK(usm_host_task(r.q, wait_for_it, &go, 0, NULL, &ev));
        CHECK_REFUSED(usm_event_signal(ev, USM_OK), USM_E_INVALID, "usm_event_create");
        CHECK_IS(usm_event_query(ev), USM_E_NOT_READY);
        atomic_store(&go, 1);
        CHECK_OK(usm_event_wait(ev));
        usm_event_release(ev);
    }
}

static usm_status fail_with_budget(void *user)
{
    (void)user;
    return USM_E_BUDGET;
}

Test(task, a_failure_that_somebody_has_the_event_of_is_not_the_queues)
{
    EACH_DEVICE (r) {
        usm_event *ev = NULL;
        CHECK_OK(usm_host_task(r.q, fail_with_budget, NULL, 0, NULL, &ev));
        CHECK_OK(usm_queue_wait(r.q));
        CHECK_IS(usm_event_query(ev), USM_E_BUDGET);
        usm_event_release(ev);
        CHECK_OK(usm_host_task(r.q, fail_with_budget, NULL, 0, NULL, NULL));
        CHECK(usm_queue_wait(r.q) < 0, "%s: nobody told of the failure", r.name);
    }
}
