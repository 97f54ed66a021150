/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench NAME [OPTION...]: benchmarks as ratios against a peer in one run.
 * Which devices: USM_DEVICE_SELECTOR, except for `pool`, which has a list of its own.
 * `usm-bench --worker ALLOCATOR` is what `pool`, `spill` and `async` start for each contender
 * (worker.h, spill_worker.h, async.h). */
#include "async.h"
#include "bench.h"
#include "spill_worker.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *what;
    int (*run)(bench_report *report, const bench_options *options);
} benchmarks[] = {
    {"core", "allocation, queries, submission and copies against the raw driver", bench_core},
    {"pool", "the default pool against mallocs, UMF's pools and SYCL", bench_pool},
    {"spill", "buffers larger than memory against raw I/O, arrays and SYCL", bench_spill},
    {"async", "memory in queue order, and submission, against the driver and SYCL", bench_async},
    {"ipc", "memory and events between processes against sockets and memcpy", bench_ipc},
    {"mpi", "memory of other ranks against MPI's streams, sockets, memcpy and disk", bench_mpi},
    {"offload", "launches split over devices and ranks against the same by hand, and StarPU",
     bench_offload},
};

static int list(FILE *out)
{
    fprintf(out, "usage: usm-bench NAME [OPTION...]\n\n");
    for (size_t i = 0; i < sizeof benchmarks / sizeof *benchmarks; i++)
        fprintf(out, "  %-8s %s\n", benchmarks[i].name, benchmarks[i].what);
    fprintf(out, "\n  --json         one JSON object in place of the table\n"
                 "of pool:\n"
                 "  --quick        the rows of the goals, fewer repetitions: under a minute\n"
                 "  --only NAME    a workload, or how the names of sections begin\n"
                 "  --seed N       of the random workloads (1)\n"
                 "  --pin          each thread on its own processor\n"
                 "  --markdown     tables for a page\n"
                 "  --sycl DIR     virtual environment with Intel's runtimes\n"
                 "  --verbose      shows what the workers write to stderr\n"
                 "of spill: --quick, --only, --markdown, --sycl, --verbose, and\n"
                 "  --dir DIR      where data go that do not fit (/var/tmp)\n"
                 "  --rounds N     of each measurement (3)\n"
                 "  --scale N      N times smaller sizes than 2 GiB over 256 MiB\n"
                 "of async, ipc, mpi and offload: --quick, --only, --markdown, --rounds; of async "
                 "--sycl,\n"
                 "of mpi --dir; of all but ipc --verbose\n"
                 "\nUSM_DEVICE_SELECTOR chooses the device of core, e.g. opencl:cpu.\n");
    return out == stderr ? 2 : 0;
}

static bool flag(const char *word, bench_options *o)
{
    bool *to = strcmp(word, "--json") == 0       ? &o->json
               : strcmp(word, "--markdown") == 0 ? &o->markdown
               : strcmp(word, "--quick") == 0    ? &o->quick
               : strcmp(word, "--pin") == 0      ? &o->pin
               : strcmp(word, "--verbose") == 0  ? &o->verbose
                                                 : NULL;

    if (to)
        *to = true;
    return to != NULL;
}

/* An option with a value; false: it is none, or its value makes no sense. */
static bool setting(const char *word, const char *value, bench_options *o)
{
    char *end = NULL;

    if (!value)
        return false;
    if (strcmp(word, "--only") == 0)
        o->only = value;
    else if (strcmp(word, "--sycl") == 0)
        o->sycl = value;
    else if (strcmp(word, "--dir") == 0)
        o->dir = value;
    else if (strcmp(word, "--seed") == 0)
        o->seed = strtoull(value, &end, 10);
    else if (strcmp(word, "--rounds") == 0)
        o->rounds = strtoull(value, &end, 10);
    else if (strcmp(word, "--scale") == 0)
        o->scale = strtoull(value, &end, 10);
    else
        return false;
    return !end || (end != value && *end == '\0');
}

static bool parse(int argc, char **argv, const char **name, bench_options *o)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-' && !*name)
            *name = argv[i];
        else if (!flag(argv[i], o) && !setting(argv[i], argv[i + 1], o))
            return false;
        else if (!flag(argv[i], o))
            i++;
    }
    return *name != NULL;
}

static int run(const char *name, const bench_options *options)
{
    static bench_report report;

    for (size_t i = 0; i < sizeof benchmarks / sizeof *benchmarks; i++)
        if (strcmp(benchmarks[i].name, name) == 0) {
            int rc = benchmarks[i].run(&report, options);

            if (rc == 0 && (report.nrows > 0 || options->json))
                bench_print(&report, options->json);
            return rc;
        }
    fprintf(stderr, "usm-bench: there is no benchmark \"%s\"\n", name);
    return list(stderr);
}

int main(int argc, char **argv)
{
    bench_options options = {.seed = 1};
    const char   *name    = NULL;

    if (argc == 3 && strcmp(argv[1], "--worker") == 0)
        return strncmp(argv[2], "spill", 5) == 0   ? bench_spill_worker(argv[2])
               : strncmp(argv[2], "async", 5) == 0 ? bench_async_worker(argv[2])
                                                   : bench_worker(argv[2]);
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return list(stdout);
    if (!parse(argc, argv, &name, &options))
        return list(stderr);
    return run(name, &options);
}
