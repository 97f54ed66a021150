/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The commands of a backend's table, in the form that the deferral queue takes: see commands.h. */
#include "commands.h"

#include <string.h>

const char *driver_command_name(const driver_command *cmd)
{
    static const char *const names[] = {
        [DRIVER_COPY] = "the copy",       [DRIVER_COPY_2D] = "the 2-D copy",
        [DRIVER_FILL] = "the fill",       [DRIVER_PREFETCH] = "the prefetch",
        [DRIVER_ADVISE] = "the advice",   [DRIVER_MARKER] = "the marker",
        [DRIVER_BARRIER] = "the barrier", [DRIVER_LAUNCH] = "the launch",
    };

    return names[cmd->type];
}

/* A command that waits for nothing and has no event takes the short way through the deferral queue.
 * */
usm_status driver_submit(void *queue, driver_command *cmd, size_t ndeps, void *const *deps,
                         void **ev)
{
    defer_queue *q = queue;
    usm_status   status;

    cmd->deferral.size       = sizeof(*cmd);
    cmd->deferral.is_barrier = cmd->type == DRIVER_BARRIER;
    cmd->deferral.is_mark    = cmd->type == DRIVER_BARRIER || cmd->type == DRIVER_MARKER;
    if (ndeps || ev || !defer_queue_is_open(q))
        return defer_submit(q, &cmd->deferral, ndeps, deps, ev);
    status = q->ctx->ops->issue_plain(q, &cmd->deferral);
    q->ctx->ops->command_drop(&cmd->deferral);
    return status;
}

usm_status driver_copy(void *q, void *dst, const void *src, size_t n, size_t ndeps,
                       void *const *deps, void **ev)
{
    driver_command cmd; /* not cleared, because it is large, and a copy uses only these fields */

    cmd.type    = DRIVER_COPY;
    cmd.as.rect = (driver_rect){dst, src, n, n, n, 1};
    return driver_submit(q, &cmd, ndeps, deps, ev);
}

usm_status driver_copy_2d(void *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                          size_t width, size_t height, size_t ndeps, void *const *deps, void **ev)
{
    driver_command cmd = {.type    = DRIVER_COPY_2D,
                          .as.rect = {dst, src, dst_pitch, src_pitch, width, height}};

    return driver_submit(q, &cmd, ndeps, deps, ev);
}

usm_status driver_fill(void *q, void *dst, const void *pattern, size_t pattern_size, size_t size,
                       size_t ndeps, void *const *deps, void **ev)
{
    const usm_host_api *host = ((defer_queue *)q)->ctx->host;
    driver_command      cmd; /* not cleared, as for a copy */

    cmd.type                 = DRIVER_FILL;
    cmd.as.fill.dst          = dst;
    cmd.as.fill.size         = size;
    cmd.as.fill.pattern_size = pattern_size;
    if (pattern_size > DRIVER_MAX_PATTERN)
        return host->report(USM_E_INVALID, "a pattern of %zu bytes; %d at most", pattern_size,
                            DRIVER_MAX_PATTERN);
    memcpy(cmd.as.fill.pattern, pattern, pattern_size);
    return driver_submit(q, &cmd, ndeps, deps, ev);
}

static usm_status submit_range(void *q, driver_command_type type, const void *p, size_t n,
                               usm_advice advice, size_t ndeps, void *const *deps, void **ev)
{
    driver_command cmd = {.type = type, .as.range = {p, n, advice}};

    return driver_submit(q, &cmd, ndeps, deps, ev);
}

usm_status driver_prefetch(void *q, const void *p, size_t n, size_t ndeps, void *const *deps,
                           void **ev)
{
    return submit_range(q, DRIVER_PREFETCH, p, n, USM_ADVICE_DEFAULT, ndeps, deps, ev);
}

usm_status driver_advise(void *q, const void *p, size_t n, usm_advice advice, size_t ndeps,
                         void *const *deps, void **ev)
{
    return submit_range(q, DRIVER_ADVISE, p, n, advice, ndeps, deps, ev);
}

usm_status driver_marker(void *q, size_t ndeps, void *const *deps, void **ev)
{
    return submit_range(q, DRIVER_MARKER, NULL, 0, USM_ADVICE_DEFAULT, ndeps, deps, ev);
}

usm_status driver_barrier(void *q, size_t ndeps, void *const *deps, void **ev)
{
    return submit_range(q, DRIVER_BARRIER, NULL, 0, USM_ADVICE_DEFAULT, ndeps, deps, ev);
}
