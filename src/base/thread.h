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

typedef struct usm__thread {
    struct usm__thread *next_free; /* guarded by the lock in thread.c             */
    usm_status          status;
    char                message[USM__STORY_SIZE];
    void               *trace; /* the event ring, trace.c; NULL until first needed */
} usm__thread;

struct usm__mutex;

/* All thread-local state of libusm: the block, and the state that must exist without one. */
typedef struct usm__tls {
    usm__thread       *block;        /* NULL until first needed                              */
    struct usm__mutex *held;         /* debug builds: the most recently locked ranked mutex,
                                        mutex.c */
    usm_status         orphan;       /* status of the last failure while there is no memory for a
                                        block */
    int                fault_benign; /* > 0: faults do not fire, fault.c                     */
} usm__tls;

extern USM__THREAD_LOCAL usm__tls usm__self;

/* The calling thread's block, made if there is none yet; NULL if memory is exhausted. */
usm__thread *usm__thread_self(void);

#endif
