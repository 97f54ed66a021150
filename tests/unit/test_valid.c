/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sets of bytes as intervals (src/buffer/valid.h) against one flag a byte: random additions and
 * removals, and every question answered as the flags answer it. */
#include "plain.h"

#include "base/fault.h"
#include "buffer/valid.h"

#define SIZE 200

static usm__valid valid;
static bool       model[SIZE];
static uint64_t   random_state;

static size_t any(size_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (size_t)(random_state % below);
}

static void set(size_t start, size_t end, bool value)
{
    CHECK(usm__valid_reserve(&valid, 1));
    if (value)
        usm__valid_add(&valid, start, end);
    else
        usm__valid_remove(&valid, start, end);
    for (size_t i = start; i < end; i++)
        model[i] = value;
}

static void check_form(void)
{
    size_t sum = 0, counted = 0;

    for (size_t i = 0; i < valid.n; i++) {
        CHECK(valid.at[i].start < valid.at[i].end);
        CHECK(i == 0 || valid.at[i - 1].end < valid.at[i].start);
        sum += valid.at[i].end - valid.at[i].start;
    }
    for (size_t i = 0; i < SIZE; i++)
        counted += model[i];
    CHECK_INT(sum, counted);
    CHECK_INT(usm__valid_size(&valid), counted);
}

/* The first run of `value` from `from` on, by the flags. */
static bool expected_run(size_t from, size_t to, bool value, usm__interval *run)
{
    while (from < to && model[from] != value)
        from++;
    run->start = from;
    while (from < to && model[from] == value)
        from++;
    run->end = from;
    return run->start < run->end;
}

static void check_questions(size_t from, size_t to)
{
    usm__interval want, got = {0, 0};
    bool          there = expected_run(from, to, true, &want);

    CHECK_INT(usm__valid_next(&valid, from, to, &got), there);
    CHECK(!there || (got.start == want.start && got.end == want.end));
    CHECK_INT(usm__valid_has_any(&valid, from, to), there);
    there = expected_run(from, to, false, &want);
    CHECK_INT(usm__valid_next_gap(&valid, from, to, &got), there);
    CHECK(!there || (got.start == want.start && got.end == want.end));
    CHECK_INT(usm__valid_has_all(&valid, from, to), !there);
}

static void begin(uint64_t seed)
{
    random_state = 0x9e3779b97f4a7c15ull * (seed + 1);
    memset(model, 0, sizeof model);
    usm__valid_init(&valid);
}

static void random_operations_equal_a_flag_for_each_byte(void)
{
    for (uint64_t seed = 0; seed < (PLAIN_SANITIZED ? 20 : 200); seed++) {
        begin(seed);
        for (int n = 0; n < 200; n++) {
            size_t start = any(SIZE), most = any(8) ? 12 : SIZE;
            size_t end = start + 1 + any(most);

            set(start, end < SIZE ? end : SIZE, any(2) == 0);
            check_form();
            start = any(SIZE);
            check_questions(start, start + any(SIZE - start + 1)); /* of nothing as well */
        }
        usm__valid_fini(&valid);
    }
}

static void neighbours_become_one_interval(void)
{
    begin(0);
    set(10, 20, true);
    set(30, 40, true);
    CHECK_INT(valid.n, 2);
    set(20, 30, true);
    CHECK_INT(valid.n, 1);
    set(15, 16, false);
    CHECK_INT(valid.n, 2);
    check_form();
    usm__valid_fini(&valid);
}

static void a_change_with_room_needs_no_memory(void)
{
    begin(0);
    CHECK(usm__valid_reserve(&valid, 64));
    CHECK(usm__fault_arm("heap.alloc", 1, true, USM_OK));
    for (size_t i = 0; i < 64; i++)
        usm__valid_add(&valid, 3 * i, 3 * i + 1);
    CHECK_INT(valid.n, 64);
    CHECK_INT(usm__fault_fired(), 0);
    while (valid.n < valid.cap)
        usm__valid_add(&valid, 3 * valid.n, 3 * valid.n + 1);
    CHECK(!usm__valid_reserve(&valid, 1));
    CHECK(usm__valid_has_all(&valid, 0, 1) && !usm__valid_has_any(&valid, 1, 3));
    usm__fault_disarm_all();
    CHECK(usm__valid_reserve(&valid, 1));
    usm__valid_fini(&valid);
}

static const plain_case cases[] = {
    CASE(random_operations_equal_a_flag_for_each_byte),
    CASE(neighbours_become_one_interval),
    CASE(a_change_with_room_needs_no_memory),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
