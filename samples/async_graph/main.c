/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory in the order of queues: one graph of work over many tiles of a picture, with temporaries
 * that are freed by usm_free() and by usm_async_free().
 *
 *     async_graph [--side PIXELS] [--tile PIXELS] [--queues N] [--rounds N] [--no-waits]
 *                 [--out FILE.pgm]
 *
 * Here: the runs, by turns, the check of their results, the table.  graph.c has the work, memory.c
 * the three ways to have its temporaries. */
#include "graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct options {
    int         side, tile, queues, rounds;
    bool        no_waits; /* rather more memory than a queue that waits for another */
    const char *out;
} options;

typedef struct result {
    uint64_t ns, waits, allocations;
    uint64_t used, reserved;                       /* highest, bytes                            */
    uint64_t reuses, events, inserted, pool_waits; /* of queues, by the pool */
} result;

static uint64_t now_ns(void)
{
    struct timespec t;

    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

/* ---- a run ---------------------------------------------------------------------------- */

/* The pool that usm_malloc_device() and usm_async_malloc() take from. */
static usm_pool *the_pool(void)
{
    return usm_pool_default(usm_default_context(), NULL, USM_DEVICE);
}

/* Nothing is left of the run before, and peaks begin anew. */
static usm_status start_counting(usm_pool *pool)
{
    usm_status status = usm_pool_trim_to(pool, 0);

    if (status == USM_OK)
        status = usm_pool_set_attribute(pool, USM_POOL_USED_HIGH, 0);
    if (status == USM_OK)
        status = usm_pool_set_attribute(pool, USM_POOL_RESERVED_HIGH, 0);
    return status;
}

typedef struct counter {
    usm_pool_attribute which;
    uint64_t          *value;
} counter;

static usm_status read_pool(usm_pool *pool, const counter *c, size_t n)
{
    usm_status status = USM_OK;

    for (size_t i = 0; i < n && status == USM_OK; i++)
        status = usm_pool_get_attribute(pool, c[i].which, c[i].value);
    return status;
}

/* Counters since the process began. */
static usm_status read_counts(usm_pool *pool, result *r)
{
    const counter c[] = {{USM_POOL_QUEUED_REUSES, &r->reuses},
                         {USM_POOL_QUEUED_EVENTS, &r->events},
                         {USM_POOL_QUEUED_WAITS, &r->inserted},
                         {USM_POOL_HOST_WAITS, &r->pool_waits}};

    return read_pool(pool, c, sizeof c / sizeof *c);
}

static usm_status read_peaks(usm_pool *pool, result *r)
{
    const counter c[] = {{USM_POOL_USED_HIGH, &r->used}, {USM_POOL_RESERVED_HIGH, &r->reserved}};

    return read_pool(pool, c, sizeof c / sizeof *c);
}

/* What all runs have in common. */
typedef struct job {
    const options *o;
    queues         qs;
    kernels        k;
    picture        p;
    float         *expected, *out;
} job;

/* All tiles of the picture, dealt out to the queues. */
static usm_status work(const job *j, memory *m)
{
    lane       l      = {m, &j->qs, &j->k, 0};
    tile       t      = {.of = &j->p, .side = j->o->tile};
    usm_status status = USM_OK, ended;

    for (t.y = 0; t.y < j->p.side; t.y += t.side)
        for (t.x = 0; t.x < j->p.side && status == USM_OK; t.x += t.side) {
            status = memory_turn(m, &j->qs, l.i);
            if (status == USM_OK)
                status = tile_submit(&l, t, j->out);
            l.i = (l.i + 1) % j->qs.n;
        }
    ended = memory_end(m, &j->qs);
    return status != USM_OK ? status : ended;
}

static usm_status run(const job *j, way how, result *r)
{
    memory     m    = {.how = how};
    usm_pool  *pool = the_pool();
    result     before;
    uint64_t   start;
    usm_status status = pool ? start_counting(pool) : USM_E_NO_MEMORY;

    if (status == USM_OK)
        status = read_counts(pool, &before);
    start = now_ns();
    if (status == USM_OK)
        status = work(j, &m);
    r->ns          = now_ns() - start;
    r->waits       = m.waits;
    r->allocations = m.allocations;
    if (status == USM_OK)
        status = read_counts(pool, r);
    if (status != USM_OK)
        return status;
    r->reuses -= before.reuses;
    r->events -= before.events;
    r->inserted -= before.inserted;
    r->pool_waits -= before.pool_waits;
    return read_peaks(pool, r);
}

/* ---- rounds --------------------------------------------------------------------------- */

static bool is_right(const job *j, way how)
{
    int side = j->p.side;

    for (int i = 0; i < side * side; i++)
        if (j->out[i] != j->expected[i]) {
            fprintf(stderr, "way %d: pixel (%d, %d) is %.9g, plain C says %.9g\n", (int)how,
                    i % side, i / side, (double)j->out[i], (double)j->expected[i]);
            return false;
        }
    return true;
}

/* The ways by turns, so that what else the machine does meets all; times are each one's best,
 * memory each one's highest. */
static usm_status run_rounds(const job *j, result *results)
{
    size_t     size   = (size_t)j->p.side * (size_t)j->p.side * sizeof *j->out;
    usm_status status = USM_OK;

    for (int i = 0; i < WAYS * j->o->rounds && status == USM_OK; i++) {
        way      how = (way)(i % WAYS);
        result   r = {.ns = 0}, *best = &results[how];
        uint64_t used = best->used, reserved = best->reserved;

        memset(j->out, 0, size);
        status = run(j, how, &r);
        if (status == USM_OK && !is_right(j, how))
            status = USM_E_CORRUPT;
        if (status == USM_OK && (i < WAYS || r.ns < best->ns))
            *best = r;
        best->used     = r.used > used ? r.used : used;
        best->reserved = r.reserved > reserved ? r.reserved : reserved;
    }
    return status;
}

static usm_status with_queues(job *j, result *results)
{
    usm_status status = USM_OK;

    j->qs.n = (size_t)j->o->queues;
    if (j->o->no_waits)
        status = usm_pool_set_attribute(the_pool(), USM_POOL_REUSE_INSERT_WAITS, 0);
    for (size_t i = 0; i <= j->qs.n && status == USM_OK; i++)
        status = usm_queue_create(NULL, NULL, NULL, &j->qs.of[i]);
    if (status == USM_OK)
        status = run_rounds(j, results);
    for (size_t i = 0; i <= j->qs.n; i++)
        usm_queue_destroy(j->qs.of[i]);
    return status;
}

/* ---- the table ------------------------------------------------------------------------ */

static void row(const char *title, const result *r, uint64_t (*get)(const result *), double scale,
                const char *unit)
{
    char text[32];

    printf("%-36s", title);
    for (int i = 0; i < WAYS; i++) {
        snprintf(text, sizeof text, "%.*f%s", *unit ? 1 : 0, (double)get(&r[i]) / scale, unit);
        printf(" %15s", text);
    }
    putchar('\n');
}

#define GETTER(member)                                                                             \
    static uint64_t get_##member(const result *r)                                                  \
    {                                                                                              \
        return r->member;                                                                          \
    }
GETTER(ns)
GETTER(waits)
GETTER(allocations)
GETTER(used)
GETTER(reserved)
GETTER(reuses)
GETTER(events)
GETTER(inserted)
GETTER(pool_waits)

static void print_table(const result *r)
{
    printf("%-36s %15s %15s %15s\n", "temporaries are freed", "tile by tile", "at the end",
           "in queue order");
    row("time", r, get_ns, 1e6, " ms");
    row("the host waited for a queue", r, get_waits, 1, "");
    row("... inside the pool", r, get_pool_waits, 1, "");
    row("memory in use, highest", r, get_used, 1048576.0, " MiB");
    row("memory of the device, highest", r, get_reserved, 1048576.0, " MiB");
    row("temporaries allocated", r, get_allocations, 1, "");
    row("... that a queue had just freed", r, get_reuses, 1, "");
    row("events for frees", r, get_events, 1, "");
    row("waits of one queue for another's", r, get_inserted, 1, "");
}

/* ---- the command line --------------------------------------------------------------------- */

static const char usage[] =
    "usage: async_graph [--side PIXELS] [--tile PIXELS] [--queues N] [--rounds N]\n"
    "                   [--no-waits] [--out FILE.pgm]\n"
    "  the side is a multiple of the tile, the tile an even number of pixels\n";

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
    bool good = true;

    *o = (options){.side = 2048, .tile = 256, .queues = 4, .rounds = 3};
    for (int i = 1; i < argc && good; i++) {
        if (strcmp(argv[i], "--side") == 0)
            good = number(argv[++i], 16, 32768, &o->side);
        else if (strcmp(argv[i], "--tile") == 0)
            good = number(argv[++i], 16, 8192, &o->tile);
        else if (strcmp(argv[i], "--queues") == 0)
            good = number(argv[++i], 1, MAX_QUEUES, &o->queues);
        else if (strcmp(argv[i], "--rounds") == 0)
            good = number(argv[++i], 1, 1000, &o->rounds);
        else if (strcmp(argv[i], "--no-waits") == 0)
            o->no_waits = true;
        else if (strcmp(argv[i], "--out") == 0)
            good = (o->out = argv[++i]) != NULL;
        else
            good = false;
    }
    return good && o->side % o->tile == 0 && o->tile % 2 == 0;
}

/* 0 when all results are right. */
static int compare(job *j)
{
    const options *o             = j->o;
    result         results[WAYS] = {{.ns = 0}};

    if (with_queues(j, results) != USM_OK) {
        fprintf(stderr, "async_graph: %s\n", usm_last_error());
        return 1;
    }
    printf("%d tiles of %d x %d pixels on %d queues, the best of %d round%s\n\n",
           o->side / o->tile * (o->side / o->tile), o->tile, o->tile, o->queues, o->rounds,
           o->rounds == 1 ? "" : "s");
    print_table(results);
    puts("All results are those of plain C, bit by bit");
    if (o->out && !picture_write(o->out, j->out, o->side)) {
        perror(o->out);
        return 1;
    }
    return 0;
}

static bool make_pictures(job *j)
{
    size_t size = (size_t)j->o->side * (size_t)j->o->side * sizeof(float);

    j->expected = malloc(size);
    j->out      = malloc(size);
    return j->expected && j->out && picture_create(&j->p, j->o->side, HALO) &&
           picture_in_plain_c(&j->p, j->expected);
}

int main(int argc, char **argv)
{
    options o;
    job     j  = {.o = &o};
    int     rc = 1;

    if (!parse(argc, argv, &o)) {
        fputs(usage, stderr);
        return 2;
    }
    if (!make_pictures(&j))
        fputs("async_graph: no memory for the picture\n", stderr);
    else if (!kernels_create(&j.k))
        fprintf(stderr, "async_graph: %s\n", usm_last_error());
    else
        rc = compare(&j);
    kernels_destroy(&j.k);
    picture_destroy(&j.p);
    free(j.expected);
    free(j.out);
    return rc;
}
