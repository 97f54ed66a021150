/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a pool saves: the same solver once with every grid asked of the driver, once with a pool.
 *
 *     pool_reuse [--side POINTS] [--steps N] [--rounds N] [--pool NAME] [--describe]
 *
 * Here: the runs, by turns, the check of their results, the table.  multigrid.c has the solver. */
#include "multigrid.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846

typedef struct options {
    int         n, steps; /* points of the plate's side, 2^k - 1; time steps   */
    int         rounds;   /* of each pool; the one with least CPU time counts  */
    const char *pool;     /* NULL: direct and the default by turns             */
    bool        describe;
} options;

typedef struct result {
    const char    *name;
    uint64_t       ns, cpu_ns, in_pool_ns, allocations;
    usm_pool_stats stats;
    double         error;    /* against the exact solution, relative */
    uint64_t       checksum; /* of every bit of it                    */
} result;

/* ---- the plate ----------------------------------------------------------------------- */

/* Warm in the middle, and how warm after `steps`: this shape only fades, at a rate known exactly.
 */
static double expected(int n, int steps, float c)
{
    return pow(1.0 + 4.0 * (double)c * (1.0 - cos(PI / (n + 1))), -steps);
}

static float strength(int n)
{
    return 0.0025f * (float)(n + 1) * (float)(n + 1); /* time step / distance squared */
}

static void fill(float *u, int n)
{
    for (int y = 0; y < n + 2; y++)
        for (int x = 0; x < n + 2; x++)
            u[y * (n + 2) + x] = (float)(sin(PI * x / (n + 1)) * sin(PI * y / (n + 1)));
}

static void check(result *r, const float *u, const options *o)
{
    double now = expected(o->n, o->steps, strength(o->n));

    r->error    = 0.0;
    r->checksum = UINT64_C(0xcbf29ce484222325);
    for (int y = 0; y < o->n + 2; y++)
        for (int x = 0; x < o->n + 2; x++, u++) {
            double        exact = now * sin(PI * x / (o->n + 1)) * sin(PI * y / (o->n + 1));
            unsigned char bytes[sizeof *u];

            r->error = fmax(r->error, fabs((double)*u - exact) / now);
            memcpy(bytes, u, sizeof bytes);
            for (size_t b = 0; b < sizeof bytes; b++)
                r->checksum = (r->checksum ^ bytes[b]) * UINT64_C(0x100000001b3);
        }
}

/* ---- a run --------------------------------------------------------------------------- */

static usm_status steps(memory *m, const kernels *k, float *u, const options *o, float *picture)
{
    usm_status status = USM_OK;

    for (int i = 0; i < o->steps && status == USM_OK; i++) {
        status = time_step(m, k, u, o->n, strength(o->n));
        if (status == USM_OK && i % 8 == 7)
            status = snapshot(m, k, u, o->n, picture);
    }
    return status;
}

/* Computes with grids of the pool, and fills in `r`. */
static usm_status compute(usm_pool *pool, const kernels *k, const options *o, result *r)
{
    memory     m    = {.pool = pool};
    size_t     size = (size_t)(o->n + 2) * (size_t)(o->n + 2) * sizeof(float);
    float     *host = malloc(size), *picture = malloc(size), *u;
    uint64_t   start = now_ns(), cpu = cpu_ns();
    usm_status status = usm_tag_push("plate");

    u = grid_alloc(&m, o->n);
    usm_tag_pop();
    if (!host || !picture || !u)
        status = USM_E_NO_MEMORY;
    if (status == USM_OK) {
        fill(host, o->n);
        status = usm_copy(u, host, size);
    }
    if (status == USM_OK)
        status = steps(&m, k, u, o, picture);
    r->ns     = now_ns() - start;
    r->cpu_ns = cpu_ns() - cpu;
    if (status == USM_OK)
        status = usm_copy(host, u, size);
    if (status == USM_OK)
        check(r, host, o);
    grid_free(&m, u);
    r->in_pool_ns  = m.ns;
    r->allocations = m.allocations;
    free(host);
    free(picture);
    return status;
}

static void describe(usm_pool *pool)
{
    static char text[16384];

    if (usm_pool_describe(pool, USM_TEXT, text, sizeof text, NULL) == USM_OK)
        printf("\n%s\n", text);
}

/* `name` NULL: the pool that USM_POOL, or else the library, chooses. */
static usm_status run(const char *name, const kernels *k, const options *o, result *r)
{
    usm_pool_desc desc   = USM_POOL_DESC_INIT;
    usm_pool     *pool   = NULL;
    usm_status    status = USM_OK;

    *r        = (result){.name = name ? name : "default", .stats = USM_POOL_STATS_INIT};
    desc.name = name;
    status    = usm_pool_create(usm_default_context(), usm_queue_get_device(usm_default_queue()),
                                USM_DEVICE, &desc, &pool);
    if (status != USM_OK)
        return status;
    status = compute(pool, k, o, r);
    if (status == USM_OK)
        status = usm_pool_get_stats(pool, &r->stats);
    if (status == USM_OK && o->describe)
        describe(pool);
    usm_pool_destroy(pool);
    return status;
}

/* The pools by turns, so that what else the machine does meets both; results are each one's round
 * with least CPU time. */
static usm_status run_rounds(const char *const *names, size_t n, const kernels *k, const options *o,
                             result *results)
{
    usm_status status = USM_OK;

    for (size_t i = 0; i < n * (size_t)o->rounds && status == USM_OK; i++) {
        result r = {.name = NULL};

        status = run(names[i % n], k, o, &r);
        if (status == USM_OK && (i < n || r.cpu_ns < results[i % n].cpu_ns))
            results[i % n] = r;
    }
    return status;
}

/* ---- the table ------------------------------------------------------------------------- */

typedef void cell(const result *r, char *text, size_t size);

static void name_cell(const result *r, char *text, size_t size)
{
    snprintf(text, size, "%s", r->name);
}

static void time_cell(const result *r, char *text, size_t size)
{
    snprintf(text, size, "%.3f s", (double)r->ns / 1e9);
}

static void cpu_cell(const result *r, char *text, size_t size)
{
    snprintf(text, size, "%.3f s", (double)r->cpu_ns / 1e9);
}

static void pool_cell(const result *r, char *text, size_t size)
{
    snprintf(text, size, "%.3f s", (double)r->in_pool_ns / 1e9);
}

static void grids_cell(const result *r, char *text, size_t size)
{
    snprintf(text, size, "%" PRIu64, r->allocations);
}

static void calls_cell(const result *r, char *text, size_t size)
{
    snprintf(text, size, "%" PRIu64, r->stats.driver_allocs + r->stats.driver_frees);
}

static void reuse_cell(const result *r, char *text, size_t size)
{
    snprintf(text, size, "%.1f %%",
             100.0 - 100.0 * (double)r->stats.driver_allocs / (double)r->allocations);
}

static void live_cell(const result *r, char *text, size_t size)
{
    snprintf(text, size, "%.1f MiB", (double)r->stats.live_peak / 1048576.0);
}

static void reserved_cell(const result *r, char *text, size_t size)
{
    snprintf(text, size, "%.1f MiB", (double)r->stats.reserved_peak / 1048576.0);
}

static void print_table(const result *results, size_t n)
{
    static const struct {
        const char *title;
        cell       *write;
    } rows[] = {{"pool", name_cell},
                {"time of the run", time_cell},
                {"time in the pool", pool_cell},
                {"CPU time, all threads", cpu_cell},
                {"grids allocated", grids_cell},
                {"driver calls", calls_cell},
                {"grids served without the driver", reuse_cell},
                {"live, highest", live_cell},
                {"taken from the driver, highest", reserved_cell}};
    char text[64];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("%-32s", rows[i].title);
        for (size_t k = 0; k < n; k++) {
            rows[i].write(&results[k], text, sizeof text);
            printf(" %14s", text);
        }
        putchar('\n');
    }
}

static int verdict(const result *results, size_t n, const options *o)
{
    for (size_t i = 0; i < n; i++)
        if (!(results[i].error < 1e-4 + 1e-5 * o->steps) ||
            results[i].checksum != results[0].checksum) {
            printf("pool %s: the result is wrong, by %g of the plate's temperature\n",
                   results[i].name, results[i].error);
            return 1;
        }
    printf("%s right to %.1e, checksum %016" PRIx64 "\n",
           n > 1 ? "Both results are bit-equal," : "The result is", results[0].error,
           results[0].checksum);
    return 0;
}

/* ---- the command line --------------------------------------------------------------------- */

static const char usage[] =
    "usage: pool_reuse [--side POINTS] [--steps N] [--rounds N] [--pool NAME]\n"
    "                  [--describe]\n";

static bool number(const char *text, int least, int most, int *value)
{
    char *end;
    long  n = text ? strtol(text, &end, 10) : 0;

    if (!text || *text == '\0' || *end || n < least || n > most)
        return false;
    *value = (int)n;
    return true;
}

static bool parse(int argc, char **argv, options *o)
{
    int  side = 256;
    bool good = true;

    *o = (options){.steps = 40, .rounds = 5};
    for (int i = 1; i < argc && good; i++) {
        if (strcmp(argv[i], "--side") == 0)
            good = number(argv[++i], 8, 4096, &side);
        else if (strcmp(argv[i], "--steps") == 0)
            good = number(argv[++i], 1, 1000, &o->steps);
        else if (strcmp(argv[i], "--rounds") == 0)
            good = number(argv[++i], 1, 1000, &o->rounds);
        else if (strcmp(argv[i], "--pool") == 0)
            good = (o->pool = argv[++i]) != NULL;
        else if (strcmp(argv[i], "--describe") == 0)
            o->describe = true;
        else
            good = false;
    }
    o->n = 7;
    while (o->n + 1 < side)
        o->n = 2 * o->n + 1;
    return good;
}

int main(int argc, char **argv)
{
    options o;
    kernels k;
    result  results[2] = {{.name = NULL}, {.name = NULL}};
    /* NULL: what USM_POOL, or else the library, chooses */
    const char *names[2] = {NULL, NULL};
    size_t      n;

    if (!parse(argc, argv, &o)) {
        fputs(usage, stderr);
        return 2;
    }
    names[0] = o.pool ? o.pool : "direct";
    n        = o.pool ? 1 : 2;
    if (!kernels_create(&k))
        goto failed;
    if (run_rounds(names, n, &k, &o, results) != USM_OK)
        goto err_kernels;
    kernels_destroy(&k);
    printf("%d time steps of %d x %d points, the best of %d round%s\n\n", o.steps, o.n, o.n,
           o.rounds, o.rounds == 1 ? "" : "s of each pool");
    print_table(results, n);
    return verdict(results, n, &o);
err_kernels:
    kernels_destroy(&k);
failed:
    fprintf(stderr, "%s\n", usm_last_error());
    return 1;
}
