/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Heights into colours: projection, hypsometric tints, hill shade; for map.c. */
#include "map.h"

#include <math.h>
#include <stdlib.h>

/* Heights are stretched this much before the light falls on them: slopes between airports, some 20
 * km apart, are gentle.  Small forms are seen after a little smoothing, large ones after more. */
#define FINE_STRETCH   22.0f
#define FINE_SIGMA_PX  1.8
#define BROAD_STRETCH  34.0f
#define BROAD_SIGMA_PX 7.0

struct stop {
    float      metres;
    struct rgb colour;
};

/* Greens for lowlands, tans for plateaus, browns for mountains, white above. */
static const struct stop stops[] = {
    {-80.0f, {0.290f, 0.455f, 0.400f}},  {0.0f, {0.400f, 0.600f, 0.435f}},
    {150.0f, {0.545f, 0.690f, 0.480f}},  {350.0f, {0.710f, 0.780f, 0.545f}},
    {650.0f, {0.870f, 0.845f, 0.640f}},  {1000.0f, {0.885f, 0.780f, 0.560f}},
    {1400.0f, {0.835f, 0.670f, 0.450f}}, {1800.0f, {0.735f, 0.540f, 0.355f}},
    {2200.0f, {0.610f, 0.430f, 0.305f}}, {2500.0f, {0.640f, 0.540f, 0.480f}},
    {2800.0f, {0.930f, 0.920f, 0.915f}}, {3100.0f, {1.000f, 1.000f, 1.000f}},
};

struct rgb relief_tint(float metres)
{
    const size_t n = sizeof stops / sizeof stops[0];

    if (metres <= stops[0].metres)
        return stops[0].colour;
    for (size_t i = 1; i < n; i++) {
        const struct stop *a = &stops[i - 1], *b = &stops[i];

        if (metres < b->metres)
            return rgb_mix(a->colour, b->colour, (metres - a->metres) / (b->metres - a->metres));
    }
    return stops[n - 1].colour;
}

static int within(int index, int size)
{
    return index < 0 ? 0 : index >= size ? size - 1 : index;
}

/* Catmull and Rom's curve through four values, between the second and the third. */
static float curve(const float *v, float t)
{
    return v[1] + 0.5f * t *
                      (v[2] - v[0] +
                       t * (2.0f * v[0] - 5.0f * v[1] + 4.0f * v[2] - v[3] +
                            t * (3.0f * (v[1] - v[2]) + v[3] - v[0])));
}

static float height_at(const struct idw_grid *grid, const float *heights, struct degrees at)
{
    const double size   = grid->size;
    const double x      = (at.east - idw_west) / (idw_east - idw_west) * size - 0.5;
    const double y      = (idw_north - at.north) / (idw_north - idw_south) * size - 0.5;
    const int    column = (int)floor(x), row = (int)floor(y), last = (int)grid->size;
    float        lines[4];

    for (int j = 0; j < 4; j++) {
        const float *line = heights + (size_t)within(row - 1 + j, last) * grid->pitch;
        float        values[4];

        for (int i = 0; i < 4; i++)
            values[i] = line[within(column - 1 + i, last)];
        lines[j] = curve(values, (float)(x - column));
    }
    return curve(lines, (float)(y - row));
}

static void project(float *field, const struct canvas *canvas, const struct frame *frame,
                    const struct idw_grid *grid, const float *heights)
{
    for (int y = 0; y < canvas->height; y++) {
        for (int x = 0; x < canvas->width; x++)
            *field++ =
                height_at(grid, heights, frame_degrees(frame, (struct point){x + 0.5, y + 0.5}));
    }
}

/* The light on a pixel, 0 to 1, 0.6 on a plain: from the north-west, 37 degrees high. */
static float light(const float *field, int width, int height, int x, int y, float steepness)
{
    const float *row = field + (ptrdiff_t)y * width;
    const float  dx  = (row[within(x + 1, width)] - row[within(x - 1, width)]) * steepness;
    const float  dy  = (field[(ptrdiff_t)within(y + 1, height) * width + x] -
                      field[(ptrdiff_t)within(y - 1, height) * width + x]) *
                     steepness;
    const float lit = (0.565f * (dx + dy) + 0.6f) / sqrtf(1.0f + dx * dx + dy * dy);

    return fminf(fmaxf(lit, 0.0f), 1.0f);
}

/* A plain keeps its tint; shadows are cool, lit slopes warm and a little faded. */
static struct rgb shine(struct rgb tint, float lit)
{
    static const struct rgb shadow = {0.130f, 0.120f, 0.210f}, sun = {1.000f, 0.985f, 0.930f};

    if (lit < 0.6f)
        return rgb_mix(tint, shadow, 0.80f * (0.6f - lit) / 0.6f);
    return rgb_mix(tint, sun, 0.62f * (lit - 0.6f) / 0.4f);
}

struct fields {
    float *heights, *fine, *broad;
};

static bool fields_init(struct fields *f, const struct canvas *canvas, const struct frame *frame,
                        const struct idw_grid *grid, const float *heights)
{
    const size_t n = (size_t)canvas->width * (size_t)canvas->height;

    *f = (struct fields){calloc(n, sizeof(float)), calloc(n, sizeof(float)),
                         calloc(n, sizeof(float))};
    if (!f->heights || !f->fine || !f->broad)
        return false;
    project(f->heights, canvas, frame, grid, heights);
    for (size_t i = 0; i < n; i++)
        f->fine[i] = f->broad[i] = f->heights[i];
    return field_blur(f->fine, canvas->width, canvas->height, FINE_SIGMA_PX) &&
           field_blur(f->broad, canvas->width, canvas->height, BROAD_SIGMA_PX);
}

bool relief_paint(struct canvas *canvas, const struct frame *frame, const struct idw_grid *grid,
                  const float *heights)
{
    const int     width = canvas->width, height = canvas->height;
    const float   per_metre = 1.0f / (2000.0f * (float)frame->km_per_pixel);
    struct fields f;
    bool          is_done = fields_init(&f, canvas, frame, grid, heights);

    for (int y = 0; is_done && y < height; y++) {
        for (int x = 0; x < width; x++) {
            const size_t i      = (size_t)y * (size_t)width + (size_t)x;
            const float  fine   = light(f.fine, width, height, x, y, FINE_STRETCH * per_metre);
            const float  broad  = light(f.broad, width, height, x, y, BROAD_STRETCH * per_metre);
            struct rgb   colour = shine(relief_tint(f.fine[i]), 0.55f * fine + 0.45f * broad);

            canvas->pixels[i] = rgb_mix(canvas->pixels[i], colour, canvas->stencil[i]);
        }
    }
    free(f.heights);
    free(f.fine);
    free(f.broad);
    return is_done;
}
