/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Class "queue": order, waiting, and the end of queues.  Host tasks are in task.c. */
#include "common.h"

#include <pthread.h>

Test(queue, an_in_order_queue_runs_its_commands_in_order)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_DEVICE | NEED_DATA))
            continue;
        enum { N = 200 };
        int back[N], *p = mem(&r, USM_DEVICE, sizeof(int));
        /* Each value is written over the one before, and read back at once. */
        for (int i = 0; i < N; i++) {
            CHECK_OK(usm_fill(r.q, p, &i, sizeof i, 1, 0, NULL, NULL));
            CHECK_OK(usm_memcpy(r.q, &back[i], p, sizeof i, 0, NULL, NULL));
        }
        CHECK_OK(usm_queue_wait(r.q));
        for (int i = 0; i < N; i++)
            CHECK(back[i] == i, "%s: command %d read %d", r.name, i, back[i]);
        usm_free(p);
    }
}

Test(queue, a_command_of_an_in_order_queue_waits_for_one_that_is_held_up)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST | NEED_DATA))
            continue;
        char      *p    = mem(&r, USM_HOST, 2);
        usm_event *gate = gate_new(&r), *second = NULL;
        memcpy(p, "..", 2);
        CHECK_OK(usm_memset(r.q, p, 'a', 2, 1, &gate, NULL));
        CHECK_OK(usm_memset(r.q, p, 'b', 1, 0, NULL, &second));
        CHECK_IS(usm_event_query(second), USM_E_NOT_READY);
        CHECK_IS(usm_queue_query(r.q), USM_E_NOT_READY);
        gate_open(gate);
        CHECK_OK(usm_event_wait(second));
        CHECK(!memcmp(p, "ba", 2), "%s: %.2s", r.name, p);
        usm_event_release(gate);
        usm_event_release(second);
        usm_free(p);
    }
}

Test(queue, commands_of_an_out_of_order_queue_pass_one_that_is_held_up)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(OUT_OF_ORDER_QUEUE) | NEED_HOST | NEED_DATA))
            continue;
        usm_queue *q    = queue_with(&r, USM_QUEUE_OUT_OF_ORDER);
        char      *p    = mem(&r, USM_HOST, 2);
        usm_event *gate = gate_new(&r), *held = NULL, *free_one = NULL;
        memcpy(p, "..", 2);
        CHECK_OK(usm_memset(q, p, 'a', 1, 1, &gate, &held));
        CHECK_OK(usm_memset(q, p + 1, 'b', 1, 0, NULL, &free_one));
        CHECK_OK(usm_event_wait(free_one)); /* hangs when it waits for the first one */
        CHECK_IS(usm_event_query(held), USM_E_NOT_READY);
        CHECK(!memcmp(p, ".b", 2), "%s: %.2s", r.name, p);
        gate_open(gate);
        CHECK_OK(usm_queue_wait(q));
        CHECK(!memcmp(p, "ab", 2), "%s: %.2s", r.name, p);
        usm_event_release(gate);
        usm_event_release(held);
        usm_event_release(free_one);
        usm_queue_destroy(q);
        usm_free(p);
    }
}

Test(queue, a_barrier_without_dependencies_waits_for_all_before_it)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(OUT_OF_ORDER_QUEUE) | NEED_HOST | NEED_DATA))
            continue;
        usm_queue *q    = queue_with(&r, USM_QUEUE_OUT_OF_ORDER);
        char      *p    = mem(&r, USM_HOST, 3);
        usm_event *gate = gate_new(&r), *barrier = NULL, *after = NULL;
        memcpy(p, "...", 3);
        CHECK_OK(usm_memset(q, p, 'a', 2, 1, &gate, NULL));
        CHECK_OK(usm_queue_barrier(q, 0, NULL, &barrier));
        CHECK_OK(usm_memset(q, p + 1, 'b', 2, 0, NULL, &after));
        sleep_ms(20); /* time in which it could go wrong; nothing depends on its length */
        CHECK_IS(usm_event_query(barrier), USM_E_NOT_READY);
        CHECK_IS(usm_event_query(after), USM_E_NOT_READY);
        gate_open(gate);
        CHECK_OK(usm_event_wait(after));
        CHECK_OK(usm_event_query(barrier));
        CHECK(!memcmp(p, "abb", 3), "%s: %.3s", r.name, p);
        usm_event_release(gate);
        usm_event_release(barrier);
        usm_event_release(after);
        usm_queue_destroy(q);
        usm_free(p);
    }
}

Test(queue, a_barrier_with_dependencies_holds_later_commands_for_them)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(OUT_OF_ORDER_QUEUE) | NEED_HOST | NEED_DATA))
            continue;
        usm_queue *q    = queue_with(&r, USM_QUEUE_OUT_OF_ORDER);
        char      *p    = mem(&r, USM_HOST, 1);
        usm_event *gate = gate_new(&r), *after = NULL;
        *p = '.';
        CHECK_OK(usm_queue_barrier(q, 1, &gate, NULL));
        CHECK_OK(usm_memset(q, p, 'b', 1, 0, NULL, &after));
        sleep_ms(20);
        CHECK_IS(usm_event_query(after), USM_E_NOT_READY);
        gate_open(gate);
        CHECK_OK(usm_event_wait(after));
        CHECK(*p == 'b', "%s: %c", r.name, *p);
        usm_event_release(gate);
        usm_event_release(after);
        usm_queue_destroy(q);
        usm_free(p);
    }
}

Test(queue, an_empty_queue_is_complete)
{
    EACH_DEVICE (r) {
        usm_event *ev = NULL;
        CHECK_OK(usm_queue_query(r.q));
        CHECK_OK(usm_queue_wait(r.q));
        CHECK_OK(usm_queue_barrier(r.q, 0, NULL, &ev));
        CHECK_OK(usm_event_wait(ev));
        CHECK_OK(usm_context_wait(r.ctx));
        usm_event_release(ev);
    }
}

Test(queue, waiting_ends_when_everything_submitted_is_done)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_DEVICE | NEED_DATA))
            continue;
        size_t         n    = 16 << 20;
        unsigned char *want = malloc(n), *back = malloc(n);
        char          *p = mem(&r, USM_DEVICE, n);
        CHECK(want && back, "no memory for the test itself");
        pattern_fill(want, n, 7);
        CHECK_OK(usm_memcpy(r.q, p, want, n, 0, NULL, NULL));
        CHECK_OK(usm_memcpy(r.q, back, p, n, 0, NULL, NULL));
        CHECK_OK(usm_queue_wait(r.q));
        CHECK(!memcmp(want, back, n), "%s: wait came too early", r.name);
        CHECK_OK(usm_queue_query(r.q));
        usm_free(p);
        free(want);
        free(back);
    }
}

Test(queue, waiting_for_the_context_waits_for_all_its_queues)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_DEVICE | NEED_DATA))
            continue;
        enum { QUEUES = 5, SIZE = 2 << 20 };
        usm_queue     *q[QUEUES];
        unsigned char *back = calloc(QUEUES, SIZE), want[QUEUES] = "abcd";
        char          *p[QUEUES];
        CHECK(back, "no memory for the test itself");
        for (int i = 0; i < QUEUES; i++) {
            q[i] = queue_with(&r, 0);
            p[i] = mem(&r, USM_DEVICE, SIZE);
            CHECK_OK(usm_memset(q[i], p[i], want[i], SIZE, 0, NULL, NULL));
            CHECK_OK(usm_memcpy(q[i], back + i * SIZE, p[i], SIZE, 0, NULL, NULL));
        }
        CHECK_OK(usm_context_wait(r.ctx));
        for (int i = 0; i < QUEUES; i++) {
            CHECK(back[i * SIZE] == want[i] && back[i * SIZE + SIZE - 1] == want[i], "%s: queue %d",
                  r.name, i);
            usm_queue_destroy(q[i]);
            usm_free(p[i]);
        }
        free(back);
    }
}

Test(queue, a_queue_destroyed_with_work_in_flight_lets_it_end)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST | NEED_DATA))
            continue;
        size_t     n  = 8 << 20;
        usm_queue *q  = queue_with(&r, 0);
        char      *p  = mem(&r, USM_HOST, n);
        usm_event *ev = NULL;
        memset(p, 0, n);
        CHECK_OK(usm_memset(q, p, 1, n, 0, NULL, NULL));
        CHECK_OK(usm_memset(q, p, 2, n, 0, NULL, &ev));
        usm_queue_destroy(q);
        CHECK_OK(usm_event_wait(ev));
        CHECK(p[0] == 2 && p[n - 1] == 2, "%s: the work was lost", r.name);
        usm_event_release(ev);
        usm_free(p);
    }
}

Test(queue, a_queue_destroyed_behind_a_user_event_ends_when_it_is_signalled)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_HOST | NEED_DATA))
            continue;
        for (int with_event = 0; with_event < 2; with_event++) {
            usm_queue *q    = queue_with(&r, 0);
            char      *p    = mem(&r, USM_HOST, 100);
            usm_event *gate = gate_new(&r), *ev = NULL;
            memset(p, 0, 100);
            CHECK_OK(usm_memset(q, p, 3, 100, 1, &gate, with_event ? &ev : NULL));
            usm_queue_destroy(q); /* must not wait: nobody would open the gate */
            gate_open(gate);
            if (ev)
                CHECK_OK(usm_event_wait(ev));
            for (int ms = 0; ((volatile char *)p)[99] != 3; ms++) {
                CHECK(ms < 20000, "%s: the command was lost with its queue", r.name);
                sleep_ms(1);
            }
            usm_event_release(gate);
            usm_event_release(ev);
            CHECK_OK(usm_context_wait(r.ctx));
            usm_free(p);
        }
    }
}

Test(queue, many_queues_work_side_by_side)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_DEVICE | NEED_DATA))
            continue;
        enum { N = 40 };
        usm_queue *q[N];
        int       *p = mem(&r, USM_DEVICE, N * sizeof(int)), back[N];
        for (int i = 0; i < N; i++) {
            q[i] = queue_with(&r, 0);
            CHECK_OK(usm_fill(q[i], p + i, &i, sizeof i, 1, 0, NULL, NULL));
        }
        for (int i = 0; i < N; i++)
            CHECK_OK(usm_queue_wait(q[i]));
        get(&r, back, p, sizeof back);
        for (int i = 0; i < N; i++) {
            CHECK(back[i] == i, "%s: queue %d wrote %d", r.name, i, back[i]);
            usm_queue_destroy(q[i]);
        }
        usm_free(p);
    }
}

Test(queue, queues_come_and_go_by_the_hundred)
{
    EACH_DEVICE (r) {
        for (int i = 0; i < 300; i++) {
            usm_queue *q = queue_with(&r, 0);
            if (i % 3 == 0)
                CHECK_OK(usm_queue_barrier(q, 0, NULL, NULL));
            usm_queue_destroy(q);
        }
        CHECK_OK(usm_context_wait(r.ctx));
    }
}

Test(queue, a_queue_knows_its_context_and_device)
{
    EACH_DEVICE (r) {
        CHECK(usm_queue_get_context(r.q) == r.ctx, "%s: another context", r.name);
        CHECK(usm_queue_get_device(r.q) == r.dev, "%s: another device", r.name);
        usm_queue *q = NULL;
        CHECK_OK(usm_queue_create(r.ctx, NULL, NULL, &q)); /* NULL: the context's first device */
        CHECK(usm_queue_get_device(q) == r.dev, "%s: NULL is another device", r.name);
        usm_queue_destroy(q);
    }
}

Test(queue, a_device_outside_the_context_is_refused)
{
    usm_device *list[32];
    size_t      count = 0;

    CHECK_OK(usm_select_devices("*:*", list, 32, &count));
    EACH_DEVICE (r) {
        usm_device *other = NULL;
        usm_queue  *q     = NULL;
        for (size_t i = 0; i < count && i < 32; i++)
            if (list[i] != r.dev)
                other = list[i];
        if (!other) {
            not_offered("there is one device only");
            continue;
        }
        tried();
        CHECK_REFUSED(usm_queue_create(r.ctx, other, NULL, &q), USM_E_INVALID, "device");
        CHECK(!q, "%s: the output was touched", r.name);
    }
}

Test(queue, unknown_flags_and_descriptors_are_refused)
{
    EACH_DEVICE (r) {
        usm_queue_desc desc = USM_QUEUE_DESC_INIT;
        usm_queue     *q    = NULL;
        desc.flags          = 1u << 30;
        CHECK_REFUSED(usm_queue_create(r.ctx, r.dev, &desc, &q), USM_E_INVALID, "flag");
        desc.flags       = 0;
        desc.struct_size = 0;
        CHECK_REFUSED(usm_queue_create(r.ctx, r.dev, &desc, &q), USM_E_ABI, "USM_QUEUE_DESC_INIT");
        CHECK(!q, "%s: the output was touched", r.name);
    }
}

Test(queue, what_the_device_lacks_is_refused_at_creation)
{
    EACH_DEVICE (r) {
        usm_queue_desc desc = USM_QUEUE_DESC_INIT;
        usm_queue     *q    = NULL;
        if (has(&r, NEED(OUT_OF_ORDER_QUEUE) | NEED(QUEUE_PROFILING))) {
            not_offered("%s has everything", r.name);
            continue;
        }
        tried();
        desc.flags =
            has(&r, NEED(OUT_OF_ORDER_QUEUE)) ? USM_QUEUE_PROFILING : USM_QUEUE_OUT_OF_ORDER;
        CHECK_REFUSED(usm_queue_create(r.ctx, r.dev, &desc, &q), USM_E_NOT_SUPPORTED, "");
    }
}

Test(queue, the_default_queue_is_one_and_in_order)
{
    rig        r = rig_first();
    usm_queue *q = usm_default_queue();

    CHECK(q, "%s", usm_last_error());
    CHECK(q == usm_default_queue(), "two default queues");
    CHECK(usm_queue_get_context(q) == usm_default_context(), "not of the default context");
    CHECK(usm_queue_get_device(q) == r.dev, "not of the selector's first device");
    CHECK_OK(usm_queue_wait(q));
    rig_end(&r);
}

typedef struct submitter {
    const rig *r;
    char      *p;
    usm_status status;
} submitter;

static void *submit_many(void *arg)
{
    submitter *s = arg;

    for (int i = 0; i < 100 && !s->status; i++)
        s->status = usm_memset(s->r->q, s->p, i, 64, 0, NULL, NULL);
    return NULL;
}

Test(queue, several_threads_submit_to_one_queue)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED_DEVICE | NEED_DATA))
            continue;
        enum { N = 4 };
        pthread_t     id[N];
        submitter     s[N];
        unsigned char want[N * 64];
        char         *p = mem(&r, USM_DEVICE, N * 64);
        for (int i = 0; i < N; i++) {
            s[i] = (submitter){&r, p + i * 64, USM_OK};
            CHECK(!pthread_create(&id[i], NULL, submit_many, &s[i]), "no thread");
        }
        for (int i = 0; i < N; i++) {
            pthread_join(id[i], NULL);
            CHECK(!s[i].status, "%s: %s", r.name, usm_status_name(s[i].status));
        }
        memset(want, 99, sizeof want);
        check_bytes(&r, p, want, sizeof want, "the last write of each thread");
        usm_free(p);
    }
}

Test(queue, dependencies_that_are_null_or_missing_are_refused)
{
    EACH_DEVICE (r) {
        usm_event *none[1] = {NULL}, *ev = NULL;
        CHECK_IS(usm_queue_barrier(r.q, 1, none, &ev), USM_E_INVALID_HANDLE);
        CHECK_IS(usm_queue_barrier(r.q, 1, NULL, &ev), USM_E_INVALID);
        CHECK(!ev, "%s: the output was touched", r.name);
    }
}

Test(queue, a_long_chain_of_dependencies_is_followed)
{
    EACH_DEVICE (r) {
        if (!can(&r, NEED(OUT_OF_ORDER_QUEUE) | NEED_DEVICE | NEED_DATA))
            continue;
        enum { N = 150 };
        usm_queue *q    = queue_with(&r, USM_QUEUE_OUT_OF_ORDER);
        usm_event *gate = gate_new(&r), *last = gate, *next = NULL;
        char      *p = mem(&r, USM_DEVICE, N + 1), back[N + 1], first = 'a';
        CHECK_OK(usm_event_retain(gate));
        CHECK_OK(usm_memcpy(q, p, &first, 1, 1, &gate, &next));
        for (int i = 0; i < N; i++) { /* the byte walks through the block */
            usm_event_release(last);
            last = next;
            CHECK_OK(usm_memcpy(q, p + i + 1, p + i, 1, 1, &last, &next));
        }
        usm_event_release(last);
        gate_open(gate);
        CHECK_OK(usm_event_wait(next));
        get(&r, back, p, sizeof back);
        CHECK(back[N] == 'a', "%s: %d", r.name, back[N]);
        usm_event_release(next);
        usm_event_release(gate);
        usm_queue_destroy(q);
        usm_free(p);
    }
}

static usm_status until_open(void *user)
{
    wait_until(user, 1, "the end of the wait");
    return USM_OK;
}

static void *open_late(void *go)
{
    sleep_ms(100);
    atomic_store((atomic_int *)go, 1);
    return NULL;
}

Test(queue, waiting_for_the_context_waits_for_destroyed_queues_too)
{
    EACH_DEVICE (r) {
        usm_queue *q  = queue_with(&r, 0);
        usm_event *ev = NULL;
        atomic_int go = 0;
        pthread_t  t;
        CHECK_OK(usm_host_task(q, until_open, &go, 0, NULL, NULL));
        CHECK_OK(usm_queue_barrier(q, 0, NULL, &ev));
        usm_queue_destroy(q);
        CHECK(!pthread_create(&t, NULL, open_late, &go), "no thread");
        CHECK_OK(usm_context_wait(r.ctx));
        /* Where no data moves, what an event says of itself does not either until it is waited for.
         */
        CHECK_OK(has(&r, NEED_DATA) ? usm_event_query(ev) : usm_event_wait(ev));
        pthread_join(t, NULL);
        usm_event_release(ev);
    }
}

typedef struct waiter {
    usm_context *ctx;
    atomic_int   stop;
    usm_status   first;
} waiter;

static void *wait_all_along(void *arg)
{
    waiter *w = arg;

    while (!w->first && !atomic_load(&w->stop))
        w->first = usm_context_wait(w->ctx);
    return NULL;
}

Test(queue, queues_come_and_go_while_a_thread_waits_for_the_context)
{
    EACH_DEVICE (r) {
        waiter    w = {r.ctx, 0, USM_OK};
        pthread_t t;
        CHECK(!pthread_create(&t, NULL, wait_all_along, &w), "no thread");
        for (int i = 0; i < 300; i++) {
            usm_queue *q = queue_with(&r, 0);
            CHECK_OK(usm_queue_barrier(q, 0, NULL, NULL));
            usm_queue_destroy(q);
        }
        atomic_store(&w.stop, 1);
        pthread_join(t, NULL);
        CHECK_IS(w.first, USM_OK);
    }
}
