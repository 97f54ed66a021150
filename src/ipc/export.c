/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The owner's side of shared memory: handles.  An area is shared once, when a handle of one of its
 * blocks is first made (usm__area.shared); each handle has a slot of its own, whose number it
 * contains.  export_block.c handles blocks that are freed while other processes have them open.
 *
 * No lock is held while a driver is called. */
#include "ipc/export.h"

#include "base/log.h"
#include "base/os.h"
#include "device/init.h"

#include <stdio.h>
#include <string.h>

#include <usm/ipc.h>

/* Short names in this file. */
typedef usm__own_page  page;
typedef usm__own_slot  slot;
typedef usm__own_block block;

typedef struct shared {
    usm__ipc_name   name;
    usm_backend_ipc native;
    unsigned        generation; /* number of forks                                        */
} shared;

/* ---- areas -------------------------------------------------------------------------- */

static void share_end(const usm__area *a, shared *s)
{
    usm__ipc_unshare(&s->name);
    if (s->generation == usm__fork_generation() &&
        usm__be_ipc_put(a->ctx->be, a->ctx->native, &s->native) != USM_OK)
        usm__warn("a handle of %p was not given back to the driver: %s", a->driver_base,
                  usm_last_error());
    usm__heap_free(s);
}

static usm_status cannot_export(const usm__area *a)
{
    char why[256];

    (void)snprintf(why, sizeof why, "%s", usm_last_error());
    return usm__fail(USM_E_NOT_EXPORTABLE, "%s memory of %s cannot be opened by others: %s",
                     usm__kind_name(a->kind), a->dev->term, why);
}

/* No lock held: it calls the driver. */
static usm_status share(usm__area *a, shared **out)
{
    shared    *s = usm__heap_alloc(sizeof *s);
    usm_status st;
    int        fd;

    if (!s)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to share an area");
    st = usm__be_ipc_get(a->ctx->be, a->ctx->native, a->driver_base, &s->native);
    if (st == USM_E_NOT_SUPPORTED || st == USM_E_INVALID)
        st = cannot_export(a);
    if (st != USM_OK)
        goto err_shared;
    s->generation = usm__fork_generation();
    fd            = s->native.fd;
    if (fd < 0) /* only the driver's bytes name the area: any descriptor will do */
        fd = usm__os_memfd_sealable("usm-ipc-none", 0);
    st = fd < 0 ? usm__fail(USM_E_SYSTEM, "no descriptor is free")
                : usm__ipc_share(fd, s->native.bytes, sizeof s->native.bytes, &s->name);
    if (fd >= 0 && s->native.fd < 0)
        (void)usm__os_close(fd);
    if (st != USM_OK)
        goto err_native;
    *out = s;
    return USM_OK;

err_native:
    (void)usm__be_ipc_put(a->ctx->be, a->ctx->native, &s->native);
err_shared:
    usm__heap_free(s);
    return st;
}

static usm_status share_once(usm__area *a)
{
    shared    *s = NULL;
    bool       is_shared;
    usm_status st;

    usm__mutex_lock(&usm__own.lock);
    is_shared = a->shared != NULL;
    usm__mutex_unlock(&usm__own.lock);
    if (is_shared)
        return USM_OK;
    st = share(a, &s);
    if (st != USM_OK)
        return st;
    usm__mutex_lock(&usm__own.lock);
    if (!a->shared) {
        a->shared = s;
        s         = NULL;
    }
    usm__mutex_unlock(&usm__own.lock);
    if (s) /* another thread was faster */
        share_end(a, s);
    return USM_OK;
}

/* ---- handles ------------------------------------------------------------------------ */

static usm_status check_exportable(const usm__area *a, const void *p)
{
    if (a->pool->is_imported)
        return usm__fail(USM_E_IMPORTED,
                         "%p was opened from another process: its owner makes handles of it", p);
    if (usm__pool_is_inert(a->pool))
        return usm__fail(USM_E_FORKED, "%p was allocated before fork()", p);
    if (!usm__backend_can(a->ctx->be, USM_CAP_IPC))
        return usm__fail(USM_E_NOT_EXPORTABLE,
                         "%s lacks the aspect: backend %s has no memory that other processes can "
                         "open; the backends host and level_zero have",
                         a->dev->term, a->ctx->be->name);
    if (a->pool->export_mode == USM_POOL_PRIVATE)
        return usm__fail(USM_E_NOT_EXPORTABLE,
                         "the pool of %p is private: allocate from a pool made with "
                         "usm_pool_desc.export_mode = USM_POOL_EXPORT_RW",
                         p);
    return USM_OK;
}

/* The record of the block, created with its first handle; NULL: out of memory.  Under the lock. */
static block *block_of(usm__area *a, const usm_block *found)
{
    block *b = usm__own_block_find(found->base);

    if (b)
        return b;
    b = usm__heap_alloc(sizeof *b);
    if (!b)
        return NULL;
    b->area = a;
    b->pool = a->pool;
    b->base = found->base;
    b->size = found->size;
    usm_list_init(&b->slots);
    usm_list_append(usm__own_bucket(b->base), &b->link);
    return b;
}

/* Under the lock; pre: the first page has a free slot. */
static slot *slot_new(block *b, uint64_t number)
{
    page *p = usm_container_of(usm__own.pages.next, page, link);
    slot *s = usm__heap_alloc(sizeof *s);

    if (!s)
        return NULL;
    s->page         = p;
    s->block        = b;
    s->index        = p->free[--p->nfree];
    s->number       = number;
    p->of[s->index] = s;
    usm_list_append(&b->slots, &s->link);
    atomic_store(&p->slots[s->index].generation, atomic_load(&p->slots[s->index].generation) + 1);
    atomic_store(&p->slots[s->index].number, number);
    usm__own.handles++;
    return s;
}

/* Under the lock. */
static void describe(usm__ipc_memory *m, const usm__area *a, const block *b, const slot *s)
{
    const shared *sh = a->shared;

    *m = (usm__ipc_memory){
        .owner      = sh->name.owner,
        .area_id    = sh->name.id,
        .area_nonce = sh->name.nonce,
        .area_size  = a->driver_size,
        .page_id    = s->page->name.id,
        .page_nonce = s->page->name.nonce,
        .number     = s->number,
        .generation = atomic_load(&s->page->slots[s->index].generation),
        .block      = (uint64_t)(b->base - (char *)a->driver_base),
        .size       = b->size,
        .offset     = s->offset,
        .slot       = s->index,
        .kind       = (uint16_t)a->kind,
        .flags = (uint16_t)((a->pool->export_mode == USM_POOL_EXPORT_RW ? USM__IPC_WRITABLE : 0u) |
                            (sh->native.fd < 0 ? USM__IPC_NO_FD : 0u)),
    };
    (void)snprintf(m->backend, sizeof m->backend, "%s", a->ctx->be->name);
}

static usm_status make_handle(usm__area *a, const void *p, const usm_block *found,
                              usm_ipc_handle *handle)
{
    usm__ipc_memory m;
    uint64_t        number = 0;
    usm_status      st     = USM_OK;
    block          *b;
    slot           *s = NULL;

    while (number == 0)
        if (usm__os_random(&number, sizeof number) != 0)
            return usm__fail(USM_E_SYSTEM, "no random numbers for a handle");
    while (!s && st == USM_OK) {
        st = usm__own_page_ready();
        if (st != USM_OK)
            return st;
        usm__mutex_lock(&usm__own.lock);
        if (usm_container_of(usm__own.pages.next, page, link)->nfree >
            0) { /* no other thread was faster */
            b = block_of(a, found);
            s = b ? slot_new(b, number) : NULL;
            if (s) {
                s->offset = (uint64_t)((const char *)p - b->base);
                describe(&m, a, b, s);
            } else {
                st = usm__fail(USM_E_NO_MEMORY, "no host memory for a handle");
            }
        }
        usm__mutex_unlock(&usm__own.lock);
    }
    if (st == USM_OK)
        usm__ipc_handle_encode(&m, handle);
    return st;
}

usm_status usm_ipc_get(const void *p, usm_context *ctx, usm_ipc_handle *handle)
{
    usm__area       *a = p ? usm__map_find(p) : NULL;
    usm__ipc_process self;
    usm_block        found;
    usm_status       st = USM_OK;

    if (!handle)
        return usm__fail(USM_E_INVALID, "usm_ipc_get: handle is NULL");
    if (ctx && usm__handle_check(ctx, USM__MAGIC_CONTEXT) != USM_OK)
        return USM_E_INVALID_HANDLE;
    if (!a || usm__context_is_ended(a->ctx))
        return usm__fail(USM_E_INVALID_POINTER, "%p is not libusm memory%s", p,
                         p && usm__freed_recently(p) ? " any more: it was freed" : "");
    if (ctx && a->ctx != ctx)
        return usm__fail(USM_E_WRONG_CONTEXT, "%p belongs to another context", p);
    st = check_exportable(a, p);
    if (st == USM_OK)
        st = usm__pool_block(a, p, &found);
    if (st == USM_OK)
        st = usm__ipc_self(&self);
    if (st == USM_OK)
        st = share_once(a);
    if (st != USM_OK)
        return st;
    usm__ipc_listen(&usm__own_ear);
    return make_handle(a, p, &found, handle);
}

/* Under the lock; NULL: the handle has ended. */
static slot *slot_find(const usm__ipc_memory *m)
{
    USM_LIST_FOREACH (it, &usm__own.pages) {
        page *p = usm_container_of(it, page, link);

        if (p->name.id == m->page_id && p->name.nonce == m->page_nonce && m->slot < USM__IPC_SLOTS)
            return p->of[m->slot] && p->of[m->slot]->number == m->number ? p->of[m->slot] : NULL;
    }
    return NULL;
}

static usm_status stale(void)
{
    return usm__fail(USM_E_STALE, "the handle was put, or its block freed");
}

usm_status usm_ipc_put(const usm_ipc_handle *handle, usm_context *ctx)
{
    usm__ipc_memory m;
    usm_status      st;
    slot           *s;

    if (!handle)
        return usm__fail(USM_E_INVALID, "usm_ipc_put: handle is NULL");
    if (ctx && usm__handle_check(ctx, USM__MAGIC_CONTEXT) != USM_OK)
        return USM_E_INVALID_HANDLE;
    st = usm__ipc_handle_decode(handle, &m);
    if (st != USM_OK)
        return st;
    if (!usm__ipc_is_self(&m.owner))
        return usm__fail(USM_E_HANDLE, "the handle is of process %d: its owner puts it",
                         m.owner.pid);
    usm__mutex_lock(&usm__own.lock);
    s = slot_find(&m);
    if (s) {
        block *b = s->block;

        usm__own_slot_end(s);
        usm__own_slots_sweep(&b->slots);
        if (usm_list_is_empty(&b->slots))
            usm__own_block_drop(b);
    }
    usm__mutex_unlock(&usm__own.lock);
    return s ? USM_OK : stale();
}

/* ---- handles opened in their own process -------------------------------------------- */

usm_status usm__ipc_own_open(const usm__ipc_memory *m, usm_context *ctx, void **p)
{
    usm_status st = USM_OK;
    slot      *s;

    usm__mutex_lock(&usm__own.lock);
    s = slot_find(m);
    if (!s)
        st = stale();
    else if (s->block->area->ctx != ctx)
        st = usm__fail(USM_E_WRONG_CONTEXT,
                       "the memory is this process's own, in another context: open it in that one");
    if (st == USM_OK) {
        s->opens++;
        usm__own.opened++;
        *p = s->block->base + s->offset;
    }
    usm__mutex_unlock(&usm__own.lock);
    return st;
}

/* Under the lock. */
static slot *opened_at(const void *p, uint32_t *opens)
{
    slot *found = NULL;

    *opens = 0;
    USM_LIST_FOREACH (it, &usm__own.pages)
        for (uint32_t i = 0; i < USM__IPC_SLOTS && usm__own.opened > 0; i++) {
            slot *s = usm_container_of(it, page, link)->of[i];

            if (!s || s->opens == 0 || !s->block || s->block->base + s->offset != p)
                continue;
            *opens += s->opens;
            found = s;
        }
    return found;
}

usm_status usm__ipc_own_close(void *p)
{
    uint32_t opens;
    slot    *s;

    usm__mutex_lock(&usm__own.lock);
    s = opened_at(p, &opens);
    if (s) {
        s->opens--;
        usm__own.opened--;
    }
    usm__mutex_unlock(&usm__own.lock);
    if (!s)
        return USM_E_NOT_READY;
    usm__own_look();
    return USM_OK;
}

bool usm__ipc_own_query(const void *p, usm_ipc_info *info)
{
    usm__ipc_process self = {.pid = 0};
    uint32_t         opens;
    slot            *s;

    usm__mutex_lock(&usm__own.lock);
    s = opened_at(p, &opens);
    if (s) {
        *info = (usm_ipc_info){.struct_size = info->struct_size,
                               .is_alive    = true,
                               .is_ours     = true,
                               .is_writable = true,
                               .size        = s->block->size - s->offset,
                               .opens       = opens};
        self  = s->page->name.owner;
    }
    usm__mutex_unlock(&usm__own.lock);
    if (s)
        info->owner = self.pid;
    return s != NULL;
}

void usm__ipc_own_stats(usm_ipc_stats *stats)
{
    usm__mutex_lock(&usm__own.lock);
    stats->handles  = usm__own.handles;
    stats->deferred = usm__own.deferred;
    usm__mutex_unlock(&usm__own.lock);
}

void usm__own_area_gone(usm__area *area)
{
    shared *s;

    usm__mutex_lock(&usm__own.lock);
    s            = area->shared;
    area->shared = NULL;
    usm__mutex_unlock(&usm__own.lock);
    if (s)
        share_end(area, s);
}
