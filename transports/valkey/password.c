/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The password: from USM_VALKEY_PASSWORD or the file that USM_VALKEY_PASSWORD_FILE names, into
 * memory that dumps leave out.  It is in no message.  Called by valkey.c and objects.c. */
#include "internal.h"

#include <errno.h>

#define SECRET_SIZE ((size_t)4096)

static usm_status read_password(usm_valkey_store *s, const char *path)
{
    char          words[128];
    const int64_t n = s->api->os->secret_read(path, s->password, SECRET_SIZE);

    if (n < 0 && errno == EPERM)
        return s->api->report(USM_E_KEY,
                              "USM_VALKEY_PASSWORD_FILE=%.200s belongs to somebody else, or others "
                              "may read it: chmod 600 %.200s",
                              path, path);
    if (n < 0)
        return s->api->report(USM_E_KEY, "USM_VALKEY_PASSWORD_FILE=%.200s cannot be read: %s", path,
                              strerror_r(errno, words, sizeof(words)));
    s->npassword = (size_t)n;
    while (s->npassword > 0 && strchr("\r\n", s->password[s->npassword - 1]))
        s->npassword--;
    if (s->npassword == 0)
        return s->api->report(USM_E_KEY, "USM_VALKEY_PASSWORD_FILE=%.200s is empty", path);
    return USM_OK;
}

void usm_valkey_password_drop(usm_valkey_store *s)
{
    s->api->os->secret_unmap(s->password, SECRET_SIZE);
    s->password = NULL;
}

usm_status usm_valkey_password_take(usm_valkey_store *s)
{
    const usm_host_api *api  = s->api;
    const char         *path = api->setting("valkey_password_file");
    usm_status          st   = USM_OK;

    s->password = api->os->secret_map(SECRET_SIZE);
    if (!s->password)
        return api->report(USM_E_NO_MEMORY, "no memory for a password");
    s->npassword = api->take_secret("valkey_password", s->password, SECRET_SIZE);
    if (s->npassword >= SECRET_SIZE)
        st =
            api->report(USM_E_KEY, "USM_VALKEY_PASSWORD is longer than %zu bytes", SECRET_SIZE - 1);
    else if (s->npassword == 0 && path && *path)
        st = read_password(s, path);
    if (st != USM_OK || s->npassword == 0)
        usm_valkey_password_drop(s);
    return st;
}
