/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Logs of RMM's logging_resource_adaptor: a line of names, then a line for each call.
 *
 *     Thread,Time,Action,Pointer,Size,Stream
 *     140212,10:32:16:402912,allocate,0x7f2a00000000,1048576,0x0
 *     140212,10:32:16:403001,free,0x7f2a00000000,1048576,0x0
 *     140212,10:32:16:403120,allocate failure,(nil),85899345920,0x0
 *
 * Pointers are hexadecimal, with 0x or without (versions differ), and so are thread ids since some
 * version.  Times and streams are ignored. */
#include "replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREAD, TIME, ACTION, POINTER, SIZE, STREAM, FIELDS };

/* Cuts the line at its commas; returns the number of fields, at most FIELDS. */
static int cut(char *line, char *fields[FIELDS])
{
    int n = 0;

    line[strcspn(line, "\r\n")] = '\0';
    while (line && n < FIELDS) {
        char *comma = strchr(line, ',');

        if (comma)
            *comma = '\0';
        fields[n++] = line;
        line        = comma ? comma + 1 : NULL;
    }
    return line ? FIELDS + 1 : n;
}

static bool number(const char *text, int base, uint64_t *value)
{
    char              *end;
    unsigned long long v;

    if (*text == '\0' || *text == '-' || *text == '+' || *text == ' ')
        return false;
    errno  = 0;
    v      = strtoull(text, &end, base);
    *value = v;
    return *end == '\0' && errno == 0;
}

/* NULL, or an error in the line; *memory false: out of memory. */
static const char *read_line(loader *l, char *line, uint64_t at, bool *memory)
{
    char    *fields[FIELDS];
    uint64_t thread = 0, address = 0, size = 0;
    int      n;

    if (at == 1 || line[strspn(line, " \t\r\n")] == '\0')
        return NULL; /* the names, or an empty line */
    n = cut(line, fields);
    if (n != FIELDS)
        return n < FIELDS ? "it ends within the six fields" : "it has more than six fields";
    if (!number(fields[THREAD], 10, &thread) && !number(fields[THREAD], 16, &thread))
        return "the thread is not a number";
    if (strcmp(fields[ACTION], "allocate failure") == 0) {
        loader_failed(l);
        return NULL;
    }
    if (!number(fields[SIZE], 10, &size) || size >= (uint64_t)1 << 62)
        return "the size is not a number";
    if (!number(fields[POINTER], 16, &address))
        return "the pointer is not a hexadecimal number";
    if (strcmp(fields[ACTION], "allocate") == 0)
        *memory = loader_alloc(l, 0, address, size, thread, at);
    else if (strcmp(fields[ACTION], "free") == 0)
        *memory = loader_free(l, 0, address, thread, at);
    else
        return "the action is none of allocate, allocate failure, free";
    return NULL;
}

bool log_read_rmm(loader *l, const char *path, uint32_t only_pool, char *why, size_t why_size)
{
    (void)only_pool;
    return loader_lines(l, path, read_line, why, why_size);
}
