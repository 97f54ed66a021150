/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Named atomics: C11 atomics with the memory order in the name, so that a call
 * says what it is for.  Modules may include this header. */
#ifndef USM_BASE_ATOMIC_H
#define USM_BASE_ATOMIC_H

#include <stdatomic.h>

#define usm_load_relaxed(p)     atomic_load_explicit((p), memory_order_relaxed)
#define usm_load_acquire(p)     atomic_load_explicit((p), memory_order_acquire)
#define usm_store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define usm_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
/* Counters nobody synchronises on. */
#define usm_add_relaxed(p, v) atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define usm_sub_relaxed(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_relaxed)
/* A count whose reader (acquire) also sees what was done before it was raised. */
#define usm_add_release(p, v) atomic_fetch_add_explicit((p), (v), memory_order_release)
/* Both: whoever is last sees what the others did. */
#define usm_add_acq_rel(p, v) atomic_fetch_add_explicit((p), (v), memory_order_acq_rel)
/* Reference counts: the drop that reaches 0 sees all that happened before. */
#define usm_ref_take(p) atomic_fetch_add_explicit((p), 1, memory_order_relaxed)
#define usm_ref_drop(p) (atomic_fetch_sub_explicit((p), 1, memory_order_acq_rel) == 1)
/* true when *p was *expected and is now v; else *expected is what was found. */
#define usm_cas_acq_rel(p, expected, v)                                                            \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_acq_rel,            \
                                            memory_order_acquire)
#define usm_swap_acq_rel(p, v) atomic_exchange_explicit((p), (v), memory_order_acq_rel)

/* Between two looks at what another thread will change within nanoseconds. */
static inline void usm_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#endif
