/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared virtual memory, and the pointers that a kernel is told of.
 *
 * A pool for coarse grain and one for fine; memory with atomics, or that kernels only read or
 * write, is the driver's. */
#include "areas.h"
#include "layer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *CL_API_CALL inside_svm_alloc(cl_context ctx, cl_svm_mem_flags flags, size_t size,
                                   cl_uint align)
{
    cl_svm_mem_flags grain      = flags & ~(cl_svm_mem_flags)CL_MEM_READ_WRITE;
    bool             is_refused = false;
    void            *p          = NULL;

    if (grain == 0)
        p = inside_alloc(ctx, NULL, INSIDE_SVM, size, align, &is_refused);
    else if (grain == CL_MEM_SVM_FINE_GRAIN_BUFFER)
        p = inside_alloc(ctx, NULL, INSIDE_SVM_FINE, size, align, &is_refused);
    return p || is_refused ? p : inside.target->clSVMAlloc(ctx, flags, size, align);
}

void CL_API_CALL inside_svm_free(cl_context ctx, void *p)
{
    cl_int err;

    if (!inside_free(p, false, &err))
        inside.target->clSVMFree(ctx, p);
}

/* ---- lists of pointers ----------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (void *const *)a, y = (uintptr_t) * (void *const *)b;

    return x < y ? -1 : x > y;
}

/* Replaces pointers by the starts of their areas, each once; returns how many are left.  A driver
 * knows allocations by their start. */
static size_t to_areas(void **pointers, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        void *start = inside_area_start(pointers[i]);

        pointers[i] = start ? start : pointers[i];
    }
    qsort(pointers, n, sizeof *pointers, compare);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || pointers[kept - 1] != pointers[i])
            pointers[kept++] = pointers[i];
    return kept;
}

/* ---- clEnqueueSVMFree ------------------------------------------------------------------------ */

/* What the queue frees when it is there. */
typedef struct later {
    cl_context ctx;
    cl_uint    n;
    void      *pointers[];
} later;

static void CL_CALLBACK free_now(cl_command_queue queue, cl_uint n, void **pointers, void *user)
{
    later *l = user;

    (void)queue;
    (void)n;
    (void)pointers;
    for (cl_uint i = 0; i < l->n; i++)
        inside_svm_free(l->ctx, l->pointers[i]);
    free(l);
}

/* A program's own callback frees by clSVMFree(), which is the layer's. */
cl_int CL_API_CALL inside_enqueue_svm_free(cl_command_queue queue, cl_uint n, void **pointers,
                                           void(CL_CALLBACK *callback)(cl_command_queue, cl_uint,
                                                                       void **, void *),
                                           void *user, cl_uint nwait, const cl_event *wait,
                                           cl_event *event)
{
    bool   is_ours = false;
    size_t bytes   = n * sizeof *pointers;
    void **areas;
    later *l;
    cl_int err;

    for (cl_uint i = 0; pointers && i < n; i++)
        is_ours = is_ours || inside_area_start(pointers[i]) != NULL;
    if (callback || !is_ours)
        return inside.target->clEnqueueSVMFree(queue, n, pointers, callback, user, nwait, wait,
                                               event);
    l     = malloc(sizeof *l + bytes);
    areas = malloc(bytes);
    err   = CL_OUT_OF_HOST_MEMORY;
    if (l && areas) {
        l->n = n;
        memcpy(l->pointers, pointers, bytes);
        memcpy(areas, pointers, bytes);
        err = inside.target->clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof l->ctx, &l->ctx,
                                                   NULL);
    }
    if (!err)
        err = inside.target->clEnqueueSVMFree(queue, (cl_uint)to_areas(areas, n), areas, free_now,
                                              l, nwait, wait, event);
    if (err)
        free(l);
    free(areas);
    return err;
}

/* ---- clSetKernelExecInfo --------------------------------------------------------------------- */

cl_int CL_API_CALL inside_set_exec_info(cl_kernel kernel, cl_kernel_exec_info what, size_t size,
                                        const void *value)
{
    bool is_list =
        what == CL_KERNEL_EXEC_INFO_SVM_PTRS || what == CL_KERNEL_EXEC_INFO_USM_PTRS_INTEL;
    size_t n = size / sizeof(void *);
    void **areas;
    cl_int err;

    if (!is_list || !value || n == 0 || size % sizeof(void *) != 0)
        return inside.target->clSetKernelExecInfo(kernel, what, size, value);
    areas = malloc(size);
    if (!areas)
        return CL_OUT_OF_HOST_MEMORY;
    memcpy(areas, value, size);
    n   = to_areas(areas, n);
    err = inside.target->clSetKernelExecInfo(kernel, what, n * sizeof *areas, areas);
    free(areas);
    return err;
}
