/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* far_model [--seed N] [--seeds COUNT] [--seconds S] [--operations N] [--verbose]
 *           [--planted=data|lost|twice|leak|scribble]
 *
 * Deterministic simulation of far memory: 1 to 3 borrowers and 3 to 9 lenders in one thread, over a
 * network with a clock of its own (net.h) that loses, delays, doubles, damages and cuts messages,
 * while nodes die at moments of the protocol, hang, are cut off from each other, come late and
 * leave.  Random blocks are reserved, stored, fetched in parts and forgotten, and messages sent;
 * what they hold is compared with a model (blocks.c), and the nodes' members, memory and accounts
 * with what the network knows (world.c).  At the end of a seed all is mended, everything that was
 * acknowledged by a lender that is not lost must be there, everybody must serve everybody again,
 * and nothing may be kept or leaked once all stores are closed.
 *
 * A seed's number modulo 8 is its kind of faults (kinds[]).  --planted puts a defect into a seed
 * without faults, which must be found: exit status 1 and the seed. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MS = 1000000 };

typedef struct kind {
    const char *name;
    net_faults  faults; /* at most so many; a seed draws its own                            */
    unsigned    deaths, breaks, stalls;
} kind;

static const kind kinds[] = {
    {.name = "nothing"},
    {.name = "late messages", .faults = {{.late = 40}, {.late = 40}}, .stalls = 20},
    {.name   = "headers",
     .faults = {{.late = 10, .doubled = 60, .dropped = 40, .flipped = 20, .cut = 20}, {0}}},
    {.name   = "data",
     .faults = {{.doubled = 20, .dropped = 5},
                {.late = 20, .doubled = 40, .dropped = 20, .flipped = 5, .cut = 20}}},
    {.name = "deaths", .deaths = 3, .breaks = 2},
    {.name = "hangs and cuts", .breaks = 30, .stalls = 20},
    {.name   = "all but damage",
     .faults = {{.late = 10, .doubled = 20, .dropped = 10}, {.late = 10}},
     .deaths = 2,
     .breaks = 10,
     .stalls = 10},
    {.name   = "all",
     .faults = {{10, 20, 10, 2, 10, 10}, {10, 20, 10, 2, 5, 10}},
     .deaths = 2,
     .breaks = 10,
     .stalls = 10},
};

static counts      all;
static const kind *its; /* of the seed under way */

/* ---- choices ----------------------------------------------------------------------- */

static member *some_borrower(world *w)
{
    for (unsigned i = 0; i < 20; i++) {
        member *m = &w->members[drawn(w, w->nmembers)];

        if (m->borrows && runs(m) && !net_is_hung(w->n, m->index) && !m->is_leaving)
            return m;
    }
    return NULL;
}

/* That it knows to be there, at times any; itself: there is none. */
static uint32_t some_lender(member *m)
{
    world *w = m->w;

    for (unsigned i = 0; i < 20; i++) {
        uint32_t peer = (uint32_t)drawn(w, w->nmembers);

        if (peer != m->index && w->members[peer].lend > 0 &&
            (m->seen[peer] == FAR_UP || (!w->is_quiescent && one_in(w, 50))))
            return peer;
    }
    return m->index;
}

static keep *some_keep(member *m)
{
    unsigned which = (unsigned)drawn(m->w, STORES);

    if (!m->keeps[which])
        m->keeps[which] = keep_open(m);
    return m->keeps[which];
}

/* ---- operations ----------------------------------------------------------------------- */

static void do_reserve(member *m)
{
    unsigned first = (unsigned)drawn(m->w, BLOCKS);
    uint32_t peer  = some_lender(m);

    if (peer != m->index)
        blocks_reserve(m, some_keep(m), peer, first, 1 + (unsigned)drawn(m->w, BLOCKS - first));
}

static bool is_known(const block *b, unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++)
        if (b->pages[i].is_unknown)
            return false;
    return true;
}

static void do_transfer(member *m)
{
    world   *w     = m->w;
    keep    *k     = some_keep(m);
    uint32_t peer  = some_lender(m);
    unsigned which = (unsigned)drawn(w, BLOCKS), pages = (unsigned)(w->block_size / PAGE);
    unsigned first = one_in(w, 2) ? 0 : (unsigned)drawn(w, pages);
    unsigned n     = one_in(w, 2) ? pages - first : 1 + (unsigned)drawn(w, pages - first);
    bool     known = is_known(&k->blocks[peer][which], first, n);

    if (peer == m->index)
        return;
    if (!k->blocks[peer][which].is_reserved) {
        blocks_reserve(m, k, peer, which, 1);
        return;
    }
    (void)blocks_transfer(m, k, peer,
                          known && !one_in(w, 3) ? USM_TRANSFER_FETCH : USM_TRANSFER_STORE, which,
                          first, n);
}

static void do_transfers(member *m)
{
    unsigned n = 1 + (unsigned)drawn(m->w, one_in(m->w, 8) ? 40 : 4);

    while (n-- > 0 && runs(m))
        do_transfer(m);
}

static void do_forget(member *m)
{
    unsigned first = (unsigned)drawn(m->w, BLOCKS);
    unsigned n     = 1 + (unsigned)drawn(m->w, one_in(m->w, 3) ? BLOCKS - first : 1);
    uint32_t peer  = some_lender(m);

    if (peer != m->index)
        blocks_forget(m, some_keep(m), peer, first, n);
}

static void do_message(member *m)
{
    static unsigned char bytes[MESSAGE_MAX];
    world               *w    = m->w;
    uint32_t             to   = (uint32_t)drawn(w, w->nmembers);
    size_t               size = 8 + drawn(w, one_in(w, 10) ? MESSAGE_MAX - 7 : 600);
    uint64_t             number;

    if (to == m->index || m->seen[to] != FAR_UP)
        return;
    number = m->said[to] + 1;
    memcpy(bytes, &number, 8);
    for (size_t i = 8; i < size; i++)
        bytes[i] = (unsigned char)(number + i);
    if (far_send(m->node, to, number & 15, bytes, size) == USM_OK)
        m->said[to] = number;
    else if (!is_excused(w, m->index, to))
        found(w, "node %u could not send to %u: %s", m->index, to, usm_last_error());
}

static void do_close(member *m)
{
    unsigned which = (unsigned)drawn(m->w, STORES);

    if (m->keeps[which] && m->keeps[which]->under_way == 0 && one_in(m->w, 3))
        keep_close(m, which);
}

static void do_break(world *w)
{
    uint32_t a = (uint32_t)drawn(w, w->nmembers), b = (uint32_t)drawn(w, w->nmembers);
    uint64_t long_ns = one_in(w, 4) ? 2 * w->orphan_ns : w->lease_ns;

    if (one_in(w, 2))
        world_hang(w, a, 1 + drawn(w, long_ns));
    else
        world_cut(w, a, b, 1 + drawn(w, long_ns));
}

/* ---- coming and going -------------------------------------------------------------------- */

static void leave(member *m)
{
    for (unsigned i = 0; i < STORES; i++)
        if (m->keeps[i] && m->keeps[i]->under_way > 0)
            return;
    for (unsigned i = 0; i < STORES; i++)
        if (m->keeps[i])
            keep_close(m, i);
    notify(m->w, "node %u leaves", m->index);
    m->is_leaving  = true;
    m->leave_at    = net_now(m->w->n);
    m->w->has_left = true;
    m->w->counts->leaves++;
    far_leave(m->node, &m->left);
}

/* Those who have left end. */
static void go(world *w)
{
    for (uint32_t i = 0; i < w->nmembers; i++) {
        member *m = &w->members[i];

        if (!runs(m) || !m->is_leaving)
            continue;
        if (m->left)
            world_stop(m);
        else if (net_now(w->n) - m->leave_at > 2 * w->deadline_ns + m->stopped_ns + w->lease_ns / 4)
            found(w, "node %u wants to leave, and cannot", i);
    }
}

static void come_and_go(world *w)
{
    member  *m    = &w->members[drawn(w, w->nmembers)];
    unsigned stay = 0;

    go(w);
    for (uint32_t i = 0; i < w->nmembers; i++)
        stay += runs(&w->members[i]) && !w->members[i].is_leaving && w->members[i].lend > 0;
    if (!m->node && !m->is_gone && !net_is_dead(w->n, m->index)) {
        notify(w, "node %u joins", m->index);
        w->counts->joins++;
        world_start(w, m);
    } else if (runs(m) && !m->is_leaving && !net_is_hung(w->n, m->index) && stay > 2 &&
               one_in(w, 10)) {
        leave(m);
    }
}

/* ---- a seed --------------------------------------------------------------------------------- */

static void operate(world *w)
{
    member *m = some_borrower(w);

    w->operation++;
    if (its->breaks > 0 && drawn(w, 1000) < its->breaks)
        do_break(w);
    if (one_in(w, 20))
        come_and_go(w);
    if (is_planted("scribble") && w->operation == 100)
        net_scribble(w->n);
    m = m && runs(m) && !m->is_leaving ? m : NULL;
    switch (m ? drawn(w, 16) : 16) {
    case 0:
        do_reserve(m);
        break;
    case 1:
        do_forget(m);
        break;
    case 2:
    case 3:
        do_message(m);
        break;
    case 4:
        do_close(m);
        break;
    case 16:
        break;
    default:
        do_transfers(m);
    }
    world_run(w, one_in(w, 8) ? drawn(w, w->lease_ns / 4) : drawn(w, 400000));
    if (w->operation % 8 == 0)
        world_check(w);
}

static unsigned some_of(world *w, unsigned most)
{
    return most == 0 ? 0 : (unsigned)drawn(w, most + 1);
}

static net_rates some_rates(world *w, const net_rates *most)
{
    net_rates r = {some_of(w, most->late),    some_of(w, most->doubled),
                   some_of(w, most->dropped), some_of(w, most->reordered),
                   some_of(w, most->flipped), some_of(w, most->cut)};

    return r;
}

static void draw_world(world *w)
{
    unsigned borrowers = 1 + (unsigned)drawn(w, 3);
    unsigned group     = (unsigned)(w->seed / (sizeof kinds / sizeof *kinds));

    w->nmembers        = borrowers + 3 + (uint32_t)drawn(w, 7);
    w->lease_ns        = (20 + drawn(w, 80)) * MS;
    w->deadline_ns     = w->lease_ns / (1 + drawn(w, 3));
    w->orphan_ns       = w->lease_ns * (1 + drawn(w, 3));
    w->block_size      = (size_t)PAGE << drawn(w, 5);
    w->piece           = (size_t)PAGE << drawn(w, 4);
    w->depth           = 1 + (uint32_t)drawn(w, 4);
    w->has_key         = one_in(w, 3);
    w->is_quiescent    = its == &kinds[0];
    w->has_data_faults = its->faults.data.dropped > 0;
    w->stalls          = some_of(w, its->stalls);
    w->faults.header   = some_rates(w, &its->faults.header);
    w->faults.data     = some_rates(w, &its->faults.data);
    /* Two of three seeds of each kind: on one or two hosts, else each on its own. */
    w->hosts       = group % 3 == 0 ? 0 : 1 + group % 2;
    w->near_deaths = its->deaths > 0 && w->hosts > 0;
    w->near_hangs  = !w->is_quiescent;
    for (uint32_t i = 0; i < w->nmembers; i++) {
        member *m = &w->members[i];

        m->borrows = i < borrowers;
        m->lend    = m->borrows && !one_in(w, 4) ? 0 : w->block_size * (1 + drawn(w, 60));
    }
}

static void begin(world *w)
{
    static const net_faults flips = {{0}, {.flipped = 30}}, drops = {{.dropped = 100}, {0}};

    draw_world(w);
    world_open(w, one_in(w, 3));
    if (is_planted("data") || is_planted("lost"))
        net_set_untold(w->n, is_planted("data") ? &flips : &drops);
    for (uint32_t i = 0; i < w->nmembers; i++) {
        member *m = &w->members[i];

        m->has_wrong_key = w->has_key && !w->is_quiescent && i > 3 && one_in(w, 8);
        if (m->borrows || i < 4 || !one_in(w, 4)) /* the rest comes later */
            world_start(w, m);
    }
    for (unsigned i = 0; i < its->deaths; i++)
        net_plan(w->n, (uint32_t)drawn(w, w->nmembers), (net_moment)drawn(w, NET_MOMENTS),
                 1 + (unsigned)drawn(w, 120),
                 one_in(w, 3) ? (net_end)drawn(w, NET_ENDS) : NET_KILL);
    world_run(w, w->lease_ns / 2);
}

/* Everybody who lives and has the key knows everybody. */
static void check_all_up(world *w)
{
    for (uint32_t i = 0; i < w->nmembers; i++)
        for (uint32_t k = 0; k < w->nmembers; k++) {
            const member *a = &w->members[i], *b = &w->members[k];

            if (i == k || !runs(a) || !runs(b) || a->is_leaving || b->is_leaving ||
                a->has_wrong_key || b->has_wrong_key)
                continue;
            if (a->seen[k] != FAR_UP)
                found(w, "nodes %u and %u live, and do not find each other again", i, k);
        }
}

/* Block 0 of a store is asked for, or stored, at everybody. */
static void serve_again(world *w, bool stores)
{
    unsigned pages = (unsigned)(w->block_size / PAGE);

    for (uint32_t i = 0; i < w->nmembers; i++)
        for (uint32_t peer = 0; peer < w->nmembers; peer++) {
            member *m = &w->members[i];
            keep   *k;

            if (!runs(m) || !m->borrows || m->is_leaving || m->has_wrong_key || peer == i ||
                m->seen[peer] != FAR_UP || w->members[peer].lend == 0)
                continue;
            if (!m->keeps[0])
                m->keeps[0] = keep_open(m);
            k = m->keeps[0];
            if (stores && k->blocks[peer][0].is_reserved)
                blocks_transfer(m, k, peer, USM_TRANSFER_STORE, 0, 0, pages)->is_needed = true;
            else if (!stores) {
                blocks_forget(m, k, peer, 0, 1);
                blocks_reserve(m, k, peer, 0, 1);
            }
        }
    blocks_settle(w);
}

static void close_all(world *w)
{
    bool leaks = is_planted("leak");

    for (uint32_t i = 0; i < w->nmembers; i++)
        for (unsigned s = 0; s < STORES; s++) {
            member *m = &w->members[i];

            if (!m->keeps[s] || !runs(m))
                continue;
            if (m->keeps[s]->under_way > 0)
                found(w, "node %u: %u transfers have not ended long after all faults", i,
                      m->keeps[s]->under_way);
            if (!leaks)
                keep_close(m, s);
        }
}

static void end(world *w)
{
    uint64_t settle = 3 * w->lease_ns + 4 * w->deadline_ns;

    notify(w, "all is mended");
    world_mend(w);
    world_run(w, settle);
    w->is_ending = true;
    blocks_settle(w);
    go(w);
    check_all_up(w);
    world_check(w);
    blocks_verify(w);
    serve_again(w, false);
    serve_again(w, true);
    blocks_verify(w);
    close_all(w);
    world_run(w, settle + w->orphan_ns);
    world_check(w);
    world_check_leaks(w);
    for (uint32_t i = 0; i < w->nmembers; i++)
        if (runs(&w->members[i]) && !w->members[i].is_leaving && one_in(w, 2))
            leave(&w->members[i]);
    for (unsigned i = 0; i < 40; i++) {
        world_run(w, w->deadline_ns / 8);
        go(w);
    }
    for (uint32_t i = 0; i < w->nmembers; i++)
        if (runs(&w->members[i]) && w->members[i].is_leaving)
            found(w, "node %u wants to leave, and cannot", i);
}

static void add_net(world *w)
{
    net_stats s;

    net_get_stats(w->n, &s);
    if (settings.verbose)
        printf("# seed %llu: %llu messages, %llu faults, %llu steps\n", (unsigned long long)w->seed,
               (unsigned long long)s.messages, (unsigned long long)s.faults,
               (unsigned long long)w->counts->steps);
    all.net_messages += s.messages;
    all.net_faults += s.faults;
    all.late_writes += s.late_writes;
}

static void run_seed(uint64_t seed)
{
    world *w = calloc(1, sizeof *w);

    if (!w)
        exit(1);
    its       = &kinds[settings.planted ? 0 : seed % (sizeof kinds / sizeof *kinds)];
    w->seed   = seed;
    w->random = (seed + 1) * 0x9E3779B97F4A7C15u;
    w->counts = &all;
    begin(w);
    while (w->operation < settings.operations)
        operate(w);
    end(w);
    all.operations += w->operation;
    add_net(w);
    world_close(w);
    free(w);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void print_counts(void)
{
    budget_print(&settings.seeds);
    printf(", %llu operations: %llu stores, %llu fetches, %llu MiB compared, %llu messages; %llu "
           "of %llu sendings hurt, %llu deaths, %llu hangs, %llu cuts, %llu left, "
           "%llu came; %llu transfers failed, %llu blocks lost with their lenders, %llu pages "
           "damaged on the way; nothing else lost\n",
           (unsigned long long)all.operations, (unsigned long long)all.stores,
           (unsigned long long)all.fetches, (unsigned long long)(all.bytes >> 20),
           (unsigned long long)all.messages, (unsigned long long)all.net_faults,
           (unsigned long long)all.net_messages, (unsigned long long)all.deaths,
           (unsigned long long)all.hangs, (unsigned long long)all.cuts,
           (unsigned long long)all.leaves, (unsigned long long)all.joins,
           (unsigned long long)all.failures, (unsigned long long)all.lost,
           (unsigned long long)all.damaged);
    printf(
        "far: %llu timeouts, %llu late, %llu stale, %llu refused, %llu bytes in quarantine at "
        "the end, %llu writes after the end of a node, the longest transfer %llu us, %llu steps; "
        "%llu blocks reserved, %llu without room; through shared memory %llu MiB, %llu deaths "
        "meanwhile\n",
        (unsigned long long)all.timeouts, (unsigned long long)all.late,
        (unsigned long long)all.stale, (unsigned long long)all.refused,
        (unsigned long long)all.quarantined, (unsigned long long)all.late_writes,
        (unsigned long long)all.longest_ns / 1000, (unsigned long long)all.steps,
        (unsigned long long)all.reserved, (unsigned long long)all.full,
        (unsigned long long)all.near_bytes >> 20, (unsigned long long)all.near_deaths);
}

int main(int argc, char **argv)
{
    uint64_t seed;

    world_parse(argc, argv);
    while (budget_next(&settings.seeds, &seed))
        run_seed(seed);
    print_counts();
    return 0;
}
