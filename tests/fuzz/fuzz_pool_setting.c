/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fuzzes the parsers of USM_POOL and of UR_L0_USM_ALLOCATOR.  Called by libFuzzer.
 *
 * The input is a text, cut at its first 0 byte, read as both.  What is checked beyond "no sanitizer
 * speaks": a refusal gives a reason; what is accepted lies within what a pool's descriptor allows,
 * for each kind the same way; what is made of Unified Runtime's text is a value of ours, and whole.
 */
#include "heap/pool_setting.h"

#include "base/inline/bits.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 2000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fuzz_pool_setting: not so: %s\n", what);
    abort();
}

static bool parse(const char *text, usm_kind kind, usm__pool_choice *c)
{
    char why[256] = "";
    bool ok       = usm__pool_setting_parse(text, kind, c, why, sizeof why);

    must(ok == (why[0] == '\0'), "a refusal, and only that, has a reason");
    return ok;
}

static void check_choice(const usm__pool_choice *c)
{
    must(memchr(c->name, 0, sizeof c->name) != NULL, "a name ends");
    must(c->min_align == 0 || usm_is_pow2((size_t)c->min_align), "min_align is a power of two");
    must(c->min_align <= USM_MAX_ALIGNMENT, "min_align is not beyond all");
    must(c->name[0] || (!c->area_size && !c->retain && !c->retain_ms && !c->zero_init),
         "options belong to a pool");
}

static bool fuzz_ours(const char *text)
{
    usm__pool_choice c;
    bool             ok = parse(text, USM_HOST, &c);

    check_choice(&c);
    must(parse(text, USM_DEVICE, &c) == ok && parse(text, USM_SHARED, &c) == ok,
         "a text parses for each kind or for none");
    return ok;
}

static void fuzz_theirs(const char *text)
{
    usm__translation t  = {.value = ""};
    bool             ok = usm__pool_setting_translate("UR_L0_USM_ALLOCATOR", text, &t);

    must(ok == (t.why[0] == '\0'), "a refusal, and only that, has a reason");
    must(ok || t.value[0] == '\0', "a refusal has no value");
    must(strlen(t.value) < sizeof t.value - 1 && strlen(t.lost) < sizeof t.lost - 1 &&
             strlen(t.made) < sizeof t.made - 1,
         "nothing was cut");
    must(fuzz_ours(t.value), "a translation is a value of ours");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char   text[TEXT_MAX + 1];
    size_t n = size < TEXT_MAX ? size : TEXT_MAX;

    memcpy(text, data, n);
    text[n] = 0;
    (void)fuzz_ours(text);
    fuzz_theirs(text);
    return 0;
}
