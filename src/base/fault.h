/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fault points: the n-th call of a name fails.  Armed by USM_HOOKS ("fault:mem_alloc@17",
 * "fault:os.mmap@3+", "fault:*@5") or by tests.  A name that ends in "*" counts every point that
 * begins with it.  "*" alone counts all points except "die.*", at which no call fails: the process
 * ends itself there.  Costs one predicted branch if nothing is armed.  Thread-safe. */
#ifndef USM_BASE_FAULT_H
#define USM_BASE_FAULT_H

#include "base/mutex.h"

#include <usm/status.h>

#include <errno.h>
#include <stdatomic.h>

#define USM__FAULT_RULES 16

typedef struct usm__fault_rule {
    char       name[48];
    uint64_t   n; /* 0: only counts */
    uint64_t   count;
    bool       onwards;
    usm_status status;
} usm__fault_rule;

typedef void usm__fault_armed_fn(void);

typedef struct usm__fault_state {
    atomic_int                     armed; /* nrules; written with the lock held */
    _Atomic(usm__fault_armed_fn *) on_arm;
    usm__mutex                     lock;
    /* guarded by lock */
    usm__fault_rule rules[USM__FAULT_RULES];
    int             nrules;
    uint64_t        fired;
    uint64_t        first_count; /* of the first rule; kept after usm__fault_disarm_all() */
} usm__fault_state;
extern usm__fault_state usm__faults __attribute__((visibility("hidden")));

bool usm__fault_hit_slow(const char *name, usm_status *status);

/* True if the call `name` must fail now.  *status (may be NULL) gets the status that the rule names
 * ("fault:copy@2=USM_E_DEVICE_LOST"); otherwise it is unchanged. */
static inline bool usm__fault_hit(const char *name, usm_status *status)
{
    return __builtin_expect(atomic_load_explicit(&usm__faults.armed, memory_order_relaxed), 0) &&
           usm__fault_hit_slow(name, status);
}

int usm__fault_errno_of(usm_status status, int usual);
/* The same for a system call, whose failure is an errno value: that of the status, else `usual`.
 * Tests wrap usm__fault_hit_slow(), which GNU ld does in other objects than its own only. */
static inline bool usm__fault_errno(const char *name, int usual)
{
    usm_status status = USM_OK;

    if (!usm__fault_hit(name, &status))
        return false;
    errno = usm__fault_errno_of(status, usual);
    return true;
}

/* Counts calls of `name` from now on and makes the n-th fail (1: the next); `onwards`: and all
 * after it.  n = 0 only counts.  status USM_OK: the call's usual failure.  At most 16 rules; false
 * if there is no room. */
bool usm__fault_arm(const char *name, uint64_t n, bool onwards, usm_status status);
/* Sets the function that is called when a rule is armed, and now if one is; there is one, set when
 * settings are final: the calls of a backend are seen only through decorators. */
void usm__fault_on_arm(usm__fault_armed_fn *fn);
/* Removes all rules.  The two counts below can still be read, until a rule is armed. */
void usm__fault_disarm_all(void);
/* The number of calls that were made to fail, and the number that the first rule has counted. */
uint64_t usm__fault_fired(void);
uint64_t usm__fault_counted(void);
/* Between these calls (they nest) faults on this thread neither fire nor count: for failures that
 * are harmless by design, such as a cache file that cannot be written. */
void usm__fault_benign_begin(void);
void usm__fault_benign_end(void);

/* Called when a fault fires: a function for a debugger's breakpoint. */
void usm__fault_breakpoint(void);

#endif
