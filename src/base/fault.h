/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fault points: the n-th call of a name fails.  Armed by USM_HOOKS
 * ("fault:mem_alloc@17", "fault:os.mmap@3+", "fault:*@5") or by tests.  A name
 * that ends in "*" counts every point that begins so; "*" counts all but those that begin with
 * "die.": there no call fails, the process ends itself.  One
 * predicted branch when nothing is armed.  Thread-safe. */
#ifndef USM_BASE_FAULT_H
#define USM_BASE_FAULT_H

#include <usm/status.h>

#include <stdatomic.h>

extern atomic_int usm__faults_armed; /* how many rules there are */

bool usm__fault_hit_slow(const char *name, usm_status *status);

/* Whether the call `name` shall fail now. *status (may be NULL) is set to what a
 * rule asks for ("fault:copy@2=USM_E_DEVICE_LOST"), else left alone. */
static inline bool usm__fault_hit(const char *name, usm_status *status)
{
    return __builtin_expect(atomic_load_explicit(&usm__faults_armed, memory_order_relaxed), 0) &&
           usm__fault_hit_slow(name, status);
}

/* Counts calls of `name` from now on; the n-th (1 = next) fails; `onwards`: and
 * all after it.  n = 0 only counts.  status USM_OK: the call's usual failure.
 * At most 16 rules; false when there is no room. */
bool usm__fault_arm(const char *name, uint64_t n, bool onwards, usm_status status);
/* Forgets all rules.  What follows can still be read, until a rule is armed. */
void usm__fault_disarm_all(void);
/* How many calls were made to fail, and how many the first rule has counted. */
uint64_t usm__fault_fired(void);
uint64_t usm__fault_counted(void);
/* While > 0 on this thread faults neither fire nor count: for failures that are
 * harmless by design (a cache file that cannot be written). */
void usm__fault_benign_begin(void);
void usm__fault_benign_end(void);

/* Called when a fault fires: a place for a debugger's breakpoint. */
void usm__fault_breakpoint(void);

#endif
