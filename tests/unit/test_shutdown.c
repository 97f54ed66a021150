/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm_shutdown() beside calls that are at work on the default context (src/device/init.c): its wait
 * ends although new ones begin all the time.  Its naps are counted, and are where the other threads
 * take their steps, so nothing depends on time. */
#include "plain.h"

#include "device/init.h"
#include "heap/area.h"

#include <pthread.h>
#include <usm/usm.h>

/* Counters go by the thread's address: with so many of a side there are two in one counter that
 * relieve each other. */
enum { SIDE = 32, NAPS_MAX = 50 };

typedef struct side {
    pthread_t         threads[SIDE];
    pthread_barrier_t step; /* all of the side, and who gives the step                       */
} side;

static side          sides[2];
static unsigned      naps, inside;
static _Atomic(bool) relieves, is_over;

static void take_step(side *s)
{
    (void)pthread_barrier_wait(&s->step); /* begin */
    (void)pthread_barrier_wait(&s->step); /* done  */
}

/* In and out of a call, a step each. */
static void *call(void *side_)
{
    side *s = side_;

    for (bool is_in = false;; is_in = !is_in) {
        (void)pthread_barrier_wait(&s->step);
        if (atomic_load(&is_over) && !is_in)
            return NULL;
        if (is_in)
            usm__default_leave();
        else
            usm__default_enter();
        (void)pthread_barrier_wait(&s->step);
    }
}

void __real_usm__os_sleep_ns(uint64_t ns);
void __wrap_usm__os_sleep_ns(uint64_t ns);

/* One side begins calls, then the other one's end: at each moment somebody is inside. */
void __wrap_usm__os_sleep_ns(uint64_t ns)
{
    if (!atomic_load(&relieves)) {
        __real_usm__os_sleep_ns(ns);
        return;
    }
    if (++naps < NAPS_MAX)
        take_step(&sides[!inside]);
    take_step(&sides[inside]);
    inside = !inside;
    if (naps >= NAPS_MAX)
        atomic_store(&relieves, false);
}

static void calls_that_begin_meanwhile_are_not_waited_for(void)
{
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_barrier_init(&sides[i].step, NULL, SIDE + 1) == 0);
        for (int j = 0; j < SIDE; j++)
            CHECK(pthread_create(&sides[i].threads[j], NULL, call, &sides[i]) == 0);
    }
    for (int round = 0; round < 3; round++) {
        usm_free(usm_alloc_host(100));
        take_step(&sides[inside]);
        naps = 0;
        atomic_store(&relieves, true);
        usm_shutdown();
        CHECK(atomic_load(&relieves)); /* else it went on until nobody began any more */
        CHECK(naps > 0 && naps < NAPS_MAX);
        atomic_store(&relieves, false);
        take_step(&sides[inside]);
        CHECK_INT(usm_init(), USM_OK);
        usm_free(usm_alloc_host(100));
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < 2; i++) {
        (void)pthread_barrier_wait(&sides[i].step);
        for (int j = 0; j < SIDE; j++)
            CHECK(pthread_join(sides[i].threads[j], NULL) == 0);
        (void)pthread_barrier_destroy(&sides[i].step);
    }
    usm_shutdown();
}

/* As a pool's or a backend's function may, which an allocation calls. */
static void a_call_that_ends_the_context_keeps_it_until_it_is_through(void)
{
    char *p;

    CHECK_INT(usm_init(), USM_OK);
    CHECK((p = usm_alloc_host(100)) != NULL);
    usm__default_enter();
    usm__default_enter();
    usm_shutdown();
    CHECK(usm_alloc_host(100) == NULL);
    CHECK_INT(usm_last_status(), USM_E_SHUTDOWN);
    usm__default_leave();
    CHECK(usm__map_find(p) != NULL);
    p[99] = 1; /* the memory is there */
    usm__default_leave();
    CHECK(usm__map_find(p) == NULL);
}

static usm_context *_Atomic other;

static void *end_inside(void *unused)
{
    (void)unused;
    CHECK_INT(usm_init(), USM_OK);
    other = usm_default_context();
    usm__default_enter();
    usm_shutdown();
    usm__default_leave();
    return NULL;
}

/* Two contexts that were the default, each ended by a thread in a call: neither waits for the
 * other. */
static void two_calls_that_end_a_context_do_not_wait_for_each_other(void)
{
    pthread_t thread;

    CHECK_INT(usm_init(), USM_OK);
    CHECK(usm_default_context() != NULL);
    usm__default_enter();
    usm_shutdown();
    CHECK(pthread_create(&thread, NULL, end_inside, NULL) == 0);
    while (!usm__is_down() || !other) /* it ends its own now, and waits for this call */
        __real_usm__os_sleep_ns(100000);
    usm__default_leave();
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(usm_default_context() == NULL);
}

static const plain_case cases[] = {
    CASE(calls_that_begin_meanwhile_are_not_waited_for),
    CASE(a_call_that_ends_the_context_keeps_it_until_it_is_through),
    CASE(two_calls_that_end_a_context_do_not_wait_for_each_other),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
