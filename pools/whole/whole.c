/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The pools `direct` and `whole`: each block is an area of its own. `direct` takes it from the
 * driver when it is allocated, and returns it when it is freed. `whole` keeps a freed block and
 * reuses it as a whole, never cut.
 *
 * `whole` is for shared memory that a driver moves between host and device by whole allocations:
 * two blocks in one allocation would move together, and an access by the host would take away
 * memory that a kernel is using.  The core uses it there in place of pools that cut
 * (heap/pool_create.c).
 *
 *     size     rounded up to a class (base/inline/classes.h, 4 KiB at least): an eighth of waste
 *     bins     one list for each class: free blocks, most recently freed first
 *     idle     one list: all free blocks, least recently freed first
 *
 *     live = sum of the sizes of allocated blocks      idle_bytes = sum over the blocks in the bins
 *
 * In `direct` nothing is ever idle.  In `whole` a request takes the first block of its class, or of
 * one of the next two, whose address has the requested alignment.  If there is none, an area is
 * taken.  Before that, idle blocks beyond `retain` bytes are returned, least recently freed first,
 * about as much as the new area has.  If memory is short, all of them are returned, and the block
 * is requested in pages, not rounded up to its class.
 *
 * Memory beyond `retain` bytes that is idle for `retain_ms` is returned when blocks are freed, as
 * in the pool `slab`: `low` is the minimum of idle bytes since `window_ns`.
 *
 * area->pool_data points to a block's record as long as the pool has the area.  The lock guards
 * whether the block is allocated, so that of two frees of one pointer the second is refused.
 *
 * Not here: the address map, limits and alignment, which are the core's.  Called by the core,
 * through the tables at the end. */
#include "whole.h"

#include <base/inline/bits.h>
#include <base/inline/classes.h>
#include <base/inline/clock.h>
#include <base/inline/list.h>
#include <base/inline/pool_counts.h>

#include <pthread.h>

#define PAGE              ((size_t)4096)
#define CLASSES           320u /* up to 2^48 bytes                                     */
#define NEXT_CLASSES      2u
#define TRIES             8u /* blocks of a class whose alignment is checked */
#define LEAST_RETAIN      ((size_t)64 << 20)
#define MOST_RETAIN       ((size_t)1 << 30)
#define DEFAULT_RETAIN_MS 10000u
#define NS_PER_MS         1000000ull

struct whole_pool {
    usm_pool_counts counts; /* first */

    /* fixed after create */
    const usm_host_api *api;
    usm_area_source     areas;
    size_t              default_align;
    uint64_t            retain, retain_ns;
    bool                keeps; /* freed blocks: it is `whole` */

    /* guarded by the lock of the counts, like the elements of the lists */
    usm_list out;  /* whole_block.link                              */
    usm_list idle; /* whole_block.link                              */
    usm_list bins[CLASSES];
    uint64_t held, idle_bytes;
    uint64_t low, window_ns; /* window_ns 0: idle bytes are not tracked */
};

struct whole_block {
    usm_list  link; /* out or idle        */
    usm_list  bin;  /* while it is idle   */
    usm_area *area;
    bool      is_out;
};

#define BLOCK_OF(it) usm_container_of((it), struct whole_block, link)

static const usm_host_api *host_api;

/* --- idle blocks, with the lock --------------------------------------------------------------- */

/* The largest class whose blocks are not larger than `size`. */
static unsigned bin_of(size_t size)
{
    unsigned k = usm_class_of(size);

    return usm_class_size(k) > size ? k - 1 : k;
}

static void enter_idle(struct whole_pool *p, struct whole_block *b)
{
    usm_list *bin = &p->bins[bin_of(b->area->size)];

    usm_list_append(bin->next, &b->bin); /* in front */
    usm_list_append(&p->idle, &b->link);
    p->idle_bytes += b->area->size;
}

static void leave_idle(struct whole_pool *p, struct whole_block *b)
{
    usm_list_remove(&b->bin);
    usm_list_remove(&b->link);
    p->idle_bytes -= b->area->size;
    if (p->low > p->idle_bytes)
        p->low = p->idle_bytes;
}

/* NULL: none. */
static struct whole_block *take_idle(struct whole_pool *p, size_t size, size_t align)
{
    unsigned k = usm_class_of(size);

    for (unsigned end = k + NEXT_CLASSES; k <= end && k < CLASSES; k++) {
        unsigned tries = TRIES;

        USM_LIST_FOREACH (it, &p->bins[k]) {
            struct whole_block *b = usm_container_of(it, struct whole_block, bin);

            if (usm_is_aligned(b->area->base, align)) {
                leave_idle(p, b);
                return b;
            }
            if (--tries == 0)
                break;
        }
    }
    return NULL;
}

static void count_out(struct whole_pool *p, struct whole_block *b)
{
    b->is_out          = true;
    b->area->pool_data = b;
    usm_list_append(&p->out, &b->link);
    usm_pool_counts_out(&p->counts, b->area->size);
}

static void count_in(struct whole_pool *p, struct whole_block *b)
{
    b->is_out = false;
    usm_list_remove(&b->link);
    usm_pool_counts_in(&p->counts, b->area->size);
}

/* --- returning memory ------------------------------------------------------------------------- */

/* Moves idle blocks to `list`, least recently freed first, until they are `enough` bytes. */
static void collect(struct whole_pool *p, uint64_t enough, usm_list *list)
{
    uint64_t given = 0;

    USM_LIST_FOREACH_SAFE (it, next, &p->idle) {
        struct whole_block *b = BLOCK_OF(it);

        if (given >= enough)
            return;
        given += b->area->size;
        p->held -= b->area->size;
        b->area->pool_data = NULL;
        leave_idle(p, b);
        usm_list_append(list, &b->link);
    }
}

/* Without the lock: the source may call anything. */
static void give(struct whole_pool *p, usm_list *list)
{
    usm_list *it;

    while ((it = usm_list_pop(list))) {
        struct whole_block *b = BLOCK_OF(it);

        p->areas.give(p->areas.source, b->area);
        p->api->heap_free(b);
    }
}

static void give_back(struct whole_pool *p, uint64_t enough)
{
    usm_list list;

    usm_list_init(&list);
    pthread_mutex_lock(&p->counts.lock);
    collect(p, enough, &list);
    pthread_mutex_unlock(&p->counts.lock);
    give(p, &list);
}

/* With the lock.  Collects what was idle for `retain_ms`, beyond `retain` bytes. */
static void collect_overdue(struct whole_pool *p, usm_list *list)
{
    uint64_t now = usm_clock_ns(CLOCK_MONOTONIC_COARSE), low = p->low;

    if (p->window_ns && now - p->window_ns < p->retain_ns)
        return;
    if (!p->window_ns)
        low = 0;
    p->window_ns = now;
    p->low       = p->idle_bytes;
    if (low > p->retain)
        collect(p, low - p->retain, list);
}

static usm_status whole_trim_to(void *pool, size_t keep)
{
    struct whole_pool *p = pool;
    uint64_t           held;

    pthread_mutex_lock(&p->counts.lock);
    held = p->held;
    pthread_mutex_unlock(&p->counts.lock);
    if (held > keep)
        give_back(p, held - keep);
    return USM_OK;
}

/* --- new blocks ------------------------------------------------------------------------------- */

static bool is_full_answer(usm_status status)
{
    return status == USM_E_NO_MEMORY || status == USM_E_BUDGET;
}

/* Returns idle memory beyond `retain` before more is taken. */
static void replace_idle(struct whole_pool *p, size_t size)
{
    uint64_t beyond;

    pthread_mutex_lock(&p->counts.lock);
    beyond = p->idle_bytes > p->retain ? p->idle_bytes - p->retain : 0;
    pthread_mutex_unlock(&p->counts.lock);
    if (beyond)
        give_back(p, usm_min_size(beyond, size));
}

static usm_status take_area(struct whole_pool *p, size_t size, size_t align, usm_area **area)
{
    size_t     rounded;
    usm_status status;

    if (!p->keeps)
        return p->areas.take(p->areas.source, size, align, area);
    rounded = usm_class_size(usm_class_of(size));
    replace_idle(p, rounded);
    status = p->areas.take(p->areas.source, rounded, align, area);
    if (!is_full_answer(status))
        return status;
    give_back(p, UINT64_MAX);
    return p->areas.take(p->areas.source, size, align, area);
}

static usm_status malloc_anew(struct whole_pool *p, size_t size, size_t align, void **out)
{
    struct whole_block *b = p->api->heap_alloc(sizeof(*b));
    usm_status          status;

    if (!b)
        return p->api->report(USM_E_NO_MEMORY, "no host memory for the record of a block");
    status = take_area(p, size, align, &b->area);
    if (status) {
        p->api->heap_free(b);
        return status;
    }
    pthread_mutex_lock(&p->counts.lock);
    *out = b->area->base; /* after the unlock another thread may free it */
    p->held += b->area->size;
    count_out(p, b);
    pthread_mutex_unlock(&p->counts.lock);
    return USM_OK;
}

/* --- the interface ---------------------------------------------------------------------------- */

static uint64_t retained(const usm_pool_params *params)
{
    if (params->retain)
        return params->retain;
    return usm_min_size(usm_max_size(params->memory_size / 64, LEAST_RETAIN), MOST_RETAIN);
}

static usm_status create(const usm_pool_params *params, const char *name, bool keeps, void **pool)
{
    struct whole_pool *p = host_api->heap_alloc(sizeof(*p));

    if (!p)
        return host_api->report(USM_E_NO_MEMORY, "no host memory for a pool");
    if (params->options && params->options[0])
        host_api->log(USM_LOG_WARN, "the pool `%s` takes no options: \"%s\" is ignored", name,
                      params->options);
    p->keeps         = keeps;
    p->api           = params->api;
    p->areas         = params->areas;
    p->default_align = usm_max_size(params->default_align, 1);
    p->retain        = retained(params);
    p->retain_ns     = (params->retain_ms ? params->retain_ms : DEFAULT_RETAIN_MS) * NS_PER_MS;
    pthread_mutex_init(&p->counts.lock, NULL);
    usm_list_init(&p->out);
    usm_list_init(&p->idle);
    for (unsigned k = 0; k < CLASSES; k++)
        usm_list_init(&p->bins[k]);
    *pool = p;
    return USM_OK;
}

static usm_status direct_create(const usm_pool_params *params, void **pool)
{
    return create(params, "direct", false, pool);
}

static usm_status whole_create(const usm_pool_params *params, void **pool)
{
    return create(params, "whole", true, pool);
}

static void whole_destroy(void *pool)
{
    struct whole_pool *p = pool;

    give(p, &p->idle);
    give(p, &p->out);
    pthread_mutex_destroy(&p->counts.lock);
    p->api->heap_free(p);
}

static usm_status whole_malloc(void *pool, size_t size, size_t align, void **out)
{
    struct whole_pool  *p = pool;
    struct whole_block *b = NULL;

    if (!usm_align_up(size, PAGE, &size) || usm_class_of(size) >= CLASSES)
        return p->api->report(USM_E_NO_MEMORY, "%zu bytes are more than there can be", size);
    align = usm_max_size(align, p->default_align);
    pthread_mutex_lock(&p->counts.lock);
    b = take_idle(p, size, align);
    if (b) {
        *out = b->area->base;
        count_out(p, b);
    }
    pthread_mutex_unlock(&p->counts.lock);
    return b ? USM_OK : malloc_anew(p, size, align, out);
}

static usm_status direct_malloc(void *pool, size_t size, size_t align, void **out)
{
    struct whole_pool *p = pool;

    return malloc_anew(p, size, usm_max_size(align, p->default_align), out);
}

/* With the lock. */
static usm_status check_free(const usm_area *area, const void *ptr)
{
    const struct whole_block *b = area->pool_data;

    if (ptr == area->base)
        return b && b->is_out ? USM_OK : USM_E_DOUBLE_FREE;
    return b && b->is_out ? USM_E_INTERIOR_POINTER : USM_E_INVALID_POINTER;
}

/* With the lock, of a block that was just freed. */
static void keep_or_collect(struct whole_pool *p, struct whole_block *b, usm_list *list)
{
    if (p->keeps) {
        enter_idle(p, b);
        if (p->idle_bytes > p->retain)
            collect_overdue(p, list);
        return;
    }
    p->held -= b->area->size;
    b->area->pool_data = NULL;
    usm_list_append(list, &b->link);
}

static usm_status whole_free(void *pool, usm_area *area, void *ptr)
{
    struct whole_pool *p = pool;
    usm_status         status;
    usm_list           list;

    usm_list_init(&list);
    pthread_mutex_lock(&p->counts.lock);
    status = check_free(area, ptr);
    if (!status) {
        count_in(p, area->pool_data);
        keep_or_collect(p, area->pool_data, &list);
    }
    pthread_mutex_unlock(&p->counts.lock);
    give(p, &list);
    return status ? usm_pool_refuse(p->api, status, ptr) : USM_OK;
}

static usm_status whole_block_of(void *pool, usm_area *area, const void *ptr, usm_block *block)
{
    struct whole_pool        *p = pool;
    const struct whole_block *b;
    bool                      is_out;

    pthread_mutex_lock(&p->counts.lock);
    b      = area->pool_data;
    is_out = b && b->is_out;
    pthread_mutex_unlock(&p->counts.lock);
    if (!is_out || (uintptr_t)ptr - (uintptr_t)area->base >= area->size)
        return usm_pool_refuse(p->api, USM_E_INVALID_POINTER, ptr);
    *block = (usm_block){area->base, area->size};
    return USM_OK;
}

static size_t largest_free(const struct whole_pool *p)
{
    size_t largest = 0;

    for (unsigned k = CLASSES; k-- > 0 && !largest;)
        USM_LIST_FOREACH (it, &p->bins[k])
            largest =
                usm_max_size(largest, usm_container_of(it, struct whole_block, bin)->area->size);
    return largest;
}

static void whole_get_stats(void *pool, usm_pool_stats *stats)
{
    struct whole_pool *p = pool;

    pthread_mutex_lock(&p->counts.lock);
    usm_pool_counts_get(&p->counts, largest_free(p), stats);
    pthread_mutex_unlock(&p->counts.lock);
}

static const usm_pool_ops direct_ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(usm_pool_ops),
    .name        = "direct",
    .caps        = USM_POOL_CAP_WHOLE,
    .create      = direct_create,
    .destroy     = whole_destroy,
    .malloc      = direct_malloc,
    .free        = whole_free,
    .block       = whole_block_of,
    .trim_to     = whole_trim_to,
    .get_stats   = whole_get_stats,
    .reset_peaks = usm_pool_counts_reset_peaks,
    .fork        = usm_pool_counts_fork,
};

static const usm_pool_ops whole_ops = {
    .abi         = USM_MODULE_ABI,
    .struct_size = sizeof(usm_pool_ops),
    .name        = "whole",
    .caps        = USM_POOL_CAP_WHOLE,
    .create      = whole_create,
    .destroy     = whole_destroy,
    .malloc      = whole_malloc,
    .free        = whole_free,
    .block       = whole_block_of,
    .trim_to     = whole_trim_to,
    .get_stats   = whole_get_stats,
    .reset_peaks = usm_pool_counts_reset_peaks,
    .fork        = usm_pool_counts_fork,
};

const usm_pool_ops *usm_direct_pool_entry(const usm_host_api *api)
{
    host_api = api;
    return &direct_ops;
}

const usm_pool_ops *usm_whole_pool_entry(const usm_host_api *api)
{
    host_api = api;
    return &whole_ops;
}
