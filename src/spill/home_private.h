/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the kinds of homes share: home.c (what is common, and memory that is only read),
 * home_file.c, home_user.c.  Nobody else includes it. */
#ifndef USM_SPILL_HOME_PRIVATE_H
#define USM_SPILL_HOME_PRIVATE_H

#include "base/inline/list.h"
#include "base/mutex.h"
#include "base/status.h"
#include "spill/flow.h"
#include "spill/home.h"

#include <pthread.h>

typedef struct usm__home_kind {
    /* Ends with usm__home_end_read(), sooner or later, on any thread. */
    void (*read)(usm__home *home, usm__io *io);
    /* One at a time. */
    usm_status (*commit)(usm__home *home, const usm__dirty_blocks *dirty);
    void (*close)(usm__home *home); /* frees it                                              */
} usm__home_kind;

/* The beginning of each kind's own structure. */
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
/* Where the transfer begins in the space, and how many of its bytes lie there: the rest is zeros.
 */
uint64_t usm__home_offset(const usm__home *home, const usm__io *io);
size_t   usm__home_inside(const usm__home *home, const usm__io *io);
/* Zeros behind the space, statistics, a warning of the first failure; then io->done. */
void usm__home_end_read(usm__home *home, usm__io *io, usm_status status);

#endif
