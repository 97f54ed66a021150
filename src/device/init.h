/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Start and end of the library, and fork.  Parts above the core that must be called then have hooks
 * here, which src/usm.c sets. */
#ifndef USM_DEVICE_INIT_H
#define USM_DEVICE_INIT_H

#include <usm/init.h>
#include <usm/pool_ops.h>

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

/* The slots by which usm_alloc() and related functions find the default context's pools: the
 * usm_pool.alloc_slot for each kind, 0 while there is none. */
extern _Atomic(uint8_t) usm__default_slots[4] __attribute__((visibility("hidden")));
void                    usm__default_slot_set(const usm_pool *pool);

/* Incremented at every fork() that this process descends from. */
unsigned usm__fork_generation(void);

/* Hooks for the parts above the core, set by src/usm.c; NULL: none. */
/* fork(): called twice in each phase, for the locks that rank below those of contexts, and for
 * those that rank above the pools'. */
extern void (*usm__fork_above)(usm_fork_phase phase, bool before_contexts);
/* Called when the last user of a context has gone. */
extern void (*usm__context_above)(usm_context *ctx);

/* src/usm.c: names every part and connects them. */
void usm__compose(void);

#endif
