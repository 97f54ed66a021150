/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-top: the processes of this user that use libusm, as they run.  This file has the command line and
 * what is printed without a terminal. */
#include "top.h"

#include "base/os.h"
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FINE = 0, FAILED = 1, WIDTH = 120 };

static const char help[] =
    "usage: usm-top [OPTION]...\n"
    "\n"
    "Shows the processes of this user that use libusm, as they run: their memory by pool, kind "
    "and\n"
    "tag, devices, queues, what buffers spill, and which tags grow.  In a terminal until q is\n"
    "pressed (F1 lists the keys), elsewhere once.\n"
    "\n"
    "  -1, --once         print it once and end\n"
    "  -j, --json         the same as JSON\n"
    "  -m, --openmetrics  the same as OpenMetrics text, for Prometheus\n"
    "  -l, --log FILE     append a line of JSON to FILE with each sample, until stopped\n"
    "  -d, --delay MS     time between samples; 1000\n"
    "  -n, --samples N    end after N samples\n"
    "  -p, --pid PID      this process alone\n"
    "  -f, --filter TEXT  programs whose names have TEXT\n"
    "  -s, --sort KEY     live, reserved, allocations, commands, depth, spill, pid or program\n"
    "  -g, --grows N      mark tags and pools that grew in each of the last N samples; 3\n"
    "  -C, --no-color\n"
    "  -V, --version\n"
    "  -h, --help\n"
    "\n"
    "A process with USM_MONITOR=0 is not seen.\n";

typedef struct line {
    bool        is_once, is_json, is_openmetrics, has_no_colours;
    unsigned    every_ms, samples, pid, grows_after;
    const char *log, *filter;
    top_order   order;
} line;

static int take_order(const tool *t, const tool_option *o, void *to, const char *value)
{
    (void)o;
    ((line *)to)->order = top_order_of(value);
    return ((line *)to)->order == TOP_ORDERS
               ? tool_misuse(t, "--sort wants live, reserved, allocations, commands, depth, spill, "
                                "pid or program")
               : -1;
}

static const tool_option options[] = {
    {.name = "once", '1', TOOL_FLAG, offsetof(line, is_once)},
    {.name = "json", 'j', TOOL_FLAG, offsetof(line, is_json)},
    {.name = "openmetrics", 'm', TOOL_FLAG, offsetof(line, is_openmetrics)},
    {.name = "log", 'l', TOOL_TEXT, offsetof(line, log)},
    {.name = "delay",
     'd',
     TOOL_NUMBER,
     offsetof(line, every_ms),
     .wants = "--delay wants milliseconds, from 100 to 3600000",
     .least = 100,
     .most  = 3600000},
    {.name = "samples",
     'n',
     TOOL_NUMBER,
     offsetof(line, samples),
     .wants = "--samples wants a number",
     .least = 1,
     .most  = UINT32_MAX},
    {.name = "pid",
     'p',
     TOOL_NUMBER,
     offsetof(line, pid),
     .wants = "--pid wants a process id",
     .least = 1,
     .most  = INT32_MAX},
    {.name = "filter", 'f', TOOL_TEXT, offsetof(line, filter)},
    {.name = "sort", 's', TOOL_CALL, 0, take_order},
    {.name = "grows",
     'g',
     TOOL_NUMBER,
     offsetof(line, grows_after),
     .wants = "--grows wants a number of samples, from 1 to 1000",
     .least = 1,
     .most  = 1000},
    {.name = "no-color", 'C', TOOL_FLAG, offsetof(line, has_no_colours)},
    {.name = NULL},
};
static const tool top = {"usm-top", help, options};

/* ---- a log ----------------------------------------------------------------------------------- */

typedef struct log {
    FILE       *file; /* NULL: none */
    const char *name;
    unsigned    left;  /* samples; 0: no end */
    int         error; /* an errno; 0: none  */
} log;

/* A buffer that is written on the way leaves its error in the stream, and fflush() has none. */
static bool has_gone_out(FILE *file, int *error)
{
    bool failed = ferror(file) != 0;

    if (fflush(file) == 0 && !failed)
        return true;
    *error = errno != 0 ? errno : EIO;
    return false;
}

static bool add_to_log(void *arg, const top_model *m)
{
    log      *l = arg;
    usm__json j = {.out = {.file = l->file}};

    if (l->file) {
        top_put_json(&j, m);
        usm__out_put(&j.out, "\n");
        if (!has_gone_out(l->file, &l->error))
            return false;
    }
    return l->left == 0 || --l->left > 0;
}

/* Without a terminal: samples until the log has all that are wanted, or cannot be written. */
static int follow(top_model *m, log *l, unsigned every_ms)
{
    do
        usm__os_sleep_ns((uint64_t)every_ms * 1000000);
    while (top_take(m) && add_to_log(l, m));
    return FINE;
}

/* ---- once ------------------------------------------------------------------------------------ */

static void print_text(const top_model *m)
{
    usm__out o = {.file = stdout};

    if (m->n == 0) {
        usm__out_put(&o, "usm-top: no process of this user that uses libusm has a page in %s\n",
                     m->reader.folder);
        return;
    }
    top_put_title(&o, m, WIDTH);
    top_put_head(&o, m, WIDTH);
    for (size_t i = 0; i < m->n; i++)
        top_put_row(&o, m->list[i], WIDTH);
    for (size_t i = 0; i < m->n; i++) {
        usm__out_put(&o, "\n");
        top_put_details(&o, m->list[i], WIDTH);
    }
}

static int print(const top_model *m, const line *l)
{
    usm__json j     = {.out = {.file = stdout}, .form = USM__JSON_INDENTED};
    int       error = 0;

    if (l->is_json) {
        top_put_json(&j, m);
        usm__out_put(&j.out, "\n");
    } else if (l->is_openmetrics) {
        top_put_openmetrics(&j.out, m);
    } else {
        print_text(m);
    }
    if (!has_gone_out(stdout, &error)) {
        (void)fprintf(stderr, "usm-top: standard output: %s\n", strerror(error));
        return FAILED;
    }
    return l->pid != 0 && m->n == 0 ? FAILED : FINE;
}

/* Processes begin to sample when they are asked: twice, for the rates. */
static int once(top_model *m, const line *l)
{
    const uint64_t wait_ns = 3 * (uint64_t)USM__MONITOR_PERIOD;

    for (int i = 0; i < 2; i++) {
        usm__os_sleep_ns(wait_ns);
        if (!top_take(m)) {
            (void)fputs("usm-top: no memory for all processes\n", stderr);
            return FAILED;
        }
    }
    return print(m, l);
}

static int run(top_model *m, const line *l)
{
    log        to     = {NULL, l->log, l->samples, 0};
    bool       talk   = !l->is_once && !l->is_json && !l->is_openmetrics;
    top_screen screen = {l->every_ms, l->has_no_colours, add_to_log, &to};
    int        rc;

    if (l->log && !(to.file = fopen(l->log, "ae"))) {
        (void)fprintf(stderr, "usm-top: %s: %s\n", l->log, strerror(errno));
        return FAILED;
    }
    if (talk && top_can_show() && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        rc = top_show(m, &screen);
    else
        rc = talk && (l->log || l->samples) ? follow(m, &to, l->every_ms) : once(m, l);
    if (to.file && fclose(to.file) != 0 && to.error == 0)
        to.error = errno;
    if (to.error != 0) { /* said when the terminal is the user's again */
        (void)fprintf(stderr, "usm-top: %s: %s\n", to.name, strerror(to.error));
        rc = FAILED;
    }
    return rc;
}

int main(int argc, char **argv)
{
    static top_model m; /* guarded by being of one thread */
    line             l      = {.every_ms = 1000};
    int              status = tool_parse(&top, argc, argv, false, &l);

    if (status >= 0)
        return status;
    if (optind < argc)
        return tool_misuse(&top, "there is an argument too much");
    if (l.is_json + l.is_openmetrics > 1)
        return tool_misuse(&top, "--json and --openmetrics are two forms: which one?");
    m.only_pid    = l.pid;
    m.filter      = l.filter;
    m.order       = l.order;
    m.grows_after = l.grows_after;
    if (!usm__monitor_open(&m.reader)) {
        (void)fprintf(stderr, "usm-top: no folder for monitor pages can be made: %s\n",
                      strerror(errno));
        return FAILED;
    }
    if (!top_take(&m)) {
        (void)fputs("usm-top: no memory for all processes\n", stderr);
        return FAILED;
    }
    status = run(&m, &l);
    top_drop(&m);
    return status;
}
