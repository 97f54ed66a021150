/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The functions of ipc.c and vmem.c that memory.c needs: its table holds those of ipc.c. */
#ifndef ZE_SOFT_IPC_H
#define ZE_SOFT_IPC_H

#include "soft.h"

ze_result_t ZE_APICALL soft_zeMemGetIpcHandle(ze_context_handle_t ctx, const void *p,
                                              ze_ipc_mem_handle_t *handle);
ze_result_t ZE_APICALL soft_zeMemOpenIpcHandle(ze_context_handle_t ctx, ze_device_handle_t device,
                                               ze_ipc_mem_handle_t   handle,
                                               ze_ipc_memory_flags_t flags, void **p);
ze_result_t ZE_APICALL soft_zeMemCloseIpcHandle(ze_context_handle_t ctx, const void *p);
#if SOFT_HAS_API_1_12
ze_result_t ZE_APICALL soft_zeMemPutIpcHandle(ze_context_handle_t ctx, ze_ipc_mem_handle_t handle);
ze_result_t ZE_APICALL soft_zeMemGetIpcHandleFromFileDescriptorExp(ze_context_handle_t  ctx,
                                                                   uint64_t             fd,
                                                                   ze_ipc_mem_handle_t *handle);
ze_result_t ZE_APICALL soft_zeMemGetFileDescriptorFromIpcHandleExp(ze_context_handle_t ctx,
                                                                   ze_ipc_mem_handle_t handle,
                                                                   uint64_t           *fd);
#endif

/* Whether p lies in reserved addresses, mapped or not (vmem.c); soft_memory_lock held. */
bool soft_is_reserved(const void *p);

#endif
