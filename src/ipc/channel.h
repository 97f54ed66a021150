/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The page that a group of processes shares, and the interface between channel.c and barrier.c.
 *
 * The page is what the members share since they met (group/meet.h), zeroed at first.  Its size
 * depends on the size of the group:
 *
 *     usm__channel_page | a usm__channel_member each | gather: two halves, 4096 bytes a member each
 *
 * Each part is written by the member it belongs to, except the words at the start.  Nobody holds a
 * lock in the page, so a member may end at any moment. */
#ifndef USM_IPC_CHANNEL_H
#define USM_IPC_CHANNEL_H

#include "base/inline/atomic.h"
#include "device/handle.h"
#include "group/meet.h"
#include "ipc/bell.h"
#include "ipc/rendezvous.h"
#include "ipc/spin.h"

#define USM__CHANNEL_NAME_MAX 63
#define USM__CHANNEL_SIZE_MAX 256
#define USM__CHANNEL_BYTES    4096 /* the most that a member contributes                     */

/* A set of ranks. */
typedef struct usm__channel_ranks {
    uint64_t bits[USM__CHANNEL_SIZE_MAX / 64];
} usm__channel_ranks;

/* How a call may end: the chosen verdict is valid for all. */
typedef struct usm__channel_verdict {
    usm__channel_ranks gone;   /* all that have ended or closed so far */
    int32_t            across; /* what across() returned               */
    uint32_t           pad;
} usm__channel_verdict;

typedef struct usm__channel_member {
    _Atomic(bool)     has_closed;
    _Atomic(uint64_t) arrived;  /* number of the call at which it has arrived                 */
    uint32_t          given[2]; /* in calls of that parity: bytes for gather, + 1; 0: barrier */
    usm__channel_verdict
        verdict[2]; /* proposed: for the start of across(), for the end           */
} usm__channel_member;

typedef struct usm__channel_page {
    usm__bell         bell;
    _Atomic(uint64_t) decided; /* see barrier.c */
    _Alignas(64) usm__channel_member members[];
} usm__channel_page;

/* A member as this process sees it. */
typedef struct usm__channel_peer {
    usm__ipc_watch          watch;
    struct usm_ipc_channel *ch;
    _Atomic(bool)           has_ended;
    bool                    is_watched;
    bool                    has_across; /* also of this process */
} usm__channel_peer;

struct usm_ipc_channel {
    usm__magic_word    magic;
    unsigned           fork_generation; /* of the process that opened it                   */
    usm__group         group;
    usm__channel_page *page; /* its shared bytes */
    uint32_t           rank, size;
    bool               may_spin;
    usm__spin          spin;   /* atomic */
    uint64_t           call;   /* number of calls that this member has made  */
    usm__channel_ranks agreed; /* members that have gone, as reported so far */
    usm_ipc_across_fn  across;
    void              *user;
    usm__channel_peer *peers; /* `size` of them                                           */
};

static inline bool usm__channel_ranks_have(const usm__channel_ranks *r, uint32_t rank)
{
    return r->bits[rank / 64] >> (rank % 64) & 1u;
}

static inline void usm__channel_ranks_add(usm__channel_ranks *r, uint32_t rank)
{
    r->bits[rank / 64] |= (uint64_t)1 << (rank % 64);
}

bool usm__channel_ranks_any(const usm__channel_ranks *r);
/* "2, 5 and 9", cut short after a few. */
const char *usm__channel_ranks_text(const usm__channel_ranks *r, char *text, size_t size);

/* Waits until every living member has made this call; outputs which have gone since the last one.
 * *across is what across() returned, in whichever member. */
void usm__channel_arrive(usm_ipc_channel *ch, uint32_t given, usm__channel_ranks *gone,
                         usm_status *across);

#endif
