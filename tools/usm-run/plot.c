/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Draws how long a simulated run takes by the number of parts, a line for each policy: SVG. */
#include "simulate.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { WIDTH = 720, HEIGHT = 400, LEFT = 70, RIGHT = 130, TOP = 20, BOTTOM = 50 };

static const char *const colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd"};

typedef struct frame {
    double least, most, seconds; /* of the axes: parts, by their logarithm, and seconds from 0 */
} frame;

static frame frame_of(const outcome *o, size_t n)
{
    frame f = {.least = o[0].per_device, .most = o[0].per_device};

    for (size_t i = 0; i < n; i++) {
        f.least   = fmin(f.least, o[i].per_device);
        f.most    = fmax(f.most, o[i].per_device);
        f.seconds = fmax(f.seconds, o[i].result.seconds);
    }
    f.least = fmax(f.least, 1);
    f.most  = fmax(f.most, f.least + 1);
    return f;
}

static double x_of(const frame *f, double parts)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * log(fmax(parts, 1) / f->least) / log(f->most / f->least);
}

static double y_of(const frame *f, double seconds)
{
    double most = f->seconds > 0 ? f->seconds * 1.05 : 1;

    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * seconds / most;
}

static void draw_axes(FILE *out, const frame *f)
{
    fprintf(out, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#888\"/>\n", LEFT, TOP,
            HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (uint32_t parts = 1; parts <= f->most; parts *= 2)
        if (parts >= f->least)
            fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%u</text>\n",
                    x_of(f, parts), HEIGHT - BOTTOM + 18, parts);
    for (int i = 0; i <= 4; i++)
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n", LEFT - 6,
                y_of(f, f->seconds * i / 4) + 4, f->seconds * i / 4);
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">parts for each device</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
    fprintf(out,
            "<text x=\"16\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 16 %d)\">"
            "seconds</text>\n",
            HEIGHT / 2, HEIGHT / 2);
}

/* The outcomes of one policy, which come one after the other: returns how many. */
static size_t draw_policy(FILE *out, const frame *f, const outcome *o, size_t n, size_t number)
{
    const char *colour = colours[number % (sizeof colours / sizeof *colours)];
    size_t      i;

    fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (i = 0; i < n && strcmp(o[i].policy, o[0].policy) == 0; i++)
        fprintf(out, "%.1f,%.1f ", x_of(f, o[i].per_device), y_of(f, o[i].result.seconds));
    fputs("\"/>\n", out);
    for (size_t k = 0; k < i; k++)
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"/>\n",
                x_of(f, o[k].per_device), y_of(f, o[k].result.seconds), o[k].is_own ? 6 : 3,
                colour);
    fprintf(out, "<text x=\"%d\" y=\"%zu\" fill=\"%s\">%s</text>\n", WIDTH - RIGHT + 14,
            TOP + 14 + 18 * number, colour, o[0].policy);
    return i;
}

bool plot_write(const char *path, const outcome *outcomes, size_t n)
{
    frame f   = frame_of(outcomes, n);
    FILE *out = fopen(path, "we");
    bool  is_ok;

    if (!out) {
        fprintf(stderr, "usm-run: --plot %s: %s\n", path, strerror(errno));
        return false;
    }
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"13\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT);
    draw_axes(out, &f);
    for (size_t at = 0, number = 0; at < n; number++)
        at += draw_policy(out, &f, outcomes + at, n - at, number);
    fprintf(out, "<text x=\"%d\" y=\"%d\" font-size=\"11\">large: as it is now</text>\n</svg>\n",
            WIDTH - RIGHT + 14, HEIGHT - BOTTOM);
    is_ok = !ferror(out);
    is_ok &= fclose(out) == 0;
    if (!is_ok)
        fprintf(stderr, "usm-run: --plot %s could not be written\n", path);
    return is_ok;
}
