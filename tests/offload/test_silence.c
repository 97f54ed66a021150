/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A device that hangs: who waits for the launch is told, and nothing is lost when it wakes. */
#include "plain.h"

#include <usm/parallel.h>
#include <usm/usm.h>

#include <stdatomic.h>

enum { N = 1000 };

static atomic_bool is_held, has_begun;
static uint32_t    out[N];

static void nap(void)
{
    const struct timespec ms = {.tv_nsec = 1000000};

    (void)nanosleep(&ms, NULL);
}

/* The chunk of index 0 hangs as long as it is held. */
static void square(const usm_range *r, void *const *args)
{
    uint32_t *to = *(uint32_t *const *)args[0];

    if (r->begin[0] == 0) {
        atomic_store(&has_begun, true);
        while (atomic_load(&is_held))
            nap();
    }
    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        to[i - r->offset[0]] = (uint32_t)(i * i + 1);
}

typedef struct world {
    usm_team         *team;
    usm_team_kernel  *kernel;
    usm_split_arg     arg;
    usm_parallel_desc desc;
    double            size;
} world;

static void begin(world *w, uint32_t silence_ms)
{
    const usm_native_kernel native  = {"square", square, 1, NULL};
    usm_image               image   = {USM_IMAGE_NATIVE, &native, sizeof native};
    usm_program_desc        program = USM_PROGRAM_DESC_INIT;

    memset(out, 0, sizeof out);
    atomic_store(&is_held, true);
    atomic_store(&has_begun, false);
    *w             = (world){.arg = USM_SPLIT_OUT(out, sizeof *out), .size = 100};
    w->desc        = (usm_parallel_desc)USM_PARALLEL_DESC_INIT;
    program.images = &image, program.nimages = 1;
    CHECK_INT(usm_team_create(NULL, &w->team), USM_OK);
    CHECK_INT(usm_team_kernel_create(w->team, &program, "square", &w->kernel), USM_OK);
    w->desc.kernel      = w->kernel;
    w->desc.global[0]   = N;
    w->desc.nargs       = 1;
    w->desc.args        = &w->arg;
    w->desc.silence_ms  = silence_ms;
    w->desc.policy.name = "fixed", w->desc.policy.numbers = &w->size, w->desc.policy.nnumbers = 1;
}

static void end(world *w)
{
    for (size_t i = 0; i < N; i++)
        CHECK_INT(out[i], i * i + 1);
    usm_team_kernel_destroy(w->kernel);
    usm_team_destroy(w->team);
}

static void who_waits_gives_up_and_may_wait_again(void)
{
    usm_parallel_stats stats = USM_PARALLEL_STATS_INIT;
    usm_parallel_run  *run;
    world              w;

    begin(&w, 30);
    CHECK_INT(usm_parallel_start(w.team, &w.desc, &run), USM_OK);
    CHECK_INT(usm_parallel_wait(run, &stats), USM_E_NOT_READY);
    CHECK_IN("no answer from host:0", usm_last_error());
    CHECK(atomic_load(&has_begun));
    CHECK_INT(usm_parallel_wait(run, NULL), USM_E_NOT_READY); /* it still is */
    atomic_store(&is_held, false);
    while (usm_parallel_wait(run, &stats) == USM_E_NOT_READY)
        nap();
    CHECK_INT(usm_parallel_wait(run, &stats), USM_OK);
    CHECK_INT(stats.chunks, 10);
    CHECK_INT(stats.rescheduled, 0); /* nobody else wrote where it was to write */
    usm_parallel_release(run);
    end(&w);
}

static void *let_go(void *arg)
{
    (void)arg;
    for (int i = 0; i < 400; i++)
        nap();
    atomic_store(&is_held, false);
    return NULL;
}

static void a_launch_in_one_call_waits_on(void)
{
    pthread_t thread;
    world     w;

    begin(&w, 10);
    CHECK_INT(pthread_create(&thread, NULL, let_go, NULL), 0);
    CHECK_INT(usm_parallel(w.team, &w.desc, NULL), USM_OK);
    CHECK_INT(pthread_join(thread, NULL), 0);
    end(&w);
}

static void a_release_waits_on(void)
{
    usm_parallel_run *run;
    pthread_t         thread;
    world             w;

    begin(&w, 10);
    CHECK_INT(usm_parallel_start(w.team, &w.desc, &run), USM_OK);
    CHECK_INT(usm_parallel_wait(run, NULL), USM_E_NOT_READY);
    CHECK_INT(pthread_create(&thread, NULL, let_go, NULL), 0);
    usm_parallel_release(run);
    CHECK(!atomic_load(&is_held));
    CHECK_INT(pthread_join(thread, NULL), 0);
    end(&w);
}

static const plain_case cases[] = {CASE(who_waits_gives_up_and_may_wait_again),
                                   CASE(a_launch_in_one_call_waits_on),
                                   CASE(a_release_waits_on),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
