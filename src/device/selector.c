/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The parser of device selectors; see device/selector.h.  It calls no driver and allocates nothing.
 *
 *   selector := list of `accept` separated by ';', then list of `!discard`
 *   term     := backend ':' device {',' device}
 *   device   := '*' | cpu | gpu | accelerator | index {'.' index}, index := N | '*'
 *
 * Source: the ONEAPI_DEVICE_SELECTOR page of DPC++ (facts: discards come last and win; discards
 * alone imply *:*).  `fpga` and `acc` are read as accelerator. */
#include "device/selector.h"

#include "base/text.h"

#include <usm/device.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static usm_status bad(const char *why, usm__span piece)
{
    return usm__fail(USM_E_SELECTOR,
                     "device selector: %s in \"%.*s\"; write backend:device, e.g. opencl:gpu, "
                     "host:*, *:cpu;!opencl:1",
                     why, (int)(piece.len < 80 ? piece.len : 80), piece.at);
}

static bool parse_backend(usm__span s, char *out, size_t size)
{
    if (s.len == 0 || s.len >= size)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = (char)tolower((unsigned char)s.at[i]);

        if (!(isalnum((unsigned char)c) || c == '_' || (c == '*' && s.len == 1)))
            return false;
        out[i] = c;
    }
    out[s.len] = 0;
    return true;
}

static bool parse_index(usm__span s, usm__selector_device *dev)
{
    usm__span level;

    dev->type   = 0;
    dev->levels = 0;
    if (s.len && s.at[s.len - 1] == '.')
        return false;
    while (usm__span_next(&s, '.', &level)) {
        uint64_t n = 0;

        if (dev->levels == 3)
            return false;
        if (usm__span_is(level, "*"))
            dev->index[dev->levels++] = USM__SELECTOR_STAR;
        else if (usm__span_number(level, &n) && n < 65536)
            dev->index[dev->levels++] = (size_t)n;
        else
            return false;
    }
    return dev->levels > 0;
}

static bool parse_device(usm__span s, usm__selector_device *dev)
{
    static const struct {
        const char *word;
        int         type;
    } types[] = {{"cpu", USM_DEVICE_TYPE_CPU},
                 {"gpu", USM_DEVICE_TYPE_GPU},
                 {"accelerator", USM_DEVICE_TYPE_ACCELERATOR},
                 {"acc", USM_DEVICE_TYPE_ACCELERATOR},
                 {"fpga", USM_DEVICE_TYPE_ACCELERATOR}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (usm__span_is(s, types[i].word)) {
            dev->type   = types[i].type;
            dev->levels = 0;
            return true;
        }
    return parse_index(s, dev);
}

static usm_status parse_term(usm__span text, usm__selector_term *term)
{
    usm__span rest = text, backend, device;

    if (!memchr(text.at, ':', text.len))
        return bad("no ':' between backend and device", text);
    if (!usm__span_next(&rest, ':', &backend) ||
        !parse_backend(backend, term->backend, sizeof term->backend))
        return bad("no backend's name before ':'", text);
    term->ndevices = 0;
    while (usm__span_next(&rest, ',', &device)) {
        if (term->ndevices == USM__SELECTOR_DEVICES)
            return bad("more than 32 devices", text);
        if (!parse_device(device, &term->devices[term->ndevices++]))
            return bad("a device that is none of *, cpu, gpu, accelerator, N, N.N, N.*", text);
    }
    return term->ndevices ? USM_OK : bad("no device after ':'", text);
}

/* Returns a new term, or NULL if there is no room. */
static usm__selector_term *slot(usm__selector *sel, bool discard)
{
    size_t *n = discard ? &sel->ndiscards : &sel->naccepts;

    if (*n == USM__SELECTOR_TERMS)
        return NULL;
    return &(discard ? sel->discards : sel->accepts)[(*n)++];
}

static void accept_everything(usm__selector *sel)
{
    usm__selector_term *term = &sel->accepts[0];

    strcpy(term->backend, "*");
    term->ndevices   = 1;
    term->devices[0] = (usm__selector_device){0, 1, {USM__SELECTOR_STAR, 0, 0}};
    sel->naccepts    = 1;
}

usm_status usm__selector_parse(const char *text, usm__selector *sel)
{
    usm__span rest = usm__span_of(text), piece;

    sel->naccepts = sel->ndiscards = 0;
    while (usm__span_next(&rest, ';', &piece)) {
        bool                discard = piece.len > 0 && piece.at[0] == '!';
        usm__selector_term *term;
        usm_status          st;

        if (piece.len == 0)
            continue; /* a trailing ';' */
        if (!discard && sel->ndiscards)
            return bad("an accepted device after a discarded one (discards come last)", piece);
        term = slot(sel, discard);
        if (!term)
            return bad("more than 32 terms", piece);
        st = parse_term((usm__span){piece.at + discard, piece.len - discard}, term);
        if (st != USM_OK)
            return st;
    }
    if (sel->naccepts == 0)
        accept_everything(sel);
    return USM_OK;
}

bool usm__selector_check(const char *text, char *why, size_t why_size)
{
    usm__selector sel;

    if (usm__selector_parse(text, &sel) == USM_OK)
        return true;
    snprintf(why, why_size, "%s", usm_last_error());
    return false;
}
