/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-prof: where a program's memory goes, and what its pools saved it.
 *
 * This file has the command line.  record.c runs a program, report.c and report_json.c print the
 * tables, and src/profile does the rest.  The manual is docs/man/usm-prof.1. */
#include "prof.h"
#include "profile/export.h"

#include <usm/init.h>
#include <usm/version.h>

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: usm-prof record [-o FILE] [--stacks[=WHAT]] [--ring SIZE] PROGRAM [ARGUMENT...]\n"
    "       usm-prof report FILE [--json] [--top N] [--csv OUT] [--perfetto OUT] [--html OUT]\n"
    "       usm-prof merge FILE... -o OUT\n"
    "\n"
    "Shows how a program that uses libusm allocates, and what its pools saved it.\n"
    "\n"
    "record: runs PROGRAM with USM_TRACE set\n"
    "  -o, --output FILE    the trace (usm-prof.%p.trace); %h, %r, %p: host, rank, process\n"
    "  -s, --stacks[=WHAT]  call sites too: on (a stack each 512 KiB), all, or bytes apart\n"
    "      --ring SIZE      memory of each thread for events not yet written (1M)\n"
    "report: tables by pool, size, call site and tag, and advice\n"
    "  -j, --json           the same for programs; the schema is in usm-prof(1)\n"
    "      --top N          at most N call sites and tags (20; 0: all)\n"
    "      --csv OUT        the events, one line each (- is standard output)\n"
    "      --perfetto OUT   for https://ui.perfetto.dev\n"
    "      --html OUT       one page to look at in a browser, without a network\n"
    "merge: traces of several processes in one, by real time\n"
    "  -o, --output OUT\n"
    "\n"
    "  -V, --version\n"
    "  -h, --help\n";

typedef struct command_line {
    record_options record;
    const char    *output, *csv, *perfetto, *html;
    bool           as_json;
    size_t         top;
} command_line;

enum { OPTION_RING = 256, OPTION_TOP, OPTION_CSV, OPTION_PERFETTO, OPTION_HTML };

static const struct option long_options[] = {
    {"output", required_argument, NULL, 'o'},
    {"stacks", optional_argument, NULL, 's'},
    {"ring", required_argument, NULL, OPTION_RING},
    {"json", no_argument, NULL, 'j'},
    {"top", required_argument, NULL, OPTION_TOP},
    {"csv", required_argument, NULL, OPTION_CSV},
    {"perfetto", required_argument, NULL, OPTION_PERFETTO},
    {"html", required_argument, NULL, OPTION_HTML},
    {"version", no_argument, NULL, 'V'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int misuse(const char *what)
{
    fprintf(stderr, "usm-prof: %s\nTry usm-prof --help.\n", what);
    return PROF_MISUSED;
}

/* -1: go on; else the exit status. */
static int take_option(command_line *c, int option)
{
    char *end;

    switch (option) {
    case 'o':
        c->output = optarg;
        return -1;
    case 's':
        c->record.stacks = optarg ? optarg : "on";
        return -1;
    case OPTION_RING:
        c->record.ring = optarg;
        return -1;
    case 'j':
        c->as_json = true;
        return -1;
    case OPTION_TOP:
        c->top = strtoul(optarg, &end, 10);
        return *optarg >= '0' && *optarg <= '9' && *end == '\0' ? -1
                                                                : misuse("--top wants a number");
    case OPTION_CSV:
        c->csv = optarg;
        return -1;
    case OPTION_PERFETTO:
        c->perfetto = optarg;
        return -1;
    case OPTION_HTML:
        c->html = optarg;
        return -1;
    case 'V':
        puts("usm-prof " USM_VERSION_STRING);
        return PROF_FINE;
    case 'h':
        fputs(help, stdout);
        return PROF_FINE;
    default:
        return misuse("see above"); /* getopt has printed the error */
    }
}

static int parse(command_line *c, int argc, char **argv, const char *packets)
{
    int option, rc = -1;

    memset(c, 0, sizeof(*c));
    c->top = 20;
    while (rc < 0 && (option = getopt_long(argc, argv, packets, long_options, NULL)) != -1)
        rc = take_option(c, option);
    return rc;
}

static int exit_status(usm_status st)
{
    return st == USM_OK ? PROF_FINE : st == USM_E_NO_MEMORY ? PROF_NO_MEMORY : PROF_FAILED;
}

/* Prints the message of the last failure. */
static int failed(usm_status st)
{
    fprintf(stderr, "usm-prof: %s\n", usm_last_error());
    return exit_status(st);
}

static int run_record(command_line *c, char **argv)
{
    if (c->as_json || c->csv || c->perfetto || c->html)
        return misuse("record takes -o, --stacks and --ring; the rest is for report");
    if (argv[0] == NULL)
        return misuse("which program is to be recorded?");
    c->record.file = c->output ? c->output : "usm-prof.%p.trace";
    return record(&c->record, argv);
}

typedef int exporter(const usm__profile *t, const char *path);

static int export_to(const usm__profile *t, const char *path, exporter *export)
{
    int error = path ? export(t, path) : 0;

    if (error == 0)
        return PROF_FINE;
    fprintf(stderr, "usm-prof: %s cannot be written: %s\n", path, strerror(error));
    return error == ENOMEM ? PROF_NO_MEMORY : PROF_FAILED;
}

static int run_tables(const command_line *c, const char *path, const usm__profile *t)
{
    usm__analysis *a  = NULL;
    usm_status     st = usm__analyse(t, &a);

    if (st != USM_OK)
        return failed(st);
    if (c->as_json)
        report_json(path, t, a);
    else
        report_text(path, t, a, c->top);
    usm__analysis_free(a);
    if (fflush(stdout) == 0)
        return PROF_FINE;
    fprintf(stderr, "usm-prof: the report cannot be written: %s\n", strerror(errno));
    return PROF_FAILED;
}

/* Writes files instead of tables, unless --json asks for those too. */
static int run_report(const command_line *c, char **files)
{
    usm__profile *t = NULL;
    usm_status    st;
    int           rc;

    if (c->output)
        return misuse(
            "report writes to standard output; --csv, --perfetto, --html name their files");
    if (files[0] == NULL || files[1] != NULL)
        return misuse("report wants one trace; usm-prof merge makes one of several");
    st = usm__profile_open(files[0], &t);
    if (st != USM_OK)
        return failed(st);
    if (t->damage[0] != '\0')
        fprintf(stderr, "usm-prof: warning: %s: %s; what comes before is shown\n", files[0],
                t->damage);
    rc = export_to(t, c->csv, usm__export_csv);
    if (rc == PROF_FINE)
        rc = export_to(t, c->perfetto, usm__export_perfetto);
    if (rc == PROF_FINE)
        rc = export_to(t, c->html, usm__export_html);
    if (rc == PROF_FINE && (c->as_json || !(c->csv || c->perfetto || c->html)))
        rc = run_tables(c, files[0], t);
    usm__profile_close(t);
    return rc;
}

static int run_merge(const command_line *c, int n, char **files)
{
    usm_status st;

    if (n == 0 || c->output == NULL)
        return misuse("merge wants traces and -o OUT");
    st = usm__profile_merge((size_t)n, files, c->output);
    return st == USM_OK ? PROF_FINE : failed(st);
}

int main(int argc, char **argv)
{
    command_line c;
    const char  *verb = argc > 1 ? argv[1] : "";
    bool         is_verb =
        strcmp(verb, "record") == 0 || strcmp(verb, "report") == 0 || strcmp(verb, "merge") == 0;
    int rc;

    (void)unsetenv("USM_TRACE"); /* the tool must not be recorded */
    if (is_verb) {
        argv++;
        argc--;
    }
    /* "+": arguments after the program's name belong to the program */
    rc = parse(&c, argc, argv, strcmp(verb, "record") == 0 ? "+o:s::jVh" : "o:s::jVh");
    if (rc >= 0)
        return rc;
    if (!is_verb)
        return misuse(*verb ? "the first word is record, report or merge"
                            : "what is to be done: record, report or merge?");
    if (strcmp(verb, "record") == 0)
        return run_record(&c, argv + optind);
    if (strcmp(verb, "report") == 0)
        return run_report(&c, argv + optind);
    return run_merge(&c, argc - optind, argv + optind);
}
