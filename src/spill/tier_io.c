/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Transfers of blocks: the choice of a tier, checksums, and what follows a failure.
 *
 *     usm__tiers_write ----> start -> encode or sums -> place -> submit ---> written
 *                                                        ^ next tier          | failed: again here,
 *                                                        +--------------------+ then elsewhere
 *     usm__tiers_read -----> start --------------------> submit -----------> fetched -> verify
 *                                                        ^ again              | failed, or bad sum
 *                                                        +--------------------+
 *
 * A block's content stays in its slot until the write that moves it has ended: then the old slot is
 * freed.  Only whole blocks move; a write of a part goes to the slot of the rest, or fails.  The
 * slot of a block's first write is entered in its copy at once, because other parts of it may be
 * under way too; if all of these writes fail, it is freed. */
#include "spill/tier_private.h"

#include "base/assert.h"
#include "base/inline/atomic.h"
#include "base/inline/list.h"
#include "base/os.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define READS  3u /* attempts                                                             */
#define WRITES 2u

/* ---- the end ------------------------------------------------------------------------- */

/* A block of which nothing was ever stored keeps no slot.  Lock held; returns the tier whose slot
 * must be freed, or NULL. */
static usm__tier *end_copy(usm__tiers *t, usm__copy *copy, uint64_t *slot)
{
    usm__tier *tier = NULL;

    if (--copy->flying == 0 && !copy->is_stored && copy->tier) {
        tier       = usm__tier_of(t, copy->tier);
        *slot      = copy->slot;
        copy->tier = 0;
    }
    return tier;
}

/* The end of an io of a block with a single copy; for several copies: usm__replicas_end(). */
static void end_single(usm__tiers *t, usm__io *io)
{
    uint64_t     slot = 0;
    usm__tier   *tier;
    usm__message message;

    usm__mutex_lock(&t->lock);
    tier = end_copy(t, io->copy, &slot);
    usm__mutex_unlock(&t->lock);
    if (tier) {
        usm__message_save(&message);
        usm__tier_give(tier, slot);
        usm__message_restore(&message);
    }
}

void usm__io_finish(usm__tiers *t, usm__io *io, usm_status st)
{
    usm__io *next = io->scratch ? usm__codecs_leave(t, io) : NULL;

    if (st == USM_OK && io->content != 0) /* it was of the whole block: no other io is under way */
        io->copy->content = io->content;
    if (t->replicas)
        usm__replicas_end(t, io);
    else
        end_single(t, io);
    io->done(io, st);
    if (next)
        usm__io_start(t, next);
    usm__mutex_lock(&t->lock);
    if (--t->flying == 0)
        pthread_cond_broadcast(&t->changed);
    usm__mutex_unlock(&t->lock);
}

/* ---- submission ------------------------------------------------------------------------ */

static void on_done(usm_transfer *transfer, usm_status st);

static size_t encoded_size(const usm__tiers *t, const usm__copy *copy)
{
    size_t on_medium = copy->encoded < t->block_size ? copy->encoded : t->block_size;

    return (on_medium + USM__PAGE - 1) & ~(size_t)(USM__PAGE - 1);
}

void usm__io_fill(const usm__tiers *t, const usm__io *io, uint64_t slot, usm_transfer *x)
{
    memset(x, 0, sizeof *x);
    x->op         = io->is_write ? USM_TRANSFER_STORE : USM_TRANSFER_FETCH;
    x->block      = slot;
    x->is_awaited = io->is_awaited;
    if (io->scratch) {
        x->data       = ((usm__bounce *)io->scratch)->a;
        x->size       = encoded_size(t, io->copy);
        x->registered = SIZE_MAX;
    } else {
        x->offset     = (size_t)io->first * t->sector_size;
        x->size       = (size_t)io->count * t->sector_size;
        x->data       = io->data;
        x->registered = io->registered;
    }
}

static void submit(usm__tiers *t, usm__io *io)
{
    usm__tier    *tier = usm__tier_of(t, io->tier);
    usm_transfer *x    = &io->t;

    usm__io_fill(t, io, io->slot, x);
    x->done = on_done;
    io->attempts++;
    io->start_ns = usm__os_now_ns();
    usm__mutex_lock(&t->lock);
    usm__flow_begin(io->is_write ? &tier->writes : &tier->reads, io->start_ns);
    if (tier->ops->caps & USM_TRANSPORT_CAP_PROGRESS)
        pthread_cond_broadcast(&t->changed); /* for usm__tiers_destroy() */
    usm__mutex_unlock(&t->lock);
    tier->ops->submit(tier->store, x);
}

/* ---- choice of a tier ------------------------------------------------------------------- */

const char *usm__words_of(usm_status st)
{
    return usm_last_status() == st ? usm_last_error() : usm_status_string(st);
}

static bool has_failed(const usm__io *io, unsigned tier)
{
    return io->tried >> tier & 1;
}

static void go_to(usm__io *io, uint8_t tier, uint64_t slot, bool is_fresh)
{
    io->tier     = tier;
    io->slot     = slot;
    io->is_fresh = is_fresh;
    io->attempts = 0;
}

/* Whether the write goes to the block's slot, because it should not or may not go elsewhere.
 * *is_bound: it may not. */
static bool stays(usm__tiers *t, usm__io *io, bool *is_bound)
{
    const usm__copy *copy = io->copy;
    bool             stay = false;

    usm__mutex_lock(&t->lock);
    *is_bound = copy->tier && !usm__io_is_whole(t, io);
    if (copy->tier && !has_failed(io, usm__tier_index(copy->tier)))
        stay = *is_bound || !usm__tier_is_failing(usm__tier_of(t, copy->tier));
    if (stay)
        go_to(io, copy->tier, copy->slot, false);
    usm__mutex_unlock(&t->lock);
    return stay;
}

/* Enters the slot that was taken; another part of the block may have been faster. */
static void settle(usm__tiers *t, usm__io *io, unsigned index, uint64_t slot)
{
    usm__copy *copy  = io->copy;
    bool       spare = false;

    usm__mutex_lock(&t->lock);
    if (!copy->tier) {
        copy->tier = usm__tier_code(index);
        copy->slot = slot;
        go_to(io, copy->tier, slot, false);
    } else if (usm__io_is_whole(t, io)) {
        go_to(io, (uint8_t)(index + 1), slot, true);
    } else {
        go_to(io, copy->tier, copy->slot, false);
        spare = true;
    }
    usm__mutex_unlock(&t->lock);
    if (spare)
        usm__tier_give(&t->list[index], slot);
}

static void note_full(usm__tier *tier)
{
    usm__tiers *t = tier->tiers;
    char        words[sizeof tier->reason], used[24];

    (void)snprintf(words, sizeof words, "%.*s", (int)sizeof words - 1,
                   usm__words_of(USM_E_SPILL_FULL));
    usm__mutex_lock(&t->lock);
    memcpy(tier->reason, words, sizeof words);
    (void)usm__format_bytes(tier->slots.used * t->block_size, used, sizeof used);
    usm__mutex_unlock(&t->lock);
    usm__tier_notify(
        tier, USM__TOLD_FULL, USM_E_SPILL_FULL,
        "tier %s is full with %s: %s; blocks go to the next tier of USM_SPILL, if there "
        "is one, or stay in memory",
        tier->name, used, words);
}

/* Whether the block is on that tier: the tier is failing, but there is no other for a part. */
static bool lies_in(usm__tiers *t, usm__io *io, unsigned index)
{
    bool lies;

    usm__mutex_lock(&t->lock);
    lies = io->copy->tier == usm__tier_code(index);
    if (lies)
        go_to(io, io->copy->tier, io->copy->slot, false);
    usm__mutex_unlock(&t->lock);
    return lies;
}

static usm_status try_tier(usm__tiers *t, usm__io *io, unsigned index)
{
    usm__tier *tier = &t->list[index];
    uint64_t   slot = 0;
    usm_status st   = usm__tier_open(tier);

    if (st != USM_OK || lies_in(t, io, index))
        return st;
    st = usm__tier_take(tier, io->key, &slot);
    if (st == USM_OK)
        settle(t, io, index, slot);
    else if (st == USM_E_SPILL_FULL)
        note_full(tier);
    return st;
}

/* Fails with the reasons of all tiers, when none is left. */
static usm_status fail_everywhere(usm__tiers *t, const usm__io *io, usm_status st)
{
    char   all[USM__STORY_SIZE - 128] = "";
    size_t n                          = 0;

    if (t->n == 0)
        return usm__fail(USM_E_SPILL_FULL,
                         "with USM_SPILL=off nothing is evicted: raise USM_MEMORY_LIMIT, or name a "
                         "tier, as in USM_SPILL=file:/var/tmp");
    usm__mutex_lock(&t->lock);
    for (unsigned i = 0; i < t->n && n < sizeof all; i++) {
        const usm__tier *tier = &t->list[i];

        if (has_failed(io, i))
            n += (size_t)snprintf(all + n, sizeof all - n, "%s%s: %s", n ? "; " : "", tier->name,
                                  tier->reason);
    }
    usm__mutex_unlock(&t->lock);
    return usm__fail(st, "no tier takes it: %s", all);
}

/* Tries the tiers in order; those that fail only if `all`.  USM_E_AGAIN: no tier accepts the block;
 * *st is the reason. */
static usm_status place_among(usm__tiers *t, usm__io *io, bool all, usm_status *st)
{
    for (unsigned i = 0; i < t->n; i++) {
        usm_status answer;

        if (has_failed(io, i) || (!all && usm__tier_is_failing(&t->list[i])))
            continue;
        answer = try_tier(t, io, i);
        if (answer == USM_OK || answer == USM_E_NO_MEMORY)
            return answer;
        io->tried |= (uint8_t)(1u << i);
        /* A failing medium is a worse answer than a full one; a tier that is not available is the
         * least. */
        if (*st == USM_OK || (answer == USM_E_SPILL_FULL && *st != USM_E_IO) || answer == USM_E_IO)
            *st = answer;
    }
    return USM_E_AGAIN;
}

/* Tries the tiers in the order of USM_SPILL, failing ones last.  `before`: the previous failure,
 * with its error message in place; else USM_OK. */
static usm_status place(usm__tiers *t, usm__io *io, usm_status before)
{
    usm_status st = before, answer;
    bool       is_bound;

    if (stays(t, io, &is_bound))
        return USM_OK;
    if (is_bound)
        return before;
    answer = place_among(t, io, false, &st);
    if (answer == USM_E_AGAIN)
        answer = place_among(t, io, true, &st);
    if (answer == USM_E_AGAIN)
        answer = fail_everywhere(t, io, st == USM_OK ? USM_E_SPILL_FULL : st);
    return answer;
}

static void place_and_submit(usm__tiers *t, usm__io *io, usm_status before)
{
    usm_status st;

    if (t->replicas) {
        usm__replicas_write(t, io);
        return;
    }
    st = place(t, io, before);
    if (st == USM_OK)
        submit(t, io);
    else
        usm__io_finish(t, io, st);
}

/* ---- checksums --------------------------------------------------------------------------- */

/* Adds a sector to the sum of a block's content.  The factor is odd: a sector that differs changes
 * the sum, whatever follows. */
static uint64_t add_to_content(uint64_t content, uint64_t hash)
{
    return content * UINT64_C(0x9e3779b97f4a7c15) + hash;
}

/* Returns the sum of the content; sums: those of the sectors, or NULL. */
static uint64_t make_sums(const usm__tiers *t, const usm__io *io, uint32_t *sums)
{
    const char *data    = io->data;
    uint64_t    content = 0;

    for (uint32_t i = io->first; i < io->first + io->count; i++, data += t->sector_size) {
        uint64_t hash = usm__sector_hash(data, t->sector_size, io->key, i);

        content = add_to_content(content, hash);
        if (sums)
            sums[i] = usm__sum_of_hash(hash);
    }
    return content;
}

/* A sector that was written ends it: those of an unencoded copy have their own sums. */
bool usm__tiers_has(const usm__tiers *t, const usm__copy *copy, uint64_t key, const void *data)
{
    const char *at      = data;
    uint64_t    content = 0;

    if (copy->content == 0)
        return false;
    for (uint32_t i = 0; i < t->sectors; i++, at += t->sector_size) {
        uint64_t hash = usm__sector_hash(at, t->sector_size, key, i);

        if (copy->codecs == 0 && copy->sums[i] != usm__sum_of_hash(hash))
            return false;
        content = add_to_content(content, hash);
    }
    return copy->content == content;
}

usm_status usm__io_verify(usm__tiers *t, usm__io *io, const char *place)
{
    const char *data = io->data;

    if (io->scratch)
        return usm__codecs_decode(t, io, place);
    for (uint32_t i = 0; i < io->count; i++, data += t->sector_size)
        if (io->copy->sums[io->first + i] !=
            usm__sector_sum(data, t->sector_size, io->key, io->first + i))
            return usm__fail(USM_E_CORRUPT,
                             "%s returned other bytes than were stored: slot %llu, sector %u of "
                             "generation %u",
                             place, (unsigned long long)io->slot, (unsigned)(io->first + i),
                             (unsigned)io->copy->generation);
    return USM_OK;
}

/* ---- after a transfer ---------------------------------------------------------------------- */

void usm__tiers_notify_first(usm__tiers *t, const usm__tier *tier)
{
    char limit[24] = "", before[48] = "";

    if (t->limit) {
        (void)usm__format_bytes(t->limit, limit, sizeof limit);
        (void)snprintf(before, sizeof before, " of %s", limit);
    }
    usm__tiers_notify(t, USM_OK,
                      "buffers outgrow the memory limit%s: blocks go to %s from now on; a larger "
                      "USM_MEMORY_LIMIT keeps more in memory, USM_SPILL says where they go, and "
                      "USM_SPILL=off makes it an error",
                      before, tier->name);
}

static void written(usm__tiers *t, usm__io *io)
{
    usm__copy *copy     = io->copy;
    usm__tier *tier     = usm__tier_of(t, io->tier), *old_tier;
    uint64_t   old_slot = copy->slot;
    bool       is_first;

    usm__mutex_lock(&t->lock);
    old_tier        = io->is_fresh ? usm__tier_of(t, copy->tier) : NULL;
    is_first        = !t->has_spilled;
    t->has_spilled  = true;
    copy->tier      = io->tier;
    copy->slot      = io->slot;
    copy->is_stored = true;
    if (io->scratch) {
        tier->encoded_in += t->block_size;
        tier->encoded_out += copy->encoded;
    }
    usm__mutex_unlock(&t->lock);
    usm_store_relaxed(&tier->failures, 0u);
    if (old_tier)
        usm__tier_give(old_tier, old_slot);
    if (is_first)
        usm__tiers_notify_first(t, tier);
    usm__io_finish(t, io, USM_OK);
}

/* pre: the error message is the failure's.  Afterwards it is the tier's. */
static void note_failure(usm__tiers *t, usm__io *io, usm_status st)
{
    usm__tier *tier = usm__tier_of(t, io->tier);
    char       reason[sizeof tier->reason];

    (void)snprintf(reason, sizeof reason, "%.*s", (int)sizeof reason - 1, usm__words_of(st));
    usm__mutex_lock(&t->lock);
    memcpy(tier->reason, reason, sizeof reason);
    usm__mutex_unlock(&t->lock);
    if (st == USM_E_IO)
        usm_add_relaxed(&tier->failures, 1);
    if (st == USM_E_IO)
        usm__tier_notify(tier, USM__TOLD_FAILING, st,
                         "tier %s fails to write: %s; what could not be written is kept in memory "
                         "until another tier has it",
                         tier->name, reason);
    else
        usm__tier_notify(tier, USM__TOLD_FULL, st, "tier %s is full: %s", tier->name, reason);
    (void)usm__fail(st, "tier %s: %s", tier->name, reason);
}

static void write_failed(usm__tiers *t, usm__io *io, usm_status st)
{
    usm__tier *tier = usm__tier_of(t, io->tier);

    if (st == USM_E_IO && io->attempts < WRITES && !usm__tier_is_failing(tier)) {
        submit(t, io);
        return;
    }
    if (st != USM_E_IO && st != USM_E_SPILL_FULL) {
        if (io->is_fresh)
            usm__tier_give(tier, io->slot);
        usm__io_finish(t, io, st);
        return;
    }
    note_failure(t, io, st);
    if (io->is_fresh)
        usm__tier_give(tier, io->slot);
    io->tried |= (uint8_t)(1u << usm__tier_index(io->tier));
    place_and_submit(t, io, st);
}

/* Counts one for each read. */
static void note_corrupt(usm__io *io, usm__tier *tier)
{
    usm__message message;

    usm__mutex_lock(&tier->tiers->lock);
    tier->corrupt += io->tried == 0;
    usm__mutex_unlock(&tier->tiers->lock);
    io->tried = 1;
    usm__message_save(&message);
    usm__tier_notify(tier, USM__TOLD_CORRUPT, USM_E_CORRUPT, "%s: check its medium", message.text);
    usm__message_restore(&message);
}

static void read_failed(usm__io *io, const usm__tier *tier, usm_status st)
{
    char words[sizeof tier->reason];

    (void)snprintf(words, sizeof words, "%.*s", (int)sizeof words - 1, usm__words_of(st));
    (void)usm__fail(st, "tier %s, slot %llu: %s", tier->name, (unsigned long long)io->slot, words);
}

static void fetched(usm__tiers *t, usm__io *io, usm_status st)
{
    usm__tier *tier       = usm__tier_of(t, io->tier);
    usm_status transport  = st;
    bool       is_corrupt = st == USM_E_CORRUPT;

    if (st == USM_OK) {
        st         = usm__io_verify(t, io, tier->title);
        is_corrupt = st == USM_E_CORRUPT;
    }
    if (is_corrupt)
        note_corrupt(io, tier);
    /* After a wrong sum once more: it may have happened on the way. */
    if ((st == USM_E_IO && io->attempts < READS) || (is_corrupt && io->attempts < 2)) {
        submit(t, io);
        return;
    }
    if (transport != USM_OK)
        read_failed(io, tier, st);
    usm__io_finish(t, io, st);
}

static void on_done(usm_transfer *transfer, usm_status st)
{
    usm__io    *io   = usm_container_of(transfer, usm__io, t);
    usm__tiers *t    = io->owner;
    usm__tier  *tier = usm__tier_of(t, io->tier);

    usm__mutex_lock(&t->lock);
    usm__flow_end(io->is_write ? &tier->writes : &tier->reads, usm__os_now_ns(), io->start_ns,
                  transfer->size, st == USM_OK);
    tier->errors += st != USM_OK;
    usm__mutex_unlock(&t->lock);
    if (!io->is_write)
        fetched(t, io, st);
    else if (st == USM_OK)
        written(t, io);
    else
        write_failed(t, io, st);
}

/* ---- called by the engine -------------------------------------------------------------------- */

/* Stored unencoded. */
static usm_status prepare_plain(usm__tiers *t, usm__io *io)
{
    uint64_t content;

    if (usm__io_is_whole(t, io)) {
        io->copy->codecs  = 0;
        io->copy->encoded = 0;
    } else if (io->copy->codecs) {
        return usm__fail(USM_E_INTERNAL, "a part of an encoded block was to be written");
    }
    content = make_sums(t, io, io->copy->sums);
    if (usm__io_is_whole(t, io))
        io->content = content;
    return USM_OK;
}

static void start_write(usm__tiers *t, usm__io *io)
{
    usm__io   *next = NULL;
    usm_status st   = io->scratch ? usm__codecs_encode(t, io) : USM_OK;

    if (st == USM_OK && io->scratch && io->copy->codecs == 0)
        next = usm__codecs_leave(t, io); /* it did not get smaller */
    if (st == USM_OK && !io->scratch)
        st = prepare_plain(t, io);
    else if (st == USM_OK && io->is_tracked)
        io->content = make_sums(t, io, NULL);
    if (st == USM_OK)
        place_and_submit(t, io, USM_OK);
    else
        usm__io_finish(t, io, st);
    if (next)
        usm__io_start(t, next);
}

/* With a bounce buffer, if one is needed and was waited for. */
void usm__io_start(usm__tiers *t, usm__io *io)
{
    usm_status st = USM_OK;

    if (!io->scratch && usm__codecs_wants(t, io))
        st = usm__codecs_enter(t, io);
    if (st == USM_E_AGAIN)
        return;
    if (st != USM_OK) {
        usm__io_finish(t, io, st);
    } else if (io->is_write) {
        start_write(t, io);
    } else if (t->replicas) {
        usm__replicas_read(t, io);
    } else {
        go_to(io, io->copy->tier, io->copy->slot, false);
        submit(t, io);
    }
}

static void begin(usm__tiers *t, usm__io *io, bool is_write)
{
    bool is_forked, may_start = true;

    io->owner    = t;
    io->scratch  = NULL;
    io->content  = 0;
    io->is_write = is_write;
    io->is_fresh = false;
    io->attempts = 0;
    io->tried    = 0;
    io->rounds   = 0;
    usm__mutex_lock(&t->lock);
    is_forked = t->is_forked;
    if (!is_forked) {
        t->flying++;
        usm_assert(io->copy->flying < UINT8_MAX && (is_write || io->copy->tier));
        io->copy->flying++;
        io->copy->generation += is_write;
        io->copy->content = is_write ? 0 : io->copy->content;
        if (t->replicas)
            may_start = usm__replicas_begin(t, io);
    }
    usm__mutex_unlock(&t->lock);
    if (is_forked)
        io->done(io, usm__fail(USM_E_FORKED, "after fork() the child cannot use the tiers of its "
                                             "parent's buffers"));
    else if (may_start)
        usm__io_start(t, io);
}

void usm__tiers_write(usm__tiers *t, usm__io *io)
{
    begin(t, io, true);
}

void usm__tiers_read(usm__tiers *t, usm__io *io)
{
    begin(t, io, false);
}
