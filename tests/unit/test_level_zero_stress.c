/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The Level Zero backend under load and at the worst moment: tangles of queues, devices and threads
 * while events are used again, calls of the driver that fail in the middle of a command, callbacks
 * that give back what they come from, thousands of queues and dependencies, and what a lost device
 * leaves behind. */
#include "level_zero_lists.h"

/* --- helpers ---------------------------------------------------------------------------------- */

/* True once the event has ended; a hang is a failure, not a test that never ends. */
static bool ends_soon(void *ev)
{
    for (int i = 0; i < 3000; i++) {
        if (ops->event_query(ev) != USM_E_NOT_READY)
            return true;
        module_sleep_ms(1);
    }
    return false;
}

static void wait_until(atomic_int *counter, int n)
{
    for (int i = 0; i < 20000 && atomic_load(counter) < n; i++)
        module_sleep_ms(1);
    CHECK_INT(atomic_load(counter), n);
}

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void *marker_after(void *queue, size_t ndeps, void *const *deps)
{
    void *ev = NULL;

    CHECK_INT(ops->marker(queue, ndeps, deps, &ev), USM_OK);
    return ev;
}

/* An event of the program's own that we know, too. */
typedef struct latch {
    native_event native;
    void        *ev;
} latch;

static latch latch_new(void)
{
    latch l = {native_event_new(), NULL};

    CHECK_INT(ops->event_from_native(ctx, l.native.event, USM_KEEP, &l.ev), USM_OK);
    return l;
}

static void latch_open(const latch *l)
{
    CHECK_INT(lz.zeEventHostSignal(l->native.event), 0);
}

static void latch_free(const latch *l)
{
    ops->event_release(l->ev);
    CHECK_INT(lz.zeEventDestroy(l->native.event), 0);
    CHECK_INT(lz.zeEventPoolDestroy(l->native.pool), 0);
}

/* --- commands that fail half way -------------------------------------------------------------- */

/* A prefetch behind an event of q, of which the driver has the wait and nothing else; the event. */
static void *prefetch_half(void *queue, void *latch_ev)
{
    static char where[64];

    for (uint64_t n = 1; n < 20; n++) {
        void *dep = marker_after(q, 1, &latch_ev); /* anew: what succeeds keeps its own */
        bool  is_it;

        soft.fail_at(n, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, 0);
        (void)ops->prefetch(queue, where, sizeof(where), 1, &dep, NULL);
        is_it = strcmp(soft.failed_call(), "zeCommandListAppendMemoryPrefetch") == 0;
        soft.fail_at(0, 0, 0);
        if (is_it)
            return dep;
        ops->event_release(dep);
    }
    CHECK(false);
    return NULL;
}

/* What was appended still looks at the dependency's event when that has ended and nobody else has
 * it: used again meanwhile, it would never be seen signalled. */
static void half_a_command_keeps_the_events_it_waits_for(void)
{
    enum { TAKEN = 32 };
    void *other = NULL, *dep, *taken[TAKEN], *handle, *end;
    latch first, second;
    bool  has_ended;

    needs_commands();
    needs_soft();
    open_with(USM_QUEUE_PROFILING); /* whose events are of the kind that handles have, too */
    CHECK_INT(ops->queue_create(ctx, dev->handle, USM_QUEUE_PROFILING, &other), USM_OK);
    first  = latch_new();
    second = latch_new();
    ops->event_release(marker_after(other, 1, &second.ev)); /* so `other` looks at nothing yet */
    dep = prefetch_half(other, first.ev);
    latch_open(&first);
    finish(dep);
    finish(marker_after(q, 0, NULL));
    CHECK_INT(ops->queue_wait(q), USM_OK);
    for (int i = 0; i < TAKEN; i++) {
        taken[i] = user_event();
        CHECK_INT(ops->event_native(taken[i], &handle), USM_OK);
    }
    latch_open(&second);
    end       = marker_after(other, 0, NULL);
    has_ended = ends_soon(end);
    for (int i = 0; i < TAKEN; i++)
        ops->event_release(taken[i]);
    CHECK(has_ended);
    finish(end);
    ops->queue_destroy(other);
    latch_free(&first);
    latch_free(&second);
    close_all();
}

/* --- tangles ---------------------------------------------------------------------------------- */

enum { PLACES = 256, QUEUES = 8, TANGLERS = 4 };

/* Where a thread finds what others made.  A command reads the cell of one place and writes its own:
 * any order that respects the events fills all cells. */
typedef struct place {
    pthread_mutex_t lock;
    void           *ev;
    long           *cell;
} place;

static struct {
    place       places[PLACES];
    void       *queues[QUEUES];
    long       *cells;
    atomic_long ncells;
    atomic_int  notified, to_tell;
    int         commands;
    bool        fails; /* the driver does: what is refused is left out */
} tangle;

static void on_tangle(void *arg, usm_status status)
{
    (void)arg;
    (void)status;
    atomic_fetch_add(&tangle.notified, 1);
}

static void lock_two(size_t a, size_t b)
{
    pthread_mutex_lock(&tangle.places[a < b ? a : b].lock);
    if (a != b)
        pthread_mutex_lock(&tangle.places[a < b ? b : a].lock);
}

static void unlock_two(size_t a, size_t b)
{
    pthread_mutex_unlock(&tangle.places[a].lock);
    if (a != b)
        pthread_mutex_unlock(&tangle.places[b].lock);
}

/* From place a, behind a, b and perhaps a gate; then it stands in place b. */
static void tangle_one(size_t a, size_t b, unsigned kind, void *gate)
{
    void *queue   = tangle.queues[kind % QUEUES];
    long *cell    = &tangle.cells[atomic_fetch_add(&tangle.ncells, 1)];
    void *deps[3] = {tangle.places[a].ev, tangle.places[b].ev, gate};
    void *ev      = NULL;

    if (ops->copy(queue, cell, tangle.places[a].cell, sizeof(long), gate ? 3 : 2, deps, &ev)) {
        CHECK(tangle.fails);
        *cell = 4711;
        return;
    }
    if (kind % 16 == 1) {
        atomic_fetch_add(&tangle.to_tell, 1);
        if (ops->event_notify(ev, on_tangle, NULL)) {
            CHECK(tangle.fails);
            atomic_fetch_sub(&tangle.to_tell, 1);
        }
    }
    if (kind % 32 == 5)
        CHECK(ops->barrier(queue, 0, NULL, NULL) == USM_OK || tangle.fails);
    if (kind % 32 == 6)
        CHECK(ops->prefetch(queue, cell, sizeof(long), 1, &ev, NULL) == USM_OK || tangle.fails);
    if (kind % 64 == 9)
        (void)ops->event_query(ev);
    ops->event_release(tangle.places[b].ev);
    tangle.places[b].ev   = ev;
    tangle.places[b].cell = cell;
}

static void *tangle_thread(void *arg)
{
    unsigned state = (unsigned)(uintptr_t)arg;
    void    *gate  = NULL;

    for (int i = 0; i < tangle.commands; i++) {
        size_t   a = next_random(&state) % PLACES, b = next_random(&state) % PLACES;
        unsigned kind = next_random(&state);

        if (kind % 256 == 3 && !gate && ops->event_create_user(ctx, &gate))
            gate = NULL;
        lock_two(a, b);
        tangle_one(a, b, kind, kind % 8 == 3 ? gate : NULL);
        unlock_two(a, b);
        if (gate && kind % 16 == 4) {
            CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
            ops->event_release(gate);
            gate = NULL;
        }
        if (kind % 512 == 7 && !gate)
            CHECK(ops->queue_wait(tangle.queues[kind / 512 % QUEUES]) == USM_OK || tangle.fails);
    }
    if (gate) {
        CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
        ops->event_release(gate);
    }
    return NULL;
}

/* A context over all devices, with queues of all kinds on each. */
static void tangle_open(int commands)
{
    size_t size = ((size_t)commands * TANGLERS + PLACES) * sizeof(long);

    module_start();
    memset(&tangle, 0, sizeof(tangle));
    tangle.commands = commands;
    ctx             = context_of(ndevices, devices);
    tangle.cells    = allocate_in(ctx, USM_HOST, size);
    memset(tangle.cells, 0, size);
    for (size_t i = 0; i < QUEUES; i++)
        CHECK_INT(ops->queue_create(ctx, devices[i / 4 % ndevices].handle, (uint32_t)i % 4,
                                    &tangle.queues[i]),
                  USM_OK);
    for (size_t i = 0; i < PLACES; i++) {
        place *p = &tangle.places[i];

        pthread_mutex_init(&p->lock, NULL);
        p->cell  = &tangle.cells[i];
        *p->cell = 4711;
        p->ev    = marker_after(tangle.queues[i % QUEUES], 0, NULL);
    }
    tangle.ncells = PLACES;
}

static void tangle_run(void)
{
    pthread_t threads[TANGLERS];

    for (size_t i = 0; i < TANGLERS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, tangle_thread, (void *)(i + 1)), 0);
    for (size_t i = 0; i < TANGLERS; i++)
        pthread_join(threads[i], NULL);
}

static void tangle_close(void)
{
    size_t size = ((size_t)tangle.commands * TANGLERS + PLACES) * sizeof(long);

    for (size_t i = 0; i < QUEUES; i++)
        CHECK(ops->queue_wait(tangle.queues[i]) == USM_OK || tangle.fails);
    for (long i = 0; i < tangle.ncells && !tangle.fails; i++)
        CHECK_INT(tangle.cells[i], 4711);
    wait_until(&tangle.notified, tangle.to_tell);
    for (size_t i = 0; i < PLACES; i++) {
        ops->event_release(tangle.places[i].ev);
        pthread_mutex_destroy(&tangle.places[i].lock);
    }
    for (size_t i = 0; i < QUEUES; i++)
        ops->queue_destroy(tangle.queues[i]);
    CHECK_INT(ops->mem_free(ctx, USM_HOST, tangle.cells, size), USM_OK);
    close_context();
}

static int scaled(int n)
{
    const char *factor = getenv("USM_TEST_SCALE");

    return factor ? n * atoi(factor) : n;
}

static void threads_tangle_queues_and_devices(void)
{
    uint64_t live;

    needs_commands();
    needs_soft();
    live = soft.live();
    tangle_open(scaled(PLAIN_SANITIZED ? 500 : 2500));
    tangle_run();
    tangle_close();
    expect_live(live);
}

/* Now and then a call of the driver finds no memory: some commands are refused, no other suffers.
 */
static void a_tangle_survives_a_driver_that_fails(void)
{
    uint64_t live;

    needs_commands();
    needs_soft();
    live = soft.live();
    for (unsigned round = 1; round <= 30; round++) {
        tangle_open(40);
        tangle.fails = true;
        soft.fail_at(1 + round * 37, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, 0);
        tangle_run();
        soft.fail_at(0, 0, 0);
        tangle_close();
        expect_live(live);
    }
}

/* --- callbacks -------------------------------------------------------------------------------- */

typedef struct owned {
    void *queue, *ev;
} owned;

static void give_back(void *arg, usm_status status)
{
    owned *o = arg;

    ops->event_release(o->ev);
    ops->queue_destroy(o->queue);
    atomic_fetch_add(status ? &heard.wrong : &heard.n, 1);
}

static void a_callback_gives_back_the_queue_it_comes_from(void)
{
    enum { MANY = 60 };
    static owned o[MANY];
    static char  to[MANY][5][4];

    needs_commands();
    open_context();
    heard.n = heard.wrong = 0;
    for (unsigned i = 0; i < MANY; i++) {
        CHECK_INT(ops->queue_create(ctx, dev->handle, i % 4, &o[i].queue), USM_OK);
        for (int k = 0; k < 5; k++)
            CHECK_INT(ops->copy(o[i].queue, to[i][k], "abcd", 4, 0, NULL, k == 3 ? &o[i].ev : NULL),
                      USM_OK);
        CHECK_INT(ops->event_notify(o[i].ev, give_back, &o[i]), USM_OK);
    }
    close_context(); /* waits until all is gone */
    CHECK_INT(heard.n, MANY);
    CHECK_INT(heard.wrong, 0);
}

static void give_back_all(void *arg, usm_status status)
{
    atomic_fetch_add(status ? &heard.wrong : &heard.n, 1);
    ops->event_release(arg);
    ops->context_destroy(ctx);
}

/* The handle that was asked for lies in the context's pools. */
static void a_callback_gives_back_the_context_of_its_event(void)
{
    void *ev, *handle = NULL;

    needs_commands();
    open_context();
    heard.n = heard.wrong = 0;
    ev                    = user_event();
    CHECK_INT(ops->event_native(ev, &handle), USM_OK);
    CHECK_INT(ops->event_signal(ev, USM_OK), USM_OK);
    CHECK_INT(ops->event_notify(ev, give_back_all, ev), USM_OK);
    CHECK_INT(heard.n, 1);
    module_clean();
}

/* --- many
 * ----------------------------------------------------------------------------------------- */

static void hundreds_of_queues_are_given_up_with_work_behind_one_event(void)
{
    enum { MANY = 300 };
    static void *queues[MANY];
    static char  to[MANY];
    uint64_t     live;
    latch        l;

    needs_commands();
    needs_soft();
    live = soft.live();
    open_context();
    memset(to, 0, MANY);
    l = latch_new();
    for (unsigned i = 0; i < MANY; i++) {
        CHECK_INT(ops->queue_create(ctx, dev->handle, i % 4, &queues[i]), USM_OK);
        CHECK_INT(ops->copy(queues[i], &to[i], "x", 1, 1, &l.ev, NULL), USM_OK);
    }
    for (unsigned i = 0; i < MANY; i++)
        ops->queue_destroy(queues[i]);
    CHECK_INT(to[0] | to[MANY - 1], 0);
    latch_open(&l);
    ops->event_release(l.ev);
    ops->context_destroy(ctx);
    module_clean(); /* waits until all is gone */
    CHECK(!memchr(to, 0, MANY));
    CHECK_INT(lz.zeEventDestroy(l.native.event), 0);
    CHECK_INT(lz.zeEventPoolDestroy(l.native.pool), 0);
    expect_live(live);
}

static void wait_lists_may_be_very_long(void)
{
    enum { MANY = 5000 };
    static void *evs[MANY];
    void        *queues[4], *all;
    latch        l;

    needs_commands();
    open_context();
    l = latch_new();
    for (uint32_t i = 0; i < 4; i++)
        CHECK_INT(ops->queue_create(ctx, dev->handle, i, &queues[i]), USM_OK);
    for (size_t i = 0; i < MANY; i++)
        evs[i] = marker_after(queues[i % 4], i < 4, &l.ev);
    for (size_t i = 0; i < 4; i++) {
        all = marker_after(queues[i], MANY, evs);
        CHECK_INT(ops->barrier(queues[i], MANY, evs, NULL), USM_OK);
        if (i == 3) {
            CHECK_INT(ops->event_query(all), USM_E_NOT_READY);
            latch_open(&l);
        }
        ops->event_release(all);
    }
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(ops->queue_wait(queues[i]), USM_OK);
    for (size_t i = 0; i < MANY; i++)
        finish(evs[i]);
    for (size_t i = 0; i < 4; i++)
        ops->queue_destroy(queues[i]);
    latch_free(&l);
    close_context();
}

/* Out of order every other one is free.  What is held back is looked at when something changed, not
 * for each command anew: that would take minutes. */
static void many_thousands_of_commands_are_held_back(void)
{
    const int commands = PLAIN_SANITIZED ? 5000 : 40000;
    void     *gate, *end;
    char     *p;

    needs_commands();
    for (uint32_t flags = 0; flags < 2; flags++) {
        open_with(flags & USM_QUEUE_OUT_OF_ORDER);
        p    = allocate_in(ctx, USM_HOST, (size_t)commands);
        gate = user_event();
        memset(p, 0, (size_t)commands);
        for (int i = 0; i < commands; i++)
            CHECK_INT(ops->copy(q, p + i, "x", 1, i % 2, &gate, NULL), USM_OK);
        end = marker_after(q, 0, NULL);
        CHECK_INT(p[1] | p[commands - 1], 0);
        CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
        finish(end);
        CHECK(!memchr(p, 0, (size_t)commands));
        ops->event_release(gate);
        CHECK_INT(ops->mem_free(ctx, USM_HOST, p, (size_t)commands), USM_OK);
        close_all();
    }
}

/* --- lost devices
 * --------------------------------------------------------------------------------- */

/* The lane of a lost command is gone, and the heap may give its place to the next one, which is not
 * that command's; here it does so for certain. */
static void the_next_queue_is_not_taken_for_the_lost_one(void)
{
    void *stuck, *next = NULL, *ev = NULL;
    latch never;
    char *p;

    CHECK(ndevices > 1);
    module_start();
    ctx = context_of(ndevices, devices);
    CHECK_INT(ops->queue_create(ctx, dev->handle, 0, &q), USM_OK);
    p     = allocate_in(ctx, USM_HOST, N);
    p[0]  = 0;
    never = latch_new();
    stuck = marker_after(q, 1, &never.ev);
    soft.lose(0);
    CHECK_INT(ops->event_wait(stuck), USM_E_DEVICE_LOST);
    ops->queue_destroy(q);
    CHECK_INT(ops->queue_create(ctx, devices[1].handle, 0, &next), USM_OK);
    ((lz_event *)stuck)->slot->stream = ((lz_queue *)next)->streams[0];
    CHECK_INT(ops->copy(next, p, "no", 3, 1, &stuck, &ev), USM_OK);
    CHECK_INT(ops->event_wait(ev), USM_E_DEPENDENCY);
    CHECK_INT(ops->queue_wait(next), USM_OK);
    CHECK_INT(p[0], 0);
    ops->event_release(ev);
    ops->event_release(stuck);
    ops->event_release(never.ev);
    ops->queue_destroy(next);
    CHECK_INT(lz.zeEventDestroy(never.native.event), 0);
    CHECK_INT(lz.zeEventPoolDestroy(never.native.pool), 0);
    CHECK_INT(ops->mem_free(ctx, USM_HOST, p, N), USM_OK);
    ops->context_destroy(ctx);
    module_clean();
}

/* What the other device's queue has is lost with it; new queues of that one work. */
static void a_lost_device_hangs_no_other(void)
{
    void *lost, *behind, *last, *other = NULL;
    latch never;
    char *p;

    CHECK(ndevices > 1);
    module_start();
    ctx = context_of(ndevices, devices);
    CHECK_INT(ops->queue_create(ctx, dev->handle, 0, &q), USM_OK);
    CHECK_INT(ops->queue_create(ctx, devices[1].handle, 0, &other), USM_OK);
    p      = allocate_in(ctx, USM_HOST, N);
    p[0]   = 0;
    never  = latch_new();
    lost   = marker_after(q, 1, &never.ev);
    behind = marker_after(other, 1, &lost);
    last   = marker_after(other, 0, NULL);
    soft.lose(0);
    CHECK(ends_soon(behind) && ends_soon(last));
    CHECK_INT(ops->event_wait(behind), USM_E_DEVICE_LOST);
    CHECK_INT(ops->queue_wait(other), USM_E_DEVICE_LOST);
    ops->queue_destroy(other);
    CHECK_INT(ops->queue_create(ctx, devices[1].handle, 0, &other), USM_OK);
    CHECK_INT(ops->copy(other, p, "yes", 4, 0, NULL, NULL), USM_OK);
    CHECK_INT(ops->queue_wait(other), USM_OK);
    CHECK_STR(p, "yes");
    ops->event_release(lost);
    ops->event_release(behind);
    ops->event_release(last);
    ops->event_release(never.ev);
    ops->queue_destroy(q);
    ops->queue_destroy(other);
    CHECK_INT(lz.zeEventDestroy(never.native.event), 0);
    CHECK_INT(lz.zeEventPoolDestroy(never.native.pool), 0);
    CHECK_INT(ops->mem_free(ctx, USM_HOST, p, N), USM_OK);
    ops->context_destroy(ctx);
    module_clean();
}

static void *lose_soon(void *arg)
{
    module_sleep_ms((long)(intptr_t)arg);
    soft.lose(0);
    return NULL;
}

static void a_device_is_lost_in_a_tangle(void)
{
    const char *ms   = getenv("USM_TEST_LOSE_MS");
    uint64_t    live = soft.live();
    pthread_t   thread;

    tangle_open(2500);
    tangle.fails = true;
    CHECK_INT(pthread_create(&thread, NULL, lose_soon, (void *)(intptr_t)(ms ? atoi(ms) : 5)), 0);
    tangle_run();
    pthread_join(thread, NULL);
    tangle_close();
    expect_live(live);
}

static uint64_t live_at_exit;

/* The program's own handler, which runs behind the backend's. */
static void give_back_at_exit(void)
{
    live_at_exit = soft.live();
    ops->queue_destroy(q);
    ops->context_destroy(ctx);
    if (soft.live() != live_at_exit)
        _exit(1);
}

/* Then the driver may be gone, and a context may not go before its queues. */
static void nothing_is_given_back_while_the_process_ends(void)
{
    latch never;

    module_start();
    CHECK_INT(atexit(give_back_at_exit), 0);
    ctx = context_of(1, dev);
    CHECK_INT(ops->queue_create(ctx, dev->handle, 0, &q), USM_OK);
    never = latch_new();
    ops->event_release(marker_after(q, 1, &never.ev));
    ops->event_release(never.ev);
}

static const plain_case others[] = {
    CASE(the_next_queue_is_not_taken_for_the_lost_one),
    CASE(a_lost_device_hangs_no_other),
    CASE(a_device_is_lost_in_a_tangle),
    CASE(nothing_is_given_back_while_the_process_ends),
    {NULL, NULL},
};

static void lost_devices_and_dying_processes_leave_nothing_stuck(void)
{
    static const char *const delays[] = {"USM_TEST_LOSE_MS=1", "USM_TEST_LOSE_MS=4",
                                         "USM_TEST_LOSE_MS=9", "USM_TEST_LOSE_MS=20"};

    needs_commands();
    needs_soft();
    CHECK_INT(setenv("USM_TEST_LISTS", is_regular() ? "regular" : "", 1), 0);
    for (const plain_case *c = others; c->name; c++)
        for (size_t i = 0; i < (c->run == a_device_is_lost_in_a_tangle ? 4 : 1); i++)
            ends_well(start_self(c->name, delays[i], -1));
}

/* As another process. */
static int run_other(const plain_case *c)
{
    const char *lists = getenv("USM_TEST_LISTS");

    lz_host = &module_api;
    be_other();
    load_functions();
    module.lists = lists && *lists ? lists : NULL;
    c->run();
    return 0;
}

static const plain_case cases[] = {
    CASE(half_a_command_keeps_the_events_it_waits_for),
    CASE(threads_tangle_queues_and_devices),
    CASE(a_tangle_survives_a_driver_that_fails),
    CASE(a_callback_gives_back_the_queue_it_comes_from),
    CASE(a_callback_gives_back_the_context_of_its_event),
    CASE(hundreds_of_queues_are_given_up_with_work_behind_one_event),
    CASE(wait_lists_may_be_very_long),
    CASE(many_thousands_of_commands_are_held_back),
    CASE(lost_devices_and_dying_processes_leave_nothing_stuck),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    for (const plain_case *c = others; c->name; c++)
        if (argc > 1 && strcmp(argv[1], c->name) == 0)
            return run_other(c);
    return lists_main(argc, argv, cases, NULL);
}
