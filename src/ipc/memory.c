/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm_ipc_open() and the queries of what is open: checks arguments, and finds out whether a pointer
 * belongs to this process (export.c) or another one (import.c). */
#include "ipc/memory.h"

#include <stdio.h>
#include <string.h>

#include <usm/ipc.h>

static usm_status open_checked(const usm_ipc_handle *handle, usm_context *ctx, size_t index,
                               void **p)
{
    usm__ipc_memory m;
    usm_status      st = usm__ipc_handle_decode(handle, &m);

    if (st != USM_OK)
        return st;
    if (strcmp(m.backend, ctx->be->name) != 0)
        return usm__fail(USM_E_WRONG_CONTEXT,
                         "the memory is of backend %s, the context of %s: open it in a context of "
                         "the owner's backend",
                         m.backend, ctx->be->name);
    if (usm__ipc_is_self(&m.owner))
        return usm__ipc_own_open(&m, ctx, p);
    return usm__ipc_import(handle, &m, ctx, index, p);
}

usm_status usm_ipc_open(const usm_ipc_handle *handle, usm_context *ctx, usm_device *dev, void **p)
{
    size_t     index = 0;
    usm_status st;

    if (!handle || !p)
        return usm__fail(USM_E_INVALID, "usm_ipc_open: %s is NULL", handle ? "p" : "handle");
    st = usm__context_resolve(&ctx);
    if (st == USM_OK && dev)
        st = usm__context_device_index(ctx, dev, &index);
    if (st == USM_OK)
        st = usm__ipc_import_again(handle, ctx, index, p);
    return st == USM_E_NOT_READY ? open_checked(handle, ctx, index, p) : st;
}

static usm_status not_open(const void *p)
{
    const usm__area *area = usm__map_find(p);

    if (area && area->pool->is_imported && usm__context_is_inert(area->ctx))
        return usm__fail(USM_E_FORKED, "%p was opened before fork(), by the parent", p);
    return usm__fail(USM_E_INVALID_POINTER,
                     "%p is not open: usm_ipc_open() did not give it, or it "
                     "was closed as often as opened",
                     p);
}

usm_status usm_ipc_close(void *p, usm_context *ctx)
{
    usm_status st;

    if (!p)
        return USM_OK;
    if (ctx && usm__handle_check(ctx, USM__MAGIC_CONTEXT) != USM_OK)
        return USM_E_INVALID_HANDLE;
    st = usm__ipc_import_close(p, ctx);
    if (st == USM_E_NOT_READY)
        st = usm__ipc_own_close(p);
    return st == USM_E_NOT_READY ? not_open(p) : st;
}

usm_status usm_ipc_query(const void *p, usm_ipc_info *info)
{
    usm_status st =
        usm__struct_check("usm_ipc_query", "info", info, sizeof *info, "USM_IPC_INFO_INIT");

    if (st != USM_OK)
        return st;
    if (usm__ipc_import_query(p, info) || usm__ipc_own_query(p, info))
        return USM_OK;
    return not_open(p);
}

usm_status usm_ipc_get_stats(usm_ipc_stats *stats)
{
    usm_ipc_stats s = USM_IPC_STATS_INIT;
    usm_status    st =
        usm__struct_check("usm_ipc_get_stats", "stats", stats, sizeof *stats, "USM_IPC_STATS_INIT");

    if (st != USM_OK)
        return st;
    s.struct_size = stats->struct_size;
    usm__ipc_own_stats(&s);
    usm__ipc_import_stats(&s);
    s.importers = usm__ipc_callers();
    *stats      = s;
    return USM_OK;
}
