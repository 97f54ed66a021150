/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The worker of `usm-bench async`: one process with one runtime, which times what it is told to;
 * async.h has the commands.  Run by main.c, spoken to by contenders.c. */
#include "async.h"
#include "bench.h"
#include "plugin.h"
#include "raw.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BURST      64u /* submissions between two waits: few enough that none finds a full queue */
#define BURSTS_MAX 1024u
#define BURSTS_MIN 5u
#define ENOUGH_NS  100000000u /* and then no further burst begins                      */
#define BUFFER     BENCH_COMMAND_SIZE

static struct {
    usm_context   *ctx;
    usm_queue     *q, *raw_q; /* the driver's own calls have another queue               */
    usm_pool      *pool;
    raw_driver    *raw;
    char          *to, *from;
    bench_commands plugin;
    bool           is_plugin;
} w;

/* ---- what is timed: n times ---------------------------------------------------------- */

typedef bool operation(size_t size, size_t n);

static bool async_pairs(size_t size, size_t n)
{
    bool ok = true;

    if (w.is_plugin)
        return w.plugin.pairs(w.plugin.self, size, n);
    for (size_t i = 0; ok && i < n; i++) {
        void *p = usm_async_malloc(w.q, USM_DEVICE, size);

        ok = p && usm_async_free(w.q, p) == USM_OK;
    }
    return ok;
}

static bool pool_pairs(size_t size, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *p = usm_pool_malloc(w.pool, size);

        if (!p)
            return false;
        usm_pool_free(w.pool, p);
    }
    return true;
}

static bool driver_pairs(size_t size, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *p = w.raw->alloc(w.raw, size);

        if (!p || !w.raw->finish(w.raw))
            return false;
        w.raw->free(w.raw, p);
    }
    return true;
}

static bool memsets(size_t size, size_t n)
{
    if (w.is_plugin)
        return w.plugin.memset(w.plugin.self, size, n);
    for (size_t i = 0; i < n; i++)
        if (usm_memset(w.q, w.to, 1, size, 0, NULL, NULL) != USM_OK)
            return false;
    return true;
}

static bool memcpys(size_t size, size_t n)
{
    if (w.is_plugin)
        return w.plugin.memcpy(w.plugin.self, size, n);
    for (size_t i = 0; i < n; i++)
        if (usm_memcpy(w.q, w.to, w.from, size, 0, NULL, NULL) != USM_OK)
            return false;
    return true;
}

static bool plain_memsets(size_t size, size_t n)
{
    return w.plugin.memset_plain(w.plugin.self, size, n);
}

static bool plain_memcpys(size_t size, size_t n)
{
    return w.plugin.memcpy_plain(w.plugin.self, size, n);
}

static bool raw_memsets(size_t size, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!w.raw->fill(w.raw, w.to, 1, size))
            return false;
    return true;
}

static bool raw_memcpys(size_t size, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!w.raw->copy(w.raw, w.to, w.from, size))
            return false;
    return true;
}

static bool wait_for_all(void)
{
    if (w.is_plugin)
        return w.plugin.wait(w.plugin.self);
    return usm_queue_wait(w.q) == USM_OK && (!w.raw || w.raw->finish(w.raw));
}

/* ---- timing ---------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Bursts, the median: what the machine does besides falls into few of them. */
static bool time_operation(operation *op, size_t size, size_t n, double *ns)
{
    static double bursts[BURSTS_MAX];
    size_t        most = (n + BURST - 1) / BURST, count = 0;
    uint64_t      first = bench_now_ns(), began = first;

    most = most > BURSTS_MAX ? BURSTS_MAX : most;
    while (count < most && (count < BURSTS_MIN || began - first < ENOUGH_NS)) {
        if (!op(size, BURST))
            return false;
        bursts[count++] = (double)(bench_now_ns() - began) / BURST;
        if (!wait_for_all())
            return false;
        began = bench_now_ns();
    }
    qsort(bursts, count, sizeof *bursts, compare_doubles);
    *ns = bursts[count / 2];
    return true;
}

typedef enum needs { PLUGIN = 1, OURS = 2, DRIVER = 4, ANYBODY = PLUGIN | OURS } needs;

static operation *find(const char *name)
{
    static const struct {
        const char *name;
        operation  *op;
        needs       of;
    } all[]    = {{"async", async_pairs, ANYBODY},
                  {"pool", pool_pairs, OURS},
                  {"driver", driver_pairs, DRIVER},
                  {"memset", memsets, ANYBODY},
                  {"memcpy", memcpys, ANYBODY},
                  {"memset-plain", plain_memsets, PLUGIN},
                  {"memcpy-plain", plain_memcpys, PLUGIN},
                  {"raw-memset", raw_memsets, DRIVER},
                  {"raw-memcpy", raw_memcpys, DRIVER}};
    needs have = w.is_plugin ? PLUGIN : w.raw ? OURS | DRIVER : OURS;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0 && (all[i].of & have))
            return w.is_plugin && i == 0 && !w.plugin.pairs ? NULL : all[i].op;
    return NULL;
}

/* ---- commands ------------------------------------------------------------------------------- */

static void command_run(const char *line)
{
    operation *op;
    char       name[32];
    size_t     size, n;
    double     ns = 0;

    if (sscanf(line, "run %31s %zu %zu", name, &size, &n) != 3)
        printf("error what is \"%s\"\n", line);
    else if (!(op = find(name)))
        printf("error it has no %s\n", name);
    else if (time_operation(op, size, n, &ns))
        printf("ok %.3f\n", ns);
    else
        printf("error %s: %s\n", name, w.is_plugin ? "the plugin failed" : usm_last_error());
}

static void command_replay(const char *line)
{
    async_peak peak;
    unsigned   nqueues, gated;

    if (w.is_plugin || sscanf(line, "replay %u %u", &nqueues, &gated) != 2)
        printf("error what is \"%s\"\n", line);
    else if (async_replay(w.ctx, nqueues, gated != 0, &peak))
        printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", peak.reserved,
               peak.asked, peak.growth, peak.left, peak.host_waits);
    else
        printf("error the replay failed: %s\n", usm_last_error());
}

/* Frees of blocks that commands use which wait for an event that nobody has signalled: one that
 * waited for them would not return, and the alarm would end the worker. */
static size_t free_behind(size_t n)
{
    size_t calls = 0;

    for (; calls < n; calls++) {
        void *p = usm_async_malloc(w.q, USM_DEVICE, (size_t)64 << calls % 12);

        if (!p || usm_memset(w.q, p, 1, 64, 0, NULL, NULL) != USM_OK ||
            usm_async_free(w.q, p) != USM_OK)
            break;
    }
    return calls;
}

static void command_blocked(const char *line)
{
    usm_event *gate  = NULL;
    size_t     n     = 0;
    size_t     calls = 0;

    (void)sscanf(line, "blocked %zu", &n);
    if (w.is_plugin || usm_event_create(w.ctx, &gate) != USM_OK) {
        printf("error it has no user events\n");
        return;
    }
    alarm(20);
    if (usm_queue_barrier(w.q, 1, &gate, NULL) == USM_OK)
        calls = free_behind(n);
    if (usm_event_signal(gate, USM_OK) != USM_OK || usm_queue_wait(w.q) != USM_OK)
        calls = 0;
    alarm(0);
    usm_event_release(gate);
    if (calls == n)
        printf("ok %zu\n", calls);
    else
        printf("error call %zu failed: %s\n", calls + 1, usm_last_error());
}

/* Whether the queue's native list keeps the order itself. */
static void command_order(void)
{
    void *native = NULL;

    if (w.is_plugin || usm_queue_get_native(w.q, "level_zero", &native) != USM_OK)
        printf("error it is not Level Zero\n");
    else
        printf("ok %d\n", ((const usm_level_zero_queue *)native)->is_in_order);
}

static void answer(const char *line)
{
    if (strncmp(line, "run ", 4) == 0)
        command_run(line);
    else if (strncmp(line, "replay ", 7) == 0)
        command_replay(line);
    else if (strncmp(line, "blocked ", 8) == 0)
        command_blocked(line);
    else if (strcmp(line, "order") == 0)
        command_order();
    else
        printf("error what is \"%s\"\n", line);
}

/* ---- start ----------------------------------------------------------------------------------- */

static bool open_plugin(const char *file, char *why, size_t cap)
{
    bench_plugin_commands_fn *open    = NULL;
    void                     *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);

    if (library) /* dlsym gives functions as objects: POSIX */
        *(void **)(void *)&open = dlsym(library, BENCH_PLUGIN_COMMANDS_SYMBOL);
    if (!open) {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps one per thread */
        snprintf(why, cap, "%s", dlerror());
        return false;
    }
    w.is_plugin = true;
    return open(&w.plugin, why, cap);
}

static bool open_usm(char *why, size_t cap)
{
    usm_device *dev = NULL;

    w.ctx = usm_default_context();
    if (!w.ctx || usm_queue_create(w.ctx, NULL, NULL, &w.q) != USM_OK ||
        usm_queue_create(w.ctx, NULL, NULL, &w.raw_q) != USM_OK ||
        !(dev = usm_queue_get_device(w.q)) ||
        !(w.pool = usm_pool_default(w.ctx, dev, USM_DEVICE)) ||
        !(w.to = usm_pool_malloc(w.pool, BUFFER)) || !(w.from = usm_pool_malloc(w.pool, BUFFER))) {
        snprintf(why, cap, "%s", usm_last_error());
        return false;
    }
    w.raw = raw_opencl_open(w.raw_q);
    if (!w.raw)
        w.raw = raw_level_zero_open(w.raw_q);
    return true;
}

int bench_async_worker(const char *what)
{
    const char *plugin = strchr(what, ':');
    char        line[256], why[512] = "";

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!(plugin ? open_plugin(plugin + 1, why, sizeof why) : open_usm(why, sizeof why))) {
        printf("error %s\n", why);
        return 1;
    }
    printf("ok\n");
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        answer(line);
    }
    alarm(5); /* a driver that hangs at its end */
    if (w.raw)
        w.raw->close(w.raw);
    if (!w.is_plugin)
        usm_shutdown();
    return 0;
}
