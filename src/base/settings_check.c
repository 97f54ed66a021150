/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks that the text of a setting has the right form.  Whether the transport, codec or folder
 * exists is found out when it is first needed (src/spill/tier.c). */
#include "base/settings_check.h"

#include "base/inline/hex.h"

#include <stdio.h>
#include <string.h>

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789_"
#define NAME_SIZE       32 /* of a module's name, including the final 0 */

static bool is_module_name(usm__span s)
{
    return s.len > 0 && s.len < NAME_SIZE && strspn(s.at, NAME_CHARACTERS) >= s.len;
}

static bool is_tier(usm__span s)
{
    const char *colon = memchr(s.at, ':', s.len);

    if (colon != NULL)
        s.len = (size_t)(colon - s.at);
    return is_module_name(usm__span_trimmed(s));
}

bool usm__settings_check_spill(const char *text, char *why, size_t why_size)
{
    usm__span rest = usm__span_of(text), field;
    size_t    n    = 0;
    bool      path = text[0] == '/' || text[0] == '.';

    (void)snprintf(why, why_size,
                   "off, or up to %d tiers in order, separated by \";\", each transport[:options], "
                   "as in file:/var/tmp,quota=20G%s%.60s%s",
                   USM__SPILL_TIERS_MAX, path ? "; did you mean file:" : "", path ? text : "",
                   path ? "?" : "");
    if (usm__span_is(usm__span_trimmed(rest), "off"))
        return true;
    while (usm__span_next(&rest, ';', &field)) {
        if (!is_tier(field) || usm__span_is(field, "off"))
            return false;
        n++;
    }
    return n > 0 && n <= USM__SPILL_TIERS_MAX;
}

bool usm__settings_check_codec(const char *text, char *why, size_t why_size)
{
    usm__span rest = usm__span_of(text), field, first = {text, 0};
    size_t    n = 0;

    (void)snprintf(why, why_size,
                   "off, auto, or one or two different codecs in the order they work, as in "
                   "lz4,aes_gcm");
    if (usm__span_is(usm__span_trimmed(rest), "off") ||
        usm__span_is(usm__span_trimmed(rest), "auto"))
        return true;
    while (usm__span_next(&rest, ',', &field)) {
        if (!is_module_name(field) || usm__span_is(field, "off") ||
            (n > 0 && (field.len == first.len && memcmp(field.at, first.at, field.len) == 0)))
            return false;
        if (n++ == 0)
            first = field;
    }
    return n > 0 && n <= 2;
}

bool usm__settings_check_key(const char *text, char *why, size_t why_size)
{
    size_t n = strlen(text);

    (void)snprintf(why, why_size, "32 or 64 hexadecimal digits, as from \"openssl rand -hex 32\"");
    return n == 0 || usm__hex_is_key(text, n);
}

/* Parses digits, with or without a point.  strtod() would expect the decimal point of the
 * locale. */
static bool cut_decimal(usm__span s, double *number)
{
    double value = 0, scale = 1;
    bool   point = false;
    size_t n     = 0;

    for (size_t i = 0; i < s.len; i++) {
        if (s.at[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (s.at[i] < '0' || s.at[i] > '9' || ++n > 15)
            return false;
        value = value * 10 + (s.at[i] - '0');
        scale *= point ? 10 : 1;
    }
    *number = value / scale;
    return n > 0;
}

bool usm__settings_cut_watts(usm__span line, usm__span *name, double *watts)
{
    const char *sign = memchr(line.at, '=', line.len);
    usm__span   value;

    if (sign == NULL)
        return false;
    *name = usm__span_trimmed((usm__span){line.at, (size_t)(sign - line.at)});
    value = usm__span_trimmed((usm__span){sign + 1, line.len - (size_t)(sign + 1 - line.at)});
    return name->len > 0 && cut_decimal(value, watts);
}

bool usm__settings_is_watts_path(const char *text)
{
    return text[0] == '/' || strncmp(text, "./", 2) == 0 || strncmp(text, "../", 3) == 0 ||
           (text[0] != '\0' && strchr(text, '=') == NULL);
}

bool usm__settings_check_watts(const char *text, char *why, size_t why_size)
{
    usm__span rest = usm__span_of(text), field, name;
    double    watts;

    (void)snprintf(why, why_size,
                   "name=watts separated by \",\", as in host=65,opencl:0=150, or the path of a "
                   "file of such lines");
    if (text[0] == '\0' || usm__settings_is_watts_path(text))
        return true;
    while (usm__span_next(&rest, ',', &field))
        if (!usm__settings_cut_watts(field, &name, &watts))
            return false;
    return true;
}
