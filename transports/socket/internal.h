/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the parts of the transport over sockets.
 *
 *     socket.c   the table: attach, detach, members, send
 *     config.c   the text after "socket:"
 *     meet.c     how the processes meet
 *     queue.c    sending, and packets that wait until there is room
 *     service.c  the thread: received packets, signs of life, lost ranks
 *
 * A job is one lock, one thread, and a socket to each of the other ranks (SOCK_SEQPACKET: a packet
 * arrives whole or not at all).  The lock is not held during calls of params.message() and
 * member_changed(), and these never take it. */
#ifndef USM_SOCKET_INTERNAL_H
#define USM_SOCKET_INTERNAL_H

#include "group/lease.h"
#include "group/meet.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <usm/transport.h>

#define RANKS_MAX   1024u
#define WAIT_MS     10000u /* for the other ranks to come, unless wait= says otherwise */
#define PAYLOAD_MAX ((size_t)(64 << 10) + 64)
#define DOMAIN_SIZE 64
/* Bytes that may wait for one receiver before a sender must wait as well. */
#define QUEUE_MAX ((size_t)16 << 20)

typedef struct usm_socket_config {
    char     folder[1024];
    uint32_t rank, size;
    uint32_t wait_ms;
} usm_socket_config;

/* ---- packets ------------------------------------------------------------------------------ */

#define USM_SOCKET_VERSION 1u /* of packets, and of all that processes say when they meet */

typedef enum usm_socket_kind {
    USM_SOCKET_MESSAGE = 1,
    USM_SOCKET_BEAT    = 2, /* a sign of life */
    USM_SOCKET_BYE     = 3  /* the last packet */
} usm_socket_kind;

/* A header, and the bytes of a message.  The kernel keeps the bounds of packets, and who sends them
 * is known by the socket. */
typedef struct usm_socket_head {
    uint32_t kind, tag;
} usm_socket_head;
#define HEADER_SIZE sizeof(usm_socket_head)

/* ---- the job ------------------------------------------------------------------------------- */

typedef struct usm_socket_letter usm_socket_letter;

typedef struct usm_socket_peer {
    /* guarded by lock */
    int                fd;    /* -1: none, or no longer; this process has none to itself */
    unsigned           users; /* threads that wait for room in fd: the last of them closes it */
    usm_place_state    state;
    usm_socket_letter *first, **end;
    size_t             queued; /* in bytes */
    usm__group_lease   lease;
    /* set by the attaching thread, then fixed */
    char domain[DOMAIN_SIZE];
    /* used only by the thread */
    usm_place_state notified; /* the state that member_changed() was called with */
    bool            has_left;
} usm_socket_peer;

typedef struct usm_socket_job {
    /* fixed */
    const usm_host_api *api;
    usm_job_params      params;
    usm_socket_config   config;
    uint32_t            lease_ms;
    /* set by the attaching thread, then fixed */
    uint32_t beat_ms; /* interval of signs of life: a quarter of the shortest lease of all ranks */
    int      folder;
    int      listener; /* all ranks have it; used by the thread later; -1: closed */
    char     name[64], what[sizeof(((usm_socket_config *)0)->folder) + 16];
    usm__group_meeting meeting;
    int                bell; /* an eventfd that wakes the thread */

    pthread_mutex_t lock;
    pthread_cond_t  ended;
    /* guarded by lock */
    bool      runs, stop;
    pthread_t thread;
    /* set before the thread starts, then fixed, except what is the thread's own */
    usm__group_clock clock;
    /* used only by the thread */
    struct pollfd *fds; /* config.size + 2 entries */
    _Alignas(8) unsigned char packet[HEADER_SIZE + PAYLOAD_MAX + 1];

    usm_socket_peer peers[]; /* config.size of them, by rank */
} usm_socket_job;

#define NS_PER_MS UINT64_C(1000000)

/* A clock that continues while the process is stopped. */
static inline uint64_t usm_socket_now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 * NS_PER_MS + (uint64_t)t.tv_nsec;
}

/* For poll(): rounded up, or it would be called again and again in the last millisecond. */
static inline int usm_socket_ms_until(uint64_t until_ns, uint64_t now_ns)
{
    return until_ns > now_ns ? (int)((until_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS) : 0;
}

/* With the lock held. */
static inline bool usm_socket_is_reached(const usm_socket_peer *p)
{
    return p->fd >= 0 && p->state != USM_PLACE_LOST;
}

static inline void usm_socket_lock(usm_socket_job *j)
{
    (void)pthread_mutex_lock(&j->lock);
}

static inline void usm_socket_unlock(usm_socket_job *j)
{
    (void)pthread_mutex_unlock(&j->lock);
}

/* ---- config.c -------------------------------------------------------------------------------- */

/*   USM_E_INVALID */
usm_status usm_socket_parse(const usm_host_api *api, const char *text, usm_socket_config *config);

/* ---- meet.c --------------------------------------------------------------------------------- */

/* Waits until there is a connection to each of the other ranks.
 *   USM_E_IO  the folder;  USM_E_INVALID  the job has another size;  else as usm__group_meet() */
usm_status usm_socket_meet(usm_socket_job *j);

/* ---- queue.c -------------------------------------------------------------------------------- */

/* USM_E_NO_MEMORY; USM_E_PEER there was no room for a lease */
usm_status usm_socket_send(usm_socket_job *j, uint32_t to, uint32_t tag, const void *data,
                           size_t size);
/* With the lock held: send queued packets, as far as there is room; send signs of life that are
 * due; mark a peer as lost, so that nothing is sent to it or received from it any more. */
void usm_socket_push(usm_socket_job *j, usm_socket_peer *p);
void usm_socket_beat(usm_socket_job *j, uint64_t now_ns);
void usm_socket_drop(usm_socket_job *j, usm_socket_peer *p);
/* Sends BYE to all ranks, and waits at most a second for them to take everything.  The thread has
 * ended. */
void usm_socket_farewell(usm_socket_job *j);

/* ---- service.c ------------------------------------------------------------------------------ */

/*   USM_E_NO_MEMORY;  USM_E_SYSTEM */
usm_status usm_socket_start(usm_socket_job *j);
/* Returns when the thread has ended. */
void usm_socket_stop(usm_socket_job *j);
void usm_socket_ring(const usm_socket_job *j);

#endif
