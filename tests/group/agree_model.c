/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The agreement of src/group/agree.h over a network that delays and doubles messages, with ranks
 * that are killed at any step (or one that is counted as lost while it lives), calls that are given
 * up, and memory that is short.  Every step is drawn from the seed.
 *
 *     agree_model [--seed N] [--seeds N] [--seconds S] [--planted=forged|dropped|split]
 *
 * Checked: what live ranks have decided in a call is the same; a success has the bytes of each
 * rank, or zeros of one that has died; a failure names a rank that has died or that came with
 * another size; unless a call was given up or memory was short, each live rank gets a decision in
 * each call.
 * --planted makes one kind of defect happen, which must be found: exit status 1. */
#include "budget.h"

#include "group/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 12, CALLS = 6, BYTES = RANKS * USM__GROUP_AGREE_BYTES };
enum { RESULT = 2, LATE = 4 }; /* the first byte of a message */

typedef struct packet packet;

struct packet {
    packet       *next;
    bool          is_loss; /* the network reports the sender's end */
    size_t        size;
    unsigned char text[];
};

/* First in, first out; a doubled packet comes again behind the others. */
typedef struct line {
    packet  *first, *last;
    uint32_t count;
} line;

typedef struct outcome {
    bool       is_decided;
    usm_status status;
    uint32_t   which;
    uint64_t   sum; /* of the bytes */
} outcome;

typedef struct node {
    usm__group_agree *machine;
    bool              is_dead, is_alone; /* alone: the others count it as lost, and it lives */
    uint32_t          calls;             /* that it has begun                                */
    bool              is_in;             /* the last of them has no end yet                  */
    outcome           outcomes[CALLS + 1];
} node;

static struct {
    uint64_t      seed, random, steps;
    uint32_t      ranks, kills;
    uint32_t      late_from, late_to; /* between these most messages are late */
    uint32_t      killing, doubling, impatience, shortage; /* in 1000 */
    uint32_t      sizes[CALLS + 1], other[CALLS + 1];      /* other: who comes with one byte more */
    bool          may_split;
    bool          is_excused; /* a call was given up, or memory was short */
    node          nodes[RANKS];
    line          lines[RANKS][RANKS];
    unsigned char all[BYTES];
    uint64_t      decisions, given_up;
    const char   *planted;
    const char   *defect;
} w;

static uint64_t draw(uint64_t below)
{
    uint64_t z = (w.random += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

static bool happens(uint32_t in_1000)
{
    return draw(1000) < in_1000;
}

static void found(const char *what)
{
    if (!w.defect)
        w.defect = what;
}

static bool is_planted(const char *what)
{
    return w.planted && strcmp(w.planted, what) == 0;
}

static void *take_memory(size_t size)
{
    if (w.shortage > 0 && happens(w.shortage)) {
        w.is_excused = true;
        return NULL;
    }
    return calloc(1, size);
}

static const usm__group_heap heap = {take_memory, free};

/* ---- the network ----------------------------------------------------------------------------- */

static void append(line *l, packet *p)
{
    if (l->last)
        l->last->next = p;
    else
        l->first = p;
    l->last = p;
    l->count++;
}

static void put(uint32_t from, uint32_t to, bool is_loss, const unsigned char *text, size_t size)
{
    packet *p = calloc(1, sizeof *p + size);

    if (!p)
        abort();
    p->is_loss = is_loss;
    p->size    = size;
    if (size > 0)
        memcpy(p->text, text, size);
    append(&w.lines[from][to], p);
}

static packet *take(line *l)
{
    packet *p = l->first;

    l->first = p->next;
    if (!l->first)
        l->last = NULL;
    l->count--;
    return p;
}

/* Puts the first packet behind the others. */
static void turn(line *l)
{
    packet *p = take(l);

    p->next = NULL;
    append(l, p);
}

/* What a dead rank has sent last may be lost with it. */
static void cut(line *l, uint32_t keep)
{
    packet *list = l->first;
    line    kept = {NULL, NULL, 0};

    for (uint32_t i = 0; list; i++) {
        packet *p = list;

        list    = p->next;
        p->next = NULL;
        if (i < keep)
            append(&kept, p);
        else
            free(p);
    }
    *l = kept;
}

/* ---- what is agreed -------------------------------------------------------------------------- */

static unsigned char byte_of(uint32_t rank, uint32_t seq, uint32_t at)
{
    return (unsigned char)(1 + (rank * 31 + seq * 7 + at) % 255);
}

static void check_bytes(uint32_t seq)
{
    const unsigned char *at = w.all;

    for (uint32_t rank = 0; rank < w.ranks; rank++)
        for (uint32_t i = 0; i < w.sizes[seq]; i++, at++)
            if (*at != byte_of(rank, seq, i) &&
                (*at != 0 || !(w.nodes[rank].is_dead || w.nodes[rank].is_alone)))
                found("a result has other bytes than a rank gave");
}

static uint64_t sum_of(const unsigned char *at, size_t size)
{
    uint64_t sum = 0xcbf29ce484222325u;

    for (size_t i = 0; i < size; i++)
        sum = (sum ^ at[i]) * 0x100000001b3u;
    return sum;
}

static void check_outcome(const outcome *o, uint32_t seq)
{
    if (o->status == USM_OK)
        check_bytes(seq);
    else if (o->which >= w.ranks)
        found("a failure names no rank");
    else if (o->status == USM_E_PEER && !w.nodes[o->which].is_dead && !w.nodes[o->which].is_alone)
        found("a live rank is said to have ended");
    else if (o->status == USM_E_INVALID && w.other[seq] >= w.ranks)
        found("sizes are said to differ");
    else if (o->status != USM_E_PEER && o->status != USM_E_INVALID)
        found("a decision has a status of its own");
}

static void check_same(const node *n, uint32_t seq)
{
    const outcome *o = &n->outcomes[seq];

    for (uint32_t rank = 0; rank < w.ranks; rank++) {
        const node    *other = &w.nodes[rank];
        const outcome *p     = &other->outcomes[seq];

        if (p->is_decided && !other->is_dead && !other->is_alone &&
            (p->status != o->status || p->which != o->which || p->sum != o->sum))
            found("two live ranks have different results");
    }
}

/* Called after everything that may have ended the call. */
static void look_at(node *n, bool is_given_up)
{
    outcome *o = &n->outcomes[n->calls];

    if (!n->is_in || usm__group_agree_is_open(n->machine))
        return;
    n->is_in  = false;
    o->status = usm__group_agree_result(n->machine, w.all, &o->which);
    if (is_given_up || o->status == USM_E_NO_MEMORY) {
        w.given_up++;
        return;
    }
    o->is_decided = true;
    if (o->status == USM_OK)
        o->sum = sum_of(w.all, (size_t)w.ranks * w.sizes[n->calls]);
    w.decisions++;
    if (n->is_alone)
        return;
    check_outcome(o, n->calls);
    check_same(n, n->calls);
}

/* ---- steps ------------------------------------------------------------------------------------
 * */

static void begin(uint32_t rank)
{
    unsigned char  mine[USM__GROUP_AGREE_BYTES + 1];
    node          *n    = &w.nodes[rank];
    const uint32_t seq  = ++n->calls;
    const uint32_t size = w.sizes[seq] + (w.other[seq] == rank);

    for (uint32_t i = 0; i < size; i++)
        mine[i] = byte_of(rank, seq, i);
    /* A loss may be known before what the rank had sent was passed on. */
    for (uint32_t other = 0; other < w.ranks; other++)
        if (w.nodes[other].is_dead && draw(2) == 0)
            usm__group_agree_lost(n->machine, other);
    n->is_in = true;
    usm__group_agree_begin(n->machine, mine, size);
    look_at(n, false);
}

/* Whether the packet is changed or left out. */
static bool is_spoilt(unsigned char *text, size_t size)
{
    if (text[0] != RESULT)
        return false;
    if (is_planted("forged") && size > 24 && draw(20) == 0)
        text[24] = 0xff;
    if (is_planted("split") && draw(50) == 0) { /* as if another rank had decided for itself */
        text[8]  = (unsigned char)-USM_E_PEER;
        text[16] = text[17] = text[18] = text[19] = 0;
        memset(text + 9, 0, 3);
    }
    return is_planted("dropped") && draw(20) == 0;
}

static bool send_one(uint32_t rank)
{
    unsigned char text[USM__GROUP_AGREE_MESSAGE];
    uint32_t      to;
    const size_t  size = usm__group_agree_next(w.nodes[rank].machine, &to, text);

    if (size > 0 && !w.nodes[to].is_dead && !is_spoilt(text, size))
        put(rank, to, false, text, size);
    return size > 0;
}

static void deliver(uint32_t from, uint32_t to)
{
    packet *p = take(&w.lines[from][to]);
    node   *n = &w.nodes[to];

    if (p->is_loss) {
        usm__group_agree_lost(n->machine, from);
    } else {
        if (happens(w.doubling))
            put(from, to, false, p->text, p->size);
        usm__group_agree_message(n->machine, from, p->text, p->size);
    }
    look_at(n, !p->is_loss && p->text[0] == LATE);
    free(p);
}

/* The others learn of it later, each at another time, and perhaps before what it sent last. */
static void report_loss(uint32_t rank)
{
    for (uint32_t to = 0; to < w.ranks; to++) {
        line *l = &w.lines[rank][to];

        if (to == rank || w.nodes[to].is_dead)
            continue;
        put(rank, to, true, NULL, 0);
        for (uint64_t n = draw(2) ? 0 : draw(l->count); n > 0; n--)
            turn(l);
    }
}

static void kill_rank(uint32_t rank)
{
    w.nodes[rank].is_dead = true;
    w.kills++;
    for (uint32_t other = 0; other < w.ranks; other++) {
        cut(&w.lines[other][rank], 0);
        if (draw(3) == 0)
            cut(&w.lines[rank][other], (uint32_t)draw(w.lines[rank][other].count + 1));
    }
    report_loss(rank);
}

/* Makes a rank one that the others count as lost while it lives.  No other is lost then. */
static void split(uint32_t rank)
{
    w.may_split            = false;
    w.killing              = 0;
    w.nodes[rank].is_alone = true;
    report_loss(rank);
}

static void give_up(node *n)
{
    usm__group_agree_give_up(n->machine);
    look_at(n, true);
}

/* The root, most often. */
static uint32_t lowest(void)
{
    uint32_t rank = 0;

    while (w.nodes[rank].is_dead)
        rank++;
    return rank;
}

static bool disturb(uint32_t rank)
{
    node *n = &w.nodes[rank];

    if (w.may_split) {
        if (happens(w.killing))
            split(rank);
    } else if (w.kills + 2 < w.ranks && happens(w.killing)) {
        kill_rank(draw(2) ? rank : lowest());
        return true;
    }
    if (n->is_in && happens(w.impatience)) {
        w.is_excused = true;
        give_up(n);
    }
    return false;
}

static bool is_late(uint32_t from, uint32_t to)
{
    return from == w.late_from && to == w.late_to && draw(16) > 0;
}

/* One of the things that this rank can do, if there is one. */
static bool move(uint32_t rank, bool is_last)
{
    node    *n     = &w.nodes[rank];
    uint32_t first = (uint32_t)draw(w.ranks);

    if (n->is_dead)
        return false;
    if (draw(4) == 0 && !n->is_in && n->calls < CALLS) {
        begin(rank);
        return true;
    }
    if (draw(2) == 0 && send_one(rank))
        return true;
    for (uint32_t i = 0; i < w.ranks; i++) {
        const uint32_t from = (first + i) % w.ranks;

        if (w.lines[from][rank].first && (is_last || !is_late(from, rank))) {
            deliver(from, rank);
            return true;
        }
    }
    if (send_one(rank))
        return true;
    if (n->is_in || n->calls == CALLS)
        return false;
    begin(rank);
    return true;
}

/* Nothing moves any more: whoever is in a call waits in vain. */
static bool end_patience(void)
{
    bool has_ended = false;

    for (uint32_t rank = 0; rank < w.ranks; rank++) {
        node *n = &w.nodes[rank];

        if (!n->is_in || n->is_dead)
            continue;
        if (!w.is_excused && !n->is_alone)
            found("a live rank waits in vain");
        w.is_excused |= !n->is_alone;
        give_up(n);
        has_ended = true;
    }
    return has_ended;
}

static bool step(void)
{
    const uint32_t first = (uint32_t)draw(w.ranks);

    w.steps++;
    if (!w.nodes[first].is_dead && disturb(first))
        return true;
    for (uint32_t i = 0; i < 2 * w.ranks; i++)
        if (move((first + i) % w.ranks, i >= w.ranks))
            return true;
    return end_patience();
}

/* ---- a seed -----------------------------------------------------------------------------------
 * */

static void begin_world(uint64_t seed)
{
    const char *planted = w.planted;
    bool        is_big; /* results come in two parts */

    memset(&w, 0, sizeof w);
    w.planted    = planted;
    w.seed       = seed;
    w.random     = seed * 0x2545f4914f6cdd1du;
    is_big       = draw(8) == 0;
    w.ranks      = is_big ? 9 + (uint32_t)draw(RANKS - 8) : 1 + (uint32_t)draw(draw(3) ? 5 : RANKS);
    w.late_from  = (uint32_t)draw(draw(2) ? 2 : w.ranks);
    w.late_to    = (uint32_t)draw(w.ranks);
    w.killing    = draw(3) ? 1 + (uint32_t)draw(30) : 0;
    w.doubling   = (uint32_t)draw(2) * (uint32_t)draw(200);
    w.impatience = draw(4) ? 0 : 1 + (uint32_t)draw(20);
    w.may_split  = draw(4) == 0 && w.ranks > 2;
    for (uint32_t rank = 0; rank < w.ranks; rank++) {
        w.nodes[rank].machine = usm__group_agree_create(&heap, rank, w.ranks);
        if (!w.nodes[rank].machine)
            abort();
    }
    for (uint32_t seq = 1; seq <= CALLS; seq++) {
        w.sizes[seq] = is_big ? USM__GROUP_AGREE_BYTES - 1 - (uint32_t)draw(400)
                              : 1 + (uint32_t)draw(draw(4) ? 16 : USM__GROUP_AGREE_BYTES - 1);
        w.other[seq] = draw(16) ? RANKS : (uint32_t)draw(w.ranks);
    }
    w.shortage = draw(4) ? 0 : 1 + (uint32_t)draw(20);
}

static void end_world(void)
{
    for (uint32_t rank = 0; rank < w.ranks; rank++) {
        usm__group_agree_destroy(w.nodes[rank].machine);
        for (uint32_t to = 0; to < w.ranks; to++)
            cut(&w.lines[rank][to], 0);
    }
}

static bool run_seed(uint64_t seed)
{
    begin_world(seed);
    while (!w.defect && step())
        if (w.steps > 1000000)
            found("it does not come to an end");
    end_world();
    if (w.defect)
        printf("# seed %llu, operation %llu: %s (%u ranks, %u killed)\n", (unsigned long long)seed,
               (unsigned long long)w.steps, w.defect, w.ranks, w.kills);
    return !w.defect;
}

int main(int argc, char **argv)
{
    budget   seeds     = {.first = 1, .most = 10000};
    uint64_t decisions = 0, given_up = 0, kills = 0, seed;

    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--planted=", 10) == 0)
            w.planted = argv[i] + 10;
        else if (!budget_option(&seeds, argc, argv, &i))
            return 2;
    while (budget_next(&seeds, &seed)) {
        if (!run_seed(seed))
            return 1;
        decisions += w.decisions;
        given_up += w.given_up;
        kills += w.kills;
    }
    budget_print(&seeds);
    printf(": %llu results, %llu calls given up, %llu ranks killed\n",
           (unsigned long long)decisions, (unsigned long long)given_up, (unsigned long long)kills);
    return 0;
}
