/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Hooks over any backend: trace, fault, slow (USM_HOOKS).  They are decorators of its functions
 * (observe/decorate.h), which call the functions here before and after each call.
 *
 *   USM_HOOKS="trace;fault:mem_alloc@17;fault:copy@2+=USM_E_DEVICE_LOST;slow:copy=10ms" */
#ifndef USM_OBSERVE_HOOKS_H
#define USM_OBSERVE_HOOKS_H

#include "base/fault.h"
#include "device/backend.h"

#include <stddef.h>
#include <stdint.h>

#define USM__HOOKS_SLOW 16

/* Written once at the start, before the decorators are installed; read only afterwards. */
typedef struct usm__hooks_state {
    bool   trace, order;
    size_t nslow;
    struct {
        char     name[32];
        uint64_t ns;
    } slow[USM__HOOKS_SLOW];
    usm__backend_calls inner; /* decorate.c: the calls below the hooks */
} usm__hooks_state;
extern usm__hooks_state usm__hooks __attribute__((visibility("hidden")));

/* Reads USM_HOOKS, once; before the first call of a backend or transport. */
void usm__hooks_start(void);
/* True if `trace` is among the hooks; it logs blocks as well. */
bool usm__hooks_trace(void);
/* True if a text is valid for USM_HOOKS; otherwise `why` gets what is allowed. */
bool usm__hooks_check(const char *text, char *why, size_t why_size);

/* For decorate.c.  A call that must not fail has a name that ends in "!". */
usm_status usm__hook_enter(const char *backend, const char *call, uint64_t *start_ns);
void       usm__hook_leave(const char *backend, const char *call, uint64_t start_ns, size_t size,
                           usm_status status);
/* Blocks of the program: "block_alloc", "block_free". */
void usm__hook_block(const char *call, const void *p, size_t size);

#endif
