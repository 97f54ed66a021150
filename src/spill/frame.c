/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Frames: which are free, which is the victim of the next eviction, and moving them.  Called by the
 * engine's files.
 *
 * The spare frame.  When the tiers are full and every frame is dirty, a block that is stored on a
 * tier could not be loaded: loading needs a frame, a frame needs an eviction, and the evicted block
 * needs room on a tier.  So the engine keeps one frame unused.  It loads the block into this spare
 * frame, drops the block's copy on the tier, stores a dirty block in the room that this frees, and
 * the frame of that block becomes the next spare.
 *
 * A frame's states, and in brackets the state of its block's word:
 *
 *     EMPTY --> ZERO --+---> LOADING [LOADING] ----------------> HELD [RESIDENT, PARTIAL]
 *       ^        |     |                                          ^  ^  ^
 *       |        v     +---> SWAPPING [LOADING] --> DROPPING -----+  |  +--> STORING
 *       +------ FREE --+                            [RESIDENT]       |       [RESIDENT, PARTIAL]
 *                ^                                                   +-----> FILLING [PARTIAL]
 *                |
 *                +---- LOADING and SWAPPING: the load failed
 *                +---- LEAVING [LEAVING] <--> HELD: evicted; back: its pages could not be moved
 *
 * The pages of a frame are in the arena while it is EMPTY, FREE, ZERO, LOADING or SWAPPING (until
 * the thread that has loaded it has moved them), else in its block's range.  In a space with a view
 * (engine.h) they stay in the arena, unless who made the space has moved them. */
#include "heap/area.h"
#include "spill/internal.h"

#include <errno.h>
#include <string.h>

#define STORE_FAILURES 4  /* failed stores within one request for a frame, before it fails */
#define SPARE_FROM     8  /* frames that an engine has, at least, to keep a spare one      */
#define PLACE_ATTEMPTS 16 /* evictions to free a mapping each                              */

/* --- states -------------------------------------------------------------------------- */

#define TO(state) (1u << USM__FRAME_##state)
#define IN(state) (1u << USM__BLOCK_##state)

/* By state: those that may follow, and those that the block's word may have. */
static const struct {
    uint16_t next, words;
} allowed[] = {
    [USM__FRAME_EMPTY]    = {TO(ZERO), 0},
    [USM__FRAME_FREE]     = {TO(EMPTY) | TO(LOADING) | TO(SWAPPING), 0},
    [USM__FRAME_ZERO]     = {TO(EMPTY) | TO(LOADING) | TO(SWAPPING), 0},
    [USM__FRAME_HELD]     = {TO(FILLING) | TO(STORING) | TO(LEAVING), IN(RESIDENT) | IN(PARTIAL)},
    [USM__FRAME_LOADING]  = {TO(HELD) | TO(FREE), IN(LOADING)},
    [USM__FRAME_SWAPPING] = {TO(DROPPING) | TO(FREE), IN(LOADING)},
    [USM__FRAME_DROPPING] = {TO(HELD), IN(RESIDENT)},
    [USM__FRAME_FILLING]  = {TO(HELD), IN(PARTIAL)},
    [USM__FRAME_STORING]  = {TO(HELD), IN(RESIDENT) | IN(PARTIAL)},
    [USM__FRAME_LEAVING]  = {TO(HELD) | TO(FREE), IN(LEAVING)},
};

bool usm__frame_is_valid(const usm__frame *f, usm__frame_state to)
{
    uint64_t word;

    if (!(allowed[f->state].next >> to & 1) || (to < USM__FRAME_HELD) != (f->space == NULL))
        return false;
    if (!f->space)
        return true;
    word = usm_load_relaxed(&f->space->words[f->block]);
    return (allowed[to].words >> usm__state_of(word) & 1) &&
           !(word & USM__WORD_STORING) == (to != USM__FRAME_STORING) &&
           f == &f->spill->frame[usm__block_of(f->space, f->block)->frame];
}

/* --- free frames -------------------------------------------------------------------- */

void usm__frame_put_free(usm__spill *s, uint32_t frame)
{
    usm__frame *f = &s->frame[frame];

    f->space     = NULL;
    f->is_failed = false;
    if (usm__frame_is_busy(f))
        usm__frame_become(f, USM__FRAME_FREE);
    f->next      = s->free_head;
    s->free_head = frame;
    s->nfree++;
    s->resident--;
}

static uint32_t take_free(usm__spill *s)
{
    uint32_t frame = s->free_head;

    s->free_head = s->frame[frame].next;
    s->nfree--;
    s->resident++;
    return frame;
}

/* A frame that has no memory yet; pre: there is one, and it is charged. */
static uint32_t fill_empty(usm__spill *s)
{
    uint32_t frame = s->empty_head;

    if (frame != USM__NO_FRAME)
        s->empty_head = s->frame[frame].next;
    else
        usm__frames_touch(&s->frames, frame = s->grown++);
    usm__frame_become(&s->frame[frame], USM__FRAME_ZERO);
    s->resident++;
    if (s->peak < s->nfree + s->resident)
        s->peak = (uint32_t)(s->nfree + s->resident);
    return frame;
}

/* Returns the memory of a frame that the caller has taken to the system; it stays charged. */
static void empty(usm__spill *s, uint32_t frame)
{
    usm__frames_drop(&s->frames, frame);
    s->resident--;
    s->frame[frame].next = s->empty_head;
    s->empty_head        = frame;
    usm__frame_become(&s->frame[frame], USM__FRAME_EMPTY);
}

/* Charges one more frame, if there is one and the memory accounting allows it. */
static bool charge(usm__spill *s)
{
    return s->nfree + s->resident + s->record_frames < s->frames.count &&
           usm__quota_add_host(s->owner, s->block_size) == USM_OK;
}

static uint32_t grow(usm__spill *s)
{
    return charge(s) ? fill_empty(s) : USM__NO_FRAME;
}

/* Those that never had memory, and will not get any for now: a neighbour's huge page may have given
 * them some. */
static void empty_rest(usm__spill *s)
{
    while (s->grown < s->nfree + s->resident + s->record_frames) {
        uint32_t frame = s->grown++;

        usm__frames_drop(&s->frames, frame);
        s->frame[frame].next = s->empty_head;
        s->empty_head        = frame;
    }
}

/* Records are paid for before anything else gets a frame: by one that is free, or by what the
 * memory accounting has left. */
static void pay_records(usm__spill *s)
{
    uint32_t need = s->no_growth ? 0 : usm__records_frames(s);

    for (; s->record_frames < need && (s->nfree || charge(s)); s->record_frames++)
        if (s->nfree)
            empty(s, take_free(s));
    empty_rest(s);
}

/* Takes a frame that pays for records, because there is no other. */
static uint32_t borrow_from_records(usm__spill *s)
{
    if (s->record_frames == 0)
        return USM__NO_FRAME;
    s->record_frames--;
    return fill_empty(s);
}

/* Returns the memory of one frame; a status if there is none. */
static usm_status give_one(usm__spill *s, usm__frame_want *want, usm__deferred *d)
{
    usm_status status = USM_OK;
    uint32_t   frame  = s->nfree ? take_free(s) : usm__frame_get(s, want, &status, d);

    if (frame == USM__NO_FRAME)
        return status;
    empty(s, frame);
    usm__quota_sub_host(s->owner, s->block_size);
    return USM_OK;
}

size_t usm__spill_give_back(usm__spill *s, size_t bytes, size_t keep)
{
    usm__frame_want want   = {.may_wait = true, .is_for_others = true};
    usm__deferred   d      = {.frame = NULL};
    usm_status      status = USM_OK;
    size_t          given  = 0;

    usm__mutex_lock(&s->lock);
    s->no_growth++;
    while (status == USM_OK && given < bytes && s->nfree + s->resident > keep >> s->shift) {
        status = give_one(s, &want, &d);
        if (status == USM_OK)
            given += s->block_size;
        if (status != USM__DEFERRED)
            continue;
        usm__mutex_unlock(&s->lock);
        usm__deferred_do(s, &d);
        usm__mutex_lock(&s->lock);
        status = USM_OK;
    }
    s->no_growth--;
    usm__mutex_unlock(&s->lock);
    return given;
}

/* --- eviction ------------------------------------------------------------------------ */

usm__policy_look usm__frame_look(void *spill, uint32_t frame)
{
    usm__spill *s     = spill;
    usm__frame *f     = &s->frame[frame];
    usm__block *b     = usm__block_of(f->space, f->block);
    usm__word  *word  = &f->space->words[f->block];
    uint64_t    seen  = usm_load_relaxed(word);
    unsigned    state = usm__state_of(seen);

    if (usm__frame_is_busy(f) || f->is_failed || b->kept != 0 || (seen & USM__WORD_PINS) ||
        (state != USM__BLOCK_RESIDENT && state != USM__BLOCK_PARTIAL))
        return USM__LOOK_PINNED;
    if (seen & USM__WORD_USED) {
        usm__word_change(word, -1, 0, USM__WORD_USED);
        usm__trace_spill(&(usm__trace_spill_event){
            .kind = USM__SPILL_USED, .space = f->space->more->trace, .block = f->block});
        return USM__LOOK_USED;
    }
    return (seen & USM__WORD_DIRTY) || b->must_store ? USM__LOOK_DIRTY : USM__LOOK_IDLE;
}

void usm__frame_forgive(usm__spill *s)
{
    s->is_failing = false;
    for (uint32_t i = 0; i < s->grown; i++)
        s->frame[i].is_failed = false;
}

static bool take_idle(usm__word *word)
{
    uint64_t old = usm_load_relaxed(word);

    do {
        unsigned state = usm__state_of(old);

        if ((old & (USM__WORD_PINS | USM__WORD_DIRTY | USM__WORD_STORING)) ||
            (state != USM__BLOCK_RESIDENT && state != USM__BLOCK_PARTIAL))
            return false;
    } while (!usm_cas_acq_rel(word, &old, (old & ~USM__WORD_STATE) | USM__BLOCK_LEAVING));
    return true;
}

static void count_leaving(usm__spill *s, usm__frame *f)
{
    usm__space_more *more    = f->space->more;
    uint64_t         word    = usm_load_relaxed(&f->space->words[f->block]);
    bool             is_lost = word & USM__WORD_FRESH; /* loaded by readahead, and not used */

    s->stats.evicted_clean++;
    if (is_lost) {
        s->stats.prefetch_wasted++;
        usm__readahead_wasted(s, f->space, f->block);
    }
    usm__trace_spill(&(usm__trace_spill_event){.kind  = is_lost         ? USM__SPILL_GUESS_WASTED
                                                        : f->was_wanted ? USM__SPILL_EVICT_DIRTY
                                                                        : USM__SPILL_EVICT_CLEAN,
                                               .space = more->trace,
                                               .block = f->block,
                                               .bytes = s->block_size});
}

bool usm__frame_leave(usm__spill *s, uint32_t frame, bool is_evicted, usm__deferred *d)
{
    usm__frame *f = &s->frame[frame];

    if (usm__frame_is_busy(f) || (is_evicted && usm__block_of(f->space, f->block)->must_store) ||
        !take_idle(&f->space->words[f->block]))
        return false;
    usm__frame_become(f, USM__FRAME_LEAVING);
    f->is_evicted = is_evicted;
    f->space->more->busy++;
    d->frame = f;
    return true;
}

/* The pages are in the arena again. */
static void free_left(usm__spill *s, usm__frame *f)
{
    uint32_t    frame = (uint32_t)(f - s->frame);
    usm__space *space = f->space;

    if (f->is_evicted)
        count_leaving(s, f);
    usm__policy_remove(s->policy, frame, f->is_evicted);
    usm__block_of(space, f->block)->frame = USM__NO_FRAME;
    space->more->resident--;
    usm__word_change(&space->words[f->block], USM__BLOCK_ABSENT, 0,
                     USM__WORD_FRESH | USM__WORD_USED);
    usm__frame_put_free(s, frame);
}

void usm__frame_take_back(usm__spill *s, usm__frame *f)
{
    usm__space      *space = f->space;
    const usm__view *view  = space->more->view;
    uint32_t         frame = (uint32_t)(f - s->frame);
    int              rc = view ? view->take(view->user, f->block, usm__frames_at(&s->frames, frame))
                               : usm__frames_take(&s->frames, frame, usm__block_at(space, f->block));

    usm__mutex_lock(&s->lock);
    if (rc == 0) {
        free_left(s, f);
    } else { /* its pages have not moved: others are tried before it */
        usm__word_change(&space->words[f->block], (int)usm__frame_content(f), USM__WORD_USED, 0);
        usm__frame_become(f, USM__FRAME_HELD);
    }
    usm__space_unbusy(space);
    usm__spill_changed(s);
    usm__mutex_unlock(&s->lock);
}

/* Begins to evict a clean block; false: there is none. */
static bool evict_clean(usm__spill *s, usm__deferred *d)
{
    uint32_t frame = usm__policy_victim(s->policy, false, usm__frame_look, s);

    return frame != USM__NO_FRAME && usm__frame_leave(s, frame, true, d);
}

/* No frame can be evicted: waits for what is under way.  A status if nothing is. */
static usm_status wait_for_room(usm__spill *s, uint64_t failures, usm__deferred *d)
{
    if (s->loads || s->stores) {
        usm__deferred_sleep(d, &s->for_room, 0);
        return USM__DEFERRED;
    }
    if (!s->is_failing)
        return USM_E_AGAIN;
    if (s->store_failures != failures)
        return s->store_status;
    usm__frame_forgive(s); /* each is tried once more, for this request */
    return USM__DEFERRED;
}

/* One step towards a free or clean frame; a status if there is no further step. */
static usm_status make_room(usm__spill *s, uint64_t failures, usm__deferred *d)
{
    uint32_t frame = usm__policy_victim(s->policy, true, usm__frame_look, s);

    if (s->store_failures - failures >= STORE_FAILURES)
        return s->store_status;
    if (frame == USM__NO_FRAME)
        return wait_for_room(s, failures, d);
    if (usm__frame_leave(s, frame, true, d))
        return USM__DEFERRED;
    if (s->stores >= usm__tiers_depth(s->tiers))
        usm__deferred_sleep(d, &s->for_room, 0);
    else if (usm__store_start(s, frame, USM__WANTED, d))
        s->stats.evicted_dirty++;
    return USM__DEFERRED; /* the block may be in use again, or its store end at once: look again  */
}

/* One step without a wait, if the request may not wait. */
static usm_status step(usm__spill *s, usm__frame_want *w, usm__deferred *d)
{
    /* A clean block of which the pages could not be moved is no clean block to such a request. */
    if ((w->may_wait || !w->has_evicted) && evict_clean(s, d)) {
        w->has_evicted = true;
        return USM__DEFERRED;
    }
    return w->may_wait ? make_room(s, w->failures, d) : USM_E_AGAIN;
}

/* Keeps the first free frame as the spare. */
static uint32_t keep_spare(usm__spill *s, uint32_t frame)
{
    if (frame == USM__NO_FRAME || s->spare != USM__NO_FRAME || s->frames.count < SPARE_FROM)
        return frame;
    s->spare = frame;
    return USM__NO_FRAME;
}

uint32_t usm__frame_take_spare(usm__spill *s)
{
    uint32_t frame = s->spare;

    s->spare = USM__NO_FRAME;
    return frame;
}

/* No frame can be had otherwise, because of `status`. */
static uint32_t take_kept(usm__spill *s, const usm__frame_want *w, usm_status status)
{
    uint32_t frame = w->is_for_others ? USM__NO_FRAME : borrow_from_records(s);

    return frame == USM__NO_FRAME && status == USM_E_AGAIN ? usm__frame_take_spare(s) : frame;
}

/* A frame that has no block; the first such frame becomes the spare. */
static uint32_t take_unused(usm__spill *s)
{
    pay_records(s);
    for (;;) {
        uint32_t frame = s->nfree ? take_free(s) : s->no_growth ? USM__NO_FRAME : grow(s);
        uint32_t kept  = keep_spare(s, frame);

        if (kept == frame)
            return frame;
    }
}

uint32_t usm__frame_get(usm__spill *s, usm__frame_want *w, usm_status *status, usm__deferred *d)
{
    uint32_t frame = take_unused(s);

    if (!w->has_begun) {
        w->failures    = s->store_failures;
        w->has_evicted = false;
    }
    if (frame == USM__NO_FRAME) {
        *status = step(s, w, d);
        if (*status != USM__DEFERRED && w->may_wait) /* better used than kept */
            frame = take_kept(s, w, *status);
    }
    w->has_begun = frame == USM__NO_FRAME && *status == USM__DEFERRED;
    return frame;
}

/* --- moving ----------------------------------------------------------------------------- */

char *usm__frame_data(const usm__spill *s, const usm__frame *f)
{
    const usm__view *view  = f->space->more->view;
    uint32_t         frame = (uint32_t)(f - s->frame);

    return view ? view->protect(view->user, f->block, usm__frames_at(&s->frames, frame))
                : usm__block_at(f->space, f->block);
}

/* A process may have 65,530 mappings, and each block in memory is one: after ENOMEM, other blocks
 * are evicted first. */
int usm__frame_place(usm__spill *s, uint32_t frame)
{
    usm__frame *f  = &s->frame[frame];
    char       *at = usm__block_at(f->space, f->block);
    int         rc = 0;

    if (!f->space->more->view) /* else the frame stays in the arena */
        rc = usm__frames_put(&s->frames, frame, at);
    for (int i = 0; rc == ENOMEM && i < PLACE_ATTEMPTS; i++) {
        usm__deferred d = {.frame = NULL};

        usm__mutex_lock(&s->lock);
        (void)evict_clean(s, &d);
        usm__mutex_unlock(&s->lock);
        usm__deferred_do(s, &d);
        rc = usm__frames_put(&s->frames, frame, at);
    }
    return rc;
}
