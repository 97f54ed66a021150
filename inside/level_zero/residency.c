/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* On which devices areas are resident: a block is made resident with its area, and the area stays so
 * until all who wanted it have evicted their blocks, or the driver has it back. */
#include "areas.h"
#include "driver.h"

#include <stdlib.h>

typedef struct resident {
    ze_device_handle_t dev;
    size_t             wanted;
    struct resident   *next;
} resident;

typedef struct request {
    ze_context_handle_t ctx;
    ze_device_handle_t  dev;
    ze_result_t         result;
} request;

void inside_residency_end(void *data)
{
    resident *r = data;

    while (r) {
        resident *next = r->next;

        free(r);
        r = next;
    }
}

static resident *find(const inside_area *a, ze_device_handle_t dev)
{
    resident *r = a->data;

    while (r && r->dev != dev)
        r = r->next;
    return r;
}

/* NULL: no memory. */
static resident *find_or_add(inside_area *a, ze_device_handle_t dev)
{
    resident *r = find(a, dev);

    if (r)
        return r;
    r = malloc(sizeof *r);
    if (r) {
        *r      = (resident){dev, 0, a->data};
        a->data = r;
    }
    return r;
}

/* With the lock, so that the driver sees both calls in the order in which they were counted. */
static void make_resident(inside_area *a, void *user)
{
    request  *q = user;
    resident *r = find_or_add(a, q->dev);

    if (!r)
        q->result = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    else if (r->wanted == 0)
        q->result = inside_real_driver.context.pfnMakeMemoryResident(q->ctx, q->dev,
                                                                     (void *)a->start, a->size);
    if (!q->result)
        r->wanted++;
}

static void evict(inside_area *a, void *user)
{
    request  *q = user;
    resident *r = find(a, q->dev);

    if (r && r->wanted > 0)
        r->wanted--;
    if (!r || r->wanted == 0)
        q->result =
            inside_real_driver.context.pfnEvictMemory(q->ctx, q->dev, (void *)a->start, a->size);
}

bool inside_area_make_resident(ze_context_handle_t ctx, ze_device_handle_t dev, const void *p,
                               ze_result_t *result)
{
    request q       = {ctx, dev, ZE_RESULT_SUCCESS};
    bool    is_ours = inside_area_do(p, make_resident, &q);

    *result = q.result;
    return is_ours;
}

bool inside_area_evict(ze_context_handle_t ctx, ze_device_handle_t dev, const void *p,
                       ze_result_t *result)
{
    request q       = {ctx, dev, ZE_RESULT_SUCCESS};
    bool    is_ours = inside_area_do(p, evict, &q);

    *result = q.result;
    return is_ours;
}
