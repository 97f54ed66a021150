/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Copies of blocks in several fault domains against a model of their content: random operations,
 * several under way at a time, while places of one domain at a time are lost, fail, are slow, leave
 * or give other bytes.  Nothing that was acknowledged may be lost, and no operation fails.
 *
 *     test_replicas_model [--seed N] [--seeds COUNT] [--seconds S] [CASE...]
 *
 * The seeds and the seconds are those of each case. */
#include "budget.h"
#include "replica_fixture.h"

static budget options = {.first = 1, .most = PLAIN_SANITIZED ? 4 : 20};

/* The bytes of a block never change hands while they are mended: it is written all the time. */
static void write_while_mended(uint64_t seed)
{
    enum { N = 30, ROUNDS = 60 };
    block    b[N];
    uint64_t random = seed * 0x9E3779B97F4A7C15u | 1;

    fake_reset();
    add_racks(FAKE_M, 3);
    fake_plan_of(FAKE_M)->thread  = true;
    fake_plan_of(FAKE_M)->shuffle = true;
    start_copies("fake_m", "2");
    init_all(b, N);
    write_all(b, N, 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned p = round % 3;

        fake_place_set(FAKE_M, p, USM_PLACE_LEAVING);
        for (unsigned i = 0; i < N; i++) {
            uint32_t first = (uint32_t)(fake_random(&random) % SECTORS);
            uint32_t n     = 1 + (uint32_t)(fake_random(&random) % (SECTORS - first));

            if (fake_random(&random) % 4 == 0) {
                usm__tiers_forget(tiers, b[i].copy);
                first = 0;
                n     = SECTORS;
            }
            for (uint32_t s = first; s < first + n; s++)
                fill(&b[i], s, round + 2);
            begin(&b[i], true, first, n);
        }
        for (unsigned i = 0; i < N; i++)
            CHECK_INT(end(&b[i]), USM_OK);
        read_all(b, N);
        fake_place_set(FAKE_M, p, USM_PLACE_UP);
    }
    settle();
    CHECK_INT(stats_of(0).corrupt, 0); /* sums would hide a copy that was made of old bytes */
    read_every_copy(FAKE_M, b, N, 3);
    fini_all(b, N);
    stop();
}

static void a_block_that_is_written_while_it_is_mended_stays_right(void)
{
    budget   seeds = options;
    uint64_t seed;

    while (budget_next(&seeds, &seed))
        write_while_mended(seed);
    printf("# ");
    budget_print(&seeds);
    printf(": nothing lost\n");
}

/* ---- everything together, against a model
 * ---------------------------------------------------------
 */

#define MODEL_BLOCKS 32

typedef struct model {
    block    b[MODEL_BLOCKS];
    block    second[MODEL_BLOCKS]; /* another transfer of the same block                       */
    uint32_t stored[MODEL_BLOCKS][SECTORS]; /* version + 1; 0: nothing, or not known              */
    uint32_t version;
    uint64_t random, ops, losses;
    fake_name name;
    uint32_t  alive[FAKE_PLACES]; /* places, by domain: the newest of each                        */
    unsigned  domains;
    unsigned  sick; /* the one domain that may fail now; domains: none                          */
    bool      is_whole_only, is_rotten;
} model;

static uint64_t below(model *m, uint64_t n)
{
    return fake_random(&m->random) % n;
}

static void note_write(model *m, unsigned i, const block *b, uint32_t first, uint32_t count,
                       usm_status st)
{
    for (uint32_t s = first; s < first + count; s++)
        m->stored[i][s] = st == USM_OK ? b->version[s] + 1 : 0;
}

static void begin_write(model *m, block *b, uint32_t first, uint32_t count)
{
    m->version++;
    for (uint32_t s = first; s < first + count; s++)
        fill(b, s, m->version);
    begin(b, true, first, count);
}

/* Two parts of one block under way together. */
static void model_pair(model *m, unsigned i)
{
    block   *b = &m->b[i], *c = &m->second[i];
    uint32_t cut = 1 + (uint32_t)below(m, SECTORS - 1);

    begin_write(m, b, 0, cut);
    begin_write(m, c, cut, SECTORS - cut);
    CHECK_INT(end(b), USM_OK);
    CHECK_INT(end(c), USM_OK);
    note_write(m, i, b, 0, cut, USM_OK);
    note_write(m, i, c, cut, SECTORS - cut, USM_OK);
}

typedef struct running {
    unsigned block;
    uint32_t first, count;
    bool     is_write;
} running;

static bool was_stored(const model *m, unsigned i, uint32_t first, uint32_t count)
{
    for (uint32_t s = first; s < first + count; s++)
        if (m->stored[i][s] == 0)
            return false;
    return true;
}

static bool model_begin(model *m, running *op)
{
    block   *b    = &m->b[op->block];
    uint64_t what = below(m, 16);

    op->first = m->is_whole_only ? 0 : (uint32_t)below(m, SECTORS);
    op->count = m->is_whole_only ? SECTORS : 1 + (uint32_t)below(m, SECTORS - op->first);
    if (what == 0) {
        usm__tiers_forget(tiers, b->copy);
        memset(m->stored[op->block], 0, sizeof m->stored[0]);
        return false;
    }
    if (what == 1 && !m->is_whole_only) {
        model_pair(m, op->block);
        return false;
    }
    op->is_write = what < 9;
    if (what < 5) {
        op->first = 0;
        op->count = SECTORS;
    }
    if (op->is_write) {
        begin_write(m, b, op->first, op->count);
        return true;
    }
    if (!was_stored(m, op->block, op->first, op->count))
        return false;
    for (uint32_t s = op->first; s < op->first + op->count; s++)
        b->version[s] = m->stored[op->block][s] - 1;
    memset(b->data + (size_t)op->first * SECTOR, 0x55, (size_t)op->count * SECTOR);
    begin(b, false, op->first, op->count);
    return true;
}

static void model_end(model *m, const running *op)
{
    block     *b  = &m->b[op->block];
    usm_status st = end(b);

    m->ops++;
    if (st != USM_OK)
        printf("# block %llu: %s\n", (unsigned long long)b->key, b->reason);
    CHECK_INT(st, USM_OK); /* one domain at a time fails, so nothing does */
    if (op->is_write)
        note_write(m, op->block, b, op->first, op->count, st);
    for (uint32_t s = op->first; !op->is_write && s < op->first + op->count; s++)
        CHECK(holds(b, s));
}

static void replace_sick(model *m)
{
    fake_place_set(m->name, m->alive[m->sick], USM_PLACE_LOST);
    m->losses++;
    m->alive[m->sick] = fake_place_add(m->name, racks[m->sick], 1000);
}

/* Something happens to the one domain that may fail, or it is well again and another's turn. */
static void model_event(model *m)
{
    uint32_t *place = &m->alive[m->sick];

    switch (below(m, 8)) {
    case 0:
    case 1: /* gone for good; another lender comes in its stead */
        replace_sick(m);
        break;
    case 2:
        fake_place_set(m->name, *place, USM_PLACE_SLOW);
        break;
    case 3:
        fake_place_fail(m->name, *place, (unsigned)below(m, 600), (unsigned)below(m, 600));
        break;
    case 4:
        fake_place_set(m->name, *place, USM_PLACE_LEAVING);
        break;
    case 5: /* bytes go wrong there */
        m->is_rotten |= fake_place_rot(m->name, *place, 1 + below(m, 4), &m->random) > 0;
        break;
    default:
        if (m->is_rotten) /* what was not read is not known to be wrong: it must not be relied on */
            replace_sick(m);
        m->is_rotten = false;
        fake_place_fail(m->name, *place, 0, 0); /* well again */
        fake_place_set(m->name, *place, USM_PLACE_UP);
        settle();
        m->sick = (unsigned)below(m, m->domains);
        break;
    }
}

static bool has_places_left(const model *m)
{
    for (unsigned d = 0; d < m->domains; d++)
        if (m->alive[d] + 2 >= FAKE_PLACES)
            return false;
    return true;
}

static void model_check_all(model *m)
{
    for (unsigned i = 0; i < MODEL_BLOCKS; i++) {
        running op = {i, 0, SECTORS, false};
        block  *b  = &m->b[i];

        if (!was_stored(m, i, 0, SECTORS))
            continue;
        for (uint32_t s = 0; s < SECTORS; s++)
            b->version[s] = m->stored[i][s] - 1;
        memset(b->data, 0x55, BLOCK);
        begin(b, false, 0, SECTORS);
        model_end(m, &op);
        CHECK(count_copies(b) >= tiers->replicas->wanted);
    }
}

static void model_steps(model *m, unsigned steps)
{
    running ops[6];

    for (unsigned step = 0; step < steps; step++) {
        unsigned n = 0, first = (unsigned)below(m, MODEL_BLOCKS);

        for (unsigned i = 0; i < 6; i++) {
            ops[n].block = (first + i) % MODEL_BLOCKS;
            n += model_begin(m, &ops[n]);
        }
        if (below(m, 6) == 0 && has_places_left(m) && n > 0)
            model_event(m);
        for (unsigned i = 0; i < n; i++)
            model_end(m, &ops[i]);
    }
}

static void run_model(model *m, uint64_t seed, const char *spec, const char *replicas)
{
    m->random  = seed;
    m->domains = 4;
    fake_reset();
    fake_plan_of(m->name)->seed    = seed;
    fake_plan_of(m->name)->shuffle = true;
    fake_plan_of(m->name)->thread  = seed % 2;
    add_racks(m->name, m->domains);
    for (unsigned d = 0; d < m->domains; d++)
        m->alive[d] = d;
    start_copies(spec, replicas);
    for (unsigned i = 0; i < MODEL_BLOCKS; i++) {
        block_init(&m->b[i], seed * 100 + i);
        m->second[i] = m->b[i];
    }
    model_steps(m, 120);
    if (m->is_rotten)
        replace_sick(m);
    for (unsigned d = 0; d < m->domains; d++) {
        fake_place_fail(m->name, m->alive[d], 0, 0);
        fake_place_set(m->name, m->alive[d], USM_PLACE_UP);
    }
    settle();
    model_check_all(m);
    CHECK_INT(copies().lost, 0);
    for (unsigned i = 0; i < MODEL_BLOCKS; i++)
        block_fini(&m->b[i]);
    stop();
}

static void run_models(fake_name name, const char *spec, const char *replicas, const char *codec)
{
    static model m;
    budget       seeds = options;
    uint64_t     ops = 0, losses = 0, seed;

    CHECK_INT(usm__settings_set("spill_codec", codec), USM_OK);
    while (budget_next(&seeds, &seed)) {
        memset(&m, 0, sizeof m);
        m.name          = name;
        m.is_whole_only = codec != NULL;
        run_model(&m, seed, spec, replicas);
        ops += m.ops;
        losses += m.losses;
    }
    CHECK_INT(usm__settings_set("spill_codec", NULL), USM_OK);
    CHECK(ops > 100 * seeds.ran && (losses > 3 || seeds.ran < 4));
    printf("# ");
    budget_print(&seeds);
    printf(", %llu operations: %llu places lost, nothing else\n", (unsigned long long)ops,
           (unsigned long long)losses);
}

static void nothing_is_lost_while_one_domain_at_a_time_fails(void)
{
    run_models(FAKE_M, "fake_m", "2", NULL);
}

static void nothing_is_lost_with_three_copies_and_a_tier_behind(void)
{
    run_models(FAKE_M, "fake_m;fake_a", "3", NULL);
}

static void nothing_is_lost_where_transfers_move_only_when_asked_to(void)
{
    run_models(FAKE_N, "fake_n", "2", NULL);
}

#ifdef USM_TEST_LZ4
static void nothing_is_lost_of_encoded_blocks(void)
{
    run_models(FAKE_M, "fake_m", "2", "lz4");
}
#endif

static const plain_case cases[] = {
    CASE(a_block_that_is_written_while_it_is_mended_stays_right),
    CASE(nothing_is_lost_while_one_domain_at_a_time_fails),
    CASE(nothing_is_lost_with_three_copies_and_a_tier_behind),
    CASE(nothing_is_lost_where_transfers_move_only_when_asked_to),
#ifdef USM_TEST_LZ4
    CASE(nothing_is_lost_of_encoded_blocks),
#endif
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    int n = 1; /* what remains for plain_main() */

    for (int i = 1; i < argc; i++)
        if (!budget_option(&options, argc, argv, &i))
            argv[n++] = argv[i];
    return plain_main(n, argv, cases);
}
