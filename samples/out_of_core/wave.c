/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A plane wave: a matrix whose rows are buffers of their own, as in Listing 1 of the paper on
 * Rambrain (Imgrund, Arth: SoftwareX 2017).  131072 rows of 8 KiB are no burden: small buffers
 * share blocks.
 *
 * Two stages, in each a row is accessed while it is worked on: it is filled, which needs nothing of
 * what it held (USM_WRITE_NO_INIT), then read and checked. */
#include "mapped.h"
#include "progress.h"
#include "store.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define COLUMNS   1024
#define ROW_BYTES (COLUMNS * sizeof(double))

#define WAVE_X 0.03
#define WAVE_Y 0.017

enum { FILL, CHECK };

/* ---- what is done to a row --------------------------------------------------------- */

static double wave(uint64_t x, uint64_t y)
{
    return cos(WAVE_X * (double)x + WAVE_Y * (double)y);
}

static void fill_row(double *row, uint64_t x)
{
    for (uint64_t y = 0; y < COLUMNS; y++)
        row[y] = wave(x, y);
}

/* The sum over a row, in closed form. */
static double row_sum(uint64_t x)
{
    return sin(COLUMNS * WAVE_Y / 2) / sin(WAVE_Y / 2) *
           cos(WAVE_X * (double)x + (COLUMNS - 1) * WAVE_Y / 2);
}

static bool row_is_right(const double *row, uint64_t x)
{
    double   sum   = 0.0;
    uint64_t probe = x % COLUMNS;

    for (uint64_t y = 0; y < COLUMNS; y++)
        sum += row[y];
    if (fabs(sum - row_sum(x)) > 1e-7 || fabs(row[probe] - wave(x, probe)) > 1e-12)
        return wrong("row %" PRIu64 " of the wave sums up to %.9f instead of %.9f", x, sum,
                     row_sum(x));
    return true;
}

/* ---- over buffers ------------------------------------------------------------------ */

typedef struct matrix {
    uint64_t     n;
    usm_buffer **row;
    store        store; /* that rows in a file are parts of */
} matrix;

static bool open_rows(matrix *m, const struct job *job)
{
    m->row = calloc(m->n, sizeof(usm_buffer *));
    if (!m->row)
        return wrong("out of memory for %" PRIu64 " rows", m->n);
    if (job->file && !store_open(&m->store, job, wave_task.name, m->n * ROW_BYTES))
        return false;
    for (uint64_t x = 0; x < m->n; x++) {
        if (!job->file)
            m->row[x] = usm_buffer_new(NULL, ROW_BYTES);
        else if (usm_buffer_create_sub(m->store.data, store_offset(&m->store, x * ROW_BYTES),
                                       ROW_BYTES, &m->row[x]) != USM_OK)
            m->row[x] = NULL;
        if (!m->row[x])
            return failed("a row");
    }
    return true;
}

static void close_rows(matrix *m)
{
    for (uint64_t x = 0; m->row && x < m->n; x++)
        usm_buffer_destroy(m->row[x]);
    free(m->row);
    store_close(&m->store);
}

static bool fill(matrix *m, struct report *r)
{
    progress_begin(r, "fill", m->n * ROW_BYTES);
    for (uint64_t x = store_first_step(&m->store, FILL, m->n); x < m->n; x++) {
        usm_access a;

        if (usm_access_begin(m->row[x], 0, ROW_BYTES, USM_WRITE_NO_INIT, &a) != USM_OK)
            return failed("access to a row");
        fill_row(a.ptr, x);
        usm_access_end(&a);
        progress_add(ROW_BYTES);
        if (store_is_due(&m->store, x, m->n) && !store_commit(&m->store, FILL, x + 1))
            return false;
    }
    progress_end();
    return store_commit(&m->store, CHECK, 0);
}

static bool check(matrix *m, struct report *r)
{
    progress_begin(r, "check", m->n * ROW_BYTES);
    for (uint64_t x = 0; x < m->n; x++) {
        usm_access a;
        bool       is_right;

        if (usm_access_begin(m->row[x], 0, ROW_BYTES, USM_READ, &a) != USM_OK)
            return failed("access to a row");
        is_right = row_is_right(a.ptr, x);
        usm_access_end(&a);
        if (!is_right)
            return false;
        progress_add(ROW_BYTES);
    }
    progress_end();
    return true;
}

static bool run(const struct job *job)
{
    matrix m       = {.n = job->size / ROW_BYTES};
    bool   is_good = open_rows(&m, job) && fill(&m, job->report) && check(&m, job->report);

    close_rows(&m);
    return is_good;
}

/* ---- the same over an mmap()ed file ------------------------------------------------ */

static void fill_mapped(double *data, uint64_t n, struct report *r)
{
    progress_begin(r, "fill", n * ROW_BYTES);
    for (uint64_t x = 0; x < n; x++) {
        fill_row(data + x * COLUMNS, x);
        progress_add(ROW_BYTES);
    }
    progress_end();
}

static bool check_mapped(const double *data, uint64_t n, struct report *r)
{
    progress_begin(r, "check", n * ROW_BYTES);
    for (uint64_t x = 0; x < n; x++) {
        if (!row_is_right(data + x * COLUMNS, x))
            return false;
        progress_add(ROW_BYTES);
    }
    progress_end();
    return true;
}

static bool run_mapped(const struct job *job)
{
    const uint64_t n       = job->size / ROW_BYTES;
    double        *data    = mapped_create(n * ROW_BYTES);
    bool           is_good = false;

    if (data) {
        fill_mapped(data, n, job->report);
        is_good = check_mapped(data, n, job->report);
    }
    mapped_destroy(data, n * ROW_BYTES);
    return is_good;
}

const task wave_task = {"wave", "a plane wave, each row of 8 KiB a buffer of its own", run,
                        run_mapped};
