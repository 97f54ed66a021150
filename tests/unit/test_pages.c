/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The page map (heap/pages.h): every page of a span leads to it and no other address does, also
 * across leaves, in the high half, without memory for tables, and while threads race for a leaf. */
#include "plain.h"

#include "base/fault.h"
#include "heap/pages.h"

#include <usm/status.h>

#define GIB       ((uintptr_t)1 << 30)
#define MIB       ((uintptr_t)1 << 20)
#define PAGE      ((uintptr_t)4096)
#define HIGH      ((uintptr_t)0xffff800000000000)
#define THREADS   4
#define PER_RACER 64

static usm_area area;
static usm_span spans[THREADS];

static usm_span *at(uintptr_t address)
{
    return usm__page_find((const void *)address);
}

static void pages_of_a_span_lead_to_it_and_no_others(void)
{
    uintptr_t base = 5 * GIB + 16 * PAGE;

    CHECK(at(base) == NULL);
    CHECK_INT(usm__pages_set(&area, base, 3, &spans[0]), USM_OK);
    CHECK(at(base - 1) == NULL && at(base + 3 * PAGE) == NULL);
    for (uintptr_t i = 0; i < 3 * PAGE; i += 511)
        CHECK(at(base + i) == &spans[0]);
    CHECK_INT(usm__pages_set(&area, base + PAGE, 1, &spans[1]), USM_OK);
    CHECK(at(base) == &spans[0] && at(base + PAGE) == &spans[1] &&
          at(base + 2 * PAGE) == &spans[0]);
    CHECK_INT(usm__pages_set(&area, base, 3, NULL), USM_OK);
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

    CHECK_INT(usm__pages_set(&area, base, n, &spans[2]), USM_OK);
    CHECK(at(base - PAGE) == NULL && at(base + n * PAGE) == NULL);
    for (size_t i = 0; i < n; i++)
        CHECK(at(base + i * PAGE) == &spans[2]);
    CHECK_INT(usm__pages_set(&area, base, n, NULL), USM_OK);
    for (size_t i = 0; i < n; i++)
        CHECK(at(base + i * PAGE) == NULL);
}

static void the_halves_have_their_ends(void)
{
    const uintptr_t bases[] = {0, ((uintptr_t)1 << 47) - PAGE, HIGH, HIGH + 7 * GIB,
                               UINTPTR_MAX - PAGE + 1};

    for (int i = 0; i < 5; i++) {
        CHECK_INT(usm__pages_set(&area, bases[i], 1, &spans[0]), USM_OK);
        for (int k = 0; k < 5; k++)
            CHECK(at(bases[k]) == (k == i ? &spans[0] : NULL));
        CHECK_INT(usm__pages_set(&area, bases[i], 1, NULL), USM_OK);
    }
}

static void what_is_in_no_half_is_refused(void)
{
    CHECK_INT(usm__pages_set(&area, ((uintptr_t)1 << 47), 1, &spans[0]), USM_E_NO_MEMORY);
    CHECK_INT(usm__pages_set(&area, ((uintptr_t)1 << 47), 1, NULL), USM_OK);
}

/* Nothing changes when one of the leaves cannot be had, and the same call works afterwards. */
static void without_memory_for_a_leaf_no_page_is_set(void)
{
    uintptr_t base = 21 * GIB - PAGE;

    for (uint64_t fault = 1; fault <= 2; fault++) {
        CHECK(usm__fault_arm("os.mmap", fault, true, USM_OK));
        CHECK_INT(usm__pages_set(&area, base, 2, &spans[0]), USM_E_NO_MEMORY);
        usm__fault_disarm_all();
        CHECK_IN("page map", usm_last_error());
        CHECK(at(base) == NULL && at(base + PAGE) == NULL);
    }
    CHECK(usm__fault_arm("os.mmap", 1, true, USM_OK));
    CHECK_INT(usm__pages_set(&area, 31 * GIB, 1, NULL), USM_OK); /* needs no leaf */
    usm__fault_disarm_all();
    CHECK_INT(usm__pages_set(&area, base, 2, &spans[0]), USM_OK);
    CHECK(at(base) == &spans[0] && at(base + PAGE) == &spans[0]);
    CHECK_INT(usm__pages_set(&area, base, 2, NULL), USM_OK);
}

static pthread_barrier_t start;

/* An entry takes 8 bytes: those of 2 MiB are a page of the leaf. */
static void what_is_discarded_can_be_set_again_and_neighbours_stay(void)
{
    uintptr_t base = 20 * GIB - 4 * MIB; /* to the end of one leaf, and a part of the next */
    size_t    n    = 7 * MIB / PAGE;

    CHECK_INT(usm__pages_set(&area, base - PAGE, 1, &spans[0]), USM_OK);
    CHECK_INT(usm__pages_set(&area, base, n, &spans[1]), USM_OK);
    CHECK_INT(usm__pages_set(&area, base + n * PAGE, 1, &spans[2]), USM_OK);
    CHECK_INT(usm__pages_set(&area, base, n, NULL), USM_OK);
    usm__pages_discard(base, n * PAGE);
    usm__pages_discard(700 * GIB, 2 * GIB); /* nothing was ever there */
    for (size_t i = 0; i < n; i++)
        CHECK(at(base + i * PAGE) == NULL);
    CHECK(at(base - PAGE) == &spans[0] && at(base + n * PAGE) == &spans[2]);
    CHECK_INT(usm__pages_set(&area, base, n, &spans[3]), USM_OK);
    CHECK(at(base) == &spans[3] && at(base + (n - 1) * PAGE) == &spans[3]);
}

/* Racer i sets page i of leaves that nobody has used. */
static void *race(void *arg)
{
    uintptr_t self = (uintptr_t)((usm_span *)arg - spans);

    for (uintptr_t i = 0; i < PER_RACER; i++) {
        uintptr_t base = (100 + i) * GIB + self * PAGE;

        (void)pthread_barrier_wait(&start);
        CHECK_INT(usm__pages_set(&area, base, 1, arg), USM_OK);
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

static const plain_case cases[] = {
    CASE(pages_of_a_span_lead_to_it_and_no_others),
    CASE(foreign_addresses_lead_to_nothing),
    CASE(a_span_may_lie_in_several_leaves),
    CASE(the_halves_have_their_ends),
    CASE(what_is_in_no_half_is_refused),
    CASE(without_memory_for_a_leaf_no_page_is_set),
    CASE(what_is_discarded_can_be_set_again_and_neighbours_stay),
    CASE(racing_threads_share_one_leaf),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
