/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Blocks of one size that were given back and are kept for the next who asks, so that what is done
 * again and again takes nothing from the heap.  A block in it is linked through its first word.
 * Who gives no block that it keeps (it is full, or there is none) leaves the caller to the heap.
 *
 * Thread-safe; the lock is a leaf.  At a fork() the child starts with none, because another thread
 * may have been changing the list: usm_recycler_in_child().  The child never frees what its parent
 * kept, at most `most` blocks.  Modules may include this header. */
#ifndef USM_BASE_RECYCLE_H
#define USM_BASE_RECYCLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct usm_recycler {
    pthread_mutex_t lock;
    /* fixed */
    size_t   size; /* of a block                                                         */
    unsigned most; /* kept                                                                */
    /* guarded by lock */
    void    *first;
    unsigned count;
    /* in a child: the parent's list, unused, so that leak checkers do not report it */
    void *abandoned;
} usm_recycler;

#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP /* held for moments: worth a look before sleep */
#define USM_RECYCLER_LOCK PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
#else
#define USM_RECYCLER_LOCK PTHREAD_MUTEX_INITIALIZER
#endif
#define USM_RECYCLER_INIT(size, most)                                                              \
    {                                                                                              \
        USM_RECYCLER_LOCK, (size), (most), NULL, 0, NULL                                           \
    }

/* A block with the first `zeroed` bytes 0; NULL: none is kept. */
static inline void *usm_recycler_take(usm_recycler *r, size_t zeroed)
{
    void *p;

    pthread_mutex_lock(&r->lock);
    p = r->first;
    if (p) {
        memcpy(&r->first, p, sizeof(r->first));
        r->count--;
    }
    pthread_mutex_unlock(&r->lock);
    if (p)
        memset(p, 0, zeroed);
    return p;
}

/* False: it is full, and p is the caller's to free. */
static inline bool usm_recycler_give(usm_recycler *r, void *p)
{
    bool is_kept;

    pthread_mutex_lock(&r->lock);
    is_kept = r->count < r->most;
    if (is_kept) {
        memcpy(p, &r->first, sizeof(r->first));
        r->first = p;
        r->count++;
    }
    pthread_mutex_unlock(&r->lock);
    return is_kept;
}

/* Gives all it keeps to the heap. */
static inline void usm_recycler_clear(usm_recycler *r, void (*heap_free)(void *p))
{
    void *p = usm_recycler_take(r, 0);

    for (; p; p = usm_recycler_take(r, 0))
        heap_free(p);
}

static inline void usm_recycler_in_child(usm_recycler *r)
{
    usm_recycler fresh = USM_RECYCLER_INIT(r->size, r->most);

    fresh.abandoned = r->first;
    *r              = fresh;
}

#endif
