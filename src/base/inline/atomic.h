/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* C11 atomics with the memory order in the name, so that a call shows its purpose.  Modules may
 * include this header. */
#ifndef USM_BASE_ATOMIC_H
#define USM_BASE_ATOMIC_H

#include <stdatomic.h>

#define usm_load_relaxed(p)     atomic_load_explicit((p), memory_order_relaxed)
#define usm_load_acquire(p)     atomic_load_explicit((p), memory_order_acquire)
#define usm_store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define usm_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
/* For counters on which no thread synchronises. */
#define usm_add_relaxed(p, v) atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define usm_sub_relaxed(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_relaxed)
/* For a count whose reader (acquire) also sees everything done before it was incremented. */
#define usm_add_release(p, v) atomic_fetch_add_explicit((p), (v), memory_order_release)
/* Both orders: the last thread sees what the others did. */
#define usm_add_acq_rel(p, v) atomic_fetch_add_explicit((p), (v), memory_order_acq_rel)
/* Reference counts: the drop that reaches 0 sees everything that happened before. */
#define usm_ref_take(p) atomic_fetch_add_explicit((p), 1, memory_order_relaxed)
#define usm_ref_drop(p) (atomic_fetch_sub_explicit((p), 1, memory_order_acq_rel) == 1)
/* True if *p was *expected and is now v; otherwise *expected is the value found. */
#define usm_cas_acq_rel(p, expected, v)                                                            \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_acq_rel,            \
                                            memory_order_acquire)
#define usm_swap_acq_rel(p, v) atomic_exchange_explicit((p), (v), memory_order_acq_rel)

/* Called between two reads of a value that another thread will change within nanoseconds. */
static inline void usm_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#endif
