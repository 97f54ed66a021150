/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Remembers recent frees and areas for better error messages: they can name a double free, where
 * the address would otherwise only be unknown.  Called where pointers are checked (heap/serve.c,
 * memory.c, place.c, area.c). */
#include "heap/pool.h"

/* ---- recent frees ----------------------------------------------------------------- */

/* A hash table of addresses without chains: each bucket has its last free.  It only improves
 * messages, and never decides whether a block counts as freed. */
#define FREED_SLOTS 4096
static _Atomic(uintptr_t) freed[FREED_SLOTS];

static _Atomic(uintptr_t) *freed_slot(const void *p)
{
    return &freed[((uintptr_t)p * 0x9e3779b97f4a7c15ull) >> 52];
}

void usm__freed_note(const void *p)
{
    usm_store_relaxed(freed_slot(p), (uintptr_t)p);
}

void usm__freed_forget(const void *p)
{
    if (usm__gone_recently(p))
        usm_store_relaxed(freed_slot(p), (uintptr_t)0);
}

bool usm__freed_recently(const void *p)
{
    return p && usm_load_relaxed(freed_slot(p)) == (uintptr_t)p;
}

/* Areas are aligned, so an odd entry can mark an area that was returned with its pool or
 * context. */
void usm__gone_note(const void *base)
{
    if (!usm__freed_recently(base))
        usm_store_relaxed(freed_slot(base), (uintptr_t)base | 1);
}

bool usm__gone_recently(const void *p)
{
    return p && (usm_load_relaxed(freed_slot(p)) | 1) == ((uintptr_t)p | 1);
}
