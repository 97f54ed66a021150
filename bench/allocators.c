/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a worker can allocate with: the process's malloc, libusm by pool and by queue, a plugin.
 * Called by worker.c. */
#include "worker.h"

#include <usm/usm.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ malloc */

static void *plain_malloc(void *self, size_t size)
{
    (void)self;
    return malloc(size);
}

static void plain_free(void *self, void *p)
{
    (void)self;
    free(p);
}

static void open_malloc(bench_source *s, bool touch)
{
    s->loops = touch ? &bench_loops_malloc_touched : &bench_loops_malloc;
    s->table = (bench_allocator){.malloc = plain_malloc, .free = plain_free};
}

/* ------------------------------------------------------------------ libusm */

static usm_pool  *the_pool;
static usm_queue *the_queue;
static usm_kind   the_kind;

static void *pool_malloc(void *self, size_t size)
{
    return usm_pool_malloc(self, size);
}

static void pool_free(void *self, void *p)
{
    usm_pool_free(self, p);
}

static void *queue_malloc_device(void *self, size_t size)
{
    return usm_malloc_device(size, self);
}

static void *queue_malloc_shared(void *self, size_t size)
{
    return usm_malloc_shared(size, self);
}

static void *queue_malloc_host(void *self, size_t size)
{
    return usm_malloc_host(size, self);
}

static void queue_free(void *self, void *p)
{
    (void)self;
    usm_free(p);
}

static int pointer_kind(void *self, const void *p)
{
    (void)self;
    return (int)usm_get_pointer_type(p, NULL);
}

static void pool_stats(void *self)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    (void)self;
    (void)!usm_pool_get_stats(the_pool, &stats);
    __asm__ volatile("" ::"r"(&stats) : "memory");
}

static bool pool_counts(uint64_t *live_peak, uint64_t *reserved_peak, uint64_t *driver_allocs,
                        uint64_t *allocs)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    if (usm_pool_get_stats(the_pool, &stats) != USM_OK)
        return false;
    *live_peak     = stats.live_peak;
    *reserved_peak = stats.reserved_peak;
    *driver_allocs = stats.driver_allocs;
    *allocs        = stats.allocations;
    return true;
}

static uint64_t pool_cached(void)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    return usm_pool_get_stats(the_pool, &stats) == USM_OK ? stats.thread_cached + stats.depot_cached
                                                          : UINT64_MAX;
}

static void pool_trim(void)
{
    (void)usm_pool_trim_to(the_pool, 0);
}

static bool pool_need_all(void)
{
    usm_memory_info memory = USM_MEMORY_INFO_INIT;
    void           *p;

    if (usm_device_memory(usm_pool_get_device(the_pool), &memory) != USM_OK)
        return false;
    p = usm_pool_malloc(the_pool, memory.total);
    usm_pool_free(the_pool, p);
    return p != NULL;
}

static void close_usm(void *self)
{
    (void)self;
    usm_shutdown();
}

static usm_kind kind_of(const char *name)
{
    static const char *const names[] = {"unknown", "host", "device", "shared"};

    for (int kind = USM_HOST; kind <= USM_SHARED; kind++)
        if (strcmp(name, names[kind]) == 0)
            return (usm_kind)kind;
    return USM_UNKNOWN;
}

/* The first device of the default context, its default pool and queue. */
static bool find_pool(const char *kind, char *why, size_t cap)
{
    usm_context *ctx = usm_default_context();

    the_kind  = kind_of(kind);
    the_queue = ctx ? usm_default_queue() : NULL;
    the_pool  = the_queue ? usm_pool_default(ctx, usm_queue_get_device(the_queue), the_kind) : NULL;
    if (!the_pool)
        snprintf(why, cap, "%s", usm_last_error());
    return the_pool != NULL;
}

static bool open_pool(bench_source *s, bool touch, const char *kind, char *why, size_t cap)
{
    if (!find_pool(kind, why, cap))
        return false;
    s->loops    = touch ? &bench_loops_pool_touched : &bench_loops_pool;
    s->pool     = the_pool;
    s->counts   = pool_counts;
    s->cached   = pool_cached;
    s->trim     = pool_trim;
    s->need_all = pool_need_all;
    s->table    = (bench_allocator){.self   = the_pool,
                                    .malloc = pool_malloc,
                                    .free   = pool_free,
                                    .query  = pointer_kind,
                                    .stats  = pool_stats,
                                    .close  = close_usm};
    return true;
}

static bool open_queue(bench_source *s, const char *kind, char *why, size_t cap)
{
    if (!find_pool(kind, why, cap))
        return false;
    s->loops  = &bench_loops_table;
    s->pool   = &s->table;
    s->counts = pool_counts;
    s->table  = (bench_allocator){.self   = the_queue,
                                  .malloc = the_kind == USM_DEVICE   ? queue_malloc_device
                                            : the_kind == USM_SHARED ? queue_malloc_shared
                                                                     : queue_malloc_host,
                                  .free   = queue_free,
                                  .query  = pointer_kind,
                                  .stats  = pool_stats,
                                  .close  = close_usm};
    return true;
}

/* ------------------------------------------------------------------ plugins */

/* `text` is FILE:WHAT. */
static bool open_plugin(bench_source *s, const char *text, char *why, size_t cap)
{
    bench_plugin_open_fn *open = NULL;
    const char           *what = strrchr(text, ':');
    char                  file[1024];
    void                 *library;

    if (!what || (size_t)(what - text) >= sizeof file) {
        snprintf(why, cap, "no plugin is called %s", text);
        return false;
    }
    memcpy(file, text, (size_t)(what - text));
    file[what - text] = '\0';
    library           = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library) /* dlsym gives functions as objects: POSIX */
        *(void **)(void *)&open = dlsym(library, BENCH_PLUGIN_SYMBOL);
    if (!open) {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps one per thread */
        snprintf(why, cap, "%s", dlerror());
        return false;
    }
    s->loops = &bench_loops_table;
    s->pool  = &s->table;
    return open(what + 1, &s->table, why, cap);
}

bool bench_source_open(const char *allocator, bench_source *s, char *why, size_t cap)
{
    *s = (bench_source){0};
    if (strcmp(allocator, "malloc") == 0 || strcmp(allocator, "malloc-touch") == 0) {
        open_malloc(s, allocator[6] != '\0');
        return true;
    }
    if (strncmp(allocator, "pool:", 5) == 0)
        return open_pool(s, false, allocator + 5, why, cap);
    if (strncmp(allocator, "pool-touch:", 11) == 0)
        return open_pool(s, true, allocator + 11, why, cap);
    if (strncmp(allocator, "queue:", 6) == 0)
        return open_queue(s, allocator + 6, why, cap);
    if (strncmp(allocator, "plugin:", 7) == 0)
        return open_plugin(s, allocator + 7, why, cap);
    snprintf(why, cap, "there is no allocator \"%s\"", allocator);
    return false;
}
