/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Series of workloads: a worker process (spill_worker.h) with a memory limit of its own runs W1 R X
 * W2 M S of spill_load.c one after the other; after each, fio does the same to the raw device, in
 * the same folder and over as many bytes, so that what others do to the disk meets both.  Called by
 * the sections. */
#include "spill_series.h"

#include "spill_memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUP_EXTRA ((uint64_t)16 << 20) /* for the program itself */

spill_choices spill_run;

const char *const spill_workloads[WORKLOADS] = {"W1", "R", "X", "W2", "M", "S"};

static struct {
    double ratio; /* highest memory over its limit */
    char   where[64];
} worst;

void spill_show(const char *section, const char *what, unsigned round)
{
    if (!spill_run.options->json)
        fprintf(stderr, "\r%-8s %-28s round %u   ", section, what, round + 1);
}

bool spill_goes_on(unsigned round, uint64_t began)
{
    return round == 0 ||
           (round < spill_run.rounds && bench_now_ns() - began < spill_run.section_ns);
}

const spill_raw spill_raw_of[WORKLOADS] = {SPILL_RAW_WRITE,     SPILL_RAW_READ,  SPILL_RAW_RANDOM,
                                           SPILL_RAW_OVERWRITE, SPILL_RAW_MIXED, SPILL_RAW_MIXED};

static void set_environment(const spill_series *s)
{
    char text[700];

    /* NOLINTBEGIN(concurrency-mt-unsafe): one thread */
    snprintf(text, sizeof text, "host:%" PRIu64, s->limit);
    setenv("USM_MEMORY_LIMIT", text, 1);
    snprintf(text, sizeof text, "file:%s", spill_run.dir);
    setenv("USM_SPILL", text, 1);
    if (s->setting)
        setenv(s->setting, s->value, 1);
    /* NOLINTEND(concurrency-mt-unsafe) */
}

static void reset_environment(const spill_series *s)
{
    if (s->setting)
        unsetenv(s->setting); /* NOLINT(concurrency-mt-unsafe): one thread */
}

bool spill_start(contender_id id, const spill_series *s)
{
    bool ok;

    set_environment(s);
    ok = contender_start(id);
    reset_environment(s);
    return ok;
}

static bool give_up(contender_id id, spill_result *r)
{
    snprintf(r->why, sizeof r->why, "%.199s", contender_error(id));
    contender_stop(id);
    return false;
}

/* The highest memory of a worker over its limit. */
double spill_note_memory(contender_id id, const spill_series *s)
{
    char   answer[128];
    double peak, ratio;

    if (!contender_ask(id, "memory", answer, sizeof answer))
        return 0;
    peak  = strtod(answer, NULL);
    ratio = peak / (double)s->limit;
    if (ratio > worst.ratio) {
        worst.ratio = ratio;
        snprintf(worst.where, sizeof worst.where, "%s", s->title);
    }
    return ratio;
}

bool spill_open(const spill_series *s)
{
    char command[800];

    if (!spill_start(SPILL_HOST, s))
        return false;
    snprintf(command, sizeof command, "open %s %zu %zu %s %s/usm-bench-%d.map", s->form, s->chunk,
             s->n, s->hint, spill_run.dir, (int)getpid());
    return contender_ask(SPILL_HOST, command, NULL, 0);
}

bool spill_run_one(const char *workload, size_t accesses, spill_samples *rates)
{
    char   command[64], answer[128];
    double seconds, bytes;

    snprintf(command, sizeof command, "run %s %zu", workload, accesses);
    if (!contender_ask(SPILL_HOST, command, answer, sizeof answer) ||
        sscanf(answer, "%lf %lf", &seconds, &bytes) != 2)
        return false;
    spill_sample(rates, bytes / MIB / seconds);
    return true;
}

static bool run_workload(const spill_series *s, int w, spill_result *r)
{
    if (w == W1) /* the others find their memory there */
        spill_memory_warm(s->limit);
    if (!spill_run_one(spill_workloads[w], s->accesses, &r->ours[w]))
        return give_up(SPILL_HOST, r);
    return contender_ask(SPILL_HOST, "settle", NULL, 0) || give_up(SPILL_HOST, r);
}

static void run_raw(const spill_series *s, int w, spill_result *r)
{
    if (w == W1)
        unlink(spill_run.raw_path);
    spill_sample(&r->raw[w],
                 spill_fio(spill_raw_of[w], spill_run.raw_path, s->n * s->chunk, &r->raw_why));
}

static bool join(const spill_group *group)
{
    char command[480];

    snprintf(command, sizeof command, "join %s", group->tasks);
    return contender_ask(SPILL_HOST, command, NULL, 0);
}

/* One round; raw I/O before ours in each second one.  group: the worker's, or NULL. */
static bool run_series(const spill_series *s, unsigned round, const spill_group *group,
                       spill_result *r)
{
    double memory;

    if (!spill_open(s) || (group && !join(group)))
        return give_up(SPILL_HOST, r);
    for (int w = 0; w < WORKLOADS; w++) {
        if (s->has_raw && round % 2 == 1)
            run_raw(s, w, r);
        if (!run_workload(s, w, r))
            return false;
        if (s->has_raw && round % 2 == 0)
            run_raw(s, w, r);
    }
    if (!contender_ask(SPILL_HOST, "run check 0", NULL, 0))
        return give_up(SPILL_HOST, r);
    memory    = spill_note_memory(SPILL_HOST, s);
    r->memory = memory > r->memory ? memory : r->memory;
    contender_stop(SPILL_HOST);
    return true;
}

/* A mapped file takes all memory that there is: only a control group gives it a limit. */
static bool has_no_limit(const spill_series *s)
{
    return strcmp(s->form, "mapped") == 0;
}

static void run_grouped(const spill_series *s, unsigned round, spill_result *r)
{
    const char *why = "";
    spill_group group;

    if (!spill_group_create(&group, s->limit + GROUP_EXTRA, &why)) {
        snprintf(r->why, sizeof r->why, "%s", why);
        return;
    }
    run_series(s, round, &group, r);
    spill_group_destroy(&group);
}

/* All of them by turns, each second round backwards: who runs after whom differs between rounds. */
void spill_run_all(const char *section, const spill_series *s, spill_result *r, size_t n)
{
    uint64_t began = bench_now_ns();

    for (unsigned round = 0; spill_goes_on(round, began); round++)
        for (size_t k = 0; k < n; k++) {
            size_t i = round % 2 ? n - 1 - k : k;

            spill_show(section, s[i].title, round);
            if (!r[i].why[0] && has_no_limit(&s[i]))
                run_grouped(&s[i], round, &r[i]);
            else if (!r[i].why[0])
                run_series(&s[i], round, NULL, &r[i]);
        }
}

bool spill_ask_number(contender_id id, const char *command, double *number)
{
    char answer[128];

    if (!contender_ask(id, command, answer, sizeof answer))
        return false;
    *number = strtod(answer, NULL);
    return true;
}

double spill_worst_memory(const char **where)
{
    *where = worst.where;
    return worst.ratio;
}
