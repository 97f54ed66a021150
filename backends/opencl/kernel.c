/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kernels, their arguments, launches.
 *
 * A cl_kernel stores its arguments, and setting them is not thread-safe.  So each launch takes a
 * native kernel of its own from a few idle ones, sets the arguments, and returns it when the driver
 * has the command, and with it a copy of the arguments.  A deferred launch (../common/defer.c)
 * keeps its instance.
 *
 * Not here: checking counts and kinds against kernel_info (the core does that). */
#include "opencl.h"

#include "../common/story.h"

#include <string.h>

/* --- instances --------------------------------------------------------------------- */

static usm_status instance_new(ocl_kernel *kernel, ocl_instance **out)
{
    ocl_instance *instance = ocl_host->heap_alloc(sizeof(*instance));
    cl_bool       yes      = CL_TRUE;
    cl_int        err      = CL_SUCCESS;

    if (!instance)
        return ocl_no_memory();
    instance->kernel = kernel;
    instance->native = cl.clCreateKernel(kernel->program->native, kernel->name, &err);
    if (err) {
        ocl_host->heap_free(instance);
        if (err == CL_INVALID_KERNEL_NAME)
            return ocl_report(USM_E_NO_KERNEL, "the program has no kernel \"%s\"", kernel->name);
        return ocl_fail(err, "clCreateKernel");
    }
    /* SVM requires a notice that a kernel may get malloc'ed memory. */
    if (kernel->program->ctx->way == OCL_WAY_SVM &&
        (kernel->program->ctx->svm & CL_DEVICE_SVM_FINE_GRAIN_SYSTEM))
        (void)cl.clSetKernelExecInfo(instance->native, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM,
                                     sizeof(yes), &yes);
    *out = instance;
    return USM_OK;
}

static void instance_delete(ocl_instance *instance)
{
    cl.clReleaseKernel(instance->native);
    ocl_host->heap_free(instance);
}

static void kernel_free(ocl_kernel *kernel)
{
    ocl_instance *instance;

    while ((instance = instances_take(&kernel->idle)) != NULL)
        instance_delete(instance);
    instances_fini(&kernel->idle);
    ocl_host->heap_free(kernel);
}

static void kernel_unref(ocl_kernel *kernel)
{
    ocl_program *program = kernel->program;

    if (!usm_ref_drop(&kernel->refs))
        return;
    kernel_free(kernel);
    ocl_program_unref(program);
}

/* Takes an instance for the caller alone, until it is returned; holds a reference to the kernel.
 * `is_new`: one whose arguments were never set. */
static usm_status instance_take(ocl_kernel *kernel, bool is_new, ocl_instance **out)
{
    ocl_instance *instance = is_new ? NULL : instances_take(&kernel->idle);
    usm_status    status   = instance ? USM_OK : instance_new(kernel, &instance);

    if (status)
        return status;
    usm_ref_take(&kernel->refs);
    *out = instance;
    return USM_OK;
}

void ocl_instance_give_back(ocl_instance *instance)
{
    ocl_kernel *kernel = instance->kernel;

    /* A list of pointers cannot be removed with every driver (NEO refuses an empty one), and its
     * blocks may be freed soon. */
    if (instance->has_list || !instances_put(&kernel->idle, &instance->link))
        instance_delete(instance);
    kernel_unref(kernel);
}

/* --- kernels ---------------------------------------------------------------------------- */

usm_status ocl_kernel_create(void *program, const char *name, void **out)
{
    ocl_program  *p      = program;
    size_t        size   = strlen(name) + 1;
    ocl_kernel   *kernel = ocl_host->heap_alloc(sizeof(*kernel) + size);
    ocl_instance *first  = NULL;
    usm_status    status;

    if (!kernel)
        return ocl_no_memory();
    kernel->program = p;
    memcpy(kernel->name, name, size);
    instances_init(&kernel->idle);
    status = instance_new(kernel, &first);
    if (status) {
        kernel_free(kernel);
        return status;
    }
    usm_store_relaxed(&kernel->refs, 1);
    instances_keep(&kernel->idle, &first->link);
    usm_ref_take(&p->refs);
    *out = kernel;
    return USM_OK;
}

void ocl_kernel_destroy(void *kernel)
{
    if (kernel)
        kernel_unref(kernel);
}

usm_status ocl_kernel_info(void *kernel, size_t *nargs, usm_arg_kind *kinds, size_t cap)
{
    const ocl_kernel *k        = kernel;
    ocl_instance     *instance = NULL;
    cl_uint           n        = 0;
    size_t            nletters = 0;
    const char       *letters  = kinds_find(k->program->kinds, k->name, &nletters);
    usm_status        status   = instance_take(kernel, false, &instance);
    cl_int            err;

    if (status)
        return status;
    err = cl.clGetKernelInfo(instance->native, CL_KERNEL_NUM_ARGS, sizeof(n), &n, NULL);
    if (err) {
        status = ocl_fail(err, "clGetKernelInfo(CL_KERNEL_NUM_ARGS)");
    } else {
        for (cl_uint i = 0; i < n && i < cap; i++) {
            kinds[i] = ocl_kind_asked(instance->native, i);
            if (kinds[i] == USM_ARG_NONE && letters && nletters == n)
                kinds[i] = kinds_letter(letters[i]);
        }
        *nargs = n;
    }
    ocl_instance_give_back(instance);
    return status;
}

usm_status ocl_kernel_groups(void *kernel, usm_backend_groups *groups)
{
    const ocl_kernel  *k        = kernel;
    cl_device_id       dev      = k->program->dev->id;
    ocl_instance      *instance = NULL;
    usm_backend_groups found    = {0};
    usm_status         status   = instance_take(kernel, false, &instance);
    cl_int             err;

    if (status)
        return status;
    err = cl.clGetKernelWorkGroupInfo(instance->native, dev, CL_KERNEL_WORK_GROUP_SIZE,
                                      sizeof(found.max_size), &found.max_size, NULL);
    if (!err)
        err = cl.clGetKernelWorkGroupInfo(instance->native, dev,
                                          CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
                                          sizeof(found.multiple), &found.multiple, NULL);
    if (!err)
        err = cl.clGetKernelWorkGroupInfo(instance->native, dev, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                                          sizeof(found.required), found.required, NULL);
    ocl_instance_give_back(instance);
    if (err)
        return ocl_fail(err, "clGetKernelWorkGroupInfo");
    *groups = found;
    return USM_OK;
}

/* --- arguments --------------------------------------------------------------------------- */

static cl_int set_arg(const ocl_context *ctx, cl_kernel native, cl_uint index, const usm_arg *arg)
{
    if (arg->kind == USM_ARG_VALUE)
        return cl.clSetKernelArg(native, index, arg->size, arg->value);
    if (arg->kind == USM_ARG_LOCAL)
        return cl.clSetKernelArg(native, index, arg->size, NULL);
    if (ctx->way == OCL_WAY_USM)
        return ctx->ext->clSetKernelArgMemPointerINTEL(native, index, arg->value);
    if (!arg->value)
        return cl.clSetKernelArg(native, index, sizeof(cl_mem), NULL);
    return cl.clSetKernelArgSVMPointer(native, index, arg->value);
}

/* NVIDIA's driver ignores NULL in clSetKernelArgSVMPointer(): the launch gets the pointer that was
 * set before, or fails with CL_INVALID_KERNEL_ARGS if there was none.  It takes NULL as a cl_mem,
 * but only for an argument that never was an SVM pointer. */
static bool needs_new_instance(const ocl_kernel *kernel, const usm_launch *launch)
{
    for (size_t i = 0; i < launch->nargs; i++)
        if (launch->args[i].kind == USM_ARG_POINTER && !launch->args[i].value)
            return kernel->program->ctx->way == OCL_WAY_SVM;
    return false;
}

static usm_status arg_failed(const ocl_kernel *kernel, size_t index, const usm_arg *arg, cl_int err)
{
    usm_status status = native_to_status(err);

    if (status == USM_E_NO_MEMORY)
        return ocl_fail(err, "setting a kernel argument");
    return ocl_report(USM_E_ARGUMENTS,
                      "argument %zu of kernel \"%s\" cannot be %s of %zu bytes (%s, %d): "
                      "compare it with the kernel's declaration",
                      index, kernel->name, message_arg(arg->kind), arg->size, ocl_error_name(err),
                      (int)err);
}

static usm_status set_args(ocl_instance *instance, const usm_launch *launch)
{
    const ocl_kernel *kernel = instance->kernel;

    for (size_t i = 0; i < launch->nargs; i++) {
        cl_int err = set_arg(kernel->program->ctx, instance->native, (cl_uint)i, &launch->args[i]);

        if (err)
            return arg_failed(kernel, i, &launch->args[i], err);
    }
    return USM_OK;
}

static cl_int set_kinds(ocl_instance *instance, uint32_t wanted)
{
    static const struct {
        uint32_t            kind;
        cl_kernel_exec_info info;
    } flags[] = {
        {USM_INDIRECT_HOST, CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL},
        {USM_INDIRECT_DEVICE, CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL},
        {USM_INDIRECT_SHARED, CL_KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL},
    };
    cl_int err = CL_SUCCESS;

    for (size_t i = 0; i < 3 && !err; i++) {
        cl_bool on = wanted & flags[i].kind ? CL_TRUE : CL_FALSE;

        if (!((wanted ^ instance->indirect_kinds) & flags[i].kind))
            continue;
        err = cl.clSetKernelExecInfo(instance->native, flags[i].info, sizeof(on), &on);
        if (!err)
            instance->indirect_kinds ^= flags[i].kind;
    }
    return err;
}

/* CPUs can access all memory anyway; and Intel's CPU runtime refuses every launch of a kernel with
 * a list (CL_INVALID_OPERATION) unless a flag is set as well. */
static bool flags_do(const ocl_program *program)
{
    return program->ctx->way == OCL_WAY_USM && program->dev->info.type == USM_DEVICE_TYPE_CPU;
}

static cl_int set_list(ocl_instance *instance, const usm_launch *launch)
{
    cl_kernel_exec_info list = instance->kernel->program->ctx->way == OCL_WAY_USM
                                   ? CL_KERNEL_EXEC_INFO_USM_PTRS_INTEL
                                   : CL_KERNEL_EXEC_INFO_SVM_PTRS;

    instance->has_list = true;
    return cl.clSetKernelExecInfo(
        instance->native, list, launch->nindirect * sizeof(launch->indirect[0]), launch->indirect);
}

/* SVM has no flag for all memory of a kind: there the list must be complete. */
static usm_status set_indirect(ocl_instance *instance, const usm_launch *launch)
{
    const ocl_program *program = instance->kernel->program;
    uint32_t           kinds   = launch->indirect_kinds;
    size_t             n       = launch->nindirect;
    cl_int             err     = CL_SUCCESS;

    if (!cl.clSetKernelExecInfo)
        return USM_OK;
    if (n && flags_do(program)) {
        kinds = USM_INDIRECT_HOST | USM_INDIRECT_DEVICE | USM_INDIRECT_SHARED;
        n     = 0;
    }
    if (program->ctx->way == OCL_WAY_USM && kinds != instance->indirect_kinds)
        err = set_kinds(instance, kinds);
    if (!err && n)
        err = set_list(instance, launch);
    return err ? ocl_fail(err, "declaring the indirect pointers (clSetKernelExecInfo)") : USM_OK;
}

/* --- launches ---------------------------------------------------------------------------- */

static bool any_nonzero(const size_t v[3], uint32_t dims)
{
    for (uint32_t d = 0; d < dims; d++)
        if (v[d])
            return true;
    return false;
}

usm_status ocl_launch(void *q, void *kernel, const usm_launch *launch, size_t ndeps,
                      void *const *deps, void **ev)
{
    driver_command cmd      = {.type = DRIVER_LAUNCH};
    ocl_instance  *instance = NULL;
    usm_status     status   = instance_take(kernel, needs_new_instance(kernel, launch), &instance);

    if (!instance)
        return status;
    status = set_args(instance, launch);
    if (!status)
        status = set_indirect(instance, launch);
    if (status) {
        ocl_instance_give_back(instance);
        return status;
    }
    cmd.as.launch.instance   = instance;
    cmd.as.launch.dims       = launch->dims;
    cmd.as.launch.has_offset = any_nonzero(launch->offset, launch->dims);
    cmd.as.launch.has_local  = any_nonzero(launch->local, launch->dims);
    memcpy(cmd.as.launch.offset, launch->offset, sizeof(launch->offset));
    memcpy(cmd.as.launch.global, launch->global, sizeof(launch->global));
    memcpy(cmd.as.launch.local, launch->local, sizeof(launch->local));
    return driver_submit(q, &cmd, ndeps, deps, ev);
}
