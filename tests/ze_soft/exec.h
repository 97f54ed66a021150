/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The execution side of the software driver; what its files share.
 *
 *   object.c   handles: made, checked, destroyed
 *   cell.c     words that threads, and processes, sleep on: the state of events and fences
 *   pool.c     event pools, also those of other processes     event.c   events     fence.c   fences
 *   command.c  commands and the bodies of regular lists     order.c   which command is next
 *   engine.c   the thread behind a queue or an immediate list
 *   list.c     command lists     queue.c   command queues
 *   append.c   synchronisation, timestamps and launches appended to lists     copy.c   copies,
 * fills
 *
 * A command is made at its append with all it needs (references to events, a fill's pattern, a
 * kernel's arguments).  An immediate list gives it to its engine; a regular list keeps it in its
 * body, and a queue's engine is given the body, as often as it is executed.  What is destroyed
 * while commands need it lives on until they are done.
 *
 * Locks, in order: the list of engines, an engine; the list of stores; the free handles.  The last
 * two are leaves; none is held while a command runs. */
#ifndef ZE_SOFT_EXEC_H
#define ZE_SOFT_EXEC_H

#include "soft.h"
#include "tables.h"

/* Flags of API 1.7, which an old loader hands through as well. */
#define EXEC_QUEUE_FLAG_IN_ORDER 0x2u
#define EXEC_LIST_FLAG_IN_ORDER  0x8u
/* Of API 1.6. */
#define EXEC_POOL_FLAG_MAPPED_TIMESTAMP 0x8u

/* --- handles (object.c) --------------------------------------------------------- */

/* Zeroed, of that type; NULL: no memory.  A dead handle stays readable, so that it is recognised.
 */
void *exec_object_new(soft_type type, size_t size);
/* h when it is one of ours and alive, else NULL. */
void *exec_object_of(void *h, soft_type type);
/* Destroyed: the handle is dead from now on; and its memory is no longer needed. */
void exec_object_retire(void *object);
void exec_object_free(void *object);

/* The object of a handle, or the answer of the function that is given a bad one. */
#define EXEC_HANDLE(var, h, type)                                                                  \
    do {                                                                                           \
        if (!(h))                                                                                  \
            return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;                                            \
        (var) = exec_object_of((h), (type));                                                       \
        if (!(var))                                                                                \
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;                                               \
    } while (0)

/* --- cells (cell.c) --------------------------------------------------------------- */

/* What is waited for.  Those of an event pool lie in memory that processes share. */
typedef struct exec_cell {
    _Alignas(64) _Atomic uint32_t word; /* bit 0: signalled; the rest counts nudges          */
    _Atomic uint32_t sleepers;
    _Atomic uint32_t signaller;  /* 1 + index of the device that is to signal it; 0: not known    */
#define EXEC_NOBODY UINT32_MAX   /* whose command was dropped: it waited for a lost device        */
    uint32_t         pending;    /* of a counter: commands that are to signal it (engine.c)    */
    _Atomic uint64_t start, end; /* of the command that signalled it                        */
} exec_cell;

/* Where cells lie; counted. */
typedef struct exec_store {
    _Atomic uint32_t   refs;
    uint32_t           roots;      /* bit n: root device n is one of its                        */
    int                fd;         /* -1: not to be shared                                      */
    bool               is_counter; /* of one counter-based event                            */
    size_t             count;
    exec_cell         *cells;
    struct exec_store *next, **link; /* guarded by the lock of the list of stores             */
} exec_store;

/* A cell held by a reference to its store. */
typedef struct exec_point {
    exec_store *store; /* NULL: nothing to wait for or to signal                           */
    exec_cell  *cell;
} exec_point;

typedef enum exec_wait { EXEC_DONE, EXEC_TIMEOUT, EXEC_LOST } exec_wait;

/* In memory of its own, or in a file when `is_shared`; fd >= 0: of that file, which it owns from
 * then on, with `count` cells.  NULL: no memory. */
exec_store *exec_store_new(size_t count, uint32_t roots, bool is_shared);
exec_store *exec_store_open(int fd, size_t count, uint32_t roots);
exec_store *exec_store_ref(exec_store *store);
void        exec_store_unref(exec_store *store);
/* Everyone asleep on any cell looks again. */
void exec_stores_nudge(void);

bool exec_cell_is_set(const exec_cell *cell);
void exec_cell_set(exec_cell *cell);
void exec_cell_reset(exec_cell *cell);
void exec_cell_times(const exec_cell *cell, ze_kernel_timestamp_result_t *times);
/* Sleeps until it is signalled or can no longer be, or the time is over.  `own`: the device whose
 * engine asks; NULL: the host. */
exec_wait exec_point_wait(const exec_point *p, const soft_device *own, uint64_t deadline);
/* The same in two steps, for who has other things to look at between them: the word, and a sleep
 * that ends when it is another; EXEC_TIMEOUT: look again. */
uint32_t  exec_cell_word(const exec_cell *cell);
exec_wait exec_point_sleep(const exec_point *p, const soft_device *own, uint32_t word,
                           uint64_t deadline);
/* Who sleeps on it looks again. */
void exec_cell_nudge(exec_cell *cell);
/* From a timeout of the API to a time of soft_now_ns(); UINT64_MAX: never. */
uint64_t    exec_deadline(uint64_t timeout_ns);
ze_result_t exec_wait_result(exec_wait wait);

/* --- events and fences (pool.c, event.c, fence.c) ----------------------------------- */

typedef struct exec_pool {
    soft_handle         handle;
    ze_context_handle_t ctx;
    exec_store         *store;
    uint32_t            flags; /* ze_event_pool_flags_t                                    */
    bool                is_counter, is_opened;
    size_t              count;
    _Atomic uint32_t    refs;   /* the handle's own, and one of each event                  */
    _Atomic uint32_t   *in_use; /* events of each index                                     */
} exec_pool;

/* A counter-based event has a cell for each command that it was given to: what was appended earlier
 * keeps waiting for the earlier one. */
typedef struct exec_event {
    soft_handle     handle;
    exec_pool      *pool;
    uint32_t        index;
    uint32_t        signal, wait; /* ze_event_scope_flags_t                                  */
    pthread_mutex_t lock;
    exec_point      point;    /* guarded by lock when the pool is counter-based, else fixed      */
    bool            is_bound; /* a command was given a counter-based one; guarded by lock     */
} exec_event;

void exec_pool_unref(exec_pool *pool);
/* The point as it is now, with a reference; false: no command was given the counter-based event. */
bool exec_event_point(exec_event *ev, exec_point *p);
/* The point that a command being appended is to signal, with a reference; false: no memory. */
bool exec_event_bind(exec_event *ev, exec_point *p);

typedef struct exec_engine exec_engine;
typedef struct exec_queue {
    soft_handle  handle;
    exec_engine *engine;
    soft_device *dev;
    uint32_t     ordinal, index;
    bool         is_synchronous;
} exec_queue;

typedef struct exec_fence {
    soft_handle handle;
    exec_queue *queue;
    exec_point  point;
} exec_fence;

/* --- commands and engines (command.c, order.c, engine.c) ------------------------------- */

typedef struct exec_cmd  exec_cmd;
typedef struct exec_body exec_body;

typedef struct exec_kind {
    const char *name;     /* of the API's function, for messages                            */
    bool        is_fence; /* nothing passes it                                              */
    bool        holds;    /* nothing that comes after passes it                             */
    bool        is_ours;  /* not one of the program's: not counted                        */
    bool (*run)(exec_engine *e, exec_cmd *cmd); /* NULL: nothing to do; false: device lost    */
    void (*fini)(exec_cmd *cmd);                /* NULL: nothing to give back                 */
    /* Whether it touches base[0..size), told by what stays as it is made; NULL: it may, when it has
     * something to do. */
    bool (*uses)(const exec_cmd *cmd, const unsigned char *base, size_t size);
} exec_kind;

typedef struct exec_side {
    unsigned char *p;
    size_t         pitch, slice;
} exec_side;

struct exec_cmd {
    const exec_kind *kind;
    const exec_kind *made_as; /* never changes, so that others may read it while the command runs */
    exec_cmd        *next;
    uint64_t         seq;
    exec_point       signal;
    exec_point      *points; /* `nwaits` to wait for, then `nothers` queried or reset          */
    uint32_t         nwaits, nothers;
    union {
        struct {
            exec_side dst, src;
            size_t    width, height, depth;
        } region;
        struct {
            void          *dst;
            size_t         size, pattern_size;
            unsigned char *pattern;
        } fill;
        struct {
            soft_launch    *one;
            soft_launch   **launches; /* &one, or of the heap                                */
            uint32_t        n;
            const uint32_t *count; /* NULL: n; else read when the command runs               */
            pthread_mutex_t lock;  /* a body may be on two queues                            */
        } launch;
        struct {
            void         *dst;
            const size_t *offsets;
        } stamp;
        exec_body *body;
    } as;
};

/* A command with its points; `extra` more bytes at *tail.  Refuses bad events. */
typedef struct exec_events {
    ze_event_handle_t  signal;
    uint32_t           nwaits;
    ze_event_handle_t *waits;
    uint32_t           nothers;
    ze_event_handle_t *others;
} exec_events;
ze_result_t exec_cmd_new(const exec_kind *kind, const exec_events *events, size_t extra,
                         exec_cmd **cmd, void **tail);
void exec_cmd_free(exec_cmd *cmd); /* all that are linked to it, too; NULL is fine          */
/* Gives back what only its run needs. */
void exec_cmd_fini(exec_cmd *cmd);

/* The commands of a regular list; counted. */
struct exec_body {
    _Atomic uint32_t refs;
    bool             is_in_order;
    size_t           n, cap;
    exec_cmd       **cmds;
};
exec_body  *exec_body_new(bool is_in_order);
exec_body  *exec_body_ref(exec_body *body);
void        exec_body_unref(exec_body *body);
ze_result_t exec_body_add(exec_body *body, exec_cmd *cmd);
/* A command that does them all. */
ze_result_t exec_body_cmd(exec_body *body, const exec_events *events, exec_cmd **cmd);

/* Which of n commands, in the order of their appends, is next: 0 but with ZE_SOFT_REORDER=1.  `rng`
 * is the engine's. */
size_t exec_order_next(exec_cmd *const *cmds, size_t n, uint64_t *rng);
bool   exec_order_is_random(void);
bool   exec_cmd_is_ready(const exec_cmd *cmd);

exec_engine *exec_engine_new(soft_device *dev, bool is_in_order);
/* Waits for commands at work; those that wait for events are done in the background. */
void exec_engine_close(exec_engine *e);
/* Takes cmd and all linked to it; on failure they are freed. */
ze_result_t  exec_engine_submit(exec_engine *e, exec_cmd *cmd);
ze_result_t  exec_engine_wait(exec_engine *e, uint64_t timeout_ns);
soft_device *exec_engine_device(const exec_engine *e);
/* A command goes on for at least as long as `bytes` take at ZE_SOFT_COPY_MBS. */
void exec_throttle(uint64_t start, size_t bytes);
/* soft_view() that ends the process, with the command's name, where a GPU would fault. */
void *exec_view(const exec_cmd *cmd, const void *p, size_t n);

/* --- lists (list.c) --------------------------------------------------------------------- */

typedef struct exec_list {
    soft_handle         handle;
    ze_context_handle_t ctx;
    soft_device        *dev;
    uint32_t            ordinal, index, flags;
    bool                is_synchronous, is_closed;
    exec_engine        *engine; /* of an immediate list                                     */
    exec_body          *body;   /* of a regular one                                         */
} exec_list;

/* Before an append: the list, when it takes commands; a lenient closed list drops them. */
ze_result_t exec_list_open(ze_command_list_handle_t h, exec_list **list);
/* Takes cmd and what is linked to it: runs it, or keeps it for later. */
ze_result_t exec_list_append(exec_list *list, exec_cmd *cmd);
/* The command queue group, or an error for an ordinal or index that the device lacks. */
ze_result_t exec_check_group(soft_device *dev, uint32_t ordinal, uint32_t index,
                             ze_command_queue_group_properties_t *group);

ze_result_t exec_check_queue_desc(soft_device *dev, const ze_command_queue_desc_t *desc);

/* Their fields of the table of command lists. */
void exec_append_fields(ze_api_version_t version, ze_command_list_dditable_t *table);
void exec_copy_fields(ze_api_version_t version, ze_command_list_dditable_t *table);

/* The bodies of closed regular lists as linked commands, for engines of `dev`. */
ze_result_t exec_lists_cmds(const soft_device *dev, const uint32_t *ordinal, uint32_t n,
                            ze_command_list_handle_t *lists, const exec_events *events,
                            exec_cmd **cmds);

#endif
