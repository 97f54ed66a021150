/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Accepting a backend's table of functions.  ABI and names are checked.  An optional group is
 * present with all its functions or absent.  Absent slots get typed stubs, so that no caller tests
 * for NULL.  Called by device/registry.c. */
#include "device/backend.h"

#include "base/status.h"

#include <string.h>

static usm_status absent(void)
{
    return usm__fail(USM_E_NOT_SUPPORTED, "the backend does not offer this; see usm-info");
}

/* One stub for each signature, named after the slot. */
#define STUB(fn, params) static usm_status no_##fn params
#define CMD              size_t nd, void *const *d, void **ev
#define UNUSED(x)        (void)(x)
#define CMD_UNUSED()     (UNUSED(nd), UNUSED(d), UNUSED(ev))

STUB(sub_devices, (void *dev, usm_backend_device *list, size_t cap, size_t *count))
{
    UNUSED(dev), UNUSED(list), UNUSED(cap), UNUSED(count);
    return absent();
}
STUB(device_memory, (void *dev, uint64_t *total, uint64_t *free))
{
    UNUSED(dev), UNUSED(total), UNUSED(free);
    return absent();
}
STUB(can_access_peer, (void *dev, void *peer, bool *can))
{
    UNUSED(dev), UNUSED(peer), UNUSED(can);
    return absent();
}
STUB(queue_create, (void *ctx, void *dev, uint32_t flags, void **q))
{
    UNUSED(ctx), UNUSED(dev), UNUSED(flags), UNUSED(q);
    return absent();
}
STUB(queue_wait, (void *q))
{
    UNUSED(q);
    return absent();
}
static void no_void(void *h)
{
    UNUSED(h);
}
STUB(copy, (void *q, void *dst, const void *src, size_t n, CMD))
{
    UNUSED(q), UNUSED(dst), UNUSED(src), UNUSED(n), CMD_UNUSED();
    return absent();
}
STUB(copy_2d, (void *q, void *dst, size_t dp, const void *src, size_t sp, size_t w, size_t h, CMD))
{
    UNUSED(q), UNUSED(dst), UNUSED(dp), UNUSED(src), UNUSED(sp), UNUSED(w), UNUSED(h);
    CMD_UNUSED();
    return absent();
}
STUB(fill, (void *q, void *dst, const void *pattern, size_t ps, size_t n, CMD))
{
    UNUSED(q), UNUSED(dst), UNUSED(pattern), UNUSED(ps), UNUSED(n), CMD_UNUSED();
    return absent();
}
STUB(prefetch, (void *q, const void *p, size_t n, CMD))
{
    UNUSED(q), UNUSED(p), UNUSED(n), CMD_UNUSED();
    return absent();
}
STUB(advise, (void *q, const void *p, size_t n, usm_advice advice, CMD))
{
    UNUSED(q), UNUSED(p), UNUSED(n), UNUSED(advice), CMD_UNUSED();
    return absent();
}
STUB(marker, (void *q, CMD))
{
    UNUSED(q), CMD_UNUSED();
    return absent();
}
STUB(event_create_user, (void *ctx, void **ev))
{
    UNUSED(ctx), UNUSED(ev);
    return absent();
}
STUB(event_signal, (void *ev, usm_status status))
{
    UNUSED(ev), UNUSED(status);
    return absent();
}
STUB(event_query, (void *ev))
{
    UNUSED(ev);
    return absent();
}
STUB(event_profiling, (void *ev, usm_profiling *times))
{
    UNUSED(ev), UNUSED(times);
    return absent();
}
STUB(event_notify, (void *ev, usm_backend_notify_fn fn, void *arg))
{
    UNUSED(ev), UNUSED(fn), UNUSED(arg);
    return absent();
}
STUB(program_build, (void *ctx, void *dev, const usm_image *image, const char *options, char **log,
                     void **program))
{
    UNUSED(ctx), UNUSED(dev), UNUSED(image), UNUSED(options), UNUSED(log), UNUSED(program);
    return absent();
}
STUB(program_binary, (void *program, void **data, size_t *size))
{
    UNUSED(program), UNUSED(data), UNUSED(size);
    return absent();
}
STUB(program_kernels, (void *program, char **names))
{
    UNUSED(program), UNUSED(names);
    return absent();
}
STUB(kernel_create, (void *program, const char *name, void **kernel))
{
    UNUSED(program), UNUSED(name), UNUSED(kernel);
    return absent();
}
STUB(kernel_info, (void *kernel, size_t *nargs, usm_arg_kind *kinds, size_t cap))
{
    UNUSED(kernel), UNUSED(nargs), UNUSED(kinds), UNUSED(cap);
    return absent();
}
STUB(launch, (void *q, void *kernel, const usm_launch *launch, CMD))
{
    UNUSED(q), UNUSED(kernel), UNUSED(launch), CMD_UNUSED();
    return absent();
}
STUB(task, (void *q, const usm_backend_task *task, CMD))
{
    UNUSED(q), UNUSED(task), CMD_UNUSED();
    return absent();
}
STUB(kernel_groups, (void *kernel, usm_backend_groups *groups))
{
    UNUSED(kernel), UNUSED(groups);
    return absent();
}

STUB(ipc_alloc,
     (void *ctx, void *dev, usm_kind kind, bool writable, size_t size, size_t align, void **p))
{
    UNUSED(ctx), UNUSED(dev), UNUSED(kind), UNUSED(writable), UNUSED(size), UNUSED(align);
    UNUSED(p);
    return absent();
}
STUB(ipc_get, (void *ctx, void *p, usm_backend_ipc *handle))
{
    UNUSED(ctx), UNUSED(p), UNUSED(handle);
    return absent();
}
STUB(ipc_put, (void *ctx, usm_backend_ipc *handle))
{
    UNUSED(ctx), UNUSED(handle);
    return absent();
}
STUB(ipc_open, (void *ctx, void *dev, const usm_backend_ipc *handle, void **p))
{
    UNUSED(ctx), UNUSED(dev), UNUSED(handle), UNUSED(p);
    return absent();
}
STUB(ipc_close, (void *ctx, void *p))
{
    UNUSED(ctx), UNUSED(p);
    return absent();
}
STUB(vmem_granularity, (void *ctx, void *dev, usm_kind kind, size_t size, size_t *granularity))
{
    UNUSED(ctx), UNUSED(dev), UNUSED(kind), UNUSED(size), UNUSED(granularity);
    return absent();
}
STUB(vmem_reserve, (void *ctx, usm_kind kind, size_t size, void **p))
{
    UNUSED(ctx), UNUSED(kind), UNUSED(size), UNUSED(p);
    return absent();
}
STUB(vmem_release, (void *ctx, void *p, size_t size))
{
    UNUSED(ctx), UNUSED(p), UNUSED(size);
    return absent();
}
STUB(phys_create, (void *ctx, void *dev, usm_kind kind, size_t size, void **phys))
{
    UNUSED(ctx), UNUSED(dev), UNUSED(kind), UNUSED(size), UNUSED(phys);
    return absent();
}
STUB(vmem_map, (void *ctx, void *p, size_t size, void *phys, size_t offset))
{
    UNUSED(ctx), UNUSED(p), UNUSED(size), UNUSED(phys), UNUSED(offset);
    return absent();
}
STUB(context_from_native, (void *native, size_t n, void *const *devices, usm_ownership own,
                           void **ctx, usm_backend_device *list, size_t cap, size_t *count))
{
    UNUSED(native), UNUSED(n), UNUSED(devices), UNUSED(own), UNUSED(ctx), UNUSED(list);
    UNUSED(cap), UNUSED(count);
    return absent();
}
STUB(native, (void *h, void **native))
{
    UNUSED(h), UNUSED(native);
    return absent();
}
STUB(queue_from_native,
     (void *ctx, void *native, usm_ownership own, void **q, void **dev, uint32_t *flags))
{
    UNUSED(ctx), UNUSED(native), UNUSED(own), UNUSED(q), UNUSED(dev), UNUSED(flags);
    return absent();
}
STUB(event_from_native, (void *ctx, void *native, usm_ownership own, void **ev))
{
    UNUSED(ctx), UNUSED(native), UNUSED(own), UNUSED(ev);
    return absent();
}

static usm_status missing(const char *backend, const char *group, const char *slot)
{
    return usm__fail(USM_E_INVALID, "backend %s promises the group %s but lacks %s", backend, group,
                     slot);
}

/* A slot of a group: required if the bit of the group is set, a stub otherwise. */
#define SLOT(cap, group, slot, stub)                                                               \
    do {                                                                                           \
        if (!(ops.caps & (cap)))                                                                   \
            ops.slot = (stub);                                                                     \
        else if (!ops.slot)                                                                        \
            return missing(ops.name, group, #slot);                                                \
    } while (0)

static usm_status check_required(const usm_backend_ops *ops)
{
    const struct {
        const char *name;
        bool        there;
    } slots[] = {{"devices", ops->devices != NULL},
                 {"context_create", ops->context_create != NULL},
                 {"context_destroy", ops->context_destroy != NULL},
                 {"mem_alloc", ops->mem_alloc != NULL},
                 {"mem_free", ops->mem_free != NULL}};

    if (!ops->name || !*ops->name || strlen(ops->name) > 31)
        return usm__fail(USM_E_INVALID, "a backend has no name of 1 to 31 characters");
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        if (!slots[i].there)
            return usm__fail(USM_E_INVALID, "backend %s lacks %s, which all need", ops->name,
                             slots[i].name);
    return USM_OK;
}

usm_status usm__backend_init(usm__backend *be, const usm_backend_ops *given)
{
    usm_backend_ops ops;
    usm_status      st;

    if (given->abi != USM_MODULE_ABI || given->struct_size != sizeof ops)
        return usm__fail(USM_E_ABI,
                         "the backend was built for module ABI %u with a table of %u bytes, this "
                         "libusm has ABI %u and %zu; build both from one release",
                         given->abi, given->struct_size, USM_MODULE_ABI, sizeof ops);
    ops = *given;
    st  = check_required(&ops);
    if (st != USM_OK)
        return st;
    SLOT(USM_CAP_PARTITION, "partition", sub_devices, no_sub_devices);
    SLOT(USM_CAP_MEMINFO, "meminfo", device_memory, no_device_memory);
    SLOT(USM_CAP_PEER, "peer", can_access_peer, no_can_access_peer);
    SLOT(USM_CAP_QUEUES, "queues", queue_create, no_queue_create);
    SLOT(USM_CAP_QUEUES, "queues", queue_destroy, no_void);
    SLOT(USM_CAP_QUEUES, "queues", queue_wait, no_queue_wait);
    SLOT(USM_CAP_QUEUES, "queues", copy, no_copy);
    SLOT(USM_CAP_QUEUES, "queues", copy_2d, no_copy_2d);
    SLOT(USM_CAP_QUEUES, "queues", fill, no_fill);
    SLOT(USM_CAP_QUEUES, "queues", prefetch, no_prefetch);
    SLOT(USM_CAP_QUEUES, "queues", advise, no_advise);
    SLOT(USM_CAP_QUEUES, "queues", marker, no_marker);
    SLOT(USM_CAP_QUEUES, "queues", barrier, no_marker);
    SLOT(USM_CAP_QUEUES, "queues", event_create_user, no_event_create_user);
    SLOT(USM_CAP_QUEUES, "queues", event_signal, no_event_signal);
    SLOT(USM_CAP_QUEUES, "queues", event_query, no_event_query);
    SLOT(USM_CAP_QUEUES, "queues", event_wait, no_event_query);
    SLOT(USM_CAP_QUEUES, "queues", event_profiling, no_event_profiling);
    SLOT(USM_CAP_QUEUES, "queues", event_release, no_void);
    SLOT(USM_CAP_NOTIFY, "notify", event_notify, no_event_notify);
    SLOT(USM_CAP_KERNELS, "kernels", program_build, no_program_build);
    SLOT(USM_CAP_KERNELS, "kernels", program_destroy, no_void);
    SLOT(USM_CAP_KERNELS, "kernels", program_binary, no_program_binary);
    SLOT(USM_CAP_KERNELS, "kernels", program_kernels, no_program_kernels);
    SLOT(USM_CAP_KERNELS, "kernels", kernel_create, no_kernel_create);
    SLOT(USM_CAP_KERNELS, "kernels", kernel_destroy, no_void);
    SLOT(USM_CAP_KERNELS, "kernels", kernel_info, no_kernel_info);
    SLOT(USM_CAP_KERNELS, "kernels", launch, no_launch);
    SLOT(USM_CAP_TASKS, "tasks", task, no_task);
    SLOT(USM_CAP_GROUPS, "groups", kernel_groups, no_kernel_groups);
    SLOT(USM_CAP_IPC, "ipc", ipc_alloc, no_ipc_alloc);
    SLOT(USM_CAP_IPC, "ipc", ipc_get, no_ipc_get);
    SLOT(USM_CAP_IPC, "ipc", ipc_put, no_ipc_put);
    SLOT(USM_CAP_IPC, "ipc", ipc_open, no_ipc_open);
    SLOT(USM_CAP_IPC, "ipc", ipc_close, no_ipc_close);
    SLOT(USM_CAP_VMEM, "vmem", vmem_granularity, no_vmem_granularity);
    SLOT(USM_CAP_VMEM, "vmem", vmem_reserve, no_vmem_reserve);
    SLOT(USM_CAP_VMEM, "vmem", vmem_release, no_vmem_release);
    SLOT(USM_CAP_VMEM, "vmem", phys_create, no_phys_create);
    SLOT(USM_CAP_VMEM, "vmem", phys_destroy, no_ipc_close);
    SLOT(USM_CAP_VMEM, "vmem", vmem_map, no_vmem_map);
    SLOT(USM_CAP_VMEM, "vmem", vmem_unmap, no_vmem_release);
    SLOT(USM_CAP_NATIVE, "native", context_from_native, no_context_from_native);
    SLOT(USM_CAP_NATIVE, "native", context_native, no_native);
    SLOT(USM_CAP_NATIVE, "native", device_native, no_native);
    SLOT(USM_CAP_NATIVE, "native", queue_from_native, no_queue_from_native);
    SLOT(USM_CAP_NATIVE, "native", queue_native, no_native);
    SLOT(USM_CAP_NATIVE, "native", event_from_native, no_event_from_native);
    SLOT(USM_CAP_NATIVE, "native", event_native, no_native);
    be->ops  = ops;
    be->name = ops.name;
    return USM_OK;
}
