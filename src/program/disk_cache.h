/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The program cache on disk: one file for each program, named by its key, and one for each kernel
 * whose local size was tuned (offload/tune.c).
 *
 * Any number of processes may use one folder at the same time.  Every failure is harmless: a
 * program that cannot be read is built, and one that cannot be written is built again by the next
 * process.  No function here leaves an error message. */
#ifndef USM_PROGRAM_DISK_CACHE_H
#define USM_PROGRAM_DISK_CACHE_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>

/* Maximum number of files in the folder: a write beyond it deletes the oldest. */
#define USM__DISK_CACHE_FILES 512

/* Returns the folder in use; false: there is none (USM_CACHE_DIR=off, or no home directory). */
bool usm__disk_cache_folder(char *folder, size_t size);
/* Returns the payload stored under `key`, a heap block; NULL: there is none, or the file is
 * damaged. */
void *usm__disk_cache_read(const usm__hash *key, size_t *size);
void  usm__disk_cache_write(const usm__hash *key, const void *payload, size_t size);

/* Called before a program is built that was not found: while another process builds the same one,
 * waits until it ends, a minute at most.  Then the program is to be looked for again.  Returns what
 * _turn_end() takes. */
int  usm__disk_cache_turn(const usm__hash *key);
void usm__disk_cache_turn_end(int turn);

#endif
