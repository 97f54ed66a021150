/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzzes the parser of device selectors.  Called by libFuzzer.
 *
 * The input is a text, cut at its first 0 byte.  What is checked beyond "no sanitizer speaks": a
 * refusal tells a story that names the selector's bad piece; what is accepted lies within the
 * limits of device/selector.h, and written down again it is parsed to the same. */
#include "device/selector.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <usm/device.h>

#define TEXT_MAX 2000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static size_t write_device(const usm__selector_device *d, char *out, size_t room)
{
    static const char *const types[] = {"", "cpu", "gpu", "accelerator"};
    size_t                   used    = 0;

    must(d->type >= 0 && d->type <= 3);
    if (d->type)
        return (size_t)snprintf(out, room, "%s", types[d->type]);
    must(d->levels >= 1 && d->levels <= 3);
    for (size_t i = 0; i < d->levels; i++) {
        const char *dot = i ? "." : "";

        if (d->index[i] == USM__SELECTOR_STAR)
            used += (size_t)snprintf(out + used, room - used, "%s*", dot);
        else
            used += (size_t)snprintf(out + used, room - used, "%s%zu", dot, d->index[i]);
    }
    return used;
}

static size_t write_terms(const usm__selector_term *terms, size_t n, const char *before, char *out,
                          size_t room)
{
    size_t used = 0;

    must(n <= USM__SELECTOR_TERMS);
    for (size_t t = 0; t < n; t++) {
        must(terms[t].backend[0] && memchr(terms[t].backend, 0, sizeof terms[t].backend));
        must(terms[t].ndevices >= 1 && terms[t].ndevices <= USM__SELECTOR_DEVICES);
        used += (size_t)snprintf(out + used, room - used, "%s%s:", before, terms[t].backend);
        for (size_t d = 0; d < terms[t].ndevices; d++) {
            used += (size_t)snprintf(out + used, room - used, "%s", d ? "," : "");
            used += write_device(&terms[t].devices[d], out + used, room - used);
        }
        used += (size_t)snprintf(out + used, room - used, ";");
    }
    return used;
}

static char *write_down(const usm__selector *sel)
{
    /* The longest device is 5.5.5 digits, the longest backend 31; both lists may be full. */
    const size_t room = 2 * USM__SELECTOR_TERMS * (40 + USM__SELECTOR_DEVICES * 20) + 1;
    char        *text = malloc(room);
    size_t       used;

    must(text != NULL);
    used = write_terms(sel->accepts, sel->naccepts, "", text, room);
    used += write_terms(sel->discards, sel->ndiscards, "!", text + used, room - used);
    must(used < room);
    return text;
}

static void check_accepted(const usm__selector *sel)
{
    usm__selector *again = calloc(1, sizeof *again);
    char          *text  = write_down(sel), *twice;

    must(again && sel->naccepts >= 1);
    must(usm__selector_parse(text, again) == USM_OK);
    twice = write_down(again);
    must(strcmp(text, twice) == 0);
    free(twice);
    free(text);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usm__selector *sel = calloc(1, sizeof *sel);
    char           text[TEXT_MAX + 1], why[256] = "";
    size_t         n = size < TEXT_MAX ? size : TEXT_MAX;
    bool           ok;

    must(sel != NULL);
    memcpy(text, data, n);
    text[n] = 0;
    ok      = usm__selector_parse(text, sel) == USM_OK;
    must(ok == usm__selector_check(text, why, sizeof why));
    if (ok)
        check_accepted(sel);
    else
        must(usm_last_status() == USM_E_SELECTOR && *usm_last_error() && *why);
    free(sel);
    return 0;
}
