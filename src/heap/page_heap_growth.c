/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How the heap grows and shrinks.
 *
 * If the source can reserve and map, ranges of addresses are reserved, and memory is mapped into
 * them piece by piece; then any free memory of a range can become one block.  The first range is
 * small (its index costs memory, and a process may have hundreds of pools); each further one is as
 * large as all before, up to twice the memory.  The division of a range into pieces is fixed by the
 * offset, because unmap() must get the same piece as map():
 *
 *     offset     0 .. 32 MiB     .. 256 MiB     ..
 *     pieces          2 MiB          8 MiB          32 MiB     (multiples of the granularity)
 *
 * A block that finds no free memory is placed at the lowest addresses where free memory and holes
 * together are large enough, and only the missing pieces are mapped:
 *
 *     | used | free  |   hole   |   hole   |   hole  ..         before
 *     | used | USED    block           |free|   hole ..         after: two pieces were mapped
 *
 * During the mapping the run belongs to the growing thread: its memory is ASIDE, its holes are
 * MAPPING, and neighbours do not merge with either.  Whatever the result, the run is resolved
 * afterwards.
 *
 * Otherwise areas are taken: 2 MiB at first, then as much as is held, up to 64 MiB; a larger block
 * gets an area of its own size.
 *
 * Returned are areas and pieces without a used block.  If memory is short, or at a trim: as much as
 * is needed; a trim also returns ranges without memory.  Otherwise: memory beyond `retain` bytes
 * that was idle for a while.  `low` is the minimum of idle bytes since `window_ns`, so after
 * `retain_ms` that much was of no use.
 *
 * The lock is never held over a call of the source, and no function that is entered with it
 * releases it: what grows or returns memory is entered without, takes out under the lock what it
 * needs (a run, idle pieces, idle areas), and records the result under the lock again.  Meanwhile
 * the thread is the growing one, or is counted in `gives`; fork() waits for the end of both.
 * Drivers call functions at which a thread may be cancelled (close, for example), and one that
 * ended there would leave the others waiting, so cancellation is off. */
#include "heap/page_heap_private.h"

#include "base/os.h"

#include <time.h>

#define FIRST_AREA        ((size_t)2 << 20)
#define LARGEST_AREA      ((size_t)64 << 20)
#define FIRST_RANGE       ((size_t)256 << 20)
#define USUAL_RANGE       ((size_t)64 << 30)
#define LARGEST_RANGE     ((size_t)4 << 40)
#define DEFAULT_RETAIN_MS 10000u
#define NS_PER_MS         1000000ull

/* --- pieces ---------------------------------------------------------------------------------- */

static bool can_map(const slab_heap *h)
{
    return h->piece_shift[0] != 0;
}

static size_t piece_size(const slab_heap *h, size_t offset)
{
    return (size_t)1 << slab_piece_shift(h, offset);
}

static unsigned log2_ceil(size_t n)
{
    return n <= 1 ? 0 : 64 - (unsigned)__builtin_clzl(n - 1);
}

static void init_pieces(slab_heap *h)
{
    size_t   granularity = h->params.areas.granularity;
    unsigned least;

    if (!usm_is_pow2(granularity))
        return;
    least = log2_ceil(usm_max_size(granularity, SLAB_PAGE));
    for (unsigned i = 0; i < 3; i++) {
        h->piece_shift[i] = h->params.area_size ? log2_ceil(h->params.area_size) : 21 + 2 * i;
        if (h->piece_shift[i] < least)
            h->piece_shift[i] = least;
    }
    h->piece_zone[0] = (size_t)16 << h->piece_shift[0];
    h->piece_zone[1] = (size_t)32 << h->piece_shift[1];
}

void slab_growth_init(slab_heap *h)
{
    size_t   memory = h->params.memory_size / 64;
    uint32_t ms     = h->params.retain_ms ? h->params.retain_ms : DEFAULT_RETAIN_MS;

    memory       = usm_min_size(usm_max_size(memory, SLAB_LEAST_RETAIN), SLAB_MOST_RETAIN);
    h->retain    = h->params.retain ? h->params.retain : memory;
    h->retain_ns = ms * NS_PER_MS;
    init_pieces(h);
}

/* --- waiting --------------------------------------------------------------------------------- */

void slab_wait_settled(slab_heap *h)
{
    int cancel = usm__os_cancel_off(); /* a thread that ended here would keep the lock */

    pthread_cond_wait(&h->settled, &h->lock);
    usm__os_cancel_restore(cancel);
}

static bool is_full_answer(usm_status status)
{
    return status == USM_E_NO_MEMORY || status == USM_E_BUDGET;
}

static usm_status no_host_memory(const slab_heap *h)
{
    return h->params.api->report(USM_E_NO_MEMORY, "no host memory to describe an area's blocks");
}

/* --- holes ----------------------------------------------------------------------------------- */

/* b becomes a HOLE and merges with adjacent holes. */
static void make_hole(slab_heap *h, slab_block *b)
{
    usm_list *at;

    b->use = SLAB_HOLE;
    if (b->upper && b->upper->use == SLAB_HOLE) {
        usm_list_remove(&b->upper->link);
        slab_join_upper(h, b);
    }
    if (b->lower && b->lower->use == SLAB_HOLE) {
        slab_join_upper(h, b->lower);
        return;
    }
    at = b->home->holes.next;
    while (at != &b->home->holes && SLAB_BLOCK_OF(at)->span.base < b->span.base)
        at = at->next;
    usm_list_append(at, &b->link); /* before `at` */
}

/* The part [from, to) of a hole becomes MAPPING, the rest stays a hole. */
static slab_block *cut_hole(slab_heap *h, slab_block *b, uintptr_t from, uintptr_t to)
{
    usm_list *after = b->link.next;

    if (to < SLAB_BLOCK_END(b))
        usm_list_append(after, &slab_split(h, b, to)->link); /* before it */
    if (from > b->span.base)
        b = slab_split(h, b, from);
    else
        usm_list_remove(&b->link);
    b->use = SLAB_MAPPING;
    return b;
}

/* --- ranges: a run that a block fits into ---------------------------------------------------- */

struct run {
    slab_block *first;   /* its lowest block, FREE or HOLE; then ASIDE or MAPPING */
    slab_block *last;    /* the highest one, once the run is the thread's         */
    uintptr_t   start;   /* where the block will begin                            */
    size_t      missing; /* bytes of pieces to map                                */
};

static bool is_available(const slab_block *b)
{
    return b && (b->use == SLAB_FREE || b->use == SLAB_HOLE);
}

/* Measures the run around a hole; false: too small.  *beyond is the first block above it. */
static bool measure_run(const slab_heap *h, slab_block *hole, size_t size, size_t align,
                        struct run *run, slab_block **beyond)
{
    uintptr_t end = 0;

    run->first = is_available(hole->lower) ? hole->lower : hole;
    for (*beyond = run->first; is_available(*beyond); *beyond = (*beyond)->upper)
        end = SLAB_BLOCK_END(*beyond);
    run->start = usm_align_up_ptr(run->first->span.base, align);
    if (run->start > end || end - run->start < size)
        return false;
    run->missing = 0;
    for (slab_block *b = run->first; b != *beyond && b->span.base < run->start + size;
         b             = b->upper) {
        uintptr_t from = usm_max_size(b->span.base, run->start);
        uintptr_t to   = usm_min_size(SLAB_BLOCK_END(b), run->start + size);

        if (b->use == SLAB_HOLE && from < to)
            run->missing +=
                slab_piece_ceil(h, to - b->home->base) - slab_piece_start(h, from - b->home->base);
    }
    return true;
}

/* Finds the lowest run; if memory is short, the one with the fewest bytes to map. */
static bool find_run(const slab_heap *h, const slab_want *w, struct run *best)
{
    bool       found = false;
    struct run run;

    USM_LIST_FOREACH (it, &h->areas) {
        slab_area  *a      = SLAB_AREA_OF(it);
        slab_block *beyond = NULL;

        USM_LIST_FOREACH (hole, &a->holes) {
            slab_block *b = SLAB_BLOCK_OF(hole);

            if (beyond && b->span.base < beyond->span.base)
                continue; /* in the previous run */
            if (measure_run(h, b, w->size, w->align, &run, &beyond) &&
                (!found || run.missing < best->missing)) {
                *best = run;
                found = true;
            }
            if (found && !w->is_frugal)
                return true;
            if (!beyond)
                break; /* the run reached the end */
        }
    }
    return found;
}

/* Takes the part of b that a request for [start, end) needs. */
static slab_block *set_aside(slab_heap *h, slab_block *b, uintptr_t start, uintptr_t end)
{
    uintptr_t base = b->home->base, from, to;

    if (b->use == SLAB_HOLE) {
        from = base + slab_piece_start(h, usm_max_size(b->span.base, start) - base);
        to   = base + slab_piece_ceil(h, usm_min_size(SLAB_BLOCK_END(b), end) - base);
        return cut_hole(h, b, from, to);
    }
    slab_unbin(h, b);
    b->use = SLAB_ASIDE;
    return b;
}

/* Finds a run and sets aside what the request needs of it; false: there is none. */
static bool claim_run(slab_heap *h, const slab_want *w, struct run *run)
{
    slab_block *b;
    uintptr_t   end;

    if (!find_run(h, w, run))
        return false;
    end = run->start + w->size;
    b   = run->first;
    while (SLAB_BLOCK_END(b) <= run->start)
        b = b->upper;
    run->first = run->last = set_aside(h, b, run->start, end);
    while ((b = run->last->upper) && b->span.base < end)
        run->last = set_aside(h, b, run->start, end);
    return true;
}

/* Without the lock, before `more` bytes are taken for a block of `size`: returns idle memory that
 * did not fit, if the heap would otherwise hold considerably more than is used.  Programs whose
 * sizes change from round to round then leave no area of each size behind. */
static void replace_idle(slab_heap *h, size_t size, size_t more)
{
    uint64_t used, most, excess, idle;

    pthread_mutex_lock(&h->lock);
    used   = h->used + size;
    most   = used + used / (can_map(h) ? 32 : 8); /* areas seldom fit as exactly */
    excess = h->held + more > most ? h->held + more - most : 0;
    idle   = h->idle > h->retain ? h->idle - h->retain : 0;
    pthread_mutex_unlock(&h->lock);
    if (excess && idle)
        (void)slab_give_back(h, excess, idle);
}

/* --- ranges: mapping ------------------------------------------------------------------------- */

/* Without the lock.  *done is the end of the mapped part. */
static usm_status map_pieces(slab_heap *h, const slab_block *b, uintptr_t *done)
{
    const slab_source *s      = &h->params.areas;
    usm_status         status = USM_OK;

    for (*done = b->span.base; !status && *done < SLAB_BLOCK_END(b);) {
        size_t offset = *done - b->home->base;

        status = s->map(s->source, b->span.area, offset, piece_size(h, offset));
        if (!status)
            *done += piece_size(h, offset);
    }
    return status;
}

/* After a failure: the part that was mapped, up to `done`, becomes free memory, the rest holes
 * again. */
static void release_run(slab_heap *h, const struct run *run, uintptr_t done)
{
    slab_block *b = run->first, *next;
    bool        is_last;

    do {
        is_last = b == run->last;
        next    = b->upper;
        if (b->use == SLAB_MAPPING && done > b->span.base && done < SLAB_BLOCK_END(b)) {
            slab_block *rest = slab_split(h, b, done);

            h->held += b->span.size;
            slab_make_free(h, b);
            make_hole(h, rest);
        } else if (b->use == SLAB_MAPPING && done < SLAB_BLOCK_END(b)) {
            make_hole(h, b);
        } else {
            h->held += b->use == SLAB_MAPPING ? b->span.size : 0;
            slab_make_free(h, b);
        }
        b = next;
    } while (!is_last);
}

/* All of the run is memory now: makes it one block, and cuts the requested part. */
static slab_block *settle_run(slab_heap *h, const struct run *run, size_t size)
{
    slab_block *first   = run->first;
    bool        is_last = first == run->last;

    h->held += first->use == SLAB_MAPPING ? first->span.size : 0;
    while (!is_last) {
        is_last = first->upper == run->last;
        h->held += first->upper->use == SLAB_MAPPING ? first->upper->span.size : 0;
        slab_join_upper(h, first);
    }
    return slab_carve(h, first, run->start, size);
}

/* Without the lock.  pre: the run is the thread's. */
static usm_status map_run(slab_heap *h, slab_want *w, const struct run *run)
{
    usm_status status = USM_OK;
    uintptr_t  done   = 0;

    replace_idle(h, w->size, run->missing);
    for (slab_block *b = run->first; !status; b = b->upper) {
        if (b->use == SLAB_MAPPING)
            status = map_pieces(h, b, &done);
        if (b == run->last)
            break;
    }
    pthread_mutex_lock(&h->lock);
    if (status)
        release_run(h, run, done);
    else
        slab_hand_out(h, w, settle_run(h, run, w->size));
    pthread_mutex_unlock(&h->lock);
    return status;
}

/* --- ranges: addresses ----------------------------------------------------------------------- */

static size_t largest_range(const slab_heap *h)
{
    size_t size = usm_max_size(usm_min_size(h->params.memory_size, LARGEST_RANGE) * 2, USUAL_RANGE);

    if (h->params.maximum_size && h->params.maximum_size < size / 4)
        size = h->params.maximum_size * 4;
    return usm_max_size(usm_min_size(size, LARGEST_RANGE), FIRST_RANGE);
}

/* A new range has room for several more requests of this size. */
static size_t range_size(const slab_heap *h, size_t least)
{
    size_t most = largest_range(h);
    size_t size = usm_max_size(h->ranges, FIRST_RANGE);

    while (size / 4 < least && size < most)
        size *= 2;
    return usm_max_size(usm_min_size(size, most), least);
}

/* Without the lock.  Reserves `size` bytes of addresses or fewer, at least `least`. */
static usm_status reserve(slab_heap *h, size_t size, size_t least, usm_area **area)
{
    const slab_source *s    = &h->params.areas;
    size_t             unit = (size_t)1 << h->piece_shift[2];
    usm_status         status;

    for (;;) {
        status =
            usm_align_up(size, unit, &size) ? s->reserve(s->source, size, area) : USM_E_NO_MEMORY;
        if (!status || size / 2 < usm_max_size(least, unit) || size / 2 < FIRST_RANGE)
            return status;
        size /= 2;
    }
}

/* Without the lock.  Adds a range, which is one hole, and claims a run in it.  False: there are no
 * addresses. */
static bool add_range(slab_heap *h, const slab_want *w, size_t size, struct run *run)
{
    usm_area  *area       = NULL;
    slab_area *a          = NULL;
    bool       is_refused = reserve(h, size, w->size + w->align, &area) != USM_OK;
    bool       is_claimed = false;

    if (!is_refused && !(a = slab_area_new(h, area->size, true))) {
        h->params.areas.give(h->params.areas.source, area);
        (void)no_host_memory(h);
    }
    pthread_mutex_lock(&h->lock);
    if (is_refused && usm_list_is_empty(&h->areas))
        h->no_range = true;
    if (a) {
        slab_area_start(h, a, area, SLAB_HOLE);
        make_hole(h, a->bottom);
        h->ranges += a->size;
        is_claimed = claim_run(h, w, run);
    }
    pthread_mutex_unlock(&h->lock);
    return is_claimed;
}

/* --- areas ----------------------------------------------------------------------------------- */

static size_t next_area_size(const slab_heap *h, size_t size, bool frugal)
{
    size_t most = LARGEST_AREA, next;

    if (frugal)
        return size;
    if (h->params.area_size)
        return usm_max_size(size, usm_align_up_ptr(h->params.area_size, SLAB_PAGE));
    if (h->params.memory_size)
        most = usm_max_size(usm_min_size(most, h->params.memory_size / 16), FIRST_AREA);
    next = FIRST_AREA;
    while (next < h->held && next < most)
        next *= 2;
    return usm_max_size(size, usm_min_size(next, most));
}

/* Without the lock. */
static usm_status grow_area(slab_heap *h, slab_want *w)
{
    usm_area  *area = NULL;
    slab_area *a    = NULL;
    size_t     wanted;
    usm_status status;

    pthread_mutex_lock(&h->lock);
    wanted = next_area_size(h, w->size, w->is_frugal);
    pthread_mutex_unlock(&h->lock);
    replace_idle(h, w->size, wanted);
    status = h->params.areas.take(h->params.areas.source, wanted, w->align, &area);
    if (status)
        return status;
    a = slab_area_new(h, wanted, false);
    if (!a) {
        h->params.areas.give(h->params.areas.source, area);
        return no_host_memory(h);
    }
    pthread_mutex_lock(&h->lock);
    slab_area_start(h, a, area, SLAB_ASIDE);
    h->held += wanted;
    slab_hand_out(h, w, slab_carve(h, a->bottom, a->base, w->size));
    pthread_mutex_unlock(&h->lock);
    return USM_OK;
}

/* --- growing --------------------------------------------------------------------------------- */

/* Addresses are usually available; if not, the block gets an area. */
static usm_status grow_range(slab_heap *h, slab_want *w)
{
    struct run run = {0};
    bool       is_claimed;
    size_t     size;
    usm_status status;

    pthread_mutex_lock(&h->lock);
    is_claimed = claim_run(h, w, &run);
    size       = range_size(h, w->size + w->align);
    pthread_mutex_unlock(&h->lock);
    if (!is_claimed && !add_range(h, w, size, &run))
        return grow_area(h, w);
    status = map_run(h, w, &run);
    /* A limit may have room for the block but not for a whole piece. */
    if (w->is_frugal && is_full_answer(status))
        status = grow_area(h, w);
    return status;
}

static usm_status grow_once(slab_heap *h, slab_want *w)
{
    usm_status status = slab_spare_ensure(h);

    if (status)
        return status;
    return can_map(h) && !h->no_range ? grow_range(h, w) : grow_area(h, w);
}

/* True if memory that was returned to the heap meanwhile is enough. */
static bool take_returned(slab_heap *h, slab_want *w)
{
    slab_block *b;

    pthread_mutex_lock(&h->lock);
    while (h->gives) /* by other threads: that memory is not available yet */
        slab_wait_settled(h);
    b = slab_take_free(h, w->size, w->align);
    if (b)
        slab_hand_out(h, w, b);
    pthread_mutex_unlock(&h->lock);
    return b != NULL;
}

/* Memory is short: returns idle memory, first about as much as is requested, then all of it, and
 * requests no more than the block needs. */
static usm_status grow_frugally(slab_heap *h, slab_want *w)
{
    uint64_t   enough = w->size;
    usm_status status;

    w->is_frugal = true;
    for (;;) {
        (void)slab_give_back(h, enough, UINT64_MAX);
        status = slab_spare_ensure(h);
        if (status || take_returned(h, w))
            return status;
        status = grow_once(h, w);
        if (!is_full_answer(status) || enough == UINT64_MAX)
            return status;
        enough = UINT64_MAX;
    }
}

void slab_grow(slab_heap *h, slab_want *w)
{
    int        cancel = usm__os_cancel_off();
    usm_status status = grow_once(h, w);

    if (is_full_answer(status))
        status = grow_frugally(h, w);
    if (status)
        w->status = status;
    pthread_mutex_lock(&h->lock);
    h->growing = w->was_growing;
    pthread_cond_broadcast(&h->settled);
    pthread_mutex_unlock(&h->lock);
    usm__os_cancel_restore(cancel);
}

/* --- returning memory ------------------------------------------------------------------------ */

static bool has_idle_pieces(const slab_heap *h, const slab_block *b)
{
    return b->home->is_range && slab_idle_in(h, b) > 0;
}

/* Chooses the highest idle pieces of b: until they are `enough`, never more than `most`. */
static void choose_pieces(const slab_heap *h, const slab_block *b, uint64_t enough, uint64_t most,
                          size_t *low, size_t *high)
{
    size_t bottom = slab_piece_ceil(h, SLAB_OFFSET_OF(b));

    *high = slab_piece_start(h, SLAB_OFFSET_OF(b) + b->span.size);
    *low  = *high;
    while (*low > bottom && *high - *low < enough) {
        size_t start = slab_piece_start(h, *low - 1);

        if (*high - start > most)
            return;
        *low = start;
    }
}

static void unmap_pieces(slab_heap *h, const slab_block *b)
{
    const slab_source *s   = &h->params.areas;
    size_t             end = SLAB_OFFSET_OF(b) + b->span.size;

    for (size_t offset = SLAB_OFFSET_OF(b); offset < end; offset += piece_size(h, offset))
        s->unmap(s->source, b->span.area, offset, piece_size(h, offset));
}

static void end_giving(slab_heap *h)
{
    if (--h->gives == 0)
        pthread_cond_broadcast(&h->settled);
}

/* Makes the highest idle pieces one block, UNMAPPING; NULL: there are none, or none small
 * enough. */
static slab_block *take_pieces(slab_heap *h, uint64_t enough, uint64_t most)
{
    slab_block *b =
        can_map(h) ? slab_bins_highest(&h->bins, (size_t)1 << h->piece_shift[0], has_idle_pieces, h)
                   : NULL;
    size_t low, high;

    if (!b)
        return NULL;
    choose_pieces(h, b, enough, most, &low, &high);
    if (low == high)
        return NULL;
    slab_unbin(h, b);
    b->use = SLAB_UNMAPPING;
    if (high < SLAB_OFFSET_OF(b) + b->span.size)
        slab_make_free(h, slab_split(h, b, b->home->base + high));
    if (low > SLAB_OFFSET_OF(b)) {
        b = slab_split(h, b, b->home->base + low);
        slab_make_free(h, b->lower);
    }
    slab_idle_changed(h);
    h->gives++;
    return b;
}

/* Without the lock.  Returns the highest idle pieces; 0: there are none. */
static size_t give_pieces(slab_heap *h, uint64_t enough, uint64_t most)
{
    slab_block *b;
    size_t      given;

    pthread_mutex_lock(&h->lock);
    while (!slab_has_spares(h)) {
        pthread_mutex_unlock(&h->lock);
        if (slab_spare_ensure(h))
            return 0;
        pthread_mutex_lock(&h->lock);
    }
    b = take_pieces(h, enough, most);
    pthread_mutex_unlock(&h->lock);
    if (!b)
        return 0;
    unmap_pieces(h, b);
    pthread_mutex_lock(&h->lock);
    given = b->span.size;
    h->held -= given;
    make_hole(h, b);
    end_giving(h);
    pthread_mutex_unlock(&h->lock);
    return given;
}

/* Moves the area, which is one block in no list, from the heap to `out`. */
static void take_out(slab_heap *h, slab_area *a, usm_list *out)
{
    slab_spare_give(h, a->bottom);
    a->area->pool_data = NULL;
    usm_list_remove(&a->link);
    usm_list_append(out, &a->link);
}

/* Without the lock.  pre: if there are areas, the thread is counted in `gives`. */
static void give_all(slab_heap *h, usm_list *out)
{
    usm_list *it;

    if (usm_list_is_empty(out))
        return;
    while ((it = usm_list_pop(out))) {
        h->params.areas.give(h->params.areas.source, SLAB_AREA_OF(it)->area);
        slab_area_free(h, SLAB_AREA_OF(it));
    }
    pthread_mutex_lock(&h->lock);
    end_giving(h);
    pthread_mutex_unlock(&h->lock);
}

/* Without the lock.  Returns idle areas, youngest first. */
static size_t give_areas(slab_heap *h, uint64_t enough, uint64_t most)
{
    size_t   given = 0;
    usm_list out, *it, *before;

    usm_list_init(&out);
    pthread_mutex_lock(&h->lock);
    for (it = h->areas.prev; it != &h->areas && given < enough; it = before) {
        slab_area *a = SLAB_AREA_OF(it);

        before = it->prev;
        if (a->is_range || a->bottom->use != SLAB_FREE || a->bottom->span.size != a->size ||
            a->size > most - given)
            continue;
        slab_unbin(h, a->bottom);
        take_out(h, a, &out);
        h->held -= a->size;
        given += a->size;
    }
    slab_idle_changed(h);
    h->gives += given > 0;
    pthread_mutex_unlock(&h->lock);
    give_all(h, &out);
    return given;
}

void slab_give_ranges(slab_heap *h)
{
    int      cancel = usm__os_cancel_off();
    usm_list out;

    usm_list_init(&out);
    pthread_mutex_lock(&h->lock);
    USM_LIST_FOREACH_SAFE (it, next, &h->areas) {
        slab_area *a = SLAB_AREA_OF(it);

        if (a->bottom->use != SLAB_HOLE || a->bottom->span.size != a->size)
            continue;
        usm_list_remove(&a->bottom->link);
        take_out(h, a, &out);
        h->ranges -= a->size;
    }
    h->gives += !usm_list_is_empty(&out);
    pthread_mutex_unlock(&h->lock);
    give_all(h, &out);
    usm__os_cancel_restore(cancel);
}

size_t slab_give_back(slab_heap *h, uint64_t enough, uint64_t most)
{
    int    cancel = usm__os_cancel_off();
    size_t given = give_areas(h, enough, most), more = 1;

    while (given < enough && more) {
        more = give_pieces(h, enough - given, most - given);
        given += more;
    }
    usm__os_cancel_restore(cancel);
    return given;
}

static uint64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t slab_retention_due(slab_heap *h)
{
    uint64_t now = now_ns(), low = h->low;

    if (h->window_ns && now - h->window_ns < h->retain_ns)
        return 0;
    if (!h->window_ns)
        low = 0;
    h->window_ns = now; /* before other threads check: they would return as much again */
    h->low       = h->idle;
    return low > h->retain ? low - h->retain : 0;
}
