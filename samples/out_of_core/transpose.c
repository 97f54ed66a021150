/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* B = transpose of A, both matrices of tiles that lie in one buffer: a tile of 512 x 512 doubles is
 * contiguous, so that an access covers it.
 *
 * Three stages: A is filled; tile after tile of B is written from the tile of A across the
 * diagonal, both held at once by usm_access_many(); B is checked.  Along a row of B the tiles of A
 * lie far apart, in an order that usm_announce() tells beforehand, a row of tiles at a time. */
#include "mapped.h"
#include "progress.h"
#include "store.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define SIDE       512 /* of a tile */
#define TILE       ((size_t)SIDE * SIDE)
#define TILE_BYTES (TILE * sizeof(double))

enum { FILL, TRANSPOSE, CHECK };

typedef struct matrices {
    uint64_t tiles; /* along a side */
    store    store; /* A, then B    */
} matrices;

/* ---- what is done to a tile -------------------------------------------------------- */

/* The element of A at a row and column of the whole matrix: no two are equal. */
static double element(uint64_t row, uint64_t column, uint64_t tiles)
{
    return (double)(row * tiles * SIDE + column);
}

static void fill_tile(double *tile, uint64_t i, uint64_t j, uint64_t tiles)
{
    for (uint64_t r = 0; r < SIDE; r++)
        for (uint64_t c = 0; c < SIDE; c++)
            tile[r * SIDE + c] = element(i * SIDE + r, j * SIDE + c, tiles);
}

/* In squares that fit into the processor's cache. */
static void transpose_tile(double *to, const double *from)
{
    enum { SQUARE = 16 };

    for (size_t r0 = 0; r0 < SIDE; r0 += SQUARE)
        for (size_t c0 = 0; c0 < SIDE; c0 += SQUARE)
            for (size_t r = r0; r < r0 + SQUARE; r++)
                for (size_t c = c0; c < c0 + SQUARE; c++)
                    to[c * SIDE + r] = from[r * SIDE + c];
}

/* Is it tile (i, j) of B? */
static bool tile_is_right(const double *tile, uint64_t i, uint64_t j, uint64_t tiles)
{
    size_t errors = 0;

    for (uint64_t r = 0; r < SIDE; r++)
        for (uint64_t c = 0; c < SIDE; c++)
            errors += fabs(tile[r * SIDE + c] - element(j * SIDE + c, i * SIDE + r, tiles)) > 0.0;
    if (errors > 0)
        return wrong("%zu elements of tile (%" PRIu64 ", %" PRIu64 ") are not A's across the "
                     "diagonal",
                     errors, i, j);
    return true;
}

/* ---- over a buffer ----------------------------------------------------------------- */

/* Tile (i, j) of A, or of B, as a range of the buffer. */
static usm_buffer_range tile_of(const matrices *m, bool is_b, uint64_t i, uint64_t j,
                                usm_access_mode mode)
{
    uint64_t index = (is_b ? m->tiles * m->tiles : 0) + i * m->tiles + j;

    return (usm_buffer_range){m->store.data, store_offset(&m->store, index * TILE_BYTES),
                              TILE_BYTES, mode};
}

static bool begin(const usm_buffer_range *range, usm_access *a)
{
    return usm_access_begin(range->buffer, range->offset, range->size, range->mode, a) == USM_OK ||
           failed("access to a tile");
}

static bool fill(matrices *m, struct report *r)
{
    const uint64_t steps = m->tiles * m->tiles;

    progress_begin(r, "fill", steps * TILE_BYTES);
    for (uint64_t k = store_first_step(&m->store, FILL, steps); k < steps; k++) {
        usm_buffer_range range = tile_of(m, false, k / m->tiles, k % m->tiles, USM_WRITE_NO_INIT);
        usm_access       a;

        if (!begin(&range, &a))
            return false;
        fill_tile(a.ptr, k / m->tiles, k % m->tiles, m->tiles);
        usm_access_end(&a);
        progress_add(TILE_BYTES);
        if (store_is_due(&m->store, k, steps) && !store_commit(&m->store, FILL, k + 1))
            return false;
    }
    progress_end();
    return store_commit(&m->store, TRANSPOSE, 0);
}

/* The tiles of A that row i of B is made from, in the order they will be asked for. */
static bool announce_row(const matrices *m, uint64_t i)
{
    usm_buffer_range *list = calloc(m->tiles, sizeof *list);
    usm_status        status;

    if (!list)
        return wrong("out of memory");
    for (uint64_t j = 0; j < m->tiles; j++)
        list[j] = tile_of(m, false, j, i, USM_READ);
    status = usm_announce(m->tiles, list);
    free(list);
    return status == USM_OK || failed("announcing a row of tiles");
}

/* Tile (i, j) of B from tile (j, i) of A. */
static bool transpose_one(const matrices *m, uint64_t i, uint64_t j)
{
    const usm_buffer_range both[2] = {tile_of(m, false, j, i, USM_READ),
                                      tile_of(m, true, i, j, USM_WRITE_NO_INIT)};
    usm_access             a[2];

    if (usm_access_many(2, both, a) != USM_OK)
        return failed("access to two tiles");
    transpose_tile(a[1].ptr, a[0].ptr);
    usm_access_end(&a[0]);
    usm_access_end(&a[1]);
    return true;
}

/* Row i of B, from step `first` on. */
static bool transpose_row(matrices *m, uint64_t i, uint64_t first)
{
    const uint64_t steps = m->tiles * m->tiles;

    if (!announce_row(m, i))
        return false;
    for (uint64_t j = 0; j < m->tiles; j++) {
        uint64_t step = i * m->tiles + j;

        if (step < first)
            continue;
        if (!transpose_one(m, i, j))
            return false;
        progress_add(2 * TILE_BYTES);
        if (store_is_due(&m->store, step, steps) && !store_commit(&m->store, TRANSPOSE, step + 1))
            return false;
    }
    return true;
}

static bool transpose(matrices *m, struct report *r)
{
    const uint64_t steps = m->tiles * m->tiles;
    const uint64_t first = store_first_step(&m->store, TRANSPOSE, steps);

    progress_begin(r, "transpose", 2 * steps * TILE_BYTES);
    for (uint64_t i = 0; i < m->tiles; i++)
        if ((i + 1) * m->tiles > first && !transpose_row(m, i, first))
            return false;
    progress_end();
    return usm_announce(0, NULL) == USM_OK && store_commit(&m->store, CHECK, 0);
}

static bool check(const matrices *m, struct report *r)
{
    const uint64_t steps = m->tiles * m->tiles;

    progress_begin(r, "check", steps * TILE_BYTES);
    for (uint64_t k = 0; k < steps; k++) {
        usm_buffer_range range = tile_of(m, true, k / m->tiles, k % m->tiles, USM_READ);
        usm_access       a;
        bool             is_right;

        if (!begin(&range, &a))
            return false;
        is_right = tile_is_right(a.ptr, k / m->tiles, k % m->tiles, m->tiles);
        usm_access_end(&a);
        if (!is_right)
            return false;
        progress_add(TILE_BYTES);
    }
    progress_end();
    return true;
}

/* The largest two square matrices of tiles that `size` has room for. */
static uint64_t tiles_in(uint64_t size)
{
    uint64_t tiles = 1;

    while (2 * (tiles + 1) * (tiles + 1) * TILE_BYTES <= size)
        tiles++;
    return tiles;
}

static bool run(const struct job *job)
{
    matrices m = {.tiles = tiles_in(job->size)};
    bool     is_good =
        store_open(&m.store, job, transpose_task.name, 2 * m.tiles * m.tiles * TILE_BYTES) &&
        fill(&m, job->report) && transpose(&m, job->report) && check(&m, job->report);

    store_close(&m.store);
    return is_good;
}

/* ---- the same over an mmap()ed file ------------------------------------------------ */

static void fill_mapped(double *a, uint64_t tiles, struct report *r)
{
    progress_begin(r, "fill", tiles * tiles * TILE_BYTES);
    for (uint64_t k = 0; k < tiles * tiles; k++) {
        fill_tile(a + k * TILE, k / tiles, k % tiles, tiles);
        progress_add(TILE_BYTES);
    }
    progress_end();
}

static void transpose_mapped(double *b, const double *a, uint64_t tiles, struct report *r)
{
    progress_begin(r, "transpose", 2 * tiles * tiles * TILE_BYTES);
    for (uint64_t k = 0; k < tiles * tiles; k++) {
        transpose_tile(b + k * TILE, a + (k % tiles * tiles + k / tiles) * TILE);
        progress_add(2 * TILE_BYTES);
    }
    progress_end();
}

static bool check_mapped(const double *b, uint64_t tiles, struct report *r)
{
    progress_begin(r, "check", tiles * tiles * TILE_BYTES);
    for (uint64_t k = 0; k < tiles * tiles; k++) {
        if (!tile_is_right(b + k * TILE, k / tiles, k % tiles, tiles))
            return false;
        progress_add(TILE_BYTES);
    }
    progress_end();
    return true;
}

static bool run_mapped(const struct job *job)
{
    const uint64_t tiles = tiles_in(job->size);
    const size_t   bytes = 2 * tiles * tiles * TILE_BYTES;
    double        *a = mapped_create(bytes), *b = a ? a + tiles * tiles * TILE : NULL;
    bool           is_good = false;

    if (a) {
        fill_mapped(a, tiles, job->report);
        transpose_mapped(b, a, tiles, job->report);
        is_good = check_mapped(b, tiles, job->report);
    }
    mapped_destroy(a, bytes);
    return is_good;
}

const task transpose_task = {"transpose", "a matrix of tiles into another, across the diagonal",
                             run, run_mapped};
