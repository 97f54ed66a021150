/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-exec: runs a program that does not know libusm with libusm's pools under the runtimes it uses.
 *
 * Each way into a runtime is a seam: a library of inside/, and the variable of the environment that
 * makes the program's processes load it.  Children inherit the variable, so a shell, python and mpirun
 * are programs like others.  Without --report this process becomes the program: signals and the exit
 * status are its own.  The manual is docs/man/usm-exec.1. */
#include "exec.h"
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <usm/init.h>

static const char help[] =
    "usage: usm-exec [OPTION]... PROGRAM [ARGUMENT...]\n"
    "\n"
    "Runs PROGRAM, which need not know libusm, and its children with libusm's pools under the\n"
    "runtimes that they use.\n"
    "\n"
    "  -v, --verbose     say which seams are opened, and why others are not\n"
    "      --off NAME    leave a seam out; may be given again: umf (SYCL over Level Zero),\n"
    "                    opencl, malloc, level-zero\n"
    "  -m, --malloc SIZE malloc's blocks of SIZE and more come from a pool too: 64K or more\n"
    "      --managed     ... or from managed memory, which outgrows the limit: needs --malloc\n"
    "  -z, --level-zero  memory of Level Zero programs without SYCL comes from pools too; not for\n"
    "                    those that share blocks with other processes by their start\n"
    "  -l, --limit TEXT  most memory to hold, as device:4G (USM_MEMORY_LIMIT)\n"
    "  -r, --report      print on stderr, when PROGRAM has ended, what its pools did\n"
    "  -V, --version\n"
    "  -h, --help\n"
    "\n"
    "USM_* variables hold for PROGRAM.  What changes for it: docs/unchanged.md.\n";

typedef struct seam {
    const char *name, *library, *variable;
    const char *what; /* what it serves, for --verbose */
} seam;

static const seam seams[] = {
    {"umf", "libusm_inside_umf.so", "LD_PRELOAD",
     "device, host and shared memory of SYCL over Level Zero"},
    {"opencl", "libusm_inside_opencl.so", "OPENCL_LAYERS", "USM and SVM of OpenCL"},
    {"malloc", "libusm_inside_malloc.so", "LD_PRELOAD", "large blocks of malloc"},
    {"level-zero", "libusm_inside_level_zero.so", "ZE_ENABLE_ALT_DRIVERS",
     "device, host and shared memory of Level Zero"},
};

#define SEAMS        (sizeof seams / sizeof *seams)
#define MALLOC       2 /* indices of the seams that are opened on request only */
#define LEVEL_ZERO   3
#define WANTS_MALLOC "--malloc wants a size of 64K or more, such as 1M"
#define LEAST_MALLOC ((uint64_t)64 << 10)

typedef struct command_line {
    bool        is_verbose, wants_report, wants_level_zero, wants_managed;
    const char *limit;
    uint32_t    off;   /* bit i: seams[i]                                   */
    uint64_t    least; /* of malloc's blocks, those from the pool; 0: none is */
} command_line;

static int take_off(const tool *t, const tool_option *o, void *line, const char *value)
{
    command_line *c = line;

    (void)o;
    for (size_t i = 0; i < SEAMS; i++)
        if (strcmp(value, seams[i].name) == 0) {
            c->off |= (uint32_t)1 << i;
            return -1;
        }
    return tool_misuse(t, "--off wants the name of a seam: umf, opencl, malloc, level-zero");
}

/* What is wrong with a limit is said before the program starts. */
static int take_limit(const tool *t, const tool_option *o, void *line, const char *value)
{
    command_line *c = line;

    (void)t;
    (void)o;
    c->limit = value;
    if (usm_config_set("memory_limit", value) == USM_OK)
        return -1;
    (void)fprintf(stderr, "usm-exec: --limit %s: %s\n", value, usm_last_error());
    return TOOL_MISUSED;
}

static const tool_option options[] = {
    {.name = "verbose", 'v', TOOL_FLAG, offsetof(command_line, is_verbose)},
    {.name = "off", 0, TOOL_CALL, 0, take_off},
    {.name = "limit", 'l', TOOL_CALL, 0, take_limit},
    {.name = "malloc", 'm', TOOL_SIZE, offsetof(command_line, least), .wants = WANTS_MALLOC},
    {.name = "managed", 0, TOOL_FLAG, offsetof(command_line, wants_managed)},
    {.name = "level-zero", 'z', TOOL_FLAG, offsetof(command_line, wants_level_zero)},
    {.name = "report", 'r', TOOL_FLAG, offsetof(command_line, wants_report)},
    {.name = NULL},
};
static const tool exec_tool = {"usm-exec", help, options};

/* The folder of this program's file, with a "/". */
static bool own_folder(char *path, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    char   *end;

    if (n <= 0)
        return false;
    path[n] = '\0';
    end     = strrchr(path, '/');
    if (!end)
        return false;
    end[1] = '\0';
    return true;
}

/* The library beside which this program was built or installed. */
static bool find_library(const seam *s, char *path, size_t size)
{
    static const char *const ways[] = {"../lib", USM_EXEC_LIBRARIES};
    char                     folder[2048];
    char                     found[4096];

    if (!own_folder(folder, sizeof folder))
        return false;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if ((size_t)snprintf(found, sizeof found, "%s%s/%s", folder, ways[i], s->library) >=
            sizeof found)
            continue;
        if (access(found, R_OK) != 0)
            continue;
        if (realpath(found, path) && strlen(path) < size)
            return true;
    }
    return false;
}

static bool set(const char *variable, const char *value)
{
    if (setenv(variable, value, 1) == 0)
        return true;
    (void)fprintf(stderr, "usm-exec: %s cannot be set: %s\n", variable, strerror(errno));
    return false;
}

/* Appends to a list of the user's own. */
static bool append(const char *variable, const char *path)
{
    const char *was = getenv(variable);
    char       *both;
    bool        is_set;

    if (!was || !*was)
        return set(variable, path);
    both = malloc(strlen(was) + strlen(path) + 2);
    if (!both)
        return false;
    (void)sprintf(both, "%s:%s", was, path);
    is_set = set(variable, both);
    free(both);
    return is_set;
}

static void say(const command_line *c, const seam *s, const char *what)
{
    if (c->is_verbose)
        (void)fprintf(stderr, "usm-exec: %s: %s\n", s->name, what);
}

static bool set_least(const command_line *c)
{
    char text[24];

    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)c->least);
    return set("USM_INSIDE_MALLOC", text) && (!c->wants_managed || set("USM_INSIDE_MANAGED", "1"));
}

/* Puts the library where the first of the drivers was that the loader is to open, and tells it that
 * driver's name.  The loader opens the other drivers as before. */
static bool wrap_driver(const command_line *c, const seam *s, const char *path)
{
    const char *was  = getenv(s->variable);
    const char *rest = was ? strchr(was, ',') : NULL;
    char       *first, *all;
    bool        is_set = false;

    if (was && strstr(was, s->library))
        return true; /* within another usm-exec */
    if (!was || !*was)
        return set("USM_INSIDE_LEVEL_ZERO", "libze_intel_gpu.so.1") && set(s->variable, path);
    first = strndup(was, rest ? (size_t)(rest - was) : strlen(was));
    all   = malloc(strlen(path) + strlen(was) + 1);
    if (first && all) {
        (void)sprintf(all, "%s%s", path, rest ? rest : "");
        is_set = set("USM_INSIDE_LEVEL_ZERO", first) && set(s->variable, all);
    }
    if (is_set && rest)
        say(c, s, "the first driver of ZE_ENABLE_ALT_DRIVERS is served, the others are not");
    free(first);
    free(all);
    return is_set;
}

static bool is_asked_for(const command_line *c, size_t i)
{
    return (i != MALLOC || c->least) && (i != LEVEL_ZERO || c->wants_level_zero);
}

/* Makes the program's processes load the library. */
static bool name_library(const command_line *c, size_t i, const char *path)
{
    if (i == LEVEL_ZERO)
        return wrap_driver(c, &seams[i], path);
    return (i != MALLOC || set_least(c)) && append(seams[i].variable, path);
}

static void open_seam(const command_line *c, size_t i)
{
    const seam *s = &seams[i];
    char        path[4096];

    if (c->off >> i & 1)
        say(c, s, "left out, as --off says");
    else if (!is_asked_for(c, i))
        say(c, s,
            i == MALLOC ? "not opened: it is off by default, --malloc SIZE asks for it"
                        : "not opened: it is off by default, --level-zero asks for it");
    else if (!find_library(s, path, sizeof path))
        say(c, s, "not opened: its library is not installed");
    else if (strpbrk(path, ": ,"))
        say(c, s, "not opened: the path of its library has a space, a colon or a comma");
    else if (name_library(c, i, path))
        say(c, s, s->what);
}

/* The program that prints the report; false, and a message: there is none. */
static bool find_prof(char *prof, size_t size)
{
    char folder[2048] = "";

    (void)own_folder(folder, sizeof folder);
    (void)snprintf(prof, size, "%susm-prof", folder);
    if (access(prof, X_OK) == 0)
        return true;
    (void)fprintf(stderr, "usm-exec: there will be no report: it needs %s: %s\n", prof,
                  strerror(errno));
    return false;
}

static int run(const command_line *c, char **argv)
{
    char prof[2100], why[128];

    if (!exec_can_preload(argv[0], why, sizeof why))
        (void)fprintf(stderr, "usm-exec: %s runs as it is: %s\n", argv[0], why);
    else
        for (size_t i = 0; i < SEAMS; i++)
            open_seam(c, i);
    if (c->limit && !set("USM_MEMORY_LIMIT", c->limit))
        return EXEC_FAILED;
    if (c->wants_report && find_prof(prof, sizeof prof))
        return exec_with_report(prof, argv);
    (void)execvp(argv[0], argv);
    (void)fprintf(stderr, "usm-exec: %s cannot be run: %s\n", argv[0], strerror(errno));
    return errno == ENOENT ? EXEC_NOT_FOUND : EXEC_NOT_RUN;
}

int main(int argc, char **argv)
{
    command_line c  = {0};
    int          rc = tool_parse(&exec_tool, argc, argv, true, &c);

    if (rc >= 0)
        return rc;
    if (!argv[optind])
        return tool_misuse(&exec_tool, "which program is to be run?");
    if (c.least && c.least < LEAST_MALLOC) /* libusm's own files and tables stay below it */
        return tool_misuse(&exec_tool, WANTS_MALLOC);
    if (c.wants_managed && !c.least)
        return tool_misuse(&exec_tool, "--managed wants --malloc SIZE besides");
    return run(&c, argv + optind);
}
