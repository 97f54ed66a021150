/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues of the host backend: a graph of commands, and the workers that run it.
 *
 * The problem.  Commands come from any thread.  They wait for events of any queue, for earlier
 * commands of an in-order queue, for barriers, and for user events that the program completes at
 * some time.  Submitting must not wait, and nothing may poll.
 *
 * The picture.  A command is a node, and its own event.  It has a count of what it waits for
 * (`unmet`) and a list of edges to the commands that wait for it (`successors`).  An edge belongs
 * to the later command and is allocated with it, so a submission allocates once, before anything is
 * linked: there is no half-queued command.
 *
 *      queue A (in order)       a1 ---> a2 ---> a3             --->  an edge
 *                                        \
 *      queue B (out of order)   b1        \--> b2     [user event] ---> b3
 *
 *      ready list               a1, b1        those with unmet = 0, first come first served
 *      workers                  w1 w2 ...     take shares of the first one, sleep when it is empty
 *
 * When a command completes, it decrements `unmet` of each successor, and those that reach 0 enter
 * the ready list.  A command has `parts`, shares of its work (for a launch: pieces of its
 * ND-range).  It stays in the ready list until all parts are handed out, and is complete when all
 * have ended.
 *
 * The order of commands. `predecessor` is the command that new commands of a queue wait for: the
 * last one in an in-order queue, the last barrier in an out-of-order queue.  A barrier or marker
 * without dependencies waits for all commands before it.  That could be many edges, but none are
 * needed: the unfinished commands of a queue are in a list, in order, and such a command may run
 * when it is the head.
 *
 * Failures.  A command whose *dependency* failed does not run and fails with USM_E_DEPENDENCY, and
 * so on along the edges.  It goes through the ready list like all others, so a long chain needs no
 * deep stack.  Commands that only come later in the queue do run: whether a failed command was
 * complete when they were submitted is a matter of chance, and must not decide.  The failure of a
 * command without an event is stored for queue_wait().
 *
 * The workers are in team.c, functions of the program in task.c.  Freed commands are kept for
 * reuse: a launch like an earlier one allocates nothing from the heap.
 *
 * One lock guards the graph.  It is held for links and counts only, never for work, callbacks or
 * waiting.  Invariants, under the lock:
 *
 *   unmet(c) = edges that lead to c + (1 if c waits to be the head of its queue)
 *   c is in the ready list  <=>  unmet(c) = 0, submitted, and next_part < parts
 *   (an open batch of an out-of-order queue may be idle: next_part = parts, running = 0)
 *   c is complete  <=>  result(c) != USM_E_NOT_READY;  then it is in no list, without successors
 *   a queue's list holds ascending numbers;  predecessor is in that list, or NULL
 *   references of c = 1 until it is complete + 1 for each event handle
 *   references of a queue = 1 until queue_destroy() + its commands that are not complete
 *
 * Rejected: a lock for each queue (edges cross queues, so locks would nest in any order) and
 * lock-free counts (a launch costs microseconds; the lock is held for some tens of nanoseconds). */
#include "graph.h"

#include <base/inline/clock.h>

#define PAYLOAD_ALIGN ((size_t)64) /* the widest vector that a kernel may load */

struct edge {
    usm_list           link;          /* in the earlier command's successors          */
    usm__host_command *to;            /* the later command, which owns the edge       */
    bool               is_dependency; /* a failure is propagated along it; otherwise it only
                                         orders */
};

/* The memory of a command: edges for its dependencies and for the predecessor, then the payload. */
struct node {
    usm__host_command command;
    struct edge       edges[];
};

/* Tasks and copies use the small ones, launches mostly the others. */
static usm_recycler blocks[] = {USM_RECYCLER_INIT(768, 4096), USM_RECYCLER_INIT(4096, 512)};

#define BLOCK_SIZES (sizeof(blocks) / sizeof(blocks[0]))

usm__host_graph usm__host_the_graph = {
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
    .lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, /* held briefly: worth spinning */
#else
    .lock = PTHREAD_MUTEX_INITIALIZER,
#endif
    .ready     = {&usm__host_the_graph.ready, &usm__host_the_graph.ready},
    .work      = PTHREAD_COND_INITIALIZER,
    .standby   = PTHREAD_COND_INITIALIZER,
    .quiescent = PTHREAD_COND_INITIALIZER};

#define graph usm__host_the_graph

void usm__host_graph_lock(void)
{
    pthread_mutex_lock(&graph.lock);
}

void usm__host_graph_unlock(void)
{
    pthread_mutex_unlock(&graph.lock);
}

/* --- links: the lock is held ----------------------------------------------------------------- */

/* One of the commands that c waits for has ended. */
static void meet(usm__host_command *c)
{
    if (--c->unmet == 0)
        usm__host_enter_ready(c);
}

void usm__host_enter_ready(usm__host_command *c)
{
    usm_list_append(&graph.ready, &c->ready_link);
    usm_store_relaxed(&graph.is_ready, true);
}

static void link_after(usm__host_command *earlier, struct edge *e, usm__host_command *later,
                       bool is_dependency)
{
    usm_status result = usm__host_result(earlier);

    if (result == USM_E_NOT_READY) {
        e->to            = later;
        e->is_dependency = is_dependency;
        usm_list_append(&earlier->successors, &e->link);
        later->unmet++;
    } else if (is_dependency && result != USM_OK) {
        later->dependency_failed = true;
    }
}

static usm__host_command *first_unfinished(usm__host_queue *q)
{
    if (usm_list_is_empty(&q->unfinished))
        return NULL;
    return usm_container_of(q->unfinished.next, usm__host_command, queue_link);
}

static void enter_queue(usm__host_command *c, struct edge *e)
{
    usm__host_queue *q = c->queue;

    usm__host_batch_close(q);
    if (q->predecessor)
        link_after(q->predecessor, e, c, false);
    if (c->waits_for_all && !usm_list_is_empty(&q->unfinished))
        c->unmet++;
    else
        c->waits_for_all = false;
    if (q->in_order || c->is_barrier)
        q->predecessor = c;
    c->number = ++q->last_number;
    usm_list_append(&q->unfinished, &c->queue_link);
    usm_ref_take(&q->refs);
}

static void leave_queue(usm__host_command *c, usm_status status)
{
    usm__host_queue   *q = c->queue;
    usm__host_command *head;

    usm_list_remove(&c->queue_link);
    if (q->predecessor == c)
        q->predecessor = NULL;
    head = first_unfinished(q);
    if (head && head->waits_for_all) {
        head->waits_for_all = false;
        meet(head);
    }
    if (status && !c->has_event && !q->failure)
        q->failure = status;
    if (q->waiters && (!head || head->number > q->awaited)) {
        q->awaited = UINT64_MAX;
        pthread_cond_broadcast(&q->progress);
    }
}

/* --- completion ------------------------------------------------------------------------------ */

/* The lock is held.  Returns the callbacks, for notify_all(). */
static usm__host_note *complete(usm__host_command *c, usm_status status)
{
    usm__host_note *notes = c->notes;
    usm_list       *it;

    while ((it = usm_list_pop(&c->successors))) {
        struct edge *e = usm_container_of(it, struct edge, link);

        if (e->is_dependency && status)
            e->to->dependency_failed = true;
        meet(e->to); /* e is freed with its owner */
    }
    if (c->queue)
        leave_queue(c, status);
    if (c->has_times)
        c->times.end_ns = usm_clock_ns(CLOCK_MONOTONIC);
    c->notes = NULL;
    usm_store_release(&c->result, (int)status);
    pthread_cond_broadcast(&c->done);
    return notes;
}

/* The lock is not held. */
static void notify_all(usm__host_note *notes, usm_status status)
{
    while (notes) {
        usm__host_note *next = notes->next;

        notes->fn(notes->arg, status);
        usm__host_note_free(notes);
        notes = next;
    }
}

/* In a child it would wait for threads that wait in the parent; it has nothing to free there. */
static void destroy_condition(pthread_cond_t *condition)
{
    if (!graph.in_child)
        pthread_cond_destroy(condition);
}

/* The last reference was released. */
static void free_queue(usm__host_queue *q)
{
    destroy_condition(&q->progress);
    usm__host_lib->heap_free(q);
    usm__host_workers_let_go();
}

/* --- working --------------------------------------------------------------------------------- */

static void leave_ready(usm__host_command *c)
{
    usm_list_remove(&c->ready_link);
    usm_store_relaxed(&graph.is_ready, !usm_list_is_empty(&graph.ready));
}

/* A loose batch that grows as fast as it is run must not keep others from the workers. */
static void let_others_by(usm__host_command *c)
{
    usm_list_remove(&c->ready_link);
    usm_list_append(&graph.ready, &c->ready_link);
}

void usm__host_step_take_part(usm__host_step *s)
{
    usm__host_command *c = usm_container_of(graph.ready.next, usm__host_command, ready_link);

    s->kind    = USM__HOST_STEP_PART;
    s->command = c;
    s->part    = c->next_part++;
    c->running++;
    graph.taken++;
    graph.in_tasks += c->is_task;
    if (c->is_loose)
        usm__host_batch_take(s);
    if (c->next_part == c->parts)
        leave_ready(c);
    else if (c->is_loose)
        let_others_by(c);
    if (s->part == 0 && c->has_times)
        c->times.start_ns = usm_clock_ns(CLOCK_MONOTONIC);
    usm__host_call_for_help();
}

static usm_status run_part(usm__host_step *s)
{
    usm__host_command *c = s->command;

    if (c->is_loose)
        return usm__host_batch_run(s);
    if (c->dependency_failed) {
        if (c->drop)
            c->drop(c);
        return USM_E_DEPENDENCY;
    }
    return c->run ? c->run(c, s->part) : USM_OK;
}

static void count_task_ended(void)
{
    if (--graph.tasks == 0)
        pthread_cond_broadcast(&graph.quiescent);
}

/* The lock is held.  True if that was the last part: the command is over.  A failure cancels the
 * parts that were not handed out, but not the tasks of a batch. */
static bool give_part_back(usm__host_command *c, usm_status status)
{
    c->running--;
    graph.in_tasks -= c->is_task;
    if (status && !c->failure) {
        c->failure = status;
        if (!c->is_loose) {
            c->next_part = c->parts;
            leave_ready(c);
        }
    }
    if (c->running > 0 || c->next_part < c->parts)
        return false;
    if (c != c->queue->batch)
        return true;
    if (c->is_loose)
        count_task_ended(); /* idle: open, and without tasks */
    return !c->is_loose;
}

void usm__host_end_idle(usm__host_command *c)
{
    usm__host_queue *q = c->queue;

    (void)complete(c, c->failure); /* no one waits for it by name */
    usm__host_command_release(c);
    (void)usm_ref_drop(&q->refs); /* not the last one: the caller has the queue */
}

/* The lock is held.  The command is complete, and its callbacks have been called. */
static void retire(usm__host_step *s)
{
    usm__host_command *c = s->command;

    s->queue = c->queue;
    if (c->is_task)
        count_task_ended();
    usm__host_command_release(c); /* not a user event: takes no lock but that of the reuse list */
    s->kind = usm_ref_drop(&s->queue->refs) ? USM__HOST_STEP_QUEUE : USM__HOST_STEP_NONE;
}

static void part_done(usm__host_step *s)
{
    usm__host_command *c = s->command;

    s->kind = USM__HOST_STEP_NONE;
    if (!give_part_back(c, s->status))
        return;
    s->notes = complete(c, c->failure);
    if (s->notes) { /* otherwise this thread will soon take the commands that became ready */
        s->kind = USM__HOST_STEP_NOTES;
        usm__host_call_for_help();
    } else {
        retire(s);
    }
}

void usm__host_step_done(usm__host_step *s)
{
    if (s->kind == USM__HOST_STEP_PART)
        part_done(s);
    else if (s->kind == USM__HOST_STEP_NOTES)
        retire(s);
    else
        s->kind = USM__HOST_STEP_NONE;
}

void usm__host_step_do(usm__host_step *s)
{
    if (s->kind == USM__HOST_STEP_PART)
        s->status = run_part(s);
    else if (s->kind == USM__HOST_STEP_NOTES)
        notify_all(s->notes, s->command->failure);
    else
        free_queue(s->queue);
}

void usm__host_graph_in_child(void)
{
    usm_list_init(&graph.ready);
    usm_store_relaxed(&graph.is_ready, false);
    for (size_t i = 0; i < BLOCK_SIZES; i++)
        usm_recycler_in_child(&blocks[i]);
    usm__host_tasks_in_child();
    usm__host_notes_forget(true);
    usm__host_scratch_forget(true);
    usm__host_team_in_child();
}

void usm__host_forget_recycled(void)
{
    for (size_t i = 0; i < BLOCK_SIZES; i++)
        usm_recycler_clear(&blocks[i], usm__host_lib->heap_free);
    usm__host_tasks_forget();
    usm__host_notes_forget(false);
    usm__host_scratch_forget(false);
}

/* --- commands -------------------------------------------------------------------------------- */

/* The reuse list for blocks of that size; NULL: too large to be kept. */
static usm_recycler *blocks_of(size_t size)
{
    for (size_t i = 0; i < BLOCK_SIZES; i++)
        if (size <= blocks[i].size)
            return &blocks[i];
    return NULL;
}

/* A zeroed block of that size. */
static struct node *node_new(size_t size)
{
    usm_recycler *r = blocks_of(size);
    struct node  *n = r ? usm_recycler_take(r, size) : NULL;

    if (!n)
        n = usm__host_lib->heap_alloc(r ? r->size : size);
    if (n)
        n->command.size = size;
    return n;
}

static void node_free(struct node *n)
{
    usm_recycler *r = blocks_of(n->command.size);

    if (!r || !usm_recycler_give(r, n))
        usm__host_lib->heap_free(n);
    else if (!usm_load_acquire(&graph.has_users)) /* an event that outlived all contexts */
        usm_recycler_clear(r, usm__host_lib->heap_free);
}

usm__host_command *usm__host_command_create(usm__host_queue *q, size_t ndeps, size_t payload)
{
    size_t       edges = sizeof(struct node) + (ndeps + 1) * sizeof(struct edge);
    struct node *n     = node_new(edges + PAYLOAD_ALIGN + payload);

    if (!n) {
        (void)usm__host_lib->report(USM_E_NO_MEMORY, "no host memory for a command or event");
        return NULL;
    }
    usm__host_command *c = &n->command;

    c->queue     = q;
    c->has_times = q && q->has_times;
    c->parts     = 1;
    c->payload   = (void *)usm_align_up_ptr((uintptr_t)n + edges, PAYLOAD_ALIGN);
    usm_list_init(&c->queue_link);
    usm_list_init(&c->ready_link);
    usm_list_init(&c->successors);
    pthread_cond_init(&c->done, NULL);
    atomic_init(&c->refs, 1);
    atomic_init(&c->result, USM_E_NOT_READY);
    return c;
}

/* Apart from a command that was never submitted, only a user event can be unfinished here. */
void usm__host_command_release(usm__host_command *c)
{
    if (!usm_ref_drop(&c->refs))
        return;
    if (!c->queue)
        (void)usm__host_finish_user(c, USM_E_INVALID_HANDLE);
    destroy_condition(&c->done);
    node_free((struct node *)(void *)c);
}

/* The lock is held.  `unmet` starts at 1, for this function, so that c does not become ready too
 * early. */
void usm__host_enter_graph(usm__host_command *c, size_t ndeps, void *const *deps, bool has_event)
{
    struct edge *edges = ((struct node *)(void *)c)->edges;

    graph.tasks += c->is_task;
    c->has_event = has_event;
    if (has_event)
        usm_ref_take(&c->refs); /* the caller's */
    c->unmet = 1;
    for (size_t i = 0; i < ndeps; i++)
        link_after(deps[i], &edges[i], c, true);
    enter_queue(c, &edges[ndeps]);
    meet(c);
    usm__host_call_for_help();
}

usm_status usm__host_submit(usm__host_command *c, size_t ndeps, void *const *deps, void **ev)
{
    int error;

    if (c->has_times)
        c->times.submit_ns = usm_clock_ns(CLOCK_MONOTONIC);
    usm__host_graph_lock();
    error = usm__host_have_worker();
    if (!error)
        usm__host_enter_graph(c, ndeps, deps, ev != NULL);
    usm__host_graph_unlock();
    if (error) {
        usm__host_command_release(c);
        return usm__host_no_worker(error);
    }
    if (ev)
        *ev = c;
    return USM_OK;
}

bool usm__host_finish_user(usm__host_command *c, usm_status status)
{
    usm__host_note *notes;

    usm__host_graph_lock();
    if (usm__host_result(c) != USM_E_NOT_READY) {
        usm__host_graph_unlock();
        return false;
    }
    notes = complete(c, status);
    usm__host_call_for_help();
    usm__host_graph_unlock();
    notify_all(notes, status);
    return true;
}

void usm__host_await(usm__host_command *c)
{
    if (usm__host_result(c) != USM_E_NOT_READY)
        return;
    usm__host_graph_lock();
    while (usm__host_result(c) == USM_E_NOT_READY)
        pthread_cond_wait(&c->done, &graph.lock);
    usm__host_graph_unlock();
}

bool usm__host_attach(usm__host_command *c, usm__host_note *note)
{
    bool attached;

    usm__host_graph_lock();
    attached = usm__host_result(c) == USM_E_NOT_READY;
    if (attached) {
        note->next = c->notes;
        c->notes   = note;
    }
    usm__host_graph_unlock();
    return attached;
}

/* --- queues ---------------------------------------------------------------------------------- */

usm_status usm__host_queue_create(void *ctx, void *dev, uint32_t flags, void **out)
{
    usm__host_queue *q = usm__host_lib->heap_alloc(sizeof(*q));

    (void)ctx;
    (void)dev;
    if (!q)
        return usm__host_lib->report(USM_E_NO_MEMORY, "no host memory for a queue");
    q->in_order  = !(flags & USM_QUEUE_OUT_OF_ORDER);
    q->has_times = (flags & USM_QUEUE_PROFILING) != 0;
    q->awaited   = UINT64_MAX;
    usm_list_init(&q->unfinished);
    pthread_cond_init(&q->progress, NULL);
    atomic_init(&q->refs, 1);
    usm__host_workers_keep();
    *out = q;
    return USM_OK;
}

void usm__host_queue_destroy(void *queue)
{
    usm__host_queue *q = queue;

    usm__host_graph_lock();
    usm__host_batch_close(q); /* an idle one would keep the queue */
    usm__host_graph_unlock();
    if (usm_ref_drop(&q->refs))
        free_queue(q);
}

usm_status usm__host_queue_wait(void *queue)
{
    usm__host_queue   *q = queue;
    usm__host_command *head;
    uint64_t           last;
    usm_status         failure;

    if (usm__host_runs_task_of(q))
        return usm__host_lib->report(USM_E_BUSY,
                                     "a task waits for the queue that it runs in, and so "
                                     "for its own end");
    usm__host_graph_lock();
    last = q->last_number;
    usm__host_batch_close(q); /* otherwise it would wait for later tasks too */
    q->waiters++;
    while ((head = first_unfinished(q)) && head->number <= last) {
        if (last < q->awaited)
            q->awaited = last;
        pthread_cond_wait(&q->progress, &graph.lock);
    }
    q->waiters--;
    failure    = q->failure;
    q->failure = USM_OK;
    usm__host_graph_unlock();
    if (failure)
        return usm__host_lib->report(failure, "a command that was queued without an event failed");
    return USM_OK;
}
