/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A shared buffer as its files see it.
 *
 *     shared_state.c, shared_dir.c  the protocol: pure
 *     shared_wire.c                 its messages as bytes
 *     shared_move.c                 messages out, bytes out and in
 *     shared_access.c               accesses
 *     shared.c                      making, finding, ending; what comes
 *
 * The lock guards the machine and what is beside it; nothing is sent and no local buffer is touched
 * while it is held: messages go into `out`, and whoever gives the lock back sends them
 * (usm__shared_unlock()). */
#ifndef USM_CLUSTER_SHARED_H
#define USM_CLUSTER_SHARED_H

#include "base/inline/list.h"
#include "base/mutex.h"
#include "cluster/shared_state.h"
#include "core/handle.h"

#include <usm/shared_buffer.h>

/* Blocks asked for ahead of the one that an access takes, and their bytes. */
#define USM__SHARED_AHEAD     64u
#define USM__SHARED_AHEAD_MAX ((size_t)4 << 20)

/* Bytes of a block that came and are not in the local buffer yet. */
typedef struct usm__shared_page {
    unsigned                 refs; /* guarded by the buffer's lock                          */
    struct usm__shared_page *next; /* among the idle                                         */
    char                     bytes[];
} usm__shared_page;

typedef enum usm__shared_kind {
    USM__SHARED_KIND_NONE = 0,
    USM__SHARED_KIND_LOCAL, /* in the local buffer                                          */
    USM__SHARED_KIND_PAGE,  /* in `page`                                                     */
    USM__SHARED_KIND_ZERO,  /* nothing was ever written                                      */
    USM__SHARED_KIND_BLANK  /* whatever the local buffer has: it is to be written             */
} usm__shared_kind;

/* Where the bytes of a block are, besides what the machine knows. */
typedef struct usm__shared_block {
    uint8_t           kind;
    bool              is_busy; /* its part of the local buffer is filled or read             */
    uint32_t          have;    /* of `coming`                                              */
    uint64_t          request; /* that `coming` is for                                       */
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
    unsigned users; /* threads that found it there                                          */
    /* guarded by lock */
    usm__mutex          lock;
    pthread_cond_t      changed; /* of CLOCK_MONOTONIC                                       */
    usm__shared_machine machine;
    usm__shared_block  *blocks;
    usm_list            out, spare; /* letters                                             */
    unsigned            spares;
    bool                is_sending; /* somebody empties `out`                                 */
    unsigned char      *part;       /* a message of his                                       */
    usm__shared_page   *idle;       /* pages, to be used again                                */
    unsigned            nidle;
    usm_status          broken;   /* it cannot be used here any more                        */
    bool               *has_left; /* by rank: BYE                                          */
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

/* Fixed width, little endian, before the bytes of a DATA. */
#define USM__SHARED_HEADER 64u

void usm__shared_encode(uint64_t buffer, const usm__shared_message *msg,
                        unsigned char header[USM__SHARED_HEADER]);
/* false: not a message of ours, or of another release. */
bool usm__shared_decode(const void *data, size_t size, uint64_t *buffer, usm__shared_message *msg);

/* ---- shared_move.c ----------------------------------------------------------------------- */

extern const usm__shared_ops usm__shared_moves;

usm_status usm__shared_moves_init(usm_shared_buffer *s);
void       usm__shared_moves_fini(usm_shared_buffer *s);
/* What is to be sent goes out.  Lock held; true: it was given up meanwhile. */
bool usm__shared_flush(usm_shared_buffer *s);
/* That, and then the lock is given back. */
void usm__shared_unlock(usm_shared_buffer *s);
/* Lock held.  To all others that live. */
void usm__shared_tell_all(usm_shared_buffer *s, usm__shared_op op);
/* A DATA from another rank; its bytes are behind it.  Lock held. */
void usm__shared_take_data(usm_shared_buffer *s, uint32_t from, const usm__shared_message *msg,
                           const char *bytes);
/* Lock held, or nobody else has the buffer. */
void usm__shared_page_drop(usm_shared_buffer *s, usm__shared_page *page);
/* The buffer is of no use here any more: all that wait fail.  Lock held. */
void usm__shared_break(usm_shared_buffer *s, usm_status st);

/* ---- shared_access.c ---------------------------------------------------------------------- */

/* Waits for a change for a while, in which messages may come; `turn` counts from 1.  The lock is
 * held, and given up meanwhile. */
void usm__shared_wait(usm_shared_buffer *s, unsigned turn);

#endif
