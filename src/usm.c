/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The composition root: the one file that knows every part by name and plugs
 * them together.  Called once by device/init.c, before anything else runs. */
#include "async/async.h"
#include "buffer/buffer.h"
#include "cluster/attach.h"
#include "device/init.h"
#include "device/registry.h"
#include "heap/area.h"
#include "ipc/cell.h"
#include "ipc/memory.h"
#include "ipc/rendezvous.h"
#include "spill/engine.h"

#include "../backends/host/host.h"
#include "../pools/arena/arena.h"
#include "../pools/direct/direct.h"
#include "../pools/whole/whole.h"
#include "../src/heap/slab.h"

static void fork_above(usm_fork_phase phase, bool before_contexts)
{
    if (before_contexts)
        usm__buffer_fork(phase);
    usm__spill_fork(phase, before_contexts);
    if (!before_contexts)
        usm__async_fork(phase);
    if (!before_contexts)
        usm__cells_fork(phase);
    if (!before_contexts) {
        usm__ipc_export_fork(phase);
        usm__ipc_import_fork(phase);
        usm__ipc_fork(phase);
        usm__cluster_fork(phase);
    }
}

static void end_context(usm_context *ctx)
{
    usm__spill_end(ctx);
    usm__buffer_context_end();
    usm__ipc_import_context_end(ctx);
}

static void plug_buffers(void)
{
    usm__fork_above    = fork_above;
    usm__context_above = end_context;
    usm__buffer_start();
}

void usm__compose(void)
{
    (void)usm_host_watch_forks(); /* tried again with its first context */
    (void)usm_slab_watch_forks();
    usm__async_start();
    plug_buffers();
    usm__exports = &usm__ipc_exports;
    /* The order is the order of preference among devices of one type. */
    usm__registry_add_backend("level_zero", NULL);
    usm__registry_add_backend("opencl", NULL);
    usm__registry_add_backend("host", usm_host_backend_entry);
    usm__registry_add_pool("slab", usm_slab_pool_entry);
    usm__registry_add_pool("direct", usm_direct_pool_entry);
    usm__registry_add_pool("arena", usm_arena_pool_entry);
    usm__registry_add_pool("whole", usm_whole_pool_entry);
    usm__registry_add_pool("jemalloc", NULL);
    usm__registry_add_transport("file", NULL);
    usm__registry_add_transport("mpi", usm__job_tier);
    usm__registry_add_transport("socket", NULL);
    usm__registry_add_codec("lz4", NULL);
    usm__registry_add_codec("aes_gcm", NULL);
}
