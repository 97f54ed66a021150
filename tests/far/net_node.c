/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The simulated network's time and nodes: what happens to them, and what is known of it all
 * (net.h). Messages are net.c's. */
#include "net_private.h"

#include <stdlib.h>
#include <string.h>

enum { DEATH_TOLD_NS = 3000000, HEAD = 16384 };

/* ---- small things --------------------------------------------------------------------- */

void *net_grown(void *p, size_t size)
{
    p = realloc(p, size);
    if (!p)
        abort();
    return p;
}

void *net_zeroed(size_t size)
{
    void *p = calloc(1, size);

    if (!p)
        abort();
    return p;
}

void net_list_add(list *l, void *item)
{
    if (l->n == l->cap) {
        l->cap   = l->cap ? 2 * l->cap : 8;
        l->items = net_grown(l->items, l->cap * sizeof *l->items);
    }
    l->items[l->n++] = item;
}

void *net_list_take(list *l, size_t i)
{
    void *item = l->items[i];

    memmove(l->items + i, l->items + i + 1, (--l->n - i) * sizeof *l->items);
    return item;
}

uint64_t net_drawn(net *n, uint64_t below)
{
    n->random ^= n->random >> 12;
    n->random ^= n->random << 25;
    n->random ^= n->random >> 27;
    return (n->random * 0x2545F4914F6CDD1Du >> 33) % below;
}

void net_message_free(message *m)
{
    if (m)
        free(m->data);
    free(m);
}

/* Of large buffers only the beginning and the end hold the pattern. */
static size_t poisoned(const pending *p)
{
    return p->size > HEAD ? HEAD : p->size;
}

void net_poison(pending *p)
{
    if (p->size == 0)
        return;
    memset(p->buffer, POISON, poisoned(p));
    ((unsigned char *)p->buffer)[p->size - 1] = POISON;
}

bool net_holds_poison(const pending *p)
{
    const unsigned char *bytes = p->buffer;

    if (p->is_torn || p->size == 0)
        return true;
    return bytes[0] == POISON && memcmp(bytes, bytes + 1, poisoned(p) - 1) == 0 &&
           bytes[p->size - 1] == POISON;
}

/* ---- events --------------------------------------------------------------------------- */

static bool is_before(const event *a, const event *b)
{
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

void net_event_add(net *n, event e)
{
    size_t i = n->nevents++;

    if (n->nevents > n->cap) {
        n->cap    = n->cap ? 2 * n->cap : 64;
        n->events = net_grown(n->events, n->cap * sizeof *n->events);
    }
    e.time  = e.time < n->now ? n->now : e.time;
    e.order = n->order++;
    for (; i > 0 && is_before(&e, &n->events[(i - 1) / 2]); i = (i - 1) / 2)
        n->events[i] = n->events[(i - 1) / 2];
    n->events[i] = e;
}

static event event_take(net *n)
{
    event  first = n->events[0], last = n->events[--n->nevents];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < n->nevents) {
        if (child + 1 < n->nevents && is_before(&n->events[child + 1], &n->events[child]))
            child++;
        if (!is_before(&n->events[child], &last))
            break;
        n->events[i] = n->events[child];
        i            = child;
    }
    n->events[i] = last;
    return first;
}

void net_at(net *n, uint64_t time, void (*fn)(void *arg, uint64_t number), void *arg,
            uint64_t number)
{
    net_event_add(n, (event){.time = time, .fn = fn, .arg = arg, .number = number});
}

bool net_run_one(net *n)
{
    event e;

    if (n->nevents == 0)
        return false;
    e      = event_take(n);
    n->now = e.time;
    if (e.m)
        net_arrive(n, e.m);
    else
        e.fn(e.arg, e.number);
    return true;
}

static void pending_end(pending *p)
{
    free(p->copy);
    free(p);
}

/* ---- what happens to nodes ------------------------------------------------------------------ */

/* ULFM's word: of receives that name the dead, and of sends to it. */
static void tell_death(void *net_, uint64_t dead)
{
    net *n = net_;

    for (uint32_t i = 0; i < n->params.count; i++) {
        node *o = &n->nodes[i];

        for (size_t k = o->receives.n; k-- > 0;)
            if (((pending *)o->receives.items[k])->peer == dead)
                net_end_op(n, net_list_take(&o->receives, k), FAR_PEER_LOST);
        for (size_t k = o->stuck.n; k-- > 0;)
            if (((pending *)o->stuck.items[k])->peer == dead)
                net_end_op(n, net_list_take(&o->stuck, k), FAR_PEER_LOST);
    }
}

void net_kill(net *n, uint32_t dead)
{
    node *o = &n->nodes[dead];

    if (o->is_dead)
        return;
    o->is_dead = true;
    for (size_t i = 0; i < n->nevents; i++) { /* what is on its way */
        message *m = n->events[i].m;

        if (m && m->from == dead) {
            uint64_t fate = net_drawn(n, 4);

            m->send    = 0;
            m->is_torn = (fate == 0 || m->size > n->params.eager) && !m->is_header;
            if (fate == 1)
                m->to = dead; /* is lost with it */
        }
    }
    for (uint32_t i = 0; i < n->params.count; i++)
        for (size_t k = 0; k < n->nodes[i].unexpected.n; k++) {
            message *m = n->nodes[i].unexpected.items[k];

            if (m->from == dead)
                m->is_torn = m->send != 0;
            m->send = m->from == dead ? 0 : m->send;
        }
    if (n->params.tells_death)
        net_at(n, n->now + DEATH_TOLD_NS, tell_death, n, dead);
}

static void release(net *n, list *l)
{
    list all = *l;

    *l = (list){0};
    for (size_t i = 0; i < all.n; i++)
        net_arrive(n, all.items[i]);
    free(all.items);
}

void net_hang(net *n, uint32_t which, bool hangs)
{
    n->nodes[which].is_hung = hangs;
    if (!hangs) {
        release(n, &n->nodes[which].stalled);
        n->params.notice(n->params.user, which);
    }
}

void net_cut(net *n, uint32_t from, uint32_t to, bool is_cut, bool drops)
{
    n->is_cut[from][to] = is_cut;
    n->drops[from][to]  = drops;
    n->hurt[from][to]   = true;
    if (!is_cut)
        release(n, &n->held);
}

void net_abandon(net *n, uint32_t which)
{
    n->nodes[which].is_abandoned = true;
}

void net_set_faults(net *n, const net_faults *faults)
{
    n->faults = *faults;
}

void net_sniff(net *n,
               void (*fn)(void *arg, uint32_t from, uint32_t tag, const void *bytes, size_t size),
               void *arg)
{
    n->sniff     = fn;
    n->sniff_arg = arg;
}

void net_set_untold(net *n, const net_faults *faults)
{
    n->faults    = *faults;
    n->is_untold = true;
}

void net_scribble(net *n)
{
    for (uint32_t i = 0; i < n->params.count; i++)
        if (n->nodes[i].receives.n > 0)
            memset(((pending *)n->nodes[i].receives.items[0])->buffer, 1, 1);
}

void net_plan(net *n, uint32_t which, net_moment moment, unsigned nth, net_end how)
{
    n->nodes[which].plan = (plan){moment, how, nth};
}

/* ---- what is known of it --------------------------------------------------------------------- */

bool net_is_cut(const net *n, uint32_t from, uint32_t to)
{
    return n->is_cut[from][to];
}

bool net_is_dead(const net *n, uint32_t which)
{
    return n->nodes[which].is_dead;
}

bool net_is_hung(const net *n, uint32_t which)
{
    return n->nodes[which].is_hung;
}

uint64_t net_last_heard(const net *n, uint32_t from, uint32_t to)
{
    return n->heard[from][to];
}

uint64_t net_last_reached(const net *n, uint32_t from, uint32_t to)
{
    return n->reached[from][to];
}

uint64_t net_silence(const net *n, uint32_t from, uint32_t to)
{
    uint64_t now = n->now - n->heard[from][to];

    return now > n->silence[from][to] ? now : n->silence[from][to];
}

bool net_hurt_data(const net *n, uint32_t from, uint32_t to)
{
    return n->hurt_data[from][to];
}

bool net_hurt(const net *n, uint32_t a, uint32_t b)
{
    return n->hurt[a][b] || n->hurt[b][a];
}

static bool overlaps(const void *a, size_t na, const void *b, size_t nb)
{
    return (uintptr_t)a < (uintptr_t)b + nb && (uintptr_t)b < (uintptr_t)a + na;
}

static bool list_owns(const list *l, const void *p, size_t size, bool sends)
{
    for (size_t i = 0; i < l->n; i++) {
        const pending *op = l->items[i];

        if (op->is_send && !sends)
            continue;
        if (overlaps(p, size, op->buffer, op->size) || overlaps(p, size, op->op, sizeof *op->op))
            return true;
    }
    return false;
}

static bool owns(const node *o, const void *p, size_t size, bool sends)
{
    return list_owns(&o->receives, p, size, sends) || list_owns(&o->stuck, p, size, sends) ||
           list_owns(&o->ended, p, size, sends);
}

bool net_owns(const net *n, uint32_t which, const void *p, size_t size)
{
    return owns(&n->nodes[which], p, size, true);
}

bool net_receives(const net *n, uint32_t which, const void *p, size_t size)
{
    return owns(&n->nodes[which], p, size, false);
}

static uint64_t list_bytes(const list *l)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < l->n; i++)
        if (!net_is_header(((pending *)l->items[i])->tag, ((pending *)l->items[i])->size))
            sum += ((pending *)l->items[i])->size;
    return sum;
}

uint64_t net_held(const net *n, uint32_t which)
{
    const node *o = &n->nodes[which];

    return list_bytes(&o->receives) + list_bytes(&o->stuck) + list_bytes(&o->ended);
}

void net_check(const net *n)
{
    for (uint32_t i = 0; i < n->params.count; i++)
        for (size_t k = 0; k < n->nodes[i].receives.n; k++)
            if (!net_holds_poison(n->nodes[i].receives.items[k]))
                n->params.found(n->params.user,
                                "memory was changed while a receive was under way in it");
}

void net_get_stats(const net *n, net_stats *stats)
{
    *stats = n->stats;
}

uint64_t net_now(const net *n)
{
    return n->now;
}

far_link *net_link(net *n, uint32_t which)
{
    return &n->nodes[which].link;
}

/* ---- its beginning and end ------------------------------------------------------------------- */

net *net_create(const net_params *params)
{
    net *n = net_zeroed(sizeof *n);

    n->params = *params;
    n->random = params->seed * 0x9E3779B97F4A7C15u | 1;
    n->now    = 1000000000;
    for (uint32_t i = 0; i < params->count; i++) {
        n->nodes[i].link.ops = &net_link_ops;
        n->nodes[i].n        = n;
        n->nodes[i].self     = i;
        for (uint32_t k = 0; k < params->count; k++)
            n->heard[i][k] = n->reached[i][k] = n->now;
    }
    return n;
}

static void free_messages(list *l)
{
    for (size_t i = 0; i < l->n; i++)
        net_message_free(l->items[i]);
    free(l->items);
}

static void free_pending(list *l)
{
    for (size_t i = 0; i < l->n; i++)
        pending_end(l->items[i]);
    free(l->items);
}

void net_destroy(net *n)
{
    for (size_t i = 0; i < n->nevents; i++)
        net_message_free(n->events[i].m);
    for (uint32_t i = 0; i < n->params.count; i++) {
        free_messages(&n->nodes[i].unexpected);
        free_messages(&n->nodes[i].stalled);
        free_pending(&n->nodes[i].receives);
        free_pending(&n->nodes[i].ended);
        free_pending(&n->nodes[i].stuck);
    }
    free_messages(&n->held);
    free(n->events);
    free(n->slots);
    free(n);
}
