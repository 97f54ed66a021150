/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Thread caches: each thread's magazines of each pool `slab` (magazines: Bonwick and Adams
 * 2001).
 *
 *     usm__magazine_self.caches --> table --[slot]--> bins of this thread and pool
 *                                                  --[class]--> loaded magazine
 *
 * The two inline functions are the whole fast path of an allocation and of a free: no lock, no
 * atomic read-modify-write, no counter.  Nor does the fast path check whether the cache may be
 * used.  Where it may not (the pool is destroyed, the process is a forked child, the thread's
 * allocations are tracked), the table entry points to usm__closed.bins.  These bins are empty and
 * full at the same time, so every allocation and free takes the slow path.  A thread that only a
 * trace observes finds them too, and then its own bins by `traced`: observe/traced.c records what
 * hits there.
 *
 * Taking a cache away.  The owner uses its cache without a lock.  Another thread (the taker) may
 * have to take it, for example to destroy the pool.  The owner announces what it is using: `busy`
 * is the slot of the fast path it is in, `entered` that of the slow path.  The taker closes the
 * slot in the owner's table, calls membarrier(), and then reads `busy` and `entered`.  If neither
 * is this slot, the owner is not using the cache, and the next time it will find the slot closed.
 * The owner pays for this with two plain stores:
 *
 *     owner    busy = slot           taker    table[slot] = closed
 *              (compiler fence)               membarrier
 *              read table[slot]               read busy
 *
 * Why at least one of the two sees the other's store: membarrier() is a full fence in every thread
 * of the process.  In the owner it takes effect either before the read of the table, which then
 * finds the slot closed, or after the store to `busy`, which the taker then finds.  The owner's
 * store that resets `busy` is a release, and the taker's read an acquire, so the taker also sees
 * what the owner did to the cache.
 *
 * A plain load suffices for what only the owner writes (usm__magazine_own()): a taker writes it
 * after it has seen the owner outside, by the pair of release and acquire above.
 *
 * What a hit costs: instructions of usm_pool_malloc() and usm_pool_free() for 64 bytes, beside
 * malloc() and free() of gperftools' tcmalloc 2.10 (gcc 12, x86-64, by objdump).
 *
 *   allocation                     libusm tcmalloc   free                      libusm tcmalloc
 *   the pool or hooks, the thread       4        7   hooks, the thread              1        7
 *   the size class                      5        6   from the page to its span     14       11
 *   announce the slot, and its end      2        -   is it of this pool?            2        -
 *   the bin                             4        6   does a live block start?      10        -
 *   is it empty?                        3        3   announce, and its end          2        -
 *   take the block                      4        3   the bin; is it full?           7        5
 *   its state                           2        -   put the block                  4        3
 *   counters                            -        6   its state                      1        -
 *   return                              1        1   counters                       -        8
 *                                                    return                         1        1
 *                                      25       32                                 42       35
 *
 * Reentrancy.  A function called on the slow path may allocate again, for example a callback for a
 * driver's error.  It finds the thread inside (`entered`) and works without caches.  A signal
 * handler must not use this code.
 *
 * Double free.  Two threads that free one block at the same moment may both succeed, because the
 * fast path has no atomic read-modify-write.  libusm's structures stay intact, but the block can
 * be allocated twice.  A second free that comes after the first is always rejected.
 *
 * Here: attaching, closing and taking caches, the end of threads, fork.  Not here: the content of
 * magazines and where it comes from (slab_cache.c). */
#ifndef USM_HEAP_MAGAZINE_H
#define USM_HEAP_MAGAZINE_H

#include "base/inline/atomic.h"
#include "base/inline/classes.h"
#include "base/thread.h"
#include "heap/pages.h"
#include "heap/pool.h"

/* The number of pools that can have thread caches at the same time, plus slot 0 (none). */
#define USM__SLOTS 256

/* The caches of a thread by pool slot.  Made with its first cache; the next thread's afterwards. */
typedef struct usm__magazine_table {
    _Atomic(usm_bin *)          bins[USM__SLOTS];
    usm_list                    caches;    /* guarded by the lock in magazine.c */
    struct usm__magazine_table *next_free; /* likewise                          */
} usm__magazine_table;

/* A thread's: the current bins by slot; its table; the slots of the caches in use at this moment,
 * on the fast path and on the slow path. */
typedef struct usm__magazine_thread {
    _Atomic(usm_bin *)  *caches;
    _Atomic(usm_bin *)  *traced; /* the same while only a trace observes the thread, else NULL:
                                    what misses goes to the observer first */
    usm__magazine_table *table;  /* NULL until first needed                                    */
    _Atomic(uint32_t)    busy, entered;
} usm__magazine_thread;
extern USM__THREAD_LOCAL usm__magazine_thread usm__magazine_self;

/* The bins of a thread without caches, or that must not use them now: every slot points to bins
 * that are empty and full at the same time, so that every allocation and free takes the slow path.
 * */
typedef struct usm__magazine_closed {
    usm_bin            bins[USM_BINS];
    _Atomic(usm_bin *) caches[USM__SLOTS]; /* `bins`, each */
} usm__magazine_closed;
extern const usm__magazine_closed usm__closed __attribute__((visibility("hidden")));

/* Keeps the compiler from moving code across; the hardware's part is membarrier's. */
#define USM__MAGAZINE_FENCE() atomic_signal_fence(memory_order_seq_cst)

static inline void usm__magazine_busy(uint32_t slot)
{
    usm_store_relaxed(&usm__magazine_self.busy, slot);
    USM__MAGAZINE_FENCE();
}

static inline void usm__magazine_idle(void)
{
    usm_store_release(&usm__magazine_self.busy, (uint32_t)0); /* pairs with is_in() in magazine.c */
}

/* Reads a pointer of a bin that only the calling thread writes now: a plain load, which the
 * compiler may make part of a comparison. */
static inline usm_slot *usm__magazine_own(const _Atomic(usm_slot *) *at)
{
    return *(usm_slot *const *)(uintptr_t)at;
}

/* Returns a block for `size` bytes from the calling thread's magazine; NULL: take the slow path.
 * caches: a member of usm__magazine_self, read after the thread has announced the slot. */
static inline void *usm__magazine_pop_of(_Atomic(usm_bin *) *const *caches, unsigned slot,
                                         size_t size)
{
    unsigned  k = usm_class_of(size);
    usm_bin  *bin;
    usm_slot *top;
    void     *p;

    if (__builtin_expect(k >= USM_BINS, 0))
        return NULL;
    usm__magazine_busy(slot);
    bin = usm_load_relaxed(&(*caches)[slot]) + k;
    top = usm__magazine_own(&bin->top);
    if (__builtin_expect(top == usm__magazine_own(&bin->bottom), 0)) {
        usm__magazine_idle();
        return NULL;
    }
    top--;
    p = top->p;
    usm_store_relaxed(top->state, (uint8_t)USM_BLOCK_LIVE);
    usm_store_relaxed(&bin->top, top);
    usm__magazine_idle();
    if (!p) /* no block is at address 0: this saves the caller a test */
        __builtin_unreachable();
    return p;
}

static inline void *usm__magazine_pop(unsigned slot, size_t size)
{
    return usm__magazine_pop_of(&usm__magazine_self.caches, slot, size);
}

/* The state of the block that starts at p.  NULL or a state FREE: no live block starts there. */
static inline _Atomic(uint8_t) *usm__magazine_state(const usm_span *span, const void *p)
{
    return usm_span_state_at(span, (uintptr_t)p - span->base);
}

/* Frees p, of that span, into the calling thread's magazine; false: take the slow path, which finds
 * out why.  caches: as above. */
static inline bool usm__magazine_push_of(_Atomic(usm_bin *) *const *caches, const usm_span *span,
                                         void *p)
{
    _Atomic(uint8_t) *state =
        __builtin_expect(span != NULL, 1) ? usm__magazine_state(span, p) : NULL;
    unsigned  slot;
    usm_bin  *bin;
    usm_slot *top;

    if (__builtin_expect(state == NULL, 0))
        return false;
    slot = span->slot;
    usm__magazine_busy(slot);
    bin = (usm_bin *)((uintptr_t)usm_load_relaxed(&(*caches)[slot]) + span->bin_at);
    top = usm__magazine_own(&bin->top);
    if (__builtin_expect(top == usm__magazine_own(&bin->limit) ||
                             usm_load_relaxed(state) != USM_BLOCK_LIVE,
                         0)) {
        usm__magazine_idle();
        return false;
    }
    usm_store_relaxed(state, (uint8_t)USM_BLOCK_FREE);
    top->p     = p;
    top->state = state;
    usm_store_relaxed(&bin->top, top + 1);
    usm__magazine_idle();
    return true;
}

static inline bool usm__magazine_push(const usm_span *span, void *p)
{
    return usm__magazine_push_of(&usm__magazine_self.caches, span, p);
}

/* True if the calling thread has a cache of that slot that the fast path may use: nothing observes
 * its blocks, and their pool works. */
static inline bool usm__magazine_is_open(unsigned slot)
{
    return usm_load_relaxed(&usm__magazine_self.caches[slot]) != usm__closed.bins;
}

/* ---- the slow path ------------------------------------------------------------------ */

/* Called when the library starts. */
void usm__magazine_start(void);
void usm__magazine_thread_ended(void);
void usm__magazine_fork(usm_fork_phase phase);

/* A slot for a new pool; 0 if all are taken (the pool then works without caches). */
uint8_t usm__magazine_slot(usm_pool *pool);
/* The pool has ended: no page has a span with its slot any more. */
void usm__magazine_slot_give(usm_pool *pool);
/* The pool is being destroyed: from here on no thread uses its caches, or gets new ones.  The
 * content of the caches is dropped without a flush.  Late frees take the slow path. */
void usm__magazine_retire(usm_pool *pool);

/* Empties all caches of the pool; from here on no thread gets one, so that every allocation takes the
 * slow path.  False: a thread does not leave its cache; nothing has changed then. */
bool usm__magazine_pause(usm_pool *pool);
void usm__magazine_resume(usm_pool *pool);

/* Returns the calling thread's cache, which is made if there is none; the thread is inside until
 * _leave().  NULL: there is no memory for one, or the thread is already inside (there is then
 * nothing to leave). */
usm_cache *usm__magazine_enter(usm_pool *pool);
/* The same, but NULL if the thread has none. */
usm_cache         *usm__magazine_enter_own(const usm_pool *pool);
static inline void usm__magazine_leave(void)
{
    usm_store_release(&usm__magazine_self.entered,
                      (uint32_t)0); /* pairs with is_in() in magazine.c */
}

/* Called when memory is short: the caches of all threads return their blocks to the pool, unless
 * their owners are using them.  True if any cache did, because of this call or of another
 * thread's. */
bool usm__magazine_reclaim(usm_pool *pool);

/* Called when the calling thread is refused room for its magazines: the cache that has the most
 * room, if that is more than twice the thread's own, returns its blocks and its room.  Its thread
 * starts again with small magazines. */
void usm__magazine_rob(usm_pool *pool);

/* Closes and reopens the calling thread's caches (for tags); calls nest. */
void usm__magazine_close_self(void);
void usm__magazine_open_self(void);

/* The content of the threads' magazines of the pool. */
typedef struct usm__magazine_sum {
    uint64_t threads, blocks, bytes;
} usm__magazine_sum;
void usm__magazine_sum_up(usm_pool *pool, usm__magazine_sum *sum);
/* By class: adds to blocks[k] the number of blocks of each class k. */
void usm__magazine_count(usm_pool *pool, uint64_t blocks[USM_BINS]);

#endif
