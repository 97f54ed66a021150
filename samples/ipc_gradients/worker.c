/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A worker: makes gradients, sums them with the others, checks the sum; round after round. */
#include "gradients.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct worker {
    group  g;
    float *gradients, *sum; /* on the host: before they are shared, and after      */
    float *other;           /* the sum of the way that is not ours                 */
    bool   is_checked[WAYS];
    times  t;
} worker;

/* What worker `rank` learns in a round.  Made up, and known to all, so that sums can be checked. */
static float gradient(int rank, int round, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761U + (uint32_t)rank * 40503U + (uint32_t)round * 97U;

    x = (x ^ (x >> 15)) * 2246822519U;
    return ((float)(x >> 8) - 8388608.0f) / 8388608.0f;
}

static usm_status learn(worker *w, size_t count)
{
    for (size_t i = 0; i < count; i++)
        w->gradients[i] = gradient(w->g.rank, w->g.round, i);
    return usm_copy(w->g.of[w->g.rank].gradients, w->gradients, count * sizeof(float));
}

/* ---- is it right? ------------------------------------------------------------------------ */

static uint64_t checksum(const float *x, size_t count)
{
    const uint32_t *bits = (const void *)x;
    uint64_t        sum  = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < count; i++)
        sum = (sum ^ bits[i]) * UINT64_C(0x100000001b3);
    return sum;
}

/* Against plain C, which adds in the same order. */
static bool is_right(const worker *w, way how, size_t count)
{
    const group *g = &w->g;

    for (size_t i = 0; i < count; i++) {
        int   first = sum_first(how, g, count, i);
        float x     = gradient(g->living[first], g->round, i);

        for (int k = 1; k < g->n; k++)
            x += gradient(g->living[(first + k) % g->n], g->round, i);
        if (how == OTHER ? fabsf(x - w->other[i]) > 1e-5f * (float)g->n : x != w->sum[i]) {
            fprintf(stderr, "worker %d: sum %zu is %.9g, plain C says %.9g\n", g->rank, i,
                    (double)(how == OTHER ? w->other[i] : w->sum[i]), (double)x);
            return false;
        }
    }
    return true;
}

/* Every worker has the same bits, and the first one looks whether they are the right ones. */
static usm_status check(worker *w, way how, size_t count)
{
    group     *g = &w->g;
    uint64_t   mine, all[MAX_WORKERS];
    usm_status status = USM_OK;

    if (how != OTHER)
        status = usm_copy(w->sum, g->of[g->rank].sum, count * sizeof(float));
    mine = checksum(how == OTHER ? w->other : w->sum, count);
    if (status == USM_OK && g->me == 0 && !w->is_checked[how] && !is_right(w, how, count))
        return USM_E_CORRUPT;
    w->is_checked[how] = true;
    if (status == USM_OK)
        status = group_gather(g, &mine, sizeof mine, all);
    for (int i = 0; i < g->n && status == USM_OK; i++)
        if (all[g->living[i]] != mine) {
            fprintf(stderr, "workers %d and %d have different sums\n", g->living[i], g->rank);
            status = USM_E_CORRUPT;
        }
    return status;
}

/* ---- rounds --------------------------------------------------------------------------------- */

static usm_status sum(worker *w, way how, size_t count)
{
    static usm_status (*const ways[])(group *, size_t) = {
        [STAR] = sum_star, [ALL_TO_ALL] = sum_all_to_all, [RING] = sum_ring};

    if (how == OTHER)
        return w->g.o->other(w->gradients, w->other, count);
    return ways[how](&w->g, count);
}

/* With another size, or fewer workers: nothing is known of these sums. */
static void begin_anew(worker *w)
{
    w->t = (times){.n = {0}};
    for (int i = 0; i < WAYS; i++)
        w->is_checked[i] = false;
}

/* One sum; again, with the rest of the workers, when some have ended. */
static usm_status one_sum(worker *w, way how, size_t count)
{
    group     *g = &w->g;
    usm_status status;

    do {
        int      n     = g->n;
        uint64_t start = 0;

        status = group_meet(g); /* all gradients are there */
        start  = now_ns();
        if (status == USM_OK)
            status = sum(w, how, count);
        if (status == USM_OK)
            status = group_meet(g); /* all have the sum */
        if (status == USM_OK && w->t.n[how] < MAX_ROUNDS)
            w->t.ns[how][w->t.n[how]++] = now_ns() - start;
        if (status == USM_OK)
            status = check(w, how, count);
        if (n != g->n)
            begin_anew(w);
    } while (status == USM_E_PEER);
    return status;
}

static bool is_wanted(const options *o, way how, size_t size, int n)
{
    if (how == OTHER)
        return o->other != NULL;
    if (o->is_auto)
        return how == sum_choose(size, n);
    return o->only == -1 || o->only == (int)how;
}

/* The ways by turns, so that what else the machine does meets all. */
static usm_status one_size(worker *w, size_t size)
{
    const options *o      = w->g.o;
    usm_status     status = USM_OK;

    begin_anew(w);
    for (int r = 0; r < o->rounds && status == USM_OK; r++, w->g.round++) {
        status = learn(w, size / sizeof(float));
        for (way how = STAR; how < WAYS && status == USM_OK; how++)
            if (is_wanted(o, how, size, w->g.n))
                status = one_sum(w, how, size / sizeof(float));
    }
    if (status == USM_OK && w->g.me == 0)
        report_size(o, size, w->g.n, &w->t);
    return status;
}

static bool get_memory(worker *w, const options *o)
{
    size_t size = sizeof(float);

    for (int i = 0; i < o->nsizes; i++)
        size = o->sizes[i] > size ? o->sizes[i] : size;
    w->gradients = malloc(size);
    w->sum       = malloc(size);
    w->other     = malloc(size);
    return w->gradients && w->sum && w->other;
}

int worker_run(const options *o, int rank)
{
    worker    *w      = calloc(1, sizeof *w);
    usm_status status = USM_E_NO_MEMORY;

    if (!w || !get_memory(w, o)) {
        fprintf(stderr, "worker %d: no memory\n", rank);
        goto done;
    }
    status = group_open(&w->g, o, rank);
    if (status == USM_OK && w->g.me == 0)
        report_head(o, w->g.n);
    for (int i = 0; i < o->nsizes && status == USM_OK; i++)
        status = one_size(w, o->sizes[i]);
    if (status != USM_OK)
        fprintf(stderr, "worker %d: %s\n", rank, usm_last_error());
    else if (w->g.me == 0)
        printf("All sums are right, and the same to the last bit in %d workers\n", w->g.n);
    group_close(&w->g);
done:
    if (w) {
        free(w->gradients);
        free(w->sum);
        free(w->other);
    }
    free(w);
    return status == USM_OK ? 0 : 1;
}
