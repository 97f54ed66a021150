/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The command line, the same for the program with and without MPI. */
#include "gradients.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: ipc_gradients [--workers N] [--size BYTES[K|M]]... [--rounds N]\n"
    "                     [--way star|all-to-all|ring|auto] [--kill RANK@ROUND]... [--no-mpi]\n";

static bool number(const char *text, int least, int most, int *value)
{
    char *end;
    long  n = text ? strtol(text, &end, 10) : 0;

    if (!text || *text == '\0' || *end || n < least || n > most)
        return false;
    *value = (int)n;
    return true;
}

static bool add_size(const char *text, options *o)
{
    char         *end;
    unsigned long n = text ? strtoul(text, &end, 10) : 0;

    if (!text || n == 0 || n > 1UL << 30 || o->nsizes == MAX_SIZES)
        return false;
    n *= *end == 'K' ? 1UL << 10 : *end == 'M' ? 1UL << 20 : 1;
    if ((*end && strcmp(end, "K") != 0 && strcmp(end, "M") != 0) || n < 64 || n > 1UL << 30)
        return false;
    o->sizes[o->nsizes++] = n / sizeof(float) * sizeof(float);
    return true;
}

static bool add_kill(const char *text, options *o)
{
    int i = o->nkills;

    if (!text || i == MAX_KILLS)
        return false;
    o->nkills++;
    return sscanf(text, "%d@%d", &o->kill_rank[i], &o->kill_round[i]) == 2;
}

static bool set_way(const char *text, options *o)
{
    static const char *const names[] = {"star", "all-to-all", "ring"};

    if (!text)
        return false;
    o->is_auto = strcmp(text, "auto") == 0;
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0)
            o->only = i;
    return o->is_auto || o->only != -1;
}

bool options_parse(int argc, char **argv, options *o)
{
    bool good = true;

    *o = (options){.workers = 4, .rounds = 7, .only = -1};
    for (int i = 1; i < argc && good; i++) {
        if (strcmp(argv[i], "--workers") == 0)
            good = number(argv[++i], 1, MAX_WORKERS, &o->workers);
        else if (strcmp(argv[i], "--rounds") == 0)
            good = number(argv[++i], 1, MAX_ROUNDS, &o->rounds);
        else if (strcmp(argv[i], "--size") == 0)
            good = add_size(argv[++i], o);
        else if (strcmp(argv[i], "--way") == 0)
            good = set_way(argv[++i], o);
        else if (strcmp(argv[i], "--kill") == 0)
            good = add_kill(argv[++i], o);
        else if (strcmp(argv[i], "--no-mpi") == 0)
            o->no_mpi = true;
        else
            good = false;
    }
    if (o->nsizes == 0) {
        o->nsizes   = 3;
        o->sizes[0] = (size_t)1 << 20;
        o->sizes[1] = (size_t)8 << 20;
        o->sizes[2] = (size_t)64 << 20;
    }
    if (!good)
        fputs(usage, stderr);
    return good;
}
