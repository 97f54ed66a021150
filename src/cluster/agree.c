/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm__job_agree(): every rank gets every rank's bytes, and all that get a result get the same one,
 * whichever ranks die.
 *
 * The root is the lowest live rank.  All ranks send it their bytes; it decides, and sends the same
 * result to all.  Each rank keeps a result until the next one.  When the root is lost, the next
 * lowest rank asks all: a rank that has the result sends it, the others send their bytes again.  So
 * either no live rank has a result and the new root decides for the first time, or its decision is
 * the old one.  Calls are numbered.  A rank that comes late to a call that is over gets its result,
 * or the answer that it came too late.
 *
 * Ranks that the root knew to be lost at the beginning count as absent: zeros.  If a rank is lost
 * later, or does not come in time, the call fails on all ranks.  The other ranks wait for the
 * root's result half as long again, because it may have begun later; a rank that still receives
 * nothing fails alone.
 *
 * Rejected: every rank sends to every rank (if one dies halfway, there are two opinions), and
 * dissemination (the same, and a dead rank cuts off many). */
#include "cluster/internal.h"

#include "base/inline/bytes.h"
#include "base/os.h"

#include <string.h>

#define SIZE_MAX_AGREE 4096u
#define PART           32768u /* bytes of a result in one message */
#define HEADER         24u
#define SLICE_MS       20u

enum { GIVE = 1, RESULT = 2, ASK = 3 };

typedef struct head {
    uint32_t op, seq;
    uint32_t status, which, total, offset; /* of a result */
    /* followed by the bytes; of a result those from `offset` on */
} head;

/* A decision; never changed. */
typedef struct result {
    unsigned refs; /* guarded by the lock */
    uint32_t seq, which;
    uint32_t status; /* -usm_status */
    uint32_t total;
    char     bytes[];
} result;

/* A message, sent after the lock was released. */
typedef struct packet packet;

struct packet {
    packet  *next;
    uint32_t to, op, seq;
    result  *r;
    size_t   size;
    char     bytes[];
};

typedef struct contribution {
    uint32_t seq; /* 0: none */
    uint32_t size;
    char    *bytes;
} contribution;

/* Guarded by usm__job.lock. */
static struct {
    bool     is_busy, is_open; /* a thread is in a call; it has no result yet */
    uint32_t seq;              /* of the call in progress, or of the last */
    uint32_t size;             /* of each rank's bytes in it */
    uint32_t root;
    bool    *was_lost; /* by rank: when this call began */
    contribution (*contributions)
        [2];         /* contributions by rank: of this call and, from ranks that are ahead, of the
                          next */
    result  *last;   /* of call `seq`, or `seq` - 1 while it is open */
    result  *coming; /* the parts of a result received so far, from `coming_from` */
    uint32_t coming_from, coming_have;
    packet  *packets, **end;
    unsigned sending; /* threads that are sending messages */
} agree = {.end = &agree.packets};

/* ---- messages as bytes --------------------------------------------------------------------- */

/* A received number may be any: the negation must not overflow. */
static usm_status status_of(uint32_t notified)
{
    return (usm_status)(int32_t)(0 - notified);
}

static void drop(result *r)
{
    if (r && --r->refs == 0)
        usm__heap_free(r);
}

static void post(uint32_t to, uint32_t op, result *r, const void *bytes, size_t size)
{
    packet *l = usm__heap_alloc(sizeof *l + size);

    if (!l)
        return; /* the other side will run into its timeout */
    l->to   = to;
    l->op   = op;
    l->seq  = r ? r->seq : agree.seq;
    l->r    = r;
    l->size = size;
    if (size > 0)
        memcpy(l->bytes, bytes, size);
    if (r)
        r->refs++;
    *agree.end = l;
    agree.end  = &l->next;
}

static void send_part(uint32_t to, const head *h, const void *bytes, size_t size)
{
    unsigned char text[HEADER + PART];

    usm_put_le(text, h->op, 4);
    usm_put_le(text + 4, h->seq, 4);
    usm_put_le(text + 8, h->status, 4);
    usm_put_le(text + 12, h->which, 4);
    usm_put_le(text + 16, h->total, 4);
    usm_put_le(text + 20, h->offset, 4);
    if (size > 0)
        memcpy(text + HEADER, bytes, size);
    (void)usm__job_send(to, USM__JOB_AGREE, text, HEADER + size); /* the loss of a rank is reported
                                                                     separately */
}

static void send_packet(const packet *l)
{
    const result *r = l->r;
    head          h = {.op = l->op, .seq = l->seq};

    if (!r) {
        send_part(l->to, &h, l->bytes, l->size);
        return;
    }
    h = (head){RESULT, r->seq, r->status, r->which, r->total, 0};
    do {
        uint32_t n = r->total - h.offset < PART ? r->total - h.offset : PART;

        send_part(l->to, &h, r->bytes + h.offset, n);
        h.offset += n;
    } while (h.offset < r->total);
}

void usm__agree_flush(void)
{
    packet *list;

    usm__mutex_lock(&usm__job.lock);
    list          = agree.packets;
    agree.packets = NULL;
    agree.end     = &agree.packets;
    agree.sending++;
    usm__mutex_unlock(&usm__job.lock);
    while (list) {
        packet *l = list;

        list = l->next;
        send_packet(l);
        usm__mutex_lock(&usm__job.lock);
        drop(l->r);
        usm__mutex_unlock(&usm__job.lock);
        usm__heap_free(l);
    }
    usm__mutex_lock(&usm__job.lock);
    if (--agree.sending == 0)
        usm__messages_wake();
    usm__mutex_unlock(&usm__job.lock);
}

/* ---- deciding: the lock is held in all of these -------------------------------------------- */

static bool is_lost(uint32_t rank)
{
    return usm__job.table.state[rank] == USM_PLACE_LOST;
}

static uint32_t lowest(void)
{
    uint32_t rank = 0;

    while (rank < usm__job.table.self && is_lost(rank))
        rank++;
    return rank;
}

static void post_all(uint32_t op, result *r)
{
    for (uint32_t rank = 0; rank < usm__job.table.nranks; rank++)
        if (rank != usm__job.table.self && !is_lost(rank))
            post(rank, op, r, NULL, 0);
}

static contribution *contribution_of(uint32_t rank, uint32_t seq)
{
    return &agree.contributions[rank][seq & 1];
}

static const contribution *contribution_here(uint32_t rank)
{
    const contribution *g = contribution_of(rank, agree.seq);

    return g->seq == agree.seq ? g : NULL;
}

static void give(uint32_t rank, uint32_t seq, const void *bytes, size_t size)
{
    contribution *g    = contribution_of(rank, seq);
    char         *copy = usm__heap_alloc(size);

    if (!copy)
        return;
    memcpy(copy, bytes, size);
    usm__heap_free(g->bytes);
    *g = (contribution){seq, (uint32_t)size, copy};
}

static void close_call(result *r)
{
    drop(agree.last);
    agree.last    = r;
    agree.is_open = false;
    usm__messages_wake();
}

static result *make_result(usm_status status, uint32_t which, uint32_t total)
{
    result *r = usm__heap_alloc(sizeof *r + total);

    if (r)
        *r = (result){1, agree.seq, which, 0 - (uint32_t)status, total};
    return r;
}

/* Ends the call with a failure: on this rank alone, or everywhere. */
static void refuse(usm_status status, uint32_t which, bool is_root)
{
    result *r = make_result(status, which, 0);

    if (r && is_root)
        post_all(RESULT, r);
    else if (r)
        r->seq = 0; /* for no other rank */
    close_call(r);  /* NULL: no memory */
}

/* As the root: decides if every rank has contributed. */
static void decide(void)
{
    uint32_t n = usm__job.table.nranks, missing = n;
    result  *r;

    for (uint32_t rank = 0; rank < n; rank++) {
        const contribution *g = contribution_here(rank);

        if (g && g->size != agree.size) {
            refuse(USM_E_INVALID, rank, true);
            return;
        }
        if (!g && !is_lost(rank))
            return;
        if (!g && !agree.was_lost[rank] && missing == n)
            missing = rank;
    }
    if (missing < n) {
        refuse(USM_E_PEER, missing, true);
        return;
    }
    r = make_result(USM_OK, 0, n * agree.size);
    for (uint32_t rank = 0; r && rank < n; rank++)
        if (contribution_here(rank))
            memcpy(r->bytes + (size_t)rank * agree.size, contribution_here(rank)->bytes,
                   agree.size);
    if (r)
        post_all(RESULT, r);
    close_call(r);
}

static void go_to_root(bool is_new)
{
    const contribution *own = contribution_here(usm__job.table.self);

    agree.root = lowest();
    if (agree.root != usm__job.table.self) {
        if (own)
            post(agree.root, GIVE, NULL, own->bytes, own->size);
        return;
    }
    if (is_new && agree.root > 0)
        post_all(ASK, NULL); /* a rank may have the decision of an earlier root */
    decide();
}

void usm__agree_lost(uint32_t rank)
{
    if (!agree.is_open)
        return;
    if (rank == agree.root)
        go_to_root(true);
    else if (agree.root == usm__job.table.self)
        decide();
}

/* ---- received messages: the lock is held --------------------------------------------------- */

/* The number of the last call that has a result here. */
static uint32_t last_seq(void)
{
    return agree.is_open ? agree.seq - 1 : agree.seq;
}

static void answer_late(uint32_t from, uint32_t seq)
{
    result *r = agree.last;

    if (r && r->seq == seq) {
        post(from, RESULT, r, NULL, 0);
        return;
    }
    r = make_result(USM_E_PEER, from, 0);
    if (!r)
        return;
    r->seq = seq;
    post(from, RESULT, r, NULL, 0);
    drop(r);
}

static void take_contribution(uint32_t from, const head *h, const void *bytes, size_t size)
{
    if ((int32_t)(h->seq - last_seq()) <= 0) {
        answer_late(from, h->seq);
        return;
    }
    if (size == 0 || size > SIZE_MAX_AGREE)
        return;
    give(from, h->seq, bytes, size);
    if (agree.is_open && agree.root == usm__job.table.self)
        decide();
}

static void take_question(uint32_t from, const head *h)
{
    const contribution *own = contribution_here(usm__job.table.self);

    if (agree.last && agree.last->seq == h->seq)
        post(from, RESULT, agree.last, NULL, 0);
    else if (agree.is_open && agree.seq == h->seq && own)
        post(from, GIVE, NULL, own->bytes, own->size);
}

static void take_result(uint32_t from, const head *h, const void *bytes, size_t size)
{
    /* All bytes of a success are sent, and none of a failure: a faulty member may send anything
     * else. */
    if (!agree.is_open || h->seq != agree.seq ||
        h->total != (h->status == 0 ? usm__job.table.nranks * agree.size : 0))
        return;
    if (!agree.coming || agree.coming_from != from) { /* else from the start, by another rank */
        drop(agree.coming);
        agree.coming      = make_result(status_of(h->status), h->which, h->total);
        agree.coming_from = from;
        agree.coming_have = 0;
    }
    if (!agree.coming || h->offset != agree.coming_have ||
        size > agree.coming->total - agree.coming_have)
        return; /* a part that came before: two threads of the sender have sent it */
    if (size > 0)
        memcpy(agree.coming->bytes + agree.coming_have, bytes, size);
    agree.coming_have += (uint32_t)size;
    if (agree.coming_have == agree.coming->total) {
        close_call(agree.coming);
        agree.coming = NULL;
    }
}

static void came(void *arg, uint32_t from, const void *data, size_t size)
{
    const unsigned char *text = data;
    head                 h;

    (void)arg;
    if (size < HEADER)
        return;
    h = (head){(uint32_t)usm_get_le(text, 4),      (uint32_t)usm_get_le(text + 4, 4),
               (uint32_t)usm_get_le(text + 8, 4),  (uint32_t)usm_get_le(text + 12, 4),
               (uint32_t)usm_get_le(text + 16, 4), (uint32_t)usm_get_le(text + 20, 4)};
    usm__mutex_lock(&usm__job.lock);
    if (agree.contributions) {
        if (h.op == GIVE)
            take_contribution(from, &h, text + HEADER, size - HEADER);
        else if (h.op == ASK)
            take_question(from, &h);
        else if (h.op == RESULT)
            take_result(from, &h, text + HEADER, size - HEADER);
    }
    usm__mutex_unlock(&usm__job.lock);
    usm__agree_flush();
}

/* ---- the call ------------------------------------------------------------------------------ */

/* The lock is held. */
static void begin(const void *mine, size_t size)
{
    agree.is_busy = agree.is_open = true;
    agree.seq++;
    agree.size = (uint32_t)size;
    drop(agree.coming);
    agree.coming = NULL;
    for (uint32_t rank = 0; rank < usm__job.table.nranks; rank++)
        agree.was_lost[rank] = is_lost(rank);
    give(usm__job.table.self, agree.seq, mine, size);
    go_to_root(true);
}

static bool is_over(const struct timespec *end)
{
    struct timespec now = usm__job_deadline(0);

    return now.tv_sec > end->tv_sec || (now.tv_sec == end->tv_sec && now.tv_nsec >= end->tv_nsec);
}

/* Waits for a short time.  A module without a thread makes progress only during calls, so one is
 * called.  The lock is held; it is released meanwhile. */
static void wait_a_slice(const struct timespec *end, unsigned ms)
{
    struct timespec          slice = usm__job_deadline(ms < SLICE_MS ? ms : SLICE_MS);
    const usm_transport_ops *ops;
    void                    *job;
    uint32_t                 self, count;

    if (slice.tv_sec > end->tv_sec || (slice.tv_sec == end->tv_sec && slice.tv_nsec > end->tv_nsec))
        slice = *end;
    if (usm__mutex_wait(&usm__job.lock, &usm__job.changed, &slice) == 0)
        return; /* something has arrived */
    usm__mutex_unlock(&usm__job.lock);
    if (usm__job_enter(&ops, &job) == USM_OK) {
        (void)ops->members(job, &self, &count);
        usm__job_leave();
    }
    usm__agree_flush();
    usm__mutex_lock(&usm__job.lock);
}

static void end_in_time(void)
{
    uint32_t rank = agree.root;

    if (agree.root == usm__job.table.self) /* a rank is missing, else the root had decided */
        for (rank = 0;
             rank + 1 < usm__job.table.nranks && (contribution_here(rank) || is_lost(rank));)
            rank++;
    refuse(USM_E_PEER, rank, agree.root == usm__job.table.self);
}

static usm_status check(const void *mine, size_t size, const void *all)
{
    if (!mine || !all || size == 0 || size > SIZE_MAX_AGREE)
        return usm__fail(USM_E_INVALID, "ranks agree about 1 to %u bytes, not %zu", SIZE_MAX_AGREE,
                         size);
    return usm__job_check();
}

static usm_status notify(const result *r, void *all, uint32_t *which)
{
    usm_status status;

    if (!r)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for what the ranks agree about");
    status = status_of(r->status);
    if (status == USM_OK) {
        memcpy(all, r->bytes, r->total);
        return USM_OK;
    }
    if (which)
        *which = r->which;
    if (status == USM_E_PEER)
        return usm__fail(USM_E_PEER, "rank %u has ended, or did not come to a call of all ranks",
                         r->which);
    return usm__fail(status, "rank %u came to a call of all ranks with other sizes", r->which);
}

/* Another thread may be about to send the decision, and the caller may leave the job once it
 * returns. */
static void wait_for_senders(void)
{
    usm__mutex_lock(&usm__job.lock);
    while (agree.sending > 0)
        (void)usm__mutex_wait(&usm__job.lock, &usm__job.changed, NULL);
    usm__mutex_unlock(&usm__job.lock);
}

usm_status usm__job_agree(const void *mine, size_t size, void *all, uint32_t timeout_ms,
                          uint32_t *which)
{
    struct timespec end = usm__job_deadline(timeout_ms);
    usm_status      st;

    usm__mutex_lock(&usm__job.lock);
    st = check(mine, size, all);
    if (st == USM_OK && agree.is_busy)
        st = usm__fail(USM_E_BUSY, "two threads are in calls of all ranks at a time");
    if (st != USM_OK)
        goto out;
    begin(mine, size);
    if (agree.root != usm__job.table.self)
        end = usm__job_deadline((uint64_t)timeout_ms + timeout_ms / 2);
    usm__mutex_unlock(&usm__job.lock);
    usm__agree_flush();
    usm__mutex_lock(&usm__job.lock);
    for (unsigned ms = 1; agree.is_open && usm__job.phase == USM__JOB_ATTACHED && !is_over(&end);
         ms++)
        wait_a_slice(&end, ms);
    st = usm__job_check();
    if (st == USM_OK && agree.is_open)
        end_in_time();
    if (st == USM_OK)
        st = notify(agree.last, all, which);
    agree.is_busy = agree.is_open = false;
out:
    usm__mutex_unlock(&usm__job.lock);
    usm__agree_flush();
    wait_for_senders();
    return st;
}

/* ---- start and end ------------------------------------------------------------------------- */

usm_status usm__agree_start(void)
{
    uint32_t n = usm__job.table.nranks;

    agree.was_lost      = usm__heap_alloc(n * sizeof *agree.was_lost);
    agree.contributions = usm__heap_alloc(n * sizeof *agree.contributions);
    if (!agree.was_lost || !agree.contributions) {
        usm__agree_stop();
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the job's %u ranks", n);
    }
    usm__job_listen(USM__JOB_AGREE, came, NULL);
    return USM_OK;
}

/* A thread may still be in a call, or be sending: what it holds is dropped when it returns. */
void usm__agree_stop(void)
{
    unsigned sending;

    usm__job_listen(USM__JOB_AGREE, NULL, NULL);
    usm__mutex_lock(&usm__job.lock);
    sending = agree.sending;
    for (uint32_t rank = 0; agree.contributions && rank < usm__job.table.nranks; rank++) {
        usm__heap_free(agree.contributions[rank][0].bytes);
        usm__heap_free(agree.contributions[rank][1].bytes);
    }
    usm__heap_free(agree.contributions);
    usm__heap_free(agree.was_lost);
    drop(agree.last);
    drop(agree.coming);
    while (agree.packets) {
        packet *l = agree.packets;

        agree.packets = l->next;
        drop(l->r);
        usm__heap_free(l);
    }
    memset(&agree, 0, sizeof agree);
    agree.end     = &agree.packets;
    agree.sending = sending;
    usm__mutex_unlock(&usm__job.lock);
}

void usm__agree_fork_child(void)
{
    agree.packets = NULL;
    agree.end     = &agree.packets;
    agree.sending = 0;
    agree.is_busy = agree.is_open = false;
}
