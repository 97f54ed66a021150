/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Launches: a kernel's arguments, group size and offset as they were at the append, and running
 * them on a thread of the engine, as often as it likes.
 *
 * Native functions get the whole launch as one range, and when they have local memory one
 * work-group at a time: memory between work-items is all that a group is to them.
 *
 * Called by append.c and the engine. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

#define VALUE_ALIGN ((size_t)64) /* the widest vector that a native function may load */
#define FOUR_GIB    ((uint64_t)4 << 30)

/* Behind it, VALUE_ALIGN apart, the values. */
struct soft_launch {
    soft_entry             *entry; /* a reference */
    soft_call               call;
    const ze_group_count_t *indirect; /* where the group count is read, or NULL */
    soft_value              values[];
};

static size_t padded(size_t n)
{
    return (n + VALUE_ALIGN - 1) & ~(VALUE_ALIGN - 1);
}

/* Also local memory has room: what a native function is given for it. */
static size_t launch_size(const soft_kernel *kernel)
{
    const soft_function *function = kernel->entry->function;
    size_t               size = padded(sizeof(soft_launch) + function->nargs * sizeof(soft_value));

    for (uint32_t i = 0; i < function->nargs; i++)
        if (function->args[i].kind != SOFT_ARG_LOCAL || function->native)
            size += padded(kernel->slots[i].size);
    return size;
}

/* An argument in an allocation of more than 4 GiB needs a kernel that was built for it. */
static bool is_too_large(const soft_slot *slot)
{
    soft_alloc  found;
    const void *pointer;

    memcpy(&pointer, slot->data, sizeof(pointer));
    return pointer && soft_alloc_find(pointer, &found) && found.size > FOUR_GIB;
}

static ze_result_t check_args(const soft_kernel *kernel)
{
    const soft_function *function = kernel->entry->function;
    bool                 may_be_large =
        !kernel->entry->code->is_large && atomic_load(&kernel->dev->root->used) > FOUR_GIB;

    for (uint32_t i = 0; i < function->nargs; i++) {
        if (!kernel->slots[i].is_set)
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
        if (may_be_large && function->args[i].kind == SOFT_ARG_POINTER &&
            is_too_large(&kernel->slots[i]))
            return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    }
    return ZE_RESULT_SUCCESS;
}

static void take_values(soft_launch *launch, const soft_kernel *kernel)
{
    const soft_function *function = kernel->entry->function;
    char *at = (char *)launch + padded(sizeof(*launch) + function->nargs * sizeof(soft_value));

    for (uint32_t i = 0; i < function->nargs; i++) {
        size_t size = kernel->slots[i].size;

        launch->values[i] = (soft_value){size, NULL};
        if (function->args[i].kind == SOFT_ARG_LOCAL && !function->native)
            continue;
        if (function->args[i].kind != SOFT_ARG_LOCAL)
            memcpy(at, kernel->slots[i].data, size);
        launch->values[i].data = at;
        at += padded(size);
    }
}

static ze_result_t launch_new(ze_kernel_handle_t h, soft_launch **out)
{
    soft_kernel *kernel;
    soft_launch *launch;
    ze_result_t  result;

    EXEC_HANDLE(kernel, h, SOFT_KERNEL);
    result = check_args(kernel);
    if (result)
        return result;
    launch = aligned_alloc(VALUE_ALIGN, launch_size(kernel));
    if (!launch)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    launch->entry    = soft_entry_get(kernel->entry);
    launch->indirect = NULL;
    launch->call     = (soft_call){.function = kernel->entry->function, .values = launch->values};
    memcpy(launch->call.group, kernel->group, sizeof(launch->call.group));
    memcpy(launch->call.offset, kernel->offset, sizeof(launch->call.offset));
    take_values(launch, kernel);
    *out = launch;
    return ZE_RESULT_SUCCESS;
}

static void set_count(soft_call *call, const ze_group_count_t *groups)
{
    call->count[0] = groups->groupCountX;
    call->count[1] = groups->groupCountY;
    call->count[2] = groups->groupCountZ;
}

ze_result_t soft_launch_new(ze_kernel_handle_t kernel, const ze_group_count_t *groups,
                            soft_launch **launch)
{
    ze_result_t result;

    if (!groups)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    result = launch_new(kernel, launch);
    if (!result)
        set_count(&(*launch)->call, groups);
    return result;
}

ze_result_t soft_launch_new_indirect(ze_kernel_handle_t kernel, const ze_group_count_t *groups,
                                     soft_launch **launch)
{
    ze_result_t result;

    if (!groups)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    result = launch_new(kernel, launch);
    if (!result)
        (*launch)->indirect = groups;
    return result;
}

void soft_launch_free(soft_launch *launch)
{
    if (!launch)
        return;
    soft_entry_put(launch->entry);
    free(launch);
}

/* --- native functions ---------------------------------------------------------------------- */

static bool has_local_memory(const soft_function *function)
{
    for (uint32_t i = 0; i < function->nargs; i++)
        if (function->args[i].kind == SOFT_ARG_LOCAL)
            return true;
    return false;
}

static void run_group(const soft_call *call, ze_soft_range range, const size_t group[3],
                      void *const *args)
{
    for (int d = 0; d < 3; d++) {
        range.begin[d] = range.offset[d] + group[d] * range.local[d];
        range.end[d]   = range.begin[d] + range.local[d];
    }
    call->function->native(&range, args);
}

static void run_groups(const soft_call *call, const ze_soft_range *range, void *const *args)
{
    size_t group[3];

    for (group[2] = 0; group[2] < call->count[2]; group[2]++)
        for (group[1] = 0; group[1] < call->count[1]; group[1]++)
            for (group[0] = 0; group[0] < call->count[0]; group[0]++)
                run_group(call, *range, group, args);
}

static ze_result_t run_native(const soft_call *call)
{
    ze_soft_range range = {.dims = 3};
    void        **args  = calloc(call->function->nargs + 1u, sizeof(*args));

    if (!args)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < call->function->nargs; i++)
        args[i] = call->values[i].data;
    for (int d = 0; d < 3; d++) {
        range.offset[d] = range.begin[d] = call->offset[d];
        range.local[d]                   = call->group[d];
        range.global[d]                  = (size_t)call->group[d] * call->count[d];
        range.end[d]                     = range.begin[d] + range.global[d];
    }
    if (has_local_memory(call->function))
        run_groups(call, &range, args);
    else
        call->function->native(&range, args);
    free(args);
    return ZE_RESULT_SUCCESS;
}

/* --- running -------------------------------------------------------------------------------- */

static ze_result_t read_count(soft_launch *launch)
{
    const ze_group_count_t *groups;

    if (!launch->indirect)
        return ZE_RESULT_SUCCESS;
    groups = soft_view(launch->indirect, sizeof(*groups));
    if (!groups)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    set_count(&launch->call, groups);
    return ZE_RESULT_SUCCESS;
}

ze_result_t soft_launch_run(soft_launch *launch)
{
    const soft_call *call   = &launch->call;
    ze_result_t      result = read_count(launch);

    if (result || call->count[0] == 0 || call->count[1] == 0 || call->count[2] == 0)
        return result;
    soft_guard_open();
    soft_moving_open();
    result = launch->entry->cl ? soft_cl_run(launch->entry->cl, call) : run_native(call);
    soft_moving_close();
    soft_guard_close();
    return result;
}
