/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where the pixels lie: the window of degrees and the tables of its rows; for main.c. */
#include "idw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define RADIANS 0.017453292519943295

/* The points reach from -124.6 to -67.0 and from 24.6 to 49.0; the land a little further. */
const double idw_west = -125.0, idw_east = -66.7, idw_south = 24.3, idw_north = 49.6;

bool idw_grid_init(struct idw_grid *grid, uint32_t size)
{
    const double step_east  = (idw_east - idw_west) / size,
                 step_south = (idw_north - idw_south) / size;

    *grid = (struct idw_grid){.size       = size,
                              .pitch      = (size + IDW_LANES - 1) / IDW_LANES * IDW_LANES,
                              .first_east = (float)(idw_west + 0.5 * step_east),
                              .step_east  = (float)step_east,
                              .row_north  = malloc(size * sizeof(float)),
                              .row_scale  = malloc(size * sizeof(float))};
    if (!grid->row_north || !grid->row_scale) {
        fprintf(stderr, "idw: out of memory\n");
        idw_grid_fini(grid);
        return false;
    }
    for (uint32_t row = 0; row < size; row++) {
        double north = idw_north - (row + 0.5) * step_south;

        grid->row_north[row] = (float)(north * IDW_KM_PER_DEGREE);
        grid->row_scale[row] = (float)(cos(north * RADIANS) * IDW_KM_PER_DEGREE);
    }
    return true;
}

void idw_grid_fini(struct idw_grid *grid)
{
    free(grid->row_north);
    free(grid->row_scale);
    *grid = (struct idw_grid){0};
}
