/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport over Valkey and Redis servers: blocks as values under keys of this process.  This
 * file has the table; internal.h lists the other parts.
 *
 * With several servers, block n is on server n modulo their number, in a cluster on the one that
 * has the key's slot (slots.c); where the engine keeps copies (USM_SPILL_REPLICAS), each server is a
 * place of its own (places.c).  A key is "prefix:random number of the store:block", so that no two
 * programs, and no two stores of one, share a key. */
#include "internal.h"

#include "base/inline/module.h"
#include "base/inline/plural.h"

#include <stdio.h>
#include <sys/random.h>

#define SMALL       ((size_t)256 << 10) /* blocks up to this size need more transfers in flight */
#define DEPTH_LARGE 16u

/* ---- open, close ---------------------------------------------------------------------- */

void usm_valkey_stop_servers(usm_valkey_store *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->is_closing = true;
    (void)pthread_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < usm_load_acquire(&s->nservers); i++)
        usm_valkey_server_stop(s->servers[i]);
}

static void end_servers(usm_valkey_store *s)
{
    usm_valkey_stop_servers(s);
    for (unsigned i = 0; i < usm_load_acquire(&s->nservers); i++)
        usm_valkey_server_destroy(s->servers[i]);
}

/* All connect at the same time.  The lock keeps those that a cluster adds behind them. */
static usm_status start_servers(usm_valkey_store *s)
{
    usm_status st = USM_OK;

    (void)pthread_mutex_lock(&s->lock);
    for (unsigned i = 0; i < s->config.nhosts && st == USM_OK; i++) {
        st = usm_valkey_server_create(s, i, s->config.hosts[i], &s->servers[i]);
        if (st == USM_OK)
            usm_store_release(&s->nservers, i + 1);
    }
    (void)pthread_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < s->config.nhosts && st == USM_OK; i++)
        st = usm_valkey_server_await(s->servers[i]);
    if (st != USM_OK)
        end_servers(s);
    return st;
}

static usm_status prepare(usm_valkey_store *s, const usm_transport_params *params)
{
    const usm_host_api *api = params->api;
    usm_status          st;

    if (params->home)
        return api->report(USM_E_NOT_SUPPORTED, "a server of the transport valkey is no file");
    if (!usm_is_pow2(params->block_size) || params->block_size < PAGE_SIZE)
        return api->report(USM_E_INVALID, "a block of %zu bytes is not a power of two from 4096 on",
                           params->block_size);
    st = usm_valkey_parse(api, params->config ? params->config : "", &s->config);
    if (st != USM_OK)
        return st;
    if (getrandom(&s->id, sizeof(s->id), 0) != (ssize_t)sizeof(s->id))
        return api->report(USM_E_SYSTEM, "the system gives no random number");
    usm_valkey_places_init(s, params);
    return USM_OK;
}

static usm_status init_locks(usm_valkey_store *s)
{
    const int  error = pthread_mutex_init(&s->lock, NULL);
    usm_status st;

    if (error)
        return s->api->report(USM_E_SYSTEM, "no lock could be made: error %d", error);
    st = usm_valkey_room_init(s);
    if (st != USM_OK)
        (void)pthread_mutex_destroy(&s->lock);
    return st;
}

static void fini_locks(usm_valkey_store *s)
{
    usm_valkey_room_fini(s);
    (void)pthread_mutex_destroy(&s->lock);
}

static usm_status valkey_open(const usm_transport_params *params, void **store)
{
    const usm_host_api *api = params->api;
    usm_valkey_store   *s;
    usm_status          st;

    if (params->struct_size != sizeof(*params))
        return api->report(USM_E_ABI, "the transport valkey was built for another libusm");
    s = api->heap_alloc(sizeof(*s));
    if (!s)
        return api->report(USM_E_NO_MEMORY, "no memory for a transport");
    s->api        = api;
    s->block_size = params->block_size;
    st            = prepare(s, params);
    if (st != USM_OK)
        goto err_store;
    st = init_locks(s);
    if (st != USM_OK)
        goto err_store;
    st = usm_valkey_tls_init(s);
    if (st != USM_OK)
        goto err_locks;
    st = usm_valkey_password_take(s);
    if (st != USM_OK)
        goto err_tls;
    st = start_servers(s);
    if (st != USM_OK)
        goto err_password;
    usm_valkey_exit_add(s);
    *store = s;
    return USM_OK;

err_password:
    usm_valkey_password_drop(s);
err_tls:
    usm_valkey_tls_fini(s);
err_locks:
    fini_locks(s);
err_store:
    api->heap_free(s);
    return st;
}

static void valkey_close(void *store)
{
    usm_valkey_store *s = store;

    if (!s)
        return;
    usm_valkey_exit_remove(s);
    end_servers(s);
    usm_valkey_password_drop(s);
    usm_valkey_tls_fini(s);
    fini_locks(s);
    s->api->heap_free(s);
}

/* ---- room ------------------------------------------------------------------------------- */

static usm_status valkey_reserve(void *store, uint64_t first, uint64_t n)
{
    usm_valkey_store *s = store;
    uint64_t          number;

    if (n == 0)
        return USM_OK;
    if (!usm_valkey_number(s, first, &number))
        return s->api->report(USM_E_INVALID, "the transport valkey has no place %llu",
                              (unsigned long long)first >> 48);
    return usm_valkey_reserve(s, number, n, s->place_changed ? s->stride : 1);
}

static void valkey_forget(void *store, uint64_t first, uint64_t n)
{
    usm_valkey_store *s = store;
    uint64_t          number;

    if (!usm_valkey_number(s, first, &number) ||
        !usm_valkey_forget(s, number, n, s->place_changed ? s->stride : 1))
        return;
    for (unsigned i = 0; i < usm_load_acquire(&s->nservers); i++)
        usm_valkey_server_ring(s->servers[i]);
}

static usm_status valkey_capacity(void *store, usm_transport_capacity *capacity)
{
    usm_valkey_store *s = store;
    const unsigned    depth =
        s->block_size <= SMALL ? WINDOW : DEPTH_LARGE * usm_load_acquire(&s->nservers);
    usm_transport_capacity c = {.total = usm_valkey_limit(s),
                                .used  = usm_load_relaxed(&s->room.nused) * s->block_size,
                                .depth = depth < WINDOW ? depth : WINDOW,
                                .is_volatile_memory = true};

    c.available = c.total > c.used ? c.total - c.used : 0;
    *capacity   = c;
    return USM_OK;
}

/* ---- transfers --------------------------------------------------------------------------- */

static void valkey_submit(void *store, usm_transfer *list)
{
    usm_valkey_store *s = store;
    usm_transfer     *next;
    uint64_t          number;

    for (usm_transfer *t = list; t; t = next) {
        next = t->next;
        if (!usm_valkey_number(s, t->block, &number) || t->size == 0 || t->offset > s->block_size ||
            t->size > s->block_size - t->offset || ((t->size | t->offset) & (PAGE_SIZE - 1)) != 0 ||
            !usm_is_aligned(t->data, PAGE_SIZE)) {
            usm_valkey_finish(t, s->api->report(USM_E_INVALID,
                                                "a transfer of %zu bytes at %zu of a block of %zu "
                                                "is not made of whole pages of it",
                                                t->size, t->offset, s->block_size));
            continue;
        }
        *usm_valkey_piece_of(t) = (usm_valkey_piece){.block = number};
        usm_valkey_server_add(s->servers[usm_valkey_route(s, number)], t);
    }
}

/* Memory: what was acknowledged exists for as long as its server. */
static usm_status valkey_sync(void *store)
{
    (void)store;
    return USM_OK;
}

static void valkey_describe(void *store, char *text, size_t cap)
{
    usm_valkey_store *s       = store;
    const unsigned    servers = usm_load_acquire(&s->nservers);
    uint64_t          lost    = 0;
    size_t            n;

    if (cap == 0)
        return;
    n = (size_t)snprintf(text, cap, "%u %s%s%s%s", servers,
                         usm__plural(servers, "server", "servers"),
                         usm_load_relaxed(&s->is_cluster) ? " of a cluster" : "",
                         usm_valkey_places(s) > 1 ? ", several replica targets" : "",
                         s->config.tls ? " by TLS" : "");
    for (unsigned i = 0; i < servers && n < cap; i++) {
        const usm_valkey_server *v = s->servers[i];

        lost += usm_load_relaxed(&v->lost);
        n += (size_t)snprintf(text + n, cap - n, "%s%s%s", i ? ", " : ": ", v->name,
                              usm_load_relaxed(&v->is_connected) ? "" : " (not connected)");
    }
    if (n < cap)
        n += (size_t)snprintf(text + n, cap - n, "; keys %s:%016llx:*, renewed within %u s",
                              s->config.prefix, (unsigned long long)s->id,
                              (unsigned)s->config.ttl_s);
    if (n < cap && s->config.quota != UINT64_MAX)
        n += (size_t)snprintf(text + n, cap - n, ", quota %llu MiB",
                              (unsigned long long)(s->config.quota >> 20));
    if (n < cap && lost > 0)
        (void)snprintf(text + n, cap - n, "; %llu %s no longer there", (unsigned long long)lost,
                       usm__plural(lost, "block was", "blocks were"));
}

static const usm_transport_ops ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(ops),
    .name        = "valkey",
    .caps        = USM_TRANSPORT_CAP_PLACES | USM_TRANSPORT_CAP_SPREADS | USM_TRANSPORT_CAP_OBJECTS,

    .open     = valkey_open,
    .close    = valkey_close,
    .capacity = valkey_capacity,
    .reserve  = valkey_reserve,
    .forget   = valkey_forget,
    .submit   = valkey_submit,
    .sync     = valkey_sync,
    .describe = valkey_describe,

    .places = usm_valkey_places,
    .place  = usm_valkey_place,

    .objects_open  = usm_valkey_objects_open,
    .objects_close = usm_valkey_objects_close,
    .object_size   = usm_valkey_object_size,
    .object_read   = usm_valkey_object_read,
    .object_write  = usm_valkey_object_write,
};

USM_API usm_transport_entry_fn usm_transport_entry;

const usm_transport_ops *usm_transport_entry(const usm_host_api *api)
{
    return usm_module_fits(api, "the transport valkey") ? &ops : NULL;
}
