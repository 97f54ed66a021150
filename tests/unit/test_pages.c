/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The page map (heap/pages.h): every page of a span leads to it and no other address does, also
 * across leaves, in the high half, without memory for tables, and while threads race for a leaf;
 * spans and areas in one map, and readers beside writers.  test_area.c has areas alone. */
#include "plain.h"

#include "base/fault.h"
#include "heap/pages.h"

#include <stdatomic.h>
#include <usm/status.h>

#define GIB       ((uintptr_t)1 << 30)
#define MIB       ((uintptr_t)1 << 20)
#define PAGE      ((uintptr_t)4096)
#define HIGH      ((uintptr_t)0xffff800000000000)
#define THREADS   4
#define PER_RACER 64

static usm__area area; /* in no map: as if it covered everything */
static usm_span  spans[THREADS];

static usm_span *at(uintptr_t address)
{
    return usm__page_find((const void *)address);
}

static void pages_of_a_span_lead_to_it_and_no_others(void)
{
    uintptr_t base = 5 * GIB + 16 * PAGE;

    CHECK(at(base) == NULL);
    CHECK_INT(usm__pages_set(&area.view, base, 3, &spans[0]), USM_OK);
    CHECK(at(base - 1) == NULL && at(base + 3 * PAGE) == NULL);
    for (uintptr_t i = 0; i < 3 * PAGE; i += 511)
        CHECK(at(base + i) == &spans[0]);
    CHECK_INT(usm__pages_set(&area.view, base + PAGE, 1, &spans[1]), USM_OK);
    CHECK(at(base) == &spans[0] && at(base + PAGE) == &spans[1] &&
          at(base + 2 * PAGE) == &spans[0]);
    CHECK_INT(usm__pages_set(&area.view, base, 3, NULL), USM_OK);
    for (uintptr_t i = 0; i < 3; i++)
        CHECK(at(base + i * PAGE) == NULL);
}

static void foreign_addresses_lead_to_nothing(void)
{
    int on_stack = 0;

    CHECK(usm__page_find(NULL) == NULL && usm__page_find(&on_stack) == NULL);
    CHECK(at(UINTPTR_MAX) == NULL && at(HIGH) == NULL);
    CHECK(at((uintptr_t)1 << 47) == NULL && at((uintptr_t)1 << 56) == NULL && at(HIGH - 1) == NULL);
}

static void a_span_may_lie_in_several_leaves(void)
{
    uintptr_t base = 9 * GIB - 2 * PAGE;
    size_t    n    = 4 + (size_t)(GIB / PAGE); /* the last pages of one, all of one, two of one  */

    CHECK_INT(usm__pages_set(&area.view, base, n, &spans[2]), USM_OK);
    CHECK(at(base - PAGE) == NULL && at(base + n * PAGE) == NULL);
    for (size_t i = 0; i < n; i++)
        CHECK(at(base + i * PAGE) == &spans[2]);
    CHECK_INT(usm__pages_set(&area.view, base, n, NULL), USM_OK);
    for (size_t i = 0; i < n; i++)
        CHECK(at(base + i * PAGE) == NULL);
}

static void the_halves_have_their_ends(void)
{
    const uintptr_t bases[] = {0, ((uintptr_t)1 << 47) - PAGE, HIGH, HIGH + 7 * GIB,
                               UINTPTR_MAX - PAGE + 1};

    for (int i = 0; i < 5; i++) {
        CHECK_INT(usm__pages_set(&area.view, bases[i], 1, &spans[0]), USM_OK);
        for (int k = 0; k < 5; k++)
            CHECK(at(bases[k]) == (k == i ? &spans[0] : NULL));
        CHECK_INT(usm__pages_set(&area.view, bases[i], 1, NULL), USM_OK);
    }
}

static void what_is_in_no_half_is_refused(void)
{
    CHECK_INT(usm__pages_set(&area.view, ((uintptr_t)1 << 47), 1, &spans[0]), USM_E_NO_MEMORY);
    CHECK_INT(usm__pages_set(&area.view, ((uintptr_t)1 << 47), 1, NULL), USM_OK);
}

/* Nothing changes when one of the leaves cannot be had, and the same call works afterwards. */
static void without_memory_for_a_leaf_no_page_is_set(void)
{
    uintptr_t base = 21 * GIB - PAGE;

    for (uint64_t fault = 1; fault <= 2; fault++) {
        CHECK(usm__fault_arm("os.mmap", fault, true, USM_OK));
        CHECK_INT(usm__pages_set(&area.view, base, 2, &spans[0]), USM_E_NO_MEMORY);
        usm__fault_disarm_all();
        CHECK_IN("page map", usm_last_error());
        CHECK(at(base) == NULL && at(base + PAGE) == NULL);
    }
    CHECK(usm__fault_arm("os.mmap", 1, true, USM_OK));
    CHECK_INT(usm__pages_set(&area.view, 31 * GIB, 1, NULL), USM_OK); /* needs no leaf */
    usm__fault_disarm_all();
    CHECK_INT(usm__pages_set(&area.view, base, 2, &spans[0]), USM_OK);
    CHECK(at(base) == &spans[0] && at(base + PAGE) == &spans[0]);
    CHECK_INT(usm__pages_set(&area.view, base, 2, NULL), USM_OK);
}

static pthread_barrier_t start;

/* An entry takes 8 bytes: those of 2 MiB are a page of the leaf. */
static void what_is_discarded_can_be_set_again_and_neighbours_stay(void)
{
    uintptr_t base = 20 * GIB - 4 * MIB; /* to the end of one leaf, and a part of the next */
    size_t    n    = 7 * MIB / PAGE;

    CHECK_INT(usm__pages_set(&area.view, base - PAGE, 1, &spans[0]), USM_OK);
    CHECK_INT(usm__pages_set(&area.view, base, n, &spans[1]), USM_OK);
    CHECK_INT(usm__pages_set(&area.view, base + n * PAGE, 1, &spans[2]), USM_OK);
    CHECK_INT(usm__pages_set(&area.view, base, n, NULL), USM_OK);
    usm__pages_discard(base, n * PAGE);
    usm__pages_discard(700 * GIB, 2 * GIB); /* nothing was ever there */
    for (size_t i = 0; i < n; i++)
        CHECK(at(base + i * PAGE) == NULL);
    CHECK(at(base - PAGE) == &spans[0] && at(base + n * PAGE) == &spans[2]);
    CHECK_INT(usm__pages_set(&area.view, base, n, &spans[3]), USM_OK);
    CHECK(at(base) == &spans[3] && at(base + (n - 1) * PAGE) == &spans[3]);
}

/* Racer i sets page i of leaves that nobody has used. */
static void *race(void *arg)
{
    uintptr_t self = (uintptr_t)((usm_span *)arg - spans);

    for (uintptr_t i = 0; i < PER_RACER; i++) {
        uintptr_t base = (100 + i) * GIB + self * PAGE;

        (void)pthread_barrier_wait(&start);
        CHECK_INT(usm__pages_set(&area.view, base, 1, arg), USM_OK);
        CHECK(at(base) == arg);
    }
    return NULL;
}

static void racing_threads_share_one_leaf(void)
{
    pthread_t threads[THREADS];

    CHECK(pthread_barrier_init(&start, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, race, &spans[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (uintptr_t i = 0; i < PER_RACER; i++)
        for (uintptr_t k = 0; k < THREADS; k++)
            CHECK(at((100 + i) * GIB + k * PAGE) == &spans[k]);
    (void)pthread_barrier_destroy(&start);
}

/* --- spans in areas ----------------------------------------------------------------------------
 * */

static usm__area *around(uintptr_t address)
{
    return usm__map_find((const void *)address);
}

static void enter(usm__area *a, uintptr_t base, size_t size)
{
    const usm__area *other = NULL;

    a->view = (usm_area){(void *)base, size, NULL};
    CHECK_INT(usm__map_insert(a, &other), USM_OK);
}

/* The span and the area at every page of [base, base + size), some of which lead to `span`. */
static void check_pages(uintptr_t base, size_t size, usm__area *a, uintptr_t from, uintptr_t to,
                        usm_span *span)
{
    for (uintptr_t p = base; p < base + size; p += PAGE) {
        CHECK(at(p) == (p >= from && p < to ? span : NULL));
        CHECK(around(p) == a && around(p + PAGE - 1) == a);
    }
    CHECK(around(base - 1) == NULL && around(base + size) == NULL);
}

/* The area begins and ends with pages, has whole 2 MiB in between, and, the second, a whole GiB: a
 * span lies in each of these, and across their ends. */
static void a_page_leads_to_its_span_and_to_its_area(void)
{
    static usm__area one;
    const struct {
        uintptr_t base;
        size_t    size;
        uintptr_t from[3];
    } areas[] = {{300 * GIB + 5 * PAGE, 7 * MIB, {0, 2 * MIB - 7 * PAGE, 5 * MIB}},
                 {301 * GIB - 3 * PAGE, GIB + 6 * PAGE, {0, 2 * PAGE, 500 * MIB}}};

    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++) {
            uintptr_t base = areas[i].base, from = base + areas[i].from[k];
            usm_span  span = {.area = &one.view};

            enter(&one, base, areas[i].size);
            check_pages(base, areas[i].size, &one, 0, 0, NULL);
            CHECK_INT(usm__pages_set(&one.view, from, 4, &span), USM_OK);
            check_pages(base, areas[i].size, &one, from, from + 4 * PAGE, &span);
            CHECK_INT(usm__pages_set(&one.view, from, 4, NULL), USM_OK);
            check_pages(base, areas[i].size, &one, 0, 0, NULL);
            usm__map_remove(&one);
            CHECK(around(from) == NULL && around(base) == NULL && at(from) == NULL);
        }
}

/* Memory that is unmapped within an area takes the entries of its spans along, not the area. */
static void what_is_discarded_in_an_area_still_leads_to_it(void)
{
    static usm__area one;
    uintptr_t        base = 310 * GIB + 2 * MIB;
    usm_span         span = {.area = &one.view};

    enter(&one, base, 9 * MIB);
    CHECK_INT(usm__pages_set(&one.view, base, 2 * MIB / PAGE, &span), USM_OK);
    CHECK_INT(usm__pages_set(&one.view, base, 2 * MIB / PAGE, NULL), USM_OK);
    usm__pages_discard(base, 9 * MIB);
    check_pages(base, 9 * MIB, &one, 0, 0, NULL);
    usm__map_remove(&one);
}

static void an_area_over_a_span_or_part_of_an_area_is_refused(void)
{
    static usm__area one, two;
    const usm__area *other = NULL;
    uintptr_t        base  = 320 * GIB + 3 * PAGE;
    usm_span         span  = {.area = &one.view};
    const struct {
        uintptr_t base;
        size_t    size;
    } over[] = {{base + PAGE, 64}, {320 * GIB, MIB}, {319 * GIB, 4 * GIB}, {320 * GIB, 2 * MIB}};

    enter(&one, base, 16 * PAGE);
    CHECK_INT(usm__pages_set(&one.view, base, 16, &span), USM_OK);
    for (int i = 0; i < 4; i++) {
        two.view = (usm_area){(void *)over[i].base, over[i].size, NULL};
        CHECK_INT(usm__map_insert(&two, &other), USM_E_ADDRESS_TAKEN);
        CHECK(other == &one);
    }
    CHECK_INT(usm__pages_set(&one.view, base, 16, NULL), USM_OK);
    usm__map_remove(&one);
    enter(&two, 319 * GIB, 4 * GIB);
    usm__map_remove(&two);
}

/* --- readers beside writers ---------------------------------------------------------------------
 * */

/* Of one page: `fixed` is in the middle, areas on both sides come and go, so that the chain changes
 * all the time.  In the next 2 MiB a page has a span, whose neighbours get and lose theirs. */
static struct {
    usm__area   fixed, sides[2], slab;
    usm_span    span, others;
    uintptr_t   base;
    atomic_bool is_over;
} busy;

static void *read_all_the_time(void *arg)
{
    (void)arg;
    while (!busy.is_over) {
        CHECK(around(busy.base + 1024) == &busy.fixed && around(busy.base + 2047) == &busy.fixed);
        CHECK(around(busy.base + 2 * MIB + PAGE) == &busy.slab);
        CHECK(at(busy.base + 2 * MIB + PAGE) == &busy.span);
        CHECK(around(busy.base + 2 * MIB) == &busy.slab);
        CHECK(around(busy.base + 2 * MIB + 2 * PAGE + 1) == &busy.slab);
    }
    return NULL;
}

static void what_is_in_use_is_found_while_neighbours_come_and_go(void)
{
    pthread_t readers[2];
    uintptr_t at_slab = (busy.base = 330 * GIB) + 2 * MIB;

    busy.span.area = busy.others.area = &busy.slab.view;
    enter(&busy.fixed, busy.base + 1024, 1024);
    enter(&busy.slab, at_slab, 5 * PAGE);
    CHECK_INT(usm__pages_set(&busy.slab.view, at_slab + PAGE, 1, &busy.span), USM_OK);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&readers[i], NULL, read_all_the_time, NULL) == 0);
    for (int i = 0; i < (PLAIN_SANITIZED ? 2000 : 20000); i++) {
        enter(&busy.sides[i % 2], busy.base + (i % 3 ? 0 : 2048), 1024 - i % 5);
        CHECK_INT(usm__pages_set(&busy.slab.view, at_slab, 1, &busy.others), USM_OK);
        CHECK_INT(usm__pages_set(&busy.slab.view, at_slab + 2 * PAGE, 3, &busy.others), USM_OK);
        CHECK_INT(usm__pages_set(&busy.slab.view, at_slab, 1, NULL), USM_OK);
        CHECK_INT(usm__pages_set(&busy.slab.view, at_slab + 2 * PAGE, 3, NULL), USM_OK);
        usm__map_remove(&busy.sides[i % 2]);
    }
    busy.is_over = true;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(readers[i], NULL) == 0);
    CHECK_INT(usm__pages_set(&busy.slab.view, at_slab + PAGE, 1, NULL), USM_OK);
    usm__map_remove(&busy.slab);
    usm__map_remove(&busy.fixed);
}

static const plain_case cases[] = {
    CASE(pages_of_a_span_lead_to_it_and_no_others),
    CASE(foreign_addresses_lead_to_nothing),
    CASE(a_span_may_lie_in_several_leaves),
    CASE(the_halves_have_their_ends),
    CASE(what_is_in_no_half_is_refused),
    CASE(without_memory_for_a_leaf_no_page_is_set),
    CASE(what_is_discarded_can_be_set_again_and_neighbours_stay),
    CASE(racing_threads_share_one_leaf),
    CASE(a_page_leads_to_its_span_and_to_its_area),
    CASE(what_is_discarded_in_an_area_still_leads_to_it),
    CASE(an_area_over_a_span_or_part_of_an_area_is_refused),
    CASE(what_is_in_use_is_found_while_neighbours_come_and_go),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
