/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Templates over the ranks of a job: the data are rank 0's, and what comes is what one process
 * computes. */
#include "cluster/job_fixture.h"

#include "templates_cases.h"

#include <usm/usm.h>

enum { W = 30, H = 200, N = W * H };

/* What rank 0 has, and the others have not. */
typedef struct data {
    uint32_t *in, *out, *want;
    uint64_t *wide, *wide_out;
} data;

static usm_team *make_team(void)
{
    usm_team_desc d = USM_TEAM_DESC_INIT;
    usm_team     *team;

    d.ranks = true;
    must(usm_team_create(&d, &team));
    return team;
}

static data make_data(uint32_t rank)
{
    data d = {NULL, NULL, NULL, NULL, NULL};

    if (rank != 0)
        return d;
    d.in       = make_numbers(N);
    d.out      = array(N, sizeof *d.out);
    d.want     = array(N, sizeof *d.want);
    d.wide     = array(N, sizeof *d.wide);
    d.wide_out = array(N, sizeof *d.wide_out);
    for (uint64_t i = 0; i < N; i++)
        d.wide[i] = (i * 40503u | 1u) << 32 | i;
    return d;
}

static void free_data(data *d)
{
    free(d->in);
    free(d->out);
    free(d->want);
    free(d->wide);
    free(d->wide_out);
}

static void run(usm_team *team, const usm_template_desc *desc, uint64_t count, const void *in,
                void *out, const void *param)
{
    usm_template_run_desc d = USM_TEMPLATE_RUN_DESC_INIT;
    usm_template         *t;

    must(usm_template_create(team, desc, &t));
    d.count = count, d.in = in, d.out = out, d.param = param;
    d.width = desc->kind == USM_TEMPLATE_STENCIL ? W : 0;
    d.steps = desc->kind == USM_TEMPLATE_STENCIL ? 2 : 0;
    must(usm_template_run(t, &d, NULL));
    usm_template_destroy(t);
}

static void rank_maps(uint32_t rank, uint32_t count)
{
    usm_team *team = make_team();
    data      d    = make_data(rank);
    uint32_t  p    = 11;

    (void)count;
    run(team, &mix, N, d.in, d.out, &p);
    for (uint32_t i = 0; i < N && rank == 0; i++)
        CHECK_INT(d.out[i], d.in[i] * d.in[i] + p + i);
    run(team, &collatz, 300, d.in, d.out, NULL);
    for (uint32_t i = 0; i < 300 && rank == 0; i++)
        CHECK_INT(d.out[i], collatz_plain(d.in[i]));
    run(team, &smear, H, d.in, d.out, &p);
    if (rank == 0) {
        smear_plain(d.in, (uint32_t *)d.wide_out, W, H, p);
        smear_plain((uint32_t *)d.wide_out, d.want, W, H, p);
        CHECK_SAME(d.out, d.want, N * sizeof *d.out);
    }
    free_data(&d);
    usm_team_destroy(team);
}

static void rank_joins(uint32_t rank, uint32_t count)
{
    usm_team *team = make_team();
    data      d    = make_data(rank);
    uint64_t  sum = 0, want = 0, left = 0;
    uint32_t  key   = 0x12345678u;
    int64_t   found = -2;

    (void)count;
    if (rank == 0)
        d.in[N - 5] = d.in[N / 2] = key;
    run(team, &squares, N, d.in, rank == 0 ? &sum : NULL, NULL);
    run(team, &prefix, N, d.wide, d.wide_out, NULL);
    run(team, &equal, N, d.in, rank == 0 ? &found : NULL, &key);
    for (uint64_t i = 0; i < N && rank == 0; i++) {
        want += (uint64_t)d.in[i] * d.in[i] + i;
        left = i ? follow(left, d.wide[i]) : d.wide[0];
        CHECK(d.wide_out[i] == left);
    }
    CHECK(sum == want);
    CHECK(rank != 0 || found == N / 2);
    free_data(&d);
    usm_team_destroy(team);
}

static void rank_iterates(uint32_t rank, uint32_t count)
{
    usm_team             *team = make_team();
    usm_template_run_desc d    = USM_TEMPLATE_RUN_DESC_INIT;
    usm_template         *t;
    uint32_t              in[9] = {0}, out[9];

    (void)rank;
    (void)count;
    must(usm_template_create(team, &flood, &t));
    d.count = 9, d.in = in, d.out = out;
    CHECK_INT(usm_template_run(t, &d, NULL), USM_E_NOT_SUPPORTED);
    CHECK(strstr(usm_last_error(), "only the home rank knows") != NULL);
    usm_template_destroy(t);
    usm_team_destroy(team);
}

static void maps_and_stencils_give_what_one_process_gives(void)
{
    job_run(2, rank_maps);
}

static void reductions_scans_and_searches_give_what_one_process_gives(void)
{
    job_run(2, rank_joins);
}

static void an_iteration_is_refused(void)
{
    job_run(2, rank_iterates);
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(maps_and_stencils_give_what_one_process_gives),
        CASE(reductions_scans_and_searches_give_what_one_process_gives),
        CASE(an_iteration_is_refused),
        {NULL, NULL},
    };

    return plain_main(argc, argv, cases);
}
