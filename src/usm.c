/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The composition root: the one file that knows every part by name and plugs
 * them together.  Called once by core/init.c, before anything else runs. */
#include "buffer/buffer.h"
#include "core/area.h"
#include "core/init.h"
#include "core/registry.h"
#include "spill/engine.h"

#include "../backends/host/host.h"
#include "../pools/arena/arena.h"
#include "../pools/direct/direct.h"
#include "../pools/slab/slab.h"

static void fork_above(usm_fork_phase phase, bool before_contexts)
{
    if (before_contexts)
        usm__buffer_fork(phase);
    usm__spill_fork(phase, before_contexts);
}

static void plug_buffers(void)
{
    usm__fork_above    = fork_above;
    usm__context_above = usm__spill_end;
    usm__buffer_start();
}

void usm__compose(void)
{
    (void)usm_host_watch_forks(); /* tried again with its first context */
    plug_buffers();
    /* The order is the order of preference among devices of one type. */
    usm__registry_add_backend("level_zero", NULL);
    usm__registry_add_backend("opencl", NULL);
    usm__registry_add_backend("host", usm_host_backend_entry);
    usm__registry_add_pool("slab", usm_slab_pool_entry);
    usm__registry_add_pool("direct", usm_direct_pool_entry);
    usm__registry_add_pool("arena", usm_arena_pool_entry);
    usm__registry_add_pool("jemalloc", NULL);
    usm__registry_add_transport("file", NULL);
    usm__registry_add_codec("lz4", NULL);
    usm__registry_add_codec("aes_gcm", NULL);
}
