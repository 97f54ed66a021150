/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Streams between the ranks of a unit: see ranks.h.
 *
 *     crew, or serve <--socket--> thread --BYTES--> the job --> listener <--socket--> serve, or crew
 *                                        <--TAKEN--           (of the other rank)
 *
 * Whoever reads the other side of a socket never waits for messages, so the listener may wait until
 * it has written.  It confirms each message then, and a thread has at most WINDOW of them on their
 * way: what a rank cannot take yet stays in the sender's socket. */
#include "units/ranks.h"

#include "base/job.h"
#include "base/os.h"
#include "base/status.h"
#include "cluster/attach.h"
#include "cluster/cluster.h"
#include "device/init.h"
#include "offload/graph_where.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <usm/job.h>
#include <usm/status.h>

enum { MOST = 65536, WINDOW = 64, LIMIT_S = 30 };

typedef enum op { BYTES = 1, TAKEN, END } op; /* the first byte of a message */

typedef struct stream {
    int      mine, theirs; /* two ends of a socket; theirs: -1: it was taken */
    bool     has_ended;    /* nothing more comes from whoever has `theirs` */
    uint32_t sent;         /* messages that are not confirmed */
} stream;

struct unit_ranks {
    uint32_t        self, count;
    stream         *streams; /* by rank; mine -1: there is none */
    pthread_mutex_t lock;    /* guards `sent` and is_closing */
    bool            is_closing;
    int             wake[2];
    pthread_t       thread;
    unsigned char   message[1 + MOST]; /* of the thread */
};

/* ---- from the job to the sockets ----------------------------------------------------------------- */

static void wake(unit_ranks *r)
{
    (void)!write(r->wake[1], "", 1); /* full: it will wake anyway */
}

/* Whoever closes the other side does not want the rest. */
static void write_all(int fd, const unsigned char *bytes, size_t size)
{
    while (size) {
        ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR)
            return;
        bytes += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
}

static void on_message(void *user, uint32_t from, const void *data, size_t size)
{
    unit_ranks          *r     = user;
    const unsigned char *bytes = data;
    static const char    taken = TAKEN;

    if (from >= r->count || r->streams[from].mine < 0 || size == 0)
        return;
    switch ((op)bytes[0]) {
    case BYTES:
        write_all(r->streams[from].mine, bytes + 1, size - 1);
        (void)usm__job_send(from, USM__JOB_UNITS, &taken, 1); /* it is lost: the watcher hears */
        break;
    case TAKEN:
        (void)pthread_mutex_lock(&r->lock);
        r->streams[from].sent--;
        (void)pthread_mutex_unlock(&r->lock);
        wake(r);
        break;
    case END:
        (void)shutdown(r->streams[from].mine, SHUT_WR);
        break;
    }
}

static void on_change(void *user, uint32_t rank, usm_place_state state)
{
    unit_ranks *r = user;

    if (state == USM_PLACE_LOST && r->streams[rank].mine >= 0)
        (void)shutdown(r->streams[rank].mine, SHUT_RDWR);
}

/* ---- from the sockets to the job ----------------------------------------------------------------- */

static void carry(unit_ranks *r, uint32_t rank)
{
    stream *s = &r->streams[rank];
    ssize_t n = read(s->mine, r->message + 1, MOST);

    if (n < 0 && errno == EINTR)
        return;
    s->has_ended  = n <= 0;
    r->message[0] = (unsigned char)(n > 0 ? BYTES : END);
    (void)pthread_mutex_lock(&r->lock);
    s->sent += n > 0;
    (void)pthread_mutex_unlock(&r->lock);
    if (usm__job_send(rank, USM__JOB_UNITS, r->message, 1 + (size_t)(n > 0 ? n : 0)) != USM_OK) {
        (void)shutdown(s->mine, SHUT_RDWR);
        s->has_ended = true;
    }
}

/* Whether there is something to wait for. */
static bool list_files(unit_ranks *r, struct pollfd *fds)
{
    bool has_open = false;

    (void)pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < r->count; i++) {
        const stream *s = &r->streams[i];

        fds[i] =
            (struct pollfd){.fd = s->mine < 0 || s->has_ended || s->sent >= WINDOW ? -1 : s->mine,
                            .events = POLLIN};
        has_open |= s->mine >= 0 && !s->has_ended && !usm__job_rank_is_lost(i);
    }
    fds[r->count] = (struct pollfd){.fd = r->wake[0], .events = POLLIN};
    has_open |= !r->is_closing;
    (void)pthread_mutex_unlock(&r->lock);
    return has_open;
}

static void *work(void *user)
{
    unit_ranks   *r = user;
    struct pollfd fds[USM__UNITS_MAX + 2];
    char          some[64];

    while (list_files(r, fds)) {
        if (poll(fds, r->count + 1, -1) <= 0)
            continue;
        while (fds[r->count].revents && read(r->wake[0], some, sizeof some) > 0) {}
        for (uint32_t i = 0; i < r->count; i++)
            if (fds[i].revents)
                carry(r, i);
    }
    return NULL;
}

/* ---- joining ------------------------------------------------------------------------------------- */

static void on_alarm(int number)
{
    static const char text[] =
        "usm-run: --unit: MPI does not answer; was it started by that MPI's own "
        "mpirun?\n";

    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(1);
}

/* The first of the modules that fit the launcher; an MPI that does not answer ends the program. */
static usm_status attach(const char *const *names)
{
    usm_status st = USM_E_MPI;
    char       module[32];

    (void)signal(SIGALRM, on_alarm);
    (void)alarm(LIMIT_S);
    for (size_t i = 0; names[i] && st == USM_E_MPI; i++) {
        (void)snprintf(module, sizeof module, "mpi_%s", names[i]);
        st = usm__job_attach(module, NULL, 0);
    }
    (void)alarm(0);
    return st;
}

/* *is_job: whether there is one. */
static usm_status join(const char *where, bool *is_job)
{
    usm__launcher_place p     = usm__launcher_place_get();
    const char *const  *names = usm__cluster_candidates();

    usm_status st = usm__up();

    *is_job = where ? strcmp(where, "none") != 0 : p.size > 1;
    if (st != USM_OK || !*is_job)
        return st;
    if (where)
        return usm_job_join(where);
    return names ? attach(names)
                 : usm__fail(USM_E_MPI, "no MPI of libusm is for its launcher (%s)", p.source);
}

static bool open_stream(unit_ranks *r, uint32_t rank)
{
    int ends[2];

    r->streams[rank].mine = -1;
    if ((r->self == 0) == (rank == 0))
        return true;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    r->streams[rank] = (stream){.mine = ends[0], .theirs = ends[1]};
    return true;
}

static bool start(unit_ranks *r)
{
    bool is_ok = pipe2(r->wake, O_CLOEXEC | O_NONBLOCK) == 0;

    for (uint32_t i = 0; i < r->count; i++)
        is_ok &= open_stream(r, i);
    (void)pthread_mutex_init(&r->lock, NULL);
    if (!is_ok || pthread_create(&r->thread, NULL, work, r) != 0)
        return false;
    usm__job_watch(on_change, r);
    usm__job_listen(USM__JOB_UNITS, on_message, r);
    for (uint32_t i = 0; i < r->count; i++)
        if (usm__job_rank_is_lost(i))
            on_change(r, i, USM_PLACE_LOST);
    return true;
}

bool unit_ranks_open(const char *where, unit_ranks **out)
{
    uint32_t    self = 0, count = 1;
    unit_ranks *r;
    bool        is_job;

    *out = NULL;
    if (join(where, &is_job) != USM_OK || (is_job && usm__job_ranks(&self, &count) != USM_OK)) {
        fprintf(stderr, "usm-run: --unit: it cannot join its job: %s\n", usm_last_error());
        return false;
    }
    if (count < 2)
        return true;
    if (count > USM__UNITS_MAX + 1) {
        fprintf(stderr,
                "usm-run: --unit: its job has %u ranks, and a unit at most %d: start fewer\n",
                count, USM__UNITS_MAX + 1);
        return false;
    }
    r = usm__heap_alloc(sizeof *r);
    if (r)
        r->streams = usm__heap_alloc(count * sizeof *r->streams);
    if (r && r->streams) {
        r->self  = self;
        r->count = count;
        *out     = r;
        if (start(r))
            return true;
    }
    fputs("usm-run: --unit: no memory, socket or thread for the ranks of its job\n", stderr);
    return false; /* the program ends, and with it all that it has */
}

uint32_t unit_ranks_self(const unit_ranks *r)
{
    return r ? r->self : 0;
}

uint32_t unit_ranks_count(const unit_ranks *r)
{
    return r ? r->count : 1;
}

int unit_ranks_take(unit_ranks *r, uint32_t rank)
{
    int fd = r->streams[rank].theirs;

    r->streams[rank].theirs = -1;
    return fd;
}

/* ---- leaving ------------------------------------------------------------------------------------- */

void unit_ranks_close(unit_ranks *r)
{
    if (!r) {
        usm_job_leave(); /* of a job of one rank */
        return;
    }
    for (uint32_t i = 0; i < r->count; i++)
        if (r->streams[i].mine >= 0 && r->streams[i].theirs >= 0)
            (void)close(r->streams[i].theirs);
    (void)pthread_mutex_lock(&r->lock);
    r->is_closing = true;
    (void)pthread_mutex_unlock(&r->lock);
    wake(r);
    (void)pthread_join(r->thread, NULL);
    usm__job_listen(USM__JOB_UNITS, NULL, NULL);
    usm__job_unwatch(on_change, r);
    for (uint32_t i = 0; i < r->count; i++)
        if (r->streams[i].mine >= 0)
            (void)close(r->streams[i].mine);
    usm_job_leave();
    (void)close(r->wake[0]);
    (void)close(r->wake[1]);
    (void)pthread_mutex_destroy(&r->lock);
    usm__heap_free(r->streams);
    usm__heap_free(r);
}
