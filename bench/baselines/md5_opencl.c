/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* `md5` by hand in OpenCL: two writes, a launch for each chunk, one read.  Launches behind the one
 * that finds the text see that and return at once. */
#include "md5_task.h"
#include "opencl.h"

#include "baseline_md5_kernels.h" /* made of samples/md5/md5.cl by usm_add_kernels() */

struct job {
    struct opencl      cl;
    cl_kernel          kernel;
    cl_mem             input, output;
    struct md5_request request;
    uint32_t           found; /* the strip */
};

static void open_job(struct job *job, const struct baseline *b)
{
    md5_task_init(&job->request, b);
    opencl_open(&job->cl, b->device, baseline_md5_kernels);
    job->kernel = opencl_kernel(&job->cl, "md5_search");
    job->input  = opencl_buffer(&job->cl, sizeof job->request);
    job->output = opencl_buffer(&job->cl, sizeof job->found);
    opencl_check(clSetKernelArg(job->kernel, 0, sizeof(cl_mem), &job->input), "argument 0");
    opencl_check(clSetKernelArg(job->kernel, 1, sizeof(cl_mem), &job->output), "argument 1");
}

static void compute(struct job *job, int64_t chunks)
{
    static const uint32_t none   = MD5_NO_STRIP;
    const int64_t         groups = md5_task_groups(&job->request);
    const size_t          local  = MD5_LOCAL;
    cl_command_queue      queue  = job->cl.queue;

    opencl_check(clEnqueueWriteBuffer(queue, job->input, CL_FALSE, 0, sizeof job->request,
                                      &job->request, 0, NULL, NULL),
                 "writing");
    opencl_check(
        clEnqueueWriteBuffer(queue, job->output, CL_FALSE, 0, sizeof none, &none, 0, NULL, NULL),
        "writing");
    for (int64_t k = 0; k < chunks; k++) {
        const size_t begin  = (size_t)baseline_cut(groups, k, chunks) * local;
        const size_t global = (size_t)baseline_cut(groups, k + 1, chunks) * local - begin;

        if (global > 0)
            opencl_check(clEnqueueNDRangeKernel(queue, job->kernel, 1, &begin, &global, &local, 0,
                                                NULL, NULL),
                         "launching");
    }
    opencl_check(clEnqueueReadBuffer(queue, job->output, CL_TRUE, 0, sizeof job->found, &job->found,
                                     0, NULL, NULL),
                 "reading");
}

static void close_job(struct job *job)
{
    clReleaseMemObject(job->output);
    clReleaseMemObject(job->input);
    clReleaseKernel(job->kernel);
    opencl_close(&job->cl);
}

int main(int argc, char **argv)
{
    struct baseline b;
    struct job      job;

    baseline_options(&b, "md5_opencl", argc, argv);
    open_job(&job, &b);
    while (baseline_next(&b)) {
        baseline_start(&b);
        compute(&job, b.chunks);
        baseline_stop(&b);
        baseline_report(&b, b.cpu_ms, md5_task_answer(&job.request, job.found, &b));
    }
    close_job(&job);
    return 0;
}
