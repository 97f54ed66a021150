/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Teams over the ranks of a job.
 *
 *     ranks.c          a team's ranks: who has which members, what comes for which launch
 *     ranks_launch.c   a launch on this rank: its thread, the members here, its end
 *     ranks_master.c   who is granted what;  ranks_worker.c  what a rank was granted: both pure
 *     ranks_bytes.c    arguments' bytes of home, on a rank: fetched, stored
 *     ranks_home.c     the same on home: served, kept, merged
 *     wire.c           messages as bytes
 *
 * Each launch has one thread on each rank, which sleeps until a message or a moment of the machines
 * comes: it runs the machines, sends what they say, and on home serves bytes.  The members' own
 * threads only move bytes (they wait for home) and leave a note of what has ended. */
#ifndef USM_OFFLOAD_RANKS_H
#define USM_OFFLOAD_RANKS_H

#include "offload/offload.h"
#include "offload/parallel.h"
#include "offload/ranks_state.h"

#include "base/inline/list.h"
#include "cluster/cluster.h"

typedef struct usm__ranks  usm__ranks;
typedef struct usm__launch usm__launch;

/* ---- for team.c, plan.c, parallel.c ----------------------------------------------------- */

/* On a thread of the launch, once; the story is that thread's. */
typedef void usm__ranks_over_fn(void *arg, usm_status status, const usm_parallel_stats *stats);

/* Collective; the team has its members.  USM_E_MPI;  USM_E_PEER;  USM_E_INVALID: ranks make teams
 * in different orders. */
usm_status usm__ranks_create(usm_team *team, usm__ranks **ranks);
/* No launch is under way. */
void       usm__ranks_destroy(usm__ranks *ranks);
uint32_t   usm__ranks_size(const usm__ranks *ranks); /* members of all ranks */
usm_status usm__ranks_get_member(usm__ranks *ranks, uint32_t index, usm_team_member *info);
bool       usm__ranks_is_home(const usm__ranks *ranks, uint32_t home);
/* The plan is the caller's and stays until `over` was called.  Whatever goes wrong here is told to
 * the other ranks, whose launch then fails as well. */
usm_status usm__ranks_start(usm__ranks *ranks, usm__plan *plan, usm__ranks_over_fn *over, void *arg,
                            usm__launch **launch);
/* This rank's call failed before it came to usm__ranks_start(), with the calling thread's story. */
void usm__ranks_refuse(usm__ranks *ranks, usm_status status);
void usm__ranks_cancel(usm__launch *launch);
/* After `over`. NULL is fine. */
void usm__ranks_release(usm__launch *launch);

/* ---- what the files share --------------------------------------------------------------- */

/* One for all: what is done with it held is short, and nothing is sent. */
extern usm__mutex usm__ranks_lock;

/* A message that came or is to go; size 0: `rank` is lost. */
typedef struct usm__letter {
    usm_list      link;
    uint32_t      rank;
    size_t        size;
    unsigned char bytes[];
} usm__letter;

struct usm__ranks {
    /* fixed after create */
    usm_list  link; /* guarded by usm__ranks_lock                                               */
    usm_team *team;
    uint32_t  id, self, count, master;
    uint32_t *nmembers, *first; /* by rank                                                    */
    uint32_t  total;
    char (*names)[64]; /* by member of all ranks                                              */
    /* guarded by usm__ranks_lock */
    usm__wire_member *figures; /* by member of all ranks: what launches have told               */
    uint32_t next; /* launch                                                                   */
    uint32_t deaf_until; /* of launches below, a message that came early could not be kept     */
    usm_list launches;
};

/* Bytes on their way between a member here and home: on the stack of who waits. */
typedef struct usm__transfer {
    usm_list   link;
    uint64_t   request;
    char      *to; /* of a fetch                                                               */
    uint64_t   offset, size, asked, got;
    unsigned   flying; /* of a store: messages without an answer                                 */
    usm_status status;
} usm__transfer;

/* Private copies of a chunk that came, until the master says that they count. */
typedef struct usm__copies {
    usm_list link;
    uint32_t rank;
    uint64_t id, first, count;
    size_t   size, have;
    char     bytes[];
} usm__copies;

/* Of the home rank. */
typedef struct usm__ranks_home {
    usm__tree    **trees;   /* by argument                                                   */
    char        ***kept;    /* by argument that is read and written, by USM__WIRE_PIECE bytes   */
    unsigned char *message; /* room for one                                                  */
    usm_list       copies;  /* guarded by usm__ranks_lock                                     */
    usm_status     status;
    char           story[USM__RANKS_STORY];
} usm__ranks_home;

#define USM__RANKS_SPARES 8u

struct usm__launch {
    /* fixed after start */
    usm__ranks         *ranks;
    uint32_t            number;
    usm__plan          *plan;
    usm__run           *run;
    usm__ranks_over_fn *over;
    void               *over_arg;
    uint64_t            start_ns;
    bool                is_master, is_home, has_copies;
    unsigned char       shape[USM__WIRE_SHAPE], takes_part[USM__RANKS_MEMBERS];
    /* of its thread */
    usm__ranks_home home;
    usm__teller     teller;
    usm__part      *parts;
    /* guarded by usm__ranks_lock */
    usm_list       link;
    usm__master    master;
    usm__worker    worker;
    usm_list       in, out;
    usm_list       kept;   /* letters to home: they go before what is told of ends                */
    size_t         nkept;  /* bytes of them                                                       */
    usm_status     broken; /* nothing can be sent or kept any more                            */
    bool           has_work, has_given_up, is_gone;
    uint64_t       sent; /* bytes, as the master                                                 */
    uint64_t       patience_ns, moved_ns; /* moved: when bytes were asked for last, at home       */
    pthread_cond_t changed;
    usm_list       transfers;
    pthread_cond_t moved; /* transfers                                                         */
    uint64_t       next_request;
    struct {
        void  *ptr;
        size_t size;
    } spares[USM__RANKS_SPARES]; /* blocks for pieces                                            */
};

/* ranks_launch.c: lock held. */
void usm__launch_came(usm__launch *l, uint32_t from, const void *data, size_t size);
void usm__launch_lost(usm__launch *l, uint32_t rank);
/* A message of this launch, to be sent by its thread. */
void usm__launch_post(usm__launch *l, uint32_t to, const usm__wire *msg);
/* To home, together with the end of the chunk that it belongs to.  False: it cannot be kept. */
bool usm__launch_keep(usm__launch *l, const usm__wire *msg);

/* ranks.c */
usm__letter *usm__letter_make(uint32_t rank, const void *data, size_t size);
/* What END says of the members of other ranks.  Lock held. */
void usm__ranks_add(usm__ranks *ranks, const usm__wire *end);
/* Those that came before this rank had begun.  Lock held. */
void usm__ranks_register(usm__ranks *ranks, usm__launch *l);
/* The number of a launch that this rank does not begin; what came for it is dropped.  Lock held. */
uint32_t usm__ranks_skip(usm__ranks *ranks);

/* ranks_bytes.c */
extern const usm__bytes_ops usm__bytes_ranks; /* `from`: the usm__launch                        */
/* DATA and ACK.  Lock held. */
void usm__ranks_bytes_came(usm__launch *l, uint32_t from, const usm__wire *msg);
/* Waits until home has them. */
usm_status usm__ranks_send_copies(usm__launch *l, const usm__chunk_end *end);
void       usm__ranks_bytes_end(usm__launch *l);

/* ranks_home.c: on the launch's thread, lock not held */
usm_status usm__ranks_home_init(usm__launch *l);
void       usm__ranks_home_fini(usm__launch *l);
/* FETCH, STORE, COPIES, COUNTS, SETTLE */
void usm__ranks_home_receive(usm__launch *l, uint32_t from, const usm__wire *msg);
/* Any thread. */
usm_status usm__ranks_home_keep(usm__launch *l, const usm__chunk_end *end);

#endif
