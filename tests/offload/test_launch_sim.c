/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Simulated launches of usm_parallel() (offload/launch_sim.h): their seconds and bytes are those that
 * follow from what chunks are said to cost; and trials of the launches that calls of a graph make. */
#include "plain.h"

#include "split.h"

#include "offload/graph.h"
#include "offload/graph_sim.h"

#include <math.h>

static void must(usm_status st)
{
    if (st != USM_OK)
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    CHECK_INT(st, USM_OK);
}

static void about(double is, double want)
{
    if (fabs(is - want) > want * 1e-3)
        printf("# %.6f, not %.6f\n", is, want);
    CHECK(fabs(is - want) <= want * 1e-3);
}

/* ---- a launch of ten seconds on devices of speed 1 ------------------------------------------- */

enum { TOTAL = 100000, DEVICES = 3 };

static usm__sim_device  devices[DEVICES];
static usm__sim_place   places[DEVICES];
static usm__sim_pace    paces[DEVICES];
static usm__sim_shape   shape;
static usm__sim_traffic traffic;
static double           now;

static void machine(const char *policy, double number)
{
    static const char *const names[DEVICES] = {"sim:0", "sim:1", "sim:2"};

    for (int i = 0; i < DEVICES; i++) {
        devices[i] =
            (usm__sim_device){.name = names[i], .uses_host_memory = true, .bytes_per_s = 1e9};
        places[i] = (usm__sim_place){.launches = 0};
        paces[i]  = (usm__sim_pace){.each = 10.0 / TOTAL, .has_image = true};
    }
    shape   = (usm__sim_shape){.params  = {.total       = TOTAL,
                                           .multiple    = 1,
                                           .depth       = 2,
                                           .policy      = usm__chunk_policy_find(policy),
                                           .nnumbers    = number > 0,
                                           .never_twice = true},
                               .numbers = {number}};
    traffic = (usm__sim_traffic){0};
    now     = 0;
}

static usm_status simulate(uint32_t ndevices)
{
    usm__sim_parallel launch = {.shape = &shape, .paces = paces};

    return usm__sim_parallel_run(&launch, devices, ndevices, places, &now, &traffic);
}

static void one_device_takes_the_sum(void)
{
    machine("fixed", TOTAL / 10);
    paces[0].cost = 0.1;
    must(simulate(1));
    about(now, 10 + 10 * 0.1);
    about(places[0].busy, now);
    CHECK_INT(traffic.chunks, 10);
    CHECK_INT(places[0].launches, 10);
    CHECK_INT(traffic.bytes_in + traffic.bytes_out, 0);
}

static void it_begins_when_devices_are_free(void)
{
    machine("fixed", TOTAL);
    now                   = 1;
    places[0].compute_end = 3;
    must(simulate(1));
    about(now, 3 + 10);
}

static void devices_share_by_their_speeds(void)
{
    machine("adaptive", 0);
    paces[1].each /= 3;
    must(simulate(2));
    about(now, 10.0 / 4);
    CHECK(places[0].busy > 2.4 && places[1].busy > 2.4);
    machine("static", 0); /* equal shares */
    paces[1].each /= 3;
    must(simulate(2));
    about(now, 10.0 / 2);
    machine("fastest", 0);
    paces[1].each /= 3;
    must(simulate(2));
    about(now, 10.0 / 3);
}

static void many_chunks_cost_more(void)
{
    double few;

    machine("fixed", TOTAL / 8);
    paces[0].cost = paces[1].cost = 0.01;
    must(simulate(2));
    few = now;
    machine("fixed", TOTAL / 1000);
    paces[0].cost = paces[1].cost = 0.01;
    must(simulate(2));
    about(now, 5 + 500 * 0.01);
    CHECK(now > few);
}

/* In, computed and out, each in a line of its own, after what all chunks read. */
static void copies_take_their_time(void)
{
    machine("fixed", TOTAL / 10); /* a second to compute */
    devices[0].uses_host_memory = false;
    devices[0].latency_s        = 0.01;
    devices[0].bytes_per_s      = 1e5;
    shape.in                    = (usm__sim_copies){1, 2, 1000}; /* 0.22 s */
    shape.out                   = (usm__sim_copies){2, 4, 0};    /* 0.42 s */
    shape.whole                 = (usm__sim_copies){1, 0, 50000};
    must(simulate(1));
    about(now, 0.51 + 0.22 + 10 + 0.42);
    CHECK_INT(traffic.bytes_in, 50000 + 10 * 1000 + 2 * TOTAL);
    CHECK_INT(traffic.bytes_out, 4 * TOTAL);
    paces[0].each = 1e-12; /* the slower of both directions, and what is before and after */
    now           = 0;
    places[0]     = (usm__sim_place){.launches = 0};
    must(simulate(1));
    about(now, 0.51 + 0.22 + 10 * 0.42);
}

static void a_device_without_the_image_gets_nothing(void)
{
    machine("adaptive", 0);
    paces[1].has_image = false;
    must(simulate(3));
    about(now, 5);
    CHECK_INT(places[1].launches, 0);
    for (int i = 0; i < DEVICES; i++)
        paces[i].has_image = false;
    CHECK_INT(simulate(3), USM_E_NO_IMAGE);
}

/* ---- trials ---------------------------------------------------------------------------------- */

enum { N = 1 << 15 };

static usm_team        *team;
static usm_team_kernel *kernel;
static uint32_t         data[N];
static uint64_t         chunks; /* of the last launch */

static usm_status launch(const char *policy, double number)
{
    usm_split_arg      arg   = USM_SPLIT_IN(data, 4);
    usm_parallel_desc  d     = USM_PARALLEL_DESC_INIT;
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    usm_status         st;

    arg.mode          = USM_READ_WRITE;
    d.kernel          = kernel;
    d.flags           = USM_PARALLEL_SNAPSHOT;
    d.global[0]       = N;
    d.nargs           = 1;
    d.args            = &arg;
    d.policy.name     = policy;
    d.policy.numbers  = &number;
    d.policy.nnumbers = number > 0;
    st                = usm_parallel(team, &d, &stats);
    chunks            = stats.chunks;
    return st;
}

static usm_status call(const void *in, size_t in_size, void *out, size_t out_size, void *user)
{
    usm_status st = launch("adaptive", 0);

    (void)in;
    (void)in_size;
    (void)out;
    (void)out_size;
    (void)user;
    return st == USM_OK ? launch("fixed", N / 2) : st;
}

static uint64_t chunks_of(uint32_t member)
{
    usm_team_member m = {.struct_size = sizeof m};

    must(usm_team_get_member(team, member, &m));
    return m.chunks;
}

static usm_graph *begin(void)
{
    static const uint32_t word = 1;
    usm_device           *all[16];
    usm_team_desc         d     = USM_TEAM_DESC_INIT;
    usm_node_desc         node  = USM_NODE_DESC_INIT;
    usm_graph            *graph = NULL;
    size_t                n;
    uint32_t              from, to;

    must(usm_select_devices("*:*;host:*", all, 16, &n));
    d.ndevices = n < 16 ? n : 16;
    d.devices  = all;
    must(usm_team_create(&d, &team));
    must(split_create(team, "twice", &kernel));
    must(usm_graph_create(team, &graph));
    node.kind = USM_NODE_INPUT;
    node.name = "in";
    node.data = &word;
    node.size = sizeof word;
    must(usm_graph_add(graph, &node, &from));
    node          = (usm_node_desc)USM_NODE_DESC_INIT;
    node.kind     = USM_NODE_CALL;
    node.name     = "call";
    node.call     = call;
    node.out_size = 4;
    must(usm_graph_add(graph, &node, &to));
    must(usm_graph_connect(graph, from, to));
    for (uint32_t i = 0; i < N; i++)
        data[i] = i;
    return graph;
}

static void end(usm_graph *graph)
{
    usm_graph_destroy(graph);
    usm_team_kernel_destroy(kernel);
    usm_team_destroy(team);
}

/* The launches of a trial of `member`, and what they were found to be. */
static void try_on(usm_graph *graph, uint32_t member)
{
    usm__graph_try_desc d        = {.member = member, .parts = 1, .launches = 1, .chunks = 8};
    usm__tried_call     calls[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    double              took[2], first[2];

    must(usm__graph_try(graph, &d, took, first, calls));
    CHECK_INT(calls[0].n, 0);
    CHECK_INT(calls[1].n, 2);
    for (uint32_t i = 0; i < calls[1].n; i++) {
        const usm__tried_launch *l = &calls[1].launches[i];

        CHECK_INT(l->chunks, 8);
        CHECK_INT(l->items, N);
        CHECK(l->is_on_member);
        CHECK(l->busy_s > 0 && l->wall_s >= l->busy_s);
        CHECK(took[1] > l->wall_s);
        CHECK_INT(l->shape.params.total, N);
        CHECK(l->shape.params.policy == usm__chunk_policy_find(i ? "fixed" : "adaptive"));
        CHECK_INT(l->shape.params.nnumbers, i);
        CHECK(i == 0 || fabs(l->shape.numbers[0] - N / 2) < 1);
        CHECK_INT(l->shape.in.each, 4);
        CHECK_INT(l->shape.out.each, 4);
        CHECK_INT(l->shape.in.n + l->shape.out.n, 2);
        CHECK_INT(l->shape.whole.n, 0);
    }
    usm__tried_call_clear(&calls[1]);
}

static void a_trial_executes_launches_on_one_member(void)
{
    usm_graph *graph = begin();

    for (uint32_t i = 0; i < usm_team_size(team); i++) {
        CHECK_INT(chunks_of(i), 0);
        try_on(graph, i);
        for (uint32_t k = 0; k < usm_team_size(team); k++)
            CHECK_INT(chunks_of(k), k <= i ? 16 : 0);
    }
    for (uint32_t i = 0; i < N; i++)
        CHECK_INT(data[i] + 1, (i + 1) << 2 * usm_team_size(team));
    end(graph);
}

static void launches_after_a_trial_are_none(void)
{
    usm_graph *graph = begin();

    try_on(graph, 0);
    must(launch("fixed", N / 4));
    CHECK_INT(chunks, 4);
    end(graph);
}

/* A call takes what it says besides launches, and these after each other. */
static bool parallel(void *user, uint32_t node, uint32_t i, usm__sim_parallel *l)
{
    (void)user;
    *l = (usm__sim_parallel){.shape = &shape, .fixed_s = 0.25, .paces = paces};
    return node == 1 && i < 2;
}

static double seconds(void *user, const usm__sim_launch *l)
{
    (void)user;
    return l->device == 2 ? 0.5 : 0;
}

static void calls_take_as_long_as_their_launches(void)
{
    usm_graph    *graph = begin();
    usm__sim_desc d = {.devices = devices, .ndevices = 2, .seconds = seconds, .parallel = parallel};
    usm__sim_result r;

    machine("fixed", TOTAL / 10);
    must(usm__graph_simulate(graph, &d, &r));
    about(r.seconds, 0.5 + 2 * (0.25 + 5));
    CHECK_INT(r.launches, 1 + 2 * 10);
    CHECK_INT(r.launches_of[0], 10);
    about(r.busy_s[1], 10);
    paces[0].has_image = paces[1].has_image = false;
    CHECK_INT(usm__graph_simulate(graph, &d, &r), USM_E_NO_IMAGE);
    end(graph);
}

static const plain_case cases[] = {
    CASE(one_device_takes_the_sum),
    CASE(it_begins_when_devices_are_free),
    CASE(devices_share_by_their_speeds),
    CASE(many_chunks_cost_more),
    CASE(copies_take_their_time),
    CASE(a_device_without_the_image_gets_nothing),
    CASE(a_trial_executes_launches_on_one_member),
    CASE(launches_after_a_trial_are_none),
    CASE(calls_take_as_long_as_their_launches),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
