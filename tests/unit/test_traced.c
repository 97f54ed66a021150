/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* observe/traced.c: blocks that thread caches serve while only a trace observes.  Every one is in
 * the trace, in an order that can have happened, and what the caches refuse takes the slow path as
 * ever.  Each case is a child process, because a process has one trace.
 *
 * Not here: the rings and the file (test_trace.c), the caches (test_magazine.c).  Where a checker
 * observes as well (AddressSanitizer), every block takes the slow path, and the same must hold. */
#include "base/fault.h"
#include "base/inline/atomic.h"
#include "base/inline/classes.h"
#include "base/trace.h"
#include "heap/magazine.h"
#include "plain.h"
#include "profile/trace.h"

#include <usm/usm.h>

#define OK(call) CHECK_INT((call), USM_OK)

static char         path[512];
static usm_context *ctx;
static usm_pool    *pool;

/* In a child: a pool in a process with a trace. */
static void start(const char *ring)
{
    usm_pool_desc desc = USM_POOL_DESC_INIT;

    CHECK(setenv("USM_DEVICE_SELECTOR", "host:*", 1) == 0);
    CHECK(setenv("USM_TRACE", path, 1) == 0);
    CHECK(setenv("USM_TRACE_RING", ring, 1) == 0);
    desc.name = "slab";
    OK(usm_context_create(NULL, &ctx));
    OK(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool));
    CHECK(usm__trace_on);
}

static bool a_checker_observes(void)
{
    return (usm__observers.flags & ~(unsigned)USM__OBSERVE_TRACE) != 0;
}

static void *get(size_t size)
{
    void *p = usm_pool_malloc(pool, size);

    CHECK(p != NULL);
    return p;
}

/* Runs the case's child, and opens the trace that it leaves. */
static usm__profile *trace_of(void (*child)(void), const char *name)
{
    usm__profile *t = NULL;

    (void)snprintf(path, sizeof(path), "%s", plain_path(name));
    CHECK_INT(plain_child(child, NULL), 0);
    OK(usm__profile_open(path, &t));
    CHECK_STR(t->damage, "");
    CHECK(t->ended);
    return t;
}

static bool is_of_block(const usm__profile_record *r)
{
    return r->e.type == USM__EVENT_ALLOC || r->e.type == USM__EVENT_FREE;
}

/* Leaves only the events of blocks; returns their number. */
static size_t keep_blocks(usm__profile *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->nrecords; i++)
        if (is_of_block(&t->records[i]))
            t->records[n++] = t->records[i];
    return n;
}

/* --- what is recorded ----------------------------------------------------------------- */

static const size_t sizes[] = {1,    64,   65,    1000,  1024,  1025,         5000,
                               4096, 9000, 17000, 70000, 99999, (1 << 20) - 1};

#define SIZES  (sizeof(sizes) / sizeof(*sizes))
#define ROUNDS 5

static void pair_by_pool(size_t size)
{
    usm_pool_free(pool, get(size));
}

static void pair_by_size(size_t size)
{
    usm_pool_free_sized(pool, get(size), size);
}

static void pair_by_kind(size_t size)
{
    usm_free(usm_alloc(size, USM_HOST));
}

static void pair_of_host(size_t size)
{
    usm_free(usm_alloc_host(size));
}

static void (*const pairs[])(size_t size) = {pair_by_pool, pair_by_size, pair_by_kind,
                                             pair_of_host};

#define PAIRS (sizeof(pairs) / sizeof(*pairs))

static void make_pairs(void)
{
    start("1M");
    for (size_t way = 0; way < PAIRS; way++)
        for (size_t i = 0; i < SIZES; i++)
            for (int round = 0; round < ROUNDS; round++)
                pairs[way](sizes[i]);
    CHECK((usm__magazine_self.traced != NULL) == !a_checker_observes());
    exit(0);
}

static void each_hit_is_recorded(void)
{
    usm__profile *t  = trace_of(make_pairs, "pairs");
    size_t        n  = keep_blocks(t);
    uint32_t      id = 0;

    CHECK_INT(t->lost, 0);
    CHECK_INT(n, PAIRS * SIZES * ROUNDS * 2);
    for (size_t i = 0; i < n; i += 2) {
        const usm__profile_event *e = &t->records[i].e, *end = &t->records[i + 1].e;
        size_t                    size = sizes[i / 2 / ROUNDS % SIZES];

        if (i % (SIZES * ROUNDS * 2) == 0 && i / (SIZES * ROUNDS * 2) < 3)
            id += i / (SIZES * ROUNDS * 2) != 1; /* the default pool comes with its first block */
        CHECK_INT(e->type, USM__EVENT_ALLOC);
        CHECK_INT(end->type, USM__EVENT_FREE);
        CHECK_INT(e->size, size);
        CHECK(PLAIN_SANITIZED || e->usable == usm_class_size(usm_class_of(size)) ||
              e->usable - size > 2047); /* of which a trace keeps eleven bits */
        CHECK(e->usable >= size);
        CHECK_INT(e->pool, id);
        CHECK_INT(end->pool, id);
        CHECK_INT(end->address, e->address);
        CHECK_INT(e->tag, 0);
        CHECK(end->time_ns >= e->time_ns);
    }
    usm__profile_close(t);
}

static void hit_between_tags(void)
{
    start("1M");
    pair_by_pool(100);
    OK(usm_tag_push("solver"));
    pair_by_pool(100);
    CHECK(usm__magazine_self.traced == NULL);
    OK(usm_tag_pop());
    pair_by_pool(100);
    pair_by_pool(100);
    CHECK((usm__magazine_self.traced != NULL) == !a_checker_observes());
    exit(0);
}

static void hits_between_tags_have_none(void)
{
    usm__profile *t = trace_of(hit_between_tags, "tags");

    CHECK_INT(keep_blocks(t), 8);
    for (size_t i = 0; i < 8; i++)
        CHECK_STR(t->tags[t->records[i].e.tag], i == 2 ? "solver" : "");
    usm__profile_close(t);
}

/* --- what is refused ------------------------------------------------------------------- */

static void free_wrongly(void *p, usm_status expected)
{
    void (*volatile fn)(usm_pool *, void *) = usm_pool_free;

    fn(pool, p);
    CHECK_INT(usm_last_status(), expected);
}

static void make_wrong_frees(void)
{
    char *p, *q;

    start("1M");
    p = get(1000);
    q = get(1000);
    usm_pool_free(pool, p);
    usm_pool_free(pool, q);
    p = get(1000);
    q = get(1000);
    CHECK(a_checker_observes() || usm__magazine_self.traced != NULL);
    free_wrongly(p + 64, USM_E_INTERIOR_POINTER);
    free_wrongly(&ctx, USM_E_INVALID_POINTER);
    usm_pool_free(pool, p);
    free_wrongly(p, USM_E_DOUBLE_FREE);
    usm_free(q);
    exit(0);
}

static void wrong_frees_are_named_and_leave_no_record(void)
{
    usm__profile *t = trace_of(make_wrong_frees, "wrong");

    CHECK_INT(keep_blocks(t), 8);
    usm__profile_close(t);
}

/* --- rooms of caches ---------------------------------------------------------------------- */

static void destroy_a_pool_that_was_used(void)
{
    start("1M");
    for (size_t i = 0; i < SIZES; i++)
        pair_by_pool(sizes[i]);
    usm_pool_destroy(pool);
    exit(0);
}

static void caches_of_a_pool_end_with_it(void)
{
    usm__profile *t = trace_of(destroy_a_pool_that_was_used, "rooms");

    if (!PLAIN_ASAN) { /* else no block came from a cache */
        CHECK(t->ncaches > 1);
        CHECK(t->caches[t->ncaches - 2].room > 0);
        CHECK_INT(t->caches[t->ncaches - 1].room, 0);
    }
    usm__profile_close(t);
}

/* --- threads ---------------------------------------------------------------------------- */

enum { THREADS = 4, EACH = PLAIN_SANITIZED ? 4000 : 20000, SHARED = 64 };

static _Atomic(void *) shared[SHARED];
static bool            trims;

/* Blocks pass from thread to thread; now and then the caches of all are taken away (trims). */
static void *pass_on(void *arg)
{
    uint32_t seed = (uint32_t)(uintptr_t)arg;

    for (uint32_t i = 0; i < EACH; i++) {
        seed = seed * 1664525u + 1013904223u;
        usm_pool_free(pool, atomic_exchange(&shared[(seed >> 8) % SHARED],
                                            get(64 + (seed >> 16) % 4 * 1000)));
        if (trims && i % 500 == 0)
            OK(usm_pool_trim_to(pool, 0));
    }
    return NULL;
}

static void run_threads(const char *ring)
{
    pthread_t threads[THREADS];

    start(ring);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, pass_on, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < SHARED; i++)
        usm_pool_free(pool, shared[i]);
    exit(0);
}

static void pass_blocks_on(void)
{
    trims = true;
    run_threads("16M");
}

static int by_address(const void *a, const void *b)
{
    const usm__profile_record *const *x = a, *const *y = b;

    if ((*x)->e.address != (*y)->e.address)
        return (*x)->e.address < (*y)->e.address ? -1 : 1;
    return *x < *y ? -1 : *x > *y; /* records are in the order of their times */
}

static void an_address_is_freed_before_it_is_allocated_again(void)
{
    usm__profile               *t  = trace_of(pass_blocks_on, "order");
    size_t                      n  = keep_blocks(t);
    const usm__profile_record **at = calloc(n, sizeof *at);

    CHECK(at != NULL);
    CHECK_INT(t->lost, 0);
    CHECK_INT(n, THREADS * EACH * 2);
    for (size_t i = 0; i < n; i++)
        at[i] = &t->records[i];
    qsort(at, n, sizeof *at, by_address);
    for (size_t i = 0; i < n; i += 2) {
        CHECK_INT(at[i]->e.type, USM__EVENT_ALLOC);
        CHECK_INT(at[i + 1]->e.type, USM__EVENT_FREE);
        CHECK_INT(at[i]->e.address, at[i + 1]->e.address);
    }
    free(at);
    usm__profile_close(t);
}

static void pass_too_many_on(void)
{
    run_threads("2K");
}

/* Events that are not of blocks are lost as well: as many as areas and magazines, which are few. */
static void a_hit_that_finds_no_room_is_counted_once(void)
{
    usm__profile  *t     = trace_of(pass_too_many_on, "overload");
    const uint64_t n     = keep_blocks(t);
    const uint64_t total = (uint64_t)THREADS * EACH * 2;

    CHECK(t->lost > 0 && n > 0);
    CHECK(n + t->lost >= total);
    CHECK(n + t->lost <= total + total / 10);
    usm__profile_close(t);
}

/* --- ends ------------------------------------------------------------------------------- */

static void go_on_without_a_file(void)
{
    start("1M");
    pair_by_pool(100);
    pair_by_pool(100);
    usm__trace_flush();
    CHECK(usm__fault_arm("os.write", 1, true, USM_OK));
    pair_by_pool(100);
    usm__trace_flush();
    CHECK_INT(usm__trace_on, 0);
    for (int i = 0; i < 100000; i++) /* more than the ring has room for */
        pair_by_pool(100);
    _exit(0);
}

static void hits_go_on_where_the_trace_has_ended(void)
{
    (void)snprintf(path, sizeof(path), "%s", plain_path("full"));
    CHECK_INT(plain_child(go_on_without_a_file, plain_path("full.err")), 0);
}

static void fork_between_hits(void)
{
    int   status = 0;
    pid_t pid;

    start("1M");
    pair_by_pool(100);
    pair_by_pool(100);
    pid = fork();
    CHECK(pid >= 0);
    for (int i = 0; i < (pid == 0 ? 100000 : 1); i++)
        pair_by_pool(100);
    if (pid == 0)
        _exit(0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    exit(0);
}

static void hits_of_a_forked_child_are_not_in_the_parents_file(void)
{
    usm__profile *t = trace_of(fork_between_hits, "fork");

    CHECK_INT(keep_blocks(t), 6);
    CHECK_INT(t->lost, 0);
    usm__profile_close(t);
}

static const plain_case cases[] = {
    CASE(each_hit_is_recorded),
    CASE(caches_of_a_pool_end_with_it),
    CASE(hits_between_tags_have_none),
    CASE(wrong_frees_are_named_and_leave_no_record),
    CASE(an_address_is_freed_before_it_is_allocated_again),
    CASE(a_hit_that_finds_no_room_is_counted_once),
    CASE(hits_go_on_where_the_trace_has_ended),
    CASE(hits_of_a_forked_child_are_not_in_the_parents_file),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
