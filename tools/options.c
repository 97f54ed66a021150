/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The command lines of all tools: see options.h. */
#include "options.h"

#include "base/text.h"

#include <usm/version.h>

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { LONG_ONLY = 256 }; /* what getopt_long() returns for the first option */

int tool_misuse(const tool *t, const char *what)
{
    if (what)
        fprintf(stderr, "%s: %s\n", t->name, what);
    fprintf(stderr, "Try %s --help.\n", t->name);
    return TOOL_MISUSED;
}

static int take(const tool *t, const tool_option *o, void *line, const char *value)
{
    void    *at = (char *)line + o->at;
    uint64_t n  = 0;

    switch (o->kind) {
    case TOOL_FLAG:
        memcpy(at, &(bool){true}, sizeof(bool));
        return -1;
    case TOOL_TEXT:
    case TOOL_MAYBE:
        value = value ? value : "on";
        memcpy(at, &value, sizeof value);
        return -1;
    case TOOL_NUMBER:
        if (!usm__span_number(usm__span_of(value), &n) || n < o->least || n > o->most)
            return tool_misuse(t, o->wants);
        memcpy(at, &(unsigned){(unsigned)n}, sizeof(unsigned));
        return -1;
    case TOOL_SIZE:
        if (!usm__span_size(usm__span_of(value), &n) || n == 0)
            return tool_misuse(t, o->wants);
        memcpy(at, &n, sizeof n);
        return -1;
    case TOOL_CALL:
    case TOOL_PLAIN:
        break;
    }
    return o->take(t, o, line, value);
}

static int argument_of(tool_kind kind)
{
    if (kind == TOOL_FLAG || kind == TOOL_PLAIN)
        return no_argument;
    return kind == TOOL_MAYBE ? optional_argument : required_argument;
}

/* Writes what getopt_long() wants; every long option is known by its place in the table. */
static void describe(const tool *t, struct option *longs, char *letters)
{
    size_t n = 0;

    for (const tool_option *o = t->options; o->name && n < TOOL_OPTIONS_MAX; o++) {
        int argument = argument_of(o->kind);

        longs[n] = (struct option){o->name, argument, NULL, LONG_ONLY + (int)n};
        n++;
        if (o->letter) {
            *letters++ = o->letter;
            for (int i = 0; i < argument; i++) /* ":" or "::" */
                *letters++ = ':';
        }
    }
    longs[n]     = (struct option){"version", no_argument, NULL, 'V'};
    longs[n + 1] = (struct option){"help", no_argument, NULL, 'h'};
    longs[n + 2] = (struct option){NULL, 0, NULL, 0};
    memcpy(letters, "Vh", 3);
}

static const tool_option *find(const tool *t, int option)
{
    const tool_option *o = t->options;

    if (option >= LONG_ONLY)
        return &o[option - LONG_ONLY];
    while (o->name && o->letter != option)
        o++;
    return o->name ? o : NULL;
}

int tool_parse(const tool *t, int argc, char **argv, bool stops, void *line)
{
    struct option longs[TOOL_OPTIONS_MAX + 3];
    char          letters[1 + 3 * TOOL_OPTIONS_MAX + 3] = "+";
    int           option, rc = -1;

    describe(t, longs, letters + 1);
    while (rc < 0 &&
           (option = getopt_long(argc, argv, stops ? letters : letters + 1, longs, NULL)) != -1) {
        const tool_option *o = find(t, option);

        if (option == 'V') {
            printf("%s " USM_VERSION_STRING "\n", t->name);
            return 0;
        }
        if (option == 'h') {
            fputs(t->help, stdout);
            return 0;
        }
        rc = o ? take(t, o, line, optarg) : tool_misuse(t, NULL); /* getopt has printed the error */
    }
    return rc;
}
