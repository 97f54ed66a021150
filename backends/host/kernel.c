/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Programs of the host backend: tables of native functions over ranges of work-items.
 *
 * There is nothing to build: a program is a checked table, a kernel one entry of it.  A launch
 * divides its ND-range along one dimension, the slowest that has more than one work-group, into
 * whole work-groups.  It makes a few shares for each worker, so that uneven ones balance; queue.c
 * hands them out.  Argument values are in the launch's payload.  The local memory of work-groups is
 * made for each share, whose work-groups run one after the other.
 *
 * Not here: checks of count, kinds and sizes, which the core does.  Called by the core, through the
 * table in host.c. */
#include "internal.h"

#include <base/inline/recycle.h>

#include <string.h>

#define SHARES_PER_WORKER 4
#define SCRATCH_SIZE      ((size_t)48 << 10) /* local memory that is kept for the next share */
#define VALUE_ALIGN       ((size_t)64)       /* the widest vector that a kernel may load */

struct program {
    const usm_native_kernel *table; /* the caller's, for the lifetime of the program */
    size_t                   count;
};

/* All parameters of a launch; behind it, VALUE_ALIGN apart, args[] and the values they point to. */
struct launch {
    usm_native_fn fn;
    usm_range     range; /* begin and end: set in a copy for each share */
    uint32_t      split; /* the dimension that is divided               */
    size_t        unit;  /* work-items in it that stay together         */
    size_t        nargs;
    size_t        local_bytes; /* of one work-group; 0: args are the same in all shares */
    void        **args;        /* local memory: NULL                          */
    size_t       *local_sizes; /* of args; 0 for others                       */
};

static usm_recycler scratch = USM_RECYCLER_INIT(SCRATCH_SIZE, 64);

static size_t padded(size_t n)
{
    return (n + VALUE_ALIGN - 1) & ~(VALUE_ALIGN - 1);
}

/* --- programs and kernels -------------------------------------------------------------------- */

static usm_status check_table(const usm_native_kernel *table, size_t size)
{
    if (!table || size == 0 || size % sizeof(*table) != 0)
        return usm__host_lib->report(USM_E_INVALID,
                                     "a native image is an array of usm_native_kernel, %zu bytes "
                                     "each: its size is %zu",
                                     sizeof(*table), size);
    for (size_t i = 0; i < size / sizeof(*table); i++)
        if (!table[i].name || !table[i].name[0] || !table[i].fn)
            return usm__host_lib->report(
                USM_E_INVALID, "entry %zu of a native image has no name or no function", i);
    return USM_OK;
}

usm_status usm__host_program_build(void *ctx, void *dev, const usm_image *image,
                                   const char *options, char **log, void **program)
{
    struct program *p;
    usm_status      status;

    (void)ctx;
    (void)dev;
    (void)options;
    (void)log;
    if (image->type != USM_IMAGE_NATIVE)
        return usm__host_lib->report(USM_E_NO_IMAGE, "the host runs images of native functions "
                                                     "only: add one to the program");
    status = check_table(image->data, image->size);
    if (status)
        return status;
    p = usm__host_lib->heap_alloc(sizeof(*p));
    if (!p)
        return usm__host_lib->report(USM_E_NO_MEMORY, "no host memory for a program");
    p->table = image->data;
    p->count = image->size / sizeof(*p->table);
    *program = p;
    return USM_OK;
}

void usm__host_program_destroy(void *program)
{
    usm__host_lib->heap_free(program);
}

usm_status usm__host_program_binary(void *program, void **data, size_t *size)
{
    (void)program;
    (void)data;
    (void)size;
    return usm__host_lib->report(USM_E_NOT_SUPPORTED, "native functions have no binary to keep");
}

usm_status usm__host_program_kernels(void *program, char **names)
{
    const struct program *p    = program;
    size_t                size = 0;
    char                 *text, *end;

    for (size_t i = 0; i < p->count; i++)
        size += strlen(p->table[i].name) + 1;
    text = end = usm__host_lib->heap_alloc(size);
    if (!text)
        return usm__host_lib->report(USM_E_NO_MEMORY, "no host memory for the kernels' names");
    for (size_t i = 0; i < p->count; i++) {
        size_t length = strlen(p->table[i].name);

        memcpy(end, p->table[i].name, length);
        end[length] = ';';
        end += length + 1;
    }
    end[-1] = 0;
    *names  = text;
    return USM_OK;
}

usm_status usm__host_kernel_create(void *program, const char *name, void **kernel)
{
    const struct program *p = program;
    usm_native_kernel    *k;
    size_t                i = 0;

    while (i < p->count && strcmp(p->table[i].name, name) != 0)
        i++;
    if (i == p->count)
        return usm__host_lib->report(USM_E_NO_KERNEL, "no native kernel is called \"%s\"", name);
    k = usm__host_lib->heap_alloc(sizeof(*k));
    if (!k)
        return usm__host_lib->report(USM_E_NO_MEMORY, "no host memory for a kernel");
    *k      = p->table[i];
    *kernel = k;
    return USM_OK;
}

void usm__host_kernel_destroy(void *kernel)
{
    usm__host_lib->heap_free(kernel);
}

usm_status usm__host_kernel_info(void *kernel, size_t *nargs, usm_arg_kind *kinds, size_t cap)
{
    const usm_native_kernel *k = kernel;

    for (size_t i = 0; i < usm_min_size(cap, k->nargs); i++)
        kinds[i] = k->kinds ? k->kinds[i] : USM_ARG_NONE;
    *nargs = k->nargs;
    return USM_OK;
}

/* --- launches -------------------------------------------------------------------------------- */

/* The range of a share: whole units of the divided dimension. */
static usm_range range_of(const struct launch *l, size_t parts, size_t part)
{
    usm_range r     = l->range;
    size_t    units = r.global[l->split] / l->unit;

    r.begin[l->split] += usm__host_share(units, parts, part) * l->unit;
    r.end[l->split] = r.offset[l->split] + usm__host_share(units, parts, part + 1) * l->unit;
    return r;
}

static size_t scratch_size(const struct launch *l)
{
    return l->nargs * sizeof(*l->args) + VALUE_ALIGN + l->local_bytes;
}

static void *scratch_new(size_t size)
{
    void *p = size <= SCRATCH_SIZE ? usm_recycler_take(&scratch, 0) : NULL;

    return p ? p : usm__host_lib->heap_alloc(usm_max_size(size, SCRATCH_SIZE));
}

static void scratch_free(void *p, size_t size)
{
    if (size > SCRATCH_SIZE || !usm_recycler_give(&scratch, p))
        usm__host_lib->heap_free(p);
}

void usm__host_scratch_forget(bool in_child)
{
    if (in_child)
        usm_recycler_in_child(&scratch);
    else
        usm_recycler_clear(&scratch, usm__host_lib->heap_free);
}

/* The arguments of one share: the launch's, with local memory of its own.  One allocation. */
static void **args_with_local(const struct launch *l)
{
    void **args = scratch_new(scratch_size(l));
    char  *at;

    if (!args)
        return NULL;
    at = (char *)usm_align_up_ptr((uintptr_t)(args + l->nargs), VALUE_ALIGN);
    for (size_t i = 0; i < l->nargs; i++) {
        args[i] = l->local_sizes[i] ? at : l->args[i];
        at += padded(l->local_sizes[i]);
    }
    return args;
}

static usm_status run_launch(usm__host_command *c, size_t part)
{
    const struct launch *l    = c->payload;
    const usm_range      r    = range_of(l, c->parts, part);
    void               **args = l->args;
    usm_status           status;

    if (l->local_bytes && !(args = args_with_local(l)))
        return USM_E_NO_MEMORY;
    status = usm__host_guard_open();
    if (!status) {
        l->fn(&r, args);
        usm__host_guard_close();
    }
    if (args != l->args)
        scratch_free(args, scratch_size(l));
    return status;
}

static bool has_local_size(const usm_launch *launch)
{
    return launch->local[0] != 0;
}

static void set_range(usm_range *r, const usm_launch *launch)
{
    r->dims = launch->dims;
    for (uint32_t d = 0; d < 3; d++) {
        bool used = d < launch->dims;

        r->offset[d] = used ? launch->offset[d] : 0;
        r->global[d] = used ? launch->global[d] : 1;
        r->local[d]  = !has_local_size(launch) ? 0 : used ? launch->local[d] : 1;
        r->begin[d]  = r->offset[d];
        r->end[d]    = r->offset[d] + r->global[d];
    }
}

/* Chooses the dimension to divide, and the number of shares. */
static size_t set_split(struct launch *l)
{
    const usm_range *r     = &l->range;
    size_t           units = 0;

    for (uint32_t d = r->dims; d-- > 0;) {
        l->split = d;
        l->unit  = r->local[d] ? r->local[d] : 1;
        units    = r->global[d] / l->unit;
        if (units > 1)
            break;
    }
    return usm_min_size(units, (size_t)usm__host.workers * SHARES_PER_WORKER);
}

/* Bytes behind struct launch that set_args() fills. */
/* The size of a pointer follows from its kind: the caller's value is ignored. */
static size_t arg_size(const usm_arg *arg)
{
    return arg->kind == USM_ARG_POINTER ? sizeof(arg->value) : arg->size;
}

static size_t args_size(const usm_launch *launch)
{
    size_t size = padded(launch->nargs * (sizeof(void *) + sizeof(size_t)));

    for (size_t i = 0; i < launch->nargs; i++)
        if (launch->args[i].kind != USM_ARG_LOCAL)
            size += padded(arg_size(&launch->args[i]));
    return size;
}

static void set_args(struct launch *l, const usm_launch *launch)
{
    char *at = (char *)l + padded(sizeof(*l));

    l->nargs       = launch->nargs;
    l->args        = (void **)(void *)at;
    l->local_sizes = (size_t *)(void *)(l->args + l->nargs);
    at += padded(l->nargs * (sizeof(void *) + sizeof(size_t)));
    for (size_t i = 0; i < l->nargs; i++) {
        const usm_arg *arg = &launch->args[i];

        if (arg->kind == USM_ARG_LOCAL) {
            l->local_sizes[i] = arg->size;
            l->local_bytes += padded(arg->size);
            continue;
        }
        if (arg->kind == USM_ARG_POINTER)
            memcpy(at, &arg->value, sizeof(arg->value));
        else
            memcpy(at, arg->value, arg->size);
        l->args[i] = at;
        at += padded(arg_size(arg));
    }
}

static bool is_empty(const usm_launch *launch)
{
    for (uint32_t d = 0; d < launch->dims; d++)
        if (launch->global[d] == 0)
            return true;
    return false;
}

usm_status usm__host_launch(void *q, void *kernel, const usm_launch *launch, size_t ndeps,
                            void *const *deps, void **ev)
{
    const usm_native_kernel *k = kernel;
    usm__host_command       *c;
    struct launch           *l;

    c = usm__host_command_create(q, ndeps, padded(sizeof(*l)) + args_size(launch));
    if (!c)
        return USM_E_NO_MEMORY;
    l     = c->payload;
    l->fn = k->fn;
    set_range(&l->range, launch);
    set_args(l, launch);
    if (l->local_bytes && !has_local_size(launch)) {
        usm__host_command_release(c);
        return usm__host_lib->report(USM_E_ARGUMENTS,
                                     "local memory belongs to work-groups: give the launch a "
                                     "local size");
    }
    if (!is_empty(launch)) { /* otherwise there is nothing to run, only the order to keep */
        c->run   = run_launch;
        c->parts = set_split(l);
    }
    return usm__host_submit(c, ndeps, deps, ev);
}
