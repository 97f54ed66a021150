/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* `idw` by hand in OpenCL: one write, a launch for each chunk, one read; nothing is made, built or
 * waited for in between. */
#include "idw.h"
#include "opencl.h"

#include "baseline_idw_kernels.h" /* made of idw.cl by usm_add_kernels() */

#include <stdlib.h>

struct job {
    struct opencl       cl;
    cl_kernel           kernel;
    cl_mem              input, output;
    struct idw_package *package;
    float              *image;
    size_t              image_bytes;
};

static void open_job(struct job *job, const struct baseline *b)
{
    job->package     = idw_package_create(b->points, b->side);
    job->image_bytes = sizeof(float) * (size_t)(b->side * b->side);
    job->image       = malloc(job->image_bytes);
    if (!job->package || !job->image)
        baseline_die("out of memory");
    opencl_open(&job->cl, b->device, baseline_idw_kernels);
    job->kernel = opencl_kernel(&job->cl, "idw");
    job->input  = opencl_buffer(&job->cl, idw_package_bytes(job->package));
    job->output = opencl_buffer(&job->cl, job->image_bytes);
    opencl_check(clSetKernelArg(job->kernel, 0, sizeof(cl_mem), &job->input), "argument 0");
    opencl_check(clSetKernelArg(job->kernel, 1, sizeof(cl_mem), &job->output), "argument 1");
}

static void compute(struct job *job, int64_t chunks)
{
    const int64_t    groups = idw_groups(job->package);
    const size_t     local  = IDW_LOCAL;
    cl_command_queue queue  = job->cl.queue;

    opencl_check(clEnqueueWriteBuffer(queue, job->input, CL_FALSE, 0,
                                      idw_package_bytes(job->package), job->package, 0, NULL, NULL),
                 "writing");
    for (int64_t k = 0; k < chunks; k++) {
        const size_t begin  = (size_t)baseline_cut(groups, k, chunks) * local;
        const size_t global = (size_t)baseline_cut(groups, k + 1, chunks) * local - begin;

        if (global > 0)
            opencl_check(clEnqueueNDRangeKernel(queue, job->kernel, 1, &begin, &global, &local, 0,
                                                NULL, NULL),
                         "launching");
    }
    opencl_check(clEnqueueReadBuffer(queue, job->output, CL_TRUE, 0, job->image_bytes, job->image,
                                     0, NULL, NULL),
                 "reading");
}

static void close_job(struct job *job)
{
    clReleaseMemObject(job->output);
    clReleaseMemObject(job->input);
    clReleaseKernel(job->kernel);
    opencl_close(&job->cl);
    free(job->image);
    free(job->package);
}

int main(int argc, char **argv)
{
    struct baseline b;
    struct job      job;

    baseline_options(&b, "idw_opencl", argc, argv);
    open_job(&job, &b);
    while (baseline_next(&b)) {
        baseline_start(&b);
        compute(&job, b.chunks);
        baseline_stop(&b);
        if (b.verify && b.repetitions == 1)
            idw_verify(job.package, job.image);
        baseline_report(&b, b.cpu_ms, idw_checksum(job.package, job.image));
    }
    close_job(&job);
    return 0;
}
