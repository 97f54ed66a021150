/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Teams over the ranks of a job.
 *
 *     ranks.c          the ranks of a team: their members; which launch a message is for
 *     ranks_launch.c   a launch on this rank: its thread, the members here, its end
 *     ranks_master.c   what each rank is granted;  ranks_worker.c  what a rank was granted: both
 *                      are state machines without side effects
 *     ranks_bytes.c    arguments' bytes on a rank: fetched from the data's rank, and stored there
 *     ranks_home.c     the same on the data's rank: sent, kept, merged
 *     wire.c           messages as bytes
 *
 * "Home" in identifiers is the rank that provides the data (usm_parallel_desc.home).
 *
 * Each launch has one thread on each rank.  It sleeps until a message arrives or a moment comes
 * that one of the state machines has named.  It runs the state machines, sends their messages and,
 * on the rank that provides the data, answers requests for bytes.  The members' own threads only
 * move bytes, for which they wait, and record which chunks have ended. */
#ifndef USM_OFFLOAD_RANKS_H
#define USM_OFFLOAD_RANKS_H

#include "offload/offload.h"
#include "offload/parallel.h"
#include "offload/ranks_state.h"

#include "base/inline/list.h"
#include "cluster/cluster.h"

typedef struct usm__ranks        usm__ranks;
typedef struct usm__ranks_launch usm__ranks_launch;

/* ---- for team.c, plan.c, parallel.c ----------------------------------------------------- */

/* Called once, on a thread of the launch, which has the error message. */
typedef void usm__ranks_over_fn(void *arg, usm_status status, const usm_parallel_stats *stats);

/* Collective; the team has its members already.  USM_E_MPI; USM_E_PEER; USM_E_INVALID: ranks create
 * teams in different orders. */
usm_status usm__ranks_create(usm_team *team, usm__ranks **ranks);
/* pre: no launch is in progress. */
void       usm__ranks_destroy(usm__ranks *ranks);
uint32_t   usm__ranks_size(const usm__ranks *ranks); /* members of all ranks */
usm_status usm__ranks_get_member(usm__ranks *ranks, uint32_t index, usm_team_member *info);
bool       usm__ranks_is_home(const usm__ranks *ranks, uint32_t home);
/* The caller owns the plan and keeps it until `over` was called.  A failure here is reported to the
 * other ranks, whose launch then fails as well. */
usm_status usm__ranks_start(usm__ranks *ranks, usm__plan *plan, usm__ranks_over_fn *over, void *arg,
                            usm__ranks_launch **launch);
/* This rank's call failed before it reached usm__ranks_start(); the calling thread has the error
 * message. */
void usm__ranks_refuse(usm__ranks *ranks, usm_status status);
void usm__ranks_cancel(usm__ranks_launch *launch);

/* What the rank that grants chunks knows of a member. */
typedef struct usm__ranks_figures {
    const char      *name;
    uint64_t         chunks, items, busy_ns, under_way;
    usm_member_state state;
} usm__ranks_figures;

/* Writes the figures of at most `cap` members, and what is done; returns how many were written: 0 on
 * other ranks than the one that grants. */
uint32_t usm__ranks_get_figures(usm__ranks_launch *launch, usm__ranks_figures *members,
                                uint32_t cap, usm__schedule_stats *stats);
/* After a launch that succeeded, on every rank: the first 8 bytes, or as many as it has, of the first
 * argument that was merged.  Other ranks than home have no other result of a launch. */
uint64_t usm__ranks_merged(const usm__ranks_launch *launch);
/* After `over` was called.  NULL is fine. */
void usm__ranks_release(usm__ranks_launch *launch);

/* ---- shared by the files ----------------------------------------------------------------- */

/* What all teams and launches over ranks share.  The lock is held only for short times, and not
 * while a message is sent. */
typedef struct usm__ranks_state {
    usm__mutex lock;
    /* guarded by lock */
    bool     is_ready, listens;
    uint32_t next, nearly;
    usm_list teams, early;
    unsigned launches; /* in progress in this process */
} usm__ranks_state;
extern usm__ranks_state usm__ranks_all __attribute__((visibility("hidden")));

/* A message that was received or is to be sent; size 0: `rank` is lost. */
typedef struct usm__packet {
    usm_list      link;
    uint32_t      rank;
    size_t        size;
    unsigned char bytes[];
} usm__packet;

struct usm__ranks {
    /* fixed after create */
    usm_list  link; /* guarded by usm__ranks_all.lock */
    usm_team *team;
    uint32_t  id, self, count, master;
    uint32_t *nmembers, *first; /* by rank */
    uint32_t  total;
    char (*names)[64]; /* by member of all ranks */
    /* guarded by usm__ranks_all.lock */
    usm__wire_member *figures; /* by member of all ranks: the sums of what launches have reported */
    uint32_t          next;    /* number of the next launch */
    uint32_t deaf_until; /* of launches with lower numbers, a message that came early could not be
                            kept */
    usm_list launches;
};

/* Bytes in transfer between a member here and the rank that provides the data.  The record is on
 * the stack of the thread that waits. */
typedef struct usm__ranks_transfer {
    usm_list   link;
    uint64_t   request;
    char      *to; /* for a fetch */
    uint64_t   offset, size, asked, got;
    unsigned   flying; /* for a store: messages without an answer */
    usm_status status;
} usm__ranks_transfer;

/* The private copies of a chunk, kept until the master says that its result counts. */
typedef struct usm__copies {
    usm_list link;
    uint32_t rank;
    uint64_t id, first, count;
    size_t   size, have;
    char     bytes[];
} usm__copies;

/* The state of the rank that provides the data. */
typedef struct usm__ranks_home {
    usm__tree    **trees;   /* by argument */
    char        ***kept;    /* by argument that is read and written, by USM__WIRE_PIECE bytes */
    unsigned char *message; /* room for one message */
    usm_list       copies;  /* guarded by usm__ranks_all.lock */
    uint64_t       merged;  /* the first 8 bytes of the first result */
    usm_status     status;
    char           reason[USM__RANKS_STORY];
} usm__ranks_home;

#define USM__RANKS_SPARES 8u

struct usm__ranks_launch {
    /* fixed after start */
    usm__ranks         *ranks;
    uint32_t            number;
    usm__plan          *plan;
    usm__run           *run;
    usm__ranks_over_fn *over;
    void               *over_arg;
    uint64_t            start_ns;
    usm__meter_run      metering; /* of this rank's members */
    bool                is_master, is_home, has_copies;
    unsigned char       shape[USM__WIRE_SHAPE], takes_part[USM__RANKS_MEMBERS];
    /* used only by the launch's thread */
    usm__ranks_home   home;
    usm__notifier     notifier;
    usm__ledger_part *parts;
    /* guarded by usm__ranks_all.lock */
    usm_list       link;
    usm__master    master;
    usm__worker    worker;
    usm_list       in, out;
    usm_list       kept;   /* messages for the data's rank: they are sent before the ends of their
                              chunks are reported */
    size_t         nkept;  /* their bytes */
    usm_status     broken; /* set when a message could not be sent or kept */
    bool           has_work, has_given_up, is_gone;
    uint64_t       sent;                  /* bytes, as the master */
    uint64_t       patience_ns, moved_ns; /* moved: when the data's rank was last asked for bytes */
    pthread_cond_t changed;
    usm_list       transfers;
    pthread_cond_t moved; /* signalled on changes of transfers */
    uint64_t       next_request;
    struct {
        void  *ptr;
        size_t size;
    } spares[USM__RANKS_SPARES]; /* memory for pieces */
};

/* ranks_launch.c: the lock is held. */
void usm__ranks_launch_came(usm__ranks_launch *l, uint32_t from, const void *data, size_t size);
void usm__ranks_launch_lost(usm__ranks_launch *l, uint32_t rank);
/* Queues a message of this launch, which the launch's thread sends. */
void usm__ranks_launch_post(usm__ranks_launch *l, uint32_t to, const usm__wire *msg);
/* Keeps a message for the data's rank, to be sent together with the end of its chunk.  False: there
 * is no memory for it. */
bool usm__ranks_launch_keep(usm__ranks_launch *l, const usm__wire *msg);

/* ranks.c */
usm__packet *usm__packet_make(uint32_t rank, const void *data, size_t size);
/* Adds what END reports about the members of all ranks.  The lock is held. */
void usm__ranks_add(usm__ranks *ranks, const usm__wire *end);
/* Registers the launch, and hands it the messages that came before.  The lock is held. */
void usm__ranks_register(usm__ranks *ranks, usm__ranks_launch *l);
/* The number of a launch that this rank does not start; drops the messages for it.  The lock is
 * held. */
uint32_t usm__ranks_skip(usm__ranks *ranks);

/* ranks_bytes.c */
extern const usm__bytes_ops usm__bytes_ranks; /* `from`: the usm__ranks_launch */
/* Handles DATA and ACK.  The lock is held. */
void usm__ranks_bytes_came(usm__ranks_launch *l, uint32_t from, const usm__wire *msg);
/* Waits until the data's rank has them. */
usm_status usm__ranks_send_copies(usm__ranks_launch *l, const usm__chunk_end *end);
void       usm__ranks_bytes_end(usm__ranks_launch *l);

/* ranks_home.c: called by the launch's thread, without the lock */
usm_status usm__ranks_home_init(usm__ranks_launch *l);
void       usm__ranks_home_fini(usm__ranks_launch *l);
/* Handles FETCH, STORE, COPIES, COUNTS and SETTLE. */
void usm__ranks_home_receive(usm__ranks_launch *l, uint32_t from, const usm__wire *msg);
/* Any thread. */
usm_status usm__ranks_home_keep(usm__ranks_launch *l, const usm__chunk_end *end);

#endif
