/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The worker's loop of `usm-bench spill`: see spill_worker.h for what it is told and answers. */
#include "spill_worker.h"

#include "bench.h"
#include "spill_cost.h"
#include "spill_load.h"
#include "spill_memory.h"

#include <usm/usm.h>

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SETTLED_LOOKS 5 /* 20 ms apart, in which nothing was written */
#define SETTLE_LOOKS  250

#define CHUNK_OF_WORDS ((size_t)1 << 20)

typedef struct worker {
    spill_load   *load;
    bench_buffers plugin;
    bool          is_plugin;
} worker;

static void say(const char *why)
{
    printf("error %s\n", why && *why ? why : "it failed, and says nothing");
}

/* A context is there. */
static bool start(void)
{
    if (usm_default_context())
        return true;
    say(usm_last_error());
    return false;
}

/* What the process has at this moment is not counted from now on. */
static bool watch(void)
{
    if (spill_memory_watch())
        return true;
    say("/proc/self/statm cannot be read");
    return false;
}

/* Buffers as of `shape`, or over the file. */
static void begin(worker *w, const spill_shape *shape, const char *path)
{
    const char *why = "out of memory";

    spill_load_close(w->load);
    w->load = NULL;
    if (!start())
        return;
    w->load = spill_load_new(shape);
    if (!w->load)
        say(why);
    else if (!watch())
        return;
    else if (spill_load_begin(w->load, path, &why))
        printf("ok\n");
    else
        say(why);
}

static void command_join(const char *path)
{
    FILE *f  = fopen(path, "w");
    bool  ok = f && fprintf(f, "%d\n", (int)getpid()) > 0;

    if (f)
        ok = fclose(f) == 0 && ok;
    if (ok)
        printf("ok\n");
    else
        printf("error %s cannot be joined\n", path);
}

static bool hint_of(const char *name, spill_hint *hint)
{
    static const char *const names[] = {"none", "announce", "sequential", "random"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) {
            *hint = (spill_hint)i;
            return true;
        }
    return false;
}

static void command_open(worker *w, const char *arguments)
{
    spill_shape shape = {0};
    char        form[16], hint[16], path[512] = "";

    if (sscanf(arguments, "%15s %zu %zu %15s %511s", form, &shape.chunk, &shape.n, hint, path) <
            4 ||
        !hint_of(hint, &shape.hint)) {
        say("which chunks?");
        return;
    }
    shape.is_one     = strcmp(form, "one") == 0;
    shape.is_managed = strcmp(form, "managed") == 0;
    shape.is_array   = strcmp(form, "array") == 0;
    shape.is_mapped  = strcmp(form, "mapped") == 0;
    begin(w, &shape, shape.is_mapped ? path : NULL);
}

static bool parse_file(const char *arguments, char path[512], spill_shape *shape)
{
    *shape = (spill_shape){.is_one = true};
    return sscanf(arguments, "%511s %zu %zu", path, &shape->chunk, &shape->n) == 3;
}

static void command_map(worker *w, const char *arguments)
{
    spill_shape shape;
    char        path[512];

    if (parse_file(arguments, path, &shape))
        begin(w, &shape, path);
    else
        say("which file?");
}

static void command_fill(const char *arguments)
{
    spill_shape shape;
    char        path[512];

    if (parse_file(arguments, path, &shape) && spill_load_fill_file(path, &shape))
        printf("ok\n");
    else
        say("the file cannot be written");
}

static void command_run(worker *w, const char *arguments)
{
    spill_time  time;
    char        name[16];
    size_t      accesses;
    const char *why = "what is to be run?";

    if (sscanf(arguments, "%15s %zu", name, &accesses) == 2 && w->load &&
        spill_load_run(w->load, name, accesses, &time, &why))
        printf("ok %.9f %" PRIu64 "\n", time.seconds, time.bytes);
    else
        say(why);
}

/* What was written lately is still on its way to storage; nobody else shall pay for it. */
static void command_settle(void)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    uint64_t              before, now;
    int                   still = 0;

    for (int i = 0; i < SETTLE_LOOKS && still < SETTLED_LOOKS; i++) {
        if (!spill_memory_written(&before))
            break;
        nanosleep(&pause, NULL);
        still = spill_memory_written(&now) && now == before ? still + 1 : 0;
    }
    printf("ok\n");
}

static void command_memory(void)
{
    uint64_t peak, now;

    spill_memory_get(&peak, &now);
    printf("ok %" PRIu64 " %" PRIu64 "\n", peak, now);
}

static void command_touch(const worker *w)
{
    double us = w->load ? spill_load_touch(w->load) : 0;

    if (us > 0)
        printf("ok %.2f\n", us);
    else
        say(usm_last_error());
}

static void command_written(void)
{
    uint64_t bytes;

    if (spill_memory_written(&bytes))
        printf("ok %" PRIu64 "\n", bytes);
    else
        say("/proc/self/io cannot be read");
}

static void command_cost(worker *w, const char *name)
{
    spill_cost  cost = {0, 0};
    const char *why  = "";
    bool        ok;

    if (strcmp(name, "checksum") == 0) {
        cost.ours = spill_cost_checksum();
        ok        = cost.ours > 0;
        why       = "built without xxhash.h";
    } else if (w->is_plugin) {
        ok = spill_cost_of_plugin(&w->plugin, name, &cost, &why);
    } else {
        ok = usm_default_context() && spill_cost_measure(name, &cost, &why);
    }
    if (ok)
        printf("ok %.4f %.4f\n", cost.ours, cost.theirs);
    else
        say(why);
}

/* ---- buffers that were filled on the device ---------------------------------------- */

static bool is_all(const char *data, size_t size, char value)
{
    return data[0] == value && memcmp(data, data + 1, size - 1) == 0;
}

static bool fill_on_device(usm_buffer *buffer, size_t size, char value)
{
    const usm_accessor all = {buffer, 0, size, USM_WRITE_NO_INIT};

    return usm_buffer_fill(usm_default_queue(), &all, &value, 1, 0, NULL, NULL) == USM_OK;
}

static bool check_on_host(usm_buffer *buffer, size_t size, char value)
{
    usm_access a;
    bool       ok;

    if (usm_access_begin(buffer, 0, size, USM_READ, &a) != USM_OK)
        return false;
    ok = is_all(a.ptr, size, value);
    usm_access_end(&a);
    return ok;
}

static bool device_and_back(usm_buffer **buffer, size_t n, size_t size)
{
    bool ok = true;

    for (size_t i = 0; ok && i < n; i++) {
        buffer[i] = usm_buffer_new(NULL, size);
        ok        = buffer[i] && fill_on_device(buffer[i], size, (char)(i % 100 + 1));
    }
    for (size_t i = 0; ok && i < n; i++)
        ok = check_on_host(buffer[i], size, (char)(i % 100 + 1));
    return ok;
}

static void command_device(const char *arguments)
{
    size_t       n, size;
    usm_buffer **buffer;
    uint64_t     began;
    bool         ok;

    if (sscanf(arguments, "%zu %zu", &n, &size) != 2 || n == 0 || size == 0) {
        say("how many buffers?");
        return;
    }
    if (!start() || !watch())
        return;
    buffer = calloc(n, sizeof(usm_buffer *));
    began  = bench_now_ns();
    ok     = buffer && device_and_back(buffer, n, size);
    if (ok)
        printf("ok %.9f\n", (double)(bench_now_ns() - began) * 1e-9);
    else
        say(usm_last_error());
    for (size_t i = 0; buffer && i < n; i++)
        usm_buffer_destroy(buffer[i]);
    free(buffer);
}

/* ---- pools that sleep ----------------------------------------------------------------- */

/* Words that no codec and no all-zero block makes shorter; compared if `is_check`. */
static bool fill_words(void *p, size_t bytes, bool is_check)
{
    uint64_t *word = malloc(CHUNK_OF_WORDS);
    bool      ok   = word != NULL;

    for (size_t at = 0; ok && at < bytes; at += CHUNK_OF_WORDS) {
        uint64_t seed = at;

        if (is_check)
            ok = usm_copy(word, (char *)p + at, CHUNK_OF_WORDS) == USM_OK;
        for (size_t i = 0; ok && i < CHUNK_OF_WORDS / sizeof *word; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            if (is_check)
                ok = word[i] == seed;
            word[i] = seed;
        }
        if (ok && !is_check)
            ok = usm_copy((char *)p + at, word, CHUNK_OF_WORDS) == USM_OK;
    }
    free(word);
    return ok;
}

static bool nap(usm_pool *pool, size_t bytes, double seconds[2])
{
    void    *p     = usm_pool_malloc(pool, bytes);
    bool     ok    = p && fill_words(p, bytes, false);
    uint64_t began = bench_now_ns();

    ok         = ok && usm_pool_sleep(pool, USM_SLEEP_KEEP) == USM_OK;
    seconds[0] = (double)(bench_now_ns() - began) * 1e-9;
    began      = bench_now_ns();
    ok         = ok && usm_pool_wake(pool) == USM_OK;
    seconds[1] = (double)(bench_now_ns() - began) * 1e-9;
    return ok && fill_words(p, bytes, true);
}

static void command_sleep(const char *arguments)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;
    double        seconds[2];
    char          kind[16];
    size_t        bytes;

    if (sscanf(arguments, "%15s %zu", kind, &bytes) != 2 || bytes % CHUNK_OF_WORDS) {
        say("which pool?");
        return;
    }
    desc.name = "slab";
    if (usm_pool_create(NULL, NULL, strcmp(kind, "device") == 0 ? USM_DEVICE : USM_HOST, &desc,
                        &pool) == USM_OK &&
        nap(pool, bytes, seconds))
        printf("ok %.9f %.9f\n", seconds[0], seconds[1]);
    else
        say(usm_last_error());
    usm_pool_destroy(pool);
}

/* ---- the loop ---------------------------------------------------------------------- */

static void answer(worker *w, char *line)
{
    char       *space     = strchr(line, ' ');
    const char *arguments = space ? space + 1 : "";

    if (space)
        *space = '\0';
    if (strcmp(line, "join") == 0) {
        command_join(arguments);
    } else if (strcmp(line, "cost") == 0) {
        command_cost(w, arguments);
    } else if (w->is_plugin) {
        say("a plugin has costs only");
    } else if (strcmp(line, "open") == 0) {
        command_open(w, arguments);
    } else if (strcmp(line, "map") == 0) {
        command_map(w, arguments);
    } else if (strcmp(line, "fill") == 0) {
        command_fill(arguments);
    } else if (strcmp(line, "run") == 0) {
        command_run(w, arguments);
    } else if (strcmp(line, "device") == 0) {
        command_device(arguments);
    } else if (strcmp(line, "sleep") == 0) {
        command_sleep(arguments);
    } else if (strcmp(line, "settle") == 0) {
        command_settle();
    } else if (strcmp(line, "memory") == 0) {
        command_memory();
    } else if (strcmp(line, "touch") == 0) {
        command_touch(w);
    } else if (strcmp(line, "written") == 0) {
        command_written();
    } else if (strcmp(line, "close") == 0) {
        spill_load_close(w->load);
        w->load = NULL;
        printf("ok\n");
    } else {
        printf("error what is \"%s\"\n", line);
    }
}

static bool open_plugin(worker *w, const char *file, char *why, size_t cap)
{
    bench_plugin_buffers_fn *open    = NULL;
    void                    *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);

    if (library) /* dlsym gives functions as objects: POSIX */
        *(void **)(void *)&open = dlsym(library, BENCH_PLUGIN_BUFFERS_SYMBOL);
    if (!open) {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps one per thread */
        snprintf(why, cap, "%s", dlerror());
        return false;
    }
    w->is_plugin = true;
    return open(&w->plugin, why, cap);
}

int bench_spill_worker(const char *allocator)
{
    static worker w;
    char          line[1024], why[512];
    const char   *plugin = strchr(allocator, ':');

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (plugin && !open_plugin(&w, plugin + 1, why, sizeof why)) {
        printf("error %s\n", why);
        return 1;
    }
    printf("ok\n");
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        answer(&w, line);
    }
    alarm(5); /* a driver that hangs at its end */
    spill_load_close(w.load);
    if (!w.is_plugin)
        usm_shutdown();
    return 0;
}
