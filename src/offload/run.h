/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by run.c, lane.c and batch.c: a launch on the members of this process, and its slots.
 *
 * A slot (usm__lane) executes one chunk at a time, or a batch of short ones.  It has a queue of its
 * own (except on processors: team.c), so that the copies of one chunk run while the kernel of
 * another does, and memory that grows to what its chunks need.  Queue and memory outlive the
 * launch, in the team: a second launch creates nothing. */
#ifndef USM_OFFLOAD_RUN_H
#define USM_OFFLOAD_RUN_H

#include "offload/offload.h"

#include "base/assert.h"
#include "base/inline/atomic.h"
#include "command/event.h"

/* A command whose times are recorded: base/trace_work.h. */
typedef struct usm__mark {
    usm_event *event; /* the slot has a reference to it */
    uint64_t   n;
    int        kind; /* usm__trace_work_kind */
} usm__mark;
#define USM__MARKS_MAX 32u

/* lane.c draws the transitions. */
typedef enum usm__lane_state {
    USM__LANE_SPARE = 0, /* in no launch */
    USM__LANE_RESTING,   /* in a launch; until usm__run_feed() */
    USM__LANE_AWAKE,     /* asks for a chunk, or has one whose bytes are not open */
    USM__LANE_PARKED,    /* waits for bytes of its chunk that others hold */
    USM__LANE_OPEN,      /* has the bytes of its chunk */
    USM__LANE_LAID_OUT,  /* private copies and snapshots were made */
    USM__LANE_ROUND,     /* queues or runs a round of an iterative chunk */
    USM__LANE_STORING,   /* its bytes are being copied back to be stored, before one more round */
    USM__LANE_LAST       /* after the commands in progress only the close is left */
} usm__lane_state;

typedef struct usm__lane {
    struct usm__lane *next; /* in the member's list of spare slots, or in that of slots that wait
                               for bytes */
    usm__member      *member;
    usm_queue        *queue;
    struct usm__lane *behind;    /* the slot of the next chunk of a batch, which uses the queue of
                                 this one; NULL: there is none yet */
    bool              has_times; /* its queue measures commands */
    /* Memory of the device, and of the host for private copies and snapshots.  It grows, and is
     * kept. */
    char       *mem, *host;
    size_t      mem_size, host_size;
    usm_arg    *args; /* arguments of the launch, by argument */
    usm__piece *pieces;
    size_t     *places; /* where the bytes of an argument are in mem */
    size_t      nargs;
    /* valid during one launch */
    usm__run  *run;
    usm_launch launch; /* without a kernel: what is the same for all chunks is not set yet */
    unsigned   length; /* how many chunks its next batch may have */
    /* A usm__lane_state, changed by usm__lane_become(): from and to RESTING and PARKED under the
     * run's lock, else by the thread that has the chunk. */
    _Atomic(uint32_t) state;
    /* valid during one chunk, for the thread that has it */
    usm__chunk        chunk;
    size_t            npieces; /* the first so many arguments are open */
    uint64_t          kept_ns;
    uint64_t          began_ns;
    uint64_t          ended_before; /* indices that its member had done when the chunk began */
    uint64_t          compute_ns, end_ns; /* 0: not measured */
    usm_event        *tail;               /* the event of the last command */
    struct usm__lane *last;               /* last slot of the batch; itself: no batch */
    unsigned          size;     /* size of its work-groups: offload/tune.h; 0: the usual one */
    bool              is_trial; /* of `size`: its time is to be reported, whatever the state */
    usm_event        *tried;    /* the kernel's event */
    usm__completion   done;
    usm__executor_job job;
    /* of USM_TRACE */
    unsigned  nmarks;
    bool      has_kernel_times; /* a round of the chunk had a kernel's time */
    usm__mark marks[USM__MARKS_MAX];
} usm__lane;

/* One member in one launch. */
typedef struct usm__run_member {
    usm__member  *member;
    usm_kernel   *kernel; /* NULL: it takes no part */
    bool          is_brought;
    _Atomic(bool) is_checked; /* its first kernel was queued */
    usm_status    status;     /* of copying the whole arguments, and why */
    usm__message  message;
    char         *whole;       /* whole arguments on the device, one after the other */
    usm_event    *ready;       /* event of the last copy to it; NULL: no copies */
    uint64_t      last_end_ns; /* guarded by the run's lock */
    uint64_t      ended;       /* indices; guarded by the run's lock */
    /* While sizes of work-groups are tried, only the member's first slot takes chunks. */
    struct usm__tune *tune; /* NULL: none are tried */
    usm__lane        *first;
    bool              holds; /* others want chunks: guarded by the run's lock */
} usm__run_member;

typedef enum usm__run_stage { USM__RUN_NEW, USM__RUN_PREPARING, USM__RUN_READY } usm__run_stage;

struct usm__run {
    /* fixed after create */
    usm__run_params   params;
    usm__run_member  *members;
    usm__lane       **lanes; /* the first slot of each member, then the second of each, ... */
    uint32_t          nlanes;
    bool              has_batches;
    usm__executor_job job;
    /* fixed once stage is READY */
    usm__piece  *wholes; /* by argument */
    char       **begin;  /* by argument: the initial content of a private copy; NULL otherwise */
    usm_status   status; /* of opening and reading them */
    usm__message message;
    /* guarded by lock */
    usm__mutex       lock;
    pthread_cond_t   quiescent;
    usm__run_stage   stage;
    bool             is_over; /* usm__run_end() was called */
    unsigned         busy;    /* slots at work, and 1 for the preparation */
    unsigned         awake;   /* slots at work only */
    unsigned         feeds;   /* number of calls of usm__run_feed() */
    unsigned         holding; /* slots that have bytes open, or are opening them */
    usm__lane       *parked;  /* slots that wait for bytes which others hold */
    _Atomic uint64_t in, out;
};

/* ---- lane.c ---------------------------------------------------------------------------------- */

/* Whether the change is allowed and the slot may be in that state. */
bool usm__lane_is_valid(const usm__lane *lane, usm__lane_state from, usm__lane_state to);

static inline usm__lane_state usm__lane_state_of(const usm__lane *lane)
{
    return (usm__lane_state)usm_load_relaxed(&lane->state);
}

/* Relaxed: usm__run_feed() compares the state of other threads' slots with RESTING only, under the
 * lock under which that changes; what else a slot has is handed over with its lock or its job. */
static inline void usm__lane_become(usm__lane *lane, usm__lane_state to)
{
    usm_assert(usm__lane_is_valid(lane, usm__lane_state_of(lane), to));
    usm_store_relaxed(&lane->state, (uint32_t)to);
}

/* Returns one of the member's spare slots, or a new one; NULL with an error message. */
usm__lane *usm__lane_get(usm_team *team, usm__member *member, size_t nargs, bool wants_times);
void       usm__lane_put(usm_team *team, usm__lane *lane);
void       usm__lanes_destroy(usm__lane *list);
/* Returns the slot for the chunk behind that of `lane`, with as much memory; NULL: there is no
 * memory for it. */
usm__lane *usm__lane_behind(usm__lane *lane);

/* Copies the arguments that all chunks need to a member: the copies are queued, not waited for. */
usm_status usm__lane_bring_whole(usm__lane *lane, usm__run_member *rm);
/* Opens the bytes of the slot's chunk, all or none.  USM_E_AGAIN: others hold them. */
usm_status usm__lane_open(usm__lane *lane);
/* status: the chunk's.  If it failed, snapshots are copied back. */
usm_status usm__lane_close(usm__lane *lane, usm_status status);
/* Queues the commands of the chunk. */
usm_status usm__lane_begin(usm__lane *lane, usm__run_member *rm);
/* Arranges that usm__run_step_ended() is called when the last chunk of the batch has ended. */
usm_status usm__lane_watch(usm__lane *lane);
/* The next step of an iterative chunk: one more round; or a copy of what it wrote to the host, for
 * the last time or (STORING) before one more round. */
usm_status usm__lane_again(usm__lane *lane);
usm_status usm__lane_bring_back(usm__lane *lane);
/* Whether an index of an iterative chunk needs another round. */
bool usm__lane_wants_more(const usm__lane *lane);

/* ---- lane_trace.c: while usm__trace_is_on() ------------------------------------------------ */

/* Records a command of the slot when it is queued; those beyond USM__MARKS_MAX are left out. */
void usm__lane_mark(usm__lane *lane, int kind, uint64_t n, usm_event *ev);
/* Records a copy that the calling thread did itself in `ns`. */
void usm__lane_notify_copy(const usm__lane *lane, int kind, uint64_t n, uint64_t ns);
/* Writes the slot's commands to the trace after they have ended.  `last` is the last slot of the
 * batch, which has ended just now. */
void usm__lane_notify_marks(usm__lane *lane, const usm__lane *last);
/* Writes the chunk to the trace after it has ended. */
void usm__lane_notify_chunk(usm__lane *lane, usm_status status);

/* ---- batch.c --------------------------------------------------------------------------------- */

/* Whether short chunks of the launch may be submitted in batches. */
bool usm__batch_is_possible(const usm__run_params *params);
/* The first command of the chunk is about to be queued. */
void usm__batch_begin(usm__lane *lane);
/* All chunks of the batch have ended: computes their times, and how long the slot's next batch may
 * be. */
void usm__batch_time(usm__lane *lane);
/* The result of a chunk that was not the last of its batch. */
usm_status usm__batch_status(usm__lane *member);

/* ---- run.c ----------------------------------------------------------------------------------- */

void usm__run_step_ended(usm__lane *lane, usm_status status);

#endif
