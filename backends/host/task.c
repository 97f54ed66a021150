/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Functions of the program that run on the workers of the host backend, in the order of the queue.
 *
 * Most tasks wait only for their in-order queue, no event is requested, and the work may take only
 * a microsecond.  Such tasks in a row form a batch (in the code a "train"): one command of the
 * graph with a list of tasks.
 *
 *      queue:   a command | batch: t1 t2 t3 ...  <- the next task, while the batch is the last
 *
 * Submitting one appends it to the list, under the graph's lock.  The worker takes the whole list,
 * runs it in order, and looks for more.  If none comes for LINGER_NS, or if other work waits for
 * the worker or for the end of the batch, the command is complete.  A command that enters the queue
 * behind the batch closes it, and so does a thread that waits for the queue: later tasks are not
 * part of it.  Commands and waiters thus see the same order as if each task were a command.
 *
 * In an out-of-order queue the tasks of a batch may run side by side, and block for each other.  So
 * each is a part of the command, which the workers take one by one, as those of a launch ("loose").
 * While it is open and all its tasks have ended it is idle: no worker has it, and it is complete
 * when it is closed.
 *
 * All other tasks (with dependencies or an event) are commands.
 *
 * The elements of the lists come from a reuse list, to which the elements of finished tasks return.
 * Called by the core, through the table in host.c, and by queue.c. */
#include "graph.h"

#include <base/inline/clock.h>

#define LINGER_NS     20000u
#define GATHER_PAUSES 32    /* a microsecond                                                    */
#define FEW           16    /* tasks                                                            */
#define KEPT          65536 /* elements kept, 40 bytes each; further ones are freed to the heap */

#define graph usm__host_the_graph

struct usm__host_fn {
    struct usm__host_fn *next;
    usm_backend_task     body;
};

/* The payload of a batch.  Guarded by the graph's lock, except `news`. */
struct batch {
    usm__host_chain   waiting;
    bool              is_spinner;
    _Atomic(bool)     is_closed;
    _Atomic(unsigned) news; /* incremented at a change of `waiting` or is_closed, for a lingering
                               worker */
};

static void chain_add(usm__host_chain *c, struct usm__host_fn *t)
{
    t->next = NULL;
    if (c->first)
        c->last->next = t;
    else
        c->first = t;
    c->last = t;
    c->n++;
}

/* In front: the most recently used elements are in the cache. */
static void chain_join(usm__host_chain *c, usm__host_chain *more)
{
    if (!more->first)
        return;
    more->last->next = c->first;
    if (!c->first)
        c->last = more->last;
    c->first = more->first;
    c->n += more->n;
    *more = (usm__host_chain){NULL, NULL, 0};
}

static void chain_push(usm__host_chain *c, struct usm__host_fn *t)
{
    usm__host_chain one = {t, t, 1};

    chain_join(c, &one);
}

static struct usm__host_fn *chain_pop(usm__host_chain *c)
{
    struct usm__host_fn *t = c->first;

    if (t) {
        c->first = t->next;
        c->n--;
    }
    return t;
}

static void chain_free(usm__host_chain *c)
{
    for (struct usm__host_fn *t = chain_pop(c); t; t = chain_pop(c))
        usm__host_lib->heap_free(t);
}

void usm__host_tasks_forget(void)
{
    usm__host_chain all;

    usm__host_graph_lock();
    all                = graph.unused_tasks;
    graph.unused_tasks = (usm__host_chain){NULL, NULL, 0};
    usm__host_graph_unlock();
    chain_free(&all);
}

void usm__host_tasks_in_child(void)
{
    graph.unused_tasks = (usm__host_chain){NULL, NULL, 0};
}

/* --- running --------------------------------------------------------------------------------- */

/* Maps the return value of a program's function to a status that a command can end with. */
static usm_status as_result(usm_status status)
{
    if (status >= 0)
        return USM_OK;
    return status == USM_E_NOT_READY ? USM_E_INVALID : status;
}

/* Waits a moment for more tasks: a worker that took each one separately would compete for the lock
 * with the submitting thread. */
static void gather(struct batch *t)
{
    for (int i = 0; i < GATHER_PAUSES && !usm_load_relaxed(&t->is_closed); i++)
        usm_cpu_relax();
}

/* Waits until there is news or other work, at most for LINGER_NS. */
static void linger(struct batch *t, unsigned seen)
{
    uint64_t until = usm_clock_ns(CLOCK_MONOTONIC) + LINGER_NS;

    while (usm_load_relaxed(&t->news) == seen && !usm_load_relaxed(&graph.is_ready) &&
           usm_clock_ns(CLOCK_MONOTONIC) < until)
        for (int i = 0; i < 16; i++)
            usm_cpu_relax();
}

/* The lock is held.  The elements of finished tasks go to the reuse list, or to *excess. */
static void give_back(usm__host_chain *done, usm__host_chain *excess)
{
    chain_join(graph.unused_tasks.n + done->n <= KEPT ? &graph.unused_tasks : excess, done);
}

/* The lock is held.  A lingering worker takes commands that become ready, as a spinning one
 * does. */
static void set_lingering(struct batch *t, bool is_lingering)
{
    if (is_lingering && !graph.is_spinning) {
        t->is_spinner = graph.is_spinning = true;
    } else if (!is_lingering && t->is_spinner) {
        t->is_spinner = graph.is_spinning = false;
    }
}

/* Takes the waiting tasks, and returns the finished elements.  False: the batch ends. */
static bool next_tasks(usm__host_command *c, usm__host_chain *tasks, bool may_linger)
{
    struct batch   *t      = c->payload;
    usm__host_chain excess = {NULL, NULL, 0};
    unsigned        seen;
    bool            is_over, lingers;

    usm__host_graph_lock();
    set_lingering(t, false);
    give_back(tasks, &excess);
    *tasks     = t->waiting;
    t->waiting = (usm__host_chain){NULL, NULL, 0};
    is_over    = !tasks->first && (usm_load_relaxed(&t->is_closed) || !may_linger);
    lingers    = !tasks->first && !is_over;
    if (is_over && !usm_load_relaxed(&t->is_closed))
        usm__host_batch_close(c->queue);
    if (lingers)
        set_lingering(t, true);
    else if (!is_over)
        usm__host_call_for_help();
    seen = usm_load_relaxed(&t->news);
    usm__host_graph_unlock();
    chain_free(&excess);
    if (lingers)
        linger(t, seen);
    return !is_over;
}

/* The queue whose task the thread runs; a task that waits for another queue may run a task of that
 * queue. */
static __thread const usm__host_queue *running __attribute__((tls_model("initial-exec")));

bool usm__host_runs_task_of(const usm__host_queue *q)
{
    return running == q;
}

static usm_status run_body(usm__host_command *c, const usm_backend_task *t)
{
    const usm__host_queue *before = running;
    usm_status             status;

    running = c->queue;
    status  = as_result(t->run(t->user));
    running = before;
    return status;
}

static usm_status run_batch(usm__host_command *c, size_t part)
{
    usm__host_chain tasks    = {NULL, NULL, 0};
    usm_status      failure  = USM_OK;
    bool            had_some = true; /* after an empty list the worker looks once more, after a
                                     while */

    (void)part;
    while (next_tasks(c, &tasks, had_some)) {
        had_some = usm__host.may_spin && tasks.first;
        for (struct usm__host_fn *t = tasks.first; t; t = t->next) {
            usm_status status = run_body(c, &t->body);

            if (!failure)
                failure = status;
        }
        if (tasks.n < FEW && usm__host.may_spin)
            gather(c->payload);
    }
    return failure;
}

void usm__host_batch_take(usm__host_step *s)
{
    struct batch        *b = s->command->payload;
    struct usm__host_fn *t = chain_pop(&b->waiting);

    s->task   = t->body;
    s->excess = NULL;
    if (graph.unused_tasks.n < KEPT)
        chain_push(&graph.unused_tasks, t);
    else
        s->excess = t;
}

usm_status usm__host_batch_run(usm__host_step *s)
{
    if (s->excess)
        usm__host_lib->heap_free(s->excess);
    return run_body(s->command, &s->task);
}

static usm_status run_task(usm__host_command *c, size_t part)
{
    (void)part;
    return run_body(c, c->payload);
}

static void drop_task(usm__host_command *c)
{
    const usm_backend_task *t = c->payload;

    if (t->drop)
        t->drop(t->user);
}

/* --- submitting ------------------------------------------------------------------------------ */

/* The lock is held: all tasks of a loose batch have ended. */
static bool is_drained(const usm__host_command *c)
{
    return c->running == 0 && c->next_part == c->parts;
}

void usm__host_batch_close(usm__host_queue *q)
{
    struct batch      *t;
    usm__host_command *c;

    if (!q->batch)
        return;
    t = q->batch->payload;
    usm_store_relaxed(&t->is_closed, true);
    c        = q->batch;
    q->batch = NULL;
    (void)usm_add_relaxed(&t->news, 1u);
    if (c->is_loose && is_drained(c))
        usm__host_end_idle(c);
}

static usm_status submit_command(usm__host_queue *q, const usm_backend_task *task, size_t ndeps,
                                 void *const *deps, void **ev)
{
    usm__host_command *c = usm__host_command_create(q, ndeps, sizeof(*task));

    if (!c)
        return USM_E_NO_MEMORY;
    *(usm_backend_task *)c->payload = *task;
    c->run                          = run_task;
    c->drop                         = drop_task;
    c->is_task                      = true;
    return usm__host_submit(c, ndeps, deps, ev);
}

/* The lock is held, and the queue has a batch. */
static void board(usm__host_queue *q, struct usm__host_fn *t)
{
    usm__host_command *c     = q->batch;
    struct batch      *batch = c->payload;

    chain_add(&batch->waiting, t);
    if (!c->is_loose) {
        (void)usm_add_relaxed(&batch->news, 1u);
        return;
    }
    graph.tasks += is_drained(c);
    if (c->next_part == c->parts++ && c->unmet == 0)
        usm__host_enter_ready(c);
    usm__host_call_for_help();
}

/* Takes ownership of t. */
static usm_status start_batch(usm__host_queue *q, struct usm__host_fn *t)
{
    usm__host_command *c = usm__host_command_create(q, 0, sizeof(struct batch));
    int                error;

    if (!c) {
        usm__host_lib->heap_free(t);
        return USM_E_NO_MEMORY;
    }
    c->run      = run_batch;
    c->is_task  = true;
    c->is_loose = !q->in_order;
    usm__host_graph_lock();
    error = usm__host_have_worker();
    if (!error && q->batch) { /* another thread was faster */
        board(q, t);
    } else if (!error) {
        chain_add(&((struct batch *)c->payload)->waiting, t);
        usm__host_enter_graph(c, 0, NULL, false);
        q->batch = c;
        c        = NULL;
    }
    usm__host_graph_unlock();
    if (c)
        usm__host_command_release(c);
    if (!error)
        return USM_OK;
    usm__host_lib->heap_free(t);
    return usm__host_no_worker(error);
}

usm_status usm__host_task(void *queue, const usm_backend_task *task, size_t ndeps,
                          void *const *deps, void **ev)
{
    usm__host_queue     *q = queue;
    struct usm__host_fn *t;
    bool                 is_aboard;

    if (ndeps > 0 || ev)
        return submit_command(q, task, ndeps, deps, ev);
    usm__host_graph_lock();
    t         = chain_pop(&graph.unused_tasks);
    is_aboard = t && q->batch;
    if (t)
        t->body = *task;
    if (is_aboard)
        board(q, t);
    usm__host_graph_unlock();
    if (is_aboard)
        return USM_OK;
    if (!t) {
        t = usm__host_lib->heap_alloc(sizeof(*t));
        if (!t)
            return usm__host_lib->report(USM_E_NO_MEMORY, "no host memory for a task");
        t->body = *task;
    }
    return start_batch(q, t);
}
