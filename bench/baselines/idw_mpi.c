/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* `idw` by hand in MPI and OpenCL: the package is broadcast, ranks take chunks from a counter, two
 * at a time so that the device has work while the host sends, and put their pixels where rank 0 has
 * its image. */
#include "idw.h"
#include "opencl.h"
#include "ranks.h"

#include "baseline_idw_kernels.h" /* made of idw.cl by usm_add_kernels() */

#include <stdlib.h>

#define IN_FLIGHT 2

struct job {
    struct opencl       cl;
    cl_kernel           kernel;
    cl_mem              input, output;
    struct idw_package *package;
    float              *image; /* whole; rank 0's is the window */
    MPI_Win             window;
    size_t              image_bytes;
};

struct slot {
    cl_event done; /* NULL: free */
    size_t   begin, pixels;
};

static void open_job(struct job *job, struct ranks *r, const struct baseline *b)
{
    float *mine;

    job->package     = idw_package_create(b->points, b->side);
    job->image_bytes = sizeof(float) * (size_t)(b->side * b->side);
    MPI_Win_allocate(r->rank == 0 ? (MPI_Aint)job->image_bytes : 0, sizeof(float), MPI_INFO_NULL,
                     MPI_COMM_WORLD, &mine, &job->window);
    MPI_Win_lock_all(0, job->window);
    job->image = r->rank == 0 ? mine : malloc(job->image_bytes);
    if (!job->package || !job->image)
        baseline_die("out of memory");
    opencl_open(&job->cl, b->device, baseline_idw_kernels);
    job->kernel = opencl_kernel(&job->cl, "idw");
    job->input  = opencl_buffer(&job->cl, idw_package_bytes(job->package));
    job->output = opencl_buffer(&job->cl, job->image_bytes);
    opencl_check(clSetKernelArg(job->kernel, 0, sizeof(cl_mem), &job->input), "argument 0");
    opencl_check(clSetKernelArg(job->kernel, 1, sizeof(cl_mem), &job->output), "argument 1");
}

static void launch(struct job *job, int64_t k, int64_t chunks, struct slot *slot)
{
    const int64_t groups = idw_groups(job->package);
    const size_t  first  = (size_t)baseline_cut(groups, k, chunks);
    const size_t  n = (size_t)baseline_cut(groups, k + 1, chunks) - first, local = IDW_LOCAL;
    const size_t  offset = first * local, global = n * local;

    if (n == 0)
        return;
    slot->begin  = first * IDW_GROUP;
    slot->pixels = n * IDW_GROUP;
    opencl_check(clEnqueueNDRangeKernel(job->cl.queue, job->kernel, 1, &offset, &global, &local, 0,
                                        NULL, NULL),
                 "launching");
    opencl_check(clEnqueueReadBuffer(job->cl.queue, job->output, CL_FALSE,
                                     sizeof(float) * slot->begin, sizeof(float) * slot->pixels,
                                     job->image + slot->begin, 0, NULL, &slot->done),
                 "reading");
    clFlush(job->cl.queue);
}

static void finish(struct job *job, const struct ranks *r, struct slot *slot)
{
    if (!slot->done)
        return;
    opencl_check(clWaitForEvents(1, &slot->done), "waiting");
    clReleaseEvent(slot->done);
    slot->done = NULL;
    if (r->rank != 0)
        MPI_Put(job->image + slot->begin, (int)slot->pixels, MPI_FLOAT, 0, (MPI_Aint)slot->begin,
                (int)slot->pixels, MPI_FLOAT, job->window);
}

static void compute(struct job *job, struct ranks *r, int64_t chunks)
{
    const size_t bytes            = idw_package_bytes(job->package);
    struct slot  slots[IN_FLIGHT] = {{0}};
    int64_t      k                = 0;

    MPI_Bcast(job->package, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    opencl_check(clEnqueueWriteBuffer(job->cl.queue, job->input, CL_FALSE, 0, bytes, job->package,
                                      0, NULL, NULL),
                 "writing");
    for (unsigned i = 0; k < chunks; i++) {
        struct slot *slot = &slots[i % IN_FLIGHT];

        finish(job, r, slot);
        k = ranks_take(r);
        if (k < chunks)
            launch(job, k, chunks, slot);
    }
    for (unsigned i = 0; i < IN_FLIGHT; i++)
        finish(job, r, &slots[i]);
    MPI_Win_flush(0, job->window);
}

static void close_job(struct job *job, const struct ranks *r)
{
    clReleaseMemObject(job->output);
    clReleaseMemObject(job->input);
    clReleaseKernel(job->kernel);
    opencl_close(&job->cl);
    if (r->rank != 0)
        free(job->image);
    MPI_Win_unlock_all(job->window);
    MPI_Win_free(&job->window);
    free(job->package);
}

int main(int argc, char **argv)
{
    struct baseline b;
    struct ranks    r;
    struct job      job;

    ranks_init(&r, &argc, &argv);
    baseline_options(&b, "idw_mpi", argc, argv);
    open_job(&job, &r, &b);
    while (ranks_next(&r, &b)) {
        double cpu_ms;

        baseline_start(&b);
        compute(&job, &r, b.chunks);
        cpu_ms = ranks_stop(&r, &b);
        MPI_Win_sync(job.window);
        if (r.rank == 0 && b.verify && b.repetitions == 1)
            idw_verify(job.package, job.image);
        if (r.rank == 0)
            baseline_report(&b, cpu_ms, idw_checksum(job.package, job.image));
    }
    close_job(&job, &r);
    ranks_fini(&r);
    return 0;
}
