/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shores and borders: the land as a stencil and the lines between the states; for map.c. */
#include "map.h"
#include "table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SLICES 4 /* of a row of pixels, for soft shores */

struct reading {
    struct borders     *borders;
    const struct frame *frame;
    size_t              corner_room, ring_room;
};

static bool add_corner(struct reading *r, size_t *count, struct point at)
{
    struct borders *b = r->borders;

    if (*count == r->corner_room) {
        size_t        room   = r->corner_room ? 2 * r->corner_room : 16384;
        struct point *larger = realloc(b->corners, room * sizeof *larger);

        if (!larger)
            return false;
        b->corners     = larger;
        r->corner_room = room;
    }
    b->corners[(*count)++] = at;
    return true;
}

/* starts[nrings] is where the ring that is being read has got to. */
static bool end_ring(struct reading *r)
{
    struct borders *b = r->borders;

    if (b->nrings + 2 > r->ring_room) {
        size_t  room   = r->ring_room ? 2 * r->ring_room : 256;
        size_t *larger = realloc(b->starts, room * sizeof *larger);

        if (!larger)
            return false;
        if (!b->starts)
            larger[0] = larger[1] = 0;
        b->starts    = larger;
        r->ring_room = room;
    }
    return true;
}

/* A line is longitude, latitude; an empty one ends a ring. */
static bool add_line(const double *values, size_t count, void *user)
{
    struct reading *r = user;
    struct borders *b = r->borders;

    if (!end_ring(r))
        return false;
    if (count == 2)
        return add_corner(r, &b->starts[b->nrings + 1],
                          frame_place(r->frame, (struct degrees){values[0], values[1]}));
    if (count != 0)
        return false;
    b->nrings++;
    if (!end_ring(r))
        return false;
    b->starts[b->nrings + 1] = b->starts[b->nrings];
    return true;
}

bool borders_load(struct borders *borders, const struct frame *frame)
{
    struct reading r = {borders, frame, 0, 0};
    size_t         line;

    *borders = (struct borders){0};
    if (!idw_table_read(idw_states_us, add_line, &r, &line)) {
        fprintf(stderr, "idw: states_us.csv, line %zu: cannot be used, or out of memory\n", line);
        borders_fini(borders);
        return false;
    }
    return true;
}

void borders_fini(struct borders *borders)
{
    free(borders->starts);
    free(borders->corners);
    *borders = (struct borders){0};
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Where a horizontal line crosses all the rings, from left to right.  A border between two states
 * is crossed twice at one place, so that even and odd remain what they are. */
static size_t crossings(const struct borders *b, double y, double *xs)
{
    size_t n = 0;

    for (size_t ring = 0; ring < b->nrings; ring++) {
        size_t first = b->starts[ring], end = b->starts[ring + 1];

        for (size_t i = first; i < end; i++) {
            struct point p = b->corners[i], q = b->corners[i + 1 < end ? i + 1 : first];

            if ((p.y <= y) != (q.y <= y))
                xs[n++] = p.x + (y - p.y) * (q.x - p.x) / (q.y - p.y);
        }
    }
    qsort(xs, n, sizeof *xs, by_value);
    return n;
}

/* Adds 1/SLICES of coverage between two places; pixels at the ends get their share of it. */
static void fill_span(float *row, int width, double from, double to)
{
    const int first = (int)fmax(from, 0.0), last = (int)fmin(to, width - 1.0);

    for (int x = first; x <= last; x++) {
        double covered = fmin(to, x + 1.0) - fmax(from, x);

        if (covered > 0.0)
            row[x] += (float)(covered / SLICES);
    }
}

bool borders_fill(struct canvas *canvas, const struct borders *borders)
{
    double *xs = malloc(borders->starts[borders->nrings] * sizeof *xs);

    if (!xs)
        return false;
    for (int slice = 0; slice < canvas->height * SLICES; slice++) {
        float *row = canvas->stencil + (size_t)(slice / SLICES) * (size_t)canvas->width;
        size_t n   = crossings(borders, (slice + 0.5) / SLICES, xs);

        for (size_t i = 0; i + 1 < n; i += 2)
            fill_span(row, canvas->width, xs[i], xs[i + 1]);
    }
    free(xs);
    return true;
}

void borders_draw(struct canvas *canvas, const struct borders *borders, double width)
{
    for (size_t ring = 0; ring < borders->nrings; ring++) {
        size_t first = borders->starts[ring], end = borders->starts[ring + 1];

        for (size_t i = first; i < end; i++)
            stencil_line(canvas, borders->corners[i], borders->corners[i + 1 < end ? i + 1 : first],
                         width);
    }
}
