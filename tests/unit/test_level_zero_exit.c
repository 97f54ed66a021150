/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The Level Zero backend: a process ends while a thread of the backend sleeps in the driver.  Real
 * drivers are torn down by exit(): Intel's fell in 15 of 100 such runs
 * (backends/level_zero/exit.c). Needs no command that moves data, so it runs on a driver without
 * its GPU, too. */
#include "level_zero_fixture.h"

enum { RUNS = 25 };

static void on_end(void *arg, usm_status status)
{
    (void)arg;
    (void)status;
}

/* As another process, which then returns from main(). */
static void leaves_with_a_notice_pending(void)
{
    for (uint32_t flags = 0; flags < 2; flags++) {
        void *ev = NULL;

        ctx = context_of(1, dev);
        CHECK_INT(ops->queue_create(ctx, dev->handle, flags ? USM_QUEUE_OUT_OF_ORDER : 0, &q),
                  USM_OK);
        CHECK_INT(ops->marker(q, 0, NULL, &ev), USM_OK);
        CHECK_INT(ops->event_notify(ev, on_end, NULL), USM_OK);
        ops->event_release(ev);
        ops->queue_destroy(q);
        ops->context_destroy(ctx);
    }
}

static void a_process_may_end_at_any_time(void)
{
    for (int i = 0; i < RUNS; i++)
        ends_well(start_self("leaves_with_a_notice_pending", "USM_TEST_RUN=1", -1));
}

static void leaves_with_a_command_that_never_ends(void)
{
    static void *gate, *theirs, *behind; /* never given back, and no leaks */
    void        *never = NULL;

    ctx = context_of(1, dev);
    CHECK_INT(ops->queue_create(ctx, dev->handle, 0, &q), USM_OK);
    CHECK_INT(ops->event_create_user(ctx, &gate), USM_OK);
    CHECK_INT(ops->event_native(gate, &never), USM_OK); /* nobody signals it */
    CHECK_INT(ops->event_from_native(ctx, never, USM_KEEP, &theirs), USM_OK);
    CHECK_INT(ops->marker(q, 1, &theirs, &behind), USM_OK);
    CHECK_INT(ops->event_notify(behind, on_end, NULL), USM_OK);
    CHECK_INT(ops->event_notify(theirs, on_end, NULL), USM_OK);
    module_sleep_ms(20);
}

static void a_process_may_end_with_commands_that_do_not(void)
{
    for (int i = 0; i < RUNS / 5; i++)
        ends_well(start_self("leaves_with_a_command_that_never_ends", "USM_TEST_RUN=1", -1));
}

static const plain_case cases[] = {
    CASE(the_software_driver_is_found_where_it_runs),
    CASE(a_process_may_end_at_any_time),
    CASE(a_process_may_end_with_commands_that_do_not),
    {NULL, NULL},
};

static const plain_case others[] = {
    CASE(leaves_with_a_notice_pending),
    CASE(leaves_with_a_command_that_never_ends),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return level_zero_main(argc, argv, cases, others);
}
