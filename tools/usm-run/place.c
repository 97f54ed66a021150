/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where in the text a value is, which jansson does not report.  The text has been parsed, so this
 * walks over it without looking for errors. */
#include "app.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *skip_blanks(const char *s)
{
    return s + strspn(s, " \t\r\n");
}

static const char *skip_string(const char *s)
{
    for (s++; *s && *s != '"'; s++)
        if (*s == '\\' && s[1])
            s++;
    return *s ? s + 1 : s;
}

const char *value_end(const char *s)
{
    unsigned depth = 0;

    do {
        s = skip_blanks(s);
        if (*s == '"') {
            s = skip_string(s);
        } else if (*s == '{' || *s == '[') {
            depth++;
            s++;
        } else if (*s == '}' || *s == ']') {
            depth--;
            s++;
        } else if (depth && (*s == ',' || *s == ':')) {
            s++;
        } else {
            s += strcspn(s, ",:]} \t\r\n");
        }
    } while (depth && *s);
    return s;
}

value member(value object, const char *key)
{
    value       v    = {json_object_get(object.json, key), object.at};
    const char *s    = object.at;
    size_t      size = strlen(key);

    if (!v.json || *s != '{')
        return v;
    for (s = skip_blanks(s + 1); *s == '"'; s = skip_blanks(s + 1)) {
        bool is_it = strncmp(s + 1, key, size) == 0 && s[1 + size] == '"';

        v.at = s;
        s    = skip_blanks(skip_blanks(skip_string(s)) + 1); /* the colon */
        if (is_it) {
            v.at = s;
            return v;
        }
        s = skip_blanks(value_end(s));
        if (*s != ',')
            break;
    }
    v.at = object.at; /* the key is spelt with escapes */
    return v;
}

value next_element(value array, size_t index, const char **end)
{
    value v = {json_array_get(array.json, index), array.at};

    if (!v.json || *array.at != '[')
        return v;
    v.at = skip_blanks((*end ? skip_blanks(*end) : array.at) + 1); /* after the comma or bracket */
    *end = value_end(v.at);
    return v;
}

value element(value array, size_t index)
{
    const char *end = NULL;

    for (size_t i = 0; i < index; i++)
        (void)next_element(array, i, &end);
    return next_element(array, index, &end);
}

unsigned line_of(const app *a, const char *at)
{
    unsigned line = 1;

    for (const char *s = a->text; s < at; s++)
        line += *s == '\n';
    return line;
}

bool mistake(app *a, const char *at, const char *format, ...)
{
    va_list args;

    if (a->root)
        fprintf(stderr, "%s:%u: ", a->path, line_of(a, at));
    else
        fputs("usm-run: ", stderr); /* there is no text yet */
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    a->mistakes++;
    return false;
}
