/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the tests of the Level Zero backend share beyond module_fixture.h: the software driver's own
 * functions, and this program as another process.
 *
 * What a test links of backends/level_zero is a second copy, with its own `lz_host`. */
#ifndef LEVEL_ZERO_FIXTURE_H
#define LEVEL_ZERO_FIXTURE_H

#include "module_fixture.h"

#include "backends/level_zero/level_zero.h"
#include "tests/ze_soft/ze_soft.h"

const usm_host_api *lz_host;

/* --- the software driver ---------------------------------------------------------------------- */

static struct {
    bool                    is_there; /* else it is a driver of somebody else's */
    ze_soft_fail_at_fn     *fail_at;
    ze_soft_has_failed_fn  *has_failed;
    ze_soft_failed_call_fn *failed_call;
    ze_soft_lose_fn        *lose;
    ze_soft_live_fn        *live;
} soft;

/* After the devices were listed: the driver has to be in the process. */
static inline void soft_find(void)
{
    const char *path   = getenv("ZE_ENABLE_ALT_DRIVERS");
    void       *driver = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void       *f;

    if (!driver || !dlsym(driver, "ze_soft_live"))
        return;
#define SOFT(name)                                                                                 \
    CHECK((f = dlsym(driver, "ze_soft_" #name)) != NULL), memcpy(&soft.name, &f, sizeof(f))
    SOFT(fail_at);
    SOFT(has_failed);
    SOFT(failed_call);
    SOFT(lose);
    SOFT(live);
#undef SOFT
    soft.is_there = true;
}

static inline void needs_soft(void)
{
    if (!soft.is_there)
        SKIP("the driver is not ze_soft");
}

/* --- another process -------------------------------------------------------------------------- */

/* This program anew, with `mode` as its argument, `setting` ("NAME=value") in its environment and
 * `in` as its standard input; its process number. */
static inline pid_t start_self(const char *mode, const char *setting, int in)
{
    char    path[1024];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    pid_t   pid;

    CHECK(n > 0);
    path[n] = '\0';
    (void)fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid)
        return pid;
    (void)alarm(60);
    if (in >= 0 && dup2(in, STDIN_FILENO) < 0)
        _exit(1);
    (void)execlp("env", "env", setting, path, mode, (char *)NULL);
    _exit(1);
}

static inline void ends_well(pid_t pid)
{
    int status = -1;

    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

/* The process begins: module and devices, as module_main() has them. */
static inline void be_other(void)
{
    const char *why = load("level_zero");

    plain.runner   = pthread_self();
    plain.in_child = true;
    if (why)
        printf("# %s\n", why);
    CHECK(!why);
    CHECK_INT(ops->devices(devices, DEVICES, &ndevices), USM_OK);
    dev = &devices[0];
    soft_find();
}

/* A case before all others: the driver is in the process only once module_main() has listed. */
static void the_software_driver_is_found_where_it_runs(void)
{
    const char *runtime = getenv("USM_TEST_RUNTIME");

    soft_find();
    if (runtime)
        CHECK(soft.is_there == (strncmp(runtime, "ze-soft", 7) == 0));
}

/* Runs the cases; or, as another process, the one of `others` that the argument names. */
static inline int level_zero_main(int argc, char **argv, const plain_case *cases,
                                  const plain_case *others)
{
    lz_host = &module_api;
    for (; others->name; others++)
        if (argc > 1 && strcmp(argv[1], others->name) == 0) {
            be_other();
            others->run();
            return 0;
        }
    return module_main("level_zero", argc, argv, cases);
}

#endif
