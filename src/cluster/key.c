/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The job's key: USM_JOB_KEY, else the content of USM_JOB_KEY_FILE.  Its bytes are in memory that
 * is excluded from core dumps and stays until the process ends.  The module lets members prove to
 * each other that they have the key.  Called by attach.c. */
#include "base/inline/key.h"
#include "base/os_secret.h"
#include "base/settings.h"
#include "cluster/internal.h"
#include "device/registry.h"

#include <errno.h>
#include <string.h>

usm_status usm__job_key(const void **key, size_t *size)
{
    static const usm_key_source from = {"job_key", "job_key_file", "USM_JOB_KEY"};
    char                        words[128];
    size_t                      n = 0;
    usm_status                  st;

    if (!usm__job.key)
        usm__job.key = usm__os_secret_map(sizeof *usm__job.key);
    if (!usm__job.key)
        return usm__fail(USM_E_SYSTEM, "no memory for the job's key: %s",
                         strerror_r(errno, words, sizeof words));
    st = usm__settings_refusal(); /* a malformed USM_JOB_KEY does not count as no key */
    if (st == USM_OK)
        st = usm_key_take(&usm__registry_api, &from, usm__job.key, &n);
    usm__os_secret_wipe(usm__job.key->text, sizeof usm__job.key->text);
    if (st != USM_OK)
        return st;
    *key  = n > 0 ? usm__job.key->bytes : NULL;
    *size = n;
    return USM_OK;
}
