/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* stress [ROUNDS] [--planted]: many threads on shared contexts and queues, for ThreadSanitizer and
 * for the checks of contents below.
 *
 * Each thread allocates, stamps, copies, queries and frees; hands blocks to others through a
 * mailbox; makes and destroys contexts, queues, pools and events of its own meanwhile; has
 * callbacks and host tasks called; and looks at what it wrote.  --planted makes one thread write
 * into another's block without any order between them: TSan must see the race, and without it the
 * contents must be found wrong, or this gate would let everything through (run_gate.sh checks
 * that). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <usm/usm.h>

#define THREADS  6
#define CONTEXTS 3
#define MAILBOX  32
#define SECONDS  240

typedef struct shared {
    usm_context    *ctx[CONTEXTS];
    usm_queue      *q[CONTEXTS][2]; /* in order, out of order (or in order again)          */
    _Atomic(void *) mail[MAILBOX];  /* blocks that anybody may take and free               */
    atomic_int      failures;
    int             rounds;
    bool            planted;
    const char     *device;
    char *volatile victim; /* --planted: a block that its owner looks at                    */
} shared;

static shared all;

static void failed(const char *what)
{
    if (atomic_fetch_add(&all.failures, 1) < 20)
        fprintf(stderr, "stress: %s: %s\n", what, usm_last_error());
}

#define CHECK(cond) ((cond) ? (void)0 : failed(#cond))
#define OK(call)    CHECK((call) == USM_OK)

typedef struct worker {
    unsigned  id;
    uint64_t  random;
    pthread_t thread;
} worker;

static unsigned pick(worker *w, unsigned n)
{
    w->random = w->random * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(w->random >> 33) % n;
}

static usm_queue *any_queue(worker *w)
{
    return all.q[pick(w, CONTEXTS)][pick(w, 2)];
}

/* Puts a block into the mailbox and frees what was there. */
static void mail(worker *w, void *p)
{
    void *old = atomic_exchange(&all.mail[pick(w, MAILBOX)], p);

    if (old) {
        CHECK(usm_get_pointer_type(old, NULL) != USM_UNKNOWN);
        OK(usm_free_ctx(old, NULL));
    }
}

static void allocate_and_look(worker *w)
{
    usm_queue *q    = any_queue(w);
    size_t     size = (size_t)1 << pick(w, 16);
    char      *p    = usm_malloc(size, q, USM_SHARED);
    void      *base = NULL;
    size_t     span = 0;

    CHECK(p);
    if (!p)
        return;
    memset(p, (int)w->id, size);
    OK(usm_get_address_range(p + size - 1, NULL, &base, &span));
    CHECK(base == p && span >= size);
    CHECK(usm_get_pointer_type(p, usm_queue_get_context(q)) == USM_SHARED);
    for (size_t i = 0; i < size; i += 1 + size / 16)
        CHECK(p[i] == (char)w->id);
    mail(w, p);
}

static void copy_there_and_back(worker *w)
{
    usm_queue *q = any_queue(w);
    char       out[600], back[600] = "";
    char      *p     = usm_malloc(1200, q, USM_DEVICE);
    usm_event *ev[3] = {NULL, NULL, NULL};

    CHECK(p);
    memset(out, (int)w->id + 1, sizeof out);
    OK(usm_memcpy(q, p, out, sizeof out, 0, NULL, &ev[0]));
    OK(usm_memcpy(q, p + 5, p, sizeof out - 5, 1, &ev[0], &ev[1])); /* overlapping */
    OK(usm_memcpy(q, back, p, sizeof back, 1, &ev[1], &ev[2]));
    OK(usm_event_wait(ev[2]));
    CHECK(!memcmp(out, back, sizeof out));
    for (int i = 0; i < 3; i++)
        usm_event_release(ev[i]);
    OK(usm_free_ctx(p, NULL));
}

static void copy_between_contexts(worker *w)
{
    usm_queue *a = all.q[pick(w, CONTEXTS)][0], *b = all.q[pick(w, CONTEXTS)][0];
    char       out[300], back[300]                 = "";
    char      *p = usm_malloc(300, a, USM_DEVICE), *r = usm_malloc(300, b, USM_DEVICE);
    usm_event *ev = NULL, *last = NULL;

    CHECK(p && r);
    memset(out, (int)w->id + 7, sizeof out);
    OK(usm_memcpy(a, p, out, sizeof out, 0, NULL, &ev));
    OK(usm_memcpy(b, r, p, sizeof out, 1, &ev, &last)); /* the event of another context */
    usm_event_release(ev);
    OK(usm_memcpy(b, back, r, sizeof back, 1, &last, &ev));
    OK(usm_event_wait(ev));
    CHECK(!memcmp(out, back, sizeof out));
    usm_event_release(ev);
    usm_event_release(last);
    usm_free(p);
    usm_free(r);
}

static void context_comes_and_goes(worker *w)
{
    usm_context  *ctx  = NULL;
    usm_queue    *q    = NULL;
    usm_pool     *pool = NULL;
    usm_pool_desc desc = USM_POOL_DESC_INIT;
    void         *p;

    OK(usm_context_create(NULL, &ctx));
    OK(usm_queue_create(ctx, NULL, NULL, &q));
    desc.name = pick(w, 2) ? "arena" : "direct";
    OK(usm_pool_create(ctx, NULL, USM_HOST, &desc, &pool));
    p = usm_pool_malloc(pool, 100 + pick(w, 10000));
    CHECK(p);
    memset(p, 1, 100);
    p = usm_malloc(5000, q, USM_DEVICE);
    OK(usm_memset(q, p, 3, 5000, 0, NULL, NULL));
    if (pick(w, 2))
        OK(usm_context_wait(ctx));
    usm_pool_destroy(pool);
    usm_queue_destroy(q);
    usm_context_destroy(ctx); /* work may be in flight */
}

static void called(usm_event *ev, usm_status status, void *user)
{
    CHECK(status == USM_OK && usm_event_query(ev) == USM_OK);
    atomic_fetch_add((atomic_int *)user, 1);
}

static usm_status task(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
    return USM_OK;
}

static void events_and_callbacks(worker *w)
{
    struct timespec wait = {0, 500000};
    unsigned        c    = pick(w, CONTEXTS);
    usm_event      *gate = NULL, *ev = NULL, *done = NULL;
    atomic_int      calls = 0;

    OK(usm_event_create(all.ctx[c], &gate));
    OK(usm_queue_barrier(all.q[(c + 1) % CONTEXTS][1], 1, &gate, &ev)); /* bridged */
    OK(usm_event_on_complete(ev, called, &calls));
    OK(usm_host_task(all.q[c][1], task, &calls, 1, &gate, &done));
    OK(usm_event_signal(gate, USM_OK));
    OK(usm_event_wait(done));
    while (atomic_load(&calls) < 2)
        nanosleep(&wait, NULL);
    usm_event_release(gate);
    usm_event_release(ev);
    usm_event_release(done);
}

static void ask(worker *w)
{
    usm_memory_info info  = USM_MEMORY_INFO_INIT;
    usm_pool_stats  stats = USM_POOL_STATS_INIT;
    usm_device     *dev   = usm_queue_get_device(any_queue(w));
    const char     *value = NULL;

    OK(usm_device_memory(dev, &info));
    OK(usm_pool_get_stats(usm_pool_default(all.ctx[pick(w, CONTEXTS)], NULL, USM_SHARED), &stats));
    CHECK(usm_get_pointer_type(&info, NULL) == USM_UNKNOWN);
    CHECK(usm_free_ctx(&info, NULL) == USM_E_INVALID_POINTER);
    OK(usm_config_set("cache_dir", pick(w, 2) ? "/tmp/a" : "/tmp/b"));
    OK(usm_config_get("cache_dir", &value, NULL));
    CHECK(value && !strncmp(value, "/tmp/", 5));
    (void)!usm_queue_query(any_queue(w));
}

static void *work(void *arg)
{
    static void (*const acts[])(worker *) = {allocate_and_look,
                                             allocate_and_look,
                                             copy_there_and_back,
                                             copy_between_contexts,
                                             context_comes_and_goes,
                                             events_and_callbacks,
                                             ask};
    worker *w                             = arg;

    for (int i = 0; i < all.rounds; i++)
        acts[pick(w, sizeof acts / sizeof *acts)](w);
    return NULL;
}

/* --- the planted defect
 * ----------------------------------------------------------------------------- */

static void *write_into_anothers_block(void *arg)
{
    char *victim = all.victim;

    (void)arg;
    victim[0] = 'x';
    return NULL;
}

/* Two threads, one block, no order: the owner writes while the other does; then it writes again,
 * for builds in which only the contents tell. */
static void plant(void)
{
    pthread_t id;
    char     *p = usm_malloc(64, all.q[0][0], USM_SHARED);

    CHECK(p);
    all.victim = p;
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&id, NULL, write_into_anothers_block, NULL))
            abort();
        if (i == 0)
            p[0] = 'o';
        pthread_join(id, NULL);
    }
    CHECK(p[0] == 'o');
    usm_free(p);
}

/* --- beginning and end
 * ------------------------------------------------------------------------------- */

static void begin(void)
{
    usm_queue_desc desc = USM_QUEUE_DESC_INIT;
    usm_device    *dev;

    usm_device_info info = USM_DEVICE_INFO_INIT;

    for (int c = 0; c < CONTEXTS; c++) {
        OK(usm_context_create(NULL, &all.ctx[c]));
        OK(usm_queue_create(all.ctx[c], NULL, NULL, &all.q[c][0]));
        dev = usm_queue_get_device(all.q[c][0]);
        desc.flags =
            usm_device_has(dev, USM_ASPECT_OUT_OF_ORDER_QUEUE) ? USM_QUEUE_OUT_OF_ORDER : 0;
        OK(usm_queue_create(all.ctx[c], NULL, &desc, &all.q[c][1]));
        OK(usm_device_get_info(dev, &info));
    }
    all.device = info.name ? info.name : "no device";
}

static void end(void)
{
    usm_memory_info info = USM_MEMORY_INFO_INIT;
    usm_device     *dev  = usm_queue_get_device(all.q[0][0]);

    for (int i = 0; i < MAILBOX; i++)
        usm_free(atomic_load(&all.mail[i]));
    for (int c = 0; c < CONTEXTS; c++) {
        OK(usm_context_wait(all.ctx[c]));
        usm_queue_destroy(all.q[c][0]);
        usm_queue_destroy(all.q[c][1]);
        usm_context_destroy(all.ctx[c]);
    }
    usm_shutdown();
    for (int ms = 0; ms < 5000; ms++) { /* contexts end with their last command */
        struct timespec wait = {0, 1000000};
        OK(usm_device_memory(dev, &info));
        if (!info.ours)
            return;
        nanosleep(&wait, NULL);
    }
    failed("memory is live at the end");
}

int main(int argc, char **argv)
{
    worker w[THREADS];

    all.rounds = 1500;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--planted"))
            all.planted = true;
        else
            all.rounds = atoi(argv[i]);
    }
    setenv("USM_LOG", "off", 0); /* the wrong frees are meant */
    alarm(SECONDS);              /* a hang is a failure */
    begin();
    if (all.planted)
        plant();
    for (unsigned i = 0; i < THREADS; i++) {
        w[i] = (worker){i, i * 7919 + 1, 0};
        if (pthread_create(&w[i].thread, NULL, work, &w[i]))
            abort();
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(w[i].thread, NULL);
    end();
    printf("%s: %d threads, %d rounds, %d failures\n", all.device, THREADS, all.rounds,
           atomic_load(&all.failures));
    return atomic_load(&all.failures) ? 1 : 0;
}
