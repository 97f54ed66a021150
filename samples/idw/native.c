/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Inverse-distance interpolation: the kernel for devices that run C, such as the host.
 *
 * libusm calls idw_range() from its worker threads with disjoint ranges of the work-items that
 * idw.cl describes.  The loops are turned over: the innermost runs over the pixels of a tile, not
 * over the points, which a compiler can vectorise without changing the order of any sum. */
#include "idw.h"

#define TILE 64u /* pixels of one row that share a pass over the points */

struct args {
    const float *east, *north, *height;
    size_t       count;
    float        first_east, step_east, nearest2;
};

struct tile {
    float column_east[TILE];
    float weighted[TILE];
    float weights[TILE];
};

static inline float power_of(float d2, unsigned half_power)
{
    float product = d2;

    for (unsigned k = 1; k < half_power; k++)
        product *= d2;
    return product;
}

/* half_power is a constant once this is inlined. */
static inline void add_points(struct tile *restrict tile, const struct args *a, float row_north,
                              float row_scale, unsigned half_power)
{
    for (size_t i = 0; i < a->count; i++) {
        const float east = a->east[i], height = a->height[i];
        const float dy = row_north - a->north[i], dy2 = dy * dy;

        for (unsigned k = 0; k < TILE; k++) {
            const float dx  = (tile->column_east[k] - east) * row_scale;
            const float sum = dx * dx + dy2;
            const float d2  = sum < a->nearest2 ? a->nearest2 : sum;
            const float w   = 1.0f / power_of(d2, half_power);

            tile->weighted[k] += w * height;
            tile->weights[k] += w;
        }
    }
}

static void tile_begin(struct tile *tile, const struct args *a, size_t column)
{
    for (unsigned k = 0; k < TILE; k++) {
        tile->column_east[k] = a->first_east + a->step_east * ((float)column + (float)k);
        tile->weighted[k]    = 0.0f;
        tile->weights[k]     = 0.0f;
    }
}

static void compute_row(const struct args *a, float row_north, float row_scale, unsigned half_power,
                        float *heights, size_t begin, size_t end)
{
    struct tile tile;

    for (size_t column = begin; column < end; column += TILE) {
        size_t n = end - column < TILE ? end - column : TILE;

        tile_begin(&tile, a, column);
        switch (half_power) {
        case 1:
            add_points(&tile, a, row_north, row_scale, 1);
            break;
        case 2:
            add_points(&tile, a, row_north, row_scale, 2);
            break;
        case 3:
            add_points(&tile, a, row_north, row_scale, 3);
            break;
        default:
            add_points(&tile, a, row_north, row_scale, 4);
        }
        for (size_t k = 0; k < n; k++)
            heights[column + k] = tile.weighted[k] / tile.weights[k];
    }
}

#define POINTER(i) (*(float *const *)args[i])
#define NUMBER(i)  (*(const float *)args[i])
#define COUNT(i)   (*(const uint32_t *)args[i])

/* The arguments are those of the kernel in idw.cl, in its order. */
static void idw_range(const usm_range *range, void *const *args)
{
    const struct args a         = {.east       = POINTER(0),
                                   .north      = POINTER(1),
                                   .height     = POINTER(2),
                                   .count      = COUNT(3),
                                   .first_east = NUMBER(6),
                                   .step_east  = NUMBER(7),
                                   .nearest2   = NUMBER(8)};
    const float      *row_north = POINTER(4), *row_scale = POINTER(5);
    const size_t      pitch   = COUNT(10);
    float            *heights = POINTER(11);

    for (size_t row = range->begin[1]; row < range->end[1]; row++)
        compute_row(&a, row_north[row], row_scale[row], COUNT(9),
                    heights + (row - range->offset[1]) * pitch, range->begin[0] * IDW_LANES,
                    range->end[0] * IDW_LANES);
}

static const usm_arg_kind kinds[] = {
    USM_ARG_POINTER, USM_ARG_POINTER, USM_ARG_POINTER, USM_ARG_VALUE,
    USM_ARG_POINTER, USM_ARG_POINTER, USM_ARG_VALUE,   USM_ARG_VALUE,
    USM_ARG_VALUE,   USM_ARG_VALUE,   USM_ARG_VALUE,   USM_ARG_POINTER,
};

const usm_native_kernel idw_native_kernels[1] = {
    {"idw", idw_range, sizeof kinds / sizeof kinds[0], kinds},
};
