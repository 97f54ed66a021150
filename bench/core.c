/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-bench core: what the core costs over the driver below it, on the selector's
 * first device: allocation through the `direct` pool, pointer queries, submission
 * of small copies, copies with a wait.  On the host backend there is no driver:
 * copies are compared with memcpy. */
#include "bench.h"
#include "raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIVE 2000

typedef struct state {
    usm_queue  *q;
    usm_pool   *pool;
    raw_driver *raw;
    size_t      size;
    char       *device, *host;
    void       *live[LIVE];
    unsigned    seed;
} state;

static bool fail(const char *what)
{
    fprintf(stderr, "usm-bench: %s: %s\n", what, usm_last_error());
    return false;
}

static bool ours_alloc(void *arg, size_t n)
{
    state *s = arg;

    for (size_t i = 0; i < n; i++) {
        void *p = usm_pool_malloc(s->pool, s->size);

        if (!p)
            return fail("allocation");
        usm_free(p);
    }
    return true;
}

static bool raw_alloc_pairs(void *arg, size_t n)
{
    state *s = arg;

    for (size_t i = 0; i < n; i++) {
        void *p = s->raw->alloc(s->raw, s->size);

        if (!p)
            return false;
        s->raw->free(s->raw, p);
    }
    return true;
}

/* The same sequence of pointers for both. */
static const void *some_live(state *s)
{
    s->seed = s->seed * 1103515245u + 12345u;
    return (char *)s->live[(s->seed >> 8) % LIVE] + (s->seed & 15);
}

static bool ours_query(void *arg, size_t n)
{
    state *s = arg;

    for (size_t i = 0; i < n; i++)
        if (usm_get_pointer_type(some_live(s), NULL) != USM_DEVICE)
            return fail("query");
    return true;
}

static bool raw_queries(void *arg, size_t n)
{
    state *s   = arg;
    int    sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += s->raw->query(s->raw, some_live(s));
    return sum != 0;
}

static bool ours_submit(void *arg, size_t n)
{
    state *s = arg;

    for (size_t i = 0; i < n; i++)
        if (usm_memcpy(s->q, s->device, s->host, s->size, 0, NULL, NULL) != USM_OK)
            return fail("copy");
    return usm_queue_wait(s->q) == USM_OK;
}

static bool raw_submit(void *arg, size_t n)
{
    state *s = arg;

    for (size_t i = 0; i < n; i++)
        if (!s->raw->copy(s->raw, s->device, s->host, s->size))
            return false;
    return s->raw->finish(s->raw);
}

static bool ours_wait(void *arg, size_t n)
{
    state *s = arg;

    for (size_t i = 0; i < n; i++)
        if (usm_memcpy(s->q, s->device, s->host, s->size, 0, NULL, NULL) != USM_OK ||
            usm_queue_wait(s->q) != USM_OK)
            return fail("copy");
    return true;
}

static bool raw_wait(void *arg, size_t n)
{
    state *s = arg;

    for (size_t i = 0; i < n; i++)
        if (!s->raw->copy(s->raw, s->device, s->host, s->size) || !s->raw->finish(s->raw))
            return false;
    return true;
}

static bool plain_memcpy(void *arg, size_t n)
{
    state *s = arg;

    for (size_t i = 0; i < n; i++) {
        memcpy(s->device, s->host, s->size);
        __asm__ volatile("" ::"r"(s->device) : "memory");
    }
    return true;
}

static bool run_allocations(bench_report *report, state *s)
{
    static const struct {
        const char *name;
        size_t      size, n;
    } sizes[] = {{"alloc+free 64 B, direct pool", 64, 2000},
                 {"alloc+free 64 KiB, direct pool", 64 << 10, 2000},
                 {"alloc+free 1 MiB, direct pool", 1 << 20, 500}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        s->size = sizes[i].size;
        if (!bench_compare(report, sizes[i].name, s->raw ? s->raw->alloc_name : NULL, 0, sizes[i].n,
                           ours_alloc, s->raw ? raw_alloc_pairs : NULL, s))
            return false;
    }
    return true;
}

static bool run_queries(bench_report *report, state *s)
{
    bool raw = s->raw && s->raw->query;
    bool ok  = true;

    for (size_t i = 0; i < LIVE; i++) {
        /* The raw query knows only the driver's allocations, and ours are those. */
        s->live[i] = usm_pool_malloc(s->pool, 256);
        if (!s->live[i])
            return fail("allocation");
    }
    ok = bench_compare(report, "usm_get_pointer_type, 2000 live, random",
                       raw ? s->raw->query_name : NULL, 0, 20000, ours_query,
                       raw ? raw_queries : NULL, s);
    for (size_t i = 0; i < LIVE; i++)
        usm_free(s->live[i]);
    return ok;
}

static bool run_copies(bench_report *report, state *s)
{
    const size_t big  = (size_t)64 << 20;
    bool         host = !s->raw;
    bool         ok;

    s->device = usm_pool_malloc(s->pool, big);
    s->host   = calloc(1, big);
    if (!s->device || !s->host)
        return fail("allocation");
    s->size = 64;
    ok      = bench_compare(report, "usm_memcpy 64 B, submit", "raw driver call", 1.05, 2000,
                            ours_submit, host ? NULL : raw_submit, s) &&
         bench_compare(report, "usm_memcpy 64 B, submit + wait", "raw driver call", 1.05, 500,
                       ours_wait, host ? NULL : raw_wait, s);
    s->size = big;
    ok =
        ok && bench_compare(report, "usm_memcpy 64 MiB + wait", host ? "memcpy" : "raw driver call",
                            1.05, 2, ours_wait, host ? plain_memcpy : raw_wait, s);
    usm_free(s->device);
    free(s->host);
    return ok;
}

int bench_core(bench_report *report, const bench_options *options)
{
    static state    s;
    usm_pool_desc   desc = USM_POOL_DESC_INIT;
    usm_device_info info = USM_DEVICE_INFO_INIT;
    usm_context    *ctx  = usm_default_context();
    usm_device     *dev  = NULL;
    size_t          n    = 0;
    bool            ok   = false;

    (void)options;
    desc.name = "direct";
    if (!ctx || usm_context_get_devices(ctx, &dev, 1, &n) != USM_OK ||
        usm_device_get_info(dev, &info) != USM_OK ||
        usm_queue_create(ctx, dev, NULL, &s.q) != USM_OK ||
        usm_pool_create(ctx, dev, USM_DEVICE, &desc, &s.pool) != USM_OK) {
        fail("start");
    } else {
        s.raw = raw_opencl_open(s.q);
        if (!s.raw)
            s.raw = raw_level_zero_open(s.q);
        fprintf(stderr, "usm-bench core on %s (%s)\n", info.selector, info.name);
        ok = run_allocations(report, &s) && run_queries(report, &s) && run_copies(report, &s);
        if (s.raw)
            s.raw->close(s.raw);
    }
    usm_pool_destroy(s.pool);
    usm_queue_destroy(s.q);
    usm_shutdown();
    return ok ? 0 : 1;
}
