/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-replay --budget: is the most memory that a log shows within a budget, and if not, who held
 * it?  Of a trace each device's memory of the kind that was asked for is compared alone; the logs of
 * others have one memory, and no call sites.  Nothing is replayed. */
#include "replay.h"

#include "base/inline/plural.h"
#include "base/json.h"
#include "base/os.h"
#include "base/text.h"
#include "profile/peaks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define HOLDERS_MAX 20u

/* The most that one memory held. */
typedef struct memory {
    const char          *name;
    uint64_t             live, reserved, at, time_ns; /* at: record of the peak */
    usm__profile_holder *holders;
    size_t               nholders;
} memory;

typedef struct check {
    const char *path;
    uint64_t    budget;
    const char *kind;
    memory     *memories;
    size_t      n;
    bool        has_trace;
} check;

static bool is_over(const check *c, const memory *m)
{
    return m->live > c->budget;
}

static bool all_fit(const check *c)
{
    bool fits = true;

    for (size_t i = 0; i < c->n; i++)
        fits &= !is_over(c, &c->memories[i]);
    return fits;
}

/* --- text ------------------------------------------------------------------------------------ */

static void print_holders(const memory *m)
{
    size_t n = m->nholders < HOLDERS_MAX ? m->nholders : HOLDERS_MAX;

    if (n > 0)
        puts("Held at that moment, by call site:");
    for (size_t i = 0; i < n; i++) {
        const usm__profile_holder *h = &m->holders[i];

        printf("  %10s in %llu %s: %s\n", USM__SIZE_TEXT(h->bytes), (unsigned long long)h->blocks,
               usm__plural(h->blocks, "block", "blocks"), h->name);
    }
    if (n < m->nholders)
        printf("  ... and %zu more (--json has all)\n", m->nholders - n);
}

static void print_memory(const check *c, const memory *m)
{
    if (!is_over(c, m)) {
        printf("%s: %s stays within the budget of %s: at most %s live\n", c->path, m->name,
               USM__SIZE_TEXT(c->budget), USM__SIZE_TEXT(m->live));
        return;
    }
    printf("%s: %s exceeds the budget of %s by %s: %s live", c->path, m->name,
           USM__SIZE_TEXT(c->budget), USM__SIZE_TEXT(m->live - c->budget), USM__SIZE_TEXT(m->live));
    if (c->has_trace)
        printf(" at event %llu, after %.3f ms", (unsigned long long)m->at,
               (double)m->time_ns / 1e6);
    putchar('\n');
    print_holders(m);
}

static void print_check(const check *c)
{
    if (c->n == 0)
        printf("%s: there is no %s memory in it\n", c->path, c->kind);
    for (size_t i = 0; i < c->n; i++)
        print_memory(c, &c->memories[i]);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void memory_json(usm__json *j, const check *c, const memory *m)
{
    usm__json_object_begin(j, NULL);
    usm__json_text(j, "name", m->name);
    usm__json_bool(j, "fits", !is_over(c, m));
    usm__json_number(j, "live_peak", m->live);
    if (c->has_trace) {
        usm__json_number(j, "reserved_peak", m->reserved);
        usm__json_number(j, "at", m->at);
        usm__json_number(j, "time_ns", m->time_ns);
    }
    usm__json_array_begin(j, "holders");
    for (size_t i = 0; i < m->nholders; i++) {
        usm__json_object_begin(j, NULL);
        usm__json_text(j, "name", m->holders[i].name);
        usm__json_number(j, "bytes", m->holders[i].bytes);
        usm__json_number(j, "blocks", m->holders[i].blocks);
        usm__json_object_end(j);
    }
    usm__json_array_end(j);
    usm__json_object_end(j);
}

static void check_json(const check *c)
{
    usm__json j = {.out = {.file = stdout}, .form = USM__JSON_INDENTED};

    usm__json_object_begin(&j, NULL);
    usm__json_text(&j, "log", c->path);
    usm__json_number(&j, "budget", c->budget);
    usm__json_text(&j, "kind", c->kind);
    usm__json_bool(&j, "fits", all_fit(c));
    usm__json_array_begin(&j, "memories");
    for (size_t i = 0; i < c->n; i++)
        memory_json(&j, c, &c->memories[i]);
    usm__json_array_end(&j);
    usm__json_object_end(&j);
}

static int answer(const check *c, bool as_json, bool fails)
{
    if (as_json)
        check_json(c);
    else
        print_check(c);
    if (fflush(stdout) != 0)
        return REPLAY_FAILED;
    return fails && !all_fit(c) ? REPLAY_FAILED : REPLAY_FINE;
}

/* --- the two sorts of logs ------------------------------------------------------------------- */

static int check_log(const char *path, const replay_options *o)
{
    memory     m = {.name = "the log's memory"};
    check      c = {.path = path, .budget = o->budget, .kind = kind_name(o->kind)};
    replay_log log;
    char       why[500];
    int        rc;

    if (!log_load(path, o->only_pool, &log, why, sizeof why)) {
        fprintf(stderr, "usm-replay: %s\n", why);
        return REPLAY_FAILED;
    }
    if (log.damage[0])
        fprintf(stderr, "usm-replay: %s: %s; counted is what can be read\n", path, log.damage);
    m.live     = log.live_peak;
    c.memories = &m;
    c.n        = 1;
    rc         = answer(&c, o->as_json, o->fails);
    log_free(&log);
    return rc;
}

/* Holders are looked for where the budget is exceeded.  false: no memory. */
static bool collect(check *c, const usm__profile_peaks *p, usm_kind kind)
{
    bool is_done = true;

    for (size_t i = 0; i < p->n && is_done; i++) {
        const usm__profile_peak *peak = &p->rows[i];
        memory                  *m    = &c->memories[c->n];

        if (peak->kind != (uint32_t)kind)
            continue;
        *m = (memory){.name     = peak->name,
                      .live     = peak->live_peak,
                      .reserved = peak->reserved_peak,
                      .at       = peak->live_at,
                      .time_ns  = p->t->records[peak->live_at].e.time_ns};
        c->n++;
        if (is_over(c, m))
            is_done =
                usm__profile_peaks_holders(p, i, peak->live_at, &m->holders, &m->nholders) == 0;
    }
    return is_done;
}

static int check_trace(const char *path, const usm__profile *t, const replay_options *o)
{
    check c  = {.path = path, .budget = o->budget, .kind = kind_name(o->kind), .has_trace = true};
    int   rc = REPLAY_FAILED;
    usm__profile_peaks peaks;

    if (t->damage[0] || t->lost)
        fprintf(stderr, "usm-replay: %s: %s; counted is what can be read\n", path,
                t->damage[0] ? t->damage : "events were lost when it was written");
    if (usm__profile_peaks_find(t, o->only_pool, &peaks) == 0)
        c.memories = usm__heap_alloc((peaks.n + 1) * sizeof(*c.memories));
    if (c.memories != NULL && collect(&c, &peaks, o->kind))
        rc = answer(&c, o->as_json, o->fails);
    else
        fprintf(stderr, "usm-replay: %s: no memory for a trace of this size\n", path);
    for (size_t i = 0; i < c.n; i++)
        usm__heap_free(c.memories[i].holders);
    usm__heap_free(c.memories);
    usm__profile_peaks_free(&peaks);
    return rc;
}

int budget_main(const char *path, const replay_options *o)
{
    usm__profile *t = NULL;
    int           rc;

    if (usm__profile_open(path, &t) != USM_OK)
        return check_log(path, o); /* of another format, or it says why it cannot be read */
    rc = check_trace(path, t, o);
    usm__profile_close(t);
    return rc;
}
