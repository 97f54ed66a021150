/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Is a grid right?  Plain C, one pixel after the other, without libusm; for main.c.
 *
 * Each pixel is computed twice: in float as the kernels do it, which tells whether a device did
 * what it was asked, and in double with its own cosine, which tells what float arithmetic costs and
 * would show a formula that is wrong in all three places. */
#include "idw.h"

#include "../common/clock.h"

#include <math.h>

#define SAMPLE_STEP 64u /* of a row's pixels; the first moves from row to row */

/* What may differ.  Divisions on a GPU may be 2.5 ulp off, which changes how each of thousands of
 * additions rounds.  Floats round positions to half a metre, which counts beside an airport: 1.5e-3
 * were seen.  Any mistake in a kernel changes far more. */
#define MOST_ULP          64.0f
#define MOST_FROM_DOUBLES 5e-3

static float in_floats(const struct idw_input *in, uint32_t row, uint32_t column)
{
    const struct idw_points *p = in->points;
    const float pixel_east     = in->grid->first_east + in->grid->step_east * (float)column;
    float       weighted = 0.0f, weights = 0.0f;

    for (size_t i = 0; i < p->n; i++) {
        float dx = (pixel_east - p->east[i]) * in->grid->row_scale[row];
        float dy = in->grid->row_north[row] - p->north[i];
        float d2 = dx * dx + dy * dy, product;

        if (d2 < IDW_NEAREST_KM * IDW_NEAREST_KM)
            d2 = IDW_NEAREST_KM * IDW_NEAREST_KM;
        product = d2;
        for (unsigned k = 2; k < in->power; k += 2)
            product *= d2;
        weighted += 1.0f / product * p->height[i];
        weights += 1.0f / product;
    }
    return weighted / weights;
}

static double in_doubles(const struct idw_input *in, uint32_t row, uint32_t column)
{
    const struct idw_points *p    = in->points;
    const double             size = in->grid->size, radians = 0.017453292519943295;
    const double             pixel_east  = idw_west + (column + 0.5) * (idw_east - idw_west) / size;
    const double             pixel_north = idw_north - (row + 0.5) * (idw_north - idw_south) / size;
    const double             scale       = cos(pixel_north * radians) * IDW_KM_PER_DEGREE;
    double                   weighted = 0.0, weights = 0.0;

    for (size_t i = 0; i < p->n; i++) {
        double dx = (pixel_east - (double)p->east[i]) * scale;
        double dy = pixel_north * IDW_KM_PER_DEGREE - (double)p->north[i];
        double d2 = dx * dx + dy * dy, product;

        if (d2 < IDW_NEAREST_KM * IDW_NEAREST_KM)
            d2 = IDW_NEAREST_KM * IDW_NEAREST_KM;
        product = d2;
        for (unsigned k = 2; k < in->power; k += 2)
            product *= d2;
        weighted += (double)p->height[i] / product;
        weights += 1.0 / product;
    }
    return weighted / weights;
}

/* The distance of two floats beside b, or beside 1 where b is smaller. */
static float ulps(float difference, float b)
{
    float scale = fabsf(b) < 1.0f ? 1.0f : fabsf(b);

    return fabsf(difference) / (nextafterf(scale, INFINITY) - scale);
}

/* What is not a number counts as infinitely far. */
static void compare_pixel(struct idw_difference *d, const struct idw_input *in, float seen,
                          uint32_t row, uint32_t column)
{
    float  wanted  = in_floats(in, row, column);
    double exactly = in_doubles(in, row, column);
    float  ulp     = isfinite(seen) ? ulps(seen - wanted, wanted) : INFINITY;
    double far =
        isfinite(seen) ? fabs((double)seen - exactly) / fmax(fabs(exactly), 1.0) : INFINITY;

    if (ulp > d->ulp || d->pixels == 0) {
        d->ulp      = ulp;
        d->relative = fabs((double)seen - (double)wanted) / fmax(fabs((double)wanted), 1.0);
        d->row      = row;
        d->column   = column;
    }
    if (far > d->from_doubles)
        d->from_doubles = far;
    d->pixels++;
}

struct idw_difference idw_compare(const struct idw_input *input, const float *heights, bool all,
                                  idw_progress_fn progress)
{
    const uint32_t        size = input->grid->size, step = all ? 1 : SAMPLE_STEP;
    const double          start_s    = clock_now_s();
    struct idw_difference difference = {0};

    for (uint32_t row = 0; row < size; row++) {
        for (uint32_t column = row * 37 % step; column < size; column += step)
            compare_pixel(&difference, input, heights[(size_t)row * input->grid->pitch + column],
                          row, column);
        if (progress)
            progress((uint64_t)(row + 1) * size, (uint64_t)size * size, start_s);
    }
    return difference;
}

bool idw_difference_passes(const struct idw_difference *difference)
{
    return difference->pixels > 0 && difference->ulp <= MOST_ULP &&
           difference->from_doubles <= MOST_FROM_DOUBLES;
}
