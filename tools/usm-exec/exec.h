/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of usm-exec. */
#ifndef USM_TOOLS_EXEC_H
#define USM_TOOLS_EXEC_H

#include <stdbool.h>
#include <stddef.h>

enum { EXEC_FAILED = 1, EXEC_NOT_RUN = 126, EXEC_NOT_FOUND = 127 };

/* ---- target.c: the program that is to be run ---- */

/* True if libraries can be preloaded into it; else why[] says why not.  A program that cannot be found
 * or read is taken for one that can: whoever runs it says what is wrong. */
bool exec_can_preload(const char *program, char *why, size_t size);

/* ---- report.c ---- */

/* Runs the program with a trace, prints the report of all its processes, and ends as the program did:
 * with its exit status, which is returned, or by its signal.  prof: the path of usm-prof. */
int exec_with_report(const char *prof, char **argv);

#endif
