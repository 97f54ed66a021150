/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The areas of all pools, by address, and on which devices they are resident: a block is made
 * resident with its area, and the area stays so until all who wanted it have evicted their blocks,
 * or the driver has it back. */
#include "driver.h"

#include <pthread.h>
#include <search.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct resident {
    ze_device_handle_t dev;
    size_t             wanted;
    struct resident   *next;
} resident;

typedef struct area {
    uintptr_t start;
    size_t    size;
    resident *on;
} area;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void           *areas; /* guarded by lock: a tree (tsearch) */

/* Areas that overlap are equal: an address is an area of one byte. */
static int compare(const void *a, const void *b)
{
    const area *x = a, *y = b;

    if (x->start + x->size <= y->start)
        return -1;
    return y->start + y->size <= x->start ? 1 : 0;
}

/* With the lock. */
static area *around(const void *p)
{
    area   key   = {(uintptr_t)p, 1, NULL};
    void **found = tfind(&key, &areas, compare);

    return found ? *found : NULL;
}

bool inside_area_add(void *p, size_t size)
{
    area *a      = calloc(1, sizeof *a);
    bool  is_new = false;
    void *found;

    if (!a)
        return false;
    a->start = (uintptr_t)p;
    a->size  = size;
    pthread_mutex_lock(&lock);
    found  = tsearch(a, &areas, compare);
    is_new = found && *(area **)found == a; /* nodes change with the tree */
    pthread_mutex_unlock(&lock);
    if (!is_new)
        free(a);
    return is_new;
}

void inside_area_remove(void *p)
{
    area     *a;
    resident *r;

    pthread_mutex_lock(&lock);
    a = around(p);
    if (a)
        (void)tdelete(a, &areas, compare);
    pthread_mutex_unlock(&lock);
    while (a && (r = a->on)) {
        a->on = r->next;
        free(r);
    }
    free(a);
}

void *inside_area_start(const void *p)
{
    void *start = NULL;
    area *a;

    pthread_mutex_lock(&lock);
    a = around(p);
    if (a)
        start = (void *)a->start;
    pthread_mutex_unlock(&lock);
    return start;
}

static resident **find(area *a, ze_device_handle_t dev)
{
    resident **at = &a->on;

    while (*at && (*at)->dev != dev)
        at = &(*at)->next;
    return at;
}

/* With the lock, so that the driver sees both calls in the order in which they were counted. */
static ze_result_t make_resident(ze_context_handle_t ctx, ze_device_handle_t dev, area *a)
{
    resident  **at = find(a, dev), *r = *at;
    ze_result_t result;

    if (r) {
        r->wanted++;
        return ZE_RESULT_SUCCESS;
    }
    r = calloc(1, sizeof *r);
    if (!r)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    result = inside_real_driver.context.pfnMakeMemoryResident(ctx, dev, (void *)a->start, a->size);
    if (result) {
        free(r);
        return result;
    }
    r->dev    = dev;
    r->wanted = 1;
    *at       = r;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t evict(ze_context_handle_t ctx, ze_device_handle_t dev, area *a)
{
    resident **at = find(a, dev), *r = *at;

    if (r && --r->wanted > 0)
        return ZE_RESULT_SUCCESS;
    if (r)
        *at = r->next;
    free(r);
    return inside_real_driver.context.pfnEvictMemory(ctx, dev, (void *)a->start, a->size);
}

/* The driver's answer for the area that p points into; false: p is the driver's. */
static bool of_area(ze_result_t (*fn)(ze_context_handle_t, ze_device_handle_t, area *),
                    ze_context_handle_t ctx, ze_device_handle_t dev, const void *p,
                    ze_result_t *result)
{
    area *a;

    pthread_mutex_lock(&lock);
    a = around(p);
    if (a)
        *result = fn(ctx, dev, a);
    pthread_mutex_unlock(&lock);
    return a != NULL;
}

bool inside_area_make_resident(ze_context_handle_t ctx, ze_device_handle_t dev, const void *p,
                               ze_result_t *result)
{
    return of_area(make_resident, ctx, dev, p, result);
}

bool inside_area_evict(ze_context_handle_t ctx, ze_device_handle_t dev, const void *p,
                       ze_result_t *result)
{
    return of_area(evict, ctx, dev, p, result);
}
