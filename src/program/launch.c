/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Launches: every error that can be detected is refused here, with a message that names it, so that
 * backends can rely on what they receive.
 *
 * The backend receives a copy of the caller's launch with normalised unused dimensions: global 1,
 * offset 0, and local 1, or local 0 in all dimensions if none was given.  A launch without
 * work-items is reduced to its dependencies, as an empty copy is.
 *
 * A launch allocates nothing here.  Before the queue's own lock it takes only those locks that a
 * pool needs to distinguish a live block from a freed one.
 *
 * Not here: kernels (kernel.c), the steps of a submission (queue.c), and how accessors become
 * arguments (src/buffer, through the hook launch_over_buffers). */
#include "base/inline/bits.h"
#include "base/inline/plural.h"
#include "base/part.h"
#include "command/command.h"
#include "heap/pool.h"
#include "program/program.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KINDS (sizeof((usm_kernel *)0)->kinds / sizeof(usm_arg_kind))
/* Maximum size of a value: any driver's limit is lower, and a much larger size is certainly
 * wrong. */
#define VALUE_MAX    ((size_t)64 << 10)
#define ALL_INDIRECT (USM_INDIRECT_HOST | USM_INDIRECT_DEVICE | USM_INDIRECT_SHARED)

/* The position of a pointer among the arguments, for its error message. */
typedef struct place {
    const usm_queue  *q;
    const usm_kernel *k;
    const char       *what; /* "argument", "indirect pointer" */
    size_t            i;
} place;

/* --- the ND-range --------------------------------------------------------- */

static usm_status normalise(const usm_kernel *k, usm_launch *l)
{
    bool has_local = false;

    if (l->dims < 1 || l->dims > 3)
        return usm__fail(USM_E_INVALID, "kernel \"%s\": dims is %u; 1 to 3 can be", k->name,
                         l->dims);
    for (size_t d = 0; d < l->dims; d++)
        has_local = has_local || l->local[d];
    for (size_t d = l->dims; d < 3; d++) {
        l->offset[d] = 0;
        l->global[d] = 1;
        l->local[d]  = has_local ? 1 : 0;
    }
    return USM_OK;
}

static usm_status check_global(const usm_kernel *k, const usm_launch *l)
{
    size_t items = 1, end;

    for (size_t d = 0; d < l->dims; d++) {
        if (__builtin_mul_overflow(items, l->global[d], &items))
            return usm__fail(USM_E_INVALID,
                             "kernel \"%s\": %zu x %zu x %zu work-items are more than can be "
                             "counted; launch in parts",
                             k->name, l->global[0], l->global[1], l->global[2]);
        if (__builtin_add_overflow(l->offset[d], l->global[d], &end))
            return usm__fail(USM_E_INVALID,
                             "kernel \"%s\": offset[%zu] %zu + global[%zu] %zu overflow", k->name,
                             d, l->offset[d], d, l->global[d]);
    }
    return USM_OK;
}

static usm_status check_local(const usm_queue *q, const usm_kernel *k, const usm_launch *l)
{
    size_t limit = q->dev->desc.max_work_group_size; /* 0: the device does not report it */
    size_t group = 1;

    if (!l->local[0] && !l->local[1] && !l->local[2])
        return USM_OK;
    for (size_t d = 0; d < l->dims; d++) {
        if (l->local[d] == 0)
            return usm__fail(USM_E_INVALID,
                             "kernel \"%s\": local[%zu] is 0 but others are not; set all or none",
                             k->name, d);
        if (l->global[d] % l->local[d] != 0)
            return usm__fail(USM_E_INVALID,
                             "kernel \"%s\": local[%zu] %zu does not divide global[%zu] %zu; round "
                             "global up and let the kernel skip the rest",
                             k->name, d, l->local[d], d, l->global[d]);
        if (__builtin_mul_overflow(group, l->local[d], &group))
            group = SIZE_MAX;
    }
    if (limit && group > limit)
        return usm__fail(USM_E_INVALID,
                         "kernel \"%s\": a work-group of %zu x %zu x %zu is beyond the %zu of %s",
                         k->name, l->local[0], l->local[1], l->local[2], limit, q->dev->term);
    return USM_OK;
}

/* --- pointers ------------------------------------------------------------- */

/* True if some mapping of the process holds the address.  An access to an unmapped address would
 * kill the process instead of failing the command. */
static bool is_mapped(const void *p)
{
    uintptr_t     page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned char in_core;

    return mincore((void *)((uintptr_t)p & ~(page - 1)), 1, &in_core) == 0 || errno != ENOMEM;
}

/* Kernels of a processor whose memory the host shares are code of this process, and fault as the
 * program does, even where its driver does not list system allocations (PoCL's). */
static usm_status check_managed(const place *at, const void *p)
{
    const usm_device *dev = at->q->dev;

    if (dev->desc.type == USM_DEVICE_TYPE_CPU &&
        usm_device_has(dev, USM_ASPECT_USM_SHARED_ALLOCATIONS))
        return USM_OK;
    return usm__fail(USM_E_INVALID_POINTER,
                     "%s %zu of kernel \"%s\": %p is managed memory, which %s cannot reach; copy "
                     "it, or use a buffer",
                     at->what, at->i, at->k->name, p, dev->term);
}

/* Checks memory that is not libusm's.  With system allocations it may be anyone's: malloc may have
 * reused an address that libusm freed, so only an address without any memory is refused. */
static usm_status check_foreign(const place *at, const void *p)
{
    bool has_system = at->q->dev->desc.aspects >> USM_ASPECT_USM_SYSTEM_ALLOCATIONS & 1;

    if (has_system && is_mapped(p))
        return USM_OK;
    if (usm__parts_unpooled_find(p, &(usm_block){NULL, 0}))
        return check_managed(at, p);
    if (usm__freed_recently(p))
        return usm__fail(USM_E_INVALID_POINTER, "%s %zu of kernel \"%s\": the block %p was freed",
                         at->what, at->i, at->k->name, p);
    return usm__fail(USM_E_INVALID_POINTER,
                     has_system ? "%s %zu of kernel \"%s\": there is no memory at %p (%s)"
                                : "%s %zu of kernel \"%s\": %p is not libusm's memory, and %s has "
                                  "no system allocations; allocate it with usm_malloc_shared()",
                     at->what, at->i, at->k->name, p, at->q->dev->term);
}

static usm_status check_pointer(const place *at, const void *p)
{
    usm__area *area = usm__map_find(p);
    usm_block  block;

    if (!area)
        return check_foreign(at, p);
    if (area->ctx != at->q->ctx && usm__backend_can(area->ctx->be, USM_CAP_QUEUES))
        return usm__fail(
            USM_E_WRONG_CONTEXT,
            "%s %zu of kernel \"%s\": %p is memory of another context than the queue's", at->what,
            at->i, at->k->name, p);
    if (usm__pool_block(area, p, &block) != USM_OK)
        return usm__fail(
            USM_E_INVALID_POINTER,
            "%s %zu of kernel \"%s\": %p lies in no live block: it was freed, or never "
            "allocated",
            at->what, at->i, at->k->name, p);
    return USM_OK;
}

static usm_status check_indirect(const usm_queue *q, const usm_kernel *k, const usm_launch *l)
{
    place at = {q, k, "indirect pointer", 0};

    if (l->indirect_kinds & ~(uint32_t)ALL_INDIRECT)
        return usm__fail(USM_E_INVALID, "kernel \"%s\": indirect_kinds 0x%x has unknown bits",
                         k->name, l->indirect_kinds);
    if (l->nindirect && !l->indirect)
        return usm__fail(USM_E_INVALID, "kernel \"%s\": %zu indirect pointers but indirect is NULL",
                         k->name, l->nindirect);
    for (; at.i < l->nindirect; at.i++) {
        usm_status s =
            l->indirect[at.i]
                ? check_pointer(&at, l->indirect[at.i])
                : usm__fail(USM_E_INVALID_POINTER,
                            "indirect pointer %zu of kernel \"%s\" is NULL; leave it out", at.i,
                            k->name);

        if (s != USM_OK)
            return s;
    }
    return USM_OK;
}

/* --- arguments ------------------------------------------------------------ */

static const char *kind_name(usm_arg_kind kind)
{
    switch (kind) {
    case USM_ARG_POINTER:
        return "a pointer (USM_ARG_PTR)";
    case USM_ARG_VALUE:
        return "a value (USM_ARG_VAL)";
    case USM_ARG_LOCAL:
        return "local memory (USM_ARG_SCRATCH)";
    case USM_ARG_ACCESS:
        return "an accessor (USM_ARG_BUFFER)";
    case USM_ARG_NONE:
        break;
    }
    return "of no kind that exists";
}

static usm_status check_kind(const usm_kernel *k, size_t i, usm_arg_kind given)
{
    usm_arg_kind wanted = i < KINDS ? k->kinds[i] : USM_ARG_NONE;

    if (wanted == given && wanted != USM_ARG_NONE)
        return USM_OK;
    if (given < USM_ARG_POINTER || given > USM_ARG_ACCESS)
        return usm__fail(USM_E_ARGUMENTS,
                         "argument %zu of kernel \"%s\" has the kind %d; use USM_ARG_PTR, "
                         "USM_ARG_VAL, USM_ARG_SCRATCH or USM_ARG_BUFFER",
                         i, k->name, (int)given);
    if (wanted == USM_ARG_NONE || (wanted == USM_ARG_POINTER && given == USM_ARG_ACCESS))
        return USM_OK;
    return usm__fail(USM_E_ARGUMENTS, "argument %zu of kernel \"%s\" is %s, but %s was given", i,
                     k->name, kind_name(wanted), kind_name(given));
}

/* Adds the local memory that the work-group needs to *total. */
static usm_status check_scratch(const usm_queue *q, const usm_kernel *k, size_t i, size_t size,
                                size_t *total)
{
    if (size == 0)
        return usm__fail(USM_E_ARGUMENTS, "argument %zu of kernel \"%s\": 0 bytes of local memory",
                         i, k->name);
    if (__builtin_add_overflow(*total, size, total) || *total > q->dev->desc.local_memory_size)
        return usm__fail(USM_E_ARGUMENTS,
                         "argument %zu of kernel \"%s\": with its %zu bytes the work-group needs "
                         "more local memory than the %zu bytes of %s",
                         i, k->name, size, q->dev->desc.local_memory_size, q->dev->term);
    return USM_OK;
}

/* The content is checked in src/buffer, which brings the bytes. */
static usm_status check_accessor(const place *at, const usm_arg *arg)
{
    if (!arg->value || arg->size != sizeof(usm_accessor))
        return usm__fail(USM_E_ARGUMENTS,
                         "argument %zu of kernel \"%s\": %zu bytes at %p are no usm_accessor; use "
                         "USM_ARG_BUFFER over an lvalue of that type",
                         at->i, at->k->name, arg->size, arg->value);
    return USM_OK;
}

static usm_status check_arg(const place *at, const usm_arg *arg, size_t *local_total)
{
    usm_status s = check_kind(at->k, at->i, arg->kind);

    if (s != USM_OK)
        return s;
    if (arg->kind == USM_ARG_LOCAL)
        return check_scratch(at->q, at->k, at->i, arg->size, local_total);
    if (arg->kind == USM_ARG_POINTER)
        return arg->value ? check_pointer(at, arg->value) : USM_OK;
    if (arg->kind == USM_ARG_ACCESS)
        return check_accessor(at, arg);
    if (!arg->value || arg->size == 0 || arg->size > VALUE_MAX)
        return usm__fail(USM_E_ARGUMENTS,
                         "argument %zu of kernel \"%s\": a value of %zu bytes at %p; values have 1 "
                         "to %zu bytes",
                         at->i, at->k->name, arg->size, arg->value, VALUE_MAX);
    return USM_OK;
}

static usm_status check_args(const usm_queue *q, const usm_kernel *k, const usm_launch *l)
{
    place      at          = {q, k, "argument", 0};
    size_t     local_total = 0;
    usm_status s           = USM_OK;

    if (l->nargs != k->nargs)
        return usm__fail(USM_E_ARGUMENTS, "kernel \"%s\" takes %zu %s, not %zu", k->name, k->nargs,
                         usm__plural(k->nargs, "argument", "arguments"), l->nargs);
    if (l->nargs && !l->args)
        return usm__fail(USM_E_ARGUMENTS, "kernel \"%s\": %zu %s but args is NULL", k->name,
                         l->nargs, usm__plural(l->nargs, "argument", "arguments"));
    for (; s == USM_OK && at.i < l->nargs; at.i++)
        s = check_arg(&at, &l->args[at.i], &local_total);
    /* Some drivers would choose a local size and others cannot: refused on all of them. */
    if (s == USM_OK && local_total && l->local[0] == 0)
        s = usm__fail(USM_E_ARGUMENTS,
                      "kernel \"%s\": local memory belongs to work-groups: give the launch a local "
                      "size",
                      k->name);
    return s;
}

/* --- the launch ----------------------------------------------------------- */

/* Checks that the kernel can run on the queue. */
static usm_status check_objects(usm_queue *q, const usm_launch *launch)
{
    usm_status s = usm__queue_check(q);

    if (s == USM_OK)
        s = usm__struct_check("usm_queue_submit", "launch", launch, sizeof *launch,
                              "USM_LAUNCH_INIT");
    if (s == USM_OK)
        s = usm__kernel_check(launch->kernel);
    if (s != USM_OK)
        return s;
    if (launch->kernel->ctx != q->ctx)
        return usm__fail(USM_E_WRONG_CONTEXT,
                         "kernel \"%s\" is of another context than the queue; build its program in "
                         "the queue's",
                         launch->kernel->name);
    if (!launch->kernel->native[q->index])
        return usm__fail(USM_E_NO_IMAGE,
                         "kernel \"%s\" cannot run on %s: no image of its program "
                         "fits the device",
                         launch->kernel->name, q->dev->term);
    return USM_OK;
}

static usm_status check_all(const usm_queue *q, usm_launch *l)
{
    const usm_kernel *k = l->kernel;
    usm_status        s = normalise(k, l);

    if (s == USM_OK)
        s = check_global(k, l);
    if (s == USM_OK)
        s = check_local(q, k, l);
    if (s == USM_OK)
        s = check_args(q, k, l);
    if (s == USM_OK)
        s = check_indirect(q, k, l);
    return s;
}

static bool is_empty(const usm_launch *l)
{
    return !l->global[0] || !l->global[1] || !l->global[2];
}

static bool has_accessors(const usm_launch *l)
{
    for (size_t i = 0; i < l->nargs; i++)
        if (l->args[i].kind == USM_ARG_ACCESS)
            return true;
    return false;
}

usm_status usm__launch_checked(usm_queue *q, const usm_launch *l, size_t ndeps,
                               usm_event *const *deps, usm_event **ev)
{
    void       *kernel = l->kernel->native[q->index];
    usm__submit s;
    /* A device that moves no data would leave wrong results without an error. */
    usm_status st = usm__queue_probe_device(q->ctx, q->index);

    if (st == USM_OK)
        st = usm__submit_begin(&s, q, ndeps, deps, ev);
    if (st != USM_OK)
        return st;
    return usm__submit_end(&s, usm__be_launch(q->be, q->native, kernel, l, USM__SUBMIT_ARGS(&s)));
}

static usm_status launch_over_buffers(usm_queue *q, const usm_launch *l, size_t ndeps,
                                      usm_event *const *deps, usm_event **ev)
{
    const usm_part *part = usm__parts_launcher();

    return part ? part->launch_over_buffers(q, l, ndeps, deps, ev)
                : usm__fail(USM_E_NOT_SUPPORTED, "this libusm was built without buffers");
}

usm_status usm_queue_submit(usm_queue *q, const usm_launch *launch, size_t ndeps,
                            usm_event *const *deps, usm_event **ev)
{
    usm_launch l;
    usm_status st = check_objects(q, launch);

    if (st != USM_OK)
        return st;
    l             = *launch;
    l.struct_size = sizeof l;
    st            = check_all(q, &l);
    if (st != USM_OK)
        return st;
    if (is_empty(&l))
        return usm__submit_nothing(q, ndeps, deps, ev);
    if (has_accessors(&l))
        return launch_over_buffers(q, &l, ndeps, deps, ev);
    return usm__launch_checked(q, &l, ndeps, deps, ev);
}
