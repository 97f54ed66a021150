/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of usm-replay: a log as a list of operations, and the results of replaying
 * it on a pool. */
#ifndef USM_REPLAY_REPLAY_H
#define USM_REPLAY_REPLAY_H

#include <usm/usm.h>

#include <stdbool.h>
#include <stdint.h>

enum { REPLAY_FINE = 0, REPLAY_FAILED = 1, REPLAY_OOM = 3 }; /* exit statuses */

#define REPLAY_FREE UINT64_MAX /* the size of an operation that frees */

/* Blocks are numbered in the order of their allocation. */
typedef struct operation {
    uint64_t size;
    uint32_t block, thread; /* threads from 0 */
    uint64_t event;         /* the log's own number, of the line or of the event */
} operation;

typedef struct replay_log {
    const char *path, *format; /* format: "libusm trace", "RMM log", "Umpire log" */
    const char *unit;          /* what `event` counts: "line" or "event" */
    operation  *operations;
    size_t      n, cap;
    uint32_t    blocks, threads;
    uint64_t    live_peak;   /* bytes asked for */
    uint64_t    failed;      /* allocations that failed when the log was written */
    uint64_t    left_out;    /* lines that could not be read */
    uint64_t    unmatched;   /* frees of blocks whose allocation is not in the log */
    char        damage[400]; /* the first thing that is wrong; "" = nothing */
} replay_log;

/* ---- load.c, and one file for each format ------------------------------------------ */

/* Reads the log as far as possible.  False: nothing of it can be replayed, and `why` has the
 * reason.  `only_pool`: of a trace, only this pool's blocks; 0: all. */
bool log_load(const char *path, uint32_t only_pool, replay_log *log, char *why, size_t why_size);
void log_free(replay_log *log);

/* For the files of formats.  An address that is allocated again before its free counts twice:
 * Umpire gives one address to several blocks of size 0.  `space` distinguishes processes.  False:
 * no memory. */
typedef struct loader loader;
bool loader_alloc(loader *l, uint64_t space, uint64_t address, uint64_t size, uint64_t thread,
                  uint64_t event);
bool loader_free(loader *l, uint64_t space, uint64_t address, uint64_t thread, uint64_t event);
/* Records a line that cannot be read: the first one is reported. */
void loader_wrong(loader *l, uint64_t event, const char *what);
/* Records an allocation that failed in the program itself. */
void loader_failed(loader *l);
/* Calls fn for each line, from 1, which returns what is wrong with it or NULL; *memory false: out of
 * memory.  As a log_reader. */
typedef const char *loader_line_fn(loader *l, char *line, uint64_t at, bool *memory);
bool loader_lines(loader *l, const char *path, loader_line_fn *fn, char *why, size_t why_size);
/* With known block numbers: for traces, whose events are matched already. */
bool        loader_add(loader *l, uint64_t size, uint32_t block, uint64_t thread, uint64_t event);
replay_log *loader_log(loader *l);

typedef bool log_reader(loader *l, const char *path, uint32_t only_pool, char *why,
                        size_t why_size);
log_reader   log_read_trace, log_read_rmm, log_read_umpire;

/* ---- run.c ---------------------------------------------------------------------------- */

typedef struct replay_options {
    usm_kind    kind;
    const char *device;     /* selector */
    uint64_t    device_mem; /* 0: what the device has */
    uint64_t    area_size;  /* 0: the pool's preference */
    uint64_t    budget;     /* 0: the log is replayed */
    unsigned    repeat;
    uint32_t    only_pool;
    bool        threads, no_map, as_json, fails;
} replay_options;

typedef struct replay_result {
    const char *pool;
    char        error[400]; /* why the pool could not be tried; "" = it was */
    uint64_t    allocations, failed;
    uint64_t    live_peak, reserved_peak, driver_allocs, driver_frees;
    double      ns_pair, ns_pair_median; /* thread CPU time: minimum, median of the repetitions */
    /* the first allocation that found no memory; oom_size 0: none */
    uint64_t oom_event, oom_size, oom_live, oom_reserved, oom_largest_free;
} replay_result;

/* `pool` as in USM_POOL: "slab,area_size=32M". */
void replay_run(const replay_log *log, const char *pool, const replay_options *o,
                replay_result *result);

/* ---- budget.c ----------------------------------------------------------------------------- */

/* Prints whether the log stays within o->budget, and who held the memory if not.  Returns the exit
 * status: REPLAY_FAILED if it does not and o->fails, or if the log cannot be read. */
int budget_main(const char *path, const replay_options *o);

/* ---- print.c ------------------------------------------------------------------------------ */

void        print_text(const replay_log *log, const replay_options *o, const replay_result *results,
                       size_t n);
void        print_json(const replay_log *log, const replay_options *o, const replay_result *results,
                       size_t n);
const char *kind_name(usm_kind kind);

#endif
