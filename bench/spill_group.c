/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A memory control group around a worker: whether a limit is kept shows when crossing it kills.
 * Version 1 (/sys/fs/cgroup/memory) and 2; needs root, or a group that was delegated
 * (USM_BENCH_CGROUP names its folder).  Called by spill.c. */
#include "spill.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool write_text(const char *folder, const char *file, const char *text)
{
    char  path[512];
    FILE *f;
    bool  ok;

    snprintf(path, sizeof path, "%s/%s", folder, file);
    f  = fopen(path, "w");
    ok = f && fputs(text, f) >= 0;
    return f ? fclose(f) == 0 && ok : false;
}

/* A number of a file: its first, or that behind `name`; 0: it is not there. */
static uint64_t read_number(const char *folder, const char *file, const char *name)
{
    char     path[512], line[128];
    uint64_t value = 0;
    FILE    *f;
    size_t   n = strlen(name);

    snprintf(path, sizeof path, "%s/%s", folder, file);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, n) == 0)
            value = strtoull(line + n, NULL, 10);
    if (f)
        fclose(f);
    return value;
}

/* The folder in which a group can be made. */
static const char *parent(bool *is_v2)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    const char *delegated = getenv("USM_BENCH_CGROUP");
    char        probe[512];

    if (delegated) {
        snprintf(probe, sizeof probe, "%s/memory.limit_in_bytes", delegated);
        *is_v2 = access(probe, F_OK) != 0;
        return delegated;
    }
    *is_v2 = access("/sys/fs/cgroup/memory/memory.limit_in_bytes", F_OK) != 0 &&
             access("/sys/fs/cgroup/memory/cgroup.procs", F_OK) != 0;
    return *is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
}

bool spill_group_create(spill_group *g, uint64_t limit, const char **why)
{
    char        text[32];
    const char *in = parent(&g->is_v2);

    *why = "a memory control group cannot be made here (it needs root, or USM_BENCH_CGROUP)";
    snprintf(g->path, sizeof g->path, "%s/usm-bench-%d", in, (int)getpid());
    snprintf(g->tasks, sizeof g->tasks, "%s/cgroup.procs", g->path);
    snprintf(text, sizeof text, "%" PRIu64, limit);
    if (g->is_v2 && !write_text(in, "cgroup.subtree_control", "+memory"))
        return false;
    if (mkdir(g->path, 0755) != 0)
        return false;
    if (!write_text(g->path, g->is_v2 ? "memory.max" : "memory.limit_in_bytes", text)) {
        rmdir(g->path);
        return false;
    }
    return true;
}

uint64_t spill_group_peak(const spill_group *g)
{
    return read_number(g->path, g->is_v2 ? "memory.peak" : "memory.max_usage_in_bytes", "");
}

unsigned spill_group_kills(const spill_group *g)
{
    return (unsigned)read_number(g->path, g->is_v2 ? "memory.events" : "memory.oom_control",
                                 "oom_kill ");
}

void spill_group_destroy(const spill_group *g)
{
    rmdir(g->path);
}
