/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Transfers by io_uring: the ring, its thread, registered memory.  Transfers that take more than
 * one call are in crew.c, those that the caller waits for in io.c.  Called by submit().
 *
 * One thread owns the ring.  It alone submits and reaps.  It sleeps in the kernel until a transfer
 * has ended, or until the eventfd that it reads through the ring reports something new.  If other
 * threads submitted, the kernel would finish their transfers in their context: by interrupting what
 * they compute, by making their calls return EINTR, and not before they run again; and transfers in
 * progress would be cancelled when these threads end.  The ring's thread handles completions when
 * it is ready (IORING_SETUP_DEFER_TASKRUN), and the copying, checking and freeing in `done` does
 * not burden the threads that compute.
 *
 *     queue   transfers handed over that are not in the ring yet: guarded by lock, as `asleep`
 *     asleep  the thread will look at the queue only after the next completion: a thread that
 *             adds something then writes the eventfd, once
 *
 * Registered memory is addressed by the addresses that it had when it was registered.  The kernel
 * keeps the pages, not the addresses: pages that have been moved since are still reached. */
#include "internal.h"

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PIECE_MAX ((size_t)1 << 30) /* of registered memory: the kernel takes no larger pieces */
#define PIECES    1024u             /* most pieces at a time */

typedef struct reg {
    void  *base;
    size_t size;   /* in: what is offered; out: what was registered */
    bool   wanted; /* else: unregister */
} reg;

struct usm_file_ring {
    usm_file_store *store;
    int             wake_fd;
    pthread_mutex_t lock;
    pthread_cond_t  changed; /* signalled when a request from outside was handled */
    /* guarded by lock */
    usm_transfer  *head;
    usm_transfer **tail;
    bool           asleep, stopping;
    bool           started, gone; /* the thread has a ring; it has none, or no longer */
    int            error;         /* why it has none */
    reg           *request;
    /* used only by the thread */
    struct io_uring uring;
    unsigned        in_flight, failures;
    bool            fixed_files, wake_armed, is_broken;
    char           *registered_base;
    size_t          registered_size;
    uint64_t        wake_value;
};

/* ---- the thread: submitting ---------------------------------------------------------- */

/* The transfer that was set as the entry's data. */
static usm_transfer *data_of(const struct io_uring_sqe *sqe)
{
    return (usm_transfer *)(uintptr_t)sqe->user_data;
}

static struct io_uring_sqe *next_sqe(usm_file_ring *r)
{
    return io_uring_get_sqe(&r->uring); /* there is one entry for each transfer and one for the
                                           wake-up */
}

static void arm_wake(usm_file_ring *r)
{
    struct io_uring_sqe *sqe = r->wake_armed ? NULL : next_sqe(r);

    if (!sqe)
        return;
    io_uring_prep_read(sqe, r->wake_fd, &r->wake_value, sizeof(r->wake_value), 0);
    io_uring_sqe_set_data(sqe, NULL);
    r->wake_armed = true;
}

/* The address of the bytes within the registered memory; NULL: they are not in it. */
static char *fixed_address(const usm_file_ring *r, const usm_transfer *t, const usm_file_piece *p)
{
    size_t at = t->registered;

    if (at >= r->registered_size || t->size > r->registered_size - at ||
        at / PIECE_MAX != (at + t->size - 1) / PIECE_MAX)
        return NULL;
    return r->registered_base + at + p->moved;
}

static void prepare(usm_file_ring *r, struct io_uring_sqe *sqe, usm_transfer *t)
{
    usm_file_piece *p     = usm_file_piece_of(t);
    const int       fd    = r->fixed_files ? (int)p->place : r->store->places[p->place].direct;
    char           *fixed = fixed_address(r, t, p);
    char           *data  = (char *)t->data + p->moved;
    const size_t    size  = usm_file_cut(r->store, t->size - p->moved);
    const int       index = (int)(t->registered / PIECE_MAX);
    const uint64_t  at    = p->at + p->moved;

    p->asked = size;
    if (t->op == USM_TRANSFER_STORE && fixed)
        io_uring_prep_write_fixed(sqe, fd, fixed, (unsigned)size, at, index);
    else if (t->op == USM_TRANSFER_STORE)
        io_uring_prep_write(sqe, fd, data, (unsigned)size, at);
    else if (fixed)
        io_uring_prep_read_fixed(sqe, fd, fixed, (unsigned)size, at, index);
    else
        io_uring_prep_read(sqe, fd, data, (unsigned)size, at);
    /* A transfer that could not be done without waiting is done by a thread of the kernel. */
    io_uring_sqe_set_flags(sqe, (r->fixed_files ? IOSQE_FIXED_FILE : 0u) |
                                    (p->attempts > 0 ? IOSQE_ASYNC : 0u));
    io_uring_sqe_set_data(sqe, t);
    r->in_flight++;
}

/* Moves transfers from the queue to the ring, as many as fit.  The lock is held. */
static bool fill(usm_file_ring *r)
{
    bool any = false;

    while (!r->is_broken && r->head && r->in_flight < r->store->config.depth) {
        struct io_uring_sqe *sqe = next_sqe(r);
        usm_transfer        *t   = r->head;

        if (!sqe)
            break;
        r->head = t->next;
        if (!r->head)
            r->tail = &r->head;
        prepare(r, sqe, t);
        any = true;
    }
    return any;
}

/* ---- the thread: completions ----------------------------------------------------------- */

static void requeue(usm_file_ring *r, usm_transfer *t)
{
    (void)pthread_mutex_lock(&r->lock);
    t->next = r->head;
    if (!r->head)
        r->tail = &t->next;
    r->head = t;
    (void)pthread_mutex_unlock(&r->lock);
}

/* The result of a call: 0 if the transfer is complete, EAGAIN if it goes on, else the error. */
static int progress(const usm_transfer *t, usm_file_piece *p, int64_t result)
{
    int64_t whole = result;

    if (result > 0 && (size_t)result < p->asked)
        whole = result & ~(int64_t)(PAGE_SIZE - 1); /* direct I/O continues only at a page */
    if (whole > 0) {
        p->moved += (size_t)whole;
        p->attempts = 0;
        return p->moved == t->size ? 0 : EAGAIN;
    }
    if (result >= 0 && t->op == USM_TRANSFER_FETCH)
        return ENODATA;
    if (result == 0)
        return EIO;
    if (result < 0 && result != -EINTR && result != -EAGAIN && result != -ECANCELED)
        return (int)-result;
    return ++p->attempts < ATTEMPTS_MAX ? EAGAIN : EIO;
}

static void end(usm_file_ring *r, usm_transfer *t, int result)
{
    const bool      is_store = t->op == USM_TRANSFER_STORE;
    usm_file_piece *p        = usm_file_piece_of(t);
    const int       error    = progress(t, p, usm_file_result(r->store, is_store, result));

    r->in_flight--;
    if (error == EAGAIN)
        requeue(r, t);
    else
        usm_file_finish(t, error ? usm_file_explain(r->store, t, error) : USM_OK);
}

/* Called between two ends, because `done` may take long: submits what is queued at once. */
static void keep_going(usm_file_ring *r)
{
    bool any;

    (void)pthread_mutex_lock(&r->lock);
    any = fill(r);
    (void)pthread_mutex_unlock(&r->lock);
    if (any)
        (void)io_uring_submit(&r->uring); /* entries that it leaves are submitted next time */
}

static void reap(usm_file_ring *r)
{
    struct io_uring_cqe *cqe;

    while (io_uring_peek_cqe(&r->uring, &cqe) == 0) {
        usm_transfer *t      = io_uring_cqe_get_data(cqe);
        const int     result = cqe->res;

        io_uring_cqe_seen(&r->uring, cqe);
        if (!t) {
            r->wake_armed = false;
            continue;
        }
        end(r, t, result);
        keep_going(r);
    }
}

/* ---- the thread: registering ------------------------------------------------------------ */

static int register_pieces(usm_file_ring *r, char *base, size_t size)
{
    struct iovec *list = r->store->api->heap_alloc(PIECES * sizeof(*list));
    unsigned      n    = 0;
    int           rc;

    if (!list)
        return -ENOMEM;
    for (size_t at = 0; at < size && n < PIECES; at += PIECE_MAX)
        list[n++] = (struct iovec){base + at, usm_min_size(PIECE_MAX, size - at)};
    rc = io_uring_register_buffers(&r->uring, list, n);
    r->store->api->heap_free(list);
    return rc;
}

/* Registers as much as the system allows, an eighth less at each attempt: other processes of the
 * same user and the ring itself may use a part of the limit. */
static void register_memory(usm_file_ring *r, reg *want)
{
    const uint64_t limit = r->store->api->os->limit(USM_OS_LIMIT_LOCKED_MEMORY);
    size_t         size  = usm_min_size(want->size, PIECE_MAX * PIECES);

    /* Asking for more than is allowed would bring all pages into memory before it fails. */
    size = limit < size ? (size_t)limit : size;
    for (size &= ~(PAGE_SIZE - 1); size > 0; size = (size - size / 8) & ~(PAGE_SIZE - 1)) {
        const int rc = register_pieces(r, want->base, size);

        if (rc == 0)
            break;
        if (rc != -ENOMEM || size < 8 * PAGE_SIZE) {
            size = 0;
            break;
        }
    }
    want->size         = size;
    r->registered_base = want->base;
    r->registered_size = size;
}

/* What register_memory() and unregister_memory() wait for. */
static void serve(usm_file_ring *r, reg *request)
{
    if (r->registered_size > 0)
        (void)io_uring_unregister_buffers(&r->uring);
    r->registered_size = 0;
    if (request->wanted)
        register_memory(r, request);
}

/* ---- the thread ----------------------------------------------------------------------- */

static int init_uring(usm_file_ring *r)
{
    const unsigned entries = r->store->config.depth + 1;
    int            rc;

    if (r->store->api->fault("file.uring", NULL))
        return -ENOSYS;
#if defined(IORING_SETUP_SINGLE_ISSUER) && defined(IORING_SETUP_DEFER_TASKRUN)
    rc = io_uring_queue_init(entries, &r->uring,
                             IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    if (rc != -EINVAL) /* a kernel before 6.1 */
        return rc;
#endif
    rc = io_uring_queue_init(entries, &r->uring, 0);
    return rc;
}

static void register_files(usm_file_ring *r)
{
    const usm_file_store *s = r->store;
    int                   list[PLACES_MAX];

    for (size_t i = 0; i < s->nplaces; i++)
        list[i] = s->places[i].direct; /* -1 leaves a gap */
    r->fixed_files = io_uring_register_files(&r->uring, list, (unsigned)s->nplaces) == 0;
}

static usm_transfer *take_all(usm_file_ring *r)
{
    usm_transfer *list = r->head;

    r->head = NULL;
    r->tail = &r->head;
    return list;
}

/* False: all transfers have ended, and the thread must end. */
static bool look(usm_file_ring *r)
{
    usm_transfer *left = NULL;
    reg          *request;
    bool          go_on;

    (void)pthread_mutex_lock(&r->lock);
    while ((request = r->request)) { /* the next may follow at once */
        (void)pthread_mutex_unlock(&r->lock);
        serve(r, request);
        (void)pthread_mutex_lock(&r->lock);
        r->request = NULL;
        (void)pthread_cond_broadcast(&r->changed);
    }
    (void)fill(r);
    if (r->is_broken)
        left = take_all(r);
    r->asleep = !r->head; /* if the ring is full, the thread looks again anyway */
    go_on     = r->in_flight > 0 || r->head || !r->stopping;
    (void)pthread_mutex_unlock(&r->lock);
    if (left)
        usm_file_crew_add(r->store, left);
    return go_on;
}

/* The kernel accepts nothing more: entries that it has not taken go to the crew, and so do all
 * later transfers. */
static void give_up(usm_file_ring *r)
{
    struct io_uring_sq *sq   = &r->uring.sq;
    const unsigned      head = *sq->khead, mask = *sq->kring_mask;
    usm_transfer       *list = NULL;

    for (unsigned i = head; i != sq->sqe_tail; i++) {
        usm_transfer *t = data_of(&sq->sqes[i & mask]);

        if (!t) {
            r->wake_armed = false;
            continue;
        }
        r->in_flight--;
        t->next = list;
        list    = t;
    }
    sq->sqe_head = sq->sqe_tail = head;
    io_uring_smp_store_release(sq->ktail, head); /* the kernel reads it only during a call of this
                                                    thread */
    if (!r->is_broken)
        r->store->api->log(USM_LOG_WARN, "io_uring failed for good: going on by threads");
    r->is_broken = true;
    if (list)
        usm_file_crew_add(r->store, list);
}

static void enter(usm_file_ring *r)
{
    const struct timespec a_moment = {.tv_nsec = 1000000};
    int                   rc       = -EAGAIN;

    arm_wake(r);
    if (!r->store->api->fault("file.enter", NULL))
        rc = io_uring_submit_and_wait(&r->uring, 1);
    if (rc >= 0 || rc == -EINTR) {
        r->failures = 0;
        return;
    }
    if (++r->failures < ATTEMPTS_MAX)
        (void)nanosleep(&a_moment,
                        NULL); /* the system is short of memory: waiting for completions would not
                                  help */
    else
        give_up(r);
}

/* Sleeps until a transfer has ended or is new.  A broken ring has only those left that the kernel has
 * taken: to submit again, in vain, would not let them end. */
static void sleep_in_kernel(usm_file_ring *r)
{
    struct io_uring_cqe *cqe;

    if (!r->is_broken)
        enter(r);
    else if (r->in_flight > 0)
        (void)io_uring_wait_cqe(&r->uring, &cqe); /* reap() takes it */
    else if (read(r->wake_fd, &r->wake_value, sizeof(r->wake_value)) < 0)
        r->wake_value = 0; /* interrupted: look again */
    (void)pthread_mutex_lock(&r->lock);
    r->asleep = false;
    (void)pthread_mutex_unlock(&r->lock);
}

static void notify_start(usm_file_ring *r, int error)
{
    (void)pthread_mutex_lock(&r->lock);
    r->started = error == 0;
    r->gone    = error != 0;
    r->error   = error;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

static void run(void *arg)
{
    usm_file_ring *r  = arg;
    const int      rc = init_uring(r);

    if (rc != 0) {
        notify_start(r, -rc);
        return;
    }
    register_files(r);
    notify_start(r, 0);
    while (look(r)) {
        sleep_in_kernel(r);
        reap(r);
    }
    io_uring_queue_exit(&r->uring);
    (void)pthread_mutex_lock(&r->lock);
    r->gone = true;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

/* ---- called by others -------------------------------------------------------------------- */

static void wake(usm_file_ring *r)
{
    const uint64_t one = 1;

    while (write(r->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

/* With the lock held: whether the thread must be woken after the lock is released. */
static bool rouse(usm_file_ring *r)
{
    const bool was_asleep = r->asleep;

    r->asleep = false;
    return was_asleep;
}

void usm_file_ring_add(usm_file_ring *r, usm_transfer *list)
{
    usm_transfer **last = &list->next;
    bool           must_wake;

    while (*last)
        last = &(*last)->next;
    (void)pthread_mutex_lock(&r->lock);
    *r->tail  = list;
    r->tail   = last;
    must_wake = rouse(r);
    (void)pthread_mutex_unlock(&r->lock);
    if (must_wake)
        wake(r);
}

static void ask(usm_file_ring *r, reg *request)
{
    (void)pthread_mutex_lock(&r->lock);
    while (r->request) /* of another thread */
        (void)pthread_cond_wait(&r->changed, &r->lock);
    r->request = request;
    if (rouse(r))
        wake(r);
    while (r->request == request)
        (void)pthread_cond_wait(&r->changed, &r->lock);
    (void)pthread_mutex_unlock(&r->lock);
}

size_t usm_file_ring_register(usm_file_ring *r, void *base, size_t size)
{
    reg request = {.base = base, .size = size, .wanted = true};

    ask(r, &request);
    return request.size;
}

void usm_file_ring_unregister(usm_file_ring *r)
{
    reg request = {.wanted = false};

    ask(r, &request);
}

static void free_ring(usm_file_ring *r)
{
    const usm_host_api *api = r->store->api;

    (void)api->os->close(r->wake_fd);
    (void)pthread_cond_destroy(&r->changed);
    (void)pthread_mutex_destroy(&r->lock);
    api->heap_free(r);
}

static int start(usm_file_ring *r)
{
    int error = r->store->api->os->thread(run, r, "usm-file-ring");

    if (error)
        return error;
    (void)pthread_mutex_lock(&r->lock);
    while (!r->started && !r->gone)
        (void)pthread_cond_wait(&r->changed, &r->lock);
    error = r->error;
    (void)pthread_mutex_unlock(&r->lock);
    return error;
}

usm_status usm_file_ring_create(usm_file_store *s, usm_file_ring **ring)
{
    usm_file_ring *r = s->api->heap_alloc(sizeof(*r));
    char           room[64];
    int            error;

    if (!r)
        return s->api->report(USM_E_NO_MEMORY, "no memory for a transport");
    r->store   = s;
    r->tail    = &r->head;
    r->wake_fd = s->api->os->event_fd();
    error      = r->wake_fd < 0 ? errno : pthread_mutex_init(&r->lock, NULL);
    if (error)
        goto err_ring;
    error = pthread_cond_init(&r->changed, NULL);
    if (error)
        goto err_lock;
    error = start(r);
    if (error)
        goto err_changed;
    *ring = r;
    return USM_OK;

err_changed:
    (void)pthread_cond_destroy(&r->changed);
err_lock:
    (void)pthread_mutex_destroy(&r->lock);
err_ring:
    if (r->wake_fd >= 0)
        (void)s->api->os->close(r->wake_fd);
    s->api->heap_free(r);
    (void)snprintf(s->why_not, sizeof(s->why_not), "io_uring is refused: %s",
                   strerror_r(error, room, sizeof(room)));
    return s->api->report(USM_E_NOT_SUPPORTED, "%s", s->why_not);
}

void usm_file_ring_destroy(usm_file_store *s)
{
    usm_file_ring *r = s->ring;

    (void)pthread_mutex_lock(&r->lock);
    r->stopping = true;
    if (rouse(r))
        wake(r);
    while (!r->gone)
        (void)pthread_cond_wait(&r->changed, &r->lock);
    (void)pthread_mutex_unlock(&r->lock);
    s->ring = NULL;
    free_ring(r);
}
