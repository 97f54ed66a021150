/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Command queues: an engine that is given closed lists.  Called by the loader through the table;
 * its check of a queue's descriptor by list.c, too. */
#include "exec.h"

/* --- for immediate lists, too ------------------------------------------------------------- */

/* Flags that are not known are let pass: they are hints, and Unified Runtime is known to set one of
 * a list's. */
ze_result_t exec_check_queue_desc(soft_device *dev, const ze_command_queue_desc_t *desc)
{
    if ((uint32_t)desc->mode > ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS ||
        (uint32_t)desc->priority > ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    return exec_check_group(dev, desc->ordinal, desc->index, NULL);
}

/* --- create, destroy ------------------------------------------------------------------------ */

static ze_result_t queue_new(soft_device *dev, const ze_command_queue_desc_t *desc,
                             exec_queue **out)
{
    exec_queue *queue = exec_object_new(SOFT_QUEUE, sizeof(*queue));

    if (!queue)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    queue->engine = exec_engine_new(dev, true);
    if (!queue->engine) {
        exec_object_retire(queue);
        exec_object_free(queue);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    queue->dev            = dev;
    queue->ordinal        = desc->ordinal;
    queue->index          = desc->index;
    queue->is_synchronous = desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    *out                  = queue;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeCommandQueueCreate(ze_context_handle_t            hctx,
                                                        ze_device_handle_t             hdev,
                                                        const ze_command_queue_desc_t *desc,
                                                        ze_command_queue_handle_t     *out)
{
    soft_device *dev;
    exec_queue  *queue;
    ze_result_t  res;

    SOFT_CALL();
    if (!hdev || !soft_context_of(hctx))
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    dev = soft_device_of(hdev);
    if (!dev)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (soft_is_lost(dev))
        return ZE_RESULT_ERROR_DEVICE_LOST;
    res = exec_check_queue_desc(dev, desc);
    if (res == ZE_RESULT_SUCCESS)
        res = queue_new(dev, desc, &queue);
    if (res == ZE_RESULT_SUCCESS)
        *out = (ze_command_queue_handle_t)queue;
    return res;
}

static ze_result_t ZE_APICALL soft_zeCommandQueueDestroy(ze_command_queue_handle_t h)
{
    exec_queue *queue;

    soft_enter_free(__func__);
    EXEC_HANDLE(queue, h, SOFT_QUEUE);
    exec_object_retire(queue);
    exec_engine_close(queue->engine);
    exec_object_free(queue);
    return ZE_RESULT_SUCCESS;
}

/* --- execution -------------------------------------------------------------------------------- */

/* Its signal is the fence's cell. */
static const exec_kind fence_kind = {.name = "a fence", .is_fence = true, .is_ours = true};

static ze_result_t add_fence(exec_cmd *cmds, exec_fence *fence)
{
    exec_events none = {0};
    exec_cmd   *cmd;
    ze_result_t res = exec_cmd_new(&fence_kind, &none, 0, &cmd, NULL);

    if (res != ZE_RESULT_SUCCESS)
        return res;
    cmd->signal = (exec_point){exec_store_ref(fence->point.store), fence->point.cell};
    while (cmds->next)
        cmds = cmds->next;
    cmds->next = cmd;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t execute(exec_queue *queue, uint32_t n, ze_command_list_handle_t *lists,
                           exec_fence *fence)
{
    exec_events none = {0};
    exec_cmd   *cmds = NULL;
    ze_result_t res;

    res = exec_lists_cmds(queue->dev, &queue->ordinal, n, lists, &none, &cmds);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    if (fence)
        res = add_fence(cmds, fence);
    if (res != ZE_RESULT_SUCCESS) {
        exec_cmd_free(cmds);
        return res;
    }
    res = exec_engine_submit(queue->engine, cmds);
    if (res == ZE_RESULT_SUCCESS && queue->is_synchronous)
        res = exec_engine_wait(queue->engine, UINT64_MAX);
    return res;
}

static ze_result_t ZE_APICALL
soft_zeCommandQueueExecuteCommandLists(ze_command_queue_handle_t h, uint32_t n,
                                       ze_command_list_handle_t *lists, ze_fence_handle_t hfence)
{
    exec_queue *queue;
    exec_fence *fence = NULL;

    SOFT_CALL();
    EXEC_HANDLE(queue, h, SOFT_QUEUE);
    if (!lists)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!n)
        return ZE_RESULT_ERROR_INVALID_SIZE;
    if (hfence) {
        fence = exec_object_of(hfence, SOFT_FENCE);
        if (!fence || fence->queue != queue)
            return ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT;
    }
    return execute(queue, n, lists, fence);
}

static ze_result_t ZE_APICALL soft_zeCommandQueueSynchronize(ze_command_queue_handle_t h,
                                                             uint64_t                  timeout)
{
    exec_queue *queue;

    SOFT_CALL();
    EXEC_HANDLE(queue, h, SOFT_QUEUE);
    return exec_engine_wait(queue->engine, timeout);
}

#if SOFT_HAS_API_1_12
static ze_result_t ZE_APICALL soft_zeCommandQueueGetOrdinal(ze_command_queue_handle_t h,
                                                            uint32_t                 *out)
{
    exec_queue *queue;

    SOFT_CALL();
    EXEC_HANDLE(queue, h, SOFT_QUEUE);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = queue->ordinal;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeCommandQueueGetIndex(ze_command_queue_handle_t h,
                                                          uint32_t                 *out)
{
    exec_queue *queue;

    SOFT_CALL();
    EXEC_HANDLE(queue, h, SOFT_QUEUE);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = queue->index;
    return ZE_RESULT_SUCCESS;
}
#endif

SOFT_TABLE(zeGetCommandQueueProcAddrTable, ze_command_queue_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnCreate, soft_zeCommandQueueCreate);
    SOFT_FIELD(1, 0, pfnDestroy, soft_zeCommandQueueDestroy);
    SOFT_FIELD(1, 0, pfnExecuteCommandLists, soft_zeCommandQueueExecuteCommandLists);
    SOFT_FIELD(1, 0, pfnSynchronize, soft_zeCommandQueueSynchronize);
#if SOFT_HAS_API_1_12
    SOFT_FIELD(1, 9, pfnGetOrdinal, soft_zeCommandQueueGetOrdinal);
    SOFT_FIELD(1, 9, pfnGetIndex, soft_zeCommandQueueGetIndex);
#endif
    return ZE_RESULT_SUCCESS;
}
