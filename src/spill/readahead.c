/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Prefetch and readahead: loading blocks before an access asks for them.  Blocks that the program
 * hinted come first, then those that the access history predicts (spill/prefetch.h).  Nothing here
 * waits: a block for which there is no free or clean frame is skipped for now.
 *
 * An access decides which blocks (usm__ahead), and its thread loads one after the other: the lock
 * is released while each frame is made free and each load is begun.  Called by pin.c, pin_block.c
 * and space.c. */
#include "spill/internal.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum bring { BRING_DONE, BRING_EVICTS, BRING_NO_ROOM } bring;

/* Begins to load a whole block without waiting, unless it is in memory or zero.  EVICTS: not yet, a
 * frame is being made free for it. */
static bring bring_block(usm__spill *s, usm__ahead *a, usm__space *space, uint32_t block,
                         usm__deferred *d)
{
    usm__load  load = {.space         = space,
                       .block         = block,
                       .need          = {0, s->sectors},
                       .needs_content = true,
                       .urgency       = USM__AHEAD,
                       .hint          = a->hint};
    usm_status status;
    uint32_t   frame;

    if (usm__block_of(space, block)->content == USM__CONTENT_ZERO ||
        usm__state_of(usm_load_relaxed(&space->words[block])) != USM__BLOCK_ABSENT)
        return BRING_DONE;
    if (s->ticket || s->loads >= 2 * usm__tiers_depth(s->tiers))
        return BRING_NO_ROOM;
    frame = usm__frame_get(s, &a->want, &status, d);
    if (frame == USM__NO_FRAME)
        return status == USM__DEFERRED ? BRING_EVICTS : BRING_NO_ROOM;
    s->stats.prefetched++;
    usm__load_absent(s, &load, frame, d);
    return BRING_DONE;
}

/* --- lists of hints ------------------------------------------------------------------- */

static uint64_t this_thread(void)
{
    return (uint64_t)syscall(SYS_gettid);
}

static usm__announced *list_of(usm__spill *s, uint64_t thread)
{
    USM_LIST_FOREACH (it, &s->announced) {
        usm__announced *a = usm_container_of(it, usm__announced, link);

        if (a->thread == thread)
            return a;
    }
    return NULL;
}

static void forget_list(usm__announced *a)
{
    usm_list_remove(&a->link);
    usm__heap_free(a);
}

/* How many blocks may be loaded ahead of their use. */
static size_t window(const usm__spill *s)
{
    size_t most = s->frames.count / 2;
    size_t deep = 2 * (size_t)usm__tiers_depth(s->tiers);

    return most < deep ? (most ? most : 1) : deep;
}

/* The list whose next block is to be loaded now; NULL. */
static usm__announced *list_to_top_up(usm__spill *s, uint64_t thread)
{
    usm__announced *l = list_of(s, thread);

    return l && l->next < l->n && l->next < l->used + window(s) ? l : NULL;
}

/* The block was used: moves the list's position behind it.  False: no list of this thread has
 * it. */
static bool advance(usm__spill *s, uint64_t thread, const usm__space *space, uint32_t block)
{
    usm__announced *a = list_of(s, thread);
    size_t          end;

    if (!a)
        return false;
    end = a->used + 2 * window(s);
    for (size_t i = a->used; i < a->n && i < end; i++)
        if (a->list[i].space == space && a->list[i].block == block) {
            a->used = i + 1;
            if (a->next < a->used)
                a->next = a->used;
            return true;
        }
    return false;
}

void usm__announced_forget(usm__spill *s, const usm__space *space)
{
    if (s->line.last == space)
        s->line = (usm__line){0};
    USM_LIST_FOREACH_SAFE (it, tmp, &s->announced) {
        usm__announced *a = usm_container_of(it, usm__announced, link);
        size_t          n = 0, used = a->used, next = a->next;

        for (size_t i = 0; i < a->n; i++) {
            if (a->list[i].space != space) {
                a->list[n++] = a->list[i];
                continue;
            }
            a->used -= i < used;
            a->next -= i < next;
        }
        a->n = n;
    }
}

/* --- loading them ------------------------------------------------------------------------- */

/* The space stays while the lock is released.  pre: of SPACES, or none before */
static void hold_space(usm__ahead *a, usm__space *space, uint32_t first, uint32_t end)
{
    if (a->kind == USM__AHEAD_NONE) {
        a->kind  = USM__AHEAD_SPACES;
        a->block = first;
        a->end   = end;
    }
    space->more->busy++;
    a->spaces[a->n++] = space;
}

static void leave_space(usm__ahead *a)
{
    usm__space_unbusy(a->spaces[a->next++]);
    a->block = 0;
    a->end   = a->next < a->n ? a->spaces[a->next]->nblocks : 0;
}

/* False: there is none left. */
static bool next_block(usm__spill *s, usm__ahead *a, usm__space **space, uint32_t *block)
{
    const usm__announced *l;

    switch (a->kind) {
    case USM__AHEAD_HINTS: /* a list that may have changed, or been deleted, meanwhile */
        l = list_to_top_up(s, a->thread);
        if (!l)
            return false;
        *space = l->list[l->next].space;
        *block = l->list[l->next].block;
        return true;
    case USM__AHEAD_BLOCKS:
        *space = a->spaces[0];
        while (a->next < a->n && a->blocks[a->next] >= (*space)->nblocks)
            a->next++;
        if (a->next == a->n)
            return false;
        *block = a->blocks[a->next];
        return true;
    case USM__AHEAD_SPACES:
        if (a->next == a->n)
            return false;
        *space = a->spaces[a->next];
        *block = a->block;
        return true;
    case USM__AHEAD_NONE:
        break;
    }
    return false;
}

static void pass_block(usm__spill *s, usm__ahead *a)
{
    if (a->kind == USM__AHEAD_HINTS)
        list_of(s, a->thread)->next++;
    else if (a->kind == USM__AHEAD_BLOCKS)
        a->next++;
    else if (++a->block == a->end)
        leave_space(a);
}

bool usm__readahead_go(usm__spill *s, usm__ahead *a, usm__deferred *d)
{
    usm__space *space;
    uint32_t    block;
    bring       outcome = BRING_DONE;

    while (!d->frame && outcome == BRING_DONE && next_block(s, a, &space, &block)) {
        outcome = bring_block(s, a, space, block, d);
        if (outcome != BRING_EVICTS)
            a->want = (usm__frame_want){.may_wait = false};
        if (outcome == BRING_DONE)
            pass_block(s, a);
    }
    if (d->frame)
        return true;
    while (a->kind == USM__AHEAD_SPACES && a->next < a->n)
        leave_space(a);
    a->kind   = USM__AHEAD_NONE;
    d->cleans = a->cleans;
    a->cleans = false;
    return d->cleans;
}

/* Lock not held. */
static void load_all(usm__spill *s, usm__ahead *a)
{
    usm__deferred d = {.frame = NULL};
    bool          goes_on;

    do {
        usm__mutex_lock(&s->lock);
        goes_on = usm__readahead_go(s, a, &d);
        usm__mutex_unlock(&s->lock);
        usm__deferred_do(s, &d);
    } while (goes_on);
}

void usm__readahead_bring(usm__space *space, uint32_t first, uint32_t end)
{
    usm__spill *s = space->spill;
    usm__ahead  a = {.hint = USM__HINT_ANNOUNCED};

    usm__mutex_lock(&s->lock);
    hold_space(&a, space, first, end);
    usm__mutex_unlock(&s->lock);
    load_all(s, &a);
}

/* --- hints: new lists -------------------------------------------------------------------- */

static size_t count_blocks(size_t n, const usm__pin *list)
{
    size_t blocks = 0;

    for (size_t i = 0; i < n; i++)
        if (!list[i].space->is_foreign)
            blocks += ((list[i].offset + list[i].size - 1) >> list[i].space->shift) -
                      (list[i].offset >> list[i].space->shift) + 1;
    return blocks;
}

static void fill_list(usm__announced *a, size_t n, const usm__pin *list)
{
    for (size_t i = 0; i < n; i++) {
        usm__space *space = list[i].space;
        size_t      last  = (list[i].offset + list[i].size - 1) >> space->shift;

        for (size_t b = list[i].offset >> space->shift; !space->is_foreign && b <= last; b++) {
            struct usm__announced_block *at = &a->list[a->n];

            /* Adjacent small buffers share a block. */
            if (a->n && at[-1].space == space && at[-1].block == b)
                continue;
            at->space = space;
            at->block = (uint32_t)b;
            a->n++;
        }
    }
}

usm_status usm__spill_announce(usm__spill *s, size_t n, const usm__pin *list)
{
    size_t     blocks = count_blocks(n, list);
    usm__ahead ahead  = {
         .kind = USM__AHEAD_HINTS, .hint = USM__HINT_ANNOUNCED, .thread = this_thread()};
    usm__announced *a = NULL;
    usm__announced *old;

    if (blocks) {
        a = usm__heap_alloc(sizeof *a + blocks * sizeof a->list[0]);
        if (!a)
            return usm__fail(USM_E_NO_MEMORY, "no host memory for a list of %zu blocks", blocks);
        a->thread = ahead.thread;
        fill_list(a, n, list);
    }
    usm__mutex_lock(&s->lock);
    old = list_of(s, ahead.thread);
    if (old)
        forget_list(old);
    if (a)
        usm_list_append(&s->announced, &a->link);
    usm__mutex_unlock(&s->lock);
    if (a)
        load_all(s, &ahead);
    return USM_OK;
}

/* --- readahead: buffers of one or two blocks -------------------------------------------------- */

#define LINE_BLOCKS 2 /* largest size of such a buffer, in blocks        */
#define LINE_RUN    2 /* buffers used in order before the next is loaded */

static bool is_in_line(const usm__space *space)
{
    return space->nblocks <= LINE_BLOCKS && !space->is_foreign;
}

/* Notes that the space was reached; returns whether it was the expected one. */
static bool follow_line(usm__spill *s, usm__space *space)
{
    usm__line *line = &s->line;

    if (line->last && line->last != space)
        line->run = space->more->link.prev == &line->last->more->link ? line->run + 1 : 0;
    line->last = space;
    return line->run >= LINE_RUN;
}

/* Chooses up to `most` spaces behind this one. */
static void hold_next(usm__spill *s, usm__ahead *a, usm__space *space, size_t most)
{
    a->hint = USM__HINT_PREFETCH;
    for (usm_list *it = space->more->link.next; it != &s->spaces && a->n < most; it = it->next) {
        usm__space *next = usm_container_of(it, usm__space_more, link)->space;

        if (!is_in_line(next))
            break;
        hold_space(a, next, 0, next->nblocks);
    }
}

static void ahead_in_line(usm__spill *s, usm__ahead *a, usm__space *space, bool was_predicted)
{
    usm__line *line = &s->line;
    uint32_t   most = usm__prefetch_usual(s->frames.count, s->block_size);
    uint32_t   room = usm__policy_readahead_room(s->policy);

    if (was_predicted && line->window < most)
        line->window += 2;
    if (!follow_line(s, space))
        return;
    if (line->window < 4)
        line->window = 4;
    most = line->window < room ? line->window : room;
    hold_next(s, a, space, most < USM__AHEAD_SPACES_MAX ? most : USM__AHEAD_SPACES_MAX);
}

void usm__readahead_wasted(usm__spill *s, usm__space *space, uint32_t block)
{
    usm__prefetch_wasted(space->more->prefetch, block);
    if (!is_in_line(space))
        return;
    s->line.window /= 2;
    s->line.run = 0;
}

/* --- readahead ---------------------------------------------------------------------------- */

static void predicted(usm__spill *s, usm__ahead *a, usm__space *space, uint32_t block,
                      bool was_predicted)
{
    size_t room = usm__policy_readahead_room(s->policy);

    a->kind      = USM__AHEAD_BLOCKS;
    a->hint      = space->more->pattern == USM__PATTERN_SEQUENTIAL ? USM__HINT_PREFETCH_SEQUENTIAL
                                                                   : USM__HINT_PREFETCH;
    a->spaces[0] = space;
    a->n         = usm__prefetch_next(space->more->prefetch, block, was_predicted, a->blocks,
                              room < USM__AHEAD_BLOCKS_MAX ? room : USM__AHEAD_BLOCKS_MAX);
}

void usm__readahead(usm__spill *s, usm__ahead *a, usm__space *space, uint32_t block,
                    bool was_predicted)
{
    usm_assert(a->kind == USM__AHEAD_NONE);
    a->n = a->next = 0;
    if (!usm_list_is_empty(&s->announced) && advance(s, this_thread(), space, block)) {
        a->kind   = USM__AHEAD_HINTS;
        a->hint   = USM__HINT_ANNOUNCED;
        a->thread = this_thread();
    } else if (space->more->pattern == USM__PATTERN_RANDOM) {
        return;
    } else if (is_in_line(space)) {
        ahead_in_line(s, a, space, was_predicted);
    } else {
        predicted(s, a, space, block, was_predicted);
    }
}

void usm__readahead_passed(usm__spill *s, usm__space *space, uint32_t block)
{
    uint32_t none;

    if (is_in_line(space))
        (void)follow_line(s, space);
    else if (space->more->pattern != USM__PATTERN_RANDOM)
        (void)usm__prefetch_next(space->more->prefetch, block, false, &none, 0);
}
