/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The per-thread block: story text, room for pools' caches later.  libusm has
 * one initial-exec pointer to it, so that libusm.so can always be dlopened.
 * Blocks come from the metadata arena and are reused after their thread. */
#ifndef USM_BASE_THREAD_H
#define USM_BASE_THREAD_H

#include <usm/status.h>

#define USM__STORY_SIZE 1024

typedef struct usm__thread {
    struct usm__thread *next_free; /* guarded by the lock in thread.c             */
    usm_status          status;
    char                story[USM__STORY_SIZE];
} usm__thread;

struct usm__mutex;

/* All thread-local state of libusm: the block and what must work without one. */
typedef struct usm__tls {
    usm__thread       *block;        /* NULL until first needed                              */
    struct usm__mutex *held;         /* debug builds: the ranked mutex taken last, mutex.c   */
    usm_status         orphan;       /* the last failure's status while no block can be had  */
    int                fault_benign; /* > 0: faults do not fire, fault.c                     */
} usm__tls;

extern __thread usm__tls usm__self __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The calling thread's block, made when there is none yet; NULL when none can be
 * had (out of memory). */
usm__thread *usm__thread_self(void);

#endif
