/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The importer's side of shared memory: what this process has open of others.
 *
 *     owner   another process, monitored: its pages of numbers, our claims over them, its areas
 *     area    one of its allocations, mapped once for a context and device
 *     record  one handle: a pointer into an area, counted
 *
 * A handle that was opened before is found by its bytes: then an open is a claim and a look at the
 * owner's page, without a system call.  Records whose count is 0 stay as long as their area does,
 * and the last few areas in which nothing is open stay mapped.
 *
 * Calls to another process, the system or a driver are made without the lock, by one thread an
 * owner at a time (owner.is_busy); records, counts and lists are changed under it.  Objects to be
 * freed are taken out of the lists under the lock, and freed ("buried") without it.
 *
 * Other processes and their pages are in import_owner.c. */
#include "ipc/import.h"

#include "base/fork.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

#include <usm/ipc.h>

#define IDLE_AREAS   16
#define IDLE_RECORDS 1024

/* Short names in this file. */
typedef usm__import_page   page;
typedef usm__import_owner  owner;
typedef usm__import_area   area;
typedef usm__import_record record;
typedef usm__import_doomed doomed;

usm__import_state usm__imports = {
    .lock         = USM__MUTEX_INIT(USM__RANK_IPC, "imports"),
    .changed      = PTHREAD_COND_INITIALIZER,
    .owners       = {&usm__imports.owners, &usm__imports.owners},
    .areas        = {&usm__imports.areas, &usm__imports.areas},
    .idle         = {&usm__imports.idle, &usm__imports.idle},
    .idle_records = {&usm__imports.idle_records, &usm__imports.idle_records}};

static usm__meta_type area_type = USM__META_TYPE(area, sizeof(area), "imported areas");

void usm__import_doomed_init(doomed *d)
{
    usm_list_init(&d->areas);
    usm_list_init(&d->owners);
}

/* ---- tables, under the lock --------------------------------------------------------- */

static usm_list *bucket(usm_list *table, uint64_t key)
{
    usm_list *b = &table[(key * 0x9e3779b97f4a7c15u) >> 54];

    if (!b->next)
        usm_list_init(b);
    return b;
}

/* handle.c knows where a handle's number is in its bytes, and compares it there. */
static record *record_find(const usm_ipc_handle *handle, const usm_context *ctx, size_t index)
{
    usm_list *b = bucket(usm__imports.by_number, usm__ipc_handle_number(handle));

    USM_LIST_FOREACH (it, b) {
        record *r = usm_container_of(it, record, by_number);

        if (memcmp(&r->bytes, handle, sizeof *handle) == 0 && r->area->ctx == ctx &&
            r->area->index == index)
            return r;
    }
    return NULL;
}

/* The record of an open handle. */
static record *record_at(const void *p)
{
    usm_list *b = bucket(usm__imports.by_pointer, (uint64_t)(uintptr_t)p);

    USM_LIST_FOREACH (it, b) {
        record *r = usm_container_of(it, record, by_pointer);

        if (r->p == p && r->count > 0)
            return r;
    }
    return NULL;
}

static void record_free(record *r)
{
    usm_list_remove(&r->of_area);
    usm_list_remove(&r->by_number);
    usm_list_remove(&r->by_pointer);
    if (!usm_list_is_empty(&r->idle))
        usm__imports.nidle_records--;
    usm_list_remove(&r->idle);
    usm__heap_free(r);
}

/* The record's count has become 0: it is kept for another open of its handle. */
static void record_rest(record *r)
{
    usm__imports.opened--;
    usm_list_append(&usm__imports.idle_records, &r->idle);
    if (++usm__imports.nidle_records > IDLE_RECORDS)
        record_free(usm_container_of(usm__imports.idle_records.next, record, idle));
}

static void record_wake(record *r)
{
    usm__imports.opened++;
    usm_list_remove(&r->idle);
    usm__imports.nidle_records--;
}

/* ---- claims ------------------------------------------------------------------------- */

/* Under the lock.  False: the number has gone, and nothing is claimed; the owner may have seen the
 * claim all the same. */
static bool claim(const page *p, uint32_t slot, uint64_t number)
{
    atomic_fetch_add(&p->claims[slot], 1u);
    if (atomic_load(&p->slots[slot].number) == number)
        return true;
    atomic_fetch_sub(&p->claims[slot], 1u);
    return false;
}

/* Under the lock.  True: the owner may be waiting for this, and must be told to look. */
static bool unclaim(const page *p, uint32_t slot, uint64_t number)
{
    atomic_fetch_sub(&p->claims[slot], 1u);
    return atomic_load(&p->slots[slot].number) != number;
}

/* No lock held.  An owner that has ended gets no message. */
static void say_look(const usm__ipc_process *to)
{
    const usm__ipc_word w = {.what = USM__IPC_WORD_LOOK};
    usm__message        message;

    usm__message_save(&message);
    if (usm__ipc_connection(to) != 0)
        (void)usm__ipc_say(to, &w, sizeof w, -1);
    usm__message_restore(&message);
}

static usm_status stale(void)
{
    return usm__fail(USM_E_STALE, "the handle was put, or its block freed: ask the owner for one");
}

usm_status usm__import_gone(const usm__ipc_process *p)
{
    return usm__fail(USM_E_OWNER_GONE, "process %d, the owner of the memory, has ended", p->pid);
}

/* ---- freeing ------------------------------------------------------------------------ */

bool usm__import_area_doom(area *a, doomed *d)
{
    bool is_to_look = false;

    USM_LIST_FOREACH_SAFE (it, tmp, &a->records) {
        record *r = usm_container_of(it, record, of_area);

        if (r->count > 0) {
            is_to_look |= unclaim(r->page, r->m.slot, r->m.number);
            usm__imports.opened--;
        }
        record_free(r);
    }
    if (!usm_list_is_empty(&a->idle))
        usm__imports.nidle--;
    usm_list_remove(&a->idle);
    usm_list_remove(&a->link);
    usm_list_append(&d->areas, &a->link);
    return is_to_look;
}

void usm__import_owner_doom(owner *o, doomed *d)
{
    if (o->nareas > 0 || o->is_busy || o->waiting > 0 || o->is_leaving)
        return;
    o->is_leaving = true;
    usm_list_remove(&o->link);
    usm_list_append(&d->owners, &o->link);
}

static void area_unmap(area *a)
{
    usm_context *ctx  = a->ctx;
    void        *base = a->base;
    usm__message message;

    usm__area_disown(a->mapped);
    usm__message_save(&message);
    if (usm__be_ipc_close(ctx->be, ctx->native, base) != USM_OK)
        usm__warn("%p of another process was not unmapped: %s", base, usm_last_error());
    usm__message_restore(&message);
}

void usm__import_bury(doomed *d, bool all)
{
    usm_list *it;

    while ((it = usm_list_pop(&d->areas)) != NULL) {
        area  *a = usm_container_of(it, area, link);
        owner *o = a->owner;

        area_unmap(a);
        usm__mutex_lock(&usm__imports.lock);
        o->nareas--;
        if (all || o->is_gone)
            usm__import_owner_doom(o, d);
        usm__mutex_unlock(&usm__imports.lock);
        usm__meta_free(&area_type, a);
    }
    while ((it = usm_list_pop(&d->owners)) != NULL)
        usm__import_owner_free(usm_container_of(it, owner, link));
}

/* ---- areas -------------------------------------------------------------------------- */

/* The open block around p.  Pointers of the area that are in none are not known here. */
static usm_status find_block(void *impl, usm_area *view, const void *p, usm_block *block)
{
    const area *a     = impl;
    bool        found = false;

    (void)view;
    usm__mutex_lock(&usm__imports.lock);
    USM_LIST_FOREACH (it, &a->records) {
        const record *r    = usm_container_of(it, record, of_area);
        char         *base = r->p - r->m.offset;

        if (r->count == 0 || (uintptr_t)p - (uintptr_t)base >= r->m.size)
            continue;
        *block = (usm_block){base, (size_t)r->m.size};
        found  = true;
        break;
    }
    usm__mutex_unlock(&usm__imports.lock);
    if (found)
        return USM_OK;
    return usm__fail(USM_E_INVALID_POINTER,
                     "%p lies in memory of another process, but in no block that is open", p);
}

static const usm_pool_ops imported_ops = {.abi         = USM_MODULE_ABI,
                                          .struct_size = sizeof(usm_pool_ops),
                                          .name        = "imported",
                                          .block       = find_block};

/* Under the lock. */
static area *area_find(const owner *o, const usm__ipc_memory *m, const usm_context *ctx,
                       size_t index)
{
    USM_LIST_FOREACH (it, &usm__imports.areas) {
        area *a = usm_container_of(it, area, link);

        if (a->owner == o && a->id == m->area_id && a->nonce == m->area_nonce && a->ctx == ctx &&
            a->index == index)
            return a;
    }
    return NULL;
}

/* Fails with the reason why the memory cannot be opened. */
static usm_status refused(const owner *o, usm_status st)
{
    char why[512];

    if (st != USM_E_INVALID)
        return st;
    (void)snprintf(why, sizeof why, "%s", usm_last_error());
    if (!usm__ipc_is_alive(&o->process))
        return usm__import_gone(&o->process);
    return usm__fail(USM_E_HANDLE, "the memory of process %d does not open: %s", o->process.pid,
                     why);
}

/* is_busy set, no lock held. */
static usm_status area_map(const owner *o, const usm__ipc_memory *m, area *a)
{
    const usm__ipc_name name  = {.owner = o->process, .id = m->area_id, .nonce = m->area_nonce};
    const usm__backend *be    = a->ctx->be;
    usm_device         *dev   = a->ctx->devices[a->index].dev;
    usm_backend_ipc     given = {
            .is_writable = (m->flags & USM__IPC_WRITABLE) != 0, .size = (size_t)m->area_size, .fd = -1};
    int        fd   = -1;
    void      *base = NULL;
    usm_status st   = usm__ipc_fetch(&name, &fd, given.bytes, sizeof given.bytes);

    if (st != USM_OK)
        return st;
    given.fd = m->flags & USM__IPC_NO_FD ? -1 : fd;
    st       = usm__be_ipc_open(be, a->ctx->native, dev->desc.handle, &given, &base);
    (void)usm__os_close(fd);
    if (st != USM_OK)
        return refused(o, st);
    st = usm__area_adopt(a->ctx, a->index, (usm_kind)m->kind, &imported_ops, a,
                         (usm_area){base, (size_t)m->area_size, NULL}, &a->mapped);
    if (st != USM_OK) {
        (void)usm__be_ipc_close(be, a->ctx->native, base);
        return st;
    }
    a->base = base;
    return USM_OK;
}

/* is_busy set.  The area is not in usm__imports.idle yet though nothing of it is open: the caller
 * opens something. */
static usm_status area_get(owner *o, const usm__ipc_memory *m, usm_context *ctx, size_t index,
                           area **out)
{
    usm_status st;
    area      *a;

    usm__mutex_lock(&usm__imports.lock);
    a = area_find(o, m, ctx, index);
    if (a) {
        a->opens++; /* kept by this count until its record exists */
        if (!usm_list_is_empty(&a->idle)) {
            usm_list_remove(&a->idle);
            usm__imports.nidle--;
        }
    }
    usm__mutex_unlock(&usm__imports.lock);
    *out = a;
    if (a)
        return USM_OK;
    a = usm__meta_alloc(&area_type);
    if (!a)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to open another process's memory");
    usm_list_init(&a->link);
    usm_list_init(&a->idle);
    usm_list_init(&a->records);
    a->owner = o;
    a->ctx   = ctx;
    a->index = index;
    a->id    = m->area_id;
    a->nonce = m->area_nonce;
    a->opens = 1;
    st       = area_map(o, m, a);
    if (st != USM_OK) {
        usm__meta_free(&area_type, a);
        return st;
    }
    usm__mutex_lock(&usm__imports.lock);
    usm_list_append(&usm__imports.areas, &a->link);
    o->nareas++;
    usm__mutex_unlock(&usm__imports.lock);
    *out = a;
    return USM_OK;
}

/* Under the lock: one open less.  The area that has been idle longest may be freed. */
static void area_release(area *a, doomed *d)
{
    if (--a->opens > 0)
        return;
    if (a->owner->is_gone) {
        (void)usm__import_area_doom(a, d);
        return;
    }
    usm_list_append(&usm__imports.idle, &a->idle);
    if (++usm__imports.nidle > IDLE_AREAS)
        (void)usm__import_area_doom(usm_container_of(usm__imports.idle.next, area, idle), d);
}

/* ---- opening ------------------------------------------------------------------------ */

usm_status usm__ipc_import_again(const usm_ipc_handle *handle, usm_context *ctx, size_t index,
                                 void **p)
{
    usm__ipc_process process  = {.pid = 0};
    bool             is_stale = false;
    usm_status       st       = USM_E_NOT_READY;
    record          *r;

    usm__mutex_lock(&usm__imports.lock);
    r = record_find(handle, ctx, index);
    if (r && r->area->owner->is_gone) {
        st = usm__import_gone(&r->area->owner->process);
    } else if (r && claim(r->page, r->m.slot, r->m.number)) {
        if (r->count++ == 0)
            record_wake(r);
        if (r->area->opens++ == 0) {
            usm_list_remove(&r->area->idle);
            usm__imports.nidle--;
        }
        usm__imports.opens++;
        usm__imports.hits++;
        *p = r->p;
        st = USM_OK;
    } else if (r) {
        process  = r->area->owner->process;
        is_stale = true;
        st       = stale();
        if (r->count == 0)
            record_free(r);
    }
    usm__mutex_unlock(&usm__imports.lock);
    if (is_stale)
        say_look(&process);
    return st;
}

/* Under the lock. */
static void record_enter(record *r, const usm_ipc_handle *handle, const usm__ipc_memory *m, area *a,
                         page *pg)
{
    r->bytes = *handle;
    r->m     = *m;
    r->area  = a;
    r->page  = pg;
    r->p     = a->base + m->block + m->offset;
    r->count = 1;
    usm_list_init(&r->idle);
    usm_list_append(&a->records, &r->of_area);
    usm_list_append(bucket(usm__imports.by_number, m->number), &r->by_number);
    usm_list_append(bucket(usm__imports.by_pointer, (uint64_t)(uintptr_t)r->p), &r->by_pointer);
    usm__imports.opened++;
    usm__imports.opens++;
}

/* is_busy set.  The claim comes first: from then on neither block nor area are freed. */
static usm_status open_new(owner *o, const usm_ipc_handle *handle, const usm__ipc_memory *m,
                           usm_context *ctx, size_t index, void **p)
{
    record    *r  = usm__heap_alloc(sizeof *r);
    page      *pg = NULL;
    area      *a  = NULL;
    bool       is_claimed;
    usm_status st;

    if (!r)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to open another process's memory");
    st = usm__import_page_get(o, m, &pg);
    if (st != USM_OK)
        goto err_record;
    usm__mutex_lock(&usm__imports.lock);
    is_claimed = claim(pg, m->slot, m->number);
    usm__mutex_unlock(&usm__imports.lock);
    st = is_claimed ? area_get(o, m, ctx, index, &a) : stale();
    if (st != USM_OK)
        goto err_claim;
    usm__mutex_lock(&usm__imports.lock);
    usm__imports.hits += a->records.next != &a->records;
    record_enter(r, handle, m, a, pg);
    *p = r->p;
    usm__mutex_unlock(&usm__imports.lock);
    return USM_OK;

err_claim:
    if (is_claimed) {
        usm__mutex_lock(&usm__imports.lock);
        (void)unclaim(pg, m->slot, m->number);
        usm__mutex_unlock(&usm__imports.lock);
    }
    say_look(&o->process);
err_record:
    usm__heap_free(r);
    return st;
}

usm_status usm__ipc_import(const usm_ipc_handle *handle, const usm__ipc_memory *m, usm_context *ctx,
                           size_t index, void **p)
{
    owner     *o;
    usm_status st;

    if (m->slot >= USM__IPC_SLOTS)
        return usm__fail(USM_E_HANDLE, "the handle names no slot of a page");
    o = usm__import_owner_enter(&m->owner);
    if (!o)
        return USM_E_NO_MEMORY;
    st = usm__import_owner_watch(o);
    if (st == USM_OK) /* another thread may have been faster */
        st = usm__ipc_import_again(handle, ctx, index, p);
    if (st == USM_E_NOT_READY)
        st = open_new(o, handle, m, ctx, index, p);
    usm__import_owner_leave(o);
    return st;
}

/* ---- closing, queries --------------------------------------------------------------- */

usm_status usm__ipc_import_close(void *p, const usm_context *ctx)
{
    usm__ipc_process process = {.pid = 0};
    bool             is_to_look;
    usm_status       st = USM_OK;
    record          *r;
    area            *a;
    doomed           d;

    usm__import_doomed_init(&d);
    usm__mutex_lock(&usm__imports.lock);
    r = record_at(p);
    if (!r)
        st = USM_E_NOT_READY;
    else if (ctx && r->area->ctx != ctx)
        st = usm__fail(USM_E_WRONG_CONTEXT, "%p was opened in another context", p);
    if (st != USM_OK) {
        usm__mutex_unlock(&usm__imports.lock);
        return st;
    }
    a          = r->area; /* r may be freed once its count is 0 */
    process    = a->owner->process;
    is_to_look = unclaim(r->page, r->m.slot, r->m.number) && !r->area->owner->is_gone;
    if (--r->count == 0)
        record_rest(r);
    area_release(a, &d);
    usm__mutex_unlock(&usm__imports.lock);
    usm__import_bury(&d, false);
    if (is_to_look)
        say_look(&process);
    return USM_OK;
}

bool usm__ipc_import_query(const void *p, usm_ipc_info *info)
{
    const record *r;
    uint32_t      opens = 0;

    usm__mutex_lock(&usm__imports.lock);
    r = record_at(p);
    if (r) {
        USM_LIST_FOREACH (it, &r->area->records) {
            const record *other = usm_container_of(it, record, of_area);

            opens += other->p == p ? other->count : 0;
        }
        *info = (usm_ipc_info){.struct_size = info->struct_size,
                               .owner       = r->m.owner.pid,
                               .is_alive    = !r->area->owner->is_gone,
                               .is_writable = (r->m.flags & USM__IPC_WRITABLE) != 0,
                               .size        = (size_t)(r->m.size - r->m.offset),
                               .opens       = opens};
    }
    usm__mutex_unlock(&usm__imports.lock);
    return r != NULL;
}

void usm__ipc_import_stats(usm_ipc_stats *stats)
{
    usm__mutex_lock(&usm__imports.lock);
    stats->opened = usm__imports.opened;
    stats->cached = usm__imports.nidle;
    stats->opens  = usm__imports.opens;
    stats->hits   = usm__imports.hits;
    usm__mutex_unlock(&usm__imports.lock);
}

void usm_ipc_trim(void)
{
    doomed d;

    usm__import_doomed_init(&d);
    usm__mutex_lock(&usm__imports.lock);
    USM_LIST_FOREACH_SAFE (it, tmp, &usm__imports.idle)
        (void)usm__import_area_doom(usm_container_of(it, area, idle), &d);
    USM_LIST_FOREACH_SAFE (it, tmp, &usm__imports.owners)
        usm__import_owner_doom(usm_container_of(it, owner, link), &d);
    usm__mutex_unlock(&usm__imports.lock);
    usm__import_bury(&d, true);
}

void usm__ipc_import_context_end(usm_context *ctx)
{
    usm_list *again = NULL;
    doomed    d;

    usm__import_doomed_init(&d);
    usm__mutex_lock(&usm__imports.lock);
    USM_LIST_FOREACH_SAFE (it, tmp, &usm__imports.areas) {
        area                  *a       = usm_container_of(it, area, link);
        const usm__ipc_process process = a->owner->process;

        if (a->ctx != ctx || !usm__import_area_doom(a, &d))
            continue;
        usm__mutex_unlock(&usm__imports.lock);
        say_look(&process);
        usm__mutex_lock(&usm__imports.lock);
        again = it;
        break;
    }
    usm__mutex_unlock(&usm__imports.lock);
    usm__import_bury(&d, false);
    if (again) /* the list has changed meanwhile */
        usm__ipc_import_context_end(ctx);
}

/* ---- fork ----------------------------------------------------------------------------- */

/* The mappings stay in the child, but it forgets them: the claims are its parent's. */
static void forget(void)
{
    USM_LIST_FOREACH (it, &usm__imports.owners) {
        owner *o = usm_container_of(it, owner, link);

        USM_LIST_FOREACH (of, &o->pages) {
            page *p = usm_container_of(of, page, link);

            (void)usm__os_close(p->fd);
            p->fd = -1;
        }
    }
    usm_list_init(&usm__imports.owners);
    usm_list_init(&usm__imports.areas);
    usm_list_init(&usm__imports.idle);
    usm_list_init(&usm__imports.idle_records);
    for (size_t i = 0; i < USM__IMPORT_BUCKETS; i++) {
        usm_list_init(&usm__imports.by_number[i]);
        usm_list_init(&usm__imports.by_pointer[i]);
    }
    usm__imports.nidle = usm__imports.nidle_records = 0;
    usm__imports.opened = usm__imports.opens = usm__imports.hits = 0;
}

void usm__ipc_import_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&usm__imports.lock, phase);
    if (phase == USM_FORK_CHILD) {
        usm__imports.changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
        forget();
    }
}
