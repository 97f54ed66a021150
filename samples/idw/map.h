/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the parts of the map share. */
#ifndef IDW_MAP_H
#define IDW_MAP_H

#include "albers.h"
#include "canvas.h"
#include "idw.h"

/* relief.c ---------------------------------------------------------------------------------- */

/* The colour of a height in metres, without any light. */
struct rgb relief_tint(float metres);
/* Paints the heights, tinted and lit from the north-west, where the stencil is. */
bool relief_paint(struct canvas *canvas, const struct frame *frame, const struct idw_grid *grid,
                  const float *heights);

/* borders.c --------------------------------------------------------------------------------- */

struct borders {
    size_t        nrings;
    size_t       *starts; /* [nrings + 1] indices into corners */
    struct point *corners;
};

/* Reads states_us.csv, which is linked into the program, and lays it into the picture. */
bool borders_load(struct borders *borders, const struct frame *frame);
void borders_fini(struct borders *borders);
/* Adds the land, all rings together, to the stencil; false: out of memory. */
bool borders_fill(struct canvas *canvas, const struct borders *borders);
void borders_draw(struct canvas *canvas, const struct borders *borders, double width);

#endif
