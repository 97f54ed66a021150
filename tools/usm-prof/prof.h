/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of usm-prof. */
#ifndef USM_PROF_PROF_H
#define USM_PROF_PROF_H

#include "profile/analyse.h"

enum { PROF_FINE = 0, PROF_FAILED = 1, PROF_MISUSED = 2, PROF_NO_MEMORY = 3 };

typedef struct record_options {
    const char *file;   /* as USM_TRACE */
    const char *stacks; /* as USM_TRACE_STACKS, or NULL */
    const char *ring;   /* as USM_TRACE_RING, or NULL */
} record_options;

/* record.c: runs the program with a trace, and prints where the trace is.  Returns the program's
 * exit status, 128 + the number of a signal, or 127 if the program cannot be run; PROF_FAILED if it
 * succeeded and left no trace. */
int record(const record_options *options, char **argv);

/* report.c and report_json.c: the analysis as text and as JSON, to stdout.  `top` is the largest
 * number of call sites and tags shown; 0: all. */
void report_text(const char *path, const usm__profile *t, const usm__analysis *a, size_t top);
void report_json(const char *path, const usm__profile *t, const usm__analysis *a);

/* diff.c: what changed between two traces, to stdout.  false: no memory. */
bool diff(char *const *files, const usm__profile *const *traces,
          const usm__analysis *const *analyses, bool as_json, size_t top);

#endif
