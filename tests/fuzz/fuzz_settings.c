/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzzes the parsers of base/text.h and usm__settings_set() for every key.
 *
 * The input is a text, twice: as it is for the parsers, cut at its first 0 byte
 * for the settings.  What is checked beyond "no sanitizer speaks": a refusal
 * leaves the output untouched and tells a story, an accepted value is read back,
 * fields lie within their list, and what the parsers accept is consistent. */
#include "base/log.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define UNTOUCHED 0x1234567890abcdefull

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fuzz_settings: not so: %s\n", what);
    abort();
}

static void fuzz_numbers(usm__span s)
{
    uint64_t number = UNTOUCHED, bytes = UNTOUCHED, ns = UNTOUCHED;
    bool     is_number = usm__span_number(s, &number);
    bool     is_size   = usm__span_size(s, &bytes);
    bool     is_time   = usm__span_duration_ns(s, &ns);
    bool     on        = false;
    char     text[32];

    require(is_number || number == UNTOUCHED, "a refused number leaves the output alone");
    require(is_size || bytes == UNTOUCHED, "a refused size leaves the output alone");
    require(is_time || ns == UNTOUCHED, "a refused duration leaves the output alone");
    require(!is_number || (is_size && bytes == number), "a number is a size");
    require(!is_number || !is_time, "a number is no duration");
    if (usm__span_bool(s, &on))
        require(s.len > 0, "a boolean has a spelling");
    require(strlen(usm__format_bytes(bytes, text, sizeof(text))) <= 10, "sizes are short");
}

static void fuzz_list(usm__span list, char sep)
{
    usm__span rest = list, field;
    size_t    n    = 0;

    while (usm__span_next(&rest, sep, &field)) {
        require(++n <= list.len, "a list has no more fields than characters");
        require(field.at >= list.at && field.at + field.len <= list.at + list.len,
                "a field lies in its list");
        require(field.len == 0 || memchr(field.at, sep, field.len) == NULL,
                "a field holds no separator");
        fuzz_numbers(field);
    }
    require(rest.len == 0, "the whole list is used");
}

static void fuzz_setting(const usm__setting *setting, const char *text)
{
    const char *value = NULL, *origin = NULL;
    usm_status  status = usm__settings_set(setting->key, text);

    require(usm__settings_get(setting->key, &value, &origin) == USM_OK, "a known key can be read");
    if (status == USM_OK) {
        const char *shown = setting->secret && text[0] ? "(set)" : text;

        require(strcmp(value, shown) == 0, "what was set is in force");
        require(strcmp(origin, "usm_config_set") == 0, "and its origin is told");
    } else {
        require(status == USM_E_SETTING, "a refusal is USM_E_SETTING");
        require(strcmp(value, setting->initial) == 0, "a refused value is not in force");
        require(strstr(usm_last_error(), setting->key) != NULL, "the story names the setting");
    }
    if (setting->type == USM__SETTING_BOOL)
        (void)usm__setting_bool(setting->key);
    require(usm__settings_set(setting->key, NULL) == USM_OK, "a value can be taken back");
}

/* The text as a key: nothing that is no key is taken. */
static void fuzz_key(const char *text)
{
    const char *value  = NULL;
    usm_status  status = usm__settings_get(text, &value, NULL);

    require(status == USM_OK || status == USM_E_SETTING, "a key is there or not");
    require((status == USM_OK) == (value != NULL), "an unknown key leaves the output alone");
    require((usm__setting_text(text) != NULL) == (value != NULL), "both ways agree");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usm__span s = {(const char *)data, size};
    char     *text;

    for (const usm__setting *setting = usm__settings; setting->key != NULL; setting++)
        (void)unsetenv(setting->variable); /* what the defaults are compared with */
    fuzz_numbers(s);
    fuzz_list(s, ';');
    fuzz_list(s, ',');
    text = malloc(size + 1);
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    for (const usm__setting *setting = usm__settings; setting->key != NULL; setting++)
        fuzz_setting(setting, text);
    fuzz_key(text);
    usm__settings_forget(); /* or each text would be kept */
    free(text);
    return 0;
}
