/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The simulated processes (world.h): their steps, their memory, what breaks and is mended, and what
 * must hold of members, memory and messages at any time and at the end.
 *
 * Memory is counted by the process that asked for it.  What is freed while an operation of the link
 * still has it is a defect at once; what a node leaves behind must be in the link's hands. */
#include "world.h"

#include "device/registry.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SECONDS = 60 };

struct world_settings settings = {.seeds = {.first = 1, .most = 1}, .operations = 250};

/* ---- words, and chance ---------------------------------------------------------------- */

USM_PRINTF(2, 0)
static void say(const world *w, const char *format, va_list args)
{
    printf("# seed %llu, operation %llu, %.3f ms: ", (unsigned long long)w->seed,
           (unsigned long long)w->operation, (double)net_now(w->n) / 1e6);
    (void)vprintf(format, args);
    (void)putchar('\n');
}

void found(const world *w, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(w, format, args);
    va_end(args);
    (void)fflush(NULL);
    _exit(1);
}

void notify(const world *w, const char *format, ...)
{
    va_list args;

    if (!settings.verbose)
        return;
    va_start(args, format);
    say(w, format, args);
    va_end(args);
}

bool is_planted(const char *what)
{
    return settings.planted && strcmp(settings.planted, what) == 0;
}

uint64_t drawn(world *w, uint64_t below)
{
    w->random ^= w->random >> 12;
    w->random ^= w->random << 25;
    w->random ^= w->random >> 27;
    return (w->random * 0x2545F4914F6CDD1Du >> 33) % below;
}

bool one_in(world *w, uint64_t n)
{
    return drawn(w, n) == 0;
}

bool runs(const member *m)
{
    return m->node && !m->is_gone && !net_is_dead(m->w->n, m->index);
}

/* ---- options --------------------------------------------------------------------------------- */

static uint64_t seed_under_way;

static void died(int sig)
{
    char text[80];
    int  n = snprintf(text, sizeof text, "# seed %llu, operation ?: signal %d\n",
                      (unsigned long long)seed_under_way, sig);

    (void)!write(STDOUT_FILENO, text, (size_t)n);
    _exit(1);
}

void world_parse(int argc, char **argv)
{
    static const struct {
        const char *name;
        uint64_t   *at;
    } numbers[] = {{"--operations", &settings.operations}, {"--flips", &settings.flips}};

    for (int i = 1; i < argc; i++) {
        bool known = strcmp(argv[i], "--verbose") == 0;

        settings.verbose |= known;
        if (strncmp(argv[i], "--planted=", 10) == 0) {
            settings.planted = argv[i] + 10;
            known            = true;
        }
        for (size_t n = 0; !known && n < sizeof numbers / sizeof *numbers && i + 1 < argc; n++)
            if (strcmp(argv[i], numbers[n].name) == 0) {
                *numbers[n].at = strtoull(argv[++i], NULL, 0);
                known          = true;
            }
        if (!known && !budget_option(&settings.seeds, argc, argv, &i))
            exit(2);
    }
    (void)signal(SIGALRM, died);
    (void)signal(SIGABRT, died);
}

/* ---- memory of a process ------------------------------------------------------------------ */

typedef struct piece {
    struct piece  *next, **at;
    const member  *owner;
    void          *base;
    size_t         size;
    unsigned char *bytes;
} piece;

static piece  *pieces;
static member *current; /* whose code runs */

static member *enter(member *m)
{
    member *before = current;

    current = m;
    return before;
}

/* Its description is right before it. */
static void *give(size_t size, size_t align)
{
    unsigned char *base = aligned_alloc(align, align + ((size + align - 1) & ~(align - 1)));
    piece         *p;

    if (!base)
        abort();
    memset(base, 0, align + size);
    p  = (piece *)(void *)(base + align - sizeof *p);
    *p = (piece){pieces, &pieces, current, base, size, base + align};
    if (pieces)
        pieces->at = &p->next;
    pieces = p;
    return p->bytes;
}

static void piece_free(piece *p)
{
    *p->at = p->next;
    if (p->next)
        p->next->at = p->at;
    memset(p->bytes, 0xDD, p->size);
    free(p->base);
}

static void take(void *bytes)
{
    piece *p = (piece *)(void *)((unsigned char *)bytes - sizeof *p);

    if (p->owner && net_owns(p->owner->w->n, p->owner->index, p->bytes, p->size))
        found(p->owner->w, "node %u: memory is freed that an operation of the link still has",
              p->owner->index);
    piece_free(p);
}

static void *heap_alloc(size_t size)
{
    return give(size, 64);
}

static void heap_free(void *bytes)
{
    if (bytes)
        take(bytes);
}

static void *map(size_t size, int prot)
{
    (void)prot;
    return give(size, PAGE);
}

static int unmap(void *bytes, size_t size)
{
    (void)size;
    take(bytes);
    return 0;
}

/* A node was destroyed: what is left is the link's.  Or (all) its process is gone, with all it had.
 */
static void check_pieces(const member *m, bool all)
{
    for (piece *p = pieces, *next; p; p = next) {
        next = p->next;
        if (p->owner != m)
            continue;
        if (!all && !net_owns(m->w->n, m->index, p->bytes, p->size))
            found(m->w, "node %u: %zu bytes are leaked, and the link does not have them", m->index,
                  p->size);
        if (all)
            piece_free(p);
    }
}

static void quiet_log(usm_log_level level, const char *format, ...)
{
    (void)level;
    (void)format;
}

static const usm_host_api *host_api(void)
{
    static usm_host_api api;
    static usm_os_api   os;

    os             = *usm__registry_api.os;
    os.map         = map;
    os.unmap       = unmap;
    api            = usm__registry_api;
    api.os         = &os;
    api.log        = quiet_log;
    api.heap_alloc = heap_alloc;
    api.heap_free  = heap_free;
    return &api;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void step(void *w_, uint64_t index)
{
    world   *w    = w_;
    member  *m    = &w->members[index], *before;
    bool     busy = false;
    uint64_t next;

    if (!runs(m) || net_is_hung(w->n, m->index) || m->wake_at != net_now(w->n))
        return;
    m->wake_at = UINT64_MAX;
    if (m->is_copying) {
        world_wake(m, net_now(w->n) + 1000);
        return;
    }
    before = enter(m);
    next   = far_step(m->node, &busy);
    if (far_near_run(m->node))
        next = net_now(w->n);
    current = before;
    w->counts->steps++;
    if (next <= net_now(w->n))
        next = net_now(w->n) + 1000;
    if (busy && next > net_now(w->n) + 10000)
        next = net_now(w->n) + 10000;
    if (w->stalls > 0 && drawn(w, 1000) < w->stalls)
        next += drawn(w, w->lease_ns / 8);
    world_wake(m, next);
}

void world_wake(member *m, uint64_t time)
{
    uint64_t now = net_now(m->w->n);

    time = time > now ? time : now;
    if (time >= m->wake_at && m->wake_at >= now)
        return;
    m->wake_at = time;
    net_at(m->w->n, time, step, m->w, m->index);
}

static void wake(void *m_)
{
    member *m = m_;

    world_wake(m, net_now(m->w->n) + drawn(m->w, 20000));
}

static void notice(void *w_, uint32_t index)
{
    world *w = w_;

    if (runs(&w->members[index]))
        world_wake(&w->members[index], net_now(w->n) + drawn(w, 60000));
}

static void misuse(void *w, const char *what)
{
    found(w, "%s", what);
}

static void nothing(void *w, uint64_t number)
{
    (void)w;
    (void)number;
}

void world_run(world *w, uint64_t ns)
{
    uint64_t end = net_now(w->n) + ns;

    net_at(w->n, end, nothing, w, 0);
    while (net_now(w->n) < end && net_run_one(w->n))
        ;
}

/* ---- members --------------------------------------------------------------------------------- */

bool is_excused(const world *w, uint32_t a, uint32_t b)
{
    const member *m = &w->members[a], *o = &w->members[b];

    return net_hurt(w->n, a, b) || m->was_hung || o->was_hung || !runs(m) || !runs(o) ||
           m->is_leaving || o->is_leaving || m->has_wrong_key || o->has_wrong_key ||
           m->seen[b] != FAR_UP;
}

bool is_orphaned(const world *w, uint32_t a, uint32_t b)
{
    return net_silence(w->n, a, b) >= w->orphan_ns;
}

static const char *const states[] = {"joining", "up", "slow", "lost", "left"};

static void check_state(const member *m, const far_member *f)
{
    const world  *w        = m->w;
    const member *o        = &w->members[f->peer];
    uint64_t      silent   = net_now(w->n) - net_last_heard(w->n, f->peer, m->index);
    bool          notified = net_is_dead(w->n, f->peer) || net_hurt(w->n, f->peer, m->index) ||
                    m->was_hung || o->was_hung || o->is_leaving;

    if (f->state == FAR_LOST && silent < w->lease_ns && !notified)
        found(w, "node %u says that %u is lost, which it heard %llu us ago", m->index, f->peer,
              (unsigned long long)silent / 1000);
    if (f->state == FAR_SLOW && silent < w->lease_ns / 2 && !notified)
        found(w, "node %u says that %u is slow, which it heard %llu us ago", m->index, f->peer,
              (unsigned long long)silent / 1000);
    if (f->state == FAR_LEFT && !o->is_leaving)
        found(w, "node %u says that %u has left, which did not", m->index, f->peer);
    if (f->state == FAR_UP && m->has_wrong_key != o->has_wrong_key)
        found(w, "nodes %u and %u have different keys, and are up", m->index, f->peer);
    if (f->state == FAR_UP && f->lends != o->lend)
        found(w, "node %u believes that %u lends %llu bytes, not %llu", m->index, f->peer,
              (unsigned long long)f->lends, (unsigned long long)o->lend);
}

static void member_changed(void *m_, const far_member *f)
{
    member *m = m_;

    if (!runs(m))
        return;
    notify(m->w, "node %u: %u is %s", m->index, f->peer, states[f->state]);
    check_state(m, f);
    m->seen[f->peer] = f->state;
    if (f->state == FAR_UP)
        m->up_at[f->peer] = net_now(m->w->n);
    if ((f->state == FAR_LOST && !f->may_return) || f->state == FAR_LEFT)
        blocks_lost(m, f->peer);
    if (m->w->changed && m->index == 0)
        m->w->changed(f);
}

/* Numbers rise; where nothing was wrong, by one. */
static void message(void *m_, uint32_t from, uint32_t tag, const void *data, size_t size)
{
    member              *m     = m_;
    world               *w     = m->w;
    const unsigned char *bytes = data;
    uint64_t             number;

    if (!runs(m))
        return;
    if (size < 8 || size > MESSAGE_MAX)
        found(w, "node %u: a message of %zu bytes came from %u", m->index, size, from);
    memcpy(&number, data, 8);
    for (size_t i = 8; i < size; i++)
        if (bytes[i] != (unsigned char)(number + i)) {
            found(w, "node %u: message %llu of %u is damaged at byte %zu of %zu", m->index,
                  (unsigned long long)number, from, i, size);
            return;
        }
    if (number <= m->heard[from] || tag != (number & 15))
        found(w, "node %u: message %llu (tag %u) of %u comes after its message %llu", m->index,
              (unsigned long long)number, tag, from, (unsigned long long)m->heard[from]);
    if (number != m->heard[from] + 1 && !is_excused(w, from, m->index) && m->seen[from] == FAR_UP)
        found(w, "node %u: message %llu of %u comes after %llu: some are missing", m->index,
              (unsigned long long)number, from, (unsigned long long)m->heard[from]);
    m->heard[from] = number;
    w->counts->messages++;
}

/* Enough of a keyed function for a test. */
static bool hmac(const void *key, size_t key_size, const void *data, size_t size,
                 unsigned char mac[32])
{
    const unsigned char *parts[2] = {key, data};
    const size_t         sizes[2] = {key_size, size};

    for (unsigned i = 0; i < 4; i++) {
        uint64_t h = 0xCBF29CE484222325u + i;

        for (unsigned p = 0; p < 2; p++)
            for (size_t k = 0; k < sizes[p]; k++)
                h = (h ^ parts[p][k]) * 0x100000001B3u ^ h >> 29;
        memcpy(mac + (size_t)8 * i, &h, 8);
    }
    return true;
}

/* Until it goes on.  Who takes his turn in the middle of somebody else's copy, and stands still in
 * his own, stops the other one as well, whose call cannot return. */
static void stand_still(member *m)
{
    world   *w       = m->w;
    uint64_t since   = net_now(w->n);
    bool     is_hung = net_is_hung(w->n, m->index);

    for (uint32_t i = 0; is_hung && i < w->nmembers; i++)
        w->members[i].was_hung |= w->members[i].is_copying;
    while (net_is_hung(w->n, m->index) && runs(m) && net_run_one(w->n))
        ;
    for (uint32_t i = 0; is_hung && i < w->nmembers; i++)
        if (w->members[i].is_copying && i != m->index)
            w->members[i].stopped_ns += net_now(w->n) - since;
}

/* In the middle of a copy: others go on, one of the two may die, and the borrower may stand still
 * until the lender has given him up. */
static void middle(void *m_, uint32_t lender)
{
    member  *m      = m_;
    world   *w      = m->w;
    member  *before = current;
    unsigned n      = one_in(w, 4) ? (unsigned)drawn(w, 5) : 0;

    if (m->is_copying || !runs(m))
        return;
    m->is_copying = true;
    if (w->near_deaths > 0 && !w->is_ending && one_in(w, 40)) {
        uint32_t who = one_in(w, 2) ? lender : m->index;

        w->near_deaths--;
        w->counts->near_deaths++;
        w->counts->deaths++;
        notify(w, "node %u dies while %u copies", who, m->index);
        net_kill(w->n, who);
    } else if (w->near_hangs && !w->is_ending && one_in(w, 200)) {
        world_hang(w, m->index, drawn(w, 2 * w->orphan_ns));
    }
    while (n-- > 0 && net_run_one(w->n))
        ;
    stand_still(m);
    m->is_copying = false;
    current       = before;
}

void world_start(world *w, member *m)
{
    char       domain[16];
    far_params p      = {.struct_size = sizeof p};
    member    *before = enter(m);

    (void)snprintf(domain, sizeof domain, "node%u", m->domain);
    p.api            = host_api();
    p.link           = net_link(w->n, m->index);
    p.domain         = domain;
    p.lend           = m->lend;
    p.key            = !w->has_key ? NULL : m->has_wrong_key ? "another" : "the key";
    p.key_size       = w->has_key ? 7 : 0;
    p.hmac           = w->has_key ? hmac : NULL;
    p.seed           = drawn(w, UINT32_MAX) << 16 | m->index;
    p.lease_ns       = w->lease_ns;
    p.deadline_ns    = w->deadline_ns;
    p.orphan_ns      = w->orphan_ns;
    p.piece          = w->piece;
    p.depth          = w->depth;
    p.member_changed = member_changed;
    p.message        = message;
    p.wake           = wake;
    if (w->hosts > 0) {
        near_sim_init(&m->near, m->index, 1 + m->index % w->hosts);
        m->near.middle      = middle;
        m->near.user        = m;
        m->near.cannot_lend = !w->is_quiescent && one_in(w, 10);
        m->near.cannot_map  = !w->is_quiescent && one_in(w, 10);
        p.near_memory       = &m->near.base;
    }
    p.user = m;
    if (far_node_create(&p, &m->node) != USM_OK)
        found(w, "a node was not created: %s", usm_last_error());
    current    = before;
    m->wake_at = UINT64_MAX;
    world_wake(m, net_now(w->n));
}

void world_stop(member *m)
{
    member *before = enter(m);

    m->is_gone = true;
    net_abandon(m->w->n, m->index);
    far_node_destroy(m->node);
    m->node = NULL;
    check_pieces(m, false);
    current = before;
}

/* ---- what breaks ----------------------------------------------------------------------------- */

static void resume(void *w_, uint64_t index)
{
    world *w = w_;

    if (net_is_hung(w->n, (uint32_t)index))
        net_hang(w->n, (uint32_t)index, false);
    notify(w, "node %u goes on", (unsigned)index);
}

void world_hang(world *w, uint32_t index, uint64_t ns)
{
    member *m = &w->members[index];

    if (!runs(m) || net_is_hung(w->n, index))
        return;
    notify(w, "node %u hangs for %llu us", index, (unsigned long long)ns / 1000);
    m->was_hung = true;
    m->stopped_ns += ns;
    w->counts->hangs++;
    m->wake_at = UINT64_MAX;
    net_hang(w->n, index, true);
    net_at(w->n, net_now(w->n) + ns, resume, w, index);
}

static void mend_cut(void *w_, uint64_t pair)
{
    world *w = w_;

    net_cut(w->n, (uint32_t)pair >> 8, (uint32_t)pair & 255, false, false);
    notify(w, "the way from %u to %u is there again", (unsigned)pair >> 8, (unsigned)pair & 255);
}

/* One way, or both. */
void world_cut(world *w, uint32_t a, uint32_t b, uint64_t ns)
{
    bool drops = w->has_data_faults && one_in(w, 2), both = !one_in(w, 3);

    if (a == b)
        return;
    notify(w, "the way from %u to %u%s is cut for %llu us, what is sent %s", a, b,
           both ? " and back" : "", (unsigned long long)ns / 1000, drops ? "is lost" : "waits");
    w->counts->cuts++;
    net_cut(w->n, a, b, true, drops);
    net_at(w->n, net_now(w->n) + ns, mend_cut, w, a << 8 | b);
    if (both) {
        net_cut(w->n, b, a, true, drops);
        net_at(w->n, net_now(w->n) + ns, mend_cut, w, b << 8 | a);
    }
}

void world_cut_both(world *w, uint32_t a, uint32_t b, uint64_t ns)
{
    notify(w, "the ways between %u and %u are cut for %llu us", a, b,
           (unsigned long long)ns / 1000);
    w->counts->cuts++;
    net_cut(w->n, a, b, true, false);
    net_cut(w->n, b, a, true, false);
    net_at(w->n, net_now(w->n) + ns, mend_cut, w, a << 8 | b);
    net_at(w->n, net_now(w->n) + ns, mend_cut, w, b << 8 | a);
}

void world_mend(world *w)
{
    static const net_faults none;

    net_set_faults(w->n, &none);
    w->stalls = 0;
    for (uint32_t i = 0; i < w->nmembers; i++) {
        net_plan(w->n, i, NET_MOMENTS, 0, NET_ENDS);
        if (net_is_hung(w->n, i))
            net_hang(w->n, i, false);
        for (uint32_t k = 0; k < w->nmembers; k++)
            if (net_is_cut(w->n, i, k))
                net_cut(w->n, i, k, false, false);
    }
}

/* A planned end has come: anywhere in far's code. */
static void ended(void *w_, uint32_t index, net_end how)
{
    world *w = w_;

    if (how == NET_KILL) {
        w->counts->deaths++;
        notify(w, "node %u dies", index);
    } else if (how == NET_HANG) {
        world_hang(w, index, w->lease_ns / 4 + drawn(w, 2 * w->lease_ns));
    } else {
        world_cut(w, index, (uint32_t)drawn(w, w->nmembers), drawn(w, 2 * w->lease_ns));
    }
}

void world_open(world *w, bool tells_death)
{
    static const size_t eager[] = {0, NET_HEADER, PAGE, SIZE_MAX};
    net_params          p       = {.count       = w->nmembers,
                                   .seed        = w->seed,
                                   .latency_ns  = 5000 + drawn(w, 100000),
                                   .late_ns     = w->deadline_ns,
                                   .eager       = eager[drawn(w, 4)],
                                   .tells_death = tells_death,
                                   .notice      = notice,
                                   .found       = misuse,
                                   .ended       = ended,
                                   .user        = w};

    seed_under_way = w->seed;
    (void)alarm(SECONDS);
    w->n = net_create(&p);
    net_set_faults(w->n, &w->faults);
    for (uint32_t i = 0; i < w->nmembers; i++) {
        w->members[i].w       = w;
        w->members[i].index   = i;
        w->members[i].domain  = w->members[i].domain ? w->members[i].domain : i;
        w->members[i].wake_at = UINT64_MAX;
    }
}

/* ---- what must hold -------------------------------------------------------------------------- */

static void check_members(const member *m)
{
    const world *w = m->w;
    far_member   list[NET_NODES_MAX];
    size_t       n     = far_members(m->node, list, NET_NODES_MAX);
    uint64_t     limit = w->lease_ns + w->orphan_ns; /* who borrows here is waited for */

    for (size_t i = 0; i < n && i < NET_NODES_MAX; i++) {
        const far_member *f      = &list[i];
        uint64_t          silent = net_now(w->n) - net_last_reached(w->n, f->peer, m->index);

        if (f->peer == m->index)
            continue;
        if (f->state != m->seen[f->peer] && f->state != FAR_JOINING)
            found(w, "node %u lists %u as %s, and has said %s", m->index, f->peer, states[f->state],
                  states[m->seen[f->peer]]);
        /* Bytes and messages are signs of life, too, which the network does not count. */
        if ((f->state == FAR_UP || f->state == FAR_SLOW) && !m->was_hung && silent > limit &&
            f->silent_ns > limit && net_now(w->n) - m->up_at[f->peer] > limit)
            found(w, "node %u lists %u as %s, which is silent for %llu us", m->index, f->peer,
                  states[f->state], (unsigned long long)silent / 1000);
    }
}

static void check_stats(const member *m)
{
    far_stats s;

    far_get_stats(m->node, &s);
    if (s.kept > m->lend)
        found(m->w, "node %u keeps %llu bytes, and lends %llu", m->index,
              (unsigned long long)s.kept, (unsigned long long)m->lend);
    /* Receives of one tag may end in any order, so that requests may be stale. */
    if (m->w->is_quiescent && !m->w->has_left &&
        (s.timeouts || s.late || s.quarantined || s.refused))
        found(m->w,
              "node %u: %llu timeouts, %llu late, %llu bytes in quarantine, %llu refused, and "
              "nothing was wrong",
              m->index, (unsigned long long)s.timeouts, (unsigned long long)s.late,
              (unsigned long long)s.quarantined, (unsigned long long)s.refused);
}

void world_check(world *w)
{
    blocks_check_deadlines(w);
    net_check(w->n);
    for (uint32_t i = 0; i < w->nmembers; i++)
        if (runs(&w->members[i]) && !net_is_hung(w->n, i)) {
            check_members(&w->members[i]);
            check_stats(&w->members[i]);
        }
}

/* What others lend is free again, as it sees them. */
static void check_given_back(const member *m)
{
    const world *w = m->w;
    far_member   list[NET_NODES_MAX];
    size_t       n = far_members(m->node, list, NET_NODES_MAX);

    for (size_t i = 0; i < n && i < NET_NODES_MAX; i++)
        if (list[i].state == FAR_UP && list[i].available != list[i].lends &&
            !net_hurt_data(w->n, list[i].peer, m->index))
            found(w, "node %u: %llu of %llu bytes of %u are free when all stores are closed",
                  m->index, (unsigned long long)list[i].available,
                  (unsigned long long)list[i].lends, list[i].peer);
}

/* All stores are closed, all is mended, all had time. */
void world_check_leaks(world *w)
{
    for (uint32_t i = 0; i < w->nmembers; i++) {
        member   *m = &w->members[i];
        far_stats s;

        if (!runs(m))
            continue;
        far_get_stats(m->node, &s);
        w->counts->timeouts += s.timeouts;
        w->counts->late += s.late;
        w->counts->stale += s.stale;
        w->counts->refused += s.refused;
        w->counts->quarantined += s.quarantined;
        w->counts->near_bytes += s.near_fetched + s.near_stored;
        check_given_back(m);
        if (s.kept > 0 || s.borrowers > 0)
            found(w, "node %u keeps %llu bytes of %llu borrowers when all stores are closed", i,
                  (unsigned long long)s.kept, (unsigned long long)s.borrowers);
        if (s.quarantined > 0 && net_held(w->n, i) == 0)
            found(w, "node %u: %llu bytes are in quarantine, and the link has none", i,
                  (unsigned long long)s.quarantined);
    }
}

void world_close(world *w)
{
    for (uint32_t i = 0; i < w->nmembers; i++)
        if (w->members[i].node && !net_is_dead(w->n, i))
            world_stop(&w->members[i]);
    net_check(w->n);
    for (uint32_t i = 0; i < w->nmembers; i++) {
        check_pieces(&w->members[i], true);
        blocks_free(&w->members[i]);
    }
    near_sim_free_all();
    net_destroy(w->n);
}
