/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The composition root: the one file that knows every part, backend and pool by name.  Called once
 * by device/init.c, before anything else runs. */
#include "command/part.h"
#include "device/init.h"
#include "device/registry.h"
#include "heap/part.h"
#include "heap/slab.h"
#include "program/part.h"
#ifdef USM_PART_OBSERVE
#include "observe/part.h"
#else
#include "base/settings.h"
#include "base/text.h"

#include <stdio.h>
#endif
#ifdef USM_PART_ASYNC
#include "async/async.h"
#endif
#ifdef USM_PART_IPC
#include "ipc/rendezvous.h"
#endif
#ifdef USM_PART_BUFFER
#include "buffer/buffer.h"
#include "cluster/attach.h"
#include "managed/managed.h"
#include "spill/engine.h"
#endif
#ifdef USM_PART_OFFLOAD
#include "monitor/monitor.h"
#endif

#include "../backends/host/host.h"
#include "../pools/arena/arena.h"
#include "../pools/whole/whole.h"

/* Lower ones first.  USM_PARTS of the build says which parts there are. */
static const usm_part *const parts[] = {
    &usm__device_part,  &usm__heap_part,   &usm__command_part, &usm__program_part,
#ifdef USM_PART_OBSERVE
    &usm__observe_part,
#endif
#ifdef USM_PART_ASYNC
    &usm__async_part,
#endif
#ifdef USM_PART_IPC
    &usm__ipc_part,
#endif
#ifdef USM_PART_BUFFER
    &usm__spill_part,   &usm__buffer_part, &usm__managed_part, &usm__cluster_part,
#endif
#ifdef USM_PART_OFFLOAD
    &usm__monitor_part,
#endif
};

#ifndef USM_PART_OBSERVE
/* Whoever asks for a trace or a check must not believe that there is one. */
static bool is_left_out(const char *value, char *why, size_t why_size)
{
    bool is_on = *value != '\0';

    (void)usm__span_bool(usm__span_of(value), &is_on);
    (void)snprintf(why, why_size, "nothing: this libusm was built without observe (USM_PARTS)");
    return !is_on;
}

static void refuse_observation(void)
{
    static const char *const keys[] = {"hooks", "validation", "trace", "debug"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        usm__setting_set_check(keys[i], is_left_out);
        (void)usm__setting_text(keys[i]); /* which warns of a variable; nobody else will read it */
    }
}
#endif

void usm__compose(void)
{
#ifndef USM_PART_OBSERVE
    refuse_observation();
#endif
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        usm__part_add(parts[i]);
    (void)usm_host_watch_forks(); /* tried again with its first context */
    /* The order is the order of preference among devices of one type. */
    usm__registry_add_backend("level_zero", NULL);
    usm__registry_add_backend("opencl", NULL);
    usm__registry_add_backend("host", usm_host_backend_entry);
    usm__registry_add_pool("slab", usm_slab_pool_entry);
    usm__registry_add_pool("direct", usm_direct_pool_entry);
    usm__registry_add_pool("arena", usm_arena_pool_entry);
    usm__registry_add_pool("whole", usm_whole_pool_entry);
    usm__registry_add_pool("jemalloc", NULL);
#ifdef USM_PART_BUFFER
    usm__registry_add_transport("file", NULL);
    usm__registry_add_transport("mpi", usm__job_tier);
    usm__registry_add_transport("socket", NULL);
    usm__registry_add_transport("valkey", NULL);
    usm__registry_transport_needs("valkey", "hiredis (Debian: libhiredis-dev to build it)");
    usm__registry_add_codec("lz4", NULL);
    usm__registry_add_codec("aes_gcm", NULL);
#endif
}
