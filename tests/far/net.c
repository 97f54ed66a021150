/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The simulated network (net.h).
 *
 *     send() --copy--> faults --event at its arrival--> match with a receive, or wait for one
 *                                                          |
 *     poll() <---- operations that have ended, of the node <-- bytes are written here, at arrival
 *
 * So memory is written whether or not its owner polls, and poll() only tells.  A node that hangs
 * takes nothing: what comes waits until it goes on. */
#include "net_private.h"

#include <stdlib.h>
#include <string.h>

static bool happens(net *n, unsigned per_thousand)
{
    return per_thousand > 0 && net_drawn(n, 1000) < per_thousand;
}

static void pending_free(pending *p)
{
    free(p->copy);
    free(p);
}

/* ---- operations that end ---------------------------------------------------------------- */

void net_end_op(net *n, pending *p, far_result result)
{
    p->result = result;
    net_list_add(&n->nodes[p->node].ended, p);
    if (!n->nodes[p->node].is_abandoned)
        n->params.notice(n->params.user, p->node);
}

/* The send of this message; if it was sent twice, it may have ended. */
static void end_send(net *n, uint32_t from, uint64_t number)
{
    list *l = &n->nodes[from].stuck;

    for (size_t i = 0; i < l->n; i++)
        if (((pending *)l->items[i])->number == number) {
            net_end_op(n, net_list_take(l, i), FAR_OK);
            return;
        }
}

static void write_into(net *n, pending *r, const message *m)
{
    size_t     size   = m->size < r->size ? m->size : r->size;
    far_result result = m->size > r->size ? FAR_TRUNCATED : FAR_OK;

    if (!net_holds_poison(r))
        n->params.found(n->params.user, "memory was changed while a receive was under way in it");
    if (n->nodes[m->to].is_abandoned)
        n->stats.late_writes++;
    if (result == FAR_TRUNCATED)
        memset(r->buffer, (int)net_drawn(n, 256), r->size);
    else if (size > 0)
        memcpy(r->buffer, m->data, size);
    r->op->size = size;
    r->op->peer = m->from;
    net_end_op(n, r, result);
}

/* Half of it came, no more will. */
static void tear_into(net *n, pending *r, const message *m)
{
    size_t size = m->size < r->size ? m->size : r->size;

    memcpy(r->buffer, m->data, size / 2);
    r->is_torn = true;
    n->stats.torn++;
    net_list_add(&n->nodes[m->to].stuck, r);
}

static bool fits(const pending *r, const message *m)
{
    return r->tag == m->tag && (r->peer == FAR_ANY || r->peer == m->from);
}

static void received(net *n, pending *r, message *m)
{
    if (m->is_torn)
        tear_into(n, r, m);
    else
        write_into(n, r, m);
    if (m->send && !m->is_torn)
        end_send(n, m->from, m->send);
    net_message_free(m);
}

/* ---- arrival -------------------------------------------------------------------------- */

static void come_to_pass(net *n, node *o, net_moment moment)
{
    if (o->plan.nth == 0 || o->plan.moment != moment || --o->plan.nth > 0 || o->is_dead)
        return;
    if (o->plan.how == NET_KILL)
        net_kill(n, o->self);
    n->params.ended(n->params.user, o->self, o->plan.how);
}

void net_arrive(net *n, message *m)
{
    node *to = &n->nodes[m->to];

    come_to_pass(n, to, m->is_header ? NET_HEADER_COMES : NET_DATA_COMES);
    if (to->is_dead) { /* its sender is told by net_kill(), or never */
        net_message_free(m);
        return;
    }
    if (n->is_cut[m->from][m->to]) {
        n->hurt[m->from][m->to] = true;
        net_list_add(&n->held, m);
        return;
    }
    if (to->is_hung) {
        net_list_add(&to->stalled, m);
        return;
    }
    n->stats.from_the_dead += n->nodes[m->from].is_dead;
    for (size_t i = 0; i < to->receives.n; i++)
        if (fits(to->receives.items[i], m)) {
            received(n, net_list_take(&to->receives, i), m);
            return;
        }
    if (m->is_torn)
        net_message_free(m);
    else
        net_list_add(&to->unexpected, m);
}

/* ---- sending ---------------------------------------------------------------------------- */

static uint64_t *slot_of(net *n, const message *m)
{
    for (size_t i = 0; i < n->nlanes; i++)
        if (n->slots[i].from == m->from && n->slots[i].to == m->to && n->slots[i].tag == m->tag)
            return &n->slots[i].last;
    if (n->nlanes == n->slots_cap) {
        n->slots_cap = n->slots_cap ? 2 * n->slots_cap : 64;
        n->slots     = net_grown(n->slots, n->slots_cap * sizeof *n->slots);
    }
    n->slots[n->nlanes] = (slot){m->from, m->to, m->tag, 0};
    return &n->slots[n->nlanes++].last;
}

static void hurts(net *n, const message *m, bool data)
{
    if (n->is_untold)
        return;
    n->hurt[m->from][m->to] = true;
    n->hurt_data[m->from][m->to] |= data && !m->is_header;
}

static void count_fault(net *n, const message *m, uint64_t *counter)
{
    ++*counter;
    n->stats.faults++;
    hurts(n, m, false);
}

static void damage(net *n, message *m, const net_rates *rates)
{
    if (m->size > 0 && happens(n, rates->flipped)) {
        m->data[net_drawn(n, m->size)] ^= (unsigned char)(1u << net_drawn(n, 8));
        hurts(n, m, true);
        count_fault(n, m, &n->stats.flipped);
    }
    if (m->size > 0 && happens(n, rates->cut)) {
        size_t size = net_drawn(n, 3) ? net_drawn(n, m->size) : m->size + 1 + net_drawn(n, 64);

        m->data = net_grown(m->data, size + 1);
        if (size > m->size)
            memset(m->data + m->size, 0x77, size - m->size);
        m->size = size;
        count_fault(n, m, &n->stats.cut);
    }
}

static void put_on_wire(net *n, message *m, const net_rates *rates)
{
    uint64_t  latency = n->params.latency_ns * (1 + net_drawn(n, 3)) + net_drawn(n, 5000) + m->size;
    uint64_t *last, at;

    if (happens(n, rates->late)) {
        latency += n->params.late_ns / 4 + net_drawn(n, 3 * n->params.late_ns);
        count_fault(n, m, &n->stats.late);
    }
    at = n->now + latency;
    if (happens(n, rates->reordered)) {
        hurts(n, m, true);
        count_fault(n, m, &n->stats.reordered);
        at += net_drawn(n, 8 * n->params.latency_ns);
    } else {
        last  = slot_of(n, m);
        at    = at > *last ? at : *last + 1;
        *last = at;
    }
    net_event_add(n, (event){.time = at, .m = m});
}

static void twice(net *n, const message *m, const net_rates *rates)
{
    message *again = net_zeroed(sizeof *again);

    *again      = *m;
    again->data = net_zeroed(m->size + 1);
    memcpy(again->data, m->data, m->size);
    count_fault(n, m, &n->stats.doubled);
    put_on_wire(n, again, rates);
}

static void launch(net *n, message *m)
{
    static const net_rates none;
    const net_rates       *rates = m->is_header ? &n->faults.header : &n->faults.data;

    n->stats.messages++;
    n->stats.bytes += m->size;
    if (n->nodes[m->to].is_dead || (n->is_cut[m->from][m->to] && n->drops[m->from][m->to])) {
        n->hurt[m->from][m->to] = true;
        net_message_free(m);
        return;
    }
    if (m->from != m->to && happens(n, rates->dropped)) {
        count_fault(n, m, &n->stats.dropped);
        net_message_free(m);
        return;
    }
    if (m->from == m->to)
        rates = &none;
    damage(n, m, rates);
    if (happens(n, rates->doubled))
        twice(n, m, rates);
    put_on_wire(n, m, rates);
}

static pending *pend(net *n, node *o, far_op *op, bool is_send)
{
    pending *p = net_zeroed(sizeof *p);

    if (op->tag > 32767 || (op->peer >= n->params.count && (is_send || op->peer != FAR_ANY)))
        n->params.found(n->params.user, "an operation with a peer or tag that does not exist");
    *p            = (pending){.op = op, .node = o->self, .is_send = is_send};
    p->peer       = op->peer;
    p->tag        = op->tag;
    p->size       = op->size;
    p->buffer     = op->buffer;
    op->opaque[0] = (uint64_t)(uintptr_t)p;
    return p;
}

static void link_send(far_link *l, far_op *op)
{
    node    *o = (node *)l;
    net     *n = o->n;
    pending *p = pend(n, o, op, true);
    message *m = net_zeroed(sizeof *m);

    if (op->size > 0 && net_receives(n, o->self, op->buffer, op->size))
        n->params.found(n->params.user, "a send from memory that a receive has");
    p->copy = net_zeroed(op->size + 1);
    if (op->size > 0)
        memcpy(p->copy, op->buffer, op->size);
    *m      = (message){.size = op->size, .from = o->self, .to = op->peer, .tag = op->tag};
    m->data = net_zeroed(op->size + 1);
    memcpy(m->data, p->copy, op->size);
    m->is_header = net_is_header(op->tag, op->size);
    come_to_pass(n, o, m->is_header ? NET_HEADER_GOES : NET_DATA_GOES);
    p->number = ++n->sends;
    net_list_add(&o->stuck, p);
    if (op->size > n->params.eager)
        m->send = p->number;
    else
        end_send(n, o->self, p->number);
    if (n->sniff)
        n->sniff(n->sniff_arg, o->self, m->tag, m->data, m->size);
    if (o->is_dead)
        net_message_free(m);
    else
        launch(n, m);
    come_to_pass(n, o, net_is_header(p->tag, p->size) ? NET_HEADER_GONE : NET_DATA_GONE);
}

static void link_receive(far_link *l, far_op *op)
{
    node    *o = (node *)l;
    net     *n = o->n;
    pending *p;

    if (op->size > 0 && net_owns(n, o->self, op->buffer, op->size))
        n->params.found(n->params.user, "a receive into memory that another operation has");
    p = pend(n, o, op, false);
    net_poison(p);
    for (size_t i = 0; i < o->unexpected.n; i++)
        if (fits(p, o->unexpected.items[i])) {
            received(n, p, net_list_take(&o->unexpected, i));
            return;
        }
    if (n->params.tells_death && p->peer != FAR_ANY && n->nodes[p->peer].is_dead)
        net_end_op(n, p, FAR_PEER_LOST);
    else
        net_list_add(&o->receives, p);
}

/* ---- the rest of a link ------------------------------------------------------------------ */

static void check_ended(net *n, const pending *p)
{
    if (p->op->opaque[0] != (uint64_t)(uintptr_t)p || !p->op->done)
        n->params.found(n->params.user, "an operation was changed while it was under way");
    if (p->is_send && memcmp(p->copy, p->buffer, p->size) != 0)
        n->params.found(n->params.user, "memory was changed while it was being sent");
    if (!p->is_send)
        n->reached[p->op->peer % NET_NODES_MAX][p->node] = n->now;
    if (!p->is_send && p->result == FAR_OK && p->tag == NET_TAG_HEADER &&
        p->op->size % NET_HEADER == 0) {
        n->silence[p->op->peer][p->node] = net_silence(n, p->op->peer, p->node);
        n->heard[p->op->peer][p->node]   = n->now;
    }
}

static unsigned link_poll(far_link *l)
{
    node    *o     = (node *)l;
    unsigned count = 0;
    size_t   due   = o->ended.n;

    for (; due > 0 && o->ended.n > 0 && !o->is_dead; due--, count++) {
        pending   *p      = net_list_take(&o->ended, net_drawn(o->n, 4) ? 0 : net_drawn(o->n, due));
        far_op    *op     = p->op;
        far_result result = p->result;

        check_ended(o->n, p);
        pending_free(p);
        op->done(op, result);
    }
    return count;
}

static uint32_t link_self(far_link *l)
{
    return ((node *)l)->self;
}

static uint32_t link_count(far_link *l)
{
    return ((node *)l)->n->params.count;
}

static uint64_t link_now(far_link *l)
{
    return ((node *)l)->n->now;
}

const far_link_ops net_link_ops = {link_self,    link_count, link_send,
                                   link_receive, link_poll,  link_now};

void net_inject(net *n, uint32_t from, uint32_t to, uint32_t tag, const void *bytes, size_t size)
{
    message *m = net_zeroed(sizeof *m);

    *m      = (message){.size = size, .from = from, .to = to, .tag = tag};
    m->data = net_zeroed(size + 1);
    if (size > 0)
        memcpy(m->data, bytes, size);
    m->is_header      = net_is_header(tag, size);
    n->hurt[from][to] = n->hurt_data[from][to] = true;
    launch(n, m);
}
