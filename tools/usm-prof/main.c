/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-prof: where a program's memory goes, and what its pools saved it.
 *
 * This file has the command line.  record.c runs a program, report.c and report_json.c print the
 * tables, diff.c compares two traces, and src/profile does the rest.  The manual is docs/man/usm-prof.1. */
#include "options.h"
#include "prof.h"
#include "profile/export.h"

#include <usm/init.h>

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: usm-prof record [-o FILE] [--stacks[=WHAT]] [--ring SIZE] PROGRAM [ARGUMENT...]\n"
    "       usm-prof report FILE [--json] [--top N] [--csv OUT] [--perfetto OUT] [--html OUT]\n"
    "       usm-prof diff BEFORE AFTER [--json] [--top N]\n"
    "       usm-prof export FILE [--pytorch-snapshot OUT] [--csv OUT] [--perfetto OUT]\n"
    "                       [--html OUT]\n"
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
    "diff: what changed between two traces of one program: peaks, driver calls, call sites\n"
    "  -j, --json; --top N  as of report\n"
    "export: the files alone; those of report, and\n"
    "      --pytorch-snapshot OUT  for PyTorch's memory viewer (https://pytorch.org/memory_viz)\n"
    "merge: traces of several processes in one, by real time\n"
    "  -o, --output OUT\n"
    "\n"
    "  -V, --version\n"
    "  -h, --help\n";

typedef struct command_line {
    record_options record;
    const char    *output, *csv, *perfetto, *html, *pytorch;
    bool           as_json;
    unsigned       top;
} command_line;

static const tool_option options[] = {
    {.name = "output", 'o', TOOL_TEXT, offsetof(command_line, output)},
    {.name = "stacks", 's', TOOL_MAYBE, offsetof(command_line, record.stacks)},
    {.name = "ring", 0, TOOL_TEXT, offsetof(command_line, record.ring)},
    {.name = "json", 'j', TOOL_FLAG, offsetof(command_line, as_json)},
    {.name = "top",
     0,
     TOOL_NUMBER,
     offsetof(command_line, top),
     NULL,
     "--top wants a number",
     0,
     UINT32_MAX},
    {.name = "csv", 0, TOOL_TEXT, offsetof(command_line, csv)},
    {.name = "perfetto", 0, TOOL_TEXT, offsetof(command_line, perfetto)},
    {.name = "html", 0, TOOL_TEXT, offsetof(command_line, html)},
    {.name = "pytorch-snapshot", 0, TOOL_TEXT, offsetof(command_line, pytorch)},
    {.name = NULL},
};
static const tool prof = {"usm-prof", help, options};

static int misuse(const char *what)
{
    return tool_misuse(&prof, what);
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

static bool has_exports(const command_line *c)
{
    return c->csv || c->perfetto || c->html || c->pytorch;
}

static int run_record(command_line *c, char **argv)
{
    if (c->as_json || has_exports(c))
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

static int end_of_output(void)
{
    if (fflush(stdout) == 0)
        return PROF_FINE;
    fprintf(stderr, "usm-prof: the report cannot be written: %s\n", strerror(errno));
    return PROF_FAILED;
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
    return end_of_output();
}

static usm_status open_trace(const char *path, usm__profile **t)
{
    usm_status st = usm__profile_open(path, t);

    if (st == USM_OK && (*t)->damage[0] != '\0')
        fprintf(stderr, "usm-prof: warning: %s: %s; what comes before is shown\n", path,
                (*t)->damage);
    return st;
}

static int export_all(const command_line *c, const usm__profile *t)
{
    int rc = export_to(t, c->csv, usm__export_csv);

    if (rc == PROF_FINE)
        rc = export_to(t, c->perfetto, usm__export_perfetto);
    if (rc == PROF_FINE)
        rc = export_to(t, c->html, usm__export_html);
    if (rc == PROF_FINE)
        rc = export_to(t, c->pytorch, usm__export_pytorch);
    return rc;
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
        return misuse("this wants one trace; usm-prof merge makes one of several");
    st = open_trace(files[0], &t);
    if (st != USM_OK)
        return failed(st);
    rc = export_all(c, t);
    if (rc == PROF_FINE && (c->as_json || !has_exports(c)))
        rc = run_tables(c, files[0], t);
    usm__profile_close(t);
    return rc;
}

static int run_export(const command_line *c, char **files)
{
    if (c->output || c->as_json || !has_exports(c))
        return misuse("export wants --pytorch-snapshot, --csv, --perfetto or --html");
    return run_report(c, files);
}

static int run_diff(const command_line *c, int n, char **files)
{
    usm__profile  *t[2] = {NULL, NULL};
    usm__analysis *a[2] = {NULL, NULL};
    usm_status     st   = USM_OK;
    int            rc;

    if (c->output || has_exports(c))
        return misuse("diff takes --json and --top");
    if (n != 2)
        return misuse("diff wants two traces, the one before first");
    for (int i = 0; i < 2 && st == USM_OK; i++) {
        st = open_trace(files[i], &t[i]);
        if (st == USM_OK)
            st = usm__analyse(t[i], &a[i]);
    }
    if (st != USM_OK) {
        rc = failed(st);
    } else if (diff(files, (const usm__profile *const *)t, (const usm__analysis *const *)a,
                    c->as_json, c->top)) {
        rc = end_of_output();
    } else {
        fputs("usm-prof: out of memory\n", stderr);
        rc = PROF_NO_MEMORY;
    }
    for (int i = 0; i < 2; i++) {
        usm__analysis_free(a[i]);
        usm__profile_close(t[i]);
    }
    return rc;
}

static int run_merge(const command_line *c, int n, char **files)
{
    usm_status st;

    if (c->as_json || has_exports(c))
        return misuse("merge takes -o; the rest is for report");
    if (n == 0 || c->output == NULL)
        return misuse("merge wants traces and -o OUT");
    st = usm__profile_merge((size_t)n, files, c->output);
    return st == USM_OK ? PROF_FINE : failed(st);
}

typedef enum verb { RECORD, REPORT, DIFF, EXPORT, MERGE, NONE } verb;

static verb verb_of(const char *word)
{
    static const char *const names[] = {"record", "report", "diff", "export", "merge"};
    unsigned                 v       = RECORD;

    while (v < NONE && strcmp(word, names[v]) != 0)
        v++;
    return (verb)v;
}

int main(int argc, char **argv)
{
    command_line c    = {.top = 20};
    const char  *word = argc > 1 ? argv[1] : "";
    verb         v    = verb_of(word);
    int          rc;

    (void)unsetenv("USM_TRACE"); /* the tool must not be recorded */
    if (v != NONE) {
        argv++;
        argc--;
    }
    /* What follows the name of the program to record belongs to that. */
    rc = tool_parse(&prof, argc, argv, v == RECORD, &c);
    if (rc >= 0)
        return rc;
    switch (v) {
    case RECORD:
        return run_record(&c, argv + optind);
    case REPORT:
        return run_report(&c, argv + optind);
    case DIFF:
        return run_diff(&c, argc - optind, argv + optind);
    case EXPORT:
        return run_export(&c, argv + optind);
    case MERGE:
        return run_merge(&c, argc - optind, argv + optind);
    case NONE:
        break;
    }
    return misuse(*word ? "the first word is record, report, diff, export or merge"
                        : "what is to be done: record, report, diff, export or merge?");
}
