/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-run: a graph of kernels, described by a JSON file, run over the devices of this machine.
 *
 * This file has the command line.  The format of the file is described in docs/man/usm-run.1. */
#include "app.h"

#include "base/inline/plural.h"
#include "base/job.h"
#include "base/settings.h"
#include "offload/meter.h"
#include "options.h"
#include "simulate.h"
#include "units/crew.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <usm/init.h>

enum {
    JSON_MS     = 50, /* between two lines of --progress=json: a person watches */
    SILENCE_S   = 30, /* of a unit, before it is given up */
    SILENCE_MAX = 86400
};

typedef struct command_line {
    const char *path, *resume, *device;
    char       *policy; /* a name, then numbers after a colon */
    double      numbers[8];
    size_t      nnumbers;
    const char *within, *progress; /* progress: "on" or "json" */
    const char *powercap;          /* tests: a folder that stands for /sys/class/powercap */
    bool        is_dot, is_dry, no_prefetch;
    const char *on[USM__UNITS_MAX]; /* commands that start units */
    uint32_t    nunits;
    unsigned    silence_s;
    bool        no_local, is_unit;
    const char *job;             /* of a unit: as of usm_job_join() */
    const char *simulate, *plot; /* the description of a machine; a picture */
    bool        suggests;
    const char *stores[16]; /* of --store */
    size_t      nstores;
} command_line;

static const char help[] =
    "usage: usm-run APP.json|- [options]\n"
    "\n"
    "Runs a graph of kernels that partition, process and merge data.\n"
    "\n"
    "      --dot              prints the graph for Graphviz, as it was unrolled, and\n"
    "                         nothing else: results go to stderr\n"
    "  -n, --dry-run          reads, checks and builds everything, and runs nothing\n"
    "  -p, --progress         percent, rate, time left, share of each device, joules;\n"
    "                         --progress=json: for programs, with the states of all nodes\n"
    "  -r, --resume FOLDER    keeps what has ended there, and goes on from it\n"
    "      --policy NAME      which device takes what: adaptive (default), fastest, static,\n"
    "                         energy:WATTS\n"
    "      --simulate MACHINE     says how long it would take on a machine, which usm-info\n"
    "                         --machine describes, for numbers of parts and policies: tries a few\n"
    "                         launches of each node, and runs nothing else\n"
    "      --plot FILE.svg    with --simulate: draws it, too\n"
    "      --suggest          with --simulate: writes the best into APP.json\n"
    "      --store NAME:SERVERS   where values \"NAME:KEY\" are: valkey:host:port, as in "
    "USM_SPILL\n"
    "  -d, --device SELECTOR  the devices, as USM_DEVICE_SELECTOR\n"
    "      --on COMMAND       gives nodes to the usm-run --unit that the command starts, too, as\n"
    "                         in 'ssh host usm-run --unit'; may be repeated\n"
    "      --no-local         with --on: the devices of this machine get none\n"
    "      --silence SECONDS  gives up a unit that says nothing for so long (30)\n"
    "      --unit             is such a unit: speaks with a usm-run over a pipe, runs no file; "
    "under\n"
    "                         mpirun or srun all ranks together are one\n"
    "      --job JOB          with --unit: ranks without MPI, socket:FOLDER,rank=R,size=N;\n"
    "                         none: whatever the launcher says, it is alone\n"
    "      --no-prefetch      inputs do not travel while a kernel computes\n"
    "      --within FOLDER    refuses files outside of FOLDER that the app names\n"
    "  -V, --version\n"
    "  -h, --help\n";

/* "energy:300" */
static bool parse_policy(command_line *c, const char *text)
{
    char *rest;

    free(c->policy);
    c->policy = need(strdup(text));
    rest      = strchr(c->policy, ':');
    for (c->nnumbers = 0; rest; c->nnumbers++) {
        char *from = rest + 1;

        *rest = '\0';
        if (c->nnumbers == sizeof c->numbers / sizeof *c->numbers)
            return false;
        c->numbers[c->nnumbers] = strtod(from, &rest);
        if (rest == from || (*rest && *rest != ','))
            return false;
        if (!*rest)
            rest = NULL;
    }
    return c->nnumbers > 0 || strcmp(c->policy, "energy") != 0;
}

static int take_policy(const tool *t, const tool_option *o, void *line, const char *text)
{
    (void)o;
    if (parse_policy(line, text))
        return -1;
    fprintf(stderr,
            "usm-run: '%s' is not a policy with its numbers: NAME or NAME:NUMBER,..., as in "
            "fastest or energy:300\n",
            text);
    return tool_misuse(t, NULL);
}

static int take_on(const tool *t, const tool_option *o, void *line, const char *text)
{
    command_line *c = line;

    (void)o;
    if (!*text)
        return tool_misuse(t, "--on wants a command that starts usm-run --unit somewhere");
    if (c->nunits == USM__UNITS_MAX)
        return tool_misuse(t, "--on: there are 63 units at most");
    c->on[c->nunits++] = text;
    return -1;
}

static int take_store(const tool *t, const tool_option *o, void *line, const char *text)
{
    command_line *c     = line;
    const char   *colon = strchr(text, ':');

    (void)o;
    if (!colon || colon == text)
        return tool_misuse(t, "--store is followed by NAME:SERVERS, as in valkey:cache1:6379");
    if (c->nstores == sizeof c->stores / sizeof *c->stores)
        return tool_misuse(t, "--store is there too often");
    c->stores[c->nstores++] = text;
    return -1;
}

static const tool_option options[] = {
    {.name = "dot", 0, TOOL_FLAG, offsetof(command_line, is_dot)},
    {.name = "dry-run", 'n', TOOL_FLAG, offsetof(command_line, is_dry)},
    {.name = "progress", 'p', TOOL_MAYBE, offsetof(command_line, progress)},
    {.name = "resume", 'r', TOOL_TEXT, offsetof(command_line, resume)},
    {.name = "policy", 0, TOOL_CALL, 0, take_policy},
    {.name = "store", 0, TOOL_CALL, 0, take_store},
    {.name = "simulate", 0, TOOL_TEXT, offsetof(command_line, simulate)},
    {.name = "plot", 0, TOOL_TEXT, offsetof(command_line, plot)},
    {.name = "suggest", 0, TOOL_FLAG, offsetof(command_line, suggests)},
    {.name = "device", 'd', TOOL_TEXT, offsetof(command_line, device)},
    {.name = "within", 0, TOOL_TEXT, offsetof(command_line, within)},
    {.name = "powercap", 0, TOOL_TEXT, offsetof(command_line, powercap)},
    {.name = "on", 0, TOOL_CALL, 0, take_on},
    {.name = "no-local", 0, TOOL_FLAG, offsetof(command_line, no_local)},
    {.name = "silence",
     0,
     TOOL_NUMBER,
     offsetof(command_line, silence_s),
     NULL,
     "--silence wants seconds, from 1 to 86400",
     1,
     SILENCE_MAX},
    {.name = "unit", 0, TOOL_FLAG, offsetof(command_line, is_unit)},
    {.name = "job", 0, TOOL_TEXT, offsetof(command_line, job)},
    {.name = "no-prefetch", 0, TOOL_FLAG, offsetof(command_line, no_prefetch)},
    {.name = NULL},
};
static const tool usm_run = {"usm-run", help, options};

/* Options that do not fit together: what is wrong with them, or NULL. */
static const char *check_units(const command_line *c, bool has_file)
{
    if (c->is_unit && (has_file || c->nunits || c->no_local))
        return "--unit runs what the other usm-run says: no file, and no --on";
    /* Open MPI gives its processes a terminal */
    if (c->is_unit && !usm__launcher_place_get().is_job &&
        (isatty(STDIN_FILENO) || isatty(STDOUT_FILENO)))
        return "--unit speaks with another usm-run over a pipe: start it by usm-run APP.json --on "
               "'usm-run --unit'";
    if (c->job && !c->is_unit)
        return "--job is for the ranks of a --unit";
    if (c->no_local && !c->nunits)
        return "--no-local leaves nobody to run it: add --on";
    if (c->nunits && c->policy && strcmp(c->policy, "energy") == 0)
        return "--policy energy does not know what units draw: choose another, or run without --on";
    return NULL;
}

static const char *check_simulation(const command_line *c, const char *file)
{
    if (!c->simulate)
        return c->plot || c->suggests ? "--plot and --suggest belong to --simulate" : NULL;
    if (c->is_unit || c->nunits || c->resume || c->is_dot || c->is_dry)
        return "--simulate goes with --policy, --device, --plot, --suggest, --no-prefetch, and "
               "nothing else";
    if (c->suggests && file && strcmp(file, "-") == 0)
        return "--suggest writes into a file: name it";
    return NULL;
}

static int parse(command_line *c, int argc, char **argv)
{
    int         rc  = tool_parse(&usm_run, argc, argv, false, c);
    const char *why = rc < 0 ? check_units(c, optind < argc) : NULL;

    if (rc < 0 && !why)
        why = check_simulation(c, optind < argc ? argv[optind] : NULL);
    if (why)
        return tool_misuse(&usm_run, why);
    if (rc >= 0 || c->is_unit)
        return rc;
    if (rc < 0 && c->progress && strcmp(c->progress, "on") != 0 && strcmp(c->progress, "json") != 0)
        return tool_misuse(&usm_run, "--progress is followed by nothing or by =json");
    if (rc < 0 && optind + 1 != argc)
        return tool_misuse(&usm_run,
                           optind < argc ? "one file at a time" : "which file is to be run?");
    if (rc < 0)
        c->path = argv[optind];
    return rc;
}

static volatile sig_atomic_t is_called_off;

/* The first signal lets launches in progress end; the second one does not wait for that. */
static void on_signal(int number)
{
    is_called_off = 1;
    (void)signal(number, SIG_DFL);
}

static void notify_end(const command_line *c, const progress *show, const usm_parallel_stats *s)
{
    if (!c->progress && !s->rescheduled && !s->resumed)
        return;
    fprintf(stderr, "usm-run: %llu %s in %.3f s, rescheduled=%llu resumed=%llu\n",
            (unsigned long long)s->chunks, usm__plural(s->chunks, "launch", "launches"),
            (double)s->wall_ns / 1e9, (unsigned long long)s->rescheduled,
            (unsigned long long)s->resumed);
    if (c->progress)
        show_energy(show);
}

/* With the units that there are. */
static usm_status run_graph(app *a, const command_line *c, const usm_graph_run_desc *d,
                            unit_crew *crew, usm_parallel_stats *stats)
{
    usm__unit_crew table;
    usm_status     st;

    if (!crew)
        return usm_graph_run(a->graph, d, stats);
    table = unit_crew_table(crew);
    st    = usm__graph_run_with(a->graph, d, &table, stats);
    if (c->progress)
        unit_crew_report(crew);
    return st;
}

static bool run(app *a, const command_line *c, unit_crew *crew)
{
    usm_graph_run_desc d     = USM_GRAPH_RUN_DESC_INIT;
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    progress           show  = {.a             = a,
                                .is_shown      = c->progress,
                                .is_tty        = isatty(STDERR_FILENO) != 0,
                                .is_called_off = &is_called_off};
    bool               is_ok = true;
    usm_status         st;

    d.policy.name     = c->policy;
    d.policy.numbers  = c->numbers;
    d.policy.nnumbers = c->nnumbers;
    d.no_prefetch     = c->no_prefetch;
    d.resume          = c->resume;
    d.resume_key      = a->key;
    d.progress        = show_progress;
    d.progress_user   = &show;
    a->is_called_off  = &is_called_off;
    show.is_json      = c->progress && strcmp(c->progress, "json") == 0;
    d.progress_ms     = show.is_json ? JSON_MS : c->progress && !show.is_tty ? 1000 : 200;
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
    if (usm__setting_bool("monitor")) /* if it cannot be shown, it runs all the same */
        (void)usm__monitor_graph_show(&show.graph, a->path, a->text);
    st = run_graph(a, c, &d, crew, &stats);
    usm__monitor_graph_hide(&show.graph);
    if (show.is_open)
        fputc('\n', stderr);
    if (st == USM_OK)
        notify_end(c, &show, &stats);
    free(show.shares);
    if (st != USM_OK) {
        if (st != USM_E_CANCELLED)
            return app_failed(a);
        fprintf(stderr, "usm-run: cancelled%s%s\n", c->resume ? "; what has ended is kept in " : "",
                c->resume ? c->resume : "");
        return false;
    }
    for (size_t i = 0; i < a->nnodes; i++)
        is_ok &= write_output(a, &a->nodes[i], c->is_dot ? stderr : stdout);
    return is_ok;
}

static bool run_on(app *a, const command_line *c)
{
    unit_crew_desc d = {.commands   = c->on,
                        .n          = c->nunits,
                        .silence_ms = c->silence_s * 1000,
                        .no_local   = c->no_local};
    unit_app       remote;
    unit_crew     *crew;
    bool           is_ok;

    if (c->nunits == 0)
        return run(a, c, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    if (!remote_describe(a, &remote))
        return false;
    d.app = &remote;
    crew  = unit_crew_open(&d);
    is_ok = crew && run(a, c, crew);
    unit_crew_close(crew);
    remote_free(&remote);
    return is_ok;
}

static bool simulate_run(app *a, const command_line *c)
{
    const simulation s = {.machine     = c->simulate,
                          .plot        = c->plot,
                          .suggests    = c->suggests,
                          .policy      = c->policy,
                          .numbers     = c->numbers,
                          .nnumbers    = c->nnumbers,
                          .no_prefetch = c->no_prefetch};

    return simulate(a, &s);
}

/* The policy that the app names, unless the command line does. */
static bool take_app_policy(app *a, command_line *c)
{
    const char *why;

    if (!a->policy || c->policy || c->simulate)
        return true;
    if (!parse_policy(c, a->policy))
        return mistake(
            a, member((value){a->root, a->text + strspn(a->text, " \t\r\n")}, "policy").at,
            "'%s' is not a policy with its numbers, as in fastest or energy:300", a->policy);
    why = check_units(c, true);
    return !why || mistake(a, a->text, "%s", why);
}

static bool work(app *a, command_line *c)
{
    usm_team_desc d     = USM_TEAM_DESC_INIT;
    int           error = c->within ? tool_root_open(&a->within, c->within) : 0;

    if (error) {
        fprintf(stderr, "usm-run: --within %s: %s\n", c->within, strerror(error));
        return false;
    }
    if (!app_read(a, c->path) || !take_app_policy(a, c) || !app_load_kernels(a))
        return false;
    d.selector = c->device;
    d.energy   = c->progress != NULL;
    if (usm_team_create(&d, &a->team) != USM_OK) {
        fprintf(stderr, "usm-run: %s\n", usm_last_error());
        return false;
    }
    if (c->powercap && a->team->meter)
        usm__meter_set_folder(a->team->meter, c->powercap);
    if (!app_build(a))
        return false;
    if (c->simulate)
        return simulate_run(a, c);
    if (!c->is_dry && !run_on(a, c))
        return false;
    if (c->is_dot)
        return show_dot(a);
    if (c->is_dry) {
        size_t size;

        return usm_graph_describe_dot(a->graph, NULL, 0, &size) == USM_OK || app_failed(a);
    }
    return true;
}

int main(int argc, char **argv)
{
    command_line c = {.path = NULL, .silence_s = SILENCE_S};
    app          a = {.path = NULL};
    int          rc;

    rc = parse(&c, argc, argv);
    if (rc < 0 && c.is_unit) {
        rc = remote_serve(c.device, c.job);
    } else if (rc < 0) {
        a.options  = c.stores;
        a.noptions = c.nstores;
        a.is_dry   = c.is_dry;
        rc         = work(&a, &c) ? 0 : 1;
        app_free(&a);
    }
    free(c.policy);
    if (fflush(stdout) || ferror(stdout)) {
        fputs("usm-run: the output could not be written\n", stderr);
        rc = 1;
    }
    return rc;
}
