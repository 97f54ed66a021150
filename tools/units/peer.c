/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One unit, seen from usm-run: see peer.h. */
#include "units/peer.h"

#include "base/os.h"

#include <stdio.h>
#include <string.h>

static const char no_memory[] = "no memory is left for it";
static const char not_asked[] = "it answers what it was not asked";

void peer_init(peer *p)
{
    p->last = &p->first;
}

/* ---- events ---------------------------------------------------------------------------------- */

static const char *add_event(peer *p, const usm__unit_event *ev)
{
    peer_event *e = usm__heap_alloc(sizeof *e);

    if (!e) {
        usm__heap_free(ev->data);
        return no_memory;
    }
    e->event      = *ev;
    e->event.unit = p->unit;
    e->event.link = p->link;
    *p->last      = e;
    p->last       = &e->next;
    return NULL;
}

bool peer_next(peer *p, usm__unit_event *ev)
{
    peer_event *e = p->first;

    if (!e)
        return false;
    *ev      = e->event;
    p->first = e->next;
    if (!p->first)
        p->last = &p->first;
    usm__heap_free(e);
    return true;
}

static void drop_events(peer *p)
{
    usm__unit_event ev;

    while (peer_next(p, &ev))
        usm__heap_free(ev.data);
}

void peer_lose(peer *p)
{
    if (p->phase == PEER_LOST)
        return;
    drop_events(p);
    p->phase = PEER_LOST;
    p->nasks = p->nsent = 0;
    /* Without memory for it the run goes on, and ends by its own failure */
    (void)add_event(p, &(usm__unit_event){.kind = USM__UNIT_LOST});
}

void peer_fini(peer *p)
{
    drop_events(p);
    usm__heap_free(p->can);
    usm__heap_free(p->asks);
    usm__heap_free(p->sent);
}

/* ---- what is asked of it --------------------------------------------------------------------- */

bool peer_hello(peer *p, const char *who)
{
    unit_frame f = {.op = UNIT_HELLO, .first = UNIT_LEAST, .count = UNIT_MOST, .size = strlen(who)};

    return p->put(p->user, &f, who, false);
}

static bool add_sent(peer *p, uint64_t bytes, uint64_t *number)
{
    if (!usm__heap_room(&p->sent, p->nsent, &p->sent_cap, sizeof *p->sent))
        return false;
    *number             = ++p->numbers;
    p->sent[p->nsent++] = (peer_sent){.number = *number, .bytes = bytes};
    return true;
}

static bool add_ask(peer *p, const peer_ask *ask)
{
    if (!usm__heap_room(&p->asks, p->nasks, &p->asks_cap, sizeof *p->asks))
        return false;
    p->asks[p->nasks++] = *ask;
    return true;
}

bool peer_send(peer *p, const usm__graph_range *range, const void *data, uint64_t size)
{
    unit_frame f = {.op    = UNIT_BLOCKS,
                    .node  = range->node,
                    .first = range->first,
                    .count = range->count,
                    .size  = size};

    p->bytes_sent += size;
    return add_sent(p, size, &f.number) && p->put(p->user, &f, data, false);
}

bool peer_fetch(peer *p, const usm__graph_range *range, uint64_t size)
{
    unit_frame f = {
        .op = UNIT_FETCH, .node = range->node, .first = range->first, .count = range->count};

    return add_ask(p, &(peer_ask){.range = *range, .is_fetch = true, .size = size}) &&
           p->put(p->user, &f, NULL, false);
}

bool peer_run(peer *p, uint32_t part, const usm__graph_range *range, uint64_t size, bool comes)
{
    unit_frame f = {
        .op = UNIT_RUN, .flags = comes ? UNIT_COMES : 0, .node = range->node, .first = part};

    if (comes && !add_ask(p, &(peer_ask){.range = *range, .part = part, .size = size}))
        return false;
    p->runs++;
    return p->put(p->user, &f, NULL, false);
}

bool peer_unroll(peer *p, uint32_t node, uint32_t parts)
{
    return p->put(p->user, &(unit_frame){.op = UNIT_UNROLL, .node = node, .count = parts}, NULL,
                  false);
}

bool peer_drop(peer *p, uint32_t node)
{
    return p->put(p->user, &(unit_frame){.op = UNIT_DROP, .node = node}, NULL, false);
}

/* The time of a fetch begins with the question, that of bytes with the first of them. */
void peer_begins(peer *p, const unit_frame *f, uint64_t now_ns)
{
    for (uint32_t i = 0; i < p->nsent && (f->op == UNIT_BLOCKS || f->op == UNIT_ECHO); i++)
        if (p->sent[i].number == f->number)
            p->sent[i].begin_ns = now_ns;
    for (uint32_t i = 0; i < p->nasks && f->op == UNIT_FETCH; i++)
        if (p->asks[i].is_fetch && p->asks[i].range.node == f->node &&
            p->asks[i].range.first == f->first && !p->asks[i].begin_ns)
            p->asks[i].begin_ns = now_ns;
}

/* Transfers follow each other: this one began when the one before it had ended, or later. */
static void measure(peer *p, uint64_t bytes, uint64_t begin_ns, uint64_t now_ns)
{
    uint64_t begin = begin_ns > p->last_end_ns ? begin_ns : p->last_end_ns;

    if (begin_ns && now_ns > begin)
        usm__link_measure(&p->link, bytes, (double)(now_ns - begin) / 1e9);
    p->last_end_ns = now_ns;
}

/* ---- what may come --------------------------------------------------------------------------- */

static uint32_t find_ask(const peer *p, const unit_frame *f)
{
    uint32_t i = 0;

    while (i < p->nasks &&
           (p->asks[i].range.node != f->node || p->asks[i].range.first != f->first ||
            p->asks[i].range.count != f->count || p->asks[i].size != f->size))
        i++;
    return i;
}

static bool is_expected(const peer *p, const unit_frame *f)
{
    switch ((unit_op)f->op) {
    case UNIT_HELLO:
        return p->phase == PEER_STARTS && f->size <= UNIT_TEXT;
    case UNIT_WANT:
        return p->phase == PEER_TALKS && !p->has_wanted && f->size == p->app->nimages;
    case UNIT_READY:
        return p->phase == PEER_TALKS && p->has_wanted && f->size == p->app->nnodes;
    case UNIT_REFUSE:
        return p->phase == PEER_TALKS && f->size <= UNIT_TEXT;
    case UNIT_ECHO:
    case UNIT_GOT:
        return f->size == 0 && p->nsent > 0 && p->sent[0].number == f->number;
    case UNIT_BLOCKS:
        return p->phase == PEER_WORKS && find_ask(p, f) < p->nasks;
    case UNIT_DONE:
        return p->phase == PEER_WORKS && p->runs > 0 && f->size == UNIT_SPEED;
    case UNIT_FAILED:
        return p->phase == PEER_WORKS && p->runs > 0 && f->size <= UNIT_TEXT;
    case UNIT_ALIVE:
        return p->phase != PEER_STARTS && f->size == 0;
    case UNIT_APP:
    case UNIT_FILE:
    case UNIT_UNROLL:
    case UNIT_FETCH:
    case UNIT_RUN:
    case UNIT_DROP:
    case UNIT_BYE:
    case UNIT_OPS:
        break;
    }
    return false;
}

const char *peer_expects(peer *p, const unit_frame *f)
{
    return is_expected(p, f) ? NULL : not_asked;
}

/* ---- what came ------------------------------------------------------------------------------- */

static const char *on_hello(peer *p, const unit_frame *f, const unsigned char *bytes)
{
    unit_frame     app = {.op = UNIT_APP}, echo = {.op = UNIT_ECHO};
    unsigned char *text;

    unit_text(p->who, sizeof p->who, bytes, (size_t)f->size);
    if (!unit_version(f)) {
        (void)snprintf(
            p->why, sizeof p->why,
            "it speaks versions %u to %u of the protocol, and this usm-run %d to %d: put "
            "the same libusm on both machines",
            f->first, f->count, UNIT_LEAST, UNIT_MOST);
        return p->why;
    }
    p->phase = PEER_TALKS;
    text     = unit_app_encode(p->app, &app.size);
    if (!text || !add_sent(p, 0, &echo.number) || !p->put(p->user, &echo, NULL, false) ||
        !p->put(p->user, &app, text, true))
        return no_memory;
    return NULL;
}

static const char *on_want(peer *p, const unsigned char *bytes)
{
    p->has_wanted = true;
    for (uint32_t i = 0; i < p->app->nimages; i++) {
        unit_frame f = {.op = UNIT_FILE, .first = i, .size = p->app->images[i].size};

        if (bytes[i] && !p->put(p->user, &f, p->app->images[i].data, false))
            return no_memory;
    }
    return NULL;
}

static const char *on_ready(peer *p, const unit_frame *f, unsigned char **bytes)
{
    p->phase = PEER_WORKS;
    p->can   = *bytes;
    *bytes   = NULL;
    return add_event(
        p, &(usm__unit_event){.kind = USM__UNIT_CAME, .devices = f->count, .can = p->can});
}

static void drop_ask(peer *p, uint32_t at)
{
    p->nasks--;
    memmove(&p->asks[at], &p->asks[at + 1], (p->nasks - at) * sizeof *p->asks);
}

static const char *on_blocks(peer *p, const unit_frame *f, unsigned char **bytes, uint64_t now_ns)
{
    uint32_t        at = find_ask(p, f);
    usm__unit_event ev = {.kind = USM__UNIT_BLOCKS, .range = p->asks[at].range, .data = *bytes};

    measure(p, f->size, p->asks[at].begin_ns, now_ns);
    drop_ask(p, at);
    p->bytes_come += f->size;
    *bytes = NULL;
    return add_event(p, &ev);
}

/* A launch has ended: blocks of it that have not come will not. */
static const char *on_end(peer *p, const unit_frame *f, const unsigned char *bytes)
{
    usm__unit_event ev = {.kind    = f->op == UNIT_DONE ? USM__UNIT_DONE : USM__UNIT_FAILED,
                          .range   = {f->node, f->first, 1},
                          .busy_ns = f->number,
                          .status  = f->status < 0 ? (usm_status)f->status : USM_E_IO};

    p->runs--;
    for (uint32_t i = p->nasks; i-- > 0;)
        if (!p->asks[i].is_fetch && p->asks[i].range.node == f->node && p->asks[i].part == f->first)
            drop_ask(p, i);
    if (f->op == UNIT_DONE) {
        ev.speed = unit_get_speed(bytes);
        p->ended++;
    } else {
        unit_text(ev.message, sizeof ev.message, bytes, (size_t)f->size);
    }
    return add_event(p, &ev);
}

static const char *on_confirmed(peer *p, uint64_t now_ns)
{
    measure(p, p->sent[0].bytes, p->sent[0].begin_ns, now_ns);
    p->nsent--;
    memmove(&p->sent[0], &p->sent[1], p->nsent * sizeof *p->sent);
    return NULL;
}

static const char *on_refuse(peer *p, const unit_frame *f, const unsigned char *bytes)
{
    char text[UNIT_TEXT + 1];

    unit_text(text, sizeof text, bytes, (size_t)f->size);
    (void)snprintf(p->why, sizeof p->why, "it cannot take part: %s", text);
    return p->why;
}

static const char *take(peer *p, const unit_frame *f, unsigned char **bytes, uint64_t now_ns)
{
    switch ((unit_op)f->op) {
    case UNIT_HELLO:
        return on_hello(p, f, *bytes);
    case UNIT_WANT:
        return on_want(p, *bytes);
    case UNIT_READY:
        return on_ready(p, f, bytes);
    case UNIT_REFUSE:
        return on_refuse(p, f, *bytes);
    case UNIT_BLOCKS:
        return on_blocks(p, f, bytes, now_ns);
    case UNIT_DONE:
    case UNIT_FAILED:
        return on_end(p, f, *bytes);
    case UNIT_ECHO:
    case UNIT_GOT:
        return on_confirmed(p, now_ns);
    case UNIT_ALIVE:
        return NULL;
    case UNIT_APP:
    case UNIT_FILE:
    case UNIT_UNROLL:
    case UNIT_FETCH:
    case UNIT_RUN:
    case UNIT_DROP:
    case UNIT_BYE:
    case UNIT_OPS:
        break;
    }
    return not_asked;
}

const char *peer_take(peer *p, const unit_frame *f, unsigned char *bytes, uint64_t now_ns)
{
    const char *why = take(p, f, &bytes, now_ns);

    usm__heap_free(bytes);
    return why;
}
