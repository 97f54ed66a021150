/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests that fail, crash, hang and skip, for check_runner.sh: what the runner says of them. */
#include "common.h"

#include <signal.h>
#include <unistd.h>

static void leave_badly(void)
{
    _exit(3);
}

Test(planted, a_passes)
{
}

Test(planted, b_fails)
{
    CHECK(false, "planted %d", 1);
}

Test(planted, c_crashes)
{
    signal(SIGSEGV, SIG_DFL); /* not a sanitizer's */
    raise(SIGSEGV);
}

Test(planted, d_passes)
{
    CHECK(usm_alloc_host(10), "%s", usm_last_error());
}

Test(planted, e_exits)
{
    _exit(0);
}

Test(planted, f_skips)
{
    skip("no %s", "moon");
}

Test(planted, g_hangs)
{
    alarm(1);
    for (;;)
        pause();
}

Test(planted, h_has_the_last_tests_memory_taken_back)
{
    CHECK(usm_alloc_host(10), "%s", usm_last_error());
}

TestAlone(planted, i_crashes_alone)
{
    kill(getpid(), SIGKILL);
}

TestAlone(planted, j_dies_at_its_exit)
{
    atexit(leave_badly);
}
