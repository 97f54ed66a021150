/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What src/spill/placement.h promises: places get keys by their weight, and when one comes or goes
 * no key moves that need not. */
#include "plain.h"

#include "spill/placement.h"

#define PLACES 12
#define KEYS   100000u

static usm__candidate list[PLACES];

/* Four domains of three places; the weights are 1 to 12. */
static void make_places(void)
{
    char name[16];

    for (unsigned i = 0; i < PLACES; i++) {
        (void)snprintf(name, sizeof name, "node%u", i % 4);
        list[i].domain = usm__placement_domain(name);
        list[i].weight = (uint64_t)(i + 1) << 30;
    }
}

static size_t best_of(uint64_t key, size_t n, const uint64_t *avoid, size_t navoid)
{
    return usm__placement_best(
        &(usm__placement){.list = list, .n = n, .key = key, .avoid = avoid, .navoid = navoid});
}

static double off_by(uint64_t seen, double expected)
{
    double d = (double)seen / expected - 1;

    return d < 0 ? -d : d;
}

static void keys_are_shared_by_weight(void)
{
    uint64_t seen[PLACES] = {0}, domain[4] = {0};

    make_places();
    for (uint64_t key = 0; key < KEYS; key++) {
        size_t i = best_of(key, PLACES, NULL, 0);

        CHECK(i < PLACES);
        seen[i]++;
        domain[i % 4]++;
    }
    for (unsigned i = 0; i < PLACES; i++) /* 78 = 1 + ... + 12; the least expects 1282 */
        CHECK(off_by(seen[i], KEYS * (i + 1) / 78.0) < 0.12);
    for (unsigned d = 0; d < 4; d++)
        CHECK(off_by(domain[d], KEYS * (3.0 * d + 15) / 78.0) < 0.03);
}

static void the_second_copy_is_in_another_domain_and_shared_as_well(void)
{
    uint64_t seen[PLACES] = {0};

    make_places();
    for (unsigned i = 0; i < PLACES; i++)
        list[i].weight = 1;
    for (uint64_t key = 0; key < KEYS; key++) {
        size_t first  = best_of(key, PLACES, NULL, 0);
        size_t second = best_of(key, PLACES, &list[first].domain, 1);

        CHECK(second < PLACES);
        CHECK(list[first].domain != list[second].domain);
        seen[first]++;
        seen[second]++;
    }
    for (unsigned i = 0; i < PLACES; i++)
        CHECK(off_by(seen[i], 2.0 * KEYS / PLACES) < 0.05);
}

static void a_place_that_comes_takes_its_share_and_nothing_else_moves(void)
{
    uint64_t moved = 0;

    make_places();
    for (uint64_t key = 0; key < KEYS; key++) {
        size_t before = best_of(key, PLACES - 1, NULL, 0);
        size_t after  = best_of(key, PLACES, NULL, 0);

        CHECK(after == before || after == PLACES - 1);
        moved += after != before;
    }
    CHECK(off_by(moved, KEYS * 12 / 78.0) < 0.05);
}

static void a_place_that_goes_moves_only_its_own(void)
{
    uint64_t       moved = 0;
    usm__candidate gone;

    make_places();
    gone = list[5];
    for (uint64_t key = 0; key < KEYS; key++) {
        size_t before, after;

        list[5]        = gone;
        before         = best_of(key, PLACES, NULL, 0);
        list[5].weight = 0;
        after          = best_of(key, PLACES, NULL, 0);
        CHECK(after != 5);
        CHECK(before == 5 || after == before);
        moved += after != before;
    }
    CHECK(off_by(moved, KEYS * 6 / 78.0) < 0.05);
}

static void a_domain_that_goes_moves_few_second_copies(void)
{
    make_places();
    for (uint64_t key = 0; key < KEYS / 10; key++) {
        size_t   first  = best_of(key, PLACES, NULL, 0);
        size_t   second = best_of(key, PLACES, &list[first].domain, 1);
        uint64_t avoid[2];
        size_t   left;

        /* Without the first's domain the second is the first: its copy stays where it is. */
        CHECK_INT(best_of(key, PLACES, &list[first].domain, 1), second);
        avoid[0] = list[first].domain;
        avoid[1] = list[second].domain;
        left     = best_of(key, PLACES, avoid, 2);
        CHECK(left < PLACES && list[left].domain != avoid[0] && list[left].domain != avoid[1]);
    }
}

static bool is_odd(void *arg, size_t index)
{
    ++*(unsigned *)arg;
    return index % 2 == 1;
}

static void what_takes_nothing_is_not_chosen(void)
{
    unsigned calls = 0;
    uint64_t all[4];

    make_places();
    for (uint64_t key = 0; key < 1000; key++) {
        size_t i = usm__placement_best(&(usm__placement){
            .list = list, .n = PLACES, .key = key, .may_take = is_odd, .arg = &calls});

        CHECK(i % 2 == 1);
    }
    CHECK(calls > 0);
    for (unsigned d = 0; d < 4; d++)
        all[d] = list[d].domain;
    CHECK(best_of(1, PLACES, all, 4) == USM__PLACEMENT_NONE);
    CHECK(best_of(1, 0, NULL, 0) == USM__PLACEMENT_NONE);
    memset(list, 0, sizeof list);
    CHECK(best_of(1, PLACES, NULL, 0) == USM__PLACEMENT_NONE);
}

static const plain_case cases[] = {
    CASE(keys_are_shared_by_weight),
    CASE(the_second_copy_is_in_another_domain_and_shared_as_well),
    CASE(a_place_that_comes_takes_its_share_and_nothing_else_moves),
    CASE(a_place_that_goes_moves_only_its_own),
    CASE(a_domain_that_goes_moves_few_second_copies),
    CASE(what_takes_nothing_is_not_chosen),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
