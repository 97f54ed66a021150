/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Eviction from a full device: the choice of the extent, and how it is evicted.
 *
 *     chosen (lock) -> is_leaving -> piece by piece: pin host blocks, copy, unpin, host is valid
 *                   -> out of the lists (lock) -> its memory goes back to the pool
 *
 * Only extents that nothing uses are evicted, so the only waits are for the copies.  A byte that is
 * also valid in another extent is not copied, unless that one is being evicted too: of two at once,
 * one copies it.  Frames that others hold are not waited for: their holders may wait for the extent
 * that is being evicted.  After any failure the extent stays, with its valid bytes; those copied
 * until then are valid in both locations. */
#include "buffer/extent.h"

#include "base/inline/bits.h"
#include "buffer/slot.h"
#include "heap/pool.h"

#define CANDIDATES 16 /* how many of the least recently used are compared */

/* Bytes that must be copied away count two ways, other bytes one, per KiB of room gained; the more
 * recently an extent was used, the higher its cost. */
uint64_t usm__extent_cost(size_t only_there, size_t elsewhere_too, size_t size, size_t age_rank)
{
    uint64_t bytes = 2 * (uint64_t)only_there + elsewhere_too;

    return (bytes << 10) / (size + 1) * (age_rank + 1);
}

/* ---- the choice ------------------------------------------------------------------ */

/* The next piece from `at` on that is valid in e alone. */
static bool next_only_there(const usm__extent *e, size_t at, usm__interval *piece)
{
    const usm__locations *p = e->locations;

    while (usm__valid_next(&e->holding.valid, at, e->end, piece)) {
        usm__interval gap;
        size_t        end = piece->start;

        if (!usm__valid_next_gap(&p->host.valid, piece->start, piece->end, &gap)) {
            at = piece->end;
            continue;
        }
        *piece = gap;
        USM_LIST_FOREACH (it, &p->extents) {
            const usm__extent *other = usm_container_of(it, usm__extent, link);
            usm__interval      there;

            if (other == e || other->is_leaving ||
                !usm__valid_next(&other->holding.valid, piece->start, piece->end, &there))
                continue;
            if (there.start > piece->start)
                piece->end = there.start;
            else
                end = usm_max_size(end, there.end);
        }
        if (end <= piece->start)
            return true;
        at = end;
    }
    return false;
}

static uint64_t cost_of(const usm__extent *e, size_t age_rank, bool *is_clean)
{
    size_t        valid = usm__valid_size(&e->holding.valid), only = 0, at = e->start;
    usm__interval piece;

    while (next_only_there(e, at, &piece)) {
        only += piece.end - piece.start;
        at = piece.end;
    }
    *is_clean = only == 0;
    return usm__extent_cost(only, valid - only, e->end - e->start, age_rank);
}

/* Lock held. */
static usm__extent *choose(const usm__memory *m, const usm__evict_rule *rule)
{
    usm__extent *best  = NULL;
    uint64_t     least = 0;
    size_t       rank  = 0;

    USM_LIST_FOREACH (it, &m->extents) {
        usm__extent *e = usm_container_of(it, usm__extent, lru);
        bool         is_clean;
        uint64_t     cost;

        if (usm__extent_is_used(e) || e->is_leaving || usm__context_is_inert(e->ctx) ||
            (rule->of && e->ctx != rule->of))
            continue;
        cost = cost_of(e, rank, &is_clean);
        if (!is_clean && !rule->may_copy)
            continue; /* however old: a clean extent may follow      */
        if (!best || cost < least) {
            best  = e;
            least = cost;
        }
        if (++rank == CANDIDATES)
            break;
    }
    return best;
}

/* ---- evicting --------------------------------------------------------------------- */

static usm_status save_piece(const usm__extent *e, usm__interval *piece)
{
    usm__locations *p  = e->locations;
    usm_status      st = usm__locations_pin(p, piece, USM_WRITE_NO_INIT, true);

    if (st != USM_OK)
        return st;
    st = usm__locations_fetch(e, piece);
    usm__locations_unpin(p, piece, USM_WRITE_NO_INIT);
    return st;
}

/* Frames for its bytes must not be obtained by evicting other extents, which need frames too. */
static usm_status save_alone(const usm__extent *e, usm__interval *piece)
{
    usm__open_table *self = usm__slot_table();
    bool             was  = self && self->is_giving;
    usm_status       st;

    if (self)
        self->is_giving = true;
    st = save_piece(e, piece);
    if (self)
        self->is_giving = was;
    return st;
}

/* Lock held. */
static usm_status enter_saved(usm__locations *p, const usm__interval *piece)
{
    if (!usm__holding_reserve(&p->host))
        return usm__fail(USM_E_NO_MEMORY, "no host memory to record which bytes are valid");
    usm__valid_add(&p->host.valid, piece->start, piece->end);
    return USM_OK;
}

/* to_driver: the pool returns all idle memory. */
static void give_memory(usm__extent *e, bool to_driver)
{
    usm_context *ctx   = e->ctx;
    size_t       index = e->index;

    usm__context_use(ctx);
    usm__extent_free(e);
    for (int kind = USM_DEVICE; to_driver && kind <= USM_SHARED; kind++) {
        usm_pool *pool = usm_load_acquire(&ctx->devices[index].pools[kind]);

        if (pool)
            (void)usm_pool_trim_to(pool, 0);
    }
    usm__context_unuse(ctx);
}

usm_status usm__extent_evict(usm__memory *m, const usm__evict_rule *rule, size_t *freed)
{
    usm__extent  *e;
    usm__interval piece = {0, 0};
    usm__spill   *spill;
    usm_status    st = USM_OK;

    *freed = 0;
    usm__locations_reap(m);
    usm__extents_lock();
    e = choose(m, rule);
    if (!e) {
        usm__extents_unlock();
        return USM_OK;
    }
    spill         = e->locations->space->spill; /* the buffer may be freed once its extent is */
    e->is_leaving = true;
    for (size_t at = e->start; st == USM_OK && next_only_there(e, at, &piece); at = piece.end) {
        usm__extents_unlock();
        st = save_alone(e, &piece);
        usm__extents_lock();
        if (st == USM_OK)
            st = enter_saved(e->locations, &piece);
    }
    e->is_leaving = false;
    if (st == USM_OK)
        usm__extent_unlink(e);
    else
        usm__extent_touch(e);
    usm__extents_changed();
    usm__extents_unlock();
    if (st != USM_OK)
        return st;
    *freed = e->end - e->start;
    usm__spill_count_device_eviction(spill);
    give_memory(e, e->ctx != rule->for_pool);
    return USM_OK;
}
