/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* All devices search, those of all ranks of a job if there are several: what the sample asks of
 * libusm when it runs over a team; for main.c.
 *
 *     the devices -> team, program -> the team's kernel
 *     a launch of all strips, cut into chunks; each device takes the next one when it has room
 *
 * Each chunk has a number of its own that tells what it has found, and they are merged to the first
 * that has found something: nothing above it is begun any more. */
#include "md5.h"

#include "../common/clock.h"
#include "../common/team.h"
#include "md5_kernels.h" /* made of md5.cl by usm_add_kernels() */

#include <stdio.h>

static usm_status tell(const char *what)
{
    fprintf(stderr, "md5: %s: %s (%s)\n", what, usm_last_error(),
            usm_status_name(usm_last_status()));
    return usm_last_status();
}

static usm_status build_kernel(usm_team *team, usm_team_kernel **kernel)
{
    const usm_image  images[] = {{USM_IMAGE_BUNDLE, md5_kernels, md5_kernels_size},
                                 {USM_IMAGE_NATIVE, md5_native_kernels, sizeof md5_native_kernels}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;

    desc.nimages = sizeof images / sizeof images[0];
    desc.images  = images;
    return usm_team_kernel_create(team, &desc, "md5_first", kernel) == USM_OK
               ? USM_OK
               : tell("building the kernel");
}

static usm_status search_part(struct team_course *course, usm_team_kernel *kernel,
                              const struct md5_request *part, bool is_over, int64_t *strip)
{
    const int64_t       strips = (part->to - 1) / MD5_LETTERS - part->from / MD5_LETTERS + 1;
    const usm_split_arg args[] = {USM_SPLIT_WHOLE(part, sizeof *part),
                                  USM_SPLIT_FIRST(strip, sizeof *strip)};
    usm_parallel_desc   launch = USM_PARALLEL_DESC_INIT;
    usm_parallel_stats  stats  = USM_PARALLEL_STATS_INIT;
    usm_parallel_run   *run;
    usm_status          status;

    *strip           = MD5_ABSENT;
    launch.kernel    = kernel;
    launch.global[0] = (size_t)strips;
    launch.nargs     = sizeof args / sizeof args[0];
    launch.args      = args;
    team_course_set(course, &launch, (uint64_t)strips, (uint64_t)(part->to - part->from));
    status = usm_parallel_start(course->team, &launch, &run);
    if (status != USM_OK)
        return tell("searching");
    if (is_over)
        usm_parallel_cancel(run);
    status = usm_parallel_wait(run, &stats);
    usm_parallel_release(run);
    if (status == USM_OK)
        team_course_add(course, &stats);
    return status == USM_OK || status == USM_E_CANCELLED ? status : tell("searching");
}

/* Launches are collective, and only home sees what was found: when there are parts left then, it
 * cancels the next one, which tells the others that it is over. */
static usm_status search(struct team_course *course, usm_team_kernel *kernel,
                         const struct md5_request *request, int64_t *number)
{
    const int64_t      most   = MD5_PART_STRIPS * MD5_LETTERS;
    struct md5_request part   = *request;
    usm_status         status = USM_OK;

    for (; status == USM_OK && part.from < request->to; part.from = part.to) {
        int64_t strip;

        part.to = request->to - part.from > most ? part.from + most : request->to;
        status  = search_part(course, kernel, &part, *number != MD5_ABSENT, &strip);
        if (strip != MD5_ABSENT && !md5_look_up(&part, strip, number))
            return USM_E_SYSTEM;
        if (*number != MD5_ABSENT && !course->options->ranks)
            break;
    }
    return status == USM_E_CANCELLED ? USM_OK : status;
}

usm_status md5_team_run(struct team_course *course, const struct md5_request *request,
                        int64_t *number)
{
    const double     start_s = clock_now_s();
    usm_team_kernel *kernel  = NULL;
    usm_status       status  = team_course_open(course, "md5");

    *number = MD5_ABSENT;
    if (status == USM_OK)
        status = build_kernel(course->team, &kernel);
    course->start_s = clock_now_s();
    course->build_s = course->start_s - start_s;
    if (status == USM_OK)
        status = search(course, kernel, request, number);
    course->run_s = clock_now_s() - course->start_s;
    usm_team_kernel_destroy(kernel);
    return status;
}
