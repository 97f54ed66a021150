/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Templates over the ranks of a job (templates_ranks.h): one rank has the data, the others have none,
 * and what comes is what one process computes. */
#include "templates_ranks.h"

#include "templates_cases.h"

#include "templates_kernels.h" /* made by usm_add_kernels() */

enum { W = 30, H = 200, N = W * H, FEW = 300, MAZE = 6, CELLS = MAZE * W, BATCH = 2000 };

/* The rank that has the data has both. */
typedef struct data {
    bool      is_home;
    uint32_t *in, *out;
} data;

static usm_team *make_team(void)
{
    usm_team_desc d = USM_TEAM_DESC_INIT;
    usm_team     *team;

    d.ranks = true;
    must(usm_team_create(&d, &team));
    return team;
}

static data make_data(bool is_home)
{
    data d = {is_home, NULL, NULL};

    if (is_home) {
        d.in  = make_numbers(N);
        d.out = array(N, sizeof *d.out);
    }
    return d;
}

static void free_data(data *d)
{
    free(d->in);
    free(d->out);
}

/* Level Zero's devices compile no text. */
static usm_template *create(usm_team *team, const usm_template_desc *desc)
{
    const usm_image   images[] = {{USM_IMAGE_BUNDLE, templates_kernels, templates_kernels_size}};
    const char       *runtime  = getenv("USM_TEST_RUNTIME");
    usm_template_desc d        = *desc;
    usm_template     *t;

    if (runtime && strcmp(runtime, "ze-soft") == 0)
        d.nimages = 1, d.images = images;
    must(usm_template_create(team, &d, &t));
    return t;
}

static usm_template_run_desc over(uint64_t count, const void *in, void *out, const void *param)
{
    usm_template_run_desc d = USM_TEMPLATE_RUN_DESC_INIT;

    d.count = count, d.in = in, d.out = out, d.param = param;
    return d;
}

static usm_template_result run(usm_team *team, const usm_template_desc *desc,
                               usm_template_run_desc d)
{
    usm_template       *t      = create(team, desc);
    usm_template_result result = USM_TEMPLATE_RESULT_INIT;

    must(usm_template_run(t, &d, &result));
    usm_template_destroy(t);
    return result;
}

/* ---- maps, stencils ---------------------------------------------------------------------------- */

static void check_smear(const data *d, uint32_t p)
{
    uint32_t *once = array(N, sizeof *once), *twice = array(N, sizeof *twice);

    smear_plain(d->in, once, W, H, p);
    smear_plain(once, twice, W, H, p);
    CHECK_SAME(d->out, twice, N * sizeof *twice);
    free(once);
    free(twice);
}

void rank_maps(uint32_t rank, uint32_t count)
{
    usm_team             *team = make_team();
    data                  d    = make_data(rank == 0);
    uint32_t              p    = 11;
    usm_template_run_desc rows = over(H, d.in, d.out, &p);

    (void)count;
    (void)run(team, &mix, over(N, d.in, d.out, &p));
    for (uint32_t i = 0; i < N && d.is_home; i++)
        CHECK_INT(d.out[i], d.in[i] * d.in[i] + p + i);
    (void)run(team, &collatz, over(FEW, d.in, d.out, NULL));
    for (uint32_t i = 0; i < FEW && d.is_home; i++)
        CHECK_INT(d.out[i], collatz_plain(d.in[i]));
    rows.width = W, rows.steps = 2;
    (void)run(team, &smear, rows);
    if (d.is_home)
        check_smear(&d, p);
    free_data(&d);
    usm_team_destroy(team);
}

/* ---- joins, searches --------------------------------------------------------------------------- */

static void check_prefix(const uint64_t *in, const uint64_t *out)
{
    uint64_t left = in[0];

    for (uint64_t i = 0; i < N; i++) {
        left = i ? follow(left, in[i]) : in[0];
        CHECK(out[i] == left);
    }
}

void rank_joins(uint32_t rank, uint32_t count)
{
    usm_team *team = make_team();
    data      d    = make_data(rank == 0);
    uint64_t *wide = array(N, sizeof *wide), *wide_out = array(N, sizeof *wide_out);
    uint64_t  sum = 0, want = 0;

    (void)count;
    for (uint64_t i = 0; i < N; i++)
        wide[i] = (i * 40503u | 1u) << 32 | i;
    (void)run(team, &squares, over(N, d.in, d.is_home ? &sum : NULL, NULL));
    (void)run(team, &prefix, over(N, d.is_home ? wide : NULL, d.is_home ? wide_out : NULL, NULL));
    for (uint64_t i = 0; i < N && d.is_home; i++)
        want += (uint64_t)d.in[i] * d.in[i] + i;
    CHECK(sum == want);
    if (d.is_home)
        check_prefix(wide, wide_out);
    free(wide);
    free(wide_out);
    free_data(&d);
    usm_team_destroy(team);
}

void rank_searches(uint32_t rank, uint32_t count)
{
    usm_team             *team    = make_team();
    data                  d       = make_data(rank == 0);
    uint32_t              key     = 0x12345678u;
    uint64_t              root_of = 1000000;
    int64_t               found   = -2;
    usm_template_run_desc there;

    (void)count;
    if (d.is_home)
        d.in[N - 5] = d.in[N / 2] = key;
    (void)run(team, &equal, over(N, d.in, &found, &key)); /* others may name an output as well */
    CHECK_INT(found, d.is_home ? N / 2 : -2);
    there      = over((uint64_t)1 << 30, NULL, rank == 1 ? &found : NULL, &root_of);
    there.home = 1;
    (void)run(team, &root, there);
    CHECK_INT(found, rank == 1 ? 1001 : d.is_home ? N / 2 : -2);
    free_data(&d);
    usm_team_destroy(team);
}

/* ---- iterations -------------------------------------------------------------------------------- */

/* A wall in its third row has its gap at the right, and the flood begins over it. */
static void make_maze(uint32_t *grid)
{
    for (uint32_t i = 0; i < CELLS; i++)
        grid[i] = i / W == 2 && i % W != W - 1 ? 0 : 1;
    grid[W - 9] = 9;
}

static void flood_at(usm_team *team, uint32_t home, bool is_home, uint64_t most)
{
    data                  d    = make_data(is_home);
    uint32_t             *want = array(CELLS, sizeof *want), *next = array(CELLS, sizeof *next);
    usm_template_run_desc rows;
    usm_template_result   result;
    uint64_t              steps;

    make_maze(want);
    if (is_home)
        memcpy(d.in, want, CELLS * sizeof *want);
    rows       = over(MAZE, d.in, d.out, NULL);
    rows.width = W, rows.home = home, rows.steps = most;
    result = run(team, &flood, rows);
    steps  = flood_plain(want, next, W, MAZE, most ? most : UINT64_MAX);
    CHECK_INT(result.steps, steps); /* on every rank */
    CHECK_INT(result.is_settled, most == 0);
    if (is_home)
        CHECK_SAME(d.out, want, CELLS * sizeof *want);
    free(want);
    free(next);
    free_data(&d);
}

void rank_iterates(uint32_t rank, uint32_t count)
{
    usm_team *team = make_team();

    flood_at(team, 0, rank == 0, 0);
    flood_at(team, count - 1, rank == count - 1, 4);
    flood_at(team, 0, rank == 0, 3);
    usm_team_destroy(team);
}

/* ---- pipelines ---------------------------------------------------------------------------------- */

/* What source and sink see; the batch at which one of them ends the run, or -1. */
typedef struct ends {
    uint64_t filled, taken;
    int64_t  source_ends, sink_ends;
    uint32_t p;
} ends;

static bool fill(void *elements, uint64_t first, uint64_t n, void *user)
{
    uint32_t *numbers = elements;
    ends     *e       = user;

    CHECK(first == e->filled);
    for (uint64_t i = 0; i < n; i++)
        numbers[i] = (uint32_t)(first + i) * 2654435761u;
    e->filled += n;
    return (int64_t)(first / BATCH) != e->source_ends;
}

static bool take(void *elements, uint64_t first, uint64_t n, void *user)
{
    const uint32_t *numbers = elements;
    ends           *e       = user;

    CHECK(first == e->taken);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t wide = (uint64_t)((uint32_t)(first + i) * 2654435761u) << 3 | 5u;

        CHECK_INT(numbers[i], (uint32_t)(wide ^ wide >> 32) + e->p);
    }
    e->taken += n;
    return (int64_t)(first / BATCH) != e->sink_ends;
}

/* A batch that is shorter than the others comes last. */
static usm_status pipe_at(usm_template **stages, uint32_t home, bool is_home, ends *e)
{
    const void       *params[] = {NULL, &e->p};
    usm_pipeline_desc d        = USM_PIPELINE_DESC_INIT;

    d.nstages = 2, d.stages = stages, d.params = params, d.home = home;
    d.count = N - 1, d.batch = BATCH, d.user = e;
    d.source = is_home ? fill : NULL;
    d.sink   = is_home ? take : NULL;
    return usm_pipeline_run(&d);
}

void rank_pipes(uint32_t rank, uint32_t count)
{
    usm_team     *team     = make_team();
    usm_template *stages[] = {create(team, &widen), create(team, &narrow)};

    for (uint32_t home = 0; home < count; home++) {
        ends e = {0, 0, -1, -1, 21};

        must(pipe_at(stages, home, rank == home, &e));
        CHECK_INT(e.filled, rank == home ? N - 1 : 0);
        CHECK_INT(e.taken, e.filled);
    }
    usm_template_destroy(stages[0]);
    usm_template_destroy(stages[1]);
    usm_team_destroy(team);
}

/* ---- failures ------------------------------------------------------------------------------------ */

void rank_refuses(uint32_t rank, uint32_t count)
{
    usm_team             *team = make_team();
    data                  d    = make_data(rank == 0);
    uint32_t              p    = 11;
    usm_template         *t = create(team, &mix), *stages[] = {create(team, &widen), t};
    usm_template_run_desc wrong = over(N, d.in, NULL, &p);
    ends                  e     = {0, 0, -1, -1, 21};

    (void)count;
    CHECK_INT(usm_template_run(t, &wrong, NULL), USM_E_INVALID);
    CHECK_IN("template 'mix' has no output",
             usm_last_error()); /* rank 0's mistake, which all know */
    CHECK_INT(pipe_at(stages, 0, rank == 0, &e), USM_E_INVALID);
    CHECK_IN("reads elements of 4 bytes, and the stage before it writes some of 8",
             usm_last_error());
    wrong = over(rank == 1 ? 0 : N, d.in, d.out, &p);
    CHECK_INT(usm_template_run(t, &wrong, NULL), USM_E_INVALID);
    CHECK_IN("count is 0", usm_last_error());
    must(usm_template_run(
        t,
        &(usm_template_run_desc){
            .struct_size = sizeof wrong, .count = N, .in = d.in, .out = d.out, .param = &p},
        NULL));
    for (uint32_t i = 0; i < N && d.is_home; i++)
        CHECK_INT(d.out[i], d.in[i] * d.in[i] + p + i);
    usm_template_destroy(stages[0]);
    usm_template_destroy(t);
    free_data(&d);
    usm_team_destroy(team);
}

void rank_ends_a_pipeline(uint32_t rank, uint32_t count)
{
    static const ends cases[]  = {{0, 0, 0, -1, 3}, {0, 0, 2, -1, 3}, {0, 0, -1, 0, 3}};
    usm_team         *team     = make_team();
    usm_template     *stages[] = {create(team, &widen), create(team, &narrow)};
    ends              last = {0, 0, -1, N / BATCH - 1, 3}, all = {0, 0, -1, -1, 4};

    (void)count;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ends e = cases[i];

        CHECK_INT(pipe_at(stages, 0, rank == 0, &e), USM_E_CANCELLED);
        CHECK_IN(e.sink_ends < 0 ? "the source of a pipeline ended it" : "the sink of a pipeline",
                 usm_last_error());
    }
    /* Every launch has ended by then. */
    CHECK_INT(pipe_at(stages, 0, rank == 0, &last), rank == 0 ? USM_E_CANCELLED : USM_OK);
    must(pipe_at(stages, 0, rank == 0, &all));
    CHECK_INT(all.taken, rank == 0 ? N - 1 : 0);
    usm_template_destroy(stages[0]);
    usm_template_destroy(stages[1]);
    usm_team_destroy(team);
}
