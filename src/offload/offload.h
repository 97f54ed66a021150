/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of src/offload share.
 *
 *     team.c       members: contexts, which devices share cores
 *     kernel.c     a program and kernel for each member's context
 *     plan.c       a launch, checked and copied: arguments, shapes, what a chunk needs
 *     parallel.c   the public calls, and the book of a launch of one process
 *     run.c        a launch under way on the members here: who takes what, when (run.h)
 *     lane.c       one chunk on one device: memory, copies, the kernel, its event
 *     train.c      short chunks, several in a row
 *     tune.c       the best local size, found on chunks
 *     bytes.c      where arguments' bytes come from
 *     merge.c      private copies into one
 *     progress.c   what is told while it runs
 *     resume.c     the file to go on from;  resume_key.c  whose it is;  states.c  chunks in the
 *                  middle
 *     schedule.c   the book (schedule.h);  policy.c, energy.c
 *     ranks*.c     the same over a job: grants, results, bytes (ranks.h)
 *     graph.c      nodes and edges (usm/graph.h)
 *
 * There are no threads here: ends of chunks come by events, on threads of the core, which may
 * block; each end takes the next chunk. */
#ifndef USM_OFFLOAD_OFFLOAD_H
#define USM_OFFLOAD_OFFLOAD_H

#include "offload/schedule.h"

#include "base/hash.h"
#include "base/mutex.h"
#include "core/handle.h"

#include <usm/context.h>
#include <usm/queue.h>

/* ---- teams: team.c, kernel.c --------------------------------------------------------------- */

struct usm__lane;

/* A device of this process.  Constant once the team is made, but for the figures. */
typedef struct usm__member {
    uint32_t     index;
    usm_device  *device;
    usm_context *context; /* one for each device                                               */
    usm_pool    *pool;    /* of what kernels work on where the host's pointers are of no use      */
    usm_queue   *queue;   /* of all its lanes; NULL: each has its own (team.c)                   */
    char         name[64];
    bool         uses_host_memory; /* kernels take any host pointer: nothing is copied           */
    bool         is_native;        /* the host backend: nothing is compiled                      */
    double       watts;            /* 0: not known                                               */
    uint32_t     trace;            /* its number there: base/trace_work.h                        */
    /* guarded by the team's lock */
    usm_member_state  state;
    uint64_t          chunks, items, busy_ns;
    double            speed;
    struct usm__lane *spare; /* lanes that no launch has                                        */
} usm__member;

struct usm_team {
    usm__magic_word    magic;
    usm__mutex         lock;
    pthread_cond_t     calm; /* no launch is under way                                           */
    unsigned           launches;
    uint32_t           nmembers;
    usm__member       *members;
    uint32_t           depth;
    bool               by_hand; /* devices were listed: those that share cores all take part      */
    struct usm__ranks *ranks;   /* ranks.c; NULL: this process alone */
};

/* By member; NULL where no image fits. */
struct usm_team_kernel {
    usm__magic_word   magic;
    usm_team         *team;
    uint32_t          nmembers;
    usm_program     **programs;
    usm_kernel      **kernels;
    size_t            nargs;
    char              name[128];
    uint32_t          trace; /* as a member's                                                     */
    _Atomic unsigned  refs;
    struct usm__tune *tunes; /* guarded by the team's lock                                      */
    usm__hash     images;    /* of all that the program was made of, for any device               */
    usm_native_fn native;    /* the kernel among the images; NULL: there is none                 */
};

usm_status usm__team_check(usm_team *team);
/* USM_E_FORKED: of the parent.  For what the team outlives. */
usm_status usm__team_check_fork(const usm_team *team);
/* A launch begins, and ends: usm_team_destroy() waits for the last. */
void usm__team_enter(usm_team *team);
void usm__team_leave(usm_team *team);
/* Its kernels fail, or it is gone (USM_E_DEVICE_LOST): the story is the calling thread's. */
void usm__team_set_aside(usm_team *team, uint32_t member, usm_status why);
bool usm__team_is_well(usm_team *team, uint32_t member);
/* What a launch has measured. */
void usm__team_add(usm_team *team, uint32_t member, uint64_t chunks, uint64_t items,
                   uint64_t busy_ns, double speed);

usm_status usm__team_kernel_check(usm_team_kernel *k);
void       usm__team_kernel_release(usm_team_kernel *k);
/* resume_key.c.  pre: the program was built, so its images are well-formed. */
void usm__images_hash(usm_team_kernel *k, const usm_program_desc *program);

/* ---- plan.c -------------------------------------------------------------------------------- */

/* A launch as it was asked for, in memory of our own: values and names are copied. */
typedef struct usm__plan {
    usm_parallel_desc desc; /* its pointers lead into this plan                                  */
    uint32_t          dim;  /* that is split                                                     */
    uint64_t          total, multiple, max_chunk;
    bool              may_repeat;
    bool              may_wait; /* bringing bytes may: some lie in buffers                        */
    bool          has_bytes;    /* of the caller: false on ranks other than the home              */
    size_t        found_arg;    /* + 1: the argument with USM_MERGE_FIRST; 0: none                */
    usm_policy_fn policy;
    char          shape[33]; /* a hash of all that a file to resume from must agree with       */
} usm__plan;

/* Counts the kernel: the plan keeps it. */
usm_status usm__plan_make(usm_team *team, const usm_parallel_desc *desc, usm__plan **plan);
void       usm__plan_free(usm__plan *plan);

/* Of a device, before it counts as silent: first chunks compile kernels. */
static inline uint64_t usm__plan_silence_ns(const usm__plan *plan)
{
    return UINT64_C(1000000) * (plan->desc.silence_ms ? plan->desc.silence_ms : 10000);
}

static inline uint64_t usm__gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t r = a % b;

        a = b;
        b = r;
    }
    return a;
}

/* Of a private argument: how many copies a chunk of `count` indices has. */
static inline uint64_t usm__copies_of(const usm_split_arg *arg, uint64_t count)
{
    return arg->leaf == 0 ? 1 : count / arg->leaf + (count % arg->leaf != 0);
}
/* Bytes of one private argument for `count` indices, and where they begin among the chunk's copies:
 * arguments in order, each at a multiple of 64.  arg desc.nargs: 0 bytes, behind all. */
size_t usm__plan_copies(const usm__plan *plan, uint64_t count, size_t arg, size_t *offset);
size_t usm__plan_copies_size(const usm__plan *plan, uint64_t count);

/* The work-group's size for a chunk, where the launch left it open and the device compiles for each
 * size anew, as PoCL does (0.3 s each): few sizes, whatever the chunks. */
void usm__plan_local(const usm__plan *plan, uint64_t count, size_t local[3]);

/* The bytes of a CHUNK argument that a chunk touches; *skip: how far behind the first of them those
 * of its first index lie. */
void usm__plan_window(const usm__plan *plan, size_t arg, const usm__chunk *chunk, size_t *offset,
                      size_t *size, size_t *skip);

/* ---- bytes of arguments --------------------------------------------------------------------- */

/* Bytes of an argument, for a while; ptr is host memory. */
typedef struct usm__piece {
    void      *ptr;
    size_t     size;
    usm_access access;  /* of a buffer                                                           */
    uint32_t   attempt; /* of the chunk, for open()                                             */
    void      *own;     /* ranks: the heap's; NULL: these are the caller's bytes                */
} usm__piece;

/* Where arguments' bytes come from and go to: the caller's memory and buffers (bytes.c), or those
 * of the home rank (ranks_bytes.c).  May wait, as far as usm__plan.may_wait says; called from
 * callbacks of events, no lock held.  offset: from the argument's first byte. */
typedef struct usm__bytes_ops {
    usm_status (*open)(void *from, size_t arg, size_t offset, size_t size, usm_access_mode mode,
                       usm__piece *piece);
    /* status: of what was to be written; a failure is not sent home. */
    usm_status (*close)(void *from, size_t arg, size_t offset, usm_access_mode mode,
                        usm__piece *piece, usm_status status);
} usm__bytes_ops;

extern const usm__bytes_ops usm__bytes_local; /* `from`: the usm__plan */

/* ---- runs: run.c ---------------------------------------------------------------------------- */

/* A launch on this process's members.  Where its indices come from is `source`: the whole range,
 * or what the master of a job grants. */
typedef struct usm__run usm__run;

#define USM__TRAIN_MAX 32u /* short chunks that a member has in place of one: train.c           */

typedef struct usm__chunk_end {
    uint32_t   member;
    usm__chunk chunk;
    usm_status status;      /* its story is the calling thread's                                */
    bool       is_of_bytes; /* a failure of the arguments' bytes, not of the device             */
    uint64_t   compute_ns;  /* without waiting for its turn                                     */
    uint64_t   end_ns;      /* when; 0: now                                                     */
    /* Those of the private arguments: usm__plan_copies(). */
    const void *copies;
    size_t      copies_size;
} usm__chunk_end;

typedef struct usm__run_params {
    usm_team             *team;
    usm__plan            *plan;
    const usm__bytes_ops *bytes;
    void                 *from;
    /* A chunk for a member, or false: nothing now; usm__run_feed() when there is. */
    bool (*take)(void *source, uint32_t member, usm__chunk *chunk);
    /* One more for a member that has just taken one, as they are short; NULL: one at a time. */
    bool (*take_more)(void *source, uint32_t member, usm__chunk *chunk);
    void (*ended)(void *source, const usm__chunk_end *end);
    /* An iterative chunk wants one more round (copies: all of them, so far); false: leave it, and
     * it ends with USM_E_CANCELLED. */
    bool (*again)(void *source, uint32_t member, const usm__chunk *chunk, const void *copies);
    /* Of iterative chunks, NULL or both: what one is at the end of a round, every keep_ns and when
     * it is left; and what was kept of it, before its first round.  Pieces are by argument; false:
     * it begins anew. */
    void (*keep)(void *source, const usm__chunk *chunk, const usm__piece *pieces,
                 const void *copies);
    bool (*bring)(void *source, const usm__chunk *chunk, const usm__piece *pieces, void *copies);
    uint64_t keep_ns;
    void    *source;
} usm__run_params;

usm_status usm__run_create(const usm__run_params *params, usm__run **run);
/* Whether the member takes part: was it well, and has it the kernel.  Others never ask the source,
 * which is to count on no more than these. */
bool usm__run_has(const usm__run *run, uint32_t member);
/* Lets members that have room take chunks. Any thread; no lock held. */
void usm__run_feed(usm__run *run);
/* No chunk is under way, and none will be: what all members read is let go of. */
void usm__run_end(usm__run *run);
/* Waits until no chunk is under way.  Then nothing of it calls any more. */
void usm__run_quiesce(usm__run *run);
void usm__run_destroy(usm__run *run);
void usm__run_get_bytes(usm__run *run, uint64_t *in, uint64_t *out);

/* ---- merge.c --------------------------------------------------------------------------------- */

/* The copies of one private argument, as they come, in any order: merged by a binary tree over
 * leaf numbers that only depends on their count.  One thread at a time. */
typedef struct usm__tree usm__tree;
/* total: indices of the launch.  NULL: no memory. */
usm__tree *usm__tree_create(const usm_split_arg *arg, uint64_t total);
/* The copies of the chunk's leaves, one behind the other.  USM_E_NO_MEMORY */
usm_status usm__tree_add(usm__tree *t, uint64_t first, uint64_t count, const void *copies);
/* All there is, merged into `into`, the caller's bytes; what is missing (usm__schedule_cut()) was
 * not wanted. */
void usm__tree_finish(usm__tree *t, void *into);
void usm__tree_destroy(usm__tree *t);
/* What a copy begins with; bytes: the caller's. */
void usm__merge_begin(const usm_split_arg *arg, const void *bytes, void *copy);
/* USM_MERGE_FIRST: whether a copy of the chunk has found something; then indices from *from on are
 * not wanted any more. */
bool usm__merge_cuts(const usm_split_arg *arg, const usm__chunk *chunk, const void *copies,
                     uint64_t *from);

#endif
