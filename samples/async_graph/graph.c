/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The graph of a tile.  Each arrow is a kernel, each name a temporary that lives as long as it is
 * needed; sizes differ, for blurs look beyond the tile:
 *
 *     picture -copy-> in -rows-> rows -columns-> near -------+
 *                      |                                     |
 *                      +-shrink-> half -rows-> r -columns-> wide -combine-> out -copy-> result
 *
 * The text below reads like C with malloc and free, because the order of a queue makes it so. */
#include "graph.h"

static size_t floats(int w, int h)
{
    return (size_t)w * (size_t)h * sizeof(float);
}

static void *get(const lane *l, int w, int h)
{
    return memory_get(l->m, l->qs, l->i, floats(w, h));
}

static void put(const lane *l, void *p)
{
    memory_put(l->m, l->qs, l->i, p);
}

/* Pixels with rows `pitch` apart, of which those from `first` on are looked at. */
typedef struct view {
    const float *pixels;
    int          pitch, first;
} view;

/* A blur to side x side pixels: two kernels and a temporary. */
static usm_status blur(const lane *l, view in, int side, float *out)
{
    int        high   = side + 2 * REACH;
    float     *rows   = get(l, side, high);
    usm_arg    a[]    = {USM_ARG_PTR(in.pixels), USM_ARG_PTR(rows), USM_ARG_VAL(in.pitch),
                         USM_ARG_VAL(in.first)};
    usm_arg    b[]    = {USM_ARG_PTR(rows), USM_ARG_PTR(out)};
    usm_status status = rows && out ? USM_OK : USM_E_NO_MEMORY;

    if (status == USM_OK)
        status = launch(l->k, l->qs->of[l->i], (step){ROWS, side, high, a, 4});
    if (status == USM_OK)
        status = launch(l->k, l->qs->of[l->i], (step){COLUMNS, side, side, b, 2});
    put(l, rows);
    return status;
}

/* The blur at half the resolution, and so of twice the reach: `wide` is side / 2 wide. */
static usm_status blur_wide(const lane *l, const float *in, int side, float *wide)
{
    int        pitch = side + 2 * HALO, small = pitch / 2;
    float     *half   = get(l, small, small);
    usm_arg    a[]    = {USM_ARG_PTR(in), USM_ARG_PTR(half), USM_ARG_VAL(pitch)};
    usm_status status = half ? USM_OK : USM_E_NO_MEMORY;

    if (status == USM_OK)
        status = launch(l->k, l->qs->of[l->i], (step){SHRINK, small, small, a, 3});
    if (status == USM_OK)
        status = blur(l, (view){half, small, 0}, side / 2, wide);
    put(l, half);
    return status;
}

/* out = the tile whose surroundings are `in`. */
static usm_status clarify(const lane *l, const float *in, int side, float *out)
{
    int        pitch = side + 2 * HALO, inner = HALO * pitch + HALO;
    view       around = {in, pitch, REACH * pitch + REACH};
    float     *near   = get(l, side, side), *wide;
    usm_status status = blur(l, around, side, near);

    wide = get(l, side / 2, side / 2);
    if (status == USM_OK)
        status = blur_wide(l, in, side, wide);
    if (status == USM_OK) {
        usm_arg a[] = {USM_ARG_PTR(in),  USM_ARG_PTR(near),  USM_ARG_PTR(wide),
                       USM_ARG_PTR(out), USM_ARG_VAL(pitch), USM_ARG_VAL(inner)};

        status = launch(l->k, l->qs->of[l->i], (step){COMBINE, side, side, a, 6});
    }
    put(l, near);
    put(l, wide);
    return status;
}

/* The result leaves through the queue for results, which waits for the tile's own: an edge of the
 * graph from queue to queue. */
static usm_status send(const lane *l, tile t, const float *out, float *result)
{
    size_t     row = (size_t)t.side * sizeof(float), pitch = (size_t)t.of->side * sizeof(float);
    float     *to     = result + (size_t)t.y * (size_t)t.of->side + (size_t)t.x;
    usm_event *made   = NULL;
    usm_status status = usm_queue_barrier(l->qs->of[l->i], 0, NULL, &made);

    if (status == USM_OK)
        status = usm_memcpy_2d(l->qs->of[l->qs->n], to, pitch, out, row, row, (size_t)t.side, 1,
                               &made, NULL);
    usm_event_release(made);
    return status;
}

usm_status tile_submit(const lane *l, tile t, float *result)
{
    int          side = t.side + 2 * HALO, pitch = picture_pitch(t.of);
    size_t       row  = (size_t)side * sizeof(float);
    const float *from = t.of->pixels + (size_t)t.y * (size_t)pitch + (size_t)t.x;
    float       *in = get(l, side, side), *out = get(l, t.side, t.side);
    usm_status   status = in && out ? USM_OK : USM_E_NO_MEMORY;

    if (status == USM_OK)
        status = usm_memcpy_2d(l->qs->of[l->i], in, row, from, (size_t)pitch * sizeof(float), row,
                               (size_t)side, 0, NULL, NULL);
    if (status == USM_OK)
        status = clarify(l, in, t.side, out);
    put(l, in);
    if (status == USM_OK)
        status = send(l, t, out, result);
    memory_put(l->m, l->qs, l->qs->n, out); /* used there last, so freed there */
    return status;
}
