/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tables of table.h. */
#include "table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LINE_WIDTH  100
#define MAX_COLUMNS 8

typedef struct table_line {
    char  *cells[MAX_COLUMNS];
    size_t ncells;
    int    note_indent; /* >= 0: cells[0] is a note */
    bool   is_verbatim; /* not wrapped */
} table_line;

struct table {
    table_line *rows;
    size_t      nrows;
    table_line  open;
    int         indent, gap;
};

static void exit_out_of_memory(void)
{
    fputs("usm-info: out of memory\n", stderr);
    exit(3);
}

void *tool_alloc(size_t size)
{
    void *p = calloc(1, size ? size : 1);

    if (!p)
        exit_out_of_memory();
    return p;
}

void *tool_realloc(void *p, size_t size)
{
    void *q = realloc(p, size);

    if (!q)
        exit_out_of_memory();
    return q;
}

USM_PRINTF(1, 0) static char *tool_vprintf(const char *format, va_list args)
{
    char *text = NULL;

    if (vasprintf(&text, format, args) < 0)
        exit_out_of_memory();
    return text;
}

char *tool_printf(const char *format, ...)
{
    va_list args;
    char   *text;

    va_start(args, format);
    text = tool_vprintf(format, args);
    va_end(args);
    return text;
}

table *table_new(int indent, int gap)
{
    table *t = tool_alloc(sizeof *t);

    t->indent           = indent;
    t->gap              = gap;
    t->open.note_indent = -1;
    return t;
}

/* Names come from drivers: they must not contain characters that move the cursor. */
static void hide_controls(char *text)
{
    for (; *text; text++) {
        if (((unsigned char)*text < 0x20 && *text != '\n') || *text == 0x7f)
            *text = '?';
    }
}

void table_cell(table *t, const char *format, ...)
{
    va_list args;

    if (t->open.ncells == MAX_COLUMNS)
        return;
    va_start(args, format);
    t->open.cells[t->open.ncells] = tool_vprintf(format, args);
    va_end(args);
    hide_controls(t->open.cells[t->open.ncells++]);
}

void table_row(table *t)
{
    t->rows             = tool_realloc(t->rows, (t->nrows + 1) * sizeof *t->rows);
    t->rows[t->nrows++] = t->open;
    memset(&t->open, 0, sizeof t->open);
    t->open.note_indent = -1;
}

void table_note(table *t, int indent, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    t->open.cells[0] = tool_vprintf(format, args);
    va_end(args);
    t->open.ncells      = 1;
    t->open.note_indent = indent;
    table_row(t);
}

void table_verbatim(table *t, int indent, const char *text)
{
    t->open.is_verbatim = true;
    table_note(t, indent, "%s", text);
}

/* The number of characters of UTF-8 text; approximate for other text. */
static int display_width(const char *text, size_t len)
{
    int width = 0;

    for (size_t i = 0; i < len; i++)
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

/* Prints the text from column `at` on, broken at blanks; newlines stay. */
static void print_wrapped(FILE *out, const char *text, int at)
{
    int column = at;

    while (*text) {
        size_t len   = strcspn(text, " \n");
        int    width = display_width(text, len);

        if (column > at && column + 1 + width > LINE_WIDTH) {
            fprintf(out, "\n%*s", at, "");
            column = at;
        } else if (column > at) {
            fputc(' ', out);
            column++;
        }
        fwrite(text, 1, len, out);
        column += width;
        text += len;
        if (*text == '\n' && text[1]) {
            fprintf(out, "\n%*s", at, "");
            column = at;
        }
        text += *text != '\0';
    }
    fputc('\n', out);
}

static void print_verbatim(FILE *out, const char *text, int indent)
{
    while (*text) {
        size_t len = strcspn(text, "\n");

        if (len)
            fprintf(out, "%*s%.*s\n", indent, "", (int)len, text);
        text += len + (text[len] != '\0');
    }
}

static void print_note(const table_line *row, FILE *out)
{
    if (row->is_verbatim) {
        print_verbatim(out, row->cells[0], row->note_indent);
        return;
    }
    fprintf(out, "%*s", row->note_indent, "");
    print_wrapped(out, row->cells[0], row->note_indent);
}

static void measure(const table *t, int widths[MAX_COLUMNS])
{
    memset(widths, 0, MAX_COLUMNS * sizeof *widths);
    for (size_t r = 0; r < t->nrows; r++) {
        const table_line *row = &t->rows[r];

        if (row->note_indent >= 0)
            continue;
        for (size_t c = 0; c + 1 < row->ncells; c++) {
            int width = display_width(row->cells[c], strlen(row->cells[c]));

            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
}

static void print_row(const table *t, const table_line *row, const int *widths, FILE *out)
{
    int at = t->indent;

    fprintf(out, "%*s", at, "");
    for (size_t c = 0; c + 1 < row->ncells; c++) {
        int width = display_width(row->cells[c], strlen(row->cells[c]));

        fprintf(out, "%s%*s", row->cells[c], widths[c] - width + t->gap, "");
        at += widths[c] + t->gap;
    }
    print_wrapped(out, row->ncells ? row->cells[row->ncells - 1] : "", at);
}

void table_print(table *t, FILE *out)
{
    int widths[MAX_COLUMNS];

    measure(t, widths);
    for (size_t r = 0; r < t->nrows; r++) {
        table_line *row = &t->rows[r];

        if (row->note_indent >= 0)
            print_note(row, out);
        else
            print_row(t, row, widths, out);
        for (size_t c = 0; c < row->ncells; c++)
            free(row->cells[c]);
    }
    free(t->rows);
    free(t);
}
