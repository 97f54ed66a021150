/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of graphs (usm/graph.h).
 *
 *     graph.c         nodes and edges, and the errors that adding one can be
 *     graph_check.c   checks of a whole graph; how many launches a node becomes (unrolling)
 *     graph_run.c     the run: ready tasks go to members, ended ones make others ready
 *     graph_restore.c what an earlier run had ended
 *     graph_call.c    nodes that are functions of the program
 *     graph_flight.c  one launch on one device: memory, copies, the kernel, its end
 *     graph_choose.c  which member takes which task: a pure function
 *     graph_units.c   units elsewhere that take part in a run (graph_units.h)
 *     graph_lost.c    what a lost unit had is made again
 *     graph_where.c   where blocks lie, and how long they travel: pure functions
 *     graph_sim.c     a run whose launches are not executed; trials of a few launches
 *     graph_serve.c   a run that executes what another process tells it
 *     graph_progress.c reports progress while the graph runs
 *     graph_keep.c    blocks of ended launches in a folder, to resume from
 *     graph_dot.c     the graph in Graphviz's language
 *
 *     partition --+--> search.0 --+--> merge        a node is one or several tasks; an edge into an
 *                 +--> search.1 --+                 expandable node from a partitioner, or from
 *                                                   another expandable node, goes part by part;
 *                                                   any other brings all blocks
 *
 * A task is one launch.  Its output is in memory of the heap, all blocks of a node one after the
 * other, until the last reader of the node has ended. */
#ifndef USM_OFFLOAD_GRAPH_H
#define USM_OFFLOAD_GRAPH_H

#include "offload/offload.h"

#include "base/hash.h"

#include <usm/graph.h>

#define USM__NOBODY      UINT32_MAX
#define USM__BLOCK_ALIGN 128 /* the widest OpenCL vector: kernels may load it */
#define USM__PER_DEVICE  2   /* parts */
#define USM__NODES_MAX   (1u << 20)
#define USM__PARTS_MAX   (1u << 20)

typedef enum usm__graph_task_state {
    USM__TASK_WAITS = 0, /* for its inputs */
    USM__TASK_READY,
    USM__TASK_FLIES, /* a member has it */
    USM__TASK_DONE
} usm__graph_task_state;

typedef struct usm__graph_task {
    uint32_t              node, part;
    usm__graph_task_state state;
    uint32_t member; /* that has or had it; USM__NOBODY: the block is the caller's, or was
                               read from a folder */
    bool    *tried;  /* by member: it had no memory for the task; NULL: no member failed */
} usm__graph_task;

typedef struct usm__graph_node {
    usm_node_desc desc; /* name and kernel belong to the graph */
    uint32_t     *inputs;
    uint32_t      ninputs;
    size_t        ninputs_cap;
    uint32_t      nreaders;
    /* set by usm__graph_check() */
    uint32_t partitioner; /* the partitioner by whose parts an expandable node is unrolled; its own
                           index for a partitioner; or USM__NOBODY */
    double   rank;        /* work on the longest way to an end: high ranks start first */
    /* of a run, or as it would be now */
    uint32_t         ntasks, nblocks; /* a partitioner's task writes all blocks */
    usm__graph_task *tasks;
    uint32_t         ndone;
    uint32_t         readers_left;
    uint64_t        *where; /* who has each block: graph_where.h; NULL: only this process runs it */
    uint8_t         *from;  /* of each block: the place it is asked from now; 0: none */
    unsigned char   *blocks; /* aligned, in `memory`; the caller's for an INPUT */
    void            *memory;
    double           joules; /* of the last run; 0: unknown (meter.h) */
} usm__graph_node;

struct usm_graph {
    usm__magic_word  magic;
    usm_team        *team;
    usm__graph_node *nodes;
    uint32_t         nnodes;
    size_t           cap;
    /* set by usm__graph_check() */
    uint32_t     *order;   /* inputs before readers */
    uint32_t     *readers; /* of node n: from first_reader[n] up to first_reader[n + 1] */
    uint32_t     *first_reader;
    _Atomic(bool) is_running;
    bool          has_run;
    bool          has_tasks; /* from a run, successful or not */
};

/* The bytes of one input of a task. */
typedef struct usm__graph_piece {
    const void *data;
    size_t      size;
} usm__graph_piece;

/* ---- graph_check.c -------------------------------------------------------------------------- */

const char *usm__node_kind_name(usm_node_kind kind);
/* Checks the graph as a whole; fills order, partitioner, rank. */
usm_status usm__graph_check(usm_graph *g);
/* Drops the results of a run. */
void usm__graph_clear(usm_graph *g);
/* How many parts the partitioner `n` makes, given the devices that work now. */
uint32_t usm__graph_parts(const usm_graph *g, uint32_t n);
/* Makes the tasks of node n, whose partitioner, if it has one, was unrolled before.  parts: for a
 * partitioner.
 *   USM_E_NO_MEMORY */
usm_status usm__graph_unroll(usm_graph *g, uint32_t n, uint32_t parts);
/* Whether task `part` of `reader` takes one block of `input`, not all. */
bool usm__graph_by_part(const usm_graph *g, uint32_t reader, uint32_t input);
/* Finds the bytes that a task reads; `pieces` has room for each input of the node, or is NULL.
 *   USM_E_SIZE  more than a kernel's uint can express; a merger's blocks of different sizes */
usm_status usm__graph_pieces(const usm_graph *g, const usm__graph_task *task,
                             usm__graph_piece *pieces, uint32_t *size, uint32_t *nblocks);

/* ---- graph_choose.c ------------------------------------------------------------------------- */

typedef enum usm__graph_policy {
    USM__GRAPH_ADAPTIVE,
    USM__GRAPH_FASTEST,
    USM__GRAPH_ENERGY,
    USM__GRAPH_STATIC,
    USM__GRAPH_USER
} usm__graph_policy;

typedef struct usm__graph_member {
    double   speed;  /* work per second; 0: not measured */
    double   flying; /* work in progress */
    double   given;  /* work it was ever given */
    double   weight, watts;
    double   bring; /* seconds until the task's inputs are there */
    uint64_t ended;
    uint32_t tasks;   /* in progress */
    uint32_t room;    /* tasks it may be given now */
    bool     may;     /* it works, has an image of the kernel, and has not failed with the task */
    bool     is_well; /* it works, and the policy does not exclude it */
} usm__graph_member;

/* USM_E_INVALID: no policy for graphs has that name, or its numbers do not suffice. */
usm_status usm__graph_policy_find(const usm_policy *policy, usm__graph_policy *found);
/* Which member takes a task of `work`; USM__NOBODY: the task waits for a member that has no room
 * now. ready: tasks that wait for a member, including this one.  It is never NOBODY if all members
 * are idle and one may take the task. */
uint32_t usm__graph_choose(usm__graph_policy which, const usm_policy *policy,
                           const usm__graph_member *members, uint32_t nmembers, double work,
                           uint64_t ready);

/* ---- graph_flight.c ------------------------------------------------------------------------- */

/* The queue of ended launches.  It is reference-counted: the last event may still be in its
 * callback when the run has returned. */
typedef struct usm__graph_mail {
    usm__mutex                lock;
    pthread_cond_t            came;
    struct usm__graph_flight *ended;
    bool                      rang;
    _Atomic unsigned          refs;
} usm__graph_mail;

usm__graph_mail *usm__graph_mail_create(void); /* NULL: no memory */
void             usm__graph_mail_drop(usm__graph_mail *mail);
/* Lets the next usm__graph_mail_take(), or the one that waits, return. */
void usm__graph_mail_ring(usm__graph_mail *mail);
/* Takes all ended flights, in any order; if there are none, waits for one, for a ring, or until
 * deadline_ns (0: for ever). */
struct usm__graph_flight *usm__graph_mail_take(usm__graph_mail *mail, uint64_t deadline_ns);

/* A member in a run: kernels run one after the other in one queue, copies for the next kernel in
 * another. */
typedef struct usm__graph_place {
    usm__member *member;
    usm_queue   *compute, *copies;
    uint64_t     last_end_ns;
} usm__graph_place;

typedef struct usm__graph_flight {
    struct usm__graph_flight *next; /* in the mail */
    usm__graph_task          *task;
    usm__graph_mail          *mail;
    usm__graph_place         *place;
    void                     *in, *out; /* memory of the device; NULL: the kernel uses host
                                           memory */
    usm_event                *copied, *computed, *ended;
    usm_status                status;
    uint64_t                  begin_ns, end_ns;
    uint64_t                  bytes_in, bytes_out;
    char                      message[256]; /* of a failure */
} usm__graph_flight;

/* Starts a task on a member.  If this returns USM_OK, the end arrives in the mail.  Otherwise
 * nothing is in progress, and the calling thread has the error message. */
usm_status usm__graph_flight_begin(usm_graph *g, usm__graph_task *task, usm__graph_place *place,
                                   usm__graph_mail *mail);
void       usm__graph_flight_free(usm__graph_flight *f);

/* ---- graph_keep.c --------------------------------------------------------------------------- */

typedef struct usm__graph_keep usm__graph_keep;
/* Creates the folder if necessary.  USM_E_INVALID it holds blocks of another graph; USM_E_IO */
usm_status usm__graph_keep_open(const usm_graph *g, const char *folder, const char *key,
                                usm__graph_keep **keep);
/* Saves the blocks of an ended task.  A failure is logged once, and the run continues without
 * saving. */
void usm__graph_keep_save(usm__graph_keep *k, const usm_graph *g, const usm__graph_task *task);
/* How many blocks the node had when this `part` of it was saved; 0: it was not. */
uint32_t usm__graph_keep_has(usm__graph_keep *k, uint32_t node, uint32_t part);
/* Loads blocks into `data`; false: damaged, or not there. */
bool usm__graph_keep_load(usm__graph_keep *k, uint32_t node, uint32_t part, void *data,
                          size_t size);
/* remove: the run has ended well, and the blocks are not needed any more. */
void usm__graph_keep_close(usm__graph_keep *k, bool remove);

/* ---- graph_restore.c, graph_check.c ---------------------------------------------------------- */

/* Marks what an earlier run has saved in a folder as done, and loads the blocks that are still
 * needed.  *resumed: launches that need not be done again.  USM_E_NO_MEMORY */
usm_status usm__graph_restore(usm_graph *g, usm__graph_keep *keep, uint64_t *resumed);
bool       usm__graph_is_complete(const usm__graph_node *n);
/* Allocates memory for all blocks of a node.  USM_E_NO_MEMORY */
usm_status usm__graph_make_room(usm__graph_node *n);
/* Unrolls a partitioner, and the expandable nodes that follow its parts. */
usm_status usm__graph_unroll_all(usm_graph *g, uint32_t partitioner, uint32_t parts);

#endif
