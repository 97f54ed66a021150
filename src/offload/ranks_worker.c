/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A rank's own part of a launch: what it was granted, and what it reports (ranks_state.h).
 *
 * Results are reported together: they are held back while every member has enough to do.  A rank
 * that has work sends a sign of life every USM__RANKS_ALIVE_NS, unless it has sent something
 * else. */
#include "offload/ranks_state.h"

#include "base/inline/bytes.h"
#include "base/os.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

/* in one message */
#define RECORDS_MAX 1024u
/* Ends are reported together while every member has work for that long, half of a batch. */
#define KEEP_NS  UINT64_C(4000000)
#define KEPT_MAX 64u

usm_status usm__worker_init(usm__worker *w, const usm__worker_params *params)
{
    size_t n = params->nmembers ? params->nmembers : 1;

    memset(w, 0, sizeof *w);
    w->params = *params;
    w->cut    = UINT64_MAX;
    w->queues = usm__heap_alloc(n * sizeof *w->queues);
    if (!w->queues)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the work of %zu members", n);
    return USM_OK;
}

void usm__worker_fini(usm__worker *w)
{
    for (uint32_t i = 0; w->queues && i < w->params.nmembers; i++)
        usm__heap_free(w->queues[i].chunks);
    usm__heap_free(w->queues);
    usm__heap_free(w->done);
    memset(w, 0, sizeof *w);
}

static void notify_master(usm__worker *w, const usm__wire *msg)
{
    w->params.send(w->params.arg, w->params.master, msg);
}

void usm__worker_start(usm__worker *w, uint64_t now_ns)
{
    unsigned char bytes[USM__WIRE_SHAPE + USM__RANKS_MEMBERS];
    usm__wire     msg = {.op    = USM__WIRE_READY,
                         .flags = w->params.wants_progress ? USM__WIRE_WATCHES : 0,
                         .a     = w->params.home,
                         .b     = w->params.max_chunk,
                         .size  = USM__WIRE_SHAPE + w->params.nmembers,
                         .bytes = bytes};

    if (msg.size > sizeof bytes)
        msg.size = sizeof bytes; /* members beyond take no part */
    memcpy(bytes, w->params.shape, USM__WIRE_SHAPE);
    if (msg.size > USM__WIRE_SHAPE)
        memcpy(bytes + USM__WIRE_SHAPE, w->params.takes_part, msg.size - USM__WIRE_SHAPE);
    notify_master(w, &msg);
    w->spoke_ns = now_ns;
}

/* ---- granted chunks ------------------------------------------------------------------------ */

static bool grow(usm__worker_queue *q)
{
    uint32_t    room = q->room ? 2 * q->room : 8;
    usm__chunk *more = usm__heap_alloc(room * sizeof *more);

    if (!more)
        return false;
    for (uint32_t i = 0; i < q->count; i++)
        more[i] = q->chunks[(q->first + i) % q->room];
    usm__heap_free(q->chunks);
    q->chunks = more;
    q->room   = room;
    q->first  = 0;
    return true;
}

static void give_up(usm__worker *w, uint32_t member, uint64_t id, usm_status status, uint8_t flags,
                    const char *reason)
{
    const usm__wire msg = {.op     = USM__WIRE_FAILED,
                           .flags  = flags,
                           .status = status,
                           .index  = member,
                           .a      = id,
                           .size   = (uint32_t)strnlen(reason, USM__RANKS_STORY - 1),
                           .bytes  = (const unsigned char *)reason};

    notify_master(w, &msg);
}

static void say_done(usm__worker *w, uint32_t member, uint64_t id, uint64_t compute_ns,
                     uint64_t cut)
{
    const usm__wire_record r = {member, 0, id, compute_ns, cut};

    if (usm__heap_room(&w->done, w->ndone, &w->room, USM__WIRE_RECORD))
        usm__wire_put_record(w->done + (size_t)w->ndone++ * USM__WIRE_RECORD, &r);
    else
        give_up(w, member, id, USM_E_NO_MEMORY, 0, "no host memory to say that a chunk is done");
}

static void keep_grant(usm__worker *w, const usm__wire_record *r)
{
    usm__worker_queue *q = r->member < w->params.nmembers ? &w->queues[r->member] : NULL;

    if (!q)
        return;
    if (r->b == 0 || r->a > w->params.total || r->b > w->params.total - r->a) {
        give_up(w, r->member, r->id, USM_E_INVALID, USM__WIRE_FATAL,
                "it got indices that the launch does not have");
        return;
    }
    if (r->a >= w->cut) {
        say_done(w, r->member, r->id, 0, UINT64_MAX);
        return;
    }
    if (q->count == q->room && !grow(q)) {
        give_up(w, r->member, r->id, USM_E_NO_MEMORY, 0, "no host memory for what was granted");
        return;
    }
    q->chunks[(q->first + q->count++) % q->room] =
        (usm__chunk){.id = r->id, .first = r->a, .count = r->b, .attempt = r->attempt};
}

/* Chunks above the cut are not done, and are answered for at once. */
static void cut(usm__worker *w, uint64_t first)
{
    if (first >= w->cut)
        return;
    w->cut = first;
    for (uint32_t i = 0; i < w->params.nmembers; i++) {
        usm__worker_queue *q    = &w->queues[i];
        uint32_t           kept = 0;

        for (uint32_t k = 0; k < q->count; k++) {
            usm__chunk c = q->chunks[(q->first + k) % q->room];

            if (c.first < first)
                q->chunks[(q->first + kept++) % q->room] = c;
            else
                say_done(w, i, c.id, 0, UINT64_MAX);
        }
        q->count = kept;
    }
}

static void end_all(usm__worker *w, const usm__wire *msg)
{
    uint32_t head = USM__WIRE_FIGURES + msg->index * USM__WIRE_MEMBER, size = msg->size - head;
    char     reason[USM__RANKS_STORY];

    if (size > sizeof reason - 1)
        size = sizeof reason - 1;
    memcpy(reason, msg->bytes + head, size);
    reason[size]         = '\0';
    w->stats.chunks      = usm_get_le(msg->bytes, 8);
    w->stats.rescheduled = usm_get_le(msg->bytes + 8, 8);
    w->stats.duplicated  = usm_get_le(msg->bytes + 16, 8);
    w->stats.dropped     = usm_get_le(msg->bytes + 24, 8);
    w->spread_ns         = usm_get_le(msg->bytes + 32, 8);
    w->merged            = msg->a;
    usm__worker_end(w, msg->status > 0 ? USM_E_INVALID : (usm_status)msg->status, reason);
}

bool usm__worker_receive(usm__worker *w, uint32_t from, const usm__wire *msg)
{
    usm__wire_record r;

    if (w->is_over || from != w->params.master)
        return false;
    switch (msg->op) {
    case USM__WIRE_GRANT:
        for (uint32_t i = 0; i < usm__wire_records(msg); i++) {
            usm__wire_get_record(msg->bytes + (size_t)i * USM__WIRE_RECORD, &r);
            keep_grant(w, &r);
        }
        return true;
    case USM__WIRE_CUT:
        cut(w, msg->a);
        return false;
    case USM__WIRE_END:
        end_all(w, msg);
        return false;
    default:
        return false;
    }
}

void usm__worker_end(usm__worker *w, usm_status status, const char *reason)
{
    if (w->is_over)
        return;
    w->is_over = true;
    w->status  = status;
    (void)snprintf(w->reason, sizeof w->reason, "%s", reason);
    for (uint32_t i = 0; i < w->params.nmembers; i++)
        w->queues[i].count = 0;
}

/* Reports that the data's rank is lost.  If that rank has ended well, it had received END, and the
 * END for this rank may still arrive: so the master judges the loss. */
static void notify_of_home(const usm__worker *w)
{
    unsigned char bytes[USM__WIRE_SHAPE + USM__RANKS_STORY] = {0};
    usm__wire     msg = {.op = USM__WIRE_READY, .status = USM_E_PEER, .bytes = bytes};
    int           n   = snprintf((char *)bytes + USM__WIRE_SHAPE, USM__RANKS_STORY,
                                 "rank %u, which had the arguments, has ended", w->params.home);

    msg.size = USM__WIRE_SHAPE + (uint32_t)n;
    w->params.send(w->params.arg, w->params.master, &msg);
}

void usm__worker_lost(usm__worker *w, uint32_t rank)
{
    char reason[USM__RANKS_STORY];

    if (w->is_over)
        return;
    if (rank == w->params.master) {
        (void)snprintf(reason, sizeof reason, "rank %u, which scheduled the launch, has ended",
                       rank);
        usm__worker_end(w, USM_E_PEER, reason);
    } else if (rank == w->params.home) {
        notify_of_home(w);
    }
}

bool usm__worker_take(usm__worker *w, uint32_t member, usm__chunk *chunk)
{
    usm__worker_queue *q = &w->queues[member];

    if (w->is_over || q->count == 0)
        return false;
    *chunk   = q->chunks[q->first];
    q->first = (q->first + 1) % q->room;
    q->count--;
    q->working++;
    return true;
}

/* ---- ended chunks -------------------------------------------------------------------------- */

void usm__worker_done(usm__worker *w, uint32_t member, uint64_t id, uint64_t compute_ns,
                      uint64_t cut_at)
{
    w->queues[member].working--;
    w->queues[member].chunk_ns = compute_ns;
    w->is_urgent |= cut_at != UINT64_MAX;
    if (!w->is_over)
        say_done(w, member, id, compute_ns, cut_at);
}

void usm__worker_failed(usm__worker *w, uint32_t member, uint64_t id, usm_status status,
                        unsigned flags, const char *reason)
{
    w->queues[member].working--;
    if (!w->is_over)
        give_up(w, member, id, status, (uint8_t)flags, reason);
}

void usm__worker_flush(usm__worker *w, uint64_t now_ns)
{
    for (uint32_t at = 0; at < w->ndone && !w->is_over;) {
        uint32_t        n   = w->ndone - at < RECORDS_MAX ? w->ndone - at : RECORDS_MAX;
        const usm__wire msg = {.op    = USM__WIRE_DONE,
                               .size  = n * USM__WIRE_RECORD,
                               .bytes = w->done + (size_t)at * USM__WIRE_RECORD};

        notify_master(w, &msg);
        w->spoke_ns = now_ns;
        at += n;
    }
    w->ndone     = 0;
    w->is_urgent = false;
}

static bool has_work(const usm__worker *w)
{
    for (uint32_t i = 0; i < w->params.nmembers; i++)
        if (w->queues[i].working + w->queues[i].count > 0)
            return true;
    return false;
}

uint64_t usm__worker_slack_ns(const usm__worker *w)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < w->params.nmembers && i < USM__RANKS_MEMBERS; i++) {
        const usm__worker_queue *q    = &w->queues[i];
        uint64_t                 held = q->working + q->count, ns;

        if (!w->params.takes_part[i])
            continue;
        ns    = held > 1 ? (held - 1) * q->chunk_ns : 0;
        least = ns < least ? ns : least;
    }
    return least < UINT64_MAX && !w->is_over ? least : 0;
}

bool usm__worker_may_keep(const usm__worker *w)
{
    return !w->is_urgent && w->ndone < KEPT_MAX && usm__worker_slack_ns(w) >= KEEP_NS;
}

void usm__worker_tick(usm__worker *w, uint64_t now_ns, uint64_t *next_ns)
{
    const usm__wire alive = {.op = USM__WIRE_ALIVE};

    *next_ns = UINT64_MAX;
    if (w->is_over || !has_work(w))
        return;
    if (now_ns - w->spoke_ns >= USM__RANKS_ALIVE_NS) {
        notify_master(w, &alive);
        w->spoke_ns = now_ns;
    }
    *next_ns = w->spoke_ns + USM__RANKS_ALIVE_NS;
}
