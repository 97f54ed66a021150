/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* dag_model [--seed N] [--seeds COUNT] [--seconds S] [--ops LIST] [--tries N] [--verbose]
 *           [--planted] [--alone]
 *
 * Random DAGs of commands equal their serial execution: launches, copies and fills over parts of
 * buffers and over plain memory, host tasks, barriers, the host's accesses in between, on queues of
 * two contexts.
 *
 * A seed that differs, hangs or crashes is run again in processes of its own, with ever fewer of
 * its operations; the smallest part that still goes wrong is printed.  --ops 0,3,7 runs such a
 * part, --tries N so often, as few faults of order show each time; --alone stops at the first fault
 * instead of looking for the smallest.  --planted forgets dependencies: that must be found. */
#include "budget.h"
#include "dag.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plain.h" /* whether a sanitizer is there */

#if PLAIN_SANITIZED
#include <sanitizer/common_interface_defs.h>
#endif

enum { SECONDS = 60, SHRINK_SECONDS = 60, TRIES = 10 }; /* of a seed, of the search          */

static struct {
    uint64_t    ops;
    unsigned    tries;
    bool        verbose, planted, alone, shrink;
    const char *self;
} options = {.ops = UINT64_MAX, .tries = 1};

static budget seeds = {.first = 0, .most = 200};

static dag_world         world;
static volatile uint64_t now; /* the seed under way                                           */

/* ---- a process of its own ------------------------------------------------------------------- */

static void write_ops(char *text, size_t size, uint64_t ops)
{
    size_t n = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < DAG_OPS; i++)
        if (ops >> i & 1)
            n += (size_t)snprintf(text + n, size - n, n ? ",%u" : "%u", i);
}

/* Does not come back. */
static void become(const char *what, uint64_t seed, uint64_t ops, unsigned tries)
{
    char        first[24], list[4 * DAG_OPS], count[16];
    const char *argv[14] = {options.self, "--seed", first,     "--seeds", "1",
                            "--ops",      list,     "--tries", count};
    size_t      n        = 9;

    (void)snprintf(first, sizeof first, "%llu", (unsigned long long)seed);
    (void)snprintf(count, sizeof count, "%u", tries);
    write_ops(list, sizeof list, ops);
    argv[n++] = what;
    if (options.planted)
        argv[n++] = "--planted";
    if (strcmp(what, "--verbose") == 0)
        argv[n++] = "--alone";
    (void)execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
    _exit(1);
}

static void differs(void)
{
    (void)fflush(NULL);
    if (options.alone)
        _exit(1);
    become("--shrink", now, options.ops, options.tries > 1 ? options.tries : TRIES);
}

static void stopped(const char *how)
{
    printf("# seed %llu: %s\n", (unsigned long long)now, how);
    differs();
}

#if PLAIN_SANITIZED
static void died(void)
{
    stopped("the sanitizer stopped it");
}
#endif

static void on_signal(int signal)
{
    sigset_t set;

    (void)sigemptyset(&set); /* what execv() would pass on */
    (void)sigaddset(&set, signal);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    stopped(signal == SIGALRM ? "it hangs" : "it crashed");
}

/* ---- the smallest part ---------------------------------------------------------------------- */

static bool fails(uint64_t ops)
{
    int   status = 0;
    pid_t pid    = fork();

    if (pid == 0) {
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
            _exit(2);
        become("--alone", seeds.first, ops, options.tries);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return pid > 0 && status != 0;
}

static uint64_t part_of(uint64_t ops, unsigned begin, unsigned n)
{
    uint64_t part = 0;

    for (unsigned i = 0, k = 0; i < DAG_OPS; i++)
        if (ops >> i & 1 && k++ >= begin && k <= begin + n)
            part |= (uint64_t)1 << i;
    return part;
}

/* Takes away pieces of half of it, of a quarter and so on, as long as the rest goes wrong. */
static uint64_t smallest(uint64_t ops)
{
    time_t end = time(NULL) + SHRINK_SECONDS;

    for (unsigned n = (unsigned)__builtin_popcountll(ops) / 2; n > 0; n /= 2)
        for (unsigned at = 0; at < (unsigned)__builtin_popcountll(ops) && time(NULL) < end;) {
            uint64_t rest = ops & ~part_of(ops, at, n);

            if (fails(rest))
                ops = rest;
            else
                at += n;
        }
    return ops;
}

static void shrink(void)
{
    dag_plan plan;
    uint64_t ops;

    dag_plan_make(&plan, seeds.first);
    ops = options.ops & (((uint64_t)1 << plan.nops) - 1);
    if (fails(ops)) {
        ops = smallest(ops);
        printf("# the smallest part of seed %llu that goes wrong: %d of %u operations\n",
               (unsigned long long)seeds.first, __builtin_popcountll(ops), plan.nops);
    } else {
        printf("# seed %llu did not go wrong again in %u tries; all of it:\n",
               (unsigned long long)seeds.first, options.tries);
    }
    (void)fflush(NULL);
    if (fork() == 0)
        become("--verbose", seeds.first, ops, options.tries);
    (void)wait(NULL);
}

/* ---- the run
 * -------------------------------------------------------------------------------------- */

static void must(usm_status st, const char *what)
{
    if (st == USM_OK)
        return;
    printf("# %s: %s: %s\n", what, usm_status_name(st), usm_last_error());
    exit(1);
}

static void failed_late(usm_context *ctx, usm_status st, const char *reason, void *user)
{
    (void)ctx;
    (void)user;
    printf("# seed %llu: a failure without a caller: %s: %s\n", (unsigned long long)now,
           usm_status_name(st), reason);
    differs();
}

static void start(void)
{
    usm_context_desc desc       = USM_CONTEXT_DESC_INIT;
    usm_queue_desc   free_order = {sizeof free_order, USM_QUEUE_OUT_OF_ORDER};

    desc.on_error    = failed_late;
    world.differs    = differs;
    world.is_planted = options.planted;
    for (int i = 0; i < DAG_CONTEXTS; i++) {
        must(usm_context_create(&desc, &world.contexts[i]), "usm_context_create");
        must(dag_program_create(world.contexts[i], &world.programs[i], world.kernels[i]),
             "the program");
    }
    for (int q = 0; q < DAG_QUEUES; q++) {
        usm_context *ctx = world.contexts[q % DAG_CONTEXTS];

        /* One that is in order where there is no other kind does as well. */
        if (q < 4 || usm_queue_create(ctx, NULL, &free_order, &world.queues[q]) != USM_OK)
            must(usm_queue_create(ctx, NULL, NULL, &world.queues[q]), "usm_queue_create");
    }
}

static void stop(void)
{
    for (int q = 0; q < DAG_QUEUES; q++)
        usm_queue_destroy(world.queues[q]);
    for (int i = 0; i < DAG_CONTEXTS; i++) {
        for (int k = 0; k < 4; k++)
            usm_kernel_destroy(world.kernels[i][k]);
        usm_program_destroy(world.programs[i]);
        usm_context_destroy(world.contexts[i]);
    }
}

static void run_seed(uint64_t seed)
{
    dag_plan plan;

    now = seed;
    (void)alarm(SECONDS);
    for (unsigned i = 0; i < options.tries; i++) {
        world.is_verbose = options.verbose && i == 0;
        dag_plan_make(&plan, seed);
        dag_plan_keep(&plan, options.ops);
        dag_run(&world, &plan);
    }
}

/* ---- options
 * ------------------------------------------------------------------------------------------ */

static uint64_t read_ops(const char *list)
{
    uint64_t ops = 0;
    char    *end = NULL;

    for (; *list; list = *end ? end + 1 : end)
        ops |= (uint64_t)1 << (strtoul(list, &end, 10) & 63);
    return ops;
}

static bool parse_flag(const char *arg)
{
    bool *flag = strcmp(arg, "--verbose") == 0   ? &options.verbose
                 : strcmp(arg, "--planted") == 0 ? &options.planted
                 : strcmp(arg, "--alone") == 0   ? &options.alone
                 : strcmp(arg, "--shrink") == 0  ? &options.shrink
                                                 : NULL;

    if (flag)
        *flag = true;
    return flag != NULL;
}

static void parse(int argc, char **argv)
{
    options.self = argv[0];
    for (int i = 1; i < argc; i++) {
        if (parse_flag(argv[i]))
            continue;
        if (strcmp(argv[i], "--ops") == 0 && i + 1 < argc) {
            options.ops = read_ops(argv[++i]);
        } else if (strcmp(argv[i], "--tries") == 0 && i + 1 < argc) {
            options.tries = (unsigned)strtoul(argv[++i], NULL, 0);
        } else if (!budget_option(&seeds, argc, argv, &i)) {
            printf("usage: %s [--seed N] [--seeds COUNT] [--seconds S] [--ops LIST] [--tries N] "
                   "[--verbose] [--planted] [--alone]\n",
                   argv[0]);
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    uint64_t seed;

    parse(argc, argv);
    if (options.shrink) {
        shrink();
        return 1;
    }
    (void)signal(SIGALRM, on_signal);
#if PLAIN_SANITIZED
    __sanitizer_set_death_callback(died);
#else
    (void)signal(SIGSEGV, on_signal);
    (void)signal(SIGABRT, on_signal);
#endif
    start();
    while (budget_next(&seeds, &seed))
        run_seed(seed);
    (void)alarm(0);
    stop();
    budget_print(&seeds);
    printf(", %llu commands, %llu KiB compared: as serial execution\n",
           (unsigned long long)world.commands, (unsigned long long)(world.bytes >> 10));
    return 0;
}
