/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the sample share. */
#ifndef FAR_MEMORY_H
#define FAR_MEMORY_H

#include <usm/usm.h>

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct options {
    uint64_t limit; /* bytes of memory that rank 0 has for the grid       */
    unsigned times; /* the grid is so many times as large                 */
    unsigned steps;
    uint64_t lend;  /* bytes of each other rank; 0: enough for two copies */
    int      kill;  /* the rank that dies in the middle, or -1            */
    bool     memd;  /* memory servers lend, in the same mpirun             */
    bool     quiet; /* only the passes and the verdict                    */
} options;

typedef enum options_result { OPTIONS_GO, OPTIONS_HELP, OPTIONS_WRONG } options_result;

/* options.c: what is wrong is said if `speaks`. */
options_result options_parse(options *o, int argc, char **argv, bool speaks);
void           options_help(void);

/* ---- grid.c: the computation, over memory of any kind ---------------------------------- */

#define ROW        4096 /* floats of a row                                                */
#define ROW_BYTES  (ROW * sizeof(float))
#define BAND       64 /* rows that are worked on at once: 1 MiB                         */
#define BAND_BYTES (BAND * ROW_BYTES)

/* The rows above the one that is computed, as they were before the step. */
typedef struct window {
    float above[ROW], here[ROW];
} window;

void grid_fill(float *rows, uint64_t first, uint64_t n);
/* One step of a plate that takes heat from its neighbours, for n rows from row `first` on.  Behind
 * them lies the next row, unless they are the last.  In order, from row 0. */
void grid_step(float *rows, uint64_t first, uint64_t n, uint64_t total, window *w);
/* The same bits give the same number. */
uint64_t grid_checksum(const float *row);

/* ---- reference.c: the same in plain memory ----------------------------------------------- */

/* sums[row] after all steps; NULL: no memory.  The caller frees it. */
uint64_t *reference_compute(uint64_t rows, unsigned steps);

/* ---- compute.c: rank 0 ------------------------------------------------------------------- */

typedef struct job {
    const options *o;
    MPI_Comm       comm; /* of the program's own ranks                                  */
    int            rank, size;
    int            dead; /* the rank that was told to die, or -1                         */
    uint64_t       rows; /* of the grid, a multiple of BAND                              */
    bool           is_one_node;
} job;

bool compute(job *j);
/* Prints what failed, with libusm's story; returns false. */
bool failed(const char *what);

/* ---- lender.c: messages between rank 0 and those that lend --------------------------------- */

/* What a rank does that only lends: it sleeps, and libusm serves, until rank 0 says "done"; or
 * "die", which it does by SIGKILL. */
void lender_wait(MPI_Comm comm);
/* Rank 0 tells one rank to die; all others that it is done.  Waits for nobody. */
void lender_kill(job *j, int rank);
void lenders_release(const job *j);

/* ---- report.c ------------------------------------------------------------------------------ */

/* What one pass over the grid took. */
typedef struct pass {
    double          began, seconds, longest; /* longest: of all waits for an access         */
    uint64_t        touched;                 /* blocks                                       */
    usm_spill_stats before, after;
} pass;

double report_now(void);
void   report_head(const job *j);
void   pass_begin(pass *p);
void   pass_end(pass *p, const char *name);
/* Who lends how much, and holds how much of it. */
void report_members(const char *title);
/* Where all of the buffer's blocks are, and what moved. */
void report_spill(void);
/* `before`: the pass before, or NULL. */
void report_kill(int rank, const pass *before, const pass *p);

#endif
