/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* All devices compute the grid, those of all ranks of a job if there are several: what the sample
 * asks of libusm when it runs over a team; for main.c.
 *
 *     the devices -> team, program -> the team's kernel
 *     one launch: its rows are cut into chunks, and each device takes the next one when it has room
 *
 * Memory of devices, copies and queues are libusm's: each argument says how it follows the split.
 */
#include "idw.h"

#include "../common/clock.h"
#include "../common/team.h"
#include "idw_kernels.h" /* made of idw.cl by usm_add_kernels() */

#include <stdio.h>

static usm_status tell(const char *what)
{
    fprintf(stderr, "idw: %s: %s (%s)\n", what, usm_last_error(),
            usm_status_name(usm_last_status()));
    return usm_last_status();
}

static usm_status build_kernel(usm_team *team, usm_team_kernel **kernel)
{
    const usm_image  images[] = {{USM_IMAGE_BUNDLE, idw_kernels, idw_kernels_size},
                                 {USM_IMAGE_NATIVE, idw_native_kernels, sizeof idw_native_kernels}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;

    desc.nimages = sizeof images / sizeof images[0];
    desc.images  = images;
    return usm_team_kernel_create(team, &desc, "idw", kernel) == USM_OK
               ? USM_OK
               : tell("building the kernel");
}

/* Every rank makes the same call; the arguments and the result are those of rank 0. */
static usm_status compute(struct team_course *course, usm_team_kernel *kernel,
                          const struct idw_input *input, float *heights)
{
    const struct idw_grid   *grid       = input->grid;
    const struct idw_points *points     = input->points;
    const size_t             bytes      = points->n * sizeof(float);
    const uint32_t           count      = (uint32_t)points->n;
    const float              nearest2   = IDW_NEAREST_KM * IDW_NEAREST_KM;
    const uint32_t           half_power = input->power / 2;
    const usm_split_arg      args[]     = {
                 USM_SPLIT_WHOLE(points->east, bytes),
                 USM_SPLIT_WHOLE(points->north, bytes),
                 USM_SPLIT_WHOLE(points->height, bytes),
                 USM_SPLIT_VALUE(count),
                 USM_SPLIT_WHOLE(grid->row_north, grid->size * sizeof(float)),
                 USM_SPLIT_WHOLE(grid->row_scale, grid->size * sizeof(float)),
                 USM_SPLIT_VALUE(grid->first_east),
                 USM_SPLIT_VALUE(grid->step_east),
                 USM_SPLIT_VALUE(nearest2),
                 USM_SPLIT_VALUE(half_power),
                 USM_SPLIT_VALUE(grid->pitch),
                 USM_SPLIT_OUT(heights, grid->pitch * sizeof(float)),
    };
    usm_parallel_desc  launch = USM_PARALLEL_DESC_INIT;
    usm_parallel_stats stats  = USM_PARALLEL_STATS_INIT;

    launch.kernel    = kernel;
    launch.dims      = 2;
    launch.global[0] = grid->pitch / IDW_LANES;
    launch.global[1] = grid->size;
    launch.nargs     = sizeof args / sizeof args[0];
    launch.args      = args;
    team_course_set(course, &launch, grid->size, (uint64_t)grid->size * grid->size);
    if (usm_parallel(course->team, &launch, &stats) != USM_OK)
        return tell("computing");
    team_course_add(course, &stats);
    return USM_OK;
}

usm_status idw_team_run(struct team_course *course, const struct idw_input *input, float *heights)
{
    const double     start_s = clock_now_s();
    usm_team_kernel *kernel  = NULL;
    usm_status       status  = team_course_open(course, "idw");

    if (status == USM_OK)
        status = build_kernel(course->team, &kernel);
    course->start_s = clock_now_s();
    course->build_s = course->start_s - start_s;
    if (status == USM_OK)
        status = compute(course, kernel, input, heights);
    course->run_s = clock_now_s() - course->start_s;
    usm_team_kernel_destroy(kernel);
    return status;
}
