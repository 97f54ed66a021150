/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The points of `idw` (idw.h), and whether a result is right. */
#include "idw.h"

#include "baseline.h"

#include <math.h>
#include <stdlib.h>

#define NORTH 54.617f
#define SOUTH 54.317f
#define WEST  18.368f
#define EAST  18.754f

#define SAMPLE_STEP 61u
#define MOST_FAR    1e-4 /* of a value, relative: floats round positions near points */

/* Of [0, 1), 24 bits of a linear congruential generator. */
static float draw(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(*seed >> 40) * 0x1p-24f;
}

struct idw_package *idw_package_create(int64_t npoints, int64_t side)
{
    struct idw_package *p    = malloc(sizeof *p + 3 * sizeof(float) * (size_t)npoints);
    uint64_t            seed = 20170811;

    if (!p)
        return NULL;
    p->width = p->height = (int32_t)side;
    p->npoints           = (int32_t)npoints;
    p->lat0              = NORTH;
    p->lon0              = WEST;
    p->dlat              = (SOUTH - NORTH) / (float)side;
    p->dlon              = (EAST - WEST) / (float)side;
    for (int64_t i = 0; i < npoints; i++) {
        p->points[3 * i]     = SOUTH + (NORTH - SOUTH) * draw(&seed);
        p->points[3 * i + 1] = WEST + (EAST - WEST) * draw(&seed);
        p->points[3 * i + 2] = 5.0f + 45.0f * draw(&seed);
    }
    return p;
}

size_t idw_package_bytes(const struct idw_package *p)
{
    return sizeof *p + 3 * sizeof(float) * (size_t)p->npoints;
}

uint64_t idw_checksum(const struct idw_package *p, const float *image)
{
    const unsigned char *bytes = (const unsigned char *)image;
    const size_t         n     = sizeof *image * (size_t)p->width * (size_t)p->height;
    uint64_t             hash  = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

/* The positions are the floats that the kernels have: they are what is asked for. */
static double in_doubles(const struct idw_package *p, size_t pixel)
{
    const size_t width = (size_t)p->width, row = pixel / width, column = pixel % width;
    const float  lat = p->lat0 + (float)row * p->dlat, lon = p->lon0 + (float)column * p->dlon;
    double       weighted = 0.0, weights = 0.0;

    for (int32_t i = 0; i < p->npoints; i++) {
        const float *point = p->points + 3 * (size_t)i;
        const double dlat = (double)lat - (double)point[0], dlon = (double)lon - (double)point[1];
        const double d2 = fmax(dlat * dlat + dlon * dlon, (double)IDW_NEAREST);

        weighted += (double)point[2] / d2;
        weights += 1.0 / d2;
    }
    return weighted / weights;
}

void idw_verify(const struct idw_package *p, const float *image)
{
    const size_t n = (size_t)p->width * (size_t)p->height;

    for (size_t pixel = 0; pixel < n; pixel += SAMPLE_STEP) {
        const double wanted = in_doubles(p, pixel);

        if (!(fabs((double)image[pixel] - wanted) <= MOST_FAR * wanted))
            baseline_die("a pixel is not what the formula says");
    }
}
