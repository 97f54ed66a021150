/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A shared buffer as its files see it.
 *
 *     shared_state.c, shared_dir.c  the protocol: a state machine without side effects
 *     shared_wire.c                 its messages as bytes
 *     shared_move.c                 messages out, bytes out and in
 *     shared_slots.c                memory through which bytes go between ranks of one host
 *     shared_ahead.c                which blocks are requested before an access asks for them
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

/* Blocks, or pieces of them, in a rank's outbox: memory that the ranks of its host have mapped.  The
 * rank that owns the outbox takes a slot, and the one that the bytes are for releases it. */
typedef struct usm__shared_slot {
    _Atomic(uint32_t) *state; /* the serial while it is taken; else 0 */
    char              *bytes;
    uint32_t           number, serial;
    uint32_t           owner; /* the rank */
} usm__shared_slot;

/* Where others find an outbox. */
typedef struct usm__shared_where {
    uint64_t host; /* base/inline/host.h; 0: there is no outbox */
    uint64_t key;  /* random: recognises the file */
    uint32_t pid, fd;
} usm__shared_where;

typedef struct usm__shared_outbox usm__shared_outbox;

typedef struct usm__shared_slots {
    usm__shared_where   where;         /* of this rank's outbox */
    uint32_t            count;         /* of each outbox */
    size_t              size;          /* bytes of a slot */
    uint32_t            most_held;     /* slots of one rank that pages may keep */
    usm__shared_outbox *own, **others; /* others: by rank, mapped; NULL */
    _Atomic(bool)      *is_reached;    /* by rank: it has mapped this rank's outbox */
    uint32_t           *held;          /* by rank: its slots that pages keep here */
    _Atomic(uint32_t)   serial;
    _Atomic(bool)       is_filled; /* this rank's outbox has memory */
} usm__shared_slots;

/* Bytes of a block that were received and are not in the local buffer yet. */
typedef struct usm__shared_page {
    unsigned                 refs;  /* guarded by the buffer's lock */
    struct usm__shared_page *next;  /* in the list of idle pages */
    char                    *bytes; /* `own`, or those of the slot */
    usm__shared_slot         slot;  /* released with the page; its state is NULL: none */
    char                     own[];
} usm__shared_page;

/* Accesses of this rank one behind the other, which find bytes elsewhere. */
typedef struct usm__shared_stream {
    uint64_t next;  /* the block behind the last access */
    uint64_t asked; /* the first block that was not requested ahead */
    uint64_t used;  /* when; 0: never */
    unsigned run;   /* number of such accesses */
} usm__shared_stream;

#define USM__SHARED_STREAMS 4u

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
    usm__shared_stream  streams[USM__SHARED_STREAMS];
    uint64_t            accesses;
    unsigned            transfers;
    /* fixed after create, but for what its functions say */
    usm__shared_slots slots;
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
/* Decodes the first message in the data.  False: not a message of libusm, or of another release. */
bool usm__shared_decode(const void *data, size_t size, uint64_t *buffer, usm__shared_message *msg);
/* Its size with the bytes that follow it. */
static inline size_t usm__shared_length(const usm__shared_message *msg)
{
    return USM__SHARED_HEADER + (msg->serial ? 0 : (size_t)msg->size);
}

/* ---- shared_move.c ----------------------------------------------------------------------- */

extern const usm__shared_ops usm__shared_moves;

usm_status usm__shared_moves_init(usm_shared_buffer *s);
void       usm__shared_moves_fini(usm_shared_buffer *s);
/* Releases the lock, then sends the messages in `out`, unless another thread is doing so.  True:
 * there were some. */
bool usm__shared_unlock(usm_shared_buffer *s);
/* Sends a message that is not about a block to one rank, or to all other live ones.  The lock is
 * held. */
void usm__shared_notify(usm_shared_buffer *s, uint32_t rank, usm__shared_op op);
void usm__shared_notify_all(usm_shared_buffer *s, usm__shared_op op);
/* Takes a DATA from another rank; `bytes` follow its header, unless they are in a slot.  The lock is
 * held. */
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

/* ---- shared_slots.c ---------------------------------------------------------------------- */

/* Makes this rank's outbox; without one, slots.where.host is 0 and bytes go in messages.
 * USM_E_NO_MEMORY: of the heap */
usm_status usm__shared_slots_init(usm_shared_buffer *s);
void       usm__shared_slots_fini(usm_shared_buffer *s);
/* Maps the outbox of another rank; false: it is not of this host, or cannot be reached.  No message
 * with slots of that rank arrives before it is told. */
bool usm__shared_slots_map(usm_shared_buffer *s, uint32_t rank, const usm__shared_where *where);
/* Gives this rank's outbox its memory; without, it is not used. */
void usm__shared_slots_fill(usm_shared_buffer *s);
/* That rank has mapped this rank's outbox. */
void usm__shared_slots_reach(usm_shared_buffer *s, uint32_t rank);
/* Takes a slot for bytes to that rank; false: there is none, or the rank cannot reach it.  Any
 * thread. */
bool usm__shared_slot_take(usm_shared_buffer *s, uint32_t to, usm__shared_slot *slot);
/* The slot that a message from that rank names; false: there is none, or it was released. */
bool usm__shared_slot_find(const usm_shared_buffer *s, uint32_t from,
                           const usm__shared_message *msg, usm__shared_slot *slot);
void usm__shared_slot_release(const usm__shared_slot *slot);

/* ---- shared_ahead.c ---------------------------------------------------------------------- */

/* Before an access to blocks [first, behind) takes them: requests blocks behind it, for reading, if
 * it continues a stream.  The lock is held, here and in _ended(). */
usm__shared_stream *usm__shared_stream_continue(usm_shared_buffer *s, uint64_t first,
                                                uint64_t behind);
/* The access has its blocks; had_missed: some of them were elsewhere. */
void usm__shared_stream_ended(usm__shared_stream *stream, bool had_missed);

/* ---- shared_access.c ---------------------------------------------------------------------- */

/* Waits a while for a change, during which messages may arrive; `turn` counts the calls from 1.
 * The lock is held.  False: nothing has changed, or there are messages to send: the caller releases
 * the lock, and if there were no messages, calls usm__shared_step(). */
bool usm__shared_wait(usm_shared_buffer *s, unsigned turn);
/* Lets the transport make progress.  The lock is not held. */
void usm__shared_step(usm_shared_buffer *s);

#endif
