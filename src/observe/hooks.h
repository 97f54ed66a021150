/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Hooks over any backend: trace, fault, slow (USM_HOOKS).  Every call of a backend goes through
 * device/backend.h, which calls the functions here before and after it.  Without hooks this costs
 * one predicted branch.
 *
 *   USM_HOOKS="trace;fault:mem_alloc@17;fault:copy@2+=USM_E_DEVICE_LOST;slow:copy=10ms" */
#ifndef USM_OBSERVE_HOOKS_H
#define USM_OBSERVE_HOOKS_H

#include "base/fault.h"

#include <stddef.h>
#include <stdint.h>

extern atomic_int usm__hooks_on;

/* Reads USM_HOOKS, once; before the first call of a backend or transport. */
void usm__hooks_start(void);
/* True if `trace` is among the hooks; it logs blocks as well. */
bool usm__hooks_trace(void);
/* True if a text is valid for USM_HOOKS; otherwise `why` gets what is allowed. */
bool usm__hooks_check(const char *text, char *why, size_t why_size);

usm_status usm__hook_enter_slow(const char *backend, const char *call, uint64_t *start_ns);
void usm__hook_leave_slow(const char *backend, const char *call, uint64_t start_ns, size_t size,
                          usm_status status);
/* Blocks of the program: "block_alloc", "block_free". */
void usm__hook_block_slow(const char *call, const void *p, size_t size);

static inline bool usm__hooked(void)
{
    return __builtin_expect(atomic_load_explicit(&usm__hooks_on, memory_order_relaxed) |
                                atomic_load_explicit(&usm__faults_armed, memory_order_relaxed),
                            0);
}

static inline void usm__hook_block(const char *call, const void *p, size_t size)
{
    if (usm__hooked())
        usm__hook_block_slow(call, p, size);
}

#endif
