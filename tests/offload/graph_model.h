/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of graph_model: a random graph, units that execute it, and a server. */
#ifndef GRAPH_MODEL_H
#define GRAPH_MODEL_H

#include "graph_kernels.h"

#include "offload/graph_units.h"

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
usm__unit_crew units_open(bool has_immortal);
void           units_close(void);
uint64_t       units_dropped(void); /* how often a unit was told to drop blocks */
usm_status     run_with_units(usm_graph *g, const usm_graph_run_desc *d, uint64_t seed);
/* What has happened to units so far; ends the program if something never did. */
void print_units(void);

/* ---- graph_model_serve.c */
usm_status run_served(usm_graph *g);
void       print_served(void);

#endif
