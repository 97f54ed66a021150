/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random operations by four threads on the pools of one name, through the public functions, against
 * a model that knows every live block:
 *
 *   - no two live blocks share a byte of what usm_usable_size() says is theirs;
 *   - alignment and usable size are at least what was asked for;
 *   - the program's bytes stay what it wrote (host and shared memory; device memory is PROT_NONE
 *     here, so that a pool that touched it would die);
 *   - pointer queries tell the block of any pointer into it; an interior pointer is not freed;
 *   - the figures add up once nobody is at work.
 *
 * Blocks go from thread to thread through mailboxes and are freed where they end up; threads end
 * and are replaced; pools of the same name are made, used and destroyed meanwhile, with blocks
 * still out.
 *
 * usage: test_pool_model POOL host|device|shared [--seed N] [--seeds COUNT] [--seconds S]
 *                        [--operations N]
 *
 * The operations are those of one seed, which begins with new pools.  The draws are the seed's, the
 * interleaving of the threads is not.
 *
 * The model must not bring an order between threads that the pool does not, or ThreadSanitizer
 * would miss what the pool lacks: its atomics are relaxed, and only a hand-over orders, as in a
 * program. */
#include "budget.h"
#include "plain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <usm/usm.h>

enum {
    THREADS     = 4,
    GENERATIONS = 6, /* of each thread                                  */
    POOLS       = 2, /* in use at the same time                         */
    SLOTS       = 512,
    MAILBOXES   = 128,
    BATCH       = 32,
    GRANULE     = 64 /* least alignment of blocks: two never share one  */
};

#define MOST_LIVE                                                                                  \
    ((size_t)(PLAIN_SANITIZED ? 24 : 64) << 20) /* bytes of a thread, and as many again */

static struct {
    const char  *name;
    usm_kind     kind;
    uint64_t     operations, seed;
    usm_context *ctx;
    usm_pool    *pools[POOLS];
} run = {.operations = PLAIN_SANITIZED ? 10000 : 50000};

static budget   seeds = {.first = 1, .most = 1};
static uint64_t served, refused, handed;

_Noreturn static void wrong(const char *format, ...) USM_PRINTF(1, 2);
_Noreturn static void wrong(const char *format, ...)
{
    va_list args;

    printf("# pool %s, seed %llu: ", run.name, (unsigned long long)run.seed);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    printf("\n");
    (void)fflush(stdout);
    abort(); /* with the other threads where they are */
}

/* --- the model: whose is each granule of the address space ------------------------------------ */

#define PAGE_BITS 12
#define LEAF_BITS 18 /* pages in a leaf: 1 GiB */
#define LEAVES    ((size_t)1 << (48 - PAGE_BITS - LEAF_BITS))

typedef _Atomic(uint64_t) page_word; /* a bit for each granule of a page */

static _Atomic(page_word *) leaves[LEAVES];

static void *zero_pages(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);

    if (p == MAP_FAILED)
        wrong("no memory for the model");
    return p;
}

static page_word *word_of(uintptr_t page)
{
    size_t                size = ((size_t)1 << LEAF_BITS) * sizeof(page_word);
    _Atomic(page_word *) *at   = &leaves[page >> LEAF_BITS];
    page_word            *leaf = atomic_load_explicit(at, memory_order_acquire), *made;

    if (!leaf) {
        made = zero_pages(size);
        if (atomic_compare_exchange_strong(at, &leaf, made))
            leaf = made;
        else
            (void)munmap(made, size);
    }
    return &leaf[page & (((uintptr_t)1 << LEAF_BITS) - 1)];
}

/* The bits of [from, end) in the page of `from`, which is then moved on. */
static uint64_t bits_in_page(uintptr_t *from, uintptr_t end)
{
    uintptr_t page_end = ((*from >> PAGE_BITS) + 1) << PAGE_BITS;
    uintptr_t stop     = end < page_end ? end : page_end;
    unsigned  first    = (unsigned)(*from % 4096 / GRANULE);
    unsigned  n        = (unsigned)((stop - *from + GRANULE - 1) / GRANULE);

    *from = stop;
    return (n == 64 ? UINT64_MAX : ((UINT64_C(1) << n) - 1)) << first;
}

static void claim(const void *p, size_t size)
{
    uintptr_t from = (uintptr_t)p, end = from + size;

    while (from < end) {
        page_word *word = word_of(from >> PAGE_BITS);
        uint64_t   bits = bits_in_page(&from, end);

        if (atomic_fetch_or_explicit(word, bits, memory_order_relaxed) & bits)
            wrong("%p of %zu bytes overlaps a live block", p, size);
    }
}

static void unclaim(const void *p, size_t size)
{
    uintptr_t from = (uintptr_t)p, end = from + size;

    while (from < end) {
        page_word *word = word_of(from >> PAGE_BITS);
        uint64_t   bits = bits_in_page(&from, end);

        if (bits & ~atomic_fetch_and_explicit(word, ~bits, memory_order_relaxed))
            wrong("%p of %zu bytes was not live in the model", p, size);
    }
}

/* --- blocks ----------------------------------------------------------------------------------- */

typedef struct block {
    unsigned char *p; /* NULL: none */
    size_t         size, usable;
    uint64_t       stamp;
    usm_pool      *pool;
} block;

/* A thread's own things. */
typedef struct worker {
    uint64_t random;
    uint64_t operations;
    block    slots[SLOTS];
    size_t   live; /* bytes of the slots */
    uint64_t served, refused, freed_elsewhere;
} worker;

static uint64_t draw(worker *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random;
}

static size_t below(worker *w, size_t n)
{
    return (size_t)((draw(w) >> 11) % n);
}

static unsigned char stamp_at(uint64_t stamp, size_t i)
{
    return (unsigned char)(stamp >> i % 8 * 8 ^ i * 37);
}

/* All of a small block; of a large one the ends and something in between. */
static size_t next_byte(size_t i, size_t size)
{
    return size <= 256 || i < 63 || i + 64 >= size ? i + 1
           : i + 64 < size - 64                    ? i + size / 32
                                                   : i + 1;
}

static bool touches(void)
{
    return run.kind != USM_DEVICE;
}

static void write_block(const block *b)
{
    if (touches())
        for (size_t i = 0; i < b->usable; i = next_byte(i, b->usable))
            b->p[i] = stamp_at(b->stamp, i);
}

static void check_bytes(const block *b)
{
    if (!touches())
        return;
    for (size_t i = 0; i < b->usable; i = next_byte(i, b->usable))
        if (b->p[i] != stamp_at(b->stamp, i))
            wrong("byte %zu of %p (%zu bytes) changed", i, (void *)b->p, b->usable);
}

static void check_queries(worker *w, const block *b)
{
    size_t at    = below(w, b->usable);
    void  *base  = NULL;
    size_t size  = 0;
    char  *inner = (char *)b->p + at;

    if (usm_usable_size(inner) != b->usable - at)
        wrong("usable size of %p is %zu, not %zu", (void *)inner, usm_usable_size(inner),
              b->usable - at);
    if (usm_get_pointer_type(inner, at % 2 ? run.ctx : NULL) != run.kind)
        wrong("%p is of kind %d", (void *)inner, (int)usm_get_pointer_type(inner, NULL));
    if (usm_get_address_range(inner, run.ctx, &base, &size) != USM_OK || base != b->p ||
        size != b->usable)
        wrong("%p lies in %p of %zu bytes, not %p of %zu", (void *)inner, base, size, (void *)b->p,
              b->usable);
}

/* A block that was just allocated enters the model. */
static void enter(worker *w, block *b, size_t align)
{
    if ((uintptr_t)b->p % (align > GRANULE ? align : GRANULE))
        wrong("%p is not aligned to %zu", (void *)b->p, align);
    b->usable = usm_usable_size(b->p);
    if (b->usable < b->size || b->usable == 0)
        wrong("%p of %zu bytes has %zu usable", (void *)b->p, b->size, b->usable);
    b->stamp = draw(w);
    claim(b->p, b->usable);
    write_block(b);
    w->live += b->usable;
    w->served++;
}

static void leave(worker *w, const block *b)
{
    check_bytes(b);
    unclaim(b->p, b->usable);
    w->live -= b->usable;
}

static void free_block(worker *w, block *b)
{
    void *p = b->p;

    leave(w, b);
    switch (draw(w) >> 20 & 3) {
    case 0:
        usm_free(p);
        break;
    case 1:
        usm_pool_free_sized(b->pool, p, b->size);
        break;
    default:
        usm_pool_free(b->pool, p);
        break;
    }
    b->p = NULL;
}

/* --- operations ------------------------------------------------------------------------------- */

static size_t random_size(worker *w)
{
    size_t what = below(w, 1000);

    if (what < 600)
        return below(w, 1024);
    if (what < 900)
        return below(w, (size_t)64 << 10);
    if (what < 995)
        return below(w, (size_t)512 << 10);
    return below(w, (size_t)8 << 20);
}

/* Memory may run out, and that is all that may happen; then half of what the thread has goes. */
static void was_refused(worker *w)
{
    usm_status status = usm_last_status();

    if ((status != USM_E_NO_MEMORY && status != USM_E_BUDGET) || errno != ENOMEM)
        wrong("an allocation failed: %s", usm_last_error());
    w->refused++;
    for (size_t i = 0; i < SLOTS; i += 2)
        if (w->slots[i].p)
            free_block(w, &w->slots[i]);
}

static void free_some(worker *w)
{
    block *b = &w->slots[below(w, SLOTS)];

    if (b->p)
        free_block(w, b);
}

static void allocate(worker *w, bool aligned)
{
    block *b     = &w->slots[below(w, SLOTS)];
    size_t align = aligned ? (size_t)1 << below(w, below(w, 16) ? 13 : 22) : 0;

    if (b->p)
        free_block(w, b);
    if (w->live > MOST_LIVE) {
        free_some(w);
        return;
    }
    b->pool = run.pools[below(w, POOLS)];
    b->size = random_size(w);
    b->p    = aligned ? usm_pool_aligned_alloc(b->pool, align, b->size)
                      : usm_pool_malloc(b->pool, b->size);
    if (b->p)
        enter(w, b, align);
    else
        was_refused(w);
}

static void allocate_batch(worker *w)
{
    usm_pool *pool = run.pools[below(w, POOLS)];
    size_t    n = 1 + below(w, BATCH), size = below(w, 3000), got, i;
    void     *out[BATCH];

    got = usm_pool_malloc_batch(pool, size, n, out);
    if (got > n)
        wrong("%zu blocks of %zu asked for", got, n);
    for (i = 0; i < got; i++) {
        block *b = &w->slots[below(w, SLOTS)];

        if (b->p)
            free_block(w, b);
        *b = (block){.p = out[i], .size = size, .pool = pool};
        enter(w, b, 0);
    }
}

static void free_batch(worker *w)
{
    usm_pool *pool = run.pools[below(w, POOLS)];
    void     *p[BATCH];
    size_t    n = 0;

    for (size_t i = 0; i < BATCH; i++) {
        block *b = &w->slots[below(w, SLOTS)];

        if (!b->p || b->pool != pool)
            continue;
        leave(w, b);
        p[n++] = b->p;
        b->p   = NULL;
    }
    if (n < BATCH)
        p[n++] = NULL;
    usm_pool_free_batch(pool, n, p);
}

static struct mailbox {
    _Atomic(block *) in;
} mailboxes[MAILBOXES];

/* Puts a block (or nothing) in a mailbox for what was there, whoever put it in. */
static void exchange(worker *w)
{
    block *mine = &w->slots[below(w, SLOTS)], *sent = NULL, *got;

    if (mine->p) {
        sent = malloc(sizeof(*sent));
        CHECK(sent != NULL);
        *sent = *mine;
        w->live -= mine->usable;
        mine->p = NULL;
    }
    got = atomic_exchange_explicit(&mailboxes[below(w, MAILBOXES)].in, sent, memory_order_acq_rel);
    if (!got)
        return;
    *mine = *got;
    free(got);
    w->live += mine->usable;
    w->freed_elsewhere++;
}

static void look(worker *w)
{
    const block *b = &w->slots[below(w, SLOTS)];

    if (!b->p)
        return;
    check_bytes(b);
    check_queries(w, b);
    if (b->usable > 1 && below(w, 16) == 0) {
        usm_status status = usm_free_ctx(b->p + 1 + below(w, b->usable - 1), NULL);

        if (status != USM_E_INTERIOR_POINTER)
            wrong("the free of an interior pointer is %s", usm_status_name(status));
    }
}

static void look_at_figures(worker *w)
{
    usm_pool_stats s    = USM_POOL_STATS_INIT;
    usm_pool      *pool = run.pools[below(w, POOLS)];

    if (usm_pool_get_stats(pool, &s) != USM_OK || s.live_peak > s.reserved_peak + s.live_peak_error)
        wrong("figures: live_peak %llu, reserved_peak %llu", (unsigned long long)s.live_peak,
              (unsigned long long)s.reserved_peak);
    if (below(w, 8) == 0 && usm_pool_reset_peaks(pool) != USM_OK)
        wrong("%s", usm_last_error());
}

static void trim(worker *w)
{
    if (usm_pool_trim_to(run.pools[below(w, POOLS)], below(w, 2) ? 0 : (size_t)32 << 20) != USM_OK)
        wrong("trim: %s", usm_last_error());
}

static usm_pool *make_pool(void)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;

    desc.name         = run.name;
    desc.maximum_size = (size_t)1 << 30;
    if (usm_pool_create(run.ctx, NULL, run.kind, &desc, &pool) != USM_OK)
        wrong("no pool: %s", usm_last_error());
    return pool;
}

/* A pool of the thread's own, destroyed with blocks still out. */
static void short_lived_pool(worker *w)
{
    usm_pool *pool      = make_pool();
    block     some[100] = {{0}};

    for (size_t i = 0; i < 100; i++) {
        some[i]   = (block){.size = below(w, 20000), .pool = pool};
        some[i].p = usm_pool_malloc(pool, some[i].size);
        if (!some[i].p)
            wrong("a new pool is full: %s", usm_last_error());
        enter(w, &some[i], 0);
        if (i % 3 == 0)
            free_block(w, &some[i - i / 2]);
    }
    for (size_t i = 0; i < 100; i++)
        if (some[i].p)
            leave(w, &some[i]);
    usm_pool_destroy(pool);
}

static void step(worker *w)
{
    size_t what = below(w, 100000);

    if (what < 32000)
        allocate(w, false);
    else if (what < 40000)
        allocate(w, true);
    else if (what < 41500)
        allocate_batch(w);
    else if (what < 72000)
        free_some(w);
    else if (what < 74000)
        free_batch(w);
    else if (what < 85000)
        exchange(w);
    else if (what < 99900)
        look(w);
    else if (what < 99990)
        look_at_figures(w);
    else if (what < 99998)
        trim(w);
    else
        short_lived_pool(w);
}

/* --- threads ---------------------------------------------------------------------------------- */

static void *work(void *arg)
{
    worker *w = arg;

    for (uint64_t i = 0; i < w->operations; i++)
        step(w);
    return NULL;
}

/* One thread after the other does the worker's share; what one leaves the next one frees. */
static void *supervise(void *arg)
{
    worker   *w     = arg;
    uint64_t  share = run.operations / THREADS;
    pthread_t thread;

    for (uint64_t i = 0; i < GENERATIONS; i++) {
        w->operations = share * (i + 1) / GENERATIONS - share * i / GENERATIONS;
        if (pthread_create(&thread, NULL, work, w) || pthread_join(thread, NULL))
            wrong("no thread");
    }
    return NULL;
}

static void free_the_rest(worker *w)
{
    for (size_t i = 0; i < SLOTS; i++)
        if (w->slots[i].p)
            free_block(w, &w->slots[i]);
    for (size_t i = 0; i < MAILBOXES; i++) {
        block *b = atomic_exchange(&mailboxes[i].in, NULL);

        if (!b)
            continue;
        w->live += b->usable;
        free_block(w, b);
        free(b);
    }
    if (w->live)
        wrong("the model counts %zu bytes too many", w->live);
}

static void check_end(usm_pool *pool)
{
    usm_pool_stats s = USM_POOL_STATS_INIT;

    if (usm_pool_get_stats(pool, &s) != USM_OK || s.live || s.blocks)
        wrong("at the end %llu bytes in %llu blocks are live", (unsigned long long)s.live,
              (unsigned long long)s.blocks);
    if (usm_pool_trim_to(pool, 0) != USM_OK)
        wrong("trim: %s", usm_last_error());
    if (usm_pool_get_stats(pool, &s) != USM_OK || s.reserved)
        wrong("%llu bytes are held after a trim of an empty pool", (unsigned long long)s.reserved);
    usm_pool_destroy(pool);
}

static void run_seed(uint64_t seed)
{
    static worker workers[THREADS];
    pthread_t     threads[THREADS];

    run.seed = seed;
    memset(workers, 0, sizeof workers);
    for (size_t i = 0; i < POOLS; i++)
        run.pools[i] = make_pool();
    for (size_t i = 0; i < THREADS; i++) {
        workers[i].random = (run.seed + i + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
        if (pthread_create(&threads[i], NULL, supervise, &workers[i]))
            wrong("no thread");
    }
    for (size_t i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        free_the_rest(&workers[i]);
        served += workers[i].served;
        refused += workers[i].refused;
        handed += workers[i].freed_elsewhere;
    }
    for (size_t i = 0; i < POOLS; i++)
        check_end(run.pools[i]);
}

static bool read_arguments(int argc, char **argv)
{
    static const char *const kinds[] = {"", "host", "device", "shared"};

    for (int k = USM_HOST; argc > 2 && k <= USM_SHARED; k++)
        if (strcmp(argv[2], kinds[k]) == 0)
            run.kind = (usm_kind)k;
    if (run.kind == USM_UNKNOWN)
        return false;
    run.name = argv[1];
    for (int i = 3; i < argc; i++)
        if (strcmp(argv[i], "--operations") == 0 && i + 1 < argc)
            run.operations = strtoull(argv[++i], NULL, 0);
        else if (!budget_option(&seeds, argc, argv, &i))
            return false;
    return true;
}

int main(int argc, char **argv)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;
    uint64_t      seed;

    plain.runner   = pthread_self();
    plain.in_child = true; /* a failed check ends the program */
    if (!read_arguments(argc, argv)) {
        (void)fprintf(stderr,
                      "usage: %s POOL host|device|shared [--seed N] [--seeds COUNT] [--seconds S] "
                      "[--operations N]\n",
                      argv[0]);
        return 2;
    }
    if (usm_config_set("device_selector", "host:*") || usm_config_set("host_guard_device", "1") ||
        !(run.ctx = usm_default_context())) {
        printf("# %s\n", usm_last_error());
        return 1;
    }
    desc.name = run.name;
    if (usm_pool_create(run.ctx, NULL, run.kind, &desc, &pool) == USM_E_NOT_SUPPORTED) {
        printf("SKIPPED: %s\n", usm_last_error());
        return 77;
    }
    usm_pool_destroy(pool);
    while (budget_next(&seeds, &seed))
        run_seed(seed);
    budget_print(&seeds);
    printf(", %llu operations on the pool %s, %s memory: %llu blocks served, %llu requests "
           "refused, %llu blocks handed over\n",
           (unsigned long long)(seeds.ran * run.operations), run.name, argv[2],
           (unsigned long long)served, (unsigned long long)refused, (unsigned long long)handed);
    return 0;
}
