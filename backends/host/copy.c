/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands of the host backend that move bytes, and those that only order other commands.
 *
 * The parameters of a command are in its payload.  Long ones are divided into shares for several
 * workers.  Pointers into guarded device memory are translated when the command runs; all others
 * are used as they are.  Called by the core, through the table in host.c. */
#include "internal.h"

#include <string.h>

#define SHARE_SIZE ((size_t)4 << 20)  /* below it a second worker costs more than it gains */
#define FILL_BLOCK ((size_t)64 << 10) /* fits into the first or second cache               */

struct copy {
    char       *dst;
    const char *src;
    size_t      dst_pitch, src_pitch, width, height; /* one row: pitches 0 */
};

struct fill {
    char  *dst;
    size_t size, pattern_size;
    char   pattern[];
};

static size_t shares_of(size_t bytes)
{
    return usm_max_size(usm_min_size(bytes / SHARE_SIZE, usm__host.workers), 1);
}

static usm_status run_copy(usm__host_command *c, size_t part)
{
    const struct copy *w     = c->payload;
    size_t             begin = usm__host_share(w->width, c->parts, part);
    size_t             end   = usm__host_share(w->width, c->parts, part + 1);
    char              *dst   = w->dst + usm__host_guard_shift(w->dst);
    const char        *src   = w->src + usm__host_guard_shift(w->src);

    memmove(dst + begin, src + begin, end - begin);
    return USM_OK;
}

static usm_status run_copy_2d(usm__host_command *c, size_t part)
{
    const struct copy *w   = c->payload;
    size_t             end = usm__host_share(w->height, c->parts, part + 1);
    char              *dst = w->dst + usm__host_guard_shift(w->dst);
    const char        *src = w->src + usm__host_guard_shift(w->src);

    for (size_t y = usm__host_share(w->height, c->parts, part); y < end; y++)
        memmove(dst + y * w->dst_pitch, src + y * w->src_pitch, w->width);
    return USM_OK;
}

/* Writes the pattern once, then copies the filled part in growing blocks. */
static void repeat(char *dst, const char *pattern, size_t pattern_size, size_t size)
{
    size_t block = pattern_size;

    memcpy(dst, pattern, pattern_size);
    for (size_t filled = block; filled < size;) {
        size_t n = usm_min_size(block, size - filled);

        memcpy(dst + filled, dst, n);
        filled += n;
        if (block < FILL_BLOCK)
            block = filled;
    }
}

static usm_status run_fill(usm__host_command *c, size_t part)
{
    const struct fill *w        = c->payload;
    size_t             patterns = w->size / w->pattern_size;
    size_t             begin    = usm__host_share(patterns, c->parts, part) * w->pattern_size;
    size_t             end      = usm__host_share(patterns, c->parts, part + 1) * w->pattern_size;
    char              *dst      = w->dst + usm__host_guard_shift(w->dst);

    if (w->pattern_size == 1)
        memset(dst + begin, (unsigned char)w->pattern[0], end - begin);
    else if (begin < end)
        repeat(dst + begin, w->pattern, w->pattern_size, end - begin);
    return USM_OK;
}

static usm_status submit_copy(void *q, usm__host_run run, const struct copy *work, size_t ndeps,
                              void *const *deps, void **ev)
{
    usm__host_command *c = usm__host_command_create(q, ndeps, sizeof(*work));

    if (!c)
        return USM_E_NO_MEMORY;
    *(struct copy *)c->payload = *work;
    c->run                     = run;
    c->parts                   = shares_of(work->width * work->height);
    return usm__host_submit(c, ndeps, deps, ev);
}

usm_status usm__host_copy(void *q, void *dst, const void *src, size_t n, size_t ndeps,
                          void *const *deps, void **ev)
{
    const struct copy work = {dst, src, 0, 0, n, 1};

    return submit_copy(q, run_copy, &work, ndeps, deps, ev);
}

usm_status usm__host_copy_2d(void *q, void *dst, size_t dst_pitch, const void *src,
                             size_t src_pitch, size_t width, size_t height, size_t ndeps,
                             void *const *deps, void **ev)
{
    const struct copy work = {dst, src, dst_pitch, src_pitch, width, height};

    return submit_copy(q, run_copy_2d, &work, ndeps, deps, ev);
}

usm_status usm__host_fill(void *q, void *dst, const void *pattern, size_t pattern_size, size_t size,
                          size_t ndeps, void *const *deps, void **ev)
{
    usm__host_command *c = usm__host_command_create(q, ndeps, sizeof(struct fill) + pattern_size);
    struct fill       *work;

    if (!c)
        return USM_E_NO_MEMORY;
    work               = c->payload;
    work->dst          = dst;
    work->size         = size;
    work->pattern_size = pattern_size;
    memcpy(work->pattern, pattern, pattern_size);
    c->run   = run_fill;
    c->parts = shares_of(size);
    return usm__host_submit(c, ndeps, deps, ev);
}

/* --- commands that only order others ---------------------------------------------------------- */

static usm_status submit_nothing(void *q, bool waits_for_all, bool is_barrier, size_t ndeps,
                                 void *const *deps, void **ev)
{
    usm__host_command *c = usm__host_command_create(q, ndeps, 0);

    if (!c)
        return USM_E_NO_MEMORY;
    c->waits_for_all = waits_for_all;
    c->is_barrier    = is_barrier;
    return usm__host_submit(c, ndeps, deps, ev);
}

usm_status usm__host_marker(void *q, size_t ndeps, void *const *deps, void **ev)
{
    return submit_nothing(q, ndeps == 0, false, ndeps, deps, ev);
}

usm_status usm__host_barrier(void *q, size_t ndeps, void *const *deps, void **ev)
{
    return submit_nothing(q, ndeps == 0, true, ndeps, deps, ev);
}

/* Nothing to do: all memory is the host's. */
usm_status usm__host_prefetch(void *q, const void *p, size_t n, size_t ndeps, void *const *deps,
                              void **ev)
{
    (void)p;
    (void)n;
    return submit_nothing(q, false, false, ndeps, deps, ev);
}

usm_status usm__host_advise(void *q, const void *p, size_t n, usm_advice advice, size_t ndeps,
                            void *const *deps, void **ev)
{
    (void)p;
    (void)n;
    (void)advice;
    return submit_nothing(q, false, false, ndeps, deps, ev);
}
