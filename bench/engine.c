/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs a workload in a number of threads, and measures the CPU time of each.
 *
 * One repetition: every thread takes its blocks (not measured), warms up, waits for the others,
 * does its work on the clock CLOCK_THREAD_CPUTIME_ID, and gives everything back (not measured).
 * With one thread the caller's is used, so that a malloc that treats programs of one thread better
 * may. Workloads whose threads end during the work (larson, mstress) start new ones each round and
 * count what each used between its start and its end; producer -> consumer counts the time in the
 * allocator alone, not that in the queue between the two.  Called by worker.c. */
#include "workload.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS_MAX   16u
#define QUEUE_BATCHES 100u /* as xmalloc-test's */
#define LARSON_ROUNDS 100u /* operations of a thread's life: so many times its blocks */
#define MSTRESS_WARM  1u   /* rounds that are not counted */

typedef struct task {
    bench_engine *engine;
    bench_lane   *lane;
    unsigned      index;
    size_t        n;
    double        cpu_ns, began, ended; /* the last two on CLOCK_MONOTONIC */
} task;

/* Batches on their way from the producer to the consumer: buffers are used in turn. */
typedef struct conveyor {
    pthread_mutex_t lock;
    pthread_cond_t  moved;
    size_t          in, out; /* batches so far; in - out <= QUEUE_BATCHES */
    bool            broken;
    void          **buffer;
} conveyor;

struct bench_engine {
    const bench_workload  *workload;
    const bench_loops     *loops;
    const bench_allocator *allocator; /* for queries and statistics */
    unsigned               threads;
    bool                   pin;
    bool                   is_even; /* threads of mstress do equal work */
    bench_lane             lane[THREADS_MAX];
    bench_op              *ops[THREADS_MAX];
    bench_trace            trace;
    pthread_barrier_t      start, asleep;             /* asleep: of all threads and the caller */
    conveyor               conveyor[THREADS_MAX / 2]; /* of threads 2 i and 2 i + 1            */
    double                 clock_ns;                  /* what two looks at the CPU clock take  */
    _Atomic(void *)        shared[BENCH_TRANSFERS];
};

/* ------------------------------------------------------------------ clocks and threads */

static double clock_of(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double cpu_clock(void)
{
    return clock_of(CLOCK_THREAD_CPUTIME_ID);
}

static double clock_cost(void)
{
    double least = 1e9;

    for (int i = 0; i < 1000; i++) {
        double a = cpu_clock(), b = cpu_clock();

        if (b - a < least)
            least = b - a;
    }
    return least;
}

static void pin_to(unsigned index)
{
    cpu_set_t allowed, one;
    unsigned  seen = 0;

    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) == 0)
        return;
    index %= (unsigned)CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && seen++ == index) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            pthread_setaffinity_np(pthread_self(), sizeof one, &one);
            return;
        }
}

static void start_tasks(bench_engine *e, task *tasks, void *(*body)(void *), pthread_t *thread)
{
    unsigned started = 0;

    while (started < e->threads &&
           pthread_create(&thread[started], NULL, body, &tasks[started]) == 0)
        started++;
    if (started < e->threads) { /* those that run wait for the rest for ever */
        fprintf(stderr, "usm-bench: no thread can be started\n");
        exit(1); /* NOLINT(concurrency-mt-unsafe): the others wait */
    }
}

static void join_tasks(const bench_engine *e, const pthread_t *thread)
{
    for (unsigned i = 0; i < e->threads; i++)
        pthread_join(thread[i], NULL);
}

/* Every task in a thread of its own, or here when there is one and `here`. */
static void run_tasks(bench_engine *e, task *tasks, void *(*body)(void *), bool here)
{
    pthread_t thread[THREADS_MAX];

    if (here && e->threads == 1) {
        body(&tasks[0]);
        return;
    }
    start_tasks(e, tasks, body, thread);
    join_tasks(e, thread);
}

/* ------------------------------------------------------------------ the shapes */

static const size_t mix_sizes[] = {16, 32, 64}, mix_batches[] = {25, 100, 400, 1600};

static void batch_mix(const bench_loops *loops, bench_lane *lane)
{
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 4; j++) {
            lane->size  = mix_sizes[i];
            lane->batch = mix_batches[j];
            loops->batches(lane, 1600 / mix_batches[j]);
        }
}

static void call_stats(const bench_allocator *a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a->stats(a->self);
}

static void work(bench_engine *e, bench_lane *lane, size_t n)
{
    const bench_loops *loops = e->loops;

    switch (e->workload->shape) {
    case BENCH_PAIRS:
        loops->pairs(lane, n);
        break;
    case BENCH_BATCHES:
        loops->batches(lane, n);
        break;
    case BENCH_BATCH_MIX:
        for (size_t i = 0; i < n; i++)
            batch_mix(loops, lane);
        break;
    case BENCH_LARSON:
    case BENCH_REPLACE:
        loops->replace(lane, n);
        break;
    case BENCH_TOGGLE:
        loops->toggle(lane, n);
        break;
    case BENCH_HAND_ON:
        loops->hand_on(lane, n);
        break;
    case BENCH_MSTRESS:
        loops->mstress(lane, n);
        break;
    case BENCH_TRACE:
        loops->replay(lane, n);
        break;
    case BENCH_QUERY:
        loops->queries(lane, n);
        break;
    case BENCH_STATS:
        call_stats(e->allocator, n);
        break;
    case BENCH_XMALLOC:
        break; /* has threads of two sorts */
    }
}

/* mimalloc-bench's mstress gives some threads more to do than others. */
static size_t weight_of(const bench_engine *e, unsigned index)
{
    return e->is_even ? 1 : index % 8 + 1;
}

/* Pairs in one unit of work. */
static double pairs_of_unit(const bench_engine *e, unsigned index)
{
    const bench_workload *w = e->workload;

    switch (w->shape) {
    case BENCH_BATCHES:
        return (double)w->slots;
    case BENCH_BATCH_MIX:
        return 12 * 1600;
    case BENCH_LARSON:
        return LARSON_ROUNDS * (double)w->slots;
    case BENCH_TOGGLE:
        return 0.5;
    case BENCH_MSTRESS:
        return 1.5 * (double)(w->slots * weight_of(e, index));
    case BENCH_TRACE:
        return (double)e->trace.allocs;
    case BENCH_XMALLOC:
        return index % 2 == 0 ? (double)w->slots : 0; /* the other end frees them */
    case BENCH_PAIRS:
    case BENCH_REPLACE:
    case BENCH_HAND_ON:
    case BENCH_QUERY:
    case BENCH_STATS:
        break;
    }
    return 1;
}

static bool is_filled_first(bench_shape shape)
{
    return shape == BENCH_REPLACE || shape == BENCH_TOGGLE || shape == BENCH_HAND_ON ||
           shape == BENCH_QUERY || shape == BENCH_LARSON;
}

static void fill(bench_engine *e, bench_lane *lane)
{
    size_t n = e->workload->slots;

    if (is_filled_first(e->workload->shape))
        e->loops->fill(lane, e->workload->shape == BENCH_TOGGLE ? n / 2 : n);
}

static void measured(task *t, void (*work_of)(bench_engine *, bench_lane *, size_t))
{
    double cpu;

    t->began = clock_of(CLOCK_MONOTONIC);
    cpu      = cpu_clock();
    work_of(t->engine, t->lane, t->n);
    t->cpu_ns = cpu_clock() - cpu;
    t->ended  = clock_of(CLOCK_MONOTONIC);
}

static void warm_up(bench_engine *e, bench_lane *lane, size_t n)
{
    bool rounds = e->workload->shape == BENCH_TRACE || e->workload->shape == BENCH_BATCH_MIX;

    work(e, lane, rounds ? n / 8 : n / 8 + 1);
}

static void *steady_main(void *arg)
{
    task         *t = arg;
    bench_engine *e = t->engine;

    if (e->pin)
        pin_to(t->index);
    fill(e, t->lane);
    if (!t->lane->failed)
        warm_up(e, t->lane, t->n);
    pthread_barrier_wait(&e->start);
    if (!t->lane->failed)
        measured(t, work);
    pthread_barrier_wait(&e->start); /* nobody frees while others are on the clock */
    e->loops->drain(t->lane,
                    e->workload->shape == BENCH_TRACE ? e->trace.nids : e->workload->slots);
    return NULL;
}

/* Works, gives everything back, and sleeps while the caller looks. */
static void *idle_main(void *arg)
{
    task *t = arg;

    steady_main(t);
    pthread_barrier_wait(&t->engine->asleep);
    pthread_barrier_wait(&t->engine->asleep);
    return NULL;
}

/* One life of a thread of larson or mstress. */
static void *life_main(void *arg)
{
    task *t = arg;

    if (t->engine->pin)
        pin_to(t->index);
    measured(t, work);
    return NULL;
}

/* ------------------------------------------------------------------ producer -> consumer */

static void **batch_at(const bench_engine *e, const conveyor *c, size_t i)
{
    return c->buffer + (i % QUEUE_BATCHES) * e->workload->slots;
}

/* Waits until batch i may be written (produce) or read; false when the other end gave up. */
static bool conveyor_wait(conveyor *c, size_t i, bool produce)
{
    bool ok;

    pthread_mutex_lock(&c->lock);
    while (!c->broken && (produce ? i - c->out >= QUEUE_BATCHES : i >= c->in))
        pthread_cond_wait(&c->moved, &c->lock);
    ok = !c->broken;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

static void conveyor_move(conveyor *c, bool produce, bool broken)
{
    pthread_mutex_lock(&c->lock);
    *(produce ? &c->in : &c->out) += 1;
    c->broken = c->broken || broken;
    pthread_cond_signal(&c->moved);
    pthread_mutex_unlock(&c->lock);
}

static void convey(task *t, bool produce)
{
    bench_engine *e     = t->engine;
    conveyor     *c     = &e->conveyor[t->index / 2];
    bench_lane    lane  = *t->lane;
    size_t        batch = e->workload->slots;

    for (size_t i = 0; i < t->n && !lane.failed; i++) {
        double cpu;

        if (!conveyor_wait(c, i, produce))
            break;
        lane.slots = batch_at(e, c, i);
        cpu        = cpu_clock();
        if (produce)
            e->loops->fill(&lane, batch);
        else
            e->loops->drain(&lane, batch);
        t->cpu_ns += cpu_clock() - cpu - e->clock_ns;
        conveyor_move(c, produce, lane.failed);
    }
    t->lane->failed = lane.failed;
}

static void *convey_main(void *arg)
{
    task *t = arg;

    if (t->engine->pin)
        pin_to(t->index);
    t->began = clock_of(CLOCK_MONOTONIC);
    convey(t, t->index % 2 == 0);
    t->ended = clock_of(CLOCK_MONOTONIC);
    return NULL;
}

/* ------------------------------------------------------------------ repetitions */

static void add_up(const bench_engine *e, const task *tasks, bench_result *r)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): there is a thread at least */
    double began = tasks[0].began, ended = tasks[0].ended;

    for (unsigned i = 0; i < e->threads; i++) {
        r->cpu_ns += tasks[i].cpu_ns;
        r->pairs += (double)tasks[i].n * pairs_of_unit(e, i);
        began = tasks[i].began < began ? tasks[i].began : began;
        ended = tasks[i].ended > ended ? tasks[i].ended : ended;
    }
    r->wall_ns += ended - began;
}

static void drain_shared(bench_engine *e, unsigned one_in)
{
    bench_lane one = e->lane[0];
    void      *p;

    one.slots = &p;
    for (size_t i = 0; i < BENCH_TRANSFERS; i += one_in)
        if ((p = atomic_exchange(&e->shared[i], NULL)) != NULL)
            e->loops->drain(&one, 1);
}

/* larson: after each life the arrays go to the next thread; `n` lives, at least two. */
static void run_larson(bench_engine *e, size_t n, bench_result *result)
{
    task tasks[THREADS_MAX];

    for (unsigned i = 0; i < e->threads; i++)
        fill(e, &e->lane[i]);
    for (size_t round = 0; round < n || round < 2; round++) {
        for (unsigned i = 0; i < e->threads; i++)
            tasks[i] = (task){.engine = e,
                              .lane   = &e->lane[(i + round) % e->threads],
                              .index  = i,
                              .n      = LARSON_ROUNDS * e->workload->slots};
        run_tasks(e, tasks, life_main, false);
        for (unsigned i = 0; i < e->threads; i++)
            tasks[i].n = 1;
        add_up(e, tasks, result);
    }
    for (unsigned i = 0; i < e->threads; i++)
        e->loops->drain(&e->lane[i], e->workload->slots);
}

static void run_mstress(bench_engine *e, size_t n, bench_result *result)
{
    task tasks[THREADS_MAX];

    for (size_t round = 0; round < n + MSTRESS_WARM; round++) {
        for (unsigned i = 0; i < e->threads; i++)
            tasks[i] = (task){.engine = e,
                              .lane   = &e->lane[i],
                              .index  = i,
                              .n      = e->workload->slots * weight_of(e, i)};
        run_tasks(e, tasks, life_main, false);
        drain_shared(e, 2); /* half of them survive */
        for (unsigned i = 0; i < e->threads; i++)
            tasks[i].n = 1;
        if (round >= MSTRESS_WARM)
            add_up(e, tasks, result);
    }
}

static void run_others(bench_engine *e, size_t n, bench_result *result)
{
    task tasks[THREADS_MAX];
    bool conveys = e->workload->shape == BENCH_XMALLOC;

    for (unsigned i = 0; i < e->threads; i++) {
        tasks[i]              = (task){.engine = e, .lane = &e->lane[i], .index = i, .n = n};
        e->conveyor[i / 2].in = e->conveyor[i / 2].out = 0;
    }
    run_tasks(e, tasks, conveys ? convey_main : steady_main, true);
    add_up(e, tasks, result);
}

static bool is_whole(const bench_engine *e)
{
    for (unsigned i = 0; i < e->threads; i++)
        if (e->lane[i].failed)
            return false;
    return true;
}

bool bench_engine_idle(bench_engine *e, size_t n, void (*look)(void *), void *arg)
{
    task      tasks[THREADS_MAX];
    pthread_t thread[THREADS_MAX];

    for (unsigned i = 0; i < e->threads; i++)
        tasks[i] = (task){.engine = e, .lane = &e->lane[i], .index = i, .n = n};
    start_tasks(e, tasks, idle_main, thread);
    pthread_barrier_wait(&e->asleep);
    drain_shared(e, 1);
    look(arg);
    pthread_barrier_wait(&e->asleep);
    join_tasks(e, thread);
    return is_whole(e);
}

bool bench_engine_run(bench_engine *e, size_t n, bench_result *result)
{
    *result = (bench_result){0};
    if (e->workload->shape == BENCH_LARSON)
        run_larson(e, n, result);
    else if (e->workload->shape == BENCH_MSTRESS)
        run_mstress(e, n, result);
    else
        run_others(e, n, result);
    drain_shared(e, 1);
    return is_whole(e);
}

size_t bench_engine_calibrate(bench_engine *e, double target_ns)
{
    for (size_t n = 1;; n *= 4) {
        bench_result r;
        double       each;

        if (!bench_engine_run(e, n, &r))
            return 0;
        each = r.cpu_ns / e->threads;
        if (each * 8 >= target_ns || n > (size_t)1 << 30) {
            double scaled = (double)n * target_ns / (each > 1 ? each : 1);

            return scaled < 1 ? 1 : (size_t)(scaled + 0.5);
        }
    }
}

/* ------------------------------------------------------------------ life of the engine */

static size_t slots_of_lane(const bench_engine *e, unsigned index)
{
    if (e->workload->shape == BENCH_TRACE)
        return e->trace.nids;
    if (e->workload->shape == BENCH_MSTRESS)
        return 2 * e->workload->slots * (index % 8 + 1);
    return e->workload->slots;
}

static bool prepare_conveyors(bench_engine *e)
{
    size_t pointers = QUEUE_BATCHES * e->workload->slots;

    if (e->threads % 2 != 0)
        return false;
    for (unsigned i = 0; i < e->threads / 2; i++)
        if (!(e->conveyor[i].buffer = calloc(pointers, sizeof(void *))))
            return false;
    return true;
}

static bool prepare_lane(bench_engine *e, unsigned index, uint64_t seed)
{
    const bench_workload *w    = e->workload;
    bench_lane           *lane = &e->lane[index];

    *lane       = (bench_lane){.shared = e->shared,
                               .seed   = seed + index,
                               .size   = w->most,
                               .batch  = w->slots,
                               .scale  = w->scale ? w->scale : 1,
                               .trace  = &e->trace};
    lane->slots = calloc(slots_of_lane(e, index), sizeof *lane->slots);
    if (is_filled_first(w->shape))
        lane->ops = e->ops[index] = bench_sequence(w, seed * 1000 + index);
    return lane->slots && (lane->ops || !is_filled_first(w->shape));
}

static bool prepare(bench_engine *e, uint64_t seed)
{
    const bench_workload *w = e->workload;

    if (w->make && !w->make(&e->trace, seed))
        return false;
    if (w->shape == BENCH_XMALLOC && !prepare_conveyors(e))
        return false;
    for (unsigned i = 0; i < e->threads; i++)
        if (!prepare_lane(e, i, seed))
            return false;
    return true;
}

bench_engine *bench_engine_open(const bench_workload *w, unsigned threads, uint64_t seed, bool pin)
{
    bench_engine *e = calloc(1, sizeof *e);

    if (!e || threads == 0 || threads > THREADS_MAX) {
        free(e);
        return NULL;
    }
    e->workload = w;
    e->threads  = threads;
    e->pin      = pin;
    e->clock_ns = clock_cost();
    pthread_barrier_init(&e->start, NULL, threads);
    pthread_barrier_init(&e->asleep, NULL, threads + 1);
    for (unsigned i = 0; i < THREADS_MAX / 2; i++) {
        pthread_mutex_init(&e->conveyor[i].lock, NULL);
        pthread_cond_init(&e->conveyor[i].moved, NULL);
    }
    if (!prepare(e, seed)) {
        bench_engine_close(e);
        return NULL;
    }
    return e;
}

void bench_engine_use(bench_engine *e, const bench_loops *loops, void *pool,
                      const bench_allocator *a)
{
    e->loops     = loops;
    e->allocator = a;
    for (unsigned i = 0; i < e->threads; i++)
        e->lane[i].pool = pool;
}

void bench_engine_even(bench_engine *e)
{
    e->is_even = true;
}

const bench_trace *bench_engine_trace(const bench_engine *e)
{
    return e->workload->make ? &e->trace : NULL;
}

void bench_engine_close(bench_engine *e)
{
    if (!e)
        return;
    for (unsigned i = 0; i < e->threads; i++) {
        free(e->lane[i].slots);
        free(e->ops[i]);
    }
    for (unsigned i = 0; i < THREADS_MAX / 2; i++) {
        free(e->conveyor[i].buffer);
        pthread_cond_destroy(&e->conveyor[i].moved);
        pthread_mutex_destroy(&e->conveyor[i].lock);
    }
    bench_trace_clear(&e->trace);
    pthread_barrier_destroy(&e->asleep);
    pthread_barrier_destroy(&e->start);
    free(e);
}
