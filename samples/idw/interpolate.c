/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One device computes the grid: everything that this sample asks of libusm; for main.c.
 *
 *     the device -> context -> queue, program -> kernel
 *     device memory: five input tables and the grid; host memory: what comes back
 *     copies up, launches of some rows each, one copy down, all in the queue's order
 *
 * Nothing here knows which backend the device belongs to. */
#include "idw.h"

#include "../common/clock.h"
#include "idw_kernels.h" /* made of idw.cl by usm_add_kernels() */

#include <stdio.h>
#include <stdlib.h>

#define CPU_CHUNKS 32u
#define GPU_CHUNKS 8u /* enough work-items in each to fill a large GPU */
#define IN_FLIGHT  2u

struct idw_job {
    const struct idw_input *input;
    usm_device             *dev;
    usm_context            *ctx;
    usm_queue              *queue;
    usm_program            *program;
    usm_kernel             *kernel;
    float                  *east, *north, *height, *row_north, *row_scale, *grid; /* device */
    float                  *heights;                                              /* host */
    bool                    heights_usm; /* from usm_malloc_host(), else from malloc() */
    double                  build_s, compute_s;
    uint64_t                bytes_up, bytes_down;
};

/* What failed, and libusm's story of it. */
static bool tell(const char *what)
{
    fprintf(stderr, "idw: %s: %s (%s)\n", what, usm_last_error(),
            usm_status_name(usm_last_status()));
    return false;
}

static bool open_device(struct idw_job *job)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;

    desc.ndevices = 1;
    desc.devices  = &job->dev;
    if (usm_context_create(&desc, &job->ctx) != USM_OK ||
        usm_queue_create(job->ctx, job->dev, NULL, &job->queue) != USM_OK)
        return tell("opening the device");
    return true;
}

/* The bundle holds OpenCL C and, where the build had the tools, SPIR-V; the table holds C
 * functions. The device takes what it can run. */
static bool build_kernel(struct idw_job *job)
{
    const usm_image  images[] = {{USM_IMAGE_BUNDLE, idw_kernels, idw_kernels_size},
                                 {USM_IMAGE_NATIVE, idw_native_kernels, sizeof idw_native_kernels}};
    const double     start_s  = clock_now_s();
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;

    desc.nimages = sizeof images / sizeof images[0];
    desc.images  = images;
    if (usm_program_create(job->ctx, &desc, &job->program) != USM_OK ||
        usm_kernel_create(job->program, "idw", &job->kernel) != USM_OK)
        return tell("building the kernel");
    job->build_s = clock_now_s() - start_s;
    return true;
}

static size_t grid_bytes(const struct idw_job *job)
{
    const struct idw_grid *grid = job->input->grid;

    return (size_t)grid->size * grid->pitch * sizeof(float);
}

/* Host memory of the context is what devices copy to fastest; not every device offers it. */
static bool allocate_heights(struct idw_job *job)
{
    job->heights_usm = usm_device_has(job->dev, USM_ASPECT_USM_HOST_ALLOCATIONS);
    if (job->heights_usm)
        job->heights = usm_malloc_host(grid_bytes(job), job->queue);
    else
        job->heights = malloc(grid_bytes(job));
    return job->heights != NULL;
}

static bool allocate(struct idw_job *job)
{
    const size_t point_bytes = job->input->points->n * sizeof(float);
    const size_t row_bytes   = job->input->grid->size * sizeof(float);

    job->east      = usm_malloc_device(point_bytes, job->queue);
    job->north     = usm_malloc_device(point_bytes, job->queue);
    job->height    = usm_malloc_device(point_bytes, job->queue);
    job->row_north = usm_malloc_device(row_bytes, job->queue);
    job->row_scale = usm_malloc_device(row_bytes, job->queue);
    job->grid      = usm_malloc_device(grid_bytes(job), job->queue);
    if (!job->east || !job->north || !job->height || !job->row_north || !job->row_scale ||
        !job->grid || !allocate_heights(job))
        return tell("allocating");
    return true;
}

struct idw_job *idw_job_create(usm_device *dev, const struct idw_input *input)
{
    struct idw_job *job = calloc(1, sizeof *job);

    if (!job) {
        fprintf(stderr, "idw: out of memory\n");
        return NULL;
    }
    job->input = input;
    job->dev   = dev;
    if (!open_device(job) || !build_kernel(job) || !allocate(job)) {
        idw_job_destroy(job);
        return NULL;
    }
    return job;
}

/* The queue is in order: the launches that follow find the data. */
static bool copy_up(struct idw_job *job, float *to, const float *from, size_t n)
{
    job->bytes_up += n * sizeof *to;
    return usm_memcpy(job->queue, to, from, n * sizeof *to, 0, NULL, NULL) == USM_OK;
}

static bool upload(struct idw_job *job)
{
    const struct idw_points *points = job->input->points;
    const struct idw_grid   *grid   = job->input->grid;

    return (copy_up(job, job->east, points->east, points->n) &&
            copy_up(job, job->north, points->north, points->n) &&
            copy_up(job, job->height, points->height, points->n) &&
            copy_up(job, job->row_north, grid->row_north, grid->size) &&
            copy_up(job, job->row_scale, grid->row_scale, grid->size)) ||
           tell("copying to the device");
}

/* The rows from `first` on: the global offset makes them the same work-items in whatever pieces the
 * grid is computed.  The arguments are copied by usm_queue_submit(). */
static bool launch_rows(struct idw_job *job, uint32_t first, uint32_t rows, usm_event **done)
{
    const struct idw_grid *grid       = job->input->grid;
    const uint32_t         count      = (uint32_t)job->input->points->n;
    const float            nearest2   = IDW_NEAREST_KM * IDW_NEAREST_KM;
    const uint32_t         half_power = job->input->power / 2;
    float                 *heights    = job->grid + (size_t)first * grid->pitch;
    const usm_arg          args[]     = {
                     USM_ARG_PTR(job->east),        USM_ARG_PTR(job->north),
                     USM_ARG_PTR(job->height),      USM_ARG_VAL(count),
                     USM_ARG_PTR(job->row_north),   USM_ARG_PTR(job->row_scale),
                     USM_ARG_VAL(grid->first_east), USM_ARG_VAL(grid->step_east),
                     USM_ARG_VAL(nearest2),         USM_ARG_VAL(half_power),
                     USM_ARG_VAL(grid->pitch),      USM_ARG_PTR(heights),
    };
    usm_launch launch = USM_LAUNCH_INIT;

    launch.kernel    = job->kernel;
    launch.dims      = 2;
    launch.offset[1] = first;
    launch.global[0] = grid->pitch / IDW_LANES;
    launch.global[1] = rows;
    launch.nargs     = sizeof args / sizeof args[0];
    launch.args      = args;
    return usm_queue_submit(job->queue, &launch, 0, NULL, done) == USM_OK ||
           tell("launching the kernel");
}

static uint32_t rows_of_a_chunk(const struct idw_job *job)
{
    uint32_t chunks = usm_device_has(job->dev, USM_ASPECT_GPU) ? GPU_CHUNKS : CPU_CHUNKS;

    return (job->input->grid->size + chunks - 1) / chunks;
}

/* Waits for a launch that was the last of `rows` rows. */
static bool finish_rows(struct idw_job *job, usm_event *done, uint32_t rows, double start_s,
                        idw_progress_fn progress)
{
    const uint64_t size = job->input->grid->size, end = rows < size ? rows : size;
    const bool     is_good = usm_event_wait(done) == USM_OK || tell("waiting for the kernel");

    usm_event_release(done);
    if (is_good && progress)
        progress(end * size, size * size, start_s);
    return is_good;
}

/* Some launches are always under way, so that the device is never idle.  Not all at once: a runtime
 * may report the first as done when the last is. */
static bool compute(struct idw_job *job, idw_progress_fn progress)
{
    const uint32_t size = job->input->grid->size, rows = rows_of_a_chunk(job);
    const uint32_t chunks               = (size + rows - 1) / rows;
    const double   start_s              = clock_now_s();
    usm_event     *under_way[IN_FLIGHT] = {NULL};
    bool           is_good              = true;

    for (uint32_t i = 0; i < chunks + IN_FLIGHT; i++) {
        usm_event    **slot  = &under_way[i % IN_FLIGHT];
        const uint32_t first = i * rows;

        if (*slot)
            is_good &= finish_rows(job, *slot, (i + 1 - IN_FLIGHT) * rows, start_s, progress);
        *slot = NULL;
        if (is_good && i < chunks)
            is_good = launch_rows(job, first, rows < size - first ? rows : size - first, slot);
    }
    return is_good;
}

static bool download(struct idw_job *job)
{
    job->bytes_down += grid_bytes(job);
    return (usm_memcpy(job->queue, job->heights, job->grid, grid_bytes(job), 0, NULL, NULL) ==
                USM_OK &&
            usm_queue_wait(job->queue) == USM_OK) ||
           tell("copying from the device");
}

bool idw_job_run(struct idw_job *job, idw_progress_fn progress)
{
    const double start_s = clock_now_s();

    job->bytes_up = job->bytes_down = 0;
    if (!upload(job) || !compute(job, progress) || !download(job)) {
        usm_queue_wait(job->queue); /* what was queued may still use the memory */
        return false;
    }
    job->compute_s = clock_now_s() - start_s;
    return true;
}

const float *idw_job_heights(const struct idw_job *job)
{
    return job->compute_s > 0.0 ? job->heights : NULL;
}

static bool pool_figures(const struct idw_job *job, usm_kind kind, usm_pool_stats *stats)
{
    usm_pool *pool = usm_pool_default(job->ctx, job->dev, kind);

    *stats = (usm_pool_stats)USM_POOL_STATS_INIT;
    return (pool && usm_pool_get_stats(pool, stats) == USM_OK) || tell("asking the pool");
}

bool idw_job_figures(const struct idw_job *job, struct idw_figures *figures)
{
    const uint64_t size = job->input->grid->size;
    const bool is_there = usm_program_get_image(job->program, job->dev, &figures->image) == USM_OK;

    figures->build_s       = job->build_s;
    figures->compute_s     = job->compute_s;
    figures->interactions  = size * size * job->input->points->n;
    figures->bytes_up      = job->bytes_up;
    figures->bytes_down    = job->bytes_down;
    figures->has_host_pool = job->heights_usm;
    return (is_there || tell("asking the program")) &&
           pool_figures(job, USM_DEVICE, &figures->device_pool) &&
           (!job->heights_usm || pool_figures(job, USM_HOST, &figures->host_pool));
}

void idw_job_destroy(struct idw_job *job)
{
    if (!job)
        return;
    if (job->heights_usm)
        usm_free(job->heights);
    else
        free(job->heights);
    usm_free(job->grid);
    usm_free(job->row_scale);
    usm_free(job->row_north);
    usm_free(job->height);
    usm_free(job->north);
    usm_free(job->east);
    usm_kernel_destroy(job->kernel);
    usm_program_destroy(job->program);
    usm_queue_destroy(job->queue);
    usm_context_destroy(job->ctx);
    free(job);
}
