/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Keys of the user: a setting, else a file that another setting names.  Called by the job's key
 * (cluster/key.c) and the codec aes_gcm. */
#ifndef USM_BASE_INLINE_KEY_H
#define USM_BASE_INLINE_KEY_H

#include "base/inline/hex.h"

#include <errno.h>
#include <string.h>
#include <usm/module.h>

/* In memory for keys (os->secret_map). */
typedef struct usm_key {
    unsigned char bytes[USM__KEY_MAX];
    char          text[256]; /* the key as it was written: to be wiped by the caller */
} usm_key;

typedef struct usm_key_source {
    const char *setting, *file; /* keys of settings: "job_key", "job_key_file" */
    const char *variable;       /* "USM_JOB_KEY", for messages                 */
} usm_key_source;

static inline usm_status usm_key_read_file(const usm_host_api *api, const usm_key_source *from,
                                           const char *path, usm_key *key, size_t *size)
{
    char    words[128];
    int64_t n = api->os->secret_read(path, key->text, sizeof key->text);

    if (n < 0 && errno == EPERM)
        return api->report(USM_E_KEY,
                           "%s_FILE=%.200s belongs to somebody else, or others may read it: chmod "
                           "600 %.200s",
                           from->variable, path, path);
    if (n < 0)
        return api->report(USM_E_KEY, "%s_FILE=%.200s cannot be read: %s", from->variable, path,
                           strerror_r(errno, words, sizeof words));
    *size = usm__hex_key(key->text, (size_t)n, key->bytes);
    if (*size == 0)
        return api->report(USM_E_KEY,
                           "%s_FILE=%.200s does not hold 32 or 64 hexadecimal digits, as \"openssl "
                           "rand -hex 32\" writes them",
                           from->variable, path);
    return USM_OK;
}

/* *size 0: the user has given none. */
static inline usm_status usm_key_take(const usm_host_api *api, const usm_key_source *from,
                                      usm_key *key, size_t *size)
{
    size_t      n    = api->take_secret(from->setting, key->text, sizeof key->text);
    const char *path = api->setting(from->file);

    *size = 0;
    if (n == 0)
        return path && *path ? usm_key_read_file(api, from, path, key, size) : USM_OK;
    *size = usm__hex_key(key->text, n, key->bytes);
    return *size > 0 ? USM_OK : api->report(USM_E_KEY, "%s is not a key", from->variable);
}

#endif
