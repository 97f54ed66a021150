/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-info: what libusm finds on this machine, and why it does not find more.
 *
 * This file has the command line.  show.c, show_json.c, settings.c, program.c, job.c and doctor.c
 * print.  The manual is docs/man/usm-info.1. */
#include "child.h"
#include "doctor.h"
#include "job.h"
#include "machine.h"
#include "options.h"
#include "program.h"
#include "show.h"

#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum action {
    SHOW_ALL,
    SHOW_LIST,
    SHOW_ENV,
    SHOW_DOCTOR,
    SHOW_JOB,
    SHOW_MACHINE,
    SHOW_PROGRAM
} action;

typedef struct command_line {
    action      action;
    bool        as_json, as_markdown;
    const char *program, *options, *root;
} command_line;

static const char help[] =
    "usage: usm-info [--list | --env | --doctor | --job | --machine | --program FILE] [--json]\n"
    "\n"
    "Shows libusm's backends, runtimes, devices and settings.\n"
    "\n"
    "  -l, --list           one line for each selected device\n"
    "  -e, --env            the settings: value, who set it, default, meaning\n"
    "      --markdown       with --env: as a Markdown table, without values\n"
    "  -d, --doctor         what is wrong here, and the remedy; exits 1 if anything is\n"
    "      --job            the MPI job that mpirun has started this tool in: its members, and\n"
    "                       which deaths such a launch survives\n"
    "  -m, --machine        the devices and their links, measured, for usm-run --simulate; JSON\n"
    "  -p, --program FILE   which image of FILE (OpenCL C, SPIR-V or a .usmk bundle) runs\n"
    "                       on which device, or why none; exits 1 if none runs anywhere\n"
    "      --options TEXT   with --program: options for the OpenCL C compiler\n"
    "  -j, --json           for programs; the schema is in usm-info(1)\n"
    "  -V, --version\n"
    "  -h, --help\n"
    "\n"
    "USM_DEVICE_SELECTOR chooses devices: USM_DEVICE_SELECTOR='*:gpu' usm-info\n";

/* Two different actions are an error. */
static int choose(const tool *t, const tool_option *o, void *line, const char *value)
{
    static const struct {
        char   letter;
        action wanted;
    } actions[]          = {{'l', SHOW_LIST},
                            {'e', SHOW_ENV},
                            {'d', SHOW_DOCTOR},
                            {'m', SHOW_MACHINE},
                            {'p', SHOW_PROGRAM}};
    command_line *c      = line;
    action        wanted = SHOW_JOB; /* which has no letter */

    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (actions[i].letter == o->letter)
            wanted = actions[i].wanted;
    if (c->action != SHOW_ALL && c->action != wanted)
        return tool_misuse(t,
                           "one of --list, --env, --doctor, --job, --machine, --program at a time");
    c->action = wanted;
    if (wanted == SHOW_PROGRAM)
        c->program = value;
    return -1;
}

static const tool_option options[] = {
    {.name = "list", 'l', TOOL_PLAIN, 0, choose},
    {.name = "env", 'e', TOOL_PLAIN, 0, choose},
    {.name = "markdown", 0, TOOL_FLAG, offsetof(command_line, as_markdown)},
    {.name = "doctor", 'd', TOOL_PLAIN, 0, choose},
    {.name = "job", 0, TOOL_PLAIN, 0, choose},
    {.name = "machine", 'm', TOOL_PLAIN, 0, choose},
    {.name = "program", 'p', TOOL_CALL, 0, choose},
    {.name = "options", 0, TOOL_TEXT, offsetof(command_line, options)},
    {.name = "root",
     0,
     TOOL_TEXT,
     offsetof(command_line, root)}, /* tests: a folder that stands for / */
    {.name = "json", 'j', TOOL_FLAG, offsetof(command_line, as_json)},
    {.name = NULL},
};
static const tool info = {"usm-info", help, options};

static int parse(command_line *c, int argc, char **argv)
{
    int rc = tool_parse(&info, argc, argv, false, c);

    if (rc < 0 && optind < argc) {
        fprintf(stderr, "usm-info: what is '%s'?\n", argv[optind]);
        return tool_misuse(&info, NULL);
    }
    if (rc < 0 && c->as_markdown && c->action != SHOW_ENV)
        return tool_misuse(&info, "--markdown goes with --env");
    return rc;
}

static int run_env(const command_line *c)
{
    usm__json j;

    if (c->as_json) {
        show_json_head(&j, stdout);
        show_settings_json(&j);
        usm__json_object_end(&j);
    } else if (c->as_markdown) {
        show_settings_markdown();
    } else {
        show_settings();
    }
    return 0;
}

/* Returns 1 if the library lists no device; everything else is shown all the same. */
static int run_show(const command_line *c)
{
    inventory inv;
    int       rc;

    inventory_collect(&inv, c->action == SHOW_ALL ? INVENTORY_ALL : INVENTORY_SELECTED);
    if (c->action == SHOW_ALL)
        inventory_probe(&inv);
    if (c->action == SHOW_LIST && inv.error)
        fprintf(stderr, "usm-info: %s\n", inv.error);
    if (c->action == SHOW_ALL)
        (c->as_json ? show_json : show_text)(&inv);
    else
        (c->as_json ? show_list_json : show_list)(&inv);
    rc = inv.error ? 1 : 0;
    inventory_free(&inv);
    return rc;
}

static int run(const command_line *c)
{
    switch (c->action) {
    case SHOW_ALL:
    case SHOW_LIST:
        return run_show(c);
    case SHOW_ENV:
        return run_env(c);
    case SHOW_DOCTOR:
        return doctor_report(c->root, c->as_json);
    case SHOW_JOB:
        return job_report(c->as_json);
    case SHOW_MACHINE:
        return machine_report();
    case SHOW_PROGRAM:
        break;
    }
    return program_report(c->program, c->options, c->as_json);
}

/* Loads no driver, but registers backends and checks the settings.  Settings, version and doctor
 * also work if the library does not start. */
static void start(void)
{
    if (usm_init())
        fprintf(stderr, "usm-info: libusm does not start: %s\n", usm_last_error());
}

int main(int argc, char **argv)
{
    command_line c = {.action = SHOW_ALL};
    int          rc;

    if (argc > 1 && strcmp(argv[1], "--child") == 0)
        return child_main(argc - 2, argv + 2);
    rc = parse(&c, argc, argv);
    if (rc < 0) {
        start();
        rc = run(&c);
    }
    if (fflush(stdout) || ferror(stdout)) {
        fputs("usm-info: the output could not be written\n", stderr);
        return 2;
    }
    return rc;
}
