/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Device residency (src/buffer/locations.h): bytes are where they were written last, copies are as
 * few as can be, extents leave a full device and come back, and nothing is lost whatever fails.
 * Over each runtime; the host backend as if it had memory of its own. */
#include "places_fixture.h"

#include "heap/area.h"

#include <pthread.h>

/* How many copies the backend was asked for since _start(). */
static void count_copies(void)
{
    usm__fault_disarm_all();
    CHECK(usm__fault_arm("copy", 0, false, USM_OK));
}

static int copies(void)
{
    return (int)usm__fault_counted();
}

/* --- fewest copies ---------------------------------------------------------------------------- */

static void what_one_side_writes_the_other_reads(void)
{
    data d;

    begin(NULL);
    d = make(300000, "ab");
    CHECK_INT(write_host(&d, 0, d.size, 1), USM_OK);
    CHECK_INT(check_device(&d, q, 0, d.size), USM_OK);
    CHECK_INT(write_device(&d, q, 1000, 5000, 2), USM_OK);
    CHECK_INT(check_host(&d, 0, d.size), USM_OK);
    CHECK_INT(write_host(&d, 4000, 3000, 3), USM_OK);
    CHECK_INT(check_device(&d, q, 0, d.size), USM_OK);
    CHECK_INT(write_half(&d, q, 3500, 2000, 4), USM_OK);
    CHECK_INT(check_device(&d, q, 0, d.size), USM_OK);
    CHECK_INT(check_host(&d, 0, d.size), USM_OK);
    unmake(&d);
    end();
}

/* The copy that check_device() makes to look is one more. */
static void what_is_there_is_not_copied(void)
{
    data d;

    begin(NULL);
    d = make(64 * KIB, "few");
    CHECK_INT(write_host(&d, 0, d.size, 1), USM_OK);
    CHECK_INT(check_device(&d, q, 0, 1), USM_OK); /* the context's first copies */
    count_copies();
    CHECK_INT(check_device(&d, q, 0, d.size), USM_OK);
    CHECK_INT(copies(), 1 + 1);
    CHECK_INT(check_device(&d, q, 0, d.size), USM_OK);
    CHECK_INT(check_device(&d, q, 100, 200), USM_OK);
    CHECK_INT(copies(), 2 + 2);
    CHECK_INT(check_host(&d, 0, d.size), USM_OK); /* both have it */
    CHECK_INT(copies(), 4);
    CHECK_INT(write_host(&d, 30 * KIB, KIB, 2), USM_OK);
    CHECK_INT(check_device(&d, q, 0, d.size), USM_OK); /* one KiB */
    CHECK_INT(copies(), 4 + 2);
    CHECK_INT(write_device(&d, q, 0, d.size, 3), USM_OK); /* brings nothing */
    CHECK_INT(copies(), 6);
    CHECK_INT(check_host(&d, 10 * KIB, KIB), USM_OK);
    CHECK_INT(copies(), 7);
    CHECK_INT(check_host(&d, 0, d.size), USM_OK); /* before it and behind it */
    CHECK_INT(copies(), 9);
    unmake(&d);
    end();
}

static void what_nobody_wrote_is_not_copied(void)
{
    data      d;
    on_device where;

    begin(NULL);
    d = make(64 * KIB, "empty");
    CHECK_INT(write_host(&d, 8 * KIB, KIB, 1), USM_OK);
    CHECK_INT(check_device(&d, q, 8 * KIB, KIB), USM_OK);
    count_copies();
    CHECK_INT(to_device(&d, q, 0, d.size, USM_READ_WRITE, &where), USM_OK);
    CHECK_INT(copies(), 1);
    give_up(&where);
    usm__locations_discard(d.places, 0, d.size);
    CHECK_INT(to_device(&d, q, 0, d.size, USM_READ, &where), USM_OK);
    CHECK_INT(copies(), 1);
    give_up(&where);
    CHECK(usm__locations_is_on_host(d.places, 0, d.size, USM_READ));
    CHECK(!usm__locations_is_on_host(d.places, 0, d.size, USM_WRITE));
    unmake(&d);
    end();
}

/* --- runs that overlap
 * ---------------------------------------------------------------------------- */

static void tiles_with_halos_see_each_other(void)
{
    data d;

    begin(NULL);
    d = make(100 * KIB, "tiles");
    CHECK_INT(write_host(&d, 0, d.size, 1), USM_OK);
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < 10; i++) {
            size_t start = i * 10 * KIB, halo = KIB;
            size_t from = i ? start - halo : start, to = i < 9 ? start + 10 * KIB + halo : d.size;

            CHECK_INT(check_device(&d, q, from, to - from), USM_OK);
            CHECK_INT(write_device(&d, q, start, 10 * KIB, 10 * round + (int)i), USM_OK);
        }
    CHECK_INT(check_host(&d, 0, d.size), USM_OK);
    unmake(&d);
    end();
}

static void a_run_over_others_replaces_them(void)
{
    data d;

    begin(NULL);
    d = make(64 * KIB, "whole");
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(write_device(&d, q, i * 16 * KIB, 16 * KIB, (int)i), USM_OK);
    CHECK_INT(finish(&d), USM_OK);
    CHECK_INT(usm__locations_device_bytes(), 64 * KIB);
    CHECK_INT(check_device(&d, q, 0, 1), USM_OK);
    count_copies();
    CHECK_INT(check_device(&d, q, 0, d.size), USM_OK);
    CHECK_INT(copies(), 4 + 1);
    /* The copies have ended, for what came after them has; they may not yet be counted as ended. */
    for (int i = 0; i < 5000 && usm__locations_device_bytes() != 64 * KIB; i++)
        usleep(1000);
    CHECK_INT(usm__locations_device_bytes(), 64 * KIB);
    CHECK_INT(check_host(&d, 0, d.size), USM_OK);
    unmake(&d);
    end();
}

/* --- two contexts
 * --------------------------------------------------------------------------------- */

static void data_go_from_context_to_context(void)
{
    usm_context *ctx2 = NULL;
    usm_queue   *q2   = NULL;
    data         d;

    begin(NULL);
    CHECK_INT(usm_context_create(NULL, &ctx2), USM_OK);
    CHECK_INT(usm_queue_create(ctx2, NULL, NULL, &q2), USM_OK);
    d = make(64 * KIB, "far");
    CHECK_INT(write_device(&d, q, 0, d.size, 1), USM_OK);
    CHECK_INT(write_device(&d, q2, 10 * KIB, 20 * KIB, 2), USM_OK);
    CHECK_INT(write_half(&d, q2, 20 * KIB, 30 * KIB, 3), USM_OK);
    CHECK_INT(check_device(&d, q, 0, d.size), USM_OK);
    CHECK_INT(check_device(&d, q2, 0, d.size), USM_OK);
    CHECK_INT(write_host(&d, 5 * KIB, 10 * KIB, 4), USM_OK);
    CHECK_INT(check_device(&d, q2, 0, d.size), USM_OK);
    CHECK_INT(check_device(&d, q, 0, d.size), USM_OK);
    CHECK_INT(finish(&d), USM_OK);
    usm_queue_destroy(q2);
    usm_context_destroy(ctx2); /* what is valid there alone lives on */
    CHECK_INT(check_host(&d, 0, d.size), USM_OK);
    unmake(&d);
    end();
}

/* --- a full device
 * ----------------------------------------------------------------------------------- */

#define MANY 12

static void make_many(data *many, size_t size)
{
    for (int i = 0; i < MANY; i++)
        many[i] = make(size, "many");
}

static void unmake_many(data *many)
{
    for (int i = 0; i < MANY; i++)
        unmake(&many[i]);
}

static void data_leave_a_full_device_and_come_back(void)
{
    data many[MANY];

    begin("device:8M");
    make_many(many, 2 * MIB);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MANY; i++) {
            CHECK_INT(write_device(&many[i], q, 0, 2 * MIB, 16 * round + i), USM_OK);
            CHECK_INT(finish(&many[i]), USM_OK);
            CHECK(usm__locations_device_bytes() <= 8 * MIB);
        }
    for (int i = 0; i < MANY; i++)
        CHECK_INT(check_device(&many[i], q, MIB, MIB), USM_OK);
    for (int i = 0; i < MANY; i++)
        CHECK_INT(check_host(&many[i], 0, 2 * MIB), USM_OK);
    unmake_many(many);
    end();
}

/* All of it fits but for a little: what host memory has as well goes, and nothing is copied. */
static void what_is_clean_leaves_first(void)
{
    data dirty, clean, more;

    begin("device:8M");
    dirty = make(2 * MIB, "dirty");
    clean = make(2 * MIB, "clean");
    more  = make(5 * MIB, "more");
    CHECK_INT(write_device(&dirty, q, 0, dirty.size, 1), USM_OK);
    CHECK_INT(finish(&dirty), USM_OK);
    CHECK_INT(write_host(&clean, 0, clean.size, 2), USM_OK);
    CHECK_INT(check_device(&clean, q, 0, clean.size), USM_OK);
    count_copies();
    CHECK_INT(write_device(&more, q, 0, more.size, 3), USM_OK);
    CHECK_INT(finish(&more), USM_OK);
    CHECK_INT(copies(), 0);
    CHECK_INT(check_host(&clean, 0, clean.size), USM_OK);
    CHECK_INT(check_host(&dirty, 0, dirty.size), USM_OK);
    unmake(&dirty);
    unmake(&clean);
    unmake(&more);
    end();
}

static void who_is_in_the_way_is_named(void)
{
    data      a, b, large;
    on_device in_a, in_b, in_large;

    begin("device:8M");
    a     = make(5 * MIB, "alpha");
    b     = make(5 * MIB, "beta");
    large = make(16 * MIB, "gamma");
    CHECK_INT(to_device(&a, q, 0, a.size, USM_WRITE_NO_INIT, &in_a), USM_OK);
    CHECK_INT(to_device(&b, q, 0, b.size, USM_WRITE_NO_INIT, &in_b), USM_E_BUSY);
    CHECK_IN("\"beta\"", usm_last_error());
    CHECK_IN("5 MiB of \"alpha\"", usm_last_error());
    give_up(&in_a);
    CHECK_INT(to_device(&b, q, 0, b.size, USM_WRITE_NO_INIT, &in_b), USM_OK);
    give_up(&in_b);
    CHECK_INT(to_device(&large, q, 0, large.size, USM_READ, &in_large), USM_E_BUDGET);
    CHECK_IN("16 MiB of \"gamma\"", usm_last_error());
    CHECK_IN("limit", usm_last_error());
    unmake(&a);
    unmake(&b);
    unmake(&large);
    end();
}

/* Its own extents are in nobody else's way: there is nothing to wait for. */
static void a_command_is_not_in_its_own_way(void)
{
    data                  a, b;
    on_device             in_a;
    usm__locations_want   want  = {.mode = USM_WRITE_NO_INIT, .may_wait = true, .nheld = 1};
    usm__locations_events after = USM__EVENT_LIST_INIT;
    usm__extent          *e;
    void                 *p;

    begin("device:8M");
    a = make(5 * MIB, "alpha");
    b = make(5 * MIB, "beta");
    CHECK_INT(to_device(&a, q, 0, a.size, USM_WRITE_NO_INIT, &in_a), USM_OK);
    want.q    = q;
    want.size = b.size;
    want.held = &in_a.extent;
    CHECK_INT(usm__locations_to_device(b.places, &want, &e, &p, &after), USM_E_BUDGET);
    CHECK_IN("the same command uses 5 MiB of \"alpha\"", usm_last_error());
    give_up(&in_a);
    unmake(&a);
    unmake(&b);
    end();
}

static void who_may_not_wait_is_told_so(void)
{
    data                  a, b;
    usm__locations_want   want  = {.mode = USM_WRITE_NO_INIT, .may_wait = false};
    usm__locations_events after = USM__EVENT_LIST_INIT;
    usm__extent          *e;
    void                 *p;

    begin("device:8M");
    a = make(5 * MIB, "alpha");
    b = make(5 * MIB, "beta");
    CHECK_INT(write_device(&a, q, 0, a.size, 1), USM_OK);
    CHECK_INT(finish(&a), USM_OK);
    want.q    = q;
    want.size = b.size;
    CHECK_INT(usm__locations_to_device(b.places, &want, &e, &p, &after), USM_E_AGAIN);
    CHECK_INT(check_host(&a, 0, a.size), USM_OK); /* now host memory has it as well */
    CHECK_INT(usm__locations_to_device(b.places, &want, &e, &p, &after), USM_OK);
    usm__extent_unuse(e);
    usm__locations_events_fini(&after);
    unmake(&a);
    unmake(&b);
    end();
}

static void *give_up_later(void *where)
{
    usleep(20000);
    give_up(where);
    return NULL;
}

static void memory_that_comes_free_is_waited_for(void)
{
    data      a, b;
    on_device in_a, in_b;
    pthread_t thread;
    uint64_t  turn;

    begin("device:8M");
    a = make(5 * MIB, "alpha");
    b = make(5 * MIB, "beta");
    CHECK_INT(to_device(&a, q, 0, a.size, USM_WRITE_NO_INIT, &in_a), USM_OK);
    turn = usm__locations_turn(q);
    CHECK_INT(to_device(&b, q, 0, b.size, USM_WRITE_NO_INIT, &in_b), USM_E_BUSY);
    CHECK(pthread_create(&thread, NULL, give_up_later, &in_a) == 0);
    usm__locations_await_memory(q, turn);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_INT(to_device(&b, q, 0, b.size, USM_WRITE_NO_INIT, &in_b), USM_OK);
    give_up(&in_b);
    usm__locations_await_memory(q, usm__locations_turn(q)); /* nobody uses any */
    unmake(&a);
    unmake(&b);
    end();
}

static void extents_make_room_for_others(void)
{
    data        a;
    usm_device *dev = NULL;

    begin(NULL);
    dev = usm_queue_get_device(q);
    a   = make(5 * MIB, "alpha");
    CHECK_INT(write_device(&a, q, 0, a.size, 1), USM_OK);
    CHECK_INT(usm__locations_give_back(ctx, dev, MIB), 0); /* in use */
    CHECK_INT(finish(&a), USM_OK);
    CHECK_INT(usm__locations_give_back(ctx, dev, MIB), 5 * MIB);
    CHECK_INT(usm__locations_device_bytes(), 0);
    CHECK_INT(check_host(&a, 0, a.size), USM_OK);
    unmake(&a);
    end();
}

/* Where the device's memory is the host's, extents and frames share the limit; where it is not,
 * frames alone have to make do with little. */
static void share(const char *limit)
{
    data     many[MANY];
    uint64_t before = usm__quota_host_reserved();

    begin_with(limit, 12 * MIB);
    make_many(many, 2 * MIB);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MANY; i++) {
            CHECK_INT(write_device(&many[i], q, 0, 2 * MIB, 16 * round + i), USM_OK);
            CHECK_INT(finish(&many[i]), USM_OK);
            CHECK(usm__quota_host_reserved() - before <= 12 * MIB);
            CHECK_INT(write_host(&many[MANY - 1 - i], MIB, MIB / 2, round), USM_OK);
            CHECK(usm__quota_host_reserved() - before <= 12 * MIB);
        }
    for (int i = 0; i < MANY; i++) {
        CHECK_INT(check_device(&many[i], q, 0, 2 * MIB), USM_OK);
        CHECK_INT(check_host(&many[i], 0, 2 * MIB), USM_OK);
    }
    unmake_many(many);
    end();
}

static void frames_and_extents_share_what_there_is(void)
{
    share("device:8M");
    share("auto"); /* frames keep a part for themselves */
}

/* --- failures
 * ------------------------------------------------------------------------------------- */

/* One command and one host access after another, to be stopped anywhere. */
static usm_status scenario(data *d)
{
    usm_status st = write_half(&d[0], q, 0, 3 * MIB, 5);

    if (st == USM_OK)
        st = finish(&d[0]);
    if (st == USM_OK)
        st = write_half(&d[1], q, MIB, 2 * MIB, 6);
    if (st == USM_OK)
        st = finish(&d[1]);
    if (st == USM_OK)
        st = check_device(&d[2], q, 0, 3 * MIB);
    if (st == USM_OK)
        st = check_host(&d[0], 0, 3 * MIB);
    if (st == USM_OK)
        st = write_host(&d[1], 0, 2 * MIB, 7);
    return st;
}

static void check_all(data *d, size_t n)
{
    usm__fault_disarm_all();
    for (size_t i = 0; i < n; i++) {
        (void)finish(&d[i]);
        CHECK_INT(check_host(&d[i], 0, d[i].size), USM_OK);
    }
}

static void sweep(const char *call, usm_status status)
{
    bool passed = false;
    int  n;

    for (n = 1; !passed && n < 500; n++) {
        data d[3];

        begin("device:8M");
        for (int i = 0; i < 3; i++) {
            d[i] = make(3 * MIB, "faulty");
            CHECK_INT(write_host(&d[i], 0, d[i].size, i), USM_OK);
            CHECK_INT(write_device(&d[i], q, MIB, MIB, 10 + i), USM_OK);
            CHECK_INT(finish(&d[i]), USM_OK);
        }
        CHECK(usm__fault_arm(call, (uint64_t)n, false, status));
        passed = scenario(d) == USM_OK && usm__fault_fired() == 0;
        check_all(d, 3);
        for (int i = 0; i < 3; i++)
            unmake(&d[i]);
        end();
    }
    CHECK(passed && n > 2);
    printf("# %s: %d cases, nothing lost\n", call, n - 1);
}

static void nothing_is_lost_when_a_copy_fails(void)
{
    sweep("copy", USM_E_DEVICE_LOST);
}

static void nothing_is_lost_without_device_memory(void)
{
    CHECK_INT(usm_config_set("pool", "direct"), USM_OK); /* an allocation each */
    sweep("mem_alloc", USM_E_NO_MEMORY);
    CHECK_INT(usm_config_set("pool", ""), USM_OK);
}

static void nothing_is_lost_without_heap_memory(void)
{
    sweep("heap.alloc", USM_OK);
}

/* The copy waits for a command that fails, because commands use the run it goes to: it never
 * happens, nor does the command behind it, and what was valid before is valid again. */
static void a_copy_that_fails_later_leaves_things_as_they_were(void)
{
    data       d;
    on_device  where, other;
    usm_event *gate = NULL, *ev = NULL;

    begin(NULL);
    d = make(64 * KIB, "gated");
    CHECK_INT(write_host(&d, 0, d.size, 1), USM_OK);
    CHECK_INT(to_device(&d, q, 0, d.size, USM_READ, &other), USM_OK); /* the run is in use */
    CHECK_INT(write_host(&d, 8 * KIB, KIB, 2), USM_OK);
    CHECK_INT(usm_event_create(ctx, &gate), USM_OK);
    d.last = gate;
    CHECK_INT(to_device(&d, q, 0, d.size, USM_READ_WRITE, &where), USM_OK);
    CHECK(where.after.n == 2); /* the gate, and the copy of a KiB that waits for it */
    CHECK_INT(usm_memset(q, where.at, 3, d.size, where.after.n, where.after.list, &ev), USM_OK);
    CHECK_INT(usm_event_signal(gate, USM_E_DEVICE), USM_OK);
    CHECK(usm_event_wait(ev) != USM_OK);
    usm_event_release(ev);
    give_up(&where);
    give_up(&other);
    usm_event_release(gate);
    d.last = NULL;
    CHECK_INT(check_host(&d, 8 * KIB, KIB), USM_OK);
    CHECK_INT(check_device(&d, q, 8 * KIB, KIB), USM_OK);
    unmake(&d);
    end();
}

/* --- random
 * ------------------------------------------------------------------------------------------ */

#define BUFFERS 4

typedef struct run {
    uint64_t   state;
    usm_queue *queues[2];
    data       d[BUFFERS];
} run;

static size_t any(run *r, size_t below)
{
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return (size_t)(r->state % below);
}

/* Memory in use by other threads' commands: as who submits commands does it. */
static usm_status patiently(run *r, data *d, usm_queue *on, size_t at, size_t n)
{
    size_t   what  = any(r, 3);
    int      value = (int)any(r, 256);
    uint64_t turn;

    for (;;) {
        usm_status st;

        turn = usm__locations_turn(on);
        st   = what == 0   ? write_device(d, on, at, n, value)
               : what == 1 ? write_half(d, on, at, n, value)
                           : check_device(d, on, at, n);
        if (st != USM_E_BUSY && st != USM_E_AGAIN)
            return st;
        for (int i = 0; i < BUFFERS; i++)
            CHECK_INT(finish(&r->d[i]), USM_OK);
        if (st == USM_E_BUSY)
            usm__locations_await_memory(on, turn);
        else
            usleep(1000); /* other threads' accesses hold host memory */
    }
}

static void step(run *r)
{
    data      *d  = &r->d[any(r, BUFFERS)];
    size_t     at = any(r, d->size), n = 1 + any(r, d->size - at);
    usm_queue *on = r->queues[any(r, 2)];

    if (any(r, 2) == 0)
        n = 1 + any(r, n < 1000 ? n : 1000);
    switch (any(r, 8)) {
    case 0:
        CHECK_INT(check_host(d, at, n), USM_OK);
        break;
    case 1:
        CHECK_INT(write_host(d, at, n, (int)any(r, 256)), USM_OK);
        break;
    case 2:
        CHECK_INT(finish(d), USM_OK);
        break;
    case 3:
        (void)usm__locations_give_back(NULL, usm_queue_get_device(on), 1 + any(r, MIB));
        break;
    default:
        CHECK_INT(patiently(r, d, on, at, n), USM_OK);
        break;
    }
}

static void *random_run(void *arg)
{
    run *r = arg;

    for (int i = 0; i < BUFFERS; i++) {
        r->d[i] = make(any(r, MIB) + 1000, "random");
        CHECK_INT(write_host(&r->d[i], 0, r->d[i].size, i), USM_OK);
    }
    for (int n = 0; n < 150; n++)
        step(r);
    for (int i = 0; i < BUFFERS; i++) {
        CHECK_INT(finish(&r->d[i]), USM_OK);
        CHECK_INT(check_host(&r->d[i], 0, r->d[i].size), USM_OK);
        unmake(&r->d[i]);
    }
    return NULL;
}

static void random_accesses(size_t threads, size_t own, uint64_t seed)
{
    usm_queue_desc out_of_order = USM_QUEUE_DESC_INIT;
    usm_context   *ctx2         = NULL;
    usm_queue     *q2           = NULL;
    run            runs[4];
    pthread_t      ids[4];

    begin_with("device:6M", own);
    CHECK_INT(usm_context_create(NULL, &ctx2), USM_OK);
    if (usm_device_has(usm_queue_get_device(q), USM_ASPECT_OUT_OF_ORDER_QUEUE))
        out_of_order.flags = USM_QUEUE_OUT_OF_ORDER;
    CHECK_INT(usm_queue_create(ctx2, NULL, &out_of_order, &q2), USM_OK);
    for (size_t i = 0; i < threads; i++)
        runs[i] = (run){.state = 0x9e3779b97f4a7c15ull * (seed * 4 + i + 1), .queues = {q, q2}};
    for (size_t i = 1; i < threads; i++)
        CHECK(pthread_create(&ids[i], NULL, random_run, &runs[i]) == 0);
    (void)random_run(&runs[0]);
    for (size_t i = 1; i < threads; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
    usm_queue_destroy(q2);
    usm_context_destroy(ctx2);
    end();
}

static void random_accesses_equal_the_model(void)
{
    for (uint64_t seed = 0; seed < (PLAIN_SANITIZED ? 3 : 10); seed++)
        random_accesses(1, seed % 2 ? 6 * MIB : 0, seed);
}

static void threads_take_each_others_memory(void)
{
    for (uint64_t seed = 100; seed < (PLAIN_SANITIZED ? 102 : 105); seed++)
        random_accesses(3, seed % 2 ? 16 * MIB : 0, seed);
}

/* --- the rest
 * ----------------------------------------------------------------------------------------- */

static void devices_that_reach_host_memory_use_it_in_place(void)
{
    begin(NULL);
    CHECK(!usm__locations_in_place(q));
    usm__locations_force_copies(false);
    CHECK_INT(usm__locations_in_place(q),
              usm_device_has(usm_queue_get_device(q), USM_ASPECT_USM_SYSTEM_ALLOCATIONS));
    end();
}

static const plain_case cases[] = {
    CASE(what_one_side_writes_the_other_reads),
    CASE(what_is_there_is_not_copied),
    CASE(what_nobody_wrote_is_not_copied),
    CASE(tiles_with_halos_see_each_other),
    CASE(a_run_over_others_replaces_them),
    CASE(data_go_from_context_to_context),
    CASE(data_leave_a_full_device_and_come_back),
    CASE(what_is_clean_leaves_first),
    CASE(who_is_in_the_way_is_named),
    CASE(a_command_is_not_in_its_own_way),
    CASE(who_may_not_wait_is_told_so),
    CASE(memory_that_comes_free_is_waited_for),
    CASE(extents_make_room_for_others),
    CASE(frames_and_extents_share_what_there_is),
    CASE(nothing_is_lost_when_a_copy_fails),
    CASE(nothing_is_lost_without_device_memory),
    CASE(nothing_is_lost_without_heap_memory),
    CASE(a_copy_that_fails_later_leaves_things_as_they_were),
    CASE(random_accesses_equal_the_model),
    CASE(threads_take_each_others_memory),
    CASE(devices_that_reach_host_memory_use_it_in_place),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
