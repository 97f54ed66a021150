/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A graph of launches over bytes that are given, for grant_model.c: usm_graph_run() beside commands
 * over buffers.  Any thread, several at once. */
#ifndef SPILL_GRANT_GRAPH_H
#define SPILL_GRANT_GRAPH_H

#include <usm/usm.h>

#include <stdbool.h>

#define GRAPH_SIZE 1000 /* most bytes */

/* The team of the selected devices; false: none of them runs kernels. */
bool grant_graph_open(void);
void grant_graph_close(void);
/* From `in`, which a launch may read where it lies, to `out`: `size` bytes each.
 *   USM_E_BUDGET, USM_E_NO_MEMORY  of what a graph takes for itself: nothing was done */
usm_status grant_graph_run(const unsigned char *in, unsigned char *out, size_t size);
/* What that writes. */
void grant_graph_serially(const unsigned char *in, unsigned char *out, size_t size);

#endif
