/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The thread of a job.  It sleeps in poll() until a packet arrives, there is room for a queued one,
 * or a sign of life is due.  It alone calls message() and member_changed().
 *
 * A peer whose socket has ended is lost as soon as all that it sent was read.  Silent peers are
 * judged by group/lease.h. */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define AT_ONCE 16 /* packets of one peer, before the others are served */

void usm_socket_ring(const usm_socket_job *j)
{
    const uint64_t one = 1;

    (void)!write(j->bell, &one, sizeof(one)); /* if the write fails, the eventfd is signalled
                                                 already */
}

/* ---- received packets ---------------------------------------------------------------------- */

static void lose(usm_socket_job *j, usm_socket_peer *p)
{
    usm_socket_lock(j);
    usm_socket_drop(j, p);
    usm_socket_unlock(j);
}

static void take_packet(usm_socket_job *j, uint32_t rank, size_t n)
{
    usm_socket_peer *p = &j->peers[rank];
    usm_socket_head  h;

    memcpy(&h, j->packet, sizeof(h));
    if (n < HEADER_SIZE || n > HEADER_SIZE + PAYLOAD_MAX || h.kind < USM_SOCKET_MESSAGE ||
        h.kind > USM_SOCKET_BYE) {
        j->api->log(USM_LOG_WARN, "rank %u sends what is not a message: it is taken for lost",
                    rank);
        lose(j, p);
        return;
    }
    usm_socket_lock(j);
    usm__group_lease_heard(&p->lease, usm_socket_now_ns());
    usm_socket_unlock(j);
    if (h.kind == USM_SOCKET_BYE)
        p->has_left = true;
    else if (h.kind == USM_SOCKET_MESSAGE)
        j->params.message(j->params.user, rank, h.tag, j->packet + HEADER_SIZE, n - HEADER_SIZE);
}

/* Receives one packet; false: there is none. */
static bool hear(usm_socket_job *j, uint32_t rank)
{
    usm_socket_peer *p = &j->peers[rank];
    ssize_t          n;

    if (p->state == USM_PLACE_LOST || p->fd < 0) /* only then another thread may close it */
        return false;
    n = recv(p->fd, j->packet, sizeof(j->packet), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n < 0 && errno == ECONNRESET) /* it left something unread; its own packets are still to
                                         come */
        return true;
    if (n <= 0) {
        j->api->log(USM_LOG_INFO, "rank %u has %s", rank, p->has_left ? "left" : "ended");
        lose(j, p);
        return false;
    }
    take_packet(j, rank, (size_t)n);
    return true;
}

/* ---- silent peers -------------------------------------------------------------------------- */

static void judge(usm_socket_job *j)
{
    uint64_t now    = usm_socket_now_ns();
    uint64_t absent = usm__group_look(&j->clock, now);

    usm_socket_lock(j);
    for (uint32_t r = 0; r < j->config.size; r++) {
        usm_socket_peer *p = &j->peers[r];

        if (!usm_socket_is_reached(p))
            continue;
        usm__group_lease_forgive(&p->lease, absent, now);
        p->state = usm__group_lease_state(&p->lease, &j->clock, now);
        if (p->state == USM_PLACE_LOST)
            usm_socket_drop(j, p);
    }
    usm_socket_beat(j, now);
    usm_socket_unlock(j);
}

static void notify_changes(usm_socket_job *j)
{
    for (uint32_t r = 0; r < j->config.size; r++) {
        usm_socket_peer *p = &j->peers[r];
        usm_job_member   m = {.index = r};

        usm_socket_lock(j);
        m.state = p->state;
        usm_socket_unlock(j);
        if (m.state == p->notified)
            continue;
        if (m.state == USM_PLACE_LOST && p->notified == USM_PLACE_SLOW)
            j->api->log(USM_LOG_WARN, "rank %u was silent for %u ms and is lost", r, j->lease_ms);
        p->notified = m.state;
        memcpy(m.domain, p->domain, sizeof(m.domain));
        j->params.member_changed(j->params.user, &m);
    }
}

/* ---- a round -------------------------------------------------------------------------------- */

/* When a peer will have been silent for too long, or a sign of life is due; -1: never. */
static int time_left(const usm_socket_job *j, uint64_t now)
{
    uint64_t until = UINT64_MAX, next;

    for (uint32_t r = 0; r < j->config.size; r++) {
        const usm_socket_peer *p = &j->peers[r];

        if (!usm_socket_is_reached(p))
            continue;
        next = usm__group_lease_next(&p->lease, &j->clock, now, !p->first);
        if (next < until)
            until = next;
    }
    return until == UINT64_MAX ? -1 : usm_socket_ms_until(until, now);
}

static int prepare(usm_socket_job *j)
{
    uint32_t n = j->config.size;
    int      ms;

    usm_socket_lock(j);
    for (uint32_t r = 0; r < n; r++) {
        usm_socket_peer *p = &j->peers[r];

        usm_socket_push(j, p);
        j->fds[r] = (struct pollfd){.fd     = p->state == USM_PLACE_LOST ? -1 : p->fd,
                                    .events = (short)(POLLIN | (p->first ? POLLOUT : 0))};
    }
    ms = time_left(j, usm_socket_now_ns());
    usm_socket_unlock(j);
    j->fds[n]     = (struct pollfd){.fd = j->bell, .events = POLLIN};
    j->fds[n + 1] = (struct pollfd){.fd = j->listener, .events = POLLIN};
    return ms;
}

static void look(usm_socket_job *j)
{
    uint32_t n  = j->config.size;
    int      ms = prepare(j);
    uint64_t rings;

    if (poll(j->fds, n + 2, ms) > 0) {
        if (j->fds[n].revents)
            (void)!read(j->bell, &rings, sizeof(rings));
        for (uint32_t r = 0; r < n; r++)
            for (int i = 0; j->fds[r].revents & ~POLLOUT && i < AT_ONCE && hear(j, r); i++)
                ;
        if (j->fds[n + 1].revents && !usm__group_turn_away(&j->meeting, j->listener)) {
            (void)close(j->listener);
            j->listener = -1;
        }
    }
    judge(j);
    notify_changes(j);
}

static void serve(void *arg)
{
    usm_socket_job *j = arg;

    usm_socket_lock(j);
    j->thread = pthread_self();
    while (!j->stop) {
        usm_socket_unlock(j);
        look(j);
        usm_socket_lock(j);
    }
    j->runs = false;
    (void)pthread_cond_broadcast(&j->ended);
    usm_socket_unlock(j);
}

/* ---- start and end -------------------------------------------------------------------------- */

usm_status usm_socket_start(usm_socket_job *j)
{
    char     room[128];
    uint64_t now;
    int      error;

    j->fds = j->api->heap_alloc((j->config.size + 2) * sizeof(*j->fds));
    if (!j->fds)
        return j->api->report(USM_E_NO_MEMORY, "no host memory for a job of %u processes",
                              j->config.size);
    now      = usm_socket_now_ns();
    j->clock = (usm__group_clock){.lease_ns = j->lease_ms * NS_PER_MS,
                                  .sign_ns  = j->beat_ms * NS_PER_MS,
                                  .pause_ns = j->lease_ms * NS_PER_MS * 3 / 8,
                                  .looked   = now};
    for (uint32_t r = 0; r < j->config.size; r++) {
        usm__group_lease_heard(&j->peers[r].lease, now);
        j->peers[r].lease.sent = now;
    }
    j->runs = true;
    error   = j->api->os->thread(serve, j, "usm-socket");
    if (error == 0)
        return USM_OK;
    j->runs = false;
    return j->api->report(error == ENOMEM ? USM_E_NO_MEMORY : USM_E_SYSTEM,
                          "socket: no thread can be had: %s",
                          strerror_r(error, room, sizeof(room)));
}

void usm_socket_stop(usm_socket_job *j)
{
    usm_socket_lock(j);
    j->stop = true;
    usm_socket_ring(j);
    while (j->runs)
        (void)pthread_cond_wait(&j->ended, &j->lock);
    usm_socket_unlock(j);
}
