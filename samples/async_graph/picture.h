/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The picture that is worked on, and what becomes of it in plain C. */
#ifndef ASYNC_GRAPH_PICTURE_H
#define ASYNC_GRAPH_PICTURE_H

#include <stdbool.h>
#include <stddef.h>

/* side x side floats of 0 .. 1 with `halo` more on each edge, which repeat the edge's. */
typedef struct picture {
    float *pixels; /* of the upper left corner of the halo */
    int    side, halo;
} picture;

/* A hazy landscape of rings and waves.  false when memory runs out. */
bool picture_create(picture *p, int side, int halo);
void picture_destroy(picture *p);

static inline int picture_pitch(const picture *p)
{
    return p->side + 2 * p->halo;
}

/* The same work on the whole picture, one loop behind the other: `out` is side x side. */
bool picture_in_plain_c(const picture *p, float *out);

/* As a file that most viewers read (PGM). */
bool picture_write(const char *path, const float *pixels, int side);

#endif
