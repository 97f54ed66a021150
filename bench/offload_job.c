/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The computations of baselines/ by usm_parallel() (offload_job.h). */
#include "offload_job.h"

#include "baselines/idw.h"
#include "baselines/md5_task.h"

#include "offload_idw_kernels.h" /* made of baselines/idw.cl by usm_add_kernels() */
#include "offload_md5_kernels.h" /* made of samples/md5/md5.cl                     */

#include <usm/usm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 4

struct offload_job {
    usm_team           *team;
    usm_team_kernel    *kernel;
    usm_split_arg       args[2];
    usm_parallel_desc   desc;
    double              chunk;
    struct idw_package *package; /* NULL: md5    */
    float              *image;
    struct md5_request  request;
    uint32_t            found; /* the strip */
};

static void must(usm_status st, const char *what)
{
    char text[400];

    if (st == USM_OK)
        return;
    snprintf(text, sizeof text, "%s: %s: %.300s", what, usm_status_name(st), usm_last_error());
    baseline_die(text);
}

/* ---- the team ------------------------------------------------------------------------------ */

static void open_team(struct offload_job *job, const char *selectors, bool is_rank)
{
    usm_team_desc desc = USM_TEAM_DESC_INIT;
    usm_device   *list[DEVICES];
    char          text[128], *rest = text;
    size_t        n = 0, found;

    snprintf(text, sizeof text, "%s", selectors ? selectors : "opencl:*");
    for (char *one; n < DEVICES && (one = strtok_r(rest, "+", &rest)) != NULL; n++)
        must(usm_select_devices(one, &list[n], 1, &found), one);
    desc.ndevices = n;
    desc.devices  = list;
    desc.ranks    = is_rank;
    must(usm_team_create(&desc, &job->team), "making a team");
}

/* Items are IDW_LANES pixels each; libusm gives whole work-groups. */
static void idw_native(const usm_range *range, void *const *args)
{
    const struct idw_package *package = *(const struct idw_package *const *)args[0];
    float                    *out     = *(float *const *)args[1];

    idw_pixels(package, range->begin[0] * IDW_LANES, range->end[0] * IDW_LANES,
               out + (range->begin[0] - range->offset[0]) * IDW_LANES);
}

static void build(struct offload_job *job, const char *name)
{
    static const usm_native_kernel native[] = {{"idw_chunk", idw_native, 2, NULL},
                                               {"idw_four_times", idw_native, 2, NULL}};
    const usm_image  idw[] = {{USM_IMAGE_BUNDLE, offload_idw_kernels, offload_idw_kernels_size},
                              {USM_IMAGE_NATIVE, native, sizeof native}};
    const usm_image  md5[] = {{USM_IMAGE_BUNDLE, offload_md5_kernels, offload_md5_kernels_size}};
    usm_program_desc desc  = USM_PROGRAM_DESC_INIT;

    desc.nimages = job->package ? 2 : 1;
    desc.images  = job->package ? idw : md5;
    must(usm_team_kernel_create(job->team, &desc, name, &job->kernel), "building the kernel");
}

/* ---- the launch ---------------------------------------------------------------------------- */

static void describe(struct offload_job *job, size_t items, size_t local)
{
    job->desc = (usm_parallel_desc)USM_PARALLEL_DESC_INIT;

    job->desc.kernel    = job->kernel;
    job->desc.global[0] = items;
    job->desc.local[0]  = local;
    job->desc.args      = job->args;
    job->desc.nargs     = 2;
}

static void open_idw(struct offload_job *job, const struct baseline *b)
{
    const usm_split_arg args[] = {USM_SPLIT_WHOLE(job->package, idw_package_bytes(job->package)),
                                  USM_SPLIT_OUT(job->image, IDW_LANES * sizeof(float))};

    memcpy(job->args, args, sizeof args);
    describe(job, (size_t)(b->side * b->side) / IDW_LANES, IDW_LOCAL);
}

/* Each chunk has its own lowest strip: the lowest of all is the result. */
static void open_md5(struct offload_job *job)
{
    const usm_split_arg args[] = {USM_SPLIT_WHOLE(&job->request, sizeof job->request),
                                  {.follow  = USM_FOLLOW_PRIVATE,
                                   .mode    = USM_READ_WRITE,
                                   .host    = &job->found,
                                   .size    = sizeof job->found,
                                   .merge   = USM_MERGE_MIN,
                                   .element = USM_ELEMENT_U32}};

    memcpy(job->args, args, sizeof args);
    describe(job, (size_t)md5_task_groups(&job->request) * MD5_LOCAL, MD5_LOCAL);
}

struct offload_job *offload_job_create(const char *what, const struct baseline *b, bool is_rank)
{
    struct offload_job *job    = calloc(1, sizeof *job);
    const bool          is_idw = strncmp(what, "idw", 3) == 0;

    if (!job)
        baseline_die("out of memory");
    md5_task_init(&job->request, b);
    if (is_idw) {
        job->package = idw_package_create(b->points, b->side);
        job->image   = malloc(sizeof(float) * (size_t)(b->side * b->side));
        if (!job->package || !job->image)
            baseline_die("out of memory");
    }
    open_team(job, b->device, is_rank);
    build(job, !is_idw                           ? "md5_search"
               : strcmp(what, "idw-uneven") == 0 ? "idw_four_times"
                                                 : "idw_chunk");
    if (is_idw)
        open_idw(job, b);
    else
        open_md5(job);
    return job;
}

void offload_job_run(struct offload_job *job, int64_t chunks, usm_parallel_stats *stats)
{
    const size_t local  = job->desc.local[0];
    const size_t groups = job->desc.global[0] / local;
    const size_t most   = (groups + (size_t)chunks - 1) / (size_t)chunks;

    job->found = MD5_NO_STRIP;
    job->chunk = (double)(most * local);
    if (!getenv("USM_POLICY")) /* NOLINT(concurrency-mt-unsafe): nobody sets any */
        job->desc.policy = (usm_policy){.name = "fixed", .nnumbers = 1, .numbers = &job->chunk};
    must(usm_parallel(job->team, &job->desc, stats), "computing");
}

uint64_t offload_job_answer(const struct offload_job *job, const struct baseline *b)
{
    if (!job->package)
        return md5_task_answer(&job->request, job->found, b);
    if (b->verify && b->repetitions == 1)
        idw_verify(job->package, job->image);
    return idw_checksum(job->package, job->image);
}

void offload_job_destroy(struct offload_job *job)
{
    usm_team_kernel_destroy(job->kernel);
    usm_team_destroy(job->team);
    free(job->image);
    free(job->package);
    free(job);
}
