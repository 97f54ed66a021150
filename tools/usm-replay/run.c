/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Replays a log on a pool.  A first pass collects the statistics: live bytes, failed allocations
 * and when they failed.  The passes after it, each on a pool of its own, only measure the time.
 * The memory is not accessed.
 *
 * Time is the CPU time of the threads that call the pool: on a machine that is shared with others,
 * wall time says nothing.  With --threads each thread of the log is a thread here.  The log's order
 * is kept by passing the turn from one thread to the next; waiting for it costs no CPU time that is
 * counted. */
#include "base/inline/clock.h"
#include "base/text.h"
#include "heap/pool_setting.h"
#include "replay.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEAT_MAX  1000u
#define THREADS_MAX 256u /* if the log has more threads, they share these */

/* A pass over the log. */
typedef struct pass {
    const replay_log *log;
    usm_pool         *pool;
    void            **blocks; /* by number; NULL: not allocated */
    replay_result    *books;  /* NULL: only the time is measured */
    uint64_t          live;
} pass;

/* ---- the first pass: statistics ------------------------------------------------------------ */

static void note_failure(pass *p, const operation *op)
{
    replay_result *r     = p->books;
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    if (r->failed++ > 0 || usm_pool_get_stats(p->pool, &stats) != USM_OK)
        return;
    r->oom_event        = op->event;
    r->oom_size         = op->size ? op->size : 1;
    r->oom_live         = p->live;
    r->oom_reserved     = stats.reserved;
    r->oom_largest_free = stats.largest_free;
}

static void keep_books(pass *p, uint64_t *sizes)
{
    for (size_t i = 0; i < p->log->n; i++) {
        const operation *op = &p->log->operations[i];

        if (op->size != REPLAY_FREE) {
            p->blocks[op->block] = usm_pool_malloc(p->pool, op->size);
            p->books->allocations++;
            sizes[op->block] = p->blocks[op->block] ? op->size : 0;
            p->live += sizes[op->block];
            if (!p->blocks[op->block])
                note_failure(p, op);
            if (p->live > p->books->live_peak)
                p->books->live_peak = p->live;
        } else if (p->blocks[op->block]) {
            usm_pool_free(p->pool, p->blocks[op->block]);
            p->blocks[op->block] = NULL;
            p->live -= sizes[op->block];
        }
    }
}

/* ---- passes that take the time --------------------------------------------------------- */

/* Executes operations [from, to). */
static void replay(const pass *p, size_t from, size_t to)
{
    usm_pool *pool   = p->pool;
    void    **blocks = p->blocks;

    for (const operation *op = p->log->operations + from; op < p->log->operations + to; op++) {
        if (op->size != REPLAY_FREE) {
            blocks[op->block] = usm_pool_malloc(pool, op->size);
        } else if (blocks[op->block]) {
            usm_pool_free(pool, blocks[op->block]);
            blocks[op->block] = NULL;
        }
    }
}

/* Threads that take turns: the thread whose operation is next executes all its consecutive
 * operations. */
typedef struct turns {
    pass           *p;
    uint32_t        threads;
    pthread_mutex_t lock;
    pthread_cond_t *next;     /* by thread */
    size_t          at;       /* guarded by lock: the next operation */
    uint64_t        ns;       /* guarded by lock: CPU time of all */
    uint64_t        clock_ns; /* what reading the clock adds to a turn */
} turns;

typedef struct player {
    turns    *t;
    uint32_t  index;
    pthread_t thread;
} player;

static uint32_t player_of(const turns *t, size_t at)
{
    return t->p->log->operations[at].thread % t->threads;
}

/* The end of the thread's consecutive operations from `at` on. */
static size_t row_end(const turns *t, size_t at, uint32_t index)
{
    while (at < t->p->log->n && player_of(t, at) == index)
        at++;
    return at;
}

static void *play(void *arg)
{
    player *me = arg;
    turns  *t  = me->t;

    pthread_mutex_lock(&t->lock);
    while (t->at < t->p->log->n) {
        size_t   from = t->at, to = row_end(t, from, me->index);
        uint64_t start, took;

        if (to == from) {
            pthread_cond_wait(&t->next[me->index], &t->lock);
            continue;
        }
        pthread_mutex_unlock(&t->lock);
        start = usm_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        replay(t->p, from, to);
        took = usm_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
        pthread_mutex_lock(&t->lock);
        t->ns += took > t->clock_ns ? took - t->clock_ns : 0;
        t->at = to;
        if (to < t->p->log->n)
            pthread_cond_signal(&t->next[player_of(t, to)]);
    }
    for (uint32_t i = 0; i < t->threads; i++)
        pthread_cond_signal(&t->next[i]);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* The least of a few measurements: the time between two readings of the clock. */
static uint64_t clock_cost(void)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 1000; i++) {
        uint64_t start = usm_clock_ns(CLOCK_THREAD_CPUTIME_ID),
                 took  = usm_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;

        least = took < least ? took : least;
    }
    return least;
}

/* Returns the CPU time of all threads; 0: they could not be started. */
static uint64_t replay_threads(pass *p)
{
    turns    t       = {.p        = p,
                        .threads  = p->log->threads < THREADS_MAX ? p->log->threads : THREADS_MAX,
                        .lock     = PTHREAD_MUTEX_INITIALIZER,
                        .clock_ns = clock_cost()};
    player  *players = calloc(t.threads, sizeof *players);
    uint32_t started = 0;

    t.next = calloc(t.threads, sizeof *t.next);
    if (!players || !t.next)
        goto out;
    for (uint32_t i = 0; i < t.threads; i++)
        pthread_cond_init(&t.next[i], NULL);
    pthread_mutex_lock(&t.lock); /* no thread begins before all have started */
    while (started < t.threads) {
        players[started] = (player){.t = &t, .index = started};
        if (pthread_create(&players[started].thread, NULL, play, &players[started]) != 0)
            break;
        started++;
    }
    if (started < t.threads)
        t.at = p->log->n; /* so that no thread executes anything */
    pthread_mutex_unlock(&t.lock);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(players[i].thread, NULL);
    for (uint32_t i = 0; i < t.threads; i++)
        pthread_cond_destroy(&t.next[i]);
out:
    free(players);
    free(t.next);
    return t.ns;
}

static uint64_t replay_timed(pass *p, const replay_options *o)
{
    uint64_t start;

    if (o->threads && p->log->threads > 1)
        return replay_threads(p);
    start = usm_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    replay(p, 0, p->log->n);
    return usm_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
}

/* ---- pools ---------------------------------------------------------------------------------- */

/* Frees the blocks that the log leaves live. */
static void free_rest(pass *p)
{
    for (uint32_t k = 0; k < p->log->blocks; k++) {
        usm_pool_free(p->pool, p->blocks[k]);
        p->blocks[k] = NULL;
    }
}

static bool is_null_device(const replay_options *o)
{
    return strncmp(o->device, "null", 4) == 0;
}

/* Makes a pool as `text` says, in the grammar of USM_POOL.  False, with the reason in `why`. */
static bool make_pool(const char *text, const replay_options *o, usm_pool **pool, char *why,
                      size_t why_size)
{
    usm_pool_desc    desc = USM_POOL_DESC_INIT;
    usm__pool_choice choice;
    usm_queue       *q;

    if (!usm__pool_setting_parse(text, o->kind, &choice, why, why_size))
        return false;
    desc.name         = choice.name[0] ? choice.name : NULL;
    desc.area_size    = choice.area_size ? choice.area_size : o->area_size;
    desc.maximum_size = choice.maximum_size;
    desc.min_align    = choice.min_align;
    desc.retain       = choice.retain;
    desc.retain_ms    = choice.retain_ms;
    desc.thread_cache = choice.thread_cache;
    if (o->device_mem && !is_null_device(o) && !desc.maximum_size)
        desc.maximum_size = o->device_mem; /* another device has the memory that it has */
    q = usm_default_queue();
    if (q && usm_pool_create(usm_queue_get_context(q), usm_queue_get_device(q), o->kind, &desc,
                             pool) == USM_OK)
        return true;
    snprintf(why, why_size, "%s", usm_last_error());
    return false;
}

static int by_time(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Collects the statistics.  False: an error was recorded. */
static bool first_pass(pass *p, const replay_options *o, replay_result *r)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;
    uint64_t      *sizes = calloc(p->log->blocks + (size_t)1, sizeof *sizes);

    if (!sizes) {
        snprintf(r->error, sizeof r->error, "no memory for %u blocks", p->log->blocks);
        return false;
    }
    if (!make_pool(r->pool, o, &p->pool, r->error, sizeof r->error)) {
        free(sizes);
        return false;
    }
    p->books = r;
    keep_books(p, sizes);
    p->books = NULL;
    if (usm_pool_get_stats(p->pool, &stats) == USM_OK) {
        r->reserved_peak = stats.reserved_peak;
        r->driver_allocs = stats.driver_allocs;
        r->driver_frees  = stats.driver_frees;
    }
    free_rest(p);
    usm_pool_destroy(p->pool);
    free(sizes);
    return true;
}

static void timed_passes(pass *p, const replay_options *o, replay_result *r)
{
    uint64_t times[REPEAT_MAX];
    double   pairs = (double)(r->allocations ? r->allocations : 1);
    unsigned n     = 0, middle;

    while (n < o->repeat && n < REPEAT_MAX) {
        if (!make_pool(r->pool, o, &p->pool, r->error, sizeof r->error))
            return;
        times[n] = replay_timed(p, o);
        free_rest(p);
        usm_pool_destroy(p->pool);
        if (times[n++] == 0) {
            snprintf(r->error, sizeof r->error, "the log's %u threads cannot be started",
                     p->log->threads);
            return;
        }
    }
    qsort(times, n, sizeof *times, by_time);
    r->ns_pair        = (double)times[0] / pairs;
    middle            = n / 2;
    r->ns_pair_median = (double)times[middle] / pairs;
}

void replay_run(const replay_log *log, const char *pool, const replay_options *o,
                replay_result *result)
{
    pass p = {.log = log};

    *result  = (replay_result){.pool = pool};
    p.blocks = calloc(log->blocks + (size_t)1, sizeof *p.blocks);
    if (!p.blocks) {
        snprintf(result->error, sizeof result->error, "no memory for %u blocks", log->blocks);
        return;
    }
    if (first_pass(&p, o, result))
        timed_passes(&p, o, result);
    free(p.blocks);
}
