/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Parts of the library: a room, and what it hooks into the rooms below it.
 *
 * src/usm.c, the composition root, adds each part that is built in; lower ones first.  A room below
 * calls the hooks of all parts through the functions here, and knows none of them: a part that is
 * left out leaves no trace.  The list is complete before anything else runs and then only read, so
 * any thread may call. */
#ifndef USM_BASE_PART_H
#define USM_BASE_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <usm/command.h>
#include <usm/pool_ops.h>
#include <usm/program.h>
#include <usm/queue.h>

struct usm__pool_export_hooks;
struct usm__pool_queued;

#define USM__PARTS_MAX      16
#define USM__PART_FORKS_MAX 4

typedef struct usm_part {
    const char *name;
    /* Once, at the start of the library; calls no driver. */
    void (*start)(void);
    /* Once, before the first call of a backend or transport and before the first pool: settings are
     * final. */
    void (*observe)(void);
    /* usm_shutdown() ends the default context: the part drops what it keeps of it.  Called with the
     * library's lock held (rank INIT), and must not wait. */
    void (*shutdown)(void);
    /* fork(), in all three phases.  Handlers of all parts are called in the order of the ranks of
     * the locks that they take (base/mutex.h). */
    struct {
        int rank;
        void (*fn)(usm_fork_phase phase);
    } fork[USM__PART_FORKS_MAX];

    /* The calling thread ends, or what it has of libusm is dropped: in reverse order of the parts.
     * */
    void (*thread_ended)(void);

    /* A reader of the figures of this process has announced itself (base/watched.h).  No lock is
     * held. */
    void (*watched)(void);

    /* ---- contexts, in the order of the parts */
    /* A new context is complete, but nobody else knows it yet. */
    usm_status (*context_made)(usm_context *ctx);
    /* ... and in reverse order: its owner ended it; its last user has gone, so that only events,
     * programs and kernels still refer to it; it is about to be freed. */
    void (*context_ended)(usm_context *ctx);
    void (*context_unused)(usm_context *ctx);
    void (*context_freed)(usm_context *ctx);

    /* ---- queues */
    void (*queue_waiting)(usm_queue *q); /* a thread is about to wait for it              */
    /* its first `position` commands have ended */
    void (*queue_waited)(usm_queue *q, uint64_t position);
    void (*queue_retired)(usm_queue *q); /* the last reference has gone; it has async data */
    /* An event that no command completes is awaited: returns when every command that took memory
     * before is in its queue (command/outside.h). */
    void (*outside_drain)(void);

    /* ---- memory */
    /* Memory of `kind` on `dev` cannot be had for ctx.  Frees about `size` bytes of it, or less,
     * and returns how many.  The caller holds no pool's lock.  Not called again for allocations
     * that it makes itself. */
    size_t (*out_of_memory)(usm_context *ctx, usm_device *dev, usm_kind kind, size_t size);
    /* The residency engine of `owner` (NULL: of the process) lacks memory that its limit allows,
     * but that others hold: returns about `bytes` of it to the memory accounting, and returns how
     * many. */
    size_t (*memory_starved)(usm_context *owner, size_t bytes);
    /* A new pool has its functions, but no memory yet, and nobody else knows it; the struct of a pool
     * is about to be freed. */
    void (*pool_made)(usm_pool *pool);
    void (*pool_freed)(usm_pool *pool);
    /* For pools with async data: returns blocks that queues have freed, and how many; the pool is
     * ending; their figures. */
    size_t (*pool_collect)(usm_pool *pool, bool wait);
    void (*pool_ending)(usm_pool *pool);
    void (*pool_figures)(usm_pool *pool, struct usm__pool_queued *figures);
    /* Memory that no pool has.  Frees it; USM_E_INVALID_POINTER, without a message: it is not the
     * part's.  The block around p; false: it is not the part's. */
    usm_status (*unpooled_free)(void *p);
    bool (*unpooled_find)(const void *p, usm_block *block);
    /* A hint of a queue for [p, p + n); answers as unpooled_free(). */
    usm_status (*unpooled_advise)(const void *p, size_t n, usm_advice advice);
    /* Memory that other processes use (heap/export.h). */
    const struct usm__pool_export_hooks *exports;
    /* A launch with an argument that is a buffer. */
    usm_status (*launch_over_buffers)(usm_queue *q, const usm_launch *launch, size_t ndeps,
                                      usm_event *const *deps, usm_event **ev);
} usm_part;

/* Only src/usm.c. */
void usm__part_add(const usm_part *part);

void       usm__parts_start(void);
void       usm__parts_observe(void);
void       usm__parts_shutdown(void);
void       usm__parts_fork(usm_fork_phase phase);
void       usm__parts_thread_ended(void);
void       usm__parts_watched(void);
usm_status usm__parts_context_made(usm_context *ctx);
void       usm__parts_context_ended(usm_context *ctx);
void       usm__parts_context_unused(usm_context *ctx);
void       usm__parts_context_freed(usm_context *ctx);
void       usm__parts_queue_waiting(usm_queue *q);
void       usm__parts_queue_waited(usm_queue *q, uint64_t position);
void       usm__parts_queue_retired(usm_queue *q);
void       usm__parts_outside_drain(void);
/* The sum over all parts. */
size_t usm__parts_out_of_memory(usm_context *ctx, usm_device *dev, usm_kind kind, size_t size);
size_t usm__parts_memory_starved(usm_context *owner, size_t bytes);
void   usm__parts_pool_made(usm_pool *pool);
void   usm__parts_pool_freed(usm_pool *pool);
size_t usm__parts_pool_collect(usm_pool *pool, bool wait);
void   usm__parts_pool_ending(usm_pool *pool);
void   usm__parts_pool_figures(usm_pool *pool, struct usm__pool_queued *figures);
/* The answer of the part that has p, else that no part has it. */
usm_status usm__parts_unpooled_free(void *p);
bool       usm__parts_unpooled_find(const void *p, usm_block *block);
usm_status usm__parts_unpooled_advise(const void *p, size_t n, usm_advice advice);
/* NULL: no part has one. */
const struct usm__pool_export_hooks *usm__parts_exports(void);
const usm_part                      *usm__parts_launcher(void);

#endif
