/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Lists of blocks that queues have freed: bins, nodes, and which queue and pool has which list.
 * The other files know the meaning of a position, and when a block may be taken. */
#include "async/internal.h"
#include "base/os.h"
#include "device/init.h"

#include <sched.h>
#include <string.h>

#define SPINS 64
#define CHUNK 63 /* nodes taken from the heap at a time: 2.5 KiB                            */
/* Blocks of one bin that are looked at, at most. */
#define DEEP 16

typedef struct usm__async_chunk {
    struct usm__async_chunk *next;
    usm__async_block         blocks[CHUNK];
} usm__async_chunk;

/* ---- the lock ------------------------------------------------------------------------ */

/* The lock is held for some instructions: a longer wait means that the holder is not running. */
void usm__async_lock_slow(usm__async_list *l)
{
    for (unsigned i = 0; atomic_flag_test_and_set_explicit(&l->lock, memory_order_acquire); i++)
        if (i >= SPINS)
            (void)sched_yield();
}

/* ---- nodes and bins -------------------------------------------------------------------- */

usm_status usm__async_spare(usm__async_list *l)
{
    usm__async_chunk *c = usm__heap_alloc(sizeof *c);

    if (!c)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for what a queue has freed");
    for (unsigned i = 0; i + 1 < CHUNK; i++)
        c->blocks[i].next = &c->blocks[i + 1];
    usm__async_lock(l);
    c->next                   = l->chunks;
    l->chunks                 = c;
    c->blocks[CHUNK - 1].next = l->spare;
    l->spare                  = c->blocks;
    usm__async_unlock(l);
    return USM_OK;
}

static bool is_used(const usm__async_list *l, unsigned k)
{
    return k < USM__ASYNC_BINS && (l->used[k / 64] >> (k % 64) & 1);
}

/* Points to the first block of bin k that fits, or NULL. */
static usm__async_block **find_in(usm__async_list *l, unsigned k, size_t size, uint64_t position)
{
    usm__async_block **at   = &l->bin[k];
    unsigned           deep = 0;

    for (; *at && deep < DEEP; at = &(*at)->next, deep++)
        if ((*at)->size >= size && (*at)->position <= position)
            return at;
    return NULL;
}

/* Blocks whose size is that of no class are in the bin below the one of a request for that size. */
static unsigned first_bin(size_t size)
{
    unsigned k = usm_class_of(size);

    return k >= USM_BINS ? k - 1 : k;
}

static void *unlink_at(usm__async_list *l, usm__async_block **at, unsigned k)
{
    usm__async_block *b = *at;

    /* Moves it to the front of the bin, from where it is taken. */
    *at       = b->next;
    b->next   = l->bin[k];
    l->bin[k] = b;
    return usm__async_pop(l, k);
}

static void *find(usm__async_list *l, size_t size, unsigned above, uint64_t position)
{
    for (unsigned k = first_bin(size); k <= usm_class_of(size) + above; k++) {
        usm__async_block **at = is_used(l, k) ? find_in(l, k, size, position) : NULL;

        if (at)
            return unlink_at(l, at, k);
    }
    return NULL;
}

void *usm__async_reuse_from(usm__async_list *l, size_t size, unsigned above, uint64_t position)
{
    void *p;

    usm__async_lock(l);
    p = find(l, size, above, position);
    if (p)
        usm_store_relaxed(&l->reuses, usm_load_relaxed(&l->reuses) + 1);
    usm__async_unlock(l);
    return p;
}

uint64_t usm__async_peek(const usm__async_list *l, size_t size, unsigned above)
{
    uint64_t least = UINT64_MAX;

    for (unsigned k = first_bin(size); k <= usm_class_of(size) + above; k++) {
        unsigned deep = 0;

        if (!is_used(l, k))
            continue;
        for (const usm__async_block *b = l->bin[k]; b && deep < DEEP; b = b->next, deep++)
            if (b->size >= size && b->position < least)
                least = b->position;
    }
    return least;
}

/* Takes the blocks at *at with a position up to `position`, and puts them before `chain`. */
static usm__async_block *take_of(usm__async_list *l, usm__async_block **at, uint64_t position,
                                 usm__async_block *chain)
{
    while (*at) {
        usm__async_block *b = *at;

        if (b->position > position) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        usm__async_count(l, (size_t)-1, (uint64_t)0 - b->size);
        b->next = chain;
        chain   = b;
    }
    return chain;
}

usm__async_block *usm__async_take(usm__async_list *l, uint64_t position)
{
    usm__async_block *chain = take_of(l, &l->seen, position, NULL);

    for (unsigned w = 0; w < USM__ASYNC_WORDS; w++)
        for (uint64_t bits = l->used[w]; bits; bits &= bits - 1) {
            unsigned k = w * 64 + (unsigned)__builtin_ctzll(bits);

            chain = take_of(l, &l->bin[k], position, chain);
            if (!l->bin[k])
                l->used[w] &= ~((uint64_t)1 << (k % 64));
        }
    return chain;
}

void usm__async_put_spares(usm__async_list *l, usm__async_block *chain)
{
    usm__async_block *last = chain;

    if (!chain)
        return;
    while (last->next)
        last = last->next;
    last->next = l->spare;
    l->spare   = chain;
}

static uint64_t last_of(const usm__async_block *b, uint64_t last)
{
    for (; b; b = b->next)
        last = b->position > last ? b->position : last;
    return last;
}

uint64_t usm__async_last(const usm__async_list *l)
{
    uint64_t last = last_of(l->seen, 0);

    for (unsigned w = 0; w < USM__ASYNC_WORDS; w++)
        for (uint64_t bits = l->used[w]; bits; bits &= bits - 1)
            last = last_of(l->bin[w * 64 + (unsigned)__builtin_ctzll(bits)], last);
    return last;
}

/* ---- lists ------------------------------------------------------------------------------ */

void usm__async_list_ref(usm__async_list *l)
{
    (void)usm_ref_take(&l->refs);
}

static void unref_queue(usm__async_queue *aq)
{
    if (!usm_ref_drop(&aq->refs))
        return;
    usm__async_event_release(aq->event);
    usm__mutex_fini(&aq->lock);
    usm__heap_free(aq);
}

static void unref_pool(usm__async_pool *ap)
{
    if (!usm_ref_drop(&ap->refs))
        return;
    pthread_cond_destroy(&ap->changed);
    usm__mutex_fini(&ap->lock);
    usm__heap_free(ap);
}

void usm__async_list_unref(usm__async_list *l)
{
    if (!usm_ref_drop(&l->refs))
        return;
    unref_queue(l->queue);
    unref_pool(l->pool);
    while (l->chunks) {
        usm__async_chunk *c = l->chunks;

        l->chunks = c->next;
        usm__heap_free(c);
    }
    usm__heap_free(l);
}

/* Whether a block of a class is handed out as it is, and from the bin of its class. */
static bool is_plain(const usm_pool *pool)
{
    return !pool->zero_init && pool->min_align <= USM__POOL_ALIGN;
}

static usm__async_list *new_list(usm__async_queue *aq, usm__async_pool *ap)
{
    usm__async_list *l = usm__heap_alloc(sizeof *l);

    if (!l) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for what a queue has freed");
        return NULL;
    }
    memset(l, 0, sizeof *l);
    l->queue    = aq;
    l->pool     = ap;
    l->kind     = ap->pool->kind;
    l->is_plain = is_plain(ap->pool);
    usm_list_init(&l->of_pool);
    usm_list_init(&l->of_queue);
    usm_list_init(&l->watched);
    usm_store_relaxed(&l->refs, 1u);
    (void)usm_ref_take(&aq->refs);
    (void)usm_ref_take(&ap->refs);
    return l;
}

/* pre: its lock is held. */
static usm__async_list *find_list(usm__async_queue *aq, const usm__async_pool *ap)
{
    USM_LIST_FOREACH (it, &aq->lists) {
        usm__async_list *l = usm_container_of(it, usm__async_list, of_queue);

        if (l->pool == ap)
            return l;
    }
    return NULL;
}

/* pre: its lock is held. */
static void enter_list(usm__async_list *l)
{
    usm__async_queue *aq = l->queue;

    usm_list_append(&aq->lists, &l->of_queue);
    usm__mutex_lock(&l->pool->lock);
    usm_list_append(&l->pool->lists, &l->of_pool);
    usm__mutex_unlock(&l->pool->lock);
    if (l->pool->pool->is_default && usm__queue_in_order(aq->q))
        usm_store_release(&aq->by_kind[l->kind], l);
}

usm__async_list *usm__async_list_of(usm_queue *q, usm_pool *pool)
{
    usm__async_queue *aq = usm__async_queue_of(q);
    usm__async_pool  *ap = aq ? usm__async_pool_of(pool) : NULL;
    usm__async_list  *l;

    if (!ap)
        return NULL;
    usm__mutex_lock(&aq->lock);
    l = find_list(aq, ap);
    if (!l) {
        l = new_list(aq, ap);
        if (l)
            enter_list(l);
    }
    usm__mutex_unlock(&aq->lock);
    return l;
}

/* ---- queues and pools ---------------------------------------------------------------------- */

usm__async_queue *usm__async_queue_there(usm_queue *q)
{
    usm__async_queue *aq = usm_load_acquire(&q->async);

    return aq && aq->fork_generation == usm__fork_generation() ? aq : NULL;
}

usm__async_queue *usm__async_queue_of(usm_queue *q)
{
    usm__async_queue *aq = usm_load_acquire(&q->async), *other = NULL;

    if (aq)
        return aq;
    aq = usm__heap_alloc(sizeof *aq);
    if (!aq) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for what a queue has freed");
        return NULL;
    }
    memset(aq, 0, sizeof *aq);
    aq->q = q;
    usm_store_relaxed(&aq->refs, 1u);
    aq->fork_generation = usm__fork_generation();
    usm_list_init(&aq->lists);
    usm__mutex_init(&aq->lock, USM__RANK_ASYNC_QUEUE, "what a queue has freed");
    if (usm_cas_acq_rel(&q->async, &other, aq))
        return aq;
    unref_queue(aq);
    return other;
}

usm__async_pool *usm__async_pool_there(usm_pool *pool)
{
    usm__async_pool *ap = usm_load_acquire(&pool->async);

    return ap && ap->fork_generation == usm__fork_generation() ? ap : NULL;
}

usm__async_pool *usm__async_pool_of(usm_pool *pool)
{
    usm__async_pool *ap = usm_load_acquire(&pool->async), *other = NULL;

    if (ap)
        return ap;
    ap = usm__heap_alloc(sizeof *ap);
    if (!ap) {
        (void)usm__fail(USM_E_NO_MEMORY, "no host memory for what queues have freed");
        return NULL;
    }
    memset(ap, 0, sizeof *ap);
    ap->pool = pool;
    usm_store_relaxed(&ap->refs, 1u);
    ap->fork_generation = usm__fork_generation();
    usm_list_init(&ap->lists);
    usm__mutex_init(&ap->lock, USM__RANK_ASYNC, "what queues have freed");
    pthread_cond_init(&ap->changed, NULL);
    if (usm_cas_acq_rel(&pool->async, &other, ap))
        return ap;
    unref_pool(ap);
    return other;
}

/* pre: the lock of its queue is held. */
static void leave_list(usm__async_list *l)
{
    usm_list_remove(&l->of_queue);
    if (usm_load_relaxed(&l->queue->by_kind[l->kind]) == l)
        usm_store_release(&l->queue->by_kind[l->kind], NULL);
    usm_add_relaxed(&l->pool->reuses, usm_load_relaxed(&l->reuses));
    usm__mutex_lock(&l->pool->lock);
    usm_list_remove(&l->of_pool);
    pthread_cond_broadcast(&l->pool->changed);
    usm__mutex_unlock(&l->pool->lock); /* from here on the pool may be freed */
}

bool usm__async_hold_queue(usm__async_queue *aq)
{
    bool held;

    usm__mutex_lock(&aq->lock);
    held = !aq->is_over && usm__queue_ref(aq->q);
    usm__mutex_unlock(&aq->lock);
    return held;
}

void usm__async_queue_end(usm__async_queue *aq)
{
    usm__mutex_lock(&aq->lock);
    aq->is_over = true;
    while (!usm_list_is_empty(&aq->lists)) {
        usm__async_list *l = usm_container_of(aq->lists.next, usm__async_list, of_queue);

        leave_list(l);
        usm__mutex_unlock(&aq->lock);
        usm__async_list_unref(l);
        usm__mutex_lock(&aq->lock);
    }
    usm__mutex_unlock(&aq->lock);
    unref_queue(aq);
}

/* ---- several lists --------------------------------------------------------------------------- */

/* Blocks are in it, or on their way from it to the pool. */
static bool is_busy(usm__async_list *l)
{
    bool busy;

    usm__async_lock(l);
    busy = usm_load_relaxed(&l->blocks) != 0 || usm_load_relaxed(&l->draining) != 0;
    usm__async_unlock(l);
    return busy;
}

static void look(usm__async_pool *ap, usm__async_some *some, bool also_empty)
{
    some->n = 0;
    usm__mutex_lock(&ap->lock);
    USM_LIST_FOREACH (it, &ap->lists) {
        usm__async_list *l = usm_container_of(it, usm__async_list, of_pool);

        if (some->n == USM__ASYNC_LOOK)
            break;
        if ((also_empty || is_busy(l)) && usm__queue_ref(l->queue->q)) {
            usm__async_list_ref(l);
            some->list[some->n++] = l;
        }
    }
    usm__mutex_unlock(&ap->lock);
}

void usm__async_of_pool(usm__async_pool *ap, usm__async_some *some)
{
    look(ap, some, false);
}

void usm__async_of_queue(usm__async_queue *aq, usm__async_some *some)
{
    some->n = 0;
    usm__mutex_lock(&aq->lock);
    USM_LIST_FOREACH (it, &aq->lists) {
        usm__async_list *l = usm_container_of(it, usm__async_list, of_queue);

        if (some->n == USM__ASYNC_LOOK)
            break;
        if (usm_load_relaxed(&l->blocks) == 0)
            continue;
        usm__async_list_ref(l);
        some->list[some->n++] = l;
    }
    usm__mutex_unlock(&aq->lock);
}

void usm__async_queue_release(usm__async_some *some)
{
    for (size_t i = 0; i < some->n; i++)
        usm__async_list_unref(some->list[i]);
}

void usm__async_pool_release(usm__async_some *some)
{
    for (size_t i = 0; i < some->n; i++) {
        usm_queue *q = some->list[i]->queue->q;

        usm__async_list_unref(some->list[i]);
        usm__queue_unref(q);
    }
}

/* ---- the end of a pool ----------------------------------------------------------------- */

/* Takes a list out of its queue, unless the queue has just ended. */
static void cut_off(usm__async_list *l)
{
    usm__async_queue *aq  = l->queue;
    bool              was = false;

    usm__mutex_lock(&aq->lock);
    if (!usm_list_is_empty(&l->of_queue)) {
        leave_list(l);
        was = true;
    }
    usm__mutex_unlock(&aq->lock);
    if (was)
        usm__async_list_unref(l);
}

void usm__async_pool_end(usm__async_pool *ap)
{
    usm__async_some some;
    bool            is_empty = false;

    while (!is_empty) {
        look(ap, &some, true);
        for (size_t i = 0; i < some.n; i++)
            cut_off(some.list[i]);
        usm__async_pool_release(&some);
        usm__mutex_lock(&ap->lock);
        if (some.n == 0 && !usm_list_is_empty(&ap->lists)) /* of queues that are ending now     */
            (void)usm__mutex_wait(&ap->lock, &ap->changed, NULL);
        is_empty = usm_list_is_empty(&ap->lists);
        usm__mutex_unlock(&ap->lock);
    }
    unref_pool(ap);
}
