/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sending.  A packet is sent at once if the socket has room and none is queued before it.
 * Otherwise a copy is appended to the peer's queue, until the thread finds room.
 *
 * A queue has a bound.  Beyond it a sender waits for room.  While it waits, it sends queued packets
 * itself, and signs of life to all ranks, because the thread may be waiting for this sender (it
 * delivers a message to a listener that another thread is in).  The thread itself never waits here:
 * it may exceed the bound. */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAREWELL_NS (1000 * NS_PER_MS)

struct usm_socket_letter {
    usm_socket_letter *next;
    usm_socket_head    head;
    size_t             size;
    unsigned char      bytes[]; /* `size` of them */
};

typedef enum outcome { OUT, NO_ROOM } outcome;

/* Also sends to a peer that is about to end: what is sent to a lost peer is lost. */
static outcome put(int fd, usm_socket_head head, const void *data, size_t size)
{
    struct iovec  parts[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)data, size}};
    struct msghdr m        = {.msg_iov = parts, .msg_iovlen = size > 0 ? 2 : 1};

    if (sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return OUT;
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM)
        return NO_ROOM;
    if (errno != EPIPE && errno != ECONNRESET)
        (void)shutdown(fd, SHUT_RDWR); /* useless from now on: its end is reported */
    return OUT;
}

/* ---- the lock is held ---------------------------------------------------------------------- */

void usm_socket_push(usm_socket_job *j, usm_socket_peer *p)
{
    while (p->first && usm_socket_is_reached(p)) {
        usm_socket_letter *l = p->first;

        if (put(p->fd, l->head, l->bytes, l->size) == NO_ROOM)
            return;
        p->lease.sent = usm_socket_now_ns();
        p->first      = l->next;
        if (!p->first)
            p->end = &p->first;
        p->queued -= HEADER_SIZE + l->size;
        j->api->heap_free(l);
    }
}

/* What waits for room in the socket is a sign of life, once the peer reads. */
static bool may_sign(const usm_socket_peer *p)
{
    return usm_socket_is_reached(p) && !p->first;
}

/* Signs that are due a little later go with those that are due, so that the thread is woken once
 * for all peers and not for each of them. */
void usm_socket_beat(usm_socket_job *j, uint64_t now_ns)
{
    const uint64_t later  = now_ns + j->clock.sign_ns / 4;
    bool           is_due = false;

    for (uint32_t r = 0; r < j->config.size; r++)
        is_due |=
            may_sign(&j->peers[r]) && usm__group_lease_owes(&j->peers[r].lease, &j->clock, now_ns);
    for (uint32_t r = 0; is_due && r < j->config.size; r++) {
        usm_socket_peer *p = &j->peers[r];

        if (!may_sign(p) || !usm__group_lease_owes(&p->lease, &j->clock, later))
            continue;
        /* If there is no room, what is in the socket is as good a sign. */
        (void)put(p->fd, (usm_socket_head){USM_SOCKET_BEAT, 0}, NULL, 0);
        p->lease.sent = now_ns;
    }
}

static void close_it(usm_socket_peer *p)
{
    if (p->fd >= 0 && p->users == 0 && p->state == USM_PLACE_LOST) {
        (void)close(p->fd);
        p->fd = -1;
    }
}

void usm_socket_drop(usm_socket_job *j, usm_socket_peer *p)
{
    p->state = USM_PLACE_LOST;
    while (p->first) {
        usm_socket_letter *l = p->first;

        p->first = l->next;
        j->api->heap_free(l);
    }
    p->end    = &p->first;
    p->queued = 0;
    if (p->fd >= 0)
        (void)shutdown(p->fd, SHUT_RDWR); /* wakes threads that wait for room */
    close_it(p);
}

static void append(usm_socket_peer *p, usm_socket_letter *l)
{
    *p->end = l;
    p->end  = &l->next;
    p->queued += HEADER_SIZE + l->size;
}

/* Waits until the queue is below its bound, or the peer is lost. */
static usm_status wait_for_room(usm_socket_job *j, usm_socket_peer *p)
{
    uint64_t now = usm_socket_now_ns(), end = now + j->clock.lease_ns;

    p->users++;
    while (usm_socket_is_reached(p) && p->queued >= QUEUE_MAX && now < end) {
        uint64_t      until = now + j->clock.sign_ns / 2;
        struct pollfd fd    = {.fd = p->fd, .events = POLLOUT};

        usm_socket_unlock(j);
        (void)poll(&fd, 1, usm_socket_ms_until(until < end ? until : end, now));
        usm_socket_lock(j);
        now = usm_socket_now_ns();
        usm_socket_push(j, p);
        usm_socket_beat(j, now);
    }
    p->users--;
    close_it(p);
    if (usm_socket_is_reached(p) && p->queued >= QUEUE_MAX)
        return j->api->report(
            USM_E_PEER,
            "socket: rank %u has taken no message for %u ms, and %zu MiB wait for "
            "it",
            (unsigned)(p - j->peers), j->lease_ms, QUEUE_MAX >> 20);
    return USM_OK;
}

/* ---- sending --------------------------------------------------------------------------------- */

static usm_status send_later(usm_socket_job *j, usm_socket_peer *p, uint32_t tag, const void *data,
                             size_t size)
{
    usm_socket_letter *l = j->api->heap_alloc(sizeof(*l) + size);

    if (!l)
        return j->api->report(USM_E_NO_MEMORY, "no host memory for a message of %zu bytes", size);
    l->head = (usm_socket_head){USM_SOCKET_MESSAGE, tag};
    l->size = size;
    if (size > 0)
        memcpy(l->bytes, data, size);
    append(p, l);
    usm_socket_ring(j); /* so that the thread waits for room from now on */
    return USM_OK;
}

usm_status usm_socket_send(usm_socket_job *j, uint32_t to, uint32_t tag, const void *data,
                           size_t size)
{
    usm_socket_peer *p  = &j->peers[to];
    usm_status       st = USM_OK;

    usm_socket_lock(j);
    if (p->queued >= QUEUE_MAX && !pthread_equal(j->thread, pthread_self()))
        st = wait_for_room(j, p);
    if (st == USM_OK && usm_socket_is_reached(p)) {
        if (!p->first && put(p->fd, (usm_socket_head){USM_SOCKET_MESSAGE, tag}, data, size) == OUT)
            p->lease.sent = usm_socket_now_ns();
        else
            st = send_later(j, p, tag, data, size);
    }
    usm_socket_unlock(j);
    return st;
}

/* ---- leaving -------------------------------------------------------------------------------- */

/* Without memory BYE is omitted: the others see the end of the socket. */
static void say_bye(usm_socket_job *j, usm_socket_peer *p)
{
    usm_socket_letter *l = j->api->heap_alloc(sizeof(*l));

    if (!l)
        return;
    l->head = (usm_socket_head){USM_SOCKET_BYE, 0};
    append(p, l);
}

/* Returns how many peers have not taken everything yet; fds: theirs. */
static uint32_t push_out(usm_socket_job *j)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < j->config.size; r++) {
        usm_socket_peer *p = &j->peers[r];

        usm_socket_push(j, p);
        if (p->first)
            j->fds[n++] = (struct pollfd){.fd = p->fd, .events = POLLOUT};
    }
    return n;
}

void usm_socket_farewell(usm_socket_job *j)
{
    uint64_t now = usm_socket_now_ns(), end = now + FAREWELL_NS;

    for (uint32_t r = 0; r < j->config.size; r++)
        if (usm_socket_is_reached(&j->peers[r]))
            say_bye(j, &j->peers[r]);
    for (uint32_t n = push_out(j); n > 0 && now < end; n = push_out(j)) {
        (void)poll(j->fds, n, usm_socket_ms_until(end, now));
        now = usm_socket_now_ns();
    }
}
