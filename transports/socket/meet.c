/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every process connects to every other: to those of lower rank, while those of higher rank connect
 * to it.
 *
 *     higher                    lower
 *       connect() ----------------> accept()      a client, which has a second to send HELLO
 *       HELLO rank, size, lease --> is it one that is missing?
 *       <-- HELLO, or REFUSE and why
 *
 * A process that has not come yet will appear in the folder, which inotify reports.  If a process
 * dies before all have met, its rank is missing again, and another process may take its place.  A
 * process that had met all, and has left again before this one has, counts as come: what it sent
 * must still be read.
 *
 * The attaching thread does all of this.  Later, processes that connect are told that the job is
 * complete.  In the code a client is a "guest". */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>

#define GUESTS_MAX 64
#define GUEST_MS   1000u
#define RETRY_MS   20u /* if the folder reports nothing: a full queue, no inotify */

typedef struct guest {
    int      fd; /* -1: none */
    uint64_t until;
} guest;

typedef struct meeting {
    usm_socket_job *j;
    uint64_t        deadline;
    int             news; /* the inotify descriptor; -1: there is none */
    bool            look; /* look for ranks that have not come */
    bool            soon; /* look again without being notified */
    uint32_t        in;
    guest           guests[GUESTS_MAX];
    struct pollfd  *fds;          /* news, door, guests, then peers by rank */
    char            refused[128]; /* the process that was refused, as text; "" */
} meeting;

#define FIRST_PEER (2 + GUESTS_MAX)

/* With the lock, because the child of a fork closes all descriptors that it finds. */
static void set_fd(usm_socket_job *j, usm_socket_peer *p, int fd)
{
    usm_socket_lock(j);
    p->fd = fd;
    usm_socket_unlock(j);
}

static void forget(meeting *m, usm_socket_peer *p)
{
    int fd = p->fd;

    set_fd(m->j, p, -1);
    (void)close(fd);
    m->in -= p->is_in;
    p->is_in = false;
    m->look = m->soon = true;
}

static void welcome(meeting *m, usm_socket_peer *p, const usm_socket_hello *hello)
{
    usm_socket_job *j = m->j;

    memcpy(p->domain, hello->domain, sizeof(p->domain));
    if (hello->lease_ms / 4 < j->beat_ms)
        j->beat_ms = hello->lease_ms / 4 > 0 ? hello->lease_ms / 4 : 1;
    p->is_in = true;
    m->in++;
}

static bool say_hello(const usm_socket_job *j, int fd)
{
    unsigned char    text[HELLO_SIZE];
    usm_socket_hello hello = {.ranks = j->config.size, .lease_ms = j->lease_ms};

    (void)snprintf(hello.domain, sizeof(hello.domain), "%s",
                   j->params.domain ? j->params.domain : "");
    usm_socket_put_hello(text, &hello);
    return usm_socket_say(j, fd, USM_SOCKET_HELLO, 0, text, sizeof(text));
}

/* ---- connecting to others ------------------------------------------------------------------ */

static usm_status visit(meeting *m, uint32_t rank)
{
    usm_socket_job *j  = m->j;
    int             fd = usm_socket_connect(j, rank);

    if (fd < 0 && (errno == ENOENT || errno == ECONNREFUSED))
        return USM_OK;
    if (fd < 0 && (errno == EAGAIN || errno == EINTR)) {
        m->soon = true;
        return USM_OK;
    }
    if (fd < 0) {
        char room[128];

        return j->api->report(USM_E_SYSTEM, "socket: no connection to rank %u in %s: %s", rank,
                              j->config.folder, strerror_r(errno, room, sizeof(room)));
    }
    if (!usm_socket_is_ours(fd)) {
        (void)close(fd);
        return j->api->report(USM_E_PERMISSION,
                              "socket: %s/%u.sock is another user's: take a folder of your own",
                              j->config.folder, rank);
    }
    if (say_hello(j, fd)) {
        set_fd(j, &j->peers[rank], fd);
        return USM_OK;
    }
    (void)close(fd);
    m->soon = true;
    return USM_OK;
}

static usm_status visit_all(meeting *m)
{
    usm_status st = USM_OK;

    m->look = m->soon = false;
    for (uint32_t r = 0; st == USM_OK && r < m->j->config.rank; r++)
        if (m->j->peers[r].fd < 0)
            st = visit(m, r);
    return st;
}

static usm_status be_refused(const usm_socket_job *j, uint32_t rank, uint32_t why, uint32_t value)
{
    const char *folder = j->config.folder;

    switch ((usm_socket_refusal)why) {
    case USM_SOCKET_OTHER_SIZE:
        return j->api->report(USM_E_INVALID,
                              "socket: rank %u in %s has size=%u, this process size=%u: all have "
                              "the same",
                              rank, folder, value, j->config.size);
    case USM_SOCKET_TWICE:
        return j->api->report(USM_E_BUSY,
                              "socket: rank %u in %s has met another process of rank %u: each "
                              "rank comes once",
                              rank, folder, j->config.rank);
    case USM_SOCKET_COMPLETE:
        return j->api->report(USM_E_BUSY,
                              "socket: the job of rank %u in %s is complete: another job takes "
                              "another folder",
                              rank, folder);
    case USM_SOCKET_OTHER_VERSION:
        break;
    }
    return j->api->report(USM_E_ABI,
                          "socket: rank %u in %s is of another release of libusm: build all "
                          "processes with one",
                          rank, folder);
}

/* Handles a lower rank's answer to this process's HELLO. */
static usm_status hear_answer(meeting *m, uint32_t rank)
{
    usm_socket_job  *j = m->j;
    usm_socket_peer *p = &j->peers[rank];
    usm_socket_head  h;
    usm_socket_hello hello;
    ssize_t          n = recv(p->fd, j->packet, HEADER_SIZE + HELLO_SIZE, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return USM_OK;
    if (n <= 0) { /* it has ended, or had too many clients */
        forget(m, p);
        return USM_OK;
    }
    if (!usm_socket_get_head(j->packet, (size_t)n, &h))
        return j->api->report(USM_E_PEER,
                              "socket: what listens at %s/%u.sock is not a member of a job",
                              j->config.folder, rank);
    if (h.version != USM_SOCKET_VERSION || h.from != rank ||
        (h.kind == USM_SOCKET_HELLO && h.size != HELLO_SIZE))
        return be_refused(j, rank, USM_SOCKET_OTHER_VERSION, 0);
    if (h.kind != USM_SOCKET_HELLO) {
        uint32_t value = 0;

        if (h.size == HELLO_SIZE) {
            usm_socket_get_hello(j->packet + HEADER_SIZE, &hello);
            value = hello.ranks;
        }
        return be_refused(j, rank, h.tag, value);
    }
    usm_socket_get_hello(j->packet + HEADER_SIZE, &hello);
    welcome(m, p, &hello);
    return USM_OK;
}

/* ---- accepting others ---------------------------------------------------------------------- */

static void refuse(const usm_socket_job *j, int fd, usm_socket_refusal why)
{
    unsigned char    text[HELLO_SIZE];
    usm_socket_hello hello = {.ranks = j->config.size};

    usm_socket_put_hello(text, &hello);
    (void)usm_socket_say(j, fd, USM_SOCKET_REFUSE, why, text, sizeof(text));
}

void usm_socket_turn_away(usm_socket_job *j)
{
    int fd = usm_socket_accept(j);

    if (fd >= 0) {
        if (usm_socket_is_ours(fd))
            refuse(j, fd, USM_SOCKET_COMPLETE);
        (void)close(fd);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        (void)close(j->door); /* no descriptors are left, and poll() would report the connection for
                                 ever */
        j->door = -1;
    }
}

static void dismiss(guest *g)
{
    if (g->fd >= 0)
        (void)close(g->fd);
    g->fd = -1;
}

static usm_status let_in(meeting *m, uint64_t now)
{
    const usm_host_api *api   = m->j->api;
    int                 fd    = usm_socket_accept(m->j);
    guest              *place = &m->guests[0];
    char                room[128];

    if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
        return USM_OK;
    if (fd < 0)
        return api->report(USM_E_SYSTEM, "socket: nobody can be let in: %s",
                           strerror_r(errno, room, sizeof(room)));
    if (!usm_socket_is_ours(fd)) {
        api->log(USM_LOG_WARN, "a process of another user came to the job in %s",
                 m->j->config.folder);
        (void)close(fd);
        return USM_OK;
    }
    for (size_t i = 0; i < GUESTS_MAX && place->fd >= 0; i++)
        if (m->guests[i].fd < 0 || m->guests[i].until < place->until)
            place = &m->guests[i];
    dismiss(place); /* replaces the one that has been silent for longest */
    *place = (guest){fd, now + GUEST_MS};
    return USM_OK;
}

/* Accepts a higher rank of the same release and size that has not come yet; otherwise *why is set,
 * or 0: no answer. */
static bool check_guest(meeting *m, const usm_socket_head *h, const usm_socket_hello *hello,
                        usm_socket_refusal *why)
{
    const usm_socket_job *j = m->j;

    if (h->version != USM_SOCKET_VERSION) {
        *why = USM_SOCKET_OTHER_VERSION;
        (void)snprintf(m->refused, sizeof(m->refused),
                       "; a process of another release of libusm came (version %u, not %u)",
                       h->version, USM_SOCKET_VERSION);
    } else if (hello->ranks != j->config.size) {
        *why = USM_SOCKET_OTHER_SIZE;
        (void)snprintf(m->refused, sizeof(m->refused), "; rank %u came with size=%u, not %u",
                       h->from, hello->ranks, j->config.size);
    } else if (h->from > j->config.rank && h->from < j->config.size && j->peers[h->from].fd >= 0) {
        *why = USM_SOCKET_TWICE;
    } else {
        return h->from > j->config.rank && h->from < j->config.size;
    }
    return false;
}

static void hear_guest(meeting *m, guest *g)
{
    usm_socket_job    *j = m->j;
    usm_socket_head    h;
    usm_socket_hello   hello = {0};
    usm_socket_refusal why   = (usm_socket_refusal)0;
    ssize_t            n     = recv(g->fd, j->packet, HEADER_SIZE + HELLO_SIZE + 1, 0);
    bool               is_hello;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    is_hello = n > 0 && usm_socket_get_head(j->packet, (size_t)n, &h) &&
               h.kind == USM_SOCKET_HELLO &&
               (h.version != USM_SOCKET_VERSION || h.size == HELLO_SIZE);
    if (is_hello && h.version == USM_SOCKET_VERSION)
        usm_socket_get_hello(j->packet + HEADER_SIZE, &hello);
    if (is_hello && check_guest(m, &h, &hello, &why) && say_hello(j, g->fd)) {
        set_fd(j, &j->peers[h.from], g->fd);
        welcome(m, &j->peers[h.from], &hello);
        g->fd = -1;
        return;
    }
    if (why)
        refuse(j, g->fd, why);
    dismiss(g);
}

/* ---- a step -------------------------------------------------------------------------------- */

/* The connection of a rank that had come has ended: it had met all ranks, if it has sent
 * anything. */
static void check_end(meeting *m, usm_socket_peer *p)
{
    char byte;

    if (recv(p->fd, &byte, 1, MSG_PEEK) > 0)
        p->is_over = true;
    else
        forget(m, p);
}

static nfds_t prepare(meeting *m)
{
    usm_socket_job *j = m->j;

    m->fds[0] = (struct pollfd){.fd = m->news, .events = POLLIN};
    m->fds[1] = (struct pollfd){.fd = j->door, .events = POLLIN};
    for (size_t i = 0; i < GUESTS_MAX; i++)
        m->fds[2 + i] = (struct pollfd){.fd = m->guests[i].fd, .events = POLLIN};
    for (uint32_t r = 0; r < j->config.size; r++) {
        const usm_socket_peer *p = &j->peers[r];

        /* Packets of ranks that have come are read later; poll() reports their end without being
         * asked. */
        m->fds[FIRST_PEER + r] = (struct pollfd){.fd     = p->is_over ? -1 : p->fd,
                                                 .events = (short)(p->is_in ? 0 : POLLIN)};
    }
    return FIRST_PEER + j->config.size;
}

/* Until the first of: the deadline, the end of a client's time, a look without notification. */
static int time_left(const meeting *m, uint64_t now)
{
    uint64_t until = m->deadline;

    for (size_t i = 0; i < GUESTS_MAX; i++)
        if (m->guests[i].fd >= 0 && m->guests[i].until < until)
            until = m->guests[i].until;
    if ((m->soon || m->news < 0) && now + RETRY_MS < until)
        until = now + RETRY_MS;
    return until > now ? (int)(until - now) : 0;
}

static void read_news(meeting *m)
{
    char events[4096];

    while (read(m->news, events, sizeof(events)) > 0)
        m->look = true;
}

static usm_status hear_peers(meeting *m)
{
    usm_status st = USM_OK;

    for (uint32_t r = 0; st == USM_OK && r < m->j->config.size; r++) {
        usm_socket_peer *p = &m->j->peers[r];

        if (!m->fds[FIRST_PEER + r].revents || p->fd < 0)
            continue;
        if (p->is_in)
            check_end(m, p);
        else
            st = hear_answer(m, r);
    }
    return st;
}

static void hear_guests(meeting *m, uint64_t now)
{
    for (size_t i = 0; i < GUESTS_MAX; i++) {
        guest *g = &m->guests[i];

        if (g->fd >= 0 && m->fds[2 + i].revents)
            hear_guest(m, g);
        if (g->fd >= 0 && now >= g->until)
            dismiss(g);
    }
}

static usm_status step(meeting *m)
{
    nfds_t     n  = prepare(m);
    usm_status st = USM_OK;

    if (poll(m->fds, n, time_left(m, usm_socket_now())) <= 0) {
        m->look = m->soon || m->news < 0;
        for (nfds_t i = 0; i < n; i++)
            m->fds[i].revents = 0;
    }
    if (m->fds[0].revents)
        read_news(m);
    st = hear_peers(m); /* peers that have died make room for clients */
    hear_guests(m, usm_socket_now());
    if (st == USM_OK && m->fds[1].revents)
        st = let_in(m, usm_socket_now());
    return st == USM_OK && m->look ? visit_all(m) : st;
}

/* ---- the call ------------------------------------------------------------------------------- */

static usm_status miss(const meeting *m)
{
    const usm_socket_job *j    = m->j;
    uint32_t              rank = 0;

    while (rank == j->config.rank || j->peers[rank].is_in)
        rank++;
    return j->api->report(USM_E_PEER,
                          "socket: rank %u has not come to %s within %u ms (%u of %u processes are "
                          "there)%s",
                          rank, j->config.folder, j->config.wait_ms, m->in + 1, j->config.size,
                          m->refused);
}

static void open_meeting(meeting *m)
{
    for (size_t i = 0; i < GUESTS_MAX; i++)
        m->guests[i].fd = -1;
    m->deadline = usm_socket_now() + m->j->config.wait_ms;
    m->news     = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (m->news >= 0 && inotify_add_watch(m->news, m->j->config.folder, IN_MOVED_TO) < 0) {
        (void)close(m->news);
        m->news = -1;
    }
}

usm_status usm_socket_meet(usm_socket_job *j)
{
    meeting    m = {.j = j};
    usm_status st;

    m.fds = j->api->heap_alloc((FIRST_PEER + j->config.size) * sizeof(*m.fds));
    if (!m.fds)
        return j->api->report(USM_E_NO_MEMORY, "no host memory for a job of %u processes",
                              j->config.size);
    open_meeting(&m);
    st = visit_all(&m);
    while (st == USM_OK && m.in + 1 < j->config.size)
        st = usm_socket_now() < m.deadline ? step(&m) : miss(&m);
    for (size_t i = 0; i < GUESTS_MAX; i++)
        dismiss(&m.guests[i]);
    if (m.news >= 0)
        (void)close(m.news);
    j->api->heap_free(m.fds);
    return st;
}
