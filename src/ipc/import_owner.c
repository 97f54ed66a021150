/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The importer's side of shared memory: owners, which are monitored, and their pages of numbers
 * with our claims over them.  One thread an owner at a time sends it requests (is_busy).  Called by
 * import.c. */
#include "ipc/import.h"

#include "base/os.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* Short names in this file. */
typedef usm__import_page   page;
typedef usm__import_owner  owner;
typedef usm__import_area   area;
typedef usm__import_doomed doomed;

/* ---- ends ---- */

static void page_free(page *p)
{
    if (p->slots)
        (void)usm__os_unmap((void *)(uintptr_t)p->slots, USM__IPC_NUMBERS_SIZE);
    if (p->claims)
        (void)usm__os_unmap(p->claims, USM__IPC_CLAIMS_SIZE);
    if (p->fd >= 0)
        (void)usm__os_close(p->fd);
    usm__heap_free(p);
}

void usm__import_owner_free(owner *o)
{
    usm_list *it;

    if (o->is_watched)
        usm__ipc_watch_stop(&o->watch);
    while ((it = usm_list_pop(&o->pages)) != NULL)
        page_free(usm_container_of(it, page, link));
    usm__heap_free(o);
}

/* ---- owners ------------------------------------------------------------------------- */

/* On the service's thread. */
static void owner_ended(usm__ipc_watch *w)
{
    owner                 *o       = usm_container_of(w, owner, watch);
    const usm__ipc_process process = o->process;
    bool                   is_open = false;
    doomed                 d;

    usm__import_doomed_init(&d);
    usm__mutex_lock(&usm__imports.lock);
    o->is_gone = true;
    USM_LIST_FOREACH_SAFE (it, tmp, &usm__imports.areas) {
        area *a = usm_container_of(it, area, link);

        if (a->owner != o)
            continue;
        is_open |= a->opens > 0;
        if (a->opens == 0)
            (void)usm__import_area_doom(a, &d);
    }
    usm__import_owner_doom(o, &d);
    usm__mutex_unlock(&usm__imports.lock);
    usm__import_bury(&d, false);
    if (is_open)
        usm__ipc_notify_loss(&process, USM_IPC_OWNER);
}

/* Under the lock. */
static owner *owner_find(const usm__ipc_process *p)
{
    USM_LIST_FOREACH (it, &usm__imports.owners) {
        owner *o = usm_container_of(it, owner, link);

        if (o->process.pid == p->pid && o->process.start == p->start &&
            o->process.secret == p->secret)
            return o;
    }
    return NULL;
}

owner *usm__import_owner_enter(const usm__ipc_process *p)
{
    owner *fresh = usm__heap_alloc(sizeof *fresh);
    owner *o;

    if (!fresh) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory to open another process's memory");
        return NULL;
    }
    usm__mutex_lock(&usm__imports.lock);
    o = owner_find(p);
    if (!o) {
        o     = fresh;
        fresh = NULL;

        o->process = *p;
        usm_list_init(&o->pages);
        usm_list_append(&usm__imports.owners, &o->link);
    }
    o->waiting++;
    while (o->is_busy)
        (void)usm__mutex_wait(&usm__imports.lock, &usm__imports.changed, NULL);
    o->waiting--;
    o->is_busy = true;
    usm__mutex_unlock(&usm__imports.lock);
    usm__heap_free(fresh);
    return o;
}

void usm__import_owner_leave(owner *o)
{
    doomed d;

    usm__import_doomed_init(&d);
    usm__mutex_lock(&usm__imports.lock);
    o->is_busy = false;
    (void)pthread_cond_broadcast(&usm__imports.changed);
    if (!o->is_watched || o->is_gone)
        usm__import_owner_doom(o, &d);
    usm__mutex_unlock(&usm__imports.lock);
    usm__quietly(usm__import_bury(&d, false));
}

usm_status usm__import_owner_watch(owner *o)
{
    usm__ipc_process self;
    usm_status       st = usm__ipc_self(&self);

    if (st == USM_OK && self.uid != o->process.uid)
        st = usm__fail(USM_E_PERMISSION,
                       "process %d, the owner, is of user %u, and this one of user %u: run both as "
                       "one user",
                       o->process.pid, o->process.uid, self.uid);
    if (st != USM_OK || o->is_watched)
        return st;
    o->watch = (usm__ipc_watch){.fn = owner_ended, .process = o->process};
    st       = usm__ipc_watch_start(&o->watch);
    if (st == USM_OK)
        o->is_watched = true;
    return st;
}

/* ---- pages -------------------------------------------------------------------------- */

static usm_status cannot_map(const usm__ipc_process *p)
{
    return usm__fail(USM_E_SYSTEM, "what process %d shares cannot be mapped: %s", p->pid,
                     strerror(errno)); /* NOLINT(concurrency-mt-unsafe): glibc's is safe */
}

/* Sends the owner our page of claims, before anything is claimed that it has not seen.  is_busy
 * set. */
static usm_status introduce(const owner *o, const page *p)
{
    const usm__ipc_word w = {.what = USM__IPC_WORD_CLAIMS, .page = p->id};

    return usm__ipc_ask(&o->process, &w, sizeof w, p->fd);
}

/* is_busy set. */
static usm_status introduce_again(owner *o)
{
    usm_status st = USM_OK;

    if (o->connection != 0 && usm__ipc_connection(&o->process) == o->connection)
        return USM_OK;
    USM_LIST_FOREACH (it, &o->pages)
        if (st == USM_OK)
            st = introduce(o, usm_container_of(it, page, link));
    if (st == USM_OK)
        o->connection = usm__ipc_connection(&o->process);
    return st;
}

static page *page_make(const usm__ipc_memory *m)
{
    page *p = usm__heap_alloc(sizeof *p);

    if (!p)
        return NULL;
    p->id    = m->page_id;
    p->nonce = m->page_nonce;
    p->fd    = usm__os_memfd_sealable("usm-ipc-claims", USM__IPC_CLAIMS_SIZE);
    if (p->fd >= 0)
        p->claims = usm__os_map_fd(NULL, USM__IPC_CLAIMS_SIZE, PROT_READ | PROT_WRITE, p->fd);
    if (!p->claims || usm__os_seal(p->fd, true) != 0) {
        page_free(p);
        return NULL;
    }
    usm__os_keep_from_children(p->claims, USM__IPC_CLAIMS_SIZE);
    return p;
}

static usm_status page_fetch(const owner *o, page *p)
{
    const usm__ipc_name name = {.owner = o->process, .id = p->id, .nonce = p->nonce};
    int                 fd   = -1;
    usm_status          st   = usm__ipc_fetch(&name, &fd, NULL, 0);

    if (st != USM_OK)
        return st;
    if (!usm__os_is_fixed(fd, USM__IPC_NUMBERS_SIZE))
        st = usm__fail(USM_E_HANDLE, "the handle names no page of numbers of process %d",
                       o->process.pid);
    else if ((p->slots = usm__os_map_fd_read_only(USM__IPC_NUMBERS_SIZE, fd)) == NULL)
        st = cannot_map(&o->process);
    (void)usm__os_close(fd);
    return st;
}

usm_status usm__import_page_get(owner *o, const usm__ipc_memory *m, page **out)
{
    page      *p  = NULL;
    usm_status st = introduce_again(o);

    if (st != USM_OK)
        return st;
    USM_LIST_FOREACH (it, &o->pages)
        if (usm_container_of(it, page, link)->id == m->page_id &&
            usm_container_of(it, page, link)->nonce == m->page_nonce)
            p = usm_container_of(it, page, link);
    if (!p) {
        p = page_make(m);
        if (!p)
            return cannot_map(&o->process);
        st = introduce(o, p);
        if (st == USM_OK)
            st = page_fetch(o, p);
        if (st != USM_OK) {
            page_free(p);
            return st;
        }
        if (o->connection == 0)
            o->connection = usm__ipc_connection(&o->process);
        usm__mutex_lock(&usm__imports.lock);
        usm_list_append(&o->pages, &p->link);
        usm__mutex_unlock(&usm__imports.lock);
    }
    *out = p;
    return USM_OK;
}
