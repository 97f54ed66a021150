/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** @file
 * What a backend is: a table of functions over one driver.  EXPERIMENTAL.
 *
 * A backend translates and nothing else: no pools, no registry of pointers, no
 * policy.  The core in front of it takes care of size 0, alignment (it checks
 * each allocation and pads where `max_align` does not reach), overlapping and
 * empty copies, patterns the driver cannot fill, events of other contexts, and
 * validates every argument; so functions here may trust theirs.
 *
 * Rules for every function:
 *  - any thread may call, also several on one object at a time; no core lock is
 *    held, except where said;
 *  - 0 or USM_E_* comes back, outputs are untouched on failure, and the story
 *    is written with api->report.  A driver's out of memory is USM_E_NO_MEMORY,
 *    whatever its code was called; a lost device is USM_E_DEVICE_LOST;
 *  - commands never wait for the device: they queue and return.  `deps` are
 *    events of the same backend context, `ev` may be NULL (no event wanted);
 *    an event given back holds one reference, dropped by event_release;
 *  - commands make progress without further calls (flush what you queue);
 *  - handles are the backend's own pointers.
 *
 * Optional groups are all-or-none: a bit in `caps` promises every function of
 * its group.  The core fills absent slots with stubs that answer
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
    USM_CAP_QUEUES      = 1u << 0,  /* queue_*, copy .. barrier, event_*                   */
    USM_CAP_NOTIFY      = 1u << 1,  /* event_notify                                        */
    USM_CAP_KERNELS     = 1u << 2,  /* program_*, kernel_*, launch                         */
    USM_CAP_PARTITION   = 1u << 3,  /* sub_devices                                         */
    USM_CAP_NATIVE      = 1u << 4,  /* *_from_native, *_native                             */
    USM_CAP_MEMINFO     = 1u << 5,  /* device_memory                                       */
    USM_CAP_PEER        = 1u << 6,  /* can_access_peer                                     */
    USM_CAP_FORK_MEMORY = 1u << 7,  /* no functions: memory works on in a forked child, is
                                      private to it and, of all kinds, the host's        */
    USM_CAP_IPC         = 1u << 8,  /* ipc_*                                               */
    USM_CAP_VMEM        = 1u << 9,  /* vmem_*, phys_*                                      */
    USM_CAP_TASKS       = 1u << 10, /* task                                                */
    USM_CAP_GROUPS      = 1u << 11, /* kernel_groups                                       */
    USM_CAP_NO_ACCESS   = 1u << 12  /* no functions: memory of all kinds is addresses that
                                      nobody may touch, and counts as the device's        */
} usm_backend_cap;

/** A device as its backend describes it; copied by the core. */
typedef struct usm_backend_device {
    void           *handle;
    const void     *platform; /**< equal for devices that can share a context          */
    usm_device_type type;
    char            name[256];
    char            platform_name[128];
    char            vendor[128];
    char            driver_version[128];
    uint64_t        aspects; /**< bit (1 << usm_aspect) each                            */
    uint32_t        compute_units;
    /** Threads of this process that compute for the device, on its own processors; 0: none.  Two
     * devices that have some share the cores: a team takes one of them. */
    uint32_t compute_threads;
    uint32_t sub_devices; /**< how many sub_devices() gives; 0 = none        */
    uint64_t memory_size;
    uint64_t max_alloc_size;
    size_t   max_work_group_size;
    size_t   local_memory_size;
    size_t   max_align;        /**< largest alignment mem_alloc honours by itself */
    size_t   max_fill_pattern; /**< fill takes powers of two up to this, dst and
                                    size multiples of it; SIZE_MAX: anything      */
    bool     has_pci;
    /** Shared memory goes from host to device and back a whole mem_alloc() at a time, and a touch
     * of the host takes it away from a command that is under way: no two blocks may lie in one. */
    bool shared_moves_whole;
    /** advise() is for all of the mem_alloc() that its range lies in. */
    bool     advises_whole;
    uint32_t pci[4]; /**< domain, bus, device, function                 */
    bool     has_uuid;
    uint8_t  uuid[16];
} usm_backend_device;

/** What names an allocation in another process.  The bytes are copied there; `fd`, when there is
 * one, must reach it as a file descriptor (SCM_RIGHTS, pidfd_getfd), whose number there takes its
 * place. */
typedef struct usm_backend_ipc {
    uint8_t bytes[64];
    int     fd;          /**< -1: none; the exporter's stays open until ipc_put            */
    bool    is_writable; /**< whether others may write; told to ipc_open                  */
    size_t  size;        /**< of the allocation; told to ipc_open                         */
} usm_backend_ipc;

/** What a kernel's work-groups may be on its device. */
typedef struct usm_backend_groups {
    size_t max_size;    /**< work-items of one; 0: not known                            */
    size_t multiple;    /**< those of multiples of it run best; 0: not known            */
    size_t required[3]; /**< all are of this size; 0: of any                            */
} usm_backend_groups;

typedef void (*usm_backend_notify_fn)(void *arg, usm_status status);

/** A function of the program.  Exactly one of run and drop is called, once. */
typedef struct usm_backend_task {
    usm_task_fn run;          /**< a status < 0 fails the command                       */
    void (*drop)(void *user); /**< a dependency failed; NULL: nobody is to be told       */
    void *user;
} usm_backend_task;

typedef struct usm_backend_ops {
    uint32_t    abi;         /**< USM_MODULE_ABI of the author's build                   */
    uint32_t    struct_size; /**< sizeof(usm_backend_ops) of the same build              */
    const char *name;        /**< [a-z0-9_], at most 31 bytes, static                    */
    uint32_t    caps;        /**< usm_backend_cap                                        */

    /* Required. -------------------------------------------------------------- */
    /** Root devices, the driver's order, as usm_get_devices() counts.  The first
     * call may load the driver.  None is success with *count 0. */
    usm_status (*devices)(usm_backend_device *list, size_t cap, size_t *count);
    usm_status (*context_create)(size_t ndevices, void *const *devices, void **ctx);
    /** Every queue, event, program was given back before, every block freed. */
    void (*context_destroy)(void *ctx);
    /** pre: size > 0, align a power of two (the device's max_align at most), the
     * device has the aspect for kind.  `dev` is NULL for host memory. */
    usm_status (*mem_alloc)(void *ctx, void *dev, usm_kind kind, size_t size, size_t align,
                            void **p);
    /** p and size as mem_alloc gave and got them.  May be immediate. */
    usm_status (*mem_free)(void *ctx, usm_kind kind, void *p, size_t size);

    /* USM_CAP_PARTITION: what selector terms N.* list; a part lives for ever. */
    usm_status (*sub_devices)(void *dev, usm_backend_device *list, size_t cap, size_t *count);
    /* USM_CAP_MEMINFO: bytes; *free = USM_MEMORY_UNKNOWN where it is not known. */
    usm_status (*device_memory)(void *dev, uint64_t *total, uint64_t *free);
    /* USM_CAP_PEER */
    usm_status (*can_access_peer)(void *dev, void *peer, bool *can);

    /* USM_CAP_QUEUES ---------------------------------------------------------- */
    usm_status (*queue_create)(void *ctx, void *dev, uint32_t flags, void **q);
    /** Does not wait: commands in flight end, then the queue's resources go. */
    void (*queue_destroy)(void *q);
    /** Waits for everything queued so far; the first failure of a command that
     * had no event, if it is known. */
    usm_status (*queue_wait)(void *q);

    /** Memory of this context, or host memory, on either side; no overlap; n > 0. */
    usm_status (*copy)(void *q, void *dst, const void *src, size_t n, size_t ndeps,
                       void *const *deps, void **ev);
    /** width, height > 0; pitches >= width. */
    usm_status (*copy_2d)(void *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                          size_t width, size_t height, size_t ndeps, void *const *deps, void **ev);
    /** size > 0, a multiple of pattern_size; limits in max_fill_pattern. */
    usm_status (*fill)(void *q, void *dst, const void *pattern, size_t pattern_size, size_t size,
                       size_t ndeps, void *const *deps, void **ev);
    /** Hints: what the driver cannot do becomes a marker. p is shared or any USM. */
    usm_status (*prefetch)(void *q, const void *p, size_t n, size_t ndeps, void *const *deps,
                           void **ev);
    usm_status (*advise)(void *q, const void *p, size_t n, usm_advice advice, size_t ndeps,
                         void *const *deps, void **ev);
    /** Completes after deps (ndeps > 0); in an in-order queue also after all
     * before it.  Does not hold later commands of an out-of-order queue up. */
    usm_status (*marker)(void *q, size_t ndeps, void *const *deps, void **ev);
    /** Later commands wait for deps, or for all earlier ones when ndeps is 0. */
    usm_status (*barrier)(void *q, size_t ndeps, void *const *deps, void **ev);

    usm_status (*event_create_user)(void *ctx, void **ev);
    usm_status (*event_signal)(void *ev, usm_status status);
    /** USM_OK, USM_E_NOT_READY, or the command's failure. */
    usm_status (*event_query)(void *ev);
    usm_status (*event_wait)(void *ev);
    usm_status (*event_profiling)(void *ev, usm_profiling *times);
    void (*event_release)(void *ev);

    /* USM_CAP_NOTIFY: calls fn(arg, status) once, from any thread or at once in
     * the call; fn is short and never calls the backend.  Without this group the
     * core lets a thread sleep in event_wait. */
    usm_status (*event_notify)(void *ev, usm_backend_notify_fn fn, void *arg);

    /* USM_CAP_KERNELS --------------------------------------------------------- */
    /** image: OPENCL_C, SPIRV, NATIVE or BINARY, never BUNDLE.  *log, when there
     * is one (also on success), is text from api->heap_alloc that the core frees.
     *   USM_E_BUILD  does not compile;  USM_E_NO_IMAGE  cannot take the type */
    usm_status (*program_build)(void *ctx, void *dev, const usm_image *image, const char *options,
                                char **log, void **program);
    void (*program_destroy)(void *program);
    /** The driver's binary, from api->heap_alloc; USM_E_NOT_SUPPORTED: none. */
    usm_status (*program_binary)(void *program, void **data, size_t *size);
    /** Names separated by ';', from api->heap_alloc. */
    usm_status (*program_kernels)(void *program, char **names);
    usm_status (*kernel_create)(void *program, const char *name, void **kernel);
    void (*kernel_destroy)(void *kernel);
    /** The number of arguments and the kinds of the first `cap`; USM_ARG_NONE
     * where a kind is not known. */
    usm_status (*kernel_info)(void *kernel, size_t *nargs, usm_arg_kind *kinds, size_t cap);
    /** launch->kernel is not for the backend: `kernel` is.  Count and known kinds
     * were checked.  Arguments are copied before it returns. */
    usm_status (*launch)(void *q, void *kernel, const usm_launch *launch, size_t ndeps,
                         void *const *deps, void **ev);

    /* USM_CAP_TASKS: runs the task on a thread of the backend's when its turn in the queue comes.
     * It may call libusm and may block: other commands go on meanwhile.  Without this group the
     * core runs it on a thread of its own between two markers. ------------------------------ */
    usm_status (*task)(void *q, const usm_backend_task *task, size_t ndeps, void *const *deps,
                       void **ev);

    /* USM_CAP_GROUPS: for whoever looks for the best local size (usm/parallel.h). ----------- */
    usm_status (*kernel_groups)(void *kernel, usm_backend_groups *groups);

    /* USM_CAP_IPC ------------------------------------------------------------- */
    /** As mem_alloc, of memory that ipc_get takes where the kind can be shared at all; others may
     * write to it, or, as far as the system can see to it, not.  mem_free takes it. */
    usm_status (*ipc_alloc)(void *ctx, void *dev, usm_kind kind, bool writable, size_t size,
                            size_t align, void **p);
    /** p as ipc_alloc gave it; fills bytes and fd.  USM_E_NOT_SUPPORTED: this memory cannot be
     * shared. */
    usm_status (*ipc_get)(void *ctx, void *p, usm_backend_ipc *handle);
    /** Gives the handle's resources back; what others opened stays open. */
    usm_status (*ipc_put)(void *ctx, usm_backend_ipc *handle);
    /** The allocation of another process (or of this one) at an address of its own; handle->fd is
     * still the caller's.  The memory lives until both sides gave it back.
     *   USM_E_INVALID  no handle of this driver, or its owner is gone */
    usm_status (*ipc_open)(void *ctx, void *dev, const usm_backend_ipc *handle, void **p);
    usm_status (*ipc_close)(void *ctx, void *p);

    /* USM_CAP_VMEM: address ranges and the memory behind them, apart.  `dev` is NULL for host
     * memory.  A range holds memory of one kind. ------------------------------------- */
    /** What sizes and offsets below are multiples of, for ranges of about `size` bytes; a power of
     * two.  USM_E_NOT_SUPPORTED: not for memory of this kind. */
    usm_status (*vmem_granularity)(void *ctx, void *dev, usm_kind kind, size_t size,
                                   size_t *granularity);
    /** Addresses only, from a multiple of the granularity on. */
    usm_status (*vmem_reserve)(void *ctx, usm_kind kind, size_t size, void **p);
    /** Nothing is mapped in it any more; p and size as reserved. */
    usm_status (*vmem_release)(void *ctx, void *p, size_t size);
    /** Memory; the backend may take it as late as vmem_map. */
    usm_status (*phys_create)(void *ctx, void *dev, usm_kind kind, size_t size, void **phys);
    /** It is mapped nowhere any more. */
    usm_status (*phys_destroy)(void *ctx, void *phys);
    /** Puts [offset, offset + size) of phys behind p, where nothing is: readable and writable by
     * whom its kind allows.  A part of phys is mapped in one place at a time. */
    usm_status (*vmem_map)(void *ctx, void *p, size_t size, void *phys, size_t offset);
    /** p and size as mapped.  What the memory held may be lost. */
    usm_status (*vmem_unmap)(void *ctx, void *p, size_t size);

    /* USM_CAP_NATIVE ---------------------------------------------------------- */
    /** ndevices 0: all of the native context.  Fills `list` with at most cap. */
    usm_status (*context_from_native)(void *native, size_t ndevices, void *const *devices,
                                      usm_ownership ownership, void **ctx, usm_backend_device *list,
                                      size_t cap, size_t *count);
    usm_status (*context_native)(void *ctx, void **native);
    usm_status (*device_native)(void *dev, void **native);
    /** *dev: the handle of the queue's device, *flags its usm_queue_flags. */
    usm_status (*queue_from_native)(void *ctx, void *native, usm_ownership ownership, void **q,
                                    void **dev, uint32_t *flags);
    usm_status (*queue_native)(void *q, void **native);
    usm_status (*event_from_native)(void *ctx, void *native, usm_ownership ownership, void **ev);
    usm_status (*event_native)(void *ev, void **native);
} usm_backend_ops;

/** The only export of a module, `usm_backend_entry`.  NULL, with a story
 * reported, when the backend cannot work with this libusm. */
typedef const usm_backend_ops *usm_backend_entry_fn(const usm_host_api *api);

USM_END_DECLS
#endif
