/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* far_tiers [--seed N] [--seeds COUNT] [--seconds S] [--operations N] [--flips N] [--verbose]
 *           [--planted=forget|both]
 *
 * Deterministic simulation of the spill engine's tiers with two copies of each block
 * (USM_SPILL_REPLICAS=2) in the memory of 4 to 8 lenders in 3 to 5 fault domains, over the
 * far-memory protocol and the network of far_model.  Blocks are written, whole and in parts, read
 * and forgotten, while one domain at a time hangs, dies or is cut off: no write may fail, no read
 * may fail or give other bytes than were written, and once there was time every block must have its
 * copies again.  Then two domains fail at once: exactly the blocks whose copies both lay there
 * cannot be read meanwhile; they are lost, and nothing else, if the domains stay away too long.
 *
 * --flips: so many bits are flipped on the way while all blocks are read.
 *
 * --planted: a copy is forgotten behind the engine's back (forget), or two domains fail while it is
 * told to be one (both): it must be found. */
#include "places.h"

#include "spill/tier.h"

#include <usm/init.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MS         = 1000000,
    SECTOR     = 4096,
    SECTORS    = 8,
    BLOCK      = SECTORS * SECTOR,
    NBLOCKS    = 24,
    LENDERS    = 8,
    DOMAINS    = 5,
    MEND_TURNS = 4000
};

typedef struct item {
    world         *w;
    usm__copy     *copy;
    usm__io        io;
    unsigned char *data;
    uint64_t       key;
    uint64_t       words[SECTORS]; /* what was written; 0: nothing, or it is not known           */
    usm_status     status;
    bool           is_done;
} item;

static struct {
    world      *w;
    usm__tiers *tiers;
    item        items[NBLOCKS];
    uint64_t    keys, words;
    unsigned    ndomains, failed; /* domain; 0: none                                     */
    uint64_t    until;            /* when it comes back                                   */
} t;

static counts all;
static struct {
    uint64_t writes, reads, fails, repaired, lost, survived, returned, flipped, refused, pauses;
} sum;

/* The engine's clock is the world's. */
uint64_t __wrap_usm__os_now_ns(void);
void     __wrap_usm__os_sleep_ns(uint64_t ns);

uint64_t __wrap_usm__os_now_ns(void)
{
    return t.w ? net_now(t.w->n) : 0;
}

void __wrap_usm__os_sleep_ns(uint64_t ns)
{
    if (t.w)
        places_run(ns);
}

/* ---- transfers ------------------------------------------------------------------------ */

static void io_done(usm__io *io, usm_status status)
{
    item *it = io->user;

    it->status  = status;
    it->is_done = true;
}

static usm_status move(item *it, bool is_write, unsigned first, unsigned n)
{
    uint64_t limit = net_now(t.w->n) + 60 * t.w->lease_ns + 40 * t.w->deadline_ns;

    it->io      = (usm__io){.key        = it->key,
                            .copy       = it->copy,
                            .data       = it->data + (size_t)first * SECTOR,
                            .registered = SIZE_MAX,
                            .first      = first,
                            .count      = n,
                            .done       = io_done,
                            .user       = it};
    it->is_done = false;
    if (is_write)
        usm__tiers_write(t.tiers, &it->io);
    else
        usm__tiers_read(t.tiers, &it->io);
    while (!it->is_done) {
        (void)usm__tiers_progress(t.tiers, 1);
        if (net_now(t.w->n) > limit)
            found(t.w, "a %s of block %llu does not end", is_write ? "write" : "read",
                  (unsigned long long)it->key);
    }
    return it->status;
}

static void write_item(item *it, unsigned first, unsigned n)
{
    usm_status st;

    for (unsigned s = first; s < first + n; s++) {
        uint64_t *at = (uint64_t *)(void *)(it->data + (size_t)s * SECTOR);

        it->words[s] = ++t.words;
        for (unsigned i = 0; i < SECTOR / 8; i++)
            at[i] = it->words[s] + ((uint64_t)i << 40);
    }
    st = move(it, true, first, n);
    notify(t.w, "write %u+%u of block %llu: %s", first, n, (unsigned long long)it->key,
           usm_status_name(st));
    if (st != USM_OK)
        found(t.w, "a write of block %llu failed with %s: %s", (unsigned long long)it->key,
              usm_status_name(st), usm_last_error());
    sum.writes++;
}

/* The sectors [first, first + n) are known. */
static bool read_item(item *it, unsigned first, unsigned n, bool may_fail)
{
    usm_status st;

    memset(it->data, 0x55, BLOCK);
    st = move(it, false, first, n);
    notify(t.w, "read %u+%u of block %llu: %s", first, n, (unsigned long long)it->key,
           usm_status_name(st));
    sum.reads++;
    if ((st == USM_E_IO || (st == USM_E_CORRUPT && settings.flips > 0)) && may_fail)
        return false;
    if (st != USM_OK)
        found(t.w, "block %llu cannot be read (%s: %s), although %u of its copies are there",
              (unsigned long long)it->key, usm_status_name(st), usm_last_error(),
              places_with(it->words[0], true));
    for (unsigned s = first; s < first + n; s++) {
        const uint64_t *at = (const uint64_t *)(void *)(it->data + (size_t)s * SECTOR);

        for (unsigned i = 0; i < SECTOR / 8; i++)
            if (at[i] != it->words[s] + ((uint64_t)i << 40))
                found(t.w, "sector %u of block %llu holds %llx at %u, not %llx", s,
                      (unsigned long long)it->key, (unsigned long long)at[i], i,
                      (unsigned long long)it->words[s]);
    }
    return true;
}

static void forget_item(item *it)
{
    usm__tiers_forget(t.tiers, it->copy);
    memset(it->words, 0, sizeof it->words);
    it->key = ++t.keys;
}

static void write_some(item *it)
{
    unsigned first = (unsigned)drawn(t.w, SECTORS), n = 1 + (unsigned)drawn(t.w, SECTORS - first);

    if (it->words[0] == 0 || one_in(t.w, 3))
        write_item(it, 0, SECTORS);
    else
        write_item(it, first, n);
}

/* ---- domains that fail ------------------------------------------------------------------ */

static unsigned living_domains(void)
{
    unsigned n = 0;

    for (unsigned d = 1; d <= t.ndomains; d++) {
        bool lives = false;

        for (uint32_t i = 1; i < t.w->nmembers; i++)
            lives |= t.w->members[i].domain == d && runs(&t.w->members[i]);
        n += lives;
    }
    return n;
}

static bool domain_lives(unsigned d)
{
    for (uint32_t i = 1; i < t.w->nmembers; i++)
        if (t.w->members[i].domain == d && runs(&t.w->members[i]))
            return true;
    return false;
}

/* All lenders of it, in the same way. */
static void fail_domain(unsigned d, uint64_t ns, unsigned how)
{
    if (how == 0 && living_domains() <= 3)
        how = 1;
    for (uint32_t i = 1; i < t.w->nmembers; i++) {
        if (t.w->members[i].domain != d || !runs(&t.w->members[i]))
            continue;
        if (how == 0) {
            notify(t.w, "node %u of domain %u dies", i, d);
            t.w->counts->deaths++;
            net_kill(t.w->n, i);
        } else if (how == 1) {
            world_hang(t.w, i, ns);
        } else {
            world_cut_both(t.w, i, 0, ns);
        }
    }
    sum.fails++;
}

static unsigned some_domain(unsigned but)
{
    unsigned d = 0;

    while (d == 0 || d == but || !domain_lives(d))
        d = 1 + (unsigned)drawn(t.w, t.ndomains);
    return d;
}

static void begin_failure(void)
{
    uint64_t ns = 1 + drawn(t.w, 3 * t.w->lease_ns);

    t.failed = some_domain(0);
    t.until  = net_now(t.w->n) + ns;
    fail_domain(t.failed, ns, (unsigned)drawn(t.w, 3));
    if (is_planted("both"))
        fail_domain(some_domain(t.failed), 4 * t.w->lease_ns, 1);
}

static bool is_repaired(void)
{
    usm__tiers_copies s;

    usm__tiers_get_copies(t.tiers, &s);
    return s.missing == 0;
}

/* Everybody who lives is there, and every block has its copies again. */
static void wait_until_mended(void)
{
    if (net_now(t.w->n) < t.until)
        places_run(t.until - net_now(t.w->n));
    places_run(4 * t.w->lease_ns);
    for (unsigned i = 0; !is_repaired(); i++) {
        (void)usm__tiers_progress(t.tiers, 1);
        places_run(2 * MS);
        if (i == MEND_TURNS)
            found(t.w, "blocks have not got their copies again, %u domains live", living_domains());
    }
    t.failed = 0;
}

/* The borrower stands still for longer than a lease, and shorter than orphans are kept: all lenders
 * miss it at once, and all of its blocks are there when it goes on. */
static void pause_borrower(void)
{
    uint64_t longest = t.w->orphan_ns - 2 * t.w->lease_ns;
    uint64_t ns      = t.w->lease_ns + drawn(t.w, longest);

    world_hang(t.w, 0, ns);
    places_run(ns + t.w->lease_ns / 2); /* it is told, and joins anew */
    sum.pauses++;
}

/* ---- operations ---------------------------------------------------------------------------- */

static void operate(void)
{
    item *it = &t.items[drawn(t.w, NBLOCKS)];

    t.w->operation++;
    if (t.failed == 0 && one_in(t.w, 12))
        begin_failure();
    else if (t.failed != 0 && net_now(t.w->n) > t.until && one_in(t.w, 6))
        wait_until_mended();
    else if (t.failed == 0 && t.w->hosts == 0 && t.w->orphan_ns > 2 * t.w->lease_ns &&
             one_in(t.w, 40))
        pause_borrower();
    switch (it->words[0] ? drawn(t.w, 12) : 0) {
    case 0:
    case 1:
    case 2:
    case 3:
        write_some(it);
        break;
    case 4:
        forget_item(it);
        break;
    default:
        (void)read_item(it, 0, SECTORS, false);
    }
    if (is_planted("forget") && t.w->operation == 60)
        places_forget_behind();
    places_run(drawn(t.w, one_in(t.w, 4) ? t.w->lease_ns / 2 : 100000));
}

static void read_all(void)
{
    for (unsigned i = 0; i < NBLOCKS; i++)
        if (t.items[i].words[0])
            (void)read_item(&t.items[i], 0, SECTORS, false);
}

/* What could not be read while both its copies were away: it is lost with them, and written anew as
 * any, or they have returned, and it is there. */
static void find_again(item *it)
{
    unsigned copies = places_with(it->words[0], true);
    bool     reads  = read_item(it, 0, SECTORS, copies == 0 || t.w->hosts > 0);

    if (reads && copies == 0 && t.w->hosts == 0) /* what is mapped outlives who stands still */
        found(t.w, "block %llu can be read, and nobody has it", (unsigned long long)it->key);
    sum.lost += !reads;
    sum.returned += reads;
    if (reads)
        return;
    write_item(it, 0, SECTORS);
    (void)read_item(it, 0, SECTORS, false);
}

/* What lies in two domains that fail at once cannot be read, and all else can; it is lost, and
 * nothing else, if they are away for longer than orphans are kept. */
static void lose_two(void)
{
    unsigned first = some_domain(0), second = some_domain(first);
    bool     is_away[NBLOCKS] = {false};

    wait_until_mended();
    for (unsigned i = 0; i < NBLOCKS; i++)
        write_item(&t.items[i], 0, SECTORS);
    wait_until_mended();
    fail_domain(first, 3 * t.w->lease_ns, 1);
    fail_domain(second, 3 * t.w->lease_ns, 1);
    places_run(2 * t.w->lease_ns);
    for (unsigned i = 0; i < NBLOCKS; i++) {
        item    *it     = &t.items[i];
        unsigned copies = places_with(it->words[0], false);

        is_away[i] = !read_item(it, 0, SECTORS, copies == 0 || t.w->hosts > 0);
        if (!is_away[i] && copies == 0 && t.w->hosts == 0 && places_with(it->words[0], true) == 0)
            found(t.w, "block %llu can be read, and nobody has it", (unsigned long long)it->key);
        sum.survived += !is_away[i];
    }
    t.until = net_now(t.w->n) + 3 * t.w->lease_ns;
    wait_until_mended();
    for (unsigned i = 0; i < NBLOCKS; i++)
        if (is_away[i] || t.w->hosts > 0)
            find_again(&t.items[i]);
    wait_until_mended();
    read_all();
}

/* ---- a seed ---------------------------------------------------------------------------------- */

static void draw_world(world *w)
{
    uint32_t lenders;

    t.ndomains     = 3 + (unsigned)drawn(w, DOMAINS - 2);
    lenders        = t.ndomains + (uint32_t)drawn(w, LENDERS - t.ndomains + 1);
    w->nmembers    = 1 + lenders;
    w->lease_ns    = (20 + drawn(w, 40)) * MS;
    w->deadline_ns = w->lease_ns / (2 + drawn(w, 3));
    w->orphan_ns   = w->lease_ns * (1 + drawn(w, 6));
    /* Each on its own, all on one, on two: but what is copied there is on no wire. */
    w->hosts      = settings.flips > 0 ? 0 : (unsigned)(w->seed % 3);
    w->block_size = BLOCK;
    w->piece      = (size_t)SECTOR << drawn(w, 5);
    w->depth      = 1 + (uint32_t)drawn(w, 4);
    w->changed    = places_changed;
    for (uint32_t i = 0; i < w->nmembers; i++) {
        w->members[i].domain  = i == 0 ? 100 : 1 + (i - 1) % t.ndomains;
        w->members[i].borrows = i == 0;
        w->members[i].lend    = i == 0 ? 0 : (uint64_t)BLOCK * NBLOCKS * 2;
    }
    if (one_in(w, 2)) /* nothing that makes a second domain be lost */
        w->faults.header = (net_rates){.doubled = 20};
}

static void begin(world *w)
{
    usm__tiers_params params = {.block_size = BLOCK, .sector_size = SECTOR, .spec = "sim:"};

    draw_world(w);
    world_open(w, one_in(w, 3));
    for (uint32_t i = 0; i < w->nmembers; i++)
        world_start(w, &w->members[i]);
    t.w = w;
    places_use(w, &w->members[0]);
    places_run(w->lease_ns);
    if (usm__tiers_create(&params, &t.tiers) != USM_OK)
        found(w, "no tiers: %s", usm_last_error());
    for (unsigned i = 0; i < NBLOCKS; i++) {
        t.items[i]      = (item){.w = w, .key = ++t.keys};
        t.items[i].copy = calloc(1, usm__tiers_copy_size(t.tiers));
        t.items[i].data = aligned_alloc(SECTOR, BLOCK);
        if (!t.items[i].copy || !t.items[i].data)
            abort();
    }
}

static uint64_t flipped(void)
{
    net_stats s;

    net_get_stats(t.w->n, &s);
    return s.flipped;
}

/* Bits of bytes on their way turn while blocks are read and copies are made anew.  One that gets
 * through would be seen by read_item(); a block whose copies are hit one after the other is told to
 * be corrupt, and is right once they are not. */
static void flip_bits(uint64_t n)
{
    static const net_faults flips = {{0}, {.flipped = 20}}, none = {{0}, {0}};
    uint64_t                before = flipped();

    for (unsigned i = 0; i < NBLOCKS; i++)
        write_item(&t.items[i], 0, SECTORS);
    while (flipped() - before < n) {
        wait_until_mended();
        net_set_faults(t.w->n, &flips);
        for (unsigned i = 0; i < 8 * NBLOCKS; i++)
            sum.refused += !read_item(&t.items[i % NBLOCKS], 0, SECTORS, true);
        net_set_faults(t.w->n, &none);
        read_all();
    }
    sum.flipped += flipped() - before;
}

static void end(world *w)
{
    usm__tiers_copies s;

    wait_until_mended();
    read_all();
    if (!is_planted("forget"))
        lose_two();
    usm__tiers_get_copies(t.tiers, &s);
    sum.repaired += s.repaired;
    for (unsigned i = 0; i < NBLOCKS; i++) {
        usm__tiers_forget(t.tiers, t.items[i].copy);
        free(t.items[i].copy);
        free(t.items[i].data);
    }
    usm__tiers_destroy(t.tiers);
    world_mend(w);
    world_run(w, 4 * w->lease_ns + 4 * w->deadline_ns);
    world_check(w);
    world_check_leaks(w);
    t.w = NULL;
    world_close(w);
}

static void run_seed(uint64_t seed)
{
    world *w = calloc(1, sizeof *w);

    if (!w)
        exit(1);
    w->seed   = seed;
    w->random = (seed + 1) * 0x9E3779B97F4A7C15u;
    w->counts = &all;
    t.failed  = 0;
    t.keys = t.words = 0;
    t.until          = 0;
    begin(w);
    while (w->operation < settings.operations)
        operate();
    if (settings.flips > 0)
        flip_bits(settings.flips);
    end(w);
    all.operations += w->operation;
    free(w);
}

int main(int argc, char **argv)
{
    uint64_t seed;

    settings.operations = 150;
    world_parse(argc, argv);
    places_register();
    if (usm_config_set("spill_replicas", "2") != USM_OK)
        exit(1);
    while (budget_next(&settings.seeds, &seed))
        run_seed(seed);
    budget_print(&settings.seeds);
    printf(", %llu operations: %llu writes, %llu reads; %llu domains failed, %llu nodes "
           "died; %llu copies made anew; of two domains at once: %llu blocks lost, as they had to "
           "be, %llu kept, %llu away and back; the borrower stood still %llu times; nothing else "
           "lost\n",
           (unsigned long long)all.operations, (unsigned long long)sum.writes,
           (unsigned long long)sum.reads, (unsigned long long)sum.fails,
           (unsigned long long)all.deaths, (unsigned long long)sum.repaired,
           (unsigned long long)sum.lost, (unsigned long long)sum.survived,
           (unsigned long long)sum.returned, (unsigned long long)sum.pauses);
    if (settings.flips > 0)
        printf(
            "%llu bits flipped on the way, all of them found: %llu times a block could not be read "
            "before they stopped, nothing lost\n",
            (unsigned long long)sum.flipped, (unsigned long long)sum.refused);
    return 0;
}
