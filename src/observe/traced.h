/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The hit path of a thread that only a trace observes: see device/observer.h for the functions. */
#ifndef USM_OBSERVE_TRACED_H
#define USM_OBSERVE_TRACED_H

#include "heap/pool.h"

void *usm__observe_pool_malloc(usm_pool *pool, size_t size);
void *usm__observe_alloc_kind(size_t size, usm_kind kind);
void  usm__observe_pool_free(usm_pool *pool, void *p, const size_t *size);
void  usm__observe_free_any(void *p);

#endif
