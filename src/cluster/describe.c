/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm_job_describe(): the job and its members, as text and as JSON, written directly into the
 * caller's memory.  The module, which knows its MPI, says what the launch survives. */
#include "base/job.h"
#include "base/json.h"
#include "cluster/attach.h"
#include "cluster/internal.h"
#include "device/init.h"

#include <stdio.h>
#include <string.h>

/* Read once, so that both forms say the same. */
typedef struct view {
    usm_job_info             info;
    usm__launcher_place      place;
    uint32_t                 self, count; /* count: of members */
    char                     lines[4096]; /* the module's description */
    const usm_transport_ops *ops;         /* NULL: not attached */
    void                    *job;
} view;

static const char *name_of_state(usm_place_state state)
{
    switch (state) {
    case USM_PLACE_UP:
        return "up";
    case USM_PLACE_SLOW:
        return "slow";
    case USM_PLACE_LOST:
        return "lost";
    case USM_PLACE_LEAVING:
        return "leaving";
    }
    return "unknown";
}

/* Finds the next member, from *at on, and its rank.  *ranks counts the members that are not
 * servers. */
static bool next_member(const view *v, uint32_t *at, uint32_t *ranks, usm_job_member *m,
                        uint32_t *rank)
{
    for (; *at < v->count; (*at)++) {
        if (v->ops->member(v->job, *at, m) != USM_OK)
            continue;
        *rank = m->is_server ? USM__JOB_NO_RANK : (*ranks)++;
        (*at)++;
        return true;
    }
    return false;
}

/* ---- text ---------------------------------------------------------------------------- */

static const char *notifier(const char *source)
{
    static const char *const names[][2] = {{"mpi", "MPI"},
                                           {"socket", "usm_job_join()"},
                                           {"openmpi", "Open MPI's launcher"},
                                           {"pmi", "the launcher (PMI)"},
                                           {"pals", "PALS"},
                                           {"slurm", "Slurm"},
                                           {"flux", "Flux"}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], source) == 0)
            return names[i][1];
    return "nobody";
}

static void put_place(usm__out *o, const view *v)
{
    const usm_job_info *i = &v->info;

    if (!i->is_job) {
        usm__out_put(o,
                     "no job: no launcher has left its variables, and neither usm_mpi_attach() nor "
                     "usm_job_join() was called\nhost: %s\n",
                     i->host);
        return;
    }
    usm__out_put(o, "rank %u of %u, as %s says\n", i->rank, i->size, notifier(i->source));
    if (v->place.is_local_known)
        usm__out_put(o, "on %s: %u of %u\n", i->host, i->local_rank, i->local_size);
    else
        usm__out_put(o,
                     "on %s: which other ranks are there is not known before "
                     "usm_mpi_attach()\n",
                     i->host);
}

static void put_member(usm__out *o, const usm_job_member *m, uint32_t rank, bool is_self)
{
    usm__size_text lends, held;
    char           who[24];

    if (rank != USM__JOB_NO_RANK)
        (void)snprintf(who, sizeof who, "rank %u%s", rank, is_self ? " *" : "");
    else
        (void)snprintf(who, sizeof who, "server%s", is_self ? " *" : "");
    usm__out_put(o, "  %-12s %-8s %-20s %10s %10s%s\n", who, name_of_state(m->state), m->domain,
                 m->lends ? usm__format_bytes(m->lends, lends, sizeof lends) : "-",
                 m->lends ? usm__format_bytes(m->lends - m->available, held, sizeof held) : "-",
                 m->is_mapped ? "  shared memory" : "");
}

static void put_lines(usm__out *o, const char *lines)
{
    usm__span rest = usm__span_of(lines), line;

    while (usm__span_next(&rest, '\n', &line))
        usm__out_put(o, "%.*s\n", (int)line.len, line.at);
}

static void put_text(usm__out *o, const view *v)
{
    uint32_t       at = 0, ranks = 0, rank;
    usm_job_member m;

    put_place(o, v);
    if (!v->ops)
        return;
    put_lines(o, v->lines);
    usm__out_put(o, "\n  %-12s %-8s %-20s %10s %10s\n", "member", "state", "fault domain", "lends",
                 "of it held");
    while (next_member(v, &at, &ranks, &m, &rank))
        put_member(o, &m, rank, m.index == v->self);
}

/* ---- JSON ------------------------------------------------------------------------------ */

static void put_json_member(usm__json *j, const usm_job_member *m, uint32_t rank, const view *v)
{
    usm__json_object_begin(j, NULL);
    usm__json_number(j, "member", m->index);
    if (rank == USM__JOB_NO_RANK)
        usm__json_null(j, "rank");
    else
        usm__json_number(j, "rank", rank);
    usm__json_bool(j, "server", m->is_server);
    usm__json_bool(j, "self", m->index == v->self);
    usm__json_text(j, "state", name_of_state(m->state));
    usm__json_text(j, "domain", m->domain);
    usm__json_number(j, "lends", m->lends);
    usm__json_number(j, "available", m->available);
    usm__json_number(j, "held", m->lends - m->available);
    usm__json_bool(j, "mapped", m->is_mapped);
    usm__json_object_end(j);
}

static void put_json_lines(usm__json *j, const char *lines)
{
    usm__span rest = usm__span_of(lines), line;

    while (usm__span_next(&rest, '\n', &line))
        usm__json_text_max(j, NULL, line.at, line.len);
}

static void put_json(usm__json *j, const view *v)
{
    const usm_job_info *i  = &v->info;
    uint32_t            at = 0, ranks = 0, rank;
    usm_job_member      m;

    usm__json_object_begin(j, NULL);
    usm__json_bool(j, "is_job", i->is_job);
    usm__json_number(j, "rank", i->rank);
    usm__json_number(j, "size", i->size);
    usm__json_number(j, "local_rank", i->local_rank);
    usm__json_number(j, "local_size", i->local_size);
    usm__json_bool(j, "local_known", v->place.is_local_known);
    usm__json_text(j, "source", i->source);
    usm__json_text(j, "host", i->host);
    usm__json_bool(j, "attached", i->is_attached);
    usm__json_text(j, "mpi", i->mpi);
    usm__json_array_begin(j, "members");
    while (next_member(v, &at, &ranks, &m, &rank))
        put_json_member(j, &m, rank, v);
    usm__json_array_end(j);
    usm__json_array_begin(j, "describe");
    put_json_lines(j, v->lines);
    usm__json_array_end(j);
    usm__json_object_end(j);
}

/* ---- the call ---------------------------------------------------------------------------- */

/* Reads what the launcher says, or the job to which the process is attached. */
static usm_status look(view *v)
{
    usm_status st;

    memset(v, 0, sizeof *v);
    v->info.struct_size = sizeof v->info;
    st                  = usm_job_get_info(&v->info);
    v->place            = usm__launcher_place_get();
    return st;
}

static void ask_module(view *v, const usm_transport_ops *ops, void *job)
{
    v->ops = ops;
    v->job = job;
    ops->job_describe(job, v->lines, sizeof v->lines);
    if (ops->members(job, &v->self, &v->count) != USM_OK)
        v->count = 0;
}

static size_t put(const view *v, usm_text_format format, char *text, size_t cap)
{
    usm__json j = {.out = {.text = text, .cap = cap}};

    if (format == USM_JSON)
        put_json(&j, v);
    else
        put_text(&j.out, v);
    return j.out.used;
}

size_t usm__job_describe_member(const usm_transport_ops *ops, void *job, usm_text_format format,
                                char *text, size_t cap)
{
    view v;

    if (look(&v) != USM_OK)
        return 0;
    v.info.is_attached = true;
    ask_module(&v, ops, job);
    (void)snprintf(v.info.mpi, sizeof v.info.mpi, "%.*s", (int)strcspn(v.lines, "\n"), v.lines);
    return put(&v, format, text, cap);
}

usm_status usm_job_describe(usm_text_format format, char *text, size_t cap, size_t *size)
{
    const usm_transport_ops *ops = NULL;
    void                    *job = NULL;
    view                     v;
    usm_status               st;
    size_t                   used;

    if ((format != USM_TEXT && format != USM_JSON) || (!text && cap))
        return usm__fail(USM_E_INVALID, "usm_job_describe: %s",
                         !text && cap ? "text is NULL and cap is not 0"
                                      : "format is neither USM_TEXT nor USM_JSON");
    st = look(&v);
    if (st != USM_OK)
        return st;
    if (v.info.is_attached && usm__job_enter(&ops, &job) == USM_OK)
        ask_module(&v, ops, job);
    used = put(&v, format, text, cap);
    if (ops)
        usm__job_leave();
    if (size)
        *size = used;
    return USM_OK;
}
