/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The checker of stream order (USM_HOOKS=order) proves itself: every kind of violation that is
 * planted here must be counted, and the lawful twin of each must not.  Queues are held by user
 * events where it matters, so nothing depends on time.  Violations are lines in the log too, which
 * goes to a file. */
#include "plain.h"

#include "base/fault.h"
#include "command/queue.h"
#include "observe/order_check.h"

#include <usm/usm.h>

enum { SIZE = 4096 };

static struct {
    usm_context *ctx;
    usm_queue   *a, *b, *loose; /* loose: out of order, or NULL                           */
    uint64_t     before;
} t;

static void must(usm_status st)
{
    if (st != USM_OK)
        printf("# %s: %s\n", usm_status_name(st), usm_last_error());
    CHECK_INT(st, USM_OK);
}

static void open_all(void)
{
    usm_queue_desc loose = {sizeof loose, USM_QUEUE_OUT_OF_ORDER};

    must(usm_context_create(NULL, &t.ctx));
    must(usm_queue_create(t.ctx, NULL, NULL, &t.a));
    must(usm_queue_create(t.ctx, NULL, NULL, &t.b));
    if (usm_queue_create(t.ctx, NULL, &loose, &t.loose) != USM_OK)
        t.loose = NULL;
    t.before = usm__order_violations();
}

/* How many there were since open_all(). */
static uint64_t close_all(void)
{
    must(usm_context_wait(t.ctx));
    usm_queue_destroy(t.loose);
    usm_queue_destroy(t.b);
    usm_queue_destroy(t.a);
    usm_context_destroy(t.ctx);
    return usm__order_violations() - t.before;
}

static void fill(usm_queue *q, void *p, usm_event *after, usm_event **ev)
{
    must(usm_memset(q, p, 7, SIZE, after ? 1 : 0, after ? &after : NULL, ev));
}

static void *async(usm_queue *q)
{
    void *p = usm_async_malloc(q, USM_DEVICE, SIZE);

    CHECK(p != NULL);
    return p;
}

/* What comes later in q waits until it is signalled. */
static usm_event *hold(usm_queue *q)
{
    usm_event *gate = NULL;

    must(usm_event_create(t.ctx, &gate));
    must(usm_queue_barrier(q, 1, &gate, NULL));
    return gate;
}

static void let_go(usm_event *gate)
{
    must(usm_event_signal(gate, USM_OK));
    usm_event_release(gate);
}

/* ---- the lawful ------------------------------------------------------------------- */

static void one_queue_needs_nothing(void)
{
    usm_event *gate;

    open_all();
    gate = hold(t.a);
    for (int i = 0; i < 20; i++) {
        void *p = async(t.a);

        fill(t.a, p, NULL, NULL);
        must(usm_async_free(t.a, p));
    }
    let_go(gate);
    CHECK_INT(close_all(), 0);
}

static void two_queues_joined_by_events_are_in_order(void)
{
    usm_event *gate, *filled = NULL, *used = NULL;
    void      *p;

    open_all();
    gate = hold(t.a);
    p    = async(t.a);
    fill(t.a, p, NULL, &filled);
    fill(t.b, p, filled, &used);
    must(usm_async_free_after(t.a, p, 1, &used, NULL));
    usm_event_release(filled);
    usm_event_release(used);
    let_go(gate);
    CHECK_INT(close_all(), 0);
}

static void what_the_host_waited_for_is_in_order(void)
{
    void *p, *r;

    open_all();
    p = async(t.a);
    fill(t.a, p, NULL, NULL);
    must(usm_queue_wait(t.a));
    fill(t.b, p, NULL, NULL);
    must(usm_queue_wait(t.b));
    usm_free(p);
    r = usm_malloc_device(SIZE, t.a);
    CHECK(r != NULL);
    fill(t.a, r, NULL, NULL);
    must(usm_queue_wait(t.a));
    usm_free(r);
    CHECK_INT(close_all(), 0);
}

/* The wait comes after the command was queued and before it may run. */
static void what_the_host_learns_before_it_signals_counts(void)
{
    usm_event *gate = NULL;
    void      *p;

    open_all();
    p = async(t.a);
    fill(t.a, p, NULL, NULL);
    must(usm_event_create(t.ctx, &gate));
    fill(t.b, p, gate, NULL);
    must(usm_queue_wait(t.a));
    let_go(gate);
    must(usm_queue_wait(t.b));
    usm_free(p);
    CHECK_INT(close_all(), 0);
}

static void an_out_of_order_queue_is_in_order_by_events(void)
{
    usm_event *born = NULL, *filled = NULL;
    void      *p;

    open_all();
    if (!t.loose) {
        (void)close_all();
        SKIP("no out-of-order queues here");
    }
    p = usm_async_malloc_after(t.loose, USM_DEVICE, SIZE, 0, NULL, &born);
    CHECK(p != NULL);
    fill(t.loose, p, born, &filled);
    must(usm_async_free_after(t.loose, p, 1, &filled, NULL));
    usm_event_release(born);
    usm_event_release(filled);
    p = usm_async_malloc(t.loose, USM_DEVICE, SIZE);
    CHECK(p != NULL);
    fill(t.loose, p, NULL, NULL);
    must(usm_async_free(t.loose, p)); /* a barrier */
    CHECK_INT(close_all(), 0);
}

/* ---- the unlawful ----------------------------------------------------------------- */

static void a_use_before_the_allocation_is_flagged(void)
{
    usm_event *gate;
    void      *p;

    open_all();
    gate = hold(t.a);
    p    = async(t.a);
    fill(t.b, p, NULL, NULL);
    must(usm_queue_wait(t.b));
    let_go(gate);
    must(usm_queue_wait(t.a));
    must(usm_async_free(t.a, p));
    CHECK_INT(close_all(), 1);
}

/* Races that are planted are races: ThreadSanitizer would see them too. */
#if !PLAIN_SANITIZED
static void a_use_that_is_only_early_enough_by_luck_is_flagged(void)
{
    usm_event *gate = NULL;
    void      *p;

    open_all();
    p = async(t.a);
    fill(t.a, p, NULL, NULL);
    must(usm_event_create(t.ctx, &gate));
    fill(t.b, p, gate, NULL);
    let_go(gate); /* nobody has seen a's end */
    must(usm_context_wait(t.ctx));
    usm_free(p);
    CHECK_INT(close_all(), 1);
}
#endif

static void a_free_that_overtakes_a_use_is_flagged(void)
{
    usm_event *gate, *filled = NULL;
    void      *p;

    open_all();
    p = async(t.a);
    fill(t.a, p, NULL, &filled);
    gate = hold(t.b);
    fill(t.b, p, filled, NULL);
    must(usm_async_free(t.a, p));
    CHECK_INT(usm__order_violations() - t.before, 1);
    usm_event_release(filled);
    let_go(gate);
    CHECK(close_all() >= 1); /* the pool may get it back too early, too */
}

static void a_use_after_the_free_is_flagged(void)
{
    void *p;

    open_all();
    p = async(t.a);
    fill(t.a, p, NULL, NULL);
    must(usm_async_free(t.a, p));
    CHECK_INT(usm_memset(t.a, p, 1, SIZE, 0, NULL, NULL), USM_E_INVALID_POINTER);
    /* A kernel could have it from elsewhere: as if the driver were asked behind libusm's back. */
    must(usm__be_fill(t.a->be, t.a->native, p, "", 1, SIZE, 0, NULL, NULL));
    CHECK_INT(close_all(), 1);
}

static void a_host_free_of_a_block_in_use_is_flagged(void)
{
    usm_event *gate;
    void      *p;

    open_all();
    p    = usm_malloc_device(SIZE, t.a);
    gate = hold(t.a);
    CHECK(p != NULL);
    fill(t.a, p, NULL, NULL);
    usm_free(p);
    let_go(gate);
    CHECK_INT(close_all(), 1);
}

static void a_false_claim_of_completeness_is_flagged(void)
{
    usm_event *gate;
    void      *p;

    open_all();
    gate = hold(t.a);
    p    = async(t.a);
    fill(t.a, p, NULL, NULL);
    must(usm_async_free(t.a, p));
    usm__order_claim_complete(t.a, UINT64_MAX);
    CHECK_INT(usm__order_violations() - t.before, 1);
    let_go(gate);
    (void)close_all();
}

static void an_out_of_order_queue_without_dependencies_is_flagged(void)
{
    usm_event *gate = NULL, *born = NULL;
    void      *p;

    open_all();
    if (!t.loose) {
        (void)close_all();
        SKIP("no out-of-order queues here");
    }
    must(usm_event_create(t.ctx, &gate));
    p = usm_async_malloc_after(t.loose, USM_DEVICE, SIZE, 1, &gate, &born);
    CHECK(p != NULL);
    fill(t.loose, p, NULL, NULL);
    must(usm_event_signal(gate, USM_OK));
    must(usm_queue_wait(t.loose));
    must(usm_async_free(t.loose, p));
    usm_event_release(gate);
    usm_event_release(born);
    CHECK_INT(close_all(), 1);
}

#ifndef __SANITIZE_ADDRESS__
enum { BIG = 1 << 20, MANY = 12, LIMIT = 16 << 20 };

static void *big(usm_queue *q, usm_pool *pool)
{
    void *p = usm_async_malloc_from_pool(q, BIG, pool);

    CHECK(p != NULL);
    fill(q, p, NULL, NULL);
    return p;
}

/* Blocks go from queue a, which is held, to queue b: there is no room for those of both. */
static uint64_t reuse_with(const char *fault)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    usm_pool     *pool = NULL;
    usm_event    *gate;
    void         *p[MANY];
    uint64_t      flagged;

    open_all();
    desc.name         = "slab";
    desc.maximum_size = LIMIT;
    must(usm_pool_create(t.ctx, NULL, USM_DEVICE, &desc, &pool));
    gate = hold(t.a);
    for (int i = 0; i < MANY; i++)
        p[i] = big(t.a, pool);
    for (int i = 0; i < MANY; i++)
        must(usm_async_free(t.a, p[i]));
    if (fault)
        CHECK(usm__fault_arm(fault, 1, true, USM_OK));
    for (int i = 0; i < MANY; i++)
        p[i] = big(t.b, pool);
    usm__fault_disarm_all();
    for (int i = 0; i < MANY; i++)
        must(usm_async_free(t.b, p[i]));
    flagged = usm__order_violations() - t.before;
    let_go(gate);
    must(usm_context_wait(t.ctx));
    usm_pool_destroy(pool);
    (void)close_all();
    return flagged;
}

static void reuse_across_queues_with_waits_is_in_order(void)
{
    CHECK_INT(reuse_with(NULL), 0);
}
#endif

#if !PLAIN_SANITIZED
static void reuse_without_the_wait_is_flagged(void)
{
    CHECK(reuse_with("async.skip_wait") > 0);
}

static void reuse_without_the_event_is_flagged(void)
{
    CHECK(reuse_with("async.skip_event") > 0);
}
#endif

static const plain_case cases[] = {
    CASE(one_queue_needs_nothing),
    CASE(two_queues_joined_by_events_are_in_order),
    CASE(what_the_host_waited_for_is_in_order),
    CASE(what_the_host_learns_before_it_signals_counts),
    CASE(an_out_of_order_queue_is_in_order_by_events),
    CASE(a_use_before_the_allocation_is_flagged),
    CASE(a_free_that_overtakes_a_use_is_flagged),
    CASE(a_use_after_the_free_is_flagged),
    CASE(a_host_free_of_a_block_in_use_is_flagged),
    CASE(a_false_claim_of_completeness_is_flagged),
    CASE(an_out_of_order_queue_without_dependencies_is_flagged),
#ifndef __SANITIZE_ADDRESS__ /* which has a record of every block: none is taken again at once */
    CASE(reuse_across_queues_with_waits_is_in_order),
#endif
#if !PLAIN_SANITIZED
    CASE(a_use_that_is_only_early_enough_by_luck_is_flagged),
    CASE(reuse_without_the_wait_is_flagged),
    CASE(reuse_without_the_event_is_flagged),
#endif
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    char log[600];
    int  rc;

    (void)alarm(100);
    (void)snprintf(log, sizeof log, "level:error;output:%s", plain_path("log"));
    if (usm_config_set("hooks", "order") != USM_OK || usm_config_set("log", log) != USM_OK)
        return 1;
    rc = plain_main(argc, argv, cases);
    return rc;
}
