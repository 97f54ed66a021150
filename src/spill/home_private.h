/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of the backing stores: home.c (the common part, and memory that is only
 * read), home_file.c, home_user.c.  No other file includes it. */
#ifndef USM_SPILL_HOME_PRIVATE_H
#define USM_SPILL_HOME_PRIVATE_H

#include "base/inline/list.h"
#include "base/mutex.h"
#include "base/status.h"
#include "spill/flow.h"
#include "spill/home.h"

#include <pthread.h>

typedef struct usm__home_kind {
    /* Starts a read.  It ends with usm__home_end_read(), on any thread, possibly during the
     * call. */
    void (*read)(usm__home *home, usm__io *io);
    /* Called by one thread at a time. */
    usm_status (*commit)(usm__home *home, const usm__dirty_blocks *dirty);
    void (*close)(usm__home *home); /* frees the backing store                               */
} usm__home_kind;

/* The first member of each kind's own structure. */
struct usm__home {
    /* fixed after open */
    const usm__home_kind *kind;
    usm__home_params      params;
    char                  name[48]; /* "home:field.raw"                                      */
    bool                  is_writable;
    uint32_t              trace; /* its number in a trace                                   */

    usm__mutex     lock;
    pthread_cond_t committed;
    /* guarded by lock */
    bool      is_committing;
    usm__flow reads, writes;
    uint64_t  errors;
};

void usm__home_init(usm__home *home, const usm__home_kind *kind, const usm__home_params *params,
                    const char *name);
void usm__home_fini(usm__home *home);
/* The offset in the space at which the transfer begins, and how many of its bytes are within the
 * space: the rest is zeros. */
uint64_t usm__home_offset(const usm__home *home, const usm__io *io);
size_t   usm__home_inside(const usm__home *home, const usm__io *io);
/* Writes the zeros behind the space, counts the transfer, warns of the first failure, and calls
 * io->done. */
void usm__home_end_read(usm__home *home, usm__io *io, usm_status status);

#endif
