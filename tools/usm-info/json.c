/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The JSON writer of json.h. */
#include "json.h"

#include <inttypes.h>
#include <stddef.h>

void json_begin(json *j, FILE *out)
{
    j->out         = out;
    j->depth       = 0;
    j->has_element = false;
}

void json_end(json *j)
{
    fputc('\n', j->out);
}

/* The length of the UTF-8 sequence at p, 0 if it is not one: overlong forms, surrogates and code
 * points above U+10FFFF are not (Unicode, table 3-7). */
static size_t utf8_length(const unsigned char *p)
{
    size_t        n  = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    unsigned char lo = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char hi = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;

    if (p[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if (p[i] < lo || p[i] > hi)
            return 0;
        lo = 0x80;
        hi = 0xbf;
    }
    return n;
}

static void write_ascii(FILE *out, unsigned char c)
{
    switch (c) {
    case '"':
    case '\\':
        fprintf(out, "\\%c", c);
        break;
    case '\n':
        fputs("\\n", out);
        break;
    case '\r':
        fputs("\\r", out);
        break;
    case '\t':
        fputs("\\t", out);
        break;
    default:
        if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
}

static void write_string(FILE *out, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;

    fputc('"', out);
    while (*p) {
        size_t n = utf8_length(p);

        if (n == 0)
            fputs("\\ufffd", out);
        else if (n == 1)
            write_ascii(out, *p);
        else
            fwrite(p, 1, n, out);
        p += n ? n : 1;
    }
    fputc('"', out);
}

static void write_newline(json *j)
{
    fprintf(j->out, "\n%*s", 2 * j->depth, "");
}

/* Writes what precedes every value: comma, line, key. */
static void write_lead(json *j, const char *key)
{
    if (j->has_element)
        fputc(',', j->out);
    if (j->depth > 0)
        write_newline(j);
    j->has_element = true;
    if (key) {
        write_string(j->out, key);
        fputs(": ", j->out);
    }
}

static void open_scope(json *j, const char *key, char bracket)
{
    write_lead(j, key);
    fputc(bracket, j->out);
    j->depth++;
    j->has_element = false;
}

static void close_scope(json *j, char bracket)
{
    bool was_empty = !j->has_element;

    j->depth--;
    j->has_element = true; /* of this scope within the enclosing one */
    if (!was_empty)
        write_newline(j);
    fputc(bracket, j->out);
}

void json_object_begin(json *j, const char *key)
{
    open_scope(j, key, '{');
}

void json_object_end(json *j)
{
    close_scope(j, '}');
}

void json_array_begin(json *j, const char *key)
{
    open_scope(j, key, '[');
}

void json_array_end(json *j)
{
    close_scope(j, ']');
}

void json_text(json *j, const char *key, const char *value)
{
    write_lead(j, key);
    if (value)
        write_string(j->out, value);
    else
        fputs("null", j->out);
}

void json_number(json *j, const char *key, uint64_t value)
{
    write_lead(j, key);
    fprintf(j->out, "%" PRIu64, value);
}

void json_real(json *j, const char *key, double value)
{
    write_lead(j, key);
    if (value - value == 0) /* finite */
        fprintf(j->out, "%.9g", value);
    else
        fputs("null", j->out);
}

void json_bool(json *j, const char *key, bool value)
{
    write_lead(j, key);
    fputs(value ? "true" : "false", j->out);
}

void json_null(json *j, const char *key)
{
    json_text(j, key, NULL);
}
