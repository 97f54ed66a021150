/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The computation `idw`: inverse-distance interpolation on a plane, over points that are made up.
 *
 * The value of a pixel is sum of value[i] / d2[i] over sum of 1 / d2[i], over all points i, where
 * d2 is the square of the distance in degrees.  Every sum is of floats, in the points' order, and
 * nothing is contracted: idw.cl and idw_pixels() give the same bits where divisions are rounded
 * correctly. */
#ifndef BASELINE_IDW_H
#define BASELINE_IDW_H

#include <stddef.h>
#include <stdint.h>

#define IDW_LANES   8u   /* pixels of a work-item of idw.cl, neighbours in a row                 */
#define IDW_LOCAL   32u  /* work-items of a work-group                                           */
#define IDW_GROUP   256u /* pixels of a work-group: what chunks are multiples of                 */
#define IDW_NEAREST 1e-12f /* squares of distances count as at least that */

/* What goes to a device: 28 bytes and the points.  Pixel i is in row i / width, column i % width.
 */
struct idw_package {
    int32_t width, height, npoints;
    float   lat0, lon0, dlat, dlon; /* of row 0 and column 0; from one to the next */
    float   points[];               /* latitude, longitude, value of each          */
};

/* Points by a generator of fixed seed in the box of the original's data, values 5 to 50, under a
 * grid of side x side pixels; side a multiple of 64.  The caller frees it; NULL: out of memory. */
struct idw_package *idw_package_create(int64_t npoints, int64_t side);
size_t              idw_package_bytes(const struct idw_package *package);

static inline int64_t idw_groups(const struct idw_package *package)
{
    return (int64_t)package->width * package->height / IDW_GROUP;
}

/* The pixels [begin, end) into out[0] and on; both multiples of 64. */
void idw_pixels(const struct idw_package *package, size_t begin, size_t end, float *out);

/* FNV-1a of 64 bits over the bits of all pixels. */
uint64_t idw_checksum(const struct idw_package *package, const float *image);
/* Against the formula in double arithmetic, each 61st pixel; ends the process when it is wrong. */
void idw_verify(const struct idw_package *package, const float *image);

#endif
