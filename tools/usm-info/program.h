/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* --program FILE: which image of a program runs on which device, or why none does. */
#ifndef USM_INFO_PROGRAM_H
#define USM_INFO_PROGRAM_H

#include <stdbool.h>

/* Returns the exit status: 0 if at least one selected device runs the program, 1 if none does, 2 if
 * the file cannot be used.  `options` go to the OpenCL C compiler. */
int program_report(const char *path, const char *options, bool as_json);

#endif
