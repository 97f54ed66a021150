/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The lock over all orders, edges between accesses, and the switch between the hit path and the
 * orders (buffer/track.h).  Called by access.c, host.c, command.c, defer.c. */
#include "buffer/track.h"

#include "base/fork.h"
#include "base/inline/recycle.h"
#include "base/os.h"
#include "buffer/command.h"

static usm_recycler kept_edges = USM_RECYCLER_INIT(sizeof(usm__edge), 4096);

usm__track_state usm__tracking = {.lock =
                                      USM__MUTEX_INIT_BRIEF(USM__RANK_ORDER, "order of buffers"),
                                  .changed  = PTHREAD_COND_INITIALIZER,
                                  .ready    = {&usm__tracking.ready, &usm__tracking.ready},
                                  .to_watch = {&usm__tracking.to_watch, &usm__tracking.to_watch},
                                  .kept     = USM__MUTEX_INIT(USM__RANK_BUFFER, "kept buffers")};

void usm__track_lock(void)
{
    usm__mutex_lock(&usm__tracking.lock);
}

void usm__track_unlock(void)
{
    usm_list  ready;
    usm_list *it;

    usm_list_init(&ready);
    for (it = usm_list_pop(&usm__tracking.ready); it; it = usm_list_pop(&usm__tracking.ready))
        usm_list_append(&ready, it);
    usm__mutex_unlock(&usm__tracking.lock);
    for (it = usm_list_pop(&ready); it; it = usm_list_pop(&ready)) {
        usm__waiter *w = usm_container_of(it, usm__waiter, link);

        w->ready(w);
    }
}

void usm__track_sleep(void)
{
    usm__tracking.sleepers++;
    (void)usm__mutex_wait(&usm__tracking.lock, &usm__tracking.changed, NULL);
    usm__tracking.sleepers--;
}

void usm__track_wake(void)
{
    if (usm__tracking.sleepers)
        pthread_cond_broadcast(&usm__tracking.changed);
}

void usm__track_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&usm__tracking.lock, phase);
    if (phase != USM_FORK_CHILD)
        return;
    pthread_cond_init(&usm__tracking.changed, NULL);
    usm_list_init(&usm__tracking.ready);
    usm_recycler_in_child(&kept_edges);
    usm__tracking.sleepers = 0;
}

/* ---- edges ---------------------------------------------------------------------- */

bool usm__edge_add(usm__edge **list, usm__waiter *who, struct usm__command *after)
{
    usm__edge *e = usm_recycler_take(&kept_edges, 0);

    if (!e)
        e = usm__heap_alloc(sizeof *e);
    if (!e)
        return false;
    e->who   = who;
    e->after = after;
    e->next  = *list;
    *list    = e;
    who->waits++;
    return true;
}

void usm__edges_forget(void)
{
    usm_recycler_clear(&kept_edges, usm__heap_free);
}

void usm__waiter_notify(usm__waiter *who)
{
    if (--who->waits == 0)
        usm_list_append(&usm__tracking.ready, &who->link);
}

void usm__edges_fire(usm__edge **list, usm_event *dep, usm_status status)
{
    usm__edge *e = *list;

    *list = NULL;
    while (e) {
        usm__edge *next = e->next;

        if (e->after)
            usm__command_preceded(e->after, dep, status);
        usm__waiter_notify(e->who);
        if (!usm_recycler_give(&kept_edges, e))
            usm__heap_free(e);
        e = next;
    }
}

/* ---- the record of a buffer -------------------------------------------------------- */

usm__track *usm__track_get(usm_buffer *root)
{
    usm__track *t = usm__track_of(root);

    if (t)
        return t;
    t = usm__heap_alloc(sizeof *t);
    if (!t) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for the commands of a buffer");
        return NULL;
    }
    usm__track_order_init(&t->order);
    usm__mutex_init(&t->lock, USM__RANK_BUFFER, "buffer");
    usm_store_release(&root->track, t);
    usm__spill_add_record(root->spill, sizeof *t);
    return t;
}

void usm__track_free(usm_buffer *root)
{
    usm__track *t = usm__track_of(root);

    if (!t)
        return;
    if (usm_load_acquire(&t->locations))
        usm__locations_destroy(usm_load_acquire(&t->locations));
    usm__mutex_fini(&t->lock);
    usm__heap_free(t->spare);
    usm__heap_free(t);
    usm__spill_drop_record(root->spill, sizeof *t);
}

static void adopt(usm_buffer *root, usm__track *t, usm__access_entry *h, const usm__slot_seen *seen)
{
    t->nadopted++;
    h->root   = root;
    h->slot   = seen->slot;
    h->serial = seen->serial;
    h->entry  = (usm__track_order_entry){
         .begin = seen->begin, .end = seen->end, .mode = seen->mode, .is_host = true};
    usm__track_order_add(&t->order, &h->entry);
}

usm_status usm__track_start(usm_buffer *root)
{
    usm__track    *t  = usm__track_get(root);
    size_t         at = 0;
    usm__slot_seen seen;

    if (!t)
        return USM_E_NO_MEMORY;
    if (t->is_complete)
        return USM_OK;
    (void)atomic_fetch_or(&root->flags, USM__BUFFER_TRACKED);
    usm__slot_barrier(); /* before the slots are looked at: slot.h */
    for (;;) {
        if (!t->spare) /* before: an access that is adopted must get an entry */
            t->spare = usm__heap_alloc(sizeof *t->spare);
        if (!t->spare)
            return usm__fail(USM_E_NO_MEMORY, "no host memory for the commands of a buffer");
        if (!usm__slot_adopt_next(root, &at, &seen))
            break;
        adopt(root, t, t->spare, &seen);
        t->spare = NULL;
    }
    t->is_complete = true;
    return USM_OK;
}

static bool is_quiescent(const usm__track *t)
{
    return t->order.ncommands == 0 && t->failures.n == 0 && t->nadopted == 0;
}

static void stop(usm_buffer *root, usm__track *t)
{
    t->is_complete = false;
    (void)atomic_fetch_and(&root->flags, ~USM__BUFFER_TRACKED);
}

void usm__track_stop(usm_buffer *root)
{
    usm__track *t = usm__track_of(root);

    if (is_quiescent(t) && !usm_load_acquire(&t->locations))
        stop(root, t);
}

void usm__track_stop_placed(usm_buffer *root)
{
    usm__track     *t         = usm__track_of(root);
    usm__locations *locations = t ? usm_load_acquire(&t->locations) : NULL;
    bool            is_on_host;

    if (!locations || !(usm_load_relaxed(&root->flags) & USM__BUFFER_TRACKED))
        return;
    usm__mutex_lock(&t->lock); /* so that no command changes `locations` meanwhile    */
    is_on_host = usm__locations_is_on_host(locations, 0, root->size, USM_READ_WRITE);
    usm__track_lock();
    if (is_on_host && is_quiescent(t))
        stop(root, t);
    usm__track_unlock();
    usm__mutex_unlock(&t->lock);
}

bool usm__track_is_on_host(usm_buffer *root, size_t begin, size_t end, usm_access_mode mode)
{
    usm__track *t = usm__track_of(root);
    bool is_first = (mode & USM_WRITE) && (usm_load_relaxed(&root->flags) & USM__BUFFER_FRESH);
    bool is_on_host;
    usm__locations *locations;

    if (!is_first && !usm_load_acquire(&t->locations))
        return true;
    usm__mutex_lock(&t->lock);
    locations = usm_load_acquire(&t->locations);
    if (!locations && is_first)
        usm__buffer_written(root);
    is_on_host =
        !locations || usm__locations_is_on_host(locations, begin - root->base, end - begin, mode);
    usm__mutex_unlock(&t->lock);
    return is_on_host;
}

/* ---- the host's entries -------------------------------------------------------------- */

void usm__access_leave(usm__access_entry *h)
{
    usm__track *t = usm__track_of(h->root);

    usm__track_order_remove(&t->order, &h->entry, true);
    t->nadopted -= h->slot != NULL;
    usm__edges_fire(&h->waiters, NULL, USM_OK);
    usm__track_stop(h->root);
}

static usm__access_entry *find_slot(usm__track_order *o, const usm__slot *slot, uint32_t serial)
{
    USM_LIST_FOREACH (it, &o->active) {
        usm__track_order_entry *e = usm_container_of(it, usm__track_order_entry, link);
        usm__access_entry      *h = usm_container_of(e, usm__access_entry, entry);

        if (e->is_host && h->slot == slot && h->serial == serial)
            return h;
    }
    return NULL;
}

void usm__access_slot_ended(usm_buffer *root, const usm__slot *slot, uint32_t serial)
{
    usm__track        *t;
    usm__access_entry *h = NULL;

    usm__track_lock();
    t = usm__track_of(root);
    if (t)
        h = find_slot(&t->order, slot, serial);
    if (h)
        usm__access_leave(h);
    usm__track_unlock();
    usm__heap_free(h);
}
