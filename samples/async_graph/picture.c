/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A picture made up of rings and waves under haze, and the same work on it without libusm, tiles or
 * queues: what the results of the graph have to be, bit by bit. */
#include "picture.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define REACH 4

static float shade(int x, int y, int side)
{
    double   u = (double)x / side - 0.5, v = (double)y / side - 0.4, r = sqrt(u * u + v * v);
    double   rings = sin(160.0 * r) * exp(-3.0 * r), waves = sin(40.0 * u + 9.0 * sin(14.0 * v));
    uint32_t grain = ((uint32_t)x * 2654435761U) ^ ((uint32_t)y * 2246822519U);

    grain = (grain ^ (grain >> 15)) * 2654435761U;
    return (float)(0.6 + 0.12 * rings + 0.08 * waves * v + 0.02 * (grain >> 24) / 255.0);
}

static int inside(int i, int side)
{
    return i < 0 ? 0 : i >= side ? side - 1 : i;
}

bool picture_create(picture *p, int side, int halo)
{
    size_t pitch = (size_t)side + 2 * (size_t)halo, i = 0;

    *p        = (picture){.side = side, .halo = halo};
    p->pixels = malloc(pitch * pitch * sizeof *p->pixels);
    if (!p->pixels)
        return false;
    for (int y = -halo; y < side + halo; y++)
        for (int x = -halo; x < side + halo; x++)
            p->pixels[i++] = shade(inside(x, side), inside(y, side), side);
    return true;
}

void picture_destroy(picture *p)
{
    free(p->pixels);
    *p = (picture){.pixels = NULL};
}

static float tap(int k)
{
    return 0.04f * (float)(REACH + 1 - abs(k - REACH));
}

/* The blur of a pixel: along the rows first, then down the column of those. */
static float blurred(const float *in, size_t pitch, size_t x, size_t y)
{
    float sum = 0.0f;

    for (int j = 0; j <= 2 * REACH; j++) {
        const float *row = in + (y - REACH + (size_t)j) * pitch + x - REACH;
        float        s   = 0.0f;

        for (int k = 0; k <= 2 * REACH; k++)
            s += tap(k) * row[k];
        sum += tap(j) * s;
    }
    return sum;
}

static void shrunk(const float *in, size_t pitch, float *out)
{
    size_t half = pitch / 2;

    for (size_t y = 0; y < half; y++)
        for (size_t x = 0; x < half; x++) {
            const float *from = in + 2 * y * pitch + 2 * x;

            out[y * half + x] = 0.25f * ((from[0] + from[1]) + (from[pitch] + from[pitch + 1]));
        }
}

bool picture_in_plain_c(const picture *p, float *out)
{
    size_t pitch = (size_t)picture_pitch(p), side = (size_t)p->side, halo = (size_t)p->halo;
    float *half = calloc(pitch / 2 * (pitch / 2), sizeof *half);
    float *wide = calloc(side / 2 * (side / 2), sizeof *wide);

    if (half && wide) {
        shrunk(p->pixels, pitch, half);
        for (size_t y = 0; y < side / 2; y++)
            for (size_t x = 0; x < side / 2; x++)
                wide[y * (side / 2) + x] = blurred(half, pitch / 2, x + halo / 2, y + halo / 2);
        for (size_t y = 0; y < side; y++)
            for (size_t x = 0; x < side; x++) {
                float v = p->pixels[(y + halo) * pitch + x + halo];
                float n = blurred(p->pixels, pitch, x + halo, y + halo);
                float f = wide[y / 2 * (side / 2) + x / 2];

                v += 0.8f * (v - n) + 0.4f * (n - f);
                out[y * side + x] = v < 0.0f ? 0.0f : v > 1.0f ? 1.0f : v;
            }
    }
    free(half);
    free(wide);
    return half && wide;
}

bool picture_write(const char *path, const float *pixels, int side)
{
    FILE *file = fopen(path, "wb");
    bool  good = file && fprintf(file, "P5 %d %d 255\n", side, side) > 0;

    for (size_t i = 0; good && i < (size_t)side * (size_t)side; i++)
        good = putc((int)(pixels[i] * 255.0f + 0.5f), file) != EOF;
    if (file && fclose(file) != 0)
        good = false;
    return good;
}
