/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-replay --spill: what the files of the simulator share.  A workload is a list of accesses to
 * blocks, in phases.  It is run through the engine's own policy and prefetcher (src/spill/policy.h,
 * prefetch.h) over a model of a device. */
#ifndef USM_REPLAY_SPILL_H
#define USM_REPLAY_SPILL_H

#include <usm/buffer.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPILL_PHASES 64
#define SPILL_NAME   64

typedef struct spill_access {
    uint32_t block;
    uint32_t mode; /* usm_access_mode */
} spill_access;

/* Blocks [first, first + blocks) are neighbours in one buffer. */
typedef struct spill_range {
    uint32_t first, blocks;
} spill_range;

typedef struct spill_phase {
    char   name[SPILL_NAME];
    size_t end; /* the phase's accesses end here; they begin at the end of the phase before */
} spill_phase;

typedef struct spill_workload {
    const char   *name;
    uint32_t      blocks;
    uint64_t      block_size;
    spill_access *accesses;
    size_t        n, cap;
    spill_range  *ranges; /* by first */
    size_t        nranges, ranges_cap;
    spill_phase   phases[SPILL_PHASES];
    size_t        nphases;
    bool          is_recorded;
    uint64_t      lost; /* events missing in the trace */
} spill_workload;

typedef struct spill_options {
    uint32_t frames, blocks, rounds, window, depth;
    uint64_t seed, block_size, bandwidth; /* bandwidth: bytes per second */
    double   latency_ns, work_ns;         /* of a transfer; of the program at each access */
    bool     as_json;
} spill_options;
#define SPILL_OPTIONS_INIT                                                                         \
    {                                                                                              \
        256, 2048, 4, 0, 16, 88172645463325252u, 1 << 20, (uint64_t)2000 << 20, 35e3, 66e3, false  \
    }

typedef struct spill_counts {
    uint64_t accesses, hits, guessed, missed; /* hits + guessed (hits of readahead) + missed =
                                                 accesses */
    uint64_t waited;                          /* accesses of guessed and missed that waited */
    uint64_t reads, writes;
    uint64_t ahead, wasted; /* reads by readahead; those of them that were never used */
    double   ns;
    bool     has_io; /* reads and the fields below are known */
} spill_counts;

/* ---- spill_workload.c, spill_trace.c ---------------------------------------------------- */

/* Makes the workload that `spec` names: generators joined by '+', or a trace.  False, with the
 * reason in `why`. */
bool spill_workload_make(const char *spec, const spill_options *o, spill_workload *w, char *why,
                         size_t why_size);
void spill_workload_free(spill_workload *w);
/* Prints the names of generators, a line each with what it does, for the help. */
void spill_workload_list(void);
/* False: no memory. */
bool spill_workload_add(spill_workload *w, uint32_t block, uint32_t mode);
bool spill_workload_range(spill_workload *w, uint32_t first, uint32_t blocks);
bool spill_workload_read(spill_workload *w, const char *path, char *why, size_t why_size);

/* The phase of access i; `phase` is that of an earlier access. */
static inline size_t spill_phase_of(const spill_workload *w, size_t i, size_t phase)
{
    while (i >= w->phases[phase].end)
        phase++;
    return phase;
}

/* ---- spill_run.c: the engine's code; spill_reference.c: other policies --------------------- */

/* Results by phase.  False: no memory. */
bool spill_run(const spill_workload *w, const spill_options *o, bool with_guesses,
               spill_counts *counts);

typedef bool    spill_reference(const spill_workload *w, uint32_t frames, spill_counts *counts);
spill_reference spill_opt, spill_lru, spill_mru, spill_clock;

/* ---- spill_main.c -------------------------------------------------------------------------- */

int spill_main(const char *spec, const spill_options *o);

#endif
