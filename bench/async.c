/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench async: stream-ordered allocation, and what it costs to submit a command.
 *
 *   pair    an async pair on one in-order queue against a pair of its pool
 *   driver  the same against the driver's allocation, a wait for the queue, its free; and SYCL's
 *   peak    what four queues hold against one; what async frees make the host wait for
 *   submit  usm_memset and usm_memcpy until they return, against the driver's call and SYCL's
 *
 * Each runtime has a worker (async_worker.c); who is compared is asked by turns, figures are
 * medians of the rounds.  Called by main.c. */
#include "async.h"
#include "bench.h"
#include "contenders.h"
#include "spill.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const bench_options *options;
    unsigned             rounds;
    size_t               n;
} run;

/* One side of a comparison: what a worker is told to run. */
typedef struct side {
    contender_id id;
    const char  *what;
} side;

static bool ask(side s, size_t size, size_t n, double *ns)
{
    char command[96], answer[64];

    snprintf(command, sizeof command, "run %s %zu %zu", s.what, size, n);
    return contender_start(s.id) && contender_ask(s.id, command, answer, sizeof answer) &&
           sscanf(answer, "%lf", ns) == 1;
}

/* By turns; false: `which` could not be measured. */
static bool compare(const side *sides, size_t count, size_t size, double *medians, side *which)
{
    spill_samples samples[4] = {{{0}, 0}};
    double        ns         = 0;

    for (unsigned round = 0; round <= run.rounds; round++) /* the first warms up */
        for (size_t i = 0; i < count; i++) {
            if (!ask(sides[i], size, run.n, &ns)) {
                *which = sides[i];
                return false;
            }
            if (round > 0)
                spill_sample(&samples[i], ns);
        }
    for (size_t i = 0; i < count; i++)
        medians[i] = spill_median(&samples[i]);
    return true;
}

static void say_why(spill_row *row, side which)
{
    snprintf(row->why, sizeof row->why, "%s %s: %.150s", contender_name(which.id), which.what,
             contender_error(which.id));
}

/* Ours against theirs; without a peer there is no figure, but a reason. */
static void add_ratio(const char *section, const char *name, side ours, side theirs,
                      const char *peer, size_t size, double goal)
{
    spill_row *row      = spill_add(section, "ns", "%s", name);
    const side sides[2] = {ours, theirs};
    double     ns[2]    = {0, 0};
    side       which    = theirs;

    fprintf(stderr, "\r%-60.60s\r", name);
    row->peer = peer;
    row->goal = goal;
    if (compare(sides, 2, size, ns, &which)) {
        row->value      = ns[0];
        row->peer_value = ns[1];
        return;
    }
    say_why(row, which);
}

/* ---- sections -------------------------------------------------------------------------- */

static void add_difference(contender_id id, const char *where, size_t size, const char *title)
{
    const side sides[2] = {{id, "async"}, {id, "pool"}};
    double     ns[2];
    side       which;
    spill_row *row = spill_add("pair", "ns", "%s, %s: above usm_pool's pair", where, title);

    fprintf(stderr, "\r%-60.60s\r", row->name);
    row->goal = 20;
    if (!compare(sides, 2, size, ns, &which)) {
        say_why(row, which);
        return;
    }
    row->value = ns[0] - ns[1];
    if (row->value <= 0) /* 0 would be no figure */
        row->value = 0.01;
    snprintf(row->why, sizeof row->why, "%.1f ns, and %.1f ns of the pool", ns[0], ns[1]);
}

static void section_pair(void)
{
    add_difference(ASYNC_NULL, "no driver", 256, "256 B");
    add_difference(ASYNC_NULL, "no driver", 1 << 20, "1 MiB");
    add_difference(ASYNC_HOST, "host", 256, "256 B");
    add_difference(ASYNC_POCL, "PoCL", 256, "256 B");
    add_difference(ASYNC_CL, "Intel's CPU runtime", 256, "256 B");
    add_difference(ASYNC_ZE, "ze_soft", 256, "256 B");
}

static void section_driver(void)
{
    static const char wait[] = "driver: alloc, wait, free";
    const side        pocl[] = {{ASYNC_POCL, "async"}, {ASYNC_POCL, "driver"}};
    const side        cl[]   = {{ASYNC_CL, "async"}, {ASYNC_CL, "driver"}};
    const side        ze[]   = {{ASYNC_ZE, "async"}, {ASYNC_ZE, "driver"}};

    add_ratio("driver", "PoCL, 4 KiB", pocl[0], pocl[1], wait, 4096, 0.5);
    add_ratio("driver", "PoCL, 1 MiB", pocl[0], pocl[1], wait, 1 << 20, 0.5);
    add_ratio("driver", "Intel's CPU runtime, 4 KiB", cl[0], cl[1], wait, 4096, 0.05);
    add_ratio("driver", "Intel's CPU runtime, 1 MiB", cl[0], cl[1], wait, 1 << 20, 0.05);
    add_ratio("driver", "ze_soft, 4 KiB", ze[0], ze[1], wait, 4096, 0);
    add_ratio("driver", "ze_soft, 4 KiB", ze[0], (side){ASYNC_SYCL_ZE, "async"},
              "SYCL's async_malloc, async_free", 4096, 0.02);
}

static bool ask_peak(contender_id id, unsigned nqueues, bool is_gated, async_peak *peak)
{
    char command[64], answer[160];

    snprintf(command, sizeof command, "replay %u %d", nqueues, is_gated);
    return contender_start(id) && contender_ask(id, command, answer, sizeof answer) &&
           sscanf(answer, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
                  &peak->reserved, &peak->asked, &peak->growth, &peak->left,
                  &peak->host_waits) == 5;
}

/* Figures that should be 0: a goal of 0.5 says none at all. */
static void add_none(const char *name, const char *unit, bool is_known, uint64_t value, side who)
{
    spill_row *row = spill_add("peak", unit, "%s", name);

    row->goal  = 0.5;
    row->value = is_known ? (double)value : 0;
    if (!is_known)
        say_why(row, who);
}

/* One queue may hold too much as well: what all had to hold at once. */
static void add_against_asked(const char *where, const char *queues, double goal, bool is_known,
                              const async_peak *peak)
{
    spill_row *row = spill_add("peak", "GiB", "%s: %s", where, queues);

    row->peer       = "what was asked for";
    row->goal       = goal;
    row->value      = is_known ? (double)peak->reserved / (1 << 30) : 0;
    row->peer_value = is_known ? (double)peak->asked / (1 << 30) : 0;
}

static void add_peak(contender_id id, const char *where, bool is_gated)
{
    const side who = {id, "replay"};
    async_peak one = {0}, four = {0};
    char       name[80];
    bool       ok;
    spill_row *row = spill_add("peak", "GiB", "%s: held at most, 4 queues", where);

    fprintf(stderr, "\r%-60.60s\r", row->name);
    row->peer = "one queue";
    row->goal = 1.3;
    ok        = ask_peak(id, 1, is_gated, &one) && ask_peak(id, 4, is_gated, &four);
    if (!ok)
        say_why(row, who);
    row->value      = (double)four.reserved / (1 << 30);
    row->peer_value = (double)one.reserved / (1 << 30);
    add_against_asked(where, "the same", 1.3, ok, &four);
    add_against_asked(where, "one queue", 0, ok, &one);
    snprintf(name, sizeof name, "%s: more for a fifth queue later", where);
    add_none(name, "B", ok, four.growth, who);
    snprintf(name, sizeof name, "%s: held when all has ended", where);
    add_none(name, "B", ok, four.left, who);
    snprintf(name, sizeof name, "%s: waits of the host", where);
    add_none(name, "", ok, four.host_waits, who);
}

static void add_blocked(contender_id id, const char *where)
{
    char       name[80], answer[64];
    const side who = {id, "blocked"};
    bool       ok = contender_start(id) && contender_ask(id, "blocked 1000", answer, sizeof answer);

    snprintf(name, sizeof name, "%s: of 1000 frees behind a blocked queue, waited", where);
    add_none(name, "", ok, 0, who);
}

static void section_peak(void)
{
    add_peak(ASYNC_NULL, "idle queues", false);
    add_peak(ASYNC_HOST, "busy queues", true);
    add_blocked(ASYNC_HOST, "host");
    add_blocked(ASYNC_POCL, "PoCL");
    add_blocked(ASYNC_CL, "Intel's CPU runtime");
    add_blocked(ASYNC_ZE, "ze_soft");
}

static void add_submits(contender_id id, const char *where, double raw_goal, contender_id sycl,
                        double goal)
{
    static const char *const names[] = {"memset", "memcpy"};
    char                     name[80], what[32];

    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s: usm_%s, 64 B", where, names[i]);
        snprintf(what, sizeof what, "raw-%s", names[i]);
        add_ratio("submit", name, (side){id, names[i]}, (side){id, what}, "the driver's call", 64,
                  raw_goal);
        if (sycl == CONTENDERS)
            continue;
        add_ratio("submit", name, (side){id, names[i]}, (side){sycl, names[i]}, "SYCL's queue", 64,
                  goal);
        snprintf(what, sizeof what, "%s-plain", names[i]);
        add_ratio("submit", name, (side){id, names[i]}, (side){sycl, what}, "SYCL, no event", 64,
                  0);
    }
}

/* The driver's call is an append and a barrier, whether or not lists keep their order. */
static double level_zero_goal(void)
{
    char answer[64];

    return contender_start(ASYNC_ZE) && contender_ask(ASYNC_ZE, "order", answer, sizeof answer) &&
                   atoi(answer) == 1
               ? 1.2
               : 1.5;
}

static void section_submit(void)
{
    add_submits(ASYNC_POCL, "PoCL", 1.05, CONTENDERS, 0);
    add_submits(ASYNC_CL, "Intel's CPU runtime", 1.05, ASYNC_SYCL_CL, 1.0);
    add_submits(ASYNC_ZE, "ze_soft", level_zero_goal(), ASYNC_SYCL_ZE, 0.5);
}

/* ---- the benchmark ------------------------------------------------------------------------ */

static int finish(bench_report *report, const bench_options *options)
{
    if (!options->json)
        fprintf(stderr, "\r%-70s\r", "");
    spill_report(report);
    if (report->nrows == 0) {
        fprintf(stderr, "usm-bench: no section of async begins like \"%s\"\n", options->only);
        return 2;
    }
    if (!options->json) {
        printf("medians of %u rounds by turns\n", run.rounds);
        spill_print(options->markdown);
        report->nrows = 0;
    }
    return 0;
}

int bench_async(bench_report *report, const bench_options *options)
{
    static const struct {
        const char *name;
        void (*measure)(void);
    } sections[] = {{"pair", section_pair},
                    {"driver", section_driver},
                    {"peak", section_peak},
                    {"submit", section_submit}};

    run.options = options;
    run.rounds  = options->rounds  ? (unsigned)options->rounds
                  : options->quick ? 5
                                   : SPILL_ROUNDS_MAX;
    run.rounds  = run.rounds > SPILL_ROUNDS_MAX ? SPILL_ROUNDS_MAX : run.rounds;
    run.n       = options->quick ? 1280 : 6400;
    contenders_find(bench_sycl_folder(options), options->verbose);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (!options->only || strncmp(options->only, sections[i].name, strlen(options->only)) == 0)
            sections[i].measure();
    for (int id = ASYNC_NULL; id <= ASYNC_SYCL_ZE; id++)
        contender_stop((contender_id)id);
    contenders_forget();
    return finish(report, options);
}
