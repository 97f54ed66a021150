/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Event slots ("cells", event_slot.h): creating and finding them, which processes have them open,
 * which of those have ended. event_slot_wait.c counts and waits.  Called by event.c and
 * event_queue.c.
 *
 * When a slot is reused.  Its creator retires it (generation 0), then the last user in this process
 * returns it.  Other processes may still have it open: each of them wrote its key into `openers`
 * and looked at the generation afterwards.  So a process that is not in the list will find that the
 * slot is retired.  The slot is reused when all in the list have gone: closed it, or ended, which
 * the kernel reports. */
#include "ipc/event_slot.h"

#include "base/fork.h"
#include "base/os.h"
#include "base/os_file.h"
#include "base/os_ipc.h"

#include <errno.h>
#include <string.h>

#define PAGE_SIZE ((size_t)USM__IPC_EVENT_SLOTS * USM__IPC_EVENT_SLOT_SIZE)
#define PID_BITS  22 /* largest number of bits of a process number                         */

_Static_assert(sizeof(usm__ipc_event_slot_shared) <= USM__IPC_EVENT_SLOT_SIZE,
               "a cell has its place");
_Static_assert(sizeof(usm__recorder) == 64, "a line each");

enum { CELL_FREE = 0, CELL_USED = 1, CELL_PARKED = 2 }; /* retired; others may have it open */

/* A process whose end is monitored. */
typedef struct watched {
    usm_list         link;
    usm__ipc_watch   watch;
    usm__process_key key;
    bool             is_started;
    bool             has_ended; /* guarded by the lock */
} watched;

typedef struct lists {
    usm_list pages;
    usm_list watches;
    size_t   slots; /* event slots open in this process                                    */
} lists;

static struct {
    usm__mutex       lock;
    lists            l;         /* guarded by lock, as all below                     */
    lists            inherited; /* the parent's: kept so that leak checkers see them */
    usm__ipc_process self;
    uint64_t         generation;
} all = {.lock = USM__MUTEX_INIT(USM__RANK_IPC, "cells of events"),
         .l    = {{&all.l.pages, &all.l.pages}, {&all.l.watches, &all.l.watches}, 0}};

/* ---- processes ------------------------------------------------------------------------- */

static usm__process_key key_of(const usm__ipc_process *p)
{
    return p->start << PID_BITS | (uint32_t)p->pid;
}

usm__process_key usm__process_self(void)
{
    return key_of(&all.self); /* fixed by the first event slot */
}

usm__process_key usm__ipc_event_slot_owner(const usm__ipc_event_slot *slot)
{
    return key_of(&slot->page->name.owner);
}

/* On the service's thread. */
static void process_ended(usm__ipc_watch *w)
{
    watched *who     = usm_container_of(w, watched, watch);
    bool     is_loss = false;

    usm__mutex_lock(&all.lock);
    who->has_ended = true;
    USM_LIST_FOREACH (it, &all.l.pages) {
        usm__ipc_event_slot_page *page = usm_container_of(it, usm__ipc_event_slot_page, link);

        is_loss |= !page->is_own && key_of(&page->name.owner) == who->key;
        USM_LIST_FOREACH (of, &page->slots)
            usm__bell_ring(&usm_container_of(of, usm__ipc_event_slot, link)->shared->bell);
    }
    usm__mutex_unlock(&all.lock);
    if (is_loss)
        usm__ipc_notify_loss(&w->process, USM_IPC_OWNER);
}

/* Lock held. */
static watched *find_watched(usm__process_key key)
{
    USM_LIST_FOREACH (it, &all.l.watches) {
        watched *who = usm_container_of(it, watched, link);

        if (who->key == key)
            return who;
    }
    return NULL;
}

/* Lock held. */
static usm_status watch(usm__process_key key, watched **out)
{
    watched   *who = usm__heap_alloc(sizeof *who);
    usm_status st;

    if (!who)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to watch a process");
    who->key           = key;
    who->watch.fn      = process_ended;
    who->watch.process = (usm__ipc_process){.start = key >> PID_BITS,
                                            .pid   = (int32_t)(key & ((1u << PID_BITS) - 1)),
                                            .uid   = all.self.uid};
    st                 = usm__ipc_watch_start(&who->watch);
    if (st != USM_OK && st != USM_E_OWNER_GONE) {
        usm__heap_free(who);
        return st;
    }
    who->is_started = st == USM_OK;
    who->has_ended  = st != USM_OK;
    usm_list_append(&all.l.watches, &who->link);
    *out = who;
    return USM_OK;
}

usm_status usm__ipc_event_slot_has_ended(usm__process_key key, bool *has_ended)
{
    watched   *who;
    usm_status st = USM_OK;

    *has_ended = key == 0;
    if (key == 0 || key == usm__process_self())
        return USM_OK;
    usm__mutex_lock(&all.lock);
    who = find_watched(key);
    if (!who)
        st = watch(key, &who);
    if (st == USM_OK)
        *has_ended = who->has_ended;
    usm__mutex_unlock(&all.lock);
    return st;
}

/* Lock held; without a monitor. */
static bool is_alive(usm__process_key key)
{
    const usm__ipc_process p = {.start = key >> PID_BITS,
                                .pid   = (int32_t)(key & ((1u << PID_BITS) - 1)),
                                .uid   = all.self.uid};

    return key == usm__process_self() || usm__ipc_is_alive(&p);
}

/* Called without the lock, which the callbacks take.  The list is the caller's. */
static void stop_watches(usm_list *list)
{
    usm_list *it;

    while ((it = usm_list_pop(list)) != NULL) {
        watched *who = usm_container_of(it, watched, link);

        if (who->is_started)
            usm__ipc_watch_stop(&who->watch);
        usm__heap_free(who);
    }
}

/* ---- pages ------------------------------------------------------------------------------- */

static usm_status no_page(const char *what)
{
    return usm__fail(USM_E_SYSTEM, "%s for an event across processes: %s", what,
                     strerror(errno)); /* NOLINT(concurrency-mt-unsafe): glibc's is safe */
}

static usm_status map_page(int fd, usm__ipc_event_slot_page **out)
{
    usm__ipc_event_slot_page *page = usm__heap_alloc(sizeof *page);

    if (!page)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for a page of events");
    page->base = usm__os_map_fd(NULL, PAGE_SIZE, 3, fd);
    if (!page->base) {
        usm__heap_free(page);
        return no_page("no room");
    }
    usm__os_keep_from_children(page->base, PAGE_SIZE);
    usm_list_init(&page->link);
    usm_list_init(&page->slots);
    page->may_spin = usm__os_cpu_count() > 1;
    page->spin     = (usm__spin)USM__SPIN_INIT;
    *out           = page;
    return USM_OK;
}

static void free_page(usm__ipc_event_slot_page *page)
{
    if (page->is_own)
        usm__ipc_unshare(&page->name);
    (void)usm__os_unmap(page->base, PAGE_SIZE);
    usm__heap_free(page);
}

static usm_status make_page(usm__ipc_event_slot_page **out)
{
    usm__ipc_event_slot_page *page = NULL;
    usm_status                st;
    int                       fd = usm__os_memfd("usm-events", PAGE_SIZE);

    if (fd < 0)
        return no_page("no memory file");
    st = map_page(fd, &page);
    if (st == USM_OK)
        st = usm__ipc_share(fd, NULL, 0, &page->name);
    (void)usm__os_close(fd);
    if (st == USM_OK) {
        page->is_own = true;
        *out         = page;
    } else if (page) {
        (void)usm__os_unmap(page->base, PAGE_SIZE);
        usm__heap_free(page);
    }
    return st;
}

static usm_status fetch_page(const usm__ipc_name *name, usm__ipc_event_slot_page **out)
{
    usm__os_stat file;
    int          fd = -1;
    usm_status   st = usm__ipc_fetch(name, &fd, NULL, 0);

    if (st != USM_OK)
        return st;
    if (usm__os_stat_fd(fd, &file) != 0)
        st = no_page("no page");
    else if (file.size >= PAGE_SIZE)
        st = map_page(fd, out);
    else
        st = usm__fail(USM_E_HANDLE,
                       "what process %d shares under that name is not a page of events",
                       name->owner.pid);
    (void)usm__os_close(fd);
    if (st == USM_OK)
        (*out)->name = *name;
    return st;
}

/* Lock held. */
static usm__ipc_event_slot_page *find_page(const usm__ipc_name *name)
{
    USM_LIST_FOREACH (it, &all.l.pages) {
        usm__ipc_event_slot_page *page = usm_container_of(it, usm__ipc_event_slot_page, link);

        if (page->name.id == name->id && page->name.nonce == name->nonce &&
            key_of(&page->name.owner) == key_of(&name->owner))
            return page;
    }
    return NULL;
}

/* ---- event slots ----------------------------------------------------------------------------- */

static usm__ipc_event_slot_shared *shared_of(const usm__ipc_event_slot_page *page, uint32_t index)
{
    return (usm__ipc_event_slot_shared *)(void *)(page->base +
                                                  (size_t)index * USM__IPC_EVENT_SLOT_SIZE);
}

/* Lock held. */
static usm_status new_slot(usm__ipc_event_slot_page *page, uint32_t index, uint64_t generation,
                           usm__ipc_event_slot **out)
{
    usm__ipc_event_slot *slot = usm__heap_alloc(sizeof *slot);

    if (!slot)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for an event across processes");
    slot->page       = page;
    slot->shared     = shared_of(page, index);
    slot->index      = index;
    slot->generation = generation;
    slot->refs       = 1;
    slot->opener     = -1;
    usm__mutex_init(&slot->lock, USM__RANK_EVENT, "cell");
    usm_list_init(&slot->records);
    usm_list_init(&slot->waits);
    usm_list_append(&page->slots, &slot->link);
    all.l.slots++;
    *out = slot;
    return USM_OK;
}

static void free_slot(usm__ipc_event_slot *slot)
{
    usm__mutex_fini(&slot->lock);
    usm__heap_free(slot);
}

/* Lock held.  Whether no other process has it open any more. */
static bool is_free(usm__ipc_event_slot_page *page, uint32_t index)
{
    usm__ipc_event_slot_shared *shared = shared_of(page, index);

    if (page->state[index] != CELL_PARKED)
        return page->state[index] == CELL_FREE;
    for (uint32_t i = 0; i < USM__IPC_EVENT_SLOT_OPENERS; i++) {
        const uint64_t key = usm_load_acquire(&shared->openers[i]);

        if (key != 0 && is_alive(key))
            return false;
    }
    page->state[index] = CELL_FREE;
    return true;
}

/* Lock held.  Clears the slot before other processes can open it. */
static usm_status take_slot(usm__ipc_event_slot_page *page, uint32_t index,
                            usm__ipc_event_slot **out)
{
    usm__ipc_event_slot_shared *shared     = shared_of(page, index);
    const uint64_t              generation = ++all.generation;
    usm_status                  st         = new_slot(page, index, generation, out);

    if (st != USM_OK)
        return st;
    memset((char *)shared + sizeof shared->generation, 0,
           sizeof *shared - sizeof shared->generation);
    atomic_store(&shared->generation, generation);
    page->state[index] = CELL_USED;
    return USM_OK;
}

/* Lock held; NOT_READY: no page has room. */
static usm_status take_any(usm__ipc_event_slot **out)
{
    USM_LIST_FOREACH (it, &all.l.pages) {
        usm__ipc_event_slot_page *page = usm_container_of(it, usm__ipc_event_slot_page, link);

        for (uint32_t i = 0; page->is_own && i < USM__IPC_EVENT_SLOTS; i++)
            if (is_free(page, i))
                return take_slot(page, i, out);
    }
    return USM_E_NOT_READY;
}

static usm_status know_self(void)
{
    usm__ipc_process self;
    usm_status       st = usm__ipc_self(&self);

    if (st != USM_OK)
        return st;
    usm__mutex_lock(&all.lock);
    if (all.self.pid != self.pid)
        all.self = self;
    usm__mutex_unlock(&all.lock);
    return USM_OK;
}

usm_status usm__ipc_event_slot_create(usm__ipc_event_slot **out)
{
    usm__ipc_event_slot_page *page = NULL;
    usm_status                st   = know_self();

    if (st != USM_OK)
        return st;
    usm__mutex_lock(&all.lock);
    st = take_any(out);
    usm__mutex_unlock(&all.lock);
    if (st != USM_E_NOT_READY)
        return st;
    st = make_page(&page);
    if (st != USM_OK)
        return st;
    usm__mutex_lock(&all.lock);
    st = take_slot(page, 0, out);
    if (st == USM_OK)
        usm_list_append(&all.l.pages, &page->link);
    usm__mutex_unlock(&all.lock);
    if (st != USM_OK)
        free_page(page);
    return st;
}

static usm_status is_stale(void)
{
    return usm__fail(USM_E_STALE, "the event was destroyed by the process that created it");
}

/* Lock held.  Enters our key among those that have it open. */
static usm_status enter(usm__ipc_event_slot *slot)
{
    usm__ipc_event_slot_shared *shared = slot->shared;

    for (int pass = 0; pass < 2; pass++) /* free entries first, then those of the dead */
        for (int i = 0; i < USM__IPC_EVENT_SLOT_OPENERS; i++) {
            uint64_t key = usm_load_acquire(&shared->openers[i]);

            if (key != 0 && (pass == 0 || is_alive(key)))
                continue;
            if (!atomic_compare_exchange_strong(&shared->openers[i], &key, usm__process_self()))
                continue;
            slot->opener = i;
            if (atomic_load(&shared->generation) == slot->generation) {
                usm__bell_ring(&shared->bell); /* waiting processes then monitor us, too   */
                return USM_OK;
            }
            usm_store_release(&shared->openers[i], (uint64_t)0);
            return is_stale();
        }
    return usm__fail(USM_E_BUSY, "%d processes have the event open; no more can",
                     USM__IPC_EVENT_SLOT_OPENERS);
}

/* Lock held. */
static usm_status open_in(usm__ipc_event_slot_page *page, uint32_t index, uint64_t generation,
                          usm__ipc_event_slot **out)
{
    usm__ipc_event_slot *slot = NULL;
    usm_status           st;

    if (usm_load_acquire(&shared_of(page, index)->generation) != generation)
        return is_stale();
    USM_LIST_FOREACH (it, &page->slots) {
        slot = usm_container_of(it, usm__ipc_event_slot, link);
        if (slot->index == index && slot->generation == generation) {
            slot->refs++;
            *out = slot;
            return USM_OK;
        }
    }
    if (page->is_own)
        return is_stale();
    st = new_slot(page, index, generation, &slot);
    if (st != USM_OK)
        return st;
    st = enter(slot);
    if (st == USM_OK) {
        *out = slot;
        return USM_OK;
    }
    usm_list_remove(&slot->link);
    all.l.slots--;
    free_slot(slot);
    return st;
}

/* Lock held.  If nothing of the page is open here, removes it; the caller frees it after that. */
static usm__ipc_event_slot_page *leave_page(usm__ipc_event_slot_page *page)
{
    if (!usm_list_is_empty(&page->slots))
        return NULL;
    usm_list_remove(&page->link);
    return page;
}

/* Lock held.  If nothing is open here, moves all monitors to the list; the caller stops them after
 * that. */
static void leave_watches(usm_list *watches)
{
    usm_list_init(watches);
    if (all.l.slots != 0 || usm_list_is_empty(&all.l.watches))
        return;
    *watches            = all.l.watches;
    watches->next->prev = watches;
    watches->prev->next = watches;
    usm_list_init(&all.l.watches);
}

usm_status usm__ipc_event_slot_open(const usm__ipc_name *name, uint32_t index, uint64_t generation,
                                    usm__ipc_event_slot **out)
{
    usm__ipc_event_slot_page *page, *fetched = NULL, *left = NULL;
    usm_list                  watches;
    bool                      has_ended = false;
    usm_status                st        = know_self();

    if (st == USM_OK && index >= USM__IPC_EVENT_SLOTS)
        st = usm__fail(USM_E_HANDLE, "the handle names no event");
    if (st != USM_OK)
        return st;
    usm__mutex_lock(&all.lock);
    page = find_page(name);
    usm__mutex_unlock(&all.lock);
    if (!page) {
        if (usm__ipc_is_self(&name->owner))
            return is_stale();
        st = fetch_page(name, &fetched);
    }
    if (st == USM_OK)
        st = usm__ipc_event_slot_has_ended(key_of(&name->owner), &has_ended);
    if (st == USM_OK && has_ended)
        st = usm__fail(USM_E_OWNER_GONE, "process %d, which created the event, has ended",
                       name->owner.pid);
    usm__mutex_lock(&all.lock);
    page = find_page(name); /* another thread may have added or removed it meanwhile */
    if (!page && fetched) {
        page    = fetched;
        fetched = NULL;
        usm_list_append(&all.l.pages, &page->link);
    }
    if (st == USM_OK)
        st = page ? open_in(page, index, generation, out) : is_stale();
    if (page && st != USM_OK)
        left = leave_page(page);
    leave_watches(&watches);
    usm__mutex_unlock(&all.lock);
    stop_watches(&watches);
    if (left)
        free_page(left);
    if (fetched)
        free_page(fetched);
    return st;
}

void usm__ipc_event_slot_ref(usm__ipc_event_slot *slot)
{
    usm__mutex_lock(&all.lock);
    slot->refs++;
    usm__mutex_unlock(&all.lock);
}

/* Lock held. */
static void give_back(usm__ipc_event_slot *slot)
{
    usm__ipc_event_slot_shared *shared = slot->shared;
    uint8_t                    *state  = &slot->page->state[slot->index];

    /* Nothing is under way: each record has a reference. */
    if (slot->recorder)
        usm_store_release(&slot->recorder->key, (uint64_t)0);
    if (slot->opener >= 0)
        usm_store_release(&shared->openers[slot->opener], (uint64_t)0);
    else
        *state = CELL_PARKED; /* checked when a slot is needed */
    usm_list_remove(&slot->link);
    all.l.slots--;
}

void usm__ipc_event_slot_unref(usm__ipc_event_slot *slot)
{
    usm__ipc_event_slot_page *left = NULL;
    usm_list                  watches;
    bool                      is_last;

    usm__mutex_lock(&all.lock);
    is_last = --slot->refs == 0;
    if (is_last) {
        give_back(slot);
        left = leave_page(slot->page);
    }
    leave_watches(&watches);
    usm__mutex_unlock(&all.lock);
    stop_watches(&watches);
    if (left)
        free_page(left);
    if (is_last)
        free_slot(slot);
}

void usm__ipc_event_slot_retire(usm__ipc_event_slot *slot)
{
    atomic_store(&slot->shared->generation, (uint64_t)0);
}

/* ---- recorders ------------------------------------------------------------------------------- */

/* The entry's counts continue where its last holder left them: none of its records may be under
 * way. */
static bool try_claim(usm__ipc_event_slot *slot, uint32_t index, bool from_the_dead)
{
    usm__recorder *r   = &slot->shared->recorders[index];
    uint64_t       key = usm_load_acquire(&r->key);
    uint32_t       n   = usm_load_acquire(&slot->shared->nrecorders);

    if (key != 0 && (!from_the_dead || is_alive(key) ||
                     usm_load_acquire(&r->low) != usm_load_acquire(&r->made)))
        return false;
    if (!usm_cas_acq_rel(&r->key, &key, usm__process_self()))
        return false;
    while (n <= index && !usm_cas_acq_rel(&slot->shared->nrecorders, &n, index + 1))
        ;
    slot->recorder = r;
    return true;
}

usm_status usm__ipc_event_slot_claim(usm__ipc_event_slot *slot)
{
    usm_status st = USM_OK;

    usm__mutex_lock(&slot->lock);
    for (int pass = 0; pass < 2 && !slot->recorder; pass++)
        for (uint32_t i = 0; i < USM__IPC_EVENT_SLOT_RECORDERS && !slot->recorder; i++)
            (void)try_claim(slot, i, pass > 0);
    if (!slot->recorder)
        st = usm__fail(USM_E_BUSY,
                       "%d processes record in this event already; let others record in one of "
                       "their own",
                       USM__IPC_EVENT_SLOT_RECORDERS);
    usm__mutex_unlock(&slot->lock);
    return st;
}

/* ---- fork ----------------------------------------------------------------------------- */

/* The pages are not mapped in the child; its events are refused, and forgotten here. */
void usm__ipc_event_slots_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&all.lock, phase);
    if (phase == USM_FORK_CHILD) {
        all.inherited = all.l;
        all.self      = (usm__ipc_process){.pid = 0};
        all.l.slots   = 0;
        usm_list_init(&all.l.pages);
        usm_list_init(&all.l.watches);
    }
}
