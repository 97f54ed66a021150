/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The graph of one tile, and the three ways to get its temporaries. */
#ifndef ASYNC_GRAPH_GRAPH_H
#define ASYNC_GRAPH_GRAPH_H

#include "kernels.h"
#include "picture.h"

#include <stdint.h>

#define MAX_QUEUES 16

typedef enum way {
    TILE_BY_TILE, /* usm_free(), after a wait for the queue, before it gets its next tile */
    AT_THE_END,   /* usm_free(), after all is done                                        */
    IN_ORDER,     /* usm_async_free()                                                     */
    WAYS
} way;

/* Where temporaries come from, and what was done to have them so far. */
typedef struct memory {
    way      how;
    void   **kept[MAX_QUEUES + 1]; /* what usm_free() has yet to get, by queue */
    size_t   nkept[MAX_QUEUES + 1], room[MAX_QUEUES + 1];
    uint64_t allocations, waits; /* waits: times that the host waited            */
} memory;

/* The queue works of a graph: tiles go to `of` by turns, results leave through `out`. */
typedef struct queues {
    usm_queue *of[MAX_QUEUES + 1]; /* the last one is `out` */
    size_t     n;
} queues;

/* Memory for commands of queue i.  NULL on failure. */
void *memory_get(memory *m, const queues *qs, size_t i, size_t size);
/* Commands of queue i are the last to use p.  NULL is fine. */
void memory_put(memory *m, const queues *qs, size_t i, void *p);
/* Before queue i gets another tile; before the end. */
usm_status memory_turn(memory *m, const queues *qs, size_t i);
usm_status memory_end(memory *m, const queues *qs);

/* Who works on a tile: queue i of qs. */
typedef struct lane {
    memory        *m;
    const queues  *qs;
    const kernels *k;
    size_t         i;
} lane;

typedef struct tile {
    const picture *of;
    int            x, y, side; /* pixels */
} tile;

/* Queues all that makes the tile's part of `result` (of host memory, as wide as the picture): on
 * the lane's queue, and the last step on the queue for results.  Never waits. */
usm_status tile_submit(const lane *l, tile t, float *result);

#endif
