/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* input -> process -> partition -> expandable -> merge (spill/grant_graph.h), over a team whose
 * contexts are its own: what it takes counts in the same limits as buffers do. */
#include "grant_graph.h"
#include "../offload/graph_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 5, PARTS = 3 };

static usm_team *team;
static kernels   made;

static size_t part_of(size_t size)
{
    return size / PARTS + 1;
}

/* From the driver as they are: a pool that keeps more than it needs for some bytes would take most
 * of the little memory there is, and commands that find none then fail, rightly. */
static usm_status open_team(void)
{
    unsigned char byte = 0;
    usm_status    st   = usm_config_set("pool", "direct");

    if (st == USM_OK)
        st = usm_team_create(NULL, &team);
    if (st == USM_OK)
        st = kernels_create(team, &made);
    if (st == USM_OK)
        st = grant_graph_run(&byte, &byte, 1); /* the pools are there now */
    return st;
}

bool grant_graph_open(void)
{
    usm_status st = open_team();

    if (st == USM_OK)
        st = usm_config_set("pool", NULL);
    if (st == USM_OK)
        return true;
    printf("# no graphs: %s: %s\n", usm_status_name(st), usm_last_error());
    grant_graph_close();
    (void)usm_config_set("pool", NULL);
    if (st != USM_E_NO_DEVICE && st != USM_E_NO_IMAGE)
        exit(1);
    return false;
}

void grant_graph_close(void)
{
    kernels_destroy(&made);
    usm_team_destroy(team);
}

static usm_node_desc node(const char *name, usm_node_kind kind, int kernel, size_t out_size)
{
    usm_node_desc d = USM_NODE_DESC_INIT;

    d.kind     = kind;
    d.name     = name;
    d.kernel   = made.k[kernel];
    d.out_size = out_size;
    d.parts    = kind == USM_NODE_PARTITION ? PARTS : 0;
    return d;
}

static usm_status run(usm_graph *g, const unsigned char *in, unsigned char *out, size_t size)
{
    usm_node_desc list[NODES] = {
        USM_NODE_DESC_INIT, node("process", USM_NODE_PROCESS, KERNEL_PROCESS, size),
        node("partition", USM_NODE_PARTITION, KERNEL_PARTITION, part_of(size)),
        node("expandable", USM_NODE_EXPANDABLE, KERNEL_PROCESS, part_of(size)),
        node("merge", USM_NODE_MERGE, KERNEL_MERGE, size)};
    const void *block;
    uint32_t    number;
    usm_status  st = USM_OK;

    list[0].kind = USM_NODE_INPUT;
    list[0].name = "input";
    list[0].data = in;
    list[0].size = size;
    for (uint32_t i = 0; st == USM_OK && i < NODES; i++) {
        st = usm_graph_add(g, &list[i], &number);
        if (st == USM_OK && i > 0)
            st = usm_graph_connect(g, i - 1, i);
    }
    if (st == USM_OK)
        st = usm_graph_run(g, NULL, NULL);
    if (st == USM_OK)
        st = usm_graph_get_output(g, NODES - 1, &block, &size);
    if (st == USM_OK)
        memcpy(out, block, size);
    return st;
}

usm_status grant_graph_run(const unsigned char *in, unsigned char *out, size_t size)
{
    usm_graph *g  = NULL;
    usm_status st = usm_graph_create(team, &g);

    if (st == USM_OK)
        st = run(g, in, out, size);
    usm_graph_destroy(g);
    return st;
}

void grant_graph_serially(const unsigned char *in, unsigned char *out, size_t size)
{
    unsigned char whole[GRAPH_SIZE], cut[PARTS * (GRAPH_SIZE / PARTS + 1)], parts[sizeof cut];
    uint32_t      n = (uint32_t)size, part = (uint32_t)part_of(size);

    serial_process(in, n, whole, n);
    serial_partition(whole, n, PARTS, cut, part);
    for (uint32_t i = 0; i < PARTS; i++)
        serial_process(cut + i * part, part, parts + i * part, part);
    serial_merge(parts, PARTS * part, PARTS, out, n);
}
