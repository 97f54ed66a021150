/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* grant_model [--seed N] [--seeds COUNT] [--seconds S] [--operations N] [--threads T] [--planted]
 *
 * Random programs of copies, fills, tasks, barriers, the program's own events, open accesses,
 * graphs of launches and waits, on in-order and out-of-order queues that all threads share, in
 * memory for a fraction of the buffers: every wait must return (src/buffer/grant.c), and every
 * buffer hold what doing one after the other leaves in it.  Each thread has buffers of its own.
 *
 * A thread gives up what only it can give up (its events, its accesses) before it waits for
 * commands: whatever does not return then is libusm's doing.  A graph is no such wait: it reads the
 * bytes of an access that is open, or runs inside of a task, while commands wait for the access,
 * for the program's events, and for memory.
 *
 * A device whose commands move no data (the null backend) refuses commands over buffers, tasks and
 * the program's events: each refusal must leave the buffers as they were.
 *
 * --planted changes bytes behind the model's back: it must find that. */
#include "budget.h"
#include "grant_graph.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <usm/usm.h>

enum {
    BLOCK   = 65536,
    FRAMES  = 10, /* of memory, and of each thread besides: what it may hold open fits into the
                    quarter that is not devices', where their memory is the host's            */
    OPEN    = 6,
    LOOK    = GRAPH_SIZE, /* bytes of an access that stays open */
    BUFFERS = 4,
    SIZE    = 12 * BLOCK, /* of a buffer                                                       */
    RANGE   = 3 * BLOCK,  /* of a command, at most                                             */
    QUEUES  = 4,
    EVENTS  = 8,
    THREADS = 8,
    SECONDS = 150 /* that a seed may take                                                       */
};

static struct {
    uint64_t operations;
    unsigned threads;
    bool     planted;
} options = {.operations = 200, .threads = 1};

static budget seeds = {.first = 1, .most = 1};

static struct {
    usm_context      *ctx;
    usm_queue        *queues[QUEUES];
    bool              has_graphs, moves_data;
    _Atomic(unsigned) graphs, refused; /* that ran; that found no memory of their own          */
    uint64_t          seed;            /* that runs                                            */
} all;

typedef struct worker {
    pthread_t      thread;
    uint64_t       seed, state;
    usm_buffer    *buffers[BUFFERS];
    unsigned char *models[BUFFERS];
    usm_event     *events[EVENTS]; /* of commands and barriers, to be waited for; or NULL       */
    usm_event     *own;            /* that this thread is to signal; or NULL                    */
    usm_access     open;           /* ptr NULL: none                                            */
    uint64_t       commands;
} worker;

static void must(usm_status st, const char *what)
{
    if (st == USM_OK)
        return;
    printf("# seed %llu: %s: %s: %s\n", (unsigned long long)all.seed, what, usm_status_name(st),
           usm_last_error());
    (void)fflush(NULL);
    _exit(1);
}

/* Whether it was done: where no data moves each is refused, by `refusal`. */
static bool is_done(usm_status st, usm_status refusal, const char *what)
{
    if (all.moves_data || st != refusal)
        must(st, what);
    if (all.moves_data == (st == USM_OK))
        return st == USM_OK;
    printf("# %s was done where no data moves\n", what);
    (void)fflush(NULL);
    _exit(1);
}

static void hung(int signal)
{
    char text[64];
    int  n = snprintf(text, sizeof text, "# seed %llu: hangs\n", (unsigned long long)all.seed);

    (void)signal;
    (void)!write(STDOUT_FILENO, text, (size_t)n);
    _exit(1);
}

static void failed_late(usm_context *ctx, usm_status st, const char *reason, void *user)
{
    (void)ctx;
    (void)user;
    printf("# a failure without a caller: %s: %s\n", usm_status_name(st), reason);
    (void)fflush(NULL);
    _exit(1);
}

static unsigned pick(worker *w, unsigned n)
{
    w->state = w->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(w->state >> 33) % n;
}

/* ---- what a command is given ----------------------------------------------------------------- */

typedef struct part {
    unsigned buffer;
    size_t   offset, size;
} part;

static part pick_part(worker *w)
{
    part p = {pick(w, BUFFERS), 0, 1 + pick(w, RANGE)};

    p.offset = pick(w, (unsigned)(SIZE - p.size));
    return p;
}

static usm_queue *pick_queue(worker *w)
{
    return all.queues[pick(w, QUEUES)];
}

/* Up to two of the events at hand. */
static size_t pick_deps(worker *w, usm_event **deps)
{
    size_t n = 0;

    for (unsigned i = pick(w, 6); i < 2; i++) {
        usm_event *ev = w->events[pick(w, EVENTS)];

        if (ev)
            deps[n++] = ev;
    }
    if (w->own && pick(w, 4) == 0)
        deps[n++] = w->own;
    return n;
}

/* Where the event of the next command goes; NULL: nobody wants it. */
static usm_event **wanted(worker *w, usm_event **ev)
{
    return pick(w, 2) ? ev : NULL;
}

static void keep(worker *w, usm_event *ev)
{
    usm_event **place = &w->events[pick(w, EVENTS)];

    if (!ev)
        return;
    usm_event_release(*place);
    *place = ev;
}

static usm_accessor accessor(worker *w, part p, usm_access_mode mode)
{
    return (usm_accessor){w->buffers[p.buffer], p.offset, p.size, mode};
}

/* ---- commands -------------------------------------------------------------------------------- */

static void fill(worker *w)
{
    part          p       = pick_part(w);
    usm_accessor  a       = accessor(w, p, USM_WRITE);
    unsigned char pattern = (unsigned char)pick(w, 256);
    usm_event    *deps[3], *ev = NULL;
    size_t        n = pick_deps(w, deps);

    if (!is_done(usm_buffer_fill(pick_queue(w), &a, &pattern, 1, n, deps, wanted(w, &ev)),
                 USM_E_NO_DATA_MOVED, "a fill"))
        return;
    keep(w, ev);
    memset(w->models[p.buffer] + p.offset, pattern, p.size);
}

static void copy(worker *w)
{
    part         to = pick_part(w), from = pick_part(w);
    usm_accessor dst, src;
    usm_event   *deps[3], *ev = NULL;
    size_t       n = pick_deps(w, deps);

    if (to.buffer == from.buffer)
        from.buffer = (from.buffer + 1) % BUFFERS;
    if (from.size > to.size)
        from.size = to.size;
    to.size = from.size;
    dst     = accessor(w, to, USM_WRITE);
    src     = accessor(w, from, USM_READ);
    if (!is_done(usm_buffer_copy(pick_queue(w), &dst, &src, n, deps, wanted(w, &ev)),
                 USM_E_NO_DATA_MOVED, "a copy"))
        return;
    keep(w, ev);
    memcpy(w->models[to.buffer] + to.offset, w->models[from.buffer] + from.offset, to.size);
}

static void change(unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i += 509)
        bytes[i] = (unsigned char)(bytes[i] * 3 + 1);
}

static usm_status change_part(void *size, void *const *ptrs)
{
    change(ptrs[0], (size_t)(uintptr_t)size);
    return USM_OK;
}

static void task(worker *w)
{
    part         p = pick_part(w);
    usm_accessor a = accessor(w, p, USM_READ_WRITE);
    usm_event   *deps[3], *ev = NULL;
    size_t       n = pick_deps(w, deps);

    if (!is_done(usm_buffer_task(pick_queue(w), change_part, (void *)(uintptr_t)p.size, 1, &a, n,
                                 deps, wanted(w, &ev)),
                 USM_E_NOT_SUPPORTED, "a task over a buffer"))
        return;
    keep(w, ev);
    change(w->models[p.buffer] + p.offset, p.size);
}

/* Of a size that a graph takes, and now and then where a launch may use it as it lies. */
static part pick_small_part(worker *w)
{
    part p = pick_part(w);

    p.size = p.size % LOOK + 1;
    if (pick(w, 2))
        p.offset &= ~(size_t)127;
    return p;
}

/* A graph without memory of its own has done nothing; the same is done without it. */
static void graph_over(const unsigned char *in, unsigned char *out, size_t size)
{
    usm_status st = grant_graph_run(in, out, size);

    if (st == USM_E_BUDGET || st == USM_E_NO_MEMORY) {
        (void)atomic_fetch_add(&all.refused, 1);
        grant_graph_serially(in, out, size);
        return;
    }
    must(st, "a graph");
    (void)atomic_fetch_add(&all.graphs, 1);
}

static usm_status graph_part(void *size_, void *const *ptrs)
{
    unsigned char out[LOOK];
    size_t        size = (size_t)(uintptr_t)size_;

    graph_over(ptrs[0], out, size);
    memcpy(ptrs[0], out, size);
    return USM_OK;
}

/* A task that waits for a graph, which waits for its launches. */
static void graph_task(worker *w)
{
    part           p     = pick_small_part(w);
    usm_accessor   a     = accessor(w, p, USM_READ_WRITE);
    unsigned char *model = w->models[p.buffer] + p.offset, out[LOOK];
    usm_event     *deps[3], *ev = NULL;
    size_t         n = pick_deps(w, deps);

    must(usm_buffer_task(pick_queue(w), graph_part, (void *)(uintptr_t)p.size, 1, &a, n, deps,
                         wanted(w, &ev)),
         "a task with a graph");
    keep(w, ev);
    grant_graph_serially(model, out, p.size);
    memcpy(model, out, p.size);
}

static usm_status nothing(void *user)
{
    (void)user;
    return USM_OK;
}

static void plain_task(worker *w)
{
    usm_event *deps[3], *ev = NULL;
    size_t     n = pick_deps(w, deps);

    if (is_done(usm_host_task(pick_queue(w), nothing, NULL, n, deps, wanted(w, &ev)),
                USM_E_NOT_SUPPORTED, "a task"))
        keep(w, ev);
}

static void barrier(worker *w)
{
    usm_event *deps[3], *ev = NULL;
    size_t     n = pick_deps(w, deps);

    must(usm_queue_barrier(pick_queue(w), n, deps, wanted(w, &ev)), "a barrier");
    keep(w, ev);
}

/* ---- what only this thread can give up
 * ----------------------------------------------------------- */

static void signal_own(worker *w)
{
    if (w->own)
        must(usm_event_signal(w->own, USM_OK), "usm_event_signal");
    usm_event_release(w->own);
    w->own = NULL;
}

static void end_access(worker *w)
{
    if (w->open.ptr)
        usm_access_end(&w->open);
    w->open = (usm_access){0};
}

static void give_up(worker *w)
{
    end_access(w);
    signal_own(w);
}

static void make_own(worker *w)
{
    signal_own(w);
    (void)is_done(usm_event_create(all.ctx, &w->own), USM_E_NOT_SUPPORTED, "usm_event_create");
}

/* ---- waits ----------------------------------------------------------------------------------- */

static void compare(worker *w, const void *bytes, part p)
{
    if (memcmp(bytes, w->models[p.buffer] + p.offset, p.size) == 0)
        return;
    printf(
        "# seed %llu, operation %llu: buffer %u, [%zu, +%zu) is not what serial execution leaves\n",
        (unsigned long long)w->seed, (unsigned long long)w->commands, p.buffer, p.offset, p.size);
    (void)fflush(NULL);
    _exit(1);
}

static void look(worker *w, part p)
{
    usm_access a;

    give_up(w);
    must(usm_access_begin(w->buffers[p.buffer], p.offset, p.size, USM_READ, &a), "an access");
    compare(w, a.ptr, p);
    usm_access_end(&a);
}

/* Stays open over the next operations. */
static void open_access(worker *w)
{
    part p = pick_part(w);

    give_up(w);
    p.size = p.size % LOOK + 1;
    must(usm_access_begin(w->buffers[p.buffer], p.offset, p.size, USM_READ_WRITE, &w->open),
         "an access");
    compare(w, w->open.ptr, p);
    change(w->open.ptr, p.size);
    change(w->models[p.buffer] + p.offset, p.size);
}

/* Its bytes come without waiting; commands may wait for that. */
static void look_later(worker *w)
{
    part       p  = pick_part(w);
    usm_event *ev = NULL;
    usm_access a;

    p.size = p.size % LOOK + 1;
    if (!is_done(usm_access_begin_async(w->buffers[p.buffer], p.offset, p.size, USM_READ, &a, &ev),
                 USM_E_NOT_SUPPORTED, "usm_access_begin_async"))
        return;
    must(usm_queue_barrier(pick_queue(w), 1, &ev, NULL), "a barrier behind an access");
    copy(w);
    fill(w);
    give_up(w);
    must(usm_event_wait(ev), "an access that was to come");
    usm_access_end(&a);
    usm_event_release(ev);
}

/* Commands behind the access, and behind what only this thread will signal, wait while it runs. */
static void graph(worker *w)
{
    part           p     = pick_small_part(w);
    unsigned char *model = w->models[p.buffer] + p.offset, out[LOOK];

    give_up(w);
    must(usm_access_begin(w->buffers[p.buffer], p.offset, p.size, USM_READ_WRITE, &w->open),
         "an access");
    compare(w, w->open.ptr, p);
    grant_graph_serially(model, out, p.size);
    memcpy(model, out, p.size);
    if (pick(w, 2))
        make_own(w);
    for (unsigned i = pick(w, 4); i > 0; i--)
        (pick(w, 2) ? copy : task)(w);
    graph_over(w->open.ptr, out, p.size);
    memcpy(w->open.ptr, out, p.size);
    end_access(w);
}

static void wait_queue(worker *w)
{
    give_up(w);
    must(usm_queue_wait(pick_queue(w)), "usm_queue_wait");
}

static void step(worker *w)
{
    static void (*const often[])(worker *) = {fill,    copy,    copy,       copy,      task,
                                              barrier, barrier, plain_task, plain_task};

    w->commands++;
    if (all.has_graphs && pick(w, 40) == 0) {
        (pick(w, 2) ? graph : graph_task)(w);
        return;
    }
    switch (pick(w, 40)) {
    case 0:
        look(w, pick_part(w));
        break;
    case 1:
        open_access(w);
        break;
    case 2:
        wait_queue(w);
        break;
    case 3:
    case 4:
        make_own(w);
        break;
    case 5:
        signal_own(w);
        break;
    case 6:
        end_access(w);
        break;
    case 7:
        look_later(w);
        break;
    default:
        often[pick(w, sizeof often / sizeof often[0])](w);
    }
}

/* ---- a thread -------------------------------------------------------------------------------- */

static void begin(worker *w)
{
    for (unsigned i = 0; i < BUFFERS; i++) {
        usm_access a;

        w->buffers[i] = usm_buffer_new(all.ctx, SIZE);
        w->models[i]  = calloc(1, SIZE);
        if (!w->buffers[i] || !w->models[i])
            must(usm_last_status(), "a buffer");
        for (size_t at = 0; at < SIZE; at += BLOCK) {
            must(usm_access_begin(w->buffers[i], at, BLOCK, USM_WRITE_NO_INIT, &a), "an access");
            memset(a.ptr, 0, BLOCK);
            usm_access_end(&a);
        }
    }
}

static void end(worker *w)
{
    give_up(w);
    if (options.planted)
        w->models[pick(w, BUFFERS)][pick(w, SIZE)] ^= 1;
    for (unsigned i = 0; i < BUFFERS; i++)
        for (size_t at = 0; at < SIZE; at += RANGE)
            look(w, (part){i, at, RANGE});
    for (unsigned i = 0; i < EVENTS; i++)
        usm_event_release(w->events[i]);
    for (unsigned i = 0; i < BUFFERS; i++) {
        usm_buffer_destroy(w->buffers[i]);
        free(w->models[i]);
    }
}

static void *work(void *worker_)
{
    worker *w = worker_;

    begin(w);
    for (uint64_t i = 0; i < options.operations; i++)
        step(w);
    end(w);
    return NULL;
}

/* ---- all
 * ------------------------------------------------------------------------------------------ */

/* Asks for it, by a fill of memory that nobody else knows. */
static bool moves_data(void)
{
    unsigned char pattern = 1;
    void         *p       = usm_malloc_device(64, all.queues[0]);
    usm_status    st      = usm_last_status();

    if (p)
        st = usm_fill(all.queues[0], p, &pattern, 1, 64, 0, NULL, NULL);
    if (st != USM_E_NO_DATA_MOVED)
        must(st, "a fill of device memory");
    must(usm_queue_wait(all.queues[0]), "usm_queue_wait");
    usm_free(p);
    return st == USM_OK;
}

static void start(void)
{
    usm_context_desc desc       = USM_CONTEXT_DESC_INIT;
    usm_queue_desc   free_order = {sizeof free_order, USM_QUEUE_OUT_OF_ORDER};
    char             text[64];

    (void)snprintf(text, sizeof text, "host:%dK",
                   BLOCK / 1024 * (FRAMES + OPEN * (int)options.threads));
    must(usm_config_set("memory_limit", text), "memory_limit");
    (void)snprintf(text, sizeof text, "%dK", BLOCK / 1024);
    must(usm_config_set("spill_block", text), "spill_block");
    all.has_graphs = grant_graph_open();
    desc.on_error  = failed_late;
    must(usm_context_create(&desc, &all.ctx), "usm_context_create");
    for (int i = 0; i < QUEUES; i++)
        if (i % 2 == 0 || usm_queue_create(all.ctx, NULL, &free_order, &all.queues[i]) != USM_OK)
            must(usm_queue_create(all.ctx, NULL, NULL, &all.queues[i]), "usm_queue_create");
    all.moves_data = moves_data();
}

static void stop(void)
{
    grant_graph_close();
    for (int i = 0; i < QUEUES; i++)
        usm_queue_destroy(all.queues[i]);
    usm_context_destroy(all.ctx);
}

static uint64_t run_seed(uint64_t seed)
{
    worker   list[THREADS];
    uint64_t commands = 0;

    (void)alarm(SECONDS);
    all.seed = seed;
    memset(list, 0, sizeof list);
    for (unsigned i = 0; i < options.threads; i++) {
        list[i].seed  = seed;
        list[i].state = seed * THREADS + i;
        if (pthread_create(&list[i].thread, NULL, work, &list[i]) != 0)
            exit(1);
    }
    for (unsigned i = 0; i < options.threads; i++) {
        (void)pthread_join(list[i].thread, NULL);
        commands += list[i].commands;
    }
    return commands;
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--planted") == 0)
            options.planted = true;
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            options.threads = 1 + (unsigned)(strtoul(argv[++i], NULL, 0) - 1) % THREADS;
        else if (strcmp(argv[i], "--operations") == 0 && i + 1 < argc)
            options.operations = strtoull(argv[++i], NULL, 0);
        else if (!budget_option(&seeds, argc, argv, &i))
            exit(2);
    }
}

int main(int argc, char **argv)
{
    uint64_t commands = 0, seed;

    parse(argc, argv);
    (void)signal(SIGALRM, hung);
    start();
    while (budget_next(&seeds, &seed))
        commands += run_seed(seed);
    stop();
    budget_print(&seeds);
    printf(", %u threads, %llu operations, %u graphs and %u without memory: every wait returned, "
           "as serial execution\n",
           options.threads, (unsigned long long)commands, all.graphs, all.refused);
    return 0;
}
