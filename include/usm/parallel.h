/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * One launch, split over a team.
 *
 * The index range of one dimension is cut into chunks; each member of the team takes the next one
 * when it has room, of a size that a policy chooses.  A chunk is launched with the global offset
 * of its first index, so get_global_id() is the same for any split.  Each argument says how it
 * follows the split:
 *
 *   whole    all bytes, read only, to every member once
 *   chunk    `stride` bytes an index, and `before` and `after` more indices around (a halo, read
 *            only, cut at the ends of the range)
 *   private  `size` bytes of its own to each leaf of `leaf` indices (0: to each chunk), which begin
 *            as a copy of what the caller has there, or as the merge's neutral element, and are
 *            merged into the caller's bytes at the end: by a fixed tree in index order, so that
 *            with a leaf the result is the same to the bit for any split
 *
 * Of members that are one processor's cores (its OpenCL driver and the host backend) a launch uses
 * one, unless the team's devices were listed by hand (usm/team.h).
 *
 * The kernel's pointer to a chunk argument is to the bytes of the chunk's first index, in each of
 * its images: element get_global_id(d) - get_global_offset(d), and with a halo `before` (or fewer,
 * at the beginning of the range) indices lie below the pointer.  Its pointer to a private argument
 * is to the copy of the chunk's first leaf.
 *
 *     usm_split_arg args[] = {USM_SPLIT_WHOLE(points, points_size), USM_SPLIT_VALUE(n),
 *                             USM_SPLIT_OUT(image, width * sizeof(float))};
 *     usm_parallel_desc d  = USM_PARALLEL_DESC_INIT;
 *     d.kernel = kernel, d.dims = 2, d.global[0] = width, d.global[1] = height;
 *     d.nargs = 3, d.args = args;
 *     usm_parallel(team, &d, NULL);
 *
 * What goes wrong: a chunk whose kernel fails is done by another member, and the first one is set
 * aside; so are a device's that is lost, and a rank's that is dead or silent.  The answer is that
 * of the whole range, or a named error.  That needs chunks that can be done again: what they write
 * is written only, or READ_WRITE with USM_PARALLEL_SNAPSHOT.
 *
 * Sizes are bytes, extents indices. */
#ifndef USM_PARALLEL_H
#define USM_PARALLEL_H

#include <usm/buffer.h>
#include <usm/team.h>

USM_BEGIN_DECLS

/* ---- arguments ------------------------------------------------------------------------------ */

typedef enum usm_follow {
    USM_FOLLOW_VALUE   = 0, /**< `size` bytes at `host`, copied at the launch                     */
    USM_FOLLOW_SCRATCH = 1, /**< `size` bytes for each work-group                                 */
    USM_FOLLOW_WHOLE   = 2,
    USM_FOLLOW_CHUNK   = 3,
    USM_FOLLOW_PRIVATE = 4
} usm_follow;

/** FIRST: int64 found at [0] of each copy, < 0: nothing; of all copies that have found something
 * the one with the lowest number wins, whole; chunks above it are not begun, or left.  The result
 * does not depend on the split. */
typedef enum usm_merge {
    USM_MERGE_NONE  = 0,
    USM_MERGE_SUM   = 1,
    USM_MERGE_MIN   = 2,
    USM_MERGE_MAX   = 3,
    USM_MERGE_FIRST = 4,
    USM_MERGE_USER  = 5 /**< `merge_fn`: one call at a time, neighbours in index order            */
} usm_merge;

typedef enum usm_element {
    USM_ELEMENT_NONE = 0,
    USM_ELEMENT_I32,
    USM_ELEMENT_U32,
    USM_ELEMENT_I64,
    USM_ELEMENT_U64,
    USM_ELEMENT_F32,
    USM_ELEMENT_F64
} usm_element;

/** into[size] and from[size]: into becomes both, `from` being of higher indices.  It must be
 * associative: with a leaf copies are joined by the same tree as sums, else as they come. */
typedef void (*usm_merge_fn)(void *into, const void *from, size_t size, void *user);

/** Where the bytes lie, from `offset` on: in `buffer`, of any context; or, where that is NULL, at
 * `host`, memory that the host may touch, which stays as it is until the launch has ended.  Of
 * CHUNK arguments they begin with those of the range's first index, whatever the launch's offset.
 */
typedef struct usm_split_arg {
    usm_follow      follow;
    usm_access_mode mode; /**< of WHOLE: USM_READ; of CHUNK: READ, WRITE | NO_INIT, READ_WRITE    */
    void           *host;
    usm_buffer     *buffer;
    size_t          offset;
    size_t          size;          /**< of all; of CHUNK 0: stride times the range                */
    size_t          stride;        /**< CHUNK                                                     */
    size_t          before, after; /**< CHUNK, USM_READ: the halo, in indices                     */
    usm_merge       merge;         /**< PRIVATE                                                   */
    usm_element     element;       /**< of SUM, MIN, MAX                                          */
    size_t          leaf;          /**< PRIVATE: indices a copy; chunks are multiples of it       */
    usm_merge_fn    merge_fn;
    void           *merge_user;
} usm_split_arg;

#define USM_SPLIT_VALUE(lvalue)                                                                    \
    {                                                                                              \
        .follow = USM_FOLLOW_VALUE, .host = (void *)(uintptr_t) & (lvalue), .size = sizeof(lvalue) \
    }
#define USM_SPLIT_SCRATCH(bytes)                                                                   \
    {                                                                                              \
        .follow = USM_FOLLOW_SCRATCH, .size = (bytes)                                              \
    }
#define USM_SPLIT_WHOLE(p, bytes)                                                                  \
    {                                                                                              \
        .follow = USM_FOLLOW_WHOLE, .mode = USM_READ, .host = (void *)(uintptr_t)(p),              \
        .size = (bytes)                                                                            \
    }
#define USM_SPLIT_IN(p, bytes_an_index)                                                            \
    {                                                                                              \
        .follow = USM_FOLLOW_CHUNK, .mode = USM_READ, .host = (void *)(uintptr_t)(p),              \
        .stride = (bytes_an_index)                                                                 \
    }
#define USM_SPLIT_OUT(p, bytes_an_index)                                                           \
    {                                                                                              \
        .follow = USM_FOLLOW_CHUNK, .mode = USM_WRITE | USM_NO_INIT, .host = (p),                  \
        .stride = (bytes_an_index)                                                                 \
    }
#define USM_SPLIT_SUM(p, bytes, element_type, indices_a_copy)                                      \
    {                                                                                              \
        .follow = USM_FOLLOW_PRIVATE, .mode = USM_READ_WRITE, .host = (p), .size = (bytes),        \
        .merge = USM_MERGE_SUM, .element = (element_type), .leaf = (indices_a_copy)                \
    }
#define USM_SPLIT_FIRST(p, bytes)                                                                  \
    {                                                                                              \
        .follow = USM_FOLLOW_PRIVATE, .mode = USM_READ_WRITE, .host = (p), .size = (bytes),        \
        .merge = USM_MERGE_FIRST                                                                   \
    }

/* ---- policies ------------------------------------------------------------------------------- */

/** Of one member, for policies. */
typedef struct usm_policy_member {
    double   speed;  /**< items a second, a moving mean of its chunks; 0: not measured yet        */
    double   cost;   /**< seconds that a chunk costs however small it is; 0: not known            */
    double   weight; /**< its share as it was told (usm_policy); 1 otherwise                      */
    double   watts;  /**< while it computes; 0: not known                                         */
    uint64_t chunks; /**< ended                                                                   */
    uint64_t flying; /**< indices under way                                                       */
    bool     is_well;
} usm_policy_member;

typedef struct usm_policy_state {
    size_t                   struct_size;
    uint64_t                 total, remaining; /**< indices; remaining: not given to anybody      */
    uint64_t                 given;            /**< chunks                                        */
    uint32_t                 depth;
    uint32_t                 nmembers;
    const usm_policy_member *members;
    const double            *numbers; /**< of the usm_policy                                      */
    size_t                   nnumbers;
} usm_policy_state;

/** How many indices `member` takes next: a pure function.  It is cut to what remains, and rounded
 * up to the launch's multiple; 0: nothing, as long as another has work under way. */
typedef uint64_t (*usm_policy_fn)(const usm_policy_state *state, uint32_t member);

/** name, or fn where that is set:
 *   "adaptive"       two small chunks to learn the speed, then all that a member has under way
 *                    comes to half of its share of what remains; larger where a chunk's cost would
 *                    be more than 1 % of it, up to the share by (1 + depth)
 *   "static"         one share each by `weights` (1: equal)
 *   "fixed"          numbers[0] indices, or 1/64 of the range
 *   "guided"         remaining * weight share / 2, by `depth` chunks
 *   "fastest"        the member with the best speed takes all, once they are measured
 *   "energy"         the set of members with the most speed under numbers[0] watts (exact
 *                    knapsack), among those as "adaptive"
 * Unset: USM_POLICY, "adaptive" at first. */
typedef struct usm_policy {
    const char   *name;
    usm_policy_fn fn;
    size_t        nnumbers;
    const double *numbers;
    size_t        nweights; /**< by member                                                        */
    const double *weights;
} usm_policy;

/* ---- the launch ----------------------------------------------------------------------------- */

typedef enum usm_parallel_flags {
    USM_PARALLEL_SNAPSHOT = 1u << 0, /**< READ_WRITE chunks are kept until they have ended        */
    USM_PARALLEL_NO_RETRY = 1u << 1, /**< the first failure ends it                               */
    USM_PARALLEL_TUNE     = 1u << 2 /**< the best local size, found on chunks: below              */
} usm_parallel_flags;

/* USM_PARALLEL_TUNE: the kernel's result must not depend on the local size, and local[] is 0.  On
 * devices that are no processors the first chunks are run with one size after the other: what is
 * usual, what the driver chooses, and from the kernel's preferred multiple on each twice the one
 * before, as far as they divide `multiple` (where that is 0, it is a power of two up to 1024 that
 * leaves a thousand of them).  Each is measured three times by the device's clock; the best is used
 * from then on, by later launches, and by other processes with the same USM_CACHE_DIR, device,
 * driver and program.  USM_LOG=info tells which; also where nothing is tuned, and why. */

typedef struct usm_progress {
    double   fraction; /**< 0 to 1, never less than before                                     */
    double   rate;     /**< indices a second, lately                                            */
    double   seconds;  /**< since the launch                                                    */
    double   left;     /**< seconds; < 0: not known                                             */
    uint64_t chunks, rescheduled;
    uint32_t nmembers;
    const double *shares; /**< of what is done, by member                                         */
} usm_progress;
/** One call at a time, from a thread of the library; false ends the launch (USM_E_CANCELLED). */
typedef bool (*usm_progress_fn)(const usm_progress *progress, void *user);

typedef struct usm_parallel_desc {
    size_t               struct_size;
    usm_team_kernel     *kernel;
    uint32_t             dims;
    size_t               offset[3], global[3], local[3]; /**< as usm_launch                       */
    size_t               nargs;
    const usm_split_arg *args;
    uint32_t             split_dim; /**< + 1; 0: the last dimension                               */
    size_t               multiple;  /**< chunks are multiples; 0: the local size, or 1            */
    size_t               min_chunk, max_chunk; /**< indices; 0: the policy's                      */
    usm_policy           policy;
    uint32_t             flags; /**< usm_parallel_flags                                           */
    usm_progress_fn      progress;
    void                *progress_user;
    uint32_t             progress_ms; /**< between calls; 0: 200                                  */
    /** Iterative kernels: argument `state_arg` - 1 is PRIVATE with a leaf of 1 index and
     * USM_MERGE_NONE, and its first int32 is USM_RUN_AGAIN as long as the index has more to do;
     * the chunk is then launched again with what it left there.  0: none. */
    uint32_t state_arg;
    /** A file to which ended chunks go with their private copies, and from which a launch of the
     * same shape, program and inputs goes on (resume_key, below); removed at the end.  Or NULL.
     * With `state_arg`, and where every PRIVATE argument has a leaf, chunks in the middle are kept
     * too, in FILE.states: what they have written and their private copies at the end of a round;
     * such a chunk goes on with the round after it.  Any other that was under way begins anew. */
    const char *resume;
    uint32_t    resume_ms; /**< between writes; 0: 1000                                           */
    /** Teams of ranks: the rank whose arguments' bytes count, and where results land; others may
     * pass NULL for them.  All else is the same on every rank, or the launch is USM_E_INVALID. */
    uint32_t home;
    /** A device is silent once a chunk takes longer than this and 4 times what was predicted (where
     * nothing is known of it yet, 4 times this).  A thread that waits for the launch says so in the
     * log; the device is given nothing, what it has stays its own, as it may still write it, and
     * counts when it answers.  Not 0: usm_parallel_wait() gives up when nothing else is under way.
     * 0: it waits; 10 s.  Over ranks the master's times hold: what a silent rank has, others do. */
    uint32_t silence_ms;
    /** With `resume`: a text that differs wherever the inputs or native code differ, such as a
     * version and the names and times of input files.  NULL: the start reads all arguments that are
     * only read, and the executable or library of native code, and compares them by a hash; where
     * that cannot be (READ_WRITE chunks, more than 256 MiB of inputs, native code made at run
     * time), the launch is USM_E_INVALID without a key.  Images are compared in any case. */
    const char *resume_key;
} usm_parallel_desc;
#define USM_PARALLEL_DESC_INIT                                                                     \
    {                                                                                              \
        .struct_size = sizeof(usm_parallel_desc), .dims = 1, .global = { 1, 1, 1 }                 \
    }
#define USM_RUN_AGAIN 1

/** Of one launch. */
typedef struct usm_parallel_stats {
    size_t   struct_size;
    uint64_t chunks;      /**< that counted                                                       */
    uint64_t rescheduled; /**< given again after a failure, a loss, a silence                     */
    uint64_t duplicated;  /**< given twice at the end, as one was slow                            */
    uint64_t dropped;     /**< results that came when another's had counted                      */
    uint64_t resumed;     /**< that a file of an earlier launch had                               */
    uint64_t wall_ns;
    uint64_t bytes_in, bytes_out; /**< to and from members' memory                               */
    uint64_t sent;                /**< bytes of messages of this rank as the master              */
    double   spread;              /**< (last end - first end of a member) / wall                 */
    uint64_t continued; /**< chunks that were taken up in the middle: `resume` with `state_arg`   */
} usm_parallel_stats;
#define USM_PARALLEL_STATS_INIT                                                                    \
    {                                                                                              \
        .struct_size = sizeof(usm_parallel_stats)                                                  \
    }

typedef struct usm_parallel_run usm_parallel_run;

/** Starts it and does not wait; `desc` and its arrays are copied.  Caller owns *run.
 *   USM_E_ARGUMENTS      an argument that cannot follow the split: the story says which and why
 *   USM_E_INVALID        ranges, a policy of another name, a file of another launch, resume
 *                        without the resume_key that the launch needs; USM_PARALLEL_TUNE with a
 *                        local size, or with SCRATCH
 *   USM_E_NOT_SUPPORTED  READ_WRITE arguments, where chunks may be done again */
USM_API USM_NODISCARD usm_status usm_parallel_start(usm_team *team, const usm_parallel_desc *desc,
                                                    usm_parallel_run **run);
/** Waits.  The status is the launch's: USM_E_CANCELLED, the failure that was left when no member
 * could do a chunk.  stats may be NULL.
 *   USM_E_NOT_READY  it is not over: only silent devices are left (silence_ms).  Memory is in use
 *                    until they answer; wait again, or end the process */
USM_API usm_status usm_parallel_wait(usm_parallel_run *run, usm_parallel_stats *stats);
/** Begins no chunk any more; does not wait. */
USM_API void usm_parallel_cancel(usm_parallel_run *run);
/** Completes with the launch; the caller releases it. */
USM_API USM_NODISCARD usm_status usm_parallel_get_event(usm_parallel_run *run, usm_event **ev);
/** NULL is fine.  Waits, if nobody has, for silent devices too. */
USM_API void usm_parallel_release(usm_parallel_run *run);

/** Start, wait, release: it does not give up. */
USM_API USM_NODISCARD usm_status usm_parallel(usm_team *team, const usm_parallel_desc *desc,
                                              usm_parallel_stats *stats);

USM_END_DECLS
#endif
