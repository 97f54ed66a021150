/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queues of the null backend: every command is complete when it is submitted and has done nothing,
 * so one event serves for all.  The core's probe detects that a copy moves no data
 * (USM_E_NO_DATA_MOVED).  There are no user events, the only ones that could be incomplete.  Called
 * by the core through the table in null.c. */
#include "null.h"

static usm_status done(void **ev)
{
    if (ev)
        *ev = &null;
    return USM_OK;
}

usm_status null_queue_create(void *ctx, void *dev, uint32_t flags, void **q)
{
    (void)ctx;
    (void)dev;
    (void)flags;
    *q = &null;
    return USM_OK;
}

void null_queue_destroy(void *q)
{
    (void)q;
}

usm_status null_queue_wait(void *q)
{
    (void)q;
    return USM_OK;
}

usm_status null_copy(void *q, void *dst, const void *src, size_t n, size_t ndeps, void *const *deps,
                     void **ev)
{
    (void)q;
    (void)dst;
    (void)src;
    (void)n;
    (void)ndeps;
    (void)deps;
    return done(ev);
}

usm_status null_copy_2d(void *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                        size_t width, size_t height, size_t ndeps, void *const *deps, void **ev)
{
    (void)dst_pitch;
    (void)src_pitch;
    (void)height;
    return null_copy(q, dst, src, width, ndeps, deps, ev);
}

usm_status null_fill(void *q, void *dst, const void *pattern, size_t pattern_size, size_t size,
                     size_t ndeps, void *const *deps, void **ev)
{
    (void)pattern_size;
    return null_copy(q, dst, pattern, size, ndeps, deps, ev);
}

usm_status null_prefetch(void *q, const void *p, size_t n, size_t ndeps, void *const *deps,
                         void **ev)
{
    return null_copy(q, NULL, p, n, ndeps, deps, ev);
}

usm_status null_advise(void *q, const void *p, size_t n, usm_advice advice, size_t ndeps,
                       void *const *deps, void **ev)
{
    (void)advice;
    return null_copy(q, NULL, p, n, ndeps, deps, ev);
}

usm_status null_marker(void *q, size_t ndeps, void *const *deps, void **ev)
{
    return null_copy(q, NULL, NULL, 0, ndeps, deps, ev);
}

usm_status null_event_create_user(void *ctx, void **ev)
{
    (void)ctx;
    (void)ev;
    return null.api->report(USM_E_NOT_SUPPORTED, "null:0 has no user events");
}

usm_status null_event_signal(void *ev, usm_status status)
{
    (void)ev;
    (void)status;
    return null.api->report(USM_E_NOT_SUPPORTED, "null:0 has no user events");
}

usm_status null_event_query(void *ev)
{
    (void)ev;
    return USM_OK;
}

usm_status null_event_profiling(void *ev, usm_profiling *times)
{
    (void)ev;
    (void)times;
    return null.api->report(USM_E_NOT_SUPPORTED, "null:0 takes no times");
}

void null_event_release(void *ev)
{
    (void)ev;
}
