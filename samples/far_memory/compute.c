/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Rank 0: a grid that is larger than the memory it has, in a usm_buffer.  Nothing here knows where
 * the rest of it lies, nor that one of those who keep it may die: this is the code of
 * samples/out_of_core, and USM_SPILL=mpi. */
#include "far_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool failed(const char *what)
{
    fprintf(stderr, "far_memory: %s: %s\n", what, usm_last_error());
    return false;
}

/* A band of rows from `first` on, and `more` behind it.  Counts what it costs. */
static bool begin(usm_buffer *grid, uint64_t first, uint64_t more, usm_access_mode mode,
                  usm_access *a, pass *p)
{
    const size_t   offset = first * ROW_BYTES, size = BAND_BYTES + more * ROW_BYTES;
    const uint64_t block = p->before.block_size ? p->before.block_size : BAND_BYTES;
    const double   began = report_now();

    if (usm_access_begin(grid, offset, size, mode, a) != USM_OK)
        return failed("an access to the grid");
    p->touched += (offset + size - 1) / block - offset / block + 1;
    if (report_now() - began > p->longest)
        p->longest = report_now() - began;
    return true;
}

static bool fill(const job *j, usm_buffer *grid)
{
    pass p;

    pass_begin(&p);
    for (uint64_t row = 0; row < j->rows; row += BAND) {
        usm_access a;

        /* Nothing has to be fetched: all of it will be overwritten. */
        if (!begin(grid, row, 0, USM_WRITE_NO_INIT, &a, &p))
            return false;
        grid_fill(a.ptr, row, BAND);
        usm_access_end(&a);
    }
    pass_end(&p, "fill");
    return true;
}

/* One step over the whole grid; a lender is killed in the middle of it if kill >= 0. */
static bool step(job *j, usm_buffer *grid, int kill, window *w, pass *p)
{
    for (uint64_t row = 0; row < j->rows; row += BAND) {
        const uint64_t below = row + BAND < j->rows; /* the last row of a band needs the next */
        usm_access     a;

        if (!begin(grid, row, below, USM_READ_WRITE, &a, p))
            return false;
        grid_step(a.ptr, row, BAND, j->rows, w);
        usm_access_end(&a);
        if (kill >= 0 && row <= j->rows / 2 && j->rows / 2 < row + BAND)
            lender_kill(j, kill);
    }
    return true;
}

static bool all_steps(job *j, usm_buffer *grid, window *w)
{
    const unsigned middle = j->o->steps / 2;
    pass           before = {.seconds = 0}, p = {.seconds = 0};
    bool           is_good = true;

    for (unsigned s = 0; s < j->o->steps && is_good; s++) {
        const int kill = s == middle ? j->o->kill : -1;
        char      name[64];

        before = p;
        pass_begin(&p);
        is_good = step(j, grid, kill, w, &p);
        snprintf(name, sizeof name, "step %u", s + 1);
        pass_end(&p, name);
        if (is_good && kill >= 0)
            report_kill(kill, s > 0 ? &before : NULL, &p);
    }
    return is_good;
}

static bool check(const job *j, usm_buffer *grid, const uint64_t *sums)
{
    uint64_t wrong = 0;
    pass     p;

    pass_begin(&p);
    for (uint64_t row = 0; row < j->rows; row += BAND) {
        usm_access a;

        if (!begin(grid, row, 0, USM_READ, &a, &p))
            return false;
        for (uint64_t r = 0; r < BAND; r++)
            wrong += grid_checksum((const float *)a.ptr + r * ROW) != sums[row + r];
        usm_access_end(&a);
    }
    pass_end(&p, "check");
    printf("%s: %" PRIu64 " of %" PRIu64 " rows have the checksum of the same steps in memory\n",
           wrong ? "WRONG" : "Right", j->rows - wrong, j->rows);
    return wrong == 0;
}

static bool with_reference(job *j, const uint64_t *sums, window *w)
{
    usm_buffer_desc desc = USM_BUFFER_DESC_INIT;
    usm_buffer     *grid;
    bool            is_good;

    desc.size = j->rows * ROW_BYTES;
    desc.name = "grid";
    if (usm_buffer_create(NULL, &desc, &grid) != USM_OK)
        return failed("the grid");
    report_head(j);
    is_good = fill(j, grid);
    if (is_good && !j->o->quiet)
        report_members("Where it lies");
    is_good = is_good && all_steps(j, grid, w);
    if (is_good && !j->o->quiet && j->dead >= 0)
        report_members("Where it lies now");
    is_good = is_good && check(j, grid, sums);
    if (!j->o->quiet)
        report_spill();
    usm_buffer_destroy(grid);
    return is_good;
}

bool compute(job *j)
{
    uint64_t *sums    = reference_compute(j->rows, j->o->steps);
    window   *w       = calloc(1, sizeof *w);
    bool      is_good = false;

    if (!sums || !w)
        fprintf(stderr, "far_memory: no memory for the reference of %" PRIu64 " MiB\n",
                j->rows * ROW_BYTES >> 20);
    else
        is_good = with_reference(j, sums, w);
    free(w);
    free(sums);
    return is_good;
}
