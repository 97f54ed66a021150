/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The program cache on disk: one file for each program, named by its key; and for each kernel whose
 * local size was tuned (offload/tune.c).
 *
 * Any number of processes use one folder at a time.  Every failure is harmless:
 * what cannot be read is built, what cannot be written is built again by the
 * next process.  Nothing here leaves a story. */
#ifndef USM_CORE_DISK_CACHE_H
#define USM_CORE_DISK_CACHE_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>

/* Most files in the folder: a write beyond it deletes the oldest. */
#define USM__DISK_CACHE_FILES 512

/* The folder in force; false: there is none (USM_CACHE_DIR=off, no home). */
bool usm__disk_cache_folder(char *folder, size_t size);
/* The payload stored under `key`, a heap block; NULL: none, or a broken file. */
void *usm__disk_cache_read(const usm__hash *key, size_t *size);
void  usm__disk_cache_write(const usm__hash *key, const void *payload, size_t size);

#endif
