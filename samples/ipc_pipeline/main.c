/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Processes that share memory and events: one has the data, the others compute.
 *
 *     ipc_pipeline [--workers N] [--batches N] [--size BYTES] [--steps N] [--rounds N]
 *                  [--kill WORKER]
 *
 * Here: the options and the processes.  owner.c and worker.c are the two sides, share.c is what
 * they have in common. */
#include "../crew/crew.h"
#include "pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ns(void)
{
    struct timespec t;

    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

usm_status meet(const options *o, int rank, usm_ipc_channel **ch)
{
    usm_ipc_channel_desc desc = USM_IPC_CHANNEL_DESC_INIT;
    char                 name[32];

    snprintf(name, sizeof name, "ipc_pipeline-%d", o->parent); /* another run has another one */
    desc.timeout_ms = 10000; /* one that ends before it has come cannot be told from a late one */
    desc.name       = name;
    desc.rank       = (uint32_t)rank;
    desc.size       = (uint32_t)o->workers + 1;
    return usm_ipc_channel_open(&desc, ch);
}

static int member(int rank, void *user)
{
    const options *o = user;

    return rank == 0 ? owner_run(o) : worker_run(o, rank);
}

static const char usage[] =
    "usage: ipc_pipeline [--workers N] [--batches N] [--size BYTES[K|M]] [--steps N]\n"
    "                    [--rounds N] [--kill WORKER]\n";

static bool number(const char *text, long least, long most, int *value)
{
    char *end;
    long  n = text ? strtol(text, &end, 10) : 0;

    if (!text || *text == '\0' || (*end && strcmp(end, "K") != 0 && strcmp(end, "M") != 0))
        return false;
    if (n < 0 || n > most)
        return false;
    n *= *end == 'K' ? 1L << 10 : *end == 'M' ? 1L << 20 : 1;
    if (n < least || n > most)
        return false;
    *value = (int)n;
    return true;
}

static bool parse(int argc, char **argv, options *o)
{
    int  size = 512 << 10;
    bool good = true;

    *o = (options){.workers = 3, .batches = 32, .steps = 64, .rounds = 3, .parent = (int)getpid()};
    for (int i = 1; i < argc && good; i++) {
        if (strcmp(argv[i], "--workers") == 0)
            good = number(argv[++i], 1, MAX_WORKERS, &o->workers);
        else if (strcmp(argv[i], "--batches") == 0)
            good = number(argv[++i], 1, 100000, &o->batches);
        else if (strcmp(argv[i], "--size") == 0)
            good = number(argv[++i], 64, 1L << 30, &size);
        else if (strcmp(argv[i], "--steps") == 0)
            good = number(argv[++i], 1, 100000, &o->steps);
        else if (strcmp(argv[i], "--rounds") == 0)
            good = number(argv[++i], 1, 1000, &o->rounds);
        else if (strcmp(argv[i], "--kill") == 0)
            good = number(argv[++i], 1, MAX_WORKERS, &o->kill);
        else
            good = false;
    }
    o->count = (size_t)size / sizeof(float);
    return good;
}

int main(int argc, char **argv)
{
    options o;
    int     status[MAX_WORKERS + 1], rc = 0;

    if (!parse(argc, argv, &o)) {
        fputs(usage, stderr);
        return 2;
    }
    if (!crew_run(o.workers + 1, 120, member, &o, status)) {
        perror("ipc_pipeline: fork");
        return 1;
    }
    for (int i = 0; i <= o.workers; i++) {
        if (status[i] < 0)
            fprintf(stderr, "process %d was killed by signal %d\n", i, -status[i]);
        if (status[i] != 0)
            rc = 1;
    }
    return rc;
}
