/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The pool `jemalloc`: jemalloc's arenas over areas of libusm, for host and shared memory.
 *
 * Here: the interface.  Not here: jemalloc's functions (library.c), the record of live blocks
 * (blocks.c), areas (area.c), the hooks and why they keep jemalloc's heap consistent (hooks.c),
 * threads (thread.c).  Called by the core, through the table at the end.
 *
 * A pool has up to four arenas.  A thread gets one of them, and a cache (jemalloc's explicit
 * tcache), at its first call, and keeps both.  jemalloc's own data are in memory of its own, if its
 * version has a control for that (5.3 has), and not in the areas.
 *
 * jemalloc does not report the bytes in explicit caches: thread_cached is left 0. */
#include "internal.h"

#include <base/inline/pool_counts.h>

#include <string.h>
#include <unistd.h>

#define PLAIN_ALIGN ((size_t)64)      /* the alignment of every size that is a multiple of it */
#define LARGEST     ((size_t)1 << 47) /* no process has more addresses                        */

/* --- creation and destruction ---------------------------------------------------------------- */

/* Keeps jemalloc's data out of the areas: a control of 5.3, whose argument no header declares. */
static int make_arena_5_3(struct usm_je_arena *a)
{
    struct {
        extent_hooks_t *hooks;
        bool            data_too;
    } config    = {&a->hooks, false};
    size_t size = sizeof(a->index);

    return usm_je.mallctl("experimental.arenas_create_ext", &a->index, &size, &config,
                          sizeof(config));
}

static int make_arena(struct usm_je_arena *a)
{
    extent_hooks_t *hooks = &a->hooks;
    size_t          size  = sizeof(a->index);

    if (make_arena_5_3(a) == 0)
        return 0;
    return usm_je.mallctl("arenas.create", &a->index, &size, &hooks, sizeof(hooks));
}

/* Memory that is idle for longer is returned to area.c, which keeps `retain` bytes. */
static void set_decay(const struct usm_je_arena *a, const usm_pool_params *params)
{
    ssize_t never = -1, at_once = 0, ms = (ssize_t)params->retain_ms;

    if (params->retain == SIZE_MAX)
        (void)usm_je_control("dirty_decay_ms", a->index, &never, sizeof(never));
    else if (ms)
        (void)usm_je_control("dirty_decay_ms", a->index, &ms, sizeof(ms));
    /* Drivers do not know memory that is purged but still mapped. */
    (void)usm_je_control("muzzy_decay_ms", a->index, &at_once, sizeof(at_once));
}

static usm_status start_arenas(struct usm_je_pool *p, const usm_pool_params *params)
{
    long   cpus   = sysconf(_SC_NPROCESSORS_ONLN);
    size_t wanted = usm_min_size(cpus > 0 ? (size_t)cpus : 1, USM_JE_ARENAS);

    for (; p->narenas < wanted; p->narenas++) {
        struct usm_je_arena *a = &p->arenas[p->narenas];

        usm_je_arena_init(a, p);
        a->hooks = usm_je_hooks;
        usm_store_release(&a->open, true);
        if (make_arena(a)) {
            usm_je_arena_fini(a);
            break; /* fewer arenas are sufficient */
        }
        set_decay(a, params);
    }
    if (p->narenas)
        return USM_OK;
    return p->api->report(USM_E_NO_MEMORY, "jemalloc makes no further arena: it has 4094, or the "
                                           "host's memory is used up");
}

/* False: jemalloc refused to destroy an arena, and may call its hooks at any later time. */
static bool end_arenas(struct usm_je_pool *p)
{
    bool all = true;

    for (size_t i = 0; i < p->narenas; i++)
        if (usm_je_control("destroy", p->arenas[i].index, NULL, 0))
            all = false;
    for (size_t i = 0; i < p->narenas; i++) {
        usm_store_release(&p->arenas[i].open, false);
        usm_je_arena_fini(&p->arenas[i]);
    }
    return all;
}

static usm_status refuse_kind(const usm_pool_params *params)
{
    if (params->kind != USM_DEVICE && params->host_accessible)
        return USM_OK;
    return params->api->report(
        USM_E_NOT_SUPPORTED,
        "the pool `jemalloc` supports host and shared memory only: for device memory use `slab`");
}

/* Larger than anything else that a driver gets from malloc() for an area. */
#define PROBE ((size_t)64 << 10)

/* If the driver gets an area from the program's malloc(), the area is already part of jemalloc's
 * heap.  Given to an arena, it would be entered a second time, and the first merge would corrupt
 * the heap.  So one area is taken, to see whether the number of bytes that this thread got from
 * jemalloc grows by as much; no alignment is requested, so nothing is padded.  Rejected: a query
 * for the owner of the address ("arenas.lookup"), which crashes in 5.3.0 if no memory of jemalloc's
 * is near. */
static usm_status check_source(const usm_pool_params *params)
{
    const usm_area_source *s      = &params->areas;
    usm_area              *area   = NULL;
    uint64_t               before = usm_je_allocated(), after;
    usm_status             st     = s->take(s->source, PROBE, 1, &area);

    if (st)
        return st;
    after = usm_je_allocated();
    s->give(s->source, area);
    if (after - before < PROBE)
        return USM_OK;
    return params->api->report(USM_E_NOT_SUPPORTED,
                               "the pool `jemalloc` cannot be used here: the driver takes this "
                               "memory from the program's malloc(), which is jemalloc too; take "
                               "`slab`, or start the program without jemalloc");
}

static void init_pool(struct usm_je_pool *p, const usm_pool_params *params)
{
    size_t page = USM_JE_PAGE, first = params->area_size ? params->area_size : USM_JE_CHUNK;

    p->api           = params->api;
    p->areas         = params->areas;
    p->default_align = usm_max_size(params->default_align, 16);
    p->first_size    = (usm_min_size(first, (size_t)1 << 40) + page - 1) & ~(page - 1);
    p->shift         = (unsigned)__builtin_ctzll(usm_min_size(p->default_align, page));
    pthread_mutex_init(&p->lock, NULL);
    usm_list_init(&p->caches);
}

static usm_status je_create(const usm_pool_params *params, void **pool)
{
    struct usm_je_pool *p;
    usm_status          status = refuse_kind(params);

    if (!status)
        status = check_source(params);
    if (status)
        return status;
    if (params->options && params->options[0])
        params->api->log(USM_LOG_WARN, "the pool `jemalloc` takes no options: \"%s\" is ignored",
                         params->options);
    p = params->api->heap_alloc(sizeof(*p));
    if (!p)
        return params->api->report(USM_E_NO_MEMORY, "no host memory for a pool");
    init_pool(p, params);
    status = start_arenas(p, params);
    if (status)
        goto err_pool;
    p->retain           = params->retain ? params->retain : p->narenas * p->first_size;
    p->spare.arena_flag = (int)MALLOCX_ARENA(p->arenas[0].index);
    status              = usm_je_pool_enter(p);
    if (status)
        goto err_arenas;
    *pool = p;
    return USM_OK;

err_arenas:
    (void)end_arenas(p);
err_pool:
    pthread_mutex_destroy(&p->lock);
    params->api->heap_free(p);
    return status;
}

static void je_destroy(void *pool)
{
    struct usm_je_pool *p = pool;

    usm_je_pool_leave(p);
    if (!end_arenas(p)) {
        p->api->log(USM_LOG_ERROR,
                    "jemalloc would not destroy an arena of a pool: did the program give it to a "
                    "thread (thread.arena)?");
        return; /* its hooks are part of *p */
    }
    pthread_mutex_destroy(&p->lock);
    p->api->heap_free(p);
}

/* --- blocks ---------------------------------------------------------------------------------- */

/* Determines the request to jemalloc for a block of `size` with this alignment; false: it is too
 * large.  For alignments up to 64 the size is rounded up instead, because jemalloc's caches do not
 * serve large aligned blocks, and each of its size classes is a multiple of the largest power of
 * two up to 64 that divides the size. */
static bool plan(const struct usm_je_pool *p, size_t size, size_t align, size_t *asked, int *flag)
{
    align  = usm_max_size(align, p->default_align);
    *asked = size;
    *flag  = 0;
    if (align > PLAIN_ALIGN)
        *flag = MALLOCX_LG_ALIGN(__builtin_ctzll(align));
    else if (!usm_align_up(size, align, asked))
        return false;
    return size <= LARGEST && usm_je.nallocx(*asked, *flag) != 0;
}

static void count(struct usm_je_pool *p, struct usm_je_cache *c, int64_t bytes)
{
    if (c) {
        usm_je_count(p, c, bytes);
        return;
    }
    pthread_mutex_lock(&p->lock);
    usm_je_count(p, &p->spare, bytes);
    pthread_mutex_unlock(&p->lock);
}

/* Returns all idle memory of all arenas; `keep` bytes of areas may stay. */
static void release(struct usm_je_pool *p, uint64_t keep)
{
    for (size_t i = 0; i < p->narenas; i++)
        (void)usm_je_control("purge", p->arenas[i].index, NULL, 0);
    for (size_t i = 0; i < p->narenas; i++)
        usm_je_arena_trim(&p->arenas[i], keep);
}

/* After jemalloc has cleaned up for a thread, the thread may still allocate, in a destructor of a
 * thread-specific key.  mallocx() then uses arena 0 whatever the flags are, but rallocx() still
 * obeys them.  A block of one byte cannot grow in place, because no block of a pool is of its
 * class. */
static void *ask_late(size_t size, int flags)
{
    void *tiny = usm_je.mallocx(1, (int)MALLOCX_TCACHE_NONE);
    void *got  = tiny ? usm_je.rallocx(tiny, size, flags) : NULL;

    if (tiny && !got)
        usm_je.sdallocx(tiny, 1, (int)MALLOCX_TCACHE_NONE);
    if (got && !usm_je_area_of(got)) {
        usm_je.sdallocx(got, usm_je.sallocx(got, 0), (int)MALLOCX_TCACHE_NONE);
        got = NULL;
    }
    return got;
}

/* c NULL: the thread has no cache. */
static int enter_cache(struct usm_je_cache *c, const usm_je_call *call)
{
    return c ? usm_je_cache_enter(c, call) : (int)MALLOCX_TCACHE_NONE;
}

static void leave_cache(struct usm_je_cache *c, const usm_je_call *call)
{
    if (c)
        usm_je_cache_leave(c, call);
}

static void *ask(struct usm_je_pool *p, struct usm_je_cache *c, size_t size, int flag,
                 usm_je_call *call)
{
    int   arena = c ? c->arena_flag : p->spare.arena_flag;
    void *got;

    usm_je_call_begin(call);
    got = usm_je.mallocx(size, flag | arena | enter_cache(c, call));
    if (got && !usm_je_area_of(got)) {
        usm_je.sdallocx(got, usm_je.sallocx(got, 0), (int)MALLOCX_TCACHE_NONE);
        got = ask_late(usm_je.nallocx(size, flag), flag | arena | MALLOCX_TCACHE_NONE);
    }
    leave_cache(c, call);
    usm_je_call_end(call);
    return got;
}

/* Flushes the calling thread's cache, and those of threads that are not using theirs. */
static void empty_caches(struct usm_je_pool *p, const usm_je_call *call)
{
    struct usm_je_cache *c = usm_je_cache_there(p);

    if (enter_cache(c, call) != (int)MALLOCX_TCACHE_NONE)
        (void)usm_je.mallctl("tcache.flush", NULL, NULL, &c->tcache, sizeof(c->tcache));
    leave_cache(c, call);
    (void)usm_je_caches_flush(p);
}

/* Called after the first try failed. */
static void *ask_again(struct usm_je_pool *p, struct usm_je_cache *c, size_t size, int flag,
                       usm_je_call *call)
{
    void *got = NULL;

    while (!got && call->forking && !call->outer) {
        usm_je_gate_wait();
        got = ask(p, c, size, flag, call);
    }
    if (!got && (call->status == USM_E_NO_MEMORY || call->status == USM_E_BUDGET) && !call->outer) {
        empty_caches(p, call);
        release(p, 0);
        got = ask(p, c, size, flag, call);
    }
    return got;
}

static usm_status je_malloc(void *pool, size_t size, size_t align, void **out)
{
    struct usm_je_pool  *p = pool;
    struct usm_je_cache *c;
    usm_je_call          call;
    size_t               asked;
    int                  flag;
    void                *got;

    if (!plan(p, size, align, &asked, &flag))
        return p->api->report(USM_E_NO_MEMORY, "%zu bytes are more than there can be", size);
    c   = usm_je_cache_of(p);
    got = ask(p, c, asked, flag, &call);
    if (!got)
        got = ask_again(p, c, asked, flag, &call);
    if (!got && call.status)
        return call.status; /* with the error message of the source */
    if (!got)
        return p->api->report(USM_E_NO_MEMORY, "no host memory for jemalloc's own data");
    usm_je_blocks_add(&usm_je_area_of(got)->blocks, got);
    count(p, c, (int64_t)usm_je.nallocx(asked, flag));
    *out = got;
    return USM_OK;
}

/* The pool's own record of the area; NULL: it was returned meanwhile. */
static struct usm_je_area *area_of(const struct usm_je_pool *p, const usm_area *view,
                                   const void *ptr)
{
    struct usm_je_area *a = usm_je_area_of(ptr);

    return a && a->view == view && a->arena->pool == p ? a : NULL;
}

static usm_status je_free(void *pool, usm_area *view, void *ptr)
{
    struct usm_je_pool  *p = pool;
    struct usm_je_area  *a = area_of(p, view, ptr);
    struct usm_je_cache *c;
    usm_je_call          call;
    size_t               size;
    usm_status           status;

    status = a ? usm_je_blocks_remove(&a->blocks, ptr) : USM_E_INVALID_POINTER;
    if (status)
        return usm_pool_refuse(p->api, status, ptr);
    c    = usm_je_cache_of(p);
    size = usm_je.sallocx(ptr, 0);
    count(p, c, -(int64_t)size);
    usm_je_call_begin(&call);
    usm_je.sdallocx(ptr, size, enter_cache(c, &call));
    leave_cache(c, &call);
    usm_je_call_end(&call);
    return USM_OK;
}

static usm_status je_block(void *pool, usm_area *view, const void *ptr, usm_block *block)
{
    struct usm_je_pool *p = pool;
    struct usm_je_area *a = area_of(p, view, ptr);
    usm_block           found;

    if (!a || !usm_je_blocks_find(&a->blocks, ptr, &found))
        return usm_pool_refuse(p->api, USM_E_INVALID_POINTER, ptr);
    *block = found;
    return USM_OK;
}

static usm_status je_trim_to(void *pool, size_t keep)
{
    struct usm_je_pool *p = pool;
    usm_je_call         call;

    usm_je_call_begin(&call);
    if (!call.outer && usm_load_relaxed(&p->held) > keep) {
        empty_caches(p, &call);
        release(p, keep);
    }
    usm_je_call_end(&call);
    return USM_OK;
}

/* --- statistics ------------------------------------------------------------------------------ */

static void je_get_stats(void *pool, usm_pool_stats *stats)
{
    struct usm_je_pool *p         = pool;
    uint64_t            held_peak = usm_load_relaxed(&p->held_peak);

    usm_je_stats(p, stats);
    if (stats->live_peak > held_peak) /* frees of other threads were not added yet */
        stats->live_peak = held_peak;
    stats->largest_free = 0;
    for (size_t i = 0; i < p->narenas; i++)
        stats->largest_free =
            usm_max_size(stats->largest_free, usm_je_arena_largest_free(&p->arenas[i]));
}

static void je_reset_peaks(void *pool)
{
    struct usm_je_pool *p = pool;

    usm_je_stats_reset_peaks(p);
    usm_store_relaxed(&p->held_peak, usm_load_relaxed(&p->held));
}

/* Takes the leaf locks, which the functions for statistics take with locks of the core held;
 * thread.c handles the rest.  The forking thread is the only thread of the child, and holds them
 * there too. */
static void je_fork(void *pool, usm_fork_phase phase)
{
    struct usm_je_pool *p = pool;
    int (*step)(pthread_mutex_t *) =
        phase == USM_FORK_PREPARE ? pthread_mutex_lock : pthread_mutex_unlock;

    (void)step(&p->lock);
    for (size_t i = 0; i < p->narenas; i++)
        (void)step(&p->arenas[i].lock);
}

static const usm_pool_ops je_ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(usm_pool_ops),
    .name        = "jemalloc",
    .caps        = 0,
    .create      = je_create,
    .destroy     = je_destroy,
    .malloc      = je_malloc,
    .free        = je_free,
    .block       = je_block,
    .trim_to     = je_trim_to,
    .get_stats   = je_get_stats,
    .reset_peaks = je_reset_peaks,
    .fork        = je_fork,
};

USM_API usm_pool_entry_fn usm_pool_entry;

/* Called by one thread at a time; again after a refusal. */
const usm_pool_ops *usm_pool_entry(const usm_host_api *api)
{
    if (usm_je_find(api) || usm_je_threads_start(api))
        return NULL;
    return &je_ops;
}
