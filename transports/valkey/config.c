/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Parses the text after "valkey:" in USM_SPILL: servers and options, separated by commas.  Connects
 * to nothing.  Called by open().
 *
 *     host[:port],[::1]:6380,/run/redis.sock,tls,user=NAME,prefix=TEXT,quota=10G,ttl=600,timeout=5000
 *
 * The password is not here: what is in USM_SPILL may be shown. */
#include "internal.h"

#include "base/inline/option.h"

#include <stdio.h>

#define PORT_DEFAULT    6379u
#define TTL_DEFAULT     600u
#define TTL_MIN         3u
#define TTL_MAX         (30u * 24 * 3600)
#define TIMEOUT_DEFAULT 5000u
#define TIMEOUT_MIN     50u
#define TIMEOUT_MAX     600000u

static const char options[] = "tls, user=NAME, prefix=TEXT, quota=SIZE, ttl=3..2592000 (seconds), "
                              "timeout=50..600000 (milliseconds)";

/* Letters that mean nothing in a key's pattern, in the protocol or in a shell. */
static bool read_word(const char *value, size_t n, char *word, size_t room)
{
    if (n == 0 || n >= room)
        return false;
    for (size_t i = 0; i < n; i++)
        if (value[i] <= ' ' || value[i] > '~' || strchr("*?[]{}\\'\"", value[i]))
            return false;
    memcpy(word, value, n);
    word[n] = '\0';
    return true;
}

static bool read_number(const char *value, size_t n, uint32_t least, uint32_t most,
                        uint32_t *number)
{
    uint64_t v = 0;

    if (n == 0 || !usm__option_size(value, n, &v) || v < least || v > most || value[n - 1] > '9')
        return false;
    *number = (uint32_t)v;
    return true;
}

static bool read_option(const char *key, size_t nkey, const char *value, size_t n,
                        usm_valkey_config *c)
{
    if (usm__option_is(key, nkey, "quota"))
        return usm__option_size(value, n, &c->quota) && c->quota > 0;
    if (usm__option_is(key, nkey, "user"))
        return read_word(value, n, c->user, sizeof(c->user));
    if (usm__option_is(key, nkey, "prefix"))
        return read_word(value, n, c->prefix, sizeof(c->prefix));
    if (usm__option_is(key, nkey, "ttl"))
        return read_number(value, n, TTL_MIN, TTL_MAX, &c->ttl_s);
    return usm__option_is(key, nkey, "timeout") &&
           read_number(value, n, TIMEOUT_MIN, TIMEOUT_MAX, &c->timeout_ms);
}

bool usm_valkey_split(const char *name, char *host, size_t room, int *port)
{
    const bool  is_v6  = name[0] == '[';
    const char *end    = is_v6 ? strchr(name, ']') : name + strcspn(name, ":");
    const char *begin  = name + is_v6;
    uint32_t    number = PORT_DEFAULT;

    if (!end || end == begin || (size_t)(end - begin) >= room)
        return false;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    end += is_v6;
    if (*end && (*end != ':' || !read_number(end + 1, strlen(end + 1), 1, 65535, &number)))
        return false;
    *port = (int)number;
    return true;
}

static bool add_host(const char *text, size_t n, usm_valkey_config *c)
{
    char host[HOST_ROOM];
    int  port;

    if (c->nhosts == HOSTS_MAX || n >= HOST_ROOM)
        return false;
    memcpy(c->hosts[c->nhosts], text, n);
    c->hosts[c->nhosts++][n] = '\0';
    return *text == '/' || usm_valkey_split(c->hosts[c->nhosts - 1], host, sizeof(host), &port);
}

usm_status usm_valkey_parse(const usm_host_api *api, const char *text, usm_valkey_config *config)
{
    usm_valkey_config c = {
        .quota = UINT64_MAX, .prefix = "usm", .ttl_s = TTL_DEFAULT, .timeout_ms = TIMEOUT_DEFAULT};

    for (const char *at = text; *at;) {
        size_t      n     = strcspn(at, ",");
        const char *equal = memchr(at, '=', n);
        bool        ok    = true;

        if (*at != '/' && equal)
            ok = read_option(at, (size_t)(equal - at), equal + 1, n - (size_t)(equal + 1 - at), &c);
        else if (usm__option_is(at, n, "tls"))
            c.tls = true;
        else if (n > 0)
            ok = add_host(at, n, &c);
        if (!ok)
            return api->report(USM_E_INVALID,
                               "the transport valkey cannot take \"%.*s\": allowed are up to %u "
                               "servers (host[:port], or the path of a socket) and %s, separated "
                               "by commas",
                               (int)usm_min_size(n, 128), at, HOSTS_MAX, options);
        at += n;
        at += *at == ',';
    }
    if (c.nhosts == 0)
        (void)add_host("127.0.0.1", strlen("127.0.0.1"), &c);
    *config = c;
    return USM_OK;
}
