/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The command line (options.h); for main.c. */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void options_help(void)
{
    printf(
        "Usage: out_of_core [wave|transpose|difference] [option]...\n"
        "Works on data that are larger than the memory it may use; all three tasks when none is\n"
        "named.\n"
        "\n"
        "  --size BYTES      data of each task, with K, M, G (1G)\n"
        "  --limit BYTES     of memory for them (256M, unless USM_MEMORY_LIMIT says otherwise)\n"
        "  --file FILE       of one task: the data live in that file; run again, it goes on\n"
        "                    where it was interrupted\n"
        "  --compare mmap    the same work over a mapped file, rates side by side\n"
        "  --quiet           no progress\n"
        "  --no-statistics   not at the end\n"
        "  --help            this text\n"
        "\n"
        "USM_SPILL names where data go that do not fit, e.g. file:/var/tmp.\n"
        "Exit status: 0 all right, 1 a wrong result or a failure, 2 a wrong option.\n");
}

static bool complain(const char *what, const char *word)
{
    fprintf(stderr, "out_of_core: %s: \"%s\"; --help lists the options\n", what, word);
    return false;
}

static bool parse_size(const char *text, uint64_t *size)
{
    static const char units[] = "KMGT";
    char             *end;
    const char       *unit;

    *size = strtoull(text, &end, 10);
    if (end == text || *size == 0)
        return complain("--size wants bytes, as in 512M", text);
    if (*end == '\0')
        return true;
    unit = strchr(units, *end);
    if (!unit || end[1] != '\0')
        return complain("--size wants bytes, as in 512M", text);
    *size <<= 10 * (unsigned)(unit - units + 1);
    return true;
}

static bool parse_switch(struct options *o, const char *word)
{
    if (strcmp(word, "--quiet") == 0)
        o->is_quiet = true;
    else if (strcmp(word, "--no-statistics") == 0)
        o->describes = false;
    else if (word[0] != '-' && !o->task)
        o->task = word;
    else
        return complain("there is no such option", word);
    return true;
}

/* An option with a value; false: it is none. */
static bool is_setting(const char *word)
{
    static const char *const names[] = {"--size", "--limit", "--file", "--compare"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(word, names[i]) == 0)
            return true;
    return false;
}

static bool parse_setting(struct options *o, const char *word, const char *value)
{
    if (!value || !*value)
        return complain("a value is missing", word);
    if (strcmp(word, "--size") == 0)
        return parse_size(value, &o->size);
    if (strcmp(word, "--limit") == 0)
        o->limit = value;
    else if (strcmp(word, "--file") == 0)
        o->file = value;
    else if (strcmp(value, "mmap") == 0)
        o->compares = true;
    else
        return complain("--compare knows mmap only", value);
    return true;
}

enum options_result options_parse(struct options *options, int argc, char **argv)
{
    *options = (struct options){.size = UINT64_C(1) << 30, .describes = true};
    for (int i = 1; i < argc; i++) {
        bool ok;

        if (strcmp(argv[i], "--help") == 0)
            return OPTIONS_HELP;
        if (is_setting(argv[i])) {
            ok = parse_setting(options, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            i++;
        } else {
            ok = parse_switch(options, argv[i]);
        }
        if (!ok)
            return OPTIONS_WRONG;
    }
    if (options->file && !options->task) {
        complain("--file is for one task: name it", options->file);
        return OPTIONS_WRONG;
    }
    return OPTIONS_GO;
}
