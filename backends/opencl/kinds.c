/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kinds of kernel arguments, remembered where drivers forget them.
 *
 * The core checks launches against the kinds that kernel_info tells.  Drivers
 * know them of what they compiled from text; of binaries and SPIR-V Intel's CPU
 * runtime knows none.  Then a program loaded from the cache would take launches
 * that it refused when it was compiled, and a value given for a pointer would
 * be dereferenced as a cl_mem by some drivers.  So a binary travels with a line
 * of text in front, "add=PV;sum=PPL;", and SPIR-V is read for the same
 * (spirv.c).  A driver's bare binary is taken, too: its kinds stay unknown.
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

const char *ocl_kinds_find(const char *kinds, const char *name, size_t *n)
{
    size_t length = strlen(name);

    for (const char *at = kinds; at && *at; at = strchr(at, ';'), at = at ? at + 1 : NULL)
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            *n = strcspn(at + length + 1, ";");
            return at + length + 1;
        }
    return NULL;
}

/* --- of a program --------------------------------------------------------------- */

/* Appends "name=PV;" of one kernel; the text so far is replaced. */
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
        *at++ = OCL_KIND_LETTERS[kinds[i]];
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

/* --- beside a binary ---------------------------------------------------------------- */

static const char magic[8] = "USMOCL1";

typedef struct wrap_header {
    char     magic[8];
    uint64_t kinds_size; /* of the text that follows, with its 0 */
} wrap_header;

usm_status ocl_binary_wrap(const char *kinds, void *binary, size_t binary_size, void **data,
                           size_t *size)
{
    wrap_header h    = {.kinds_size = (kinds ? strlen(kinds) : 0) + 1};
    size_t      all  = sizeof(h) + h.kinds_size + binary_size;
    char       *wrap = ocl_host->heap_alloc(all);

    if (!wrap)
        return ocl_no_memory();
    memcpy(h.magic, magic, sizeof(magic));
    memcpy(wrap, &h, sizeof(h));
    if (kinds)
        memcpy(wrap + sizeof(h), kinds, h.kinds_size);
    memcpy(wrap + sizeof(h) + h.kinds_size, binary, binary_size);
    *data = wrap;
    *size = all;
    return USM_OK;
}

usm_status ocl_binary_unwrap(const usm_image *image, usm_image *raw, char **kinds)
{
    const char *data = image->data;
    wrap_header h;
    char       *text;

    if (image->size < sizeof(h) || memcmp(data, magic, sizeof(magic)) != 0)
        return USM_OK;
    memcpy(&h, data, sizeof(h));
    if (h.kinds_size == 0 || h.kinds_size > image->size - sizeof(h) ||
        data[sizeof(h) + h.kinds_size - 1] != '\0')
        return ocl_report(USM_E_BUILD, "the binary is damaged: compile the program anew");
    text = ocl_host->heap_alloc(h.kinds_size);
    if (!text)
        return ocl_no_memory();
    memcpy(text, data + sizeof(h), h.kinds_size);
    raw->data = data + sizeof(h) + h.kinds_size;
    raw->size = image->size - sizeof(h) - h.kinds_size;
    *kinds    = text;
    return USM_OK;
}
