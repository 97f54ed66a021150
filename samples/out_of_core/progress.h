/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How far a stage has got, how fast, how long it will take; see progress.c. */
#ifndef OUT_OF_CORE_PROGRESS_H
#define OUT_OF_CORE_PROGRESS_H

#include "out_of_core.h"

/* No line is shown any more. */
void progress_quiet(void);

/* Bytes of memory that the process has at this moment; 0 where the system does not tell. */
uint64_t progress_memory(void);

/* A stage over `bytes` of data begins; it is entered into the report when it ends. */
void progress_begin(struct report *r, const char *name, uint64_t bytes);
void progress_add(uint64_t bytes);
void progress_end(void);

#endif
