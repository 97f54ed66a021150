/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Members: joining, signs of life, loss, leaving.
 *
 *     A  -- JOIN 1: A's challenge -------------------------->  B
 *        <- JOIN 2: B's challenge, proof over both ----------
 *        -- JOIN 3: proof over both ------------------------->  B: session, A is up
 *        <- WELCOME -----------------------------------------      A: B is up
 *
 * A session is a pair of incarnations, random numbers that each side draws for the other.  Headers
 * of another session are ignored, and their sender is told so (FENCED).  Either side may begin; if
 * both begin at once, they arrive at the same session.  A lost member may join again, under another
 * incarnation.
 *
 * A member that is silent for a lease is lost: the session ends, and no requests are sent to it any
 * more.  The blocks that this process keeps for it (its "estate") stay for orphan_ns, and so does
 * this process's "claim" to the blocks that the member keeps.  The member may only have been
 * stopped, or a cut cable may be repaired; and a member that is stopped or cut off is missed by all
 * its lenders at the same time.  When it speaks again it is fenced, and joins again with its claim.
 * If the claim is the number of the estate, both begin the next session with the blocks, otherwise
 * without.
 *
 * Statements about claim and estate hold for the incarnation that made them.  If one of them ends
 * outside of a session, another incarnation begins, and messages of the old one are void. */
#include "internal.h"

#include "base/inline/bytes.h"

#include <string.h>

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Draws another incarnation for this peer, never 0. */
static void incarnate(far_peer *peer)
{
    const far_node *node = peer->node;

    peer->mine = mix(mix(mix(node->params.seed) ^ peer->index) ^ ++peer->epoch);
    peer->mine |= peer->mine == 0;
}

/* The number of the estate that begins with this session: no other session's, never 0. */
static uint64_t orphans_number(uint64_t lender, uint64_t borrower)
{
    uint64_t number = mix(mix(lender) ^ borrower);

    return number | (number == 0);
}

void far_member_init(far_peer *peer)
{
    incarnate(peer);
}

/* ---- states --------------------------------------------------------------------------------- */

void far_member_describe(const far_peer *peer, uint64_t now, far_member *m)
{
    *m = (far_member){.peer       = peer->index,
                      .state      = peer->state,
                      .lends      = peer->lends,
                      .available  = usm_load_relaxed(&peer->available),
                      .silent_ns  = usm__group_lease_silence(&peer->lease, now),
                      .joined     = peer->joined,
                      .refused    = peer->is_refused,
                      .is_near    = peer->map != NULL,
                      .may_return = peer->may_return,
                      .is_silent  = peer->may_return && peer->is_silent};
    memcpy(m->domain, peer->domain, sizeof(m->domain));
}

static void notify(far_peer *peer)
{
    far_node  *node = peer->node;
    far_member m;

    if (node->params.member_changed == NULL)
        return;
    far_member_describe(peer, usm_load_relaxed(&node->now), &m);
    node->params.member_changed(node->params.user, &m);
}

static void state_set(far_peer *peer, far_member_state state)
{
    far_node *node = peer->node;

    if (peer->state == state)
        return;
    (void)pthread_mutex_lock(&node->lock);
    peer->state = state;
    if (state == FAR_UP)
        peer->is_refused = false;
    (void)pthread_mutex_unlock(&node->lock);
    notify(peer);
}

static void refuse(far_peer *peer)
{
    far_node *node = peer->node;
    bool      was  = peer->is_refused;

    usm_add_relaxed(&node->refused, 1);
    (void)pthread_mutex_lock(&node->lock);
    peer->is_refused = true;
    (void)pthread_mutex_unlock(&node->lock);
    if (was)
        return;
    node->api->log(USM_LOG_WARN,
                   "far memory: member %u has another key (USM_JOB_KEY) or none: it "
                   "is left out",
                   peer->index);
    notify(peer);
}

/* Ends everything that depends on the session with the peer as a lender. */
static void borrowing_end(far_peer *peer)
{
    peer->claim = 0;
    far_controls_fail(peer);
    far_transfers_fail(peer);
    far_messages_reset(peer);
}

/* Draws another incarnation, about which nothing was said yet. */
static void begin_anew(far_peer *peer)
{
    incarnate(peer);
    memset(peer->challenge, 0, sizeof(peer->challenge));
    peer->has_challenge = false;
}

/* The blocks that the peer has here stay. */
static void session_end(far_peer *peer)
{
    if (!peer->has_session)
        return;
    peer->has_session = false;
    peer->leave_after = 0;
    far_lend_suspend_borrower(peer);
    begin_anew(peer);
}

static void orphans_end(far_peer *peer)
{
    if (peer->orphans == 0)
        return;
    peer->orphans = 0;
    far_lend_forget_borrower(peer);
    if (!peer->has_session)
        begin_anew(peer);
}

static void join_later(far_peer *peer)
{
    uint64_t lease = peer->node->params.lease_ns;

    peer->next_join   = usm_load_relaxed(&peer->node->now) + lease;
    peer->join_tries  = 4; /* from a lease on */
    peer->its_pending = 0; /* otherwise its headers would not be fenced */
}

static void return_set(far_peer *peer, bool may_return)
{
    (void)pthread_mutex_lock(&peer->node->lock);
    peer->may_return = may_return;
    (void)pthread_mutex_unlock(&peer->node->lock);
}

/* The blocks there will not return. */
static void claim_end(far_peer *peer)
{
    if (!peer->may_return)
        return;
    return_set(peer, false);
    borrowing_end(peer);
    if (peer->has_session)
        session_end(peer);
    else
        begin_anew(peer);
    if (peer->state == FAR_LOST)
        notify(peer);
    else
        state_set(peer, FAR_LOST);
}

void far_member_lost(far_peer *peer, bool is_dead)
{
    if (is_dead)
        peer->is_dead = true;
    if (peer->state == FAR_UP || peer->state == FAR_SLOW ||
        (peer->state == FAR_JOINING && is_dead)) {
        return_set(peer, false);
        state_set(peer, FAR_LOST);
        borrowing_end(peer);
        session_end(peer);
        join_later(peer);
    }
    if (!is_dead)
        return;
    claim_end(peer);
    orphans_end(peer);
}

void far_member_broken(far_peer *peer, bool is_silent)
{
    const far_params *p = &peer->node->params;

    if (peer->state != FAR_UP && peer->state != FAR_SLOW)
        return;
    if (is_silent) {
        uint64_t silent =
            usm__group_lease_silence(&peer->lease, usm_load_relaxed(&peer->node->now));

        peer->node->api->log(USM_LOG_INFO,
                             "far memory: member %u has been silent for %llu ms: it is lost",
                             peer->index, (unsigned long long)(silent / 1000000));
    }
    if (peer->lends == 0 || peer->claim == 0) {
        far_member_lost(peer, false);
        return;
    }
    peer->is_silent = is_silent;
    peer->return_until =
        usm_load_relaxed(&peer->node->now) + (is_silent ? p->orphan_ns - p->lease_ns : p->lease_ns);
    return_set(peer, true);
    state_set(peer, FAR_LOST);
    far_controls_break(peer);
    if (is_silent)
        far_transfers_fail(peer);
    else
        far_transfers_break(peer);
    far_messages_reset(peer);
    session_end(peer);
    join_later(peer);
}

void far_peer_died(far_node *node, uint32_t peer)
{
    if (peer < node->count && peer != node->self)
        far_member_lost(&node->peers[peer], true);
}

static void member_left(far_peer *peer)
{
    far_header_send(peer, (far_header){.op = FAR_OP_LEFT});
    state_set(peer, FAR_LEFT);
    borrowing_end(peer);
    session_end(peer);
    orphans_end(peer);
}

void far_member_check_left(far_peer *peer)
{
    if (peer->leave_after != 0 && peer->next_in >= peer->leave_after)
        member_left(peer);
}

static void member_up(far_peer *peer)
{
    (void)pthread_mutex_lock(&peer->node->lock);
    peer->joined += !peer->may_return;
    peer->may_return = false;
    (void)pthread_mutex_unlock(&peer->node->lock);
    state_set(peer, FAR_UP);
    far_controls_joined(peer);
    far_messages_joined(peer);
}

void far_member_heard(far_peer *peer)
{
    usm__group_lease_heard(&peer->lease, usm_load_relaxed(&peer->node->now));
    if (peer->state == FAR_SLOW)
        state_set(peer, FAR_UP);
    else if (peer->state == FAR_JOINING)
        member_up(peer);
}

/* ---- joining -------------------------------------------------------------------------------- */

static void put(unsigned char **at, uint64_t v, unsigned bytes)
{
    usm_put_le(*at, v, bytes);
    *at += bytes;
}

static void put_bytes(unsigned char **at, const void *bytes, size_t size)
{
    memcpy(*at, bytes, size);
    *at += size;
}

typedef struct proof_of {
    uint32_t        part, from, to;
    uint64_t        from_inc, to_inc;
    const far_join *join; /* the sender's challenge is join->mine */
} proof_of;

static bool prove(const far_node *node, const proof_of *p, unsigned char mac[32])
{
    unsigned char  text[256] = "libusm far memory join";
    unsigned char *at        = text + 24;

    memset(mac, 0, 32);
    if (node->params.key == NULL)
        return true;
    put(&at, p->part, 4);
    put(&at, p->from, 4);
    put(&at, p->to, 4);
    put(&at, p->from_inc, 8);
    put(&at, p->to_inc, 8);
    put(&at, p->join->lends, 8);
    put(&at, p->join->claim, 8);
    put(&at, p->join->orphans, 8);
    put(&at, p->join->piece_shift, 4);
    put(&at, p->join->is_seldom, 4);
    put_bytes(&at, p->join->mine, 16);
    put_bytes(&at, p->join->yours, 16);
    put_bytes(&at, p->join->domain, sizeof(p->join->domain));
    return node->params.hmac(node->key, node->params.key_size, text, (size_t)(at - text), mac);
}

/* The challenge cannot be predicted, and is never drawn twice. */
static void challenge_draw(far_peer *peer)
{
    far_node      *node = peer->node;
    unsigned char  text[32], mac[32];
    unsigned char *at = text;

    if (peer->has_challenge)
        return;
    put(&at, node->params.seed, 8);
    put(&at, ++node->draws, 8);
    put(&at, peer->mine, 8);
    if (node->params.key == NULL ||
        !node->params.hmac(node->key, node->params.key_size, text, (size_t)(at - text), mac)) {
        at = mac;
        put(&at, mix(node->params.seed ^ mix(node->draws)), 8);
        put(&at, mix(node->draws ^ mix(node->params.seed)), 8);
    }
    memcpy(peer->challenge, mac, sizeof(peer->challenge));
    peer->has_challenge = true;
}

static void join_send(far_peer *peer, uint32_t part, uint64_t to, const unsigned char *yours)
{
    far_node     *node = peer->node;
    far_join      j    = {.lends       = node->params.lend,
                          .claim       = peer->claim,
                          .orphans     = peer->orphans,
                          .piece_shift = node->piece_shift,
                          .is_seldom   = node->params.is_stepped_seldom};
    far_header    h    = {.op = FAR_OP_JOIN, .to = to, .offset = part, .length = FAR_JOIN_BODY};
    proof_of      p    = {part, node->self, peer->index, peer->mine, to, &j};
    unsigned char body[FAR_JOIN_BODY];

    challenge_draw(peer);
    memcpy(j.mine, peer->challenge, sizeof(j.mine));
    memcpy(j.domain, node->domain, sizeof(j.domain));
    if (yours != NULL)
        memcpy(j.yours, yours, sizeof(j.yours));
    if (part > 1 && !prove(node, &p, j.proof))
        return;
    far_join_encode(&j, body);
    far_message_send(peer, h, body);
}

/* Compares in constant time, which does not reveal how much was right. */
static bool is_proven(far_peer *peer, const far_header *h, const far_join *j)
{
    far_node     *node = peer->node;
    proof_of      p    = {h->offset, peer->index, node->self, h->from, h->to, j};
    unsigned char mac[32];
    unsigned      other = 0;

    if (!prove(node, &p, mac))
        return false;
    for (unsigned i = 0; i < sizeof(mac); i++)
        other |= (unsigned)(mac[i] ^ j->proof[i]);
    return other == 0;
}

/* Another incarnation than before, of a member that had perhaps not been missed yet.  Our
 * incarnation was sent to it, and stays. */
static void session_replace(far_peer *peer, uint64_t its, const far_join *j)
{
    uint64_t mine          = peer->mine;
    bool     keeps_claim   = peer->claim != 0 && peer->claim == j->orphans;
    bool     keeps_orphans = peer->orphans != 0 && peer->orphans == j->claim;
    uint64_t claim         = keeps_claim ? peer->claim : orphans_number(its, mine);

    if (keeps_claim)
        far_member_broken(peer, false);
    else
        far_member_lost(peer, false);
    session_end(peer);
    if (!keeps_claim)
        claim_end(peer);
    if (!keeps_orphans)
        orphans_end(peer);
    peer->mine    = mine;
    peer->claim   = claim;
    peer->orphans = keeps_orphans ? peer->orphans : orphans_number(mine, its);
}

static void session_begin(far_peer *peer, uint64_t its, const far_join *j)
{
    far_node *node = peer->node;

    if (peer->has_session && peer->its == its)
        return;
    session_replace(peer, its, j);
    peer->has_session  = true;
    peer->its          = its;
    peer->is_dead      = false;
    peer->has_left_too = false;
    peer->is_seldom    = j->is_seldom;
    peer->piece_shift =
        node->piece_shift < j->piece_shift ? node->piece_shift : (uint8_t)j->piece_shift;
    peer->next_out = peer->next_in = 1;
    usm__group_lease_heard(&peer->lease, usm_load_relaxed(&node->now));
    usm_store_relaxed(&peer->available, j->lends);
    (void)pthread_mutex_lock(&node->lock);
    peer->lends = j->lends;
    memcpy(peer->domain, j->domain, sizeof(peer->domain));
    peer->state = FAR_JOINING;
    (void)pthread_mutex_unlock(&node->lock);
}

static void join_1(far_peer *peer, const far_header *h, const far_join *j)
{
    peer->its_pending = h->from;
    join_send(peer, 2, h->from, j->mine);
}

static void join_2(far_peer *peer, const far_header *h, const far_join *j)
{
    bool is_proved;

    if (h->to != peer->mine || !peer->has_challenge || memcmp(j->yours, peer->challenge, 16) != 0)
        return;
    is_proved = is_proven(peer, h, j);
    /* The peer must learn of it as well. */
    join_send(peer, 3, h->from, j->mine);
    if (is_proved)
        session_begin(peer, h->from, j);
    else
        refuse(peer);
}

static void join_3(far_peer *peer, const far_header *h, const far_join *j)
{
    if (h->to != peer->mine || h->from != peer->its_pending || !peer->has_challenge ||
        memcmp(j->yours, peer->challenge, 16) != 0)
        return;
    peer->has_challenge = false;
    peer->its_pending   = 0;
    if (!is_proven(peer, h, j)) {
        refuse(peer);
        return;
    }
    session_begin(peer, h->from, j);
    far_member_heard(peer);
    far_header_send(peer,
                    (far_header){.op = FAR_OP_WELCOME, .block = far_lend_available(peer->node)});
    far_point(peer->node, "die.join.welcomed");
}

void far_member_join(far_peer *peer, const far_header *h, const void *body)
{
    far_join j;

    if (!far_join_decode(body, h->length, &j)) {
        usm_add_relaxed(&peer->node->refused, 1);
        return;
    }
    if (peer->node->is_leaving)
        return;
    far_point(peer->node, h->offset == 1   ? "die.join.1"
                          : h->offset == 2 ? "die.join.2"
                                           : "die.join.3");
    if (h->offset == 1)
        join_1(peer, h, &j);
    else if (h->offset == 2)
        join_2(peer, h, &j);
    else
        join_3(peer, h, &j);
}

/* ---- headers -------------------------------------------------------------------------------- */

/* A peer without a session is told so once in a while, and asked to join again. */
static void fence(far_peer *peer, const far_header *h)
{
    far_node *node = peer->node;
    uint64_t  now  = usm_load_relaxed(&node->now);

    if (h->op == FAR_OP_LEAVE || h->op == FAR_OP_LEFT || node->is_leaving ||
        peer->its_pending == h->from || peer->state == FAR_LEFT)
        return;
    if (peer->fenced != 0 && now - peer->fenced < node->params.lease_ns / 8)
        return;
    peer->fenced = now;
    far_header_send(peer, (far_header){.op = FAR_OP_FENCED, .to = h->from, .operation = h->to});
    if (peer->state == FAR_LOST)
        peer->next_join = now;
}

static void fenced(far_peer *peer, const far_header *h)
{
    /* It may have been sent before this session began. */
    if (!peer->has_session || h->to != peer->mine || h->operation != peer->its)
        return;
    far_member_broken(peer, false);
    session_end(peer);
    peer->next_join  = usm_load_relaxed(&peer->node->now);
    peer->join_tries = 0;
}

bool far_member_is_known(far_peer *peer, const far_header *h)
{
    if (peer->has_session && h->from == peer->its && h->to == peer->mine)
        return true;
    fence(peer, h);
    return false;
}

static void member_answered(far_peer *peer, const far_header *h)
{
    usm_store_relaxed(&peer->available, h->block);
    if (h->offset == (uint32_t)FAR_OP_STORE || h->offset == (uint32_t)FAR_OP_BYTES)
        far_transfers_answered(peer, h);
    else
        far_controls_answered(peer, h);
}

static void member_leaves(far_peer *peer, const far_header *h)
{
    far_point(peer->node, "die.leave");
    peer->leave_after = h->operation;
    far_member_check_left(peer);
}

void far_member_header(far_peer *peer, const far_header *h)
{
    if (h->op == FAR_OP_FENCED) {
        fenced(peer, h);
        return;
    }
    if (!far_member_is_known(peer, h))
        return;
    far_member_heard(peer);
    switch (h->op) {
    case FAR_OP_ALIVE:
    case FAR_OP_WELCOME:
        usm_store_relaxed(&peer->available, h->block);
        return;
    case FAR_OP_LEAVE:
        member_leaves(peer, h);
        return;
    case FAR_OP_LEFT:
        peer->has_left_too = true;
        return;
    case FAR_OP_RESERVE:
    case FAR_OP_UNDO:
    case FAR_OP_FORGET:
    case FAR_OP_CLOSE:
    case FAR_OP_FETCH:
    case FAR_OP_STORE:
    case FAR_OP_NEAR:
        far_lend_request(peer, h);
        return;
    case FAR_OP_ANSWER:
        member_answered(peer, h);
        return;
    case FAR_OP_FENCED:
    case FAR_OP_BYTES:
    case FAR_OP_MESSAGE:
    case FAR_OP_JOIN:
    case FAR_OP_END:
    default:
        usm_add_relaxed(&peer->node->refused, 1);
    }
}

/* ---- time ----------------------------------------------------------------------------------- */

static void join_tick(far_peer *peer, uint64_t now)
{
    far_node *node = peer->node;
    uint64_t  wait;

    if (node->is_leaving || peer->is_dead || peer->state == FAR_LEFT || now < peer->next_join)
        return;
    wait = node->params.lease_ns / 16 << peer->join_tries;
    if (peer->join_tries <
        (peer->state == FAR_LOST && !peer->may_return && peer->orphans == 0 ? 10u : 4u))
        peer->join_tries++;
    peer->next_join = now + wait;
    join_send(peer, 1, 0, NULL);
}

static void silence_tick(far_peer *peer, uint64_t now)
{
    usm_place_state state = usm__group_lease_state(&peer->lease, &peer->node->clock, now);

    if (state == USM_PLACE_LOST)
        far_member_broken(peer, true);
    else
        state_set(peer, state == USM_PLACE_SLOW ? FAR_SLOW : FAR_UP);
}

/* How long the blocks of an absent peer, here and there, are waited for. */
static void return_tick(far_peer *peer, uint64_t now)
{
    const far_params *p = &peer->node->params;

    if (peer->may_return && now >= peer->return_until)
        claim_end(peer);
    if (peer->has_session && (peer->state != FAR_JOINING || peer->is_seldom))
        return;
    if (usm__group_lease_silence(&peer->lease, now) >= p->orphan_ns && peer->orphans != 0) {
        session_end(peer); /* begun by its last message */
        orphans_end(peer);
    }
}

static void sign_tick(far_peer *peer, uint64_t now)
{
    if (usm__group_lease_owes(&peer->lease, &peer->node->clock, now))
        far_header_send(peer,
                        (far_header){.op = FAR_OP_ALIVE, .block = far_lend_available(peer->node)});
}

/* All peers, some sixteen times per lease. */
void far_members_tick(far_node *node, uint64_t absent)
{
    uint64_t now = usm_load_relaxed(&node->now);

    for (uint32_t i = 0; i < node->count; i++) {
        far_peer *peer = &node->peers[i];

        if (i == node->self)
            continue;
        usm__group_lease_forgive(&peer->lease, absent, now);
        return_tick(peer, now);
        if (!peer->has_session || peer->state == FAR_JOINING)
            join_tick(peer, now);
        else if (!peer->is_seldom)
            silence_tick(peer, now);
        if (peer->has_session && peer->state != FAR_JOINING)
            sign_tick(peer, now);
    }
    far_leave_tick(node, now);
}

/* ---- leaving -------------------------------------------------------------------------------- */

static bool is_goodbye_awaited(const far_peer *peer)
{
    return peer->has_session && !peer->has_left_too &&
           (peer->state == FAR_UP || peer->state == FAR_SLOW);
}

void far_leave_tick(far_node *node, uint64_t now)
{
    bool is_over = true;

    if (!node->is_leaving || node->left == NULL)
        return;
    for (uint32_t i = 0; i < node->count; i++) {
        far_peer *peer = &node->peers[i];

        if (i == node->self || !is_goodbye_awaited(peer))
            continue;
        is_over = false;
        far_header_send(peer, (far_header){.op = FAR_OP_LEAVE, .operation = peer->next_out});
    }
    if (!is_over && now < node->leave_until)
        return;
    *node->left = true;
    node->left  = NULL;
}

void far_leave(far_node *node, bool *left)
{
    uint64_t now = node->link->ops->now(node->link);

    *left             = false;
    node->left        = left;
    node->is_leaving  = true;
    node->leave_until = now + node->params.deadline_ns;
    far_leave_tick(node, now);
}
