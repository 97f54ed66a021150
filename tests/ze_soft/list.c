/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Command lists: immediate ones, which have an engine of their own, and regular ones, which keep
 * their commands in a body.  Called by the loader through the tables, by append.c and copy.c before
 * and after they make a command, and by queue.c.
 *
 * A body is shared by the list, its clones and the executions that are not done; Reset gives the
 * list another one, so that a list may be reset or destroyed at any time. */
#include "exec.h"
#include "ze_soft.h"

#define LIST_FLAGS_KNOWN  0x1fu
#define COPY_OFFLOAD_TYPE 0x0003001bu

SOFT_EXPORT ze_soft_copy_offloads_fn ze_soft_copy_offloads;

static _Atomic uint64_t copy_offloads;

uint64_t ze_soft_copy_offloads(void)
{
    return atomic_load(&copy_offloads);
}

/* --- for appends ---------------------------------------------------------------------- */

ze_result_t exec_check_group(soft_device *dev, uint32_t ordinal, uint32_t index,
                             ze_command_queue_group_properties_t *group)
{
    uint32_t                                   n;
    const ze_command_queue_group_properties_t *groups = soft_queue_groups(dev, &n);

    if (ordinal >= n || index >= groups[ordinal].numQueues)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (group)
        *group = groups[ordinal];
    return ZE_RESULT_SUCCESS;
}

ze_result_t exec_list_open(ze_command_list_handle_t h, exec_list **list)
{
    EXEC_HANDLE(*list, h, SOFT_LIST);
    if (soft_is_lost((*list)->dev))
        return ZE_RESULT_ERROR_DEVICE_LOST;
    return (*list)->is_closed && !soft_is_lenient() ? ZE_RESULT_ERROR_INVALID_ARGUMENT
                                                    : ZE_RESULT_SUCCESS;
}

ze_result_t exec_list_append(exec_list *list, exec_cmd *cmd)
{
    ze_result_t res;

    if (list->is_closed) {
        exec_cmd_free(cmd);
        return ZE_RESULT_SUCCESS;
    }
    if (!list->engine)
        return exec_body_add(list->body, cmd);
    res = exec_engine_submit(list->engine, cmd);
    if (res == ZE_RESULT_SUCCESS && list->is_synchronous)
        res = exec_engine_wait(list->engine, UINT64_MAX);
    return res;
}

/* --- create, destroy -------------------------------------------------------------------- */

/* Takes the engine or the body. */
static ze_result_t list_new(ze_context_handle_t ctx, soft_device *dev, exec_engine *engine,
                            exec_body *body, exec_list **out)
{
    exec_list *list = NULL;

    if (engine || body)
        list = exec_object_new(SOFT_LIST, sizeof(*list));
    if (!list) {
        if (engine)
            exec_engine_close(engine);
        exec_body_unref(body);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    list->ctx    = ctx;
    list->dev    = dev;
    list->engine = engine;
    list->body   = body;
    *out         = list;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t check(ze_context_handle_t hctx, ze_device_handle_t hdev, const void *desc,
                         const void *out, soft_device **dev)
{
    if (!hdev || !soft_context_of(hctx))
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *dev = soft_device_of(hdev);
    if (!*dev)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return soft_is_lost(*dev) ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeCommandListCreate(ze_context_handle_t           hctx,
                                                       ze_device_handle_t            hdev,
                                                       const ze_command_list_desc_t *desc,
                                                       ze_command_list_handle_t     *out)
{
    soft_device *dev;
    exec_list   *list;
    ze_result_t  res;

    SOFT_CALL();
    res = check(hctx, hdev, desc, out, &dev);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    if ((desc->flags & ~LIST_FLAGS_KNOWN) && !soft_is_lenient())
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    res = exec_check_group(dev, desc->commandQueueGroupOrdinal, 0, NULL);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    res = list_new(hctx, dev, NULL, exec_body_new(desc->flags & EXEC_LIST_FLAG_IN_ORDER), &list);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    list->ordinal = desc->commandQueueGroupOrdinal;
    list->flags   = desc->flags;
    *out          = (ze_command_list_handle_t)list;
    return ZE_RESULT_SUCCESS;
}

/* Intel's driver takes the structure for the first of the chain. */
static bool wants_copy_offload(const ze_command_queue_desc_t *desc)
{
    const ze_base_desc_t *first = desc->pNext;

    return first && (uint32_t)first->stype == COPY_OFFLOAD_TYPE;
}

static ze_result_t ZE_APICALL soft_zeCommandListCreateImmediate(ze_context_handle_t            hctx,
                                                                ze_device_handle_t             hdev,
                                                                const ze_command_queue_desc_t *desc,
                                                                ze_command_list_handle_t      *out)
{
    soft_device *dev;
    exec_list   *list;
    ze_result_t  res;

    SOFT_CALL();
    res = check(hctx, hdev, desc, out, &dev);
    if (res == ZE_RESULT_SUCCESS)
        res = exec_check_queue_desc(dev, desc);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    res = list_new(hctx, dev, exec_engine_new(dev, desc->flags & EXEC_QUEUE_FLAG_IN_ORDER), NULL,
                   &list);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    if (wants_copy_offload(desc))
        atomic_fetch_add(&copy_offloads, 1);
    list->ordinal        = desc->ordinal;
    list->index          = desc->index;
    list->flags          = desc->flags;
    list->is_synchronous = desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    *out                 = (ze_command_list_handle_t)list;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeCommandListDestroy(ze_command_list_handle_t h)
{
    exec_list *list;

    soft_enter_free(__func__);
    EXEC_HANDLE(list, h, SOFT_LIST);
    exec_object_retire(list);
    if (list->engine)
        exec_engine_close(list->engine);
    exec_body_unref(list->body);
    exec_object_free(list);
    return ZE_RESULT_SUCCESS;
}

/* --- close, reset -------------------------------------------------------------------------- */

/* An immediate list is never closed; programs that treat all lists alike close it all the same. */
static ze_result_t ZE_APICALL soft_zeCommandListClose(ze_command_list_handle_t h)
{
    exec_list *list;

    SOFT_CALL();
    EXEC_HANDLE(list, h, SOFT_LIST);
    if (soft_is_lost(list->dev))
        return ZE_RESULT_ERROR_DEVICE_LOST;
    list->is_closed = !list->engine;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeCommandListReset(ze_command_list_handle_t h)
{
    exec_list *list;
    exec_body *body;

    SOFT_CALL();
    EXEC_HANDLE(list, h, SOFT_LIST);
    if (soft_is_lost(list->dev))
        return ZE_RESULT_ERROR_DEVICE_LOST;
    if (list->engine)
        return ZE_RESULT_SUCCESS;
    body = exec_body_new(list->body->is_in_order);
    if (!body)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    exec_body_unref(list->body);
    list->body      = body;
    list->is_closed = false;
    return ZE_RESULT_SUCCESS;
}

/* --- execution ------------------------------------------------------------------------------ */

/* Whether a list may be executed on dev; `ordinal` NULL: on any group. */
static ze_result_t check_executable(const soft_device *dev, const uint32_t *ordinal,
                                    ze_command_list_handle_t h, exec_list **list)
{
    EXEC_HANDLE(*list, h, SOFT_LIST);
    if ((*list)->engine || (ordinal && (*list)->ordinal != *ordinal))
        return ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE;
    if (!(*list)->is_closed || (*list)->dev->root != dev->root)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return ZE_RESULT_SUCCESS;
}

ze_result_t exec_lists_cmds(const soft_device *dev, const uint32_t *ordinal, uint32_t n,
                            ze_command_list_handle_t *lists, const exec_events *events,
                            exec_cmd **cmds)
{
    exec_cmd   *head = NULL, **tail = &head;
    ze_result_t res = ZE_RESULT_SUCCESS;

    for (uint32_t i = 0; i < n && res == ZE_RESULT_SUCCESS; i++) {
        exec_events part = {0};
        exec_list  *list;

        if (i == 0) {
            part.nwaits = events->nwaits;
            part.waits  = events->waits;
        }
        if (i == n - 1)
            part.signal = events->signal;
        res = check_executable(dev, ordinal, lists[i], &list);
        if (res == ZE_RESULT_SUCCESS)
            res = exec_body_cmd(list->body, &part, tail);
        if (res == ZE_RESULT_SUCCESS)
            tail = &(*tail)->next;
    }
    if (res == ZE_RESULT_SUCCESS)
        *cmds = head;
    else
        exec_cmd_free(head);
    return res;
}

/* --- 1.6 and later --------------------------------------------------------------------------- */

#if SOFT_HAS_API_1_12
static ze_result_t ZE_APICALL soft_zeCommandListHostSynchronize(ze_command_list_handle_t h,
                                                                uint64_t                 timeout)
{
    exec_list *list;

    SOFT_CALL();
    EXEC_HANDLE(list, h, SOFT_LIST);
    return list->engine ? exec_engine_wait(list->engine, timeout)
                        : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

static ze_result_t ZE_APICALL soft_zeCommandListGetDeviceHandle(ze_command_list_handle_t h,
                                                                ze_device_handle_t      *out)
{
    exec_list *list;

    SOFT_CALL();
    EXEC_HANDLE(list, h, SOFT_LIST);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = (ze_device_handle_t)list->dev;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeCommandListGetContextHandle(ze_command_list_handle_t h,
                                                                 ze_context_handle_t     *out)
{
    exec_list *list;

    SOFT_CALL();
    EXEC_HANDLE(list, h, SOFT_LIST);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = list->ctx;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeCommandListGetOrdinal(ze_command_list_handle_t h,
                                                           uint32_t                *out)
{
    exec_list *list;

    SOFT_CALL();
    EXEC_HANDLE(list, h, SOFT_LIST);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = list->ordinal;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeCommandListImmediateGetIndex(ze_command_list_handle_t h,
                                                                  uint32_t                *out)
{
    exec_list *list;

    SOFT_CALL();
    EXEC_HANDLE(list, h, SOFT_LIST);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!list->engine)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    *out = list->index;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeCommandListIsImmediate(ze_command_list_handle_t h,
                                                            ze_bool_t               *out)
{
    exec_list *list;

    SOFT_CALL();
    EXEC_HANDLE(list, h, SOFT_LIST);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = list->engine != NULL;
    return ZE_RESULT_SUCCESS;
}

/* The clone has the same commands: nobody changes those of a closed list. */
static ze_result_t ZE_APICALL soft_zeCommandListCreateCloneExp(ze_command_list_handle_t  h,
                                                               ze_command_list_handle_t *out)
{
    exec_list  *list, *clone;
    ze_result_t res;

    SOFT_CALL();
    EXEC_HANDLE(list, h, SOFT_LIST);
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!list->is_closed || !(list->flags & ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE))
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    res = list_new(list->ctx, list->dev, NULL, exec_body_ref(list->body), &clone);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    clone->ordinal   = list->ordinal;
    clone->flags     = list->flags;
    clone->is_closed = true;
    *out             = (ze_command_list_handle_t)clone;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeCommandListImmediateAppendCommandListsExp(
    ze_command_list_handle_t h, uint32_t n, ze_command_list_handle_t *lists,
    ze_event_handle_t signal, uint32_t nwaits, ze_event_handle_t *waits)
{
    exec_events events = {.signal = signal, .nwaits = nwaits, .waits = waits};
    exec_list  *list;
    exec_cmd   *cmds;
    ze_result_t res;

    SOFT_CALL();
    res = exec_list_open(h, &list);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    if (!lists)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!list->engine)
        return ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE;
    if (!n)
        return ZE_RESULT_ERROR_INVALID_SIZE;
    res = exec_lists_cmds(list->dev, NULL, n, lists, &events, &cmds);
    return res == ZE_RESULT_SUCCESS ? exec_list_append(list, cmds) : res;
}

SOFT_TABLE(zeGetCommandListExpProcAddrTable, ze_command_list_exp_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 9, pfnCreateCloneExp, soft_zeCommandListCreateCloneExp);
    SOFT_FIELD(1, 9, pfnImmediateAppendCommandListsExp,
               soft_zeCommandListImmediateAppendCommandListsExp);
    return ZE_RESULT_SUCCESS;
}
#endif

/* The fields of append.c and copy.c are theirs: a table has one function that fills it. */
SOFT_TABLE(zeGetCommandListProcAddrTable, ze_command_list_dditable_t)
{
    SOFT_TABLE_CHECK();
    SOFT_FIELD(1, 0, pfnCreate, soft_zeCommandListCreate);
    SOFT_FIELD(1, 0, pfnCreateImmediate, soft_zeCommandListCreateImmediate);
    SOFT_FIELD(1, 0, pfnDestroy, soft_zeCommandListDestroy);
    SOFT_FIELD(1, 0, pfnClose, soft_zeCommandListClose);
    SOFT_FIELD(1, 0, pfnReset, soft_zeCommandListReset);
    exec_append_fields(version, table);
    exec_copy_fields(version, table);
#if SOFT_HAS_API_1_12
    SOFT_FIELD(1, 6, pfnHostSynchronize, soft_zeCommandListHostSynchronize);
    SOFT_FIELD(1, 9, pfnGetDeviceHandle, soft_zeCommandListGetDeviceHandle);
    SOFT_FIELD(1, 9, pfnGetContextHandle, soft_zeCommandListGetContextHandle);
    SOFT_FIELD(1, 9, pfnGetOrdinal, soft_zeCommandListGetOrdinal);
    SOFT_FIELD(1, 9, pfnImmediateGetIndex, soft_zeCommandListImmediateGetIndex);
    SOFT_FIELD(1, 9, pfnIsImmediate, soft_zeCommandListIsImmediate);
#endif
    return ZE_RESULT_SUCCESS;
}
