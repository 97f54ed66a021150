/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes texts and JSON to memory that may be too small. */
#include "base/out.h"

#include <stdio.h>

void usm__out_put(usm__out *o, const char *format, ...)
{
    __builtin_va_list args;
    size_t            room = o->used < o->cap ? o->cap - o->used : 0;
    int               n;

    __builtin_va_start(args, format);
    n = vsnprintf(room ? o->text + o->used : NULL, room, format, args);
    __builtin_va_end(args);
    if (n > 0)
        o->used += (size_t)n;
}

/* The length of the UTF-8 character at s; 0 if it is not valid. */
static size_t utf8_length(const unsigned char *s)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    unsigned code = n > 1 ? s[0] & (0x7fu >> n) : s[0];

    for (size_t i = 1; i < n; i++) { /* stops at the end of the text, because 0 is not a
                                        continuation byte */
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    if (n > 1 && (code < least[n] || code > 0x10ffff || code >> 11 == 0xd800 >> 11))
        return 0;
    return n;
}

void usm__out_string(usm__out *o, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    usm__out_put(o, "\"");
    while (*s) {
        size_t n = utf8_length(s);

        if (n == 0)
            usm__out_put(o, "\\ufffd");
        else if (*s == '"' || *s == '\\')
            usm__out_put(o, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7f)
            usm__out_put(o, "\\u%04x", *s);
        else
            usm__out_put(o, "%.*s", (int)n, (const char *)s);
        s += n ? n : 1;
    }
    usm__out_put(o, "\"");
}

void usm__out_number(usm__out *o, const char *name, uint64_t value)
{
    usm__out_put(o, ",\"%s\":%llu", name, (unsigned long long)value);
}
