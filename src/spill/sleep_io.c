/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The contents of pools that sleep: from their memory to the tiers of the engine, and back.
 *
 * Several blocks are under way at once, as many as the tiers want, each in a slot:
 *
 *     direct    host memory: the tiers read and write it where it is
 *     staged    device memory, and parts of blocks that a codec wants whole: by way of the slot's
 *               buffer.  The copy between memory and buffer is waited for; meanwhile the transfers
 *               of the other slots go on
 *
 * The blocks have keys of the engine, so that their checksums tell them from all others; a block
 * that is all zero is stored nowhere.  One thread makes a pass; transfers end on any thread. */
#include "spill/sleep.h"

#include "base/inline/bits.h"
#include "command/command.h"
#include "device/observer.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SLOTS_MAX   32u
#define PROGRESS_MS 1000

struct pass;

typedef struct slot {
    usm__io      io;
    struct pass *pass;
    char        *buffer; /* NULL: direct                                                       */
    char        *p;      /* the block's memory                                                 */
    size_t       size;
    bool         is_busy; /* guarded by the pass's lock                                        */
    bool         is_full; /* read, and to be copied to its memory                              */
} slot;

typedef struct pass {
    usm__sleep *sleep;
    usm__spill *spill;
    usm_queue  *q; /* for copies; NULL: the host reaches the memory                           */
    bool        is_store;
    bool        is_direct;
    char       *buffers;
    uint32_t    nslots, next;
    usm_status  status; /* of this thread                                                     */
    usm__mutex  lock;
    /* guarded by lock */
    pthread_cond_t ended;
    usm_status     failed; /* of the first transfer that failed                               */
    usm__message   message;
    slot           slots[SLOTS_MAX];
} pass;

usm__copy *usm__slept_copy(const usm__sleep *s, const usm__slept *piece, uint32_t block)
{
    char *copy = piece->copies + block * usm__tiers_copy_size(s->spill->tiers);

    return (usm__copy *)(void *)copy;
}

void usm__slept_forget(const usm__sleep *s, usm__slept *piece)
{
    if (!piece->copies)
        return;
    for (uint32_t i = 0; s->spill && i < usm__slept_blocks(s, piece); i++)
        usm__tiers_forget(s->spill->tiers, usm__slept_copy(s, piece, i));
    usm__heap_free(piece->copies);
    piece->copies = NULL;
}

/* --- copies between memory and buffers ------------------------------------------------------- */

/* Reads and writes blocks that AddressSanitizer has poisoned because they are free: word by word,
 * which the compiler must not turn into memcpy(). */
static __attribute__((no_sanitize("address"))) void copy_words(char *to, const char *from, size_t n)
{
    volatile uint64_t       *dst = (volatile uint64_t *)(void *)to;
    const volatile uint64_t *src = (const volatile uint64_t *)(const void *)from;

    for (size_t i = 0; i < n / sizeof *dst; i++)
        dst[i] = src[i];
}

static usm_status copy(const pass *x, char *to, const char *from, size_t n)
{
    usm_event  *ev = NULL;
    usm__submit s;
    usm_status  st;

    if (!x->q) {
        copy_words(to, from, n);
        return USM_OK;
    }
    st = usm__submit_begin(&s, x->q, 0, NULL, &ev);
    if (st == USM_OK)
        st = usm__submit_end(
            &s, usm__be_copy(x->q->be, x->q->native, to, from, n, USM__SUBMIT_ARGS(&s)));
    return usm__event_await(st, ev);
}

/* --- transfers ------------------------------------------------------------------------------- */

static void ended(usm__io *io, usm_status status)
{
    slot *x = io->user;
    pass *p = x->pass;

    usm__mutex_lock(&p->lock);
    if (status != USM_OK && p->failed == USM_OK) {
        usm__message_save(&p->message);
        p->failed = status;
    }
    x->is_full = status == USM_OK && !p->is_store;
    x->is_busy = false;
    pthread_cond_broadcast(&p->ended); /* under the lock: the pass may end right afterwards */
    usm__mutex_unlock(&p->lock);
}

static bool is_busy(pass *p, const slot *x)
{
    bool busy;

    usm__mutex_lock(&p->lock);
    busy = x->is_busy;
    usm__mutex_unlock(&p->lock);
    return busy;
}

static void sleep_until_ended(pass *p, const slot *x)
{
    bool            must_call = usm__tiers_may_need_progress(p->spill->tiers);
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PROGRESS_MS / 1000;
    usm__mutex_lock(&p->lock);
    if (x->is_busy)
        (void)usm__mutex_wait(&p->lock, &p->ended, must_call ? &until : NULL);
    usm__mutex_unlock(&p->lock);
}

/* Waits for the slot's transfer, and brings what was read to its memory. */
static void finish(pass *p, slot *x)
{
    while (is_busy(p, x))
        if (!usm__tiers_progress(p->spill->tiers, PROGRESS_MS))
            sleep_until_ended(p, x);
    if (x->is_full && x->buffer && p->status == USM_OK)
        p->status = copy(p, x->p, x->buffer, x->size);
    x->is_full = false;
}

static void start(pass *p, slot *x, const usm__slept *piece, uint32_t block, bool is_whole)
{
    usm__spill *s     = p->spill;
    size_t      bytes = is_whole ? s->block_size : x->size;

    x->is_busy = true;
    x->io      = (usm__io){.key        = piece->key + block,
                           .copy       = usm__slept_copy(p->sleep, piece, block),
                           .data       = x->buffer ? x->buffer : x->p,
                           .registered = SIZE_MAX,
                           .count      = (uint32_t)((bytes + s->sector_size - 1) >> s->sector_shift),
                           .done       = ended,
                           .user       = x};
    if (p->is_store)
        usm__tiers_write(s->tiers, &x->io);
    else
        usm__tiers_read(s->tiers, &x->io);
}

/* --- a block ------------------------------------------------------------------------------- */

/* Device memory that was just mapped has any content, and so may host memory of some driver. */
static void load_zeros(pass *p, const slot *x)
{
    if (x->buffer) {
        memset(x->buffer, 0, x->size);
        p->status = copy(p, x->p, x->buffer, x->size);
    } else if (!usm__is_all_zero(x->p, x->size)) {
        memset(x->p, 0, x->size);
    }
}

static void store_block(pass *p, slot *x, const usm__slept *piece, uint32_t block, bool is_whole)
{
    if (x->buffer) {
        memset(x->buffer + x->size, 0, p->spill->block_size - x->size);
        p->status = copy(p, x->buffer, x->p, x->size);
    }
    if (p->status == USM_OK && !usm__is_all_zero(x->buffer ? x->buffer : x->p, x->size))
        start(p, x, piece, block, is_whole);
}

static void move_block(pass *p, const usm__slept *piece, uint32_t block)
{
    slot  *x        = &p->slots[p->next++ % p->nslots];
    size_t at       = (size_t)block << p->spill->shift;
    bool   is_whole = usm__tiers_needs_whole(p->spill->tiers);

    finish(p, x);
    if (p->status != USM_OK)
        return;
    x->p    = piece->p + at;
    x->size = usm_min_size(p->spill->block_size, piece->at.size - at);
    if (p->is_store)
        store_block(p, x, piece, block, is_whole);
    else if (usm__slept_copy(p->sleep, piece, block)->tier)
        start(p, x, piece, block, is_whole);
    else
        load_zeros(p, x);
}

/* --- a pass -------------------------------------------------------------------------------- */

/* Whether the tiers can have the pool's memory itself: a transfer is whole sectors, and with codecs
 * whole blocks.  A sanitizer would object to free blocks. */
static bool is_direct(const usm__sleep *sleep)
{
    const usm__spill *s    = sleep->spill;
    size_t            unit = usm__tiers_needs_whole(s->tiers) ? s->block_size : s->sector_size;

    if (!usm__pool_host_may_touch(sleep->pool) ||
        usm_load_relaxed(&usm__observers.flags) & USM__OBSERVE_CHECKER)
        return false;
    for (size_t i = 0; i < sleep->n; i++)
        if (sleep->list[i].at.size % unit != 0)
            return false;
    return true;
}

/* As many buffers as the limit of host memory leaves, but one at least. */
static usm_status make_buffers(pass *p)
{
    usm__spill *s = p->spill;
    usm_status  st;

    while ((st = usm__quota_add_host(s->owner, p->nslots * s->block_size)) != USM_OK &&
           p->nslots > 1)
        p->nslots /= 2;
    if (st != USM_OK)
        return st;
    p->buffers = usm__os_map(p->nslots * s->block_size, PROT_READ | PROT_WRITE);
    if (!p->buffers) {
        usm__quota_sub_host(s->owner, p->nslots * s->block_size);
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the copies of a pool that sleeps");
    }
    for (uint32_t i = 0; i < p->nslots; i++)
        p->slots[i].buffer = p->buffers + i * s->block_size;
    return USM_OK;
}

static usm_status find_queue(pass *p)
{
    const usm_pool *pool = p->sleep->pool;
    usm_status      st   = USM_OK;

    if (usm__pool_host_may_touch(pool))
        return USM_OK;
    st = usm__queue_probe_device(pool->ctx, pool->index);
    if (st == USM_OK && !(p->q = usm__queue_own(pool->ctx, pool->index, USM__QUEUE_STAGING)))
        st = usm_last_status();
    return st;
}

static usm_status open_pass(pass *p, usm__sleep *sleep, bool is_store)
{
    usm_status st;

    p->sleep    = sleep;
    p->spill    = sleep->spill;
    p->is_store = is_store;
    p->nslots   = usm_min_size(usm_max_size(usm__tiers_depth(p->spill->tiers), 1), SLOTS_MAX);
    for (uint32_t i = 0; i < p->nslots; i++)
        p->slots[i].pass = p;
    st = find_queue(p);
    return st == USM_OK && !is_direct(sleep) ? make_buffers(p) : st;
}

static void close_pass(pass *p)
{
    size_t size = p->nslots * p->spill->block_size;

    if (p->buffers) {
        (void)usm__os_unmap(p->buffers, size);
        usm__quota_sub_host(p->spill->owner, size);
    }
}

static bool has_failed(pass *p)
{
    bool failed;

    usm__mutex_lock(&p->lock);
    failed = p->failed != USM_OK;
    usm__mutex_unlock(&p->lock);
    return failed || p->status != USM_OK;
}

static usm_status move_all(pass *p)
{
    const usm__sleep *s = p->sleep;

    for (size_t i = 0; i < s->n; i++)
        for (uint32_t b = 0;
             s->list[i].copies && b < usm__slept_blocks(s, &s->list[i]) && !has_failed(p); b++)
            move_block(p, &s->list[i], b);
    for (uint32_t i = 0; i < p->nslots; i++)
        finish(p, &p->slots[i]);
    if (p->failed == USM_OK)
        return p->status;
    usm__message_restore(&p->message);
    return p->failed;
}

static usm_status run(usm__sleep *sleep, bool is_store)
{
    pass              *p = usm__heap_alloc(sizeof *p);
    pthread_condattr_t attr;
    usm_status         st;

    if (!p)
        return usm__fail(USM_E_NO_MEMORY, "no host memory for the transfers of a pool that sleeps");
    usm__mutex_init(&p->lock, USM__RANK_SPILL, "sleep");
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->ended, &attr);
    pthread_condattr_destroy(&attr);
    st = open_pass(p, sleep, is_store);
    if (st == USM_OK) {
        st = move_all(p);
        close_pass(p);
    }
    pthread_cond_destroy(&p->ended);
    usm__mutex_fini(&p->lock);
    usm__heap_free(p);
    return st;
}

usm_status usm__sleep_store(usm__sleep *s)
{
    return s->spill ? run(s, true) : USM_OK;
}

usm_status usm__sleep_load(usm__sleep *s)
{
    return s->spill ? run(s, false) : USM_OK;
}
