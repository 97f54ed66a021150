/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The slow half of thread caches; magazine.h has the picture.
 *
 * A cache is in two lists, its pool's and its thread's, and in one entry of its thread's table.
 * All three change under `lock`.  A thread that has removed a cache from all three owns it, and may
 * empty it without the lock.  Meanwhile `flushing` of the pool is incremented, so that the pool
 * waits for that thread.
 *
 * When a thread ends, its caches wait in their pools for the next thread (LEFT_MOST of a pool; those
 * beyond return their blocks).  It finds magazines that are grown and filled, so threads that come
 * and go exchange no blocks with slabs.  A cache without a thread counts in the pool's budget, and
 * whoever needs room or memory takes it first.
 *
 * In a forked child the caches of the other threads have no owner.  They stay in their pool's list,
 * without a thread, until they are reclaimed.  A thread may have been in the middle of an operation
 * on its cache.  At worst some blocks are lost, or one is in a magazine although it was also
 * allocated, to a thread that does not exist in the child. */
#include "heap/magazine.h"

#include "base/fork.h"
#include "base/inline/list.h"
#include "base/meta.h"
#include "base/os.h"
#include "device/observer.h"
#include "heap/slab.h"

#include <string.h>

/* An operation on the fast path takes a few nanoseconds, unless its thread is preempted in the
 * middle, and nothing signals its end then.  The taker polls SPINS times for each cache, and sleeps
 * NAPS times at most for all owners together. */
#define SPINS  2000
#define NAPS   2000
#define NAP_NS 50000

/* Caches of ended threads that a pool keeps for the next threads. */
#define LEFT_MOST 8u

#define NO_CACHE ((uint32_t)USM__SLOTS) /* in `entered`: a slow path without a cache */

typedef struct node {
    usm_cache cache; /* first: the table points to its bins */
    usm_pool *pool;
    usm__magazine_table
        *table; /* of its thread; NULL: that has ended, or is in the parent process */
    const usm__magazine_thread *thread;
    usm_list                    of_pool, of_thread;
    bool is_left; /* its thread has ended; before all others of its pool, for the next thread */
} node;

static usm__meta_type node_type = USM__META_TYPE(node, 0, "thread caches");

static struct {
    usm__mutex           lock;
    pthread_cond_t       flushed;
    usm_pool            *pools[USM__SLOTS]; /* guarded by lock                    */
    usm__magazine_table *free_tables;       /* guarded by lock: of threads that have ended */
    bool                 can_take;          /* membarrier works; set at the start */
} mag = {.lock    = USM__MUTEX_INIT(USM__RANK_MAGAZINE, "thread caches"),
         .flushed = PTHREAD_COND_INITIALIZER};

/* Constants behind pointers to what is otherwise written: nothing is ever put into closed bins. */
#define CLOSED_BINS   ((usm_bin *)(uintptr_t)usm__closed.bins)
#define CLOSED_CACHES ((_Atomic(usm_bin *) *)(uintptr_t)usm__closed.caches)

static node *node_of(usm_bin *bins)
{
    return (node *)(void *)bins;
}

/* ---- slots --------------------------------------------------------------------- */

uint8_t usm__magazine_slot(usm_pool *pool)
{
    uint8_t slot = 0;

    usm__mutex_lock(&mag.lock);
    for (unsigned i = 1; i < USM__SLOTS && !slot; i++)
        if (!mag.pools[i]) {
            mag.pools[i] = pool;
            slot         = (uint8_t)i;
        }
    usm__mutex_unlock(&mag.lock);
    return slot;
}

void usm__magazine_slot_give(usm_pool *pool)
{
    usm__mutex_lock(&mag.lock);
    if (pool->slot)
        mag.pools[pool->slot] = NULL;
    usm__mutex_unlock(&mag.lock);
}

/* ---- taking caches ---------------------------------------------------------------- */

static void close_slot(const node *n)
{
    if (n->table) /* NOLINT(clang-analyzer-core.uninitialized.Branch): whole before it is listed */
        usm_store_relaxed(&n->table->bins[n->pool->slot], CLOSED_BINS);
}

static void open_slot(node *n)
{
    if (n->table)
        usm_store_relaxed(&n->table->bins[n->pool->slot], n->cache.bins);
}

/* True if the owner is using the cache.  When it is not, its changes are visible (acquire, pairs
 * with usm__magazine_idle and _leave). */
static bool is_in(const _Atomic(uint32_t) *where, const node *n)
{
    return n->table && usm_load_acquire(where) == n->pool->slot;
}

/* Called when the slot is closed and membarrier() has made that visible: has the owner left it?  An
 * owner on the slow path may stay there as long as a driver call takes, so it is not waited for. */
static bool is_outside(const node *n, unsigned *naps)
{
    for (int i = 0; i < SPINS; i++) {
        if (!is_in(&n->thread->busy, n) && !is_in(&n->thread->entered, n))
            return true;
        usm_cpu_relax();
    }
    for (; is_in(&n->thread->busy, n) && *naps > 0; --*naps)
        usm__os_sleep_ns(NAP_NS);
    return !is_in(&n->thread->busy, n) && !is_in(&n->thread->entered, n);
}

/* pre: lock is held, the slot is closed. */
static void unlist(node *n)
{
    usm_list_remove(&n->of_pool);
    usm_list_remove(&n->of_thread);
    n->pool->left -= n->is_left;
    n->is_left = false;
}

/* Without membarrier a thread can only take its own caches, and those of a pool that no thread may
 * be using. */
static bool may_take(const node *n)
{
    return mag.can_take || !n->table || n->table == usm__magazine_self.table || n->pool->is_retired;
}

/* Moves the caches of a pool whose owners are not using them to `to`; `only`: no other cache than
 * that, unless it is NULL.  pre: lock is held. */
static void take_away(usm_pool *pool, const node *only, usm_list *to)
{
    unsigned naps = NAPS;

    USM_LIST_FOREACH (it, &pool->caches) {
        node *n = usm_container_of(it, node, of_pool);

        if (may_take(n) && (!only || n == only))
            close_slot(n);
    }
    if (mag.can_take)
        usm__os_membarrier();
    USM_LIST_FOREACH_SAFE (it, next, &pool->caches) {
        node *n = usm_container_of(it, node, of_pool);

        if (!may_take(n) || (only && n != only))
            continue;
        if (is_outside(n, &naps)) {
            unlist(n);
            usm_list_append(to, &n->of_pool);
        } else {
            open_slot(n);
        }
    }
}

/* In a forked child, memory of most drivers belongs to the parent. */
static bool works_here(const usm_pool *pool)
{
    return !usm__context_is_inert(pool->ctx) ||
           usm__backend_can(pool->ctx->be, USM_CAP_FORK_MEMORY);
}

/* Empties caches that no other thread can reach.  No lock is held.  Code called meanwhile gets no
 * cache: a cache made on a thread that ends would never be flushed. */
static void flush_all(usm_list *list)
{
    bool      is_outermost = usm_load_relaxed(&usm__magazine_self.entered) == 0;
    usm_list *it;

    if (is_outermost)
        usm_store_release(&usm__magazine_self.entered, NO_CACHE);
    while ((it = usm_list_pop(list))) {
        node *n = usm_container_of(it, node, of_pool);

        if (works_here(n->pool))
            slab_cache_flush(n->pool->impl, &n->cache);
        else
            slab_cache_drop(n->pool->impl, &n->cache);
        usm__mutex_lock(&mag.lock);
        if (--n->pool->flushing == 0)
            pthread_cond_broadcast(&mag.flushed);
        usm__mutex_unlock(&mag.lock);
        usm__meta_free(&node_type, n);
    }
    if (is_outermost)
        usm_store_release(&usm__magazine_self.entered, (uint32_t)0);
}

/* pre: lock is held. */
static void count_flushing(const usm_list *list)
{
    USM_LIST_FOREACH (it, list)
        usm_container_of(it, node, of_pool)->pool->flushing++;
}

/* Waits until no thread is emptying caches of the pool.  pre: lock is held. */
static void wait_flushed(const usm_pool *pool)
{
    while (pool->flushing > 0)
        (void)usm__mutex_wait(&mag.lock, &mag.flushed, NULL);
}

bool usm__magazine_reclaim(usm_pool *pool)
{
    usm_list list;
    bool     any;

    if (!pool->slot)
        return false;
    usm_list_init(&list);
    usm__mutex_lock(&mag.lock);
    any = pool->flushing > 0;
    if (any &&
        usm_load_relaxed(&usm__magazine_self.entered) == 0) /* otherwise this thread may be the one
                                                             that is flushing */
        wait_flushed(pool);
    take_away(pool, NULL, &list);
    count_flushing(&list);
    usm__mutex_unlock(&mag.lock);
    any |= !usm_list_is_empty(&list);
    flush_all(&list);
    return any;
}

/* A cache without a thread, otherwise the one with the most room that has more than twice the
 * calling thread's; NULL: none.  pre: lock is held. */
static const node *find_victim(const usm_pool *pool)
{
    const node *most = NULL;
    uint64_t    mine = 0;

    USM_LIST_FOREACH (it, &pool->caches) {
        const node *n = usm_container_of(it, node, of_pool);

        if (n->is_left)
            return n;
        if (n->table == usm__magazine_self.table)
            mine = usm_load_relaxed(&n->cache.bytes);
        else if (!most || usm_load_relaxed(&n->cache.bytes) > usm_load_relaxed(&most->cache.bytes))
            most = n;
    }
    return most && usm_load_relaxed(&most->cache.bytes) / 2 > mine ? most : NULL;
}

void usm__magazine_rob(usm_pool *pool)
{
    usm_list    list;
    const node *victim;

    usm_list_init(&list);
    usm__mutex_lock(&mag.lock);
    victim = find_victim(pool);
    if (victim)
        take_away(pool, victim, &list);
    count_flushing(&list);
    usm__mutex_unlock(&mag.lock);
    flush_all(&list);
}

/* A thread that is still inside is using a pool that is being destroyed, which is a misuse.  From
 * here on only that thread can reach its cache, so the cache is left as it is.  pre: lock is
 * held. */
static void abandon(usm_pool *pool)
{
    USM_LIST_FOREACH_SAFE (it, next, &pool->caches) {
        node *n = usm_container_of(it, node, of_pool);

        close_slot(n);
        unlist(n);
    }
}

void usm__magazine_retire(usm_pool *pool)
{
    usm_list  list;
    usm_list *it;

    if (!pool->slot)
        return;
    usm_list_init(&list);
    usm__mutex_lock(&mag.lock);
    usm_store_relaxed(&pool->alloc_slot, (uint8_t)0);
    pool->is_retired = true;
    take_away(pool, NULL, &list);
    abandon(pool);
    wait_flushed(pool);
    usm__mutex_unlock(&mag.lock);
    while ((it = usm_list_pop(&list))) {
        node *n = usm_container_of(it, node, of_pool);

        slab_cache_drop(pool->impl, &n->cache);
        usm__meta_free(&node_type, n);
    }
}

static bool has_caches(usm_pool *pool, bool is_paused)
{
    bool has;

    usm__mutex_lock(&mag.lock);
    pool->is_paused = is_paused;
    has             = !usm_list_is_empty(&pool->caches);
    usm__mutex_unlock(&mag.lock);
    return has;
}

/* An owner leaves its cache after a driver's call at the latest. */
bool usm__magazine_pause(usm_pool *pool)
{
    for (unsigned naps = NAPS; has_caches(pool, true); naps--) {
        (void)usm__magazine_reclaim(pool);
        if (naps == 0) {
            usm__magazine_resume(pool);
            return false;
        }
        if (has_caches(pool, true))
            usm__os_sleep_ns(NAP_NS);
    }
    return true;
}

void usm__magazine_resume(usm_pool *pool)
{
    (void)has_caches(pool, false);
}

/* ---- the owner's side --------------------------------------------------------------- */

static usm__magazine_table *take_free_table(void)
{
    usm__magazine_table *t;

    usm__mutex_lock(&mag.lock);
    t = mag.free_tables;
    if (t)
        mag.free_tables = t->next_free;
    usm__mutex_unlock(&mag.lock);
    return t;
}

/* The thread's table, made with its first cache; with a block, so that thread_ended is called. */
static usm__magazine_table *own_table(void)
{
    usm__magazine_table *t = usm__magazine_self.table;

    if (t || !usm__thread_self())
        return t;
    t = take_free_table();
    if (!t) {
        t = usm__os_map_for_life(sizeof *t);
        if (!t)
            return NULL;
        for (unsigned i = 0; i < USM__SLOTS; i++)
            usm_store_relaxed(&t->bins[i], CLOSED_BINS);
        usm_list_init(&t->caches);
    }
    usm__magazine_self.table = t;
    return t;
}

/* As in the fast path: first announce the slot, then read it. */
static node *look_up(const usm__magazine_table *t, uint16_t slot)
{
    usm_bin *bins;

    usm_store_relaxed(&usm__magazine_self.entered, slot);
    USM__MAGAZINE_FENCE();
    bins = usm_load_relaxed(&t->bins[slot]);
    if (bins != CLOSED_BINS)
        return node_of(bins);
    usm__magazine_leave(); /* a taker could otherwise wait for this thread, which is about to wait
                              for it */
    return NULL;
}

/* Returns the cache that an ended thread left last; NULL: there is none.  Its owner's changes are
 * visible: both hold the lock.  pre: lock is held. */
static node *take_left(usm_pool *pool)
{
    node *n = usm_container_of(pool->caches.next, node, of_pool);

    if (pool->left == 0)
        return NULL;
    unlist(n);
    return n;
}

static node *make_node(usm_pool *pool, usm__magazine_table *t)
{
    node *n = take_left(pool);

    if (!n)
        n = usm__meta_alloc(&node_type);
    if (!n)
        return NULL;
    n->pool   = pool;
    n->table  = t;
    n->thread = &usm__magazine_self;
    usm_list_append(&pool->caches, &n->of_pool);
    usm_list_append(&t->caches, &n->of_thread);
    open_slot(n);
    return n;
}

/* The cache was taken away (and the slot perhaps reopened), or there was none. */
static node *attach(usm_pool *pool, usm__magazine_table *t)
{
    node *n;

    usm__mutex_lock(&mag.lock);
    n = look_up(t, pool->slot);
    if (!n && !pool->is_retired && !pool->is_paused)
        n = make_node(pool, t);
    if (n)
        usm_store_relaxed(&usm__magazine_self.entered,
                          pool->slot); /* a taker needs the lock, so it comes
                                                              later */
    usm__mutex_unlock(&mag.lock);
    return n;
}

/* True if every block must take the slow path, because the thread is observed or the checker of
 * stream order runs. */
static bool is_seen(void)
{
    return usm__observed() || usm__observer_order_on();
}

/* Lets the thread's next hits find its bins. */
static void open_table(usm__magazine_table *t)
{
    if (!is_seen())
        usm__magazine_self.caches = t->bins;
    else if (usm__observed_by_trace())
        usm__magazine_self.traced = t->bins;
}

usm_cache *usm__magazine_enter(usm_pool *pool)
{
    usm__magazine_table *t = NULL;
    node                *n;

    if (pool->slot && usm_load_relaxed(&usm__magazine_self.entered) == 0)
        t = own_table();
    if (!t)
        return NULL;
    if (usm__magazine_self.caches != t->bins)
        open_table(t);
    n = look_up(t, pool->slot);
    if (!n)
        n = attach(pool, t);
    return n ? &n->cache : NULL;
}

usm_cache *usm__magazine_enter_own(const usm_pool *pool)
{
    const usm__magazine_table *t = usm__magazine_self.table;
    node                      *n = NULL;

    if (pool->slot && t && usm_load_relaxed(&usm__magazine_self.entered) == 0)
        n = look_up(t, pool->slot);
    return n ? &n->cache : NULL;
}

void usm__magazine_close_self(void)
{
    usm__magazine_self.caches = CLOSED_CACHES;
    usm__magazine_self.traced = NULL;
}

void usm__magazine_open_self(void)
{
    if (usm__magazine_self.table)
        open_table(usm__magazine_self.table);
}

/* Keeps the cache for the next thread.  pre: lock is held, n is in no list. */
static void leave_to_next(node *n)
{
    n->table   = NULL;
    n->is_left = true;
    n->pool->left++;
    usm_list_append(n->pool->caches.next, &n->of_pool);
}

/* Another thread will get the table. */
void usm__magazine_thread_ended(void)
{
    usm__magazine_table *t = usm__magazine_self.table;
    usm_list             list;

    usm__magazine_close_self();
    usm__magazine_self.table = NULL;
    if (!t)
        return;
    usm_list_init(&list);
    usm__mutex_lock(&mag.lock);
    while (!usm_list_is_empty(&t->caches)) {
        node *n = usm_container_of(t->caches.next, node, of_thread);

        close_slot(n);
        unlist(n);
        if (n->pool->left < LEFT_MOST)
            leave_to_next(n);
        else
            usm_list_append(&list, &n->of_pool);
    }
    t->next_free    = mag.free_tables;
    mag.free_tables = t;
    count_flushing(&list);
    usm__mutex_unlock(&mag.lock);
    flush_all(&list);
}

/* ---- figures -------------------------------------------------------------------------- */

/* Counts the blocks in a bin of another thread, which may replace its magazine meanwhile: then the
 * two pointers may belong to different ones. */
static uint64_t blocks_in(const usm_bin *bin)
{
    const uintptr_t bottom = (uintptr_t)usm_load_acquire(&bin->bottom);
    const uintptr_t bytes  = (uintptr_t)usm_load_acquire(&bin->top) - bottom;

    if (!bottom || bytes > USM_MAGAZINE_SLOTS * sizeof(usm_slot) ||
        (uintptr_t)usm_load_relaxed(&bin->bottom) != bottom)
        return 0;
    return bytes / sizeof(usm_slot);
}

/* used: the bits of the classes that have blocks; the others are not read. */
static void count_cache(const usm_cache *c, uint64_t blocks[USM_BINS], uint64_t used[2])
{
    for (unsigned w = 0; w < 2; w++) {
        uint64_t active = usm_load_relaxed(&c->active[w]);

        used[w] |= active;
        for (uint64_t bits = active; bits; bits &= bits - 1) {
            unsigned k = w * 64 + (unsigned)__builtin_ctzll(bits);

            blocks[k] += blocks_in(&c->bins[k]);
        }
    }
}

/* Returns the number of threads that have caches.  blocks is zero at entry. */
static uint64_t count_caches(usm_pool *pool, uint64_t blocks[USM_BINS], uint64_t used[2])
{
    uint64_t threads = 0;

    usm__mutex_lock(&mag.lock);
    USM_LIST_FOREACH (it, &pool->caches) {
        const node *n = usm_container_of(it, node, of_pool);

        __builtin_prefetch(usm_container_of(it->next, node, of_pool)->cache.active);
        count_cache(&n->cache, blocks, used);
        threads += n->table != NULL;
    }
    usm__mutex_unlock(&mag.lock);
    return threads;
}

void usm__magazine_count(usm_pool *pool, uint64_t blocks[USM_BINS])
{
    uint64_t used[2] = {0, 0};

    (void)count_caches(pool, blocks, used);
}

void usm__magazine_sum_up(usm_pool *pool, usm__magazine_sum *sum)
{
    uint64_t blocks[USM_BINS] = {0};
    uint64_t used[2]          = {0, 0};

    *sum = (usm__magazine_sum){0, 0, 0};
    if (!pool->slot)
        return;
    sum->threads = count_caches(pool, blocks, used);
    for (unsigned w = 0; w < 2; w++)
        for (; used[w]; used[w] &= used[w] - 1) {
            unsigned k = w * 64 + (unsigned)__builtin_ctzll(used[w]);

            sum->blocks += blocks[k];
            sum->bytes += blocks[k] * usm_class_size(k);
        }
}

/* ---- start, fork ------------------------------------------------------------------------ */

/* Until a process has a second thread, registering costs nothing; then the kernel waits for all
 * processors, 5 to 15 ms.  Drivers start threads before the first pool, so it is done when the
 * library is loaded. */
static __attribute__((constructor)) void register_while_single(void)
{
    (void)usm__os_membarrier_start();
}

void usm__magazine_start(void)
{
    mag.can_take = usm__os_membarrier_start();
}

/* The only thread of the child keeps its caches of pools that still work; those of the other
 * threads have no owner. */
static void fork_child(void)
{
    for (unsigned i = 1; i < USM__SLOTS; i++) {
        usm_pool *pool = mag.pools[i];

        if (!pool)
            continue;
        pool->flushing = 0;
        USM_LIST_FOREACH (it, &pool->caches) {
            node *n = usm_container_of(it, node, of_pool);

            if (!works_here(pool))
                close_slot(n);
            if (n->table == usm__magazine_self.table)
                continue;
            n->table = NULL;
            usm_list_remove(&n->of_thread);
        }
    }
}

void usm__magazine_fork(usm_fork_phase phase)
{
    usm__mutex_fork(&mag.lock, phase);
    if (phase == USM_FORK_CHILD) {
        mag.flushed  = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
        mag.can_take = usm__os_membarrier_start();
        fork_child();
    }
}

/* ---- the table of threads without caches ------------------------------------------------ */

#define CLOSED_8                                                                                   \
    CLOSED_BINS, CLOSED_BINS, CLOSED_BINS, CLOSED_BINS, CLOSED_BINS, CLOSED_BINS, CLOSED_BINS,     \
        CLOSED_BINS
#define CLOSED_64 CLOSED_8, CLOSED_8, CLOSED_8, CLOSED_8, CLOSED_8, CLOSED_8, CLOSED_8, CLOSED_8
const usm__magazine_closed usm__closed = {.caches = {CLOSED_64, CLOSED_64, CLOSED_64, CLOSED_64}};
USM__THREAD_LOCAL usm__magazine_thread usm__magazine_self = {.caches = CLOSED_CACHES};
_Static_assert(USM__SLOTS == 4 * 64, "an entry a slot");
