/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A launch over the ranks of a job as two machines: the master's, which keeps the book, and each
 * rank's own, the worker's.  No threads, no locks, no clock: the caller guards a machine, tells the
 * time, sends what it says and gives it what comes.
 *
 *     worker                       master                      home
 *       | -------- READY -----------> |  once all that live have come:
 *       | <------- GRANT ------------ |  about two batches ahead for each member
 *       | <=========== bytes, peer to peer ==================> |
 *       | -------- DONE ------------> |  GRANT ...
 *       |                             | -------- SETTLE -----> |
 *       | <------- END -------------- | <------- SETTLED ----- |
 *
 * A worker of the book (schedule.h) is a member: member m of rank r is number first[r] + m.
 *
 * What holds, whoever dies: nobody waits for a rank that is lost.  A worker that is lost has its
 * chunks given to others; the master's end, or home's, ends the launch for all (USM_E_PEER).  But
 * for the master's end all learn the same end, from END: a rank that has it may leave, and be
 * missed by one whose END is still to come.  A chunk counts once home has its bytes and the master
 * its DONE; a result of a chunk that counted before is dropped by its number.  Who is silent for
 * longer than the book allows keeps what it has, but others are given it too; it is given nothing
 * new before it speaks. */
#ifndef USM_OFFLOAD_RANKS_STATE_H
#define USM_OFFLOAD_RANKS_STATE_H

#include "offload/schedule.h"
#include "offload/wire.h"

#define USM__RANKS_STORY 240

/* Of one rank; those beyond take no part. */
#define USM__RANKS_MEMBERS 256u

/* Who works says so this often. */
#define USM__RANKS_ALIVE_NS 250000000u
/* Silence after which a rank's chunks are given to others, or four times what was predicted. */
#define USM__RANKS_SILENCE_NS 1000000000u

typedef void usm__ranks_send_fn(void *arg, uint32_t to, const usm__wire *message);

/* ---- ranks_master.c --------------------------------------------------------------------- */

typedef enum usm__master_phase {
    USM__MASTER_GATHERS = 1, /* not all have said READY                                        */
    USM__MASTER_WORKS,
    USM__MASTER_SETTLES, /* home merges                                                          */
    USM__MASTER_ENDED    /* END was sent                                                         */
} usm__master_phase;

typedef struct usm__master_params {
    uint32_t             nranks, self, home;
    const uint32_t      *nmembers; /* by rank; 0: it takes no part                              */
    usm__schedule_params book;     /* nworkers, depth, ... are set by the machine                */
    const unsigned char *shape;    /* USM__WIRE_SHAPE                                            */
    bool                 has_copies; /* home is told which chunks count                          */
    uint32_t             depth; /* chunks a member has under way, at least                        */
    uint32_t             progress_ms;
    /* Signs of life of its rank count for a chunk as long, or 4 times what was predicted: a device
     * may hang where the process lives. */
    uint64_t            silence_ns;
    usm__ranks_send_fn *send;
    void               *arg;
} usm__master_params;

/* What a member has been given and has not answered for. */
typedef struct usm__flight {
    uint64_t id, first, count;
} usm__flight;

typedef struct usm__master_member {
    usm__flight *flights; /* the oldest first                                                     */
    uint32_t     nflights, room;
    uint64_t     items; /* of all flights                                                         */
    uint64_t     oldest, since_ns; /* the id of the oldest + 1, and when it was first heard of    */
    /* What it did: chunks and indices that counted, and how long it worked, for others too. */
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
    usm__schedule     *book; /* once it works                                              */
    usm__master_rank  *ranks;
    bool               is_watched; /* somebody wants PROGRESS                                    */
    uint64_t           cut;
    uint64_t           next_ns, told_ns, told_done; /* the book is to be asked; PROGRESS was sent */
    usm_status         status;
    char               story[USM__RANKS_STORY];
} usm__master;

/* Arrays are copied.  USM_E_NO_MEMORY */
usm_status usm__master_init(usm__master *m, const usm__master_params *params);
void       usm__master_fini(usm__master *m);
void usm__master_receive(usm__master *m, uint32_t from, const usm__wire *msg, uint64_t now_ns);
void usm__master_lost(usm__master *m, uint32_t rank, uint64_t now_ns);
/* Ends it for all, at once. */
void usm__master_fail(usm__master *m, usm_status status, const char *story);
/* To be called at *next_ns at the latest (UINT64_MAX: never). */
void usm__master_tick(usm__master *m, uint64_t now_ns, uint64_t *next_ns);

/* ---- ranks_worker.c --------------------------------------------------------------------- */

typedef struct usm__worker_params {
    uint32_t             nmembers, master, home;
    const unsigned char *shape;
    const unsigned char *takes_part; /* by member                                               */
    uint64_t             total, max_chunk;
    bool                 wants_progress;
    usm__ranks_send_fn  *send;
    void                *arg;
} usm__worker_params;

/* Chunks of one member, a ring. */
typedef struct usm__worker_queue {
    usm__chunk *chunks;
    uint32_t    first, count, room;
    uint32_t    working;  /* chunks that were taken and have not ended                           */
    uint64_t    chunk_ns; /* of the last one that ended; 0: none has                             */
} usm__worker_queue;

typedef struct usm__worker {
    usm__worker_params params;
    usm__worker_queue *queues;
    uint64_t           cut; /* indices from there on are not wanted                            */
    uint64_t           spoke_ns;
    unsigned char     *done; /* records that were not sent yet                                    */
    uint32_t           ndone, room;
    bool               is_urgent; /* one of them says that something was found                   */
    bool               is_over;
    usm_status         status;
    char               story[USM__RANKS_STORY];
    usm_parallel_stats stats;
    uint64_t           spread_ns; /* of stats, before it is a share of the time                  */
} usm__worker;

/* USM_E_NO_MEMORY */
usm_status usm__worker_init(usm__worker *w, const usm__worker_params *params);
void       usm__worker_fini(usm__worker *w);
/* READY. */
void usm__worker_start(usm__worker *w, uint64_t now_ns);
/* True: there may be something to take. */
bool usm__worker_receive(usm__worker *w, uint32_t from, const usm__wire *msg);
/* Not for the master's own.  Without the master the launch ends here; that home is lost the master
 * is told, whose END comes: the launch may have ended well. */
void usm__worker_lost(usm__worker *w, uint32_t rank);
/* The launch ends here: the master is lost, or this process cannot go on. */
void usm__worker_end(usm__worker *w, usm_status status, const char *story);
bool usm__worker_take(usm__worker *w, uint32_t member, usm__chunk *chunk);
/* What was taken has ended: home has its bytes, or it failed.  cut: from there on no index is
 * wanted any more, as this chunk has found something; UINT64_MAX. */
void usm__worker_done(usm__worker *w, uint32_t member, uint64_t id, uint64_t compute_ns,
                      uint64_t cut);
/* flags: USM__WIRE_FATAL, USM__WIRE_ASIDE. */
void usm__worker_failed(usm__worker *w, uint32_t member, uint64_t id, usm_status status,
                        unsigned flags, const char *story);
/* Sends what has been kept to be sent together. */
void usm__worker_flush(usm__worker *w, uint64_t now_ns);
/* What has ended need not be told of yet. */
bool usm__worker_may_keep(const usm__worker *w);
/* For how long its members have enough to do, each beyond the chunk it is at; 0: one has not. */
uint64_t usm__worker_slack_ns(const usm__worker *w);
void     usm__worker_tick(usm__worker *w, uint64_t now_ns, uint64_t *next_ns);

#endif
