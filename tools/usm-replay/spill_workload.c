/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-replay --spill: workloads by name.  spill_trace.c reads traces. */
#include "spill.h"

#include "base/os.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRIDE 16

/* ---- a list that grows -------------------------------------------------------------- */

bool spill_workload_add(spill_workload *w, uint32_t block, uint32_t mode)
{
    if (!usm__heap_room(&w->accesses, w->n, &w->cap, sizeof *w->accesses))
        return false;
    w->accesses[w->n++] = (spill_access){block, mode};
    return true;
}

bool spill_workload_range(spill_workload *w, uint32_t first, uint32_t blocks)
{
    if (!usm__heap_room(&w->ranges, w->nranges, &w->ranges_cap, sizeof *w->ranges))
        return false;
    w->ranges[w->nranges++] = (spill_range){first, blocks};
    return true;
}

void spill_workload_free(spill_workload *w)
{
    free(w->accesses);
    free(w->ranges);
}

/* ---- generators: false: no memory ------------------------------------------------------ */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static bool pass(spill_workload *w, uint32_t blocks, uint32_t mode)
{
    bool good = true;

    for (uint32_t i = 0; i < blocks && good; i++)
        good = spill_workload_add(w, i, mode);
    return good;
}

static bool make_seq(spill_workload *w, const spill_options *o)
{
    return pass(w, o->blocks, USM_READ);
}

static bool make_cyclic(spill_workload *w, const spill_options *o)
{
    bool good = true;

    for (uint32_t i = 0; i < o->rounds && good; i++)
        good = pass(w, o->blocks, USM_READ);
    return good;
}

static bool make_reverse(spill_workload *w, const spill_options *o)
{
    bool good = true;

    for (uint32_t i = o->blocks; i > 0 && good; i--)
        good = spill_workload_add(w, i - 1, USM_READ);
    return good;
}

static bool make_strided(spill_workload *w, const spill_options *o)
{
    bool good = true;

    for (uint32_t first = 0; first < STRIDE; first++)
        for (uint32_t i = first; i < o->blocks && good; i += STRIDE)
            good = spill_workload_add(w, i, USM_READ);
    return good;
}

static bool make_streams(spill_workload *w, const spill_options *o)
{
    uint32_t half = o->blocks / 2;
    bool     good = true;

    for (uint32_t i = 0; i < half && good; i++)
        good = spill_workload_add(w, i, USM_READ) &&
               spill_workload_add(w, half + i, USM_WRITE_NO_INIT);
    return good;
}

static bool any(spill_workload *w, const spill_options *o, uint64_t seed, uint32_t mode)
{
    bool good = true;

    for (uint32_t i = 0; i < o->blocks && good; i++)
        good = spill_workload_add(w, (uint32_t)(next_random(&seed) % o->blocks), mode);
    return good;
}

static bool make_random(spill_workload *w, const spill_options *o)
{
    uint64_t seed = o->seed;
    bool     good = true;

    for (uint64_t i = 0; i < (uint64_t)o->blocks * o->rounds && good; i++)
        good = spill_workload_add(w, (uint32_t)(next_random(&seed) % o->blocks), USM_READ);
    return good;
}

static uint32_t search(const double *sums, uint32_t n, double x)
{
    uint32_t low = 0, high = n - 1;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (sums[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Block of rank r with probability ~ 1 / r; the ranks are scattered over the blocks. */
static bool make_zipf(spill_workload *w, const spill_options *o)
{
    double  *sums = malloc(o->blocks * sizeof *sums);
    uint64_t seed = o->seed;
    double   sum  = 0;
    bool     good = sums != NULL;

    for (uint32_t i = 0; i < o->blocks && good; i++)
        sums[i] = sum += 1.0 / (i + 1.0);
    for (uint64_t i = 0; i < (uint64_t)o->blocks * o->rounds && good; i++) {
        double   x    = (double)(next_random(&seed) >> 11) / 9007199254740992.0 * sum;
        uint64_t rank = search(sums, o->blocks, x);

        good = spill_workload_add(w, (uint32_t)(rank * 2654435761u % o->blocks), USM_READ);
    }
    free(sums);
    return good;
}

/* Half of memory is used repeatedly while a pass over other blocks runs. */
static bool make_hot_scan(spill_workload *w, const spill_options *o)
{
    uint32_t hot  = o->frames / 2 < o->blocks ? o->frames / 2 : o->blocks;
    uint64_t seed = o->seed;
    bool     good = true;

    hot = hot ? hot : 1;
    for (uint32_t i = hot; i < o->blocks && good; i++)
        good = spill_workload_add(w, (uint32_t)(next_random(&seed) % hot), USM_READ) &&
               spill_workload_add(w, i, USM_READ);
    return good;
}

/* A random order, the same in each round. */
static bool make_tour(spill_workload *w, const spill_options *o)
{
    uint32_t *order = calloc(o->blocks, sizeof *order);
    uint64_t  seed  = o->seed;
    bool      good  = order != NULL;

    for (uint32_t i = 0; i < o->blocks && good; i++) {
        uint32_t at = (uint32_t)(next_random(&seed) % (i + 1));

        order[i]  = order[at];
        order[at] = i;
    }
    for (uint64_t i = 0; i < (uint64_t)o->blocks * o->rounds && good; i++)
        good = spill_workload_add(w, order[i % o->blocks], USM_READ);
    free(order);
    return good;
}

static bool make_rmw(spill_workload *w, const spill_options *o)
{
    return pass(w, o->blocks, USM_READ_WRITE);
}

static bool make_w(spill_workload *w, const spill_options *o)
{
    return pass(w, o->blocks, USM_WRITE_NO_INIT);
}

static bool make_x(spill_workload *w, const spill_options *o)
{
    return any(w, o, 88172645463325252u, USM_READ);
}

static bool make_m(spill_workload *w, const spill_options *o)
{
    return any(w, o, 1234567, USM_READ_WRITE);
}

static const struct generator {
    const char *name, *what;
    bool (*make)(spill_workload *w, const spill_options *o);
} generators[] = {
    {"seq", "one pass in order", make_seq},
    {"cyclic", "--rounds passes in order", make_cyclic},
    {"reverse", "one pass backwards", make_reverse},
    {"strided", "passes over every 16th block", make_strided},
    {"streams", "two passes at once: one reads, one writes", make_streams},
    {"random", "--rounds times as many as there are blocks", make_random},
    {"zipf", "the same, block of rank r with a probability of 1/r", make_zipf},
    {"hot+scan", "a pass between accesses to half of memory", make_hot_scan},
    {"tour", "a random order, --rounds times the same", make_tour},
    {"rmw", "one pass that reads and writes", make_rmw},
    {"W1", "usm-bench spill: every block is written, in order", make_w},
    {"R", "... read in order", make_seq},
    {"X", "... read at random", make_x},
    {"W2", "... overwritten, in order", make_w},
    {"M", "... read and written at random", make_m},
    {"S", "... read and written in order", make_rmw},
};
#define GENERATORS (sizeof generators / sizeof generators[0])

void spill_workload_list(void)
{
    for (size_t i = 0; i < GENERATORS; i++)
        printf("  %-10s %s\n", generators[i].name, generators[i].what);
}

/* The longest generator name at the start of `text` that ends there or at a '+'. */
static const struct generator *find(const char *text, size_t *length)
{
    const struct generator *best = NULL;

    for (size_t i = 0; i < GENERATORS; i++) {
        size_t n = strlen(generators[i].name);

        if (strncmp(text, generators[i].name, n) != 0 || (text[n] != '\0' && text[n] != '+'))
            continue;
        if (best && n < *length)
            continue;
        best    = &generators[i];
        *length = n;
    }
    return best;
}

static bool generate(const char *spec, const spill_options *o, spill_workload *w)
{
    bool good = spill_workload_range(w, 0, o->blocks);

    w->blocks     = o->blocks;
    w->block_size = o->block_size;
    for (const char *at = spec; good && *at != '\0'; at += *at == '+') {
        size_t                  length = 0;
        const struct generator *g      = find(at, &length);
        spill_phase            *phase  = &w->phases[w->nphases++];

        good = g->make(w, o);
        (void)snprintf(phase->name, sizeof phase->name, "%s", g->name);
        phase->end = w->n;
        at += length;
    }
    return good;
}

/* Whether all of it consists of generator names. */
static bool is_generated(const char *spec)
{
    size_t length = 0, n = 0;

    for (const char *at = spec; *at != '\0'; at += *at == '+') {
        if (!find(at, &length) || ++n > SPILL_PHASES)
            return false;
        at += length;
    }
    return n > 0;
}

bool spill_workload_make(const char *spec, const spill_options *o, spill_workload *w, char *why,
                         size_t why_size)
{
    *w = (spill_workload){.name = spec};
    if (!is_generated(spec))
        return spill_workload_read(w, spec, why, why_size);
    if (generate(spec, o, w))
        return true;
    (void)snprintf(why, why_size, "no memory for %s", spec);
    return false;
}
