/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench NAME [--json]: benchmarks as ratios against a peer in one run.
 * Which devices: USM_DEVICE_SELECTOR. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *what;
    int (*run)(bench_report *report);
} benchmarks[] = {
    {"core", "allocation, queries, submission and copies against the raw driver", bench_core},
};

static int list(FILE *out)
{
    fprintf(out, "usage: usm-bench NAME [--json]\n\n");
    for (size_t i = 0; i < sizeof benchmarks / sizeof *benchmarks; i++)
        fprintf(out, "  %-8s %s\n", benchmarks[i].name, benchmarks[i].what);
    fprintf(out, "\nUSM_DEVICE_SELECTOR chooses the device, e.g. opencl:cpu.\n");
    return out == stderr ? 2 : 0;
}

int main(int argc, char **argv)
{
    static bench_report report;
    const char         *name = NULL;
    bool                json = false;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--help") == 0)
            return list(stdout);
        else if (name || argv[i][0] == '-')
            return list(stderr);
        else
            name = argv[i];
    }
    for (size_t i = 0; name && i < sizeof benchmarks / sizeof *benchmarks; i++)
        if (strcmp(benchmarks[i].name, name) == 0) {
            int rc = benchmarks[i].run(&report);

            if (rc == 0)
                bench_print(&report, json);
            return rc;
        }
    if (name)
        fprintf(stderr, "usm-bench: there is no benchmark \"%s\"\n", name);
    return list(stderr);
}
