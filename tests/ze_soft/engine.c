/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The thread behind a command queue or an immediate list.  Called by queue.c and list.c.
 *
 * An engine has a list of commands, in the order they came, and one thread, started by the first of
 * them, that sleeps when there is none and when a command waits for events.  A command stays in the
 * list until it is done, so that the head is always the oldest that is not: who waits for the
 * engine waits for the head to be younger than the last command it knows of.
 *
 * When the device is lost the thread drops what is queued; its events stay unsignalled, and waits
 * for them say that the device is lost (cell.c).
 *
 * A queue that is destroyed at work: its engine ends what it does, in exec_engine_close(); what
 * waits for events, perhaps for ever, is left to the thread, which then frees the engine itself. */
#include "exec.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WINDOW 64 /* commands of a queue that may change places                                 */

struct exec_engine {
    /* fixed after create */
    soft_device *dev;
    bool         is_in_order;
    exec_engine *next, **link; /* guarded by the lock of the list of engines                 */
    /* the thread's own */
    uint64_t rng;
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t  work; /* for the thread: a command, or the end                             */
    pthread_cond_t  idle; /* for others: commands are done, or the thread sleeps               */
    exec_cmd       *head, **tail;
    uint64_t        last; /* seq of the last command                                           */
    uint32_t        nwaiting;
    bool            is_started, is_closing, is_detached;
    bool            is_asleep; /* a command waits for events                                   */
    exec_cell      *bed;       /* what it sleeps on, if new commands are to wake it            */
    bool            is_failed; /* an event it waited for will never come                       */
    pthread_t       thread;
};

static pthread_mutex_t engines_lock = PTHREAD_MUTEX_INITIALIZER;
static exec_engine    *engines; /* guarded by engines_lock                                     */
/* With engines_lock: commands are done. */
static pthread_cond_t   progress = PTHREAD_COND_INITIALIZER;
static _Atomic uint32_t nblocked;  /* who waits for progress                                    */
static _Atomic uint64_t submitted; /* commands of all engines: their seq                        */
static pthread_mutex_t  counter_lock = PTHREAD_MUTEX_INITIALIZER; /* of cells' `pending`; a leaf */

/* --- knobs ------------------------------------------------------------------------------- */

static pthread_once_t   once = PTHREAD_ONCE_INIT;
static uint64_t         copy_mbs, lose_at;
static _Atomic uint64_t ncommands; /* of the first device                                     */

static void read_knobs(void)
{
    copy_mbs = soft_knob("COPY_MBS", 0);
    lose_at  = soft_knob("LOSE", 0);
}

void exec_throttle(uint64_t start, size_t bytes)
{
    uint64_t        end;
    struct timespec at;

    if (!copy_mbs)
        return;
    end = start + (uint64_t)((double)bytes * 1000.0 / (double)copy_mbs);
    at  = (struct timespec){(time_t)(end / 1000000000u), (long)(end % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL))
        ;
}

static void count_command(const exec_engine *e, const exec_cmd *cmd)
{
    if (!cmd->kind->is_ours && lose_at && e->dev->index == 0 &&
        atomic_fetch_add(&ncommands, 1) + 1 == lose_at)
        soft_lose(&soft_devices[0]);
}

/* --- what a command will signal ------------------------------------------------------------ */

/* Once it is submitted its event is not signalled, when that is a counter, and depends on the
 * device. */
static void arm(const exec_engine *e, exec_cmd *cmd)
{
    const exec_point *p = &cmd->signal;

    if (!p->store)
        return;
    atomic_store(&p->cell->signaller, e->dev->index + 1);
    if (!p->store->is_counter)
        return;
    pthread_mutex_lock(&counter_lock);
    p->cell->pending++;
    exec_cell_reset(p->cell);
    pthread_mutex_unlock(&counter_lock);
}

static void signal_point(const exec_point *p, uint64_t start, uint64_t end)
{
    bool is_last = true;

    if (!p->store)
        return;
    atomic_store(&p->cell->start, start);
    atomic_store(&p->cell->end, end);
    if (!p->store->is_counter) {
        exec_cell_set(p->cell);
        return;
    }
    pthread_mutex_lock(&counter_lock);
    is_last = --p->cell->pending == 0;
    if (is_last)
        exec_cell_set(p->cell);
    pthread_mutex_unlock(&counter_lock);
}

/* --- running ------------------------------------------------------------------------------- */

static void set_asleep(exec_engine *e, bool is_asleep)
{
    pthread_mutex_lock(&e->lock);
    e->is_asleep = is_asleep;
    pthread_cond_broadcast(&e->idle);
    pthread_mutex_unlock(&e->lock);
}

static bool wait_for_events(exec_engine *e, const exec_cmd *cmd)
{
    bool ok = true;

    if (exec_cmd_is_ready(cmd))
        return true;
    set_asleep(e, true);
    for (uint32_t i = 0; ok && i < cmd->nwaits; i++)
        ok = exec_point_wait(&cmd->points[i], e->dev, UINT64_MAX) == EXEC_DONE;
    set_asleep(e, false);
    return ok;
}

static bool uses(const exec_cmd *cmd, const unsigned char *base, size_t size)
{
    const exec_kind *kind = cmd->made_as;

    return kind->uses ? kind->uses(cmd, base, size) : kind->run != NULL;
}

static bool body_uses(const exec_cmd *cmd, const unsigned char *base, size_t size)
{
    const exec_body *body = cmd->as.body;

    for (size_t i = 0; i < body->n; i++)
        if (uses(body->cmds[i], base, size))
            return true;
    return false;
}

/* false: the device is lost, or another one that was to signal an event. */
static bool run(exec_engine *e, exec_cmd *cmd, bool is_last_run)
{
    uint64_t start, end;

    if (soft_is_lost(e->dev) || !wait_for_events(e, cmd))
        return false;
    count_command(e, cmd);
    if (soft_is_lost(e->dev))
        return false;
    start = soft_now_ns();
    if (cmd->kind->run && !cmd->kind->run(e, cmd))
        return false;
    end = soft_now_ns();
    /* Before the signal: then the program may destroy what the command used. */
    if (is_last_run && cmd->kind->uses != body_uses) /* which looks into the body */
        exec_cmd_fini(cmd);
    signal_point(&cmd->signal, start, end);
    return true;
}

static bool run_reordered(exec_engine *e, const exec_body *body, exec_cmd **left)
{
    size_t n = body->n;

    memcpy(left, body->cmds, n * sizeof(exec_cmd *));
    while (n) {
        size_t i = exec_order_next(left, n, &e->rng);

        if (!run(e, left[i], false))
            return false;
        n--;
        memmove(left + i, left + i + 1, (n - i) * sizeof(exec_cmd *));
    }
    return true;
}

static bool run_body(exec_engine *e, exec_cmd *cmd)
{
    const exec_body *body = cmd->as.body;
    exec_cmd       **left;
    bool             ok = true;

    if (!body->is_in_order && exec_order_is_random() && body->n) {
        left = malloc(body->n * sizeof(exec_cmd *));
        if (left) {
            ok = run_reordered(e, body, left);
            free(left);
            return ok;
        }
    }
    for (size_t i = 0; ok && i < body->n; i++)
        ok = run(e, body->cmds[i], false);
    return ok;
}

static void fini_body(exec_cmd *cmd)
{
    exec_body_unref(cmd->as.body);
}

static const exec_kind body_kind = {.name     = "zeCommandQueueExecuteCommandLists",
                                    .is_fence = true,
                                    .is_ours  = true,
                                    .run      = run_body,
                                    .fini     = fini_body,
                                    .uses     = body_uses};

ze_result_t exec_body_cmd(exec_body *body, const exec_events *events, exec_cmd **out)
{
    ze_result_t res = exec_cmd_new(&body_kind, events, 0, out, NULL);

    if (res == ZE_RESULT_SUCCESS)
        (*out)->as.body = exec_body_ref(body);
    return res;
}

/* --- the thread ------------------------------------------------------------------------------- */

/* Sleeps on the first event that cmd waits for and that is not signalled, until it is or another
 * command comes.  Lock held on entry and return; false: it will never be. */
static bool sleep_on(exec_engine *e, const exec_cmd *cmd)
{
    const exec_point *p = cmd->points;
    uint32_t          word;
    exec_wait         wait;

    while (exec_cell_is_set(p->cell))
        if (++p == cmd->points + cmd->nwaits)
            return true;
    /* Before the lock is given up: who submits then changes it. */
    word         = exec_cell_word(p->cell);
    e->bed       = p->cell;
    e->is_asleep = true;
    pthread_cond_broadcast(&e->idle);
    pthread_mutex_unlock(&e->lock);
    wait = exec_point_sleep(p, e->dev, word, UINT64_MAX);
    pthread_mutex_lock(&e->lock);
    e->bed       = NULL;
    e->is_asleep = false;
    return wait != EXEC_LOST;
}

/* The list has a command; lock held on entry and return. */
static exec_cmd *next_command(exec_engine *e)
{
    if (e->is_in_order || !exec_order_is_random())
        return e->head;
    for (;;) {
        exec_cmd *window[WINDOW], *next;
        size_t    n = 0;

        for (exec_cmd *cmd = e->head; cmd && n < WINDOW; cmd = cmd->next)
            window[n++] = cmd;
        next = window[exec_order_next(window, n, &e->rng)];
        /* One that is never ready is run all the same, and that fails. */
        if (exec_cmd_is_ready(next) || !sleep_on(e, next))
            return next;
    }
}

/* Lock held. */
static void unlink_command(exec_engine *e, exec_cmd *cmd)
{
    exec_cmd **at = &e->head;

    while (*at != cmd)
        at = &(*at)->next;
    *at = cmd->next;
    if (!*at)
        e->tail = at;
    cmd->next = NULL;
}

/* No lock held.  Pairs with soft_exec_wait_unused(), which counts itself before it looks. */
static void notify_progress(void)
{
    if (!atomic_load(&nblocked))
        return;
    pthread_mutex_lock(&engines_lock);
    pthread_cond_broadcast(&progress);
    pthread_mutex_unlock(&engines_lock);
}

/* Who waits for its event is told that it will never be signalled. */
static void disarm(const exec_cmd *cmd)
{
    if (!cmd->signal.store || exec_cell_is_set(cmd->signal.cell))
        return;
    atomic_store(&cmd->signal.cell->signaller, EXEC_NOBODY);
    exec_cell_nudge(cmd->signal.cell);
}

static void disarm_all(const exec_cmd *cmd)
{
    for (; cmd; cmd = cmd->next) {
        const exec_body *body = cmd->kind == &body_kind ? cmd->as.body : NULL;

        for (size_t i = 0; body && i < body->n; i++)
            disarm(body->cmds[i]);
        disarm(cmd);
    }
}

/* What hangs is reset by the system, and with it goes all that its stream has.  Lock held on entry
 * and return.  Who waits is told before the memory is given back. */
static void drop_all(exec_engine *e)
{
    exec_cmd *cmds = e->head;

    e->head      = NULL;
    e->tail      = &e->head;
    e->is_failed = true;
    pthread_cond_broadcast(&e->idle);
    pthread_mutex_unlock(&e->lock);
    disarm_all(cmds);
    notify_progress();
    exec_cmd_free(cmds);
    pthread_mutex_lock(&e->lock);
}

/* Lock held on entry and return. */
static void do_next(exec_engine *e)
{
    exec_cmd *cmd = next_command(e);
    bool      ok;

    pthread_mutex_unlock(&e->lock);
    ok = run(e, cmd, true);
    pthread_mutex_lock(&e->lock);
    if (!ok) {
        drop_all(e);
        return;
    }
    unlink_command(e, cmd);
    if (e->nwaiting || e->is_closing)
        pthread_cond_broadcast(&e->idle);
    pthread_mutex_unlock(&e->lock);
    notify_progress();
    exec_cmd_free(cmd);
    pthread_mutex_lock(&e->lock);
}

static void engine_free(exec_engine *e)
{
    pthread_mutex_lock(&engines_lock);
    *e->link = e->next;
    if (e->next)
        e->next->link = e->link;
    pthread_mutex_unlock(&engines_lock);
    pthread_cond_destroy(&e->work);
    pthread_cond_destroy(&e->idle);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static void *engine_main(void *arg)
{
    exec_engine *e = arg;
    bool         is_detached;

    pthread_setname_np(pthread_self(), "ze_soft engine");
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!e->head && !e->is_closing)
            pthread_cond_wait(&e->work, &e->lock);
        if (!e->head)
            break;
        do_next(e);
    }
    is_detached = e->is_detached;
    pthread_mutex_unlock(&e->lock);
    if (is_detached)
        engine_free(e);
    return NULL;
}

/* Lock held.  The program's signals are not for this thread. */
static bool engine_start(exec_engine *e)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    e->is_started = pthread_create(&e->thread, NULL, engine_main, e) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return e->is_started;
}

/* --- for queues and lists --------------------------------------------------------------------- */

exec_engine *exec_engine_new(soft_device *dev, bool is_in_order)
{
    exec_engine       *e = calloc(1, sizeof(*e));
    pthread_condattr_t monotonic;

    if (!e)
        return NULL;
    pthread_once(&once, read_knobs);
    e->dev         = dev;
    e->is_in_order = is_in_order;
    e->tail        = &e->head;
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&e->work, NULL);
    pthread_cond_init(&e->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_lock(&engines_lock);
    e->next = engines;
    e->link = &engines;
    if (engines)
        engines->link = &e->next;
    engines = e;
    pthread_mutex_unlock(&engines_lock);
    return e;
}

void exec_engine_close(exec_engine *e)
{
    bool is_started, is_done;

    pthread_mutex_lock(&e->lock);
    e->is_closing = true;
    is_started    = e->is_started;
    pthread_cond_signal(&e->work);
    while (e->head && !e->is_asleep)
        pthread_cond_wait(&e->idle, &e->lock);
    is_done        = !e->head;
    e->is_detached = !is_done;
    if (!is_done)
        pthread_detach(e->thread);
    pthread_mutex_unlock(&e->lock);
    if (!is_done)
        return;
    if (is_started)
        pthread_join(e->thread, NULL);
    engine_free(e);
}

static void arm_all(const exec_engine *e, exec_cmd *cmd)
{
    for (; cmd; cmd = cmd->next) {
        const exec_body *body = cmd->kind == &body_kind ? cmd->as.body : NULL;

        for (size_t i = 0; body && i < body->n; i++)
            arm(e, body->cmds[i]);
        arm(e, cmd);
    }
}

/* Lock held. */
static void enqueue(exec_engine *e, exec_cmd *cmd)
{
    if (!e->head)
        pthread_cond_signal(&e->work);
    *e->tail = cmd;
    for (; cmd; cmd = cmd->next) {
        cmd->seq = e->last = atomic_fetch_add(&submitted, 1) + 1;
        e->tail            = &cmd->next;
    }
    if (e->bed)
        exec_cell_nudge(e->bed);
}

static bool any_uses(const void *cmds, const void *base, size_t size)
{
    bool any = false;

    for (const exec_cmd *cmd = cmds; cmd && !any; cmd = cmd->next)
        any = uses(cmd, base, size);
    return any;
}

ze_result_t exec_engine_submit(exec_engine *e, exec_cmd *cmd)
{
    ze_result_t res = ZE_RESULT_SUCCESS;

    soft_moving_submit(any_uses, cmd);
    arm_all(e, cmd);
    pthread_mutex_lock(&e->lock);
    if (soft_is_lost(e->dev) || e->is_failed)
        res = ZE_RESULT_ERROR_DEVICE_LOST;
    else if (!e->is_started && !engine_start(e))
        res = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    else
        enqueue(e, cmd);
    pthread_mutex_unlock(&e->lock);
    if (res != ZE_RESULT_SUCCESS)
        exec_cmd_free(cmd);
    return res;
}

ze_result_t exec_engine_wait(exec_engine *e, uint64_t timeout_ns)
{
    const uint64_t  deadline = exec_deadline(timeout_ns);
    struct timespec at       = {(time_t)(deadline / 1000000000u), (long)(deadline % 1000000000u)};
    ze_result_t     res      = ZE_RESULT_SUCCESS;
    uint64_t        last;
    int             err = 0;

    pthread_mutex_lock(&e->lock);
    last = e->last;
    e->nwaiting++;
    while (e->head && e->head->seq <= last && !err && !soft_is_lost(e->dev)) {
        if (deadline == UINT64_MAX)
            pthread_cond_wait(&e->idle, &e->lock);
        else
            err = deadline ? pthread_cond_timedwait(&e->idle, &e->lock, &at) : 1;
    }
    e->nwaiting--;
    if (e->is_failed || soft_is_lost(e->dev))
        res = ZE_RESULT_ERROR_DEVICE_LOST;
    else if (e->head && e->head->seq <= last)
        res = ZE_RESULT_NOT_READY;
    pthread_mutex_unlock(&e->lock);
    return res;
}

/* engines_lock held. */
static bool is_used(const unsigned char *base, size_t size, uint64_t last)
{
    bool is_used = false;

    for (exec_engine *e = engines; e && !is_used; e = e->next) {
        pthread_mutex_lock(&e->lock);
        for (const exec_cmd *cmd = e->head; cmd && cmd->seq <= last && !is_used; cmd = cmd->next)
            is_used = uses(cmd, base, size);
        pthread_mutex_unlock(&e->lock);
    }
    return is_used;
}

void soft_exec_wait_unused(const void *base, size_t size)
{
    const uint64_t last = atomic_load(&submitted);

    atomic_fetch_add(&nblocked, 1);
    pthread_mutex_lock(&engines_lock);
    while (is_used(base, size, last))
        pthread_cond_wait(&progress, &engines_lock);
    pthread_mutex_unlock(&engines_lock);
    atomic_fetch_sub(&nblocked, 1);
}

soft_device *exec_engine_device(const exec_engine *e)
{
    return e->dev;
}

void soft_exec_wake(void)
{
    pthread_mutex_lock(&engines_lock);
    for (exec_engine *e = engines; e; e = e->next) {
        pthread_mutex_lock(&e->lock);
        pthread_cond_broadcast(&e->idle);
        pthread_mutex_unlock(&e->lock);
    }
    pthread_mutex_unlock(&engines_lock);
    exec_stores_nudge();
}
