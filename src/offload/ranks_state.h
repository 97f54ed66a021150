/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A launch over the ranks of a job as two state machines: the master's, which has the scheduler
 * state, and the worker's, which every rank has.  They have no threads, locks or clock: the caller
 * guards them, passes the time, sends their messages, and passes them what it receives.
 *
 *     worker                       master                      home (the data's rank)
 *       | -------- READY -----------> |  once all live ranks have sent it:
 *       | <------- GRANT ------------ |  about two batches ahead for each member
 *       | <=========== bytes, peer to peer ==================> |
 *       | -------- DONE ------------> |  GRANT ...
 *       |                             | -------- SETTLE -----> |
 *       | <------- END -------------- | <------- SETTLED ----- |
 *
 * A worker of the scheduler (schedule.h) is a member: member m of rank r is number first[r] + m.
 *
 * These rules hold, whichever rank dies:
 *
 *  - No rank waits for a lost rank.  The chunks of a lost worker are granted to others.  If the
 *    master or the data's rank ends, the launch ends for all (USM_E_PEER).
 *  - Unless the master ends, all ranks learn the same result, from END.  A rank that has received
 *    it may leave the job, and be reported lost to a rank whose END has not arrived yet.
 *  - A chunk counts when the data's rank has its bytes and the master has its DONE.  A result of a
 *    chunk that counted before is recognised by its id and dropped.
 *  - A member that is silent for longer than the scheduler allows keeps its chunks, but they are
 *    also granted to others, and it is granted nothing new until it reports something. */
#ifndef USM_OFFLOAD_RANKS_STATE_H
#define USM_OFFLOAD_RANKS_STATE_H

#include "offload/schedule.h"
#include "offload/wire.h"

#define USM__RANKS_STORY 240

/* of one rank; those beyond take no part */
#define USM__RANKS_MEMBERS 256u

/* a rank that has work says so this often */
#define USM__RANKS_ALIVE_NS 250000000u
/* Silence after which a rank's chunks are granted to others; longer, if four times the predicted
 * time is. */
#define USM__RANKS_SILENCE_NS 1000000000u

typedef void usm__ranks_send_fn(void *arg, uint32_t to, const usm__wire *message);

/* ---- ranks_master.c --------------------------------------------------------------------- */

typedef enum usm__master_phase {
    USM__MASTER_GATHERS = 1, /* not all ranks have sent READY */
    USM__MASTER_WORKS,
    USM__MASTER_SETTLES, /* the data's rank merges */
    USM__MASTER_ENDED    /* END was sent */
} usm__master_phase;

typedef struct usm__master_params {
    uint32_t             nranks, self, home;
    const uint32_t      *nmembers;   /* by rank; 0: the rank takes no part */
    usm__schedule_params ledger;     /* nworkers, depth, ... are set by usm__master_init() */
    const unsigned char *shape;      /* USM__WIRE_SHAPE bytes */
    bool                 has_copies; /* the data's rank is told which chunks count */
    uint32_t             depth;      /* chunks that a member has in progress, at least */
    uint32_t             progress_ms;
    /* Signs of life of a rank count for a chunk for this long, or for 4 times its predicted time if
     * that is longer: a device may hang while its process lives. */
    uint64_t            silence_ns;
    usm__ranks_send_fn *send;
    void               *arg;
} usm__master_params;

/* A chunk that a member was granted and has not answered for. */
typedef struct usm__flight {
    uint64_t id, first, count;
} usm__flight;

typedef struct usm__master_member {
    usm__flight *flights; /* the oldest first */
    uint32_t     nflights;
    size_t       room;
    uint64_t     items;            /* of all flights */
    uint64_t     oldest, since_ns; /* the id of the oldest flight + 1, and since when it is the
                                      oldest */
    /* What it did: chunks and indices that counted, and how long it worked, on others too. */
    uint64_t         chunks, done, busy_ns, last_end_ns;
    usm_member_state state;
    bool             takes_part;
} usm__master_member;

typedef struct usm__master_rank {
    uint32_t            nmembers, first;
    bool                is_lost, is_ready, wants_progress;
    uint32_t            home;
    uint64_t            max_chunk;
    unsigned char       shape[USM__WIRE_SHAPE];
    usm__master_member *members;
} usm__master_rank;

typedef struct usm__master {
    usm__master_params params;
    usm__master_phase  phase;
    usm__schedule     *ledger; /* created when phase becomes WORKS */
    usm__master_rank  *ranks;
    bool               is_watched; /* a rank wants PROGRESS */
    uint64_t           cut;
    uint64_t   next_ns, notified_ns, notified_done; /* next_ns: when to ask the scheduler; told: of
                                                       PROGRESS */
    uint64_t   merged;                              /* as the data's rank has said at the end */
    usm_status status;
    char       reason[USM__RANKS_STORY];
} usm__master;

/* Arrays are copied.  USM_E_NO_MEMORY */
usm_status usm__master_init(usm__master *m, const usm__master_params *params);
void       usm__master_fini(usm__master *m);
void usm__master_receive(usm__master *m, uint32_t from, const usm__wire *msg, uint64_t now_ns);
void usm__master_lost(usm__master *m, uint32_t rank, uint64_t now_ns);
/* Ends the launch for all ranks, at once. */
void usm__master_fail(usm__master *m, usm_status status, const char *reason);
/* To be called at *next_ns at the latest (UINT64_MAX: never). */
void usm__master_tick(usm__master *m, uint64_t now_ns, uint64_t *next_ns);

/* ---- ranks_worker.c --------------------------------------------------------------------- */

typedef struct usm__worker_params {
    uint32_t             nmembers, master, home;
    const unsigned char *shape;
    const unsigned char *takes_part; /* by member */
    uint64_t             total, max_chunk;
    bool                 wants_progress;
    usm__ranks_send_fn  *send;
    void                *arg;
} usm__worker_params;

/* The chunks of one member, a ring buffer. */
typedef struct usm__worker_queue {
    usm__chunk *chunks;
    uint32_t    first, count, room;
    uint32_t    working;  /* chunks that were taken and have not ended */
    uint64_t    chunk_ns; /* of the last one that ended; 0: none has */
} usm__worker_queue;

typedef struct usm__worker {
    usm__worker_params params;
    usm__worker_queue *queues;
    uint64_t           cut; /* indices from there on are not wanted */
    uint64_t           spoke_ns;
    unsigned char     *done; /* records that were not sent yet */
    uint32_t           ndone;
    size_t             room;
    bool               is_urgent; /* one of them reports that something was found */
    bool               is_over;
    uint64_t           merged; /* from END: what usm__ranks_merged() returns */
    usm_status         status;
    char               reason[USM__RANKS_STORY];
    usm_parallel_stats stats;
    uint64_t           spread_ns; /* of stats, before it is divided by the time */
} usm__worker;

/* USM_E_NO_MEMORY */
usm_status usm__worker_init(usm__worker *w, const usm__worker_params *params);
void       usm__worker_fini(usm__worker *w);
/* Sends READY. */
void usm__worker_start(usm__worker *w, uint64_t now_ns);
/* True: there may be chunks to take. */
bool usm__worker_receive(usm__worker *w, uint32_t from, const usm__wire *msg);
/* Not for the master's own worker.  If the master is lost, the launch ends here.  If the data's
 * rank is lost, the worker reports it to the master and waits for its END: the launch may have
 * ended well. */
void usm__worker_lost(usm__worker *w, uint32_t rank);
/* Ends the launch on this rank: the master is lost, or this process cannot go on. */
void usm__worker_end(usm__worker *w, usm_status status, const char *reason);
bool usm__worker_take(usm__worker *w, uint32_t member, usm__chunk *chunk);
/* A chunk that was taken has ended, and the data's rank has its bytes.  cut: from there on no index
 * is wanted, because this chunk has found something; UINT64_MAX: none. */
void usm__worker_done(usm__worker *w, uint32_t member, uint64_t id, uint64_t compute_ns,
                      uint64_t cut);
/* flags: USM__WIRE_FATAL, USM__WIRE_ASIDE. */
void usm__worker_failed(usm__worker *w, uint32_t member, uint64_t id, usm_status status,
                        unsigned flags, const char *reason);
/* Sends the records that were kept to be sent together. */
void usm__worker_flush(usm__worker *w, uint64_t now_ns);
/* Whether ends need not be reported yet. */
bool usm__worker_may_keep(const usm__worker *w);
/* How long its members have enough to do, each after its current chunk; 0: one of them has not. */
uint64_t usm__worker_slack_ns(const usm__worker *w);
void     usm__worker_tick(usm__worker *w, uint64_t now_ns, uint64_t *next_ns);

#endif
