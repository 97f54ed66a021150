/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Parsers of short texts: sizes, durations, booleans, lists.  ASCII and integers only, so that no
 * locale changes the meaning of a setting. */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char lower(char c)
{
    if (c >= 'A' && c <= 'Z')
        c = (char)(c - 'A' + 'a');
    return c;
}

usm__span usm__span_trimmed(usm__span s)
{
    while (s.len > 0 && is_blank(s.at[0])) {
        s.at++;
        s.len--;
    }
    while (s.len > 0 && is_blank(s.at[s.len - 1]))
        s.len--;
    return s;
}

static usm__span after(usm__span s, size_t n)
{
    return (usm__span){s.at + n, s.len - n};
}

usm__span usm__span_of(const char *text)
{
    return (usm__span){text, strlen(text)};
}

bool usm__span_next(usm__span *rest, char sep, usm__span *field)
{
    size_t n = 0;

    if (rest->len == 0)
        return false;
    while (n < rest->len && rest->at[n] != sep)
        n++;
    *field = usm__span_trimmed((usm__span){rest->at, n});
    *rest  = after(*rest, n < rest->len ? n + 1 : n);
    return true;
}

bool usm__span_is(usm__span s, const char *word)
{
    if (s.len != strlen(word))
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (lower(s.at[i]) != lower(word[i]))
            return false;
    return true;
}

/* Cuts digits off *s; false if there are none or the number does not fit. */
static bool cut_digits(usm__span *s, uint64_t *n)
{
    uint64_t value = 0;
    size_t   i     = 0;

    for (; i < s->len && is_digit(s->at[i]); i++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(s->at[i] - '0'), &value))
            return false;
    if (i == 0)
        return false;
    *s = after(*s, i);
    *n = value;
    return true;
}

bool usm__span_number(usm__span s, uint64_t *n)
{
    uint64_t value;

    if (!cut_digits(&s, &value) || s.len != 0)
        return false;
    *n = value;
    return true;
}

/* Reads a decimal fraction as billionths; digits after the ninth are dropped. */
static bool cut_fraction(usm__span *s, uint32_t *billionths)
{
    uint32_t value = 0, unit = 100000000;
    size_t   i = 1;

    *billionths = 0;
    if (s->len == 0 || s->at[0] != '.')
        return true;
    for (; i < s->len && is_digit(s->at[i]); i++, unit /= 10)
        value += unit * (uint32_t)(s->at[i] - '0');
    if (i == 1)
        return false;
    *s          = after(*s, i);
    *billionths = value;
    return true;
}

__extension__ typedef unsigned __int128 wide;

typedef struct measure {
    const char *name;
    uint64_t    factor;
} measure;

static const measure *find_unit(const measure *units, usm__span name)
{
    for (; units->name != NULL; units++)
        if (usm__span_is(name, units->name))
            return units;
    return NULL;
}

/* Parses a number, possibly with a fraction, and one of `units`, into units of factor 1. */
static bool parse_with_unit(usm__span s, const measure *units, uint64_t *value)
{
    uint64_t       whole, part;
    uint32_t       billionths;
    const measure *u;

    s = usm__span_trimmed(s);
    if (!cut_digits(&s, &whole) || !cut_fraction(&s, &billionths))
        return false;
    u = find_unit(units, usm__span_trimmed(s));
    if (u == NULL || (u->factor == 1 && billionths != 0))
        return false;
    part = (uint64_t)((wide)u->factor * billionths / 1000000000);
    if (__builtin_mul_overflow(whole, u->factor, &whole) ||
        __builtin_add_overflow(whole, part, &whole))
        return false;
    *value = whole;
    return true;
}

bool usm__span_size(usm__span s, uint64_t *bytes)
{
    static const measure units[] = {{"", 1},
                                    {"B", 1},
                                    {"K", 1ull << 10},
                                    {"KB", 1ull << 10},
                                    {"KiB", 1ull << 10},
                                    {"M", 1ull << 20},
                                    {"MB", 1ull << 20},
                                    {"MiB", 1ull << 20},
                                    {"G", 1ull << 30},
                                    {"GB", 1ull << 30},
                                    {"GiB", 1ull << 30},
                                    {"T", 1ull << 40},
                                    {"TB", 1ull << 40},
                                    {"TiB", 1ull << 40},
                                    {NULL, 0}};

    return parse_with_unit(s, units, bytes);
}

bool usm__span_duration_ns(usm__span s, uint64_t *ns)
{
    static const measure units[] = {
        {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {NULL, 0}};

    return parse_with_unit(s, units, ns);
}

bool usm__span_bool(usm__span s, bool *value)
{
    static const char *const yes[] = {"1", "true", "yes", "on"};
    static const char *const no[]  = {"0", "false", "no", "off"};

    s = usm__span_trimmed(s);
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        bool is_yes = usm__span_is(s, yes[i]);

        if (is_yes || usm__span_is(s, no[i])) {
            *value = is_yes;
            return true;
        }
    }
    return false;
}

const char *usm__format_bytes(uint64_t bytes, char *buf, size_t size)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    uint64_t                 unit    = 1;
    size_t                   i       = 0;
    uint64_t                 tenths;

    for (; bytes / unit >= 1024; i++)
        unit *= 1024;
    tenths = (uint64_t)(((wide)bytes * 10 + unit / 2) / unit);
    if (tenths >= 10240) { /* 1023.97 KiB */
        tenths = 10;
        unit *= 1024;
        i++;
    }
    if (bytes % unit == 0)
        (void)snprintf(buf, size, "%llu %s", (unsigned long long)(bytes / unit), names[i]);
    else
        (void)snprintf(buf, size, "%llu.%llu %s", (unsigned long long)(tenths / 10),
                       (unsigned long long)(tenths % 10), names[i]);
    return buf;
}
