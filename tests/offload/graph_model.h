/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of graph_model: a random graph, and units that execute it. */
#ifndef GRAPH_MODEL_H
#define GRAPH_MODEL_H

#include "graph_kernels.h"

#include <stdbool.h>

enum { NODES_MAX = 14, INPUTS_MAX = 3, PARTS_MAX = 5, SIZE_MAX_OUT = 90 };

typedef struct node {
    usm_node_kind kind;
    uint32_t      inputs[INPUTS_MAX], ninputs;
    uint32_t      scope; /* the partitioner whose parts it has; UINT32_MAX */
    bool          is_after, is_read;
    uint32_t      blocks, size;
    uint8_t      *data; /* by the serial execution */
} node;

extern node     nodes[NODES_MAX];
extern uint32_t nnodes;

/* A random number, of the seed. */
uint32_t below(uint32_t n);
/* The bytes that part `part` of a node reads; data: the blocks of each node. */
uint32_t gather(const node *n, uint8_t *const *data, uint32_t part, uint8_t *in, uint32_t *blocks);
/* Executes one launch of a node over them. */
void compute(const node *n, uint8_t *const *data, uint32_t part);

/* ---- graph_model_units.c */
usm_status run_with_units(usm_graph *g, const usm_graph_run_desc *d, uint64_t seed);
/* What has happened to units so far; ends the program if something never did. */
void print_units(void);

#endif
