/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The command lines of all tools: a table of options, each with the member of the tool's own struct
 * that it sets.  Every tool has --version (-V) and --help (-h) too.  Called by the main.c of each. */
#ifndef USM_TOOLS_OPTIONS_H
#define USM_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOOL_MISUSED = 2 }; /* the exit status */

typedef enum tool_kind {
    TOOL_FLAG,   /* a bool                                                          */
    TOOL_TEXT,   /* a const char *                                                  */
    TOOL_MAYBE,  /* a const char *; "on" without a value, which follows a "="       */
    TOOL_NUMBER, /* an unsigned, from `least` to `most`                             */
    TOOL_SIZE,   /* a uint64_t above 0: bytes with K, M, G, T                       */
    TOOL_CALL,   /* what `take` makes of it, with a value ...                       */
    TOOL_PLAIN   /* ... without one                                                 */
} tool_kind;

typedef struct tool        tool;
typedef struct tool_option tool_option;
/* Returns -1: go on; else the exit status. */
typedef int tool_take_fn(const tool *t, const tool_option *o, void *line, const char *value);

struct tool_option {
    const char   *name;   /* without "--"; NULL ends the table */
    char          letter; /* 0: none                           */
    tool_kind     kind;
    size_t        at; /* offset of the member */
    tool_take_fn *take;
    const char   *wants; /* what is said if the value does not fit: "--top wants a number" */
    uint64_t      least, most;
};

struct tool {
    const char        *name, *help;
    const tool_option *options;
};

#define TOOL_OPTIONS_MAX 32

/* Reads the options; -1: all were taken, and `optind` is that of the first other argument; else the
 * exit status.  stops: arguments from the first that is no option on belong to somebody else. */
int tool_parse(const tool *t, int argc, char **argv, bool stops, void *line);
/* Prints it, and where help is; returns TOOL_MISUSED. */
int tool_misuse(const tool *t, const char *what);

#endif
