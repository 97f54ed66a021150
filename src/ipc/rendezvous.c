/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sharing descriptors, and fetching those of others.  The thread that answers is in service.c.
 *
 * A fetch connects once to each other process and keeps the connection, because the owner keeps its
 * records of this process with the connection.  The calling thread itself sends and waits for the
 * answer, for seconds at most: an owner that is stopped must not stop its importers.  An answer
 * that arrives too late is discarded by the next exchange, which recognises its own by `exchange`.
 * */
#include "ipc/service.h"

#include "base/os.h"
#include "base/os_ipc.h"
#include "base/settings.h"

#include <errno.h>
#include <string.h>

#include <usm/ipc.h>

usm_status usm__ipc_self(usm__ipc_process *self)
{
    usm_status st = usm__ipc_start();

    if (st != USM_OK)
        return st;
    usm__mutex_lock(&usm__ipc.lock);
    *self = usm__ipc.self;
    usm__mutex_unlock(&usm__ipc.lock);
    return USM_OK;
}

bool usm__ipc_is_self(const usm__ipc_process *p)
{
    bool is_self;

    usm__mutex_lock(&usm__ipc.lock);
    is_self =
        usm__ipc.is_up && usm__ipc_is_same(p, &usm__ipc.self) && p->secret == usm__ipc.self.secret;
    usm__mutex_unlock(&usm__ipc.lock);
    return is_self;
}

/* ---- sharing ---------------------------------------------------------------------------- */

static usm_list *list_of(uint64_t id)
{
    return &usm__ipc.shares[id % USM__IPC_SHARE_LISTS];
}

usm__ipc_shared *usm__ipc_shared_find(uint64_t id, uint64_t nonce)
{
    if (!usm__ipc.is_up)
        return NULL;
    USM_LIST_FOREACH (it, list_of(id)) {
        usm__ipc_shared *s = usm_container_of(it, usm__ipc_shared, link);

        if (s->id == id && s->nonce == nonce)
            return s;
    }
    return NULL;
}

usm_status usm__ipc_share(int fd, const void *extra, size_t extra_size, usm__ipc_name *name)
{
    usm_status       st = usm__ipc_start();
    usm__ipc_shared *s;

    if (st != USM_OK)
        return st;
    if (extra_size > sizeof s->extra)
        return usm__fail(USM_E_INTERNAL, "%zu bytes are too many beside a descriptor", extra_size);
    s = usm__heap_alloc(sizeof *s);
    if (s == NULL)
        return usm__fail(USM_E_NO_MEMORY, "no host memory to share a descriptor");
    s->fd = usm__os_dup(fd);
    if (s->fd < 0 || usm__os_random(&s->nonce, sizeof s->nonce) != 0) {
        st = usm__fail(USM_E_SYSTEM, "a descriptor cannot be shared: %s",
                       strerror(errno)); /* NOLINT(concurrency-mt-unsafe): glibc's is safe */
        goto err_share;
    }
    if (extra_size > 0)
        memcpy(s->extra, extra, extra_size);
    usm__mutex_lock(&usm__ipc.lock);
    s->id = ++usm__ipc.last_id;
    usm_list_append(list_of(s->id), &s->link);
    usm__ipc_directory_enter(s);
    *name = (usm__ipc_name){.owner = usm__ipc.self, .id = s->id, .nonce = s->nonce};
    usm__mutex_unlock(&usm__ipc.lock);
    return USM_OK;

err_share:
    if (s->fd >= 0)
        (void)usm__os_close(s->fd);
    usm__heap_free(s);
    return st;
}

void usm__ipc_unshare(const usm__ipc_name *name)
{
    usm__ipc_shared *s;

    usm__mutex_lock(&usm__ipc.lock);
    s = usm__ipc_shared_find(name->id, name->nonce);
    if (s != NULL) {
        usm_list_remove(&s->link);
        usm__ipc_directory_leave(s);
    }
    usm__mutex_unlock(&usm__ipc.lock);
    if (s == NULL)
        return;
    (void)usm__os_close(s->fd);
    usm__heap_free(s);
}

void usm__ipc_share_aside(const usm__ipc_name *name)
{
    usm__ipc_shared *s;

    usm__mutex_lock(&usm__ipc.lock);
    s = usm__ipc_shared_find(name->id, name->nonce);
    if (s != NULL)
        s->is_aside = true;
    usm__mutex_unlock(&usm__ipc.lock);
}

/* ---- connections to owners ---------------------------------------------------------------- */

/* Under the lock. */
static usm__ipc_owner *owner_find(const usm__ipc_process *p)
{
    USM_LIST_FOREACH (it, &usm__ipc.owners) {
        usm__ipc_owner *o = usm_container_of(it, usm__ipc_owner, link);

        if (usm__ipc_is_same(&o->process, p) && o->process.secret == p->secret)
            return o;
    }
    return NULL;
}

/* Takes a reference, which owner_release() releases; NULL with an error message. */
static usm__ipc_owner *owner_acquire(const usm__ipc_process *p)
{
    usm__ipc_owner *made = usm__heap_alloc(sizeof *made);
    usm__ipc_owner *o;

    if (made == NULL) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for a connection to process %d", p->pid);
        return NULL;
    }
    usm__mutex_lock(&usm__ipc.lock);
    o = owner_find(p);
    if (o == NULL) {
        o          = made;
        made       = NULL;
        o->process = *p;
        o->refs    = 1;
        o->fd      = -1;
        usm__mutex_init(&o->lock, USM__RANK_IPC_CALL, "connection");
        usm_list_append(&usm__ipc.owners, &o->link);
    }
    o->refs++;
    usm__mutex_unlock(&usm__ipc.lock);
    usm__heap_free(made);
    return o;
}

/* Under the lock; the last reference is released. */
static void owner_free(usm__ipc_owner *o)
{
    if (o->fd >= 0)
        (void)usm__os_close(o->fd);
    usm__mutex_fini(&o->lock);
    usm__heap_free(o);
}

static void owner_release(usm__ipc_owner *o)
{
    usm__mutex_lock(&usm__ipc.lock);
    o->refs--;
    if (o->refs == 1 && o->fd < 0 && !usm_list_is_empty(&o->link)) {
        usm_list_remove(&o->link); /* it was not reached: nothing to keep */
        o->refs--;
    }
    if (o->refs == 0)
        owner_free(o);
    usm__mutex_unlock(&usm__ipc.lock);
}

void usm__ipc_owner_closed(usm__ipc_owner *o)
{
    if (o->fd >= 0)
        usm__ipc_poll_remove(o->fd);
    usm_list_remove(&o->link);
    if (--o->refs == 0)
        owner_free(o);
}

/* Under o's lock. */
static void disconnect(usm__ipc_owner *o)
{
    usm__mutex_lock(&usm__ipc.lock);
    if (o->fd >= 0) {
        if (!usm_list_is_empty(&o->link))
            usm__ipc_poll_remove(o->fd);
        (void)usm__os_close(o->fd);
    }
    o->fd         = -1;
    o->connection = 0;
    usm__mutex_unlock(&usm__ipc.lock);
}

static usm_status not_reached(const usm__ipc_process *p, int error)
{
    if (error == EAGAIN)
        return usm__fail(USM_E_SYSTEM,
                         "process %d, the owner, did not answer within %u s: is it stopped?",
                         p->pid, USM__IPC_DEADLINE_MS / 1000);
    if (error != ECONNREFUSED && error != EPIPE && error != ECONNRESET)
        return usm__fail(USM_E_SYSTEM, "process %d, the owner, cannot be reached: %s", p->pid,
                         strerror(error)); /* NOLINT(concurrency-mt-unsafe): glibc's is safe */
    if (!usm__ipc_is_alive(p))
        return usm__fail(USM_E_OWNER_GONE, "process %d, the owner, has ended", p->pid);
    return usm__fail(USM_E_OWNER_GONE,
                     "process %d runs but is not the owner any more: it has started another "
                     "program, or is in another network namespace",
                     p->pid);
}

static usm_status check_user(const usm__ipc_process *p)
{
    if (p->uid == usm__ipc.self.uid)
        return USM_OK;
    return usm__fail(USM_E_PERMISSION,
                     "process %d, the owner, is of user %u, and this one of user %u: run both as "
                     "one user",
                     p->pid, p->uid, usm__ipc.self.uid);
}

/* Under o's lock. */
static usm_status connect_to(usm__ipc_owner *o)
{
    char     name[100];
    int      fd, pid = 0;
    uint32_t uid = 0;

    usm__ipc_socket_name(&o->process, name, sizeof name);
    fd = usm__os_connect(name, USM__IPC_DEADLINE_MS);
    if (fd < 0)
        return not_reached(&o->process, errno);
    /* Any user may bind this name: another one may listen there once the owner has ended. */
    if (usm__os_peer(fd, &pid, &uid) != 0 || uid != o->process.uid) {
        (void)usm__os_close(fd);
        return usm__fail(USM_E_PERMISSION, "process %d, user %u, answers instead of process %d",
                         pid, uid, o->process.pid);
    }
    usm__mutex_lock(&usm__ipc.lock);
    o->fd         = fd;
    o->connection = ++usm__ipc.last_connection;
    if (usm_list_is_empty(&o->link) || usm__ipc_poll_add(fd, USM__IPC_OWNER, o) == 0)
        fd = -1;
    usm__mutex_unlock(&usm__ipc.lock);
    if (fd < 0)
        return USM_OK;
    disconnect(o);
    return usm__fail(USM_E_SYSTEM, "the connection to process %d cannot be monitored",
                     o->process.pid);
}

/* Under o's lock.  *fd: passed with the request; outputs the received descriptor, or -1.  Returns 0
 * or an errno value; EPIPE: the connection has ended. */
static int exchange(usm__ipc_owner *o, usm__ipc_request *r, usm__ipc_answer *answer, int *fd)
{
    int pass = *fd;

    *fd         = -1;
    r->magic    = USM__IPC_PACKET_MAGIC;
    r->exchange = ++o->exchange;
    /* A process that was refused finds the reason in its socket although it cannot send. */
    if (usm__os_send(o->fd, r, sizeof *r, pass) != 0 && errno != EPIPE)
        return errno;
    for (;;) {
        ssize_t n = usm__os_receive(o->fd, answer, sizeof *answer, fd);

        if (n < 0)
            return errno;
        if (n == (ssize_t)sizeof *answer && answer->magic == USM__IPC_PACKET_MAGIC &&
            (answer->exchange == r->exchange || answer->exchange == 0))
            return 0;
        if (*fd >= 0)
            (void)usm__os_close(*fd);
        *fd = -1;
        if (n == 0)
            return EPIPE;
    }
}

static bool is_broken(int error)
{
    return error == EPIPE || error == ECONNRESET || error == ENOTCONN;
}

/* Under o's lock: connects if needed, and once more if the connection turns out to have ended. */
static usm_status ask(usm__ipc_owner *o, usm__ipc_request *r, usm__ipc_answer *answer, int *fd)
{
    int error = EPIPE, pass = *fd;

    *fd = -1;
    for (int attempt = 0; attempt < 2 && is_broken(error); attempt++) {
        usm_status st = o->fd < 0 ? connect_to(o) : USM_OK;

        if (st != USM_OK)
            return st;
        *fd   = pass;
        error = exchange(o, r, answer, fd);
        if (is_broken(error))
            disconnect(o);
    }
    return error == 0 ? USM_OK : not_reached(&o->process, error);
}

static usm_status notified(const usm__ipc_process *p, const usm__ipc_answer *answer)
{
    switch (answer->status) {
    case USM_OK:
        return USM_OK;
    case USM_E_STALE:
        return usm__fail(USM_E_STALE, "process %d does not share it any more", p->pid);
    case USM_E_PERMISSION:
        return usm__fail(USM_E_PERMISSION, "process %d, the owner, is of another user", p->pid);
    default:
        return usm__fail(USM_E_SYSTEM,
                         "process %d, the owner, has no descriptor or memory left for others",
                         p->pid);
    }
}

/* ---- fetching ------------------------------------------------------------------------------ */

static usm_status fetch_own(const usm__ipc_name *name, int *fd, uint8_t *extra)
{
    usm__ipc_shared *s;
    int              copy = -1;

    usm__mutex_lock(&usm__ipc.lock);
    s = usm__ipc_shared_find(name->id, name->nonce);
    if (s != NULL) {
        memcpy(extra, s->extra, sizeof s->extra);
        copy = usm__os_dup(s->fd);
    }
    usm__mutex_unlock(&usm__ipc.lock);
    if (s == NULL)
        return usm__fail(USM_E_STALE, "this process does not share it any more");
    if (copy < 0)
        return usm__fail(USM_E_SYSTEM, "no descriptor is free: %s",
                         strerror(errno)); /* NOLINT(concurrency-mt-unsafe): glibc's is safe */
    *fd = copy;
    return USM_OK;
}

static usm_status fetch_from(const usm__ipc_name *name, int *fd, uint8_t *extra)
{
    usm__ipc_request request = {.op = USM__IPC_OP_FETCH, .id = name->id, .nonce = name->nonce};
    usm__ipc_answer  answer  = {.magic = 0};
    usm__ipc_owner  *o;
    usm_status       st  = check_user(&name->owner);
    int              got = -1;

    if (st != USM_OK)
        return st;
    o = owner_acquire(&name->owner);
    if (o == NULL)
        return USM_E_NO_MEMORY;
    usm__mutex_lock(&o->lock);
    st = ask(o, &request, &answer, &got);
    if (st == USM_OK && answer.exchange == 0)
        disconnect(o);
    usm__mutex_unlock(&o->lock);
    owner_release(o);
    if (st == USM_OK)
        st = notified(&name->owner, &answer);
    if (st == USM_OK && got < 0)
        st = usm__fail(USM_E_SYSTEM, "no descriptor is free for what process %d shares",
                       name->owner.pid);
    if (st != USM_OK) {
        if (got >= 0)
            (void)usm__os_close(got);
        return st;
    }
    memcpy(extra, answer.extra, sizeof answer.extra);
    *fd = got;
    return USM_OK;
}

usm_status usm__ipc_fetch(const usm__ipc_name *name, int *fd, void *extra, size_t extra_size)
{
    uint8_t    beside[USM__IPC_EXTRA_SIZE];
    usm_status st = usm__ipc_start();

    if (st != USM_OK)
        return st;
    if (usm__ipc_is_self(&name->owner))
        st = fetch_own(name, fd, beside);
    else if (strcmp(usm__setting_text("ipc"), "pidfd") != 0)
        st = fetch_from(name, fd, beside);
    else if ((st = check_user(&name->owner)) == USM_OK)
        st = usm__ipc_fetch_by_pidfd(name, fd, beside);
    if (st == USM_OK && extra_size > 0)
        memcpy(extra, beside, extra_size < sizeof beside ? extra_size : sizeof beside);
    return st;
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Under o's lock. */
static usm_status say(usm__ipc_owner *o, const usm__ipc_request *r, int fd)
{
    int error = EPIPE;

    for (int attempt = 0; attempt < 2 && is_broken(error); attempt++) {
        usm_status st = o->fd < 0 ? connect_to(o) : USM_OK;

        if (st != USM_OK)
            return st;
        if (usm__os_send(o->fd, r, sizeof *r, fd) == 0)
            return USM_OK;
        error = errno;
        if (is_broken(error))
            disconnect(o);
    }
    return not_reached(&o->process, error);
}

static usm_status ask_word(usm__ipc_owner *o, usm__ipc_request *r, int fd)
{
    usm__ipc_answer answer = {.magic = 0};
    int             passed = fd;
    usm_status      st     = ask(o, r, &answer, &passed);

    if (passed >= 0)
        (void)usm__os_close(passed);
    if (st == USM_OK && answer.exchange == 0)
        disconnect(o);
    return st == USM_OK ? notified(&o->process, &answer) : st;
}

static usm_status word_to(const usm__ipc_process *to, usm__ipc_request *r, int fd)
{
    usm_status      st = usm__ipc_start();
    usm__ipc_owner *o;

    if (st == USM_OK)
        st = check_user(to);
    if (st != USM_OK)
        return st;
    o = owner_acquire(to);
    if (o == NULL)
        return USM_E_NO_MEMORY;
    usm__mutex_lock(&o->lock);
    st = r->is_asking ? ask_word(o, r, fd) : say(o, r, fd);
    usm__mutex_unlock(&o->lock);
    owner_release(o);
    return st;
}

static usm_status make_word(usm__ipc_request *r, const void *word, size_t size)
{
    if (size > sizeof r->word)
        return usm__fail(USM_E_INTERNAL, "a word of %zu bytes", size);
    memcpy(r->word, word, size);
    r->size = (uint32_t)size;
    return USM_OK;
}

usm_status usm__ipc_say(const usm__ipc_process *to, const void *word, size_t size, int fd)
{
    usm__ipc_request r  = {.magic = USM__IPC_PACKET_MAGIC, .op = USM__IPC_OP_WORD};
    usm_status       st = make_word(&r, word, size);

    return st == USM_OK ? word_to(to, &r, fd) : st;
}

usm_status usm__ipc_ask(const usm__ipc_process *to, const void *word, size_t size, int fd)
{
    usm__ipc_request r  = {.op = USM__IPC_OP_WORD, .is_asking = 1};
    usm_status       st = make_word(&r, word, size);

    return st == USM_OK ? word_to(to, &r, fd) : st;
}

uint64_t usm__ipc_connection(const usm__ipc_process *to)
{
    const usm__ipc_owner *o;
    uint64_t              connection = 0;

    usm__mutex_lock(&usm__ipc.lock);
    o = owner_find(to);
    if (o != NULL)
        connection = o->connection;
    usm__mutex_unlock(&usm__ipc.lock);
    return connection;
}
