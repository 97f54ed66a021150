/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What buffers cost while everything fits into memory:
 *
 *     hit, hit-2, hit-shared   begin + end of an access to 8 KiB that are there: one thread, two
 * with a buffer each, two on one buffer hit-many                 one thread, 4096 buffers of 8 KiB
 * at random create                   a buffer of 4 KiB: created, written by the host, destroyed
 *     device                   4 KiB of the program's memory: filled by a command, written back
 *     wave-N, read-N, update-N passes over N rows of 1024 doubles, against plain arrays
 *     bodies-N                 attraction between all pairs of 4096 bodies, in blocks of N
 *
 * Passes are timed in CPU time of the thread, because others use the machine too; what waits for a
 * command in wall time.  Ours and theirs by turns. */
#include "spill_cost.h"

#include "bench.h"

#include <usm/usm.h>

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS  15
#define COLUMNS 1024
#define ROW     (COLUMNS * sizeof(double))
#define MANY    4096
#define BODIES  4096
#define SMALL   4096 /* bytes of a small buffer */

static double cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *value, size_t n)
{
    qsort(value, n, sizeof *value, compare_doubles);
    return value[n / 2];
}

/* ---- an access to what is there ---------------------------------------------------- */

static bool hit(usm_buffer *buffer, size_t n)
{
    usm_access a;

    for (size_t i = 0; i < n; i++) {
        if (usm_access_begin(buffer, 0, ROW, USM_READ, &a) != USM_OK)
            return false;
        usm_access_end(&a);
    }
    return true;
}

static bool hit_many(usm_buffer *const *buffer, size_t n)
{
    usm_access a;
    uint64_t   x = 1;

    for (size_t i = 0; i < n; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        if (usm_access_begin(buffer[(x >> 33) % MANY], 0, ROW, USM_READ, &a) != USM_OK)
            return false;
        usm_access_end(&a);
    }
    return true;
}

#define HITS 1000000

typedef struct hitter {
    usm_buffer        *buffer;
    pthread_barrier_t *start;
    double             ns; /* a hit; 0: it failed */
} hitter;

static void *hit_in_thread(void *arg)
{
    hitter *h = arg;
    double  start;

    if (h->start)
        pthread_barrier_wait(h->start);
    start = cpu_ns();
    h->ns = hit(h->buffer, HITS) ? (cpu_ns() - start) / HITS : 0;
    return NULL;
}

static double hit_in_two(usm_buffer *first, usm_buffer *second)
{
    pthread_barrier_t start;
    pthread_t         thread;
    hitter            one = {first, &start, 0}, two = {second, &start, 0};

    pthread_barrier_init(&start, NULL, 2);
    if (pthread_create(&thread, NULL, hit_in_thread, &two) == 0) {
        hit_in_thread(&one);
        pthread_join(thread, NULL);
    }
    pthread_barrier_destroy(&start);
    return one.ns > 0 && two.ns > 0 ? (one.ns + two.ns) / 2 : 0;
}

/* A buffer with a block of its own, in memory. */
static usm_buffer *resident_buffer(size_t size)
{
    usm_buffer *buffer = usm_buffer_new(NULL, size);
    usm_access  a;

    if (buffer && usm_access_begin(buffer, 0, size, USM_WRITE_NO_INIT, &a) == USM_OK) {
        memset(a.ptr, 1, size);
        usm_access_end(&a);
        return buffer;
    }
    usm_buffer_destroy(buffer);
    return NULL;
}

static double one_hit_round(const char *name, usm_buffer *first, usm_buffer *second)
{
    hitter alone = {first, NULL, 0};

    if (strcmp(name, "hit-2") == 0)
        return hit_in_two(first, second);
    if (strcmp(name, "hit-shared") == 0)
        return hit_in_two(first, first);
    hit_in_thread(&alone);
    return alone.ns;
}

static bool measure_hit(const char *name, spill_cost *cost)
{
    usm_buffer *first  = resident_buffer((size_t)1 << 20),
               *second = resident_buffer((size_t)1 << 20);
    double ns[ROUNDS];
    bool   ok = first && second && one_hit_round(name, first, second) > 0;

    for (size_t i = 0; ok && i < ROUNDS; i++) {
        ns[i] = one_hit_round(name, first, second);
        ok    = ns[i] > 0;
    }
    cost->ours = ok ? median(ns, ROUNDS) : 0;
    usm_buffer_destroy(first);
    usm_buffer_destroy(second);
    return ok;
}

static bool measure_hit_many(const char *name, spill_cost *cost)
{
    static usm_buffer *buffer[MANY];
    double             ns[ROUNDS];
    bool               ok = true;

    (void)name;
    for (size_t i = 0; ok && i < MANY; i++) {
        buffer[i] = resident_buffer(ROW);
        ok        = buffer[i] != NULL;
    }
    for (size_t i = 0; ok && i < ROUNDS; i++) {
        double start = cpu_ns();

        ok    = hit_many(buffer, HITS);
        ns[i] = (cpu_ns() - start) / HITS;
    }
    cost->ours = ok ? median(ns, ROUNDS) : 0;
    for (size_t i = 0; i < MANY; i++)
        usm_buffer_destroy(buffer[i]);
    return ok;
}

/* ---- small buffers, whole lives ---------------------------------------------------- */

static bool our_create(void *self, size_t n)
{
    usm_access a;

    (void)self;
    for (size_t i = 0; i < n; i++) {
        usm_buffer *buffer = usm_buffer_new(NULL, SMALL);

        if (!buffer || usm_access_begin(buffer, 0, SMALL, USM_WRITE_NO_INIT, &a) != USM_OK) {
            usm_buffer_destroy(buffer);
            return false;
        }
        *(volatile char *)a.ptr = 1;
        usm_access_end(&a);
        usm_buffer_destroy(buffer);
    }
    return true;
}

static bool fill_and_write_back(usm_queue *q, char *data)
{
    usm_buffer_desc desc = USM_BUFFER_DESC_INIT;
    usm_buffer     *buffer;
    usm_accessor    all;
    bool            ok;

    desc.size      = SMALL;
    desc.host_data = data;
    if (usm_buffer_create(NULL, &desc, &buffer) != USM_OK)
        return false;
    all = (usm_accessor){buffer, 0, SMALL, USM_WRITE_NO_INIT};
    ok  = usm_buffer_fill(q, &all, "\7", 1, 0, NULL, NULL) == USM_OK;
    usm_buffer_destroy(buffer);
    return ok && data[SMALL - 1] == 7;
}

static bool our_device(void *self, size_t n)
{
    usm_queue *q = usm_default_queue();
    char       data[SMALL];
    bool       ok = q != NULL;

    (void)self;
    for (size_t i = 0; ok && i < n; i++) {
        memset(data, 0, sizeof data);
        ok = fill_and_write_back(q, data);
    }
    return ok;
}

static bool time_lives(bool (*lives)(void *self, size_t n), void *self, size_t n, double *ns)
{
    double took[ROUNDS];

    if (!lives(self, n))
        return false;
    for (size_t i = 0; i < ROUNDS; i++) {
        uint64_t start = bench_now_ns();

        if (!lives(self, n))
            return false;
        took[i] = (double)(bench_now_ns() - start) / (double)n;
    }
    *ns = median(took, ROUNDS);
    return true;
}

static bool measure_create(const char *name, spill_cost *cost)
{
    (void)name;
    return time_lives(our_create, NULL, 20000, &cost->ours);
}

static bool measure_device(const char *name, spill_cost *cost)
{
    (void)name;
    return time_lives(our_device, NULL, 1000, &cost->ours);
}

bool spill_cost_of_plugin(const bench_buffers *buffers, const char *name, spill_cost *cost,
                          const char **why)
{
    bool is_device = strcmp(name, "device") == 0;

    *cost = (spill_cost){0, 0};
    *why  = "the plugin failed";
    return time_lives(is_device ? buffers->device : buffers->create, buffers->self,
                      is_device ? 1000 : 20000, &cost->ours);
}

/* ---- passes over rows -------------------------------------------------------------- */

/* Not inlined: both sides run the same code. */
#define ONCE __attribute__((noinline))

typedef void row_fn(double *row, size_t i);

static double sink;

ONCE static void wave_row(double *row, size_t i)
{
    for (size_t j = 0; j < COLUMNS; j++)
        row[j] = cos(0.03 * (double)i + 0.017 * (double)j);
}

ONCE static void read_row(double *row, size_t i)
{
    double sum[4] = {0};

    (void)i;
    for (size_t j = 0; j < COLUMNS; j += 4)
        for (size_t k = 0; k < 4; k++)
            sum[k] += row[j + k];
    sink += sum[0] + sum[1] + sum[2] + sum[3];
}

ONCE static void update_row(double *row, size_t i)
{
    (void)i;
    for (size_t j = 0; j < COLUMNS; j++)
        row[j] = row[j] * 0.5 + 1;
}

typedef struct rows {
    size_t          n, passes;
    row_fn         *work;
    usm_access_mode mode;
    double        **plain;
    usm_buffer    **buffer;
} rows;

static bool pass_over_buffers(const rows *r)
{
    usm_access a;

    for (size_t p = 0; p < r->passes; p++)
        for (size_t i = 0; i < r->n; i++) {
            if (usm_access_begin(r->buffer[i], 0, ROW, r->mode, &a) != USM_OK)
                return false;
            r->work(a.ptr, i);
            usm_access_end(&a);
        }
    return true;
}

static bool pass_over_arrays(const rows *r)
{
    for (size_t p = 0; p < r->passes; p++)
        for (size_t i = 0; i < r->n; i++)
            r->work(r->plain[i], i);
    return true;
}

static bool make_rows(rows *r)
{
    r->plain  = calloc(r->n, sizeof *r->plain);
    r->buffer = calloc(r->n, sizeof(usm_buffer *));
    if (!r->plain || !r->buffer)
        return false;
    for (size_t i = 0; i < r->n; i++) {
        r->plain[i]  = malloc(ROW);
        r->buffer[i] = resident_buffer(ROW);
        if (!r->plain[i] || !r->buffer[i])
            return false;
        wave_row(r->plain[i], i);
    }
    return true;
}

static void free_rows(rows *r)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->plain)
            free(r->plain[i]);
        if (r->buffer)
            usm_buffer_destroy(r->buffer[i]);
    }
    free(r->plain);
    free(r->buffer);
}

/* Rows by turns, the one that begins alternating; ns a row. */
static bool time_rows(const rows *r, spill_cost *cost)
{
    double ours[ROUNDS], theirs[ROUNDS], start;
    double per = 1.0 / (double)(r->n * r->passes);

    if (!pass_over_buffers(r) || !pass_over_arrays(r))
        return false;
    for (size_t i = 0; i < ROUNDS; i++)
        for (size_t turn = 0; turn < 2; turn++) {
            bool is_ours = (i + turn) % 2 == 0;

            start = cpu_ns();
            if (!(is_ours ? pass_over_buffers(r) : pass_over_arrays(r)))
                return false;
            (is_ours ? ours : theirs)[i] = (cpu_ns() - start) * per;
        }
    *cost = (spill_cost){median(ours, ROUNDS), median(theirs, ROUNDS)};
    return true;
}

static bool measure_rows(const char *name, spill_cost *cost)
{
    const char *dash = strchr(name, '-');
    rows        r    = {.n = dash ? strtoul(dash + 1, NULL, 10) : 0};
    bool        ok;

    r.work   = name[0] == 'w' ? wave_row : name[0] == 'r' ? read_row : update_row;
    r.mode   = name[0] == 'w' ? USM_WRITE_NO_INIT : name[0] == 'r' ? USM_READ : USM_READ_WRITE;
    r.passes = r.n == 0 ? 0 : name[0] == 'w' ? 1 + 512 / r.n : 1 + 16384 / r.n;
    ok       = r.n > 0 && make_rows(&r) && time_rows(&r, cost);
    free_rows(&r);
    return ok;
}

/* ---- bodies in blocks -------------------------------------------------------------- */

typedef struct body {
    double x, y, z, mass;
} body;

typedef struct bodies {
    size_t       block, nblocks;
    body        *place, *pull; /* plain: [BODIES]                    */
    usm_buffer **place_of, **pull_of;
} bodies;

ONCE static void attract(body *pull, const body *here, const body *there, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            double dx = there[j].x - here[i].x, dy = there[j].y - here[i].y,
                   dz     = there[j].z - here[i].z;
            double square = dx * dx + dy * dy + dz * dz + 0.01;
            double f      = there[j].mass / (square * sqrt(square));

            pull[i].x += f * dx;
            pull[i].y += f * dy;
            pull[i].z += f * dz;
        }
}

static bool attract_buffers(const bodies *b, size_t i, size_t j)
{
    size_t     size = b->block * sizeof(body);
    usm_access here, there, pull;
    bool       ok = false;

    if (usm_access_begin(b->place_of[i], 0, size, USM_READ, &here) != USM_OK)
        return false;
    if (usm_access_begin(b->place_of[j], 0, size, USM_READ, &there) != USM_OK)
        goto err_end_here;
    if (usm_access_begin(b->pull_of[i], 0, size, USM_READ_WRITE, &pull) != USM_OK)
        goto err_end_there;
    attract(pull.ptr, here.ptr, there.ptr, b->block);
    usm_access_end(&pull);
    ok = true;
err_end_there:
    usm_access_end(&there);
err_end_here:
    usm_access_end(&here);
    return ok;
}

/* The first rows of blocks: as much work for any size of block. */
static bool attract_all(const bodies *b, bool is_ours)
{
    size_t rows_of_blocks = b->nblocks / 8 ? b->nblocks / 8 : 1;

    for (size_t i = 0; i < rows_of_blocks; i++)
        for (size_t j = 0; j < b->nblocks; j++) {
            size_t at = i * b->block;

            if (!is_ours)
                attract(b->pull + at, b->place + at, b->place + j * b->block, b->block);
            else if (!attract_buffers(b, i, j))
                return false;
        }
    return true;
}

static bool make_bodies(bodies *b)
{
    size_t size = b->block * sizeof(body);

    b->place    = malloc(BODIES * sizeof(body));
    b->pull     = calloc(BODIES, sizeof(body));
    b->place_of = calloc(b->nblocks, sizeof(usm_buffer *));
    b->pull_of  = calloc(b->nblocks, sizeof(usm_buffer *));
    if (!b->place || !b->pull || !b->place_of || !b->pull_of)
        return false;
    for (size_t i = 0; i < BODIES; i++)
        b->place[i] = (body){(double)(i & 15), (double)(i >> 4 & 15), (double)(i >> 8), 1.0};
    for (size_t k = 0; k < b->nblocks; k++) {
        usm_access a;

        b->place_of[k] = resident_buffer(size);
        b->pull_of[k]  = resident_buffer(size);
        if (!b->place_of[k] || !b->pull_of[k] ||
            usm_access_begin(b->place_of[k], 0, size, USM_WRITE, &a) != USM_OK)
            return false;
        memcpy(a.ptr, b->place + k * b->block, size);
        usm_access_end(&a);
        if (usm_access_begin(b->pull_of[k], 0, size, USM_WRITE, &a) != USM_OK)
            return false;
        memset(a.ptr, 0, size);
        usm_access_end(&a);
    }
    return true;
}

static void free_bodies(bodies *b)
{
    for (size_t k = 0; k < b->nblocks; k++) {
        if (b->place_of)
            usm_buffer_destroy(b->place_of[k]);
        if (b->pull_of)
            usm_buffer_destroy(b->pull_of[k]);
    }
    free(b->place);
    free(b->pull);
    free(b->place_of);
    free(b->pull_of);
}

static bool time_bodies(const bodies *b, spill_cost *cost)
{
    double ours[ROUNDS], theirs[ROUNDS], start;

    if (!attract_all(b, true) || !attract_all(b, false))
        return false;
    for (size_t i = 0; i < ROUNDS; i++)
        for (size_t turn = 0; turn < 2; turn++) {
            bool is_ours = (i + turn) % 2 == 0;

            start = cpu_ns();
            if (!attract_all(b, is_ours))
                return false;
            (is_ours ? ours : theirs)[i] = cpu_ns() - start;
        }
    *cost = (spill_cost){median(ours, ROUNDS), median(theirs, ROUNDS)};
    return true;
}

static bool measure_bodies(const char *name, spill_cost *cost)
{
    bodies b = {.block = strtoul(name + strlen("bodies-"), NULL, 10)};
    bool   ok;

    if (b.block == 0 || b.block > BODIES)
        return false;
    b.nblocks = BODIES / b.block;
    ok        = make_bodies(&b) && time_bodies(&b, cost);
    free_bodies(&b);
    return ok;
}

/* ---- which ------------------------------------------------------------------------- */

bool spill_cost_measure(const char *name, spill_cost *cost, const char **why)
{
    static const struct {
        const char *prefix;
        bool (*measure)(const char *name, spill_cost *cost);
    } costs[] = {{"hit-many", measure_hit_many}, {"hit", measure_hit},
                 {"create", measure_create},     {"device", measure_device},
                 {"wave-", measure_rows},        {"read-", measure_rows},
                 {"update-", measure_rows},      {"bodies-", measure_bodies}};

    *cost = (spill_cost){0, 0};
    *why  = "there is no such cost";
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        if (strncmp(name, costs[i].prefix, strlen(costs[i].prefix)) != 0)
            continue;
        if (costs[i].measure(name, cost))
            return true;
        *why = usm_last_error();
        return false;
    }
    return false;
}
