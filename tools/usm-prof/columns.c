/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Columns of numbers. */
#include "columns.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GAP   2
#define FIRST 44 /* widest first cell for which the other columns move */

struct columns {
    size_t n, cells, room;
    char **text;
};

static void *must(void *p)
{
    if (p != NULL)
        return p;
    fputs("usm-prof: out of memory\n", stderr);
    exit(3);
}

columns *columns_new(size_t n)
{
    columns *c = must(calloc(1, sizeof(*c)));

    c->n = n;
    return c;
}

void columns_add(columns *c, const char *format, ...)
{
    char    text[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (c->cells == c->room) {
        c->room = c->room ? c->room * 2 : 64;
        c->text = must(realloc(c->text, c->room * sizeof(*c->text)));
    }
    c->text[c->cells++] = must(strdup(text));
}

void columns_bytes(columns *c, uint64_t bytes)
{
    char text[32];

    columns_add(c, "%s", usm__format_bytes(bytes, text, sizeof(text)));
}

const char *time_text(double ns, char *buf, size_t size)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    int                      u       = 0;

    for (; ns >= 1000 && u < 3; u++)
        ns /= 1000;
    (void)snprintf(buf, size, u ? "%.2f %s" : "%.0f %s", ns, units[u]);
    return buf;
}

void columns_time(columns *c, double ns)
{
    char text[32];

    columns_add(c, "%s", time_text(ns, text, sizeof(text)));
}

void columns_share(columns *c, uint64_t part, uint64_t whole)
{
    if (whole == 0)
        columns_add(c, "-");
    else
        columns_add(c, "%.1f %%", 100.0 * (double)part / (double)whole);
}

static size_t width_of(const columns *c, size_t column)
{
    size_t width = 0;

    for (size_t i = column; i < c->cells; i += c->n)
        if (strlen(c->text[i]) > width && (column > 0 || strlen(c->text[i]) <= FIRST))
            width = strlen(c->text[i]);
    return width;
}

/* A first cell that is too long gets a line of its own. */
void columns_print(columns *c)
{
    for (size_t i = 0; i < c->cells; i++) {
        size_t column = i % c->n, width = width_of(c, column);

        if (column > 0)
            printf("%*s%*s", GAP, "", (int)width, c->text[i]);
        else if (strlen(c->text[i]) > width)
            printf("  %s\n  %*s", c->text[i], (int)width, "");
        else
            printf("  %-*s", (int)width, c->text[i]);
        if (column + 1 == c->n)
            putchar('\n');
    }
    for (size_t i = 0; i < c->cells; i++)
        free(c->text[i]);
    free(c->text);
    free(c);
}
