/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The work of commands over buffers (buffer/command.h): launches whose arguments are accessors,
 * fills, copies.  The addresses are known when the command enters its queue; a deferred command
 * keeps a copy of its arguments. */
#include "buffer/work.h"

#include "base/os.h"
#include "buffer/command.h"

#include <string.h>

#include <usm/command.h>

#define ARGS_INLINE 16

/* ---- launches ------------------------------------------------------------------------- */

/* The arguments, with the accessors replaced by addresses in their order. */
static void resolve(usm_arg *out, const usm_launch *l, void *const *ptrs)
{
    for (size_t i = 0, k = 0; i < l->nargs; i++) {
        out[i] = l->args[i];
        if (out[i].kind == USM_ARG_ACCESS)
            out[i] = (usm_arg){USM_ARG_POINTER, sizeof(void *), ptrs[k++]};
    }
}

static usm_status launch_submit(const void *work, void *const *ptrs, usm_queue *q, size_t ndeps,
                                usm_event *const *deps, usm_event **ev)
{
    usm_launch l = *(const usm_launch *)work;
    usm_arg    first[ARGS_INLINE];
    usm_arg   *args = l.nargs > ARGS_INLINE ? usm__heap_alloc(l.nargs * sizeof *args) : first;
    usm_status st;

    if (!args)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for %zu arguments", l.nargs);
    resolve(args, &l, ptrs);
    l.args = args;
    st     = usm__launch_checked(q, &l, ndeps, deps, ev);
    if (args != first)
        usm__heap_free(args);
    return st;
}

/* One block of memory: the launch, its arguments, the list of indirect pointers, the values'
 * bytes. */
static void *launch_keep(const void *work)
{
    const usm_launch *l = work;
    size_t      bytes   = sizeof *l + l->nargs * sizeof *l->args + l->nindirect * sizeof(void *);
    size_t      at      = bytes;
    usm_launch *kept;
    usm_arg    *args;

    for (size_t i = 0; i < l->nargs; i++)
        bytes += l->args[i].kind == USM_ARG_VALUE ? l->args[i].size : 0;
    kept = usm__heap_alloc(bytes);
    if (!kept)
        return NULL;
    *kept = *l;
    args  = (usm_arg *)(void *)(kept + 1);
    if (l->nargs)
        memcpy(args, l->args, l->nargs * sizeof *args);
    if (l->nindirect)
        memcpy(args + l->nargs, l->indirect, l->nindirect * sizeof(void *));
    kept->args     = args;
    kept->indirect = (const void *const *)(const void *)(args + l->nargs);
    for (size_t i = 0; i < l->nargs; i++) {
        if (args[i].kind != USM_ARG_VALUE)
            continue;
        memcpy((char *)kept + at, args[i].value, args[i].size);
        args[i].value = (char *)kept + at;
        at += args[i].size;
    }
    (void)usm__kernel_retain(l->kernel);
    return kept;
}

static void launch_drop(void *kept)
{
    usm__kernel_release(((usm_launch *)kept)->kernel);
    usm__heap_free(kept);
}

static const usm__work_ops launch_ops = {launch_submit, launch_keep, launch_drop, NULL};

usm_status usm__buffers_launch(usm_queue *q, const usm_launch *l, size_t ndeps,
                               usm_event *const *deps, usm_event **ev)
{
    usm_accessor      first[ARGS_INLINE];
    usm_accessor     *accessors = first;
    usm__command_desc d         = {.ops = &launch_ops, .work = l};
    usm_status        st;

    if (l->nargs > ARGS_INLINE)
        accessors = usm__heap_alloc(l->nargs * sizeof *accessors);
    if (!accessors)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for %zu arguments", l->nargs);
    for (size_t i = 0; i < l->nargs; i++)
        if (l->args[i].kind == USM_ARG_ACCESS)
            accessors[d.n++] = *(const usm_accessor *)l->args[i].value;
    d.accessors = accessors;
    st          = usm__command_submit(q, &d, ndeps, deps, ev);
    if (accessors != first)
        usm__heap_free(accessors);
    return st;
}

/* ---- fills -------------------------------------------------------------------------------- */

typedef struct fill_work {
    size_t      pattern_size, size;
    const void *pattern;
} fill_work;

static usm_status fill_submit(const void *work, void *const *ptrs, usm_queue *q, size_t ndeps,
                              usm_event *const *deps, usm_event **ev)
{
    const fill_work *f = work;

    return usm_fill(q, ptrs[0], f->pattern, f->pattern_size, f->size / f->pattern_size, ndeps, deps,
                    ev);
}

static void *fill_keep(const void *work)
{
    const fill_work *f    = work;
    fill_work       *kept = usm__heap_alloc(sizeof *f + f->pattern_size);

    if (!kept)
        return NULL;
    *kept = *f;
    memcpy(kept + 1, f->pattern, f->pattern_size);
    kept->pattern = kept + 1;
    return kept;
}

static void fill_at_once(const void *work, void *const *ptrs)
{
    const fill_work *f = work;

    usm__repeat_pattern(ptrs[0], f->pattern, f->pattern_size, f->size);
}

static const usm__work_ops fill_ops = {fill_submit, fill_keep, usm__heap_free, fill_at_once};

/* The accessor of a side of a command that reads or writes all of its range; 0 stands for that
 * mode. */
static usm_status side(const char *what, const usm_accessor *a, usm_access_mode need,
                       usm_accessor *out)
{
    if (!a)
        return usm__fail(USM_E_INVALID, "%s: an accessor is NULL", what);
    if (a->mode != 0 && !(a->mode & need))
        return usm__fail(USM_E_INVALID, "%s: the accessor's mode is 0x%x, but it is %s", what,
                         (unsigned)a->mode, need == USM_READ ? "read" : "written");
    *out      = *a;
    out->mode = need == USM_READ ? USM_READ : USM_WRITE_NO_INIT;
    return USM_OK;
}

usm_status usm_buffer_fill(usm_queue *q, const usm_accessor *dst, const void *pattern,
                           size_t pattern_size, size_t ndeps, usm_event *const *deps,
                           usm_event **ev)
{
    usm_accessor      a;
    fill_work         f;
    usm__command_desc d  = {.ops = &fill_ops, .work = &f, .n = 1, .accessors = &a};
    usm_status        st = usm__queue_check(q);

    if (st == USM_OK)
        st = side("usm_buffer_fill", dst, USM_WRITE, &a);
    if (st != USM_OK)
        return st;
    if (!pattern || pattern_size == 0 || a.size % pattern_size != 0)
        return usm__fail(USM_E_INVALID,
                         "usm_buffer_fill: %zu bytes are not a multiple of a pattern of %zu at %p",
                         a.size, pattern_size, pattern);
    f = (fill_work){pattern_size, a.size, pattern};
    return usm__command_submit(q, &d, ndeps, deps, ev);
}

/* ---- copies --------------------------------------------------------------------------------- */

static usm_status copy_submit(const void *work, void *const *ptrs, usm_queue *q, size_t ndeps,
                              usm_event *const *deps, usm_event **ev)
{
    return usm_memcpy(q, ptrs[0], ptrs[1], *(const size_t *)work, ndeps, deps, ev);
}

static void *copy_keep(const void *work)
{
    size_t *kept = usm__heap_alloc(sizeof *kept);

    if (kept)
        *kept = *(const size_t *)work;
    return kept;
}

static void copy_at_once(const void *work, void *const *ptrs)
{
    memmove(ptrs[0], ptrs[1], *(const size_t *)work);
}

static const usm__work_ops copy_ops = {copy_submit, copy_keep, usm__heap_free, copy_at_once};

usm_status usm_buffer_copy(usm_queue *q, const usm_accessor *dst, const usm_accessor *src,
                           size_t ndeps, usm_event *const *deps, usm_event **ev)
{
    usm_accessor      sides[2];
    usm__command_desc d  = {.ops = &copy_ops, .work = &sides[0].size, .n = 2, .accessors = sides};
    usm_status        st = usm__queue_check(q);

    if (st == USM_OK)
        st = side("usm_buffer_copy", dst, USM_WRITE, &sides[0]);
    if (st == USM_OK)
        st = side("usm_buffer_copy", src, USM_READ, &sides[1]);
    if (st != USM_OK)
        return st;
    if (dst->size != src->size)
        return usm__fail(USM_E_INVALID, "usm_buffer_copy: %zu bytes from a range of %zu", dst->size,
                         src->size);
    return usm__command_submit(q, &d, ndeps, deps, ev);
}

/* ---- host tasks ------------------------------------------------------------------------------ */

usm_status usm_buffer_task(usm_queue *q, usm_buffer_task_fn fn, void *user, size_t naccessors,
                           const usm_accessor *accessors, size_t ndeps, usm_event *const *deps,
                           usm_event **ev)
{
    const usm__command_desc d = {.ops       = &usm__command_task_ops,
                                 .n         = naccessors,
                                 .accessors = accessors,
                                 .task      = fn,
                                 .user      = user};

    if (!fn || (naccessors && !accessors))
        return usm__fail(USM_E_INVALID, "usm_buffer_task: %s is NULL", fn ? "accessors" : "fn");
    return usm__command_submit(q, &d, ndeps, deps, ev);
}
