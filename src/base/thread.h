/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The per-thread block: the error message and the event ring.  libusm reaches it through a small
 * initial-exec variable, so that libusm.so can always be loaded with dlopen().  Blocks are cut from
 * chunks in thread.c, and reused after the end of their thread.
 *
 * A room above keeps what it has for each thread in a variable of its own, of a few bytes and of
 * the same TLS model: 128 bytes in all, because the C library reserves 512 for all libraries that
 * are loaded with dlopen() (glibc.rtld.optional_static_tls).  It makes the block as well
 * (usm__thread_self()), so that the hook thread_ended of its part (base/part.h) is called. */
#ifndef USM_BASE_THREAD_H
#define USM_BASE_THREAD_H

#include "base/inline/list.h"

#include <stdbool.h>
#include <stdint.h>

#include <usm/types.h>

#define USM__STORY_SIZE 1024

/* For variables of a thread that other files see. */
#define USM__THREAD_LOCAL __thread __attribute__((tls_model("initial-exec"), visibility("hidden")))

struct usm_bin; /* heap/span.h */

typedef struct usm__thread {
    struct usm__thread *next_free; /* guarded by the lock in thread.c             */
    usm_status          status;
    char                message[USM__STORY_SIZE];
    /* The owner's thread caches by pool slot: heap/magazine.c.  NULL until first needed. */
    _Atomic(struct usm_bin *) *caches;
    usm_list                   cache_list; /* guarded by the lock there, once there is a table */
    void                      *trace;      /* the event ring, trace.c; NULL until first needed */
} usm__thread;

/* The number of pools that can have thread caches at the same time, plus slot 0 (none). */
#define USM__SLOTS 256

/* The table of a thread without caches, or that must not use them now: every slot points to bins
 * that are empty and full at the same time, so that every allocation and free takes the slow path
 * (heap/magazine.c). */
extern _Atomic(struct usm_bin *) usm__closed_caches[USM__SLOTS]
    __attribute__((visibility("hidden")));

struct usm__mutex;

/* All thread-local state of libusm: the block, and the state that must exist without one. */
typedef struct usm__tls {
    usm__thread       *block;        /* NULL until first needed                              */
    struct usm__mutex *held;         /* debug builds: the most recently locked ranked mutex,
                                        mutex.c */
    usm_status         orphan;       /* status of the last failure while there is no memory for a
                                        block */
    int                fault_benign; /* > 0: faults do not fire, fault.c                     */
    bool               is_giving;    /* inside the hook area_out_of_memory, heap/recover.c   */
    bool               is_held;      /* no memory is taken from a driver, heap/area.c        */
    /* heap/magazine.h: the current table, and the slots of the caches in use at this moment, on the
     * fast path and on the slow path. */
    _Atomic(struct usm_bin *) *caches;
    _Atomic(uint32_t)          busy, entered;
} usm__tls;

extern USM__THREAD_LOCAL usm__tls usm__self;

/* The calling thread's block, made if there is none yet; NULL if memory is exhausted. */
usm__thread *usm__thread_self(void);

/* Sets the function that is called on an ending thread, with its block, before the block is freed.
 * There is one, set at the start of the core. */
void usm__thread_on_end(void (*fn)(usm__thread *block));

#endif
