/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* See places.h.  There is one thread: the engine, told that the transport has none (PROGRESS), does
 * everything in calls.  What has ended in a step of the world is told to it after the step. */
#include "places.h"

#include "device/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES_MAX = 4096, HELD_MAX = 65536, CALL_NS = 200000 };

typedef struct shadow { /* of a transfer, while far has it */
    usm_transfer   t;
    struct shadow *next;
    usm_transfer  *whole;
    uint32_t       place;
    usm_status     status;
} shadow;

typedef struct held { /* the first sector of a slot */
    uint64_t slot_number, word;
    bool     is_known;
} held;

typedef struct place {
    uint32_t        peer;
    usm_place_state state;
} place;

static struct {
    world               *w;
    member              *m;
    far_store           *store;
    usm_transport_params params;
    place                places[PLACES_MAX];
    uint32_t             nplaces, untold;
    uint32_t             changed[PLACES_MAX]; /* to be told */
    unsigned             nchanged;
    shadow              *ended, **ended_end;
    uint64_t             under_way;
    held                 held[HELD_MAX];
    unsigned             nheld;
} s;

static held *held_at(uint64_t slot_number, bool makes)
{
    held *unused = NULL;

    for (unsigned i = 0; i < s.nheld; i++) {
        if (s.held[i].slot_number == slot_number)
            return &s.held[i];
        if (s.held[i].slot_number == UINT64_MAX)
            unused = &s.held[i];
    }
    if (!makes)
        return NULL;
    if (!unused && s.nheld == HELD_MAX)
        abort();
    unused  = unused ? unused : &s.held[s.nheld++];
    *unused = (held){.slot_number = slot_number};
    return unused;
}

unsigned places_with(uint64_t word, bool away)
{
    unsigned n = 0;

    for (unsigned i = 0; i < s.nheld; i++)
        n += s.held[i].slot_number != UINT64_MAX && s.held[i].is_known && s.held[i].word == word &&
             s.places[s.held[i].slot_number >> 48].state != USM_PLACE_LOST &&
             (away || s.places[s.held[i].slot_number >> 48].state != USM_PLACE_LEAVING);
    return n;
}

bool places_are_idle(void)
{
    return s.under_way == 0;
}

/* A block of a lender that lives, in the borrower's name. */
void places_forget_behind(void)
{
    for (unsigned i = 0; i < s.nheld; i++) {
        uint64_t slot_number = s.held[i].slot_number;

        if (slot_number != UINT64_MAX && s.places[slot_number >> 48].state == USM_PLACE_UP)
            far_forget(s.store, s.places[slot_number >> 48].peer, slot_number & (UINT64_MAX >> 16),
                       1);
    }
}

/* ---- the world goes on -------------------------------------------------------------------- */

/* Stops early when something has ended. */
static void go_on(uint64_t ns)
{
    uint64_t until = net_now(s.w->n) + ns;

    while (net_now(s.w->n) < until && !s.ended && s.nchanged == 0)
        world_run(s.w, until - net_now(s.w->n) < 20000 ? until - net_now(s.w->n) : 20000);
}

static void notify_changes(void)
{
    uint32_t        which;
    usm_place_state state;

    while (s.nchanged > 0) {
        which = s.changed[0];
        state = s.places[which].state;
        memmove(s.changed, s.changed + 1, --s.nchanged * sizeof s.changed[0]);
        if (s.store && s.params.place_changed)
            s.params.place_changed(s.params.user, which, state);
    }
}

static unsigned tell_ends(void)
{
    unsigned n = 0;
    shadow  *x;

    notify_changes();
    for (; s.ended; n++) {
        x           = s.ended;
        s.ended     = x->next;
        s.ended_end = s.ended ? s.ended_end : &s.ended;
        s.under_way--;
        if (x->status != USM_OK)
            (void)usm__registry_api.report(x->status, "the simulated place %u failed", x->place);
        x->whole->done(x->whole, x->status);
        free(x);
    }
    return n;
}

void places_run(uint64_t ns)
{
    uint64_t until = net_now(s.w->n) + ns;

    while (net_now(s.w->n) < until) {
        go_on(until - net_now(s.w->n));
        (void)tell_ends();
    }
}

/* ---- places --------------------------------------------------------------------------------- */

static void set_state(uint32_t which, usm_place_state state)
{
    if (s.places[which].state == state)
        return;
    s.places[which].state = state;
    if (s.nchanged < PLACES_MAX)
        s.changed[s.nchanged++] = which;
}

/* In a step. */
void places_changed(const far_member *f)
{
    uint32_t which = UINT32_MAX;

    for (uint32_t i = 0; i < s.nplaces; i++)
        if (s.places[i].peer == f->peer && s.places[i].state != USM_PLACE_LOST)
            which = i;
    if (f->state == FAR_UP && which == UINT32_MAX && f->lends > 0 && s.nplaces < PLACES_MAX) {
        which           = s.nplaces++;
        s.places[which] = (place){.peer = f->peer};
    }
    if (which == UINT32_MAX)
        return;
    set_state(which, f->state == FAR_UP     ? USM_PLACE_UP
                     : f->state == FAR_SLOW ? USM_PLACE_SLOW
                     : f->may_return        ? (f->is_silent ? USM_PLACE_LEAVING : USM_PLACE_SLOW)
                                            : USM_PLACE_LOST);
}

static uint32_t sim_places(void *store)
{
    (void)store;
    return s.nplaces;
}

static usm_status sim_place(void *store, uint32_t which, usm_transport_place *info)
{
    usm_status st = which < s.nplaces ? USM_OK : USM_E_INVALID;
    far_member list[NET_NODES_MAX];

    (void)store;
    if (st != USM_OK)
        return usm__registry_api.report(st, "there is no place %u", which);
    for (size_t i = far_members(s.m->node, list, NET_NODES_MAX); i-- > 0;)
        if (list[i].peer == s.places[which].peer) {
            *info = (usm_transport_place){.state     = s.places[which].state,
                                          .capacity  = list[i].lends,
                                          .available = list[i].available};
            (void)snprintf(info->domain, sizeof info->domain, "%.63s", list[i].domain);
        }
    return USM_OK;
}

/* ---- the store ------------------------------------------------------------------------------ */

static usm_status sim_open(const usm_transport_params *params, void **store)
{
    usm_status st;

    s.params = *params;
    st       = far_store_open(s.m->node, params->block_size, &s.store);
    *store   = &s;
    return st;
}

static void sim_close(void *store)
{
    (void)store;
    far_store_close(s.store);
    s.store = NULL;
    s.nheld = 0;
}

static usm_status sim_capacity(void *store, usm_transport_capacity *c)
{
    (void)store;
    *c = (usm_transport_capacity){
        .total = UINT64_MAX, .available = UINT64_MAX, .depth = 8, .is_volatile_memory = true};
    return USM_OK;
}

typedef struct room {
    bool       is_done;
    usm_status status;
} room;

static void reserved(void *room_, usm_status status)
{
    room *r = room_;

    r->is_done = true;
    r->status  = status;
}

/* Waits: the world goes on meanwhile. */
static usm_status sim_reserve(void *store, uint64_t first, uint64_t n)
{
    uint32_t which = (uint32_t)(first >> 48);
    room     r     = {false, USM_E_IO};

    (void)store;
    if (which >= s.nplaces || s.places[which].state == USM_PLACE_LOST) {
        return usm__registry_api.report(USM_E_IO, "place %u is lost", which);
    }
    far_reserve_start(s.store, s.places[which].peer, first & (UINT64_MAX >> 16), n, reserved, &r);
    while (!r.is_done)
        world_run(s.w, 10000);
    if (r.status != USM_OK)
        return usm__registry_api.report(r.status, "place %u gives no room", which);
    return USM_OK;
}

static void sim_forget(void *store, uint64_t first, uint64_t n)
{
    uint32_t which = (uint32_t)(first >> 48);

    (void)store;
    for (uint64_t i = first; i < first + n; i++) {
        held *h = held_at(i, false);

        if (h)
            h->slot_number = UINT64_MAX;
    }
    if (which < s.nplaces && s.places[which].state != USM_PLACE_LOST)
        far_forget(s.store, s.places[which].peer, first & (UINT64_MAX >> 16), n);
}

static void put_ended(shadow *x, usm_status status)
{
    x->status    = status;
    x->next      = NULL;
    *s.ended_end = x;
    s.ended_end  = &x->next;
}

/* In a step. */
static void shadow_done(usm_transfer *t, usm_status status)
{
    shadow *x = (shadow *)t;

    if (t->op == USM_TRANSFER_STORE && t->offset == 0) {
        held *h = held_at(x->whole->block, true);

        h->is_known = status == USM_OK;
        memcpy(&h->word, t->data, 8);
    }
    put_ended(x, status);
}

static void submit_one(usm_transfer *whole)
{
    shadow  *x     = calloc(1, sizeof *x);
    uint32_t which = (uint32_t)(whole->block >> 48);

    if (!x)
        abort();
    x->whole  = whole;
    x->place  = which;
    x->t      = *whole;
    x->t.done = shadow_done;
    x->t.next = NULL;
    s.under_way++;
    if (which >= s.nplaces || s.places[which].state == USM_PLACE_LOST)
        put_ended(x, USM_E_IO);
    else
        far_submit(s.store, s.places[which].peer, &x->t);
}

static void sim_submit(void *store, usm_transfer *list)
{
    (void)store;
    while (list) {
        usm_transfer *next = list->next;

        submit_one(list);
        list = next;
    }
}

static usm_status sim_sync(void *store)
{
    (void)store;
    return USM_OK;
}

static void sim_describe(void *store, char *text, size_t cap)
{
    (void)store;
    (void)snprintf(text, cap, "simulated lenders");
}

static usm_status sim_progress(void *store, uint32_t timeout_ms)
{
    (void)store;
    go_on(timeout_ms == 0 ? 1000 : CALL_NS);
    (void)tell_ends();
    return USM_OK;
}

static int sim_wait_fd(void *store)
{
    (void)store;
    return -1;
}

static const usm_transport_ops sim_ops = {.abi         = USM_MODULE_ABI,
                                          .struct_size = sizeof(usm_transport_ops),
                                          .name        = "sim",
                                          .caps =
                                              USM_TRANSPORT_CAP_PROGRESS | USM_TRANSPORT_CAP_PLACES,
                                          .open     = sim_open,
                                          .close    = sim_close,
                                          .capacity = sim_capacity,
                                          .reserve  = sim_reserve,
                                          .forget   = sim_forget,
                                          .submit   = sim_submit,
                                          .sync     = sim_sync,
                                          .describe = sim_describe,
                                          .progress = sim_progress,
                                          .wait_fd  = sim_wait_fd,
                                          .places   = sim_places,
                                          .place    = sim_place};

static const usm_transport_ops *sim_entry(const usm_host_api *api)
{
    (void)api;
    return &sim_ops;
}

void places_register(void)
{
    usm__registry_add_transport("sim", sim_entry);
}

void places_use(world *w, member *borrower)
{
    s.w         = w;
    s.m         = borrower;
    s.nplaces   = 0;
    s.nchanged  = 0;
    s.ended     = NULL;
    s.ended_end = &s.ended;
    s.nheld     = 0;
}
