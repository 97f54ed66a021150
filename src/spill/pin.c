/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pins of many blocks, all or nothing, and waiting for frames; for one block see pin_block.c.
 *
 * No deadlock.  A thread that finds no frame first releases what this call has pinned.  It then
 * takes the ticket (`turn`), if no other thread has it, and waits.  Until the thread with the
 * ticket has all its blocks, every other request that is not completely resident waits without
 * pinning any.  A thread with the ticket waits for the accesses of others for spill_wait at most;
 * then it fails with USM_E_AGAIN, and the message names these accesses.  The time in which other
 * threads had the ticket does not count, as long as they got their memory.
 *
 * Write without fetch (NO_INIT).  Once such a block has a frame, its old content is lost.  An
 * access of several blocks must not fail after that.  Therefore these blocks ("hollow") are pinned
 * last, when everything else is pinned and their frames have been taken.
 *
 * Called by src/buffer, and by commit.c and advise.c. */
#include "base/part.h"
#include "spill/describe.h"
#include "spill/pin_private.h"

#include <stdio.h>

#define MARKS_INLINE 64 /* blocks of an access that needs no heap memory */

/* What a request has done to a block: HELD is a pin without a mode. */
enum { MARK_NONE = 0, MARK_PINNED = 1, MARK_HELD = 2 };

/* --- pins of many blocks ------------------------------------------------------------------- */

/* Calls a function for each block of the request in order, with its running number. */
typedef usm_status visit(usm__pin_request *r, const usm__pin *pin, uint32_t block, size_t number);

static usm_status each_block(usm__pin_request *r, visit *fn)
{
    size_t number = 0;

    for (size_t i = 0; i < r->n; i++)
        for (uint32_t b = usm__pin_first(&r->list[i]); b <= usm__pin_last(&r->list[i]); b++) {
            usm_status st = fn(r, &r->list[i], b, number++);

            if (st != USM_OK)
                return st;
        }
    return USM_OK;
}

/* A pin of a block of which a thread awaits the end has ended.  Lock held. */
static void pin_ended(usm__space *space, uint32_t block)
{
    if (usm_load_relaxed(&space->words[block]) & USM__WORD_PINS)
        return; /* the end of the last pin finds the mark */
    usm__word_change(&space->words[block], -1, 0, USM__WORD_AWAITED);
    usm__spill_released(space->spill);
}

/* As usm__word_unpin(), with the lock held. */
static usm_status unpin_marked(usm__pin_request *r, const usm__pin *pin, uint32_t block,
                               size_t number)
{
    usm_access_mode mode = r->marks[number] == MARK_HELD ? USM_READ : pin->mode;

    if (r->marks[number] != MARK_NONE &&
        (atomic_fetch_sub_explicit(&pin->space->words[block], usm__pin_step(mode),
                                   memory_order_release) &
         USM__WORD_AWAITED))
        pin_ended(pin->space, block);
    r->marks[number] = MARK_NONE;
    return USM_OK;
}

/* Whether the block will lose its content, and nothing of it need be fetched. */
static bool is_unfetched(const usm__spill *s, const usm__pin_part *p)
{
    return (p->mode & USM_NO_INIT) && usm__pin_needed(s, p).count == 0 &&
           usm__state_of(usm_load_relaxed(&p->space->words[p->block])) != USM__BLOCK_RESIDENT;
}

/* Pins the blocks that are not written without fetch.  In an access of several blocks those at its
 * ends are loaded whole, so that they lose nothing if the access fails. */
static usm_status pin_solid(usm__pin_request *r, const usm__pin *pin, uint32_t block, size_t number)
{
    usm__pin_part p  = usm__pin_part_of(r->spill, pin, block);
    usm_status    st = USM_OK;

    if (usm__word_pin_hit(&pin->space->words[block], pin->mode)) {
        r->marks[number] = MARK_PINNED;
    } else if (!is_unfetched(r->spill, &p)) {
        if (r->blocks > 1)
            p.mode = (usm_access_mode)(p.mode & ~(unsigned)USM_NO_INIT);
        st               = usm__pin_block(r, &p);
        r->marks[number] = st == USM_OK;
    }
    return st;
}

static usm_status take_in_hand(usm__pin_request *r, const usm__pin_part *p)
{
    usm__spill *s     = r->spill;
    usm_status  st    = USM_OK;
    uint32_t    frame = usm__frame_get(s, r->may_wait, &st);

    if (frame == USM__NO_FRAME)
        return st == USM_E_AGAIN ? st : usm__pin_fail_room(p, st);
    s->frame[frame].next = r->hand;
    r->hand              = frame;
    return USM_OK;
}

/* Makes sure that a block written without fetch cannot fail later for lack of a frame: for an
 * absent block it takes a frame, a partial one gets a pin without a mode. */
static usm_status secure(usm__pin_request *r, const usm__pin *pin, uint32_t block, size_t number)
{
    usm__word    *word = &pin->space->words[block];
    usm__pin_part p    = usm__pin_part_of(r->spill, pin, block);
    usm_status    st   = USM_OK;

    while (r->marks[number] == MARK_NONE && st == USM_OK) {
        unsigned state = usm__state_of(usm_load_relaxed(word));

        if (state == USM__BLOCK_RESIDENT) {
            st               = usm__pin_block(r, &p);
            r->marks[number] = st == USM_OK ? MARK_PINNED : MARK_NONE;
        } else if (state == USM__BLOCK_PARTIAL) {
            (void)atomic_fetch_add(word, USM__WORD_PIN);
            r->marks[number] = MARK_HELD;
        } else if (state == USM__BLOCK_ABSENT) {
            st = take_in_hand(r, &p);
            if (usm__state_of(usm_load_relaxed(word)) == USM__BLOCK_ABSENT)
                return st;
        } else if (!r->may_wait) {
            st = USM_E_AGAIN;
        } else {
            usm__pin_wait(r, usm__block_of(pin->space, block)->frame);
        }
    }
    return st;
}

static usm_status pin_unfetched(usm__pin_request *r, const usm__pin *pin, uint32_t block,
                                size_t number)
{
    usm__pin_part p = usm__pin_part_of(r->spill, pin, block);
    usm_status    st;

    if (r->marks[number] == MARK_PINNED)
        return USM_OK;
    st = usm__pin_block(r, &p);
    if (st != USM_OK)
        return st;
    if (r->marks[number] == MARK_HELD)
        (void)atomic_fetch_sub(&pin->space->words[block], USM__WORD_PIN);
    r->marks[number] = MARK_PINNED;
    return USM_OK;
}

/* After the first of these blocks the access can no longer be undone, so transfers under way are
 * waited for. */
static usm_status pin_all_unfetched(usm__pin_request *r)
{
    bool       may_wait = r->may_wait;
    usm_status st;

    r->may_wait = true;
    st          = each_block(r, pin_unfetched);
    r->may_wait = may_wait;
    return st;
}

static void empty_hand(usm__pin_request *r)
{
    while (r->hand != USM__NO_FRAME) {
        uint32_t frame = r->hand;

        r->hand = r->spill->frame[frame].next;
        usm__frame_put_free(r->spill, frame);
    }
}

/* Lock held, and released meanwhile by what it calls. */
static usm_status pin_in_turn(usm__pin_request *r)
{
    usm_status st = each_block(r, pin_solid);

    if (st == USM_OK)
        st = each_block(r, secure);
    if (st == USM_OK)
        st = pin_all_unfetched(r);
    empty_hand(r);
    if (st != USM_OK)
        (void)each_block(r, unpin_marked);
    return st;
}

/* Begins to fetch the absent blocks, so that the medium gets all requests at once. */
static usm_status begin_fetch(usm__pin_request *r, const usm__pin *pin, uint32_t block,
                              size_t number)
{
    usm__pin_part p          = usm__pin_part_of(r->spill, pin, block);
    bool          from_store = false;

    (void)number;
    if (usm__state_of(usm_load_relaxed(&pin->space->words[block])) != USM__BLOCK_ABSENT ||
        is_unfetched(r->spill, &p))
        return USM_OK;
    if (r->blocks > 1)
        p.mode = (usm_access_mode)(p.mode & ~(unsigned)USM_NO_INIT);
    if (r->spill->loads >= 2 * usm__tiers_depth(r->spill->tiers))
        return USM_E_AGAIN;
    return usm__pin_fetch(r, &p, &from_store);
}

static void fetch_all(usm__pin_request *r)
{
    r->is_trying = true;
    (void)each_block(r, begin_fetch);
    r->is_trying = false;
}

/* --- which accesses hold memory --------------------------------------------------------------- */

#define HOLDERS 4

static usm_status fail_held(usm__spill *s)
{
    usm__spill_holder list[HOLDERS];
    size_t            n = usm__spill_holders(s, list, HOLDERS);
    char              text[320];
    size_t            at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < n && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\"%s\" %llu KiB%s", i ? ", " : "",
                               list[i].name[0] ? list[i].name : "(unnamed)",
                               (unsigned long long)list[i].bytes >> 10,
                               list[i].is_kept ? " by USM_BUFFER_PIN" : "");
    return usm__fail(
        USM_E_AGAIN,
        "all %llu KiB for buffers are held by open accesses and commands (%s); end some, "
        "take smaller ranges, or raise USM_MEMORY_LIMIT",
        (unsigned long long)(s->resident << s->shift) >> 10, n ? text : "none is known");
}

/* Asks for a wake-up at the end of each pin. */
static void await_unpins(usm__spill *s)
{
    for (uint32_t i = 0; i < s->grown; i++) {
        usm__frame *f = &s->frame[i];

        if (f->space && (usm_load_relaxed(&f->space->words[f->block]) & USM__WORD_PINS))
            usm__word_change(&f->space->words[f->block], -1, USM__WORD_AWAITED, 0);
    }
}

/* Sleeps if nothing was released since *seen was noted; then marks pins, and notes *seen: the
 * caller must look for frames once more before it sleeps (engine.c). */
static void await_frames(usm__spill *s, uint64_t *seen, uint32_t timeout_ms)
{
    if (s->releases == *seen)
        usm__spill_sleep(s, &s->for_room, timeout_ms);
    await_unpins(s);
    *seen = s->releases;
}

void usm__spill_await_frames(usm__spill *s, uint64_t *seen, uint32_t timeout_ms)
{
    usm__mutex_lock(&s->lock);
    await_frames(s, seen, timeout_ms);
    usm__mutex_unlock(&s->lock);
}

/* A thread that gets the ticket has waited for others, who got their memory: its time starts again.
 * But if a thread with the ticket got no memory, it waited for what all wait for, and the time does
 * not start again. */
static void set_deadline(usm__pin_request *r, uint64_t now)
{
    usm__spill *s         = r->spill;
    bool        is_turned = s->turn == r && !r->has_turned && s->held == r->held;

    if (r->deadline == 0) {
        r->held = s->held;
        r->seen = USM__SEEN_NOTHING;
    }
    if (r->deadline == 0 || is_turned)
        r->deadline = now + (uint64_t)s->wait_ms * 1000000;
    r->has_turned |= s->turn == r;
}

/* pre: the request has no pins.  False: it has waited too long. */
static bool wait_for_frames(usm__pin_request *r)
{
    usm__spill *s   = r->spill;
    uint64_t    now = usm__os_now_ns();
    uint64_t    left;

    if (r->started == 0)
        r->started = now;
    set_deadline(r, now);
    left = r->deadline > now ? (r->deadline - now) / 1000000 + 1 : 0;
    if (left == 0 && (s->turn == r || s->held != r->held)) {
        s->held += s->turn == r;
        return false;
    }
    left = left ? left : s->wait_ms + (uint64_t)1;
    if (s->turn == r) {
        await_frames(s, &r->seen, (uint32_t)left);
    } else {
        usm__spill_sleep(s, &s->for_turn, (uint32_t)left);
        r->seen = USM__SEEN_NOTHING;
    }
    return true;
}

/* Whether the engine could have more frames if other parts did not use up the limit. */
static bool may_ask_others(const usm__pin_request *r)
{
    const usm__spill *s = r->spill;

    return !r->has_asked && (s->grown < s->frames.count || s->empty_head != USM__NO_FRAME);
}

/* Lock held.  r->asks: other parts are to be asked for memory, without it, before the next try. */
static usm_status pin_all(usm__pin_request *r)
{
    usm__spill *s = r->spill;
    usm_status  st;

    for (;;) {
        if (s->turn && s->turn != r && !r->is_past_turn) {
            st = USM_E_AGAIN;
        } else {
            if (r->may_wait)
                fetch_all(r);
            st = pin_in_turn(r);
        }
        if (st != USM_E_AGAIN)
            return st;
        if (!r->may_wait)
            return usm__fail(st, "the access would have to wait for memory or storage");
        r->asks = may_ask_others(r);
        if (r->asks)
            return st;
        if (r->is_hasty)
            return usm__fail(st, "other accesses hold the memory at present");
        if (!s->turn)
            s->turn = r;
        if (!wait_for_frames(r))
            return fail_held(s);
        r->has_asked = false;
    }
}

/* A thread waited for memory: traces whose accesses held it. */
static void trace_pinned(usm__spill *s, uint64_t ns)
{
    USM_LIST_FOREACH (it, &s->spaces) {
        const usm__space_more *more   = usm_container_of(it, usm__space_more, link);
        uint64_t               pinned = 0;

        for (uint32_t i = 0; i < s->grown; i++) {
            const usm__frame *f = &s->frame[i];

            if (f->space && f->space->more == more &&
                (usm_load_relaxed(&f->space->words[f->block]) & USM__WORD_PINS))
                pinned += s->block_size;
        }
        if (pinned)
            usm__trace_spill(&(usm__trace_spill_event){
                .kind = USM__SPILL_PINNED, .space = more->trace, .bytes = pinned, .ns = ns});
    }
}

static void end_wait(usm__pin_request *r)
{
    usm__spill *s = r->spill;
    uint64_t    ns;

    if (s->turn == r) {
        s->turn = NULL;
        usm__spill_wake(&s->for_turn);
        usm__spill_released(s); /* hasty requests wait for frames, not for the ticket */
    }
    if (r->started == 0)
        return;
    ns = usm__os_now_ns() - r->started;
    s->stats.wait_ns += ns;
    if (r->deadline && usm__trace_is_on())
        trace_pinned(s, ns);
    usm__trace_spill(&(usm__trace_spill_event){.kind  = USM__SPILL_MISS,
                                               .space = r->list[0].space->more->trace,
                                               .mode  = (uint32_t)r->list[0].mode,
                                               .block = usm__pin_first(&r->list[0]),
                                               .bytes = r->list[0].size,
                                               .ns    = ns});
}

static usm_status pin_hit(usm__pin_request *r, const usm__pin *pin, uint32_t block, size_t number)
{
    r->marks[number] = usm__word_pin_hit(&pin->space->words[block], pin->mode);
    return r->marks[number] ? USM_OK : USM_E_AGAIN;
}

static usm_status unpin_hit(usm__pin_request *r, const usm__pin *pin, uint32_t block, size_t number)
{
    if (r->marks[number] != MARK_NONE)
        usm__word_unpin(pin->space, block, pin->mode);
    r->marks[number] = MARK_NONE;
    return USM_OK;
}

static bool hit_all(usm__pin_request *r)
{
    if (each_block(r, pin_hit) == USM_OK)
        return true;
    (void)each_block(r, unpin_hit);
    return false;
}

static usm_status check_size(usm__pin_request *r)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t n = usm__pin_last(&r->list[i]) - usm__pin_first(&r->list[i]) + (size_t)1;

        r->blocks += n;
        if (n > r->spill->frames.count && !r->list[i].space->is_foreign)
            return usm__fail(USM_E_BUDGET,
                             "an access to %zu KiB is more than the %llu KiB that buffers may have "
                             "in memory; take smaller ranges or raise USM_MEMORY_LIMIT",
                             r->list[i].size >> 10, (unsigned long long)r->spill->limit >> 10);
    }
    return USM_OK;
}

/* Returns a failure to store that no thread waited for, once. */
static usm_status take_late(const usm__pin_request *r)
{
    for (size_t i = 0; i < r->n; i++) {
        usm__space_more *more = r->list[i].space->more;
        usm_status       late = more->late;
        char             title[USM__SPACE_TITLE];

        more->late = USM_OK;
        if (late != USM_OK)
            return usm__fail(
                late,
                "a part of %s could not be stored when it was to be evicted; nothing is lost: it "
                "stays in memory and is tried again; check the tiers of USM_SPILL: %s",
                usm__space_title(r->list[i].space, title), r->spill->store_words);
    }
    return USM_OK;
}

static usm_status pin(usm__pin_request *r)
{
    usm__spill *s = r->spill;
    usm_status  st;

    if (hit_all(r))
        return USM_OK;
    if (s->fork_generation != usm__fork_generation())
        return usm__fail(USM_E_FORKED,
                         "buffers of the parent process cannot be accessed after fork()");
    usm__mutex_lock(&s->lock);
    st = take_late(r);
    if (st == USM_OK)
        st = pin_all(r);
    while (r->asks) {
        bool had_turn = s->turn == r;

        r->asks      = false;
        r->has_asked = true;
        if (had_turn)
            s->turn = NULL; /* the eviction of other parts needs a frame */
        usm__mutex_unlock(&s->lock);
        (void)usm__parts_memory_starved(s->owner, r->blocks << s->shift);
        usm__mutex_lock(&s->lock);
        if (had_turn && !s->turn)
            s->turn = r;
        st = pin_all(r);
    }
    end_wait(r);
    usm__mutex_unlock(&s->lock);
    return st;
}

static usm_status pin_list(usm__spill *s, size_t n, const usm__pin *list, bool is_hasty,
                           bool is_past_turn)
{
    unsigned char    few[MARKS_INLINE] = {0};
    usm__pin_request r                 = {.spill        = s,
                                          .n            = n,
                                          .list         = list,
                                          .may_wait     = true,
                                          .is_hasty     = is_hasty,
                                          .is_past_turn = is_past_turn,
                                          .hand         = USM__NO_FRAME};
    usm_status       st                = check_size(&r);

    if (st != USM_OK)
        return st;
    for (size_t i = 0; i < n; i++)
        r.may_wait = r.may_wait && !(list[i].mode & USM_NO_WAIT);
    r.marks = r.blocks <= MARKS_INLINE ? few : usm__heap_alloc(r.blocks);
    if (!r.marks)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for an access of %zu blocks", r.blocks);
    st = pin(&r);
    if (r.marks != few)
        usm__heap_free(r.marks);
    return st;
}

usm_status usm__spill_pin(usm__spill *s, size_t n, const usm__pin *list)
{
    return pin_list(s, n, list, false, false);
}

usm_status usm__spill_pin_hastily(usm__spill *s, const usm__pin *pin, bool is_past_turn)
{
    return pin_list(s, 1, pin, true, is_past_turn);
}

void usm__space_unpin(usm__space *space, size_t offset, size_t size, usm_access_mode mode)
{
    const usm__pin pin = {space, offset, size, mode};

    for (uint32_t b = usm__pin_first(&pin); b <= usm__pin_last(&pin); b++)
        usm__word_unpin(space, b, mode);
}

void usm__space_unpin_awaited(usm__space *space, uint32_t block)
{
    usm__spill *s = space->spill;

    usm__mutex_lock(&s->lock);
    pin_ended(space, block);
    usm__mutex_unlock(&s->lock);
}

bool usm__space_is_pinned(usm__space *space, size_t offset, size_t size, bool writers_only)
{
    const usm__pin pin  = {space, offset, size, USM_READ};
    uint64_t       mask = writers_only ? USM__WORD_WRITERS : USM__WORD_PINS;

    for (uint32_t b = usm__pin_first(&pin); b <= usm__pin_last(&pin); b++)
        if (atomic_load_explicit(&space->words[b], memory_order_seq_cst) & mask)
            return true;
    return false;
}
