/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pools of libusm inside OpenCL programs that do not know libusm: what the files of the layer
 * share.
 *
 *     program -> loader -> layer.c -> usm.c, svm.c -> pool.c, ../pools.c --usm_pool--> slab
 *                            |                                                         |
 *                            +--> context.c                  driver <--usm_area_source-+
 *
 * Sizes are bytes.  Any thread may call.  No lock of the layer is held while libusm is called, nor
 * while the driver is, but to retain something or ask an event's status. */
#ifndef USM_INSIDE_OPENCL_LAYER_H
#define USM_INSIDE_OPENCL_LAYER_H

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct inside_context inside_context;
typedef struct inside_queue   inside_queue;

/* The sorts of memory that are pooled.  SVM of coarse grain is never touched by libusm, as it may
 * not be mapped. */
typedef enum inside_sort {
    INSIDE_HOST,
    INSIDE_DEVICE,
    INSIDE_SHARED,
    INSIDE_SVM,
    INSIDE_SVM_FINE
} inside_sort;

/* The driver's extension functions; NULL: it has none of the name. */
typedef struct inside_driver {
    clHostMemAllocINTEL_fn    host_alloc;
    clDeviceMemAllocINTEL_fn  device_alloc;
    clSharedMemAllocINTEL_fn  shared_alloc;
    clMemFreeINTEL_fn         free;
    clMemBlockingFreeINTEL_fn blocking_free;
    clGetMemAllocInfoINTEL_fn info;
} inside_driver;

/* A context that the program has created, until it has been released and its last block freed. */
struct inside_context {
    cl_context      handle;
    inside_driver   driver;       /* fixed */
    bool            may_cut;      /* fixed; shared memory does not move by whole allocations */
    _Atomic(bool)   is_destroyed; /* by the driver, with the areas */
    _Atomic(size_t) uses;         /* live blocks, and one for all references of the program */
    _Atomic(int)    gives;        /* threads that give an area back to the driver */
    _Atomic(long)   user_events;  /* of the program, not set yet: commands may wait for them */
    /* Guarded by inside.lock. */
    size_t          references; /* the program's; 0: it has released the handle */
    inside_queue   *queues;
    inside_context *next;
};

/* All variables of the layer. */
typedef struct inside_state {
    const cl_icd_dispatch  *target; /* fixed by clInitLayer(): the next layer, or the drivers */
    _Atomic(bool)           stands_aside, is_exiting;
    _Atomic(cl_platform_id) platform; /* asked for a function last: it says what is wrong with a
                                         context that is none */
    pthread_mutex_t         lock;
    inside_context         *contexts; /* guarded by lock */
} inside_state;

extern inside_state inside;

/* > 0: the thread runs a callback of the program.  It must not wait there: the driver's thread that
 * it keeps may be the one that ends the commands. */
extern __thread int inside_callbacks;

/* ---- context.c ------------------------------------------------------------------------------- */

/* Looks whether libusm's own OpenCL backend is in this process; then the layer serves nothing
 * more. */
void inside_look_for_libusm(void);
/* With the lock.  NULL: not known, or the program has released it. */
inside_context *inside_context_find(cl_context handle);
/* The functions of a context's driver, whether or not the context is known. */
inside_driver inside_driver_of(cl_context handle);
void          inside_context_add(cl_context handle);
void          inside_context_retain(cl_context handle);
/* To be called before the driver's: the last reference takes the pools along. */
void inside_context_release(cl_context handle);
/* Gives back one of `uses`. */
void inside_context_unuse(inside_context *ctx);
void inside_queue_add(cl_context handle, cl_command_queue queue);
void inside_queue_retain(cl_command_queue queue);
/* To be called before the driver's. */
void inside_queue_release(cl_command_queue queue);
/* Waits for all commands in the context's queues, those that the program has released too. */
cl_int inside_context_wait(const inside_context *ctx);
/* Calls fn(data) when they have ended, maybe at once, maybe in a thread of the driver. */
cl_int inside_context_after(const inside_context *ctx, void (*fn)(void *data), void *data);
void   inside_user_event_add(cl_context handle, long change);

/* ---- pool.c ---------------------------------------------------------------------------------- */

/* A block; NULL: the driver is to be asked, unless *is_refused: a limit (USM_MEMORY_LIMIT) is
 * reached. dev NULL: no device of its own. */
void *inside_alloc(cl_context ctx, cl_device_id dev, inside_sort sort, size_t size, size_t align,
                   bool *is_refused);
/* Frees a block, after its context's commands if is_blocking.  false: it is the driver's.
 * *err: CL_INVALID_VALUE for what is not the start of a live block. */
bool inside_free(void *p, bool is_blocking, cl_int *err);
/* Does p point into a live block, into a free part of an area (size 0), or (false) into neither? */
bool inside_block(const void *p, void **base, size_t *size);

/* ---- commands.c ------------------------------------------------------------------------------ */

#ifdef USM_INSIDE_COMMANDS
/* Replaces what enqueues commands, if a trace is configured. */
void inside_commands_watch(cl_icd_dispatch *table);
/* The layer's function for an extension's name; NULL: it has none, or no trace is configured. */
void *inside_command_function(const char *name);
/* Around fork(): locks and unlocks. */
void inside_commands_in_parent(bool is_prepare);
void inside_commands_in_child(void);
#else /* a libusm that writes no traces */
static inline void inside_commands_watch(cl_icd_dispatch *table)
{
    (void)table;
}
static inline void *inside_command_function(const char *name)
{
    (void)name;
    return NULL;
}
static inline void inside_commands_in_parent(bool is_prepare)
{
    (void)is_prepare;
}
static inline void inside_commands_in_child(void)
{
}
#endif

/* ---- usm.c, svm.c ---------------------------------------------------------------------------- */

/* The layer's function for an extension's name; NULL: it has none. */
void              *inside_usm_function(const char *name);
void *CL_API_CALL  inside_svm_alloc(cl_context ctx, cl_svm_mem_flags flags, size_t size,
                                    cl_uint align);
void CL_API_CALL   inside_svm_free(cl_context ctx, void *p);
cl_int CL_API_CALL inside_enqueue_svm_free(cl_command_queue queue, cl_uint n, void **pointers,
                                           void(CL_CALLBACK *callback)(cl_command_queue, cl_uint,
                                                                       void **, void *),
                                           void *user, cl_uint nwait, const cl_event *wait,
                                           cl_event *event);
cl_int CL_API_CALL inside_set_exec_info(cl_kernel kernel, cl_kernel_exec_info what, size_t size,
                                        const void *value);

#endif
