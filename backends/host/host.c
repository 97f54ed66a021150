/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The host backend: the processor that runs the program, as a device.
 *
 * It needs no driver and no other library, so it is used when nothing else is found, and it is the
 * reference for authors of backends.  Its queues have threads of their own: it is as asynchronous
 * as a device.  Here: the table, the single device, contexts, the handling of fork.  Not here: the
 * actual operations; internal.h lists the other files.  Called by the core, through the table. */
#include "host.h"

#include "internal.h"

#include <usm/version.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const usm_host_api *usm__host_lib;
usm__host_state     usm__host = {
        .lock  = PTHREAD_MUTEX_INITIALIZER,
        .guard = {.lock    = PTHREAD_MUTEX_INITIALIZER,
                  .regions = {&usm__host.guard.regions, &usm__host.guard.regions},
                  .ranges  = {&usm__host.guard.ranges, &usm__host.guard.ranges}},
        .files = {.lock = PTHREAD_MUTEX_INITIALIZER}};

usm_status usm__host_refused(usm_status status, const char *what, int error)
{
    char why[64];

    return usm__host_lib->report(status, "%s: %s", what, strerror_r(error, why, sizeof(why)));
}

/* --- the device ------------------------------------------------------------------------------ */

/* Finds the text behind "key :" in the first line of a file of /proc that starts with key. */
static bool read_proc(const char *path, const char *key, char *value, size_t size)
{
    FILE *f     = fopen(path, "re");
    bool  found = false;
    char  line[256];

    if (!f)
        return false;
    while (!found && fgets(line, sizeof(line), f)) {
        char *colon = strchr(line, ':');

        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = 0;
        (void)snprintf(value, size, "%s", colon);
        found = true;
    }
    (void)fclose(f);
    return found;
}

static uint64_t memory_total(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * usm__host.page;
}

#define ASPECT(name) (UINT64_C(1) << USM_ASPECT_##name)

static void describe(usm_backend_device *d)
{
    *d = (usm_backend_device){
        .handle         = &usm__host,
        .platform       = &usm__host,
        .type           = USM_DEVICE_TYPE_CPU,
        .name           = "host processor",
        .platform_name  = "host",
        .vendor         = "unknown",
        .driver_version = USM_VERSION_STRING,
        .aspects = ASPECT(CPU) | ASPECT(FP64) | ASPECT(ATOMIC64) | ASPECT(USM_DEVICE_ALLOCATIONS) |
                   ASPECT(USM_HOST_ALLOCATIONS) | ASPECT(USM_ATOMIC_HOST_ALLOCATIONS) |
                   ASPECT(USM_SHARED_ALLOCATIONS) | ASPECT(USM_ATOMIC_SHARED_ALLOCATIONS) |
                   ASPECT(USM_SYSTEM_ALLOCATIONS) | ASPECT(QUEUE_PROFILING) |
                   ASPECT(OUT_OF_ORDER_QUEUE) | ASPECT(KERNELS) | ASPECT(IMAGE_NATIVE),
        .compute_units       = usm__host_lib->os->cpu_count(),
        .compute_threads     = usm__host.workers,
        .memory_size         = memory_total(),
        .max_alloc_size      = memory_total(),
        .max_work_group_size = 4096,
        .local_memory_size   = (size_t)256 << 10,
        .max_align           = USM_MAX_ALIGNMENT,
        .max_fill_pattern    = SIZE_MAX,
    };
    (void)read_proc("/proc/cpuinfo", "model name", d->name, sizeof(d->name));
    (void)read_proc("/proc/cpuinfo", "vendor_id", d->vendor, sizeof(d->vendor));
}

static usm_status host_devices(usm_backend_device *list, size_t cap, size_t *count)
{
    if (cap > 0)
        describe(&list[0]);
    *count = 1;
    return USM_OK;
}

static usm_status host_device_memory(void *dev, uint64_t *total, uint64_t *free)
{
    char               text[32];
    unsigned long long kib;

    (void)dev;
    *total = memory_total();
    *free  = USM_MEMORY_UNKNOWN;
    if (read_proc("/proc/meminfo", "MemAvailable", text, sizeof(text)) &&
        sscanf(text, "%llu kB", &kib) == 1)
        *free = (uint64_t)kib << 10;
    return USM_OK;
}

static usm_status host_can_access_peer(void *dev, void *peer, bool *can)
{
    (void)dev;
    (void)peer;
    *can = true;
    return USM_OK;
}

/* --- contexts -------------------------------------------------------------------------------- */

static usm_status host_context_create(size_t ndevices, void *const *devices, void **ctx)
{
    usm__host_context *c;

    (void)ndevices;
    (void)devices;
    if (usm_host_watch_forks() || !(c = usm__host_lib->heap_alloc(sizeof(*c))))
        return usm__host_lib->report(USM_E_NO_MEMORY, "no host memory for a context");
    c->guard = usm__host_lib->setting_bool("host_guard_device");
    usm__host_watch_exit();
    usm__host_workers_keep();
    *ctx = c;
    return USM_OK;
}

static void host_context_destroy(void *ctx)
{
    usm__host_lib->heap_free(ctx);
    usm__host_workers_let_go();
}

/* --- fork ------------------------------------------------------------------------------------ */

/* A child has no workers, and a lock that another thread held would stay locked in it.  So the
 * locks are held across the fork, and the child starts without workers; memory continues to work
 * there. */
static void before_fork(void)
{
    usm__host_graph_lock();
    usm__host_guard_lock();
    usm__host_ipc_lock();
}

static void after_fork_in_parent(void)
{
    usm__host_ipc_unlock();
    usm__host_guard_unlock();
    usm__host_graph_unlock();
}

static void after_fork_in_child(void)
{
    usm__host_graph_in_child();
    usm__host_ipc_in_child();
    after_fork_in_parent();
}

usm_status usm_host_watch_forks(void)
{
    usm_status status = USM_OK;

    if (usm_load_acquire(&usm__host.watches_forks))
        return USM_OK;
    pthread_mutex_lock(&usm__host.lock);
    if (!usm_load_acquire(&usm__host.watches_forks) &&
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
        status = USM_E_NO_MEMORY;
    else
        usm_store_release(&usm__host.watches_forks, true);
    pthread_mutex_unlock(&usm__host.lock);
    return status;
}

/* --- the table ------------------------------------------------------------------------------- */

static const usm_backend_ops host_ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(usm_backend_ops),
    .name        = "host",
    .caps = USM_CAP_QUEUES | USM_CAP_NOTIFY | USM_CAP_KERNELS | USM_CAP_MEMINFO | USM_CAP_PEER |
            USM_CAP_IPC | USM_CAP_VMEM | USM_CAP_TASKS,
    .devices           = host_devices,
    .context_create    = host_context_create,
    .context_destroy   = host_context_destroy,
    .mem_alloc         = usm__host_mem_alloc,
    .mem_free          = usm__host_mem_free,
    .ipc_alloc         = usm__host_ipc_alloc,
    .ipc_get           = usm__host_ipc_get,
    .ipc_put           = usm__host_ipc_put,
    .ipc_open          = usm__host_ipc_open,
    .ipc_close         = usm__host_ipc_close,
    .vmem_granularity  = usm__host_vmem_granularity,
    .vmem_reserve      = usm__host_vmem_reserve,
    .vmem_release      = usm__host_vmem_release,
    .phys_create       = usm__host_phys_create,
    .phys_destroy      = usm__host_phys_destroy,
    .vmem_map          = usm__host_vmem_map,
    .vmem_unmap        = usm__host_vmem_unmap,
    .device_memory     = host_device_memory,
    .can_access_peer   = host_can_access_peer,
    .queue_create      = usm__host_queue_create,
    .queue_destroy     = usm__host_queue_destroy,
    .queue_wait        = usm__host_queue_wait,
    .copy              = usm__host_copy,
    .copy_2d           = usm__host_copy_2d,
    .fill              = usm__host_fill,
    .prefetch          = usm__host_prefetch,
    .advise            = usm__host_advise,
    .marker            = usm__host_marker,
    .barrier           = usm__host_barrier,
    .event_create_user = usm__host_event_create_user,
    .event_signal      = usm__host_event_signal,
    .event_query       = usm__host_event_query,
    .event_wait        = usm__host_event_wait,
    .event_profiling   = usm__host_event_profiling,
    .event_release     = usm__host_event_release,
    .event_notify      = usm__host_event_notify,
    .program_build     = usm__host_program_build,
    .program_destroy   = usm__host_program_destroy,
    .program_binary    = usm__host_program_binary,
    .program_kernels   = usm__host_program_kernels,
    .kernel_create     = usm__host_kernel_create,
    .kernel_destroy    = usm__host_kernel_destroy,
    .kernel_info       = usm__host_kernel_info,
    .launch            = usm__host_launch,
    .task              = usm__host_task,
};

const usm_backend_ops *usm_host_backend_entry(const usm_host_api *api)
{
    usm__host_lib     = api;
    usm__host.page    = (size_t)sysconf(_SC_PAGESIZE);
    usm__host.workers = usm__host_team_size(&usm__host.may_spin);
    usm__host.ops     = host_ops;
    if (!api->setting_bool("host_guard_device")) /* guarded memory is shared with a child */
        usm__host.ops.caps |= USM_CAP_FORK_MEMORY;
    return &usm__host.ops;
}
