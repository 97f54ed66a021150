/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Storing dirty blocks on a tier: when a frame is needed, or earlier (write-behind), so that a
 * later eviction need not wait.
 *
 * A block may be read while it is being stored.  A thread that wants to write it waits: a checksum
 * over bytes that change would be wrong.  Called by frame.c, pin_block.c and the end of each
 * store. */
#include "base/inline/tsan.h"
#include "device/context.h"
#include "spill/internal.h"

#include <stdio.h>
#include <string.h>

#define AHEAD_MAX     32
#define TELL_AGAIN_NS UINT64_C(1000000000)

bool usm__is_all_zero(const char *p, size_t n)
{
    const uint64_t *w = (const uint64_t *)(const void *)p;
    bool            is_zero;

    USM_TSAN_IGNORE_READS_BEGIN();
    is_zero = w[0] == 0 && w[n / 16] == 0 && memcmp(p, p + 8, n - 8) == 0;
    USM_TSAN_IGNORE_READS_END();
    return is_zero;
}

usm__copy *usm__copy_take(usm__block *b)
{
    usm__copy *copy = b->copy;

    b->copy = NULL;
    return copy;
}

void usm__copy_forget(usm__spill *s, usm__copy *copy)
{
    if (!copy)
        return;
    usm__tiers_forget(s->tiers, copy);
    usm__heap_free(copy);
    usm__spill_drop_record(s, usm__tiers_copy_size(s->tiers));
}

/* --- the end ---------------------------------------------------------------------- */

static void trace_store(usm__spill *s, const usm__frame *f)
{
    if (!s->has_spilled) {
        s->has_spilled = true;
        usm__trace_spill(&(usm__trace_spill_event){
            .kind = USM__SPILL_FIRST, .space = f->space->more->trace, .bytes = s->limit});
    }
    usm__frame_trace(s, f, f->urgency == USM__AHEAD ? USM__SPILL_STORE_AHEAD : USM__SPILL_STORE);
}

static void end_well(usm__spill *s, usm__frame *f, usm__content content)
{
    usm__block *b = usm__block_of(f->space, f->block);

    b->content    = (uint8_t)content;
    b->must_store = false;
    s->stats.zero_blocks += content == USM__CONTENT_ZERO;
    trace_store(s, f);
    if (s->is_failing)
        usm__frame_forgive(s);
    usm__word_change(&f->space->words[f->block], -1, 0, USM__WORD_STORING);
}

/* Nothing is lost: the block stays in memory, dirty. */
static void end_badly(usm__spill *s, usm__frame *f, usm_status status)
{
    (void)snprintf(s->store_words, sizeof s->store_words, "%.*s", (int)sizeof s->store_words - 1,
                   usm__words_of(status));
    for (size_t i = 0; i < USM__MASK_WORDS; i++)
        f->dirty.bits[i] |= f->work.bits[i];
    f->is_failed    = true;
    s->is_failing   = true;
    s->store_status = status;
    s->store_failures++;
    if (f->urgency == USM__AHEAD)
        f->space->more->late = status;
    usm__word_change(&f->space->words[f->block], -1, USM__WORD_DIRTY, USM__WORD_STORING);
}

static void notify_late(usm_context *ctx, const char *title, usm_status status)
{
    char message[USM__STORY_SIZE];

    (void)snprintf(
        message, sizeof message,
        "%s: a part that was to be evicted could not be stored; it stays in memory: %.*s", title,
        USM__STORY_SIZE / 2, usm__words_of(status));
    usm__context_error(ctx, status, message);
}

/* Failures of a medium that fails or is full now and then are reported once a second. */
static bool is_news(usm__spill *s)
{
    uint64_t now = usm__os_now_ns();

    if (s->is_failing || (s->notified_late_ns && now - s->notified_late_ns < TELL_AGAIN_NS))
        return false;
    s->notified_late_ns = now;
    return true;
}

/* content: where the block's content is now; *ctx and name: the context to notify of a failure. */
static void end(usm__spill *s, usm__frame *f, usm_status status, usm__content content)
{
    usm__space  *space = f->space;
    usm_context *ctx   = NULL;
    char         title[USM__SPACE_TITLE];

    usm__mutex_lock(&s->lock);
    s->stores--;
    if (status == USM_OK) {
        end_well(s, f, content);
    } else {
        if (is_news(s)) /* many similar failures will follow */
            ctx = space->more->ctx;
        end_badly(s, f, status);
    }
    usm__frame_become(f, USM__FRAME_HELD);
    (void)usm__space_title(space, title);
    if (ctx)
        usm__context_ref(ctx);
    usm__space_unbusy(space);
    usm__spill_changed(s);
    usm__mutex_unlock(&s->lock);
    usm__clean_ahead(s);
    if (ctx) {
        notify_late(ctx, title, status);
        usm__context_unref(ctx);
    }
}

void usm__store_ended(usm__spill *s, uint32_t frame, usm_status status)
{
    end(s, &s->frame[frame], status, USM__CONTENT_COPY);
}

/* --- the start -------------------------------------------------------------------- */

/* Dirty -> storing, unless an access writes to the block. */
static bool take_dirty(usm__word *word, bool must_store)
{
    uint64_t old = usm_load_relaxed(word);

    do {
        unsigned state = usm__state_of(old);

        if ((old & (USM__WORD_WRITERS | USM__WORD_STORING)) ||
            (!(old & USM__WORD_DIRTY) && !must_store) ||
            (state != USM__BLOCK_RESIDENT && state != USM__BLOCK_PARTIAL))
            return false;
    } while (!usm_cas_acq_rel(word, &old, (old & ~USM__WORD_DIRTY) | USM__WORD_STORING));
    return true;
}

/* A backing store's block of which only a part is in memory cannot be stored in part: the rest is
 * read first. */
static bool complete_first(usm__spill *s, usm__frame *f, usm__deferred *d)
{
    usm__block *b    = usm__block_of(f->space, f->block);
    usm__load   load = {
          .space = f->space, .block = f->block, .need = {0, s->sectors}, .needs_content = true};

    if (usm__state_of(usm_load_relaxed(&f->space->words[f->block])) != USM__BLOCK_PARTIAL ||
        (b->content == USM__CONTENT_COPY && !usm__tiers_needs_whole(s->tiers)))
        return false;
    usm__load_missing(s, &load, d);
    return true;
}

static bool has_copy(usm__spill *s, usm__block *b)
{
    size_t size = usm__tiers_copy_size(s->tiers);

    if (b->copy)
        return true;
    b->copy = usm__heap_alloc(size);
    if (b->copy)
        usm__spill_add_record(s, size);
    return b->copy != NULL;
}

bool usm__store_start(usm__spill *s, uint32_t frame, usm__urgency urgency, usm__deferred *d)
{
    usm__frame *f    = &s->frame[frame];
    usm__word  *word = &f->space->words[f->block];

    if (usm__frame_is_busy(f))
        return false;
    if (complete_first(s, f, d))
        return true;
    if (!take_dirty(word, usm__block_of(f->space, f->block)->must_store))
        return false;
    usm__frame_become(f, USM__FRAME_STORING);
    f->urgency    = (uint8_t)urgency;
    f->was_wanted = urgency == USM__WANTED;
    f->start_ns   = 0;
    f->work       = f->dirty;
    memset(&f->dirty, 0, sizeof f->dirty);
    if (usm__frame_content(f) == USM__BLOCK_RESIDENT)
        usm__mask_set(&f->work, 0, s->sectors);
    s->stores++;
    f->space->more->busy++;
    d->frame = f;
    return true;
}

/* A block with a view counts as written when it is only read (managed.c). */
static bool is_unchanged(const usm__spill *s, const usm__frame *f, const usm__block *b,
                         const void *data)
{
    return f->space->more->view && b->content == USM__CONTENT_COPY &&
           usm__tiers_has(s->tiers, b->copy, f->space->key + f->block, data);
}

void usm__store_make(usm__spill *s, usm__frame *f)
{
    usm__block *b    = usm__block_of(f->space, f->block);
    char       *data = usm__frame_data(s, f);
    usm__copy  *copy;

    if (!data) {
        end(s, f, usm__fail(USM_E_SYSTEM, "the block cannot be write-protected"),
            USM__CONTENT_ZERO);
    } else if (is_unchanged(s, f, b, data)) {
        end(s, f, USM_OK, USM__CONTENT_COPY);
    } else if (usm__mask_count(&f->work) == s->sectors && usm__is_all_zero(data, s->block_size)) {
        usm__mutex_lock(&s->lock);
        copy = usm__copy_take(b);
        usm__mutex_unlock(&s->lock);
        usm__copy_forget(s, copy);
        end(s, f, USM_OK, USM__CONTENT_ZERO);
    } else if (!has_copy(s, b)) {
        end(s, f, USM_E_NO_MEMORY, USM__CONTENT_ZERO);
    } else {
        usm__transfer(s, (uint32_t)(f - s->frame));
    }
}

/* --- write-behind ------------------------------------------------------------------ */

/* As usm__frame_look(), but clears no mark. */
static usm__policy_look look_only(void *arg, uint32_t frame)
{
    usm__spill *s    = arg;
    usm__frame *f    = &s->frame[frame];
    uint64_t    word = usm_load_relaxed(&f->space->words[f->block]);

    if (usm__frame_is_busy(f) || f->is_failed || (word & USM__WORD_WRITERS))
        return USM__LOOK_PINNED;
    if (word & USM__WORD_USED)
        return USM__LOOK_USED;
    return word & USM__WORD_DIRTY ? USM__LOOK_DIRTY : USM__LOOK_IDLE;
}

/* How many more stores should be started now. */
static uint32_t stores_wanted(const usm__spill *s)
{
    uint32_t never = s->frames.count - s->grown, paying = s->record_frames;
    uint32_t room  = s->nfree + (never > paying ? never - paying : 0);
    uint32_t depth = usm__tiers_depth(s->tiers);
    uint32_t want  = s->frames.count / 4 < depth ? s->frames.count / 4 : depth;

    if (room >= want || s->stores >= want || s->is_failing)
        return 0;
    want -= s->stores;
    return want < AHEAD_MAX ? want : AHEAD_MAX;
}

/* Frames whose blocks should be stored. */
typedef struct candidates {
    uint32_t list[AHEAD_MAX];
    size_t   n, next;
    bool     has_begun; /* stores of some */
} candidates;

/* Begins the next store; false: there is none to begin.  Lock held, but not since the frames were
 * chosen. */
static bool clean_one(usm__spill *s, candidates *c, usm__deferred *d)
{
    while (c->next < c->n) {
        uint32_t frame = c->list[c->next++];

        if (s->frame[frame].space && !s->frame[frame].is_failed &&
            usm__store_start(s, frame, USM__AHEAD, d))
            return true;
    }
    return false;
}

/* Chooses more frames, once the stores of those before have begun.  Lock held. */
static bool choose(usm__spill *s, candidates *c)
{
    uint32_t want = c->has_begun ? stores_wanted(s) : 0;

    c->has_begun = false;
    c->next      = 0;
    c->n         = want ? usm__policy_clean_ahead(s->policy, c->list, want, look_only, s) : 0;
    return c->n > 0;
}

/* A thread that finds another one in this function returns: stores that end at once would nest. */
void usm__clean_ahead(usm__spill *s)
{
    usm__deferred d = {.frame = NULL};
    candidates    c = {.has_begun = true};

    usm__mutex_lock(&s->lock);
    if (s->is_cleaning) {
        usm__mutex_unlock(&s->lock);
        return;
    }
    s->is_cleaning = true;
    do
        while (clean_one(s, &c, &d)) {
            c.has_begun = true;
            usm__mutex_unlock(&s->lock);
            usm__deferred_do(s, &d);
            usm__mutex_lock(&s->lock);
        }
    while (choose(s, &c));
    s->is_cleaning = false;
    usm__mutex_unlock(&s->lock);
}
