/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A cycle smooths the error on its grid, solves for what is left on a grid of half the size, and
 * corrects.  Each level allocates four grids and frees them when it is done: a pattern that asks a
 * driver for the same few sizes over and over, and that a pool serves from what came back. */
#include "multigrid.h"

#include <time.h>

#define CYCLES 3 /* of a time step */

static uint64_t read_clock(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

float *grid_alloc(memory *m, int n)
{
    uint64_t start = now_ns();
    float   *grid  = usm_pool_malloc(m->pool, (size_t)(n + 2) * (size_t)(n + 2) * sizeof *grid);

    m->ns += now_ns() - start;
    m->allocations++;
    return grid;
}

void grid_free(memory *m, float *grid)
{
    uint64_t start = now_ns();

    usm_pool_free(m->pool, grid);
    m->ns += now_ns() - start;
}

static usm_status smooth(const kernels *k, const float *u, const float *f, float *out, int n,
                         float c)
{
    const usm_arg args[] = {USM_ARG_PTR(u), USM_ARG_PTR(f), USM_ARG_PTR(out), USM_ARG_VAL(n),
                            USM_ARG_VAL(c)};

    return launch(k, SMOOTH, n, args, 5);
}

/* An even number of them: the result is in u. */
static usm_status smooth_times(const kernels *k, float *u, const float *f, float *other, int n,
                               float c, int times)
{
    usm_status status = USM_OK;

    for (int i = 0; i < times && status == USM_OK; i += 2) {
        status = smooth(k, u, f, other, n, c);
        if (status == USM_OK)
            status = smooth(k, other, f, u, n, c);
    }
    return status;
}

static usm_status residual_to(const kernels *k, const float *u, const float *f, float *r, int n,
                              float c, float *coarse)
{
    const int     half   = (n - 1) / 2;
    const usm_arg args[] = {USM_ARG_PTR(u), USM_ARG_PTR(f), USM_ARG_PTR(r), USM_ARG_VAL(n),
                            USM_ARG_VAL(c)};
    const usm_arg down[] = {USM_ARG_PTR(r), USM_ARG_PTR(coarse), USM_ARG_VAL(half)};
    usm_status    status = launch(k, RESIDUAL, n, args, 5);

    return status == USM_OK ? launch(k, COARSEN, half, down, 3) : status;
}

static usm_status begin(const kernels *k, const float *f, float *u, int n, float c)
{
    const usm_arg args[] = {USM_ARG_PTR(f), USM_ARG_PTR(u), USM_ARG_VAL(n), USM_ARG_VAL(c)};

    return launch(k, START, n, args, 4);
}

static usm_status correct(const kernels *k, float *u, const float *coarse, int n)
{
    const usm_arg args[] = {USM_ARG_PTR(u), USM_ARG_PTR(coarse), USM_ARG_VAL(n)};

    return launch(k, CORRECT, n, args, 3);
}

static usm_status cycle(memory *m, const kernels *k, float *u, const float *f, int n, float c);

/* Solves for the error on the grid of half the size. */
static usm_status coarse_correction(memory *m, const kernels *k, float *u, const float *f, int n,
                                    float c)
{
    int        half   = (n - 1) / 2;
    float     *r      = grid_alloc(m, n);
    float     *rest   = grid_alloc(m, half);
    float     *error  = grid_alloc(m, half);
    usm_status status = r && rest && error ? USM_OK : USM_E_NO_MEMORY;

    if (status == USM_OK)
        status = residual_to(k, u, f, r, n, c, rest);
    if (status == USM_OK)
        status = begin(k, rest, error, half, c / 4.0f);
    if (status == USM_OK)
        status = cycle(m, k, error, rest, half, c / 4.0f);
    if (status == USM_OK)
        status = correct(k, u, error, n);
    if (status == USM_OK)
        status = usm_queue_wait(usm_default_queue()); /* the grids are in use until then */
    grid_free(m, error);
    grid_free(m, rest);
    grid_free(m, r);
    return status;
}

static usm_status cycle(memory *m, const kernels *k, float *u, const float *f, int n, float c)
{
    float     *other  = grid_alloc(m, n);
    usm_status status = other ? USM_OK : USM_E_NO_MEMORY;

    if (status == USM_OK)
        status = smooth_times(k, u, f, other, n, c, n > 3 ? 2 : 8);
    if (status == USM_OK && n > 3)
        status = coarse_correction(m, k, u, f, n, c);
    if (status == USM_OK)
        status = smooth_times(k, u, f, other, n, c, 2);
    if (status == USM_OK)
        status = usm_queue_wait(usm_default_queue());
    grid_free(m, other);
    return status;
}

usm_status time_step(memory *m, const kernels *k, float *u, int n, float c)
{
    usm_queue *q      = usm_default_queue();
    size_t     size   = (size_t)(n + 2) * (size_t)(n + 2) * sizeof *u;
    usm_status status = usm_tag_push("cycle");
    float     *f      = grid_alloc(m, n);

    if (status == USM_OK)
        status = f ? usm_memcpy(q, f, u, size, 0, NULL, NULL) : USM_E_NO_MEMORY;
    for (int i = 0; i < CYCLES && status == USM_OK; i++)
        status = cycle(m, k, u, f, n, c);
    grid_free(m, f);
    usm_tag_pop();
    return status;
}

usm_status snapshot(memory *m, const kernels *k, const float *u, int n, float *out)
{
    int        half   = (n - 1) / 2;
    usm_status status = usm_tag_push("snapshot");
    float     *small  = grid_alloc(m, half);
    usm_arg    args[] = {USM_ARG_PTR(u), USM_ARG_PTR(small), USM_ARG_VAL(half)};

    if (status == USM_OK)
        status = small ? launch(k, COARSEN, half, args, 3) : USM_E_NO_MEMORY;
    if (status == USM_OK)
        status = usm_queue_wait(usm_default_queue());
    if (status == USM_OK)
        status = usm_copy(out, small, (size_t)(half + 2) * (size_t)(half + 2) * sizeof *out);
    grid_free(m, small);
    usm_tag_pop();
    return status;
}
