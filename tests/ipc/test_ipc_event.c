/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Events across processes (usm/ipc.h), over the runtime that the environment selects: records and
 * waits of queues and of the host; recorders that fail or end; handles that are not, or no longer,
 * good. */
#include "group.h"

#include <usm/usm.h>

#define OK(call) CHECK_INT((call), USM_OK)
#define SOON     20000 /* ms: the end of waits that do not come to it                         */

static usm_queue *new_queue(uint32_t flags)
{
    usm_queue_desc desc = USM_QUEUE_DESC_INIT;
    usm_queue     *q    = NULL;

    desc.flags = flags;
    OK(usm_queue_create(NULL, NULL, &desc, &q));
    return q;
}

/* Event number `which` of the group; its creator publishes it, the others open it. */
static usm_ipc_event *share_event(group *g, int which)
{
    usm_ipc_event *ev = NULL;
    usm_ipc_handle handle;

    OK(usm_ipc_event_create(NULL, &ev));
    OK(usm_ipc_event_get(ev, &handle));
    memcpy(g->page->bytes + which * USM_IPC_HANDLE_SIZE, handle.bytes, sizeof handle.bytes);
    (void)atomic_fetch_or(&g->page->ready, 1 << which);
    return ev;
}

static usm_ipc_handle handle_of(group *g, int which)
{
    usm_ipc_handle handle;

    for (int ms = 0; !(atomic_load(&g->page->ready) & 1 << which); ms++) {
        CHECK(ms < GROUP_WAIT_MS);
        group_sleep_ms(1);
    }
    memcpy(handle.bytes, g->page->bytes + which * USM_IPC_HANDLE_SIZE, sizeof handle.bytes);
    return handle;
}

static usm_ipc_event *open_event(group *g, int which)
{
    const usm_ipc_handle handle = handle_of(g, which);
    usm_ipc_event       *ev     = NULL;

    OK(usm_ipc_event_open(&handle, NULL, &ev));
    return ev;
}

/* The next step of the group: all wait for one another. */
static void step(group *g, int number, int members)
{
    (void)atomic_fetch_add(&g->page->step[number], 1);
    CHECK(group_wait_for(&g->page->step[number], members));
}

/* ---- the host ------------------------------------------------------------------------------ */

static void count_turns(group *g, int rank)
{
    usm_ipc_event *ev   = rank == 0 ? share_event(g, 0) : open_event(g, 0);
    uint64_t       made = 9, complete = 9;

    if (rank == 0)
        OK(usm_ipc_event_count(ev, &made, &complete));
    step(g, 0, 2);
    if (rank == 0) {
        CHECK(made == 0 && complete == 0);
        OK(usm_ipc_event_query(ev)); /* nothing was recorded: nothing to wait for */
        OK(usm_ipc_event_sync(ev, 0));
    }
    for (uint64_t i = 1; i <= 1000; i++) {
        if (rank == 0)
            OK(usm_ipc_event_signal(ev));
        OK(usm_ipc_event_sync_count(ev, 2 * i - 1, SOON));
        if (rank == 1)
            OK(usm_ipc_event_signal(ev));
        OK(usm_ipc_event_sync_count(ev, 2 * i, SOON));
    }
    OK(usm_ipc_event_count(ev, &made, &complete));
    CHECK(made == 2000 && complete == 2000);
    CHECK_INT(usm_ipc_event_sync_count(ev, 2001, 20), USM_E_NOT_READY);
    step(g, 1, 2);
    usm_ipc_event_destroy(ev);
}

static void two_processes_count_up_in_turns(void)
{
    group g;

    group_start(&g, 2, count_turns);
    group_end(&g);
}

/* ---- queues
 * -------------------------------------------------------------------------------------- */

static void gated(group *g, int rank)
{
    usm_queue     *q    = new_queue(0);
    usm_ipc_event *ev   = rank == 0 ? share_event(g, 0) : open_event(g, 0);
    usm_event     *gate = NULL, *out = NULL;
    char          *p = usm_malloc_host(64, q);

    CHECK(p != NULL);
    memset(p, '.', 64);
    if (rank == 0) {
        OK(usm_event_create(NULL, &gate));
        OK(usm_memset(q, p, 'a', 64, 1, &gate, NULL));
        OK(usm_ipc_event_record(ev, q, 0, NULL));
        CHECK_INT(usm_ipc_event_query(ev), USM_E_NOT_READY);
        step(g, 0, 2);
        step(g, 1, 2);
        CHECK_INT(p[0], '.');
        atomic_store(&g->page->go, 1);
        OK(usm_event_signal(gate, USM_OK));
        OK(usm_ipc_event_sync(ev, SOON));
        CHECK_INT(p[63], 'a');
        usm_event_release(gate);
    } else {
        step(g, 0, 2);
        OK(usm_ipc_event_wait(ev, q, &out));
        OK(usm_memset(q, p, 'b', 64, 0, NULL, NULL));
        CHECK_INT(usm_event_query(out), USM_E_NOT_READY);
        CHECK_INT(usm_queue_query(q), USM_E_NOT_READY);
        CHECK_INT(usm_ipc_event_sync(ev, 30), USM_E_NOT_READY);
        CHECK_INT(p[0], '.');
        step(g, 1, 2);
        OK(usm_queue_wait(q));
        CHECK_INT(atomic_load(&g->page->go), 1);
        CHECK_INT(p[63], 'b');
        OK(usm_event_wait(out));
        usm_event_release(out);
        OK(usm_ipc_event_query(ev));
    }
    step(g, 2, 2);
    usm_ipc_event_destroy(ev);
    usm_free(p);
    usm_queue_destroy(q);
}

static void a_queue_waits_for_what_another_process_recorded(void)
{
    group g;

    group_start(&g, 2, gated);
    group_end(&g);
}

#define TURNS 1000

/* Turn by turn: wait for the other's, write, record. Nobody waits on the host. */
static void ping_pong(group *g, int rank)
{
    usm_queue     *q     = new_queue(0);
    usm_ipc_event *mine  = share_event(g, rank);
    usm_ipc_event *other = open_event(g, 1 - rank);
    uint64_t       made, complete;

    step(g, 0, 2);
    for (int i = 1; i <= TURNS; i++) {
        if (rank == 1)
            OK(usm_ipc_event_sync_count(other, (uint64_t)i, SOON));
        if (rank == 1)
            OK(usm_ipc_event_wait(other, q, NULL));
        OK(usm_ipc_event_record(mine, q, 0, NULL));
        if (rank == 0)
            OK(usm_ipc_event_sync_count(other, (uint64_t)i, SOON));
        if (rank == 0)
            OK(usm_ipc_event_wait(other, q, NULL));
    }
    OK(usm_queue_wait(q));
    OK(usm_ipc_event_sync(mine, SOON));
    OK(usm_ipc_event_sync(other, SOON));
    OK(usm_ipc_event_count(other, &made, &complete));
    CHECK(made == TURNS && complete == TURNS);
    step(g, 1, 2);
    usm_ipc_event_destroy(mine);
    usm_ipc_event_destroy(other);
    usm_queue_destroy(q);
}

static void a_thousand_turns_between_queues_of_two_processes(void)
{
    group g;

    group_start(&g, 2, ping_pong);
    group_end(&g);
}

static void wait_ahead(group *g, int rank)
{
    usm_queue     *q   = new_queue(0);
    usm_ipc_event *ev  = rank == 0 ? share_event(g, 0) : open_event(g, 0);
    usm_event     *out = NULL, *at_once = NULL;

    if (rank == 1) {
        OK(usm_ipc_event_wait_count(ev, 0, q, &at_once));
        OK(usm_event_wait(at_once));
        usm_event_release(at_once);
        OK(usm_ipc_event_wait_count(ev, 3, q, &out));
        step(g, 0, 2);
        group_sleep_ms(20);
        CHECK_INT(usm_event_query(out), USM_E_NOT_READY);
        CHECK_INT(usm_queue_query(q), USM_E_NOT_READY);
        step(g, 1, 2);
        OK(usm_queue_wait(q));
        OK(usm_event_wait(out));
        usm_event_release(out);
    } else {
        OK(usm_ipc_event_signal(ev));
        OK(usm_ipc_event_record(ev, q, 0, NULL));
        step(g, 0, 2);
        step(g, 1, 2);
        OK(usm_ipc_event_record(ev, q, 0, NULL));
    }
    step(g, 2, 2);
    usm_ipc_event_destroy(ev);
    usm_queue_destroy(q);
}

static void a_queue_waits_for_records_that_are_yet_to_be_made(void)
{
    group g;

    group_start(&g, 2, wait_ahead);
    group_end(&g);
}

/* A record that is complete does not stand for one before it that is not. */
static void exact(group *g, int rank)
{
    usm_queue     *q    = new_queue(0);
    usm_ipc_event *ev   = rank == 0 ? share_event(g, 0) : open_event(g, 0);
    usm_event     *gate = NULL, *out = NULL;
    uint64_t       made, complete;

    if (rank == 0) {
        OK(usm_event_create(NULL, &gate));
        OK(usm_queue_barrier(q, 1, &gate, NULL));
        OK(usm_ipc_event_record(ev, q, 0, NULL));
        step(g, 0, 2);
        step(g, 1, 2);
        OK(usm_ipc_event_signal(ev));
        OK(usm_ipc_event_signal(ev));
        step(g, 2, 2);
        step(g, 3, 2);
        OK(usm_event_signal(gate, USM_OK));
        OK(usm_ipc_event_sync(ev, SOON));
        usm_event_release(gate);
    } else {
        step(g, 0, 2);
        OK(usm_ipc_event_signal(ev)); /* ours, complete */
        OK(usm_ipc_event_wait(ev, q, &out));
        step(g, 1, 2);
        step(g, 2, 2);
        OK(usm_ipc_event_count(ev, &made, &complete));
        CHECK(made == 4 && complete == 3);
        OK(usm_ipc_event_sync_count(ev, 3, SOON));
        CHECK_INT(usm_ipc_event_sync(ev, 30), USM_E_NOT_READY);
        CHECK_INT(usm_event_query(out), USM_E_NOT_READY); /* two later ones are complete */
        step(g, 3, 2);
        OK(usm_ipc_event_sync(ev, SOON));
        OK(usm_event_wait(out));
        usm_event_release(out);
        OK(usm_ipc_event_count(ev, &made, &complete));
        CHECK(made == 4 && complete == 4);
    }
    step(g, 4, 2);
    usm_ipc_event_destroy(ev);
    usm_queue_destroy(q);
}

static void a_wait_is_for_exactly_the_records_before_it(void)
{
    group g;

    group_start(&g, 2, exact);
    group_end(&g);
}

static void dependencies(group *g, int rank)
{
    usm_ipc_event *ev   = NULL;
    usm_event     *gate = NULL, *open = NULL;
    usm_queue     *q;

    (void)g;
    (void)rank;
    if (!usm_device_has(usm_queue_get_device(usm_default_queue()), USM_ASPECT_OUT_OF_ORDER_QUEUE))
        return;
    q = new_queue(USM_QUEUE_OUT_OF_ORDER);
    OK(usm_ipc_event_create(NULL, &ev));
    OK(usm_event_create(NULL, &gate));
    OK(usm_event_create(NULL, &open));
    OK(usm_event_signal(open, USM_OK));
    OK(usm_queue_barrier(q, 1, &open, NULL));
    OK(usm_ipc_event_record(ev, q, 1, &open)); /* with dependencies: those alone */
    OK(usm_ipc_event_sync(ev, SOON));
    OK(usm_ipc_event_record(ev, q, 1, &gate));
    OK(usm_ipc_event_record(ev, q, 0, NULL)); /* without: all so far, that marker too */
    CHECK_INT(usm_ipc_event_sync(ev, 20), USM_E_NOT_READY);
    OK(usm_event_signal(gate, USM_OK));
    OK(usm_ipc_event_sync(ev, SOON));
    usm_event_release(gate);
    usm_event_release(open);
    usm_ipc_event_destroy(ev);
    usm_queue_destroy(q);
}

static void a_record_in_an_out_of_order_queue_has_its_dependencies_or_all(void)
{
    group g;

    group_start(&g, 1, dependencies);
    group_end(&g);
}

/* ---- failures
 * ------------------------------------------------------------------------------------- */

static void fail_a_record(group *g, int rank)
{
    usm_queue     *q    = new_queue(0);
    usm_ipc_event *ev   = rank == 0 ? share_event(g, 0) : open_event(g, 0);
    usm_event     *gate = NULL, *out = NULL;

    if (rank == 0) {
        OK(usm_ipc_event_signal(ev));
        step(g, 0, 2);
        OK(usm_event_create(NULL, &gate));
        OK(usm_ipc_event_record(ev, q, 1, &gate));
        step(g, 1, 2);
        step(g, 2, 2);
        OK(usm_event_signal(gate, USM_E_NO_MEMORY));
        usm_event_release(gate);
    } else {
        step(g, 0, 2);
        OK(usm_ipc_event_sync(ev, SOON)); /* what was recorded so far is well */
        step(g, 1, 2);
        OK(usm_ipc_event_wait(ev, q, &out));
        step(g, 2, 2);
        CHECK_INT(usm_ipc_event_sync(ev, SOON), USM_E_DEPENDENCY);
        CHECK_INT(usm_event_wait(out), USM_E_DEPENDENCY);
        CHECK_INT(usm_ipc_event_query(ev), USM_E_DEPENDENCY);
        CHECK_IN("failed", usm_last_error());
        usm_event_release(out);
        (void)usm_queue_wait(q);
    }
    step(g, 3, 2);
    usm_ipc_event_destroy(ev);
    usm_queue_destroy(q);
}

static void a_command_that_failed_is_told_to_those_that_wait_for_it(void)
{
    group g;

    group_start(&g, 2, fail_a_record);
    group_end(&g);
}

static void end_while_recorded(group *g, int rank)
{
    usm_queue     *q    = new_queue(0);
    usm_ipc_event *ev   = rank == 0 ? share_event(g, 0) : open_event(g, 0);
    usm_event     *gate = NULL, *out = NULL, *fill = NULL;
    char          *p = usm_malloc_host(16, q);

    OK(usm_ipc_event_signal(ev));
    if (rank == 1) { /* records and ends */
        OK(usm_event_create(NULL, &gate));
        OK(usm_ipc_event_record(ev, q, 1, &gate));
        step(g, 0, 3);
        step(g, 1, 2);
        group_sleep_ms(20);
        (void)raise(SIGKILL);
    }
    step(g, 0, 3);
    OK(usm_ipc_event_wait(ev, q, &out));
    OK(usm_memset(q, p, 1, 16, 1, &out, &fill)); /* what depends on it does not run */
    CHECK_INT(usm_ipc_event_query(ev), USM_E_NOT_READY);
    if (rank == 0)
        step(g, 1, 2);
    CHECK_INT(usm_ipc_event_sync(ev, SOON), USM_E_OWNER_GONE);
    CHECK_INT(usm_event_wait(out), USM_E_OWNER_GONE);
    CHECK_INT(usm_event_wait(fill), USM_E_DEPENDENCY);
    CHECK_INT(usm_ipc_event_query(ev), USM_E_OWNER_GONE);
    usm_event_release(out);
    usm_event_release(fill);
    (void)usm_queue_wait(q);
    usm_ipc_event_destroy(ev);
    usm_free(p);
    usm_queue_destroy(q);
}

static void a_recorder_that_ends_is_told_to_those_that_wait_for_it(void)
{
    group g;

    group_start(&g, 3, end_while_recorded);
    group_end(&g);
}

static void count_on_one_that_ends(group *g, int rank)
{
    usm_ipc_event *ev = rank == 0 ? share_event(g, 0) : open_event(g, 0);

    step(g, 0, g->page->value[0][0] != 0 ? 3 : 2);
    if (rank == 0) {
        OK(usm_ipc_event_signal(ev));
        group_sleep_ms(20);
        (void)raise(SIGKILL);
    }
    OK(usm_ipc_event_sync_count(ev, 1, SOON));
    CHECK_INT(usm_ipc_event_sync_count(ev, 2, SOON), USM_E_OWNER_GONE);
    OK(usm_ipc_event_sync(ev, SOON)); /* what it did is done */
    usm_ipc_event_destroy(ev);
}

static void a_count_that_nobody_is_left_to_reach_is_told(void)
{
    group g;

    group_start(&g, 2, count_on_one_that_ends);
    group_end(&g);
    group_begin(&g); /* two that wait for the one that created it and records */
    g.page->value[0][0] = 1;
    while (g.n < 3)
        (void)group_add(&g, count_on_one_that_ends);
    group_end(&g);
}

static _Atomic(int) losses;

static void count_loss(int pid, usm_ipc_role role, void *user)
{
    (void)pid;
    (void)user;
    if (role == USM_IPC_OWNER)
        (void)atomic_fetch_add(&losses, 1);
}

static void lose_the_owner(group *g, int rank)
{
    usm_ipc_event *ev;
    usm_ipc_handle handle;

    if (rank == 0) {
        (void)share_event(g, 0);
        step(g, 0, 2);
        group_sleep_ms(SOON);
    }
    usm_ipc_on_loss(count_loss, NULL);
    handle = handle_of(g, 0);
    ev     = open_event(g, 0);
    step(g, 0, 2);
    (void)kill(g->pid[0], SIGKILL);
    CHECK(group_wait_for(&losses, 1));
    OK(usm_ipc_event_signal(ev)); /* it goes on among those that have it */
    OK(usm_ipc_event_sync(ev, 0));
    {
        usm_ipc_event *again = NULL;

        CHECK_INT(usm_ipc_event_open(&handle, NULL, &again), USM_E_OWNER_GONE);
        usm_ipc_event_destroy(ev);
        CHECK_INT(usm_ipc_event_open(&handle, NULL, &again), USM_E_OWNER_GONE);
    }
}

static void an_event_outlives_its_creator_for_those_that_have_it(void)
{
    group g;

    group_start(&g, 2, lose_the_owner);
    group_end(&g);
}

/* ---- handles
 * ------------------------------------------------------------------------------------------ */

static void bad_handles(group *g, int rank)
{
    usm_ipc_event *ev = rank == 0 ? share_event(g, 0) : NULL, *got = NULL;
    usm_ipc_handle good, bad;
    void          *p = NULL;

    if (rank == 0) {
        step(g, 0, 2);
        usm_ipc_event_destroy(ev);
        CHECK_INT(usm_ipc_event_signal(ev), USM_E_INVALID_HANDLE);
        CHECK_INT(usm_ipc_event_sync(ev, 0), USM_E_INVALID_HANDLE);
        step(g, 1, 2);
        step(g, 2, 2);
        return;
    }
    good = handle_of(g, 0);
    for (int i = 0; i < USM_IPC_HANDLE_SIZE; i++) {
        bad = good;
        bad.bytes[i] ^= 0x10;
        CHECK_INT(usm_ipc_event_open(&bad, NULL, &got), USM_E_HANDLE);
    }
    memset(&bad, 0, sizeof bad);
    CHECK_INT(usm_ipc_event_open(&bad, NULL, &got), USM_E_HANDLE);
    CHECK_INT(usm_ipc_open(&good, NULL, NULL, &p), USM_E_HANDLE);
    CHECK_INT(usm_ipc_event_open(NULL, NULL, &got), USM_E_INVALID);
    CHECK_INT(usm_ipc_event_open(&good, NULL, NULL), USM_E_INVALID);
    OK(usm_ipc_event_open(&good, NULL, &ev));
    OK(usm_ipc_event_open(&good, NULL, &got)); /* as often as one likes */
    usm_ipc_event_destroy(got);
    got = NULL;
    step(g, 0, 2);
    step(g, 1, 2);
    CHECK_INT(usm_ipc_event_open(&good, NULL, &got), USM_E_STALE);
    OK(usm_ipc_event_signal(ev)); /* who has it keeps it */
    usm_ipc_event_destroy(ev);
    CHECK_INT(usm_ipc_event_open(&good, NULL, &got), USM_E_STALE);
    CHECK(got == NULL);
    step(g, 2, 2);
}

static void handles_that_are_not_good_are_refused(void)
{
    group g;

    group_start(&g, 2, bad_handles);
    group_end(&g);
}

#define MANY 200 /* several pages */

static void use_cells_again(group *g, int rank)
{
    static usm_ipc_handle old[MANY];
    static usm_ipc_event *evs[MANY];
    usm_ipc_event        *got = NULL, *kept;
    int                   before;

    if (rank == 1) { /* keeps one that its creator destroys: its cell is not used again */
        kept = open_event(g, 0);
        OK(usm_ipc_event_signal(kept));
        step(g, 0, 2);
        step(g, 1, 2);
        {
            uint64_t made = 0;

            OK(usm_ipc_event_count(kept, &made, NULL));
            CHECK_INT(made, 1);
        }
        OK(usm_ipc_event_sync(kept, 0));
        usm_ipc_event_destroy(kept);
        return;
    }
    kept = share_event(g, 0);
    step(g, 0, 2);
    OK(usm_ipc_event_create(NULL, &evs[0]));
    before = group_descriptors();
    usm_ipc_event_destroy(kept);
    for (int round = 0; round < 5; round++) {
        for (int i = 1; i < MANY; i++) {
            OK(usm_ipc_event_create(NULL, &evs[i]));
            OK(usm_ipc_event_query(evs[i]));
            OK(usm_ipc_event_signal(evs[i]));
            OK(usm_ipc_event_signal(evs[i]));
            if (round > 0)
                CHECK_INT(usm_ipc_event_open(&old[i], NULL, &got), USM_E_STALE);
            OK(usm_ipc_event_get(evs[i], &old[i]));
            OK(usm_ipc_event_open(&old[i], NULL, &got)); /* in our own process */
            OK(usm_ipc_event_sync_count(got, 2, 0));
            usm_ipc_event_destroy(got);
        }
        for (int i = 1; i < MANY; i++)
            usm_ipc_event_destroy(evs[i]);
    }
    CHECK_INT(group_descriptors(), before);
    usm_ipc_event_destroy(evs[0]);
    CHECK(group_descriptors() < before);
    step(g, 1, 2);
}

static void cells_are_used_again_and_old_handles_are_stale(void)
{
    group g;

    group_start(&g, 2, use_cells_again);
    group_end(&g);
}

/* ---- many at once
 * --------------------------------------------------------------------------------------- */

enum { PROCESSES = 3, THREADS = 3, RECORDS = 200 };

typedef struct stress_thread {
    pthread_t      thread;
    usm_ipc_event *ev;
    usm_queue     *q;
    uint32_t       seed;
} stress_thread;

static void *stress_run(void *arg)
{
    stress_thread *t = arg;

    for (int i = 0; i < RECORDS; i++) {
        usm_event *out = NULL;

        t->seed = t->seed * 1664525u + 1013904223u;
        switch (t->seed >> 28) {
        case 0:
            OK(usm_ipc_event_sync(t->ev, SOON));
            break;
        case 1:
            OK(usm_ipc_event_wait(t->ev, t->q, NULL));
            break;
        case 2:
            OK(usm_ipc_event_wait(t->ev, t->q, &out));
            OK(usm_event_wait(out));
            usm_event_release(out);
            break;
        default:
            break;
        }
        if (t->seed >> 27 & 1)
            OK(usm_ipc_event_signal(t->ev));
        else
            OK(usm_ipc_event_record(t->ev, t->q, 0, NULL));
    }
    return NULL;
}

static void stress(group *g, int rank)
{
    usm_ipc_event *ev = rank == 0 ? share_event(g, 0) : open_event(g, 0);
    stress_thread  t[THREADS];
    uint64_t       made, complete;

    for (uint32_t i = 0; i < THREADS; i++) {
        t[i] = (stress_thread){.ev = ev, .q = new_queue(0), .seed = i + 100 * (uint32_t)rank};
        CHECK(pthread_create(&t[i].thread, NULL, stress_run, &t[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(t[i].thread, NULL) == 0);
        OK(usm_queue_wait(t[i].q));
        usm_queue_destroy(t[i].q);
    }
    OK(usm_ipc_event_sync_count(ev, PROCESSES * THREADS * RECORDS, SOON));
    OK(usm_ipc_event_sync(ev, SOON));
    OK(usm_ipc_event_count(ev, &made, &complete));
    CHECK_INT(made, PROCESSES * THREADS * RECORDS);
    CHECK_INT(complete, PROCESSES * THREADS * RECORDS);
    step(g, 0, PROCESSES);
    usm_ipc_event_destroy(ev);
}

static void threads_of_several_processes_record_and_wait_at_once(void)
{
    group g;

    group_start(&g, PROCESSES, stress);
    group_end(&g);
}

static void fork_with_events(group *g, int rank)
{
    usm_ipc_event *ev = share_event(g, 0), *got = NULL;
    usm_ipc_handle handle;
    int            status = -1;
    pid_t          pid;

    (void)rank;
    OK(usm_ipc_event_get(ev, &handle));
    pid = fork();
    if (pid == 0) {
        (void)alarm(20);
        if (usm_ipc_event_signal(ev) != USM_E_FORKED || usm_ipc_event_sync(ev, 0) != USM_E_FORKED ||
            usm_ipc_event_create(NULL, &got) != USM_E_FORKED)
            _exit(1);
        usm_ipc_event_destroy(ev);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    OK(usm_ipc_event_signal(ev));
    OK(usm_ipc_event_sync_count(ev, 1, SOON));
    usm_ipc_event_destroy(ev);
}

static void a_forked_child_does_not_have_the_events(void)
{
    group g;

    group_start(&g, 1, fork_with_events);
    group_end(&g);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(two_processes_count_up_in_turns),
        CASE(a_queue_waits_for_what_another_process_recorded),
        CASE(a_thousand_turns_between_queues_of_two_processes),
        CASE(a_queue_waits_for_records_that_are_yet_to_be_made),
        CASE(a_wait_is_for_exactly_the_records_before_it),
        CASE(a_record_in_an_out_of_order_queue_has_its_dependencies_or_all),
        CASE(a_command_that_failed_is_told_to_those_that_wait_for_it),
        CASE(a_recorder_that_ends_is_told_to_those_that_wait_for_it),
        CASE(a_count_that_nobody_is_left_to_reach_is_told),
        CASE(an_event_outlives_its_creator_for_those_that_have_it),
        CASE(handles_that_are_not_good_are_refused),
        CASE(cells_are_used_again_and_old_handles_are_stale),
        CASE(threads_of_several_processes_record_and_wait_at_once),
        CASE(a_forked_child_does_not_have_the_events),
        {NULL, NULL},
    };

    return plain_main(argc, argv, cases);
}
