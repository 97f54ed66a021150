/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Parses the text after "socket:": FOLDER,rank=R,size=N[,wait=MS]. */
#include "internal.h"

#include <stdio.h>

#define WAIT_MAX 3600000u

/* The next part up to a comma; false: there is none. */
static bool next(const char **rest, char *part, size_t cap, bool *is_cut)
{
    size_t n = strcspn(*rest, ",");

    if (!**rest)
        return false;
    *is_cut = n >= cap;
    (void)snprintf(part, cap, "%.*s", (int)n, *rest);
    *rest += n + ((*rest)[n] == ',');
    return true;
}

static bool number(const char *text, uint32_t max, uint32_t *value)
{
    uint64_t v = 0;

    if (!*text || strspn(text, "0123456789") != strlen(text) || strlen(text) > 9)
        return false;
    for (; *text; text++)
        v = v * 10 + (uint64_t)(*text - '0');
    if (v > max)
        return false;
    *value = (uint32_t)v;
    return true;
}

static usm_status take(const usm_host_api *api, const char *part, usm_socket_config *config)
{
    const struct {
        const char *key;
        uint32_t    max;
        uint32_t   *value;
    } keys[] = {{"rank=", RANKS_MAX - 1, &config->rank},
                {"size=", RANKS_MAX, &config->size},
                {"wait=", WAIT_MAX, &config->wait_ms}};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        size_t n = strlen(keys[i].key);

        if (strncmp(part, keys[i].key, n) != 0)
            continue;
        if (number(part + n, keys[i].max, keys[i].value))
            return USM_OK;
        return api->report(USM_E_INVALID, "socket: \"%s\": %.4s is a number from 0 to %u", part,
                           keys[i].key, keys[i].max);
    }
    return api->report(USM_E_INVALID,
                       "socket: \"%s\" is not a setting; there are rank=R, size=N and wait=MS, "
                       "behind the folder",
                       part);
}

static usm_status check_folder(const usm_host_api *api, const char *folder, bool is_cut)
{
    if (!*folder)
        return api->report(USM_E_INVALID,
                           "socket: a folder comes first: socket:/run/user/1000/job,rank=0,size=4");
    if (is_cut)
        return api->report(USM_E_INVALID,
                           "socket: the folder's path %.40s... is longer than %zu bytes: take a "
                           "shorter one",
                           folder, sizeof(((usm_socket_config *)0)->folder) - 1);
    return USM_OK;
}

usm_status usm_socket_parse(const usm_host_api *api, const char *text, usm_socket_config *config)
{
    usm_socket_config c      = {.rank = UINT32_MAX, .wait_ms = WAIT_MS};
    bool              is_cut = false;
    char              part[sizeof(c.folder)];
    usm_status        st;

    (void)next(&text, c.folder, sizeof(c.folder), &is_cut);
    st = check_folder(api, c.folder, is_cut);
    while (st == USM_OK && next(&text, part, sizeof(part), &is_cut))
        st = take(api, part, &c);
    if (st != USM_OK)
        return st;
    if (c.rank == UINT32_MAX || c.size == 0)
        return api->report(USM_E_INVALID, "socket: %s is missing: rank=R,size=N, with R below N",
                           c.rank == UINT32_MAX ? "rank=" : "size=, or it is 0,");
    if (c.rank >= c.size)
        return api->report(USM_E_INVALID,
                           "socket: there is no rank %u in a job of size %u: ranks "
                           "are 0 to %u",
                           c.rank, c.size, c.size - 1);
    *config = c;
    return USM_OK;
}
