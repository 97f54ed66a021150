/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the parts of the transport over sockets.
 *
 *     socket.c   the table: attach, detach, members, send
 *     config.c   the text after "socket:"
 *     folder.c   the folder: which process listens where, and whose socket it is
 *     meet.c     every process connects to every other
 *     wire.c     headers of packets
 *     queue.c    sending, and packets that wait until there is room
 *     service.c  the thread: received packets, signs of life, lost ranks
 *
 * A job is one lock, one thread, and a socket to each of the other ranks (SOCK_SEQPACKET: a packet
 * arrives whole or not at all).  The lock is not held during calls of params.message() and
 * member_changed(), and these never take it. */
#ifndef USM_SOCKET_INTERNAL_H
#define USM_SOCKET_INTERNAL_H

#include "group/lease.h"

#include <pthread.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <usm/transport.h>

#define RANKS_MAX   1024u
#define WAIT_MS     10000u /* for the other ranks to come, unless wait= says otherwise */
#define PAYLOAD_MAX ((size_t)(64 << 10) + 64)
#define HEADER_SIZE ((size_t)24)
#define DOMAIN_SIZE 64
/* Bytes that may wait for one receiver before a sender must wait as well. */
#define QUEUE_MAX ((size_t)16 << 20)

typedef struct usm_socket_config {
    char     folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
    uint32_t rank, size;
    uint32_t wait_ms;
} usm_socket_config;

/* ---- wire.c ------------------------------------------------------------------------------- */

typedef enum usm_socket_kind {
    USM_SOCKET_HELLO   = 1, /* the first packet in each direction */
    USM_SOCKET_REFUSE  = 2, /* a refusal: usm_socket_refusal in `tag` */
    USM_SOCKET_MESSAGE = 3,
    USM_SOCKET_BEAT    = 4, /* a sign of life */
    USM_SOCKET_BYE     = 5  /* the last packet */
} usm_socket_kind;

typedef enum usm_socket_refusal {
    USM_SOCKET_OTHER_VERSION = 1,
    USM_SOCKET_OTHER_SIZE    = 2, /* `value` is the size */
    USM_SOCKET_TWICE         = 3, /* there is another process of this rank */
    USM_SOCKET_COMPLETE      = 4  /* all ranks had come before */
} usm_socket_refusal;

typedef struct usm_socket_head {
    uint32_t version;
    uint32_t kind;
    uint32_t from;
    uint32_t tag;
    uint32_t size; /* bytes after the header */
} usm_socket_head;

typedef struct usm_socket_hello {
    uint32_t ranks, lease_ms;
    char     domain[DOMAIN_SIZE];
} usm_socket_hello;
#define HELLO_SIZE ((size_t)8 + DOMAIN_SIZE)

#define USM_SOCKET_VERSION 1u

void usm_socket_put_head(unsigned char *at, uint32_t kind, uint32_t from, uint32_t tag,
                         size_t size);
/* False: not a packet of libusm, of whatever version, or its size is not `n`. */
bool usm_socket_get_head(const unsigned char *packet, size_t n, usm_socket_head *head);
void usm_socket_put_hello(unsigned char *at, const usm_socket_hello *hello);
/* pre: HELLO_SIZE bytes. */
void usm_socket_get_hello(const unsigned char *at, usm_socket_hello *hello);

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
    bool is_in;   /* both have sent HELLO */
    bool is_over; /* it had met all ranks, and ended before this process had */
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
    int      door; /* the listening socket; used by the thread later; -1: closed */
    uint64_t door_device, door_file; /* its file, which is removed if it is still the same */
    int      bell;                   /* an eventfd that wakes the thread */

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

static inline uint64_t usm_socket_now(void) /* ms */
{
    return usm_socket_now_ns() / NS_PER_MS;
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

/* ---- folder.c -------------------------------------------------------------------------------- */

/* Creates the folder if it is missing.  USM_E_IO */
usm_status usm_socket_folder_open(usm_socket_job *j);
/* Listens at FOLDER/RANK.sock, in place of the file of a dead process.
 *   USM_E_BUSY  a live process is there;  USM_E_INVALID  a file that is no socket;  USM_E_IO;
 *   USM_E_SYSTEM */
usm_status usm_socket_listen(usm_socket_job *j);
/* Connects to the process that listens there; -1 and errno: ENOENT or ECONNREFUSED: none does;
 * EAGAIN: it is busy. */
int usm_socket_connect(const usm_socket_job *j, uint32_t rank);
/* Accepts the next connection; -1 and errno. */
int usm_socket_accept(const usm_socket_job *j);
/* Whether the process at the other end belongs to the same user. */
bool usm_socket_is_ours(int fd);
/* Stops listening, removes the file, and closes the folder. */
void usm_socket_folder_close(usm_socket_job *j);

/* ---- meet.c --------------------------------------------------------------------------------- */

/* Waits until there is a connection to each of the other ranks.
 *   USM_E_PEER     one did not come in time
 *   USM_E_INVALID  one has another size;  USM_E_BUSY  one has met another process of this rank
 *   USM_E_ABI      one is of another release;  USM_E_PERMISSION  one is another user's
 *   USM_E_NO_MEMORY;  USM_E_SYSTEM */
usm_status usm_socket_meet(usm_socket_job *j);
/* Refuses a connection, whichever process it is: the job is complete.  Called by the thread. */
void usm_socket_turn_away(usm_socket_job *j);

/* ---- queue.c -------------------------------------------------------------------------------- */

/* Sends a packet directly, before there is a thread; returns whether it was sent. */
bool usm_socket_say(const usm_socket_job *j, int fd, uint32_t kind, uint32_t tag, const void *data,
                    size_t size);
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
