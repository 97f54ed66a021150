/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* `idw` by hand with StarPU, on processors: a task for each chunk, over a piece of the image.  Its
 * scheduler and the number of its workers are chosen as StarPU's manual says (STARPU_SCHED,
 * STARPU_NCPU). */
#include "baseline.h"
#include "idw.h"

#include <starpu.h>

#include <stdlib.h>

#define GROUP_BYTES (IDW_GROUP * sizeof(float))

struct job {
    struct idw_package *package;
    float              *image;
    size_t              groups;
    /* data that StarPU knows: the package and the image, in groups of pixels */
    starpu_data_handle_t input, output;
};

static void run_chunk(void *buffers[], void *arg)
{
    const struct idw_package *package = (const void *)STARPU_VECTOR_GET_PTR(buffers[0]);
    float                    *out     = (void *)STARPU_VECTOR_GET_PTR(buffers[1]);
    const size_t              pixels  = STARPU_VECTOR_GET_NX(buffers[1]) * IDW_GROUP;
    int64_t                   begin; /* group */

    starpu_codelet_unpack_args(arg, &begin);
    idw_pixels(package, (size_t)begin * IDW_GROUP, (size_t)begin * IDW_GROUP + pixels, out);
}

static struct starpu_codelet codelet = {
    .cpu_funcs = {run_chunk},
    .nbuffers  = 2,
    .modes     = {STARPU_R, STARPU_W},
    .name      = "idw",
};

static void check(int status, const char *what)
{
    if (status != 0)
        baseline_die(what);
}

static void open_job(struct job *job, const struct baseline *b)
{
    struct starpu_conf conf;

    job->package = idw_package_create(b->points, b->side);
    job->image   = malloc(sizeof(float) * (size_t)(b->side * b->side));
    if (!job->package || !job->image)
        baseline_die("out of memory");
    job->groups = (size_t)idw_groups(job->package);
    check(starpu_conf_init(&conf), "StarPU's configuration");
    conf.ncuda = conf.nopencl = 0;
    check(starpu_init(&conf), "StarPU does not start");
    starpu_vector_data_register(&job->input, STARPU_MAIN_RAM, (uintptr_t)job->package,
                                (uint32_t)idw_package_bytes(job->package), 1);
    starpu_vector_data_register(&job->output, STARPU_MAIN_RAM, (uintptr_t)job->image,
                                (uint32_t)job->groups, GROUP_BYTES);
}

/* StarPU's filter cuts as it likes: begin[k] is what its pieces come to. */
static void compute(struct job *job, int64_t chunks)
{
    struct starpu_data_filter filter = {
        .filter_func = starpu_vector_filter_block,
        .nchildren   = (unsigned)((size_t)chunks < job->groups ? (size_t)chunks : job->groups)};
    int64_t begin = 0;

    starpu_data_partition(job->output, &filter);
    for (unsigned k = 0; k < filter.nchildren; k++) {
        starpu_data_handle_t piece = starpu_data_get_sub_data(job->output, 1, k);

        check(starpu_task_insert(&codelet, STARPU_R, job->input, STARPU_W, piece, STARPU_VALUE,
                                 &begin, sizeof begin, 0),
              "inserting a task");
        begin += starpu_vector_get_nx(piece);
    }
    starpu_task_wait_for_all();
    starpu_data_unpartition(job->output, STARPU_MAIN_RAM);
}

static void close_job(struct job *job)
{
    starpu_data_unregister(job->output);
    starpu_data_unregister(job->input);
    starpu_shutdown();
    free(job->image);
    free(job->package);
}

int main(int argc, char **argv)
{
    struct baseline b;
    struct job      job;

    baseline_options(&b, "idw_starpu", argc, argv);
    open_job(&job, &b);
    starpu_pause(); /* its workers poll: they would take the processor from whoever is measured */
    while (baseline_next(&b)) {
        starpu_resume();
        baseline_start(&b);
        compute(&job, b.chunks);
        baseline_stop(&b);
        starpu_pause();
        if (b.verify && b.repetitions == 1)
            idw_verify(job.package, job.image);
        baseline_report(&b, b.cpu_ms, idw_checksum(job.package, job.image));
    }
    starpu_resume();
    close_job(&job);
    return 0;
}
