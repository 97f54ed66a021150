/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kernels for tests of graphs, as OpenCL C and in C, and what they compute, serially. */
#ifndef GRAPH_KERNELS_H
#define GRAPH_KERNELS_H

#include <stdint.h>
#include <usm/graph.h>
#include <usm/usm.h>

void serial_process(const uint8_t *in, uint32_t in_size, uint8_t *out, uint32_t out_size);
void serial_partition(const uint8_t *in, uint32_t in_size, uint32_t parts, uint8_t *out,
                      uint32_t part_size);
void serial_merge(const uint8_t *in, uint32_t in_size, uint32_t parts, uint8_t *out,
                  uint32_t out_size);

/* The three of them, as one program with an image for each device there is. */
enum { KERNEL_PROCESS, KERNEL_PARTITION, KERNEL_MERGE, KERNELS };
typedef struct kernels {
    usm_team_kernel *k[KERNELS];
} kernels;
usm_status kernels_create(usm_team *team, kernels *out);
void       kernels_destroy(kernels *k);

#endif
