/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The protocol of shared buffers (src/cluster/shared_state.h) over a network that delays and
 * doubles messages, with ranks that are killed and sends that fail.  Every step is drawn from the
 * seed.
 *
 *     shared_model [--seed N] [--seeds N] [--seconds S] [--planted=beside|hang|stale]
 *
 * Checked: one rank at most writes a block, and none reads it beside; an access without NO_INIT
 * finds what the write before it left; a directory passes nobody over; every access comes to an
 * end, once nothing else is under way; what a living rank owns is refused to nobody in the end;
 * with nobody killed and no send that failed none fails.  --planted makes one kind of defect
 * happen, which must be found: exit status 1. */
#include "budget.h"

#include "cluster/shared_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 5, BLOCKS = 4, THREADS = 3, QUEUE = 4096, JOBS = 256 };

typedef struct packet {
    usm__shared_message msg;
    uint64_t            content;
    uint32_t            from;
} packet;

/* First in, first out; doubled ones go to `late` as well. */
typedef struct line {
    packet   items[QUEUE];
    uint32_t first, count;
} line;

typedef struct job {
    usm__shared_give give;
    uint32_t         rank;
    bool             is_sent, is_used;
    usm_status       result;
} job;

typedef struct thread {
    usm__shared_waiter waiter;
    uint64_t           first, last, at; /* blocks; at: being asked for                          */
    usm_access_mode    mode;
    uint32_t           todo;
    enum { RESTING, WAITING, INSIDE } state;
} thread;

typedef struct node {
    usm__shared_machine machine;
    uint64_t            content[BLOCKS];
    uint32_t            readers[BLOCKS], writers[BLOCKS];
    thread              threads[THREADS];
    bool                is_dead;
    bool                knows[RANKS]; /* who has died                                         */
} node;

static struct {
    uint64_t    seed, random, version, steps;
    uint32_t    ranks, blocks, threads;
    node        nodes[RANKS];
    line        lines[RANKS][RANKS];
    line        late;
    job         jobs[JOBS];
    uint64_t    current[BLOCKS];
    uint64_t    answers[BLOCKS]; /* requests that were answered                            */
    uint64_t    asked_at[RANKS][BLOCKS], request[RANKS][BLOCKS];
    uint32_t    kills, doubled, failing; /* killed so far; in 1000                              */
    uint32_t    ahead;                   /* in 4: blocks that are asked for ahead               */
    uint32_t    failed, opened, refused, moved;
    bool        is_last_look;
    uint64_t    looked_at;
    const char *planted;
    const char *defect;
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

/* ---- the network --------------------------------------------------------------------------- */

static void put(line *l, const packet *p)
{
    if (l->count == QUEUE) {
        found("more messages than any protocol needs");
        return;
    }
    l->items[(l->first + l->count++) % QUEUE] = *p;
}

static packet take(line *l)
{
    packet p = l->items[l->first];

    l->first = (l->first + 1) % QUEUE;
    l->count--;
    return p;
}

static void post(uint32_t from, uint32_t to, const usm__shared_message *msg, uint64_t content)
{
    const packet p = {*msg, content, from};

    if (w.nodes[to].is_dead)
        return;
    if (is_planted("hang") && msg->op == USM__SHARED_DONE && w.steps > 200)
        return;
    put(&w.lines[from][to], &p);
}

static void on_send(void *arg, uint32_t to, const usm__shared_message *msg)
{
    const node               *n    = arg;
    const usm__shared_message fake = {
        .op = USM__SHARED_DROPPED, .block = msg->block, .txn = msg->txn};

    if (is_planted("beside") && msg->op == USM__SHARED_DROP && draw(4) == 0) {
        post(to, n->machine.self, &fake, 0);
        return;
    }
    post(n->machine.self, to, msg, msg->op == USM__SHARED_DATA ? 0 : UINT64_MAX);
}

static void on_give(void *arg, const usm__shared_give *give)
{
    const node *n = arg;

    for (uint32_t i = 0; i < JOBS; i++)
        if (!w.jobs[i].is_used) {
            w.jobs[i] = (job){*give, n->machine.self, false, true, USM_OK};
            return;
        }
    found("more transfers than any protocol needs");
}

static void on_content(void *arg, uint64_t block, bool is_blank)
{
    node *n = arg;

    if (!is_blank && n->readers[block] + n->writers[block] > 0 &&
        n->machine.local[block].hold != USM__HOLD_SHARED)
        found("what is accessed is taken away");
    /* A copy whose owner has ended stays for those that look at it. */
    if (n->readers[block] == 0)
        n->content[block] = UINT64_MAX;
}

/* ---- accesses ------------------------------------------------------------------------------- */

static void check_alone(uint64_t b)
{
    uint32_t readers = 0, writers = 0;

    for (uint32_t r = 0; r < w.ranks; r++) {
        readers += !w.nodes[r].is_dead && w.nodes[r].readers[b] > 0;
        writers += !w.nodes[r].is_dead && w.nodes[r].writers[b] > 0;
    }
    for (uint32_t r = 0; r < w.ranks; r++)
        if (!w.nodes[r].is_dead && w.nodes[r].writers[b] && w.nodes[r].readers[b])
            readers--; /* threads of the rank that writes */
    if (writers > 1)
        found("two ranks write one block");
    if (writers == 1 && readers > 0)
        found("a rank reads what another writes");
}

static void opened(node *n, const thread *t, uint64_t b)
{
    w.opened++;
    if (t->mode & USM_WRITE)
        n->writers[b]++;
    else
        n->readers[b]++;
    check_alone(b);
    if (t->mode & USM_NO_INIT) /* it counts as written at once: others of this rank may look */
        n->content[b] = w.current[b] = ++w.version;
    if (n->content[b] != w.current[b])
        found("an access does not find the last write");
}

static void end_block(node *n, const thread *t, uint64_t b)
{
    if (n->content[b] != w.current[b])
        found("what is accessed changed meanwhile");
    if (t->mode & USM_WRITE) {
        n->content[b] = w.current[b] = ++w.version;
        n->writers[b]--;
    } else {
        n->readers[b]--;
    }
    usm__shared_end(&n->machine, b, t->mode);
}

static void end_access(node *n, thread *t, uint64_t behind)
{
    t->state = RESTING;
    for (uint64_t b = t->first; b < behind; b++)
        end_block(n, t, b);
}

static void failed(node *n, thread *t, usm_status st)
{
    w.refused++;
    if (st != USM_E_PEER && st != USM_E_IO)
        found("an access fails with a status of its own");
    if (w.kills == 0 && w.failed == 0)
        found("an access fails and nothing has happened");
    end_access(n, t, t->at);
}

static void look_ahead(node *n, const thread *t)
{
    for (uint64_t b = t->at; w.ahead > 0 && b <= t->last; b++)
        if (draw(4) < w.ahead)
            usm__shared_want(&n->machine, b, t->mode);
}

static void go_on(node *n, thread *t)
{
    t->state = WAITING;
    look_ahead(n, t);
    for (; t->at <= t->last; t->at++) {
        bool       is_waited_for = n->machine.local[t->at].pending == USM__SHARED_DROP;
        usm_status st            = usm__shared_begin(&n->machine, t->at, t->mode, &t->waiter);

        if (st == USM_E_NOT_READY)
            return;
        if (st != USM_OK) {
            failed(n, t, st);
            return;
        }
        if (is_waited_for)
            found("a writer waits, and a new access is let in");
        opened(n, t, t->at);
    }
    t->state = INSIDE;
}

static void on_wake(void *arg, usm__shared_waiter *waiter)
{
    node *n = arg;

    /* The block is open from now on, whenever the thread gets to run. */
    for (uint32_t i = 0; i < w.threads; i++)
        if (&n->threads[i].waiter == waiter && waiter->status == USM_OK)
            opened(n, &n->threads[i], n->threads[i].at);
}

static void start(node *n, thread *t)
{
    static const usm_access_mode modes[] = {USM_READ, USM_READ, USM_WRITE, USM_READ_WRITE,
                                            USM_WRITE_NO_INIT};

    t->todo--;
    t->mode  = modes[draw(5)];
    t->first = draw(w.blocks);
    t->last  = t->first + draw(w.blocks - t->first);
    if (w.is_last_look) {
        t->mode  = USM_READ;
        t->first = t->last = w.looked_at;
    }
    t->at = t->first;
    go_on(n, t);
}

/* false: nothing that it could do. */
static bool run_thread(node *n, thread *t)
{
    switch (t->state) {
    case RESTING:
        if (t->todo == 0)
            return false;
        start(n, t);
        return true;
    case WAITING:
        if (!t->waiter.is_done)
            return false;
        t->waiter.is_done = false;
        if (t->waiter.status != USM_OK) {
            failed(n, t, t->waiter.status);
            return true;
        }
        t->at++;
        go_on(n, t);
        return true;
    case INSIDE:
        end_access(n, t, t->last + 1);
        return true;
    }
    return false;
}

/* ---- what else happens ---------------------------------------------------------------------- */

/* A request that has come to its directory waits for those before it only: one of each rank. */
static void check_turn(uint32_t to, const packet *p)
{
    const usm__shared_message *m = &p->msg;

    if (m->op == USM__SHARED_ASK && m->request > w.request[p->from][m->block]) {
        w.request[p->from][m->block]  = m->request;
        w.asked_at[p->from][m->block] = w.answers[m->block];
    }
    if ((m->op == USM__SHARED_DATA || m->op == USM__SHARED_GRANT) &&
        usm__shared_expects(&w.nodes[to].machine, m->block, m->request)) {
        if (w.answers[m->block] - w.asked_at[to][m->block] > w.ranks)
            found("a rank is passed over");
        w.answers[m->block]++;
    }
}

static void deliver(uint32_t to, const packet *p)
{
    node *n = &w.nodes[to];

    if (n->is_dead)
        return;
    check_turn(to, p);
    if (p->msg.op == USM__SHARED_DATA) {
        if (!usm__shared_expects(&n->machine, p->msg.block, p->msg.request))
            return;
        if (!(p->msg.flags & USM__SHARED_NO_BYTES))
            n->content[p->msg.block] = p->content;
        w.moved++;
    }
    usm__shared_receive(&n->machine, p->from, &p->msg);
}

/* It will come once more. */
static void double_it(packet p, uint32_t to)
{
    p.msg.rank |= to << 16; /* where it goes: undone before it is delivered */
    if (draw(1000) < w.doubled && w.late.count < QUEUE / 2)
        put(&w.late, &p);
}

static bool run_line(void)
{
    uint32_t at = (uint32_t)draw((uint64_t)w.ranks * w.ranks);

    for (uint32_t i = 0; i < w.ranks * w.ranks; i++, at = (at + 1) % (w.ranks * w.ranks)) {
        line *l = &w.lines[at / w.ranks][at % w.ranks];

        if (l->count > 0) {
            packet p = take(l);

            double_it(p, at % w.ranks);
            deliver(at % w.ranks, &p);
            return true;
        }
    }
    return false;
}

static bool run_late(void)
{
    packet   p;
    uint32_t to;

    if (w.late.count == 0)
        return false;
    p          = take(&w.late);
    to         = p.msg.rank >> 16;
    p.msg.rank = p.msg.rank & 0xffff;
    deliver(to, &p);
    return true;
}

/* The bytes go, and then it is known that they went. */
static void step_job(job *j)
{
    node *n = &w.nodes[j->rank];

    if (n->is_dead) {
        j->is_used = false;
    } else if (j->is_sent) {
        j->is_used = false;
        usm__shared_sent(&n->machine, &j->give, j->result);
    } else if (draw(1000) < w.failing) {
        w.failed++;
        j->is_sent = true;
        j->result  = USM_E_IO;
    } else {
        const usm__shared_message msg    = {.op      = USM__SHARED_DATA,
                                            .flags   = j->give.flags,
                                            .block   = j->give.block,
                                            .request = j->give.request,
                                            .txn     = j->give.txn};
        bool                      is_old = is_planted("stale") && draw(8) == 0;

        j->is_sent = true;
        post(j->rank, j->give.to, &msg, is_old ? 0 : n->content[j->give.block]);
    }
}

static bool run_job(void)
{
    uint32_t at = (uint32_t)draw(JOBS);

    for (uint32_t i = 0; i < JOBS; i++, at = (at + 1) % JOBS)
        if (w.jobs[at].is_used) {
            step_job(&w.jobs[at]);
            return true;
        }
    return false;
}

static bool run_any_thread(void)
{
    uint32_t all = w.ranks * w.threads, at = (uint32_t)draw(all);

    for (uint32_t i = 0; i < all; i++, at = (at + 1) % all) {
        node *n = &w.nodes[at / w.threads];

        if (!n->is_dead && run_thread(n, &n->threads[at % w.threads]))
            return true;
    }
    return false;
}

/* Somebody learns of an end. */
static bool run_news(void)
{
    uint32_t at = (uint32_t)draw((uint64_t)w.ranks * w.ranks);

    for (uint32_t i = 0; i < w.ranks * w.ranks; i++, at = (at + 1) % (w.ranks * w.ranks)) {
        node    *n   = &w.nodes[at / w.ranks];
        uint32_t who = at % w.ranks;

        if (!n->is_dead && w.nodes[who].is_dead && !n->knows[who]) {
            n->knows[who] = true;
            usm__shared_rank_lost(&n->machine, who);
            return true;
        }
    }
    return false;
}

/* Of what it had sent, the last part may be lost with it. */
static void kill_rank(uint32_t rank)
{
    w.kills++;
    w.nodes[rank].is_dead = true;
    for (uint32_t r = 0; r < w.ranks; r++) {
        line *l = &w.lines[rank][r];

        l->count               = (uint32_t)draw(l->count + 1);
        w.lines[r][rank].count = 0;
    }
}

static bool step(void)
{
    static bool (*const ways[])(void) = {run_line, run_line, run_line,       run_late,
                                         run_job,  run_news, run_any_thread, run_any_thread};
    enum { N = sizeof ways / sizeof *ways };
    uint32_t at = (uint32_t)draw(N);

    w.steps++;
    for (uint32_t i = 0; i < N; i++)
        if (ways[(at + i) % N]())
            return true;
    return false;
}

/* ---- one seed ------------------------------------------------------------------------------ */

static const usm__shared_ops ops = {on_send, on_give, on_wake, on_content};

static bool begin_world(uint64_t seed)
{
    const char *planted = w.planted;

    memset(&w, 0, sizeof w);
    w.planted = planted;
    w.seed = w.random = seed;
    w.ranks           = 2 + (uint32_t)draw(RANKS - 1);
    w.blocks          = 1 + (uint32_t)draw(BLOCKS);
    w.threads         = 1 + (uint32_t)draw(THREADS);
    w.doubled         = (uint32_t)draw(3) * 100;
    w.failing         = draw(4) == 0 ? 50 + (uint32_t)draw(400) : 0;
    w.ahead           = (uint32_t)draw(5);
    for (uint32_t r = 0; r < w.ranks; r++) {
        node *n = &w.nodes[r];

        n->machine = (usm__shared_machine){
            .ops = &ops, .arg = n, .self = r, .ranks = w.ranks, .blocks = w.blocks};
        if (usm__shared_init(&n->machine) != USM_OK)
            return false;
        for (uint32_t i = 0; i < w.threads; i++)
            n->threads[i].todo = 1 + (uint32_t)draw(30);
    }
    return true;
}

static bool is_owned(uint64_t b)
{
    for (uint32_t r = 0; r < w.ranks; r++)
        if (!w.nodes[r].is_dead && w.nodes[r].machine.local[b].hold >= USM__HOLD_OWNED)
            return true;
    return false;
}

/* What a living rank owns all others can read, whoever has ended meanwhile. */
static void look_at(uint64_t b)
{
    uint32_t refused = w.refused;

    w.looked_at = b;
    for (uint32_t r = 0; r < w.ranks; r++)
        w.nodes[r].threads[0].todo = 1;
    while (!w.defect && step())
        ;
    if (w.refused != refused)
        found("a block that a living rank owns is refused");
}

static void check_end(void)
{
    for (uint32_t r = 0; r < w.ranks; r++)
        for (uint32_t i = 0; !w.nodes[r].is_dead && i < w.threads; i++)
            if (w.nodes[r].threads[i].state != RESTING || w.nodes[r].threads[i].todo > 0)
                found("an access waits for ever");
    for (uint64_t b = 0; b < w.blocks; b++) {
        uint32_t owners = 0;

        for (uint32_t r = 0; r < w.ranks; r++)
            owners += !w.nodes[r].is_dead && w.nodes[r].machine.local[b].hold >= USM__HOLD_OWNED;
        if (owners > 1)
            found("two ranks own one block");
        if (owners == 0 && w.kills == 0)
            found("nobody owns a block");
    }
}

static bool run_seed(uint64_t seed)
{
    uint64_t kill_at[RANKS];
    uint32_t kills;

    if (!begin_world(seed))
        return false;
    kills = draw(2) == 0 ? 0 : (uint32_t)draw(w.ranks);
    for (uint32_t i = 0; i < kills; i++)
        kill_at[i] = 1 + draw(draw(2) ? 300 : 2000);
    while (!w.defect && w.steps < 1000000 && step())
        for (uint32_t i = 0; i < kills; i++)
            if (kill_at[i] == w.steps) {
                uint32_t victim = (uint32_t)draw(w.ranks);

                if (!w.nodes[victim].is_dead && w.kills + 1 < w.ranks)
                    kill_rank(victim);
            }
    if (!w.defect)
        check_end();
    w.is_last_look = true;
    w.failing      = 0;
    for (uint64_t b = 0; !w.defect && b < w.blocks; b++)
        if (is_owned(b))
            look_at(b);
    if (!w.defect)
        check_end();
    for (uint32_t r = 0; r < w.ranks; r++)
        usm__shared_fini(&w.nodes[r].machine);
    if (w.defect)
        printf("# seed %llu, operation %llu: %s (%u ranks, %u blocks, %u threads, %u killed)\n",
               (unsigned long long)seed, (unsigned long long)w.steps, w.defect, w.ranks, w.blocks,
               w.threads, w.kills);
    return !w.defect;
}

int main(int argc, char **argv)
{
    budget   seeds = {.first = 1, .most = 1000};
    uint64_t opens = 0, refusals = 0, kills = 0, moves = 0, seed;

    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--planted=", 10) == 0)
            w.planted = argv[i] + 10;
        else if (!budget_option(&seeds, argc, argv, &i))
            return 2;
    while (budget_next(&seeds, &seed)) {
        if (!run_seed(seed))
            return 1;
        opens += w.opened;
        refusals += w.refused;
        kills += w.kills;
        moves += w.moved;
    }
    budget_print(&seeds);
    printf(": %llu blocks accessed, %llu moved, %llu ranks killed, %llu accesses failed for it\n",
           (unsigned long long)opens, (unsigned long long)moves, (unsigned long long)kills,
           (unsigned long long)refusals);
    return 0;
}
