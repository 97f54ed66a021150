/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A program for test_usm_prof.sh to look at.
 *
 *     prof_app               200 times a block of 96 KiB, and two blocks of 64 KiB that stay under
 * the tag "solver"; exits 0 prof_app exit N        the same, and exits N prof_app kill          the
 * same, and kills itself once its trace is written prof_app without       does not call libusm */
#include <usm/usm.h>

#include <signal.h>
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

static int work(void)
{
    for (int i = 0; i < 200; i++) {
        void *p = allocate_work();

        if (!p)
            return fail("usm_alloc_device");
        usm_free(p);
    }
    if (usm_tag_push("solver") != USM_OK)
        return fail("usm_tag_push");
    for (int i = 0; i < 2; i++)
        if (!usm_alloc_device(64 * 1024))
            return fail("usm_alloc_device");
    return usm_tag_pop() == USM_OK ? 0 : fail("usm_tag_pop");
}

int main(int argc, char **argv)
{
    int rc;

    if (argc > 1 && strcmp(argv[1], "without") == 0)
        return 0;
    if (argc > 2 && strcmp(argv[1], "config") == 0 && usm_config_set("trace", argv[2]) != USM_OK)
        return fail("usm_config_set");
    rc = work();
    if (rc == 0 && argc > 2 && strcmp(argv[1], "exit") == 0)
        rc = atoi(argv[2]);
    if (rc == 0 && argc > 1 && strcmp(argv[1], "kill") == 0) {
        usm_shutdown(); /* flushes; without it the last 200 ms may be missing */
        (void)kill(getpid(), SIGKILL);
    }
    return rc;
}
