/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The one thread of src/ipc: it accepts connections of other processes, answers their requests, and
 * notices when processes end.  It sleeps until one of its descriptors is ready.  It does not poll
 * with time-outs, and never waits for another process: there is room for what it sends.
 *
 * It handles one descriptor at a time, and looks each up again under the lock: the object that it
 * belonged to may be gone since.  Callbacks run without the lock.
 *
 * Only processes of the same user are served; the kernel tells who they are (SO_PEERCRED). */
#include "ipc/service.h"
#include "base/part.h"
#include "ipc/event_slot.h"
#include "ipc/memory.h"

#include "base/log.h"
#include "base/os.h"
#include "base/os_ipc.h"
#include "base/os_storage.h"
#include "device/init.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

usm__ipc_service usm__ipc = {.lock     = USM__MUTEX_INIT(USM__RANK_RENDEZVOUS, "rendezvous"),
                             .changed  = PTHREAD_COND_INITIALIZER,
                             .epoll    = -1,
                             .listener = -1,
                             .spare    = -1,

                             .directory_fd = -1,

                             .callers = {&usm__ipc.callers, &usm__ipc.callers},
                             .owners  = {&usm__ipc.owners, &usm__ipc.owners},
                             .watches = {&usm__ipc.watches, &usm__ipc.watches}};

void usm__ipc_socket_name(const usm__ipc_process *p, char *name, size_t size)
{
    (void)snprintf(name, size, "usm-ipc/%d/%llx/%016llx", p->pid, (unsigned long long)p->start,
                   (unsigned long long)p->secret);
}

bool usm__ipc_is_same(const usm__ipc_process *a, const usm__ipc_process *b)
{
    return a->pid == b->pid && a->start == b->start;
}

int usm__ipc_poll_add(int fd, usm__ipc_kind kind, void *what)
{
    return usm__os_epoll_add(usm__ipc.epoll, fd, kind != USM__IPC_OWNER,
                             (uint64_t)(uintptr_t)what | (uint64_t)kind);
}

void usm__ipc_poll_remove(int fd)
{
    usm__os_epoll_remove(usm__ipc.epoll, fd);
}

bool usm__ipc_on_service(void)
{
    return usm__ipc.has_thread && pthread_equal(usm__ipc.thread, pthread_self());
}

/* ---- connected processes ------------------------------------------------------------- */

/* Under the lock: frees the record of a process that has both disconnected and ended. */
static void caller_drop(usm__ipc_caller *c)
{
    if (c->fd >= 0 || c->watch.fn != NULL)
        return;
    usm_list_remove(&c->link);
    usm__heap_free(c);
}

static void caller_ended(usm__ipc_watch *w)
{
    usm__ipc_caller *c = usm_container_of(w, usm__ipc_caller, watch);
    usm__ipc_process process;
    bool             is_importer;

    usm__mutex_lock(&usm__ipc.lock);
    process     = w->process;
    is_importer = c->is_importer;
    w->fn       = NULL;
    caller_drop(c);
    usm__mutex_unlock(&usm__ipc.lock);
    if (is_importer)
        usm__ipc_notify_loss(&process, USM_IPC_IMPORTER);
}

static void refuse(int fd, usm_status status)
{
    const usm__ipc_answer answer = {.magic = USM__IPC_PACKET_MAGIC, .status = status};

    (void)usm__os_send(fd, &answer, sizeof answer, -1);
    (void)usm__os_close(fd);
}

static bool caller_make(int fd, int pid, uint32_t uid)
{
    usm__ipc_caller *c = usm__heap_alloc(sizeof *c);
    bool             is_polled;

    if (c == NULL)
        return false;
    c->fd          = fd;
    c->watch.fn    = caller_ended;
    c->watch.pidfd = -1;
    c->watch.process =
        (usm__ipc_process){.start = usm__os_process_start(pid), .pid = pid, .uid = uid};
    if (usm__ipc_watch_start(&c->watch) != USM_OK)
        goto err_caller;
    usm__mutex_lock(&usm__ipc.lock);
    usm_list_append(&usm__ipc.callers, &c->link);
    is_polled = usm__ipc_poll_add(fd, USM__IPC_CALLER, c) == 0;
    if (!is_polled)
        usm_list_remove(&c->link);
    usm__mutex_unlock(&usm__ipc.lock);
    if (is_polled)
        return true;
    usm__ipc_watch_stop(&c->watch);

err_caller:
    usm__heap_free(c);
    return false;
}

/* Without a free descriptor the process would stay in the queue of the socket and wake the thread
 * forever: so a spare descriptor is closed for a moment. */
static void turn_away(void)
{
    int fd;

    if (usm__ipc.spare >= 0)
        (void)usm__os_close(usm__ipc.spare);
    else
        usm__os_sleep_ns(10000000);
    fd = usm__os_accept(usm__ipc.listener);
    if (fd >= 0)
        refuse(fd, USM_E_SYSTEM);
    usm__ipc.spare = usm__os_event_fd();
}

static void take_caller(void)
{
    int      fd  = usm__os_accept(usm__ipc.listener);
    int      pid = 0;
    uint32_t uid = 0;

    if (fd < 0) {
        turn_away();
        return;
    }
    if (usm__os_peer(fd, &pid, &uid) != 0 || uid != usm__ipc.self.uid)
        refuse(fd, USM_E_PERMISSION);
    else if (!caller_make(fd, pid, uid))
        refuse(fd, USM_E_SYSTEM);
}

/* ---- requests -------------------------------------------------------------------------- */

static void answer_fetch(usm__ipc_caller *c, const usm__ipc_request *r)
{
    usm__ipc_answer answer = {
        .magic = USM__IPC_PACKET_MAGIC, .status = USM_E_STALE, .exchange = r->exchange};
    usm__ipc_shared *s;
    int              fd = -1;

    usm__mutex_lock(&usm__ipc.lock);
    s = usm__ipc_shared_find(r->id, r->nonce);
    if (s != NULL) {
        answer.status = USM_OK;
        memcpy(answer.extra, s->extra, sizeof answer.extra);
        fd = s->fd;
        c->is_importer |= !s->is_aside;
    }
    /* Sent under the lock, so that the descriptor is not closed meanwhile; there is room, because
     * each process has one request at a time. */
    if (usm__os_send(c->fd, &answer, sizeof answer, fd) != 0 && errno != EPIPE)
        usm__warn("process %d was not sent what it asked for: %s", c->watch.process.pid,
                  strerror(errno)); /* NOLINT(concurrency-mt-unsafe): glibc's is safe */
    usm__mutex_unlock(&usm__ipc.lock);
}

static bool hear_word(usm__ipc_caller *c, const usm__ipc_request *r, int passed)
{
    const usm__ipc_process from   = c->watch.process;
    usm__ipc_answer        answer = {
               .magic = USM__IPC_PACKET_MAGIC, .status = USM_OK, .exchange = r->exchange};
    const usm__ipc_ear *ear;

    usm__mutex_lock(&usm__ipc.lock);
    ear = usm__ipc.ear;
    usm__mutex_unlock(&usm__ipc.lock);
    if (ear != NULL)
        answer.status = ear->word(&from, r->word, r->size, passed) ? USM_OK : USM_E_SYSTEM;
    else if (passed >= 0)
        (void)usm__os_close(passed);
    if (r->is_asking)
        (void)usm__os_send(c->fd, &answer, sizeof answer, -1);
    return answer.status == USM_OK || r->is_asking;
}

static void hang_up(usm__ipc_caller *c)
{
    const usm__ipc_process from = c->watch.process;
    const usm__ipc_ear    *ear;

    usm__mutex_lock(&usm__ipc.lock);
    usm__ipc_poll_remove(c->fd);
    (void)usm__os_close(c->fd);
    c->fd = -1;
    caller_drop(c);
    ear = usm__ipc.ear;
    usm__mutex_unlock(&usm__ipc.lock);
    if (ear != NULL)
        ear->left(&from);
}

/* Only this thread removes connected processes, so c stays until it does. */
static void hear(usm__ipc_caller *c)
{
    usm__ipc_request r;
    int              passed = -1;
    ssize_t          n      = usm__os_receive(c->fd, &r, sizeof r, &passed);

    if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
        return;
    if (n == (ssize_t)sizeof r && r.magic == USM__IPC_PACKET_MAGIC) {
        if (r.op == USM__IPC_OP_FETCH && passed < 0) {
            answer_fetch(c, &r);
            return;
        }
        if (r.op == USM__IPC_OP_WORD && r.size <= sizeof r.word) {
            if (hear_word(c, &r, passed))
                return;
            passed = -1;
        }
    }
    if (passed >= 0)
        (void)usm__os_close(passed);
    hang_up(c);
}

size_t usm__ipc_callers(void)
{
    size_t n = 0;

    usm__mutex_lock(&usm__ipc.lock);
    USM_LIST_FOREACH (it, &usm__ipc.callers)
        n += usm_container_of(it, usm__ipc_caller, link)->fd >= 0;
    usm__mutex_unlock(&usm__ipc.lock);
    return n;
}

void usm__ipc_listen(const usm__ipc_ear *ear)
{
    usm__mutex_lock(&usm__ipc.lock);
    usm__ipc.ear = ear;
    usm__mutex_unlock(&usm__ipc.lock);
}

/* ---- the thread ------------------------------------------------------------------------ */

static bool is_in(usm_list *head, const usm_list *link)
{
    USM_LIST_FOREACH (it, head)
        if (it == link)
            return true;
    return false;
}

/* Whether `what` is still the object that the descriptor was polled for; under the lock. */
static bool is_current(usm__ipc_kind kind, void *what)
{
    switch (kind) {
    case USM__IPC_CALLER:
        return is_in(&usm__ipc.callers, &((usm__ipc_caller *)what)->link) &&
               ((usm__ipc_caller *)what)->fd >= 0;
    case USM__IPC_OWNER:
        return is_in(&usm__ipc.owners, &((usm__ipc_owner *)what)->link);
    case USM__IPC_WATCH:
        return is_in(&usm__ipc.watches, &((usm__ipc_watch *)what)->link);
    case USM__IPC_LISTENER:
    default:
        return true;
    }
}

static void look(uint64_t data)
{
    usm__ipc_kind kind = (usm__ipc_kind)(data & 3u);
    void         *what = (void *)(uintptr_t)(data & ~(uint64_t)3);
    bool          is_there;

    usm__mutex_lock(&usm__ipc.lock);
    is_there = is_current(kind, what);
    if (is_there && kind == USM__IPC_OWNER)
        usm__ipc_owner_closed(what);
    usm__mutex_unlock(&usm__ipc.lock);
    if (!is_there)
        return;
    if (kind == USM__IPC_LISTENER)
        take_caller();
    else if (kind == USM__IPC_CALLER)
        hear(what);
    else if (kind == USM__IPC_WATCH)
        usm__ipc_watch_ready(what);
}

static void serve(void *arg)
{
    int      epoll = (int)(intptr_t)arg;
    uint64_t data;

    usm__mutex_lock(&usm__ipc.lock);
    usm__ipc.thread     = pthread_self();
    usm__ipc.has_thread = true;
    usm__mutex_unlock(&usm__ipc.lock);
    while (usm__os_epoll_wait(epoll, &data) == 0)
        look(data);
}

/* ---- start, fork ------------------------------------------------------------------------- */

static usm_status cannot(const char *what)
{
    return usm__fail(USM_E_SYSTEM, "sharing with other processes did not start: %s: %s", what,
                     strerror(errno)); /* NOLINT(concurrency-mt-unsafe): glibc's is safe */
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        (void)usm__os_close(*fd);
    *fd = -1;
}

static void close_own(void)
{
    close_one(&usm__ipc.listener);
    close_one(&usm__ipc.epoll);
    close_one(&usm__ipc.spare);
    close_one(&usm__ipc.directory_fd);
    usm__ipc.directory = NULL; /* not mapped in a child */
}

static usm_status name_self(usm__ipc_process *self)
{
    *self       = (usm__ipc_process){.pid = getpid(), .uid = geteuid()};
    self->start = usm__os_process_start(self->pid);
    if (self->start == 0)
        return cannot("/proc/self/stat cannot be read");
    while (self->secret == 0)
        if (usm__os_random(&self->secret, sizeof self->secret) != 0)
            return cannot("no random numbers");
    return USM_OK;
}

static usm_status start(void)
{
    char       name[100];
    usm_status st = name_self(&usm__ipc.self);
    int        error;

    if (st != USM_OK)
        return st;
    for (size_t i = 0; i < USM__IPC_SHARE_LISTS; i++)
        if (usm__ipc.shares[i].next == NULL)
            usm_list_init(&usm__ipc.shares[i]);
    usm__ipc_socket_name(&usm__ipc.self, name, sizeof name);
    usm__ipc.epoll    = usm__os_epoll();
    usm__ipc.listener = usm__ipc.epoll < 0 ? -1 : usm__os_listen(name);
    usm__ipc.spare    = usm__ipc.listener < 0 ? -1 : usm__os_event_fd();
    if (usm__ipc.spare < 0 || usm__ipc_poll_add(usm__ipc.listener, USM__IPC_LISTENER, NULL) != 0) {
        st = cannot("no socket");
        close_own();
        return st;
    }
    error = usm__os_thread(serve, (void *)(intptr_t)usm__ipc.epoll, "usm-ipc");
    if (error != 0) {
        errno = error;
        st    = cannot("no thread");
        close_own();
        return st;
    }
    usm__ipc.is_up = true;
    return USM_OK;
}

usm_status usm__ipc_start(void)
{
    usm_status st = usm__start(); /* fork's handlers */

    if (st != USM_OK)
        return st;
    usm__mutex_lock(&usm__ipc.lock);
    if (!usm__ipc.is_up)
        st = start();
    usm__mutex_unlock(&usm__ipc.lock);
    return st;
}

static void forget_callers(void)
{
    usm_list *it;

    while ((it = usm_list_pop(&usm__ipc.callers)) != NULL) {
        usm__ipc_caller *c = usm_container_of(it, usm__ipc_caller, link);

        close_one(&c->fd);
        usm__heap_free(c);
    }
}

/* Exchanges that other threads were in at the fork never end here: what they hold stays. */
static void forget_owners(void)
{
    usm_list *it;

    while ((it = usm_list_pop(&usm__ipc.owners)) != NULL) {
        usm__ipc_owner *o = usm_container_of(it, usm__ipc_owner, link);

        close_one(&o->fd);
        usm__heap_free(o);
    }
}

static void forget_rest(void)
{
    usm_list *it;

    while ((it = usm_list_pop(&usm__ipc.watches)) != NULL)
        close_one(&usm_container_of(it, usm__ipc_watch, link)->pidfd);
    for (size_t i = 0; i < USM__IPC_SHARE_LISTS; i++)
        while (usm__ipc.shares[i].next && (it = usm_list_pop(&usm__ipc.shares[i])) != NULL) {
            usm__ipc_shared *s = usm_container_of(it, usm__ipc_shared, link);

            close_one(&s->fd);
            usm__heap_free(s);
        }
}

static void fork_service(usm_fork_phase phase)
{
    if (phase == USM_FORK_PREPARE) {
        usm__mutex_lock_for_fork(&usm__ipc.lock);
        return;
    }
    if (phase == USM_FORK_PARENT) {
        usm__mutex_unlock_after_fork(&usm__ipc.lock);
        return;
    }
    usm__mutex_reset_in_child(&usm__ipc.lock);
    usm__ipc.changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    if (!usm__ipc.is_up)
        return;
    forget_rest();
    forget_callers();
    forget_owners();
    close_own();
    usm__ipc.self       = (usm__ipc_process){.pid = 0};
    usm__ipc.is_up      = false;
    usm__ipc.has_thread = false;
    usm__ipc.calling    = NULL;
    usm__ipc.notifying  = 0;
    usm__ipc.ntold      = 0;
}

const usm_part usm__ipc_part = {.name           = "ipc",
                                .fork           = {{USM__RANK_IPC, usm__ipc_event_slots_fork},
                                                   {USM__RANK_IPC, usm__ipc_export_fork},
                                                   {USM__RANK_IPC, usm__ipc_import_fork},
                                                   {USM__RANK_RENDEZVOUS, fork_service}},
                                .context_unused = usm__ipc_import_context_end,
                                .exports        = &usm__ipc_exports};
