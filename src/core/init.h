/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Start and end of the library, and fork.  The parts above the core put what
 * they need to be told into the hook points here: src/usm.c fills them. */
#ifndef USM_CORE_INIT_H
#define USM_CORE_INIT_H

#include <usm/init.h>
#include <usm/pool_ops.h>

/* Once per process, on first use: registers what is built in (usm__compose),
 * settings' checks, hooks, fork handlers.  Cheap when done. */
usm_status usm__start(void);
/* USM_E_SHUTDOWN between the last usm_shutdown() and the next usm_init(). */
usm_status usm__up(void);
bool       usm__is_down(void);
/* Around the use of what usm_default_context() gives, and of blocks that may be its: usm_shutdown()
 * on another thread waits for the end.  May be nested. */
void usm__default_enter(void);
void usm__default_leave(void);
/* The context was ended: until nobody is between _enter and _leave who may not have seen it.  Ends
 * when the calls that were under way have ended (init.c).  False: the caller is such a call itself;
 * usm__context_let_go() comes at its end. */
bool usm__default_await_left(usm_context *ctx);

/* The slots by which usm_alloc() and family find the default context's pools: usm_pool.alloc_slot
 * of each kind, 0 while there is none. */
extern _Atomic(uint8_t) usm__default_slots[4] __attribute__((visibility("hidden")));
void                    usm__default_slot_set(const usm_pool *pool);

/* Grows with every fork() this process descends from. */
unsigned usm__fork_generation(void);

/* Hook points of the parts above the core, filled by src/usm.c; NULL: there are none. */
/* fork(): called twice in each phase, for the locks that rank below those of contexts, and for
 * those that rank above the pools'. */
extern void (*usm__fork_above)(usm_fork_phase phase, bool before_contexts);
/* The last user of a context has gone. */
extern void (*usm__context_above)(usm_context *ctx);

/* src/usm.c: names every part and plugs them together. */
void usm__compose(void);

#endif
