/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The measured points: from the lines of data/airports_us.csv to three arrays; for main.c. */
#include "idw.h"
#include "table.h"

#include <stdio.h>
#include <stdlib.h>

struct filling {
    struct idw_points *points;
    size_t             room;
};

static bool has_room(struct filling *f)
{
    struct idw_points *p    = f->points;
    size_t             room = f->room ? 2 * f->room : 16384;

    if (p->n < f->room)
        return true;

    float *east   = realloc(p->east, room * sizeof *east);
    p->east       = east ? east : p->east;
    float *north  = realloc(p->north, room * sizeof *north);
    p->north      = north ? north : p->north;
    float *height = realloc(p->height, room * sizeof *height);
    p->height     = height ? height : p->height;
    f->room       = room;
    return east && north && height;
}

/* A line is latitude, longitude, metres. */
static bool add_point(const double *values, size_t count, void *user)
{
    struct filling    *f = user;
    struct idw_points *p = f->points;

    if (count != 3 || !has_room(f))
        return false;
    p->north[p->n]  = (float)(values[0] * IDW_KM_PER_DEGREE);
    p->east[p->n]   = (float)values[1];
    p->height[p->n] = (float)values[2];
    p->n++;
    return true;
}

bool idw_points_load(struct idw_points *points)
{
    struct filling f = {points, 0};
    size_t         line;

    *points = (struct idw_points){0};
    if (!idw_table_read(idw_airports_us, add_point, &f, &line)) {
        fprintf(stderr, "idw: airports_us.csv, line %zu: cannot be used, or out of memory\n", line);
        idw_points_fini(points);
        return false;
    }
    return true;
}

void idw_points_fini(struct idw_points *points)
{
    free(points->east);
    free(points->north);
    free(points->height);
    *points = (struct idw_points){0};
}
