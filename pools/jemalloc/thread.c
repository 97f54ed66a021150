/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Threads: each has a cache of its own in each pool that it uses.
 *
 * Here: finding and making the cache, its end with the thread or with the pool, counting, fork.
 * Not here: the content, which is jemalloc's explicit `tcache`.  It only ever has blocks of this
 * one pool (jemalloc's automatic caches would mix the blocks of all pools).  Called by jemalloc.c
 * and hooks.c.
 *
 *     key -> thread: [slot 0: id, cache] [slot 1: id, cache] ...          one slot for each pool
 *
 * A pool's slot is reused after its end, but its id never is.  If the id of an entry is not the
 * pool's, its pool has ended, and the cache it points to as well.  `lock` makes the end of a thread
 * and of a pool exclude each other.  jemalloc is called with it held, and through the hooks the
 * source, but the callers of these functions hold no lock of the core.
 *
 * fork.  The handlers are registered after those of jemalloc and the core, so they run before them:
 * `lock` is taken; then running hooks are waited for, and new ones refused; then the locks of the
 * core and of jemalloc are taken.  In the child, the caches of other threads may have been in the
 * middle of an operation.  They are left alone, and their content returns when the arenas of the
 * pool are destroyed. */
#include "internal.h"

#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_POOLS  1000 /* jemalloc has 4094 arenas */
#define FIRST_CAP  8
#define FOLD       ((int64_t)256 << 10)
#define LIVE_ERROR ((uint64_t)FOLD)

struct entry {
    uint64_t             id;
    struct usm_je_cache *cache;
};

struct thread {
    size_t        count;
    struct entry *entries;
    usm_je_call  *call;
};

static struct {
    const usm_host_api *api; /* fixed, like key, once started */
    pthread_key_t       key;
    bool                started;
    bool                can_take; /* membarrier() works */
    pthread_mutex_t     lock;     /* guards the fields below, and the lifetimes of pools and
                                     caches */
    uint64_t            last_id;
    struct usm_je_pool *pools[MAX_POOLS];
    size_t              npools;
    struct {
        pthread_mutex_t lock; /* taken after the other one */
        pthread_cond_t  changed;
        unsigned        inside;
        bool            closed;
    } gate;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER,
         .gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}};

/* --- hooks and fork -------------------------------------------------------------------------- */

bool usm_je_gate_enter(void)
{
    bool open;

    pthread_mutex_lock(&all.gate.lock);
    open = !all.gate.closed;
    all.gate.inside += open;
    pthread_mutex_unlock(&all.gate.lock);
    return open;
}

void usm_je_gate_leave(void)
{
    pthread_mutex_lock(&all.gate.lock);
    if (--all.gate.inside == 0 && all.gate.closed)
        pthread_cond_broadcast(&all.gate.changed);
    pthread_mutex_unlock(&all.gate.lock);
}

void usm_je_gate_wait(void)
{
    pthread_mutex_lock(&all.gate.lock);
    while (all.gate.closed)
        pthread_cond_wait(&all.gate.changed, &all.gate.lock);
    pthread_mutex_unlock(&all.gate.lock);
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&all.lock);
    pthread_mutex_lock(&all.gate.lock);
    all.gate.closed = true;
    while (all.gate.inside)
        pthread_cond_wait(&all.gate.changed, &all.gate.lock);
    pthread_mutex_unlock(&all.gate.lock);
}

static void fork_parent(void)
{
    pthread_mutex_lock(&all.gate.lock);
    all.gate.closed = false;
    pthread_cond_broadcast(&all.gate.changed);
    pthread_mutex_unlock(&all.gate.lock);
    pthread_mutex_unlock(&all.lock);
}

static void abandon(struct usm_je_pool *p, const struct thread *survivor)
{
    USM_LIST_FOREACH (it, &p->caches) {
        struct usm_je_cache *c = usm_container_of(it, struct usm_je_cache, link);

        if (c->owner != survivor)
            c->has_tcache = false;
    }
}

static bool start_membarrier(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* There is no other thread, and locks that another thread held would stay locked forever. */
static void fork_child(void)
{
    pthread_mutex_init(&all.gate.lock, NULL);
    pthread_cond_init(&all.gate.changed, NULL);
    all.gate.inside = 0;
    all.gate.closed = false;
    for (size_t i = 0; i < all.npools; i++)
        if (all.pools[i])
            abandon(all.pools[i], pthread_getspecific(all.key));
    pthread_mutex_init(&all.lock, NULL);
    all.can_take = start_membarrier();
}

/* --- counting -------------------------------------------------------------------------------- */

static void raise_peak(struct usm_je_pool *p, int64_t now)
{
    int64_t old = usm_load_relaxed(&p->live_peak);

    while (now > old && !usm_cas_acq_rel(&p->live_peak, &old, now))
        ;
}

/* Adds the counts of the cache to the pool's; called by the thread that may write the cache. */
static void fold(struct usm_je_pool *p, struct usm_je_cache *c)
{
    int64_t live   = usm_load_relaxed(&c->live);
    int64_t before = usm_add_relaxed(&p->live, live);

    raise_peak(p, before + usm_load_relaxed(&c->highest));
    usm_store_relaxed(&c->live, 0);
    usm_store_relaxed(&c->highest, 0);
}

void usm_je_count(struct usm_je_pool *p, struct usm_je_cache *c, int64_t bytes)
{
    _Atomic(uint64_t) *calls = bytes > 0 ? &c->allocations : &c->frees;
    int64_t            live  = usm_load_relaxed(&c->live) + bytes;

    usm_store_relaxed(calls, usm_load_relaxed(calls) + 1);
    usm_store_relaxed(&c->live, live);
    if (live > usm_load_relaxed(&c->highest))
        usm_store_relaxed(&c->highest, live);
    if (live > FOLD || live < -FOLD)
        fold(p, c);
}

static void add_stats(const struct usm_je_cache *c, usm_pool_stats *s, int64_t *live)
{
    s->allocations += usm_load_relaxed(&c->allocations);
    s->frees += usm_load_relaxed(&c->frees);
    *live += usm_load_relaxed(&c->live);
}

#define CACHE_OF(it) usm_container_of((it), struct usm_je_cache, link)

void usm_je_stats(struct usm_je_pool *p, usm_pool_stats *s)
{
    int64_t live, peak;

    pthread_mutex_lock(&p->lock);
    s->allocations = p->ended_allocations;
    s->frees       = p->ended_frees;
    live           = usm_load_relaxed(&p->live);
    add_stats(&p->spare, s, &live);
    USM_LIST_FOREACH (it, &p->caches)
        add_stats(CACHE_OF(it), s, &live);
    peak = usm_load_relaxed(&p->live_peak);
    USM_LIST_FOREACH (it, &p->caches) {
        int64_t above =
            usm_load_relaxed(&CACHE_OF(it)->highest) - usm_load_relaxed(&CACHE_OF(it)->live);

        peak = above + live > peak ? above + live : peak;
    }
    s->threads         = p->ncaches;
    s->live_peak_error = p->most_caches > 1 ? p->most_caches * LIVE_ERROR : 0;
    pthread_mutex_unlock(&p->lock);
    s->live      = live > 0 ? (uint64_t)live : 0;
    s->live_peak = peak > live ? (uint64_t)peak : s->live;
    s->blocks    = s->allocations > s->frees ? s->allocations - s->frees : 0;
}

void usm_je_stats_reset_peaks(struct usm_je_pool *p)
{
    int64_t live;

    pthread_mutex_lock(&p->lock);
    live = usm_load_relaxed(&p->live);
    USM_LIST_FOREACH (it, &p->caches) {
        live += usm_load_relaxed(&CACHE_OF(it)->live);
        usm_store_relaxed(&CACHE_OF(it)->highest, usm_load_relaxed(&CACHE_OF(it)->live));
    }
    usm_store_relaxed(&p->live_peak, live);
    p->most_caches = p->ncaches;
    pthread_mutex_unlock(&p->lock);
}

/* --- caches ---------------------------------------------------------------------------------- */

static struct usm_je_cache *make_cache(struct usm_je_pool *p, struct thread *t)
{
    struct usm_je_cache *c     = p->api->heap_alloc(sizeof(*c));
    uint64_t             which = usm_add_relaxed(&p->next_arena, (uint64_t)1) % p->narenas;
    size_t               size  = sizeof(c->tcache);

    if (!c)
        return NULL;
    c->owner      = t;
    c->arena_flag = (int)MALLOCX_ARENA(p->arenas[which].index);
    /* There can be 4094; later threads work without one. */
    c->has_tcache  = usm_je.mallctl("tcache.create", &c->tcache, &size, NULL, 0) == 0;
    c->tcache_flag = c->has_tcache ? (int)MALLOCX_TCACHE(c->tcache) : (int)MALLOCX_TCACHE_NONE;
    pthread_mutex_lock(&p->lock);
    usm_list_append(&p->caches, &c->link);
    p->ncaches++;
    p->most_caches = usm_max_size(p->most_caches, p->ncaches);
    pthread_mutex_unlock(&p->lock);
    return c;
}

/* Under all.lock. */
static void end_cache(struct usm_je_pool *p, struct usm_je_cache *c)
{
    pthread_mutex_lock(&p->lock);
    usm_list_remove(&c->link);
    p->ncaches--;
    fold(p, c);
    p->ended_allocations += usm_load_relaxed(&c->allocations);
    p->ended_frees += usm_load_relaxed(&c->frees);
    pthread_mutex_unlock(&p->lock);
    if (c->has_tcache)
        (void)usm_je.mallctl("tcache.destroy", NULL, NULL, &c->tcache, sizeof(c->tcache));
    p->api->heap_free(c);
}

/* Called when a thread ends. */
static void end_thread(void *arg)
{
    struct thread *t = arg;

    pthread_mutex_lock(&all.lock);
    for (size_t i = 0; i < t->count; i++) {
        struct usm_je_pool *p = all.pools[i];

        if (p && t->entries[i].id == p->id)
            end_cache(p, t->entries[i].cache);
    }
    pthread_mutex_unlock(&all.lock);
    all.api->heap_free(t->entries);
    all.api->heap_free(t);
}

static struct thread *thread_now(void)
{
    struct thread *t = pthread_getspecific(all.key);

    if (t)
        return t;
    t = all.api->heap_alloc(sizeof(*t));
    if (t && pthread_setspecific(all.key, t)) {
        all.api->heap_free(t);
        t = NULL;
    }
    return t;
}

static bool make_room(struct thread *t, size_t slot)
{
    size_t        count = usm_max_size(FIRST_CAP, t->count);
    struct entry *entries;

    if (slot < t->count)
        return true;
    while (count <= slot)
        count *= 2;
    entries = all.api->heap_alloc(count * sizeof(*entries));
    if (!entries)
        return false;
    if (t->count)
        memcpy(entries, t->entries, t->count * sizeof(*entries));
    all.api->heap_free(t->entries);
    t->entries = entries;
    t->count   = count;
    return true;
}

struct usm_je_cache *usm_je_cache_there(const struct usm_je_pool *p)
{
    const struct thread *t = pthread_getspecific(all.key);

    return t && p->slot < t->count && t->entries[p->slot].id == p->id ? t->entries[p->slot].cache
                                                                      : NULL;
}

struct usm_je_cache *usm_je_cache_of(struct usm_je_pool *p)
{
    struct usm_je_cache *c = usm_je_cache_there(p);
    struct thread       *t;

    if (c)
        return c;
    t = thread_now();
    if (!t || !make_room(t, p->slot))
        return NULL;
    c = make_cache(p, t);
    if (c)
        t->entries[p->slot] = (struct entry){p->id, c};
    return c;
}

/* --- exclusive use of a cache ------------------------------------------------- */

/* A cache has no lock.  Its owner stores `busy`, then reads `taken`.  A thread that takes the cache
 * stores `taken`, makes that visible to all threads (membarrier), then reads `busy`.  At least one
 * of the two sees the other's store; an owner that does so continues without the cache.  If
 * jemalloc is on the stack already (the source of a hook allocates), the cache is in the middle of
 * an operation, and the inner call must not use it. */
int usm_je_cache_enter(struct usm_je_cache *c, const usm_je_call *call)
{
    if (call->outer || !c->has_tcache)
        return (int)MALLOCX_TCACHE_NONE;
    usm_store_relaxed(&c->busy, true);
    atomic_signal_fence(memory_order_seq_cst);
    if (!usm_load_acquire(&c->taken))
        return c->tcache_flag;
    usm_store_release(&c->busy, false);
    return (int)MALLOCX_TCACHE_NONE;
}

void usm_je_cache_leave(struct usm_je_cache *c, const usm_je_call *call)
{
    if (!call->outer)
        usm_store_release(&c->busy, false);
}

static bool make_seen(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static struct usm_je_cache *next_cache(struct usm_je_pool *p, const usm_list *at)
{
    usm_list *next;

    pthread_mutex_lock(&p->lock);
    next = at->next;
    pthread_mutex_unlock(&p->lock);
    return next == &p->caches ? NULL : CACHE_OF(next);
}

static void mark(struct usm_je_pool *p, bool taken)
{
    for (struct usm_je_cache *c = next_cache(p, &p->caches); c; c = next_cache(p, &c->link))
        usm_store_release(&c->taken, taken);
}

static bool flush_idle(struct usm_je_pool *p)
{
    bool any = false;

    for (struct usm_je_cache *c = next_cache(p, &p->caches); c; c = next_cache(p, &c->link))
        if (c->has_tcache && usm_load_relaxed(&c->taken) && !usm_load_acquire(&c->busy))
            any |= usm_je.mallctl("tcache.flush", NULL, NULL, &c->tcache, sizeof(c->tcache)) == 0;
    return any;
}

/* `lock` keeps every cache alive.  It is only tried: if the end of a thread or pool holds it, that
 * returns memory anyway. */
bool usm_je_caches_flush(struct usm_je_pool *p)
{
    bool any;

    if (!all.can_take || pthread_mutex_trylock(&all.lock))
        return false;
    mark(p, true);
    any = make_seen() && flush_idle(p);
    mark(p, false);
    pthread_mutex_unlock(&all.lock);
    return any;
}

/* --- calls ----------------------------------------------------------------------------------- */

usm_je_call *usm_je_call_now(void)
{
    const struct thread *t = pthread_getspecific(all.key);

    return t ? t->call : NULL;
}

void usm_je_call_begin(usm_je_call *call)
{
    struct thread *t = pthread_getspecific(all.key);

    *call = (usm_je_call){USM_OK, false, t ? t->call : NULL};
    if (t)
        t->call = call;
}

void usm_je_call_end(usm_je_call *call)
{
    struct thread *t = pthread_getspecific(all.key);

    if (t)
        t->call = call->outer;
}

/* --- pools ----------------------------------------------------------------------------------- */

usm_status usm_je_threads_start(const usm_host_api *api)
{
    all.api = api;
    if (all.started)
        return USM_OK;
    if (pthread_key_create(&all.key, end_thread))
        return api->report(USM_E_NO_MEMORY, "the process has no thread-specific key left");
    if (pthread_atfork(fork_prepare, fork_parent, fork_child)) {
        (void)pthread_key_delete(all.key);
        return api->report(USM_E_NO_MEMORY, "no host memory for the handlers of fork()");
    }
    all.can_take = start_membarrier();
    all.started  = true;
    return USM_OK;
}

usm_status usm_je_pool_enter(struct usm_je_pool *p)
{
    size_t slot = 0;

    pthread_mutex_lock(&all.lock);
    while (slot < MAX_POOLS && all.pools[slot])
        slot++;
    if (slot < MAX_POOLS) {
        p->slot         = (unsigned)slot;
        p->id           = ++all.last_id;
        all.pools[slot] = p;
        all.npools      = usm_max_size(all.npools, slot + 1);
    }
    pthread_mutex_unlock(&all.lock);
    if (slot < MAX_POOLS)
        return USM_OK;
    return p->api->report(USM_E_NO_MEMORY, "there are %d pools `jemalloc`: destroy one first",
                          MAX_POOLS);
}

void usm_je_pool_leave(struct usm_je_pool *p)
{
    usm_list *it;

    pthread_mutex_lock(&all.lock);
    all.pools[p->slot] = NULL;
    while ((it = p->caches.next) != &p->caches)
        end_cache(p, CACHE_OF(it));
    pthread_mutex_unlock(&all.lock);
}
