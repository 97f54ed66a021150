/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The composition root: the one file that knows every part by name and plugs
 * them together.  Called once by core/init.c, before anything else runs. */
#include "core/init.h"
#include "core/registry.h"

#include "../backends/host/host.h"
#include "../pools/arena/arena.h"
#include "../pools/direct/direct.h"
#include "../pools/slab/slab.h"

void usm__compose(void)
{
    (void)usm_host_watch_forks(); /* tried again with its first context */
    /* The order is the order of preference among devices of one type. */
    usm__registry_add_backend("level_zero", NULL);
    usm__registry_add_backend("opencl", NULL);
    usm__registry_add_backend("host", usm_host_backend_entry);
    usm__registry_add_pool("slab", usm_slab_pool_entry);
    usm__registry_add_pool("direct", usm_direct_pool_entry);
    usm__registry_add_pool("arena", usm_arena_pool_entry);
    usm__registry_add_pool("jemalloc", NULL);
}
