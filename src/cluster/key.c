/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The job's key: USM_JOB_KEY, else the content of USM_JOB_KEY_FILE.  Its bytes are in memory that
 * is excluded from core dumps and stays until the process ends.  The module lets members prove to
 * each other that they have the key.  Called by attach.c. */
#include "base/inline/hex.h"
#include "base/os_secret.h"
#include "base/settings.h"
#include "cluster/internal.h"

#include <errno.h>
#include <string.h>

/* In memory for keys. */
typedef struct secret {
    unsigned char key[USM__KEY_MAX];
    char          text[256];
} secret;

static secret *kept; /* created at the first attempt, by one thread: attach.c ensures that */

static usm_status read_file(const char *path, size_t *size)
{
    char    words[128];
    int64_t n = usm__os_secret_read(path, kept->text, sizeof kept->text);

    if (n < 0 && errno == EPERM)
        return usm__fail(USM_E_KEY,
                         "USM_JOB_KEY_FILE=%.200s belongs to somebody else, or others may read it: "
                         "chmod 600 %.200s",
                         path, path);
    if (n < 0)
        return usm__fail(USM_E_KEY, "USM_JOB_KEY_FILE=%.200s cannot be read: %s", path,
                         strerror_r(errno, words, sizeof words));
    *size = usm__hex_key(kept->text, (size_t)n, kept->key);
    if (*size == 0)
        return usm__fail(USM_E_KEY,
                         "USM_JOB_KEY_FILE=%.200s does not hold 32 or 64 hexadecimal digits, as "
                         "\"openssl rand -hex 32\" writes them",
                         path);
    return USM_OK;
}

static usm_status take(size_t *size)
{
    size_t      n    = usm__setting_take_secret("job_key", kept->text, sizeof kept->text);
    const char *path = usm__setting_text("job_key_file");

    *size = 0;
    if (n > 0) {
        *size = usm__hex_key(kept->text, n, kept->key);
        return *size > 0 ? USM_OK : usm__fail(USM_E_KEY, "USM_JOB_KEY is not a key");
    }
    return *path ? read_file(path, size) : USM_OK;
}

usm_status usm__job_key(const void **key, size_t *size)
{
    char       words[128];
    size_t     n = 0;
    usm_status st;

    if (!kept)
        kept = usm__os_secret_map(sizeof *kept);
    if (!kept)
        return usm__fail(USM_E_SYSTEM, "no memory for the job's key: %s",
                         strerror_r(errno, words, sizeof words));
    st = usm__settings_refusal(); /* a malformed USM_JOB_KEY does not count as no key */
    if (st == USM_OK)
        st = take(&n);
    usm__os_secret_wipe(kept->text, sizeof kept->text);
    if (st != USM_OK)
        return st;
    *key  = n > 0 ? kept->key : NULL;
    *size = n;
    return USM_OK;
}
