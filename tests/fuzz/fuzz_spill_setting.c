/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzzes what is read of USM_SPILL, USM_SPILL_CODEC, USM_SPILL_KEY and USM_MEMORY_LIMIT, and the
 * options of the file transport.  Called by libFuzzer.
 *
 * The input is a text, cut at its first 0 byte, read as each.  Beyond "no sanitizer speaks": a
 * refusal says what is allowed; setting a refused value fails and changes nothing; an accepted one
 * is in force as it was written; nothing but a setting's own answer comes back. */
#include "base/settings_check.h"
#include "device/registry.h"
#include "heap/area.h"

#include "../../transports/file/internal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <usm/usm.h>

#define TEXT_MAX 600

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef bool check_fn(const char *text, char *why, size_t why_size);

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fuzz_spill_setting: not so: %s\n", what);
    abort();
}

static bool parses(check_fn *check, const char *text)
{
    char why[300], tiny[4];
    bool ok;

    memset(why, 0, sizeof why);
    ok = check(text, why, sizeof why);
    must(ok || (why[0] != 0 && memchr(why, 0, sizeof why) != NULL), "a refusal says what may be");
    must(check(text, tiny, sizeof tiny) == ok,
         "the answer does not depend on the room for a reason");
    return ok;
}

static void set(const char *key, const char *text, bool may_be)
{
    const char *before, *after, *origin;
    char       *kept;
    usm_status  st;

    must(usm_config_get(key, &before, &origin) == USM_OK, "there is such a setting");
    kept = strdup(before);
    must(kept != NULL, "there is memory");
    st = usm_config_set(key, text);
    must(st == USM_OK || st == USM_E_SETTING, "a value is taken or refused");
    must(st == USM_OK || usm_last_error()[0] != 0, "a refusal has a story");
    must((st == USM_OK) == may_be, "usm_config_set() asks the same check");
    must(usm_config_get(key, &after, &origin) == USM_OK, "it can be read");
    must(strcmp(after, st == USM_OK ? text : kept) == 0, "what is in force is what was accepted");
    free(kept);
    must(usm_config_set(key, NULL) == USM_OK, "a setting can be taken back");
}

static void fuzz_file(const char *text)
{
    usm_file_config c, untouched;

    memset(&c, 0x5a, sizeof c);
    untouched = c;
    if (usm_file_parse(&usm__registry_api, text, &c) != USM_OK) {
        must(memcmp(&c, &untouched, sizeof c) == 0, "a refusal changes nothing");
        must(usm_last_error()[0] != 0, "a refusal has a story");
        return;
    }
    must(c.nfolders > 0 && c.nfolders <= PLACES_MAX, "there is a folder");
    for (size_t i = 0; i < c.nfolders; i++)
        must(memchr(c.folders[i], 0, PATH_ROOM) != NULL, "a folder's name ends");
    must(c.quota > 0 && c.depth > 0, "there is room, and something may be under way");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char   text[TEXT_MAX + 1];
    size_t n = size < TEXT_MAX ? size : TEXT_MAX;

    must(usm_init() == USM_OK, "libusm starts"); /* it brings the check of memory_limit */

    memcpy(text, data, n);
    text[n] = 0;
    set("spill", text, parses(usm__settings_check_spill, text));
    set("spill_codec", text, parses(usm__settings_check_codec, text));
    set("memory_limit", text, parses(usm__quota_check, text));
    (void)parses(usm__settings_check_key, text);
    fuzz_file(text);
    return 0;
}
