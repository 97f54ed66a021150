/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "event": completion, user events, callbacks, failure that travels, times. */
#include "common.h"

#include <pthread.h>

/* A command behind `gate`, with its event. */
static usm_event *held(const rig *r, usm_event *gate)
{
    usm_event *ev = NULL;

    CHECK_OK(usm_queue_barrier(r->q, 1, &gate, &ev));
    return ev;
}

Test(event, a_query_tells_not_ready_until_complete)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r), *ev = held(&r, gate);
        CHECK_IS(usm_event_query(gate), USM_E_NOT_READY);
        CHECK_IS(usm_event_query(ev), USM_E_NOT_READY);
        gate_open(gate);
        CHECK_OK(usm_event_wait(ev));
        CHECK_OK(usm_event_query(ev));
        CHECK_OK(usm_event_query(gate));
        CHECK_OK(usm_event_wait(gate));
        usm_event_release(ev);
        usm_event_release(gate);
    }
}

Test(event, not_ready_is_no_failure_and_leaves_no_story)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r);
        CHECK_IS(usm_free_ctx(opaque(&r), NULL), USM_E_INVALID_POINTER);
        CHECK_IS(usm_event_query(gate), USM_E_NOT_READY);
        gate_open(gate);
        usm_event_release(gate);
    }
}

Test(event, waiting_for_all_gives_the_first_failure_in_array_order)
{
    EACH_DEVICE (r) {
        usm_event *ev[4];
        for (int i = 0; i < 4; i++)
            ev[i] = gate_new(&r);
        CHECK_OK(usm_event_signal(ev[3], USM_E_BUDGET));
        CHECK_OK(usm_event_signal(ev[0], USM_OK));
        CHECK_OK(usm_event_signal(ev[2], USM_E_SYSTEM));
        CHECK_OK(usm_event_signal(ev[1], USM_OK));
        CHECK_IS(usm_event_wait_all(4, ev), USM_E_SYSTEM);
        CHECK_OK(usm_event_wait_all(2, ev));
        CHECK_OK(usm_event_wait_all(0, NULL));
        for (int i = 0; i < 4; i++)
            usm_event_release(ev[i]);
    }
}

typedef struct seen {
    atomic_int calls;
    atomic_int status;
    atomic_int right_event;
    usm_event *ev;
    pthread_t  caller;
} seen;

static void note(usm_event *ev, usm_status status, void *user)
{
    seen *s = user;

    atomic_store(&s->status, status);
    atomic_store(&s->right_event, ev == s->ev);
    s->caller = pthread_self();
    atomic_fetch_add(&s->calls, 1);
}

Test(event, a_callback_is_called_once_when_the_event_completes)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r), *ev = held(&r, gate);
        seen       s = {.ev = ev};
        CHECK_OK(usm_event_on_complete(ev, note, &s));
        sleep_ms(10);
        CHECK(atomic_load(&s.calls) == 0, "%s: called before completion", r.name);
        gate_open(gate);
        wait_until(&s.calls, 1, "the callback");
        CHECK(atomic_load(&s.status) == USM_OK && atomic_load(&s.right_event), "%s: arguments",
              r.name);
        CHECK(!pthread_equal(s.caller, pthread_self()), "on the caller's thread");
        CHECK_OK(usm_event_wait(ev));
        sleep_ms(10);
        CHECK(atomic_load(&s.calls) == 1, "%s: called %d times", r.name, atomic_load(&s.calls));
        usm_event_release(ev);
        usm_event_release(gate);
    }
}

Test(event, a_callback_on_a_complete_event_is_called_at_once_on_another_thread)
{
    EACH_DEVICE (r) {
        usm_event *ev = gate_new(&r);
        seen       s  = {.ev = ev};
        gate_open(ev);
        CHECK_OK(usm_event_on_complete(ev, note, &s));
        wait_until(&s.calls, 1, "the callback");
        CHECK(!pthread_equal(s.caller, pthread_self()), "on the caller's thread");
        usm_event_release(ev);
    }
}

Test(event, several_callbacks_of_one_event_are_all_called)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r), *ev = held(&r, gate);
        seen       s[10] = {{0}};
        for (int i = 0; i < 10; i++) {
            s[i].ev = ev;
            CHECK_OK(usm_event_on_complete(ev, note, &s[i]));
        }
        gate_open(gate);
        for (int i = 0; i < 10; i++)
            wait_until(&s[i].calls, 1, "a callback");
        usm_event_release(ev);
        usm_event_release(gate);
    }
}

Test(event, a_callback_is_called_though_its_event_was_released)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r), *ev = held(&r, gate);
        seen       s = {.ev = ev};
        CHECK_OK(usm_event_on_complete(ev, note, &s));
        usm_event_release(ev);
        gate_open(gate);
        wait_until(&s.calls, 1, "the callback");
        CHECK(atomic_load(&s.right_event), "%s: another event", r.name);
        usm_event_release(gate);
    }
}

static void signal_other(usm_event *ev, usm_status status, void *user)
{
    (void)ev;
    (void)status;
    (void)!usm_event_signal(user, USM_OK);
}

Test(event, queue_Bs_callback_releases_queue_A)
{
    EACH_DEVICE (r) {
        usm_queue *b      = queue_with(&r, 0);
        usm_event *gate_a = gate_new(&r), *gate_b = gate_new(&r), *ev_a = held(&r, gate_a),
                  *ev_b = NULL;
        CHECK_OK(usm_queue_barrier(b, 1, &gate_b, &ev_b));
        seen s = {.ev = ev_a};
        CHECK_OK(usm_event_on_complete(ev_a, note, &s)); /* a waiter on A is there first */
        CHECK_OK(usm_event_on_complete(ev_b, signal_other, gate_a));
        gate_open(gate_b);
        CHECK_OK(usm_event_wait(ev_a));
        wait_until(&s.calls, 1, "queue A's callback");
        usm_event *all[] = {gate_a, gate_b, ev_a, ev_b};
        for (int i = 0; i < 4; i++)
            usm_event_release(all[i]);
        usm_queue_destroy(b);
    }
}

static void block_on(usm_event *ev, usm_status status, void *user)
{
    (void)ev;
    (void)status;
    usm_event_wait(user);
}

Test(event, a_callback_that_blocks_does_not_stop_others)
{
    EACH_DEVICE (r) {
        enum { N = 12 };
        usm_event *gate = gate_new(&r), *stop = gate_new(&r), *ev = held(&r, gate);
        seen       s = {.ev = ev};
        for (int i = 0; i < N; i++)
            CHECK_OK(usm_event_on_complete(ev, block_on, stop));
        CHECK_OK(usm_event_on_complete(ev, note, &s));
        gate_open(gate);
        wait_until(&s.calls, 1, "the callback behind those that block");
        gate_open(stop);
        usm_event_release(ev);
        usm_event_release(gate);
        CHECK_OK(usm_context_wait(r.ctx));
        usm_event_release(stop);
    }
}

typedef struct busy {
    const rig *r;
    atomic_int done;
    usm_status status;
} busy;

static void use_library(usm_event *ev, usm_status status, void *user)
{
    busy      *b     = user;
    usm_event *inner = NULL;
    void      *p;

    (void)ev;
    (void)status;
    p         = usm_malloc(1000, b->r->q, USM_HOST);
    b->status = p ? usm_queue_barrier(b->r->q, 0, NULL, &inner) : usm_last_status();
    if (!b->status)
        b->status = usm_event_wait(inner);
    usm_event_release(inner);
    usm_free(p);
    atomic_store(&b->done, 1);
}

Test(event, a_callback_may_call_the_library_and_wait)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST))
            continue;
        usm_event *gate = gate_new(&r), *ev = held(&r, gate);
        busy       b = {&r, 0, USM_OK};
        CHECK_OK(usm_event_on_complete(ev, use_library, &b));
        gate_open(gate);
        wait_until(&b.done, 1, "the callback");
        CHECK(!b.status, "%s: %s in the callback", r.name, usm_status_name(b.status));
        usm_event_release(ev);
        usm_event_release(gate);
    }
}

Test(event, a_failed_user_event_fails_its_dependents_with_dependency)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r), *ev = held(&r, gate);
        seen       s = {.ev = ev};
        CHECK_OK(usm_event_on_complete(ev, note, &s));
        CHECK_OK(usm_event_signal(gate, USM_E_SYSTEM));
        CHECK_IS(usm_event_wait(gate), USM_E_SYSTEM);
        CHECK_IS(usm_event_query(gate), USM_E_SYSTEM);
        CHECK_IS(usm_event_wait(ev), USM_E_DEPENDENCY);
        CHECK_IS(usm_event_query(ev), USM_E_DEPENDENCY);
        wait_until(&s.calls, 1, "the callback of a failed event");
        CHECK(atomic_load(&s.status) == USM_E_DEPENDENCY, "%s: callback saw %s", r.name,
              usm_status_name((usm_status)atomic_load(&s.status)));
        usm_event_release(ev);
        usm_event_release(gate);
    }
}

Test(event, a_copy_behind_a_failed_event_fails_and_does_not_copy)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST | NEED_DATA))
            continue;
        char      *p = mem(&r, USM_HOST, 4), local[4] = "new";
        usm_event *gate = gate_new(&r), *ev = NULL, *second = NULL;
        memcpy(p, "old", 4);
        CHECK_OK(usm_memcpy(r.q, p, local, 4, 1, &gate, &ev));
        usm_queue *other = queue_with(&r, 0);
        CHECK_OK(usm_queue_barrier(other, 1, &ev, &second));
        CHECK_OK(usm_event_signal(gate, USM_E_BUDGET));
        CHECK_IS(usm_event_wait(ev), USM_E_DEPENDENCY);
        CHECK_IS(usm_event_wait(second), USM_E_DEPENDENCY);
        CHECK(!strcmp(p, "old"), "%s: it was copied all the same", r.name);
        usm_event_release(gate);
        usm_event_release(ev);
        usm_event_release(second);
        usm_queue_destroy(other);
        usm_free(p);
    }
}

Test(event, a_dependency_that_failed_before_counts_too)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r), *ev = NULL;
        usm_status s;
        CHECK_OK(usm_event_signal(gate, USM_E_DEVICE));
        s = usm_queue_barrier(r.q, 1, &gate, &ev); /* refused at once, or fails later */
        if (!s)
            s = usm_event_wait(ev);
        CHECK(s == USM_E_DEPENDENCY, "%s: %s", r.name, usm_status_name(s));
        usm_event_release(ev);
        usm_event_release(gate);
    }
}

Test(event, a_second_signal_is_refused)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r);
        gate_open(gate);
        CHECK_REFUSED(usm_event_signal(gate, USM_OK), USM_E_INVALID, "");
        CHECK_REFUSED(usm_event_signal(gate, USM_E_SYSTEM), USM_E_INVALID, "");
        CHECK_OK(usm_event_query(gate));
        usm_event_release(gate);
    }
}

Test(event, signalling_a_commands_event_or_a_positive_status_is_refused)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r), *ev = NULL;
        CHECK_OK(usm_queue_barrier(r.q, 0, NULL, &ev));
        CHECK_REFUSED(usm_event_signal(ev, USM_OK), USM_E_INVALID, "usm_event_create");
        CHECK_IS(usm_event_signal(gate, (usm_status)5), USM_E_INVALID);
        CHECK_IS(usm_event_signal(gate, USM_E_NOT_READY), USM_E_INVALID);
        CHECK_IS(usm_event_query(gate), USM_E_NOT_READY); /* still to be signalled */
        gate_open(gate);
        CHECK_OK(usm_event_wait(ev));
        usm_event_release(ev);
        usm_event_release(gate);
    }
}

Test(event, times_of_a_profiling_queue_are_in_order)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(QUEUE_PROFILING) | NEED_DEVICE | NEED_DATA))
            continue;
        usm_queue    *q     = queue_with(&r, USM_QUEUE_PROFILING);
        char         *p     = mem(&r, USM_DEVICE, 1 << 20);
        usm_profiling first = USM_PROFILING_INIT, second = USM_PROFILING_INIT;
        usm_event    *a = NULL, *b = NULL;
        CHECK_OK(usm_memset(q, p, 1, 1 << 20, 0, NULL, &a));
        CHECK_OK(usm_memset(q, p, 2, 1 << 20, 0, NULL, &b));
        CHECK_OK(usm_event_wait(b));
        CHECK_OK(usm_event_profiling(a, &first));
        CHECK_OK(usm_event_profiling(b, &second));
        CHECK(first.submit_ns <= first.start_ns && first.start_ns <= first.end_ns,
              "%s: times of one command", r.name);
        CHECK(first.end_ns <= second.end_ns && first.start_ns <= second.start_ns,
              "%s: times of two commands", r.name);
        CHECK(first.end_ns > 0, "%s: no time", r.name);
        usm_event_release(a);
        usm_event_release(b);
        usm_queue_destroy(q);
        usm_free(p);
    }
}

Test(event, every_kind_of_command_of_a_profiling_queue_has_times)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(QUEUE_PROFILING) | NEED_DEVICE | NEED_DATA))
            continue;
        usm_queue *q     = queue_with(&r, USM_QUEUE_PROFILING);
        char      *p     = mem(&r, USM_DEVICE, 4096);
        usm_event *ev[4] = {NULL};
        CHECK_OK(usm_fill(q, p, "abc", 3, 100, 0, NULL, &ev[0])); /* an odd pattern */
        CHECK_OK(usm_memcpy(q, p + 1, p, 3000, 0, NULL, &ev[1])); /* overlapping    */
        CHECK_OK(usm_memcpy_2d(q, p, 10, p + 2000, 10, 5, 5, 0, NULL, &ev[2]));
        CHECK_OK(usm_memcpy(q, p, p, 0, 0, NULL, &ev[3])); /* empty          */
        CHECK_OK(usm_event_wait_all(4, ev));
        for (int i = 0; i < 4; i++) {
            usm_profiling t = USM_PROFILING_INIT;
            CHECK_OK(usm_event_profiling(ev[i], &t));
            CHECK(t.submit_ns <= t.start_ns && t.start_ns <= t.end_ns, "%s: command %d", r.name, i);
            usm_event_release(ev[i]);
        }
        usm_queue_destroy(q);
        usm_free(p);
    }
}

Test(event, times_are_refused_where_there_are_none)
{
    EACH_DEVICE (r) {
        usm_profiling t    = USM_PROFILING_INIT;
        usm_event    *gate = gate_new(&r), *ev = NULL;
        CHECK_OK(usm_queue_barrier(r.q, 0, NULL, &ev));
        CHECK_OK(usm_event_wait(ev));
        CHECK_REFUSED(usm_event_profiling(ev, &t), USM_E_NOT_SUPPORTED, "USM_QUEUE_PROFILING");
        gate_open(gate);
        CHECK_REFUSED(usm_event_profiling(gate, &t), USM_E_NOT_SUPPORTED, "");
        usm_event_release(ev);
        if (has(&r, NEED(QUEUE_PROFILING))) {
            usm_queue *q     = queue_with(&r, USM_QUEUE_PROFILING);
            usm_event *again = gate_new(&r);
            CHECK_OK(usm_queue_barrier(q, 1, &again, &ev));
            CHECK_IS(usm_event_profiling(ev, &t), USM_E_NOT_READY);
            gate_open(again);
            CHECK_OK(usm_event_wait(ev));
            usm_event_release(ev);
            usm_event_release(again);
            usm_queue_destroy(q);
        }
        CHECK(t.end_ns == 0, "%s: the output was touched", r.name);
        usm_event_release(gate);
    }
}

Test(event, references_are_counted)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r);
        for (int i = 0; i < 5; i++)
            CHECK_OK(usm_event_retain(gate));
        for (int i = 0; i < 5; i++)
            usm_event_release(gate);
        CHECK_IS(usm_event_query(gate), USM_E_NOT_READY);
        gate_open(gate);
        usm_event_release(gate);
        usm_event_release(NULL);
        CHECK_IS(usm_event_query(gate), USM_E_INVALID_HANDLE);
    }
}

Test(event, a_released_event_is_named_wherever_it_is_given)
{
    EACH_DEVICE (r) {
        usm_event    *ev = gate_new(&r), *out = NULL;
        usm_profiling t = USM_PROFILING_INIT;
        seen          s = {.ev = ev};
        gate_open(ev);
        usm_event_release(ev);
        CHECK_REFUSED(usm_event_query(ev), USM_E_INVALID_HANDLE, "event");
        CHECK_REFUSED(usm_event_wait(ev), USM_E_INVALID_HANDLE, "event");
        CHECK_REFUSED(usm_event_wait_all(1, &ev), USM_E_INVALID_HANDLE, "event");
        CHECK_REFUSED(usm_event_signal(ev, USM_OK), USM_E_INVALID_HANDLE, "event");
        CHECK_REFUSED(usm_event_retain(ev), USM_E_INVALID_HANDLE, "event");
        CHECK_REFUSED(usm_event_profiling(ev, &t), USM_E_INVALID_HANDLE, "event");
        CHECK_REFUSED(usm_event_on_complete(ev, note, &s), USM_E_INVALID_HANDLE, "event");
        CHECK_REFUSED(usm_queue_barrier(r.q, 1, &ev, &out), USM_E_INVALID_HANDLE, "event");
        usm_event_release(ev); /* a second release is harmless */
        CHECK(!out && atomic_load(&s.calls) == 0, "%s: an output was touched", r.name);
    }
}

Test(event, an_event_of_another_context_is_waited_for)
{
    EACH_DEVICE (r) {
        rig        other = rig_first();
        usm_event *gate = gate_new(&other), *theirs = held(&other, gate), *ours = NULL;
        CHECK_OK(usm_queue_barrier(r.q, 1, &theirs, &ours));
        sleep_ms(10);
        CHECK_IS(usm_event_query(ours), USM_E_NOT_READY);
        gate_open(gate);
        CHECK_OK(usm_event_wait(ours));
        CHECK_OK(usm_event_query(theirs));
        usm_event_release(gate);
        usm_event_release(theirs);
        usm_event_release(ours);
        rig_end(&other);
    }
}

Test(event, events_of_several_contexts_order_copies)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST | NEED_DATA))
            continue;
        rig        a = rig_first(), b = rig_first();
        usm_event *gates[2] = {gate_new(&a), gate_new(&b)}, *ev = NULL;
        char      *p = mem(&r, USM_HOST, 1);
        *p           = '.';
        CHECK_OK(usm_memset(r.q, p, 'x', 1, 2, gates, &ev));
        gate_open(gates[1]);
        sleep_ms(10);
        CHECK_IS(usm_event_query(ev), USM_E_NOT_READY);
        CHECK(*(volatile char *)p == '.', "%s: too early", r.name);
        gate_open(gates[0]);
        CHECK_OK(usm_event_wait(ev));
        CHECK(*p == 'x', "%s: not done", r.name);
        for (int i = 0; i < 2; i++)
            usm_event_release(gates[i]);
        usm_event_release(ev);
        usm_free(p);
        rig_end(&a);
        rig_end(&b);
    }
}

Test(event, a_failure_travels_between_contexts)
{
    EACH_DEVICE (r) {
        rig        other = rig_first();
        usm_event *gate = gate_new(&other), *ours = NULL;
        CHECK_OK(usm_queue_barrier(r.q, 1, &gate, &ours));
        CHECK_OK(usm_event_signal(gate, USM_E_DEVICE_LOST));
        CHECK_IS(usm_event_wait(ours), USM_E_DEPENDENCY);
        usm_event_release(gate);
        usm_event_release(ours);
        rig_end(&other);
    }
}

typedef struct waiter {
    usm_event *ev;
    atomic_int done;
    usm_status status;
} waiter;

static void *wait_here(void *arg)
{
    waiter *w = arg;

    w->status = usm_event_wait(w->ev);
    atomic_store(&w->done, 1);
    return NULL;
}

Test(event, several_threads_wait_for_one_event)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r), *ev = held(&r, gate);
        waiter     w[6];
        pthread_t  id[6];
        for (int i = 0; i < 6; i++) {
            w[i] = (waiter){i % 2 ? gate : ev, 0, USM_OK};
            CHECK(!pthread_create(&id[i], NULL, wait_here, &w[i]), "no thread");
        }
        sleep_ms(10);
        for (int i = 0; i < 6; i++)
            CHECK(!atomic_load(&w[i].done), "%s: waiter %d came back early", r.name, i);
        gate_open(gate);
        for (int i = 0; i < 6; i++) {
            pthread_join(id[i], NULL);
            CHECK(!w[i].status, "%s: waiter %d: %s", r.name, i, usm_status_name(w[i].status));
        }
        usm_event_release(gate);
        usm_event_release(ev);
    }
}

Test(event, a_user_event_signalled_by_another_thread_wakes_the_waiter)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r);
        waiter     w    = {gate, 0, USM_OK};
        pthread_t  id;
        CHECK(!pthread_create(&id, NULL, wait_here, &w), "no thread");
        sleep_ms(5);
        gate_open(gate);
        pthread_join(id, NULL);
        CHECK_IS(w.status, USM_OK);
        usm_event_release(gate);
    }
}

Test(event, a_user_event_may_be_released_before_it_is_signalled_by_a_holder)
{
    EACH_DEVICE (r) {
        usm_event *gate = gate_new(&r), *ev = held(&r, gate);
        CHECK_OK(usm_event_retain(gate));
        usm_event_release(gate);
        gate_open(gate);
        usm_event_release(gate);
        CHECK_OK(usm_event_wait(ev));
        usm_event_release(ev);
    }
}
