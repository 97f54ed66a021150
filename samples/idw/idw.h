/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the parts of the sample tell each other.
 *
 * The computation: a grid of pixels lies over a window of degrees; the height of each pixel is
 *
 *     sum of height[i] / d[i]^power  over  sum of 1 / d[i]^power      over ALL points i
 *
 * where d is the distance in km on a plane that touches the earth in the pixel's row: degrees of
 * longitude are scaled by the cosine of the row's latitude.  Everything is float, every sum runs
 * over the points in their order, nothing is contracted into fused operations: so idw.cl, native.c
 * and reference.c give the same bits wherever divisions are rounded correctly, and differ by few
 * units in the last place elsewhere. */
#ifndef IDW_H
#define IDW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <usm/usm.h>

/* Neighbouring pixels that one work-item computes: the width of float8 in idw.cl. */
#define IDW_LANES 8u

/* Kilometres of one degree of latitude on a sphere of 6,371 km. */
#define IDW_KM_PER_DEGREE 111.19493

/* Points nearer than this count as being this far: no division by zero, no spikes. */
#define IDW_NEAREST_KM 1.0f

/* points.c: the measurements ----------------------------------------------------------------- */

struct idw_points {
    size_t n;
    float *east;   /* degrees of longitude              */
    float *north;  /* km from the equator               */
    float *height; /* metres above the sea              */
};

/* Reads airports_us.csv, which is linked into the program.  False: out of memory or broken data,
 * said on stderr. */
bool idw_points_load(struct idw_points *points);
void idw_points_fini(struct idw_points *points);

/* grid.c: the pixels -------------------------------------------------------------------------- */

struct idw_grid {
    uint32_t size;       /* columns and rows; row 0 is the northernmost            */
    uint32_t pitch;      /* floats from one row to the next, a multiple of LANES   */
    float    first_east; /* longitude of the middle of column 0                    */
    float    step_east;  /* degrees from column to column                          */
    float   *row_north;  /* [size] km from the equator                             */
    float   *row_scale;  /* [size] km of one degree of longitude                   */
};

/* The window in degrees: the points' bounding box and the shores around it. */
extern const double idw_west, idw_east, idw_south, idw_north;

bool idw_grid_init(struct idw_grid *grid, uint32_t size);
void idw_grid_fini(struct idw_grid *grid);

/* interpolate.c: one device computes the grid -------------------------------------------------- */

struct idw_input {
    const struct idw_points *points;
    const struct idw_grid   *grid;
    unsigned                 power; /* 2, 4, 6 or 8 */
};

struct idw_figures {
    usm_image_type image; /* what the device took from the program */
    double         build_s;
    double         compute_s; /* upload, all launches, download */
    uint64_t       interactions;
    uint64_t       bytes_up, bytes_down;
    bool           has_host_pool;
    usm_pool_stats device_pool, host_pool;
};

/* Called when `done` of `total` pixels are there; `start_s` is when the first was begun. */
typedef void (*idw_progress_fn)(uint64_t done, uint64_t total, double start_s);

struct idw_job;

/* Failures are said on stderr.  `input` stays alive as long as the job. */
struct idw_job *idw_job_create(usm_device *dev, const struct idw_input *input);
bool            idw_job_run(struct idw_job *job, idw_progress_fn progress);
/* The grid's heights, size rows of `pitch` floats; NULL before a run.  The job's. */
const float *idw_job_heights(const struct idw_job *job);
bool         idw_job_figures(const struct idw_job *job, struct idw_figures *figures);
void         idw_job_destroy(struct idw_job *job);

/* team.c: all devices compute the grid --------------------------------------------------------- */

struct team_course; /* ../common/team.h */

/* Over a team that it makes of the course's options.  `heights`: as idw_job_heights(), or NULL on a
 * rank that is not home.  Collective.  Failures are said on stderr. */
usm_status idw_team_run(struct team_course *course, const struct idw_input *input, float *heights);

/* native.c: the kernel for devices that run C ----------------------------------------------------
 */

extern const usm_native_kernel idw_native_kernels[1];

/* reference.c: is it right? -------------------------------------------------------------------- */

struct idw_difference {
    uint64_t pixels;       /* how many were compared                                        */
    float    ulp;          /* largest distance to plain float C; an ulp is at least that of 1 m */
    double   relative;     /* the same as a share of the height, of at least 1 m            */
    double   from_doubles; /* largest relative distance to the sum in double arithmetic     */
    uint32_t row, column;  /* where `ulp` was seen                                          */
};

/* Compares `heights`, in every row each 64th pixel or all.  `progress` may be NULL. */
struct idw_difference idw_compare(const struct idw_input *input, const float *heights, bool all,
                                  idw_progress_fn progress);
bool                  idw_difference_passes(const struct idw_difference *difference);

/* map.c: the picture -----------------------------------------------------------------------------
 */

/* Draws `heights` into a file: PNG, or PPM in a build without libpng. */
bool idw_map_write(const struct idw_grid *grid, const float *heights, const char *path,
                   const char *title);

#endif
