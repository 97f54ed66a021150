/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of src/offload.
 *
 *     team.c       members: contexts, and which devices share cores
 *     kernel.c     a program and a kernel for each member's context
 *     plan.c       a launch, checked and copied: arguments, shapes, what a chunk needs
 *     parallel.c   the public calls;  ledger.c  the scheduling of a launch of one process
 *     launches.c   the list of launches
 *     run.c        a launch in progress on the members of this process: which of them
 *                  takes a chunk when (run.h)
 *     lane.c       one chunk on one device: memory, copies, the kernel, its event
 *     batch.c      batches: several short chunks in a row
 *     tune.c       the best local size, found by measuring chunks
 *     bytes.c      where arguments' bytes come from
 *     merge.c      merges private copies into one
 *     progress.c   calls the caller's progress function
 *     resume.c     the file to resume from;  resume_key.c  which launch it belongs to;
 *                  states.c  iterative chunks that have not ended
 *     meter.c      the energy of launches (meter.h);  joules.c, watts.c
 *     schedule.c   the scheduler state (schedule.h);  policy.c, energy.c
 *     ranks*.c     the same over a job: grants, results, bytes (ranks.h)
 *     graph.c      nodes and edges (usm/graph.h)
 *
 * The folder has no threads of its own.  The end of a chunk is reported by its event, on a thread
 * of the core, which may block and which then takes the next chunk. */
#ifndef USM_OFFLOAD_OFFLOAD_H
#define USM_OFFLOAD_OFFLOAD_H

#include "offload/schedule.h"

#include "base/hash.h"
#include "base/mutex.h"
#include "device/handle.h"

#include <usm/context.h>
#include <usm/queue.h>

/* ---- teams: team.c, kernel.c --------------------------------------------------------------- */

struct usm__lane;
struct usm__meter;

#define USM__TEAM_WHY 128

/* A device of this process.  Only the statistics below change after the team has been created. */
typedef struct usm__member {
    uint32_t     index;
    usm_device  *device;
    usm_context *context; /* each device has a context of its own */
    usm_pool    *pool;    /* memory for chunks, where the device cannot use host pointers */
    usm_queue   *queue;   /* the queue of all its slots; NULL: each slot has its own (team.c) */
    char         name[64];
    bool         uses_host_memory; /* kernels take any host pointer, so nothing is copied */
    bool         is_in_reach;      /* of the host: its threads may access the pool's memory */
    bool         is_native;        /* the host backend: nothing is compiled */
    double       watts;            /* 0: unknown */
    uint32_t     trace;            /* its number in traces: base/trace_work.h */
    /* guarded by the team's lock */
    usm_member_state  state;
    uint64_t          chunks, items, busy_ns;
    double            speed;
    struct usm__lane *spare;              /* slots that no launch uses */
    char              why[USM__TEAM_WHY]; /* others last got work of it: the reason; "": never */
} usm__member;

struct usm_team {
    usm__magic_word    magic;
    usm__mutex         lock;
    pthread_cond_t     quiescent; /* signalled when no launch is in progress */
    unsigned           launches;
    uint32_t           nmembers;
    usm__member       *members;
    uint32_t           depth;
    bool               by_hand; /* the program listed the devices: those that share cores all take
                                   part */
    struct usm__ranks *ranks;   /* ranks.c; NULL: the team is of this process alone */
    struct usm__meter *meter;   /* meter.h; NULL: nobody asked for energy */
    struct usm__trial_parallel *trial; /* launch_sim.h; NULL: launches are no trials */
};

/* Programs and kernels are indexed by member; NULL where no image suits the device. */
struct usm_team_kernel {
    usm__magic_word   magic;
    usm_team         *team;
    uint32_t          nmembers;
    usm_program     **programs;
    usm_kernel      **kernels;
    size_t            nargs;
    char              name[128];
    uint32_t          trace; /* its number in traces, as a member's */
    _Atomic unsigned  refs;
    struct usm__tune *tunes;  /* guarded by the team's lock */
    usm__hash         images; /* hash of all that the program was made of, for any device */
    usm_native_fn     native; /* the native kernel among the images; NULL: there is none */
};

usm_status usm__team_check(usm_team *team);
/* USM_E_FORKED: the team is the parent's.  For functions on objects that the team outlives. */
usm_status usm__team_check_fork(const usm_team *team);
/* A launch begins, and ends.  usm_team_destroy() waits until the last one has ended. */
void usm__team_enter(usm_team *team);
void usm__team_leave(usm_team *team);
/* Quarantines a member: its kernels fail, or the device is gone (USM_E_DEVICE_LOST).  The calling
 * thread's error message is the reason. */
void usm__team_set_aside(usm_team *team, uint32_t member, usm_status why);
/* Records why other members get work of this one, for who looks at the launch. */
void usm__team_set_why(usm_team *team, uint32_t member, const char *why);
bool usm__team_is_well(usm_team *team, uint32_t member);
/* Adds what a launch has measured to the member's statistics. */
void usm__team_add(usm_team *team, uint32_t member, uint64_t chunks, uint64_t items,
                   uint64_t busy_ns, double speed);

usm_status usm__team_kernel_check(usm_team_kernel *k);
void       usm__team_kernel_release(usm_team_kernel *k);
/* resume_key.c.  pre: the program was built, so its images are well-formed. */
void usm__images_hash(usm_team_kernel *k, const usm_program_desc *program);

/* ---- plan.c -------------------------------------------------------------------------------- */

#define USM__NO_ARG SIZE_MAX

/* A launch as it was requested, in memory of the library: values and names are copied. */
typedef struct usm__plan {
    usm_parallel_desc desc; /* its pointers point to memory of this plan */
    uint32_t          dim;  /* the dimension that is split */
    uint64_t          total, multiple, max_chunk;
    bool              may_repeat;
    bool              may_wait; /* opening the bytes of arguments may block: some are in buffers */
    bool   has_bytes;           /* the arguments' bytes are here: false on ranks that do not provide
                                   the data */
    size_t found_arg;           /* the argument with USM_MERGE_FIRST, or USM__NO_ARG */
    size_t state_arg; /* the argument with the states of an iterative kernel, or USM__NO_ARG */
    usm_policy_fn policy;
    char          shape[33]; /* hash of what a launch and a file to resume it from must agree in */
} usm__plan;

/* Takes a reference to the kernel, which the plan keeps. */
usm_status usm__plan_make(usm_team *team, const usm_parallel_desc *desc, usm__plan **plan);
void       usm__plan_free(usm__plan *plan);

/* How long a chunk may take before its device counts as silent.  First chunks compile kernels. */
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

/* How many copies of a private argument a chunk of `count` indices has. */
static inline uint64_t usm__copies_of(const usm_split_arg *arg, uint64_t count)
{
    return arg->leaf == 0 ? 1 : count / arg->leaf + (count % arg->leaf != 0);
}
/* Returns the size in bytes of the copies of one private argument for `count` indices; *offset:
 * where they begin among the chunk's copies.  Copies are in the order of the arguments, each at a
 * multiple of 64.  If arg is desc.nargs, the size is 0 and *offset the end of all copies. */
size_t usm__plan_copies(const usm__plan *plan, uint64_t count, size_t arg, size_t *offset);
size_t usm__plan_copies_size(const usm__plan *plan, uint64_t count);

/* Chooses the size of the work-groups of a chunk, where the launch left it open.  Some drivers,
 * such as PoCL, compile a kernel again for each size (0.3 s each), so only few sizes are used,
 * whatever the sizes of the chunks are. */
void usm__plan_local(const usm__plan *plan, uint64_t count, size_t local[3]);

/* Finds the bytes of a CHUNK argument that a chunk accesses, halo included.  *skip: how many bytes
 * after the first of them those of the chunk's first index begin. */
void usm__plan_window(const usm__plan *plan, size_t arg, const usm__chunk *chunk, size_t *offset,
                      size_t *size, size_t *skip);

/* ---- bytes of arguments --------------------------------------------------------------------- */

/* A range of an argument's bytes while it is open; ptr is host memory. */
typedef struct usm__piece {
    void      *ptr;
    size_t     size;
    usm_access access;  /* if they are in a buffer */
    uint32_t   attempt; /* which attempt at the chunk this is, for open() */
    void      *own;     /* over ranks: memory of the heap; NULL: these are the caller's bytes */
} usm__piece;

/* Where arguments' bytes come from and go to: the caller's memory and buffers (bytes.c), or those
 * of the rank that provides the data (ranks_bytes.c).  The functions may block if
 * usm__plan.may_wait is set.  They are called from callbacks of events, with no lock held.  offset:
 * from the argument's first byte. */
typedef struct usm__bytes_ops {
    usm_status (*open)(void *from, size_t arg, size_t offset, size_t size, usm_access_mode mode,
                       usm__piece *piece);
    /* status: whether the bytes were written; after a failure none are sent to the rank that
     * provides the data. */
    usm_status (*close)(void *from, size_t arg, size_t offset, usm_access_mode mode,
                        usm__piece *piece, usm_status status);
} usm__bytes_ops;

extern const usm__bytes_ops usm__bytes_local; /* `from`: the usm__plan */

/* ---- runs: run.c ---------------------------------------------------------------------------- */

/* A launch on this process's members.  It takes its indices from `source`: the whole range, or what
 * the master of a job grants. */
typedef struct usm__run usm__run;

#define USM__TRAIN_MAX 32u /* most short chunks in one batch: batch.c */

typedef struct usm__chunk_end {
    uint32_t   member;
    usm__chunk chunk;
    usm_status status;      /* the calling thread has its error message */
    bool       is_of_bytes; /* the arguments' bytes failed, not the device */
    uint64_t   compute_ns;  /* without the time spent waiting for the device */
    uint64_t   end_ns;      /* when it ended; 0: now */
    /* The copies of its private arguments: usm__plan_copies(). */
    const void *copies;
    size_t      copies_size;
} usm__chunk_end;

typedef struct usm__run_params {
    usm_team             *team;
    usm__plan            *plan;
    const usm__bytes_ops *bytes;
    void                 *from;
    /* Takes a chunk for a member.  False: there is none now; the source calls usm__run_feed() when
     * there is. */
    bool (*take)(void *source, uint32_t member, usm__chunk *chunk);
    /* Takes one more for a member that has just taken one, because chunks are short.  NULL: one at
     * a time. */
    bool (*take_more)(void *source, uint32_t member, usm__chunk *chunk);
    void (*ended)(void *source, const usm__chunk_end *end);
    /* Asks whether an iterative chunk may run one more round; `copies` are all private copies as
     * they are now.  False: the chunk is abandoned and ends with USM_E_CANCELLED. */
    bool (*again)(void *source, uint32_t member, const usm__chunk *chunk, const void *copies);
    /* For iterative chunks, both NULL or both set.  keep() stores the state of a chunk at the end
     * of a round, every keep_ns and when the chunk is abandoned.  bring() restores the stored state
     * before its first round; false: there is none, and the chunk starts from the beginning.
     * Pieces are indexed by argument. */
    void (*keep)(void *source, const usm__chunk *chunk, const usm__piece *pieces,
                 const void *copies);
    bool (*bring)(void *source, const usm__chunk *chunk, const usm__piece *pieces, void *copies);
    uint64_t keep_ns;
    void    *source;
} usm__run_params;

usm_status usm__run_create(const usm__run_params *params, usm__run **run);
/* Whether the member takes part: it was not quarantined, and has the kernel.  Other members never
 * ask the source for chunks, so the source must not wait for them. */
bool usm__run_has(const usm__run *run, uint32_t member);
/* Lets members that have room take chunks.  Any thread; no lock held. */
void usm__run_feed(usm__run *run);
/* No chunk is in progress, and none will be: closes the bytes that all members read. */
void usm__run_end(usm__run *run);
/* Waits until no chunk is in progress.  Then the run calls none of its functions any more. */
void usm__run_quiesce(usm__run *run);
void usm__run_destroy(usm__run *run);
void usm__run_get_bytes(usm__run *run, uint64_t *in, uint64_t *out);

/* ---- merge.c --------------------------------------------------------------------------------- */

/* Merges the copies of one private argument, which arrive in any order.  The merges form a binary
 * tree over the leaf numbers, whose shape depends only on their count, so that the result does not
 * depend on the order.  One thread at a time. */
typedef struct usm__tree usm__tree;
/* total: indices of the launch.  NULL: no memory. */
usm__tree *usm__tree_create(const usm_split_arg *arg, uint64_t total);
/* Adds the copies of a chunk's leaves, one after the other.  USM_E_NO_MEMORY */
usm_status usm__tree_add(usm__tree *t, uint64_t first, uint64_t count, const void *copies);
/* Merges everything into `into`, the caller's bytes.  Missing leaves were cancelled
 * (usm__schedule_cut()). */
void usm__tree_finish(usm__tree *t, void *into);
void usm__tree_destroy(usm__tree *t);
/* Sets a private copy to its initial content; bytes: the caller's. */
void usm__merge_begin(const usm_split_arg *arg, const void *bytes, void *copy);
/* USM_MERGE_FIRST: whether a copy of the chunk has found something; then indices from *from on are
 * no longer wanted. */
bool usm__merge_cuts(const usm_split_arg *arg, const usm__chunk *chunk, const void *copies,
                     uint64_t *from);

#endif
