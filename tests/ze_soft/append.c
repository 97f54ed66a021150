/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Synchronisation, timestamps and launches appended to lists.  Called by the loader through the
 * table of list.c; their runs by engine.c.  Copies and fills: copy.c. */
#include "exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A command that is no more than its events. */
static ze_result_t append_plain(ze_command_list_handle_t h, const exec_kind *kind,
                                const exec_events *events)
{
    exec_list  *list;
    exec_cmd   *cmd;
    ze_result_t res = exec_list_open(h, &list);

    if (res == ZE_RESULT_SUCCESS)
        res = exec_cmd_new(kind, events, 0, &cmd, NULL);
    return res == ZE_RESULT_SUCCESS ? exec_list_append(list, cmd) : res;
}

/* --- barriers and events --------------------------------------------------------------------- */

static bool run_reset(exec_engine *e, exec_cmd *cmd)
{
    (void)e;
    for (uint32_t i = 0; i < cmd->nothers; i++)
        exec_cell_reset(cmd->points[cmd->nwaits + i].cell);
    return true;
}

/* Events are no memory of the program. */
static bool uses_nothing(const exec_cmd *cmd, const unsigned char *base, size_t size)
{
    (void)cmd, (void)base, (void)size;
    return false;
}

static const exec_kind barrier_kind = {.name = "zeCommandListAppendBarrier", .is_fence = true};
static const exec_kind ranges_kind  = {.name     = "zeCommandListAppendMemoryRangesBarrier",
                                       .is_fence = true};
static const exec_kind signal_kind  = {.name = "zeCommandListAppendSignalEvent"};
static const exec_kind wait_kind    = {.name = "zeCommandListAppendWaitOnEvents", .holds = true};
static const exec_kind reset_kind   = {
      .name = "zeCommandListAppendEventReset", .run = run_reset, .uses = uses_nothing};

static ze_result_t ZE_APICALL soft_zeCommandListAppendBarrier(ze_command_list_handle_t h,
                                                              ze_event_handle_t        signal,
                                                              uint32_t                 nwaits,
                                                              ze_event_handle_t       *waits)
{
    const exec_events events = {.signal = signal, .nwaits = nwaits, .waits = waits};

    SOFT_CALL();
    return append_plain(h, &barrier_kind, &events);
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendMemoryRangesBarrier(
    ze_command_list_handle_t h, uint32_t n, const size_t *sizes, const void **ranges,
    ze_event_handle_t signal, uint32_t nwaits, ze_event_handle_t *waits)
{
    const exec_events events = {.signal = signal, .nwaits = nwaits, .waits = waits};

    (void)n;
    SOFT_CALL();
    if (!sizes || !ranges)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return append_plain(h, &ranges_kind, &events);
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendSignalEvent(ze_command_list_handle_t h,
                                                                  ze_event_handle_t        ev)
{
    const exec_events events = {.signal = ev};

    SOFT_CALL();
    if (!ev)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    return append_plain(h, &signal_kind, &events);
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendWaitOnEvents(ze_command_list_handle_t h,
                                                                   uint32_t                 n,
                                                                   ze_event_handle_t       *waits)
{
    const exec_events events = {.nwaits = n, .waits = waits};

    SOFT_CALL();
    if (!waits)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return append_plain(h, &wait_kind, &events);
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendEventReset(ze_command_list_handle_t h,
                                                                 ze_event_handle_t        hev)
{
    const exec_events events = {.nothers = 1, .others = &hev};
    exec_event       *ev;

    SOFT_CALL();
    EXEC_HANDLE(ev, hev, SOFT_EVENT);
    if (ev->pool->is_counter)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return append_plain(h, &reset_kind, &events);
}

/* --- timestamps ------------------------------------------------------------------------------- */

static bool run_global(exec_engine *e, exec_cmd *cmd)
{
    const uint64_t now = soft_now_ns();

    (void)e;
    memcpy(exec_view(cmd, cmd->as.stamp.dst, sizeof(now)), &now, sizeof(now));
    return true;
}

static bool run_query(exec_engine *e, exec_cmd *cmd)
{
    const size_t                *offsets = NULL;
    ze_kernel_timestamp_result_t times;
    unsigned char               *dst = cmd->as.stamp.dst;

    (void)e;
    if (cmd->as.stamp.offsets)
        offsets = exec_view(cmd, cmd->as.stamp.offsets, cmd->nothers * sizeof(*offsets));
    for (uint32_t i = 0; i < cmd->nothers; i++) {
        const size_t at = offsets ? offsets[i] : i * sizeof(times);

        exec_cell_times(cmd->points[cmd->nwaits + i].cell, &times);
        memcpy(exec_view(cmd, dst + at, sizeof(times)), &times, sizeof(times));
    }
    return true;
}

static const exec_kind global_kind = {.name = "zeCommandListAppendWriteGlobalTimestamp",
                                      .run  = run_global};
static const exec_kind query_kind  = {.name = "zeCommandListAppendQueryKernelTimestamps",
                                      .run  = run_query};

static ze_result_t append_stamp(ze_command_list_handle_t h, const exec_kind *kind, void *dst,
                                const size_t *offsets, const exec_events *events)
{
    exec_list  *list;
    exec_cmd   *cmd;
    ze_result_t res = exec_list_open(h, &list);

    if (res != ZE_RESULT_SUCCESS)
        return res;
    if (!dst)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    res = exec_cmd_new(kind, events, 0, &cmd, NULL);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    cmd->as.stamp.dst     = dst;
    cmd->as.stamp.offsets = offsets;
    return exec_list_append(list, cmd);
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendWriteGlobalTimestamp(
    ze_command_list_handle_t h, uint64_t *dst, ze_event_handle_t signal, uint32_t nwaits,
    ze_event_handle_t *waits)
{
    const exec_events events = {.signal = signal, .nwaits = nwaits, .waits = waits};

    SOFT_CALL();
    return append_stamp(h, &global_kind, dst, NULL, &events);
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendQueryKernelTimestamps(
    ze_command_list_handle_t h, uint32_t n, ze_event_handle_t *queried, void *dst,
    const size_t *offsets, ze_event_handle_t signal, uint32_t nwaits, ze_event_handle_t *waits)
{
    const exec_events events = {
        .signal = signal, .nwaits = nwaits, .waits = waits, .nothers = n, .others = queried};

    SOFT_CALL();
    if (!queried)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return append_stamp(h, &query_kind, dst, offsets, &events);
}

/* --- launches --------------------------------------------------------------------------------- */

static void free_launches(soft_launch **launches, uint32_t n)
{
    while (n)
        soft_launch_free(launches[--n]);
}

static void fini_launch(exec_cmd *cmd)
{
    free_launches(cmd->as.launch.launches, cmd->as.launch.n);
    if (cmd->as.launch.launches != &cmd->as.launch.one)
        free(cmd->as.launch.launches);
    pthread_mutex_destroy(&cmd->as.launch.lock);
}

/* A kernel that cannot be run takes the device with it, as one that faults does. */
static bool run_launch(exec_engine *e, exec_cmd *cmd)
{
    ze_result_t res = ZE_RESULT_SUCCESS;
    uint32_t    n   = cmd->as.launch.n;

    if (cmd->as.launch.count) {
        uint32_t count;

        memcpy(&count, exec_view(cmd, cmd->as.launch.count, sizeof(count)), sizeof(count));
        n = count < n ? count : n;
    }
    pthread_mutex_lock(&cmd->as.launch.lock);
    for (uint32_t i = 0; i < n && res == ZE_RESULT_SUCCESS; i++)
        res = soft_launch_run(cmd->as.launch.launches[i]);
    pthread_mutex_unlock(&cmd->as.launch.lock);
    if (res == ZE_RESULT_SUCCESS)
        return true;
    fprintf(stderr, "ze_soft: %s: the kernel failed (0x%x); the device is lost\n", cmd->kind->name,
            (unsigned)res);
    soft_lose(exec_engine_device(e));
    return false;
}

static const exec_kind launch_kind = {
    .name = "zeCommandListAppendLaunchKernel", .run = run_launch, .fini = fini_launch};
static const exec_kind coop_kind = {
    .name = "zeCommandListAppendLaunchCooperativeKernel", .run = run_launch, .fini = fini_launch};
static const exec_kind indirect_kind = {
    .name = "zeCommandListAppendLaunchKernelIndirect", .run = run_launch, .fini = fini_launch};
static const exec_kind multiple_kind = {.name = "zeCommandListAppendLaunchMultipleKernelsIndirect",
                                        .run  = run_launch,
                                        .fini = fini_launch};

static ze_result_t open_for_kernels(ze_command_list_handle_t h, exec_list **list, uint32_t flag)
{
    ze_command_queue_group_properties_t group;
    ze_result_t                         res = exec_list_open(h, list);

    if (res == ZE_RESULT_SUCCESS)
        res = exec_check_group((*list)->dev, (*list)->ordinal, 0, &group);
    if (res == ZE_RESULT_SUCCESS && !(group.flags & flag))
        res = ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE;
    return res;
}

/* Takes the launches. */
static ze_result_t append_launch(exec_list *list, const exec_kind *kind, uint32_t n,
                                 soft_launch **launches, const uint32_t *count,
                                 const exec_events *events)
{
    exec_cmd   *cmd;
    ze_result_t res = exec_cmd_new(kind, events, 0, &cmd, NULL);

    if (res != ZE_RESULT_SUCCESS) {
        free_launches(launches, n);
        if (count)
            free(launches);
        return res;
    }
    cmd->as.launch.one      = launches[0];
    cmd->as.launch.launches = count ? launches : &cmd->as.launch.one;
    cmd->as.launch.n        = n;
    cmd->as.launch.count    = count;
    pthread_mutex_init(&cmd->as.launch.lock, NULL);
    return exec_list_append(list, cmd);
}

/* One kernel, with its group count now or when it runs. */
static ze_result_t append_one(ze_command_list_handle_t h, const exec_kind *kind,
                              ze_kernel_handle_t kernel, const ze_group_count_t *groups,
                              const exec_events *events)
{
    const uint32_t flag = kind == &coop_kind
                              ? (uint32_t)ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS
                              : (uint32_t)ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE;
    exec_list     *list;
    soft_launch   *launch;
    ze_result_t    res = open_for_kernels(h, &list, flag);

    if (res != ZE_RESULT_SUCCESS)
        return res;
    if (!kernel)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!groups)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (kind == &indirect_kind)
        res = soft_launch_new_indirect(kernel, groups, &launch);
    else
        res = soft_launch_new(kernel, groups, &launch);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    return append_launch(list, kind, 1, &launch, NULL, events);
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendLaunchKernel(
    ze_command_list_handle_t h, ze_kernel_handle_t kernel, const ze_group_count_t *groups,
    ze_event_handle_t signal, uint32_t nwaits, ze_event_handle_t *waits)
{
    const exec_events events = {.signal = signal, .nwaits = nwaits, .waits = waits};

    SOFT_CALL();
    return append_one(h, &launch_kind, kernel, groups, &events);
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendLaunchCooperativeKernel(
    ze_command_list_handle_t h, ze_kernel_handle_t kernel, const ze_group_count_t *groups,
    ze_event_handle_t signal, uint32_t nwaits, ze_event_handle_t *waits)
{
    const exec_events events = {.signal = signal, .nwaits = nwaits, .waits = waits};

    SOFT_CALL();
    return append_one(h, &coop_kind, kernel, groups, &events);
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendLaunchKernelIndirect(
    ze_command_list_handle_t h, ze_kernel_handle_t kernel, const ze_group_count_t *groups,
    ze_event_handle_t signal, uint32_t nwaits, ze_event_handle_t *waits)
{
    const exec_events events = {.signal = signal, .nwaits = nwaits, .waits = waits};

    SOFT_CALL();
    return append_one(h, &indirect_kind, kernel, groups, &events);
}

static ze_result_t make_launches(uint32_t n, ze_kernel_handle_t *kernels,
                                 const ze_group_count_t *groups, soft_launch ***out)
{
    soft_launch **launches = calloc(n, sizeof(soft_launch *));
    ze_result_t   res      = ZE_RESULT_SUCCESS;

    if (!launches)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        res = kernels[i] ? soft_launch_new_indirect(kernels[i], &groups[i], &launches[i])
                         : ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
        if (res != ZE_RESULT_SUCCESS) {
            free_launches(launches, i);
            free(launches);
            return res;
        }
    }
    *out = launches;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendLaunchMultipleKernelsIndirect(
    ze_command_list_handle_t h, uint32_t n, ze_kernel_handle_t *kernels, const uint32_t *count,
    const ze_group_count_t *groups, ze_event_handle_t signal, uint32_t nwaits,
    ze_event_handle_t *waits)
{
    const exec_events events = {.signal = signal, .nwaits = nwaits, .waits = waits};
    exec_list        *list;
    soft_launch     **launches = NULL;
    ze_result_t       res;

    SOFT_CALL();
    res = open_for_kernels(h, &list, ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    if (!kernels || !count || !groups)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!n)
        return append_plain(h, &signal_kind, &events);
    res = make_launches(n, kernels, groups, &launches);
    if (res != ZE_RESULT_SUCCESS)
        return res;
    return append_launch(list, &multiple_kind, n, launches, count, &events);
}

/* --- images: this device has none ------------------------------------------------------------- */

static ze_result_t ZE_APICALL soft_zeCommandListAppendImageCopy(
    ze_command_list_handle_t h, ze_image_handle_t dst, ze_image_handle_t src,
    ze_event_handle_t signal, uint32_t nwaits, ze_event_handle_t *waits)
{
    (void)h, (void)dst, (void)src, (void)signal, (void)nwaits, (void)waits;
    SOFT_CALL();
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendImageCopyRegion(
    ze_command_list_handle_t h, ze_image_handle_t dst, ze_image_handle_t src,
    const ze_image_region_t *to, const ze_image_region_t *from, ze_event_handle_t signal,
    uint32_t nwaits, ze_event_handle_t *waits)
{
    (void)h, (void)dst, (void)src, (void)to, (void)from, (void)signal, (void)nwaits, (void)waits;
    SOFT_CALL();
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendImageCopyToMemory(
    ze_command_list_handle_t h, void *dst, ze_image_handle_t src, const ze_image_region_t *from,
    ze_event_handle_t signal, uint32_t nwaits, ze_event_handle_t *waits)
{
    (void)h, (void)dst, (void)src, (void)from, (void)signal, (void)nwaits, (void)waits;
    SOFT_CALL();
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendImageCopyFromMemory(
    ze_command_list_handle_t h, ze_image_handle_t dst, const void *src, const ze_image_region_t *to,
    ze_event_handle_t signal, uint32_t nwaits, ze_event_handle_t *waits)
{
    (void)h, (void)dst, (void)src, (void)to, (void)signal, (void)nwaits, (void)waits;
    SOFT_CALL();
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendImageCopyToMemoryExt(
    ze_command_list_handle_t h, void *dst, ze_image_handle_t src, const ze_image_region_t *from,
    uint32_t row, uint32_t slice, ze_event_handle_t signal, uint32_t nwaits,
    ze_event_handle_t *waits)
{
    (void)h, (void)dst, (void)src, (void)from, (void)row, (void)slice;
    (void)signal, (void)nwaits, (void)waits;
    SOFT_CALL();
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

static ze_result_t ZE_APICALL soft_zeCommandListAppendImageCopyFromMemoryExt(
    ze_command_list_handle_t h, ze_image_handle_t dst, const void *src, const ze_image_region_t *to,
    uint32_t row, uint32_t slice, ze_event_handle_t signal, uint32_t nwaits,
    ze_event_handle_t *waits)
{
    (void)h, (void)dst, (void)src, (void)to, (void)row, (void)slice;
    (void)signal, (void)nwaits, (void)waits;
    SOFT_CALL();
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

void exec_append_fields(ze_api_version_t version, ze_command_list_dditable_t *table)
{
    SOFT_FIELD(1, 0, pfnAppendBarrier, soft_zeCommandListAppendBarrier);
    SOFT_FIELD(1, 0, pfnAppendMemoryRangesBarrier, soft_zeCommandListAppendMemoryRangesBarrier);
    SOFT_FIELD(1, 0, pfnAppendSignalEvent, soft_zeCommandListAppendSignalEvent);
    SOFT_FIELD(1, 0, pfnAppendWaitOnEvents, soft_zeCommandListAppendWaitOnEvents);
    SOFT_FIELD(1, 0, pfnAppendEventReset, soft_zeCommandListAppendEventReset);
    SOFT_FIELD(1, 0, pfnAppendWriteGlobalTimestamp, soft_zeCommandListAppendWriteGlobalTimestamp);
    SOFT_FIELD(1, 0, pfnAppendQueryKernelTimestamps, soft_zeCommandListAppendQueryKernelTimestamps);
    SOFT_FIELD(1, 0, pfnAppendLaunchKernel, soft_zeCommandListAppendLaunchKernel);
    SOFT_FIELD(1, 0, pfnAppendLaunchCooperativeKernel,
               soft_zeCommandListAppendLaunchCooperativeKernel);
    SOFT_FIELD(1, 0, pfnAppendLaunchKernelIndirect, soft_zeCommandListAppendLaunchKernelIndirect);
    SOFT_FIELD(1, 0, pfnAppendLaunchMultipleKernelsIndirect,
               soft_zeCommandListAppendLaunchMultipleKernelsIndirect);
    SOFT_FIELD(1, 0, pfnAppendImageCopy, soft_zeCommandListAppendImageCopy);
    SOFT_FIELD(1, 0, pfnAppendImageCopyRegion, soft_zeCommandListAppendImageCopyRegion);
    SOFT_FIELD(1, 0, pfnAppendImageCopyToMemory, soft_zeCommandListAppendImageCopyToMemory);
    SOFT_FIELD(1, 0, pfnAppendImageCopyFromMemory, soft_zeCommandListAppendImageCopyFromMemory);
    SOFT_FIELD(1, 3, pfnAppendImageCopyToMemoryExt, soft_zeCommandListAppendImageCopyToMemoryExt);
    SOFT_FIELD(1, 3, pfnAppendImageCopyFromMemoryExt,
               soft_zeCommandListAppendImageCopyFromMemoryExt);
}
