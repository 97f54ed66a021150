/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Internals of contexts.  Two reference counts: `users` (the owner, and queues with work) keep the
 * memory alive; `refs` (all users as one, events, programs, kernels) keep the driver's context and
 * the struct alive. */
#ifndef USM_DEVICE_CONTEXT_H
#define USM_DEVICE_CONTEXT_H

#include "base/inline/list.h"
#include "base/mutex.h"
#include "device/registry.h"

#include <usm/usm.h>

struct usm__program_cache;
struct usm__spill;

/* The core's own in-order queues.  A task that stages a copy runs while the queue it was submitted
 * to waits, so it never uses the queue of blocking copies. */
typedef enum usm__context_own_queue {
    USM__QUEUE_BLOCKING = 0,
    USM__QUEUE_STAGING  = 1
} usm__context_own_queue;

/* What the first copy to a device and back has shown. */
typedef enum usm__probe_result {
    USM__PROBE_UNKNOWN = 0,
    USM__PROBE_MOVES,
    USM__PROBE_FAILS, /* the driver completes copies without moving data */
} usm__probe_result;

/* The state of the context for one of its devices. */
typedef struct usm__context_device {
    usm_device         *dev;
    _Atomic(usm_pool *) pools[4]; /* default pools, by usm_kind                               */
    _Atomic(usm_queue *)
                 queues[2];  /* the core's own, by usm__context_own_queue                        */
    _Atomic(int) moves_data; /* usm__probe_result */
    usm__device_quota own;   /* counted within the context's device_limit, if it has one */
    usm_list          idle;  /* own queues that were lent and returned, usm_queue.link; guarded by
                                  lock */
} usm__context_device;

struct usm_context {
    usm__magic_word magic;
    /* fixed after create */
    const usm__backend  *be;
    void                *native;
    size_t               ndevices;
    usm__context_device *devices;
    usm_error_fn         on_error;
    void                *user;
    unsigned             fork_generation;
    bool                 is_default;
    usm_context         *put_off; /* of an ended context: the next that its thread must release,
                                     init.c */
    /* atomic */
    _Atomic(uint32_t) users, refs;
    _Atomic(bool)     has_thresholds; /* a pool was ever given one: until then none is checked */
    usm__device_quota own_host;       /* counted within its host_limit, if it has one          */
    /* guarded by lock */
    usm__mutex lock;
    usm_list   pools;  /* usm_pool.link                                                    */
    usm_list   queues; /* usm_queue.link; a queue that ends stays in it until it has ended */
    usm_list   probes; /* memory that copies of a failed probe may still use               */
    usm_list   all;    /* link in the list of all contexts, which has its own lock         */
    /* the spill engine of a context with a limit of its own; of src/spill */
    _Atomic(struct usm__spill *) spill;
    /* the program cache has its own lock */
    struct usm__program_cache *programs;
};

/* Checks the handle, and that it was not inherited through fork(). */
usm_status usm__context_check(usm_context *ctx);
/* Replaces *ctx NULL by the default context, which it may create; checks any other. */
usm_status usm__context_resolve(usm_context **ctx);
/* ctx NULL: the default context, which may be created.  Returns NULL on failure. */
usm_context *usm__context_or_default(usm_context *ctx);
/* dev NULL: index 0.  A sub-device of a context's device is not a device of the context. */
usm_status usm__context_device_index(usm_context *ctx, const usm_device *dev, size_t *index);

void usm__context_ref(usm_context *ctx);
void usm__context_unref(usm_context *ctx);
void usm__context_use(usm_context *ctx);
void usm__context_unuse(usm_context *ctx);
/* Releases the owner's reference, whoever the owner is; once. */
void usm__context_end(usm_context *ctx);
/* The rest of usm__context_end(), also for a former default context on which no thread works any
 * more. */
void usm__context_let_go(usm_context *ctx);

/* Reports a failure that no call can return. */
void usm__context_error(usm_context *ctx, usm_status status, const char *message);
/* True if the context was inherited through fork() and must not be used here. */
bool usm__context_is_inert(const usm_context *ctx);
/* True if the owner or usm_shutdown() ended the context.  Commands in flight may still hold its
 * memory.  It is freed on the thread that ends the last of them, without a call of the
 * program's. */
bool usm__context_is_ended(const usm_context *ctx);
/* For fork handlers: locks or unlocks the list of all contexts, and each context. */
void usm__contexts_fork(usm_fork_phase phase);
/* Calls fn for every context, with the lock of the list held; in a fork handler, between those of
 * usm__contexts_fork(). */
void usm__contexts_each(void (*fn)(usm_context *ctx, void *arg), void *arg);
void usm__contexts_each_in_fork(void (*fn)(usm_context *ctx, usm_fork_phase phase),
                                usm_fork_phase phase);
/* The number of contexts whose struct exists: for leak checks. */
size_t usm__contexts_alive(void);

#endif
