/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A program returns from main() while its other threads are inside launches, over queues and over a
 * team.  Not over PoCL, whose threads compile while exit() destroys LLVM: docs/threading.md.
 *
 * Kernels are compiled anew all along, and the program's first exit handler, the last that runs,
 * takes a moment, in which whatever still uses what was destroyed falls. */
#include "over_teams.h"

#include <pthread.h>

enum { THREADS = 2, LINGER_US = 100000 };

static _Atomic unsigned launches;
static usm_team        *team;

static void linger(void)
{
    (void)usleep(LINGER_US);
}

/* Whatever fails, fails as the process ends. */
_Noreturn static void rest(void)
{
    for (;;)
        (void)pause();
}

static usm_kernel *native_and_other(usm_queue *q)
{
    static const usm_native_kernel natives[] = {{"smooth", split_smooth, 3, NULL}};
    usm_image        images[] = {{USM_IMAGE_BUNDLE, split_kernels, split_kernels_size},
                                 {USM_IMAGE_NATIVE, natives, sizeof natives}};
    usm_program_desc desc     = USM_PROGRAM_DESC_INIT;
    usm_program     *program  = NULL;
    usm_kernel      *kernel   = NULL;

    desc.images  = images;
    desc.nimages = 2;
    must(usm_program_create(usm_queue_get_context(q), &desc, &program));
    must(usm_kernel_create(program, "smooth", &kernel));
    return kernel;
}

/* Each work-group's size is compiled for by itself, so that something is being compiled all along.
 */
static void *launch_on_a_queue(void *arg)
{
    static const size_t sizes[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 21, 24, 28};

    usm_queue *q      = usm_default_queue();
    uint32_t  *in     = usm_malloc_shared(N * sizeof *in, q),
             *out     = usm_malloc_shared(N * sizeof *out, q);
    uint64_t   n      = N;
    usm_arg    args[] = {USM_ARG_PTR(in), USM_ARG_PTR(out), USM_ARG_VAL(n)};
    usm_launch l      = USM_LAUNCH_INIT;

    l.kernel    = arg;
    l.global[0] = N;
    l.nargs     = 3;
    l.args      = args;
    for (size_t i = 0; usm_queue_submit(q, &l, 0, NULL, NULL) == USM_OK; i++) {
        if (usm_queue_wait(q) != USM_OK)
            break;
        launches++;
        l.local[0] = sizes[i % (sizeof sizes / sizeof *sizes)];
    }
    rest();
}

static void *launch_over_a_team(void *arg)
{
    uint32_t         *in = calloc(N, sizeof *in), *out = calloc(N, sizeof *out);
    uint64_t          n      = N;
    double            size   = 84;
    usm_split_arg     args[] = {USM_SPLIT_IN(in, 4), USM_SPLIT_OUT(out, 4), USM_SPLIT_VALUE(n)};
    usm_parallel_desc d      = over(arg, N, args, 3);

    args[0].before = args[0].after = 1;
    fixed(&d, &size);
    while (usm_parallel(team, &d, NULL) == USM_OK)
        launches++;
    rest();
}

/* A process of its own: `test_exit --leave`. */
static int leave(void)
{
    usm_kernel      *kernel;
    usm_team_kernel *team_kernel;
    pthread_t        thread;

    CHECK_INT(atexit(linger), 0);
    kernel      = native_and_other(usm_default_queue());
    team        = alone();
    team_kernel = kernel_of(team, "smooth");
    for (int i = 0; i < THREADS; i++) {
        CHECK_INT(pthread_create(&thread, NULL, launch_on_a_queue, kernel), 0);
        CHECK_INT(pthread_create(&thread, NULL, launch_over_a_team, team_kernel), 0);
    }
    while (launches < 4 * THREADS)
        (void)usleep(100);
    return 0;
}

static void a_process_may_end_while_threads_are_in_launches(void)
{
    const char *cache     = plain_path("compiled");
    char        self[512] = {0};
    int         status;
    pid_t       pid;

    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    pid = fork();
    if (pid == 0) {
        (void)setenv("POCL_CACHE_DIR", cache, 1);
        (void)execl(self, self, "--leave", (char *)NULL);
        _exit(1);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

static const plain_case cases[] = {CASE(a_process_may_end_while_threads_are_in_launches),
                                   {NULL, NULL}};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--leave") == 0)
        return leave();
    return plain_main(argc, argv, cases);
}
