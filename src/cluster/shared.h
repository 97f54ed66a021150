/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A shared buffer as its files see it.
 *
 *     shared_state.c, shared_dir.c  the protocol: a state machine without side effects
 *     shared_wire.c                 its messages as bytes
 *     shared_move.c                 messages out, bytes out and in
 *     shared_access.c               accesses
 *     shared.c                      creating, finding, destroying; received messages
 *
 * The lock guards the state machine and the fields beside it.  No message is sent and no local
 * buffer is accessed while it is held: messages are put into `out`, and the function that took the
 * lock sends them when it releases it (usm__shared_unlock()).  One that is entered with the lock
 * keeps it. */
#ifndef USM_CLUSTER_SHARED_H
#define USM_CLUSTER_SHARED_H

#include "base/inline/list.h"
#include "base/mutex.h"
#include "cluster/shared_state.h"
#include "device/handle.h"

#include <usm/shared_buffer.h>

/* Readahead: blocks requested beyond the one that an access takes, and their bytes. */
#define USM__SHARED_AHEAD     64u
#define USM__SHARED_AHEAD_MAX ((size_t)4 << 20)

/* Bytes of a block that were received and are not in the local buffer yet. */
typedef struct usm__shared_page {
    unsigned                 refs; /* guarded by the buffer's lock */
    struct usm__shared_page *next; /* in the list of idle pages */
    char                     bytes[];
} usm__shared_page;

typedef enum usm__shared_kind {
    USM__SHARED_KIND_NONE = 0,
    USM__SHARED_KIND_LOCAL, /* in the local buffer */
    USM__SHARED_KIND_PAGE,  /* in `page` */
    USM__SHARED_KIND_ZERO,  /* nothing was ever written */
    USM__SHARED_KIND_BLANK  /* the local buffer's content is arbitrary: the block will be
                               overwritten */
} usm__shared_kind;

/* Where the bytes of a block are, which the state machine does not know. */
typedef struct usm__shared_block {
    uint8_t           kind;
    bool              is_busy; /* its part of the local buffer is being filled or read */
    uint32_t          have;    /* bytes of `coming` */
    uint64_t          request; /* the request that `coming` answers */
    usm__shared_page *page, *coming;
} usm__shared_block;

struct usm_shared_buffer {
    usm__magic_word magic;
    /* fixed after create */
    unsigned    fork_generation;
    uint64_t    id;
    size_t      size, block_size;
    unsigned    shift;
    usm_buffer *local;
    char        name[48];
    /* guarded by the lock of shared.c */
    usm_list link;
    unsigned users; /* threads that found it in the list */
    /* guarded by lock */
    usm__mutex          lock;
    pthread_cond_t      changed; /* uses CLOCK_MONOTONIC */
    usm__shared_machine machine;
    usm__shared_block  *blocks;
    usm_list            out, spare; /* messages */
    unsigned            spares;
    bool                is_sending; /* a thread is emptying `out` */
    unsigned char      *part;       /* room for one message of that thread */
    usm__shared_page   *idle;       /* pages to be reused */
    unsigned            nidle;
    usm_status          broken;   /* the reason why this rank can no longer use the buffer */
    bool               *has_left; /* by rank: it has sent BYE */
    unsigned            transfers;
    /* atomic */
    _Atomic(uint64_t) received, sent;
};

static inline uint64_t usm__shared_block_offset(const usm_shared_buffer *s, uint64_t block)
{
    return block << s->shift;
}

static inline unsigned usm__shared_ahead(const usm_shared_buffer *s)
{
    const size_t fit = USM__SHARED_AHEAD_MAX >> s->shift;

    return fit < 1 ? 1 : fit < USM__SHARED_AHEAD ? (unsigned)fit : USM__SHARED_AHEAD;
}

static inline size_t usm__shared_block_size(const usm_shared_buffer *s, uint64_t block)
{
    size_t offset = (size_t)block << s->shift;

    return s->size - offset < s->block_size ? s->size - offset : s->block_size;
}

/* ---- shared_wire.c --------------------------------------------------------------------- */

/* The header has a fixed width, is little-endian, and precedes the bytes of a DATA. */
#define USM__SHARED_HEADER 64u

void usm__shared_encode(uint64_t buffer, const usm__shared_message *msg,
                        unsigned char header[USM__SHARED_HEADER]);
/* False: not a message of libusm, or of another release. */
bool usm__shared_decode(const void *data, size_t size, uint64_t *buffer, usm__shared_message *msg);

/* ---- shared_move.c ----------------------------------------------------------------------- */

extern const usm__shared_ops usm__shared_moves;

usm_status usm__shared_moves_init(usm_shared_buffer *s);
void       usm__shared_moves_fini(usm_shared_buffer *s);
/* Releases the lock, then sends the messages in `out`, unless another thread is doing so.  True:
 * there were some. */
bool usm__shared_unlock(usm_shared_buffer *s);
/* Sends a message to all other live ranks.  The lock is held. */
void usm__shared_notify_all(usm_shared_buffer *s, usm__shared_op op);
/* Takes a DATA from another rank; `bytes` follow its header.  The lock is held. */
void usm__shared_take_data(usm_shared_buffer *s, uint32_t from, const usm__shared_message *msg,
                           const char *bytes);
/* From begin to end the block is busy, and the thread may use its bytes without the lock: in *page;
 * if that is NULL, in the local buffer, or they are zeros.  pre: it is not busy.  False: it has no
 * content.  The lock is held. */
bool usm__shared_busy_begin(usm_shared_buffer *s, uint64_t block, usm__shared_page **page);
void usm__shared_busy_end(usm_shared_buffer *s, uint64_t block, usm__shared_page *page);
/* The lock is held, or no other thread has the buffer. */
void usm__shared_page_drop(usm_shared_buffer *s, usm__shared_page *page);
/* Makes the buffer unusable on this rank: all accesses that wait fail.  The lock is held. */
void usm__shared_break(usm_shared_buffer *s, usm_status st);

/* ---- shared_access.c ---------------------------------------------------------------------- */

/* Waits a while for a change, during which messages may arrive; `turn` counts the calls from 1.
 * The lock is held.  False: nothing has changed, or there are messages to send: the caller releases
 * the lock, and if there were no messages, calls usm__shared_step(). */
bool usm__shared_wait(usm_shared_buffer *s, unsigned turn);
/* Lets the transport make progress.  The lock is not held. */
void usm__shared_step(usm_shared_buffer *s);

#endif
