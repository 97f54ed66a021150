/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which processes have ended: pidfds on the service's thread, and the program's usm_ipc_on_loss().
 *
 * A process is identified by its number and its start time; a number alone may belong to another by
 * now.  A pidfd can be read from the moment when the last thread of its process has ended.  The
 * process is checked after the pidfd was opened: if the start time is the right one, so is the
 * pidfd. */
#include "ipc/service.h"

#include "base/os.h"
#include "base/os_ipc.h"

#include <errno.h>
#include <string.h>

/* ---- monitors ------------------------------------------------------------------------- */

static usm_status gone(const usm__ipc_process *p)
{
    return usm__fail(USM_E_OWNER_GONE, "process %d has ended%s", p->pid,
                     usm__os_process_start(p->pid) != 0 ? "; another one has its number now" : "");
}

int usm__ipc_open_process(const usm__ipc_process *p, usm_status *st)
{
    int fd = p->pid > 0 ? usm__os_pidfd(p->pid) : -1;

    if (fd < 0 && (p->pid <= 0 || errno == ESRCH)) {
        *st = gone(p);
        return -1;
    }
    if (fd < 0) {
        *st = usm__fail(USM_E_SYSTEM, "process %d cannot be monitored: %s%s", p->pid,
                        strerror(errno), /* NOLINT(concurrency-mt-unsafe): glibc's is safe */
                        errno == ENOSYS ? "; that needs Linux 5.3" : "");
        return -1;
    }
    if (usm__os_process_start(p->pid) == p->start && !usm__os_pidfd_ended(fd))
        return fd;
    *st = gone(p);
    (void)usm__os_close(fd);
    return -1;
}

usm_status usm__ipc_watch_start(usm__ipc_watch *w)
{
    usm_status st = usm__ipc_start();
    int        fd;

    usm_list_init(&w->link);
    w->pidfd = -1;
    if (st != USM_OK)
        return st;
    fd = usm__ipc_open_process(&w->process, &st);
    if (fd < 0)
        return st;
    usm__mutex_lock(&usm__ipc.lock);
    if (usm__ipc_poll_add(fd, USM__IPC_WATCH, w) == 0) {
        w->pidfd = fd;
        usm_list_append(&usm__ipc.watches, &w->link);
    } else {
        st = usm__fail(USM_E_SYSTEM, "process %d cannot be monitored: %s", w->process.pid,
                       strerror(errno)); /* NOLINT(concurrency-mt-unsafe): glibc's is safe */
        (void)usm__os_close(fd);
    }
    usm__mutex_unlock(&usm__ipc.lock);
    return st;
}

/* Under the lock. */
static void take_out(usm__ipc_watch *w)
{
    usm_list_remove(&w->link);
    usm__ipc_poll_remove(w->pidfd);
    (void)usm__os_close(w->pidfd);
    w->pidfd = -1;
}

void usm__ipc_watch_stop(usm__ipc_watch *w)
{
    usm__mutex_lock(&usm__ipc.lock);
    if (w->pidfd >= 0)
        take_out(w);
    else
        while (usm__ipc.calling == w && !usm__ipc_on_service())
            (void)usm__mutex_wait(&usm__ipc.lock, &usm__ipc.changed, NULL);
    usm__mutex_unlock(&usm__ipc.lock);
}

void usm__ipc_watch_ready(usm__ipc_watch *w)
{
    bool is_in = false;

    usm__mutex_lock(&usm__ipc.lock);
    USM_LIST_FOREACH (it, &usm__ipc.watches)
        is_in |= it == &w->link;
    /* Another one may be at the same address since the event was taken. */
    if (!is_in || !usm__os_pidfd_ended(w->pidfd)) {
        usm__mutex_unlock(&usm__ipc.lock);
        return;
    }
    take_out(w);
    usm__ipc.calling = w;
    usm__mutex_unlock(&usm__ipc.lock);
    w->fn(w);
    usm__mutex_lock(&usm__ipc.lock);
    usm__ipc.calling = NULL;
    (void)pthread_cond_broadcast(&usm__ipc.changed);
    usm__mutex_unlock(&usm__ipc.lock);
}

bool usm__ipc_is_alive(const usm__ipc_process *p)
{
    usm_status st         = USM_OK;
    bool       is_watched = false;
    int        fd;

    usm__mutex_lock(&usm__ipc.lock);
    USM_LIST_FOREACH (it, &usm__ipc.watches)
        is_watched |= usm__ipc_is_same(&usm_container_of(it, usm__ipc_watch, link)->process, p);
    usm__mutex_unlock(&usm__ipc.lock);
    if (is_watched)
        return true;
    usm__quietly(fd = usm__ipc_open_process(p, &st));
    if (fd < 0)
        return st !=
               USM_E_OWNER_GONE; /* unknown: the kernel has no pidfds, or no descriptor is free */
    (void)usm__os_close(fd);
    return true;
}

/* ---- notifying the program -------------------------------------------------------------- */

/* Under the lock: whether this was reported already; from now on it counts as reported.  The last
 * ones are remembered. */
static bool is_notified(const usm__ipc_process *p, usm_ipc_role role)
{
    unsigned n = usm__ipc.ntold < USM__IPC_TOLD ? usm__ipc.ntold : USM__IPC_TOLD;

    for (unsigned i = 0; i < n; i++)
        if (usm__ipc.notified[i].pid == p->pid && usm__ipc.notified[i].start == p->start &&
            usm__ipc.notified[i].role == role)
            return true;
    n                          = usm__ipc.ntold++ % USM__IPC_TOLD;
    usm__ipc.notified[n].pid   = p->pid;
    usm__ipc.notified[n].start = p->start;
    usm__ipc.notified[n].role  = role;
    return false;
}

void usm__ipc_notify_loss(const usm__ipc_process *p, usm_ipc_role role)
{
    usm_ipc_loss_fn fn   = NULL;
    void           *user = NULL;

    usm__mutex_lock(&usm__ipc.lock);
    if (usm__ipc.loss != NULL && !is_notified(p, role)) {
        fn   = usm__ipc.loss;
        user = usm__ipc.loss_user;
        usm__ipc.notifying++;
    }
    usm__mutex_unlock(&usm__ipc.lock);
    if (fn == NULL)
        return;
    fn(p->pid, role, user);
    usm__mutex_lock(&usm__ipc.lock);
    usm__ipc.notifying--;
    (void)pthread_cond_broadcast(&usm__ipc.changed);
    usm__mutex_unlock(&usm__ipc.lock);
}

void usm_ipc_on_loss(usm_ipc_loss_fn fn, void *user)
{
    usm__mutex_lock(&usm__ipc.lock);
    usm__ipc.loss      = fn;
    usm__ipc.loss_user = user;
    /* After this returns, the object of `user` may be freed; a call from within the function itself
     * cannot wait. */
    while (usm__ipc.notifying > 0 && !usm__ipc_on_service())
        (void)usm__mutex_wait(&usm__ipc.lock, &usm__ipc.changed, NULL);
    usm__mutex_unlock(&usm__ipc.lock);
}
