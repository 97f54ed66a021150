/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The areas of all pools of a layer, a tree by address; see areas.h. */
#include "areas.h"

#include <pthread.h>
#include <search.h>
#include <stdatomic.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void           *tree;        /* guarded by lock (tsearch) */
static bool            is_changing; /* guarded by lock: the tree is not whole */
static _Atomic(bool) has_had_some;  /* set once: before it, nobody needs the lock to find nothing */

/* Areas that overlap are equal: an address is an area of one byte. */
static int compare(const void *a, const void *b)
{
    const inside_area *x = a, *y = b;

    if (x->start + x->size <= y->start)
        return -1;
    return y->start + y->size <= x->start ? 1 : 0;
}

/* With the lock. */
static inside_area *around(const void *p)
{
    inside_area key   = {(uintptr_t)p, 1, NULL};
    void      **found = tfind(&key, &tree, compare);

    return found ? *found : NULL;
}

bool inside_area_add(void *p, size_t size)
{
    inside_area *a = malloc(sizeof *a);
    bool         is_new;
    void        *found;

    if (!a)
        return false;
    *a = (inside_area){(uintptr_t)p, size, NULL};
    pthread_mutex_lock(&lock);
    is_changing = true;
    found       = tsearch(a, &tree, compare);
    is_new      = found && *(inside_area **)found == a; /* nodes change with the tree */
    is_changing = false;
    pthread_mutex_unlock(&lock);
    if (!is_new)
        free(a);
    atomic_store_explicit(&has_had_some, true, memory_order_release);
    return is_new;
}

void *inside_area_remove(void *p)
{
    void        *data = NULL;
    inside_area *a;

    pthread_mutex_lock(&lock);
    a = around(p);
    if (a) {
        is_changing = true;
        (void)tdelete(a, &tree, compare);
        is_changing = false;
        data        = a->data;
    }
    pthread_mutex_unlock(&lock);
    free(a);
    return data;
}

bool inside_area_do(const void *p, void (*fn)(inside_area *area, void *user), void *user)
{
    inside_area *a;

    if (!atomic_load_explicit(&has_had_some, memory_order_acquire))
        return false;
    pthread_mutex_lock(&lock);
    a = around(p);
    if (a)
        fn(a, user);
    pthread_mutex_unlock(&lock);
    return a != NULL;
}

static void get_start(inside_area *area, void *start)
{
    *(void **)start = (void *)area->start;
}

void *inside_area_start(const void *p)
{
    void *start = NULL;

    (void)inside_area_do(p, get_start, &start);
    return start;
}

/* The lock is not taken for a fork: libusm waits there for a thread that takes an area, which takes
 * this lock, and whose handlers come first depends on which library began first.  A tree that was
 * about to change is forgotten. */
void inside_areas_in_child(void)
{
    (void)pthread_mutex_init(&lock, NULL);
    if (is_changing)
        tree = NULL;
    is_changing = false;
}
