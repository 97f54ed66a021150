/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The workloads of `usm-bench spill`, each over n chunks of 64-bit words.  Word j of chunk i is
 * (i * words + j) xor SALT, plus as many as were added to the chunk since:
 *
 *     W1  creates and fills every chunk in order
 *     R   two ordered passes that sum all words; the second is timed
 *     X   sums chunks at random
 *     W2  overwrites every chunk in order: the old content is dead (no_init)
 *     M   adds 1 to each word of chunks at random
 *     S   an ordered pass that adds 1 to each word
 *     T   new chunks: a matrix of them is filled, and written across the diagonal into another; the
 *         second is timed
 *
 * Every sum is compared with what was written, so a wrong byte ends the measurement; `check`
 * compares every word.  What is only needed for checking is computed before the clock starts. */
#include "spill_load.h"

#include "bench.h"

#include <usm/usm.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SALT   UINT64_C(0x9E3779B97F4A7C15)
#define SEED_X UINT64_C(88172645463325252)
#define SEED_M UINT64_C(1234567)

struct spill_load {
    spill_shape  shape;
    size_t       words;  /* of a chunk                                             */
    usm_buffer **buffer; /* of each chunk: the same n times where there is one      */
    usm_buffer  *one;    /* NULL: each has its own                                  */
    char        *plain;  /* in place of buffers; NULL: there are buffers            */
    uint64_t    *sum;    /* of each chunk, before anything was added                */
    uint64_t    *added;  /* to each word of the chunk                               */
    uint32_t    *order;  /* of accesses                                             */
    size_t       naccesses;
    bool         is_refused; /* an access failed: libusm has the story               */
};

/* ---- what is done to a chunk ------------------------------------------------------- */

static void fill_words(uint64_t *word, size_t words, uint64_t first)
{
    for (size_t j = 0; j < words; j++)
        word[j] = (first + j) ^ SALT;
}

static uint64_t sum_words(const uint64_t *word, size_t words)
{
    uint64_t sum = 0;

    for (size_t j = 0; j < words; j++)
        sum += word[j];
    return sum;
}

static void add_one(uint64_t *word, size_t words)
{
    for (size_t j = 0; j < words; j++)
        word[j]++;
}

static size_t count_wrong(const uint64_t *word, size_t words, uint64_t first, uint64_t added)
{
    size_t wrong = 0;

    for (size_t j = 0; j < words; j++)
        wrong += word[j] != ((first + j) ^ SALT) + added;
    return wrong;
}

static uint64_t sum_of(size_t words, uint64_t first)
{
    uint64_t sum = 0;

    for (size_t j = 0; j < words; j++)
        sum += (first + j) ^ SALT;
    return sum;
}

/* ---- the orders of accesses -------------------------------------------------------- */

static void order_in_turn(spill_load *l)
{
    l->naccesses = l->shape.n;
    for (size_t i = 0; i < l->shape.n; i++)
        l->order[i] = (uint32_t)i;
}

static void order_at_random(spill_load *l, uint64_t x, size_t accesses)
{
    l->naccesses = accesses > 0 && accesses < l->shape.n ? accesses : l->shape.n;
    for (size_t k = 0; k < l->naccesses; k++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        l->order[k] = (uint32_t)(x % l->shape.n);
    }
}

/* ---- accesses ---------------------------------------------------------------------- */

typedef bool step_fn(spill_load *l, size_t i);

static size_t offset_of(const spill_load *l, size_t i)
{
    return l->one || l->plain ? i * l->shape.chunk : 0;
}

static bool begin(spill_load *l, size_t i, usm_access_mode mode, usm_access *a)
{
    if (l->plain) {
        *a = (usm_access){.ptr = l->plain + offset_of(l, i)};
        return true;
    }
    l->is_refused =
        usm_access_begin(l->buffer[i], offset_of(l, i), l->shape.chunk, mode, a) != USM_OK;
    return !l->is_refused;
}

static void end(const spill_load *l, usm_access *a)
{
    if (!l->plain)
        usm_access_end(a);
}

static bool write_chunk(spill_load *l, size_t i)
{
    usm_access a;

    if (!begin(l, i, USM_WRITE_NO_INIT, &a))
        return false;
    fill_words(a.ptr, l->words, i * l->words);
    end(l, &a);
    l->added[i] = 0;
    return true;
}

static bool create_chunk(spill_load *l, size_t i)
{
    if (!l->buffer[i] && !l->plain)
        l->buffer[i] = usm_buffer_new(NULL, l->shape.chunk);
    l->is_refused = !l->buffer[i] && !l->plain;
    return !l->is_refused && write_chunk(l, i);
}

static bool read_chunk(spill_load *l, size_t i)
{
    usm_access a;
    uint64_t   sum;

    if (!begin(l, i, USM_READ, &a))
        return false;
    sum = sum_words(a.ptr, l->words);
    end(l, &a);
    return sum == l->sum[i] + l->added[i] * l->words;
}

static bool add_chunk(spill_load *l, size_t i)
{
    usm_access a;

    if (!begin(l, i, USM_READ_WRITE, &a))
        return false;
    add_one(a.ptr, l->words);
    end(l, &a);
    l->added[i]++;
    return true;
}

static bool check_chunk(spill_load *l, size_t i)
{
    usm_access a;
    size_t     wrong;

    if (!begin(l, i, USM_READ, &a))
        return false;
    wrong = count_wrong(a.ptr, l->words, i * l->words, l->added[i]);
    end(l, &a);
    return wrong == 0;
}

/* ---- a matrix ---------------------------------------------------------------------- */

#define SQUARE 16 /* words along a side: two of them fit into the processor's cache */

/* A chunk is a tile of rows of `side` words. */
static void transpose_words(uint64_t *to, const uint64_t *from, size_t side)
{
    for (size_t r0 = 0; r0 < side; r0 += SQUARE)
        for (size_t c0 = 0; c0 < side; c0 += SQUARE)
            for (size_t r = r0; r < r0 + SQUARE; r++)
                for (size_t c = c0; c < c0 + SQUARE; c++)
                    to[c * side + r] = from[r * side + c];
}

static bool transpose_chunk(spill_load *l, size_t from, size_t to, size_t side)
{
    usm_access a, b;

    if (!begin(l, from, USM_READ, &a))
        return false;
    if (!begin(l, to, USM_WRITE_NO_INIT, &b)) {
        end(l, &a);
        return false;
    }
    transpose_words(b.ptr, a.ptr, side);
    end(l, &a);
    end(l, &b);
    return true;
}

/* The sum of the words is what it was. */
static bool check_transposed(spill_load *l, size_t from, size_t to)
{
    usm_access a;
    bool       ok = begin(l, to, USM_READ, &a);

    if (ok) {
        ok = sum_words(a.ptr, l->words) == l->sum[from];
        end(l, &a);
    }
    return ok;
}

static size_t root_of(size_t n)
{
    size_t root = 0;

    while ((root + 1) * (root + 1) <= n)
        root++;
    return root;
}

/* Matrices of `tiles` by `tiles` chunks, one behind the other. */
static bool run_transpose(spill_load *l, spill_time *time)
{
    size_t   tiles = root_of(l->shape.n / 2), n = tiles * tiles, side = root_of(l->words);
    uint64_t start;
    bool     ok = side * side == l->words && side % SQUARE == 0;

    for (size_t i = 0; i < n && ok; i++)
        ok = create_chunk(l, i);
    start = bench_now_ns();
    for (size_t i = 0; i < n && ok; i++)
        ok = transpose_chunk(l, i % tiles * tiles + i / tiles, n + i, side);
    time->seconds = (double)(bench_now_ns() - start) * 1e-9;
    time->bytes   = 2 * n * l->shape.chunk;
    for (size_t i = 0; i < n && ok; i++)
        ok = check_transposed(l, i % tiles * tiles + i / tiles, n + i);
    return ok;
}

/* ---- single accesses --------------------------------------------------------------- */

#define TOUCHES 256

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double touch(const volatile char *at)
{
    uint64_t start = bench_now_ns();

    (void)*at;
    return (double)(bench_now_ns() - start) * 1e-3;
}

/* As a program that computes between accesses: its processor does not sleep. */
static void compute_for(uint64_t ns)
{
    uint64_t until = bench_now_ns() + ns;

    while (bench_now_ns() < until) {}
}

/* In order, and so slowly that readahead is there before. */
double spill_load_touch(const spill_load *l)
{
    size_t n = l->shape.n < TOUCHES ? l->shape.n : TOUCHES;
    double us[TOUCHES];

    if (!l->shape.is_managed || n == 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        us[i] = touch(l->plain + i * l->shape.chunk);
        compute_for(5000000);
    }
    qsort(us, n, sizeof *us, compare_doubles);
    return us[n / 2];
}

/* ---- a workload -------------------------------------------------------------------- */

static bool advise_all(spill_load *l, usm_buffer_advice advice)
{
    size_t buffers = l->one ? 1 : l->shape.n;

    for (size_t i = 0; i < buffers; i++)
        if (l->buffer[i] &&
            usm_buffer_advise(l->buffer[i], 0, usm_buffer_size(l->buffer[i]), advice) != USM_OK)
            return false;
    return true;
}

static bool announce_all(spill_load *l)
{
    usm_buffer_range *list = calloc(l->naccesses, sizeof *list);
    bool              ok;

    for (size_t k = 0; list && k < l->naccesses; k++)
        list[k] = (usm_buffer_range){l->buffer[l->order[k]], offset_of(l, l->order[k]),
                                     l->shape.chunk, USM_READ};
    ok = list && usm_announce(l->naccesses, list) == USM_OK;
    free(list);
    return ok;
}

static bool give_hint(spill_load *l)
{
    switch (l->shape.hint) {
    case SPILL_HINT_ANNOUNCE:
        return announce_all(l);
    case SPILL_HINT_SEQUENTIAL:
        return advise_all(l, USM_BUFFER_SEQUENTIAL);
    case SPILL_HINT_RANDOM:
        return advise_all(l, USM_BUFFER_RANDOM);
    case SPILL_HINT_NONE:
    default:
        return true;
    }
}

static bool pass(spill_load *l, step_fn *step, spill_time *time)
{
    uint64_t start = bench_now_ns();
    bool     ok    = true;

    for (size_t k = 0; k < l->naccesses && ok; k++)
        ok = step(l, l->order[k]);
    time->seconds = (double)(bench_now_ns() - start) * 1e-9;
    time->bytes   = l->naccesses * l->shape.chunk;
    return ok;
}

typedef enum order { IN_TURN, RANDOM_X, RANDOM_M } order;

static const struct workload {
    const char *name;
    step_fn    *step;
    order       order;
    unsigned    passes;
    bool        is_blind; /* it reads nothing: there is nothing to announce */
} workloads[] = {{"W1", create_chunk, IN_TURN, 1, true},   {"R", read_chunk, IN_TURN, 2, false},
                 {"X", read_chunk, RANDOM_X, 1, false},    {"W2", write_chunk, IN_TURN, 1, true},
                 {"M", add_chunk, RANDOM_M, 1, false},     {"S", add_chunk, IN_TURN, 1, false},
                 {"check", check_chunk, IN_TURN, 1, false}};

static bool run(spill_load *l, const struct workload *w, size_t accesses, spill_time *time)
{
    bool ok = true;

    if (w->order == IN_TURN)
        order_in_turn(l);
    else
        order_at_random(l, w->order == RANDOM_X ? SEED_X : SEED_M, accesses);
    for (unsigned i = 0; i < w->passes && ok; i++)
        ok = (w->is_blind || give_hint(l)) && pass(l, w->step, time);
    return ok;
}

bool spill_load_run(spill_load *l, const char *name, size_t accesses, spill_time *time,
                    const char **why)
{
    const struct workload *w       = NULL;
    bool                   is_turn = strcmp(name, "T") == 0;

    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++)
        if (strcmp(workloads[i].name, name) == 0)
            w = &workloads[i];
    *why = "there is no such workload";
    if (!w && !is_turn)
        return false;
    *why = "what was read is not what was written";
    if (w ? run(l, w, accesses, time) : run_transpose(l, time))
        return true;
    if (l->is_refused)
        *why = usm_last_error();
    return false;
}

/* ---- making and ending it ---------------------------------------------------------- */

spill_load *spill_load_new(const spill_shape *shape)
{
    spill_load *l = calloc(1, sizeof *l);

    if (!l)
        return NULL;
    l->shape  = *shape;
    l->words  = shape->chunk / sizeof(uint64_t);
    l->buffer = malloc(shape->n * sizeof(usm_buffer *));
    l->sum    = malloc(shape->n * sizeof *l->sum);
    l->added  = malloc(shape->n * sizeof *l->added);
    l->order  = malloc(shape->n * sizeof *l->order);
    if (!l->buffer || !l->sum || !l->added || !l->order) {
        l->shape.n = 0;
        spill_load_close(l);
        return NULL;
    }
    /* All of it is written now, so that it does not count as memory of the buffers. */
    for (size_t i = 0; i < shape->n; i++) {
        l->buffer[i] = NULL;
        l->sum[i]    = sum_of(l->words, i * l->words);
        l->added[i]  = 0;
        l->order[i]  = 0;
    }
    return l;
}

static char *map_file(const char *path, size_t size)
{
    int   fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    void *p  = MAP_FAILED;

    if (fd < 0)
        return NULL;
    unlink(path);
    if (ftruncate(fd, (off_t)size) == 0)
        p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

static bool begin_plain(spill_load *l, const char *path, size_t size, const char **why)
{
    if (l->shape.is_mapped)
        l->plain = path ? map_file(path, size) : NULL;
    else
        l->plain = l->shape.is_managed ? usm_alloc_managed(size) : malloc(size);
    *why = l->shape.is_managed  ? usm_last_error()
           : l->shape.is_mapped ? "a file cannot be mapped"
                                : "out of memory";
    return l->plain != NULL;
}

bool spill_load_begin(spill_load *l, const char *path, const char **why)
{
    const size_t size = l->shape.n * l->shape.chunk;

    if (l->shape.is_managed || l->shape.is_array || l->shape.is_mapped)
        return begin_plain(l, path, size, why);
    if (path && usm_buffer_open(NULL, path, 0, size, USM_READ, &l->one) != USM_OK)
        l->one = NULL;
    else if (!path && l->shape.is_one)
        l->one = usm_buffer_new(NULL, size);
    *why = usm_last_error();
    if (!l->one)
        return !path && !l->shape.is_one;
    for (size_t i = 0; i < l->shape.n; i++)
        l->buffer[i] = l->one;
    return true;
}

void spill_load_close(spill_load *l)
{
    if (!l)
        return;
    if (l->shape.is_managed)
        usm_free(l->plain);
    else if (l->shape.is_mapped && l->plain)
        munmap(l->plain, l->shape.n * l->shape.chunk);
    else
        free(l->plain);
    if (l->one)
        usm_buffer_destroy(l->one);
    for (size_t i = 0; !l->one && l->buffer && i < l->shape.n; i++)
        usm_buffer_destroy(l->buffer[i]);
    free(l->buffer);
    free(l->sum);
    free(l->added);
    free(l->order);
    free(l);
}

static bool write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);

        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

bool spill_load_fill_file(const char *path, const spill_shape *shape)
{
    size_t    words = shape->chunk / sizeof(uint64_t);
    uint64_t *chunk = malloc(shape->chunk);
    int       fd    = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool      ok    = chunk && fd >= 0;

    for (size_t i = 0; ok && i < shape->n; i++) {
        fill_words(chunk, words, i * words);
        ok = write_all(fd, (const char *)chunk, shape->chunk);
    }
    ok = ok && fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
    if (fd >= 0)
        close(fd);
    free(chunk);
    return ok;
}
