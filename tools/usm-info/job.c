/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The job, as libusm sees it: "mpirun -n 4 usm-info --job".  The tool links no MPI: the module that
 * fits the launcher loads it.  The tool joins as a server that lends what USM_SPILL_LEND says, or
 * nothing.  Without a launcher it says so.
 *
 * One process prints: the first of its kind.  The others stay until it has, so that it sees them.
 * In a program's launch (mpirun -n 4 PROGRAM : -n 1 usm-info --job) the tool stays as long as the
 * program, because MPI_Finalize() is collective.
 *
 * An MPI that does not match its launcher waits for ever, or ends the process: so there is a time
 * limit. */
#include "job.h"

#include "base/inline/atomic.h"
#include "base/job.h"
#include "base/os.h"
#include "base/settings.h"
#include "cluster/attach.h"
#include "cluster/cluster.h"
#include "show.h"
#include "table.h"

#include <usm/job.h>
#include <usm/status.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_S  30
#define SHOWN_MS 10000

static void on_alarm(int number)
{
    static const char text[] =
        "usm-info: MPI does not answer; was the tool started by that MPI's own mpirun?\n";
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);

    (void)number;
    (void)written;
    _exit(1);
}

/* The module that joins; NULL with an error message. */
static const usm_transport_ops *load(const char *const *names)
{
    const char              *named = usm__setting_text("mpi");
    const usm_transport_ops *ops   = NULL;

    if (*named && strcmp(named, "auto") != 0)
        return usm__cluster_load(named, &ops) == USM_OK ? ops : NULL;
    for (size_t i = 0; names[i]; i++)
        if (usm__cluster_load(names[i], &ops) == USM_OK)
            return ops;
    (void)usm__cluster_load(names[0], &ops); /* for the error message of the most likely one */
    return NULL;
}

static size_t describe(const usm_transport_ops *ops, void *job, bool as_json, char *text,
                       size_t cap)
{
    usm_text_format format = as_json ? USM_JSON : USM_TEXT;
    size_t          size   = 0;

    if (ops)
        return usm__job_describe_member(ops, job, format, text, cap);
    return usm_job_describe(format, text, cap, &size) == USM_OK ? size : 0;
}

static void show(const usm_transport_ops *ops, void *job, bool as_json)
{
    size_t size = describe(ops, job, as_json, NULL, 0) + 1024; /* numbers may become longer */
    char  *text = tool_alloc(size);

    (void)describe(ops, job, as_json, text, size);
    if (as_json)
        (void)printf("{\"schema\":%d,\"version\":\"%s\",\"job\":%s}\n", JSON_SCHEMA,
                     USM_VERSION_STRING, text);
    else
        (void)fputs(text, stdout);
    (void)fflush(stdout);
    free(text);
}

/* ---- among several of this tool -------------------------------------------------------------- */

#define TAG_SHOWN (USM__JOB_TAGS - 1)

static _Atomic(bool) is_shown;

static void message(void *user, uint32_t from, uint32_t tag, const void *data, size_t size)
{
    (void)user;
    (void)from;
    (void)data;
    (void)size;
    if (tag == TAG_SHOWN)
        usm_store_release(&is_shown, true);
}

static void member_changed(void *user, const usm_job_member *member)
{
    (void)user;
    (void)member; /* the table requires it */
}

/* All members are servers: each of them may be this tool, and the first one prints. */
static void show_once(const usm_transport_ops *ops, void *job, uint32_t self, bool as_json)
{
    uint32_t count = 0;

    if (self == 0) {
        show(ops, job, as_json);
        if (ops->members(job, &self, &count) == USM_OK)
            for (uint32_t i = 1; i < count; i++)
                (void)ops->send(job, i, TAG_SHOWN, "", 0);
        return;
    }
    for (int ms = 0; ms < SHOWN_MS && !usm_load_acquire(&is_shown); ms += 10)
        usm__os_sleep_ns(10000000);
}

/* Whether a member is a process of a program. */
static bool has_program(const usm_transport_ops *ops, void *job, uint32_t count)
{
    usm_job_member m;

    for (uint32_t i = 0; i < count; i++)
        if (ops->member(job, i, &m) == USM_OK && !m.is_server)
            return true;
    return false;
}

static int join(const usm_transport_ops *ops, bool as_json)
{
    static volatile int stop;
    usm_job_params      params;
    void               *job  = NULL;
    uint32_t            self = 0, count = 0;

    if (usm__cluster_params(&params) != USM_OK)
        return 1;
    params.is_server      = true;
    params.message        = message;
    params.member_changed = member_changed;
    (void)signal(SIGALRM, on_alarm);
    (void)alarm(LIMIT_S);
    if (ops->attach(&params, &job) != USM_OK || ops->members(job, &self, &count) != USM_OK)
        return 1;
    if (has_program(ops, job, count)) {
        show(ops, job, as_json);
        (void)alarm(0);
        (void)ops->serve(job, &stop);
        (void)alarm(LIMIT_S);
    } else {
        show_once(ops, job, self, as_json);
    }
    ops->detach(job, false);
    (void)alarm(0);
    return 0;
}

/* ---- the action ---------------------------------------------------------------------------- */

int job_report(bool as_json)
{
    const char *const       *names = usm__cluster_candidates();
    const usm_transport_ops *ops   = names ? load(names) : NULL;

    if (ops && join(ops, as_json) == 0)
        return 0;
    if (usm__launcher_place_get().rank > 0)
        return names ? 1 : 0;
    if (names)
        (void)fprintf(stderr, "usm-info: %s\n", usm_last_error());
    show(NULL, NULL, as_json); /* what the launcher said */
    return names ? 1 : 0;
}
