/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Contexts inside.  Two counts: `users` (the owner and queues with work) keep
 * the memory, `refs` (users as a group, events, programs, kernels) keep the
 * driver's context and the struct. */
#ifndef USM_CORE_CONTEXT_H
#define USM_CORE_CONTEXT_H

#include "base/inline/list.h"
#include "base/mutex.h"
#include "core/registry.h"

#include <usm/usm.h>

struct usm__program_cache;
struct usm__spill;

/* The core's own in-order queues.  A task that stages a copy runs while the queue
 * it came from is held, so what it uses is never the queue of blocking copies. */
typedef enum usm__own_queue { USM__QUEUE_BLOCKING = 0, USM__QUEUE_STAGING = 1 } usm__own_queue;

/* Per device of the context. */
typedef struct usm__context_device {
    usm_device          *dev;
    _Atomic(usm_pool *)  pools[4];   /* default pools by usm_kind                      */
    _Atomic(usm_queue *) queues[2];  /* the core's own, by usm__own_queue              */
    _Atomic(int)         moves_data; /* 0 not known, 1 yes, -1 no                      */
    usm__account         own;        /* within the context's device_limit, if it has one */
    usm_list             idle; /* own queues that were lent, usm_queue.link; guarded by lock */
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
    usm_context         *put_off; /* ended: the next that its thread has to let go, init.c  */
    /* atomic */
    _Atomic(uint32_t) users, refs;
    usm__account      own_host; /* within its host_limit, if it has one                */
    /* guarded by lock */
    usm__mutex lock;
    usm_list   pools;  /* usm_pool.link                                                */
    usm_list   queues; /* usm_queue.link; those that end too, until they have          */
    usm_list   probes; /* memory that copies of a failed probe may still use           */
    usm_list   all;    /* in the list of all contexts (its own lock)                   */
    /* the engine of buffers of a context that has a limit of its own; src/spill's */
    _Atomic(struct usm__spill *) spill;
    /* the program cache has its own lock */
    struct usm__program_cache *programs;
};

/* Handle and fork check. */
usm_status usm__context_check(usm_context *ctx);
/* *ctx NULL becomes the default context (which may be started), any other is checked. */
usm_status usm__context_resolve(usm_context **ctx);
/* ctx NULL is the default context (which may be started); NULL on failure. */
usm_context *usm__context_or_default(usm_context *ctx);
/* dev NULL: index 0.  A sub-device of a context's device is not in it. */
usm_status usm__context_device_index(usm_context *ctx, const usm_device *dev, size_t *index);

void usm__context_ref(usm_context *ctx);
void usm__context_unref(usm_context *ctx);
void usm__context_use(usm_context *ctx);
void usm__context_unuse(usm_context *ctx);
/* The owner's count is given back, whoever the owner is; once. */
void usm__context_end(usm_context *ctx);
/* The rest of it, of one that was the default: nobody is at work on it. */
void usm__context_let_go(usm_context *ctx);

/* Made at first use; NULL and a story. */
usm_queue *usm__context_queue(usm_context *ctx, size_t index, usm__own_queue which);
/* One of the core's own queues for one user alone, who uses the context until it gives it back,
 * with nothing unfinished in it.  NULL and a story. */
usm_queue *usm__context_borrow_queue(usm_context *ctx, size_t index);
void       usm__context_return_queue(usm_queue *q);
/* Once per device: 64 bytes there and back.  USM_E_NO_DATA_MOVED. */
usm_status usm__context_probe(usm_context *ctx, size_t index);
/* A failure nobody asked for. */
void usm__context_error(usm_context *ctx, usm_status status, const char *story);
/* Memory inherited through fork() that must not be used here. */
bool usm__context_is_inert(const usm_context *ctx);
/* Its owner ended it, or usm_shutdown() did; work in flight may still hold its memory, which
 * goes, on whichever thread ends the last of that work, without anybody's free. */
bool usm__context_is_ended(const usm_context *ctx);
/* For fork handlers: all contexts' locks, their pools', in order. */
void usm__contexts_fork(usm_fork_phase phase);
/* Calls fn for every pool of every context, the lists' locks held: fn takes no lock of a lower
 * rank than the pools', and neither makes nor ends a pool. */
typedef void usm__pool_visit(usm_pool *pool, void *arg);
void         usm__contexts_each_pool(usm__pool_visit *fn, void *arg);
/* Bytes in the program's hands on a device, over all contexts. */
uint64_t usm__contexts_live_bytes(const usm_device *dev);
/* How many contexts exist whose struct is still there: for leak gates. */
size_t usm__contexts_alive(void);

#endif
