/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The writer of JSON of json.h. */
#include "base/json.h"

#include <inttypes.h>
#include <string.h>

/* ---- texts --------------------------------------------------------------------------- */

/* Overlong forms, surrogates and code points above U+10FFFF are no characters (Unicode, table
 * 3-7). */
size_t usm__json_utf8_length(const char *text, size_t left)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t        n  = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    unsigned char lo = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char hi = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;

    if (p[0] > 0xf4 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if (p[i] < lo || p[i] > hi)
            return 0;
        lo = 0x80;
        hi = 0xbf;
    }
    return n;
}

/* What people read more easily than a number; NULL: there is no such form. */
static const char *short_form(unsigned char c)
{
    return c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : NULL;
}

static void put_ascii(usm__json *j, unsigned char c)
{
    const char *form = j->form == USM__JSON_INDENTED ? short_form(c) : NULL;

    if (c == '"' || c == '\\')
        usm__out_put(&j->out, "\\%c", c);
    else if (form)
        usm__out_bytes(&j->out, form, 2);
    else if (c < 0x20 || c == 0x7f || (c == '<' && j->form == USM__JSON_PAGE))
        usm__out_put(&j->out, "\\u%04x", c);
    else
        usm__out_bytes(&j->out, (const char *)&c, 1);
}

static void put_string(usm__json *j, const char *text, size_t max)
{
    const char *p = text, *end = p + strnlen(text, max);

    usm__out_bytes(&j->out, "\"", 1);
    while (p < end) {
        size_t n = usm__json_utf8_length(p, (size_t)(end - p));

        if (n == 0)
            usm__out_bytes(&j->out, "\\ufffd", 6);
        else if (n == 1)
            put_ascii(j, (unsigned char)*p);
        else
            usm__out_bytes(&j->out, p, n);
        p += n ? n : 1;
    }
    usm__out_bytes(&j->out, "\"", 1);
}

/* ---- nesting --------------------------------------------------------------------------- */

static void put_line(usm__json *j)
{
    if (j->form == USM__JSON_INDENTED)
        usm__out_put(&j->out, "\n%*s", 2 * j->depth, "");
    else if (j->has_line)
        usm__out_bytes(&j->out, "\n", 1);
    j->has_line = false;
}

/* Writes what precedes every value: comma, line, key. */
static void put_lead(usm__json *j, const char *key)
{
    if (j->has_element)
        usm__out_bytes(&j->out, ",", 1);
    if (j->depth > 0)
        put_line(j);
    j->has_element = true;
    if (key) {
        put_string(j, key, SIZE_MAX);
        usm__out_bytes(&j->out, ": ", j->form == USM__JSON_INDENTED ? 2 : 1);
    }
}

static void open_scope(usm__json *j, const char *key, const char *bracket)
{
    put_lead(j, key);
    usm__out_bytes(&j->out, bracket, 1);
    j->depth++;
    j->has_element = false;
}

static void close_scope(usm__json *j, const char *bracket)
{
    bool was_empty = !j->has_element;

    j->depth--;
    j->has_element = true; /* of this scope within the enclosing one */
    if (!was_empty || j->has_line)
        put_line(j);
    usm__out_bytes(&j->out, bracket, 1);
    if (j->depth == 0 && j->form != USM__JSON_COMPACT)
        usm__out_bytes(&j->out, "\n", 1); /* a file ends with its line */
}

void usm__json_object_begin(usm__json *j, const char *key)
{
    open_scope(j, key, "{");
}

void usm__json_object_end(usm__json *j)
{
    close_scope(j, "}");
}

void usm__json_array_begin(usm__json *j, const char *key)
{
    open_scope(j, key, "[");
}

void usm__json_array_end(usm__json *j)
{
    close_scope(j, "]");
}

void usm__json_line(usm__json *j)
{
    j->has_line = true;
}

/* ---- values ---------------------------------------------------------------------------- */

void usm__json_text(usm__json *j, const char *key, const char *value)
{
    if (value)
        usm__json_text_max(j, key, value, SIZE_MAX);
    else
        usm__json_null(j, key);
}

void usm__json_text_max(usm__json *j, const char *key, const char *value, size_t max)
{
    put_lead(j, key);
    put_string(j, value, max);
}

void usm__json_number(usm__json *j, const char *key, uint64_t value)
{
    put_lead(j, key);
    usm__out_put(&j->out, "%" PRIu64, value);
}

void usm__json_signed(usm__json *j, const char *key, int64_t value)
{
    put_lead(j, key);
    usm__out_put(&j->out, "%" PRId64, value);
}

void usm__json_parts(usm__json *j, const char *key, uint64_t value, unsigned digits)
{
    uint64_t one = 1;

    for (unsigned i = 0; i < digits; i++)
        one *= 10;
    put_lead(j, key);
    usm__out_put(&j->out, "%" PRIu64 ".%0*" PRIu64, value / one, (int)digits, value % one);
}

void usm__json_address(usm__json *j, const char *key, uint64_t value)
{
    put_lead(j, key);
    usm__out_put(&j->out, "\"0x%" PRIx64 "\"", value);
}

void usm__json_real(usm__json *j, const char *key, double value, int digits)
{
    if (value - value != 0) { /* infinite, or no number */
        usm__json_null(j, key);
        return;
    }
    put_lead(j, key);
    usm__out_put(&j->out, "%.*g", digits, value);
}

void usm__json_bool(usm__json *j, const char *key, bool value)
{
    put_lead(j, key);
    usm__out_put(&j->out, "%s", value ? "true" : "false");
}

void usm__json_null(usm__json *j, const char *key)
{
    put_lead(j, key);
    usm__out_bytes(&j->out, "null", 4);
}
