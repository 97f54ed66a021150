/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The owner's side of shared memory: pages of numbers, claims of importers, and blocks whose free
 * is postponed. export.c has the handles themselves.
 *
 * The service's thread calls this with messages of importers, and when they end, and frees the
 * postponed blocks; the end of a pool waits for that.  No lock is held while a block is freed.  A
 * forked child has none of this: the handles are its parent's. */
#include "ipc/export.h"

#include "base/fork.h"
#include "base/log.h"
#include "base/os.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* Short names in this file. */
typedef usm__own_page   page;
typedef usm__own_slot   slot;
typedef usm__own_block  block;
typedef usm__own_claims claims;

usm__own_state usm__own = {.lock    = USM__MUTEX_INIT(USM__RANK_IPC, "exports"),
                           .freed   = PTHREAD_COND_INITIALIZER,
                           .pages   = {&usm__own.pages, &usm__own.pages},
                           .claims  = {&usm__own.claims, &usm__own.claims},
                           .retired = {&usm__own.retired, &usm__own.retired},
                           .freeing = {&usm__own.freeing, &usm__own.freeing}};

/* ---- pages and slots, under the lock ------------------------------------------------ */

static bool is_claimed(const slot *s)
{
    if (s->opens > 0)
        return true;
    USM_LIST_FOREACH (it, &usm__own.claims) {
        const claims *c = usm_container_of(it, claims, link);

        if (c->page == s->page->name.id && atomic_load(&c->claim[s->index]) != 0)
            return true;
    }
    return false;
}

static bool any_claimed(const block *b)
{
    USM_LIST_FOREACH (it, &b->slots)
        if (is_claimed(usm_container_of(it, slot, link)))
            return true;
    return false;
}

void usm__own_slot_end(slot *s)
{
    if (s->number == 0)
        return;
    atomic_store(&s->page->slots[s->index].number, (uint64_t)0);
    s->number = 0;
    usm__own.handles--;
}

/* pre: the handle ended, and no importer claims the slot. */
static void slot_free(slot *s)
{
    usm_list_remove(&s->link);
    s->page->of[s->index]           = NULL;
    s->page->free[s->page->nfree++] = s->index;
    usm__heap_free(s);
}

void usm__own_slots_sweep(usm_list *list)
{
    USM_LIST_FOREACH_SAFE (it, tmp, list) {
        slot *s = usm_container_of(it, slot, link);

        if (s->number == 0 && !is_claimed(s))
            slot_free(s);
    }
}

static void page_free(page *p)
{
    usm__ipc_unshare(&p->name);
    if (p->slots)
        (void)usm__os_unmap(p->slots, USM__IPC_NUMBERS_SIZE);
    usm__heap_free(p);
}

/* No lock held. */
static usm_status page_make(page **out)
{
    page      *p  = usm__heap_alloc(sizeof *p);
    int        fd = p ? usm__os_memfd_sealable("usm-ipc-numbers", USM__IPC_NUMBERS_SIZE) : -1;
    usm_status st = USM_OK;

    if (fd >= 0)
        p->slots = usm__os_map_fd(NULL, USM__IPC_NUMBERS_SIZE, PROT_READ | PROT_WRITE, fd);
    if (!p || fd < 0 || !p->slots || usm__os_seal(fd, true) != 0) {
        st = usm__fail(USM_E_SYSTEM, "no page for handles: %s",
                       strerror(errno)); /* NOLINT(concurrency-mt-unsafe): glibc's is safe */
        goto err_page;
    }
    usm__os_keep_from_children(p->slots, USM__IPC_NUMBERS_SIZE);
    st = usm__ipc_share(fd, NULL, 0, &p->name);
    if (st != USM_OK)
        goto err_page;
    (void)usm__os_close(fd);
    for (uint32_t i = 0; i < USM__IPC_SLOTS; i++)
        p->free[p->nfree++] = USM__IPC_SLOTS - 1 - i;
    *out = p;
    return USM_OK;

err_page:
    if (fd >= 0)
        (void)usm__os_close(fd);
    if (p)
        page_free(p);
    return st;
}

usm_status usm__own_page_ready(void)
{
    page      *fresh = NULL;
    usm_status st    = USM_OK;
    bool       is_ready;

    usm__mutex_lock(&usm__own.lock);
    is_ready = !usm_list_is_empty(&usm__own.pages) &&
               usm_container_of(usm__own.pages.next, page, link)->nfree > 0;
    if (!is_ready)
        usm__own_slots_sweep(&usm__own.retired);
    USM_LIST_FOREACH_SAFE (it, tmp, &usm__own.pages) {
        page *p = usm_container_of(it, page, link);

        if (is_ready || p->nfree == 0)
            continue;
        usm_list_remove(&p->link);
        p->link.next              = usm__own.pages.next;
        p->link.prev              = &usm__own.pages;
        usm__own.pages.next->prev = &p->link;
        usm__own.pages.next       = &p->link;
        is_ready                  = true;
    }
    usm__mutex_unlock(&usm__own.lock);
    if (is_ready)
        return USM_OK;
    st = page_make(&fresh);
    if (st != USM_OK)
        return st;
    usm__mutex_lock(&usm__own.lock);
    fresh->link.next          = usm__own.pages.next;
    fresh->link.prev          = &usm__own.pages;
    usm__own.pages.next->prev = &fresh->link;
    usm__own.pages.next       = &fresh->link;
    usm__mutex_unlock(&usm__own.lock);
    return USM_OK;
}

/* ---- blocks, under the lock --------------------------------------------------------- */

usm_list *usm__own_bucket(const void *base)
{
    usm_list *b = &usm__own.blocks[((uintptr_t)base * 0x9e3779b97f4a7c15u) >> 54];

    if (!b->next)
        usm_list_init(b);
    return b;
}

block *usm__own_block_find(const void *base)
{
    usm_list *b = usm__own_bucket(base);

    USM_LIST_FOREACH (it, b)
        if (usm_container_of(it, block, link)->base == base)
            return usm_container_of(it, block, link);
    return NULL;
}

void usm__own_block_drop(block *b)
{
    usm__own_slots_sweep(&b->slots);
    USM_LIST_FOREACH_SAFE (it, tmp, &b->slots) {
        usm_list_remove(it);
        usm_list_append(&usm__own.retired, it);
        usm_container_of(it, slot, link)->block = NULL;
    }
    usm__own.deferred -= b->is_freed;
    usm_list_remove(&b->link);
    usm__heap_free(b);
}

static void block_end_handles(const block *b)
{
    USM_LIST_FOREACH (it, &b->slots)
        usm__own_slot_end(usm_container_of(it, slot, link));
}

/* ---- postponed frees ---------------------------------------------------------------- */

/* A block that was freed and that nobody has open any more: moved from the table to
 * usm__own.freeing. */
static block *next_to_free(void)
{
    for (size_t i = 0; i < USM__OWN_BUCKETS && usm__own.deferred > 0; i++) {
        if (!usm__own.blocks[i].next)
            continue;
        USM_LIST_FOREACH (it, &usm__own.blocks[i]) {
            block *b = usm_container_of(it, block, link);

            if (!b->is_freed || any_claimed(b))
                continue;
            usm_list_remove(it);
            usm_list_append(&usm__own.freeing, it);
            return b;
        }
    }
    return NULL;
}

void usm__own_look(void)
{
    block *b;

    usm__mutex_lock(&usm__own.lock);
    usm__own_slots_sweep(&usm__own.retired);
    while ((b = next_to_free()) != NULL) {
        /* It stays in the list until it is freed: the end of its pool waits for that. */
        usm__mutex_unlock(&usm__own.lock);
        if (usm__pool_free_now(b->area, b->base) != USM_OK)
            usm__warn("%p, whose free was deferred, could not be returned to its pool: %s",
                      (void *)b->base, usm_last_error());
        usm__mutex_lock(&usm__own.lock);
        usm__own_block_drop(b);
        (void)pthread_cond_broadcast(&usm__own.freed);
    }
    usm__mutex_unlock(&usm__own.lock);
}

/* ---- importers, on the service's thread --------------------------------------------- */

static void claims_free(claims *c)
{
    usm_list_remove(&c->link);
    (void)usm__os_unmap((void *)(uintptr_t)c->claim, USM__IPC_CLAIMS_SIZE);
    usm__heap_free(c);
}

static void claims_forget(const usm__ipc_process *from, uint64_t only)
{
    USM_LIST_FOREACH_SAFE (it, tmp, &usm__own.claims) {
        claims *c = usm_container_of(it, claims, link);

        if (c->from.pid == from->pid && c->from.start == from->start &&
            (only == 0 || only == c->page))
            claims_free(c);
    }
}

/* False: its claims cannot be read, so it must not open anything. */
static bool claims_take(const usm__ipc_process *from, uint64_t number, int fd)
{
    claims *c = usm__heap_alloc(sizeof *c);

    if (!c || fd < 0 || !usm__os_is_fixed(fd, USM__IPC_CLAIMS_SIZE))
        goto err_claims;
    c->claim = usm__os_map_fd_read_only(USM__IPC_CLAIMS_SIZE, fd);
    if (!c->claim)
        goto err_claims;
    c->from = *from;
    c->page = number;
    usm__mutex_lock(&usm__own.lock);
    claims_forget(from, number);
    usm_list_append(&usm__own.claims, &c->link);
    usm__mutex_unlock(&usm__own.lock);
    return true;

err_claims:
    usm__heap_free(c);
    return false;
}

static bool hear(const usm__ipc_process *from, const void *word, size_t size, int fd)
{
    usm__ipc_word w;
    bool          is_good = size == sizeof w;

    if (is_good)
        memcpy(&w, word, sizeof w);
    if (is_good && w.what == USM__IPC_WORD_CLAIMS)
        is_good = claims_take(from, w.page, fd);
    else if (is_good && w.what == USM__IPC_WORD_LOOK)
        usm__own_look();
    if (fd >= 0)
        (void)usm__os_close(fd);
    return is_good;
}

static void left(const usm__ipc_process *from)
{
    usm__mutex_lock(&usm__own.lock);
    claims_forget(from, 0);
    usm__mutex_unlock(&usm__own.lock);
    usm__own_look();
}

const usm__ipc_ear usm__own_ear = {.word = hear, .left = left};

/* ---- hook points of the core -------------------------------------------------------- */

static usm_status before_free(usm__area *area, void *p)
{
    usm_status st = USM_E_NOT_READY;
    block     *b;

    (void)area;
    usm__mutex_lock(&usm__own.lock);
    b = usm__own_block_find(p);
    if (b && b->is_freed) {
        st = usm__fail(USM_E_DOUBLE_FREE,
                       "%p was freed before; other processes still have the block open", p);
    } else if (b) {
        block_end_handles(b);
        if (any_claimed(b)) {
            b->is_freed = true;
            usm__own.deferred++;
            st = USM_OK;
        } else {
            usm__own_block_drop(b);
        }
    }
    usm__mutex_unlock(&usm__own.lock);
    return st;
}

static void end_handles(const usm__area *area, const void *p)
{
    const block *b;

    (void)area;
    usm__mutex_lock(&usm__own.lock);
    b = usm__own_block_find(p);
    if (b)
        block_end_handles(b);
    usm__mutex_unlock(&usm__own.lock);
}

static bool is_freed(const usm__area *area, const void *base)
{
    const block *b;
    bool         freed;

    (void)area;
    usm__mutex_lock(&usm__own.lock);
    b     = usm__own.deferred > 0 ? usm__own_block_find(base) : NULL;
    freed = b && b->is_freed;
    usm__mutex_unlock(&usm__own.lock);
    return freed;
}

/* Calls fn for the blocks of the pool, under the lock; fn may drop its block. */
static void each_block(const usm_pool *pool, void (*fn)(block *b, void *arg), void *arg)
{
    for (size_t i = 0; i < USM__OWN_BUCKETS; i++) {
        if (!usm__own.blocks[i].next)
            continue;
        USM_LIST_FOREACH_SAFE (it, tmp, &usm__own.blocks[i]) {
            block *b = usm_container_of(it, block, link);

            if (b->pool == pool)
                fn(b, arg);
        }
    }
}

static void note_claimed(block *b, void *arg)
{
    *(bool *)arg |= b->is_freed || any_claimed(b);
}

/* While a pool is reset its handles cannot be opened; afterwards those of blocks that stayed can be
 * again. */
static void set_numbers(block *b, void *arg)
{
    const bool *is_open = arg;

    USM_LIST_FOREACH (it, &b->slots) {
        const slot *s = usm_container_of(it, slot, link);

        atomic_store(&s->page->slots[s->index].number, *is_open ? s->number : (uint64_t)0);
    }
}

static usm_status before_reset(usm_pool *pool)
{
    bool is_claimed_somewhere = false, is_open = false;

    usm__mutex_lock(&usm__own.lock);
    each_block(pool, set_numbers, &is_open);
    each_block(pool, note_claimed, &is_claimed_somewhere);
    if (is_claimed_somewhere) {
        is_open = true;
        each_block(pool, set_numbers, &is_open);
    }
    usm__mutex_unlock(&usm__own.lock);
    if (is_claimed_somewhere)
        return usm__fail(USM_E_BUSY,
                         "the pool has blocks that other processes have open: they must "
                         "usm_ipc_close() them first");
    return USM_OK;
}

static void move_to(block *b, void *arg)
{
    usm_list_remove(&b->link);
    usm_list_append(arg, &b->link);
}

/* The pool's lock ranks below ours: so its blocks are taken out of the table before the pool is
 * called. */
static void was_reset(usm_pool *pool)
{
    bool     is_open = true;
    usm_list mine, gone;

    usm_list_init(&mine);
    usm_list_init(&gone);
    usm__mutex_lock(&usm__own.lock);
    each_block(pool, move_to, &mine);
    usm__mutex_unlock(&usm__own.lock);
    USM_LIST_FOREACH_SAFE (it, tmp, &mine) {
        block       *b    = usm_container_of(it, block, link);
        usm__area   *area = usm__map_find(b->base);
        usm_block    found;
        usm__message message;

        usm__message_save(&message);
        if (!area || area->pool != pool || usm__pool_block_plain(area, b->base, &found) != USM_OK)
            move_to(b, &gone);
        usm__message_restore(&message);
    }
    usm__mutex_lock(&usm__own.lock);
    USM_LIST_FOREACH_SAFE (it, tmp, &gone) {
        block_end_handles(usm_container_of(it, block, link));
        usm__own_block_drop(usm_container_of(it, block, link));
    }
    USM_LIST_FOREACH_SAFE (it, tmp, &mine) {
        block *b = usm_container_of(it, block, link);

        move_to(b, usm__own_bucket(b->base));
        set_numbers(b, &is_open);
    }
    usm__mutex_unlock(&usm__own.lock);
}

static void end_block(block *b, void *arg)
{
    (void)arg;
    block_end_handles(b);
    usm__own_block_drop(b);
}

static bool is_freeing(const usm_pool *pool)
{
    USM_LIST_FOREACH (it, &usm__own.freeing)
        if (usm_container_of(it, block, link)->pool == pool)
            return true;
    return false;
}

static void finish(usm_pool *pool)
{
    usm__mutex_lock(&usm__own.lock);
    each_block(pool, end_block, NULL);
    while (is_freeing(pool))
        (void)usm__mutex_wait(&usm__own.lock, &usm__own.freed, NULL);
    usm__mutex_unlock(&usm__own.lock);
}

const usm__pool_export_hooks usm__ipc_exports = {
    .free        = before_free,
    .end_handles = end_handles,
    .is_freed    = is_freed,
    .reset       = before_reset,
    .was_reset   = was_reset,
    .finish      = finish,
    .area_gone   = usm__own_area_gone,
};

/* ---- fork --------------------------------------------------------------------------- */

/* The pages of numbers are not mapped in the child; those of claims are only read. */
static void forget(void)
{
    usm_list *it;

    while ((it = usm_list_pop(&usm__own.claims)) != NULL)
        claims_free(usm_container_of(it, claims, link));
    while ((it = usm_list_pop(&usm__own.freeing)) != NULL)
        usm__heap_free(usm_container_of(it, block, link));
    for (size_t i = 0; i < USM__OWN_BUCKETS; i++)
        while (usm__own.blocks[i].next && (it = usm_list_pop(&usm__own.blocks[i])) != NULL)
            usm__heap_free(usm_container_of(it, block, link));
    usm_list_init(&usm__own.retired);
    while ((it = usm_list_pop(&usm__own.pages)) != NULL) {
        page *p = usm_container_of(it, page, link);

        for (uint32_t i = 0; i < USM__IPC_SLOTS; i++)
            usm__heap_free(p->of[i]);
        usm__heap_free(p);
    }
    usm__own.handles = usm__own.deferred = usm__own.opened = 0;
}

void usm__ipc_export_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&usm__own.lock, phase);
    if (phase == USM_FORK_CHILD) {
        usm__own.freed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
        forget();
    }
}
