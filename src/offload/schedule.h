/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The scheduler state of one launch: which indices of its range are free, in progress and done, and
 * which worker has them.
 *
 * A worker is a member of the team or, on the master of a job, a rank.  The module has no lock and
 * no clock, and uses only its own memory: the caller guards the state, and passes the time.  The
 * same code serves the launch of one process (ledger.c), the master of a job (ranks_master.c), and
 * the simulation of policies (tests/offload/policy_sim.c). */
#ifndef USM_OFFLOAD_SCHEDULE_H
#define USM_OFFLOAD_SCHEDULE_H

#include <usm/parallel.h>

typedef struct usm__schedule usm__schedule;

typedef struct usm__chunk {
    uint64_t id;    /* names the indices: a chunk that is handed out again keeps it */
    uint64_t first; /* relative to the launch's offset */
    uint64_t count;
    uint32_t attempt; /* 0, 1, ... */
} usm__chunk;

typedef struct usm__schedule_params {
    uint64_t      total;                /* indices */
    uint64_t      multiple;             /* of chunks, except the last */
    uint64_t      min_chunk, max_chunk; /* 0: none */
    uint32_t      nworkers, depth;
    uint32_t      batch; /* chunks of one batch, which counts once against `depth`; 0: 1 */
    usm_policy_fn policy;
    const double *numbers;
    size_t        nnumbers;
    const double *weights; /* by worker; NULL: 1 */
    const double *watts;   /* by worker; NULL: unknown */
    bool          may_repeat;
    bool          never_twice; /* no chunk is in progress twice at the same time, because workers
                                  write the same memory.  A silent worker therefore keeps its
                                  chunks */
    /* These workers write the launch's own memory at the first attempt at a chunk, and a copy at
     * later ones.  During a first attempt no other worker gets the chunk. */
    uint32_t in_place, nin_place; /* index of the first of them; their number */
    /* A chunk is overdue after 4 times its predicted time, but not before this time has passed; for
     * a worker of unknown speed, after 4 times this time.  0: one second. */
    uint64_t least_silence_ns;
} usm__schedule_params;

typedef enum usm__verdict {
    USM__CHUNK_COUNTS,  /* the first result of the chunk: the caller keeps it */
    USM__CHUNK_DROPPED, /* another result counted, or the indices are no longer wanted */
    USM__CHUNK_UNKNOWN  /* no chunk has that id yet */
} usm__verdict;

typedef struct usm__schedule_stats {
    uint64_t done; /* indices, including skipped ones */
    uint64_t chunks, rescheduled, duplicated, dropped;
} usm__schedule_stats;

/* NULL: no memory.  Arrays are copied. */
usm__schedule *usm__schedule_create(const usm__schedule_params *params);
void           usm__schedule_destroy(usm__schedule *s);

/* Marks indices as done that an earlier launch did, before anything is handed out.  False: the
 * range exceeds the launch's, was done before, or is not cut at multiples; or no memory. */
bool usm__schedule_skip(usm__schedule *s, uint64_t first, uint64_t count);
/* Hands a chunk to `worker`.  False: there is none now.  The launch may be over
 * (usm__schedule_is_over()), or other workers still have chunks or must be asked first: the caller
 * asks all workers that have room after each end.  A chunk that became free again is handed out
 * whole, with its id, or split if it is more than twice as large as the policy gives now; the parts
 * have ids of their own. */
bool usm__schedule_take(usm__schedule *s, uint32_t worker, uint64_t now_ns, usm__chunk *chunk);
/* Hands out one more chunk to a worker that takes batches of short ones: only while so much is left
 * that no other worker will have to wait for this one at the end. */
bool usm__schedule_take_more(usm__schedule *s, uint32_t worker, uint64_t now_ns, usm__chunk *chunk);
/* The worker has reported progress with this chunk: the time allowed for it, and for the chunks
 * that wait behind it, starts again. */
void usm__schedule_touch(usm__schedule *s, uint32_t worker, uint64_t id, uint64_t now_ns);
/* Records a result.  compute_ns: the time of the chunk alone, without its wait for the device; 0:
 * not measured.  UNKNOWN: no chunk has that id yet. */
usm__verdict usm__schedule_done(usm__schedule *s, uint32_t worker, uint64_t id, uint64_t now_ns,
                                uint64_t compute_ns);
/* The worker failed at the chunk: the chunk becomes free, and the worker gets no more.  False: the
 * launch can no longer end, since no worker is left for what is free, or the chunk may not be
 * repeated. */
bool usm__schedule_failed(usm__schedule *s, uint32_t worker, uint64_t id);
/* The worker is lost: all its chunks become free.  False: as above. */
bool usm__schedule_lose(usm__schedule *s, uint32_t worker);
/* The worker gets no more chunks; those it has may end.  False: as above. */
bool usm__schedule_set_aside(usm__schedule *s, uint32_t worker);
/* Looks for silent workers: those with a chunk that is overdue at now_ns.  Their chunks become
 * free, and they get no more until they report a result or progress.  Returns how many chunks other
 * workers may take now: the freed ones and, at the end, those that are worth doing twice.  The
 * caller then asks the workers to take.  *next_ns: when to call again; UINT64_MAX: nothing is in
 * progress.  If chunks may not be repeated, or not done twice at the same time, none are freed. */
unsigned usm__schedule_overdue(usm__schedule *s, uint64_t now_ns, uint64_t *next_ns);
/* Whether the worker is silent.  *chunk: its first chunk; since_ns: how long it has worked on
 * it. */
bool usm__schedule_is_silent(const usm__schedule *s, uint32_t worker, uint64_t now_ns,
                             usm__chunk *chunk, uint64_t *since_ns);
/* Indices from `first` on, rounded up to the multiple, are no longer wanted (USM_MERGE_FIRST); 0:
 * no index is. */
void usm__schedule_cut(usm__schedule *s, uint64_t first);
/* Whether everything that is wanted is done. */
bool   usm__schedule_is_over(const usm__schedule *s);
void   usm__schedule_get_stats(const usm__schedule *s, usm__schedule_stats *stats);
double usm__schedule_speed(const usm__schedule *s, uint32_t worker);
/* The number of wanted indices that no worker has. */
uint64_t usm__schedule_remaining(const usm__schedule *s);
/* Returns the number of ended ranges below a cut, for files to resume from, and writes at most cap
 * of them, joined and in order. */
size_t usm__schedule_done_ranges(const usm__schedule *s, uint64_t (*ranges)[2], size_t cap);

/* ---- policy.c, energy.c ------------------------------------------------------------------- */

/* NULL: no policy has that name. */
usm_policy_fn usm__chunk_policy_find(const char *name);
/* "adaptive, static, ...", for error messages. */
const char *usm__chunk_policy_names(void);
/* Checks what the policies, as pure functions, cannot report: numbers out of range; "energy"
 * without a cap, without watts, with a cap below what every member draws, or with more than 64
 * members.  USM_E_INVALID */
usm_status usm__chunk_policy_check(const usm__schedule_params *params);
/* False: the policy never gives `worker` anything.  "energy" excludes members that draw more than
 * the cap on their own, and members whose power is unknown. */
bool usm__chunk_policy_takes(const usm__schedule_params *params, uint32_t worker);
/* The subset of n <= 64 items with the highest total value among those whose watts, each rounded up
 * to a tenth, sum to at most cap; as bits.  It is exact, unless memory for the exact search
 * fails. */
uint64_t usm__knapsack(size_t n, const double *value, const double *watts, double cap);

#endif
