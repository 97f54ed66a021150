/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Keeps freed blocks of one size for reuse, so that frequent operations need no heap allocation.  A
 * block in the list is linked through its first word.  If no block is kept, or the list is full,
 * the caller uses the heap.
 *
 * Thread-safe; the lock is a leaf.  After a fork() the child starts with an empty list, because
 * another thread may have been changing it: usm_recycler_in_child().  The child never frees the
 * blocks that its parent kept, which are at most `most`.  Modules may include this header. */
#ifndef USM_BASE_RECYCLE_H
#define USM_BASE_RECYCLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct usm_recycler {
    pthread_mutex_t lock;
    /* fixed */
    size_t   size; /* of a block          */
    unsigned most; /* blocks kept at most */
    /* guarded by lock */
    void    *first;
    unsigned count;
    /* in a child: the parent's list, unused; prevents reports of leak checkers */
    void *abandoned;
} usm_recycler;

#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP /* held briefly: worth spinning */
#define USM_RECYCLER_LOCK PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
#else
#define USM_RECYCLER_LOCK PTHREAD_MUTEX_INITIALIZER
#endif
#define USM_RECYCLER_INIT(size, most)                                                              \
    {                                                                                              \
        USM_RECYCLER_LOCK, (size), (most), NULL, 0, NULL                                           \
    }

/* Returns a block whose first `zeroed` bytes are 0; NULL: none is kept. */
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

/* False: the list is full, and the caller must free p. */
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

/* Frees all kept blocks to the heap. */
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
