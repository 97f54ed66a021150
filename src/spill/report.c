/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reports of an engine: statistics, their text, which buffers hold memory.  describe.c formats the
 * figures.  Called by users, and by pin.c for the error message of an access that finds no
 * memory. */
#include "device/context.h"
#include "spill/describe.h"
#include "spill/internal.h"

#include <stddef.h>
#include <string.h>

#define HOLDERS 16

void usm__spill_count_device_eviction(usm__spill *s)
{
    usm__mutex_lock(&s->lock);
    s->stats.device_evictions++;
    usm__mutex_unlock(&s->lock);
}

/* Counts what only the words record. */
static void count_words(usm__spill *s, usm_spill_stats *stats)
{
    for (uint32_t i = 0; i < s->grown; i++) {
        usm__frame *f = &s->frame[i];
        uint64_t    word;

        if (!f->space)
            continue;
        word = usm_load_relaxed(&f->space->words[f->block]);
        if ((word & USM__WORD_PINS) || usm__block_of(f->space, f->block)->kept)
            stats->pinned += s->block_size;
        if (word & USM__WORD_DIRTY)
            stats->dirty += s->block_size;
    }
}

/* Appends the backing stores to the tiers, as many as there is room for. */
static void add_homes(usm__spill *s, usm_spill_stats *stats)
{
    USM_LIST_FOREACH (it, &s->spaces) {
        usm__home *home = usm_container_of(it, usm__space_more, link)->home;

        if (home && stats->ntiers < USM_TIERS)
            usm__home_get_stats(home, &stats->tiers[stats->ntiers++]);
    }
}

static void add_copies(usm__spill *s, usm_spill_stats *stats)
{
    usm__tiers_copies c;

    usm__tiers_get_copies(s->tiers, &c);
    stats->copies          = c.wanted;
    stats->copies_missing  = c.missing;
    stats->copies_repaired = c.repaired;
    stats->blocks_lost     = c.lost;
}

void usm__spill_get_figures(usm__spill *s, usm_spill_stats *stats)
{
    usm__mutex_lock(&s->lock);
    *stats               = s->stats;
    stats->limit         = s->limit;
    stats->resident      = s->resident << s->shift;
    stats->block_size    = s->block_size;
    stats->resident_peak = (uint64_t)s->peak << s->shift;
    count_words(s, stats);
    usm__mutex_unlock(&s->lock);
    stats->ntiers = usm__tiers_get_stats(s->tiers, stats->tiers, USM_TIERS);
    add_copies(s, stats);
    usm__mutex_lock(&s->lock);
    add_homes(s, stats);
    usm__mutex_unlock(&s->lock);
}

static usm_status stats_of(usm_context *ctx, usm_spill_stats *stats)
{
    usm__spill  *s  = NULL;
    usm_context *of = usm__context_or_default(ctx);
    usm_status   st;

    if (!of)
        return usm_last_status();
    st = usm__context_check(of);
    if (st == USM_OK)
        st = usm__spill_of(of, &s);
    if (st == USM_OK)
        usm__spill_get_figures(s, stats);
    return st;
}

usm_status usm_spill_get_stats(usm_context *ctx, usm_spill_stats *stats)
{
    usm_spill_stats all;
    usm_status      st;
    size_t          size;

    if (!stats)
        return usm__fail(USM_E_INVALID, "usm_spill_get_stats: stats is NULL");
    size = stats->struct_size;
    if (size < offsetof(usm_spill_stats, resident) || size > sizeof all)
        return usm__fail(USM_E_ABI, "usm_spill_get_stats: struct_size is %zu; set it to sizeof",
                         size);
    st = stats_of(ctx, &all);
    if (st != USM_OK)
        return st;
    all.struct_size = size;
    memcpy(stats, &all, size);
    return USM_OK;
}

/* --- which buffers hold memory ---- */

size_t usm__spill_holders(usm__spill *s, usm__spill_holder *list, size_t cap)
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->grown; i++) {
        const usm__frame *f = &s->frame[i];
        uint64_t          pins, kept;
        size_t            k = 0;

        if (!f->space)
            continue;
        pins = (usm_load_relaxed(&f->space->words[f->block]) & USM__WORD_PINS) / USM__WORD_PIN;
        kept = usm__block_of(f->space, f->block)->kept;
        if (pins == 0 && kept == 0)
            continue;
        while (k < n && list[k].name != f->space->name)
            k++;
        if (k == cap)
            continue;
        if (k == n)
            list[n++] = (usm__spill_holder){.name = f->space->name};
        list[k].bytes += s->block_size;
        list[k].pins += pins;
        list[k].is_kept = list[k].is_kept || kept != 0;
    }
    return n;
}

static usm_status describe(usm_context *ctx, usm_text_format format, usm__out *out)
{
    usm_spill_stats   stats;
    usm__spill       *s = NULL;
    usm__spill_holder holders[HOLDERS];
    usm_status        st = stats_of(ctx, &stats);
    size_t            n;

    if (st == USM_OK)
        st = usm__spill_of(usm__context_or_default(ctx), &s);
    if (st != USM_OK)
        return st;
    usm__mutex_lock(&s->lock); /* the names belong to the spaces */
    n = usm__spill_holders(s, holders, HOLDERS);
    usm__spill_text(&stats, holders, n, format, out);
    usm__mutex_unlock(&s->lock);
    return USM_OK;
}

usm_status usm_spill_describe(usm_context *ctx, usm_text_format format, char *text, size_t cap,
                              size_t *size)
{
    usm__out   out = {.text = text, .cap = cap};
    usm_status st;

    if ((format != USM_TEXT && format != USM_JSON) || (!text && cap))
        return usm__fail(USM_E_INVALID, "usm_spill_describe: %s",
                         !text && cap ? "text is NULL and cap is not 0"
                                      : "format is neither USM_TEXT nor USM_JSON");
    st = describe(ctx, format, &out);
    if (st == USM_OK && size)
        *size = out.used;
    return st;
}
