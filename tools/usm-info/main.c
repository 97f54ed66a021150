/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-info: what libusm finds on this machine, and why it does not find more.
 *
 * This file has the command line.  show.c, show_json.c, settings.c, program.c, job.c and doctor.c
 * print.  The manual is docs/man/usm-info.1. */
#include "child.h"
#include "doctor.h"
#include "job.h"
#include "program.h"
#include "show.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

typedef enum action {
    SHOW_ALL,
    SHOW_LIST,
    SHOW_ENV,
    SHOW_DOCTOR,
    SHOW_JOB,
    SHOW_PROGRAM,
    SHOW_VERSION,
    SHOW_HELP,
    SHOW_MISTAKE
} action;

typedef struct command_line {
    action      action;
    bool        as_json, as_markdown;
    const char *program, *options, *root;
} command_line;

static const char help[] =
    "usage: usm-info [--list | --env | --doctor | --job | --program FILE] [--json]\n"
    "\n"
    "Shows libusm's backends, runtimes, devices and settings.\n"
    "\n"
    "  -l, --list           one line for each selected device\n"
    "  -e, --env            the settings: value, who set it, default, meaning\n"
    "      --markdown       with --env: as a Markdown table, without values\n"
    "  -d, --doctor         what is wrong here, and the remedy; exits 1 if anything is\n"
    "      --job            the MPI job that mpirun has started this tool in: its members, and\n"
    "                       which deaths such a launch survives\n"
    "  -p, --program FILE   which image of FILE (OpenCL C, SPIR-V or a .usmk bundle) runs\n"
    "                       on which device, or why none; exits 1 if none runs anywhere\n"
    "      --options TEXT   with --program: options for the OpenCL C compiler\n"
    "  -j, --json           for programs; the schema is in usm-info(1)\n"
    "  -V, --version\n"
    "  -h, --help\n"
    "\n"
    "USM_DEVICE_SELECTOR chooses devices: USM_DEVICE_SELECTOR='*:gpu' usm-info\n";

enum { OPTION_MARKDOWN = 256, OPTION_OPTIONS, OPTION_ROOT, OPTION_JOB };

static const struct option long_options[] = {
    {"list", no_argument, NULL, 'l'},
    {"env", no_argument, NULL, 'e'},
    {"markdown", no_argument, NULL, OPTION_MARKDOWN},
    {"doctor", no_argument, NULL, 'd'},
    {"job", no_argument, NULL, OPTION_JOB},
    {"program", required_argument, NULL, 'p'},
    {"options", required_argument, NULL, OPTION_OPTIONS},
    {"root", required_argument, NULL, OPTION_ROOT}, /* tests: a folder that stands for / */
    {"json", no_argument, NULL, 'j'},
    {"version", no_argument, NULL, 'V'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* Two different actions are an error. */
static void choose(command_line *c, action wanted)
{
    c->action = c->action == SHOW_ALL || c->action == wanted ? wanted : SHOW_MISTAKE;
    if (c->action == SHOW_MISTAKE)
        fputs("usm-info: one of --list, --env, --doctor, --job, --program at a time\n", stderr);
}

static void take_option(command_line *c, int option)
{
    switch (option) {
    case 'l':
        choose(c, SHOW_LIST);
        break;
    case 'e':
        choose(c, SHOW_ENV);
        break;
    case 'd':
        choose(c, SHOW_DOCTOR);
        break;
    case OPTION_JOB:
        choose(c, SHOW_JOB);
        break;
    case 'p':
        choose(c, SHOW_PROGRAM);
        c->program = optarg;
        break;
    case OPTION_OPTIONS:
        c->options = optarg;
        break;
    case OPTION_ROOT:
        c->root = optarg;
        break;
    case OPTION_MARKDOWN:
        c->as_markdown = true;
        break;
    case 'j':
        c->as_json = true;
        break;
    case 'V':
        c->action = SHOW_VERSION;
        break;
    case 'h':
        c->action = SHOW_HELP;
        break;
    default:
        c->action = SHOW_MISTAKE; /* getopt has printed the error */
    }
}

static void parse(command_line *c, int argc, char **argv)
{
    int option;

    memset(c, 0, sizeof *c);
    while (c->action < SHOW_VERSION &&
           (option = getopt_long(argc, argv, "ledp:jVh", long_options, NULL)) != -1)
        take_option(c, option);
    if (c->action < SHOW_VERSION && optind < argc) {
        fprintf(stderr, "usm-info: what is '%s'?\n", argv[optind]);
        c->action = SHOW_MISTAKE;
    } else if (c->action < SHOW_VERSION && c->as_markdown && c->action != SHOW_ENV) {
        fputs("usm-info: --markdown goes with --env\n", stderr);
        c->action = SHOW_MISTAKE;
    }
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
    case SHOW_PROGRAM:
        return program_report(c->program, c->options, c->as_json);
    case SHOW_VERSION:
        puts("usm-info " USM_VERSION_STRING);
        return 0;
    case SHOW_HELP:
        fputs(help, stdout);
        return 0;
    case SHOW_MISTAKE:
        break;
    }
    fputs("Try usm-info --help.\n", stderr);
    return 2;
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
    command_line c;
    int          rc;

    if (argc > 1 && strcmp(argv[1], "--child") == 0)
        return child_main(argc - 2, argv + 2);
    parse(&c, argc, argv);
    if (c.action < SHOW_VERSION)
        start();
    rc = run(&c);
    if (fflush(stdout) || ferror(stdout)) {
        fputs("usm-info: the output could not be written\n", stderr);
        return 2;
    }
    return rc;
}
