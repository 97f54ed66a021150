/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The Level Zero backend: queues over streams of the program, events of the program, and ours as
 * the program sees them. */
#include "level_zero_lists.h"

/* --- handles ---------------------------------------------------------------------------------- */

typedef enum kind_of_stream { LIST, ORDERED_LIST, COMMAND_QUEUE, KINDS_OF_STREAM } kind_of_stream;

static usm_level_zero_queue native_stream(kind_of_stream kind)
{
    usm_level_zero_queue    s    = USM_LEVEL_ZERO_QUEUE_INIT;
    ze_command_queue_desc_t desc = {
        .stype   = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
        .ordinal = device()->ordinal,
        .mode    = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
    };
    ze_command_list_handle_t  list  = NULL;
    ze_command_queue_handle_t queue = NULL;

    if (kind == ORDERED_LIST)
        desc.flags = LZ_COMMAND_QUEUE_FLAG_IN_ORDER;
    if (kind == COMMAND_QUEUE)
        CHECK_INT(lz.zeCommandQueueCreate(native_context(), device()->native, &desc, &queue), 0);
    else
        CHECK_INT(lz.zeCommandListCreateImmediate(native_context(), device()->native, &desc, &list),
                  0);
    s.command_list  = list;
    s.command_queue = queue;
    s.device        = device()->native;
    s.ordinal       = device()->ordinal;
    s.is_in_order   = kind == ORDERED_LIST;
    return s;
}

static void destroy_stream(const usm_level_zero_queue *s)
{
    if (s->command_list)
        CHECK_INT(lz.zeCommandListDestroy(s->command_list), 0);
    if (s->command_queue)
        CHECK_INT(lz.zeCommandQueueDestroy(s->command_queue), 0);
}

/* 200 copies, each of what the one before wrote. */
static void use_queue(void)
{
    long *p  = allocate_in(ctx, USM_HOST, 201 * sizeof(long));
    void *ev = NULL;

    p[0] = 4711;
    for (int i = 0; i < 200; i++) {
        CHECK_INT(ops->copy(q, &p[i + 1], &p[i], sizeof(long), 0, NULL, i % 7 ? NULL : &ev),
                  USM_OK);
        if (i % 7 == 0)
            ops->event_release(ev);
    }
    CHECK_INT(ops->queue_wait(q), USM_OK);
    CHECK_INT(p[200], 4711);
    CHECK_INT(ops->mem_free(ctx, USM_HOST, p, 201 * sizeof(long)), USM_OK);
}

static void queues_over_native_streams_keep_their_order(void)
{
    uint64_t live;

    needs_commands();
    needs_soft();
    live = soft.live();
    for (int kind = LIST; kind < KINDS_OF_STREAM; kind++)
        for (int ownership = USM_KEEP; ownership <= USM_TRANSFER; ownership++) {
            usm_level_zero_queue s, *back;
            void                *d     = NULL, *native;
            uint32_t             flags = 99;

            if (kind == ORDERED_LIST && !device()->driver->has_in_order)
                continue;
            open_context();
            s = native_stream((kind_of_stream)kind);
            CHECK_INT(ops->queue_from_native(ctx, &s, (usm_ownership)ownership, &q, &d, &flags),
                      USM_OK);
            CHECK(d == dev->handle && flags == USM_QUEUE_IN_ORDER);
            CHECK_INT(ops->queue_native(q, &native), USM_OK);
            back = native;
            CHECK(back->command_list == s.command_list && back->command_queue == s.command_queue);
            CHECK(back->device == s.device && back->struct_size == sizeof(*back));
            use_queue();
            ops->queue_destroy(q);
            if (ownership == USM_KEEP)
                destroy_stream(&s);
            close_context();
            expect_live(live);
        }
}

static void half_described_native_queues_are_refused(void)
{
    usm_level_zero_queue s = USM_LEVEL_ZERO_QUEUE_INIT, none = s;
    void                *made = &s, *d = &s;
    uint32_t             flags = 99;

    needs_commands();
    open_context();
    s                 = native_stream(LIST);
    none              = s;
    none.command_list = NULL;
    CHECK_INT(ops->queue_from_native(ctx, &none, USM_KEEP, &made, &d, &flags), USM_E_INVALID);
    none               = s;
    none.command_queue = s.command_list;
    CHECK_INT(ops->queue_from_native(ctx, &none, USM_KEEP, &made, &d, &flags), USM_E_INVALID);
    none        = s;
    none.device = NULL;
    CHECK_INT(ops->queue_from_native(ctx, &none, USM_KEEP, &made, &d, &flags), USM_E_INVALID);
    none             = s;
    none.struct_size = 8;
    CHECK_INT(ops->queue_from_native(ctx, &none, USM_KEEP, &made, &d, &flags), USM_E_ABI);
    if (ndevices > 1) {
        none        = s;
        none.device = ((lz_device *)devices[1].handle)->native;
        CHECK_INT(ops->queue_from_native(ctx, &none, USM_KEEP, &made, &d, &flags), USM_E_INVALID);
    }
    CHECK(made == &s && d == &s && flags == 99);
    destroy_stream(&s);
    close_context();
}

static void commands_wait_for_an_event_of_the_program(void)
{
    native_event e;
    char        *p;
    void        *theirs = NULL, *behind;

    needs_commands();
    for (int ownership = USM_KEEP; ownership <= USM_TRANSFER; ownership++) {
        usm_profiling t = USM_PROFILING_INIT;

        open_with(0);
        heard.n = heard.wrong = 0;
        p                     = allocate_in(ctx, USM_SHARED, N);
        p[0]                  = 0;
        e                     = native_event_new();
        CHECK_INT(ops->event_from_native(ctx, e.event, (usm_ownership)ownership, &theirs), USM_OK);
        behind = copy_after(p, "behind", 7, 1, &theirs);
        CHECK_INT(ops->event_notify(theirs, on_hear, &heard), USM_OK);
        CHECK_INT(ops->event_query(theirs), USM_E_NOT_READY);
        module_sleep_ms(20);
        CHECK_INT(ops->event_query(behind), USM_E_NOT_READY);
        CHECK_INT(p[0] | heard.n, 0);
        CHECK_INT(lz.zeEventHostSignal(e.event), 0);
        finish(behind);
        CHECK_STR(p, "behind");
        CHECK_INT(ops->event_wait(theirs), USM_OK);
        CHECK_INT(ops->event_profiling(theirs, &t), USM_E_NOT_SUPPORTED);
        for (int i = 0; i < 10000 && !atomic_load(&heard.n); i++)
            module_sleep_ms(1);
        CHECK_INT(heard.n, 1);
        CHECK_INT(heard.wrong, 0);
        ops->event_release(theirs);
        CHECK_INT(ops->queue_wait(q), USM_OK);
        ops->queue_destroy(q);
        if (ownership == USM_KEEP) { /* it is as the program left it */
            CHECK_INT(lz.zeEventQueryStatus(e.event), 0);
            CHECK_INT(lz.zeEventDestroy(e.event), 0);
        }
        CHECK_INT(lz.zeEventPoolDestroy(e.pool), 0);
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
        close_context();
    }
}

static void handles_of_events_are_signalled_with_them(void)
{
    usm_level_zero_queue s;
    native_event         copied;
    char                *p;
    void                *gate, *held, *done, *failed, *h_gate = NULL, *h_held = NULL, *h = NULL;
    ze_event_handle_t    both[2];

    needs_commands();
    for (int profiling = 0; profiling < 2; profiling++) {
        open_with(profiling ? USM_QUEUE_PROFILING : 0);
        p      = allocate_in(ctx, USM_SHARED, N);
        s      = native_stream(LIST); /* the program's own */
        copied = native_event_new();
        gate   = user_event();
        failed = user_event();
        held   = copy_after(p, "held", 5, 1, &gate);
        CHECK_INT(ops->event_native(gate, &h_gate), USM_OK);
        CHECK_INT(ops->event_native(held, &h_held), USM_OK);
        CHECK_INT(ops->event_native(held, &h), USM_OK);
        CHECK(h_gate != h_held && h == h_held);
        both[0] = h_gate;
        both[1] = h_held;
        CHECK_INT(
            lz.zeCommandListAppendMemoryCopy(s.command_list, p + 64, p, 5, copied.event, 2, both),
            0);
        module_sleep_ms(10);
        CHECK_INT(lz.zeEventQueryStatus(h_gate), ZE_RESULT_NOT_READY);
        CHECK_INT(lz.zeEventQueryStatus(h_held), ZE_RESULT_NOT_READY);
        CHECK_INT(ops->event_signal(gate, USM_OK), USM_OK);
        CHECK_INT(lz.zeEventHostSynchronize(h_held, UINT64_MAX), 0);
        CHECK_INT(lz.zeEventQueryStatus(h_gate), 0);
        CHECK_INT(ops->event_wait(held), USM_OK);
        CHECK_INT(ops->event_native(held, &h), USM_OK);
        CHECK(h == h_held);
        CHECK_INT(ops->event_signal(failed, USM_E_DEVICE), USM_OK); /* it ends all the same */
        CHECK_INT(ops->event_native(failed, &h), USM_OK);
        CHECK_INT(lz.zeEventQueryStatus(h), 0);
        done = copy_after(p + 128, "done", 5, 0, NULL);
        CHECK_INT(ops->event_native(done, &h), USM_OK);
        CHECK_INT(lz.zeEventHostSynchronize(h, UINT64_MAX), 0);
        CHECK_INT(lz.zeEventHostSynchronize(copied.event, UINT64_MAX), 0);
        CHECK_STR(p + 64, "held");
        CHECK_STR(p + 128, "done");
        destroy_stream(&s);
        CHECK_INT(lz.zeEventDestroy(copied.event), 0);
        CHECK_INT(lz.zeEventPoolDestroy(copied.pool), 0);
        ops->event_release(gate);
        ops->event_release(failed);
        ops->event_release(held);
        finish(done);
        CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
        close_all();
    }
}

/* --- who is told ----------------------------------------------------------------------------- */

/* A command that waits for an event of the program, which the driver has: not one that is held. */
typedef struct stalled {
    native_event e;
    void        *theirs, *behind;
} stalled;

static stalled stall(char *to)
{
    stalled s = {.e = native_event_new()};

    CHECK_INT(ops->event_from_native(ctx, s.e.event, USM_KEEP, &s.theirs), USM_OK);
    s.behind = copy_after(to, "x", 1, 1, &s.theirs);
    return s;
}

static void go_on(const stalled *s)
{
    CHECK_INT(lz.zeEventHostSignal(s->e.event), 0);
}

static void stalled_end(stalled *s)
{
    finish(s->behind);
    ops->event_release(s->theirs);
    CHECK_INT(ops->queue_wait(q), USM_OK);
    CHECK_INT(lz.zeEventDestroy(s->e.event), 0);
    CHECK_INT(lz.zeEventPoolDestroy(s->e.pool), 0);
}

static void on_end(void *arg, usm_status status)
{
    atomic_store((atomic_int *)arg, status ? -1 : 1);
}

static void who_waits_for_an_earlier_command_is_told_first(void)
{
    enum { COMMANDS = 3 };
    atomic_int notified[COMMANDS] = {0};
    stalled    s[COMMANDS];
    char      *p;

    needs_commands();
    open_with(0);
    p = allocate_in(ctx, USM_SHARED, N);
    for (int i = 0; i < COMMANDS; i++)
        s[i] = stall(p + i);
    for (int i = 0; i < COMMANDS; i++)
        CHECK_INT(ops->event_notify(s[i].behind, on_end, &notified[i]), USM_OK);
    for (int i = 0; i < COMMANDS; i++) {
        go_on(&s[i]);
        for (int ms = 0; ms < 10000 && !atomic_load(&notified[i]); ms++)
            module_sleep_ms(1);
        CHECK_INT(notified[i], 1);
        CHECK_INT(i + 1 < COMMANDS ? notified[i + 1] : 0, 0);
    }
    for (int i = 0; i < COMMANDS; i++)
        stalled_end(&s[i]);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
    close_all();
}

static void an_event_whose_callback_got_no_thread_stays_whole(void)
{
    enum { NEXT = 4 };
    stalled first, next[NEXT];
    char   *p;

    needs_commands();
    open_with(0);
    p     = allocate_in(ctx, USM_SHARED, N);
    first = stall(p);
    CHECK(usm__fault_arm("os.thread", 1, false, USM_OK));
    CHECK_INT(ops->event_notify(first.behind, on_hear, &heard), USM_E_SYSTEM);
    CHECK_IN("no thread", usm_last_error());
    usm__fault_disarm_all();
    go_on(&first);
    CHECK_INT(ops->event_wait(first.behind), USM_OK);
    CHECK_INT(ops->queue_wait(q), USM_OK);
    for (int i = 0; i < NEXT; i++) /* they take driver events that nobody holds any more */
        next[i] = stall(p + 1 + i);
    CHECK_INT(ops->event_query(first.behind), USM_OK);
    for (int i = 0; i < NEXT; i++) {
        CHECK_INT(ops->event_query(next[i].behind), USM_E_NOT_READY);
        go_on(&next[i]);
    }
    for (int i = 0; i < NEXT; i++)
        stalled_end(&next[i]);
    stalled_end(&first);
    CHECK_INT(ops->mem_free(ctx, USM_SHARED, p, N), USM_OK);
    close_all();
}

static const plain_case cases[] = {
    CASE(queues_over_native_streams_keep_their_order),
    CASE(half_described_native_queues_are_refused),
    CASE(commands_wait_for_an_event_of_the_program),
    CASE(handles_of_events_are_signalled_with_them),
    CASE(who_waits_for_an_earlier_command_is_told_first),
    CASE(an_event_whose_callback_got_no_thread_stays_whole),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return lists_main(argc, argv, cases, NULL);
}
