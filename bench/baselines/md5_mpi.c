/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* `md5` by hand in MPI and OpenCL: the request is broadcast, ranks take chunks from a counter, two
 * at a time so that the device has work while the host looks, until one has found the text or none
 * is left. */
#include "md5_task.h"
#include "opencl.h"
#include "ranks.h"

#include "baseline_md5_kernels.h" /* made of samples/md5/md5.cl by usm_add_kernels() */

#define IN_FLIGHT 2

struct job {
    struct opencl      cl;
    cl_kernel          kernel;
    cl_mem             input, output;
    struct md5_request request;
    uint32_t           found; /* the strip, of all ranks */
};

struct slot {
    cl_event done; /* NULL: free */
    uint32_t found;
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

static void write_request(struct job *job)
{
    static const uint32_t none = MD5_NO_STRIP;

    opencl_check(clEnqueueWriteBuffer(job->cl.queue, job->input, CL_FALSE, 0, sizeof job->request,
                                      &job->request, 0, NULL, NULL),
                 "writing");
    opencl_check(clEnqueueWriteBuffer(job->cl.queue, job->output, CL_FALSE, 0, sizeof none, &none,
                                      0, NULL, NULL),
                 "writing");
}

static void launch(struct job *job, int64_t k, int64_t chunks, struct slot *slot)
{
    const int64_t groups = md5_task_groups(&job->request);
    const size_t  local  = MD5_LOCAL;
    const size_t  begin  = (size_t)baseline_cut(groups, k, chunks) * local;
    const size_t  global = (size_t)baseline_cut(groups, k + 1, chunks) * local - begin;

    if (global == 0)
        return;
    opencl_check(clEnqueueNDRangeKernel(job->cl.queue, job->kernel, 1, &begin, &global, &local, 0,
                                        NULL, NULL),
                 "launching");
    opencl_check(clEnqueueReadBuffer(job->cl.queue, job->output, CL_FALSE, 0, sizeof slot->found,
                                     &slot->found, 0, NULL, &slot->done),
                 "reading");
    clFlush(job->cl.queue);
}

/* Chunks are taken in their order, so all before the one that has it are done or being done. */
static void finish(struct job *job, struct ranks *r, int64_t chunks, struct slot *slot)
{
    if (!slot->done)
        return;
    opencl_check(clWaitForEvents(1, &slot->done), "waiting");
    clReleaseEvent(slot->done);
    slot->done = NULL;
    if (slot->found < job->found) {
        job->found = slot->found;
        ranks_cancel(r, chunks);
    }
}

static void compute(struct job *job, struct ranks *r, int64_t chunks)
{
    struct slot slots[IN_FLIGHT] = {{0}};
    int64_t     k                = 0, mine, lowest;

    MPI_Bcast(&job->request, sizeof job->request, MPI_BYTE, 0, MPI_COMM_WORLD);
    write_request(job);
    job->found = MD5_NO_STRIP;
    for (unsigned i = 0; k < chunks; i++) {
        struct slot *slot = &slots[i % IN_FLIGHT];

        finish(job, r, chunks, slot);
        k = ranks_take(r);
        if (k < chunks)
            launch(job, k, chunks, slot);
    }
    for (unsigned i = 0; i < IN_FLIGHT; i++)
        finish(job, r, chunks, &slots[i]);
    mine = lowest =
        job->found; /* in 64 bits: MPICH 4.0 compares unsigned ones as if they had signs */
    MPI_Reduce(&mine, &lowest, 1, MPI_INT64_T, MPI_MIN, 0, MPI_COMM_WORLD);
    job->found = (uint32_t)lowest; /* matters at rank 0 */
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
    struct ranks    r;
    struct job      job;

    ranks_init(&r, &argc, &argv);
    baseline_options(&b, "md5_mpi", argc, argv);
    open_job(&job, &b);
    while (ranks_next(&r, &b)) {
        double cpu_ms;

        baseline_start(&b);
        compute(&job, &r, b.chunks);
        cpu_ms = ranks_stop(&r, &b);
        if (r.rank == 0)
            baseline_report(&b, cpu_ms, md5_task_answer(&job.request, job.found, &b));
    }
    close_job(&job);
    ranks_fini(&r);
    return 0;
}
