/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Backing stores ("homes"): the blocks of a space are first read from a file, from functions of the
 * user, or from memory that is only read.  Clean blocks are dropped and read again from the backing
 * store.  Dirty blocks are evicted to the tiers; only a commit writes them to the backing store. */
#ifndef USM_SPILL_HOME_H
#define USM_SPILL_HOME_H

#include "spill/tier.h"

typedef struct usm__home usm__home;

/* Through this a commit reads the dirty blocks; `index` counts them, 0 .. n-1.  get() loads block
 * `index` into memory and keeps it there until put(); `block` is its number in the space, and each
 * block comes once.  The commit asks for each block once, for one at a time.  A block may change
 * after put(): the commit writes what it held between get() and put().  Blocking. */
typedef struct usm__dirty_blocks {
    size_t n;
    usm_status (*get)(void *arg, size_t index, uint64_t *block, const void **data);
    void (*put)(void *arg, size_t index);
    void *arg;
} usm__dirty_blocks;

typedef struct usm__home_params {
    size_t block_size;
    size_t sector_size;
    size_t size; /* of the space, bytes; the last block ends there                             */
} usm__home_params;

/* The file that usm_buffer_open() opens.  *size (0: up to the file's end) becomes the size.  A
 * journal beside the file is replayed first. */
usm_status usm__home_open_file(const char *path, uint64_t offset, size_t *size,
                               usm_access_mode mode, size_t block_size, usm__home **home);
usm_status usm__home_open_user(const usm_home_ops *ops, void *data, const usm__home_params *params,
                               usm__home **home);
/* A backing store in memory, which is only read. */
usm_status usm__home_open_memory(const void *data, const usm__home_params *params,
                                 usm__home **home);
/* pre: no transfer or commit of it is under way. */
void     usm__home_close(usm__home *home);
uint32_t usm__home_trace(const usm__home *home); /* its number in a trace                      */
bool     usm__home_is_writable(const usm__home *home);
/* Reads sectors of io->block; sectors behind the end of the space become zeros.  Works as
 * usm__tiers_read(); the error message of a failure belongs to the thread that calls io->done. */
void usm__home_read(usm__home *home, usm__io *io);
/* Makes the dirty blocks durable: all of them, or after a crash or failure each block has its old
 * or its new content; see spill/journal.h.  After a failure the backing store can still be read,
 * and the commit can be repeated.  Commits of several threads run one after the other. */
usm_status usm__home_commit(usm__home *home, const usm__dirty_blocks *dirty);
void       usm__home_get_stats(usm__home *home, usm_tier_stats *stats);

#endif
