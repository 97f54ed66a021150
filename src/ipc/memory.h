/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory of this process that others open (export.c), and theirs that this one opens (import.c).
 * memory.c has the functions of usm/ipc.h that concern both. */
#ifndef USM_IPC_MEMORY_H
#define USM_IPC_MEMORY_H

#include "heap/export.h"
#include "ipc/handle.h"

/* ---- export.c ------------------------------------------------------------------------- */

extern const usm__pool_export_hooks usm__ipc_exports;

/* A handle of this process, opened here: returns the block itself.  USM_E_STALE. */
usm_status usm__ipc_own_open(const usm__ipc_memory *m, usm_context *ctx, void **p);
/* USM_E_NOT_READY, without an error message: p was not opened this way. */
usm_status usm__ipc_own_close(void *p);
bool       usm__ipc_own_query(const void *p, usm_ipc_info *info);
void       usm__ipc_own_stats(usm_ipc_stats *stats);
void       usm__ipc_export_fork(usm_fork_phase phase);

/* ---- import.c ------------------------------------------------------------------------- */

/* Opens a handle that is open, or was recently: no checksum, no system call.  USM_E_NOT_READY,
 * without an error message: it is not known. */
usm_status usm__ipc_import_again(const usm_ipc_handle *handle, usm_context *ctx, size_t index,
                                 void **p);
usm_status usm__ipc_import(const usm_ipc_handle *handle, const usm__ipc_memory *m, usm_context *ctx,
                           size_t index, void **p);
/* USM_E_NOT_READY, without an error message: p is not open. */
usm_status usm__ipc_import_close(void *p, const usm_context *ctx);
bool       usm__ipc_import_query(const void *p, usm_ipc_info *info);
void       usm__ipc_import_stats(usm_ipc_stats *stats);
/* The context ends: closes everything that was opened in it. */
void usm__ipc_import_context_end(usm_context *ctx);
void usm__ipc_import_fork(usm_fork_phase phase);

#endif
