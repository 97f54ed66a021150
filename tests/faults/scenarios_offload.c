/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scenarios of the fault sweep (sweep.h): tasks over buffers, launches over a team, graphs. */
#include "sweep.h"

#include "scenarios_kernels.h"

#include <unistd.h>

enum { N = 64, WHOLE = 16 };

/* --- tasks over buffers
 * ---------------------------------------------------------------------------- */

static usm_status raise_all(void *user, void *const *ptrs)
{
    (void)user;
    for (int i = 0; i < N; i++)
        ((int *)ptrs[0])[i]++;
    return USM_OK;
}

/* Riders of an in-order queue, one with an event, one in another queue, and the host. */
static usm_status tasks_over_a_buffer(state *s)
{
    int          nought = 0;
    usm_accessor all    = {NULL, 0, N * sizeof(int), USM_READ_WRITE};
    usm_access   acc;

    TRY_PTR(s->buffer, usm_buffer_new(s->ctx, N * sizeof(int)));
    all.buffer = s->buffer;
    TRY(usm_queue_create(s->ctx, NULL, NULL, &s->made_q));
    TRY(usm_buffer_fill(s->q, &all, &nought, sizeof nought, 0, NULL, NULL));
    for (int i = 0; i < 3; i++)
        TRY(usm_buffer_task(s->q, raise_all, NULL, 1, &all, 0, NULL, NULL));
    TRY(usm_buffer_task(s->q, raise_all, NULL, 1, &all, 0, NULL, &s->ev[0]));
    TRY(usm_buffer_task(s->made_q, raise_all, NULL, 1, &all, 1, &s->ev[0], &s->ev[1]));
    TRY(usm_event_wait(s->ev[1]));
    TRY(usm_access_begin(s->buffer, 0, N * sizeof(int), USM_READ, &acc));
    for (int i = 0; i < N; i++)
        if (((int *)acc.ptr)[i] != 5)
            s->wrong = "the sum of five tasks";
    usm_access_end(&acc);
    return usm_queue_wait(s->q);
}

/* --- launches over a team
 * -------------------------------------------------------------------------- */

/* args: const int *whole, int *out, int *sum (of each index) */
static void spread_range(const usm_range *r, void *const *args)
{
    for (size_t g = r->begin[0]; g < r->end[0]; g++) {
        (*(int **)args[1])[g - r->offset[0]] = (*(const int **)args[0])[g % WHOLE] + (int)g;
        (*(int **)args[2])[g - r->offset[0]] += (int)g;
    }
}

static const usm_arg_kind      kinds[]   = {USM_ARG_POINTER, USM_ARG_POINTER, USM_ARG_POINTER};
static const usm_native_kernel natives[] = {{"spread", spread_range, 3, kinds}};

static usm_status make_team(state *s)
{
    usm_image        images[] = {{USM_IMAGE_NATIVE, natives, sizeof natives},
                                 {USM_IMAGE_BUNDLE, scenarios_kernels, scenarios_kernels_size}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;

    desc.nimages = 2;
    desc.images  = images;
    TRY(usm_team_create(NULL, &s->team));
    return usm_team_kernel_create(s->team, &desc, "spread", &s->team_kernel);
}

/* `whole` lies in a buffer; out and sum in s->host and s->back. */
static usm_status spread(state *s, const char *resume)
{
    int              *in = (int *)(void *)s->host, *out = (int *)(void *)s->back, *sum = out + N;
    usm_split_arg     args[] = {USM_SPLIT_WHOLE(NULL, WHOLE * sizeof(int)),
                                USM_SPLIT_OUT(out, sizeof(int)),
                                USM_SPLIT_SUM(sum, sizeof(int), USM_ELEMENT_I32, 1)};
    usm_parallel_desc d      = USM_PARALLEL_DESC_INIT;
    double            size   = 8;

    args[0].buffer    = s->buffer;
    d.kernel          = s->team_kernel;
    d.global[0]       = N;
    d.nargs           = 3;
    d.args            = args;
    d.resume          = resume;
    d.policy.name     = "fixed";
    d.policy.numbers  = &size;
    d.policy.nnumbers = 1;
    *sum              = 0;
    TRY(usm_parallel_start(s->team, &d, &s->run));
    TRY(usm_parallel_wait(s->run, NULL));
    MUST(*sum == N * (N - 1) / 2);
    for (int i = 0; i < N; i++)
        MUST(out[i] == in[i % WHOLE] + i);
    return USM_OK;
}

static usm_status launch_over_a_team(state *s)
{
    usm_access acc;

    TRY_PTR(s->buffer, usm_buffer_new(NULL, WHOLE * sizeof(int)));
    TRY(usm_access_begin(s->buffer, 0, WHOLE * sizeof(int), USM_WRITE_NO_INIT, &acc));
    memcpy(acc.ptr, s->host, WHOLE * sizeof(int));
    usm_access_end(&acc);
    TRY(make_team(s));
    TRY(spread(s, NULL));
    usm_parallel_release(s->run);
    s->run = NULL;
    return spread(s, NULL);
}

static usm_status launch_with_a_file(state *s)
{
    const char *folder = getenv("USM_SWEEP_CACHE"); /* sweep.c's */
    char        path[300];
    usm_access  acc;
    usm_status  status;

    (void)snprintf(path, sizeof path, "%s/launch", folder ? folder : "/tmp");
    (void)unlink(path);
    TRY_PTR(s->buffer, usm_buffer_new(NULL, WHOLE * sizeof(int)));
    TRY(usm_access_begin(s->buffer, 0, WHOLE * sizeof(int), USM_WRITE_NO_INIT, &acc));
    memcpy(acc.ptr, s->host, WHOLE * sizeof(int));
    usm_access_end(&acc);
    TRY(make_team(s));
    status = spread(s, path);
    (void)unlink(path);
    return status;
}

/* --- graphs
 * ---------------------------------------------------------------------------------------- */

/* Ranges of one item: in, in_size, parts, out, part_size. */
static void cut_range(const usm_range *r, void *const *args)
{
    (void)r;
    memcpy(*(void **)args[3], *(void **)args[0], *(const uint32_t *)args[1]);
}

/* in, in_size, out, out_size */
static void raise_range(const usm_range *r, void *const *args)
{
    (void)r;
    for (uint32_t i = 0; i < *(const uint32_t *)args[1]; i++)
        (*(char **)args[2])[i] = (char)((*(char **)args[0])[i] + 1);
}

static const usm_arg_kind five[] = {USM_ARG_POINTER, USM_ARG_VALUE, USM_ARG_VALUE, USM_ARG_POINTER,
                                    USM_ARG_VALUE};
static const usm_arg_kind four[] = {USM_ARG_POINTER, USM_ARG_VALUE, USM_ARG_POINTER, USM_ARG_VALUE};
static const usm_native_kernel nodes[] = {{"cut", cut_range, 5, five},
                                          {"lift", raise_range, 4, four}};

enum { PARTS = 2, PART = 32 };

static usm_status add_node(state *s, usm_node_kind kind, const char *name, usm_team_kernel *kernel,
                           size_t out_size, uint32_t *node)
{
    usm_node_desc d = USM_NODE_DESC_INIT;

    d.kind     = kind;
    d.name     = name;
    d.kernel   = kernel;
    d.out_size = out_size;
    d.parts    = kind == USM_NODE_PARTITION ? PARTS : 0;
    if (kind == USM_NODE_INPUT) {
        d.data = s->host;
        d.size = (size_t)PARTS * PART;
    }
    return usm_graph_add(s->graph, &d, node);
}

/* A partition, two parts, and what puts them together again. */
static usm_status graph(state *s)
{
    usm_image        images[] = {{USM_IMAGE_NATIVE, nodes, sizeof nodes},
                                 {USM_IMAGE_BUNDLE, scenarios_kernels, scenarios_kernels_size}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;
    uint32_t         in, cut, lift, merge;
    const void      *out;
    size_t           size;

    desc.nimages = 2;
    desc.images  = images;
    TRY(usm_team_create(NULL, &s->team));
    TRY(usm_team_kernel_create(s->team, &desc, "cut", &s->team_kernel));
    TRY(usm_team_kernel_create(s->team, &desc, "lift", &s->second_kernel));
    TRY(usm_graph_create(s->team, &s->graph));
    TRY(add_node(s, USM_NODE_INPUT, "in", NULL, 0, &in));
    TRY(add_node(s, USM_NODE_PARTITION, "cut", s->team_kernel, PART, &cut));
    TRY(add_node(s, USM_NODE_EXPANDABLE, "lift", s->second_kernel, PART, &lift));
    TRY(add_node(s, USM_NODE_MERGE, "merge", s->team_kernel, (size_t)PARTS * PART, &merge));
    TRY(usm_graph_connect(s->graph, in, cut));
    TRY(usm_graph_connect(s->graph, cut, lift));
    TRY(usm_graph_connect(s->graph, lift, merge));
    TRY(usm_graph_run(s->graph, NULL, NULL));
    TRY(usm_graph_get_output(s->graph, merge, &out, &size));
    MUST(size == (size_t)PARTS * PART);
    for (size_t i = 0; i < size; i++)
        MUST(((const char *)out)[i] == (char)(s->host[i] + 1));
    return USM_OK;
}

/* --- templates ------------------------------------------------------------------------------ */

enum { ELEMENTS = 300 }; /* a leaf and a rest */

USM_SCAN(prefix, uint32_t, usm_nothing, return a + b;)
USM_MAP(twofold, uint32_t, uint32_t, usm_nothing, return 2u * x;)
USM_ITERATE(level, uint32_t, usm_nothing, 1,
            (return USM_AT(0, -1) > USM_AT(0, 0) ? USM_AT(0, -1) : USM_AT(0, 0);),
            (return before == now;))

static bool send(void *elements, uint64_t first, uint64_t count, void *user)
{
    for (uint64_t i = 0; i < count; i++)
        ((uint32_t *)elements)[i] = (uint32_t)(first + i);
    (void)user;
    return true;
}

static bool take(void *elements, uint64_t first, uint64_t count, void *user)
{
    state *s = user;

    for (uint64_t i = 0; i < count; i++)
        if (((uint32_t *)elements)[i] != 4u * (uint32_t)(first + i))
            s->wrong = "an element of the pipeline";
    return true;
}

/* Only on the host: what fails is the library, which is the same for each driver. */
static usm_status templates(state *s)
{
    usm_template_run_desc d  = USM_TEMPLATE_RUN_DESC_INIT;
    usm_pipeline_desc     p  = USM_PIPELINE_DESC_INIT;
    uint32_t             *in = (uint32_t *)(void *)s->host, out[ELEMENTS];
    usm_template         *stages[2];

    TRY(usm_team_create(NULL, &s->team));
    TRY(usm_template_create(s->team, &prefix, &s->template[0]));
    TRY(usm_template_create(s->team, &level, &s->template[1]));
    TRY(usm_template_create(s->team, &twofold, &s->template[2]));
    for (uint32_t i = 0; i < ELEMENTS; i++)
        in[i] = i == 7;
    d.count = ELEMENTS, d.in = in, d.out = out;
    TRY(usm_template_run(s->template[0], &d, NULL));
    for (uint32_t i = 0; i < ELEMENTS; i++)
        MUST(out[i] == (i >= 7));
    d.steps = 2;
    TRY(usm_template_run(s->template[1], &d, NULL));
    for (uint32_t i = 0; i < ELEMENTS; i++)
        MUST(out[i] == (i >= 7 && i <= 9));
    stages[0] = stages[1] = s->template[2];
    p.nstages = 2, p.stages = stages, p.count = ELEMENTS, p.batch = 200;
    p.source = send, p.sink = take, p.user = s;
    return usm_pipeline_run(&p);
}

const scenario offload_scenarios[] = {
    {"tasks_over_a_buffer", tasks_over_a_buffer, NEEDS_DATA},
    {"launch_over_a_team", launch_over_a_team, NEEDS_RUN | SLOW},
    {"launch_with_a_file", launch_with_a_file, NEEDS_RUN | SLOW},
    {"graph", graph, NEEDS_RUN | SLOW},
    {"templates", templates, NEEDS_RUN | NEEDS_HOST | SLOW},
    {NULL, NULL, 0},
};
