/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Lines, stencils and blurs (canvas.h); for the parts of the map. */
#include "canvas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool canvas_init(struct canvas *canvas, int width, int height, struct rgb background)
{
    size_t n = (size_t)width * (size_t)height;

    *canvas = (struct canvas){width, height, malloc(n * sizeof *canvas->pixels),
                              calloc(n, sizeof *canvas->stencil)};
    if (!canvas->pixels || !canvas->stencil) {
        canvas_fini(canvas);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        canvas->pixels[i] = background;
    return true;
}

void canvas_fini(struct canvas *canvas)
{
    free(canvas->pixels);
    free(canvas->stencil);
    *canvas = (struct canvas){0};
}

struct rgb rgb_mix(struct rgb a, struct rgb b, float share_of_b)
{
    return (struct rgb){a.r + (b.r - a.r) * share_of_b, a.g + (b.g - a.g) * share_of_b,
                        a.b + (b.b - a.b) * share_of_b};
}

void stencil_clear(struct canvas *canvas)
{
    memset(canvas->stencil, 0,
           (size_t)canvas->width * (size_t)canvas->height * sizeof *canvas->stencil);
}

static int clamped(double value, int limit)
{
    return value < 0.0 ? 0 : value > limit ? limit : (int)value;
}

static double distance_to_line(struct point p, struct point a, struct point b)
{
    double dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy;
    double t = length2 > 0.0 ? ((p.x - a.x) * dx + (p.y - a.y) * dy) / length2 : 0.0;

    t = t < 0.0 ? 0.0 : t > 1.0 ? 1.0 : t;
    return hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

void stencil_line(struct canvas *canvas, struct point a, struct point b, double width)
{
    const double reach = 0.5 * width + 1.0;
    const int    left  = clamped(fmin(a.x, b.x) - reach, canvas->width);
    const int    right = clamped(fmax(a.x, b.x) + reach + 1.0, canvas->width);
    const int    top   = clamped(fmin(a.y, b.y) - reach, canvas->height);
    const int    base  = clamped(fmax(a.y, b.y) + reach + 1.0, canvas->height);

    for (int y = top; y < base; y++) {
        float *row = canvas->stencil + (size_t)y * (size_t)canvas->width;

        for (int x = left; x < right; x++) {
            struct point p        = {x + 0.5, y + 0.5};
            double       coverage = 0.5 * width + 0.5 - distance_to_line(p, a, b);

            row[x] = fmaxf(row[x], (float)fmin(coverage, 1.0));
        }
    }
}

void stencil_paint(struct canvas *canvas, struct rgb colour, float opacity, int dx, int dy)
{
    for (int y = 0; y < canvas->height; y++) {
        for (int x = 0; x < canvas->width; x++) {
            struct rgb *pixel  = canvas->pixels + (size_t)y * (size_t)canvas->width + x;
            int         from_x = x - dx, from_y = y - dy;

            if (from_x < 0 || from_x >= canvas->width || from_y < 0 || from_y >= canvas->height)
                continue;
            *pixel = rgb_mix(
                *pixel, colour,
                opacity * canvas->stencil[(size_t)from_y * (size_t)canvas->width + (size_t)from_x]);
        }
    }
}

/* One line of n values, `stride` apart, convolved with 2 * reach + 1 weights; borders repeat. */
static void blur_line(float *line, int n, int stride, const float *weights, int reach, float *copy)
{
    for (int i = 0; i < n; i++)
        copy[i] = line[(ptrdiff_t)i * stride];
    for (int i = 0; i < n; i++) {
        float sum = 0.0f;

        for (int k = -reach; k <= reach; k++) {
            int from = i + k < 0 ? 0 : i + k >= n ? n - 1 : i + k;

            sum += weights[k + reach] * copy[from];
        }
        line[(ptrdiff_t)i * stride] = sum;
    }
}

static void gauss_weights(float *weights, int reach, double sigma)
{
    double sum = 0.0;

    for (int k = -reach; k <= reach; k++)
        sum += exp(-0.5 * k * k / (sigma * sigma));
    for (int k = -reach; k <= reach; k++)
        weights[k + reach] = (float)(exp(-0.5 * k * k / (sigma * sigma)) / sum);
}

bool field_blur(float *field, int width, int height, double sigma)
{
    const int reach   = (int)ceil(3.0 * sigma);
    float    *weights = calloc(2 * (size_t)reach + 1, sizeof *weights);
    float    *copy    = malloc((size_t)(width > height ? width : height) * sizeof *copy);
    bool      is_done = weights && copy;

    if (is_done) {
        gauss_weights(weights, reach, sigma);
        for (int y = 0; y < height; y++)
            blur_line(field + (ptrdiff_t)y * width, width, 1, weights, reach, copy);
        for (int x = 0; x < width; x++)
            blur_line(field + x, height, width, weights, reach, copy);
    }
    free(weights);
    free(copy);
    return is_done;
}
