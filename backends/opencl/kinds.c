/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kinds of kernel arguments, as the driver reports them.  Not here: how they are stored where
 * drivers do not know them (../common/kinds.c, ../common/spirv.c).
 *
 * Called by program.c and kernel.c. */
#include "opencl.h"

#include <stdio.h>
#include <string.h>

usm_arg_kind ocl_kind_asked(cl_kernel native, cl_uint index)
{
    cl_kernel_arg_address_qualifier where = 0;

    if (cl.clGetKernelArgInfo(native, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof(where), &where,
                              NULL))
        return USM_ARG_NONE;
    switch (where) {
    case CL_KERNEL_ARG_ADDRESS_GLOBAL:
    case CL_KERNEL_ARG_ADDRESS_CONSTANT:
        return USM_ARG_POINTER;
    case CL_KERNEL_ARG_ADDRESS_LOCAL:
        return USM_ARG_LOCAL;
    case CL_KERNEL_ARG_ADDRESS_PRIVATE:
        return USM_ARG_VALUE;
    default:
        return USM_ARG_NONE;
    }
}

/* --- kinds of a program --------------------------------------------------------- */

/* Appends "name=PV;" for one kernel; the previous text is replaced. */
static usm_status append_kernel(void *program, const char *name, char **text)
{
    usm_arg_kind *kinds  = NULL;
    void         *kernel = NULL;
    size_t        n = 0, old = *text ? strlen(*text) : 0, length = strlen(name);
    char         *grown  = NULL, *at;
    usm_status    status = ocl_kernel_create(program, name, &kernel);

    if (!status)
        status = ocl_kernel_info(kernel, &n, NULL, 0);
    if (status)
        goto done;
    kinds = ocl_host->heap_alloc(n * sizeof(*kinds) + 1);
    grown = ocl_host->heap_alloc(old + length + n + 3);
    if (!kinds || !grown) {
        status = ocl_no_memory();
        ocl_host->heap_free(grown);
        goto done;
    }
    status = ocl_kernel_info(kernel, &n, kinds, n);
    if (status) {
        ocl_host->heap_free(grown);
        goto done;
    }
    if (old)
        memcpy(grown, *text, old);
    at = grown + old;
    at += snprintf(at, length + 2, "%s=", name);
    for (size_t i = 0; i < n; i++)
        *at++ = KINDS_LETTERS[kinds[i]];
    *at = ';';
    ocl_host->heap_free(*text);
    *text = grown;
done:
    ocl_host->heap_free(kinds);
    ocl_kernel_destroy(kernel);
    return status;
}

usm_status ocl_kinds_of_program(ocl_program *program, char **kinds)
{
    char      *names = NULL, *text = NULL, *rest = NULL;
    usm_status status = ocl_program_kernels(program, &names);

    if (status)
        return status;
    for (char *name = strtok_r(names, ";", &rest); name && !status;
         name       = strtok_r(NULL, ";", &rest))
        status = append_kernel(program, name, &text);
    ocl_host->heap_free(names);
    if (status)
        ocl_host->heap_free(text);
    else
        *kinds = text;
    return status;
}
