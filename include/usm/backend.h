/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * The interface of backend modules: a table of functions over one driver.
 * EXPERIMENTAL.
 *
 * A backend only translates: it has no pools, no registry of pointers, no
 * policy.  The core handles size 0, alignment (it checks each allocation, and
 * pads where `max_align` is too small), overlapping and empty copies, fill
 * patterns that the driver cannot handle, and events of other contexts.  It
 * also validates every argument, so a backend may rely on its arguments.
 *
 * Rules for every function:
 *  - Any thread may call, several of them on one object at the same time.  The
 *    core holds no lock unless the function's comment says so.
 *  - The result is 0 or USM_E_*.  On failure outputs are untouched and the error
 *    message was stored with api->report.  Out of memory is USM_E_NO_MEMORY,
 *    whatever the driver's own code was; a lost device is USM_E_DEVICE_LOST.
 *  - Commands never wait for the device: they are queued, and the function
 *    returns.  `deps` are events of the same backend context.  `ev` may be NULL:
 *    then no event is wanted.  An event that is returned holds one reference,
 *    which event_release drops.
 *  - Commands make progress without further calls: flush what you queue.
 *  - Handles are the backend's own pointers.
 *
 * Groups of optional functions are all-or-none: a bit in `caps` promises every
 * function of its group.  The core fills absent entries with stubs that return
 * USM_E_NOT_SUPPORTED. */
#ifndef USM_BACKEND_H
#define USM_BACKEND_H

#include <usm/command.h>
#include <usm/context.h>
#include <usm/device.h>
#include <usm/event.h>
#include <usm/module.h>
#include <usm/program.h>
#include <usm/queue.h>
#include <usm/types.h>

USM_BEGIN_DECLS

typedef enum usm_backend_cap {
    USM_CAP_QUEUES      = 1u << 0,  /* queue_*, copy .. barrier, event_* */
    USM_CAP_NOTIFY      = 1u << 1,  /* event_notify                      */
    USM_CAP_KERNELS     = 1u << 2,  /* program_*, kernel_*, launch       */
    USM_CAP_PARTITION   = 1u << 3,  /* sub_devices                       */
    USM_CAP_NATIVE      = 1u << 4,  /* *_from_native, *_native           */
    USM_CAP_MEMINFO     = 1u << 5,  /* device_memory                     */
    USM_CAP_PEER        = 1u << 6,  /* can_access_peer                   */
    USM_CAP_FORK_MEMORY = 1u << 7,  /* no functions: memory stays valid in a forked child,
                                       private to it; memory of all kinds is the host's */
    USM_CAP_IPC         = 1u << 8,  /* ipc_*          */
    USM_CAP_VMEM        = 1u << 9,  /* vmem_*, phys_* */
    USM_CAP_TASKS       = 1u << 10, /* task           */
    USM_CAP_GROUPS      = 1u << 11, /* kernel_groups  */
    USM_CAP_NO_ACCESS   = 1u << 12  /* no functions: memory of all kinds is mere addresses that
                                       nobody may access; it counts as the device's memory */
} usm_backend_cap;

/** A device as its backend describes it.  The core copies the struct. */
typedef struct usm_backend_device {
    void           *handle;
    const void     *platform; /**< the same for devices that can share a context */
    usm_device_type type;
    char            name[256];
    char            platform_name[128];
    char            vendor[128];
    char            driver_version[128];
    uint64_t        aspects; /**< bit (1 << usm_aspect) each */
    uint32_t        compute_units;
    /** Threads of this process that compute for the device, on the host's
     * processors; 0: none.  Two devices that have such threads share the cores:
     * a team uses one of them. */
    uint32_t compute_threads;
    uint32_t sub_devices; /**< how many sub_devices() returns; 0: none */
    uint64_t memory_size;
    uint64_t max_alloc_size;
    size_t   max_work_group_size;
    size_t   local_memory_size;
    size_t   max_align;        /**< largest alignment that mem_alloc guarantees */
    size_t   max_fill_pattern; /**< `fill` takes powers of two up to this; dst and size must be
                                    multiples of it.  SIZE_MAX: any pattern */
    bool     has_pci;
    /** Shared memory migrates between host and device in whole allocations of
     * mem_alloc(), and an access by the host takes an allocation away from a
     * command that is using it: no two blocks may share an allocation. */
    bool shared_moves_whole;
    /** advise() applies to the whole mem_alloc() allocation that the range is
     * in. */
    bool     advises_whole;
    uint32_t pci[4]; /**< domain, bus, device, function */
    bool     has_uuid;
    uint8_t  uuid[16];
} usm_backend_device;

/** Names an allocation for another process.  The bytes are copied to that
 * process.  `fd`, if there is one, must be transferred as a file descriptor
 * (SCM_RIGHTS, pidfd_getfd), and is replaced by the descriptor's number there. */
typedef struct usm_backend_ipc {
    uint8_t bytes[64];
    int     fd;          /**< -1: none; the exporter's descriptor stays open until ipc_put */
    bool    is_writable; /**< whether other processes may write; passed to ipc_open        */
    size_t  size;        /**< bytes of the allocation; passed to ipc_open                  */
} usm_backend_ipc;

/** The work-group sizes that a kernel supports on its device. */
typedef struct usm_backend_groups {
    size_t max_size;    /**< most work-items of one work-group; 0: unknown */
    size_t multiple;    /**< multiples of it run best; 0: unknown          */
    size_t required[3]; /**< the only size that the kernel allows; 0: any  */
} usm_backend_groups;

typedef void (*usm_backend_notify_fn)(void *arg, usm_status status);

/** A function of the program.  The backend calls exactly one of run and drop,
 * once. */
typedef struct usm_backend_task {
    usm_task_fn run;          /**< a status < 0 fails the command               */
    void (*drop)(void *user); /**< called when a dependency failed; may be NULL */
    void *user;
} usm_backend_task;

typedef struct usm_backend_ops {
    uint32_t    abi;         /**< USM_MODULE_ABI of the author's build      */
    uint32_t    struct_size; /**< sizeof(usm_backend_ops) of the same build */
    const char *name;        /**< [a-z0-9_], at most 31 bytes, static       */
    uint32_t    caps;        /**< usm_backend_cap                           */

    /* Required. -------------------------------------------------------------- */
    /** Lists the root devices in the driver's order; list, cap and count are as
     * in usm_get_devices().  The first call may load the driver.  No device is
     * success, with *count 0. */
    usm_status (*devices)(usm_backend_device *list, size_t cap, size_t *count);
    usm_status (*context_create)(size_t ndevices, void *const *devices, void **ctx);
    /** pre: every queue, event and program was destroyed, every block freed. */
    void (*context_destroy)(void *ctx);
    /** pre: size > 0, align a power of two and at most the device's max_align,
     * the device has the aspect for the kind.  `dev` is NULL for host memory. */
    usm_status (*mem_alloc)(void *ctx, void *dev, usm_kind kind, size_t size, size_t align,
                            void **p);
    /** p is from mem_alloc, and size is the one passed to it.  May free
     * immediately. */
    usm_status (*mem_free)(void *ctx, usm_kind kind, void *p, size_t size);

    /* USM_CAP_PARTITION: lists the devices of the selector terms N.*.  A
     * sub-device is valid until the process ends. */
    usm_status (*sub_devices)(void *dev, usm_backend_device *list, size_t cap, size_t *count);
    /* USM_CAP_MEMINFO: bytes; *free is USM_MEMORY_UNKNOWN where it is unknown. */
    usm_status (*device_memory)(void *dev, uint64_t *total, uint64_t *free);
    /* USM_CAP_PEER */
    usm_status (*can_access_peer)(void *dev, void *peer, bool *can);

    /* USM_CAP_QUEUES ---------------------------------------------------------- */
    usm_status (*queue_create)(void *ctx, void *dev, uint32_t flags, void **q);
    /** Does not wait.  The queue's resources are released after the commands in
     * flight have ended. */
    void (*queue_destroy)(void *q);
    /** Waits for everything queued so far.  Returns the first failure of a
     * command that had no event, if it is known. */
    usm_status (*queue_wait)(void *q);

    /** Either side is memory of this context, or host memory; no overlap; n > 0. */
    usm_status (*copy)(void *q, void *dst, const void *src, size_t n, size_t ndeps,
                       void *const *deps, void **ev);
    /** width, height > 0; pitches >= width. */
    usm_status (*copy_2d)(void *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                          size_t width, size_t height, size_t ndeps, void *const *deps, void **ev);
    /** size > 0, a multiple of pattern_size; max_fill_pattern gives further
     * limits. */
    usm_status (*fill)(void *q, void *dst, const void *pattern, size_t pattern_size, size_t size,
                       size_t ndeps, void *const *deps, void **ev);
    /** Hints: a hint that the driver does not support becomes a marker.  For
     * `prefetch` p is shared memory, for `advise` memory of any kind. */
    usm_status (*prefetch)(void *q, const void *p, size_t n, size_t ndeps, void *const *deps,
                           void **ev);
    usm_status (*advise)(void *q, const void *p, size_t n, usm_advice advice, size_t ndeps,
                         void *const *deps, void **ev);
    /** Completes after deps (ndeps > 0); in an in-order queue also after all
     * earlier commands.  It does not delay later commands of an out-of-order
     * queue. */
    usm_status (*marker)(void *q, size_t ndeps, void *const *deps, void **ev);
    /** Later commands wait for deps, or for all earlier commands if ndeps is 0. */
    usm_status (*barrier)(void *q, size_t ndeps, void *const *deps, void **ev);

    usm_status (*event_create_user)(void *ctx, void **ev);
    usm_status (*event_signal)(void *ev, usm_status status);
    /** USM_OK, USM_E_NOT_READY, or the failure of the command. */
    usm_status (*event_query)(void *ev);
    usm_status (*event_wait)(void *ev);
    usm_status (*event_profiling)(void *ev, usm_profiling *times);
    void (*event_release)(void *ev);

    /* USM_CAP_NOTIFY: calls fn(arg, status) once, from any thread or within
     * this call.  fn is short and never calls the backend.  The caller keeps
     * the event's context until fn was called.  Without this group the core has
     * a thread wait in event_wait. */
    usm_status (*event_notify)(void *ev, usm_backend_notify_fn fn, void *arg);

    /* USM_CAP_KERNELS --------------------------------------------------------- */
    /** image: OPENCL_C, SPIRV, NATIVE or BINARY, never BUNDLE.  *log, if there
     * is one (also on success), is text from api->heap_alloc that the core
     * frees.
     *   USM_E_BUILD     the image does not compile
     *   USM_E_NO_IMAGE  the device does not take images of this type */
    usm_status (*program_build)(void *ctx, void *dev, const usm_image *image, const char *options,
                                char **log, void **program);
    void (*program_destroy)(void *program);
    /** Returns the driver's binary in memory of api->heap_alloc.
     *   USM_E_NOT_SUPPORTED  there is none */
    usm_status (*program_binary)(void *program, void **data, size_t *size);
    /** Returns the names, separated by ';', in memory of api->heap_alloc. */
    usm_status (*program_kernels)(void *program, char **names);
    usm_status (*kernel_create)(void *program, const char *name, void **kernel);
    void (*kernel_destroy)(void *kernel);
    /** Returns the number of arguments and the kinds of the first `cap`;
     * USM_ARG_NONE where a kind is unknown. */
    usm_status (*kernel_info)(void *kernel, size_t *nargs, usm_arg_kind *kinds, size_t cap);
    /** Use `kernel`; launch->kernel is an object of the core.  The core has
     * checked the number of arguments and the known kinds.  The function copies
     * the arguments before it returns. */
    usm_status (*launch)(void *q, void *kernel, const usm_launch *launch, size_t ndeps,
                         void *const *deps, void **ev);

    /* USM_CAP_TASKS: runs the task on a thread of the backend, in the order of
     * the queue.  The task may call libusm and may block; other commands
     * proceed meanwhile.  Without this group the core runs the task on a thread
     * of its own between two markers. */
    usm_status (*task)(void *q, const usm_backend_task *task, size_t ndeps, void *const *deps,
                       void **ev);

    /* USM_CAP_GROUPS: for the search for the best local size (usm/parallel.h). */
    usm_status (*kernel_groups)(void *kernel, usm_backend_groups *groups);

    /* USM_CAP_IPC ------------------------------------------------------------- */
    /** As mem_alloc, but ipc_get accepts the memory, if memory of this kind can
     * be shared at all.  `writable`: other processes may write to it; if false
     * they may not, as far as the system can enforce that.  mem_free frees it. */
    usm_status (*ipc_alloc)(void *ctx, void *dev, usm_kind kind, bool writable, size_t size,
                            size_t align, void **p);
    /** p is from ipc_alloc; fills bytes and fd.
     *   USM_E_NOT_SUPPORTED  this memory cannot be shared */
    usm_status (*ipc_get)(void *ctx, void *p, usm_backend_ipc *handle);
    /** Releases the resources of the handle.  Memory that other processes have
     * opened stays open. */
    usm_status (*ipc_put)(void *ctx, usm_backend_ipc *handle);
    /** Maps the allocation of another process (or of this one) at an address of
     * its own.  handle->fd stays the caller's.  The memory is released when
     * both the owner and the importer have released it.
     *   USM_E_INVALID  not a handle of this driver, or its owner has ended */
    usm_status (*ipc_open)(void *ctx, void *dev, const usm_backend_ipc *handle, void **p);
    usm_status (*ipc_close)(void *ctx, void *p);

    /* USM_CAP_VMEM: address ranges, and separately the memory that is mapped
     * into them.  `dev` is NULL for host memory.  All memory in a range is of
     * one kind. */
    /** Returns the unit of all sizes and offsets below, for ranges of about
     * `size` bytes; a power of two.
     *   USM_E_NOT_SUPPORTED  not for memory of this kind */
    usm_status (*vmem_granularity)(void *ctx, void *dev, usm_kind kind, size_t size,
                                   size_t *granularity);
    /** Reserves addresses only, aligned to the granularity. */
    usm_status (*vmem_reserve)(void *ctx, usm_kind kind, size_t size, void **p);
    /** pre: nothing is mapped in the range any more; p and size are as reserved. */
    usm_status (*vmem_release)(void *ctx, void *p, size_t size);
    /** Creates memory; the backend may defer the allocation until vmem_map. */
    usm_status (*phys_create)(void *ctx, void *dev, usm_kind kind, size_t size, void **phys);
    /** pre: the memory is not mapped any more. */
    usm_status (*phys_destroy)(void *ctx, void *phys);
    /** Maps [offset, offset + size) of phys at p, where nothing is mapped.  Host
     * and devices may read and write it as its kind allows.  A part of phys is
     * mapped at one address at a time. */
    usm_status (*vmem_map)(void *ctx, void *p, size_t size, void *phys, size_t offset);
    /** p and size as mapped.  The content of the memory may be lost. */
    usm_status (*vmem_unmap)(void *ctx, void *p, size_t size);

    /* USM_CAP_NATIVE ---------------------------------------------------------- */
    /** ndevices 0: all devices of the native context.  Fills at most `cap`
     * entries of `list`. */
    usm_status (*context_from_native)(void *native, size_t ndevices, void *const *devices,
                                      usm_ownership ownership, void **ctx, usm_backend_device *list,
                                      size_t cap, size_t *count);
    usm_status (*context_native)(void *ctx, void **native);
    usm_status (*device_native)(void *dev, void **native);
    /** Sets *dev to the handle of the queue's device, and *flags to its
     * usm_queue_flags. */
    usm_status (*queue_from_native)(void *ctx, void *native, usm_ownership ownership, void **q,
                                    void **dev, uint32_t *flags);
    usm_status (*queue_native)(void *q, void **native);
    usm_status (*event_from_native)(void *ctx, void *native, usm_ownership ownership, void **ev);
    usm_status (*event_native)(void *ev, void **native);
} usm_backend_ops;

/** The only symbol that a backend module exports: `usm_backend_entry`.  It
 * returns NULL, with an error message reported, if the backend cannot work with
 * this libusm. */
typedef const usm_backend_ops *usm_backend_entry_fn(const usm_host_api *api);

USM_END_DECLS
#endif
