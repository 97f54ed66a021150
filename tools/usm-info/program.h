/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* --program FILE: which image of a program runs on which device, or why none. */
#ifndef USM_INFO_PROGRAM_H
#define USM_INFO_PROGRAM_H

#include <stdbool.h>

/* The exit status: 0 when at least one selected device runs it, 1 when none
 * does, 2 when the file cannot be used.  `options` go to the OpenCL C compiler. */
int program_report(const char *path, const char *options, bool as_json);

#endif
