/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Data servers: values that inputs are read from ("from": "valkey:key") and results are written to
 * ("to").  The word before the colon names a transport that keeps values by name; where its servers
 * are is said by --store or by the app's 'stores'.
 *
 * All stores that the app names are opened while it is read, also those of outputs: a server that
 * is down, or refuses the password, is told before anything is computed. */
#include "app.h"

#include "device/init.h"
#include "device/registry.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_SIZE = 32 };

struct app_store {
    char                     name[NAME_MAX_SIZE];
    const usm_transport_ops *ops;
    void                    *objects; /* NULL: it could not be opened */
    char                     reason[512];
};

void stores_free(app *a)
{
    for (size_t i = 0; i < a->nstores; i++)
        if (a->stores[i].objects)
            a->stores[i].ops->objects_close(a->stores[i].objects);
    free(a->stores);
}

/* ---- where the servers are ----------------------------------------------------------------- */

/* The text behind "NAME:" of the option --store, the last one of that name; NULL: there is none. */
static const char *option_of(const app *a, const char *name)
{
    const size_t n = strlen(name);

    for (size_t i = a->noptions; i-- > 0;)
        if (strncmp(a->options[i], name, n) == 0 && a->options[i][n] == ':')
            return a->options[i] + n + 1;
    return NULL;
}

/* False: an error is reported. */
static bool find_config(app *a, value v, const char *name, const char **config)
{
    value list = member((value){a->root, a->text + strspn(a->text, " \t\r\n")}, "stores");

    *config = option_of(a, name);
    if (*config)
        return true;
    if (a->within.path)
        return mistake(a, v.at,
                       "with --within the servers of '%s' must be named on the command line: "
                       "--store %s:HOST",
                       name, name);
    *config = ""; /* the transport's default */
    return !list.json || get_text(a, list, name, config);
}

bool stores_check(app *a, value list)
{
    const char *name, *config;
    json_t     *ignored;
    bool        is_ok = true;

    if (!list.json)
        return true;
    if (!json_is_object(list.json))
        return mistake(a, list.at, "'stores' must be an object: \"valkey\": \"host:port\"");
    json_object_foreach(list.json, name, ignored)
    {
        is_ok &= get_text(a, list, name, &config);
    }
    return is_ok;
}

/* ---- opening ------------------------------------------------------------------------------- */

static void note(app_store *s)
{
    (void)snprintf(s->reason, sizeof s->reason, "%s", usm_last_error());
}

static void open_store(app_store *s, const char *config)
{
    usm_transport_params params = {
        .struct_size = sizeof params, .api = &usm__registry_api, .config = config};

    s->ops = usm__start() == USM_OK ? usm__registry_transport(s->name) : NULL;
    if (!s->ops)
        note(s);
    else if (!(s->ops->caps & USM_TRANSPORT_CAP_OBJECTS))
        (void)snprintf(s->reason, sizeof s->reason,
                       "the transport %s keeps no values by name; valkey does", s->name);
    else if (s->ops->objects_open(&params, &s->objects) != USM_OK)
        note(s);
}

/* The store of "NAME:KEY", which is opened at its first use; *key is behind the colon.  NULL, and
 * an error is reported. */
static app_store *store_of(app *a, value v, const char **key)
{
    const char *text  = json_string_value(v.json);
    const char *colon = text ? strchr(text, ':') : NULL;
    size_t      n = colon ? (size_t)(colon - text) : 0, i = 0;
    const char *config;
    app_store   fresh = {.name = ""};

    if (n == 0 || n >= NAME_MAX_SIZE || !colon[1]) {
        (void)mistake(a, v.at, "a value of a data server is written as \"valkey:KEY\"");
        return NULL;
    }
    *key = colon + 1;
    memcpy(fresh.name, text, n);
    while (i < a->nstores && strcmp(a->stores[i].name, fresh.name) != 0)
        i++;
    if (i == a->nstores) {
        if (!find_config(a, v, fresh.name, &config))
            return NULL;
        open_store(&fresh, config);
        a->stores               = need(realloc(a->stores, (a->nstores + 1) * sizeof *a->stores));
        a->stores[a->nstores++] = fresh;
    }
    if (a->stores[i].objects)
        return &a->stores[i];
    (void)mistake(a, v.at, "%s", a->stores[i].reason);
    return NULL;
}

/* ---- values -------------------------------------------------------------------------------- */

bool check_value(app *a, value v)
{
    const char *key;

    return store_of(a, v, &key) != NULL;
}

bool size_of_value(app *a, value v, size_t *size)
{
    const char *key  = NULL;
    app_store  *s    = store_of(a, v, &key);
    uint64_t    wide = 0;

    if (!s)
        return false;
    if (s->ops->object_size(s->objects, key, &wide) != USM_OK)
        return mistake(a, v.at, "%s", usm_last_error());
    if (wide > UINT32_MAX)
        return mistake(a, v.at, "the value has %llu bytes; inputs have at most %u",
                       (unsigned long long)wide, UINT32_MAX);
    *size = (size_t)wide;
    return true;
}

bool read_value(app *a, value v, void *data, size_t size)
{
    const char *key = NULL;
    app_store  *s   = store_of(a, v, &key);

    return s && (s->ops->object_read(s->objects, key, data, size) == USM_OK ||
                 mistake(a, v.at, "%s", usm_last_error()));
}

bool write_value(app *a, value v, const void *data, size_t size)
{
    const char *key = NULL;
    app_store  *s   = store_of(a, v, &key);

    return s && (s->ops->object_write(s->objects, key, data, size) == USM_OK ||
                 mistake(a, v.at, "%s", usm_last_error()));
}
