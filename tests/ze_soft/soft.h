/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ze_soft: a software driver for the real Level Zero loader; what its files share.
 *
 * Loaded through ZE_ENABLE_ALT_DRIVERS.  Memory is host memory (device memory guarded: the host may
 * not touch it), commands are done by threads, kernels are functions of an ELF shared object or
 * SPIR-V given to an OpenCL runtime.  Knobs and what tests may ask of it: ze_soft.h.
 *
 * Functions of the API are named soft_ze...; nothing in here calls a ze function by its own name,
 * because the loader exports the same ones.  The file that implements the functions of a table also
 * exports it (zeGet<Table>ProcAddrTable); a field is filled only when the `version` argument has
 * it: tables grow from loader to loader, see facts of each table in tables.h.
 *
 * Every handle starts with a soft_handle, whose magic is checked (a wrong or dead handle answers
 * ZE_RESULT_ERROR_INVALID_NULL_HANDLE or _INVALID_ARGUMENT), after four pointers that newer loaders
 * may use.
 *
 * Locks, in order: soft_device.lock (execution), registry lock of memory.c (a leaf). */
#ifndef ZE_SOFT_SOFT_H
#define ZE_SOFT_SOFT_H

#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>
#include <level_zero/zes_api.h>
#include <level_zero/zes_ddi.h>
#include <level_zero/zet_api.h>
#include <level_zero/zet_ddi.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOFT_EXPORT __attribute__((visibility("default")))

/* The API this build speaks: what its headers know, 1.12 at most (1.13 and later want more of a
 * driver than a test needs). Headers of 1.8.12 have no macro for their version: they are 1.4. */
#ifdef ZE_API_VERSION_CURRENT_M
#define SOFT_HAS_API_1_12 1
#else
#define SOFT_HAS_API_1_12 0
#endif

typedef enum soft_type {
    SOFT_DRIVER = 0x50f70001,
    SOFT_DEVICE,
    SOFT_CONTEXT,
    SOFT_PHYSICAL,
    SOFT_QUEUE,
    SOFT_LIST,
    SOFT_FENCE,
    SOFT_POOL,
    SOFT_EVENT,
    SOFT_MODULE,
    SOFT_LOG,
    SOFT_KERNEL
} soft_type;

typedef struct soft_handle {
    void            *reserved[4]; /* the loader's, with the DDI handles extension           */
    _Atomic uint32_t type;        /* soft_type; 0 once destroyed                             */
} soft_handle;

typedef struct soft_device  soft_device;
typedef struct soft_context soft_context;

/* --- devices (device.c) ------------------------------------------------------ */

#define SOFT_PARTS 2

struct soft_device {
    soft_handle      handle;
    uint32_t         index; /* of the root device                                             */
    uint32_t         part;  /* of a sub-device                                                */
    soft_device     *root;  /* itself when it is one                                          */
    soft_device     *parts[SOFT_PARTS];
    uint32_t         nparts;
    uint64_t         memory_size; /* bytes; allocations beyond are refused                     */
    uint64_t         max_alloc;
    _Atomic uint64_t used; /* device and shared memory allocated on the root            */
    _Atomic bool     lost; /* of the root: every call but frees and destroys says so     */
};

struct soft_context {
    soft_handle handle;
};

/* Two root devices; the first has two sub-devices. */
#define SOFT_ROOTS 2
extern soft_device soft_devices[SOFT_ROOTS];
soft_device       *soft_device_of(ze_device_handle_t h);   /* NULL: not one of ours              */
soft_context      *soft_context_of(ze_context_handle_t h); /* NULL: not one of ours, or destroyed */
bool               soft_is_lost(const soft_device *dev);
void soft_lose(soft_device *dev); /* wakes every waiter, too (queue.c registers)     */
/* ZE_SOFT_SYSTEM=1: devices say that they take memory of the host that no driver allocated. */
bool soft_takes_system_memory(void);
/* Nanoseconds of the device's timer, which is CLOCK_MONOTONIC. */
uint64_t soft_now_ns(void);
/* The command queue groups (device.c), *count of them: lists and queues are checked against them.
 */
const ze_command_queue_group_properties_t *soft_queue_groups(const soft_device *dev,
                                                             uint32_t          *count);

/* --- every call (knobs.c) ------------------------------------------------------ */

/* First line of every API function that can fail: counts the call, adds the knob's cost, and
 * answers what the fault knobs say. */
#define SOFT_CALL()                                                                                \
    do {                                                                                           \
        ze_result_t soft_fault = soft_enter(__func__);                                             \
        if (soft_fault != ZE_RESULT_SUCCESS)                                                       \
            return soft_fault;                                                                     \
    } while (0)
ze_result_t soft_enter(const char *function);
/* The same for frees and destroys: slowed down, neither counted nor failed. */
void soft_enter_free(const char *function);
/* A knob's value (ZE_SOFT_<NAME>), read once; `unset` when it is not there or no number. */
uint64_t soft_knob(const char *name, uint64_t unset);
/* ZE_SOFT_LENIENT=1: what Intel's driver lets pass, and its conformance tests rely on, passes. */
bool soft_is_lenient(void);
/* Contexts, allocations, modules, kernels: +1 when created, -1 when destroyed.  What the execution
 * counts by itself (soft_exec_live) is added by ze_soft_live. */
void soft_live(int delta);

/* --- memory (memory.c, guard.c, ipc.c, vmem.c) --------------------------------- */

typedef struct soft_alloc {
    void            *base;  /* what the program has                                       */
    void            *alias; /* where the driver reads and writes it; == base when not guarded */
    size_t           size;
    ze_memory_type_t type;
    soft_context    *ctx;
    soft_device     *dev; /* NULL for host memory                                         */
    uint64_t         id;
} soft_alloc;

/* The allocation p lies in, copied; false for a pointer that is not ours. */
bool soft_alloc_find(const void *p, soft_alloc *out);
/* Where the driver's threads may read and write p[0..n): the alias of guarded memory, p itself of
 * host memory that is not ours; NULL when it reaches beyond its allocation or mapping. */
void *soft_view(const void *p, size_t n);
/* While a kernel runs the program's addresses of device memory are open; counted, nests. */
void soft_guard_open(void);
void soft_guard_close(void);
/* The same for shared memory that moves and is on the device (moving.c). */
void soft_moving_open(void);
void soft_moving_close(void);
/* A command is submitted: shared memory that it may use goes to the device. */
typedef bool soft_uses_fn(const void *cmd, const void *base, size_t size);
void         soft_moving_submit(soft_uses_fn *uses, const void *cmd);

/* The block that p lies in was advised (heap.c). */
void soft_advise(const void *p);

/* --- execution (queue.c, list.c, event.c, fence.c, engine.c) -------------------- */

typedef struct soft_launch soft_launch; /* module.c: a kernel with its arguments, as appended    */

/* soft_lose() calls it once the device says that it is lost: every wait looks again. */
void soft_exec_wake(void);
/* Returns when no command that was submitted before may use base[0..size) any more: copies and
 * fills by their addresses, kernels by any. */
void soft_exec_wait_unused(const void *base, size_t size);
/* Queues, lists, fences, pools, events, modules, build logs and kernels that were created and not
 * destroyed. */
uint64_t soft_exec_live(void);

/* --- modules and kernels (module.c, kernel.c, elf.c, spirv.c) ------------------- */

/* Takes the kernel's arguments, group size, offset as they are now. */
ze_result_t soft_launch_new(ze_kernel_handle_t kernel, const ze_group_count_t *groups,
                            soft_launch **launch);
/* The group count is read from memory when the command runs (AppendLaunchKernelIndirect). */
ze_result_t soft_launch_new_indirect(ze_kernel_handle_t kernel, const ze_group_count_t *groups,
                                     soft_launch **launch);
/* By a thread of the engine; may be called again (regular lists are executed many times), by one
 * thread at a time.  Blocks until the kernel is done. */
ze_result_t soft_launch_run(soft_launch *launch);
void        soft_launch_free(soft_launch *launch);

#endif
