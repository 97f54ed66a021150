/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Simulated runs of graphs (offload/graph_sim.h): their seconds, bytes and joules are those that
 * follow from what launches are said to take; and trials, which execute few launches.
 *
 *     in -> cut -> work.0 ... work.n -> join */
#include "plain.h"

#include "graph_kernels.h"
#include "offload/graph.h"
#include "offload/graph_sim.h"

#include <math.h>

static usm_team     *team;
static kernels       all;
static usm_graph    *graph;
static const uint8_t bytes[1 << 10] = {3, 1, 4};

enum { CUT = 1, WORK = 2, JOIN = 3, BLOCK = 1 << 10, SMALL = BLOCK / 4 };

static void must(usm_status st)
{
    if (st != USM_OK)
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    CHECK_INT(st, USM_OK);
}

static void add(const char *name, usm_node_kind kind, size_t size)
{
    usm_node_desc d = USM_NODE_DESC_INIT;
    uint32_t      n;

    d.kind = kind;
    d.name = name;
    if (kind == USM_NODE_INPUT) {
        d.data = bytes;
        d.size = sizeof bytes;
    } else {
        d.kernel   = all.k[kind == USM_NODE_PARTITION ? KERNEL_PARTITION
                           : kind == USM_NODE_MERGE   ? KERNEL_MERGE
                                                      : KERNEL_PROCESS];
        d.out_size = size;
    }
    must(usm_graph_add(graph, &d, &n));
    if (n > 0)
        must(usm_graph_connect(graph, n - 1, n));
}

static void begin(void)
{
    must(usm_team_create(NULL, &team));
    must(kernels_create(team, &all));
    must(usm_graph_create(team, &graph));
    add("in", USM_NODE_INPUT, 0);
    add("cut", USM_NODE_PARTITION, BLOCK);
    add("work", USM_NODE_EXPANDABLE, SMALL);
    add("join", USM_NODE_MERGE, BLOCK);
}

static void end(void)
{
    usm_graph_destroy(graph);
    kernels_destroy(&all);
    usm_team_destroy(team);
}

/* ---- machines -------------------------------------------------------------------------------- */

static usm__sim_device devices[4];
static double          speeds[4];
static uint32_t        lacks_cut, lacks_work, lacks_merge; /* the devices, as bits */

/* A second to cut, eight seconds of work, half a second to join, on a device of speed 1; 0.25 more
 * for the first launch of work. */
static double seconds(void *user, const usm__sim_launch *l)
{
    bool *cold = user;

    uint32_t lacks = l->number == CUT ? lacks_cut : l->number == WORK ? lacks_work : lacks_merge;

    if (lacks >> l->device & 1)
        return -1;
    switch (l->number) {
    case CUT:
        return 1 / speeds[l->device];
    case WORK:
        return (l->parts ? 8.0 / l->parts : 0) / speeds[l->device] +
               (cold && *cold && l->is_first ? 0.25 : 0);
    default:
        return 0.5 / speeds[l->device];
    }
}

static usm__sim_desc machine(uint32_t n, uint32_t per_device, const char *policy)
{
    for (uint32_t i = 0; i < n; i++) {
        static char names[4][16];

        (void)snprintf(names[i], sizeof names[i], "sim:%u", i);
        devices[i] = (usm__sim_device){
            .name = names[i], .uses_host_memory = true, .bytes_per_s = 1e9, .watts = 0};
        speeds[i] = 1;
    }
    lacks_cut = lacks_work = lacks_merge = 0;
    return (usm__sim_desc){.policy     = {.name = policy},
                           .per_device = per_device,
                           .devices    = devices,
                           .ndevices   = n,
                           .seconds    = seconds};
}

static void about(double is, double want)
{
    if (fabs(is - want) > want * 1e-3)
        printf("# %.6f, not %.6f\n", is, want);
    CHECK(fabs(is - want) <= want * 1e-3);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void one_device_takes_the_sum(void)
{
    usm__sim_desc   d = machine(1, 8, "adaptive");
    usm__sim_result r;
    bool            cold = true;

    begin();
    must(usm__graph_simulate(graph, &d, &r));
    about(r.seconds, 1 + 8 + 0.5);
    about(r.busy_s[0], 9.5);
    CHECK_INT(r.launches, 10);
    CHECK_INT(r.launches_of[0], 10);
    CHECK_INT(r.bytes_in + r.bytes_out, 0); /* all in place */
    d.user = &cold;
    must(usm__graph_simulate(graph, &d, &r));
    about(r.seconds, 9.75);
    end();
}

static void devices_share_by_their_speeds(void)
{
    usm__sim_desc   d = machine(2, 64, "adaptive");
    usm__sim_result r;

    begin();
    must(usm__graph_simulate(graph, &d, &r));
    about(r.seconds, 1 + 4 + 0.5);
    speeds[1] = 3;
    must(usm__graph_simulate(graph, &d, &r));
    CHECK(r.seconds < 1 + 8.0 / 4 * 1.1 + 0.5); /* whoever cuts and joins */
    CHECK(r.seconds > (1 + 0.5) / 3 + 8.0 / 4);
    CHECK(r.launches_of[1] > 2 * r.launches_of[0]);
    d.policy.name = "static"; /* equal shares */
    must(usm__graph_simulate(graph, &d, &r));
    CHECK(r.seconds > 4);
    d.policy.name = "fastest";
    must(usm__graph_simulate(graph, &d, &r));
    CHECK(r.launches_of[0] <= 4); /* to find out that it is slower */
    end();
}

static void few_parts_leave_a_device_idle(void)
{
    usm__sim_desc   d = machine(3, 1, "adaptive");
    usm__sim_result few, many;

    begin();
    speeds[2] = 0.25;
    must(usm__graph_simulate(graph, &d, &few));
    d.per_device = 64;
    must(usm__graph_simulate(graph, &d, &many));
    CHECK(many.seconds < few.seconds);
    end();
}

static void copies_take_their_time(void)
{
    usm__sim_desc   d = machine(1, 4, "adaptive");
    usm__sim_result r;
    const double    latency = 0.01, block = BLOCK / 1e4, small = SMALL / 1e4;
    const double    cut  = latency + block + latency + 4 * block; /* its copies */
    const double    join = latency + 4 * small + latency + block;

    begin();
    devices[0].uses_host_memory = false;
    devices[0].latency_s        = latency;
    devices[0].bytes_per_s      = 1e4; /* a block takes 0.1024 s */
    must(usm__graph_simulate(graph, &d, &r));
    CHECK_INT(r.bytes_in, BLOCK + 4 * BLOCK + 4 * SMALL);
    CHECK_INT(r.bytes_out, 4 * BLOCK + 4 * SMALL + BLOCK);
    /* inputs of all parts but the first are copied while the one before is computed */
    about(r.seconds, cut + 1 + (latency + block + 4 * (2 + latency + small)) + join + 0.5);
    d.no_prefetch = true;
    must(usm__graph_simulate(graph, &d, &r));
    about(r.seconds, cut + 1 + 4 * (latency + block + 2 + latency + small) + join + 0.5);
    d.no_prefetch = false;
    speeds[0]     = 1e9; /* copies alone: one after the other, and those of results beside them */
    must(usm__graph_simulate(graph, &d, &r));
    about(r.seconds, cut + 4 * (latency + block) + latency + small + join);
    end();
}

static void joules_are_watts_by_seconds(void)
{
    static const double cap[] = {150};
    usm__sim_desc       d     = machine(2, 8, "energy");
    usm__sim_result     r;

    begin();
    devices[0].watts = devices[1].watts = 100;
    devices[0].idle_watts = devices[1].idle_watts = 10;
    d.policy.numbers                              = cap;
    d.policy.nnumbers                             = 1;
    must(usm__graph_simulate(graph, &d, &r)); /* one at a time */
    about(r.seconds, 9.5);
    about(r.joules, 9.5 * 100 + 9.5 * 10);
    d.policy = (usm_policy){.name = "adaptive"};
    must(usm__graph_simulate(graph, &d, &r));
    about(r.seconds, 5.5);
    about(r.joules, 9.5 * 100 + (2 * 5.5 - 9.5) * 10);
    end();
}

static void a_device_without_the_image_gets_other_nodes(void)
{
    usm__sim_desc   d = machine(2, 8, "adaptive");
    usm__sim_result r;

    begin();
    lacks_merge = 1 << 0;
    must(usm__graph_simulate(graph, &d, &r));
    about(r.seconds, 5.5);
    lacks_merge = 3;
    CHECK_INT(usm__graph_simulate(graph, &d, &r), USM_E_NO_IMAGE);
    CHECK_IN("'join'", usm_last_error());
    end();
}

/* A machine of two devices, the second of which is a unit's. */
static usm__sim_desc with_unit(usm__sim_unit *unit, double latency, double bytes_per_s)
{
    usm__sim_desc d = machine(2, 16, "adaptive");

    *unit =
        (usm__sim_unit){.name = "far", .link = {latency, bytes_per_s}, .first = 1, .ndevices = 1};
    d.units  = unit;
    d.nunits = 1;
    return d;
}

/* 16 parts, as a unit does not make a run have more: 0.5 s each. */
static void units_share_the_work(void)
{
    usm__sim_unit   unit;
    usm__sim_desc   d = with_unit(&unit, 0, 1e9);
    usm__sim_result r;

    begin();
    must(usm__graph_simulate(graph, &d, &r));
    about(r.seconds, 1 + 4 + 0.5);
    CHECK_INT(r.launches, 18);
    CHECK(r.launches_of[1] >= 8);
    CHECK(r.bytes_over_links >= 8 * BLOCK + 8 * SMALL);
    about(r.busy_s[0] + r.busy_s[1], 9.5);
    end();
}

static void links_take_their_time(void)
{
    usm__sim_unit   unit;
    usm__sim_desc   d = with_unit(&unit, 0, 1e4); /* a block takes 0.1 s */
    usm__sim_result r;
    double          whole;

    begin();
    lacks_cut = lacks_merge = 1 << 1; /* the unit only works */
    must(usm__graph_simulate(graph, &d, &r));
    whole = r.seconds;
    CHECK(whole > 5.5 + 0.1 && whole < 9);
    CHECK_INT(r.bytes_over_links, r.launches_of[1] * (BLOCK + SMALL));
    unit.link.bytes_per_s /= 4;
    must(usm__graph_simulate(graph, &d, &r));
    CHECK(r.seconds > whole);
    unit.link.bytes_per_s = 100; /* ten seconds a block: no use */
    must(usm__graph_simulate(graph, &d, &r));
    about(r.seconds, 9.5);
    CHECK_INT(r.launches_of[1], 0);
    end();
}

/* Home cannot work: each part goes to the unit and comes back. */
static void a_unit_alone_is_waited_for(void)
{
    usm__sim_unit   unit;
    usm__sim_desc   d = with_unit(&unit, 0.2, 1e4);
    usm__sim_result r;
    const double    block = BLOCK / 1e4, small = SMALL / 1e4;

    begin();
    lacks_cut = lacks_merge = 1 << 1;
    lacks_work              = 1 << 0;
    must(usm__graph_simulate(graph, &d, &r));
    /* The first block and its task travel there, the end of the last launch back; then home asks for
     * all blocks, and gets them. */
    about(r.seconds, 1 + block + 0.1 + 8 + 0.1 + 0.1 + 16 * small + 0.1 + 0.5);
    CHECK_INT(r.launches_of[1], r.launches - 2);
    CHECK_INT(r.bytes_over_links, r.launches_of[1] * (BLOCK + SMALL));
    end();
}

static void wrong_machines_are_refused(void)
{
    usm__sim_unit   unit;
    usm__sim_desc   d = machine(1, 8, "adaptive");
    usm__sim_result r;

    begin();
    d.ndevices = 0;
    CHECK_INT(usm__graph_simulate(graph, &d, &r), USM_E_INVALID);
    CHECK_IN("1 to 256 devices", usm_last_error());
    d                      = machine(1, 8, "adaptive");
    devices[0].bytes_per_s = 0;
    CHECK_INT(usm__graph_simulate(graph, &d, &r), USM_E_INVALID);
    CHECK_IN("sim:0", usm_last_error());
    d = machine(1, 8, "guided");
    CHECK_INT(usm__graph_simulate(graph, &d, &r), USM_E_INVALID);
    CHECK_IN("guided", usm_last_error());
    d = with_unit(&unit, 0, 0);
    CHECK_INT(usm__graph_simulate(graph, &d, &r), USM_E_INVALID);
    CHECK_IN("link to unit 'far'", usm_last_error());
    d          = with_unit(&unit, 0, 1);
    unit.first = 0;
    CHECK_INT(usm__graph_simulate(graph, &d, &r), USM_E_INVALID);
    CHECK_IN("a device here", usm_last_error());
    end();
}

static usm_status try_few(uint32_t parts, uint32_t launches, double *took, double *first)
{
    usm__graph_try_desc d        = {.parts = parts, .launches = launches, .chunks = 1};
    usm__tried_call     calls[4] = {{NULL, 0, 0}};

    return usm__graph_try(graph, &d, took, first, calls);
}

static void the_graph_stays_as_it_is(void)
{
    usm__sim_desc   d = machine(2, 32, "adaptive");
    usm__sim_result r;
    const void     *data;
    size_t          size;
    uint8_t         before[BLOCK];
    double          took[4], first[4];

    begin();
    must(usm_graph_run(graph, NULL, NULL));
    must(usm_graph_get_output(graph, JOIN, &data, &size));
    CHECK_INT(size, BLOCK);
    memcpy(before, data, size);
    must(usm__graph_simulate(graph, &d, &r));
    must(usm_graph_get_output(graph, JOIN, &data, &size)); /* of the run, still */
    CHECK(memcmp(before, data, size) == 0);
    must(try_few(16, 2, took, first));
    must(usm_graph_run(graph, NULL, NULL));
    must(usm_graph_get_output(graph, JOIN, &data, &size));
    CHECK(memcmp(before, data, size) == 0);
    end();
}

static uint64_t launches_so_far(void)
{
    usm_team_member m   = {.struct_size = sizeof m};
    uint64_t        sum = 0;

    for (uint32_t i = 0; i < usm_team_size(team); i++) {
        must(usm_team_get_member(team, i, &m));
        sum += m.chunks;
    }
    return sum;
}

static void a_trial_executes_few_launches(void)
{
    double took[4] = {0}, first[4] = {0};

    begin();
    must(try_few(64, 3, took, first));
    CHECK_INT(launches_so_far(), 1 + 3 + 1);
    for (int i = CUT; i <= JOIN; i++)
        CHECK(took[i] > 0 && first[i] > 0);
    CHECK_INT(usm__graph_parts_had(graph, WORK), 64);
    CHECK_INT(usm__graph_parts_had(graph, JOIN), 64);
    must(try_few(2, 3, took, first)); /* there are fewer */
    CHECK_INT(launches_so_far(), 5 + 1 + 2 + 1);
    end();
}

static const plain_case cases[] = {
    CASE(one_device_takes_the_sum),
    CASE(devices_share_by_their_speeds),
    CASE(few_parts_leave_a_device_idle),
    CASE(copies_take_their_time),
    CASE(joules_are_watts_by_seconds),
    CASE(a_device_without_the_image_gets_other_nodes),
    CASE(units_share_the_work),
    CASE(links_take_their_time),
    CASE(a_unit_alone_is_waited_for),
    CASE(wrong_machines_are_refused),
    CASE(the_graph_stays_as_it_is),
    CASE(a_trial_executes_few_launches),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
