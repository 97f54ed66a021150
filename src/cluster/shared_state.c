/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A rank's own part of the protocol of shared_state.h: the state of each block here, the accesses
 * that wait for it, and the answers to directories.  The directories are in shared_dir.c. */
#include "cluster/shared_state.h"

#include "base/os.h"
#include "cluster/shared_private.h"

#define WRITES(mode) (((mode)&USM_WRITE) != 0)

/* ---- creating ------------------------------------------------------------------------------ */

usm_status usm__shared_init(usm__shared_machine *m)
{
    m->lost      = usm__heap_alloc(m->ranks * sizeof *m->lost);
    m->local     = usm__heap_alloc(m->blocks * sizeof *m->local);
    m->dir       = usm__heap_alloc(m->blocks * sizeof(usm__shared_dir *));
    m->takeovers = usm__heap_alloc(m->ranks * sizeof(usm__shared_takeover *));
    if (!m->lost || !m->local || !m->dir || !m->takeovers) {
        usm__shared_fini(m);
        return USM_E_NO_MEMORY;
    }
    for (uint64_t b = 0; b < m->blocks; b++)
        m->local[b].hold = usm__shared_home(m, b) == m->self ? USM__HOLD_EXCLUSIVE : USM__HOLD_NONE;
    return USM_OK;
}

void usm__shared_fini(usm__shared_machine *m)
{
    if (m->dir && m->takeovers)
        usm__shared_dir_free(m);
    usm__heap_free(m->lost);
    usm__heap_free(m->local);
    usm__heap_free(m->dir);
    usm__heap_free(m->takeovers);
    m->lost      = NULL;
    m->local     = NULL;
    m->dir       = NULL;
    m->takeovers = NULL;
}

/* ---- accesses ------------------------------------------------------------------------ */

static bool permits(const usm__shared_local *l, usm_access_mode mode)
{
    if (l->is_giving || l->pending == USM__SHARED_DROP)
        return false;
    if (l->pending == USM__SHARED_SEND && (WRITES(mode) || (l->flags & USM__SHARED_GIVE)))
        return false;
    return WRITES(mode) ? l->hold == USM__HOLD_EXCLUSIVE : l->hold >= USM__HOLD_SHARED;
}

static void enter(usm__shared_local *l, usm_access_mode mode)
{
    if (WRITES(mode))
        l->writers++;
    else
        l->readers++;
}

static void notify_directory(usm__shared_machine *m, usm__shared_op op, uint64_t block,
                             uint64_t txn, usm_status st)
{
    const usm__shared_message msg = {.op      = (uint8_t)op,
                                     .block   = block,
                                     .request = m->local[block].request,
                                     .txn     = txn,
                                     .status  = st};

    m->ops->send(m->arg, usm__shared_dir_of(m, block), &msg);
}

static void request(usm__shared_machine *m, uint64_t block, unsigned mode)
{
    usm__shared_local        *l   = &m->local[block];
    const usm__shared_message msg = {
        .op = USM__SHARED_ASK, .mode = (uint8_t)mode, .block = block, .request = ++l->request};

    l->asked = (uint8_t)mode;
    m->ops->send(m->arg, usm__shared_dir_of(m, block), &msg);
}

/* Requests the block for all accesses that wait: for writing, if one of them writes; without bytes,
 * if none needs them. */
static void ask(usm__shared_machine *m, uint64_t block)
{
    const usm__shared_local *l   = &m->local[block];
    unsigned                 all = USM_NO_INIT, any = 0;

    if (!l->first || l->asked || l->pending || l->is_giving)
        return;
    for (const usm__shared_waiter *w = l->first; w; w = w->next) {
        all &= (unsigned)w->mode;
        any |= WRITES(w->mode) ? USM_WRITE : USM_READ;
    }
    request(m, block, (any & USM_WRITE ? USM_WRITE : USM_READ) | all);
}

/* Admits the waiting accesses that the state permits (st USM_OK), or lets all fail with st.  Then
 * requests the block for the rest. */
static void admit(usm__shared_machine *m, uint64_t block, usm_status st)
{
    usm__shared_local  *l    = &m->local[block];
    usm__shared_waiter *w    = l->first;
    usm__shared_waiter *next = NULL;

    l->first = l->last = NULL;
    for (; w; w = next) {
        next    = w->next;
        w->next = NULL;
        if (st == USM_OK && !permits(l, w->mode)) {
            if (l->last)
                l->last->next = w;
            else
                l->first = w;
            l->last = w;
            continue;
        }
        if (st == USM_OK)
            enter(l, w->mode);
        w->status  = st;
        w->is_done = true;
        m->ops->wake(m->arg, w);
    }
    ask(m, block);
}

usm_status usm__shared_begin(usm__shared_machine *m, uint64_t block, usm_access_mode mode,
                             usm__shared_waiter *w)
{
    usm__shared_local *l = &m->local[block];

    if (l->hold == USM__HOLD_GONE)
        return USM_E_PEER;
    if (permits(l, mode)) {
        m->hits += !l->is_ahead;
        m->misses += l->is_ahead;
        l->is_ahead = false;
        enter(l, mode);
        return USM_OK;
    }
    l->is_ahead = false;
    m->misses++;
    w->next    = NULL;
    w->mode    = mode;
    w->is_done = false;
    w->status  = USM_E_NOT_READY;
    if (l->last)
        l->last->next = w;
    else
        l->first = w;
    l->last = w;
    ask(m, block);
    return USM_E_NOT_READY;
}

/* Without bytes it requests only blocks that it has a copy of: an access that reads meanwhile must
 * not find bytes that nobody wrote. */
void usm__shared_want(usm__shared_machine *m, uint64_t block, usm_access_mode mode)
{
    usm__shared_local *l = &m->local[block];

    if (l->hold == USM__HOLD_GONE || permits(l, mode) || l->first || l->asked || l->pending ||
        l->is_giving || ((mode & USM_NO_INIT) && l->hold == USM__HOLD_NONE))
        return;
    l->is_ahead = true;
    request(m, block, WRITES(mode) ? USM_WRITE : USM_READ);
}

void usm__shared_cancel(usm__shared_machine *m, uint64_t block, usm__shared_waiter *w)
{
    usm__shared_local  *l  = &m->local[block];
    usm__shared_waiter *it = l->first, *kept = NULL;

    l->first = l->last = NULL;
    for (usm__shared_waiter *next = NULL; it; it = next) {
        next     = it->next;
        it->next = NULL;
        if (it == w)
            continue;
        if (kept)
            kept->next = it;
        else
            l->first = it;
        l->last = kept = it;
    }
}

/* ---- requests of directories --------------------------------------------------------------- */

static void leave(usm__shared_machine *m, uint64_t block)
{
    m->local[block].hold = USM__HOLD_NONE;
    m->ops->content(m->arg, block, false);
}

static void drop(usm__shared_machine *m, uint64_t block)
{
    usm__shared_local *l = &m->local[block];

    if (l->hold == USM__HOLD_SHARED) {
        m->invalidated++;
        leave(m, block);
    }
    notify_directory(m, USM__SHARED_DROPPED, block, l->txn, USM_OK);
}

static void refuse(usm__shared_machine *m, const usm__shared_give *g, usm_status st)
{
    const usm__shared_message msg = {.op      = USM__SHARED_REFUSE,
                                     .status  = st,
                                     .block   = g->block,
                                     .request = g->request,
                                     .txn     = g->txn};

    m->ops->send(m->arg, g->to, &msg);
}

static void give(usm__shared_machine *m, uint64_t block)
{
    usm__shared_local     *l = &m->local[block];
    const usm__shared_give g = {block, l->to_request, l->txn, l->to, ++l->gives, l->flags};

    if (l->hold < USM__HOLD_OWNED) {
        refuse(m, &g, USM_E_PEER); /* the block was lost here, for lack of memory */
    } else if (!(g.flags & USM__SHARED_GIVE)) {
        l->hold = USM__HOLD_OWNED;
        m->ops->give(m->arg, &g);
    } else if (!(g.flags & USM__SHARED_NO_BYTES)) {
        l->is_giving = true;
        m->ops->give(m->arg, &g);
    } else {
        const usm__shared_message msg = {.op      = USM__SHARED_DATA,
                                         .flags   = g.flags,
                                         .block   = block,
                                         .request = g.request,
                                         .txn     = g.txn};

        leave(m, block);
        m->ops->send(m->arg, g.to, &msg);
    }
}

/* Handles a pending message if no open access conflicts with it any more. */
static void proceed(usm__shared_machine *m, uint64_t block)
{
    usm__shared_local *l       = &m->local[block];
    uint8_t            op      = l->pending;
    bool               is_read = op == USM__SHARED_SEND && !(l->flags & USM__SHARED_GIVE);

    if (!op || l->writers || (l->readers && !is_read))
        return;
    l->pending = 0;
    if (op == USM__SHARED_DROP)
        drop(m, block);
    else
        give(m, block);
    admit(m, block, USM_OK);
}

void usm__shared_end(usm__shared_machine *m, uint64_t block, usm_access_mode mode)
{
    usm__shared_local *l = &m->local[block];

    if (WRITES(mode))
        l->writers--;
    else
        l->readers--;
    proceed(m, block);
}

void usm__shared_sent(usm__shared_machine *m, const usm__shared_give *g, usm_status st)
{
    usm__shared_local *l = &m->local[g->block];

    if (st != USM_OK)
        refuse(m, g, st);
    if (!(g->flags & USM__SHARED_GIVE) || !l->is_giving || g->serial != l->gives)
        return; /* the block may have come back already */
    l->is_giving = false;
    if (st == USM_OK || l->is_orphan)
        leave(m, g->block);
    if (l->is_recalled)
        notify_directory(m, USM__SHARED_KEPT, g->block, g->txn, st == USM_OK ? USM_E_PEER : USM_OK);
    l->is_recalled = l->is_orphan = false;
    admit(m, g->block, USM_OK);
}

/* A later transaction replaces one that was abandoned because its rank has ended. */
static void demand(usm__shared_machine *m, const usm__shared_message *msg)
{
    usm__shared_local *l = &m->local[msg->block];

    if (msg->txn <= l->txn)
        return;
    l->txn        = msg->txn;
    l->pending    = msg->op;
    l->flags      = msg->flags;
    l->to         = msg->rank;
    l->to_request = msg->request;
    proceed(m, msg->block);
}

static void recall(usm__shared_machine *m, const usm__shared_message *msg)
{
    usm__shared_local *l = &m->local[msg->block];

    if (l->is_giving) {
        l->is_recalled = true;
        return;
    }
    if (l->pending == USM__SHARED_SEND && l->txn == msg->txn)
        l->pending = 0;
    notify_directory(m, USM__SHARED_KEPT, msg->block, msg->txn,
                     l->hold >= USM__HOLD_OWNED ? USM_OK : USM_E_PEER);
    admit(m, msg->block, USM_OK);
}

/* ---- answers to requests ------------------------------------------------------------------- */

bool usm__shared_expects(const usm__shared_machine *m, uint64_t block, uint64_t request)
{
    return m->local[block].asked && m->local[block].request == request;
}

static void arrived(usm__shared_machine *m, const usm__shared_message *msg)
{
    usm__shared_local *l = &m->local[msg->block];
    /* The receiver has what this rank was giving away, though the sender here has not reported it
     * yet. */
    usm__shared_hold was = l->is_giving ? USM__HOLD_NONE : (usm__shared_hold)l->hold;

    l->is_giving = false;
    if (msg->op == USM__SHARED_GRANT || (msg->flags & USM__SHARED_GIVE))
        l->hold = USM__HOLD_EXCLUSIVE;
    else
        l->hold = USM__HOLD_SHARED;
    if (was == USM__HOLD_NONE && (msg->flags & USM__SHARED_NO_BYTES))
        m->ops->content(m->arg, msg->block, true);
    l->asked = 0;
    notify_directory(m, USM__SHARED_DONE, msg->block, msg->txn, USM_OK);
    admit(m, msg->block, USM_OK);
}

static void refused(usm__shared_machine *m, const usm__shared_message *msg)
{
    m->local[msg->block].asked = 0;
    notify_directory(m, USM__SHARED_DONE, msg->block, msg->txn, (usm_status)msg->status);
    admit(m, msg->block, (usm_status)msg->status);
}

/* The block is lost for good. */
static void gone(usm__shared_machine *m, uint64_t block)
{
    usm__shared_local *l = &m->local[block];

    l->pending = 0;
    l->asked   = 0;
    if (l->hold >= USM__HOLD_SHARED)
        m->ops->content(m->arg, block, false);
    l->hold = USM__HOLD_GONE;
    admit(m, block, USM_E_PEER);
}

static void receive_answer(usm__shared_machine *m, const usm__shared_message *msg)
{
    if (!usm__shared_expects(m, msg->block, msg->request))
        return;
    if (msg->op == USM__SHARED_REFUSE)
        refused(m, msg);
    else
        arrived(m, msg);
}

static void receive_order(usm__shared_machine *m, const usm__shared_message *msg)
{
    if (msg->op == USM__SHARED_RECALL)
        recall(m, msg);
    else if (msg->op == USM__SHARED_LOST)
        gone(m, msg->block);
    else
        demand(m, msg);
}

void usm__shared_receive(usm__shared_machine *m, uint32_t from, const usm__shared_message *msg)
{
    if (from >= m->ranks || msg->block >= m->blocks || msg->rank >= m->ranks)
        return;
    switch ((usm__shared_op)msg->op) {
    case USM__SHARED_ASK:
    case USM__SHARED_DROPPED:
    case USM__SHARED_DONE:
    case USM__SHARED_KEPT:
    case USM__SHARED_REPORT:
    case USM__SHARED_REPORTED:
        usm__shared_dir_receive(m, from, msg);
        break;
    case USM__SHARED_DROP:
    case USM__SHARED_SEND:
    case USM__SHARED_RECALL:
    case USM__SHARED_LOST:
        /* Any other rank was the directory before, and is thought to have ended. */
        if (usm__shared_dir_of(m, msg->block) == from)
            receive_order(m, msg);
        break;
    case USM__SHARED_GRANT:
    case USM__SHARED_REFUSE:
    case USM__SHARED_DATA:
        receive_answer(m, msg);
        break;
    case USM__SHARED_ABSENT:
        usm__shared_rank_lost(m, from);
        break;
    case USM__SHARED_BYE:
    case USM__SHARED_MAPPED:
    case USM__SHARED_OPS:
        break;
    }
}

/* ---- a rank ends ------------------------------------------------------------------------- */

/* The directory of the block has ended: its requests are void. */
static void report(usm__shared_machine *m, uint64_t block)
{
    usm__shared_local  *l   = &m->local[block];
    usm__shared_message msg = {.op = USM__SHARED_REPORT, .block = block, .mode = l->hold};

    l->pending     = 0;
    l->asked       = 0;
    l->txn         = 0;
    l->is_recalled = false;
    if (l->is_giving)
        l->is_orphan = true;
    else if (l->hold >= USM__HOLD_SHARED)
        m->ops->send(m->arg, usm__shared_dir_of(m, block), &msg);
}

/* The directory of `home` has ended; another rank has become it. */
static void report_home(usm__shared_machine *m, uint32_t home)
{
    const usm__shared_message end = {.op = USM__SHARED_REPORTED, .rank = home};
    uint32_t                  dir = usm__shared_next_living(m, home);

    if (dir == m->self)
        usm__shared_dir_take_over(m, home);
    for (uint64_t b = 0; b < m->blocks; b++)
        if (usm__shared_home(m, b) == home)
            report(m, b);
    m->ops->send(m->arg, dir, &end);
    for (uint64_t b = 0; b < m->blocks; b++)
        if (usm__shared_home(m, b) == home)
            admit(m, b, USM_OK);
}

void usm__shared_rank_lost(usm__shared_machine *m, uint32_t rank)
{
    if (rank >= m->ranks || rank == m->self || m->lost[rank])
        return;
    for (uint32_t i = 0; i < m->ranks; i++) {
        uint32_t home = (rank + m->ranks - i) % m->ranks;

        /* The homes whose first live rank it was: itself, and the lost ones directly before it. */
        if (i > 0 && !m->lost[home])
            break;
        m->lost[rank] = true;
        report_home(m, home);
    }
    usm__shared_dir_rank_lost(m, rank);
}
