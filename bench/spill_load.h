/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The workloads of `usm-bench spill` over buffers: W1 R X W2 M S and the pass over a file; see
 * spill_load.c.  Called by spill_worker.c. */
#ifndef USM_BENCH_SPILL_LOAD_H
#define USM_BENCH_SPILL_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spill_load spill_load;

/* What is told of the accesses that will come. */
typedef enum spill_hint {
    SPILL_HINT_NONE,
    SPILL_HINT_ANNOUNCE,
    SPILL_HINT_SEQUENTIAL,
    SPILL_HINT_RANDOM
} spill_hint;

typedef struct spill_shape {
    bool       is_one;               /* chunks are ranges of one buffer; else each is a buffer   */
    bool       is_managed, is_array; /* ... of managed memory, of malloc()                       */
    bool       is_mapped;            /* ... of a new file without a name, mapped                 */
    size_t     chunk;                /* bytes, a multiple of 8                                   */
    size_t     n;                    /* chunks                                                   */
    spill_hint hint;
} spill_shape;

typedef struct spill_time {
    double   seconds;
    uint64_t bytes; /* of the chunks, each access counted once */
} spill_time;

/* What it needs of its own; no buffer yet.  NULL: out of memory. */
spill_load *spill_load_new(const spill_shape *shape);
/* The one buffer, if the shape has one; of the file `path`, read only, unless that is NULL, as
 * spill_load_fill_file() makes it.  For is_mapped `path` is the file to make.  false and a text: it
 * cannot be had. */
bool spill_load_begin(spill_load *l, const char *path, const char **why);
void spill_load_close(spill_load *l);

/* Runs "W1", "R", "X", "W2", "M", "S", "T" or "check"; `accesses`: of X and M, 0: as many as chunks.
 * false and a text: it failed, or what it read is not what it wrote. */
bool spill_load_run(spill_load *l, const char *name, size_t accesses, spill_time *time,
                    const char **why);

/* The median of the first accesses to blocks that readahead has loaded, us; 0: it is no managed memory.
 * W1 has run. */
double spill_load_touch(const spill_load *l);

/* Writes the chunks that W1 would make to a file, durably, and drops them from the page cache. */
bool spill_load_fill_file(const char *path, const spill_shape *shape);

#endif
