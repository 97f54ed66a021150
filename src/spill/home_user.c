/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Backing stores that are functions of the user (usm_home_ops), for formats of the program's own.
 * The functions block, so they run on the executor's threads, a few at a time; further transfers
 * wait in a queue here.  How durable a commit is depends on the functions: libusm writes block by
 * block, then calls flush.  Called by the engine; the user's functions call usm_home_fail(). */
#include "base/inline/atomic.h"
#include "base/os.h"
#include "command/executor.h"
#include "spill/home_private.h"

#include <stdarg.h>

#define WORKERS 8u /* reads at a time                                                        */

typedef struct user_home user_home;

typedef struct worker {
    usm__executor_job job;
    user_home        *home;
    bool is_busy; /* guarded by the backing store's lock: posted, or running           */
} worker;

struct user_home {
    usm__home    base;
    usm_home_ops ops;
    void        *data;
    /* One reference of the owner, and one of each worker that is posted or running: a worker may
     * look for more work after the last transfer ended and the owner has closed the backing
     * store. */
    _Atomic(uint32_t) refs;
    worker            workers[WORKERS];
    /* guarded by the backing store's lock */
    usm_transfer  *head; /* of ios that wait, linked by t.next                               */
    usm_transfer **tail;
};

usm_status usm_home_fail(usm_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    usm__note_v(status, format, args);
    va_end(args);
    return status;
}

/* The status that the user's function returned, with an error message. */
static usm_status notified(const usm__home *home, const char *what, usm_status status)
{
    if (status == USM_OK)
        return USM_OK;
    if (status > 0)
        return usm__fail(USM_E_IO, "%s: the function `%s` returned %d, which is not a status",
                         home->name, what, (int)status);
    if (usm_last_status() != status)
        usm__note(status, "%s: the function `%s` failed (%s) and did not say why", home->name, what,
                  usm_status_name(status));
    return status;
}

static void forget_message(void)
{
    static const usm__message none = {USM_OK, ""};

    usm__message_restore(&none);
}

/* --- reading -------------------------------------------------------------------- */

static usm_status read_some(user_home *u, const usm__io *io)
{
    size_t size = usm__home_inside(&u->base, io);

    if (size == 0)
        return USM_OK;
    forget_message();
    return notified(&u->base, "read",
                    u->ops.read(u->data, usm__home_offset(&u->base, io), io->data, size));
}

/* The next io that waits; NULL: there is none, and the worker is idle. */
static usm__io *next_of(worker *w)
{
    user_home    *u = w->home;
    usm_transfer *t;

    usm__mutex_lock(&u->base.lock);
    t = u->head;
    if (t == NULL) {
        w->is_busy = false;
    } else {
        u->head = t->next;
        if (u->head == NULL)
            u->tail = &u->head;
    }
    usm__mutex_unlock(&u->base.lock);
    return t != NULL ? usm_container_of(t, usm__io, t) : NULL;
}

static void drop(user_home *u)
{
    if (!usm_ref_drop(&u->refs))
        return;
    usm__home_fini(&u->base);
    usm__heap_free(u);
}

static void work(usm__executor_job *job)
{
    worker    *w = usm_container_of(job, worker, job);
    user_home *u = w->home;
    usm__io   *io;

    while ((io = next_of(w)) != NULL)
        usm__home_end_read(&u->base, io, read_some(u, io));
    drop(u);
}

static worker *idle_worker(user_home *u)
{
    for (size_t i = 0; i < WORKERS; i++)
        if (!u->workers[i].is_busy)
            return &u->workers[i];
    return NULL;
}

static void user_read(usm__home *home, usm__io *io)
{
    user_home *u = usm_container_of(home, user_home, base);
    worker    *w;

    io->t.next = NULL;
    usm__mutex_lock(&home->lock);
    *u->tail = &io->t;
    u->tail  = &io->t.next;
    w        = idle_worker(u);
    if (w != NULL) {
        w->is_busy = true;
        (void)usm_ref_take(&u->refs);
    }
    usm__mutex_unlock(&home->lock);
    if (w != NULL)
        usm__executor_post(&w->job);
}

/* --- commits and the rest ---------------------------------------------------------- */

static usm_status write_block(user_home *u, const usm__dirty_blocks *dirty, size_t index)
{
    const usm__home_params *p = &u->base.params;
    uint64_t                block, at;
    const void             *data;
    usm_status              status = dirty->get(dirty->arg, index, &block, &data);

    if (status != USM_OK)
        return status;
    at = block * p->block_size;
    forget_message();
    status = u->ops.write(u->data, at, data,
                          p->size - at < p->block_size ? (size_t)(p->size - at) : p->block_size);
    status = notified(&u->base, "write", status);
    dirty->put(dirty->arg, index);
    return status;
}

static usm_status user_commit(usm__home *home, const usm__dirty_blocks *dirty)
{
    user_home *u      = usm_container_of(home, user_home, base);
    usm_status status = USM_OK;

    for (size_t i = 0; i < dirty->n && status == USM_OK; i++)
        status = write_block(u, dirty, i);
    if (status != USM_OK || u->ops.flush == NULL)
        return status;
    forget_message();
    return notified(home, "flush", u->ops.flush(u->data));
}

static void user_close(usm__home *home)
{
    user_home *u = usm_container_of(home, user_home, base);

    if (u->ops.close != NULL)
        u->ops.close(u->data);
    drop(u);
}

usm_status usm__home_open_user(const usm_home_ops *ops, void *data, const usm__home_params *params,
                               usm__home **home)
{
    static const usm__home_kind kind = {user_read, user_commit, user_close};
    user_home                  *u;
    usm_status                  status;

    if (ops->struct_size != sizeof(*ops) || ops->read == NULL)
        return usm__fail(USM_E_INVALID, "usm_home_ops: %s",
                         ops->read == NULL ? "there is no function `read`"
                                           : "struct_size is not sizeof(usm_home_ops)");
    status = usm__executor_reserve();
    if (status != USM_OK)
        return status;
    u = usm__heap_alloc(sizeof(*u));
    if (u == NULL)
        return usm__fail(USM_E_NO_MEMORY, "no memory for a backing store of %zu bytes",
                         params->size);
    usm__home_init(&u->base, &kind, params, "user");
    u->base.is_writable = ops->write != NULL;
    u->ops              = *ops;
    u->data             = data;
    u->tail             = &u->head;
    u->refs             = 1;
    for (size_t i = 0; i < WORKERS; i++)
        u->workers[i] = (worker){.job = {.run = work}, .home = u};
    *home = &u->base;
    return USM_OK;
}
