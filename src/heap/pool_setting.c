/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The grammar of USM_POOL:
 *
 *     setting:  segment[;segment]...
 *     segment:  [kind:]pool[,option=value]...        kind: host, device, shared; none: all three
 *
 * The last segment that applies to a kind is used for it, as a whole: it does not add to the
 * segments before.  Text that does not parse is refused, and the message quotes the wrong part;
 * nothing is skipped.  Called by heap/pool_create.c when a pool is created, and by the table of
 * settings. */
#include "heap/pool_setting.h"

#include "base/inline/bits.h"
#include "base/text.h"
#include "device/registry.h"

#include <stdio.h>
#include <string.h>

#define GRAMMAR "[host:|device:|shared:]POOL[,OPTION=VALUE]..., separated by \";\""
#define OPTIONS                                                                                    \
    "area_size, maximum_size, min_align (bytes), retain (bytes or all), retain_ms (10s, 500), "    \
    "thread_cache (bytes or auto), zero_init (1, 0)"

/* Where the reason of a refusal is written. */
typedef struct reason {
    char  *text;
    size_t size;
} reason;

#define refuse(why, ...) ((void)snprintf((why)->text, (why)->size, __VA_ARGS__), false)

/* The length for "%.*s": a part of the setting, cut off. */
static int shown(usm__span s)
{
    return s.len < 40 ? (int)s.len : 40;
}

/* ---- options ------------------------------------------------------------------- */

static bool parse_bytes(usm__span s, void *field)
{
    return usm__span_size(s, field);
}

static bool parse_align(usm__span s, void *field)
{
    uint64_t *align = field;

    return usm__span_size(s, align) && *align <= USM_MAX_ALIGNMENT &&
           (*align == 0 || usm_is_pow2((size_t)*align));
}

static bool parse_retain(usm__span s, void *field)
{
    uint64_t *retain = field;

    if (usm__span_is(s, "all"))
        *retain = SIZE_MAX;
    else if (!usm__span_size(s, retain))
        return false;
    if (*retain == 0)
        *retain = 1;
    return true;
}

static bool parse_cache(usm__span s, void *field)
{
    uint64_t *bytes = field;

    *bytes = 0;
    if (usm__span_is(s, "auto"))
        return true;
    if (!usm__span_size(s, bytes))
        return false;
    if (*bytes == 0)
        *bytes = 1;
    return true;
}

/* A bare number is milliseconds. */
static bool parse_time(usm__span s, void *field)
{
    uint64_t n;

    if (usm__span_duration_ns(s, &n))
        n /= 1000000;
    else if (!usm__span_number(s, &n))
        return false;
    *(uint32_t *)field = n ? (uint32_t)n : 1;
    return n <= UINT32_MAX;
}

static bool parse_bool(usm__span s, void *field)
{
    return usm__span_bool(s, field);
}

typedef struct option {
    const char *name;
    bool (*parse)(usm__span value, void *field);
    size_t      field; /* its offset in usm__pool_choice */
    const char *allowed;
} option;

#define BYTES        "bytes, with K, M, G or T for powers of 1024"
#define FIELD(field) offsetof(usm__pool_choice, field)

static const option options[] = {
    {"area_size", parse_bytes, FIELD(area_size), BYTES},
    {"maximum_size", parse_bytes, FIELD(maximum_size), BYTES "; 0 is no limit"},
    {"min_align", parse_align, FIELD(min_align), "a power of two up to 2M"},
    {"retain", parse_retain, FIELD(retain), BYTES ", or all"},
    {"threshold", parse_retain, FIELD(retain), BYTES ", or all"}, /* the name that other pools
                                                                     use */
    {"retain_ms", parse_time, FIELD(retain_ms),
     "a time, as 10s or 250ms; a number is milliseconds"},
    {"thread_cache", parse_cache, FIELD(thread_cache), BYTES ", or auto; 0 is no caches"},
    {"zero_init", parse_bool, FIELD(zero_init), "1, 0, true, false, yes, no, on, off"},
};

static bool parse_option(usm__span text, usm__pool_choice *c, const reason *why)
{
    usm__span name, value = text;
    bool      has_value = memchr(text.at, '=', text.len) != NULL;

    if (!usm__span_next(&value, '=', &name))
        return refuse(why, "an option is missing between two commas; " GRAMMAR);
    value = usm__span_trimmed(value);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (!usm__span_is(name, options[i].name))
            continue;
        if (has_value && options[i].parse(value, (char *)c + options[i].field))
            return true;
        return refuse(why, "the option %s is %s, not \"%.*s\"", options[i].name, options[i].allowed,
                      shown(value), value.at);
    }
    return refuse(why, "there is no option \"%.*s\"; options are " OPTIONS, shown(name), name.at);
}

/* ---- segments ------------------------------------------------------------------ */

static bool parse_kind(usm__span s, int *kind)
{
    *kind = usm__span_is(s, "host")     ? USM_HOST
            : usm__span_is(s, "device") ? USM_DEVICE
            : usm__span_is(s, "shared") ? USM_SHARED
                                        : USM_UNKNOWN;
    return *kind != USM_UNKNOWN;
}

/* Parses `[kind:]pool`; *kind 0: all kinds. */
static bool parse_head(usm__span head, int *kind, usm__pool_choice *c, const reason *why)
{
    usm__span kind_name, rest = head;

    *kind = 0;
    if (memchr(head.at, ':', head.len)) {
        if (!usm__span_next(&rest, ':', &kind_name) || !parse_kind(kind_name, kind))
            return refuse(why, "\"%.*s\" begins with no kind of memory: host, device, shared",
                          shown(head), head.at);
        head = usm__span_trimmed(rest);
    }
    if (head.len == 0 || head.len >= sizeof c->name || memchr(head.at, '=', head.len) ||
        memchr(head.at, ':', head.len))
        return refuse(why, "\"%.*s\" is not a pool's name; " GRAMMAR, shown(head), head.at);
    memcpy(c->name, head.at, head.len);
    return true;
}

static bool parse_segment(usm__span segment, int *kind, usm__pool_choice *c, const reason *why)
{
    usm__span head, text;

    memset(c, 0, sizeof *c);
    if (!usm__span_next(&segment, ',', &head) || !parse_head(head, kind, c, why))
        return false;
    while (usm__span_next(&segment, ',', &text))
        if (!parse_option(text, c, why))
            return false;
    return true;
}

/* Goes through the segments; *chosen is the last one that applies to `kind`.  `check_names`: the
 * pools must exist. */
static bool parse(const char *text, usm_kind kind, usm__pool_choice *chosen, bool check_names,
                  const reason *why)
{
    usm__span        rest = usm__span_of(text), segment;
    usm__pool_choice c;
    char             known[128];
    int              k;

    memset(chosen, 0, sizeof *chosen);
    while (usm__span_next(&rest, ';', &segment)) {
        if (segment.len == 0)
            continue;
        if (!parse_segment(segment, &k, &c, why))
            return false;
        if (check_names && !usm__registry_has_pool(c.name)) {
            usm__registry_pool_names(known, sizeof known);
            return refuse(why, "there is no pool \"%s\"; there are %s", c.name, known);
        }
        if (k == 0 || k == (int)kind)
            *chosen = c;
    }
    return true;
}

bool usm__pool_setting_parse(const char *text, usm_kind kind, usm__pool_choice *choice, char *why,
                             size_t why_size)
{
    return parse(text, kind, choice, false, &(reason){why, why_size});
}

bool usm__pool_setting_check(const char *text, char *why, size_t why_size)
{
    usm__pool_choice c;

    return parse(text, USM_HOST, &c, true, &(reason){why, why_size});
}

void usm__pool_choose(usm_kind kind, usm__pool_choice *choice)
{
    char why[256]; /* not needed: the setting was checked before */

    (void)parse(usm__setting_text("pool"), kind, choice, false, &(reason){why, sizeof why});
}
