/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One block of a pin (spill/pin_private.h): which sectors the access touches and needs, which are
 * worth fetching with them, and the way from any state to pinned.  Called by pin.c. */
#include "spill/pin_private.h"

#define AWAITED_MAX ((size_t)64 << 10)

/* --- geometry ------------------------------------------------------------------------ */

usm__pin_part usm__pin_part_of(const usm__spill *s, const usm__pin *pin, uint32_t block)
{
    size_t        at    = (size_t)block << s->shift;
    size_t        begin = pin->offset > at ? pin->offset - at : 0;
    size_t        end   = pin->offset + pin->size - at;
    size_t        below = s->sector_size - 1;
    usm__pin_part p     = {.space = pin->space, .block = block, .mode = pin->mode};
    uint32_t      last, whole;

    if (end > s->block_size)
        end = s->block_size;
    p.touch.first = (uint32_t)(begin >> s->sector_shift);
    last          = (uint32_t)((end + below) >> s->sector_shift);
    p.touch.count = last - p.touch.first;
    p.cover.first = (uint32_t)((begin + below) >> s->sector_shift);
    /* There is nothing behind the end of the space. */
    whole         = at + end >= pin->space->size ? s->sectors : (uint32_t)(end >> s->sector_shift);
    p.cover.count = whole > p.cover.first ? whole - p.cover.first : 0;
    return p;
}

/* --- one block -------------------------------------------------------------------------- */

usm__sectors usm__pin_needed(const usm__spill *s, const usm__pin_part *p)
{
    usm__sectors run = p->touch;

    if (!(p->mode & USM_NO_INIT))
        return run;
    if (p->cover.count == 0)
        return run;
    if (p->cover.first == p->touch.first) { /* at most its end is not covered */
        run.first = p->cover.first + p->cover.count;
        run.count = run.first < p->touch.first + p->touch.count
                        ? p->touch.first + p->touch.count - run.first
                        : 0;
    } else if (p->cover.first + p->cover.count >= p->touch.first + p->touch.count) {
        run.count = p->cover.first - p->touch.first;
    }
    (void)s;
    return run;
}

/* The whole block, or only the sectors needed: an isolated small access should not pay for a
 * block. */
static usm__sectors worth_fetching(usm__spill *s, const usm__pin_part *p, usm__sectors need,
                                   const usm__frame *f)
{
    usm__space_more   *more = p->space->more;
    const usm__sectors all  = {0, s->sectors};

    if (need.count * 2 >= s->sectors || more->pattern == USM__PATTERN_SEQUENTIAL)
        return all;
    if (usm__block_of(p->space, p->block)->content == USM__CONTENT_COPY &&
        usm__tiers_needs_whole(s->tiers))
        return all;
    if (more->pattern == USM__PATTERN_RANDOM)
        return need;
    if (f ? f->last_end == need.first : usm__prefetch_in_order(more->prefetch))
        return all;
    return need;
}

/* The block was loaded by readahead. */
static void first_use(usm__pin_request *r, const usm__pin_part *p)
{
    usm__spill *s = r->spill;

    s->stats.prefetch_hits++;
    usm__policy_used(s->policy, usm__block_of(p->space, p->block)->frame);
    usm__trace_spill(&(usm__trace_spill_event){.kind  = USM__SPILL_GUESS_USED,
                                               .space = p->space->more->trace,
                                               .mode  = (uint32_t)p->mode,
                                               .block = p->block,
                                               .bytes = s->block_size});
    usm__readahead(s, &r->ahead, p->space, p->block, true);
}

/* True: this is the first use of a block of readahead. */
static bool pin_now(const usm__pin_part *p)
{
    usm__word *word = &p->space->words[p->block];
    uint64_t   old  = usm_load_relaxed(word);
    uint64_t   set  = p->mode & USM_WRITE ? USM__WORD_USED | USM__WORD_DIRTY : USM__WORD_USED;

    while (!atomic_compare_exchange_weak_explicit(
        word, &old, ((old + usm__pin_step(p->mode)) | set) & ~USM__WORD_FRESH, memory_order_seq_cst,
        memory_order_relaxed)) {}
    return old & USM__WORD_FRESH;
}

/* Pins a PARTIAL block whose sectors are in memory, or need not be. */
static bool pin_partial(usm__spill *s, const usm__pin_part *p)
{
    usm__frame *f = &s->frame[usm__block_of(p->space, p->block)->frame];
    bool        is_first;

    if (p->mode & USM_NO_INIT)
        usm__mask_set(&f->present, p->cover.first, p->cover.count);
    if (p->mode & USM_WRITE)
        usm__mask_set(&f->dirty, p->touch.first, p->touch.count);
    if ((p->mode & USM_NO_INIT) && (p->mode & USM_WRITE))
        usm__mask_set(&f->dirty, p->cover.first, p->cover.count);
    is_first    = pin_now(p);
    f->last_end = p->touch.first + p->touch.count;
    if (usm__mask_count(&f->present) == s->sectors)
        usm__word_change(&p->space->words[p->block], USM__BLOCK_RESIDENT, 0, 0);
    return is_first;
}

static usm_status fail_load(const usm__pin_part *p, usm_status status)
{
    const usm__spill *s     = p->space->spill;
    bool              known = s->message_key == p->space->key + p->block;
    const char       *words = known ? s->message : usm_status_string(status);
    char              title[USM__SPACE_TITLE];

    (void)usm__space_title(p->space, title);
    if (status == USM_E_CORRUPT)
        return usm__fail(status,
                         "%s, block %u: the data read back is not what was stored; it is lost, the "
                         "rest of the buffer is not: %s",
                         title, p->block, words);
    if (status == USM_E_NO_MEMORY && !known)
        return usm__fail(status,
                         "%s, block %u: the process has too many mappings (vm.max_map_count); use "
                         "larger blocks (USM_SPILL_BLOCK)",
                         title, p->block);
    return usm__fail(status, "%s, block %u cannot be read: %s", title, p->block, words);
}

/* Whether it is a small read without other work in parallel: then this thread may do the
 * transfer. */
static usm__urgency urgency_of(const usm__pin_request *r, const usm__sectors *need)
{
    bool is_awaited = r->blocks == 1 && r->may_wait &&
                      ((size_t)need->count << r->spill->sector_shift) <= AWAITED_MAX;

    return is_awaited ? USM__AWAITED : USM__WANTED;
}

usm_status usm__pin_fail_room(const usm__pin_part *p, usm_status status)
{
    const usm__spill *s     = p->space->spill;
    bool              known = s->store_status == status && s->store_words[0] != '\0';
    const char       *words = known ? s->store_words : usm_status_string(status);
    char              title[USM__SPACE_TITLE];

    (void)usm__space_title(p->space, title);
    if (status == USM_E_SPILL_FULL)
        return usm__fail(status,
                         "there is no memory for block %u of %s: nothing can be evicted, because "
                         "every tier of USM_SPILL is full: %s; add one, raise a quota or "
                         "USM_MEMORY_LIMIT, or destroy buffers",
                         p->block, title, words);
    return usm__fail(status,
                     "there is no memory for block %u of %s: nothing can be evicted: %s; check the "
                     "tiers of USM_SPILL",
                     p->block, title, words);
}

usm_status usm__pin_fetch(usm__pin_request *r, const usm__pin_part *p)
{
    usm__spill  *s     = r->spill;
    usm__block  *b     = usm__block_of(p->space, p->block);
    usm__sectors need  = usm__pin_needed(s, p);
    bool         reads = need.count != 0;
    usm__load    load  = {.space = p->space, .block = p->block, .needs_content = reads};
    usm_status   st    = USM_OK;
    uint32_t     frame = r->hand;

    r->want.may_wait = r->may_wait && r->phase != USM__PIN_FETCH;
    if (frame != USM__NO_FRAME)
        r->hand = s->frame[frame].next;
    else
        frame = usm__frame_get(s, &r->want, &st, &r->deferred);
    if (frame == USM__NO_FRAME && st == USM_E_SPILL_FULL && b->content == USM__CONTENT_COPY) {
        frame        = usm__frame_take_spare(s);
        load.is_swap = frame != USM__NO_FRAME;
    }
    if (frame == USM__NO_FRAME)
        return st == USM_E_AGAIN || st == USM__DEFERRED ? st : usm__pin_fail_room(p, st);
    load.hint = p->space->more->pattern == USM__PATTERN_SEQUENTIAL ? USM__HINT_SEQUENTIAL
                                                                   : USM__HINT_DEMAND;
    if (!reads && p->cover.count < s->sectors && b->content == USM__CONTENT_COPY &&
        usm__tiers_needs_whole(s->tiers))
        load.needs_content = true;
    load.needs_content = load.needs_content || load.is_swap;
    load.need          = load.is_swap         ? (usm__sectors){0, s->sectors}
                         : load.needs_content ? worth_fetching(s, p, reads ? need : p->touch, NULL)
                                              : p->cover;
    load.urgency       = urgency_of(r, &load.need);
    s->stats.misses++;
    usm__load_absent(s, &load, frame, &r->deferred);
    r->at.has_waited = true;
    r->at.has_read   = load.needs_content;
    r->ahead.cleans  = !r->pinned; /* else once it is pinned */
    if (reads && b->content != USM__CONTENT_ZERO)
        usm__readahead(s, &r->ahead, p->space, p->block, false);
    else
        usm__readahead_passed(s, p->space, p->block);
    return USM__DEFERRED;
}

static void fetch_missing(usm__pin_request *r, const usm__pin_part *p, usm__sectors need)
{
    usm__spill  *s    = r->spill;
    usm__frame  *f    = &s->frame[usm__block_of(p->space, p->block)->frame];
    usm__load    load = {.space = p->space, .block = p->block, .needs_content = true};
    usm__sectors run  = worth_fetching(s, p, need, f);
    bool         all  = run.count == s->sectors;

    load.need    = run;
    load.urgency = urgency_of(r, &run);
    s->stats.misses++;
    usm__load_missing(s, &load, &r->deferred);
    r->at.has_waited = true;
    if (all)
        usm__readahead(s, &r->ahead, p->space, p->block, false);
}

usm_status usm__pin_wait(usm__pin_request *r, uint32_t frame)
{
    if (!r->may_wait)
        return USM_E_AGAIN;
    if (r->started == 0)
        r->started = usm__os_now_ns();
    usm__deferred_sleep(&r->deferred, &r->spill->frame[frame].sleepers, 0);
    return USM__DEFERRED;
}

/* Whether sectors that the access need not read are being read: they would overwrite what it
 * writes. */
static bool is_overtaken(const usm__spill *s, const usm__pin_part *p)
{
    const usm__frame *f = &s->frame[usm__block_of(p->space, p->block)->frame];

    return (p->mode & USM_NO_INIT) && f->state == USM__FRAME_FILLING;
}

/* A block of which some sectors are in memory. */
static usm_status pin_part_of_block(usm__pin_request *r, const usm__pin_part *p)
{
    usm__spill  *s    = r->spill;
    usm__block  *b    = usm__block_of(p->space, p->block);
    usm__frame  *f    = &s->frame[b->frame];
    usm__sectors need = usm__pin_needed(s, p);

    if (usm__mask_has(&f->present, need.first, need.count)) {
        if (pin_partial(s, p))
            first_use(r, p);
        return USM_OK;
    }
    if (usm__frame_is_busy(f)) {
        r->at.has_waited = true;
        return usm__pin_wait(r, b->frame);
    }
    if (r->at.has_waited && b->status != USM_OK)
        return fail_load(p, (usm_status)b->status);
    fetch_missing(r, p, need);
    return USM__DEFERRED;
}

static usm_status pin_absent(usm__pin_request *r, const usm__pin_part *p)
{
    usm_status st = (usm_status)usm__block_of(p->space, p->block)->status;

    if (r->at.has_waited && st != USM_OK &&
        (r->at.has_read || usm__pin_needed(r->spill, p).count != 0))
        return fail_load(p, st);
    return usm__pin_fetch(r, p);
}

usm_status usm__pin_block(usm__pin_request *r, const usm__pin_part *p)
{
    usm__block *b         = usm__block_of(p->space, p->block);
    uint64_t    seen      = usm_load_relaxed(&p->space->words[p->block]);
    unsigned    state     = usm__state_of(seen);
    bool        is_stored = (p->mode & USM_WRITE) && (seen & USM__WORD_STORING);

    if (state == USM__BLOCK_ABSENT)
        return pin_absent(r, p);
    if (is_stored)
        return usm__pin_wait(r, b->frame);
    if (state == USM__BLOCK_RESIDENT) {
        if (pin_now(p))
            first_use(r, p);
        return USM_OK;
    }
    if (state == USM__BLOCK_PARTIAL && !is_overtaken(r->spill, p))
        return pin_part_of_block(r, p);
    r->at.has_waited = true;
    return usm__pin_wait(r, b->frame);
}
