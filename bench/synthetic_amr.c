/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The allocations of a simulation on adaptively refined boxes: three levels, 4 ghost cells on each
 * side, 7 doubles a cell, 200 steps.
 *
 * A box holds two states, a mask and metadata while it lives.  Each step and level allocates
 * communication buffers, which go in any order at the level's end, and for each box temporaries,
 * which go in reverse of their need.  Every fourth step regrids levels 1 and 2: 30 % of the boxes
 * die and about as many are born.  Called by engine.c through the list of workloads. */
#include "workload.h"

#include <math.h>

#define LEVELS     3u
#define STEPS      200u
#define BOXES_MAX  160u
#define CELL       (7 * sizeof(double))
#define PERSISTENT 4u
#define TEMPORARY  7u

typedef struct box {
    uint64_t edge[3];
    uint64_t block[PERSISTENT];
} box;

typedef struct mesh {
    bench_trace *t;
    uint64_t     seed;
    box          boxes[LEVELS][BOXES_MAX];
    unsigned     nboxes[LEVELS];
} mesh;

static const unsigned at_start[LEVELS] = {24, 60, 120}, at_most[LEVELS] = {24, 80, 160};

/* Cells of the box, made wider by so many in every direction. */
static uint64_t cells(const box *b, uint64_t wider)
{
    return (b->edge[0] + wider) * (b->edge[1] + wider) * (b->edge[2] + wider);
}

static uint64_t between(mesh *m, uint64_t least, uint64_t most)
{
    return least + (bench_random(&m->seed) >> 16) % (most - least + 1);
}

/* Log-uniform between two powers of two. */
static uint64_t log_between(mesh *m, double least, double most)
{
    return (uint64_t)exp2(least + (most - least) * bench_random_unit(&m->seed));
}

static void birth(mesh *m, unsigned level)
{
    static const uint64_t coarse[] = {32, 64}, fine[] = {16, 24, 32, 40, 48, 64};
    box                  *b = &m->boxes[level][m->nboxes[level]++];

    for (unsigned i = 0; i < 3; i++)
        b->edge[i] = level == 0 ? coarse[between(m, 0, 1)] : fine[between(m, 0, 5)];
    b->block[0] = bench_trace_add(m->t, cells(b, 8) * CELL);
    b->block[1] = bench_trace_add(m->t, cells(b, 8) * CELL);
    b->block[2] = bench_trace_add(m->t, cells(b, 2) * sizeof(double));
    b->block[3] = bench_trace_add(m->t, between(m, 256, 16384));
}

static void death(mesh *m, unsigned level, unsigned i)
{
    for (unsigned j = 0; j < PERSISTENT; j++)
        bench_trace_drop(m->t, m->boxes[level][i].block[j]);
    m->boxes[level][i] = m->boxes[level][--m->nboxes[level]];
}

/* About as many are born as died: 90 to 120 %. */
static void regrid(mesh *m, unsigned level)
{
    unsigned before = m->nboxes[level], born;

    for (unsigned i = before; i-- > 0;)
        if (bench_random_unit(&m->seed) < 0.3)
            death(m, level, i);
    born = (before - m->nboxes[level]) * (unsigned)between(m, 90, 120) / 100;
    while (born-- > 0 && m->nboxes[level] < at_most[level])
        birth(m, level);
}

static void advance_box(mesh *m, const box *b)
{
    uint64_t temporary[TEMPORARY];

    temporary[0] = bench_trace_add(m->t, cells(b, 8) * 10 * sizeof(double)); /* primitives */
    for (unsigned i = 1; i < 4; i++) /* fluxes through the faces: one layer more in one direction */
        temporary[i] =
            bench_trace_add(m->t, cells(b, 0) / b->edge[i - 1] * (b->edge[i - 1] + 1) * CELL);
    for (unsigned i = 4; i < TEMPORARY; i++)
        temporary[i] = bench_trace_add(m->t, log_between(m, 6, 12));
    for (unsigned i = TEMPORARY; i-- > 0;)
        bench_trace_drop(m->t, temporary[i]);
}

static void advance_level(mesh *m, unsigned level)
{
    uint64_t buffer[BOXES_MAX / 2];
    unsigned n = m->nboxes[level] / 2;

    for (unsigned i = 0; i < n; i++)
        buffer[i] = bench_trace_add(m->t, log_between(m, 12, 22));
    for (unsigned i = 0; i < m->nboxes[level]; i++)
        advance_box(m, &m->boxes[level][i]);
    while (n > 0) {
        unsigned i = (unsigned)between(m, 0, n - 1);

        bench_trace_drop(m->t, buffer[i]);
        buffer[i] = buffer[--n];
    }
}

bool bench_make_amr(bench_trace *t, uint64_t seed)
{
    static mesh m;

    m = (mesh){.t = t, .seed = seed};
    for (unsigned level = 0; level < LEVELS; level++)
        while (m.nboxes[level] < at_start[level])
            birth(&m, level);
    for (unsigned s = 0; s < STEPS; s++) {
        for (unsigned level = 0; level < LEVELS; level++)
            advance_level(&m, level);
        if (s % 4 == 3)
            for (unsigned level = 1; level < LEVELS; level++)
                regrid(&m, level);
    }
    return bench_trace_finish(t);
}
