/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The command line (options.h); for main.c. */
#include "options.h"

#include "../common/arguments.h"
#include "canvas.h"

#include <stdio.h>
#include <string.h>

#define SMALLEST 16
#define LARGEST  8192

void options_help(void)
{
    printf(
        "Usage: idw [option]...\n"
        "Interpolates the elevations of airports into a relief of the contiguous United States.\n"
        "\n"
        "  --size N          columns and rows of the grid, %d to %d (1024)\n"
        "  --power P         of the inverse distance: 2, 4, 6 or 8 (4)\n"
        "  --out FILE        the map (idw%s); none: no map\n"
        "  --check[=WHAT]    compare with plain C: sample, every 64th pixel (default),\n"
        "                    or full, every pixel (minutes); --check alone is full\n"
        "  --verify          as --check=full\n"
        "  --all-devices     run on every device that the selector names, one after the other\n"
        "%s"
        "  --quiet           no progress\n"
        "  --help            this text\n"
        "\n"
        "USM_DEVICE_SELECTOR chooses: host:*, opencl:cpu, opencl:gpu, opencl:0, '*:*', ...\n"
        "Exit status: 0 all right, 1 a wrong result or a failure, 2 a wrong option,\n"
        "3 no device that the selector names.\n",
        SMALLEST, LARGEST, image_suffix, team_options_help);
}

static bool parse_size(struct options *o, const char *text)
{
    int64_t number;

    if (!argument_number(text, SMALLEST, LARGEST, &number)) {
        fprintf(stderr, "idw: --size wants a number from %d to %d, not \"%s\"\n", SMALLEST, LARGEST,
                text);
        return false;
    }
    o->size = (uint32_t)number;
    return true;
}

static bool parse_power(struct options *o, const char *text)
{
    int64_t number;

    if (!argument_number(text, 2, 8, &number) || number % 2 != 0) {
        fprintf(stderr, "idw: --power wants 2, 4, 6 or 8, not \"%s\"\n", text);
        return false;
    }
    o->power = (unsigned)number;
    return true;
}

static bool parse_out(struct options *o, const char *text)
{
    if (*text == '\0') {
        fprintf(stderr, "idw: --out wants the name of a file, or none\n");
        return false;
    }
    o->out = strcmp(text, "none") == 0 ? NULL : text;
    return true;
}

static bool parse_check(struct options *o, const char *argument)
{
    o->check_all = strcmp(argument, "--check") == 0 || strcmp(argument, "--check=full") == 0;
    if (!o->check_all && strcmp(argument, "--check=sample") != 0) {
        fprintf(stderr, "idw: --check wants sample or full, not \"%s\"\n", argument + 8);
        return false;
    }
    return true;
}

static bool parse_switch(struct options *o, const char *argument)
{
    if (strcmp(argument, "--all-devices") == 0)
        o->all_devices = true;
    else if (strcmp(argument, "--verify") == 0)
        o->check_all = true;
    else if (strcmp(argument, "--quiet") == 0)
        o->is_quiet = true;
    else if (strncmp(argument, "--check", 7) == 0 && (argument[7] == '=' || argument[7] == '\0'))
        return parse_check(o, argument);
    else {
        fprintf(stderr, "idw: unknown option \"%s\"; --help lists them\n", argument);
        return false;
    }
    return true;
}

static bool parse_one(struct options *o, const char *argument, const char *next, int *used)
{
    const char      *value;
    enum team_option of_team = team_option_parse(&o->team, "idw", argument, next, used);

    if (of_team != TEAM_OPTION_OTHER)
        return of_team == TEAM_OPTION_TAKEN;
    if ((value = argument_value("--size", argument, next, used)) != NULL)
        return parse_size(o, value);
    if ((value = argument_value("--power", argument, next, used)) != NULL)
        return parse_power(o, value);
    if ((value = argument_value("--out", argument, next, used)) != NULL)
        return parse_out(o, value);
    return parse_switch(o, argument);
}

static bool fit(const struct options *o)
{
    if (!o->all_devices || (!o->team.is_on && !o->team.ranks))
        return team_options_fit(&o->team, "idw");
    fprintf(stderr, "idw: --all-devices is one after the other, --team all at once; give one\n");
    return false;
}

enum options_result options_parse(struct options *options, int argc, char **argv)
{
    static char default_out[16];
    int         used;

    snprintf(default_out, sizeof default_out, "idw%s", image_suffix);
    *options = (struct options){.size = 1024, .power = 4, .out = default_out};
    for (int i = 1; i < argc; i += used) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return OPTIONS_HELP;
        if (!parse_one(options, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &used))
            return OPTIONS_WRONG;
    }
    return fit(options) ? OPTIONS_GO : OPTIONS_WRONG;
}
