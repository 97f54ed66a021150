/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The directories of shared buffers (shared_state.h): which rank owns a block, which ranks have
 * copies, and one request at a time.  Without side effects, as shared_state.c.
 *
 *     IDLE -> DROPPING -> SENDING -> IDLE          a write; RECALLING if the asker has ended
 *     IDLE -> SENDING -> IDLE                      a read
 *     REBUILD -> IDLE                              taken over from a rank that has ended
 *
 * A block whose owner has ended is lost for good: requests for it are refused. */
#include "base/os.h"
#include "cluster/shared_private.h"

typedef enum phase { IDLE = 0, DROPPING, SENDING, RECALLING, REBUILD } phase;

/* A rank as the directory of one block sees it. */
typedef struct peer {
    uint64_t last;    /* number of its last request: a request that is not higher is a duplicate */
    uint32_t next;    /* in line, + 1; 0: it is the last */
    uint8_t  mode;    /* of `last`, while it is in line */
    bool     is_copy; /* it has a copy */
    bool     is_awaited; /* its answer to a DROP is awaited */
    bool     is_in_line;
} peer;

struct usm__shared_dir {
    uint64_t txn;
    uint32_t owner;       /* m->ranks: no rank */
    uint32_t first, last; /* in line, + 1 */
    uint32_t asker, awaited;
    uint8_t  mode; /* mode that the asker wants */
    uint8_t  phase;
    bool     is_lost;
    peer     peers[];
};

/* A home whose directory this rank has become. */
struct usm__shared_takeover {
    uint32_t awaited;
    bool     has_notified[];
};

/* ---- entries --------------------------------------------------------------------------- */

/* Returns the entry of a block, or makes one in the initial state: the home owns the block, and it
 * is lost if the home is; NULL: no memory. */
static usm__shared_dir *entry(usm__shared_machine *m, uint64_t block)
{
    usm__shared_dir *d = m->dir[block];

    if (d)
        return d;
    d = usm__heap_alloc(sizeof *d + m->ranks * sizeof *d->peers);
    if (!d)
        return NULL;
    d->owner      = usm__shared_home(m, block);
    d->is_lost    = m->lost[d->owner];
    m->dir[block] = d;
    return d;
}

void usm__shared_dir_free(usm__shared_machine *m)
{
    for (uint64_t b = 0; b < m->blocks; b++)
        usm__heap_free(m->dir[b]);
    for (uint32_t r = 0; r < m->ranks; r++)
        usm__heap_free(m->takeovers[r]);
}

static void put_in_line(usm__shared_dir *d, uint32_t rank)
{
    if (d->peers[rank].is_in_line)
        return; /* its later request replaces the earlier one */
    d->peers[rank].is_in_line = true;
    d->peers[rank].next       = 0;
    if (d->last)
        d->peers[d->last - 1].next = rank + 1;
    else
        d->first = rank + 1;
    d->last = rank + 1;
}

/* False: no rank is in line. */
static bool take_from_line(usm__shared_dir *d, uint32_t *rank)
{
    if (!d->first)
        return false;
    *rank    = d->first - 1;
    d->first = d->peers[*rank].next;
    if (!d->first)
        d->last = 0;
    d->peers[*rank].is_in_line = false;
    return true;
}

/* ---- messages ---------------------------------------------------------------------------- */

static void notify(usm__shared_machine *m, usm__shared_op op, uint32_t to, uint64_t block)
{
    const usm__shared_dir    *d   = m->dir[block];
    const usm__shared_message msg = {.op      = (uint8_t)op,
                                     .block   = block,
                                     .txn     = d->txn,
                                     .rank    = d->asker,
                                     .request = d->peers[d->asker].last};

    m->ops->send(m->arg, to, &msg);
}

static void refuse(usm__shared_machine *m, uint32_t to, const usm__shared_message *about,
                   usm_status st)
{
    const usm__shared_message msg = {.op      = USM__SHARED_REFUSE,
                                     .block   = about->block,
                                     .request = about->request,
                                     .txn     = about->txn,
                                     .status  = st};

    m->ops->send(m->arg, to, &msg);
}

static void refuse_asker(usm__shared_machine *m, uint64_t block)
{
    const usm__shared_dir    *d     = m->dir[block];
    const usm__shared_message about = {
        .block = block, .request = d->peers[d->asker].last, .txn = d->txn};

    refuse(m, d->asker, &about, USM_E_PEER);
}

static void send_from_owner(usm__shared_machine *m, uint64_t block, uint8_t flags)
{
    const usm__shared_dir    *d   = m->dir[block];
    const usm__shared_message msg = {.op      = USM__SHARED_SEND,
                                     .block   = block,
                                     .txn     = d->txn,
                                     .flags   = flags,
                                     .rank    = d->asker,
                                     .request = d->peers[d->asker].last};

    m->ops->send(m->arg, d->owner, &msg);
}

/* ---- one request after the other ------------------------------------------------------------ */

static void lose(usm__shared_machine *m, uint64_t block)
{
    usm__shared_dir *d = m->dir[block];
    uint32_t         rank;

    d->is_lost = true;
    d->phase   = IDLE;
    while (take_from_line(d, &rank)) {
        const usm__shared_message about = {.block = block, .request = d->peers[rank].last};

        refuse(m, rank, &about, USM_E_PEER);
    }
    for (uint32_t r = 0; r < m->ranks; r++)
        if (d->peers[r].is_copy) {
            d->peers[r].is_copy = false;
            notify(m, USM__SHARED_LOST, r, block);
        }
}

/* No rank has a copy any more, except possibly the asker.  False: the request has been dropped. */
static bool pass_on(usm__shared_machine *m, uint64_t block)
{
    usm__shared_dir *d = m->dir[block];
    uint8_t          flags;

    if (m->lost[d->asker])
        return false;
    d->phase = SENDING;
    if (m->lost[d->owner]) {
        refuse_asker(m, block);
        return true;
    }
    if (d->owner == d->asker) {
        notify(m, USM__SHARED_GRANT, d->asker, block);
        return true;
    }
    flags = USM__SHARED_GIVE;
    if (d->peers[d->asker].is_copy || (d->mode & USM_NO_INIT))
        flags |= USM__SHARED_NO_BYTES;
    send_from_owner(m, block, flags);
    return true;
}

/* False: the request has been dropped. */
static bool start(usm__shared_machine *m, uint64_t block)
{
    usm__shared_dir *d = m->dir[block];

    d->txn++;
    if (m->lost[d->asker])
        return false;
    if (!(d->mode & USM_WRITE)) {
        d->phase = SENDING;
        send_from_owner(m, block, 0);
        return true;
    }
    d->phase = DROPPING;
    for (uint32_t r = 0; r < m->ranks; r++)
        if (d->peers[r].is_copy && r != d->asker) {
            d->peers[r].is_awaited = true;
            d->awaited++;
        }
    for (uint32_t r = 0; r < m->ranks; r++)
        if (d->peers[r].is_awaited)
            notify(m, USM__SHARED_DROP, r, block);
    return d->awaited > 0 || pass_on(m, block);
}

/* The current request has ended. */
static void next(usm__shared_machine *m, uint64_t block)
{
    usm__shared_dir *d = m->dir[block];
    uint32_t         rank;

    d->phase = IDLE;
    if (d->owner == m->ranks || m->lost[d->owner]) {
        lose(m, block);
        return;
    }
    while (take_from_line(d, &rank)) {
        d->asker = rank;
        d->mode  = d->peers[rank].mode;
        if (start(m, block))
            return;
    }
    d->phase = IDLE;
}

static void take_ask(usm__shared_machine *m, uint32_t from, const usm__shared_message *msg)
{
    usm__shared_dir *d = entry(m, msg->block);

    if (!d) {
        refuse(m, from, msg, USM_E_NO_MEMORY);
        return;
    }
    if (msg->request <= d->peers[from].last)
        return;
    d->peers[from].last = msg->request;
    d->peers[from].mode = msg->mode;
    if (d->is_lost) {
        refuse(m, from, msg, USM_E_PEER);
        return;
    }
    put_in_line(d, from);
    if (d->phase == IDLE)
        next(m, msg->block);
}

static void copy_dropped(usm__shared_machine *m, uint64_t block, uint32_t from)
{
    usm__shared_dir *d = m->dir[block];

    d->peers[from].is_copy = false;
    if (!d->peers[from].is_awaited)
        return;
    d->peers[from].is_awaited = false;
    if (--d->awaited == 0 && !pass_on(m, block))
        next(m, block);
}

static void done(usm__shared_machine *m, uint32_t from, const usm__shared_message *msg)
{
    usm__shared_dir *d = m->dir[msg->block];

    if (d->phase != SENDING || msg->txn != d->txn || from != d->asker)
        return;
    if (msg->status == USM_OK && (d->mode & USM_WRITE)) {
        d->peers[from].is_copy = false;
        d->owner               = from;
    } else if (msg->status == USM_OK) {
        d->peers[from].is_copy = true;
    }
    next(m, msg->block);
}

static void kept(usm__shared_machine *m, uint32_t from, const usm__shared_message *msg)
{
    usm__shared_dir *d = m->dir[msg->block];

    if (d->phase != RECALLING || msg->txn != d->txn || from != d->owner)
        return;
    if (msg->status != USM_OK)
        d->owner = m->ranks;
    next(m, msg->block);
}

/* ---- a rank ends ------------------------------------------------------------------------- */

static void block_rank_lost(usm__shared_machine *m, uint64_t block, uint32_t rank)
{
    usm__shared_dir *d = m->dir[block];

    if (d->phase == DROPPING) {
        copy_dropped(m, block, rank);
        return;
    }
    d->peers[rank].is_copy = false;
    if (d->is_lost || d->phase == REBUILD)
        return;
    if (d->phase == IDLE || d->phase == RECALLING) {
        if (d->owner == rank)
            next(m, block);
    } else if (d->asker == rank) {
        if (!(d->mode & USM_WRITE) || m->lost[d->owner]) {
            next(m, block);
            return;
        }
        d->phase = RECALLING;
        notify(m, USM__SHARED_RECALL, d->owner, block);
    } else if (d->owner == rank) {
        refuse_asker(m, block); /* unless the bytes came before, which its DONE shows */
    }
}

static void finish_takeover(usm__shared_machine *m, uint32_t home)
{
    usm__heap_free(m->takeovers[home]);
    m->takeovers[home] = NULL;
    for (uint64_t b = 0; b < m->blocks; b++)
        if (usm__shared_home(m, b) == home && m->dir[b] && m->dir[b]->phase == REBUILD)
            next(m, b);
}

static void home_notified(usm__shared_machine *m, uint32_t home, uint32_t rank)
{
    usm__shared_takeover *t = m->takeovers[home];

    if (!t || t->has_notified[rank])
        return;
    t->has_notified[rank] = true;
    if (--t->awaited == 0)
        finish_takeover(m, home);
}

void usm__shared_dir_rank_lost(usm__shared_machine *m, uint32_t rank)
{
    for (uint32_t home = 0; home < m->ranks; home++)
        home_notified(m, home, rank);
    for (uint64_t b = 0; b < m->blocks; b++)
        if (m->dir[b])
            block_rank_lost(m, b, rank);
}

/* Without memory the blocks are lost: see entry(). */
void usm__shared_dir_take_over(usm__shared_machine *m, uint32_t home)
{
    usm__shared_takeover *t = usm__heap_alloc(sizeof *t + m->ranks * sizeof *t->has_notified);

    if (!t)
        return;
    for (uint32_t r = 0; r < m->ranks; r++) {
        t->has_notified[r] = m->lost[r];
        t->awaited += !m->lost[r];
    }
    m->takeovers[home] = t;
    for (uint64_t b = 0; b < m->blocks; b++) {
        usm__shared_dir *d = usm__shared_home(m, b) == home ? entry(m, b) : NULL;

        if (!d)
            continue;
        d->phase   = REBUILD;
        d->owner   = m->ranks;
        d->is_lost = false;
    }
}

static void take_report(usm__shared_machine *m, uint32_t from, const usm__shared_message *msg)
{
    usm__shared_dir *d = m->dir[msg->block];

    if (!d || d->phase != REBUILD)
        return;
    if (msg->mode >= USM__HOLD_OWNED)
        d->owner = from;
    else
        d->peers[from].is_copy = true;
}

/* A rank that reports blocks of that home to this rank knows that all ranks in between have
 * ended. */
static void learn(usm__shared_machine *m, uint32_t home)
{
    for (uint32_t r = home; r != m->self; r = (r + 1) % m->ranks)
        usm__shared_rank_lost(m, r);
}

void usm__shared_dir_receive(usm__shared_machine *m, uint32_t from, const usm__shared_message *msg)
{
    usm__shared_op op = (usm__shared_op)msg->op;

    if (m->lost[from])
        return;
    if (op == USM__SHARED_REPORTED || op == USM__SHARED_REPORT)
        learn(m, op == USM__SHARED_REPORTED ? msg->rank : usm__shared_home(m, msg->block));
    if (op == USM__SHARED_REPORTED) {
        home_notified(m, msg->rank, from);
        return;
    }
    if (usm__shared_dir_of(m, msg->block) != m->self)
        return;
    if (op == USM__SHARED_ASK)
        take_ask(m, from, msg);
    else if (!m->dir[msg->block])
        return;
    else if (op == USM__SHARED_REPORT)
        take_report(m, from, msg);
    else if (op == USM__SHARED_DROPPED && m->dir[msg->block]->phase == DROPPING &&
             msg->txn == m->dir[msg->block]->txn)
        copy_dropped(m, msg->block, from);
    else if (op == USM__SHARED_DONE)
        done(m, from, msg);
    else if (op == USM__SHARED_KEPT)
        kept(m, from, msg);
}
