/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Accesses of the host through the order of their buffers (buffer/host.h):
 *
 *     enter all orders -> wait for the commands before -> pin all -> copy what only devices have
 *
 * It waits without a lock: later commands wait for the access, whatever it is waiting for. */
#include "buffer/host.h"

#include "base/os.h"
#include "buffer/command.h"
#include "buffer/pins.h"

#define INLINE_COMMANDS 16

/* Commands to wait for; counted. */
typedef struct before {
    size_t         n, cap;
    usm__command **list;
    usm__command  *first[INLINE_COMMANDS];
} before;

static bool before_add(before *b, usm__command *c)
{
    usm__command **more;

    if (b->n > 0 && b->list[b->n - 1] == c)
        return true;
    if (b->n == b->cap) {
        more = usm__heap_alloc(2 * b->cap * sizeof(usm__command *));
        if (!more)
            return false;
        for (size_t i = 0; i < b->n; i++)
            more[i] = b->list[i];
        if (b->list != b->first)
            usm__heap_free(b->list);
        b->list = more;
        b->cap *= 2;
    }
    usm_ref_take(&c->refs);
    b->list[b->n++] = c;
    return true;
}

static void before_fini(before *b)
{
    for (size_t i = 0; i < b->n; i++)
        usm__command_unref(b->list[i]);
    if (b->list != b->first)
        usm__heap_free(b->list);
}

/* ---- entering ------------------------------------------------------------------------ */

static usm__open *new_open(const usm_buffer_range *r)
{
    usm__open  *o    = usm__heap_alloc(sizeof *o);
    usm_buffer *root = r->buffer->root;

    if (!o) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for an access");
        return NULL;
    }
    o->host.root   = root;
    o->host.entry  = (usm__track_order_entry){.begin   = r->buffer->base + r->offset,
                                              .end     = r->buffer->base + r->offset + r->size,
                                              .mode    = r->mode,
                                              .is_host = true};
    o->host.opener = usm__self.block;
    o->pin         = (usm__pin){root->space, o->host.entry.begin, r->size, r->mode};
    usm__buffer_ref(root);
    return o;
}

static void free_open(usm__open *o)
{
    usm_buffer *root = o->host.root;

    usm__heap_free(o);
    usm__buffer_unref(root);
}

static usm_status find_before(const usm__open *o, before *b)
{
    usm__track_order *order = &usm__track_of(o->host.root)->order;

    for (usm__track_order_entry *e = usm__track_order_next(order, &o->host.entry, true, NULL); e;
         e                         = usm__track_order_next(order, &o->host.entry, true, e))
        if (!before_add(b, usm__use_of(e)->command))
            return usm__fail(USM_E_NO_MEMORY, "no host memory to wait for commands");
    return USM_OK;
}

static bool may_wait(size_t n, usm__open **opens)
{
    for (size_t i = 0; i < n; i++)
        if (opens[i]->host.entry.mode & USM_NO_WAIT)
            return false;
    return true;
}

static bool enter_later(size_t n, usm__open **opens)
{
    for (size_t i = 0; i < n; i++)
        if (usm__enter_later(&usm__track_of(opens[i]->host.root)->order, &opens[i]->host.entry))
            return true;
    return false;
}

/* Enters all orders in one step; b gets the commands to wait for.  An access that does not wait for
 * them, and is withdrawn if there are any, need not wait for commands that are coming (enter.c). */
static usm_status enter(size_t n, usm__open **opens, before *b)
{
    usm_status st = USM_OK;

    b->n    = 0;
    b->cap  = INLINE_COMMANDS;
    b->list = b->first;
    usm__track_lock();
    for (size_t i = 0; st == USM_OK && i < n; i++)
        st = usm__track_get(opens[i]->host.root) ? USM_OK : USM_E_NO_MEMORY;
    while (st == USM_OK && may_wait(n, opens) && enter_later(n, opens))
        ;
    for (size_t i = 0; st == USM_OK && i < n; i++)
        st = find_before(opens[i], b);
    for (size_t i = 0; st == USM_OK && i < n; i++)
        usm__track_order_add(&usm__track_of(opens[i]->host.root)->order, &opens[i]->host.entry);
    usm__track_unlock();
    return st;
}

static void leave(usm__open *o)
{
    usm__track_lock();
    usm__access_leave(&o->host);
    usm__track_unlock();
    usm__track_stop_placed(o->host.root);
}

void usm__access_end(usm__open *o)
{
    usm__track_lock();
    while (o->is_coming)
        usm__track_sleep();
    usm__track_unlock();
    if (o->is_pinned)
        usm__pins_give(1, &o->pin);
    leave(o);
    free_open(o);
}

/* ---- getting the bytes ------------------------------------------------------------------ */

static usm_status take_failures(const usm__open *o)
{
    usm__track *t = usm__track_of(o->host.root);
    usm_status  st;

    usm__track_lock();
    st = usm__failures_take(&t->failures, o->host.entry.begin, o->host.entry.end,
                            o->host.entry.mode);
    usm__track_stop(o->host.root);
    usm__track_unlock();
    if (st == USM_OK)
        return USM_OK;
    return usm__fail(USM_E_DEPENDENCY,
                     "a command that should have written these bytes failed (%s); write them again",
                     usm_status_name(st));
}

static size_t in_root(const usm__open *o)
{
    return o->host.entry.begin - o->host.root->base;
}

/* Bytes that only devices have are copied into the blocks, which are therefore pinned for writing.
 * They are not discarded first, even for NO_INIT: until the copy has ended the access may fail, and
 * then nothing must be lost. */
static void look_at_locations(usm__open *o)
{
    const usm__track_order_entry *e = &o->host.entry;

    o->is_newest = usm__track_is_on_host(o->host.root, e->begin, e->end, e->mode);
    if (!o->is_newest)
        o->pin.mode = (usm_access_mode)((o->pin.mode & ~(unsigned)USM_NO_INIT) | USM_WRITE);
}

static usm_status check_locations(usm__open *o)
{
    look_at_locations(o);
    if (!o->is_newest && (o->host.entry.mode & USM_NO_WAIT))
        return usm__fail(USM_E_AGAIN, "the newest content is on a device");
    return USM_OK;
}

static usm_status bring(usm__open *o)
{
    usm__track *t = usm__track_of(o->host.root);
    usm_status  st;

    if (o->is_newest)
        return USM_OK;
    usm__mutex_lock(&t->lock);
    st = usm__locations_to_host(usm_load_acquire(&t->locations), in_root(o), o->pin.size,
                                o->host.entry.mode);
    usm__mutex_unlock(&t->lock);
    return st;
}

static usm_status pin_all(size_t n, usm__open **opens)
{
    usm__pin   first[8] = {{0}};
    usm__pin  *pins     = n > 8 ? usm__heap_alloc(n * sizeof *pins) : first;
    usm_status st;

    if (!pins)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for %zu accesses", n);
    for (size_t i = 0; i < n; i++)
        pins[i] = opens[i]->pin;
    st = usm__pins_take_waiting(n, pins);
    for (size_t i = 0; st == USM_OK && i < n; i++)
        opens[i]->is_pinned = true;
    if (pins != first)
        usm__heap_free(pins);
    return st;
}

/* pre: the commands before have ended. */
static usm_status fetch(size_t n, usm__open **opens)
{
    usm_status st = USM_OK;

    for (size_t i = 0; st == USM_OK && i < n; i++)
        st = take_failures(opens[i]);
    for (size_t i = 0; st == USM_OK && i < n; i++)
        st = check_locations(opens[i]);
    if (st == USM_OK)
        st = pin_all(n, opens);
    for (size_t i = 0; st == USM_OK && i < n; i++)
        st = bring(opens[i]);
    return st;
}

/* ---- blocking ----------------------------------------------------------------------------- */

/* Waits for the commands before; without waiting, checks that they have ended. */
static usm_status await_all(size_t n, usm__open **opens, const before *b)
{
    bool waits = may_wait(n, opens);

    for (size_t i = 0; i < b->n; i++) {
        if (waits)
            usm__command_await(b->list[i]);
        else if (!usm__command_has_ended(b->list[i]))
            return usm__fail(USM_E_AGAIN, "a command that is not complete uses these bytes");
    }
    return USM_OK;
}

static void end_all(size_t n, usm__open **opens)
{
    usm__message message;

    usm__message_save(&message);
    for (size_t i = 0; i < n; i++)
        usm__access_end(opens[i]);
    usm__message_restore(&message);
}

usm_status usm__access_begin(size_t n, const usm_buffer_range *list, usm__open **opens)
{
    before     b;
    size_t     made = 0;
    usm_status st   = USM_OK;

    for (; st == USM_OK && made < n; made += st == USM_OK) {
        opens[made] = new_open(&list[made]);
        st          = opens[made] ? USM_OK : USM_E_NO_MEMORY;
    }
    if (st == USM_OK) {
        st = enter(n, opens, &b);
        if (st == USM_OK) {
            st = await_all(n, opens, &b);
            before_fini(&b);
            if (st == USM_OK)
                st = fetch(n, opens);
            if (st != USM_OK)
                end_all(n, opens);
            return st;
        }
        before_fini(&b);
    }
    while (made > 0)
        free_open(opens[--made]);
    return st;
}

usm_status usm__access_enter(const usm_buffer_range *range, usm__open **open)
{
    before     b;
    usm__open *o = new_open(range);
    usm_status st;

    if (!o)
        return USM_E_NO_MEMORY;
    st = enter(1, &o, &b);
    if (st != USM_OK) {
        before_fini(&b);
        free_open(o);
        return st;
    }
    st = await_all(1, &o, &b);
    before_fini(&b);
    if (st == USM_OK)
        st = take_failures(o);
    if (st == USM_OK)
        *open = o;
    else
        end_all(1, &o);
    return st;
}

/* ---- not waiting ---------------------------------------------------------------------------- */

/* Notified when the commands before have ended; then a thread of the executor gets the bytes.
 * Frees itself. */
typedef struct later {
    usm__waiter       waiter;
    usm__executor_job job;
    usm__open        *open;
    usm_event *ev; /* counted                                                                 */
} later;

static void later_run(usm__executor_job *job)
{
    later     *l  = usm_container_of(job, later, job);
    usm_status st = fetch(1, &l->open);

    usm__track_lock();
    l->open->is_coming = false; /* from now on the access may be ended, and freed */
    usm__track_wake();
    usm__track_unlock();
    (void)usm__event_end(l->ev, st);
    usm_event_release(l->ev);
    usm__heap_free(l);
}

static void later_ready(usm__waiter *w)
{
    usm__executor_post(&usm_container_of(w, later, waiter)->job);
}

static usm_status later_new(usm__open *o, later **out)
{
    later     *l = usm__heap_alloc(sizeof *l);
    usm_status st;

    if (!l)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for an access");
    st = usm__executor_reserve();
    if (st == USM_OK)
        st = usm_event_create(o->host.root->ctx, &l->ev);
    if (st != USM_OK) {
        usm__heap_free(l);
        return st;
    }
    l->ev->is_task  = true;
    l->open         = o;
    o->is_coming    = true;
    l->job.run      = later_run;
    l->waiter.ready = later_ready;
    l->waiter.waits = 1;
    usm_list_init(&l->waiter.link);
    usm_list_init(&l->job.link);
    *out = l;
    return USM_OK;
}

/* Adds an edge from each command; if there is no memory for one, waits for that command here. */
static void wait_later(later *l, const before *b)
{
    for (size_t i = 0; i < b->n; i++) {
        bool is_notified;

        usm__track_lock();
        is_notified = usm__command_is_over(b->list[i]) ||
                      usm__edge_add(&b->list[i]->on_done, &l->waiter, NULL);
        usm__command_want_watch(b->list[i]);
        usm__track_unlock();
        if (!is_notified)
            usm__command_await(b->list[i]);
    }
    usm__commands_watch_wanted();
    usm__track_lock();
    usm__waiter_notify(&l->waiter);
    usm__track_unlock();
}

usm_status usm__access_begin_async(const usm_buffer_range *range, usm__open **open, usm_event **ev)
{
    before     b;
    later     *l = NULL;
    usm__open *o = new_open(range);
    usm_status st;

    if (!o)
        return USM_E_NO_MEMORY;
    st = later_new(o, &l);
    if (st != USM_OK)
        goto err_free;
    st = enter(1, &o, &b);
    if (st == USM_OK) {
        usm_ref_take(&l->ev->refs); /* the caller's */
        *ev   = l->ev;
        *open = o;
        wait_later(l, &b);
    }
    before_fini(&b);
    if (st == USM_OK)
        return USM_OK;
    usm_event_release(l->ev);
    usm__heap_free(l);
err_free:
    free_open(o);
    return st;
}
