/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Completions where the backend does not notify and the system gives no further thread. */
#include "plain.h"

#include "base/fault.h"
#include "base/os.h"
#include "command/event.h"
#include "command/executor.h"

#include <pthread.h>
#include <stdatomic.h>

/* An event of the backend below. */
typedef struct event {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    bool            has_ended;
} event;

static event late  = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
static event ended = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, true};

static usm_status query(void *ev)
{
    event *e = ev;
    bool   has_ended;

    (void)pthread_mutex_lock(&e->lock);
    has_ended = e->has_ended;
    (void)pthread_mutex_unlock(&e->lock);
    return has_ended ? USM_OK : USM_E_NOT_READY;
}

static usm_status wait_for(void *ev)
{
    event *e = ev;

    (void)pthread_mutex_lock(&e->lock);
    while (!e->has_ended)
        (void)pthread_cond_wait(&e->changed, &e->lock);
    (void)pthread_mutex_unlock(&e->lock);
    return USM_OK;
}

static void end(event *e)
{
    (void)pthread_mutex_lock(&e->lock);
    e->has_ended = true;
    (void)pthread_cond_broadcast(&e->changed);
    (void)pthread_mutex_unlock(&e->lock);
}

static atomic_int calls;

static void count(usm__completion *c)
{
    CHECK(c->status == USM_OK);
    atomic_fetch_add(&calls, 1);
}

static void end_the_late_one(usm__completion *c)
{
    count(c);
    end(&late);
}

static bool come_in_time(int n)
{
    for (int i = 0; i < 10000 && atomic_load(&calls) < n; i++)
        usm__os_sleep_ns(1000000);
    return atomic_load(&calls) == n;
}

/* The first waits for what the second does, as a host task may for one that was submitted later. */
static void one_thread_serves_those_that_wait_for_each_other(void)
{
    static usm__completion first, second;
    static usm__backend    be = {.ops = {.event_query = query, .event_wait = wait_for}};

    CHECK(usm__executor_reserve() == USM_OK);
    CHECK(usm__fault_arm("os.thread", 1, true, USM_OK));
    CHECK(usm__completion_arm(&first, &be, &late, count) == USM_OK);
    CHECK(usm__completion_arm(&second, &be, &ended, end_the_late_one) == USM_OK);
    CHECK(come_in_time(2));
    usm__fault_disarm_all();
    end(&late);
}

static const plain_case cases[] = {
    CASE(one_thread_serves_those_that_wait_for_each_other),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
