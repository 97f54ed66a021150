/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A program for test_usm_prof.sh to look at.
 *
 *     prof_app          200 times a block of 96 KiB, and two blocks of 64 KiB that stay under the
 *                       tag "solver"; exits 0
 *     prof_app freed    without those that stay
 *     prof_app exit N   the same as without arguments, and exits N
 *     prof_app kill     the same, and kills itself once its trace is written
 *     prof_app config T the same, and sets the trace by usm_config_set()
 *     prof_app without  does not call libusm
 *     prof_app split    a launch of 1000 indices over a team, in chunks of 100 */
#include <usm/parallel.h>
#include <usm/usm.h>

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *what)
{
    (void)fprintf(stderr, "prof_app: %s: %s\n", what, usm_last_error());
    return 99;
}

__attribute__((noinline)) static void *allocate_work(void)
{
    void *volatile p = usm_alloc_device(96 * 1024); /* no tail call: it stays on the stack */

    return p;
}

static int work(bool has_leaks)
{
    for (int i = 0; i < 200; i++) {
        void *p = allocate_work();

        if (!p)
            return fail("usm_alloc_device");
        usm_free(p);
    }
    if (!has_leaks)
        return 0;
    if (usm_tag_push("solver") != USM_OK)
        return fail("usm_tag_push");
    for (int i = 0; i < 2; i++)
        if (!usm_alloc_device(64 * 1024))
            return fail("usm_alloc_device");
    return usm_tag_pop() == USM_OK ? 0 : fail("usm_tag_pop");
}

static void square(const usm_range *r, void *const *args)
{
    uint32_t *out = *(uint32_t *const *)args[0];

    for (size_t i = r->begin[0]; i < r->end[0]; i++)
        out[i - r->offset[0]] = (uint32_t)(i * i);
}

static int split(void)
{
    static uint32_t         out[1000];
    const usm_native_kernel native  = {"square", square, 1, NULL};
    usm_image               image   = {USM_IMAGE_NATIVE, &native, sizeof native};
    usm_program_desc        program = USM_PROGRAM_DESC_INIT;
    usm_split_arg           arg     = USM_SPLIT_OUT(out, sizeof *out);
    usm_parallel_desc       d       = USM_PARALLEL_DESC_INIT;
    const double            size    = 100;
    usm_team               *team;

    program.images = &image, program.nimages = 1;
    if (usm_team_create(NULL, &team) != USM_OK ||
        usm_team_kernel_create(team, &program, "square", &d.kernel) != USM_OK)
        return fail("usm_team_create");
    d.global[0] = 1000, d.nargs = 1, d.args = &arg;
    d.policy.name = "fixed", d.policy.numbers = &size, d.policy.nnumbers = 1;
    if (usm_parallel(team, &d, NULL) != USM_OK)
        return fail("usm_parallel");
    usm_team_kernel_destroy(d.kernel);
    usm_team_destroy(team);
    return out[999] == 999 * 999 ? 0 : 99;
}

int main(int argc, char **argv)
{
    int rc;

    if (argc > 1 && strcmp(argv[1], "without") == 0)
        return 0;
    if (argc > 2 && strcmp(argv[1], "config") == 0 && usm_config_set("trace", argv[2]) != USM_OK)
        return fail("usm_config_set");
    if (argc > 1 && strcmp(argv[1], "split") == 0)
        rc = split();
    else
        rc = work(argc == 1 || strcmp(argv[1], "freed") != 0);
    if (rc == 0 && argc > 2 && strcmp(argv[1], "exit") == 0)
        rc = atoi(argv[2]);
    if (rc == 0 && argc > 1 && strcmp(argv[1], "kill") == 0) {
        usm_shutdown(); /* flushes; without it the last 200 ms may be missing */
        (void)kill(getpid(), SIGKILL);
    }
    return rc;
}
