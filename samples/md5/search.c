/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One device searches: everything that this sample asks of libusm; for main.c.
 *
 *     the device -> context -> queue, program -> kernel
 *     device memory: the request, and the lowest work-item that has found something
 *     the request up, launches of some strips each, what was found down after each of them
 *
 * Launches go on until one has found it: the lowest number, because all before it are done by then.
 * Global offsets make strips the same work-items however the range is cut.  Kernels count strips in
 * 32 bits, so a range of more is searched in several parts. */
#include "md5.h"

#include "../common/clock.h"
#include "md5_kernels.h" /* made of md5.cl by usm_add_kernels() */

#include <stdio.h>
#include <stdlib.h>

#define CPU_STRIPS (INT64_C(1) << 16) /* of a launch: some 20 ms       */
#define GPU_STRIPS (INT64_C(1) << 21) /* enough to fill a large GPU    */
#define IN_FLIGHT  2u                 /* so that the device is never idle */

struct md5_job {
    usm_device         *dev;
    usm_context        *ctx;
    usm_queue          *queue;
    usm_program        *program;
    usm_kernel         *kernel;
    struct md5_request *request;         /* device */
    uint32_t           *found;           /* device */
    uint32_t            seen[IN_FLIGHT]; /* what was found after a launch */
    double              build_s, search_s;
    int64_t             tried;
};

/* A part of the range, its strips counted from 0. */
struct part {
    struct md5_request request;
    int64_t            strips, batch;
    const uint32_t     none; /* what `found` is to begin with */
};

/* What failed, and libusm's story of it. */
static bool tell(const char *what)
{
    fprintf(stderr, "md5: %s: %s (%s)\n", what, usm_last_error(),
            usm_status_name(usm_last_status()));
    return false;
}

static bool open_device(struct md5_job *job)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;

    desc.ndevices = 1;
    desc.devices  = &job->dev;
    if (usm_context_create(&desc, &job->ctx) != USM_OK ||
        usm_queue_create(job->ctx, job->dev, NULL, &job->queue) != USM_OK)
        return tell("opening the device");
    return true;
}

static bool build_kernel(struct md5_job *job)
{
    const usm_image  images[] = {{USM_IMAGE_BUNDLE, md5_kernels, md5_kernels_size},
                                 {USM_IMAGE_NATIVE, md5_native_kernels, sizeof md5_native_kernels}};
    const double     start_s  = clock_now_s();
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;

    desc.nimages = sizeof images / sizeof images[0];
    desc.images  = images;
    if (usm_program_create(job->ctx, &desc, &job->program) != USM_OK ||
        usm_kernel_create(job->program, "md5_search", &job->kernel) != USM_OK)
        return tell("building the kernel");
    job->build_s = clock_now_s() - start_s;
    return true;
}

static bool allocate(struct md5_job *job)
{
    job->request = usm_malloc_device(sizeof *job->request, job->queue);
    job->found   = usm_malloc_device(sizeof *job->found, job->queue);
    return (job->request && job->found) || tell("allocating");
}

struct md5_job *md5_job_create(usm_device *dev)
{
    struct md5_job *job = calloc(1, sizeof *job);

    if (!job) {
        fprintf(stderr, "md5: out of memory\n");
        return NULL;
    }
    job->dev = dev;
    if (!open_device(job) || !build_kernel(job) || !allocate(job)) {
        md5_job_destroy(job);
        return NULL;
    }
    return job;
}

/* The queue is in order: the launches that follow find the data, and no launch sees a request that
 * is not its own. */
static bool upload(struct md5_job *job, const struct part *part)
{
    return (usm_memcpy(job->queue, job->request, &part->request, sizeof part->request, 0, NULL,
                       NULL) == USM_OK &&
            usm_memcpy(job->queue, job->found, &part->none, sizeof part->none, 0, NULL, NULL) ==
                USM_OK) ||
           tell("copying to the device");
}

/* The strips from `first` on, then what was found so far into job->seen[slot]. */
static bool launch_strips(struct md5_job *job, const struct part *part, int64_t first, size_t slot,
                          usm_event **done)
{
    const int64_t left   = part->strips - first;
    const usm_arg args[] = {USM_ARG_PTR(job->request), USM_ARG_PTR(job->found)};
    usm_launch    launch = USM_LAUNCH_INIT;

    launch.kernel    = job->kernel;
    launch.offset[0] = (size_t)first;
    launch.global[0] = (size_t)(left < part->batch ? left : part->batch);
    launch.nargs     = sizeof args / sizeof args[0];
    launch.args      = args;
    return (usm_queue_submit(job->queue, &launch, 0, NULL, NULL) == USM_OK &&
            usm_memcpy(job->queue, &job->seen[slot], job->found, sizeof *job->found, 0, NULL,
                       done) == USM_OK) ||
           tell("launching the kernel");
}

static bool finish_strips(usm_event *done)
{
    const bool is_good = usm_event_wait(done) == USM_OK || tell("waiting for the kernel");

    usm_event_release(done);
    return is_good;
}

/* Texts of the part whose strips are all before `strips`. */
static int64_t texts_before(const struct part *part, int64_t strips)
{
    const int64_t first = part->request.from / MD5_LETTERS;

    if (strips >= part->strips)
        return part->request.to - part->request.from;
    return (first + strips) * MD5_LETTERS - part->request.from;
}

/* Some launches are always under way; those behind the one that found it see that at once. */
static bool search_part(struct md5_job *job, const struct part *part, const int64_t total,
                        double start_s, md5_progress_fn progress, uint32_t *strip)
{
    const int64_t batches              = (part->strips + part->batch - 1) / part->batch;
    const int64_t tried                = job->tried;
    usm_event    *under_way[IN_FLIGHT] = {NULL};
    bool          is_good              = upload(job, part);

    *strip = MD5_NO_STRIP;
    for (int64_t i = 0; i < batches + IN_FLIGHT; i++) {
        const size_t slot = (size_t)i % IN_FLIGHT;

        if (under_way[slot]) {
            is_good &= finish_strips(under_way[slot]);
            under_way[slot] = NULL;
            if (is_good && *strip == MD5_NO_STRIP) {
                *strip     = job->seen[slot];
                job->tried = tried + texts_before(part, (i + 1 - IN_FLIGHT) * part->batch);
                if (progress && *strip == MD5_NO_STRIP)
                    progress((uint64_t)job->tried, (uint64_t)total, start_s);
            }
        }
        if (is_good && i < batches && *strip == MD5_NO_STRIP)
            is_good = launch_strips(job, part, i * part->batch, slot, &under_way[slot]);
    }
    return is_good;
}

bool md5_look_up(const struct md5_request *request, int64_t strip, int64_t *number)
{
    const int64_t      first = (request->from / MD5_LETTERS + strip) * MD5_LETTERS;
    struct md5_request texts = *request;

    if (texts.from < first)
        texts.from = first;
    if (texts.to > first + MD5_LETTERS)
        texts.to = first + MD5_LETTERS;
    *number = md5_scan(&texts);
    if (*number == MD5_ABSENT)
        fprintf(stderr, "md5: the device has found what is not there\n");
    return *number != MD5_ABSENT;
}

bool md5_job_run(struct md5_job *job, const struct md5_request *request, md5_progress_fn progress,
                 int64_t *number)
{
    const double  start_s = clock_now_s();
    const int64_t most    = MD5_PART_STRIPS * MD5_LETTERS;
    uint32_t      strip   = MD5_NO_STRIP;
    bool          is_good = true;

    *number    = MD5_ABSENT;
    job->tried = 0;
    for (int64_t from = request->from; is_good && strip == MD5_NO_STRIP && from < request->to;) {
        const int64_t end  = request->to - from > most ? (from + most) : request->to;
        struct part   part = {.request = *request, .none = MD5_NO_STRIP};

        part.request.from = from;
        part.request.to   = end;
        part.strips       = (end - 1) / MD5_LETTERS - from / MD5_LETTERS + 1;
        part.batch        = usm_device_has(job->dev, USM_ASPECT_GPU) ? GPU_STRIPS : CPU_STRIPS;
        is_good = search_part(job, &part, request->to - request->from, start_s, progress, &strip);
        if (is_good && strip != MD5_NO_STRIP)
            is_good = md5_look_up(&part.request, strip, number);
        usm_queue_wait(job->queue); /* what was queued may still read the part */
        from = end;
    }
    job->search_s = clock_now_s() - start_s;
    return is_good;
}

bool md5_job_figures(const struct md5_job *job, struct md5_figures *figures)
{
    *figures = (struct md5_figures){
        .build_s = job->build_s, .search_s = job->search_s, .tried = job->tried};
    return usm_program_get_image(job->program, job->dev, &figures->image) == USM_OK ||
           tell("asking the program");
}

void md5_job_destroy(struct md5_job *job)
{
    if (!job)
        return;
    usm_free(job->found);
    usm_free(job->request);
    usm_kernel_destroy(job->kernel);
    usm_program_destroy(job->program);
    usm_queue_destroy(job->queue);
    usm_context_destroy(job->ctx);
    free(job);
}
