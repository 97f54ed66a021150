/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * One launch, split over a team.
 *
 * The index range of one dimension is cut into chunks.  Each member of the team
 * takes the next chunk when it has room for it; a policy chooses the size.  A
 * chunk is launched with the global offset of its first index, so
 * get_global_id() does not depend on the split.  Each argument says how it
 * follows the split:
 *
 *   whole    all of its bytes, read only, are sent to every member once
 *   chunk    `stride` bytes per index, plus `before` and `after` more indices
 *            around them (a halo: read only, cut off at the ends of the range)
 *   private  each leaf of `leaf` indices (with leaf 0: each chunk) gets `size`
 *            bytes of its own.  They start as a copy of the caller's bytes, or as
 *            the neutral element of the merge, and are merged into the caller's
 *            bytes at the end: by a fixed tree in index order, so that with a
 *            leaf the result is bitwise the same for any split
 *
 * A CPU's OpenCL driver and the host backend use the same cores: a launch uses
 * only one of such members, unless the program listed the team's devices
 * explicitly (usm/team.h).
 *
 * The kernel's pointer to a chunk argument points to the bytes of the chunk's
 * first index: an element's index is get_global_id(d) - get_global_offset(d),
 * in every image.  With a halo, `before` indices (fewer at the beginning of the
 * range) are below the pointer.  The pointer to a private argument points to
 * the copy of the chunk's first leaf.
 *
 *     usm_split_arg args[] = {USM_SPLIT_WHOLE(points, points_size),
 *                             USM_SPLIT_VALUE(n),
 *                             USM_SPLIT_OUT(image, width * sizeof(float))};
 *     usm_parallel_desc d  = USM_PARALLEL_DESC_INIT;
 *     d.kernel = kernel, d.dims = 2, d.global[0] = width, d.global[1] = height;
 *     d.nargs = 3, d.args = args;
 *     usm_parallel(team, &d, NULL);
 *
 * Failures: if the kernel of a chunk fails, another member does the chunk, and
 * the failing member is quarantined.  The same happens to the chunks of a
 * device that is lost, and of a rank that is dead or silent.  The result covers
 * the whole range, or the launch returns an error with a message.  This
 * requires chunks that can be repeated: what they write is only written, or
 * READ_WRITE with USM_PARALLEL_SNAPSHOT.
 *
 * Sizes are bytes; extents are indices. */
#ifndef USM_PARALLEL_H
#define USM_PARALLEL_H

#include <usm/buffer.h>
#include <usm/team.h>

USM_BEGIN_DECLS

/* ---- arguments ------------------------------------------------------------------------------ */

typedef enum usm_follow {
    USM_FOLLOW_VALUE   = 0, /**< `size` bytes at `host`, copied at the launch     */
    USM_FOLLOW_SCRATCH = 1, /**< `size` bytes of local memory for each work-group */
    USM_FOLLOW_WHOLE   = 2,
    USM_FOLLOW_CHUNK   = 3,
    USM_FOLLOW_PRIVATE = 4
} usm_follow;

/** How private copies are merged.  USM_MERGE_FIRST: each copy begins with an
 * int64, the number that it found; < 0: none.  The copy with the lowest number
 * wins, as a whole.  Chunks above that number are not started, or are
 * abandoned; the result does not depend on the split. */
typedef enum usm_merge {
    USM_MERGE_NONE  = 0,
    USM_MERGE_SUM   = 1,
    USM_MERGE_MIN   = 2,
    USM_MERGE_MAX   = 3,
    USM_MERGE_FIRST = 4,
    USM_MERGE_USER  = 5 /**< `merge_fn`: one call at a time, neighbours in index order */
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

/** Merges `from` into `into`, both of `size` bytes; `from` belongs to higher
 * indices.  It must be associative: with a leaf, copies are merged by the same
 * tree as sums, otherwise in the order in which they arrive. */
typedef void (*usm_merge_fn)(void *into, const void *from, size_t size, void *user);

/** An argument of the kernel.  Its bytes are at `offset` in `buffer`, which may
 * be of any context; or, if `buffer` is NULL, at `host`: memory that the host
 * can access and that must not change until the launch has ended.  Those of a
 * CHUNK argument begin with the range's first index, whatever the launch's
 * offset. */
typedef struct usm_split_arg {
    usm_follow      follow;
    usm_access_mode mode; /**< WHOLE: USM_READ; CHUNK: READ, WRITE | NO_INIT, READ_WRITE */
    void           *host;
    usm_buffer     *buffer;
    size_t          offset;
    size_t          size;          /**< of all bytes; CHUNK: 0 means stride times the range   */
    size_t          stride;        /**< CHUNK                                                 */
    size_t          before, after; /**< CHUNK, USM_READ: the halo, in indices                 */
    usm_merge       merge;         /**< PRIVATE                                               */
    usm_element     element;       /**< for SUM, MIN, MAX                                     */
    size_t          leaf;          /**< PRIVATE: indices per copy; chunks are multiples of it */
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

/** What a policy knows of a member. */
typedef struct usm_policy_member {
    double   speed;  /**< items per second, a moving mean over its chunks; 0: not measured yet */
    double   cost;   /**< fixed cost of a chunk of any size, in seconds; 0: unknown            */
    double   weight; /**< its weight in usm_policy.weights; 1 otherwise                        */
    double   watts;  /**< power draw while it computes; 0: unknown                             */
    uint64_t chunks; /**< finished                                                             */
    uint64_t flying; /**< indices in progress                                                  */
    bool     is_well;
} usm_policy_member;

typedef struct usm_policy_state {
    size_t                   struct_size;
    uint64_t                 total, remaining; /**< indices; remaining: not handed out yet */
    uint64_t                 given;            /**< chunks handed out                      */
    uint32_t                 depth;
    uint32_t                 nmembers;
    const usm_policy_member *members;
    const double            *numbers; /**< those of the usm_policy */
    size_t                   nnumbers;
} usm_policy_state;

/** Returns how many indices `member` takes next: a pure function.  The scheduler
 * limits the result to what remains, and rounds it up to the launch's multiple.
 * 0: none, as long as another member has work in progress. */
typedef uint64_t (*usm_policy_fn)(const usm_policy_state *state, uint32_t member);

/** A scheduling policy: `fn` if it is set, otherwise `name`:
 *   "adaptive"  two small chunks to measure the speed; then all chunks that a
 *               member has in progress add up to half of its share of what
 *               remains.  Larger chunks where the fixed cost would exceed 1 % of
 *               one, up to the share divided by (1 + depth)
 *   "static"    one share each, by `weights` (1: equal)
 *   "fixed"     numbers[0] indices, or 1/64 of the range
 *   "guided"    half of the member's weighted share of what remains, in `depth`
 *               chunks
 *   "fastest"   the member with the highest speed takes all, once the speeds are
 *               measured
 *   "energy"    the set of members with the highest speed within numbers[0] watts
 *               (exact knapsack); among them as "adaptive"
 * Neither set: USM_POLICY, whose default is "adaptive". */
typedef struct usm_policy {
    const char   *name;
    usm_policy_fn fn;
    size_t        nnumbers;
    const double *numbers;
    size_t        nweights; /**< by member */
    const double *weights;
} usm_policy;

/* ---- the launch ----------------------------------------------------------------------------- */

typedef enum usm_parallel_flags {
    USM_PARALLEL_SNAPSHOT = 1u << 0, /**< keep the input of READ_WRITE chunks until they have
                                          ended */
    USM_PARALLEL_NO_RETRY = 1u << 1, /**< the first failure ends the launch                       */
    USM_PARALLEL_TUNE     = 1u << 2  /**< find the best local size by measuring chunks: see below */
} usm_parallel_flags;

/* USM_PARALLEL_TUNE: local[] must be 0, and the kernel's result must not depend
 * on the local size.  On devices other than CPUs the first chunks run with one
 * candidate after the other: the usual size, the driver's choice, and the
 * kernel's preferred multiple doubled again and again, as far as the sizes
 * divide `multiple` (if `multiple` is 0, the library uses the largest power of
 * two up to 1024 for which a thousand multiples fit).  Each candidate is
 * measured three times with the device's clock.  The best one is then used by
 * this launch, by later launches, and by other processes with the same
 * USM_CACHE_DIR, device, driver and program.  USM_LOG=info reports it, and also
 * the reason where nothing is tuned. */

typedef struct usm_progress {
    double        fraction; /**< 0 to 1; never decreases                       */
    double        rate;     /**< indices per second, recently                  */
    double        seconds;  /**< since the launch                              */
    double        left;     /**< estimated seconds until the end; < 0: unknown */
    uint64_t      chunks, rescheduled;
    uint32_t      nmembers;
    const double *shares; /**< each member's share of the work that is done */
} usm_progress;
/** Reports progress: one call at a time, from a thread of the library.
 * Returning false ends the launch (USM_E_CANCELLED). */
typedef bool (*usm_progress_fn)(const usm_progress *progress, void *user);

/** For usm_parallel_desc.split_dim and .state_arg: dimension or argument number
 * `n`.  They hold one more, so that 0 leaves them unset. */
#define USM_PARALLEL_NTH(n) ((uint32_t)(n) + 1)

typedef struct usm_parallel_desc {
    size_t               struct_size;
    usm_team_kernel     *kernel;
    uint32_t             dims;
    size_t               offset[3], global[3], local[3]; /**< as in usm_launch */
    size_t               nargs;
    const usm_split_arg *args;
    uint32_t             split_dim; /**< USM_PARALLEL_NTH() of the dimension; 0: the last */
    size_t               multiple;  /**< chunks are multiples of it; 0: the local
                                                    size, or 1 */
    size_t               min_chunk, max_chunk; /**< indices; 0: the policy decides */
    usm_policy           policy;
    uint32_t             flags; /**< usm_parallel_flags */
    usm_progress_fn      progress;
    void                *progress_user;
    uint32_t             progress_ms; /**< between calls; 0: 200 */
    /** For iterative kernels: USM_PARALLEL_NTH() of an argument that is PRIVATE
     * with a leaf of 1 index and USM_MERGE_NONE.  A kernel sets its first int32 to
     * USM_RUN_AGAIN while the index is not finished; the chunk is then launched
     * again, with the argument as the kernel left it.  0: no such argument. */
    uint32_t state_arg;
    /** A file to which finished chunks and their private copies are written, and
     * from which a launch of the same shape, program and inputs continues
     * (resume_key, below); removed at the end.  May be NULL.  With `state_arg`,
     * if every PRIVATE argument has a leaf, unfinished chunks are saved too, in
     * FILE.states: their output and private copies at the end of a round; such
     * a chunk continues with the next round.  Any other unfinished chunk starts
     * again from its beginning. */
    const char *resume;
    uint32_t    resume_ms; /**< between writes; 0: 1000 */
    /** Teams of ranks: the rank whose arguments provide the input and receive
     * the results; other ranks may pass NULL for them.  Everything else must be
     * the same on every rank, or the launch is USM_E_INVALID. */
    uint32_t home;
    /** A device is silent when a chunk takes longer than this, and longer than 4
     * times the prediction (4 times this, if there is no prediction yet).  A
     * thread that waits for the launch then logs it.  A silent device gets no
     * more chunks.  It keeps the one it has, since it may still write it; the
     * result counts when the device answers.  If this is not 0,
     * usm_parallel_wait() gives up when only silent devices have work in
     * progress.  0: it does not give up, and a device counts as silent after 10
     * s.  Over ranks the master's times apply, and the chunks of a silent rank
     * are given to others. */
    uint32_t silence_ms;
    /** With `resume`: a text that differs whenever the inputs or native code
     * differ, such as a version and the names and times of input files.  NULL:
     * when the launch starts, the library reads all arguments that are only
     * read, and the executable or shared library of native code, and compares
     * their hash.  Where that is impossible (READ_WRITE chunks, more than 256
     * MiB of inputs, native code made at run time), the launch is USM_E_INVALID
     * without a key.  Images are always compared. */
    const char *resume_key;
} usm_parallel_desc;
#define USM_PARALLEL_DESC_INIT                                                                     \
    {                                                                                              \
        .struct_size = sizeof(usm_parallel_desc), .dims = 1, .global = { 1, 1, 1 }                 \
    }
#define USM_RUN_AGAIN 1

/** Statistics of one launch. */
typedef struct usm_parallel_stats {
    size_t   struct_size;
    uint64_t chunks;      /**< whose results were used                                          */
    uint64_t rescheduled; /**< handed out again after a failure, a loss or a silence            */
    uint64_t duplicated;  /**< handed out twice near the end, because the first member was slow */
    uint64_t dropped;     /**< results that arrived after another member's had been used        */
    uint64_t resumed;     /**< taken from the file of an earlier launch                         */
    uint64_t wall_ns;
    uint64_t bytes_in, bytes_out; /**< to and from the members' memory                           */
    uint64_t sent;                /**< bytes of messages that this rank sent as the master       */
    double   spread;              /**< (last end - first end of a member) / wall                 */
    uint64_t continued;           /**< chunks continued in the middle: `resume` with `state_arg` */
} usm_parallel_stats;
#define USM_PARALLEL_STATS_INIT                                                                    \
    {                                                                                              \
        .struct_size = sizeof(usm_parallel_stats)                                                  \
    }

typedef struct usm_parallel_run usm_parallel_run;

/** Starts a launch and does not wait; `desc` and its arrays are copied.  The
 * caller owns *run.
 *   USM_E_ARGUMENTS      an argument that cannot follow the split; the error
 *                        message names it and the reason
 *   USM_E_INVALID        ranges; a policy name that does not exist; a file of
 *                        another launch; resume without the resume_key that the
 *                        launch needs; USM_PARALLEL_TUNE with a local size, or
 *                        with SCRATCH
 *   USM_E_NOT_SUPPORTED  READ_WRITE arguments, where chunks may be repeated */
USM_API USM_NODISCARD usm_status usm_parallel_start(usm_team *team, const usm_parallel_desc *desc,
                                                    usm_parallel_run **run);
/** Waits for the launch and returns its status.  stats may be NULL.
 *   USM_E_CANCELLED  usm_parallel_cancel() was called, or the progress function
 *                    returned false
 *   USM_E_NOT_READY  it gave up, because only silent devices are left
 *                    (silence_ms).  They use the memory until they answer: wait
 *                    again, or end the process
 *   another status   the failure of a chunk that no member could do */
USM_API usm_status usm_parallel_wait(usm_parallel_run *run, usm_parallel_stats *stats);
/** Starts no more chunks.  Does not wait. */
USM_API void usm_parallel_cancel(usm_parallel_run *run);
/** Returns an event that completes with the launch; the caller releases it. */
USM_API USM_NODISCARD usm_status usm_parallel_get_event(usm_parallel_run *run, usm_event **ev);
/** Releases the run, or does nothing if it is NULL.  If nobody has waited for
 * the launch, the function waits, for silent devices too. */
USM_API void usm_parallel_release(usm_parallel_run *run);

/** Starts a launch, waits, and releases it.  It does not give up waiting for
 * silent devices. */
USM_API USM_NODISCARD usm_status usm_parallel(usm_team *team, const usm_parallel_desc *desc,
                                              usm_parallel_stats *stats);

USM_END_DECLS
#endif
