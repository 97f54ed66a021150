/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the files of src/async.
 *
 * A queue may reuse a block at once after it freed it; everybody else only when the queue has
 * reached the free.  Therefore a block that is freed in queue order does not return to its pool,
 * but enters a list:
 *
 *     usm_queue.async -> queue --- list --- list        one for each pool it frees blocks of
 *                          |         |
 *     usm_pool.async  -> pool  --- list --- list        the lists of all queues
 *
 * A list has a bin for each size class.  A block in it has the position of its free: how many
 * commands of the queue had been submitted.  Once the queue's first n commands are known to have
 * ended (queue->reached), every block with a position up to n is free for everybody.  That is
 * learnt where the program waits for the queue anyway, or from an event behind some position.  Such
 * an event is recorded when another queue needs blocks (reuse.c) or the queue is not used for a
 * while (idle.c).  One event serves any number of frees, and only the newest is kept.
 *
 * For its pool a block in a list is handed out, like one in a thread's magazine, but in the state
 * USM_BLOCK_FREE: every check and query finds it freed.
 *
 * Locks: a list's is a word that is held for some instructions, and never while another lock is
 * taken.  A pool's lock guards which lists there are, a queue's the event.  No driver is called
 * with any of them. */
#ifndef USM_ASYNC_INTERNAL_H
#define USM_ASYNC_INTERNAL_H

#include "async/async.h"
#include "base/inline/atomic.h"
#include "base/inline/classes.h"
#include "base/inline/list.h"
#include "command/queue.h"
#include "heap/pool.h"

/* Bins for blocks up to 2^47 bytes. */
#define USM__ASYNC_BINS  320
#define USM__ASYNC_WORDS (USM__ASYNC_BINS / 64)

typedef struct usm__async_block {
    struct usm__async_block *next;
    void                    *p;
    _Atomic(uint8_t)        *state;
    size_t                   size;
    uint64_t                 position;
    uint8_t                  was;     /* the state it had: its pool expects that again */
    bool                     is_seen; /* tracked or open elsewhere: not reused         */
} usm__async_block;

typedef struct usm__async_list {
    /* fixed after create */
    struct usm__async_queue *queue;
    struct usm__async_pool  *pool;
    usm_kind                 kind;
    bool                     is_plain; /* a block of a class can be handed out as it is       */
    usm_list                 of_pool;  /* guarded by the pool's lock                          */
    usm_list                 of_queue; /* guarded by the queue's lock                         */
    atomic_flag              lock;
    /* guarded by lock */
    usm__async_block *bin[USM__ASYNC_BINS]; /* the newest first                               */
    uint64_t          used[USM__ASYNC_WORDS];
    usm__async_block *seen; /* blocks of is_seen, in no bin                                   */
    usm__async_block *spare;
    struct usm__async_chunk *chunks; /* the memory of the spares                          */
    _Atomic(size_t)          blocks; /* written with the lock held, like bytes and reuses */
    _Atomic(uint64_t)        bytes, reuses;
    uint64_t                 moves; /* number of blocks put in and taken out                */
    /* atomic */
    _Atomic(uint32_t) refs;
    _Atomic(bool)     is_watched; /* idle.c looks at it; cleared with the lock held      */
    _Atomic(uint32_t) draining;   /* threads that are returning blocks of it             */
    _Atomic(bool)     is_armed;   /* an event is armed whose completion drains all of it */
    /* used by idle.c */
    usm_list watched;
    uint64_t seen_moves;
} usm__async_list;

typedef struct usm__async_queue {
    usm_queue                 *q;
    _Atomic(uint32_t)          refs;    /* the queue's, and its lists'  */
    bool                       is_over; /* q has ended; guarded by lock */
    unsigned                   fork_generation;
    _Atomic(usm__async_list *) by_kind[4]; /* of the default pools, for the hit path    */
    usm_list                   lists;      /* usm__async_list.of_queue; guarded by lock */
    usm__mutex                 lock;
    _Atomic(uint64_t)          reached; /* number of commands known to have ended            */
    /* guarded by lock: an event behind `marked` commands; NULL: no useful one */
    struct usm__async_event *event;
} usm__async_queue;

typedef struct usm__async_pool {
    usm_pool         *pool; /* valid while a list has blocks of it                        */
    _Atomic(uint32_t) refs; /* the pool's, and its lists'                                 */
    unsigned          fork_generation;
    usm_list          lists; /* usm__async_list.of_pool; guarded by lock                    */
    usm__mutex        lock;
    _Atomic(uint64_t) reuses; /* of lists that were freed                                   */
    _Atomic(uint64_t) events, waits, host_waits;
    /* guarded by lock: blocks that will be freed later, without a list */
    uint64_t       later, later_bytes;
    pthread_cond_t changed; /* lists or such blocks have become fewer                    */
} usm__async_pool;

/* Of the process. */
typedef struct usm__async_state {
    /* Grows with every fork: blocks that a queue of the parent freed are not for its child. */
    _Atomic(unsigned) generation;
    /* idle.c */
    usm__mutex lock;
    /* guarded by lock */
    pthread_cond_t    wake;
    usm_list          lists; /* usm__async_list.watched, with a reference each               */
    bool              has_thread, is_posted;
    usm__executor_job job;
} usm__async_state;
extern usm__async_state usm__async_now __attribute__((visibility("hidden")));

/* An event behind some commands of a queue; counted. */
typedef struct usm__async_event {
    usm_context      *ctx; /* counted */
    void             *native;
    uint64_t          position;
    _Atomic(uint32_t) refs;
} usm__async_event;

/* ---- list.c: lists and their bins ------------------------------------------------- */

void usm__async_lock_slow(usm__async_list *l);

static inline void usm__async_lock(usm__async_list *l)
{
    if (__builtin_expect(atomic_flag_test_and_set_explicit(&l->lock, memory_order_acquire), 0))
        usm__async_lock_slow(l);
}

static inline void usm__async_unlock(usm__async_list *l)
{
    atomic_flag_clear_explicit(&l->lock, memory_order_release);
}

/* The bin of a block: that of the largest class that fits in it. */
static inline unsigned usm__async_bin_of(size_t size)
{
    return usm_class_of(size + 1) - 1;
}

/* Lock held: no other thread writes. */
static inline void usm__async_count(usm__async_list *l, size_t blocks, uint64_t bytes)
{
    usm_store_relaxed(&l->blocks, usm_load_relaxed(&l->blocks) + blocks);
    usm_store_relaxed(&l->bytes, usm_load_relaxed(&l->bytes) + bytes);
    l->moves++;
}

/* pre: lock held, the bin is not empty. */
static inline void *usm__async_pop(usm__async_list *l, unsigned k)
{
    usm__async_block *b = l->bin[k];

    l->bin[k] = b->next;
    if (!b->next)
        l->used[k / 64] &= ~((uint64_t)1 << (k % 64));
    b->next  = l->spare;
    l->spare = b;
    usm__async_count(l, (size_t)-1, (uint64_t)0 - b->size);
    usm_store_relaxed(b->state, (uint8_t)USM_BLOCK_LIVE);
    return b->p;
}

/* pre: lock held, there is a spare. */
static inline void usm__async_push(usm__async_list *l, const usm__async_block *what)
{
    unsigned          k = usm__async_bin_of(what->size);
    usm__async_block *b = l->spare;

    l->spare = b->next;
    *b       = *what;
    if (__builtin_expect(b->is_seen, 0)) {
        b->next = l->seen;
        l->seen = b;
    } else {
        b->next   = l->bin[k];
        l->bin[k] = b;
        l->used[k / 64] |= (uint64_t)1 << (k % 64);
    }
    usm__async_count(l, 1, b->size);
}

/* Allocates more spares, without the lock; USM_E_NO_MEMORY. */
usm_status usm__async_spare(usm__async_list *l);
/* How much larger than requested a block may be, in bins: eight are a doubling. */
#define USM__ASYNC_CLOSE 2
#define USM__ASYNC_LOOSE 8
/* Takes a block for `size` bytes whose position is at most `position`; NULL: none.  Its state is
 * LIVE. */
void *usm__async_reuse_from(usm__async_list *l, size_t size, unsigned above, uint64_t position);
/* Lock held.  The least position of a block that _reuse_from would return; UINT64_MAX: none. */
uint64_t usm__async_peek(const usm__async_list *l, size_t size, unsigned above);
/* Lock held.  Takes out all blocks with a position up to `position`: a chain, whose nodes are
 * returned with _put_spares. */
usm__async_block *usm__async_take(usm__async_list *l, uint64_t position);
void              usm__async_put_spares(usm__async_list *l, usm__async_block *chain);
/* Lock held.  The highest position of its blocks; 0: none. */
uint64_t usm__async_last(const usm__async_list *l);

/* NULL with an error message, these three. */
usm__async_queue *usm__async_queue_of(usm_queue *q);
usm__async_pool  *usm__async_pool_of(usm_pool *pool);
usm__async_list  *usm__async_list_of(usm_queue *q, usm_pool *pool);
/* NULL: there is none that this process may use. */
usm__async_queue *usm__async_queue_there(usm_queue *q);
usm__async_pool  *usm__async_pool_there(usm_pool *pool);
void              usm__async_list_ref(usm__async_list *l);
void              usm__async_list_unref(usm__async_list *l);
/* Takes a reference to the list's queue, to be released by usm__queue_unref(); false: it has
 * ended. */
bool usm__async_hold_queue(usm__async_queue *aq);
/* The queue or pool ends: its lists, which are empty, leave the other side's. */
void usm__async_queue_end(usm__async_queue *aq);
void usm__async_pool_end(usm__async_pool *ap);

/* Lists with blocks in them, each with a reference: those of a pool, with a reference to their
 * queues as well; or those of a queue, which the caller keeps.  At most USM__ASYNC_LOOK. */
#define USM__ASYNC_LOOK 32
typedef struct usm__async_some {
    size_t           n;
    usm__async_list *list[USM__ASYNC_LOOK];
} usm__async_some;
void usm__async_of_pool(usm__async_pool *ap, usm__async_some *some);
void usm__async_of_queue(usm__async_queue *aq, usm__async_some *some);
void usm__async_pool_release(usm__async_some *some);
void usm__async_queue_release(usm__async_some *some);

/* ---- event.c: the progress of a queue ---------------------------------------------- */

void usm__async_reach(usm__async_queue *aq, uint64_t position);
/* How many commands have ended, as far as that is known without a wait. */
uint64_t usm__async_reached(usm__async_queue *aq);
/* The same for a caller that needs the blocks in the list: unless an event is under way, one is
 * recorded behind its last block, so that the next call finds more. */
uint64_t usm__async_see(usm__async_list *l);
/* An event behind at least `position` commands, with a reference for the caller.  NULL with an
 * error message. */
usm__async_event *usm__async_event_behind(usm__async_queue *aq, usm__async_pool *ap,
                                          uint64_t position);
void              usm__async_event_release(usm__async_event *ev);

/* ---- drain.c: returning blocks to pools ---------------------------------------------- */

/* Returns blocks with a position up to `position` to their pool, through the calling thread's cache
 * if it has one and `is_users` (it is a thread of the program); returns how many bytes. */
size_t usm__async_drain(usm__async_list *l, uint64_t position, bool is_users);
/* Returns to the pool the blocks that all queues have freed and reached; or all blocks, and the
 * host waits, for USM_QUEUE_WAIT or without a limit.  Returns how many bytes. */
typedef enum usm__async_wait {
    USM__ASYNC_LOOK_ONLY = 0,
    USM__ASYNC_WAIT      = 1,
    USM__ASYNC_FOR_EVER  = 2
} usm__async_wait;
size_t usm__async_collect(usm__async_pool *ap, usm__async_wait wait);
/* Frees the block once `ev` is complete; consumes a reference to `ev`.  The block's state, if it
 * has one, is FREE until then.  Cannot fail. */
void usm__async_free_later(usm__async_pool *ap, const usm__async_block *b, usm_event *ev);

/* ---- idle.c: queues that are not used for a while -------------------------------------- */

/* Makes sure that the list's blocks return to the pool some time.  Called without its lock. */
void usm__async_watch(usm__async_list *l);
void usm__async_idle_fork(usm_fork_phase phase);

/* ---- reuse.c: blocks of other queues ------------------------------------------------- */

/* A block of `size` bytes for l's queue, as the policies allow; NULL: none. */
void *usm__async_reuse(usm__async_list *l, size_t size);
/* The same, with a wait inserted into l's queue. */
void *usm__async_wait_for(usm__async_list *l, size_t size);

#endif
