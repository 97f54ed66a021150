/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The agreement as a state machine: the rule and its proof are in agree.h, waiting and sending in
 * src/cluster/agree.c.
 *
 * What is to be sent is kept as flags of each rank, not as a queue: a rank gives at most its bytes
 * of the current call, asks about it, sends the last decision, and says LATE to one call.  So
 * nothing that must be sent needs memory, and a new decision replaces one that is on its way, which
 * no live rank needs any more. */
#include "group/agree.h"

#include "base/inline/bytes.h"

#define PART   32768u /* bytes of a decision in one message */
#define HEADER 24u

_Static_assert(HEADER + PART == USM__GROUP_AGREE_MESSAGE, "");

enum { GIVE = 1, RESULT = 2, ASK = 3, LATE = 4 };

typedef struct head {
    uint32_t op, seq;
    uint32_t status, which, total, offset; /* of a result; LATE: which */
    /* followed by the bytes; of a result those from `offset` on */
} head;

typedef struct decision {
    uint32_t      seq, which;
    uint32_t      status; /* -usm_status */
    uint32_t      total;
    unsigned char bytes[];
} decision;

typedef struct contribution {
    uint32_t       seq; /* 0: none */
    uint32_t       size;
    unsigned char *bytes;
} contribution;

typedef struct member {
    bool         is_lost, was_lost; /* was_lost: when this call began             */
    contribution given[2];          /* by odd and even calls: a rank may be ahead */
    /* to be sent to it */
    bool     give, ask, result, late;
    uint32_t result_at; /* bytes of the decision that were sent */
    uint32_t late_seq, late_which;
} member;

struct usm__group_agree {
    const usm__group_heap *heap;
    uint32_t               self, count;
    bool                   is_open;
    uint32_t               seq;  /* of the call in progress, or of the last one */
    uint32_t               size; /* of this rank's bytes in it */
    uint32_t               root;
    usm_status             status; /* of the last call, if it was given up */
    uint32_t               which;
    decision              *last;   /* of this call or an earlier one; never changed */
    decision              *coming; /* the first `have` bytes of a result */
    uint32_t               have;
    uint32_t               turn; /* whose messages are sent next */
    member                 members[];
};

static bool is_root(const usm__group_agree *a)
{
    return a->root == a->self;
}

bool usm__group_agree_is_root(const usm__group_agree *a)
{
    return is_root(a);
}

bool usm__group_agree_is_open(const usm__group_agree *a)
{
    return a->is_open;
}

static bool has_decision(const usm__group_agree *a, uint32_t seq)
{
    return a->last && a->last->seq == seq;
}

/* ---- what is to be sent -------------------------------------------------------------------- */

static void post_result(member *m)
{
    m->result    = true;
    m->result_at = 0;
}

static void post_late(member *m, uint32_t seq, uint32_t which)
{
    m->late       = true;
    m->late_seq   = seq;
    m->late_which = which;
}

static void write_head(unsigned char *text, const head *h)
{
    usm_put_le(text, h->op, 4);
    usm_put_le(text + 4, h->seq, 4);
    usm_put_le(text + 8, h->status, 4);
    usm_put_le(text + 12, h->which, 4);
    usm_put_le(text + 16, h->total, 4);
    usm_put_le(text + 20, h->offset, 4);
}

static size_t write_result(const decision *d, member *m, unsigned char *text)
{
    const head     h    = {RESULT, d->seq, d->status, d->which, d->total, m->result_at};
    const uint32_t left = d->total - m->result_at, n = left < PART ? left : PART;

    write_head(text, &h);
    memcpy(text + HEADER, d->bytes + m->result_at, n);
    m->result_at += n;
    m->result = m->result_at < d->total;
    return HEADER + n;
}

static contribution *contribution_of(usm__group_agree *a, uint32_t rank, uint32_t seq)
{
    return &a->members[rank].given[seq & 1];
}

/* In the current call; NULL: none. */
static const contribution *contribution_here(usm__group_agree *a, uint32_t rank)
{
    const contribution *g = contribution_of(a, rank, a->seq);

    return g->seq == a->seq && g->bytes ? g : NULL;
}

static size_t write_give(usm__group_agree *a, unsigned char *text)
{
    const contribution *own = contribution_here(a, a->self);

    write_head(text, &(head){.op = GIVE, .seq = a->seq});
    memcpy(text + HEADER, own->bytes, own->size);
    return HEADER + own->size;
}

/* A message to that rank; 0: there is none. */
static size_t next_to(usm__group_agree *a, member *m, unsigned char *text)
{
    if (m->is_lost)
        return 0;
    if (m->result)
        return write_result(a->last, m, text);
    if (m->give) {
        m->give = false;
        return write_give(a, text);
    }
    if (m->ask) {
        m->ask = false;
        write_head(text, &(head){.op = ASK, .seq = a->seq});
        return HEADER;
    }
    if (!m->late)
        return 0;
    m->late = false;
    write_head(text, &(head){.op = LATE, .seq = m->late_seq, .which = m->late_which});
    return HEADER;
}

/* The ranks have turns, but a result is sent as a whole. */
size_t usm__group_agree_next(usm__group_agree *a, uint32_t *to, unsigned char *text)
{
    for (uint32_t i = 0; i < a->count; i++) {
        const size_t n = next_to(a, &a->members[a->turn], text);

        *to = a->turn;
        if (n > 0)
            return n;
        a->turn = (a->turn + 1) % a->count;
    }
    return 0;
}

/* ---- the end of a call ----------------------------------------------------------------------- */

static void close_call(usm__group_agree *a)
{
    a->is_open = false;
    a->heap->free(a->coming);
    a->coming = NULL;
    for (uint32_t rank = 0; rank < a->count; rank++)
        a->members[rank].give = a->members[rank].ask = false;
}

/* R5. */
static bool counts_on_us(usm__group_agree *a, uint32_t rank)
{
    return rank != a->self && (is_root(a) || contribution_here(a, rank));
}

static void take(usm__group_agree *a, decision *d)
{
    close_call(a);
    a->heap->free(a->last);
    a->last = d;
    for (uint32_t rank = 0; rank < a->count; rank++) {
        a->members[rank].result = false; /* the one before: no live rank is in that call */
        if (counts_on_us(a, rank))
            post_result(&a->members[rank]);
    }
}

static void give_up(usm__group_agree *a, usm_status status, uint32_t which)
{
    close_call(a);
    a->status = status;
    a->which  = which;
    for (uint32_t rank = 0; rank < a->count; rank++)
        if (counts_on_us(a, rank))
            post_late(&a->members[rank], a->seq, which);
}

static decision *make_decision(usm__group_agree *a, usm_status status, uint32_t which,
                               uint32_t total)
{
    decision *d = a->heap->alloc(sizeof *d + total);

    if (d)
        *d = (decision){a->seq, which, 0 - (uint32_t)status, total};
    else
        give_up(a, USM_E_NO_MEMORY, a->self);
    return d;
}

/* ---- deciding -------------------------------------------------------------------------------- */

/* R4: whether all live ranks have given; and the first of those that were lost before they did, and
 * of those with another size, or count. */
static bool have_all_given(usm__group_agree *a, uint32_t *absent, uint32_t *other)
{
    *absent = *other = a->count;
    for (uint32_t rank = 0; rank < a->count; rank++) {
        const member       *m = &a->members[rank];
        const contribution *g = contribution_here(a, rank);

        if (!g && !m->is_lost)
            return false;
        if (!g && !m->was_lost && *absent == a->count)
            *absent = rank;
        if (g && g->size != a->size && *other == a->count)
            *other = rank;
    }
    return true;
}

static void decide(usm__group_agree *a)
{
    uint32_t  absent, other;
    decision *d;

    if (!have_all_given(a, &absent, &other))
        return;
    if (absent < a->count)
        d = make_decision(a, USM_E_PEER, absent, 0);
    else if (other < a->count)
        d = make_decision(a, USM_E_INVALID, other, 0);
    else
        d = make_decision(a, USM_OK, 0, a->count * a->size);
    if (!d)
        return;
    for (uint32_t rank = 0; d->total > 0 && rank < a->count; rank++)
        if (contribution_here(a, rank))
            memcpy(d->bytes + (size_t)rank * a->size, contribution_here(a, rank)->bytes, a->size);
    take(a, d);
}

/* R1.  Parts of a result that the root before has begun to send are dropped: it may not be the
 * result. */
static void follow(usm__group_agree *a, uint32_t root)
{
    a->heap->free(a->coming);
    a->coming = NULL;
    a->root   = root;
    if (!is_root(a))
        a->members[root].give = true;
}

/* The root rises to the next live rank, which may be this one. */
static void go_to_root(usm__group_agree *a)
{
    uint32_t root = a->root;

    while (a->members[root].is_lost)
        root++;
    follow(a, root);
    if (!is_root(a))
        return;
    for (uint32_t rank = a->self + 1; a->self > 0 && rank < a->count; rank++)
        a->members[rank].ask = true; /* it may have an earlier root's decision */
    decide(a);
}

void usm__group_agree_lost(usm__group_agree *a, uint32_t rank)
{
    if (a->members[rank].is_lost || rank == a->self)
        return;
    a->members[rank].is_lost = true;
    if (a->is_open && rank == a->root)
        go_to_root(a);
    else if (a->is_open && is_root(a))
        decide(a);
}

static bool give(usm__group_agree *a, uint32_t rank, uint32_t seq, const void *bytes, size_t size)
{
    contribution  *g    = contribution_of(a, rank, seq);
    unsigned char *copy = a->heap->alloc(size);

    if (!copy)
        return false; /* the rank counts as missing */
    memcpy(copy, bytes, size);
    a->heap->free(g->bytes);
    *g = (contribution){seq, (uint32_t)size, copy};
    return true;
}

void usm__group_agree_begin(usm__group_agree *a, const void *mine, size_t size)
{
    a->is_open = true;
    a->seq++;
    a->size = (uint32_t)size;
    a->root = 0;
    for (uint32_t rank = 0; rank < a->count; rank++)
        a->members[rank].was_lost = a->members[rank].is_lost;
    if (give(a, a->self, a->seq, mine, size))
        go_to_root(a);
    else
        give_up(a, USM_E_NO_MEMORY, a->self);
}

void usm__group_agree_give_up(usm__group_agree *a)
{
    uint32_t rank = a->root;

    if (!a->is_open)
        return;
    if (is_root(a)) /* a rank is missing, else it had decided */
        for (rank = 0;
             rank + 1 < a->count && (contribution_here(a, rank) || a->members[rank].is_lost);)
            rank++;
    give_up(a, USM_E_PEER, rank);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Whether the call has ended on this rank. */
static bool is_over(const usm__group_agree *a, uint32_t seq)
{
    return (int32_t)(seq - a->seq) < (a->is_open ? 0 : 1);
}

/* To a rank that is still in a call which is over here. */
static void answer(usm__group_agree *a, uint32_t to, uint32_t seq, uint32_t which)
{
    if (has_decision(a, seq))
        post_result(&a->members[to]);
    else
        post_late(&a->members[to], seq, which);
}

static void take_contribution(usm__group_agree *a, uint32_t from, uint32_t seq, const void *bytes,
                              size_t size)
{
    if (is_over(a, seq)) {
        answer(a, from, seq, from);
        return;
    }
    if (size == 0 || size > USM__GROUP_AGREE_BYTES)
        return;
    (void)give(a, from, seq, bytes, size);
    if (a->is_open && is_root(a))
        decide(a);
}

/* A rank above this one asks only if it counts this one as lost. */
static void take_question(usm__group_agree *a, uint32_t from, uint32_t seq)
{
    if (is_over(a, seq)) {
        answer(a, from, seq, a->self);
    } else if (seq == a->seq && from >= a->root && from < a->self) {
        follow(a, from);
    }
}

/* R2. */
static bool is_heard(const usm__group_agree *a, uint32_t from, uint32_t seq)
{
    return a->is_open && seq == a->seq && (from == a->root || is_root(a));
}

static void take_result(usm__group_agree *a, const head *h, const void *bytes, size_t size)
{
    decision *d;

    /* All bytes of a success are sent, and none of a failure: a faulty member may send anything
     * else. */
    if (h->total != (h->status == 0 ? a->count * a->size : 0))
        return;
    if (!a->coming) {
        a->coming = make_decision(a, (usm_status)(int32_t)(0 - h->status), h->which, h->total);
        a->have   = 0;
    }
    /* A root may get parts from several ranks, or twice: it asked, so all have the same result. */
    if (!a->coming || h->offset != a->have || size > h->total - a->have ||
        h->total != a->coming->total)
        return;
    memcpy(a->coming->bytes + a->have, bytes, size);
    a->have += (uint32_t)size;
    if (a->have < h->total)
        return;
    d         = a->coming;
    a->coming = NULL;
    take(a, d);
}

void usm__group_agree_message(usm__group_agree *a, uint32_t from, const void *data, size_t size)
{
    const unsigned char *text = data;
    head                 h;

    if (size < HEADER || from >= a->count || from == a->self || a->members[from].is_lost) /* R3 */
        return;
    h = (head){(uint32_t)usm_get_le(text, 4),      (uint32_t)usm_get_le(text + 4, 4),
               (uint32_t)usm_get_le(text + 8, 4),  (uint32_t)usm_get_le(text + 12, 4),
               (uint32_t)usm_get_le(text + 16, 4), (uint32_t)usm_get_le(text + 20, 4)};
    if (h.op == GIVE)
        take_contribution(a, from, h.seq, text + HEADER, size - HEADER);
    else if (h.op == ASK)
        take_question(a, from, h.seq);
    else if (h.op == RESULT && is_heard(a, from, h.seq))
        take_result(a, &h, text + HEADER, size - HEADER);
    else if (h.op == LATE && is_heard(a, from, h.seq))
        give_up(a, USM_E_PEER, h.which);
}

/* ---- result, start and end ------------------------------------------------------------------- */

usm_status usm__group_agree_result(const usm__group_agree *a, void *all, uint32_t *which)
{
    const decision  *d      = has_decision(a, a->seq) ? a->last : NULL;
    const usm_status status = d ? (usm_status)(int32_t)(0 - d->status) : a->status;

    if (d && status == USM_OK)
        memcpy(all, d->bytes, d->total);
    else
        *which = d ? d->which : a->which;
    return status;
}

usm__group_agree *usm__group_agree_create(const usm__group_heap *heap, uint32_t self,
                                          uint32_t count)
{
    usm__group_agree *a = heap->alloc(sizeof *a + count * sizeof(a->members[0]));

    if (a) {
        a->heap  = heap;
        a->self  = self;
        a->count = count;
    }
    return a;
}

void usm__group_agree_destroy(usm__group_agree *a)
{
    const usm__group_heap *heap;

    if (!a)
        return;
    heap = a->heap;
    for (uint32_t rank = 0; rank < a->count; rank++) {
        heap->free(a->members[rank].given[0].bytes);
        heap->free(a->members[rank].given[1].bytes);
    }
    heap->free(a->last);
    heap->free(a->coming);
    heap->free(a);
}
