/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The computation `idw` (idw.h) in C, with loops that a compiler vectorises: the innermost runs
 * over the pixels of a tile, of one row. */
#include "idw.h"

#define TILE 64u

static void compute_tile(const struct idw_package *p, float lat, const float *restrict lon,
                         float *restrict out)
{
    float weighted[TILE] = {0}, weights[TILE] = {0};

    for (int32_t i = 0; i < p->npoints; i++) {
        const float *point = p->points + 3 * (size_t)i;
        const float  dlat = lat - point[0], dlat2 = dlat * dlat;

        for (unsigned k = 0; k < TILE; k++) {
            const float dlon   = lon[k] - point[1];
            const float sum    = dlon * dlon + dlat2;
            const float d2     = sum < IDW_NEAREST ? IDW_NEAREST : sum;
            const float weight = 1.0f / d2;

            weighted[k] += weight * point[2];
            weights[k] += weight;
        }
    }
    for (unsigned k = 0; k < TILE; k++)
        out[k] = weighted[k] / weights[k];
}

void idw_pixels(const struct idw_package *p, size_t begin, size_t end, float *out)
{
    const size_t width = (size_t)p->width;

    for (size_t pixel = begin; pixel < end; pixel += TILE, out += TILE) {
        const size_t row = pixel / width, column = pixel % width;
        float        lon[TILE];

        for (unsigned k = 0; k < TILE; k++)
            lon[k] = p->lon0 + ((float)column + (float)k) * p->dlon;
        compute_tile(p, p->lat0 + (float)row * p->dlat, lon, out);
    }
}
