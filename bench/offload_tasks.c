/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What an empty host task costs, from the first submission until all of them are done: on the host
 * backend, all threads' processor time and the clock on the wall (offload.h). */
#include "offload.h"

#include <usm/usm.h>

#include <time.h>

#define PAIRS 64 /* of buffers: each task is ordered behind the last one of the same pair */
#define BYTES 4096

struct place {
    usm_context *ctx;
    usm_queue   *queue[2]; /* out of order, in order */
    usm_buffer  *buffer[2 * PAIRS];
};

static usm_status nothing(void *user)
{
    (void)user;
    return USM_OK;
}

static usm_status nothing_of(void *user, void *const *ptrs)
{
    (void)user;
    (void)ptrs;
    return USM_OK;
}

static void close_place(struct place *p)
{
    for (unsigned i = 0; i < 2 * PAIRS; i++)
        usm_buffer_destroy(p->buffer[i]);
    usm_queue_destroy(p->queue[0]);
    usm_queue_destroy(p->queue[1]);
    usm_context_destroy(p->ctx);
}

static usm_status open_place(struct place *p)
{
    usm_context_desc desc  = USM_CONTEXT_DESC_INIT;
    usm_queue_desc   queue = USM_QUEUE_DESC_INIT;
    usm_device      *dev;
    size_t           found;
    usm_status       st = usm_select_devices("host:*", &dev, 1, &found);

    desc.ndevices = 1;
    desc.devices  = &dev;
    queue.flags   = USM_QUEUE_OUT_OF_ORDER;
    if (st == USM_OK)
        st = usm_context_create(&desc, &p->ctx);
    if (st == USM_OK)
        st = usm_queue_create(p->ctx, dev, &queue, &p->queue[0]);
    if (st == USM_OK)
        st = usm_queue_create(p->ctx, dev, NULL, &p->queue[1]);
    for (unsigned i = 0; st == USM_OK && i < 2 * PAIRS; i++) {
        usm_buffer_desc buffer = USM_BUFFER_DESC_INIT;

        buffer.size = BYTES;
        st          = usm_buffer_create(p->ctx, &buffer, &p->buffer[i]);
    }
    return st;
}

static usm_status submit(struct place *p, usm_queue *q, unsigned naccessors, unsigned i)
{
    usm_buffer *const *of     = &p->buffer[(size_t)2 * (i % PAIRS)];
    const usm_accessor both[] = {{of[0], 0, BYTES, USM_READ},
                                 {of[naccessors > 1], 0, BYTES, USM_READ_WRITE}};

    if (naccessors == 0)
        return usm_host_task(q, nothing, NULL, 0, NULL, NULL);
    return usm_buffer_task(q, nothing_of, NULL, naccessors, both, 0, NULL, NULL);
}

static usm_status submit_all(struct place *p, usm_queue *q, unsigned naccessors, unsigned count)
{
    usm_status st = USM_OK;

    for (unsigned i = 0; st == USM_OK && i < count; i++)
        st = submit(p, q, naccessors, i);
    return st == USM_OK ? usm_queue_wait(q) : st;
}

static double us_of(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

bool offload_time_tasks(bool is_in_order, unsigned naccessors, unsigned count,
                        offload_task_cost *cost)
{
    static struct place p;
    usm_status          st = p.ctx ? USM_OK : open_place(&p); /* stays for the next round */
    double              cpu, wall;

    if (st == USM_OK)
        st = submit_all(&p, p.queue[is_in_order], naccessors, count / 4);
    cpu  = us_of(CLOCK_PROCESS_CPUTIME_ID);
    wall = us_of(CLOCK_MONOTONIC);
    if (st == USM_OK)
        st = submit_all(&p, p.queue[is_in_order], naccessors, count);
    cost->cpu_us  = (us_of(CLOCK_PROCESS_CPUTIME_ID) - cpu) / count;
    cost->wall_us = (us_of(CLOCK_MONOTONIC) - wall) / count;
    if (st != USM_OK) {
        close_place(&p);
        p = (struct place){.ctx = NULL};
    }
    return st == USM_OK;
}
