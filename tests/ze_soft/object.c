/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The handles of the execution side: made, checked, destroyed.  Called by queue.c, list.c, fence.c,
 * pool.c and event.c.
 *
 * A destroyed object stays readable until 64 others were destroyed: a program that
 * uses a dead handle is told so and does not read freed memory. */
#include "exec.h"

#include <stdlib.h>

#define NKEPT 64

static _Atomic uint64_t live;
static pthread_mutex_t  lock = PTHREAD_MUTEX_INITIALIZER;
static void            *kept[NKEPT]; /* a ring of dead objects, guarded by lock               */
static size_t           oldest;

uint64_t soft_exec_live(void)
{
    return atomic_load(&live);
}

void *exec_object_new(soft_type type, size_t size)
{
    soft_handle *object = calloc(1, size);

    if (!object)
        return NULL;
    atomic_store(&object->type, type);
    atomic_fetch_add(&live, 1);
    return object;
}

void *exec_object_of(void *h, soft_type type)
{
    soft_handle *object = h;

    return object && atomic_load(&object->type) == (uint32_t)type ? object : NULL;
}

void exec_object_retire(void *object)
{
    soft_handle *h = object;

    atomic_store(&h->type, 0);
    atomic_fetch_sub(&live, 1);
}

void exec_object_free(void *object)
{
    void *out;

    pthread_mutex_lock(&lock);
    out          = kept[oldest];
    kept[oldest] = object;
    oldest       = (oldest + 1) % NKEPT;
    pthread_mutex_unlock(&lock);
    free(out);
}
