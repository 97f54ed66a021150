/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of this sample share: the three tasks, and what each tells about its run. */
#ifndef OUT_OF_CORE_H
#define OUT_OF_CORE_H

#include <usm/usm.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STAGES_MAX 4

/* A part of a task that passes over the data once. */
struct stage {
    const char *name;
    uint64_t    bytes; /* brought in and handed out again, each counted once */
    double      seconds;
};

struct report {
    struct stage stages[STAGES_MAX];
    size_t       nstages;
    uint64_t     before;   /* memory of the process, bytes, that is not for this */
    uint64_t     resident; /* the most that it had meanwhile                    */
};

struct job {
    uint64_t       size; /* bytes of data, at most                                     */
    const char    *file; /* where the data live; NULL: nowhere, they are made and lost */
    struct report *report;
};

/* A task does the same work over libusm's buffers and over an mmap()ed file; the second is there
 * for comparison only.  false: it failed, or its result is wrong, and has said so. */
typedef struct task {
    const char *name, *what;
    bool (*run)(const struct job *job);
    bool (*run_mapped)(const struct job *job);
} task;

extern const task wave_task, transpose_task, difference_task;

/* Prints what failed, with libusm's story; returns false. */
bool failed(const char *what);
/* Prints what is wrong with a result; returns false. */
bool wrong(const char *format, ...) USM_PRINTF(1, 2);

#endif
