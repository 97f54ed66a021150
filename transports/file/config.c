/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Parses the text after "file:" in USM_SPILL: folders and options, separated by commas.  Opens
 * nothing.  Called by open().
 *
 *     /var/tmp,/mnt/scratch,quota=10G,engine=auto|uring|threads,depth=16,direct=on|off */
#include "internal.h"

#include "base/inline/option.h"

#include <stdio.h>

#define DEPTH_DEFAULT 16u
#define DEPTH_MAX     1024u

static const char options[] = "quota=SIZE, engine=auto|uring|threads, depth=1..1024, direct=on|off";

static bool read_engine(const char *text, size_t n, usm_file_engine *engine)
{
    static const char *const names[] = {"auto", "uring", "threads"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (usm__option_is(text, n, names[i])) {
            *engine = (usm_file_engine)i;
            return true;
        }
    return false;
}

static bool read_option(const char *key, size_t nkey, const char *value, size_t n,
                        usm_file_config *c)
{
    uint64_t number = 0;

    if (usm__option_is(key, nkey, "quota"))
        return usm__option_size(value, n, &c->quota) && c->quota > 0;
    if (usm__option_is(key, nkey, "engine"))
        return read_engine(value, n, &c->engine);
    if (usm__option_is(key, nkey, "depth")) {
        if (!usm__option_size(value, n, &number) || number == 0 || number > DEPTH_MAX)
            return false;
        c->depth = (unsigned)number;
        return true;
    }
    if (!usm__option_is(key, nkey, "direct") ||
        (!usm__option_is(value, n, "on") && !usm__option_is(value, n, "off")))
        return false;
    c->direct = usm__option_is(value, n, "on");
    return true;
}

static bool add_folder(const char *text, size_t n, usm_file_config *c)
{
    if (c->nfolders == PLACES_MAX || n >= PATH_ROOM)
        return false;
    memcpy(c->folders[c->nfolders], text, n);
    c->folders[c->nfolders++][n] = '\0';
    return true;
}

usm_status usm_file_parse(const usm_host_api *api, const char *text, usm_file_config *config)
{
    usm_file_config c = {.quota = UINT64_MAX, .depth = DEPTH_DEFAULT, .direct = true};

    for (const char *at = text; *at;) {
        size_t      n     = strcspn(at, ",");
        const char *equal = memchr(at, '=', n);
        bool        ok    = true;

        if (*at != '/' && equal)
            ok = read_option(at, (size_t)(equal - at), equal + 1, n - (size_t)(equal + 1 - at), &c);
        else if (n > 0)
            ok = add_folder(at, n, &c);
        if (!ok)
            return api->report(USM_E_INVALID,
                               "the transport file cannot take \"%.*s\": allowed are up to %d "
                               "folders and %s, separated by commas",
                               (int)usm_min_size(n, 128), at, PLACES_MAX, options);
        at += n;
        at += *at == ',';
    }
    if (c.nfolders == 0)
        (void)add_folder("/var/tmp", strlen("/var/tmp"), &c);
    *config = c;
    return USM_OK;
}
