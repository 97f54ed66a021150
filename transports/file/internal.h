/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the parts of the transport over files.
 *
 *     file.c        the table: open, close, submit, capacity
 *     config.c      the text after "file:"
 *     filesystem.c  which file systems are on a disk
 *     place.c       scratch files;  room.c: which of their blocks have room on the disk
 *     home.c        files of the user (backing stores), of any offset and size
 *     io.c          a transfer carried out by the calling thread; errors
 *     ring.c        a transfer handed to io_uring;  crew.c: to a few threads
 *
 * The way of a transfer: submit() fills in its `piece`.  Then the transfer goes to the ring or to
 * the crew or, if the caller waits for it, is carried out at once.  The thread that ends it calls
 * usm_file_finish(). */
#ifndef USM_FILE_INTERNAL_H
#define USM_FILE_INTERNAL_H

#include "base/inline/atomic.h"
#include "base/inline/bits.h"
#include "base/inline/recycle.h"

#include <pthread.h>
#include <string.h>
#include <usm/transport.h>

#define PAGE_SIZE                                                                                  \
    ((size_t)4096) /* of transfers, and of the file's pages that direct I/O keeps to */
#define PLACES_MAX 16
#define PATH_ROOM  512

typedef enum usm_file_engine { USM_FILE_AUTO, USM_FILE_URING, USM_FILE_THREADS } usm_file_engine;

typedef struct usm_file_config {
    char            folders[PLACES_MAX][PATH_ROOM];
    size_t          nfolders;
    uint64_t        quota; /* bytes; UINT64_MAX: none */
    unsigned        depth; /* most transfers in the ring at a time */
    usm_file_engine engine;
    bool            direct;
} usm_file_config;

/* One file of a store.  Fixed after open. */
typedef struct usm_file_place {
    int         direct;   /* its descriptor with O_DIRECT; -1: refused, or not wanted */
    int         buffered; /* its descriptor without; -1: a scratch file that has the other */
    const char *filesystem;
    char        path[PATH_ROOM]; /* the folder, or the user's file */
} usm_file_place;

/* Which blocks have room on the disk (`backed`), and which of these are reserved (`used`).  The
 * other backed blocks are idle: their room was allocated in advance, or they were forgotten and
 * their room has not been freed yet. */
typedef struct usm_file_room {
    pthread_mutex_t lock;
    /* guarded by lock */
    uint64_t *backed, *used; /* bits by block */
    uint64_t  nbits;
    uint64_t  ends[PLACES_MAX]; /* of each file, in blocks */
    bool      cannot_punch;
    bool      uncertain; /* the file system cannot reserve room */
    /* changed under the lock, read without it */
    _Atomic(uint64_t) nbacked, nused;
} usm_file_room;

typedef struct usm_file_home {
    uint64_t base, size;  /* of the part, in bytes */
    uint32_t fetch_align; /* alignment of direct fetches in the file */
    bool     writable;
    bool     was_created; /* its name is not durable before the first sync */
} usm_file_home;

/* Threads that carry out transfers one by one. */
typedef struct usm_file_crew {
    pthread_mutex_t lock;
    pthread_cond_t  work, gone;
    /* guarded by lock */
    usm_transfer  *head;
    usm_transfer **tail;
    size_t         queued, idle;
    unsigned       threads;
    bool           stopping;
} usm_file_crew;

/* A buffer for unaligned transfers. */
typedef struct usm_file_bounce {
    void *link; /* while it is idle */
    char *data; /* block_size bytes and two pages more, page-aligned */
} usm_file_bounce;

typedef struct usm_file_ring usm_file_ring;

/* Of the process; atomic, each member. */
typedef struct usm_file_process {
    _Atomic(uint64_t) warned; /* kinds of file systems, bits by entry: filesystem.c  */
    _Atomic(unsigned) names;  /* of files that were opened under a name: place.c     */
} usm_file_process;
extern usm_file_process usm_file_now;

typedef struct usm_file_store {
    const usm_host_api *api;
    /* fixed after open */
    size_t          block_size;
    usm_file_config config;
    usm_file_place  places[PLACES_MAX];
    size_t          nplaces;
    bool            is_home;
    usm_file_home   home;
    usm_file_ring  *ring;         /* NULL: the crew does everything */
    char            why_not[128]; /* the reason why there is no ring */
    /* each has a lock of its own */
    usm_file_room room;
    usm_file_crew crew;
    usm_recycler  bounces; /* idle ones */
    /* changed by register_memory() and unregister_memory(), one thread at a time */
    _Atomic(size_t) registered, offered;
} usm_file_store;

/* The transport's data in a transfer. */
typedef struct usm_file_piece {
    usm_file_store *store;
    uint64_t        at;    /* position in the file */
    size_t          moved; /* bytes that are done */
    size_t          asked; /* bytes of the call in progress, for the ring */
    uint32_t        place;
    uint32_t        attempts; /* consecutive attempts that moved nothing */
} usm_file_piece;

_Static_assert(sizeof(usm_file_piece) <= sizeof(((usm_transfer *)0)->opaque), "fits");

/* NOLINTBEGIN(clang-diagnostic-cast-align): opaque is aligned to 8 */
static inline usm_file_piece *usm_file_piece_of(usm_transfer *t)
{
    return (usm_file_piece *)(void *)t->opaque;
}
/* NOLINTEND(clang-diagnostic-cast-align) */

/* How often a call that was interrupted or moved nothing is repeated. */
#define ATTEMPTS_MAX 1000u

/* config.c.  `text` may be "".  USM_E_INVALID with an error message */
usm_status usm_file_parse(const usm_host_api *api, const char *text, usm_file_config *config);

/* filesystem.c */
typedef enum usm_file_kind {
    USM_FILE_DISK,
    USM_FILE_MEMORY,  /* tmpfs and the like */
    USM_FILE_NETWORK, /* works, but slowly, or at the cost of others */
    USM_FILE_UNKNOWN
} usm_file_kind;
/* By statfs's f_type; *name is set to the common name. */
usm_file_kind usm_file_classify(uint64_t filesystem, const char **name);
/* Warns about a network file system, once for each kind and process. */
void usm_file_warn_network(const usm_host_api *api, const char *name, const char *path);

/* place.c */
usm_status usm_file_open_places(usm_file_store *s);
void       usm_file_close_places(usm_file_store *s);
/* Finds the file and position of a block. */
void usm_file_locate(const usm_file_store *s, uint64_t block, uint32_t *place, uint64_t *at);

/* room.c: of scratch files. */
usm_status usm_file_room_init(usm_file_store *s);
void       usm_file_room_fini(usm_file_store *s);
usm_status usm_file_room_reserve(usm_file_store *s, uint64_t first, uint64_t n);
void       usm_file_room_forget(usm_file_store *s, uint64_t first, uint64_t n);

/* home.c */
usm_status usm_file_open_home(usm_file_store *s, const usm_transport_home *home);
usm_status usm_file_run_home(usm_file_store *s, usm_transfer *t);
/* Whether one direct call carries out the transfer. */
bool       usm_file_home_is_plain(const usm_file_store *s, const usm_transfer *t);
usm_status usm_file_home_reserve(usm_file_store *s, uint64_t first, uint64_t n);
/* Syncs what a sync of the file alone leaves out. */
usm_status usm_file_home_sync(const usm_file_store *s);

/* io.c */
/* Carries out the transfer; blocks. */
usm_status usm_file_run(usm_file_store *s, usm_transfer *t);
/* The bytes that a series of calls must move. */
typedef struct usm_file_span {
    int      fd;
    bool     is_store;
    char    *data;
    size_t   size, moved; /* in bytes */
    uint64_t at;          /* position in the file */
} usm_file_span;

/* Moves the whole span, with as many calls as necessary; returns 0 or an errno value.  ENODATA: the
 * file ends within the span, after span->moved bytes. */
int usm_file_move(const usm_file_store *s, usm_file_span *span);
/* Faults that tests inject, the same for every engine: how much of `size` a call may request
 * ("file.short"), and the result that a call with `result` (bytes, or -errno) shall seem to have
 * had ("file.fetch", "file.store"). */
size_t  usm_file_cut(const usm_file_store *s, size_t size);
int64_t usm_file_result(const usm_file_store *s, bool is_store, int64_t result);
/* The error message and the status of a transfer that failed with an errno value. */
usm_status usm_file_explain(const usm_file_store *s, const usm_transfer *t, int error);
void       usm_file_finish(usm_transfer *t, usm_status status);
/* NULL: no memory. */
usm_file_bounce *usm_file_bounce_take(usm_file_store *s);
void             usm_file_bounce_give(usm_file_store *s, usm_file_bounce *b);

/* crew.c */
usm_status usm_file_crew_init(usm_file_store *s);
void       usm_file_crew_fini(usm_file_store *s); /* its threads have ended when it returns */
/* Hands a list of transfers to the threads. */
void usm_file_crew_add(usm_file_store *s, usm_transfer *list);

/* ring.c; without io_uring these are never called. */
#ifdef USM_FILE_HAS_URING
/* USM_E_NOT_SUPPORTED, with an error message: the kernel refuses; USM_E_NO_MEMORY. */
usm_status usm_file_ring_create(usm_file_store *s, usm_file_ring **ring);
void       usm_file_ring_destroy(usm_file_store *s); /* nothing is in progress */
void       usm_file_ring_add(usm_file_ring *r, usm_transfer *list);
/* Returns how many bytes from base on are registered with the kernel from now on; 0: none. */
size_t usm_file_ring_register(usm_file_ring *r, void *base, size_t size);
void   usm_file_ring_unregister(usm_file_ring *r);
#endif

#endif
