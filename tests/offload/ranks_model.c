/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The master and the workers of a launch over ranks (src/offload/ranks_state.h) in simulated time:
 * ranks that are killed, stopped and continued, slowed, that leave once they know the end, members
 * that fail or hang, messages that take their time.  Everything is drawn from the seed.
 *
 *     ranks_model [--seed N] [--seeds N] [--seconds S] [--planted=early|mute|hasty]
 *
 * Checked: every rank that lives comes to an end, all with the same status; success means that home
 * has every index that was wanted; it is success if the master and home live, somebody is left who
 * can work, and nobody cancels; what dies, stops or hangs costs some seconds of silence and no
 * more.  --planted makes one kind of defect happen, which must be found: exit status 1. */
#include "budget.h"

#include "offload/ranks_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 5, MEMBERS = 3, EVENTS = 1 << 16, TOTAL = 20000, COPIES = 4096 };

#define MS          1000000ull
#define END_OF_TIME (20000000ull * MS)
#define HANG        (5000000ull * MS) /* of a device, whose process lives                       */
#define LATE        (3000000ull * MS) /* the slowest member alone takes 2000 s                  */

typedef enum kind { MESSAGE, WORKED, STORED, TICK, LOST, KILL, STOP, CONTINUE, CANCEL, LEAVE } kind;

typedef struct event {
    uint64_t       at, number;
    kind           kind;
    uint32_t       to, from, member, epoch;
    usm__chunk     chunk;
    size_t         size;
    unsigned char *bytes;
} event;

/* Private copies of a chunk that home has. */
typedef struct copies {
    uint32_t rank;
    uint64_t id, first, count;
    bool     is_used;
} copies;

typedef struct member {
    double   speed; /* indices a second                                                       */
    bool     is_busy, fails, has_hung;
    uint64_t slow_at, hang_at;
} member;

typedef struct node {
    usm__worker worker;
    member      members[MEMBERS];
    uint32_t    nmembers;
    bool        is_dead, is_stopped, is_leaving, has_left;
    uint64_t    last[RANKS]; /* when the last message to that rank arrives                        */
    uint64_t    tick_at;
    event      *held; /* what came while it was stopped                                      */
    uint32_t    nheld, room;
} node;

static struct {
    uint64_t    seed, random, now, numbers, sent, deaths, found_at, stop_ns;
    uint32_t    ranks, home, master;
    node        nodes[RANKS];
    usm__master ledger;
    copies      copies[COPIES];
    event       heap[EVENTS];
    size_t      count;
    bool        has[TOTAL], counted[TOTAL], is_settled, cancelled, may_repeat;
    const char *planted, *defect;
} w;

static uint64_t draw(uint64_t below)
{
    uint64_t z = (w.random += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
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

/* ---- time ------------------------------------------------------------------------------- */

static bool is_before(const event *a, const event *b)
{
    return a->at < b->at || (a->at == b->at && a->number < b->number);
}

static void put(event e)
{
    size_t i = w.count++;

    if (w.count == EVENTS) {
        found("more events than any launch needs");
        w.count--;
        return;
    }
    e.number = w.numbers++;
    for (; i > 0 && is_before(&e, &w.heap[(i - 1) / 2]); i = (i - 1) / 2)
        w.heap[i] = w.heap[(i - 1) / 2];
    w.heap[i] = e;
}

static event take(void)
{
    event  top = w.heap[0], last = w.heap[--w.count];
    size_t i = 0;

    for (;;) {
        size_t k = 2 * i + 1;

        if (k + 1 < w.count && is_before(&w.heap[k + 1], &w.heap[k]))
            k++;
        if (k >= w.count || !is_before(&w.heap[k], &last))
            break;
        w.heap[i] = w.heap[k];
        i         = k;
    }
    w.heap[i] = last;
    return top;
}

/* ---- messages --------------------------------------------------------------------------- */

static uint64_t arrival(uint32_t from, uint32_t to)
{
    uint64_t at = w.now + 1000 + draw(draw(20) == 0 ? 20 * MS : MS / 5);

    if (at < w.nodes[from].last[to])
        at = w.nodes[from].last[to];
    return w.nodes[from].last[to] = at;
}

static void on_send(void *arg, uint32_t to, const usm__wire *msg)
{
    node          *n    = arg;
    uint32_t       from = (uint32_t)(n - w.nodes);
    size_t         size = USM__WIRE_HEADER + msg->size;
    unsigned char *bytes;

    if (to >= w.ranks)
        found("a message to nobody");
    else if (is_planted("mute") && msg->op == USM__WIRE_END && to != w.home)
        return;
    else {
        bytes = malloc(size);
        usm__wire_encode(msg, bytes);
        if (msg->size > 0)
            memcpy(bytes + USM__WIRE_HEADER, msg->bytes, msg->size);
        if (from == w.master && to != from)
            w.sent += size;
        put((event){.at    = arrival(from, to),
                    .kind  = MESSAGE,
                    .to    = to,
                    .from  = from,
                    .size  = size,
                    .bytes = bytes});
    }
}

/* ---- work ------------------------------------------------------------------------------- */

static void feed(uint32_t r)
{
    node *n = &w.nodes[r];

    for (uint32_t i = 0; i < n->nmembers; i++) {
        member    *m = &n->members[i];
        usm__chunk c;
        double     speed = w.now >= m->slow_at ? m->speed / 20 : m->speed;
        uint64_t   hangs = w.now >= m->hang_at && !m->has_hung ? HANG : 0;

        if (m->is_busy || !usm__worker_take(&n->worker, i, &c))
            continue;
        m->is_busy = true;
        m->has_hung |= hangs > 0;
        put((event){.at = w.now + hangs + (uint64_t)((double)c.count / speed * 1e9) + 1000 +
                          draw(MS / 10),
                    .kind   = WORKED,
                    .to     = r,
                    .member = i,
                    .chunk  = c});
    }
}

/* Home has the bytes: it said so a while later. */
static void work_is_done(uint32_t r, const event *e)
{
    node *n = &w.nodes[r];

    n->members[e->member].is_busy = false;
    if (n->members[e->member].fails) {
        usm__worker_failed(&n->worker, e->member, e->chunk.id, USM_E_INVALID, 0, "it fails");
        return;
    }
    put((event){.at     = w.now + 2000 + draw(MS),
                .kind   = STORED,
                .to     = r,
                .member = e->member,
                .chunk  = e->chunk});
    if (is_planted("early"))
        usm__worker_done(&n->worker, e->member, e->chunk.id, 0, UINT64_MAX);
}

static void keep_copies(uint32_t r, const usm__chunk *c)
{
    for (uint32_t i = 0; i < COPIES; i++)
        if (!w.copies[i].is_used) {
            w.copies[i] = (copies){r, c->id, c->first, c->count, true};
            return;
        }
    found("more copies than any launch needs");
}

static void merge(uint32_t r, uint64_t id)
{
    for (uint32_t i = 0; i < COPIES; i++) {
        copies *c = &w.copies[i];

        if (!c->is_used || c->rank != r || c->id != id)
            continue;
        c->is_used = false;
        for (uint64_t k = c->first; k < c->first + c->count; k++) {
            if (w.counted[k])
                found("an index counts twice");
            w.counted[k] = true;
        }
        return;
    }
    found("copies that home does not have are to count");
}

static void has_stored(uint32_t r, const event *e)
{
    uint64_t end = e->chunk.first + e->chunk.count, cut = UINT64_MAX;

    if (end > TOTAL) {
        found("a chunk beyond the range");
        return;
    }
    if (w.nodes[w.home].is_dead)
        return; /* nobody says so */
    for (uint64_t i = e->chunk.first; i < end; i++)
        w.has[i] = true;
    keep_copies(r, &e->chunk);
    if (w.found_at >= e->chunk.first && w.found_at < end)
        cut = end;
    if (!is_planted("early"))
        usm__worker_done(&w.nodes[r].worker, e->member, e->chunk.id, 0, cut);
}

/* ---- a rank ----------------------------------------------------------------------------- */

static void settle(void)
{
    const usm__wire msg = {.op = USM__WIRE_SETTLED};

    w.is_settled = true;
    for (uint64_t i = 0; i < TOTAL && i <= w.found_at; i++)
        if (!w.has[i] || !w.counted[i]) {
            found("it is over, and home has not all");
            break;
        }
    on_send(&w.nodes[w.home], w.master, &msg);
}

static void hear(uint32_t r, const event *e)
{
    node     *n = &w.nodes[r];
    usm__wire msg;

    if (!usm__wire_decode(e->bytes, e->size, &msg)) {
        found("a message that cannot be read");
        return;
    }
    if (msg.op == USM__WIRE_SETTLE)
        settle();
    for (uint32_t i = 0; msg.op == USM__WIRE_COUNTS && i < usm__wire_records(&msg); i++) {
        usm__wire_record c;

        usm__wire_get_record(msg.bytes + (size_t)i * USM__WIRE_RECORD, &c);
        merge(c.member, c.id);
    }
    if (r == w.master)
        usm__master_receive(&w.ledger, e->from, &msg, w.now);
    (void)usm__worker_receive(&n->worker, e->from, &msg);
}

static void lose(uint32_t r, uint32_t gone)
{
    if (r == w.master)
        usm__master_lost(&w.ledger, gone, w.now);
    else if (is_planted("hasty") && gone == w.home)
        usm__worker_end(&w.nodes[r].worker, USM_E_PEER, "lost");
    else
        usm__worker_lost(&w.nodes[r].worker, gone);
}

/* After whatever happened to it. */
static void go_on(uint32_t r)
{
    node    *n    = &w.nodes[r];
    uint64_t next = UINT64_MAX, own = UINT64_MAX;

    feed(r);
    usm__worker_flush(&n->worker, w.now);
    usm__worker_tick(&n->worker, w.now, &own);
    if (r == w.master)
        usm__master_tick(&w.ledger, w.now, &next);
    if (own < next)
        next = own;
    if (next <= w.now)
        next = w.now + 1;
    if (n->worker.is_over && !n->is_leaving) {
        n->is_leaving = true;
        put((event){.at = w.now + draw(MS), .kind = LEAVE, .to = r});
    }
    if (next != UINT64_MAX && (n->tick_at <= w.now || next < n->tick_at)) {
        n->tick_at = next;
        put((event){.at = next, .kind = TICK, .to = r});
    }
}

/* The others hear of it after all that it has said. */
static void miss(uint32_t r)
{
    for (uint32_t to = 0; to < w.ranks; to++)
        if (to != r)
            put((event){.at = arrival(r, to) + 50000, .kind = LOST, .to = to, .from = r});
}

static void kill_rank(uint32_t r)
{
    w.nodes[r].is_dead = true;
    w.deaths++;
    miss(r);
}

static void leave(uint32_t r)
{
    w.nodes[r].has_left = true;
    miss(r);
}

/* Until it goes on. */
static void hold(node *n, const event *e)
{
    if (n->nheld == n->room) {
        n->room = n->room ? 2 * n->room : 64;
        n->held = realloc(n->held, n->room * sizeof *n->held);
        if (!n->held)
            abort();
    }
    n->held[n->nheld++] = *e;
}

static void let_go_on(uint32_t r)
{
    node *n = &w.nodes[r];

    n->is_stopped = false;
    for (uint32_t i = 0; i < n->nheld; i++) {
        n->held[i].at = w.now;
        put(n->held[i]);
    }
    n->nheld = 0;
}

static void happen(event *e)
{
    node *n = &w.nodes[e->to];

    if ((n->is_dead || n->has_left) && e->kind != STORED) {
        free(e->bytes);
        return;
    }
    if (n->is_stopped && e->kind != KILL && e->kind != CONTINUE) {
        hold(n, e);
        return;
    }
    if (e->kind == MESSAGE)
        hear(e->to, e);
    else if (e->kind == WORKED)
        work_is_done(e->to, e);
    else if (e->kind == STORED)
        has_stored(e->to, e);
    else if (e->kind == LOST)
        lose(e->to, e->from);
    else if (e->kind == KILL)
        kill_rank(e->to);
    else if (e->kind == STOP)
        n->is_stopped = true;
    else if (e->kind == CONTINUE)
        let_go_on(e->to);
    else if (e->kind == LEAVE)
        leave(e->to);
    else if (e->kind == CANCEL) {
        const usm__wire msg = {.op = USM__WIRE_CANCEL};

        on_send(n, w.master, &msg);
    }
    free(e->bytes);
    if (!n->is_dead && !n->has_left)
        go_on(e->to);
}

/* ---- a world ---------------------------------------------------------------------------- */

static uint64_t policy(const usm_policy_state *state, uint32_t m)
{
    double all = 0;

    for (uint32_t i = 0; i < state->nmembers; i++)
        all += state->members[i].is_well ? state->members[i].speed : 0;
    if (state->members[m].speed <= 0)
        return state->total / 64;
    return 1 + (uint64_t)((double)state->remaining * state->members[m].speed / all / 2);
}

static uint64_t small_policy(const usm_policy_state *state, uint32_t m)
{
    (void)m;
    return state->total / 500;
}

static void plan_faults(void)
{
    uint64_t whole = 3000 * MS;

    for (uint32_t r = 0; r < w.ranks; r++) {
        uint64_t at = draw(draw(5) == 0 ? MS : whole);

        if (draw(6) == 0)
            put((event){.at = at, .kind = KILL, .to = r});
        else if (draw(6) == 0) {
            uint64_t ns = draw(8000 * MS);

            put((event){.at = at, .kind = STOP, .to = r});
            put((event){.at = at + ns, .kind = CONTINUE, .to = r});
            w.stop_ns += ns;
        }
        for (uint32_t i = 0; i < w.nodes[r].nmembers; i++) {
            w.nodes[r].members[i].fails   = draw(12) == 0;
            w.nodes[r].members[i].slow_at = draw(5) == 0 ? draw(whole) : UINT64_MAX;
            w.nodes[r].members[i].hang_at =
                draw(10) == 0 && r != w.home && w.may_repeat ? draw(whole) : UINT64_MAX;
        }
    }
    if (draw(12) == 0) {
        w.cancelled = true;
        put((event){.at = draw(whole), .kind = CANCEL, .to = (uint32_t)draw(w.ranks)});
    }
}

static void make_world(void)
{
    static unsigned char shape[USM__WIRE_SHAPE], parts[MEMBERS] = {1, 1, 1};
    static uint32_t      nmembers[RANKS];
    usm__master_params   p = {.nmembers = nmembers, .shape = shape, .send = on_send};

    w.ranks      = 1 + (uint32_t)draw(RANKS);
    w.master     = 0;
    w.home       = (uint32_t)draw(w.ranks);
    w.found_at   = draw(4) == 0 ? draw(TOTAL) : UINT64_MAX;
    w.may_repeat = draw(6) != 0;
    for (uint32_t r = 0; r < w.ranks; r++) {
        node *n = &w.nodes[r];

        n->nmembers = nmembers[r] = 1 + (uint32_t)draw(MEMBERS);
        for (uint32_t i = 0; i < n->nmembers; i++)
            n->members[i].speed = 200.0 * (double)(1 + draw(40));
        if (usm__worker_init(&n->worker, &(usm__worker_params){.nmembers   = n->nmembers,
                                                               .master     = w.master,
                                                               .home       = w.home,
                                                               .shape      = shape,
                                                               .takes_part = parts,
                                                               .total      = TOTAL,
                                                               .send       = on_send,
                                                               .arg        = n}) != USM_OK)
            abort();
    }
    p.nranks = w.ranks, p.self = w.master, p.home = w.home, p.arg = &w.nodes[w.master];
    p.ledger.may_repeat = w.may_repeat, p.has_copies = true, p.depth = 2, p.silence_ns = 10000 * MS;
    p.ledger.total = TOTAL, p.ledger.multiple = 1 + draw(3);
    p.ledger.policy = draw(2) ? policy : small_policy;
    if (usm__master_init(&w.ledger, &p) != USM_OK)
        abort();
}

static bool is_all_over(void)
{
    for (uint32_t r = 0; r < w.ranks; r++)
        if (!w.nodes[r].is_dead && !w.nodes[r].worker.is_over)
            return false;
    return true;
}

static bool must_succeed(void)
{
    bool works = false;

    for (uint32_t r = 0; r < w.ranks; r++)
        for (uint32_t i = 0; i < w.nodes[r].nmembers; i++)
            works = works || (!w.nodes[r].is_dead && !w.nodes[r].members[i].fails &&
                              w.nodes[r].members[i].hang_at == UINT64_MAX);
    return works && w.may_repeat && !w.cancelled && !w.nodes[w.master].is_dead &&
           !w.nodes[w.home].is_dead;
}

static void judge(void)
{
    const usm__worker  *first = NULL;
    usm__schedule_stats s     = {0};

    if (w.ledger.ledger)
        usm__schedule_get_stats(w.ledger.ledger, &s);
    for (uint32_t r = 0; r < w.ranks; r++) {
        const usm__worker *it = &w.nodes[r].worker;

        if (w.nodes[r].is_dead)
            continue;
        if (!it->is_over) {
            found("a rank has not come to the end");
            return;
        }
        if (first && it->status != first->status && !w.nodes[w.master].is_dead)
            found("ranks end with different answers");
        first = it;
    }
    if (first && first->status != USM_OK && must_succeed())
        found("it fails without a reason");
    if (w.now > LATE && must_succeed())
        found("somebody is waited for that hangs");
    if (first && first->status == USM_OK && !w.is_settled)
        found("it is over and home was not asked");
    if (s.done > TOTAL)
        found("more was done than there is");
    if (s.chunks > 0 && w.sent > (s.chunks + s.rescheduled + s.duplicated) * 512 + 16384)
        found("the master talks too much");
}

static bool run_seed(uint64_t seed)
{
    const char *planted = w.planted;

    memset(&w, 0, sizeof w);
    w.seed = w.random = seed;
    w.planted         = planted;
    make_world();
    plan_faults();
    for (uint32_t r = 0; r < w.ranks; r++) {
        usm__worker_start(&w.nodes[r].worker, 0);
        go_on(r);
    }
    while (w.count > 0 && !w.defect && !is_all_over()) {
        event e = take();

        w.now = e.at;
        if (w.now > END_OF_TIME)
            found("it never ends");
        happen(&e);
    }
    judge();
    while (w.count > 0)
        free(take().bytes);
    for (uint32_t r = 0; r < w.ranks; r++) {
        for (uint32_t i = 0; i < w.nodes[r].nheld; i++)
            free(w.nodes[r].held[i].bytes);
        free(w.nodes[r].held);
        usm__worker_fini(&w.nodes[r].worker);
    }
    usm__master_fini(&w.ledger);
    if (w.defect)
        printf("# seed %llu, operation %llu, at %.3f s: %s\n", (unsigned long long)seed,
               (unsigned long long)w.numbers, (double)w.now / 1e9, w.defect);
    return !w.defect;
}

int main(int argc, char **argv)
{
    budget   seeds = {.first = 1, .most = 1000};
    uint64_t seed;

    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--planted=", 10) == 0) {
            w.planted = argv[i] + 10;
        } else if (!budget_option(&seeds, argc, argv, &i)) {
            fprintf(stderr, "ranks_model: what is %s?\n", argv[i]);
            return 2;
        }
    while (budget_next(&seeds, &seed))
        if (!run_seed(seed))
            return 1;
    budget_print(&seeds);
    printf(": %llu worlds came to the end they should\n", (unsigned long long)seeds.ran);
    return 0;
}
