/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fences: a cell of its own for each, set by the queue's engine after the lists it was given with.
 * Called by the loader through the table; the signal is a command of queue.c. */
#include "exec.h"

static ze_result_t ZE_APICALL soft_zeFenceCreate(ze_command_queue_handle_t h,
                                                 const ze_fence_desc_t    *desc,
                                                 ze_fence_handle_t        *out)
{
    exec_queue *queue;
    exec_fence *fence;
    exec_store *store;

    SOFT_CALL();
    EXEC_HANDLE(queue, h, SOFT_QUEUE);
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->flags & ~(uint32_t)ZE_FENCE_FLAG_SIGNALED)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    fence = exec_object_new(SOFT_FENCE, sizeof(*fence));
    if (!fence)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    store = exec_store_new(1, 1u << queue->dev->index, false);
    if (!store)
        goto err_fence;
    fence->queue = queue;
    fence->point = (exec_point){store, store->cells};
    if (desc->flags & ZE_FENCE_FLAG_SIGNALED)
        exec_cell_set(fence->point.cell);
    *out = (ze_fence_handle_t)fence;
    return ZE_RESULT_SUCCESS;

err_fence:
    exec_object_retire(fence);
    exec_object_free(fence);
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static ze_result_t ZE_APICALL soft_zeFenceDestroy(ze_fence_handle_t h)
{
    exec_fence *fence;

    soft_enter_free(__func__);
    EXEC_HANDLE(fence, h, SOFT_FENCE);
    exec_object_retire(fence);
    exec_store_unref(fence->point.store);
    exec_object_free(fence);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeFenceHostSynchronize(ze_fence_handle_t h, uint64_t timeout)
{
    exec_fence *fence;

    SOFT_CALL();
    EXEC_HANDLE(fence, h, SOFT_FENCE);
    return exec_wait_result(exec_point_wait(&fence->point, NULL, exec_deadline(timeout)));
}

static ze_result_t ZE_APICALL soft_zeFenceQueryStatus(ze_fence_handle_t h)
{
    exec_fence *fence;

    SOFT_CALL();
    EXEC_HANDLE(fence, h, SOFT_FENCE);
    return exec_wait_result(exec_point_wait(&fence->point, NULL, 0));
}

static ze_result_t ZE_APICALL soft_zeFenceReset(ze_fence_handle_t h)
{
    exec_fence *fence;

    SOFT_CALL();
    EXEC_HANDLE(fence, h, SOFT_FENCE);
    exec_cell_reset(fence->point.cell);
    return ZE_RESULT_SUCCESS;
}

SOFT_TABLE(zeGetFenceProcAddrTable, ze_fence_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnCreate, soft_zeFenceCreate);
    SOFT_FIELD(1, 0, pfnDestroy, soft_zeFenceDestroy);
    SOFT_FIELD(1, 0, pfnHostSynchronize, soft_zeFenceHostSynchronize);
    SOFT_FIELD(1, 0, pfnQueryStatus, soft_zeFenceQueryStatus);
    SOFT_FIELD(1, 0, pfnReset, soft_zeFenceReset);
    return ZE_RESULT_SUCCESS;
}
