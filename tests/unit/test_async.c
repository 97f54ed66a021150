/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Stream-ordered allocation on one runtime: what usm/async.h promises, with queues that are held
 * back by user events, so that nothing here depends on how fast a device is.  Random schedules of
 * many queues are tests/async/. */
#include "plain.h"

#include <usm/usm.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <time.h>

#define SIZE ((size_t)100000)

static usm_queue *new_queue(uint32_t flags)
{
    usm_queue_desc d = USM_QUEUE_DESC_INIT;
    usm_queue     *q;

    d.flags = flags;
    CHECK_INT(usm_queue_create(NULL, NULL, &d, &q), USM_OK);
    return q;
}

/* A pool of its own, so that figures are this case's alone. */
static usm_pool *new_pool(usm_queue *q, const usm_pool_desc *desc)
{
    usm_pool *pool;

    CHECK_INT(usm_pool_create(usm_queue_get_context(q), NULL, USM_DEVICE, desc, &pool), USM_OK);
    return pool;
}

/* Nothing that comes later in q happens before the event is signalled. */
static usm_event *hold(usm_queue *q)
{
    usm_event *gate;

    CHECK_INT(usm_event_create(usm_queue_get_context(q), &gate), USM_OK);
    CHECK_INT(usm_queue_barrier(q, 1, &gate, NULL), USM_OK);
    return gate;
}

static void let_go(usm_event *gate)
{
    CHECK_INT(usm_event_signal(gate, USM_OK), USM_OK);
    usm_event_release(gate);
}

/* Blocks that have a record (USM_VALIDATION, AddressSanitizer) are given back first. */
static bool is_reused(void)
{
    const char *validation = getenv("USM_VALIDATION");
    bool        asan       = false;

#if defined(__SANITIZE_ADDRESS__)
    asan = true;
#endif
    return !asan && !(validation && *validation == '1');
}

#ifndef __SANITIZE_ADDRESS__
static void need_reuse(void)
{
    if (!is_reused())
        SKIP("freed blocks stay away for a while when they are watched");
}
#endif

static uint64_t get(usm_pool *pool, usm_pool_attribute which)
{
    uint64_t value = 0;

    CHECK_INT(usm_pool_get_attribute(pool, which, &value), USM_OK);
    return value;
}

static void set(usm_pool *pool, usm_pool_attribute which, uint64_t value)
{
    CHECK_INT(usm_pool_set_attribute(pool, which, value), USM_OK);
}

static void *take(usm_queue *q, usm_pool *pool, size_t size)
{
    void *p = usm_async_malloc_from_pool(q, size, pool);

    CHECK(p != NULL);
    return p;
}

/* A command of q that uses p. */
static void use(usm_queue *q, void *p)
{
    CHECK_INT(usm_memset(q, p, 1, 64, 0, NULL, NULL), USM_OK);
}

/* ---- one queue ---------------------------------------------------------------------- */

#ifndef __SANITIZE_ADDRESS__
static void a_queue_has_its_own_blocks_again_at_once(void)
{
    usm_queue *q;
    usm_pool  *pool;
    usm_event *gate;

    need_reuse();
    q    = new_queue(0);
    pool = new_pool(q, NULL);
    gate = hold(q);
    for (size_t size = 1; size < (size_t)8 << 20; size = size * 5 + 1) {
        void *p = take(q, pool, size), *again;

        CHECK_INT(usm_memset(q, p, 1, size, 0, NULL, NULL), USM_OK);
        CHECK_INT(usm_async_free(q, p), USM_OK);
        again = take(q, pool, size);
        CHECK(again == p);
        CHECK_INT(usm_async_free(q, again), USM_OK);
    }
    CHECK(get(pool, USM_POOL_QUEUED_EVENTS) <= 1); /* of the first miss: it is still under way */
    CHECK_INT(get(pool, USM_POOL_HOST_WAITS), 0);
    CHECK(get(pool, USM_POOL_QUEUED_CURRENT) > 0);
    CHECK(get(pool, USM_POOL_QUEUED_REUSES) > 5);
    CHECK_INT(get(pool, USM_POOL_USED_CURRENT), 0);
    let_go(gate);
    CHECK_INT(usm_queue_wait(q), USM_OK);
    CHECK_INT(get(pool, USM_POOL_QUEUED_CURRENT), 0);
    usm_pool_destroy(pool);
    usm_queue_destroy(q);
}
#endif

static void a_freed_block_is_free_for_every_check(void)
{
    usm_queue *q     = new_queue(0);
    usm_event *gate  = hold(q);
    char      *p     = usm_async_malloc(q, USM_DEVICE, SIZE);
    char      *other = usm_malloc_device(SIZE, q);

    CHECK(p != NULL && other != NULL);
    CHECK_INT(usm_get_pointer_type(p + 5, NULL), USM_DEVICE);
    CHECK_INT(usm_async_free(q, p + 64), USM_E_INTERIOR_POINTER);
    CHECK_INT(usm_async_free(q, p), USM_OK);
    CHECK_INT(usm_get_pointer_type(p, NULL), USM_UNKNOWN);
    CHECK_INT(usm_async_free(q, p), USM_E_DOUBLE_FREE);
    CHECK(usm_last_error()[0] != 0);
    CHECK_INT(usm_free_ctx(p, NULL), USM_E_DOUBLE_FREE);
    CHECK_INT(usm_memset(q, p, 0, 1, 0, NULL, NULL), USM_E_INVALID_POINTER);
    CHECK_INT(usm_async_free(q, other), USM_OK);
    CHECK_INT(usm_async_free(q, other), USM_E_DOUBLE_FREE);
    CHECK_INT(usm_async_free(q, &gate), USM_E_INVALID_POINTER);
    CHECK_INT(usm_async_free(q, NULL), USM_OK);
    let_go(gate);
    CHECK_INT(usm_queue_wait(q), USM_OK);
    CHECK_INT(usm_async_free(q, p), USM_E_DOUBLE_FREE);
    usm_queue_destroy(q);
}

static void blocks_of_either_family_are_freed_by_the_other(void)
{
    usm_queue *q = new_queue(0);

    for (int i = 0; i < 100; i++) {
        void *a = usm_async_malloc(q, USM_DEVICE, SIZE), *b = usm_malloc_device(SIZE, q);

        CHECK(a != NULL && b != NULL && a != b);
        use(q, b);
        CHECK_INT(usm_async_free(q, b), USM_OK);
        CHECK_INT(usm_queue_wait(q), USM_OK);
        CHECK_INT(usm_free_ctx(a, NULL), USM_OK);
    }
    usm_queue_destroy(q);
}

/* ---- other queues ---------------------------------------------------------------------- */

/* What q freed behind a gate; the pool holds nothing else that fits. */
typedef struct two {
    usm_queue *q, *other;
    usm_pool  *pool;
    usm_event *gate;
    void      *p;
} two;

static void begin(two *t)
{
    t->q     = new_queue(0);
    t->other = new_queue(0);
    t->pool  = new_pool(t->q, NULL);
    t->gate  = hold(t->q);
    t->p     = take(t->q, t->pool, (size_t)4 << 20);
    use(t->q, t->p);
    CHECK_INT(usm_async_free(t->q, t->p), USM_OK);
    set(t->pool, USM_POOL_REUSE_FOLLOW_EVENTS, 0);
    set(t->pool, USM_POOL_REUSE_OPPORTUNISTIC, 0);
    set(t->pool, USM_POOL_REUSE_INSERT_WAITS, 0);
}

static void end(two *t)
{
    if (t->gate)
        let_go(t->gate);
    CHECK_INT(usm_queue_wait(t->q), USM_OK);
    CHECK_INT(usm_queue_wait(t->other), USM_OK);
    CHECK_INT(get(t->pool, USM_POOL_QUEUED_CURRENT), 0);
    CHECK_INT(get(t->pool, USM_POOL_USED_CURRENT), 0);
    CHECK_INT(get(t->pool, USM_POOL_HOST_WAITS), 0);
    usm_pool_destroy(t->pool);
    usm_queue_destroy(t->other);
    usm_queue_destroy(t->q);
}

static void take_and_free(two *t, bool same)
{
    void *p = take(t->other, t->pool, (size_t)4 << 20);

    CHECK((p == t->p) == same);
    use(t->other, p);
    CHECK_INT(usm_async_free(t->other, p), USM_OK);
}

static void another_queue_does_not_get_what_is_not_reached(void)
{
    two t;

    begin(&t);
    take_and_free(&t, false);
    CHECK_INT(get(t.pool, USM_POOL_QUEUED_WAITS), 0);
    end(&t);
}

#ifndef __SANITIZE_ADDRESS__
static void another_queue_gets_it_when_it_follows_an_event(void)
{
    two        t;
    usm_event *ev;

    need_reuse();
    begin(&t);
    set(t.pool, USM_POOL_REUSE_FOLLOW_EVENTS, 1);
    CHECK_INT(usm_queue_barrier(t.q, 0, NULL, &ev), USM_OK);
    CHECK_INT(usm_queue_barrier(t.other, 1, &ev, NULL), USM_OK);
    usm_event_release(ev);
    take_and_free(&t, true);
    CHECK_INT(get(t.pool, USM_POOL_QUEUED_EVENTS), 0);
    end(&t);
}
#endif

#ifndef __SANITIZE_ADDRESS__
static void an_event_before_the_free_is_not_followed(void)
{
    two        t;
    usm_event *ev;
    void      *p;

    need_reuse();
    begin(&t);
    set(t.pool, USM_POOL_REUSE_FOLLOW_EVENTS, 1);
    CHECK_INT(usm_queue_barrier(t.q, 0, NULL, &ev), USM_OK);
    p = take(t.q, t.pool, (size_t)4 << 20);
    CHECK(p == t.p);
    use(t.q, p);
    CHECK_INT(usm_async_free(t.q, p), USM_OK);
    CHECK_INT(usm_queue_barrier(t.other, 1, &ev, NULL), USM_OK);
    usm_event_release(ev);
    take_and_free(&t, false);
    end(&t);
}
#endif

/* A device may tell a moment later. */
static void another_queue_gets_it_once_it_is_reached(void)
{
    two       t;
    void     *p[200];
    size_t    n        = 0;
    bool      is_there = false;
    const int ms       = 1000000;

    begin(&t);
    set(t.pool, USM_POOL_REUSE_OPPORTUNISTIC, 1);
    take_and_free(&t, false);
    let_go(t.gate);
    t.gate = NULL;
    for (; n < 200 && !is_there; n++) {
        p[n]     = take(t.other, t.pool, (size_t)4 << 20);
        is_there = p[n] == t.p;
        (void)nanosleep(&(struct timespec){0, 5 * ms}, NULL);
    }
    CHECK(is_there);
    CHECK_INT(get(t.pool, USM_POOL_QUEUED_WAITS), 0);
    while (n > 0)
        CHECK_INT(usm_async_free(t.other, p[--n]), USM_OK);
    end(&t);
}

#ifndef __SANITIZE_ADDRESS__
static void a_wait_is_inserted_rather_than_memory_taken(void)
{
    two        t;
    uint64_t   reserved;
    usm_event *ev;

    need_reuse();
    begin(&t);
    set(t.pool, USM_POOL_REUSE_INSERT_WAITS, 1);
    reserved = get(t.pool, USM_POOL_RESERVED_CURRENT);
    take_and_free(&t, true);
    CHECK_INT(get(t.pool, USM_POOL_RESERVED_CURRENT), reserved);
    CHECK_INT(get(t.pool, USM_POOL_QUEUED_WAITS), 1);
    CHECK_INT(usm_queue_barrier(t.other, 0, NULL, &ev), USM_OK);
    CHECK_INT(usm_event_query(ev), USM_E_NOT_READY); /* it does wait */
    usm_event_release(ev);
    end(&t);
}
#endif

static void a_pool_that_is_full_waits_for_its_queues(void)
{
    usm_pool_desc d = USM_POOL_DESC_INIT;
    usm_queue    *q = new_queue(0);
    usm_pool     *pool;
    void         *p;

    d.maximum_size = (size_t)8 << 20;
    pool           = new_pool(q, &d);
    p              = take(q, pool, (size_t)6 << 20);
    use(q, p);
    CHECK_INT(usm_async_free(q, p), USM_OK);
    p = usm_pool_malloc(pool, (size_t)7 << 20); /* only all of it together is enough */
    CHECK(p != NULL);
    usm_pool_free(pool, p);
    p = take(q, pool, (size_t)6 << 20);
    CHECK(usm_async_malloc_from_pool(q, (size_t)6 << 20, pool) == NULL);
    CHECK_INT(errno, ENOMEM);
    CHECK_INT(usm_last_status(), USM_E_BUDGET);
    CHECK_INT(usm_async_free(q, p), USM_OK);
    usm_pool_destroy(pool);
    usm_queue_destroy(q);
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The thread that would wait is the one that holds the queue up. */
static void a_queue_that_is_held_up_is_not_waited_for_without_end(void)
{
    usm_pool_desc d = USM_POOL_DESC_INIT;
    usm_queue    *q = new_queue(0), *other = new_queue(0);
    usm_pool     *pool;
    usm_event    *gate;
    uint64_t      began;
    void         *p;

    d.maximum_size = (size_t)8 << 20;
    pool           = new_pool(q, &d);
    CHECK_INT(usm_config_set("queue_wait", "50"), USM_OK);
    gate = hold(q);
    p    = take(q, pool, (size_t)6 << 20);
    use(q, p);
    CHECK_INT(usm_async_free(q, p), USM_OK);
    set(pool, USM_POOL_REUSE_INSERT_WAITS, 0);
    began = now_ms();
    CHECK(usm_async_malloc_from_pool(other, (size_t)6 << 20, pool) == NULL);
    CHECK_INT(usm_last_status(), USM_E_BUDGET);
    CHECK(now_ms() - began >= 45); /* nor given up at once */
    CHECK(get(pool, USM_POOL_HOST_WAITS) >= 1);
    let_go(gate);
    CHECK_INT(usm_config_set("queue_wait", "30000"), USM_OK);
    p = take(other, pool, (size_t)6 << 20);
    CHECK_INT(usm_async_free(other, p), USM_OK);
    usm_pool_destroy(pool);
    usm_queue_destroy(other);
    usm_queue_destroy(q);
}

static void free_when_used(usm_queue *q, usm_pool *pool, size_t size)
{
    void *p = take(q, pool, size);

    use(q, p);
    CHECK_INT(usm_async_free(q, p), USM_OK);
}

/* An event that was recorded before a command does not stand for the free behind it. */
static void a_later_free_is_waited_for_by_an_event_of_its_own(void)
{
    usm_pool_desc d = USM_POOL_DESC_INIT;
    usm_queue    *q = new_queue(0), *other = new_queue(0);
    usm_pool     *pool;
    usm_event    *gate;

    d.maximum_size = (size_t)8 << 20;
    pool           = new_pool(q, &d);
    set(pool, USM_POOL_REUSE_INSERT_WAITS, 0);
    CHECK_INT(usm_config_set("queue_wait", "1"), USM_OK);
    gate = hold(q);
    free_when_used(q, pool, (size_t)1 << 20);
    CHECK(usm_async_malloc_from_pool(other, (size_t)8 << 20, pool) == NULL);
    CHECK_INT(get(pool, USM_POOL_QUEUED_EVENTS), 1);
    free_when_used(q, pool, (size_t)2 << 20);
    CHECK(usm_async_malloc_from_pool(other, (size_t)8 << 20, pool) == NULL);
    CHECK_INT(get(pool, USM_POOL_QUEUED_EVENTS), 2);
    let_go(gate);
    CHECK_INT(usm_config_set("queue_wait", "30000"), USM_OK);
    CHECK_INT(usm_queue_wait(q), USM_OK);
    usm_pool_destroy(pool);
    usm_queue_destroy(other);
    usm_queue_destroy(q);
}

/* ---- nothing is stranded ------------------------------------------------------------------ */

static void await_nothing_queued(usm_pool *pool)
{
    for (int i = 0; i < 2000 && (get(pool, USM_POOL_QUEUED_CURRENT) != 0 ||
                                 get(pool, USM_POOL_USED_CURRENT) != 0); /* on its way */
         i++)
        (void)nanosleep(&(struct timespec){0, 5000000}, NULL);
    CHECK_INT(get(pool, USM_POOL_QUEUED_CURRENT), 0);
    CHECK_INT(get(pool, USM_POOL_USED_CURRENT), 0);
}

static void a_queue_that_is_left_alone_gives_back(void)
{
    usm_queue *q    = new_queue(0);
    usm_pool  *pool = new_pool(q, NULL);

    for (size_t i = 0; i < 300; i++) {
        void *p = take(q, pool, i * 1000 + 1);

        use(q, p);
        CHECK_INT(usm_async_free(q, p), USM_OK);
    }
    await_nothing_queued(pool);
    CHECK(get(pool, USM_POOL_QUEUED_EVENTS) <= 20); /* one for many */
    free_when_used(q, pool, SIZE);                  /* and once more, in the same list */
    await_nothing_queued(pool);
    CHECK_INT(get(pool, USM_POOL_HOST_WAITS), 0);
    CHECK_INT(usm_pool_trim_to(pool, 0), USM_OK);
    CHECK_INT(get(pool, USM_POOL_RESERVED_CURRENT), 0);
    usm_pool_destroy(pool);
    usm_queue_destroy(q);
}

static void a_queue_destroyed_with_a_thousand_frees_gives_back(void)
{
    usm_queue *q = new_queue(0), *keeper = new_queue(0);
    usm_pool  *pool = new_pool(q, NULL);
    usm_event *gate = hold(q);
    void      *p[1000];

    for (size_t i = 0; i < 1000; i++) {
        p[i] = take(q, pool, i * 100 + 1);
        use(q, p[i]);
    }
    for (size_t i = 0; i < 1000; i++)
        CHECK_INT(usm_async_free(q, p[i]), USM_OK);
    usm_queue_destroy(q);
    CHECK(get(pool, USM_POOL_QUEUED_CURRENT) > 0);
    let_go(gate);
    await_nothing_queued(pool);
    usm_pool_destroy(pool);
    usm_queue_destroy(keeper);
}

static void a_pool_is_destroyed_with_frees_under_way(void)
{
    usm_queue *q = new_queue(0);

    for (int i = 0; i < 20; i++) {
        usm_pool *pool = new_pool(q, NULL);
        void     *p    = take(q, pool, SIZE);

        CHECK_INT(usm_memset(q, p, 1, SIZE, 0, NULL, NULL), USM_OK);
        CHECK_INT(usm_async_free(q, p), USM_OK);
        usm_pool_destroy(pool);
    }
    usm_queue_destroy(q);
}

static void the_threshold_is_kept_at_waits(void)
{
    usm_pool_desc d = USM_POOL_DESC_INIT;
    usm_queue    *q = new_queue(0);
    usm_pool     *pool;
    void         *p;

    d.threshold = (size_t)1 << 20;
    pool        = new_pool(q, &d);
    p           = take(q, pool, (size_t)16 << 20);
    use(q, p);
    CHECK_INT(usm_async_free(q, p), USM_OK);
    CHECK(get(pool, USM_POOL_RESERVED_CURRENT) >= (uint64_t)16 << 20);
    CHECK_INT(usm_queue_wait(q), USM_OK);
    CHECK(get(pool, USM_POOL_RESERVED_CURRENT) <= (uint64_t)4 << 20);
    CHECK_INT(get(pool, USM_POOL_THRESHOLD), (uint64_t)1 << 20);
    set(pool, USM_POOL_THRESHOLD, 0);
    usm_pool_destroy(pool);
    usm_queue_destroy(q);
}

static void the_statistics_tell_of_queues(void)
{
    usm_queue *q    = new_queue(0);
    usm_pool  *pool = new_pool(q, NULL);
    usm_event *gate = hold(q);
    char       text[16384];
    void      *p = take(q, pool, (size_t)3 << 20);

    CHECK_INT(usm_async_free(q, p), USM_OK);
    CHECK_INT(usm_pool_describe(pool, USM_TEXT, text, sizeof text, NULL), USM_OK);
    CHECK_IN("in queues      3 MiB", text);
    CHECK_INT(usm_pool_describe(pool, USM_JSON, text, sizeof text, NULL), USM_OK);
    CHECK_IN("\"queued\":3145728,", text);
    let_go(gate);
    CHECK_INT(usm_queue_wait(q), USM_OK);
    usm_pool_destroy(pool);
    usm_queue_destroy(q);
}

/* ---- out of order, dependencies ------------------------------------------------------------- */

static void need_out_of_order(void)
{
    usm_device *dev;
    size_t      n;

    CHECK_INT(usm_get_devices(&dev, 1, &n), USM_OK);
    if (!usm_device_has(dev, USM_ASPECT_OUT_OF_ORDER_QUEUE))
        SKIP("no out-of-order queues");
}

static void an_out_of_order_free_waits_for_its_dependencies(void)
{
    usm_queue *q;
    usm_pool  *pool;
    usm_event *gate, *ready, *used, *freed;
    void      *p;

    need_out_of_order();
    q    = new_queue(USM_QUEUE_OUT_OF_ORDER);
    pool = new_pool(q, NULL);
    CHECK_INT(usm_event_create(usm_queue_get_context(q), &gate), USM_OK);
    p = usm_async_malloc_from_pool_after(q, SIZE, pool, 1, &gate, &ready);
    CHECK(p != NULL);
    CHECK_INT(usm_event_query(ready), USM_E_NOT_READY);
    CHECK_INT(usm_memset(q, p, 1, SIZE, 1, &ready, &used), USM_OK);
    CHECK_INT(usm_async_free_after(q, p, 1, &used, &freed), USM_OK);
    CHECK_INT(usm_get_pointer_type(p, NULL), USM_UNKNOWN);
    CHECK(get(pool, USM_POOL_QUEUED_CURRENT) >= SIZE);
    let_go(gate);
    CHECK_INT(usm_event_wait(freed), USM_OK);
    await_nothing_queued(pool);
    usm_event_release(ready);
    usm_event_release(used);
    usm_event_release(freed);
    usm_pool_destroy(pool);
    usm_queue_destroy(q);
}

static void an_out_of_order_free_without_any_comes_behind_all(void)
{
    usm_queue *q;
    usm_pool  *pool;
    usm_event *gate;
    void      *p;

    need_out_of_order();
    q    = new_queue(USM_QUEUE_OUT_OF_ORDER);
    pool = new_pool(q, NULL);
    p    = take(q, pool, SIZE);
    CHECK_INT(usm_event_create(usm_queue_get_context(q), &gate), USM_OK);
    CHECK_INT(usm_memset(q, p, 1, SIZE, 1, &gate, NULL), USM_OK);
    CHECK_INT(usm_async_free(q, p), USM_OK);
    CHECK(get(pool, USM_POOL_QUEUED_CURRENT) >= SIZE);
    let_go(gate);
    await_nothing_queued(pool);
    usm_pool_destroy(pool);
    usm_queue_destroy(q);
}

typedef struct opener {
    usm_pool  *pool;
    usm_event *gate;
} opener;

static void *open_when_waited_for(void *arg)
{
    opener *o = arg;

    while (get(o->pool, USM_POOL_HOST_WAITS) == 0)
        sched_yield();
    let_go(o->gate);
    return NULL;
}

/* The thread that waits for it is woken by the free, not by the end of its time. */
static void a_full_pool_waits_for_an_out_of_order_free(void)
{
    usm_pool_desc d = USM_POOL_DESC_INIT;
    usm_queue    *q;
    opener        o;
    uint64_t      began;
    pthread_t     thread;
    void         *p;

    need_out_of_order();
    q              = new_queue(USM_QUEUE_OUT_OF_ORDER);
    d.maximum_size = (size_t)8 << 20;
    o.pool         = new_pool(q, &d);
    p              = take(q, o.pool, (size_t)6 << 20);
    CHECK_INT(usm_event_create(usm_queue_get_context(q), &o.gate), USM_OK);
    CHECK_INT(usm_async_free_after(q, p, 1, &o.gate, NULL), USM_OK);
    CHECK_INT(pthread_create(&thread, NULL, open_when_waited_for, &o), 0);
    began = now_ms();
    p     = take(q, o.pool, (size_t)6 << 20);
    CHECK(now_ms() - began < 20000); /* of the 30 s of USM_QUEUE_WAIT */
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(usm_async_free(q, p), USM_OK);
    await_nothing_queued(o.pool);
    usm_pool_destroy(o.pool);
    usm_queue_destroy(q);
}

static void dependencies_work_in_order_too(void)
{
    usm_queue *q = new_queue(0), *other = new_queue(0);
    usm_pool  *pool = new_pool(q, NULL);
    usm_event *gate, *ready, *freed;
    void      *p, *another;

    CHECK_INT(usm_event_create(usm_queue_get_context(q), &gate), USM_OK);
    p = usm_async_malloc_from_pool_after(q, SIZE, pool, 0, NULL, &ready);
    CHECK(p != NULL);
    use(q, p);
    CHECK_INT(usm_async_free_after(q, p, 1, &gate, &freed), USM_OK);
    set(pool, USM_POOL_REUSE_INSERT_WAITS, 0);
    another = take(other, pool, SIZE);
    CHECK(another != p);
    CHECK_INT(usm_async_free(other, another), USM_OK);
    CHECK_INT(usm_event_query(freed), USM_E_NOT_READY);
    let_go(gate);
    CHECK_INT(usm_event_wait(freed), USM_OK);
    CHECK_INT(usm_event_wait(ready), USM_OK);
    usm_event_release(freed);
    usm_event_release(ready);
    CHECK_INT(usm_queue_wait(q), USM_OK);
    usm_pool_destroy(pool);
    usm_queue_destroy(other);
    usm_queue_destroy(q);
}

/* ---- properties ------------------------------------------------------------------------------ */

static void zero_init_is_queued(void)
{
    usm_pool_desc d = USM_POOL_DESC_INIT;
    usm_queue    *q = new_queue(0);
    usm_pool     *pool;
    unsigned char back[4096];

    d.zero_init = true;
    pool        = new_pool(q, &d);
    for (int i = 0; i < 10; i++) {
        void *p = take(q, pool, sizeof back);

        CHECK_INT(usm_memcpy(q, back, p, sizeof back, 0, NULL, NULL), USM_OK);
        CHECK_INT(usm_memset(q, p, 0xaa, sizeof back, 0, NULL, NULL), USM_OK);
        CHECK_INT(usm_async_free(q, p), USM_OK);
        CHECK_INT(usm_queue_wait(q), USM_OK);
        for (size_t k = 0; k < sizeof back; k++)
            CHECK_INT(back[k], 0);
    }
    CHECK_INT(get(pool, USM_POOL_ZERO_INIT), 1);
    usm_pool_destroy(pool);
    usm_queue_destroy(q);
}

static void attributes_refuse_what_is_none(void)
{
    usm_queue *q    = new_queue(0);
    usm_pool  *pool = new_pool(q, NULL);
    uint64_t   value;

    CHECK_INT(usm_pool_get_attribute(pool, (usm_pool_attribute)99, &value), USM_E_INVALID);
    CHECK_INT(usm_pool_get_attribute(pool, USM_POOL_THRESHOLD, NULL), USM_E_INVALID);
    CHECK_INT(usm_pool_set_attribute(pool, USM_POOL_RESERVED_CURRENT, 0), USM_E_INVALID);
    CHECK_INT(usm_pool_set_attribute(pool, USM_POOL_RESERVED_HIGH, 1), USM_E_INVALID);
    CHECK_INT(usm_pool_set_attribute(pool, USM_POOL_REUSE_INSERT_WAITS, 2), USM_E_INVALID);
    set(pool, USM_POOL_RESERVED_HIGH, 0);
    CHECK_INT(usm_async_free(q, take(q, pool, SIZE)), USM_OK);
    (void)take(q, pool, SIZE);
    CHECK_INT(get(pool, USM_POOL_QUEUED_REUSES), is_reused() ? 1 : 0);
    set(pool, USM_POOL_QUEUED_REUSES, 0);
    CHECK_INT(get(pool, USM_POOL_QUEUED_REUSES), 0);
    CHECK(usm_pool_get_context(pool) == usm_queue_get_context(q));
    CHECK(usm_pool_get_device(pool) == usm_queue_get_device(q));
    CHECK_INT(usm_pool_get_kind(pool), USM_DEVICE);
    usm_pool_destroy(pool);
    usm_queue_destroy(q);
}

static void a_descriptor_of_an_older_program_is_taken(void)
{
    usm_pool_desc d = USM_POOL_DESC_INIT;
    usm_queue    *q = new_queue(0);
    usm_pool     *pool;

    d.struct_size = offsetof(usm_pool_desc, export_mode);
    d.export_mode = 77; /* what lies behind it is not looked at */
    d.threshold   = 1;
    pool          = new_pool(q, &d);
    CHECK_INT(get(pool, USM_POOL_THRESHOLD), 0);
    CHECK_INT(get(pool, USM_POOL_EXPORT_MODE), 0);
    usm_pool_destroy(pool);
    d.struct_size -= 8;
    CHECK_INT(usm_pool_create(usm_queue_get_context(q), NULL, USM_DEVICE, &d, &pool), USM_E_ABI);
    usm_queue_destroy(q);
}

static void every_pool_takes_part(void)
{
    static const char *const names[] = {"slab", "direct", "arena"};
    usm_queue               *q       = new_queue(0);

    for (size_t i = 0; i < 3; i++) {
        usm_pool_desc d = USM_POOL_DESC_INIT;
        usm_pool     *pool;

        d.name = names[i];
        pool   = new_pool(q, &d);
        for (int k = 0; k < 20; k++) {
            void *p = take(q, pool, SIZE);

            use(q, p);
            CHECK_INT(usm_async_free(q, p), USM_OK);
        }
        await_nothing_queued(pool);
        usm_pool_destroy(pool);
    }
    usm_queue_destroy(q);
}

static void wrong_contexts_and_pools_are_named(void)
{
    volatile size_t too_much = SIZE_MAX - 100; /* or the compiler says so */
    usm_context    *ctx;
    usm_queue      *q    = new_queue(0), *foreign;
    usm_pool       *pool = new_pool(q, NULL);
    void           *p    = usm_async_malloc(q, USM_DEVICE, SIZE);

    CHECK_INT(usm_context_create(NULL, &ctx), USM_OK);
    CHECK_INT(usm_queue_create(ctx, NULL, NULL, &foreign), USM_OK);
    CHECK_INT(usm_async_free(foreign, p), USM_E_WRONG_CONTEXT);
    CHECK(usm_async_malloc_from_pool(foreign, SIZE, pool) == NULL);
    CHECK_INT(usm_last_status(), USM_E_WRONG_CONTEXT);
    CHECK(usm_async_malloc(q, (usm_kind)77, 5) == NULL);
    CHECK_INT(usm_last_status(), USM_E_KIND);
    CHECK(usm_async_malloc(q, USM_DEVICE, too_much) == NULL);
    CHECK_INT(errno, ENOMEM);
    CHECK_INT(usm_async_free(q, p), USM_OK);
    usm_pool_destroy(pool);
    usm_queue_destroy(foreign);
    usm_context_destroy(ctx);
    usm_queue_destroy(q);
    CHECK_INT(usm_async_free(q, p), USM_E_INVALID_HANDLE);
    CHECK(usm_async_malloc(q, USM_DEVICE, 1) == NULL);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 3000 };
static usm_queue *shared_queue[2];

static void *pairs(void *seed_)
{
    unsigned seed    = (unsigned)(uintptr_t)seed_;
    void    *held[8] = {0};

    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned   k = (unsigned)rand_r(&seed) % 8;
        usm_queue *q = shared_queue[k % 2];

        if (held[k])
            CHECK_INT(usm_async_free(q, held[k]), USM_OK);
        held[k] = usm_async_malloc(q, USM_DEVICE, (size_t)rand_r(&seed) % 200000 + 1);
        CHECK(held[k] != NULL);
    }
    for (unsigned k = 0; k < 8; k++)
        CHECK_INT(usm_async_free(shared_queue[k % 2], held[k]), USM_OK);
    return NULL;
}

static void threads_share_queues(void)
{
    pthread_t t[THREADS];

    shared_queue[0] = new_queue(0);
    shared_queue[1] = new_queue(0);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&t[i], NULL, pairs, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(t[i], NULL), 0);
    usm_queue_destroy(shared_queue[0]);
    usm_queue_destroy(shared_queue[1]);
}

static const plain_case cases[] = {
#ifndef __SANITIZE_ADDRESS__ /* which has a record of every block */
    CASE(a_queue_has_its_own_blocks_again_at_once),
    CASE(another_queue_gets_it_when_it_follows_an_event),
    CASE(an_event_before_the_free_is_not_followed),
    CASE(a_wait_is_inserted_rather_than_memory_taken),
#endif
    CASE(a_freed_block_is_free_for_every_check),
    CASE(blocks_of_either_family_are_freed_by_the_other),
    CASE(another_queue_does_not_get_what_is_not_reached),
    CASE(another_queue_gets_it_once_it_is_reached),
    CASE(a_pool_that_is_full_waits_for_its_queues),
    CASE(a_queue_that_is_held_up_is_not_waited_for_without_end),
    CASE(a_later_free_is_waited_for_by_an_event_of_its_own),
    CASE(a_queue_that_is_left_alone_gives_back),
    CASE(a_queue_destroyed_with_a_thousand_frees_gives_back),
    CASE(a_pool_is_destroyed_with_frees_under_way),
    CASE(the_threshold_is_kept_at_waits),
    CASE(the_statistics_tell_of_queues),
    CASE(an_out_of_order_free_waits_for_its_dependencies),
    CASE(an_out_of_order_free_without_any_comes_behind_all),
    CASE(a_full_pool_waits_for_an_out_of_order_free),
    CASE(dependencies_work_in_order_too),
    CASE(zero_init_is_queued),
    CASE(attributes_refuse_what_is_none),
    CASE(a_descriptor_of_an_older_program_is_taken),
    CASE(every_pool_takes_part),
    CASE(wrong_contexts_and_pools_are_named),
    CASE(threads_share_queues),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
