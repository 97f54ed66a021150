/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which indices of a range are free, given to somebody, done: the book of one launch.
 *
 * A worker is a member of the team, or on the master of a job, a rank.  No locks, no clock, no
 * memory but its own: the caller guards it, and tells the time.  The same book serves the launch
 * of one process (run.c) and the master of several (ranks_master.c), and the simulation of
 * policies. */
#ifndef USM_OFFLOAD_SCHEDULE_H
#define USM_OFFLOAD_SCHEDULE_H

#include <usm/parallel.h>

typedef struct usm__schedule usm__schedule;

typedef struct usm__chunk {
    uint64_t id;    /* of the indices: a chunk that is given again keeps it                       */
    uint64_t first; /* relative to the launch's offset                                           */
    uint64_t count;
    uint32_t attempt; /* 0, 1, ...                                                               */
} usm__chunk;

typedef struct usm__schedule_params {
    uint64_t      total;    /* indices                                                           */
    uint64_t      multiple; /* of chunks, but the last                                           */
    uint64_t      min_chunk, max_chunk; /* 0: none                                               */
    uint32_t      nworkers, depth;
    uint32_t      train; /* chunks that may travel together, as one of `depth`; 0: 1             */
    usm_policy_fn policy;
    const double *numbers;
    size_t        nnumbers;
    const double *weights; /* by worker; NULL: 1                                                 */
    const double *watts;   /* by worker; NULL: not known                                         */
    bool          may_repeat;
    bool          never_twice; /* at the same time: workers write the same memory.  So what a
                                  silent one has stays its own                                   */
    /* These workers write the launch's own memory when a chunk is given for the first time, and a
     * copy when it is given again: the former is nobody else's until it has ended. */
    uint32_t in_place, nin_place; /* the first of them, how many                                 */
    /* A chunk is overdue after this, or 4 times its prediction, or 4 times this for a worker whose
     * speed is not known yet.  0: a second. */
    uint64_t least_silence_ns;
} usm__schedule_params;

typedef enum usm__verdict {
    USM__CHUNK_COUNTS,  /* the first result of it: it is to be kept                              */
    USM__CHUNK_DROPPED, /* another's counted, or nobody wants it any more                         */
    USM__CHUNK_UNKNOWN  /* never given to that worker                                            */
} usm__verdict;

typedef struct usm__schedule_stats {
    uint64_t done; /* indices, skipped ones too                                                  */
    uint64_t chunks, rescheduled, duplicated, dropped;
} usm__schedule_stats;

/* NULL: no memory.  Arrays are copied. */
usm__schedule *usm__schedule_create(const usm__schedule_params *params);
void           usm__schedule_destroy(usm__schedule *s);

/* What an earlier launch had done, before anything is given; counts as done.  False: not within the
 * range, done twice, not at the launch's multiple; or no memory. */
bool usm__schedule_skip(usm__schedule *s, uint64_t first, uint64_t count);
/* Work for `worker`; false: nothing for it now (usm__schedule_is_over(), or others still work, or
 * are to be asked: after each end, all that have room are). A chunk that comes back is given whole,
 * with its id, or cut where it is more than twice what the policy gives now; its parts have ids of
 * their own. */
bool usm__schedule_take(usm__schedule *s, uint32_t worker, uint64_t now_ns, usm__chunk *chunk);
/* One more for a worker that takes several short ones at a time: only while so much is left that
 * none of the others will have to wait for it at the end. */
bool usm__schedule_take_more(usm__schedule *s, uint32_t worker, uint64_t now_ns, usm__chunk *chunk);
/* It lives, and has got so far: the time of this chunk, and of what waits behind it, begins anew.
 */
void usm__schedule_touch(usm__schedule *s, uint32_t worker, uint64_t id, uint64_t now_ns);
/* compute_ns: of the chunk alone, without waiting for its turn; 0: not measured.  UNKNOWN: no chunk
 * has that id yet. */
usm__verdict usm__schedule_done(usm__schedule *s, uint32_t worker, uint64_t id, uint64_t now_ns,
                                uint64_t compute_ns);
/* It is to be given to another, and this worker is set aside.  False: the launch cannot end any
 * more, for nobody is left who could take what is free, or it may not be repeated. */
bool usm__schedule_failed(usm__schedule *s, uint32_t worker, uint64_t id);
/* All it had is free again; false as above. */
bool usm__schedule_lose(usm__schedule *s, uint32_t worker);
/* It takes nothing more; what it has may end.  False as above. */
bool usm__schedule_set_aside(usm__schedule *s, uint32_t worker);
/* A worker whose chunk is overdue at now_ns is silent: what it has is free, and it gets nothing
 * until it is heard of, by a result or a touch.  Returns how many chunks others may take now:
 * those, and at the end those worth doing twice; they are to be asked to take.  *next_ns: when to
 * call again; UINT64_MAX: nothing is under way.  Where chunks may not be repeated, or never twice
 * at the same time, nothing becomes free. */
unsigned usm__schedule_overdue(usm__schedule *s, uint64_t now_ns, uint64_t *next_ns);
/* Whether it is silent; since_ns: how long it works at its first chunk, which is *chunk. */
bool usm__schedule_is_silent(const usm__schedule *s, uint32_t worker, uint64_t now_ns,
                             usm__chunk *chunk, uint64_t *since_ns);
/* Indices from `first` on, rounded up to the multiple, are not wanted any more (USM_MERGE_FIRST);
 * 0: none are. */
void usm__schedule_cut(usm__schedule *s, uint64_t first);
/* Everything wanted is done. */
bool   usm__schedule_is_over(const usm__schedule *s);
void   usm__schedule_get_stats(const usm__schedule *s, usm__schedule_stats *stats);
double usm__schedule_speed(const usm__schedule *s, uint32_t worker);
/* Wanted indices that nobody has. */
uint64_t usm__schedule_remaining(const usm__schedule *s);
/* Ended ranges below a cut, joined, in order: for files to resume from.  At most cap of them are
 * written; returns how many there are. */
size_t usm__schedule_done_ranges(const usm__schedule *s, uint64_t (*ranges)[2], size_t cap);

/* ---- policy.c, energy.c ------------------------------------------------------------------- */

/* NULL: no policy has that name. */
usm_policy_fn usm__policy_find(const char *name);
/* "adaptive, static, ...", for stories. */
const char *usm__policy_names(void);
/* What a pure function cannot say: numbers out of range, "energy" without a cap, without watts,
 * with a cap that no member fits under, or with more than 64 members.  USM_E_INVALID */
usm_status usm__policy_check(const usm__schedule_params *params);
/* False: `worker` is to have nothing, come what may: by "energy", who alone draws more than the
 * cap, and of whom nothing is known. */
bool usm__policy_takes(const usm__schedule_params *params, uint32_t worker);
/* The subset of n <= 64 items with the most value whose watts, each rounded up to a tenth, are at
 * most cap, as bits: exact, but where memory fails. */
uint64_t usm__knapsack(size_t n, const double *value, const double *watts, double cap);

#endif
