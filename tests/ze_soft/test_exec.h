/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What test_exec.c and test_exec_knobs.c have in common: the driver through the real loader, and
 * makers of its objects. */
#ifndef TEST_EXEC_H
#define TEST_EXEC_H

#include "plain.h"

#include <level_zero/ze_api.h>

#include <stdint.h>

#define OK(call)   CHECK_INT((call), ZE_RESULT_SUCCESS)
#define FOREVER    UINT64_MAX
#define NROOTS     2
#define BIG        (1u << 20)
#define TIMESTAMPS ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP

#ifdef ZE_API_VERSION_CURRENT_M
#define HAS_API_1_12   1
#define QUEUE_IN_ORDER ZE_COMMAND_QUEUE_FLAG_IN_ORDER
#define LIST_IN_ORDER  ZE_COMMAND_LIST_FLAG_IN_ORDER
#else /* an old validation layer refuses those of API 1.7 */
#define HAS_API_1_12   0
#define QUEUE_IN_ORDER 0
#define LIST_IN_ORDER  0
#endif

static ze_device_handle_t  devices[NROOTS];
static ze_context_handle_t ctx;

static inline void start(void)
{
    uint32_t           n = 1;
    ze_driver_handle_t driver;
    ze_context_desc_t  desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};

    OK(zeInit(0));
    OK(zeDriverGet(&n, &driver));
    n = NROOTS;
    OK(zeDeviceGet(driver, &n, devices));
    CHECK_INT(n, NROOTS);
    OK(zeContextCreate(driver, &desc, &ctx));
}

static inline void stop(void)
{
    OK(zeContextDestroy(ctx));
}

static inline ze_command_queue_desc_t queue_desc(ze_command_queue_mode_t mode)
{
    return (ze_command_queue_desc_t){.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .mode = mode};
}

static inline ze_command_list_handle_t immediate(uint32_t dev, ze_command_queue_mode_t mode)
{
    ze_command_queue_desc_t  desc = queue_desc(mode);
    ze_command_list_handle_t list;

    OK(zeCommandListCreateImmediate(ctx, devices[dev], &desc, &list));
    return list;
}

static inline ze_command_list_handle_t regular(uint32_t dev)
{
    ze_command_list_desc_t   desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC};
    ze_command_list_handle_t list;

    OK(zeCommandListCreate(ctx, devices[dev], &desc, &list));
    return list;
}

static inline ze_command_queue_handle_t make_queue(uint32_t dev)
{
    ze_command_queue_desc_t   desc = queue_desc(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    ze_command_queue_handle_t queue;

    OK(zeCommandQueueCreate(ctx, devices[dev], &desc, &queue));
    return queue;
}

static inline ze_event_pool_handle_t make_pool(uint32_t n, uint32_t flags)
{
    ze_event_pool_desc_t   desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                   .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | flags,
                                   .count = n};
    ze_event_pool_handle_t pool;

    OK(zeEventPoolCreate(ctx, &desc, 0, NULL, &pool));
    return pool;
}

static inline ze_event_handle_t make_event(ze_event_pool_handle_t pool, uint32_t index)
{
    ze_event_desc_t   desc = {.stype  = ZE_STRUCTURE_TYPE_EVENT_DESC,
                              .index  = index,
                              .signal = ZE_EVENT_SCOPE_FLAG_HOST,
                              .wait   = ZE_EVENT_SCOPE_FLAG_HOST};
    ze_event_handle_t ev;

    OK(zeEventCreate(pool, &desc, &ev));
    return ev;
}

static inline void *on_device(uint32_t dev, size_t n)
{
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void                      *p;

    OK(zeMemAllocDevice(ctx, &desc, n, 64, devices[dev], &p));
    return p;
}

static inline unsigned char *on_host(size_t n)
{
    ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void                    *p;

    OK(zeMemAllocHost(ctx, &desc, n, 64, &p));
    memset(p, 0, n);
    return p;
}

static inline void numbered(unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(i * 7 + (i >> 8));
}

static inline bool is_filled(const unsigned char *p, size_t n, unsigned char value)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != value)
            return false;
    return true;
}

#endif
