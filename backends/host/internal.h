/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of the host backend.
 *
 *   host.c     the table, the device, contexts, fork
 *   memory.c   pages                       guard.c   device memory that the host cannot access
 *   vmem.c     ranges, mapped in pieces      ipc.c     memory shared with other processes
 *   queue.c    the graph of commands, queues (start reading there)
 *   team.c     the workers                 task.c    functions of the program
 *   event.c    operations on events
 *   copy.c     copies, fills, markers      kernel.c  programs and launches
 *
 * Functions whose names end in those of the interface are the entries of the table in host.c;
 * usm/backend.h has their contract. */
#ifndef USM_BACKENDS_HOST_INTERNAL_H
#define USM_BACKENDS_HOST_INTERNAL_H

#include <base/inline/atomic.h>
#include <base/inline/bits.h>
#include <base/inline/list.h>
#include <usm/backend.h>

#include <pthread.h>

/* The table that libusm passed to the entry. */
extern const usm_host_api *usm__host_lib;
#define USM__HOST_BUCKETS 256

/* The backend, but for the graph of commands (graph.h).  Its address is the device's handle. */
typedef struct usm__host_state {
    /* fixed at the entry */
    size_t          page;     /* bytes                                                       */
    unsigned        workers;  /* the most                                                    */
    bool            may_spin; /* there is a second processor, so a waiting thread may spin   */
    usm_backend_ops ops;
    /* fork: the lock is only taken until the handlers are registered, so no thread holds it at a
     * later fork */
    pthread_mutex_t lock;
    _Atomic(bool)   watches_forks;
    struct {
        pthread_mutex_t lock;
        /* guarded by lock */
        usm_list regions; /* memory                                       */
        usm_list ranges;  /* addresses for pieces; regions without memory */
        size_t   kernels; /* number running now; > 0: regions are open    */

        atomic_size_t nregions; /* lets callers skip the lock without guard mode */
    } guard;                    /* guard.c */
    struct {
        pthread_mutex_t lock;
        usm_list        buckets[USM__HOST_BUCKETS]; /* guarded by lock; next NULL: not used yet */
        atomic_size_t   count; /* lets callers skip the lock without such memory */
    } files;                   /* ipc.c */
} usm__host_state;
extern usm__host_state usm__host __attribute__((visibility("hidden")));

/* Reports a failure of the system call `what`; the message is "what: the system's text". */
usm_status usm__host_refused(usm_status status, const char *what, int error);

typedef struct usm__host_context {
    bool guard; /* device memory is mapped so that the host cannot access it */
} usm__host_context;

/* --- commands (queue.c) ---------------------------------------------------------------------- */

typedef struct usm__host_queue   usm__host_queue;
typedef struct usm__host_command usm__host_command;

/* A callback for a completion. */
typedef struct usm__host_note {
    struct usm__host_note *next;
    usm_backend_notify_fn  fn;
    void                  *arg;
} usm__host_note;

/* Runs one of `parts` shares of a command's work, 0 first; several run at the same time.  Not
 * called for commands whose dependencies failed.  NULL for commands that do nothing. */
typedef usm_status (*usm__host_run)(usm__host_command *c, size_t part);

/* A command is its own event.  User events are commands without a queue. */
struct usm__host_command {
    /* fixed before it is submitted */
    usm__host_run run;
    size_t        parts;
    void         *payload;       /* of the requested size, aligned to 64, zeroed */
    bool          waits_for_all; /* for all before it in its queue; cleared, under the lock, when
                                    they have ended */
    bool          is_barrier;    /* later commands of its queue wait for it */
    bool          has_times;
    bool          is_task;  /* runs functions of the program, which may block */
    bool          is_loose; /* a batch of an out-of-order queue: each part is a task; `parts` grows,
                               under the lock, while it is open */
    /* Called instead of `run` if a dependency failed; NULL: nothing needs to be done. */
    void (*drop)(usm__host_command *c);
    size_t size; /* of its memory                                                     */

    /* fixed when it is submitted; the queue may be destroyed once the command is complete */
    usm__host_queue *queue;
    bool             has_event;
    uint64_t         number; /* in the queue, ascending                                  */

    /* guarded by the graph's lock */
    usm_list        queue_link; /* in the queue's list until complete                      */
    usm_list        ready_link; /* in the graph's list while parts remain to be handed out */
    usm_list        successors; /* edges to the commands that wait for this one            */
    size_t          unmet;      /* number of commands it waits for; ready at 0             */
    bool            dependency_failed;
    size_t          next_part, running;
    usm_status      failure; /* that of its first failing part */
    usm__host_note *notes;
    pthread_cond_t  done;
    usm_profiling   times; /* readable without the lock once complete */

    /* atomic */
    atomic_size_t refs;
    atomic_int    result; /* USM_E_NOT_READY until complete; the release store pairs with the
                             acquire loads in usm__host_result() */
};

/* Makes a command for q (NULL: a user event), to be filled in and submitted, or released.  NULL,
 * with an error message: no memory. */
usm__host_command *usm__host_command_create(usm__host_queue *q, size_t ndeps, size_t payload);
void               usm__host_command_release(usm__host_command *c);
/* Takes c over, also on failure. */
usm_status usm__host_submit(usm__host_command *c, size_t ndeps, void *const *deps, void **ev);
/* Completes a user event; false if it was complete already. */
bool usm__host_finish_user(usm__host_command *c, usm_status status);
void usm__host_await(usm__host_command *c);
/* False when c is complete: the caller keeps the note. */
bool usm__host_attach(usm__host_command *c, usm__host_note *note);

static inline usm_status usm__host_result(usm__host_command *c)
{
    return (usm_status)usm_load_acquire(&c->result);
}

/* True if the calling thread runs a task of the queue at this moment. */
bool usm__host_runs_task_of(const usm__host_queue *q);
/* Under the graph's lock: closes the queue's batch; later tasks get a command of their own
 * (task.c). */
void usm__host_batch_close(usm__host_queue *q);
/* Frees the objects kept for reuse to the heap; in the child of a fork the list is only dropped. */
void usm__host_forget_recycled(void);
void usm__host_tasks_forget(void);
void usm__host_tasks_in_child(void);
void usm__host_notes_forget(bool in_child);
void usm__host_scratch_forget(bool in_child);
void usm__host_note_free(usm__host_note *note);

/* The number of workers to use; *may_spin: there are at least two processors. */
unsigned usm__host_team_size(bool *may_spin);
/* Contexts and queues keep the workers, which end when none of them is left. */
void usm__host_workers_keep(void);
void usm__host_workers_let_go(void);
/* From now on exit() waits for functions of the program that have not run yet. */
void usm__host_watch_exit(void);

/* Returns where share `part` of `parts` begins when `total` items are divided evenly. */
static inline size_t usm__host_share(size_t total, size_t parts, size_t part)
{
    return part * (total / parts) + usm_min_size(part, total % parts);
}

/* --- memory shared with other processes (ipc.c) ----------------------------------------------- */

void usm__host_ipc_lock(void);
void usm__host_ipc_unlock(void);
/* The child keeps the mappings, but no descriptors, which would keep the parent's memory alive. */
void usm__host_ipc_in_child(void);
/* False: p is not such memory. */
bool usm__host_ipc_free(void *p, usm_status *status);

/* --- guarded memory (guard.c) ---------------------------------------------------------------- */

usm_status usm__host_guard_alloc(size_t size, size_t align, void **p);
/* Also for a piece.  USM_E_INVALID_POINTER, without an error message: p is not guarded memory. */
usm_status usm__host_guard_free(const void *p);
/* A range without memory, and memory for a piece of it, which guard_free() frees. */
usm_status usm__host_guard_reserve(size_t size, size_t align, void **p);
usm_status usm__host_guard_map(void *p, size_t size);
/* USM_E_INVALID_POINTER, without an error message: p is not such a range. */
usm_status usm__host_guard_release(const void *p);
/* Returns the offset from p to an accessible address; 0 for all other memory. */
ptrdiff_t usm__host_guard_shift(const void *p);
/* Between these two calls all guarded memory is accessible; they nest, on any thread. */
usm_status usm__host_guard_open(void);
void       usm__host_guard_close(void);

/* --- pages (memory.c) ------------------------------------------------------------------------ */

/* USM_E_NO_MEMORY with its message, which names a limit of the process.  `of`: "", or " of
 * addresses". */
usm_status usm__host_no_memory(size_t size, const char *of);

/* size: whole pages.  NULL, with errno. */
void *usm__host_map(size_t size, size_t align, int prot);

/* --- fork: the locks are held across it; called by host.c's handlers ------------------------- */

void usm__host_graph_lock(void);
void usm__host_graph_unlock(void);
/* In the child: there are no workers, and queued commands stay the parent's. */
void usm__host_graph_in_child(void);
void usm__host_team_in_child(void);
void usm__host_guard_lock(void);
void usm__host_guard_unlock(void);

/* --- the entries of the table ---------------------------------------------------------------- */

usm_status usm__host_mem_alloc(void *ctx, void *dev, usm_kind kind, size_t size, size_t align,
                               void **p);
usm_status usm__host_mem_free(void *ctx, usm_kind kind, void *p, size_t size);

usm_status usm__host_ipc_alloc(void *ctx, void *dev, usm_kind kind, bool writable, size_t size,
                               size_t align, void **p);
usm_status usm__host_ipc_get(void *ctx, void *p, usm_backend_ipc *handle);
usm_status usm__host_ipc_put(void *ctx, usm_backend_ipc *handle);
usm_status usm__host_ipc_open(void *ctx, void *dev, const usm_backend_ipc *handle, void **p);
usm_status usm__host_ipc_close(void *ctx, void *p);
usm_status usm__host_vmem_granularity(void *ctx, void *dev, usm_kind kind, size_t size,
                                      size_t *granularity);
usm_status usm__host_vmem_reserve(void *ctx, usm_kind kind, size_t size, void **p);
usm_status usm__host_vmem_release(void *ctx, void *p, size_t size);
usm_status usm__host_phys_create(void *ctx, void *dev, usm_kind kind, size_t size, void **phys);
usm_status usm__host_phys_destroy(void *ctx, void *phys);
usm_status usm__host_vmem_map(void *ctx, void *p, size_t size, void *phys, size_t offset);
usm_status usm__host_vmem_unmap(void *ctx, void *p, size_t size);

usm_status usm__host_queue_create(void *ctx, void *dev, uint32_t flags, void **q);
void       usm__host_queue_destroy(void *q);
usm_status usm__host_queue_wait(void *q);

usm_status usm__host_copy(void *q, void *dst, const void *src, size_t n, size_t ndeps,
                          void *const *deps, void **ev);
usm_status usm__host_copy_2d(void *q, void *dst, size_t dst_pitch, const void *src,
                             size_t src_pitch, size_t width, size_t height, size_t ndeps,
                             void *const *deps, void **ev);
usm_status usm__host_fill(void *q, void *dst, const void *pattern, size_t pattern_size, size_t size,
                          size_t ndeps, void *const *deps, void **ev);
usm_status usm__host_prefetch(void *q, const void *p, size_t n, size_t ndeps, void *const *deps,
                              void **ev);
usm_status usm__host_advise(void *q, const void *p, size_t n, usm_advice advice, size_t ndeps,
                            void *const *deps, void **ev);
usm_status usm__host_marker(void *q, size_t ndeps, void *const *deps, void **ev);
usm_status usm__host_barrier(void *q, size_t ndeps, void *const *deps, void **ev);

usm_status usm__host_task(void *q, const usm_backend_task *task, size_t ndeps, void *const *deps,
                          void **ev);

usm_status usm__host_event_create_user(void *ctx, void **ev);
usm_status usm__host_event_signal(void *ev, usm_status status);
usm_status usm__host_event_query(void *ev);
usm_status usm__host_event_wait(void *ev);
usm_status usm__host_event_profiling(void *ev, usm_profiling *times);
usm_status usm__host_event_notify(void *ev, usm_backend_notify_fn fn, void *arg);
void       usm__host_event_release(void *ev);

usm_status usm__host_program_build(void *ctx, void *dev, const usm_image *image,
                                   const char *options, char **log, void **program);
void       usm__host_program_destroy(void *program);
usm_status usm__host_program_binary(void *program, void **data, size_t *size);
usm_status usm__host_program_kernels(void *program, char **names);
usm_status usm__host_kernel_create(void *program, const char *name, void **kernel);
void       usm__host_kernel_destroy(void *kernel);
usm_status usm__host_kernel_info(void *kernel, size_t *nargs, usm_arg_kind *kinds, size_t cap);
usm_status usm__host_launch(void *q, void *kernel, const usm_launch *launch, size_t ndeps,
                            void *const *deps, void **ev);

#endif
