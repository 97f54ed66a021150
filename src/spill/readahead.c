/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Prefetch and readahead: loading blocks before an access asks for them.  Blocks that the program
 * hinted come first, then those that the access history predicts (spill/prefetch.h).  Nothing here
 * waits: a block for which there is no free or clean frame is skipped for now.  Called with the
 * engine's lock held, by pin_block.c. */
#include "spill/internal.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GUESSES 64 /* blocks of one request for readahead                                   */

bool usm__readahead_bring(usm__spill *s, usm__space *space, uint32_t block, usm__policy_hint hint)
{
    usm__word  *word = &space->words[block];
    usm__block *b    = usm__block_of(space, block);
    usm__load   load = {.space         = space,
                        .block         = block,
                        .need          = {0, s->sectors},
                        .needs_content = true,
                        .urgency       = USM__AHEAD,
                        .hint          = hint};
    usm_status  status;
    uint32_t    frame;

    if (b->content == USM__CONTENT_ZERO ||
        usm__state_of(usm_load_relaxed(word)) != USM__BLOCK_ABSENT)
        return true;
    if (s->turn || s->loads >= 2 * usm__tiers_depth(s->tiers))
        return false;
    frame = usm__frame_get(s, false, &status);
    if (frame == USM__NO_FRAME)
        return false;
    if (usm__state_of(usm_load_relaxed(word)) != USM__BLOCK_ABSENT ||
        b->content == USM__CONTENT_ZERO) {
        usm__frame_put_free(s, frame);
        return true;
    }
    s->stats.prefetched++;
    usm__load_absent(s, &load, frame);
    return true;
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

/* The lock is released while a block is requested: the list may be deleted meanwhile. */
static void top_up(usm__spill *s, uint64_t thread)
{
    for (;;) {
        usm__announced *a = list_of(s, thread);
        size_t          next;

        if (!a || a->next >= a->n || a->next >= a->used + window(s))
            return;
        next = a->next++;
        if (!usm__readahead_bring(s, a->list[next].space, a->list[next].block,
                                  USM__HINT_ANNOUNCED)) {
            a = list_of(s, thread);
            if (a && a->next == next + 1)
                a->next = next;
            return;
        }
    }
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
            top_up(s, thread);
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
    size_t          blocks = count_blocks(n, list);
    usm__announced *a      = NULL;
    usm__announced *old;

    if (blocks) {
        a = usm__heap_alloc(sizeof *a + blocks * sizeof a->list[0]);
        if (!a)
            return usm__fail(USM_E_NO_MEMORY, "no host memory for a list of %zu blocks", blocks);
        a->thread = this_thread();
        fill_list(a, n, list);
    }
    usm__mutex_lock(&s->lock);
    old = list_of(s, this_thread());
    if (old)
        forget_list(old);
    if (a) {
        usm_list_append(&s->announced, &a->link);
        top_up(s, a->thread);
    }
    usm__mutex_unlock(&s->lock);
    return USM_OK;
}

/* --- readahead: buffers of one or two blocks -------------------------------------------------- */

#define LINE_BLOCKS 2  /* largest size of such a buffer, in blocks        */
#define LINE_RUN    2  /* buffers used in order before the next is loaded */
#define LINE_MOST   16 /* spaces loaded ahead, at most                    */

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

/* Finds spaces behind this one, and marks them busy so that they stay while the lock is
 * released. */
static size_t hold_next(usm__spill *s, usm__space *space, usm__space **list, size_t most)
{
    size_t n = 0;

    for (usm_list *it = space->more->link.next; it != &s->spaces && n < most; it = it->next) {
        usm__space *next = usm_container_of(it, usm__space_more, link)->space;

        if (!is_in_line(next))
            break;
        next->more->busy++;
        list[n++] = next;
    }
    return n;
}

static void bring_line(usm__spill *s, usm__space *space)
{
    usm__space *list[LINE_MOST];
    size_t      room = usm__policy_guess_room(s->policy);
    size_t      n, most = s->line.window < room ? s->line.window : room;
    bool        goes_on = true;

    n = hold_next(s, space, list, most < LINE_MOST ? most : LINE_MOST);
    for (size_t i = 0; i < n; i++) {
        for (uint32_t b = 0; goes_on && b < list[i]->nblocks; b++)
            goes_on = usm__readahead_bring(s, list[i], b, USM__HINT_PREFETCH);
        usm__space_unbusy(list[i]);
    }
}

static void ahead_in_line(usm__spill *s, usm__space *space, bool was_guess)
{
    usm__line *line = &s->line;
    uint32_t   most = usm__prefetch_usual(s->frames.count, s->block_size);

    if (was_guess && line->window < most)
        line->window += 2;
    if (!follow_line(s, space))
        return;
    if (line->window < 4)
        line->window = 4;
    bring_line(s, space);
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

void usm__readahead(usm__spill *s, usm__space *space, uint32_t block, bool was_guess)
{
    usm__policy_hint hint = space->more->pattern == USM__PATTERN_SEQUENTIAL
                                ? USM__HINT_PREFETCH_SEQUENTIAL
                                : USM__HINT_PREFETCH;
    uint32_t         guesses[GUESSES];
    size_t           n = usm__policy_guess_room(s->policy);

    if (!usm_list_is_empty(&s->announced) && advance(s, this_thread(), space, block))
        return;
    if (space->more->pattern == USM__PATTERN_RANDOM)
        return;
    if (is_in_line(space)) {
        ahead_in_line(s, space, was_guess);
        return;
    }
    n = usm__prefetch_next(space->more->prefetch, block, was_guess, guesses,
                           n < GUESSES ? n : GUESSES);
    for (size_t i = 0; i < n; i++)
        if (guesses[i] < space->nblocks && !usm__readahead_bring(s, space, guesses[i], hint))
            return;
}

void usm__readahead_passed(usm__spill *s, usm__space *space, uint32_t block)
{
    uint32_t none;

    if (is_in_line(space))
        (void)follow_line(s, space);
    else if (space->more->pattern != USM__PATTERN_RANDOM)
        (void)usm__prefetch_next(space->more->prefetch, block, false, &none, 0);
}
