/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Pins of many blocks, all or nothing, and waiting for frames; for one block see pin_block.c.
 *
 * No deadlock.  A thread that finds no frame first releases what this call has pinned.  It then
 * takes the ticket, if no other thread has it, and waits.  Until the thread with the
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

typedef usm_status visit(usm__pin_request *r, const usm__pin *pin, uint32_t block, size_t number);

static void go_to_start(usm__pin_request *r)
{
    r->at   = (usm__pin_at){.block = usm__pin_first(&r->list[0])};
    r->want = (usm__frame_want){.may_wait = false};
}

static void go_on(usm__pin_request *r)
{
    usm__pin_at next = {.pin = r->at.pin, .number = r->at.number + 1, .block = r->at.block + 1};

    if (r->at.block == usm__pin_last(&r->list[next.pin]) && ++next.pin < r->n)
        next.block = usm__pin_first(&r->list[next.pin]);
    r->at   = next;
    r->want = (usm__frame_want){.may_wait = false};
}

/* Calls a function for each block of the request in order, from the next one on, with its running
 * number.  Before each, what the block before has found to be read ahead is begun. */
static usm_status each_block(usm__pin_request *r, visit *fn)
{
    for (;;) {
        usm_status st;

        if (usm__readahead_go(r->spill, &r->ahead, &r->deferred))
            return USM__DEFERRED;
        if (r->at.pin == r->n)
            break;
        st = fn(r, &r->list[r->at.pin], r->at.block, r->at.number);
        if (st != USM_OK)
            return st;
        go_on(r);
    }
    go_to_start(r);
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
static void unpin_marked(usm__pin_request *r, const usm__pin *pin, uint32_t block, size_t number)
{
    usm_access_mode mode = r->marks[number] == MARK_HELD ? USM_READ : pin->mode;

    if (r->marks[number] != MARK_NONE &&
        (atomic_fetch_sub_explicit(&pin->space->words[block], usm__pin_step(mode),
                                   memory_order_release) &
         USM__WORD_AWAITED))
        pin_ended(pin->space, block);
    r->marks[number] = MARK_NONE;
}

/* Whether the block will lose its content, and nothing of it need be fetched. */
static bool is_unfetched(const usm__spill *s, const usm__pin_part *p)
{
    return (p->mode & USM_NO_INIT) && usm__pin_needed(s, p).count == 0 &&
           usm__state_of(usm_load_relaxed(&p->space->words[p->block])) != USM__BLOCK_RESIDENT;
}

/* PIN_SOLID.  In an access of several blocks those at its ends are loaded whole, so that they lose
 * nothing if the access fails. */
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
        r->marks[number] = st == USM_OK ? MARK_PINNED : MARK_NONE;
    }
    return st;
}

static usm_status take_in_hand(usm__pin_request *r, const usm__pin_part *p)
{
    usm__spill *s  = r->spill;
    usm_status  st = USM_OK;
    uint32_t    frame;

    r->want.may_wait = r->may_wait;
    frame            = usm__frame_get(s, &r->want, &st, &r->deferred);
    if (frame == USM__NO_FRAME)
        return st == USM_E_AGAIN || st == USM__DEFERRED ? st : usm__pin_fail_room(p, st);
    s->frame[frame].next = r->hand;
    r->hand              = frame;
    return USM_OK;
}

/* PIN_SECURE: makes sure that a block written without fetch cannot fail later for lack of a frame:
 * for an absent block it takes a frame, a partial one gets a pin without a mode. */
static usm_status secure(usm__pin_request *r, const usm__pin *pin, uint32_t block, size_t number)
{
    usm__word    *word  = &pin->space->words[block];
    unsigned      state = usm__state_of(usm_load_relaxed(word));
    usm__pin_part p     = usm__pin_part_of(r->spill, pin, block);
    usm_status    st;

    if (r->marks[number] != MARK_NONE)
        return USM_OK;
    switch (state) {
    case USM__BLOCK_RESIDENT:
        st               = usm__pin_block(r, &p);
        r->marks[number] = st == USM_OK ? MARK_PINNED : MARK_NONE;
        return st;
    case USM__BLOCK_PARTIAL:
        (void)atomic_fetch_add(word, USM__WORD_PIN);
        r->marks[number] = MARK_HELD;
        return USM_OK;
    case USM__BLOCK_ABSENT:
        return take_in_hand(r, &p);
    default:
        return usm__pin_wait(r, usm__block_of(pin->space, block)->frame);
    }
}

/* PIN_UNFETCHED.  After the first of these blocks the access can no longer be undone, so transfers
 * under way are waited for. */
static usm_status pin_unfetched(usm__pin_request *r, const usm__pin *pin, uint32_t block,
                                size_t number)
{
    usm__pin_part p        = usm__pin_part_of(r->spill, pin, block);
    bool          may_wait = r->may_wait;
    usm_status    st;

    if (r->marks[number] == MARK_PINNED)
        return USM_OK;
    r->may_wait = true;
    st          = usm__pin_block(r, &p);
    r->may_wait = may_wait;
    if (st != USM_OK)
        return st;
    if (r->marks[number] == MARK_HELD)
        (void)atomic_fetch_sub(&pin->space->words[block], USM__WORD_PIN);
    r->marks[number] = MARK_PINNED;
    return USM_OK;
}

/* PIN_FETCH.  Any answer but USM__DEFERRED ends the phase. */
static usm_status begin_fetch(usm__pin_request *r, const usm__pin *pin, uint32_t block,
                              size_t number)
{
    usm__pin_part p = usm__pin_part_of(r->spill, pin, block);

    (void)number;
    if (!r->may_wait)
        return USM_E_AGAIN;
    if (usm__state_of(usm_load_relaxed(&pin->space->words[block])) != USM__BLOCK_ABSENT ||
        r->at.has_waited || is_unfetched(r->spill, &p))
        return USM_OK;
    if (r->blocks > 1)
        p.mode = (usm_access_mode)(p.mode & ~(unsigned)USM_NO_INIT);
    if (r->spill->loads >= 2 * usm__tiers_depth(r->spill->tiers))
        return USM_E_AGAIN;
    return usm__pin_fetch(r, &p);
}

static void empty_hand(usm__pin_request *r)
{
    while (r->hand != USM__NO_FRAME) {
        uint32_t frame = r->hand;

        r->hand = r->spill->frame[frame].next;
        usm__frame_put_free(r->spill, frame);
    }
}

static void unpin_all(usm__pin_request *r)
{
    for (go_to_start(r); r->at.pin < r->n; go_on(r))
        unpin_marked(r, &r->list[r->at.pin], r->at.block, r->at.number);
    go_to_start(r);
}

/* Lock held.  Not USM__DEFERRED: the request is over, or has to begin again. */
static usm_status pin_in_ticket(usm__pin_request *r)
{
    static visit *const phases[USM__PIN_PHASES] = {
        [USM__PIN_FETCH]     = begin_fetch,
        [USM__PIN_SOLID]     = pin_solid,
        [USM__PIN_SECURE]    = secure,
        [USM__PIN_UNFETCHED] = pin_unfetched,
    };
    usm_status st = USM_OK;

    for (; st == USM_OK && r->phase < USM__PIN_PHASES; r->phase += st == USM_OK) {
        st = each_block(r, phases[r->phase]);
        if (r->phase == USM__PIN_FETCH && st != USM__DEFERRED) {
            st = USM_OK;
            go_to_start(r);
        }
    }
    if (st == USM__DEFERRED)
        return st;
    empty_hand(r);
    if (st != USM_OK)
        unpin_all(r);
    r->phase = USM__PIN_FETCH;
    return st;
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

/* Waits if nothing was released since *seen was noted; then comes note_releases(). */
static void await_frames(usm__spill *s, const uint64_t *seen, uint32_t timeout_ms, usm__deferred *d)
{
    if (s->releases == *seen)
        usm__deferred_sleep(d, &s->for_room, timeout_ms);
}

/* Marks pins, and notes *seen: the caller must look for frames once more before it sleeps
 * (engine.c). */
static void note_releases(usm__spill *s, uint64_t *seen)
{
    await_unpins(s);
    *seen = s->releases;
}

void usm__spill_await_frames(usm__spill *s, uint64_t *seen, uint32_t timeout_ms)
{
    usm__deferred d = {.frame = NULL};

    usm__mutex_lock(&s->lock);
    await_frames(s, seen, timeout_ms, &d);
    usm__mutex_unlock(&s->lock);
    usm__deferred_do(s, &d);
    usm__mutex_lock(&s->lock);
    note_releases(s, seen);
    usm__mutex_unlock(&s->lock);
}

/* A thread that gets the ticket has waited for others, who got their memory: its time starts again.
 * But if a thread with the ticket got no memory, it waited for what all wait for, and the time does
 * not start again. */
static void set_deadline(usm__pin_request *r, uint64_t now)
{
    usm__spill *s           = r->spill;
    bool        is_ticketed = s->ticket == r && !r->has_ticketed && s->held == r->held;

    if (r->deadline == 0) {
        r->held = s->held;
        r->seen = USM__SEEN_NOTHING;
    }
    if (r->deadline == 0 || is_ticketed)
        r->deadline = now + (uint64_t)s->wait_ms * 1000000;
    r->has_ticketed |= s->ticket == r;
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
    if (left == 0 && (s->ticket == r || s->held != r->held)) {
        s->held += s->ticket == r;
        return false;
    }
    left          = left ? left : s->wait_ms + (uint64_t)1;
    r->marks_pins = s->ticket == r;
    if (r->marks_pins) {
        await_frames(s, &r->seen, (uint32_t)left, &r->deferred);
    } else {
        usm__deferred_sleep(&r->deferred, &s->for_ticket, (uint32_t)left);
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

/* Before an attempt. */
static void begin_again(usm__pin_request *r)
{
    usm__spill *s = r->spill;

    if (r->marks_pins)
        note_releases(s, &r->seen);
    if (r->has_lent && !s->ticket)
        s->ticket = r;
    r->marks_pins = r->has_lent = false;
}

/* Other parts are asked for memory, without the lock, before the next attempt.  Meanwhile the
 * ticket is left to others: the eviction of other parts needs a frame. */
static void ask_others(usm__pin_request *r)
{
    usm__spill *s = r->spill;

    r->asks = r->has_asked = true;
    r->has_lent            = s->ticket == r;
    if (r->has_lent)
        s->ticket = NULL;
}

/* Lock held.  USM__DEFERRED: what is deferred is to be done, and others asked if r->asks. */
static usm_status pin_all(usm__pin_request *r)
{
    usm__spill *s  = r->spill;
    usm_status  st = USM_E_AGAIN;

    if (!r->is_under_way)
        begin_again(r);
    if (r->is_under_way || !s->ticket || s->ticket == r || r->is_past_ticket)
        st = pin_in_ticket(r);
    r->is_under_way = st == USM__DEFERRED;
    if (st != USM_E_AGAIN)
        return st;
    if (!r->may_wait)
        return usm__fail(st, "the access would have to wait for memory or storage");
    if (may_ask_others(r)) {
        ask_others(r);
        return USM__DEFERRED;
    }
    if (r->is_hasty)
        return usm__fail(st, "other accesses hold the memory at present");
    if (!s->ticket)
        s->ticket = r;
    if (!wait_for_frames(r))
        return fail_held(s);
    r->has_asked = false;
    return USM__DEFERRED;
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

    if (s->ticket == r) {
        s->ticket = NULL;
        usm__spill_wake(&s->for_ticket);
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

/* The pins before that one, and its blocks before that block. */
static void unpin_before(const usm__pin *list, size_t pin, uint32_t block)
{
    for (size_t i = 0; i <= pin; i++)
        for (uint32_t b = usm__pin_first(&list[i]);
             i < pin ? b <= usm__pin_last(&list[i]) : b < block; b++)
            usm__word_unpin(list[i].space, b, list[i].mode);
}

/* The hit path: pins all blocks, if they are completely resident. */
static bool hit_all(size_t n, const usm__pin *list)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t b = usm__pin_first(&list[i]); b <= usm__pin_last(&list[i]); b++)
            if (!usm__word_pin_hit(&list[i].space->words[b], list[i].mode)) {
                unpin_before(list, i, b);
                return false;
            }
    return true;
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

/* pre: the request has all its pins */
static void tell_pinned(usm__pin_request *r)
{
    if (!r->pinned)
        return;
    r->pinned(r->user);
    r->pinned          = NULL;
    r->deferred.cleans = true;
}

/* Does what was decided under the lock. */
static void without_lock(usm__pin_request *r)
{
    if (r->phase == USM__PIN_SOLID && r->at.pin == r->n) /* the rest is ahead of need */
        tell_pinned(r);
    usm__deferred_do(r->spill, &r->deferred);
    if (r->asks)
        (void)usm__parts_memory_starved(r->spill->owner, r->blocks << r->spill->shift);
    r->asks = false;
}

static usm_status pin(usm__pin_request *r)
{
    usm__spill *s = r->spill;
    usm_status  st;

    if (s->fork_generation != usm__fork_generation())
        return usm__fail(USM_E_FORKED,
                         "buffers of the parent process cannot be accessed after fork()");
    go_to_start(r);
    usm__mutex_lock(&s->lock);
    st = take_late(r);
    if (st == USM_OK)
        st = pin_all(r);
    while (st == USM__DEFERRED) {
        usm__mutex_unlock(&s->lock);
        without_lock(r);
        usm__mutex_lock(&s->lock);
        st = pin_all(r);
    }
    end_wait(r);
    usm__mutex_unlock(&s->lock);
    if (st == USM_OK) {
        tell_pinned(r);
        usm__deferred_do(s, &r->deferred);
    }
    return st;
}

/* Not all blocks were hit. */
static usm_status pin_list(usm__pin_request *r)
{
    unsigned char few[MARKS_INLINE] = {0};
    usm_status    st                = check_size(r);

    if (st != USM_OK)
        return st;
    r->may_wait = true;
    for (size_t i = 0; i < r->n; i++)
        r->may_wait = r->may_wait && !(r->list[i].mode & USM_NO_WAIT);
    r->hand  = USM__NO_FRAME;
    r->marks = r->blocks <= MARKS_INLINE ? few : usm__heap_alloc(r->blocks);
    if (!r->marks)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for an access of %zu blocks", r->blocks);
    st = pin(r);
    if (r->marks != few)
        usm__heap_free(r->marks);
    r->marks = NULL;
    return st;
}

usm_status usm__spill_pin(usm__spill *s, size_t n, const usm__pin *list)
{
    usm__pin_request r = {.spill = s, .n = n, .list = list};

    return hit_all(n, list) ? USM_OK : pin_list(&r);
}

usm_status usm__spill_pin_then(usm__spill *s, const usm__pin *pin, void (*pinned)(void *user),
                               void *user)
{
    usm__pin_request r = {.spill = s, .n = 1, .list = pin, .pinned = pinned, .user = user};

    if (!hit_all(1, pin))
        return pin_list(&r);
    pinned(user);
    return USM_OK;
}

usm_status usm__spill_pin_hastily(usm__spill *s, const usm__pin *pin, bool is_past_ticket)
{
    usm__pin_request r = {
        .spill = s, .n = 1, .list = pin, .is_hasty = true, .is_past_ticket = is_past_ticket};

    return hit_all(1, pin) ? USM_OK : pin_list(&r);
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
