/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The master of a launch over ranks: which chunks each rank is granted (ranks_state.h).
 *
 * A member has `depth` chunks in progress, or as many as fill two batches of BATCH_NS at its
 * measured speed: small chunks are sent in one message, and no member waits for the master between
 * two.  Each message from a rank is an occasion to grant it more; other ranks are considered when
 * something becomes free.  The scheduler grants nothing to a silent member.
 *
 * Rejected: ranks as workers of the scheduler, each of which splits its grants among its members.
 * Chunks would be as large as a rank's share, and the last one of a rank would occupy one of its
 * members while the others are idle. */
#include "offload/ranks_state.h"

#include "base/inline/bytes.h"
#include "base/os.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

#define BATCH_NS    8000000.0
#define FLIGHTS_MAX 64u
/* in one message */
#define RECORDS_MAX  256u
#define MEMBERS_TOLD 1024u /* END then has 40 KiB */

usm_status usm__master_init(usm__master *m, const usm__master_params *params)
{
    uint32_t total = 0;

    memset(m, 0, sizeof *m);
    m->params  = *params;
    m->phase   = USM__MASTER_GATHERS;
    m->next_ns = m->cut = UINT64_MAX;
    m->ranks            = usm__heap_alloc(params->nranks * sizeof *m->ranks);
    for (uint32_t r = 0; m->ranks && r < params->nranks; r++) {
        usm__master_rank *rank = &m->ranks[r];

        rank->nmembers = params->nmembers[r];
        rank->is_lost  = rank->nmembers == 0; /* it was lost when the team was created */
        rank->first    = total;
        rank->members  = usm__heap_alloc((rank->nmembers + 1) * sizeof *rank->members);
        total += rank->nmembers;
        if (!rank->members)
            goto err_memory;
        for (uint32_t i = 0; i < rank->nmembers; i++)
            rank->members[i].state = USM_MEMBER_WELL;
        if (r != params->home)
            continue;
        m->params.ledger.in_place  = rank->first; /* see ranks_bytes.c */
        m->params.ledger.nin_place = rank->nmembers;
    }
    m->params.ledger.nworkers         = total;
    m->params.ledger.depth            = FLIGHTS_MAX;
    m->params.ledger.least_silence_ns = USM__RANKS_SILENCE_NS;
    if (m->ranks)
        return USM_OK;
err_memory:
    usm__master_fini(m);
    return usm__fail(USM_E_NO_MEMORY, "no host memory for the scheduler of a launch over %u ranks",
                     params->nranks);
}

void usm__master_fini(usm__master *m)
{
    for (uint32_t r = 0; m->ranks && r < m->params.nranks; r++) {
        for (uint32_t i = 0; m->ranks[r].members && i < m->ranks[r].nmembers; i++)
            usm__heap_free(m->ranks[r].members[i].flights);
        usm__heap_free(m->ranks[r].members);
    }
    usm__heap_free(m->ranks);
    usm__schedule_destroy(m->ledger);
    memset(m, 0, sizeof *m);
}

static void notify_all(usm__master *m, const usm__wire *msg)
{
    for (uint32_t r = 0; r < m->params.nranks; r++)
        if (!m->ranks[r].is_lost)
            m->params.send(m->params.arg, r, msg);
}

static void notify_progress(usm__master *m)
{
    unsigned char       bytes[8 * MEMBERS_TOLD];
    usm__schedule_stats s;
    usm__wire           msg = {.op = USM__WIRE_PROGRESS, .bytes = bytes};

    usm__schedule_get_stats(m->ledger, &s);
    if (s.done == m->notified_done)
        return;
    m->notified_done = s.done;
    msg.a            = s.done;
    msg.b            = s.chunks;
    msg.c            = s.rescheduled;
    for (uint32_t r = 0; r < m->params.nranks; r++)
        for (uint32_t i = 0; i < m->ranks[r].nmembers && msg.size < sizeof bytes; i++) {
            usm_put_le(bytes + msg.size, m->ranks[r].members[i].done, 8);
            msg.size += 8;
        }
    for (uint32_t r = 0; r < m->params.nranks; r++)
        if (!m->ranks[r].is_lost && m->ranks[r].wants_progress)
            m->params.send(m->params.arg, r, &msg);
}

/* ---- the end ---------------------------------------------------------------------------- */

/* The time from the first end of a member to the last. */
static uint64_t spread_ns(const usm__master *m)
{
    uint64_t first = UINT64_MAX, last = 0;

    for (uint32_t r = 0; r < m->params.nranks; r++)
        for (uint32_t i = 0; i < m->ranks[r].nmembers && !m->ranks[r].is_lost; i++) {
            const usm__master_member *w = &m->ranks[r].members[i];

            if (w->chunks == 0)
                continue;
            first = w->last_end_ns < first ? w->last_end_ns : first;
            last  = w->last_end_ns > last ? w->last_end_ns : last;
        }
    return last > first ? last - first : 0;
}

static void put_figures(const usm__master *m, unsigned char *bytes)
{
    usm__schedule_stats s = {0};

    if (m->ledger)
        usm__schedule_get_stats(m->ledger, &s);
    usm_put_le(bytes, s.chunks, 8);
    usm_put_le(bytes + 8, s.rescheduled, 8);
    usm_put_le(bytes + 16, s.duplicated, 8);
    usm_put_le(bytes + 24, s.dropped, 8);
    usm_put_le(bytes + 32, spread_ns(m), 8);
}

static void put_members(const usm__master *m, unsigned char *bytes, uint32_t n)
{
    for (uint32_t r = 0; r < m->params.nranks; r++)
        for (uint32_t i = 0; i < m->ranks[r].nmembers; i++) {
            const usm__master_member *w      = &m->ranks[r].members[i];
            uint32_t                  number = m->ranks[r].first + i;
            usm__wire_member notified = {w->chunks, w->done, w->busy_ns, 0, (uint32_t)w->state};

            if (number >= n)
                return;
            if (m->ledger)
                notified.speed = usm__schedule_speed(m->ledger, number);
            usm__wire_put_member(bytes + (size_t)number * USM__WIRE_MEMBER, &notified);
        }
}

/* If there is no memory for it, the message has no statistics of members. */
static void end(usm__master *m)
{
    unsigned char  bare[USM__WIRE_FIGURES + USM__RANKS_STORY];
    size_t         reason = strnlen(m->reason, sizeof m->reason - 1), size;
    uint32_t       n      = m->params.ledger.nworkers;
    usm__wire      msg    = {.op = USM__WIRE_END, .status = m->status, .a = m->merged};
    unsigned char *bytes;

    if (m->phase == USM__MASTER_ENDED)
        return;
    m->phase   = USM__MASTER_ENDED;
    m->next_ns = UINT64_MAX;
    n          = n < MEMBERS_TOLD ? n : MEMBERS_TOLD;
    bytes      = usm__heap_alloc(sizeof bare + (size_t)n * USM__WIRE_MEMBER);
    msg.index  = bytes ? n : 0;
    msg.bytes  = bytes ? bytes : bare;
    size       = USM__WIRE_FIGURES + (size_t)msg.index * USM__WIRE_MEMBER;
    msg.size   = (uint32_t)(size + reason);
    put_figures(m, bytes ? bytes : bare);
    if (bytes)
        put_members(m, bytes + USM__WIRE_FIGURES, n);
    memcpy((bytes ? bytes : bare) + size, m->reason, reason);
    notify_all(m, &msg);
    usm__heap_free(bytes);
}

void usm__master_fail(usm__master *m, usm_status status, const char *reason)
{
    if (m->phase == USM__MASTER_ENDED)
        return;
    m->status = status;
    (void)snprintf(m->reason, sizeof m->reason, "%.*s", (int)sizeof m->reason - 1, reason);
    end(m);
}

static void settle_if_over(usm__master *m)
{
    const usm__wire msg = {.op = USM__WIRE_SETTLE};

    if (m->phase != USM__MASTER_WORKS || !usm__schedule_is_over(m->ledger))
        return;
    if (m->is_watched)
        notify_progress(m); /* the final numbers of each member */
    m->phase = USM__MASTER_SETTLES;
    m->params.send(m->params.arg, m->params.home, &msg);
}

/* Copies the bytes of a message as text. */
static void copy_message(char reason[USM__RANKS_STORY], const usm__wire *msg)
{
    size_t size = msg->size < USM__RANKS_STORY - 1 ? msg->size : USM__RANKS_STORY - 1;

    if (size > 0)
        memcpy(reason, msg->bytes, size);
    reason[size] = '\0';
}

/* A failure that another rank reports: it is never taken for a success. */
static usm_status failure_of(const usm__wire *msg)
{
    return msg->status < 0 ? (usm_status)msg->status : USM_E_INVALID;
}

/* ---- grants ----------------------------------------------------------------------------- */

static void forget_flight(usm__master_member *w, uint32_t at)
{
    w->items -= w->flights[at].count;
    w->nflights--;
    memmove(&w->flights[at], &w->flights[at + 1], (w->nflights - at) * sizeof *w->flights);
}

/* More than `depth` chunks are granted only while there is enough for all members. */
static bool give(usm__master *m, uint32_t number, const usm__master_member *w, uint64_t now_ns,
                 usm__chunk *c)
{
    double speed = usm__schedule_speed(m->ledger, number);

    if (w->nflights < m->params.depth)
        return usm__schedule_take(m->ledger, number, now_ns, c);
    return w->nflights < FLIGHTS_MAX && (double)w->items * 1e9 < speed * 2 * BATCH_NS &&
           usm__schedule_take_more(m->ledger, number, now_ns, c);
}

static bool take_one(usm__master *m, const usm__master_rank *rank, uint32_t member, uint64_t now_ns,
                     usm__wire_record *r)
{
    usm__master_member *w = &rank->members[member];
    usm__chunk          c;

    if (!w->takes_part || !usm__heap_room(&w->flights, w->nflights, &w->room, sizeof *w->flights) ||
        !give(m, rank->first + member, w, now_ns, &c))
        return false;
    w->flights[w->nflights++] = (usm__flight){c.id, c.first, c.count};
    w->items += c.count;
    *r = (usm__wire_record){member, c.attempt, c.id, c.first, c.count};
    return true;
}

/* Grants a rank's members one chunk each in turn, until none wants or gets more. */
static void serve(usm__master *m, uint32_t to, uint64_t now_ns)
{
    usm__master_rank *rank = &m->ranks[to];
    unsigned char     bytes[RECORDS_MAX * USM__WIRE_RECORD];
    usm__wire         msg = {.op = USM__WIRE_GRANT, .bytes = bytes};
    usm__wire_record  r;
    uint32_t          n = 0;

    if (m->phase != USM__MASTER_WORKS || rank->is_lost)
        return;
    for (bool any = true; any && n + rank->nmembers <= RECORDS_MAX;) {
        any = false;
        for (uint32_t i = 0; i < rank->nmembers; i++)
            if (take_one(m, rank, i, now_ns, &r)) {
                usm__wire_put_record(bytes + (size_t)n++ * USM__WIRE_RECORD, &r);
                any = true;
            }
    }
    if (n == 0)
        return;
    msg.size = n * USM__WIRE_RECORD;
    m->params.send(m->params.arg, to, &msg);
}

/* Called after every change, and when a member may have been silent for too long: offers what has
 * become free to all ranks. */
static void go_on(usm__master *m, uint64_t now_ns)
{
    settle_if_over(m);
    if (m->phase != USM__MASTER_WORKS)
        return;
    (void)usm__schedule_overdue(m->ledger, now_ns, &m->next_ns);
    for (uint32_t r = 0; r < m->params.nranks; r++)
        serve(m, r, now_ns);
    (void)usm__schedule_overdue(m->ledger, now_ns, &m->next_ns); /* includes what was granted just
                                                                  now */
}

/* ---- received messages --------------------------------------------------------------------- */

static bool is_agreed(usm__master *m, uint32_t from)
{
    const usm__master_rank *rank = &m->ranks[from];
    char                    reason[USM__RANKS_STORY];

    if (rank->home == m->params.home && memcmp(rank->shape, m->params.shape, USM__WIRE_SHAPE) == 0)
        return true;
    if (rank->home != m->params.home)
        (void)snprintf(reason, sizeof reason,
                       "rank %u names rank %u as the rank of the data (home), rank %u names rank "
                       "%u: the launch must be the same on every rank",
                       from, rank->home, m->params.self, m->params.home);
    else
        (void)snprintf(reason, sizeof reason,
                       "rank %u launches something else than rank %u: kernel, ranges, sizes of "
                       "arguments, policy and flags must be the same on every rank",
                       from, m->params.self);
    usm__master_fail(m, USM_E_INVALID, reason);
    return false;
}

/* Excludes members that cannot run the kernel; the scheduler state is created for all. */
static bool make_ledger(usm__master *m)
{
    usm__schedule_params *p   = &m->params.ledger;
    bool                  any = false;

    for (uint32_t r = 0; r < m->params.nranks; r++) {
        uint64_t most = m->ranks[r].max_chunk;

        if (most && (p->max_chunk == 0 || most < p->max_chunk))
            p->max_chunk = most;
    }
    m->ledger = usm__schedule_create(p);
    if (!m->ledger) {
        usm__master_fail(m, USM_E_NO_MEMORY, "no host memory for the scheduler of a launch");
        return false;
    }
    for (uint32_t r = 0; r < m->params.nranks; r++)
        for (uint32_t i = 0; i < m->ranks[r].nmembers; i++)
            if (m->ranks[r].members[i].takes_part)
                any = true;
            else
                usm__schedule_set_aside(m->ledger, m->ranks[r].first + i);
    if (!any)
        usm__master_fail(m, USM_E_NO_IMAGE, "no member of any rank runs the kernel");
    return any;
}

static void begin_if_all(usm__master *m, uint64_t now_ns)
{
    if (m->phase != USM__MASTER_GATHERS)
        return;
    for (uint32_t r = 0; r < m->params.nranks; r++)
        if (!m->ranks[r].is_lost && !m->ranks[r].is_ready)
            return;
    if (!make_ledger(m))
        return;
    m->phase = USM__MASTER_WORKS;
    go_on(m, now_ns);
}

/* That rank's call has failed, or the rank cannot go on: the others must not wait for it. */
static void notify_refusal(usm__master *m, uint32_t from, const usm__wire *msg)
{
    const usm__wire words = {.bytes = msg->bytes + USM__WIRE_SHAPE,
                             .size  = msg->size - USM__WIRE_SHAPE};
    char            reason[USM__RANKS_STORY], text[USM__RANKS_STORY + 32];

    copy_message(reason, &words);
    (void)snprintf(text, sizeof text, "rank %u: %s", from, reason);
    usm__master_fail(m, failure_of(msg), text);
}

static void receive_ready(usm__master *m, uint32_t from, const usm__wire *msg, uint64_t now_ns)
{
    usm__master_rank *rank = &m->ranks[from];

    if (msg->status != USM_OK) {
        notify_refusal(m, from, msg);
        return;
    }
    if (m->phase != USM__MASTER_GATHERS || rank->is_ready)
        return;
    rank->is_ready       = true;
    rank->max_chunk      = msg->b;
    rank->home           = msg->a < m->params.nranks ? (uint32_t)msg->a : m->params.nranks;
    rank->wants_progress = msg->flags & USM__WIRE_WATCHES;
    m->is_watched        = m->is_watched || rank->wants_progress;
    memcpy(rank->shape, msg->bytes, USM__WIRE_SHAPE);
    for (uint32_t i = 0; i < rank->nmembers && USM__WIRE_SHAPE + i < msg->size; i++)
        rank->members[i].takes_part = msg->bytes[USM__WIRE_SHAPE + i] != 0;
    if (is_agreed(m, from))
        begin_if_all(m, now_ns);
}

/* Workers report the chunks that they drop, so flights stay. */
static void cut(usm__master *m, uint64_t first)
{
    const usm__wire msg = {.op = USM__WIRE_CUT, .a = first};

    if (first >= m->cut)
        return;
    m->cut = first;
    usm__schedule_cut(m->ledger, first);
    notify_all(m, &msg);
}

/* The member has answered for the chunk; false: it did not have it. */
static bool answer(usm__master *m, uint32_t from, uint32_t member, uint64_t id, uint64_t *count)
{
    usm__master_member *w;

    if (member >= m->ranks[from].nmembers)
        return false;
    w = &m->ranks[from].members[member];
    for (uint32_t k = 0; k < w->nflights; k++)
        if (w->flights[k].id == id) {
            *count = w->flights[k].count;
            forget_flight(w, k);
            return true;
        }
    return false;
}

static void notify_home(usm__master *m, const unsigned char *records, uint32_t n)
{
    const usm__wire msg = {.op = USM__WIRE_COUNTS, .size = n * USM__WIRE_RECORD, .bytes = records};

    if (n > 0 && m->params.has_copies)
        m->params.send(m->params.arg, m->params.home, &msg);
}

static void receive_done(usm__master *m, uint32_t from, const usm__wire *msg, uint64_t now_ns)
{
    unsigned char    counts[64 * USM__WIRE_RECORD];
    usm__wire_record r;
    uint64_t         count;
    uint32_t         n = 0;

    for (uint32_t i = 0; i < usm__wire_records(msg); i++) {
        usm__master_member *w;

        usm__wire_get_record(msg->bytes + (size_t)i * USM__WIRE_RECORD, &r);
        if (!answer(m, from, r.member, r.id, &count))
            continue;
        w = &m->ranks[from].members[r.member];
        w->busy_ns += r.a;
        if (usm__schedule_done(m->ledger, m->ranks[from].first + r.member, r.id, now_ns, r.a) !=
            USM__CHUNK_COUNTS)
            continue;
        w->chunks++;
        w->done += count;
        w->last_end_ns = now_ns;
        usm__wire_put_record(counts + (size_t)n++ * USM__WIRE_RECORD,
                             &(usm__wire_record){from, 0, r.id, 0, 0});
        if (n == sizeof counts / USM__WIRE_RECORD) {
            notify_home(m, counts, n);
            n = 0;
        }
        if (r.b != UINT64_MAX)
            cut(m, r.b);
    }
    notify_home(m, counts, n);
}

static void receive_failed(usm__master *m, uint32_t from, const usm__wire *msg)
{
    char     reason[USM__RANKS_STORY], text[USM__RANKS_STORY + 32];
    uint64_t count;

    if (!answer(m, from, msg->index, msg->a, &count))
        return;
    if (msg->flags & USM__WIRE_ASIDE)
        m->ranks[from].members[msg->index].state =
            msg->status == USM_E_DEVICE_LOST ? USM_MEMBER_LOST : USM_MEMBER_ASIDE;
    if (usm__schedule_failed(m->ledger, m->ranks[from].first + msg->index, msg->a) &&
        !(msg->flags & USM__WIRE_FATAL))
        return;
    copy_message(reason, msg);
    (void)snprintf(text, sizeof text, "rank %u: %s", from, reason);
    usm__master_fail(m, failure_of(msg), text);
}

static void receive_settled(usm__master *m, uint32_t from, const usm__wire *msg)
{
    if (m->phase != USM__MASTER_SETTLES || from != m->params.home)
        return;
    m->merged = msg->a;
    if (msg->status != USM_OK) {
        m->status = failure_of(msg);
        copy_message(m->reason, msg);
    }
    end(m);
}

/* Whether a member may still be working on its oldest chunk, given that its rank is alive. */
static bool may_be_at_it(const usm__master *m, uint32_t number, usm__master_member *w,
                         uint64_t now_ns)
{
    const usm__flight *f     = &w->flights[0];
    double             speed = usm__schedule_speed(m->ledger, number);
    double             ns    = speed > 0 ? 4e9 * (double)f->count / speed : 0;

    if (w->oldest != f->id + 1) {
        w->oldest   = f->id + 1;
        w->since_ns = now_ns;
    }
    return now_ns - w->since_ns <= m->params.silence_ns || (double)(now_ns - w->since_ns) <= ns;
}

/* The rank is alive, and so are its members' chunks: those granted later wait for the oldest. */
static void hear(usm__master *m, uint32_t from, uint64_t now_ns)
{
    const usm__master_rank *rank = &m->ranks[from];

    for (uint32_t i = 0; i < rank->nmembers; i++) {
        usm__master_member *w = &rank->members[i];

        if (w->nflights > 0 && may_be_at_it(m, rank->first + i, w, now_ns))
            usm__schedule_touch(m->ledger, rank->first + i, w->flights[0].id, now_ns);
    }
}

void usm__master_receive(usm__master *m, uint32_t from, const usm__wire *msg, uint64_t now_ns)
{
    if (m->phase == USM__MASTER_ENDED || from >= m->params.nranks || m->ranks[from].is_lost)
        return;
    if (msg->op == USM__WIRE_READY)
        receive_ready(m, from, msg, now_ns);
    else if (msg->op == USM__WIRE_DONE && m->phase == USM__MASTER_WORKS)
        receive_done(m, from, msg, now_ns);
    else if (msg->op == USM__WIRE_FAILED && m->phase == USM__MASTER_WORKS)
        receive_failed(m, from, msg);
    else if (msg->op == USM__WIRE_SETTLED)
        receive_settled(m, from, msg);
    else if (msg->op == USM__WIRE_CANCEL)
        usm__master_fail(m, USM_E_CANCELLED, "the launch was cancelled");
    if (m->phase == USM__MASTER_ENDED)
        return;
    hear(m, from, now_ns);
    go_on(m, now_ns);
}

void usm__master_lost(usm__master *m, uint32_t rank, uint64_t now_ns)
{
    usm__master_rank *lost = rank < m->params.nranks ? &m->ranks[rank] : NULL;
    char              reason[USM__RANKS_STORY];
    bool              left = true;

    if (!lost || lost->is_lost || m->phase == USM__MASTER_ENDED)
        return;
    lost->is_lost = true;
    if (rank == m->params.home) {
        (void)snprintf(reason, sizeof reason, "rank %u, which had the arguments, has ended", rank);
        usm__master_fail(m, USM_E_PEER, reason);
        return;
    }
    for (uint32_t i = 0; i < lost->nmembers; i++) {
        lost->members[i].takes_part = false;
        lost->members[i].state      = USM_MEMBER_LOST;
        lost->members[i].nflights   = 0;
        lost->members[i].items      = 0;
        if (m->ledger)
            left = usm__schedule_lose(m->ledger, lost->first + i) && left;
    }
    if (!left && m->phase == USM__MASTER_WORKS) {
        (void)snprintf(reason, sizeof reason,
                       "rank %u has ended, and no member is left that could do its part%s", rank,
                       m->params.ledger.may_repeat ? "" : ", or what it wrote may not be repeated");
        usm__master_fail(m, USM_E_PEER, reason);
        return;
    }
    begin_if_all(m, now_ns);
    go_on(m, now_ns);
}

/* ---- time ------------------------------------------------------------------------------- */

void usm__master_tick(usm__master *m, uint64_t now_ns, uint64_t *next_ns)
{
    uint64_t every = m->is_watched ? (uint64_t)m->params.progress_ms * 1000000 : 0;

    *next_ns = UINT64_MAX;
    if (m->phase != USM__MASTER_WORKS)
        return;
    if (now_ns >= m->next_ns)
        go_on(m, now_ns);
    if (every && now_ns - m->notified_ns >= every) {
        m->notified_ns = now_ns;
        notify_progress(m);
    }
    *next_ns = m->next_ns;
    if (every && m->notified_ns + every < *next_ns)
        *next_ns = m->notified_ns + every;
}
