/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Templates against plain C: by the text of their bodies where devices compile text, else by images
 * of usm_add_kernels(); on the host by native code. */
#include "templates_cases.h"

#include "templates_kernels.h" /* made by usm_add_kernels() */

/* Drivers compile a kernel for each size of a chunk, so only the host has them all. */
static const size_t sizes[] = {257, 70001, 1, 255, 256, 1000};
#define SIZES (is_host() ? sizeof sizes / sizeof *sizes : 2)

static usm_team *team;

static bool is_runtime(const char *name)
{
    const char *runtime = getenv("USM_TEST_RUNTIME");

    return runtime && strcmp(runtime, name) == 0;
}

static bool is_host(void)
{
    return is_runtime("host");
}

static bool compiles_text(void)
{
    return !is_runtime("ze-soft");
}

static usm_template *create(const usm_template_desc *desc, bool by_images)
{
    const usm_image   images[] = {{USM_IMAGE_BUNDLE, templates_kernels, templates_kernels_size}};
    usm_template_desc d        = *desc;
    usm_template     *t;

    if (!team)
        must(usm_team_create(NULL, &team));
    if (by_images)
        d.nimages = 1, d.images = images;
    must(usm_template_create(team, &d, &t));
    return t;
}

static void with(const usm_template_desc *desc, void (*check)(usm_template *t))
{
    usm_template *t = create(desc, !compiles_text());

    check(t);
    usm_template_destroy(t);
}

static usm_template_run_desc run_desc(uint64_t count, const void *in, void *out)
{
    usm_template_run_desc d = USM_TEMPLATE_RUN_DESC_INIT;

    d.count = count, d.in = in, d.out = out;
    return d;
}

/* ---- maps ------------------------------------------------------------------------------------- */

static void check_mix(usm_template *t)
{
    for (size_t k = 0; k < SIZES; k++) {
        size_t                n  = sizes[k];
        uint32_t             *in = make_numbers(n), *out = array(n, sizeof *out), p = 77;
        usm_template_run_desc d = run_desc(n, in, out);

        d.param = &p;
        must(usm_template_run(t, &d, NULL));
        for (size_t i = 0; i < n; i++)
            CHECK_INT(out[i], in[i] * in[i] + p + (uint32_t)i);
        free(in);
        free(out);
    }
}

static void check_number(usm_template *t)
{
    static uint32_t       out[3001];
    usm_template_run_desc d = run_desc(3001, NULL, out);

    must(usm_template_run(t, &d, NULL));
    for (uint32_t i = 0; i < 3001; i++)
        CHECK_INT(out[i], i * 7u + 1u);
}

static void a_map_gives_one_element_for_each(void)
{
    usm_template *by_images = create(&mix, true);

    check_mix(by_images);
    usm_template_destroy(by_images);
    with(&mix, check_mix);
    with(&number, check_number);
}

static void check_collatz(usm_template *t)
{
    enum { N = 500 };
    uint32_t             *in     = make_numbers(N), out[N];
    usm_template_run_desc d      = run_desc(N, in, out);
    usm_template_result   result = USM_TEMPLATE_RESULT_INIT;

    for (size_t i = 0; i < N; i++)
        in[i] %= 100000u;
    d.grain = 7;
    must(usm_template_run(t, &d, &result));
    for (size_t i = 0; i < N; i++)
        CHECK_INT(out[i], collatz_plain(in[i]));
    CHECK_INT(result.chunks, N / 7 + 1);
    free(in);
}

static void a_worker_takes_as_many_as_the_grain_says(void)
{
    with(&collatz, check_collatz);
}

/* ---- reductions and scans ---------------------------------------------------------------------- */

static void check_squares(usm_template *t)
{
    for (size_t k = 0; k < SIZES; k++) {
        size_t                n   = sizes[k];
        uint32_t             *in  = make_numbers(n);
        uint64_t              out = 0, want = 0;
        usm_template_run_desc d = run_desc(n, in, &out);

        for (size_t i = 0; i < n; i++)
            want += (uint64_t)in[i] * in[i] + i;
        must(usm_template_run(t, &d, NULL));
        CHECK(out == want);
        free(in);
    }
}

static void check_chain(usm_template *t)
{
    for (size_t k = 0; k < SIZES; k++) {
        size_t                n   = sizes[k];
        uint32_t             *in  = make_numbers(n);
        uint64_t              out = 0, want = (uint64_t)(in[0] | 1u) << 32;
        usm_template_run_desc d = run_desc(n, in, &out);

        for (size_t i = 1; i < n; i++)
            want = follow(want, (uint64_t)(in[i] | 1u) << 32 | (uint32_t)i);
        must(usm_template_run(t, &d, NULL));
        CHECK(out == want);
        free(in);
    }
}

static void a_reduction_joins_all_in_their_order(void)
{
    with(&squares, check_squares);
    with(&chain, check_chain);
}

static void check_prefix(usm_template *t)
{
    for (size_t k = 0; k < SIZES; k++) {
        size_t                n  = sizes[k];
        uint64_t             *in = array(n, sizeof *in), *out = array(n, sizeof *out), left = 0;
        usm_template_run_desc d = run_desc(n, in, out);

        for (size_t i = 0; i < n; i++)
            in[i] = (i * 2654435761u | 1u) << 32 | i;
        must(usm_template_run(t, &d, NULL));
        for (size_t i = 0; i < n; i++) {
            left = i ? follow(left, in[i]) : in[0];
            CHECK(out[i] == left);
        }
        free(in);
        free(out);
    }
}

static void a_scan_gives_all_before_each(void)
{
    with(&prefix, check_prefix);
}

/* ---- stencils ----------------------------------------------------------------------------------- */

static void check_smear_of(usm_template *t, size_t w, size_t h, uint64_t steps)
{
    size_t                bytes = w * h * sizeof(uint32_t);
    uint32_t             *in = make_numbers(w * h), *out = array(w * h, sizeof *out), p = 3;
    uint32_t             *want = array(w * h, sizeof *want), *next = array(w * h, sizeof *next);
    usm_template_run_desc d      = run_desc(h, in, out);
    usm_template_result   result = USM_TEMPLATE_RESULT_INIT;

    memcpy(want, in, bytes);
    for (uint64_t s = 0; s < steps; s++) {
        smear_plain(want, next, (long)w, (long)h, p);
        memcpy(want, next, bytes);
    }
    d.width = w, d.steps = steps, d.param = &p;
    must(usm_template_run(t, &d, &result));
    CHECK_INT(result.steps, steps);
    CHECK_SAME(out, want, bytes);
    free(in);
    free(out);
    free(want);
    free(next);
}

static void check_smear(usm_template *t)
{
    check_smear_of(t, 1, 5000, 1);
    check_smear_of(t, 33, 70, 1);
    check_smear_of(t, 33, 70, 2);
    check_smear_of(t, 64, 200, 3);
    check_smear_of(t, 5, 2, 1); /* the halo is the whole array */
}

static void a_stencil_reads_neighbours_as_far_as_there_are_any(void)
{
    with(&smear, check_smear);
}

static void check_greedy(usm_template *t)
{
    enum { N = 100 };
    uint32_t             *in = make_numbers(N), out[N];
    usm_template_run_desc d  = run_desc(N, in, out);

    must(usm_template_run(t, &d, NULL));
    for (long i = 0; i < N; i++)
        CHECK_INT(out[i], nearest(in, 0, i - 1, 1, N) + nearest(in, 0, i + 1, 1, N));
    free(in);
}

static void a_body_reads_no_row_beyond_the_radius(void)
{
    with(&greedy, check_greedy);
}

static void check_buffers(usm_template *t)
{
    enum { W = 40, H = 60 };
    usm_context    *ctx = usm_default_context();
    usm_buffer_desc b   = USM_BUFFER_DESC_INIT;
    uint32_t       *in = make_numbers((size_t)W * H), out[W * H], want[W * H], next[W * H], p = 5;
    usm_template_run_desc d = USM_TEMPLATE_RUN_DESC_INIT;

    b.size = sizeof out, b.host_data = in;
    must(usm_buffer_create(ctx, &b, &d.in_buffer));
    b.host_data = out;
    must(usm_buffer_create(ctx, &b, &d.out_buffer));
    d.count = H, d.width = W, d.steps = 2, d.param = &p;
    must(usm_template_run(t, &d, NULL));
    usm_buffer_destroy(d.in_buffer);
    usm_buffer_destroy(d.out_buffer);
    smear_plain(in, next, W, H, p);
    smear_plain(next, want, W, H, p);
    CHECK_SAME(out, want, sizeof out);
    free(in);
}

static void data_may_be_in_buffers(void)
{
    with(&smear, check_buffers);
}

/* ---- iterations --------------------------------------------------------------------------------- */

static void check_flood_of(usm_template *t, size_t w, size_t h)
{
    uint32_t             *in = make_numbers(w * h), *out = array(w * h, sizeof *out);
    uint32_t             *want = array(w * h, sizeof *want), *next = array(w * h, sizeof *next);
    usm_template_run_desc d      = run_desc(h, in, out);
    usm_template_result   result = USM_TEMPLATE_RESULT_INIT;
    uint64_t              steps;

    for (size_t i = 0; i < w * h; i++)
        in[i] = in[i] % 5u ? in[i] % 1000u + 1u : 0u;
    memcpy(want, in, w * h * sizeof *in);
    steps   = flood_plain(want, next, (long)w, (long)h, UINT64_MAX);
    d.width = w;
    must(usm_template_run(t, &d, &result));
    CHECK_INT(result.steps, steps);
    CHECK(result.is_settled);
    CHECK_SAME(out, want, w * h * sizeof *in);
    for (d.steps = 1; d.steps < 4; d.steps++) { /* too few: the last may be in either array */
        memcpy(want, in, w * h * sizeof *in);
        CHECK(flood_plain(want, next, (long)w, (long)h, d.steps) == d.steps);
        must(usm_template_run(t, &d, &result));
        CHECK_INT(result.steps, d.steps);
        CHECK(!result.is_settled);
        CHECK_SAME(out, want, w * h * sizeof *in);
    }
    free(in);
    free(out);
    free(want);
    free(next);
}

static void check_flood(usm_template *t)
{
    check_flood_of(t, 20, 30);
    check_flood_of(t, 1, 77);
}

static void an_iteration_ends_when_nothing_moves(void)
{
    with(&flood, check_flood);
}

/* ---- searches ----------------------------------------------------------------------------------- */

static int64_t find(usm_template *t, const uint32_t *in, size_t n, uint32_t key)
{
    int64_t               found = -2;
    usm_template_run_desc d     = run_desc(n, in, &found);

    d.param = &key;
    must(usm_template_run(t, &d, NULL));
    return found;
}

static void check_equal(usm_template *t)
{
    for (size_t k = 0; k < SIZES; k++) {
        size_t    n  = sizes[k];
        uint32_t *in = array(n, sizeof *in);

        CHECK_INT(find(t, in, n, 9), -1);
        in[n - 1] = 9;
        CHECK_INT(find(t, in, n, 9), (int64_t)n - 1);
        in[n / 2] = 9;
        CHECK_INT(find(t, in, n, 9), (int64_t)n / 2);
        in[n / 3] = 9;
        CHECK_INT(find(t, in, n, 9), (int64_t)n / 3);
        free(in);
    }
}

static void check_root(usm_template *t)
{
    const double          leaves = 64;
    uint64_t              p      = 1000000;
    int64_t               found  = -2;
    usm_template_run_desc d      = run_desc((uint64_t)1 << 28, NULL, &found);
    usm_template_result   result = USM_TEMPLATE_RESULT_INIT;

    d.param  = &p;
    d.policy = (usm_policy){.name = "fixed", .numbers = &leaves, .nnumbers = 1};
    must(usm_template_run(t, &d, &result));
    CHECK_INT(found, 1001);
    CHECK(result.chunks < 4096); /* of 16384: it stops once all below are done */
}

static void a_search_finds_the_first_and_stops(void)
{
    with(&equal, check_equal);
    with(&root, check_root);
}

/* ---- pipelines ---------------------------------------------------------------------------------- */

typedef struct stream {
    const uint32_t *in;
    uint32_t       *out;
    uint64_t        sent, taken, end;
} stream;

static bool send(void *elements, uint64_t first, uint64_t count, void *user)
{
    stream *s = user;

    CHECK(first == s->sent);
    memcpy(elements, s->in + first, count * sizeof *s->in);
    s->sent += count;
    return s->sent <= s->end;
}

static bool take(void *elements, uint64_t first, uint64_t count, void *user)
{
    stream *s = user;

    CHECK(first == s->taken);
    memcpy(s->out + first, elements, count * sizeof *s->out);
    s->taken += count;
    return true;
}

static void batches_go_through_all_stages(void)
{
    bool              by_images = !compiles_text();
    usm_template     *stages[]  = {create(&mix, by_images), create(&widen, by_images),
                                   create(&narrow, by_images)};
    const uint32_t    p[2]      = {5, 1000};
    const void       *params[]  = {&p[0], NULL, &p[1]};
    usm_pipeline_desc d         = USM_PIPELINE_DESC_INIT;
    uint32_t         *in = make_numbers(5003), *out = array(5003, sizeof *out);
    stream            s = {in, out, 0, 0, UINT64_MAX};

    d.nstages = 3, d.stages = stages, d.params = params, d.count = 5003, d.batch = 500;
    d.source = send, d.sink = take, d.user = &s;
    must(usm_pipeline_run(&d));
    CHECK_INT(s.sent, 5003);
    CHECK_INT(s.taken, 5003);
    for (uint32_t i = 0; i < 5003; i++) {
        uint64_t wide = (uint64_t)(in[i] * in[i] + 5u + i) << 3 | 5u;

        CHECK_INT(out[i], (uint32_t)(wide ^ wide >> 32) + 1000u);
    }
    s = (stream){in, out, 0, 0, 2000};
    CHECK_INT(usm_pipeline_run(&d), USM_E_CANCELLED);
    CHECK(strstr(usm_last_error(), "the source of a pipeline ended it at batch 4") != NULL);
    d.stages = (usm_template *const[]){stages[1], stages[0]}, d.nstages = 2;
    CHECK_INT(usm_pipeline_run(&d), USM_E_INVALID);
    CHECK(strstr(usm_last_error(), "'mix', reads elements of 4 bytes") != NULL);
    for (int k = 0; k < 3; k++)
        usm_template_destroy(stages[k]);
    free(in);
    free(out);
}

/* ---- what is refused ----------------------------------------------------------------------------- */

static void refused(usm_status st, usm_status want, const char *words)
{
    if (st != want || !strstr(usm_last_error(), words))
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    CHECK_INT(st, want);
    CHECK(strstr(usm_last_error(), words) != NULL);
}

static void refuse_desc(usm_template_desc d, usm_status want, const char *words)
{
    usm_template *t = NULL;

    refused(usm_template_create(team, &d, &t), want, words);
    CHECK(t == NULL);
}

static void descriptions_that_are_wrong_are_named(void)
{
    usm_template_desc d;

    usm_template_destroy(create(&squares, !compiles_text())); /* there is a team */
    d = squares, d.kind = 99;
    refuse_desc(d, USM_E_INVALID, "there is no kind 99");
    d = squares, d.nbodies = 1;
    refuse_desc(d, USM_E_INVALID, "has 1 body; the kind map_reduce has 2");
    d = squares, d.name = "no name";
    refuse_desc(d, USM_E_INVALID, "must be an identifier");
    d = squares, d.nbodies = 0, d.native = NULL;
    refuse_desc(d, USM_E_INVALID, "has no code");
    d = squares, d.native_reduce = NULL;
    refuse_desc(d, USM_E_INVALID, "none that joins");
    d = prefix, d.out_type = "uint", d.out_size = 4;
    refuse_desc(d, USM_E_INVALID, "has one type");
    d = smear, d.in_type = NULL;
    refuse_desc(d, USM_E_INVALID, "needs an in_type");
    d = mix, d.radius = 1;
    refuse_desc(d, USM_E_INVALID, "reads no neighbours");
    d = mix, d.param_size = 0;
    refuse_desc(d, USM_E_INVALID, "param_size is 0");
}

static void a_body_that_does_not_compile_is_named(void)
{
    usm_template_desc d = mix;

    usm_template_destroy(create(&squares, !compiles_text()));
    d.bodies[0] = "return x +;";
    d.native    = NULL;
    if (is_host() || !compiles_text())
        refuse_desc(d, USM_E_NO_IMAGE, "image");
    else
        refuse_desc(d, USM_E_BUILD, "mix: the body:1:");
}

static void runs_that_are_wrong_are_named(void)
{
    bool                  by_images = !compiles_text();
    usm_template         *t = create(&smear, by_images), *m = create(&mix, by_images);
    uint32_t              in[4] = {0}, out[4], p = 0;
    usm_template_run_desc d = run_desc(1, in, out);

    d.param = &p;
    refused(usm_template_check(t, &d), USM_E_INVALID,
            "a halo of 2 rows is larger than the array of 1 row");
    d.count = 0;
    refused(usm_template_run(t, &d, NULL), USM_E_INVALID, "count is 0");
    d.count = UINT64_MAX / 2;
    refused(usm_template_check(t, &d), USM_E_SIZE, "more than can be addressed");
    d.count = 4, d.width = 2;
    refused(usm_template_check(m, &d), USM_E_INVALID, "has no rows");
    d.width = 0, d.in = NULL;
    refused(usm_template_check(m, &d), USM_E_INVALID, "has no input");
    d.in = in, d.out = NULL;
    refused(usm_template_check(m, &d), USM_E_INVALID, "has no output");
    d.out = in;
    refused(usm_template_run(m, &d, NULL), USM_E_ARGUMENTS, "share bytes");
    d.out = out, d.param = NULL;
    refused(usm_template_check(m, &d), USM_E_INVALID, "param is NULL");
    usm_template_destroy(t);
    usm_template_destroy(m);
    refused(usm_template_check(m, &d), USM_E_INVALID_HANDLE, "template");
}

static void the_team_goes_last(void)
{
    usm_team_destroy(team);
    team = NULL;
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(a_map_gives_one_element_for_each),
        CASE(a_worker_takes_as_many_as_the_grain_says),
        CASE(a_reduction_joins_all_in_their_order),
        CASE(a_scan_gives_all_before_each),
        CASE(a_stencil_reads_neighbours_as_far_as_there_are_any),
        CASE(a_body_reads_no_row_beyond_the_radius),
        CASE(data_may_be_in_buffers),
        CASE(an_iteration_ends_when_nothing_moves),
        CASE(a_search_finds_the_first_and_stops),
        CASE(batches_go_through_all_stages),
        CASE(descriptions_that_are_wrong_are_named),
        CASE(a_body_that_does_not_compile_is_named),
        CASE(runs_that_are_wrong_are_named),
        {NULL, NULL},
    };
    int rc = plain_main(argc, argv, cases);

    the_team_goes_last();
    return rc;
}
