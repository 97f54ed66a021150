/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* libusm's main sample: the elevations of some 12,000 airports become a relief of the United
 * States, on whatever device USM_DEVICE_SELECTOR names.
 *
 * Here: the course of the program and what it prints.  What it asks of libusm is in interpolate.c
 * and team.c, the kernels are in idw.cl and native.c, the check is in reference.c, the picture in
 * map.c. */
#include "../common/job.h"
#include "../common/progress.h"
#include "../common/team.h"
#include "idw.h"
#include "options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB (1024.0 * 1024.0)

enum exit_status { EXIT_RIGHT = 0, EXIT_WRONG = 1, EXIT_OPTIONS = 2, EXIT_NO_DEVICE = 3 };

static const char *image_name(usm_image_type image)
{
    switch (image) {
    case USM_IMAGE_OPENCL_C:
        return "OpenCL C";
    case USM_IMAGE_SPIRV:
        return "SPIR-V";
    case USM_IMAGE_NATIVE:
        return "native C";
    case USM_IMAGE_BINARY:
        return "binary";
    case USM_IMAGE_BUNDLE:
    default:
        return "unknown";
    }
}

static bool print_device(const usm_device *dev)
{
    const char     *selector = NULL, *origin = NULL;
    usm_device_info info = USM_DEVICE_INFO_INIT;

    if (usm_device_get_info(dev, &info) != USM_OK)
        return false;
    printf("\ndevice   %s  %s (%s)\n", info.selector, info.name, info.platform);
    if (usm_config_get("device_selector", &selector, &origin) == USM_OK && selector && *selector)
        printf("         because %s says %s\n", origin, selector);
    else
        printf("         because nothing was selected: a GPU first, then a CPU over OpenCL, then"
               " the host\n");
    return true;
}

static void print_pool(const char *name, const usm_pool_stats *stats)
{
    printf("%s%.2f MiB live at its peak, in %" PRIu64 " allocation%s;"
           " %.2f MiB from the driver, in %" PRIu64 " call%s\n",
           name, (double)stats->live_peak / MIB, stats->allocations,
           stats->allocations == 1 ? "" : "s", (double)stats->reserved_peak / MIB,
           stats->driver_allocs, stats->driver_allocs == 1 ? "" : "s");
}

static void print_figures(const struct idw_figures *f)
{
    printf("kernel   %s, built in %.2f s\n", image_name(f->image), f->build_s);
    printf("time     %.2f s, %.2f G interactions/s\n", f->compute_s,
           1e-9 * (double)f->interactions / f->compute_s);
    printf("copied   %.2f MiB to the device, %.2f MiB back\n", (double)f->bytes_up / MIB,
           (double)f->bytes_down / MIB);
    print_pool("memory   device: ", &f->device_pool);
    if (f->has_host_pool)
        print_pool("         host:   ", &f->host_pool);
}

static bool check(const struct options *options, const struct idw_input *input,
                  const float *heights)
{
    const double factor = 1e-9 * (double)input->points->n / (options->check_all ? 1.0 : 64.0);

    progress_begin("check", factor, "G interactions/s");
    struct idw_difference d =
        idw_compare(input, heights, options->check_all, options->is_quiet ? NULL : progress_show);
    bool is_good = idw_difference_passes(&d);

    printf("check    %" PRIu64 " pixels against plain C: at most %.3g ulp, %.1e relative"
           " (%.1e to double arithmetic)  %s\n",
           d.pixels, (double)d.ulp, d.relative, d.from_doubles, is_good ? "PASS" : "FAIL");
    if (!is_good)
        printf("         the worst is at row %" PRIu32 ", column %" PRIu32 "\n", d.row, d.column);
    return is_good;
}

static bool draw(const struct options *options, const struct idw_input *input, const float *heights)
{
    const size_t n = input->points->n;
    char         title[96];

    snprintf(title, sizeof title, "Interpolated between %zu,%03zu airports, power %u", n / 1000,
             n % 1000, input->power);
    if (!idw_map_write(input->grid, heights, options->out, title))
        return false;
    printf("map      %s\n", options->out);
    return true;
}

static bool run_on(usm_device *dev, const struct options *options, const struct idw_input *input,
                   bool *is_drawn)
{
    struct idw_figures figures = {0};
    struct idw_job    *job;
    bool               is_good;

    if (!print_device(dev) || !(job = idw_job_create(dev, input)))
        return false;
    progress_begin("compute", 1e-9 * (double)input->points->n, "G interactions/s");
    is_good = idw_job_run(job, options->is_quiet ? NULL : progress_show) &&
              idw_job_figures(job, &figures);
    if (is_good) {
        print_figures(&figures);
        is_good = check(options, input, idw_job_heights(job));
        if (options->out && !*is_drawn) {
            *is_drawn = draw(options, input, idw_job_heights(job));
            is_good   = is_good && *is_drawn;
        }
    }
    idw_job_destroy(job);
    return is_good;
}

/* The devices that the selector names, in an array that the caller frees; NULL on failure. */
static usm_device **list_devices(size_t *count)
{
    usm_device **devices;
    size_t       listed = 0;

    if (usm_get_devices(NULL, 0, count) != USM_OK) {
        fprintf(stderr, "idw: %s\n", usm_last_error());
        return NULL;
    }
    devices = calloc(*count, sizeof(usm_device *));
    if (!devices) {
        fprintf(stderr, "idw: out of memory\n");
    } else if (usm_get_devices(devices, *count, &listed) != USM_OK) {
        fprintf(stderr, "idw: %s\n", usm_last_error());
        free(devices);
        devices = NULL;
    }
    return devices;
}

/* Every device that the selector names, or the first; each prints what became of it. */
static enum exit_status run_all(const struct options *options, const struct idw_input *input)
{
    size_t       count = 0, good = 0;
    usm_device **devices  = list_devices(&count);
    bool         is_drawn = false;

    if (!devices)
        return usm_last_status() == USM_E_NO_DEVICE ? EXIT_NO_DEVICE : EXIT_WRONG;
    if (!options->all_devices)
        count = 1;
    for (size_t i = 0; i < count; i++)
        good += run_on(devices[i], options, input, &is_drawn);
    if (options->all_devices)
        printf("\n%zu of %zu devices right\n", good, count);
    free(devices);
    return good == count ? EXIT_RIGHT : EXIT_WRONG;
}

/* ---- over a team --------------------------------------------------------------------------- */

static bool report(const struct options *options, const struct idw_input *input,
                   const struct team_course *course, const float *heights)
{
    const uint64_t size = input->grid->size;

    printf("\n");
    team_course_print(course);
    printf("kernel   built in %.2f s\n", course->build_s);
    printf("time     %.2f s, %.2f G interactions/s\n", course->run_s,
           1e-9 * (double)(size * size * input->points->n) / course->run_s);
    printf("copied   %.2f MiB to devices' memory, %.2f MiB back\n",
           (double)course->sum.bytes_in / MIB, (double)course->sum.bytes_out / MIB);
    return check(options, input, heights) && (!options->out || draw(options, input, heights));
}

/* Of several ranks only home has the result, and speaks. */
static enum exit_status run_team(const struct options *options, const struct idw_input *input)
{
    const uint64_t     size     = input->grid->size;
    const bool         is_shown = job_is_home() && !options->is_quiet;
    struct team_course course   = {
          .options = &options->team, .show = is_shown ? progress_show : NULL, .total = size * size};
    float     *heights = job_is_home() ? malloc(size * input->grid->pitch * sizeof(float)) : NULL;
    usm_status status  = USM_E_NO_MEMORY;
    bool       is_good;

    progress_begin("compute", 1e-9 * (double)input->points->n, "G interactions/s");
    if (heights || !job_is_home())
        status = idw_team_run(&course, input, heights);
    job_leave(team_course_close(&course) && status == USM_OK);
    is_good = status == USM_OK && (!job_is_home() || report(options, input, &course, heights));
    team_course_fini(&course);
    free(heights);
    if (status == USM_E_NO_DEVICE)
        return EXIT_NO_DEVICE;
    return is_good ? EXIT_RIGHT : EXIT_WRONG;
}

static enum exit_status run(const struct options *options)
{
    struct idw_points points;
    struct idw_grid   grid;
    enum exit_status  status = EXIT_WRONG;

    if (!job_join("idw", options->team.ranks) || !idw_points_load(&points))
        return EXIT_WRONG;
    if (idw_grid_init(&grid, options->size)) {
        const struct idw_input input = {&points, &grid, options->power};

        if (job_is_home())
            printf("idw      elevations of %zu airports, inverse distance to the power %u,"
                   " %" PRIu32 " x %" PRIu32 " pixels\n",
                   points.n, options->power, grid.size, grid.size);
        status = options->team.is_on || options->team.ranks ? run_team(options, &input)
                                                            : run_all(options, &input);
    }
    idw_grid_fini(&grid);
    idw_points_fini(&points);
    return status;
}

int main(int argc, char **argv)
{
    struct options options;

    setvbuf(stdout, NULL, _IOLBF, 0);
    switch (options_parse(&options, argc, argv)) {
    case OPTIONS_HELP:
        options_help();
        return EXIT_RIGHT;
    case OPTIONS_WRONG:
        return EXIT_OPTIONS;
    case OPTIONS_GO:
    default:
        return job_exit((int)run(&options));
    }
}
