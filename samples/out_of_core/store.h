/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A task's data: a buffer of its own, or one that lives in a file and goes on where an earlier run
 * was interrupted; see store.c. */
#ifndef OUT_OF_CORE_STORE_H
#define OUT_OF_CORE_STORE_H

#include "out_of_core.h"

/* How far the work on the data in a file has got. */
typedef struct store_state {
    uint64_t stage; /* of the task: 0, 1, ...              */
    uint64_t done;  /* steps of that stage that are durable */
} store_state;

typedef struct store {
    usm_buffer *data; /* the first page of a file's is the store's: use store_offset() */
    store_state state;
    const char *task;
    uint64_t    size; /* bytes of data */
    bool        is_file;
} store;

/* `size` bytes for the task `name`, in the job's file if it has one.  false: it has said why. */
bool store_open(store *s, const struct job *job, const char *name, uint64_t size);
void store_close(store *s);

/* Where byte `offset` of the data lies in the buffer. */
size_t store_offset(const store *s, uint64_t offset);

/* From now on an interrupted run goes on after `done` steps of `stage`.  Does nothing without a
 * file.
 */
bool store_commit(store *s, uint64_t stage, uint64_t done);
/* The first step of `stage` that is to be done; `steps` when all have been. */
uint64_t store_first_step(const store *s, uint64_t stage, uint64_t steps);
/* Is it time to commit after step `step` of `steps`?  Four times a stage. */
bool store_is_due(const store *s, uint64_t step, uint64_t steps);

#endif
