/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The three ways to have temporaries.  Two are those of every allocator: a block may be freed when
 * nothing queued uses it, so the host waits, or keeps the blocks.  The third frees in the order of
 * a queue: commands that come later in it get the block again at once. */
#include "graph.h"

#include <stdlib.h>

/* usm_free() has to come later: remember the block. */
static bool keep(memory *m, size_t i, void *p)
{
    if (m->nkept[i] == m->room[i]) {
        size_t room = m->room[i] ? 2 * m->room[i] : 64;
        void **more = realloc(m->kept[i], room * sizeof *more);

        if (!more)
            return false;
        m->kept[i] = more;
        m->room[i] = room;
    }
    m->kept[i][m->nkept[i]++] = p;
    return true;
}

void *memory_get(memory *m, const queues *qs, size_t i, size_t size)
{
    m->allocations++;
    return m->how == IN_ORDER ? usm_async_malloc(qs->of[i], USM_DEVICE, size)
                              : usm_malloc_device(size, qs->of[i]);
}

void memory_put(memory *m, const queues *qs, size_t i, void *p)
{
    if (m->how == IN_ORDER)
        (void)usm_async_free(qs->of[i], p);
    else if (p && !keep(m, i, p))
        (void)usm_free_blocking(p, NULL);
}

/* What was kept for queue i is not used any more. */
static void drop(memory *m, size_t i)
{
    for (size_t k = 0; k < m->nkept[i]; k++)
        usm_free(m->kept[i][k]);
    m->nkept[i] = 0;
}

usm_status memory_turn(memory *m, const queues *qs, size_t i)
{
    usm_status status = USM_OK;

    if (m->how != TILE_BY_TILE || m->nkept[i] == 0)
        return USM_OK;
    m->waits++;
    status = usm_queue_wait(qs->of[i]);
    drop(m, i);
    /* Results are another queue's, which may have fallen behind. */
    if (m->nkept[qs->n] < qs->n)
        return status;
    m->waits++;
    if (status == USM_OK)
        status = usm_queue_wait(qs->of[qs->n]);
    drop(m, qs->n);
    return status;
}

usm_status memory_end(memory *m, const queues *qs)
{
    usm_status status = USM_OK, first = USM_OK;

    for (size_t i = 0; i <= qs->n; i++) {
        m->waits++; /* every way waits for the results */
        status = usm_queue_wait(qs->of[i]);
        if (first == USM_OK)
            first = status;
    }
    for (size_t i = 0; i <= qs->n; i++) {
        drop(m, i);
        free(m->kept[i]);
        m->kept[i] = NULL;
        m->room[i] = 0;
    }
    return first;
}
