/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What run.c, lane.c and train.c know of each other: a launch on the members of this process, and
 * its lanes, of which each has one chunk at a time, or a train of short ones.
 *
 * A lane has a queue of its own (but on processors: team.c), so that the copies of one chunk run
 * beside the kernel of another, and memory that grows to what its chunks need; both outlive the
 * launch, in the team, so that a second launch makes nothing. */
#ifndef USM_OFFLOAD_RUN_H
#define USM_OFFLOAD_RUN_H

#include "offload/offload.h"

#include "base/inline/atomic.h"
#include "core/event.h"

/* A command that is recorded: base/trace_work.h. */
typedef struct usm__mark {
    usm_event *event; /* counted                                                                  */
    uint64_t   n;
    int        kind; /* usm__work_kind                                                            */
} usm__mark;
#define USM__MARKS_MAX 32u

typedef struct usm__lane {
    struct usm__lane *next; /* in the member's spare ones, or those that wait for bytes           */
    usm__member      *member;
    usm_queue        *queue;
    struct usm__lane *behind; /* its chunk goes behind this one's in a train; NULL: none yet     */
    bool is_wagon;            /* it is behind another, whose queue it has                        */
    bool has_times;           /* its queue measures commands                                     */
    bool has_own_queue;
    /* Grown, and kept: of the device, and the host's for private copies and snapshots. */
    char    *mem, *host;
    size_t   mem_size, host_size;
    usm_arg *args; /* of the launch, by argument                                                 */
    usm__piece *pieces;
    size_t *places; /* where the bytes of an argument lie in mem                                */
    size_t  nargs;
    /* of one launch */
    usm__run  *run;
    usm_launch launch;
    bool       is_busy; /* guarded by the run's lock */
    bool       is_set; /* the arguments that no chunk changes are                                 */
    unsigned   length; /* of its next train                                                       */
    /* of one chunk: whoever has it */
    usm__chunk chunk;
    size_t     npieces;     /* that are open: the first so many arguments                         */
    bool       is_laid_out; /* copies and snapshots are there                               */
    bool       is_last; /* after what is under way nothing is left to do but to close           */
    bool       is_brought; /* it goes on with what was kept of it                               */
    bool       is_keeping; /* after what is under way its bytes are here, to be kept             */
    uint64_t   kept_ns;
    uint64_t   began_ns;
    uint64_t   ended_before; /* indices that its member had done when it began                 */
    uint64_t   compute_ns, end_ns; /* 0: not measured                                           */
    usm_event *tail;               /* the last command's                                       */
    struct usm__lane *last;        /* of the train; itself: its chunk is alone                  */
    unsigned          size;        /* of its work-groups: offload/tune.h; 0: the usual one      */
    bool              is_trial;
    usm_event        *tried; /* the kernel's                                                    */
    usm__completion   done;
    usm__job          job;
    /* of USM_TRACE */
    unsigned  nmarks;
    bool      has_kernel_times;
    usm__mark marks[USM__MARKS_MAX];
} usm__lane;

/* A member's part in a launch. */
typedef struct usm__run_member {
    usm__member  *member;
    usm_kernel   *kernel; /* NULL: takes no part                                                  */
    bool          is_brought;
    _Atomic(bool) is_checked; /* its first kernel was queued                                      */
    usm_status    status; /* of bringing what is whole, and why                                   */
    usm__story    story;
    char         *whole; /* on the device, one argument behind the other                         */
    usm_event    *ready; /* the last copy there; NULL: nothing is copied                          */
    uint64_t      last_end_ns; /* guarded by the run's lock                                     */
    uint64_t      ended;       /* indices; guarded by it                                        */
    /* While sizes of work-groups are tried, only its first lane takes chunks. */
    struct usm__tune *tune; /* NULL: none are tried                                             */
    usm__lane        *first;
    bool              holds; /* others want to: guarded by the run's lock                       */
} usm__run_member;

typedef enum usm__run_stage { USM__RUN_NEW, USM__RUN_PREPARING, USM__RUN_READY } usm__run_stage;

struct usm__run {
    /* fixed after create */
    usm__run_params  params;
    usm__run_member *members;
    usm__lane      **lanes; /* first one of each member, then the second of each, ...            */
    uint32_t         nlanes;
    bool             has_trains;
    usm__job         job;
    /* fixed once ready */
    usm__piece *wholes; /* by argument                                                          */
    char      **begin;  /* by argument: what a private copy begins with; NULL otherwise          */
    usm_status  status; /* of bringing them                                                     */
    usm__story  story;
    /* guarded by lock */
    usm__mutex     lock;
    pthread_cond_t calm;
    usm__run_stage stage;
    bool           is_over; /* usm__run_end()                                                  */
    unsigned       busy;    /* lanes, and 1 for the preparation                                   */
    unsigned       awake;   /* lanes alone                                                        */
    unsigned       feeds; /* how often there was said to be work                                 */
    unsigned       holding; /* lanes that have bytes open, or are at it                           */
    usm__lane     *parked;  /* whose bytes others hold                                            */
    _Atomic uint64_t in, out;
};

/* ---- lane.c ---------------------------------------------------------------------------------- */

/* One of the member's spare ones, or a new one; NULL and a story. */
usm__lane *usm__lane_get(usm_team *team, usm__member *member, size_t nargs, bool wants_times);
void       usm__lane_put(usm_team *team, usm__lane *lane);
void       usm__lanes_destroy(usm__lane *list);
/* One for the chunk behind that of `lane`, with as much memory; NULL: there is none to be had. */
usm__lane *usm__lane_behind(usm__lane *lane);

/* What the launch as a whole needs on a member: copies are queued, not waited for. */
usm_status usm__lane_bring_whole(usm__lane *lane, usm__run_member *rm);
/* The bytes of the lane's chunk; all or none.  USM_E_AGAIN: others hold them. */
usm_status usm__lane_open(usm__lane *lane);
/* status: the chunk's.  What was snapshotted is put back when it failed. */
usm_status usm__lane_close(usm__lane *lane, usm_status status);
/* Queues the chunk. */
usm_status usm__lane_begin(usm__lane *lane, usm__run_member *rm);
/* Says so when the last of the train has ended: usm__run_step_ended(). */
usm_status usm__lane_watch(usm__lane *lane);
/* What an iterative chunk does next: one more round; what it wrote comes here, for the last time or
 * (is_keeping) before one more. */
usm_status usm__lane_again(usm__lane *lane);
usm_status usm__lane_bring_back(usm__lane *lane);
/* An iterative chunk: whether an index of it has more to do. */
bool usm__lane_wants_more(const usm__lane *lane);

/* ---- lane_trace.c: while usm__trace_is_on()
 * ------------------------------------------------------
 */

/* The lane's commands, as they are queued; those beyond USM__MARKS_MAX are left out. */
void usm__lane_mark(usm__lane *lane, int kind, uint64_t n, usm_event *ev);
/* They have ended, and so have those of the train, of which `last` was the last just now. */
void usm__lane_tell_marks(usm__lane *lane, const usm__lane *last);
/* So has the chunk. */
void usm__lane_tell_chunk(usm__lane *lane, usm_status status);

/* ---- train.c --------------------------------------------------------------------------------- */

/* Whether short chunks of the launch may travel together. */
bool usm__train_is_possible(const usm__run_params *params);
/* The first is about to be queued. */
void usm__train_begin(usm__lane *lane);
/* All have ended: their times, and how long the lane's next train may be. */
void usm__train_time(usm__lane *lane);
/* What came of one that was not the last. */
usm_status usm__train_status(usm__lane *wagon);

/* ---- run.c ----------------------------------------------------------------------------------- */

void usm__run_step_ended(usm__lane *lane, usm_status status);

#endif
