/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the trace share; nobody else includes this.
 *
 *     trace.c         producers: rings and events             trace_writer.c  consumer: file,
 * thread, fork trace_stack.c   sampled stacks                          trace_name.c    the file's
 * name and header
 *
 *     thread --events--> ring --drain()--> chunks --> file        one producer, one consumer a ring
 *            --stacks, pools, tags--> definitions --^             under the leaf lock
 *
 * The consumer is whoever holds the file's lock: the writer thread, or a thread in
 * usm__trace_flush(). A producer takes no lock, but when its thread records its first event. */
#ifndef USM_BASE_TRACE_RING_H
#define USM_BASE_TRACE_RING_H

#include "base/trace_format.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* In memory of its own, its events behind it.  head and tail count events since the ring was made;
 * the event of count c lies at c & mask.  tail <= head <= tail + capacity. */
typedef struct usm__ring {
    /* the producer's */
    _Alignas(64) _Atomic(uint64_t) head; /* release: what is below is written             */
    uint64_t          limit;             /* at this head the slow path looks at tail      */
    _Atomic(uint64_t) lost;              /* events that found no room                     */
    int64_t           until_sample;      /* bytes to allocate until a stack is taken      */
    uint64_t          random;            /* state of the generator of such distances      */
    /* the consumer's */
    _Alignas(64) _Atomic(uint64_t) tail; /* release: what is below may be overwritten     */
    uint64_t                  lost_written, last_ns;
    uint32_t                  thread; /* its number; fixed while a thread has the ring            */
    _Atomic(bool)             ended;  /* the thread is gone; reusable when empty                  */
    struct usm__ring *_Atomic next;   /* all rings; fixed once it is on the list            */
    struct usm__ring         *next_idle; /* guarded by the leaf lock                           */
    _Alignas(64) usm__trace_packed events[];
} usm__ring;

/* Fixed by the start. */
typedef struct usm__trace_config {
    uint64_t capacity; /* events a ring, a power of two */
    uint64_t stack_bytes;
    bool     own_file; /* %p is in the name: a child of fork() has a file */
    bool     use_tsc;
    char     name[4096]; /* as the user wrote it */
} usm__trace_config;

extern usm__trace_config usm__trace_config_now;

/* --- trace.c --- */
extern struct usm__ring *_Atomic usm__rings;
extern _Atomic(uint64_t)         usm__trace_ringless; /* events lost for want of a ring */
uint64_t                         usm__trace_ticks(void);
/* A ring that is ended and empty. */
void usm__ring_retire(usm__ring *ring);
void usm__rings_fork(int phase);

/* --- trace_writer.c --- */
/* Opens the file and writes its header; false and a warning when that cannot be. */
bool                 usm__trace_open_file(void);
extern _Atomic(bool) usm__trace_writing; /* the writer thread runs */
/* Wakes the writer; starts it when there is none. */
void usm__trace_ring_bell(void);
/* A chunk for the file, kept: the file of a child begins with all of them.  false: no memory. */
bool usm__trace_define(usm__trace_kind kind, const void *payload, uint32_t size);

/* --- trace_stack.c --- */
/* Loads what unwinding needs, outside of every allocation. */
void usm__stack_start(void);
/* The id of the caller's stack for the event of an allocation of `size`; 0 when none is due. */
uint32_t usm__stack_sample(usm__ring *ring, uint64_t size);
void     usm__stack_fork(int phase);

/* --- trace_name.c --- */
/* Expands %h, %r, %p, %% in the name; false when it is too long. */
bool usm__trace_expand(const char *name, char *out, size_t size);
/* All but the times. */
void usm__trace_describe(usm__trace_header *h);

#endif
