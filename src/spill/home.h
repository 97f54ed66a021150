/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Homes: where the blocks of a space come from in the first place: a file, functions of the user,
 * memory that is only read.  Clean blocks are dropped and read again from here; dirty ones leave
 * memory to the tiers, and come home by a commit alone. */
#ifndef USM_SPILL_HOME_H
#define USM_SPILL_HOME_H

#include "spill/tier.h"

typedef struct usm__home usm__home;

/* How a commit looks at the dirty blocks; `index` counts them, 0 .. n-1.  get() brings block
 * `index` into memory and keeps it there until put(): `block` is its number in the space, each
 * comes once. Each is asked for once, one at a time, and may change after put(): what it was in
 * between is what comes home.  Blocking. */
typedef struct usm__dirty_blocks {
    size_t n;
    usm_status (*get)(void *arg, size_t index, uint64_t *block, const void **data);
    void (*put)(void *arg, size_t index);
    void *arg;
} usm__dirty_blocks;

typedef struct usm__home_params {
    size_t block_size;
    size_t sector_size;
    size_t size; /* of the space, bytes; the last block is cut short by it                     */
} usm__home_params;

/* What usm_buffer_open() opens.  *size (0: up to the file's end) becomes the size.  A journal
 * beside the file is replayed first. */
usm_status usm__home_open_file(const char *path, uint64_t offset, size_t *size,
                               usm_access_mode mode, size_t block_size, usm__home **home);
usm_status usm__home_open_user(const usm_home_ops *ops, void *data, const usm__home_params *params,
                               usm__home **home);
/* Memory that is only read. */
usm_status usm__home_open_memory(const void *data, const usm__home_params *params,
                                 usm__home **home);
/* Nothing of it is under way. */
void     usm__home_close(usm__home *home);
uint32_t usm__home_trace(const usm__home *home); /* its number in a trace                      */
bool     usm__home_is_writable(const usm__home *home);
/* Fetches sectors of io->block; behind the end of the space come zeros.  As usm__tiers_read(); the
 * story of a failure is that of the thread that calls io->done. */
void usm__home_read(usm__home *home, usm__io *io);
/* Makes the dirty blocks durable, all or (after a crash, a failure) each old or new: see
 * spill/journal.h.  On failure the home may be read on, and the commit repeated.  Commits of
 * several threads come one after the other. */
usm_status usm__home_commit(usm__home *home, const usm__dirty_blocks *dirty);
void       usm__home_get_stats(usm__home *home, usm_tier_stats *stats);

#endif
