/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of the trace, and by observe/traced.c, which records from the hit path; no
 * other file includes this.
 *
 *     trace.c        producers: rings and events    trace_writer.c  consumer: file, thread, fork
 *     trace_stack.c  sampled stacks                 trace_name.c    the file's name and header
 *
 *     thread --events--> ring --drain()--> chunks --> file        one producer, one consumer a ring
 *            --stacks, pools, tags--> definitions --^             under the leaf lock
 *
 * The consumer is the thread that holds the file's lock: the writer thread, or a thread in
 * usm__trace_flush().  A producer takes no lock, except when its thread records its first event. */
#ifndef USM_BASE_TRACE_RING_H
#define USM_BASE_TRACE_RING_H

#include "base/fork.h"
#include "base/inline/atomic.h"
#include "base/mutex.h"
#include "base/os.h"
#include "base/thread.h"
#include "base/trace.h"
#include "base/trace_format.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* In memory of its own, followed by its events.  head and tail count events since the ring was
 * made; event number c is at c & mask.  tail <= head <= tail + capacity. */
typedef struct usm__ring {
    /* written by the producer */
    _Alignas(64) _Atomic(uint64_t) head; /* release: the events before it are written         */
    uint64_t          limit;             /* at this head the slow path checks tail            */
    _Atomic(uint64_t) lost;              /* events that found no room                         */
    int64_t           until_sample;      /* bytes to allocate until the next sampled stack; > 0
                                            and more than any sum of sizes: stacks are off    */
    uint64_t          random;            /* state of the random generator for these distances */
    /* written by the consumer */
    _Alignas(64) _Atomic(uint64_t) tail; /* release: the events before it may be overwritten */
    uint64_t                  lost_written, last_ns;
    uint32_t                  thread;    /* number of the thread; fixed while it has the ring */
    _Atomic(bool)             ended;     /* the thread has ended; reusable when empty         */
    struct usm__ring *_Atomic next;      /* list of all rings; fixed once it is in the list   */
    struct usm__ring         *next_idle; /* guarded by the leaf lock                          */
    _Alignas(64) usm__trace_packed events[];
} usm__ring;

/* Fixed at the start. */
typedef struct usm__trace_config {
    uint64_t capacity; /* events in a ring, a power of two */
    uint64_t stack_bytes;
    bool     own_file; /* the name has %p: a child of fork() gets a file of its own */
    bool     use_tsc;
    char     name[4096]; /* as the user wrote it */
} usm__trace_config;

/* What the trace of the process is made of, but for its file. */
typedef struct usm__trace_state {
    usm__trace_config  config;
    usm__ring *_Atomic rings;
    _Atomic(uint64_t)  ringless;   /* events lost because there was no ring */
    _Atomic(bool)      is_writing; /* the writer thread runs                */
    atomic_uint        last_pool, last_tag, last_space, last_tier, last_kernel;
    usm__mutex         lock; /* a leaf */
    /* guarded by lock */
    usm__ring *idle;
    uint64_t   bytes; /* of all rings */
    uint32_t   last_thread;
    /* Teams are created and destroyed, while devices stay. */
    char     members[USM__TRACE_MEMBERS_MAX][64];
    uint32_t nmembers;
    struct {
        usm__mutex              lock;
        struct usm__trace_seen *table; /* guarded by lock, as the next */
        uint32_t                last_id;
    } stacks; /* trace_stack.c */
} usm__trace_state;

/* --- trace.c --- */
extern usm__trace_state usm__traced __attribute__((visibility("hidden")));
/* Returns the calling thread's ring, which is made if there is none.  NULL: it is full, or there is
 * no memory for one; an event is lost, unless the caller has none after all. */
usm__ring *usm__ring_with_room(void);
void       usm__ring_lose(void);
/* Makes a ring that has ended and is empty available again. */
void usm__ring_retire(usm__ring *ring);
void usm__rings_fork(usm_fork_phase phase);

/* --- trace_writer.c --- */
/* Opens the file and writes its header; false, with a warning, if that fails. */
bool usm__trace_open_file(void);
/* Wakes the writer, or starts it if there is none. */
void usm__trace_ring_bell(void);
/* Stores a chunk for the file permanently: the file of a child begins with all of them.  False: no
 * memory. */
bool usm__trace_define(usm__trace_kind kind, const void *payload, uint32_t size);

/* --- trace_stack.c --- */
/* Loads what unwinding needs, outside of any allocation. */
void usm__stack_start(void);
/* Returns the id of the caller's stack for the event of an allocation of `size`; 0 if no sample is
 * due. */
uint32_t usm__stack_sample(usm__ring *ring, uint64_t size);
void     usm__stack_fork(usm_fork_phase phase);

/* --- trace_name.c --- */
/* Expands %h, %r, %p, %% in the name; false if it becomes too long. */
bool usm__trace_expand(const char *name, char *out, size_t size);
/* Fills in everything except the times. */
void usm__trace_describe(usm__trace_header *h);

/* --- recording, by the thread that owns the ring --- */

/* The time stamp counter, where use_tsc says that it is good. */
static inline uint64_t usm__trace_counter(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    return usm__os_now_ns();
#endif
}

/* The same, once all that comes before it in the program has been done: a processor may read the
 * plain counter earlier.  It takes twice as long. */
static inline uint64_t usm__trace_counter_after(void)
{
#if defined(__x86_64__)
    unsigned processor;

    return __rdtscp(&processor);
#else
    return usm__os_now_ns();
#endif
}

static inline uint64_t usm__trace_ticks(void)
{
    return usm__traced.config.use_tsc ? usm__trace_counter_after() : usm__os_now_ns();
}

/* The place of event number `head`.  The lines behind it are fetched: the consumer's processor has
 * them, or memory. */
static inline usm__trace_packed *usm__ring_at(usm__ring *ring, uint64_t head)
{
    usm__trace_packed *at = &ring->events[head & (usm__traced.config.capacity - 1)];

    __builtin_prefetch(at + 16, 1);
    return at;
}

/* Publishes the event at the head; pairs with the consumer's acquire. */
static inline void usm__ring_put(usm__ring *ring, uint64_t head)
{
    usm_store_release(&ring->head, head + 1);
}

#endif
