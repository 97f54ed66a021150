/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* async_model [--seed N] [--seeds COUNT] [--seconds S] [--operations N] [--threads T] [--verbose]
 *             [--unchecked] [--planted=order|data]
 *
 * Random allocations and frees in queue order on the selected device, under the checker of stream
 * order (USM_HOOKS=order).  A seed is 2 to 6 queues that its threads share, one more for each
 * thread that ends and comes back with frees pending, and 2 pools, one of them too small for all.
 * Each block is filled with the number of its life, copied to others and to the host, and looked at
 * when the copies have ended: contents of two lives never mix.  Host tasks that sleep hold queues
 * up.
 *
 * --unchecked leaves the checker out, so that the quick paths are taken, which it closes: then only
 * contents are compared.  With --planted a wait is left out (order), or a block changed behind the
 * model's back (data), and must be found: exit status 1 and the seed. */
#include "budget.h"

#include "base/fault.h"
#include "observe/order_check.h"

#include <usm/usm.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    THREADS_MAX = 4,
    QUEUES_MAX  = 6,
    BLOCKS_MAX  = 24,
    CHECKS_MAX  = 16,
    POOLS       = 2,
    ALARM       = 120,
    HANDED      = 4,
    SMALL_POOL  = 2 << 20,
    BIGGEST     = 512 << 10
};

static struct {
    uint64_t operations, threads;
    bool     verbose, unchecked, plant_order, plant_data;
} options = {.operations = 90};

static budget seeds = {.first = 1, .most = 1};

static struct {
    usm_context      *ctx;
    bool              has_loose;
    usm_kind          kinds[3];
    unsigned          nkinds;
    _Atomic(uint64_t) commands, lives, bytes, refused, operations, reuses, waits, host_waits;
} all;

typedef struct lane {
    usm_queue *q;
    bool       is_in_order;
} lane;

/* One seed; its threads share it. */
typedef struct world {
    uint64_t  seed;
    unsigned  nlanes;
    lane      lanes[QUEUES_MAX];
    usm_pool *pools[POOLS];
} world;

/* `ev` ends all that is queued for the block; what it holds then is `life`. */
typedef struct block {
    char      *p;
    size_t     size;
    uint64_t   life;
    bool       is_wide; /* 8-byte numbers; else bytes */
    usm_event *ev;
    usm_queue *q; /* whose command ev is, when it is in order; else NULL */
} block;

/* What a copy to the host must bring. */
typedef struct check {
    unsigned char *bytes;
    size_t         size;
    uint64_t       life;
    bool           is_wide;
    usm_event     *ev;
} check;

typedef struct worker {
    pthread_t thread;
    world    *w;
    uint64_t  random, operation, lives;
    lane      own; /* ends and begins again */
    unsigned  index, nblocks, nchecks;
    block     blocks[BLOCKS_MAX];
    check     checks[CHECKS_MAX];
} worker;

_Noreturn static void found(const worker *k, const char *what)
{
    printf("# seed %llu, operation %llu (thread %u): %s\n", (unsigned long long)k->w->seed,
           (unsigned long long)k->operation, k->index, what);
    (void)fflush(NULL);
    _exit(1);
}

static void must(const worker *k, usm_status st, const char *what)
{
    char text[700];

    if (st == USM_OK)
        return;
    (void)snprintf(text, sizeof text, "%s: %s: %s", what, usm_status_name(st), usm_last_error());
    found(k, text);
}

static uint64_t draw(worker *k, uint64_t below)
{
    k->random ^= k->random >> 12;
    k->random ^= k->random << 25;
    k->random ^= k->random >> 27;
    return (k->random * 0x2545F4914F6CDD1Du >> 33) % below;
}

static bool one_in(worker *k, uint64_t n)
{
    return draw(k, n) == 0;
}

/* ---- queues ----------------------------------------------------------------------- */

static lane lane_open(const worker *k, bool is_in_order)
{
    usm_queue_desc loose = {sizeof loose, USM_QUEUE_OUT_OF_ORDER};
    lane           l     = {NULL, is_in_order || !all.has_loose};

    must(k, usm_queue_create(all.ctx, NULL, l.is_in_order ? NULL : &loose, &l.q),
         "usm_queue_create");
    return l;
}

static lane pick(worker *k)
{
    uint64_t i = draw(k, k->w->nlanes + 1);

    return i < k->w->nlanes ? k->w->lanes[i] : k->own;
}

/* ---- commands on blocks ----------------------------------------------------------- */

/* The block's last command, unless the queue is known to come after it anyway. */
static size_t behind(worker *k, const block *b, lane l, usm_event **deps)
{
    if (!b->ev || (b->q == l.q && one_in(k, 2)))
        return 0;
    *deps = b->ev;
    return 1;
}

/* ev, which is taken over, ends what is queued for the block. */
static void now_behind(block *b, lane l, usm_event *ev)
{
    usm_event_release(b->ev);
    b->ev = ev;
    b->q  = l.is_in_order ? l.q : NULL;
}

static void count_command(void)
{
    (void)atomic_fetch_add_explicit(&all.commands, 1, memory_order_relaxed);
}

/* A new life number: never 0, and its low byte is what bytes hold. */
static void write_block(worker *k, block *b, lane l, size_t ndeps, usm_event *const *deps)
{
    usm_event *ev = NULL;

    b->life    = ++k->lives * THREADS_MAX + k->index + 1;
    b->is_wide = b->size % 8 == 0 && !one_in(k, 3);
    if (b->is_wide)
        must(k, usm_fill(l.q, b->p, &b->life, 8, b->size / 8, ndeps, deps, &ev), "usm_fill");
    else
        must(k, usm_memset(l.q, b->p, (int)(b->life & 255), b->size, ndeps, deps, &ev),
             "usm_memset");
    now_behind(b, l, ev);
    count_command();
}

static void look(worker *k, check *c)
{
    uint64_t n = c->is_wide ? 8 : 1;

    must(k, usm_event_wait(c->ev), "usm_event_wait");
    for (size_t i = 0; i < c->size; i += n) {
        uint64_t life = 0;

        memcpy(&life, c->bytes + i, n);
        if (life != (c->is_wide ? c->life : (c->life & 255))) {
            char text[200];

            (void)snprintf(text, sizeof text,
                           "offset %zu of %zu holds %llx, not what life %llx wrote", i, c->size,
                           (unsigned long long)life, (unsigned long long)c->life);
            found(k, text);
        }
    }
    (void)atomic_fetch_add_explicit(&all.bytes, c->size, memory_order_relaxed);
    usm_event_release(c->ev);
    free(c->bytes);
}

static void look_at_some(worker *k, unsigned keep)
{
    while (k->nchecks > keep) {
        look(k, &k->checks[0]);
        memmove(&k->checks[0], &k->checks[1], --k->nchecks * sizeof k->checks[0]);
    }
}

static void read_block(worker *k, block *b)
{
    usm_event *dep = NULL, *ev = NULL;
    lane       l     = pick(k);
    size_t     ndeps = behind(k, b, l, &dep);
    check     *c;

    look_at_some(k, CHECKS_MAX - 1);
    c  = &k->checks[k->nchecks++];
    *c = (check){malloc(b->size), b->size, b->life, b->is_wide, NULL};
    if (!c->bytes)
        found(k, "no memory");
    must(k, usm_memcpy(l.q, c->bytes, b->p, b->size, ndeps, &dep, &ev), "usm_memcpy to the host");
    (void)usm_event_retain(ev);
    c->ev = ev;
    now_behind(b, l, ev);
    count_command();
}

static void copy_block(worker *k)
{
    block     *from = &k->blocks[draw(k, k->nblocks)], *to = &k->blocks[draw(k, k->nblocks)];
    usm_event *deps[2] = {NULL, NULL}, *ev = NULL;
    lane       l = pick(k);
    size_t     n;

    if (from == to || to->size > from->size || (from->is_wide && to->size % 8))
        return;
    n = behind(k, from, l, &deps[0]);
    n += behind(k, to, l, &deps[n]);
    must(k, usm_memcpy(l.q, to->p, from->p, to->size, n, deps, &ev), "usm_memcpy");
    to->life    = from->life;
    to->is_wide = from->is_wide;
    (void)usm_event_retain(ev);
    now_behind(from, l, ev);
    now_behind(to, l, ev);
    count_command();
}

/* ---- allocation ------------------------------------------------------------------- */

static size_t draw_size(worker *k)
{
    size_t size = (size_t)1 << draw(k, 20);

    size += draw(k, size);
    if (size > BIGGEST)
        size = BIGGEST;
    return one_in(k, 4) ? size : (size + 7) & ~(size_t)7;
}

static void *allocate(worker *k, lane l, size_t size, size_t ndeps, usm_event **deps,
                      usm_event **born)
{
    usm_kind  kind = all.kinds[draw(k, all.nkinds)];
    usm_pool *pool = !one_in(k, 4) ? k->w->pools[draw(k, POOLS)] : NULL;

    if (born && pool)
        return usm_async_malloc_from_pool_after(l.q, size, pool, ndeps, deps, born);
    if (born)
        return usm_async_malloc_after(l.q, kind, size, ndeps, deps, born);
    return pool ? usm_async_malloc_from_pool(l.q, size, pool) : usm_async_malloc(l.q, kind, size);
}

/* Without an event the first command goes to the queue of the allocation; of an out-of-order queue
 * anywhere. */
static void begin_block(worker *k)
{
    lane       l        = pick(k), first;
    bool       is_after = one_in(k, 3);
    block      b        = {.size = draw_size(k)};
    usm_event *born = NULL, *deps[1] = {NULL};
    size_t     ndeps = is_after && k->nblocks ? behind(k, &k->blocks[0], l, deps) : 0;

    if (k->nblocks == BLOCKS_MAX)
        return;
    b.p = allocate(k, l, b.size, ndeps, deps, is_after ? &born : NULL);
    if (!b.p) {
        if (usm_last_status() != USM_E_NO_MEMORY && usm_last_status() != USM_E_BUDGET)
            must(k, usm_last_status(), "an allocation");
        (void)atomic_fetch_add_explicit(&all.refused, 1, memory_order_relaxed);
        return;
    }
    first = is_after || !l.is_in_order ? pick(k) : l;
    write_block(k, &b, first, born ? 1 : 0, &born);
    usm_event_release(born);
    k->blocks[k->nblocks++] = b;
    (void)atomic_fetch_add_explicit(&all.lives, 1, memory_order_relaxed);
}

/* ---- the end of a block ----------------------------------------------------------- */

static void free_block(worker *k, const block *b)
{
    usm_event *dep = b->ev, *ev = NULL;
    lane       l     = pick(k);
    size_t     ndeps = behind(k, b, l, &dep);

    switch (draw(k, 8)) {
    case 0: /* the host waits, then any free will do */
        must(k, usm_event_wait(b->ev), "usm_event_wait");
        must(k, one_in(k, 2) ? usm_free_ctx(b->p, all.ctx) : usm_async_free(l.q, b->p), "a free");
        break;
    case 1:
        must(k, usm_free_blocking(b->p, all.ctx), "usm_free_blocking");
        break;
    case 2:
    case 3:
        dep = b->ev;
        must(k, usm_async_free_after(l.q, b->p, 1, &dep, one_in(k, 2) ? &ev : NULL),
             "usm_async_free_after");
        break;
    default: /* where the queue comes after its last command, or is made to */
        if (ndeps)
            must(k, usm_queue_barrier(l.q, 1, &dep, NULL), "usm_queue_barrier");
        must(k, usm_async_free(l.q, b->p), "usm_async_free");
    }
    usm_event_release(ev);
}

static void end_block(worker *k, unsigned i)
{
    block *b = &k->blocks[i];

    if (!one_in(k, 3))
        read_block(k, b);
    if (options.plant_data && one_in(k, 40))
        must(k, usm_set(b->p, 0xEE, b->size), "usm_set");
    free_block(k, b);
    usm_event_release(b->ev);
    *b = k->blocks[--k->nblocks];
}

/* ---- what else happens ------------------------------------------------------------ */

static usm_status sleep_a_little(void *ns)
{
    (void)nanosleep(&(struct timespec){0, (long)(uintptr_t)ns}, NULL);
    return USM_OK;
}

static void wait_for_something(worker *k)
{
    lane       l = pick(k);
    usm_status st;

    switch (draw(k, 6)) {
    case 0:
        must(k, usm_queue_wait(l.q), "usm_queue_wait");
        break;
    case 1:
        st = usm_queue_query(l.q);
        must(k, st == USM_E_NOT_READY ? USM_OK : st, "usm_queue_query");
        break;
    case 2:
        if (k->nblocks && usm_event_query(k->blocks[0].ev) == USM_OK)
            k->blocks[0].q = NULL;
        break;
    case 3:
        if (k->nblocks)
            must(k, usm_event_wait(k->blocks[draw(k, k->nblocks)].ev), "usm_event_wait");
        break;
    case 4:
        if (one_in(k, 4))
            must(k, usm_context_wait(all.ctx), "usm_context_wait");
        break;
    default:
        must(k, usm_queue_barrier(l.q, 0, NULL, NULL), "usm_queue_barrier");
    }
}

static void change_a_pool(worker *k)
{
    usm_pool *pool = k->w->pools[draw(k, POOLS)];

    if (one_in(k, 4))
        must(k, usm_pool_trim_to(pool, 0), "usm_pool_trim_to");
    else if (one_in(k, 4))
        must(k, usm_pool_set_attribute(pool, USM_POOL_THRESHOLD, draw(k, 4) << 20), "threshold");
    else
        must(k,
             usm_pool_set_attribute(
                 pool, (usm_pool_attribute)(USM_POOL_REUSE_FOLLOW_EVENTS + (int)draw(k, 3)),
                 draw(k, 2)),
             "a reuse policy");
}

/* With whatever it has yet to free. */
static void change_own_queue(worker *k)
{
    for (unsigned i = 0; i < k->nblocks; i++)
        if (k->blocks[i].q == k->own.q)
            k->blocks[i].q = NULL;
    usm_queue_destroy(k->own.q);
    k->own = lane_open(k, !one_in(k, 4));
}

static void free_handed(worker *k, block *b, lane l)
{
    if (b->p && b->q != l.q)
        must(k, usm_async_free_after(l.q, b->p, 1, &b->ev, NULL), "usm_async_free_after");
    else if (b->p)
        must(k, usm_async_free(l.q, b->p), "usm_async_free");
    usm_event_release(b->ev);
    *b = (block){0};
}

/* What one queue, which lags, has just freed, another one wants: as much as the small pool has. */
static void hand_over(worker *k)
{
    usm_pool *pool = k->w->pools[one_in(k, 4)];
    lane      from = pick(k), to = pick(k);
    block     b[HANDED] = {{0}};
    size_t    size      = (size_t)SMALL_POOL / HANDED - draw(k, 2) * 40000;

    must(k,
         usm_host_task(from.q, sleep_a_little, (void *)(uintptr_t)draw(k, 200000), 0, NULL, NULL),
         "usm_host_task");
    for (int i = 0; i < 2 * HANDED; i++) {
        block *it = &b[i % HANDED];
        lane   l  = i < HANDED ? from : to;

        it->size = size;
        it->p    = usm_async_malloc_from_pool(l.q, size, pool);
        if (it->p)
            write_block(k, it, l, 0, NULL);
        if (it->p && one_in(k, 4))
            read_block(k, it);
        if (i % HANDED == HANDED - 1)
            for (int n = 0; n < HANDED; n++)
                free_handed(k, &b[n], l);
    }
}

static void step(worker *k)
{
    uint64_t what = draw(k, 100);

    k->operation++;
    if (what < 35 || k->nblocks == 0)
        begin_block(k);
    else if (what < 65)
        end_block(k, (unsigned)draw(k, k->nblocks));
    else if (what < 75)
        copy_block(k);
    else if (what < 80)
        read_block(k, &k->blocks[draw(k, k->nblocks)]);
    else if (what < 87)
        wait_for_something(k);
    else if (what < 91)
        must(k,
             usm_host_task(pick(k).q, sleep_a_little, (void *)(uintptr_t)draw(k, 300000), 0, NULL,
                           NULL),
             "usm_host_task");
    else if (what < 95)
        change_a_pool(k);
    else if (what < 98)
        hand_over(k);
    else
        change_own_queue(k);
    if (usm__order_violations() > 0)
        found(k, "the checker of stream order has found something: see the log");
}

/* ---- seeds ------------------------------------------------------------------------ */

static void *work(void *worker_)
{
    worker *k = worker_;

    k->own = lane_open(k, true);
    for (uint64_t i = 0; i < options.operations; i++)
        step(k);
    while (k->nblocks > 0)
        end_block(k, k->nblocks - 1);
    look_at_some(k, 0);
    usm_queue_destroy(k->own.q);
    (void)atomic_fetch_add_explicit(&all.operations, k->operation, memory_order_relaxed);
    return NULL;
}

static void open_world(worker *k, world *w)
{
    usm_pool_desc small = USM_POOL_DESC_INIT, other = USM_POOL_DESC_INIT;

    w->nlanes = 2 + (unsigned)draw(k, QUEUES_MAX - 1);
    for (unsigned i = 0; i < w->nlanes; i++)
        w->lanes[i] = lane_open(k, i == 0 || !one_in(k, 3));
    small.name         = "slab";
    small.maximum_size = SMALL_POOL;
    other.name         = one_in(k, 6) ? "direct" : "slab";
    other.zero_init    = one_in(k, 4);
    must(k, usm_pool_create(all.ctx, NULL, all.kinds[draw(k, all.nkinds)], &small, &w->pools[0]),
         "usm_pool_create");
    must(k, usm_pool_create(all.ctx, NULL, all.kinds[draw(k, all.nkinds)], &other, &w->pools[1]),
         "usm_pool_create");
}

/* Nothing is stranded, although nobody waits for the queues. */
static void wait_until_drained(const worker *k, usm_pool *pool)
{
    uint64_t queued = 1;

    for (int i = 0; i < 5000 && queued > 0; i++) {
        must(k, usm_pool_get_attribute(pool, USM_POOL_QUEUED_CURRENT, &queued), "an attribute");
        if (queued > 0)
            (void)nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    if (queued > 0)
        found(k, "bytes lie in queues that have long been idle");
}

static void add_attribute(const worker *k, usm_pool *pool, usm_pool_attribute which,
                          _Atomic(uint64_t) *sum)
{
    uint64_t value = 0;

    must(k, usm_pool_get_attribute(pool, which, &value), "an attribute");
    *sum += value;
}

static void close_world(worker *k, world *w)
{
    for (int i = 0; i < POOLS; i++) {
        add_attribute(k, w->pools[i], USM_POOL_QUEUED_REUSES, &all.reuses);
        add_attribute(k, w->pools[i], USM_POOL_QUEUED_WAITS, &all.waits);
        add_attribute(k, w->pools[i], USM_POOL_HOST_WAITS, &all.host_waits);
    }
    if (w->seed % 32 == 0)
        for (int i = 0; i < POOLS; i++)
            wait_until_drained(k, w->pools[i]);
    for (unsigned i = 0; i < w->nlanes; i++)
        usm_queue_destroy(w->lanes[i].q);
    for (int i = 0; i < POOLS; i++)
        usm_pool_destroy(w->pools[i]);
}

static void run_seed(uint64_t seed)
{
    world    w = {.seed = seed};
    worker  *k = calloc(THREADS_MAX, sizeof *k);
    unsigned n;

    if (!k)
        exit(1);
    (void)alarm(ALARM);
    for (unsigned i = 0; i < THREADS_MAX; i++) {
        k[i].w      = &w;
        k[i].index  = i;
        k[i].random = (seed * THREADS_MAX + i + 1) * 0x9E3779B97F4A7C15u;
    }
    open_world(&k[0], &w);
    n = options.threads ? (unsigned)options.threads : 1 + (unsigned)draw(&k[0], 3);
    for (unsigned i = 1; i < n; i++)
        if (pthread_create(&k[i].thread, NULL, work, &k[i]) != 0)
            exit(1);
    (void)work(&k[0]);
    for (unsigned i = 1; i < n; i++)
        (void)pthread_join(k[i].thread, NULL);
    close_world(&k[0], &w);
    if (usm__order_violations() > 0)
        found(&k[0], "the checker of stream order has found something: see the log");
    if (options.verbose)
        printf("# seed %llu: %u queues, %u threads\n", (unsigned long long)seed, w.nlanes, n);
    free(k);
}

static void start(void)
{
    static const usm_kind   kinds[]   = {USM_DEVICE, USM_SHARED, USM_HOST};
    static const usm_aspect aspects[] = {USM_ASPECT_USM_DEVICE_ALLOCATIONS,
                                         USM_ASPECT_USM_SHARED_ALLOCATIONS,
                                         USM_ASPECT_USM_HOST_ALLOCATIONS};
    usm_device             *dev       = NULL;
    size_t                  n         = 0;

    if ((!options.unchecked && usm_config_set("hooks", "order") != USM_OK) ||
        usm_context_create(NULL, &all.ctx) != USM_OK ||
        usm_context_get_devices(all.ctx, &dev, 1, &n) != USM_OK) {
        printf("# %s\n", usm_last_error());
        exit(1);
    }
    for (int i = 0; i < 3; i++)
        if (usm_device_has(dev, aspects[i]))
            all.kinds[all.nkinds++] = kinds[i];
    all.has_loose = usm_device_has(dev, USM_ASPECT_OUT_OF_ORDER_QUEUE);
    if (options.plant_order)
        (void)usm__fault_arm("async.skip_wait", 1, true, USM_OK);
}

static bool parse_flag(const char *text)
{
    options.verbose |= strcmp(text, "--verbose") == 0;
    options.unchecked |= strcmp(text, "--unchecked") == 0;
    options.plant_order |= strcmp(text, "--planted=order") == 0;
    options.plant_data |= strcmp(text, "--planted=data") == 0;
    return strcmp(text, "--verbose") == 0 || strcmp(text, "--unchecked") == 0 ||
           strncmp(text, "--planted=", 10) == 0;
}

static void parse(int argc, char **argv)
{
    static const struct {
        const char *name;
        uint64_t   *at;
    } numbers[] = {{"--operations", &options.operations}, {"--threads", &options.threads}};

    for (int i = 1; i < argc; i++) {
        bool known = parse_flag(argv[i]);

        for (size_t n = 0; !known && n < sizeof numbers / sizeof *numbers && i + 1 < argc; n++)
            if (strcmp(argv[i], numbers[n].name) == 0) {
                *numbers[n].at = strtoull(argv[++i], NULL, 0);
                known          = true;
            }
        if (!known && !budget_option(&seeds, argc, argv, &i))
            exit(2);
    }
    if (options.threads > THREADS_MAX)
        exit(2);
}

int main(int argc, char **argv)
{
    uint64_t seed;

    parse(argc, argv);
    start();
    while (budget_next(&seeds, &seed))
        run_seed(seed);
    usm_context_destroy(all.ctx);
    budget_print(&seeds);
    printf(", %llu operations, %llu lives, %llu commands, %llu MiB compared; the pools: %llu "
           "reuses in queues, %llu waits put in, %llu by the host, %llu refusals: in order\n",
           (unsigned long long)all.operations, (unsigned long long)all.lives,
           (unsigned long long)all.commands, (unsigned long long)(all.bytes >> 20),
           (unsigned long long)all.reuses, (unsigned long long)all.waits,
           (unsigned long long)all.host_waits, (unsigned long long)all.refused);
    return 0;
}
