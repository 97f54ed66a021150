/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Commands as they are kept from their append to their end, and the bodies of regular lists. Called
 * by append.c and copy.c, which make them, and by list.c, queue.c and engine.c. */
#include "exec.h"

#include <stdio.h>
#include <stdlib.h>

#define ALIGNED(n) (((n) + 15) & ~(size_t)15)

/* Done with, but for its events. */
static const exec_kind spent = {.name = "a command that is done"};

/* --- commands ------------------------------------------------------------------------- */

/* References to `n` events' cells; *done says how many there are even on failure. */
static ze_result_t take_points(exec_point *points, uint32_t *done, uint32_t n,
                               ze_event_handle_t *events)
{
    for (uint32_t i = 0; i < n; i++) {
        exec_event *ev = exec_object_of(events[i], SOFT_EVENT);

        if (!ev || !exec_event_point(ev, &points[i]))
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
        ++*done;
    }
    return ZE_RESULT_SUCCESS;
}

static ze_result_t take_events(exec_cmd *cmd, const exec_events *events)
{
    exec_event *signal = NULL;
    ze_result_t res    = take_points(cmd->points, &cmd->nwaits, events->nwaits, events->waits);

    if (res == ZE_RESULT_SUCCESS)
        res = take_points(cmd->points + events->nwaits, &cmd->nothers, events->nothers,
                          events->others);
    if (res != ZE_RESULT_SUCCESS || !events->signal)
        return res;
    signal = exec_object_of(events->signal, SOFT_EVENT);
    if (!signal)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return exec_event_bind(signal, &cmd->signal) ? ZE_RESULT_SUCCESS
                                                 : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

ze_result_t exec_cmd_new(const exec_kind *kind, const exec_events *events, size_t extra,
                         exec_cmd **out, void **tail)
{
    const size_t npoints = (size_t)events->nwaits + events->nothers;
    const size_t points  = ALIGNED(sizeof(exec_cmd));
    const size_t rest    = ALIGNED(points + npoints * sizeof(exec_point));
    exec_cmd    *cmd;
    ze_result_t  res;

    if ((events->nwaits && !events->waits) || (events->nothers && !events->others))
        return ZE_RESULT_ERROR_INVALID_SIZE;
    if (extra > PTRDIFF_MAX - rest)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    cmd = malloc(rest + extra);
    if (!cmd)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    *cmd        = (exec_cmd){.kind = &spent, .made_as = &spent};
    cmd->points = (exec_point *)((char *)cmd + points);
    res         = take_events(cmd, events);
    if (res != ZE_RESULT_SUCCESS) {
        exec_cmd_free(cmd);
        return res;
    }
    cmd->kind    = kind;
    cmd->made_as = kind;
    if (tail)
        *tail = (char *)cmd + rest;
    *out = cmd;
    return ZE_RESULT_SUCCESS;
}

void exec_cmd_fini(exec_cmd *cmd)
{
    if (cmd->kind->fini)
        cmd->kind->fini(cmd);
    cmd->kind = &spent;
}

void exec_cmd_free(exec_cmd *cmd)
{
    while (cmd) {
        exec_cmd *next = cmd->next;

        exec_cmd_fini(cmd);
        for (uint32_t i = 0; i < cmd->nwaits + cmd->nothers; i++)
            exec_store_unref(cmd->points[i].store);
        exec_store_unref(cmd->signal.store);
        free(cmd);
        cmd = next;
    }
}

bool exec_cmd_is_ready(const exec_cmd *cmd)
{
    for (uint32_t i = 0; i < cmd->nwaits; i++)
        if (!exec_cell_is_set(cmd->points[i].cell))
            return false;
    return true;
}

void *exec_view(const exec_cmd *cmd, const void *p, size_t n)
{
    void *view = soft_view(p, n);

    if (view)
        return view;
    fprintf(stderr,
            "ze_soft: %s: the device touches %zu bytes at %p, which reach beyond an allocation or "
            "are not mapped; a GPU would fault here\n",
            cmd->kind->name, n, p);
    abort();
}

/* --- bodies ------------------------------------------------------------------------------ */

exec_body *exec_body_new(bool is_in_order)
{
    exec_body *body = calloc(1, sizeof(*body));

    if (!body)
        return NULL;
    atomic_store(&body->refs, 1);
    body->is_in_order = is_in_order;
    return body;
}

exec_body *exec_body_ref(exec_body *body)
{
    atomic_fetch_add(&body->refs, 1);
    return body;
}

void exec_body_unref(exec_body *body)
{
    if (!body || atomic_fetch_sub(&body->refs, 1) != 1)
        return;
    for (size_t i = 0; i < body->n; i++)
        exec_cmd_free(body->cmds[i]);
    free(body->cmds);
    free(body);
}

ze_result_t exec_body_add(exec_body *body, exec_cmd *cmd)
{
    if (body->n == body->cap) {
        const size_t cap  = body->cap ? 2 * body->cap : 16;
        exec_cmd   **more = realloc(body->cmds, cap * sizeof(exec_cmd *));

        if (!more) {
            exec_cmd_free(cmd);
            return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        body->cmds = more;
        body->cap  = cap;
    }
    body->cmds[body->n++] = cmd;
    return ZE_RESULT_SUCCESS;
}
