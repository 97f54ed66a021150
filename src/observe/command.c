/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm/trace.h: commands of other runtimes as events of USM_TRACE.
 *
 * The trace gives each name a number; those of kernels are remembered here by their hashes. */
#include "base/mutex.h"
#include "base/os.h"
#include "base/status.h"
#include "base/trace_ring.h"
#include "base/trace_work.h"

#include <usm/trace.h>

#define KERNELS 1024 /* a power of two; kernels beyond have no name in the trace */

static struct {
    usm__mutex lock;
    struct {
        uint64_t hash; /* 0: free */
        uint32_t number;
    } list[KERNELS];
} kernels = {.lock = USM__MUTEX_INIT(USM__RANK_META, "kernels of commands")};

static uint64_t hash_of(const char *name)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return hash | 1;
}

/* 0: unknown, or there are too many. */
static uint32_t number_of(const char *name)
{
    uint64_t hash   = hash_of(name);
    uint32_t number = 0;

    usm__mutex_lock(&kernels.lock);
    for (size_t n = 0, i = hash >> 1; n < KERNELS; n++, i++) {
        if (kernels.list[i % KERNELS].hash == 0) {
            kernels.list[i % KERNELS].hash   = hash;
            kernels.list[i % KERNELS].number = usm__trace_kernel(name);
        }
        if (kernels.list[i % KERNELS].hash == hash) {
            number = kernels.list[i % KERNELS].number;
            break;
        }
    }
    usm__mutex_unlock(&kernels.lock);
    return number;
}

bool usm_trace_is_on(void)
{
    usm__trace_start(); /* in a program that has no pool */
    return usm__trace_is_on();
}

usm_status usm_trace_command(const usm_command_record *command)
{
    usm__trace_work_event e;
    uint64_t              now;

    if (!command || command->struct_size < sizeof *command || !command->queue ||
        (unsigned)command->kind > USM_COMMAND_MAP || command->end_ns < command->begin_ns)
        return usm__fail(USM_E_INVALID, "no command of a queue that began before it ended");
    if (!usm_trace_is_on())
        return USM_OK;
    e = (usm__trace_work_event){
        .kind        = (usm__trace_work_kind)(USM__WORK_QUEUE_KERNEL + (unsigned)command->kind),
        .member      = usm__trace_member(command->queue),
        .kernel      = command->kernel ? number_of(command->kernel) : 0,
        .n           = command->size,
        .ns          = command->end_ns - command->begin_ns,
        .is_in_order = command->is_in_order};
    (void)
        usm__ring_with_room(); /* a thread's first event makes its ring, after which it is timed */
    now      = usm__os_now_ns(); /* last, as the event counts back from its own time */
    e.ago_ns = now > command->end_ns ? now - command->end_ns : 0;
    usm__trace_work(&e);
    return USM_OK;
}
