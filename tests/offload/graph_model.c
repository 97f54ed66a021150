/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* graph_model [--seed N] [--seeds COUNT] [--seconds S] [--all | --units | --served]
 *
 * Random graphs give what their serial execution gives, to the byte; each seed is a graph, run in
 * two ways.  --all: over all devices together, the host too, instead of the selected one.
 * --units: with units that come, fail and are lost (graph_model_units.c).  --served: once, as a server
 * that has such units (graph_model_serve.c). */
#include "graph_model.h"
#include "budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

node            nodes[NODES_MAX];
uint32_t        nnodes;
static uint64_t seed_state;

uint32_t below(uint32_t n)
{
    seed_state = seed_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed_state >> 33) % n;
}

static void die(const char *what)
{
    printf("%s: %s\n", what, usm_last_error());
    exit(1);
}

/* ---- a random graph
 * ------------------------------------------------------------------------------ */

static bool reads(const node *n, uint32_t other)
{
    for (uint32_t i = 0; i < n->ninputs; i++)
        if (n->inputs[i] == other)
            return true;
    return false;
}

static void read_from(node *n, uint32_t other)
{
    if (n->ninputs == INPUTS_MAX || reads(n, other))
        return;
    n->inputs[n->ninputs++] = other;
    nodes[other].is_read    = true;
    n->is_after |= nodes[other].is_after || nodes[other].kind == USM_NODE_PARTITION;
}

/* One of those that have parts; UINT32_MAX where there is none. */
static uint32_t with_parts(void)
{
    uint32_t start = below(nnodes);

    for (uint32_t i = 0; i < nnodes; i++)
        if (nodes[(start + i) % nnodes].scope != UINT32_MAX)
            return (start + i) % nnodes;
    return UINT32_MAX;
}

static void make_node(node *n)
{
    uint32_t parted = nnodes ? with_parts() : UINT32_MAX;
    uint32_t dice   = below(10);

    *n = (node){.scope = UINT32_MAX, .blocks = 1, .size = 1 + below(SIZE_MAX_OUT)};
    if (nnodes == 0 || dice == 0) {
        n->kind = USM_NODE_INPUT;
        return;
    }
    n->kind = dice < 3 ? USM_NODE_PROCESS : dice < 5 ? USM_NODE_PARTITION : USM_NODE_EXPANDABLE;
    if (dice >= 8)
        n->kind = USM_NODE_MERGE;
    if (parted == UINT32_MAX && n->kind > USM_NODE_PARTITION)
        n->kind = USM_NODE_PROCESS;
    read_from(n,
              n->kind > USM_NODE_PARTITION || n->kind == USM_NODE_MERGE ? parted : below(nnodes));
    for (uint32_t i = below(INPUTS_MAX); i > 0; i--) {
        uint32_t other = below(nnodes);

        if (n->kind == USM_NODE_MERGE && nodes[other].size != nodes[parted].size)
            continue;
        if (n->kind == USM_NODE_EXPANDABLE && nodes[other].scope != UINT32_MAX &&
            nodes[other].scope != nodes[parted].scope)
            continue;
        read_from(n, other);
    }
    if (n->kind == USM_NODE_PARTITION) {
        n->scope  = nnodes;
        n->blocks = 1 + below(PARTS_MAX);
    } else if (n->kind == USM_NODE_EXPANDABLE) {
        n->scope  = nodes[parted].scope;
        n->blocks = nodes[n->scope].blocks;
    } else if (n->kind == USM_NODE_PROCESS && below(3) == 0) {
        n->kind = USM_NODE_CALL;
    }
}

/* ---- its serial execution
 * ------------------------------------------------------------------------ */

uint32_t gather(const node *n, uint8_t *const *data, uint32_t part, uint8_t *in, uint32_t *blocks)
{
    uint32_t size = 0;

    *blocks = 0;
    for (uint32_t i = 0; i < n->ninputs; i++) {
        const node *from   = &nodes[n->inputs[i]];
        bool        is_one = n->kind == USM_NODE_EXPANDABLE && from->scope != UINT32_MAX;
        uint32_t    bytes  = is_one ? from->size : from->size * from->blocks;

        memcpy(in + size, data[n->inputs[i]] + (is_one ? part * from->size : 0), bytes);
        size += bytes;
        *blocks += is_one ? 1 : from->blocks;
    }
    return size;
}

void compute(const node *n, uint8_t *const *data, uint32_t part)
{
    static uint8_t in[INPUTS_MAX * PARTS_MAX * SIZE_MAX_OUT];
    uint8_t       *out = data[n - nodes];
    uint32_t       blocks, size = gather(n, data, part, in, &blocks);

    if (n->kind == USM_NODE_PARTITION)
        serial_partition(in, size, n->blocks, out, n->size);
    else if (n->kind == USM_NODE_MERGE)
        serial_merge(in, size, blocks, out, n->size);
    else
        serial_process(in, size, out + part * n->size, n->size);
}

static void evaluate(node *n)
{
    uint8_t *data[NODES_MAX];

    n->data = malloc((size_t)n->size * n->blocks);
    if (!n->data)
        exit(1);
    for (uint32_t i = 0; i <= nnodes; i++)
        data[i] = nodes[i].data;
    for (uint32_t i = 0; i < n->size && n->kind == USM_NODE_INPUT; i++)
        n->data[i] = (uint8_t)below(256);
    for (uint32_t i = 0; i < n->blocks && n->kind != USM_NODE_INPUT; i++)
        if (i == 0 || n->kind != USM_NODE_PARTITION)
            compute(n, data, i);
}

/* ---- by libusm
 * ----------------------------------------------------------------------------------- */

static usm_status call(const void *in, size_t in_size, void *out, size_t out_size, void *user)
{
    (void)user;
    serial_process(in, (uint32_t)in_size, out, (uint32_t)out_size);
    return USM_OK;
}

static usm_graph *build(usm_team *team, const kernels *k)
{
    usm_graph *g;

    if (usm_graph_create(team, &g) != USM_OK)
        die("usm_graph_create");
    for (uint32_t i = 0; i < nnodes; i++) {
        const node   *n = &nodes[i];
        usm_node_desc d = USM_NODE_DESC_INIT;
        char          name[16];
        uint32_t      number;

        (void)snprintf(name, sizeof name, "n%u", i);
        d.kind = n->kind;
        d.name = name;
        d.work = 1 + i % 3;
        if (n->kind == USM_NODE_INPUT) {
            d.data = n->data;
            d.size = n->size;
        } else if (n->kind == USM_NODE_CALL) {
            d.call     = call;
            d.out_size = n->size;
        } else {
            d.kernel    = k->k[n->kind == USM_NODE_PARTITION ? KERNEL_PARTITION
                               : n->kind == USM_NODE_MERGE   ? KERNEL_MERGE
                                                             : KERNEL_PROCESS];
            d.out_size  = n->size;
            d.dims      = i % 2;
            d.global[0] = 4;
            d.parts     = n->kind == USM_NODE_PARTITION ? n->blocks : 0;
        }
        if (usm_graph_add(g, &d, &number) != USM_OK || number != i)
            die("usm_graph_add");
    }
    for (uint32_t i = nnodes; i-- > 0;)
        for (uint32_t j = 0; j < nodes[i].ninputs; j++)
            if (usm_graph_connect(g, nodes[i].inputs[j], i) != USM_OK)
                die("usm_graph_connect");
    return g;
}

static void compare(usm_graph *g, uint64_t seed)
{
    for (uint32_t i = 0; i < nnodes; i++) {
        const void *data;
        size_t      size;

        if (nodes[i].is_read)
            continue;
        if (usm_graph_get_output(g, i, &data, &size) != USM_OK)
            die("usm_graph_get_output");
        if (size == (size_t)nodes[i].size * nodes[i].blocks &&
            memcmp(data, nodes[i].data, size) == 0)
            continue;
        printf("seed %llu: node n%u differs from its serial execution\n", (unsigned long long)seed,
               i);
        exit(1);
    }
}

static usm_status make_team(bool is_all, usm_team **team)
{
    usm_device   *devices[16];
    usm_team_desc d = USM_TEAM_DESC_INIT;
    usm_status    st;

    if (!is_all)
        return usm_team_create(NULL, team);
    st         = usm_select_devices("*:*;host:*", devices, 16, &d.ndevices);
    d.devices  = devices;
    d.ndevices = d.ndevices < 16 ? d.ndevices : 16;
    return st == USM_OK ? usm_team_create(&d, team) : st;
}

/* How a graph is run. */
typedef enum mode { ALONE, UNITS, SERVED } mode;

static void run_graph(usm_graph *g, mode m, uint64_t seed)
{
    usm_graph_run_desc d        = USM_GRAPH_RUN_DESC_INIT;
    usm_graph_run_desc standard = USM_GRAPH_RUN_DESC_INIT;

    d.no_prefetch = seed % 2;
    for (int i = 0; i < 2; i++) {
        usm_status st = m == UNITS ? run_with_units(g, i ? &d : &standard, seed)
                                   : usm_graph_run(g, i ? &d : NULL, NULL);

        if (st != USM_OK)
            die("usm_graph_run");
        compare(g, seed);
    }
}

static void run_seed(usm_team *team, const kernels *k, mode m, uint64_t seed)
{
    usm_graph *g;

    seed_state = seed * 2654435761u + 1;
    for (nnodes = 0; nnodes < 3 + seed % (NODES_MAX - 2);) {
        make_node(&nodes[nnodes]);
        evaluate(&nodes[nnodes]);
        nnodes++;
    }
    g = build(team, k);
    if (m != SERVED)
        run_graph(g, m, seed);
    else if (run_served(g) != USM_OK)
        die("usm__graph_serve");
    usm_graph_destroy(g);
    for (uint32_t i = 0; i < nnodes; i++) {
        free(nodes[i].data);
        nodes[i].is_read = false;
    }
}

int main(int argc, char **argv)
{
    budget    seeds  = {.first = 0, .most = 100};
    bool      is_all = false;
    mode      m      = ALONE;
    usm_team *team;
    uint32_t  members;
    uint64_t  seed;
    kernels   k = {{NULL}};

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--all") == 0)
            is_all = true;
        else if (strcmp(argv[i], "--units") == 0)
            m = UNITS;
        else if (strcmp(argv[i], "--served") == 0)
            m = SERVED;
        else if (!budget_option(&seeds, argc, argv, &i))
            return 2;
    if (make_team(is_all, &team) != USM_OK || kernels_create(team, &k) != USM_OK)
        die("the team");
    members = usm_team_size(team);
    while (budget_next(&seeds, &seed))
        run_seed(team, &k, m, seed);
    kernels_destroy(&k);
    usm_team_destroy(team);
    budget_print(&seeds);
    if (m == UNITS)
        print_units();
    if (m == SERVED)
        print_served();
    printf(": %llu random graphs equal their serial execution on %u devices\n",
           (unsigned long long)seeds.ran, members);
    return 0;
}
