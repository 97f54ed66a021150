/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands of other runtimes in the trace (usm/trace.h).  Not here: who sees them
 * (tests/tools/test_usm_exec_queues.sh). */
#include "base/os.h"
#include "base/trace_work.h"
#include "plain.h"
#include "profile/trace.h"
#include "profile/work.h"

#include <string.h>
#include <usm/usm.h>

#define OK(call) CHECK_INT((call), USM_OK)

static char path[512];

static usm_command_record command_of(usm_command_kind kind, const char *queue, uint64_t begin_ns)
{
    usm_command_record r = USM_COMMAND_RECORD_INIT;

    r.kind     = kind;
    r.queue    = queue;
    r.begin_ns = begin_ns;
    r.end_ns   = begin_ns + 1000;
    r.size     = 64;
    return r;
}

static void record_commands(void)
{
    usm_command_record r;
    uint64_t           start;

    CHECK(setenv("USM_TRACE", path, 1) == 0);
    CHECK(usm_trace_is_on());
    start = usm__os_now_ns();
    while (usm__os_now_ns() < start + 10000)
        ;
    r        = command_of(USM_COMMAND_KERNEL, "first", start);
    r.kernel = "add_one";
    OK(usm_trace_command(&r));
    r.begin_ns += 2000;
    r.end_ns += 2000;
    OK(usm_trace_command(&r));
    r             = command_of(USM_COMMAND_COPY, "second", start + 3000);
    r.is_in_order = true;
    OK(usm_trace_command(&r));
    r = command_of(USM_COMMAND_MAP, "second", start + 5000);
    OK(usm_trace_command(&r));
    exit(0);
}

static void commands_are_in_the_trace(void)
{
    usm__profile            *t = NULL;
    usm__profile_work_usages u;

    (void)snprintf(path, sizeof path, "%s", plain_path("commands"));
    CHECK_INT(plain_child(record_commands, NULL), 0);
    OK(usm__profile_open(path, &t));
    CHECK_STR(t->damage, "");
    CHECK_INT(t->nworks, 4);
    for (size_t i = 0; i < 4; i++) { /* by time, which two clocks measure: in no certain order */
        const usm__profile_work_record *w = &t->works[i];

        CHECK_INT(w->ns, 1000);
        CHECK_INT(w->n, 64);
        CHECK(w->is_in_order == (w->kind == USM__WORK_QUEUE_COPY));
        CHECK_STR(usm__profile_work_kernel_name(t, w->kernel),
                  w->kind == USM__WORK_QUEUE_KERNEL ? "add_one" : "");
    }
    CHECK_INT(t->nkernels, 1);
    CHECK(usm__profile_work_count(t, &u));
    CHECK_INT(u.nqueues, 2);
    CHECK_INT(u.ndevices, 2);
    CHECK_STR(u.devices[0].name, "first");
    CHECK_INT(u.devices[0].commands, 2);
    CHECK(u.devices[0].kernel_ns >= 1000 && u.devices[0].kernel_ns <= 2000);
    CHECK_INT(u.devices[1].bytes_in, 128);
    CHECK_INT(u.devices[1].ngaps, 0);
    usm__profile_work_usages_free(&u);
    usm__profile_close(t);
}

static void wrong_commands_are_refused(void)
{
    usm_command_record r = command_of(USM_COMMAND_COPY, NULL, 5);

    CHECK_INT(usm_trace_command(NULL), USM_E_INVALID);
    CHECK_INT(usm_trace_command(&r), USM_E_INVALID);
    r.queue  = "queue";
    r.end_ns = 4;
    CHECK_INT(usm_trace_command(&r), USM_E_INVALID);
    r.end_ns = 5;
    r.kind   = (usm_command_kind)(USM_COMMAND_MAP + 1);
    CHECK_INT(usm_trace_command(&r), USM_E_INVALID);
    r.kind = USM_COMMAND_FILL;
    OK(usm_trace_command(&r)); /* no trace is written */
    CHECK(!usm_trace_is_on());
}

static const plain_case cases[] = {
    CASE(commands_are_in_the_trace),
    CASE(wrong_commands_are_refused),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
