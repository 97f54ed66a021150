/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The per-thread block: story text, the tables of pools' caches.  libusm has
 * one initial-exec pointer to it, so that libusm.so can always be dlopened.
 * Blocks come from the metadata arena and are reused after their thread. */
#ifndef USM_BASE_THREAD_H
#define USM_BASE_THREAD_H

#include "base/inline/list.h"

#include <stdbool.h>
#include <stdint.h>

#include <usm/pool_ops.h>

#define USM__STORY_SIZE 1024
#define USM__TAG_DEPTH  32

typedef struct usm__thread {
    struct usm__thread *next_free; /* guarded by the lock in thread.c             */
    usm_status          status;
    char                story[USM__STORY_SIZE];
    /* Thread caches by pool slot, the owner's: core/magazine.c.  NULL until first needed. */
    _Atomic(usm_bin *) *caches;
    usm_list            cache_list; /* guarded by the lock there; once there is a table     */
    /* The tags that the thread has pushed, the innermost last: core/tag.c. */
    unsigned         tag_depth;
    struct usm__tag *tags[USM__TAG_DEPTH];
    uint64_t         task_queue; /* the serial of the queue whose task runs: core/task.c   */
    void            *trace;      /* the ring of events, trace.c; NULL until first needed     */
    /* The host's open accesses to buffers: buffer/slot.h.  The block's for life, whoever has it. */
    struct usm__open_table *open;
} usm__thread;

/* Pools that can have thread caches at a time, slot 0 (none) included. */
#define USM__SLOTS 256

/* The table of who has no caches, or must not use them now: every slot leads to bins that are empty
 * and full at once, so that both an allocation and a free take the slow path. */
extern usm_bin            usm__closed_bins[USM_BINS] __attribute__((visibility("hidden")));
extern _Atomic(usm_bin *) usm__closed_caches[USM__SLOTS] __attribute__((visibility("hidden")));

struct usm__mutex;

/* All thread-local state of libusm: the block and what must work without one. */
typedef struct usm__tls {
    usm__thread       *block;        /* NULL until first needed                              */
    struct usm__mutex *held;         /* debug builds: the ranked mutex taken last, mutex.c   */
    usm_status         orphan;       /* the last failure's status while no block can be had  */
    int                fault_benign; /* > 0: faults do not fire, fault.c                     */
    bool               is_giving;    /* inside the hook area_out_of_memory, core/pool.c      */
    bool               is_held;      /* no memory is taken from a driver, core/area.c        */
    /* core/init.c: which counters have the outermost call that uses the default context; such calls
     * at work, one inside the other; contexts that they ended, which go when the outermost returns. */
    uint16_t            default_round;
    unsigned            in_default;
    struct usm_context *put_off;
    /* core/magazine.h: the table in force, and the slot of the cache in use at this moment, by a
     * hit and by a slow path. */
    _Atomic(usm_bin *) *caches;
    _Atomic(uint16_t)   busy, entered;
} usm__tls;

extern __thread usm__tls usm__self __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The calling thread's block, made when there is none yet; NULL when none can be
 * had (out of memory). */
usm__thread *usm__thread_self(void);

/* Called on a thread that ends, with its block, before that is given back. One, set by the core's
 * start. */
void usm__thread_on_end(void (*fn)(usm__thread *block));

#endif
