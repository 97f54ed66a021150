/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The order of accesses to a buffer (buffer/order.h), random against a model: that every access
 * waits, directly or through others, for exactly those before it that it conflicts with; and the
 * list of failures against a table of bytes. */
#include "buffer/order.h"

#include <plain.h>

#define BYTES  48
#define STEPS  400
#define ROUNDS 300

static uint64_t seed;

static unsigned pick(unsigned n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(seed >> 33) % n;
}

/* ---- one at a time -------------------------------------------------------------- */

static usm__track_order_entry entry(size_t begin, size_t end, usm_access_mode mode)
{
    usm__track_order_entry e = {.begin = begin, .end = end, .mode = mode};

    usm_list_init(&e.link);
    return e;
}

static void readers_do_not_wait_for_each_other(void)
{
    usm__track_order       o;
    usm__track_order_entry a = entry(0, 10, USM_READ), b = entry(5, 15, USM_READ);

    usm__track_order_init(&o);
    usm__track_order_add(&o, &a);
    CHECK(usm__track_order_next(&o, &b, true, NULL) == NULL);
}

static void disjoint_writers_do_not_wait_for_each_other(void)
{
    usm__track_order       o;
    usm__track_order_entry a = entry(0, 10, USM_WRITE), b = entry(10, 20, USM_WRITE);

    usm__track_order_init(&o);
    usm__track_order_add(&o, &a);
    CHECK(usm__track_order_next(&o, &b, true, NULL) == NULL);
}

static void a_reader_waits_for_the_writer_and_a_writer_for_both(void)
{
    usm__track_order       o;
    usm__track_order_entry w = entry(0, 10, USM_WRITE), r = entry(5, 8, USM_READ),
                           x = entry(7, 9, USM_WRITE_NO_INIT);

    usm__track_order_init(&o);
    usm__track_order_add(&o, &w);
    CHECK(usm__track_order_next(&o, &r, false, NULL) == &w);
    usm__track_order_add(&o, &r);
    CHECK(usm__track_order_next(&o, &x, false, NULL) == &w);
    CHECK(usm__track_order_next(&o, &x, false, &w) == &r);
    CHECK(usm__track_order_next(&o, &x, false, &r) == NULL);
}

static void a_chain_of_writers_has_one_dependency_each(void)
{
    usm__track_order       o;
    usm__track_order_entry w[50], host = entry(0, 10, USM_READ);
    size_t                 seen = 0;

    usm__track_order_init(&o);
    host.is_host = true;
    for (int i = 0; i < 50; i++) {
        w[i] = entry(0, 10, USM_READ_WRITE);
        CHECK(usm__track_order_next(&o, &w[i], false, NULL) == (i ? &w[i - 1] : NULL));
        if (i > 0)
            CHECK(usm__track_order_next(&o, &w[i], false, &w[i - 1]) == NULL);
        usm__track_order_add(&o, &w[i]);
    }
    for (usm__track_order_entry *e = usm__track_order_next(&o, &host, true, NULL); e;
         e                         = usm__track_order_next(&o, &host, true, e))
        seen++;
    CHECK_INT(seen, 50); /* the host looks at all: one that failed may have left others running */
    CHECK_INT(o.ncommands, 50);
}

static void readers_of_one_lane_have_one_dependency(void)
{
    usm__track_order       o;
    usm__track_order_entry a = entry(2, 8, USM_READ), b = entry(0, 10, USM_READ),
                           c = entry(0, 4, USM_READ), w = entry(0, 10, USM_WRITE);

    usm__track_order_init(&o);
    a.lane = b.lane = 7;
    c.lane          = 8;
    usm__track_order_add(&o, &a);
    usm__track_order_add(&o, &b);
    usm__track_order_add(&o, &c);
    CHECK(usm__track_order_next(&o, &w, false, NULL) == &b);
    CHECK(usm__track_order_next(&o, &w, false, &b) == &c);
    CHECK(usm__track_order_next(&o, &w, false, &c) == NULL);
}

static void what_a_failed_writer_covered_is_waited_for_again(void)
{
    usm__track_order       o;
    usm__track_order_entry r = entry(0, 10, USM_READ), w = entry(0, 10, USM_WRITE),
                           x = entry(0, 10, USM_WRITE);

    usm__track_order_init(&o);
    usm__track_order_add(&o, &r);
    usm__track_order_add(&o, &w);
    CHECK(usm__track_order_next(&o, &x, false, NULL) == &w);
    usm__track_order_remove(&o, &w, false);
    CHECK(usm__track_order_next(&o, &x, false, NULL) == &r);
    usm__track_order_remove(&o, &r, true);
    CHECK(usm__track_order_next(&o, &x, true, NULL) == NULL);
    CHECK_INT(o.ncommands, 0);
}

static void accesses_of_the_host_wait_for_commands_only(void)
{
    usm__track_order       o;
    usm__track_order_entry h = entry(0, 10, USM_WRITE), i = entry(0, 10, USM_WRITE),
                           w = entry(0, 10, USM_WRITE);

    usm__track_order_init(&o);
    h.is_host = i.is_host = true;
    usm__track_order_add(&o, &h);
    CHECK(usm__track_order_next(&o, &i, true, NULL) == NULL);
    usm__track_order_add(&o, &w); /* covers no access of the host: it has no event */
    CHECK(usm__track_order_next(&o, &i, true, NULL) == &w);
    CHECK(usm__track_order_next(&o,
                                &(usm__track_order_entry){.begin = 0, .end = 1, .mode = USM_READ},
                                false, NULL) == &h);
    CHECK_INT(o.ncommands, 1);
}

/* ---- random, against a model -------------------------------------------------------- */

typedef struct model_access {
    usm__track_order_entry e;
    bool                   is_out; /* entered and not ended                                    */
    bool after[STEPS];             /* waits for it, directly or through others                 */
} model_access;

static model_access all[STEPS];

static bool conflict(const model_access *a, const model_access *b)
{
    return a->e.begin < b->e.end && b->e.begin < a->e.end &&
           ((a->e.mode | b->e.mode) & USM_WRITE) && !(a->e.is_host && b->e.is_host);
}

static void set_random(model_access *a)
{
    static const usm_access_mode modes[] = {USM_READ, USM_READ, USM_WRITE, USM_READ_WRITE,
                                            USM_WRITE_NO_INIT};
    size_t                       begin   = pick(BYTES);

    memset(a, 0, sizeof *a);
    a->e         = entry(begin, begin + 1 + pick(pick(3) ? 6 : BYTES), modes[pick(5)]);
    a->e.is_host = pick(5) == 0;
    a->e.lane    = a->e.is_host ? 0 : pick(3);
}

static void note_dependency(model_access *a, size_t on)
{
    a->after[on] = true;
    for (size_t k = 0; k < STEPS; k++)
        a->after[k] |= all[on].after[k];
}

/* Commands of one in-order lane end in order, whatever their bytes. */
static void note_lane(model_access *a, size_t n)
{
    for (size_t i = 0; a->e.lane && i < n; i++)
        if (all[i].is_out && all[i].e.lane == a->e.lane)
            note_dependency(a, i);
}

static void enter(usm__track_order *o, size_t n)
{
    model_access *a = &all[n];

    set_random(a);
    note_lane(a, n);
    for (usm__track_order_entry *e = usm__track_order_next(o, &a->e, a->e.is_host, NULL); e;
         e                         = usm__track_order_next(o, &a->e, a->e.is_host, e)) {
        model_access *on = usm_container_of(e, model_access, e);

        CHECK(on->is_out);
        CHECK(conflict(on, a)); /* nothing is waited for in vain */
        note_dependency(a, (size_t)(on - all));
    }
    for (size_t i = 0; i < n; i++)
        if (all[i].is_out && conflict(&all[i], a))
            CHECK(a->after[i]); /* nothing is forgotten */
    usm__track_order_add(o, &a->e);
    a->is_out = true;
}

static bool may_end(size_t i, size_t n)
{
    for (size_t k = 0; k < n; k++)
        if (all[k].is_out && all[i].after[k])
            return false;
    return true;
}

/* One that waits for nothing ends well; now and then one fails before what it waits for has ended,
 * and what waited for it fails with it at once, as drivers do it. */
static void end_some(usm__track_order *o, size_t n)
{
    size_t i = pick((unsigned)n);
    bool   fails;

    if (!all[i].is_out)
        return;
    fails = !all[i].e.is_host && pick(8) == 0;
    if (!fails && !may_end(i, n))
        return;
    for (size_t k = n; fails && k-- > i + 1;)
        if (all[k].is_out && !all[k].e.is_host && all[k].after[i]) {
            usm__track_order_remove(o, &all[k].e, false);
            all[k].is_out = false;
        }
    usm__track_order_remove(o, &all[i].e, !fails);
    all[i].is_out = false;
}

static void random_orders_equal_the_model(void)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        usm__track_order o;
        size_t           n = 0;

        seed = round + 1;
        usm__track_order_init(&o);
        while (n < STEPS) {
            if (pick(2))
                enter(&o, n++);
            else if (n > 0)
                end_some(&o, n);
        }
        for (size_t i = 0; i < n; i++)
            if (all[i].is_out)
                usm__track_order_remove(&o, &all[i].e, true);
        CHECK(usm_list_is_empty(&o.active) && usm_list_is_empty(&o.covered));
        CHECK_INT(o.ncommands, 0);
    }
}

/* ---- failures ------------------------------------------------------------------------- */

static void a_failure_is_told_once_and_forgotten_when_overwritten(void)
{
    usm__failures f = {0};

    usm__failures_add(&f, 10, 20, USM_E_IO);
    CHECK_INT(usm__failures_take(&f, 0, 10, USM_READ), USM_OK);
    CHECK_INT(usm__failures_take(&f, 12, 14, USM_WRITE_NO_INIT), USM_OK);
    CHECK_INT(usm__failures_take(&f, 12, 14, USM_READ), USM_OK);
    CHECK_INT(usm__failures_take(&f, 14, 40, USM_WRITE), USM_E_IO);
    CHECK_INT(usm__failures_take(&f, 14, 40, USM_READ), USM_OK);
    CHECK_INT(usm__failures_take(&f, 10, 12, USM_READ), USM_E_IO);
    CHECK_INT(f.n, 0);
}

/* Never fewer bytes than in the table are said to have failed; more only when the list is full. */
static void random_failures_are_never_forgotten(void)
{
    for (unsigned round = 0; round < 2000; round++) {
        usm__failures f             = {0};
        bool          failed[BYTES] = {false};

        seed = round + 1;
        for (int step = 0; step < 60; step++) {
            size_t          begin = pick(BYTES), end = begin + 1 + pick((unsigned)(BYTES - begin));
            usm_access_mode mode = pick(2) ? USM_READ : USM_WRITE_NO_INIT;
            bool            any  = false;

            if (pick(3) == 0) {
                usm__failures_add(&f, begin, end, USM_E_IO);
                for (size_t i = begin; i < end; i++)
                    failed[i] = true;
                continue;
            }
            for (size_t i = begin; i < end; i++)
                any |= failed[i];
            if (mode == USM_READ) {
                bool notified = usm__failures_take(&f, begin, end, mode) != USM_OK;

                CHECK(notified || !any);
                if (notified) /* which ranges went with it is the list's matter */
                    memset(failed, 0, sizeof failed), f.n = 0;
            } else {
                CHECK_INT(usm__failures_take(&f, begin, end, mode), USM_OK);
                for (size_t i = begin; i < end; i++)
                    failed[i] = false;
            }
            CHECK(f.n <= USM__FAILURES);
        }
    }
}

static const plain_case cases[] = {
    CASE(readers_do_not_wait_for_each_other),
    CASE(disjoint_writers_do_not_wait_for_each_other),
    CASE(a_reader_waits_for_the_writer_and_a_writer_for_both),
    CASE(a_chain_of_writers_has_one_dependency_each),
    CASE(readers_of_one_lane_have_one_dependency),
    CASE(what_a_failed_writer_covered_is_waited_for_again),
    CASE(accesses_of_the_host_wait_for_commands_only),
    CASE(random_orders_equal_the_model),
    CASE(a_failure_is_told_once_and_forgotten_when_overwritten),
    CASE(random_failures_are_never_forgotten),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
