/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The pools, transports and codecs of the process, by name; each is loaded when it is first
 * requested.  Here: their slots, and the checks of a table before its first use.  Not here:
 * backends (registry.c), the folders of modules (module.c).  Called by src/heap, src/spill and
 * usm-info.
 *
 * A module is loaded under the lock: two threads that start at once must not load it twice.  A
 * module that was refused is tried again the next time, because it may be installed by then.  Slots
 * are never freed. */
#include "device/registry.h"

#include "base/fork.h"
#include "base/mutex.h"
#include "base/part.h"
#include "device/module.h"

#include <stdio.h>
#include <string.h>

#define SLOTS_MAX 16

typedef union entry {
    usm_pool_entry_fn      *pool;
    usm_transport_entry_fn *transport;
    usm_codec_entry_fn     *codec;
    void                   *symbol; /* as returned by dlsym() */
} entry;

typedef struct slot {
    char        name[32];
    char        path[512]; /* of the module; or "built in"; "" until it is found */
    entry       entry;
    bool        is_module;
    const char *needs; /* what the module is built with, where that may be missing; or NULL */
    const void *ops;   /* its checked table; NULL: not requested yet, or refused */
} slot;

typedef struct kind kind;

struct kind {
    const char *what; /* "transport": part of the names of the module and of its entry */
    /* Calls the entry; NULL with an error message if there is no table or it is not valid. */
    const void *(*enter)(const slot *s);
    usm__mutex lock;
    /* guarded by it */
    size_t n;
    size_t nnamed; /* of those, the ones that usm__compose() has added; fixed afterwards */
    slot   slots[SLOTS_MAX];
};

/* ---- tables ------------------------------------------------------------------ */

static bool is_name(const char *name)
{
    return name && *name && strlen(name) < sizeof((slot *)0)->name &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == 0;
}

/* The first fields of every table. */
typedef struct head {
    uint32_t    abi, struct_size;
    const char *name;
} head;

static usm_status check_head(const char *what, const slot *s, const head *table, size_t size)
{
    if (table->abi != USM_MODULE_ABI || table->struct_size != size)
        return usm__fail(USM_E_ABI,
                         "%s %s was built for module ABI %u with a table of %u bytes, this libusm "
                         "has ABI %u and %zu; build both from one release",
                         what, s->name, table->abi, table->struct_size, USM_MODULE_ABI, size);
    if (!is_name(table->name))
        return usm__fail(USM_E_INVALID, "%s %s has no name of 1 to 31 characters [a-z0-9_]", what,
                         s->name);
    if (strcmp(table->name, s->name) != 0)
        return usm__fail(USM_E_INVALID, "%s %s calls itself %s", what, s->name, table->name);
    return USM_OK;
}

typedef struct member {
    uint32_t    cap; /* 0: required */
    const char *group, *name;
    bool        is_there;
} member;

/* A group is complete and has its bit, or it is absent. */
static usm_status check_members(const char *what, const slot *s, uint32_t caps, const member *list)
{
    for (; list->name; list++) {
        bool wanted = !list->cap || (caps & list->cap);

        if (wanted && !list->is_there && !list->cap)
            return usm__fail(USM_E_INVALID, "%s %s lacks %s, which all need", what, s->name,
                             list->name);
        if (wanted && !list->is_there)
            return usm__fail(USM_E_INVALID, "%s %s promises the group %s but lacks %s", what,
                             s->name, list->group, list->name);
        if (!wanted && list->is_there)
            return usm__fail(USM_E_INVALID, "%s %s has %s but does not promise the group %s", what,
                             s->name, list->name, list->group);
    }
    return USM_OK;
}

#define HAS(slot)                                                                                  \
    {                                                                                              \
        0, "", #slot, ops->slot != NULL                                                            \
    }
#define MAY_HAVE(CAP, g, slot)                                                                     \
    {                                                                                              \
        USM_TRANSPORT_CAP_##CAP, g, #slot, ops->slot != NULL                                       \
    }

static usm_status check_transport(const slot *s, const usm_transport_ops *ops)
{
    head     table = {ops->abi, ops->struct_size, NULL};
    uint32_t known = USM_TRANSPORT_CAP_HOMES | USM_TRANSPORT_CAP_REGISTER |
                     USM_TRANSPORT_CAP_PROGRESS | USM_TRANSPORT_CAP_PLACES | USM_TRANSPORT_CAP_JOB |
                     USM_TRANSPORT_CAP_OBJECTS | USM_TRANSPORT_CAP_SPREADS;
    usm_status st;

    if (table.abi == USM_MODULE_ABI && table.struct_size == sizeof *ops)
        table.name = ops->name; /* otherwise the field may be elsewhere */
    st = check_head("transport", s, &table, sizeof *ops);
    if (st != USM_OK)
        return st;
    if (ops->caps & ~known)
        return usm__fail(USM_E_INVALID, "transport %s promises groups that there are not: 0x%x",
                         s->name, ops->caps & ~known);
    if ((ops->caps & USM_TRANSPORT_CAP_SPREADS) && !(ops->caps & USM_TRANSPORT_CAP_PLACES))
        return usm__fail(USM_E_INVALID,
                         "transport %s promises to spread blocks without the group places",
                         s->name);
    return check_members("transport", s, ops->caps,
                         (const member[]){HAS(open),
                                          HAS(close),
                                          HAS(capacity),
                                          HAS(reserve),
                                          HAS(forget),
                                          HAS(submit),
                                          HAS(sync),
                                          HAS(describe),
                                          MAY_HAVE(REGISTER, "register", register_memory),
                                          MAY_HAVE(REGISTER, "register", unregister_memory),
                                          MAY_HAVE(PROGRESS, "progress", progress),
                                          MAY_HAVE(PROGRESS, "progress", wait_fd),
                                          MAY_HAVE(PLACES, "places", places),
                                          MAY_HAVE(PLACES, "places", place),
                                          MAY_HAVE(JOB, "job", attach),
                                          MAY_HAVE(JOB, "job", detach),
                                          MAY_HAVE(JOB, "job", app_comm),
                                          MAY_HAVE(JOB, "job", serve),
                                          MAY_HAVE(JOB, "job", members),
                                          MAY_HAVE(JOB, "job", member),
                                          MAY_HAVE(JOB, "job", send),
                                          MAY_HAVE(JOB, "job", job_describe),
                                          MAY_HAVE(OBJECTS, "objects", objects_open),
                                          MAY_HAVE(OBJECTS, "objects", objects_close),
                                          MAY_HAVE(OBJECTS, "objects", object_size),
                                          MAY_HAVE(OBJECTS, "objects", object_read),
                                          MAY_HAVE(OBJECTS, "objects", object_write),
                                          {0, NULL, NULL, false}});
}

static usm_status check_codec(const slot *s, const usm_codec_ops *ops)
{
    head       table = {ops->abi, ops->struct_size, NULL};
    usm_status st;

    if (table.abi == USM_MODULE_ABI && table.struct_size == sizeof *ops)
        table.name = ops->name;
    st = check_head("codec", s, &table, sizeof *ops);
    if (st != USM_OK)
        return st;
    return check_members("codec", s, 0,
                         (const member[]){HAS(create),
                                          HAS(destroy),
                                          HAS(bound),
                                          HAS(encode),
                                          HAS(decode),
                                          {0, NULL, NULL, false}});
}

static const void *enter_pool(const slot *s)
{
    const usm_pool_ops *ops = s->entry.pool(&usm__registry_api);

    if (!ops || (ops->abi == USM_MODULE_ABI && ops->struct_size == sizeof *ops))
        return ops;
    (void)usm__fail(USM_E_ABI, "pool %s was built for module ABI %u, this libusm has %u", s->name,
                    ops->abi, USM_MODULE_ABI);
    return NULL;
}

static const void *enter_transport(const slot *s)
{
    const usm_transport_ops *ops = s->entry.transport(&usm__registry_api);

    return ops && check_transport(s, ops) == USM_OK ? ops : NULL;
}

static const void *enter_codec(const slot *s)
{
    const usm_codec_ops *ops = s->entry.codec(&usm__registry_api);

    return ops && check_codec(s, ops) == USM_OK ? ops : NULL;
}

#define KIND(name)                                                                                 \
    {                                                                                              \
        .what = #name, .enter = enter_##name, .lock = USM__MUTEX_INIT(USM__RANK_REGISTRY, #name)   \
    }
static struct {
    kind pool, transport, codec; /* each has its lock inside */
} kinds = {KIND(pool), KIND(transport), KIND(codec)};

/* ---- slots ------------------------------------------------------------------- */

static slot *find(kind *k, const char *name)
{
    for (size_t i = 0; i < k->n; i++)
        if (strcmp(k->slots[i].name, name) == 0)
            return &k->slots[i];
    return NULL;
}

/* Under the lock, or before there are threads.  NULL: the list is full. */
static slot *add(kind *k, const char *name)
{
    slot *s = find(k, name);

    if (!s && k->n < SLOTS_MAX)
        s = &k->slots[k->n++];
    if (!s)
        return NULL;
    memset(s, 0, sizeof *s);
    snprintf(s->name, sizeof s->name, "%s", name);
    s->is_module = true;
    return s;
}

static usm_status load(const kind *k, slot *s)
{
    void      *symbol;
    usm_status st = usm__module_load(k->what, s->name, s->path, sizeof s->path, &symbol);
    char       why[400];

    if (st == USM_OK)
        s->entry.symbol = symbol;
    if (st != USM_E_NO_BACKEND || !s->needs)
        return st;
    snprintf(why, sizeof why, "%s", usm_last_error());
    return usm__fail(st, "%s; it needs %s", why, s->needs);
}

/* Needs no lock. */
static void names_of(const kind *k, char *text, size_t size)
{
    text[0] = 0;
    for (size_t i = 0, used = 0; i < k->nnamed && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", k->slots[i].name);
}

/* Returns the table; NULL with an error message.  Under the lock. */
static const void *ops_of(kind *k, const char *name)
{
    slot *s = find(k, name);
    char  known[256], why[400];
    slot  unknown = {.is_module = true};

    names_of(k, known, sizeof known);
    if (!s && (k->n == SLOTS_MAX || !is_name(name))) {
        (void)usm__fail(USM_E_NO_BACKEND, "there is no %s \"%.64s\"; there are: %s", k->what,
                        name ? name : "(null)", *known ? known : "none");
        return NULL;
    }
    if (!s) { /* an unknown module: gets a slot if it is one */
        s = &unknown;
        snprintf(s->name, sizeof s->name, "%s", name);
    }
    if (!s->ops && (!s->is_module || s->entry.symbol || load(k, s) == USM_OK))
        s->ops = k->enter(s);
    if (s == &unknown && s->ops)
        k->slots[k->n++] = *s;
    if (s == &unknown && !s->ops && usm_last_status() == USM_E_NO_BACKEND) {
        snprintf(why, sizeof why, "%s", usm_last_error());
        (void)usm__fail(USM_E_NO_BACKEND, "there is no %s \"%s\"; there are: %s; %s", k->what, name,
                        *known ? known : "none", why);
    }
    return s->ops;
}

static const void *get(kind *k, const char *name)
{
    const void *ops;

    usm__mutex_lock(&k->lock);
    ops = ops_of(k, name);
    usm__mutex_unlock(&k->lock);
    return ops;
}

/* No entry: a module of that name. */
static void add_entry(kind *k, const char *name, const entry *with)
{
    slot *s;

    usm__mutex_lock(&k->lock);
    s         = add(k, name);
    k->nnamed = k->n;
    if (s && with->symbol) {
        s->entry     = *with;
        s->is_module = false;
        snprintf(s->path, sizeof s->path, "built in");
    }
    usm__mutex_unlock(&k->lock);
}

void usm__registry_add_pool(const char *name, usm_pool_entry_fn *fn)
{
    add_entry(&kinds.pool, name, &(entry){.pool = fn});
}

void usm__registry_add_transport(const char *name, usm_transport_entry_fn *fn)
{
    add_entry(&kinds.transport, name, &(entry){.transport = fn});
}

void usm__registry_transport_needs(const char *name, const char *needs)
{
    slot *s;

    usm__mutex_lock(&kinds.transport.lock);
    s = find(&kinds.transport, name);
    if (s)
        s->needs = needs;
    usm__mutex_unlock(&kinds.transport.lock);
}

void usm__registry_add_codec(const char *name, usm_codec_entry_fn *fn)
{
    add_entry(&kinds.codec, name, &(entry){.codec = fn});
}

const usm_pool_ops *usm__registry_pool(const char *name)
{
    return get(&kinds.pool, name);
}

bool usm__registry_has_pool(const char *name)
{
    for (size_t i = 0; i < kinds.pool.nnamed; i++)
        if (strcmp(kinds.pool.slots[i].name, name) == 0)
            return true;
    return is_name(name) && usm__module_exists("pool", name);
}

void usm__registry_pool_names(char *text, size_t size)
{
    names_of(&kinds.pool, text, size);
}

const usm_transport_ops *usm__registry_transport(const char *name)
{
    usm__parts_observe(); /* a process that only lends memory loads no backend */
    return get(&kinds.transport, name);
}

const usm_codec_ops *usm__registry_codec(const char *name)
{
    return get(&kinds.codec, name);
}

/* ---- lists ------------------------------------------------------------------- */

static size_t list(kind *k, usm__registry_store *out, size_t cap)
{
    size_t n;

    usm__mutex_lock(&k->lock);
    n = k->n;
    for (size_t i = 0; i < n && i < cap; i++) {
        snprintf(out[i].name, sizeof out[i].name, "%s", k->slots[i].name);
        snprintf(out[i].path, sizeof out[i].path, "%s", k->slots[i].path);
    }
    usm__mutex_unlock(&k->lock);
    return n;
}

size_t usm__registry_transports(usm__registry_store *out, size_t cap)
{
    return list(&kinds.transport, out, cap);
}

size_t usm__registry_codecs(usm__registry_store *out, size_t cap)
{
    return list(&kinds.codec, out, cap);
}

void usm__registry_store_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&kinds.pool.lock, phase);
    usm__mutex_fork(&kinds.transport.lock, phase);
    usm__mutex_fork(&kinds.codec.lock, phase);
}
