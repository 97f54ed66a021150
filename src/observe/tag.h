/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Internals of tags: the names, their statistics, and the current tag of a thread.
 *
 * A tag is made at its first push and never freed.  observe/tracked.h has the tag of each block. */
#ifndef USM_OBSERVE_TAG_H
#define USM_OBSERVE_TAG_H

#include "device/observer.h"

#define USM__TAG_NAME  64
#define USM__TAG_DEPTH 32

typedef struct usm__tag {
    struct usm__tag *_Atomic next;     /* in its bucket            */
    struct usm__tag *_Atomic next_all; /* in the order of creation */
    /* fixed */
    uint16_t id; /* 1, 2, ...                                                            */
    char     name[USM__TAG_NAME];
    /* atomic */
    _Atomic(uint64_t) live, live_peak, blocks, allocations;
    _Atomic(uint32_t) trace_id; /* its number in the trace; 0: none yet */
} usm__tag;

/* The calling thread's innermost tag, or NULL. */
usm__tag *usm__tag_current(void);
/* pre: it has one. */
const char *usm__tag_name(void);

/* `tag` may be NULL in all of these.  A block was allocated; freed; its free was refused after
 * all. */
void     usm__tag_add(usm__tag *tag, size_t size);
void     usm__tag_sub(usm__tag *tag, size_t size);
void     usm__tag_restore(usm__tag *tag, size_t size);
uint32_t usm__tag_trace_id(usm__tag *tag);

void usm__tags_each(usm__observer_tag_fn *fn, void *arg);
void usm__tag_fork(usm_fork_phase phase);
void usm__tag_thread_ended(void);

#endif
