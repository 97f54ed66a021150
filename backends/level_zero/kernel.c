/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kernels, their arguments, launches.
 *
 * A ze_kernel stores its arguments, group size and offset, and setting them is not thread-safe.  So
 * each launch takes a native kernel of its own from the idle ones, sets the values that differ, and
 * returns it when the command was appended, which copied the values.  A deferred launch
 * (../common/defer.c) keeps its instance.
 *
 * Level Zero launches whole work-groups only, so the group size must divide the global size.  It
 * also forbids destroying a kernel, or its module, before its launches have ended, while libusm
 * allows a program to do so.  Therefore stream.c holds a reference to the kernel of each launch
 * until that has ended, and native kernels live as long as the kernel.
 *
 * Not here: checking counts and kinds against kernel_info (the core does that). */
#include "../common/kinds.h"
#include "../common/story.h"
#include "program.h"
#include "queue.h"

#include <string.h>

_Static_assert((int)USM_INDIRECT_HOST == (int)ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST &&
                   (int)USM_INDIRECT_DEVICE == (int)ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE &&
                   (int)USM_INDIRECT_SHARED == (int)ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED,
               "kinds of indirect access are Level Zero's");
#define ALL_INDIRECT (USM_INDIRECT_HOST | USM_INDIRECT_DEVICE | USM_INDIRECT_SHARED)

/* --- instances ---------------------------------------------------------------------------- */

static usm_status instance_new(lz_kernel *kernel, lz_instance **out)
{
    ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = kernel->name};
    lz_instance     *instance = lz_host->heap_alloc(sizeof(*instance));
    ze_result_t      err;

    if (!instance)
        return lz_no_memory();
    instance->kernel = kernel;
    err              = lz.zeKernelCreate(kernel->program->native, &desc, &instance->native);
    if (err) {
        lz_host->heap_free(instance);
        if (err == ZE_RESULT_ERROR_INVALID_KERNEL_NAME)
            return lz_report(USM_E_NO_KERNEL, "the program has no kernel \"%s\"", kernel->name);
        return lz_fail(err, "zeKernelCreate");
    }
    *out = instance;
    return USM_OK;
}

static void instance_delete(lz_instance *instance)
{
    (void)lz.zeKernelDestroy(instance->native);
    lz_host->heap_free(instance);
}

/* Takes an instance for the caller alone, until it is returned; holds a reference to the kernel. */
static usm_status instance_take(lz_kernel *kernel, lz_instance **out)
{
    lz_instance *instance = instances_take(&kernel->idle);
    usm_status   status   = instance ? USM_OK : instance_new(kernel, &instance);

    if (status)
        return status;
    usm_ref_take(&kernel->refs);
    *out = instance;
    return USM_OK;
}

static void kernel_free(lz_kernel *kernel)
{
    lz_instance *instance;

    while ((instance = instances_take(&kernel->idle)) != NULL)
        instance_delete(instance);
    instances_fini(&kernel->idle);
    lz_host->heap_free(kernel);
}

static void kernel_unref(lz_kernel *kernel)
{
    lz_program *program = kernel->program;

    if (!usm_ref_drop(&kernel->refs))
        return;
    kernel_free(kernel);
    lz_program_unref(program);
}

void lz_instance_give_back(lz_instance *instance)
{
    lz_kernel *kernel = instance->kernel;

    instances_keep(&kernel->idle, &instance->link);
    kernel_unref(kernel);
}

/* --- kernels ------------------------------------------------------------------------------ */

static usm_status ask_properties(lz_kernel *kernel, const lz_instance *instance)
{
    ze_kernel_preferred_group_size_properties_t preferred = {
        .stype = ZE_STRUCTURE_TYPE_KERNEL_PREFERRED_GROUP_SIZE_PROPERTIES,
    };
    ze_kernel_properties_t properties = {
        .stype = ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES,
        .pNext = &preferred,
    };
    ze_result_t err = lz.zeKernelGetProperties(instance->native, &properties);

    if (err)
        return lz_fail(err, "zeKernelGetProperties");
    kernel->nargs       = properties.numKernelArgs;
    kernel->required[0] = properties.requiredGroupSizeX;
    kernel->required[1] = properties.requiredGroupSizeY;
    kernel->required[2] = properties.requiredGroupSizeZ;
    kernel->most        = properties.maxSubgroupSize * properties.maxNumSubgroups;
    kernel->multiple =
        preferred.preferredMultiple ? preferred.preferredMultiple : properties.maxSubgroupSize;
    return USM_OK;
}

usm_status lz_kernel_create(void *program, const char *name, void **out)
{
    lz_program  *p      = program;
    size_t       size   = strlen(name) + 1;
    lz_kernel   *kernel = lz_host->heap_alloc(sizeof(*kernel) + size);
    lz_instance *first  = NULL;
    usm_status   status;

    if (!kernel)
        return lz_no_memory();
    kernel->program = p;
    memcpy(kernel->name, name, size);
    instances_init(&kernel->idle);
    status = instance_new(kernel, &first);
    if (first) {
        status = ask_properties(kernel, first);
        instances_keep(&kernel->idle, &first->link);
    }
    if (status) {
        kernel_free(kernel);
        return status;
    }
    usm_store_relaxed(&kernel->refs, 1);
    usm_ref_take(&p->refs);
    *out = kernel;
    return USM_OK;
}

void lz_kernel_destroy(void *kernel)
{
    if (kernel)
        kernel_unref(kernel);
}

usm_status lz_kernel_info(void *kernel, size_t *nargs, usm_arg_kind *kinds, size_t cap)
{
    const lz_kernel *k       = kernel;
    size_t           n       = 0;
    const char      *letters = kinds_find(k->program->kinds, k->name, &n);

    for (size_t i = 0; i < k->nargs && i < cap; i++)
        kinds[i] = letters && n == k->nargs ? kinds_letter(letters[i]) : USM_ARG_NONE;
    *nargs = k->nargs;
    return USM_OK;
}

usm_status lz_kernel_groups(void *kernel, usm_backend_groups *groups)
{
    const lz_kernel *k = kernel;

    groups->max_size = k->most;
    groups->multiple = k->multiple;
    for (size_t d = 0; d < 3; d++)
        groups->required[d] = k->required[d];
    return USM_OK;
}

/* --- arguments ---------------------------------------------------------------------------- */

/* A null pointer is passed without a value: Intel's driver (22.43) refuses one passed by
 * address. */
static ze_result_t set_arg(ze_kernel_handle_t native, uint32_t index, const usm_arg *arg)
{
    if (arg->kind == USM_ARG_VALUE)
        return lz.zeKernelSetArgumentValue(native, index, arg->size, arg->value);
    if (arg->kind == USM_ARG_LOCAL)
        return lz.zeKernelSetArgumentValue(native, index, arg->size, NULL);
    return lz.zeKernelSetArgumentValue(native, index, sizeof(arg->value),
                                       arg->value ? &arg->value : NULL);
}

static usm_status arg_failed(const lz_kernel *kernel, size_t index, const usm_arg *arg,
                             ze_result_t err)
{
    usm_status status = native_to_status(err);

    if (status == USM_E_NO_MEMORY || status == USM_E_DEVICE_LOST)
        return lz_fail(err, "setting a kernel argument");
    return lz_report(USM_E_ARGUMENTS,
                     "argument %zu of kernel \"%s\" cannot be %s of %zu bytes (%s, 0x%x): compare "
                     "it with the kernel's declaration",
                     index, kernel->name, message_arg(arg->kind), arg->size, lz_error_name(err),
                     (unsigned)err);
}

static usm_status set_args(const lz_instance *instance, const usm_launch *launch)
{
    for (size_t i = 0; i < launch->nargs; i++) {
        ze_result_t err = set_arg(instance->native, (uint32_t)i, &launch->args[i]);

        if (err)
            return arg_failed(instance->kernel, i, &launch->args[i], err);
    }
    return USM_OK;
}

/* The flag of the kind of memory that p is in; all flags if the driver does not know it. */
static uint32_t flag_of(const lz_context *ctx, const void *p)
{
    ze_memory_allocation_properties_t properties = {
        .stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES,
    };

    if (lz.zeMemGetAllocProperties(ctx->native, p, &properties, NULL))
        return ALL_INDIRECT;
    if (properties.type == ZE_MEMORY_TYPE_HOST)
        return USM_INDIRECT_HOST;
    if (properties.type == ZE_MEMORY_TYPE_DEVICE)
        return USM_INDIRECT_DEVICE;
    return properties.type == ZE_MEMORY_TYPE_SHARED ? USM_INDIRECT_SHARED : ALL_INDIRECT;
}

/* Level Zero has no list of pointers, only flags for all memory of a kind. */
static usm_status set_indirect(lz_instance *instance, const usm_launch *launch)
{
    uint32_t    flags = launch->indirect_kinds;
    ze_result_t err;

    for (size_t i = 0; i < launch->nindirect && flags != ALL_INDIRECT; i++)
        flags |= flag_of(instance->kernel->program->ctx, launch->indirect[i]);
    if (flags == instance->indirect)
        return USM_OK;
    err = lz.zeKernelSetIndirectAccess(instance->native, flags);
    if (err)
        return lz_fail(err, "declaring the indirect pointers (zeKernelSetIndirectAccess)");
    instance->indirect = flags;
    return USM_OK;
}

/* --- the ND-range ------------------------------------------------------------------------- */

static size_t divisor_up_to(size_t n, size_t limit)
{
    while (limit > 1 && n % limit)
        limit--;
    return limit ? limit : 1;
}

/* The driver's suggestion, reduced to a divisor of the global size. */
static usm_status suggest(lz_instance *instance, const size_t global[3], size_t group[3])
{
    uint32_t    items[3];
    ze_result_t err;

    if (memcmp(instance->asked_for, global, sizeof(instance->asked_for)) != 0) {
        for (size_t d = 0; d < 3; d++) {
            size_t n = global[d];

            while (n > UINT32_MAX)
                n /= 2;
            items[d] = (uint32_t)n;
        }
        err = lz.zeKernelSuggestGroupSize(instance->native, items[0], items[1], items[2],
                                          &instance->suggested[0], &instance->suggested[1],
                                          &instance->suggested[2]);
        if (err)
            return lz_fail(err, "zeKernelSuggestGroupSize");
        memcpy(instance->asked_for, global, sizeof(instance->asked_for));
    }
    for (size_t d = 0; d < 3; d++)
        group[d] = divisor_up_to(global[d], instance->suggested[d]);
    return USM_OK;
}

static bool any_nonzero(const size_t v[3])
{
    return v[0] || v[1] || v[2];
}

/* The launch's work-group size, otherwise the one the kernel was compiled for, otherwise a
 * suggestion. */
static usm_status choose_group(lz_instance *instance, const usm_launch *launch, size_t group[3])
{
    const lz_kernel *kernel = instance->kernel;
    bool             given  = any_nonzero(launch->local);

    if (!given && !kernel->required[0])
        return suggest(instance, launch->global, group);
    for (size_t d = 0; d < 3; d++) {
        group[d] = given ? launch->local[d] : kernel->required[d];
        if (d >= launch->dims)
            group[d] = 1;
        if (group[d] && group[d] <= UINT32_MAX && launch->global[d] % group[d] == 0)
            continue;
        return lz_report(USM_E_INVALID,
                         "kernel \"%s\": %s size %zu does not divide global[%zu] %zu; round global "
                         "up and let the kernel skip the rest",
                         kernel->name, given ? "the launch's local" : "the kernel's required",
                         group[d], d, launch->global[d]);
    }
    return USM_OK;
}

static usm_status set_group(lz_instance *instance, const size_t group[3])
{
    const lz_kernel *kernel = instance->kernel;
    const uint32_t   x = (uint32_t)group[0], y = (uint32_t)group[1], z = (uint32_t)group[2];
    ze_result_t      err;

    if (instance->group[0] == x && instance->group[1] == y && instance->group[2] == z)
        return USM_OK;
    err = lz.zeKernelSetGroupSize(instance->native, x, y, z);
    if (err == ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION && kernel->required[0])
        return lz_report(USM_E_INVALID,
                         "kernel \"%s\": its work-groups have %u x %u x %u items, not %u x %u x %u",
                         kernel->name, kernel->required[0], kernel->required[1],
                         kernel->required[2], x, y, z);
    if (err == ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION)
        return lz_report(USM_E_INVALID,
                         "kernel \"%s\": '%s' takes no work-group of %u x %u x %u items; make it "
                         "smaller, or leave it to the driver",
                         kernel->name, kernel->program->dev->info.name, x, y, z);
    if (err)
        return lz_fail(err, "zeKernelSetGroupSize");
    instance->group[0] = x;
    instance->group[1] = y;
    instance->group[2] = z;
    return USM_OK;
}

static usm_status count_groups(const lz_kernel *kernel, const usm_launch *launch,
                               const size_t group[3], uint32_t groups[3])
{
    for (size_t d = 0; d < 3; d++) {
        size_t n = launch->global[d] / group[d];

        if (n > kernel->program->max_groups[d])
            return lz_report(USM_E_INVALID,
                             "kernel \"%s\": %zu work-groups in dimension %zu are beyond the %u of "
                             "'%s'; launch in parts, or with larger groups",
                             kernel->name, n, d, kernel->program->max_groups[d],
                             kernel->program->dev->info.name);
        groups[d] = (uint32_t)n;
    }
    return USM_OK;
}

static usm_status check_offset(const lz_kernel *kernel, const size_t offset[3])
{
    if (!kernel->program->dev->driver->has_global_offset || !lz.zeKernelSetGlobalOffsetExp)
        return lz_report(USM_E_NOT_SUPPORTED,
                         "kernel \"%s\": the driver of '%s' has no global offsets; give the offset "
                         "as an argument",
                         kernel->name, kernel->program->dev->info.name);
    for (size_t d = 0; d < 3; d++)
        if (offset[d] > UINT32_MAX)
            return lz_report(USM_E_INVALID,
                             "kernel \"%s\": offset[%zu] %zu is beyond 32 bits, which is all that "
                             "Level Zero takes; give it as an argument",
                             kernel->name, d, offset[d]);
    return USM_OK;
}

static usm_status set_offset(lz_instance *instance, const size_t offset[3])
{
    const uint32_t *now = instance->offset;
    usm_status      status;
    ze_result_t     err;

    if (offset[0] == now[0] && offset[1] == now[1] && offset[2] == now[2])
        return USM_OK;
    status = check_offset(instance->kernel, offset);
    if (status)
        return status;
    err = lz.zeKernelSetGlobalOffsetExp(instance->native, (uint32_t)offset[0], (uint32_t)offset[1],
                                        (uint32_t)offset[2]);
    if (err)
        return lz_fail(err, "zeKernelSetGlobalOffsetExp");
    for (size_t d = 0; d < 3; d++)
        instance->offset[d] = (uint32_t)offset[d];
    return USM_OK;
}

static usm_status set_range(lz_instance *instance, const usm_launch *launch, uint32_t groups[3])
{
    size_t     group[3] = {1, 1, 1};
    usm_status status   = choose_group(instance, launch, group);

    if (!status)
        status = count_groups(instance->kernel, launch, group, groups);
    if (!status)
        status = set_group(instance, group);
    if (!status)
        status = set_offset(instance, launch->offset);
    return status;
}

/* --- launches ----------------------------------------------------------------------------- */

usm_status lz_launch(void *q, void *kernel, const usm_launch *launch, size_t ndeps,
                     void *const *deps, void **ev)
{
    driver_command cmd      = {.type = DRIVER_LAUNCH};
    lz_instance   *instance = NULL;
    usm_status     status   = instance_take(kernel, &instance);

    if (status)
        return status;
    status = set_args(instance, launch);
    if (!status)
        status = set_indirect(instance, launch);
    if (!status)
        status = set_range(instance, launch, cmd.as.launch.groups);
    if (status) {
        lz_instance_give_back(instance);
        return status;
    }
    cmd.as.launch.instance = instance;
    return driver_submit(q, &cmd, ndeps, deps, ev);
}
