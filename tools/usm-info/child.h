/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The tool runs itself again for everything that a broken driver may kill.
 *
 * A child is started by exec, so nothing that a driver did to this process reaches it.  It gets a
 * scratch folder of its own, because one driver writes files into the working directory.  It
 * reports through child_answer(); what drivers print on stdout and stderr is discarded. */
#ifndef USM_INFO_CHILD_H
#define USM_INFO_CHILD_H

#include <stddef.h>
#include <stdio.h>

typedef enum child_end {
    CHILD_EXITED,    /* code: its exit status */
    CHILD_KILLED,    /* code: the signal */
    CHILD_TIMED_OUT, /* code: seconds */
    CHILD_NOT_RUN    /* code: errno */
} child_end;

typedef struct child_result {
    child_end end;
    int       code;
    char     *answer; /* never NULL, 0-terminated; the caller frees it */
} child_result;

/* Runs usm-info --child WHAT ARGUMENT..., and kills it after `timeout_s`.  `args` ends with NULL
 * and starts with WHAT. */
void child_run(const char *const *args, int timeout_s, child_result *result);
/* Writes "the process was killed: Segmentation fault", or the text for any other end except a
 * success, to the caller's buffer.  Returns buf. */
const char *child_end_text(const child_result *result, char *buf, size_t size);

/* The child's side: main() of `usm-info --child WHAT ...`. */
int child_main(int argc, char **argv);
/* The stream for the child's answer. */
FILE *child_answer(void);
/* Moves into the scratch folder.  Call it before a driver may write files, and after relative paths
 * in the environment were used. */
void child_enter_scratch(void);

/* The tasks of children; each returns the exit status. */
int child_probe_device(int argc, char **argv);     /* probe.c: TERM */
int child_build_program(int argc, char **argv);    /* program.c: TERM FILE OPTIONS */
int child_load_icd(int argc, char **argv);         /* doctor_opencl.c: LIBRARY */
int child_start_level_zero(int argc, char **argv); /* doctor_level_zero.c */
int child_list_devices(int argc, char **argv);     /* inventory.c: [SELECTOR] */

#endif
