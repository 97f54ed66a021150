/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Start and end of the library, and fork. */
#ifndef USM_DEVICE_INIT_H
#define USM_DEVICE_INIT_H

#include "base/part.h"

#include <usm/init.h>

/* Once per process, at the first use: registers the built-in parts (usm__compose), the checks of
 * settings, hooks and fork handlers.  Later calls are cheap. */
usm_status usm__start(void);
/* USM_E_SHUTDOWN between the last usm_shutdown() and the next usm_init(). */
usm_status usm__up(void);
bool       usm__is_down(void);
/* Enclose each use of the result of usm_default_context(), and of blocks that may belong to that
 * context: usm_shutdown() on another thread waits until _leave.  May be nested. */
void usm__default_enter(void);
void usm__default_leave(void);
/* Called after the context was ended: waits until all calls between _enter and _leave that may not
 * have seen the end have returned.  It returns once those calls have ended (init.c).  False: the
 * caller is such a call itself; usm__context_let_go() is then called at its end. */
bool usm__default_await_left(usm_context *ctx);

/* Calls fn with the lock held under which the default context ends, if ctx is the default context;
 * after that end, what fn writes would be another context's. */
bool usm__default_run(const usm_context *ctx, void (*fn)(void *arg), void *arg);

/* Incremented at every fork() that this process descends from. */
unsigned usm__fork_generation(void);

/* src/usm.c: adds every part (base/part.h) and registers the backends and pools. */
void usm__compose(void);

extern const usm_part usm__device_part;

#endif
