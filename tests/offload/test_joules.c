/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How the energy between two readings is divided, without clocks, files and devices. */
#include "plain.h"

#include "offload/joules.h"

#define MS 1000000ull

static usm__joules j;
static size_t      node[2];

/* Two packages; the second counts up to 1000 uJ. */
static usm__powercap counted(uint64_t ms, uint64_t first_uj, uint64_t second_uj)
{
    return (usm__powercap){
        .n = 2, .uj = {first_uj, second_uj}, .most_uj = {UINT64_MAX, 1000}, .at_ns = ms * MS};
}

static void read_at(uint64_t ms, uint64_t first_uj, uint64_t second_uj)
{
    usm__powercap c = counted(ms, first_uj, second_uj);

    usm__joules_read(&j, &c);
}

/* Two processors, and a device whose watts are known; time begins at 100 ms. */
static void set_up(void)
{
    usm__powercap c = counted(100, 5000, 900);

    usm__joules_fini(&j);
    CHECK_INT(usm__joules_init(&j, 3), USM_OK);
    j.members[0].source = j.members[1].source = USM__JOULES_COUNTED;
    j.members[2].source                       = USM__JOULES_STATED;
    j.members[2].watts                        = 30;
    CHECK_INT(usm__joules_add_accounts(&j, 1, &node[0]), USM_OK);
    CHECK_INT(usm__joules_add_accounts(&j, 1, &node[1]), USM_OK);
    usm__joules_start(&j, &c);
}

static void begin(uint32_t member, uint64_t ms)
{
    usm__joules_begin(&j, member, ms * MS);
}

static void end(uint32_t member, int of, uint64_t ms)
{
    usm__joules_end(&j, member, node[of], ms * MS);
}

static void check_uj(double joules, double uj)
{
    CHECK(joules * 1e6 > uj - 0.001 && joules * 1e6 < uj + 0.001);
}

static void the_busy_share_by_their_time_and_the_rest_is_idle(void)
{
    set_up();
    begin(0, 110), begin(1, 130);
    end(1, 1, 150), end(0, 0, 170);
    read_at(200, 5900, 1000);                  /* 1000 uJ, in 60 of 100 ms */
    check_uj(j.members[0].joules, 600 * 0.75); /* 60 of 80 ms */
    check_uj(j.members[1].joules, 600 * 0.25);
    check_uj(j.accounts[node[0]].joules, 450);
    check_uj(j.accounts[node[1]].joules, 150);
    check_uj(j.idle, 400);
    read_at(300, 6000, 1000); /* nobody was busy */
    check_uj(j.members[0].joules, 450);
    check_uj(j.idle, 500);
    CHECK(!j.is_partial);
}

/* Its node is known at its end only, when much has been divided already. */
static void a_launch_lasts_for_many_readings(void)
{
    set_up();
    begin(0, 100);
    for (uint64_t i = 1; i <= 5; i++) {
        begin(1, 100 * i), end(1, 1, 100 * i + 100);
        read_at(100 * i + 100, 5000 + 200 * i, 900);
    }
    check_uj(j.members[0].joules, 500);
    check_uj(j.accounts[node[0]].joules, 0);
    end(0, 0, 600);
    check_uj(j.accounts[node[0]].joules, 500);
    check_uj(j.accounts[node[1]].joules, 500);
    check_uj(j.idle, 0);
}

static void launches_that_overlap_on_a_member_count_once(void)
{
    set_up();
    begin(0, 100), begin(0, 110);
    end(0, 0, 140);
    end(0, 1, 200);
    read_at(200, 6000, 900);
    check_uj(j.members[0].joules, 1000);
    check_uj(j.accounts[node[0]].joules, 400);
    check_uj(j.accounts[node[1]].joules, 600);
}

static void a_counter_wraps(void)
{
    set_up();
    begin(0, 100), end(0, 0, 200);
    read_at(200, 5000, 50); /* 900 to 1000, and 50 */
    check_uj(j.members[0].joules, 150);
    check_uj(j.idle, 0);
}

static void nothing_is_said_of_a_time_without_counters(void)
{
    usm__powercap none = {.at_ns = 200 * MS};

    set_up();
    begin(0, 100);
    usm__joules_read(&j, &none);
    CHECK(j.is_partial);
    end(0, 0, 250);
    read_at(300, 9000, 900); /* how much of it was drawn before 200 ms is not known */
    check_uj(j.members[0].joules, 0);
    begin(0, 300), end(0, 0, 400);
    read_at(400, 9700, 900); /* they are back */
    check_uj(j.members[0].joules, 700);
    check_uj(j.accounts[node[0]].joules, 700);
    check_uj(j.idle, 0);
}

/* One package has gone: the sum of the others would say too little. */
static void other_packages_are_not_compared(void)
{
    usm__powercap one = counted(200, 6000, 0);

    one.n = 1;
    set_up();
    begin(0, 100), end(0, 0, 200);
    usm__joules_read(&j, &one);
    CHECK(j.is_partial);
    check_uj(j.members[0].joules, 0);
}

static void watts_that_are_known_need_no_counter(void)
{
    set_up();
    begin(2, 100), end(2, 1, 300);
    check_uj(j.members[2].joules, 30 * 0.2 * 1e6);
    check_uj(j.accounts[node[1]].joules, 30 * 0.2 * 1e6);
    read_at(300, 5500, 900); /* the processors' energy is not the device's */
    check_uj(j.members[2].joules, 30 * 0.2 * 1e6);
    check_uj(j.idle, 500);
}

static void a_start_drops_what_was_before(void)
{
    usm__powercap later = counted(500, 90000, 900);

    set_up();
    usm__joules_start(&j, &later);
    begin(0, 500), end(0, 0, 600);
    read_at(600, 90100, 900);
    check_uj(j.members[0].joules, 100);
    check_uj(j.idle, 0);
}

static const plain_case cases[] = {CASE(the_busy_share_by_their_time_and_the_rest_is_idle),
                                   CASE(a_launch_lasts_for_many_readings),
                                   CASE(launches_that_overlap_on_a_member_count_once),
                                   CASE(a_counter_wraps),
                                   CASE(nothing_is_said_of_a_time_without_counters),
                                   CASE(other_packages_are_not_compared),
                                   CASE(watts_that_are_known_need_no_counter),
                                   CASE(a_start_drops_what_was_before),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    int rc = plain_main(argc, argv, cases);

    usm__joules_fini(&j);
    return rc;
}
