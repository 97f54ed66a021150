/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where the blocks of a graph lie while units take part in its run (graph_units.h), and how long
 * they take to get elsewhere: pure functions.
 *
 *     unit 1 <---link 1---> home <---link 2---> unit 2
 *
 * Home is the process that runs the graph.  Every unit has a link to home and to nobody else, so a
 * block goes from unit to unit over two links.  A place is 0 for home, n for unit n - 1; a set of
 * places has one bit for each. */
#ifndef USM_OFFLOAD_GRAPH_WHERE_H
#define USM_OFFLOAD_GRAPH_WHERE_H

#include <stdint.h>

enum { USM__UNITS_MAX = 63 };

#define USM__PLACE_HOME UINT64_C(1)

static inline uint64_t usm__place_bit(uint32_t place)
{
    return UINT64_C(1) << place;
}

/* ---- links ----------------------------------------------------------------------------------- */

typedef struct usm__link {
    double latency;     /* of a short message and its answer, in seconds; 0: not measured */
    double bytes_per_s; /* 0: not measured */
} usm__link;

/* A transfer of so many bytes, with its answer, took so long.  Short ones measure the latency. */
void usm__link_measure(usm__link *l, uint64_t bytes, double seconds);
/* How long a transfer would take. */
double usm__link_seconds(const usm__link *l, uint64_t bytes);

/* ---- routes ---------------------------------------------------------------------------------- */

/* The transfers that bring the inputs of a task to a place: bytes over each link. */
typedef struct usm__route {
    uint64_t bytes[USM__UNITS_MAX];
} usm__route;

/* The unit with the fastest link of the places that have a block, as a place; 0: none has it. */
uint32_t usm__place_nearest(const usm__link *links, uint32_t nlinks, uint64_t places);
/* A block that lies at `from`, a set of places, is needed at the place `to`. */
void   usm__route_add(usm__route *r, const usm__link *links, uint32_t nlinks, uint64_t from,
                      uint64_t bytes, uint32_t to);
double usm__route_seconds(const usm__route *r, const usm__link *links, uint32_t nlinks);

#endif
