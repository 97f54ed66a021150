/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pools that sleep: memory goes back, addresses and contents stay; what is refused; frees and
 * allocations meanwhile; calls that fail on both ways; a tier that fails or lies; threads; fork();
 * 1,000 random sleeps against a model.  Over host, null and ze_soft; over OpenCL the refusals.  The
 * tier is one in memory (fake_transport.h), or with USM_TEST_REAL a file. */
#include "base/fault.h"
#include "fake_transport.h"
#include "plain.h"

#include <usm/usm.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define KIB   ((size_t)1 << 10)
#define MIB   ((size_t)1 << 20)
#define WORDS (5 * MIB / sizeof(uint64_t)) /* of the largest block */

static struct {
    usm_queue   *q;
    usm_context *ctx;
    bool         is_host;
    bool         is_null;   /* its memory has no contents        */
    bool         is_opencl; /* the driver maps no pieces         */
    bool         is_file;   /* the tier is a file                */
    uint64_t    *bytes;     /* of a block, on the host           */
} at;

/* ---- blocks ------------------------------------------------------------------------------- */

static usm_pool *make_pool(usm_kind kind, bool zero_init)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;

    desc.name      = "slab";
    desc.area_size = 2 * MIB;
    desc.zero_init = zero_init;
    CHECK_INT(usm_pool_create(at.ctx, NULL, kind, &desc, &pool), USM_OK);
    return pool;
}

/* Fills the block, or compares it. */
static void move_block(usm_pool *pool, void *p, size_t size, uint64_t seed, bool is_write)
{
    size_t n = size / sizeof(uint64_t);

    if (at.is_null)
        return;
    if (is_write) {
        for (size_t i = 0; i < n; i++)
            at.bytes[i] = seed + i * UINT64_C(0x9e3779b97f4a7c15);
        CHECK_INT(usm_memcpy(at.q, p, at.bytes, n * 8, 0, NULL, NULL), USM_OK);
        CHECK_INT(usm_queue_wait(at.q), USM_OK);
        return;
    }
    if (usm_pool_get_kind(pool) == USM_DEVICE) {
        CHECK_INT(usm_memcpy(at.q, at.bytes, p, n * 8, 0, NULL, NULL), USM_OK);
        CHECK_INT(usm_queue_wait(at.q), USM_OK);
        p = at.bytes;
    }
    for (size_t i = 0; i < n; i++)
        CHECK(((uint64_t *)p)[i] == seed + i * UINT64_C(0x9e3779b97f4a7c15));
}

static const size_t sizes[] = {64, 1000 * 8, 64 * KIB, MIB, 5 * MIB / 2, 256 * KIB, 128};
#define N (sizeof sizes / sizeof *sizes)

static void fill(usm_pool *pool, void *p[N], uint64_t seed)
{
    for (size_t i = 0; i < N; i++) {
        p[i] = usm_pool_malloc(pool, sizes[i]);
        CHECK(p[i] != NULL);
        move_block(pool, p[i], sizes[i], seed + i, true);
    }
}

static void check(usm_pool *pool, void *p[N], uint64_t seed)
{
    for (size_t i = 0; i < N; i++)
        if (p[i])
            move_block(pool, p[i], sizes[i], seed + i, false);
}

static usm_pool_stats stats_of(usm_pool *pool)
{
    usm_pool_stats stats = USM_POOL_STATS_INIT;

    CHECK_INT(usm_pool_get_stats(pool, &stats), USM_OK);
    return stats;
}

/* The bytes that the system has given: the process's memory, or what the device has not free. */
static uint64_t bytes_taken(void)
{
    usm_memory_info info  = USM_MEMORY_INFO_INIT;
    unsigned long   pages = 0;
    FILE           *f;

    if (at.is_host) {
        CHECK((f = fopen("/proc/self/statm", "re")) != NULL);
        CHECK_INT(fscanf(f, "%*u %lu", &pages), 1);
        (void)fclose(f);
        return pages * 4 * KIB;
    }
    CHECK_INT(usm_device_memory(usm_queue_get_device(at.q), &info), USM_OK);
    return info.total - info.free;
}

static void is_busy(usm_pool *pool)
{
    CHECK(usm_pool_malloc(pool, 64) == NULL);
    CHECK_INT(usm_last_status(), USM_E_BUSY);
    CHECK(usm_pool_malloc(pool, 3 * MIB) == NULL);
    CHECK_INT(usm_last_status(), USM_E_BUSY);
    CHECK(usm_async_malloc_from_pool(at.q, 64, pool) == NULL);
    CHECK_INT(usm_last_status(), USM_E_BUSY);
}

/* ---- what it is for ----------------------------------------------------------------------- */

static void sleep_and_wake(usm_kind kind)
{
    usm_pool      *pool = make_pool(kind, false);
    uint64_t       before, held;
    usm_pool_stats stats;
    void          *p[N];

    fill(pool, p, 1);
    held   = stats_of(pool).reserved;
    before = bytes_taken();
    CHECK_INT(usm_pool_sleep(pool, USM_SLEEP_KEEP), USM_OK);
    stats = stats_of(pool);
    CHECK_INT(stats.reserved, 0);
    CHECK(stats.asleep > 0 && stats.asleep <= held);
    if (!at.is_host || at.is_file) /* else the tier has the bytes */
        CHECK(bytes_taken() + stats.asleep / 2 <= before);
    is_busy(pool);
    CHECK_INT(usm_pool_sleep(pool, USM_SLEEP_KEEP), USM_OK); /* sleeps already */
    CHECK_INT(usm_pool_wake(pool), USM_OK);
    CHECK_INT(stats_of(pool).asleep, 0);
    CHECK_INT(stats_of(pool).reserved, stats.asleep);
    CHECK_INT(usm_pool_wake(pool), USM_OK); /* is awake */
    check(pool, p, 1);
    usm_pool_free_batch(pool, N, p);
    fill(pool, p, 100);
    check(pool, p, 100);
    usm_pool_destroy(pool);
}

static void memory_goes_and_comes_back(void)
{
    sleep_and_wake(USM_DEVICE);
    if (at.is_host) {
        sleep_and_wake(USM_HOST);
        sleep_and_wake(USM_SHARED);
    }
}

static void what_is_discarded_is_not_stored(void)
{
    usm_pool       *pool;
    usm_spill_stats spill = {.struct_size = sizeof spill};
    uint64_t        stored;
    void           *p[N];

    CHECK_INT(usm_spill_get_stats(NULL, &spill), USM_OK);
    stored = fake_counts_of(FAKE_A).stores;
    pool   = make_pool(USM_DEVICE, false);
    fill(pool, p, 1);
    CHECK_INT(usm_pool_sleep(pool, USM_SLEEP_DISCARD), USM_OK);
    CHECK_INT(fake_counts_of(FAKE_A).stores, stored);
    CHECK_INT(usm_pool_wake(pool), USM_OK);
    for (size_t i = 0; i < N; i++)
        move_block(pool, p[i], sizes[i], 5 + i, true);
    check(pool, p, 5);
    usm_pool_destroy(pool);
}

static void blocks_are_freed_in_their_sleep(void)
{
    usm_pool *pool;
    uint64_t  asleep;
    void     *p[N], *large;

    pool = make_pool(USM_DEVICE, false);
    fill(pool, p, 7);
    large = usm_pool_malloc(pool, 5 * MIB); /* has pieces of its own */
    move_block(pool, large, 5 * MIB, 1, true);
    CHECK_INT(usm_pool_sleep(pool, USM_SLEEP_KEEP), USM_OK);
    asleep = stats_of(pool).asleep;
    for (size_t i = 1; i < N; i += 2) {
        usm_free(p[i]);
        p[i] = NULL;
    }
    usm_pool_free(pool, large);
    is_busy(pool); /* also for the size of a block that was just freed */
    CHECK_INT(usm_pool_trim_to(pool, 0), USM_OK);
    CHECK(stats_of(pool).asleep < asleep);
    CHECK_INT(usm_pool_wake(pool), USM_OK);
    check(pool, p, 7);
    CHECK_INT(stats_of(pool).blocks, N - N / 2);
    CHECK_INT(usm_pool_sleep(pool, USM_SLEEP_KEEP), USM_OK);
    usm_pool_free(pool, p[0]);
    usm_pool_destroy(pool);
    if (!at.is_file)
        CHECK_INT(fake_counts_of(FAKE_A).blocks, 0);
}

/* Zero blocks are stored nowhere, but are zero again. */
static void zeros_stay_zero(void)
{
    usm_pool *pool;
    uint64_t *p;

    if (at.is_null)
        return;
    pool = make_pool(USM_DEVICE, false);
    p    = usm_pool_malloc(pool, 4 * MIB);
    CHECK(p != NULL);
    CHECK_INT(usm_memset(at.q, p, 0, 4 * MIB, 0, NULL, NULL), USM_OK);
    CHECK_INT(usm_memset(at.q, (char *)p + 3 * MIB, 1, 8, 0, NULL, NULL), USM_OK);
    CHECK_INT(usm_pool_sleep(pool, USM_SLEEP_KEEP), USM_OK); /* waits for both */
    CHECK_INT(usm_pool_wake(pool), USM_OK);
    CHECK_INT(usm_memcpy(at.q, at.bytes, p, 4 * MIB, 0, NULL, NULL), USM_OK);
    CHECK_INT(usm_queue_wait(at.q), USM_OK);
    for (size_t i = 0; i < 4 * MIB / 8; i++)
        CHECK(at.bytes[i] == (i == 3 * MIB / 8 ? UINT64_C(0x0101010101010101) : 0));
    usm_pool_destroy(pool);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void refused(usm_pool *pool, usm_status status, const char *why)
{
    CHECK_INT(usm_pool_sleep(pool, USM_SLEEP_KEEP), status);
    CHECK_IN(why, usm_last_error());
}

static void refusals_say_why(void)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;

    refused(NULL, USM_E_INVALID_HANDLE, "");
    refused(usm_pool_default(at.ctx, NULL, USM_DEVICE), USM_E_NOT_SUPPORTED, "default pool");
    desc.name = "arena";
    CHECK_INT(usm_pool_create(at.ctx, NULL, USM_DEVICE, &desc, &pool), USM_OK);
    refused(pool, USM_E_NOT_SUPPORTED, "arena");
    usm_pool_destroy(pool);
    pool = make_pool(USM_DEVICE, false);
    if (at.is_opencl)
        refused(pool, USM_E_NOT_SUPPORTED, "reserved addresses");
    else
        CHECK_INT(usm_pool_sleep(pool, (usm_sleep_contents)7), USM_E_INVALID);
    CHECK_INT(usm_pool_wake(pool), USM_OK);
    usm_pool_destroy(pool);
    if (!at.is_host)
        return;
    desc.name        = "slab";
    desc.export_mode = USM_POOL_EXPORT_RW;
    CHECK_INT(usm_pool_create(at.ctx, NULL, USM_HOST, &desc, &pool), USM_OK);
    refused(pool, USM_E_NOT_SUPPORTED, "exports");
    usm_pool_destroy(pool);
}

static usm_status sleep_in_a_task(void *pool)
{
    CHECK_INT(usm_pool_sleep(pool, USM_SLEEP_KEEP), USM_E_BUSY);
    return USM_OK;
}

static void a_task_cannot_wait_for_itself(void)
{
    usm_pool *pool;

    if (at.is_null) /* which has no tasks */
        return;
    pool = make_pool(USM_DEVICE, false);
    CHECK_INT(usm_host_task(at.q, sleep_in_a_task, pool, 0, NULL, NULL), USM_OK);
    CHECK_INT(usm_queue_wait(at.q), USM_OK);
    usm_pool_destroy(pool);
}

static void touch(void *p)
{
    *(volatile char *)p = 1;
}

static usm_pool *of_child;
static void     *block_of_child;

static void end_at_signal(int signal)
{
    (void)signal;
    _exit(42);
}

static void touch_asleep(void)
{
    (void)signal(SIGSEGV, end_at_signal); /* a sanitizer has one of its own */
    touch(block_of_child);
}

static void accesses_fault(void)
{
    int status;

    if (!at.is_host || PLAIN_TSAN) /* which a fork() has too many locks for */
        return;
    of_child       = make_pool(USM_HOST, false);
    block_of_child = usm_pool_malloc(of_child, MIB);
    touch(block_of_child);
    CHECK_INT(usm_pool_sleep(of_child, USM_SLEEP_KEEP), USM_OK);
    status = plain_child(touch_asleep, NULL);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    usm_pool_destroy(of_child);
}

static usm_pool *make_tagged(const char *tag)
{
    usm_pool *pool;

    CHECK_INT(usm_tag_push(tag), USM_OK);
    pool = make_pool(USM_DEVICE, false);
    CHECK_INT(usm_tag_pop(), USM_OK);
    return pool;
}

static void a_tag_sleeps_with_all_its_pools(void)
{
    usm_pool *a = make_tagged("models"), *b = make_tagged("models"), *other = make_tagged("model");
    void     *in_a[N], *in_b[N], *in_other[N];
    uint64_t  pieces;

    fill(a, in_a, 1);
    fill(b, in_b, 2);
    fill(other, in_other, 3);
    CHECK_INT(usm_tag_sleep("models", USM_SLEEP_KEEP), USM_OK);
    pieces = stats_of(a).asleep / (2 * MIB);
    CHECK(pieces > 0 && stats_of(b).asleep && !stats_of(other).asleep);
    CHECK_INT(usm_tag_wake("models"), USM_OK);
    CHECK(usm__fault_arm("vmem_unmap", pieces + 1, false, USM_OK)); /* of the second pool */
    CHECK(usm_tag_sleep("models", USM_SLEEP_KEEP) != USM_OK);
    usm__fault_disarm_all();
    CHECK(!stats_of(a).asleep && !stats_of(b).asleep);
    check(a, in_a, 1);
    check(b, in_b, 2);
    check(other, in_other, 3);
    CHECK_INT(usm_tag_sleep("nobody's", USM_SLEEP_KEEP), USM_E_INVALID);
    CHECK_IN("nobody's", usm_last_error());
    CHECK_INT(usm_tag_wake(NULL), USM_E_INVALID);
    usm_pool_destroy(a);
    usm_pool_destroy(b);
    usm_pool_destroy(other);
}

/* A context with a limit of its own has an engine of its own, which ends before its pools. */
static void a_context_ends_in_its_sleep(void)
{
    usm_context_desc desc = USM_CONTEXT_DESC_INIT;
    usm_device      *dev  = usm_queue_get_device(at.q);
    usm_context     *ctx = NULL, *before = at.ctx;
    usm_queue       *q = NULL, *q_before = at.q;
    usm_queue_desc   qd = USM_QUEUE_DESC_INIT;
    void            *p[N];

    desc.host_limit = 64 * MIB;
    desc.devices    = &dev;
    desc.ndevices   = 1;
    CHECK_INT(usm_context_create(&desc, &ctx), USM_OK);
    CHECK_INT(usm_queue_create(ctx, dev, &qd, &q), USM_OK);
    at.ctx = ctx;
    at.q   = q;
    fill(make_pool(USM_DEVICE, false), p, 1);
    of_child = make_pool(USM_DEVICE, false);
    fill(of_child, p, 1);
    CHECK_INT(usm_pool_sleep(of_child, USM_SLEEP_KEEP), USM_OK);
    at.ctx = before;
    at.q   = q_before;
    usm_queue_destroy(q);
    usm_context_destroy(ctx);
}

/* ---- calls that fail ------------------------------------------------------------------------ */

/* Awake and whole, or asleep to be woken. */
static void is_whole(usm_pool *pool, void *p[N], uint64_t seed)
{
    if (stats_of(pool).asleep)
        is_busy(pool);
    CHECK_INT(usm_pool_wake(pool), USM_OK);
    check(pool, p, seed);
}

/* The n-th call of a sleep or a wake-up fails, or all from it on, for each n. */
static void sweep(const char *name, bool onwards)
{
    usm_pool *pool     = make_pool(USM_DEVICE, false);
    unsigned  failures = 0;
    uint64_t  fired    = 1;
    void     *p[N];

    fill(pool, p, 3);
    for (uint64_t n = 1; fired; n++) {
        usm_status slept, woken;

        CHECK(usm__fault_arm(name, n, onwards, USM_OK));
        slept = usm_pool_sleep(pool, USM_SLEEP_KEEP);
        fired = usm__fault_fired();
        usm__fault_disarm_all();
        if (slept != USM_OK) {
            CHECK(onwards || stats_of(pool).asleep == 0);
            is_whole(pool, p, 3);
            CHECK_INT(usm_pool_sleep(pool, USM_SLEEP_KEEP), USM_OK);
        }
        CHECK(usm__fault_arm(name, n, onwards, USM_OK));
        woken = usm_pool_wake(pool);
        fired += usm__fault_fired();
        usm__fault_disarm_all();
        CHECK(onwards || (woken == USM_OK) == (stats_of(pool).asleep == 0));
        if (slept != USM_OK || woken != USM_OK || !fired)
            is_whole(pool, p, 3);
        failures += (slept != USM_OK) + (woken != USM_OK);
    }
    CHECK(failures > 0);
    usm_pool_destroy(pool);
}

static void each_call_may_fail(void)
{
    sweep("*", false);
}

static void all_calls_from_one_on_may_fail(void)
{
    sweep("*", true);
}

static void a_limit_keeps_it_asleep(void)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL, *other = NULL;
    void         *p[N], *rest;

    desc.name         = "slab";
    desc.area_size    = 2 * MIB;
    desc.maximum_size = 32 * MIB;
    CHECK_INT(usm_pool_create(at.ctx, NULL, USM_DEVICE, &desc, &pool), USM_OK);
    other = make_pool(USM_DEVICE, false);
    fill(pool, p, 9);
    CHECK_INT(usm_pool_sleep(pool, USM_SLEEP_KEEP), USM_OK);
    rest = usm_pool_malloc(other, 5 * MIB);
    CHECK(rest != NULL);
    usm_pool_free(other, rest); /* its pool keeps it, unless another needs it */
    CHECK(usm__fault_arm("vmem_map", 1, false, USM_E_NO_MEMORY));
    CHECK_INT(usm_pool_wake(pool), USM_OK); /* has asked the other pool */
    usm__fault_disarm_all();
    check(pool, p, 9);
    usm_pool_destroy(pool);
    usm_pool_destroy(other);
}

/* ---- tiers that fail ------------------------------------------------------------------------ */

/* The tier is the one in memory, and gets something. */
static bool has_fake(void)
{
    return !at.is_file && !at.is_null;
}

static void a_full_tier_leaves_it_awake(void)
{
    usm_pool *pool;
    void     *p[N];

    if (!has_fake())
        return;
    pool = make_pool(USM_DEVICE, false);
    fill(pool, p, 11);
    fake_plan_of(FAKE_A)->store_full = 1000;
    CHECK_INT(usm_pool_sleep(pool, USM_SLEEP_KEEP), USM_E_SPILL_FULL);
    is_whole(pool, p, 11);
    fake_plan_of(FAKE_A)->store_full = 0;
    CHECK_INT(fake_counts_of(FAKE_A).blocks, 0);
    usm_pool_destroy(pool);
}

static void what_cannot_be_read_stays_asleep(void)
{
    usm_pool *pool;
    void     *p[N];

    if (!has_fake())
        return;
    pool = make_pool(USM_DEVICE, false);
    fill(pool, p, 13);
    CHECK_INT(usm_pool_sleep(pool, USM_SLEEP_KEEP), USM_OK);
    fake_plan_of(FAKE_A)->fetch_eio = 1000;
    CHECK_INT(usm_pool_wake(pool), USM_E_IO);
    CHECK_IN("fake_a", usm_last_error());
    CHECK_INT(stats_of(pool).reserved, 0);
    fake_plan_of(FAKE_A)->fetch_eio = 0;
    is_whole(pool, p, 13);
    usm_pool_destroy(pool);
}

static void a_flipped_bit_is_found(void)
{
    usm_pool      *pool;
    unsigned char *bytes;
    void          *p[N];

    if (!has_fake())
        return;
    pool = make_pool(USM_DEVICE, false);
    fill(pool, p, 17);
    CHECK_INT(usm_pool_sleep(pool, USM_SLEEP_KEEP), USM_OK);
    bytes = fake_block(FAKE_A, fake_nth(FAKE_A, 3));
    CHECK(bytes != NULL);
    bytes[100] ^= 4;
    CHECK_INT(usm_pool_wake(pool), USM_E_CORRUPT);
    CHECK_INT(usm_pool_wake(pool), USM_E_CORRUPT);
    is_busy(pool);
    bytes[100] ^= 4;
    is_whole(pool, p, 17);
    usm_pool_destroy(pool);
}

/* ---- threads, fork() ------------------------------------------------------------------------ */

typedef struct crowd {
    usm_pool   *pool;
    atomic_bool end;
    atomic_uint got, refused;
} crowd;

static void *allocate(void *arg)
{
    crowd   *c        = arg;
    uint64_t r        = (uintptr_t)&r;
    void    *mine[16] = {NULL};

    while (!atomic_load(&c->end)) {
        uint64_t k = fake_random(&r);
        void   **p = &mine[k % 16];

        if (*p) {
            usm_pool_free(c->pool, *p);
            *p = NULL;
            continue;
        }
        *p = usm_pool_malloc(c->pool, k >> 8 & 1 ? 64 + (k >> 16) % 1000 : (k >> 16) % (2 * MIB));
        CHECK(*p || usm_last_status() == USM_E_BUSY);
        atomic_fetch_add(*p ? &c->got : &c->refused, 1);
        if (!*p)
            (void)usleep(50);
    }
    for (size_t i = 0; i < 16; i++)
        usm_pool_free(c->pool, mine[i]);
    return NULL;
}

static void *move(void *arg)
{
    crowd *c = arg;

    while (!atomic_load(&c->end)) {
        usm_status st = usm_pool_sleep(c->pool, USM_SLEEP_KEEP);

        CHECK(st == USM_OK || st == USM_E_BUSY);
        (void)usleep(50);
        st = usm_pool_wake(c->pool);
        CHECK(st == USM_OK || st == USM_E_BUSY);
        (void)usleep(50);
    }
    return NULL;
}

static void threads_meet(bool zero_init)
{
    crowd     c = {.pool = make_pool(USM_DEVICE, zero_init && !at.is_null)};
    pthread_t threads[4];
    void     *p[N];

    fill(c.pool, p, 19);
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, i < 2 ? allocate : move, &c), 0);
    while (atomic_load(&c.got) < 200 || atomic_load(&c.refused) < 200)
        (void)usleep(1000);
    atomic_store(&c.end, true);
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    is_whole(c.pool, p, 19);
    CHECK_INT(stats_of(c.pool).blocks, N);
    usm_pool_destroy(c.pool);
}

static void threads_are_refused_or_served(void)
{
    threads_meet(false);
    threads_meet(true);
}

static void in_the_child(void)
{
    CHECK_INT(usm_pool_wake(of_child), USM_E_FORKED);
    CHECK_INT(usm_pool_sleep(of_child, USM_SLEEP_KEEP), USM_E_FORKED);
    CHECK(usm_pool_malloc(of_child, 64) == NULL);
}

static void a_child_cannot_wake_it(void)
{
    void *p[N];

    if (PLAIN_TSAN)
        return;
    of_child = make_pool(at.is_host ? USM_HOST : USM_DEVICE, false);
    fill(of_child, p, 23);
    CHECK_INT(usm_pool_sleep(of_child, USM_SLEEP_KEEP), USM_OK);
    CHECK_INT(plain_child(in_the_child, NULL), 0);
    is_whole(of_child, p, 23);
    usm_pool_destroy(of_child);
}

/* ---- a model -------------------------------------------------------------------------------- */

#define HELD   24
#define SLEEPS 1000

typedef struct held {
    void    *p;
    size_t   size;
    uint64_t seed; /* 0: its contents were discarded */
} held;

static void one_step(usm_pool *pool, held *h, uint64_t *r, bool is_asleep)
{
    uint64_t k = fake_random(r);

    if (h->p && k % 3 == 0) {
        usm_free(h->p);
        h->p = NULL;
    } else if (h->p && !is_asleep) {
        if (h->seed)
            move_block(pool, h->p, h->size, h->seed, false);
        h->seed = k | 1;
        move_block(pool, h->p, h->size, h->seed, true);
    } else if (!h->p) {
        h->size = k % 8 == 0 ? k >> 8 & (256 * KIB - 1) : 64 + (k >> 8) % 3000;
        h->p    = usm_pool_malloc(pool, h->size);
        CHECK_INT(h->p == NULL, is_asleep);
        h->seed = k | 1;
        if (h->p)
            move_block(pool, h->p, h->size, h->seed, true);
    }
}

static void a_thousand_sleeps(void)
{
    usm_pool   *pool;
    const char *given = getenv("USM_TEST_SEED");
    uint64_t    seed = given ? strtoull(given, NULL, 0) : 88172645463325252, r = seed;
    held        list[HELD] = {{NULL, 0, 0}};

    printf("# USM_TEST_SEED=%llu\n", (unsigned long long)seed);
    pool = make_pool(USM_DEVICE, false);
    for (unsigned n = 0; n < SLEEPS; n++) {
        bool discards = fake_random(&r) % 8 == 0;

        for (unsigned i = fake_random(&r) % 12; i > 0; i--)
            one_step(pool, &list[fake_random(&r) % HELD], &r, false);
        CHECK_INT(usm_pool_sleep(pool, discards ? USM_SLEEP_DISCARD : USM_SLEEP_KEEP), USM_OK);
        for (unsigned i = fake_random(&r) % 4; i > 0; i--)
            one_step(pool, &list[fake_random(&r) % HELD], &r, true);
        CHECK_INT(usm_pool_wake(pool), USM_OK);
        for (unsigned i = 0; i < HELD; i++)
            if (list[i].p && discards)
                list[i].seed = 0;
            else if (list[i].p && list[i].seed && n % 16 == 0)
                move_block(pool, list[i].p, list[i].size, list[i].seed, false);
    }
    usm_pool_destroy(pool);
}

static const plain_case cases[] = {
    CASE(memory_goes_and_comes_back),
    CASE(what_is_discarded_is_not_stored),
    CASE(blocks_are_freed_in_their_sleep),
    CASE(zeros_stay_zero),
    CASE(refusals_say_why),
    CASE(a_task_cannot_wait_for_itself),
    CASE(accesses_fault),
    CASE(a_tag_sleeps_with_all_its_pools),
    CASE(a_context_ends_in_its_sleep),
    CASE(each_call_may_fail),
    CASE(all_calls_from_one_on_may_fail),
    CASE(a_limit_keeps_it_asleep),
    CASE(a_full_tier_leaves_it_awake),
    CASE(what_cannot_be_read_stays_asleep),
    CASE(a_flipped_bit_is_found),
    CASE(threads_are_refused_or_served),
    CASE(a_child_cannot_wake_it),
    CASE(a_thousand_sleeps),
    {NULL, NULL},
};

static int start(void)
{
    usm_queue_desc  desc = USM_QUEUE_DESC_INIT;
    usm_device_info info = USM_DEVICE_INFO_INIT;

    at.is_file = getenv("USM_TEST_REAL") != NULL;
    (void)setenv("USM_SPILL", at.is_file ? "file:/var/tmp" : "fake_a:", 1);
    (void)setenv("USM_SPILL_BLOCK", "256K", 1);
    (void)setenv("ZES_ENABLE_SYSMAN", "1", 1);        /* Level Zero then knows what is free */
    (void)setenv("USM_MEMORY_LIMIT", "host:256M", 1); /* more would make larger blocks */
    fake_reset();
    if (usm_queue_create(NULL, NULL, &desc, &at.q) != USM_OK ||
        usm_device_get_info(usm_queue_get_device(at.q), &info) != USM_OK)
        return 1;
    at.ctx       = usm_queue_get_context(at.q);
    at.is_host   = strcmp(info.backend, "host") == 0;
    at.is_null   = strcmp(info.backend, "null") == 0;
    at.is_opencl = strcmp(info.backend, "opencl") == 0;
    at.bytes     = malloc(WORDS * sizeof(uint64_t));
    return at.bytes == NULL;
}

int main(int argc, char **argv)
{
    int result = start();

    if (result == 0)
        result = plain_main(argc, argv, cases);
    else
        (void)fprintf(stderr, "%s\n", usm_last_error());
    usm_queue_destroy(at.q);
    free(at.bytes);
    return result;
}
