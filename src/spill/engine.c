/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The residency engine: creation, lookup, end, waiting, statistics, fork.
 *
 *     file         what it does
 *     pin.c        accesses: tickets, waiting for frames, all or nothing
 *                  (the hit path is in engine.h)
 *     pin_block.c  one block: a miss, and which sectors are fetched
 *     load.c       ABSENT -> LOADING -> RESIDENT or PARTIAL
 *     frame.c      choice of a frame: free, fresh, clean, dirty; eviction; moving
 *     store.c      dirty blocks to the tiers, ahead of need
 *     readahead.c      hints and readahead
 *     space.c      ranges, advice, discarding
 *     segment.c    small buffers
 *     records.c    what records take of the limit
 *     report.c     statistics, which buffers hold memory
 *     commit.c     backing stores
 *     transfer.c   runs of sectors
 *
 * Locks.  The engine's lock guards everything except the words.  The state in a word changes under
 * the lock; the hit path only adds pins, and only to resident blocks.  The lock is never held over
 * a transfer, a move of pages or a callback: a busy frame belongs to the thread that made it so.
 * A function that is entered with the lock does not release it: it makes the frame busy, says what
 * is to be done without the lock (usm__deferred), and is called again.
 *
 * Waiting.  Each sleeping thread has a condition of its own, and is in one list:
 *
 *     a frame's sleepers   until the frame is not busy      woken by every change of its state
 *     a space's sleepers   until it has no transfers        woken when `busy` becomes 0
 *     for_turn             until no request has the ticket  woken by the one that had it
 *     for_room             until a frame may be available   woken by usm__spill_changed(),
 *                                                           usm__spill_released()
 *
 * No wake-up is lost.  For the first three, what a thread waits for changes only under the lock,
 * and whoever changes it wakes the list before it releases the lock.  The thread enters the list
 * under the same hold of the lock in which it found that it must wait, and sleeps later, unless it
 * was taken out of the list meanwhile.  And there is somebody to wake it: a frame is busy, or a
 * space has transfers, only while a thread or a transport has a transfer or a move of pages to end,
 * and a thread does what it has deferred before it sleeps; a request ends with its ticket returned,
 * or has left it to another one while it asked other parts for memory.
 *
 * A thread that needs a frame and finds transfers under way enters the list under the same hold of
 * the lock, until one has ended.  If none is, all other frames are pinned or kept (USM_E_AGAIN),
 * and only the end of a pin or of a ticket can help.  The last pin of a block ends without the
 * lock, and so does much between a thread's failure and its sleep.  Therefore it marks all pinned
 * blocks (AWAITED), notes the count of releases, looks for frames once more, and sleeps only if
 * that count is still the same.  A pin that ended before its mark was set had ended when the thread
 * looked; one that ends later finds the mark, since mark and pins are in one word, takes the lock,
 * and counts a release.  What the thread itself evicts, loads and unpins while it looks is no
 * release, or it would never sleep.
 *
 * No wait has a limit for the sake of wake-ups.  The time that an access may wait for others has
 * one (pin.c), and transports without a thread must be called now and then (doze()).
 *
 * Invariants (s->lock held):
 *   - a block is RESIDENT, PARTIAL, LOADING or LEAVING  <=>  its frame is not NO_FRAME, and that
 *     frame names this space and block
 *   - frames in use + free = frames that have memory
 *   - frames that have memory + record_frames = bytes charged to the memory accounting / block_size
 *     <= all frames
 *   - a block that is neither dirty nor must_store has its content where `content` says
 *
 * Called by src/buffer, which sees spill/engine.h. */
#include "base/fork.h"
#include "base/inline/bits.h"
#include "base/log.h"
#include "base/settings.h"
#include "device/context.h"
#include "heap/area.h"
#include "spill/internal.h"
#include "spill/sleep.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MIN_BLOCK  ((size_t)4 << 10)
#define MAX_FRAMES 8192 /* each takes a mapping while in a space; 65,530 are possible */
#define MIN_FRAMES 32   /* unless blocks would be smaller than 4 KiB                  */

#define PROGRESS_MS 1000

static struct {
    usm__mutex            lock;
    usm_list              all;
    usm_list              parents; /* in a forked child: engines of the parent's buffers          */
    _Atomic(usm__spill *) shared;  /* the process's engine                                        */
} engines = {USM__MUTEX_INIT(USM__RANK_BUFFER, "engines"),
             {&engines.all, &engines.all},
             {&engines.parents, &engines.parents},
             NULL};

/* --- sizes ------------------------------------------------------------------------------ */

/* The smallest power of two that is at least the wanted size and makes no more than 8192 frames;
 * small limits get small blocks.  usual: used where nobody has set a size; 0: none. */
static size_t choose_block(uint64_t limit, size_t usual)
{
    bool     is_set = strcmp(usm__setting_origin("spill_block"), "default") != 0;
    uint64_t wanted = usual && !is_set ? usual : usm__setting_size("spill_block");
    size_t   block  = MIN_BLOCK;

    while (block < wanted && block * 2 * MIN_FRAMES <= limit)
        block *= 2;
    while (limit / block > MAX_FRAMES)
        block *= 2;
    return block;
}

static unsigned log2_of(size_t n)
{
    return (unsigned)__builtin_ctzl(n);
}

/* --- creation and end ---------------------------------------------------------------------- */

static void notify(void *user, usm_status status, const char *sentence)
{
    (void)user;
    (void)status;
    usm__log(USM_LOG_WARN, "%s", sentence);
}

static usm_status make_parts(usm__spill *s)
{
    usm__tiers_params params = {.block_size  = s->block_size,
                                .sector_size = s->sector_size,
                                .limit       = s->limit,
                                .event       = notify,
                                .user        = s};
    uint32_t          count  = (uint32_t)(s->limit >> s->shift);
    usm_status        st     = usm__frames_init(&s->frames, count, s->block_size);

    if (st != USM_OK)
        return st;
    s->frame  = usm__os_map(count * sizeof *s->frame, PROT_READ | PROT_WRITE);
    s->policy = usm__heap_alloc(usm__policy_size(count));
    if (!s->frame || !s->policy)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the tables of %u frames", count);
    usm__policy_init(s->policy, count);
    for (uint32_t i = 0; i < count; i++) {
        s->frame[i].spill = s;
        usm_list_init(&s->frame[i].sleepers);
    }
    return usm__tiers_create(&params, &s->tiers);
}

static void free_parts(usm__spill *s)
{
    usm__tiers_destroy(s->tiers);
    if (s->frame)
        (void)usm__os_unmap(s->frame, s->frames.count * sizeof *s->frame);
    usm__heap_free(s->policy);
    usm__frames_fini(&s->frames);
}

static usm_status create(usm_context *owner, uint64_t limit, size_t usual, usm__spill **out)
{
    usm__spill *s = usm__heap_alloc(sizeof *s);
    usm_status  st;

    if (!s)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for buffers");
    usm__trace_start(); /* in a program that has no pool */
    s->owner           = owner;
    s->limit           = limit < MIN_BLOCK ? MIN_BLOCK : limit;
    s->block_size      = choose_block(s->limit, usual);
    s->sector_size     = usm_max_size(4096, s->block_size / USM__SECTORS_MAX);
    s->shift           = log2_of(s->block_size);
    s->sector_shift    = log2_of(s->sector_size);
    s->sectors         = (uint32_t)(s->block_size / s->sector_size);
    s->wait_ms         = (uint32_t)usm__setting_size("spill_wait");
    s->free_head       = USM__NO_FRAME;
    s->spare           = USM__NO_FRAME;
    s->empty_head      = USM__NO_FRAME;
    s->next_key        = 1;
    s->fork_generation = usm__fork_generation();
    usm_list_init(&s->spaces);
    usm_list_init(&s->announced);
    usm_list_init(&s->for_room);
    usm_list_init(&s->for_ticket);
    s->dropped = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    usm__mutex_init(&s->lock, USM__RANK_SPILL, "residency");
    st = make_parts(s);
    if (st != USM_OK) {
        free_parts(s);
        usm__mutex_fini(&s->lock);
        usm__heap_free(s);
        return st;
    }
    usm_list_append(&engines.all, &s->link);
    *out = s;
    return USM_OK;
}

/* Bytes that are charged to the memory accounting. */
static size_t charged(const usm__spill *s)
{
    return (size_t)(s->nfree + s->resident + s->record_frames) << s->shift;
}

/* pre: there are no spaces except those of small buffers, which hold none; nothing is under way. */
static void destroy(usm__spill *s)
{
    usm__segments_fini(s);
    while (!usm_list_is_empty(&s->announced))
        usm__heap_free(usm_container_of(usm_list_pop(&s->announced), usm__announced, link));
    usm_assert(usm_load_relaxed(&s->records) == 0);
    usm__quota_sub_host(s->owner, charged(s));
    free_parts(s);
    usm__mutex_fini(&s->lock);
    usm__heap_free(s);
}

size_t usm__spill_capacity(const usm__spill *s)
{
    return (size_t)s->frames.count << s->shift;
}

size_t usm__spill_in_memory(usm__spill *s)
{
    size_t bytes;

    usm__mutex_lock(&s->lock);
    bytes = (size_t)(s->nfree + s->resident) << s->shift;
    usm__mutex_unlock(&s->lock);
    return bytes;
}

bool usm__spill_get_arena(const usm__spill *s, char **base, size_t *size)
{
    *base = s->frames.base;
    *size = s->frames.size;
    return s->frames.fd < 0;
}

void usm__spill_get_sizes(const usm__spill *s, size_t *block, size_t *sector)
{
    *block  = s->block_size;
    *sector = s->sector_size;
}

usm_status usm__spill_of_blocks(usm_context *ctx, size_t usual, usm__spill **out)
{
    bool                   is_own = usm__quota_is_own(ctx);
    _Atomic(usm__spill *) *slot   = is_own ? &ctx->spill : &engines.shared;
    usm__spill            *s      = usm_load_acquire(slot);
    usm_status             st     = USM_OK;

    if (!s) {
        usm__mutex_lock(&engines.lock);
        s = usm_load_acquire(slot);
        if (!s) {
            st = create(is_own ? ctx : NULL, usm__quota_buffer_limit(ctx), usual, &s);
            if (st == USM_OK)
                usm_store_release(slot, s);
        }
        usm__mutex_unlock(&engines.lock);
    }
    if (st == USM_OK)
        *out = s;
    return st;
}

usm_status usm__spill_of(usm_context *ctx, usm__spill **out)
{
    return usm__spill_of_blocks(ctx, 0, out);
}

usm__spill *usm__spill_there(const usm_context *ctx)
{
    usm__spill *s = ctx && usm__quota_is_own(ctx)
                        ? usm_load_acquire(&((usm_context *)(uintptr_t)ctx)->spill)
                        : usm_load_acquire(&engines.shared);

    return s && s->fork_generation == usm__fork_generation() ? s : NULL;
}

void usm__spill_end(usm_context *ctx)
{
    usm__spill *s = usm_load_acquire(&ctx->spill);

    if (!s || s->fork_generation != usm__fork_generation())
        return;
    usm__sleep_context_unused(ctx, s);
    usm__mutex_lock(&engines.lock);
    usm_list_remove(&s->link);
    usm__mutex_unlock(&engines.lock);
    usm_store_release(&ctx->spill, NULL);
    destroy(s);
}

/* --- waiting --------------------------------------------------------------------------------- */

void usm__spill_wake(usm_list *list)
{
    usm_list *it;

    while ((it = usm_list_pop(list)) != NULL)
        pthread_cond_signal(&usm_container_of(it, usm__deferred, link)->wake);
}

void usm__spill_changed(usm__spill *s)
{
    usm__spill_wake(&s->for_room);
}

void usm__spill_released(usm__spill *s)
{
    s->releases++;
    usm__spill_wake(&s->for_room);
}

void usm__space_unbusy(usm__space *space)
{
    if (--space->more->busy == 0)
        usm__spill_wake(&space->more->sleepers);
}

void usm__deferred_sleep(usm__deferred *d, usm_list *list, uint32_t timeout_ms)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->wake, &attr);
    pthread_condattr_destroy(&attr);
    usm_list_append(list, &d->link);
    d->sleeps     = true;
    d->timeout_ms = timeout_ms;
}

static struct timespec in_ms(uint32_t ms)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

/* A transport without a thread makes progress only while the library calls it, and a transfer may
 * come to one, from a tier that fails, while the thread sleeps: it calls again after PROGRESS_MS.
 * A wake-up before the sleep is not lost: the thread is in the list since it found that it must
 * wait. */
static void doze(usm__spill *s, usm__deferred *d)
{
    uint32_t        most      = d->timeout_ms;
    uint32_t        first     = most && most < PROGRESS_MS ? most : PROGRESS_MS;
    bool            moved     = usm__tiers_progress(s->tiers, first);
    bool            must_call = usm__tiers_may_need_progress(s->tiers);
    struct timespec until     = in_ms(must_call ? first : most);

    usm__mutex_lock(&s->lock);
    if (!moved && !usm_list_is_empty(&d->link))
        (void)usm__mutex_wait(&s->lock, &d->wake, must_call || most ? &until : NULL);
    usm_list_remove(&d->link);
    usm__mutex_unlock(&s->lock);
    pthread_cond_destroy(&d->wake);
    d->sleeps = false;
}

/* The frame's state says what was decided. */
static void make(usm__spill *s, usm__frame *f)
{
    if (f->state == USM__FRAME_LEAVING)
        usm__frame_take_back(s, f);
    else if (f->state == USM__FRAME_STORING)
        usm__store_make(s, f);
    else
        usm__load_make(s, f);
}

void usm__deferred_do(usm__spill *s, usm__deferred *d)
{
    usm__frame *f      = d->frame;
    bool        cleans = d->cleans;

    d->frame  = NULL;
    d->cleans = false;
    if (f)
        make(s, f);
    if (cleans)
        usm__clean_ahead(s);
    if (d->sleeps)
        doze(s, d);
}

/* --- fork ------------------------------------------------------------------------------ */

/* The child has no frames (frames.c): no block may be marked resident or used there. */
static void make_absent(usm__spill *s)
{
    usm__quota_sub_host(s->owner, charged(s));
    for (uint32_t i = 0; i < s->grown; i++)
        if (s->frame[i].space)
            usm_store_relaxed(&s->frame[i].space->words[s->frame[i].block], USM__BLOCK_ABSENT);
}

static void fork_engine(usm__spill *s, usm_fork_phase phase)
{
    usm__segments_fork(s, phase);
    if (phase == USM_FORK_PREPARE) {
        usm__mutex_lock_for_fork(&s->lock);
    } else if (phase == USM_FORK_PARENT) {
        usm__mutex_unlock_after_fork(&s->lock);
    } else {
        usm__mutex_reset_in_child(&s->lock);
        make_absent(s);
    }
    usm__tiers_fork(s->tiers, phase);
}

/* The child makes its own engines. */
static void fork_engines(usm_fork_phase phase)
{
    USM_LIST_FOREACH_SAFE (it, next, &engines.all) {
        fork_engine(usm_container_of(it, usm__spill, link), phase);
        if (phase == USM_FORK_CHILD) {
            usm_list_remove(it);
            usm_list_append(&engines.parents, it);
        }
    }
    if (phase == USM_FORK_CHILD)
        usm_store_release(&engines.shared, NULL);
}

/* The lock of the list is held while engines are made, and those load modules: it ranks below the
 * locks of modules. */
static void fork_list(usm_fork_phase phase)
{
    usm__mutex_fork(&engines.lock, phase);
}

const usm_part usm__spill_part = {
    .name           = "spill",
    .fork           = {{USM__RANK_BUFFER, fork_list}, {USM__RANK_SEGMENT, fork_engines}},
    .context_unused = usm__spill_end};
